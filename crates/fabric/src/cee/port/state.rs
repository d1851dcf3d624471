//! The state of one port that every frame reads and writes. Only the methods here and those of
//! [`OutputPorts`](super::OutputPorts) write it.

use crate::{
    cee::PortSpec,
    graph::Node,
    pool::{Handle, NIL},
};

/// No event pending.
pub const NEVER: u64 = u64::MAX;

/// The frames that the port sends are reported.
const WATCHED: u8 = 1;
/// The far end belongs to another part of the run.
const AWAY: u8 = 2;

/// The set of priorities in which frames wait at a port, bit p for priority p. In an adapter only
/// those frames count that no rate limiter delays; the adapter keeps the set of its port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting(pub(super) u8);

impl Waiting {
    /// Frames of a priority wait.
    #[inline(always)]
    pub fn add(&mut self, priority: usize) {
        self.0 |= 1 << priority;
    }

    /// No frame of a priority waits any more.
    #[inline(always)]
    pub fn remove(&mut self, priority: usize) {
        self.0 &= !(1 << priority);
    }

    /// No frame waits any more.
    pub fn clear(&mut self) {
        self.0 = 0;
    }

    /// Whether frames of a priority wait.
    pub(super) fn has(self, priority: usize) -> bool {
        self.0 & 1 << priority != 0
    }
}

/// The state of a port that every frame reads and writes: one cache line.
#[repr(C, align(64))]
pub struct Port {
    /// First and last frame on the wire: its header (at cut-through switches) or its last bit has
    /// not arrived yet.
    pub(super) first: Handle,
    pub(super) last: Handle,
    /// When the first frame arrives.
    pub(super) first_ps: u64,
    /// When the last bit sent so far leaves: the port is idle from then on.
    pub(super) free_ps: u64,
    /// The time of the port's next [`Timer::Transmit`](crate::contract::Timer), or [`NEVER`]. A
    /// lazy adapter keeps the time here without requesting the timer.
    pub(super) armed_ps: u64,
    pub(super) accepted: u64,
    pub(super) accepted_bytes: u64,
    pub(super) queued_bytes: u32,
    pub(super) class: u16,
    pub(super) waiting: Waiting,
    /// Bit p: a pause stops priority p.
    pub(super) shut: u8,
    pub(super) down: bool,
    /// [`WATCHED`], [`AWAY`].
    pub(super) followed: u8,
    /// Bit p: the port is punctual while frames of priority p wait: see
    /// [`Cee::catch_up`](crate::cee::Cee::catch_up).
    pub(super) punctual: u8,
    /// An event is set for the arrival of the frame that begins as soon as the port is free.
    pub(super) expected: bool,
    /// A lazy adapter has set an event for the arrival of the frame that begins at `armed_ps`.
    pub(super) foreseen: bool,
    /// The port belongs to a host.
    pub(super) is_adapter: bool,
    /// The AQM averages the queue length, so even a frame that meets an empty queue may be dropped
    /// or marked.
    pub(super) averages: bool,
    /// The link is up, the port is not watched, and its AQM averages nothing: a frame that meets an
    /// idle, empty port is sent without further checks.
    pub(super) plain: bool,
}

const _: () = assert!(size_of::<Port>() == 64);

impl Port {
    pub(super) fn new(class: u16, spec: &PortSpec) -> Self {
        let averages = spec.aqm.harmless_bytes() == 0;
        Self {
            first: NIL,
            last: NIL,
            first_ps: 0,
            free_ps: 0,
            armed_ps: NEVER,
            accepted: 0,
            accepted_bytes: 0,
            queued_bytes: 0,
            class,
            waiting: Waiting::default(),
            shut: 0,
            down: false,
            followed: 0,
            punctual: u8::MAX,
            expected: false,
            foreseen: false,
            is_adapter: matches!(spec.near, Node::Host(_)),
            averages,
            plain: !averages,
        }
    }

    /// Sets whether the link is down and who follows the port's frames.
    fn set(&mut self, down: bool, followed: u8) {
        (self.down, self.followed) = (down, followed);
        self.plain = !down && !self.is_watched() && !self.averages;
    }

    /// The link has failed, or works again.
    pub fn set_down(&mut self, down: bool) {
        self.set(down, self.followed);
    }

    /// From now on the frames that the port sends are reported.
    pub fn watch(&mut self) {
        self.set(self.down, self.followed | WATCHED);
    }

    /// From now on the frames that the port sends are handed to another part of the run.
    pub fn set_away(&mut self) {
        self.followed |= AWAY;
    }

    /// Whether the far end belongs to another part of the run.
    #[inline]
    pub fn is_away(&self) -> bool {
        self.followed & AWAY != 0
    }

    /// Whether every frame needs an event when it leaves.
    #[inline]
    pub(super) fn is_followed(&self) -> bool {
        self.followed != 0
    }

    /// Sets the priorities that pauses stop: those that the port's pauses say.
    #[inline]
    pub fn set_shut(&mut self, priorities: u8) {
        self.shut = priorities;
    }

    /// When the last bit sent so far leaves.
    #[inline(always)]
    pub fn free_ps(&self) -> u64 {
        self.free_ps
    }

    /// The time of the next timer, or [`NEVER`]. A lazy adapter has not requested it.
    #[inline(always)]
    pub fn armed_ps(&self) -> u64 {
        self.armed_ps
    }

    /// Whether the link has failed.
    #[inline(always)]
    pub fn is_down(&self) -> bool {
        self.down
    }

    /// Whether the frames that the port sends are reported.
    #[inline(always)]
    pub fn is_watched(&self) -> bool {
        self.followed & WATCHED != 0
    }

    /// Whether the port belongs to a host.
    #[inline(always)]
    pub fn is_adapter(&self) -> bool {
        self.is_adapter
    }

    /// Whether even a frame that meets an empty queue may be dropped or marked.
    #[inline(always)]
    pub fn averages(&self) -> bool {
        self.averages
    }

    /// Whether a frame that meets an idle, empty port is sent without further checks.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// Bit p: a pause stops priority p.
    #[inline]
    pub fn shut(&self) -> u8 {
        self.shut
    }

    /// Whether no frame is on the wire.
    #[inline(always)]
    pub fn is_wire_empty(&self) -> bool {
        self.first == NIL
    }

    /// In an adapter: the set of priorities in which frames wait, which the adapter keeps.
    #[inline(always)]
    pub fn waiting_mut(&mut self) -> &mut Waiting {
        debug_assert!(self.is_adapter, "the queues of a switch's port know");
        &mut self.waiting
    }

    /// What waits now leaves no earlier than now: a late decision must not send a frame before its
    /// arrival.
    #[inline(always)]
    pub fn send_nothing_before(&mut self, now_ps: u64) {
        self.free_ps = self.free_ps.max(now_ps);
    }

    /// Whether an event is set for the arrival of the frame that begins when the port is free.
    #[inline(always)]
    pub fn is_expected(&self) -> bool {
        self.expected
    }

    /// The event for which a frame was expected stands for no frame any more.
    #[inline(always)]
    pub fn expect_nothing(&mut self) {
        self.expected = false;
    }

    /// The expected event has been used, unless it was expected before.
    #[inline(always)]
    pub fn expect_only_if(&mut self, was_expected: bool) {
        self.expected &= was_expected;
    }

    /// A lazy adapter acts at the time for which it is armed, if this is that time. The arrival
    /// that was foreseen for it is now expected.
    #[inline(always)]
    pub fn disarm_at(&mut self, at_ps: u64) {
        if at_ps == self.armed_ps {
            self.armed_ps = NEVER;
            self.expected |= std::mem::take(&mut self.foreseen);
        }
    }

    /// Arms the port for this time without a request to the owner.
    #[inline(always)]
    pub fn set_armed(&mut self, at_ps: u64) {
        (self.armed_ps, self.foreseen) = (at_ps, false);
    }

    /// Counts an accepted frame.
    #[inline]
    pub fn accept(&mut self, bytes: u32) {
        self.accepted += 1;
        self.accepted_bytes += u64::from(bytes);
    }

    /// Bit p: no pause stops priority p.
    #[inline(always)]
    pub fn open(&self) -> u8 {
        !self.shut
    }

    /// Whether all bits sent so far have left.
    #[inline(always)]
    pub fn is_idle(&self, now_ps: u64) -> bool {
        self.free_ps <= now_ps
    }

    /// The priorities in which frames wait that no pause stops.
    #[inline(always)]
    pub fn eligible(&self) -> u8 {
        self.waiting.0 & self.open()
    }

    /// Whether frames wait, paused ones too.
    #[inline(always)]
    pub fn has_waiting(&self) -> bool {
        self.waiting.0 != 0
    }

    /// Whether a frame waits that no pause stops.
    #[inline(always)]
    pub fn has_eligible(&self) -> bool {
        self.eligible() != 0
    }

    /// Whether no frame waits, and a frame of this priority may leave now.
    #[inline(always)]
    pub fn may_pass(&self, priority: u8, now_ps: u64) -> bool {
        self.waiting.0 | self.shut & 1 << priority == 0 && self.is_idle(now_ps)
    }

    /// Whether a frame of this priority may leave now, before those that wait: these are paused and
    /// have other priorities.
    #[inline]
    pub fn goes_through(&self, priority: u8, now_ps: u64) -> bool {
        let bit = 1u8 << priority;
        self.waiting.0 & (bit | self.open()) == 0
            && self.open() & bit != 0
            && self.is_idle(now_ps)
            && !self.down
    }

    /// When the next of the frames that wait leaves, if no pause stops it; else [`NEVER`].
    #[inline(always)]
    pub fn due_ps(&self) -> u64 {
        if self.has_eligible() {
            self.free_ps
        } else {
            NEVER
        }
    }

    /// Whether the port is lazy at present: see [`Cee::catch_up`](crate::cee::Cee::catch_up).
    #[inline(always)]
    pub fn is_patient(&self) -> bool {
        self.waiting.0 & self.punctual == 0
    }

    /// Whether the port is lazy whatever waits, as adapters may be.
    #[inline(always)]
    pub fn is_lazy(&self) -> bool {
        self.punctual == 0
    }
}
