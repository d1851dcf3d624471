//! Guests that go on while another port breaks the rules.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use super::{Guest, frame, introduce, mac, number, until};

/// Two guests that send to each other all the time.
pub struct Others {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Others {
    /// The first has address 1, the second 2.
    pub fn begin([mut a, mut b]: [Guest; 2]) -> Self {
        introduce(&mut [(&mut a, 1), (&mut b, 2)]);
        let ends = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&ends);
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
            }
            count
        });
        Self { ends, thread }
    }

    /// They end, and have gone on until now.
    pub fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        assert!(self.thread.join().expect("others go on") > 0);
    }
}
