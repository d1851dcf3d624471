//! Arms that take turns, since speed differs by a factor from minute to minute on a shared machine:
//! ratios within each pair, and their median with a distribution-free confidence interval.

use std::{fmt, time::Duration};

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    arms::{Arm, Attached},
    traffic::{Cost, Flows},
};

/// Length of one turn. Short beside what others on the machine do, long beside what flows need to
/// get going again (some ms).
const TURN: Duration = Duration::from_millis(100);

/// The traffic and the cost of each arm, in the order of [`Arm::ALL`].
pub struct Pair([Cost; Arm::ALL.len()]);

impl Pair {
    /// Connects flows on all paths and lets them take turns until each has sent for `measured`. The
    /// order of the paths changes from round to round.
    pub fn measure(arms: &mut [Attached], flows: usize, measured: Duration) -> Result<Self> {
        let open = |attached: &Attached| Flows::open(attached.path, flows);
        let opened = arms.iter().map(open).collect::<Result<Vec<_>>>()?;
        let mut costs = [Cost::default(); Arm::ALL.len()];
        for each in &opened {
            each.turn(TURN)?; // slow start, and the caches
        }
        let mut order: Vec<usize> = (0..arms.len()).collect();
        for round in 0..measured.div_duration_f64(TURN).ceil() as usize {
            for &arm in &order {
                costs[arm] = costs[arm] + opened[arm].turn(TURN)?;
            }
            order.reverse();
            order.rotate_left(round % 2);
        }
        arms.iter().try_for_each(|attached| attached.check(flows))?;
        Ok(Self(costs))
    }

    /// That of `arm`.
    pub fn cost(&self, arm: Arm) -> &Cost {
        &self.0[arm as usize]
    }

    /// For programs.
    pub fn json(&self) -> Value {
        Arm::ALL
            .iter()
            .map(|&arm| {
                let values: serde_json::Map<_, _> = Measure::ALL
                    .iter()
                    .map(|measure| (measure.key().to_owned(), json!(measure.of(self.cost(arm)))))
                    .collect();
                (arm.key().to_owned(), Value::Object(values))
            })
            .collect()
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for arm in Arm::ALL {
            let gbps = self.cost(arm).goodput_bps() / 1e9;
            write!(f, "  {gbps:>5.2} Gb/s {arm}")?;
        }
        Ok(())
    }
}

/// The figures that are compared.
#[derive(Clone, Copy)]
pub enum Measure {
    /// Payload received per second.
    Goodput,
    /// CPU time of the whole machine per byte received.
    CpuPerByte,
}

impl Measure {
    /// Every measure.
    pub const ALL: [Self; 2] = [Self::Goodput, Self::CpuPerByte];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Goodput => "goodput",
            Self::CpuPerByte => "CPU per byte",
        }
    }

    /// In results.
    pub fn key(self) -> &'static str {
        match self {
            Self::Goodput => "goodput_bps",
            Self::CpuPerByte => "cpu_ns_per_byte",
        }
    }

    /// Its value.
    pub fn of(self, cost: &Cost) -> f64 {
        match self {
            Self::Goodput => cost.goodput_bps(),
            Self::CpuPerByte => cost.cpu_ns_per_byte(),
        }
    }
}

/// A median and the order statistics that enclose it with at least 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Median {
    /// Median.
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl Median {
    /// Of at least one value. With fewer than six the bounds are the extremes, and less than 95 %.
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let rank = rank(count);
        Self {
            value: (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0,
            low: sorted[rank],
            high: sorted[count - 1 - rank],
        }
    }
}

impl Median {
    /// For programs.
    pub fn json(self) -> Value {
        json!({"median": self.value, "low": self.low, "high": self.high})
    }
}

impl fmt::Display for Median {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}  [{:.3}, {:.3}]", self.value, self.low, self.high)
    }
}

/// The largest rank r (from 0) with P(median outside [x_r, x_(n-1-r)]) <= 5 %: the number of
/// values below the median is binomial with p = 1/2 (the sign test turned round).
fn rank(count: usize) -> usize {
    let mut term = 0.5f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let (mut tail, mut rank) = (0.0, 0);
    for below in 0..count {
        tail += term;
        if 2.0 * tail > 0.05 {
            break;
        }
        rank = below;
        term *= (count - below) as f64 / (below + 1) as f64;
    }
    rank
}
