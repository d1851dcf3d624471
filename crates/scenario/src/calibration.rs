//! From an idle ping-pong to the delays of `[sim]`; a bulk flow beside it checks them.
//!
//! A round trip of an idle probe is twice what hosts take to send and to receive, twice each link's
//! delay, and how late hosts and processes are, once each way. The lab's links are token buckets:
//! what is idle sends at once, so that a probe waits for no serialization ([`LAB_BURST`]). The
//! medians over two links and over three give a link's delay.
//!
//! How late the process is that answers the probe is measured for each request, by the kernel's
//! time of its arrival. What its distribution, once each way, leaves of the spread of round trips
//! is drawn from an exponential distribution in either direction, so that the sum of both has its
//! median at 1.678 and its 99th percentile at 6.638 means: what lies between the two gives the
//! mean, the median the rest.
//!
//! Processes are later on a busy machine, and that decides for how many packets a receiver sends
//! one ACK. So the delays of a simulation have the lateness beside the bulk flow, those of the
//! idle round trips the one of the idle probe.
//!
//! Sixteen processes that should connect at once do so one after another; by when the last one has
//! is how far starts are apart.
//!
//! The behaviour of a bulk flow beside the probe follows from the stack, the queue and the link's
//! rate. Nothing of it is fitted: it must come out by itself.

use std::{fmt::Write, path::Path, time::Duration};

use sluicegate_config::{Problems, units::format_duration};

use crate::{
    experiment::{Experiment, SimOptions},
    file,
    results::{Results, SeriesKind, VariantResult},
    stats,
};

const SCENARIO: &str = include_str!("../data/calibration.toml");

/// The burst that an idle link of the lab sends at once, in time of its rate: its token buckets
/// make up for timers that fire late.
pub const LAB_BURST: Duration = Duration::from_micros(100);

/// Links that the probe passes in "near"; one more in "far".
const NEAR_LINKS: f64 = 2.0;

/// Fewer samples say nothing of their spread.
const SAMPLES_MIN: u64 = 1000;

/// Median and 99th percentile of the sum of two figures from one exponential distribution, in its
/// means.
const MEDIAN_OF_TWO: f64 = 1.678_347;
const P99_OF_TWO: f64 = 6.638_352;

/// Quantiles of lateness: 0, 5, … 100 %.
const WAKES: usize = 21;

/// The experiment that is measured.
///
/// # Errors
/// None: the scenario is part of the program, and tested.
pub fn experiment() -> Result<Experiment, Problems> {
    file::parse(
        Path::new("calibration.toml"),
        SCENARIO,
        &file::Options::default(),
    )
}

/// Percentiles of a probe's round trips, in µs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoundTrips {
    /// 10th percentile.
    pub p10_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
}

/// How late a process is, in µs: evenly spaced quantiles.
pub type Wakes = [f64; WAKES];

/// Measurements of a world that ran [`experiment`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Over two links, idle.
    pub near: RoundTrips,
    /// Over three.
    pub far: RoundTrips,
    /// Over two, the last one full.
    pub beside_bulk: RoundTrips,
    /// How late the process is that answers, without anything else to do; zeros where time is
    /// simulated.
    pub wake_idle_us: Wakes,
    /// The same beside the bulk flow.
    pub wake_busy_us: Wakes,
    /// The bulk flow's goodput over its link's rate.
    pub bulk_share: f64,
    /// Its packets over those that come back.
    pub packets_per_ack: f64,
    /// When the last one of sixteen processes that start at once had its connection, in µs.
    pub last_start_us: f64,
}

impl Measured {
    /// Reads it from results.
    ///
    /// # Errors
    /// A variant is missing or has too few samples.
    pub fn of(results: &Results) -> Result<Self, String> {
        let beside = variant(results, "beside-bulk")?;
        let link = |id: &str| {
            let link = beside.links.iter().find(|link| link.id == id);
            link.ok_or_else(|| format!("\"beside-bulk\" has no link \"{id}\""))
        };
        let (there, back) = (link("w1>w2")?, link("w2>w1")?);
        Ok(Self {
            near: round_trips(variant(results, "near")?)?,
            far: round_trips(variant(results, "far")?)?,
            beside_bulk: round_trips(beside)?,
            wake_idle_us: wakes(variant(results, "near")?),
            wake_busy_us: wakes(beside),
            bulk_share: beside.goodput_bps.sum / there.rate_bps as f64,
            packets_per_ack: there.sent as f64 / back.sent.max(1) as f64,
            last_start_us: last_start_us(variant(results, "starts")?)?,
        })
    }

    /// The delays of an experiment on this machine.
    pub fn delays(&self) -> SimOptions {
        SimOptions {
            wake: late(&self.wake_busy_us),
            ..self.idle_delays()
        }
    }

    /// The delays with which the simulator gives the idle round trips. A figure that noise has made
    /// negative is 0.
    pub fn idle_delays(&self) -> SimOptions {
        let Self { near, far, .. } = self;
        let [wakes_p50_us, wakes_p99_us] = of_two(&self.wake_idle_us);
        let link_us = ((far.p50_us - near.p50_us) / 2.0).max(0.0);
        let constant_us = near.p50_us - 2.0 * NEAR_LINKS * link_us - wakes_p50_us;
        let spread_us = (near.p99_us - near.p50_us) - (wakes_p99_us - wakes_p50_us);
        let mean_us = spread_us / (P99_OF_TWO - MEDIAN_OF_TWO);
        let mean_us = mean_us.clamp(0.0, constant_us.max(0.0) / MEDIAN_OF_TWO);
        let hosts_us = ((constant_us - MEDIAN_OF_TWO * mean_us) / 2.0).max(0.0);
        // Only their sum shows; the parts are those of the defaults.
        let defaults = SimOptions::default();
        let transmit = defaults.transmit_delay.as_secs_f64();
        let part = transmit / (transmit + defaults.receive_delay.as_secs_f64());
        SimOptions {
            link_delay: rounded(link_us),
            transmit_delay: rounded(hosts_us * part),
            receive_delay: rounded(hosts_us * (1.0 - part)),
            jitter: Duration::ZERO,
            jitter_mean: rounded(mean_us),
            burst: LAB_BURST,
            start_spread: rounded(self.last_start_us),
            wake: late(&self.wake_idle_us),
            ..defaults
        }
    }

    /// The delays with which a variant of [`experiment`] is simulated.
    pub fn delays_of(&self, variant: &str) -> SimOptions {
        match variant {
            "near" | "far" => self.idle_delays(),
            _ => self.delays(),
        }
    }

    /// How far idle round trips here are from those there: the largest ratio of two percentiles, 1
    /// or more.
    pub fn idle_ratio(&self, there: &Self) -> f64 {
        let percentiles = |idle: &RoundTrips| [idle.p10_us, idle.p50_us, idle.p99_us];
        let all = |measured: &Self| [&measured.near, &measured.far].map(percentiles);
        let pairs = all(self).into_iter().zip(all(there));
        let ratios = pairs.flat_map(|(here, there)| here.into_iter().zip(there));
        ratios.fold(1.0, |worst, (here, there)| {
            worst.max(here / there).max(there / here)
        })
    }
}

/// A file for `--calibration`: delays, what they were made from, and what the simulator makes of
/// them. `machine` says where and when.
pub fn to_toml(machine: &str, lab: &Measured, sim: &Measured) -> String {
    let mut text = format!(
        "# Written by `sluicegate lab calibrate` on {machine}.\n\
         # RTT of a probe in us, p10 / p50 / p99:       lab                     simulated with these\n"
    );
    for (what, lab, sim) in [
        ("idle, two links", lab.near, sim.near),
        ("idle, three links", lab.far, sim.far),
        ("beside a bulk flow", lab.beside_bulk, sim.beside_bulk),
    ] {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "#   {what:<36}  {:<22}  {}", shown(lab), shown(sim));
    }
    for (what, wakes) in [
        ("the answering process, idle", &lab.wake_idle_us),
        ("it is late beside the bulk flow", &lab.wake_busy_us),
    ] {
        let [p10, p50, p95] = [wakes[2], wakes[10], wakes[19]];
        let _ = writeln!(text, "#   {what:<36}  {p10:.1} / {p50:.1} / {p95:.1} (p95)");
    }
    for (what, lab, sim) in [
        (
            "the bulk flow's share of its link",
            lab.bulk_share,
            sim.bulk_share,
        ),
        (
            "its packets per ACK",
            lab.packets_per_ack,
            sim.packets_per_ack,
        ),
    ] {
        let _ = writeln!(text, "#   {what:<36}  {lab:<22.3}  {sim:.3}");
    }
    let delays = lab.delays();
    text += "[sim]\n";
    for (key, delay) in [
        ("link_delay", delays.link_delay),
        ("transmit_delay", delays.transmit_delay),
        ("receive_delay", delays.receive_delay),
        ("jitter", delays.jitter),
        ("jitter_mean", delays.jitter_mean),
        ("burst", delays.burst),
        ("start_spread", delays.start_spread),
    ] {
        let _ = writeln!(text, "{key} = \"{}\"", format_duration(delay));
    }
    let quoted = |late: &Duration| format!("\"{}\"", format_duration(*late));
    let wake: Vec<String> = delays.wake.iter().map(quoted).collect();
    let _ = writeln!(text, "wake = [{}]", wake.join(", "));
    text
}

fn shown(rtt: RoundTrips) -> String {
    format!("{:.1} / {:.1} / {:.1}", rtt.p10_us, rtt.p50_us, rtt.p99_us)
}

fn variant<'r>(results: &'r Results, name: &str) -> Result<&'r VariantResult, String> {
    let mut variants = results.variants.iter();
    variants
        .find(|variant| variant.name == name)
        .ok_or_else(|| format!("the results have no variant \"{name}\""))
}

/// A flow's windows are looked at from its connection on.
fn last_start_us(variant: &VariantResult) -> Result<f64, String> {
    let series = variant.samples.series.iter();
    let windows = series.filter(|series| series.kind == SeriesKind::TenantCwndBytes);
    let first = windows.filter_map(|series| series.points.first());
    let last_s = first.map(|&(at_s, _)| at_s).reduce(f64::max);
    let last_s = last_s.ok_or_else(|| format!("no flow of \"{}\" has connected", variant.name))?;
    Ok(last_s * 1e6)
}

fn round_trips(variant: &VariantResult) -> Result<RoundTrips, String> {
    let mut samples = variant.samples.rtt_us.clone();
    if (samples.len() as u64) < SAMPLES_MIN {
        return Err(format!(
            "the probe of \"{}\" has {} samples, {SAMPLES_MIN} are needed: is the machine overloaded?",
            variant.name,
            samples.len()
        ));
    }
    samples.sort_unstable_by(f64::total_cmp);
    let [p10_us, p50_us, p99_us] =
        [0.1, 0.5, 0.99].map(|q| stats::quantile(&samples, q).unwrap_or(0.0));
    Ok(RoundTrips {
        p10_us,
        p50_us,
        p99_us,
    })
}

/// Quantiles of how late processes were. The last one is such that the mean of the latest 5 % is
/// theirs, not half of the one latest of all.
fn wakes(variant: &VariantResult) -> Wakes {
    let mut samples = variant.samples.wake_us.clone();
    samples.sort_unstable_by(f64::total_cmp);
    let steps = (WAKES - 1) as f64;
    let mut quantiles = [0.0; WAKES];
    if samples.is_empty() {
        return quantiles;
    }
    for (step, quantile) in quantiles.iter_mut().enumerate() {
        *quantile = stats::quantile(&samples, step as f64 / steps).unwrap_or(0.0);
    }
    let latest = &samples[samples.len() - samples.len().div_ceil(WAKES - 1)..];
    let mean_us = latest.iter().sum::<f64>() / latest.len() as f64;
    let before_us = quantiles[WAKES - 2];
    quantiles[WAKES - 1] = (2.0 * mean_us - before_us).max(before_us);
    quantiles
}

/// Median and 99th percentile of the sum of two draws from such quantiles.
fn of_two(wakes: &Wakes) -> [f64; 2] {
    /// Draws on each line between two quantiles.
    const DRAWS: usize = 10;
    let lines = wakes.windows(2).flat_map(|line| {
        let part = |draw: usize| (draw as f64 + 0.5) / DRAWS as f64;
        (0..DRAWS).map(move |draw| line[0] + (line[1] - line[0]) * part(draw))
    });
    let draws: Vec<f64> = lines.collect();
    let pairs = draws
        .iter()
        .flat_map(|one| draws.iter().map(move |other| one + other));
    let mut sums: Vec<f64> = pairs.collect();
    sums.sort_unstable_by(f64::total_cmp);
    [0.5, 0.99].map(|q| stats::quantile(&sums, q).unwrap_or(0.0))
}

/// The quantiles for the simulator; none where nothing was late.
fn late(wakes: &Wakes) -> Vec<Duration> {
    match wakes[WAKES - 1] > 0.0 {
        true => wakes.iter().map(|us| rounded(*us)).collect(),
        false => Vec::new(),
    }
}

/// To 10 ns.
fn rounded(us: f64) -> Duration {
    Duration::from_nanos((us * 100.0).round() as u64 * 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{LinkResult, SCHEMA, Series};

    fn idle(p10_us: f64, p50_us: f64, p99_us: f64) -> RoundTrips {
        RoundTrips {
            p10_us,
            p50_us,
            p99_us,
        }
    }

    fn results(samples: [usize; 3]) -> Results {
        let link = |id: &str, sent| LinkResult {
            id: id.to_owned(),
            rate_bps: 500_000_000,
            sent,
            ..LinkResult::default()
        };
        let samples = samples.into_iter().chain([0]);
        let variants = ["near", "far", "beside-bulk", "starts"]
            .into_iter()
            .zip(samples);
        let window = |start_s: f64| Series {
            kind: SeriesKind::TenantCwndBytes,
            name: String::new(),
            points: vec![(start_s, 14480.0), (1.0, 28960.0)],
        };
        let variants = variants.map(|(name, count)| {
            let mut variant = VariantResult {
                name: name.to_owned(),
                links: vec![link("w1>w2", 2000), link("w2>w1", 1000)],
                ..VariantResult::default()
            };
            variant.goodput_bps.sum = 475e6;
            variant.samples.series = [0.002, 0.008, 0.005].map(window).to_vec();
            variant.samples.rtt_us = (0..count).map(|n| n as f64).collect();
            variant
        });
        Results {
            schema: SCHEMA,
            scenario: "calibration".to_owned(),
            title: String::new(),
            mirrors: None,
            world: "lab".to_owned(),
            seed: 1,
            conditions: crate::results::Conditions::default(),
            variants: variants.collect(),
            expectations: Vec::new(),
            published: Vec::new(),
        }
    }

    #[test]
    fn the_scenario_is_well_formed() {
        let experiment = experiment().unwrap_or_else(|problems| panic!("{problems}"));
        let names: Vec<_> = experiment
            .variants
            .iter()
            .map(|v| v.name.as_str())
            .collect();
        assert_eq!(names, ["near", "far", "beside-bulk", "starts"]);
    }

    #[test]
    fn it_reads_percentiles_shares_and_acks() {
        let measured = Measured::of(&results([2001, 2001, 2001])).unwrap();
        assert_eq!(measured.near, idle(200.0, 1000.0, 1980.0));
        assert!((measured.bulk_share - 0.95).abs() < 1e-9);
        assert!((measured.packets_per_ack - 2.0).abs() < 1e-9);
        assert!((measured.last_start_us - 8000.0).abs() < 1e-9);
    }

    #[test]
    fn delays_are_what_the_percentiles_are_made_of() {
        // Links of 3 us, hosts of 8 and 16 us, exponential lateness of 4 us.
        let with = |constant_us: f64| {
            let [p50, p99] = [MEDIAN_OF_TWO, P99_OF_TWO].map(|means| constant_us + 4.0 * means);
            idle(constant_us + 2.0, p50, p99)
        };
        let measured = Measured {
            near: with(60.0),
            far: with(66.0),
            last_start_us: 7500.0,
            ..Measured::default()
        };
        let us = Duration::from_micros;
        let expected = SimOptions {
            link_delay: us(3),
            transmit_delay: us(8),
            receive_delay: us(16),
            jitter: Duration::ZERO,
            jitter_mean: us(4),
            burst: LAB_BURST,
            start_spread: us(7500),
            ..SimOptions::default()
        };
        assert_eq!(measured.delays(), expected);
    }

    #[test]
    fn measured_lateness_is_no_delay_and_no_jitter() {
        // Evenly from 0 to 40 us, so that the sum of two has its median at 40 and p99 at 74.3 us.
        let even = std::array::from_fn(|step| 2.0 * step as f64);
        let [p50, p99] = of_two(&even);
        assert!(
            (p50 - 40.0).abs() < 0.3 && (p99 - 74.3).abs() < 0.3,
            "{p50} {p99}"
        );
        let measured = Measured {
            near: idle(70.0, 100.0, 100.0 + p99 - p50),
            far: idle(70.0, 100.0, 130.0),
            wake_idle_us: even,
            wake_busy_us: [50.0; WAKES],
            ..Measured::default()
        };
        let sim = measured.delays();
        assert_eq!(sim.jitter_mean, Duration::ZERO);
        assert_eq!(
            sim.transmit_delay + sim.receive_delay,
            rounded((100.0 - p50) / 2.0)
        );
        assert_eq!(sim.wake, [Duration::from_micros(50); WAKES]);
        assert_eq!(
            measured.delays_of("near").wake[10],
            Duration::from_micros(20)
        );
    }

    #[test]
    fn the_latest_of_all_does_not_stand_for_the_latest_twentieth() {
        let mut result = VariantResult::default();
        result.samples.wake_us = (0..100).map(f64::from).chain([10_000.0]).collect();
        let quantiles = wakes(&result);
        assert!((quantiles[10] - 50.0).abs() < 1e-9);
        // 95 to 99 and 10000: a mean of 1747.5.
        let mean = f64::midpoint(quantiles[19], quantiles[20]);
        assert!((mean - 10_485.0 / 6.0).abs() < 1e-9, "{mean}");
    }

    #[test]
    fn noise_makes_no_delay_negative() {
        let measured = Measured {
            near: idle(50.0, 60.0, 9000.0),
            far: idle(49.0, 59.0, 69.0),
            ..Measured::default()
        };
        let sim = measured.delays();
        assert_eq!(sim.link_delay, Duration::ZERO);
        // All of the way is lateness then.
        assert_eq!(sim.transmit_delay + sim.receive_delay, Duration::ZERO);
        assert_eq!(sim.jitter_mean, rounded(60.0 / MEDIAN_OF_TWO));
    }

    #[test]
    fn the_worst_percentile_counts_either_way() {
        let here = Measured {
            near: idle(10.0, 20.0, 30.0),
            far: idle(10.0, 20.0, 33.0),
            ..Measured::default()
        };
        let there = Measured {
            near: idle(8.0, 20.0, 30.0),
            far: idle(10.0, 20.0, 30.0),
            ..Measured::default()
        };
        assert!((here.idle_ratio(&there) - 1.25).abs() < 1e-9);
        assert!((there.idle_ratio(&here) - 1.25).abs() < 1e-9);
        assert!((here.idle_ratio(&here) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_scenario_is_read_with_a_calibration_and_its_own_keys_win() {
        let measured = Measured {
            near: idle(41.0, 44.0, 64.0),
            far: idle(44.0, 47.0, 68.0),
            ..Measured::default()
        };
        let directory = std::env::temp_dir().join(format!("sg-calibration-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("delays.toml");
        std::fs::write(&path, to_toml("a machine", &measured, &measured)).unwrap();
        let scenario = "[network]\ntopology = 'star'\n[traffic.a]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n\
                        [sim]\nlink_delay = '7us'\n";
        let options = file::Options {
            calibration: Some(path.clone()),
            ..file::Options::default()
        };
        let read = |options| file::parse(Path::new("x.toml"), scenario, &options);
        let experiment = read(options.clone()).unwrap_or_else(|problems| panic!("{problems}"));
        let expected = SimOptions {
            link_delay: Duration::from_micros(7),
            ..measured.delays()
        };
        assert_eq!(experiment.variants[0].sim, expected);
        let again = file::parse(
            Path::new("x.toml"),
            &experiment.as_run,
            &file::Options::default(),
        );
        assert_eq!(again.unwrap().variants[0].sim, expected);

        std::fs::write(&path, "[network]\nrate = '1Gbit'\n").unwrap();
        let problems = read(options).unwrap_err().to_string();
        assert!(problems.contains("delays.toml:1"), "{problems}");
        assert!(problems.contains("[sim]"), "{problems}");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn too_few_samples_are_refused() {
        let few = Measured::of(&results([2000, 10, 2000]));
        assert!(few.unwrap_err().contains("\"far\" has 10 samples"));
    }
}
