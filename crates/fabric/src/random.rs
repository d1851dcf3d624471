//! The one random source of ports and hosts: each has a state of its own, so that its draws do not
//! depend on those of others.

/// SplitMix64 (Steele, Lea, Flood 2014): small state.
pub fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mix(*state)
}

/// Its finaliser: every bit of the result depends on every bit of `z`.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// From an exponential distribution with this mean, within 1 % of it; in integers, so that all
/// machines draw the same.
pub(crate) fn exponential(state: &mut u64, mean: u64) -> u64 {
    // -log2 of the draw as a fraction of 2^64, in 2^-32: its leading zeros, and log2(1 + m) = m +
    // 0.344 m (1 - m).
    let drawn = draw(state) | 1;
    let zeros = drawn.leading_zeros();
    let m = (drawn << zeros << 1) >> 32;
    let bent = (m * ((1 << 32) - m)) >> 32;
    let log2_q32 = m + ((bent * 344) / 1000);
    let bits_q32 = (u64::from(zeros + 1) << 32) - log2_q32;
    // Times ln 2.
    let ln_q32 = u128::from(bits_q32) * 693_147 / 1_000_000;
    u64::try_from((u128::from(mean) * ln_q32) >> 32).unwrap_or(u64::MAX)
}

/// True with this probability.
pub(crate) fn happens(state: &mut u64, probability: f64) -> bool {
    // 53 bits are what a float holds exactly.
    let unit = (draw(state) >> 11) as f64 / (1u64 << 53) as f64;
    unit < probability
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_draws_have_the_mean_and_the_quantiles() {
        let mut state = 7;
        let mut drawn: Vec<u64> = (0..200_000)
            .map(|_| exponential(&mut state, 1_000_000))
            .collect();
        drawn.sort_unstable();
        let mean = drawn.iter().sum::<u64>() / drawn.len() as u64;
        assert!(mean.abs_diff(1_000_000) < 10_000, "{mean}");
        for (quantile, expected) in [(0.1, 105_361), (0.5, 693_147), (0.99, 4_605_170)] {
            let found = drawn[(drawn.len() as f64 * quantile) as usize];
            let tolerance = 10_000 + expected / 50;
            assert!(found.abs_diff(expected) < tolerance, "{quantile}: {found}");
        }
    }
}
