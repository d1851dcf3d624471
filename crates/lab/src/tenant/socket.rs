//! Sockets the way tenants want them, and what the kernel knows of them.

#![allow(unsafe_code)] // getsockopt(TCP_INFO, SO_MEMINFO): no safe wrapper knows the structures

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
};

use anyhow::{Context, anyhow};
use rustix::{
    io::Errno,
    net::{self, AddressFamily, RecvFlags, SocketFlags, SocketType, sockopt},
};
use sluicegate_apps::SenderState;

/// Bytes that may wait at a receiver of datagrams: a run shall lose them in the network.
const DATAGRAMS_BYTES: usize = 8 << 20;

/// Of sock_diag.h: what SO_MEMINFO tells, and where in it what a full socket has dropped is.
const SK_MEMINFO_VARS: usize = 9;
const SK_MEMINFO_DROPS: usize = 8;

/// Connections that may wait for accept.
const BACKLOG: i32 = 1024;

/// A non-blocking socket with its congestion control set: on a listener that is what accepted
/// connections inherit, in time for the handshake (a DCTCP receiver must answer as one).
fn socket(family: AddressFamily, congestion_control: &str) -> anyhow::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = net::socket_with(family, SocketType::STREAM, flags, None)
        .context("cannot open a TCP socket")?;
    sockopt::set_tcp_congestion(&fd, congestion_control).map_err(|error| {
        anyhow!("congestion control {congestion_control:?}: {error}; is its module or struct_ops loaded?")
    })?;
    sockopt::set_tcp_nodelay(&fd, true).context("cannot set TCP_NODELAY")?;
    Ok(fd)
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    }
}

/// All addresses of the protocol version of this one.
fn any(own: IpAddr) -> IpAddr {
    match own {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Listens on `port` of all addresses of the tenant's protocol version.
pub fn listen(own: IpAddr, port: u16, congestion_control: &str) -> anyhow::Result<OwnedFd> {
    let fd = socket(family(own), congestion_control)?;
    sockopt::set_socket_reuseaddr(&fd, true).context("cannot set SO_REUSEADDR")?;
    net::bind(&fd, &SocketAddr::new(any(own), port))
        .with_context(|| format!("cannot bind port {port}"))?;
    net::listen(&fd, BACKLOG).with_context(|| format!("cannot listen on port {port}"))?;
    Ok(fd)
}

/// Begins to connect; the socket becomes writable when that is decided.
pub fn connect(peer: SocketAddr, congestion_control: &str) -> anyhow::Result<OwnedFd> {
    let fd = socket(family(peer.ip()), congestion_control)?;
    match net::connect(&fd, &peer) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(error) => Err(error).with_context(|| format!("cannot connect to {peer}")),
    }
}

fn datagrams(family: AddressFamily) -> anyhow::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    net::socket_with(family, SocketType::DGRAM, flags, None).context("cannot open a UDP socket")
}

/// A socket that sends datagrams to a peer. The kernel doubles the limit for what it keeps beside
/// their payload.
pub fn datagrams_to(peer: SocketAddr, limit_bytes: u64) -> anyhow::Result<OwnedFd> {
    let fd = datagrams(family(peer.ip()))?;
    let limit = usize::try_from(limit_bytes.min(1 << 30)).unwrap_or(usize::MAX);
    sockopt::set_socket_send_buffer_size_force(&fd, limit).context("cannot set SO_SNDBUFFORCE")?;
    Ok(fd)
}

/// A socket that receives what comes to a UDP port. The kernel doubles the buffer as well.
pub fn datagrams_at(own: IpAddr, port: u16, buffer_bytes: Option<u64>) -> anyhow::Result<OwnedFd> {
    let fd = datagrams(family(own))?;
    let bytes = buffer_bytes.map_or(DATAGRAMS_BYTES, |bytes| bytes.min(1 << 30) as usize);
    sockopt::set_socket_recv_buffer_size_force(&fd, bytes).context("cannot set SO_RCVBUFFORCE")?;
    net::bind(&fd, &SocketAddr::new(any(own), port))
        .with_context(|| format!("cannot bind UDP port {port}"))?;
    Ok(fd)
}

/// Packets that a socket had no room for.
pub fn overrun(fd: BorrowedFd<'_>) -> u32 {
    let mut values = [0u32; SK_MEMINFO_VARS];
    let mut length = size_of_val(&values) as libc::socklen_t;
    // SAFETY: `values` is writable for `length` bytes; the kernel writes integers, at most so many.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result == 0 {
        values[SK_MEMINFO_DROPS]
    } else {
        0
    }
}

/// The kernel notes when data arrive at this socket; false if it does not.
pub fn note_arrivals(fd: BorrowedFd<'_>) -> bool {
    let on: libc::c_int = 1;
    // SAFETY: `on` is readable for its size.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    result == 0
}

/// Receives data, and the CLOCK_REALTIME in ns at which the last of them arrived, where the kernel
/// notes it ([`note_arrivals`]).
pub fn receive_stamped(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: RecvFlags,
) -> rustix::io::Result<(usize, Option<u64>)> {
    // Room for one header and one timespec, aligned as a header.
    let mut control = [0u64; 8];
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: zeros are a valid header: without address, parts and control messages.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: `message` points to a buffer and to control memory that are writable for the lengths
    // that it has.
    let count = unsafe {
        libc::recvmsg(
            fd.as_raw_fd(),
            &raw mut message,
            flags.bits() as libc::c_int,
        )
    };
    let count = usize::try_from(count).map_err(|_| last_errno())?;
    // SAFETY: the kernel has filled `message` and the control memory, which is alive.
    Ok((count, unsafe { arrival(&message) }))
}

/// The arrival in the control messages of a received message.
///
/// # Safety
/// The control memory is alive and holds what the kernel wrote.
unsafe fn arrival(message: &libc::msghdr) -> Option<u64> {
    // SAFETY: by the caller's promise these are the kernel's headers, and the data behind one of
    // SCM_TIMESTAMPNS is a timespec, at no particular address.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(message);
        let of = header.as_ref()?;
        if (of.cmsg_level, of.cmsg_type) != (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
            return None;
        }
        let at: libc::timespec = libc::CMSG_DATA(header)
            .cast::<libc::timespec>()
            .read_unaligned();
        let seconds = u64::try_from(at.tv_sec)
            .ok()
            .filter(|seconds| *seconds > 0)?;
        Some(seconds * 1_000_000_000 + at.tv_nsec as u64)
    }
}

fn last_errno() -> Errno {
    let error = std::io::Error::last_os_error();
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// The other end of a connection.
pub fn peer(fd: BorrowedFd<'_>) -> Option<SocketAddr> {
    SocketAddr::try_from(net::getpeername(fd).ok()??).ok()
}

/// Port at our end; 0 if the kernel does not say.
pub fn local_port(fd: BorrowedFd<'_>) -> u16 {
    net::getsockname(fd)
        .ok()
        .and_then(|address| SocketAddr::try_from(address).ok())
        .map_or(0, |address| address.port())
}

/// Congestion control in use on this socket.
pub fn congestion_control(fd: BorrowedFd<'_>) -> String {
    sockopt::tcp_congestion(fd).unwrap_or_else(|error| format!("unknown ({error})"))
}

/// `struct tcp_info` of include/uapi/linux/tcp.h as of Linux 6.18; older kernels fill a prefix of
/// it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // the kernel's names
pub struct TcpInfo {
    pub state: u8,
    pub ca_state: u8,
    pub retransmits: u8,
    pub probes: u8,
    pub backoff: u8,
    pub options: u8,
    pub wscale: u8,
    pub flags: u8,
    pub rto: u32,
    pub ato: u32,
    pub snd_mss: u32,
    pub rcv_mss: u32,
    pub unacked: u32,
    pub sacked: u32,
    pub lost: u32,
    pub retrans: u32,
    pub fackets: u32,
    pub last_data_sent: u32,
    pub last_ack_sent: u32,
    pub last_data_recv: u32,
    pub last_ack_recv: u32,
    pub pmtu: u32,
    pub rcv_ssthresh: u32,
    pub rtt: u32,
    pub rttvar: u32,
    pub snd_ssthresh: u32,
    pub snd_cwnd: u32,
    pub advmss: u32,
    pub reordering: u32,
    pub rcv_rtt: u32,
    pub rcv_space: u32,
    pub total_retrans: u32,
    pub pacing_rate: u64,
    pub max_pacing_rate: u64,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub segs_out: u32,
    pub segs_in: u32,
    pub notsent_bytes: u32,
    pub min_rtt: u32,
    pub data_segs_in: u32,
    pub data_segs_out: u32,
    pub delivery_rate: u64,
    pub busy_time: u64,
    pub rwnd_limited: u64,
    pub sndbuf_limited: u64,
    pub delivered: u32,
    pub delivered_ce: u32,
    pub bytes_sent: u64,
    pub bytes_retrans: u64,
    pub dsack_dups: u32,
    pub reord_seen: u32,
    pub rcv_ooopack: u32,
    pub snd_wnd: u32,
    pub rcv_wnd: u32,
    pub rehash: u32,
    pub total_rto: u16,
    pub total_rto_recoveries: u16,
    pub total_rto_time: u32,
}

/// The kernel filled `tcpi_total_rto` (since 6.7) when it wrote this many bytes.
const LENGTH_WITH_TOTAL_RTO: usize = std::mem::offset_of!(TcpInfo, total_rto) + 2;

/// Bit of [`TcpInfo::options`]: ECN was negotiated.
const OPTION_ECN: u8 = 8;

impl TcpInfo {
    /// Reads it, and whether `total_rto` is there; `None` when the socket is gone.
    pub fn read(fd: BorrowedFd<'_>) -> Option<(Self, bool)> {
        let mut info = Self::default();
        let mut length = size_of::<Self>() as libc::socklen_t;
        // SAFETY: `info` is writable for `length` bytes and every bit pattern is valid for its
        // integers; the kernel writes at most `length` bytes and stores how many.
        let result = unsafe {
            libc::getsockopt(
                fd.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut info).cast(),
                &raw mut length,
            )
        };
        (result == 0).then_some((info, length as usize >= LENGTH_WITH_TOTAL_RTO))
    }

    /// As a probe sees it.
    pub fn sender(&self, has_timeouts: bool) -> SenderState {
        SenderState {
            cwnd_bytes: u64::from(self.snd_cwnd) * u64::from(self.snd_mss),
            peer_window_bytes: self.snd_wnd.into(),
            mss_bytes: self.snd_mss,
            srtt_us: self.rtt.into(),
            min_rtt_us: self.min_rtt.into(),
            ecn: self.options & OPTION_ECN != 0,
            retransmits: self.total_retrans.into(),
            timeouts: has_timeouts.then(|| self.total_rto.into()),
            dsack_duplicates: self.dsack_dups.into(),
            reordering: self.reord_seen.into(),
            delivered_ce: self.delivered_ce.into(),
            acked_bytes: self.bytes_acked,
            rwnd_limited_us: self.rwnd_limited,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn layout_is_the_kernels() {
        assert_eq!(std::mem::offset_of!(TcpInfo, pacing_rate), 104);
        assert_eq!(std::mem::offset_of!(TcpInfo, delivery_rate), 160);
        assert_eq!(std::mem::offset_of!(TcpInfo, bytes_sent), 200);
        assert_eq!(std::mem::offset_of!(TcpInfo, total_rto), 240);
        assert_eq!(size_of::<TcpInfo>(), 248);
    }

    #[test]
    fn unknown_congestion_control_is_named() {
        let error = connect("127.0.0.1:9".parse().unwrap(), "nosuchcc").unwrap_err();
        assert!(error.to_string().contains("nosuchcc"), "{error}");
    }

    #[test]
    fn data_come_with_the_time_of_their_arrival() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        assert!(note_arrivals(receiver.as_fd()));
        // The kernel turns stamps on a moment after it was asked (its static key is switched by a
        // work item), so the first segments may lack one.
        let mut buffer = [0; 8];
        let stamped = (0..200).find_map(|_| {
            let before_ns = super::super::clock::unix_ns();
            std::io::Write::write_all(&mut sender, b"now").unwrap();
            let sent_ns = super::super::clock::unix_ns();
            std::thread::sleep(std::time::Duration::from_millis(5));
            let received = receive_stamped(receiver.as_fd(), &mut buffer, RecvFlags::empty());
            let (count, arrived_ns) = received.unwrap();
            assert_eq!(&buffer[..count], b"now");
            arrived_ns.map(|arrived_ns| (before_ns, sent_ns, arrived_ns))
        });
        let (before_ns, sent_ns, arrived_ns) = stamped.expect("a time of arrival");
        assert!((before_ns..sent_ns + 4_000_000).contains(&arrived_ns));
        receiver.set_nonblocking(true).unwrap();
        let nothing = receive_stamped(receiver.as_fd(), &mut buffer, RecvFlags::empty());
        assert_eq!(nothing, Err(Errno::AGAIN));
    }

    #[test]
    fn reno_is_reported_as_reno() {
        let listener = listen("127.0.0.1".parse().unwrap(), 0, "reno").unwrap();
        assert_eq!(congestion_control(listener.as_fd()), "reno");
        assert_ne!(local_port(listener.as_fd()), 0);
    }
}
