//! Head-of-line blocking that remains: the ring of a sender is its queue, so entries that wait for
//! a stalled receiver are missing for others.
//!
//! ```text
//! cargo test --release -p sluicegate-dataplane --test all -- head_of_line:: --ignored --nocapture
//! ```
//! prints the goodput to a receiver that takes frames, over the share of entries that wait for
//! another one.

use std::time::{Duration, Instant};

use common::{Bench, Guest, PATIENCE, PLAIN, SIZE, frame, introduce, mac, number, until};

use crate::common;

/// Bytes of a frame to the free receiver.
const BYTES: usize = 1514;
/// Entries of the sender's ring that wait, in percent of it.
const PERCENT: [u64; 6] = [0, 25, 50, 75, 90, 100];

/// Sends so many numbered frames to the free receiver until all have come, or none comes for as
/// long as `patience`; how many came, and in which time.
fn run(sender: &mut Guest, free: &mut Guest, frames: u64, patience: Duration) -> (u64, Duration) {
    let (start, mut last) = (Instant::now(), Instant::now());
    let (mut sent, mut came) = (0, 0);
    while came < frames && last.elapsed() < patience {
        while sent < frames && sender.send(&frame(mac(3), mac(1), sent, BYTES)) {
            sent += 1;
        }
        while let Some((_, bytes)) = free.receive() {
            assert_eq!(number(&bytes), (1, came), "in order");
            (came, last) = (came + 1, Instant::now());
        }
    }
    assert_eq!(came, sent, "what the ring took has come");
    (came, start.elapsed())
}

/// What a sender of so many frames achieves, frames/s, while `percent` of its ring wait for a
/// stalled receiver.
fn goodput(percent: u64, frames: u64) -> f64 {
    let ring = u64::from(SIZE);
    let waiting = ring * percent / 100;
    let bench = Bench::new(
        "stall_limit = \"never\"",
        &[("a", ""), ("stalled", ""), ("free", "")],
    );
    let [mut a, mut stalled, mut free] =
        ["a", "stalled", "free"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut stalled, 2), (&mut free, 3)]);
    // Its own buffers are full first.
    for number in 0..ring + waiting {
        until("room", || a.send(&frame(mac(2), mac(1), number, 60)));
    }
    let waits = || bench.waiting(1).0.iter().map(|it| it.1 as u64).sum::<u64>();
    until("the stalled ones wait", || waits() == waiting);
    until("others are free", || a.room() as u64 == ring - waiting);
    // A full ring takes no frame for anybody.
    let (expected, patience) = match waiting == ring {
        true => (0, Duration::from_millis(500)),
        false => (frames, PATIENCE),
    };
    let (came, time) = run(&mut a, &mut free, frames, patience);
    assert_eq!(came, expected, "with {waiting} entries that wait");
    // The stalled one goes on: everything comes, in order, and the ring is free again.
    for number in 0..ring + waiting {
        assert_eq!(common::number(&stalled.expect()), (1, number));
    }
    until("a free ring", || a.room() == usize::from(SIZE));
    assert!(a.send(&frame(mac(3), mac(1), frames, BYTES)));
    assert_eq!(number(&free.expect()), (1, frames));
    assert_eq!(bench.dropped(), 0);
    came as f64 / time.as_secs_f64()
}

#[test]
fn frames_for_others_pass_until_the_ring_is_full() {
    for percent in PERCENT {
        goodput(percent, 5000);
    }
}

/// All shares are tried in turn so often; the table has medians.
const ROUNDS: usize = 5;

#[test]
#[ignore = "the table of docs/switch.md, which takes a minute"]
fn goodput_beside_entries_that_wait() {
    let mut rates = PERCENT.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (percent, rates) in PERCENT.into_iter().zip(&mut rates) {
            rates.push(goodput(percent, 50_000));
        }
    }
    let medians = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[ROUNDS / 2]
    });
    println!("| entries that wait | of 256 | goodput, frames/s | of that without |");
    println!("|---|---|---|---|");
    for (percent, rate) in PERCENT.into_iter().zip(medians) {
        let (waiting, share) = (u64::from(SIZE) * percent / 100, 100.0 * rate / medians[0]);
        println!("| {waiting} | {percent} % | {rate:.0} | {share:.0} % |");
    }
}
