//! The one random source of ports: each has a state of its own, so that nobody else's draws change its own.

/// SplitMix64 (Steele, Lea, Flood 2014): small state.
pub(crate) fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mix(*state)
}

/// Its finaliser: every bit of the result depends on every bit of `z`.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// True with this probability.
pub(crate) fn happens(state: &mut u64, probability: f64) -> bool {
    // 53 bits are what a float holds exactly.
    let unit = (draw(state) >> 11) as f64 / (1u64 << 53) as f64;
    unit < probability
}
