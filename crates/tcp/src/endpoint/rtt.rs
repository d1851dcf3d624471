//! Round-trip times and the retransmission timeout (RFC 6298).

use crate::config::Rto;

/// SRTT, RTTVAR and what follows from them. Times in ns.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimator {
    srtt: u64,
    var: u64,
    min: u64,
    data_min: u32,
    /// RTO before backoff and slop.
    base: u64,
    /// Whether `base` came from a sample.
    sampled: bool,
    backoff: u8,
    /// RTO with backoff, slop and the upper bound.
    rto: u64,
}

impl Estimator {
    pub fn new(rto: &Rto) -> Self {
        Self {
            srtt: 0,
            var: 0,
            min: 0,
            data_min: 0,
            base: rto.initial_ns,
            sampled: false,
            backoff: 0,
            rto: rto.initial_ns.min(rto.max_ns),
        }
    }

    /// A measured round trip. Ends backoff (Karn).
    #[inline(always)]
    pub fn sample(&mut self, rtt: u64, rto: &Rto) {
        let rtt = rtt.max(1);
        let first = !self.sampled;
        if !first {
            // RTTVAR first, with the old SRTT (RFC 6298 2.3).
            self.var = self.var - self.var / 4 + self.srtt.abs_diff(rtt) / 4;
            self.srtt = self.srtt - self.srtt / 8 + rtt / 8;
        } else {
            self.srtt = rtt;
            self.var = rtt / 2;
            self.sampled = true;
        }
        if self.min == 0 || rtt < self.min {
            self.min = rtt;
        }
        let granularity = rto.granularity_ns.max(1);
        let computed = self.srtt + (4 * self.var).max(rto.variation_min_ns).max(granularity);
        // Most often the minimum decides, and the division can be spared.
        let base = if computed + granularity <= rto.min_ns {
            rto.min_ns
        } else {
            computed.next_multiple_of(granularity).max(rto.min_ns)
        };
        if first || base != self.base || self.backoff > 0 {
            self.base = base;
            self.backoff = 0;
            self.rto = self.after(0, rto);
        }
    }

    /// The newest segment of data that an ACK covers took so long (0 = not known): what congestion
    /// control goes by.
    #[inline]
    pub fn data(&mut self, rtt: u32) {
        // An unknown RTT counts as the largest of all.
        if rtt.wrapping_sub(1) < self.data_min.wrapping_sub(1) {
            self.data_min = rtt;
        }
    }

    /// Before the first data: an RTO for a round trip known from earlier connections, if it is
    /// longer than the handshake's (Linux: SYNs are small). The first sample replaces it.
    pub fn expect(&mut self, rtt: u64, rto: &Rto) {
        if rtt > self.srtt {
            let granularity = rto.granularity_ns.max(1);
            let variation = (2 * rtt).max(rto.variation_min_ns).max(granularity);
            self.base = (rtt + variation)
                .next_multiple_of(granularity)
                .max(rto.min_ns);
            self.rto = self.after(self.backoff, rto);
        }
    }

    /// The last timeout has not been followed by a sample.
    pub fn backs_off(&self) -> bool {
        self.backoff > 0
    }

    /// The timer expired (RFC 6298 5.5).
    pub fn back_off(&mut self, rto: &Rto) {
        self.backoff = self.backoff.saturating_add(1);
        self.rto = self.after(self.backoff, rto);
    }

    /// The timer of a SYN (or of a SYN-ACK, if it `answers`) expired.
    pub fn back_off_syn(&mut self, answers: bool, rto: &Rto) {
        self.backoff = self.backoff.saturating_add(1);
        let linear = if answers && !rto.linear_answers {
            0
        } else {
            rto.linear_syns
        };
        let doublings = self.backoff.saturating_sub(linear);
        let slop = if rto.syn_slop && !answers {
            rto.slop_ns
        } else {
            0
        };
        let doubled = self.base.saturating_mul(1 << doublings.min(32));
        self.rto = doubled.saturating_add(slop).min(rto.max_ns);
    }

    /// RTO with backoff, slop and the upper bound.
    pub fn rto(&self) -> u64 {
        self.rto
    }

    /// RTO after `backoff` doublings.
    pub fn after(&self, backoff: u8, rto: &Rto) -> u64 {
        let doubled = self.base.saturating_mul(1 << backoff.min(32));
        let slop = if self.sampled { rto.slop_ns } else { 0 };
        doubled.saturating_add(slop).min(rto.max_ns)
    }

    /// 0 = no sample yet.
    pub fn srtt(&self) -> u64 {
        self.srtt
    }

    pub fn var(&self) -> u64 {
        self.var
    }

    /// Smallest sample; 0 = none yet.
    pub fn min(&self) -> u64 {
        self.min
    }

    /// Smallest one of data, 0 = none yet. Stacks start their congestion control when the handshake
    /// is over (Linux's `tcp_init_transfer`), so that Vegas and its kin never see its round trip.
    pub fn data_min(&self) -> u32 {
        self.data_min
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn rto(min_ms: u64, slop_ms: u64) -> Rto {
        Rto {
            initial_ns: 1_000 * MS,
            min_ns: min_ms * MS,
            max_ns: 60_000 * MS,
            slop_ns: slop_ms * MS,
            variation_min_ns: 0,
            granularity_ns: MS,
            linear_syns: 0,
            linear_answers: false,
            syn_slop: false,
        }
    }

    #[test]
    fn first_and_second_sample_follow_rfc_6298() {
        let rto = rto(1, 0);
        let mut rtt = Estimator::new(&rto);
        assert_eq!(rtt.rto(), 1_000 * MS);
        rtt.sample(100 * MS, &rto);
        assert_eq!((rtt.srtt(), rtt.var()), (100 * MS, 50 * MS));
        assert_eq!(rtt.rto(), 300 * MS);
        rtt.sample(180 * MS, &rto);
        // RTTVAR = 3/4 · 50 + 1/4 · |100 - 180|; SRTT = 7/8 · 100 + 1/8 · 180.
        assert_eq!(rtt.var(), 57_500_000);
        assert_eq!(rtt.srtt(), 110 * MS);
        assert_eq!(rtt.rto(), 340 * MS);
        assert_eq!(rtt.min(), 100 * MS);
    }

    #[test]
    fn linux_adds_its_least_rto_to_the_round_trip() {
        let rto = Rto {
            variation_min_ns: 200 * MS,
            ..rto(200, 0)
        };
        let mut rtt = Estimator::new(&rto);
        rtt.sample(100 * MS, &rto);
        assert_eq!(rtt.rto(), 300 * MS);
    }

    #[test]
    fn the_minimum_holds_before_backoff_and_slop_after() {
        let rto = rto(10, 20);
        let mut rtt = Estimator::new(&rto);
        rtt.back_off(&rto);
        assert_eq!(rtt.rto(), 2_000 * MS, "no slop on the initial value");
        rtt.sample(MS / 10, &rto);
        assert_eq!(rtt.rto(), 30 * MS);
        rtt.back_off(&rto);
        rtt.back_off(&rto);
        assert_eq!(rtt.rto(), 60 * MS);
        for _ in 0..200 {
            rtt.back_off(&rto);
        }
        assert_eq!(rtt.rto(), 60_000 * MS);
        rtt.sample(MS / 10, &rto);
        assert_eq!(rtt.rto(), 30 * MS);
    }

    #[test]
    fn granularity_is_the_least_variance_term_and_the_rounding() {
        let rto = rto(0, 0);
        let mut rtt = Estimator::new(&rto);
        for _ in 0..100 {
            rtt.sample(2_300_000, &rto);
        }
        // 2.3 ms + G, rounded up to G.
        assert_eq!(rtt.rto(), 4 * MS);
    }
}
