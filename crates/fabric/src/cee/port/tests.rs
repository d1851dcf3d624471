use super::*;
use crate::{
    cee::{EtsClass, EtsConfig, Label, Notification, OwnEffect, QueueKey},
    contract::{Effect, Timer},
    graph::HostId,
    port::Frame,
};
use sluicegate_core::aqm::{Aqm, AqmParams};

/// 8 us at 1 Gbit/s.
const BYTES: u32 = 1_000;
const FRAME_PS: u64 = 8_000_000;
const LINK_PS: u64 = 1_000_000;

/// From a switch to a host, and from a switch to a switch.
const TO_HOST: PortId = PortId::of_link(0, false);
const TO_SWITCH: PortId = PortId::of_link(1, true);

#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    ect: bool,
    marked: bool,
}

impl Frame for Sample {
    fn bytes(&self) -> u32 {
        BYTES
    }
    fn is_ect(&self) -> bool {
        self.ect
    }
    fn mark(&mut self) {
        self.marked = true;
    }
}

impl CeeFrame for Sample {
    fn destination(&self) -> HostId {
        HostId(0)
    }
    fn notification(sampled: &Self, _: &Notification) -> Self {
        *sampled
    }
    fn notice(&self) -> Option<(QueueKey, u8)> {
        None
    }
}

/// A host at switch 0, and a link from switch 0 to switch 1.
fn specs(aqm: AqmParams) -> Vec<PortSpec> {
    let spec = |near, far| PortSpec {
        near,
        far,
        rate_bps: 1_000_000_000,
        propagation_ps: LINK_PS,
        processing_ps: 0,
        aqm,
        frame_bytes: 1_500,
    };
    let host = Node::Host(HostId(0));
    let [near, far] = [0, 1].map(|switch| Node::Switch(SwitchId(switch)));
    vec![
        spec(host, near),
        spec(near, host),
        spec(near, far),
        spec(far, near),
    ]
}

struct World {
    out: OutputPorts,
    pool: Pool<Sample>,
    requests: Requests,
}

impl World {
    /// Priority 5 is strict, the others have a share.
    fn new(aqm: AqmParams) -> Self {
        let class = |priorities, share| EtsClass { priorities, share };
        let config = CeeConfig {
            ets: EtsConfig {
                classes: vec![class(1 << 5, None), class(!(1 << 5), Some(100))],
            },
            ..CeeConfig::default()
        };
        Self {
            out: OutputPorts::new(&config, &specs(aqm), 2, 1),
            pool: Pool::default(),
            requests: Requests::default(),
        }
    }

    fn frame(&mut self, priority: usize) -> Handle {
        let handle = self.pool.insert(Sample::default());
        let label = Label {
            ingress: TO_HOST.opposite(),
            source: HostId(0),
            priority: priority as u8,
            buffered: false,
            control: false,
        };
        label.put(&mut self.pool, handle);
        handle
    }

    fn start(&mut self, port: PortId, now_ps: u64) -> Handle {
        let frame = self.frame(0);
        let Self {
            out,
            pool,
            requests,
        } = self;
        out.start(requests, pool, port, frame, now_ps);
        frame
    }

    fn enqueue(&mut self, port: PortId, priority: usize) -> Handle {
        let frame = self.frame(priority);
        self.out
            .enqueue(&mut self.pool, port, frame, (priority, BYTES));
        frame
    }

    fn select(&mut self, port: PortId) -> Option<Handle> {
        self.out.select(&self.pool, port).map(|(frame, _)| frame)
    }

    /// The times of the transmit timers of a port that were requested.
    fn timers(&self, port: PortId) -> Vec<u64> {
        let time = |effect: &Effect<OwnEffect>| match *effect {
            Effect::Timer(Timer::Transmit(at), at_ps) if at == port => Some(at_ps),
            _ => None,
        };
        self.requests.effects.iter().filter_map(time).collect()
    }
}

#[test]
fn frames_follow_each_other_on_the_wire_and_only_the_first_needs_an_event() {
    let mut world = World::new(AqmParams::default());
    let first = world.start(TO_HOST, 0);
    assert_eq!(world.out.ports[TO_HOST.index()].free_ps, FRAME_PS);
    let second = world.start(TO_HOST, FRAME_PS);
    let arrival_ps = FRAME_PS + LINK_PS;
    assert_eq!(
        world.requests.arrivals,
        [Some((TO_HOST, arrival_ps)), None],
        "the second frame follows"
    );
    assert_eq!(world.out.underway(&world.pool), 2);
    let World { out, pool, .. } = &mut world;
    assert_eq!(out.take_arrived(pool, TO_HOST, arrival_ps - 1), None);
    assert_eq!(
        out.take_arrived(pool, TO_HOST, arrival_ps),
        Some((first, Some(arrival_ps + FRAME_PS)))
    );
    assert_eq!(
        out.take_arrived(pool, TO_HOST, arrival_ps + FRAME_PS),
        Some((second, None))
    );
    assert_eq!(out.underway(pool), 0);
}

#[test]
fn a_header_arrives_at_a_cut_through_switch_before_its_frame_ends() {
    let mut world = World::new(AqmParams::default());
    assert!(world.out.is_cut(TO_SWITCH) && !world.out.is_cut(TO_HOST));
    world.start(TO_SWITCH, 0);
    assert_eq!(world.requests.arrivals[0], Some((TO_SWITCH, LINK_PS)));
    assert_eq!(world.out.ports[TO_SWITCH.index()].free_ps, FRAME_PS);
}

#[test]
fn selection_skips_paused_priorities_and_the_audit_finds_wrong_counts() {
    let mut world = World::new(AqmParams::default());
    let low = world.enqueue(TO_HOST, 0);
    let strict = world.enqueue(TO_HOST, 5);
    let last = world.enqueue(TO_HOST, 5);
    assert!(world.out.audit(&world.pool).is_ok());
    assert_eq!(world.select(TO_HOST), Some(strict));
    let port = TO_HOST.index();
    world.out.ports[port].set_shut(1 << 5);
    assert_eq!(world.select(TO_HOST), Some(low));
    assert_eq!(world.select(TO_HOST), None, "priority 5 is paused");
    let state = &world.out.ports[port];
    assert_eq!((state.waiting.0, state.queued_bytes), (1 << 5, BYTES));
    assert!(!state.has_eligible());
    assert!(world.out.audit(&world.pool).is_ok());
    world.out.ports[port].queued_bytes += 1;
    assert!(world.out.audit(&world.pool).is_err(), "bytes");
    world.out.ports[port].queued_bytes -= 1;
    world.out.ports[port].waiting.clear();
    assert!(world.out.audit(&world.pool).is_err(), "priorities");
    world.out.ports[port].waiting.add(5);
    world.out.queues[port].0[5].miscount(u32::MAX);
    assert!(world.out.audit(&world.pool).is_err(), "a queue");
    world.out.queues[port].0[5].miscount(1);
    world.out.ports[port].set_shut(0);
    assert_eq!(world.select(TO_HOST), Some(last));
    assert_eq!(world.out.ports[port].waiting, Waiting::default());
}

#[test]
fn a_pause_frame_leaves_behind_the_frame_that_is_being_sent() {
    let mut world = World::new(AqmParams::default());
    world.start(TO_HOST, 0);
    let pause_ps = world.out.serialization_ps(TO_HOST, 84);
    assert_eq!(pause_ps, 84 * 8_000);
    let leaves_ps = world.out.send_pause(TO_HOST, pause_ps, FRAME_PS / 2);
    assert_eq!(leaves_ps, FRAME_PS + pause_ps);
    assert!(!world.out.ports[TO_HOST.index()].is_idle(leaves_ps - 1));
    let idle_ps = world.out.send_pause(TO_SWITCH, pause_ps, FRAME_PS);
    assert_eq!(idle_ps, FRAME_PS + pause_ps, "an idle port");
    assert_eq!(world.out.kicks, [TO_HOST, TO_SWITCH]);
}

#[test]
fn a_lazy_port_becomes_punctual_while_a_frame_of_a_paused_priority_waits() {
    let mut world = World::new(AqmParams::default());
    let World { out, requests, .. } = &mut world;
    out.set_patience(requests, SwitchId(0), 0);
    world.start(TO_HOST, 0);
    world.enqueue(TO_HOST, 3);
    assert!(
        !world.out.is_behind(TO_HOST, FRAME_PS),
        "the frame is due now"
    );
    assert!(world.out.is_behind(TO_HOST, FRAME_PS + 1));
    world.out.end_turns();
    assert!(world.out.is_behind(TO_HOST, FRAME_PS));
    assert_eq!(world.timers(TO_HOST), []);
    let World { out, requests, .. } = &mut world;
    out.set_patience(requests, SwitchId(0), 1 << 3);
    assert!(!world.out.is_behind(TO_HOST, FRAME_PS + 1));
    assert_eq!(world.timers(TO_HOST), [FRAME_PS]);
}

#[test]
fn a_timer_is_requested_only_if_it_is_earlier_than_the_one_that_is_set() {
    let mut world = World::new(AqmParams::default());
    for at_ps in [100, 200, 50, 50] {
        world.out.arm(&mut world.requests, TO_HOST, at_ps);
    }
    assert_eq!(world.timers(TO_HOST), [100, 50]);
}

#[test]
fn a_port_marks_above_its_threshold_and_drops_what_cannot_be_marked() {
    let aqm = Aqm::Threshold {
        k_bytes: 3 * BYTES / 2,
        drop_not_ect: true,
    };
    let aqm = AqmParams::new(aqm, 1_000_000_000, 1_500).unwrap();
    let mut world = World::new(aqm);
    let spec = &specs(aqm)[TO_HOST.index()];
    assert!(world.out.harmless_bytes(TO_HOST) >= BYTES.into());
    world.enqueue(TO_HOST, 0);
    world.enqueue(TO_HOST, 0);
    for (ect, cause) in [(true, None), (false, Some(Drop::NotEct))] {
        let frame = world.frame(0);
        world.pool[frame].ect = ect;
        let World { out, pool, .. } = &mut world;
        assert_eq!(out.judge(pool, spec, (TO_HOST, frame), 0, 0), cause);
        assert_eq!(pool[frame].marked, ect);
        // The threshold is that of a priority's own queue.
        assert_eq!(out.judge(pool, spec, (TO_HOST, frame), 1, 0), None);
    }
    assert_eq!(world.out.stats(TO_HOST).marks, 1);
}

#[test]
fn a_frame_passes_without_checks_only_where_the_link_is_up_and_nobody_watches() {
    let mut world = World::new(AqmParams::default());
    let port = &mut world.out[TO_HOST];
    assert!(port.is_plain() && port.may_pass(3, 0));
    port.set_down(true);
    assert!(!port.is_plain() && port.is_down());
    port.watch();
    port.set_down(false);
    assert!(!port.is_plain() && port.is_watched(), "still watched");
}

#[test]
fn a_frame_goes_before_paused_frames_of_other_priorities_only() {
    let mut world = World::new(AqmParams::default());
    world.enqueue(TO_HOST, 5);
    let port = &mut world.out[TO_HOST];
    port.set_shut(1 << 5);
    assert!(!port.has_eligible() && port.due_ps() == NEVER);
    assert!(!port.may_pass(0, 0) && port.goes_through(0, 0));
    assert!(!port.goes_through(5, 0), "paused");
    port.set_shut(0);
    assert!(!port.goes_through(0, 0), "priority 5 is next");
    assert_eq!((port.eligible(), port.due_ps()), (1 << 5, 0));
}

#[test]
fn ports_decide_in_the_order_of_their_numbers() {
    let mut world = World::new(AqmParams::default());
    let until_ps = |world: &World| [TO_HOST, TO_SWITCH].map(|port| world.out.until_ps(port, 10));
    assert_eq!(until_ps(&world), [10, 10]);
    world.out.begin_turn(TO_SWITCH);
    assert_eq!(until_ps(&world), [11, 10]);
    world.out.end_turns();
    assert_eq!(until_ps(&world), [11, 11]);
    world.out.reset_turns();
    assert_eq!(until_ps(&world), [10, 10]);
}

#[test]
fn an_adapter_that_hurries_requests_the_timers_that_it_has_kept_to_itself() {
    let mut world = World::new(AqmParams::default());
    let adapter = TO_HOST.opposite();
    let World { out, requests, .. } = &mut world;
    out.set_adapter_patience(requests, adapter, false);
    assert!(out[adapter].is_lazy());
    out[adapter].set_armed(500);
    out[adapter].waiting_mut().add(2);
    out.set_adapter_patience(requests, adapter, true);
    assert!(!out[adapter].is_lazy() && !out[adapter].is_expected());
    assert_eq!(world.timers(adapter), [0], "a frame waits at an idle port");
}

#[test]
fn a_failed_port_loses_what_waits_and_is_idle() {
    let mut world = World::new(AqmParams::default());
    let frame = world.enqueue(TO_HOST, 4);
    world.out[TO_HOST].set_down(true);
    let World { out, pool, .. } = &mut world;
    assert_eq!(out.take_lost(pool, TO_HOST, 4), Some((frame, BYTES)));
    assert_eq!(out.take_lost(pool, TO_HOST, 4), None);
    out.emptied(TO_HOST, 700);
    assert_eq!(
        (out.queued_bytes(TO_HOST), out[TO_HOST].free_ps()),
        (0, 700)
    );
    assert!(!out[TO_HOST].has_eligible() && out.audit(pool).is_ok());
}
