use std::sync::Arc;

use super::*;
use crate::{Graph, Routes, routing::PathRules};

fn key(destination: u16, priority: u8) -> QueueKey {
    QueueKey {
        destination: HostId(destination.into()),
        priority,
        path: 0,
    }
}

const LINE_BPS: u64 = 10_000_000_000;

fn r3c2() -> SourceRouting {
    SourceRouting {
        rules: PathRules::DEFAULT,
        limits_each: true,
        has_limiters: true,
        routes: Arc::new(Routes::new(&Graph::new(0, 0))),
    }
}

fn adapters(room_bytes: u64) -> Adapters {
    let config = CeeConfig {
        adapter_bytes: room_bytes,
        ..CeeConfig::default()
    };
    Adapters::new(&config, &[], 1, 1)
}

#[test]
fn room_is_kept_for_each_priority_apart() {
    let mut adapters = adapters(3_000);
    let departure = Departure {
        source: HostId(0),
        queue: 0,
        priority: 5,
        sender: 7,
    };
    adapters.keep_room(departure, 2_000);
    assert!(adapters.fits((HostId(0), 5), 1_000) && !adapters.fits((HostId(0), 5), 1_001));
    assert!(adapters.fits((HostId(0), 4), 3_000));
    adapters.tag_departure(9, departure);
    assert_eq!(adapters.tag(9).sender, 7);
}

#[test]
fn frames_of_a_queue_are_numbered_on_request() {
    let mut adapters = adapters(1);
    let queue = adapters.adapters[0].queue(key(3, 5));
    assert_eq!(adapters.adapters[0].queue(key(3, 5)), queue);
    assert_ne!(adapters.adapters[0].queue(key(3, 6)), queue);
    adapters.keep_tags();
    for handle in 0..3 {
        adapters.tags.set(handle, Tag::default());
        let number = adapters.adapters[0].queues[queue as usize].next_number();
        assert_eq!(number, handle);
        adapters.tags.number(handle, number);
    }
    adapters.copied(2, 8);
    assert_eq!(adapters.tag(8).number, 2);
}

#[test]
fn queues_of_a_priority_take_turns() {
    let mut adapters = adapters(1);
    let adapter = &mut adapters.adapters[0];
    let queues: Vec<u32> = (0..3).map(|to| adapter.queue(key(to, 2))).collect();
    let mut waiting = Waiting::default();
    for &queue in &queues {
        adapter.list(&mut waiting, queue, 0, None);
    }
    let mut expected = Waiting::default();
    expected.add(2);
    assert_eq!(waiting, expected);
    adapter.rotate(2);
    let mut served = Vec::new();
    while let Some(queue) = adapter.next(&mut waiting, 2) {
        served.push(queue);
    }
    assert_eq!(served, [queues[1], queues[2], queues[0]]);
    assert_eq!(waiting, Waiting::default());
    assert!(adapter.queues.iter().all(|voq| !voq.is_listed()));
}

#[test]
fn a_queued_frame_keeps_its_room_until_it_leaves() {
    let mut room = Room::default();
    room.reserve(3, 1_500);
    room.reserve(3, 500);
    room.join(1_500);
    assert!(!room.is_empty());
    room.leave(3, 1_500);
    assert!(room.is_empty());
    assert_eq!(room.reserved_bytes[3], 500, "one is on its way");
    room.give_back(3, 500);
    assert_eq!(room.reserved_bytes, [0; PRIORITIES]);
}

#[test]
fn a_sender_that_waits_for_room_is_told_once() {
    let mut adapters = adapters(1);
    let adapter = &mut adapters.adapters[0];
    assert!(!adapter.hurries() && !adapter.is_watched());
    adapter.want(4);
    assert!(adapter.hurries() && adapter.is_watched());
    assert!(!adapter.ends_wait(5));
    assert!(adapter.ends_wait(4) && !adapter.ends_wait(4));
    assert!(!adapter.hurries());
    adapter.count_departures();
    assert!(adapter.hurries() && adapter.is_counted());
}

#[test]
fn a_queue_that_sleeps_wakes_when_a_path_is_added() {
    let routing = r3c2();
    let params = QcnParams::thesis(66_000);
    let mut adapters = adapters(1);
    let adapter = &mut adapters.adapters[0];
    let mut waiting = Waiting::default();
    let notify = |adapter: &mut Adapter, waiting: &mut Waiting, path, now_ps| {
        let notice = (QueueKey { path, ..key(3, 5) }, 63);
        let rules = (&routing, &params);
        adapter.notified_of_path(waiting, rules, notice, LINE_BPS, now_ps, || vec![3, 4, 5]);
    };
    for path in [3, 5, 4] {
        notify(adapter, &mut waiting, path, 0);
    }
    // All paths are in use and limited. The timer gives one up.
    let now_ps = adapter.next_delayed_ps();
    adapter.release_delayed(&mut waiting, now_ps, Some(&params));
    let queue = adapter.queue(key(3, 5));
    let voq = &mut adapter.queues[queue as usize];
    let mut sent = [0; 2].map(|_| voq.limit(&params, 1_500, now_ps));
    sent.sort_unstable();
    assert_eq!(sent, [Some(3), Some(4)]);
    adapter.list(&mut waiting, queue, now_ps, Some(&params));
    assert_eq!(waiting, Waiting::default(), "it waits for its limiters");
    notify(adapter, &mut waiting, 3, now_ps);
    assert_ne!(waiting, Waiting::default(), "a path is added that is ready");
    assert_eq!(adapter.next(&mut waiting, 5), Some(queue));
    let timers = adapter.delayed.iter();
    let timers = timers.filter(|Reverse((_, number))| number & PATH_TIMER != 0);
    assert_eq!(timers.count(), adapter.delayed.len(), "it is listed once");
}

#[test]
fn paths_take_memory_only_while_they_are_used() {
    let routing = r3c2();
    let params = QcnParams::thesis(66_000);
    let mut adapters = adapters(1);
    let on_path = |path| QueueKey { path, ..key(3, 5) };
    let notify = |adapters: &mut Adapters, path: u32, now_ps: u64| {
        let notice = (on_path(path), 63);
        let values = || vec![3, 4, 5];
        let rules = (&routing, &params);
        let waiting = &mut Waiting::default();
        adapters.adapters[0].notified_of_path(waiting, rules, notice, LINE_BPS, now_ps, values);
    };
    assert_eq!(adapters.paths(HostId(0), key(3, 5)), None);
    notify(&mut adapters, 3, 0);
    notify(&mut adapters, 4, 1_000_000);
    let used = adapters.paths(HostId(0), key(3, 5));
    assert_eq!(used, Some(vec![3, 4, 5]));
    let mut waiting = Waiting::default();
    for _ in 0..2_000 {
        match adapters.adapters[0].next_delayed_ps() {
            NEVER => break,
            at_ps => adapters.adapters[0].release_delayed(&mut waiting, at_ps, Some(&params)),
        }
    }
    assert_eq!(adapters.paths(HostId(0), key(3, 5)), None);
    assert!(adapters.adapters[0].delayed.is_empty(), "no timer is left");
}
