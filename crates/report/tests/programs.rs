//! The table of parallel programs.

use sluicegate_report::markdown;
use sluicegate_scenario::results::{ProgramResult, VariantResult};

use crate::support;

fn variant(name: &str, on_crossbar: bool, digest: &str, completion_s: f64) -> VariantResult {
    let program = ProgramResult {
        ranks: 16,
        operations: 960,
        ended: 960,
        on_crossbar,
        digest: digest.to_owned(),
        completion_s: Some(completion_s),
        ..ProgramResult::default()
    };
    VariantResult {
        name: name.to_owned(),
        programs: [("all".to_owned(), program)].into(),
        ..VariantResult::default()
    }
}

/// The slowdown of each variant as the table has it.
fn slowdowns(variants: Vec<VariantResult>) -> Option<Vec<String>> {
    let mut results = support::dumbbell("programs", 5, 1);
    results.variants = variants;
    let text = markdown(&results);
    let cells = |line: &str| -> Vec<String> {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    let mut lines = text.lines().skip_while(|line| !line.contains("completion"));
    let headings = cells(lines.next()?);
    let column = headings.iter().position(|one| one.contains("x crossbar"))?;
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    Some(rows.map(|line| cells(line)[column].clone()).collect())
}

/// A program of as many operations with other sizes is another one.
#[test]
fn a_slowdown_is_against_the_same_program_on_the_crossbar() {
    let found = slowdowns(vec![
        variant("crossbar", true, "a", 2.0),
        variant("tree", false, "a", 3.0),
        variant("small-tree", false, "b", 0.3),
        variant("small-crossbar", true, "b", 0.2),
        variant("other", false, "c", 1.0),
    ]);
    let expected = ["1.00", "1.50", "1.50", "1.00", "–"];
    assert_eq!(found.unwrap(), expected);
}

#[test]
fn without_a_crossbar_there_is_no_slowdown() {
    let star = [variant("alone", false, "a", 2.0)];
    assert_eq!(slowdowns(star.into()), None);
    // Files of earlier versions do not say which program it was.
    let old = [variant("crossbar", true, "", 2.0)];
    assert_eq!(slowdowns(old.into()), None);
}

/// A crossbar that is slower at its hosts is no ideal; of faster ones the nearest is.
#[test]
fn a_crossbar_has_the_rate_of_the_hosts() {
    let with = |name, on_crossbar, rate_bps, completion_s| {
        let mut one = variant(name, on_crossbar, "a", completion_s);
        let programs = one.programs.values_mut();
        programs.for_each(|program| program.host_rate_bps = rate_bps);
        one
    };
    let found = slowdowns(vec![
        with("fast-crossbar", true, 25, 1.0),
        with("crossbar", true, 10, 2.0),
        with("tree", false, 10, 3.0),
        with("fast-tree", false, 25, 1.5),
        with("slow-tree", false, 1, 20.0),
        with("fastest-tree", false, 100, 1.0),
    ]);
    let expected = ["1.00", "1.00", "1.50", "1.50", "10.00", "–"];
    assert_eq!(found.unwrap(), expected);
}
