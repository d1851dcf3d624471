//! The frames that are sent: one of each kind, in which few bytes change.

use std::time::Instant;

use anyhow::Result;
use etherparse::PacketBuilder;

/// Where the bytes begin that change.
pub const PATCH_AT: usize = 36;
/// How many there are.
pub const PATCH: usize = 24;
/// The bytes of a frame that change: of UDP, its number and the time; of TCP, its header.
pub type Patch = [u8; PATCH];

const NUMBER: usize = 42 - PATCH_AT;
const TIME: usize = 50 - PATCH_AT;
const SEQ: usize = 38 - PATCH_AT;
const ACK: usize = 42 - PATCH_AT;
const WINDOW: usize = 48 - PATCH_AT;

/// Window scale of both ends of a connection.
const WSCALE: u8 = 7;

/// An address of a port, by its number.
pub fn mac(port: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, port]
}

fn ip(port: u8) -> [u8; 4] {
    [10, 9, 0, port]
}

/// What changes from frame to frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Numbered,
    /// A segment with so many bytes.
    Data(u32),
    /// Acknowledges what [`Stream::acknowledge`] says.
    Ack,
    /// Nothing.
    Whole,
}

/// Frames from one port to another.
#[derive(Clone, Debug)]
pub struct Stream {
    kind: Kind,
    frame: Vec<u8>,
    patch: Patch,
    /// The number or the sequence number of the next frame.
    next: u64,
    /// Written into frames.
    pub now_ns: u64,
}

impl Stream {
    /// Numbered datagrams of UDP, `bytes` long without FCS.
    pub fn numbered(from: u8, to: u8, bytes: usize) -> Result<Self> {
        let builder = PacketBuilder::ethernet2(mac(from), mac(to))
            .ipv4(ip(from), ip(to), 64)
            .udp(1000 + u16::from(from), 2000);
        let mut frame = Vec::new();
        builder.write(&mut frame, &vec![0; bytes - 42])?;
        // None: the payload changes.
        frame[40..42].fill(0);
        Ok(Self::new(Kind::Numbered, frame))
    }

    /// Segments of a connection with `payload` bytes each.
    pub fn data(from: u8, to: u8, payload: usize, connection: u16) -> Result<Self> {
        let frame = segment(from, to, &vec![0; payload], (Flags::Ack, connection))?;
        Ok(Self::new(Kind::Data(payload as u32), frame))
    }

    /// Acknowledgements of the same connection, from its receiver.
    pub fn acks(from: u8, to: u8, connection: u16) -> Result<Self> {
        // Padded as adapters do, so that the patch is inside.
        let mut frame = segment(from, to, &[], (Flags::Ack, connection))?;
        frame.resize(60, 0);
        Ok(Self::new(Kind::Ack, frame))
    }

    /// Always the same frame.
    pub fn whole(frame: &[u8]) -> Self {
        Self::new(Kind::Whole, frame.to_vec())
    }

    fn new(kind: Kind, frame: Vec<u8>) -> Self {
        let mut patch = [0; PATCH];
        patch.copy_from_slice(&frame[PATCH_AT..PATCH_AT + PATCH]);
        Self {
            kind,
            frame,
            patch,
            next: 1,
            now_ns: 0,
        }
    }

    /// The frame before anything changed.
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// The number of the next frame, or its sequence number.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// What the next ACK acknowledges.
    pub fn acknowledge(&mut self, position: u64) {
        self.next = position;
    }

    /// What changes in the next frame.
    #[inline]
    pub fn next(&mut self) -> Patch {
        match self.kind {
            Kind::Numbered => {
                self.patch[NUMBER..NUMBER + 8].copy_from_slice(&self.next.to_be_bytes());
                self.patch[TIME..TIME + 8].copy_from_slice(&self.now_ns.to_be_bytes());
                self.next += 1;
            }
            Kind::Data(bytes) => {
                self.change(SEQ);
                self.next += u64::from(bytes);
            }
            Kind::Ack => self.change(ACK),
            Kind::Whole => {}
        }
        self.patch
    }

    /// Writes 32 bits of the header of TCP. The checksum stays as it is: no switch verifies it.
    #[inline]
    fn change(&mut self, at: usize) {
        self.patch[at..at + 4].copy_from_slice(&(self.next as u32).to_be_bytes());
    }
}

/// The number in a datagram.
#[inline]
pub fn number(patch: &Patch) -> u64 {
    eight(patch, NUMBER)
}

/// When a datagram was sent.
#[inline]
pub fn sent_ns(patch: &Patch) -> u64 {
    eight(patch, TIME)
}

/// The sequence number of a segment.
#[inline]
pub fn seq(patch: &Patch) -> u32 {
    four(patch, SEQ)
}

/// What a segment acknowledges.
#[inline]
pub fn ack(patch: &Patch) -> u32 {
    four(patch, ACK)
}

/// The window that a segment shows, in bytes.
#[inline]
pub fn window(patch: &Patch) -> u64 {
    u64::from(u16::from_be_bytes([patch[WINDOW], patch[WINDOW + 1]])) << WSCALE
}

#[inline]
fn four(patch: &Patch, at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&patch[at..at + 4]);
    u32::from_be_bytes(bytes)
}

#[inline]
fn eight(patch: &Patch, at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&patch[at..at + 8]);
    u64::from_be_bytes(bytes)
}

/// Nanoseconds since the benchmark began.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Begins.
    pub fn new() -> Self {
        Self(Instant::now())
    }

    /// Now.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// The flags of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flags {
    /// SYN, with options.
    Syn,
    /// SYN and ACK, with options.
    SynAck,
    /// ACK alone.
    Ack,
}

/// A segment of a connection between two ports, by its number; both ISNs are 0, and its window is
/// full.
pub fn segment(from: u8, to: u8, payload: &[u8], kind: (Flags, u16)) -> Result<Vec<u8>> {
    use etherparse::TcpOptionElement::{MaximumSegmentSize, WindowScale};
    let (flags, connection) = kind;
    let (seq, ack) = match flags {
        Flags::Syn => (0, 0),
        Flags::SynAck => (0, 1),
        Flags::Ack => (1, 1),
    };
    let ports = |port: u8| 3000 + 8 * connection + u16::from(port);
    let builder = PacketBuilder::ethernet2(mac(from), mac(to))
        .ipv4(ip(from), ip(to), 64)
        .tcp(ports(from), ports(to), seq, 65535);
    let builder = match flags {
        Flags::Syn => builder.syn(),
        Flags::SynAck => builder.syn().ack(ack),
        Flags::Ack => builder.ack(ack),
    };
    let options = [MaximumSegmentSize(1460), WindowScale(WSCALE)];
    let builder = match flags {
        Flags::Ack => builder,
        Flags::Syn | Flags::SynAck => builder.options(&options)?,
    };
    let mut frame = Vec::new();
    builder.write(&mut frame, payload)?;
    Ok(frame)
}
