//! The receive window as Linux computes it ([`crate::config::Counted`]): packets count with the
//! memory that they take, the window opens as far as such packets would fit, and what begins in it
//! is taken as a whole.
//!
//! Rules: Linux's `tcp_data_queue`, `tcp_grow_window`, `__tcp_select_window`, `tcp_measure_rcv_mss`
//! and `tcp_prune_queue`.

use std::collections::VecDeque;

use sluicegate_core::number::narrow;

use super::{Endpoint, Events, NEVER, reassembly::Range, receiver::Receiver};
use crate::{
    Config, Segment,
    config::{Counted, DelayedAck},
    segment::flags,
};

/// A whole part of [`Memory::share`].
const WHOLE: u64 = 256;
/// Headroom in front of a packet, and what a kernel keeps behind and beside it.
const HEADROOM: u64 = 64;
const SHARED: u64 = 320;
const HEADER: u64 = 256;
/// The least memory of a packet's data.
const SMALL: u64 = 704;
/// The largest linear part of a packet that does not fit into a page, and a page.
const LINEAR: u64 = 3_712;
const PAGE: u64 = 4_096;
/// The least buffer, and the least window that it allows.
const LEAST: u64 = 2_304;
/// What an application may ask for at most (`net.core.rmem_max`).
const BUFFER_MOST: u64 = 212_992;
/// A SYN's window is at most this.
const SYN_WINDOW: u64 = 0xffff;

/// A packet in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Packet {
    range: Range,
    /// The memory that it takes, and how many more bytes of data that has room for.
    size: u64,
    room: u64,
}

impl Packet {
    /// Of data that came with so many bytes of headers. The room for a packet of less than a page
    /// is a power of two; of a larger one, what does not fit into the first page fills others.
    fn new(range: Range, payload: u64, headers: u64) -> Self {
        let length = payload + headers;
        let (size, room) = if HEADROOM + length < PAGE {
            let used = HEADROOM + length + SHARED;
            let size = if used <= SMALL {
                SMALL
            } else {
                used.next_power_of_two()
            };
            (size, size - used)
        } else {
            (PAGE + (length - LINEAR).next_multiple_of(PAGE), 0)
        };
        Self {
            range,
            size: size + HEADER,
            room,
        }
    }
}

/// What was dropped, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// Segments that begin or end beyond the window.
    pub beyond: u64,
    /// Data for a window that is closed.
    pub closed: u64,
    /// Data for which there was no memory.
    pub memory: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    rules: Counted,
    /// The buffer and how far it may grow, in bytes of memory; all in use of it.
    buffer: u64,
    most: u64,
    used: u64,
    /// How much of the memory is data, of [`WHOLE`]; half until a full segment has come.
    share: u64,
    /// The largest window, and the window for which packets like those so far would leave room.
    clamp: u64,
    threshold: u64,
    /// The window that was offered last, at which acknowledgement number, and the right edge that
    /// has been offered at most.
    window: u64,
    told: u64,
    edge: u64,
    /// Data taken by the application in the best round trip.
    space: u64,
    /// In order and not taken, and behind holes.
    ready: VecDeque<Packet>,
    waiting: Vec<Packet>,
    /// Data had to be dropped: the next ACK closes the window.
    full: bool,
    /// An application has the connection; until then the buffer does not grow.
    owned: bool,
    pub drops: Drops,
}

impl Memory {
    pub fn boxed(config: &Config) -> Option<Box<Self>> {
        let rules = config.counted?;
        let buffer = config.receive_buffer.initial_bytes;
        let space = buffer / 2;
        Some(Box::new(Self {
            rules,
            buffer,
            most: config.receive_buffer.max_bytes.max(buffer),
            used: 0,
            share: WHOLE / 2,
            clamp: if rules.locked { space } else { u64::MAX },
            threshold: 0,
            window: 0,
            told: 0,
            edge: 0,
            space: 0,
            ready: VecDeque::new(),
            waiting: Vec::new(),
            full: false,
            owned: true,
            drops: Drops::default(),
        }))
    }

    fn data_in(&self, memory: u64) -> u64 {
        memory * self.share / WHOLE
    }

    fn free(&self) -> u64 {
        self.data_in(self.buffer.saturating_sub(self.used))
    }

    /// The window's scale: for the largest buffer, or for half of one that does not grow.
    pub fn shift(rules: Counted, most: u64, scales: bool) -> u8 {
        let space = match rules.locked {
            true => most / 2,
            false => most.max(BUFFER_MOST),
        };
        let shift = space.max(1).ilog2().saturating_sub(15).min(14);
        if scales { shift as u8 } else { 0 }
    }

    /// Size of the buffer, in bytes of memory.
    pub fn buffer(&self) -> u64 {
        self.buffer
    }

    /// The right edge that has been offered at most.
    pub fn limit(&self, next: u64) -> u64 {
        self.edge.max(next)
    }

    /// The window of our SYN: half of the buffer in whole segments.
    pub fn first_window(&self, mss: u64) -> u16 {
        let space = (self.buffer / 2).min(self.clamp);
        let whole = if space > mss {
            space - space % mss
        } else {
            space
        };
        whole.min(SYN_WINDOW) as u16
    }

    /// The peer's stream begins at `first` and this much is offered.
    pub fn begin(&mut self, first: u64, window: u64) {
        (self.window, self.threshold) = (window, window);
        self.told = first;
        self.edge = self.edge.max(first + window);
    }

    /// The handshake is over: a segment of the buffer is kept back.
    pub fn established(&mut self, mss: u64, wscale: bool) {
        let most = self.data_in(self.buffer);
        if !wscale {
            self.clamp = self.clamp.min(SYN_WINDOW);
        }
        self.clamp = self.clamp.min(most);
        if self.clamp > 2 * mss && self.clamp + mss > most {
            self.clamp = (2 * mss).max(most - mss);
        }
        self.threshold = self.threshold.min(self.clamp);
        self.space = self.threshold.min(self.window).min(10 * mss);
    }

    /// Memory of what the application has taken up to `taken` is free again.
    fn release(&mut self, taken: u64) {
        while let Some(packet) = self.ready.front().filter(|it| it.range.end <= taken) {
            self.used -= packet.size;
            self.ready.pop_front();
        }
    }

    fn set_clamp(&mut self, bytes: u64) {
        let clamp = bytes.max(LEAST / 2);
        if clamp < self.clamp {
            self.threshold = self.threshold.min(clamp);
        } else {
            self.threshold = self.threshold.max(self.window.min(clamp));
        }
        self.clamp = clamp;
    }

    /// A packet with a larger segment than ever says which part of memory is data.
    fn learn_share(&mut self, payload: u64, size: u64) {
        let share = (payload * WHOLE / size).max(1);
        if share != self.share {
            self.share = share;
            self.set_clamp(self.data_in(self.buffer));
            self.space = self.space.min(self.clamp);
        }
    }

    /// The window grows by twice what has come if such packets fit; true if it does.
    fn grow(&mut self, payload: u64, size: u64, mss: u64, announced: u64) -> bool {
        let room = self.clamp.min(self.free()).saturating_sub(self.threshold);
        if room == 0 {
            return false;
        }
        let step = if self.data_in(size) <= payload {
            2 * announced
        } else {
            self.step_of_small(payload, size, mss)
        };
        if step > 0 {
            self.threshold += room.min(step.max(2 * payload));
        }
        step > 0
    }

    /// The smaller the window is against the largest, the more overhead is borne.
    fn step_of_small(&self, payload: u64, size: u64, mss: u64) -> u64 {
        let mut size = self.data_in(size) / 2;
        let mut window = self.data_in(self.most) / 2;
        while self.threshold <= window {
            if size <= payload {
                return 2 * mss;
            }
            (size, window) = (size / 2, window / 2);
        }
        0
    }

    /// The application took `copied` bytes in a round trip, or data waits up to `beyond` bytes
    /// behind a hole: the buffer follows.
    pub fn grow_buffer(&mut self, copied: u64, beyond: u64) {
        let old = self.space.max(1);
        self.space = copied;
        if self.rules.locked || !self.owned {
            return;
        }
        let growth = 2 * copied * copied.saturating_sub(old) / old;
        let wanted = (2 * copied + 2 * growth + beyond) * WHOLE / self.share;
        if wanted.min(self.most) > self.buffer {
            self.buffer = wanted.min(self.most);
            self.clamp = self.data_in(self.buffer);
        }
    }

    /// Whether a packet may be taken: while no more than the buffer is in use. If not, the window
    /// is cut.
    fn takes(&mut self, announced: u64) -> bool {
        if self.used <= self.buffer {
            return true;
        }
        if !self.rules.locked && self.buffer < self.most {
            self.buffer = self.used.min(self.most);
        }
        if self.used > self.buffer {
            self.threshold = self.clamp.min(2 * announced);
        }
        self.used <= self.buffer
    }

    /// The memory of a packet behind a hole.
    fn wait(&mut self, new: Packet) {
        let covers = |packet: &Packet| {
            packet.range.start <= new.range.start && packet.range.end >= new.range.end
        };
        if self.waiting.iter().any(covers) {
            return;
        }
        let inside = |packet: &Packet| {
            new.range.start <= packet.range.start && new.range.end >= packet.range.end
        };
        let freed: u64 = (self.waiting.iter().filter(|it| inside(it)))
            .map(|packet| packet.size)
            .sum();
        self.waiting.retain(|packet| !inside(packet));
        self.used = self.used - freed + new.size;
        let at = self
            .waiting
            .partition_point(|packet| packet.range.start < new.range.start);
        self.waiting.insert(at, new);
    }

    /// The memory of a packet in order. A small one may be copied to the end of the last one.
    fn store(&mut self, packet: Packet, payload: u64) {
        if let Some(last) = self.ready.back_mut() {
            if payload <= last.room {
                last.room -= payload;
                last.range.end = packet.range.end;
                return;
            }
        }
        self.used += packet.size;
        self.ready.push_back(packet);
    }

    /// What waited is in order up to `next`.
    fn advance(&mut self, next: u64, from: u64) {
        let reached = self
            .waiting
            .partition_point(|packet| packet.range.start <= next);
        for packet in self.waiting.drain(..reached) {
            if packet.range.end <= from {
                self.used -= packet.size;
            } else {
                self.ready.push_back(packet);
            }
        }
    }

    /// The window that is still open at `next`.
    pub fn open(&self, next: u64) -> u64 {
        (self.told + self.window).saturating_sub(next)
    }

    /// The window that memory allows; true as well if it is a small part of the buffer.
    fn select(&self, mss: u64, wscale: u8) -> (u64, bool) {
        let all = self.data_in(self.buffer);
        let full = self.clamp.min(all);
        let mss = mss.min(full);
        let unit = 1 << wscale;
        let shrinks = self.rules.shrinks && wscale > 0;
        let mut free = self.free();
        let tight = free < full / 2;
        if shrinks || tight {
            free -= free % unit;
        }
        if tight && (free < all / 16 || free < mss) {
            return (0, true);
        }
        if wscale > 0 {
            return (free.min(self.threshold).next_multiple_of(unit), tight);
        }
        let (free, now) = (free.min(self.threshold), self.window);
        let window = if now + mss <= free || now > free {
            free - free % mss.max(1)
        } else if mss == full && free > now + full / 2 {
            free
        } else {
            now
        };
        (window, tight)
    }

    /// The window field beside acknowledgement number `next`.
    fn offer(&mut self, next: u64, mss: u64, wscale: u8) -> u16 {
        let unit = 1u64 << wscale;
        let now = self.open(next);
        let mut window = self.select(mss, wscale).0;
        if window < now && !(self.rules.shrinks && wscale > 0) {
            window = now.next_multiple_of(unit);
        }
        if std::mem::take(&mut self.full) {
            window = 0;
        }
        (self.window, self.told) = (window, next);
        self.edge = self.edge.max(next + window);
        (window >> wscale).min(0xffff) as u16
    }
}

impl Receiver {
    /// The window field, where memory is counted.
    pub(super) fn offer_counted(&mut self) -> u16 {
        let (next, mss, wscale) = (self.next, u64::from(self.mss), self.wscale());
        let taken = self.taken;
        let Some(memory) = &mut self.memory else {
            return 0;
        };
        memory.release(taken);
        memory.offer(next, mss, wscale)
    }

    /// The application has taken data: an ACK of its own where one was held back because the window
    /// could not move, or when the window doubles.
    pub(super) fn update_counted_window(&mut self) {
        let (next, mss, wscale) = (self.next, u64::from(self.mss), self.wscale());
        let (taken, unanswered) = (self.taken, self.next - self.acked);
        let Some(memory) = &mut self.memory else {
            return;
        };
        memory.release(taken);
        let now = memory.open(next);
        let doubles = 2 * now <= memory.clamp && {
            let window = memory.select(mss, wscale).0;
            window > 0 && window >= 2 * now
        };
        self.ack_now |= doubles || (self.delayed_ns != NEVER && unanswered > mss);
    }

    /// Of what arrives a burst of `payload` bytes: the size of its segments.
    fn measure_counted(&mut self, payload: u64, size: u64) {
        let announced = self.announced();
        let Some(memory) = &mut self.memory else {
            return;
        };
        let len = narrow::<u32>(payload.min(memory.rules.offload_bytes.into()));
        if len > self.mss {
            memory.learn_share(payload, size);
            self.mss = len.min(announced);
        }
    }

    /// The next ACKs are not delayed: as many as the window has pairs of segments.
    fn quicken(&mut self, delayed: &DelayedAck) {
        let window = self.memory.as_ref().map_or(0, |memory| memory.window);
        let pairs = (window / (2 * u64::from(self.mss))).max(2);
        let quick = narrow::<u8>(pairs.min(delayed.quick.into()));
        self.quick = self.quick.max(quick);
    }

    /// Data has come in order: acknowledge now or later. An ACK for more than a segment waits while
    /// the window could not move.
    fn schedule_counted(&mut self, now_ns: u64, config: &Config, rto_ns: u64) {
        let delayed = &config.delayed_ack;
        if self.data_ns == 0 || now_ns.saturating_sub(self.data_ns) > rto_ns {
            self.quicken(delayed);
            self.interactive = false;
        }
        self.data_ns = now_ns.max(1);
        let held = u64::from(delayed.segments.saturating_sub(1));
        let (many, wscale) = (
            self.next - self.acked > held * u64::from(self.mss),
            self.wscale(),
        );
        if let Some(memory) = self.memory.as_ref().filter(|_| many) {
            let (window, tight) = memory.select(self.mss.into(), wscale);
            self.ack_now |= window >= memory.window;
            if tight {
                self.quick = 0;
            }
        }
        if self.quick > 0 && !self.interactive {
            self.ack_now = true;
        } else if !self.ack_now && self.delayed_ns == NEVER {
            self.delayed_ns = now_ns + delayed.timeout_ns;
        }
    }
}

impl Endpoint {
    /// An application has the connection ([`Config::counted`]): from now on the buffer may grow.
    pub fn own(&mut self, owned: bool) {
        if let Some(memory) = &mut self.receiver.memory {
            memory.owned = owned;
        }
    }

    /// Sets the size of the receive buffer, in bytes of memory, for good ([`Config::counted`]).
    pub fn set_receive_buffer(&mut self, bytes: u64) {
        if let Some(memory) = &mut self.receiver.memory {
            memory.buffer = bytes.max(LEAST);
            memory.rules.locked = true;
        }
    }

    /// What was dropped ([`Config::counted`]).
    pub fn drops(&self) -> Drops {
        let memory = self.receiver.memory.as_ref();
        memory.map_or_else(Drops::default, |memory| memory.drops)
    }

    /// A segment may begin and end anywhere in the largest window that was ever offered. A FIN may
    /// lie behind it, and so may the end of data that finds no other data waiting to be taken.
    pub(super) fn is_in_counted_window(&mut self, segment: &Segment, seq: u64) -> bool {
        let (next, acked) = (self.receiver.next, self.receiver.acked);
        let waits = self.receiver.readable() > 0;
        let Some(memory) = &mut self.receiver.memory else {
            return false;
        };
        let end = seq + u64::from(segment.length());
        let edge = memory.edge.max(next);
        if end < acked {
            return false;
        }
        let fits = end - u64::from(segment.has(flags::FIN)) <= edge || (seq <= edge && !waits);
        memory.drops.beyond += u64::from(!fits && !segment.has(flags::RST));
        fits
    }

    /// Data or FIN where memory is counted.
    pub(super) fn data_counted(&mut self, now_ns: u64, segment: &Segment, seq: u64) -> Events {
        let end = seq + u64::from(segment.length());
        let receiver = &mut self.receiver;
        let (next, taken) = (receiver.next, receiver.taken);
        let Some(memory) = &mut receiver.memory else {
            return Events::EMPTY;
        };
        memory.release(taken);
        let open = memory.open(next);
        let bare = segment.payload == 0;
        if seq >= next + open && (seq > next || !bare) {
            let drops = &mut memory.drops;
            *(if seq > next {
                &mut drops.beyond
            } else {
                &mut drops.closed
            }) += 1;
            return self.refuse();
        }
        if seq < next {
            self.note_duplicate(seq, next);
            if open == 0 {
                if let Some(memory) = &mut self.receiver.memory {
                    memory.drops.closed += 1;
                }
                return self.refuse();
            }
        }
        self.take_counted(now_ns, segment, Range { start: seq, end })
    }

    /// What is beyond the window is answered at once, and so are the next ones.
    fn refuse(&mut self) -> Events {
        self.receiver.ack_first = true;
        self.receiver.quicken(&self.config.delayed_ack);
        Events::EMPTY
    }

    /// The memory for a segment in the window, if there is any.
    fn take_counted(&mut self, now_ns: u64, segment: &Segment, range: Range) -> Events {
        let receiver = &mut self.receiver;
        let (next, announced) = (receiver.next, u64::from(receiver.announced()));
        let waits = receiver.readable() > 0;
        let Some(memory) = &mut receiver.memory else {
            return Events::EMPTY;
        };
        let behind = range.start > next;
        if !memory.takes(announced) {
            if behind {
                memory.drops.memory += 1;
                return Events::EMPTY;
            }
            (memory.full, receiver.ack_now) = (true, true);
            if waits && segment.payload > 0 {
                memory.drops.memory += 1;
                return Events::EMPTY;
            }
        }
        self.note_congestion(segment);
        if segment.has(flags::FIN) {
            self.receiver.fin = range.end - 1;
        }
        let payload = u64::from(segment.payload);
        let packet = Packet::new(range, payload, 20 + u64::from(segment.header_len()));
        if behind {
            self.queue_counted(packet, payload);
            return Events::EMPTY;
        }
        self.in_order_counted(now_ns, segment, packet)
    }

    /// Data behind a hole.
    fn queue_counted(&mut self, packet: Packet, payload: u64) {
        let (sack, most) = (self.options.sack, self.config.reassembly_segments);
        let receiver = &mut self.receiver;
        receiver.measure_counted(payload, packet.size);
        receiver.queue(packet.range, most, sack);
        let (mss, announced) = (u64::from(receiver.mss), u64::from(receiver.announced()));
        let Some(memory) = &mut receiver.memory else {
            return;
        };
        if sack && memory.grow(payload, packet.size, mss, announced) {
            receiver.quick |= 1;
        }
        memory.wait(packet);
        let last = memory.waiting.last().map_or(0, |last| last.range.end);
        let beyond = last.saturating_sub(receiver.next);
        memory.grow_buffer(memory.space, beyond);
    }

    /// Data or FIN that follows what is here.
    fn in_order_counted(&mut self, now_ns: u64, segment: &Segment, packet: Packet) -> Events {
        let payload = u64::from(segment.payload);
        let receiver = &mut self.receiver;
        let (start, end) = (receiver.next, packet.range.end);
        receiver.measure_counted(payload, packet.size);
        if receiver.disorder {
            receiver.join(Range { start, end }, self.options.sack);
        } else {
            receiver.next = end;
        }
        let finished = receiver.next > receiver.fin;
        self.counts.received_bytes += receiver.next - start - u64::from(finished);
        let (mss, announced) = (u64::from(receiver.mss), u64::from(receiver.announced()));
        if let Some(memory) = &mut receiver.memory {
            memory.store(packet, payload);
            if payload >= 128 && memory.grow(payload, packet.size, mss, announced) {
                receiver.quick |= 1;
            }
            memory.advance(receiver.next, end);
        }
        if receiver.tunes() {
            self.measure_receivers_rtt(now_ns, segment, start);
        }
        if finished {
            return self.fin_reached(now_ns, payload > 0) | Events::READABLE;
        }
        let rto_ns = self.rtt.rto();
        self.receiver.schedule_counted(now_ns, &self.config, rto_ns);
        Events::READABLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(payload: u64) -> u64 {
        Packet::new(
            Range {
                start: 0,
                end: payload,
            },
            payload,
            40,
        )
        .size
    }

    fn counted(buffer: u64, locked: bool) -> Box<Memory> {
        let mut config = Config::linux(1460);
        (
            config.receive_buffer.initial_bytes,
            config.receive_buffer.max_bytes,
        ) = (buffer, buffer);
        config.counted = Some(Counted {
            offload_bytes: 1_000,
            locked,
            shrinks: false,
        });
        Memory::boxed(&config).expect("memory is counted")
    }

    #[test]
    fn a_packet_takes_a_power_of_two_or_whole_pages() {
        // 704 or 2048 bytes of data and what is beside it; a page, and one or two more.
        assert_eq!((size(10), size(1_000)), (960, 2_304));
        assert_eq!((size(4_000), size(9_000)), (8_448, 12_544));
        assert_eq!(size(65_000), 65_792);
    }

    #[test]
    fn the_scale_follows_from_the_largest_buffer_or_half_of_a_fixed_one() {
        let rules = |locked| Counted {
            offload_bytes: 1_000,
            locked,
            shrinks: false,
        };
        assert_eq!(Memory::shift(rules(true), 2_000_000, true), 4);
        assert_eq!(Memory::shift(rules(true), 40_000, true), 0);
        assert_eq!(Memory::shift(rules(false), 15 << 20, true), 8);
        assert_eq!(Memory::shift(rules(false), 9_000, true), 2);
        assert_eq!(Memory::shift(rules(false), 15 << 20, false), 0);
    }

    #[test]
    fn the_window_grows_with_packets_that_fit_and_is_bounded_by_memory() {
        let mut memory = counted(131_072, false);
        let first = memory.first_window(1_460);
        assert_eq!(first, 64_240); // 44 segments of half the buffer
        memory.begin(1, first.into());
        memory.established(1_460, true);
        assert_eq!(memory.threshold, 65_536 - 1_460);
        // 9000 of 12544 bytes are data: 183 of 256.
        memory.learn_share(9_000, 12_544);
        assert_eq!((memory.share, memory.clamp), (183, 131_072 * 183 / 256));
        assert!(memory.grow(9_000, 12_544, 1_000, 1_460));
        assert_eq!(memory.threshold, 64_240 + 18_000);
        // Free: 10000 bytes, of which 7148 are data, six units of the scale. A sixteenth is 5856.
        memory.used = 131_072 - 10_000;
        assert_eq!(memory.select(1_000, 10), (6_144, true));
        memory.used = 131_072 - 8_000;
        assert_eq!(memory.select(1_000, 10), (0, true));
    }

    #[test]
    fn memory_is_free_again_when_data_are_read_or_come_twice() {
        let mut memory = counted(40_000, true);
        let packet = |start, end| Packet::new(Range { start, end }, end - start, 40);
        memory.store(packet(1, 1_001), 1_000);
        memory.store(packet(1_001, 1_501), 500); // into the room behind the first
        assert_eq!(memory.used, 2_304);
        memory.wait(packet(3_001, 4_001));
        memory.wait(packet(3_001, 3_501)); // nothing new
        memory.wait(packet(2_501, 4_001)); // in place of the first
        assert_eq!(memory.used, 2 * 2_304);
        memory.release(1_500);
        assert_eq!(memory.used, 2 * 2_304);
        memory.release(1_501);
        memory.advance(4_001, 2_501);
        memory.release(4_001);
        assert_eq!((memory.used, memory.waiting.len()), (0, 0));
    }
}
