//! Both vNICs in one pass do what each of them does alone, frame by frame.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluicegate_core::{
    abi::{Flow, FlowKey, HashKey},
    cc::Algorithm,
    segment::{Direction, ecn, tcp},
};
use sluicegate_policy::PolicyFile;

use super::super::{Fate, Govern, Governing};
use crate::{frame::Frame, memory::Memory, offload::Work};

/// Bytes of the headers that are built here.
const ETHERNET: usize = 14;

/// What a connection's end sends next.
#[derive(Clone, Copy, Debug)]
enum Segment {
    /// Data in order.
    Data {
        bytes: u8,
        push: bool,
    },
    /// An ACK of all that has come.
    Ack,
    /// An ACK of some of what has come.
    Some {
        bytes: u8,
    },
    /// Data in order with this codepoint.
    Coded {
        bytes: u8,
        ecn: u8,
    },
    /// Data in order that acknowledge all that has come.
    Piggyback {
        bytes: u8,
    },
    /// The data before once more.
    Again {
        bytes: u8,
    },
    /// Data behind a gap, which stays.
    Gap {
        bytes: u8,
        gap: u16,
    },
    /// Another window.
    Window(u16),
    /// The same, with the number of the ACK before.
    Update(u16),
    /// No TCP: of this family, next header and length.
    Other {
        is_ipv6: bool,
        protocol: u8,
        bytes: u8,
    },
    /// A checksum that is left to do.
    Partial {
        bytes: u8,
    },
    /// A byte behind the packet.
    Trailer {
        bytes: u8,
    },
    Fin,
}

fn segments() -> impl Strategy<Value = Segment> {
    prop_oneof![
        30 => (1..=50_u8, any::<bool>()).prop_map(|(bytes, push)| Segment::Data { bytes, push }),
        8 => Just(Segment::Ack),
        24 => (1..=100_u8).prop_map(|bytes| Segment::Some { bytes }),
        2 => (1..=50_u8, 0..4_u8).prop_map(|(bytes, ecn)| Segment::Coded { bytes, ecn }),
        2 => (1..=50_u8).prop_map(|bytes| Segment::Piggyback { bytes }),
        1 => (1..=50_u8).prop_map(|bytes| Segment::Again { bytes }),
        1 => (1..=50_u8, 1..3000_u16).prop_map(|(bytes, gap)| Segment::Gap { bytes, gap }),
        1 => (0..=u16::MAX).prop_map(Segment::Window),
        2 => (0..=u16::MAX).prop_map(Segment::Update),
        4 => (any::<bool>(), prop::sample::select(vec![17, 1, 44, 0]), 58..90_u8).prop_map(
            |(is_ipv6, protocol, bytes)| Segment::Other { is_ipv6, protocol, bytes }
        ),
        3 => (1..=50_u8).prop_map(|bytes| Segment::Partial { bytes }),
        1 => (1..=50_u8).prop_map(|bytes| Segment::Trailer { bytes }),
        1 => Just(Segment::Fin),
    ]
}

/// What one port sends at a time, of which connection, and how long after the burst before.
#[derive(Clone, Debug)]
struct Burst {
    from: usize,
    after_us: u32,
    segments: Vec<(bool, Segment)>,
}

fn bursts() -> impl Strategy<Value = Vec<Burst>> {
    let few = prop::collection::vec((prop::bool::weighted(0.1), segments()), 1..24);
    let burst = (0..2_usize, 0..3000_u32, few);
    let burst = burst.prop_map(|(from, after_us, segments)| Burst {
        from,
        after_us,
        segments,
    });
    prop::collection::vec(burst, 1..30)
}

/// A connection between the two ports; by end, what it sends next and its window.
struct Connection {
    is_ipv6: bool,
    has_stamps: bool,
    ports: [u16; 2],
    next: [u32; 2],
    /// What each end has acknowledged.
    said: [u32; 2],
    window: [u16; 2],
}

struct Header {
    flags: u8,
    ecn: u8,
    seq: u32,
    data: usize,
    partial: bool,
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn sum(bytes: &[u8]) -> u32 {
    let pairs = bytes.chunks(2);
    pairs
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)])))
        .sum()
}

impl Connection {
    fn new(is_ipv6: bool, has_stamps: bool) -> Self {
        let first = if is_ipv6 { 4000 } else { 3000 };
        Self {
            is_ipv6,
            has_stamps,
            ports: [first, first + 1],
            next: [0xffff_ff00, 7],
            said: [8, 0xffff_ff01],
            window: [0xffff; 2],
        }
    }

    fn frame(&self, from: usize, header: &Header, options: &[u8]) -> Frame {
        let stamps = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        let options = match options {
            [] if self.has_stamps => &stamps[..],
            options => options,
        };
        let mut segment = Vec::new();
        segment.extend(self.ports[from].to_be_bytes());
        segment.extend(self.ports[1 - from].to_be_bytes());
        segment.extend(header.seq.to_be_bytes());
        segment.extend(self.next[1 - from].to_be_bytes());
        segment.extend([((20 + options.len()) / 4 * 16) as u8, header.flags]);
        segment.extend(self.window[from].to_be_bytes());
        segment.extend([0; 4]);
        segment.extend(options);
        segment.extend((0..header.data).map(|at| at as u8));
        let mut bytes = vec![2; 12];
        let length = segment.len() as u16;
        let addresses = if self.is_ipv6 {
            bytes.extend([0x86, 0xdd, 0x60, header.ecn << 4, 0, 0]);
            bytes.extend(length.to_be_bytes());
            bytes.extend([6, 64]);
            let address = |end: usize| [[0xfd; 15].as_slice(), &[end as u8]].concat();
            [address(from), address(1 - from)].concat()
        } else {
            let mut ip = vec![0x45, header.ecn];
            ip.extend((20 + length).to_be_bytes());
            ip.extend([header.seq as u8, header.data as u8, 0x40, 0, 64, 6, 0, 0]);
            let addresses = [10, 0, 0, from as u8, 10, 0, 0, 1 - from as u8];
            let check = !fold(sum(&ip) + sum(&addresses));
            ip[10..12].copy_from_slice(&check.to_be_bytes());
            bytes.extend([8, 0]);
            bytes.extend(ip);
            addresses.to_vec()
        };
        let pseudo = sum(&addresses) + 6 + u32::from(length);
        let check = match header.partial {
            true => fold(pseudo),
            false => !fold(pseudo + sum(&segment)),
        };
        segment[16..18].copy_from_slice(&check.to_be_bytes());
        bytes.extend(addresses);
        let at = bytes.len() as u16;
        bytes.extend(segment);
        bytes.resize(bytes.len().max(60), 0);
        let mut frame = Frame::default();
        frame.set_own(&bytes);
        if header.partial {
            frame.work = Work {
                checksum: Some((at, 16)),
                segment: None,
            };
        }
        frame
    }

    /// SYN, SYN/ACK and ACK.
    fn handshake(&mut self, mss: u16) -> Vec<(usize, Frame)> {
        let [high, low] = mss.to_be_bytes();
        let options = [2, 4, high, low, 1, 3, 3, 7];
        let mut frames = Vec::new();
        for (from, flags) in [(0, tcp::SYN), (1, tcp::SYN | tcp::ACK), (0, tcp::ACK)] {
            let is_syn = flags & tcp::SYN != 0;
            let header = Header {
                flags,
                ecn: 0,
                seq: self.next[from],
                data: 0,
                partial: false,
            };
            let options = if is_syn { &options[..] } else { &[] };
            frames.push((from, self.frame(from, &header, options)));
            self.next[from] = self.next[from].wrapping_add(is_syn.into());
        }
        frames
    }

    /// The next segment of an end. What it acknowledges is what has been sent: all arrives.
    fn send(&mut self, from: usize, segment: Segment, acked: u32) -> Frame {
        let next = self.next[from];
        let mut header = Header {
            flags: tcp::ACK,
            ecn: ecn::NOT_ECT,
            seq: next,
            data: 0,
            partial: false,
        };
        let mut trailer = 0;
        match segment {
            Segment::Data { bytes, push } => {
                header.data = bytes.into();
                header.flags |= if push { tcp::PSH } else { 0 };
            }
            Segment::Coded { bytes, ecn } => (header.data, header.ecn) = (bytes.into(), ecn),
            Segment::Piggyback { bytes } => header.data = bytes.into(),
            Segment::Again { bytes } => {
                header.seq = next.wrapping_sub(bytes.into());
                header.data = bytes.into();
            }
            Segment::Gap { bytes, gap } => {
                header.seq = next.wrapping_add(gap.into());
                header.data = bytes.into();
            }
            Segment::Partial { bytes } => (header.data, header.partial) = (bytes.into(), true),
            Segment::Trailer { bytes } => (header.data, trailer) = (bytes.into(), 1),
            Segment::Window(window) | Segment::Update(window) => self.window[from] = window,
            Segment::Other {
                is_ipv6,
                protocol,
                bytes,
            } => return other(is_ipv6, protocol, bytes),
            Segment::Fin => header.flags |= tcp::FIN,
            Segment::Ack | Segment::Some { .. } => {}
        }
        let end = header
            .seq
            .wrapping_add(header.data as u32 + u32::from(header.flags & tcp::FIN));
        let latest = self.next[1 - from];
        let acked = match segment {
            Segment::Ack | Segment::Piggyback { .. } | Segment::Window(_) => latest,
            Segment::Update(_) => self.said[from],
            Segment::Some { bytes } => {
                let left = latest.wrapping_sub(self.said[from]);
                self.said[from].wrapping_add(left.min(bytes.into()))
            }
            // As in the burst before, if there was none since.
            _ => match (self.said[from].wrapping_sub(acked)) < 1 << 31 {
                true => self.said[from],
                false => acked,
            },
        };
        (self.said[from], self.next[1 - from]) = (acked, acked);
        let mut frame = self.frame(from, &header, &[]);
        self.next[1 - from] = latest;
        if !matches!(segment, Segment::Again { .. }) {
            self.next[from] = end;
        }
        if trailer > 0 {
            frame.bytes = frame.bytes.max(60) + trailer;
        }
        frame
    }
}

/// A frame without TCP; with another protocol's name, or a part of a packet, or with options.
fn other(is_ipv6: bool, protocol: u8, bytes: u8) -> Frame {
    let mut header = vec![2; 12];
    match is_ipv6 {
        true => header.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, bytes, protocol, 64]),
        false => header.extend([8, 0, 0x45, 0, 0, bytes, 0, 0, 0, 0, 64, protocol]),
    }
    header.resize(bytes.into(), 3);
    let mut frame = Frame::default();
    frame.set_own(&header);
    frame
}

fn governs(policy: &str) -> Govern {
    let file = PolicyFile {
        path: "policy.toml".into(),
        text: policy.to_owned(),
    };
    let (policy, _) = file.policy().expect("a policy");
    let mut govern = Govern::new(Governing::new(&file, policy), HashKey::FIXED);
    govern.attach(0, "a", "one");
    govern.attach(1, "b", "two");
    govern
}

fn flows(govern: &Govern) -> BTreeMap<String, Flow> {
    let flows = govern.vnics().flows();
    flows
        .map(|(key, flow): (&FlowKey, _)| (format!("{key:?}"), *flow))
        .collect()
}

/// The IP packet of a frame; the two forms of zero of a checksum are one.
fn packet(frame: &Frame) -> Vec<u8> {
    let bytes = frame.whole(&Memory::default());
    let is_ipv6 = bytes[12] == 0x86;
    let field = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    let (end, tcp) = match is_ipv6 {
        true => (ETHERNET + 40 + field(18), ETHERNET + 40),
        false => (ETHERNET + field(16), ETHERNET + 20),
    };
    let mut packet = bytes[..end].to_vec();
    for at in [tcp + 16, ETHERNET + 10] {
        if packet[at..at + 2] == [0xff, 0xff] && (!is_ipv6 || at > tcp) {
            packet[at..at + 2].fill(0);
        }
    }
    packet
}

/// One vNIC after the other.
fn one_by_one(
    govern: &mut Govern,
    from: usize,
    frame: &mut Frame,
    now_ns: u64,
) -> (Direction, Fate) {
    let memory = Memory::default();
    let sent = (Direction::FromTenant, 0);
    let fate = govern.pass(from as u16, frame, &memory, sent, now_ns);
    if fate != Fate::Pass {
        return (Direction::FromTenant, fate);
    }
    let received = (Direction::ToTenant, 0);
    let fate = govern.pass(1 - from as u16, frame, &memory, received, now_ns);
    (Direction::ToTenant, fate)
}

/// Frames of the runs in which steps waited.
fn compare(policy: &str, (has_stamps, mss): (bool, u16), bursts: &[Burst]) -> u64 {
    let (mut together, mut apart) = (governs(policy), governs(policy));
    let mut connections = [
        Connection::new(false, has_stamps),
        Connection::new(true, has_stamps),
    ];
    let memory = Memory::default();
    let (mut now_ns, mut waited) = (1_000_000, 0);
    let mut pass = |from: usize, frames: Vec<Frame>, now_ns: u64| {
        for mut frame in frames {
            let mut copy = Frame::default();
            copy.describe(&frame);
            let (from_port, to) = (from as u16, 1 - from as u16);
            let fate = match together.follows(from_port, &mut frame) {
                Some(exit) => {
                    assert_eq!(exit, to);
                    waited += 1;
                    (Direction::ToTenant, Fate::Pass)
                }
                None => together.pass_between((from_port, to), &mut frame, &memory, now_ns),
            };
            let expected = one_by_one(&mut apart, from, &mut copy, now_ns);
            assert_eq!(fate, expected, "at {now_ns}");
            let is_tcp = frame.start[23] == 6 || frame.start[20] == 6;
            if fate.1 == Fate::Pass && is_tcp {
                assert_eq!(packet(&frame), packet(&copy), "at {now_ns}");
            }
        }
        together.settle();
        assert_eq!(flows(&together), flows(&apart), "at {now_ns}");
        let counters = together.vnics().counters();
        assert_eq!(counters, apart.vnics().counters(), "at {now_ns}");
    };
    for connection in &mut connections {
        for (from, frame) in connection.handshake(mss) {
            pass(from, vec![frame], now_ns);
            now_ns += 1000;
        }
    }
    let mut acked = [0, 1].map(|at: usize| connections[at].next);
    for burst in bursts {
        now_ns += 1 + 1000 * u64::from(burst.after_us);
        let frames = burst.segments.iter().map(|&(second, segment)| {
            let at = usize::from(second);
            let acked = acked[at][1 - burst.from];
            connections[at].send(burst.from, segment, acked)
        });
        pass(burst.from, frames.collect(), now_ns);
        acked = [0, 1].map(|at: usize| connections[at].next);
    }
    waited
}

const TWO_SIDED: &str =
    "trusted = [\"0.0.0.0/0\", \"::/0\"]\n[[rule]]\nalgorithm = \"dctcp\"\nmode = \"enforce\"\n";
const OBSERVED: &str = "[[rule]]\nalgorithm = \"cubic\"\n";

/// Policies that enforce an algorithm, at hosts that trust each other or not.
fn enforced() -> impl Strategy<Value = String> {
    let algorithms = Algorithm::ALL.map(|algorithm| algorithm.name());
    (prop::sample::select(algorithms.to_vec()), any::<bool>()).prop_map(|(name, trusted)| {
        let window = if name == "fixed" {
            "window = \"5KB\"\n"
        } else {
            ""
        };
        let text = format!("[[rule]]\nalgorithm = \"{name}\"\nmode = \"enforce\"\n{window}");
        match trusted {
            true => format!("trusted = [\"0.0.0.0/0\", \"::/0\"]\n{text}"),
            false => text,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn both_vnics_in_one_pass_do_what_each_does_alone(
        policy in prop_oneof![
            4 => Just(TWO_SIDED.to_owned()),
            4 => enforced(),
            1 => Just(OBSERVED.to_owned()),
        ],
        has_stamps in any::<bool>(),
        mss in prop_oneof![Just(1460), 80..300_u16],
        bursts in bursts(),
    ) {
        compare(&policy, (has_stamps, mss), &bursts);
    }
}

/// A burst of segments of the first connection.
fn burst(from: usize, segment: Segment, count: usize) -> Burst {
    Burst {
        from,
        after_us: 100,
        segments: vec![(false, segment); count],
    }
}

const DATA: Segment = Segment::Data {
    bytes: 50,
    push: false,
};

#[test]
fn segments_of_a_burst_are_one_step() {
    let ack = Segment::Ack;
    let bursts = [burst(0, DATA, 32), burst(1, ack, 1), burst(0, DATA, 32)];
    for has_stamps in [false, true] {
        // The first of each is stepped as it comes.
        assert_eq!(compare(TWO_SIDED, (has_stamps, 1460), &bursts), 62);
    }
}

#[test]
fn acks_of_a_burst_are_one_step_where_they_move_no_window() {
    let some = Segment::Some { bytes: 100 };
    let bursts = [burst(0, DATA, 32), burst(1, some, 16)];
    let waited = |mss: u16| compare(TWO_SIDED, (false, mss), &bursts) - 31;
    // Not the first one, one that ends a round, and those that have an RTT sample; behind each of
    // these, one that reports feedback.
    assert_eq!((waited(1460), waited(160)), (13, 3));
}

#[test]
fn an_update_of_the_window_begins_no_run() {
    let some = Segment::Some { bytes: 100 };
    let (small, large) = (Segment::Update(0x8000), Segment::Update(0xffff));
    let acks = [some, small, some, large, some, some];
    let acks = Burst {
        segments: acks.map(|segment| (false, segment)).to_vec(),
        ..burst(1, some, 0)
    };
    compare(TWO_SIDED, (false, 1460), &[burst(0, DATA, 32), acks]);
}

#[test]
fn frames_that_are_no_tcp_are_counted_for_their_own_reasons() {
    let other = |protocol, bytes| Segment::Other {
        is_ipv6: true,
        protocol,
        bytes,
    };
    let parts = [
        other(44, 60),
        other(44, 80),
        other(44, 80),
        other(17, 80),
        other(17, 80),
    ];
    let parts = Burst {
        segments: parts.map(|segment| (false, segment)).to_vec(),
        ..burst(0, DATA, 0)
    };
    // The last one is like the one before; parts of a packet are counted one by one.
    assert_eq!(compare(TWO_SIDED, (false, 1460), &[parts]), 1);
}
