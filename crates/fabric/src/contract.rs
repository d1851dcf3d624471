//! The contract between a fabric and its driver: the same for plain and converged Ethernet, and
//! compiled for each.
//!
//! A driver changes a fabric by [`Driver::on_fabric`] alone, which sets the timers and carries out the effects that
//! follow before it returns: no caller can forget them.

use std::ops::Deref;

use crate::{
    cee::{CeeStats, Deadlock, Departure, PauseFrame, PortSpec, QueueKey},
    graph::PortId,
    impair::Impairment,
    pool::{Handle, Pool},
    port::{Frame, PortStats, Ports},
};

/// What a fabric asks to be called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A frame is at the far end of a port: [`Fabric::arrive`].
    Arrival,
    /// A port may send.
    Transmit,
    /// A pause of a port takes effect, has to be renewed, or ends.
    Control,
    /// A host's adapter waits no longer for frames that others have overtaken: [`Fabric::give_up`].
    Resequence,
}

/// What calls in time.
pub trait Timers {
    /// The fabric is to be called then: for a port, or a host ([`Timer::Resequence`]).
    fn set(&mut self, timer: Timer, index: u32, at_ps: u64);
}

/// What else the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Call the fabric then.
    Timer(Timer, u32, u64),
    /// A switch has made a notification that wants to leave: find its port and call [`Fabric::send_notification`].
    Notify(u32, Handle),
    /// A frame begins to leave a port; its last bit does so then. Only from ports that are watched.
    Sent(PortId, Handle, u64),
    /// A pause frame leaves a port; its last bit does so then. Only from ports that are watched.
    PauseSent(PortId, PauseFrame, u64),
    /// A frame has left a host's adapter for the wire. Only where that is counted ([`Fabric::count_departures`]).
    Left(u16, Handle),
    /// A frame is lost in a host's adapter, whose link has failed: it is the driver's to release.
    Lost(u16, Handle),
    /// A priority of a host's adapter has room again, for which a sender waits.
    Room(u16, u8),
}

/// What became of a frame that was offered to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It leaves when the port is free.
    Leaves,
    /// It may have to wait; [`Effect::Sent`] tells when it leaves, if the port is watched.
    Waits,
    /// It leaves for a far end in another part of the run, where it arrives at this time.
    Away(u64),
    /// It is gone, and released.
    Dropped,
}

/// What a host gets that a frame has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The frame.
    Frame,
    /// The frame, and then those that have waited for it ([`Fabric::next_in_order`]) from this source and priority.
    FrameAndFollowing((u16, u8)),
    /// Nothing yet: frames before it are missing.
    Kept,
    /// Nothing: it is a notification for the adapter ([`Fabric::absorb`]).
    Notification,
}

/// Frames by what became of them, for an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// The fabric made so many: copies and notifications.
    pub made: u64,
    /// It dropped so many.
    pub dropped: u64,
    /// It has so many.
    pub underway: u64,
    /// Its adapters took so many notifications.
    pub absorbed: u64,
}

/// Links, the switches between them and the sending sides of hosts.
pub trait Fabric: Sized {
    /// What it carries.
    type Frame: Frame;

    /// Adapters have room for each priority apart, and say themselves when that changes and when a frame has left. Others
    /// have one queue, whose end is known.
    const HAS_LANES: bool;

    /// Ports with one queue in order, among them those within hosts, and the frames of all ports.
    fn ports(&self) -> &Ports<Self::Frame>;

    /// See [`Fabric::ports`].
    fn ports_mut(&mut self) -> &mut Ports<Self::Frame>;

    /// A frame comes to a port of a host that is no adapter's.
    fn offer(
        &mut self,
        timers: &mut impl Timers,
        port: PortId,
        frame: Handle,
        now_ps: u64,
    ) -> Accepted;

    /// A frame comes to the adapter of its host, or is sent on its way there.
    fn send(
        &mut self,
        timers: &mut impl Timers,
        port: PortId,
        frame: Handle,
        departure: Departure,
        now_ps: u64,
    ) -> Accepted;

    /// A frame that was on its way is at its adapter.
    fn submit(&mut self, frame: Handle, now_ps: u64);

    /// A frame that has come to a switch by the first port leaves it by the second.
    fn forward(
        &mut self,
        timers: &mut impl Timers,
        ports: [PortId; 2],
        frame: Handle,
        now_ps: u64,
    ) -> Accepted;

    /// [`Timer::Arrival`]: the frame that is at the far end of a port, if there is one by now.
    fn arrive(&mut self, timers: &mut impl Timers, port: PortId, now_ps: u64) -> Option<Handle>;

    /// Any timer but [`Timer::Arrival`] and [`Timer::Resequence`].
    fn timer(&mut self, timer: Timer, port: PortId, now_ps: u64);

    /// A frame has come to a host by a port.
    fn receive(
        &mut self,
        timers: &mut impl Timers,
        at: (PortId, u16),
        frame: Handle,
        now_ps: u64,
    ) -> Received;

    /// Sets the timers that were asked for, as far as that is all; true if there are effects.
    fn set_timers(&mut self, timers: &mut impl Timers) -> bool;

    /// One of the effects, in order; `None` behind the last, after which all are forgotten.
    fn effect(&mut self, at: usize) -> Option<Effect>;

    /// Asserts that the books of each part are right.
    ///
    /// # Errors
    /// The first that are not.
    fn audit(&self) -> Result<(), String>;

    /// Every frame that is not with the driver.
    fn books(&self) -> Books;

    /// Frames transmitted on links so far.
    fn hops(&self) -> u64;

    /// Bytes queued at a port.
    fn backlog_bytes(&mut self, port: PortId, now_ps: u64) -> u64;

    /// A direction of a link fails, or works again.
    fn set_up(&mut self, port: PortId, up: bool, now_ps: u64);

    /// What a port sends from now on it sends at this rate.
    fn set_rate(&mut self, port: PortId, rate_bps: u64, now_ps: u64);

    /// From now on the link does this to what arrives over it.
    fn set_impairment(&mut self, port: PortId, impairment: Impairment);

    /// Whether [`Ports::fate`] must be asked for what arrives over this port's link.
    fn is_impaired(&self, port: PortId) -> bool;

    /// A port is about to be needed: it is sent for.
    fn fetch_port(&self, port: PortId);

    /// The same for the first frame under way, and for what chooses the next one.
    fn fetch_first(&self, port: PortId);

    /// The same for what a frame that comes to a port needs there.
    fn fetch_queue(&self, port: PortId);

    /// The first frame under way on a port.
    fn first(&self, port: PortId) -> Option<&Self::Frame>;

    /// What a port counted that ports of plain Ethernet count, too.
    fn stats(&self, port: PortId) -> PortStats;

    // What only converged Ethernet has.

    /// A notification leaves a switch by this port.
    fn send_notification(&mut self, _to: PortId, _frame: Handle, _now_ps: u64) {}

    /// A notification has come to its adapter, and is released.
    fn absorb(&mut self, _host: u16, _frame: Handle, _now_ps: u64) {}

    /// The next frame from this source and priority that has waited for others.
    fn next_in_order(&mut self, _host: u16, _from: (u16, u8)) -> Option<Handle> {
        None
    }

    /// [`Timer::Resequence`]: frames that a host takes although others are missing.
    fn give_up(&mut self, _timers: &mut impl Timers, _host: u16, _now_ps: u64) -> Vec<Handle> {
        Vec::new()
    }

    /// The number of a queue of a host's adapter, for [`Departure::queue`].
    fn queue_to(&mut self, _source: u16, _key: QueueKey) -> u32 {
        0
    }

    /// Whether a port is an adapter's with queues of its own: [`Fabric::send`].
    fn has_queues(&self, _port: PortId) -> bool {
        false
    }

    /// Priorities that are used are below this.
    fn lanes(&self) -> u8 {
        1
    }

    /// Whether a host's adapter has room for the longest frame in a priority. If not, [`Effect::Room`] tells when to ask
    /// again.
    fn has_room(&mut self, _at: (u16, u8), _now_ps: u64) -> bool {
        true
    }

    /// The same as far as is known; there may be more.
    fn fits(&self, _at: (u16, u8)) -> bool {
        true
    }

    /// From now on [`Effect::Left`] tells of each frame that leaves a host.
    fn count_departures(&mut self, _host: u16, _now_ps: u64) {}

    /// The sender of a frame that has left: [`Departure::sender`].
    fn sender(&self, _frame: Handle) -> u32 {
        0
    }

    /// The copy of a frame has what that has.
    fn copied(&mut self, _from: Handle, _to: Handle) {}

    /// A frame's priority, where there are any.
    fn priority(&self, _frame: Handle) -> Option<u8> {
        None
    }

    /// What leaves a port is told from now on.
    fn watch(&mut self, _port: PortId) {}

    /// What a port is like that sends pause frames.
    fn spec(&self, _port: PortId) -> Option<&PortSpec> {
        None
    }

    /// How long pauses have stopped a port, all in all.
    fn paused_ps(&self, _port: PortId, _now_ps: u64) -> u64 {
        0
    }

    /// What a port of converged Ethernet counted.
    fn cee_stats(&self, _port: PortId) -> Option<CeeStats> {
        None
    }

    /// A cycle of pauses that cannot end, if there is one.
    fn deadlock(&self) -> Option<Deadlock> {
        None
    }

    /// The far end of a port pauses these priorities even if it has room, or stops that.
    fn storm(&mut self, _port: PortId, _priorities: u8, _now_ps: u64) {}

    /// A host's adapter obeys neither pauses nor notifications, or does so again.
    fn set_babbling(&mut self, _host: u16, _babbles: bool, _now_ps: u64) {}
}

/// A fabric that belongs to a driver: it can be read directly, and changed by
/// [`Driver::on_fabric`].
pub struct Driven<F> {
    fabric: F,
    /// Effects are being carried out.
    carries_out: bool,
}

impl<F> Driven<F> {
    /// Of a fabric that has asked for nothing yet.
    pub fn new(fabric: F) -> Self {
        Self {
            fabric,
            carries_out: false,
        }
    }
}

impl<F: Fabric> Driven<F> {
    /// The frames under way.
    #[inline(always)]
    pub fn pool_mut(&mut self) -> &mut Pool<F::Frame> {
        &mut self.fabric.ports_mut().pool
    }

    /// Bytes queued at a port, where a frame may go that is about to be forwarded: what follows from the look is carried
    /// out with that. Others ask by [`Driver::on_fabric`].
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
    /// What is driven.
    type Fabric: Fabric;
    /// What calls in time.
    type Timers: Timers;

    /// The fabric, its timers, and the time.
    fn driven(&mut self) -> (&mut Driven<Self::Fabric>, &mut Self::Timers, u64);

    /// Does what a fabric has asked for that is not just a timer.
    fn carry_out(&mut self, effect: Effect);

    /// Does something to the fabric, and what follows from it.
    #[inline(always)]
    fn on_fabric<R>(
        &mut self,
        act: impl FnOnce(&mut Self::Fabric, &mut Self::Timers, u64) -> R,
    ) -> R {
        let (driven, timers, now_ps) = self.driven();
        let result = act(&mut driven.fabric, timers, now_ps);
        if driven.fabric.set_timers(timers) {
            carry_out_all(self);
        }
        result
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
