//! Films for other programs: one row per frame and direction of a link.

use std::rc::Rc;

use sluicegate_scenario::results::{Film, FilmCell, Results};

/// One cell of a film, with what it is of.
pub(crate) struct Row<'a> {
    /// Scenario.
    pub scenario: &'a str,
    /// Variant.
    pub variant: &'a str,
    /// Repeat, from 1.
    pub repeat: u32,
    /// End of the frame, in seconds since the start of the run.
    pub time_s: f64,
    /// Name of the link.
    pub link: &'a str,
    /// `from>to`.
    pub direction: Rc<str>,
    /// The observation.
    pub cell: &'a FilmCell,
}

/// Every cell of every film.
pub(crate) fn rows(results: &Results) -> impl Iterator<Item = Row<'_>> {
    let films = results.variants.iter().flat_map(|variant| {
        let films = variant.samples.films.iter();
        films.map(|film| (variant.name.as_str(), film))
    });
    films.flat_map(|(variant, film)| of_film(&results.scenario, variant, film))
}

fn of_film<'a>(
    scenario: &'a str,
    variant: &'a str,
    film: &'a Film,
) -> impl Iterator<Item = Row<'a>> {
    let directions = film.directions.iter();
    let names: Rc<[Rc<str>]> = directions
        .map(|direction| film.direction_name(direction).into())
        .collect();
    film.frames().flat_map(move |(time_s, cells)| {
        let names = Rc::clone(&names);
        let directions = film.directions.iter().zip(cells).enumerate();
        directions.map(move |(number, (direction, cell))| Row {
            scenario,
            variant,
            repeat: film.repeat,
            time_s,
            link: &direction.link,
            direction: Rc::clone(&names[number]),
            cell,
        })
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use sluicegate_scenario::results::{FilmDirection, FilmNode, VariantResult};

    use super::*;
    use crate::samples::tests::results_of;

    /// Results with the film of a third repeat: a link in two frames.
    pub fn filmed() -> Results {
        let node = |name: &str, is_host| FilmNode {
            name: name.into(),
            is_host,
        };
        let direction = |from, to| FilmDirection {
            link: "s-h".into(),
            from,
            to,
            rate_bps: 1_000_000_000_000,
            limit_bytes: None,
        };
        let busy = FilmCell {
            sent_bytes: 12_000_000_000,
            queue_bytes: 3000,
            paused_ps: 1_500_000,
            drops: 2,
        };
        let idle = FilmCell::default();
        let film = Film {
            repeat: 3,
            nodes: vec![node("h", true), node("s", false)],
            directions: vec![direction(1, 0), direction(0, 1)],
            interval_ps: 250_000_000_000,
            cells: vec![idle, busy, idle, idle],
        };
        let mut variant = VariantResult {
            name: "v".into(),
            ..Default::default()
        };
        variant.samples.films = vec![film];
        results_of(variant)
    }
}
