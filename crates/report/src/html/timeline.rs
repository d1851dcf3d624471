//! Ranks of parallel programs over time: a row per rank, dark where it computes.

use maud::{Markup, html};
use sluicegate_scenario::results::{Results, Timeline};

/// Most rows of a drawing; of more ranks some are left out, evenly.
const ROWS: usize = 256;

/// Size of a cell.
const WIDTH: usize = 4;

/// Steps of darkness.
const SHADES: f64 = 4.0;

/// The timelines of all variants, which open on demand.
pub fn timelines(results: &Results) -> Markup {
    let all = || {
        let variants = results.variants.iter();
        variants.flat_map(|variant| {
            variant
                .samples
                .timelines
                .iter()
                .map(move |one| (variant, one))
        })
    };
    html! {
        @if all().next().is_some() {
            h2 { "Ranks over time" }
            p.hint { "A row is a rank, from the first at the top. Dark: it computes. Light: it waits for messages. Blank: it has ended." }
            @for (variant, timeline) in all() {
                details {
                    summary { (variant.name) ": " (timeline.name) }
                    div.scroll { (drawing(timeline)) }
                }
            }
        }
    }
}

fn drawing(timeline: &Timeline) -> Markup {
    let ranks = timeline.ranks.len();
    let shown: Vec<usize> = match ranks <= ROWS {
        true => (0..ranks).collect(),
        false => (0..ROWS).map(|row| row * ranks / ROWS).collect(),
    };
    let height = (512 / shown.len().max(1)).clamp(2, 16);
    let columns = timeline.computing.first().map_or(0, Vec::len);
    let (width, tall) = (columns * WIDTH, shown.len() * height);
    let ms = |column: usize| (timeline.column_s * column as f64) * 1e3;
    html! {
        svg width=(width) height=(tall + 16) viewBox=(format!("0 0 {width} {}", tall + 16)) role="img"
            aria-label=(format!("{} over time", timeline.name)) {
            @for (row, rank) in shown.iter().enumerate() {
                g transform=(format!("translate(0 {})", row * height)) {
                    title { "rank " (timeline.ranks[*rank]) }
                    @for (from, to, shade) in runs(timeline, *rank) {
                        rect x=(from * WIDTH) y="0" width=((to - from) * WIDTH) height=(height) fill="#1f6f8b"
                            fill-opacity=(format!("{:.2}", 0.12 + 0.88 * f64::from(shade) / SHADES)) { }
                    }
                }
            }
            text x="0" y=(tall + 13) font-size="11" fill="currentColor" { "0" }
            text x=(width) y=(tall + 13) font-size="11" text-anchor="end" fill="currentColor" {
                (format!("{:.3} ms", ms(columns)))
            }
        }
    }
}

/// Columns of one shade up to the end of a rank: first, behind the last, shade.
fn runs(timeline: &Timeline, rank: usize) -> Vec<(usize, usize, u32)> {
    let ended_s = timeline.ended_s[rank] - timeline.begin_s;
    let columns = (ended_s / timeline.column_s).ceil().max(0.0) as usize;
    let mut runs: Vec<(usize, usize, u32)> = Vec::new();
    for (at, part) in timeline.computing[rank].iter().enumerate().take(columns) {
        let shade = (part * SHADES).round() as u32;
        match runs.last_mut() {
            Some((_, to, last)) if *last == shade => *to = at + 1,
            _ => runs.push((at, at + 1, shade)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_alike_are_one_and_end_with_the_rank() {
        let timeline = Timeline {
            name: "all".into(),
            begin_s: 1.0,
            column_s: 0.5,
            ranks: vec!["0 h1".into()],
            computing: vec![vec![1.0, 1.0, 0.1, 0.5, 0.0, 0.0]],
            ended_s: vec![3.25],
        };
        assert_eq!(
            runs(&timeline, 0),
            [(0, 2, 4), (2, 3, 0), (3, 4, 2), (4, 5, 0)]
        );
        let page = drawing(&timeline).into_string();
        assert!(page.contains("<title>rank 0 h1</title>"), "{page}");
        assert!(
            page.contains("3.000 ms") || page.contains("3000.000 ms"),
            "{page}"
        );
    }
}
