//! All orders in which two threads may use a ring, as loom makes them.

use loom::{
    sync::{Notify, atomic::AtomicU16 as Atomic},
    thread,
};

use super::*;
use crate::shm::lane::tests::Word as Modelled;

/// A slot that fails if both sides have it at the same time, or one sees what is old.
struct Looked(loom::cell::UnsafeCell<u64>);

impl Slot<u64> for Looked {
    fn change<R>(&self, change: impl FnOnce(&mut u64) -> R) -> R {
        // SAFETY: loom panics before this if the other side may have the slot.
        self.0
            .with_mut(|contents| change(unsafe { &mut *contents }))
    }
}

struct Bells {
    producer: Notify,
    consumer: Notify,
}

fn check(slots: usize, frames: u64, preemptions: usize, has_barrier: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let places = (0..slots).map(|_| Looked(loom::cell::UnsafeCell::new(0)));
        let (mut producer, mut consumer) = of(places.collect(), || {
            Modelled::new(Arc::new(Atomic::new(0)), has_barrier)
        });
        let bells = Arc::new(Bells {
            producer: Notify::new(),
            consumer: Notify::new(),
        });
        let wakes = Arc::clone(&bells);
        let other = thread::spawn(move || {
            for frame in 1..=frames {
                while !producer.put(|slot: &mut u64| *slot = frame) {
                    if !producer.arm() {
                        wakes.producer.wait();
                    }
                    producer.disarm();
                }
                if producer.show() {
                    wakes.consumer.notify();
                }
            }
        });
        for frame in 1..=frames {
            let found = loop {
                if let Some(found) = consumer.take(|slot: &mut u64| std::mem::take(slot)) {
                    break found;
                }
                if !consumer.arm() {
                    bells.consumer.wait();
                }
                consumer.disarm();
            };
            assert_eq!(found, frame, "each once and in order");
            if consumer.show() {
                bells.producer.notify();
            }
        }
        other.join().expect("it ended");
    });
}

#[test]
fn nothing_is_torn_lost_or_doubled_and_no_wake_up_is_missed() {
    check(1, 2, 3, true);
    check(2, 3, 2, true);
}

/// That the check above can fail.
#[test]
#[should_panic(expected = "deadlock")]
fn without_barriers_a_wake_up_is_missed() {
    check(1, 2, 3, false);
}

#[test]
fn a_full_ring_takes_nothing_and_loses_nothing() {
    let (mut producer, mut consumer) = over::<u64, _>(4, Word::default);
    let (mut put, mut taken) = (0, 0);
    for round in 0..200_000u64 {
        for _ in 0..=round % 5 {
            if producer.put(|slot| *slot = put) {
                put += 1;
            } else {
                assert_eq!(put - taken, 4);
            }
        }
        producer.show();
        for _ in 0..=round % 3 {
            if let Some(found) = consumer.take(|slot: &mut u64| *slot) {
                assert_eq!(found, taken);
                taken += 1;
            }
        }
        consumer.show();
    }
    assert!(put > 70_000, "the indices have wrapped");
}
