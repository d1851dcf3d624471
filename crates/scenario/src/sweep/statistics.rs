//! Statistics over the repeats of one figure.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::stats;

/// How sure the bounds of a [`Summary`] are.
pub const CONFIDENCE: f64 = 0.95;

/// Repeats of one figure, in its unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Runs that measured it; at least 1.
    pub n: u32,
    /// Their mean.
    pub mean: f64,
    /// Standard deviation of the sample (n − 1); `None` of a single run.
    pub sd: Option<f64>,
    /// Lower bound of the mean at 95 %, by Student's t; `None` of a single run.
    pub ci_low: Option<f64>,
    /// Upper bound of the mean at 95 %; `None` of a single run.
    pub ci_high: Option<f64>,
    /// The least.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Of these values, in the order in which they are added up; `None` without any.
    pub fn of(values: &[f64]) -> Option<Self> {
        let min = values.iter().copied().reduce(f64::min)?;
        let max = values.iter().copied().reduce(f64::max)?;
        let mean = stats::mean(values)?;
        let sd = deviation(values, mean);
        let half = sd.map(|sd| half_width(values.len(), sd));
        Some(Self {
            n: values.len() as u32,
            mean,
            sd,
            ci_low: half.map(|half| mean - half),
            ci_high: half.map(|half| mean + half),
            min,
            max,
        })
    }

    /// Half of what lies between the bounds of the mean.
    pub fn half_width(&self) -> Option<f64> {
        self.ci_high.map(|high| high - self.mean)
    }
}

fn deviation(values: &[f64], mean: f64) -> Option<f64> {
    let degrees = values.len().checked_sub(1).filter(|degrees| *degrees > 0)?;
    let squares: f64 = values.iter().map(|x| (x - mean) * (x - mean)).sum();
    Some((squares / degrees as f64).sqrt())
}

fn half_width(n: usize, sd: f64) -> f64 {
    t_quantile(n - 1) * sd / (n as f64).sqrt()
}

/// The two-sided 95 % quantile of Student's t distribution with so many degrees of freedom, at
/// least 1.
fn t_quantile(degrees: usize) -> f64 {
    let distribution = StudentsT::new(0.0, 1.0, degrees.max(1) as f64);
    // Only a scale or a number of degrees that is not positive is refused.
    distribution.map_or(f64::INFINITY, |t| t.inverse_cdf(0.5 + CONFIDENCE / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2, column 0.975.
    #[test]
    fn quantiles_are_those_of_published_tables() {
        let table = [
            (1, 12.706),
            (2, 4.303),
            (3, 3.182),
            (4, 2.776),
            (5, 2.571),
            (9, 2.262),
            (10, 2.228),
            (19, 2.093),
            (30, 2.042),
            (100, 1.984),
        ];
        for (degrees, published) in table {
            let ours = t_quantile(degrees);
            assert!((ours - published).abs() < 6e-4, "{degrees}: {ours}");
        }
    }

    #[test]
    fn the_bounds_of_a_mean_follow_from_its_deviation() {
        // Mean 5, squares 9 + 1 + 1 + 1 + 0 + 0 + 4 + 16 = 32 over 7 degrees, t = 2.365.
        let summary = Summary::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!((summary.n, summary.mean), (8, 5.0));
        assert!((summary.sd.unwrap() - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        let half = 2.365 * (32.0f64 / 7.0 / 8.0).sqrt();
        assert!((summary.half_width().unwrap() - half).abs() < 1e-3);
        assert!((summary.ci_low.unwrap() - (5.0 - half)).abs() < 1e-3);
        assert_eq!((summary.min, summary.max), (2.0, 9.0));
    }

    #[test]
    fn one_run_has_no_bounds_and_none_is_no_summary() {
        let one = Summary::of(&[3.5]).unwrap();
        assert_eq!((one.sd, one.ci_low, one.ci_high), (None, None, None));
        assert_eq!((one.mean, one.min, one.max), (3.5, 3.5, 3.5));
        assert_eq!(Summary::of(&[]), None);
    }
}
