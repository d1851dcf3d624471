//! Sockets and other things that file descriptors stand for.

use sluicegate_core::cc::Algorithm;

/// The purpose of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A socket that neither listens nor connects.
    Fresh,
    Listener,
    /// The connection of this number.
    Connection(u32),
}

/// A TCP socket. What `accept` gives has its listener's options.
#[derive(Clone, Debug)]
pub struct Socket {
    pub role: Role,
    pub nonblocking: bool,
    /// `close` resets (`SO_LINGER` with no time).
    pub resets: bool,
    /// `shutdown` for reading.
    pub deaf: bool,
    /// `connect` has left the SYN to the first data.
    pub deferred: bool,
    /// A SYN has come to this listener.
    pub used: bool,
    pub options: Options,
}

impl Socket {
    pub fn new(nonblocking: bool, options: Options) -> Self {
        Self {
            role: Role::Fresh,
            nonblocking,
            resets: false,
            deaf: false,
            deferred: false,
            used: false,
            options,
        }
    }
}

/// Socket options that are kept where they are set.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    pub nodelay: bool,
    pub corked: bool,
    /// Segments of at most so many bytes are announced; 0 = by the MTU.
    pub maxseg: u16,
    /// `SO_SNDBUF` as the kernel has it; 0 = its own choice.
    pub send_buffer: u64,
    /// `SO_RCVBUF` likewise.
    pub receive_buffer: u64,
    pub algorithm: Option<Algorithm>,
    /// Length of the queue of fast opens; 0 = off.
    pub fast_open: u32,
    /// The key of this listener's cookies, if not the host's.
    pub fast_open_key: Option<[u8; 16]>,
    /// `connect` waits for the first data, to take it along.
    pub fast_open_connect: bool,
    /// Segments have no options, and those of the peer do not count (FreeBSD's `TCP_NOOPT`).
    pub no_options: bool,
    /// No cookie is asked for (`TCP_FASTOPEN_NO_COOKIE`).
    pub no_cookie: bool,
    /// One port is the only one (`IP_LOCAL_PORT_RANGE`).
    pub one_port: bool,
    /// How often a SYN is repeated; 0 = the host's.
    pub syn_retries: u8,
    pub user_timeout_ns: u64,
    pub keepalive: bool,
    pub keepalive_idle_s: u32,
    pub keepalive_interval_s: u32,
    pub keepalive_count: u32,
    /// For how long a SYN is repeated (FreeBSD).
    pub keepinit_s: u32,
    /// `recvmsg` says how much is left.
    pub inq: bool,
    pub zerocopy: bool,
    /// `SOF_TIMESTAMPING_*` as asked for.
    pub stamp_scheduled: bool,
    pub stamp_sent: bool,
    pub stamp_acked: bool,
    pub notsent_lowat: u32,
    /// The peer's UDP port if segments are in UDP (`TCP_REMOTE_UDP_ENCAPS_PORT`); 0 = they are not.
    pub tunnel: u16,
    /// Time to live; 0 = the host's.
    pub ttl: u8,
    pub tos: u8,
}

impl Options {
    /// UDP ports of what leaves, of which the host's is this one.
    pub fn udp(&self, port: u16) -> Option<(u16, u16)> {
        (self.tunnel > 0).then_some((port, self.tunnel))
    }
}

/// An open file that is no socket.
#[derive(Clone, Debug)]
pub enum Other {
    Epoll(Vec<Interest>),
    /// A file or a pipe with so many bytes in it.
    Bytes(u64),
}

/// One descriptor that an epoll watches.
#[derive(Clone, Debug)]
pub struct Interest {
    pub fd: i64,
    pub events: u32,
    pub edge: bool,
    pub once: bool,
    /// It has been reported once and is not looked at any more.
    pub spent: bool,
    /// How often the connection had woken its watchers when this was last reported.
    pub seen: Option<u64>,
}
