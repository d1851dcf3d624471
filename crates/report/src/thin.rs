//! Fewer points that draw the same picture.

/// Points of a CDF of which half are spread evenly and half lie ever closer to 1, so that the tail
/// keeps its shape.
///
/// Returns (value, fraction of samples ≤ value), ascending, at most `limit` (≥ 4) pairs; empty
/// without samples. Values that are no numbers are left out.
pub fn cdf(samples: &[f64], limit: usize) -> Vec<(f64, f64)> {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let point = |index: usize| (sorted[index], (index + 1) as f64 / n as f64);
    if n <= limit {
        return (0..n).map(point).collect();
    }
    let half = limit / 2;
    let even = (0..half).map(|i| i * (n - 1) / half);
    let tail =
        (0..half).map(|i| n - (n as f64).powf(1.0 - i as f64 / (half - 1) as f64).round() as usize);
    let mut indices: Vec<usize> = even.chain(tail).map(|i| i.min(n - 1)).collect();
    indices.sort_unstable();
    indices.dedup();
    indices.into_iter().map(point).collect()
}

/// The smallest and the largest value of each of `limit / 2` equal stretches of points, in the
/// order of time.
///
/// Keeps every extreme that a screen of that many pixels could show; `limit` ≥ 2.
pub fn extremes(points: &[(f64, f64)], limit: usize) -> Vec<(f64, f64)> {
    if points.len() <= limit {
        return points.to_vec();
    }
    let stretch = points.len().div_ceil(limit / 2);
    points.chunks(stretch).flat_map(low_and_high).collect()
}

fn low_and_high(chunk: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
    let (Some(low), Some(high)) = (chunk.iter().min_by(by_value), chunk.iter().max_by(by_value))
    else {
        return Vec::new();
    };
    match (low.1 == high.1, low.0 <= high.0) {
        (true, _) => vec![*low],
        (_, true) => vec![*low, *high],
        _ => vec![*high, *low],
    }
}

/// A stretch of points in one: its middle in time, and what the values did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// Middle between first and last point.
    pub time: f64,
    /// Smallest value.
    pub low: f64,
    /// Mean value, every point counting the same.
    pub mean: f64,
    /// Largest value.
    pub high: f64,
}

/// Points summed up in at most `limit` (≥ 1) stretches, for quantities that change too fast to
/// follow.
pub fn stretches(points: &[(f64, f64)], limit: usize) -> Vec<Stretch> {
    let length = points.len().div_ceil(limit).max(1);
    let sum_up = |chunk: &[(f64, f64)]| {
        let values = || chunk.iter().map(|point| point.1);
        Stretch {
            time: (chunk[0].0 + chunk[chunk.len() - 1].0) / 2.0,
            low: values().fold(f64::INFINITY, f64::min),
            mean: values().sum::<f64>() / chunk.len() as f64,
            high: values().fold(f64::NEG_INFINITY, f64::max),
        }
    };
    points.chunks(length).map(sum_up).collect()
}

/// Rounded to four significant digits, which is finer than a pixel.
pub fn round(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10f64.powi(3 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cdf_is_monotonic_and_reaches_one_at_the_largest() {
        let samples: Vec<f64> = (0..100_000)
            .map(|i| ((i * 7919) % 100_000) as f64)
            .collect();
        let points = cdf(&samples, 500);
        assert!(
            points.len() <= 500 && points.len() > 400,
            "{}",
            points.len()
        );
        assert!(
            points
                .windows(2)
                .all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1)
        );
        assert_eq!(*points.last().unwrap(), (99_999.0, 1.0));
        let exact =
            |(value, fraction): &(f64, f64)| (fraction * 100_000.0 - (value + 1.0)).abs() < 1e-6;
        assert!(points.iter().all(exact));
    }

    #[test]
    fn a_cdf_keeps_the_tail() {
        let samples: Vec<f64> = (0..50_000).map(f64::from).collect();
        let beyond_p999 = cdf(&samples, 500)
            .iter()
            .filter(|(_, fraction)| *fraction > 0.999)
            .count();
        assert!(beyond_p999 > 30, "{beyond_p999}");
    }

    #[test]
    fn small_and_empty_samples_stay_whole() {
        assert_eq!(cdf(&[], 500), []);
        assert_eq!(cdf(&[3.0, f64::NAN, 1.0], 500), [(1.0, 0.5), (3.0, 1.0)]);
        assert_eq!(extremes(&[(0.0, 1.0)], 2), [(0.0, 1.0)]);
    }

    #[test]
    fn a_single_spike_survives_thinning() {
        let mut points: Vec<(f64, f64)> = (0..10_000).map(|i| (i as f64, 5.0)).collect();
        points[4_321].1 = 90.0;
        points[8_765].1 = 0.0;
        let thinned = extremes(&points, 200);
        assert!(thinned.len() <= 200);
        assert!(thinned.contains(&(4_321.0, 90.0)) && thinned.contains(&(8_765.0, 0.0)));
        assert!(thinned.windows(2).all(|w| w[0].0 < w[1].0));
    }

    #[test]
    fn stretches_keep_extremes_and_mean() {
        let points: Vec<(f64, f64)> = (0..10).map(|i| (f64::from(i), f64::from(i % 5))).collect();
        let halves = stretches(&points, 2);
        assert_eq!(
            halves[0],
            Stretch {
                time: 2.0,
                low: 0.0,
                mean: 2.0,
                high: 4.0
            }
        );
        assert_eq!(
            halves[1],
            Stretch {
                time: 7.0,
                low: 0.0,
                mean: 2.0,
                high: 4.0
            }
        );
        assert_eq!(stretches(&[], 2), []);
        assert_eq!(stretches(&points, 3).len(), 3);
    }

    #[test]
    fn rounding_keeps_four_digits() {
        assert_eq!(round(123_456.0), 123_500.0);
        assert_eq!(round(0.001_234_56), 0.001_235);
        assert_eq!(round(-9.99961), -10.0);
        assert_eq!(round(0.0), 0.0);
    }
}
