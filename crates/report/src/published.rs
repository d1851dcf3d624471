//! Published figures beside ours, of many scenarios, as one page.

use std::{collections::BTreeSet, fmt::Write};

use sluicegate_scenario::{
    published::{self, SIZE, TOLERANCE},
    results::{PublishedResult, Results, Verdict},
    sweep::Outcome,
};

use crate::{comparison, markdown::rows, units};

/// Verdicts in the order of the summary.
const VERDICTS: [Verdict; 7] = [
    Verdict::Agrees,
    Verdict::Fitted,
    Verdict::Vacuous,
    Verdict::OrderingOnly,
    Verdict::DiffersInSize,
    Verdict::Differs,
    Verdict::Undecided,
];

/// What one scenario gives on the page: of its runs with several seeds together, or of its sweep.
pub struct Published<'a> {
    scenario: &'a str,
    mirrors: Option<&'a str>,
    world: &'a str,
    seeds: Vec<u64>,
    lines: Vec<PublishedResult>,
    /// Expectations by their names, and with how many of the seeds each held; of a sweep they are
    /// about all of them.
    expected: Vec<(&'a str, usize)>,
    /// How many times each expectation was judged.
    judged: usize,
}

impl<'a> Published<'a> {
    /// Of runs of one scenario in one world with different seeds.
    ///
    /// # Errors
    /// A line of another version of the program.
    pub fn of_runs(runs: &[&'a Results]) -> Result<Self, String> {
        let lines: Vec<&[PublishedResult]> = runs.iter().map(|r| r.published.as_slice()).collect();
        let first = runs.first().ok_or("there is no run")?;
        let held = |name: &str| {
            let all = runs.iter().flat_map(|results| &results.expectations);
            all.filter(|line| line.name == name && line.held).count()
        };
        let names = first.expectations.iter().map(|line| line.name.as_str());
        Ok(Self {
            scenario: &first.scenario,
            mirrors: first.mirrors.as_deref(),
            world: &first.world,
            seeds: runs.iter().map(|results| results.seed).collect(),
            lines: match lines.as_slice() {
                [only] => only.to_vec(),
                several => published::over_seeds(several).map_err(|why| why.to_string())?,
            },
            expected: names.map(|name| (name, held(name))).collect(),
            judged: runs.len(),
        })
    }

    /// Of a sweep.
    pub fn of_sweep(outcome: &'a Outcome) -> Self {
        let expected = outcome.expectations.iter();
        Self {
            scenario: &outcome.scenario,
            mirrors: outcome.mirrors.as_deref(),
            world: "sweep",
            seeds: outcome.seeds.clone(),
            lines: outcome.published.clone(),
            expected: expected
                .map(|line| (line.name.as_str(), usize::from(line.held)))
                .collect(),
            judged: 1,
        }
    }
}

/// Every published figure with ours, verdict and cause, as GitHub-flavoured Markdown; then what
/// became of expectations, which are the orderings that publications claim without a number.
pub fn published(scenarios: &[Published<'_>]) -> String {
    let claims: Vec<(&str, &PublishedResult)> = (scenarios.iter())
        .flat_map(|results| results.lines.iter().map(|line| (results.scenario, line)))
        .collect();
    let percent = units::percent(TOLERANCE);
    let mut text = format!(
        "# Published figures beside ours\n\n\
         - *agrees*: within {percent}.\n\
         - *fitted*: within {percent}, but the last column names what was chosen after it.\n\
         - *shows nothing*: within {percent}, but the last column names what gives this value in any case.\n\
         - *ordering only*: not within {percent}, but within {SIZE} times, and in the order of the other\n  \
         published figures of its kind.\n\
         - *differs in size*: in that order, but more than {SIZE} times as large or small.\n\
         - *differs*: neither.\n\
         - *undecided*: the 95% interval of the seeds' mean lies within {percent} in part only.\n\
         - Of several seeds the mean is judged, and stands with half of its interval. *agrees (2 of 3\n  \
         seeds)*: one seed by itself would be judged differently. A figure without an interval is the\n  \
         same with each seed.\n\
         - A run that several variants ask for is one run: what it gives counts once below for each\n  \
         verdict, and the last column names the line that has the same value.\n\n"
    );
    let count = |verdict| {
        let of_verdict = claims.iter().filter(|(_, line)| line.verdict == verdict);
        let measured = of_verdict
            .map(|(scenario, line)| (*scenario, line.same_as.as_ref().unwrap_or(&line.name)));
        measured.collect::<BTreeSet<_>>().len()
    };
    for verdict in VERDICTS {
        let _ = writeln!(text, "- {}: {}", verdict.words(), count(Some(verdict)));
    }
    if count(None) > 0 {
        let _ = writeln!(text, "- not measured: {}", count(None));
    }
    let changes = |(_, line): &&(&str, &PublishedResult)| {
        let first = line.by_seed.first();
        line.by_seed.iter().any(|seed| Some(seed) != first)
    };
    if claims.iter().any(|(_, line)| !line.by_seed.is_empty()) {
        let changing = claims.iter().filter(changes).count();
        let _ = writeln!(text, "- the verdict changes with the seed: {changing}");
    }
    let headings = ["scenario", "claim", "published", "ours", "verdict", "cause"];
    let claims: Vec<Vec<String>> = claims.into_iter().map(|(s, line)| claim(s, line)).collect();
    text += &rows(headings.map(str::to_owned).to_vec(), 2, &claims);
    text += "\nWhat is expected of each scenario:\n";
    let expected: Vec<Vec<String>> = scenarios.iter().map(expected).collect();
    let headings = ["scenario", "mirrors", "world", "seeds", "held", "broken"];
    text += &rows(headings.map(str::to_owned).to_vec(), 3, &expected);
    text
}

fn claim(scenario: &str, line: &PublishedResult) -> Vec<String> {
    vec![
        scenario.to_owned(),
        line.name.clone(),
        units::plain(line.published),
        comparison::ours(line).unwrap_or("–".to_owned()),
        comparison::verdict(line).unwrap_or("not measured".to_owned()),
        reasons(line),
    ]
}

/// Why ours differs, and what was chosen after the published figure, whatever the verdict.
fn reasons(line: &PublishedResult) -> String {
    use Verdict::{Differs, DiffersInSize, OrderingOnly, Undecided};
    let [cause, fitted, vacuous] = line.reasons();
    let cause = match (cause, line.verdict) {
        (Some(cause), _) => Some(cause.clone()),
        (None, Some(OrderingOnly | DiffersInSize | Differs | Undecided)) => {
            Some("unknown".to_owned())
        }
        (None, _) => None,
    };
    let fitted = fitted.map(|text| format!("fitted: {text}"));
    let vacuous = vacuous.map(|text| format!("shows nothing: {text}"));
    let same = (line.same_as.as_ref()).map(|first| format!("the same run as {first}"));
    let all: Vec<String> = cause
        .into_iter()
        .chain(fitted)
        .chain(vacuous)
        .chain(same)
        .collect();
    all.join("; ")
}

fn expected(results: &Published<'_>) -> Vec<String> {
    let (all, judged) = (&results.expected, results.judged);
    let broken = all.iter().filter(|(_, held)| *held < judged);
    let broken: Vec<String> = broken
        .map(|(name, held)| match judged {
            1 => (*name).to_owned(),
            _ => format!("{name} ({} of {judged} seeds)", judged - held),
        })
        .collect();
    let seeds: Vec<String> = results.seeds.iter().map(u64::to_string).collect();
    vec![
        results.scenario.to_owned(),
        results.mirrors.unwrap_or_default().to_owned(),
        results.world.to_owned(),
        seeds.join(", "),
        format!("{} of {}", all.len() - broken.len(), all.len()),
        broken.join(", "),
    ]
}
