//! The demands on a case, and the table that shows it.

use std::ops::RangeInclusive;

use crate::case::{Case, Measured, Setting};

/// Share of a foreign TCP flow by an even one.
const SHARE: RangeInclusive<f64> = 0.6..=1.4;
/// Share of QUIC, whose datagrams no host edits. A bucket is its upper bound. With ECN its sender
/// cuts to 0.7 for each round trip with a mark, and DCTCP beside it by the fraction that is marked.
const SHARE_QUIC: RangeInclusive<f64> = 0.2..=1.4;
/// Longest time without a byte, in ms.
const GAP_MS: f64 = 300.0;

/// Over the rows.
pub const HEADING: &str = "stack    role      link    share   Mb/s  others Mb/s      gap ms  verified MB  CPU idle  verdict";

/// The demands that did not hold, a line each. Without enforcement only the payload has to be
/// whole: the rest is what the stacks make of each other.
pub fn failures(setting: &Setting, case: &Case, measured: &Measured) -> Vec<String> {
    let mut lines = measured.errors.clone();
    let foreign = measured.foreign();
    for flow in &measured.flows {
        if flow.verified_bytes != flow.bytes || flow.bytes == 0 {
            lines.push(format!(
                "of {} bytes {} are as sent",
                flow.bytes, flow.verified_bytes
            ));
        }
    }
    if !setting.enforced {
        return lines;
    }
    if foreign.longest_gap_ms > GAP_MS {
        let gap = foreign.longest_gap_ms;
        lines.push(format!(
            "nothing arrived for {gap:.0} ms, more than {GAP_MS:.0}"
        ));
    }
    let share = measured.share();
    let lawful = if case.stack.is_tcp { SHARE } else { SHARE_QUIC };
    if !lawful.contains(&share) {
        lines.push(format!(
            "its share is {share:.2} of an even one, not {} to {}",
            lawful.start(),
            lawful.end()
        ));
    }
    lines
}

/// A line of the table.
pub fn row(case: &Case, measured: &Measured, failures: &[String]) -> String {
    let foreign = measured.foreign();
    let linux = measured.flows.iter().filter(|flow| !flow.foreign);
    let others: Vec<String> = linux
        .map(|flow| format!("{:.0}", flow.goodput_bps / 1e6))
        .collect();
    let idle = measured.conditions.cpu_idle_min.unwrap_or_default();
    format!(
        "{:<8} {:<8} {:>5.0} {:>8.2} {:>6.1}  {:<14} {:>8.1} {:>12.1} {:>8.0}%  {}",
        case.stack.name,
        case.role.name(),
        measured.link_bps / 1e6,
        measured.share(),
        foreign.goodput_bps / 1e6,
        others.join(" "),
        foreign.longest_gap_ms,
        foreign.verified_bytes as f64 / 1e6,
        100.0 * idle,
        match (failures.is_empty(), measured.conditions.cpu_bound) {
            (true, false) => "ok",
            (true, true) => "ok, CPU-bound",
            (false, _) => "FAILED",
        },
    )
}
