//! The vNIC stage on frames of guests: the same bytes, decisions, flows and counters as core's host
//! on whole frames, which the kernel's programs are compared with (`agent/tests/vectors.rs`).
//!
//! Each frame passes twice more: from a guest's memory, of which only the start is copied, and with
//! the checksum left to the receiver's adapter.

use std::{fs::File, path::PathBuf, sync::Arc};

use net::{A, B, Fate as Crossing, Pair, Route, pair::Enforcer};
use random::Random;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use sluicegate_core::{
    abi::{COUNTER_NAMES, FlowKey, HashKey, MODE_TWO_SIDED, PolicyTable},
    host::{Action, Direction, Host, Outcome},
    wire,
};
use sluicegate_dataplane::{
    count::Drop,
    frame::{Frame, START},
    govern::{Fate, Govern, Governing},
    memory::{Memory, Region},
    offload::{Cut, Work},
};
use sluicegate_policy::{Policy, PolicyFile};

use crate::{net, random};

const GUEST: u64 = 0x10_0000;
const BYTES: u64 = 1 << 17;
const PORT: u16 = 3;

const POLICY: &str = r#"
trusted = ["10.0.0.0/8", "fd00::/8"]
[[rule]]
algorithm = "dctcp"
one_sided = "cubic"
mode = "enforce"
"#;

fn governing(text: &str) -> Governing {
    let file = PolicyFile {
        path: PathBuf::from("policy.toml"),
        text: text.to_owned(),
    };
    let policy = Policy::parse("policy.toml", text).expect("a policy");
    let mut governing = Governing::new(&file, policy);
    // Core's host never forgets.
    (governing.limits.idle_ns, governing.limits.closed_ns) = (u64::MAX, u64::MAX);
    governing
}

/// Enforcement at the port of a guest, and the guest's memory.
struct Vnic {
    govern: Govern,
    memory: Memory,
}

impl Vnic {
    fn new(policy: &str) -> Self {
        let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).expect("memfd"));
        ftruncate(&file, BYTES).expect("its length");
        let region = Region::map(GUEST, 0, BYTES, file, 0).expect("a region");
        let mut govern = Govern::new(governing(policy), HashKey::FIXED);
        govern.attach(PORT, "vm", "vm");
        Self {
            govern,
            memory: Memory::new(vec![Arc::new(region)]).expect("a memory"),
        }
    }

    /// A frame in the guest's memory, in pieces of different lengths.
    fn frame(&self, bytes: &[u8], work: Work) -> Frame {
        let mut frame = Frame {
            from: PORT,
            bytes: bytes.len() as u32,
            work,
            ..Frame::default()
        };
        let mut at = GUEST;
        for part in bytes.chunks(97) {
            let piece = self.memory.guest(at, part.len() as u32).expect("in memory");
            self.memory.write(piece, part);
            frame.pieces.push(piece);
            at += part.len() as u64;
        }
        frame.read_start(&self.memory);
        frame
    }

    fn pass(&mut self, frame: &mut Frame, direction: Direction, vlan: u16, now_ns: u64) -> Fate {
        let (govern, memory) = (&mut self.govern, &self.memory);
        govern.pass(PORT, frame, memory, (direction, vlan), now_ns)
    }
}

/// Where the IP and the TCP header are, and whether it is IPv6; only where there is nothing else.
fn places(frame: &[u8]) -> Option<(usize, usize, bool)> {
    let tagged = frame.get(12..14)? == [0x81, 0];
    let ip = if tagged { 18 } else { 14 };
    let (tcp, is_ipv6, bytes) = match frame.get(ip - 2..ip)? {
        [8, 0] if frame.get(ip)? == &0x45 && frame.get(ip + 9)? == &6 => {
            (ip + 20, false, &frame.get(ip + 2..ip + 4)?)
        }
        [0x86, 0xdd] if frame.get(ip + 6)? == &6 => (ip + 40, true, &frame.get(ip + 4..ip + 6)?),
        _ => return None,
    };
    let ends =
        usize::from(u16::from_be_bytes([bytes[0], bytes[1]])) + if is_ipv6 { tcp } else { ip };
    (ends == frame.len() && frame.len() >= tcp + 20).then_some((ip, tcp, is_ipv6))
}

/// The checksum that a frame should have.
fn checksum(frame: &[u8]) -> Option<[u8; 2]> {
    let (ip, tcp, is_ipv6) = places(frame)?;
    let mut segment = frame[tcp..].to_vec();
    segment[16..18].fill(0);
    Some(if is_ipv6 {
        wire::tcp_checksum_v6(frame[ip..tcp].try_into().expect("forty"), &segment)
    } else {
        wire::tcp_checksum_v4(frame[ip..tcp].try_into().expect("twenty"), &segment)
    })
}

/// A frame with a right checksum as a guest sends it that leaves the checksum to its adapter.
fn left(frame: &[u8]) -> Option<(Vec<u8>, Work)> {
    let (ip, tcp, is_ipv6) = places(frame)?;
    if checksum(frame)? != frame[tcp + 16..tcp + 18] {
        return None;
    }
    let addresses = if is_ipv6 {
        ip + 8..ip + 40
    } else {
        ip + 12..ip + 20
    };
    let words = frame[addresses].chunks(2);
    let words = words.map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
    let mut sum: u32 = words.sum::<u32>() + 6 + (frame.len() - tcp) as u32;
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let mut frame = frame.to_vec();
    frame[tcp + 16..tcp + 18].copy_from_slice(&(sum as u16).to_be_bytes());
    let work = Work {
        checksum: Some((tcp as u16, 16)),
        segment: None,
    };
    Some((frame, work))
}

/// 0 and 0xffff are the same checksum.
fn normal(mut frame: Vec<u8>) -> Vec<u8> {
    if let Some((_, tcp, _)) = places(&frame) {
        if frame[tcp + 16..tcp + 18] == [0xff, 0xff] {
            frame[tcp + 16..tcp + 18].fill(0);
        }
    }
    frame
}

/// A host with vNICs at its side: all get every frame.
struct Shadowed {
    host: Host,
    vnics: [Vnic; 2],
    left: u32,
}

impl Shadowed {
    fn new(policy: &str) -> Self {
        Self {
            host: Host::new(&table(policy)),
            vnics: [Vnic::new(policy), Vnic::new(policy)],
            left: 0,
        }
    }
}

fn table(policy: &str) -> Box<PolicyTable> {
    governing(policy).policy.compile()
}

/// One frame through a vNIC, which does as core's host did.
fn compare(
    vnic: &mut Vnic,
    (before, work): (&[u8], Work),
    (direction, now_ns): (Direction, u64),
    after: &[u8],
    outcome: &Outcome,
) {
    let context = || format!("{direction:?} {before:02x?}: {outcome:?}");
    let tag = before.get(12..14) == Some(&[0x81, 0]);
    let vlan = before.get(14..16).filter(|_| tag);
    let vlan = vlan.map_or(0, |two| u16::from_be_bytes([two[0], two[1]]) & 0xfff);
    let mut frame = vnic.frame(before, work);
    let fate = vnic.pass(&mut frame, direction, vlan, now_ns);
    let expected = match (outcome.action, &outcome.fack) {
        (Action::Drop, _) => Fate::Drop(Drop::Policed),
        (Action::Consume, _) => Fate::Consumed,
        (Action::Pass, Some(fack)) => Fate::PassWith(fack.clone()),
        (Action::Pass, None) => Fate::Pass,
    };
    assert_eq!(fate, expected, "{}", context());
    if outcome.action != Action::Pass {
        return;
    }
    let mut whole = frame.whole(&vnic.memory);
    assert_eq!(whole.len(), frame.bytes as usize);
    if work.checksum.is_some() {
        let left = Work {
            segment: None,
            ..work
        };
        let cut = Cut::new(frame.start(), frame.bytes, left).expect("in the frame");
        cut.finish(&mut whole, 0);
        assert_eq!(normal(whole), normal(after.to_vec()), "{}", context());
    } else {
        assert_eq!(whole, after, "{}", context());
    }
}

impl Enforcer for Shadowed {
    fn frame(&mut self, frame: &mut Vec<u8>, direction: Direction, now_ns: u64) -> Outcome {
        let before = frame.clone();
        let outcome = self.host.frame(frame, direction, now_ns);
        let form = left(&before);
        self.left += u32::from(form.is_some());
        let form = form.unwrap_or((before.clone(), Work::default()));
        let forms = [(before, Work::default()), form];
        let key = FlowKey {
            ifindex: self.vnics[0].govern.ifindex(PORT).expect("governed"),
            ..*self.host.key()
        };
        for (vnic, (before, work)) in self.vnics.iter_mut().zip(forms) {
            let way = (direction, now_ns);
            compare(vnic, (&before, work), way, frame, &outcome);
            let flow = vnic.govern.vnics().flow(key);
            assert_eq!(flow, self.host.flow(), "{before:02x?}: {outcome:?}");
        }
        outcome
    }

    fn host(&self) -> &Host {
        &self.host
    }
}

#[test]
fn conversations_are_the_same_as_at_an_interface_of_the_kernel() {
    let routes = [
        Route::new("10.1.0.1:40000", "10.2.0.1:5001"),
        Route::new("[fd00::1]:40000", "[fd00::2]:5001"),
        Route {
            vlan: Some(7),
            ..Route::new("10.1.0.1:40001", "10.2.0.1:5001")
        },
    ];
    // Some handshakes have data (RFC 7413), the last ones more than frames of 1500 bytes hold.
    for (route, data) in routes.into_iter().zip([0, 700, 2_900]) {
        let mut pair = Pair::of([Shadowed::new(POLICY), Shadowed::new(POLICY)]);
        for side in [A, B] {
            pair.tenant(side).offers.data = data;
            pair.tenant(side).offers.mss = if data > 1460 { 8_960 } else { 1460 };
        }
        pair.set_route(route);
        pair.connect();
        pair.set_fate(|crossing| match crossing.index % 37 {
            5 | 17 => Crossing::Mark,
            11 => Crossing::Drop,
            23 => Crossing::Delay(40_000),
            _ => Crossing::Deliver,
        });
        pair.transfer(A, 700_000);
        pair.wait(3_000_000_000);
        pair.transfer(B, 400_000);
        pair.finish();
        assert_eq!(pair.flow(A).mode, MODE_TWO_SIDED);
        assert!(pair.flow(A).losses > 0 && pair.flow(A).bytes_marked > 0);
        for side in &pair.sides {
            let shadowed = side.enforcer.as_ref().expect("it enforces");
            assert!(
                shadowed.left > 500,
                "{} frames without checksum",
                shadowed.left
            );
            for vnic in &shadowed.vnics {
                let counters = vnic.govern.vnics().counters().0;
                let both = counters.iter().zip(shadowed.host.counters());
                for ((vnic, host), name) in both.zip(COUNTER_NAMES) {
                    assert_eq!(vnic, host, "{name}");
                }
            }
        }
    }
}

fn routes() -> Vec<Route> {
    let plain = [
        ("10.1.0.1:4000", "10.2.0.1:5001"),
        ("[fd00::1]:4000", "[fd00::2]:5001"),
        ("10.1.0.1:4000", "192.0.2.1:443"), // not trusted
    ];
    let plain = plain.map(|(from, to)| Route::new(from, to));
    let tagged = plain.map(|route| Route {
        vlan: Some(100),
        ..route
    });
    [plain, tagged].concat()
}

/// Frames by chance, most of them nearly right, some cut or damaged anywhere.
fn storm(seed: u64, policy: &str) {
    for (number, route) in routes().into_iter().enumerate() {
        let mut random = Random(seed + number as u64);
        let mut shadowed = Shadowed::new(policy);
        let (mut own, mut peers, mut now_ns, mut edited) = (0, 0, 1_000_000_000, 0);
        for count in 0..1500 {
            now_ns += random.pause_ns();
            let direction = match random.below(2) {
                0 => Direction::FromTenant,
                _ => Direction::ToTenant,
            };
            let (mut way, packet) = if count == 0 || random.one_in(60) {
                (own, peers) = (random.next() as u32, random.next() as u32);
                let syn = random.handshake(own.wrapping_sub(1), None);
                let mut frame = route.build(&syn);
                shadowed.frame(&mut frame, Direction::FromTenant, now_ns);
                let answer = random.handshake(peers.wrapping_sub(1), Some(own));
                (Direction::ToTenant, answer)
            } else {
                let known = shadowed.host.flow().map_or(own, |flow| flow.snd_nxt);
                (direction, random.packet(direction, known, peers))
            };
            if random.one_in(50) {
                way = direction;
            }
            let route = match way {
                Direction::FromTenant => route,
                Direction::ToTenant => route.reversed(),
            };
            let mut frame = route.build(&packet);
            random.damage(&mut frame, route);
            if frame.len() < 14 {
                continue;
            }
            let outcome = shadowed.frame(&mut frame, way, now_ns);
            edited += u32::from(outcome.edits != 0);
            if way == Direction::ToTenant && packet.seq == peers {
                peers = packet.end();
            }
        }
        assert!(edited > 150, "{edited} were edited");
        assert!(
            shadowed.left > 300,
            "{} were without checksum",
            shadowed.left
        );
    }
}

#[test]
fn random_frames_are_the_same_as_at_an_interface_of_the_kernel() {
    (0..8).for_each(|seed| storm(seed * 1000, POLICY));
}

/// Nothing of what a guest may write makes the stage panic or a frame grow by more than an option.
#[test]
fn bytes_of_any_kind_do_no_harm() {
    let mut random = Random(7);
    let mut vnic = Vnic::new(POLICY);
    let base = routes()[0].build(&random.handshake(1, None));
    let tagged = routes()[4].build(&random.packet(Direction::FromTenant, 1, 1));
    for round in 0..60_000_u64 {
        let mut bytes = if round % 2 == 0 {
            base.clone()
        } else {
            tagged.clone()
        };
        for _ in 0..1 + random.below(6) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.next() as u8;
        }
        match random.below(4) {
            0 => bytes.truncate(14 + random.below(bytes.len() as u64 - 13) as usize),
            1 => bytes.extend((0..random.below(3000)).map(|at| at as u8)),
            _ => {}
        }
        let work = Work {
            checksum: random.one_in(2).then(|| (random.below(80) as u16, 16)),
            segment: None,
        };
        let mut frame = vnic.frame(&bytes, work);
        let (direction, vlan) = match random.below(2) {
            0 => (Direction::FromTenant, 0),
            _ => (Direction::ToTenant, random.below(4095) as u16),
        };
        vnic.pass(&mut frame, direction, vlan, round * 1000);
        assert!(frame.bytes as usize <= bytes.len() + 8);
        assert_eq!(frame.whole(&vnic.memory).len(), frame.bytes as usize);
        assert!(frame.bytes as usize > START || frame.pieces.is_empty());
    }
}
