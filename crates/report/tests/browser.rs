//! The report in a real browser: it draws, reacts, stays silent and asks no network.

use std::path::{Path, PathBuf};

use serde_json::json;
use sluicegate_report::{
    compare::{self, Run, Side, Tolerances},
    html,
};
use sluicegate_scenario::results::{Results, Trace, TraceKind};
use support::browser::Browser;

use crate::support;

/// High enough that all plots are in view and therefore drawn.
const HEIGHT: u32 = 9000;

const RTT: &str = "#scenario-0 [data-plot=rtt]";
const QUEUE: &str = "#scenario-0 [data-plot=queue]";
const WINDOWS: &str = "#scenario-0 [data-plot=windows]";

/// A report of these scenarios, opened in a browser; `name` is a directory of its own.
fn open(name: &str, results: &[&Results]) -> (Browser, PathBuf) {
    open_page(name, &html(results))
}

fn open_page(name: &str, page: &str) -> (Browser, PathBuf) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("report.html");
    std::fs::write(&file, page).unwrap();
    let mut browser = Browser::start(&directory);
    browser.look(1400, HEIGHT, "light");
    browser.open(&file);
    (browser, file)
}

/// A comparison of directories that hold these scenarios, opened in a browser.
fn open_comparison(name: &str, sides: &[&[&Results]]) -> (Browser, PathBuf) {
    let run = |results: &&Results| Run {
        results: (*results).clone(),
        as_run: None,
    };
    let side = |all: &&[&Results]| Side {
        directory: "out/<i>".into(),
        runs: all.iter().map(run).collect(),
    };
    let sides: Vec<Side> = sides.iter().map(side).collect();
    let comparison = compare::compare(&sides, Tolerances::default());
    open_page(name, &compare::html(&comparison, &sides))
}

/// The two scenarios that the demo has.
fn demo() -> (Results, Results) {
    (
        support::dumbbell("five-stacks", 5, 20),
        support::incast("incast-16"),
    )
}

/// The lines that draw data: grid lines are single strokes, curves have many points, bands no
/// stroke.
fn curves(figure: &str) -> String {
    format!(
        "[...document.querySelectorAll('{figure} .canvas svg path')]\
         .filter(p => p.getAttribute('d').length > 300 && p.hasAttribute('stroke'))"
    )
}

/// How many there are.
fn drawn(figure: &str) -> String {
    curves(figure) + ".length"
}

/// All texts of a plot: labels of axes.
fn labels(figure: &str) -> String {
    format!(
        "[...document.querySelectorAll('{figure} .canvas svg text')].map(t => t.textContent).join('|')"
    )
}

fn assert_silent(browser: &mut Browser) {
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn every_plot_draws_without_a_complaint_or_a_request() {
    let (first, second) = demo();
    let (mut browser, file) = open("all-plots", &[&first, &second]);
    let places = "[...document.querySelectorAll('figure[data-plot] .canvas')]";
    browser.wait_for(&format!("{places}.every(c => c.querySelector('svg path'))"));
    let sizes = browser.evaluate(&format!(
        "{places}.map(c => c.querySelector('svg').getBoundingClientRect()).map(r => [r.width, r.height])"
    ));
    let sizes = sizes.as_array().unwrap();
    // Two scenarios of RTT, queue, four panels of goodput and windows; two classes of completion
    // times.
    assert_eq!(sizes.len(), 2 * 7 + 2);
    for size in sizes {
        let (width, height) = (size[0].as_f64(), size[1].as_f64());
        assert!(width > Some(250.0) && height > Some(200.0), "{size}");
    }
    let expected = [
        (RTT, 4),
        (QUEUE, 4),
        ("#scenario-0 [data-panel=\"3\"]", 5),
        ("#scenario-1 [data-panel=\"3\"]", 16),
        ("#scenario-1 [data-plot=fct][data-index=\"1\"]", 4),
        (WINDOWS, 3),
    ];
    for (figure, lines) in expected {
        assert_eq!(browser.evaluate(&drawn(figure)), json!(lines), "{figure}");
    }
    assert_silent(&mut browser);
    assert_eq!(
        browser.requests(),
        [format!("file://{}", file.display())],
        "the page itself and nothing else"
    );
}

#[test]
fn hiding_a_variant_removes_it_from_all_plots_of_its_scenario() {
    let (first, second) = demo();
    let (mut browser, _) = open("legend", &[&first, &second]);
    let other = "#scenario-1 [data-plot=rtt]";
    browser.wait_for(&format!(
        "{} === 4 && {} === 4 && {} === 4",
        drawn(RTT),
        drawn(QUEUE),
        drawn(other)
    ));
    let button = "document.querySelector('#scenario-0 .legend button[data-variant=\"0\"]')";
    browser.evaluate(&format!("{button}.click()"));
    browser.wait_for(&format!("{} === 3 && {} === 3", drawn(RTT), drawn(QUEUE)));
    assert_eq!(browser.evaluate(&drawn(other)), json!(4));
    let panel = "document.querySelector('#scenario-0 [data-panel=\"0\"]').hidden";
    assert_eq!(browser.evaluate(panel), json!(true));
    let pressed = format!("{button}.getAttribute('aria-pressed')");
    assert_eq!(browser.evaluate(&pressed), json!("false"));
    browser.evaluate(&format!("{button}.click()"));
    browser.wait_for(&format!("{} === 4", drawn(RTT)));
    assert_silent(&mut browser);
}

#[test]
fn a_drag_zooms_and_a_double_click_resets() {
    let (first, _) = demo();
    let (mut browser, _) = open("zoom", &[&first]);
    browser.wait_for(&format!("{} === 4", drawn(RTT)));
    let before = browser.evaluate(&labels(RTT));
    let place = browser.evaluate(&format!(
        "(r => [r.x, r.y])(document.querySelector('{RTT} .canvas').getBoundingClientRect())"
    ));
    let (x, y) = (place[0].as_f64().unwrap(), place[1].as_f64().unwrap());
    browser.drag((x + 200.0, y + 100.0), (x + 300.0, y + 200.0));
    browser.wait_for(&format!("{} !== {before}", labels(RTT)));
    browser.double_click((x + 300.0, y + 150.0));
    browser.wait_for(&format!("{} === {before}", labels(RTT)));
    assert_silent(&mut browser);
}

#[test]
fn buttons_and_lists_change_the_plot() {
    let (first, _) = demo();
    let (mut browser, _) = open("controls", &[&first]);
    browser.wait_for(&format!("{} === 4 && {} === 3", drawn(RTT), drawn(WINDOWS)));
    let before = browser.evaluate(&labels(RTT));
    browser.evaluate(&format!(
        "document.querySelector('{RTT} [data-toggle=tail]').click()"
    ));
    browser.wait_for(&format!("{} !== {before}", labels(RTT)));
    assert_eq!(browser.evaluate(&drawn(RTT)), json!(4));

    let choose = |list: &str, value: &str| {
        format!(
            "(s => {{ s.value = '{value}'; s.dispatchEvent(new Event('change')); }})\
             (document.querySelector('{WINDOWS} [data-select={list}]'))"
        )
    };
    let shape = format!("{}.map(p => p.getAttribute('d')).join()", curves(WINDOWS));
    let before = browser.evaluate(&shape);
    browser.evaluate(&choose("flow", "3 left3>right3"));
    browser.wait_for(&format!("{shape} !== {before}"));
    // Without enforcement there is only the tenant's own window.
    browser.evaluate(&choose("variant", "0"));
    browser.wait_for(&format!("{} === 1", drawn(WINDOWS)));
    let kept = format!("document.querySelector('{WINDOWS} [data-select=flow]').value");
    assert_eq!(browser.evaluate(&kept), json!("3 left3>right3"));
    assert_silent(&mut browser);
}

/// A window of each flow and a queue, of two repeats.
fn traced() -> Results {
    let mut results = support::dumbbell("traced", 5, 5);
    for variant in &mut results.variants {
        let flow = |id: u32| (TraceKind::Cwnd, format!("{id} left{id}>right{id}"), id);
        let all = (0..5).map(flow);
        let queue = (TraceKind::AllQueues, "left>right".to_owned(), 3);
        for (repeat, (kind, name, height)) in all
            .chain([queue])
            .flat_map(|trace| [(1, trace.clone()), (2, trace)])
        {
            let value = |n: u32| f64::from((n * 7 + height * 1000 * repeat) % 4_001 + 20_000);
            let points = (0..400).map(|n| (f64::from(n) * 1e-4, value(n))).collect();
            let trace = Trace {
                repeat,
                kind,
                name,
                points,
            };
            variant.samples.traces.push(trace);
        }
    }
    results
}

#[test]
fn traces_have_a_plot_of_each_kind_with_lists_to_choose_from() {
    const CWND: &str = "#scenario-0 [data-kind=cwnd_bytes]";
    let (mut browser, _) = open("traces", &[&traced()]);
    let figures = "document.querySelectorAll('figure[data-plot=trace]').length";
    assert_eq!(browser.evaluate(figures), json!(2));
    let queue = drawn("#scenario-0 [data-kind=queue_bytes]");
    // One repeat of two.
    browser.wait_for(&format!("{} === 5 && {queue} === 1", drawn(CWND)));
    let choose = |list: &str, value: &str| {
        format!(
            "(s => {{ s.value = '{value}'; s.dispatchEvent(new Event('change')); }})\
             (document.querySelector('{CWND} [data-select={list}]'))"
        )
    };
    browser.evaluate(&choose("line", "2 left2>right2"));
    browser.wait_for(&format!("{} === 1", drawn(CWND)));
    browser.evaluate(&choose("variant", "1"));
    let kept = format!("document.querySelector('{CWND} [data-select=line]').value");
    assert_eq!(browser.evaluate(&kept), json!("2 left2>right2"));
    browser.evaluate(&choose("line", ""));
    browser.wait_for(&format!("{} === 5", drawn(CWND)));
    // A run of 40 ms fills its plot; its end has no label.
    let labelled = |text: &str| format!("{}.split('|').includes('{text}')", labels(CWND));
    assert_eq!(browser.evaluate(&labelled("0.03")), json!(true));
    assert_eq!(browser.evaluate(&labelled("0.05")), json!(false));
    assert_silent(&mut browser);
}

#[test]
fn plots_follow_the_colour_scheme() {
    let (first, _) = demo();
    let (mut browser, _) = open("scheme", &[&first]);
    browser.wait_for(&format!("{} === 4", drawn(RTT)));
    let stroke = format!("{}[0].getAttribute('stroke')", curves(RTT));
    let light = browser.evaluate(&stroke);
    browser.look(1400, HEIGHT, "dark");
    browser.wait_for(&format!("{stroke} !== {light}"));
    assert_silent(&mut browser);
}

#[test]
fn names_are_text_wherever_they_appear() {
    const NAME: &str = "</script><img src=x onerror=alert(1)>\"'&amp;<!--";
    let mut results = support::dumbbell(NAME, 2, 5);
    results.title = NAME.into();
    results.conditions.notes.push(NAME.into());
    results.expectations[0].expression = NAME.into();
    for variant in &mut results.variants {
        variant.name = NAME.into();
        variant.flows[0].tenant = NAME.into();
        variant.links[0].id = NAME.into();
        variant
            .samples
            .fct_us
            .insert(NAME.into(), vec![1.0, 2.0, 3.0]);
        for series in variant
            .samples
            .series
            .iter_mut()
            .filter(|s| s.name == "left>right")
        {
            series.name = NAME.into();
        }
    }
    let (mut browser, file) = open("hostile", &[&results]);
    browser.wait_for(&format!("{} > 0", drawn(RTT)));
    browser.evaluate(&format!(
        "document.querySelector('{RTT} .canvas').scrollIntoView()"
    ));
    assert_eq!(browser.evaluate("document.images.length"), json!(0));
    assert_eq!(
        browser.evaluate("document.querySelector('h1').textContent"),
        json!(NAME)
    );
    let place = browser.evaluate(&format!(
        "(r => [r.x, r.y])(document.querySelector('{RTT} .canvas').getBoundingClientRect())"
    ));
    let (x, y) = (place[0].as_f64().unwrap(), place[1].as_f64().unwrap());
    browser.mouse("mouseMoved", (x + 200.0, y + 100.0), "none");
    browser.mouse("mouseMoved", (x + 210.0, y + 110.0), "none");
    browser.wait_for("document.querySelector('.tip td')?.textContent.includes('onerror') === true");
    assert_eq!(browser.evaluate("document.images.length"), json!(0));
    assert_silent(&mut browser);
    assert_eq!(browser.requests(), [format!("file://{}", file.display())]);
}

#[test]
fn without_samples_the_tables_stand_and_the_plots_say_why_not() {
    let mut results = support::dumbbell("from-file", 5, 5);
    for variant in &mut results.variants {
        variant.samples = Default::default();
    }
    let (mut browser, _) = open("no-samples", &[&results, &support::empty("nothing")]);
    assert_eq!(
        browser.evaluate("document.querySelectorAll('figure').length"),
        json!(0)
    );
    assert_eq!(
        browser.evaluate("document.querySelectorAll('.no-data').length"),
        json!(2)
    );
    let rows = "document.querySelectorAll('#scenario-0 table')[0].tBodies[0].rows.length";
    assert_eq!(browser.evaluate(rows), json!(4));
    assert_silent(&mut browser);
}

#[test]
fn a_comparison_draws_every_side_over_the_other() {
    let (first, second) = demo();
    let mut other = first.clone();
    other.world = "sim".into();
    other.variants.remove(1);
    let (mut browser, file) =
        open_comparison("comparison", &[&[&first, &second], &[&other, &second]]);
    let fct = "#scenario-1 [data-plot=fct][data-index=\"1\"]";
    // Three variants, four of the other scenario, each of both sides.
    browser.wait_for(&format!("{} === 6 && {} === 8", drawn(RTT), drawn(fct)));
    let dashed = format!(
        "{}.filter(p => p.getAttribute('stroke-dasharray')).length",
        curves(RTT)
    );
    assert_eq!(browser.evaluate(&dashed), json!(3));
    for (button, left) in [("data-side=\"1\"", 3), ("data-variant=\"0\"", 2)] {
        let click =
            format!("document.querySelector('#scenario-0 .legend button[{button}]').click()");
        browser.evaluate(&click);
        browser.wait_for(&format!("{} === {left}", drawn(RTT)));
    }
    assert_eq!(browser.evaluate(&drawn(fct)), json!(8));
    assert_eq!(
        browser.evaluate("document.querySelectorAll('i').length"),
        json!(0)
    );
    assert_silent(&mut browser);
    assert_eq!(browser.requests(), [format!("file://{}", file.display())]);
}

#[test]
fn a_comparison_without_samples_has_tables() {
    let mut results = support::dumbbell("from-file", 5, 5);
    for variant in &mut results.variants {
        variant.samples = Default::default();
    }
    let (mut browser, _) = open_comparison("comparison-tables", &[&[&results], &[&results]]);
    let count = |what: &str| format!("document.querySelectorAll('{what}').length");
    assert_eq!(browser.evaluate(&count("figure")), json!(0));
    assert_eq!(browser.evaluate(&count("#scenario-0 .no-data")), json!(1));
    assert_eq!(
        browser.evaluate(&count("#scenario-0 .orders tbody tr")),
        json!(4)
    );
    assert_silent(&mut browser);
}

#[test]
fn the_browser_reports_what_a_page_complains_of() {
    let (mut browser, _) = open("complaints", &[&support::empty("nothing")]);
    browser.evaluate("console.error('loud'); fetch('http://127.0.0.1:9/').catch(() => 0)");
    let complaints = browser.complaints();
    assert!(
        complaints.iter().any(|c| c.contains("loud")),
        "{complaints:?}"
    );
    assert!(
        complaints
            .iter()
            .any(|c| c.contains("Content Security Policy")),
        "{complaints:?}"
    );
}
