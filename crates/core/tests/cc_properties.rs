//! Properties of every algorithm, with any parameters and any sequence of events.

use proptest::prelude::*;
use sluicegate_core::{
    abi::Params,
    cc::{Ack, Algorithm, Cc},
};

use crate::common;

/// A number of any magnitude, with the edges likely.
fn any_size() -> impl Strategy<Value = u32> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(u32::MAX),
        1_u32..100_000,
        any::<u32>(),
    ]
}

prop_compose! {
    fn any_params()(
        small in any::<[u8; 8]>(),
        beta_q10 in any_size(),
        window_cap in any_size(),
        fixed_bytes in any_size(),
        k_bytes in any_size(),
        k_delay_ns in any_size(),
        swift_delays in prop::array::uniform2(any_size()),
        swift_parts in any::<[u16; 3]>(),
        cubic_keep_q10 in prop_oneof![Just(0), any::<u16>()],
    ) -> Params {
        Params {
            floor_mss: small[0],
            init_segments: small[1],
            g_shift: small[2],
            vegas_alpha: small[3],
            vegas_beta: small[4],
            k_segments: small[5],
            flags: small[6],
            beta_q10,
            window_cap,
            fixed_bytes,
            k_bytes,
            k_delay_ns,
            swift_target_ns: swift_delays[0],
            swift_range_ns: swift_delays[1],
            swift_ai_q10: swift_parts[0],
            swift_beta_q10: swift_parts[1],
            swift_mdf_q10: swift_parts[2],
            cubic_keep_q10,
            ..Params::default()
        }
    }
}

prop_compose! {
    fn any_ack()(
        now_ns in any::<u64>(),
        sizes in prop::array::uniform9(any_size()),
        window_used in 0_u8..2,
        in_recovery in 0_u8..2,
        on_path in 0_u8..2,
    ) -> Ack {
        let [acked, marked, rtt_ns, min_rtt_ns, snd_una, snd_nxt, flight, path_acked, path_marked] = sizes;
        Ack {
            now_ns, acked, marked, rtt_ns, min_rtt_ns, snd_una, snd_nxt, flight,
            window_used, in_recovery, on_path, pad: 0, path_acked, path_marked,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Ack(Ack),
    Loss(Ack),
    Timeout(Ack),
    Idle,
}

impl Event {
    fn happen(self, cc: &mut Cc, params: &Params, algorithm: Algorithm) {
        match self {
            Self::Ack(ack) => cc.on_ack(params, algorithm, &ack),
            Self::Loss(state) => cc.on_loss(params, algorithm, &state),
            Self::Timeout(state) => cc.on_timeout(params, algorithm, &state),
            Self::Idle => cc.on_idle(params),
        }
    }
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => any_ack().prop_map(Event::Ack),
        1 => any_ack().prop_map(Event::Loss),
        1 => any_ack().prop_map(Event::Timeout),
        1 => Just(Event::Idle),
    ]
}

fn any_algorithm() -> impl Strategy<Value = Algorithm> {
    prop::sample::select(&Algorithm::ALL[..])
}

/// The bounds that cc_state.h documents, computed apart from it.
fn bounds(cc: &Cc, params: &Params) -> (u32, u32) {
    let floor = if params.floor_mss < 2 {
        cc.mss + 64
    } else {
        2 * cc.mss
    };
    (floor, params.window_cap.max(floor))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_window_stays_between_floor_and_cap(
        params in any_params(),
        algorithm in any_algorithm(),
        mss in any_size(),
        events in prop::collection::vec(any_event(), 1..200),
    ) {
        let mut cc = Cc::new(&params, algorithm, mss);
        let (floor, cap) = bounds(&cc, &params);
        prop_assert!(cc.cwnd >= floor && cc.cwnd <= cap);
        for event in events {
            event.happen(&mut cc, &params, algorithm);
            prop_assert!(cc.cwnd >= floor && cc.cwnd <= cap, "{:?} left {}", event, cc.cwnd);
        }
    }

    #[test]
    fn a_loss_a_timeout_or_idleness_never_enlarges_the_window(
        params in any_params(),
        algorithm in any_algorithm(),
        mss in 1_u32..65_536,
        events in prop::collection::vec(any_event(), 1..100),
    ) {
        // `fixed` restores its constant with the first ACK after idleness.
        prop_assume!(algorithm != Algorithm::Fixed);
        let mut cc = Cc::new(&params, algorithm, mss);
        for event in events {
            let before = cc.cwnd;
            event.happen(&mut cc, &params, algorithm);
            let earned = matches!(event, Event::Ack(ack) if ack.window_used == 1 && ack.in_recovery == 0);
            prop_assert!(earned || cc.cwnd <= before, "{:?} enlarged {} to {}", event, before, cc.cwnd);
        }
    }

    #[test]
    fn alpha_is_a_fraction(
        params in any_params(),
        events in prop::collection::vec(any_event(), 1..200),
        delay in any::<bool>(),
    ) {
        let algorithm = if delay { Algorithm::Dcvegas } else { Algorithm::Dctcp };
        let mut cc = Cc::new(&params, algorithm, 1448);
        for event in events {
            event.happen(&mut cc, &params, algorithm);
            prop_assert!((0.0..=1.0).contains(&cc.alpha()), "{}", cc.alpha());
        }
    }

    #[test]
    fn a_lower_priority_never_keeps_more(
        alpha_q20 in 0_u64..=(1 << 20),
        segments in 4_u32..5_000,
        betas in (0_u32..=1024, 0_u32..=1024),
    ) {
        let kept = |beta_q10| {
            let params = Params { beta_q10, ..common::params() };
            let mut flow = common::Flow::steady(Algorithm::Dctcp, params, segments);
            let first = flow.ack(100_000);
            flow.feed(&first);
            flow.cc.word[0] = alpha_q20;
            let mut ack = flow.ack(100_000);
            ack.marked = ack.acked;
            flow.feed(&ack);
            flow.cc.cwnd
        };
        prop_assert!(kept(betas.0.min(betas.1)) <= kept(betas.0.max(betas.1)));
    }
}
