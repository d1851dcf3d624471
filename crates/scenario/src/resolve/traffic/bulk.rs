//! `kind = "bulk"`: without a limit, with a rate, or with rates that change.

use std::time::Duration;

use sluicegate_config::{
    table::{Item, Table},
    units::{parse_duration, parse_rate},
};

use super::read_class;
use crate::experiment::{Phase, TrafficKind};

const ADVICE: &str =
    "for example phases = [{ until = \"100ms\", rate = \"1Gbit\" }, { rate = \"500Mbit\" }]";

pub fn read(name: &str, table: &Table<'_>) -> Option<TrafficKind> {
    let rate_bps = table.parse("rate", parse_rate);
    let Some(item) = table.get("phases") else {
        table.refuse("class", "belongs to bulk traffic with `phases`, which ends");
        return Some(TrafficKind::Bulk { rate_bps });
    };
    table.refuse("rate", "`phases` say it");
    let class = table.get("class").map(|_| read_class(name, table));
    let phases = item.list()?;
    if phases.is_empty() {
        item.complain("must not be empty", ADVICE);
    }
    let last = phases.len().saturating_sub(1);
    let mut begin = Duration::ZERO;
    let mut all = Vec::with_capacity(phases.len());
    for (at, phase) in phases.iter().enumerate() {
        let phase = read_phase(phase, begin, at == last)?;
        begin = phase.until.unwrap_or(begin);
        all.push(phase);
    }
    if all.iter().all(|phase| phase.rate_bps == 0) {
        item.complain("nothing is offered", ADVICE);
    }
    Some(TrafficKind::Phased { phases: all, class })
}

/// One that follows what ends at `begin`; only the last may be without an end.
fn read_phase(item: &Item<'_>, begin: Duration, is_last: bool) -> Option<Phase> {
    let table = item.table()?;
    let until = table.parse("until", parse_duration);
    match table.get("until") {
        None if !is_last => table.require("until", "only the last phase may go on to the end"),
        Some(end) if until.is_some_and(|until| until <= begin) => {
            let advice = "times count from the start of the run, warm-up included";
            end.complain(format!("must come after {begin:?}"), advice);
        }
        _ => {}
    }
    if table.get("rate").is_none() {
        table.require("rate", ADVICE);
    }
    let rate_bps = table.parse("rate", parse_rate);
    table.close();
    Some(Phase {
        until,
        rate_bps: rate_bps?,
    })
}
