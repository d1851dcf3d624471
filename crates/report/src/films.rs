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
    /// What was seen.
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
