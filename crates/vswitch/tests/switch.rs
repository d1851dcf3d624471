//! The switch against what it promises, with any configuration and any order of events.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use sluicegate_vswitch::{
    Bound, Config, Handover, Passed, Point, Side, Switch, WhenFull, point::Load, switch::Place,
};

const VNICS: u16 = 3;
/// Priorities of the adapter other than 0 that the model uses: the first, one between, the last.
const LANES: [u8; 3] = [1, 4, 7];
/// The uplink and the vNICs, which are entrances and exits; behind them the lanes, which are exits
/// only.
const ENTRANCES: usize = VNICS as usize + 1;
const SIDES: usize = ENTRANCES + LANES.len();

fn side(index: usize) -> Side {
    match index {
        0 => Side::Uplink,
        index if index < ENTRANCES => Side::Vnic(index as u16 - 1),
        index => Side::Lane(LANES[index - ENTRANCES]),
    }
}

/// (sender, exit): what one sends to one exit stays in order.
type Flow = (u32, usize);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Packet {
    flow: Flow,
    number: u32,
    bytes: u32,
}

/// Two senders at each side, some with something left to send; what came out; what was counted.
struct World {
    switch: Switch<Packet, u32>,
    config: Config,
    ready: [bool; SIDES],
    /// By sender.
    backlog: BTreeMap<u32, VecDeque<Packet>>,
    held: Vec<u32>,
    made: u32,
    dropped: Vec<Packet>,
    arrived: BTreeMap<Flow, Vec<Packet>>,
}

fn entrance_of(sender: u32) -> usize {
    sender as usize % ENTRANCES
}

impl World {
    fn new(config: Config) -> Self {
        Self {
            switch: Switch::new(7, config, None),
            config,
            ready: [true; SIDES],
            backlog: BTreeMap::new(),
            held: Vec::new(),
            made: 0,
            dropped: Vec::new(),
            arrived: BTreeMap::new(),
        }
    }

    /// A sender wants to send one more.
    fn send(&mut self, sender: u32, to: usize, bytes: u32) {
        let packet = Packet {
            flow: (sender, to),
            number: self.made,
            bytes,
        };
        self.made += 1;
        self.backlog.entry(sender).or_default().push_back(packet);
        self.drain(sender);
    }

    /// Hands over what a sender has, until it is held back.
    fn drain(&mut self, sender: u32) {
        while !self.held.contains(&sender) && self.hand_over(sender) {}
    }

    fn hand_over(&mut self, sender: u32) -> bool {
        let Some(&packet) = self.backlog[&sender].front() else {
            return false;
        };
        let to = packet.flow.1;
        let from = side(entrance_of(sender));
        let handover = self
            .switch
            .offer(from, sender, side(to), packet, packet.bytes);
        match handover {
            Handover::Held => self.held.push(sender),
            _ => drop(self.backlog.get_mut(&sender).and_then(VecDeque::pop_front)),
        }
        match handover {
            Handover::Through => {
                assert!(
                    self.ready[to],
                    "the receiver behind a busy exit takes no packet"
                );
                self.arrive(packet);
            }
            Handover::Dropped(_) => self.dropped.push(packet),
            Handover::Held => assert!(self.may_hold(from, to), "lossy places hold no sender back"),
            Handover::Taken => {}
        }
        true
    }

    fn may_hold(&self, from: Side, to: usize) -> bool {
        let (entrance, _) = self.points(from);
        let (_, exit) = self.points(side(to));
        [entrance, exit].map(|point| point.when_full) == [WhenFull::HoldBack; 2]
    }

    /// Entrance and exit of a side: every priority of the adapter is made as the adapter is.
    fn points(&self, side: Side) -> (Point, Point) {
        match side {
            Side::Uplink | Side::Lane(_) => (self.config.arrival, self.config.uplink),
            Side::Vnic(_) => (self.config.transmit, self.config.receive),
        }
    }

    fn arrive(&mut self, packet: Packet) {
        self.arrived.entry(packet.flow).or_default().push(packet);
    }

    fn set_ready(&mut self, exit: usize, ready: bool) {
        self.ready[exit] = ready;
        self.switch.set_ready(side(exit), ready);
        self.resume();
    }

    fn take(&mut self, exit: usize) -> bool {
        let packet = self.switch.take(side(exit));
        if let Some(packet) = packet {
            assert_eq!(packet.flow.1, exit);
            self.arrive(packet);
        }
        self.resume();
        packet.is_some()
    }

    fn resume(&mut self) {
        while let Some(sender) = self.switch.resume() {
            let position = self.held.iter().position(|&held| held == sender);
            let position = position.expect("only a sender that was held back is resumed");
            self.held.remove(position);
            self.hand_over(sender);
            assert!(
                !self.held.contains(&sender),
                "a resumed sender has room for the packet it was held back with"
            );
            self.drain(sender);
        }
    }

    fn check(&self) {
        let within = |load: Load, bound: Bound| {
            load.packets <= bound.packets && (load.packets <= 1 || load.bytes <= bound.bytes)
        };
        for index in 0..SIDES {
            let side = side(index);
            let (entrance, exit) = self.points(side);
            assert!(within(self.switch.entrance_load(side), entrance.bound));
            assert!(within(self.switch.exit_load(side), exit.bound));
        }
        if self.switch.is_calm() {
            assert!(self.held.is_empty() && self.switch.packets() == 0);
            assert!((0..SIDES).all(|index| self.switch.is_ready(side(index))));
        }
        let counted: u64 = self.switch.drops().iter().sum();
        assert_eq!(counted, self.dropped.len() as u64);
        let unsent: usize = self.backlog.values().map(VecDeque::len).sum();
        let arrived: usize = self.arrived.values().map(Vec::len).sum();
        let found = unsent + arrived + self.dropped.len() + self.switch.packets();
        assert_eq!(found, self.made as usize, "every packet is somewhere");
        for packets in self.arrived.values() {
            let ascends = packets
                .windows(2)
                .all(|pair| pair[0].number < pair[1].number);
            assert!(ascends, "out of order: {packets:?}");
        }
    }
}

fn point() -> impl Strategy<Value = Point> {
    let bound = (0usize..5, 0u64..6_000).prop_map(|(packets, bytes)| Bound { packets, bytes });
    let when_full = prop_oneof![Just(WhenFull::Drop), Just(WhenFull::HoldBack)];
    (bound, when_full).prop_map(|(bound, when_full)| Point { bound, when_full })
}

fn config() -> impl Strategy<Value = Config> {
    let any =
        (point(), point(), point(), point()).prop_map(|(transmit, uplink, arrival, receive)| {
            Config {
                transmit,
                uplink,
                arrival,
                receive,
            }
        });
    prop_oneof![
        4 => any,
        1 => Just(Config::straight()),
        1 => Just(Config::turns()),
        1 => (1_000u64..9_000).prop_map(|bytes| Config::rings(bytes, WhenFull::HoldBack)),
    ]
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Send(u32, usize, u32),
    Ready(usize, bool),
    Take(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..2 * ENTRANCES as u32, 0..SIDES, 60u32..2_000)
            .prop_map(|(sender, to, bytes)| Step::Send(sender, to, bytes)),
        2 => (0..SIDES, any::<bool>()).prop_map(|(exit, ready)| Step::Ready(exit, ready)),
        3 => (0..SIDES).prop_map(Step::Take),
    ]
}

proptest! {
    #[test]
    fn nothing_is_lost_reordered_or_forgotten(config in config(), steps in prop::collection::vec(step(), 1..300)) {
        let mut world = World::new(config);
        for step in steps {
            match step {
                Step::Send(sender, to, bytes) => world.send(sender, to, bytes),
                Step::Ready(exit, ready) => world.set_ready(exit, ready),
                Step::Take(exit) => drop(world.take(exit)),
            }
            world.check();
        }
        for exit in 0..SIDES {
            while world.take(exit) {}
            world.set_ready(exit, true);
        }
        for exit in 0..SIDES {
            while world.take(exit) {}
        }
        world.check();
        prop_assert_eq!(world.switch.packets(), 0);
        prop_assert!(world.held.is_empty(), "held back for ever: {:?}", world.held);
        prop_assert!(!world.switch.waits());
        prop_assert!(world.switch.is_calm() && world.switch.lets_through(Side::Uplink));
    }
}

/// A switch that stores every packet, with packets by the points that the test has seen them pass.
struct Counted {
    switch: Switch<Packet, u32>,
    seen: [Passed; SIDES],
    drops: u64,
}

impl Counted {
    fn new(config: Config) -> Self {
        let mut switch = Switch::new(7, config, None).with_counts();
        (0..SIDES).for_each(|index| switch.set_ready(side(index), false));
        Self {
            switch,
            seen: [Passed::default(); SIDES],
            drops: 0,
        }
    }

    fn send(&mut self, sender: u32, to: usize, bytes: u32) {
        let from = entrance_of(sender);
        let packet = Packet {
            flow: (sender, to),
            number: 0,
            bytes,
        };
        let handover = self
            .switch
            .offer(side(from), sender, side(to), packet, bytes);
        match handover {
            Handover::Held => return,
            Handover::Through => panic!("no exit is ready"),
            Handover::Taken => {}
            Handover::Dropped(place) => {
                self.drops += 1;
                match place {
                    Place::Transmit | Place::Arrival => self.seen[from].refused += 1,
                    Place::Uplink | Place::Receive => self.seen[to].overflowed += 1,
                }
            }
        }
        self.seen[from].offered += 1;
    }

    fn take(&mut self, exit: usize) -> bool {
        let taken = self.switch.take(side(exit)).is_some();
        self.seen[exit].taken += u64::from(taken);
        while self.switch.resume().is_some() {}
        taken
    }

    /// What has entered or was put follows from what is seen from outside and what waits.
    fn check(&self) -> Result<(), TestCaseError> {
        let sum = |of: fn(&Passed) -> u64| self.seen.iter().map(of).sum::<u64>();
        let mut entered = 0;
        for index in 0..SIDES {
            let (side, seen) = (side(index), self.seen[index]);
            let waits = self.switch.entrance_load(side).packets as u64;
            let queued = self.switch.exit_load(side).packets as u64;
            let expected = Passed {
                entered: seen.offered - seen.refused - waits,
                put: seen.taken + queued,
                ..seen
            };
            entered += expected.entered;
            prop_assert_eq!(self.switch.passed(side), expected, "{:?}", side);
        }
        let queued = (0..SIDES).map(|index| self.switch.exit_load(side(index)).packets as u64);
        let put = sum(|seen| seen.taken) + queued.sum::<u64>();
        prop_assert_eq!(entered, put + sum(|seen| seen.overflowed));
        prop_assert_eq!(self.drops, sum(|seen| seen.refused + seen.overflowed));
        prop_assert_eq!(self.switch.balance(), Ok(()));
        Ok(())
    }
}

proptest! {
    #[test]
    fn packets_are_counted_at_each_point(config in config(), steps in prop::collection::vec(step(), 1..300)) {
        let mut counted = Counted::new(config);
        for step in steps {
            match step {
                Step::Send(sender, to, bytes) => counted.send(sender, to, bytes),
                Step::Ready(..) => {}
                Step::Take(exit) => drop(counted.take(exit)),
            }
            counted.check()?;
        }
        for exit in 0..SIDES {
            while counted.take(exit) {}
        }
        counted.check()?;
        let all: Passed = (0..SIDES).map(|index| counted.switch.passed(side(index))).sum();
        prop_assert_eq!(all.offered, all.refused + all.overflowed + all.taken);
    }
}

/// One vNIC has sent much, another little; each has its turn.
#[test]
fn the_adapter_takes_from_vnics_by_turns() {
    let config = Config::rings(1 << 20, WhenFull::Drop);
    let mut switch: Switch<u16, u32> = Switch::new(0, config, None);
    switch.set_ready(Side::Uplink, false);
    for vnic in [0, 0, 0, 0, 1, 1, 2] {
        let taken = switch.offer(Side::Vnic(vnic), vnic.into(), Side::Uplink, vnic, 1_000);
        assert_eq!(taken, Handover::Taken);
    }
    let order = std::iter::from_fn(|| switch.take(Side::Uplink));
    assert_eq!(order.collect::<Vec<_>>(), [0, 1, 2, 0, 1, 0, 0]);
}

/// Packets that wait for a busy exit are passed by packets for another (zVALE).
#[test]
fn a_busy_exit_stops_nobody_who_is_for_another() {
    let config = Config::rings(1 << 20, WhenFull::HoldBack);
    let mut switch: Switch<u16, u32> = Switch::new(0, config, None);
    switch.set_ready(Side::Uplink, false);
    let mut offer = |to, packet| switch.offer(Side::Vnic(0), 0, to, packet, 1_000);
    assert_eq!(offer(Side::Uplink, 1), Handover::Taken);
    assert_eq!(offer(Side::Vnic(1), 2), Handover::Through);
}

/// A paused priority stops only those who send in it: the others of the same vNIC pass by, and it
/// keeps its own order.
#[test]
fn a_paused_lane_stops_no_other() {
    let config = Config::rings(1 << 20, WhenFull::HoldBack);
    let mut switch: Switch<u16, u32> = Switch::new(0, config, None);
    let (paused, free) = (Side::Lane(3), Side::Lane(7));
    switch.set_ready(paused, false);
    let mut offer = |to, packet| switch.offer(Side::Vnic(0), 0, to, packet, 1_000);
    assert_eq!(offer(paused, 1), Handover::Taken);
    assert_eq!(offer(free, 2), Handover::Through);
    assert_eq!(offer(Side::Uplink, 3), Handover::Through);
    assert_eq!(offer(paused, 4), Handover::Taken);
    assert!(switch.is_ready(free) && !switch.is_ready(paused));
    assert!(switch.waits());
    assert_eq!(switch.take(free), None);
    let order = std::iter::from_fn(|| switch.take(paused));
    assert_eq!(order.collect::<Vec<_>>(), [1, 4]);
    assert!(!switch.waits());
}

/// A full place says where it is: the ring of the vNIC, or the queue in front of the adapter.
#[test]
fn drops_are_counted_where_they_happen() {
    let lossy = |packets| Point {
        bound: Bound {
            packets,
            bytes: 1 << 20,
        },
        when_full: WhenFull::Drop,
    };
    let mut lossy_uplink = Config::straight();
    lossy_uplink.uplink = lossy(2);
    let mut lossy_ring = Config::turns();
    lossy_ring.transmit = lossy(2);
    for (config, place) in [(lossy_uplink, Place::Uplink), (lossy_ring, Place::Transmit)] {
        let mut switch: Switch<u32, u32> = Switch::new(0, config, None);
        switch.set_ready(Side::Uplink, false);
        let mut offer = |packet| switch.offer(Side::Vnic(0), 0, Side::Uplink, packet, 100);
        let handovers = [offer(0), offer(1), offer(2)];
        let dropped = Handover::Dropped(place);
        assert_eq!(handovers, [Handover::Taken, Handover::Taken, dropped]);
        assert_eq!(switch.drops()[place as usize], 1);
    }
}

/// Senders go on in the order in which they were held back, one packet each.
#[test]
fn senders_take_turns() {
    let mut switch: Switch<u32, u32> = Switch::new(0, Config::turns(), None);
    let mut left = [3, 1, 2];
    let mut sent = Vec::new();
    switch.set_ready(Side::Uplink, false);
    for sender in 0..3 {
        assert!(!switch.may_send(Side::Vnic(0), sender, Side::Uplink, 1_500));
    }
    loop {
        switch.set_ready(Side::Uplink, true);
        let Some(sender) = switch.resume() else {
            break;
        };
        let handover = switch.offer(Side::Vnic(0), sender, Side::Uplink, sender, 1_500);
        assert_eq!(handover, Handover::Through);
        switch.set_ready(Side::Uplink, false);
        sent.push(sender);
        left[sender as usize] -= 1;
        if left[sender as usize] > 0 {
            assert!(!switch.may_send(Side::Vnic(0), sender, Side::Uplink, 1_500));
        }
    }
    assert_eq!(sent, [0, 1, 2, 0, 2, 0]);
}

/// A switch with bounded places that hold back, and two priorities of which 1 is lossy.
fn with_two_priorities(frames: u64) -> Switch<u32, u32> {
    let place = Point {
        bound: Bound::bytes(frames * 100),
        when_full: WhenFull::HoldBack,
    };
    let config = Config {
        transmit: place,
        uplink: place,
        arrival: place,
        receive: place,
    };
    let mut switch = Switch::new(0, config, None).with_priorities(2, 0b10);
    for side in [Side::Uplink, Side::Lane(1), Side::Vnic(2), Side::Vnic(3)] {
        switch.set_ready(side, false);
    }
    switch
}

#[test]
fn a_lossy_priority_drops_where_a_lossless_one_holds_back() {
    let mut switch = with_two_priorities(2);
    let [lossless, lossy] = [
        (Side::Vnic(0), Side::Vnic(2)),
        (Side::Vnic(1), Side::Vnic(3)),
    ];
    let mut send = |(from, to), number| switch.offer(from, number, to, number, 100);
    for number in 0..4 {
        assert_eq!(send(lossless, number), Handover::Taken, "two rings");
    }
    assert_eq!(send(lossless, 4), Handover::Held);
    for number in 10..12 {
        assert_eq!(send(lossy, number), Handover::Taken, "its own ring");
    }
    assert_eq!(send(lossy, 12), Handover::Dropped(Place::Receive));
    assert_eq!(send((Side::Vnic(1), Side::Lane(1)), 13), Handover::Taken);
    assert_eq!(switch.first_bytes(Side::Vnic(2)), Some(100));
    let received: Vec<_> = std::iter::from_fn(|| switch.take(Side::Vnic(2))).collect();
    assert_eq!(received, [0, 1, 2, 3]);
    assert_eq!(switch.first_bytes(Side::Vnic(2)), None);
    assert_eq!(switch.resume(), Some(4));
}

#[test]
fn what_cannot_be_held_back_waits_or_is_dropped_at_its_entrance() {
    let mut switch = with_two_priorities(2);
    let mut arrive = |from, to, number| switch.arrive(from, to, number, 100);
    for number in 0..4 {
        assert_eq!(arrive(Side::Uplink, Side::Vnic(2), number), Handover::Taken);
    }
    let full = Handover::Dropped(Place::Arrival);
    assert_eq!(arrive(Side::Uplink, Side::Vnic(2), 4), full);
    for number in 5..7 {
        assert_eq!(
            arrive(Side::Lane(1), Side::Vnic(3), number),
            Handover::Taken
        );
    }
    let lossy = Handover::Dropped(Place::Receive);
    assert_eq!(arrive(Side::Lane(1), Side::Vnic(3), 7), lossy);
    assert_eq!(switch.entrance_load(Side::Uplink).packets, 2);
    assert_eq!(switch.entrance_load(Side::Lane(1)).packets, 0);
    assert_eq!(switch.drops().iter().sum::<u64>(), 2);
}
