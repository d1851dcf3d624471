//! The network as a picture that moves: load, queues, pauses and drops of every link over time.

mod encode;
mod layout;
mod places;
#[cfg(test)]
mod tests;

use maud::{Markup, html};
use serde::Serialize;
use sluicegate_scenario::results::{Film, VariantResult};

use self::{
    encode::Picture,
    layout::{Layout, Network, layout},
};

/// Link directions of a picture at most: beyond, lines and queues would be too fine to see.
const DIRECTIONS_DRAWN: usize = 1000;
/// Bytes of films that a scenario adds to a page at most.
const PAGE_BYTES: usize = 16 << 20;

/// The films of a scenario.
#[derive(Default, Serialize)]
pub struct Films {
    layouts: Vec<Layout>,
    films: Vec<Picture>,
    /// Directions of a network that is too large to be drawn.
    #[serde(skip)]
    too_large: Option<usize>,
    /// Films that the page has no room for.
    #[serde(skip)]
    left_out: usize,
}

impl Films {
    /// Of these variants: first repeats first, as many as the page may have.
    pub fn new(variants: &[VariantResult]) -> Self {
        let mut all = Self::default();
        let films = variants.iter().enumerate().flat_map(|(index, variant)| {
            let films = variant.samples.films.iter();
            films.map(move |film| (index, film))
        });
        let mut films: Vec<(usize, &Film)> = films.collect();
        films.sort_by_key(|(variant, film)| (film.repeat, *variant));
        let mut room_bytes = PAGE_BYTES;
        for (variant, film) in films {
            if film.directions.len() > DIRECTIONS_DRAWN {
                all.too_large = Some(film.directions.len());
                continue;
            }
            if film.cells.is_empty() || room_bytes == 0 {
                all.left_out += usize::from(room_bytes == 0);
                continue;
            }
            let layout = all.layout(film);
            let picture = Picture::new(film, variant, layout);
            room_bytes = room_bytes.saturating_sub(picture.cells.len());
            all.films.push(picture);
        }
        all.films.sort_by_key(|film| (film.variant, film.repeat));
        all
    }

    /// Whether nothing was filmed, or nothing can be drawn.
    pub fn is_empty(&self) -> bool {
        self.films.is_empty() && self.too_large.is_none()
    }

    /// The layout of a film's network, one for all that have the same.
    fn layout(&mut self, film: &Film) -> usize {
        let new = layout(&Network::of(film));
        let known = self.layouts.iter().position(|layout| *layout == new);
        known.unwrap_or_else(|| {
            self.layouts.push(new);
            self.layouts.len() - 1
        })
    }
}

/// The place for the films of a scenario; the page's script fills it.
pub fn topology(films: &Films) -> Markup {
    html! {
        @if !films.is_empty() {
            h3 { "The network over time" }
            @if let Some(directions) = films.too_large {
                p.no-data {
                    "No picture of a network with " (directions) " link directions: at most " (DIRECTIONS_DRAWN)
                    " can be told apart. film.parquet has every one of them."
                }
            }
            @if films.left_out > 0 {
                p.hint { (films.left_out) " more films would make this page too large; film.parquet has them." }
            }
            @if !films.films.is_empty() { (player()) }
        }
    }
}

fn player() -> Markup {
    html! {
        figure.topology data-topology {
            figcaption {
                span.name { "Links and queues" }
                span.controls {
                    label { "Variant " select data-choose="variant" { } }
                    label { "Repeat " select data-choose="repeat" { } }
                    label { "Watch " select data-choose="way" { option value="" { "–" } } }
                }
            }
            div.stage {
                svg.network role="group" tabindex="0" aria-roledescription="animated picture of the network"
                    aria-label="Links and queues over time. Space plays, left and right step, up and down choose a link." { }
                div.tip.floating hidden { }
            }
            div.transport {
                button.play type="button" data-do="play" aria-label="Play" { "▶" }
                button type="button" data-do="back" aria-label="One frame back" { "−" }
                button type="button" data-do="on" aria-label="One frame on" { "+" }
                button type="button" data-do="peak" title="Go to the moment with the most paused links, or bytes queued" { "peak" }
                input type="range" min="0" value="0" step="1" data-scrub aria-label="Time";
                output.time { }
                label { "Speed " select data-choose="speed" {
                    option value="5" { "5 frames/s" }
                    option value="12" { "12 frames/s" }
                    option value="25" selected { "25 frames/s" }
                    option value="50" { "50 frames/s" }
                    option value="100" { "100 frames/s" }
                } }
            }
            svg.strip viewBox="0 0 1000 100" preserveAspectRatio="none" role="img"
                aria-label="Paused links, bytes queued and drops over time; click to go there" { }
            div.strip-names { }
            p.now role="status" aria-live="polite" { }
            (key())
        }
    }
}

/// The legend of the signs.
fn key() -> Markup {
    html! {
        p.key.hint {
            span { svg viewBox="0 0 44 12" aria-hidden="true" {
                line.wire x1="2" y1="3" x2="42" y2="3" stroke-width="1" stroke-opacity=".5" { }
                line.wire x1="2" y1="8" x2="42" y2="8" stroke-width="5" { }
            } "idle, full: wider and darker; traffic keeps right" }
            span { svg viewBox="0 0 14 12" aria-hidden="true" {
                rect.trough x="3" y="0" width="8" height="12" { } rect.fill x="3" y="5" width="8" height="7" { }
            } "queue at its port, of its limit; at hosts without one, of the fullest" }
            span { svg viewBox="0 0 44 12" aria-hidden="true" {
                line.pause x1="2" y1="6" x2="42" y2="6" stroke-width="3" { }
                circle.pause-disc cx="22" cy="6" r="5.5" { } path.pause-sign d="M20.4 3.4v5.2M23.6 3.4v5.2" { }
            } "paused by PFC" }
            span { svg viewBox="0 0 12 12" aria-hidden="true" { path.cross d="M2 2l8 8M10 2l-8 8" { } } "dropped" }
        }
    }
}
