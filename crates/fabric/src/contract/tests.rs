use std::collections::BTreeSet;

use sluicegate_core::aqm::AqmParams;

use super::*;
use crate::{
    Converged, Plain, PortConfig,
    cee::{Cee, CeeConfig, CeeFrame, Notification, OwnEffect, PortSpec, QueueKey},
    graph::{Node, PortMap, SwitchId},
};

const BYTES: u32 = 1_000;

/// Its destination, the path of its queue, and its length.
#[derive(Clone, Copy)]
struct Test(u16, u32, u32);

impl Frame for Test {
    fn bytes(&self) -> u32 {
        self.2
    }
    fn is_ect(&self) -> bool {
        false
    }
    fn mark(&mut self) {}
}

impl CeeFrame for Test {
    fn destination(&self) -> HostId {
        HostId(self.0.into())
    }
    fn queue_path(&self) -> u32 {
        self.1
    }
    fn notification(sampled: &Self, _: &Notification) -> Self {
        *sampled
    }
    fn notice(&self) -> Option<(QueueKey, u8)> {
        None
    }
}

/// In order of time; at one time in that of kinds.
#[derive(Default)]
struct Wheel(BTreeSet<(u64, Timer)>);

impl Timers for Wheel {
    fn set(&mut self, timer: Timer, at_ps: u64) {
        self.0.insert((at_ps, timer));
    }
}

const FIRST: HostId = HostId(0);
const SECOND: HostId = HostId(1);

/// The port of host 0, and the one that leads to host 1.
const FROM_FIRST: PortId = PortId::of_link(0, true);
const TO_SECOND: PortId = PortId::of_link(1, false);

/// Two hosts, whose links lead to one switch.
struct World<F: Fabric> {
    fabric: Driven<F>,
    wheel: Wheel,
    now_ps: u64,
    /// Frames that hosts got, and when.
    received: Vec<(u64, u16)>,
    told: Vec<Effect<F::Own>>,
    /// Frames that host 0 sends when one has left.
    more: u32,
}

impl<F: Fabric<Frame = Test>> Driver for World<F> {
    type Fabric = F;
    type Timers = Wheel;

    fn driven(&mut self) -> (&mut Driven<F>, &mut Wheel, u64) {
        (&mut self.fabric, &mut self.wheel, self.now_ps)
    }

    fn carry_out(&mut self, effect: Effect<F::Own>) {
        self.told.push(effect);
        if let Effect::Left(FIRST, ..) = effect {
            if self.more > 0 {
                self.more -= 1;
                self.send();
            }
        }
    }
}

impl<F: Fabric<Frame = Test>> World<F> {
    fn new(fabric: F) -> Self {
        Self {
            fabric: Driven::new(fabric),
            wheel: Wheel::default(),
            now_ps: 0,
            received: Vec::new(),
            told: Vec::new(),
            more: 0,
        }
    }

    /// Host 0 sends a frame to host 1.
    fn send(&mut self) {
        self.send_by(0, BYTES);
    }

    /// A sender for each path.
    fn send_by(&mut self, path: u32, bytes: u32) {
        let frame = self.fabric.pool_mut().insert(Test(1, path, bytes));
        let sender = Sender {
            host: FIRST,
            priority: 0,
            number: path,
        };
        self.on_fabric(|fabric, timers, now_ps| {
            fabric.offer(timers, FROM_FIRST, frame, sender, now_ps)
        });
    }

    /// The next frame that arrives at host 1.
    fn next(&mut self) -> Option<Handle> {
        while let Some((at_ps, timer)) = self.wheel.0.pop_first() {
            self.now_ps = at_ps;
            let Timer::Arrival(port) = timer else {
                self.on_fabric(|fabric, timers, now_ps| fabric.timer(timers, timer, now_ps));
                continue;
            };
            let arrived = self.arrive_on_fabric(port);
            let Some(frame) = arrived else { continue };
            if !port.is_forward() {
                return Some(frame);
            }
            self.forward_on_fabric([port, TO_SECOND], frame);
        }
        None
    }

    /// Host 1 receives a frame.
    fn receive(&mut self, frame: Handle) -> Vec<Handle> {
        let at = (TO_SECOND, SECOND);
        let first = self.on_fabric(|fabric, timers, now| fabric.receive(timers, at, frame, now));
        first.into_iter().chain(self.following()).collect()
    }

    fn following(&mut self) -> Vec<Handle> {
        let next = || self.on_fabric(|fabric, _, _| fabric.next_received());
        std::iter::from_fn(next).collect()
    }

    fn run(&mut self) {
        while let Some(frame) = self.next() {
            assert_eq!(self.receive(frame), [frame]);
            self.received
                .push((self.now_ps, self.fabric.ports().pool[frame].0));
            self.fabric.pool_mut().release(frame);
        }
        assert_eq!(self.fabric.audit(), Ok(()));
        assert_eq!(self.fabric.books(), Books::default(), "nothing is left");
    }
}

fn port(rate_bps: u64, delay_ps: u64) -> PortConfig {
    PortConfig {
        rate_bps,
        delay_ps,
        limit_bytes: 100_000,
        aqm: AqmParams::default(),
        jitter_ps: 0,
        jitter_mean_ps: 0,
        burst_ps: 0,
        overhead_bytes: 0,
    }
}

/// Of 1 Gbit/s and 1 us.
fn ports() -> Ports<Test> {
    let mut ports = Ports::default();
    for seed in 0..4 {
        ports.add(port(1_000_000_000, 1_000_000), seed);
    }
    ports
}

fn converged() -> Converged<Test> {
    converged_over(ports())
}

fn converged_over(ports: Ports<Test>) -> Converged<Test> {
    converged_with(ports, CeeConfig::default())
}

fn converged_with(ports: Ports<Test>, config: CeeConfig) -> Converged<Test> {
    let spec = |near, far| PortSpec {
        near,
        far,
        rate_bps: 1_000_000_000,
        propagation_ps: 1_000_000,
        processing_ps: 0,
        aqm: AqmParams::default(),
        frame_bytes: BYTES,
    };
    let links = [Node::Host(FIRST), Node::Host(SECOND)].map(|host| {
        let switch = Node::Switch(SwitchId(0));
        [spec(host, switch), spec(switch, host)]
    });
    let config = CeeConfig {
        cut_through: false,
        ..config
    };
    let cee = Cee::new(config, links.as_flattened().to_vec(), 2, 1, 1);
    Converged::new(cee, ports, PortMap::new(2, 2))
}

#[test]
fn a_hop_is_the_same_event_at_the_same_time_on_both() {
    let mut plain = World::new(Plain::new(ports()));
    let mut converged = World::new(converged());
    for _ in 0..3 {
        plain.send();
        converged.send();
    }
    plain.run();
    converged.run();
    // A byte takes 8 ns: 8 us for each hop's frame and 1 us for its link; then one frame behind the
    // other.
    let expected = [18_000_000, 26_000_000, 34_000_000].map(|at_ps| (at_ps, 1));
    assert_eq!(plain.received, expected);
    assert_eq!(converged.received, expected);
    assert_eq!((plain.fabric.hops(), converged.fabric.hops()), (6, 6));
}

#[test]
fn effects_are_carried_out_before_the_driver_goes_on() {
    let mut world = World::new(converged());
    world.on_fabric(|fabric, _, now_ps| fabric.count_departures(FIRST, now_ps));
    world.on_fabric(|fabric, _, _| fabric.watch(TO_SECOND));
    world.send();
    assert!(matches!(world.told[..], [Effect::Left(FIRST, 0, _)]));
    world.run();
    assert!(matches!(
        world.told[1..],
        [Effect::Sent(TO_SECOND, _, 17_000_000)]
    ));
}

#[test]
fn what_effects_give_rise_to_is_carried_out_behind_them() {
    let mut world = World::new(converged());
    world.on_fabric(|fabric, _, now_ps| fabric.count_departures(FIRST, now_ps));
    world.more = 2;
    world.send();
    world.run();
    assert_eq!((world.more, world.received.len()), (0, 3));
    let left = |effect: &&Effect<OwnEffect>| matches!(effect, Effect::Left(FIRST, ..));
    assert_eq!(world.told.iter().filter(left).count(), 3);
}

#[test]
fn frames_of_two_queues_do_not_wait_for_each_other_but_for_the_earlier_ones_of_their_own() {
    let mut world = World::new(converged().with_resequencers(2));
    for path in [1, 2, 1, 2] {
        world.send_by(path, BYTES);
    }
    let frames: Vec<Handle> = std::iter::from_fn(|| world.next()).collect();
    let [first, second_path, next, overtaking] = frames[..] else {
        panic!("{frames:?}");
    };
    assert_eq!(world.receive(first), [first]);
    assert_eq!(world.receive(overtaking), []);
    assert_eq!(world.receive(next), [next]);
    assert_eq!(world.receive(second_path), [second_path, overtaking]);
}

#[test]
fn a_host_receives_what_its_adapter_no_longer_holds_back() {
    let mut world = World::new(converged().with_resequencers(2));
    for _ in 0..3 {
        world.send();
    }
    let frames: Vec<Handle> = std::iter::from_fn(|| world.next()).collect();
    let [missing, second, third] = frames[..] else {
        panic!("{frames:?}");
    };
    assert_eq!(world.receive(second), []);
    assert_eq!(world.receive(third), []);
    assert_eq!(world.next(), None, "the adapter has given up the first");
    assert_eq!(world.following(), [second, third]);
    assert_eq!(world.receive(missing), [missing], "late is not never");
}

#[test]
fn one_timer_of_a_host_serves_all_gaps() {
    let mut world = World::new(converged().with_resequencers(2));
    for path in [1, 2, 3, 4, 1, 2, 3, 4] {
        world.send_by(path, BYTES);
    }
    let frames: Vec<Handle> = std::iter::from_fn(|| world.next()).collect();
    let (missing, overtaking) = frames.split_at(4);
    for &frame in overtaking {
        world.now_ps += 1_000;
        assert_eq!(world.receive(frame), []);
        let timers = world.wheel.0.iter();
        let pending = timers.filter(|(_, timer)| matches!(timer, Timer::Resequence(_)));
        assert_eq!(pending.count(), 1);
    }
    assert_eq!(world.next(), None, "the adapter has given up all");
    // Each as long after its arrival as the others: 1 ms without flow control.
    assert_eq!(world.following(), overtaking);
    for &frame in missing {
        assert_eq!(world.receive(frame), [frame]);
    }
}

#[test]
fn a_full_buffer_makes_room_for_a_whole_frame() {
    let config = CeeConfig {
        resequence_bytes: u64::from(BYTES),
        ..CeeConfig::default()
    };
    let mut world = World::new(converged_with(ports(), config).with_resequencers(2));
    for _ in 0..6 {
        world.send_by(0, 64);
        world.send_by(0, 64);
    }
    world.send();
    let frames: Vec<Handle> = std::iter::from_fn(|| world.next()).collect();
    let short: Vec<Handle> = frames[1..].iter().copied().step_by(2).take(5).collect();
    for &frame in &short {
        assert_eq!(world.receive(frame), []);
    }
    assert_eq!(world.receive(frames[12]), short);
    assert_eq!(world.fabric.books().underway, 1, "the long one is kept");
}

#[test]
fn a_frame_comes_down_a_stack_before_its_adapter_sends_it() {
    let mut ports = ports();
    // The local ports of two hosts, then their stacks.
    for seed in 0..4 {
        ports.add(port(u64::MAX, 5_000_000), seed);
    }
    let mut world = World::new(converged_over(ports).with_stacks());
    world.send();
    assert_eq!(world.fabric.hops(), 0);
    world.run();
    assert_eq!(world.received, [(23_000_000, 1)]);
    assert_eq!(world.fabric.hops(), 2);
}

#[test]
fn a_dropped_frame_is_released_and_in_the_books() {
    let mut world = World::new(Plain::new(ports()));
    world.on_fabric(|fabric, _, now_ps| fabric.set_up(FROM_FIRST, false, now_ps));
    let frame = world.fabric.pool_mut().insert(Test(1, 0, BYTES));
    let sender = Sender {
        host: FIRST,
        priority: 0,
        number: 0,
    };
    let offered =
        world.on_fabric(|fabric, timers, now| fabric.offer(timers, FROM_FIRST, frame, sender, now));
    assert_eq!(offered, Accepted::Dropped);
    assert!(world.fabric.ports().pool.is_empty());
    assert_eq!(world.fabric.books().dropped, 1);
    assert_eq!(world.fabric.hops(), 0);
}
