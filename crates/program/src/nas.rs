//! Skeletons of five NAS Parallel Benchmarks (Bailey et al. 1991; the MPI programs of NPB 2 and 3):
//! the messages of each rank, their sizes and their order, without the computation. Sizes are those
//! of the problem's class divided as the programs divide it.
//!
//! | kernel | an iteration |
//! |---|---|
//! | BT | faces to six neighbours; then along each dimension of a multi-partition, forward with 5 × 5 blocks and a vector, and back with a vector |
//! | CG | a product of matrix and vector (sums along rows of the processor grid, and an exchange across its diagonal) and two scalar products |
//! | FT | a transposition of complex values |
//! | IS | sums of buckets, their numbers, and the keys to everybody |
//! | MG | a V-cycle: faces to six neighbours at each level, down and up |

use crate::Weave;

/// A benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Block tridiagonal solver.
    Bt,
    /// Conjugate gradient.
    Cg,
    /// Fourier transform.
    Ft,
    /// Integer sort.
    Is,
    /// Multigrid.
    Mg,
}

impl Kernel {
    /// Each with its name in scenarios.
    pub const ALL: [(&'static str, Self); 5] = [
        ("bt", Self::Bt),
        ("cg", Self::Cg),
        ("ft", Self::Ft),
        ("is", Self::Is),
        ("mg", Self::Mg),
    ];
}

/// Size of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The smallest of the benchmarks proper.
    A,
    /// Four times as large.
    B,
    /// Again.
    C,
    /// Sixteen times as large.
    D,
}

impl Class {
    /// Each with its name in scenarios.
    pub const ALL: [(&'static str, Self); 4] = [
        ("a", Self::A),
        ("b", Self::B),
        ("c", Self::C),
        ("d", Self::D),
    ];

    fn of<T: Copy>(self, sizes: [T; 4]) -> T {
        sizes[self as usize]
    }
}

/// The most ranks that a kernel runs on, not above so many; at least the fewest that it runs on.
pub fn most_ranks(kernel: Kernel, ranks: u32) -> u32 {
    match kernel {
        Kernel::Bt => ranks.isqrt().max(2).pow(2),
        _ => 1 << ranks.max(2).ilog2(),
    }
}

/// A message: from, to, bytes.
type Message = (u32, u32, u64);

/// Messages of rounds, of one iteration.
pub type Rounds = Vec<Vec<Message>>;

/// One iteration of a kernel on so many ranks.
///
/// # Errors
/// Numbers of ranks that the program does not run on.
pub fn iteration(kernel: Kernel, class: Class, ranks: u32) -> Result<Rounds, String> {
    let side = ranks.isqrt();
    match kernel {
        Kernel::Bt if side * side != ranks || side < 2 => {
            Err(format!("BT runs on a square of processors, not on {ranks}"))
        }
        Kernel::Bt => Ok(bt(class, side)),
        _ if !ranks.is_power_of_two() || ranks < 2 => {
            Err(format!("it runs on 2, 4, 8, … processors, not on {ranks}"))
        }
        Kernel::Cg => Ok(cg(class, ranks)),
        Kernel::Ft => Ok(ft(class, ranks)),
        Kernel::Is => Ok(is(class, ranks)),
        Kernel::Mg => Ok(mg(class, ranks)),
    }
}

/// Adds rounds of messages of all ranks, each of which is `scale` times as long.
pub fn add(weave: &mut Weave, rounds: &Rounds, scale: f64, phase: u16) {
    for round in rounds {
        let scaled = round.iter().filter(|(from, to, _)| from != to);
        let scaled: Vec<Message> = scaled
            .map(|&(from, to, bytes)| (from, to, (bytes as f64 * scale) as u64))
            .collect();
        weave.exchange(&scaled, phase);
    }
}

/// Everybody sends to a rank that `to` says.
fn all(ranks: u32, bytes: u64, to: impl Fn(u32) -> u32) -> Vec<Message> {
    (0..ranks).map(|from| (from, to(from), bytes)).collect()
}

fn bt(class: Class, side: u32) -> Rounds {
    let points: u64 = class.of([64, 102, 162, 408]);
    let cells = u64::from(side);
    // Points of a face of a cell, and the numbers on each: 5 variables of 8 bytes.
    let face = points * points / (cells * cells);
    let at = |column: u32, row: u32| column % side + side * (row % side);
    let step = move |rank: u32, dimension: usize, way: u32| {
        let (column, row) = (rank % side, rank / side);
        match dimension {
            0 => at(column + way, row),
            1 => at(column, row + way),
            _ => at(column + way, row + way),
        }
    };
    let (ahead, back) = (1, side - 1);
    let ranks = side * side;
    // Two layers of all cells but one.
    let faces = 2 * 5 * 8 * face * (cells - 1);
    let mut rounds = vec![
        (0..3)
            .flat_map(|dimension| {
                [ahead, back]
                    .into_iter()
                    .flat_map(move |way| all(ranks, faces, move |rank| step(rank, dimension, way)))
            })
            .collect(),
    ];
    for dimension in 0..3 {
        for (bytes, way) in [((25 + 5) * 8 * face, ahead), (5 * 8 * face, back)] {
            let stage = || all(ranks, bytes, |rank| step(rank, dimension, way));
            rounds.extend((1..side).map(|_| stage()));
        }
    }
    rounds
}

fn cg(class: Class, ranks: u32) -> Rounds {
    let length: u64 = class.of([14_000, 75_000, 150_000, 1_500_000]);
    // As many columns as rows, or twice as many.
    let rows = 1 << (ranks.ilog2() / 2);
    let columns = ranks / rows;
    let part = length * 8 / u64::from(rows);
    let in_row = |bytes: u64| {
        let distances = (0..columns.ilog2()).rev().map(|bit| 1 << bit);
        distances
            .map(|distance: u32| all(ranks, bytes, |rank| rank ^ distance))
            .collect::<Vec<_>>()
    };
    let mut rounds = in_row(part);
    let across = |rank: u32| {
        let (row, column) = (rank / columns, rank % columns);
        match columns == rows {
            true => column * columns + row,
            // Of two columns together (NPB's setup_submatrix_info).
            false => 2 * ((rank / 2 % rows) * rows + rank / 2 / rows) + rank % 2,
        }
    };
    rounds.push(all(ranks, part, across));
    rounds.extend(in_row(8));
    rounds.extend(in_row(8));
    rounds
}

/// A piece of so many bytes from everybody to everybody.
fn to_everybody(ranks: u32, bytes: u64) -> Rounds {
    let round = |distance: u32| all(ranks, bytes, move |rank| (rank + distance) % ranks);
    (1..ranks).map(round).collect()
}

fn ft(class: Class, ranks: u32) -> Rounds {
    let points: u64 = class.of([
        256 * 256 * 128,
        512 * 256 * 256,
        512 * 512 * 512,
        2048 * 1024 * 1024,
    ]);
    to_everybody(ranks, points * 16 / (u64::from(ranks) * u64::from(ranks)))
}

fn is(class: Class, ranks: u32) -> Rounds {
    let keys: u64 = class.of([1 << 23, 1 << 25, 1 << 27, 1 << 31]);
    let buckets = 1024 * 4;
    let distances = (0..ranks.ilog2()).map(|bit| 1 << bit);
    let mut rounds: Rounds = distances
        .map(|distance: u32| all(ranks, buckets, |rank| rank ^ distance))
        .collect();
    rounds.extend(to_everybody(ranks, 4));
    rounds.extend(to_everybody(
        ranks,
        keys * 4 / (u64::from(ranks) * u64::from(ranks)),
    ));
    rounds
}

fn mg(class: Class, ranks: u32) -> Rounds {
    let points: u64 = class.of([256, 256, 512, 1024]);
    // Processors in each dimension; the last one is divided first.
    let mut grid = [1u32; 3];
    for bit in 0..ranks.ilog2() as usize {
        grid[2 - bit % 3] *= 2;
    }
    let levels = points.ilog2();
    // A level's points of a rank in each dimension, without the layer around them.
    let own = |level: u32| grid.map(|count| ((1u64 << level) / u64::from(count)).max(1));
    let halo = |level: u32| {
        let length = own(level).map(|length| length + 2);
        let mut round = Vec::new();
        let mut stride = 1;
        for (dimension, &count) in grid.iter().enumerate() {
            let face: u64 = (0..3)
                .filter(|other| *other != dimension)
                .map(|other| length[other])
                .product();
            for way in [1, count - 1] {
                round.extend(all(ranks, face * 8, |rank| {
                    let at = rank / stride % count;
                    rank - at * stride + (at + way) % count * stride
                }));
            }
            stride *= count;
        }
        round
    };
    // Restriction down to two points in all; smoothing there; residual and smoothing on the way up.
    let mut rounds: Rounds = (1..levels).rev().map(halo).collect();
    rounds.push(halo(1));
    for level in 2..=levels {
        rounds.extend([halo(level), halo(level)]);
    }
    rounds.push(halo(levels));
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check;

    #[test]
    fn a_kernel_runs_on_its_most_ranks_and_on_none_beyond() {
        for (name, kernel) in Kernel::ALL {
            for hosts in [4, 5, 32, 100, 128] {
                let ranks = most_ranks(kernel, hosts);
                assert!(
                    iteration(kernel, Class::A, ranks).is_ok(),
                    "{name}, {hosts}"
                );
                let beyond = ranks + 1..=hosts;
                let runs = |more| iteration(kernel, Class::A, more).is_ok();
                assert!(!beyond.into_iter().any(runs), "{name}, {hosts}");
            }
        }
    }

    /// Table 2.2 of the zOVN thesis: scale factor, largest and mean size of a message. The number
    /// of ranks and the class are not given; these are the ones whose largest messages fit. The
    /// means do not: the last numbers are how much of the thesis' mean ours is, and how much it is
    /// if messages above 1 KB count thrice (request, grant, data), which fits three of the five.
    #[test]
    fn largest_messages_are_those_of_the_thesis_and_means_are_not() {
        for (kernel, class, ranks, factor, largest, mean, ratios) in [
            (
                Kernel::Bt,
                Class::C,
                256,
                10.0,
                1.23e6,
                69.4e3,
                [3.03, 1.01],
            ),
            (
                Kernel::Cg,
                Class::D,
                256,
                10.0,
                7.5e6,
                1.61e6,
                [1.78, 1.008],
            ),
            (Kernel::Ft, Class::C, 128, 30.0, 3.9e6, 1.31e6, [3.0, 1.001]),
            (
                Kernel::Is,
                Class::B,
                256,
                1000.0,
                2.06e6,
                158e3,
                [6.79, 3.37],
            ),
            (
                Kernel::Mg,
                Class::C,
                128,
                100.0,
                13.5e6,
                2.96e6,
                [0.48, 0.251],
            ),
        ] {
            let rounds = iteration(kernel, class, ranks).unwrap();
            let bytes = rounds.iter().flatten().map(|(.., bytes)| *bytes);
            // Sums of buckets have a length that does not depend on the problem.
            let most = bytes
                .filter(|bytes| kernel != Kernel::Is || *bytes != 4096)
                .max();
            let ours = most.unwrap() as f64 * factor;
            assert!(
                (ours / largest - 1.0).abs() < 0.02,
                "{kernel:?}: {ours} of {largest}"
            );
            let sent = rounds.iter().flatten().filter(|(from, to, _)| from != to);
            let sizes: Vec<u64> = sent.map(|(.., bytes)| *bytes).collect();
            let long = sizes.iter().filter(|size| **size > 1024).count();
            let all = sizes.iter().sum::<u64>() as f64 * factor;
            for (count, ratio) in [sizes.len(), sizes.len() + 2 * long]
                .into_iter()
                .zip(ratios)
            {
                let ours = all / count as f64;
                assert!(
                    (ours / mean / ratio - 1.0).abs() < 0.01,
                    "{kernel:?}: a mean of {ours}"
                );
            }
        }
    }

    #[test]
    fn every_kernel_ends_on_any_number_of_ranks_that_it_takes() {
        for (_, kernel) in Kernel::ALL {
            for ranks in [2, 4, 8, 9, 16, 25, 32, 64] {
                let Ok(rounds) = iteration(kernel, Class::A, ranks) else {
                    continue;
                };
                let mut weave = Weave::new(ranks);
                let phase = weave.phase("x");
                add(&mut weave, &rounds, 1.0, phase);
                assert_eq!(check(&weave.finish(), 0), Ok(()), "{kernel:?} {ranks}");
            }
        }
    }

    #[test]
    fn exchanges_go_both_ways() {
        for ranks in [8, 16, 32, 64] {
            for round in iteration(Kernel::Cg, Class::A, ranks).unwrap() {
                for &(from, to, _) in &round {
                    assert_eq!(round[to as usize].1, from, "{ranks}: {from} and {to}");
                }
            }
        }
    }
}
