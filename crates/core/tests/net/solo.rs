//! One host between its tenant and a network whose packets are written by hand.

use sluicegate_core::{
    abi::{Flow, PolicyTable},
    host::{Direction, Host, Outcome, tcp},
};

use super::{Packet, Route, invariants, opt, policy_of, wire};

/// The tenant is the client; offsets count from its first byte, or from the peer's.
#[derive(Clone)]
pub struct Solo {
    pub host: Host,
    pub route: Route,
    pub now_ns: u64,
    /// Sequence number of the tenant's first byte.
    pub start: u32,
    /// Sequence number of the peer's first byte.
    pub peer_start: u32,
    /// Feedback that pure ACKs of the peer carry.
    pub e0b: u32,
    pub ceb: u32,
}

impl Solo {
    pub fn new(policy: &PolicyTable) -> Self {
        Self {
            host: Host::new(policy),
            route: Route::new("10.1.0.1:40000", "10.2.0.1:5001"),
            now_ns: 1_000_000_000,
            start: u32::MAX - 5_000,
            peer_start: 7_000,
            e0b: 1,
            ceb: 0,
        }
    }

    /// After a handshake in which the peer's host showed itself and the peer offered `mss` and
    /// `wscale`.
    pub fn two_sided(policy: &PolicyTable, mss: u16, wscale: u8) -> Self {
        let mut solo = Self::new(policy);
        solo.handshake(&[&opt::mss(mss), &opt::wscale(wscale), &opt::peer(0)]);
        solo
    }

    /// After a handshake with a peer whose host doesn't enforce.
    pub fn one_sided(policy: &PolicyTable, mss: u16, wscale: u8) -> Self {
        let mut solo = Self::new(policy);
        solo.handshake(&[&opt::mss(mss), &opt::wscale(wscale)]);
        solo
    }

    /// Under these parameters, both hosts enforcing, with an MSS of 1460 and windows in KiB.
    pub fn with(params: sluicegate_core::abi::Params) -> Self {
        Self::two_sided(&policy_of(params), 1460, 10)
    }

    pub fn handshake(&mut self, of_peer: &[&[u8]]) {
        let syn = self.syn(&[&opt::mss(8960), &opt::wscale(10)]);
        self.send(&syn);
        let answer = self.syn_ack(of_peer);
        self.arrive(&answer);
        let ack = self.own(0, 0);
        self.send(&ack);
    }

    /// The tenant's SYN.
    pub fn syn(&self, options: &[&[u8]]) -> Packet {
        Packet {
            seq: self.start.wrapping_sub(1),
            flags: tcp::SYN,
            window: 64_240,
            options: opt::all(options),
            ..Packet::default()
        }
    }

    /// The peer's answer to it.
    pub fn syn_ack(&self, options: &[&[u8]]) -> Packet {
        Packet {
            seq: self.peer_start.wrapping_sub(1),
            ack: self.start,
            flags: tcp::SYN | tcp::ACK,
            window: 65_160,
            options: opt::all(options),
            ..Packet::default()
        }
    }

    /// A segment of the tenant with `len` bytes at offset `at`.
    pub fn own(&self, at: u32, len: usize) -> Packet {
        Packet {
            seq: self.start.wrapping_add(at),
            ack: self.peer_start,
            flags: tcp::ACK,
            window: 500,
            payload: vec![0x5a; len],
            ..Packet::default()
        }
    }

    /// A segment of the peer without data that acknowledges the tenant's bytes up to `at`.
    pub fn peers(&self, at: u32, window: u16) -> Packet {
        Packet {
            seq: self.peer_start,
            ack: self.start.wrapping_add(at),
            flags: tcp::ACK,
            window,
            ..Packet::default()
        }
    }

    /// The tenant sends a packet; returns it as it leaves.
    pub fn send(&mut self, packet: &Packet) -> (Packet, Outcome) {
        self.pass(&self.route.clone(), packet, Direction::FromTenant)
    }

    /// A packet arrives; returns it as the tenant gets it.
    pub fn arrive(&mut self, packet: &Packet) -> (Packet, Outcome) {
        self.pass(&self.route.reversed(), packet, Direction::ToTenant)
    }

    fn pass(&mut self, route: &Route, packet: &Packet, direction: Direction) -> (Packet, Outcome) {
        self.now_ns += 1_000;
        let before = route.build(packet);
        let mut frame = before.clone();
        let outcome = self.host.frame(&mut frame, direction, self.now_ns);
        invariants::check(&before, &frame, direction, &outcome);
        (wire::read(&frame).1, outcome)
    }

    /// The tenant sends `len` bytes at offset `at`.
    pub fn data(&mut self, at: u32, len: usize) -> Outcome {
        let packet = self.own(at, len);
        self.send(&packet).1
    }

    /// The peer acknowledges up to `at`, in a packet with feedback as it stands. Returns the
    /// window that the tenant is shown, as on the wire.
    pub fn ack(&mut self, at: u32, window: u16) -> u16 {
        let packet = Packet {
            options: opt::feedback(self.e0b & 0xff_ffff, self.ceb & 0xff_ffff),
            ..self.peers(at, window)
        };
        self.arrive(&packet).0.window
    }

    /// A duplicate ACK at `at` with these SACK blocks, given as offsets.
    pub fn duplicate(&mut self, at: u32, window: u16, blocks: &[(u32, u32)]) -> u16 {
        let blocks: Vec<(u32, u32)> = blocks
            .iter()
            .map(|(left, right)| {
                (
                    self.start.wrapping_add(*left),
                    self.start.wrapping_add(*right),
                )
            })
            .collect();
        let options = match blocks.is_empty() {
            true => Vec::new(),
            false => opt::sack(&blocks),
        };
        let packet = Packet {
            options,
            ..self.peers(at, window)
        };
        self.arrive(&packet).0.window
    }

    /// The tenant fills its window from offset `from` on with segments of `mss`; the peer
    /// acknowledges each, marked or not. Returns the offset reached.
    pub fn round(&mut self, from: u32, mss: u32, marked: bool, window: u16) -> u32 {
        let count = (self.flow().cc.cwnd / mss).max(1);
        for i in 0..count {
            self.data(from + i * mss, mss as usize);
        }
        self.now_ns += 100_000;
        for i in 0..count {
            match marked {
                true => self.ceb += mss,
                false => self.e0b += mss,
            }
            self.ack(from + (i + 1) * mss, window);
        }
        from + count * mss
    }

    pub fn flow(&self) -> &Flow {
        self.host.flow().expect("there is a flow")
    }

    pub fn counter(&self, name: &str) -> u64 {
        self.host.counter(name).expect("a counter's name")
    }
}
