//! Does the window that enforcement computes follow the tenant's own?
//!
//! Both series are held between their samples, read every [`STEP_S`] over the time that both cover, and
//! smoothed by a centred moving average of [`AVERAGE_S`]. Of those averages:
//!
//! - `window_correlation` is Pearson's coefficient;
//! - `window_relative_error` is Σ|enforced − tenant| / Σ tenant.
//!
//! Of the series before smoothing, `window_governs` is the fraction of time in which the enforced window is
//! not above the tenant's: who limits throughput.

use crate::stats::correlation;

/// Grid in seconds.
const STEP_S: f64 = 0.02;
/// Width of the moving average in seconds.
const AVERAGE_S: f64 = 0.4;
/// Shortest common time that says anything, in seconds.
const SHORTEST_S: f64 = 2.0 * AVERAGE_S;

/// How closely one series follows another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tracking {
    /// Pearson's coefficient of the moving averages, −1..=1; 0 when either is constant.
    pub correlation: f64,
    /// Mean distance of the moving averages over the mean of the tenant's.
    pub relative_error: f64,
    /// Fraction of time in which the enforced window is not above the tenant's, 0..=1.
    pub governs: f64,
}

/// Compares `enforced` with `tenant`, both (seconds, bytes) in order of time, between `from_s` and `to_s`.
/// `None` when they overlap for less than two averages.
pub fn compare(
    enforced: &[(f64, f64)],
    tenant: &[(f64, f64)],
    from_s: f64,
    to_s: f64,
) -> Option<Tracking> {
    let begin = from_s.max(enforced.first()?.0).max(tenant.first()?.0);
    let end = to_s.min(enforced.last()?.0).min(tenant.last()?.0);
    if end - begin < SHORTEST_S {
        return None;
    }
    let (enforced, tenant) = (hold(enforced, begin, end), hold(tenant, begin, end));
    let below = enforced.iter().zip(&tenant).filter(|(e, t)| e <= t).count();
    let governs = below as f64 / tenant.len() as f64;
    let (enforced, tenant) = (smooth(&enforced), smooth(&tenant));
    let total: f64 = tenant.iter().sum();
    if total <= 0.0 {
        return None;
    }
    let distance: f64 = enforced
        .iter()
        .zip(&tenant)
        .map(|(e, t)| (e - t).abs())
        .sum();
    Some(Tracking {
        correlation: correlation(&enforced, &tenant),
        relative_error: distance / total,
        governs,
    })
}

/// The value in force at each step of the grid.
fn hold(points: &[(f64, f64)], begin: f64, end: f64) -> Vec<f64> {
    let steps = ((end - begin) / STEP_S) as usize;
    let mut next = 0;
    (0..=steps)
        .map(|step| {
            let now = begin + step as f64 * STEP_S;
            while next + 1 < points.len() && points[next + 1].0 <= now {
                next += 1;
            }
            points[next].1
        })
        .collect()
}

/// Centred moving average; only full windows.
fn smooth(values: &[f64]) -> Vec<f64> {
    let width = ((AVERAGE_S / STEP_S).round() as usize).max(1);
    values
        .windows(width)
        .map(|window| window.iter().sum::<f64>() / width as f64)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(phase: f64, scale: f64) -> Vec<(f64, f64)> {
        (0..500)
            .map(|step| {
                let t = f64::from(step) * 0.01;
                (
                    t,
                    scale * (2.0 + (std::f64::consts::TAU * (t + phase) / 2.0).sin()),
                )
            })
            .collect()
    }

    #[test]
    fn a_series_follows_itself() {
        let tracking = compare(&wave(0.0, 1e4), &wave(0.0, 1e4), 0.0, 5.0).unwrap();
        assert!(
            tracking.correlation > 0.999_999 && tracking.relative_error < 1e-12,
            "{tracking:?}"
        );
    }

    #[test]
    fn a_scaled_series_correlates_at_a_distance() {
        let tracking = compare(&wave(0.0, 1.2e4), &wave(0.0, 1e4), 0.0, 5.0).unwrap();
        assert!(tracking.correlation > 0.999_999, "{tracking:?}");
        assert!((tracking.relative_error - 0.2).abs() < 1e-6, "{tracking:?}");
        assert_eq!(tracking.governs, 0.0);
        assert_eq!(
            compare(&wave(0.0, 1e4), &wave(0.0, 1.2e4), 0.0, 5.0)
                .unwrap()
                .governs,
            1.0
        );
    }

    #[test]
    fn opposite_phases_anticorrelate() {
        let tracking = compare(&wave(1.0, 1e4), &wave(0.0, 1e4), 0.0, 5.0).unwrap();
        assert!(tracking.correlation < -0.99, "{tracking:?}");
    }

    #[test]
    fn too_little_common_time_says_nothing() {
        assert!(compare(&wave(0.0, 1.0), &wave(0.0, 1.0), 4.9, 5.0).is_none());
        assert!(compare(&[], &wave(0.0, 1.0), 0.0, 5.0).is_none());
    }

    #[test]
    fn a_constant_has_no_correlation() {
        let flat: Vec<_> = (0..500).map(|step| (f64::from(step) * 0.01, 1e4)).collect();
        assert_eq!(
            compare(&flat, &wave(0.0, 1e4), 0.0, 5.0)
                .unwrap()
                .correlation,
            0.0
        );
    }
}
