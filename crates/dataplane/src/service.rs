//! A switch that runs: its configuration in force, and the configuration of another file.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Serialize;

use crate::{
    config::{Config, Kind, PortConfig},
    engine::Engine,
    ledger::Ledger,
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
    /// Ports whose VLANs or addresses changed; their connections go on.
    pub changed: Vec<String>,
    /// Keys of `[switch]` that another start needs.
    pub needs_restart: bool,
}

/// A switch that runs.
pub struct Service {
    running: Running,
    state: Mutex<State>,
}

struct State {
    ledger: Arc<Ledger>,
    config: Config,
    numbers: HashMap<String, u16>,
}

impl Service {
    /// Starts a switch.
    ///
    /// # Errors
    /// A port's socket or interface cannot be had: all others are given back.
    pub fn start(config: Config) -> anyhow::Result<Self> {
        let ledger = Ledger::open(&config.state)?;
        let mut engine = Engine::new(config.choice, secret()?);
        engine.keep(Arc::clone(&ledger));
        let running = Worker::start(engine, config.pace)?;
        let mut state = State {
            ledger,
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
        // Nothing was sent before all ports and their addresses were there.
        let begin = |worker: &mut Worker| {
            worker.engine.remember();
            worker.rests = false;
        };
        running.handle.call(begin).map_err(failed)?;
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
        let mut reload = Reload {
            needs_restart: (config.choice, config.pace, &config.socket, &config.state)
                != (
                    state.config.choice,
                    state.config.pace,
                    &state.config.socket,
                    &state.config.state,
                ),
            ..Reload::default()
        };
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

    /// Ends the switch. Frames that wait stay in the rings of their senders for a successor.
    pub fn end(&self) {
        self.running.end();
    }
}

fn failed(reason: String) -> anyhow::Error {
    anyhow::anyhow!(reason)
}

impl State {
    fn add(&mut self, handle: &Handle, config: &PortConfig) -> anyhow::Result<()> {
        let number = self.choose_number(&config.name)?;
        let port = match &config.kind {
            Kind::VhostUser(..) => {
                let record = self.ledger.record(number);
                Port::Vhost(Box::new(Device::new(Some(record))))
            }
            Kind::Tap(name) => Port::Tap(Box::new(Tap::open(name)?)),
        };
        let (name, member, filter) = (
            config.name.clone(),
            config.member.clone(),
            config.filter.clone(),
        );
        handle
            .call(move |worker| {
                worker.engine.add(number, name, port, member, filter);
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

    /// A port of the same name has the number that it had in a predecessor.
    fn choose_number(&self, name: &str) -> anyhow::Result<u16> {
        let is_taken = |number| self.numbers.values().any(|&taken| taken == number);
        let before = self.ledger.find(name);
        let number = before.or_else(|| self.ledger.free(is_taken));
        let number = number.context("the switch has no further port")?;
        self.ledger.claim(number, name)?;
        Ok(number)
    }

    fn change(&mut self, handle: &Handle, config: &PortConfig) -> anyhow::Result<()> {
        let number = self.number(&config.name)?;
        let (member, filter) = (config.member.clone(), config.filter.clone());
        handle
            .call(move |worker| worker.engine.change(number, member, filter))
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
        self.ledger.forget(number);
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
