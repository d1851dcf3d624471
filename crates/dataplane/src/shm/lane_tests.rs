//! All orders in which two processes may run the protocol, as loom makes them.

use std::sync::Arc;

use loom::{
    sync::{
        Condvar, Mutex,
        atomic::{AtomicU16, AtomicU64, Ordering, fence},
    },
    thread,
};

use super::*;

/// A word in shared memory; without its barrier if `FENCED` is false.
#[derive(Clone)]
struct Word<const FENCED: bool>(Arc<AtomicU16>);

impl<const FENCED: bool> Word<FENCED> {
    fn new() -> Self {
        Self(Arc::new(AtomicU16::new(0)))
    }
}

impl<const FENCED: bool> Shared for Word<FENCED> {
    fn load(&self) -> u16 {
        self.0.load(Ordering::Acquire)
    }
    fn store(&self, value: u16) {
        self.0.store(value, Ordering::Release);
    }
    fn swap(&self, value: u16) -> u16 {
        self.0.swap(value, Ordering::AcqRel)
    }
    fn fence(&self) {
        if FENCED {
            fence(Ordering::SeqCst);
        }
    }
}

/// The socket: a kick stays until it is read.
#[derive(Default)]
struct Bell {
    kicks: Mutex<u32>,
    rings: Condvar,
}

impl Bell {
    fn kick(&self) {
        *self.kicks.lock().expect("a lock") += 1;
        self.rings.notify_one();
    }

    fn sleep(&self) {
        let mut kicks = self.kicks.lock().expect("a lock");
        while *kicks == 0 {
            kicks = self.rings.wait(kicks).expect("a lock");
        }
        *kicks = 0;
    }
}

/// Sleeps until there is an entry, as a port does.
fn wait<W: Shared>(reader: &mut Reader<W>, bell: &Bell) {
    while reader.look().expect("an index") == 0 {
        if reader.arm().expect("an index") == 0 {
            bell.sleep();
        }
        reader.disarm();
    }
}

/// One direction with a single buffer, which the sender may fill again when it has come back.
struct Direction<const FENCED: bool> {
    offered: [Word<FENCED>; 2],
    returned: [Word<FENCED>; 2],
    /// Its bytes: of no order of their own, so that loom shows old ones wherever it can.
    buffer: AtomicU64,
    sender: Bell,
    receiver: Bell,
}

impl<const FENCED: bool> Direction<FENCED> {
    fn new() -> Arc<Self> {
        let two = || [Word::new(), Word::new()];
        Arc::new(Self {
            offered: two(),
            returned: two(),
            buffer: AtomicU64::new(0),
            sender: Bell::default(),
            receiver: Bell::default(),
        })
    }

    fn send(&self, frames: u64) {
        let [index, asked] = self.offered.clone();
        let mut offered = Writer::new(index, asked, 0);
        let [index, asks] = self.returned.clone();
        let mut returned = Reader::new(index, asks, 1, 0);
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
        let [index, asks] = self.offered.clone();
        let mut offered = Reader::new(index, asks, 1, 0);
        let [index, asked] = self.returned.clone();
        let mut returned = Writer::new(index, asked, 0);
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

fn check<const FENCED: bool>(frames: u64) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let direction = Direction::<FENCED>::new();
        let other = Arc::clone(&direction);
        let sender = thread::spawn(move || other.send(frames));
        direction.receive(frames);
        sender.join().expect("it ended");
    });
}

#[test]
fn no_frame_is_torn_lost_or_doubled_and_no_wake_up_is_missed() {
    check::<true>(3);
}

/// That the check above can fail.
#[test]
#[should_panic(expected = "deadlock")]
fn without_its_barriers_a_wake_up_is_missed() {
    check::<false>(2);
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
    fn swap(&self, value: u16) -> u16 {
        self.0.replace(value)
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
    reader.disarm();
    assert_eq!(reader.look().map_err(|_| ()), Ok(2));
}
