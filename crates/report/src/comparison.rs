//! The comparison of variants as grids of text, the same for the terminal, Markdown and HTML.

use std::collections::BTreeMap;

use sluicegate_scenario::results::{
    Conditions, FctQuantiles, ProgramResult, PublishedResult, Results, VariantResult, Verdict,
};

use crate::{
    figures::{self, Figure, drops},
    units,
};

/// Written where nothing was measured.
pub const NOTHING: &str = "–";

/// Queues that an alarm names at most.
const QUEUES_NAMED: usize = 8;

/// Heading of a column: what, and in which unit or quantile.
#[derive(Clone, Debug, PartialEq)]
pub struct Heading {
    /// The contents of the column, such as `RTT p99`.
    pub what: String,
    /// Unit; may be empty.
    pub unit: String,
}

/// Rows of text under headings; the first `labels` columns are names, the others figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// One per column.
    pub headings: Vec<Heading>,
    /// Each as long as `headings`.
    pub rows: Vec<Vec<String>>,
    /// Leading columns that hold names.
    pub labels: usize,
}

/// Collects columns, then turns them into rows.
pub struct Columns {
    headings: Vec<Heading>,
    cells: Vec<Vec<String>>,
}

impl Columns {
    /// None yet.
    pub fn new() -> Self {
        Columns {
            headings: Vec::new(),
            cells: Vec::new(),
        }
    }

    /// Adds a column; all have the same number of cells.
    pub fn push(&mut self, what: &str, unit: &str, cells: Vec<String>) {
        self.headings.push(Heading {
            what: what.into(),
            unit: unit.into(),
        });
        self.cells.push(cells);
    }

    /// A column per figure, figures of one dimension in one unit; what was not measured is a dash.
    fn figures<T>(&mut self, figures: &[Figure<T>], rows: &[&T]) {
        for figure in figures {
            let same = figures.iter().filter(|f| f.dimension == figure.dimension);
            let values = same.flat_map(|f| rows.iter().filter_map(|row| (f.value)(row)));
            let scale = figure.dimension.scale(values);
            let write = |row: &&T| (figure.value)(row).map_or(NOTHING.into(), |v| scale.write(v));
            self.push(
                figure.what,
                scale.symbol(),
                rows.iter().map(write).collect(),
            );
        }
    }

    /// The rows without columns in which nothing was measured; `None` if only the first `labels`
    /// columns, which are names, are left.
    fn into_measured(mut self, labels: usize) -> Option<Grid> {
        let is_kept = |(index, cells): (usize, &Vec<String>)| {
            index < labels || cells.iter().any(|cell| cell != NOTHING)
        };
        let kept: Vec<bool> = self.cells.iter().enumerate().map(is_kept).collect();
        let (mut of_headings, mut of_cells) = (kept.iter(), kept.iter());
        self.headings.retain(|_| of_headings.next() == Some(&true));
        self.cells.retain(|_| of_cells.next() == Some(&true));
        (self.cells.len() > labels).then(|| self.into_grid(labels))
    }

    /// The rows; the first `labels` columns are names.
    pub fn into_grid(self, labels: usize) -> Grid {
        let height = self.cells.first().map_or(0, Vec::len);
        let row = |y: usize| self.cells.iter().map(|column| column[y].clone()).collect();
        Grid {
            rows: (0..height).map(row).collect(),
            headings: self.headings,
            labels,
        }
    }
}

/// One row per variant: goodput, fairness, RTT, and the bottleneck queue. Of several scenarios each
/// row also names its own. Figures that no variant has are left out; `None` if that is all.
///
/// With several bottleneck queues, drops and marks are summed and the queue is the one with the
/// largest p99.
pub fn variants(scenarios: &[&Results]) -> Option<Grid> {
    let all: Vec<_> = scenarios.iter().flat_map(|r| &r.variants).collect();
    let mut columns = Columns::new();
    let labels = scenario_column(&mut columns, scenarios, |r| r.variants.len()) + 1;
    columns.push("variant", "", all.iter().map(|v| v.name.clone()).collect());
    columns.figures(&figures::VARIANT, &all);
    if all.iter().any(|v| v.cpu_idle_min.is_some()) {
        let idle = |v: &&VariantResult| v.cpu_idle_min.map_or(NOTHING.into(), units::percent);
        columns.push("CPU idle", "min", all.iter().map(idle).collect());
    }
    columns.into_measured(labels)
}

/// Where there are several scenarios, a column with the name of each, once in its `rows` rows.
/// Returns how many columns that made.
fn scenario_column(
    columns: &mut Columns,
    scenarios: &[&Results],
    rows: impl Fn(&Results) -> usize,
) -> usize {
    if scenarios.len() < 2 {
        return 0;
    }
    let cells = scenarios.iter().flat_map(|results| {
        let name = |row| match row {
            0 => results.scenario.clone(),
            _ => String::new(),
        };
        (0..rows(results)).map(name).collect::<Vec<_>>()
    });
    columns.push("scenario", "", cells.collect());
    1
}

/// Whether any was begun.
pub(crate) fn has_flows(fct: &FctQuantiles) -> bool {
    fct.count > 0 || fct.unfinished > 0
}

/// A scenario's completion times: class, variant, figures.
fn completions_of(results: &Results) -> Vec<(&str, &str, &FctQuantiles)> {
    let mut rows: BTreeMap<&str, Vec<(&str, _)>> = BTreeMap::new();
    for variant in &results.variants {
        for (class, fct) in variant.fct_us.iter().filter(|(_, fct)| has_flows(fct)) {
            rows.entry(class).or_default().push((&variant.name, fct));
        }
    }
    rows.into_iter()
        .flat_map(|(class, list)| list.into_iter().map(move |(v, fct)| (class, v, fct)))
        .collect()
}

/// Flow completion times, a row per class and variant; `None` when no variant has any.
pub fn completions(scenarios: &[&Results]) -> Option<Grid> {
    let all: Vec<_> = scenarios.iter().flat_map(|r| completions_of(r)).collect();
    if all.is_empty() {
        return None;
    }
    let mut columns = Columns::new();
    let labels = scenario_column(&mut columns, scenarios, |r| completions_of(r).len()) + 2;
    columns.push(
        "FCT class",
        "",
        all.iter().map(|(class, ..)| class.to_string()).collect(),
    );
    columns.push(
        "variant",
        "",
        all.iter()
            .map(|(_, variant, _)| variant.to_string())
            .collect(),
    );
    let rows: Vec<_> = all.iter().map(|(.., fct)| *fct).collect();
    let [others @ .., missed] = &figures::COMPLETION;
    columns.figures(others, &rows);
    if rows.iter().any(|fct| fct.missed.is_some()) {
        columns.figures(std::slice::from_ref(missed), &rows);
    }
    columns.into_measured(labels)
}

/// Parallel programs, a row per program and variant; `None` without any. `x crossbar` is the
/// completion over that of the variant on the crossbar whose program is the same and whose hosts'
/// links have the same rate, or else the next higher one; of several the first.
pub fn programs(scenarios: &[&Results]) -> Option<Grid> {
    let of = |results: &'_ Results| -> Vec<(String, String, ProgramResult, Option<f64>)> {
        let all = || results.variants.iter();
        let rows = all().flat_map(|variant| {
            variant.programs.iter().map(|(name, program)| {
                let ideal = all()
                    .filter_map(|other| other.programs.get(name))
                    .filter(|other| {
                        let same = !other.digest.is_empty() && other.digest == program.digest;
                        let is_ideal = other.host_rate_bps >= program.host_rate_bps;
                        other.on_crossbar && same && is_ideal
                    })
                    .min_by_key(|other| other.host_rate_bps);
                let ideal_s = ideal.and_then(|ideal| ideal.completion_s);
                (name.clone(), variant.name.clone(), program.clone(), ideal_s)
            })
        });
        rows.collect()
    };
    let all: Vec<_> = scenarios.iter().flat_map(|results| of(results)).collect();
    if all.is_empty() {
        return None;
    }
    let mut columns = Columns::new();
    let labels = scenario_column(&mut columns, scenarios, |results| of(results).len()) + 2;
    columns.push("program", "", all.iter().map(|row| row.0.clone()).collect());
    columns.push("variant", "", all.iter().map(|row| row.1.clone()).collect());
    let ms = |seconds: Option<f64>| seconds.map_or(NOTHING.into(), |s| units::plain(s * 1e3));
    let mut column = |what, unit, write: &dyn Fn(&ProgramResult, Option<f64>) -> String| {
        let cells = all
            .iter()
            .map(|(.., program, ideal_s)| write(program, *ideal_s));
        columns.push(what, unit, cells.collect());
    };
    column("completion", "ms", &|program, _| ms(program.completion_s));
    column("x crossbar", "", &|program, ideal_s| {
        let ratio = program
            .completion_s
            .zip(ideal_s)
            .map(|(own, ideal)| own / ideal);
        ratio.map_or(NOTHING.into(), |ratio| format!("{ratio:.2}"))
    });
    column("computing", "ms", &|program, _| {
        ms(program.has_ended().then_some(program.computing_s))
    });
    column("waiting", "ms", &|program, _| {
        ms(program.has_ended().then_some(program.waiting_s))
    });
    column("longest", "ms", &|program, _| {
        ms(program.has_ended().then_some(program.waiting_max_s))
    });
    column("critical: network", "ms", &|program, _| {
        ms(program.critical_path.as_ref().map(|path| path.network_s))
    });
    columns.into_measured(labels)
}

/// Frames at the six points between applications, of all vNICs of a variant together: a row per
/// variant that counts them, `None` without any. Datagrams alone are counted at applications.
pub fn points(scenarios: &[&Results]) -> Option<Grid> {
    fn of(results: &Results) -> impl Iterator<Item = &VariantResult> {
        results.variants.iter().filter(|v| !v.vnics.is_empty())
    }
    let rows: Vec<_> = scenarios.iter().flat_map(|results| of(results)).collect();
    if rows.is_empty() {
        return None;
    }
    let mut columns = Columns::new();
    let labels = scenario_column(&mut columns, scenarios, |results| of(results).count()) + 1;
    columns.push("variant", "", rows.iter().map(|v| v.name.clone()).collect());
    for point in &figures::POINTS {
        let write = |value: Option<f64>| value.map_or(NOTHING.into(), |n| format!("{n:.0}"));
        let cells = rows.iter().map(|variant| write((point.value)(variant)));
        columns.push(point.what, point.unit, cells.collect());
    }
    let causes = rows.iter().map(|variant| lost_in_hosts(variant));
    columns.push("lost in hosts", "by cause", causes.collect());
    columns.into_measured(labels)
}

/// Frames dropped at vNICs and adapters, by cause.
fn lost_in_hosts(variant: &VariantResult) -> String {
    let mut sums = BTreeMap::<&str, u64>::new();
    let at_vnics = variant.vnics.iter().flat_map(|vnic| &vnic.drops);
    let at_links = variant.links.iter().flat_map(|link| &link.drops);
    // The receiver's ring has told already of what a simulated link has as `vnic_receive`.
    let at_adapters = at_links.filter(|(cause, _)| ["uplink", "arrival"].contains(&cause.as_str()));
    for (cause, count) in at_vnics.chain(at_adapters) {
        *sums.entry(cause).or_default() += count;
    }
    match figures::causes(sums) {
        none if none.is_empty() => "0".into(),
        causes => causes,
    }
}

/// Published figures with ours beside them; `None` without any.
pub fn published(all: &[PublishedResult]) -> Option<Grid> {
    if all.is_empty() {
        return None;
    }
    let mut columns = Columns::new();
    let mut column = |what, write: &dyn Fn(&PublishedResult) -> Option<String>| {
        let cells = all.iter().map(|p| write(p).unwrap_or(NOTHING.into()));
        columns.push(what, "", cells.collect());
    };
    column("of a publication", &|p| Some(p.name.clone()));
    column("published", &|p| Some(units::plain(p.published)));
    column("ours", &ours);
    column("ratio", &|p| Some(format!("{:.2}", p.ours? / p.published)));
    column("verdict", &verdict);
    Some(columns.into_grid(1))
}

/// Our figure beside a published one; of several seeds that differ with half of its interval.
pub fn ours(line: &PublishedResult) -> Option<String> {
    let mean = units::plain(line.ours?);
    Some(match line.interval {
        Some([low, high]) if low < high => {
            format!("{mean} ± {}", units::plain((high - low) / 2.0))
        }
        _ => mean,
    })
}

/// How far a figure agrees; where seeds by themselves would be judged differently, how many of them
/// would as their mean is.
pub fn verdict(line: &PublishedResult) -> Option<String> {
    let words = line.verdict?.words();
    if line.verdict == Some(Verdict::Undecided) {
        return Some(words.to_owned());
    }
    let seeds = &line.by_seed;
    let same = seeds.iter().filter(|seed| **seed == line.verdict).count();
    Some(match same == seeds.len() {
        true => words.to_owned(),
        false => format!("{words} ({same} of {} seeds)", seeds.len()),
    })
}

/// Figures that exist per name and variant (derived figures, enforcement counters): a row per name.
pub fn by_name<T>(
    results: &Results,
    pick: impl Fn(&VariantResult) -> &BTreeMap<String, T>,
    write: impl Fn(&T) -> String,
) -> Option<(Vec<String>, Vec<Vec<String>>)> {
    let variants: Vec<_> = results
        .variants
        .iter()
        .filter(|v| !pick(v).is_empty())
        .collect();
    let names: std::collections::BTreeSet<_> =
        variants.iter().flat_map(|v| pick(v).keys()).collect();
    if names.is_empty() {
        return None;
    }
    let cell = |v: &&VariantResult, name: &str| pick(v).get(name).map_or(NOTHING.into(), &write);
    let row = |name: &String| {
        let figures = variants.iter().map(|v| cell(v, name));
        std::iter::once(name.clone()).chain(figures).collect()
    };
    Some((
        variants.iter().map(|v| v.name.clone()).collect(),
        names.into_iter().map(row).collect(),
    ))
}

/// Circumstances in a few phrases; the alarming ones are not among them, see [`alarms`].
pub fn conditions(conditions: &Conditions) -> Vec<String> {
    let mut phrases = vec![format!("kernel {}", conditions.kernel)];
    phrases.extend(conditions.cpus.map(|cpus| format!("{cpus} CPUs")));
    let idle = conditions.cpu_idle_min.map(units::percent);
    phrases.extend(idle.map(|idle| format!("CPU idle ≥ {idle}")));
    let offloads = if conditions.offloads { "on" } else { "off" };
    phrases.push(format!("offloads {offloads}"));
    if conditions.rate_scale != 1.0 {
        phrases.push(format!(
            "link rates × {}",
            units::plain(conditions.rate_scale)
        ));
    }
    phrases
}

/// The notes of a run. Those that differ only in the variant and in the time at which it ended are
/// one.
pub fn notes(conditions: &Conditions) -> Vec<String> {
    let mut lines: Vec<(&str, &str, usize)> = Vec::new();
    for note in &conditions.notes {
        let reason = ended_early(note).unwrap_or(note);
        match lines.iter_mut().find(|(_, known, _)| *known == reason) {
            Some((.., count)) => *count += 1,
            None => lines.push((note, reason, 1)),
        }
    }
    let line = |(note, reason, count)| match count {
        1 => String::from(note),
        _ => format!("{count} variants ended before their time, {reason}"),
    };
    lines.into_iter().map(line).collect()
}

/// Of a note that a variant ended before its time, the reason.
fn ended_early(note: &str) -> Option<&str> {
    let (_, rest) = note.split_once(": ended after ")?;
    Some(rest.split_once(", ")?.1)
}

/// Reasons not to trust the figures: a CPU-bound run, packets lost where the experiment does not
/// look.
pub fn alarms(results: &Results) -> Vec<String> {
    let conditions = &results.conditions;
    let mut lines = Vec::new();
    if conditions.cpu_bound {
        let advice = match conditions.accepts_cpu_bound {
            true => "as its scenario accepts",
            false => "do not use its figures",
        };
        let line = "CPU-BOUND: the CPU, not the network, limited this run";
        lines.push(format!("{line}; {advice}"));
    }
    let outside: Vec<_> = conditions
        .outside
        .iter()
        .filter(|(_, n)| **n > 0)
        .map(|(name, n)| format!("{name} {n}"))
        .collect();
    if !outside.is_empty() {
        lines.push(format!("outside the experiment: {}", outside.join(", ")));
    }
    lines.extend(results.variants.iter().filter_map(lost_elsewhere));
    lines.extend(results.variants.iter().flat_map(deadlocks));
    lines.extend(results.variants.iter().filter_map(lost_lossless));
    lines
}

/// Cycles of pauses, link by link.
fn deadlocks(variant: &VariantResult) -> impl Iterator<Item = String> {
    variant.deadlocks.iter().map(|found| {
        format!(
            "{}: DEADLOCK since {:.3} s, priority {}: {}; each waits for the next, the last for the first; {:.0} KB held, {} more links wait behind",
            variant.name,
            found.since_s,
            found.priority,
            found.links.join(", "),
            found.bytes as f64 / 1e3,
            found.behind
        )
    })
}

/// Frames of lossless priorities that were dropped: what flow control is there to prevent.
fn lost_lossless(variant: &VariantResult) -> Option<String> {
    let lost = variant.links.iter().filter_map(|link| {
        let count = link
            .drops
            .get("headroom")
            .copied()
            .filter(|&count| count > 0)?;
        Some(format!("{count} at {}", link.id))
    });
    let lost: Vec<String> = lost.take(QUEUES_NAMED).collect();
    (!lost.is_empty()).then(|| {
        format!(
            "{}: lossless frames dropped for want of headroom: {}",
            variant.name,
            lost.join(", ")
        )
    })
}

/// Drops at queues that are no bottleneck, the worst by name.
fn lost_elsewhere(variant: &VariantResult) -> Option<String> {
    let elsewhere = variant.links.iter().filter(|link| !link.bottleneck);
    let mut lost: Vec<_> = elsewhere
        .map(|link| (drops(link), &link.id))
        .filter(|(drops, _)| *drops > 0)
        .collect();
    let others = lost.len().saturating_sub(QUEUES_NAMED);
    if others > 0 {
        lost.sort_by_key(|(drops, _)| std::cmp::Reverse(*drops));
    }
    let (named, rest) = lost.split_at(lost.len() - others);
    let mut parts: Vec<_> = named
        .iter()
        .map(|(drops, id)| format!("{drops} at {id}"))
        .collect();
    if others > 0 {
        let sum: u64 = rest.iter().map(|(drops, _)| drops).sum();
        parts.push(format!("{sum} at {others} others"));
    }
    let list = parts.join(", ");
    (!lost.is_empty()).then(|| format!("{}: drops away from the bottleneck: {list}", variant.name))
}
