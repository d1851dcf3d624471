//! A segment as a script writes it: sequence numbers count from either side's SYN.

use std::fmt;

use sluicegate_tcp::{
    Segment,
    segment::{
        Block, ByteCounters, Field, SACK_BLOCKS, SACK_BLOCKS_BESIDE_TIMESTAMPS, ecn, flags, option,
    },
};

/// The offset of the peer's numbers, so that they wrap on the way as well.
const REMOTE_BASE: u32 = u32::MAX - 20_000;
/// Our initial sequence number.
pub const LOCAL_ISN: u32 = u32::MAX - 50_000;

/// Letters of flags in the order in which packetdrill writes them.
const LETTERS: [(char, u8); 8] = [
    ('F', flags::FIN),
    ('S', flags::SYN),
    ('R', flags::RST),
    ('P', flags::PSH),
    ('U', flags::URG),
    ('E', flags::ECE),
    ('W', flags::CWR),
    ('.', flags::ACK),
];

/// A segment with relative numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    pub flags: u8,
    /// The flag AE (RFC 9768).
    pub ae: bool,
    pub seq: u32,
    pub len: u16,
    /// Zero without ACK.
    pub ack: u32,
    pub window: u16,
    /// How far behind the first byte urgent data end, with URG.
    pub urgent: u16,
    pub ecn: u8,
    pub options: Options,
    /// In a UDP datagram with these ports, source first (FreeBSD's `tcp_udp_encap`).
    pub udp: Option<(u16, u16)>,
}

/// TCP options; where padding stands is not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub mss: Option<u16>,
    pub wscale: Option<u8>,
    pub sack_ok: bool,
    /// TSval and TSecr.
    pub timestamps: Option<(u32, u32)>,
    pub sack: Vec<(u32, u32)>,
    /// AccECN (RFC 9768 3.2.3).
    pub counters: Option<ByteCounters>,
    /// A signature (RFC 2385).
    pub signed: bool,
    /// Fast open (RFC 7413), which the host adds and reads.
    pub fast_open: Option<FastOpen>,
}

/// A cookie, or a request for one if it is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastOpen {
    pub cookie: Vec<u8>,
    /// As the experimental option 254.
    pub experimental: bool,
}

impl FastOpen {
    /// A cookie of 4 to 16 bytes (RFC 7413 4.1.1); FreeBSD wants an even number of them.
    pub fn is_valid(&self) -> bool {
        (4..=16).contains(&self.cookie.len()) && self.cookie.len() % 2 == 0
    }
}

/// The bit of a flag's letter.
pub fn flag(letter: char) -> Option<u8> {
    let found = LETTERS.iter().find(|(known, _)| *known == letter);
    found.map(|(_, bit)| *bit)
}

impl Packet {
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// The UDP port of its sender, as [`crate::socket::Options::tunnel`]; 0 = it is not in UDP.
    pub fn tunnel(&self) -> u16 {
        self.udp.map_or(0, |(source, _)| source)
    }

    /// One past its last sequence number.
    pub fn end(&self) -> u32 {
        let control = u32::from(self.has(flags::SYN)) + u32::from(self.has(flags::FIN));
        self.seq
            .wrapping_add(u32::from(self.len))
            .wrapping_add(control)
    }

    /// As our endpoint sends it. TSval is left as it is.
    pub fn from_segment(segment: &Segment) -> Self {
        let remote = |number: u32| number.wrapping_sub(REMOTE_BASE);
        let bit = |bit: u8| segment.options & bit != 0;
        let sack = segment.sack();
        Self {
            flags: segment.flags,
            ae: bit(option::AE),
            seq: segment.seq.wrapping_sub(LOCAL_ISN),
            len: segment.payload,
            ack: if segment.has(flags::ACK) {
                remote(segment.ack)
            } else {
                0
            },
            window: segment.window,
            urgent: 0,
            ecn: segment.ecn,
            options: Options {
                mss: segment.mss(),
                wscale: segment.wscale(),
                sack_ok: segment.is_option_of_syn(option::SACK_PERMITTED),
                timestamps: bit(option::TIMESTAMPS).then_some((segment.ts_val, segment.ts_ecr)),
                sack: sack
                    .iter()
                    .map(|block| (remote(block.left), remote(block.right)))
                    .collect(),
                counters: segment.counters(),
                signed: false,
                fast_open: None,
            },
            udp: None,
        }
    }

    /// As our endpoint receives it; an error says what a [`Segment`] cannot carry.
    pub fn to_segment(&self) -> Result<Segment, &'static str> {
        let ack = if self.has(flags::ACK) {
            self.ack.wrapping_add(LOCAL_ISN)
        } else {
            0
        };
        let mut segment = Segment::new(self.seq.wrapping_add(REMOTE_BASE), ack, self.flags);
        segment.payload = self.len;
        segment.window = self.window;
        segment.ecn = self.ecn;
        if self.ae {
            segment.options |= option::AE;
        }
        if let Some((val, ecr)) = self.options.timestamps {
            segment.options |= option::TIMESTAMPS;
            (segment.ts_val, segment.ts_ecr) = (val, ecr);
        }
        if self.has(flags::SYN) {
            self.add_syn_options(&mut segment)?;
            return self.with_counters(segment);
        }
        let most = match self.options.timestamps {
            Some(_) => SACK_BLOCKS_BESIDE_TIMESTAMPS,
            None => SACK_BLOCKS,
        };
        if self.options.sack.len() > most {
            return Err("more SACK blocks than fit into a header");
        }
        for (left, right) in &self.options.sack {
            segment.push_sack(Block {
                left: left.wrapping_add(LOCAL_ISN),
                right: right.wrapping_add(LOCAL_ISN),
            });
        }
        self.with_counters(segment)
    }

    fn with_counters(&self, mut segment: Segment) -> Result<Segment, &'static str> {
        match &self.options.counters {
            Some(counters) if !segment.set_counters(counters) => {
                Err("an AccECN option that has no room beside the others")
            }
            _ => Ok(segment),
        }
    }

    fn add_syn_options(&self, segment: &mut Segment) -> Result<(), &'static str> {
        if !self.options.sack.is_empty() {
            return Err("SACK blocks in a SYN");
        }
        if let Some(mss) = self.options.mss {
            segment.set_mss(mss);
        }
        if let Some(shift) = self.options.wscale {
            segment.set_wscale(shift);
        }
        if self.options.sack_ok {
            segment.options |= option::SACK_PERMITTED;
        }
        Ok(())
    }

    /// The answer of a host that knows no such connection (RFC 9293 3.10.7.1).
    pub fn reset(&self) -> Self {
        let udp = self.udp.map(|(source, destination)| (destination, source));
        if self.has(flags::ACK) {
            return Self {
                flags: flags::RST,
                seq: self.ack,
                udp,
                ..Self::default()
            };
        }
        Self {
            flags: flags::RST | flags::ACK,
            ack: self.end(),
            udp,
            ..Self::default()
        }
    }

    /// Adds `next` if it could have left as one with this: what segmentation offload shows as one.
    pub fn merge(&mut self, next: &Self) -> bool {
        let single = flags::SYN | flags::RST | flags::FIN;
        let fits = self.len > 0
            && next.len > 0
            && self.flags & single == 0
            && next.flags & (flags::SYN | flags::RST) == 0
            && self.end() == next.seq
            && self.ack == next.ack
            && self.ecn == next.ecn
            && self.ae == next.ae
            && self.udp == next.udp
            && self.options.counters == next.options.counters
            && self.options.sack == next.options.sack;
        let Some(len) = self.len.checked_add(next.len).filter(|_| fits) else {
            return false;
        };
        self.len = len;
        self.flags |= next.flags;
        self.window = next.window;
        true
    }
}

/// A packet on its way into words.
pub struct Shown<'a> {
    packet: &'a Packet,
    window: bool,
}

impl Packet {
    /// Like packetdrill, with or without the window.
    pub fn shown(&self, window: bool) -> Shown<'_> {
        Shown {
            packet: self,
            window,
        }
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shown(true).fmt(f)
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packet = self.packet;
        match packet.ecn {
            ecn::ECT0 => f.write_str("[ect0] ")?,
            ecn::ECT1 => f.write_str("[ect1] ")?,
            ecn::CE => f.write_str("[ce] ")?,
            _ => (),
        }
        for (letter, bit) in LETTERS {
            if packet.ae && letter == '.' {
                f.write_str("A")?;
            }
            if packet.flags & bit != 0 {
                write!(f, "{letter}")?;
            }
        }
        if packet.flags == 0 && !packet.ae {
            f.write_str("-")?;
        }
        let end = packet.seq.wrapping_add(u32::from(packet.len));
        write!(f, " {}:{end}({})", packet.seq, packet.len)?;
        if packet.has(flags::ACK) {
            write!(f, " ack {}", packet.ack)?;
        }
        if self.window {
            write!(f, " win {}", packet.window)?;
        }
        if packet.urgent > 0 {
            write!(f, " urg {}", packet.urgent)?;
        }
        if packet.options != Options::default() {
            write!(f, " <{}>", packet.options)?;
        }
        match packet.udp {
            Some((source, destination)) => write!(f, "/udp({source} > {destination})"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(mss) = self.mss {
            parts.push(format!("mss {mss}"));
        }
        if self.sack_ok {
            parts.push("sackOK".to_owned());
        }
        if let Some((val, ecr)) = self.timestamps {
            parts.push(format!("TS val {val} ecr {ecr}"));
        }
        if let Some(shift) = self.wscale {
            parts.push(format!("wscale {shift}"));
        }
        if !self.sack.is_empty() {
            let blocks: Vec<_> = self.sack.iter().map(|(l, r)| format!("{l}:{r}")).collect();
            parts.push(format!("sack {}", blocks.join(" ")));
        }
        if let Some(counters) = &self.counters {
            parts.push(shown_counters(counters));
        }
        if self.signed {
            parts.push("md5".to_owned());
        }
        if let Some(FastOpen {
            cookie,
            experimental,
        }) = &self.fast_open
        {
            let digits: String = cookie.iter().map(|byte| format!("{byte:02x}")).collect();
            let name = if *experimental { "FOEXP" } else { "FO" };
            parts.push(format!("{name} {digits}").trim_end().to_owned());
        }
        f.write_str(&parts.join(","))
    }
}

/// Names of the fields of the AccECN option in a script.
pub fn counter_name(field: Field) -> &'static str {
    match field {
        Field::Ect1 => "e1b",
        Field::Ce => "ceb",
        Field::Ect0 => "e0b",
    }
}

fn shown_counters(counters: &ByteCounters) -> String {
    let fields = counters.iter();
    let shown = fields.map(|(field, value)| format!(" {} {value}", counter_name(field)));
    format!("ECN{}", shown.collect::<String>())
}
