//! The simulator as a [`World`].

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use sluicegate_apps::App;
use sluicegate_core::{abi::COUNTER_NAMES, number::narrow};
use sluicegate_scenario::{
    experiment::{Action, Experiment, HostId, Variant},
    results::{Conditions, Deadlock, LinkResult},
    workload::{
        self, Flow, Report,
        collect::{self, Seen},
        errors,
        plan::Numbers,
        windows::Windows,
    },
    world::{Observer, Outcome, Problem, World},
};
use sluicegate_vswitch::Passed;

use crate::{
    build::{self, FabricOf},
    capture::Capture,
    converged::{self, Converged},
    engine::Engine,
    film::Recorder,
    limits,
    measure::{self, Backlogs, Counts, Queue},
    net::{Net, Plain},
    trace::Traces,
    vnics,
};

/// As given to `--world`.
pub(crate) const NAME: &str = "sim";

/// The least time between two looks whether the connections of a program stand.
const SET_OFF_PS: u64 = 1_000_000;

/// Samples of queues and windows in a run.
const SAMPLES: u64 = 500;

/// Wall time between live lines.
const LIVE_INTERVAL: Duration = Duration::from_millis(200);

/// Number of hosts from which several threads gain more time than their barriers cost.
const HOSTS_FOR_THREADS: usize = 64;

/// How many threads a run has. Results do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// One thread; in large networks a thread for each CPU, while that is faster.
    #[default]
    Auto,
    /// So many threads, but no more than hosts, while that is faster.
    UpTo(usize),
    /// So many threads, but no more than hosts, even where that is slower.
    Exactly(usize),
}

impl Threads {
    fn of(self, hosts: usize) -> usize {
        match self {
            Self::UpTo(count) | Self::Exactly(count) => count,
            Self::Auto if hosts < HOSTS_FOR_THREADS => 1,
            Self::Auto => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// Runs scenarios in simulated time. Needs no privileges.
#[derive(Debug, Default)]
pub struct Sim {
    /// Threads of a run.
    pub threads: Threads,
}

impl World for Sim {
    fn name(&self) -> &'static str {
        NAME
    }

    fn limits(&self, experiment: &Experiment) -> Vec<Problem> {
        limits::of(experiment)
    }

    fn run(
        &mut self,
        experiment: &Experiment,
        variant: &Variant,
        seed: u64,
        observer: &mut dyn Observer,
    ) -> Result<Outcome> {
        observer.phase("running");
        let threads = match &experiment.inspect.captures {
            // A capture file has packets from all over the network, in order.
            Some(_) => 1,
            None => self.threads.of(variant.hosts.len()),
        };
        if threads > 1 && self.threads != Threads::Auto && !build::is_divisible(variant) {
            observer.note(build::INDIVISIBLE);
        }
        // The only choice between the fabrics: the code below is compiled for each.
        match variant.cee {
            None => self.run_on::<Plain>((experiment, variant), seed, threads, observer),
            Some(_) => self.run_on::<Converged>((experiment, variant), seed, threads, observer),
        }
    }
}

impl Sim {
    fn run_on<F: FabricOf>(
        &self,
        (experiment, variant): (&Experiment, &Variant),
        seed: u64,
        threads: usize,
        observer: &mut dyn Observer,
    ) -> Result<Outcome> {
        let mut run = Run::<F>::build(variant, seed, threads)?;
        if !matches!(self.threads, Threads::Exactly(_)) {
            run.engine.choose_drive();
        }
        run.inspect(experiment, seed)?;
        run.measure(observer)
    }
}

/// One run of one variant.
struct Run<'a, F> {
    variant: &'a Variant,
    engine: Engine<App, F>,
    flows: Vec<Flow>,
    queues: Vec<Queue>,
    /// Those of hosts that results do not speak of unless they drop.
    adapters: Vec<Queue>,
    windows: Windows,
    backlogs: Vec<(String, Vec<(f64, f64)>)>,
    counters: [u64; COUNTER_NAMES.len()],
    traces: Option<(Traces, Duration)>,
    deadlock: Option<Deadlock>,
    film: Option<(Recorder, Duration)>,
    /// By link, whether switches know that it has failed.
    failed: Vec<bool>,
    /// Programs may wait until all their connections stand.
    holds_programs: bool,
}

/// The counters at the beginning of measured time.
#[derive(Default)]
struct Before {
    /// Of queues, then of adapters.
    queues: Vec<Counts>,
    vnics: Vec<Passed>,
}

impl<'a, F: FabricOf> Run<'a, F> {
    fn build(variant: &'a Variant, seed: u64, threads: usize) -> Result<Self> {
        let flows = workload::flows(variant);
        let queues = measure::queues(variant);
        let bottlenecks = queues.iter().filter(|queue| queue.bottleneck);
        Ok(Self {
            variant,
            engine: build::engine(variant, seed, threads)?,
            windows: Windows::new(variant, &flows),
            backlogs: bottlenecks
                .map(|queue| (queue.name.clone(), Vec::new()))
                .collect(),
            flows,
            queues,
            adapters: measure::adapters(variant),
            counters: [0; COUNTER_NAMES.len()],
            traces: None,
            deadlock: None,
            film: None,
            failed: vec![false; variant.links.len()],
            holds_programs: variant.traffic.iter().any(|it| it.kind.is_program()),
        })
    }

    /// Opens captures, begins traces and a film, if any are asked for.
    fn inspect(&mut self, experiment: &Experiment, seed: u64) -> Result<()> {
        let (variant, asked) = (self.variant, &experiment.inspect);
        if let Some(captures) = &asked.captures {
            let directory = captures.directory.join(experiment.run_name(variant, seed));
            let capture = Capture::open(captures, variant, &directory)?;
            let net = self.engine.nets().next();
            let net = net.context("a network has a part")?;
            net.observers.capture = Some(Box::new(capture));
            net.watch_captured();
        }
        self.traces = asked.traces.as_ref().map(|traces| {
            let series = Traces::new(traces, variant, &self.flows, &self.queues);
            (series, traces.interval(variant))
        });
        if self.traces.is_some() {
            self.engine
                .nets()
                .for_each(|net| net.sockets.keeps_all = true);
        }
        self.film = asked.films.as_ref().map(|films| {
            let interval = films.interval(variant);
            (Recorder::new(variant, interval), interval)
        });
        Ok(())
    }

    fn measure(mut self, observer: &mut dyn Observer) -> Result<Outcome> {
        let mut before = Before::default();
        let mut live = Live::new(self.variant.warmup + self.variant.duration);
        self.engine.begin();
        for (at_ps, stop) in self.stops() {
            self.set_off_until(at_ps, &mut live, observer)?;
            self.run_until(at_ps, &mut live, observer)?;
            match stop {
                Stop::Measure => {
                    before = self.counts();
                    self.begin_measuring_backlogs();
                }
                Stop::Event(index) => self.act(index),
                Stop::Reroute(index) => self.reroute(index),
                Stop::Sample => {
                    self.sample();
                    self.look_for_deadlock();
                    if self.is_complete() || self.stands_still() {
                        break;
                    }
                }
                Stop::Trace => {
                    if let Some((traces, _)) = &mut self.traces {
                        traces.sample(&mut self.engine);
                    }
                }
                Stop::Frame => {
                    if let Some((film, _)) = &mut self.film {
                        film.sample(&mut self.engine);
                    }
                }
                Stop::End => {}
            }
        }
        self.engine.account()?;
        let end_ps = self.engine.now_ps();
        for capture in self
            .engine
            .nets()
            .filter_map(|net| net.observers.capture.take())
        {
            capture.finish(end_ps)?;
        }
        Ok(self.outcome(&before))
    }

    /// Runs while programs are held whose connections do not all stand, and looks now and then
    /// whether they do: after steps that grow with the time since the program's start, so that a
    /// program begins at most a sixteenth of that later than it could. The times of looking are
    /// those of the scenario, whatever the threads do.
    fn set_off_until(
        &mut self,
        until_ps: u64,
        live: &mut Live,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        while self.holds_programs {
            let now_ps = self.engine.now_ps();
            let programs = self.variant.traffic.iter();
            let starts = programs.filter(|traffic| traffic.kind.is_program());
            let steps = starts.map(|traffic| {
                let start_ps = ps(traffic.start);
                match now_ps.checked_sub(start_ps) {
                    None => start_ps - now_ps,
                    Some(since_ps) => (since_ps / 16).max(SET_OFF_PS),
                }
            });
            let next_ps = now_ps.saturating_add(steps.min().unwrap_or(until_ps));
            if next_ps >= until_ps {
                break;
            }
            self.run_until(next_ps, live, observer)?;
            self.holds_programs = self.engine.set_off();
        }
        Ok(())
    }

    /// Whether warm-up is over, and the actors that decide how long the run lasts have finished.
    fn is_complete(&self) -> bool {
        self.engine.now_ps() > ps(self.variant.warmup) && self.engine.is_complete()
    }

    fn is_of_programs(&self) -> bool {
        let mut traffic = self.variant.traffic.iter();
        traffic.any(|traffic| traffic.kind.is_program())
    }

    /// Whether a program waits and nothing will ever happen again.
    fn stands_still(&mut self) -> bool {
        if self.holds_programs {
            self.holds_programs = self.engine.set_off();
        }
        self.is_of_programs()
            && self.engine.now_ps() > ps(self.variant.warmup)
            && self.engine.now_ps() > self.last_event_ps()
            && self.engine.is_idle()
    }

    /// When the last of the scenario's events, or the change of routes after it, takes place.
    fn last_event_ps(&self) -> u64 {
        let delay = self.variant.reroute_delay.unwrap_or_default();
        let events = self.variant.events.iter();
        events.map(|event| ps(event.at + delay)).max().unwrap_or(0)
    }

    /// The variant as it was run: shorter if all was complete before its end.
    fn as_run(&self) -> Variant {
        let measured_ps = self.engine.now_ps() - ps(self.variant.warmup);
        let measured = Duration::from_nanos(measured_ps / 1_000);
        Variant {
            duration: measured.min(self.variant.duration),
            ..self.variant.clone()
        }
    }

    /// The events at fixed times, in order.
    fn stops(&self) -> Vec<(u64, Stop)> {
        let end_ps = ps(self.variant.warmup + self.variant.duration);
        let samples = (1..=SAMPLES).map(|n| {
            (
                narrow::<u64>(u128::from(end_ps) * u128::from(n) / u128::from(SAMPLES)),
                Stop::Sample,
            )
        });
        let events = self.variant.events.iter().enumerate();
        let mut stops: Vec<_> = events
            .map(|(n, event)| (ps(event.at), Stop::Event(n)))
            .collect();
        if let Some(delay) = self.variant.reroute_delay {
            let events = self.variant.events.iter().enumerate();
            let of_links = events.filter(|(_, event)| {
                matches!(event.action, Action::LinkDown(_) | Action::LinkUp(_))
            });
            let reroutes = of_links.map(|(n, event)| (ps(event.at + delay), Stop::Reroute(n)));
            stops.extend(reroutes.filter(|&(at_ps, _)| at_ps < end_ps));
        }
        if let Some((_, interval)) = &self.traces {
            let interval_ps = ps(*interval).max(1);
            stops.extend((1..=end_ps / interval_ps).map(|n| (n * interval_ps, Stop::Trace)));
        }
        if let Some((_, interval)) = &self.film {
            let interval_ps = ps(*interval).max(1);
            stops.extend((1..=end_ps / interval_ps).map(|n| (n * interval_ps, Stop::Frame)));
        }
        stops.push((ps(self.variant.warmup), Stop::Measure));
        stops.extend(samples);
        stops.push((end_ps, Stop::End));
        stops.sort_by_key(|&(at_ps, stop)| (at_ps, stop));
        stops
    }

    /// Handles every event before `until_ps`.
    fn run_until(
        &mut self,
        until_ps: u64,
        live: &mut Live,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        self.engine.run_until(until_ps, &mut |hops, now_ps| {
            live.look(hops, now_ps, observer)
        })
    }

    /// From now on, the backlogs that arriving packets meet are measured.
    fn begin_measuring_backlogs(&mut self) {
        let variant = self.variant;
        let in_order = |queue: &&Queue| queue.is_in_order(variant);
        for queue in self.queues.iter().filter(in_order) {
            let net = self.engine.net_of_port(queue.port());
            let ports = net.fabric.ports().len();
            let backlogs = net
                .observers
                .backlogs
                .get_or_insert_with(|| Backlogs::new(ports));
            backlogs.track(queue.port());
        }
    }

    fn act(&mut self, event: usize) {
        let variant = self.variant;
        match &variant.events[event].action {
            Action::Detach(hosts) => {
                for &host in hosts {
                    let net = self.engine.net_of_host(host);
                    if let Some(vnics) = net.hosts[host.index()].switch.vnics.take() {
                        add(&mut self.counters, &vnics.counters().0);
                    }
                }
            }
            Action::BleachEcn => self.engine.nets().for_each(|net| net.bleach = true),
            Action::LinkDown(links) => self.on_links(links, |net, link| net.set_link(link, false)),
            Action::LinkUp(links) => self.on_links(links, |net, link| net.set_link(link, true)),
            Action::Impair { links, change } => self.on_links(links, |net, link| {
                net.impair(link, |before| change.of(before));
            }),
            Action::LinkRate { links, rate_bps } => {
                self.on_links(links, |net, link| net.set_rate(link, *rate_bps));
            }
            Action::Pause(hosts) => self.on_hosts(hosts, Net::pause),
            Action::Resume(hosts) => self.on_hosts(hosts, Net::resume),
            Action::PauseStorm(hosts) => self.on_adapters(hosts, |net, host| net.storm(host, true)),
            Action::EndPauseStorm(hosts) => {
                self.on_adapters(hosts, |net, host| net.storm(host, false))
            }
            Action::Babble(hosts) => self.on_adapters(hosts, |net, host| net.babble(host, true)),
            Action::EndBabble(hosts) => {
                self.on_adapters(hosts, |net, host| net.babble(host, false))
            }
            Action::ReadRate { tenants, rate_bps } => {
                for &tenant in tenants {
                    let host = variant.tenants[tenant].host;
                    let net = self.engine.net_of_host(host);
                    net.set_read_rate(narrow::<u32>(tenant), *rate_bps);
                }
            }
        }
        self.engine.hear();
    }

    /// Switches learn that links have failed or work again.
    fn reroute(&mut self, event: usize) {
        let (links, fails) = match &self.variant.events[event].action {
            Action::LinkDown(links) => (links, true),
            Action::LinkUp(links) => (links, false),
            _ => return,
        };
        links.iter().for_each(|&link| self.failed[link] = fails);
        let around = self.failed.contains(&true).then(|| {
            let graph = self.variant.graph();
            Arc::new(self.variant.routes_around(&graph, &self.failed))
        });
        for net in self.engine.nets() {
            let whole = &net.layout.routes;
            net.reroute(Arc::clone(around.as_ref().unwrap_or(whole)));
        }
    }

    /// Both ends of a link may be different parts'.
    fn on_links(&mut self, links: &[usize], act: impl Fn(&mut Net<F>, usize)) {
        for net in self.engine.nets() {
            links.iter().for_each(|&link| act(net, link));
        }
    }

    fn on_hosts(&mut self, hosts: &[HostId], act: impl Fn(&mut Net<F>, HostId)) {
        for &host in hosts {
            act(self.engine.net_of_host(host), host);
        }
    }

    /// Only adapters of converged Ethernet have such failures.
    fn on_adapters(&mut self, hosts: &[HostId], act: impl Fn(&mut Net<Converged>, HostId)) {
        self.on_hosts(hosts, |net, host| {
            if let Some(net) = F::converged(net) {
                act(net, host);
            }
        });
    }

    fn sample(&mut self) {
        let now_s = self.engine.now_ps() as f64 / 1e12;
        let bottlenecks = self.queues.iter().filter(|queue| queue.bottleneck);
        for (queue, (_, points)) in bottlenecks.zip(&mut self.backlogs) {
            let net = self.engine.net_of_port(queue.port());
            let backlog = net.backlog_bytes(queue.port());
            points.push((now_s, backlog as f64));
        }
        self.windows.add(now_s, self.engine.tracked());
    }

    /// Pauses that wait for each other are noted once: they never end.
    fn look_for_deadlock(&mut self) {
        if self.deadlock.is_none() {
            let found = converged::deadlock(&mut self.engine);
            self.deadlock = found.map(|found| measure::deadlock(self.variant, &found));
        }
    }

    fn counts(&mut self) -> Before {
        let all = self.queues.iter().chain(&self.adapters);
        Before {
            queues: all.map(|queue| queue.counts(&mut self.engine)).collect(),
            vnics: vnics::passed(&mut self.engine, self.variant),
        }
    }

    /// Tells senders of datagrams how many of them are under way: none of those is lost.
    fn count_underway(&mut self, reports: &mut [Report]) {
        if reports
            .iter()
            .all(|report| report.datagrams_sent.is_empty())
        {
            return;
        }
        // By receiver and port. A link may have made copies of a datagram.
        let mut underway: BTreeMap<(u32, u16), BTreeMap<u32, u16>> = BTreeMap::new();
        for net in self.engine.nets() {
            net.datagrams_underway(&mut |to, number, payload| {
                underway.entry(to).or_default().insert(number, payload);
            });
        }
        let received = reports.iter_mut();
        let received = received.flat_map(|report| &mut report.datagrams_received);
        let arrived: HashMap<u32, Numbers> = received
            .map(|received| (received.flow, mem::take(&mut received.arrived)))
            .collect();
        let senders = reports.iter_mut().flat_map(|it| &mut it.datagrams_sent);
        for sent in senders {
            let Some(flow) = self.flows.get(sent.flow as usize) else {
                continue;
            };
            let of_flow = underway.get(&(narrow::<u32>(flow.to), flow.port));
            let of_flow = of_flow.into_iter().flatten();
            // Of one that has arrived, only a copy is.
            let has_arrived = |number| arrived.get(&sent.flow).is_some_and(|all| all.has(number));
            let measured = of_flow.filter(|(number, _)| {
                let number = u64::from(**number);
                number >= sent.before.0 && !has_arrived(number)
            });
            let payloads = measured.map(|(_, payload)| u64::from(*payload));
            sent.underway = Some(payloads.fold((0, 0), |(count, sum), own| (count + 1, sum + own)));
        }
    }

    fn outcome(mut self, before: &Before) -> Outcome {
        for net in self.engine.nets() {
            let stages = net
                .hosts
                .iter()
                .filter_map(|host| host.switch.vnics.as_ref());
            stages.for_each(|vnics| add(&mut self.counters, &vnics.counters().0));
        }
        let counted = COUNTER_NAMES.iter().zip(self.counters);
        let enforcement = match self.variant.enforcement {
            None => BTreeMap::new(),
            Some(_) => counted
                .skip(1)
                .map(|(name, count)| ((*name).to_owned(), count))
                .collect(),
        };
        let queues = &before.queues;
        let (of_queues, of_adapters) = queues.split_at(self.queues.len().min(queues.len()));
        let result = |engine: &mut Engine<App, F>, (queue, before): (&Queue, _)| {
            queue.result(engine, before)
        };
        let links = self.queues.iter().zip(of_queues);
        let mut links: Vec<_> = links.map(|at| result(&mut self.engine, at)).collect();
        let adapters = self.adapters.iter().zip(of_adapters);
        let adapters = adapters.map(|at| result(&mut self.engine, at));
        links.extend(adapters.filter(has_troubles));
        let as_run = self.as_run();
        let ended = (as_run.duration < self.variant.duration).then(|| {
            let (name, measured) = (&as_run.name, as_run.duration);
            let complete = match self.engine.is_complete() {
                false => "nothing could happen any more",
                true if self.is_of_programs() => "all programs were complete",
                true => "all queries were complete",
            };
            format!("{name}: ended after {measured:?} of measured time, when {complete}")
        });
        let mut reports = self.engine.reports();
        self.count_underway(&mut reports);
        let mut result = collect::result(Seen {
            variant: &as_run,
            flows: &self.flows,
            reports: &reports,
            links,
            enforcement,
            windows: self.windows,
            backlogs: self.backlogs,
            cpu_idle_min: None,
        });
        result.deadlocks.extend(self.deadlock);
        let passed = vnics::passed(&mut self.engine, &as_run);
        result.vnics = vnics::results(&as_run, &before.vnics, &passed);
        let nets = self.engine.nets();
        let overflows = nets.filter_map(|net| F::converged(net)?.fabric.resequence_overflows());
        if let Some(overflows) = overflows.reduce(|sum, own| sum + own) {
            let name = "resequence_overflows".to_owned();
            result.derived.insert(name, overflows as f64);
        }
        if let Some((traces, _)) = self.traces {
            result.samples.traces = traces.finish();
        }
        result.samples.films = self
            .film
            .map(|(film, _)| film.finish())
            .into_iter()
            .collect();
        let mut conditions = conditions(&reports, ended);
        let waits = workload::programs::notes(&as_run.name, &result.programs);
        conditions.notes.extend(waits);
        Outcome { result, conditions }
    }
}

/// Results speak of a host's adapter if it has dropped something or was paused.
fn has_troubles(link: &LinkResult) -> bool {
    let was_paused = (link.cee).is_some_and(|cee| cee.pauses > 0 || cee.paused_us > 0.0);
    was_paused || link.drops.values().any(|&count| count > 0)
}

/// An event at a fixed time; events at the same time happen in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    Measure,
    Event(usize),
    Reroute(usize),
    Sample,
    Trace,
    Frame,
    End,
}

fn ps(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos() * 1_000).unwrap_or(u64::MAX)
}

fn add(sum: &mut [u64], counters: &[u64]) {
    for (sum, count) in sum.iter_mut().zip(counters) {
        *sum += count;
    }
}

/// Nothing of the machine that it ran on: the same scenario and seed give the same bytes.
fn conditions(reports: &[Report], ended: Option<String>) -> Conditions {
    let (count, mut notes) = errors::of_tenants(reports);
    notes.extend(ended);
    Conditions {
        outside: BTreeMap::from([(errors::COUNTER.to_owned(), count)]),
        notes,
        kernel: format!("simulated, {}", env!("CARGO_PKG_VERSION")),
        rate_scale: 1.0,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Conditions::default()
    }
}

/// Progress for people, now and then.
struct Live {
    total: Duration,
    shown: Instant,
    hops: u64,
}

impl Live {
    fn new(total: Duration) -> Self {
        Self {
            total,
            shown: Instant::now(),
            hops: 0,
        }
    }

    fn look(&mut self, hops: u64, now_ps: u64, observer: &mut dyn Observer) -> Result<()> {
        if self.shown.elapsed() < LIVE_INTERVAL {
            return Ok(());
        }
        if observer.cancelled() {
            bail!("interrupted");
        }
        let millions =
            hops.saturating_sub(self.hops) as f64 / 1e6 / self.shown.elapsed().as_secs_f64();
        let done = Duration::from_nanos(now_ps / 1_000);
        observer.progress(
            done,
            self.total,
            &format!("{millions:.1} million packet-hops/s"),
        );
        (self.shown, self.hops) = (Instant::now(), hops);
        Ok(())
    }
}
