//! Runs the parts of a network in parallel, one window of simulated time after the other.
//!
//! An event of one part affects another part no sooner than the shortest link between them takes
//! (the lookahead). So each part handles its events of one lookahead on its own; then all parts
//! exchange packets (conservative synchronisation: Chandy and Misra 1979, with the windows of Nicol
//! 1993). Exports alternate between two sets of boxes, so one barrier per window is enough.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use anyhow::{Result, anyhow};
use sluicegate_apps::{Actor, App};
use sluicegate_core::{
    abi::{Flow, FlowKey},
    number::index,
};
use sluicegate_fabric::{
    graph::{HostId, Node, PortId},
    port::PortStats,
};
use sluicegate_scenario::workload::Report;

use crate::{
    actors::Actors,
    drive::Drive,
    exports::Exports,
    layout::Layout,
    net::{Net, PacketFabric, Plain},
};

/// Events between two calls of [`Look`].
const EVENTS_PER_LOOK: u64 = 1 << 16;

/// Windows between two calls of [`Look`], where windows have few events.
const WINDOWS_PER_LOOK: u64 = 1 << 12;

/// No frame is longer.
const LONGEST_BYTES: u64 = 1 << 17;

/// Polls of the barrier before a waiting thread sleeps.
const SPINS: u32 = 2_000;

/// Some of the hosts and switches, and the roles of their tenants.
pub struct Part<A = App, F = Plain> {
    /// Machines and network.
    pub net: Net<F>,
    /// Roles.
    pub actors: Actors<A>,
}

impl<A: Actor, F: PacketFabric> Part<A, F> {
    /// Handles events before `until_ps`, at most so many; false if none is left before.
    #[inline(never)]
    fn steps_before(&mut self, until_ps: u64, most: u64) -> bool {
        for _ in 0..most {
            if !self.step_before(until_ps) {
                return false;
            }
        }
        true
    }

    /// Handles the next event before `until_ps` and notifies actors of it; false if there is none.
    #[inline(always)]
    fn step_before(&mut self, until_ps: u64) -> bool {
        if !self.net.step_before(until_ps) {
            return false;
        }
        if self.net.sockets.has_notices() {
            self.actors.hear(&mut self.net);
        }
        true
    }
}

/// A callback for progress: it gets the number of packets transmitted on links so far and the
/// simulated time in ps. An error that it returns ends the run.
pub type Look<'a> = &'a mut dyn FnMut(u64, u64) -> Result<()>;

/// A whole network.
pub struct Engine<A = App, F = Plain> {
    layout: Arc<Layout>,
    parts: Vec<Part<A, F>>,
    lookahead_ps: u64,
    drive: Drive,
    slices: u64,
}

impl<A: Actor + Send, F: PacketFabric> Engine<A, F> {
    /// Takes the parts of the layout, each of which gets a thread. `lookahead_ps` is the shortest
    /// delay of a link between two parts; it is not 0 if there are several parts.
    pub fn new(layout: Arc<Layout>, parts: Vec<Part<A, F>>, lookahead_ps: u64) -> Self {
        Self {
            layout,
            parts,
            lookahead_ps,
            drive: Drive::Together,
            slices: 0,
        }
    }

    /// Gives the parts threads only while threads are faster than taking turns. Results do not
    /// depend on it.
    pub fn choose_drive(&mut self) {
        self.drive = Drive::measured();
    }

    /// Lets the actors of all parts begin, at time 0.
    pub fn begin(&mut self) {
        for part in &mut self.parts {
            part.actors.begin(&mut part.net);
        }
    }

    /// Delivers pending notices to actors, after an event of the scenario has changed the network.
    pub fn hear(&mut self) {
        for part in &mut self.parts {
            part.actors.hear(&mut part.net);
        }
    }

    /// Handles every event before `until_ps`.
    ///
    /// # Errors
    /// An error of `look`, or the panic of a part's thread.
    pub fn run_until(&mut self, until_ps: u64, look: Look<'_>) -> Result<()> {
        match self.parts.as_mut_slice() {
            [part] => {
                let most = |events: u64| EVENTS_PER_LOOK - events % EVENTS_PER_LOOK;
                while part.steps_before(until_ps, most(part.net.events())) {
                    look(part.net.hops(), part.net.now_ps())?;
                }
                part.net.pass(until_ps);
            }
            _ => self.run_parts(until_ps, look)?,
        }
        look(self.hops(), self.now_ps())
    }

    fn run_parts(&mut self, until_ps: u64, look: Look<'_>) -> Result<()> {
        while self.now_ps() < until_ps {
            self.exchange();
            // Where nothing happens there is nothing to measure, and no thread to start.
            let next_ps = self.next_ps();
            if next_ps >= until_ps {
                self.pass(until_ps);
                break;
            }
            self.slices += 1;
            let slice = self.drive.slice(next_ps, until_ps);
            let (events, begun) = (self.events(), Instant::now());
            if slice.together {
                self.run_together(slice.until_ps, look)?;
            } else {
                self.run_in_turn(slice.until_ps, look)?;
            }
            let events = self.events() - events;
            self.drive.took(&slice, events, begun.elapsed());
        }
        Ok(())
    }

    /// Runs all parts on this thread, which take turns in each window.
    fn run_in_turn(&mut self, until_ps: u64, look: Look<'_>) -> Result<()> {
        let mut looked = self.events();
        for window in 1u64.. {
            self.exchange();
            let begin_ps = self.next_ps();
            if begin_ps >= until_ps {
                break;
            }
            let end_ps = begin_ps.saturating_add(self.lookahead_ps.max(1));
            for part in &mut self.parts {
                part.steps_before(end_ps.min(until_ps), u64::MAX);
            }
            let events = self.events();
            if window % WINDOWS_PER_LOOK == 0 || events - looked >= EVENTS_PER_LOOK {
                looked = events;
                look(self.hops(), self.now_ps())?;
            }
        }
        self.pass(until_ps);
        Ok(())
    }

    /// The time of the next event of any part; `u64::MAX` = none.
    fn next_ps(&mut self) -> u64 {
        let next = self.parts.iter_mut().map(|part| part.net.next_ps()).min();
        next.unwrap_or(u64::MAX)
    }

    /// All parts have handled every event before this time.
    fn pass(&mut self, until_ps: u64) {
        self.parts
            .iter_mut()
            .for_each(|part| part.net.pass(until_ps));
    }

    /// Stretches of time that the parts were driven through, by threads or in turn. Each begins
    /// with an event.
    pub fn slices(&self) -> u64 {
        self.slices
    }

    /// Events that all parts have handled.
    pub fn handled(&self) -> u64 {
        self.events()
    }

    /// Hands the exports of each part to the receiving parts, in the order of the exporting parts.
    fn exchange(&mut self) {
        for from in 0..self.parts.len() {
            for to in 0..self.parts.len() {
                let mut exports = std::mem::take(&mut self.parts[from].net.post.outgoing[to]);
                self.parts[to].net.import(&mut exports);
                self.parts[from].net.post.outgoing[to] = exports;
            }
        }
    }

    fn events(&self) -> u64 {
        self.parts.iter().map(|part| part.net.events()).sum()
    }

    fn run_together(&mut self, until_ps: u64, look: Look<'_>) -> Result<()> {
        let meeting = Meeting::new(self.parts.len());
        let lookahead_ps = self.lookahead_ps.max(1);
        let Some((first, others)) = self.parts.split_first_mut() else {
            return Ok(());
        };
        let outcome = thread::scope(|scope| {
            for (index, part) in others.iter_mut().enumerate() {
                let member = Member {
                    meeting: &meeting,
                    me: index + 1,
                };
                scope.spawn(move || member.run(part, until_ps, lookahead_ps, &mut |_, _| Ok(())));
            }
            let member = Member {
                meeting: &meeting,
                me: 0,
            };
            member.run(first, until_ps, lookahead_ps, look)
        });
        if meeting.broken.load(Ordering::Acquire) {
            return Err(anyhow!(
                "a thread of the simulation failed; its message is above"
            ));
        }
        outcome
    }

    /// Simulated time.
    pub fn now_ps(&self) -> u64 {
        self.parts[0].net.now_ps()
    }

    /// Packets transmitted on links so far.
    pub fn hops(&self) -> u64 {
        self.parts.iter().map(|part| part.net.hops()).sum()
    }

    /// The networks of all parts.
    pub fn nets(&mut self) -> impl Iterator<Item = &mut Net<F>> {
        self.parts.iter_mut().map(|part| &mut part.net)
    }

    /// The network of the part that has a port's queue.
    pub fn net_of_port(&mut self, port: PortId) -> &mut Net<F> {
        let part = match self.parts.len() {
            1 => 0,
            _ => self.layout.part_of_port(port),
        };
        &mut self.parts[part].net
    }

    /// The network of the part that has a host.
    pub fn net_of_host(&mut self, host: HostId) -> &mut Net<F> {
        let part = self.layout.part_of_host(host);
        &mut self.parts[part].net
    }

    /// The counters of a port, including frames that were lost on the way to another part.
    pub fn stats(&self, port: PortId) -> PortStats {
        let mut sum = PortStats::default();
        let mut add = |stats: PortStats| {
            sum.accepted += stats.accepted;
            sum.accepted_bytes += stats.accepted_bytes;
            sum.marks += stats.marks;
            sum.duplicates += stats.duplicates;
            for (sum, count) in sum.drops.iter_mut().zip(stats.drops) {
                *sum += count;
            }
        };
        for part in &self.parts {
            add(part.net.fabric.stats(port));
        }
        sum
    }

    /// All flows in the tables of the vNIC stages, in the order of hosts.
    pub fn tracked(&self) -> impl Iterator<Item = (&FlowKey, &Flow)> {
        let hosts = HostId::first(self.parts[0].net.hosts.len());
        hosts.flat_map(move |host| {
            let part = self.layout.part_of_host(host);
            self.parts[part].net.tracked(host)
        })
    }

    /// Lets the actors begin that begin together with others, if all of their traffic could.
    /// Returns whether some are left.
    pub fn set_off(&mut self) -> bool {
        let now_ns = self.now_ps() / 1_000;
        let mut ready: BTreeMap<u32, bool> = BTreeMap::new();
        for (traffic, is_ready) in self.parts.iter().flat_map(|part| part.actors.held(now_ns)) {
            *ready.entry(traffic).or_insert(true) &= is_ready;
        }
        for traffic in ready.iter().filter(|(_, ready)| **ready) {
            for part in &mut self.parts {
                part.actors.set_off(&mut part.net, *traffic.0);
            }
        }
        self.hear();
        ready.values().any(|ready| !ready)
    }

    /// Whether there are actors that decide how long the run lasts, and all of them have finished.
    pub fn is_complete(&self) -> bool {
        let mut complete = self.parts.iter().flat_map(|part| part.actors.complete());
        complete
            .next()
            .is_some_and(|first| first && complete.all(|is| is))
    }

    /// Whether no event is pending and no packet is between parts: nothing will ever happen.
    pub fn is_idle(&mut self) -> bool {
        self.next_ps() == u64::MAX
    }

    /// See [`Net::account`]; also that hosts have not received more than was carried to them.
    ///
    /// # Errors
    /// The balance of the first part that has lost a packet.
    pub fn account(&self) -> Result<()> {
        for part in &self.parts {
            part.net.account().map_err(|balance| anyhow!(balance))?;
        }
        self.account_for_payload()
    }

    /// Checks that no host has received more payload than the links and ports to it have carried in
    /// frames. Stacks count payload, ports the length of frames, which says how long a link is
    /// busy.
    fn account_for_payload(&self) -> Result<()> {
        let mut carried_bytes = vec![0; self.parts[0].net.hosts.len()];
        for port in PortId::first(self.layout.next_hops.len()) {
            if let Node::Host(host) = self.layout.next_hops[port.index()] {
                let stats = self.stats(port);
                let doubled = stats.duplicates.saturating_mul(LONGEST_BYTES);
                carried_bytes[host.index()] += stats.accepted_bytes.saturating_add(doubled);
            }
        }
        for (host, carried_bytes) in HostId::enumerate(&carried_bytes) {
            let part = self.layout.part_of_host(host);
            let received_bytes = self.parts[part].net.hosts[host.index()].received_bytes;
            if received_bytes > *carried_bytes {
                return Err(anyhow!(
                    "host {} has received {received_bytes} bytes of payload in {carried_bytes} \
                     bytes of frames",
                    host.0
                ));
            }
        }
        Ok(())
    }

    /// The reports of all tenants.
    pub fn reports(&mut self) -> Vec<Report> {
        let mut reports = Vec::new();
        for part in &mut self.parts {
            let actors = std::mem::take(&mut part.actors);
            reports.extend(actors.reports(&mut part.net));
        }
        reports.sort_by_key(|(tenant, _)| *tenant);
        reports.into_iter().map(|(_, report)| report).collect()
    }
}

/// Sets of boxes: threads fill one set while others may still empty the other.
const TURNS: usize = 2;

/// The barrier at which the threads of all parts meet after each window, and the boxes for exports.
struct Meeting {
    members: usize,
    arrived: AtomicUsize,
    round: AtomicU64,
    /// By turn and part: 1 + the time of the part's next event; 0 = the part wants to stop.
    next: [Vec<AtomicU64>; TURNS],
    /// By turn, the exports from each part to each other: index sender × members + receiver.
    boxes: [Vec<Mutex<Exports>>; TURNS],
    broken: AtomicBool,
    /// Threads that sleep until the next round, counted under `bed`.
    sleepers: AtomicUsize,
    bed: Mutex<()>,
    alarm: Condvar,
}

impl Meeting {
    fn new(members: usize) -> Self {
        let next = || (0..members).map(|_| AtomicU64::new(0)).collect();
        let boxes = || {
            let pairs = 0..members * members;
            pairs.map(|_| Mutex::new(Exports::default())).collect()
        };
        Self {
            members,
            arrived: AtomicUsize::new(0),
            round: AtomicU64::new(0),
            next: [next(), next()],
            boxes: [boxes(), boxes()],
            broken: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            bed: Mutex::new(()),
            alarm: Condvar::new(),
        }
    }

    /// Waits until all threads have arrived; false if a thread has panicked.
    fn wait(&self) -> bool {
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.members {
            self.arrived.store(0, Ordering::Relaxed);
            self.round.store(round + 1, Ordering::SeqCst);
            self.wake();
            return true;
        }
        let is_over_soon = (0..SPINS).any(|_| {
            std::hint::spin_loop();
            self.is_over(round)
        });
        if !is_over_soon {
            self.sleep(round);
        }
        !self.broken.load(Ordering::SeqCst)
    }

    fn is_over(&self, round: u64) -> bool {
        self.round.load(Ordering::SeqCst) != round || self.broken.load(Ordering::SeqCst)
    }

    /// On a machine whose CPUs others use, too, a member may not run for milliseconds. Those that
    /// wait for it leave it their CPU.
    fn sleep(&self, round: u64) {
        let mut bed = self.bed.lock().unwrap_or_else(PoisonError::into_inner);
        // The thread that ends the round stores `round` before it loads `sleepers`. So either that
        // thread sees this sleeper, or the loop sees the new round.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !self.is_over(round) {
            bed = self.alarm.wait(bed).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    fn wake(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _bed = self.bed.lock().unwrap_or_else(PoisonError::into_inner);
            self.alarm.notify_all();
        }
    }
}

/// The thread of one part.
struct Member<'a> {
    meeting: &'a Meeting,
    me: usize,
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.meeting.broken.store(true, Ordering::SeqCst);
            self.meeting.wake();
        }
    }
}

impl Member<'_> {
    fn run<A: Actor, F: PacketFabric>(
        &self,
        part: &mut Part<A, F>,
        until_ps: u64,
        lookahead_ps: u64,
        look: Look<'_>,
    ) -> Result<()> {
        let mut outcome = Ok(());
        let mut looked = part.net.events();
        for window in 1u64.. {
            let turn = index(window % TURNS as u64);
            self.send(part, turn, outcome.is_err());
            if !self.meeting.wait() {
                break;
            }
            self.receive(part, turn);
            let next = self.meeting.next[turn].iter();
            let next = next.map(|next| next.load(Ordering::Acquire)).min();
            let Some(begin_ps) = next.unwrap_or(0).checked_sub(1) else {
                break; // another thread wants to stop
            };
            if begin_ps >= until_ps {
                break;
            }
            let end_ps = begin_ps.saturating_add(lookahead_ps).min(until_ps);
            part.steps_before(end_ps, u64::MAX);
            let many = part.net.events() - looked >= EVENTS_PER_LOOK;
            if many || window % WINDOWS_PER_LOOK == 0 {
                looked = part.net.events();
                let hops = part.net.hops() * self.meeting.members as u64;
                outcome = look(hops, part.net.now_ps());
            }
        }
        part.net.pass(until_ps);
        outcome
    }

    /// Puts the part's exports into the boxes, and publishes the time of its next event.
    fn send<A, F: PacketFabric>(&self, part: &mut Part<A, F>, turn: usize, stop: bool) {
        let next = match stop {
            true => 0,
            false => part.net.next_ps().saturating_add(1),
        };
        self.meeting.next[turn][self.me].store(next, Ordering::Release);
        for (to, exports) in part.net.post.outgoing.iter_mut().enumerate() {
            if !exports.is_empty() {
                let place = &self.meeting.boxes[turn][self.me * self.meeting.members + to];
                let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::swap(&mut *place, exports);
            }
        }
    }

    fn receive<A, F: PacketFabric>(&self, part: &mut Part<A, F>, turn: usize) {
        for from in 0..self.meeting.members {
            let place = &self.meeting.boxes[turn][from * self.meeting.members + self.me];
            let mut exports = place.lock().unwrap_or_else(PoisonError::into_inner);
            part.net.import(&mut exports);
        }
    }
}
