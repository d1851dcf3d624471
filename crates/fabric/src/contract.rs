//! The contract between a fabric and its driver: the same for plain and converged Ethernet, and
//! compiled for each.
//!
//! A driver changes a fabric only through methods of [`Driver`]. Before they return, they set the
//! timers that the fabric has requested and carry out the effects, so no caller can forget them.

use std::ops::Deref;

use crate::{
    graph::{HostId, PortId},
    impair::Impairment,
    pool::{Handle, Pool},
    port::{Frame, PortStats, Ports},
};

/// Why a fabric requests a call at a later time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A frame is at the far end of a port: [`Fabric::arrive`].
    Arrival(PortId),
    /// A port may send.
    Transmit(PortId),
    /// A pause of a port takes effect, has to be renewed, or ends.
    Control(PortId),
    /// The adapter of a host no longer waits for frames that later ones have overtaken. After the
    /// call the host receives the later ones ([`Fabric::next_received`]).
    Resequence(HostId),
}

/// A clock that calls the fabric at a given time.
pub trait Timers {
    /// Requests a call at `at_ps`.
    fn set(&mut self, timer: Timer, at_ps: u64);
}

/// An action that a fabric requests from its driver. `O`: see [`Fabric::Own`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect<O> {
    /// Set this timer ([`Timers::set`]).
    Timer(Timer, u64),
    /// A watched port ([`Fabric::watch`]) begins to send a frame that was [`Accepted::Waits`]. Its
    /// last bit leaves at this time.
    Sent(PortId, Handle, u64),
    /// A frame that was [`Accepted::Waits`] has left the adapter of a host that counts departures
    /// ([`Fabric::count_departures`]). The number is [`Sender::number`].
    Left(HostId, u32, Handle),
    /// A host's link has failed, and its adapter has lost a frame of this sender. The driver
    /// releases the frame. The number has a meaning where departures are counted.
    Lost(HostId, u32, Handle),
    /// A lane of the host's adapter that had no room ([`Fabric::has_room`]) has room again.
    Room(HostId, u8),
    /// An action that only this kind of fabric requests.
    Own(O),
}

/// The fate of a frame that was offered to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// The frame leaves as soon as the port has sent the frames before it: its last bit at
    /// [`Ports::free_ps`].
    Leaves,
    /// The frame may have to wait. Effects report its departure to those who asked for it
    /// ([`Fabric::watch`], [`Fabric::count_departures`]).
    Waits,
    /// Like `Leaves`, but the port leads to another part of the run, where the frame arrives at
    /// this time.
    Away(u64),
    /// The port has dropped and released the frame.
    Dropped,
}

impl Accepted {
    /// The hops that the frame has made by it: one if it joined the port, else none.
    #[inline(always)]
    pub(crate) fn hops(self) -> u64 {
        u64::from(self != Self::Dropped)
    }
}

/// The sender of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Its host.
    pub host: HostId,
    /// 0..=7.
    pub priority: u8,
    /// The driver's number for it. All its frames go to one host, in one priority.
    pub number: u32,
}

/// A lane of a host's adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The host.
    pub host: HostId,
    /// The port of its adapter.
    pub port: PortId,
    /// 0 to [`Fabric::lanes`] − 1.
    pub number: u8,
}

/// The fields of a frame that the fabric keeps beside it, on the way to another part of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Luggage {
    /// The frame's note in the pool.
    pub note: u64,
    /// Its number among the frames of its adapter's queue, where frames are numbered.
    pub number: u32,
}

/// Numbers of frames, by their origin or fate, for the account of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Copies and other frames that the fabric made.
    pub made: u64,
    /// Frames that the fabric dropped.
    pub dropped: u64,
    /// Frames in the fabric.
    pub underway: u64,
    /// Frames that adapters have kept for themselves.
    pub absorbed: u64,
}

/// Links, the switches between them and the sending sides of hosts.
pub trait Fabric: Sized {
    /// The type of frames.
    type Frame: Frame;

    /// Actions that only this kind of fabric requests.
    type Own: Copy;

    /// The ports that have one queue in order, those within hosts included, and the pool with the
    /// frames of all ports.
    fn ports(&self) -> &Ports<Self::Frame>;

    /// See [`Fabric::ports`].
    fn ports_mut(&mut self) -> &mut Ports<Self::Frame>;

    /// Offers a frame to a port of its host: the adapter, or a port between tenants.
    fn offer(
        &mut self,
        timers: &mut impl Timers,
        port: PortId,
        frame: Handle,
        sender: Sender,
        now_ps: u64,
    ) -> Accepted;

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

    /// A timer other than [`Timer::Arrival`] is due.
    fn timer(&mut self, timers: &mut impl Timers, timer: Timer, now_ps: u64);

    /// A frame has arrived at a host; `at` is the port that it came by, and the host. Returns the
    /// frame that the host receives now, and [`Fabric::next_received`] those after it. `None`: the
    /// adapter keeps the frame, for itself or until frames before it have arrived.
    fn receive(
        &mut self,
        timers: &mut impl Timers,
        at: (PortId, HostId),
        frame: Handle,
        now_ps: u64,
    ) -> Option<Handle>;

    /// The next frame that the host receives with the frame of [`Fabric::receive`], or because of
    /// [`Timer::Resequence`].
    fn next_received(&mut self) -> Option<Handle>;

    /// Sets the requested timers that come before the first effect; true if there are effects.
    fn set_timers(&mut self, timers: &mut impl Timers) -> bool;

    /// The effect at this position; `None` behind the last one, after which the list is empty.
    fn effect(&mut self, at: usize) -> Option<Effect<Self::Own>>;

    /// The number of lanes of each adapter: queues whose room is bounded separately. A frame takes
    /// the lane of its priority, or the last one if that is less.
    fn lanes(&self) -> u8;

    /// Whether a lane has room for the longest frame. If not, [`Fabric::room_ps`] says when, or
    /// [`Effect::Room`] follows.
    fn has_room(&mut self, lane: Lane, now_ps: u64) -> bool;

    /// When a lane has room for a frame, if no more is offered; `None` where [`Effect::Room`]
    /// reports it.
    fn room_ps(&self, lane: Lane) -> Option<u64>;

    /// From now on [`Effect::Left`] reports the frames of a host's adapter that were
    /// [`Accepted::Waits`].
    fn count_departures(&mut self, host: HostId, now_ps: u64);

    /// From now on [`Effect::Sent`] reports the frames of a port that were [`Accepted::Waits`].
    fn watch(&mut self, port: PortId);

    /// The far end of a port belongs to another part of the run. The driver passes every frame that
    /// the port sends on to that part.
    fn set_away(&mut self, port: PortId);

    /// What the fabric keeps beside a frame that leaves this part.
    fn luggage(&self, frame: Handle) -> Luggage;

    /// Takes a frame that another part has sent over a port, before its arrival. Frames of a port
    /// arrive in the order in which they are taken.
    fn deliver(
        &mut self,
        timers: &mut impl Timers,
        port: PortId,
        frame: (Handle, Luggage),
        arrival_ps: u64,
    );

    /// Makes a copy of a frame that has arrived.
    fn copy(&mut self, frame: Handle) -> Handle;

    /// A frame's priority; `None` in a fabric without priorities.
    fn priority(&self, frame: Handle) -> Option<u8>;

    /// Checks that what each part of the fabric counts is what it holds.
    ///
    /// # Errors
    /// The first difference.
    fn audit(&self) -> Result<(), String>;

    /// The account of every frame that the driver does not hold.
    fn books(&self) -> Books;

    /// Frames transmitted on links so far.
    fn hops(&self) -> u64;

    /// The counters of a port.
    fn stats(&self, port: PortId) -> PortStats;

    /// Bytes queued at a port.
    fn backlog_bytes(&mut self, port: PortId, now_ps: u64) -> u64;

    /// [`Fabric::backlog_bytes`] of a port of a switch.
    #[inline]
    fn load_bytes(&mut self, port: PortId, now_ps: u64) -> u64 {
        self.backlog_bytes(port, now_ps)
    }

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

    /// The first frame under way on a port, if [`Fabric::arrive`] will return it.
    fn first(&self, port: PortId) -> Option<&Self::Frame>;
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
        self.fabric.load_bytes(port, now_ps)
    }
}

impl<F> Deref for Driven<F> {
    type Target = F;

    #[inline(always)]
    fn deref(&self) -> &F {
        &self.fabric
    }
}

/// The [`Fabric::Own`] of a driver's fabric.
pub type OwnOf<D> = <<D as Driver>::Fabric as Fabric>::Own;

/// The owner of a fabric: it sets the timers and carries out the effects.
pub trait Driver {
    /// The fabric.
    type Fabric: Fabric;
    /// The clock that calls it.
    type Timers: Timers;

    /// The fabric, its timers, and the time.
    fn driven(&mut self) -> (&mut Driven<Self::Fabric>, &mut Self::Timers, u64);

    /// Carries out an effect other than [`Effect::Timer`].
    fn carry_out(&mut self, effect: Effect<OwnOf<Self>>);

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
            Some(Effect::Timer(timer, at_ps)) => timers.set(timer, at_ps),
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
