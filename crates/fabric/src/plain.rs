//! Plain Ethernet: each port has one queue in order, and no port is ever paused.

use std::convert::Infallible;

use crate::{
    contract::{Accepted, Books, Effect, Fabric, Lane, Luggage, Sender, Timer, Timers},
    graph::{HostId, PortId},
    impair::Impairment,
    pool::Handle,
    port::{Frame, Offer, PortStats, Ports},
};

/// A network of plain Ethernet. The ports of links come first, then a port within each host.
pub struct Plain<F> {
    ports: Ports<F>,
    hops: u64,
}

impl<F: Frame> Plain<F> {
    /// A network of idle ports.
    pub fn new(ports: Ports<F>) -> Self {
        Self { ports, hops: 0 }
    }
}

impl<F: Frame> Ports<F> {
    /// [`Fabric::offer`].
    #[inline(always)]
    pub(crate) fn accept(
        &mut self,
        timers: &mut impl Timers,
        port: PortId,
        frame: Handle,
        now_ps: u64,
    ) -> Accepted {
        match self.offer(port, now_ps, frame) {
            Offer::First(at_ps) => {
                timers.set(Timer::Arrival(port), at_ps);
                Accepted::Leaves
            }
            Offer::Queued => Accepted::Leaves,
            rare => self.accept_rare(rare, frame),
        }
    }

    /// Apart, so that the two usual cases are told by comparisons and not by a table of jumps.
    #[cold]
    fn accept_rare(&mut self, offer: Offer, frame: Handle) -> Accepted {
        match offer {
            Offer::First(_) | Offer::Queued => Accepted::Leaves,
            Offer::Away(arrival_ps) => Accepted::Away(arrival_ps),
            Offer::Dropped(_) => {
                self.pool.release(frame);
                Accepted::Dropped
            }
        }
    }

    /// [`Fabric::arrive`].
    #[inline(always)]
    pub(crate) fn take_arrived(
        &mut self,
        timers: &mut impl Timers,
        port: PortId,
        now_ps: u64,
    ) -> Option<Handle> {
        let (frame, next) = self.arrive(port, now_ps)?;
        if let Some(next_ps) = next {
            timers.set(Timer::Arrival(port), next_ps);
        }
        Some(frame)
    }

    /// [`Fabric::books`].
    pub(crate) fn books(&self) -> Books {
        let mut books = Books::default();
        for port in self.ids() {
            let stats = self.stats(port);
            books.made += stats.duplicates;
            books.dropped += stats.drops.iter().sum::<u64>();
            books.underway += self.underway(port);
        }
        books
    }
}

impl<F: Frame> Plain<F> {
    /// A frame joins the queue of a port.
    #[inline(always)]
    fn join(
        &mut self,
        timers: &mut impl Timers,
        port: PortId,
        frame: Handle,
        now_ps: u64,
    ) -> Accepted {
        let accepted = self.ports.accept(timers, port, frame, now_ps);
        self.hops += accepted.hops();
        accepted
    }
}

impl<F: Frame + Copy> Fabric for Plain<F> {
    type Frame = F;
    type Own = Infallible;

    #[inline(always)]
    fn ports(&self) -> &Ports<F> {
        &self.ports
    }

    #[inline(always)]
    fn ports_mut(&mut self) -> &mut Ports<F> {
        &mut self.ports
    }

    #[inline(always)]
    fn offer(
        &mut self,
        timers: &mut impl Timers,
        port: PortId,
        frame: Handle,
        _sender: Sender,
        now_ps: u64,
    ) -> Accepted {
        self.join(timers, port, frame, now_ps)
    }

    #[inline(always)]
    fn forward(
        &mut self,
        timers: &mut impl Timers,
        [_, to]: [PortId; 2],
        frame: Handle,
        now_ps: u64,
    ) -> Accepted {
        self.join(timers, to, frame, now_ps)
    }

    #[inline(always)]
    fn arrive(&mut self, timers: &mut impl Timers, port: PortId, now_ps: u64) -> Option<Handle> {
        self.ports.take_arrived(timers, port, now_ps)
    }

    fn timer(&mut self, _timers: &mut impl Timers, timer: Timer, _now_ps: u64) {
        debug_assert!(false, "the fabric never asks for {timer:?}");
    }

    #[inline(always)]
    fn receive(
        &mut self,
        _timers: &mut impl Timers,
        _at: (PortId, HostId),
        frame: Handle,
        _now_ps: u64,
    ) -> Option<Handle> {
        Some(frame)
    }

    #[inline(always)]
    fn next_received(&mut self) -> Option<Handle> {
        None
    }

    #[inline(always)]
    fn set_timers(&mut self, _timers: &mut impl Timers) -> bool {
        false
    }

    fn effect(&mut self, _at: usize) -> Option<Effect<Infallible>> {
        None
    }

    #[inline(always)]
    fn lanes(&self) -> u8 {
        1
    }

    #[inline(always)]
    fn has_room(&mut self, lane: Lane, now_ps: u64) -> bool {
        self.ports.free_ps(lane.port) <= now_ps
    }

    #[inline(always)]
    fn room_ps(&self, lane: Lane) -> Option<u64> {
        Some(self.ports.free_ps(lane.port))
    }

    fn count_departures(&mut self, _host: HostId, _now_ps: u64) {}

    fn watch(&mut self, _port: PortId) {}

    fn set_away(&mut self, port: PortId) {
        self.ports.set_away(port);
    }

    fn luggage(&self, _frame: Handle) -> Luggage {
        Luggage::default()
    }

    fn deliver(
        &mut self,
        timers: &mut impl Timers,
        port: PortId,
        (frame, _): (Handle, Luggage),
        arrival_ps: u64,
    ) {
        if self.ports.deliver(port, frame, arrival_ps) {
            timers.set(Timer::Arrival(port), arrival_ps);
        }
    }

    fn copy(&mut self, frame: Handle) -> Handle {
        let copy = self.ports.pool[frame];
        self.ports.pool.insert(copy)
    }

    fn priority(&self, _frame: Handle) -> Option<u8> {
        None
    }

    fn audit(&self) -> Result<(), String> {
        self.ports.ids().try_for_each(|port| self.ports.audit(port))
    }

    fn books(&self) -> Books {
        self.ports.books()
    }

    fn hops(&self) -> u64 {
        self.hops
    }

    fn backlog_bytes(&mut self, port: PortId, now_ps: u64) -> u64 {
        self.ports.backlog_bytes(port, now_ps)
    }

    fn set_up(&mut self, port: PortId, up: bool, now_ps: u64) {
        self.ports.set_up(port, up, now_ps);
    }

    fn set_rate(&mut self, port: PortId, rate_bps: u64, now_ps: u64) {
        self.ports.set_rate(port, rate_bps, now_ps);
    }

    fn set_impairment(&mut self, port: PortId, impairment: Impairment) {
        self.ports.set_impairment(port, impairment);
    }

    #[inline(always)]
    fn is_impaired(&self, port: PortId) -> bool {
        self.ports.is_impaired(port)
    }

    #[inline]
    fn fetch_port(&self, port: PortId) {
        self.ports.fetch_port(port);
    }

    #[inline]
    fn fetch_first(&self, port: PortId) {
        self.ports.fetch_first(port);
    }

    #[inline]
    fn fetch_queue(&self, port: PortId) {
        self.ports.fetch_last(port);
    }

    #[inline]
    fn first(&self, port: PortId) -> Option<&F> {
        self.ports.first(port)
    }

    fn stats(&self, port: PortId) -> PortStats {
        self.ports.stats(port)
    }
}
