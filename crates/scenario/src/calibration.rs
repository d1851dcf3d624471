//! From an idle ping-pong and one beside a bulk flow to the delays of `[sim]`.
//!
//! A probe's round trip in the simulator is, both ways, what hosts take, jitter, and for each link its delay and
//! the frame's serialization. So the idle medians over two links and over three give a link's delay, the median
//! over two what hosts take. How late hosts are shows where there is work: jitter is uniform on 0..j in either
//! direction, and the middle 80 % of the sum of two such figures spans 2 - 2 √0.2 = 1.106 j. The frame of the bulk
//! flow that is on its way out, of which the probe waits for a part, widens it, too.

use std::{fmt::Write, path::Path, time::Duration};

use sluicegate_policy::{Problems, units::format_duration};

use crate::{
    experiment::{Experiment, SimOptions},
    file,
    results::{Results, VariantResult},
    stats,
};

const SCENARIO: &str = include_str!("../data/calibration.toml");

/// Links that the probe of each idle variant passes.
const NEAR_LINKS: f64 = 2.0;

/// Fewer samples say nothing of their spread.
const SAMPLES_MIN: u64 = 1000;

/// Bytes of the probe's frame: 64 of payload, Ethernet, IPv4 and TCP headers with timestamps.
const PROBE_BYTES: f64 = 130.0;

/// A full frame of the bulk flow, in bytes.
const FULL_BYTES: f64 = 1514.0;

/// Middle 80 % of the sum of two uniform figures, in lengths of their interval.
const SPREAD_OF_TWO: f64 = 1.105_573;

/// What is measured.
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

/// Delays, and what they were computed from.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// The delays.
    pub sim: SimOptions,
    /// RTT in µs of the idle probe over two links and over three, and beside a bulk flow: 10th, 50th and 90th
    /// percentile.
    pub rtt_us: [[f64; 3]; 3],
    /// Kernel and number of CPUs.
    pub machine: String,
}

impl Calibration {
    /// Computes the delays.
    ///
    /// # Errors
    /// A variant is missing or has too few samples.
    pub fn of(results: &Results) -> Result<Self, String> {
        let near = variant(results, "near")?;
        let rtt_us = [
            percentiles(near)?,
            percentiles(variant(results, "far")?)?,
            percentiles(variant(results, "beside-bulk")?)?,
        ];
        let link = near.links.first().ok_or("no link was measured")?;
        let conditions = &results.conditions;
        Ok(Self {
            sim: delays(&rtt_us, link.rate_bps as f64),
            rtt_us,
            machine: format!("Linux {}, {} CPUs", conditions.kernel, conditions.cpus),
        })
    }

    /// A file that scenarios can extend.
    pub fn to_toml(&self) -> String {
        let mut text = format!(
            "# Written by `sluicegate lab calibrate` on {}. RTT of a probe in us, p10, p50, p90:\n",
            self.machine
        );
        for (what, [low, middle, high]) in ["idle, two links", "idle, three links", "beside bulk"]
            .iter()
            .zip(self.rtt_us)
        {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "#   {what}: {low:.1}, {middle:.1}, {high:.1}");
        }
        let sim = &self.sim;
        text += "[sim]\n";
        for (key, delay) in [
            ("link_delay", sim.link_delay),
            ("transmit_delay", sim.transmit_delay),
            ("receive_delay", sim.receive_delay),
            ("jitter", sim.jitter),
        ] {
            let _ = writeln!(text, "{key} = \"{}\"", format_duration(delay));
        }
        text
    }
}

fn variant<'r>(results: &'r Results, name: &str) -> Result<&'r VariantResult, String> {
    let mut variants = results.variants.iter();
    variants
        .find(|variant| variant.name == name)
        .ok_or_else(|| format!("the results have no variant \"{name}\""))
}

fn percentiles(variant: &VariantResult) -> Result<[f64; 3], String> {
    let mut samples = variant.samples.rtt_us.clone();
    if (samples.len() as u64) < SAMPLES_MIN {
        return Err(format!(
            "the probe of \"{}\" has {} samples, {SAMPLES_MIN} are needed: is the machine overloaded?",
            variant.name,
            samples.len()
        ));
    }
    samples.sort_unstable_by(f64::total_cmp);
    Ok([0.1, 0.5, 0.9].map(|q| stats::quantile(&samples, q)))
}

/// A figure that noise has made negative is 0.
fn delays(rtt_us: &[[f64; 3]; 3], rate_bps: f64) -> SimOptions {
    let [near, far, beside] = rtt_us;
    let wire_us = |bytes: f64| bytes * 8e6 / rate_bps;
    let link_us = ((far[1] - near[1]) / 2.0 - wire_us(PROBE_BYTES)).max(0.0);
    let way_us = near[1] / 2.0 - NEAR_LINKS * (link_us + wire_us(PROBE_BYTES));
    let (spread_us, frame_us) = (beside[2] - beside[0], 0.8 * wire_us(FULL_BYTES));
    let lateness_us = (spread_us.powi(2) - frame_us.powi(2)).max(0.0).sqrt();
    // Half of it on average is part of the way.
    let jitter_us = (lateness_us / SPREAD_OF_TWO).min(2.0 * way_us.max(0.0));
    let hosts_us = (way_us - jitter_us / 2.0).max(0.0);
    // Only their sum shows; the parts are those of the defaults.
    let defaults = SimOptions::default();
    let transmit = defaults.transmit_delay.as_secs_f64();
    let part = transmit / (transmit + defaults.receive_delay.as_secs_f64());
    SimOptions {
        link_delay: rounded(link_us),
        transmit_delay: rounded(hosts_us * part),
        receive_delay: rounded(hosts_us * (1.0 - part)),
        jitter: rounded(jitter_us),
        ..defaults
    }
}

/// To 10 ns.
fn rounded(us: f64) -> Duration {
    Duration::from_nanos((us * 100.0).round() as u64 * 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{LinkResult, SCHEMA};

    fn measured(name: &str, samples: impl Iterator<Item = f64>) -> VariantResult {
        let mut variant = VariantResult {
            name: name.to_owned(),
            links: vec![LinkResult {
                rate_bps: 500_000_000,
                ..LinkResult::default()
            }],
            ..VariantResult::default()
        };
        variant.samples.rtt_us = samples.collect();
        variant
    }

    fn results(variants: Vec<VariantResult>) -> Results {
        Results {
            schema: SCHEMA,
            scenario: "calibration".to_owned(),
            title: String::new(),
            mirrors: None,
            world: "lab".to_owned(),
            seed: 1,
            conditions: crate::results::Conditions::default(),
            variants,
            expectations: Vec::new(),
            published: Vec::new(),
        }
    }

    /// What the simulator's model gives: constant parts and two uniform ones.
    fn round_trips(constant_us: f64, jitter_us: f64) -> impl Iterator<Item = f64> {
        let steps = 0..100 * 100;
        steps.map(move |n| {
            constant_us + jitter_us * (f64::from(n / 100) + f64::from(n % 100) + 1.0) / 100.0
        })
    }

    #[test]
    fn the_scenario_is_well_formed() {
        let experiment = experiment().unwrap_or_else(|problems| panic!("{problems}"));
        let names: Vec<_> = experiment
            .variants
            .iter()
            .map(|v| v.name.as_str())
            .collect();
        assert_eq!(names, ["near", "far", "beside-bulk"]);
    }

    #[test]
    fn what_the_model_makes_of_delays_gives_them_back() {
        // Links of 3 us, hosts of 8 and 16 us, jitter up to 10 us, probe of 130 bytes at 500 Mbit/s, both ways.
        let wire_us = 130.0 * 8.0 / 500.0;
        let idle = |links: f64| 2.0 * (24.0 + links * (3.0 + wire_us));
        let calibration = Calibration::of(&results(vec![
            measured("near", round_trips(idle(2.0), 10.0)),
            measured("far", round_trips(idle(3.0), 10.0)),
            measured("beside-bulk", round_trips(idle(2.0) + 30.0, 20.0)),
        ]))
        .unwrap();
        let sim = &calibration.sim;
        let near = |got: Duration, us: f64, tolerance_us: f64| {
            assert!(
                (got.as_secs_f64() * 1e6 - us).abs() <= tolerance_us,
                "{sim:?}"
            );
        };
        near(sim.link_delay, 3.0, 0.05);
        // The spread beside bulk is 22.1 us, of which 0.8 frames are 19.4 us: 10.6 us are left.
        near(sim.jitter, 10.6 / 1.106, 0.5);
        near(sim.transmit_delay + sim.receive_delay, 24.0, 0.5);
        let twice_us = sim.transmit_delay.as_secs_f64() * 2e6;
        near(sim.receive_delay, twice_us, 0.02);
    }

    #[test]
    fn noise_makes_no_delay_negative() {
        let rtt_us = [[50.0, 60.0, 70.0], [49.0, 59.0, 69.0], [0.0, 500.0, 9000.0]];
        let sim = delays(&rtt_us, 500e6);
        assert_eq!(sim.link_delay, Duration::ZERO);
        // The whole way is jitter then: 60 us less four serializations, and half of it on average each way.
        assert_eq!(sim.transmit_delay + sim.receive_delay, Duration::ZERO);
        assert_eq!(sim.jitter, rounded(60.0 - 4.0 * 2.08));
    }

    #[test]
    fn the_file_can_be_extended() {
        let calibration = Calibration {
            sim: SimOptions {
                link_delay: Duration::from_nanos(1250),
                transmit_delay: Duration::from_micros(7),
                receive_delay: Duration::from_micros(14),
                jitter: Duration::from_micros(9),
                ..SimOptions::default()
            },
            rtt_us: [[1.0, 2.0, 3.0]; 3],
            machine: "Linux 6.18, 2 CPUs".to_owned(),
        };
        let text = calibration.to_toml()
            + "[network]\ntopology = 'star'\n[traffic.a]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n";
        let experiment = file::parse(Path::new("x.toml"), &text, &file::Options::default())
            .unwrap_or_else(|problems| panic!("{problems}\n{text}"));
        assert_eq!(experiment.variants[0].sim, calibration.sim);
    }

    #[test]
    fn too_few_samples_are_refused() {
        let few = results(vec![
            measured("near", round_trips(50.0, 1.0)),
            measured("far", round_trips(50.0, 1.0).take(10)),
            measured("beside-bulk", round_trips(50.0, 1.0)),
        ]);
        assert!(
            Calibration::of(&few)
                .unwrap_err()
                .contains("\"far\" has 10 samples")
        );
    }
}
