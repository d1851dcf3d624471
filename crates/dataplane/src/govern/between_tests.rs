//! Both vNICs in one pass do what each of them does alone, frame by frame.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluicegate_core::{
    abi::{Flow, FlowKey, HashKey},
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
        2 => (1..=50_u8, 0..4_u8).prop_map(|(bytes, ecn)| Segment::Coded { bytes, ecn }),
        2 => (1..=50_u8).prop_map(|bytes| Segment::Piggyback { bytes }),
        1 => (1..=50_u8).prop_map(|bytes| Segment::Again { bytes }),
        1 => (1..=50_u8, 1..3000_u16).prop_map(|(bytes, gap)| Segment::Gap { bytes, gap }),
        1 => (0..=u16::MAX).prop_map(Segment::Window),
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
    fn handshake(&mut self) -> Vec<(usize, Frame)> {
        let options = [2, 4, 5, 0xb4, 1, 3, 3, 7];
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
            Segment::Window(window) => self.window[from] = window,
            Segment::Fin => header.flags |= tcp::FIN,
            Segment::Ack => {}
        }
        let end = header
            .seq
            .wrapping_add(header.data as u32 + u32::from(header.flags & tcp::FIN));
        // A plain segment acknowledges what the burst before did.
        let all = matches!(
            segment,
            Segment::Ack | Segment::Piggyback { .. } | Segment::Window(_)
        );
        let latest = std::mem::replace(&mut self.next[1 - from], acked);
        if all {
            self.next[1 - from] = latest;
        }
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
fn compare(policy: &str, has_stamps: bool, bursts: &[Burst]) -> u64 {
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
            let fate = together.pass_between((from_port, to), &mut frame, &memory, now_ns);
            waited += u64::from(together.run.waiting > 0);
            let expected = one_by_one(&mut apart, from, &mut copy, now_ns);
            assert_eq!(fate, expected, "at {now_ns}");
            if fate.1 == Fate::Pass {
                assert_eq!(packet(&frame), packet(&copy), "at {now_ns}");
            }
        }
        together.settle();
        assert_eq!(flows(&together), flows(&apart), "at {now_ns}");
        let counters = together.vnics().counters();
        assert_eq!(counters, apart.vnics().counters(), "at {now_ns}");
    };
    for connection in &mut connections {
        for (from, frame) in connection.handshake() {
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
const ONE_SIDED: &str = "[[rule]]\nalgorithm = \"dctcp\"\nmode = \"enforce\"\n";
const OBSERVED: &str = "[[rule]]\nalgorithm = \"cubic\"\n";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn both_vnics_in_one_pass_do_what_each_does_alone(
        policy in prop_oneof![4 => Just(TWO_SIDED), 1 => Just(ONE_SIDED), 1 => Just(OBSERVED)],
        has_stamps in any::<bool>(),
        bursts in bursts(),
    ) {
        compare(policy, has_stamps, &bursts);
    }
}

#[test]
fn segments_of_a_burst_are_one_step() {
    let data = (
        false,
        Segment::Data {
            bytes: 50,
            push: false,
        },
    );
    let ack = (false, Segment::Ack);
    let burst = |from: usize, segments: Vec<(bool, Segment)>| Burst {
        from,
        after_us: 100,
        segments,
    };
    let bursts = [
        burst(0, vec![data; 32]),
        burst(1, vec![ack]),
        burst(0, vec![data; 32]),
    ];
    for has_stamps in [false, true] {
        // The first of each is stepped as it comes.
        assert_eq!(compare(TWO_SIDED, has_stamps, &bursts), 62);
    }
}
