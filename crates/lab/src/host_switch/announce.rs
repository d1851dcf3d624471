//! Tells a switch that learns which addresses are behind its uplink: the lab's bridges pass no
//! broadcasts, and frames to an address that was never seen would be flooded to all guests.

#![allow(unsafe_code)] // sendto

use std::{io, os::fd::AsRawFd};

use anyhow::{Context, Result};
use rustix::net::{AddressFamily, SocketType, socket};
use sluicegate_agent::interfaces;

/// "Local experimental": no stack takes it.
const PROTOCOL: [u8; 2] = [0x88, 0xb5];

/// Sends a broadcast frame from each of these addresses by an interface of the calling thread's
/// namespace.
///
/// # Errors
/// No such interface, or the kernel refuses.
pub(super) fn send(interface: &str, macs: &[[u8; 6]]) -> Result<()> {
    let index = interfaces::find(interface)?.index;
    let socket = socket(AddressFamily::PACKET, SocketType::RAW, None).context("a raw socket")?;
    // SAFETY: all-zero bytes are a valid address.
    let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    to.sll_family = libc::AF_PACKET as u16;
    to.sll_ifindex = index as i32;
    for mac in macs {
        let mut frame = [0; 60];
        frame[..6].fill(0xff);
        frame[6..12].copy_from_slice(mac);
        frame[12..14].copy_from_slice(&PROTOCOL);
        // SAFETY: `frame` and `to` are valid for the lengths given, and are read only.
        let sent = unsafe {
            libc::sendto(
                socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const to).cast(),
                size_of_val(&to) as libc::socklen_t,
            )
        };
        if sent < 0 {
            return Err(io::Error::last_os_error()).context(interface.to_owned());
        }
    }
    Ok(())
}
