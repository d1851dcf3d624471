//! One endpoint whose peer is the test: segments by hand, stream positions counted from 0.

use std::sync::Arc;

use super::US;
use sluicegate_core::cc::Algorithm;
use sluicegate_tcp::{
    Config, Endpoint, Events, Segment,
    config::Recovery,
    segment::{Block, flags, option},
};

/// The endpoint's initial sequence number: wraps within the first segments.
pub const ISN: u32 = u32::MAX - 2_000;
/// The peer's.
pub const PEER_ISN: u32 = u32::MAX - 3_000;
/// Shift of the peer's window; what [`Peer::window`] is given in.
pub const SHIFT: u8 = 7;

/// A full segment of [`plain`].
pub const M: u32 = 1000;

/// Segments of 1000 bytes, ten to begin with, Reno, nothing that a test doesn't ask for.
pub fn plain(recovery: Recovery) -> Config {
    let mut config = Config::linux(1000);
    // RFC 6298 as written: round figures.
    config.rto.variation_min_ns = 0;
    config.algorithm = Algorithm::Reno;
    config.timestamps = false;
    config.recovery = recovery;
    config.sack = recovery != Recovery::NewReno;
    config.prr = false;
    config.undo = false;
    config.send_buffer.initial_bytes = 1 << 20;
    config
}

/// Ten segments are out.
pub fn ten_out(config: Config) -> Peer {
    let mut peer = Peer::new(config, 100 * US);
    assert_eq!(peer.tcp.write(100_000), 100_000);
    let out = peer.data_out();
    let expected: Vec<_> = (0..10).map(|index| (index * M, 1000)).collect();
    assert_eq!(out, expected);
    peer.pass(100 * US);
    peer
}

pub struct Peer {
    pub tcp: Endpoint,
    pub now_ns: u64,
    /// Bytes that the peer offers.
    pub window: u32,
    /// The peer's options.
    pub timestamps: bool,
    pub ts_val: u32,
    /// The latest timestamp of the endpoint.
    pub ts_ecr: u32,
    /// Bytes that the peer has sent.
    pub sent: u32,
    pub events: Events,
}

impl Peer {
    /// The endpoint opens; RTT of the handshake is `rtt_ns`. The peer offers what the endpoint
    /// does.
    pub fn new(config: Config, rtt_ns: u64) -> Self {
        let mut tcp = Endpoint::connect(Arc::new(config), ISN);
        let now_ns = 1_000_000_000;
        let syn = tcp.transmit(now_ns).expect("SYN");
        assert!(syn.has(flags::SYN) && syn.seq == ISN);
        let mut peer = Self {
            tcp,
            now_ns,
            window: 1 << 20,
            timestamps: config.timestamps,
            ts_val: u32::MAX - 10,
            ts_ecr: syn.ts_val,
            sent: 0,
            events: Events::EMPTY,
        };
        let mut answer = Segment::new(PEER_ISN, ISN.wrapping_add(1), flags::SYN | flags::ACK);
        answer.set_mss(config.mss);
        answer.window = 0xffff;
        if config.window_scaling {
            answer.set_wscale(SHIFT);
        }
        answer.options |= syn.options & (option::SACK_PERMITTED | option::TIMESTAMPS);
        answer.ts_val = peer.ts_val;
        answer.ts_ecr = peer.ts_ecr;
        if syn.has(flags::ECE | flags::CWR) {
            answer.flags |= flags::ECE;
        }
        peer.now_ns += rtt_ns;
        peer.give(&answer);
        let acks = peer.out();
        assert_eq!(acks.len(), 1, "the third segment");
        // A window that is scaled.
        let ack = peer.ack(0);
        peer.give(&ack);
        peer
    }

    pub fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
    }

    /// Everything that leaves now.
    pub fn out(&mut self) -> Vec<Segment> {
        let mut all = Vec::new();
        while self.tcp.has_output(self.now_ns) {
            all.push(self.tcp.transmit(self.now_ns).expect("has_output said so"));
            self.ts_ecr = all[all.len() - 1].ts_val;
            assert!(all.len() < 10_000);
        }
        assert_eq!(self.tcp.transmit(self.now_ns), None);
        all
    }

    /// Starts and lengths of the data that leaves now.
    pub fn data_out(&mut self) -> Vec<(u32, u16)> {
        self.out()
            .iter()
            .filter(|segment| segment.payload > 0)
            .map(|segment| (position(segment.seq), segment.payload))
            .collect()
    }

    /// The single segment that leaves now.
    pub fn one(&mut self) -> Segment {
        let all = self.out();
        assert_eq!(all.len(), 1, "{all:?}");
        all[0]
    }

    pub fn give(&mut self, segment: &Segment) -> Events {
        let events = self.tcp.segment(self.now_ns, segment);
        self.events = self.events | events;
        events
    }

    fn stamped(&self, mut segment: Segment) -> Segment {
        segment.window = (self.window >> SHIFT) as u16;
        if self.timestamps {
            segment.options |= option::TIMESTAMPS;
            segment.ts_val = self.ts_val;
            segment.ts_ecr = self.ts_ecr;
        }
        segment
    }

    /// A pure ACK of `upto` bytes.
    pub fn ack(&self, upto: u32) -> Segment {
        let seq = PEER_ISN.wrapping_add(1).wrapping_add(self.sent);
        self.stamped(Segment::new(seq, wire(upto), flags::ACK))
    }

    /// With SACK blocks.
    pub fn sack(&self, upto: u32, blocks: &[(u32, u32)]) -> Segment {
        let mut segment = self.ack(upto);
        for &(left, right) in blocks {
            segment.push_sack(Block {
                left: wire(left),
                right: wire(right),
            });
        }
        segment
    }

    /// `len` bytes of the peer's from `from` on.
    pub fn data(&self, from: u32, len: u16, acks: u32) -> Segment {
        let seq = PEER_ISN.wrapping_add(1).wrapping_add(from);
        let mut segment = self.stamped(Segment::new(seq, wire(acks), flags::ACK));
        segment.payload = len;
        segment
    }

    /// The deadline passes.
    pub fn until_deadline(&mut self) -> u64 {
        let deadline = self.tcp.deadline_ns();
        assert_ne!(deadline, u64::MAX, "nothing is waited for");
        let waited = deadline.saturating_sub(self.now_ns);
        self.now_ns = self.now_ns.max(deadline);
        let events = self.tcp.timeout(self.now_ns);
        self.events = self.events | events;
        waited
    }
}

/// Of a position in the endpoint's stream.
pub fn wire(position: u32) -> u32 {
    ISN.wrapping_add(1).wrapping_add(position)
}

/// Position in the endpoint's stream.
pub fn position(seq: u32) -> u32 {
    seq.wrapping_sub(ISN).wrapping_sub(1)
}

/// Position in the peer's stream.
pub fn received(ack: u32) -> u32 {
    ack.wrapping_sub(PEER_ISN).wrapping_sub(1)
}

/// SACK blocks as positions in the peer's stream.
pub fn blocks(segment: &Segment) -> Vec<(u32, u32)> {
    segment
        .sack()
        .iter()
        .map(|block| (received(block.left), received(block.right)))
        .collect()
}
