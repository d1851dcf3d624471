//! Reading and writing.

use sluicegate_tcp::{Endpoint, State};

use super::{Answer, Call, Error, Expr, Host, Progress, Step, Value, Waits};
use crate::{
    host::Connection,
    machine::Stack,
    memory::Memory,
    notices::Stage,
    socket::{Other, Role, Socket},
};

/// Flags that change nothing here.
const HARMLESS: [&str; 2] = ["MSG_NOSIGNAL", "MSG_DONTWAIT"];
/// Flags of `send` that are understood.
const SENDING: [&str; 5] = [
    "MSG_MORE",
    "MSG_EOR",
    "MSG_OOB",
    "MSG_ZEROCOPY",
    "MSG_FASTOPEN",
];
/// `MSG_FASTOPEN` as a number.
const FASTOPEN: i64 = 0x2000_0000;
/// Flags of `recv`.
const RECEIVING: [&str; 3] = ["MSG_ERRQUEUE", "MSG_PEEK", "MSG_TRUNC"];
/// Parts of a call's buffers that one packet may refer to without a copy (`MAX_SKB_FRAGS`).
const PARTS: usize = 17;

impl Host {
    pub(super) fn read(&mut self, call: &Call) -> Step<Answer> {
        self.known_flags(call, &RECEIVING)?;
        if let Some(Other::Bytes(bytes)) = call.integer(0).and_then(|fd| self.others.get_mut(&fd)) {
            let taken = (*bytes).min(call.integer(2).unwrap_or(0).max(0) as u64);
            *bytes -= taken;
            return Ok(Value(taken as i64));
        }
        let Some(socket) = self.socket_of(call).cloned() else {
            return Ok(Error("EBADF"));
        };
        if call.has_flag("MSG_ERRQUEUE") {
            return self.read_notice(call, socket.role);
        }
        let waits = !socket.nonblocking && !call.has_flag("MSG_DONTWAIT");
        if !matches!(socket.role, Role::Connection(_)) {
            return Ok(match (socket.deferred, waits) {
                (true, true) => Waits,
                (true, false) => Error("EAGAIN"),
                (false, _) => Error("ENOTCONN"),
            });
        }
        let most = self.bytes(call)?;
        let peeks = call.has_flag("MSG_PEEK");
        let invalid = call.is_null(1);
        let Some(connection) = self.connection_of(socket.role) else {
            return Ok(Value(0));
        };
        let endpoint = &mut connection.endpoint;
        if invalid && most > 0 && endpoint.readable() > 0 {
            return Ok(Error("EFAULT"));
        }
        let taken = match peeks {
            true => endpoint.readable().min(most),
            false => endpoint.read(most),
        };
        if taken > 0 || most == 0 {
            if socket.options.inq {
                self.check_inq(call, socket.role)?;
            }
            return Ok(Value(taken as i64));
        }
        Ok(if let Some(error) = connection.error.take() {
            Error(error)
        } else if endpoint.at_end() || endpoint.state() == State::Closed || socket.deaf {
            Value(0)
        } else if waits {
            Waits
        } else {
            Error("EAGAIN")
        })
    }

    pub(super) fn write(&mut self, call: &Call, progress: &mut Progress) -> Step<Answer> {
        self.known_flags(call, &SENDING)?;
        let Some(socket) = self.socket_of(call).cloned() else {
            return Ok(Error("EBADF"));
        };
        let bytes = self.bytes(call)?;
        if socket.role == Role::Fresh {
            return self.write_first(call, &socket, bytes, progress);
        }
        self.write_to(call, &socket, bytes, progress)
    }

    /// Data for a connection.
    fn write_to(
        &mut self,
        call: &Call,
        socket: &Socket,
        bytes: u64,
        progress: &mut Progress,
    ) -> Step<Answer> {
        let waits = !socket.nonblocking && !call.has_flag("MSG_DONTWAIT");
        let blocked = if waits { Waits } else { Error("EAGAIN") };
        let memory = self.memory;
        let Some(connection) = self.connection_of(socket.role) else {
            return Ok(Error("EPIPE"));
        };
        if let Some(error) = connection.error.take() {
            return Ok(Error(error));
        }
        match connection.endpoint.state() {
            State::SynSent if call.has_flag("MSG_FASTOPEN") && !progress.connecting => {
                return Ok(Error("EALREADY"));
            }
            State::SynSent => return Ok(blocked),
            State::SynReceived if !connection.endpoint.is_opened_fast() => return Ok(blocked),
            State::SynReceived | State::Established | State::CloseWait => (),
            _ => return Ok(Error("EPIPE")),
        }
        if call.is_null(1) && bytes > 0 {
            return Ok(Error("EFAULT"));
        }
        let asleep = progress.refused || memory == Memory::Bytes;
        if !connection.writable && asleep && bytes > 0 {
            return Ok(blocked);
        }
        self.wrote = true;
        let parts = call.zerocopy_parts(socket.options.zerocopy);
        let mut end = 0;
        for part in parts.unwrap_or_else(|| vec![bytes]) {
            end += part;
            while progress.written < end {
                let goes_on = progress.written > 0;
                let taken = self.write_some(call, socket, end - progress.written, goes_on)?;
                if taken == 0 {
                    progress.refused = true;
                    return Ok(match (waits, progress.written) {
                        (true, _) => Waits,
                        (false, 0) => Error("EAGAIN"),
                        (false, written) => self.written(call, socket, written),
                    });
                }
                progress.written += taken;
            }
            if end < bytes {
                self.end_record(socket.role);
            }
        }
        if call.has_flag("MSG_EOR") {
            self.end_record(socket.role);
        }
        if let Some(open) = self.connection_of(socket.role) {
            if call.has_flag("MSG_OOB") {
                open.urgent_end = Some(open.written);
            }
        }
        Ok(self.written(call, socket, progress.written))
    }

    /// As much as the socket takes at once.
    fn write_some(&mut self, call: &Call, socket: &Socket, bytes: u64, goes_on: bool) -> Step<u64> {
        let (space, memory, now_ns) = (self.space(), self.memory, self.clock());
        let more = socket.options.corked || call.has_flag("MSG_MORE");
        let Some(connection) = self.connection_of(socket.role) else {
            return Ok(0);
        };
        let taken = memory.takes(&connection.endpoint, space, bytes, goes_on);
        connection.writable = taken > 0;
        if taken > 0 && memory.begins(&connection.endpoint, goes_on) {
            connection.endpoint.end_record();
        }
        if taken == 0 {
            connection.endpoint.push();
        }
        // The rest of a call keeps the small end of this part from leaving.
        let taken = match more || taken < bytes {
            true => connection.endpoint.write_more(now_ns, taken),
            false => connection.endpoint.write(taken),
        };
        connection.written = connection.written.wrapping_add(taken as u32);
        if taken < bytes {
            // The next packet of a single segment leaves as a whole or not at all.
            if memory.single(&connection.endpoint) {
                connection.endpoint.end_record();
            }
            self.transmit()?;
        }
        Ok(taken)
    }

    fn end_record(&mut self, role: Role) {
        if let Some(connection) = self.connection_of(role) {
            connection.endpoint.end_record();
        }
    }

    /// A call has written so much; what it wants to hear of it later.
    fn written(&mut self, call: &Call, socket: &Socket, bytes: u64) -> Answer {
        let options = socket.options;
        let more = options.corked || call.has_flag("MSG_MORE");
        let zerocopy = call.has_flag("MSG_ZEROCOPY") && options.zerocopy;
        if let Some(connection) = self.connection_of(socket.role) {
            if !more {
                connection.endpoint.push();
            }
            let end = connection.written;
            if zerocopy && bytes > 0 {
                connection.notices.lent(end);
            }
            for (wanted, stage) in [
                (options.stamp_scheduled, Stage::Scheduled),
                (options.stamp_sent, Stage::Sent),
                (options.stamp_acked, Stage::Acked),
            ] {
                if wanted && bytes > 0 {
                    connection.notices.stamp(end, stage);
                }
            }
        }
        Value(bytes as i64)
    }

    /// A socket that was never connected: only fast open may write.
    fn write_first(
        &mut self,
        call: &Call,
        socket: &Socket,
        bytes: u64,
        progress: &mut Progress,
    ) -> Step<Answer> {
        if self.stack == Stack::Freebsd && call.name == "sendto" {
            return Ok(self.connect_and_write(call, socket, bytes));
        }
        let fast = call.has_flag("MSG_FASTOPEN") || socket.options.fast_open_connect;
        if fast && !self.fast_open.client() {
            return Ok(Error("EOPNOTSUPP"));
        }
        if !fast {
            return Ok(Error("EPIPE"));
        }
        if call.is_null(1) && bytes > 0 {
            return Ok(Error("EFAULT"));
        }
        if call.words(4).contains(&"AF_UNSPEC") {
            return Ok(Error("EOPNOTSUPP"));
        }
        self.connect_fast(call, bytes);
        let taken = self
            .connection
            .as_ref()
            .map_or(0, |open| u64::from(open.written - 1));
        let Some(socket) = self.socket_of(call).cloned() else {
            return Ok(Error("EBADF"));
        };
        (progress.written, progress.connecting) = (taken, true);
        let waits = !socket.nonblocking && !call.has_flag("MSG_DONTWAIT");
        Ok(match (waits, taken) {
            (true, _) => Waits,
            (false, 0) => Error("EINPROGRESS"),
            (false, _) => self.written(call, &socket, taken),
        })
    }

    /// FreeBSD's `sendto` connects, and the data waits for the handshake unless fast open takes it
    /// along.
    fn connect_and_write(&mut self, call: &Call, socket: &Socket, bytes: u64) -> Answer {
        self.connect_fast(call, bytes);
        let Some(connection) = &mut self.connection else {
            return Error("ENOTCONN");
        };
        if connection.written == 1 {
            let taken = connection.endpoint.write(bytes);
            connection.written += taken as u32;
        }
        let taken = u64::from(connection.written - 1);
        self.written(call, socket, taken)
    }

    /// Flags of `send` and `recv` that are no part of the subset.
    fn known_flags(&self, call: &Call, known: &[&str]) -> Step {
        for word in call.words(call.flags_at()) {
            if word.starts_with("MSG_") && !HARMLESS.contains(&word) && !known.contains(&word) {
                return self.unknown(&format!("flag {word}"));
            }
        }
        Ok(())
    }

    /// How many bytes a call is about.
    pub(super) fn bytes(&self, call: &Call) -> Step<u64> {
        let total = match (call.name.as_str(), call.arguments.get(1)) {
            ("readv" | "writev", Some(Expr::List(parts))) => vector(parts).map(total),
            ("recvmsg" | "sendmsg", Some(message @ Expr::Struct(_))) => {
                match message.field("msg_iov") {
                    Some(Expr::List(parts)) => vector(parts).map(total),
                    _ => None,
                }
            }
            _ => call.integer(2).and_then(|bytes| u64::try_from(bytes).ok()),
        };
        match total {
            Some(total) if total <= 1 << 40 => Ok(total),
            _ => self.unknown("a call without a number of bytes"),
        }
    }

    /// `sendfile(socket, file, [offset], bytes)`: the file's bytes are written.
    pub(super) fn sendfile(&mut self, call: &Call, progress: &mut Progress) -> Step<Answer> {
        let Some(socket) = self.socket_of(call).cloned() else {
            return Ok(Error("EBADF"));
        };
        let Some(bytes) = call.integer(3).and_then(|bytes| u64::try_from(bytes).ok()) else {
            return self.unknown("sendfile without a number of bytes");
        };
        let file = call.integer(1).and_then(|fd| self.others.get(&fd));
        let Some(Other::Bytes(held)) = file else {
            return Ok(Error("EBADF"));
        };
        let bytes = bytes.min(*held);
        self.write_to(call, &socket, bytes, progress)
    }
}

fn total(parts: Vec<u64>) -> u64 {
    parts.iter().fold(0, |sum, part| sum.saturating_add(*part))
}

/// Bytes of each of `[{..., 1000}, {..., 10}]`.
pub fn vector(parts: &[Expr]) -> Option<Vec<u64>> {
    let bytes = parts.iter().map(|part| match part {
        Expr::Struct(fields) => match fields.last() {
            Some((_, Expr::Integer(len))) => u64::try_from(*len).ok(),
            _ => None,
        },
        _ => None,
    });
    bytes.collect()
}

/// What `TCP_INQ` tells: everything that may be read; a FIN counts when there is nothing else. It
/// does not for `SIOCINQ`.
pub(super) fn left_to_read(endpoint: &Endpoint) -> u64 {
    match endpoint.readable() {
        0 => u64::from(endpoint.at_end()),
        bytes => bytes,
    }
}

impl Connection {
    /// Something may be read, or a read would not wait.
    pub fn is_readable(&self) -> bool {
        let endpoint = &self.endpoint;
        let over = endpoint.at_end() || endpoint.state() == State::Closed;
        endpoint.readable() > 0 || over || self.error.is_some()
    }
}

impl Call {
    /// Which argument holds flags.
    fn flags_at(&self) -> usize {
        match self.name.as_str() {
            "recvmsg" | "sendmsg" => 2,
            _ => 3,
        }
    }

    pub(super) fn has_flag(&self, flag: &str) -> bool {
        let at = self.flags_at();
        let number = flag == "MSG_FASTOPEN" && self.integer(at) == Some(FASTOPEN);
        number || self.words(at).contains(&flag)
    }

    /// The argument is `NULL`.
    fn is_null(&self, index: usize) -> bool {
        self.words(index).contains(&"NULL")
    }

    /// Bytes of the packets that a `sendmsg` without a copy is cut into; `None`: not at all.
    fn zerocopy_parts(&self, enabled: bool) -> Option<Vec<u64>> {
        if !enabled || !self.has_flag("MSG_ZEROCOPY") {
            return None;
        }
        let Some(Expr::List(parts)) = self.arguments.get(1)?.field("msg_iov") else {
            return None;
        };
        let mut bytes = vector(parts)?;
        bytes.retain(|bytes| *bytes > 0);
        let packets = bytes.chunks(PARTS).map(|packet| packet.iter().sum());
        Some(packets.collect())
    }
}
