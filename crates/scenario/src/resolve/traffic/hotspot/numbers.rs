//! How severe a hotspot is: two of `severity`, `rate` and `drain`, and the third.

use sluicegate_config::{table::Table, units::parse_rate};

use crate::bounds;

use super::{
    Frames, HotspotType, Network, Sources, Tenant, access_link, read_rate, sources::percent,
};

/// Two of three; the other follows.
pub struct Numbers {
    severity: Option<f64>,
    /// Payload of each source.
    rate_bps: Option<u64>,
    /// Of the link while it is hot.
    drain_bps: Option<u64>,
}

/// All three of a hotspot that can be.
pub struct Solved {
    /// Payload of each source.
    pub rate_bps: u64,
    /// Of the link.
    pub drain_bps: u64,
    /// Offered by served.
    pub severity: f64,
}

/// The hotspot's receiver and senders.
pub struct Place<'a> {
    pub network: &'a Network,
    pub tenants: &'a [Tenant],
    pub kind: HotspotType,
    /// Its id.
    pub link: usize,
    pub sources: Sources,
    pub frames: Frames,
}

pub fn read(table: &Table<'_>, kind: Option<HotspotType>) -> Option<Numbers> {
    let has = |key| table.get(key).is_some();
    let numbers = Numbers {
        severity: read_severity(table),
        rate_bps: table.parse("rate", parse_rate),
        drain_bps: read_rate(table, "drain"),
    };
    let (severity, rate, drain) = (has("severity"), has("rate"), has("drain"));
    match kind? {
        HotspotType::Input => {
            table.refuse("drain", "belongs to `type = \"output\"`: the link serves what it does");
            match (severity, rate) {
                (true, true) => table.refuse("rate", "follows from `severity`"),
                (false, false) => table.require("severity", SEVERITY_ADVICE),
                _ => {}
            }
        }
        HotspotType::Output => match (severity, rate, drain) {
            (true, true, true) => table.refuse("drain", "follows from `severity` and `rate`"),
            (false, _, false) | (false, false, _) => table.require("severity", SEVERITY_ADVICE),
            (true, false, false) => table.require(
                "rate",
                "say what each source offers, for example rate = \"4500Mbit\", or what the link serves with `drain`",
            ),
            _ => {}
        },
    }
    // Values that are there and wrong have been reported.
    let read = severity == numbers.severity.is_some()
        && rate == numbers.rate_bps.is_some()
        && drain == numbers.drain_bps.is_some();
    read.then_some(numbers)
}

const SEVERITY_ADVICE: &str = "give offered by served, for example severity = 1.8: mild below 2, moderate to 10, severe above";

fn read_severity(table: &Table<'_>) -> Option<f64> {
    let item = table.get("severity")?;
    let severity = item.within(&bounds::SEVERITY)?;
    if severity <= 1.0 {
        let reason = "the link would serve all that it is offered";
        item.complain(reason, "give more than 1, for example 1.8");
        return None;
    }
    Some(severity)
}

impl Place<'_> {
    /// In frames, of all sources together, where each offers so much payload.
    pub fn offered_bps(&self, rate_bps: u64) -> f64 {
        self.sources.tenants.len() as f64 * self.frames.wire(rate_bps as f64)
    }

    /// All three numbers; what makes no sense is reported.
    pub fn solve(&self, table: &Table<'_>, numbers: &Numbers) -> Option<Solved> {
        let drain_bps = match self.kind {
            HotspotType::Input => Some(self.network.links[self.link].rate_bps),
            HotspotType::Output => numbers.drain_bps,
        };
        let solved = match (numbers.severity, numbers.rate_bps, drain_bps) {
            (Some(severity), None, Some(drain_bps)) => {
                let each_bps = severity * drain_bps as f64 / self.sources.tenants.len() as f64;
                Solved {
                    rate_bps: (self.frames.payload(each_bps) as u64).max(1),
                    drain_bps,
                    severity,
                }
            }
            (None, Some(rate_bps), Some(drain_bps)) => Solved {
                rate_bps,
                drain_bps,
                severity: self.offered_bps(rate_bps) / drain_bps as f64,
            },
            (Some(severity), Some(rate_bps), None) => Solved {
                rate_bps,
                drain_bps: (self.offered_bps(rate_bps) / severity).round() as u64,
                severity,
            },
            _ => return None,
        };
        let can = self.check_drain(table, &solved)
            && self.check_rate(table, &solved)
            && self.check_sources(table, &solved);
        can.then_some(solved)
    }

    /// A link that is slow for a time serves less than otherwise.
    fn check_drain(&self, table: &Table<'_>, solved: &Solved) -> bool {
        let link = &self.network.links[self.link];
        let drain_bps = solved.drain_bps;
        if drain_bps < bounds::RATE.least.0 {
            let reason = format!("the link would serve {drain_bps}bit");
            let advice = "no link has less than 100Kbit: lower it, or raise `rate`";
            complain(table, "severity", &reason, advice);
            return false;
        }
        if self.kind == HotspotType::Input || drain_bps < link.rate_bps {
            return true;
        }
        let (drain, own) = (megabits(drain_bps as f64), megabits(link.rate_bps as f64));
        let reason = format!(
            "{} would serve {drain}, no less than its own {own}",
            link.name
        );
        if table.get("drain").is_some() {
            complain(table, "drain", &reason, "a slow link is slower");
            return false;
        }
        let severity = self.offered_bps(solved.rate_bps) / link.rate_bps as f64;
        let least = (100.0 * severity).floor() / 100.0 + 0.01;
        let advice = format!(
            "give a severity of {least:.2} or more, or lower `rate`; too much for the link as it is has `type = \"input\"`"
        );
        complain(table, "severity", &reason, &advice);
        false
    }

    /// More is offered than served.
    fn check_rate(&self, table: &Table<'_>, solved: &Solved) -> bool {
        if solved.severity > 1.0 {
            return true;
        }
        let sources = self.sources.tenants.len();
        let reason = format!(
            "{} of {sources} sources are offered to {}, which serves {}: no hotspot",
            megabits(self.offered_bps(solved.rate_bps)),
            self.network.links[self.link].name,
            megabits(solved.drain_bps as f64)
        );
        let most_bps = self
            .frames
            .payload(solved.drain_bps as f64 / sources as f64);
        let least_bps = (most_bps / 1e5).floor() * 1e5 + 1e5;
        let advice = format!("give {} or more", megabits(least_bps));
        complain(table, "rate", &reason, &advice);
        false
    }

    /// No host can offer more than its own link carries.
    fn check_sources(&self, table: &Table<'_>, solved: &Solved) -> bool {
        let Some((own_bps, tenant)) = self.slowest() else {
            return true;
        };
        let each_bps = self.frames.wire(solved.rate_bps as f64);
        // A part of a billionth is lost in arithmetic.
        if each_bps <= own_bps as f64 * (1.0 + 1e-9) {
            return true;
        }
        let reason = format!(
            "{} would offer {} in frames, but its link has {} for it",
            self.tenants[tenant].name,
            megabits(each_bps),
            megabits(own_bps as f64)
        );
        if table.get("rate").is_some() {
            let most_bps = down(self.frames.payload(own_bps as f64) / 1e5) * 1e5;
            let advice = format!("give {} or less", megabits(most_bps));
            complain(table, "rate", &reason, &advice);
            return false;
        }
        let sources = self.sources.tenants.len();
        let needed = (sources as f64 * each_bps / own_bps as f64).ceil() as usize;
        let mut advice = self.wider(table, needed);
        let most = down(100.0 * sources as f64 * own_bps as f64 / solved.drain_bps as f64) / 100.0;
        if most > 1.0 {
            advice.push(format!("with {sources} give a severity of {most} or less"));
        }
        complain(table, "severity", &reason, &advice.join("; "));
        false
    }

    /// The source whose host has least for each of its sources, and that, in bits per second.
    fn slowest(&self) -> Option<(u64, usize)> {
        let sources = &self.sources.tenants;
        let own = |&tenant: &usize| {
            let host = self.tenants[tenant].host;
            let beside = sources
                .iter()
                .filter(|&&other| self.tenants[other].host == host);
            let rate_bps = self.network.links[access_link(self.network, host)?].rate_bps;
            Some((rate_bps / beside.count() as u64, tenant))
        };
        sources.iter().filter_map(own).min()
    }

    /// How to have `needed` sources, if there are as many.
    fn wider(&self, table: &Table<'_>, needed: usize) -> Vec<String> {
        match table.get("degree") {
            None => vec![format!("name {needed} sources or more")],
            Some(_) if needed < self.sources.hosts => {
                let degree = percent(needed, self.sources.hosts);
                vec![format!("take {needed} sources with degree = {degree}")]
            }
            Some(_) => Vec::new(),
        }
    }
}

fn complain(table: &Table<'_>, key: &'static str, reason: &str, advice: &str) {
    let item = table.get(key);
    let item = item.as_ref().unwrap_or(table.item());
    item.complain(reason, advice);
}

fn megabits(bps: f64) -> String {
    format!("{:.1}Mbit", bps / 1e6)
}

/// The number rounded down to the largest that may be given, though arithmetic is a billionth off.
fn down(number: f64) -> f64 {
    (number * (1.0 + 1e-9)).floor()
}
