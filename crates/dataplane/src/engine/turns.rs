//! A turn of a port is bounded by its work: a guest with long frames, or with frames that take much
//! work, does not make others wait for longer than one with many short ones.

use super::{
    Engine,
    killed::{memfd, successor},
    resumed::{BUFFER, Guest, USED, WRITE, mac},
};
use crate::{
    count::Drop,
    offload::{Family, HEADER, Work},
};

/// Frames that wait in a ring.
const FRAMES: u32 = 32;
/// Turns of one frame, or of a few long ones.
const SHORT_TURN: usize = 5;
const LONG: usize = 60_000;

struct Bench {
    sender: Guest,
    receiver: Guest,
    engine: Engine,
}

impl Bench {
    /// Two guests that know each other. The receiver's ring has so many buffers of this length.
    fn new(buffers: u32, bytes: u32) -> Self {
        let [sender, receiver] = [0, 1].map(|number| Guest::new(number, [4096, 64]));
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

#[test]
fn segments_that_are_cut_have_a_turn_each() {
    let mut bench = Bench::new(4096, 4096);
    let work = Work {
        checksum: Some((34, 16)),
        segment: Some((Family::Tcp4, 1000, false)),
    };
    bench.send(work, 54 + 50_000);
    let turn = bench.longest_turn();
    assert!((1..=2).contains(&turn), "{turn}");
    assert_eq!(bench.came(), 50 * FRAMES as u16);
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
