//! Merging repeats of one variant.
//!
//! Rates, quantiles and derived figures become medians over the repeats. Counters (packets, drops,
//! marks, retransmissions, samples) are summed, so that a drop in one run of three still shows and
//! ratios of counters stay right. Extremes stay extremes. What one run has not measured, all of
//! them have not, for the others alone would look better; but queues that no packet met, and
//! classes and deadlines of which a run had nothing, are left out.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::Hash,
};

use crate::{
    results::{
        Conditions, CriticalPath, Datagrams, Deadlock, FctQuantiles, FlowResult, Goodput, LinkCee,
        LinkResult, ProgramResult, Quantiles, QueueQuantiles, Samples, VariantResult, VnicResult,
    },
    stats::median,
    world::Outcome,
};

/// Merges the repeats of one variant; one repeat passes unchanged, none gives an empty result.
pub fn repeats(mut outcomes: Vec<Outcome>) -> Outcome {
    if outcomes.len() <= 1 {
        return outcomes.pop().unwrap_or_default();
    }
    let conditions = conditions(outcomes.iter().map(|outcome| &outcome.conditions));
    let runs: Vec<VariantResult> = outcomes.into_iter().map(|outcome| outcome.result).collect();
    Outcome {
        result: merge(runs),
        conditions,
    }
}

/// Merges the conditions of several runs: the worst of each, every note once.
pub fn conditions<'a>(all: impl IntoIterator<Item = &'a Conditions>) -> Conditions {
    let mut all = all.into_iter();
    let mut merged = all.next().cloned().unwrap_or_default();
    for one in all {
        merged.cpu_idle_min = smallest([merged.cpu_idle_min, one.cpu_idle_min]);
        merged.cpu_stolen_max = largest([merged.cpu_stolen_max, one.cpu_stolen_max]);
        merged.clock_lag_max_us = largest([merged.clock_lag_max_us, one.clock_lag_max_us]);
        merged.clock_lag_p99_us = largest([merged.clock_lag_p99_us, one.clock_lag_p99_us]);
        merged.cpu_bound |= one.cpu_bound;
        merged.accepts_cpu_bound &= one.accepts_cpu_bound;
        merged.rate_scale = merged.rate_scale.min(one.rate_scale);
        merged.offloads |= one.offloads;
        for (counter, value) in &one.outside {
            *merged.outside.entry(counter.clone()).or_default() += value;
        }
        for note in &one.notes {
            if !merged.notes.contains(note) {
                merged.notes.push(note.clone());
            }
        }
    }
    merged
}

/// Of those that there are.
fn largest(all: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    all.into_iter().flatten().reduce(f64::max)
}

/// Of those that there are.
fn smallest(all: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    all.into_iter().flatten().reduce(f64::min)
}

/// `runs` is not empty.
fn merge(mut runs: Vec<VariantResult>) -> VariantResult {
    let samples = merge_samples(&mut runs);
    let goodputs: Vec<&Goodput> = runs.iter().map(|run| &run.goodput_bps).collect();
    let cpu_idle_min = smallest(runs.iter().map(|run| run.cpu_idle_min));
    VariantResult {
        name: runs[0].name.clone(),
        title: runs[0].title.clone(),
        goodput_bps: merge_goodput(&goodputs),
        flows: aligned(&runs, |run| &run.flows, |flow| flow.id, merge_flow),
        rtt_us: merge_rtt(&runs),
        fct_us: keyed(&runs, |run| &run.fct_us, |all| merge_fct(&all)),
        links: aligned(&runs, |run| &run.links, |link| link.id.clone(), merge_link),
        vnics: aligned(
            &runs,
            |run| &run.vnics,
            |vnic| vnic.tenant.clone(),
            merge_vnic,
        ),
        enforcement: keyed(&runs, |run| &run.enforcement, |all| all.into_iter().sum()),
        cpu_idle_min,
        derived: keyed(
            &runs,
            |run| &run.derived,
            |all| median(&all.into_iter().copied().collect::<Vec<_>>()).unwrap_or(0.0),
        ),
        programs: keyed(&runs, |run| &run.programs, |all| merge_program(&all)),
        intervals: keyed(&runs, |run| &run.intervals, |all| merge_goodput(&all)),
        deadlocks: merge_deadlocks(&runs),
        samples,
    }
}

fn merge_vnic(all: &[&VnicResult]) -> VnicResult {
    let sum = |of: fn(&VnicResult) -> u64| all.iter().map(|vnic| of(vnic)).sum();
    let mut drops = BTreeMap::new();
    for (cause, count) in all.iter().flat_map(|vnic| &vnic.drops) {
        *drops.entry(cause.clone()).or_default() += count;
    }
    VnicResult {
        tenant: all[0].tenant.clone(),
        sent: sum(|vnic| vnic.sent),
        into_switch: sum(|vnic| vnic.into_switch),
        out_of_switch: sum(|vnic| vnic.out_of_switch),
        received: sum(|vnic| vnic.received),
        drops,
    }
}

/// Those of every repeat, with its number.
fn merge_deadlocks(runs: &[VariantResult]) -> Vec<Deadlock> {
    let all = (1..).zip(runs);
    let of_run = |(repeat, run): (u32, &VariantResult)| {
        let found = run.deadlocks.clone().into_iter();
        found.map(move |deadlock| Deadlock { repeat, ..deadlock })
    };
    all.flat_map(of_run).collect()
}

/// Samples and traces of every run together; series of the first, since time does not merge.
fn merge_samples(runs: &mut [VariantResult]) -> Samples {
    let mut merged = Samples::default();
    for run in runs.iter_mut() {
        let samples = std::mem::take(&mut run.samples);
        merged.rtt_us.extend(samples.rtt_us);
        (merged.rtt_outstanding_us).extend(samples.rtt_outstanding_us);
        merged.wake_us.extend(samples.wake_us);
        for (class, times) in samples.fct_us {
            merged.fct_us.entry(class).or_default().extend(times);
        }
        for (class, count) in samples.unfinished {
            *merged.unfinished.entry(class).or_default() += count;
        }
        merged.traces.extend(samples.traces);
        merged.films.extend(samples.films);
        if merged.series.is_empty() {
            merged.series = samples.series;
        }
        if merged.timelines.is_empty() {
            merged.timelines = samples.timelines;
        }
    }
    merged
}

/// Merges what several runs have under one key; a key that a run lacks is merged from the others.
fn keyed<T, U>(
    runs: &[VariantResult],
    of: impl Fn(&VariantResult) -> &BTreeMap<String, T>,
    merge: impl Fn(Vec<&T>) -> U,
) -> BTreeMap<String, U> {
    let keys: BTreeSet<&String> = runs.iter().flat_map(|run| of(run).keys()).collect();
    let merged = keys.into_iter().map(|key| {
        let values = runs.iter().filter_map(|run| of(run).get(key)).collect();
        (key.clone(), merge(values))
    });
    merged.collect()
}

/// Merges elements with the same key, in the order in which they come first: a link may be listed
/// by some runs only.
fn aligned<T, K: Eq + Hash>(
    runs: &[VariantResult],
    of: impl Fn(&VariantResult) -> &Vec<T>,
    key: impl Fn(&T) -> K,
    merge: impl Fn(&[&T]) -> T,
) -> Vec<T> {
    let mut places: HashMap<K, usize> = HashMap::new();
    let mut groups: Vec<Vec<&T>> = Vec::new();
    for element in runs.iter().flat_map(|run| of(run).iter()) {
        let place = *places.entry(key(element)).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(same) => same.push(element),
            None => groups.push(vec![element]),
        }
    }
    groups.iter().map(|same| merge(same)).collect()
}

/// `all` is not empty.
fn medians<T>(all: &[&T], of: impl Fn(&T) -> f64) -> f64 {
    known_median(all, |one| Some(of(one))).unwrap_or(0.0)
}

/// `None` if one has not measured it.
fn whole_median<T>(all: &[&T], of: impl Fn(&T) -> Option<f64>) -> Option<f64> {
    median(&all.iter().map(|one| of(one)).collect::<Option<Vec<_>>>()?)
}

/// Of those that measured it; `None` if none did.
fn known_median<T>(all: &[&T], of: impl Fn(&T) -> Option<f64>) -> Option<f64> {
    median(&all.iter().filter_map(|one| of(one)).collect::<Vec<_>>())
}

/// Of those that measured it; `None` if none did.
fn known_max<T>(all: &[&T], of: impl Fn(&T) -> Option<f64>) -> Option<f64> {
    all.iter().filter_map(|one| of(one)).reduce(f64::max)
}

/// `None` if one has not measured it.
fn whole_max<T>(all: &[&T], of: impl Fn(&T) -> Option<f64>) -> Option<f64> {
    let values: Option<Vec<f64>> = all.iter().map(|one| of(one)).collect();
    values?.into_iter().reduce(f64::max)
}

/// `None` if a run has not counted: the sum would be too small.
fn known_sum<T>(all: &[&T], of: impl Fn(&T) -> Option<u64>) -> Option<u64> {
    all.iter().map(|one| of(one)).sum()
}

fn sums<T>(all: &[&T], of: impl Fn(&T) -> u64) -> u64 {
    all.iter().map(|one| of(one)).sum()
}

fn merge_flow(all: &[&FlowResult]) -> FlowResult {
    FlowResult {
        goodput_bps: medians(all, |flow| flow.goodput_bps),
        retransmits: known_sum(all, |flow| flow.retransmits),
        timeouts: known_sum(all, |flow| flow.timeouts),
        srtt_us: whole_median(all, |flow| flow.srtt_us),
        cwnd_max_bytes: all.iter().filter_map(|flow| flow.cwnd_max_bytes).max(),
        cwnd_cuts: known_sum(all, |flow| flow.cwnd_cuts),
        stalled_us: whole_max(all, |flow| flow.stalled_us),
        datagrams: merge_datagrams(all),
        ..all[0].clone()
    }
}

fn merge_datagrams(all: &[&FlowResult]) -> Option<Datagrams> {
    let all: Vec<&Datagrams> = all
        .iter()
        .filter_map(|flow| flow.datagrams.as_ref())
        .collect();
    (!all.is_empty()).then(|| Datagrams {
        sent: sums(&all, |one| one.sent),
        sent_bytes: sums(&all, |one| one.sent_bytes),
        received: sums(&all, |one| one.received),
        received_bytes: sums(&all, |one| one.received_bytes),
        lost: sums(&all, |one| one.lost),
        lost_bytes: sums(&all, |one| one.lost_bytes),
        underway: known_sum(&all, |one| one.underway),
        socket_drops: sums(&all, |one| one.socket_drops),
        socket_dropped_bytes: sums(&all, |one| one.socket_dropped_bytes),
    })
}

/// Times are medians, if all runs have them: one in which the program has not ended has taken
/// longer than any other. Operations are summed.
fn merge_program(all: &[&ProgramResult]) -> ProgramResult {
    let phase = |name: &String| whole_median(all, |one| one.phases_s.get(name).copied());
    ProgramResult {
        operations: sums(all, |one| one.operations),
        ended: sums(all, |one| one.ended),
        unreceived: sums(all, |one| one.unreceived),
        completion_s: whole_median(all, |one| one.completion_s),
        phases_s: (all[0].phases_s.keys())
            .filter_map(|name| Some((name.clone(), phase(name)?)))
            .collect(),
        computing_s: medians(all, |one| one.computing_s),
        waiting_s: medians(all, |one| one.waiting_s),
        waiting_max_s: medians(all, |one| one.waiting_max_s),
        critical_path: merge_path(all),
        waits: all
            .iter()
            .flat_map(|one| one.waits.iter().cloned())
            .collect(),
        untaken: all
            .iter()
            .flat_map(|one| one.untaken.iter().cloned())
            .collect(),
        ..all[0].clone()
    }
}

/// The longest steps are those of the first run.
fn merge_path(all: &[&ProgramResult]) -> Option<CriticalPath> {
    let paths = all.iter().map(|one| one.critical_path.as_ref());
    let paths: Vec<&CriticalPath> = paths.collect::<Option<_>>()?;
    Some(CriticalPath {
        computing_s: medians(&paths, |path| path.computing_s),
        network_s: medians(&paths, |path| path.network_s),
        computations: medians(&paths, |path| path.computations as f64) as u64,
        messages: medians(&paths, |path| path.messages as f64) as u64,
        longest: paths.first()?.longest.clone(),
    })
}

fn merge_rtt(runs: &[VariantResult]) -> Quantiles {
    let all: Vec<&Quantiles> = runs.iter().map(|run| &run.rtt_us).collect();
    Quantiles {
        count: sums(&all, |rtt| rtt.count),
        p50: whole_median(&all, |rtt| rtt.p50),
        p99: whole_median(&all, |rtt| rtt.p99),
        p999: whole_median(&all, |rtt| rtt.p999),
        max: whole_max(&all, |rtt| rtt.max),
    }
}

/// A run in which flows were begun and none was complete has no times, and leaves the merged class
/// without: those of the other runs would say that it went as well.
fn merge_fct(all: &[&FctQuantiles]) -> FctQuantiles {
    let stuck = all.iter().any(|fct| fct.count == 0 && fct.unfinished > 0);
    let time = |of: fn(&FctQuantiles) -> Option<f64>| match stuck {
        true => None,
        false => known_median(all, of),
    };
    FctQuantiles {
        count: sums(all, |fct| fct.count),
        unfinished: sums(all, |fct| fct.unfinished),
        mean: time(|fct| fct.mean),
        p50: time(|fct| fct.p50),
        p99: time(|fct| fct.p99),
        p999: time(|fct| fct.p999),
        missed: merge_missed(all),
    }
}

fn merge_missed(all: &[&FctQuantiles]) -> Option<f64> {
    known_median(all, |fct| fct.missed)
}

fn merge_goodput(all: &[&Goodput]) -> Goodput {
    Goodput {
        sum: medians(all, |goodput| goodput.sum),
        mean: whole_median(all, |goodput| goodput.mean),
        jain: whole_median(all, |goodput| goodput.jain),
        max: whole_median(all, |goodput| goodput.max),
    }
}

fn merge_link(all: &[&LinkResult]) -> LinkResult {
    let mut drops = BTreeMap::new();
    for (cause, count) in all.iter().flat_map(|link| &link.drops) {
        *drops.entry(cause.clone()).or_default() += count;
    }
    LinkResult {
        sent: sums(all, |link| link.sent),
        sent_bytes: sums(all, |link| link.sent_bytes),
        drops,
        marks: sums(all, |link| link.marks),
        queue_bytes: QueueQuantiles {
            p50: known_median(all, |link| link.queue_bytes.p50),
            p99: known_median(all, |link| link.queue_bytes.p99),
            max: known_max(all, |link| link.queue_bytes.max),
        },
        cee: merge_cee(all),
        ..all[0].clone()
    }
}

fn merge_cee(all: &[&LinkResult]) -> Option<LinkCee> {
    let all: Vec<&LinkCee> = all.iter().filter_map(|link| link.cee.as_ref()).collect();
    (!all.is_empty()).then(|| LinkCee {
        pauses: sums(&all, |one| one.pauses),
        paused_us: medians(&all, |one| one.paused_us),
        notifications: sums(&all, |one| one.notifications),
        ingress_max_bytes: all
            .iter()
            .map(|one| one.ingress_max_bytes)
            .max()
            .unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(p50: f64, drops: u64, goodput_bps: f64) -> Outcome {
        let result = VariantResult {
            rtt_us: Quantiles {
                count: 10,
                p50: Some(p50),
                max: Some(p50),
                ..Quantiles::default()
            },
            flows: vec![FlowResult {
                goodput_bps,
                retransmits: Some(drops),
                ..FlowResult::default()
            }],
            links: vec![LinkResult {
                id: "left>right".to_owned(),
                drops: BTreeMap::from([("tail".to_owned(), drops)]),
                ..LinkResult::default()
            }],
            enforcement: BTreeMap::from([(format!("only-{drops}"), 1), ("seen".to_owned(), 2)]),
            cpu_idle_min: Some(p50 / 100.0),
            samples: Samples {
                rtt_us: vec![p50; 2],
                ..Samples::default()
            },
            ..VariantResult::default()
        };
        let conditions = Conditions {
            cpu_idle_min: Some(p50 / 100.0),
            cpu_stolen_max: Some(p50 / 100.0),
            cpu_bound: drops > 0,
            rate_scale: 1.0,
            outside: BTreeMap::from([("reordered".to_owned(), drops)]),
            notes: vec!["same".to_owned()],
            ..Conditions::default()
        };
        Outcome { result, conditions }
    }

    #[test]
    fn quantiles_are_medians_and_counters_sums() {
        let merged = repeats(vec![
            run(10.0, 0, 5.0),
            run(90.0, 1, 7.0),
            run(20.0, 0, 6.0),
        ]);
        let result = &merged.result;
        assert_eq!(
            (result.rtt_us.p50, result.rtt_us.max, result.rtt_us.count),
            (Some(20.0), Some(90.0), 30)
        );
        assert_eq!(result.flows[0].goodput_bps, 6.0);
        assert_eq!(result.flows[0].retransmits, Some(1));
        assert_eq!(result.links[0].drops["tail"], 1);
        assert_eq!(result.enforcement["seen"], 6);
        assert_eq!(result.enforcement["only-1"], 1);
        assert_eq!(result.samples.rtt_us.len(), 6);
        assert_eq!(result.cpu_idle_min, Some(0.1));
    }

    #[test]
    fn a_run_in_which_nothing_was_complete_is_not_left_out() {
        let fct = |count, unfinished, p99| FctQuantiles {
            count,
            unfinished,
            p99,
            ..FctQuantiles::default()
        };
        let (good, idle, stuck) = (fct(3, 0, Some(7.0)), fct(0, 0, None), fct(0, 2, None));
        let merged = merge_fct(&[&good, &idle]);
        assert_eq!((merged.count, merged.p99), (3, Some(7.0)));
        let merged = merge_fct(&[&good, &stuck]);
        assert_eq!((merged.count, merged.unfinished, merged.p99), (3, 2, None));
    }

    #[test]
    fn a_run_that_has_not_measured_leaves_no_median() {
        let program = |completion_s: Option<f64>| ProgramResult {
            completion_s,
            phases_s: (completion_s.iter())
                .map(|it| ("one".to_owned(), *it))
                .collect(),
            critical_path: completion_s.map(|network_s| CriticalPath {
                network_s,
                ..CriticalPath::default()
            }),
            ..ProgramResult::default()
        };
        let with = |completion_s: Option<f64>| {
            let mut outcome = run(10.0, 0, 5.0);
            let result = &mut outcome.result;
            result.programs = [("p".to_owned(), program(completion_s))].into();
            result.flows[0].srtt_us = completion_s;
            result.goodput_bps.jain = completion_s;
            if completion_s.is_none() {
                result.rtt_us = Quantiles::default();
            }
            outcome
        };
        let figures = |completions: [Option<f64>; 3]| {
            let result = repeats(completions.map(with).into()).result;
            let program = &result.programs["p"];
            let path = program.critical_path.as_ref();
            [
                program.completion_s,
                program.phases_s.get("one").copied(),
                path.map(|path| path.network_s),
                result.flows[0].srtt_us,
                result.goodput_bps.jain,
                result.rtt_us.p50.map(|_| 2.0),
                result.rtt_us.max.map(|_| 2.0),
            ]
        };
        assert_eq!(figures([3.0, 1.0, 2.0].map(Some)), [Some(2.0); 7]);
        for at in 0..3 {
            let mut completions = [Some(1.0); 3];
            completions[at] = None;
            assert_eq!(figures(completions), [None; 7], "{at}");
        }
    }

    #[test]
    fn conditions_are_the_worst_of_all() {
        let merged = repeats(vec![run(10.0, 0, 5.0), run(90.0, 3, 7.0)]).conditions;
        assert!(merged.cpu_bound);
        assert_eq!(merged.cpu_idle_min, Some(0.1));
        assert_eq!(merged.cpu_stolen_max, Some(0.9));
        assert_eq!(merged.outside["reordered"], 3);
        assert_eq!(merged.notes, ["same"]);
    }

    #[test]
    fn one_repeat_passes_unchanged() {
        let merged = repeats(vec![run(10.0, 2, 5.0)]);
        assert_eq!(merged.result.samples.rtt_us.len(), 2);
        assert_eq!(merged.result.rtt_us.count, 10);
    }
}
