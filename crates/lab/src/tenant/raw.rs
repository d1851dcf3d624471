//! The equipment of a cheat beyond sockets: the sequence numbers of a connection that the kernel
//! holds, and a raw socket to speak in its name.

#![allow(unsafe_code)] // TCP_REPAIR: no safe wrapper knows it

use std::{
    ffi::c_int,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
};

use anyhow::{Context, Result, bail};
use rustix::{
    io::Errno,
    net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto},
};

/// linux/tcp.h
const TCP_REPAIR_OFF_NO_WP: c_int = -1;
const TCP_RECV_QUEUE: c_int = 1;
const TCP_SEND_QUEUE: c_int = 2;

/// Bytes of a TCP header without options.
const HEADER_BYTES: usize = 20;
const ACK_PSH: u8 = 0x18;

/// The next sequence numbers that an idle connection sends and expects.
///
/// # Errors
/// Not established, or no right to ask (CAP_NET_ADMIN in the socket's namespace).
pub fn sequence_numbers(fd: BorrowedFd<'_>) -> Result<(u32, u32)> {
    set(fd, libc::TCP_REPAIR, 1)?;
    let numbers = queue(fd, TCP_SEND_QUEUE).and_then(|send| Ok((send, queue(fd, TCP_RECV_QUEUE)?)));
    // Without a window probe: the peer sees nothing of this.
    set(fd, libc::TCP_REPAIR, TCP_REPAIR_OFF_NO_WP)?;
    numbers
}

fn queue(fd: BorrowedFd<'_>, which: c_int) -> Result<u32> {
    set(fd, libc::TCP_REPAIR_QUEUE, which)?;
    let mut number = 0u32;
    let mut length = size_of::<u32>() as libc::socklen_t;
    // SAFETY: `number` is writable for `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_QUEUE_SEQ,
            (&raw mut number).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error()).context("TCP_QUEUE_SEQ");
    }
    Ok(number)
}

fn set(fd: BorrowedFd<'_>, option: c_int, value: c_int) -> Result<()> {
    // SAFETY: the kernel reads an int.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            (&raw const value).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error()).context("TCP_REPAIR");
    }
    Ok(())
}

/// A raw socket that speaks in a connection's name and hears what it is told.
#[derive(Debug)]
pub struct RawConnection {
    fd: OwnedFd,
    local: SocketAddr,
    peer: SocketAddr,
    /// The next sequence number that the peer sends: ours never advances, since it sends nothing.
    expected: u32,
}

impl RawConnection {
    /// For the connection from `local` to `peer`.
    ///
    /// # Errors
    /// No right to raw sockets (CAP_NET_RAW).
    pub fn open(local: SocketAddr, peer: SocketAddr, expected: u32) -> Result<Self> {
        let family = match peer {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = net::socket_with(family, SocketType::RAW, flags, Some(ipproto::TCP))
            .context("cannot open a raw socket")?;
        // A raw socket has no port; connected, it hears its peer alone.
        let address = SocketAddr::new(peer.ip(), 0);
        net::connect(&fd, &address).with_context(|| format!("raw socket to {peer}"))?;
        Ok(Self {
            fd,
            local,
            peer,
            expected,
        })
    }

    /// Sends `payload` with this sequence number; false: there is no room now.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn send(&self, seq: u32, payload: &[u8]) -> Result<bool> {
        let segment = segment(self.local, self.peer, seq, self.expected, payload);
        match net::send(&self.fd, &segment, SendFlags::NOSIGNAL) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => Ok(false),
            Err(error) => Err(error).context("sending through a raw socket"),
        }
    }

    /// The acknowledgement number of the next segment of the connection; `None` when there is none
    /// yet.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn acknowledged(&self) -> Result<Option<u32>> {
        let mut packet = [0; 256];
        loop {
            match net::recv(&self.fd, &mut packet, RecvFlags::TRUNC) {
                Ok((count, _)) => {
                    let seen = &packet[..count.min(packet.len())];
                    if let Some(number) = self.acknowledgement(seen) {
                        return Ok(Some(number));
                    }
                }
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => bail!("receiving from a raw socket: {error}"),
            }
        }
    }

    /// IPv4's raw sockets hand over the IP header, IPv6's do not.
    fn acknowledgement(&self, packet: &[u8]) -> Option<u32> {
        let header = match self.peer {
            SocketAddr::V4(_) => usize::from(packet.first()? & 15) * 4,
            SocketAddr::V6(_) => 0,
        };
        let tcp = packet.get(header..header + HEADER_BYTES)?;
        let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        if port(0) != self.peer.port() || port(2) != self.local.port() {
            return None;
        }
        Some(u32::from_be_bytes([tcp[8], tcp[9], tcp[10], tcp[11]]))
    }
}

/// A data segment with the largest window and a right checksum.
fn segment(local: SocketAddr, peer: SocketAddr, seq: u32, ack: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
    bytes.extend(local.port().to_be_bytes());
    bytes.extend(peer.port().to_be_bytes());
    bytes.extend(seq.to_be_bytes());
    bytes.extend(ack.to_be_bytes());
    bytes.extend([(HEADER_BYTES as u8 / 4) << 4, ACK_PSH, 0xff, 0xff]);
    bytes.extend([0; 4]); // checksum, urgent pointer
    bytes.extend(payload);
    let mut pseudo = Vec::with_capacity(40);
    for address in [local.ip(), peer.ip()] {
        match address {
            IpAddr::V4(address) => pseudo.extend(address.octets()),
            IpAddr::V6(address) => pseudo.extend(address.octets()),
        }
    }
    pseudo.extend([0, libc::IPPROTO_TCP as u8]);
    pseudo.extend((bytes.len() as u16).to_be_bytes());
    let checksum = !(folded(sum(&pseudo) + sum(&bytes)));
    bytes[16..18].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(2);
    words
        .map(|word| u64::from(word[0]) << 8 | u64::from(word.get(1).copied().unwrap_or(0)))
        .sum()
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_makes_the_whole_add_up() {
        for (local, peer) in [
            ("10.0.1.1:40000", "10.0.2.1:10000"),
            ("[fd00::1:1]:40000", "[fd00::2:1]:10000"),
        ] {
            let (local, peer): (SocketAddr, SocketAddr) =
                (local.parse().unwrap(), peer.parse().unwrap());
            let segment = segment(local, peer, 0x0102_0304, 0xf0f1_f2f3, b"odd");
            let addresses = |address: IpAddr| match address {
                IpAddr::V4(address) => sum(&address.octets()),
                IpAddr::V6(address) => sum(&address.octets()),
            };
            let pseudo = addresses(local.ip()) + addresses(peer.ip()) + 6 + 23;
            assert_eq!(folded(pseudo + sum(&segment)), 0xffff);
            assert_eq!((&segment[4..8], segment[13]), (&[1, 2, 3, 4][..], ACK_PSH));
        }
    }
}
