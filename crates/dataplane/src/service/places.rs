//! What is behind ports: their sockets and interfaces, and the sessions over them.

use std::{collections::HashMap, fs, os::unix::net::UnixListener, path::Path};

use anyhow::{Context, bail};

use crate::{
    config::{Kind, PortConfig},
    handover,
    shm::{self, layout::Layout, session::Before},
    tap::Tap,
    vhost::{
        Offer,
        session::{Mode, Session, listen},
    },
    worker::Handle,
    xdp,
};

/// Sockets and interfaces of new ports, while those of before are still there. What was not used
/// is given back.
#[derive(Default)]
pub(super) struct Ahead(pub(super) HashMap<String, handover::Bay>);

impl Ahead {
    pub(super) fn open(&mut self, port: &PortConfig) -> anyhow::Result<()> {
        let mut bay = handover::Bay {
            name: port.name.clone(),
            kind: in_words(port),
            ..handover::Bay::default()
        };
        open(port, &mut bay)?;
        self.0.insert(port.name.clone(), bay);
        Ok(())
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        for listener in self.0.values().filter_map(|bay| bay.listener.as_ref()) {
            let address = listener.local_addr().ok();
            if let Some(path) = address.as_ref().and_then(|it| it.as_pathname()) {
                // It may have been removed by hand.
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// Opens the socket or the TAP interface of a port, unless another process had it.
pub(super) fn open(port: &PortConfig, old: &mut handover::Bay) -> anyhow::Result<()> {
    let explain = || format!("port {}", port.name);
    let path = match &port.kind {
        Kind::Tap(name) => {
            if old.tap.is_none() {
                let tap = Tap::open(name, port.backpressure).with_context(explain)?;
                old.tap = Some(tap.into_file());
            }
            return Ok(());
        }
        Kind::VhostUser(path, Mode::Server, _) => path,
        Kind::Shm(path, wanted) if wanted.mode == Mode::Server => path,
        Kind::VhostUser(..) | Kind::Shm(..) | Kind::Xdp(_) => return Ok(()),
    };
    let listener = old.listener.take().filter(|it| is_at(it, path));
    old.listener = match listener {
        Some(listener) => {
            let access = port.access.apply(path);
            access.with_context(|| format!("the rights of {}", path.display()))?;
            Some(listener)
        }
        None if old.connection.is_some() => None,
        None => Some(listen(path, port.access).with_context(explain)?),
    };
    Ok(())
}

/// What a port can use of what another process had under its name: of a port of another kind only
/// the counters, and the socket, since it may listen where the other one did.
pub(super) fn usable(mut old: handover::Bay, config: &PortConfig) -> anyhow::Result<handover::Bay> {
    if old.kind != in_words(config) {
        refuse_other_sockets(&old, config)?;
        old = handover::Bay {
            counters: old.counters,
            listener: old.listener,
            ..handover::Bay::default()
        };
    }
    if old.cable.is_none() && matches!(config.kind, Kind::Shm(..)) {
        // A peer that was refused, or has just gone.
        old.connection = None;
    }
    Ok(old)
}

/// The kernel gives a queue of an interface to one process at a time, and the one that runs must
/// keep it until all has gone over.
fn refuse_other_sockets(old: &handover::Bay, config: &PortConfig) -> anyhow::Result<()> {
    match &config.kind {
        Kind::Xdp(wanted)
            if old
                .kind
                .starts_with(&format!("AF_XDP at {},", wanted.interface)) =>
        {
            bail!(
                "port {}: the switch that runs has {} with another `queues`, `ring` or `mode`; have \
                 it reload this file first, or restart it; another `relay_reserved` takes a restart",
                config.name,
                wanted.interface
            )
        }
        _ => Ok(()),
    }
}

/// Starts the session of a port that has one, with what another process had.
pub(super) fn begin(
    config: &PortConfig,
    old: handover::Bay,
    number: u16,
    handle: &Handle,
) -> anyhow::Result<Option<Session>> {
    let listens =
        |listener: &UnixListener, mode, path| mode == Mode::Server && is_at(listener, path);
    let owner = handle.clone();
    let session = match &config.kind {
        Kind::Tap(_) | Kind::Xdp(_) => return Ok(None),
        Kind::VhostUser(path, mode, pairs) => {
            let offer = Offer {
                pairs: *pairs,
                mac: match config.filter.macs[..] {
                    [only] => Some(only),
                    _ => None,
                },
                in_order: config.in_order,
            };
            let listener = old.listener.filter(|it| listens(it, *mode, path));
            match (listener, old.connection) {
                (None, None) => Session::start(path, *mode, offer, number, owner),
                (listener, begin) => Session::go_on(path, listener, begin, offer, number, owner),
            }
        }
        Kind::Shm(path, wanted) => {
            let before = Before {
                listener: old.listener.filter(|it| listens(it, wanted.mode, path)),
                connection: old.connection.zip(old.cable),
            };
            shm::session::start(path, *wanted, before, number, owner)
        }
    };
    session.map(Some)
}

/// What is behind a port, in words that the next version writes alike.
pub(super) fn in_words(port: &PortConfig) -> String {
    match &port.kind {
        Kind::VhostUser(path, mode, pairs) => {
            let verb = match mode {
                Mode::Server => "listens",
                Mode::Client => "connects",
            };
            let order = if port.in_order { ", in order" } else { "" };
            format!("{pairs} queue pairs, {verb} at {}{order}", path.display())
        }
        Kind::Tap(name) if port.backpressure => format!("interface {name}, held back"),
        Kind::Tap(name) => format!("interface {name}"),
        Kind::Xdp(xdp::Wanted {
            interface,
            queues,
            ring,
            mode,
            relayed,
        }) => {
            let queues = queues.map_or("all".to_owned(), |count| count.to_string());
            let mode = mode.name();
            let relayed = match relayed {
                0 => String::new(),
                _ => format!(", relaying {relayed:#06x}"),
            };
            format!("AF_XDP at {interface}, {queues} queues of {ring} entries, {mode}{relayed}")
        }
        Kind::Shm(path, wanted) => {
            let verb = match wanted.mode {
                Mode::Server => "listens",
                Mode::Client => "connects",
            };
            let Layout { slots, buffer } = wanted.layout;
            let pfc = match wanted.pfc {
                Some(pfc) => format!(" with PFC of {} bit/s, {} ns", pfc.rate_bps, pfc.delay_ns),
                None => String::new(),
            };
            format!(
                "cable of {slots} times {buffer} bytes{pfc}, {verb} at {}",
                path.display()
            )
        }
    }
}

/// Whether a socket listens at a path.
fn is_at(listener: &UnixListener, path: &Path) -> bool {
    let address = listener.local_addr().ok();
    address.is_some_and(|address| address.as_pathname() == Some(path))
}
