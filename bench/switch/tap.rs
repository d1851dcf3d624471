//! Guests behind interfaces of the kernel, in a network namespace of the benchmark: TAP interfaces
//! of its bridge, or the far ends of pairs whose near ends our switch has by AF_XDP.

use std::{
    fs::{self, File},
    io::{Read, Write},
    num::NonZeroU32,
    os::fd::{AsFd, AsRawFd},
    process::{self, Command},
};

use anyhow::{Context, Result, ensure};
use rustix::{
    net::{
        AddressFamily, Protocol, SocketFlags, SocketType, netdevice::name_to_index, socket_with,
    },
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use sluicegate_dataplane::{offload::HEADER, tap::Tap};
use sluicegate_labkit::bridges;

use crate::stream::{PATCH, PATCH_AT, Patch, Stream, mac};

/// Moves the calling thread into a new network namespace. It has no name: it is gone with the last
/// thread, process or interface's file that is in it, however they end.
pub fn enter_namespace() -> Result<()> {
    let name = format!("sg-bench-{}", process::id());
    ip(&format!("netns add {name}"))?;
    let file = File::open(format!("/run/netns/{name}"));
    ip(&format!("netns del {name}"))?;
    let kind = Some(LinkNameSpaceType::Network);
    move_into_link_name_space(file?.as_fd(), kind).context("entering a namespace")?;
    // Nothing but the benchmark's frames.
    fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")?;
    Ok(())
}

/// A bridge of three TAP interfaces, in the namespace of the calling thread.
pub fn bridge() -> Result<[TapGuest; 3]> {
    ip("link add br0 type bridge")?;
    let guest = |name: &str| -> Result<TapGuest> {
        let tap = Tap::open(name, false)?;
        ip(&format!("link set dev {name} master br0 up"))?;
        let file = tap.descriptor().try_clone_to_owned()?.into();
        Ok(TapGuest::new(file, HEADER, Some(tap)))
    };
    let guests = [guest("a")?, guest("b")?, guest("c")?];
    ip("link set dev br0 up")?;
    bridges::until_forwarding(None)?;
    Ok(guests)
}

/// Three pairs of interfaces, in the namespace of the calling thread: a switch may have `a`, `b`
/// and `c`, and the guests have the far ends.
pub fn pairs() -> Result<[TapGuest; 3]> {
    let guest = |name: &str| -> Result<TapGuest> {
        ip(&format!(
            "link add name {name} type veth peer name far-{name}"
        ))?;
        ip(&format!("link set dev {name} up"))?;
        ip(&format!("link set dev far-{name} up"))?;
        let socket = packet_socket(&format!("far-{name}"))?;
        Ok(TapGuest::new(socket, 0, None))
    };
    Ok([guest("a")?, guest("b")?, guest("c")?])
}

/// A socket for whole frames at an interface.
#[allow(unsafe_code)] // rustix knows no addresses of packet sockets
fn packet_socket(name: &str) -> Result<File> {
    let every = u16::to_be(libc::ETH_P_ALL as u16);
    let protocol = NonZeroU32::new(u32::from(every)).map(Protocol::from_raw);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, protocol)?;
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: every,
        sll_ifindex: name_to_index(&socket, name)? as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let bytes = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: the address is a valid structure of so many bytes, which the call copies.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) };
    ensure!(bound == 0, "a packet socket at {name}");
    Ok(socket.into())
}

fn ip(arguments: &str) -> Result<()> {
    let status = Command::new("ip").args(arguments.split(' ')).status()?;
    ensure!(status.success(), "ip {arguments}");
    Ok(())
}

/// A guest at an interface of the kernel.
pub struct TapGuest {
    file: File,
    /// Bytes before each frame.
    header: usize,
    /// Keeps the interface.
    _tap: Option<Tap>,
    /// The frame that is sent, behind its header.
    frame: Vec<u8>,
    buffer: Vec<u8>,
}

impl TapGuest {
    fn new(file: File, header: usize, tap: Option<Tap>) -> Self {
        Self {
            file,
            header,
            _tap: tap,
            frame: Vec::new(),
            buffer: vec![0; HEADER + (1 << 16) + 64],
        }
    }

    /// What it sends from now on.
    pub fn load(&mut self, header: [u8; HEADER], frame: &[u8]) {
        self.frame = [&header[..self.header], frame].concat();
    }

    /// Sends at most so many frames; how many the kernel took.
    pub fn send(&mut self, most: usize, stream: &mut Stream) -> usize {
        let at = self.header + PATCH_AT;
        for sent in 0..most {
            self.frame[at..at + PATCH].copy_from_slice(&stream.next());
            if self.file.write(&self.frame).is_err() {
                return sent;
            }
        }
        most
    }

    /// Takes at most so many frames.
    pub fn receive(&mut self, most: usize, mut each: impl FnMut(&Patch)) -> usize {
        let mut count = 0;
        for _ in 0..most {
            let Ok(bytes) = self.file.read(&mut self.buffer) else {
                return count;
            };
            let frame = &self.buffer[self.header..bytes.max(self.header)];
            // The kernel sends frames of its own.
            if frame.get(..5) != Some(&mac(0)[..5]) {
                continue;
            }
            // It takes the padding of short ones away.
            let part = &frame[PATCH_AT.min(frame.len())..frame.len().min(PATCH_AT + PATCH)];
            let mut patch = [0; PATCH];
            patch[..part.len()].copy_from_slice(part);
            each(&patch);
            count += 1;
        }
        count
    }
}
