//! One run of one variant, from nothing to nothing.

use std::{
    collections::VecDeque,
    io::{self, Write},
    path::PathBuf,
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result, bail};
use rustix::fd::AsFd;
use sluicegate_agent::{interfaces, netns::NetNs};
use sluicegate_labkit::{
    ignore_window::IgnoreWindow,
    tenant_cc::{self, Guard},
};
use sluicegate_scenario::{
    experiment::{Action, Event, TenantKind, Variant},
    results::{Conditions, LinkResult},
    workload::{collect::Seen, windows::Windows},
    world::{Observer, Outcome},
};

use crate::{
    clean::{self, CleanReport},
    collect::{self, Observed},
    emulated,
    enforcers::Enforcers,
    foreign::{self, Options},
    guest::{self, Attachment, Kernel, Port},
    host_switch::{self, HostSwitches, SwitchCounts},
    journal::Journal,
    measure::{
        cpu::{self, Idle, IdleMin},
        outside::Outside,
        queues::{Queues, Snapshot},
    },
    net::{
        Network,
        layout::tenant_commands,
        names::{Names, TENANT_INTERFACE, tenant_mac, vnic},
    },
    tenant::TenantProcess,
    tenant::{self, Flow, Plan, Report},
};

/// How long tenants may take to open their listeners; a guest boots first.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long tenants may take to report after the end.
const REPORT_TIMEOUT: Duration = Duration::from_secs(20);
/// Time between samples of queues and windows; twice that beyond [`MANY_HOSTS`] enforcing hosts.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// From here on, reading all flow tables costs a noticeable share of a CPU.
const MANY_HOSTS: usize = 20;
/// Time between live lines.
const LIVE_INTERVAL: Duration = Duration::from_millis(500);

/// Announces a phase, unless the user asked to stop.
fn enter(observer: &mut dyn Observer, phase: &str) -> Result<()> {
    stop_if_asked(observer)?;
    observer.phase(phase);
    Ok(())
}

fn stop_if_asked(observer: &dyn Observer) -> Result<()> {
    if observer.cancelled() {
        bail!("stopped by the user");
    }
    Ok(())
}

/// Undoes everything that the journal names when it goes, whatever the reason.
#[derive(Debug)]
struct Teardown(PathBuf);

impl Drop for Teardown {
    fn drop(&mut self) {
        let mut report = CleanReport::default();
        let undone = clean::undo(&self.0, &mut report);
        for failure in undone
            .err()
            .iter()
            .map(|error| format!("{error:#}"))
            .chain(report.failed)
        {
            // The rest is undone whether this can be read or not.
            let _ = writeln!(io::stderr(), "cleaning up the lab: {failure}");
        }
    }
}

/// A built network with enforcement, switches and tenants that wait for the start. Fields go in
/// this order.
#[derive(Debug)]
pub struct Run<'a> {
    tenants: Vec<TenantProcess>,
    switches: HostSwitches,
    /// Children open their namespaces through these descriptors of ours.
    netns: Vec<NetNs>,
    enforcers: Enforcers,
    queues: Queues<'a>,
    network: Network,
    _cheats: Option<IgnoreWindow>,
    _stacks: Guard,
    _teardown: Teardown,
    variant: &'a Variant,
    options: &'a Options,
    flows: Vec<Flow>,
}

impl<'a> Run<'a> {
    /// Builds everything; tenants are ready when this returns.
    ///
    /// # Errors
    /// The machine refuses an object; everything made so far is removed.
    pub fn build(
        variant: &'a Variant,
        seed: u64,
        options: &'a Options,
        observer: &mut dyn Observer,
    ) -> Result<Self> {
        let names = Names::new();
        let mut journal = Journal::create(names.run())?;
        let teardown = Teardown(journal.path().to_owned());
        enter(observer, "building the network")?;
        let network = Network::build(variant, names, &mut journal)?;
        let switches = HostSwitches::start(variant, &network, &mut journal)?;
        let emulation = emulated::start(variant, &switches, seed)?;
        let queues = Queues::attach(variant, &network, emulation)?;
        let stacks = stacks(variant)?;
        if variant.enforcement.is_some() {
            enter(observer, "attaching enforcement")?;
        }
        let enforcers = Enforcers::attach(variant, &network)?;
        let cheats = cheats(variant, &network)?;
        enter(observer, "starting tenants")?;
        let mut plans = plans(variant, seed, &stacks)?;
        plans
            .iter_mut()
            .for_each(|plan| plan.verify |= options.verify);
        let mut run = Self {
            tenants: Vec::new(),
            switches,
            netns: Vec::new(),
            enforcers,
            queues,
            network,
            _cheats: cheats,
            _stacks: stacks,
            _teardown: teardown,
            variant,
            options,
            flows: tenant::flows(variant),
        };
        for (id, plan) in plans.iter().enumerate() {
            let netns = run.tenant_netns(id)?;
            let process = run.start_tenant(id, plan, &netns)?;
            run.netns.push(netns);
            journal.add_child(process.pid() as i32)?;
            run.tenants.push(process);
        }
        for tenant in &mut run.tenants {
            stop_if_asked(observer)?;
            tenant.wait_ready(READY_TIMEOUT)?;
        }
        run.network.until_forwarding()?;
        Ok(run)
    }

    /// Where a tenant's process belongs: its own namespace, or for a guest that of its host.
    fn tenant_netns(&self, id: usize) -> Result<NetNs> {
        let (tenant, names) = (&self.variant.tenants[id], &self.network.names);
        match tenant.kind {
            TenantKind::Namespace => NetNs::named(&names.tenant(id)),
            TenantKind::Guest => NetNs::named(&names.host(tenant.host)),
        }
    }

    fn start_tenant(&self, id: usize, plan: &Plan, netns: &NetNs) -> Result<TenantProcess> {
        if let Some(program) = self.options.programs.get(&id) {
            return foreign::spawn(program, self.variant, id, plan, netns.as_fd());
        }
        match self.variant.tenants[id].kind {
            TenantKind::Namespace => tenant::spawn(plan, netns.as_fd()),
            TenantKind::Guest => {
                let attachment = Attachment {
                    port: match self.switches.socket(id) {
                        Some(socket) => Port::VhostUser(socket),
                        None => Port::Tap(vnic(id)),
                    },
                    mac: tenant_mac(id),
                    commands: tenant_commands(self.variant, id),
                    offloads: self.variant.lab.offloads,
                    kernel: Kernel::from(self.variant.lab.guest_kernel)
                        .with_recovery(self.variant.tenants[id].tcp.recovery),
                };
                guest::spawn(plan, netns.as_fd(), &attachment)
            }
        }
    }

    /// Starts the tenants, follows the run, gathers what was measured. Everything is removed at the
    /// end.
    ///
    /// # Errors
    /// A tenant died, the user asked to stop.
    pub fn measure(mut self, observer: &mut dyn Observer) -> Result<(Outcome, Vec<Report>)> {
        enter(observer, "running")?;
        let started = SystemTime::now();
        let outside = Outside::read(&self.network)?;
        let first = (self.queues.snapshot()?, self.switches.counts()?);
        // Every tenant must have read its start before it comes.
        let lead = Duration::from_millis(100 + 2 * self.tenants.len() as u64);
        let start_unix_ns = tenant::unix_ns() + lead.as_nanos() as u64;
        for tenant in &mut self.tenants {
            tenant.set_start(start_unix_ns)?;
        }
        let start = Instant::now() + lead;
        let followed = self.observe(start, observer)?;
        observer.phase("collecting");
        let last = (self.queues.snapshot()?, self.switches.counts()?);
        let reports = self.reports()?;
        let vnics = host_switch::results(self.variant, &reports, &followed.ports);
        let (mut losses, mut notes) = Outside::read(&self.network)?.since(&outside);
        notes.extend(followed.notes);
        notes.extend(host_switch::notes(self.variant, &followed.ports));
        let emulated = followed.end.emulated_since(&followed.warm);
        if let Some((_, lost)) = last.0.emulated_since(&first.0) {
            losses.insert("fabric_dropped".to_owned(), lost);
        }
        let [before, after] = &followed.ports;
        let observed = Observed {
            seen: Seen {
                variant: self.variant,
                flows: &self.flows,
                reports: &reports,
                links: self.links((&followed.warm, before), (&followed.end, after)),
                enforcement: self.enforcers.counters(&self.switches)?,
                windows: followed.windows,
                backlogs: followed.backlogs,
                cpu_idle_min: Some(followed.idle.all),
            },
            vnics,
            links_whole_run: self.links((&first.0, &first.1), (&last.0, &last.1)),
            ports_whole_run: host_switch::found_full(&first.1, &last.1),
            outside: losses,
            lag: emulated.map(|(lag, _)| lag),
            idle: followed.idle,
            notes,
            started,
        };
        let outcome = collect::outcome(observed)?;
        Ok((outcome, reports))
    }

    /// Links between two moments, with what hosts' switches dropped in front of them.
    fn links(
        &self,
        from: (&Snapshot, &SwitchCounts),
        to: (&Snapshot, &SwitchCounts),
    ) -> Vec<LinkResult> {
        let mut links = self.queues.results(from.0, to.0);
        host_switch::add_uplinks(self.variant, [from.1, to.1], &mut links);
        links
    }

    /// Samples queues, windows and CPUs until the run ends.
    fn observe(&mut self, start: Instant, observer: &mut dyn Observer) -> Result<Followed> {
        let end = self.variant.warmup + self.variant.duration;
        let mut follower = Follower::new(self, start);
        loop {
            stop_if_asked(observer)?;
            let now = start.elapsed();
            follower.tick(self, now, observer)?;
            if now >= end {
                return follower.finish(self);
            }
            thread::sleep(follower.interval.min(end.saturating_sub(now)));
        }
    }

    fn reports(&mut self) -> Result<Vec<Report>> {
        let (options, variant) = (self.options, self.variant);
        let reports = self.tenants.iter_mut().enumerate();
        let reports = reports.map(|(id, tenant)| match options.programs.contains_key(&id) {
            true => foreign::report(tenant, variant, id, REPORT_TIMEOUT),
            false => tenant.wait_report(REPORT_TIMEOUT),
        });
        reports.collect()
    }
}

/// Observations made while the tenants ran.
struct Followed {
    warm: Snapshot,
    end: Snapshot,
    /// Switches of hosts before and after measured time.
    ports: [SwitchCounts; 2],
    windows: Windows,
    backlogs: Vec<(String, Vec<(f64, f64)>)>,
    idle: IdleMin,
    notes: Vec<String>,
}

/// Samples, carries out events, keeps the user informed.
struct Follower {
    start: Instant,
    interval: Duration,
    events: VecDeque<Event>,
    windows: Windows,
    backlogs: Vec<(String, Vec<(f64, f64)>)>,
    idle: Option<Idle>,
    warm: Option<(Snapshot, SwitchCounts)>,
    live: Live,
    notes: Vec<String>,
}

impl Follower {
    fn new(run: &Run<'_>, start: Instant) -> Self {
        let mut events = run.variant.events.clone();
        events.sort_by_key(|event| event.at);
        let enforcing = run
            .variant
            .enforcement
            .as_ref()
            .map_or(0, |enforcement| enforcement.hosts.len());
        let slow = if enforcing > MANY_HOSTS { 2 } else { 1 };
        Self {
            start,
            interval: SAMPLE_INTERVAL * slow,
            events: events.into(),
            windows: Windows::new(run.variant, &run.flows),
            backlogs: Vec::new(),
            idle: None,
            warm: None,
            live: Live::default(),
            notes: Vec::new(),
        }
    }

    fn tick(
        &mut self,
        run: &mut Run<'_>,
        now: Duration,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        while self.events.front().is_some_and(|event| event.at <= now) {
            if let Some(event) = self.events.pop_front() {
                self.carry_out(run, &event.action, now)?;
            }
        }
        if self.warm.is_none() && now >= run.variant.warmup {
            self.warm = Some((run.queues.snapshot()?, run.switches.counts()?));
            self.idle = Some(Idle::start()?);
        }
        if let Some(idle) = &mut self.idle {
            idle.sample()?;
        }
        self.sample(run)?;
        if let Some(line) = self.live.line(run, now)? {
            let total = run.variant.warmup + run.variant.duration;
            observer.progress(now.min(total), total, &line);
        }
        Ok(())
    }

    fn carry_out(&mut self, run: &mut Run<'_>, action: &Action, now: Duration) -> Result<()> {
        let what = match action {
            Action::Detach(hosts) => {
                run.enforcers.detach(hosts, &run.switches)?;
                let names: Vec<&str> = hosts
                    .iter()
                    .map(|&host| run.variant.host_name(host))
                    .collect();
                format!("enforcement detached from {}", names.join(", "))
            }
            Action::BleachEcn => {
                run.queues.bleach()?;
                "the switches clear ECN codepoints".to_owned()
            }
            other => bail!("an event that the check refuses: {other:?}"),
        };
        self.notes
            .push(format!("at {:.2} s: {what}", now.as_secs_f64()));
        Ok(())
    }

    fn sample(&mut self, run: &Run<'_>) -> Result<()> {
        let now_s = self.start.elapsed().as_secs_f64();
        let backlogs = run.queues.backlogs()?;
        if self.backlogs.is_empty() {
            self.backlogs = backlogs
                .iter()
                .map(|(name, _)| (name.clone(), Vec::new()))
                .collect();
        }
        for ((_, points), (_, bytes)) in self.backlogs.iter_mut().zip(backlogs) {
            points.push((now_s, bytes as f64));
        }
        if !run.enforcers.is_empty() {
            let tracked = run.enforcers.flows(&run.switches)?;
            let each = tracked.iter().map(|(key, flow)| (key, flow));
            self.windows.add(now_s, each);
        }
        Ok(())
    }

    fn finish(mut self, run: &Run<'_>) -> Result<Followed> {
        let (end, ports) = (run.queues.snapshot()?, run.switches.counts()?);
        let idle = self
            .idle
            .context("the run ended before its warm-up")?
            .finish()?;
        if idle.one < cpu::ONE_BUSY_BELOW {
            self.notes.push(format!(
                "one CPU was {:.0} % idle in its busiest second and {:.0} % in interrupts, all together {:.0} % idle",
                idle.one * 100.0,
                idle.interrupts * 100.0,
                idle.all * 100.0
            ));
        }
        if idle.stolen > Conditions::CPU_STOLEN_ABOVE {
            self.notes.push(format!(
                "the hypervisor took {:.0} % of one CPU in one second",
                idle.stolen * 100.0
            ));
        }
        let (warm, before) = self.warm.context("the run ended before its warm-up")?;
        Ok(Followed {
            warm,
            end,
            ports: [before, ports],
            windows: self.windows,
            backlogs: self.backlogs,
            idle,
            notes: self.notes,
        })
    }
}

/// The line of figures that a user sees while a run goes on.
#[derive(Default)]
struct Live {
    last: Option<(Duration, u64)>,
}

impl Live {
    /// Every half second: what the bottlenecks carry and hold.
    fn line(&mut self, run: &Run<'_>, now: Duration) -> Result<Option<String>> {
        if self
            .last
            .is_some_and(|(then, _)| now.saturating_sub(then) < LIVE_INTERVAL)
        {
            return Ok(None);
        }
        let bytes = run.queues.bottleneck_bytes()?;
        let Some((then, before)) = self.last.replace((now, bytes)) else {
            return Ok(None);
        };
        let seconds = now.saturating_sub(then).as_secs_f64();
        let mbps = bytes.saturating_sub(before) as f64 * 8e-6 / seconds;
        let queue_kb = run
            .queues
            .backlogs()?
            .iter()
            .map(|(_, bytes)| *bytes)
            .max()
            .unwrap_or(0)
            / 1000;
        Ok(Some(format!(
            "{mbps:7.1} Mbit/s through the bottleneck, queue {queue_kb:4} KB"
        )))
    }
}

/// Registers the stacks that namespaces' tenants need and this kernel lacks.
fn stacks(variant: &Variant) -> Result<Guard> {
    let namespaces = variant
        .tenants
        .iter()
        .filter(|tenant| tenant.kind == TenantKind::Namespace);
    let names: Vec<&str> = namespaces
        .map(|tenant| tenant.congestion_control.as_str())
        .collect();
    tenant_cc::register(&names)
}

/// Programs in the namespaces of tenants that ignore windows.
fn cheats(variant: &Variant, network: &Network) -> Result<Option<IgnoreWindow>> {
    let mut loaded = None;
    for id in (0..variant.tenants.len()).filter(|&id| variant.tenants[id].ignore_window) {
        let cheats = match &mut loaded {
            Some(cheats) => cheats,
            none => none.insert(IgnoreWindow::load()?),
        };
        Network::within(&network.names.tenant(id), || {
            cheats.attach(interfaces::find(TENANT_INTERFACE)?.index)
        })
        .with_context(|| format!("tenant {}", variant.tenants[id].name))?;
    }
    Ok(loaded)
}

/// Plans with the kernel's names of congestion controls.
fn plans(variant: &Variant, seed: u64, stacks: &Guard) -> Result<Vec<Plan>> {
    let mut plans = tenant::plans(variant, seed)?;
    for (plan, tenant) in plans.iter_mut().zip(&variant.tenants) {
        if tenant.kind != TenantKind::Namespace {
            continue;
        }
        if let Some(name) = stacks.kernel_name(&tenant.congestion_control) {
            plan.congestion_control = name.to_owned();
        }
    }
    Ok(plans)
}
