use proptest::prelude::*;

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

/// The rate of a path's limiter; `None` without one.
fn rate_bps(paths: &Paths, value: u32) -> Option<u64> {
    let mut limiters = paths.limiters();
    let found = limiters.find(|(path, _)| *path == value);
    found.map(|(_, limiter)| limiter.rate_bps())
}

#[test]
fn r3c2_limits_a_path_that_is_not_in_use() {
    let (routing, params) = (routing(true, true), params());
    let mut paths = paths(&routing);
    paths.notified(&routing, &params, (7, 20), 0);
    assert_eq!(paths.in_use().collect::<Vec<_>>(), [7, 8]);
    let added = paths.notified(&routing, &params, (9, 63), 0);
    assert!(!added, "path 8 is in use and not limited");
    assert_eq!(paths.in_use().count(), 2);
    let once_bps = rate_bps(&paths, 9).expect("it is limited");
    for _ in 0..2 {
        paths.notified(&routing, &params, (9, 63), 0);
    }
    assert!(rate_bps(&paths, 9) < Some(3 * once_bps / 10));
    assert_eq!(rate_bps(&paths, 8), None);
    paths.notified(&routing, &params, (11, 63), 0);
    assert_eq!(rate_bps(&paths, 11), None, "no such path is available");
    // It comes with its limiter, so that all in use are limited still.
    let slow_bps = rate_bps(&paths, 9);
    for (used, added) in [(vec![7, 8, 9], true), (vec![7, 8, 9, 10], true)] {
        assert_eq!(paths.notified(&routing, &params, (8, 5), 0), added);
        assert_eq!(paths.in_use().collect::<Vec<_>>(), used);
        assert_eq!(rate_bps(&paths, 9), slow_bps);
    }
    let counts = send(&mut paths, 0, MS);
    let share = |path: u32| counts.iter().find(|(own, _)| *own == path).unwrap().1;
    assert!(share(9) < 2 * share(7) / 3, "{counts:?}");
}

#[test]
fn r3c2_keeps_the_limiter_of_a_path_that_it_gives_up_until_it_has_recovered() {
    let (routing, params) = (routing(true, true), params());
    let mut paths = Paths::new(&routing, vec![7, 8], (LINE_BPS, 1), 0);
    for (path, fb) in [(7, 10), (8, 63), (8, 63), (8, 63)] {
        paths.notified(&routing, &params, (path, fb), 0);
    }
    let before_bps = rate_bps(&paths, 8).unwrap();
    let at_ps = paths.arm().unwrap();
    paths.timer(&params, at_ps);
    assert_eq!(paths.in_use().collect::<Vec<_>>(), [7]);
    let kept_bps = rate_bps(&paths, 8).expect("a limiter belongs to an available path");
    assert!((before_bps..LINE_BPS / 2).contains(&kept_bps), "{kept_bps}");
    // Meanwhile it goes on recovering by its timer.
    let at_ps = paths.arm().unwrap();
    paths.timer(&params, at_ps);
    let later_bps = rate_bps(&paths, 8).unwrap();
    assert!(later_bps > kept_bps);
    paths.notified(&routing, &params, (7, 63), at_ps);
    assert_eq!(paths.in_use().collect::<Vec<_>>(), [7, 8]);
    assert_eq!(
        rate_bps(&paths, 8),
        Some(later_bps),
        "it comes with its limiter"
    );
    // Given up for good: the limiter's memory is free when it has recovered.
    let (mut kept, mut last_bps) = (0, 0);
    while !paths.is_done() {
        let at_ps = paths.arm().unwrap();
        paths.timer(&params, at_ps);
        let Some(bps) = rate_bps(&paths, 8) else {
            continue;
        };
        assert!(bps >= last_bps && bps < LINE_BPS);
        (kept, last_bps) = (kept + 1, bps);
        assert!(kept < 2_000);
    }
    assert!(kept > 4, "{kept}");
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

#[test]
fn new_routes_end_paths_and_keep_the_limiters_of_those_that_stay() {
    let (routing, params) = (routing(true, true), params());
    let mut paths = paths(&routing);
    for path in [7, 8, 9, 10] {
        paths.notified(&routing, &params, (path, 63), 0);
    }
    let slow_bps = rate_bps(&paths, 9);
    assert!(slow_bps.is_some());
    paths.reroute(&[7, 9]);
    paths.audit().unwrap();
    assert_eq!(paths.in_use().collect::<Vec<_>>(), [7, 9]);
    assert_eq!(rate_bps(&paths, 9), slow_bps);
    assert_eq!(rate_bps(&paths, 10), None, "it is no path any more");
    let counts = send(&mut paths, 0, MS);
    assert!(counts.iter().all(|&(_, frames)| frames > 0), "{counts:?}");
    // The link works again: its paths come back without limiters.
    paths.reroute(&[7, 8, 9, 10]);
    paths.audit().unwrap();
    assert_eq!(paths.in_use().collect::<Vec<_>>(), [7, 9]);
    assert!(paths.notified(&routing, &params, (7, 5), MS));
    assert_eq!(paths.in_use().collect::<Vec<_>>(), [7, 9, 8]);
    assert_eq!(rate_bps(&paths, 8), None);
}

/// Algorithm 2.2 word for word: a limiter, perhaps null, for each available path, and nothing
/// remembered of when it lets frames go.
struct Printed {
    limiters: Vec<(u32, Pace, Option<ReactionPoint>)>,
    used: Vec<u32>,
    unused: VecDeque<u32>,
    random: u64,
    turn: usize,
}

impl Printed {
    fn new(values: &[u32], seed: u64) -> Self {
        let limiters = values.iter().map(|&value| (value, Pace::default(), None));
        Self {
            limiters: limiters.collect(),
            used: vec![values[0]],
            unused: values[1..].iter().copied().collect(),
            random: seed,
            turn: 0,
        }
    }

    /// When a path lets a frame go; a limiter at the line's rate is null.
    fn next_ps(&mut self, value: u32, now_ps: u64) -> u64 {
        let limiters = self.limiters.iter_mut();
        let (_, pace, limiter) = limiters.into_iter().find(|own| own.0 == value).unwrap();
        let next_ps = limiter.as_mut();
        let next_ps = next_ps.and_then(|limiter| pace.next_ps(limiter, &params(), now_ps));
        if next_ps.is_none() {
            *limiter = None;
        }
        next_ps.unwrap_or(0)
    }

    fn is_limited(&mut self, value: u32, now_ps: u64) -> bool {
        self.next_ps(value, now_ps);
        let mut limiters = self.limiters.iter();
        limiters.any(|(own, _, limiter)| *own == value && limiter.is_some())
    }

    fn notified(&mut self, (value, fb): (u32, u8), now_ps: u64) {
        let seed = draw(&mut self.random);
        self.rates(now_ps);
        if let Some(own) = self.limiters.iter_mut().find(|own| own.0 == value) {
            let new = || ReactionPoint::new(&params(), LINE_BPS, now_ps, seed);
            own.2
                .get_or_insert_with(new)
                .notified(&params(), fb, now_ps);
        }
        let used = self.used.clone();
        if used.into_iter().all(|value| self.is_limited(value, now_ps)) {
            self.used.extend(self.unused.pop_front());
        }
    }

    fn take(&mut self, now_ps: u64) -> u32 {
        let count = self.used.len();
        let mut in_turn = (0..count)
            .map(|at| (self.turn + at) % count)
            .collect::<Vec<_>>();
        in_turn.retain(|&at| self.next_ps(self.used[at], now_ps) <= now_ps);
        self.turn = (in_turn[0] + 1) % count;
        let value = self.used[in_turn[0]];
        let own = self.limiters.iter_mut().find(|own| own.0 == value).unwrap();
        own.1 = Pace::of(BYTES, now_ps);
        if let Some(limiter) = &mut own.2 {
            limiter.sent(&params(), BYTES);
        }
        value
    }

    /// The slowest path is given up, of equal ones the newest.
    fn reduce(&mut self, now_ps: u64) {
        let mut slowest: Option<(u64, usize)> = None;
        for at in 1..self.used.len() {
            let value = self.used[at];
            self.next_ps(value, now_ps);
            let own = self.limiters.iter().find(|own| own.0 == value).unwrap();
            let bps = own.2.map_or(u64::MAX, |limiter| limiter.rate_bps());
            if slowest.is_none_or(|(least_bps, _)| bps <= least_bps) {
                slowest = Some((bps, at));
            }
        }
        if let Some((_, at)) = slowest {
            let value = self.used.remove(at);
            self.unused.push_back(value);
        }
        self.turn %= self.used.len();
    }

    fn rates(&mut self, now_ps: u64) -> Vec<(u32, u64)> {
        for value in self.used.clone().into_iter().chain(self.unused.clone()) {
            self.next_ps(value, now_ps);
        }
        let limiters = self.limiters.iter();
        let rates =
            limiters.filter_map(|(value, _, limiter)| Some((*value, (*limiter)?.rate_bps())));
        rates.collect()
    }
}

/// The rates of limiters that have not recovered by now, by path.
fn rates_at(paths: &Paths, now_ps: u64) -> Vec<(u32, u64)> {
    let limiters = paths.limiters().map(|(value, mut limiter)| {
        limiter.timer(&params(), now_ps);
        (value, limiter.rate_bps())
    });
    let mut rates: Vec<_> = limiters.filter(|(_, bps)| *bps < LINE_BPS).collect();
    rates.sort_unstable();
    rates
}

/// The timers that are due by now.
fn expire(paths: &mut Paths, printed: &mut Printed, now_ps: u64) {
    while paths.arm().unwrap_or(paths.armed_ps) <= now_ps {
        let (at_ps, expires) = (paths.armed_ps, paths.expires_ps <= paths.armed_ps);
        paths.timer(&params(), at_ps);
        if expires {
            printed.reduce(at_ps);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// What happens: so many frames are sent as early as they may, a notification comes, or
    /// nothing for some time.
    #[test]
    fn r3c2_is_the_printed_algorithm(
        count in 1u32..8,
        seed in any::<u64>(),
        what in prop::collection::vec((0u32..80, 0u32..9, 1u8..64, 0u64..30_000_000_000), 1..60),
    ) {
        let (routing, params) = (routing(true, true), params());
        let values: Vec<u32> = (7..7 + count).collect();
        let mut paths = Paths::new(&routing, values.clone(), (LINE_BPS, seed), 0);
        let mut printed = Printed::new(&values, seed);
        let mut now_ps = 0;
        for (frames, path, fb, idle_ps) in what {
            for _ in 0..frames {
                expire(&mut paths, &mut printed, now_ps);
                let next_ps = paths.next_ps(&params, now_ps);
                let used = printed.used.clone();
                let printed_ps = used.into_iter().map(|value| printed.next_ps(value, now_ps)).min();
                prop_assert_eq!(Some(next_ps), printed_ps);
                if next_ps > now_ps {
                    now_ps = next_ps;
                    continue;
                }
                prop_assert_eq!(paths.take(&params, BYTES, now_ps), printed.take(now_ps));
                now_ps += FRAME_PS;
            }
            // Seldom longer than the timer's period.
            now_ps += if fb > 48 { idle_ps } else { idle_ps / 1_000 };
            expire(&mut paths, &mut printed, now_ps);
            paths.notified(&routing, &params, (7 + path, fb), now_ps);
            printed.notified((7 + path, fb), now_ps);
            prop_assert_eq!(paths.audit(), Ok(()));
            prop_assert_eq!(paths.in_use().collect::<Vec<_>>(), &printed.used[..]);
            prop_assert_eq!(rates_at(&paths, now_ps), printed.rates(now_ps));
        }
    }
}
