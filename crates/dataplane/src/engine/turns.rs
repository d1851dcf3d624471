//! A turn of a port is bounded by its work: a guest with long frames, or with frames that take much
//! work, does not make others wait for longer than one with many short ones.

use std::sync::Arc;

use super::{
    Engine,
    killed::{memfd, successor},
    resumed::{BUFFER, Guest, RING, USED, WRITE, mac},
};
use crate::{
    count::Drop,
    memory::Memory,
    offload::{Family, HEADER, Work},
    vhost::Change,
};

/// Frames that wait in a ring.
const FRAMES: u32 = 32;
/// Turns of one frame, or of a few long ones.
const SHORT_TURN: usize = 5;
const LONG: usize = 60_000;
/// Bytes that are copied out in a turn, and the longest frame.
const COPIED: usize = (64 << 10) + LONG;

struct Bench {
    sender: Guest,
    receiver: Guest,
    engine: Engine,
}

impl Bench {
    /// Two guests that know each other. The receiver's ring has so many buffers of this length.
    fn new(buffers: u32, bytes: u32) -> Self {
        let [sender, receiver] = [0, 1].map(|number| Guest::new(number, [8192, 64]));
        let mut engine = successor(&memfd(0), 2);
        sender.connect(&mut engine);
        receiver.connect(&mut engine);
        sender.offer(0, 1, 4096, WRITE);
        receiver.send(mac(0), 1);
        engine.poll(1);
        receiver.offer(0, buffers, bytes, WRITE);
        Self {
            sender,
            receiver,
            engine,
        }
    }

    /// A frame of TCP in the sender's buffer, which all its descriptors have.
    fn send(&self, work: Work, bytes: usize) {
        let mut frame = work.header(54).to_vec();
        frame.extend([mac(1), mac(0)].concat());
        frame.extend([8, 0, 0x45, 0, 0, 0, 0, 1, 0, 0, 64, 6, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([4, 0, 5, 0, 0, 0, 0, 100, 0, 0, 0, 1, 5 << 4, 0x10, 1, 0]);
        frame.resize(HEADER + bytes, 0);
        let piece = self.sender.at(BUFFER, frame.len() as u32);
        self.sender.memory.write(piece, &frame);
        self.sender.offer(1, FRAMES, frame.len() as u32, 0);
    }

    /// Polls until nothing moves, and returns the frames of the longest turn.
    fn longest_turn(&mut self) -> usize {
        let turns = std::iter::from_fn(|| Some(self.engine.poll(2)));
        turns.take_while(|&moved| moved > 0).max().unwrap_or(0)
    }

    /// Frames that came, if each took a buffer.
    fn came(&self) -> u16 {
        let used = self.receiver.memory.word(self.receiver.at(USED + 2, 2));
        used.expect("aligned").load()
    }
}

#[test]
fn short_frames_fill_a_turn() {
    let mut bench = Bench::new(100, 4096);
    bench.send(Work::default(), 1514);
    assert_eq!(bench.longest_turn(), FRAMES as usize);
    assert_eq!(bench.came(), FRAMES as u16);
}

#[test]
fn long_frames_take_several_turns() {
    let mut bench = Bench::new(100, 100_000);
    bench.send(Work::default(), LONG);
    let turn = bench.longest_turn();
    assert!((1..=SHORT_TURN).contains(&turn), "{turn}");
    assert_eq!(bench.came(), FRAMES as u16);
}

fn segments(bytes: u16) -> Work {
    Work {
        checksum: Some((34, 16)),
        segment: Some((Family::Tcp4, bytes, false)),
    }
}

/// Each part counts 1 KB and its bytes twice, in the sender's turn and in the receiver's.
#[test]
fn a_segment_is_cut_in_several_turns() {
    for (bytes, parts, most) in [(8, 100, 220), (256, 230, 160), (1000, 50, 85)] {
        let mut bench = Bench::new(8192, 4096);
        let count = usize::from(bytes) * parts;
        bench.send(segments(bytes), 54 + count);
        let (mut came, mut longest) = (0, 0);
        while bench.engine.poll(2) > 0 {
            longest = longest.max(usize::from(bench.came() - came));
            came = bench.came();
        }
        assert!((50..=2 * most).contains(&longest), "{longest} parts");
        assert_eq!(usize::from(came), FRAMES as usize * parts);
        assert_eq!(bench.engine.held(), 0);
    }
}

/// Its ring is its own memory, and all that the switch has of a segment is one frame.
#[test]
fn segments_for_a_receiver_that_stands_stay_in_their_ring() {
    for work in [
        segments(256),
        Work {
            checksum: Some((34, 16)),
            segment: None,
        },
    ] {
        let mut bench = Bench::new(0, 4096);
        bench.send(work, 54 + 60_000);
        bench.longest_turn();
        assert_eq!(bench.engine.held(), FRAMES as usize);
        assert_eq!(bench.engine.kept_bytes(), 0);
    }
}

/// A receiver takes one part after the other, and takes nothing for long only once.
#[test]
fn a_receiver_that_takes_parts_does_not_stall() {
    let mut bench = Bench::new(0, 4096);
    bench.engine.choice.stall_limit_ns = Some(1_000);
    bench.send(segments(1000), 54 + 50_000);
    let mut now_ns = 2;
    for buffers in 1..=49 {
        bench.receiver.offer(0, buffers, 4096, WRITE);
        now_ns += 900;
        while bench.engine.poll(now_ns) > 0 {}
        assert_eq!(bench.came(), buffers as u16);
    }
    let stalled = |bench: &mut Bench| {
        let bay = bench.engine.bay_mut(1).expect("a port");
        bay.counters.drops[Drop::Stalled as usize]
    };
    assert_eq!(stalled(&mut bench), 0);
    bench.engine.poll(now_ns + 1_001);
    assert_eq!(stalled(&mut bench), u64::from(FRAMES));
    assert_eq!(bench.engine.held(), 0);
}

/// A frame is given up after 1024 buffers.
#[test]
fn frames_for_short_pieces_have_a_turn_each() {
    let mut bench = Bench::new(4096, 1);
    bench.send(Work::default(), 1514);
    let turn = bench.longest_turn();
    assert!((1..=2).contains(&turn), "{turn}");
    let bay = bench.engine.bay_mut(1).expect("a port");
    assert_eq!(
        bay.counters.drops[Drop::TooLong as usize],
        u64::from(FRAMES)
    );
}

#[test]
fn what_waited_for_room_comes_in_several_turns() {
    let mut bench = Bench::new(0, 1);
    bench.send(Work::default(), LONG);
    bench.longest_turn();
    assert_eq!(bench.came(), 0);
    bench.receiver.offer(0, 100, 100_000, WRITE);
    let turn = bench.longest_turn();
    assert!((1..=SHORT_TURN).contains(&turn), "{turn}");
    assert_eq!(bench.came(), FRAMES as u16);
    assert_eq!(bench.engine.held(), 0);
}

/// Others have their turns meanwhile, and the receiver gets what waits.
#[test]
fn a_ring_that_stops_is_copied_out_in_several_turns() {
    let mut bench = Bench::new(0, 1);
    bench.send(Work::default(), LONG);
    bench.longest_turn();
    let (stop, mut kept, mut polls) = (Change::Stop(1), 0, 0);
    while !bench.engine.may_apply(0, &stop) {
        let now = bench.engine.kept_bytes();
        // A turn, and as much when it is asked for.
        assert!(now <= kept + 2 * COPIED, "{kept} and then {now} bytes");
        kept = now;
        polls += 1;
        if polls == 3 {
            bench.receiver.offer(0, 4, 100_000, WRITE);
        }
        assert!(bench.engine.poll(3) > 0);
    }
    let least = FRAMES as usize * LONG / (2 * COPIED) - 2;
    assert!(polls >= least, "{polls} polls");
    assert_eq!(bench.came(), 4);
    let base = bench.engine.apply(0, stop).expect("it stops");
    assert_eq!(base, FRAMES as u16);
    bench.receiver.offer(0, 100, 100_000, WRITE);
    bench.longest_turn();
    assert_eq!(bench.came(), FRAMES as u16);
    assert_eq!(bench.engine.held(), 0);
}

#[test]
fn what_a_closed_port_has_sent_stays_in_its_memory() {
    let mut bench = Bench::new(0, 1);
    bench.send(Work::default(), LONG);
    bench.longest_turn();
    bench.sender.offer(1, 1000, 100, 0);
    bench.engine.poll(3);
    let closed = bench.engine.bay_mut(0).and_then(|bay| bay.closed.clone());
    assert!(closed.is_some_and(|why| why.contains("jumps")));
    assert_eq!(bench.engine.kept_bytes(), 0);
    bench.receiver.offer(0, 4, 100_000, WRITE);
    bench.longest_turn();
    assert_eq!(bench.came(), 4);
    let gone = Change::Gone(None);
    assert!(!bench.engine.may_apply(0, &gone), "it is much");
    while !bench.engine.may_apply(0, &gone) {
        bench.engine.poll(4);
    }
    bench.engine.apply(0, gone).expect("it is gone");
    assert_eq!(bench.engine.copies().len(), FRAMES as usize - 4);
    let is_mapped = |memory: &Arc<Memory>| !memory.regions().is_empty();
    assert!(!is_mapped(&bench.engine.memories[0]));
    bench.receiver.offer(0, 100, 100_000, WRITE);
    bench.longest_turn();
    assert_eq!(bench.came(), FRAMES as u16);
}

/// The number of the last frame that passed is free, and is no frame of the port any more.
#[test]
fn what_has_passed_is_not_copied_out() {
    let mut bench = Bench::new(100, 100_000);
    bench.send(Work::default(), LONG);
    bench.longest_turn();
    assert_eq!(bench.came(), FRAMES as u16);
    bench.engine.apply(0, Change::Stop(1)).expect("it stops");
    let own = bench.engine.frames.iter().map(|frame| frame.own.len());
    assert_eq!(own.sum::<usize>(), 0);
}

/// A guest that keeps one of its transmit rings full does not starve the other one.
#[test]
fn pairs_of_a_guest_send_by_turns() {
    let mut bench = Bench::new(8000, 4096);
    bench.sender.add_pair(&mut bench.engine);
    bench.send(Work::default(), 60);
    bench.sender.offer(1, 64, 60 + HEADER as u32, 0);
    bench.sender.offer(3, 64, 60 + HEADER as u32, 0);
    for _ in 0..2 {
        bench.engine.poll(2);
    }
    let sender = &bench.sender;
    let sent = |ring: u64| {
        let used = sender.memory.word(sender.at(ring * RING + USED + 2, 2));
        used.expect("aligned").load()
    };
    assert_eq!([sent(1), sent(3)], [32, 32]);
}

#[test]
fn a_successor_gets_the_parts_that_were_not_delivered() {
    let mut bench = Bench::new(20, 4096);
    bench.send(segments(1000), 54 + 50_000);
    bench.longest_turn();
    assert_eq!(bench.came(), 20);
    assert!(bench.engine.copies().is_empty(), "they are in their ring");
    bench
        .engine
        .apply(0, Change::Stop(1))
        .expect("the ring stops");
    let copies = bench.engine.copies();
    let lengths: Vec<_> = copies.iter().map(|(copy, _)| copy.bytes).collect();
    let expected = [vec![1054; 30], vec![50_054; FRAMES as usize - 1]].concat();
    assert_eq!(lengths, expected);
    let mut next = successor(&memfd(0), 2);
    let receiver = Guest::new(1, [8192, 64]);
    receiver.connect(&mut next);
    receiver.offer(0, 8000, 4096, WRITE);
    for (copy, bytes) in &copies {
        assert_eq!(copy.work.is_none(), copy.bytes == 1054);
        next.take_copy(copy, bytes);
    }
    while next.poll(5) > 0 {}
    let used = receiver.memory.word(receiver.at(USED + 2, 2));
    let parts = 30 + 50 * (FRAMES as u16 - 1);
    assert_eq!(used.expect("aligned").load(), parts);
}
