//! The switch port on a live veth pair: real frames meet a real backlog. Needs root.
//!
//! The transmit side is a token bucket so slow that the backlog only grows while a test sends; it
//! is opened afterwards, and what comes out at the other end is examined frame by frame.

#![allow(unsafe_code)]

use std::{
    ffi::CString,
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use sluicegate_agent::{
    interfaces,
    netns::{NetNs, within},
};
use sluicegate_core::{aqm::Aqm, segment::ecn};
use sluicegate_labkit::port::{PortConfig, Slot, SwitchPorts};

/// A DSCP that must survive: CS5 in the upper six bits.
const DSCP: u8 = 40 << 2;
const FRAME: usize = 1000;
const K: u32 = 5 * FRAME as u32;

fn run(command: &str) {
    let mut words = command.split_whitespace();
    let status = Command::new(words.next().unwrap())
        .args(words)
        .status()
        .unwrap();
    assert!(status.success(), "{command}");
}

/// Two namespaces and a veth pair `near`–`far` between them; `near` is the switch port.
struct Wire {
    near: NetNs,
    far: NetNs,
    sender: OwnedFd,
    receiver: OwnedFd,
    ports: SwitchPorts,
    port: Slot,
}

impl Drop for Wire {
    fn drop(&mut self) {
        run(&format!("ip netns del {}", self.near.name()));
        run(&format!("ip netns del {}", self.far.name()));
    }
}

impl Wire {
    fn new(aqm: Aqm) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!(
            "{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let (a, b) = (format!("sg-port-{id}-a"), format!("sg-port-{id}-b"));
        run(&format!("ip netns add {a}"));
        run(&format!("ip netns add {b}"));
        run(&format!(
            "ip link add near netns {a} mtu 1500 type veth peer name far netns {b} mtu 1500"
        ));
        for (netns, interface) in [(&a, "near"), (&b, "far")] {
            let quiet = "sysctl -qw net.ipv6.conf.all.disable_ipv6=1";
            run(&format!("ip netns exec {netns} {quiet}"));
            run(&format!("ip -n {netns} link set {interface} up"));
        }
        // 100 bytes a second: nothing leaves during a test but what the bucket holds at first.
        run(&format!(
            "tc -n {a} qdisc add dev near root tbf rate 800bit burst {FRAME}b limit 4mb"
        ));
        let (near, far) = (NetNs::named(&a).unwrap(), NetNs::named(&b).unwrap());
        let mut ports = SwitchPorts::load().unwrap();
        let config = PortConfig {
            aqm,
            rate_bps: 800,
            frame_bytes: FRAME as u32,
        };
        let (sender, port) = within(near.as_fd(), || {
            let index = interfaces::find("near")?.index;
            Ok((packet_socket("near")?, ports.attach(index, &config)?))
        })
        .unwrap();
        let receiver = within(far.as_fd(), || Ok(packet_socket("far")?)).unwrap();
        Self {
            near,
            far,
            sender,
            receiver,
            ports,
            port,
        }
    }

    fn send(&self, frame: &[u8]) {
        // SAFETY: the pointer and the length describe `frame`.
        let sent = unsafe {
            libc::send(
                self.sender.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
            )
        };
        // A drop by the program shows as ENOBUFS; it is what some tests want.
        let error = io::Error::last_os_error();
        assert!(
            sent == frame.len() as isize || error.raw_os_error() == Some(libc::ENOBUFS),
            "{error}"
        );
    }

    /// Opens the bucket and returns all that arrives, once `last` (a marker frame) has.
    fn receive(&self) -> Vec<Vec<u8>> {
        run(&format!(
            "tc -n {} qdisc change dev near root tbf rate 1gbit burst 1mb limit 4mb",
            self.near.name()
        ));
        let last = end_frame();
        // Not IP: passes whatever the backlog.
        self.send(&last);
        let mut frames = Vec::new();
        loop {
            let mut buffer = vec![0u8; 2048];
            // SAFETY: the pointer and the length describe `buffer`.
            let got = unsafe {
                libc::recv(
                    self.receiver.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    0,
                )
            };
            assert!(
                got > 0,
                "the last frame did not arrive: {}",
                io::Error::last_os_error()
            );
            buffer.truncate(got as usize);
            if buffer == last {
                return frames;
            }
            frames.push(buffer);
        }
    }
}

fn packet_socket(interface: &str) -> io::Result<OwnedFd> {
    let all = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: plain system call.
    let fd = unsafe {
        libc::socket(
            libc::AF_PACKET,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            i32::from(all),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nothing else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let name = CString::new(interface).unwrap();
    // SAFETY: all-zero bytes are a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = all;
    // SAFETY: `name` is a C string.
    address.sll_ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) } as i32;
    let timeout = libc::timeval {
        tv_sec: 20,
        tv_usec: 0,
    };
    let buffer: libc::c_int = 64 << 20;
    let size = size_of_val(&address) as libc::socklen_t;
    // SAFETY: each pointer and length describe a live local.
    let done = unsafe {
        let level = libc::SOL_SOCKET;
        let (time, time_size) = ((&raw const timeout).cast(), size_of_val(&timeout) as u32);
        let (room, room_size) = ((&raw const buffer).cast(), size_of_val(&buffer) as u32);
        libc::setsockopt(fd, level, libc::SO_RCVTIMEO, time, time_size)
            | libc::setsockopt(fd, level, libc::SO_RCVBUFFORCE, room, room_size)
            | libc::setsockopt(fd, level, libc::SO_SNDBUFFORCE, room, room_size)
            | libc::bind(fd, (&raw const address).cast(), size)
    };
    if done == 0 {
        Ok(socket)
    } else {
        Err(io::Error::last_os_error())
    }
}

fn ethernet(ethertypes: &[u16]) -> Vec<u8> {
    let mut frame = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1];
    for word in ethertypes {
        frame.extend(word.to_be_bytes());
    }
    frame
}

fn end_frame() -> Vec<u8> {
    let mut frame = ethernet(&[0x88b5]);
    frame.resize(60, 0xee);
    frame
}

fn checksum(header: &[u8]) -> u16 {
    let sum: u32 = header
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// A UDP packet whose number is in the IP identification or flow label and whose tail is a pattern.
fn ipv4(prefix: &[u16], number: u16, tos: u8, bytes: usize) -> Vec<u8> {
    let mut frame = ethernet(prefix);
    let start = frame.len();
    let length = (bytes - start) as u16;
    frame.extend([0x45, tos]);
    frame.extend(length.to_be_bytes());
    frame.extend(number.to_be_bytes());
    frame.extend([0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = checksum(&frame[start..]);
    frame[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
    frame.resize(bytes, number as u8);
    frame
}

fn ipv6(number: u16, class: u8) -> Vec<u8> {
    let mut frame = ethernet(&[0x86dd]);
    let label = u32::from(number);
    frame.extend((6 << 28 | u32::from(class) << 20 | label).to_be_bytes());
    frame.extend(((FRAME - 54) as u16).to_be_bytes());
    frame.extend([17, 64]);
    frame.extend([0xfd; 32]);
    frame.resize(FRAME, number as u8);
    frame
}

/// The frame but for its ECN field and the checksum that covers it, to see that nothing else
/// changed.
fn but_for_ecn(mut frame: Vec<u8>, ip: usize) -> Vec<u8> {
    if frame[ip] >> 4 == 4 {
        frame[ip + 1] &= !3;
        frame[ip + 10..ip + 12].fill(0);
    } else {
        frame[ip + 1] &= !0x30;
    }
    frame
}

fn ecn(frame: &[u8], ip: usize) -> u8 {
    if frame[ip] >> 4 == 4 {
        frame[ip + 1] & 3
    } else {
        frame[ip + 1] >> 4 & 3
    }
}

/// How many of the first frames carry `below`, given that all later ones carry `above`.
fn boundary(frames: &[Vec<u8>], ip: usize, below: u8, above: u8) -> usize {
    let first = frames
        .iter()
        .take_while(|frame| ecn(frame, ip) == below)
        .count();
    assert!(
        frames[first..].iter().all(|frame| ecn(frame, ip) == above),
        "not all above K have {above}"
    );
    first
}

/// The bucket lets one or two frames through; then K bytes fit and the one that meets exactly K.
const BELOW_K: std::ops::RangeInclusive<usize> = 7..=8;

fn threshold(drop_not_ect: bool) -> Aqm {
    Aqm::Threshold {
        k_bytes: K,
        drop_not_ect,
    }
}

#[test]
fn above_k_every_ect_packet_is_marked_and_nothing_else_changes() {
    let wire = Wire::new(threshold(true));
    let sent: Vec<_> = (0..20)
        .map(|n| ipv4(&[0x800], n, DSCP | ecn::ECT0, FRAME))
        .collect();
    sent.iter().for_each(|frame| wire.send(frame));
    let stats = wire.ports.stats(wire.port).unwrap();
    let got = wire.receive();
    assert_eq!(got.len(), 20);
    let first = boundary(&got, 14, ecn::ECT0, ecn::CE);
    assert!(BELOW_K.contains(&first), "the first {first} are unmarked");
    assert_eq!(stats.marks, 20 - first as u64);
    assert_eq!((stats.packets, stats.bytes), (20, 20 * FRAME as u64));
    for (sent, got) in sent.into_iter().zip(got) {
        assert_eq!(checksum(&got[14..34]), 0, "a wrong IPv4 checksum");
        assert_eq!(but_for_ecn(got, 14), but_for_ecn(sent, 14));
    }
}

#[test]
fn the_backlog_that_packets_met_is_on_record() {
    let wire = Wire::new(Aqm::None);
    (0..20).for_each(|n| wire.send(&ipv4(&[0x800], n, ecn::ECT0, FRAME)));
    let stats = wire.ports.stats(wire.port).unwrap();
    let (now, largest) = (
        wire.ports.backlog_bytes(wire.port).unwrap(),
        stats.backlog.quantile(1.0).unwrap(),
    );
    // The last packet met all but itself and the one or two that had left.
    assert!(
        (17_000.0 * 0.97..18_000.0 * 1.03).contains(&largest),
        "{largest}"
    );
    assert!((17_900..=19_000).contains(&now), "{now}");
    assert_eq!(stats.marks, 0);
    wire.receive();
}

#[test]
fn what_cannot_be_marked_is_dropped_only_if_so_configured() {
    for drop_not_ect in [true, false] {
        let wire = Wire::new(threshold(drop_not_ect));
        (0..20).for_each(|n| wire.send(&ipv4(&[0x800], n, DSCP, FRAME)));
        let stats = wire.ports.stats(wire.port).unwrap();
        let got = wire.receive();
        assert_eq!(boundary(&got, 14, 0, 0), got.len());
        assert_eq!(stats.marks, 0);
        if drop_not_ect {
            assert!(BELOW_K.contains(&got.len()), "{} passed", got.len());
            assert_eq!(stats.drops_not_ect, 20 - got.len() as u64);
        } else {
            assert_eq!((got.len(), stats.drops_not_ect), (20, 0));
        }
    }
}

#[test]
fn arp_passes_above_k() {
    let wire = Wire::new(threshold(true));
    (0..12).for_each(|n| wire.send(&ipv4(&[0x800], n, ecn::ECT0, FRAME)));
    let mut arp = ethernet(&[0x806]);
    arp.resize(60, 1);
    wire.send(&arp);
    assert_eq!(wire.receive().last(), Some(&arp));
}

#[test]
fn ipv6_is_marked_in_its_traffic_class() {
    let wire = Wire::new(threshold(true));
    let sent: Vec<_> = (0..20).map(|n| ipv6(n, DSCP | ecn::ECT0)).collect();
    sent.iter().for_each(|frame| wire.send(frame));
    let got = wire.receive();
    assert_eq!(got.len(), 20);
    assert!(BELOW_K.contains(&boundary(&got, 14, ecn::ECT0, ecn::CE)));
    for (sent, got) in sent.into_iter().zip(got) {
        assert_eq!(but_for_ecn(got, 14), but_for_ecn(sent, 14));
    }
}

#[test]
fn one_vlan_tag_is_looked_through() {
    let wire = Wire::new(threshold(true));
    // A priority-tagged frame in VLAN 5. The kernel takes the outer tag off on arrival and packet
    // sockets see the rest.
    let sent: Vec<_> = (0..20)
        .map(|n| ipv4(&[0x8100, 5, 0x800], n, DSCP | ecn::ECT0, FRAME))
        .collect();
    sent.iter().for_each(|frame| wire.send(frame));
    let got = wire.receive();
    assert_eq!(got.len(), 20);
    let first = boundary(&got, 14, ecn::ECT0, ecn::CE);
    // Without the tag the kernel counts four bytes less on some kernels: the boundary stays.
    assert!(BELOW_K.contains(&first), "the first {first} are unmarked");
    assert!(got.iter().all(|frame| checksum(&frame[14..34]) == 0));
}

#[test]
fn bleaching_starts_while_packets_flow() {
    let mut wire = Wire::new(threshold(false));
    (0..4).for_each(|n| wire.send(&ipv4(&[0x800], n, DSCP | ecn::ECT0, FRAME)));
    wire.ports.set_bleach(wire.port, true).unwrap();
    (4..20).for_each(|n| wire.send(&ipv4(&[0x800], n, DSCP | ecn::ECT0, FRAME)));
    let stats = wire.ports.stats(wire.port).unwrap();
    let got = wire.receive();
    assert_eq!(boundary(&got, 14, ecn::ECT0, 0), 4);
    assert_eq!(stats.bleached, 16);
    assert!(got.iter().all(|frame| checksum(&frame[14..34]) == 0));
    assert!(got.iter().all(|frame| frame[15] & !3 == DSCP));
}

#[test]
fn red_spaces_its_marks() {
    // The queue itself is the average (weight 1). It is filled to about 100 KB with packets that
    // RED does not count since they are not IP; from there p_b is 0.2 * 100/200 = 0.1 and more.
    let red = Aqm::Red {
        drop_above: false,
        pass_not_ect: false,
        min_bytes: 0,
        max_bytes: 200_000,
        p_max: 0.2,
        weight: 1.0,
    };
    let wire = Wire::new(red);
    let mut filler = ethernet(&[0x88b6]);
    filler.resize(FRAME, 0);
    (0..102).for_each(|_| wire.send(&filler));
    (0..1000).for_each(|n| wire.send(&ipv4(&[0x800], n, ecn::ECT0, 60)));
    let got = wire.receive();
    let marked: Vec<usize> = (0..1000)
        .filter(|n| ecn(&got[102 + n], 14) == ecn::CE)
        .collect();
    // Gaps are uniform between 1 and 1/p_b, 10 at first and 6 at the end: some 1000/5 marks, and
    // never a longer gap, as independent drawing would surely have (0.9^11 = 0.31 per mark).
    let longest = marked
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .max()
        .unwrap();
    assert!(longest <= 11, "a gap of {longest}");
    assert!(
        (150..=350).contains(&marked.len()),
        "{} marks",
        marked.len()
    );
}

#[test]
fn red_above_its_maximum_marks_all_and_below_its_minimum_none() {
    let red = Aqm::Red {
        drop_above: false,
        pass_not_ect: false,
        min_bytes: K,
        max_bytes: K + 1,
        p_max: 0.1,
        weight: 1.0,
    };
    let wire = Wire::new(red);
    (0..20).for_each(|n| wire.send(&ipv4(&[0x800], n, ecn::ECT0, FRAME)));
    let got = wire.receive();
    let first = boundary(&got[..], 14, ecn::ECT0, ecn::CE);
    assert!(BELOW_K.contains(&first), "the first {first} are unmarked");
}

#[test]
fn red_drops_what_cannot_be_marked() {
    let red = Aqm::Red {
        drop_above: false,
        pass_not_ect: false,
        min_bytes: K,
        max_bytes: K + 1,
        p_max: 0.1,
        weight: 1.0,
    };
    let wire = Wire::new(red);
    (0..20).for_each(|n| wire.send(&ipv4(&[0x800], n, 0, FRAME)));
    let stats = wire.ports.stats(wire.port).unwrap();
    let got = wire.receive();
    assert!(BELOW_K.contains(&got.len()), "{} passed", got.len());
    assert_eq!(stats.drops_red, 20 - got.len() as u64);
}
