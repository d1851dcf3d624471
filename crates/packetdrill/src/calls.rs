//! System calls: what an application does to the host.

mod messages;
mod options;
mod readiness;
mod transfer;

pub use options::foresee;
#[cfg(target_os = "linux")]
pub use {readiness::names, transfer::vector};

use sluicegate_tcp::State;

use crate::{
    Step, Stop,
    host::{Connection, Host},
    machine::Stack,
    model::{Call, Expr},
    record::What,
    socket::{Options, Other, Role, Socket},
    time::seconds,
};

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Value(i64),
    Error(&'static str),
    /// Not yet: it waits for the network.
    Waits,
}

use Answer::{Error, Value, Waits};

/// A call that has not returned, or has and was not looked at.
#[derive(Clone, Debug)]
pub struct Blocked {
    line: usize,
    begun_ns: u64,
    call: Call,
    /// When the script expects it to return; `None`: at once.
    until_ns: u64,
    tolerance_ns: u64,
    progress: Progress,
    done: Option<(u64, Answer)>,
}

impl Blocked {
    /// It is a write that waits for space.
    pub fn waits_to_write(&self) -> bool {
        let writes = ["write", "writev", "send", "sendto", "sendmsg", "sendfile"];
        self.done.is_none() && writes.contains(&self.call.name.as_str())
    }
}

/// The progress of a call that waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// A connection is on its way.
    connecting: bool,
    /// Bytes that a write has got rid of.
    written: u64,
    /// A write found no space and waits to be woken.
    refused: bool,
}

impl Host {
    /// A call that has sent a SYN waits to write the rest of its data.
    pub fn opens_with_data(&self) -> bool {
        let Some(blocked) = &self.blocked else {
            return false;
        };
        let waits = blocked.waits_to_write() && blocked.progress.connecting;
        waits && (self.bytes(&blocked.call)).is_ok_and(|bytes| blocked.progress.written < bytes)
    }

    /// Begins a call. `until_ns` is when a call that may wait is to return.
    pub fn call(&mut self, call: &Call, until_ns: Option<u64>, tolerance_ns: u64) -> Step {
        self.finish_blocked()?;
        self.blocked = Some(Blocked {
            line: self.line,
            begun_ns: self.now_ns,
            call: call.clone(),
            until_ns: until_ns.unwrap_or(self.now_ns),
            tolerance_ns,
            progress: Progress::default(),
            done: None,
        });
        let mut blocked = self.blocked.take();
        if let Some(blocked) = &mut blocked {
            blocked.done = self.attempt(blocked)?;
        }
        self.blocked = blocked;
        self.pump()?;
        if until_ns.is_none() {
            return self.check_blocked_call();
        }
        Ok(())
    }

    /// Tries the call that waits again; true if that changed something.
    pub fn resume(&mut self) -> Step<bool> {
        let Some(mut blocked) = self.blocked.take_if(|blocked| blocked.done.is_none()) else {
            return Ok(false);
        };
        let before = blocked.progress;
        blocked.done = self.attempt(&mut blocked)?;
        let changed = blocked.done.is_some() || blocked.progress != before;
        self.blocked = Some(blocked);
        Ok(changed)
    }

    /// Waits for a call that blocks.
    pub fn finish_blocked(&mut self) -> Step {
        if let Some(blocked) = &self.blocked {
            if blocked.done.is_none() {
                let until = blocked.until_ns.saturating_add(blocked.tolerance_ns);
                self.advance_until_done(until)?;
            }
        }
        self.check_blocked_call()
    }

    fn advance_until_done(&mut self, until_ns: u64) -> Step {
        while self
            .blocked
            .as_ref()
            .is_some_and(|blocked| blocked.done.is_none())
        {
            let deadline = self.deadline().max(self.now_ns);
            if deadline >= until_ns {
                return self.advance(until_ns, false);
            }
            self.advance(deadline + 1, false)?;
        }
        Ok(())
    }

    /// Compares what the call returned with what the script expects.
    fn check_blocked_call(&mut self) -> Step {
        let Some(blocked) = self.blocked.take() else {
            return Ok(());
        };
        let name = &blocked.call.name;
        if let Some(record) = &mut self.record {
            let returned = blocked.done.map(|(at_ns, answer)| {
                let took_ns = at_ns.saturating_sub(blocked.begun_ns);
                (blocked.call.told(answer), took_ns)
            });
            let what = What::Returned {
                name: name.clone(),
                returned,
            };
            record.note(blocked.line, what);
            return Ok(());
        }
        let Some((at_ns, answer)) = blocked.done else {
            return Stop::fail(
                blocked.line,
                format!(
                    "expected {name} to return by {}; got no return",
                    seconds(blocked.until_ns)
                ),
            );
        };
        if at_ns.abs_diff(blocked.until_ns) > blocked.tolerance_ns {
            return Stop::fail(
                blocked.line,
                format!(
                    "expected {name} to return at {}; got {}",
                    seconds(blocked.until_ns),
                    seconds(at_ns)
                ),
            );
        }
        if blocked.call.accepts(answer) {
            return Ok(());
        }
        let got = blocked.call.told(answer);
        Stop::fail(
            blocked.line,
            format!("expected {name} = {}; got {got}", blocked.call.wanted()),
        )
    }

    /// One attempt; `None`: it waits.
    fn attempt(&mut self, blocked: &mut Blocked) -> Step<Option<(u64, Answer)>> {
        let answer = self.dispatch(&blocked.call.clone(), &mut blocked.progress)?;
        if answer == Waits {
            return Ok(None);
        }
        Ok(Some((self.now_ns, answer)))
    }

    fn dispatch(&mut self, call: &Call, progress: &mut Progress) -> Step<Answer> {
        match call.name.as_str() {
            "socket" => self.socket(call),
            "bind" => Ok(self.on_socket(call, |_| Value(0))),
            "listen" => Ok(self.listen(call)),
            "accept" | "accept4" => self.accept(call),
            "connect" => self.call_connect(call, progress),
            "read" | "recv" | "recvfrom" | "readv" | "recvmsg" => self.read(call),
            "write" | "send" | "sendto" | "writev" | "sendmsg" => self.write(call, progress),
            "sendfile" => self.sendfile(call, progress),
            "close" => Ok(self.close(call)),
            "shutdown" => self.shutdown(call),
            "fcntl" => self.fcntl(call),
            "setsockopt" => self.setsockopt(call),
            "getsockopt" => self.getsockopt(call),
            "ioctl" => self.ioctl(call),
            "open" | "pipe" | "splice" => self.on_bytes(call),
            "epoll_create" | "epoll_create1" | "epoll_ctl" | "epoll_wait" | "poll" => {
                self.readiness(call)
            }
            name => self.unknown(&format!("system call {name}")),
        }
    }

    fn unknown<T>(&self, what: &str) -> Step<T> {
        Stop::unsupported(self.line, what)
    }

    /// `act` on the socket of the first argument.
    fn on_socket(&mut self, call: &Call, act: impl FnOnce(&mut Socket) -> Answer) -> Answer {
        let socket = call.integer(0).and_then(|fd| self.sockets.get_mut(&fd));
        socket.map_or(Error("EBADF"), act)
    }

    /// The socket of the first argument.
    fn socket_of(&self, call: &Call) -> Option<&Socket> {
        self.sockets.get(&call.integer(0)?)
    }

    /// The connection of a socket, unless another has taken its place.
    fn connection_of(&mut self, role: Role) -> Option<&mut Connection> {
        let connection = self.connection.as_mut()?;
        (role == Role::Connection(connection.number)).then_some(connection)
    }

    fn socket(&mut self, call: &Call) -> Step<Answer> {
        let words = call.words(1);
        if !words.contains(&"SOCK_STREAM") || call.words(2).contains(&"IPPROTO_MPTCP") {
            return self.unknown("sockets other than TCP's");
        }
        let nonblocking = words.contains(&"SOCK_NONBLOCK");
        let socket = Socket::new(nonblocking, Options::default());
        Ok(self.install(call, socket))
    }

    /// A new socket under the number that the script gives it.
    fn install(&mut self, call: &Call, socket: Socket) -> Answer {
        match call.result {
            // A number that is taken is taken over: the other one is known by no number any more.
            Expr::Integer(fd) if fd >= 0 => {
                self.others.remove(&fd);
                self.sockets.insert(fd, socket);
                Value(fd)
            }
            _ => Value(
                self.sockets
                    .keys()
                    .last()
                    .map_or(3, |fd| fd.saturating_add(1)),
            ),
        }
    }

    fn is_free(&self, fd: i64) -> bool {
        fd >= 0 && !self.sockets.contains_key(&fd) && !self.others.contains_key(&fd)
    }

    /// Something that is no socket, under the number that the script gives it.
    fn install_other(&mut self, fd: i64, other: Other) -> Answer {
        if !self.is_free(fd) {
            return Error("EMFILE");
        }
        self.others.insert(fd, other);
        Value(fd)
    }

    /// Files and pipes, of which only the number of bytes in them matters. A file that exists has
    /// more of them than any script asks for.
    fn on_bytes(&mut self, call: &Call) -> Step<Answer> {
        match (call.name.as_str(), call.arguments.first(), &call.result) {
            ("open", _, Expr::Integer(fd)) => Ok(self.install_other(*fd, Other::Bytes(1 << 40))),
            ("pipe", Some(Expr::List(ends)), _) => {
                for end in ends {
                    let Expr::Integer(fd) = end else {
                        return self.unknown("a pipe without numbers");
                    };
                    self.install_other(*fd, Other::Bytes(0));
                }
                Ok(Value(0))
            }
            (name, ..) => self.unknown(&format!("system call {name}")),
        }
    }

    fn listen(&mut self, call: &Call) -> Answer {
        self.on_socket(call, |socket| match socket.role {
            Role::Fresh | Role::Listener => {
                socket.role = Role::Listener;
                Value(0)
            }
            Role::Connection(_) => Error("EINVAL"),
        })
    }

    fn accept(&mut self, call: &Call) -> Step<Answer> {
        let Some(listener) = self.socket_of(call).cloned() else {
            return Ok(Error("EBADF"));
        };
        if listener.role != Role::Listener {
            return Ok(Error("EINVAL"));
        }
        let ready = self
            .connection
            .as_mut()
            .filter(|connection| connection.passive && connection.established && !connection.owned);
        let Some(connection) = ready else {
            return Ok(if listener.nonblocking {
                Error("EAGAIN")
            } else {
                Waits
            });
        };
        connection.owned = true;
        connection.endpoint.own(true);
        let socket = Socket {
            role: Role::Connection(connection.number),
            ..Socket::new(call.words(3).contains(&"SOCK_NONBLOCK"), listener.options)
        };
        Ok(self.install(call, socket))
    }

    fn call_connect(&mut self, call: &Call, progress: &mut Progress) -> Step<Answer> {
        let Some(socket) = self.socket_of(call).cloned() else {
            return Ok(Error("EBADF"));
        };
        if call.words(1).contains(&"AF_UNSPEC") {
            return Ok(self.disconnect(call, socket.role));
        }
        let waits = if socket.nonblocking {
            Error("EINPROGRESS")
        } else {
            Waits
        };
        if socket.deferred {
            return Ok(Error("EISCONN"));
        }
        if socket.role == Role::Fresh {
            let fast = socket.options.fast_open_connect && self.fast_open.client();
            if fast && self.peer.cookie.is_some() {
                // The first data opens.
                return Ok(self.on_socket(call, |socket| {
                    socket.deferred = true;
                    Value(0)
                }));
            }
            if self.port_is_taken(&socket.options) {
                return Ok(Error("EADDRNOTAVAIL"));
            }
            self.connect_fast(call, 0);
            progress.connecting = true;
            return Ok(waits);
        }
        let Some(connection) = self.connection_of(socket.role) else {
            return Ok(Error("EISCONN"));
        };
        if let Some(error) = connection.error.take() {
            return Ok(Error(error));
        }
        Ok(match (connection.established, socket.nonblocking) {
            (true, _) if progress.connecting => Value(0),
            (true, _) => Error("EISCONN"),
            (false, true) => Error("EALREADY"),
            (false, false) => Waits,
        })
    }

    /// The socket of the call connects. With fast open its SYN takes `bytes` along if there is a
    /// cookie for that, and asks for one if not.
    fn connect_fast(&mut self, call: &Call, bytes: u64) {
        let Some(options) = self.socket_of(call).map(|socket| socket.options) else {
            return;
        };
        let freebsd = self.stack == Stack::Freebsd;
        let fast = options.fast_open_connect
            || call.has_flag("MSG_FASTOPEN")
            || (freebsd && options.fast_open > 0 && !self.peer.refuses_data);
        let fast = fast && self.fast_open.client();
        let without = options.no_cookie || self.fast_open.client_without_cookie();
        let cookie = self.peer.cookie.clone().filter(|_| fast && !without);
        let known = cookie.is_some() || (fast && without);
        let bytes = if known {
            bytes.min(self.syn_room(&options))
        } else {
            0
        };
        let (number, taken) = self.connect(options, bytes);
        if let Some(connection) = &mut self.connection {
            connection.fast_open = match known {
                true => cookie.filter(|_| taken > 0 || !freebsd),
                false => fast.then(|| self.peer.request()),
            };
        }
        self.on_socket(call, |socket| {
            socket.role = Role::Connection(number);
            socket.deferred = false;
            Value(0)
        });
    }

    /// `connect(AF_UNSPEC)`: the connection ends and the socket may be used again.
    fn disconnect(&mut self, call: &Call, role: Role) -> Answer {
        if let Some(connection) = self.connection_of(role) {
            connection.endpoint.abort();
        }
        self.on_socket(call, |socket| {
            socket.role = Role::Fresh;
            Value(0)
        })
    }

    fn close(&mut self, call: &Call) -> Answer {
        let fd = call.integer(0).unwrap_or(-1);
        if self.others.remove(&fd).is_some() {
            return Value(0);
        }
        let Some(socket) = self.sockets.remove(&fd) else {
            return Error("EBADF");
        };
        if socket.role == Role::Listener {
            self.close_listener();
        }
        let linux = self.stack == Stack::Linux;
        if let Some(connection) = self.connection_of(socket.role) {
            connection.orphan = true;
            let opening = connection.endpoint.state() == State::SynSent;
            if !linux {
                connection.endpoint.read(u64::MAX); // FreeBSD discards unread data
            }
            if socket.resets || opening || connection.endpoint.readable() > 0 {
                connection.endpoint.abort();
            } else {
                connection.endpoint.close();
            }
        }
        Value(0)
    }

    /// A connection that has not been accepted ends with its listener: a reset, or silence if the
    /// handshake was not over.
    fn close_listener(&mut self) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        if connection.passive && !connection.owned {
            if connection.established {
                connection.endpoint.abort();
            } else {
                self.connection = None;
            }
        }
    }

    fn shutdown(&mut self, call: &Call) -> Step<Answer> {
        let Some(role) = self.socket_of(call).map(|socket| socket.role) else {
            return Ok(Error("EBADF"));
        };
        let Some(connection) = self.connection_of(role).filter(|open| open.established) else {
            return Ok(Error("ENOTCONN"));
        };
        let words = call.words(1);
        let (read, write) = match words.first() {
            Some(&"SHUT_RD") => (true, false),
            Some(&"SHUT_WR") => (false, true),
            Some(&"SHUT_RDWR") => (true, true),
            _ => return self.unknown("shutdown of something else"),
        };
        if connection.endpoint.state() == State::Closed {
            return Ok(Error("ENOTCONN"));
        }
        if write {
            connection.endpoint.close();
        }
        Ok(self.on_socket(call, |socket| {
            socket.deaf |= read;
            Value(0)
        }))
    }
}

impl Call {
    pub fn integer(&self, index: usize) -> Option<i64> {
        match self.arguments.get(index)? {
            Expr::Integer(value) => Some(*value),
            _ => None,
        }
    }

    /// The words of an argument, `A|B` apart.
    pub fn words(&self, index: usize) -> Vec<&str> {
        self.arguments.get(index).map_or(Vec::new(), Expr::words)
    }

    /// `answer` is what the script expects.
    fn accepts(&self, answer: Answer) -> bool {
        match (answer, &self.result) {
            (Value(_), Expr::Ellipsis) => true,
            (Value(value), Expr::Integer(wanted)) => value == *wanted && self.errno.is_none(),
            (Error(errno), Expr::Integer(-1)) => self.errno.as_deref().is_none_or(|wanted| {
                // One number has two names.
                wanted == errno || (wanted, errno) == ("EWOULDBLOCK", "EAGAIN")
            }),
            _ => false,
        }
    }

    /// What the call returned, in words; a result that the script leaves open is not told.
    fn told(&self, answer: Answer) -> String {
        match (answer, &self.result) {
            (Value(_), Expr::Ellipsis) => "...".to_owned(),
            (Value(value), _) => value.to_string(),
            (Error(errno), _) => format!("-1 {errno}"),
            (Waits, _) => "no return".to_owned(),
        }
    }

    fn wanted(&self) -> String {
        let value = match &self.result {
            Expr::Integer(value) => value.to_string(),
            _ => "...".to_owned(),
        };
        match &self.errno {
            Some(errno) => format!("{value} {errno}"),
            None => value,
        }
    }
}

impl Expr {
    /// A field of a structure by its name.
    pub fn field(&self, name: &str) -> Option<&Expr> {
        let Self::Struct(fields) = self else {
            return None;
        };
        let found = fields.iter().find(|(field, _)| field == name);
        found.map(|(_, value)| value)
    }

    /// The words of `A|B`.
    pub fn words(&self) -> Vec<&str> {
        let parts = match self {
            Self::Or(parts) => parts.as_slice(),
            Self::List(list) if list.len() == 1 => return list[0].words(),
            one => std::slice::from_ref(one),
        };
        let words = parts.iter().filter_map(|part| match part {
            Self::Word(word) => Some(word.as_str()),
            _ => None,
        });
        words.collect()
    }
}
