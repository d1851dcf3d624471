//! A tenant without a kernel: a TAP in place of its interface, whose frames are the test's own.

use std::{
    cell::Cell,
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::OpenOptionsExt,
    },
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sluicegate_agent::Instance;
use sluicegate_core::{abi::Flow, host::tcp};
use sluicegate_policy::Policy;

use super::{A, B, Hosts};
use crate::{
    common::until_bridges_forward,
    net::{Packet, Route, opt, wire},
};

/// linux/if_tun.h
const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
const IFF_TAP: i16 = 0x0002;
const IFF_NO_PI: i16 = 0x1000;

/// IEEE 802's local experimental Ethertype: no IP, so that no program looks into it.
const MARKER: u16 = 0x88b5;
const PATIENCE: Duration = Duration::from_secs(30);
/// Of its windows, at both ends.
pub const SCALE: u8 = 9;
pub const MSS: u32 = 1460;
/// First sequence numbers of both.
pub const BEGIN: [u32; 2] = [100, 9_000];

const HOSTS: [&str; 2] = ["ha", "hb"];

/// Two guests behind two hosts that enforce, and a stranger on the first host's bridge, on whose
/// interface no program runs.
pub struct Guests {
    pub hosts: Hosts,
    pub instances: [Instance; 2],
    taps: [File; 2],
    stranger: File,
    markers: Cell<u32>,
    port: Cell<u16>,
    vlan: Cell<Option<u16>>,
}

impl Guests {
    pub fn new(policy: &Policy) -> Self {
        stay_on_one_cpu();
        let hosts = Hosts::new();
        let taps = [A, B].map(|side| {
            hosts.ip(HOSTS[side], "link del dev t");
            interface(&hosts, HOSTS[side], "t")
        });
        let stranger = interface(&hosts, "ha", "x");
        let instances = [A, B].map(|side| hosts.enforce(side, policy));
        let guests = Self {
            hosts,
            instances,
            taps,
            stranger,
            markers: Cell::new(0),
            port: Cell::new(40_000),
            vlan: Cell::new(None),
        };
        // The bridges learn where both are.
        for side in [A, B, A] {
            guests.passed(side);
        }
        guests
    }

    /// From here on another connection is meant, of which nothing is known yet.
    pub fn begin_another(&self) {
        self.port.set(self.port.get() + 1);
    }

    /// From here on frames have this VLAN tag, or none.
    pub fn tag(&self, vlan: Option<u16>) {
        self.vlan.set(vlan);
    }

    /// The connection's way from one guest to the other.
    pub fn route(&self, from: usize) -> Route {
        let ours = format!("10.77.0.1:{}", self.port.get());
        let forward = Route {
            vlan: self.vlan.get(),
            ..Route::new(&ours, "10.77.0.2:5001")
        };
        if from == A {
            forward
        } else {
            forward.reversed()
        }
    }

    /// The flow of the connection at a guest's host, if there is one.
    pub fn known(&self, side: usize) -> Option<Flow> {
        let route = self.route(side);
        let flows = self.instances[side].raw_flows().expect("the kernel tells");
        let ports = (route.from.port().to_be(), route.to.port().to_be());
        let vlan = route.vlan.unwrap_or(0);
        let mut found = flows.into_iter().filter_map(|(key, flow)| {
            let same = (key.local_port, key.remote_port) == ports && key.vlan == vlan;
            same.then_some(flow)
        });
        let flow = found.next();
        assert_eq!(found.next(), None, "a connection has one flow");
        flow
    }

    /// The same where there is one.
    pub fn flow(&self, side: usize) -> Flow {
        self.known(side).expect("the host knows the connection")
    }

    /// Sends a packet of the connection, and returns what the other guest receives of it.
    pub fn pass(&self, from: usize, packet: &Packet) -> Vec<Packet> {
        self.pass_frame(from, self.route(from).build(packet))
    }

    /// The same of a frame, whose Ethernet addresses are put right.
    pub fn pass_frame(&self, from: usize, frame: Vec<u8>) -> Vec<Packet> {
        self.send(from, frame);
        self.passed(from)
    }

    /// Sends a frame without looking what becomes of it.
    pub fn send(&self, from: usize, mut frame: Vec<u8>) {
        frame[..6].copy_from_slice(&mac(1 - from));
        frame[6..12].copy_from_slice(&mac(from));
        write(&self.taps[from], &frame);
    }

    /// Sends a packet that the host's programs see and no guest receives: its destination address
    /// is the sender's, so the bridge drops it.
    pub fn lose(&self, from: usize, packet: &Packet) {
        let mut frame = self.route(from).build(packet);
        frame[..6].copy_from_slice(&mac(from));
        frame[6..12].copy_from_slice(&mac(from));
        write(&self.taps[from], &frame);
        assert_eq!(self.passed(from), []);
    }

    /// A stranger sends a frame to the second guest.
    pub fn intrude(&self, mut frame: Vec<u8>) {
        frame[..6].copy_from_slice(&mac(B));
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
        write(&self.stranger, &frame);
    }

    /// The packets of the connection that the other guest has received until now. A marker goes
    /// behind them: all of this is on one CPU, where frames stay in order.
    pub fn passed(&self, from: usize) -> Vec<Packet> {
        let number = self.markers.get() + 1;
        self.markers.set(number);
        let mut marker = [mac(1 - from), mac(from)].concat();
        marker.extend(MARKER.to_be_bytes());
        marker.extend(number.to_be_bytes());
        marker.resize(60, 0);
        write(&self.taps[from], &marker);
        let mut seen = Vec::new();
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < PATIENCE, "the marker does not arrive");
            let Some(frame) = read(&self.taps[1 - from]) else {
                continue;
            };
            if frame == marker {
                return seen;
            }
            if matches!(frame.get(12..14), Some([0x08 | 0x81, 0x00])) {
                seen.extend(
                    wire::look(&frame)
                        .filter(|(found, ..)| *found == self.route(from))
                        .map(|(_, packet, _)| packet),
                );
            }
        }
    }

    /// A connection opened by the first guest, by packets that `change` has changed.
    pub fn connect(&self, change: impl Fn(usize, &mut Packet)) {
        for side in [A, B] {
            let mut packet = opening(side);
            change(side, &mut packet);
            assert_eq!(self.pass(side, &packet).len(), 1);
        }
        self.pass(A, &ack(A, BEGIN[B] + 1));
    }
}

/// SYN or SYN/ACK.
pub fn opening(side: usize) -> Packet {
    Packet {
        seq: BEGIN[side],
        ack: [0, BEGIN[A] + 1][side],
        flags: [tcp::SYN, tcp::SYN | tcp::ACK][side],
        window: 64_000,
        options: opt::all(&[&opt::mss(MSS as u16), &opt::wscale(SCALE)]),
        ..Packet::default()
    }
}

/// A pure ACK with a large window.
pub fn ack(side: usize, ack: u32) -> Packet {
    Packet {
        seq: BEGIN[side] + 1,
        ack,
        flags: tcp::ACK,
        window: u16::MAX,
        ..Packet::default()
    }
}

/// A segment of the first guest's data that begins so many bytes into its stream.
pub fn data(offset: u32) -> Packet {
    Packet {
        seq: BEGIN[A] + 1 + offset,
        ack: BEGIN[B] + 1,
        flags: tcp::ACK | tcp::PSH,
        window: 500,
        payload: vec![0x5a; MSS as usize],
        ..Packet::default()
    }
}

fn mac(side: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, 1 + side as u8]
}

/// A port of a host's bridge.
fn interface(hosts: &Hosts, host: &str, name: &str) -> File {
    let tap = hosts.within(host, || tap(name));
    hosts.ip(host, &format!("link set dev {name} master bridge up"));
    until_bridges_forward(&hosts.name(host));
    tap
}

fn tap(name: &str) -> File {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .expect("this kernel has TAPs");
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = IFF_TAP | IFF_NO_PI;
    // SAFETY: `request` lives until the call returns.
    let code = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) };
    assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
    file
}

fn write(mut tap: &File, frame: &[u8]) {
    tap.write_all(frame).expect("the TAP takes it");
}

/// The next frame, if one comes soon.
fn read(mut tap: &File) -> Option<Vec<u8>> {
    let mut fds = [PollFd::new(tap.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::from(100_u8)).expect("poll");
    let mut frame = vec![0; 1 << 12];
    let length = tap.read(&mut frame).ok()?;
    frame.truncate(length);
    Some(frame)
}

fn stay_on_one_cpu() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let allowed = sched_getaffinity(None).expect("the kernel says");
    let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu));
    let mut one = CpuSet::new();
    one.set(first.expect("there is a CPU"));
    sched_setaffinity(None, &one).expect("a CPU of those allowed");
}
