//! Frames that go from one guest to another at once: both vNICs in one pass.
//!
//! ```text
//!  frame ─parse─▶ sender's step ─▶ receiver's step ─▶ edits that are left of both ─▶ frame
//!     └─ like the one before ([`Run`]): passes as that did, and is stepped with others
//! ```
//!
//! What the sender's vNIC writes and the receiver's removes (ECN codepoints, feedback) is not
//! written.

use sluicegate_core::{
    frame::Packet,
    segment::{Direction, Verdict, edit},
};
use sluicegate_vswitch::vnic::number;

use super::{At, EDITS, Fate, Govern, run::Waiting, tell_segments, view_of};
use crate::{count::Drop, frame::Frame, memory::Memory};

const NOT_TCP: usize = number("not_tcp");

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
    /// The exit of a frame that comes by a port, if it passes to that exit as the frame before it
    /// did. It has passed both vNICs then. If not, and it goes from guest to guest, it is for
    /// [`Govern::pass_between`].
    #[inline]
    pub fn follows(&mut self, port: u16, frame: &mut Frame) -> Option<u16> {
        self.run.takes(port, frame)
    }

    /// A frame that goes from the guest of one port to that of another at once, both of which have
    /// it without a tag: [`Govern::pass`] at the first, and if its fate is [`Fate::Pass`], at the
    /// second. Returns the last fate, and whose it is.
    ///
    /// The steps of frames that follow it wait: [`Govern::settle`] has to come after the last frame
    /// of a burst. Until then, `now_ns` is the same.
    #[inline]
    pub fn pass_between(
        &mut self,
        ports: (u16, u16),
        frame: &mut Frame,
        memory: &Memory,
        now_ns: u64,
    ) -> (Direction, Fate) {
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
            return self.unread_between(at, ports, frame, why);
        }
        tell_segments(&mut packet, frame);
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
    fn unread_between(
        &mut self,
        at: At,
        ports: (u16, u16),
        frame: &Frame,
        why: usize,
    ) -> (Direction, Fate) {
        let fate = self.unread(at.port, frame, at.direction, why, at.now_ns);
        if at.direction == Direction::FromTenant && fate != Fate::Pass {
            return (at.direction, fate);
        }
        let mut vnics = 1;
        if at.direction == Direction::FromTenant && self.ifindex(ports.1).is_some() {
            self.vnics.unread(why, 1);
            vnics = 2;
        }
        if why == NOT_TCP && !self.has_buckets(ports.0) {
            self.run.begin_other(ports, frame, why, vnics);
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
        let (before, bytes) = (frame.start, frame.bytes);
        let fate = self.edit_frame(next, packet, frame, &left);
        if room > 0 && frame.bytes == bytes {
            self.run.now_ns = at.now_ns;
            self.run.sides = [sent, (*packet.key(), *packet.segment())];
            self.run.begin((at.port, to), packet, &before, frame, room);
        }
        (next.direction, fate)
    }

    /// Bytes that may follow a segment as a run. A bucket is asked for each ACK.
    #[inline]
    fn room(&mut self, packet: &Packet, verdict: &Verdict) -> u32 {
        match packet.segment().payload {
            0 if self.charges_bare => 0,
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

    /// Takes the steps of frames that have passed and waited for it.
    #[inline]
    pub fn settle(&mut self) {
        if self.run.end() {
            self.step_run();
        }
    }

    #[inline(never)]
    fn step_run(&mut self) {
        let (waiting, now_ns) = (self.run.take(), self.run.now_ns);
        let [(from, sent), (to, received)] = &mut self.run.sides;
        let packets = match waiting {
            Waiting::Other { packets, why } => return self.vnics.unread(why, packets.into()),
            Waiting::Data {
                packets,
                seq,
                bytes,
            } => {
                for segment in [&mut *sent, &mut *received] {
                    (segment.seq, segment.payload) = (seq, bytes);
                }
                packets
            }
            Waiting::Acks { packets, ack } => {
                (sent.ack, received.ack) = (ack, ack);
                packets
            }
        };
        let (verdict, reports) = self.vnics.run(from, sent, (packets, 0), now_ns);
        received.set_feedback(&verdict);
        self.vnics.run(to, received, (packets, reports), now_ns);
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
