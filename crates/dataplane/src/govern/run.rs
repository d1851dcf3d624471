//! Frames of a burst that are like the one before, and pass without a look at more than that.
//!
//! ```text
//!  first ─steps of both vNICs─▶ its header, which bits count, its edits, bytes that may follow
//!  next  ─the same where bits count, and the next number─▶ edited likewise; its step waits
//! ```
//!
//! Segments of one flow, either data or ACKs, for which one step stands at each vNIC
//! (`c/sluice/run.h`); or frames that are no TCP, which are only counted.

use sluicegate_core::{
    abi::FlowKey,
    frame::Packet,
    segment::{Segment, tcp},
};

use crate::{
    frame::{Frame, START},
    offload::Work,
};

/// Headers in words of eight bytes: Ethernet, IPv6, and TCP with time stamps. Segments with longer
/// ones make no runs.
const WORDS: usize = 12;
/// The same with IPv4.
const WORDS4: usize = 9;
const HEADER: usize = 8 * WORDS;

/// Where the IP header begins: behind Ethernet's, without a tag.
const IP: usize = 14;
/// The protocol of IPv4, or of IPv6. With the type and the version it says what is no TCP.
const PROTOCOLS: [usize; 2] = [IP + 9, IP + 6];
const OTHER_WORDS: usize = 3;
/// Shorter frames are no TCP for their length alone, whatever their headers say.
const OTHER_BYTES: u32 = 60;
const OTHER_BYTES6: u32 = 74;

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// No TCP.
    Other,
    Data4,
    Data6,
    Ack4,
    Ack6,
}

/// What waits for a step.
#[derive(Debug)]
pub(super) enum Waiting {
    /// So many segments of data: the first of them, and what all of them bring.
    Data { packets: u32, seq: u32, bytes: u32 },
    /// So many ACKs up to this one.
    Acks { packets: u32, ack: u32 },
    /// So many frames at both vNICs together, which are not read for this reason.
    Other { packets: u32, why: usize },
}

/// A run of frames that pass from one port to another.
#[derive(Debug)]
pub(super) struct Run {
    kind: Kind,
    ports: (u16, u16),
    /// Bytes that may follow; 0 = there is no run.
    room: u32,
    /// Frames that have passed without a step.
    waiting: u32,
    mask: &'static Mask,
    /// The header of the first one as it came, where the mask has ones.
    header: [u64; WORDS],
    work: Work,
    /// Bytes of a frame before its data; of an ACK all.
    headers: u32,
    /// Number of the next byte, or the last one that is acknowledged.
    next: u32,
    /// The first byte that has passed without a step.
    from: u32,
    edits: Edits,
    /// Of frames that are no TCP: the counter that says so, how many vNICs count, and the least
    /// length of those that are so for their headers.
    why: usize,
    vnics: u32,
    least: u32,
    pub now_ns: u64,
    /// At the sender's vNIC and at the receiver's: the flow, and the first segment.
    pub sides: [(FlowKey, Segment); 2],
}

impl Default for Run {
    fn default() -> Self {
        Self {
            kind: Kind::Other,
            ports: (0, 0),
            room: 0,
            waiting: 0,
            mask: &MASKS[0][0],
            header: [0; WORDS],
            work: Work::default(),
            headers: 0,
            next: 0,
            from: 0,
            edits: Edits::default(),
            why: 0,
            vnics: 0,
            least: 0,
            now_ns: 0,
            sides: <[(FlowKey, Segment); 2]>::default(),
        }
    }
}

/// What the edits of the first segment have changed, which is the same in all: two bytes of the IP
/// header with its checksum, and the window with that of TCP.
#[derive(Debug, Default)]
struct Edits {
    class: Option<[u8; 2]>,
    window: Option<[u8; 2]>,
    ip_sum: u32,
    tcp_sum: u32,
}

/// What the change of a checksum field adds to another one's complement (RFC 1624, equation 3).
fn change(before: [u8; 2], after: [u8; 2]) -> u32 {
    if before == after {
        return 0;
    }
    u32::from(!u16::from_ne_bytes(after)) + u32::from(u16::from_ne_bytes(before))
}

#[inline]
fn apply(field: &mut [u8], change: u32) {
    let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let sum = u32::from(!u16::from_ne_bytes([field[0], field[1]]));
    let sum = fold(fold(sum + fold(change)));
    field.copy_from_slice(&(!(sum as u16)).to_ne_bytes());
}

#[inline]
fn two(start: &[u8; START], at: usize) -> [u8; 2] {
    [start[at], start[at + 1]]
}

#[inline]
fn word_of(start: &[u8; START], word: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&start[8 * word..8 * word + 8]);
    u64::from_ne_bytes(bytes)
}

#[inline]
fn four(start: &[u8; START], at: usize) -> u32 {
    let [[a, b], [c, d]] = [at, at + 2].map(|at| two(start, at));
    u32::from_be_bytes([a, b, c, d])
}

const fn tcp_at(is_ipv6: bool) -> usize {
    if is_ipv6 { IP + 40 } else { IP + 20 }
}

/// Where all frames of a run have the same.
type Mask = [u64; WORDS];

const fn in_words(bytes: [u8; HEADER]) -> Mask {
    let (mut mask, mut word) = ([0; WORDS], 0);
    while word < WORDS {
        let (mut eight, mut byte) = ([0; 8], 0);
        while byte < 8 {
            eight[byte] = bytes[8 * word + byte];
            byte += 1;
        }
        mask[word] = u64::from_ne_bytes(eight);
        word += 1;
    }
    mask
}

const fn fill<const N: usize>(
    mut bytes: [u8; HEADER],
    from: usize,
    values: [u8; N],
) -> [u8; HEADER] {
    let mut at = 0;
    while at < N {
        bytes[from + at] = values[at];
        at += 1;
    }
    bytes
}

/// Of segments whose TCP header has so many words of four bytes.
const fn mask_of(is_ack: bool, is_ipv6: bool, header: usize) -> Mask {
    let (tcp, mut bytes, mut at) = (tcp_at(is_ipv6), [0; HEADER], 0);
    while at < HEADER && at < tcp + 4 * header {
        bytes[at] = 0xff;
        at += 1;
    }
    if !is_ipv6 {
        // Identification and checksum.
        bytes = fill(fill(bytes, IP + 4, [0; 2]), IP + 10, [0; 2]);
    }
    if is_ack {
        bytes = fill(bytes, tcp + 8, [0; 4]);
    } else {
        let length = if is_ipv6 { IP + 4 } else { IP + 2 };
        bytes = fill(fill(bytes, length, [0; 2]), tcp + 4, [0; 4]);
        bytes[tcp + 13] = !tcp::PSH;
    }
    in_words(fill(bytes, tcp + 16, [0; 2]))
}

const fn masks(is_ack: bool, is_ipv6: bool) -> [Mask; 16] {
    let (mut masks, mut header) = ([[0; WORDS]; 16], 5);
    while header < 16 {
        masks[header] = mask_of(is_ack, is_ipv6, header);
        header += 1;
    }
    masks
}

/// By [`Kind`] and words of the TCP header.
static MASKS: [[Mask; 16]; 5] = [
    [mask_of_others(); 16],
    masks(false, false),
    masks(false, true),
    masks(true, false),
    masks(true, true),
];

const fn mask_of_others() -> Mask {
    let (mut bytes, mut at) = ([0; HEADER], 0);
    while at <= IP {
        bytes[at] = 0xff;
        at += 1;
    }
    bytes[PROTOCOLS[0]] = 0xff;
    bytes[PROTOCOLS[1]] = 0xff;
    in_words(bytes)
}

impl Edits {
    /// From a header before and after.
    fn between(before: &[u8; START], after: &[u8; START], tcp: usize, is_ipv6: bool) -> Self {
        let changed = |at: usize| (two(before, at) != two(after, at)).then(|| two(after, at));
        let sum = |at: usize| change(two(before, at), two(after, at));
        Self {
            class: changed(IP),
            window: changed(tcp + 14),
            ip_sum: if is_ipv6 { 0 } else { sum(IP + 10) },
            tcp_sum: sum(tcp + 16),
        }
    }

    #[inline]
    fn make<const IPV6: bool>(&self, start: &mut [u8; START]) {
        let tcp = tcp_at(IPV6);
        if let Some(class) = self.class {
            start[IP..IP + 2].copy_from_slice(&class);
            if self.ip_sum != 0 {
                apply(&mut start[IP + 10..IP + 12], self.ip_sum);
            }
        }
        if let Some(window) = self.window {
            start[tcp + 14..tcp + 16].copy_from_slice(&window);
        }
        if self.tcp_sum != 0 {
            apply(&mut start[tcp + 16..tcp + 18], self.tcp_sum);
        }
    }
}

impl Run {
    /// The exit of a frame that comes by this port, if it is the next of the run. It is edited, and
    /// its step waits.
    #[inline]
    pub fn takes(&mut self, from: u16, frame: &mut Frame) -> Option<u16> {
        if self.room == 0 || from != self.ports.0 || frame.work != self.work {
            return None;
        }
        let (bytes, start) = (frame.bytes, &mut frame.start);
        let is_next = match self.kind {
            Kind::Data4 => self.takes_data::<WORDS4, false>(bytes, start),
            Kind::Data6 => self.takes_data::<WORDS, true>(bytes, start),
            Kind::Ack4 => self.takes_ack::<WORDS4, false>(bytes, start),
            Kind::Ack6 => self.takes_ack::<WORDS, true>(bytes, start),
            Kind::Other => self.is_alike::<OTHER_WORDS>(start) && bytes >= self.least,
        };
        if !is_next {
            return None;
        }
        self.waiting += 1;
        match self.kind {
            Kind::Data4 | Kind::Ack4 => self.edits.make::<false>(start),
            Kind::Data6 | Kind::Ack6 => self.edits.make::<true>(start),
            Kind::Other => {}
        }
        Some(self.ports.1)
    }

    #[inline]
    fn is_alike<const N: usize>(&self, start: &[u8; START]) -> bool {
        let mut differing = 0;
        for word in 0..N {
            differing |= (word_of(start, word) & self.mask[word]) ^ self.header[word];
        }
        differing == 0
    }

    #[inline]
    fn takes_data<const N: usize, const IPV6: bool>(
        &mut self,
        bytes: u32,
        start: &[u8; START],
    ) -> bool {
        // The length of an IPv4 packet counts its header.
        let (at, before) = if IPV6 {
            (IP + 4, IP + 40)
        } else {
            (IP + 2, IP)
        };
        let length = before as u32 + u32::from(u16::from_be_bytes(two(start, at)));
        let data = length.wrapping_sub(self.headers);
        // Without data, or with fewer bytes than its headers, `data` is no number up to `room`.
        let is_next = self.is_alike::<N>(start)
            & (four(start, tcp_at(IPV6) + 4) == self.next)
            & (length == bytes)
            & (data.wrapping_sub(1) < self.room);
        self.goes_on(is_next, data)
    }

    #[inline]
    fn takes_ack<const N: usize, const IPV6: bool>(
        &mut self,
        bytes: u32,
        start: &[u8; START],
    ) -> bool {
        let acked = four(start, tcp_at(IPV6) + 8).wrapping_sub(self.next);
        let is_next = self.is_alike::<N>(start)
            & (bytes == self.headers)
            & (acked.wrapping_sub(1) < self.room);
        self.goes_on(is_next, acked)
    }

    /// By so many bytes, at most `room`, if a frame is the next.
    #[inline]
    fn goes_on(&mut self, is_next: bool, bytes: u32) -> bool {
        if is_next {
            self.room -= bytes;
            self.next = self.next.wrapping_add(bytes);
        }
        is_next
    }

    /// Begins behind a segment whose header was `before`, and which has passed with its edits.
    pub fn begin(
        &mut self,
        ports: (u16, u16),
        packet: &Packet,
        before: &[u8; START],
        frame: &Frame,
        room: u32,
    ) {
        let segment = packet.segment();
        let (tcp, is_ipv6, is_ack) = (packet.tcp_at(), packet.is_ipv6(), segment.payload == 0);
        let tcp = usize::from(tcp);
        let headers = tcp + usize::from(segment.header_len);
        let most = if is_ipv6 { WORDS } else { WORDS4 };
        if headers > 8 * most || usize::from(packet.ip_at()) != IP {
            return;
        }
        (self.ports, self.work, self.room) = (ports, frame.work, room);
        self.kind = match (is_ack, is_ipv6) {
            (false, false) => Kind::Data4,
            (false, true) => Kind::Data6,
            (true, false) => Kind::Ack4,
            (true, true) => Kind::Ack6,
        };
        (self.headers, self.next) = match is_ack {
            true => (frame.bytes, segment.ack),
            false => (headers as u32, segment.seq.wrapping_add(segment.payload)),
        };
        (self.from, self.waiting) = (self.next, 0);
        self.edits = Edits::between(before, &frame.start, tcp, is_ipv6);
        self.compare(before, usize::from(segment.header_len) / 4);
    }

    /// Begins behind a frame that is no TCP, which so many vNICs have counted.
    pub fn begin_other(&mut self, ports: (u16, u16), frame: &Frame, why: usize, vnics: u32) {
        let least = match two(&frame.start, IP - 2) {
            [0x86, 0xdd] => OTHER_BYTES6,
            _ => OTHER_BYTES,
        };
        if frame.bytes < least {
            return;
        }
        self.least = least;
        (self.kind, self.ports, self.work) = (Kind::Other, ports, frame.work);
        (self.room, self.waiting) = (u32::MAX, 0);
        (self.why, self.vnics) = (why, vnics);
        self.compare(&frame.start, 0);
    }

    fn compare(&mut self, start: &[u8; START], header: usize) {
        self.mask = &MASKS[self.kind as usize][header & 15];
        for (word, header) in self.header.iter_mut().enumerate() {
            *header = word_of(start, word) & self.mask[word];
        }
    }

    /// Ends. Whether steps wait.
    #[inline]
    pub fn end(&mut self) -> bool {
        self.room = 0;
        self.waiting > 0
    }

    /// What has waited, which is known now.
    pub fn take(&mut self) -> Waiting {
        let packets = std::mem::take(&mut self.waiting);
        match self.kind {
            Kind::Data4 | Kind::Data6 => Waiting::Data {
                packets,
                seq: self.from,
                bytes: self.next.wrapping_sub(self.from),
            },
            Kind::Ack4 | Kind::Ack6 => Waiting::Acks {
                packets,
                ack: self.next,
            },
            Kind::Other => Waiting::Other {
                packets: packets * self.vnics,
                why: self.why,
            },
        }
    }
}
