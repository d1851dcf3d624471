//! What the kernel says of an interface, in the network namespace of the calling thread.

#![allow(unsafe_code)]

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use anyhow::{Context, ensure};
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice::name_to_index, socket_with};

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const SIOCGIFMTU: libc::Ioctl = 0x8921;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

/// An interface.
#[derive(Clone, Copy, Debug)]
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// The longest payload of its frames in bytes.
    pub mtu: u32,
    /// Queues by which it receives; 1 if its driver does not say.
    pub queues: u32,
}

impl Interface {
    /// The one of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn find(name: &str) -> anyhow::Result<Self> {
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let index = name_to_index(socket.as_fd(), name);
        let index = index.with_context(|| format!("there is no interface {name}"))?;
        let mut request = request(name)?;
        ask(&socket, SIOCGIFMTU, &mut request).with_context(|| format!("{name} has no MTU"))?;
        // SAFETY: this request has filled in this member.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        Ok(Self {
            index,
            mtu: mtu as u32,
            queues: queues(&socket, name)?,
        })
    }
}

fn request(name: &str) -> anyhow::Result<libc::ifreq> {
    ensure!(
        !name.is_empty() && name.len() < libc::IFNAMSIZ,
        "an interface's name has 1 to 15 bytes, not '{name}'"
    );
    // SAFETY: zeroed is a valid value of this C structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn ask(socket: &OwnedFd, what: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the request is a valid structure for these calls; what it points to lives longer.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw mut *request) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn queues(socket: &OwnedFd, name: &str) -> anyhow::Result<u32> {
    let mut channels = Channels {
        command: ETHTOOL_GCHANNELS,
        ..Channels::default()
    };
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    // Drivers with one queue often do not answer.
    let known = ask(socket, SIOCETHTOOL, &mut request).is_ok();
    // SAFETY: the kernel has written it; a volatile read, as it did so behind a pointer.
    let channels = unsafe { std::ptr::read_volatile(&raw const channels) };
    let count = channels.receive.saturating_add(channels.combined);
    Ok(if known { count.max(1) } else { 1 })
}

/// Frames that an interface has dropped by its own count: on their way in, and on their way out.
/// For some drivers the first has in it what sockets count as well.
pub fn dropped(name: &str) -> Option<(u64, u64)> {
    // Of the thread's network namespace, not of the process's.
    let bytes = fs::read("/proc/thread-self/net/dev").ok()?;
    // Another interface may have a name that is no UTF-8.
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, counts) = lines.find(|(known, _)| known.trim() == name)?;
    let counts: Vec<&str> = counts.split_whitespace().collect();
    let count = |at: usize| counts.get(at)?.parse().ok();
    Some((count(3)?, count(11)?))
}
