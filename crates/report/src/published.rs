//! Published figures beside ours, of many scenarios, as one page.

use std::fmt::Write;

use sluicegate_scenario::{
    published::TOLERANCE,
    results::{PublishedResult, Results, Verdict},
};

use crate::{markdown::rows, units};

/// Verdicts in the order of the summary.
const VERDICTS: [Verdict; 4] = [
    Verdict::Agrees,
    Verdict::Fitted,
    Verdict::OrderingOnly,
    Verdict::Differs,
];

/// Every published figure with ours, verdict and cause, as GitHub-flavoured Markdown; then what
/// became of expectations, which are the orderings that publications claim without a number.
pub fn published(scenarios: &[&Results]) -> String {
    let claims: Vec<(&Results, &PublishedResult)> = (scenarios.iter())
        .flat_map(|results| results.published.iter().map(|line| (*results, line)))
        .collect();
    let percent = units::percent(TOLERANCE);
    let mut text = format!(
        "# Published figures beside ours\n\n\
         - *agrees*: within {percent}.\n\
         - *fitted*: within {percent}, but what the cause names was chosen after this figure.\n\
         - *ordering only*: not within {percent}, but in the order of the other published figures of its kind.\n\
         - *differs*: neither.\n\n"
    );
    let count = |verdict| {
        claims
            .iter()
            .filter(|(_, line)| line.verdict == verdict)
            .count()
    };
    for verdict in VERDICTS {
        let _ = writeln!(text, "- {}: {}", verdict.words(), count(Some(verdict)));
    }
    if count(None) > 0 {
        let _ = writeln!(text, "- not measured: {}", count(None));
    }
    let headings = ["scenario", "claim", "published", "ours", "verdict", "cause"];
    let claims: Vec<Vec<String>> = claims.into_iter().map(|(r, line)| claim(r, line)).collect();
    text += &rows(headings.map(str::to_owned).to_vec(), 2, &claims);
    text += "\nWhat is expected of each scenario:\n";
    let expected: Vec<Vec<String>> = scenarios.iter().map(|results| expected(results)).collect();
    let headings = ["scenario", "mirrors", "world", "seed", "held", "broken"];
    text += &rows(headings.map(str::to_owned).to_vec(), 3, &expected);
    text
}

fn claim(results: &Results, line: &PublishedResult) -> Vec<String> {
    let cause = match (&line.cause, line.verdict) {
        (Some(cause), _) => cause.clone(),
        (None, Some(Verdict::OrderingOnly | Verdict::Differs)) => "unknown".to_owned(),
        (None, _) => String::new(),
    };
    vec![
        results.scenario.clone(),
        line.name.clone(),
        units::plain(line.published),
        line.ours.map_or("–".to_owned(), units::plain),
        line.verdict
            .map_or("not measured", Verdict::words)
            .to_owned(),
        cause,
    ]
}

fn expected(results: &Results) -> Vec<String> {
    let all = &results.expectations;
    let broken: Vec<&str> = (all.iter().filter(|line| !line.held))
        .map(|line| line.name.as_str())
        .collect();
    vec![
        results.scenario.clone(),
        results.mirrors.clone().unwrap_or_default(),
        results.world.clone(),
        results.seed.to_string(),
        format!("{} of {}", all.len() - broken.len(), all.len()),
        broken.join(", "),
    ]
}
