//! The program that takes frames from an interface, in the kernel while this process lives.

#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr, thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, Object, ObjectBuilder, OpenMapMut};

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Bytes with the alignment that an ELF reader may count on.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

/// What [`bpf/xdp_port.bpf.c`](../../bpf/xdp_port.bpf.c) became.
static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/xdp_port.bpf.o")));

/// Has what an interface receives at these queues go to their sockets, but for what is for the host
/// itself; `relayed` is what of this the switch relays (`Reserved` of the switch). The kernel
/// undoes it when the last copy of the descriptor is closed, also because its process was killed.
///
/// # Errors
/// The kernel refuses the program, or another one is still there at this time.
pub(super) fn attach<'a>(
    name: &str,
    ifindex: u32,
    until: Instant,
    relayed: u16,
    sockets: impl Iterator<Item = (u32, BorrowedFd<'a>)>,
) -> anyhow::Result<OwnedFd> {
    let object = load(relayed).map_err(|error| {
        let why = anyhow!("{error}");
        match error.kind() {
            ErrorKind::PermissionDenied => why.context(
                "cannot load the program of an AF_XDP port: be root, or have CAP_BPF and CAP_NET_ADMIN",
            ),
            _ => why.context("cannot load the program of an AF_XDP port"),
        }
    })?;
    let mut maps = object.maps();
    let map = maps.find(|map| map.name() == "sockets");
    let map = map.context("its program has no map `sockets`")?;
    for (queue, socket) in sockets {
        let socket = socket.as_raw_fd() as u32;
        map.update(&queue.to_ne_bytes(), &socket.to_ne_bytes(), MapFlags::ANY)
            .with_context(|| format!("{name}: its queue {queue} cannot have a socket"))?;
    }
    let mut programs = object.progs_mut();
    let program = programs.find(|program| program.name() == "xdp_port");
    let program = program.context("its object has no program `xdp_port`")?;
    let link = loop {
        match create(program.as_fd(), ifindex) {
            Err(error) if is_taken(&error) && Instant::now() < until => thread::sleep(PAUSE),
            link => break link.map_err(|error| explain(name, error))?,
        }
    };
    Ok(link)
}

/// Without libbpf's wrapper, whose errors have no number.
fn create(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<OwnedFd> {
    let program = program.as_raw_fd();
    // SAFETY: plain numbers, and no options.
    let link = unsafe {
        libbpf_sys::bpf_link_create(program, ifindex as i32, libbpf_sys::BPF_XDP, ptr::null())
    };
    if link < 0 {
        return Err(io::Error::from_raw_os_error(-link));
    }
    // SAFETY: the kernel has just made this descriptor, for this call alone.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

fn load(relayed: u16) -> libbpf_rs::Result<Object> {
    // What it would print is in the errors.
    libbpf_rs::set_print(None);
    let mut opened = ObjectBuilder::default()
        .name("xdp_port")?
        .open_memory(&OBJECT.0)?;
    let named = |map: &OpenMapMut<'_>| map.name() == ".rodata.relayed";
    if let Some(mut map) = opened.maps_mut().find(named) {
        map.set_initial_value(&u32::from(relayed).to_ne_bytes())?;
    }
    opened.load()
}

fn explain(name: &str, error: io::Error) -> anyhow::Error {
    let advice = match is_taken(&error) {
        true => format!(
            "{name} has an XDP program of its own: see `ip link show {name}`, and take it away \
             (`ip link set {name} xdp off`) or give the switch another interface"
        ),
        false => format!(
            "{name} takes no XDP program: its MTU may be too long for its driver (try \
             `ip link set {name} mtu 1500`)"
        ),
    };
    anyhow!(error).context(advice)
}

/// Whether another program is at the interface.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}
