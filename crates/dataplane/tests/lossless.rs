//! Every frame that a sender's ring accepted arrives once, in order.

use std::{env, thread, time::Duration};

use common::{
    BUFFER, Bench, Guest, LINUX, PATIENCE, PLAIN, REMEMBERS, frame, introduce, mac, number, until,
};
use sluicegate_dataplane::count::Drop;

use crate::common;

/// Frames that are counted; `SG_FRAMES` says another number.
fn frames() -> u64 {
    let wanted = env::var("SG_FRAMES").ok();
    wanted.map_or(10_000_000, |text| text.parse().expect("a number of frames"))
}

/// The next numbers that a receiver expects of each sender.
#[derive(Default)]
struct Expected([u64; 8]);

impl Expected {
    fn check(&mut self, bytes: &[u8]) {
        let (sender, number) = number(bytes);
        let next = &mut self.0[usize::from(sender)];
        assert_eq!(number, *next, "of sender {sender}");
        *next += 1;
    }

    fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

#[test]
fn numbered_frames_of_two_senders_arrive_once_and_in_order() {
    let bench = Bench::new(REMEMBERS, &[("a", ""), ("b", ""), ("sink", "")]);
    let [mut a, mut b, mut sink] = ["a", "b", "sink"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut b, 2), (&mut sink, 3)]);
    let each = frames() / 2;
    let send = |mut guest: Guest, from: u8| {
        move || {
            for number in 0..each {
                let bytes = 60 + number as usize % 200;
                let bytes = frame(mac(3), mac(from), number, bytes);
                until("room", || guest.send(&bytes));
            }
            until("all taken", || guest.room() == usize::from(common::SIZE));
        }
    };
    let senders = [thread::spawn(send(a, 1)), thread::spawn(send(b, 2))];
    let mut expected = Expected::default();
    let mut silent = std::time::Instant::now();
    while expected.total() < 2 * each {
        match sink.receive() {
            Some((_, bytes)) => {
                expected.check(&bytes);
                // A receiver that is now and then away holds its senders back.
                if expected.total() % (each / 4) == 0 {
                    thread::sleep(Duration::from_millis(20));
                }
                if expected.total() % (each / 50) == 0 {
                    println!("{} of {} frames", expected.total(), 2 * each);
                }
                silent = std::time::Instant::now();
            }
            None => {
                assert!(silent.elapsed() < PATIENCE, "{} came", expected.total());
                thread::yield_now();
            }
        }
    }
    for sender in senders {
        sender.join().expect("a sender");
    }
    assert_eq!(expected.0[1..3], [each, each]);
    assert!(sink.receive().is_none(), "a frame came twice");
    assert_eq!(bench.dropped(), 0);
}

#[test]
fn a_receiver_that_takes_nothing_stalls_those_who_send_to_it_alone() {
    let bench = Bench::new("", &[("a", ""), ("b", ""), ("dead", ""), ("c", "")]);
    let [mut a, mut b, mut dead, mut c] =
        ["a", "b", "dead", "c"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut b, 2), (&mut dead, 3), (&mut c, 4)]);
    // 256 frames fill the receiver's ring, further ones stay in the sender's.
    let mut sent = 0;
    until("two full rings", || {
        sent += u64::from(a.send(&frame(mac(3), mac(1), sent, 60)));
        sent == 2 * u64::from(common::SIZE)
    });
    assert!(!a.send(&frame(mac(3), mac(1), sent, 60)));
    until("all to wait", || {
        let (from, since) = bench.waiting(2);
        from == [(0, usize::from(common::SIZE))] && since.is_some()
    });
    for number in 0..1000 {
        until("room", || b.send(&frame(mac(4), mac(2), number, 60)));
        assert_eq!(common::number(&c.expect()), (2, number));
    }
    // A broadcast reaches all others at once, and waits for the one.
    assert!(b.send(&frame([0xff; 6], mac(2), 1000, 60)));
    assert_eq!(number(&c.expect()), (2, 1000));
    assert_eq!(number(&a.expect()), (2, 1000));
    let mut expected = Expected::default();
    let mut last = 0;
    while expected.0[1] < sent || last == 0 {
        let bytes = dead.expect();
        match number(&bytes) {
            (2, number) => last = number,
            _ => expected.check(&bytes),
        }
    }
    assert_eq!((expected.total(), last), (sent, 1000));
    assert_eq!(bench.dropped(), 0);
}

#[test]
fn frames_for_others_pass_those_that_wait() {
    let bench = Bench::new("", &[("a", ""), ("dead", ""), ("c", "")]);
    let [mut a, mut dead, mut c] = ["a", "dead", "c"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut dead, 3), (&mut c, 4)]);
    for number in 0..300 {
        until("room", || a.send(&frame(mac(3), mac(1), number, 60)));
    }
    until("a full receiver", || bench.waiting(1).1.is_some());
    for number in 0..1000 {
        until("room", || a.send(&frame(mac(4), mac(1), number, 60)));
        assert_eq!(common::number(&c.expect()), (1, number));
    }
    let mut expected = Expected::default();
    for _ in 0..300 {
        expected.check(&dead.expect());
    }
}

#[test]
fn a_bound_on_stalls_drops_with_a_count() {
    let bench = Bench::new("stall_limit = \"50ms\"", &[("a", ""), ("dead", "")]);
    let [mut a, mut dead] = ["a", "dead"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut dead, 2)]);
    for number in 0..400 {
        until("room", || a.send(&frame(mac(2), mac(1), number, 60)));
    }
    until("drops", || bench.drops(1, Drop::Stalled) == 400 - 256);
    assert_eq!(dead.drain().len(), 256);
    assert!(a.send(&frame(mac(2), mac(1), 400, 60)));
    assert_eq!(number(&dead.expect()), (1, 400));
}

#[test]
fn a_lossy_switch_drops_what_does_not_fit() {
    let bench = Bench::new("lossless = false\nqueue = 10", &[("a", ""), ("b", "")]);
    let [mut a, mut b] = ["a", "b"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut b, 2)]);
    for number in 0..1000 {
        until("room", || a.send(&frame(mac(2), mac(1), number, 60)));
    }
    until("all sent", || a.room() == usize::from(common::SIZE));
    assert_eq!(bench.drops(1, Drop::Full), 1000 - 256 - 10);
    assert_eq!(b.drain().len(), 256 + 10);
}

#[test]
fn frames_outlive_the_ring_and_the_guest_that_sent_them() {
    let bench = Bench::new("", &[("a", ""), ("b", "")]);
    let [mut a, mut b] = ["a", "b"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut b, 2)]);
    for number in 0..400 {
        until("room", || a.send(&frame(mac(2), mac(1), number, 1000)));
    }
    let left = 400 - usize::from(common::SIZE);
    until("all read", || bench.waiting(1).0 == [(0, left)]);
    // 401 chains were read: the introduction and 400 frames; all are used again.
    assert_eq!(a.stop(1), 401);
    assert_eq!(a.room(), usize::from(common::SIZE));
    drop(a);
    let mut again = bench.guest("a", PLAIN);
    let mut expected = Expected::default();
    for _ in 0..400 {
        expected.check(&b.expect());
    }
    assert!(again.send(&frame(mac(2), mac(1), 400, 60)));
    expected.check(&b.expect());
    assert_eq!(bench.dropped(), 0);
}

#[test]
fn memory_that_changes_under_running_rings_loses_nothing() {
    use vhost::VhostBackend;
    let bench = Bench::new("", &[("a", ""), ("b", "")]);
    let [mut a, mut b] = ["a", "b"].map(|port| bench.guest(port, LINUX));
    introduce(&mut [(&mut a, 1), (&mut b, 2)]);
    let mut expected = Expected::default();
    for number in 0..2000 {
        until("room", || a.send(&frame(mac(2), mac(1), number, 300)));
        if number % 100 == 99 {
            let (of_a, of_b) = (Guest::region(&a.file), Guest::region(&b.file));
            a.frontend.set_mem_table(&[of_a]).expect("memory");
            b.frontend.set_mem_table(&[of_b]).expect("memory");
        }
        if number % 300 > 40 {
            expected.check(&b.expect());
        }
    }
    while expected.total() < 2000 {
        expected.check(&b.expect());
    }
    assert_eq!(bench.dropped(), 0);
}

#[test]
fn a_long_frame_takes_several_buffers() {
    let bench = Bench::new("", &[("a", ""), ("b", ""), ("old", "")]);
    let mut guests =
        [("a", LINUX), ("b", LINUX)].map(|(port, features)| bench.guest(port, features));
    // A driver of one buffer a frame, without Virtio 1.
    let mut old = bench.guest("old", 0);
    let [a, b] = &mut guests;
    introduce(&mut [(a, 1), (b, 2), (&mut old, 3)]);
    let long = frame(mac(2), mac(1), 7, 9000);
    guests[0].send_long([0; 12], &long);
    assert_eq!(guests[1].expect(), long);
    guests[0].send_long([0; 12], &frame(mac(3), mac(1), 8, BUFFER as usize));
    until("a drop", || bench.drops(2, Drop::TooLong) == 1);
    let fits = frame(mac(3), mac(1), 9, 1514);
    until("room", || guests[0].send(&fits));
    assert_eq!(old.expect(), fits);
    assert!(old.send(&frame(mac(1), mac(3), 10, 60)));
    assert_eq!(number(&guests[0].expect()), (3, 10));
}

#[test]
fn broadcasts_do_not_wait_for_a_receiver_that_takes_nothing() {
    let bench = Bench::new("", &[("a", ""), ("dead", ""), ("c", "")]);
    let [mut a, mut dead, mut c] = ["a", "dead", "c"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut dead, 3), (&mut c, 4)]);
    for number in 0..2000 {
        until("room", || a.send(&frame([0xff; 6], mac(1), number, 60)));
        assert_eq!(common::number(&c.expect()), (1, number));
    }
    until("all taken", || a.room() >= usize::from(common::SIZE) - 32);
    assert!(bench.drops(1, Drop::Flooded) > 1000);
    // What is kept is in order.
    let numbers: Vec<_> = dead.drain().iter().map(|frame| number(frame).1).collect();
    assert!(
        numbers.len() >= 256 + 64 && numbers.is_sorted(),
        "{}",
        numbers.len()
    );
}

#[test]
fn a_guest_that_resets_its_ring_over_and_over_fills_no_memory() {
    let bench = Bench::new("", &[("a", ""), ("dead", "")]);
    let read = || {
        bench.ask(|worker| {
            let bay = worker.engine.bay_mut(0).expect("a port");
            bay.counters.received_frames
        })
    };
    let mut dead = bench.guest("dead", PLAIN);
    let (mut sent, mut introduced) = (0, 0);
    for _ in 0..100 {
        let mut a = bench.guest("a", PLAIN);
        if sent == 0 {
            introduce(&mut [(&mut a, 1), (&mut dead, 2)]);
            introduced = read();
        }
        let before = read();
        while a.send(&frame(mac(2), mac(1), sent, 1500)) {
            sent += 1;
        }
        // A ring that stops leaves what the switch has not read: it reads half, however slow it is.
        until("half a ring", || {
            read() - before >= u64::from(common::SIZE) / 2
        });
        a.stop(1);
    }
    let left = bench.drops(0, Drop::Left);
    let held = bench.held() as u64;
    assert!(held * 1500 < 17 << 20, "{held} frames");
    let read = read() - introduced;
    assert!(read <= sent, "{read} of {sent}");
    assert!(left > 0, "none of {read} frames");
    assert_eq!(left + held + 256, read);
    let numbers: Vec<_> = dead.drain().iter().map(|frame| number(frame).1).collect();
    assert_eq!(numbers.len() as u64, read - left);
    assert!(numbers.is_sorted());
}

#[test]
fn a_memory_that_lacks_a_ring_is_refused_and_the_switch_goes_on() {
    use vhost::{VhostBackend, VhostUserMemoryRegionInfo};
    let bench = Bench::new("", &[("a", ""), ("b", ""), ("c", "")]);
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|port| bench.guest(port, LINUX));
    introduce(&mut [(&mut a, 1), (&mut b, 2), (&mut c, 3)]);
    // The receive ring is in the first 32 KB, the transmit ring is not.
    let region = VhostUserMemoryRegionInfo {
        memory_size: 0x8000,
        ..Guest::region(&a.file)
    };
    // It hears nothing of the refusal but the end of its connection.
    let _ = a.frontend.set_mem_table(&[region]);
    let is_down =
        || !bench.ask(|worker| worker.engine.bay_mut(0).is_some_and(|bay| bay.port.is_up()));
    until("the end", is_down);
    for number in 0..1000 {
        until("room", || b.send(&frame(mac(3), mac(2), number, 100)));
        assert_eq!(common::number(&c.expect()), (2, number));
    }
    drop(a);
    let mut again = bench.guest("a", PLAIN);
    introduce(&mut [(&mut again, 1), (&mut b, 2), (&mut c, 3)]);
}
