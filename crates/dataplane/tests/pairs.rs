//! Guests with several queue pairs.

use common::{Bench, Guest, PLAIN, frame, introduce, mac, number, until};
use sluicegate_dataplane::vhost::feature;

use crate::common;

const FEATURES: u64 = PLAIN | feature::MULTIQUEUE;
const FRAMES: u64 = 20_000;

/// Takes what both pairs of a guest have received; how many frames came by each. Numbers of a
/// sender, whose parity says the pair by which it sent them, come in order.
fn take(guest: &mut Guest, next: &mut [u64; 2], came: &mut [u64; 2]) {
    for came in came {
        while let Some((_, bytes)) = guest.receive() {
            let (_, number) = number(&bytes);
            let next = &mut next[number as usize % 2];
            assert_eq!(number, *next, "in order");
            *next += 2;
            *came += 1;
        }
        guest.change_pair();
    }
}

/// Sends by the pair in use what has its parity, until all is sent or the ring is full.
fn send(guest: &mut Guest, from: u8, to: u8, sent: &mut u64) {
    while *sent < FRAMES && guest.send(&frame(mac(to), mac(from), *sent, 60 + *sent as usize % 900))
    {
        *sent += 2;
    }
}

fn run(threads: &str, second: u64) {
    let keys = ["queues = 2\nthread = 0", "queues = 2\nthread = 0"];
    let keys = match threads {
        "" => ["queues = 2"; 2],
        _ => [keys[0], "queues = 2\nthread = 1"],
    };
    let bench = Bench::new(threads, &[("a", keys[0]), ("b", keys[1])]);
    let mut a = bench.guest("a", FEATURES);
    let mut b = bench.guest("b", second);
    a.add_pair(FEATURES);
    if second == FEATURES {
        b.add_pair(FEATURES);
    }
    a.change_pair();
    b.change_pair();
    introduce(&mut [(&mut a, 1), (&mut b, 2)]);
    // By guest and parity: what it has sent, and what it expects; by guest, what came by each pair.
    let (mut sent, mut next, mut came) = ([[0, 1]; 2], [[0, 1]; 2], [[0; 2]; 2]);
    until("all frames", || {
        let [of_a, of_b] = &mut sent;
        for (of_a, of_b) in of_a.iter_mut().zip(of_b) {
            send(&mut a, 1, 2, of_a);
            send(&mut b, 2, 1, of_b);
            a.change_pair();
            b.change_pair();
        }
        take(&mut a, &mut next[0], &mut came[0]);
        take(&mut b, &mut next[1], &mut came[1]);
        next == [[FRAMES, FRAMES + 1]; 2]
    });
    assert_eq!(came[0].iter().sum::<u64>(), FRAMES);
    if second == FEATURES {
        // A receiver has a frame by the pair by which its sender sent it.
        assert_eq!(came, [[FRAMES / 2; 2]; 2]);
    }
    assert_eq!(bench.dropped(), 0);
    until("nothing is held", || bench.held() == 0);
}

#[test]
fn frames_of_two_pairs_come_by_both_pairs_in_order() {
    run("", FEATURES);
}

#[test]
fn pairs_work_across_threads() {
    run("threads = 2", FEATURES);
}

#[test]
fn a_guest_with_one_pair_has_those_of_both() {
    run("", PLAIN);
}
