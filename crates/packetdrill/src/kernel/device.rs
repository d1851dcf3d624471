//! A network namespace with an interface behind which we are the network. It has no name and ends
//! with the thread that made it and what it has open, whatever becomes of them.

#![allow(unsafe_code)]

use std::{
    collections::VecDeque,
    fs::{File, OpenOptions},
    io::{ErrorKind, Read as _, Write as _},
    net::IpAddr,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    process::Command,
};

use super::sys;

/// The interface's name in scripts.
const NAME: &str = "tun0";
const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0;
const IFF_TUN: i16 = 1;
const IFF_NO_PI: i16 = 0x1000;
/// Checksums, segments of IPv4 and IPv6, with ECN (`TUN_F_*`): what leaves is seen uncut.
const OFFLOADS: libc::c_uint = 1 | 2 | 4 | 8;
const PACKET_OUTGOING: u8 = 4;
/// Packets that wait to be looked at.
const SEEN_BYTES: i32 = 8 << 20;
const PACKET_MAX: usize = 1 << 17;

/// The addresses of a script.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    pub local: IpAddr,
    pub remote: IpAddr,
}

impl Addresses {
    /// Those of packetdrill for IPv6.
    pub fn v6() -> Self {
        Self {
            local: IpAddr::from([0xfd3d, 0x0a0b, 0x17d6, 0, 0, 0, 0, 1_u16]),
            remote: IpAddr::from([0xfd3d, 0xfa7b, 0xd17d, 0, 0, 0, 0, 1_u16]),
        }
    }
}

/// The interface.
pub struct Device {
    tun: File,
    /// Sees packets with the time at which they left.
    sight: OwnedFd,
}

/// A packet that has left, and when.
pub type Seen = (u64, Vec<u8>);

impl Device {
    /// Takes this thread into a new namespace and makes the interface there.
    pub fn new(addresses: &Addresses, mtu: i64) -> Result<Self, String> {
        // SAFETY: takes a number, and concerns this thread alone.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return Err(failure("cannot make a network namespace; root can"));
        }
        let device = Self {
            tun: open()?,
            sight: sight()?,
        };
        let Addresses { local, remote } = addresses;
        let address = match local {
            IpAddr::V4(_) => format!("{local}/16"),
            IpAddr::V6(_) => format!("{local}/48 nodad"),
        };
        let route = match remote {
            IpAddr::V4(_) => format!("{} via {local}", network(*remote)),
            IpAddr::V6(_) => network(*remote),
        };
        for words in [
            "link set lo up".to_owned(),
            format!("link set {NAME} mtu {mtu}"),
            format!("address add {address} dev {NAME}"),
            format!("link set {NAME} up"),
            format!("route add {route} dev {NAME}"),
        ] {
            ip(&words)?;
        }
        device.watch()?;
        Ok(device)
    }

    /// Packets of the interface are seen from now on.
    fn watch(&self) -> Result<(), String> {
        let name = std::ffi::CString::new(NAME).unwrap_or_default();
        // SAFETY: zeroed is a valid value of this C structure.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: the name ends with a zero.
        address.sll_ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) } as i32;
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        let to = (&raw const address).cast();
        // SAFETY: the address is as long as it says.
        match unsafe { libc::bind(self.sight.as_raw_fd(), to, len) } {
            0 => Ok(()),
            _ => Err(failure("cannot watch the interface")),
        }
    }

    /// A packet comes from the network.
    pub fn give(&mut self, packet: &[u8]) -> Result<(), String> {
        let given = self.tun.write_all(packet);
        given.map_err(|error| format!("the interface refuses a packet: {error}"))
    }

    /// Packets that have left and were not looked at go to `queue`.
    pub fn look(&mut self, queue: &mut VecDeque<Seen>) {
        while let Some(seen) = self.next() {
            if !seen.1.is_empty() {
                queue.push_back(seen);
            }
        }
        // The interface would be full one day.
        let mut rest = [0; 2048];
        while self.tun.read(&mut rest).is_ok_and(|bytes| bytes > 0) {}
    }

    /// The next packet; one of nothing if it has come instead of left.
    fn next(&self) -> Option<Seen> {
        let mut bytes = vec![0; PACKET_MAX];
        let mut control = [0_u64; 16];
        // SAFETY: zeroed is a valid value of these C structures.
        let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        let mut vector = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        header.msg_name = (&raw mut from).cast();
        header.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control);
        // SAFETY: everything that the header names lives as long, and is as long as it says.
        let len = unsafe { libc::recvmsg(self.sight.as_raw_fd(), &raw mut header, 0) };
        let len = usize::try_from(len).ok()?;
        let outgoing = from.sll_pkttype == PACKET_OUTGOING;
        bytes.truncate(if outgoing { len } else { 0 });
        Some((stamp(&header).unwrap_or_else(sys::now_ns), bytes))
    }

    /// Waits until a packet leaves, but not past `until_ns`.
    pub fn wait(&self, until_ns: u64) {
        let left_ms = until_ns.saturating_sub(sys::now_ns()) / 1_000_000;
        let timeout = left_ms.min(1_000) as i32;
        let _ = sys::poll(&mut [(self.sight.as_fd(), libc::POLLIN, 0)], timeout);
    }
}

/// When the kernel saw a packet.
fn stamp(header: &libc::msghdr) -> Option<u64> {
    // SAFETY: the kernel has filled the header and what it names.
    unsafe {
        let mut entry = libc::CMSG_FIRSTHDR(header);
        while let Some(message) = entry.as_ref() {
            if message.cmsg_type == libc::SCM_TIMESTAMPNS {
                let time: libc::timespec = ptr_read(libc::CMSG_DATA(entry));
                return Some(sys::of_timespec(&time));
            }
            entry = libc::CMSG_NXTHDR(header, entry);
        }
    }
    None
}

/// # Safety
/// There is a `T` at `from`.
unsafe fn ptr_read<T>(from: *const u8) -> T {
    // SAFETY: by the caller; it may lie at any address.
    unsafe { from.cast::<T>().read_unaligned() }
}

/// The network of a peer, as packetdrill has it.
fn network(peer: IpAddr) -> String {
    match peer {
        IpAddr::V4(peer) => {
            let [first, second, third, _] = peer.octets();
            format!("{first}.{second}.{third}.0/24")
        }
        IpAddr::V6(peer) => {
            let [first, second, third, ..] = peer.segments();
            format!("{first:x}:{second:x}:{third:x}::/48")
        }
    }
}

fn failure(what: &str) -> String {
    format!("{what}: {}", std::io::Error::last_os_error())
}

fn open() -> Result<File, String> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK);
    let file = options
        .open("/dev/net/tun")
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => "no /dev/net/tun; modprobe tun".to_owned(),
            _ => format!("cannot open /dev/net/tun: {error}"),
        })?;
    // SAFETY: zeroed is a valid value of this C structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(NAME.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = IFF_TUN | IFF_NO_PI;
    // SAFETY: the kernel reads a structure of ours; the second request takes a number.
    unsafe {
        if libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) != 0 {
            return Err(failure("cannot make the interface"));
        }
        if libc::ioctl(file.as_raw_fd(), TUNSETOFFLOAD, OFFLOADS) != 0 {
            return Err(failure("cannot set the interface's offloads"));
        }
    }
    Ok(file)
}

/// A socket that sees packets, and when.
fn sight() -> Result<OwnedFd, String> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers; the descriptor is new and ours.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(failure("cannot watch packets"));
    }
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    for (name, value) in [
        (libc::SO_TIMESTAMPNS, 1),
        (libc::SO_RCVBUFFORCE, SEEN_BYTES),
    ] {
        let value = value.to_ne_bytes();
        if sys::set_option(socket.as_fd(), libc::SOL_SOCKET, name, &value, 4).is_err() {
            return Err(failure("cannot watch packets"));
        }
    }
    Ok(socket)
}

fn ip(words: &str) -> Result<(), String> {
    let done = Command::new("ip").args(words.split(' ')).output();
    let output = done.map_err(|error| format!("cannot run ip {words}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("ip {words}: {}", said.trim()))
        }
    }
}
