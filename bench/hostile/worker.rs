//! Threads that end when their owner does.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

/// Whether a thread is to go on.
#[derive(Clone, Debug)]
pub struct Ending(Arc<AtomicBool>);

impl Ending {
    pub fn is_near(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A thread; ended and waited for when dropped.
#[derive(Debug)]
pub struct Worker {
    ending: Ending,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// `work` looks often whether it is to end.
    pub fn start(work: impl FnOnce(&Ending) + Send + 'static) -> Self {
        let ending = Ending(Arc::default());
        let its = ending.clone();
        let thread = thread::spawn(move || work(&its));
        Self {
            ending,
            thread: Some(thread),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.ending.0.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // One that panicked has said why.
            let _ = thread.join();
        }
    }
}
