//! DCTCP's queue oscillation: N long flows of one RTT through one port that marks above K, against
//! the sawtooth of Alizadeh et al., "Data Center TCP", SIGCOMM 2010, 3.3. Lengths are in packets,
//! times in seconds.

use sluicegate_core::cc::Algorithm;
use sluicegate_fabric::{Fabric, graph::PortId};
use sluicegate_tcp::{Config, config::Buffer};

use super::{
    near,
    network::{Flows, Link, Network, host, switch},
};

const RATE_BPS: u64 = 10_000_000_000;
/// Senders' links are faster, so that the queue is at the switch.
const ACCESS_BPS: u64 = 11_000_000_000;
const PACKET_BYTES: u32 = 1500;
const ACK_BYTES: u32 = 66;
/// Packets per second of the bottleneck.
const C: f64 = RATE_BPS as f64 / 8.0 / PACKET_BYTES as f64;
/// Between looks at the queue: a quarter of a packet.
const STEP_PS: u64 = 300_000;

/// The parameters of a case.
#[derive(Clone, Copy, Debug)]
struct Setting {
    flows: u32,
    /// Round trip without any queue.
    rtt_ps: u64,
    k_packets: u32,
    /// g = 2^-g_shift.
    g_shift: u8,
}

/// A queue's oscillation, mean over its cycles.
#[derive(Clone, Copy, Debug)]
struct Oscillation {
    q_max: f64,
    amplitude: f64,
    period_s: f64,
}

impl Setting {
    fn rtt_s(&self) -> f64 {
        self.rtt_ps as f64 / 1e12
    }

    /// The published closed form, equations 6 to 10 of the paper of 2010.
    fn sawtooth(&self) -> Oscillation {
        let (n, k) = (f64::from(self.flows), f64::from(self.k_packets));
        let window = C * self.rtt_s() + k;
        let (q_max, amplitude) = (k + n, 0.5 * (2.0 * n * window).sqrt());
        let rounds = 0.5 * (2.0 * window / n).sqrt();
        let mean_rtt_s = self.rtt_s() + (q_max - amplitude / 2.0) / C;
        Oscillation {
            q_max,
            amplitude,
            period_s: rounds * mean_rtt_s,
        }
    }

    /// The same sawtooth without its approximations, and with what senders do beside: a window that
    /// was cut does not grow before the cut is acknowledged (RFC 3168 6.1.2, Linux's CWR state), so
    /// that a cycle has one round more; and alpha decays from one marked round to the next, so that
    /// a cut finds it below its mean.
    fn sawtooth_with_cwr(&self) -> Oscillation {
        let (n, k) = (f64::from(self.flows), f64::from(self.k_packets));
        let keep = 1.0 - 0.5f64.powi(self.g_shift.into());
        let top = (C * self.rtt_s() + k) / n + 1.0;
        let mut alpha = (2.0 / top).sqrt();
        for _ in 0..100 {
            // Rounds of a cycle, by its packets: one of `top` is marked.
            let low = top * (1.0 - alpha / 2.0);
            let rounds = ((top * top - low * low) / 2.0 + low) / (top - 0.5);
            let kept = keep.powf(rounds - 1.0);
            alpha = (alpha + (1.0 - keep) * kept / (1.0 - kept * keep)) / 2.0;
        }
        let rounds = top * alpha / 2.0;
        let (q_max, amplitude) = (k + n, n * rounds);
        let low_rtt_s = self.rtt_s() + (q_max - amplitude) / C;
        let mean_rtt_s = self.rtt_s() + (q_max - amplitude / 2.0) / C;
        Oscillation {
            q_max,
            amplitude,
            period_s: rounds * mean_rtt_s + low_rtt_s,
        }
    }

    /// The simulator's oscillation.
    fn simulated(&self) -> Oscillation {
        let mut flows = self.start();
        let port = PortId::of_link(self.flows as usize, true);
        let mut trace = Trace::default();
        let settled_ps = self.settled_ps();
        let mut now_ps = 0;
        while now_ps < 3 * settled_ps / 2 {
            now_ps += STEP_PS;
            flows.run_until(now_ps);
            let q = flows.net.backlog_bytes(port) as f64 / f64::from(PACKET_BYTES);
            trace.add(now_ps >= settled_ps, STEP_PS as f64 / 1e12, q);
        }
        flows.net.account().unwrap();
        let drops = flows.net.fabric.stats(port).drops;
        assert_eq!(drops.iter().sum::<u64>(), 0, "{self:?}");
        trace.oscillation()
    }

    /// alpha forgets its beginning.
    fn settled_ps(&self) -> u64 {
        (8 * self.rtt_ps) << self.g_shift
    }

    fn start(&self) -> Flows {
        let serialization_ps =
            |bytes: u32, rate_bps: u64| u64::from(bytes) * 8_000_000_000_000 / rate_bps;
        let base_ps: u64 = [RATE_BPS, ACCESS_BPS]
            .into_iter()
            .map(|rate_bps| {
                serialization_ps(PACKET_BYTES, rate_bps) + serialization_ps(ACK_BYTES, rate_bps)
            })
            .sum();
        let link = |number, rate_bps| Link {
            nodes: (switch(0), host(number)),
            rate_bps,
            delay_ps: (self.rtt_ps - base_ps) / 4,
            k_bytes: self.k_packets * PACKET_BYTES,
        };
        let mut links: Vec<_> = (0..self.flows).map(|host| link(host, ACCESS_BPS)).collect();
        links.push(link(self.flows, RATE_BPS));
        let net = Network {
            hosts: self.flows + 1,
            links,
            jitter_ps: 0,
            limit_bytes: 1 << 30,
            ..Network::star(0, &self.stack(), RATE_BPS, 0)
        };
        let pairs: Vec<_> = (0..self.flows).map(|sender| (sender, self.flows)).collect();
        Flows::start(net.build(), &pairs, 1 << 50)
    }

    /// As in the model: an ACK per packet, cuts at once, buffers that never limit.
    fn stack(&self) -> Config {
        let mut stack = Config::linux((PACKET_BYTES - 14 - 40) as u16).with(Algorithm::Dctcp);
        stack.delayed_ack.segments = 1;
        stack.prr = false;
        stack.params.g_shift = self.g_shift;
        let buffer = Buffer {
            initial_bytes: 64 << 20,
            max_bytes: 64 << 20,
        };
        (stack.receive_buffer, stack.send_buffer) = (buffer, buffer);
        stack
    }
}

/// A queue over time, in steps of one length.
#[derive(Default)]
struct Trace {
    step_s: f64,
    lengths: Vec<f64>,
}

impl Trace {
    fn add(&mut self, settled: bool, step_s: f64, length: f64) {
        self.step_s = step_s;
        if settled {
            self.lengths.push(length);
        }
    }

    /// A cycle ends when the queue rises through its mean after it was well below it.
    fn oscillation(&self) -> Oscillation {
        let count = self.lengths.len() as f64;
        let mean = self.lengths.iter().sum::<f64>() / count;
        let lowest = self.lengths.iter().copied().fold(f64::MAX, f64::min);
        let below = (mean + lowest) / 2.0;
        let (mut armed, mut begin) = (false, None);
        let (mut high, mut low) = (f64::MIN, f64::MAX);
        let mut cycles = Vec::new();
        for (at, &length) in self.lengths.iter().enumerate() {
            (high, low) = (high.max(length), low.min(length));
            armed |= length < below;
            if armed && length >= mean {
                if let Some(begin) = begin {
                    cycles.push((at - begin, high, low));
                }
                (begin, armed) = (Some(at), false);
                (high, low) = (length, length);
            }
        }
        let mean_of = |figure: fn(&(usize, f64, f64)) -> f64| {
            cycles.iter().map(figure).sum::<f64>() / cycles.len() as f64
        };
        Oscillation {
            q_max: mean_of(|cycle| cycle.1),
            amplitude: mean_of(|cycle| cycle.1 - cycle.2),
            period_s: mean_of(|cycle| cycle.0 as f64) * self.step_s,
        }
    }
}

fn setting(flows: u32, rtt_us: u64, k_packets: u32, g_shift: u8) -> Setting {
    Setting {
        flows,
        rtt_ps: rtt_us * 1_000_000,
        k_packets,
        g_shift,
    }
}

/// Windows of hundreds of packets and a small g, as the models assume.
#[test]
fn the_queue_oscillates_as_the_sawtooth_does() {
    for setting in [setting(2, 1000, 150, 9), setting(4, 1000, 300, 9)] {
        let got = setting.simulated();
        let (published, expected) = (setting.sawtooth(), setting.sawtooth_with_cwr());
        println!("{setting:?}\n  {got:?}\n  {expected:?}\n  {published:?}");
        assert!(near(got.q_max, published.q_max), "{got:?}");
        assert!(near(got.amplitude, expected.amplitude), "{got:?}");
        assert!(near(got.period_s, expected.period_s), "{got:?}");
    }
}

/// The papers' own setting: 100 us, K = 65, g = 1/16. Cycles of six rounds are too coarse for more.
#[test]
fn the_queue_s_peak_is_k_and_a_packet_of_each_flow() {
    let setting = setting(2, 100, 65, 4);
    let (got, published) = (setting.simulated(), setting.sawtooth());
    println!("{setting:?}\n  {got:?}\n  {published:?}");
    assert!(near(got.q_max, published.q_max), "{got:?}");
}
