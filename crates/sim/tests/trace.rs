//! Traces: what they show is what is known elsewhere, and looking changes nothing.

use std::{path::Path, time::Duration};

use sluicegate_scenario::{
    experiment::Experiment,
    inspect::{Captures, Traces},
    results::{Results, SeriesKind, Trace, TraceKind, VariantResult},
    runner,
    world::Unobserved,
};
use sluicegate_sim::{Sim, Threads};

use crate::support;

const SCENARIO: &str = "
repeats = 2
warmup = '10ms'
duration = '40ms'
[network]
topology = 'dumbbell'
pairs = 2
rate = '100Mbit'
queue = '100KB'
marking = { kind = 'threshold', k = '9KB' }
[traffic.bulk]
kind = 'bulk'
[traffic.mice]
kind = 'messages'
bytes = '5KB'
interval = '3ms'
from = 's1'
to = 'r1'
[variant.dctcp]
tenant.default = { congestion_control = 'dctcp', ecn = true }
[variant.enforced]
enforcement.hosts = 'all'
";

fn experiment(kinds: &[&str], interval: Option<Duration>) -> Experiment {
    experiment_of(SCENARIO, kinds, interval)
}

fn experiment_of(scenario: &str, kinds: &[&str], interval: Option<Duration>) -> Experiment {
    let mut experiment = support::experiment(scenario);
    experiment.inspect.traces = Some(Traces {
        kinds: kinds.iter().map(|kind| kind.parse().unwrap()).collect(),
        interval,
    });
    experiment
}

fn run(experiment: &Experiment) -> Results {
    runner::run(experiment, &mut Sim::default(), &mut Unobserved).unwrap()
}

/// Traces of the first repeat.
fn traces(variant: &VariantResult, kind: TraceKind) -> Vec<&Trace> {
    let traces = variant.samples.traces.iter();
    traces
        .filter(|trace| trace.repeat == 1 && trace.kind == kind)
        .collect()
}

#[test]
fn traces_agree_with_the_series_of_the_results() {
    let results = run(&experiment(&["queue", "enforced", "alpha"], None));
    let variant = &results.variants[1];
    for (trace, series, flows) in [
        (TraceKind::Queue, SeriesKind::QueueBytes, 1),
        (TraceKind::Enforced, SeriesKind::EnforcedWindowBytes, 2),
        (TraceKind::Alpha, SeriesKind::Alpha, 2),
    ] {
        let traces = traces(variant, trace);
        let of_kind = variant.samples.series.iter().filter(|s| s.kind == series);
        let series: Vec<_> = of_kind.collect();
        assert_eq!(series.len(), flows, "{trace:?}");
        for series in series {
            let same = traces.iter().find(|trace| trace.name == series.name);
            let points = &same.expect("a trace of each series").points;
            assert!(
                points.ends_with(&series.points),
                "{} {trace:?}",
                series.name
            );
        }
    }
}

#[test]
fn goodput_adds_up_over_all_connections() {
    let interval = Duration::from_millis(1);
    let results = run(&experiment(&["goodput"], Some(interval)));
    for variant in &results.variants {
        let traces = traces(variant, TraceKind::Goodput);
        assert_eq!(traces.len(), 3, "two bulk flows, one of messages");
        for trace in &traces {
            assert_eq!(trace.points.len(), 50, "{}", trace.name);
        }
        let bytes = |trace: &Trace| trace.points.iter().map(|(_, bps)| bps / 8e3).sum::<f64>();
        // 5 KB every 3 ms for 50 ms; the last may be under way.
        let mice = bytes(traces[2]);
        assert!((14.0 * 5e3..=17.0 * 5e3).contains(&mice), "{mice}");
        let all: f64 = traces.iter().copied().map(bytes).sum();
        assert!((0.85..1.0).contains(&(all / (100e6 / 8.0 * 0.05))), "{all}");
    }
}

#[test]
fn senders_are_shown_as_they_are() {
    let kinds = [
        "cwnd",
        "rwnd",
        "ssthresh",
        "srtt",
        "in_flight",
        "alpha",
        "enforced",
    ];
    let results = run(&experiment(&kinds, None));
    let [dctcp, enforced] = [0, 1].map(|variant| &results.variants[variant]);
    assert!(traces(dctcp, TraceKind::Enforced).is_empty());
    assert_eq!(traces(dctcp, TraceKind::Alpha).len(), 3, "the tenants' own");
    let last = |variant, kind| traces(variant, kind)[0].points.last().unwrap().1;
    // Enforced, the tenant's own window is far above the one that it is shown.
    assert!(last(enforced, TraceKind::Rwnd) < last(enforced, TraceKind::Cwnd));
    assert!(last(enforced, TraceKind::InFlight) <= last(enforced, TraceKind::Rwnd) + 1448.0);
    assert!(last(dctcp, TraceKind::Rwnd) > last(dctcp, TraceKind::Cwnd));
    assert!(last(dctcp, TraceKind::Ssthresh) < 1e6);
    assert!(
        (100.0..5_000.0).contains(&last(dctcp, TraceKind::Srtt)),
        "us"
    );
}

#[test]
fn queues_are_bottlenecks_or_all() {
    let of = |kinds: &[&str]| {
        let results = run(&experiment(kinds, Some(Duration::from_millis(10))));
        traces(&results.variants[0], TraceKind::Queue).len()
    };
    assert_eq!(of(&["queue"]), 1);
    // Both ways between the switches, and to each of four hosts.
    assert_eq!(of(&["queue", "all_queues"]), 6);
    assert_eq!(of(&["cwnd"]), 0);
}

#[test]
fn every_repeat_is_traced() {
    let results = run(&experiment(&["queue"], None));
    let repeats = |variant: &VariantResult| -> Vec<u32> {
        let traces = variant.samples.traces.iter();
        traces.map(|trace| trace.repeat).collect()
    };
    assert_eq!(repeats(&results.variants[0]), [1, 2]);
    assert_eq!(repeats(&results.variants[1]), [1, 2]);
}

#[test]
fn looking_changes_nothing() {
    let all: Vec<&str> = TraceKind::ALL.iter().map(|(_, name, _)| *name).collect();
    let mut looked_at = experiment(&all, Some(Duration::from_micros(137)));
    looked_at.inspect.captures = Some(Captures {
        names: vec!["*".to_owned()],
        snaplen_bytes: 128,
        directory: Path::new(env!("CARGO_TARGET_TMPDIR")).join("looking"),
    });
    let mut unseen = looked_at.clone();
    unseen.inspect = Default::default();
    let [mut with, without] = [&looked_at, &unseen].map(run);
    for variant in &mut with.variants {
        assert!(!variant.samples.traces.is_empty());
        variant.samples.traces.clear();
    }
    assert_eq!(format!("{with:?}"), format!("{without:?}"));
    let captures = looked_at.inspect.captures.unwrap().directory;
    assert!(captures.join("dctcp-2/left-right.pcapng").exists());
}

#[test]
fn threads_change_no_trace() {
    let all: Vec<&str> = TraceKind::ALL.iter().map(|(_, name, _)| *name).collect();
    // Threads that have to share a CPU are slow.
    let short = SCENARIO
        .replace("'10ms'", "'1ms'")
        .replace("'40ms'", "'5ms'");
    let experiment = experiment_of(&short, &all, None);
    let traced = |threads: usize| {
        let mut world = Sim {
            threads: Threads::Exactly(threads),
        };
        let results = runner::run(&experiment, &mut world, &mut Unobserved).unwrap();
        let samples = results.variants.iter().map(|variant| &variant.samples);
        samples
            .map(|samples| format!("{:?}", samples.traces))
            .collect::<Vec<_>>()
    };
    assert_eq!(traced(1), traced(2));
}

#[test]
fn a_series_of_millions_is_refused() {
    let asked = experiment(&["queue"], Some(Duration::from_nanos(10)));
    let problem = asked.check_inspect().unwrap_err();
    assert!(
        problem.contains("5000000 samples") && problem.contains("50ns"),
        "{problem}"
    );
}
