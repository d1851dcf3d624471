//! Packets by chance: most of them nearly right.

use sluicegate_core::host::{Direction, tcp};

use crate::net::{Packet, Route, opt};

/// SplitMix64 (Steele, Lea, Flood 2014): small, seeded, the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Mostly microseconds, sometimes longer than any timeout.
    pub fn pause_ns(&mut self) -> u64 {
        match self.below(50) {
            0 => self.below(5_000_000_000),
            1..5 => self.below(50_000_000),
            _ => self.below(200_000),
        }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    fn counters(&mut self) -> Vec<u8> {
        let small = self.below(20_000) as u32;
        let e0b = if self.one_in(8) {
            self.next() as u32
        } else {
            small
        };
        let ceb = self.below(8_000) as u32;
        opt::feedback(e0b & 0xff_ffff, ceb)
    }

    fn sack(&mut self, near: u32) -> Vec<u8> {
        let blocks: Vec<(u32, u32)> = (0..1 + self.below(3))
            .map(|_| {
                let left = near.wrapping_sub(self.below(20_000) as u32);
                (left, left.wrapping_add(self.below(5_000) as u32))
            })
            .collect();
        opt::sack(&blocks)
    }

    fn handshake_options(&mut self) -> Vec<u8> {
        let mut parts = Vec::new();
        if !self.one_in(8) {
            parts.push(opt::mss(
                [536, 1460, 8960, self.next() as u16][self.below(4) as usize],
            ));
        }
        if !self.one_in(8) {
            parts.push(opt::wscale(self.below(16) as u8));
        }
        if self.one_in(4) {
            parts.push(opt::sack_permitted());
        }
        if !self.one_in(3) {
            parts.push(opt::peer(0));
        }
        if self.one_in(12) {
            parts.push(opt::mptcp());
        }
        if self.one_in(16) {
            parts.push(if self.one_in(2) {
                opt::md5()
            } else {
                opt::ao()
            });
        }
        self.joined(parts)
    }

    fn options(&mut self, near: u32) -> Vec<u8> {
        let mut parts = Vec::new();
        if self.one_in(2) {
            parts.push(opt::timestamps(self.next() as u32, 5));
        }
        if self.one_in(4) {
            parts.push(vec![opt::NOP; 1 + self.below(3) as usize]);
        }
        if self.one_in(3) {
            parts.push(self.sack(near));
        }
        if self.one_in(2) {
            parts.push(self.counters());
        }
        if self.one_in(12) {
            parts.push(opt::peer(self.below(2) as u8));
        }
        if self.one_in(40) {
            parts.push(opt::md5());
        }
        self.joined(parts)
    }

    /// In any order, sometimes with rubbish, within 40 bytes.
    fn joined(&mut self, mut parts: Vec<Vec<u8>>) -> Vec<u8> {
        if parts.len() > 1 && self.one_in(4) {
            parts.reverse();
        }
        if self.one_in(20) {
            let length = self.below(12) as usize;
            parts.push(self.bytes(length));
        }
        let mut bytes = parts.concat();
        bytes.truncate(40);
        bytes.resize(bytes.len().next_multiple_of(4), opt::NOP);
        bytes
    }

    fn flags(&mut self) -> u8 {
        match self.below(60) {
            0 => tcp::SYN,
            1 => tcp::SYN | tcp::ACK,
            2 => tcp::FIN | tcp::ACK,
            3 => tcp::RST,
            4 => self.next() as u8,
            5..15 => tcp::ACK | tcp::ECE,
            _ => tcp::ACK,
        }
    }

    fn near(&mut self, at: u32) -> u32 {
        match self.below(48) {
            0 => self.next() as u32,
            1..9 => at.wrapping_sub(self.below(30_000) as u32),
            9..13 => at.wrapping_add(self.below(30_000) as u32),
            _ => at,
        }
    }

    fn ecn_offer(&mut self) -> u8 {
        [0, tcp::ECE, tcp::ECE | tcp::CWR][self.below(3) as usize]
    }

    /// A SYN whose number is `seq`, or the SYN/ACK that answers the SYN before `ack`.
    pub fn handshake(&mut self, seq: u32, ack: Option<u32>) -> Packet {
        Packet {
            seq,
            ack: ack.unwrap_or(0),
            flags: tcp::SYN | ack.map_or(0, |_| tcp::ACK) | self.ecn_offer(),
            ae: self.one_in(3),
            window: 60_000,
            options: self.handshake_options(),
            ..Packet::default()
        }
    }

    /// A packet of a connection whose tenant sent up to `own` and whose peer up to `peers`.
    pub fn packet(&mut self, direction: Direction, own: u32, peers: u32) -> Packet {
        let flags = self.flags();
        let (seq, ack) = match direction {
            Direction::FromTenant => (own, peers),
            Direction::ToTenant => (peers, own),
        };
        let syn = flags & tcp::SYN != 0;
        let len = match self.below(4) {
            0 | 1 => 0,
            2 => 1 + self.below(200),
            _ => 1 + self.below(1460),
        };
        let window = match self.below(20) {
            0 => 0,
            1 => self.next() as u16,
            _ => 60_000,
        };
        let len = if syn && !self.one_in(20) { 0 } else { len } as usize;
        Packet {
            // A SYN takes the number before the first byte.
            seq: if syn {
                seq.wrapping_sub(1)
            } else {
                self.near(seq)
            },
            ack: if syn { ack } else { self.near(ack) },
            flags,
            window,
            options: if syn {
                self.handshake_options()
            } else {
                self.options(own)
            },
            payload: self.bytes(len),
            ecn: self.below(4) as u8,
            dscp: self.below(64) as u8,
            ae: self.one_in(8),
            urgent: 0,
        }
    }

    /// Now and then padding, a cut, or changed bytes; not in what makes the flow's key.
    pub fn damage(&mut self, frame: &mut Vec<u8>, route: Route) {
        match self.below(40) {
            0 => {
                let padding = 1 + self.below(20) as usize;
                let rubbish = self.bytes(padding);
                frame.extend(rubbish);
            }
            1 => {
                let length = self.below(frame.len() as u64) as usize;
                frame.truncate(length);
            }
            2 | 3 => {
                let at = self.below(frame.len() as u64) as usize;
                if !in_key(at, route) {
                    frame[at] = self.next() as u8;
                }
            }
            _ => {}
        }
    }
}

/// Whether the byte at `at` is of the tag, the addresses or the ports.
fn in_key(at: usize, route: Route) -> bool {
    let ip = 14 + 4 * usize::from(route.vlan.is_some());
    let key = match route.from.is_ipv4() {
        true => ip + 12..ip + 24,
        false => ip + 8..ip + 44,
    };
    (12..ip).contains(&at) || key.contains(&at)
}
