//! Runs one plan in the network namespace of the calling thread.

#![allow(unsafe_code)] // sched_setscheduler: no safe wrapper in the libraries at hand

use std::{collections::BTreeMap, fs, sync::mpsc, thread, time::Duration};

use anyhow::{Context, anyhow};
use rustix::time::{ClockId, clock_gettime};

use super::{
    clock::Clock,
    engine::Engine,
    netstat,
    plan::{Plan, Report, Role},
};

/// So much earlier than effects are causes counted: timers that go off just before the measured
/// window make a sender repeat within it, and what is repeated just before its end is answered
/// (D-SACK) after it. All tenants read their counters at once, which alone makes some late.
const CAUSES_LEAD_NS: u64 = 200_000_000;

/// Time that an engine may take to note its end after the plan's stop.
const GRACE: Duration = Duration::from_secs(5);

/// A tenant whose listeners are open and that waits for the start.
pub struct Prepared {
    plan: Plan,
    workers: Vec<Worker>,
}

/// A thread with an engine in it.
struct Worker {
    start: mpsc::Sender<u64>,
    report: mpsc::Receiver<Report>,
}

impl Prepared {
    /// Sets the kernel's parameters and opens listeners. Roles that measure time (probes, messages,
    /// incast) get a thread of their own at real-time priority, so that a sample is the network's
    /// delay and not the wait for a CPU that a bulk sender holds.
    ///
    /// # Errors
    /// A parameter that cannot be set, a congestion control that is not there, a port in use.
    pub fn new(plan: Plan) -> anyhow::Result<Self> {
        for (name, value) in &plan.sysctls {
            set_sysctl(name, value)?;
        }
        let mut workers = Vec::new();
        for timed in [true, false] {
            let roles: Vec<Role> = plan
                .roles
                .iter()
                .filter(|role| measures_time(role) == timed)
                .cloned()
                .collect();
            if !roles.is_empty() {
                workers.push(Worker::spawn(
                    Plan {
                        roles,
                        ..plan.clone()
                    },
                    timed,
                )?);
            }
        }
        Ok(Self { plan, workers })
    }

    /// Sleeps until `start_unix_ns` (CLOCK_REALTIME), runs the plan, reports. Never fails and ends
    /// within seconds of the plan's stop: what goes wrong stands in [`Report::errors`].
    pub fn run(self, start_unix_ns: u64) -> Report {
        let clock = Clock::starting_at(start_unix_ns);
        let mut report = Report {
            tenant: self.plan.tenant.clone(),
            kernel: kernel(),
            ..Report::default()
        };
        if clock.now_ns() > 0 {
            report.errors.push(format!(
                "told to start {} ms too late",
                clock.now_ns() / 1_000_000
            ));
        }
        for worker in &self.workers {
            let _ = worker.start.send(start_unix_ns); // a dead worker is noted below
        }
        report.netstat = self.count(clock);
        for worker in &self.workers {
            let left = Duration::from_nanos(self.plan.stop_ns.saturating_sub(clock.now_ns()));
            match worker.report.recv_timeout(left + GRACE) {
                Ok(part) => merge(&mut report, part),
                Err(_) => report
                    .errors
                    .push("an engine did not end; it died or hangs".into()),
            }
        }
        let used = clock_gettime(ClockId::ProcessCPUTime);
        report.cpu_us = used.tv_sec as u64 * 1_000_000 + used.tv_nsec as u64 / 1000;
        report
    }

    /// Growth of the kernel's counters in measured time, causes a little before their effects.
    fn count(&self, clock: Clock) -> BTreeMap<String, u64> {
        let (begin_ns, end_ns) = (self.plan.measure_begin_ns, self.plan.measure_end_ns);
        let read_at = |at_ns: u64| {
            sleep_until(clock, at_ns);
            netstat::read()
        };
        let causes = read_at(begin_ns.saturating_sub(CAUSES_LEAD_NS));
        let before = netstat::with(read_at(begin_ns), &netstat::CAUSES, &causes);
        let repeated = read_at(begin_ns.max(end_ns.saturating_sub(CAUSES_LEAD_NS)));
        let after = netstat::with(read_at(end_ns), &netstat::REPEATED, &repeated);
        netstat::growth(&before, &after)
    }
}

impl Worker {
    fn spawn(plan: Plan, timed: bool) -> anyhow::Result<Self> {
        let (start, wait_start) = mpsc::channel();
        let (send_report, report) = mpsc::channel();
        let (send_ready, ready) = mpsc::channel();
        let body = move || {
            let engine =
                if timed { raise_priority() } else { Ok(()) }.and_then(|()| Engine::prepare(plan));
            match engine {
                Ok(engine) => {
                    let _ = send_ready.send(Ok(()));
                    if let Ok(start_unix_ns) = wait_start.recv() {
                        let _ = send_report.send(engine.run(Clock::starting_at(start_unix_ns)));
                    }
                }
                Err(error) => drop(send_ready.send(Err(error))),
            }
        };
        thread::Builder::new()
            .name("roles".into())
            .spawn(body)
            .context("cannot start a thread")?;
        ready
            .recv()
            .unwrap_or_else(|_| Err(anyhow!("a thread died while it prepared")))?;
        Ok(Self { start, report })
    }
}

/// Of all roles those that do not only move payload.
fn measures_time(role: &Role) -> bool {
    !matches!(
        role,
        Role::Source { .. }
            | Role::PhasedSource { .. }
            | Role::Blaster { .. }
            | Role::Sink { .. }
            | Role::DatagramSource { .. }
            | Role::DatagramSink { .. }
    )
}

/// SCHED_FIFO at its lowest priority for the calling thread. Without the right to it the run goes
/// on at normal priority: samples are then worse, not wrong.
fn raise_priority() -> anyhow::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: 0 means the calling thread; `parameters` is valid for reads during the call.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    match std::io::Error::last_os_error() {
        _ if result == 0 => Ok(()),
        error if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
        error => Err(error).context("cannot raise the priority of the probe's thread"),
    }
}

/// Writes a parameter below /proc/sys, which shows the namespace of the thread that looks.
fn set_sysctl(name: &str, value: &str) -> anyhow::Result<()> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    fs::write(&path, value).with_context(|| format!("cannot set {name} = {value}"))
}

fn kernel() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

fn sleep_until(clock: Clock, at_ns: u64) {
    let wait = clock.until_start_ns() + at_ns.saturating_sub(clock.now_ns());
    thread::sleep(Duration::from_nanos(wait));
}

/// Adds the report of one of a tenant's threads. Every field is named, so that none is forgotten.
fn merge(report: &mut Report, part: Report) {
    let Report {
        tenant: _,
        kernel: _,
        errors,
        senders,
        receivers,
        rtts,
        wakes_us,
        completions,
        ranks,
        datagrams_sent,
        datagrams_received,
        overruns,
        netstat: _,
        cpu_us: _,
        clock_offset_ns: _,
    } = part;
    report.errors.extend(errors);
    report.senders.extend(senders);
    report.receivers.extend(receivers);
    report.rtts.extend(rtts);
    report.wakes_us.extend(wakes_us);
    report.completions.extend(completions);
    report.ranks.extend(ranks);
    report.datagrams_sent.extend(datagrams_sent);
    report.datagrams_received.extend(datagrams_received);
    report.overruns.extend(overruns);
}
