//! Guests that go on while another port breaks the rules.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

use super::{Guest, frame, introduce, mac, number, until};

/// Two guests that send to each other all the time.
pub struct Others {
    ends: Arc<AtomicBool>,
    /// Frames that have come.
    count: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Others {
    /// The first has address 1, the second 2.
    pub fn begin([mut a, mut b]: [Guest; 2]) -> Self {
        introduce(&mut [(&mut a, 1), (&mut b, 2)]);
        let (ends, count) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (asked, counted) = (Arc::clone(&ends), Arc::clone(&count));
        let thread = thread::spawn(move || {
            let mut count = 0;
            while !asked.load(Ordering::Relaxed) {
                until("room", || a.send(&frame(mac(2), mac(1), count, 100)));
                // A frame to an unknown address is flooded, to the hostile port as well.
                if count % 16 == 0 {
                    until("room", || a.send(&frame(mac(9), mac(1), count, 100)));
                }
                let mut bytes = b.expect();
                while bytes[..6] != mac(2) {
                    bytes = b.expect();
                }
                assert_eq!(number(&bytes), (1, count));
                while a.receive().is_some() {}
                count += 1;
                counted.store(count, Ordering::Relaxed);
            }
        });
        Self {
            ends,
            count,
            thread,
        }
    }

    /// They go on after all that was done before, and end.
    pub fn end(self) {
        let before = self.count.load(Ordering::Relaxed);
        until("others to go on", || {
            self.count.load(Ordering::Relaxed) > before || self.thread.is_finished()
        });
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().expect("others go on");
    }
}
