//! From what tenants, switches and hosts saw to the results of a variant, and to how far they can
//! be trusted.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result};
use sluicegate_emulator::Lag;
use sluicegate_scenario::{
    experiment::TenantKind,
    results::{Conditions, LinkResult, VariantResult, VnicResult},
    workload::{
        collect::{self, Seen},
        errors, programs,
    },
    world::Outcome,
};

use crate::{measure::cpu::IdleMin, requirements, symptoms::Symptoms, tenant::netstat};

/// Everything that a run saw.
pub struct Observed<'a> {
    /// The observations that become results.
    pub seen: Seen<'a>,
    /// Guests' adapters and their ports.
    pub vnics: Vec<VnicResult>,
    /// Queues over the whole run, warm-up and last retransmissions included.
    pub links_whole_run: Vec<LinkResult>,
    /// Frames that found a queue of a guest's port full, over the whole run as well.
    pub ports_whole_run: u64,
    /// Losses between namespaces.
    pub outside: BTreeMap<String, u64>,
    /// How late an emulated fabric was in measured time.
    pub lag: Option<Lag>,
    /// How idle the CPUs were in measured time.
    pub idle: IdleMin,
    /// For people.
    pub notes: Vec<String>,
    /// Wall clock.
    pub started: SystemTime,
}

/// Puts the results of a variant together.
///
/// # Errors
/// This machine's kernel does not say its release.
pub fn outcome(observed: Observed<'_>) -> Result<Outcome> {
    let mut conditions = conditions(&observed)?;
    let vnics = observed.vnics;
    let result = VariantResult {
        vnics,
        ..collect::result(observed.seen)
    };
    let waits = programs::notes(&result.name, &result.programs);
    conditions.notes.extend(waits);
    Ok(Outcome { result, conditions })
}

fn conditions(observed: &Observed<'_>) -> Result<Conditions> {
    let (mut outside, mut notes) = (observed.outside.clone(), observed.notes.clone());
    let (count, lines) = errors::of_tenants(observed.seen.reports);
    let full = full_sockets(observed);
    let count = count + full.len() as u64;
    outside.insert(errors::COUNTER.to_owned(), count);
    notes.extend(lines.into_iter().chain(full).chain(holds(observed)));
    outside.extend(unexplained(observed, &mut notes));
    outside.insert(
        "elsewhere_dropped".to_owned(),
        elsewhere(observed, &mut notes),
    );
    let lag = observed.lag.as_ref();
    notes.extend(lag.filter(|lag| lag.late() > 0).map(late));
    Ok(Conditions {
        kernel: requirements::release()?,
        cpus: Some(
            std::thread::available_parallelism()
                .context("number of CPUs")?
                .get() as u32,
        ),
        cpu_idle_min: observed.seen.cpu_idle_min,
        cpu_stolen_max: Some(observed.idle.stolen),
        clock_lag_max_us: lag.and_then(Lag::max).map(us),
        clock_lag_p99_us: lag.and_then(Lag::p99).map(us),
        cpu_bound: observed.idle.is_bound() || lag.is_some_and(Lag::is_behind),
        accepts_cpu_bound: observed.seen.variant.lab.accept_cpu_bound,
        rate_scale: 1.0,
        offloads: observed.seen.variant.lab.offloads,
        outside,
        notes,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: rfc3339(observed.started),
    })
}

/// A line on an emulated fabric that was late.
fn late(lag: &Lag) -> String {
    format!(
        "the emulated fabric was late for {} of {} events, by {:.1} ms at most",
        lag.late(),
        lag.events(),
        lag.max().map_or(0.0, us) / 1e3
    )
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// What full sockets of tenants dropped, a line each: the network did not lose it. Those of guests
/// are in the results.
fn full_sockets(observed: &Observed<'_>) -> Vec<String> {
    let seen = &observed.seen;
    let tenants = seen.variant.tenants.iter().zip(seen.reports);
    let others = tenants.filter(|(tenant, _)| tenant.kind != TenantKind::Guest);
    let lines = others.flat_map(|(tenant, report)| {
        report.overruns.iter().map(|(port, count)| {
            let name = &tenant.name;
            format!("tenant {name}: {count} datagrams found the buffer of port {port} full")
        })
    });
    lines.collect()
}

/// Guests whose reception waited for full sockets in measured time, a line each.
fn holds(observed: &Observed<'_>) -> Vec<String> {
    let seen = &observed.seen;
    let tenants = seen.variant.tenants.iter().zip(seen.reports);
    let lines = tenants.filter_map(|(tenant, report)| {
        let [holds, expired] =
            netstat::HOLDS.map(|(name, _)| report.netstat.get(name).copied().unwrap_or(0));
        let name = &tenant.name;
        (holds > 0).then(|| {
            format!(
                "tenant {name}: reception waited {holds} times for a full socket, in vain {expired} times"
            )
        })
    });
    lines.collect()
}

/// The cause of a drop in front of a host's adapter.
const UPLINK: &str = "uplink";

/// Packets dropped at switch ports that are no bottleneck, during the whole run. A scenario whose
/// hosts' switches drop is about what they drop in front of their adapters as well.
fn elsewhere(observed: &Observed<'_>, notes: &mut Vec<String>) -> u64 {
    let switch = observed.seen.variant.host_switch.as_ref();
    let by_intent = switch.is_some_and(|switch| switch.lossless == 0);
    let mut sum = 0;
    for link in &observed.links_whole_run {
        let drops = unwanted(link, by_intent);
        if drops > 0 {
            sum += drops;
            notes.push(format!(
                "{} is no bottleneck but dropped {drops} packets",
                link.id
            ));
        }
    }
    sum
}

/// Packets dropped at a link that is no bottleneck; not in front of it if its host's switch drops
/// there by intent.
fn unwanted(link: &LinkResult, by_intent: bool) -> u64 {
    if link.bottleneck {
        return 0;
    }
    let drops = link.drops.iter();
    let drops = drops.filter(|(cause, _)| !by_intent || *cause != UPLINK);
    drops.map(|(_, count)| count).sum()
}

/// Symptoms of TCP that no event of the run explains. Losses between namespaces are counted on
/// their own, and explain what TCP makes of them. Where no tenant cheats, policing is no
/// explanation: the stacks follow the standards, and policing must not drop any of their packets.
fn unexplained(observed: &Observed<'_>, notes: &mut Vec<String>) -> BTreeMap<String, u64> {
    let mut drops = lost(&observed.links_whole_run, &observed.outside) + observed.ports_whole_run;
    if observed.seen.variant.has_cheats() {
        drops += observed.seen.enforcement.get("policed").unwrap_or(&0);
    }
    let symptoms = Symptoms::new(observed.seen.reports, drops);
    notes.extend(symptoms.note());
    symptoms.trouble()
}

/// Packets that queues dropped, and that were lost between namespaces.
fn lost(links: &[LinkResult], outside: &BTreeMap<String, u64>) -> u64 {
    let in_queues = links.iter().flat_map(|link| link.drops.values());
    in_queues.chain(outside.values()).sum()
}

/// UTC to the second. Days to civil date after Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms".
fn rfc3339(time: SystemTime) -> String {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    let (days, seconds) = ((since.as_secs() / 86_400) as i64, since.as_secs() % 86_400);
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted - era * 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_switch_drops_by_intent_is_no_trouble_and_the_rest_is() {
        let link = |bottleneck| LinkResult {
            bottleneck,
            drops: [("tail", 1), ("arrival", 2), (UPLINK, 4)]
                .map(|(cause, count)| (cause.to_owned(), count))
                .into(),
            ..LinkResult::default()
        };
        assert_eq!(lost(&[link(false), link(true)], &BTreeMap::new()), 14);
        let outside = BTreeMap::from([("fabric_dropped".to_owned(), 8)]);
        assert_eq!(lost(&[link(false)], &outside), 15);
        assert_eq!(unwanted(&link(false), false), 7);
        assert_eq!(unwanted(&link(false), true), 3);
        assert_eq!(unwanted(&link(true), false), 0);
    }
}
