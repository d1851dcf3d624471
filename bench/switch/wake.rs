//! How long a frame takes that wakes the switch, and how long an eventfd takes to wake a thread.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use rustix::{
    event::{EventfdFlags, epoll, eventfd},
    io::{read, write},
};
use sluicegate_dataplane::offload::HEADER;

use crate::{
    measure::{Guest, PATIENCE, Span},
    stream::Stream,
};

/// In which nothing happens before each measurement.
const PAUSE: Duration = Duration::from_millis(2);

/// Single frames of 64 bytes, each after a time in which the switch has nothing to do and so may
/// sleep: the times that they take, in ns, ascending.
pub fn of_guests(guests: &mut [Guest], span: Span) -> Result<Vec<u64>> {
    let clock = span.clock;
    let last = guests.len() - 1;
    let mut stream = Stream::numbered(0, last as u8, 60)?;
    let (senders, receiver) = guests.split_at_mut(last);
    let (sender, receiver) = (&mut senders[0], &mut receiver[0]);
    sender.load([0; HEADER], stream.frame())?;
    let begin = Instant::now();
    let mut times = Vec::new();
    while begin.elapsed() < span.lasts || times.len() < 100 {
        let pause = Instant::now();
        while pause.elapsed() < PAUSE {
            receiver.receive(|_| {});
        }
        let sent_ns = clock.now_ns();
        stream.now_ns = sent_ns;
        ensure!(sender.send(1, &mut stream) == 1, "no room for a frame");
        let sent = Instant::now();
        while receiver.receive(|_| {}) == 0 {
            ensure!(sent.elapsed() < PATIENCE, "a frame does not arrive");
        }
        times.push(clock.now_ns() - sent_ns);
    }
    times.sort_unstable();
    Ok(times)
}

/// The same without a switch: a thread on a CPU waits for an eventfd with epoll, as the switch
/// does, and says when it runs.
pub fn bare(cpu: usize, span: Span) -> Result<Vec<u64>> {
    let wakes = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let woken = Arc::new(AtomicU64::new(0));
    let (waits, says) = (wakes.try_clone()?, Arc::clone(&woken));
    let sleeper = thread::spawn(move || -> Result<()> {
        crate::stay(cpu)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&epoll, &waits, data, epoll::EventFlags::IN)?;
        let mut events = Vec::with_capacity(1);
        loop {
            epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None)?;
            events.clear();
            let mut count = [0; 8];
            read(&waits, &mut count)?;
            says.fetch_add(1, Ordering::Release);
            if u64::from_ne_bytes(count) > 1 {
                return Ok(());
            }
        }
    });
    let clock = span.clock;
    let begin = Instant::now();
    let mut times = Vec::new();
    while begin.elapsed() < span.lasts || times.len() < 100 {
        let pause = Instant::now();
        while pause.elapsed() < PAUSE {
            std::hint::spin_loop();
        }
        let before = woken.load(Ordering::Acquire);
        let sent_ns = clock.now_ns();
        write(&wakes, &1u64.to_ne_bytes())?;
        while woken.load(Ordering::Acquire) == before {
            ensure!(!sleeper.is_finished(), "the thread has ended");
        }
        times.push(clock.now_ns() - sent_ns);
    }
    // More than one ends it.
    write(&wakes, &2u64.to_ne_bytes())?;
    match sleeper.join() {
        Ok(ended) => ended?,
        Err(_) => anyhow::bail!("the thread panicked"),
    }
    times.sort_unstable();
    Ok(times)
}
