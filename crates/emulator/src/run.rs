//! The thread that moves frames between cables and a network, by the clock of the machine.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use sluicegate_dataplane::{
    offload::{Takes, Work},
    shm::end::{End, Ended},
};
use sluicegate_fabric::graph::HostId;

use crate::{
    ethernet::{Emulated, Ethernet},
    network::{Counts, Network, Offer, Plan},
};

/// Frames that a host may send before others have their turn.
const BATCH: usize = 32;

/// The longest sleep.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// An event that is due so soon is waited for without sleeping: to fall asleep and to wake up takes
/// about as long.
const SPIN: Duration = Duration::from_micros(10);

/// How long to sleep where both the adapter and the cable of a host are full.
const BOTH_FULL: Duration = Duration::from_micros(100);

/// How long a switch may take to listen at a cable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_INTERVAL: Duration = Duration::from_millis(20);

/// The cable of a host.
#[derive(Clone, Debug)]
pub struct Uplink {
    /// Where the host's switch listens.
    pub path: PathBuf,
    /// Frames that it is sent before all others, so that it learns what is behind it.
    pub announcements: Vec<Vec<u8>>,
}

/// A running network. Dropping it ends its thread.
#[derive(Debug)]
pub struct Emulation {
    asks: Option<Sender<Sender<Counts>>>,
    wake: UnixStream,
    thread: Mutex<Option<JoinHandle<Result<()>>>>,
}

impl Emulation {
    /// Connects to the switches of all hosts, in the order of hosts, and starts. `prepare` is
    /// called on the thread of the network, for its priority; if it fails, [`Emulation::counts`]
    /// says so.
    ///
    /// # Errors
    /// [`Network::plain`] or [`Network::converged`] refuses; a switch does not listen.
    pub fn start(
        plan: Plan,
        ethernet: Ethernet,
        uplinks: &[Uplink],
        prepare: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        match ethernet {
            Ethernet::Plain(queues) => Self::run(Network::plain(plan, &queues)?, uplinks, prepare),
            Ethernet::Converged(config) => {
                Self::run(Network::converged(plan, config)?, uplinks, prepare)
            }
        }
    }

    fn run<F: Emulated + 'static>(
        network: Network<F>,
        uplinks: &[Uplink],
        prepare: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let ports = uplinks.iter().map(Port::connect);
        let ports = ports.collect::<Result<Vec<_>>>()?;
        let (asks, asked) = mpsc::channel();
        let (wake, woken) = UnixStream::pair().context("a pair of sockets")?;
        woken.set_nonblocking(true)?;
        wake.set_nonblocking(true)?;
        let worker = Loop {
            network,
            ports,
            asked,
            woken,
            start: Instant::now(),
        };
        let thread = thread::Builder::new().name("fabric".to_owned());
        let thread = thread.spawn(move || prepare().and_then(|()| worker.run()))?;
        Ok(Self {
            asks: Some(asks),
            wake,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// All counters now.
    ///
    /// # Errors
    /// The network has ended, and why.
    pub fn counts(&self) -> Result<Counts> {
        let (answer, answered) = mpsc::channel();
        let asked = self
            .asks
            .as_ref()
            .is_some_and(|asks| asks.send(answer).is_ok());
        self.kick();
        match asked.then(|| answered.recv()) {
            Some(Ok(counts)) => Ok(counts),
            // It does not ask any more.
            _ => Err(self.join().err().unwrap_or(anyhow!("the fabric has ended"))),
        }
    }

    fn kick(&self) {
        // A full socket wakes it, too.
        let _ = (&self.wake).write(&[0]);
    }

    fn join(&self) -> Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        match thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(ended)) => ended,
            Some(Err(_)) => bail!("the thread of the fabric panicked"),
        }
    }
}

impl std::ops::Drop for Emulation {
    fn drop(&mut self) {
        self.asks = None;
        self.kick();
        let _ = self.join();
    }
}

/// A host's cable, and the frame that was taken from it and has found no room.
struct Port {
    end: End,
    taken: Vec<u8>,
    has_taken: bool,
}

impl Port {
    fn connect(uplink: &Uplink) -> Result<Self> {
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let mut end = loop {
            match End::connect(&uplink.path, Takes::default()) {
                Ok(end) => break end,
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => thread::sleep(CONNECT_INTERVAL),
            }
        };
        for frame in &uplink.announcements {
            while !end.send(frame, Work::default())? {
                if Instant::now() > deadline {
                    bail!("{}: the switch takes no frame", uplink.path.display());
                }
                end.wait(CONNECT_INTERVAL)?;
            }
        }
        Ok(Self {
            end,
            taken: Vec::new(),
            has_taken: false,
        })
    }

    /// Moves frames both ways. True if there may be more to do at once.
    fn serve<F: Emulated>(
        &mut self,
        host: HostId,
        network: &mut Network<F>,
    ) -> Result<bool, Ended> {
        while let Some(frame) = network.ready(host) {
            if !self.end.send(frame, Work::default())? {
                break;
            }
            network.given(host);
        }
        for _ in 0..BATCH {
            if !self.has_taken && self.end.receive(&mut self.taken)?.is_none() {
                return Ok(false);
            }
            self.has_taken = network.offer(host, &self.taken) == Offer::NoRoom;
            if self.has_taken {
                return Ok(false); // an event makes room
            }
        }
        Ok(true)
    }
}

/// What the thread has.
struct Loop<F> {
    network: Network<F>,
    ports: Vec<Port>,
    asked: Receiver<Sender<Counts>>,
    woken: UnixStream,
    start: Instant,
}

impl<F: Emulated> Loop<F> {
    fn run(mut self) -> Result<()> {
        // However much there is to do, its owner is heard.
        while self.answer() {
            let now_ps = self.now_ps();
            self.network.advance(now_ps);
            let mut is_busy = false;
            for (host, port) in HostId::enumerate(&mut self.ports) {
                let served = port.serve(host, &mut self.network);
                is_busy |= served.with_context(|| format!("the cable of host {}", host.0))?;
            }
            if !is_busy {
                self.sleep()?;
            }
        }
        Ok(())
    }

    fn now_ps(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos() * 1000).unwrap_or(u64::MAX)
    }

    /// Answers those who asked. False: nobody will.
    fn answer(&mut self) -> bool {
        loop {
            match self.asked.try_recv() {
                // Whoever asked may have gone.
                Ok(answer) => drop(answer.send(self.network.counts())),
                Err(mpsc::TryRecvError::Empty) => return true,
                Err(mpsc::TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Until the next event, or until a cable or the owner has something to say.
    fn sleep(&mut self) -> Result<()> {
        let until_ps = self.network.next_ps().unwrap_or(u64::MAX);
        let left = Duration::from_nanos(until_ps.saturating_sub(self.now_ps()) / 1000);
        if left < SPIN {
            std::hint::spin_loop();
            return Ok(());
        }
        let mut most = left.min(SLEEP_MAX);
        for (host, port) in HostId::enumerate(&mut self.ports) {
            if port.end.arm()? {
                // Where a frame waits for room in its adapter, those behind it are no work. What
                // waits for room in the cable may have it.
                most = most.min(match (port.has_taken, self.network.ready(host)) {
                    (true, None) => SLEEP_MAX,
                    (true, Some(_)) => BOTH_FULL,
                    (false, _) => Duration::ZERO,
                });
            }
        }
        let streams = self.ports.iter().map(|port| port.end.stream());
        let streams = streams.chain([&self.woken]);
        let mut ready: Vec<_> = streams
            .map(|stream| PollFd::new(stream, PollFlags::IN))
            .collect();
        let most = Timespec {
            tv_sec: most.as_secs() as i64,
            tv_nsec: most.subsec_nanos().into(),
        };
        match poll(&mut ready, Some(&most)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("poll"),
        }
        let readable: Vec<bool> = ready.iter().map(|it| !it.revents().is_empty()).collect();
        for (port, &is_readable) in self.ports.iter_mut().zip(&readable) {
            port.end.disarm(is_readable)?;
        }
        if readable.last() == Some(&true) {
            let _ = self.woken.read(&mut [0; 64]);
        }
        Ok(())
    }
}
