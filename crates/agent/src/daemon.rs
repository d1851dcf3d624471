//! The agent: attaches to the interfaces that it was told of as they come, lets go of those that
//! vanish, follows its policy file, until a signal ends it.
//!
//! Everything is pinned as soon as it exists, so a killed agent, or one that was told to persist,
//! leaves enforcement running, and the next one takes it over.

mod lost;
mod policy;
mod report;
mod reserve;
mod start;
mod trouble;
mod twice;
mod watch;
mod whole;

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    os::fd::AsFd,
    path::PathBuf,
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use nix::{
    poll::{PollFd, PollFlags, poll},
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};
use sluicegate_policy::{Policy, PolicyFile};
use tracing::{error, info, warn};

use crate::{
    bpffs::{self, Pins},
    doctor::{self, kernel},
    instance::{Instance, Options},
    interfaces::{self, Event, Interface, Patterns, Watch},
    labels::{Label, Labels, Survey},
    meter::serve::{Listener, Meter},
    netns::NetNs,
    service::Service,
    state::{self, InForce, State},
    takeover::Takeover,
};
use policy::Look;
pub use policy::log_warnings;
use reserve::Reserve;
use trouble::Troubles;
use watch::FileWatch;
use whole::{InPlace, Read};

/// How often the agent looks at what raises no event.
const ROUND: Duration = Duration::from_secs(10);

/// After a failure of what would be tried again at once.
const PAUSE: Duration = Duration::from_secs(1);

/// What fails where the policy file is looked at every [`ROUND`] only.
const FILE_WATCH: &str = "watching the policy file";

/// The configuration of an agent.
#[derive(Debug)]
pub struct Config {
    /// The policy to enforce.
    pub policy: Policy,
    /// Where that stands, and goes on to stand.
    pub policy_file: PolicyFile,
    /// On which interfaces.
    pub patterns: Patterns,
    /// On which of these not.
    pub excludes: Patterns,
    /// The tenants of interfaces.
    pub labels: Labels,
    /// In which network namespace: its name for `ip netns`; `None` = the current one.
    pub netns: Option<String>,
    /// Where a bpffs is, or may be mounted.
    pub bpffs: PathBuf,
    /// Where to say what it does.
    pub run_dir: PathBuf,
    /// Most flows tracked at a time.
    pub flows_max: u32,
    /// Most of them on one interface, so that no tenant fills the table for all; 0 = no limit.
    pub interface_quota: u32,
    /// Leave enforcement running when a signal ends the agent.
    pub persist: bool,
    /// Where to serve metrics, in the network namespace that the agent is started in; `None` =
    /// nowhere.
    pub metrics: Option<SocketAddr>,
}

/// Enforces until SIGINT or SIGTERM, then detaches and removes its pins unless it was told to
/// persist. Moves the calling thread into the namespace and blocks those signals in it: call it
/// from the main thread before there are others.
///
/// # Errors
/// Another agent runs here, or the kernel refused. What was
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
    start::refuse_partial(config, netns.name())?;
    let signals = signals()?;
    let metrics = config.metrics.map(Listener::bind_or_later);
    netns.enter()?;
    bpffs::ensure_mounted(&config.bpffs)?;
    // Listens before it lists, so that no interface falls in between.
    let watch = Watch::new()?;
    let mut instance = Instance::load(&config.policy, &options(config, &netns)?)?;
    report_takeover(&instance);
    replace_other_layouts(&mut instance, config, &netns)?;
    let mut agent = Agent::new(instance, config, &netns);
    agent.metrics = metrics;
    agent.reconcile()?;
    agent.look_around();
    report_uncovered();
    agent.serve_metrics();
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
    if let Err(error) = state::remove(&config.run_dir, netns.name()) {
        warn!("{error:#}");
    }
    info!("stopped: nothing is enforced any more");
    outcome
}

fn options(config: &Config, netns: &NetNs) -> Result<Options> {
    let survey = config.labels.survey();
    let tenants = interfaces::list()?.into_iter();
    let tenants = tenants.map(|interface| (interface.index, survey.of(&interface).name));
    Ok(Options {
        flows_max: config.flows_max,
        interface_quota: config.interface_quota,
        pins: Some(Pins::new(&config.bpffs, netns.name())),
        tenants: tenants.collect(),
        ..Options::default()
    })
}

fn replace_other_layouts(instance: &mut Instance, config: &Config, netns: &NetNs) -> Result<()> {
    let survey = config.labels.survey();
    let tenant = |interface: &Interface| survey.of(interface).name;
    for replaced in instance.replace_other_layouts(&config.bpffs, netns.name(), &tenant)? {
        let interfaces = replaced.interfaces.join(" ");
        warn!(
            layout = replaced.layout,
            interfaces,
            "took the place of an agent with another layout of its maps: its flows are met anew, and no \
             interface was without enforcement"
        );
        for failure in &replaced.failures {
            warn!("left by that agent and removed: {failure}");
        }
    }
    Ok(())
}

/// Names traffic that no hook sees.
fn report_uncovered() {
    match doctor::uncovered() {
        Ok(uncovered) => uncovered
            .iter()
            .for_each(|one| info!(what = one.what, "not covered: {}", one.why)),
        Err(error) => warn!("what is not covered is not known: {error:#}"),
    }
}

struct Agent<'a> {
    instance: Instance,
    config: &'a Config,
    /// The published state, as last written.
    state: State,
    written: Option<State>,
    /// Fingerprint of the policy file's text as last looked at, in force or refused.
    seen: String,
    /// The file whose policy is in force.
    in_place: InPlace,
    /// The kernel refused it: worth another try.
    retry: bool,
    /// Interfaces that it was not attached to and said so: name and why.
    refused: BTreeMap<u32, (String, String)>,
    /// Of them, those where it has failed.
    failed: BTreeSet<u32>,
    /// Failures that were said.
    troubles: Troubles,
    /// Where clients are to ask for metrics, once it is bound.
    metrics: Option<mpsc::Receiver<Listener>>,
    service: Service,
}

/// Facts that are found out once for all interfaces that are considered together.
struct Found<'a> {
    survey: Survey<'a>,
    uplinks: OnceCell<Result<BTreeSet<u32>, String>>,
}

impl<'a> Found<'a> {
    fn new(labels: &'a Labels) -> Self {
        Self {
            survey: labels.survey(),
            uplinks: OnceCell::new(),
        }
    }

    /// Asks the kernel only if some interface depends on it.
    fn is_uplink(&self, interface: &Interface) -> Result<bool, &str> {
        let ask = || interfaces::uplinks().map_err(|error| format!("{error:#}"));
        let uplinks = self.uplinks.get_or_init(ask).as_ref();
        let is_one = uplinks.map(|uplinks| uplinks.contains(&interface.index));
        is_one.map_err(String::as_str)
    }
}

/// Why enforcement on an interface has ended.
const GONE: &str = "the interface is gone";

/// Why the agent does something else than to wait.
enum Signalled {
    Stop,
    Reload,
}

impl<'a> Agent<'a> {
    fn new(instance: Instance, config: &'a Config, netns: &NetNs) -> Self {
        let read = Read::before(&config.policy_file);
        let policy = InForce::now(&read.file, read.id, &config.policy);
        let seen = policy.fingerprint.clone();
        let pid = std::process::id();
        let state = State {
            version: state::VERSION,
            pid,
            pid_started: state::process_started(pid).unwrap_or_default(),
            build: env!("CARGO_PKG_VERSION").to_owned(),
            layout: bpffs::LAYOUT_VERSION,
            netns: netns.name().to_owned(),
            bpffs: config.bpffs.clone(),
            policy,
            ..State::default()
        };
        Self {
            instance,
            config,
            state,
            written: None,
            seen,
            in_place: InPlace::new(read, &config.policy),
            retry: false,
            refused: BTreeMap::new(),
            failed: BTreeSet::new(),
            troubles: Troubles::default(),
            metrics: None,
            service: Service::of_environment(),
        }
    }

    /// Serves metrics as soon as their address could be bound.
    fn serve_metrics(&mut self) {
        let Some(listener) = self
            .metrics
            .as_ref()
            .and_then(|bound| bound.try_recv().ok())
        else {
            return;
        };
        if let Err(error) = self.serve_metrics_at(listener) {
            warn!("no metrics: {error:#}");
        }
    }

    fn serve_metrics_at(&self, listener: Listener) -> Result<()> {
        let netns = &self.state.netns;
        let pins = Pins::new(&self.config.bpffs, netns);
        let programs = self.instance.program_meter()?;
        let meter = Meter::new(pins, netns.clone(), programs);
        listener.serve(meter.with_names(&self.config.run_dir))
    }

    /// Nothing but a signal ends this: what fails is tried again.
    fn serve(&mut self, watch: &Watch, signals: &SignalFd) -> Result<()> {
        let mut round = Instant::now() + ROUND;
        let mut file_watch = self.watch_file();
        loop {
            self.service.alive();
            let due = file_watch.as_ref().and_then(FileWatch::due);
            let until = due.map_or(round, |due| due.min(round));
            self.wait(until, watch, signals, file_watch.as_ref());
            match signalled(signals)? {
                Some(Signalled::Stop) => return Ok(()),
                Some(Signalled::Reload) => self.reload(Look::Asked),
                None => {}
            }
            self.take_news(watch);
            if let Some(file_watch) = &mut file_watch {
                self.take_news_of_file(file_watch);
            }
            if round <= Instant::now() {
                round = Instant::now() + ROUND;
                self.retry_state();
                match &mut file_watch {
                    Some(file_watch) => drop(self.troubles.hear(FILE_WATCH, file_watch.renew())),
                    None => file_watch = self.watch_file(),
                }
                self.look_at_policy(file_watch.as_ref());
                self.reconcile_or_later();
                self.look_around();
                self.serve_metrics();
            }
            self.write_state();
            self.service.status(&self.status());
        }
    }

    /// Waits for news, at most until then.
    fn wait(
        &mut self,
        until: Instant,
        watch: &Watch,
        signals: &SignalFd,
        file_watch: Option<&FileWatch>,
    ) {
        let sources = [Some(signals.as_fd()), Some(watch.as_fd())].into_iter();
        let sources = sources.chain([file_watch.map(FileWatch::as_fd)]).flatten();
        let mut sources: Vec<_> = sources
            .map(|source| PollFd::new(source, PollFlags::POLLIN))
            .collect();
        let waited = match poll(&mut sources, self.service.patience(patience(until))) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        };
        self.hear("waiting for news", waited);
    }

    fn take_news(&mut self, watch: &Watch) {
        match self.hear("news of interfaces", watch.poll()) {
            Some(Some(events)) => self.handle(events),
            Some(None) => {
                warn!("news of interfaces were lost: listing them all again");
                self.reconcile_or_later();
            }
            None => {}
        }
    }

    fn take_news_of_file(&mut self, file_watch: &mut FileWatch) {
        self.hear("news of the policy file", file_watch.take());
        if file_watch.due().is_some_and(|due| due <= Instant::now()) {
            let is_created = file_watch.is_created();
            self.reload(Look::News { is_created });
            file_watch.done();
        }
    }

    /// Not every change of a file that a path leads to is news of its directory. One that is being
    /// written is looked at when it is closed.
    fn look_at_policy(&mut self, file_watch: Option<&FileWatch>) {
        // Without news a file that is another one may have been made at its place.
        let is_created = file_watch.is_none_or(FileWatch::is_created);
        if !file_watch.is_some_and(FileWatch::is_being_written) {
            self.reload(Look::News { is_created });
        }
    }

    /// `None`: the file is looked at every [`ROUND`] only.
    fn watch_file(&mut self) -> Option<FileWatch> {
        let watch = FileWatch::new(&self.config.policy_file.path);
        self.troubles.hear(FILE_WATCH, watch)
    }

    /// As [`Troubles::hear`], for what fails at once and would be tried again at once.
    fn hear<T>(&mut self, what: &str, result: Result<T>) -> Option<T> {
        if result.is_err() {
            std::thread::sleep(PAUSE);
        }
        self.troubles.hear(what, result)
    }

    fn reconcile_or_later(&mut self) {
        let reconciled = self.reconcile();
        self.troubles.hear("following interfaces", reconciled);
    }

    /// A line for the service manager.
    fn status(&self) -> String {
        let policy = match &self.state.reload {
            Some(reload) if !reload.adopted => ", the policy file is not in force",
            _ => "",
        };
        let interfaces = match self.instance.attached().count() {
            1 => "1 interface".to_owned(),
            count => format!("{count} interfaces"),
        };
        interfaces + policy
    }

    fn handle(&mut self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let found = Found::new(&self.config.labels);
        for event in events {
            match event {
                Event::Present(interface) => self.reconcile_interface(&interface, &found),
                Event::Gone { index } => self.forget(index, GONE),
            }
        }
    }

    /// Brings what is attached in line with what exists.
    fn reconcile(&mut self) -> Result<()> {
        let present = interfaces::list()?;
        let indices: BTreeSet<u32> = present.iter().map(|interface| interface.index).collect();
        for index in self.instance.interfaces().into_keys() {
            if !indices.contains(&index) {
                self.forget(index, GONE);
            }
        }
        self.let_go_of_lost();
        self.refused.retain(|index, _| indices.contains(index));
        self.failed.retain(|index| indices.contains(index));
        let found = Found::new(&self.config.labels);
        present
            .iter()
            .for_each(|interface| self.reconcile_interface(interface, &found));
        Ok(())
    }

    /// Attaches to an interface that the patterns cover; detaches from one renamed beyond them.
    fn reconcile_interface(&mut self, interface: &Interface, found: &Found<'_>) {
        let unwanted = self.unwanted(interface, found);
        match (self.instance.is_attached(interface.index), unwanted) {
            (false, None) => self.attach(interface, &found.survey),
            (true, None) => self.relabel(interface, &found.survey),
            (true, Some(why)) => self.forget(interface.index, &why),
            (false, Some(_)) => {}
        }
    }

    /// Why it is not to be enforced there; `None`: it is.
    fn unwanted(&mut self, interface: &Interface, found: &Found<'_>) -> Option<String> {
        let name = &interface.name;
        let by_name = if !self.config.patterns.matches(name) {
            Some("no --interface covers")
        } else if self.config.excludes.matches(name) {
            Some("--exclude covers")
        } else {
            None
        };
        if let Some(why) = by_name {
            self.forget_refusal(interface.index);
            return Some(format!("its name is {name}, which {why}"));
        }
        self.refuses(interface, found)
    }

    /// A wildcard does not reach interfaces that are probably no tenant's; says so once, and
    /// returns why.
    fn refuses(&mut self, interface: &Interface, found: &Found<'_>) -> Option<String> {
        if self.config.patterns.names(&interface.name) {
            return None;
        }
        let is_attached = self.instance.is_attached(interface.index);
        let doubt = match doubt(interface, found) {
            Ok(doubt) => doubt?,
            // What is attached stays so while nothing is known against it.
            Err(error) => {
                let why = format!("whether it is an uplink is not known: {error}");
                return (!is_attached).then(|| self.fail(interface, why));
            }
        };
        // One that was just made may yet become a tenant's.
        let settled = interface.up || !interface.is_cable();
        self.failed.remove(&interface.index);
        if settled && self.leave_out(interface, &doubt) {
            let interface_name = &interface.name;
            warn!(
                interface = interface_name,
                "not attached: {doubt} (name it without wildcards to attach all the same)"
            );
        }
        Some(doubt)
    }

    /// Notes an interface where it has failed; says so once, and returns why.
    fn fail(&mut self, interface: &Interface, why: String) -> String {
        self.failed.insert(interface.index);
        if self.leave_out(interface, &why) {
            error!(
                interface = interface.name,
                "not attached, tried again every {ROUND:?}: {why}"
            );
        }
        why
    }

    fn forget_refusal(&mut self, index: u32) {
        self.refused.remove(&index);
        self.failed.remove(&index);
    }

    /// Notes an interface that it is not attached to. Whether that is news.
    fn leave_out(&mut self, interface: &Interface, why: &str) -> bool {
        let said = (interface.name.clone(), why.to_owned());
        self.refused.insert(interface.index, said.clone()) != Some(said)
    }

    /// Attaches. One interface that cannot be had must not end enforcement on the others: it is
    /// noted, and tried again.
    fn attach(&mut self, interface: &Interface, survey: &Survey<'_>) {
        let label = survey.of(interface);
        let attached = match Reserve::take() {
            Ok(_reserve) => self.instance.attach_tenant(interface, &label.name),
            Err(error) => Err(error),
        };
        match attached {
            Ok(()) => {
                self.forget_refusal(interface.index);
                self.name_place(interface, &label.name, label.from);
                info!(interface = interface.name, tenant = label.name, "attached");
            }
            Err(error) => {
                self.fail(interface, format!("{error:#}"));
            }
        }
    }

    /// Follows an interface's new name, or its tenant's.
    fn relabel(&mut self, interface: &Interface, survey: &Survey<'_>) {
        let label = survey.of(interface);
        if survey.is_partial() && self.may_be_unread(interface, label.from) {
            return;
        }
        if !self.instance.is_labelled(interface, &label.name) {
            match self.instance.relabel(interface, &label.name) {
                Ok(flows) => info!(
                    interface = interface.name,
                    tenant = label.name,
                    tenant_from = label.from,
                    flows_rematched = flows,
                    "labelled"
                ),
                Err(error) => {
                    error!(interface = interface.name, "not labelled: {error:#}");
                    return;
                }
            }
        }
        self.name_place(interface, &label.name, label.from);
    }

    /// Whether the name of its tenant came from a file that may be the one that could not be read.
    fn may_be_unread(&self, interface: &Interface, from: &str) -> bool {
        let place = self.state.interfaces.get(&interface.index);
        place.is_some_and(|place| {
            place.name == interface.name
                && Label::is_recorded(&place.tenant_from)
                && place.tenant_from != from
                && (Label::is_recorded(from) || from == "interface")
        })
    }

    fn forget(&mut self, index: u32, why: &str) {
        self.state.interfaces.remove(&index);
        if why == GONE {
            self.forget_refusal(index);
        }
        let Some(name) = self.instance.interfaces().remove(&index) else {
            return;
        };
        match self.instance.detach_index(index) {
            Ok(()) => info!(interface = name, "detached: {why}"),
            Err(error) => error!(interface = name, "detached: {why}; but: {error:#}"),
        }
    }
}

/// Why this is probably no tenant's interface.
fn doubt<'a>(interface: &Interface, found: &'a Found<'_>) -> Result<Option<String>, &'a str> {
    if let Some(doubt) = interface.doubt() {
        return Ok(Some(doubt));
    }
    Ok(found.is_uplink(interface)?.then(|| {
        "the default route leaves through it: an uplink, where directions are the wrong way round"
            .to_owned()
    }))
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

/// Rounded up, so that it is over when the wait is.
fn patience(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now()) + Duration::from_millis(1)
}

fn signals() -> Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        set.add(signal);
    }
    set.thread_block().context("blocking signals")?;
    SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .context("waiting for signals")
}

/// Signals that have come; one to stop counts more than one to reload.
fn signalled(signals: &SignalFd) -> Result<Option<Signalled>> {
    let mut found = None;
    while let Some(signal) = signals.read_signal().context("reading a signal")? {
        if signal.ssi_signo == Signal::SIGHUP as u32 {
            found = Some(Signalled::Reload);
            continue;
        }
        info!(signal = signal.ssi_signo, "asked to stop");
        return Ok(Some(Signalled::Stop));
    }
    Ok(found)
}
