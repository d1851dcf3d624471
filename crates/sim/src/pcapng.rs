//! Capture files: the three kinds of blocks that a capture of Ethernet frames needs (pcapng,
//! draft-ietf-opsawg-pcapng), little-endian on every machine, times in nanoseconds.

use std::io::{self, Write};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;

/// Options of blocks.
mod option {
    pub const END: u16 = 0;
    pub const SECTION_APPLICATION: u16 = 4;
    pub const INTERFACE_NAME: u16 = 2;
    pub const INTERFACE_RESOLUTION: u16 = 9;
    pub const PACKET_FLAGS: u16 = 2;
}

/// Times are in 10^-9 s.
const NANOSECONDS: u8 = 9;

/// The direction in which a frame passed an interface (`epb_flags`, bits 0 and 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// It was received.
    Inbound = 1,
    /// It was sent.
    Outbound = 2,
}

/// Writes one section.
pub struct Writer<W> {
    out: W,
    snaplen_bytes: u32,
    block: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// A section of these interfaces, of whose frames at most `snaplen_bytes` are kept each.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(out: W, interfaces: &[String], snaplen_bytes: u32) -> io::Result<Self> {
        let mut writer = Self {
            out,
            snaplen_bytes,
            block: Vec::new(),
        };
        writer.section_header()?;
        for name in interfaces {
            writer.interface(name)?;
        }
        Ok(writer)
    }

    fn section_header(&mut self) -> io::Result<()> {
        self.u32(BYTE_ORDER_MAGIC);
        self.u16(1); // version 1.0
        self.u16(0);
        self.block.extend((-1i64).to_le_bytes()); // as long as the file
        let application = concat!("sluicegate ", env!("CARGO_PKG_VERSION"));
        self.option(option::SECTION_APPLICATION, application.as_bytes());
        self.option(option::END, &[]);
        self.end_block(SECTION_HEADER)
    }

    fn interface(&mut self, name: &str) -> io::Result<()> {
        self.u16(LINKTYPE_ETHERNET);
        self.u16(0);
        self.u32(self.snaplen_bytes);
        self.option(option::INTERFACE_NAME, name.as_bytes());
        self.option(option::INTERFACE_RESOLUTION, &[NANOSECONDS]);
        self.option(option::END, &[]);
        self.end_block(INTERFACE_DESCRIPTION)
    }

    /// A frame of `wire_bytes` bytes, of which `head` are the first, passed the interface of this
    /// number.
    ///
    /// # Errors
    /// Those of the file.
    pub fn frame(
        &mut self,
        interface: u32,
        direction: Direction,
        time_ns: u64,
        head: &[u8],
        wire_bytes: u32,
    ) -> io::Result<()> {
        let head = &head[..head.len().min(self.snaplen_bytes as usize)];
        self.u32(interface);
        self.u32((time_ns >> 32) as u32);
        self.u32(time_ns as u32);
        self.u32(head.len() as u32);
        self.u32(wire_bytes);
        self.padded(head);
        self.option(option::PACKET_FLAGS, &(direction as u32).to_le_bytes());
        self.option(option::END, &[]);
        self.end_block(ENHANCED_PACKET)
    }

    /// Everything to the file.
    ///
    /// # Errors
    /// Those of the file.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn u16(&mut self, value: u16) {
        self.block.extend(value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.block.extend(value.to_le_bytes());
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.block.extend(bytes);
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.u16(code);
        self.u16(value.len() as u16);
        self.padded(value);
    }

    /// Writes what has been put into the block between its type and lengths.
    fn end_block(&mut self, kind: u32) -> io::Result<()> {
        let length = (self.block.len() as u32 + 12).to_le_bytes();
        self.out.write_all(&kind.to_le_bytes())?;
        self.out.write_all(&length)?;
        self.out.write_all(&self.block)?;
        self.out.write_all(&length)?;
        self.block.clear();
        Ok(())
    }
}
