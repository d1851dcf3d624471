//! Segmentation offloads of an interface, through the ethtool ioctl.

#![allow(unsafe_code)]

use std::{
    ffi::c_int,
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use anyhow::{Context, Result, ensure};
use rustix::net::{AddressFamily, SocketType, socket};

/// linux/ethtool.h
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_SGSO: u32 = 0x24;
const ETHTOOL_SGRO: u32 = 0x2c;
/// linux/sockios.h
const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// struct ethtool_value
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Turns TSO, GSO and GRO of an interface of the calling thread's namespace off, so that queues
/// hold the packets of the wire. Checksums stay offloaded: on veth they are then not computed at
/// all.
///
/// # Errors
/// No such interface, or the kernel refuses.
pub fn disable_segmentation(interface: &str) -> Result<()> {
    let socket =
        socket(AddressFamily::INET, SocketType::DGRAM, None).context("a socket for ethtool")?;
    for (command, what) in [
        (ETHTOOL_STSO, "TSO"),
        (ETHTOOL_SGSO, "GSO"),
        (ETHTOOL_SGRO, "GRO"),
    ] {
        let off = match call(&socket, interface, command, 0) {
            // What the interface has not is off already, if that is what it says.
            Err(error) if is_unsupported(&error) => call(&socket, interface, command - 1, 0)
                .and_then(|value| match value {
                    0 => Ok(0),
                    _ => Err(error),
                }),
            other => other,
        };
        off.with_context(|| format!("interface {interface}: turning {what} off"))?;
    }
    Ok(())
}

fn is_unsupported(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.and_then(io::Error::raw_os_error) == Some(libc::EOPNOTSUPP)
}

/// Sets a value, or gets it by the command before; the value after the call.
fn call(socket: &OwnedFd, interface: &str, command: u32, data: u32) -> Result<u32> {
    let name = interface.as_bytes();
    ensure!(
        name.len() < libc::IFNAMSIZ,
        "the name is longer than {} bytes",
        libc::IFNAMSIZ - 1
    );
    let mut value = Value { command, data };
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: `request` and the value that it points to live until the call returns.
    let done: c_int = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if done < 0 {
        return Err(io::Error::last_os_error().into());
    }
    Ok(value.data)
}
