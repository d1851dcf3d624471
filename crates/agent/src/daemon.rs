//! The agent: attaches to the interfaces that it was told of as they come, lets go of those that
//! vanish, until a signal ends it.
//!
//! Everything is pinned as soon as it exists, so a killed agent, or one that was told to persist,
//! leaves enforcement running, and the next one takes it over.

use std::{collections::BTreeSet, net::SocketAddr, os::fd::AsFd, path::PathBuf};

use anyhow::{Context, Result, ensure};
use nix::{
    poll::{PollFd, PollFlags, poll},
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};
use sluicegate_policy::Policy;
use tracing::{error, info, warn};

use crate::{
    bpffs::{self, Pins},
    doctor::kernel,
    instance::{Instance, Options},
    interfaces::{self, Event, Interface, Patterns, Watch},
    meter::serve::{Listener, Meter},
    netns::NetNs,
    service::Service,
    takeover::Takeover,
};

/// What an agent is told.
#[derive(Debug)]
pub struct Config {
    /// What to enforce.
    pub policy: Policy,
    /// On which interfaces.
    pub patterns: Patterns,
    /// In which network namespace: its name for `ip netns`; `None` = the current one.
    pub netns: Option<String>,
    /// Where a bpffs is, or may be mounted.
    pub bpffs: PathBuf,
    /// Most flows tracked at a time.
    pub flows_max: u32,
    /// Most of them on one interface, so that no tenant fills the table for all; 0 = no limit.
    pub interface_quota: u32,
    /// Leave enforcement running when a signal ends the agent.
    pub persist: bool,
    /// Where to serve metrics, in the network namespace that the agent is started in; `None` = nowhere.
    pub metrics: Option<SocketAddr>,
}

/// Enforces until SIGINT or SIGTERM, then detaches and removes its pins unless it was told to
/// persist. Moves the calling thread into the namespace and blocks those signals in it: call it
/// from the main thread before there are others.
///
/// # Errors
/// Another agent runs here, a pin is of another version, or the kernel refused. What was
/// enforced before goes on as it was.
pub fn run(config: &Config) -> Result<()> {
    let missing = kernel::missing_capabilities();
    ensure!(
        missing.is_empty(),
        "missing capabilities: {}; run as root, or as the packaged unit does (`sluicegate doctor` says what else enforcement needs)",
        missing.join(", ")
    );
    kernel::ensure_able()?;
    let netns = NetNs::select(config.netns.as_deref())?;
    let _claim = netns.claim()?;
    let signals = stop_signals()?;
    let metrics = config.metrics.map(Listener::bind).transpose()?;
    netns.enter()?;
    bpffs::ensure_mounted(&config.bpffs)?;
    bpffs::refuse_other_versions(&config.bpffs, netns.name())?;
    // Listens before it lists, so that no interface falls in between.
    let watch = Watch::new()?;
    let pins = Pins::new(&config.bpffs, netns.name());
    let options = Options {
        flows_max: config.flows_max,
        interface_quota: config.interface_quota,
        pins: Some(pins.clone()),
        ..Options::default()
    };
    let instance = Instance::load(&config.policy, &options)?;
    report_takeover(&instance);
    let mut agent = Agent {
        instance,
        patterns: &config.patterns,
        refused: BTreeSet::new(),
        service: Service::of_environment(),
    };
    agent.reconcile()?;
    if let Some(listener) = metrics {
        let programs = agent.instance.program_meter()?;
        listener.serve(Meter::new(pins, netns.name().to_owned(), programs))?;
    }
    info!(
        netns = netns.name(),
        "enforcing; stop with SIGINT or SIGTERM"
    );
    agent.service.ready(&agent.status());
    let outcome = agent.serve(&watch, &signals);
    if config.persist {
        agent.service.stopping("enforcement goes on");
        info!("stopped: enforcement goes on; `sluicegate detach --all` ends it");
        return outcome;
    }
    agent.service.stopping("enforcement ends");
    agent.instance.end().context("removing pins")?;
    info!("stopped: nothing is enforced any more");
    outcome
}

struct Agent<'a> {
    instance: Instance,
    patterns: &'a Patterns,
    /// Interfaces that it was not attached to and said so.
    refused: BTreeSet<u32>,
    service: Service,
}

impl Agent<'_> {
    fn serve(&mut self, watch: &Watch, signals: &SignalFd) -> Result<()> {
        loop {
            let mut sources = [
                PollFd::new(signals.as_fd(), PollFlags::POLLIN),
                PollFd::new(watch.as_fd(), PollFlags::POLLIN),
            ];
            self.service.alive();
            match poll(&mut sources, self.service.patience()) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error).context("waiting for news"),
            }
            if let Some(signal) = signals.read_signal().context("reading a signal")? {
                info!(signal = signal.ssi_signo, "asked to stop");
                return Ok(());
            }
            match watch.poll()? {
                Some(events) => events.into_iter().for_each(|event| self.handle(event)),
                None => {
                    warn!("news of interfaces were lost: listing them all again");
                    self.reconcile()?;
                }
            }
            self.service.status(&self.status());
        }
    }

    /// A line for the service manager.
    fn status(&self) -> String {
        format!("{} interfaces", self.instance.interfaces().len())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Present(interface) => self.consider(&interface),
            Event::Gone { index } => self.forget(index),
        }
    }

    /// Brings what is attached in line with what exists.
    fn reconcile(&mut self) -> Result<()> {
        let present = interfaces::list()?;
        for index in self.instance.interfaces().into_keys() {
            if !present.iter().any(|interface| interface.index == index) {
                self.forget(index);
            }
        }
        present
            .iter()
            .for_each(|interface| self.consider(interface));
        Ok(())
    }

    /// Attaches to an interface that the patterns cover, lets go of one renamed beyond them.
    fn consider(&mut self, interface: &Interface) {
        let attached = self.instance.interfaces();
        let wanted = self.patterns.matches(&interface.name) && !self.refuses(interface);
        match (attached.contains_key(&interface.index), wanted) {
            (false, true) => match self.attach(interface) {
                Ok(()) => info!(interface = interface.name, "attached"),
                // One interface that cannot be had must not end enforcement on the others.
                Err(error) => error!(interface = interface.name, "not attached: {error:#}"),
            },
            (true, false) => self.forget(interface.index),
            _ => {}
        }
    }

    /// A wildcard does not reach interfaces that are probably no tenant's; says so once.
    fn refuses(&mut self, interface: &Interface) -> bool {
        if self.patterns.names(&interface.name) {
            return false;
        }
        let Some(doubt) = interface.doubt() else {
            return false;
        };
        if self.refused.insert(interface.index) {
            let interface = &interface.name;
            warn!(
                interface,
                "not attached: {doubt} (name it without wildcards to attach all the same)"
            );
        }
        true
    }

    fn attach(&mut self, interface: &Interface) -> Result<()> {
        self.instance.attach_tenant(interface, &interface.name)
    }

    fn forget(&mut self, index: u32) {
        self.refused.remove(&index);
        let Some(name) = self.instance.interfaces().remove(&index) else {
            return;
        };
        match self.instance.detach_index(index) {
            Ok(()) => info!(interface = name, "detached"),
            Err(error) => error!(interface = name, "detached, but: {error:#}"),
        }
    }
}

fn report_takeover(instance: &Instance) {
    match instance.takeover() {
        Takeover::Nothing => {}
        Takeover::Kept { flows } => info!(flows, "took over from an earlier agent"),
        Takeover::Replaced { reason } => {
            warn!("an earlier agent's flows could not be taken over, they are met anew: {reason}");
        }
    }
}

fn stop_signals() -> Result<SignalFd> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGINT);
    set.add(Signal::SIGTERM);
    set.thread_block().context("blocking signals")?;
    SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .context("waiting for signals")
}
