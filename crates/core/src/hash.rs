//! The keyed hash of connections: the safe face of `c/sluice/hash.h`.

#![allow(unsafe_code)]

use crate::abi::{FlowKey, HashKey};

unsafe extern "C" {
    fn sluice_flow_hash(flow: *const FlowKey, key: *const HashKey) -> u32;
}

impl HashKey {
    /// The same on every machine: for tests, and where no tenant chooses connections that collide.
    /// Its words are the first of the fraction of pi.
    pub const FIXED: Self = Self {
        spread: 0x9e37_79b9_7f4a_7c15,
        word: [
            0x243f_6a88,
            0x85a3_08d3,
            0x1319_8a2e,
            0x0370_7344,
            0xa409_3822,
            0x299f_31d0,
            0x082e_fa98,
            0xec4e_6c89,
            0x4528_21e6,
            0x38d0_1377,
            0xbe54_66cf,
            0x34e9_0c6c,
        ],
    };
}

/// Hash of a connection: without the key a tenant cannot choose connections that collide. The high
/// bits are the best.
pub fn flow_hash(flow: &FlowKey, key: &HashKey) -> u32 {
    // SAFETY: both are valid for reads of their C size, and nothing else is touched.
    unsafe { sluice_flow_hash(flow, key) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Addr;

    /// A key as a random source would give it.
    fn key(seed: u64) -> HashKey {
        let mut state = seed;
        let mut next = || {
            // SplitMix64 (Steele et al., OOPSLA 2014).
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        HashKey {
            spread: next() | 1,
            word: std::array::from_fn(|_| next() as u32),
        }
    }

    fn flow(host: u32, port: u16) -> FlowKey {
        FlowKey {
            local: Addr {
                word: [0, 0, 0xffff_0000, 0x0100_000a],
            },
            remote: Addr {
                word: [0, 0, 0xffff_0000, host.to_be()],
            },
            local_port: port.to_be(),
            remote_port: 443u16.to_be(),
            ifindex: 3,
            ..FlowKey::default()
        }
    }

    #[test]
    fn every_word_counts() {
        let base = flow(7, 40_000);
        let others = [
            FlowKey {
                local: flow(1, 1).remote,
                ..base
            },
            flow(8, 40_000),
            flow(7, 40_001),
            FlowKey {
                remote_port: 80,
                ..base
            },
            FlowKey { ifindex: 4, ..base },
            FlowKey { vlan: 4, ..base },
            FlowKey { opener: 1, ..base },
            FlowKey {
                local: base.remote,
                remote: base.local,
                ..base
            },
        ];
        for seed in 0..64 {
            let key = key(seed);
            for other in &others {
                assert_ne!(flow_hash(&base, &key), flow_hash(other, &key), "{other:?}");
            }
        }
    }

    #[test]
    fn another_key_is_another_hash() {
        let same = (0..1000)
            .filter(|&seed| {
                flow_hash(&flow(7, 1), &key(seed)) == flow_hash(&flow(7, 1), &key(9999))
            })
            .count();
        assert_eq!(same, 0);
    }

    /// Neighbouring ports and hosts spread over 4096 homes as if thrown: chi-squared with 4095
    /// degrees of freedom stays below 4095 + 8 sigma, for every key tried.
    #[test]
    fn neighbours_spread_evenly() {
        for seed in 0..16 {
            let key = key(seed);
            let mut homes = vec![0_u32; 4096];
            for host in 0..16 {
                for port in 0..4096 {
                    homes[flow_hash(&flow(0x0a00_0000 + host, 32_768 + port), &key) as usize
                        >> 20] += 1;
                }
            }
            let expected = 16.0;
            let chi: f64 = homes
                .iter()
                .map(|&count| (f64::from(count) - expected).powi(2) / expected)
                .sum();
            assert!(
                chi < 4095.0 + 8.0 * (2.0_f64 * 4095.0).sqrt(),
                "{seed}: {chi}"
            );
        }
    }
}
