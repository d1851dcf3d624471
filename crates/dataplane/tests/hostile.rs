//! Guests and frontends that break the rules close their own port, and others notice nothing.

use std::{io::Write, os::unix::net::UnixStream, thread, time::Duration};

use common::{
    Bench, GUEST, Guest, LINUX, PLAIN, SIZE, frame, introduce, mac, others::Others, until,
};
use rustix::fs::ftruncate;
use sluicegate_dataplane::{
    count::Drop as Reason,
    offload::{Family, Work},
};

use crate::common;

const WRITE: u16 = 2;
const NEXT: u16 = 1;
const INDIRECT: u16 = 4;

/// Lets a hostile guest do something, and checks that its port is closed for this reason, that
/// others go on, and that a guest that behaves can connect to the port again.
fn closes(reason: &str, attack: impl Fn(&mut Guest)) {
    closes_at(reason, |_, bad| attack(bad));
}

/// Likewise, at this switch.
fn closes_at(reason: &str, attack: impl Fn(&Bench, &mut Guest)) {
    let bench = Bench::new("", &[("a", ""), ("b", ""), ("bad", "")]);
    let others = Others::begin(["a", "b"].map(|port| bench.guest(port, PLAIN)));
    let mut bad = bench.guest("bad", LINUX);
    attack(&bench, &mut bad);
    until(reason, || {
        bench
            .ask(|worker| worker.engine.bay_mut(2).and_then(|bay| bay.closed.clone()))
            .is_some_and(|why| why.contains(reason))
    });
    drop(bad);
    thread::sleep(Duration::from_millis(20));
    others.end();
    let mut good = bench.guest("bad", PLAIN);
    let mut a = bench.guest("a", PLAIN);
    introduce(&mut [(&mut good, 3), (&mut a, 1)]);
    assert!(bench.ask(|worker| {
        worker
            .engine
            .bay_mut(2)
            .is_some_and(|bay| bay.closed.is_none())
    }));
}

#[test]
fn a_chain_that_is_a_loop() {
    closes("a chain is a loop", |bad| {
        let at = GUEST + bad.buffer(1, 0);
        bad.describe(1, 0, at, 100, NEXT, 1);
        bad.describe(1, 1, at, 100, NEXT, 0);
        bad.offer_head(0);
    });
}

#[test]
fn an_index_that_jumps() {
    closes("jumps by more than the ring holds", |bad| {
        bad.jump(SIZE + 1)
    });
}

/// The switch has read some of its receive buffers ahead when they are taken back.
#[test]
fn an_index_that_goes_back() {
    closes_at("its index goes back", |bench, bad| {
        until("a frame", || bad.receive.used_index.load() > 0);
        // Beyond the chains that the switch has read ahead, and before the last that it knows.
        common::halted(&bench.service, || {
            let used = bad.receive.used_index.load();
            bad.receive.available_index.store(used + 100);
        });
    });
}

#[test]
fn a_head_beyond_the_ring() {
    closes("begins beyond the ring", |bad| bad.offer_head(SIZE));
}

#[test]
fn a_buffer_outside_of_memory() {
    closes("not in the guest's memory", |bad| {
        bad.describe(1, 0, u64::MAX - 5, 100, 0, 0);
        bad.offer_head(0);
    });
}

#[test]
fn a_buffer_that_ends_outside_of_memory() {
    closes("not in the guest's memory", |bad| {
        bad.describe(1, 0, GUEST, u32::MAX, 0, 0);
        bad.offer_head(0);
    });
}

#[test]
fn a_buffer_of_the_wrong_direction() {
    closes("wrong direction", |bad| {
        let at = GUEST + bad.buffer(1, 0);
        bad.describe(1, 0, at, 100, WRITE, 0);
        bad.offer_head(0);
    });
}

#[test]
fn a_table_within_a_table() {
    closes("an indirect table is malformed", |bad| {
        let at = GUEST + bad.buffer(1, 0);
        // The buffer holds a descriptor of a table, and is one itself.
        let mut inner = [0; 16];
        inner[..8].copy_from_slice(&at.to_le_bytes());
        (inner[8], inner[12]) = (16, INDIRECT as u8);
        bad.memory
            .write(bad.memory.guest(at, 16).expect("in memory"), &inner);
        bad.describe(1, 0, at, 16, INDIRECT, 0);
        bad.offer_head(0);
    });
}

#[test]
fn receive_buffers_without_room() {
    closes("a receive buffer has no room", |bad| {
        for slot in 0..SIZE {
            bad.describe(0, slot, GUEST, 0, WRITE, 0);
        }
    });
}

/// All of its receive buffers are one chain of 200 bytes.
#[test]
fn receive_buffers_of_many_short_pieces_take_no_long_frames() {
    let bench = Bench::new("", &[("a", ""), ("bad", "")]);
    let [mut a, bad] = ["a", "bad"].map(|port| bench.guest(port, PLAIN));
    for slot in 0..200 {
        let flags = if slot < 199 { WRITE | NEXT } else { WRITE };
        bad.describe(0, slot, GUEST + bad.buffer(0, slot), 1, flags, slot + 1);
    }
    for entry in 0..u64::from(SIZE) {
        let at = bad.memory.guest(GUEST + 0x4004 + 2 * entry, 2);
        bad.memory.write(at.expect("in memory"), &[0, 0]);
    }
    for bytes in [900, 1400] {
        assert!(a.send(&frame(mac(2), mac(1), 1, bytes)));
    }
    until("both are read", || a.room() == usize::from(SIZE));
    let taken = bench.ask(|worker| worker.engine.bay_mut(1).map(|bay| bay.counters));
    assert_eq!(taken.map(|counters| counters.delivered_frames), Some(1));
    assert_eq!(bench.drops(1, Reason::TooLong), 1);
}

#[test]
fn memory_that_shrinks() {
    closes("its memory has shrunk", |bad| {
        bad.describe(1, 0, GUEST + bad.buffer(1, 0), 100, 0, 0);
        ftruncate(&bad.file, 0).expect("shrink");
        bad.transmit.kick.write(1).expect("kick");
    });
}

#[test]
fn a_ring_that_begins_anew_smaller_while_parts_of_its_segments_wait() {
    const SEGMENT: Work = Work {
        checksum: Some((34, 16)),
        segment: Some((Family::Tcp4, 1400, false)),
    };
    const PARTS: usize = 46;
    let bench = Bench::new("", &[("bad", ""), ("b", "")]);
    let [mut bad, mut b] = [("bad", LINUX), ("b", PLAIN)].map(|(port, has)| bench.guest(port, has));
    introduce(&mut [(&mut bad, 1), (&mut b, 2)]);
    let mut bytes = SEGMENT.header(54).to_vec();
    bytes.extend([mac(2), mac(1)].concat());
    bytes.extend([8, 0, 0x45, 0, 0, 0, 0, 1, 0, 0, 64, 6, 0, 0]);
    bytes.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend([4, 0, 5, 0, 0, 0, 0, 100, 0, 0, 0, 1, 5 << 4, 0x10, 1, 0]);
    bytes.resize(12 + 54 + 1400 * PARTS, 0);
    let at = GUEST + bad.buffer(1, 0);
    let piece = bad.memory.guest(at, bytes.len() as u32).expect("in memory");
    bad.memory.write(piece, &bytes);
    let send_all = |bad: &mut Guest, parts: usize| {
        for slot in 0..SIZE {
            bad.describe(1, slot, at, (12 + 54 + 1400 * parts) as u32, 0, 0);
            bad.offer_head(slot);
        }
    };
    // The receiver has room for so many frames. The other segments wait as they are.
    let room = usize::from(SIZE);
    for parts in [PARTS, PARTS - 6] {
        send_all(&mut bad, parts);
        until("the ring of the receiver is full", || {
            bench.ask(|worker| worker.engine.waiting(1).0) == [(0, room - room / parts)]
        });
        assert_eq!(bench.held(), room - room / parts);
        if parts == PARTS {
            assert_eq!(b.drain().len(), room * parts);
            until("all are back", || bench.held() == 0);
        }
    }
    // What was not delivered is kept, and more of it than is kept for long is dropped.
    let base = bad.stop(1);
    assert_eq!(bench.drops(0, Reason::Left), 0);
    bad.transmit.next_available = base as u16;
    bad.restart_transmit(SIZE, base as u16);
    send_all(&mut bad, PARTS);
    until("all are taken", || {
        bench.held() == 2 * room - room / (PARTS - 6)
    });
    let base = bad.stop(1);
    bad.restart_transmit(64, base as u16);
    let used = bad.transmit_used();
    let left = bench.drops(0, Reason::Left) as usize;
    assert!((1..room).contains(&left), "{left} of them left");
    assert_eq!(bench.held(), 2 * room - room / (PARTS - 6) - left);
    // They may be of either length, or half of one.
    let frames = b.drain().len();
    let (sent, lost) = (room * (2 * PARTS - 6), left * (PARTS - 6)..=left * PARTS);
    let lost_here = sent - frames;
    assert!(
        (lost.start() - PARTS..=*lost.end()).contains(&lost_here),
        "{lost_here}"
    );
    assert_eq!(bench.held(), 0);
    assert_eq!(bad.transmit_used(), used, "nothing else comes back");
}

#[test]
fn frames_that_are_none_are_counted_and_go_nowhere() {
    let bench = Bench::new("", &[("a", ""), ("b", ""), ("bad", "")]);
    let others = Others::begin(["a", "b"].map(|port| bench.guest(port, PLAIN)));
    let mut bad = bench.guest("bad", LINUX);
    // Too short, empty, without a header, and one whose header lies.
    for bytes in [0, 5, 12, 20] {
        bad.describe(1, 0, GUEST + bad.buffer(1, 0), bytes, 0, 0);
        bad.offer_head(0);
        until("taken", || bad.room() > usize::from(SIZE));
        bad.transmit_free_last();
    }
    let mut lie = [0; 12];
    (lie[0], lie[6]) = (1, 0xff);
    assert!(bad.send_with(lie, &frame(mac(1), mac(3), 1, 100)));
    // A segment of which each byte would be a frame.
    let mut tiny = Work {
        checksum: Some((34, 16)),
        segment: Some((Family::Tcp4, 1400, false)),
    }
    .header(54);
    (tiny[4], tiny[5]) = (1, 0);
    assert!(bad.send_with(tiny, &frame(mac(1), mac(3), 1, 1000)));
    let mut kind = [0; 12];
    kind[1] = 77;
    assert!(bad.send_with(kind, &frame(mac(1), mac(3), 1, 100)));
    until("drops", || bench.drops(2, Reason::Malformed) == 7);
    assert!(bench.ask(|worker| {
        worker
            .engine
            .bay_mut(2)
            .is_some_and(|bay| bay.closed.is_none())
    }));
    others.end();
}

#[test]
fn a_storm_of_kicks_and_garbage_on_the_socket() {
    let bench = Bench::new("", &[("a", ""), ("b", ""), ("bad", "")]);
    let others = Others::begin(["a", "b"].map(|port| bench.guest(port, PLAIN)));
    let bad = bench.guest("bad", LINUX);
    for _ in 0..100_000 {
        bad.transmit.kick.write(1).ok();
    }
    drop(bad);
    let socket = bench.directory.join("bad.sock");
    for seed in 0..200u64 {
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let bytes: Vec<u8> = (0..300)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            })
            .collect();
        // The switch may have closed the connection after the first bytes.
        let _ = stream.write_all(&bytes);
    }
    let mut long = UnixStream::connect(&socket).expect("it listens");
    let header = [1, 1, 9000].map(u32::to_le_bytes).concat();
    long.write_all(&header).expect("a header");
    until("a reason", || {
        let closed =
            bench.ask(|worker| worker.engine.bay_mut(2).and_then(|bay| bay.closed.clone()));
        closed.as_deref() == Some("a message of 9000 bytes")
    });
    // One that says nothing, and one that says half of a message.
    let silent = UnixStream::connect(&socket).expect("it listens");
    thread::sleep(Duration::from_millis(50));
    others.end();
    drop(silent);
    let mut half = UnixStream::connect(&socket).expect("it listens");
    half.write_all(&[1, 0, 0, 0, 1]).expect("half of a header");
    drop(half);
    let mut good = bench.guest("bad", PLAIN);
    let mut a = bench.guest("a", PLAIN);
    introduce(&mut [(&mut good, 3), (&mut a, 1)]);
}

#[test]
fn what_a_guest_changes_after_the_check_is_not_sent() {
    let keys = "macs = [\"02:00:00:00:00:03\"]";
    let bench = Bench::new("", &[("bad", keys), ("b", "")]);
    let [mut bad, mut b] = ["bad", "b"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut bad, 3), (&mut b, 2)]);
    for number in 0..300 {
        until("room", || bad.send(&frame(mac(2), mac(3), number, 60)));
    }
    until("all read", || {
        bench.ask(|worker| worker.engine.waiting(1).0 == [(0, 300 - 256)])
    });
    // Frames that wait in its ring get another source.
    for slot in 0..SIZE {
        let at = GUEST + bad.buffer(1, slot) + 12 + 6;
        bad.memory
            .write(bad.memory.guest(at, 6).expect("in memory"), &mac(9));
    }
    let frames = b.drain();
    assert_eq!(frames.len(), 300);
    assert!(frames.iter().all(|frame| frame[6..12] == mac(3)));
}
