//! A histogram of sizes or times: exact below 64, to 3 % above.

use sluicegate_core::number::{index, narrow, whole};

/// log2 of the bins per power of two.
const SUB_BITS: u32 = 5;
const BINS: usize = ((48 - SUB_BITS) << SUB_BITS) as usize;

/// How often each value came.
#[derive(Clone, Debug)]
pub struct Histogram(Box<[u32; BINS]>);

impl Default for Histogram {
    fn default() -> Self {
        Self(Box::new([0; BINS]))
    }
}

impl Histogram {
    /// A value came once more.
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.0[bin(value)] += 1;
    }

    /// What came since `earlier`, which is a former state of this one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        for (count, before) in since.0.iter_mut().zip(earlier.0.iter()) {
            *count -= before;
        }
        since
    }

    /// The smallest value that a fraction `q` does not exceed, 0 < `q` <= 1; `None` if none came.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let total: u64 = self.0.iter().map(|&count| u64::from(count)).sum();
        let rank = whole((q * total as f64).ceil()).max(1);
        let mut seen = 0;
        let found = self.0.iter().position(|&count| {
            seen += u64::from(count);
            seen >= rank
        });
        found.map(|bin| middle(bin) as f64)
    }
}

fn bin(value: u64) -> usize {
    let high = 63 - (value | 1).leading_zeros();
    if high <= SUB_BITS {
        return index(value);
    }
    let shift = high - SUB_BITS;
    let bin = (u64::from(shift) << SUB_BITS) + (value >> shift);
    index(bin).min(BINS - 1)
}

/// The middle of a bin.
fn middle(bin: usize) -> u64 {
    let shift = narrow::<u32>((bin >> SUB_BITS).saturating_sub(1));
    if shift == 0 {
        return bin as u64;
    }
    let low = ((bin as u64) - (u64::from(shift) << SUB_BITS)) << shift;
    low + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_ascend_and_lie_within_three_percent() {
        let mut last = 0;
        for value in (0..2000).chain((11..44).map(|bits| (1u64 << bits) + 12_345)) {
            let bin = bin(value);
            assert!(bin >= last, "{value}");
            last = bin;
            let error = middle(bin).abs_diff(value) as f64;
            assert!(error <= 0.032 * value as f64, "{value}: {}", middle(bin));
        }
    }

    #[test]
    fn what_came_before_is_left_out() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        histogram.add(10);
        let earlier = histogram.clone();
        histogram.add(20);
        assert_eq!(histogram.quantile(0.5), Some(10.0));
        assert_eq!(histogram.since(&earlier).quantile(0.5), Some(20.0));
        assert_eq!(histogram.since(&histogram).quantile(1.0), None);
    }
}
