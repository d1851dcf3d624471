//! Ratios of pairs that ran one after the other, since single runs differ by a factor on a shared
//! machine: their median with a distribution-free confidence interval.

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
