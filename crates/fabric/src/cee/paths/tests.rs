use super::*;
use crate::Graph;

const LINE_BPS: u64 = 10_000_000_000;
const BYTES: u32 = 1_500;
/// Of a frame of `BYTES` on the line.
const FRAME_PS: u64 = 1_200_000;
const MS: u64 = 1_000_000_000;

fn routing(limits_each: bool, has_limiters: bool) -> SourceRouting {
    SourceRouting {
        rules: PathRules::DEFAULT,
        limits_each,
        has_limiters,
        routes: Arc::new(Routes::new(&Graph::new(0, 0))),
    }
}

fn paths(routing: &SourceRouting) -> Paths {
    Paths::new(routing, vec![7, 8, 9, 10], (LINE_BPS, 1), 0)
}

fn params() -> QcnParams {
    QcnParams::thesis(66_000)
}

/// Sends as much as the line and the limiters let pass until a time, and counts frames by path.
fn send(paths: &mut Paths, from_ps: u64, until_ps: u64) -> Vec<(u32, u64)> {
    let (params, mut now_ps) = (params(), from_ps);
    let mut counts: Vec<(u32, u64)> = paths.in_use().map(|value| (value, 0)).collect();
    while now_ps < until_ps {
        match paths.next_ps(&params, now_ps) {
            at_ps if at_ps > now_ps => now_ps = at_ps,
            _ => {
                let value = paths.take(&params, BYTES, now_ps);
                let count = counts.iter_mut().find(|(path, _)| *path == value);
                count.expect("a path in use").1 += 1;
                now_ps += FRAME_PS;
            }
        }
    }
    counts
}

#[test]
fn r2c2_takes_a_path_more_for_each_notification() {
    let (routing, params) = (routing(false, false), params());
    let mut paths = paths(&routing);
    assert_eq!(paths.in_use().collect::<Vec<_>>(), [7]);
    for expected in [&[7, 8][..], &[7, 8, 9], &[7, 8, 9, 10], &[7, 8, 9, 10]] {
        paths.notified(&routing, &params, (7, 40), 0);
        assert_eq!(paths.in_use().collect::<Vec<_>>(), expected);
    }
    assert_eq!(paths.limiters().count(), 0);
    let counts = send(&mut paths, 0, MS);
    let [least, most] = [
        counts.iter().min_by_key(|c| c.1),
        counts.iter().max_by_key(|c| c.1),
    ]
    .map(|count| count.map_or(0, |count| count.1));
    assert!(most - least <= 1 && most > 200, "{counts:?}");
}

#[test]
fn r2c2_uses_fewer_paths_when_the_rate_falls_or_nothing_is_sent() {
    let (routing, params) = (routing(false, false), params());
    let mut paths = paths(&routing);
    for _ in 0..3 {
        paths.notified(&routing, &params, (7, 40), 0);
    }
    let mut used = Vec::new();
    for (period, frames) in [400u64, 500, 300, 300, 0].into_iter().enumerate() {
        for _ in 0..frames {
            paths.take(&params, BYTES, 0);
        }
        let at_ps = paths.arm().expect("no event is set");
        assert_eq!(at_ps, (period as u64 + 1) * PathRules::DEFAULT.timer_ps);
        paths.timer(&params, at_ps);
        used.push(paths.in_use().count());
    }
    assert_eq!(used, [4, 4, 3, 3, 2]);
    assert!(!paths.is_done());
    let at_ps = paths.arm().unwrap();
    paths.timer(&params, at_ps);
    assert!(paths.is_done(), "the memory can be given back");
}

#[test]
fn r2c2_with_limiters_slows_down_only_when_no_path_is_left() {
    let (routing, params) = (routing(false, true), params());
    let mut paths = paths(&routing);
    for _ in 0..3 {
        paths.notified(&routing, &params, (8, 63), 0);
        assert_eq!(paths.limiters().count(), 0);
    }
    paths.notified(&routing, &params, (8, 63), 0);
    let rates: Vec<_> = paths.limiters().map(|(_, l)| l.rate_bps()).collect();
    assert_eq!(rates.len(), 1);
    assert!((5 * LINE_BPS / 10..=52 * LINE_BPS / 100).contains(&rates[0]));
    // Until the byte counter's first cycle ends.
    let sent: u64 = send(&mut paths, 0, MS / 10)
        .iter()
        .map(|count| count.1)
        .sum();
    assert!((41..=44).contains(&sent), "half of a line: {sent}");
}

#[test]
fn r3c2_limits_each_path_and_takes_another_only_when_all_are_limited() {
    let (routing, params) = (routing(true, true), params());
    let mut paths = paths(&routing);
    paths.notified(&routing, &params, (7, 63), 0);
    assert_eq!(paths.in_use().collect::<Vec<_>>(), [7, 8]);
    // Path 8 is not limited.
    paths.notified(&routing, &params, (7, 63), 0);
    assert_eq!(paths.in_use().count(), 2);
    // The notification of a path that is not in use limits none.
    paths.notified(&routing, &params, (10, 63), 0);
    assert_eq!(
        paths.limiters().map(|(path, _)| path).collect::<Vec<_>>(),
        [7]
    );
    paths.notified(&routing, &params, (8, 32), 0);
    assert_eq!(paths.in_use().collect::<Vec<_>>(), [7, 8, 9]);
    let limited: Vec<_> = paths.limiters().collect();
    let rate = |path: u32| {
        limited
            .iter()
            .find(|(own, _)| *own == path)
            .unwrap()
            .1
            .rate_bps()
    };
    assert!(rate(7) < 27 * LINE_BPS / 100, "{}", rate(7));
    assert!(
        (74..=76).contains(&(100 * rate(8) / LINE_BPS)),
        "{}",
        rate(8)
    );
    let counts = send(&mut paths, 0, MS);
    let share = |path: u32| counts.iter().find(|(own, _)| *own == path).unwrap().1;
    assert!((200..240).contains(&share(7)), "{counts:?}");
    let sum: u64 = counts.iter().map(|count| count.1).sum();
    assert!(
        sum > 830,
        "path 9 takes what the others may not: {counts:?}"
    );
}

#[test]
fn r3c2_gives_up_the_slowest_path_a_period_after_the_last_notification() {
    let (routing, params) = (routing(true, true), params());
    let mut paths = paths(&routing);
    for (path, fb) in [(7, 63), (8, 63), (9, 10), (8, 63)] {
        paths.notified(&routing, &params, (path, fb), 10 * MS);
    }
    assert_eq!(paths.in_use().collect::<Vec<_>>(), [7, 8, 9, 10]);
    let period_ps = PathRules::DEFAULT.timer_ps;
    let first_ps = paths.arm().unwrap();
    assert_eq!(first_ps, 10 * MS + period_ps);
    paths.notified(&routing, &params, (7, 5), 12 * MS);
    paths.timer(&params, first_ps);
    assert_eq!(paths.in_use().count(), 4, "a notification came since");
    let at_ps = paths.arm().unwrap();
    assert_eq!(at_ps, 12 * MS + period_ps);
    paths.timer(&params, at_ps);
    assert_eq!(
        paths.in_use().collect::<Vec<_>>(),
        [7, 9, 10],
        "8 was the slowest"
    );
    // In time limiters recover, and only the default path is left.
    for _ in 0..2_000 {
        if paths.is_done() {
            return;
        }
        let at_ps = paths.arm().unwrap();
        paths.timer(&params, at_ps);
    }
    panic!("{:?}", paths.limiters().collect::<Vec<_>>());
}
