//! Rules that all congestion controls share; New Reno, DCTCP and DC-Vegas by their published rules.

use common::{Flow, MSS, params};
use sluicegate_core::{
    abi::{Params, RULE_CUT_ONLY},
    cc::{Algorithm, SSTHRESH_UNKNOWN},
};

use crate::common;

const RTT_NS: u32 = 100_000;

fn lossy() -> impl Iterator<Item = Algorithm> {
    Algorithm::ALL
        .into_iter()
        .filter(|algorithm| *algorithm != Algorithm::Fixed)
}

#[test]
fn names_and_numbers_go_both_ways() {
    for algorithm in Algorithm::ALL {
        assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        assert_eq!(Algorithm::from_number(algorithm.number()), Some(algorithm));
    }
    assert_eq!(Algorithm::from_number(Algorithm::ALL.len() as u8), None);
    let error = "bbr".parse::<Algorithm>().unwrap_err().to_string();
    assert!(
        error.contains("\"bbr\"") && error.contains("dcvegas"),
        "{error}"
    );
}

#[test]
fn the_first_window_is_the_policys_initial_window() {
    for algorithm in lossy() {
        let flow = Flow::new(algorithm, params());
        assert_eq!(flow.cc.cwnd, 10 * MSS, "{algorithm}");
        assert_eq!(flow.cc.ssthresh, SSTHRESH_UNKNOWN, "{algorithm}");
    }
}

#[test]
fn slow_start_doubles_each_round_while_there_is_no_queue() {
    for algorithm in lossy() {
        let mut flow = Flow::new(algorithm, params());
        flow.rounds(3, RTT_NS);
        assert_eq!(flow.cc.cwnd, 80 * MSS, "{algorithm}");
    }
}

#[test]
fn nothing_grows_unless_the_window_is_used() {
    for algorithm in lossy() {
        let mut flow = Flow::new(algorithm, params());
        for _ in 0..100 {
            let mut ack = flow.ack(RTT_NS);
            ack.window_used = 0;
            flow.feed(&ack);
        }
        assert_eq!(flow.cc.cwnd, 10 * MSS, "{algorithm}");
    }
}

#[test]
fn nothing_grows_during_recovery() {
    for algorithm in lossy() {
        let mut flow = Flow::new(algorithm, params());
        for _ in 0..100 {
            let mut ack = flow.ack(RTT_NS);
            ack.in_recovery = 1;
            flow.feed(&ack);
        }
        assert_eq!(flow.cc.cwnd, 10 * MSS, "{algorithm}");
    }
}

#[test]
fn a_window_is_cut_once_for_all_the_losses_in_it() {
    for algorithm in lossy() {
        let mut flow = Flow::steady(algorithm, params(), 100);
        flow.lose();
        let cut = flow.cc.cwnd;
        assert!((50 * MSS..100 * MSS).contains(&cut), "{algorithm}: {cut}");
        flow.lose();
        assert_eq!(flow.cc.cwnd, cut, "{algorithm}");
    }
}

#[test]
fn what_leaves_after_a_cut_has_a_cut_of_its_own() {
    for algorithm in lossy() {
        for times_out in [false, true] {
            let mut flow = Flow::steady(algorithm, params(), 100);
            flow.lose();
            let (cut, ssthresh) = (flow.cc.cwnd, flow.cc.ssthresh);
            let lost = |flow: &mut Flow| match times_out {
                true => flow.time_out(),
                false => flow.lose(),
            };
            // One byte is missing.
            flow.snd_una = flow.cc.cut_end.wrapping_sub(1);
            let mut same = flow.clone();
            lost(&mut same);
            assert_eq!(same.cc.ssthresh, ssthresh, "{algorithm} {times_out}");
            flow.snd_una = flow.cc.cut_end;
            lost(&mut flow);
            assert!(flow.cc.ssthresh < cut, "{algorithm} {times_out}");
        }
    }
}

#[test]
fn a_loss_after_a_mark_in_the_same_window_halves_the_window_before_the_mark() {
    let mut flow = Flow::steady(Algorithm::Dctcp, params(), 100);
    let mut ack = flow.ack(RTT_NS);
    flow.feed(&ack);
    // A quarter marked: less than half of the window goes.
    flow.cc.word[0] = u64::from(sluicegate_core::abi::ONE_Q20 / 4);
    ack = flow.ack(RTT_NS);
    ack.marked = MSS;
    flow.feed(&ack);
    let by_mark = flow.segments();
    assert!((87.0..88.0).contains(&by_mark), "{by_mark}");
    flow.lose();
    let by_loss = flow.segments();
    assert!((50.0..51.0).contains(&by_loss), "{by_loss}");
}

#[test]
fn timeouts_without_an_ack_in_between_keep_ssthresh() {
    for algorithm in lossy() {
        let mut flow = Flow::steady(algorithm, params(), 100);
        flow.time_out();
        assert_eq!(flow.cc.cwnd, 2 * MSS, "{algorithm}");
        let ssthresh = flow.cc.ssthresh;
        assert!(ssthresh >= 50 * MSS, "{algorithm}: {ssthresh}");
        flow.time_out();
        assert_eq!(flow.cc.ssthresh, ssthresh, "{algorithm}");
        flow.rounds(2, RTT_NS);
        assert_eq!(flow.cc.cwnd, 8 * MSS, "{algorithm}: slow start at once");
    }
}

/// As in Linux (`tcp_enter_loss`), where the second is of what was out at the first.
#[test]
fn timeouts_with_an_ack_in_between_are_two_reductions() {
    for algorithm in lossy() {
        let mut flow = Flow::steady(algorithm, params(), 100);
        flow.time_out();
        let ssthresh = flow.cc.ssthresh;
        let ack = flow.ack(0);
        flow.feed(&ack);
        assert!(flow.cc.cwnd < ssthresh, "{algorithm}");
        let cwnd = flow.cc.cwnd;
        flow.time_out();
        assert!(
            flow.cc.ssthresh <= cwnd,
            "{algorithm}: {}",
            flow.cc.ssthresh
        );
    }
}

#[test]
fn after_idleness_the_window_restarts_and_remembers() {
    let mut flow = Flow::steady(Algorithm::Dctcp, params(), 100);
    flow.cc.on_idle(&flow.params);
    assert_eq!(flow.cc.cwnd, 10 * MSS);
    assert_eq!(flow.cc.ssthresh, 100 * MSS);
    let mut small = Flow::steady(Algorithm::Dctcp, params(), 4);
    small.cc.on_idle(&small.params);
    assert_eq!(small.cc.cwnd, 4 * MSS, "never a larger window than before");
}

#[test]
fn floor_and_cap_hold_and_follow_the_policy() {
    let one = Params {
        floor_mss: 1,
        ..params()
    };
    for (params, floor) in [(params(), 2 * MSS), (one, MSS + 64)] {
        for algorithm in lossy() {
            let mut flow = Flow::new(algorithm, params);
            flow.time_out();
            assert_eq!(flow.cc.cwnd, floor, "{algorithm}");
        }
    }
    for algorithm in lossy() {
        let mut flow = Flow::new(algorithm, params());
        flow.rounds(4, RTT_NS);
        flow.params.window_cap = 20 * MSS;
        flow.rounds(2, RTT_NS);
        assert_eq!(
            flow.cc.cwnd,
            20 * MSS,
            "{algorithm}: a cap that shrinks takes hold"
        );
    }
}

#[test]
fn a_cut_works_after_more_than_half_the_sequence_space_without_one() {
    let mut flow = Flow::steady(Algorithm::Reno, params(), 100);
    flow.lose();
    for _ in 0..3000 {
        let mut ack = flow.ack(RTT_NS);
        ack.acked = 1 << 20;
        flow.snd_una = flow.snd_una.wrapping_add((1 << 20) - MSS);
        ack.snd_una = flow.snd_una;
        ack.snd_nxt = flow.snd_una.wrapping_add(flow.cc.cwnd);
        ack.window_used = 0;
        flow.feed(&ack);
    }
    let before = flow.cc.cwnd;
    flow.lose();
    assert_eq!(flow.cc.cwnd, before / 2);
}

#[test]
fn fixed_is_fixed() {
    let held = Params {
        fixed_bytes: 30_000,
        ..params()
    };
    let mut flow = Flow::new(Algorithm::Fixed, held);
    flow.round(RTT_NS, |_| true);
    flow.lose();
    flow.time_out();
    assert_eq!(flow.cc.cwnd, 30_000);
    let tiny = Params {
        fixed_bytes: 1,
        ..params()
    };
    assert_eq!(Flow::new(Algorithm::Fixed, tiny).cc.cwnd, 2 * MSS);
}

#[test]
fn reno_adds_a_segment_a_window_and_halves() {
    let mut flow = Flow::steady(Algorithm::Reno, params(), 50);
    flow.rounds(20, RTT_NS);
    assert!((flow.segments() - 70.0).abs() <= 1.0, "{}", flow.segments());
    let before = flow.cc.cwnd;
    flow.lose();
    assert_eq!(flow.cc.cwnd, before / 2);
    flow.round(RTT_NS, |_| false);
    flow.rounds(10, RTT_NS);
    let grown = flow.segments() - f64::from(before / 2) / f64::from(MSS);
    assert!((9.0..=11.0).contains(&grown), "{grown}");
}

#[test]
fn marks_are_losses_to_the_algorithms_without_a_finer_answer() {
    for (algorithm, keep) in [
        (Algorithm::Reno, 0.5),
        (Algorithm::Cubic, 0.7),
        (Algorithm::Vegas, 0.5),
        (Algorithm::Dcvegas, 0.5),
        (Algorithm::Swift, 0.5),
    ] {
        let mut flow = Flow::steady(algorithm, params(), 100);
        flow.round(RTT_NS, |_| true);
        let kept = flow.segments() / 100.0;
        assert!((kept - keep).abs() < 0.01, "{algorithm}: {kept}");
    }
}

/// RFC 8257 3.3 in floating point, with the implementation's windows as input.
#[test]
fn dctcp_alpha_follows_the_float_model() {
    for g_shift in [1_u8, 4, 8] {
        let mut flow = Flow::steady(
            Algorithm::Dctcp,
            Params {
                g_shift,
                ..params()
            },
            100,
        );
        let gain = 1.0 / f64::from(1_u32 << g_shift);
        let mut model = Alpha {
            alpha: 1.0,
            acked: 0.0,
            marked: 0.0,
        };
        let mut round_end = None;
        for index in 0..40_000_u32 {
            let mut ack = flow.ack(RTT_NS);
            // Marks come in bursts, with long silences between them.
            let marked = (index / 700) % 3 == 0 && index % 5 < 2;
            ack.marked = if marked { MSS } else { 0 };
            flow.feed(&ack);
            let end = *round_end.get_or_insert(ack.snd_nxt);
            let ended = index > 0 && ack.snd_una.wrapping_sub(end) < 1 << 31;
            if ended {
                round_end = Some(ack.snd_nxt);
            }
            model.acknowledge(marked, ended, gain);
            let error = (flow.cc.alpha() - model.alpha).abs();
            assert!(
                error < 4.0 / gain / f64::from(sluicegate_core::abi::ONE_Q20),
                "ACK {index}: {error}"
            );
        }
        assert!(model.alpha > 0.0 && model.alpha < 1.0);
    }
}

struct Alpha {
    alpha: f64,
    acked: f64,
    marked: f64,
}

impl Alpha {
    fn acknowledge(&mut self, marked: bool, round_ended: bool, gain: f64) {
        self.acked += 1.0;
        self.marked += f64::from(u8::from(marked));
        if round_ended {
            self.alpha = (1.0 - gain) * self.alpha + gain * self.marked / self.acked;
            (self.acked, self.marked) = (0.0, 0.0);
        }
    }
}

#[test]
fn dctcp_alpha_stays_at_one_when_everything_is_marked_and_reaches_zero() {
    let mut flow = Flow::steady(Algorithm::Dctcp, params(), 40);
    for _ in 0..50 {
        flow.round(RTT_NS, |_| true);
    }
    assert_eq!(flow.cc.alpha(), 1.0);
    assert_eq!(flow.cc.cwnd, 2 * MSS, "the floor");
    flow.rounds(400, RTT_NS);
    assert_eq!(flow.cc.alpha(), 0.0);
}

/// A steady flow of 1000 segments.
fn dctcp_of_priority(beta_q10: u32) -> Flow {
    let params = Params {
        beta_q10,
        ..params()
    };
    Flow::steady(Algorithm::Dctcp, params, 1000)
}

#[test]
fn dctcp_priority_weighs_the_cut() {
    for beta_q10 in [0, 256, 512, 768, 1024] {
        for alpha_q20 in [1 << 16, 1 << 18, 1 << 19] {
            let mut flow = dctcp_of_priority(beta_q10);
            let first = flow.ack(RTT_NS);
            flow.feed(&first);
            flow.cc.word[0] = alpha_q20;
            let (before, alpha) = (f64::from(flow.cc.cwnd), flow.cc.alpha());
            let mut ack = flow.ack(RTT_NS);
            ack.marked = MSS;
            flow.feed(&ack);
            let beta = f64::from(beta_q10) / 1024.0;
            let expected = before * (1.0 - (alpha - alpha * beta / 2.0));
            let error = (f64::from(flow.cc.cwnd) - expected).abs();
            assert!(
                error <= 2.0,
                "beta {beta}, alpha {alpha}: off by {error} bytes"
            );
        }
    }
}

#[test]
fn dctcp_priority_weighs_the_growth() {
    for (beta_q10, segments) in [(1024, 64.0), (768, 48.0), (256, 16.0), (0, 8.0)] {
        let mut flow = dctcp_of_priority(beta_q10);
        flow.rounds(64, RTT_NS);
        let grown = flow.segments() - 1000.0;
        assert!((grown - segments).abs() <= 2.0, "{beta_q10}: {grown}");
        // The published rule scales the cut alone.
        let mut published = dctcp_of_priority(beta_q10);
        published.params.flags = RULE_CUT_ONLY;
        published.rounds(64, RTT_NS);
        let grown = published.segments() - 1000.0;
        assert!((grown - 64.0).abs() <= 2.0, "{beta_q10}: {grown}");
    }
}

#[test]
fn dctcp_cuts_at_most_once_a_window() {
    let mut flow = Flow::steady(Algorithm::Dctcp, params(), 100);
    let first = flow.ack(RTT_NS);
    flow.feed(&first);
    flow.cc.word[0] = u64::from(sluicegate_core::abi::ONE_Q20 / 10);
    let before = flow.segments();
    for _ in 0..90 {
        let mut ack = flow.ack(RTT_NS);
        ack.marked = MSS;
        flow.feed(&ack);
    }
    assert!(
        (flow.segments() / before - 0.95).abs() < 0.001,
        "{}",
        flow.segments()
    );
}

#[test]
fn dcvegas_ends_slow_start_with_the_first_late_ack_and_settles_at_k() {
    let k_bytes = 6 * MSS;
    let mut flow = Flow::new(
        Algorithm::Dcvegas,
        Params {
            k_bytes,
            ..params()
        },
    );
    let (base_ns, rate_bps) = (200_000, 1e9);
    let bdp = rate_bps * f64::from(base_ns) / 8e9;
    for _ in 0..200 {
        flow.queued_round(base_ns, rate_bps);
    }
    assert!(flow.cc.ssthresh < SSTHRESH_UNKNOWN);
    let mut largest: f64 = 0.0;
    for _ in 0..200 {
        flow.queued_round(base_ns, rate_bps);
        let queue = f64::from(flow.cc.cwnd) - bdp;
        largest = largest.max(queue);
        assert!(queue > -0.5 * bdp, "{queue}: the link ran dry");
    }
    let k = f64::from(k_bytes);
    assert!(
        largest > k && largest < k + 3.0 * f64::from(MSS),
        "{largest}"
    );
}

#[test]
fn dcvegas_counts_its_threshold_in_segments_of_the_flow() {
    let six = Params {
        k_segments: 6,
        ..params()
    };
    // Half of the RTT is queue, so half of the window.
    for (mss, segments, late) in [
        (1448, 12, false),
        (1448, 13, true),
        (8948, 12, false),
        (8948, 13, true),
    ] {
        let mut flow = Flow::new(Algorithm::Dcvegas, six);
        flow.cc.mss = mss;
        flow.cc.cwnd = segments * mss;
        flow.min_rtt_ns = 100_000;
        let ack = flow.ack(200_000);
        flow.feed(&ack);
        let ended = flow.cc.ssthresh < SSTHRESH_UNKNOWN;
        assert_eq!(ended, late, "{segments} segments of {mss} bytes");
    }
    // Bytes come first, and a delay last.
    for (k_bytes, k_delay_ns, late) in [(3 * MSS, 0, true), (0, 1, false)] {
        let params = Params {
            k_bytes,
            k_delay_ns,
            ..six
        };
        let mut flow = Flow::new(Algorithm::Dcvegas, params);
        flow.min_rtt_ns = 100_000;
        let ack = flow.ack(200_000);
        flow.feed(&ack);
        assert_eq!(flow.cc.ssthresh < SSTHRESH_UNKNOWN, late);
    }
}

#[test]
fn dcvegas_takes_its_threshold_as_a_delay() {
    let delayed = Params {
        k_delay_ns: 50_000,
        ..params()
    };
    let mut flow = Flow::steady(Algorithm::Dcvegas, delayed, 20);
    flow.rounds(3, 100_000);
    let grown = flow.cc.cwnd;
    assert!(grown > 20 * MSS);
    flow.rounds(3, 149_000);
    assert!(flow.cc.cwnd > grown, "49 us are not above 50 us");
    let before = flow.cc.cwnd;
    flow.rounds(2, 152_000);
    assert!(flow.cc.cwnd < before);
}

#[test]
fn dcvegas_without_rtt_samples_grows_as_reno() {
    let mut flow = Flow::steady(Algorithm::Dcvegas, params(), 20);
    flow.rounds(10, 0);
    assert!((flow.segments() - 30.0).abs() <= 1.0, "{}", flow.segments());
    assert_eq!(flow.cc.alpha(), 1.0);
}
