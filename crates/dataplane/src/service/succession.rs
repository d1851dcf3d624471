//! One process after another: a switch takes over from the one that runs, and is replaced in turn.

use std::{
    collections::HashMap,
    fs::{self, File, Metadata},
    io,
    os::{
        fd::AsRawFd,
        unix::{
            fs::MetadataExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::Path,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use serde::Serialize;

use super::{Service, State, failed, places::in_words};
use crate::{
    adapter,
    config::Config,
    control,
    handover::{self, Estate},
    ledger::Ledger,
    upgrade::{Desk, Refused, Remedy},
    vhost::link::{Connection, Link, STOPS_WITHIN},
};

/// All connections of a predecessor have heard again what was said on them within this time, or
/// their guests' frames wait.
const BEGIN_WITHIN: Duration = Duration::from_millis(25);

/// Why a descriptor was not copied.
const DESCRIPTORS: &str = "a descriptor was not copied: raise `ulimit -n`";

/// The process that this one has taken over from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Predecessor {
    /// Its number, if it has said so.
    pub pid: Option<u32>,
    /// For how long no frame moved, ns.
    pub outage_ns: u64,
}

/// A process that wants to take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its number, if it has said so.
    pub pid: Option<u32>,
    /// Whether it answers before anything is stopped for it.
    pub prepares: bool,
}

/// Which process may take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heir {
    /// Whoever may open the control socket.
    Anybody,
    /// The successor that this process has started.
    Only(u32),
    /// None.
    Nobody,
}

impl Service {
    /// Goes on with what another process had, which then ends; its control socket, and for how long
    /// no frame moved, ns. After an error this process must end without touching anything: the
    /// other one goes on.
    ///
    /// # Errors
    /// As [`Service::start`], or the other process does not hand over: a [`Refused`], where that is
    /// so.
    pub fn take_over(config: Config) -> anyhow::Result<(Self, UnixListener, u64)> {
        let stream = control::ask_for_everything(&config.socket)?;
        let taken = Self::take(config, &stream);
        taken.inspect_err(|error| handover::give_up(&stream, error))
    }

    fn take(config: Config, stream: &UnixStream) -> anyhow::Result<(Self, UnixListener, u64)> {
        let mut estate = Estate::receive(stream)?;
        is_state(&estate.ledger, &config.state)?;
        let (running, mut state) = State::begin(&config, Ledger::over(estate.ledger)?)?;
        let mut links = Vec::new();
        for port in &config.ports {
            let mut bays = estate.bays.iter();
            let at = bays.position(|bay| bay.name == port.name);
            let old = at.map(|at| estate.bays.swap_remove(at));
            links.extend(state.add(port, old)?);
        }
        let until = Instant::now() + BEGIN_WITHIN;
        links.iter().for_each(|link| link.wait_until_begun(until));
        adapter::apply(&config.adapters)?;
        handover::ready(stream)?;
        let copies = Arc::new(std::mem::take(&mut estate.copies));
        state.each(move |worker| {
            worker.engine.remember();
            for (copy, bytes) in copies.iter() {
                if worker.engine.is_own(copy.exit) {
                    worker.engine.take_copy(copy, bytes);
                }
            }
        })?;
        state.each(|worker| worker.rests = false)?;
        let outage_ns = handover::clock_ns().saturating_sub(estate.stopped_ns);
        links.iter().for_each(|link| link.own());
        state.keep_interfaces(&config.ports);
        state.config = config;
        let predecessor = Predecessor {
            pid: Some(estate.pid).filter(|&pid| pid > 0),
            outage_ns,
        };
        let service = Self::new(running, state, Some(predecessor));
        Ok((service, estate.control, outage_ns))
    }

    /// Hands everything to a process that takes over, and is replaced by it.
    ///
    /// # Errors
    /// The other process failed, or may not take over; this one goes on.
    pub fn hand_over(
        &self,
        who: Claim,
        stream: &UnixStream,
        control: &UnixListener,
    ) -> anyhow::Result<()> {
        // The refusal of a stranger is of no interest to an upgrade that is under way.
        let inherits = |state: &State| {
            let pid = state.may_inherit(who.pid);
            pid.inspect_err(|error| handover::refuse(stream, error))
        };
        inherits(&self.state())?;
        let prepared = match who.prepares {
            true => handover::prepare(stream),
            false => Ok(()),
        };
        // An upgrade may have begun meanwhile, with another process.
        let state = self.state();
        let pid = inherits(&state)?;
        let done = prepared.and_then(|()| self.hand_over_to(&state, pid, stream, control));
        // Under the lock: if all was stopped for a process that has ended, its upgrade waits for
        // the lock, and then asks for the reason.
        self.keep_refusal(&done);
        drop(state);
        done
    }

    fn keep_refusal(&self, done: &anyhow::Result<()>) {
        let refused = done.as_ref().err().map(Refused::of);
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = refused;
        self.upgrades.wake();
    }

    fn hand_over_to(
        &self,
        state: &State,
        pid: u32,
        stream: &UnixStream,
        control: &UnixListener,
    ) -> anyhow::Result<()> {
        let refuse = |error: anyhow::Error| {
            handover::refuse(stream, &error);
            error
        };
        // Nothing has stopped yet if these fail.
        let copied = state.descriptors(control).map_err(refuse)?;
        let links = state.links().map_err(refuse)?;
        self.attempts.fetch_add(1, Ordering::Relaxed);
        let done = stop(&links)
            .and_then(|connections| state.estate(copied, connections))
            .map_err(refuse)
            .and_then(|estate| {
                estate.send(stream)?;
                handover::let_go(stream, estate.patience())
            });
        if done.is_ok() {
            // It is set once: a switch that was replaced answers no question any more.
            let _ = self.successor.set(pid);
            return Ok(());
        }
        // If a worker has ended, the sessions hear that.
        let _ = state.each(|worker| (worker.rests, worker.hands_over) = (false, false));
        links.iter().for_each(|(_, link)| link.go_on());
        done
    }

    /// Whether another process has taken over. This one must end, and leave everything as it is.
    pub fn is_replaced(&self) -> bool {
        self.successor.get().is_some()
    }

    /// The process that has taken over; 0 where it has no number here.
    pub fn successor(&self) -> Option<u32> {
        self.successor.get().copied()
    }

    /// The process that this one has taken over from.
    pub fn predecessor(&self) -> Option<Predecessor> {
        self.predecessor
    }

    /// How often everything was stopped for another process.
    pub fn attempts(&self) -> u32 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// Questions for an upgrade.
    pub fn upgrades(&self) -> &Desk {
        &self.upgrades
    }

    /// Why the last process that wanted to take over got nothing; once.
    pub fn refusal(&self) -> Option<Refused> {
        let mut refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        refusal.take()
    }

    /// What helps the last process that wanted to take over and got nothing.
    pub fn remedy(&self) -> Option<Remedy> {
        let refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        refusal.as_ref().map(|it| it.remedy)
    }

    /// From now on only this process may take over. One that does so already comes to its end
    /// first.
    pub fn set_heir(&self, heir: Heir) {
        self.state().heir = heir;
    }

    /// Starts the only process that may take over from now on: its number, and what `start` has of
    /// it.
    ///
    /// # Errors
    /// Those of `start`.
    pub fn start_heir<T>(&self, start: impl FnOnce() -> io::Result<(u32, T)>) -> anyhow::Result<T> {
        let mut state = self.state();
        let (pid, heir) = start()?;
        self.refusal();
        state.heir = Heir::Only(pid);
        Ok(heir)
    }
}

impl State {
    /// The number of a process that takes over; 0 where it is not known.
    ///
    /// # Errors
    /// Another process is to take over.
    fn may_inherit(&self, pid: Option<u32>) -> anyhow::Result<u32> {
        match self.heir {
            Heir::Anybody => Ok(pid.unwrap_or(0)),
            Heir::Only(heir) if pid.is_none_or(|pid| pid == heir) => Ok(heir),
            Heir::Only(heir) => bail!("an upgrade to process {heir} is under way"),
            Heir::Nobody => bail!("an upgrade is under way"),
        }
    }

    /// The control socket and the ledger, copied.
    fn descriptors(&self, control: &UnixListener) -> anyhow::Result<(UnixListener, File)> {
        let control = control.try_clone().context(DESCRIPTORS)?;
        Ok((
            control,
            self.ledger.file().try_clone().context(DESCRIPTORS)?,
        ))
    }

    /// The sessions that are stopped for a successor, by port.
    fn links(&self) -> anyhow::Result<Vec<(u16, Arc<Link>)>> {
        let links = self.each(|worker| {
            let sessions = worker.sessions.iter();
            let links = sessions.map(|(&port, session)| (port, Arc::clone(session.link())));
            links.collect::<Vec<_>>()
        })?;
        Ok(links.concat())
    }

    /// Everything that goes over. From now on the threads rest.
    fn estate(
        &self,
        (control, ledger): (UnixListener, File),
        mut connections: HashMap<u16, Connection>,
    ) -> anyhow::Result<Estate> {
        let ports = self.config.ports.iter();
        let kinds = ports.map(|port| (port.name.clone(), in_words(port)));
        let kinds: HashMap<_, _> = kinds.collect();
        self.each(|worker| {
            (worker.rests, worker.hands_over) = (true, true);
            worker.engine.settle();
        })?;
        let stopped_ns = handover::clock_ns();
        // What is between threads arrives, and then what comes home.
        for _ in 0..2 {
            self.each(|worker| worker.engine.finish_parcels())?;
        }
        let mut bays = Vec::new();
        for handle in &self.handles {
            let kinds = kinds.clone();
            let some = handle.call(move |worker| {
                let some = worker.bays(kinds, |port| connections.remove(&port));
                (some, connections)
            });
            let (some, left) = some.map_err(failed)?;
            bays.extend(some.context(DESCRIPTORS)?);
            connections = left;
        }
        self.add_counters(&mut bays)?;
        Ok(Estate {
            control,
            ledger,
            bays,
            copies: self.copies()?,
            stopped_ns,
            pid: std::process::id(),
        })
    }

    /// Adds what threads have counted of ports of others.
    fn add_counters(&self, bays: &mut [handover::Bay]) -> anyhow::Result<()> {
        let counters = self.each(|worker| {
            let engine = &worker.engine;
            let others = engine.bays().filter(|(number, _)| !engine.is_own(*number));
            let others = others.map(|(_, bay)| (bay.name.clone(), bay.counters));
            others.collect::<Vec<_>>()
        })?;
        for (name, counters) in counters.concat() {
            if let Some(bay) = bays.iter_mut().find(|bay| bay.name == name) {
                bay.counters.add(&counters);
            }
        }
        Ok(())
    }

    /// Frames that a successor finds in no ring. Those at the thread of their exit are older than
    /// those that wait to get there.
    fn copies(&self) -> anyhow::Result<Vec<(handover::Copy, Vec<u8>)>> {
        let each = self.each(|worker| {
            let copies = worker.engine.copies().into_iter();
            copies.partition::<Vec<_>, _>(|(copy, _)| worker.engine.is_own(copy.exit))
        })?;
        let (first, then): (Vec<_>, Vec<_>) = each.into_iter().unzip();
        Ok(first.into_iter().chain(then).flatten().collect())
    }
}

/// Stops sessions, all at once; the connections that can be handed over, by port.
fn stop(links: &[(u16, Arc<Link>)]) -> anyhow::Result<HashMap<u16, Connection>> {
    links.iter().for_each(|(_, link)| link.stop());
    let until = Instant::now() + STOPS_WITHIN;
    let mut connections = HashMap::new();
    for (port, link) in links {
        match link.connection(until) {
            Ok(connection) => connections.extend(connection.map(|it| (*port, it))),
            Err(error) if error.raw_os_error().is_some() => {
                return Err(error).context(DESCRIPTORS);
            }
            Err(error) => tracing::warn!(port, %error, "a connection is not handed over"),
        }
    }
    Ok(connections)
}

/// Whether the state in use is the one at a path.
fn is_state(file: &File, path: &Path) -> anyhow::Result<()> {
    let id = |about: Metadata| (about.dev(), about.ino());
    let used = id(file.metadata()?);
    if path.symlink_metadata().is_ok_and(|at| id(at) == used) {
        return Ok(());
    }
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let used = fs::read_link(link)?;
    let used = used.display();
    match file.metadata()?.nlink() {
        0 => {
            const REMOVED: &str =
                "the state of the switch that runs was removed; restart it instead";
            Err(Refused::new(Remedy::Restart, REMOVED).into())
        }
        _ => bail!("`state` must be {used}, which the switch that runs has"),
    }
}
