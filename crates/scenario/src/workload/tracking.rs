//! Does the window that enforcement computes follow the tenant's own?
//!
//! Both series are held between their samples, read every [`STEP_S`] over the time that both cover,
//! and smoothed by a centred moving average of [`AVERAGE_STEPS`]. A run that is measured for less
//! than [`LONG_S`] has shorter steps in proportion. Of those averages:
//!
//! - `window_correlation` is Pearson's coefficient;
//! - `window_relative_error` is Σ|enforced − tenant| / Σ tenant.
//!
//! Of the series before smoothing, `window_governs` is the fraction of time in which the enforced
//! window is not above the tenant's: who limits throughput.

use crate::stats::correlation;

/// Grid in seconds.
const STEP_S: f64 = 0.02;
/// Width of the moving average in steps.
const AVERAGE_STEPS: usize = 20;
/// Shortest common time that says anything, in steps.
const SHORTEST_STEPS: usize = 2 * AVERAGE_STEPS;
/// Measured time from which steps are [`STEP_S`], in seconds.
const LONG_S: f64 = 8.0;

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

/// Compares `enforced` with `tenant`, both (seconds, bytes) in order of time, between `from_s` and
/// `to_s`. `None` when they overlap for less than two averages.
pub fn compare(
    enforced: &[(f64, f64)],
    tenant: &[(f64, f64)],
    from_s: f64,
    to_s: f64,
) -> Option<Tracking> {
    let begin = from_s.max(enforced.first()?.0).max(tenant.first()?.0);
    let end = to_s.min(enforced.last()?.0).min(tenant.last()?.0);
    let step_s = STEP_S * ((to_s - from_s) / LONG_S).min(1.0);
    if end - begin < SHORTEST_STEPS as f64 * step_s {
        return None;
    }
    let held = |points| hold(points, begin, end, step_s);
    let (enforced, tenant) = (held(enforced), held(tenant));
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
fn hold(points: &[(f64, f64)], begin: f64, end: f64, step_s: f64) -> Vec<f64> {
    let steps = ((end - begin) / step_s) as usize;
    let mut next = 0;
    (0..=steps)
        .map(|step| {
            let now = begin + step as f64 * step_s;
            while next + 1 < points.len() && points[next + 1].0 <= now {
                next += 1;
            }
            points[next].1
        })
        .collect()
}

/// Centred moving average; only full windows.
fn smooth(values: &[f64]) -> Vec<f64> {
    values
        .windows(AVERAGE_STEPS)
        .map(|window| window.iter().sum::<f64>() / AVERAGE_STEPS as f64)
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
    fn a_short_run_has_shorter_steps() {
        let short = |scale| -> Vec<(f64, f64)> {
            let points = wave(0.0, scale);
            points.into_iter().map(|(t, w)| (t / 50.0, w)).collect()
        };
        let tracking = compare(&short(1.2e4), &short(1e4), 0.0, 0.1).unwrap();
        assert!(tracking.correlation > 0.999_999, "{tracking:?}");
        assert!((tracking.relative_error - 0.2).abs() < 1e-6, "{tracking:?}");
    }

    #[test]
    fn too_little_common_time_says_nothing() {
        assert!(compare(&wave(0.0, 1.0), &wave(0.0, 1.0), 4.9, 13.0).is_none());
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
