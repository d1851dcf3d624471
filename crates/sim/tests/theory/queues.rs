//! Mean waiting times at a port that Poisson traffic loads: Pollaczek and Khinchine's formula for
//! frames of one length (M/D/1) and of exponentially distributed lengths (M/M/1). Kleinrock,
//! Queueing Systems I, 1975, 5.6.

use sluicegate_core::aqm::AqmParams;
use sluicegate_fabric::{
    Offer, PortConfig, Ports,
    graph::PortId,
    port::{Frame, PS_PER_S},
};

use super::near;

const PORT: PortId = PortId(0);
const RATE_BPS: u64 = 10_000_000_000;
const DELAY_PS: u64 = 1_000_000;
/// Large enough that a length rounded to bytes is still exponential.
const MEAN_BYTES: f64 = 100_000.0;
const MEAN_SERVICE_PS: f64 = MEAN_BYTES * 8e12 / RATE_BPS as f64;

/// A datagram that knows when it was offered.
struct Datagram {
    bytes: u32,
    offered_ps: u64,
}

impl Frame for Datagram {
    fn bytes(&self) -> u32 {
        self.bytes
    }
    fn is_ect(&self) -> bool {
        false
    }
    fn mark(&mut self) {}
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Exponentially distributed.
    fn exponential(&mut self, mean: f64) -> f64 {
        let uniform = ((self.next() >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        -mean * uniform.ln()
    }
}

#[derive(Clone, Copy)]
enum Lengths {
    Fixed,
    Exponential,
}

/// One port, its open-loop source, and what has come out at the far end.
struct Queue {
    ports: Ports<Datagram>,
    next_ps: Option<u64>,
    waited_ps: f64,
    arrived: u64,
}

impl Queue {
    fn new() -> Self {
        let mut ports = Ports::default();
        let config = PortConfig {
            rate_bps: RATE_BPS,
            delay_ps: DELAY_PS,
            limit_bytes: u64::from(u32::MAX),
            aqm: AqmParams::default(),
            jitter_ps: 0,
            jitter_mean_ps: 0,
            burst_ps: 0,
            overhead_bytes: 0,
        };
        ports.add(config, 1);
        Self {
            ports,
            next_ps: None,
            waited_ps: 0.0,
            arrived: 0,
        }
    }

    fn offer(&mut self, now_ps: u64, bytes: u32) {
        self.receive(now_ps);
        let frame = self.ports.pool.insert(Datagram {
            bytes,
            offered_ps: now_ps,
        });
        match self.ports.offer(PORT, now_ps, frame) {
            Offer::First(at_ps) => self.next_ps = Some(at_ps),
            Offer::Queued => {}
            other => panic!("{other:?}"),
        }
    }

    /// Takes what is at the far end by `now_ps`: all of its time there but service and delay was
    /// waiting.
    fn receive(&mut self, now_ps: u64) {
        while let Some(at_ps) = self.next_ps.filter(|&at_ps| at_ps <= now_ps) {
            let Some((handle, next_ps)) = self.ports.arrive(PORT, at_ps) else {
                return;
            };
            let frame = &self.ports.pool[handle];
            let service_ps = u64::from(frame.bytes) * 8 * PS_PER_S / RATE_BPS;
            self.waited_ps += (at_ps - frame.offered_ps - service_ps - DELAY_PS) as f64;
            self.arrived += 1;
            self.ports.pool.release(handle);
            self.next_ps = next_ps;
        }
    }
}

/// Mean wait in mean service times of `frames` frames that arrive by chance at load `rho`.
fn mean_wait(rho: f64, lengths: Lengths, frames: u64) -> f64 {
    let mut random = Random(1);
    let mut queue = Queue::new();
    let mut now_ps = 0;
    for _ in 0..frames {
        now_ps += random.exponential(MEAN_SERVICE_PS / rho).round() as u64;
        let bytes = match lengths {
            Lengths::Fixed => MEAN_BYTES,
            Lengths::Exponential => random.exponential(MEAN_BYTES).round(),
        };
        queue.offer(now_ps, bytes as u32);
    }
    queue.receive(u64::MAX);
    assert_eq!(queue.arrived, frames);
    queue.waited_ps / frames as f64 / MEAN_SERVICE_PS
}

/// The wait's variance grows with (1 - rho)^-4 (Daley 1968): at 2 % of its mean, six standard
/// errors.
fn frames(rho: f64) -> u64 {
    let variance = rho * (2.0 + 5.0 * rho - 4.0 * rho * rho + rho.powi(3)) / (1.0 - rho).powi(4);
    let mean = rho / (1.0 - rho);
    (variance / (0.02 / 6.0 * mean).powi(2)) as u64
}

fn check(lengths: Lengths, expected: impl Fn(f64) -> f64) {
    for rho in [0.5, 0.7, 0.9] {
        let (got, expected) = (mean_wait(rho, lengths, frames(rho)), expected(rho));
        println!("load {rho}: waits {got:.4} service times, {expected:.4} expected");
        assert!(near(got, expected), "load {rho}: {got} against {expected}");
    }
}

#[test]
fn frames_of_one_length_wait_as_in_m_d_1() {
    check(Lengths::Fixed, |rho| rho / (2.0 * (1.0 - rho)));
}

#[test]
fn frames_of_exponential_lengths_wait_as_in_m_m_1() {
    check(Lengths::Exponential, |rho| rho / (1.0 - rho));
}
