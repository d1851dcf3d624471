//! The switch of one host, between its vNICs and its adapter.
//!
//! ```text
//!                 entrance                          exit
//!  VM ──▶ transmit ring of its vNIC ─┐   ┌─▶ uplink queue ─────────▶ adapter
//!                                    ├─▶─┤
//!  adapter ──▶ its receive ring ─────┘   └─▶ receive ring of a vNIC ──▶ VM
//! ```
//!
//! Every arrow is a hand-over. The [`Point`] of each place is its bound, and says whether a full
//! place drops or holds back. A packet moves on as soon as there is room. It stays in its entrance
//! only for a full exit that holds back, and packets for other exits pass it (zVALE, Algorithm 4.1
//! of the zOVN thesis). Entrances take turns there, a packet each; the algorithm pulls whole
//! entrances, the first one first. A hand-over takes no time here. So an adapter or a VM that takes
//! packets at once sets its exit ready ([`Switch::set_ready`]). A packet that meets a ready exit
//! and no other packet before it passes without being stored.

use std::collections::VecDeque;

use sluicegate_core::number::narrow;

use crate::{
    passed::{Passed, Tally},
    point::{Bound, Load, Point, Queue, WhenFull},
    table::Connection,
    vnic::Vnics,
};

/// A side of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The adapter; of an adapter with a queue for each priority, priority 0.
    Uplink,
    /// Another priority of such an adapter, 1..=7.
    Lane(u8),
    /// A vNIC, by number within the host from 0.
    Vnic(u16),
}

impl Side {
    fn index(self) -> usize {
        match self {
            Self::Uplink => 0,
            Self::Lane(priority) => usize::from(priority),
            Self::Vnic(number) => usize::from(number) + LANES,
        }
    }

    /// The vNIC of an entrance of [`Switch::waiting`].
    pub fn vnic_of(entrance: usize) -> Option<u16> {
        u16::try_from(entrance.checked_sub(LANES)?).ok()
    }

    /// The priority with which packets of this exit leave the host.
    pub fn lane(self) -> u8 {
        match self {
            Self::Lane(priority) => priority,
            Self::Uplink | Self::Vnic(_) => 0,
        }
    }

    /// Whether packets of this exit leave the host.
    pub fn is_uplink(self) -> bool {
        !matches!(self, Self::Vnic(_))
    }
}

/// Priorities of an adapter.
const LANES: usize = 8;

/// Where packets are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Transmit ring of a vNIC.
    Transmit,
    /// In front of the adapter.
    Uplink,
    /// The adapter's receive ring.
    Arrival,
    /// Receive ring of a vNIC.
    Receive,
}

impl Place {
    /// Names of the places, in their order.
    pub const NAMES: [&str; 4] = ["vnic_transmit", "uplink", "arrival", "vnic_receive"];

    fn entrance(side: Side) -> Self {
        match side {
            Side::Uplink | Side::Lane(_) => Self::Arrival,
            Side::Vnic(_) => Self::Transmit,
        }
    }

    fn exit(side: Side) -> Self {
        match side {
            Side::Uplink | Side::Lane(_) => Self::Uplink,
            Side::Vnic(_) => Self::Receive,
        }
    }
}

/// The configuration of the places of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Transmit ring of each vNIC.
    pub transmit: Point,
    /// In front of the adapter.
    pub uplink: Point,
    /// The adapter's receive ring.
    pub arrival: Point,
    /// Receive ring of each vNIC.
    pub receive: Point,
}

impl Config {
    /// No packet waits in the switch: all packets of VMs go to the adapter, which drops those that
    /// do not fit into its queue.
    pub const fn straight() -> Self {
        let lossy = Point {
            bound: Bound::NONE,
            when_full: WhenFull::Drop,
        };
        Self {
            transmit: lossy,
            uplink: lossy,
            arrival: lossy,
            receive: lossy,
        }
    }

    /// No packet waits in the switch: senders wait for the adapter and take turns.
    pub const fn turns() -> Self {
        let holds_back = Point {
            bound: Bound::NONE,
            when_full: WhenFull::HoldBack,
        };
        Self {
            transmit: holds_back,
            uplink: holds_back,
            ..Self::straight()
        }
    }

    /// Each vNIC has a ring of so many bytes, from which the adapter takes by turns.
    pub const fn rings(bytes: u64, when_full: WhenFull) -> Self {
        let transmit = Point {
            bound: Bound::bytes(bytes),
            when_full,
        };
        Self {
            transmit,
            ..Self::turns()
        }
    }

    /// The adapter is given a packet only when it is ready for it.
    pub fn waits_for_adapter(&self) -> bool {
        self.uplink.when_full == WhenFull::HoldBack
    }

    fn entrance(&self, side: Side) -> Point {
        match side {
            Side::Uplink | Side::Lane(_) => self.arrival,
            Side::Vnic(_) => self.transmit,
        }
    }

    fn exit(&self, side: Side) -> Point {
        match side {
            Side::Uplink | Side::Lane(_) => self.uplink,
            Side::Vnic(_) => self.receive,
        }
    }
}

/// The fate of a packet that was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// It leaves the switch at once: its exit is ready and no packet waits before it.
    Through,
    /// The switch has it until [`Switch::take`].
    Taken,
    /// It was dropped, and counted.
    Dropped(Place),
    /// The sender keeps it and hands over nothing until [`Switch::resume`] names it.
    Held,
}

/// An exit, and the packets that wait for it.
#[derive(Clone, Debug)]
struct Exit<P> {
    /// The receiver behind this exit takes a packet at once.
    ready: bool,
    /// The queue in front of the exit.
    queue: Queue<P>,
    /// By entrance, the packets there that wait for this exit.
    behind: Vec<Queue<P>>,
    /// The entrances with packets for this exit, each once, in the order of their turns.
    turns: VecDeque<usize>,
}

impl<P> Default for Exit<P> {
    fn default() -> Self {
        Self {
            ready: true,
            queue: Queue::default(),
            behind: Vec::new(),
            turns: VecDeque::new(),
        }
    }
}

impl<P> Exit<P> {
    fn is_empty(&self) -> bool {
        self.queue.load().packets == 0 && self.turns.is_empty()
    }

    fn is_clear(&self) -> bool {
        self.ready && self.is_empty()
    }

    fn wait(&mut self, entrance: usize, packet: P, bytes: u32) {
        if self.behind.len() <= entrance {
            self.behind.resize_with(entrance + 1, Queue::default);
        }
        if self.behind[entrance].load().packets == 0 {
            self.turns.push_back(entrance);
        }
        self.behind[entrance].push(packet, bytes);
    }

    /// The next packet from the entrances if it is at most as long as `fits` says: entrance,
    /// packet, bytes.
    fn next(&mut self, fits: impl Fn(u32) -> bool) -> Option<(usize, P, u32)> {
        let &entrance = self.turns.front()?;
        if !self.behind[entrance].first_bytes().is_some_and(fits) {
            return None;
        }
        self.turns.pop_front();
        let (packet, bytes) = self.behind[entrance].pop()?;
        if self.behind[entrance].load().packets > 0 {
            self.turns.push_back(entrance);
        }
        Some((entrance, packet, bytes))
    }
}

#[derive(Clone, Copy, Debug)]
struct Held<S> {
    sender: S,
    from: Side,
    to: Side,
    bytes: u32,
}

/// A host's switch. `P` is a packet, or where it is kept; `S` identifies the senders at the
/// entrances, and the connections in the vNIC stage.
pub struct Switch<P, S> {
    /// Enforcement at the vNICs, where packets come in from VMs and before they go out to them.
    pub vnics: Option<Vnics<S>>,
    host: u32,
    config: Config,
    entrances: Vec<Load>,
    exits: Vec<Exit<P>>,
    /// Held-back senders, in the order in which they were held back.
    held: VecDeque<Held<S>>,
    /// Bit p: places drop packets of priority p, whatever the configuration says of full places.
    lossy: u8,
    /// Priorities of each vNIC, see [`Switch::with_priorities`].
    priorities: u16,
    /// The sender that [`Switch::resume`] has returned last, until it hands over a packet.
    named: Option<S>,
    /// See [`Switch::is_calm`].
    calm: bool,
    drops: [u64; Place::NAMES.len()],
    /// See [`Switch::with_counts`].
    tally: Option<Box<Tally>>,
}

impl<P, S: Connection> Switch<P, S> {
    /// An empty switch of the host with this number.
    pub fn new(host: u32, config: Config, vnics: Option<Vnics<S>>) -> Self {
        Self {
            vnics,
            host,
            config,
            entrances: Vec::new(),
            exits: vec![Exit::default()],
            held: VecDeque::new(),
            lossy: 0,
            priorities: 1,
            named: None,
            calm: true,
            drops: [0; Place::NAMES.len()],
            tally: None,
        }
    }

    /// Each vNIC has rings of its own for so many priorities, at least one: `Side::Vnic(n)` is
    /// priority n modulo `priorities` of vNIC n / `priorities`. Of priorities in `lossy` (bit p =
    /// priority p) full places drop packets, also if they are configured to hold back.
    #[must_use]
    pub fn with_priorities(mut self, priorities: u8, lossy: u8) -> Self {
        self.priorities = u16::from(priorities.max(1));
        self.lossy = lossy;
        self
    }

    /// Counts packets at the points that they pass ([`Switch::passed`]), for switches that store
    /// every packet: no exit is ever ready, and no packet is removed.
    #[must_use]
    pub fn with_counts(mut self) -> Self {
        self.tally = Some(Box::default());
        self
    }

    /// The priority of the packets of a side.
    fn priority(&self, side: Side) -> u8 {
        match side {
            Side::Vnic(number) => narrow::<u8>(number % self.priorities),
            Side::Uplink | Side::Lane(_) => side.lane(),
        }
    }

    /// What a full place does to a packet of this side.
    fn when_full(&self, point: Point, side: Side) -> WhenFull {
        match self.lossy != 0 && self.lossy >> self.priority(side) & 1 != 0 {
            false => point.when_full,
            true => WhenFull::Drop,
        }
    }

    /// The configuration of its places.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The exit of a packet for a host: the uplink, or for this host the vNIC that the closure
    /// returns.
    #[inline]
    pub fn forward(&self, host: u32, vnic: impl FnOnce() -> u16) -> Side {
        if host == self.host {
            Side::Vnic(vnic())
        } else {
            Side::Uplink
        }
    }

    /// Whether a packet for this exit would pass without being stored.
    #[inline]
    pub fn is_clear(&self, to: Side) -> bool {
        // An exit that was never used is empty.
        self.exits.get(to.index()).is_none_or(Exit::is_clear)
    }

    /// Whether a packet of any sender for this exit would pass without being stored, and no sender
    /// waits for a turn at any exit.
    #[inline]
    pub fn lets_through(&self, to: Side) -> bool {
        self.calm || self.has_no_turns() && self.is_clear(to)
    }

    /// Whether a packet of any sender would pass to any exit without waiting. The switch may notice
    /// late that this has become true.
    #[inline]
    pub fn is_calm(&self) -> bool {
        self.calm
    }

    /// Whether no sender waits for a turn.
    fn has_no_turns(&self) -> bool {
        self.held.is_empty() && self.named.is_none()
    }

    /// Recomputes whether the switch is calm: no sender waits for a turn, and every exit is ready
    /// and empty.
    fn update_calm(&mut self) {
        self.calm = self.has_no_turns() && self.exits.iter().all(Exit::is_clear);
    }

    /// Prefetches the state that a packet for this exit needs, by reading it; the number has no
    /// meaning.
    #[inline]
    pub fn prefetch(&self, to: Side) -> u64 {
        let exit = self.exits.get(to.index());
        self.held.len() as u64 ^ exit.map_or(0, |exit| u64::from(exit.ready))
    }

    /// Sets whether the receiver behind an exit takes the next packet at once. At first all do.
    #[inline]
    pub fn set_ready(&mut self, to: Side, ready: bool) {
        debug_assert!(
            !ready || self.tally.is_none(),
            "what is not stored is not counted"
        );
        if self.is_ready(to) != ready {
            self.exit(to).ready = ready;
            self.update_calm();
        }
    }

    /// Whether the receiver behind an exit takes a packet at once.
    #[inline]
    pub fn is_ready(&self, to: Side) -> bool {
        self.exits.get(to.index()).is_none_or(|exit| exit.ready)
    }

    fn exit(&mut self, side: Side) -> &mut Exit<P> {
        let index = side.index();
        if self.exits.len() <= index {
            self.exits.resize_with(index + 1, Exit::default);
        }
        &mut self.exits[index]
    }

    fn load(&self, from: Side) -> Load {
        let load = self.entrances.get(from.index()).copied();
        load.unwrap_or_default()
    }

    /// Whether a packet is dropped nowhere and need not be kept by its sender.
    fn has_room(&self, from: Side, to: Side, bytes: u32) -> bool {
        let exit = self.exits.get(to.index());
        let waiting = exit.map_or(Load::default(), |exit| exit.queue.load());
        let passes = exit.is_none_or(|exit| exit.turns.is_empty())
            && self.config.exit(to).bound.fits(waiting, bytes);
        let entrance = self.config.entrance(from).bound;
        self.is_clear(to) || passes || entrance.fits(self.load(from), bytes)
    }

    /// Whether a sender may hand over a packet of at most so many bytes now. If not, the sender is
    /// held back: it hands over nothing until [`Switch::resume`] returns it.
    pub fn may_send(&mut self, from: Side, sender: S, to: Side, bytes: u32) -> bool {
        let drops = |point: Point, side| self.when_full(point, side) == WhenFull::Drop;
        if drops(self.config.exit(to), to) || drops(self.config.entrance(from), from) {
            return true;
        }
        let is_clear = self.is_clear(to);
        let before = |held: &Held<S>| held.from == from && (held.to == to || !is_clear);
        let turn = self.named == Some(sender) || !self.held.iter().any(before);
        let may = turn && self.has_room(from, to, bytes);
        if !may {
            self.hold(Held {
                sender,
                from,
                to,
                bytes,
            });
        }
        may
    }

    fn hold(&mut self, held: Held<S>) {
        self.named = None;
        self.held.push_back(held);
    }

    /// A sender hands over a packet.
    pub fn offer(&mut self, from: Side, sender: S, to: Side, packet: P, bytes: u32) -> Handover {
        if self.lets_through(to) {
            return Handover::Through;
        }
        if !self.may_send(from, sender, to, bytes) {
            return Handover::Held;
        }
        self.named = None;
        self.update_calm();
        if self.is_clear(to) {
            return Handover::Through;
        }
        self.keep(from, to, packet, bytes)
    }

    /// Takes a packet that the vNIC stage adds behind one that has been handed over. No sender is
    /// held back for it: behind a packet that has passed it passes as well, and if it does not fit
    /// it is dropped.
    pub fn append(&mut self, from: Side, to: Side, packet: P, bytes: u32) -> Handover {
        if self.exits.get(to.index()).is_none_or(Exit::is_empty) {
            return Handover::Through;
        }
        self.keep(from, to, packet, bytes)
    }

    /// Takes a packet whose sender cannot be held back: it waits for its turn, or is dropped where
    /// it does not fit.
    pub fn arrive(&mut self, from: Side, to: Side, packet: P, bytes: u32) -> Handover {
        self.keep(from, to, packet, bytes)
    }

    /// Finds a place for a packet that cannot pass at once.
    fn keep(&mut self, from: Side, to: Side, packet: P, bytes: u32) -> Handover {
        let (exit_point, entrance_point) = (self.config.exit(to), self.config.entrance(from));
        let (load, when_full) = (self.load(from), self.when_full(exit_point, to));
        let sides = [from.index(), to.index()];
        let exit = self.exit(to);
        if exit.turns.is_empty() && exit_point.bound.fits(exit.queue.load(), bytes) {
            exit.queue.push(packet, bytes);
            self.count(|tally| tally.passes_at_once(sides));
            return Handover::Taken;
        }
        let place = match when_full {
            WhenFull::Drop => Place::exit(to),
            WhenFull::HoldBack if entrance_point.bound.fits(load, bytes) => {
                exit.wait(from.index(), packet, bytes);
                self.entrance(from.index()).add(bytes);
                self.count(|tally| tally.waits(sides));
                return Handover::Taken;
            }
            WhenFull::HoldBack => Place::entrance(from),
        };
        self.drops[place as usize] += 1;
        self.count(|tally| match when_full {
            WhenFull::Drop => tally.overflows(sides),
            WhenFull::HoldBack => tally.is_refused(sides),
        });
        Handover::Dropped(place)
    }

    fn count(&mut self, note: impl FnOnce(&mut Tally)) {
        if let Some(tally) = &mut self.tally {
            note(tally);
        }
    }

    fn entrance(&mut self, index: usize) -> &mut Load {
        if self.entrances.len() <= index {
            self.entrances.resize(index + 1, Load::default());
        }
        &mut self.entrances[index]
    }

    /// The length in bytes of the packet that [`Switch::take`] would return.
    pub fn first_bytes(&self, to: Side) -> Option<u32> {
        let exit = self.exits.get(to.index())?;
        let behind = || exit.behind[*exit.turns.front()?].first_bytes();
        exit.queue.first_bytes().or_else(behind)
    }

    /// The packet that [`Switch::take`] would return.
    pub fn first(&self, to: Side) -> Option<&P> {
        let exit = self.exits.get(to.index())?;
        let behind = || exit.behind[*exit.turns.front()?].first();
        exit.queue.first().or_else(behind)
    }

    /// The receiver behind an exit takes its next packet. Packets in the entrances move on.
    pub fn take(&mut self, to: Side) -> Option<P> {
        let (bound, number) = (self.config.exit(to).bound, to.index());
        let first = self.exits.get_mut(number)?.queue.pop();
        let taken = first.or_else(|| self.advance(number, |_| true));
        if let (Some(tally), Some(_)) = (&mut self.tally, &taken) {
            tally.is_taken(number);
        }
        loop {
            let waiting = self.exits[number].queue.load();
            let next = self.advance(number, |bytes| bound.fits(waiting, bytes));
            let Some((packet, bytes)) = next else {
                return taken.map(|(packet, _)| packet);
            };
            self.exits[number].queue.push(packet, bytes);
        }
    }

    /// The next packet that waits behind an exit, if it fits there; it leaves its entrance.
    fn advance(&mut self, exit: usize, fits: impl Fn(u32) -> bool) -> Option<(P, u32)> {
        let (entrance, packet, bytes) = self.exits[exit].next(fits)?;
        self.entrances[entrance].remove(bytes);
        if let Some(tally) = &mut self.tally {
            tally.moves_on([entrance, exit]);
        }
        Some((packet, bytes))
    }

    /// Returns the next held-back sender that may hand over a packet now. To be called until it
    /// returns none, whenever a packet was taken or an exit became ready.
    pub fn resume(&mut self) -> Option<S> {
        let may = |held: &Held<S>| self.has_room(held.from, held.to, held.bytes);
        let Some(position) = self.held.iter().position(may) else {
            self.update_calm();
            return None;
        };
        let sender = self.held.remove(position)?.sender;
        self.named = Some(sender);
        Some(sender)
    }

    /// The number of packets in the switch.
    pub fn packets(&self) -> usize {
        let entrances = self.entrances.iter().map(|load| load.packets);
        let exits = self.exits.iter().map(|exit| exit.queue.load().packets);
        entrances.chain(exits).sum()
    }

    /// Whether packets or senders wait for the adapter.
    pub fn waits(&self) -> bool {
        let mut lanes = self.exits.iter().take(LANES);
        !self.held.is_empty() || lanes.any(|exit| !exit.is_empty())
    }

    /// Removes waiting packets that `keep` does not want, and returns them.
    pub fn remove(&mut self, mut keep: impl FnMut(&P) -> bool) -> Vec<P> {
        debug_assert!(self.tally.is_none(), "what is removed is not counted");
        let mut removed = Vec::new();
        for exit in &mut self.exits {
            exit.queue
                .remove(&mut keep, |packet, _| removed.push(packet));
            for (entrance, queue) in exit.behind.iter_mut().enumerate() {
                let load = &mut self.entrances[entrance];
                queue.remove(&mut keep, |packet, bytes| {
                    load.remove(bytes);
                    removed.push(packet);
                });
            }
            let behind = &exit.behind;
            exit.turns
                .retain(|&entrance| behind[entrance].load().packets > 0);
        }
        removed
    }

    /// The packets that wait for an exit, those of an entrance in their order.
    pub fn waiting_packets(&self, to: Side) -> impl Iterator<Item = &P> {
        let exit = self.exits.get(to.index()).into_iter();
        exit.flat_map(|exit| {
            let behind = exit.behind.iter().flat_map(Queue::iter);
            exit.queue.iter().chain(behind)
        })
    }

    /// By entrance, the packets there that wait for an exit: who waits for whom.
    pub fn waiting(&self, to: Side) -> impl Iterator<Item = (usize, Load)> {
        let exit = self.exits.get(to.index());
        let behind = exit.into_iter().flat_map(|exit| exit.behind.iter());
        let loads = behind.map(Queue::load).enumerate();
        loads.filter(|(_, load)| load.packets > 0)
    }

    /// The load of an entrance.
    pub fn entrance_load(&self, from: Side) -> Load {
        self.load(from)
    }

    /// The load of the queue in front of an exit.
    pub fn exit_load(&self, to: Side) -> Load {
        let exit = self.exits.get(to.index());
        exit.map_or(Load::default(), |exit| exit.queue.load())
    }

    /// Packets of a side so far, by the points that they have passed; all 0 if the switch does not
    /// count them.
    pub fn passed(&self, side: Side) -> Passed {
        let tally = self.tally.as_ref();
        tally.map_or(Passed::default(), |tally| tally.of(side.index()))
    }

    /// Checks that each packet that has passed a point has passed the next one, was dropped between
    /// them, or waits there.
    ///
    /// # Errors
    /// The two points between which packets are missing, and how many passed each.
    pub fn balance(&self) -> Result<(), String> {
        let Some(tally) = &self.tally else {
            return Ok(());
        };
        let waits = |index: usize| self.entrances.get(index).map_or(0, |load| load.packets);
        let queued = |index: usize| {
            let exit = self.exits.get(index);
            exit.map_or(0, |exit| exit.queue.load().packets)
        };
        tally.balance(
            |index| [waits(index) as u64, queued(index) as u64],
            &self.drops,
        )
    }

    /// Packets dropped, by [`Place`].
    pub fn drops(&self) -> &[u64; Place::NAMES.len()] {
        &self.drops
    }
}
