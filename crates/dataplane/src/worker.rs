//! A thread with its ports.
//!
//! It polls while there is work, and for [`Pace::spin_ns`] longer. Then it asks all senders for
//! kicks, looks once more, and sleeps until a kick, a frame of the kernel, or an order comes.

use std::{
    collections::{HashMap, VecDeque},
    os::{fd::OwnedFd, unix::net::UnixListener},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::sync_channel,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Context;
use rustix::{
    event::{
        EventfdFlags, Timespec,
        epoll::{self, EventData, EventFlags},
        eventfd,
    },
    io::{read, write},
};

use crate::{
    engine::Engine,
    handover,
    ledger::Ledger,
    port::Port,
    vhost::{Change, Owner, link::Connection, session::Session},
};

/// How the thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Nanoseconds without work after which it sleeps.
    pub spin_ns: u64,
    /// The CPU on which it stays.
    pub cpu: Option<u32>,
}

/// Between two looks at what is done now and then.
const HOUSEKEEPING_NS: u64 = 100_000_000;

/// Polls between two looks at the clock.
const POLLS_PER_LOOK: u32 = 16;

/// Between two looks for orders of a worker that rests.
const REST: Duration = Duration::from_micros(50);

/// Between two attempts of a session to change something.
const LATER: Duration = Duration::from_millis(1);

/// Why an order was not carried out.
const ENDED: &str = "the switch has ended";

/// In the data of an event: an order, and not a port.
const ORDER: u64 = u64::MAX;

/// As [`ORDER`]: another thread of the switch has something.
const BELL: u64 = u64::MAX - 1;

/// Orders that are obeyed between two polls.
const ORDERS_PER_POLL: usize = 16;

type Order = Box<dyn FnOnce(&mut Worker) + Send>;

struct Orders {
    /// `None` once the worker has ended.
    queue: Mutex<Option<VecDeque<Order>>>,
    waiting: AtomicBool,
    wake: OwnedFd,
}

impl Orders {
    /// Empties the descriptor: who writes to it has said before that an order waits.
    fn hush(&self) {
        // An error means that it is empty.
        let _ = read(&self.wake, &mut [0; 8]);
    }
}

/// Whoever waits for an answer hears that the worker has ended, for whatever reason.
struct Ending(Arc<Orders>);

impl Drop for Ending {
    fn drop(&mut self) {
        if let Ok(mut queue) = self.0.queue.lock() {
            *queue = None;
        }
    }
}

/// Gives orders to a worker.
#[derive(Clone)]
pub struct Handle(Arc<Orders>);

impl Handle {
    /// Does something in the worker's thread, between two polls, and returns its result.
    ///
    /// # Errors
    /// The worker has ended.
    pub fn call<T: Send + 'static>(
        &self,
        order: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Result<T, String> {
        let answer = Arc::new(Mutex::new(None));
        let place = Arc::clone(&answer);
        self.order(Box::new(move |worker| {
            let answer = order(worker);
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        }))?;
        let answer = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        answer.ok_or_else(|| ENDED.to_owned())
    }

    /// The same for an order without a result. A channel for each type of a result was an eighth of
    /// what is compiled of this crate.
    fn order(&self, order: Order) -> Result<(), String> {
        let (done, end) = sync_channel(1);
        let order: Order = Box::new(move |worker| {
            order(worker);
            // The caller waits for it.
            let _ = done.send(());
        });
        match self.0.queue.lock().map_err(|_| ENDED)?.as_mut() {
            Some(queue) => queue.push_back(order),
            None => return Err(ENDED.to_owned()),
        }
        self.0.waiting.store(true, Ordering::Release);
        write(&self.0.wake, &1u64.to_ne_bytes()).map_err(|error| error.to_string())?;
        end.recv().map_err(|_| ENDED.to_owned())
    }
}

impl Owner for Handle {
    /// While everything is handed over nothing changes: this waits until the switch goes on, or its
    /// process ends. It also waits until the port's frames have come home from other threads and
    /// are copied out.
    ///
    /// What the worker need not do for this is done here: memory that goes is unmapped when its
    /// last owner ends, which is this thread.
    fn change(&self, port: u16, mut change: Change) -> Result<u16, String> {
        loop {
            let answer = self.call(move |worker| {
                if worker.hands_over || !worker.engine.may_apply(port, &change) {
                    return Err(change);
                }
                worker.engine.set_now(worker.now_ns());
                let before = worker.engine.memory(port);
                let answer = worker.engine.apply(port, change);
                worker.watch();
                Ok((answer, before))
            })?;
            match answer {
                Ok((answer, _before)) => return answer,
                Err(later) => change = later,
            }
            thread::sleep(LATER);
        }
    }
}

/// A running worker.
pub struct Running {
    /// Gives it orders.
    pub handle: Handle,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Running {
    /// Whether the worker has ended.
    pub fn has_ended(&self) -> bool {
        let thread = self.thread.lock();
        let thread = thread.as_ref().ok().and_then(|thread| thread.as_ref());
        thread.is_none_or(JoinHandle::is_finished)
    }

    /// Ends the worker, and waits for it.
    pub fn end(&self) {
        // If it has ended already there is nothing to stop.
        let _ = self.handle.call(|worker| worker.ends = true);
        let thread = self.thread.lock().ok().and_then(|mut thread| thread.take());
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// What the worker has done with its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Times that it slept.
    pub sleeps: u64,
    /// Polls that moved nothing.
    pub idle_polls: u64,
    /// Polls that moved frames.
    pub busy_polls: u64,
}

/// The thread's own things.
pub struct Worker {
    /// The switch.
    pub engine: Engine,
    /// By port, the session that closes with it.
    pub sessions: HashMap<u16, Session>,
    /// What it has done with its time.
    pub effort: Effort,
    /// The ledger of the switch, until it is broken.
    pub ledger: Option<Arc<Ledger>>,
    /// It obeys orders and touches no ring.
    pub rests: bool,
    /// It rests because a successor gets everything.
    pub hands_over: bool,
    pace: Pace,
    orders: Arc<Orders>,
    epoll: OwnedFd,
    /// It watches the descriptors of all ports as they are.
    watches: bool,
    start: Instant,
    worked_ns: u64,
    kept_ns: u64,
    ends: bool,
}

impl Worker {
    /// Starts a thread for a switch, which counts time from `start`. It rests until its ports are
    /// complete.
    ///
    /// # Errors
    /// The kernel gives no thread, eventfd or epoll.
    pub fn start(engine: Engine, pace: Pace, start: Instant) -> anyhow::Result<Running> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let orders = Arc::new(Orders {
            queue: Mutex::new(Some(VecDeque::new())),
            waiting: AtomicBool::new(false),
            wake: wake.context("no eventfd")?,
        });
        let handle = Handle(Arc::clone(&orders));
        let mut worker = Self {
            engine,
            sessions: HashMap::new(),
            effort: Effort::default(),
            ledger: None,
            rests: true,
            hands_over: false,
            pace,
            orders,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).context("no epoll")?,
            watches: false,
            start,
            worked_ns: 0,
            kept_ns: 0,
            ends: false,
        };
        let number = worker.engine.mesh().map_or(0, |mesh| mesh.me);
        let name = match number {
            0 => "switch".to_owned(),
            _ => format!("switch-{number}"),
        };
        let thread = thread::Builder::new().name(name).spawn(move || {
            let _ending = Ending(Arc::clone(&worker.orders));
            worker.run();
        })?;
        let thread = Mutex::new(Some(thread));
        Ok(Running { handle, thread })
    }

    /// How it waits.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Nanoseconds since the switch started.
    pub fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn run(&mut self) {
        if let Some(cpu) = self.pace.cpu {
            pin(cpu);
        }
        let (mut polls, mut now_ns) = (0u32, 0);
        while !self.ends {
            if self.orders.waiting.load(Ordering::Acquire) {
                self.obey();
            }
            if self.rests {
                thread::sleep(REST);
                continue;
            }
            // A look at the clock takes as long as a frame. Enforcement measures round trips, and
            // pauses have times.
            if polls % POLLS_PER_LOOK == 0 || self.engine.measures() {
                now_ns = self.now_ns();
            }
            polls = polls.wrapping_add(1);
            if self.engine.poll(now_ns) > 0 {
                self.effort.busy_polls += 1;
                self.worked_ns = now_ns;
            } else {
                self.effort.idle_polls += 1;
            }
            if now_ns.saturating_sub(self.kept_ns) > HOUSEKEEPING_NS {
                self.kept_ns = now_ns;
                self.engine.housekeep();
                self.engine.look_at_interfaces();
                self.end_sessions();
                self.look_at_ledger();
            }
            if now_ns.saturating_sub(self.worked_ns) > self.pace.spin_ns {
                self.sleep();
                polls = 0;
            }
        }
        self.sessions.clear();
    }

    /// Obeys some orders; the others have their turn after the next poll.
    fn obey(&mut self) {
        self.orders.waiting.store(false, Ordering::Release);
        // What was waiting is done below, and a new order writes again.
        self.orders.hush();
        for _ in 0..ORDERS_PER_POLL {
            let next = self.orders.queue.lock().ok();
            let next = next.and_then(|mut queue| queue.as_mut()?.pop_front());
            let Some(order) = next else { return };
            order(self);
        }
        self.orders.waiting.store(true, Ordering::Release);
    }

    /// Says once that the ledger is of no use any more.
    fn look_at_ledger(&mut self) {
        if self.ledger.take_if(|ledger| ledger.is_broken()).is_some() {
            tracing::error!(
                "the file of `state` was cut, or its file system is full: guests lose frames when \
                 the switch ends; restart it with another `state`"
            );
        }
    }

    /// A port that was closed for what its guest did ends its connection.
    fn end_sessions(&mut self) {
        for (port, session) in &self.sessions {
            let bay = self.engine.bay_mut(*port);
            if bay.is_some_and(|bay| bay.ends) {
                session.disconnect();
            }
        }
    }

    fn sleep(&mut self) {
        if self.engine.arm() || self.orders.waiting.load(Ordering::Acquire) {
            self.engine.disarm();
            self.worked_ns = self.now_ns();
            return;
        }
        if !self.watches && !self.watch_now() {
            return self.engine.disarm();
        }
        self.effort.sleeps += 1;
        let mut events = Vec::with_capacity(64);
        let next_ns = self.engine.next_ns();
        let next_ns = next_ns.map_or(u64::MAX, |at_ns| at_ns.saturating_sub(self.now_ns()));
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: next_ns.min(HOUSEKEEPING_NS) as i64 + 1,
        };
        // An interruption is a wake-up.
        let _ = epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&timeout),
        );
        let mut woken = false;
        for event in &events {
            let data = event.data.u64();
            woken = true;
            if data == BELL {
                if let Some(mesh) = self.engine.mesh() {
                    mesh.bell().hush();
                }
            } else if data == ORDER {
                // It may come after its order was obeyed, and would wake the worker for ever.
                self.orders.hush();
            } else {
                self.engine
                    .kicked((data >> 16) as u16, (data & 0xffff) as usize);
            }
        }
        self.engine.disarm();
        if woken {
            self.worked_ns = self.now_ns();
        }
    }

    /// Its ports for a successor, with what is behind each by its name, and the connections of
    /// their frontends.
    pub fn bays(
        &self,
        mut kinds: HashMap<String, String>,
        mut connection: impl FnMut(u16) -> Option<Connection>,
    ) -> anyhow::Result<Vec<handover::Bay>> {
        let own = self.engine.bays();
        let own = own.filter(|(number, _)| self.engine.is_own(*number));
        let bays = own.map(|(number, bay)| {
            let listener = self.sessions.get(&number).and_then(Session::listener);
            let tap = match &bay.port {
                Port::Tap(tap) => Some(tap.descriptor().try_clone_to_owned()?.into()),
                Port::Vhost(_) | Port::Shm(_) | Port::Xdp(_) | Port::Remote(_) => None,
            };
            let cable = match &bay.port {
                Port::Shm(cable) => cable.state(self.now_ns()),
                Port::Vhost(_) | Port::Tap(_) | Port::Xdp(_) | Port::Remote(_) => None,
            };
            let xdp = match &bay.port {
                Port::Xdp(xdp) => xdp.estate()?,
                Port::Vhost(_) | Port::Tap(_) | Port::Shm(_) | Port::Remote(_) => None,
            };
            Ok(handover::Bay {
                name: bay.name.clone(),
                kind: kinds.remove(&bay.name).unwrap_or_default(),
                counters: bay.counters,
                closed: bay.closed.clone(),
                listener: listener.map(UnixListener::try_clone).transpose()?,
                connection: connection(number),
                tap,
                cable,
                xdp,
            })
        });
        bays.collect()
    }

    /// Watches the descriptors of all ports as they are when it sleeps next. While it polls it
    /// needs none, and the many messages of a connection cost it one look.
    pub fn watch(&mut self) {
        self.watches = false;
    }

    /// Whether it watches them; if not, it does not sleep any more.
    fn watch_now(&mut self) -> bool {
        self.watches = true;
        let Ok(fresh) = epoll::create(epoll::CreateFlags::CLOEXEC) else {
            tracing::error!("no epoll: the switch polls");
            self.pace.spin_ns = u64::MAX;
            return false;
        };
        let flags = EventFlags::IN;
        let add = |fd: &dyn std::os::fd::AsFd, data: u64| {
            let data = EventData::new_u64(data);
            if let Err(error) = epoll::add(&fresh, fd.as_fd(), data, flags) {
                tracing::warn!(%error, "a descriptor of a port cannot be watched");
            }
        };
        add(&self.orders.wake, ORDER);
        if let Some(mesh) = self.engine.mesh() {
            add(mesh.bell().descriptor(), BELL);
        }
        for (port, bay) in self.engine.bays() {
            let data = u64::from(port) << 16;
            match &bay.port {
                Port::Vhost(device) => {
                    for (index, kick) in device.kicks() {
                        add(&kick, data | index as u64);
                    }
                }
                Port::Tap(tap) => add(&tap.descriptor(), data),
                Port::Shm(cable) => {
                    if let Some(plug) = cable.plug() {
                        add(plug.stream(), data);
                    }
                }
                Port::Xdp(xdp) => {
                    for (queue, socket) in xdp.sockets() {
                        add(&socket, data | queue as u64);
                    }
                }
                Port::Remote(_) => {}
            }
        }
        self.epoll = fresh;
        true
    }
}

fn pin(cpu: u32) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu as usize);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!(cpu, %error, "the switch cannot stay on this CPU");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn a_wake_up_that_comes_after_its_order_was_obeyed_does_not_keep_it_awake() {
        let config = Config::parse("defaults", "").expect("a configuration");
        let engine = Engine::new(config.choice, [1, 3]);
        let worker = Worker::start(engine, config.pace, Instant::now()).expect("a thread");
        let handle = &worker.handle;
        let sleeps = || handle.call(|worker| worker.effort.sleeps).expect("it runs");
        handle.call(|worker| worker.rests = false).expect("it runs");
        let before = sleeps();
        thread::sleep(Duration::from_millis(20));
        // The caller of an order may be held up between its two signs.
        write(&handle.0.wake, &1u64.to_ne_bytes()).expect("there is room");
        thread::sleep(Duration::from_millis(300));
        let slept = sleeps() - before;
        assert!(slept < 50, "it slept {slept} times in 0.3 s");
        worker.end();
    }
}
