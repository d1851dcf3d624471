//! Statistics of samples: quantiles, Jain's index, medians.

use crate::results::{FctQuantiles, Goodput, Quantiles};

/// The `q`-quantile (0..=1) of an ascending slice by nearest rank; `None` of an empty one.
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    let at = rank.clamp(1, sorted.len().max(1)) - 1;
    sorted.get(at).copied()
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|x| !x.is_nan()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

/// The median; `None` without samples. Of an even number it is the mean of the middle two.
pub fn median(samples: &[f64]) -> Option<f64> {
    let sorted = sorted(samples);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[half]),
        _ => Some((sorted[half - 1] + sorted[half]) / 2.0),
    }
}

/// The mean; `None` without samples.
pub fn mean(samples: &[f64]) -> Option<f64> {
    (!samples.is_empty()).then(|| samples.iter().sum::<f64>() / samples.len() as f64)
}

/// Jain's fairness index (Jain, Chiu and Hawe 1984): (Σx)² / (n Σx²); `None` without samples, and
/// if all are 0.
pub fn jain(samples: &[f64]) -> Option<f64> {
    let sum: f64 = samples.iter().sum();
    let squares: f64 = samples.iter().map(|x| x * x).sum();
    (squares > 0.0).then(|| sum * sum / (samples.len() as f64 * squares))
}

/// Quantiles of RTT samples in microseconds.
pub fn quantiles(samples: &[f64]) -> Quantiles {
    let sorted = sorted(samples);
    Quantiles {
        count: sorted.len() as u64,
        p50: quantile(&sorted, 0.5),
        p99: quantile(&sorted, 0.99),
        p999: quantile(&sorted, 0.999),
        max: quantile(&sorted, 1.0),
    }
}

/// Quantiles of completion times in microseconds.
pub fn fct_quantiles(samples: &[f64]) -> FctQuantiles {
    let sorted = sorted(samples);
    FctQuantiles {
        count: sorted.len() as u64,
        unfinished: 0,
        mean: mean(&sorted),
        p50: quantile(&sorted, 0.5),
        p99: quantile(&sorted, 0.99),
        p999: quantile(&sorted, 0.999),
        missed: None,
    }
}

/// Sum, mean and fairness of the goodputs of flows in bit/s.
pub fn goodput(flows_bps: &[f64]) -> Goodput {
    Goodput {
        // An empty sum is -0.0.
        sum: flows_bps.iter().sum::<f64>() + 0.0,
        mean: mean(flows_bps),
        jain: jain(flows_bps),
        max: flows_bps.iter().copied().reduce(f64::max),
    }
}

/// Pearson's correlation of two equally long series, -1..=1; 0 when either is constant or empty.
pub fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let (Some(mean_a), Some(mean_b)) = (mean(a), mean(b)) else {
        return 0.0;
    };
    let pairs = || a.iter().zip(b).map(|(x, y)| (x - mean_a, y - mean_b));
    let covariance: f64 = pairs().map(|(x, y)| x * y).sum();
    let variance_a: f64 = pairs().map(|(x, _)| x * x).sum();
    let variance_b: f64 = pairs().map(|(_, y)| y * y).sum();
    let scale = (variance_a * variance_b).sqrt();
    if scale == 0.0 {
        0.0
    } else {
        covariance / scale
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_are_samples_by_nearest_rank() {
        let samples: Vec<f64> = (1..=1000).rev().map(f64::from).collect();
        let q = quantiles(&samples);
        assert_eq!(
            (q.count, [q.p50, q.p99, q.p999, q.max]),
            (1000, [500.0, 990.0, 999.0, 1000.0].map(Some))
        );
        assert_eq!(quantiles(&[7.0]).p999, Some(7.0));
    }

    #[test]
    fn nothing_has_no_statistics() {
        assert_eq!(quantiles(&[]), Quantiles::default());
        assert_eq!(fct_quantiles(&[]), FctQuantiles::default());
        assert_eq!(goodput(&[]), Goodput::default());
        assert_eq!((mean(&[]), median(&[]), jain(&[])), (None, None, None));
        // Nobody has more than another, but nobody has anything.
        assert_eq!(jain(&[0.0; 3]), None);
        let none = quantile(&[], 0.99);
        assert_eq!(none, None);
    }

    #[test]
    fn one_flow_of_five_taking_all_has_jain_one_fifth() {
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0, 0.0]), Some(0.2));
        assert_eq!(jain(&[3.0; 5]), Some(1.0));
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 9.0]), Some(4.0));
    }

    #[test]
    fn correlation_of_a_line_is_one() {
        let a = [1.0, 2.0, 4.0, 3.0];
        let b = a.map(|x| 5.0 - 2.0 * x);
        assert!((correlation(&a, &a) - 1.0).abs() < 1e-12);
        assert!((correlation(&a, &b) + 1.0).abs() < 1e-12);
        assert_eq!(correlation(&a, &[1.0; 4]), 0.0);
    }

    proptest! {
        #[test]
        fn quantiles_ascend(samples in prop::collection::vec(0.0f64..1e9, 1..300)) {
            let q = quantiles(&samples);
            prop_assert!(q.p50 <= q.p99 && q.p99 <= q.p999 && q.p999 <= q.max);
        }

        #[test]
        fn jain_lies_between_one_over_n_and_one(samples in prop::collection::vec(0.1f64..1e9, 1..50)) {
            let index = jain(&samples).unwrap();
            let n = samples.len() as f64;
            prop_assert!(index >= 1.0 / n - 1e-9 && index <= 1.0 + 1e-9);
        }
    }
}
