//! A switch that runs: its configuration in force, and the configuration of another file.

mod places;
mod succession;

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, atomic::AtomicU32},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Serialize;
use sluicegate_core::abi::HashKey;
use sluicegate_vswitch::filter::Filter;

use crate::{
    adapter,
    config::{Config, Kind, PortConfig},
    engine::Engine,
    govern::{Govern, Governing},
    handover,
    ledger::{self, Ledger},
    mesh,
    port::Port,
    shm::{cable::Cable, pfc::FlowControl},
    tap::Tap,
    upgrade::{Desk, Refused, Remedy},
    vhost::{device::Device, link::Link},
    worker::{Handle, Pace, Running, Worker},
    xdp::Xdp,
};

use places::{Ahead, begin, in_words, open, usable};
pub use succession::{Claim, Heir, Predecessor};

/// Between two looks whether a port's frames have come home.
const LATER: Duration = Duration::from_millis(1);

/// What a new configuration changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reload {
    /// Ports that are new.
    pub added: Vec<String>,
    /// Ports that have gone.
    pub removed: Vec<String>,
    /// Ports whose VLANs, addresses or tenants changed; their connections go on.
    pub changed: Vec<String>,
    /// Another policy is in force, or none any more.
    pub policy: bool,
    /// Flows that another rule decides now, or none.
    pub flows_rematched: u64,
    /// Keys of `[switch]` that another start needs.
    pub needs_restart: bool,
}

impl Reload {
    /// What was done, for an error that came then.
    fn so_far(&self) -> String {
        let ports = [&self.added, &self.removed, &self.changed];
        if !self.policy && ports.iter().all(|names| names.is_empty()) {
            return "no port has changed".to_owned();
        }
        let names = |names: &[String]| match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        };
        format!(
            "stopped half-way: removed {}; changed {}; added {}",
            names(&self.removed),
            names(&self.changed),
            names(&self.added)
        )
    }
}

/// A switch that runs.
pub struct Service {
    /// Its threads.
    running: Vec<Running>,
    state: Mutex<State>,
    /// The process that has taken over.
    successor: OnceLock<u32>,
    predecessor: Option<Predecessor>,
    upgrades: Desk,
    /// How often everything was stopped for another process.
    attempts: AtomicU32,
    /// Why the last one got nothing.
    refusal: Mutex<Option<Refused>>,
    /// Lines of its process's log that were lost, where that is known.
    pub log_lines_lost: OnceLock<fn() -> u64>,
}

struct State {
    heir: Heir,
    ledger: Arc<Ledger>,
    config: Config,
    numbers: HashMap<String, u16>,
    /// By number of a port, its thread.
    threads: HashMap<u16, usize>,
    handles: Vec<Handle>,
}

/// The state in its file, with room for all ports.
fn kept(config: &Config) -> anyhow::Result<Arc<Ledger>> {
    let ledger = Ledger::open(&config.state)?;
    let names = config.ports.iter().map(|port| port.name.as_str());
    ledger
        .make_room(names)
        .with_context(|| format!("the state in {}", config.state.display()))?;
    Ok(ledger)
}

impl Service {
    /// Starts a switch.
    ///
    /// # Errors
    /// A port's socket or interface cannot be had: all others are given back.
    pub fn start(config: Config) -> anyhow::Result<Self> {
        adapter::apply(&config.adapters)?;
        let ledger = match kept(&config) {
            Err(error) if ledger::is_of_storage(&error) => {
                tracing::warn!(
                    "{error:#}: the state is in memory alone, and guests lose frames if this switch \
                     is killed; make room and restart the switch when that suits"
                );
                Ledger::in_memory()?
            }
            ledger => ledger?,
        };
        let (running, mut state) = State::begin(&config, ledger)?;
        for port in &config.ports {
            if let Err(error) = state.add(port, None) {
                running.iter().for_each(Running::end);
                return Err(error);
            }
        }
        // Nothing was sent before all ports and their addresses were there.
        state.each(|worker| worker.engine.remember())?;
        state.each(|worker| worker.rests = false)?;
        state.keep_interfaces(&config.ports);
        state.config = config;
        Ok(Self::new(running, state, None))
    }

    fn new(running: Vec<Running>, state: State, predecessor: Option<Predecessor>) -> Self {
        Self {
            running,
            state: Mutex::new(state),
            successor: OnceLock::new(),
            predecessor,
            upgrades: Desk::default(),
            attempts: AtomicU32::new(0),
            refusal: Mutex::default(),
            log_lines_lost: OnceLock::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Interfaces of the kernel behind its ports, and adapters that its file names.
    pub fn interfaces(&self) -> Vec<String> {
        let state = self.state();
        let ports = state.config.ports.iter();
        let named = ports.filter_map(|port| match &port.kind {
            Kind::Tap(name) => Some(name.clone()),
            Kind::Xdp(wanted) => Some(wanted.interface.clone()),
            Kind::VhostUser(..) | Kind::Shm(..) => None,
        });
        let adapters = state.config.adapters.iter();
        let adapters = adapters.map(|adapter| adapter.interface.clone());
        named.chain(adapters).collect()
    }

    /// Gives orders to its first thread.
    pub fn handle(&self) -> &Handle {
        &self.running[0].handle
    }

    /// Does something in each of its threads, one after the other; their results.
    ///
    /// # Errors
    /// The switch has ended.
    pub fn each<T: Send + 'static>(
        &self,
        order: impl FnOnce(&mut Worker) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, String> {
        let threads = self.running.iter();
        threads.map(|it| it.handle.call(order.clone())).collect()
    }

    /// Puts another configuration in force. Ports that it does not change are not touched.
    ///
    /// # Errors
    /// A port would move to another thread, `lossless` is another where something has `pfc`, or a
    /// new port's socket or TAP interface cannot be had: nothing has changed. One that a port of
    /// before has to give back first, or an interface by AF_XDP, cannot be had: the error says what
    /// was done before it.
    pub fn reload(&self, mut config: Config) -> anyhow::Result<Reload> {
        let mut state = self.state();
        // `relay_reserved` takes a restart, at AF_XDP ports as well: the kernel's program and the
        // switch agree on it.
        let relayed = state.config.choice.reserved.relayed();
        for port in &mut config.ports {
            if let Kind::Xdp(wanted) = &mut port.kind {
                wanted.relayed = relayed;
            }
        }
        state.refuse_moves(&config)?;
        state.refuse_lanes(&config)?;
        let limits = |config: &Config| config.governing.as_ref().map(|it| it.limits);
        let has_grown = limits(&state.config).is_some_and(|before| {
            let now = limits(&config);
            now.is_some_and(|now| now != before)
        });
        let mut reload = Reload {
            needs_restart: has_grown
                || config.threads != state.config.threads
                || (config.choice, config.pace, &config.socket, &config.state)
                    != (
                        state.config.choice,
                        state.config.pace,
                        &state.config.socket,
                        &state.config.state,
                    ),
            ..Reload::default()
        };
        let before = state.config.ports.clone();
        let lost = state.each(|worker| worker.engine.lost())?.concat();
        let kept = |port: &PortConfig| {
            if lost.contains(&port.name) {
                return false;
            }
            let mut new = config.ports.iter();
            new.any(|new| new.name == port.name && in_words(new) == in_words(port))
        };
        let (stay, go): (Vec<_>, Vec<_>) = before.into_iter().partition(kept);
        let is_new = |port: &PortConfig| !stay.iter().any(|old| old.name == port.name);
        let is_free = |port: &PortConfig| {
            let mut gone = go.iter();
            !gone.any(|old| old.kind.place() == port.kind.place())
        };
        let mut ahead = Ahead::default();
        let ports = config.ports.iter();
        for port in ports.filter(|port| is_new(port) && is_free(port)) {
            ahead.open(port).context("nothing has changed")?;
        }
        if state.config.adapters != config.adapters {
            adapter::apply(&config.adapters).context("nothing has changed")?;
            state.config.adapters.clone_from(&config.adapters);
        }
        state.govern(&config, &mut reload)?;
        let done = state.replace(&config.ports, [&stay, &go], ahead, &mut reload);
        state.keep_interfaces(&config.ports);
        done.with_context(|| reload.so_far())?;
        Ok(reload)
    }

    /// Whether any of its threads has ended.
    pub fn has_ended(&self) -> bool {
        self.running.iter().any(Running::has_ended)
    }

    /// Ends the switch. Frames that wait stay in the rings of their senders for a successor. False:
    /// another process has taken over, and everything is left to it.
    pub fn end(&self) -> bool {
        // An upgrade that has begun comes to its end first.
        let _state = self.state();
        if self.is_replaced() {
            return false;
        }
        self.running.iter().for_each(Running::end);
        true
    }
}

/// Whether a port is as before; on which thread it is to be has been looked at.
fn is_same(old: &PortConfig, new: &PortConfig) -> bool {
    let thread = new.thread;
    let old = PortConfig {
        thread,
        ..old.clone()
    };
    old == *new
}

/// Flows of a thread at least.
const FLOWS_MIN: usize = 64;

/// Enforcement by a policy, at no port yet, in one of so many threads. They share the flows that
/// there may be.
fn govern(
    governing: Option<&Governing>,
    thread: usize,
    threads: usize,
) -> anyhow::Result<Option<Govern>> {
    let Some(governing) = governing else {
        return Ok(None);
    };
    let mut governing = governing.clone();
    let flows = &mut governing.limits.flows;
    *flows = (*flows / threads).max(FLOWS_MIN.min(*flows));
    let mut key = HashKey {
        spread: secret()?[0] | 1,
        ..HashKey::default()
    };
    for pair in key.word.chunks_mut(2) {
        let word = secret()?[0];
        (pair[0], pair[1]) = (word as u32, (word >> 32) as u32);
    }
    let govern = Govern::new(governing, key);
    Ok(Some(govern.of_thread(thread, threads)))
}

fn failed(reason: String) -> anyhow::Error {
    anyhow::anyhow!(reason)
}

impl State {
    /// A switch without ports, which rests.
    fn begin(config: &Config, ledger: Arc<Ledger>) -> anyhow::Result<(Vec<Running>, Self)> {
        let threads = config.threads.len();
        ledger.set_threads(threads);
        let start = Instant::now();
        let hash_key = secret()?;
        let (mut running, board) = (Vec::new(), Arc::default());
        for mesh in mesh::connect(threads)? {
            let (thread, mut engine) = (mesh.me, Engine::new(config.choice, hash_key));
            engine.govern = govern(config.governing.as_ref(), thread, threads)?;
            engine.keep(Arc::clone(&ledger));
            engine.share(Arc::clone(&board));
            if threads > 1 {
                engine.join(mesh);
            }
            let pace = Pace {
                cpu: config.threads[thread],
                ..config.pace
            };
            running.push(Worker::start(engine, pace, start)?);
        }
        let state = Self {
            heir: Heir::Anybody,
            ledger: Arc::clone(&ledger),
            config: Config {
                ports: Vec::new(),
                ..config.clone()
            },
            numbers: HashMap::new(),
            threads: HashMap::new(),
            handles: running.iter().map(|it| it.handle.clone()).collect(),
        };
        // One of them looks whether it is broken.
        let watch = move |worker: &mut Worker| worker.ledger = Some(ledger);
        state.handles[0].call(watch).map_err(failed)?;
        Ok((running, state))
    }

    /// Does something in each thread, one after the other; their results.
    fn each<T: Send + 'static>(
        &self,
        order: impl FnOnce(&mut Worker) -> T + Clone + Send + 'static,
    ) -> anyhow::Result<Vec<T>> {
        let each = self.handles.iter();
        each.map(|handle| handle.call(order.clone()).map_err(failed))
            .collect()
    }

    /// The thread of a new port: the one of the file, or else one with the fewest ports.
    fn choose_thread(&self, config: &PortConfig) -> usize {
        let ports = |thread: usize| self.threads.values().filter(|&&it| it == thread).count();
        let all = 0..self.handles.len();
        let fewest = || all.min_by_key(|&thread| ports(thread));
        config.thread.or_else(fewest).unwrap_or(0)
    }

    /// # Errors
    /// A port would be on another thread.
    fn refuse_moves(&self, config: &Config) -> anyhow::Result<()> {
        let threads = self.handles.len();
        for port in &config.ports {
            let Some(wanted) = port.thread else { continue };
            let number = self.numbers.get(&port.name);
            let has = number.and_then(|number| self.threads.get(number));
            let advice = "restart it, or let another process take over: run --take-over";
            match has {
                Some(&has) if has != wanted => bail!(
                    "port '{}' is on thread {has} and would move to thread {wanted} while the \
                     switch runs; {advice}",
                    port.name
                ),
                None if wanted >= threads => bail!(
                    "port '{}' would be on thread {wanted}, and the switch that runs has \
                     {threads}; {advice}",
                    port.name
                ),
                _ => {}
            }
        }
        Ok(())
    }

    /// Peers and adapters would pause for other priorities than the switch is lossless in.
    fn refuse_lanes(&self, config: &Config) -> anyhow::Result<()> {
        let of_port = |port: &PortConfig| match &port.kind {
            Kind::Shm(_, wanted) => wanted.pfc.is_some(),
            _ => false,
        };
        let has_pfc = config.ports.iter().any(of_port)
            || config.adapters.iter().any(|adapter| adapter.pfc.is_some());
        if has_pfc && config.choice.lanes != self.config.choice.lanes {
            bail!(
                "`lossless` cannot change while the switch runs and a port or an adapter has \
                 `pfc`: nothing has changed; restart it, or let a new process take over"
            );
        }
        Ok(())
    }

    /// Adds a port, with what another process had of it. Returns what says when the connection of
    /// that process has begun here.
    fn add(
        &mut self,
        config: &PortConfig,
        old: Option<handover::Bay>,
    ) -> anyhow::Result<Option<Arc<Link>>> {
        let mut old = usable(old.unwrap_or_default(), config)?;
        let (counters, closed) = (old.counters, old.closed.take());
        open(config, &mut old)?;
        let number = self.choose_number(&config.name)?;
        let thread = self.choose_thread(config);
        let port = self.port(config, &mut old, (number, thread))?;
        let about = config.clone();
        self.add_elsewhere(number, thread, config)?;
        self.handles[thread]
            .call(move |worker| {
                let (name, member, filter) = (about.name.clone(), about.member, about.filter);
                worker.engine.add(number, name, port, member, filter);
                if let Some(bay) = worker.engine.bay_mut(number) {
                    (bay.counters, bay.closed) = (counters, closed);
                    bay.priority = about.priority;
                }
                if let Some(govern) = worker.engine.govern.as_mut().filter(|_| about.is_governed) {
                    govern.attach(number, &about.name, &about.tenant);
                }
                worker.watch();
            })
            .map_err(failed)?;
        self.numbers.insert(config.name.clone(), number);
        self.threads.insert(number, thread);
        self.config.ports.push(config.clone());
        self.begin_session(config, old, number)
    }

    /// The port itself, over what another process had of it.
    fn port(
        &self,
        config: &PortConfig,
        old: &mut handover::Bay,
        (number, thread): (u16, usize),
    ) -> anyhow::Result<Port> {
        let record = || Some(self.ledger.record(number, thread));
        Ok(match &config.kind {
            Kind::VhostUser(..) => Port::Vhost(Box::new(Device::new(record()))),
            Kind::Tap(name) => Port::Tap(Box::new(match old.tap.take() {
                Some(file) => Tap::over(file, name, config.backpressure),
                None => bail!("port {}: its interface was not opened", config.name),
            })),
            Kind::Xdp(wanted) => Port::Xdp(Box::new(
                match old.xdp.take() {
                    Some(estate) => Xdp::over(estate, wanted.clone()),
                    None => Xdp::open(wanted.clone()),
                }
                .with_context(|| format!("port {}", config.name))?,
            )),
            Kind::Shm(_, wanted) => {
                let flow = wanted.pfc.map(|pfc| FlowControl::new(pfc, number));
                Port::Shm(Box::new(Cable::new(record()).with_flow(flow)))
            }
        })
    }

    /// Begins the session of a port that is there, or removes the port. Returns what
    /// [`State::add`] does.
    fn begin_session(
        &mut self,
        config: &PortConfig,
        old: handover::Bay,
        number: u16,
    ) -> anyhow::Result<Option<Arc<Link>>> {
        let (begins, handle) = (old.connection.is_some(), self.handle(number));
        let session = match begin(config, old, number, &handle) {
            Ok(session) => session,
            Err(error) => {
                self.remove(&config.name)?;
                return Err(error.context(format!("port {}", config.name)));
            }
        };
        let Some(session) = session else {
            return Ok(None);
        };
        let link = begins.then(|| Arc::clone(session.link()));
        let keep = move |worker: &mut Worker| worker.sessions.insert(number, session).is_some();
        handle.call(keep).map_err(failed)?;
        Ok(link)
    }

    /// Other threads know a port as one that is elsewhere.
    fn add_elsewhere(&self, number: u16, thread: usize, config: &PortConfig) -> anyhow::Result<()> {
        for (_, handle) in self.handles.iter().enumerate().filter(|it| it.0 != thread) {
            let (name, member) = (config.name.clone(), config.member.clone());
            let port = Port::Remote(thread);
            handle
                .call(move |worker| {
                    let filter = Filter::default();
                    worker.engine.add(number, name, port, member, filter);
                })
                .map_err(failed)?;
        }
        Ok(())
    }

    /// A port of the same name has the number that it had in a predecessor.
    fn choose_number(&self, name: &str) -> anyhow::Result<u16> {
        let is_taken = |number| self.numbers.values().any(|&taken| taken == number);
        let before = self.ledger.find(name);
        let number = before.or_else(|| self.ledger.free(is_taken));
        let number = number.context("the switch has no further port")?;
        self.ledger.claim(number, name)?;
        Ok(number)
    }

    /// Puts another policy in force. Ports that begin to be governed are among the changed ones;
    /// where there is no policy any more, all flows are forgotten.
    fn govern(&mut self, config: &Config, reload: &mut Reload) -> anyhow::Result<()> {
        // The tables keep the bounds with which they were made.
        let kept = self.config.governing.as_ref().map(|it| it.limits);
        let wanted = config.governing.clone().map(|new| Governing {
            limits: kept.unwrap_or(new.limits),
            ..new
        });
        if wanted == self.config.governing {
            return Ok(());
        }
        reload.policy = true;
        let threads = self.handles.len();
        for (thread, handle) in self.handles.iter().enumerate() {
            let fresh = match (&self.config.governing, &wanted) {
                (None, new) => govern(new.as_ref(), thread, threads)?,
                _ => None,
            };
            let new = wanted.clone();
            let order = move |worker: &mut Worker| match (&mut worker.engine.govern, new) {
                (Some(govern), Some(new)) => govern.reload(new),
                (govern, _) => {
                    *govern = fresh;
                    0
                }
            };
            reload.flows_rematched += handle.call(order).map_err(failed)?;
        }
        self.config.governing = wanted;
        Ok(())
    }

    /// Ports of a new configuration take the place of those that go, beside those that stay.
    fn replace(
        &mut self,
        ports: &[PortConfig],
        [stay, go]: [&[PortConfig]; 2],
        mut ahead: Ahead,
        reload: &mut Reload,
    ) -> anyhow::Result<()> {
        for port in go {
            let number = self.number(&port.name)?;
            self.remove(&port.name)?;
            self.ledger.forget(number);
            reload.removed.push(port.name.clone());
            if let (Kind::Tap(interface), true) = (&port.kind, port.persists) {
                tracing::info!(
                    interface,
                    "the interface stays; `ip link delete` removes it"
                );
            }
        }
        for port in ports {
            match stay.iter().find(|old| old.name == port.name) {
                Some(old) if is_same(old, port) => {}
                Some(old) => {
                    self.change(old, port)?;
                    reload.changed.push(port.name.clone());
                }
                None => {
                    self.add(port, ahead.0.remove(&port.name))?;
                    reload.added.push(port.name.clone());
                }
            }
        }
        Ok(())
    }

    /// Interfaces of TAP ports outlive this process, where their ports do not say otherwise.
    fn keep_interfaces(&self, ports: &[PortConfig]) {
        let wanted = |port: &&PortConfig| port.persists && matches!(port.kind, Kind::Tap(_));
        for port in ports.iter().filter(wanted) {
            let Ok(number) = self.number(&port.name) else {
                continue;
            };
            let order = move |worker: &mut Worker| match worker.engine.bay_mut(number) {
                Some(bay) => match &bay.port {
                    Port::Tap(tap) => tap.persist().map_err(|error| error.to_string()),
                    _ => Ok(()),
                },
                None => Ok(()),
            };
            if let Err(error) = self.handle(number).call(order).and_then(|done| done) {
                let port = &port.name;
                tracing::warn!(port, error, "its interface ends with this process");
            }
        }
    }

    fn change(&mut self, old: &PortConfig, config: &PortConfig) -> anyhow::Result<()> {
        if let (true, Kind::VhostUser(path, ..) | Kind::Shm(path, _)) =
            (old.access != config.access, &config.kind)
        {
            config.access.apply(path)?;
        }
        let number = self.number(&config.name)?;
        let (member, filter) = (config.member.clone(), config.filter.clone());
        self.each(move |worker| worker.engine.change(number, member, filter))?;
        let new = config.clone();
        self.handle(number)
            .call(move |worker| {
                if let Some(bay) = worker.engine.bay_mut(number) {
                    bay.priority = new.priority;
                }
                match &mut worker.engine.govern {
                    Some(govern) if new.is_governed => {
                        govern.attach(number, &new.name, &new.tenant);
                    }
                    Some(govern) => govern.detach(number),
                    None => {}
                }
            })
            .map_err(failed)?;
        self.config.ports.retain(|port| port.name != config.name);
        self.config.ports.push(config.clone());
        Ok(())
    }

    /// Removes a port after its session, which tells the worker nothing any more and has given its
    /// socket back.
    fn remove(&mut self, name: &str) -> anyhow::Result<()> {
        let number = self.number(name)?;
        let handle = self.handle(number);
        let session = handle.call(move |worker| worker.sessions.remove(&number));
        if let Some(session) = session.map_err(failed)? {
            session.end();
        }
        // In the order in which nothing of it is left behind.
        let remove = move |worker: &mut Worker| {
            let is_home = worker.engine.bring_home(number);
            if is_home {
                worker.engine.remove(number);
                worker.watch();
            }
            is_home
        };
        while !handle.call(remove).map_err(failed)? {
            thread::sleep(LATER);
        }
        self.each(move |worker| {
            if worker.engine.bay_mut(number).is_some() {
                worker.engine.remove(number);
            }
        })?;
        self.numbers.remove(name);
        self.threads.remove(&number);
        self.config.ports.retain(|port| port.name != name);
        Ok(())
    }

    /// Gives orders to the thread of a port.
    fn handle(&self, number: u16) -> Handle {
        let thread = self.threads.get(&number).copied().unwrap_or(0);
        self.handles[thread].clone()
    }

    fn number(&self, name: &str) -> anyhow::Result<u16> {
        let number = self.numbers.get(name).copied();
        number.with_context(|| format!("there is no port '{name}'"))
    }
}

/// A key that tenants do not know.
fn secret() -> anyhow::Result<[u64; 2]> {
    let mut bytes = [0; 16];
    getrandom(&mut bytes, GetRandomFlags::empty()).context("no random numbers")?;
    let (mask, factor) = bytes.split_at(8);
    let word = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |word, &byte| word << 8 | u64::from(byte))
    };
    Ok([word(mask), word(factor)])
}

/// Reads a file and puts it in force.
///
/// # Errors
/// The file's errors, as a [`Refused`] of [`Remedy::Input`], or those of [`Service::reload`].
pub fn reload_file(service: &Service, path: &Path) -> anyhow::Result<Reload> {
    let config = Config::read(path);
    service.reload(config.map_err(|bad| Refused::new(Remedy::Input, bad.to_string()))?)
}
