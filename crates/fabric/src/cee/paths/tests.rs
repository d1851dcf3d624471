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

/// "When all the paths are exhausted, if necessary, rate control will be activated" (2.4.1).
#[test]
fn r3c2_limits_no_path_before_all_are_in_use_if_asked_to() {
    let (mut routing, params) = (routing(true, true), params());
    routing.rules.limit = LimitPaths::Exhausted;
    let mut paths = paths(&routing);
    for expected in [&[7, 8][..], &[7, 8, 9], &[7, 8, 9, 10]] {
        assert!(paths.notified(&routing, &params, (7, 63), 0));
        assert_eq!(paths.in_use().collect::<Vec<_>>(), expected);
        assert_eq!(paths.limiters().count(), 0);
    }
    for limited in [&[9][..], &[8, 9]] {
        assert!(!paths.notified(&routing, &params, (limited[0], 63), 0));
        let mut own: Vec<_> = paths.limiters().map(|(path, _)| path).collect();
        own.sort_unstable();
        assert_eq!(own, limited);
    }
    // One that is given up comes back before anything is limited.
    let at_ps = paths.arm().unwrap();
    paths.timer(&params, at_ps);
    assert_eq!(paths.in_use().count(), 3);
    let slow_bps = rate_bps(&paths, 8);
    assert!(paths.notified(&routing, &params, (8, 63), at_ps));
    assert_eq!(paths.in_use().count(), 4);
    assert_eq!(rate_bps(&paths, 8), slow_bps);
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

/// Of an available path in [`Printed`].
struct Limiter {
    path: u32,
    /// `RL_i` is not null: in print from the path's first notification on, for ever.
    is_initialized: bool,
    pace: Pace,
    /// `None` also when it has recovered to the line's rate, since it has no effect then.
    point: Option<ReactionPoint>,
}

/// Algorithm 2.2 as printed, and its timer after section 2.4.3 ("a time-out after the last
/// notification received"); nothing in it comes from [`Paths`]. It differs from print in one thing:
/// a path in use whose limiter has recovered counts as not limited. Choices where print is silent:
/// `SelectPath` takes paths in the order of their values, the slowest path is given up, of equal
/// ones the newest, and paths that are ready at the same time take turns.
struct Printed {
    limiters: Vec<Limiter>,
    used: Vec<u32>,
    unused: VecDeque<u32>,
    random: u64,
    turn: usize,
    expires_ps: u64,
}

/// QCN's period, which is this project's choice for `on timer`.
const PERIOD_PS: u64 = 15 * MS;

impl Printed {
    fn new(values: &[u32], seed: u64) -> Self {
        let limiters = values.iter().map(|&path| Limiter {
            path,
            is_initialized: false,
            pace: Pace::default(),
            point: None,
        });
        Self {
            limiters: limiters.collect(),
            used: vec![values[0]],
            unused: values[1..].iter().copied().collect(),
            random: seed,
            turn: 0,
            expires_ps: PERIOD_PS,
        }
    }

    fn limiter(&mut self, path: u32) -> Option<&mut Limiter> {
        self.limiters.iter_mut().find(|own| own.path == path)
    }

    /// When a path lets a frame go.
    fn next_ps(&mut self, path: u32, now_ps: u64) -> u64 {
        let limiter = self.limiter(path).unwrap();
        let pace = limiter.pace;
        let next_ps = limiter.point.as_mut();
        let next_ps = next_ps.and_then(|point| pace.next_ps(point, &params(), now_ps));
        if next_ps.is_none() {
            limiter.point = None;
        }
        next_ps.unwrap_or(0)
    }

    fn is_limited(&mut self, path: u32, now_ps: u64) -> bool {
        self.next_ps(path, now_ps);
        self.limiter(path).unwrap().point.is_some()
    }

    /// `on congestion notification arrival from Path_i`.
    fn notified(&mut self, (path, fb): (u32, u8), now_ps: u64) {
        self.expires_ps = now_ps + PERIOD_PS;
        let seed = draw(&mut self.random);
        self.rates(now_ps);
        if let Some(limiter) = self.limiter(path) {
            let new = || ReactionPoint::new(&params(), LINE_BPS, now_ps, seed);
            limiter.is_initialized = true;
            let point = limiter.point.get_or_insert_with(new);
            point.notified(&params(), fb, now_ps);
        }
        let used = self.used.clone();
        if used.into_iter().all(|path| self.is_limited(path, now_ps)) {
            self.used.extend(self.unused.pop_front());
        }
    }

    /// `on Path_i ready to send`, of the first such path in turn.
    fn take(&mut self, now_ps: u64) -> u32 {
        let count = self.used.len();
        let mut in_turn = (0..count)
            .map(|at| (self.turn + at) % count)
            .collect::<Vec<_>>();
        in_turn.retain(|&at| self.next_ps(self.used[at], now_ps) <= now_ps);
        self.turn = (in_turn[0] + 1) % count;
        let path = self.used[in_turn[0]];
        let limiter = self.limiter(path).unwrap();
        limiter.pace = Pace::of(BYTES, now_ps);
        if let Some(point) = &mut limiter.point {
            point.sent(&params(), BYTES);
        }
        path
    }

    /// `on timer`, as often as it comes until now.
    fn run_timer(&mut self, now_ps: u64) {
        while self.expires_ps <= now_ps {
            let at_ps = self.expires_ps;
            self.expires_ps = at_ps + PERIOD_PS;
            let mut used = self.limiters.iter();
            let is_any_limited =
                used.any(|own| own.is_initialized && self.used.contains(&own.path));
            if self.used.len() > 1 && is_any_limited {
                self.reduce(at_ps);
            }
        }
    }

    /// `reduce number of paths`.
    fn reduce(&mut self, now_ps: u64) {
        let mut slowest: Option<(u64, usize)> = None;
        for at in 1..self.used.len() {
            let path = self.used[at];
            self.next_ps(path, now_ps);
            let point = self.limiter(path).unwrap().point;
            let bps = point.map_or(u64::MAX, |point| point.rate_bps());
            if slowest.is_none_or(|(least_bps, _)| bps <= least_bps) {
                slowest = Some((bps, at));
            }
        }
        if let Some((_, at)) = slowest {
            let path = self.used.remove(at);
            self.unused.push_back(path);
        }
        self.turn %= self.used.len();
    }

    fn rates(&mut self, now_ps: u64) -> Vec<(u32, u64)> {
        for path in self.used.clone().into_iter().chain(self.unused.clone()) {
            self.next_ps(path, now_ps);
        }
        let limiters = self.limiters.iter();
        let rates = limiters.filter_map(|own| Some((own.path, own.point?.rate_bps())));
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

/// Sets the event of the timer when the paths ask for it, and tells them when it is due, as an
/// adapter does.
fn run_timer(paths: &mut Paths, event_ps: &mut Option<u64>, now_ps: u64) {
    loop {
        *event_ps = paths.arm().or(*event_ps);
        match *event_ps {
            Some(at_ps) if at_ps <= now_ps => {
                *event_ps = None;
                paths.timer(&params(), at_ps);
            }
            _ => return,
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
        let (mut now_ps, mut event_ps) = (0, None);
        for (frames, path, fb, idle_ps) in what {
            for _ in 0..frames {
                run_timer(&mut paths, &mut event_ps, now_ps);
                printed.run_timer(now_ps);
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
            run_timer(&mut paths, &mut event_ps, now_ps);
            printed.run_timer(now_ps);
            paths.notified(&routing, &params, (7 + path, fb), now_ps);
            printed.notified((7 + path, fb), now_ps);
            prop_assert_eq!(paths.audit(), Ok(()));
            prop_assert_eq!(paths.in_use().collect::<Vec<_>>(), &printed.used[..]);
            prop_assert_eq!(rates_at(&paths, now_ps), printed.rates(now_ps));
        }
    }
}
