//! The network over time, in a real browser.

use std::path::Path;

use serde_json::{Value, json};
use sluicegate_report::html;
use sluicegate_scenario::results::{Film, Results};
use support::{browser::Browser, films};

use crate::support;

const FIGURE: &str = "document.querySelector('figure[data-topology]')";

/// A report with one film's variants, opened in a browser; `name` is a directory of its own.
fn open(name: &str, results: &Results) -> Browser {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("report.html");
    std::fs::write(&file, html(&[results])).unwrap();
    let mut browser = Browser::start(&directory);
    browser.look(1400, 1600, "light");
    browser.open(&file);
    browser.wait_for(&format!("{FIGURE}.dataset.ready === '0/1'"));
    browser
}

fn saturation(name: &str) -> Browser {
    open(name, &films::results(name, films::saturation()))
}

fn assert_silent(browser: &mut Browser) {
    assert_eq!(browser.complaints(), Vec::<String>::new());
    assert_eq!(
        browser.requests().len(),
        1,
        "the page itself and nothing else"
    );
}

/// The frame that is shown.
fn frame(browser: &mut Browser) -> u64 {
    let shown = browser.evaluate(&format!("Number({FIGURE}.dataset.frame)"));
    shown.as_u64().unwrap()
}

/// Presses a key with the picture in focus.
fn press(browser: &mut Browser, key: &str) {
    browser.evaluate(&format!("{FIGURE}.querySelector('.network').focus()"));
    for kind in ["keyDown", "keyUp"] {
        let text = if key == " " && kind == "keyDown" {
            " "
        } else {
            ""
        };
        let event = json!({"type": kind, "key": key, "code": key, "text": text});
        browser.call("Input.dispatchKeyEvent", event);
    }
}

fn scrub(browser: &mut Browser, frame: u64) {
    browser.evaluate(&format!(
        "(r => {{ r.value = {frame}; r.dispatchEvent(new Event('input')); }})({FIGURE}.querySelector('[data-scrub]'))"
    ));
}

fn choose(browser: &mut Browser, list: &str, value: &str) {
    browser.evaluate(&format!(
        "(s => {{ s.value = '{value}'; s.dispatchEvent(new Event('change')); }})\
         ({FIGURE}.querySelector('[data-choose={list}]'))"
    ));
}

/// Numbers of the directions whose group has a class, in order.
fn with_class(browser: &mut Browser, class: &str) -> Vec<u64> {
    let numbers = browser.evaluate(&format!(
        "[...{FIGURE}.querySelectorAll('{class}')].map(g => Number(g.dataset.way))"
    ));
    let numbers = numbers.as_array().unwrap().iter();
    numbers.filter_map(Value::as_u64).collect()
}

/// Numbers of the directions of a film that are paused in a frame.
fn paused(film: &Film, frame: u64) -> Vec<u64> {
    let directions = film.directions.iter().zip(0..);
    let is_paused = |(direction, _): &(&sluicegate_scenario::results::FilmDirection, u64)| {
        let [from, to] = [direction.from, direction.to].map(|node| &film.nodes[node].name);
        films::paused(from, to).is_some_and(|range| range.contains(&frame))
    };
    directions
        .filter(is_paused)
        .map(|(_, number)| number)
        .collect()
}

#[test]
fn a_paused_direction_is_marked_in_its_frames_and_in_no_other() {
    let film = films::saturation();
    let mut browser = saturation("film-paused");
    let mut marked = 0;
    for frame in [0, 19, 20, 39, 40, 60, 89, 90, 149, 150, 199] {
        scrub(&mut browser, frame);
        let expected = paused(&film, frame);
        assert_eq!(with_class(&mut browser, ".way.paused"), expected, "{frame}");
        let count = |path: &str, letter: &str| {
            format!(
                "[...{FIGURE}.querySelectorAll('.network {path}')].map(p => p.getAttribute('d')).join('').split('{letter}').length - 1"
            )
        };
        // A line each, and a disc, which has two arcs.
        let lines = browser.evaluate(&count(".pause", "M"));
        let discs = browser.evaluate(&count(".pause-disc", "a"));
        assert_eq!(
            [lines, discs],
            [json!(expected.len()), json!(2 * expected.len())]
        );
        marked += expected.len();
    }
    assert!(marked > 20, "{marked}");
    // Not by colour alone.
    let dashes =
        format!("getComputedStyle({FIGURE}.querySelector('.network .pause')).strokeDasharray");
    assert_eq!(browser.evaluate(&dashes), json!("5px, 3.5px"));
    assert_silent(&mut browser);
}

#[test]
fn scrubbing_sets_the_frame_its_time_and_its_figures() {
    let mut browser = saturation("film-scrub");
    assert_eq!(frame(&mut browser), 0);
    scrub(&mut browser, 50);
    assert_eq!(frame(&mut browser), 50);
    let text = |place: &str| format!("{FIGURE}.querySelector('{place}').textContent");
    assert_eq!(browser.evaluate(&text(".time")), json!("51.0 ms"));
    let now = browser.evaluate(&text(".now"));
    assert!(now.as_str().unwrap().contains("frame 51 of 200"), "{now}");
    // e3>P7, full and dropping.
    let direction = films::saturation().directions.len();
    assert_eq!(direction, 48);
    choose(&mut browser, "way", "14");
    let now = browser.evaluate(&text(".now"));
    let now = now.as_str().unwrap();
    assert!(
        now.contains("e3 → P7") && now.contains("queue 100 KB of 100 KB (100 %)"),
        "{now}"
    );
    assert!(now.contains("drops 1"), "{now}");
    assert_eq!(with_class(&mut browser, ".way.dropped"), [14]);
    let cross = format!(
        "(r => r.width > 5 && r.height > 5)({FIGURE}.querySelector('.network .cross').getBoundingClientRect())"
    );
    assert_eq!(browser.evaluate(&cross), json!(true), "a cross to be seen");
    assert_silent(&mut browser);
}

#[test]
fn it_plays_and_stops() {
    let mut browser = saturation("film-play");
    let play = format!("{FIGURE}.querySelector('[data-do=play]')");
    let label = format!("{play}.getAttribute('aria-label')");
    choose(&mut browser, "speed", "50");
    browser.evaluate(&format!("{play}.click()"));
    assert_eq!(browser.evaluate(&label), json!("Pause"));
    browser.wait_for(&format!("Number({FIGURE}.dataset.frame) >= 3"));
    browser.evaluate(&format!("{play}.click()"));
    assert_eq!(browser.evaluate(&label), json!("Play"));
    let stopped = frame(&mut browser);
    browser
        .evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))");
    assert_eq!(frame(&mut browser), stopped);
    // To its end, where it stops by itself and begins again.
    scrub(&mut browser, films::FRAMES - 3);
    browser.evaluate(&format!("{play}.click()"));
    browser.wait_for(&format!("{label} === 'Play'"));
    assert_eq!(frame(&mut browser), films::FRAMES - 1);
    browser.evaluate(&format!("{play}.click()"));
    assert!(frame(&mut browser) < films::FRAMES / 2);
    assert_silent(&mut browser);
}

#[test]
fn keys_do_everything() {
    let mut browser = saturation("film-keys");
    for (key, expected) in [
        ("ArrowRight", 1),
        ("ArrowRight", 2),
        ("ArrowLeft", 1),
        ("End", films::FRAMES - 1),
        ("ArrowRight", films::FRAMES - 1),
        ("Home", 0),
        ("ArrowLeft", 0),
    ] {
        press(&mut browser, key);
        assert_eq!(frame(&mut browser), expected, "{key}");
    }
    press(&mut browser, "ArrowDown");
    press(&mut browser, "ArrowDown");
    assert_eq!(with_class(&mut browser, ".watched"), [1]);
    press(&mut browser, "ArrowUp");
    press(&mut browser, "ArrowUp");
    assert_eq!(with_class(&mut browser, ".watched"), [47]);
    press(&mut browser, "Escape");
    assert_eq!(with_class(&mut browser, ".watched"), [0; 0]);
    let label = format!("{FIGURE}.querySelector('[data-do=play]').getAttribute('aria-label')");
    press(&mut browser, " ");
    assert_eq!(browser.evaluate(&label), json!("Pause"));
    press(&mut browser, " ");
    assert_eq!(browser.evaluate(&label), json!("Play"));
    assert_silent(&mut browser);
}

#[test]
fn variants_repeats_peak_and_the_strip_choose_what_is_shown() {
    let mut browser = saturation("film-choice");
    browser.evaluate(&format!("{FIGURE}.querySelector('[data-do=peak]').click()"));
    let peak = frame(&mut browser);
    assert!((85..90).contains(&peak), "{peak}: all are paused");
    assert_eq!(
        with_class(&mut browser, ".way.paused").len(),
        paused(&films::saturation(), peak).len()
    );
    choose(&mut browser, "repeat", "2");
    browser.wait_for(&format!("{FIGURE}.dataset.ready === '0/2'"));
    assert_eq!(frame(&mut browser), peak, "the same moment");
    assert_eq!(with_class(&mut browser, ".way.paused"), [0; 0]);
    choose(&mut browser, "variant", "1");
    browser.wait_for(&format!("{FIGURE}.dataset.ready === '1/1'"));
    let place = browser.evaluate(&format!(
        "(s => {{ s.scrollIntoView(); const r = s.getBoundingClientRect(); return [r.x, r.y, r.width]; }})\
         ({FIGURE}.querySelector('.strip'))"
    ));
    let [x, y, width] = [0, 1, 2].map(|n| place[n].as_f64().unwrap());
    let at = (x + width * 0.25 + 1.0, y + 20.0);
    browser.mouse("mousePressed", at, "left");
    browser.mouse("mouseReleased", at, "left");
    assert_eq!(frame(&mut browser), 50);
    assert_silent(&mut browser);
}

#[test]
fn the_pointer_shows_names_and_figures() {
    let mut browser = saturation("film-tip");
    scrub(&mut browser, 89);
    let place = browser.evaluate(&format!(
        "(g => {{ const r = g.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})\
         ({FIGURE}.querySelector('[data-node=\"11\"] rect'))"
    ));
    let at = (place[0].as_f64().unwrap(), place[1].as_f64().unwrap());
    browser.mouse("mouseMoved", at, "none");
    let tip = browser.evaluate(&format!("{FIGURE}.querySelector('.floating').textContent"));
    let tip = tip.as_str().unwrap();
    assert!(tip.starts_with("e3") && tip.contains("queued"), "{tip}");
    let hidden = format!("{FIGURE}.querySelector('.floating').hidden");
    assert_eq!(browser.evaluate(&hidden), json!(false));
    assert_silent(&mut browser);
}

#[test]
fn a_large_network_is_small_on_the_page_and_drawn_whole() {
    let results = films::results("film-large", films::noise(500));
    let page = html(&[&results]);
    // Beside what every page has, three films of 512 directions and 500 frames, one of them nothing
    // but noise.
    let bare = html(&[&support::empty("film-large")]).len();
    assert!(page.len() - bare < 3_000_000, "{}", page.len() - bare);
    let mut browser = open("film-large", &results);
    let ways = format!("{FIGURE}.querySelectorAll('.way').length");
    assert_eq!(browser.evaluate(&ways), json!(512));
    press(&mut browser, "End");
    assert_eq!(frame(&mut browser), 499);
    assert_silent(&mut browser);
}

#[test]
fn what_is_too_large_to_be_drawn_says_so() {
    let mut film = films::noise(2);
    film.directions.extend(film.directions.clone());
    film.cells.extend(film.cells.clone());
    let page = html(&[&films::results("film-huge", film)]);
    assert!(page.contains("No picture of a network with 1024 link directions"));
    assert!(!page.contains("data-topology>"));
}
