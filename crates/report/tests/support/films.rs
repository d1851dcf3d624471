//! Synthetic films: a saturation tree that grows and dissolves, and one that is all noise.

use sluicegate_scenario::results::{Film, FilmCell, FilmDirection, FilmNode, Results};

use super::Noise;

/// 1 ms from frame to frame.
const INTERVAL_PS: u64 = 1_000_000_000;
const RATE_BPS: u64 = 1_000_000_000;
const LIMIT_BYTES: u64 = 100_000;

/// XGFT(3; m1, m2, m3; 1, m2, m3): hosts in groups of m1, full bisection above.
fn tree(m: [usize; 3]) -> (Vec<FilmNode>, Vec<FilmDirection>) {
    let hosts = m[0] * m[1] * m[2];
    let tier = m[1] * m[2];
    let node = |name: String, is_host| FilmNode { name, is_host };
    let mut nodes: Vec<FilmNode> = (0..hosts).map(|n| node(format!("P{n}"), true)).collect();
    for name in ["e", "a", "c"] {
        nodes.extend((0..tier).map(|n| node(format!("{name}{n}"), false)));
    }
    let [edge, middle, top] = [0, 1, 2].map(|level| hosts + level * tier);
    let mut links: Vec<(usize, usize)> = (0..hosts).map(|n| (edge + n / m[0], n)).collect();
    for below in 0..tier {
        let pod = below / m[1] * m[1];
        links.extend((0..m[1]).map(|up| (middle + pod + up, edge + below)));
    }
    for below in 0..tier {
        links.extend((0..m[2]).map(|up| (top + below % m[1] * m[2] + up, middle + below)));
    }
    let both = links.into_iter().flat_map(|(a, b)| [(a, b), (b, a)]);
    let direction = |(from, to): (usize, usize)| FilmDirection {
        link: format!("{}-{}", nodes[from.max(to)].name, nodes[from.min(to)].name),
        from,
        to,
        rate_bps: RATE_BPS,
        limit_bytes: Some(LIMIT_BYTES),
    };
    let directions = both.map(direction).collect();
    (nodes, directions)
}

fn film(
    m: [usize; 3],
    frames: u64,
    cell: impl Fn(u64, usize, &[FilmNode], &FilmDirection) -> FilmCell,
) -> Film {
    let (nodes, directions) = tree(m);
    let frame = |frame| {
        let all = directions.iter().enumerate();
        let cells = all.map(|(number, direction)| cell(frame, number, &nodes, direction));
        cells.collect::<Vec<_>>()
    };
    Film {
        repeat: 1,
        interval_ps: INTERVAL_PS,
        cells: (0..frames).flat_map(frame).collect(),
        nodes,
        directions,
    }
}

/// When the directions that lead to P7 are paused: first to its edge switch, then to those above,
/// then up the other side; they dissolve in the same order.
pub fn paused(from: &str, to: &str) -> Option<std::ops::Range<u64>> {
    match (&from[..1], &to[..1]) {
        ("a", "e") if to == "e3" => Some(20..90),
        ("c", "a") if to == "a2" || to == "a3" => Some(40..110),
        ("a", "c") if from == "a0" || from == "a1" => Some(60..130),
        ("e", "a") if from == "e0" || from == "e1" => Some(75..140),
        ("P", "e") if ["P0", "P1", "P2", "P3"].contains(&from) => Some(85..150),
        _ => None,
    }
}

/// Frames of [`saturation`].
pub const FRAMES: u64 = 200;

/// A saturation tree in a 2-ary 3-tree, as Figure 2.2 of Crisan's thesis has it: P0 to P3 send to
/// P7, which is slow.
pub fn saturation() -> Film {
    film([2, 2, 2], FRAMES, |frame, number, nodes, direction| {
        let (from, to) = (&nodes[direction.from].name, &nodes[direction.to].name);
        let root = from == "e3" && to == "P7" && (10..150).contains(&frame);
        let stopped = paused(from, to);
        let is_paused = stopped.clone().is_some_and(|range| range.contains(&frame));
        // A queue fills while what is behind it is paused, and a little before.
        let filling = stopped.map_or(0, |range| match frame + 10 {
            early if early < range.start => 0,
            early if frame < range.end => (early - range.start).min(20) * LIMIT_BYTES / 20,
            _ => (LIMIT_BYTES / 10).saturating_sub((frame - range.end) * 1000),
        });
        let share = 10 + (number as u64 * 37 + frame * 3) % 60;
        FilmCell {
            sent_bytes: RATE_BPS / 8_000 * if is_paused { 4 } else { share } / 100,
            queue_bytes: if root { LIMIT_BYTES } else { filling },
            paused_ps: if is_paused { INTERVAL_PS / 10 * 9 } else { 0 },
            drops: u64::from(root && frame % 40 == 10),
        }
    })
}

/// 512 directions (128 hosts, 48 switches) that change in every frame.
pub fn noise(frames: u64) -> Film {
    let noise = std::cell::RefCell::new(Noise::new(5));
    film([8, 4, 4], frames, |_, _, _, _| {
        let next = |below: f64| (noise.borrow_mut().next() * below) as u64;
        FilmCell {
            sent_bytes: next(RATE_BPS as f64 / 8e3),
            queue_bytes: next(LIMIT_BYTES as f64),
            paused_ps: next(INTERVAL_PS as f64).saturating_sub(INTERVAL_PS / 2),
            drops: next(1.2),
        }
    })
}

/// A scenario of two variants: the first has the film in two repeats, in the second nothing
/// happens.
pub fn results(scenario: &str, first: Film) -> Results {
    let mut results = super::empty(scenario);
    let second = Film {
        cells: vec![FilmCell::default(); first.cells.len()],
        ..first.clone()
    };
    let again = Film {
        repeat: 2,
        ..second.clone()
    };
    for (name, films) in [("lossless", vec![first, again]), ("calm", vec![second])] {
        let mut variant = sluicegate_scenario::results::VariantResult {
            name: name.into(),
            ..Default::default()
        };
        variant.samples.films = films;
        results.variants.push(variant);
    }
    results
}
