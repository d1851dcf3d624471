//! Draws times and sizes.

use rand::RngExt;
use rand_pcg::Pcg64;
use sluicegate_config::problem::Complaint;

use super::{MAX_ARRIVALS, Span};
use crate::experiment::{Arrivals, Sizes};

/// So many arrivals of one sender, or of all that share a table's queries, cannot be run.
pub fn too_many(expected: f64) -> Complaint {
    Complaint::new(
        format!("{expected:.0} arrivals of one sender; {MAX_ARRIVALS:.0} can be run at most"),
        "choose longer intervals, less load or a shorter `duration`",
    )
}

/// The times (ns after the start of the run) of what begins within a span.
///
/// # Errors
/// More than can be run.
pub fn times_ns(arrivals: &Arrivals, span: Span, rng: &mut Pcg64) -> Result<Vec<f64>, Complaint> {
    let span_s = span.end_ns.saturating_sub(span.begin_ns) as f64 / 1e9;
    let expected = span_s / arrivals.mean_s();
    if expected.is_nan() || expected > MAX_ARRIVALS {
        return Err(too_many(expected));
    }
    let mut times = Vec::with_capacity(expected as usize + 16);
    let mut at_ns = span.begin_ns as f64;
    if let Arrivals::Fixed { interval_s } = arrivals {
        // Senders do not march in step, as independent applications do not.
        at_ns += (rng.random::<f64>() - 1.0) * interval_s * 1e9;
    }
    loop {
        at_ns += next_s(arrivals, rng) * 1e9;
        if at_ns >= span.end_ns as f64 {
            return Ok(times);
        }
        times.push(at_ns);
    }
}

/// The time to the next, in seconds.
pub fn next_s(arrivals: &Arrivals, rng: &mut Pcg64) -> f64 {
    match arrivals {
        Arrivals::Fixed { interval_s } => *interval_s,
        Arrivals::Exponential { mean_s } => -f64::ln(1.0 - rng.random::<f64>()) * mean_s,
        Arrivals::Lognormal { median_s, sigma } => median_s * f64::exp(sigma * normal(rng)),
        Arrivals::Drawn { cdf, factor } => cdf.sample(rng.random::<f64>()) as f64 / 1e9 * factor,
    }
}

/// Standard normal (Box and Muller 1958).
fn normal(rng: &mut Pcg64) -> f64 {
    let radius = f64::sqrt(-2.0 * f64::ln(1.0 - rng.random::<f64>()));
    radius * f64::cos(std::f64::consts::TAU * rng.random::<f64>())
}

/// A size in bytes.
pub fn bytes(sizes: &Sizes, rng: &mut Pcg64) -> u64 {
    match sizes {
        Sizes::Fixed(bytes) => *bytes,
        Sizes::Drawn(cdf) => cdf.sample(rng.random::<f64>()).max(1),
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::cdf::Cdf;

    #[test]
    fn every_kind_of_arrivals_has_its_mean() {
        let span = Span {
            begin_ns: 0,
            end_ns: 100_000_000_000,
        };
        let cdf = Cdf::parse_times("t", "ns,cdf\n0,0\n1000000,0.5\n3000000,1\n").unwrap();
        for arrivals in [
            Arrivals::Fixed { interval_s: 1e-3 },
            Arrivals::Exponential { mean_s: 2e-3 },
            Arrivals::Lognormal {
                median_s: 1e-3,
                sigma: 0.8,
            },
            Arrivals::Drawn { cdf, factor: 2.0 },
        ] {
            let times = times_ns(&arrivals, span, &mut Pcg64::seed_from_u64(7)).unwrap();
            let relative = times.len() as f64 * arrivals.mean_s() / 100.0;
            assert!((relative - 1.0).abs() < 0.02, "{arrivals:?}: {relative}");
            assert!(times.is_sorted() && times[0] >= 0.0);
        }
    }

    #[test]
    fn more_than_can_be_run_is_an_error() {
        let span = Span {
            begin_ns: 0,
            end_ns: 1_000_000_000,
        };
        let arrivals = Arrivals::Exponential { mean_s: 1e-8 };
        assert!(times_ns(&arrivals, span, &mut Pcg64::seed_from_u64(7)).is_err());
    }
}
