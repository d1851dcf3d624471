//! Observations that a user asks for beyond a run's results: captures of packets, traces of state,
//! the network over time.

use std::{path::PathBuf, time::Duration};

use sluicegate_config::table::nearest;

use crate::{
    experiment::{Experiment, HostId, Variant},
    resolve::{abbreviated, matches},
    results::TraceKind,
};

/// Most samples that a series of a trace may have.
pub const SAMPLES_MAX: u64 = 1_000_000;

/// Samples of a series, if no interval is given.
pub const SAMPLES_DEFAULT: u32 = 500;

/// Most cells that the film of a run may have: frames times directions of links. At 32 bytes each,
/// 160 MB.
pub const FILM_CELLS_MAX: u64 = 5_000_000;

/// The observations to make; by default none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inspect {
    /// Packets.
    pub captures: Option<Captures>,
    /// Series over time.
    pub traces: Option<Traces>,
    /// The network over time.
    pub films: Option<Films>,
}

/// Captures of packets.
#[derive(Clone, Debug, PartialEq)]
pub struct Captures {
    /// Hosts and links by name, or patterns of names such as `h*`.
    pub names: Vec<String>,
    /// Bytes kept of each frame.
    pub snaplen_bytes: u32,
    /// A directory that exists; each run has one of its own in it ([`Experiment::run_name`]).
    pub directory: PathBuf,
}

/// Traces of state.
#[derive(Clone, Debug, PartialEq)]
pub struct Traces {
    /// The kinds of traces.
    pub kinds: Vec<TraceKind>,
    /// Time between samples; `None` = [`SAMPLES_DEFAULT`] in a run.
    pub interval: Option<Duration>,
}

impl Traces {
    /// Time between samples in a run of this variant, 1 ns at least.
    pub fn interval(&self, variant: &Variant) -> Duration {
        interval(self.interval, variant)
    }
}

/// Every link and queue over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Films {
    /// Time between frames; `None` = [`SAMPLES_DEFAULT`] in a run.
    pub interval: Option<Duration>,
}

impl Films {
    /// Time between frames in a run of this variant, 1 ns at least.
    pub fn interval(&self, variant: &Variant) -> Duration {
        interval(self.interval, variant)
    }
}

fn interval(asked: Option<Duration>, variant: &Variant) -> Duration {
    let total = variant.warmup + variant.duration;
    let interval = asked.unwrap_or(total / SAMPLES_DEFAULT);
    interval.max(Duration::from_nanos(1))
}

impl Inspect {
    /// Whether nothing is asked for.
    pub fn is_nothing(&self) -> bool {
        self.captures.is_none() && self.traces.is_none() && self.films.is_none()
    }
}

impl Experiment {
    /// Says what of [`Experiment::inspect`] this experiment does not have.
    ///
    /// # Errors
    /// A name to capture at that no variant has; more than [`SAMPLES_MAX`] samples of a series, or
    /// none; a film of more than [`FILM_CELLS_MAX`] cells, or of no frame.
    pub fn check_inspect(&self) -> Result<(), String> {
        for name in self.inspect.captures.iter().flat_map(|c| &c.names) {
            let fits = |variant: &Variant| variant.points().any(|(known, _)| matches(name, known));
            if !self.variants.iter().any(fits) {
                return Err(self.unknown(name));
            }
        }
        for variant in &self.variants {
            if let Some(traces) = &self.inspect.traces {
                let interval = traces.interval(variant);
                self.check_samples(variant, interval, SAMPLES_MAX, "of each series")?;
            }
            if let Some(films) = &self.inspect.films {
                let directions = (variant.ports().len() as u64).max(1);
                let what = format!("of {directions} link directions");
                let most = (FILM_CELLS_MAX / directions).max(1);
                self.check_samples(variant, films.interval(variant), most, &what)?;
            }
        }
        Ok(())
    }

    fn check_samples(
        &self,
        variant: &Variant,
        interval: Duration,
        most: u64,
        what: &str,
    ) -> Result<(), String> {
        let total = variant.warmup + variant.duration;
        let samples = total.as_nanos() / interval.as_nanos();
        if samples == 0 {
            return Err(format!(
                "{}: variant {}: there would be no samples: the run takes {total:?}; choose an interval below that",
                self.file, variant.name
            ));
        }
        if samples > u128::from(most) {
            return Err(format!(
                "{}: variant {}: {samples} samples {what}; at most {most}: choose an interval of {:?} or more",
                self.file,
                variant.name,
                total.div_f64(most as f64)
            ));
        }
        Ok(())
    }

    fn unknown(&self, name: &str) -> String {
        let (mut hosts, mut links): (Vec<&str>, Vec<&str>) = Default::default();
        for (known, point) in self.variants.iter().flat_map(Variant::points) {
            let list = match point {
                Point::Host(_) => &mut hosts,
                Point::Link(_) => &mut links,
            };
            if !list.contains(&known) {
                list.push(known);
            }
        }
        format!(
            "{}: no host or link is named \"{name}\"; hosts: {}; links: {}{}",
            self.file,
            abbreviated(&hosts),
            abbreviated(&links),
            nearest(name, &[hosts.as_slice(), &links].concat())
        )
    }

    /// The name of a run's files: that of its variant, with the number of the repeat if there are
    /// several.
    pub fn run_name(&self, variant: &Variant, seed: u64) -> String {
        match self.repeats {
            0 | 1 => variant.name.clone(),
            _ => format!("{}-{}", variant.name, seed.wrapping_sub(self.seed) + 1),
        }
    }
}

/// Where packets can be captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// A host: what its adapter sends and receives.
    Host(HostId),
    /// A link by id: what both its ends send.
    Link(usize),
}

impl Captures {
    /// Names and places of this variant that are asked for, each once.
    pub fn points<'v>(&self, variant: &'v Variant) -> Vec<(&'v str, Point)> {
        let asked = |name: &str| self.names.iter().any(|pattern| matches(pattern, name));
        variant.points().filter(|(name, _)| asked(name)).collect()
    }
}

impl Variant {
    fn points(&self) -> impl Iterator<Item = (&str, Point)> {
        let hosts = HostId::enumerate(&self.hosts);
        let links = self.links.iter().enumerate();
        let hosts = hosts.map(|(id, host)| (host.name.as_str(), Point::Host(id)));
        hosts.chain(links.map(|(id, link)| (link.name.as_str(), Point::Link(id))))
    }
}
