//! From what tenants, switches and hosts saw to the results of a variant.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result};
use sluicegate_scenario::{
    experiment::{TrafficKind, Variant},
    results::{Conditions, FlowResult, LinkResult, Samples, Series, SeriesKind, VariantResult},
    stats,
    world::Outcome,
};

use crate::{
    measure::{
        cpu,
        tracking::{self, Tracking},
        windows::Windows,
    },
    requirements,
    tenant::{
        Flow, Report, netstat,
        plan::{ReceiverReport, SenderReport},
    },
};

/// Everything that a run saw.
pub struct Observed<'a> {
    /// What was run.
    pub variant: &'a Variant,
    /// Its flows; ids are indices.
    pub flows: &'a [Flow],
    /// One per tenant.
    pub reports: &'a [Report],
    /// Queues over the measured window.
    pub links: Vec<LinkResult>,
    /// Queues over the whole run, warm-up and last retransmissions included.
    pub links_whole_run: Vec<LinkResult>,
    /// Counters of enforcement over the whole run.
    pub enforcement: BTreeMap<String, u64>,
    /// Enforced windows.
    pub windows: Windows,
    /// Backlog series of bottlenecks.
    pub backlogs: Vec<(String, Vec<(f64, f64)>)>,
    /// Smallest idle fraction over one second of measured time.
    pub cpu_idle_min: f64,
    /// Losses between namespaces.
    pub outside: BTreeMap<String, u64>,
    /// For people.
    pub notes: Vec<String>,
    /// Wall clock.
    pub started: SystemTime,
}

/// Puts the results of a variant together.
///
/// # Errors
/// This machine's kernel does not say its release.
pub fn outcome(observed: Observed<'_>) -> Result<Outcome> {
    let conditions = conditions(&observed)?;
    let Observed {
        variant,
        flows,
        reports,
        links,
        enforcement,
        windows,
        backlogs,
        cpu_idle_min,
        ..
    } = observed;
    let flow_results = bulk_flows(variant, flows, reports);
    let goodputs: Vec<f64> = flow_results.iter().map(|flow| flow.goodput_bps).collect();
    let rtt_us: Vec<f64> = reports
        .iter()
        .flat_map(|report| &report.rtts)
        .flat_map(|rtt| rtt.samples_us.iter().copied())
        .collect();
    let fct_us = completions(reports);
    let derived = derived(variant, flows, reports, &windows);
    let series = series(variant, flows, reports, windows, backlogs);
    let result = VariantResult {
        name: variant.name.clone(),
        title: variant.title.clone(),
        goodput_bps: stats::goodput(&goodputs),
        flows: flow_results,
        rtt_us: stats::quantiles(&rtt_us),
        fct_us: fct_us
            .iter()
            .map(|(class, samples)| (class.clone(), stats::fct_quantiles(samples)))
            .collect(),
        links,
        enforcement,
        cpu_idle_min,
        derived,
        samples: Samples {
            rtt_us,
            fct_us,
            series,
        },
    };
    Ok(Outcome { result, conditions })
}

fn is_bulk(variant: &Variant, flow: &Flow) -> bool {
    matches!(variant.traffic[flow.traffic].kind, TrafficKind::Bulk { .. })
}

fn sender<'r>(reports: &'r [Report], flow: &Flow) -> Option<&'r SenderReport> {
    reports
        .get(flow.from)?
        .senders
        .iter()
        .find(|sender| sender.flow == flow.id)
}

fn receiver<'r>(reports: &'r [Report], flow: &Flow) -> Option<&'r ReceiverReport> {
    reports
        .get(flow.to)?
        .receivers
        .iter()
        .find(|receiver| receiver.flow == flow.id)
}

fn bulk_flows(variant: &Variant, flows: &[Flow], reports: &[Report]) -> Vec<FlowResult> {
    let seconds = variant.duration.as_secs_f64();
    let bulk = flows.iter().filter(|flow| is_bulk(variant, flow));
    bulk.map(|flow| {
        let (from, to) = (&variant.tenants[flow.from], &variant.tenants[flow.to]);
        let sent = sender(reports, flow);
        let received = receiver(reports, flow).map_or(0, |receiver| receiver.measured_bytes);
        FlowResult {
            id: flow.id,
            traffic: variant.traffic[flow.traffic].name.clone(),
            tenant: from.name.clone(),
            from: variant.hosts[from.host].name.clone(),
            to: variant.hosts[to.host].name.clone(),
            tenant_cc: from.congestion_control.clone(),
            goodput_bps: received as f64 * 8.0 / seconds,
            retransmits: sent.map_or(0, |sender| sender.retransmits),
            timeouts: sent.and_then(|sender| sender.timeouts).unwrap_or(0),
            srtt_us: sent.map_or(0.0, |sender| sender.srtt_us as f64),
        }
    })
    .collect()
}

fn completions(reports: &[Report]) -> BTreeMap<String, Vec<f64>> {
    let mut by_class: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for completion in reports.iter().flat_map(|report| &report.completions) {
        by_class
            .entry(completion.class.clone())
            .or_default()
            .extend(&completion.samples_us);
    }
    by_class
}

/// `flow 3: s1 → r1`, unique and sortable.
fn flow_name(variant: &Variant, flow: &Flow) -> String {
    format!(
        "{} {}>{}",
        flow.id, variant.tenants[flow.from].name, variant.tenants[flow.to].name
    )
}

fn series(
    variant: &Variant,
    flows: &[Flow],
    reports: &[Report],
    windows: Windows,
    backlogs: Vec<(String, Vec<(f64, f64)>)>,
) -> Vec<Series> {
    let name = |id: u32| flow_name(variant, &flows[id as usize]);
    let mut all = Vec::new();
    for flow in flows.iter().filter(|flow| is_bulk(variant, flow)) {
        if let Some(received) = receiver(reports, flow) {
            all.push(Series {
                name: name(flow.id),
                kind: SeriesKind::GoodputBps,
                points: rates(&received.series),
            });
        }
        if let Some(sent) = sender(reports, flow) {
            all.push(Series {
                name: name(flow.id),
                kind: SeriesKind::TenantCwndBytes,
                points: floats(&sent.cwnd),
            });
        }
    }
    all.extend(windows.into_series(name));
    all.extend(backlogs.into_iter().map(|(name, points)| Series {
        name,
        kind: SeriesKind::QueueBytes,
        points,
    }));
    all
}

fn floats(points: &[(f64, u64)]) -> Vec<(f64, f64)> {
    points
        .iter()
        .map(|&(at, value)| (at, value as f64))
        .collect()
}

/// Bytes in bins become bit/s; a bin begins where the one before ended.
fn rates(bins: &[(f64, u64)]) -> Vec<(f64, f64)> {
    let begins = std::iter::once(0.0).chain(bins.iter().map(|&(end, _)| end));
    bins.iter()
        .zip(begins)
        .filter(|((end, _), begin)| end > begin)
        .map(|(&(end, bytes), begin)| (end, bytes as f64 * 8.0 / (end - begin)))
        .collect()
}

/// `window_correlation`, `window_relative_error` and `window_governs` (see [`tracking`]): means over the
/// bulk flows for which both windows are known; absent if there is none.
fn derived(
    variant: &Variant,
    flows: &[Flow],
    reports: &[Report],
    windows: &Windows,
) -> BTreeMap<String, f64> {
    let from_s = variant.warmup.as_secs_f64();
    let to_s = from_s + variant.duration.as_secs_f64();
    let compared: Vec<Tracking> = flows
        .iter()
        .filter_map(|flow| {
            let tenant = floats(&sender(reports, flow)?.cwnd);
            tracking::compare(windows.window(flow.id)?, &tenant, from_s, to_s)
        })
        .collect();
    if compared.is_empty() {
        return BTreeMap::new();
    }
    let mean =
        |value: fn(&Tracking) -> f64| stats::mean(&compared.iter().map(value).collect::<Vec<_>>());
    BTreeMap::from([
        (
            "window_correlation".to_owned(),
            mean(|tracking| tracking.correlation),
        ),
        (
            "window_relative_error".to_owned(),
            mean(|tracking| tracking.relative_error),
        ),
        (
            "window_governs".to_owned(),
            mean(|tracking| tracking.governs),
        ),
    ])
}

fn conditions(observed: &Observed<'_>) -> Result<Conditions> {
    let (mut outside, mut notes) = (observed.outside.clone(), observed.notes.clone());
    let errors = observed
        .reports
        .iter()
        .flat_map(|report| report.errors.iter().map(|error| (&report.tenant, error)));
    let errors: Vec<String> = errors
        .map(|(tenant, error)| format!("tenant {tenant}: {error}"))
        .collect();
    outside.insert("tenant_errors".to_owned(), errors.len() as u64);
    notes.extend(errors);
    outside.extend(unexplained(observed, &mut notes));
    outside.insert(
        "elsewhere_dropped".to_owned(),
        elsewhere(observed, &mut notes),
    );
    Ok(Conditions {
        kernel: requirements::release()?,
        cpus: std::thread::available_parallelism()
            .context("number of CPUs")?
            .get() as u32,
        cpu_idle_min: observed.cpu_idle_min,
        cpu_bound: observed.cpu_idle_min < cpu::BOUND_BELOW,
        rate_scale: 1.0,
        offloads: observed.variant.lab.offloads,
        outside,
        notes,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: rfc3339(observed.started),
    })
}

/// Packets dropped at switch ports that are no bottleneck, during the whole run.
fn elsewhere(observed: &Observed<'_>, notes: &mut Vec<String>) -> u64 {
    let others = observed
        .links_whole_run
        .iter()
        .filter(|link| !link.bottleneck);
    let mut sum = 0;
    for link in others {
        let drops: u64 = link.drops.values().sum();
        if drops > 0 {
            sum += drops;
            notes.push(format!(
                "{} is no bottleneck but dropped {drops} packets",
                link.id
            ));
        }
    }
    sum
}

/// TCP's symptoms of loss or reordering. Where the run's own queues dropped nothing and nothing was
/// policed they have no explanation within the experiment and count as trouble outside; else they are noted,
/// and retransmissions are trouble beyond two for each packet lost.
fn unexplained(observed: &Observed<'_>, notes: &mut Vec<String>) -> BTreeMap<String, u64> {
    let drops: u64 = observed
        .links_whole_run
        .iter()
        .flat_map(|link| link.drops.values())
        .sum();
    let policed = observed.enforcement.get("policed").copied().unwrap_or(0);
    let count = |names: &[&str]| -> u64 {
        let counters = observed.reports.iter().map(|report| &report.netstat);
        counters
            .map(|counters| {
                names
                    .iter()
                    .filter_map(|name| counters.get(*name))
                    .sum::<u64>()
            })
            .sum()
    };
    let retransmits = count(&["RetransSegs"]);
    let duplicates = count(&["TCPDSACKRecv"]);
    // A sender's own timers (RFC 8985 7.2: about 2 RTT + 2 ms without an ACK; the RTO) say that a CPU was late,
    // not that a packet was lost: they repeat a segment, and D-SACK answers that it was there.
    let probes = count(&netstat::CAUSES);
    let reordering = count(&["TCPSACKReorder", "TCPTSReorder", "TCPRenoReorder"]);
    let out_of_order = count(&["TCPOFOQueue"]);
    let explained = drops + policed > 0;
    if explained && retransmits + reordering > 0 {
        notes.push(format!(
            "{retransmits} retransmissions in measured time, {duplicates} of them unnecessary (D-SACK): the run's \
             queues dropped {drops} packets, policing {policed}; {out_of_order} arrived out of order"
        ));
    }
    if !explained && probes > 0 {
        notes.push(format!(
            "{retransmits} retransmissions in measured time, {duplicates} of them unnecessary (D-SACK), beside {probes} \
             timeouts of senders that waited for an ACK (tail loss probes and RTOs)"
        ));
    }
    let trouble = |count: u64| if explained { 0 } else { count };
    let needed = retransmits.saturating_sub(if explained { duplicates } else { 0 });
    BTreeMap::from([
        (
            "tcp_retransmits".to_owned(),
            needed.saturating_sub(probes + 2 * (drops + policed)),
        ),
        (
            "tcp_dsack".to_owned(),
            trouble(duplicates.saturating_sub(probes)),
        ),
        ("tcp_reordering".to_owned(), trouble(reordering)),
        ("tcp_out_of_order".to_owned(), trouble(out_of_order)),
    ])
}

/// UTC to the second. Days to civil date after Hinnant, "chrono-Compatible Low-Level Date Algorithms".
fn rfc3339(time: SystemTime) -> String {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    let (days, seconds) = ((since.as_secs() / 86_400) as i64, since.as_secs() % 86_400);
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted - era * 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}
