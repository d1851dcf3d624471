//! Every packet of an interface, read from an AF_PACKET socket.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use super::Hosts;
use crate::net::{
    Packet,
    wire::{self, Sum},
};

/// A packet as it passed.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Leaves through the interface; else it came in.
    pub out: bool,
    pub packet: Packet,
    pub sum: Sum,
    pub frame: Vec<u8>,
}

/// A capture under way.
pub struct Capture {
    stop: Arc<AtomicBool>,
    reader: JoinHandle<Vec<Seen>>,
}

impl Capture {
    /// Captures TCP on `interface` of `part` from now on.
    pub fn start(hosts: &Hosts, part: &str, interface: &'static str) -> Self {
        let socket = hosts.within(part, || open(interface).expect("a packet socket: be root"));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let reader = std::thread::spawn(move || read_all(&socket, &stopped));
        Self { stop, reader }
    }

    /// The packets that have passed until now.
    pub fn finish(self) -> Vec<Seen> {
        self.stop.store(true, Ordering::Relaxed);
        self.reader.join().expect("every packet could be read")
    }
}

fn open(interface: &str) -> io::Result<OwnedFd> {
    let all = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: makes a socket, or does not.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, all.into()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nothing else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    set_option(&socket, libc::SO_RCVBUFFORCE, &(256_i32 << 20))?;
    let patience = libc::timeval {
        tv_sec: 0,
        tv_usec: 50_000,
    };
    set_option(&socket, libc::SO_RCVTIMEO, &patience)?;
    let index = nix_index(interface)?;
    // SAFETY: zeroes are a valid address structure.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = all;
    address.sll_ifindex = index;
    // SAFETY: the address outlives the call, which is told its size.
    let code = unsafe {
        libc::bind(
            fd,
            std::ptr::from_ref(&address).cast(),
            size_of::<libc::sockaddr_ll>() as u32,
        )
    };
    if code == 0 {
        Ok(socket)
    } else {
        Err(io::Error::last_os_error())
    }
}

fn nix_index(interface: &str) -> io::Result<i32> {
    let name = std::ffi::CString::new(interface)?;
    // SAFETY: a C string that outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index as i32),
    }
}

fn set_option<T>(socket: &OwnedFd, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: the value outlives the call, which is told its size.
    let code = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as u32,
        )
    };
    if code == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Reads until told to stop and nothing more has come for a while.
fn read_all(socket: &OwnedFd, stop: &AtomicBool) -> Vec<Seen> {
    let mut buffer = vec![0; 1 << 17];
    let mut seen = Vec::new();
    loop {
        // SAFETY: zeroes are a valid address structure.
        let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        let mut size = size_of::<libc::sockaddr_ll>() as u32;
        // SAFETY: buffer and address outlive the call, which is told their sizes.
        let length = unsafe {
            libc::recvfrom(
                socket.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                0,
                std::ptr::from_mut(&mut from).cast(),
                &mut size,
            )
        };
        let Ok(length) = usize::try_from(length) else {
            if stop.load(Ordering::Relaxed) {
                assert_eq!(lost(socket), 0, "the capture missed packets");
                return seen;
            }
            continue;
        };
        let frame = &buffer[..length];
        let kind = frame.get(12..14);
        if kind != Some(&[0x08, 0x00]) && kind != Some(&[0x86, 0xdd]) {
            continue;
        }
        if let Some((_, packet, sum)) = wire::look(frame) {
            seen.push(Seen {
                out: from.sll_pkttype == libc::PACKET_OUTGOING,
                packet,
                sum,
                frame: frame.to_vec(),
            });
        }
    }
}

/// Packets that did not fit into the socket's buffer.
fn lost(socket: &OwnedFd) -> u32 {
    let mut statistics = [0_u32; 2];
    let mut size = size_of_val(&statistics) as u32;
    // SAFETY: writes at most `size` bytes into what outlives the call.
    let code = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            statistics.as_mut_ptr().cast(),
            &mut size,
        )
    };
    assert_eq!(code, 0, "{}", io::Error::last_os_error());
    statistics[1]
}
