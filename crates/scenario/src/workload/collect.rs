//! From what tenants, switches and hosts saw to the results of a variant; the same in every world.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Flow, Report,
    plan::{CompletionReport, DatagramsReceived, ReceiverReport, SenderReport},
    programs,
    tracking::{self, Tracking},
    windows::Windows,
};
use crate::{
    experiment::{Interval, TrafficKind, Variant},
    results::{
        Datagrams, FctQuantiles, FlowResult, Goodput, LinkResult, Protocol, Samples, Series,
        SeriesKind, VariantResult,
    },
    stats,
};

/// A queue's name, and (seconds since the start of the run, bytes in it).
pub type Backlog = (String, Vec<(f64, f64)>);

/// Queues whose series are kept at most. In a large network every host's link is a bottleneck:
/// their series would be larger than all other results together.
const QUEUE_SERIES: usize = 256;

/// The observations of a variant.
pub struct Seen<'a> {
    /// The variant that was run.
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
    pub backlogs: Vec<Backlog>,
    /// Smallest idle fraction over one second of measured time; `None` where time is simulated.
    pub cpu_idle_min: Option<f64>,
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
    let flow_results = flow_results(variant, flows, reports);
    let bulk = flow_results.iter().filter(|flow| flow.protocol.is_tcp());
    let goodputs: Vec<f64> = bulk.map(|flow| flow.goodput_bps).collect();
    let rtt_us: Vec<f64> = reports
        .iter()
        .flat_map(|report| &report.rtts)
        .flat_map(|rtt| rtt.samples_us.iter().copied())
        .collect();
    let rtts = reports.iter().flat_map(|report| &report.rtts);
    let rtt_outstanding_us = rtts.filter_map(|rtt| rtt.outstanding_us).collect();
    let wakes = reports.iter().flat_map(|report| &report.wakes_us);
    let wake_us = wakes.copied().collect();
    let completions = completions(variant, flows, reports);
    let unfinished = completions.iter();
    let unfinished = unfinished
        .map(|(class, completions)| (class.clone(), completions.unfinished()))
        .filter(|(_, count)| *count > 0)
        .collect();
    let intervals = intervals(variant, flows, reports);
    let derived = derived(variant, flows, reports, &windows);
    let series = series(variant, flows, reports, windows, backlogs);
    let (programs, timelines) = programs::results(variant, reports);
    VariantResult {
        deadlocks: Vec::new(),
        name: variant.name.clone(),
        title: variant.title.clone(),
        goodput_bps: stats::goodput(&goodputs),
        flows: flow_results,
        rtt_us: stats::quantiles(&rtt_us),
        fct_us: completions
            .iter()
            .map(|(class, completions)| (class.clone(), completions.quantiles()))
            .collect(),
        links,
        vnics: Vec::new(),
        enforcement,
        cpu_idle_min,
        derived,
        intervals,
        programs,
        samples: Samples {
            rtt_us,
            rtt_outstanding_us,
            wake_us,
            fct_us: completions
                .into_iter()
                .map(|(class, completions)| (class, completions.samples_us))
                .collect(),
            unfinished,
            series,
            traces: Vec::new(),
            timelines,
            films: Vec::new(),
        },
    }
}

fn is_bulk(variant: &Variant, flow: &Flow) -> bool {
    variant.traffic[flow.traffic].kind.is_bulk()
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

/// Flows that results speak of one by one.
fn is_listed(variant: &Variant, flow: &Flow) -> bool {
    is_bulk(variant, flow) || is_datagrams(variant, flow)
}

fn is_datagrams(variant: &Variant, flow: &Flow) -> bool {
    variant.traffic[flow.traffic].kind.is_datagrams()
}

/// Datagrams and their bytes without others.
fn less(all: (u64, u64), others: (u64, u64)) -> (u64, u64) {
    (
        all.0.saturating_sub(others.0),
        all.1.saturating_sub(others.1),
    )
}

/// The fate of the datagrams of a flow.
fn datagrams(reports: &[Report], flow: &Flow) -> Option<Datagrams> {
    let mut sent = reports.get(flow.from)?.datagrams_sent.iter();
    let sent = sent.find(|sent| sent.flow == flow.id)?;
    let mut received = reports.get(flow.to)?.datagrams_received.iter();
    let received = received.find(|received| received.flow == flow.id);
    let DatagramsReceived {
        received, latest, ..
    } = received.cloned().unwrap_or_default();
    // Where nobody knows what is under way, as RFC 3550 (A.3) counts: what is behind the latest may
    // be on its way. If nothing ever arrived, not even what was sent before, all is lost.
    let before = sent.before;
    let arrived = receiver(reports, flow).is_some_and(|receiver| receiver.total_bytes > 0);
    let expected = match (sent.underway, latest) {
        (Some(underway), _) => less(sent.sent, underway),
        (None, Some(latest)) => less(latest, before),
        (None, None) if arrived => (0, 0),
        (None, None) => sent.sent,
    };
    let lost = less(expected, received);
    Some(Datagrams {
        sent: sent.sent.0,
        sent_bytes: sent.sent.1,
        received: received.0,
        received_bytes: received.1,
        lost: lost.0,
        lost_bytes: lost.1,
        underway: sent.underway.map(|underway| underway.0),
        socket_drops: sent.socket_drops.0,
        socket_dropped_bytes: sent.socket_drops.1,
    })
}

fn flow_results(variant: &Variant, flows: &[Flow], reports: &[Report]) -> Vec<FlowResult> {
    let seconds = variant.duration.as_secs_f64();
    let listed = flows.iter().filter(|flow| is_listed(variant, flow));
    listed
        .map(|flow| {
            let (from, to) = (&variant.tenants[flow.from], &variant.tenants[flow.to]);
            let sent = sender(reports, flow);
            let got = receiver(reports, flow);
            let cwnd = sent.map(|sent| &sent.cwnd).filter(|cwnd| !cwnd.is_empty());
            FlowResult {
                id: flow.id,
                traffic: variant.traffic[flow.traffic].name.clone(),
                tenant: from.name.clone(),
                from: variant.host_name(from.host).to_owned(),
                to: variant.host_name(to.host).to_owned(),
                tenant_cc: from.congestion_control.clone(),
                protocol: match is_datagrams(variant, flow) {
                    true => Protocol::Udp,
                    false => Protocol::Tcp,
                },
                goodput_bps: got.map_or(0, |got| got.measured_bytes) as f64 * 8.0 / seconds,
                retransmits: sent.map(|sender| sender.retransmits),
                timeouts: sent.and_then(|sender| sender.timeouts),
                srtt_us: sent
                    .filter(|sender| sender.srtt_us > 0)
                    .map(|sender| sender.srtt_us as f64),
                datagrams: datagrams(reports, flow),
                cwnd_max_bytes: cwnd.and_then(|cwnd| cwnd.iter().map(|&(_, bytes)| bytes).max()),
                cwnd_cuts: cwnd.map(|cwnd| cwnd_cuts(cwnd)),
                stalled_us: got.and_then(|got| stalled_us(variant, flow, &got.series)),
            }
        })
        .collect()
}

/// The teeth of a saw.
fn cwnd_cuts(cwnd: &[(f64, u64)]) -> u64 {
    let fell = |pair: &&[(f64, u64)]| pair[1].1 * 4 <= pair[0].1 * 3;
    cwnd.windows(2).filter(fell).count() as u64
}

/// The end of what is offered, where phases end.
fn offered_until(kind: &TrafficKind) -> Option<Duration> {
    let TrafficKind::Phased { phases, .. } = kind else {
        return None;
    };
    phases.iter().rfind(|phase| phase.rate_bps > 0)?.until
}

/// The longest run of empty bins behind one that is not, within the measured window; `None` if all
/// of it is empty. A bulk flow that nothing more arrives of is stalled until it was to end;
/// datagrams may have had their last burst.
fn stalled_us(variant: &Variant, flow: &Flow, bins: &[(f64, u64)]) -> Option<f64> {
    let begin_s = variant.warmup.as_secs_f64();
    let mut since_s = None;
    let mut longest_s: f64 = 0.0;
    let mut previous_s = 0.0;
    for &(end_s, bytes) in bins {
        if bytes > 0 && end_s > begin_s {
            longest_s = since_s.map_or(longest_s, |since_s| longest_s.max(previous_s - since_s));
            since_s = Some(end_s);
        }
        previous_s = end_s;
    }
    let since_s = since_s?;
    let width_s = bins.first().map_or(f64::INFINITY, |&(end_s, _)| end_s);
    let end = variant.warmup + variant.duration;
    let traffic = &variant.traffic[flow.traffic];
    let stop = [traffic.stop, offered_until(&traffic.kind)].into_iter();
    let stop = stop.flatten().fold(end, Duration::min);
    // Bins that are whole by then, in spite of rounding.
    let whole = (stop.as_secs_f64() / width_s + 1e-6).floor();
    if is_bulk(variant, flow) {
        longest_s = longest_s.max(whole * width_s - since_s);
    }
    Some(longest_s * 1e6)
}

/// The completions in one class.
#[derive(Default)]
struct Completions {
    samples_us: Vec<f64>,
    /// Begun in measured time.
    begun: u64,
    /// Those of traffic with a deadline, complete or past it.
    due: usize,
    /// Those of them that took longer, or will.
    missed: usize,
}

impl Completions {
    fn add(&mut self, completion: &CompletionReport, deadline: Option<Duration>) {
        self.samples_us.extend(&completion.samples_us);
        self.begun += completion.begun;
        if let Some(deadline) = deadline {
            let deadline_us = deadline.as_secs_f64() * 1e6;
            let late = |times_us: &[f64]| times_us.iter().filter(|us| **us > deadline_us).count();
            let overdue = late(&completion.open_us);
            self.due += completion.samples_us.len() + overdue;
            self.missed += late(&completion.samples_us) + overdue;
        }
    }

    /// Begun and not complete.
    fn unfinished(&self) -> u64 {
        self.begun.saturating_sub(self.samples_us.len() as u64)
    }

    fn quantiles(&self) -> FctQuantiles {
        FctQuantiles {
            unfinished: self.unfinished(),
            missed: (self.due > 0).then(|| self.missed as f64 / self.due as f64),
            ..stats::fct_quantiles(&self.samples_us)
        }
    }
}

fn completions(
    variant: &Variant,
    flows: &[Flow],
    reports: &[Report],
) -> BTreeMap<String, Completions> {
    let mut by_class: BTreeMap<String, Completions> = BTreeMap::new();
    for completion in reports.iter().flat_map(|report| &report.completions) {
        let flow = flows.get(completion.flow as usize);
        let deadline = flow.and_then(|flow| variant.traffic[flow.traffic].deadline);
        by_class
            .entry(completion.class.clone())
            .or_default()
            .add(completion, deadline);
    }
    by_class
}

/// Goodput of the bulk flows that were active throughout each interval.
fn intervals(variant: &Variant, flows: &[Flow], reports: &[Report]) -> BTreeMap<String, Goodput> {
    let goodput = |interval: &Interval| {
        let active = |flow: &&Flow| {
            let traffic = &variant.traffic[flow.traffic];
            let ends_after = traffic.stop.is_none_or(|stop| stop >= interval.stop);
            is_bulk(variant, flow) && traffic.start <= interval.start && ends_after
        };
        let rates_bps: Vec<f64> = flows
            .iter()
            .filter(active)
            .map(|flow| {
                receiver(reports, flow).map_or(0.0, |received| rate(&received.series, interval))
            })
            .collect();
        (interval.name.clone(), stats::goodput(&rates_bps))
    };
    variant.intervals.iter().map(goodput).collect()
}

/// Mean rate in bit/s over an interval; a bin that it covers in part counts in part.
fn rate(bins: &[(f64, u64)], interval: &Interval) -> f64 {
    let (start_s, stop_s) = (interval.start.as_secs_f64(), interval.stop.as_secs_f64());
    let begins = std::iter::once(0.0).chain(bins.iter().map(|&(end, _)| end));
    let bytes = bins.iter().zip(begins).map(|(&(end, bytes), begin)| {
        let covered = (end.min(stop_s) - begin.max(start_s)).max(0.0);
        bytes as f64 * covered / (end - begin)
    });
    bytes.sum::<f64>() * 8.0 / (stop_s - start_s)
}

/// `3 s1>r1`: a flow as series call it, unique.
pub fn flow_name(variant: &Variant, flow: &Flow) -> String {
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
    backlogs: Vec<Backlog>,
) -> Vec<Series> {
    let name = |id: u32| flow_name(variant, &flows[id as usize]);
    let mut all = Vec::new();
    for flow in flows.iter().filter(|flow| is_listed(variant, flow)) {
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
    all.extend(fullest(backlogs).into_iter().map(|(name, points)| Series {
        name,
        kind: SeriesKind::QueueBytes,
        points,
    }));
    all
}

/// In their order at most [`QUEUE_SERIES`] of these, those that were fullest on average; of equals
/// the first.
fn fullest(backlogs: Vec<Backlog>) -> Vec<Backlog> {
    if backlogs.len() <= QUEUE_SERIES {
        return backlogs;
    }
    let sum = |(_, points): &Backlog| points.iter().map(|point| point.1).sum::<f64>();
    let mut ranked: Vec<_> = backlogs.into_iter().enumerate().collect();
    ranked.sort_by(|(_, a), (_, b)| sum(b).total_cmp(&sum(a)));
    ranked.truncate(QUEUE_SERIES);
    ranked.sort_by_key(|(at, _)| *at);
    ranked.into_iter().map(|(_, backlog)| backlog).collect()
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

/// `window_correlation`, `window_relative_error` and `window_governs` (see [`tracking`]): means
/// over the bulk flows for which both windows are known; absent if there is none.
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
    let mean =
        |value: fn(&Tracking) -> f64| stats::mean(&compared.iter().map(value).collect::<Vec<_>>());
    let all: [(String, Option<f64>); 3] = [
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
    ];
    let known = all.into_iter();
    known
        .filter_map(|(name, mean)| Some((name, mean?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::plan::{NEVER_US, open_us};

    #[test]
    fn what_took_longer_than_its_deadline_has_missed_it() {
        let report = |samples_us: &[f64], open_us: &[f64]| CompletionReport {
            samples_us: samples_us.into(),
            open_us: open_us.into(),
            ..CompletionReport::default()
        };
        let deadline = Some(Duration::from_millis(1));
        let mut class = Completions::default();
        assert_eq!(class.quantiles().missed, None);
        class.add(&report(&[500.0], &[NEVER_US]), None);
        class.add(&report(&[900.0, 1000.0, 1100.0, 2000.0], &[]), deadline);
        let quantiles = class.quantiles();
        assert_eq!((quantiles.count, quantiles.missed), (5, Some(0.5)));
        // Transfers that are open and not yet late may still be in time.
        class.add(&report(&[], &[400.0, 1000.0, 1200.0, NEVER_US]), deadline);
        let quantiles = class.quantiles();
        assert_eq!((quantiles.count, quantiles.missed), (5, Some(4.0 / 6.0)));
    }

    #[test]
    fn what_was_begun_and_is_not_complete_is_unfinished() {
        let mut class = Completions::default();
        let sender = CompletionReport {
            begun: 3,
            // One of them has arrived, and its answer has not.
            open_us: vec![400.0, 300.0],
            ..CompletionReport::default()
        };
        class.add(&sender, None);
        assert_eq!(class.quantiles().unfinished, 3);
        assert_eq!(class.quantiles().p99, None);
        let receiver = CompletionReport {
            samples_us: vec![500.0, 380.0],
            ..CompletionReport::default()
        };
        class.add(&receiver, None);
        let quantiles = class.quantiles();
        assert_eq!((quantiles.count, quantiles.unfinished), (2, 1));
        assert_eq!(quantiles.p99, Some(500.0));
    }

    #[test]
    fn what_is_open_passes_through_json() {
        let report = CompletionReport {
            open_us: vec![open_us(2_000, 5_000, false), open_us(2_000, 5_000, true)],
            ..CompletionReport::default()
        };
        assert_eq!(report.open_us, [3.0, NEVER_US]);
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(
            serde_json::from_str::<CompletionReport>(&text).unwrap(),
            report
        );
    }

    #[test]
    fn of_many_queues_the_fullest_are_kept_in_their_order() {
        let of = |count: usize| -> Vec<Backlog> {
            let height = |n: usize| if n % 3 == 0 { n as f64 } else { 0.0 };
            let queue = |n: usize| (n.to_string(), vec![(0.5, 1.0), (1.0, height(n))]);
            (0..count).map(queue).collect()
        };
        assert_eq!(fullest(of(QUEUE_SERIES)), of(QUEUE_SERIES));
        let kept = fullest(of(3 * QUEUE_SERIES + 3));
        let expected = (1..=QUEUE_SERIES).map(|n| (3 * n).to_string());
        assert!(kept.into_iter().map(|(name, _)| name).eq(expected));
    }

    #[test]
    fn a_rate_over_part_of_the_bins() {
        let interval = |start, stop| Interval {
            name: "i".to_owned(),
            start: Duration::from_millis(start),
            stop: Duration::from_millis(stop),
        };
        // 100, 200 and 300 bytes in bins of 100 ms.
        let bins = [(0.1, 100), (0.2, 200), (0.3, 300)];
        let close = |interval, bps: f64| (rate(&bins, &interval) / bps - 1.0).abs() < 1e-9;
        assert!(close(interval(100, 300), 500.0 * 8.0 / 0.2));
        assert!(close(interval(50, 150), 150.0 * 8.0 / 0.1));
        assert!(close(interval(200, 400), 300.0 * 8.0 / 0.2));
    }
}
