use proptest::prelude::*;

use super::*;

const LINE_BPS: u64 = 10_000_000_000;
const FRAME: u32 = 1_500;

fn thesis() -> QcnParams {
    QcnParams::thesis(20_000)
}

/// Ends a cycle of the byte counter, however long it was drawn.
fn byte_cycle(point: &mut ReactionPoint, params: &QcnParams) -> u64 {
    point.sent(params, u32::MAX);
    point.rate_bps()
}

/// Ends a cycle of the timer.
fn time_cycle(point: &mut ReactionPoint, params: &QcnParams) {
    let at_ps = point.next_timer_ps();
    point.timer(params, at_ps);
}

#[test]
fn the_timer_runs_while_nothing_is_sent() {
    let params = thesis();
    let slowed = || {
        let mut point = ReactionPoint::new(&params, LINE_BPS, 0, 7);
        (0..5).for_each(|_| point.notified(&params, 63, 0));
        point
    };
    let (mut watched, mut left_alone) = (slowed(), slowed());
    let later_ps = 200_000_000_000;
    while watched.next_timer_ps() <= later_ps {
        time_cycle(&mut watched, &params);
    }
    left_alone.timer(&params, later_ps);
    assert_eq!(left_alone.rate_bps(), watched.rate_bps());
    assert!(left_alone.rate_bps() > slowed().rate_bps());
    // A notification then cuts the rate that has been regained so far.
    let mut notified = slowed();
    notified.notified(&params, 1, later_ps);
    assert!(notified.rate_bps() > left_alone.rate_bps() / 10 * 9);
}

#[test]
fn feedback_is_quantised_to_six_bits_of_five_set_points() {
    let params = thesis();
    for (q_off, q_delta, fb) in [
        (0, 0, 0),
        (-20_000, 1_000, 0),
        // 1 588 of 100 000 are just more than a 63rd.
        (1_587, 0, 0),
        (1_588, 0, 1),
        // 10 000 + 2 · 10 000 = 30 %, of 63.
        (10_000, 10_000, 18),
        (-10_000, 20_000, 18),
        (20_000, 40_000, 63),
        (99_999, 0, 62),
        (100_000, 0, 63),
        (i64::MAX, i64::MAX, 63),
        (i64::MAX, i64::MIN, 0),
    ] {
        assert_eq!(quantised(&params, q_off, q_delta), fb, "{q_off} {q_delta}");
    }
}

#[test]
fn a_notification_has_the_raw_values_in_units_of_64_bytes() {
    assert_eq!(units(6_400), 100);
    assert_eq!(units(-6_464), -101);
    assert_eq!(units(i64::MAX), i16::MAX);
    assert_eq!(units(i64::MIN), i16::MIN);
}

#[test]
fn samples_are_taken_ten_times_as_often_at_most() {
    let params = thesis();
    let mut random = 3;
    for (fb, mean) in [(0, 150_000), (7, 75_000), (63, 15_000)] {
        assert_eq!(interval_bytes(&params, fb), mean, "{fb}");
        let drawn: Vec<u64> = (0..20_000).map(|_| about(mean, &mut random)).collect();
        let found = drawn.iter().sum::<u64>() / 20_000;
        assert!(found.abs_diff(mean) < mean / 200, "{fb}: {found}");
        let spread = [drawn.iter().min().unwrap(), drawn.iter().max().unwrap()];
        assert!(spread[0].abs_diff(mean * 85 / 100) < mean / 100);
        assert!(spread[1].abs_diff(mean * 115 / 100) < mean / 100);
    }
}

/// 802.1Q: eight steps, by the three highest bits of |Fb|.
#[test]
fn the_standard_divides_the_interval_by_one_to_eight() {
    let params = QcnParams::standard();
    for (fb, bytes) in [
        (0, 150_000),
        (7, 150_000),
        (8, 75_000),
        (16, 50_000),
        (31, 37_500),
        (32, 30_000),
        (47, 25_000),
        (48, 21_428),
        (56, 18_750),
        (63, 18_750),
    ] {
        assert_eq!(interval_bytes(&params, fb), bytes, "{fb}");
    }
}

#[test]
fn a_congestion_point_samples_a_frame_in_a_hundred_or_in_ten() {
    for (queue, frames, fb) in [(20_000, 100, None), (1_000_000, 10, Some(63))] {
        let params = thesis();
        let mut point = CongestionPoint {
            left: 1,
            queue_old: queue,
        };
        let mut random = 1;
        let mut last = 0;
        let samples: Vec<usize> = (0..100_000)
            .filter(|_| {
                let before = point.left;
                let said = point.arrival(&params, || queue.into(), FRAME, &mut random);
                assert!(said.is_none() || said.map(|said| said.fb) == fb);
                last += usize::from(said.is_some());
                point.left > before || said.is_some()
            })
            .collect();
        let between = 100_000 / samples.len();
        assert!(between.abs_diff(frames) <= frames / 20 + 1, "{between}");
        assert_eq!(last, if fb.is_some() { samples.len() } else { 0 });
    }
}

#[test]
fn a_sample_measures_growth_since_the_one_before() {
    let params = thesis();
    let mut point = CongestionPoint {
        left: 1,
        queue_old: 23_200,
    };
    let mut random = 1;
    let said = point.arrival(&params, || 26_400, FRAME, &mut random);
    // 6 400 + 2 · 3 200 = 12.8 %.
    let expected = Feedback {
        fb: 8,
        q_off: 100,
        q_delta: 50,
    };
    assert_eq!(said, Some(expected));
    assert_eq!(point.queue_old, 26_400);
}

#[test]
fn five_cycles_halve_the_way_back_and_then_the_target_grows() {
    let params = thesis();
    let mut point = ReactionPoint::new(&params, LINE_BPS, 0, 1);
    assert!(point.is_done());
    point.notified(&params, 32, 0);
    assert_eq!(point.rate_bps(), 7_500_000_000);
    let rates: Vec<u64> = (0..8).map(|_| byte_cycle(&mut point, &params)).collect();
    let expected = [
        8_750_000_000,
        9_375_000_000,
        9_687_500_000,
        9_843_750_000,
        9_921_875_000,
        // Towards 10.005, 10.010 and 10.015 Gb/s; the line ends it.
        9_963_437_500,
        9_986_718_750,
        LINE_BPS,
    ];
    assert_eq!(rates, expected);
    assert!(point.is_done());
    assert_eq!(point.next_timer_ps(), u64::MAX);
}

#[test]
fn increase_is_hyper_active_once_both_counters_are_through_recovery() {
    let params = QcnParams {
        gain: 1.0 / 126.0,
        extra_fast_recovery: false,
        ..thesis()
    };
    let mut point = ReactionPoint::new(&params, LINE_BPS, 0, 1);
    for rate_bps in [5_000_000_000, 2_500_000_000, 1_250_000_000] {
        point.notified(&params, 63, 0);
        assert_eq!(point.rate_bps(), rate_bps);
    }
    for _ in 0..5 {
        byte_cycle(&mut point, &params);
        time_cycle(&mut point, &params);
    }
    assert_eq!(point.target_bps, 2_500_000_000);
    byte_cycle(&mut point, &params);
    assert_eq!(point.target_bps, 2_505_000_000);
    for target_bps in [2_555_000_000, 2_605_000_000, 2_705_000_000] {
        match point.byte_stage > point.time_stage {
            true => time_cycle(&mut point, &params),
            false => _ = byte_cycle(&mut point, &params),
        }
        assert_eq!(point.target_bps, target_bps);
    }
}

#[test]
fn extra_fast_recovery_keeps_the_target_through_the_first_cycle() {
    for (extra, target_bps) in [(true, LINE_BPS), (false, 7_500_000_000)] {
        let params = QcnParams {
            extra_fast_recovery: extra,
            ..thesis()
        };
        let mut point = ReactionPoint::new(&params, LINE_BPS, 0, 1);
        point.notified(&params, 32, 0);
        point.notified(&params, 32, 0);
        assert_eq!(point.rate_bps(), 5_625_000_000);
        assert_eq!(point.target_bps, target_bps);
        let rate_bps = byte_cycle(&mut point, &params);
        point.notified(&params, 1, 0);
        assert_eq!(point.target_bps, rate_bps);
    }
}

#[test]
fn a_target_far_above_the_rate_is_given_up() {
    let params = thesis();
    let mut point = ReactionPoint::new(&params, LINE_BPS, 0, 1);
    for _ in 0..3 {
        point.notified(&params, 63, 0);
    }
    // Three times about halved: still within ten times.
    byte_cycle(&mut point, &params);
    assert_eq!(point.target_bps, LINE_BPS);
    let mut point = ReactionPoint::new(&params, LINE_BPS, 0, 1);
    for _ in 0..8 {
        point.notified(&params, 63, 0);
    }
    byte_cycle(&mut point, &params);
    assert_eq!(point.target_bps, LINE_BPS / 8);
}

#[test]
fn cycles_are_half_as_long_after_recovery() {
    let params = thesis();
    let mut point = ReactionPoint::new(&params, LINE_BPS, 0, 9);
    // So low that recovery does not reach the line.
    let low = QcnParams {
        extra_fast_recovery: false,
        ..params
    };
    for _ in 0..10 {
        point.notified(&low, 63, 0);
    }
    let mut now_ps = 0;
    for stage in 0..8 {
        let due_ps = point.next_timer_ps() - now_ps;
        let mean_ps = [15_000_000_000, 7_500_000_000][usize::from(stage >= 5)];
        assert!(due_ps.abs_diff(mean_ps) <= mean_ps * 15 / 100, "{due_ps}");
        now_ps += due_ps;
        point.timer(&params, now_ps - 1);
        assert_eq!(point.time_stage, stage);
        point.timer(&params, now_ps);
        assert_eq!(point.time_stage, stage + 1);
    }
}

/// Sources that always have frames share a link: bytes of each and the queue, after the first tenth
/// of the time.
struct Loop {
    bytes: Vec<u64>,
    mean_queue: u64,
}

fn run(sources: u64, params: &QcnParams, slots: u64) -> Loop {
    // A slot is the time of one frame.
    let slot_ps = 1_200_000;
    let slot = u128::from(FRAME) * u128::from(LINE_BPS);
    let mut points: Vec<ReactionPoint> = (0..sources)
        .map(|seed| ReactionPoint::new(params, LINE_BPS, 0, seed))
        .collect();
    let mut credit = vec![0u128; points.len()];
    let mut bytes = vec![0; points.len()];
    let (mut queue, mut sum, mut random) = (0u64, 0u128, 7);
    let mut sensor = CongestionPoint::new();
    for now in 0..slots {
        let now_ps = now * slot_ps;
        for (at, point) in points.iter_mut().enumerate() {
            point.timer(params, now_ps);
            credit[at] += u128::from(FRAME) * u128::from(point.rate_bps());
            if credit[at] < slot {
                continue;
            }
            credit[at] -= slot;
            queue += u64::from(FRAME);
            point.sent(params, FRAME);
            if let Some(said) = sensor.arrival(params, || queue, FRAME, &mut random) {
                point.notified(params, said.fb, now_ps);
            }
            bytes[at] += u64::from(FRAME) * u64::from(now >= slots / 10);
        }
        queue = queue.saturating_sub(FRAME.into());
        sum += u128::from(queue) * u128::from(now >= slots / 10);
    }
    let counted = u128::from(slots - slots / 10);
    Loop {
        bytes,
        mean_queue: (sum / counted) as u64,
    }
}

#[test]
fn sources_share_a_link_and_the_queue_stays_near_the_set_point() {
    let slots = 1_000_000;
    for sources in [2, 4, 8] {
        let params = QcnParams::thesis(66_000);
        let found = run(sources, &params, slots);
        let total: u64 = found.bytes.iter().sum();
        let link = (slots - slots / 10) * u64::from(FRAME);
        assert!(total.abs_diff(link) < link / 100, "{sources}: {total}");
        let away = found.mean_queue.abs_diff(params.set_point_bytes);
        assert!(away < 6_600, "{sources}: {}", found.mean_queue);
        // They share it, though not fairly: only those are slowed whose frames are sampled.
        let least = found.bytes.iter().min().unwrap();
        assert!(*least > total / sources / 4, "{sources}: {:?}", found.bytes);
    }
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Notified(u8),
    Sent(u32),
    Timer(u64),
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        any::<u8>().prop_map(Call::Notified),
        any::<u32>().prop_map(Call::Sent),
        (0..40_000_000_000u64).prop_map(Call::Timer),
    ]
}

proptest! {
    #[test]
    fn a_rate_is_between_the_least_and_the_line(
        calls in prop::collection::vec(call(), 0..200),
        line_bps in 1_000_000..400_000_000_000u64,
        min_rate_bps in 0..1_000_000u64,
        gain in 0.0..1.0f64,
        min_decrease in 0.0..1.0f64,
        extra_fast_recovery: bool,
        seed: u64,
    ) {
        let params = QcnParams { min_rate_bps, gain, min_decrease, extra_fast_recovery, ..thesis() };
        let mut point = ReactionPoint::new(&params, line_bps, 0, seed);
        let mut now_ps = 0;
        for call in calls {
            let before = point.rate_bps();
            match call {
                Call::Notified(fb) => {
                    point.notified(&params, fb, now_ps);
                    prop_assert!(point.rate_bps() <= before);
                }
                Call::Sent(bytes) => point.sent(&params, bytes),
                Call::Timer(after_ps) => {
                    now_ps += after_ps;
                    point.timer(&params, now_ps);
                }
            }
            prop_assert!((min_rate_bps..=line_bps).contains(&point.rate_bps()));
            prop_assert_eq!(point.is_done(), point.next_timer_ps() == u64::MAX);
        }
    }

    #[test]
    fn a_source_that_is_left_alone_gets_its_line_back(fbs in prop::collection::vec(1..=63u8, 1..40), seed: u64) {
        let params = thesis();
        let mut point = ReactionPoint::new(&params, LINE_BPS, 0, seed);
        for fb in fbs {
            point.notified(&params, fb, 0);
        }
        prop_assert!(!point.is_done());
        let mut cycles = 0;
        while !point.is_done() {
            byte_cycle(&mut point, &params);
            time_cycle(&mut point, &params);
            cycles += 1;
            prop_assert!(cycles < 100);
        }
    }

    #[test]
    fn whatever_the_queue_says_feedback_has_six_bits(
        queues in prop::collection::vec((any::<u64>(), any::<u32>()), 0..100),
        set_point_bytes: u64,
        weight in 0.0..1e9f64,
        interval_bytes: u64,
        seed: u64,
    ) {
        let params = QcnParams { set_point_bytes, weight, interval_bytes, ..thesis() };
        let mut point = CongestionPoint::new();
        let mut random = seed;
        for (queue, bytes) in queues {
            if let Some(said) = point.arrival(&params, || queue, bytes, &mut random) {
                prop_assert!((1..=MAX_FEEDBACK).contains(&said.fb));
            }
        }
    }
}
