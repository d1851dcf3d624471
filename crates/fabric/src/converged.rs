//! Converged Ethernet as hosts use it: with the stack above each adapter, and with order at
//! receiving adapters.
//!
//! A frame enters the stack of its host. After the delay of the stack, which is constant and may be
//! 0, it joins the adapter's queue for its destination, where the adapter has reserved room for it.
//! From this queue to the receiving adapter the frame belongs to [`Cee`].

use rustc_hash::FxHashMap;

use crate::{
    cee::{Cee, CeeFrame, CeeStats, Deadlock, Departure, PortSpec, QueueKey, Resequencer, Verdict},
    contract::{Accepted, Books, Effect, Fabric, Origin, Received, Timer, Timers},
    graph::PortId,
    impair::Impairment,
    pool::Handle,
    port::{PortStats, Ports},
};

/// The time for which a receiving adapter waits for a frame that others have overtaken. The frame
/// may be lost. The time exceeds the difference in delay between any two paths.
const PATIENCE_PS: u64 = 1_000_000_000;

/// The resequencers of one host.
type Resequencers = FxHashMap<Origin, Resequencer<Handle>>;

/// A network of converged Ethernet. The ports of [`Cee`] come first, then the ports within hosts.
pub struct Converged<F> {
    cee: Cee,
    /// The impairments of links, by port; then the ports within hosts, and those of stacks.
    ports: Ports<F>,
    /// The first port within a host. The ports before it are those of links.
    first_inner: PortId,
    /// The port of the first host's stack, which those of the other hosts follow; `None` = stacks
    /// have no delay.
    stacks: Option<PortId>,
    lanes: u8,
    /// The length of the longest frame.
    frame_bytes: u32,
    /// Some link impairs frames, or has done so before.
    may_impair: bool,
    /// The resequencers, by receiving host; `None` = no frame can overtake another.
    resequencers: Option<Vec<Resequencers>>,
    hops: u64,
}

impl<F: CeeFrame> Converged<F> {
    /// A network of idle ports, of which the first are those of `cee`.
    pub fn new(cee: Cee, ports: Ports<F>) -> Self {
        let links = PortId::first(cee.len());
        let specs = links.map(|port| cee.spec(port).frame_bytes);
        let first_inner = PortId(cee.len() as u32);
        Self {
            frame_bytes: specs.max().unwrap_or(0),
            may_impair: ports.ids().any(|port| ports.is_impaired(port)),
            cee,
            ports,
            first_inner,
            stacks: None,
            lanes: 1,
            resequencers: None,
            hops: 0,
        }
    }

    /// Stacks have a delay: `stacks` is the port of the first host's stack.
    #[must_use]
    pub fn with_stacks(mut self, stacks: PortId) -> Self {
        self.cee.number_frames();
        self.stacks = Some(stacks);
        self
    }

    /// Sets the number of priorities in use.
    #[must_use]
    pub fn with_lanes(self, lanes: u8) -> Self {
        Self { lanes, ..self }
    }

    /// Frames may overtake each other: the receiving adapters of `hosts` hosts put them in order.
    #[must_use]
    pub fn with_resequencers(mut self, hosts: usize) -> Self {
        self.cee.number_frames();
        self.resequencers = Some(vec![FxHashMap::default(); hosts]);
        self
    }

    /// The resequencer of a host for the frames of a queue, if there is one.
    fn resequencer(&mut self, host: u16, from: Origin) -> Option<&mut Resequencer<Handle>> {
        let resequencers = self.resequencers.as_mut()?;
        resequencers[usize::from(host)].get_mut(&from)
    }

    /// The number of frames that wait in receiving adapters for earlier ones.
    fn kept(&self) -> u64 {
        let all = self
            .resequencers
            .iter()
            .flatten()
            .flat_map(FxHashMap::values);
        all.map(|resequencer| resequencer.kept() as u64).sum()
    }

    /// A frame enters the stack of its host, which has a delay.
    #[inline(never)]
    fn enter_stack(
        &mut self,
        timers: &mut impl Timers,
        (first, frame): (PortId, Handle),
        departure: Departure,
        now_ps: u64,
    ) -> Accepted {
        self.cee.reserve(&self.ports.pool, frame, departure);
        let stack = first.of_host(departure.source.into());
        match self.ports.accept(timers, stack, frame, now_ps) {
            Accepted::Leaves => Accepted::Waits,
            _ => unreachable!("a stack is here and has room"),
        }
    }

    /// A frame arrives at a host, and frames may have overtaken each other.
    #[inline(never)]
    fn receive_in_order(
        &mut self,
        timers: &mut impl Timers,
        host: u16,
        frame: Handle,
        now_ps: u64,
    ) -> Received {
        let Some(resequencers) = &mut self.resequencers else {
            return Received::Frame;
        };
        let (cee, pool) = (&self.cee, &self.ports.pool);
        let from = Origin {
            source: cee.source(pool, frame),
            priority: cee.priority(pool, frame),
            path: pool[frame].queue_path(),
        };
        let resequencer = resequencers[usize::from(host)].entry(from).or_default();
        match resequencer.arrive(cee.number(frame), frame, now_ps, PATIENCE_PS) {
            Verdict::Kept(until_ps) => {
                if let Some(until_ps) = until_ps {
                    timers.set(Timer::Resequence, host.into(), until_ps);
                }
                Received::Kept
            }
            Verdict::Late => Received::Frame,
            Verdict::Next => Received::FrameAndFollowing(from),
        }
    }
}

impl<F: CeeFrame> Fabric for Converged<F> {
    type Frame = F;

    const HAS_LANES: bool = true;

    #[inline(always)]
    fn ports(&self) -> &Ports<F> {
        &self.ports
    }

    #[inline(always)]
    fn ports_mut(&mut self) -> &mut Ports<F> {
        &mut self.ports
    }

    #[inline]
    fn offer(
        &mut self,
        timers: &mut impl Timers,
        port: PortId,
        frame: Handle,
        now_ps: u64,
    ) -> Accepted {
        let accepted = self.ports.accept(timers, port, frame, now_ps);
        self.hops += u64::from(accepted != Accepted::Dropped);
        accepted
    }

    #[inline]
    fn send(
        &mut self,
        timers: &mut impl Timers,
        _port: PortId,
        frame: Handle,
        departure: Departure,
        now_ps: u64,
    ) -> Accepted {
        match self.stacks {
            None => {
                self.hops += 1;
                let pool = &mut self.ports.pool;
                self.cee.send(pool, frame, departure, now_ps);
                Accepted::Waits
            }
            Some(first) => self.enter_stack(timers, (first, frame), departure, now_ps),
        }
    }

    fn submit(&mut self, frame: Handle, now_ps: u64) {
        self.hops += 1;
        self.cee.submit(&mut self.ports.pool, frame, now_ps);
    }

    #[inline(always)]
    fn forward(
        &mut self,
        _timers: &mut impl Timers,
        ports: [PortId; 2],
        frame: Handle,
        now_ps: u64,
    ) -> Accepted {
        self.hops += 1;
        self.cee.forward(&mut self.ports.pool, ports, frame, now_ps);
        Accepted::Waits
    }

    #[inline(always)]
    fn arrive(&mut self, timers: &mut impl Timers, port: PortId, now_ps: u64) -> Option<Handle> {
        if port >= self.first_inner {
            return self.ports.take_arrived(timers, port, now_ps);
        }
        let (arrived, next_ps) = self.cee.arrive(&mut self.ports.pool, port, now_ps);
        if let Some(next_ps) = next_ps {
            timers.set(Timer::Arrival, port.0, next_ps);
        }
        arrived
    }

    #[inline]
    fn timer(&mut self, timer: Timer, port: PortId, now_ps: u64) {
        let pool = &mut self.ports.pool;
        match timer {
            Timer::Transmit => self.cee.transmit(pool, port, now_ps),
            Timer::Control => self.cee.control(pool, port, now_ps),
            Timer::Arrival | Timer::Resequence => {
                debug_assert!(false, "{timer:?} gives frames to its driver");
            }
        }
    }

    #[inline(always)]
    fn receive(
        &mut self,
        timers: &mut impl Timers,
        (port, host): (PortId, u16),
        frame: Handle,
        now_ps: u64,
    ) -> Received {
        if port >= self.first_inner {
            return Received::Frame;
        }
        if self.ports.pool[frame].notice().is_some() {
            return Received::Notification;
        }
        match self.resequencers {
            None => Received::Frame,
            Some(_) => self.receive_in_order(timers, host, frame, now_ps),
        }
    }

    #[inline(always)]
    fn set_timers(&mut self, timers: &mut impl Timers) -> bool {
        let requests = &mut self.cee.requests;
        let [first, second] = &mut requests.arrivals;
        if let Some((port, at_ps)) = first.take() {
            timers.set(Timer::Arrival, port.0, at_ps);
            if let Some((port, at_ps)) = second.take() {
                timers.set(Timer::Arrival, port.0, at_ps);
            }
        }
        !requests.effects.is_empty()
    }

    fn effect(&mut self, at: usize) -> Option<Effect> {
        let effects = &mut self.cee.requests.effects;
        let effect = effects.get(at).copied();
        if effect.is_none() {
            effects.clear();
        }
        effect
    }

    fn audit(&self) -> Result<(), String> {
        let in_stack = |host| {
            let stack = self.stacks.map(|first| first.of_host(host as u32));
            stack.map_or(0, |stack| self.ports.underway_bytes(stack))
        };
        self.ports
            .ids()
            .try_for_each(|port| self.ports.audit(port))?;
        self.cee.audit(&self.ports.pool, in_stack)
    }

    fn books(&self) -> Books {
        let within_hosts = self.ports.books();
        let (made, absorbed) = self.cee.notifications();
        Books {
            made: within_hosts.made + made,
            dropped: within_hosts.dropped + self.cee.drops(),
            underway: within_hosts.underway + self.cee.underway(&self.ports.pool) + self.kept(),
            absorbed,
        }
    }

    fn hops(&self) -> u64 {
        self.hops
    }

    fn backlog_bytes(&mut self, port: PortId, now_ps: u64) -> u64 {
        if port >= self.first_inner {
            return self.ports.backlog_bytes(port, now_ps);
        }
        self.cee.catch_up(&mut self.ports.pool, port, now_ps);
        self.cee.backlog_bytes(port)
    }

    fn set_up(&mut self, port: PortId, up: bool, now_ps: u64) {
        self.ports.set_up(port, up, now_ps);
        self.cee.set_up(&mut self.ports.pool, port, up, now_ps);
    }

    fn set_rate(&mut self, port: PortId, rate_bps: u64, now_ps: u64) {
        self.cee.catch_up(&mut self.ports.pool, port, now_ps);
        self.cee.set_rate(port, rate_bps);
    }

    fn set_impairment(&mut self, port: PortId, impairment: Impairment) {
        self.may_impair = true;
        self.ports.set_impairment(port, impairment);
    }

    #[inline(always)]
    fn is_impaired(&self, port: PortId) -> bool {
        self.may_impair && self.ports.is_impaired(port)
    }

    #[inline]
    fn fetch_port(&self, port: PortId) {
        if port < self.first_inner {
            self.cee.fetch_port(port);
        } else {
            self.ports.fetch_port(port);
        }
    }

    #[inline]
    fn fetch_first(&self, port: PortId) {
        if port < self.first_inner {
            self.cee.fetch_first(&self.ports.pool, port);
        } else {
            self.ports.fetch_first(port);
        }
    }

    #[inline]
    fn fetch_queue(&self, port: PortId) {
        if port < self.first_inner {
            self.cee.fetch_queue(&self.ports.pool, port);
        } else {
            self.ports.fetch_last(port);
        }
    }

    #[inline]
    fn first(&self, port: PortId) -> Option<&F> {
        if port < self.first_inner {
            self.cee.first(&self.ports.pool, port)
        } else {
            self.ports.first(port)
        }
    }

    fn stats(&self, port: PortId) -> PortStats {
        let mut stats = self.ports.stats(port);
        if let Some(counted) = self.cee_stats(port) {
            stats.accepted += counted.accepted;
            stats.accepted_bytes += counted.accepted_bytes;
            stats.marks += counted.marks;
            for (sum, count) in stats.drops.iter_mut().zip(counted.drops) {
                *sum += count;
            }
        }
        stats
    }

    fn send_notification(&mut self, to: PortId, frame: Handle, now_ps: u64) {
        self.hops += 1;
        let ports = [to.opposite(), to];
        self.cee.forward(&mut self.ports.pool, ports, frame, now_ps);
    }

    fn absorb(&mut self, host: u16, frame: Handle, now_ps: u64) {
        let notice = self.ports.pool[frame].notice();
        self.ports.pool.release(frame);
        if let Some((queue, fb)) = notice {
            self.cee
                .notified(&mut self.ports.pool, host, queue, fb, now_ps);
        }
    }

    fn next_in_order(&mut self, host: u16, from: Origin) -> Option<Handle> {
        self.resequencer(host, from)
            .and_then(Resequencer::take_next)
    }

    fn give_up(&mut self, timers: &mut impl Timers, host: u16, now_ps: u64) -> Vec<Handle> {
        let here = self.resequencers.iter().flatten().nth(host.into());
        let here = here.into_iter().flatten();
        let mut waiting: Vec<Origin> = here
            .filter(|(_, kept)| kept.kept() > 0)
            .map(|(&from, _)| from)
            .collect();
        waiting.sort_unstable();
        let (mut taken, mut next_ps) = (Vec::new(), None);
        for from in waiting {
            let Some(kept) = self.resequencer(host, from) else {
                continue;
            };
            let until_ps = kept.give_up(now_ps, PATIENCE_PS);
            while let Some(frame) = kept.take_next() {
                taken.push(frame);
            }
            let until_ps = until_ps.filter(|_| kept.kept() > 0);
            next_ps = next_ps.into_iter().chain(until_ps).min();
        }
        if let Some(at_ps) = next_ps {
            timers.set(Timer::Resequence, host.into(), at_ps);
        }
        taken
    }

    fn queue_to(&mut self, source: u16, key: QueueKey) -> u32 {
        self.cee.queue_to(source, key)
    }

    #[inline(always)]
    fn has_queues(&self, port: PortId) -> bool {
        port < self.first_inner
    }

    fn lanes(&self) -> u8 {
        self.lanes
    }

    #[inline]
    fn has_room(&mut self, at: (u16, u8), now_ps: u64) -> bool {
        let (pool, bytes) = (&mut self.ports.pool, self.frame_bytes);
        self.cee.has_room(pool, at, bytes, now_ps)
    }

    #[inline]
    fn fits(&self, at: (u16, u8)) -> bool {
        self.cee.fits(at, self.frame_bytes)
    }

    fn count_departures(&mut self, host: u16, now_ps: u64) {
        self.cee
            .count_departures(&mut self.ports.pool, host, now_ps);
    }

    fn sender(&self, frame: Handle) -> u32 {
        self.cee.sender(frame)
    }

    fn copied(&mut self, from: Handle, to: Handle) {
        self.cee.copied(&mut self.ports.pool, from, to);
    }

    fn priority(&self, frame: Handle) -> Option<u8> {
        Some(self.cee.priority(&self.ports.pool, frame))
    }

    fn watch(&mut self, port: PortId) {
        if port < self.first_inner {
            self.cee.watch(port);
        }
    }

    fn spec(&self, port: PortId) -> Option<&PortSpec> {
        (port < self.first_inner).then(|| self.cee.spec(port))
    }

    fn paused_ps(&self, port: PortId, now_ps: u64) -> u64 {
        match port < self.first_inner {
            true => self.cee.paused_ps(port, now_ps),
            false => 0,
        }
    }

    fn cee_stats(&self, port: PortId) -> Option<CeeStats> {
        (port < self.first_inner).then(|| self.cee.stats(port))
    }

    fn deadlock(&self) -> Option<Deadlock> {
        self.cee.deadlock(&self.ports.pool)
    }

    fn storm(&mut self, port: PortId, priorities: u8, now_ps: u64) {
        self.cee
            .storm(&mut self.ports.pool, port, priorities, now_ps);
    }

    fn set_babbling(&mut self, host: u16, babbles: bool, now_ps: u64) {
        self.cee
            .set_babbling(&mut self.ports.pool, host, babbles, now_ps);
    }
}
