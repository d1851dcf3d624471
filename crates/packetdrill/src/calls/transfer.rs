//! Reading and writing.

use sluicegate_tcp::State;

use super::{Answer, Call, Error, Expr, Host, Step, Value, Waits};
use crate::host::Role;

/// Flags that change nothing here.
const HARMLESS: [&str; 2] = ["MSG_NOSIGNAL", "MSG_DONTWAIT"];

impl Host {
    pub(super) fn read(&mut self, call: &Call) -> Step<Answer> {
        self.known_flags(call)?;
        let Some(socket) = self.socket_of(call).cloned() else {
            return Ok(Error("EBADF"));
        };
        if !matches!(socket.role, Role::Connection(_)) {
            return Ok(Error("ENOTCONN"));
        }
        let most = self.bytes(call)?;
        let waits = !socket.nonblocking && !call.has_flag("MSG_DONTWAIT");
        let Some(connection) = self.connection_of(socket.role) else {
            return Ok(Value(0));
        };
        let endpoint = &mut connection.endpoint;
        let taken = endpoint.read(most);
        Ok(if taken > 0 || most == 0 {
            Value(taken as i64)
        } else if let Some(error) = connection.error.take() {
            Error(error)
        } else if endpoint.at_end() || endpoint.state() == State::Closed || socket.deaf {
            Value(0)
        } else if waits {
            Waits
        } else {
            Error("EAGAIN")
        })
    }

    pub(super) fn write(&mut self, call: &Call, written: &mut u64) -> Step<Answer> {
        self.known_flags(call)?;
        let Some(socket) = self.socket_of(call).cloned() else {
            return Ok(Error("EBADF"));
        };
        let bytes = self.bytes(call)?;
        let waits = !socket.nonblocking && !call.has_flag("MSG_DONTWAIT");
        let Some(connection) = self.connection_of(socket.role) else {
            return Ok(Error("EPIPE"));
        };
        if let Some(error) = connection.error.take() {
            return Ok(Error(error));
        }
        let endpoint = &mut connection.endpoint;
        if endpoint.state() == State::SynSent {
            return Ok(if waits { Waits } else { Error("EAGAIN") });
        }
        if !matches!(endpoint.state(), State::Established | State::CloseWait) {
            return Ok(Error("EPIPE"));
        }
        if !connection.writable && bytes > 0 {
            return Ok(if waits { Waits } else { Error("EAGAIN") });
        }
        *written += endpoint.write(bytes - *written);
        connection.writable = *written == bytes;
        self.wrote = true;
        Ok(if *written == bytes || (!waits && *written > 0) {
            Value(*written as i64)
        } else if waits {
            Waits
        } else {
            Error("EAGAIN")
        })
    }

    /// Flags of `send` and `recv` that are no part of the subset.
    fn known_flags(&self, call: &Call) -> Step {
        for word in call.words(call.flags_at()) {
            if word.starts_with("MSG_") && !HARMLESS.contains(&word) {
                return self.unknown(&format!("flag {word}"));
            }
        }
        let message = call.arguments.get(1);
        if matches!(message, Some(Expr::Struct(fields)) if fields.iter().any(|(name, _)| name == "msg_control"))
        {
            return self.unknown("control messages");
        }
        Ok(())
    }

    /// How many bytes a call is about.
    fn bytes(&self, call: &Call) -> Step<u64> {
        let total = match (call.name.as_str(), call.arguments.get(1)) {
            ("readv" | "writev", Some(Expr::List(parts))) => vector(parts),
            ("recvmsg" | "sendmsg", Some(Expr::Struct(fields))) => {
                let parts = fields.iter().find(|(name, _)| name == "msg_iov");
                match parts {
                    Some((_, Expr::List(parts))) => vector(parts),
                    _ => None,
                }
            }
            _ => call.integer(2),
        };
        match total.and_then(|total| u64::try_from(total).ok()) {
            Some(total) if total <= 1 << 40 => Ok(total),
            _ => self.unknown("a call without a number of bytes"),
        }
    }
}

/// Bytes of `[{..., 1000}, {..., 10}]`.
fn vector(parts: &[Expr]) -> Option<i64> {
    let mut total: i64 = 0;
    for part in parts {
        match part {
            Expr::Struct(fields) => match fields.last() {
                Some((_, Expr::Integer(len))) => total = total.checked_add(*len)?,
                _ => return None,
            },
            _ => return None,
        }
    }
    Some(total)
}

impl Call {
    /// Which argument holds flags.
    fn flags_at(&self) -> usize {
        match self.name.as_str() {
            "recvmsg" | "sendmsg" => 2,
            _ => 3,
        }
    }

    fn has_flag(&self, flag: &str) -> bool {
        self.words(self.flags_at()).contains(&flag)
    }
}
