//! The contract between a fabric and its driver: the same for plain and converged Ethernet, and
//! compiled for each.
//!
//! A driver changes a fabric only through methods of [`Driver`]. Before they return, they set the
//! timers that the fabric has requested and carry out the effects, so no caller can forget them.

use std::ops::Deref;

use crate::{
    cee::{CeeStats, Deadlock, Departure, PauseFrame, PortSpec, QueueKey},
    graph::PortId,
    impair::Impairment,
    pool::{Handle, Pool},
    port::{Frame, PortStats, Ports},
};

/// Why a fabric requests a call at a later time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A frame is at the far end of a port: [`Fabric::arrive`].
    Arrival,
    /// A port may send.
    Transmit,
    /// A pause of a port takes effect, has to be renewed, or ends.
    Control,
    /// A receiving adapter no longer waits for frames that later ones have overtaken:
    /// [`Fabric::give_up`].
    Resequence,
}

/// A clock that calls the fabric at a given time.
pub trait Timers {
    /// Requests a call at `at_ps`. `index` is a port, or a host for [`Timer::Resequence`].
    fn set(&mut self, timer: Timer, index: u32, at_ps: u64);
}

/// An action that a fabric requests from its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Set this timer ([`Timers::set`]).
    Timer(Timer, u32, u64),
    /// A switch has made a notification: choose its output port and call
    /// [`Fabric::send_notification`].
    Notify(u32, Handle),
    /// A watched port ([`Fabric::watch`]) begins to send a frame, whose last bit leaves at this
    /// time.
    Sent(PortId, Handle, u64),
    /// A watched port sends a pause frame, whose last bit leaves at this time.
    PauseSent(PortId, PauseFrame, u64),
    /// A frame has left the adapter of a host that counts departures
    /// ([`Fabric::count_departures`]).
    Left(u16, Handle),
    /// A host's link has failed, and its adapter has lost a frame. The driver releases the frame.
    Lost(u16, Handle),
    /// The host's adapter has room in this priority again, and a sender waits for it.
    Room(u16, u8),
}

/// The fate of a frame that was offered to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// The frame leaves as soon as the port has sent the frames before it.
    Leaves,
    /// The frame may have to wait. If the port is watched, [`Effect::Sent`] reports its departure.
    Waits,
    /// The port leads to another part of the run, where the frame arrives at this time.
    Away(u64),
    /// The port has dropped and released the frame.
    Dropped,
}

/// The queue of an adapter from which frames come to a host. They leave it in the order of their
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// The sending host.
    pub source: u16,
    /// 0..=7.
    pub priority: u8,
    /// The path value of its frames: see [`QueueKey::path`].
    pub path: u32,
}

/// What a host receives when a frame arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The frame.
    Frame,
    /// The frame, then the later frames of the same queue that have waited for it
    /// ([`Fabric::next_in_order`]).
    FrameAndFollowing(Origin),
    /// Nothing yet: the adapter keeps the frame until the missing frames before it have arrived.
    Kept,
    /// Nothing: the frame is a notification for the adapter ([`Fabric::absorb`]).
    Notification,
}

/// Numbers of frames, by their origin or fate, for the account of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Copies and notifications that the fabric made.
    pub made: u64,
    /// Frames that the fabric dropped.
    pub dropped: u64,
    /// Frames in the fabric.
    pub underway: u64,
    /// Notifications that adapters have taken.
    pub absorbed: u64,
}

/// Links, the switches between them and the sending sides of hosts.
pub trait Fabric: Sized {
    /// The type of frames.
    type Frame: Frame;

    /// Whether an adapter bounds each priority separately and reports room and departures by
    /// effects. Otherwise an adapter has one queue in order, and the departure of each frame is
    /// known when it joins the queue.
    const HAS_LANES: bool;

    /// The ports that have one queue in order, those within hosts included, and the pool with the
    /// frames of all ports.
    fn ports(&self) -> &Ports<Self::Frame>;

    /// See [`Fabric::ports`].
    fn ports_mut(&mut self) -> &mut Ports<Self::Frame>;

    /// Offers a frame to a port within a host, or to an adapter without queues of its own
    /// ([`Fabric::has_queues`]).
    fn offer(
        &mut self,
        timers: &mut impl Timers,
        port: PortId,
        frame: Handle,
        now_ps: u64,
    ) -> Accepted;

    /// Gives a frame to the adapter of its host, or to the host's stack if the way down takes time.
    fn send(
        &mut self,
        timers: &mut impl Timers,
        port: PortId,
        frame: Handle,
        departure: Departure,
        now_ps: u64,
    ) -> Accepted;

    /// A frame has come down its host's stack and is at the adapter.
    fn submit(&mut self, frame: Handle, now_ps: u64);

    /// A switch forwards a frame that has arrived over `ports[0]` to `ports[1]`.
    fn forward(
        &mut self,
        timers: &mut impl Timers,
        ports: [PortId; 2],
        frame: Handle,
        now_ps: u64,
    ) -> Accepted;

    /// [`Timer::Arrival`]: takes the frame that has reached the far end of a port, if one has.
    fn arrive(&mut self, timers: &mut impl Timers, port: PortId, now_ps: u64) -> Option<Handle>;

    /// [`Timer::Transmit`] or [`Timer::Control`] of a port is due.
    fn timer(&mut self, timer: Timer, port: PortId, now_ps: u64);

    /// A frame has arrived at a host; `at` is the port that it came by, and the host.
    fn receive(
        &mut self,
        timers: &mut impl Timers,
        at: (PortId, u16),
        frame: Handle,
        now_ps: u64,
    ) -> Received;

    /// Sets the requested timers that come before the first effect; true if there are effects.
    fn set_timers(&mut self, timers: &mut impl Timers) -> bool;

    /// The effect at this position; `None` behind the last one, after which the list is empty.
    fn effect(&mut self, at: usize) -> Option<Effect>;

    /// Checks that what each part of the fabric counts is what it holds.
    ///
    /// # Errors
    /// The first difference.
    fn audit(&self) -> Result<(), String>;

    /// The account of every frame that the driver does not hold.
    fn books(&self) -> Books;

    /// Frames transmitted on links so far.
    fn hops(&self) -> u64;

    /// Bytes queued at a port.
    fn backlog_bytes(&mut self, port: PortId, now_ps: u64) -> u64;

    /// A direction of a link fails, or works again.
    fn set_up(&mut self, port: PortId, up: bool, now_ps: u64);

    /// Sets the rate of the frames that a port sends from now on.
    fn set_rate(&mut self, port: PortId, rate_bps: u64, now_ps: u64);

    /// Sets the impairment of the frames that arrive over a port's link from now on.
    fn set_impairment(&mut self, port: PortId, impairment: Impairment);

    /// Whether frames that arrive over a port's link have to pass [`Ports::fate`].
    fn is_impaired(&self, port: PortId) -> bool;

    /// Prefetches the state of a port.
    fn fetch_port(&self, port: PortId);

    /// Prefetches the first frame under way on a port, and the state that chooses the next one.
    fn fetch_first(&self, port: PortId);

    /// Prefetches the memory that a frame needs when it joins a port.
    fn fetch_queue(&self, port: PortId);

    /// The first frame under way on a port.
    fn first(&self, port: PortId) -> Option<&Self::Frame>;

    /// The counters of a port that both kinds of fabric have.
    fn stats(&self, port: PortId) -> PortStats;

    // Methods that only converged Ethernet implements.

    /// A switch sends a notification by this port.
    fn send_notification(&mut self, _to: PortId, _frame: Handle, _now_ps: u64) {}

    /// An adapter takes a notification, which is released, and slows down the queue that it names.
    fn absorb(&mut self, _host: u16, _frame: Handle, _now_ps: u64) {}

    /// The next frame of this queue, if it has waited for earlier ones and none of them is missing
    /// any more.
    fn next_in_order(&mut self, _host: u16, _from: Origin) -> Option<Handle> {
        None
    }

    /// [`Timer::Resequence`]: the frames that a host takes although earlier ones are missing.
    fn give_up(&mut self, _timers: &mut impl Timers, _host: u16, _now_ps: u64) -> Vec<Handle> {
        Vec::new()
    }

    /// The number of a queue of a host's adapter, for [`Departure::queue`].
    fn queue_to(&mut self, _source: u16, _key: QueueKey) -> u32 {
        0
    }

    /// Whether a port of a host is an adapter with queues of its own. Its frames come by
    /// [`Fabric::send`], those of other ports by [`Fabric::offer`].
    fn has_queues(&self, _port: PortId) -> bool {
        false
    }

    /// One more than the highest priority in use.
    fn lanes(&self) -> u8 {
        1
    }

    /// Whether a host's adapter has room in a priority for the longest frame. If not,
    /// [`Effect::Room`] follows when it has.
    fn has_room(&mut self, _at: (u16, u8), _now_ps: u64) -> bool {
        true
    }

    /// A lower bound of [`Fabric::has_room`]: a lazy adapter may have more room than it knows.
    fn fits(&self, _at: (u16, u8)) -> bool {
        true
    }

    /// From now on [`Effect::Left`] reports each frame that leaves the adapter of a host.
    fn count_departures(&mut self, _host: u16, _now_ps: u64) {}

    /// The sender of a frame that has left its adapter: [`Departure::sender`].
    fn sender(&self, _frame: Handle) -> u32 {
        0
    }

    /// Gives the copy `to` of a frame what the fabric keeps of the frame `from`.
    fn copied(&mut self, _from: Handle, _to: Handle) {}

    /// A frame's priority; `None` in a fabric without priorities.
    fn priority(&self, _frame: Handle) -> Option<u8> {
        None
    }

    /// From now on [`Effect::Sent`] and [`Effect::PauseSent`] report the frames that a port sends.
    fn watch(&mut self, _port: PortId) {}

    /// The properties of a port that sends pause frames.
    fn spec(&self, _port: PortId) -> Option<&PortSpec> {
        None
    }

    /// The total time for which pauses have stopped a port.
    fn paused_ps(&self, _port: PortId, _now_ps: u64) -> u64 {
        0
    }

    /// The counters of a port of converged Ethernet.
    fn cee_stats(&self, _port: PortId) -> Option<CeeStats> {
        None
    }

    /// A cycle of pauses that cannot end, if there is one.
    fn deadlock(&self) -> Option<Deadlock> {
        None
    }

    /// From now on the far end of a port pauses these priorities whether it has room or not.
    fn storm(&mut self, _port: PortId, _priorities: u8, _now_ps: u64) {}

    /// Whether a host's adapter ignores pauses and notifications from now on.
    fn set_babbling(&mut self, _host: u16, _babbles: bool, _now_ps: u64) {}
}

/// A fabric that belongs to a driver: it can be read directly, and changed by the methods of
/// [`Driver`].
pub struct Driven<F> {
    fabric: F,
    /// [`carry_out_all`] is running.
    carries_out: bool,
}

impl<F> Driven<F> {
    /// Takes a fabric that has not requested anything yet.
    pub fn new(fabric: F) -> Self {
        Self {
            fabric,
            carries_out: false,
        }
    }
}

impl<F: Fabric> Driven<F> {
    /// The pool of all frames.
    #[inline(always)]
    pub fn pool_mut(&mut self) -> &mut Pool<F::Frame> {
        &mut self.fabric.ports_mut().pool
    }

    /// Bytes queued at a port, for the choice of a port just before [`Fabric::forward`]. Reading
    /// them may make a lazy port request timers and effects; those are carried out with the
    /// forwarding. Other callers read the backlog through [`Driver::on_fabric`].
    #[inline]
    pub fn load_bytes(&mut self, port: PortId, now_ps: u64) -> u64 {
        self.fabric.backlog_bytes(port, now_ps)
    }
}

impl<F> Deref for Driven<F> {
    type Target = F;

    #[inline(always)]
    fn deref(&self) -> &F {
        &self.fabric
    }
}

/// The owner of a fabric: it sets the timers and carries out the effects.
pub trait Driver {
    /// The fabric.
    type Fabric: Fabric;
    /// The clock that calls it.
    type Timers: Timers;

    /// The fabric, its timers, and the time.
    fn driven(&mut self) -> (&mut Driven<Self::Fabric>, &mut Self::Timers, u64);

    /// Carries out an effect other than [`Effect::Timer`].
    fn carry_out(&mut self, effect: Effect);

    /// Lends the fabric to `act`, then sets the requested timers and carries out the effects.
    #[inline(always)]
    fn on_fabric<R>(
        &mut self,
        act: impl FnOnce(&mut Self::Fabric, &mut Self::Timers, u64) -> R,
    ) -> R {
        let (driven, timers, now_ps) = self.driven();
        let result = act(&mut driven.fabric, timers, now_ps);
        complete(self);
        result
    }

    /// [`Fabric::arrive`] by [`Driver::on_fabric`]. Each hop calls it and
    /// [`Driver::forward_on_fabric`], and the compiler does not always inline a closure.
    #[inline(always)]
    fn arrive_on_fabric(&mut self, port: PortId) -> Option<Handle> {
        let (driven, timers, now_ps) = self.driven();
        let arrived = driven.fabric.arrive(timers, port, now_ps);
        complete(self);
        arrived
    }

    /// [`Fabric::forward`] by [`Driver::on_fabric`].
    #[inline(always)]
    fn forward_on_fabric(&mut self, ports: [PortId; 2], frame: Handle) -> Accepted {
        let (driven, timers, now_ps) = self.driven();
        let accepted = driven.fabric.forward(timers, ports, frame, now_ps);
        complete(self);
        accepted
    }
}

/// Sets the requested timers and carries out the effects.
#[inline(always)]
fn complete<D: Driver + ?Sized>(driver: &mut D) {
    let (driven, timers, _) = driver.driven();
    if driven.fabric.set_timers(timers) {
        carry_out_all(driver);
    }
}

/// Carries out effects in order, until none is left. A call within a call returns at once: the
/// outer one carries out the effects that were added.
#[inline(never)]
fn carry_out_all<D: Driver + ?Sized>(driver: &mut D) {
    let (driven, ..) = driver.driven();
    if std::mem::replace(&mut driven.carries_out, true) {
        return;
    }
    for at in 0.. {
        let (driven, timers, _) = driver.driven();
        match driven.fabric.effect(at) {
            Some(Effect::Timer(timer, index, at_ps)) => timers.set(timer, index, at_ps),
            Some(effect) => driver.carry_out(effect),
            None => {
                driven.carries_out = false;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
