//! Running an experiment in a world: variants in turns, repeats, and again slower when the CPU was
//! the bottleneck.
//!
//! Repeats are interleaved: every variant runs once, then every variant again, starting with the
//! next one, so that whatever drifts on the machine meets all variants alike.

use std::collections::HashMap;

use anyhow::{Context, bail};

use crate::{
    aggregate,
    experiment::{Experiment, Variant},
    figures::{Figure, Quantity},
    hotspot, lossless, published,
    results::{Conditions, Results, SCHEMA, VariantResult},
    workload::{offered, programs},
    world::{Observer, Outcome, World},
};

/// How often all rates are halved because the CPU was the bottleneck.
pub const HALVINGS_MAX: u32 = 2;

/// Runs every variant of `experiment` at its own rates, see [`run_at`].
///
/// # Errors
/// As [`run_at`].
pub fn run(
    experiment: &Experiment,
    world: &mut dyn World,
    observer: &mut dyn Observer,
) -> anyhow::Result<Results> {
    run_at(1.0, experiment, world, observer)
}

/// Runs every variant of `experiment` with all rates multiplied by `rate_scale` and says what
/// became of its expectations.
///
/// All variants run at the same rates: if a run is CPU-bound twice in a row, all run again at half
/// the rates, at most [`HALVINGS_MAX`] times. If that does not help, the results say `cpu_bound`.
///
/// # Errors
/// The world refuses the experiment or fails, or the observer cancelled.
pub fn run_at(
    rate_scale: f64,
    experiment: &Experiment,
    world: &mut dyn World,
    observer: &mut dyn Observer,
) -> anyhow::Result<Results> {
    world.check(experiment)?;
    for line in traffic_notes(experiment) {
        observer.note(&line);
    }
    let scale = |halvings: u32| rate_scale * 0.5f64.powi(halvings as i32);
    let mut halvings = 0;
    let outcomes = loop {
        let scaled = experiment.scaled(scale(halvings));
        match run_all(&scaled, world, observer, halvings < HALVINGS_MAX)? {
            Attempt::Done(outcomes) => break outcomes,
            Attempt::CpuBound(variant) => {
                halvings += 1;
                observer.note(&format!(
                    "the CPU was the bottleneck in \"{variant}\": everything again at {} of the rates",
                    scale(halvings),
                ));
            }
        }
    };
    Ok(assemble(
        experiment,
        world.name(),
        outcomes,
        scale(halvings),
    ))
}

/// Notes on the traffic as it is written.
fn traffic_notes(experiment: &Experiment) -> Vec<String> {
    let mut notes = hotspot::notes(experiment);
    notes.extend(offered::overloads(experiment));
    notes.extend(programs::notes_of_files(experiment));
    notes
}

enum Attempt {
    /// The repeats of each variant.
    Done(Vec<Vec<Outcome>>),
    /// This variant was limited by the CPU.
    CpuBound(String),
}

fn run_all(
    experiment: &Experiment,
    world: &mut dyn World,
    observer: &mut dyn Observer,
    may_slow_down: bool,
) -> anyhow::Result<Attempt> {
    let variants = experiment.variants.len();
    let total = variants * experiment.repeats as usize;
    let mut outcomes: Vec<Vec<Outcome>> = vec![Vec::new(); variants];
    for (number, index) in order(variants, experiment.repeats as usize).enumerate() {
        if observer.cancelled() {
            bail!("interrupted");
        }
        let variant = &experiment.variants[index];
        let repeat = number / variants;
        let seed = experiment.seed.wrapping_add(repeat as u64);
        observer.begins(&variant.name, number + 1, total);
        let mut once = |observer: &mut dyn Observer| {
            let outcome = world.run(experiment, variant, seed, observer);
            outcome.with_context(|| format!("{}: variant \"{}\"", experiment.file, variant.name))
        };
        let mut outcome = once(observer)?;
        if outcome.conditions.cpu_bound && !variant.lab.accept_cpu_bound {
            // Another process may have used the CPU for a moment.
            observer.note(&format!(
                "the CPU was the bottleneck in \"{}\": once more",
                variant.name
            ));
            outcome = once(observer)?;
        }
        record_rates(&mut outcome.result, variant);
        for trace in &mut outcome.result.samples.traces {
            trace.repeat = repeat as u32 + 1;
        }
        for film in &mut outcome.result.samples.films {
            film.repeat = repeat as u32 + 1;
        }
        if variant.lab.accept_cpu_bound {
            outcome.conditions.accepts_cpu_bound = true;
        } else if outcome.conditions.cpu_bound && may_slow_down {
            return Ok(Attempt::CpuBound(variant.name.clone()));
        }
        outcomes[index].push(outcome);
    }
    Ok(Attempt::Done(outcomes))
}

/// A larger fraction of flows that were not complete is worth a note: p99 is then not theirs.
const UNFINISHED_ABOVE: f64 = 0.01;

/// Notes at which rate each link was run; a world need not know.
fn record_rates(result: &mut VariantResult, variant: &Variant) {
    let mut rates = HashMap::new();
    for port in variant.ports() {
        let rate_bps = variant.links[port.link()].rate_bps;
        rates.insert(variant.port_name(port), rate_bps);
    }
    for measured in &mut result.links {
        if let Some(rate_bps) = rates.get(&measured.id) {
            measured.rate_bps = *rate_bps;
        }
    }
}

/// Indexes of variants in the order of running.
fn order(variants: usize, repeats: usize) -> impl Iterator<Item = usize> {
    (0..repeats).flat_map(move |repeat| (0..variants).map(move |turn| (turn + repeat) % variants))
}

fn assemble(
    experiment: &Experiment,
    world: &str,
    mut outcomes: Vec<Vec<Outcome>>,
    rate_scale: f64,
) -> Results {
    let runs = match experiment.expectations.iter().any(|e| e.is_of_runs()) {
        true => figures_by_run(&mut outcomes),
        false => Vec::new(),
    };
    let merged: Vec<Outcome> = outcomes.into_iter().map(aggregate::repeats).collect();
    let mut conditions: Conditions = aggregate::conditions(merged.iter().map(|o| &o.conditions));
    conditions.rate_scale = rate_scale;
    conditions.version = env!("CARGO_PKG_VERSION").to_owned();
    conditions.notes.extend(traffic_notes(experiment));
    if experiment.repeats > 1 {
        let note = format!(
            "{} repeats: rates and quantiles are medians, counters are sums",
            experiment.repeats
        );
        conditions.notes.push(note);
    }
    let variants: Vec<_> = merged.into_iter().map(|outcome| outcome.result).collect();
    let no_cpu = variants
        .iter()
        .all(|variant| variant.cpu_idle_min.is_none());
    let (void, expectations): (Vec<_>, Vec<_>) =
        (experiment.expectations.iter().filter(|e| e.is_for(world)))
            .partition(|e| no_cpu && e.is_of_cpu());
    conditions.notes.extend(void.iter().map(|e| {
        let reason = "there is no `cpu_idle_min` in simulated time";
        format!("[expect] {} does not apply: {reason}", e.name)
    }));
    conditions
        .notes
        .extend(variants.iter().flat_map(unfinished));
    (conditions.notes).extend(variants.iter().filter_map(unanswered));
    let idle = expectations.iter().filter(|e| e.always_holds());
    conditions.notes.extend(idle.map(|e| {
        let reason = "no value that was measured could break it";
        format!("[expect] {}: {reason}", e.name)
    }));
    let figures = expectations.iter().flat_map(|e| e.figures());
    count_unsaid(&mut conditions, &variants, &figures.collect::<Vec<_>>());
    Results {
        schema: SCHEMA,
        scenario: experiment.name.clone(),
        title: experiment.title.clone(),
        mirrors: experiment.mirrors.clone(),
        world: world.to_owned(),
        seed: experiment.seed,
        conditions,
        expectations: (expectations.iter())
            .map(|e| e.evaluate(&variants, &runs))
            .collect(),
        published: published::evaluate(&experiment.published, &variants),
        variants,
    }
}

/// A line for each class of flows of which so many were not complete that its completion times may
/// say little: those that take longest are the ones that are not there.
fn unfinished(variant: &VariantResult) -> impl Iterator<Item = String> {
    let classes = variant.fct_us.iter();
    let many = classes.filter(|(_, fct)| {
        let begun = fct.count + fct.unfinished;
        fct.unfinished as f64 > UNFINISHED_ABOVE * begun as f64
    });
    many.map(|(class, fct)| {
        let (left, begun) = (fct.unfinished, fct.count + fct.unfinished);
        let of = format!("{}: fct_us.{class}: {left} of {begun}", variant.name);
        format!("{of} were not complete when the run ended; completion times leave them out")
    })
}

/// A line for requests that had waited longer than any answer took when the run ended: the longest
/// round trips are the ones that are not there.
fn unanswered(variant: &VariantResult) -> Option<String> {
    let samples = &variant.samples;
    let longest_us = samples.rtt_us.iter().copied().fold(0.0, f64::max);
    let waiting = samples.rtt_outstanding_us.iter().copied();
    let waiting: Vec<f64> = waiting.filter(|&us| us > longest_us).collect();
    let most_ms = waiting.iter().copied().fold(0.0, f64::max) / 1e3;
    (!waiting.is_empty()).then(|| {
        let of = format!("{}: rtt_us: waiting requests", variant.name);
        let (count, than) = (waiting.len(), "longer than any answer took");
        format!("{of}, which round trips leave out: {count}, for up to {most_ms:.1} ms, {than}")
    })
}

/// The results of each run, all variants of it, without their samples.
fn figures_by_run(outcomes: &mut [Vec<Outcome>]) -> Vec<Vec<VariantResult>> {
    let repeats = outcomes.iter().map(Vec::len).min().unwrap_or(0);
    let figures = |outcome: &mut Outcome| {
        let samples = std::mem::take(&mut outcome.result.samples);
        let figures = outcome.result.clone();
        outcome.result.samples = samples;
        figures
    };
    (0..repeats)
        .map(|repeat| {
            let runs = outcomes.iter_mut().map(|runs| &mut runs[repeat]);
            runs.map(figures).collect()
        })
        .collect()
}

/// Counts losses and deadlocks of lossless Ethernet, unless expected figures tell of them, and
/// drops at vNICs unless a figure of any variant does: they are then what the experiment is about.
fn count_unsaid(conditions: &mut Conditions, variants: &[VariantResult], figures: &[&Figure]) {
    for variant in variants {
        let tells = |f: &&&Figure| f.variant == variant.name || f.quantity.is_vnic_drops();
        let of_it = figures.iter().filter(tells);
        let said: Vec<&Quantity> = of_it.map(|figure| &figure.quantity).collect();
        for (counter, count) in lossless::unsaid(variant, &said) {
            if count > 0 {
                *conditions.outside.entry(counter.to_owned()).or_default() += count;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Duration};

    use super::*;
    use crate::world::Problem;
    use crate::{
        file,
        results::{FctQuantiles, LinkResult},
    };

    /// A world whose CPU keeps up with `cpu_limit_bps` on the first link.
    struct Model {
        cpu_limit_bps: u64,
        /// The run, from 0, in which another process uses the CPU.
        disturbed: Option<usize>,
        runs: Vec<(String, u64, u64)>,
    }

    impl World for Model {
        fn name(&self) -> &'static str {
            "model"
        }

        fn limits(&self, _: &Experiment) -> Vec<Problem> {
            Vec::new()
        }

        fn run(
            &mut self,
            _: &Experiment,
            variant: &Variant,
            seed: u64,
            _: &mut dyn Observer,
        ) -> anyhow::Result<Outcome> {
            let rate = variant.links[0].rate_bps;
            let is_disturbed = self.disturbed == Some(self.runs.len());
            self.runs.push((variant.name.clone(), seed, rate));
            let mut outcome = Outcome::default();
            outcome.result.name.clone_from(&variant.name);
            outcome.result.goodput_bps = crate::stats::goodput(&[rate as f64]);
            outcome.result.links.push(LinkResult {
                id: "left>right".to_owned(),
                bottleneck: true,
                ..LinkResult::default()
            });
            outcome.conditions.cpu_bound = is_disturbed || rate > self.cpu_limit_bps;
            Ok(outcome)
        }
    }

    #[derive(Default)]
    struct Quiet {
        cancelled: bool,
        notes: Vec<String>,
    }

    impl Observer for Quiet {
        fn phase(&mut self, _: &str) {}
        fn progress(&mut self, _: Duration, _: Duration, _: &str) {}
        fn note(&mut self, line: &str) {
            self.notes.push(line.to_owned());
        }
        fn cancelled(&self) -> bool {
            self.cancelled
        }
    }

    #[test]
    fn classes_that_were_not_completed_are_noted() {
        let class = |count, unfinished| FctQuantiles {
            count,
            unfinished,
            ..FctQuantiles::default()
        };
        let classes = [
            ("few", class(990, 10)),
            ("none", class(0, 0)),
            ("many", class(90, 2)),
        ];
        let variant = VariantResult {
            name: "v".to_owned(),
            fct_us: classes.map(|(name, class)| (name.to_owned(), class)).into(),
            ..VariantResult::default()
        };
        let notes: Vec<String> = unfinished(&variant).collect();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].starts_with("v: fct_us.many: 2 of 92 were not complete"));
    }

    #[test]
    fn requests_that_waited_longer_than_any_answer_are_noted() {
        let mut variant = VariantResult {
            name: "v".to_owned(),
            ..VariantResult::default()
        };
        variant.samples.rtt_us = vec![100.0, 900.0];
        variant.samples.rtt_outstanding_us = vec![900.0, 20.0];
        assert_eq!(unanswered(&variant), None);
        variant.samples.rtt_outstanding_us = vec![5_000_000.0, 20.0, 901.0];
        let note = unanswered(&variant).unwrap();
        assert!(note.contains("leave out: 2, for up to 5000.0 ms"), "{note}");
        variant.samples.rtt_us.clear();
        let note = unanswered(&variant).unwrap();
        assert!(note.contains("leave out: 3, "), "{note}");
    }

    fn experiment() -> Experiment {
        let text = "repeats = 2\nseed = 5\n\
            [network]\ntopology = 'dumbbell'\nrate = '800Mbit'\n\
            [traffic.bulk]\nkind = 'bulk'\nrate = '80Mbit'\n\
            [variant]\na = {}\nb = {}\nc = {}\n\
            [expect]\nsame = 'a.goodput_bps.sum == b.goodput_bps.sum'\nfull = 'c.goodput_bps.sum >= 800000000'\nof-link = 'c.goodput_bps.sum == c.links.bottleneck.rate_bps'\n";
        file::parse(Path::new("t.toml"), text, &file::Options::default())
            .unwrap_or_else(|problems| panic!("{problems}"))
    }

    fn run_model(cpu_limit_bps: u64) -> (Results, Model, Quiet) {
        let mut model = Model {
            cpu_limit_bps,
            disturbed: None,
            runs: Vec::new(),
        };
        let mut observer = Quiet::default();
        let results = run(&experiment(), &mut model, &mut observer).unwrap();
        (results, model, observer)
    }

    #[test]
    fn repeats_are_interleaved_and_seeded_alike() {
        let (results, model, _) = run_model(u64::MAX);
        let runs: Vec<_> = model
            .runs
            .iter()
            .map(|(v, seed, _)| (v.as_str(), *seed))
            .collect();
        assert_eq!(
            runs,
            [("a", 5), ("b", 5), ("c", 5), ("b", 6), ("c", 6), ("a", 6)]
        );
        let names: Vec<_> = results
            .variants
            .iter()
            .map(|v: &VariantResult| v.name.as_str())
            .collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert!(results.expectations.iter().all(|e| e.held));
    }

    #[test]
    fn a_cpu_bound_run_is_repeated_at_half_the_rates() {
        let (results, model, observer) = run_model(400_000_000);
        assert_eq!(results.conditions.rate_scale, 0.5);
        assert!(!results.conditions.cpu_bound);
        assert_eq!(model.runs.len(), 2 + 6, "once more before everything again");
        assert!(
            model.runs[2..]
                .iter()
                .all(|(_, _, rate)| *rate == 400_000_000)
        );
        assert!(observer.notes[0].contains("\"a\""), "{:?}", observer.notes);
        assert!(!results.expectations[1].held);
        assert!(results.expectations[2].held);
    }

    #[test]
    fn a_run_in_which_somebody_else_has_the_cpu_is_repeated_as_it_is() {
        let mut model = Model {
            cpu_limit_bps: u64::MAX,
            disturbed: Some(2),
            runs: Vec::new(),
        };
        let mut observer = Quiet::default();
        let results = run(&experiment(), &mut model, &mut observer).unwrap();
        assert_eq!(results.conditions.rate_scale, 1.0);
        assert!(!results.conditions.cpu_bound);
        assert_eq!(model.runs.len(), 6 + 1);
        assert_eq!(model.runs[2], model.runs[3]);
        assert!(
            observer.notes[0].contains("\"c\": once more"),
            "{:?}",
            observer.notes
        );
    }

    #[test]
    fn a_run_at_other_rates_says_so() {
        let mut model = Model {
            cpu_limit_bps: 100_000_000,
            disturbed: None,
            runs: Vec::new(),
        };
        let mut observer = Quiet::default();
        let results = run_at(0.25, &experiment(), &mut model, &mut observer).unwrap();
        // A quarter is still too much for this CPU.
        assert_eq!(model.runs[0].2, 200_000_000);
        assert_eq!(results.conditions.rate_scale, 0.125);
    }

    #[test]
    fn a_cpu_bound_run_gives_up_after_two_halvings_and_says_so() {
        let (results, model, _) = run_model(1);
        assert!(results.conditions.cpu_bound);
        assert_eq!(results.conditions.rate_scale, 0.25);
        assert_eq!(model.runs.len(), 2 * 2 + 2 * 6);
    }

    #[test]
    fn overload_is_told_before_the_run_and_noted_after_it() {
        let text = "[network]\ntopology = 'star'\nrate = '10Mbit'\n[traffic.t]\nkind = 'trace'\nfrom = 'h1'\nto = 'h2'\n\
            sizes = 'websearch'\nload = '20Mbit'\n";
        let experiment = file::parse(Path::new("t.toml"), text, &file::Options::default());
        let experiment = experiment.unwrap_or_else(|problems| panic!("{problems}"));
        let mut model = Model {
            cpu_limit_bps: u64::MAX,
            disturbed: None,
            runs: Vec::new(),
        };
        let mut observer = Quiet::default();
        let results = run(&experiment, &mut model, &mut observer).unwrap();
        assert!(observer.notes[0].contains("20.0 Mb/s are offered"));
        assert_eq!(results.conditions.notes, observer.notes);
    }

    #[test]
    fn what_a_goal_file_says_twice_is_noted() {
        let directory = std::env::temp_dir().join(format!("sg-twice-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let goal = "num_ranks 1\nrank 0 {\na: calc 5\na: calc 6\n}\n";
        std::fs::write(directory.join("twice.goal"), goal).unwrap();
        let text = "[network]\ntopology = 'star'\n[traffic.p]\nkind = 'program'\ngoal = 'twice.goal'\n\
            [variant.a]\n[variant.b]\n";
        let path = directory.join("t.toml");
        let experiment = file::parse(&path, text, &file::Options::default());
        let experiment = experiment.unwrap_or_else(|problems| panic!("{problems}"));
        let notes = traffic_notes(&experiment);
        assert_eq!(notes.len(), 1, "{notes:?}");
        let line =
            "program p (twice.goal): labels that another operation of the rank had before: 1,";
        assert!(notes[0].starts_with(line), "{notes:?}");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn an_expectation_of_the_cpu_does_not_apply_where_time_is_simulated() {
        let text = experiment().as_run + "idle = 'a.cpu_idle_min >= 0.1'\n";
        let experiment = file::parse(Path::new("t.toml"), &text, &file::Options::default());
        let experiment = experiment.unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(experiment.expectations.len(), 4);
        let mut model = Model {
            cpu_limit_bps: u64::MAX,
            disturbed: None,
            runs: Vec::new(),
        };
        let results = run(&experiment, &mut model, &mut Quiet::default()).unwrap();
        assert!(results.expectations.iter().all(|e| e.name != "idle"));
        let note = "[expect] idle does not apply: there is no `cpu_idle_min` in simulated time";
        assert!(results.conditions.notes.contains(&note.to_owned()));
        let text = serde_json::to_string(&results).unwrap();
        assert!(!text.contains("\"cpu_idle_min\"") && !text.contains("\"cpus\""));
    }

    #[test]
    fn cancelling_stops_before_the_next_run() {
        let mut model = Model {
            cpu_limit_bps: 0,
            disturbed: None,
            runs: Vec::new(),
        };
        let mut observer = Quiet {
            cancelled: true,
            ..Quiet::default()
        };
        assert!(run(&experiment(), &mut model, &mut observer).is_err());
        assert!(model.runs.is_empty());
    }

    #[test]
    fn selecting_variants_drops_what_needs_the_others() {
        let mut experiment = experiment();
        let dropped = experiment.select(&["c".to_owned()]).unwrap();
        assert_eq!(dropped, ["same"]);
        assert_eq!(experiment.variants.len(), 1);
        assert_eq!(experiment.expectations.len(), 2);
        assert_eq!(experiment.select(&["x".to_owned()]), Err("x".to_owned()));
    }
}
