//! From what tenants, switches and hosts saw to the results of a variant; the same in every world.

use std::collections::BTreeMap;

use super::{
    Flow, Report,
    plan::{ReceiverReport, SenderReport},
    tracking::{self, Tracking},
    windows::Windows,
};
use crate::{
    experiment::{TrafficKind, Variant},
    results::{FlowResult, LinkResult, Samples, Series, SeriesKind, VariantResult},
    stats,
};

/// What was seen of a variant.
pub struct Seen<'a> {
    /// What was run.
    pub variant: &'a Variant,
    /// Its flows; ids are indices.
    pub flows: &'a [Flow],
    /// One per tenant.
    pub reports: &'a [Report],
    /// Queues over the measured window.
    pub links: Vec<LinkResult>,
    /// Counters of enforcement over the whole run.
    pub enforcement: BTreeMap<String, u64>,
    /// Enforced windows.
    pub windows: Windows,
    /// Backlog series of bottlenecks.
    pub backlogs: Vec<(String, Vec<(f64, f64)>)>,
    /// Smallest idle fraction over one second of measured time.
    pub cpu_idle_min: f64,
}

/// Puts the results of a variant together.
pub fn result(seen: Seen<'_>) -> VariantResult {
    let Seen {
        variant,
        flows,
        reports,
        links,
        enforcement,
        windows,
        backlogs,
        cpu_idle_min,
    } = seen;
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
    VariantResult {
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
    }
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
