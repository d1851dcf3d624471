//! The page of a sweep in a real browser: it draws, is arranged anew, sorts, stays silent and asks
//! no network.

use std::path::Path;

use serde_json::json;
use sluicegate_report::sweep::html;
use sluicegate_scenario::sweep::{AxisNames, CellFigures, CellResult, Outcome, SCHEMA, Summary};
use support::browser::Browser;

use crate::support;

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

/// Two axes of two values and two variants, two figures.
fn outcome() -> Outcome {
    let mut cells = Vec::new();
    for (index, (rate, queue, variant)) in [
        ("1Gbit", "30KB", "plain"),
        ("1Gbit", "30KB", "enforced"),
        ("1Gbit", "90KB", "plain"),
        ("1Gbit", "90KB", "enforced"),
        ("10Gbit", "30KB", "plain"),
        ("10Gbit", "30KB", "enforced"),
        ("10Gbit", "90KB", "plain"),
        ("10Gbit", "90KB", "enforced"),
    ]
    .into_iter()
    .enumerate()
    {
        let mean = 100.0 * (8 - index) as f64;
        let figure = |unit: &str, values: &[f64]| CellFigures {
            unit: unit.to_owned(),
            summary: Summary::of(values).unwrap(),
        };
        cells.push(CellResult {
            values: names(&[rate, queue]),
            variant: variant.to_owned(),
            figures: [
                ("goodput_bps.jain".to_owned(), figure("1", &[0.5])),
                ("rtt_us.p50".to_owned(), figure("us", &[mean, mean + 10.0])),
            ]
            .into(),
        });
    }
    let axis = |name: &str, values: &[&str]| AxisNames {
        name: name.to_owned(),
        values: names(values),
    };
    Outcome {
        schema: SCHEMA,
        scenario: "page".to_owned(),
        title: "A <b>page</b>".to_owned(),
        mirrors: None,
        version: "0.1.0".to_owned(),
        build: "b".to_owned(),
        seeds: vec![1, 2],
        axes: vec![
            axis("network.rate", &["1Gbit", "10Gbit"]),
            axis("network.queue", &["30KB", "90KB"]),
        ],
        variants: names(&["plain", "enforced"]),
        chosen: Vec::new(),
        cells,
        failed: Vec::new(),
        outside: Default::default(),
        expectations: Vec::new(),
        published: Vec::new(),
        notes: Vec::new(),
        runs: Vec::new(),
    }
}

/// Bars of the page, by their colours.
const BARS: &str = "[...document.querySelectorAll('#bars svg path')].filter(p => /^(#0072b2|#d55e00)$/i.test(p.getAttribute('fill'))).length";
/// Whiskers: a line and two caps each.
const WHISKERS: &str = "[...document.querySelectorAll('#bars svg path')].filter(p => p.getAttribute('stroke-width') === '1.4').length";

fn choose(browser: &mut Browser, select: &str, value: &str) {
    let place = format!("document.querySelector('[data-select={select}]')");
    browser.evaluate(&format!(
        "{place}.value = {value:?}; {place}.dispatchEvent(new Event('change'))"
    ));
}

#[test]
fn bars_are_drawn_arranged_anew_and_the_table_sorts() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sweep-page");
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("index.html");
    std::fs::write(&file, html(&outcome())).unwrap();
    let mut browser = Browser::start(&directory);
    browser.look(1400, 3000, "light");
    browser.open(&file);
    let panels = "document.querySelectorAll('#bars figure').length";
    // Rates are groups, variants colours, queues panels; a figure with one run has no whisker.
    // A legend has a mark for each of two colours in each of two panels.
    browser.wait_for(&format!("{panels} === 2 && {BARS} === 8 + 4"));
    assert_eq!(browser.evaluate(WHISKERS), json!(0));
    choose(&mut browser, "figure", "1");
    browser.wait_for(&format!("{WHISKERS} === 8 * 3"));
    choose(&mut browser, "facet", "");
    browser.wait_for(&format!("{panels} === 1 && {BARS} === 4 + 2"));
    assert_eq!(
        browser.evaluate("document.querySelector('[data-held=\"1\"]').hidden"),
        json!(false)
    );
    choose(&mut browser, "group", "1");
    browser.wait_for("document.querySelector('#bars svg').textContent.includes('network.queue')");

    let first = "document.querySelector('#cells tbody tr').textContent";
    let heading = "document.querySelectorAll('#cells thead button')[4]";
    browser.evaluate(&format!("{heading}.click()"));
    let text = browser.evaluate(first);
    assert!(
        text.as_str().unwrap().starts_with("10Gbit90KBenforced"),
        "{text}"
    );
    browser.evaluate(&format!("{heading}.click()"));
    let text = browser.evaluate(first);
    assert!(
        text.as_str().unwrap().starts_with("1Gbit30KBplain"),
        "{text}"
    );

    assert_eq!(browser.complaints(), Vec::<String>::new());
    assert_eq!(browser.requests(), [format!("file://{}", file.display())]);
}
