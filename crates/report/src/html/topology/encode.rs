//! A film as the page carries it: quantised, deflated, in base64.

use std::io::Write;

use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::{Compression, write::DeflateEncoder};
use serde::Serialize;
use sluicegate_scenario::results::{Film, FilmCell};

/// Frames that a page has of a film at most; of more, neighbours are put together.
const FRAMES_DRAWN: usize = 1000;
/// A load of 1 as a byte.
const FULL_LOAD: f64 = 250.0;
/// A full queue in 16 bits, and a frame that is paused all the time in 8.
const FULL_QUEUE: f64 = 65_535.0;
const ALL_PAUSED: f64 = 255.0;
/// Bytes of a queue that no limit bounds, at least, if it is drawn full.
const SCALE_BYTES_MIN: u64 = 20_000;

/// A film as the page has it.
#[derive(Serialize)]
pub struct Picture {
    /// Which of the scenario's variants.
    pub variant: usize,
    /// Repeat, from 1.
    pub repeat: u32,
    /// Which of the scenario's layouts.
    pub layout: usize,
    /// Seconds from frame to frame.
    pub interval_s: f64,
    /// How many frames there are.
    pub frames: usize,
    /// By direction: bit/s.
    pub rate_bps: Vec<u64>,
    /// By direction: bytes of a queue that is drawn full.
    pub scale_bytes: Vec<u64>,
    /// By direction: whether that is its limit.
    pub limited: Vec<bool>,
    /// Deflated (RFC 1951), in base64. All directions one after the other, each frame by frame,
    /// four times: load (u8, 250 = the link's rate), backlog (u16 little-endian, 65 535 =
    /// `scale_bytes`), paused (u8, 255 = all the time), drops (u16 little-endian, at most). What is
    /// not nothing is at least 1.
    pub cells: String,
}

impl Picture {
    /// Of a film of one variant.
    pub fn new(film: &Film, variant: usize, layout: usize) -> Self {
        let merged = film.frames().count().div_ceil(FRAMES_DRAWN).max(1);
        let frames = frames(film, merged);
        let scale_bytes = scales(film, &frames);
        let interval_s = film.interval_ps as f64 * merged as f64 / 1e12;
        let planes = planes(film, &frames, &scale_bytes, interval_s);
        Self {
            variant,
            repeat: film.repeat,
            layout,
            interval_s,
            frames: frames.len(),
            rate_bps: film.directions.iter().map(|it| it.rate_bps).collect(),
            limited: film
                .directions
                .iter()
                .map(|it| it.limit_bytes.is_some())
                .collect(),
            scale_bytes,
            cells: BASE64_STANDARD.encode(deflated(&planes)),
        }
    }
}

/// Frames, so many of the film's put together: queues at their fullest, the rest summed. An
/// incomplete last one is left out.
fn frames(film: &Film, merged: usize) -> Vec<Vec<FilmCell>> {
    let directions = film.directions.len().max(1);
    let groups = film.cells.chunks_exact(directions * merged);
    let merge = |group: &[FilmCell]| {
        let mut sum = vec![FilmCell::default(); directions];
        for frame in group.chunks_exact(directions) {
            for (sum, cell) in sum.iter_mut().zip(frame) {
                sum.sent_bytes += cell.sent_bytes;
                sum.queue_bytes = sum.queue_bytes.max(cell.queue_bytes);
                sum.paused_ps += cell.paused_ps;
                sum.drops += cell.drops;
            }
        }
        sum
    };
    groups.map(merge).collect()
}

/// The size of a full queue: its limit, or where there is none the fullest of these.
fn scales(film: &Film, frames: &[Vec<FilmCell>]) -> Vec<u64> {
    let unlimited = frames
        .iter()
        .flat_map(|frame| frame.iter().zip(&film.directions));
    let unlimited = unlimited.filter(|(_, direction)| direction.limit_bytes.is_none());
    let fullest = unlimited.map(|(cell, _)| cell.queue_bytes).max();
    let scale = fullest.unwrap_or(0).max(SCALE_BYTES_MIN);
    let directions = film.directions.iter();
    directions
        .map(|direction| direction.limit_bytes.unwrap_or(scale).max(1))
        .collect()
}

fn planes(film: &Film, frames: &[Vec<FilmCell>], scale_bytes: &[u64], interval_s: f64) -> Vec<u8> {
    let each = |of: &dyn Fn(usize, &FilmCell) -> u16| -> Vec<u16> {
        let directions = 0..film.directions.len();
        let direction = |number: usize| frames.iter().map(move |frame| of(number, &frame[number]));
        directions.flat_map(direction).collect()
    };
    let load = each(&|number, cell| {
        let most_bytes = film.directions[number].rate_bps as f64 / 8.0 * interval_s;
        let share = cell.sent_bytes as f64 / most_bytes.max(1.0);
        quantised(share, FULL_LOAD, f64::from(u8::MAX))
    });
    let queue = each(&|number, cell| {
        let share = cell.queue_bytes as f64 / scale_bytes[number] as f64;
        quantised(share, FULL_QUEUE, FULL_QUEUE)
    });
    let interval_ps = interval_s * 1e12;
    let paused =
        each(&|_, cell| quantised(cell.paused_ps as f64 / interval_ps, ALL_PAUSED, ALL_PAUSED));
    let drops = each(&|_, cell| cell.drops.min(u16::MAX.into()) as u16);
    let mut bytes = Vec::with_capacity(6 * load.len());
    bytes.extend(load.iter().map(|&it| it as u8));
    bytes.extend(queue.iter().flat_map(|it| it.to_le_bytes()));
    bytes.extend(paused.iter().map(|&it| it as u8));
    bytes.extend(drops.iter().flat_map(|it| it.to_le_bytes()));
    bytes
}

/// A share of `full`, at most `most`, at least 1 unless it is 0.
fn quantised(share: f64, full: f64, most: f64) -> u16 {
    match share > 0.0 {
        true => (share * full).round().clamp(1.0, most) as u16,
        false => 0,
    }
}

/// Deflates, which takes long runs of idle links to almost nothing.
fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder
        .write_all(bytes)
        .and_then(|()| encoder.finish())
        .expect("memory takes everything")
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::DeflateDecoder;

    use super::*;
    use crate::films::tests::filmed;

    fn unpacked(picture: &Picture) -> Vec<u8> {
        let packed = BASE64_STANDARD.decode(&picture.cells).unwrap();
        let mut bytes = Vec::new();
        DeflateDecoder::new(&packed[..])
            .read_to_end(&mut bytes)
            .unwrap();
        bytes
    }

    fn film() -> Film {
        filmed().variants[0].samples.films[0].clone()
    }

    #[test]
    fn cells_are_shares_by_direction() {
        let picture = Picture::new(&film(), 0, 0);
        assert_eq!((picture.frames, picture.repeat), (2, 3));
        assert_eq!(picture.scale_bytes, [SCALE_BYTES_MIN; 2]);
        assert_eq!(picture.limited, [false, false]);
        // 12 of 31.25 GB; 3 of 20 KB; 1.5 us of 250 ms, which is not nothing; 2 drops.
        let queue = (0.15 * FULL_QUEUE).round() as u16;
        let [low, high] = queue.to_le_bytes();
        let load = [0, 0, 96, 0];
        let paused = [0, 0, 1, 0];
        let expected = [
            &load[..],
            &[0, 0, 0, 0, low, high, 0, 0],
            &paused,
            &[0, 0, 0, 0, 2, 0, 0, 0],
        ];
        assert_eq!(unpacked(&picture), expected.concat());
    }

    #[test]
    fn a_long_film_is_put_together() {
        let mut film = film();
        let busy = film.cells[1];
        film.cells = vec![busy; 2 * (2 * FRAMES_DRAWN + 2)];
        let picture = Picture::new(&film, 0, 0);
        // Three at a time; the last one is left over.
        assert_eq!((picture.frames, picture.interval_s), (667, 0.75));
        let bytes = unpacked(&picture);
        let cells = 2 * picture.frames;
        assert_eq!(bytes.len(), 6 * cells);
        assert_eq!(bytes[0], 96, "the same load");
        let drops = u16::from_le_bytes([bytes[4 * cells], bytes[4 * cells + 1]]);
        assert_eq!(drops, 3 * 2);
    }
}
