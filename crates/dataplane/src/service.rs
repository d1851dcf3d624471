//! A switch that runs: its configuration in force, and the configuration of another file.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Mutex, PoisonError},
};

use anyhow::Context;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Serialize;
use sluicegate_core::abi::HashKey;

use crate::{
    config::{Config, Kind, PORTS_MAX, PortConfig},
    engine::Engine,
    govern::{Govern, Governing},
    port::Port,
    tap::Tap,
    vhost::{Offer, device::Device, session::Session},
    worker::{Handle, Running, Worker},
};

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

/// A switch that runs.
pub struct Service {
    running: Running,
    state: Mutex<State>,
}

struct State {
    config: Config,
    numbers: HashMap<String, u16>,
}

impl Service {
    /// Starts a switch.
    ///
    /// # Errors
    /// A port's socket or interface cannot be had: all others are given back.
    pub fn start(config: Config) -> anyhow::Result<Self> {
        let mut engine = Engine::new(config.choice, secret()?);
        engine.govern = govern(config.governing.as_ref())?;
        let running = Worker::start(engine, config.pace)?;
        let mut state = State {
            config: Config {
                ports: Vec::new(),
                ..config.clone()
            },
            numbers: HashMap::new(),
        };
        for port in &config.ports {
            if let Err(error) = state.add(&running.handle, port) {
                running.end();
                return Err(error);
            }
        }
        state.config = config;
        Ok(Self {
            running,
            state: Mutex::new(state),
        })
    }

    /// Gives orders to its thread.
    pub fn handle(&self) -> &Handle {
        &self.running.handle
    }

    /// Puts another configuration in force. Ports that it does not change are not touched.
    ///
    /// # Errors
    /// A new port's socket or interface cannot be had; the changes before it are in force.
    pub fn reload(&self, config: Config) -> anyhow::Result<Reload> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let limits = |config: &Config| config.governing.as_ref().map(|it| it.limits);
        let has_grown = limits(&state.config).is_some_and(|before| {
            let now = limits(&config);
            now.is_some_and(|now| now != before)
        });
        let mut reload = Reload {
            needs_restart: has_grown
                || (config.choice, config.pace, &config.socket)
                    != (state.config.choice, state.config.pace, &state.config.socket),
            ..Reload::default()
        };
        state.govern(&self.running.handle, &config, &mut reload)?;
        let before = state.config.ports.clone();
        let kept = |port: &PortConfig| {
            let mut new = config.ports.iter();
            new.any(|new| new.name == port.name && new.kind == port.kind)
        };
        for port in before.iter().filter(|port| !kept(port)) {
            state.remove(&self.running.handle, &port.name)?;
            reload.removed.push(port.name.clone());
        }
        for port in &config.ports {
            let old = before.iter().find(|old| old.name == port.name && kept(old));
            match old {
                Some(old) if old == port => {}
                Some(_) => {
                    state.change(&self.running.handle, port)?;
                    reload.changed.push(port.name.clone());
                }
                None => {
                    state.add(&self.running.handle, port)?;
                    reload.added.push(port.name.clone());
                }
            }
        }
        Ok(reload)
    }

    /// Whether its thread has ended.
    pub fn has_ended(&self) -> bool {
        self.running.has_ended()
    }

    /// Ends the switch. Frames that wait are lost with their senders' rings left as they are.
    pub fn end(&self) {
        self.running.end();
    }
}

/// Enforcement by a policy, at no port yet.
fn govern(governing: Option<&Governing>) -> anyhow::Result<Option<Govern>> {
    let Some(governing) = governing else {
        return Ok(None);
    };
    let mut key = HashKey {
        spread: secret()?[0] | 1,
        ..HashKey::default()
    };
    for pair in key.word.chunks_mut(2) {
        let word = secret()?[0];
        (pair[0], pair[1]) = (word as u32, (word >> 32) as u32);
    }
    Ok(Some(Govern::new(governing.clone(), key)))
}

fn failed(reason: String) -> anyhow::Error {
    anyhow::anyhow!(reason)
}

impl State {
    fn add(&mut self, handle: &Handle, config: &PortConfig) -> anyhow::Result<()> {
        let free = (0..PORTS_MAX as u16).find(|number| !self.numbers.values().any(|n| n == number));
        let number = free.context("the switch has no further port")?;
        let port = match &config.kind {
            Kind::VhostUser(..) => Port::Vhost(Box::<Device>::default()),
            Kind::Tap(name) => Port::Tap(Box::new(Tap::open(name)?)),
        };
        let about = config.clone();
        handle
            .call(move |worker| {
                let (name, member, filter) = (about.name.clone(), about.member, about.filter);
                worker.engine.add(number, name, port, member, filter);
                if let Some(govern) = worker.engine.govern.as_mut().filter(|_| about.is_governed) {
                    govern.attach(number, &about.name, &about.tenant);
                }
                worker.watch();
            })
            .map_err(failed)?;
        self.numbers.insert(config.name.clone(), number);
        self.config.ports.push(config.clone());
        if let Kind::VhostUser(path, mode, pairs) = &config.kind {
            let offer = Offer {
                pairs: *pairs,
                mac: match config.filter.macs[..] {
                    [only] => Some(only),
                    _ => None,
                },
            };
            let started = Session::start(path, *mode, offer, number, handle.clone());
            let session = match started.with_context(|| format!("port {}", config.name)) {
                Ok(session) => session,
                Err(error) => {
                    self.remove(handle, &config.name)?;
                    return Err(error);
                }
            };
            let keep = move |worker: &mut Worker| worker.sessions.insert(number, session).is_some();
            handle.call(keep).map_err(failed)?;
        }
        Ok(())
    }

    /// Puts another policy in force. Ports that begin to be governed are among the changed ones;
    /// where there is no policy any more, all flows are forgotten.
    fn govern(
        &mut self,
        handle: &Handle,
        config: &Config,
        reload: &mut Reload,
    ) -> anyhow::Result<()> {
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
        let fresh = match (&self.config.governing, &wanted) {
            (None, new) => govern(new.as_ref())?,
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
        reload.flows_rematched = handle.call(order).map_err(failed)?;
        self.config.governing = wanted;
        Ok(())
    }

    fn change(&mut self, handle: &Handle, config: &PortConfig) -> anyhow::Result<()> {
        let number = self.number(&config.name)?;
        let new = config.clone();
        handle
            .call(move |worker| {
                worker.engine.change(number, new.member, new.filter);
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
    fn remove(&mut self, handle: &Handle, name: &str) -> anyhow::Result<()> {
        let number = self.number(name)?;
        let session = handle.call(move |worker| worker.sessions.remove(&number));
        if let Some(session) = session.map_err(failed)? {
            session.end();
        }
        handle
            .call(move |worker| {
                worker.engine.remove(number);
                worker.watch();
            })
            .map_err(failed)?;
        self.numbers.remove(name);
        self.config.ports.retain(|port| port.name != name);
        Ok(())
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
/// The file's errors, or those of [`Service::reload`].
pub fn reload_file(service: &Service, path: &Path) -> anyhow::Result<Reload> {
    service.reload(Config::read(path)?)
}
