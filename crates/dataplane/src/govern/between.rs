//! Frames that go from one guest to another at once: both vNICs in one pass.
//!
//! ```text
//!  frame ─parse─▶ sender's step ─▶ receiver's step ─▶ edits that are left of both ─▶ frame
//!     └─ of the same run of data: passes as the one before, and is stepped with the others
//! ```
//!
//! What the sender's vNIC writes and the receiver's removes (ECN codepoints, feedback) is not
//! written. Segments of data that follow each other in a burst are one segment for the steps, as
//! they are in a kernel, which meets them before they are cut (`c/sluice/run.h`).

use sluicegate_core::{
    abi::FlowKey,
    frame::Packet,
    segment::{Direction, Segment, Verdict, edit, tcp},
};

use super::{At, EDITS, Fate, Govern, view_of};
use crate::{
    count::Drop,
    frame::{Frame, START},
    memory::Memory,
    offload::Work,
};

/// Headers in words of eight bytes: Ethernet, IPv6, and TCP with time stamps. Segments with longer
/// ones make no runs.
const WORDS: usize = 12;
const HEADER: usize = 8 * WORDS;

/// Where the IP header begins: behind Ethernet's, without a tag.
const IP: usize = 14;

/// A run of data that passes from one port to another.
#[derive(Debug, Default)]
pub(super) struct Run {
    ports: (u16, u16),
    now_ns: u64,
    /// The header of the first segment as it came, where `mask` has ones: there all have the same.
    header: [u64; WORDS],
    mask: [u64; WORDS],
    work: Work,
    is_ipv6: bool,
    /// Bytes of a frame before its data.
    headers: u32,
    /// Number of the next byte.
    next: u32,
    /// Bytes that may follow; 0 = there is no run.
    room: u32,
    /// The first byte that has passed without a step.
    from: u32,
    edits: Edits,
    /// At the sender's vNIC and at the receiver's: the flow, and the first segment.
    sides: [(FlowKey, Segment); 2],
    /// Segments that have passed without a step.
    waiting: u32,
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

fn words(start: &[u8]) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(start.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    }
    words
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
    fn make<const TCP: usize>(&self, start: &mut [u8; START]) {
        if let Some(class) = self.class {
            start[IP..IP + 2].copy_from_slice(&class);
        }
        if self.ip_sum != 0 {
            apply(&mut start[IP + 10..IP + 12], self.ip_sum);
        }
        if let Some(window) = self.window {
            start[TCP + 14..TCP + 16].copy_from_slice(&window);
        }
        if self.tcp_sum != 0 {
            apply(&mut start[TCP + 16..TCP + 18], self.tcp_sum);
        }
    }
}

impl Run {
    /// Whether a frame is the next of the run. If so, it is edited, and its step waits.
    #[inline]
    fn takes(&mut self, ports: (u16, u16), frame: &mut Frame) -> bool {
        if self.room == 0 || ports != self.ports {
            return false;
        }
        // Constant places need no look whether they are in the frame.
        match self.is_ipv6 {
            false => self.takes_at::<{ IP + 20 }, { IP + 2 }, IP>(frame),
            true => self.takes_at::<{ IP + 40 }, { IP + 4 }, { IP + 40 }>(frame),
        }
    }

    /// The same, with the places of the TCP header and of the length, and from where that counts.
    #[inline]
    fn takes_at<const TCP: usize, const LENGTH: usize, const FROM: usize>(
        &mut self,
        frame: &mut Frame,
    ) -> bool {
        let start = words(&frame.start[..HEADER]);
        let both = start.iter().zip(&self.mask).zip(&self.header);
        let differing = both.fold(0, |sum, ((start, mask), header)| {
            sum | ((start & mask) ^ header)
        });
        let length = u16::from_be_bytes(two(&frame.start, LENGTH));
        let bytes = FROM as u32 + u32::from(length);
        let data = bytes.wrapping_sub(self.headers);
        let [high, low] = [TCP + 4, TCP + 6].map(|at| two(&frame.start, at));
        let seq = u32::from_be_bytes([high[0], high[1], low[0], low[1]]);
        // Without data, or with fewer bytes than its headers, `data` is no number up to `room`.
        let is_next = (differing == 0)
            & (seq == self.next)
            & (bytes == frame.bytes)
            & (data.wrapping_sub(1) < self.room);
        if !is_next || frame.work != self.work {
            return false;
        }
        self.room -= data;
        self.next = self.next.wrapping_add(data);
        self.waiting += 1;
        self.edits.make::<TCP>(&mut frame.start);
        true
    }

    /// Begins behind a segment whose header was `before`, and which has passed with its edits.
    fn begin(&mut self, packet: &Packet, before: &[u8; START], frame: &Frame, room: u32) {
        let tcp = usize::from(packet.tcp_at());
        let segment = packet.segment();
        let headers = tcp + usize::from(segment.header_len);
        if headers > HEADER || usize::from(packet.ip_at()) != IP {
            return;
        }
        (self.headers, self.work, self.room) = (headers as u32, frame.work, room);
        self.next = segment.seq.wrapping_add(segment.payload);
        (self.from, self.waiting, self.is_ipv6) = (self.next, 0, packet.is_ipv6());
        self.edits = Edits::between(before, &frame.start, tcp, self.is_ipv6);
        let mut mask = [0; HEADER];
        mask[..headers].fill(0xff);
        let lengths = match self.is_ipv6 {
            true => IP + 4..IP + 6,
            // Total length and identification.
            false => {
                mask[IP + 10..IP + 12].fill(0);
                IP + 2..IP + 6
            }
        };
        mask[lengths].fill(0);
        mask[tcp + 4..tcp + 8].fill(0);
        mask[tcp + 13] = !tcp::PSH;
        mask[tcp + 16..tcp + 18].fill(0);
        self.mask = words(&mask);
        self.header = words(&before[..HEADER]);
        for (header, mask) in self.header.iter_mut().zip(&self.mask) {
            *header &= mask;
        }
    }
}

/// The edits of both vNICs together, for a frame whose codepoint is `ecn`. `None`: feedback that
/// the first one adds stays in the frame, so the edits have to be made one after the other.
fn left_of(first: &Verdict, second: &Verdict, ecn: u8) -> Option<Verdict> {
    let mut left = *second;
    if first.edits & edit::ADD_FEEDBACK != 0 {
        if second.edits & edit::STRIP_FEEDBACK == 0 {
            return None;
        }
        left.edits &= !edit::STRIP_FEEDBACK;
    }
    if second.edits & edit::ECN == 0 && first.edits & edit::ECN != 0 {
        left.edits |= edit::ECN;
        left.ecn = first.ecn;
    }
    if left.ecn == ecn {
        left.edits &= !edit::ECN;
    }
    Some(left)
}

impl Govern {
    /// A frame that goes from the guest of one port to that of another at once, both of which have
    /// it without a tag: [`Govern::pass`] at the first, and if its fate is [`Fate::Pass`], at the
    /// second. Returns the last fate, and whose it is.
    ///
    /// The steps of a run's segments wait: [`Govern::settle`] has to follow the last frame of a
    /// burst. Until then, `now_ns` is the same.
    #[inline]
    pub fn pass_between(
        &mut self,
        ports: (u16, u16),
        frame: &mut Frame,
        memory: &Memory,
        now_ns: u64,
    ) -> (Direction, Fate) {
        if self.run.takes(ports, frame) {
            return (Direction::ToTenant, Fate::Pass);
        }
        self.settle();
        let (from, to) = ports;
        let (mut packet, mut at) = (Packet::default(), At::sent(from, now_ns));
        let (one, other) = (self.ifindex(from), self.ifindex(to));
        let Some(ifindex) = one.or(other) else {
            return (at.direction, Fate::Pass);
        };
        if one.is_none() {
            at = at.received(to);
        }
        if let Err(why) = packet.read(&view_of(frame), at.direction, ifindex) {
            return self.unread_between(at, to, frame, why);
        }
        let is_odd = frame
            .work
            .checksum
            .is_some_and(|sum| sum != (packet.tcp_at(), 16));
        if is_odd {
            return (at.direction, Fate::Drop(Drop::Malformed));
        }
        if let (Some(one), Some(other)) = (one, other) {
            if !packet.needs_trim() && !packet.wants_all(&view_of(frame)) {
                return self.judge_both(at, to, (one, other), frame, memory, &mut packet);
            }
        }
        let fate = self.pass_parsed(at, ifindex, frame, memory, &mut packet);
        let is_last = at.direction == Direction::ToTenant || other.is_none();
        if fate != Fate::Pass || is_last {
            return (at.direction, fate);
        }
        (
            Direction::ToTenant,
            self.pass_on(at.received(to), frame, memory),
        )
    }

    /// The receiver's vNIC, for a frame that is parsed anew.
    fn pass_on(&mut self, at: At, frame: &mut Frame, memory: &Memory) -> Fate {
        let Some(ifindex) = self.ifindex(at.port) else {
            return Fate::Pass;
        };
        let mut packet = Packet::default();
        match self.parse(at, ifindex, frame, &mut packet) {
            None => self.pass_parsed(at, ifindex, frame, memory, &mut packet),
            Some(fate) => fate,
        }
    }

    /// A frame that is no TCP that can be tracked, which is so at both vNICs.
    fn unread_between(&mut self, at: At, to: u16, frame: &Frame, why: usize) -> (Direction, Fate) {
        let fate = self.unread(at.port, frame, at.direction, why, at.now_ns);
        if at.direction == Direction::ToTenant || fate != Fate::Pass {
            return (at.direction, fate);
        }
        if self.ifindex(to).is_some() {
            self.vnics.unread(why);
        }
        (Direction::ToTenant, Fate::Pass)
    }

    /// The steps of both vNICs, and then the edits that are left.
    #[inline]
    fn judge_both(
        &mut self,
        at: At,
        to: u16,
        (one, other): (u32, u32),
        frame: &mut Frame,
        memory: &Memory,
        packet: &mut Packet,
    ) -> (Direction, Fate) {
        let first = match self.judge(at, packet, frame.bytes) {
            Ok(verdict) => verdict,
            Err(fate) => return (at.direction, fate),
        };
        let next = at.received(to);
        if first.edits & edit::WANT_FACK != 0 || !packet.turns(&first) {
            let fate = self.edit_frame(at, packet, frame, &first);
            return match fate {
                Fate::Pass => (next.direction, self.pass_on(next, frame, memory)),
                fate => (at.direction, fate),
            };
        }
        let ecn = packet.segment().ecn;
        let room = self.room(packet, &first);
        let sent = (room > 0).then(|| (*packet.key(), *packet.segment()));
        packet.turn(&first, other);
        let second = match self.judge(next, packet, frame.bytes) {
            Ok(verdict) => verdict,
            Err(fate) => return (next.direction, fate),
        };
        let Some(left) = left_of(&first, &second, ecn) else {
            packet.turn_back(&first, one);
            self.edit_frame(at, packet, frame, &first);
            packet.turn(&Verdict::default(), other);
            return (
                next.direction,
                self.edit_frame(next, packet, frame, &second),
            );
        };
        packet.take_back(&first);
        let Some(sent) = sent else {
            return (next.direction, self.edit_frame(next, packet, frame, &left));
        };
        let room = room.min(self.room(packet, &second));
        let before = frame.start;
        let fate = self.edit_frame(next, packet, frame, &left);
        if room > 0 {
            (self.run.ports, self.run.now_ns) = ((at.port, to), at.now_ns);
            self.run.sides = [sent, (*packet.key(), *packet.segment())];
            self.run.begin(packet, &before, frame, room);
        }
        (next.direction, fate)
    }

    /// Bytes of data that may follow a segment as a run.
    #[inline]
    fn room(&mut self, packet: &Packet, verdict: &Verdict) -> u32 {
        match packet.segment().payload {
            0 => 0,
            _ => self.vnics.run_room(packet.key(), packet.segment(), verdict),
        }
    }

    #[inline]
    fn edit_frame(
        &mut self,
        at: At,
        packet: &mut Packet,
        frame: &mut Frame,
        verdict: &Verdict,
    ) -> Fate {
        if verdict.edits & (EDITS | edit::WANT_FACK) == 0 {
            return Fate::Pass;
        }
        let mut view = view_of(frame);
        let fate = self.edit(at, packet, &mut view, verdict);
        let bytes = view.bytes();
        if bytes != frame.bytes {
            frame.resize(bytes);
        }
        fate
    }

    /// Takes the steps of segments that have passed and waited for it.
    #[inline]
    pub fn settle(&mut self) {
        self.run.room = 0;
        if self.run.waiting > 0 {
            self.step_run();
        }
    }

    #[inline(never)]
    fn step_run(&mut self) {
        let packets = std::mem::take(&mut self.run.waiting);
        let (from, bytes) = (self.run.from, self.run.next.wrapping_sub(self.run.from));
        for (key, segment) in &mut self.run.sides {
            (segment.seq, segment.payload) = (from, bytes);
            self.vnics.run(key, segment, packets, self.run.now_ns);
        }
    }
}

impl At {
    fn sent(port: u16, now_ns: u64) -> Self {
        Self {
            port,
            direction: Direction::FromTenant,
            vlan: 0,
            now_ns,
        }
    }

    fn received(self, port: u16) -> Self {
        Self {
            port,
            direction: Direction::ToTenant,
            ..self
        }
    }
}

#[cfg(test)]
#[path = "between_tests.rs"]
mod tests;
