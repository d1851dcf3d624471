//! Converged Ethernet as hosts use it: with the stack above each adapter, and with order at
//! receiving adapters.
//!
//! A frame enters the stack of its host. After the delay of the stack, which is constant and may be
//! 0, it joins the adapter's queue for its destination, where the adapter has reserved room for it.
//! From this queue to the receiving adapter the frame belongs to [`Cee`].

use std::{collections::VecDeque, sync::Arc};

use rustc_hash::FxHashMap;

use crate::{
    cee::{
        Cee, CeeFrame, CeeStats, Deadlock, Departure, OwnEffect, PauseFrame, PortSpec, QueueKey,
        Resequencer, Verdict, Wait,
    },
    contract::{Accepted, Books, Effect, Fabric, Lane, Luggage, Sender, Timer, Timers},
    graph::{HostId, PortId, PortKind, PortMap},
    impair::Impairment,
    pool::{Handle, Pool},
    port::{PortStats, Ports},
    routing::Routes,
};

/// The time for which a receiving adapter waits for a frame that others have overtaken, where the
/// frame may be lost. The time exceeds the difference in delay between two paths without flow
/// control.
const PATIENCE_PS: u64 = 1_000_000_000;

/// The same where flow control prevents losses, and pauses may hold up one of several paths for
/// long. Frames are lost only on links that fail or are impaired, and where RED drops them.
const LOSSLESS_PATIENCE_PS: u64 = 50_000_000_000;

/// The queue of a sender that has not sent a frame yet.
const NO_QUEUE: u32 = u32::MAX;

/// The queue of an adapter from which frames come to a host. They leave it in the order of their
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Origin {
    source: HostId,
    priority: u8,
    /// See [`QueueKey::path`].
    path: u32,
}

impl Origin {
    /// How long the receiving adapter waits for a missing frame. Bit p of `lossless`: flow control
    /// prevents losses in priority p.
    fn patience_ps(self, lossless: u8) -> u64 {
        match lossless & 1 << self.priority {
            0 => PATIENCE_PS,
            _ => LOSSLESS_PATIENCE_PS,
        }
    }
}

/// The resequencers of one host.
#[derive(Clone, Debug, Default)]
struct Resequencers {
    /// In the order in which their first frames came, and their numbers there.
    all: Vec<(Origin, Resequencer<Handle>)>,
    numbers: FxHashMap<Origin, usize>,
    /// The number of that of the last frame: the next one is often of the same source.
    last: usize,
    /// Bytes of all kept frames.
    kept_bytes: u64,
    /// When the pending [`Timer::Resequence`] expires; `None` = none is pending. Earlier ones that
    /// it has replaced do nothing.
    timer_ps: Option<u64>,
}

impl Resequencers {
    /// The number of the resequencer of a frame.
    #[inline]
    fn number(&mut self, from: Origin) -> usize {
        match self.all.get(self.last) {
            Some((last, _)) if *last == from => self.last,
            _ => self.find(from),
        }
    }

    fn find(&mut self, from: Origin) -> usize {
        self.last = *self.numbers.entry(from).or_insert_with(|| {
            self.all.push((from, Resequencer::default()));
            self.all.len() - 1
        });
        self.last
    }

    /// Frames that were kept are received now.
    fn take<F: CeeFrame>(&mut self, pool: &Pool<F>, at: usize, received: &mut VecDeque<Handle>) {
        let (_, resequencer) = &mut self.all[at];
        while let Some(frame) = resequencer.take_next() {
            self.kept_bytes -= u64::from(pool[frame].bytes());
            received.push_back(frame);
        }
    }

    /// Receives frames of a source without the missing ones until so many bytes are kept.
    fn make_room<F: CeeFrame>(
        &mut self,
        pool: &Pool<F>,
        at: usize,
        limit_bytes: u64,
        received: &mut VecDeque<Handle>,
    ) {
        while self.kept_bytes > limit_bytes {
            if self.all[at].1.skip().is_none() {
                return;
            }
            self.take(pool, at, received);
        }
    }

    /// Sets the timer of the host to this time at the latest.
    fn set_timer(&mut self, timers: &mut impl Timers, host: HostId, at_ps: u64) {
        if self.timer_ps.is_none_or(|pending_ps| at_ps < pending_ps) {
            self.timer_ps = Some(at_ps);
            timers.set(Timer::Resequence(host), at_ps);
        }
    }
}

/// A network of converged Ethernet. The ports of links are those of [`Cee`], the ports within hosts
/// are queues in order.
pub struct Converged<F> {
    cee: Cee,
    /// The impairments of links, by port; then the ports within hosts, and those of stacks.
    ports: Ports<F>,
    map: PortMap,
    /// Stacks have a delay, and so ports.
    has_stacks: bool,
    lanes: u8,
    /// The length of the longest frame.
    frame_bytes: u32,
    /// Some link impairs frames, or has done so before.
    may_impair: bool,
    /// The queues of senders in their adapters, by [`Sender::number`]; [`NO_QUEUE`] before the
    /// first frame.
    queues: Vec<u32>,
    /// The resequencers, by receiving host; `None` = no frame can overtake another.
    resequencers: Option<Vec<Resequencers>>,
    /// Bit p: flow control prevents losses in priority p.
    lossless: u8,
    /// How often a buffer of kept frames was full.
    overflows: u64,
    /// The frames that the host of the last call receives next.
    received: VecDeque<Handle>,
    hops: u64,
}

impl<F: CeeFrame> Converged<F> {
    /// A network of idle ports, which are those of `map`; of links they are those of `cee`.
    pub fn new(cee: Cee, ports: Ports<F>, map: PortMap) -> Self {
        let links = PortId::first(cee.len());
        let specs = links.map(|port| cee.spec(port).frame_bytes);
        Self {
            frame_bytes: specs.max().unwrap_or(0),
            may_impair: ports.ids().any(|port| ports.is_impaired(port)),
            lossless: cee.config().pfc.map_or(0, |pfc| pfc.priorities),
            cee,
            ports,
            map,
            has_stacks: false,
            lanes: 1,
            queues: Vec::new(),
            resequencers: None,
            overflows: 0,
            received: VecDeque::new(),
            hops: 0,
        }
    }

    /// Stacks have a delay: each is one of the ports.
    #[must_use]
    pub fn with_stacks(mut self) -> Self {
        self.cee.number_frames();
        self.has_stacks = true;
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
        self.resequencers = Some(vec![Resequencers::default(); hosts]);
        self
    }

    /// The kind of a port.
    #[inline(always)]
    fn at(&self, port: PortId) -> PortKind {
        self.map.kind(port)
    }

    /// The links, if the port is a direction of one; `None` = the port is within a host.
    #[inline(always)]
    fn links(&self, port: PortId) -> Option<&Cee> {
        match self.at(port) {
            PortKind::Link => Some(&self.cee),
            PortKind::Local | PortKind::Stack => None,
        }
    }

    /// The number of frames that wait in receiving adapters for earlier ones.
    fn kept(&self) -> u64 {
        let all = self
            .resequencers
            .iter()
            .flatten()
            .flat_map(|host| host.all.iter());
        all.map(|(_, resequencer)| resequencer.kept() as u64).sum()
    }

    /// The queue of a sender in its adapter. Its first frame chooses it.
    #[inline]
    fn queue(&mut self, frame: Handle, sender: Sender) -> u32 {
        match self.queues.get(sender.number as usize) {
            Some(&queue) if queue != NO_QUEUE => queue,
            _ => self.new_queue(frame, sender),
        }
    }

    #[cold]
    fn new_queue(&mut self, frame: Handle, sender: Sender) -> u32 {
        let frame = &self.ports.pool[frame];
        let key = QueueKey {
            destination: frame.destination(),
            priority: sender.priority,
            path: frame.queue_path(),
        };
        let (at, queue) = (sender.number as usize, self.cee.queue_to(sender.host, key));
        if self.queues.len() <= at {
            self.queues.resize(at + 1, NO_QUEUE);
        }
        self.queues[at] = queue;
        queue
    }

    /// A frame enters the stack of its host, which has a delay.
    #[inline(never)]
    fn enter_stack(
        &mut self,
        timers: &mut impl Timers,
        frame: Handle,
        departure: Departure,
        now_ps: u64,
    ) {
        self.cee.reserve(&self.ports.pool, frame, departure);
        let stack = self.map.stack(departure.source);
        match self.ports.accept(timers, stack, frame, now_ps) {
            Accepted::Leaves => {}
            _ => unreachable!("a stack is here and has room"),
        }
    }

    /// A frame comes out of a port within a host. A frame that has come down a stack is at the
    /// adapter, and has not arrived anywhere.
    #[inline(never)]
    fn arrive_within(
        &mut self,
        timers: &mut impl Timers,
        (port, at): (PortId, PortKind),
        now_ps: u64,
    ) -> Option<Handle> {
        let frame = self.ports.take_arrived(timers, port, now_ps)?;
        match at {
            PortKind::Link | PortKind::Local => Some(frame),
            PortKind::Stack => {
                self.hops += 1;
                self.cee.submit(&mut self.ports.pool, frame, now_ps);
                None
            }
        }
    }

    /// A frame arrives at a host, and frames may have overtaken each other.
    #[inline(never)]
    fn receive_in_order(
        &mut self,
        timers: &mut impl Timers,
        host: HostId,
        frame: Handle,
        now_ps: u64,
    ) -> Option<Handle> {
        let Some(resequencers) = &mut self.resequencers else {
            return Some(frame);
        };
        let (cee, pool) = (&self.cee, &self.ports.pool);
        let from = Origin {
            source: cee.source(pool, frame),
            priority: cee.priority(pool, frame),
            path: pool[frame].queue_path(),
        };
        let at = &mut resequencers[host.index()];
        let number = at.number(from);
        let (_, resequencer) = &mut at.all[number];
        let patience_ps = from.patience_ps(self.lossless);
        match resequencer.arrive(cee.number(frame), frame, now_ps, patience_ps) {
            Verdict::Kept(until_ps) => {
                if let Some(until_ps) = until_ps {
                    at.set_timer(timers, host, until_ps);
                }
                at.kept_bytes += u64::from(pool[frame].bytes());
                let limit_bytes = cee.config().resequence_bytes;
                if at.kept_bytes <= limit_bytes {
                    return None;
                }
                // The source whose frame has no room has its frames received now, without those
                // that are missing. The missing ones are received when they come.
                self.overflows += 1;
                at.make_room(pool, number, limit_bytes, &mut self.received);
                self.received.pop_front()
            }
            Verdict::Late => Some(frame),
            Verdict::Next => {
                if !resequencer.is_empty() {
                    at.take(pool, number, &mut self.received);
                }
                Some(frame)
            }
        }
    }

    /// The adapter of a host keeps a notification for itself, and slows down the queue that it
    /// names.
    #[inline(never)]
    fn absorb(
        &mut self,
        (port, host): (PortId, HostId),
        frame: Handle,
        (queue, fb): (QueueKey, u8),
        now_ps: u64,
    ) {
        self.cee.requests.own(OwnEffect::Absorbed(port, frame));
        let pool = &mut self.ports.pool;
        self.cee.notified(pool, host, queue, fb, now_ps);
    }

    /// [`Timer::Resequence`]: a host receives frames although earlier ones are missing.
    fn give_up(&mut self, timers: &mut impl Timers, host: HostId, now_ps: u64) {
        let Some(at) = self.resequencers.iter_mut().flatten().nth(host.index()) else {
            return;
        };
        if at.timer_ps != Some(now_ps) {
            return;
        }
        at.timer_ps = None;
        let all = at.all.iter().enumerate();
        let waits = all.filter(|(_, (_, resequencer))| !resequencer.is_empty());
        let mut waiting: Vec<(Origin, usize)> =
            waits.map(|(number, &(from, _))| (from, number)).collect();
        waiting.sort_unstable();
        let mut next_ps = None;
        for (from, number) in waiting {
            let patience_ps = from.patience_ps(self.lossless);
            let until_ps = at.all[number].1.give_up(now_ps, patience_ps);
            at.take(&self.ports.pool, number, &mut self.received);
            let until_ps = until_ps.filter(|_| !at.all[number].1.is_empty());
            next_ps = next_ps.into_iter().chain(until_ps).min();
        }
        if let Some(at_ps) = next_ps {
            at.set_timer(timers, host, at_ps);
        }
    }
}

/// Methods that only converged Ethernet has.
impl<F: CeeFrame> Converged<F> {
    /// The properties of a port of a link; `None` = the port is within a host.
    pub fn spec(&self, port: PortId) -> Option<&PortSpec> {
        self.links(port).map(|cee| cee.spec(port))
    }

    /// The total time for which pauses have stopped a port.
    pub fn paused_ps(&self, port: PortId, now_ps: u64) -> u64 {
        (self.links(port)).map_or(0, |cee| cee.paused_ps(port, now_ps))
    }

    /// The counters of a port of a link; `None` = the port is within a host.
    pub fn cee_stats(&self, port: PortId) -> Option<CeeStats> {
        self.links(port).map(|cee| cee.stats(port))
    }

    /// The pauses that may belong to a deadlock: see [`Cee::waits`].
    pub fn waits(&self) -> Vec<Wait> {
        self.cee.waits(&self.ports.pool)
    }

    /// A cycle of pauses that cannot end, if there is one: see [`Cee::deadlock_among`].
    pub fn deadlock_among(&self, waits: Vec<Wait>) -> Option<Deadlock> {
        self.cee.deadlock_among(waits)
    }

    /// See [`Cee::paused_since_ps`].
    pub fn paused_since_ps(&self, port: PortId, priority: usize) -> u64 {
        self.cee.paused_since_ps(port, priority)
    }

    /// A pause frame from another part of the run takes effect at a port at this time.
    pub fn hear(&mut self, port: PortId, frame: PauseFrame, at_ps: u64) {
        self.cee.hear(port, frame, at_ps);
    }

    /// Releases a frame that has left for another part, after the effects that are requested now.
    pub fn forget(&mut self, frame: Handle) {
        self.cee.requests.own(OwnEffect::Forget(frame));
    }

    /// How often the buffer of a receiving adapter was full of frames that had overtaken others.
    /// `None` if no frame can overtake another.
    pub fn resequence_overflows(&self) -> Option<u64> {
        self.resequencers.as_ref().map(|_| self.overflows)
    }

    /// Switches change their routes. Sources that choose paths have those of the new routes, and
    /// give up what is no path any more.
    pub fn reroute(&mut self, routes: &Arc<Routes>) {
        self.cee.reroute(routes);
    }

    /// From now on the host at the far end of a port pauses these priorities, and no others: it has
    /// no room for them. See [`Cee::pause_for_host`].
    pub fn pause_for_host(&mut self, port: PortId, priorities: u8, now_ps: u64) {
        let pool = &mut self.ports.pool;
        self.cee.pause_for_host(pool, port, priorities, now_ps);
    }

    /// From now on the far end of a port pauses these priorities whether it has room or not.
    pub fn storm(&mut self, port: PortId, priorities: u8, now_ps: u64) {
        let pool = &mut self.ports.pool;
        self.cee.storm(pool, port, priorities, now_ps);
    }

    /// Whether a host's adapter ignores pauses and notifications from now on.
    pub fn set_babbling(&mut self, host: HostId, babbles: bool, now_ps: u64) {
        let pool = &mut self.ports.pool;
        self.cee.set_babbling(pool, host, babbles, now_ps);
    }
}

impl<F: CeeFrame> Fabric for Converged<F> {
    type Frame = F;
    type Own = OwnEffect;

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
        sender: Sender,
        now_ps: u64,
    ) -> Accepted {
        match self.at(port) {
            PortKind::Link => {}
            PortKind::Local | PortKind::Stack => {
                let accepted = self.ports.accept(timers, port, frame, now_ps);
                self.hops += accepted.hops();
                return accepted;
            }
        }
        let departure = Departure {
            source: sender.host,
            queue: self.queue(frame, sender),
            priority: sender.priority,
            sender: sender.number,
        };
        if self.has_stacks {
            self.enter_stack(timers, frame, departure, now_ps);
        } else {
            self.hops += 1;
            let pool = &mut self.ports.pool;
            self.cee.send(pool, frame, departure, now_ps);
        }
        Accepted::Waits
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
        match self.at(port) {
            PortKind::Link => {}
            at @ (PortKind::Local | PortKind::Stack) => {
                return self.arrive_within(timers, (port, at), now_ps);
            }
        }
        let (arrived, next_ps) = self.cee.arrive(&mut self.ports.pool, port, now_ps);
        if let Some(next_ps) = next_ps {
            timers.set(Timer::Arrival(port), next_ps);
        }
        arrived
    }

    #[inline]
    fn timer(&mut self, timers: &mut impl Timers, timer: Timer, now_ps: u64) {
        let pool = &mut self.ports.pool;
        match timer {
            Timer::Transmit(port) => self.cee.transmit(pool, port, now_ps),
            Timer::Control(port) => self.cee.control(pool, port, now_ps),
            Timer::Resequence(host) => self.give_up(timers, host, now_ps),
            Timer::Arrival(_) => debug_assert!(false, "an arrival has a call of its own"),
        }
    }

    #[inline(always)]
    fn receive(
        &mut self,
        timers: &mut impl Timers,
        (port, host): (PortId, HostId),
        frame: Handle,
        now_ps: u64,
    ) -> Option<Handle> {
        match self.at(port) {
            PortKind::Link => {}
            PortKind::Local | PortKind::Stack => return Some(frame),
        }
        if let Some(notice) = self.ports.pool[frame].notice() {
            self.absorb((port, host), frame, notice, now_ps);
            return None;
        }
        match self.resequencers {
            None => Some(frame),
            Some(_) => self.receive_in_order(timers, host, frame, now_ps),
        }
    }

    #[inline(always)]
    fn next_received(&mut self) -> Option<Handle> {
        self.received.pop_front()
    }

    #[inline(always)]
    fn set_timers(&mut self, timers: &mut impl Timers) -> bool {
        let requests = &mut self.cee.requests;
        let [first, second] = &mut requests.arrivals;
        if let Some((port, at_ps)) = first.take() {
            timers.set(Timer::Arrival(port), at_ps);
            if let Some((port, at_ps)) = second.take() {
                timers.set(Timer::Arrival(port), at_ps);
            }
        }
        !requests.effects.is_empty()
    }

    fn effect(&mut self, at: usize) -> Option<Effect<OwnEffect>> {
        let effects = &mut self.cee.requests.effects;
        let effect = effects.get(at).copied();
        if effect.is_none() {
            effects.clear();
        }
        effect
    }

    fn lanes(&self) -> u8 {
        self.lanes
    }

    #[inline]
    fn has_room(&mut self, lane: Lane, now_ps: u64) -> bool {
        let (pool, bytes) = (&mut self.ports.pool, self.frame_bytes);
        let at = (lane.host, lane.number);
        self.cee.has_room(pool, at, bytes, now_ps)
    }

    #[inline(always)]
    fn room_ps(&self, _lane: Lane) -> Option<u64> {
        None
    }

    fn count_departures(&mut self, host: HostId, now_ps: u64) {
        let pool = &mut self.ports.pool;
        self.cee.count_departures(pool, host, now_ps);
    }

    fn watch(&mut self, port: PortId) {
        match self.at(port) {
            PortKind::Link => self.cee.watch(port),
            PortKind::Local | PortKind::Stack => {}
        }
    }

    fn set_away(&mut self, port: PortId) {
        self.cee.set_away(port);
    }

    fn luggage(&self, frame: Handle) -> Luggage {
        self.cee.luggage(&self.ports.pool, frame)
    }

    fn deliver(
        &mut self,
        timers: &mut impl Timers,
        port: PortId,
        frame: (Handle, Luggage),
        arrival_ps: u64,
    ) {
        let pool = &mut self.ports.pool;
        if self.cee.deliver(pool, port, frame, arrival_ps) {
            timers.set(Timer::Arrival(port), arrival_ps);
        }
    }

    fn copy(&mut self, frame: Handle) -> Handle {
        let pool = &mut self.ports.pool;
        let copy = pool.insert(pool[frame]);
        self.cee.copied(pool, frame, copy);
        copy
    }

    fn priority(&self, frame: Handle) -> Option<u8> {
        Some(self.cee.priority(&self.ports.pool, frame))
    }

    fn audit(&self) -> Result<(), String> {
        let in_stack = |host| match self.has_stacks {
            true => self.ports.underway_bytes(self.map.stack(host)),
            false => 0,
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

    fn backlog_bytes(&mut self, port: PortId, now_ps: u64) -> u64 {
        match self.at(port) {
            PortKind::Link => {
                self.cee.catch_up(&mut self.ports.pool, port, now_ps);
                self.cee.backlog_bytes(port)
            }
            PortKind::Local | PortKind::Stack => self.ports.backlog_bytes(port, now_ps),
        }
    }

    /// Ports of switches are links. Where no frame waits nothing is due and no byte is queued.
    #[inline(always)]
    fn load_bytes(&mut self, port: PortId, now_ps: u64) -> u64 {
        debug_assert!(self.links(port).is_some(), "switches have no other ports");
        match self.cee.has_waiting(port) {
            true => self.backlog_bytes(port, now_ps),
            false => 0,
        }
    }

    fn set_up(&mut self, port: PortId, up: bool, now_ps: u64) {
        debug_assert!(self.links(port).is_some(), "only links fail");
        self.ports.set_up(port, up, now_ps);
        self.cee.set_up(&mut self.ports.pool, port, up, now_ps);
    }

    fn set_rate(&mut self, port: PortId, rate_bps: u64, now_ps: u64) {
        debug_assert!(self.links(port).is_some(), "only links have a rate to set");
        self.cee.catch_up(&mut self.ports.pool, port, now_ps);
        self.cee.set_rate(port, rate_bps, now_ps);
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
        match self.links(port) {
            Some(cee) => cee.fetch_port(port),
            None => self.ports.fetch_port(port),
        }
    }

    #[inline]
    fn fetch_first(&self, port: PortId) {
        match self.links(port) {
            Some(cee) => cee.fetch_first(&self.ports.pool, port),
            None => self.ports.fetch_first(port),
        }
    }

    #[inline]
    fn fetch_queue(&self, port: PortId) {
        match self.links(port) {
            Some(cee) => cee.fetch_queue(&self.ports.pool, port),
            None => self.ports.fetch_last(port),
        }
    }

    #[inline]
    fn first(&self, port: PortId) -> Option<&F> {
        match self.at(port) {
            PortKind::Link => self.cee.first(&self.ports.pool, port),
            PortKind::Local => self.ports.first(port),
            PortKind::Stack => None,
        }
    }
}
