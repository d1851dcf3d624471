//! Work that a sender left to its adapter: checksums and segmentation (Virtio 1.2, 5.1.6).
//!
//! A frame between two guests keeps it. Where the receiver's port cannot take such a frame, the
//! switch does the work: it completes the checksum, and cuts a segment of TCP into frames.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::frame::FRAME_MAX;

/// Length of the header before each frame (with `num_buffers`).
pub const HEADER: usize = 12;

/// The shortest payload of the frames that a segment is cut into: what the least MSS that Linux
/// takes of a peer (48) leaves beside the longest options (its `TCP_MIN_GSO_SIZE`). What a segment
/// costs is bounded by turns, and not by this: each frame counts in the turns of its sender and of
/// its receiver, and others have theirs between ([`crate::engine`]).
const SEGMENT_MIN: u16 = 8;

/// Frames that a segment becomes at most.
pub const PARTS_MAX: u16 = (FRAME_MAX / SEGMENT_MIN as u32) as u16;

/// The longest headers of such a segment: a tag, and IPv6 or IPv4 and TCP with all their options.
const HEADERS_MAX: usize = 138;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_ECN: u8 = 0x80;

const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// The kinds of segments that are cut later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Family {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
}

/// Work that is left to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// A checksum: where its range begins, from the beginning of the frame, and where in the range
    /// it is stored.
    pub checksum: Option<(u16, u16)>,
    /// A segment to be cut: its family, the payload of each frame in bytes, and whether it begins
    /// with CWR.
    pub segment: Option<(Family, u16, bool)>,
}

/// What a port takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Takes {
    /// Frames without their checksum.
    pub checksum: bool,
    /// Segments of TCP over IPv4.
    pub tcp4: bool,
    /// Segments of TCP over IPv6.
    pub tcp6: bool,
    /// Segments that begin with CWR.
    pub ecn: bool,
}

impl Takes {
    /// Everything.
    pub const ALL: Self = Self {
        checksum: true,
        tcp4: true,
        tcp6: true,
        ecn: true,
    };

    /// As bits: checksums, TCP over IPv4, TCP over IPv6, CWR.
    pub fn to_bits(self) -> u32 {
        let bits = [self.checksum, self.tcp4, self.tcp6, self.ecn];
        (0..).zip(bits).map(|(at, bit)| u32::from(bit) << at).sum()
    }

    /// Of bits; those without a meaning are ignored.
    pub fn from_bits(bits: u32) -> Self {
        let bit = |at: u32| bits >> at & 1 != 0;
        Self {
            checksum: bit(0),
            tcp4: bit(1),
            tcp6: bit(2),
            ecn: bit(3),
        }
    }

    /// Whether a frame with this work can be delivered as it is.
    #[inline]
    pub fn takes(self, work: Work) -> bool {
        let segment = match work.segment {
            None => true,
            Some((Family::Tcp4, _, cwr)) => self.tcp4 && (self.ecn || !cwr),
            Some((Family::Tcp6, _, cwr)) => self.tcp6 && (self.ecn || !cwr),
        };
        segment && (self.checksum || work.checksum.is_none())
    }
}

/// Why a frame's work cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lie(pub &'static str);

impl Work {
    /// Reads the header before a frame of so many bytes.
    ///
    /// # Errors
    /// A header that contradicts itself or the frame's length.
    #[inline]
    pub fn parse(header: &[u8; HEADER], frame_bytes: u32) -> Result<Self, Lie> {
        if header[..2] == [0, 0] {
            return Ok(Self::default());
        }
        let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let (start, offset) = (half(6), half(8));
        let ends = u32::from(start) + u32::from(offset) + 2;
        let checksum = header[0] & NEEDS_CHECKSUM != 0;
        if checksum && ends > frame_bytes {
            return Err(Lie("a checksum beyond the frame"));
        }
        let family = match header[1] & !GSO_ECN {
            0 => None,
            GSO_TCP4 => Some(Family::Tcp4),
            GSO_TCP6 => Some(Family::Tcp6),
            _ => return Err(Lie("segments of a kind that was not negotiated")),
        };
        let size = half(4);
        if family.is_some() && (size < SEGMENT_MIN || !checksum) {
            return Err(Lie("segments that are too short, or without a checksum"));
        }
        let cwr = header[1] & GSO_ECN != 0;
        Ok(Self {
            checksum: checksum.then_some((start, offset)),
            segment: family.map(|family| (family, size, cwr)),
        })
    }

    /// Whether nothing is left to do.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.checksum.is_none() && self.segment.is_none()
    }

    /// Length of the headers of a frame that starts so, up to the payload of TCP, for the header of
    /// a segment.
    #[inline]
    pub fn headers(&self, start: &[u8]) -> u16 {
        let Some((at, _)) = self.checksum else {
            return 0;
        };
        let tcp = start.get(usize::from(at) + 12);
        at.saturating_add(tcp.map_or(20, |&byte| u16::from(byte >> 4) * 4))
    }

    /// The header that says so, before a frame whose headers take `headers` bytes.
    #[inline]
    pub fn header(&self, headers: u16) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        if let Some((start, offset)) = self.checksum {
            bytes[0] = NEEDS_CHECKSUM;
            bytes[6..8].copy_from_slice(&start.to_le_bytes());
            bytes[8..10].copy_from_slice(&offset.to_le_bytes());
        }
        if let Some((family, size, cwr)) = self.segment {
            let kind = match family {
                Family::Tcp4 => GSO_TCP4,
                Family::Tcp6 => GSO_TCP6,
            };
            bytes[1] = kind | if cwr { GSO_ECN } else { 0 };
            bytes[2..4].copy_from_slice(&headers.to_le_bytes());
            bytes[4..6].copy_from_slice(&size.to_le_bytes());
        }
        bytes
    }

    /// Whether a checksum that is left lies behind the IP header of the frame that starts so.
    /// Elsewhere, whoever completes it would write into what was checked.
    pub fn spares_headers(&self, start: &[u8]) -> bool {
        let Some((range, _)) = self.checksum else {
            return true;
        };
        let mut at = 12;
        let kind = |at: usize| start.get(at..at + 2).map(|two| [two[0], two[1]]);
        while matches!(kind(at), Some([0x81, 0] | [0x88, 0xa8])) {
            at += 4;
        }
        let header = match kind(at) {
            Some([8, 0]) => start.get(at + 2).map(|&byte| usize::from(byte & 15) * 4),
            Some([0x86, 0xdd]) => Some(40),
            _ => None,
        };
        header.is_some_and(|header| usize::from(range) >= at + 2 + header.max(20))
    }

    /// The same after `bytes` were added before the checksum's range, or removed if negative.
    #[must_use]
    pub fn shifted(mut self, bytes: i16) -> Self {
        if let Some((start, _)) = &mut self.checksum {
            *start = start.saturating_add_signed(bytes);
        }
        self
    }
}

/// The sum of 16-bit words (RFC 1071), not folded.
fn sum(bytes: &[u8], start: u64) -> u64 {
    let words = bytes.chunks_exact(2);
    let odd = words
        .remainder()
        .first()
        .map_or(0, |&byte| u64::from(byte) << 8);
    let word = |pair: &[u8]| u64::from(u16::from_be_bytes([pair[0], pair[1]]));
    start + odd + words.map(word).sum::<u64>()
}

fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Completes the checksum of a whole frame, which lies in it: its field holds the sum of the
/// pseudo-header.
fn complete(frame: &mut [u8], (start, offset): (u16, u16)) {
    let (start, field) = (usize::from(start), usize::from(start) + usize::from(offset));
    let mut value = fold(sum(&frame[start..], 0));
    // UDP has no checksum where the field is 0 (RFC 768); TCP takes both.
    if value == 0 {
        value = 0xffff;
    }
    frame[field..field + 2].copy_from_slice(&value.to_be_bytes());
}

/// Where the headers of a segment of TCP are.
#[derive(Clone, Copy, Debug)]
struct Headers {
    ip: usize,
    tcp: usize,
    payload: usize,
    is_ipv6: bool,
}

impl Headers {
    /// Of a frame of so many bytes that begins with `start`, and whose checksum begins at `tcp`.
    fn parse(start: &[u8], bytes: u32, tcp: u16, family: Family) -> Result<Self, Lie> {
        let lie = Lie("a segment whose headers are not those of TCP");
        let mut at = 12;
        let kind = |at: usize| start.get(at..at + 2).map(|two| [two[0], two[1]]);
        while matches!(kind(at), Some([0x81, 0] | [0x88, 0xa8])) {
            at += 4;
        }
        let (ip, tcp) = (at + 2, usize::from(tcp));
        let (expected, shortest, is_ipv6) = match family {
            Family::Tcp4 => ([8, 0], 20, false),
            Family::Tcp6 => ([0x86, 0xdd], 40, true),
        };
        if kind(at) != Some(expected) || tcp < ip + shortest || start.len() < tcp + 20 {
            return Err(lie);
        }
        let payload = tcp + usize::from(start[tcp + 12] >> 4) * 4;
        let is_short = bytes as usize <= payload || start.len() < payload;
        if payload < tcp + 20 || is_short || payload > HEADERS_MAX {
            return Err(lie);
        }
        Ok(Self {
            ip,
            tcp,
            payload,
            is_ipv6,
        })
    }

    /// Sets the lengths, the identification and both checksums of a frame that carries part of a
    /// segment's payload; `number` is its place in the segment.
    fn finish(&self, frame: &mut [u8], number: u16) {
        let l4_bytes = frame.len() - self.tcp;
        let ip_bytes = frame.len() - self.ip;
        let ip = &mut frame[self.ip..self.tcp];
        let addresses = if self.is_ipv6 {
            let payload_bytes = (ip_bytes - 40) as u16;
            ip[4..6].copy_from_slice(&payload_bytes.to_be_bytes());
            sum(&ip[8..40], 0)
        } else {
            ip[2..4].copy_from_slice(&(ip_bytes as u16).to_be_bytes());
            let identification = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(number);
            ip[4..6].copy_from_slice(&identification.to_be_bytes());
            ip[10..12].fill(0);
            let header = usize::from(ip[0] & 15) * 4;
            let header_sum = fold(sum(&ip[..header.clamp(20, ip.len())], 0));
            ip[10..12].copy_from_slice(&header_sum.to_be_bytes());
            sum(&ip[12..20], 0)
        };
        let tcp = &mut frame[self.tcp..];
        tcp[16..18].fill(0);
        let value = fold(sum(tcp, addresses + 6 + l4_bytes as u64));
        tcp[16..18].copy_from_slice(&value.to_be_bytes());
    }
}

/// The parts of a frame for a receiver that does not do its work: the frames of a segment, or the
/// frame itself, whose checksum is completed.
///
/// Each part is made on its own, of the frame's headers and the part's payload, so that the frame
/// can stay where it is until its last part is delivered.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Of a segment.
    headers: Option<Headers>,
    checksum: Option<(u16, u16)>,
    /// Length of the frame.
    bytes: u32,
    /// The payload of each part but the last.
    size: u32,
}

impl Cut {
    /// Of a frame of so many bytes that begins with `start`, which has all of its headers.
    ///
    /// # Errors
    /// Headers that are not those of such a segment, or a checksum beyond the frame.
    pub fn new(start: &[u8], bytes: u32, work: Work) -> Result<Self, Lie> {
        let (headers, size) = match (work.segment, work.checksum) {
            (Some((family, size, _)), Some((tcp, _))) if size > 0 => {
                let headers = Headers::parse(start, bytes, tcp, family)?;
                (Some(headers), u32::from(size))
            }
            (Some(_), _) => {
                return Err(Lie("segments that are too short, or without a checksum"));
            }
            (None, _) => (None, bytes.max(1)),
        };
        let beyond = |(at, field): (u16, u16)| u32::from(at) + u32::from(field) + 2 > bytes;
        if work.checksum.is_some_and(beyond) {
            return Err(Lie("a checksum beyond the frame"));
        }
        Ok(Self {
            headers,
            checksum: work.checksum,
            bytes,
            size,
        })
    }

    /// How many there are; at most [`PARTS_MAX`].
    pub fn parts(&self) -> u16 {
        let payload = self.bytes - self.headers() as u32;
        payload.div_ceil(self.size) as u16
    }

    /// Bytes of the frame with which each part begins.
    pub fn headers(&self) -> usize {
        self.headers.map_or(0, |headers| headers.payload)
    }

    /// The bytes of the frame that a part, counted from 0, has behind its headers.
    pub fn payload(&self, number: u16) -> Range<u32> {
        let start = self.headers() as u32 + u32::from(number) * self.size;
        start.min(self.bytes)..(start + self.size).min(self.bytes)
    }

    /// Makes a part what it is to be: its lengths, its place in the segment, and its checksums.
    pub fn finish(&self, part: &mut [u8], number: u16) {
        let Some(headers) = self.headers else {
            if let Some(at) = self.checksum {
                complete(part, at);
            }
            return;
        };
        let tcp = &mut part[headers.tcp..];
        let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        let offset = u32::from(number) * self.size;
        tcp[4..8].copy_from_slice(&sequence.wrapping_add(offset).to_be_bytes());
        if number + 1 != self.parts() {
            tcp[13] &= !FIN_PSH;
        }
        if number != 0 {
            tcp[13] &= !CWR;
        }
        headers.finish(part, number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment with a payload of so many bytes and the sum of its pseudo-header in place.
    fn segment(payload: usize, is_ipv6: bool, flags: u8) -> (Vec<u8>, u16) {
        let mut frame = vec![2; 12];
        frame.extend(if is_ipv6 { [0x86, 0xdd] } else { [8, 0] });
        let ip_header = if is_ipv6 { 40 } else { 20 };
        let tcp = 14 + ip_header;
        let mut ip: Vec<u8> = (0..ip_header as u8).collect();
        if is_ipv6 {
            (ip[0], ip[6]) = (0x60, 6);
        } else {
            (ip[0], ip[9]) = (0x45, 6);
        }
        frame.extend(ip);
        let mut header = [7; 20];
        header[12] = 5 << 4;
        header[13] = flags;
        frame.extend(header);
        frame.extend((0..payload).map(|at| at as u8));
        let addresses = if is_ipv6 { 22..54 } else { 26..34 };
        let pseudo = sum(&frame[addresses], 6 + 20 + payload as u64);
        frame[tcp + 16..tcp + 18].copy_from_slice(&(!fold(pseudo)).to_be_bytes());
        (frame, tcp as u16)
    }

    /// All parts of a whole frame.
    fn cut(frame: &[u8], work: Work) -> Result<Vec<Vec<u8>>, Lie> {
        let start = &frame[..frame.len().min(HEADERS_MAX)];
        let cut = Cut::new(start, frame.len() as u32, work)?;
        let parts = (0..cut.parts()).map(|number| {
            let payload = cut.payload(number);
            let payload = &frame[payload.start as usize..payload.end as usize];
            let mut part = [&start[..cut.headers()], payload].concat();
            cut.finish(&mut part, number);
            part
        });
        Ok(parts.collect())
    }

    fn checks(frame: &[u8], tcp: usize, is_ipv6: bool) {
        let addresses = if is_ipv6 { 22..54 } else { 26..34 };
        let l4 = (frame.len() - tcp) as u64;
        let pseudo = sum(&frame[addresses], 6 + l4);
        assert_eq!(fold(sum(&frame[tcp..], pseudo)), 0, "TCP");
        if is_ipv6 {
            assert_eq!(&frame[18..20], (l4 as u16).to_be_bytes());
        } else {
            assert_eq!(fold(sum(&frame[14..34], 0)), 0, "IPv4");
            assert_eq!(&frame[16..18], (l4 as u16 + 20).to_be_bytes());
        }
    }

    #[test]
    fn segments_are_cut_into_frames_with_right_checksums() {
        for is_ipv6 in [false, true] {
            let (frame, tcp) = segment(3500, is_ipv6, 0x80 | 0x18 | 1);
            let family = if is_ipv6 { Family::Tcp6 } else { Family::Tcp4 };
            let work = Work {
                checksum: Some((tcp, 16)),
                segment: Some((family, 1448, true)),
            };
            let frames = cut(&frame, work).expect("a segment");
            let payloads = frames
                .iter()
                .map(|frame| frame.len() - usize::from(tcp) - 20);
            let payloads: Vec<_> = payloads.collect();
            assert_eq!(payloads, [1448, 1448, 604]);
            let tcp = usize::from(tcp);
            let flags: Vec<_> = frames.iter().map(|frame| frame[tcp + 13]).collect();
            assert_eq!(flags, [0x90, 0x10, 0x19]);
            for (number, cut) in frames.iter().enumerate() {
                checks(cut, tcp, is_ipv6);
                let sequence = u32::from_be_bytes(cut[tcp + 4..tcp + 8].try_into().expect("four"));
                assert_eq!(sequence, 0x0707_0707 + 1448 * number as u32);
            }
            let whole: Vec<u8> = frames.iter().flat_map(|f| f[tcp + 20..].to_vec()).collect();
            assert_eq!(whole, frame[tcp + 20..]);
        }
    }

    /// What Linux sends to peers with an MSS of 48 to 267, with time stamps and without.
    #[test]
    fn small_segments_are_cut_as_long_ones_are() {
        for size in [8, 36, 76, 88, 255] {
            let (frame, tcp) = segment(3500, false, 0x18);
            let work = Work {
                checksum: Some((tcp, 16)),
                segment: Some((Family::Tcp4, size, false)),
            };
            let frames = cut(&frame, work).expect("a segment");
            assert_eq!(frames.len(), 3500_usize.div_ceil(usize::from(size)));
            let payload = usize::from(tcp) + 20;
            frames
                .iter()
                .for_each(|frame| checks(frame, usize::from(tcp), false));
            let whole: Vec<u8> = frames
                .iter()
                .flat_map(|it| it[payload..].to_vec())
                .collect();
            assert_eq!(whole, frame[payload..]);
        }
    }

    #[test]
    fn a_checksum_is_completed() {
        let (mut frame, tcp) = segment(101, false, 0x10);
        // The header of IPv4 is not part of the work.
        frame[16..18].copy_from_slice(&141u16.to_be_bytes());
        frame[24..26].fill(0);
        let header = fold(sum(&frame[14..34], 0));
        frame[24..26].copy_from_slice(&header.to_be_bytes());
        let at = |start| Work {
            checksum: Some((start, 16)),
            segment: None,
        };
        let whole = cut(&frame, at(tcp)).expect("in range");
        let [whole] = &whole[..] else {
            panic!("{} parts", whole.len());
        };
        assert_eq!(whole.len(), frame.len());
        checks(whole, usize::from(tcp), false);
        let beyond = Lie("a checksum beyond the frame");
        assert_eq!(cut(&frame, at(150)), Err(beyond));
    }

    #[test]
    fn headers_that_lie_are_refused() {
        let lies = |edit: fn(&mut [u8; HEADER])| {
            let work = Work {
                checksum: Some((34, 16)),
                segment: Some((Family::Tcp4, 1448, false)),
            };
            let mut header = work.header(54);
            edit(&mut header);
            Work::parse(&header, 4000)
        };
        assert!(lies(|_| ()).is_ok());
        assert!(lies(|header| header[0] = 0).is_err());
        assert!(lies(|header| header[1] = 3).is_err());
        assert!(lies(|header| header[4..6].fill(0)).is_err());
        for (size, is_good) in [
            (1_u16, false),
            (7, false),
            (8, true),
            (76, true),
            (255, true),
        ] {
            let mut header = [NEEDS_CHECKSUM, GSO_TCP4, 0, 0, 0, 0, 34, 0, 16, 0, 0, 0];
            header[4..6].copy_from_slice(&size.to_le_bytes());
            assert_eq!(Work::parse(&header, 4000).is_ok(), is_good, "{size}");
        }
        assert!(lies(|header| header[7] = 0xff).is_err());
        let (frame, tcp) = segment(3500, false, 0);
        let work = |start, family| Work {
            checksum: Some((start, 16)),
            segment: Some((family, 1448, false)),
        };
        assert!(cut(&frame, work(tcp, Family::Tcp6)).is_err());
        assert!(cut(&frame, work(tcp - 4, Family::Tcp4)).is_err());
        assert!(cut(&frame, work(4000, Family::Tcp4)).is_err());
        assert!(cut(&frame[..40], work(tcp, Family::Tcp4)).is_err());
    }

    #[test]
    fn a_header_survives_writing_and_reading() {
        let work = Work {
            checksum: Some((34, 16)),
            segment: Some((Family::Tcp6, 1400, true)),
        };
        assert_eq!(Work::parse(&work.header(54), 4000), Ok(work));
        assert!(!Takes::default().takes(work));
        let takes = Takes {
            checksum: true,
            tcp6: true,
            ..Takes::default()
        };
        assert!(!takes.takes(work), "CWR");
        assert!(Takes { ecn: true, ..takes }.takes(work));
    }
}
