//! Sockets and time, as a role of a tenant sees them.

use std::{net::SocketAddr, ops::Range};

use sluicegate_scenario::workload::{Plan, plan::SenderReport};

/// Handle of a socket; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId(pub u64);

/// Shortest message of a stream of messages: room for a [`MessageHeader`] in a world whose streams
/// have bytes.
pub const HEADER_BYTES: u64 = 32;

/// The header of a message; its receiver has it once the message's first bytes are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageHeader {
    /// Length of the message, header included.
    pub bytes: u64,
    /// The sender's tag: the time in ns at which it was due, or the number of a call.
    pub tag: u64,
    /// Index of its class.
    pub class: u16,
}

/// A datagram that has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Datagram {
    /// Its number among those that its socket took, from 0.
    pub number: u64,
    /// Bytes of payload that its socket took up to its end.
    pub end_bytes: u64,
    /// When its application sent it, ns after the start of the run.
    pub sent_ns: u64,
    /// Bytes of payload.
    pub bytes: u64,
}

/// The state of a connection in the stack of its sender; counters are totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderState {
    /// Congestion window.
    pub cwnd_bytes: u64,
    /// Window that the peer, or enforcement, last granted.
    pub peer_window_bytes: u64,
    /// Segment size.
    pub mss_bytes: u32,
    /// Smoothed RTT.
    pub srtt_us: u64,
    /// Minimum RTT; 0 where the stack does not keep it.
    pub min_rtt_us: u64,
    /// Classic ECN was negotiated.
    pub ecn: bool,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Retransmission timeouts; `None` where the stack does not count them.
    pub timeouts: Option<u64>,
    /// D-SACKs received.
    pub dsack_duplicates: u64,
    /// Reordering events seen.
    pub reordering: u64,
    /// Segments that the peer reported as CE-marked.
    pub delivered_ce: u64,
    /// Payload acknowledged.
    pub acked_bytes: u64,
    /// Time limited by the peer's window.
    pub rwnd_limited_us: u64,
}

/// Why a connection cannot be taken from its stack where [`Io::seize`] is not implemented.
const NOT_RAW: &str = "this world has no raw sockets";

/// Why messages cannot be sent as datagrams where [`Io::send_message_datagrams`] is not
/// implemented.
const NO_MESSAGES: &str = "this world sends no messages as datagrams";

/// A connection that was taken from its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seized {
    /// The next sequence number.
    pub seq: u32,
    /// Segment size.
    pub mss_bytes: u32,
    /// Local port.
    pub local_port: u16,
}

/// The actions of a role. A world implements them on its sockets; nothing blocks.
///
/// A stream is plain (payload only) or made of messages, by direction; both ends know which. A
/// connection that breaks is noted by the world, takes no more bytes and [`Io::is_broken`].
pub trait Io {
    /// The plan of the tenant.
    fn plan(&self) -> &Plan;

    /// ns after the start of the run.
    fn now_ns(&self) -> u64;

    /// Whether something begun at this time counts.
    fn measured(&self, at_ns: u64) -> bool {
        self.plan().measures(at_ns)
    }

    /// Calls [`crate::Actor::timer`] with this key at this time, now at the earliest.
    fn timer(&mut self, at_ns: u64, key: u64);

    /// Notes what went wrong, for the report.
    fn note(&mut self, line: String);

    /// Accepts connections; they appear with [`crate::Actor::connected`] and this key.
    fn listen(&mut self, port: u16, key: u64);

    /// Opens a connection, tried until the peer listens or the run ends.
    fn connect(&mut self, peer: SocketAddr, key: u64) -> SocketId;

    /// Gives a connection another key.
    fn set_key(&mut self, socket: SocketId, key: u64);

    /// The role will soon write to a connection: a world may fetch its state from memory.
    fn fetch(&self, _socket: SocketId) {}

    /// Writes payload; returns how many bytes fitted. If not all, [`crate::Actor::writable`] comes.
    fn write(&mut self, socket: SocketId, bytes: u64) -> u64;

    /// Writes this part of a message, in bytes from its begin; returns how many fitted, as
    /// [`Io::write`] does.
    fn write_message(&mut self, socket: SocketId, header: &MessageHeader, part: Range<u64>) -> u64;

    /// Reads payload; returns how many bytes there were, at most `most`. More may wait: then
    /// [`crate::Actor::readable`] comes again.
    fn read(&mut self, socket: SocketId, most: u64) -> u64;

    /// The same of a stream of messages. Headers of the messages whose first bytes were read wait.
    fn read_messages(&mut self, socket: SocketId) -> u64;

    /// The first header that waits.
    fn message_header(&self, socket: SocketId) -> Option<MessageHeader>;

    /// Takes the first header that waits.
    fn take_message_header(&mut self, socket: SocketId) -> Option<MessageHeader>;

    /// Takes the next message, if it is among `received` bytes that were read and belong to no
    /// message yet.
    fn take_message(&mut self, socket: SocketId, received: &mut u64) -> Option<MessageHeader> {
        let header = self.message_header(socket)?;
        if header.bytes > *received {
            return None;
        }
        *received -= header.bytes;
        self.take_message_header(socket)
    }

    /// The peer writes no more, and everything is read.
    fn at_end(&self, socket: SocketId) -> bool;

    /// No more will be written. What the peer writes still arrives, and its state can be looked at.
    fn close(&mut self, socket: SocketId);

    /// Closes a connection whose role will not ask for its state again.
    fn release(&mut self, socket: SocketId);

    /// Whether a connection has failed.
    fn is_broken(&self, socket: SocketId) -> bool;

    /// The state of a connection in the sender's stack; `None` if it is gone.
    fn sender(&self, socket: SocketId) -> Option<SenderState>;

    /// Adds the connection's name and stack, where the world has such.
    fn describe(&self, _socket: SocketId, _report: &mut SenderReport) {}

    /// Opens a socket for datagrams to a peer. At most so many bytes of payload wait in it.
    fn open_datagrams(&mut self, peer: SocketAddr, limit_bytes: u64) -> SocketId;

    /// Receives datagrams.
    fn bind_datagrams(&mut self, port: u16);

    /// Sends so many bytes as datagrams of at most `payload` bytes. Returns how many datagrams and
    /// bytes the socket did not take.
    fn send_datagrams(&mut self, socket: SocketId, bytes: u64, payload: u16) -> (u64, u64);

    /// (datagrams, bytes of payload) that a socket has taken so far.
    fn datagrams_taken(&self, socket: SocketId) -> (u64, u64);

    /// The next datagram that has arrived.
    fn receive_datagram(&mut self, socket: SocketId) -> Option<Datagram>;

    /// Receives the datagrams of messages at a port; [`Io::take_message`] has their headers, where
    /// none is lost.
    ///
    /// # Errors
    /// Why it cannot be done.
    fn bind_message_datagrams(&mut self, _port: u16, _key: u64) -> Result<(), String> {
        Err(NO_MESSAGES.to_owned())
    }

    /// Sends a message as datagrams of at most `payload` bytes. Where the socket has no room the
    /// rest is lost.
    ///
    /// # Errors
    /// As [`Io::bind_message_datagrams`].
    fn send_message_datagrams(
        &mut self,
        _socket: SocketId,
        _header: &MessageHeader,
        _payload: u16,
    ) -> Result<(), String> {
        Err(NO_MESSAGES.to_owned())
    }

    /// Takes an idle connection from its stack, to send segments in its name.
    ///
    /// # Errors
    /// Why it cannot be done.
    fn seize(&mut self, _socket: SocketId) -> Result<Seized, String> {
        Err(NOT_RAW.to_owned())
    }

    /// Sends a segment in the name of a connection that was taken; false if there is no room.
    ///
    /// # Errors
    /// As [`Io::seize`].
    fn forge(&mut self, _socket: SocketId, _seq: u32, _bytes: u32) -> Result<bool, String> {
        Err(NOT_RAW.to_owned())
    }

    /// The acknowledgement number of the next segment that its peer has sent; `None` if there is
    /// none yet.
    ///
    /// # Errors
    /// As [`Io::seize`].
    fn acknowledged(&mut self, _socket: SocketId) -> Result<Option<u32>, String> {
        Err(NOT_RAW.to_owned())
    }
}

/// Notes that a peer has ended a connection of a flow that should last, and lets it go. Returns
/// whether it has.
pub(crate) fn ended<I: Io>(io: &mut I, socket: SocketId, flow: u32) -> bool {
    let ended = io.at_end(socket);
    if ended {
        io.note(format!("flow {flow}: the peer closed the connection"));
        io.close(socket);
    }
    ended
}

/// Whether nothing more can come of a connection.
pub(crate) fn is_lost<I: Io>(io: &I, socket: SocketId) -> bool {
    io.is_broken(socket) || io.at_end(socket)
}

/// Notes that a few bytes did not fit where nothing else waits.
pub(crate) fn write_whole<I: Io>(io: &mut I, socket: SocketId, bytes: u64, flow: u32) {
    if io.write(socket, bytes) < bytes && !io.is_broken(socket) {
        io.note(format!("flow {flow}: {bytes} bytes did not fit"));
    }
}
