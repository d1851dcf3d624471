//! Whether a port has sent no more than its rate allows: a check of the run's results that uses
//! neither the time of a byte nor that of a frame by which the port itself reckons.

use crate::port::PS_PER_S;

/// What a port has sent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    pub frames: u64,
    /// On the wire.
    pub bytes: u64,
    /// When the last bit of these frames leaves.
    pub until_ps: u64,
}

/// A time in which a port's rate was the same.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Period {
    rate_bps: u64,
    before: Sent,
}

impl Period {
    /// From time 0.
    pub fn new(rate_bps: u64) -> Self {
        Self {
            rate_bps,
            before: Sent::default(),
        }
    }

    /// The rate is another one for frames after these.
    pub fn after(sent: Sent, rate_bps: u64) -> Self {
        let before = sent;
        Self { rate_bps, before }
    }

    /// The rate.
    pub fn rate_bps(&self) -> u64 {
        self.rate_bps
    }

    /// Checks that the frames since the beginning of the period had time enough. A port that has
    /// been idle may be ahead by `burst_ps`. Times of frames are whole ps of rounded times of
    /// bytes.
    ///
    /// # Errors
    /// What the port has sent, and how long that takes.
    pub fn check(&self, sent: Sent, burst_ps: u64) -> Result<(), String> {
        let bytes = sent.bytes.saturating_sub(self.before.bytes);
        let frames = sent.frames.saturating_sub(self.before.frames);
        let bit_ps = u128::from(bytes) * u128::from(8 * PS_PER_S);
        let needed_ps = bit_ps / u128::from(self.rate_bps.max(1));
        let rounded_ps = u128::from(bytes >> 16) + 2 * u128::from(frames) + 1;
        let had_ps = sent.until_ps.saturating_sub(self.before.until_ps);
        if needed_ps <= u128::from(had_ps) + u128::from(burst_ps) + rounded_ps {
            return Ok(());
        }
        Err(format!(
            "has sent {bytes} bytes in {had_ps} ps, for which {} b/s need {needed_ps} ps",
            self.rate_bps
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(frames: u64, bytes: u64, until_ps: u64) -> Sent {
        Sent {
            frames,
            bytes,
            until_ps,
        }
    }

    #[test]
    fn a_port_that_sends_faster_than_its_rate_is_found() {
        let period = Period::new(10_000_000_000);
        // 800 ps a byte.
        assert_eq!(period.check(sent(2, 3_000, 2_400_000), 0), Ok(()));
        let error = period.check(sent(2, 3_000, 2_300_000), 0).unwrap_err();
        assert!(error.contains("3000 bytes in 2300000 ps"), "{error}");
        assert_eq!(period.check(sent(2, 3_000, 2_300_000), 100_000), Ok(()));
    }

    #[test]
    fn each_rate_has_its_own_period() {
        let first = sent(1, 1_000, 800_000);
        let slow = Period::after(first, 1_000_000_000);
        assert_eq!(slow.check(sent(2, 2_000, 8_800_000), 0), Ok(()));
        assert!(slow.check(sent(2, 2_000, 8_000_000), 0).is_err());
    }
}
