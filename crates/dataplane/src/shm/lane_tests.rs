//! All orders in which two processes may run the protocol, as loom makes them.

use std::sync::Arc;

use loom::{
    sync::{
        Notify,
        atomic::{AtomicU16, AtomicU64, Ordering, fence},
    },
    thread,
};

use super::*;

/// A word that two sides share, in the hands of one: with its barrier, or without.
#[derive(Clone)]
pub(crate) struct Word {
    word: Arc<AtomicU16>,
    has_barrier: bool,
}

impl Word {
    pub(crate) fn new(word: Arc<AtomicU16>, has_barrier: bool) -> Self {
        Self { word, has_barrier }
    }
}

impl Shared for Word {
    fn load(&self) -> u16 {
        self.word.load(Ordering::Acquire)
    }
    fn store(&self, value: u16) {
        self.word.store(value, Ordering::Release);
    }
    fn replace(&self, from: u16, to: u16) -> bool {
        let (done, seen) = (Ordering::AcqRel, Ordering::Acquire);
        self.word.compare_exchange(from, to, done, seen).is_ok()
    }
    fn fence(&self) {
        if self.has_barrier {
            fence(Ordering::SeqCst);
        }
    }
}

/// The socket: a kick stays until it is read, and who sleeps may wake without one.
struct Bell(Notify);

impl Default for Bell {
    fn default() -> Self {
        Self(Notify::new())
    }
}

impl Bell {
    fn kick(&self) {
        self.0.notify();
    }

    fn sleep(&self) {
        self.0.wait();
    }
}

/// Sleeps until there is an entry, as a port does.
fn wait(reader: &mut Reader<Word>, bell: &Bell) {
    while reader.look().expect("an index") == 0 {
        if reader.arm().expect("an index") == 0 {
            bell.sleep();
        }
        reader.disarm();
    }
}

/// Which sides have their barriers.
#[derive(Clone, Copy)]
struct Barriers {
    writers: bool,
    readers: bool,
}

/// One direction with a single buffer, which the sender may fill again when it has come back.
struct Direction {
    barriers: Barriers,
    offered: [Arc<AtomicU16>; 2],
    returned: [Arc<AtomicU16>; 2],
    /// Its bytes: of no order of their own, so that loom shows old ones wherever it can.
    buffer: AtomicU64,
    sender: Bell,
    receiver: Bell,
}

impl Direction {
    fn new(barriers: Barriers) -> Self {
        let two = || [0, 0].map(|value| Arc::new(AtomicU16::new(value)));
        Self {
            barriers,
            offered: two(),
            returned: two(),
            buffer: AtomicU64::new(0),
            sender: Bell::default(),
            receiver: Bell::default(),
        }
    }

    fn writer(&self, words: &[Arc<AtomicU16>; 2]) -> Writer<Word> {
        let [index, asked] = self.words(words, self.barriers.writers);
        Writer::new(index, asked, 0)
    }

    fn reader(&self, words: &[Arc<AtomicU16>; 2]) -> Reader<Word> {
        let [index, asks] = self.words(words, self.barriers.readers);
        Reader::new(index, asks, 1, 0)
    }

    fn words(&self, words: &[Arc<AtomicU16>; 2], has_barrier: bool) -> [Word; 2] {
        words.clone().map(|word| Word::new(word, has_barrier))
    }

    fn send(&self, frames: u64) {
        let mut offered = self.writer(&self.offered);
        let mut returned = self.reader(&self.returned);
        for frame in 1..=frames {
            if frame > 1 {
                wait(&mut returned, &self.sender);
                returned.advance();
            }
            self.buffer.store(frame, Ordering::Relaxed);
            offered.advance();
            if offered.show() {
                self.receiver.kick();
            }
        }
    }

    fn receive(&self, frames: u64) {
        let mut offered = self.reader(&self.offered);
        let mut returned = self.writer(&self.returned);
        for frame in 1..=frames {
            wait(&mut offered, &self.receiver);
            offered.advance();
            let found = self.buffer.load(Ordering::Relaxed);
            assert_eq!(found, frame, "each frame once and in order");
            returned.advance();
            if returned.show() {
                self.sender.kick();
            }
        }
    }
}

fn check(frames: u64, preemptions: usize, writers: bool, readers: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let direction = Direction::new(Barriers { writers, readers });
        let direction = Arc::new(direction);
        let other = Arc::clone(&direction);
        let sender = thread::spawn(move || other.send(frames));
        direction.receive(frames);
        sender.join().expect("it ended");
    });
}

#[test]
fn no_frame_is_torn_lost_or_doubled_and_no_wake_up_is_missed() {
    check(2, 3, true, true);
    check(3, 2, true, true);
}

/// That the check above can fail.
#[test]
#[should_panic(expected = "deadlock")]
fn without_the_barrier_of_who_kicks_a_wake_up_is_missed() {
    check(2, 3, false, true);
}

/// As the one above.
#[test]
#[should_panic(expected = "deadlock")]
fn without_the_barrier_of_who_sleeps_a_wake_up_is_missed() {
    check(2, 3, true, false);
}

#[derive(Clone, Default)]
struct Plain(std::rc::Rc<std::cell::Cell<u16>>);

impl Shared for Plain {
    fn load(&self) -> u16 {
        self.0.get()
    }
    fn store(&self, value: u16) {
        self.0.set(value);
    }
    fn replace(&self, from: u16, to: u16) -> bool {
        let is = self.0.get() == from;
        self.0.set(if is { to } else { self.0.get() });
        is
    }
    fn fence(&self) {}
}

#[test]
fn an_index_that_jumps_or_goes_back_is_refused() {
    let index = Plain::default();
    let mut reader = Reader::new(index.clone(), Plain::default(), 4, 0xfffe);
    for (to, expected) in [
        (0xfffe, Ok(0)),
        (0, Ok(2)),
        (0xffff, Err(())),
        (3, Err(())),
        (2, Ok(4)),
    ] {
        index.store(to);
        assert_eq!(reader.look().map_err(|_| ()), expected, "{to}");
    }
}

#[test]
fn who_asks_once_is_kicked_once() {
    let (index, asks) = (Plain::default(), Plain::default());
    let mut writer = Writer::new(index.clone(), asks.clone(), 0);
    let mut reader = Reader::new(index, asks, 4, 0);
    assert!(!writer.show(), "nothing is new");
    assert_eq!(reader.arm().map_err(|_| ()), Ok(0));
    writer.advance();
    assert!(writer.show());
    writer.advance();
    assert!(!writer.show());
    assert!(!reader.disarm(), "a kick comes");
    assert_eq!(reader.arm().map_err(|_| ()), Ok(2));
    assert!(reader.disarm(), "no kick comes");
    assert!(!reader.disarm());
    assert_eq!(reader.look().map_err(|_| ()), Ok(2));
}
