//! A bulk flow on a virtual clock: one ACK per segment, the window always full.

use sluicegate_core::{
    abi::{ONE_Q10, Params},
    cc::{Ack, Algorithm, Cc},
};

pub const MSS: u32 = 1448;

/// Parameters as a policy's defaults set them, with a window that does not bind.
pub fn params() -> Params {
    Params {
        floor_mss: 2,
        init_segments: 10,
        g_shift: 4,
        beta_q10: ONE_Q10,
        window_cap: 1 << 30,
        vegas_alpha: 2,
        vegas_beta: 4,
        swift_target_ns: 200_000,
        swift_range_ns: 100_000,
        swift_ai_q10: 1024,
        swift_beta_q10: 819,
        swift_mdf_q10: 512,
        ..Params::default()
    }
}

#[derive(Clone)]
pub struct Flow {
    pub cc: Cc,
    pub params: Params,
    pub algorithm: Algorithm,
    pub snd_una: u32,
    pub now_ns: u64,
    pub min_rtt_ns: u32,
}

impl Flow {
    pub fn new(algorithm: Algorithm, params: Params) -> Self {
        Self {
            cc: Cc::new(&params, algorithm, MSS),
            params,
            algorithm,
            // Close to the wrap, so that every test crosses it.
            snd_una: u32::MAX - 20_000,
            now_ns: 1_000_000_000,
            min_rtt_ns: 0,
        }
    }

    /// In congestion avoidance with a window of `segments`.
    pub fn steady(algorithm: Algorithm, params: Params, segments: u32) -> Self {
        let mut flow = Self::new(algorithm, params);
        flow.cc.cwnd = segments * MSS;
        flow.cc.ssthresh = flow.cc.cwnd;
        flow
    }

    pub fn segments(&self) -> f64 {
        f64::from(self.cc.cwnd) / f64::from(self.cc.mss)
    }

    /// The acknowledgement of one more segment, the window full.
    pub fn ack(&mut self, rtt_ns: u32) -> Ack {
        if rtt_ns > 0 && (self.min_rtt_ns == 0 || rtt_ns < self.min_rtt_ns) {
            self.min_rtt_ns = rtt_ns;
        }
        self.snd_una = self.snd_una.wrapping_add(self.cc.mss);
        Ack {
            acked: self.cc.mss,
            rtt_ns,
            window_used: 1,
            ..self.state()
        }
    }

    /// The report of a loss or a timeout.
    pub fn state(&self) -> Ack {
        Ack {
            now_ns: self.now_ns,
            min_rtt_ns: self.min_rtt_ns,
            snd_una: self.snd_una,
            snd_nxt: self.snd_una.wrapping_add(self.cc.cwnd),
            flight: self.cc.cwnd,
            ..Ack::default()
        }
    }

    pub fn feed(&mut self, ack: &Ack) {
        self.cc.on_ack(&self.params, self.algorithm, ack);
    }

    /// One window of ACKs spread over an RTT; `marked(i)` says whether segment i met CE.
    pub fn round(&mut self, rtt_ns: u32, marked: impl Fn(u32) -> bool) {
        let count = (self.cc.cwnd / self.cc.mss).max(1);
        for index in 0..count {
            self.now_ns += u64::from(rtt_ns / count);
            let mut ack = self.ack(rtt_ns);
            if marked(index) {
                ack.marked = ack.acked;
            }
            self.feed(&ack);
        }
    }

    pub fn rounds(&mut self, count: u32, rtt_ns: u32) {
        for _ in 0..count {
            self.round(rtt_ns, |_| false);
        }
    }

    /// One window of ACKs through a bottleneck of `rate_bps` with an endless queue: RTT follows the
    /// flow's own window.
    pub fn queued_round(&mut self, base_ns: u32, rate_bps: f64) {
        for _ in 0..(self.cc.cwnd / self.cc.mss).max(1) {
            let serial_ns = f64::from(self.cc.cwnd) * 8e9 / rate_bps;
            let rtt_ns = serial_ns.max(f64::from(base_ns)) as u32;
            self.now_ns += (f64::from(self.cc.mss) * 8e9 / rate_bps) as u64;
            let ack = self.ack(rtt_ns);
            self.feed(&ack);
        }
    }

    pub fn lose(&mut self) {
        let state = self.state();
        self.cc.on_loss(&self.params, self.algorithm, &state);
    }

    pub fn time_out(&mut self) {
        let state = self.state();
        self.cc.on_timeout(&self.params, self.algorithm, &state);
    }
}
