//! Socket options, `fcntl` and `ioctl`.

use sluicegate_tcp::{Config, config::Buffer};

use super::{Answer, Call, Error, Expr, Host, Step, Value};
use crate::{
    host::Role,
    machine::algorithm,
    model::{Action, Script},
};

/// Socket options that play no part here.
const IGNORED: [&str; 10] = [
    "SO_REUSEADDR",
    "SO_REUSEPORT",
    "SO_ZEROCOPY",
    "SO_PRIORITY",
    "SO_MARK",
    "SO_BROADCAST",
    "IP_MTU_DISCOVER",
    "IPV6_MTU_DISCOVER",
    "TCP_NOTSENT_LOWAT",
    "SO_BINDTODEVICE",
];
/// Errors as numbers, for `SO_ERROR`.
const NUMBERS: [(&str, i64); 4] = [
    ("EPIPE", 32),
    ("ECONNRESET", 104),
    ("ETIMEDOUT", 110),
    ("ECONNREFUSED", 111),
];

/// Options that only matter for what is written are set before the script begins if they come
/// before its first write: an endpoint's configuration is fixed when it is made.
pub fn foresee(script: &Script, config: &mut Config) -> Step {
    for event in &script.events {
        let Action::Call(call) = &event.action else {
            continue;
        };
        match call.name.as_str() {
            "write" | "writev" | "send" | "sendto" | "sendmsg" => return Ok(()),
            "setsockopt" if call.result == Expr::Integer(0) => {
                before_writing(event.line, call, config)?
            }
            _ => (),
        }
    }
    Ok(())
}

/// An option of the kind that [`foresee`] looks for.
fn before_writing(line: usize, call: &Call, config: &mut Config) -> Step {
    match (call.words(2).first(), call.arguments.get(3)) {
        (Some(&"TCP_NODELAY"), _) => config.nagle = call.number() == Some(0),
        (Some(&"SO_SNDBUF"), _) => {
            // The kernel doubles it for its own share.
            if let Some(bytes @ 1..=0x4000_0000) = call.number() {
                config.send_buffer = fixed(2 * bytes as u64);
            }
        }
        (Some(&"TCP_CONGESTION"), Some(name)) => {
            if let Some(name) = text(name) {
                config.algorithm = algorithm(line, name)?;
            }
        }
        _ => (),
    }
    Ok(())
}

fn fixed(bytes: u64) -> Buffer {
    Buffer {
        initial_bytes: bytes,
        max_bytes: bytes,
    }
}

/// `"cubic"` or `["cubic"]`
fn text(value: &Expr) -> Option<&str> {
    match value {
        Expr::Text(text) => Some(text),
        Expr::List(list) => list.first().and_then(text),
        _ => None,
    }
}

impl Host {
    pub(super) fn setsockopt(&mut self, call: &Call) -> Step<Answer> {
        if self.socket_of(call).is_none() {
            return Ok(Error("EBADF"));
        }
        let words = call.words(2);
        let Some(name) = words.first() else {
            return self.unknown("a socket option by number");
        };
        let before = self.connection.is_none();
        match *name {
            name if IGNORED.contains(&name) => (),
            "TCP_NODELAY" | "SO_SNDBUF" | "TCP_CONGESTION" if !self.wrote => (),
            "SO_KEEPALIVE" | "TCP_CORK" if call.number() == Some(0) => (),
            "TCP_MAXSEG" | "SO_RCVBUF" if before => return self.set_before_connection(name, call),
            "SO_LINGER" => return self.linger(call),
            name => return self.unknown(&format!("socket option {name} here")),
        }
        Ok(Value(0))
    }

    /// What the handshake depends on.
    fn set_before_connection(&mut self, name: &str, call: &Call) -> Step<Answer> {
        let Some(value @ 1..=0x4000_0000) = call.number() else {
            return self.unknown(&format!("{name} without a number"));
        };
        if name == "SO_RCVBUF" {
            self.config.receive_buffer = fixed(value as u64);
        } else if value <= i64::from(self.config.mss) {
            self.config.mss = value as u16;
        }
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
        let value = match call.words(2).first() {
            Some(&"SO_ERROR") => {
                let error = self.connection_of(role).and_then(|open| open.error.take());
                let known = NUMBERS.iter().find(|(name, _)| Some(*name) == error);
                known.map_or(0, |(_, number)| *number)
            }
            Some(&"SO_SNDBUF") => self.config.send_buffer.initial_bytes as i64,
            Some(&"TCP_MAXSEG") => self
                .connection_of(role)
                .map_or(announced, |open| i64::from(open.endpoint.mss())),
            _ => return self.unknown("this socket option's value"),
        };
        self.value(call, 3, value)
    }

    pub(super) fn ioctl(&mut self, call: &Call) -> Step<Answer> {
        let Some(role @ Role::Connection(_)) = self.socket_of(call).map(|socket| socket.role)
        else {
            return Ok(Error("EINVAL"));
        };
        let value = match (call.words(1).first(), self.connection_of(role)) {
            (_, None) => 0,
            (Some(&("SIOCINQ" | "FIONREAD")), Some(open)) => open.endpoint.readable(),
            (Some(&"SIOCOUTQ"), Some(open)) => open.endpoint.unacknowledged(),
            _ => return self.unknown("this ioctl"),
        };
        self.value(call, 2, value as i64)
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
            Some(Expr::Word(name)) => NUMBERS
                .iter()
                .any(|(known, number)| known == name && *number == value),
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
                _ => None,
            },
            Expr::Integer(value) => Some(*value),
            _ => None,
        }
    }
}
