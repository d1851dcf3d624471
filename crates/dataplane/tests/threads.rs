//! Several threads of one switch: every frame that a sender's ring accepted arrives once, in order.

use std::{thread, time::Duration};

use common::{Bench, Guest, PLAIN, frame, introduce, mac, number, until};
use sluicegate_dataplane::{config::Config, count::Drop, mesh::CREDIT_FRAMES};

use crate::common;

const EACH: u64 = 300_000;

/// Sends numbered frames of one guest to another, and waits until all were taken.
fn send(mut guest: Guest, from: u8, to: u8, frames: u64) -> thread::JoinHandle<Guest> {
    thread::spawn(move || {
        for number in 0..frames {
            let bytes = frame(mac(to), mac(from), number, 60 + number as usize % 200);
            until("room", || guest.send(&bytes));
        }
        until("all taken", || guest.room() == usize::from(common::SIZE));
        guest
    })
}

/// Receives as many of each sender, in order, and is now and then away.
fn receive(guest: &mut Guest, senders: &[u8], frames: u64) {
    let mut next = [0; 8];
    let total = frames * senders.len() as u64;
    for count in 1..=total {
        let (from, number) = number(&guest.expect());
        let expected = &mut next[usize::from(from)];
        assert_eq!(number, *expected, "of sender {from}");
        *expected += 1;
        if count % (total / 8) == 0 {
            thread::sleep(Duration::from_millis(10));
        }
    }
    assert!(guest.receive().is_none(), "a frame came twice");
}

/// The thread of each port, as the switch tells it.
fn threads(bench: &Bench) -> Vec<u64> {
    let ports = sluicegate_dataplane::views::ports(&bench.service).expect("an answer");
    let ports = ports.as_array().expect("ports").iter();
    ports
        .map(|port| port["thread"].as_u64().expect("a thread"))
        .collect()
}

fn dropped(bench: &Bench) -> u64 {
    let show = sluicegate_dataplane::views::show(&bench.service).expect("an answer");
    show["frames_dropped"].as_u64().expect("a number")
}

fn held(bench: &Bench) -> u64 {
    let show = sluicegate_dataplane::views::show(&bench.service).expect("an answer");
    show["frames_held"].as_u64().expect("a number")
}

fn overload(threads_count: usize) {
    let ports = [("a", "thread = 0"), ("b", "thread = 1"), ("sink", "")];
    let bench = Bench::new(&format!("threads = {threads_count}"), &ports);
    let [mut a, mut b, mut sink] = ["a", "b", "sink"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut b, 2), (&mut sink, 3)]);
    let has = threads(&bench);
    assert_eq!(has, [0, 1, 2 % threads_count as u64]);
    let senders = [send(a, 1, 3, EACH), send(b, 2, 3, EACH)];
    receive(&mut sink, &[1, 2], EACH);
    for sender in senders {
        sender.join().expect("a sender");
    }
    assert_eq!((dropped(&bench), held(&bench)), (0, 0));
}

#[test]
fn numbered_frames_of_two_threads_arrive_once_and_in_order() {
    overload(2);
}

#[test]
fn and_those_of_three_threads() {
    overload(3);
}

#[test]
fn a_stalled_guest_of_another_thread_holds_up_only_frames_for_it() {
    let ports = [
        ("a", "thread = 0"),
        ("dead", "thread = 1"),
        ("c", "thread = 1"),
    ];
    let bench = Bench::new("threads = 2", &ports);
    let [mut a, mut dead, mut c] = ["a", "dead", "c"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut dead, 3), (&mut c, 4)]);
    // Half of the sender's ring waits for the one, which has a full ring.
    let waiting = u64::from(common::SIZE) + 128;
    for number in 0..waiting {
        until("room", || a.send(&frame(mac(3), mac(1), number, 60)));
    }
    until("a queue", || {
        let queues = sluicegate_dataplane::views::queues(&bench.service).expect("an answer");
        let first = &queues[0];
        first["receiver"] == "dead" && first["senders"][0]["port"] == "a"
    });
    for number in 0..5000 {
        until("room", || a.send(&frame(mac(4), mac(1), number, 60)));
        assert_eq!(common::number(&c.expect()), (1, number));
    }
    // More than credit lets over waits at the sender's own thread.
    assert!(usize::from(CREDIT_FRAMES) >= usize::from(common::SIZE));
    for number in 0..waiting {
        assert_eq!(common::number(&dead.expect()), (1, number));
    }
    assert_eq!(dropped(&bench), 0);
}

#[test]
fn a_port_of_another_thread_may_be_unplugged_and_come_again_at_any_time() {
    let ports = [
        ("a", "thread = 0"),
        ("b", "thread = 1"),
        ("c", "thread = 1"),
    ];
    let bench = Bench::new("threads = 2", &ports);
    let text = bench.text().to_owned();
    let without = |name: &str| {
        let at = text
            .find(&format!("[[port]]\nname = \"{name}\""))
            .expect("a port");
        let end = text[at + 1..]
            .find("[[port]]")
            .map_or(text.len(), |end| at + 1 + end);
        format!("{}{}", &text[..at], &text[end..])
    };
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut b, 2), (&mut c, 3)]);
    let reload = |text: &str| {
        let config = Config::parse("test", text).expect("a configuration");
        bench.service.reload(config).expect("it is put in force")
    };
    for round in 0..10 {
        // Frames of the one that goes wait for a full receiver of another thread.
        for number in 0..300 {
            b.send(&frame(mac(1), mac(2), number, 60));
        }
        thread::sleep(Duration::from_millis(2));
        assert_eq!(reload(&without("b")).removed, ["b"]);
        until("what it has left is delivered", || {
            while a.receive().is_some() {}
            held(&bench) == 0
        });
        while a.receive().is_some() {}
        for number in 0..100 {
            until("room", || a.send(&frame(mac(3), mac(1), number, 60)));
            until("the frame", || {
                let got = c.receive();
                got.is_some_and(|(_, bytes)| common::number(&bytes) == (1, number))
            });
        }
        assert_eq!(reload(&text).added, ["b"], "round {round}");
        b = bench.guest("b", PLAIN);
        introduce(&mut [(&mut a, 1), (&mut b, 2), (&mut c, 3)]);
    }
    until("nothing is held", || held(&bench) == 0);
}

#[test]
fn a_port_stays_on_its_thread_while_the_switch_runs() {
    let bench = Bench::new("threads = 2", &[("a", ""), ("b", ""), ("c", "")]);
    assert_eq!(threads(&bench), [0, 1, 0]);
    let moved = |from: &str, to: &str| {
        let text = bench.text().replacen(from, to, 1);
        let config = Config::parse("test", &text).expect("a configuration");
        bench.service.reload(config)
    };
    let name = "name = \"b\"\n";
    let error = moved(name, "name = \"b\"\nthread = 0\n").expect_err("it is refused");
    let error = error.to_string();
    assert!(
        error.contains("'b' is on thread 1 and would move"),
        "{error}"
    );
    let same = moved(name, "name = \"b\"\nthread = 1\n").expect("nothing changes");
    assert!(same.changed.is_empty() && !same.needs_restart);
    let more = moved("threads = 2", "threads = 3").expect("it is for later");
    assert!(more.needs_restart);
    assert_eq!(threads(&bench), [0, 1, 0]);
}

#[test]
fn threads_without_work_sleep_and_wake_each_other() {
    let bench = Bench::new("threads = 2", &[("a", "thread = 0"), ("b", "thread = 1")]);
    let [mut a, mut b] = ["a", "b"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut b, 2)]);
    let times = || {
        let show = sluicegate_dataplane::views::show(&bench.service).expect("an answer");
        let threads = show["threads"].as_array().expect("threads").clone();
        let of = |key: &str| {
            let each = threads.iter().map(|it| it[key].as_u64().expect("a number"));
            each.collect::<Vec<_>>()
        };
        (of("cpu_time_ns"), of("sleeps"))
    };
    thread::sleep(Duration::from_millis(100));
    let before = times();
    let lasts = Duration::from_secs(2);
    thread::sleep(lasts);
    let after = times();
    for thread in 0..2 {
        let used_ns = after.0[thread] - before.0[thread];
        let share = used_ns as f64 / lasts.as_nanos() as f64;
        assert!(
            share < 0.005,
            "thread {thread} used {:.3} % of a CPU",
            share * 100.0
        );
        assert!(after.1[thread] > before.1[thread], "it sleeps");
    }
    // Each frame finds both threads asleep.
    for number in 0..200 {
        thread::sleep(Duration::from_millis(1));
        until("room", || a.send(&frame(mac(2), mac(1), number, 60)));
        assert_eq!(common::number(&b.expect()), (1, number));
    }
}

/// By receiver, who waits for it, and whether it is in a circle.
fn queues(bench: &Bench) -> Vec<(String, Vec<String>, bool)> {
    let queues = sluicegate_dataplane::views::queues(&bench.service).expect("an answer");
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    let each = queues.as_array().expect("queues").iter().map(|queue| {
        let senders = queue["senders"].as_array().expect("senders").iter();
        let senders = senders.map(|sender| text(&sender["port"])).collect();
        let is_circle = queue["in_circle"].as_bool().expect("yes or no");
        (text(&queue["receiver"]), senders, is_circle)
    });
    each.collect()
}

#[test]
fn a_circle_across_threads_is_found() {
    let ports = [
        ("a", "thread = 0"),
        ("b", "thread = 1"),
        ("c", "thread = 1"),
    ];
    let bench = Bench::new("threads = 2", &ports);
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut b, 2), (&mut c, 3)]);
    let size = u64::from(common::SIZE);
    for number in 0..size + 100 {
        until("room", || a.send(&frame(mac(2), mac(1), number, 60)));
    }
    until("one waits", || !queues(&bench).is_empty());
    assert_eq!(
        queues(&bench),
        [("b".to_owned(), vec!["a".to_owned()], false)]
    );
    for number in 0..size + 100 {
        until("room", || b.send(&frame(mac(1), mac(2), number, 60)));
    }
    until("both wait", || queues(&bench).len() == 2);
    let expected = [("a", "b"), ("b", "a")];
    let expected = expected.map(|(to, from)| (to.to_owned(), vec![from.to_owned()], true));
    assert_eq!(queues(&bench), expected);
    let told = |key: &str| {
        let show = sluicegate_dataplane::views::show(&bench.service).expect("an answer");
        show[key].clone()
    };
    until("an alarm", || {
        told("circles") == serde_json::json!([["a", "b"]])
    });
    assert_eq!(told("stalled"), serde_json::json!(["a", "b"]));
    for (guest, from) in [(&mut a, 2), (&mut b, 1)] {
        for number in 0..size + 100 {
            assert_eq!(common::number(&guest.expect()), (from, number));
        }
    }
    until("nobody waits", || queues(&bench).is_empty());
    let none = serde_json::json!([]);
    until("its end", || {
        told("circles") == none && told("stalled") == none
    });
}

#[test]
fn a_guest_that_breaks_the_rules_leaves_its_frames_at_other_threads() {
    let ports = [("a", "thread = 0"), ("b", "thread = 1")];
    let bench = Bench::new("threads = 2", &ports);
    let [mut a, mut b] = ["a", "b"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut b, 2)]);
    let taken = || {
        let ports = sluicegate_dataplane::views::ports(&bench.service).expect("an answer");
        ports[1]["received_frames"].as_u64().expect("a count")
    };
    for _ in 0..5 {
        let size = u64::from(common::SIZE);
        let before = taken();
        for number in 0..size + 150 {
            until("room", || b.send(&frame(mac(1), mac(2), number, 60)));
        }
        // What is still in its ring then goes with it.
        until("all are taken", || taken() == before + size + 150);
        until("a full receiver", || !queues(&bench).is_empty());
        let index = &b.transmit.available_index;
        index.store(index.load().wrapping_add(1000));
        b.transmit.kick.write(1).expect("a kick");
        until("it is closed", || {
            let ports = sluicegate_dataplane::views::ports(&bench.service).expect("an answer");
            !ports[1]["closed"].is_null()
        });
        // It is heard again when its frames have come home.
        b = bench.guest("b", PLAIN);
        for number in 0..size + 150 {
            assert_eq!(common::number(&a.expect()), (2, number));
        }
        introduce(&mut [(&mut a, 1), (&mut b, 2)]);
        until("nothing is held", || held(&bench) == 0);
    }
}

#[test]
fn what_waits_at_other_threads_is_dropped_when_its_receiver_goes_or_stalls() {
    for (switch, reason) in [
        ("threads = 2", Drop::NoReceiver),
        ("threads = 2\nstall_limit = \"100ms\"", Drop::Stalled),
    ] {
        let ports = [("a", "thread = 0"), ("b", "thread = 1")];
        let bench = Bench::new(switch, &ports);
        let [mut a, mut b] = ["a", "b"].map(|port| bench.guest(port, PLAIN));
        introduce(&mut [(&mut a, 1), (&mut b, 2)]);
        let sent = 2 * u64::from(common::SIZE);
        for number in 0..sent {
            until("room", || a.send(&frame(mac(2), mac(1), number, 60)));
        }
        if reason == Drop::NoReceiver {
            until("a full receiver", || !queues(&bench).is_empty());
            drop(b);
        }
        until("the sender is free", || {
            a.room() == usize::from(common::SIZE)
        });
        let lost = bench.drops(1, reason);
        assert_eq!((lost, dropped(&bench)), (u64::from(common::SIZE), lost));
        until("nothing is held", || held(&bench) == 0);
    }
}
