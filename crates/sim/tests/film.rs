//! Films: what they show adds up, and looking changes nothing.

use std::time::Duration;

use sluicegate_fabric::cee::{CeeConfig, PfcConfig};
use sluicegate_scenario::{
    experiment::Experiment,
    inspect::Films,
    results::{Film, FilmDirection, Results},
    runner,
    world::Unobserved,
};
use sluicegate_sim::{Sim, Threads};

use crate::support;

/// Three senders to one receiver, beyond what its queue holds.
const SCENARIO: &str = "
repeats = 2
warmup = '1ms'
duration = '4ms'
[network]
topology = 'fat-tree'
children = [2, 2]
parents = [1, 2]
rate = '1Gbit'
queue = '30KB'
[traffic.incast]
kind = 'incast'
from = ['h2', 'h3', 'h4']
to = 'h1'
bytes = '60KB'
interval = '2ms'
[variant.plain]
[variant.enforced]
enforcement.hosts = 'all'
";

fn filmed(interval: Option<Duration>) -> Experiment {
    filmed_as(SCENARIO, interval)
}

fn filmed_as(scenario: &str, interval: Option<Duration>) -> Experiment {
    let mut experiment = support::experiment(scenario);
    experiment.inspect.films = Some(Films { interval });
    experiment
}

fn run_on(threads: usize, experiment: &Experiment) -> Results {
    let mut world = Sim {
        threads: Threads::Exactly(threads),
    };
    runner::run(experiment, &mut world, &mut Unobserved).unwrap()
}

fn films(results: &Results) -> Vec<&Film> {
    let variants = results.variants.iter();
    variants
        .flat_map(|variant| &variant.samples.films)
        .collect()
}

/// The bytes that one direction sent from the first frame to the last, the bytes that it then had
/// queued, and its drops.
fn totals(film: &Film, name: &str) -> (u64, u64, u64) {
    let mut directions = film.directions.iter();
    let place = directions.position(|direction| film.direction_name(direction) == name);
    let place = place.expect("a direction of that name");
    let cells = || film.frames().map(|(_, cells)| cells[place]);
    let queued = cells().last().map_or(0, |cell| cell.queue_bytes);
    let drops = cells().map(|cell| cell.drops).sum();
    (cells().map(|cell| cell.sent_bytes).sum(), queued, drops)
}

#[test]
fn every_run_has_a_frame_per_interval_of_every_direction() {
    let results = run_on(1, &filmed(None));
    let films = films(&results);
    let repeats: Vec<u32> = films.iter().map(|film| film.repeat).collect();
    assert_eq!(repeats, [1, 2, 1, 2]);
    for film in films {
        // Four hosts and four links between two switches and two.
        assert_eq!((film.nodes.len(), film.directions.len()), (8, 16));
        assert_eq!(film.frames().count(), 500);
        let (last_s, cells) = film.frames().last().unwrap();
        assert!((last_s - 0.005).abs() < 1e-12, "{last_s}");
        assert_eq!(cells.len(), 16);
    }
}

#[test]
fn what_was_accepted_has_left_or_is_queued() {
    // Without a warm-up the figures of the results are of the whole run too.
    let text = SCENARIO.replace("warmup = '1ms'\n", "warmup = '0s'\n");
    let text = text.replace("repeats = 2", "");
    let experiment = filmed_as(&text, Some(Duration::from_micros(20)));
    let results = run_on(1, &experiment);
    for variant in &results.variants {
        let film = &variant.samples.films[0];
        for link in &variant.links {
            let (sent, queued, drops) = totals(film, &link.id);
            assert_eq!(sent + queued, link.sent_bytes, "{}", link.id);
            assert_eq!(drops, link.drops.values().sum::<u64>(), "{}", link.id);
        }
    }
    let (sent, _, drops) = totals(&results.variants[0].samples.films[0], "e1>h1");
    assert!(sent > 100_000 && drops > 0, "{sent} {drops}");
}

#[test]
fn no_link_sends_faster_than_it_can() {
    let results = run_on(1, &filmed(Some(Duration::from_micros(50))));
    for film in films(&results) {
        for (_, cells) in film.frames() {
            for (direction, cell) in film.directions.iter().zip(cells) {
                let most_bytes = direction.rate_bps / 8 * 50 / 1_000_000;
                // A packet that was half out when the frame began counts in full.
                assert!(cell.sent_bytes <= most_bytes + 1_600, "{cell:?}");
                let limit = direction.limit_bytes.unwrap_or(u64::MAX);
                assert!(cell.queue_bytes <= limit, "{cell:?} of {limit}");
                assert_eq!(cell.paused_ps, 0, "plain Ethernet");
            }
        }
    }
}

#[test]
fn a_saturation_tree_is_seen_growing_from_its_root() {
    let text = SCENARIO
        .replace("repeats = 2", "")
        .replace("'1ms'", "'0s'")
        .replace("'60KB'", "'200KB'");
    let mut experiment = filmed_as(&text, Some(Duration::from_micros(50)));
    experiment.variants.truncate(1);
    experiment.variants[0].cee = Some(CeeConfig {
        pfc: Some(PfcConfig {
            xoff_bytes: 15_000,
            xon_bytes: 10_000,
            ..PfcConfig::default()
        }),
        ..CeeConfig::default()
    });
    let results = run_on(1, &experiment);
    let variant = &results.variants[0];
    let film = &variant.samples.films[0];
    for link in &variant.links {
        let (sent, queued, drops) = totals(film, &link.id);
        assert_eq!(sent + queued, link.sent_bytes, "{}", link.id);
        assert_eq!(drops, 0, "{}", link.id);
    }
    // When each tier that sends towards h1 is paused first: roots by its edge switch, then the
    // other edge switch by them.
    let first = |tiers: [&str; 2]| {
        let leads = |direction: &FilmDirection| {
            let [from, to] = [direction.from, direction.to].map(|node| &film.nodes[node].name);
            from.starts_with(tiers[0]) && to.starts_with(tiers[1])
        };
        let frames = film.frames().enumerate();
        let mut paused = frames.filter(|(_, (_, cells))| {
            let mut of = film.directions.iter().zip(*cells);
            of.any(|(direction, cell)| leads(direction) && cell.paused_ps > 0)
        });
        paused.next().map(|(number, _)| number)
    };
    let (roots, edge) = (first(["a", "e1"]), first(["e2", "a"]));
    let order = roots.zip(edge);
    assert!(order.is_some_and(|(roots, edge)| roots < edge), "{order:?}");
    for (_, cells) in film.frames() {
        for (direction, cell) in film.directions.iter().zip(cells) {
            assert!(cell.paused_ps <= film.interval_ps, "{cell:?}");
            assert!(Some(cell.queue_bytes) <= direction.limit_bytes, "{cell:?}");
        }
    }
}

#[test]
fn looking_changes_nothing() {
    let experiment = filmed(Some(Duration::from_micros(137)));
    let mut unseen = experiment.clone();
    unseen.inspect = Default::default();
    let [mut with, without] = [&experiment, &unseen].map(|it| run_on(1, it));
    for variant in &mut with.variants {
        assert!(!variant.samples.films.is_empty());
        variant.samples.films.clear();
    }
    assert_eq!(format!("{with:?}"), format!("{without:?}"));
}

#[test]
fn threads_change_no_frame() {
    let experiment = filmed(None);
    let [one, two] = [1, 2].map(|threads| run_on(threads, &experiment));
    assert_eq!(films(&one), films(&two));
}

#[test]
fn a_film_of_millions_of_cells_is_refused() {
    let asked = filmed(Some(Duration::from_nanos(10)));
    let problem = asked.check_inspect().unwrap_err();
    assert!(
        problem.contains("500000 samples of 16 link directions; at most 312500"),
        "{problem}"
    );
}
