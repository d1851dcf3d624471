//! Socket options, `fcntl` and `ioctl`.

use super::{Answer, Call, Error, Expr, Host, Step, Value};
use crate::{
    host::Connection,
    machine::{Stack, algorithm},
    memory,
    model::{Action, Script},
    socket::{Options, Role},
};

/// Socket options that play no part here.
const IGNORED: [&str; 16] = [
    "SO_REUSEADDR",
    "SO_REUSEPORT",
    "SO_PRIORITY",
    "SO_MARK",
    "SO_BROADCAST",
    "SO_DEBUG",
    "SO_BUSY_POLL",
    "SO_INCOMING_CPU",
    "IP_MTU_DISCOVER",
    "IPV6_MTU_DISCOVER",
    "IP_FREEBIND",
    "IP_BIND_ADDRESS_NO_PORT",
    "IP_RECVERR",
    "IPV6_RECVERR",
    "TCP_LOG_ID",
    "SO_BINDTODEVICE",
];
/// Errors as numbers, for `SO_ERROR`: the name, Linux's number, FreeBSD's.
const NUMBERS: [(&str, i64, i64); 9] = [
    ("EPIPE", 32, 32),
    ("ENOPROTOOPT", 92, 42),
    ("ENETUNREACH", 101, 51),
    ("ECONNRESET", 104, 54),
    ("ETIMEDOUT", 110, 60),
    ("ECONNREFUSED", 111, 61),
    ("EHOSTDOWN", 112, 64),
    ("EHOSTUNREACH", 113, 65),
    ("ECONNABORTED", 103, 53),
];
/// The largest number that an option may have here.
const MOST: i64 = 0x4000_0000;
const MS: u64 = 1_000_000;

/// Congestion control that is chosen before the first write holds from the beginning: an endpoint
/// keeps the one that it is made with.
pub fn foresee(script: &Script, config: &mut sluicegate_tcp::Config) -> Step {
    for event in &script.events {
        let Action::Call(call) = &event.action else {
            continue;
        };
        match call.name.as_str() {
            "write" | "writev" | "send" | "sendto" | "sendmsg" => return Ok(()),
            "setsockopt" if call.result == Expr::Integer(0) => {
                if let (Some(&"TCP_CONGESTION"), Some(name)) =
                    (call.words(2).first(), call.arguments.get(3).and_then(text))
                {
                    config.algorithm = algorithm(event.line, name)?;
                }
            }
            _ => (),
        }
    }
    Ok(())
}

/// `"cubic"` or `["cubic"]`
fn text(value: &Expr) -> Option<&str> {
    match value {
        Expr::Text(text) => Some(text),
        Expr::List(list) => list.first().and_then(text),
        _ => None,
    }
}

/// `\xa1\xb2…`: the bytes of a string.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let parts = text.split("\\x").skip(1);
    let bytes = parts.map(|digits| u8::from_str_radix(digits, 16).ok());
    bytes.collect()
}

impl Host {
    pub(super) fn setsockopt(&mut self, call: &Call) -> Step<Answer> {
        let Some(role) = self.socket_of(call).map(|socket| socket.role) else {
            return Ok(Error("EBADF"));
        };
        let words = call.words(2);
        let Some(name) = words.first() else {
            return self.unknown("a socket option by number");
        };
        match *name {
            name if IGNORED.contains(&name) => Ok(Value(0)),
            "TCP_CONGESTION" if !self.wrote => Ok(Value(0)),
            "SO_LINGER" => self.linger(call),
            "TCP_FASTOPEN_KEY" => self.set_fast_open_key(call),
            "SO_TIMESTAMPING" => self.set_stamps(call, role),
            "TCP_NODELAY" | "TCP_CORK" | "TCP_NOPUSH" => self.set_pushing(name, call, role),
            name => self.set_number(name, call, role),
        }
    }

    /// An option that is one number.
    fn set_number(&mut self, name: &str, call: &Call, role: Role) -> Step<Answer> {
        match name {
            "IP_LOCAL_PORT_RANGE" => return self.set_ports(call, role),
            "TCP_REMOTE_UDP_ENCAPS_PORT" => return self.set_tunnel(call, role),
            "TCP_NOTSENT_LOWAT" => return self.set_lowat(call, role),
            _ => (),
        }
        let Some(value @ 0..=MOST) = call.number() else {
            return self.unknown(&format!("socket option {name} here"));
        };
        let listens = role == Role::Listener;
        let opened = matches!(role, Role::Connection(_));
        let linux = self.stack == Stack::Linux;
        let (small, large) = (value as u32, value as u64);
        let mut options = self.options_of(call);
        match name {
            "SO_SNDBUF" if linux => options.send_buffer = (2 * large).max(memory::LEAST),
            "SO_SNDBUF" => options.send_buffer = large,
            "SO_RCVBUF" if linux => {
                options.receive_buffer = (2 * large).max(memory::LEAST_RECEIVE);
                if let Some(open) = self.connection_of(role) {
                    open.endpoint.set_receive_buffer(options.receive_buffer);
                }
            }
            "SO_RCVBUF" if !opened => options.receive_buffer = large.max(1),
            "TCP_MAXSEG" if !opened && value > 0 => {
                options.maxseg = value.min(i64::from(self.config.mss)) as u16;
            }
            "TCP_FASTOPEN" if !linux => options.fast_open = small,
            "TCP_FASTOPEN" if listens || !opened => options.fast_open = small,
            "TCP_FASTOPEN_CONNECT" if !self.fast_open.client() => return Ok(Error("EOPNOTSUPP")),
            "TCP_FASTOPEN_CONNECT" => options.fast_open_connect = value > 0,
            "TCP_FASTOPEN_NO_COOKIE" => options.no_cookie = value > 0,
            "TCP_SYNCNT" if linux && (1..=127).contains(&value) => {
                options.syn_retries = value as u8;
            }
            "TCP_USER_TIMEOUT" => options.user_timeout_ns = large * MS,
            "SO_KEEPALIVE" => options.keepalive = value > 0,
            "TCP_KEEPIDLE" => options.keepalive_idle_s = small,
            "TCP_KEEPINTVL" => options.keepalive_interval_s = small,
            "TCP_KEEPCNT" => options.keepalive_count = small,
            "TCP_KEEPINIT" => options.keepinit_s = small,
            "TCP_NOOPT" if !opened && !listens => options.no_options = value > 0,
            "TCP_INQ" => options.inq = value > 0,
            "SO_ZEROCOPY" => options.zerocopy = value > 0,
            "IP_TTL" | "IPV6_UNICAST_HOPS" => options.ttl = value.min(255) as u8,
            "IP_TOS" | "IPV6_TCLASS" => options.tos = (value & 0xfc) as u8,
            name => return self.unknown(&format!("socket option {name} here")),
        }
        self.set_options(call, role, options);
        Ok(Value(0))
    }

    /// `TCP_NOTSENT_LOWAT`: data that may wait unsent; 0 is the host's value. A writer that waits
    /// may have room now.
    fn set_lowat(&mut self, call: &Call, role: Role) -> Step<Answer> {
        // The kernel reads 32 bits, whatever their sign.
        let bits = |number| {
            let signed = i32::try_from(number).map(|it| u32::from_ne_bytes(it.to_ne_bytes()));
            u32::try_from(number).or(signed)
        };
        let Some(Ok(bytes)) = call.number().map(bits) else {
            return self.unknown("TCP_NOTSENT_LOWAT beyond 32 bits");
        };
        let mut options = self.options_of(call);
        options.notsent_lowat = bytes;
        self.set_options(call, role, options);
        let (memory, space) = (self.memory, self.space());
        if let Some(open) = self.connection_of(role) {
            if !open.writable && memory.is_writable(&open.endpoint, space) {
                open.writable = true;
                open.wakeups += 1;
            }
        }
        Ok(Value(0))
    }

    /// `IP_LOCAL_PORT_RANGE`, of which it matters whether it is a single port: the last one in the
    /// upper half of the number, the first one in the lower half.
    fn set_ports(&mut self, call: &Call, role: Role) -> Step<Answer> {
        let Some(range @ 0..=0xffff_ffff) = call.number() else {
            return self.unknown("IP_LOCAL_PORT_RANGE without a range");
        };
        let mut options = self.options_of(call);
        options.one_port = range != 0 && range >> 16 == range & 0xffff;
        self.set_options(call, role, options);
        Ok(Value(0))
    }

    fn options_of(&self, call: &Call) -> Options {
        self.socket_of(call)
            .map_or(Options::default(), |socket| socket.options)
    }

    /// The socket has these options from now on, and its connection.
    fn set_options(&mut self, call: &Call, role: Role, options: Options) {
        self.on_socket(call, |socket| {
            socket.options = options;
            Value(0)
        });
        if let Some(connection) = self.connection_of(role) {
            connection.options = options;
            let endpoint = &mut connection.endpoint;
            endpoint.config_mut().user_timeout_ns = options.user_timeout_ns;
            if options.syn_retries > 0 {
                endpoint.config_mut().syn_retries = options.syn_retries;
            }
        }
    }

    /// Whether small segments wait. What waits leaves when either option says so.
    fn set_pushing(&mut self, name: &str, call: &Call, role: Role) -> Step<Answer> {
        let Some(value) = call.number() else {
            return self.unknown(&format!("socket option {name} here"));
        };
        let mut options = self.options_of(call);
        match name {
            "TCP_NODELAY" => options.nodelay = value != 0,
            _ => options.corked = value != 0,
        }
        self.set_options(call, role, options);
        if let Some(connection) = self.connection_of(role) {
            let endpoint = &mut connection.endpoint;
            endpoint.config_mut().nagle = !options.nodelay;
            let pushes = (name == "TCP_NODELAY") == (value != 0);
            if pushes {
                endpoint.cork(false);
                self.transmit()?;
            }
        }
        if let Some(connection) = self.connection_of(role) {
            connection.endpoint.cork(options.corked);
        }
        Ok(Value(0))
    }

    fn set_fast_open_key(&mut self, call: &Call) -> Step<Answer> {
        let Some(Expr::Text(text)) = call.arguments.get(3) else {
            return self.unknown("a key that is no string");
        };
        let key = bytes(text).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
        Ok(match (key, call.integer(4)) {
            (Some(key), Some(16)) => self.on_socket(call, |socket| {
                socket.options.fast_open_key = Some(key);
                Value(0)
            }),
            _ => Error("EINVAL"),
        })
    }

    /// `SO_TIMESTAMPING`: keys count from what is written now.
    fn set_stamps(&mut self, call: &Call, role: Role) -> Step<Answer> {
        let words = call.words(3);
        let mut options = self.options_of(call);
        options.stamp_scheduled = words.contains(&"SOF_TIMESTAMPING_TX_SCHED");
        options.stamp_sent = words.contains(&"SOF_TIMESTAMPING_TX_SOFTWARE");
        options.stamp_acked = words.contains(&"SOF_TIMESTAMPING_TX_ACK");
        self.set_options(call, role, options);
        if let Some(Connection { notices, una, .. }) = self.connection_of(role) {
            notices.count_from((*una).max(1));
        }
        Ok(Value(0))
    }

    /// Of a socket without a connection, and 0 only where the host has no port for it.
    fn set_tunnel(&mut self, call: &Call, role: Role) -> Step<Answer> {
        let port = call.number().and_then(|port| u16::try_from(port).ok());
        let has_port = self.tunnel.port > 0;
        let lawful = |port: &u16| role == Role::Fresh && (has_port || *port == 0);
        let Some(tunnel) = port.filter(lawful) else {
            return Ok(Error("EINVAL"));
        };
        let options = self.options_of(call);
        self.set_options(call, role, Options { tunnel, ..options });
        Ok(Value(0))
    }

    /// `{onoff=1, linger=0}`
    fn linger(&mut self, call: &Call) -> Step<Answer> {
        let Some(Expr::Struct(fields)) = call.arguments.get(3) else {
            return self.unknown("SO_LINGER without its fields");
        };
        let field = |wanted: &str| {
            let found = fields.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value)
        };
        let on = field("onoff").is_some_and(|value| *value != Expr::Integer(0));
        let at_once = field("linger") == Some(&Expr::Integer(0));
        if on && !at_once {
            return self.unknown("a close that lingers");
        }
        Ok(self.on_socket(call, |socket| {
            socket.resets = on;
            Value(0)
        }))
    }

    pub(super) fn getsockopt(&mut self, call: &Call) -> Step<Answer> {
        let Some(role) = self.socket_of(call).map(|socket| socket.role) else {
            return Ok(Error("EBADF"));
        };
        let announced = i64::from(self.config.mss);
        let options = self.options_of(call);
        let keepalive = self.keepalive;
        let given = |own: u32, default: u32| i64::from(if own > 0 { own } else { default });
        let value = match call.words(2).first() {
            Some(&"SO_ERROR") => {
                let error = self.connection_of(role).and_then(|open| open.error.take());
                self.error_number(error)
            }
            Some(&"SO_SNDBUF") => match options.send_buffer {
                0 => self.config.send_buffer.initial_bytes as i64,
                own => own as i64,
            },
            Some(&"SO_RCVBUF") => self.receive_buffer(role, &options) as i64,
            Some(&"TCP_MAXSEG") if options.maxseg > 0 && !matches!(role, Role::Connection(_)) => {
                options.maxseg.into()
            }
            Some(&"TCP_MAXSEG") => self
                .connection_of(role)
                .map_or(announced, |open| i64::from(open.endpoint.mss())),
            Some(&"TCP_REMOTE_UDP_ENCAPS_PORT") => {
                let open = self.connection_of(role);
                open.map_or(options.tunnel, |open| open.options.tunnel)
                    .into()
            }
            Some(&"TCP_NOTSENT_LOWAT") => options.notsent_lowat.into(),
            Some(&"TCP_NODELAY") => options.nodelay.into(),
            Some(&"SO_KEEPALIVE") => i64::from(options.keepalive || keepalive.always),
            Some(&"TCP_KEEPIDLE") => given(options.keepalive_idle_s, keepalive.idle_s),
            Some(&"TCP_KEEPINTVL") => given(options.keepalive_interval_s, keepalive.interval_s),
            Some(&"TCP_KEEPCNT") => given(options.keepalive_count, keepalive.count),
            Some(&"TCP_KEEPINIT") => given(options.keepinit_s, keepalive.init_s),
            Some(&"TCP_USER_TIMEOUT") => (options.user_timeout_ns / MS) as i64,
            Some(&("IP_TTL" | "IPV6_UNICAST_HOPS")) if options.ttl > 0 => options.ttl.into(),
            _ => return self.unknown("this socket option's value"),
        };
        self.value(call, 3, value)
    }

    fn receive_buffer(&mut self, role: Role, options: &Options) -> u64 {
        let own = match options.receive_buffer {
            0 => self.config.receive_buffer.initial_bytes,
            own => own,
        };
        let open = self.connection_of(role);
        open.map_or(own, |open| open.endpoint.info().receive_buffer)
    }

    pub(super) fn ioctl(&mut self, call: &Call) -> Step<Answer> {
        let Some(role @ Role::Connection(_)) = self.socket_of(call).map(|socket| socket.role)
        else {
            return Ok(Error("EINVAL"));
        };
        let value = match (call.words(1).first(), self.connection_of(role)) {
            (_, None) => 0,
            (Some(&"SIOCINQ" | &"FIONREAD"), Some(open)) => open.endpoint.readable(),
            (Some(&"SIOCOUTQ"), Some(open)) => open.endpoint.unacknowledged(),
            (Some(&"SIOCOUTQNSD"), Some(open)) => open.endpoint.info().unsent,
            _ => return self.unknown("this ioctl"),
        };
        self.value(call, 2, value as i64)
    }

    /// The number of an error on this stack.
    fn error_number(&self, error: Option<&str>) -> i64 {
        let known = NUMBERS.iter().find(|(name, ..)| Some(*name) == error);
        known.map_or(0, |(_, linux, freebsd)| match self.stack {
            Stack::Linux => *linux,
            Stack::Freebsd => *freebsd,
        })
    }

    /// A value that a call writes back, `[n]` in the script.
    fn value(&self, call: &Call, index: usize, value: i64) -> Step<Answer> {
        let wanted = match call.arguments.get(index) {
            Some(Expr::List(list)) => list.first(),
            one => one,
        };
        let fits = match wanted {
            Some(Expr::Ellipsis) => true,
            Some(Expr::Integer(wanted)) => *wanted == value,
            Some(Expr::Word(name)) => value != 0 && self.error_number(Some(name)) == value,
            _ => return self.unknown("a value of this form"),
        };
        if fits {
            return Ok(Value(0));
        }
        super::Stop::fail(
            self.line,
            format!("expected {} to give {wanted:?}; got {value}", call.name),
        )
    }

    pub(super) fn fcntl(&mut self, call: &Call) -> Step<Answer> {
        let flags = call.words(2);
        let nonblocking = flags.contains(&"O_NONBLOCK");
        match call.words(1).first() {
            Some(&"F_SETFL") => Ok(self.on_socket(call, |socket| {
                socket.nonblocking = nonblocking;
                Value(0)
            })),
            // O_RDWR, and O_NONBLOCK where it is set.
            Some(&"F_GETFL") => Ok(self.on_socket(call, |socket| {
                Value(if socket.nonblocking { 0x802 } else { 2 })
            })),
            _ => self.unknown("this fcntl"),
        }
    }
}

impl Call {
    /// The number in `[1]`, `1` or `[1, 2]`.
    fn number(&self) -> Option<i64> {
        match self.arguments.get(3)? {
            Expr::List(list) => match list.first()? {
                Expr::Integer(value) => Some(*value),
                Expr::Word(name) => dscp(name),
                _ => None,
            },
            Expr::Integer(value) => Some(*value),
            _ => None,
        }
    }
}

/// The type of service that a name of a DSCP stands for (RFC 2474, RFC 2597, RFC 3246).
fn dscp(name: &str) -> Option<i64> {
    let name = name.strip_prefix("IPTOS_DSCP_")?;
    let digits = |text: &str| text.parse::<i64>().ok();
    if let Some(class) = name.strip_prefix("CS").and_then(digits) {
        return (0..8).contains(&class).then_some(class << 5);
    }
    if let Some(class) = name.strip_prefix("AF").and_then(digits) {
        return (11..=43)
            .contains(&class)
            .then_some(((class / 10) << 5) | ((class % 10) << 3));
    }
    (name == "EF").then_some(0xb8)
}
