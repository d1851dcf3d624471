//! The report in a real browser: it draws, reacts, stays silent and asks no network.

mod support;

use std::path::{Path, PathBuf};

use serde_json::json;
use sluicegate_report::html;
use support::browser::Browser;

/// A report of two scenarios, as the demo writes it, opened in a browser.
fn open(name: &str, height: u32) -> (Browser, PathBuf) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).unwrap();
    let (first, second) = (
        support::dumbbell("five-stacks", 5, 20),
        support::incast("incast-16"),
    );
    let file = directory.join("report.html");
    std::fs::write(&file, html(&[&first, &second])).unwrap();
    let mut browser = Browser::start(&directory);
    browser.look(1400, height, "light");
    browser.open(&file);
    (browser, file)
}

/// How many paths draw data: axes and grid lines are single strokes, curves have many points.
fn drawn(figure: &str) -> String {
    format!(
        "[...document.querySelectorAll('{figure} .canvas svg path')].filter(p => p.getAttribute('d').length > 300).length"
    )
}

const RTT: &str = "#scenario-0 [data-plot=rtt]";

#[test]
fn every_plot_draws_without_a_complaint_or_a_request() {
    // Tall enough that all plots are in view.
    let (mut browser, file) = open("all-plots", 9000);
    browser.wait_for("[...document.querySelectorAll('figure[data-plot] .canvas')].every(c => c.querySelector('svg path'))");
    let sizes = browser.evaluate(
        "[...document.querySelectorAll('figure[data-plot] .canvas svg')].map(s => s.getBoundingClientRect()).map(r => [r.width, r.height])",
    );
    let sizes = sizes.as_array().unwrap();
    // Two scenarios of RTT, queue, four panels of goodput and windows; two classes of completion times.
    assert_eq!(sizes.len(), 2 * 7 + 2);
    for size in sizes {
        assert!(
            size[0].as_f64() > Some(300.0) && size[1].as_f64() > Some(200.0),
            "{size}"
        );
    }
    assert_eq!(
        browser.evaluate(&drawn(RTT)),
        json!(4),
        "one curve per variant"
    );
    assert_eq!(
        browser.evaluate(&drawn("#scenario-0 [data-panel=\"3\"]")),
        json!(5),
        "one line per flow"
    );
    assert_eq!(
        browser.evaluate(&drawn("#scenario-1 [data-panel=\"3\"]")),
        json!(16),
        "one line per flow"
    );
    assert_eq!(browser.complaints(), Vec::<String>::new());
    assert_eq!(browser.requests(), [format!("file://{}", file.display())]);
}

#[test]
fn hiding_a_variant_removes_it_from_all_plots_of_the_scenario() {
    let (mut browser, _) = open("legend", 9000);
    let (queue, other) = (
        "#scenario-0 [data-plot=queue]",
        "#scenario-1 [data-plot=rtt]",
    );
    browser.wait_for(&format!(
        "{} === 4 && {} === 4 && {} === 4",
        drawn(RTT),
        drawn(queue),
        drawn(other)
    ));
    let button = "document.querySelector('#scenario-0 .legend button[data-variant=\"0\"]')";
    browser.evaluate(&format!("{button}.click()"));
    browser.wait_for(&format!("{} === 3 && {} === 3", drawn(RTT), drawn(queue)));
    assert_eq!(
        browser.evaluate(&drawn(other)),
        json!(4),
        "another scenario keeps it"
    );
    assert_eq!(
        browser.evaluate(&format!("{button}.getAttribute('aria-pressed')")),
        json!("false")
    );
    assert_eq!(
        browser.evaluate("document.querySelector('#scenario-0 [data-panel=\"0\"]').hidden"),
        json!(true)
    );
    browser.evaluate(&format!("{button}.click()"));
    browser.wait_for(&format!("{} === 4", drawn(RTT)));
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
