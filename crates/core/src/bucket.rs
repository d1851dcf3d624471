//! Token buckets for what has no flow: the safe face of `c/sluice/bucket.h`.

#![allow(unsafe_code)]

use crate::{
    abi::{BUCKET_ENFORCE, Bucket},
    number::narrow,
};

unsafe extern "C" {
    fn sluice_bucket_next(bucket: &Bucket, full_ns: u64, bytes: u32, now_ns: u64) -> u64;
    fn sluice_classify(why: u32, data: *const u8, len: u32) -> u32;
}

impl Bucket {
    /// Charges a packet of `bytes` at `now_ns`. `false` = it is beyond the rate; whether it is then
    /// to be dropped is [`Bucket::drops`].
    pub fn take(&mut self, bytes: u32, now_ns: u64) -> bool {
        // SAFETY: a mirror of the C structure, borrowed for the call.
        let next = unsafe { sluice_bucket_next(self, self.full_ns, bytes, now_ns) };
        if next == 0 {
            self.exceeded_bytes += u64::from(bytes);
            self.exceeded_packets += 1;
            return false;
        }
        self.full_ns = next;
        self.passed_bytes += u64::from(bytes);
        true
    }

    /// Packets beyond the rate are dropped, not only counted.
    pub fn drops(&self) -> bool {
        self.mode == BUCKET_ENFORCE
    }
}

/// The class of an Ethernet frame that parsing gave `why` for (an index of `COUNTER_NAMES`): an
/// index of `CLASS_NAMES`.
pub fn classify(why: usize, frame: &[u8]) -> usize {
    // SAFETY: reads within the length that it is told.
    unsafe {
        sluice_classify(
            narrow::<u32>(why),
            frame.as_ptr(),
            narrow::<u32>(frame.len()),
        ) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{CLASS_NAMES, COUNTER_NAMES};

    /// 8 Mbit/s: a byte per µs; bursts of 10 000 bytes.
    fn bucket() -> Bucket {
        Bucket {
            ps_per_byte: 1_000_000,
            burst_ns: 10_000_000,
            mode: BUCKET_ENFORCE,
            ..Bucket::default()
        }
    }

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let mut bucket = bucket();
        let now = 1_000_000_000;
        assert!((0..10).all(|_| bucket.take(1000, now)));
        assert!(!bucket.take(1, now));
        assert!(!bucket.take(1000, now + 999_999) && bucket.take(1000, now + 1_000_000));
        assert_eq!(
            (
                bucket.passed_bytes,
                bucket.exceeded_bytes,
                bucket.exceeded_packets
            ),
            (11_000, 1_001, 2)
        );
    }

    #[test]
    fn over_a_long_time_the_rate_is_exact() {
        let mut bucket = bucket();
        let start = 5_000_000_000;
        // Offered three times the rate for a second.
        let passed: u32 = (0..3_000u64)
            .filter(|i| bucket.take(1_000, start + i * 1_000_000 / 3))
            .map(|_| 1_000)
            .sum();
        assert_eq!(passed, 1_000_000 + 10_000 - 1_000);
    }

    #[test]
    fn a_packet_larger_than_a_burst_passes_where_the_bucket_is_full_and_is_charged_as_a_whole() {
        let mut bucket = bucket();
        let (now, ns_per_byte) = (1_000_000_000, 1_000);
        assert!(bucket.take(60_000, now), "full");
        let full = now + 60_000 * ns_per_byte;
        assert!(!bucket.take(60_000, full - 1) && !bucket.take(10_001, full - 1));
        assert!(!bucket.take(1_000, full - 10_000 * ns_per_byte));
        assert!(bucket.take(1_000, full - 9_000 * ns_per_byte));
        assert_eq!(bucket.full_ns, full + 1_000 * ns_per_byte);
        // Over a long time the rate holds for such packets, too.
        let passed = (1..=10_000u64).filter(|i| bucket.take(60_000, full + i * 1_000_000));
        assert!((10_000 / 60..=10_000 / 60 + 1).contains(&passed.count()));
    }

    #[test]
    fn nothing_overflows() {
        let mut slow = Bucket {
            ps_per_byte: 8_000_000_000,
            burst_ns: u64::MAX,
            ..bucket()
        };
        assert!(slow.take(u32::MAX, 1));
        assert!(slow.take(u32::MAX, 1));
    }

    fn class_of(why: &str, frame: &[u8]) -> &'static str {
        let why = COUNTER_NAMES.iter().position(|name| *name == why).unwrap();
        CLASS_NAMES[classify(why, frame)]
    }

    fn frame(ethertype: u16, body: &[(usize, u8)]) -> Vec<u8> {
        let mut frame = vec![0; 80];
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        for (at, value) in body {
            frame[14 + at] = *value;
        }
        frame
    }

    #[test]
    fn frames_have_classes() {
        for (ethertype, body, class) in [
            (0x0800, vec![(9, 17)], "udp"),
            (0x0800, vec![(9, 1)], "icmp"),
            (0x0800, vec![(9, 132)], "other"),
            (0x0806, vec![], "neighbour"),
            (0x86dd, vec![(6, 17)], "udp"),
            (0x86dd, vec![(6, 58), (40, 128)], "icmp"),
            (0x86dd, vec![(6, 58), (40, 135)], "neighbour"),
            (0x88cc, vec![], "other"),
        ] {
            let mut frame = frame(ethertype, &body);
            assert_eq!(class_of("not_tcp", &frame), class, "{ethertype:x} {body:?}");
            frame.splice(12..12, [0x81, 0, 0, 7]);
            assert_eq!(class_of("not_tcp", &frame), class, "tagged {ethertype:x}");
        }
        let any = frame(0x0800, &[(9, 17)]);
        assert_eq!(class_of("fragment", &any), "fragment");
        for why in ["ip_options", "double_tag", "malformed"] {
            assert_eq!(class_of(why, &any), "opaque");
        }
        for length in 0..any.len() {
            let class = class_of("not_tcp", &any[..length]);
            assert!(["udp", "other"].contains(&class));
        }
    }
}
