//! What threads tell each other of addresses.
//!
//! A thread that learns an address tells the others before it shows anybody the frame by which it
//! learned it, so an answer finds the address known. Of an address only the newest counts, so what
//! waits is bounded by the addresses that there are.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// An address by its key: its port, and when it was seen there, ns.
pub type Seen = (u64, u16, u64);

#[derive(Debug, Default)]
struct News {
    /// Ports whose addresses are forgotten, before `seen`.
    forgotten: Vec<u16>,
    seen: HashMap<u64, (u16, u64)>,
}

/// What a thread is told.
#[derive(Debug, Default)]
pub struct Inbox {
    has_news: AtomicBool,
    news: Mutex<News>,
}

impl Inbox {
    fn change(&self, change: impl FnOnce(&mut News)) {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut news);
        self.has_news.store(true, Ordering::Release);
    }

    /// Addresses were seen.
    pub fn tell(&self, seen: impl Iterator<Item = Seen>) {
        self.change(|news| {
            for (key, port, at_ns) in seen {
                let known = news.seen.get(&key);
                if known.is_none_or(|&(_, known_ns)| known_ns <= at_ns) {
                    news.seen.insert(key, (port, at_ns));
                }
            }
        });
    }

    /// The addresses of a port are forgotten.
    pub fn forget(&self, port: u16) {
        self.change(|news| {
            news.seen.retain(|_, seen| seen.0 != port);
            news.forgotten.push(port);
        });
    }

    /// Takes what it was told: ports that are forgotten, and then addresses.
    #[inline]
    pub fn read(&self) -> Option<(Vec<u16>, Vec<Seen>)> {
        if !self.has_news.load(Ordering::Acquire) {
            return None;
        }
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_news.store(false, Ordering::Release);
        let News { forgotten, seen } = std::mem::take(&mut *news);
        let seen = seen.into_iter();
        let seen = seen.map(|(key, (port, at_ns))| (key, port, at_ns));
        Some((forgotten, seen.collect()))
    }
}
