//! CUBIC, HighSpeed, Vegas, Illinois and Swift against their published formulas in floating point.

use common::{Flow, MSS, params};
use sluicegate_core::{
    abi::Params,
    cc::{Algorithm, SSTHRESH_UNKNOWN},
};

use crate::common;

/// RFC 9438 in segments and seconds, sections 4.2 to 4.5.
struct Cubic {
    cwnd: f64,
    w_max: f64,
    k: f64,
    w_est: f64,
    cwnd_prior: f64,
    beta: f64,
}

impl Cubic {
    const C: f64 = 0.4;

    fn after_loss(cwnd: f64, beta: f64) -> Self {
        let epoch = cwnd * beta;
        Self {
            cwnd: epoch,
            w_max: cwnd,
            k: ((cwnd - epoch) / Self::C).cbrt(),
            w_est: epoch,
            cwnd_prior: cwnd,
            beta,
        }
    }

    fn curve(&self, t: f64) -> f64 {
        Self::C * (t - self.k).powi(3) + self.w_max
    }

    fn acknowledge(&mut self, t: f64, rtt: f64) {
        let alpha = if self.w_est < self.cwnd_prior {
            3.0 * (1.0 - self.beta) / (1.0 + self.beta)
        } else {
            1.0
        };
        self.w_est += alpha / self.cwnd;
        if self.curve(t) < self.w_est {
            self.cwnd = self.cwnd.max(self.w_est);
            return;
        }
        let target = self.curve(t + rtt).clamp(self.cwnd, 1.5 * self.cwnd);
        self.cwnd += (target - self.cwnd) / self.cwnd;
    }
}

/// Runs both for `seconds` after a loss at `segments`; returns the largest relative difference.
fn cubic_error(segments: u32, rtt_ns: u32, seconds: f64) -> (f64, f64) {
    cubic_error_with(params(), 0.7, segments, rtt_ns, seconds)
}

fn cubic_error_with(
    params: Params,
    beta: f64,
    segments: u32,
    rtt_ns: u32,
    seconds: f64,
) -> (f64, f64) {
    let mut flow = Flow::steady(Algorithm::Cubic, params, segments);
    flow.round(rtt_ns, |_| false);
    flow.cc.cwnd = segments * MSS;
    flow.lose();
    let mut model = Cubic::after_loss(f64::from(segments), beta);
    // The window of the loss is acknowledged without growth, then the epoch begins.
    while flow.cc.flags & sluicegate_core::cc::CC_CUT != 0 {
        let mut ack = flow.ack(rtt_ns);
        ack.window_used = 0;
        flow.feed(&ack);
    }
    let begin = flow.now_ns;
    let mut worst: f64 = 0.0;
    loop {
        let t = (flow.now_ns - begin) as f64 / 1e9;
        if t > seconds {
            return (worst, model.cwnd);
        }
        let ack = flow.ack(rtt_ns);
        flow.feed(&ack);
        model.acknowledge(t, f64::from(rtt_ns) / 1e9);
        worst = worst.max((flow.segments() / model.cwnd - 1.0).abs());
        flow.now_ns += u64::from(rtt_ns) * u64::from(MSS) / u64::from(flow.cc.cwnd);
    }
}

#[test]
fn cubic_follows_rfc_9438_within_one_percent() {
    // Concave and convex: K = cbrt(0.3 * 1000 / 0.4) = 9.1 s.
    let (error, end) = cubic_error(1000, 50_000_000, 18.0);
    assert!(end > 1000.0, "{end}: the convex part was reached");
    assert!(error < 0.01, "{error}");
    // A large window, a long path.
    let (error, end) = cubic_error(8000, 100_000_000, 40.0);
    assert!(end > 8000.0 && error < 0.01, "{end} {error}");
    // A datacenter's RTT: Reno-friendly throughout.
    let (error, end) = cubic_error(40, 400_000, 1.0);
    assert!(end > 100.0 && error < 0.01, "{end} {error}");
}

/// The drafts before RFC 8312, after which FreeBSD 9's is written: beta_cubic = 0.8.
#[test]
fn cubic_follows_the_formulas_with_another_beta() {
    let params = Params {
        cubic_keep_q10: 819,
        ..params()
    };
    // K = cbrt(0.2 * 1000 / 0.4) = 7.9 s.
    let (error, end) = cubic_error_with(params, 0.8, 1000, 50_000_000, 18.0);
    assert!(end > 1000.0 && error < 0.01, "{end} {error}");
    let (error, end) = cubic_error_with(params, 0.8, 40, 400_000, 1.0);
    assert!(end > 60.0 && error < 0.01, "{end} {error}");

    let mut flow = Flow::steady(Algorithm::Cubic, params, 1000);
    flow.lose();
    assert!(
        (flow.segments() / 800.0 - 1.0).abs() < 0.002,
        "{}",
        flow.segments()
    );
    flow.rounds(3, 50_000_000);
    let again = flow.cc.cwnd;
    flow.lose();
    let kept = f64::from(flow.cc.word[2] as u32) / f64::from(again);
    assert!((kept / 0.9 - 1.0).abs() < 0.002, "{kept}");
}

#[test]
fn cubic_fast_convergence_leaves_room_for_others() {
    let mut flow = Flow::steady(Algorithm::Cubic, params(), 1000);
    flow.lose();
    let w_max = flow.cc.word[2] as u32;
    assert_eq!(w_max, 1000 * MSS);
    flow.rounds(3, 50_000_000);
    let again = flow.cc.cwnd;
    assert!(again < w_max);
    flow.lose();
    let expected = f64::from(again) * 0.85;
    let remembered = f64::from(flow.cc.word[2] as u32);
    assert!(
        (remembered / expected - 1.0).abs() < 0.002,
        "{remembered} {expected}"
    );
}

#[test]
fn cubic_does_not_count_time_without_use() {
    let mut busy = Flow::steady(Algorithm::Cubic, params(), 1000);
    busy.lose();
    busy.rounds(20, 50_000_000);
    let mut paused = Flow::steady(Algorithm::Cubic, params(), 1000);
    paused.lose();
    paused.rounds(10, 50_000_000);
    for _ in 0..100 {
        paused.now_ns += 100_000_000;
        let mut ack = paused.ack(50_000_000);
        ack.window_used = 0;
        paused.feed(&ack);
    }
    paused.rounds(10, 50_000_000);
    let ratio = paused.segments() / busy.segments();
    assert!((ratio - 1.0).abs() < 0.01, "{ratio}");
}

/// RFC 3649 section 5.
fn highspeed(w: f64) -> (f64, f64) {
    let b = (0.1 - 0.5) * (w.ln() - 38_f64.ln()) / (83_000_f64.ln() - 38_f64.ln()) + 0.5;
    let p = 0.078 / w.powf(1.2);
    let a = w * w * p * 2.0 * b / (2.0 - b);
    (a.max(1.0), b)
}

/// a and b of the implementation, seen from outside at a window of `segments`.
fn highspeed_seen(segments: u32) -> (f64, f64) {
    let mut flow = Flow::new(Algorithm::Highspeed, params());
    flow.cc.mss = 1000;
    flow.cc.cwnd = segments * 1000;
    flow.cc.ssthresh = flow.cc.cwnd;
    let mut ack = flow.ack(0);
    ack.acked = 10 * flow.cc.cwnd;
    flow.feed(&ack);
    let steps = flow.segments() - f64::from(segments);
    let credit = f64::from(flow.cc.credit) / f64::from(segments * 1000);
    flow.cc.cwnd = segments * 1000;
    flow.lose();
    (
        (steps + credit) / 10.0,
        1.0 - flow.segments() / f64::from(segments),
    )
}

#[test]
fn highspeed_follows_rfc_3649() {
    for segments in (38..83_000).step_by(97) {
        let (a, b) = highspeed_seen(segments);
        let (a_rfc, b_rfc) = highspeed(f64::from(segments));
        assert!(
            (a / a_rfc - 1.0).abs() < 0.01,
            "a({segments}) = {a}, {a_rfc}"
        );
        assert!((b - b_rfc).abs() < 0.002, "b({segments}) = {b}, {b_rfc}");
    }
}

#[test]
fn highspeed_agrees_with_the_rfcs_own_table() {
    // RFC 3649 appendix B: w, a(w), b(w), rounded there.
    for (w, a_rfc, b_rfc) in [
        (38, 1.0, 0.50),
        (118, 2.0, 0.44),
        (221, 3.0, 0.41),
        (1058, 8.0, 0.33),
    ] {
        let (a, b) = highspeed_seen(w);
        assert!((a - a_rfc).abs() < 0.05 * a_rfc, "a({w}) = {a}");
        assert!((b - b_rfc).abs() < 0.006, "b({w}) = {b}");
    }
}

#[test]
fn highspeed_is_reno_below_its_low_window_and_constant_above_its_high_one() {
    for segments in [10, 20, 37] {
        assert_eq!(highspeed_seen(segments), (1.0, 0.5), "{segments}");
    }
    let (high, higher) = (highspeed_seen(83_000), highspeed_seen(150_000));
    assert!(
        (high.0 / higher.0 - 1.0).abs() < 1e-3,
        "{high:?} {higher:?}"
    );
    assert!((high.1 - higher.1).abs() < 1e-3, "{high:?} {higher:?}");
}

#[test]
fn vegas_keeps_between_alpha_and_beta_segments_in_the_queue() {
    let mut flow = Flow::new(Algorithm::Vegas, params());
    let (base_ns, rate_bps) = (2_000_000, 1e8);
    for _ in 0..100 {
        flow.queued_round(base_ns, rate_bps);
    }
    assert!(flow.cc.ssthresh < SSTHRESH_UNKNOWN, "slow start is over");
    let bdp = rate_bps * f64::from(base_ns) / 8e9 / f64::from(MSS);
    for _ in 0..200 {
        flow.queued_round(base_ns, rate_bps);
        let w = flow.segments();
        // diff = w (RTT - base) / base, with RTT = base w / bdp.
        let diff = w * (w / bdp - 1.0);
        assert!(diff > 1.5 && diff < 5.5, "{diff}");
    }
}

#[test]
fn vegas_moves_one_segment_a_round() {
    let mut flow = Flow::steady(Algorithm::Vegas, params(), 20);
    flow.rounds(5, 1_000_000);
    let grown = flow.segments();
    assert!((24.0..=25.0).contains(&grown), "{grown}");
    // Half as long again: a backlog of 10 segments, beyond beta.
    flow.rounds(5, 1_500_000);
    let shrunk = flow.segments();
    assert!((grown - 5.0..=grown - 3.0).contains(&shrunk), "{shrunk}");
}

#[test]
fn vegas_without_samples_grows_by_what_the_last_ack_of_a_round_earns() {
    let mut flow = Flow::steady(Algorithm::Vegas, params(), 20);
    flow.rounds(60, 0);
    assert!(
        (22.0..=23.0).contains(&flow.segments()),
        "{}",
        flow.segments()
    );
}

/// Segments per round that Illinois adds when its average delay is `part` of the largest.
fn illinois_growth(part: f64) -> f64 {
    let mut flow = Flow::steady(Algorithm::Illinois, params(), 400);
    let (base, most) = (1_000_000_u32, 1_000_000_f64);
    flow.rounds(2, base);
    flow.rounds(2, base + most as u32);
    let rtt_ns = base + (most * part) as u32;
    flow.rounds(8, rtt_ns);
    flow.cc.cwnd = 400 * MSS;
    flow.cc.credit = 0;
    flow.round(rtt_ns, |_| false);
    let credit = f64::from(flow.cc.credit) / f64::from(flow.cc.cwnd);
    flow.segments() - 400.0 + credit
}

#[test]
fn illinois_alpha_falls_with_delay_along_its_hyperbola() {
    assert!(
        (illinois_growth(0.0) - 10.0).abs() < 0.3,
        "{}",
        illinois_growth(0.0)
    );
    assert!(
        (illinois_growth(1.0) - 0.3).abs() < 0.05,
        "{}",
        illinois_growth(1.0)
    );
    for part in [0.1, 0.25, 0.5] {
        // k1 / (k2 + da) with dm = 1, d1 = 0.01.
        let k1 = 0.99 * 0.3 * 10.0 / (10.0 - 0.3);
        let k2 = 0.99 * 0.3 / (10.0 - 0.3) - 0.01;
        let expected = k1 / (k2 + part);
        let seen = illinois_growth(part);
        assert!(
            (seen / expected - 1.0).abs() < 0.06,
            "{part}: {seen}, {expected}"
        );
    }
}

/// The part of the window that Illinois gives up at a loss.
fn illinois_cut(part: f64) -> f64 {
    let mut flow = Flow::steady(Algorithm::Illinois, params(), 400);
    flow.rounds(2, 1_000_000);
    flow.rounds(2, 2_000_000);
    flow.rounds(4, 1_000_000 + (1e6 * part) as u32);
    let before = flow.segments();
    flow.lose();
    1.0 - flow.segments() / before
}

#[test]
fn illinois_beta_rises_with_delay() {
    for (part, beta) in [
        (0.0, 0.125),
        (0.1, 0.125),
        (0.45, 0.3125),
        (0.8, 0.5),
        (1.0, 0.5),
    ] {
        let seen = illinois_cut(part);
        assert!((seen - beta).abs() < 0.005, "{part}: {seen}, {beta}");
    }
}

#[test]
fn illinois_is_reno_below_its_window_threshold() {
    let mut flow = Flow::steady(Algorithm::Illinois, params(), 5);
    flow.rounds(8, 1_000_000);
    assert!(
        (12.0..=14.0).contains(&flow.segments()),
        "{}",
        flow.segments()
    );
    flow.lose();
    assert!(
        (6.0..=7.0).contains(&flow.segments()),
        "{}",
        flow.segments()
    );
}

/// The paper's target (section 3.5) in ns, with base and range of `common::params()`.
fn swift_target(segments: f64) -> f64 {
    let (least, most) = (0.1, 0.5_f64.sqrt());
    let root = (1.0 / segments.sqrt()).clamp(least, most);
    200_000.0 + 100_000.0 * (root - least) / (most - least)
}

#[test]
fn swift_grows_below_its_target_and_shrinks_above_it() {
    for segments in [3, 4, 7, 20, 60, 99, 100, 101, 1000, 100_000] {
        let target = swift_target(f64::from(segments));
        let mut below = Flow::steady(Algorithm::Swift, params(), segments);
        let ack = below.ack((target * 0.999) as u32);
        below.feed(&ack);
        assert!(below.cc.credit > 0, "{segments} segments grow");
        let mut above = Flow::steady(Algorithm::Swift, params(), segments);
        let ack = above.ack((target * 1.001) as u32);
        above.feed(&ack);
        assert_eq!(above.cc.credit, 0, "{segments} segments do not grow");
        assert!(above.cc.cwnd < segments * MSS, "{segments} segments shrink");
    }
}

#[test]
fn swift_gives_up_in_proportion_to_the_excess_of_delay() {
    for segments in [20, 100, 5000] {
        let target = swift_target(f64::from(segments));
        for delay in [1.02, 1.1, 1.5, 2.0, 2.6, 2.8, 10.0] {
            let mut flow = Flow::steady(Algorithm::Swift, params(), segments);
            let ack = flow.ack((target * delay) as u32);
            flow.feed(&ack);
            let expected = (1.0 - 0.8 * (delay - 1.0) / delay).max(0.5);
            let kept = flow.segments() / f64::from(segments);
            assert!(
                (kept - expected).abs() < 0.001,
                "{delay}: {kept}, {expected}"
            );
        }
    }
}

#[test]
fn swift_shrinks_at_most_once_an_rtt() {
    let mut flow = Flow::steady(Algorithm::Swift, params(), 64);
    flow.rounds(1, 190_000);
    let before = flow.segments();
    for (index, kept) in [(1, 0.5), (2, 0.25)] {
        flow.round(2_000_000, |_| false);
        let seen = flow.segments() / before;
        assert!((seen - kept).abs() < 0.01, "after {index} RTTs: {seen}");
    }
}

#[test]
fn swift_cuts_again_by_the_clock_where_no_window_is_known() {
    // A tenant's stack forgets the end of a cut's window with each ACK.
    let mut flow = Flow::steady(Algorithm::Swift, params(), 64);
    for index in 0..40 {
        let mut ack = flow.ack(1_000_000);
        ack.now_ns = 1_000_000_000 + index * 100_000;
        flow.cc.flags = 0;
        flow.feed(&ack);
    }
    // At 0, 1, 2 and 3 ms.
    assert_eq!(flow.segments(), 4.0);
}

#[test]
fn swift_settles_at_its_target() {
    let mut flow = Flow::new(Algorithm::Swift, params());
    let (base_ns, rate_bps) = (100_000, 1e9);
    for _ in 0..200 {
        flow.queued_round(base_ns, rate_bps);
    }
    assert!(flow.cc.ssthresh < SSTHRESH_UNKNOWN, "slow start is over");
    for _ in 0..200 {
        flow.queued_round(base_ns, rate_bps);
        let rtt = f64::from(flow.cc.cwnd) * 8e9 / rate_bps;
        let part = rtt / swift_target(flow.segments());
        assert!((0.85..1.15).contains(&part), "{part}");
    }
}

#[test]
fn swift_flows_of_one_queue_come_to_equal_windows() {
    let mut flows = [60, 3].map(|segments| Flow::steady(Algorithm::Swift, params(), segments));
    for _ in 0..100 {
        // At 1 Gb/s.
        let bytes = flows[0].cc.cwnd + flows[1].cc.cwnd;
        let rtt_ns = (8 * bytes).max(100_000);
        for flow in &mut flows {
            flow.round(rtt_ns, |_| false);
        }
    }
    let ratio = flows[0].segments() / flows[1].segments();
    assert!((0.7..1.5).contains(&ratio), "{ratio}");
}

#[test]
fn swift_without_samples_grows_as_reno_and_answers_losses() {
    let mut flow = Flow::steady(Algorithm::Swift, params(), 20);
    flow.rounds(10, 0);
    assert!((flow.segments() - 30.0).abs() <= 1.0, "{}", flow.segments());
    let before = flow.segments();
    flow.params.swift_mdf_q10 = 256;
    flow.lose();
    assert!((flow.segments() / before - 0.75).abs() < 0.001);
}

#[test]
fn extreme_windows_neither_overflow_nor_vanish() {
    for algorithm in Algorithm::ALL {
        let huge = Params {
            window_cap: u32::MAX,
            fixed_bytes: u32::MAX,
            ..params()
        };
        let mut flow = Flow::steady(algorithm, huge, 1);
        flow.cc.cwnd = u32::MAX - 1;
        flow.cc.ssthresh = u32::MAX - 1;
        let mut ack = flow.ack(u32::MAX);
        ack.acked = u32::MAX;
        ack.min_rtt_ns = 1;
        flow.feed(&ack);
        assert!(flow.cc.cwnd > 1 << 31, "{algorithm}: {}", flow.cc.cwnd);
    }
}
