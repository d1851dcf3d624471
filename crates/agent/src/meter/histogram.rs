//! Histograms with fixed bounds, as Prometheus wants them.

/// Counts of values by bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    bounds: &'static [f64],
    /// Values at most the bound and above the one before; the last one is without bound.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// Empty, with these upper bounds, which ascend.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len() + 1],
            sum: 0.0,
        }
    }

    /// Counts a value.
    pub fn observe(&mut self, value: f64) {
        let at = self.bounds.partition_point(|bound| *bound < value);
        self.counts[at] += 1;
        self.sum += value;
    }

    /// Each bound with how many values are at most that.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        self.bounds
            .iter()
            .zip(&self.counts)
            .scan(0, |sum, (bound, count)| {
                *sum += count;
                Some((*bound, *sum))
            })
    }

    /// How many values there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum.
    pub fn sum(&self) -> f64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_what_is_below_it() {
        let mut histogram = Histogram::new(&[1.0, 10.0]);
        for value in [0.5, 1.0, 1.5, 10.0, 11.0] {
            histogram.observe(value);
        }
        let cumulative: Vec<_> = histogram.cumulative().collect();
        assert_eq!(cumulative, [(1.0, 2), (10.0, 4)]);
        assert_eq!((histogram.count(), histogram.sum()), (5, 24.0));
    }
}
