//! Active queue management: the safe face of `c/sluice/aqm.h`.

#![allow(unsafe_code)]

use std::mem::{offset_of, size_of};

use crate::number::{at_most, whole};

/// How a queue treats what arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aqm {
    /// Nothing but its limit.
    None,
    /// CE above `k_bytes` of backlog; what is not ECN-capable is dropped there when `drop_not_ect`.
    Threshold {
        /// Threshold in bytes.
        k_bytes: u32,
        /// Not-ECT packets above K are dropped, as by a switch with WRED.
        drop_not_ect: bool,
    },
    /// Random early detection (Floyd & Jacobson 1993).
    Red {
        /// Average backlog in bytes below which nothing happens.
        min_bytes: u32,
        /// Average backlog in bytes from which everything is marked or dropped; above `min_bytes`.
        max_bytes: u32,
        /// Probability at `max_bytes`, 0..=1.
        p_max: f64,
        /// Weight of a new sample, above 0, at most 1.
        weight: f64,
        /// From `max_bytes` on even what can be marked is dropped.
        drop_above: bool,
        /// Packets without ECN pass where others are marked; else they are dropped there.
        pass_not_ect: bool,
    },
}

/// `struct sg_aqm_params`: [`Aqm`] as the data plane reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field is described in c/sluice/aqm.h")]
pub struct AqmParams {
    pub kind: u32,
    pub k_bytes: u32,
    pub drop_not_ect: u32,
    pub red_min_bytes: u32,
    pub red_max_bytes: u32,
    pub p_max_q20: u32,
    pub weight_q20: u32,
    pub ns_per_kbyte: u32,
    pub packet_ns: u32,
    pub red_drop_above: u32,
    pub frame_bytes: u32,
}

/// `struct sg_red`: RED's memory of one queue; the default is an idle one.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field is described in c/sluice/aqm.h")]
pub struct Red {
    pub average_q16: u64,
    pub drained_ns: u64,
    pub since_mark: u32,
    pub pad: u32,
}

/// The fate of an arriving packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It is queued.
    Pass,
    /// It is queued with CE.
    Mark,
    /// It is dropped.
    Drop,
}

/// A packet that arrives at a queue.
#[derive(Clone, Copy, Debug)]
pub struct Arriving {
    /// Time in ns.
    pub now_ns: u64,
    /// Bytes that it finds queued.
    pub backlog_bytes: u32,
    /// Its size in bytes.
    pub bytes: u32,
    /// Whether its ECN field may carry CE.
    pub ect: bool,
    /// Uniform over u32; RED alone reads it.
    pub random: u32,
}

unsafe extern "C" {
    fn sluice_aqm_arrival(
        red: &mut Red,
        params: &AqmParams,
        now_ns: u64,
        backlog: u32,
        bytes: u32,
        ect: u32,
        random: u32,
    ) -> u32;
}

impl AqmParams {
    /// For a queue that drains at `rate_bps` (> 0) and whose full frames have `frame_bytes`.
    ///
    /// # Errors
    /// The parameter that is out of range.
    pub fn new(aqm: Aqm, rate_bps: u64, frame_bytes: u32) -> Result<Self, String> {
        if rate_bps == 0 {
            return Err("a port needs a rate above 0 bit/s".to_owned());
        }
        let mut params = Self {
            ns_per_kbyte: nanoseconds(1024, rate_bps),
            packet_ns: nanoseconds(frame_bytes, rate_bps),
            frame_bytes,
            ..Self::default()
        };
        match aqm {
            Aqm::None => {}
            Aqm::Threshold {
                k_bytes,
                drop_not_ect,
            } => {
                params.kind = 1;
                params.k_bytes = k_bytes;
                params.drop_not_ect = drop_not_ect.into();
            }
            Aqm::Red {
                min_bytes,
                max_bytes,
                p_max,
                weight,
                drop_above,
                pass_not_ect,
            } => {
                check_red(min_bytes, max_bytes, p_max, weight)?;
                params.kind = 2;
                params.red_min_bytes = min_bytes;
                params.red_max_bytes = max_bytes;
                params.p_max_q20 = q20(p_max);
                params.weight_q20 = q20(weight).max(1);
                params.red_drop_above = drop_above.into();
                params.drop_not_ect = (!pass_not_ect).into();
            }
        }
        Ok(params)
    }

    /// A packet that makes the backlog no larger than this passes, and leaves no trace in the
    /// state: 0 where every packet counts.
    pub fn harmless_bytes(&self) -> u64 {
        match self.kind {
            0 => u64::MAX,
            1 => self.k_bytes.into(),
            _ => 0,
        }
    }

    /// Decides about one packet.
    pub fn arrival(&self, red: &mut Red, packet: Arriving) -> Arrival {
        // SAFETY: references to mirrors of the C structures, for this call; any bytes in them give
        // a defined result.
        let verdict = unsafe {
            sluice_aqm_arrival(
                red,
                self,
                packet.now_ns,
                packet.backlog_bytes,
                packet.bytes,
                packet.ect.into(),
                packet.random,
            )
        };
        match verdict {
            0 => Arrival::Pass,
            1 => Arrival::Mark,
            _ => Arrival::Drop,
        }
    }

    /// The eleven words in order, as they lie in memory.
    pub fn words(&self) -> [u32; 11] {
        [
            self.kind,
            self.k_bytes,
            self.drop_not_ect,
            self.red_min_bytes,
            self.red_max_bytes,
            self.p_max_q20,
            self.weight_q20,
            self.ns_per_kbyte,
            self.packet_ns,
            self.red_drop_above,
            self.frame_bytes,
        ]
    }
}

fn check_red(min_bytes: u32, max_bytes: u32, p_max: f64, weight: f64) -> Result<(), String> {
    if min_bytes >= max_bytes {
        return Err(format!(
            "RED: the lower threshold ({min_bytes} B) must be below the upper ({max_bytes} B)"
        ));
    }
    if !(0.0..=1.0).contains(&p_max) {
        return Err(format!("RED: the probability {p_max} is not within 0..=1"));
    }
    if !(weight > 0.0 && weight <= 1.0) {
        return Err(format!(
            "RED: the weight {weight} is not above 0 and at most 1"
        ));
    }
    Ok(())
}

fn q20(fraction: f64) -> u32 {
    at_most::<u32>(whole((fraction * f64::from(1 << 20)).round()))
}

/// Rounded down, but never 0, which would be no time at all: RED divides by it.
fn nanoseconds(bytes: u32, rate_bps: u64) -> u32 {
    let whole_ns = u64::from(bytes) * 8_000_000_000 / rate_bps;
    u32::try_from(whole_ns).unwrap_or(u32::MAX).max(1)
}

const _: () = {
    assert!(size_of::<AqmParams>() == 44);
    assert!(offset_of!(AqmParams, packet_ns) == 32);
    assert!(size_of::<Red>() == 24);
    assert!(offset_of!(Red, drained_ns) == 8);
};

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue that has been full for long.
    fn verdict([drop_above, pass_not_ect]: [bool; 2], backlog_bytes: u32, ect: bool) -> Arrival {
        let red = Aqm::Red {
            min_bytes: 10_000,
            max_bytes: 20_000,
            p_max: 0.02,
            weight: 1.0,
            drop_above,
            pass_not_ect,
        };
        let params = AqmParams::new(red, 10_000_000_000, 1_500).unwrap();
        let packet = Arriving {
            now_ns: 1,
            backlog_bytes,
            bytes: 1_500,
            ect,
            random: 0,
        };
        params.arrival(&mut Red::default(), packet)
    }

    #[test]
    fn above_its_upper_threshold_red_marks_or_drops_as_it_is_told() {
        assert_eq!(verdict([false; 2], 30_000, true), Arrival::Mark);
        assert_eq!(verdict([true, false], 30_000, true), Arrival::Drop);
        assert_eq!(verdict([true, false], 15_000, true), Arrival::Mark);
    }

    #[test]
    fn red_drops_what_cannot_be_marked_or_lets_it_pass() {
        assert_eq!(verdict([false, false], 30_000, false), Arrival::Drop);
        for drop_above in [false, true] {
            assert_eq!(verdict([drop_above, true], 30_000, false), Arrival::Pass);
        }
    }

    /// The verdict of a threshold of 30 KB on a packet of `bytes` that meets `backlog_bytes`.
    fn at_a_threshold(backlog_bytes: u32, bytes: u32) -> Arrival {
        let threshold = Aqm::Threshold {
            k_bytes: 30_000,
            drop_not_ect: false,
        };
        let params = AqmParams::new(threshold, 300_000_000, 1_514).unwrap();
        let packet = Arriving {
            now_ns: 1,
            backlog_bytes,
            bytes,
            ect: true,
            random: 0,
        };
        params.arrival(&mut Red::default(), packet)
    }

    #[test]
    fn a_super_packet_is_marked_for_what_its_last_frame_meets() {
        assert_eq!(at_a_threshold(30_000, 1_514), Arrival::Pass);
        assert_eq!(at_a_threshold(30_001, 60), Arrival::Mark);
        // As many bytes behind others, in one packet or in two.
        assert_eq!(at_a_threshold(20_000, 11_514), Arrival::Pass);
        assert_eq!(at_a_threshold(20_000, 11_515), Arrival::Mark);
        assert_eq!(at_a_threshold(0, 64_000), Arrival::Mark);
        assert_eq!(at_a_threshold(28_487, 1_514), Arrival::Pass);
    }
}
