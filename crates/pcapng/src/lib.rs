//! Capture files: the kinds of blocks that captures of Ethernet frames need (pcapng,
//! draft-ietf-opsawg-pcapng), little-endian on every machine, times in nanoseconds.
//!
//! [`Writer`] writes a section. [`next_block`] finds the blocks of what it wrote, for a program
//! that passes them on.

use std::io::{self, Write};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;

/// Options of blocks.
mod option {
    pub const END: u16 = 0;
    pub const COMMENT: u16 = 1;
    pub const SECTION_APPLICATION: u16 = 4;
    pub const INTERFACE_NAME: u16 = 2;
    pub const INTERFACE_RESOLUTION: u16 = 9;
    pub const PACKET_FLAGS: u16 = 2;
    pub const STATISTICS_RECEIVED: u16 = 4;
    pub const STATISTICS_DROPPED: u16 = 5;
}

/// Times are in 10^-9 s.
const NANOSECONDS: u8 = 9;

/// A block's kind and length before its content.
const HEAD: usize = 8;

/// A block without content.
const BLOCK_MIN: usize = HEAD + 4;

/// Where the captured length is in the content of an enhanced packet block.
const CAPTURED: usize = 12;

/// Of the content of an interface statistics block, what is before its options.
const STATISTICS_HEAD: usize = 12;

/// The direction in which a frame passed an interface (`epb_flags`, bits 0 and 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// It was received.
    Inbound = 1,
    /// It was sent.
    Outbound = 2,
}

/// The passage of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage<'a> {
    /// The number of its interface, from 0.
    pub interface: u32,
    /// Which way it went there.
    pub direction: Direction,
    /// When, since 1970 or the beginning of a simulation.
    pub time_ns: u64,
    /// Its length.
    pub wire_bytes: u32,
    /// What a reader is to know of it.
    pub comment: Option<&'a str>,
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

    /// What it writes to.
    pub fn out(&self) -> &W {
        &self.out
    }

    fn section_header(&mut self) -> io::Result<()> {
        self.begin(SECTION_HEADER);
        self.u32(BYTE_ORDER_MAGIC);
        self.u16(1); // version 1.0
        self.u16(0);
        self.block.extend((-1i64).to_le_bytes()); // as long as the file
        let application = concat!("sluicegate ", env!("CARGO_PKG_VERSION"));
        self.option(option::SECTION_APPLICATION, application.as_bytes());
        self.end()
    }

    fn interface(&mut self, name: &str) -> io::Result<()> {
        self.begin(INTERFACE_DESCRIPTION);
        self.u16(LINKTYPE_ETHERNET);
        self.u16(0);
        self.u32(self.snaplen_bytes);
        self.option(option::INTERFACE_NAME, name.as_bytes());
        self.option(option::INTERFACE_RESOLUTION, &[NANOSECONDS]);
        self.end()
    }

    /// A frame has passed. `head` appends its first bytes, or all.
    ///
    /// # Errors
    /// Those of the file.
    pub fn frame(
        &mut self,
        passage: &Passage<'_>,
        head: impl FnOnce(&mut Vec<u8>),
    ) -> io::Result<()> {
        self.begin(ENHANCED_PACKET);
        self.u32(passage.interface);
        self.time(passage.time_ns);
        self.u32(0);
        self.u32(passage.wire_bytes);
        let start = self.block.len();
        head(&mut self.block);
        self.block.truncate(start + self.snaplen_bytes as usize);
        let captured = (self.block.len() - start) as u32;
        self.block[HEAD + CAPTURED..HEAD + CAPTURED + 4].copy_from_slice(&captured.to_le_bytes());
        self.pad();
        let flags = passage.direction as u32;
        self.option(option::PACKET_FLAGS, &flags.to_le_bytes());
        if let Some(comment) = passage.comment {
            self.option(option::COMMENT, comment.as_bytes());
        }
        self.end()
    }

    /// Until now so many frames have come to an interface, of which so many are missing here.
    ///
    /// # Errors
    /// Those of the file.
    pub fn statistics(
        &mut self,
        interface: u32,
        time_ns: u64,
        received: u64,
        dropped: u64,
    ) -> io::Result<()> {
        self.begin(INTERFACE_STATISTICS);
        self.u32(interface);
        self.time(time_ns);
        self.option(option::STATISTICS_RECEIVED, &received.to_le_bytes());
        self.option(option::STATISTICS_DROPPED, &dropped.to_le_bytes());
        self.end()
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

    fn time(&mut self, ns: u64) {
        self.u32((ns >> 32) as u32);
        self.u32(ns as u32);
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.u16(code);
        self.u16(value.len() as u16);
        self.block.extend(value);
        self.pad();
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.u32(kind);
        self.u32(0);
    }

    /// Writes the block with its options and lengths, in one piece.
    fn end(&mut self) -> io::Result<()> {
        self.option(option::END, &[]);
        let length = (self.block.len() as u32 + 4).to_le_bytes();
        self.block[4..HEAD].copy_from_slice(&length);
        self.block.extend(length);
        self.out.write_all(&self.block)
    }
}

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// A frame.
    Frame,
    /// Says at the end of a capture how many frames are missing of an interface.
    Statistics {
        /// Those frames.
        dropped: u64,
    },
    /// Any other.
    Other,
}

/// The first block of bytes that [`Writer`] has written, and its length; `None` if it is not whole.
///
/// # Errors
/// Its length is no length of a block.
pub fn next_block(bytes: &[u8]) -> io::Result<Option<(Block, usize)>> {
    let word = |at: usize| {
        let word = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(word))
    };
    let (Some(kind), Some(length)) = (word(0), word(4)) else {
        return Ok(None);
    };
    let length = length as usize;
    if length < BLOCK_MIN || length % 4 != 0 {
        let reason = format!("a block of {length} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    let Some(block) = bytes.get(..length) else {
        return Ok(None);
    };
    let kind = match kind {
        ENHANCED_PACKET => Block::Frame,
        INTERFACE_STATISTICS => Block::Statistics {
            dropped: dropped(&block[HEAD..length - 4]).unwrap_or_default(),
        },
        _ => Block::Other,
    };
    Ok(Some((kind, length)))
}

/// Frames that are missing, by the content of a statistics block.
fn dropped(content: &[u8]) -> Option<u64> {
    let mut options = content.get(STATISTICS_HEAD..)?;
    loop {
        let (head, rest) = options.split_first_chunk::<4>()?;
        let [code, length] = [[head[0], head[1]], [head[2], head[3]]].map(u16::from_le_bytes);
        let value = rest.get(..usize::from(length))?;
        if code == option::STATISTICS_DROPPED {
            return Some(u64::from_le_bytes(value.try_into().ok()?));
        }
        options = rest.get(value.len().next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use pcap_parser::{
        Block as Parsed, PcapBlockOwned, PcapNGOption, PcapNGReader,
        traits::{PcapNGPacketBlock, PcapReaderIterator},
    };

    use super::*;

    /// A section with two frames, of which one is cut and one has a comment.
    fn section() -> Vec<u8> {
        let names = ["vm1 in", "vm1 drop"].map(str::to_owned);
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, &names, 64).expect("memory");
        let mut passage = Passage {
            interface: 0,
            direction: Direction::Inbound,
            time_ns: 1_700_000_000_123_456_789,
            wire_bytes: 101,
            comment: None,
        };
        let head = |to: &mut Vec<u8>| to.extend(0..101);
        writer.frame(&passage, head).expect("memory");
        (passage.interface, passage.comment) = (1, Some("forged"));
        (passage.direction, passage.wire_bytes) = (Direction::Outbound, 61);
        let head = |to: &mut Vec<u8>| to.extend([7; 61]);
        writer.frame(&passage, head).expect("memory");
        writer.statistics(0, passage.time_ns, 3, 2).expect("memory");
        writer.finish().expect("memory");
        bytes
    }

    fn options(options: &[PcapNGOption<'_>]) -> Vec<(u16, Vec<u8>)> {
        let each = options.iter();
        each.map(|it| (it.code.0, it.as_bytes().expect("its length").to_vec()))
            .collect()
    }

    #[test]
    fn another_parser_reads_what_is_written() {
        let bytes = section();
        let mut reader = PcapNGReader::new(4096, &bytes[..]).expect("a section");
        let (mut frames, mut others) = (Vec::new(), Vec::new());
        while let Ok((length, block)) = reader.next() {
            match block {
                PcapBlockOwned::NG(Parsed::EnhancedPacket(it)) => {
                    let time_ns = u64::from(it.ts_high) << 32 | u64::from(it.ts_low);
                    assert_eq!(time_ns, 1_700_000_000_123_456_789);
                    let head = it.packet_data().to_vec();
                    frames.push((it.if_id, it.origlen, head, options(&it.options)));
                }
                PcapBlockOwned::NG(Parsed::InterfaceDescription(it)) => {
                    assert_eq!((it.if_tsresol, it.snaplen), (9, 64));
                    let name = it.options.iter().find(|it| it.code.0 == 2);
                    let name = name.expect("a name").as_str();
                    others.push(name.expect("text").to_owned());
                }
                PcapBlockOwned::NG(Parsed::InterfaceStatistics(it)) => {
                    others.push(format!("{} {:?}", it.if_id, options(&it.options)));
                }
                _ => {}
            }
            reader.consume(length);
        }
        let flags = |direction: u8| (2, vec![direction, 0, 0, 0]);
        let end = (0, vec![]);
        let forged = (1, b"forged".to_vec());
        assert_eq!(frames.len(), 2);
        let cut: Vec<u8> = (0..64).collect();
        assert_eq!(frames[0], (0, 101, cut, vec![flags(1), end.clone()]));
        assert_eq!(
            frames[1],
            (1, 61, vec![7; 61], vec![flags(2), forged, end.clone()])
        );
        let counts = [3u64, 2].map(|count| count.to_le_bytes().to_vec());
        let [received, dropped] = counts;
        let statistics = format!("0 {:?}", [(4, received), (5, dropped), end]);
        assert_eq!(others, ["vm1 in", "vm1 drop", &statistics]);
    }

    #[test]
    fn blocks_are_found_when_they_are_whole() {
        let bytes = section();
        let (mut at, mut found) = (0, Vec::new());
        while let Some((block, length)) = next_block(&bytes[at..]).expect("blocks") {
            for cut in 0..length {
                let part = &bytes[at..at + cut];
                assert_eq!(next_block(part).expect("a part of a block"), None);
            }
            at += length;
            found.push(block);
        }
        assert_eq!(at, bytes.len());
        let lost = Block::Statistics { dropped: 2 };
        let other = Block::Other;
        let frame = Block::Frame;
        assert_eq!(found, [other, other, other, frame, frame, lost]);
        assert!(next_block(b"HTTP/1.0 400 no").is_err());
        assert!(next_block(&[6, 0, 0, 0, 8, 0, 0, 0]).is_err());
    }
}
