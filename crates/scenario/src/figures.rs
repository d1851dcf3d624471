//! Figures of a variant by name: `VARIANT.rtt_us.p50`, `VARIANT.links.bottleneck.drops`, ….
//!
//! | figure | meaning |
//! |---|---|
//! | `goodput_bps.(sum\|mean\|jain\|max)` | over bulk flows |
//! | `flows.TENANT.FIELD`, `traffic.TABLE.FIELD`, `flows.all.FIELD` | `goodput_bps`, `retransmits`, `timeouts`, `count`, `socket_drops` summed, `srtt_us`, `jain`, `loss` (of datagrams) `cwnd_cuts` summed, `stalled_us` and `cwnd_max_bytes` (the largest) over the flows of a sending tenant or a traffic table |
//! | `traffic.TABLE.FIELD` of a program | `completion_s`, `computing_s`, `waiting_s`, `waiting_max_s`, `operations`, `ended`; `critical_path_s`, `critical_computing_s`, `critical_network_s`; `phases_s.PHASE` |
//! | `rtt_us.(count\|p50\|p99\|p999\|max)` | of the ping-pong probes |
//! | `fct_us.CLASS.(count\|unfinished\|mean\|p50\|p99\|p999\|missed)` | of a class of flows; `unfinished` were not complete at the end, `missed` is the fraction beyond the deadline |
//! | `intervals.NAME.goodput_bps.(sum\|mean\|jain\|max)` | over bulk flows that were active throughout the interval |
//! | `links.bottleneck.FIELD`, `links.all.FIELD`, `links.FROM-TO.FIELD` | `rate_bps` of the slowest, `sent`, `sent_bytes`, `marks`, `drops`, `drops.CAUSE` summed, `queue_bytes.(p50\|p99\|max)` of the fullest; of converged Ethernet `pauses` and `notifications` summed, `paused_us` and `ingress_max_bytes` of the one that has most |
//! | `vnics.all.FIELD`, `vnics.TENANT.FIELD` | `sent`, `into_switch`, `out_of_switch`, `received`, `drops`, `drops.CAUSE`, summed; of the lab's guests, and where hosts have simulated switches (`[network.host_switch]`) |
//! | `deadlocks` | cycles of pauses, all repeats together |
//! | `enforcement.COUNTER` | summed over hosts |
//! | `derived.NAME` | what the world derived |
//! | `cpu_idle_min` | 0..=1; of the lab only |

use sluicegate_config::{problem::Complaint, table::nearest};

use crate::{
    experiment::Variant,
    results::{
        Datagrams, FlowResult, Goodput, LinkCee, LinkResult, ProgramResult, VariantResult,
        VnicResult,
    },
    stats,
};

/// A figure of one variant.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Variant that was measured.
    pub variant: String,
    /// The quantity that was measured.
    pub quantity: Quantity,
}

/// A quantity that was measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Quantity {
    /// A field of [`crate::results::Goodput`].
    Goodput(String),
    /// A field of [`crate::results::Goodput`] in an interval.
    Interval(String, String),
    /// A field over some flows.
    Flows(FlowSet, String),
    /// A field of a program, by its traffic.
    Program(String, String),
    /// A phase of a program, by its traffic.
    Phase(String, String),
    /// A field of [`crate::results::Quantiles`].
    Rtt(String),
    /// Class and field of [`crate::results::FctQuantiles`].
    Fct(String, String),
    /// A field over some links.
    Links(LinkSet, LinkField),
    /// A field of [`VnicResult`] of a tenant, or of all.
    Vnics(Option<String>, VnicField),
    /// A counter of enforcement.
    Enforcement(String),
    /// A derived figure.
    Derived(String),
    /// Number of [`VariantResult::deadlocks`].
    Deadlocks,
    /// [`VariantResult::cpu_idle_min`].
    CpuIdleMin,
}

/// Which bulk flows.
#[derive(Clone, Debug, PartialEq)]
pub enum FlowSet {
    /// Every one.
    All,
    /// Those that this tenant sends.
    Tenant(String),
    /// Those of this traffic table.
    Traffic(String),
}

/// Which directions of links.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkSet {
    /// Every one.
    All,
    /// Those that the experiment is about.
    Bottleneck,
    /// The one from a node to another, written `from-to`.
    Named(String),
}

/// A field of [`LinkResult`].
#[derive(Clone, Debug, PartialEq)]
pub enum LinkField {
    /// Rate of the slowest.
    Rate,
    /// Packets sent.
    Sent,
    /// Bytes sent.
    SentBytes,
    /// Packets marked.
    Marks,
    /// Packets dropped, for one cause or for any.
    Drops(Option<String>),
    /// Backlog: `p50`, `p99` or `max`.
    Queue(String),
    /// A field of [`crate::results::LinkCee`].
    Cee(String),
}

/// A field of [`VnicResult`].
#[derive(Clone, Debug, PartialEq)]
pub enum VnicField {
    /// Frames at one of its points.
    Frames(String),
    /// Frames dropped, for one cause or for any.
    Drops(Option<String>),
}

const GOODPUT: &[&str] = &["sum", "mean", "jain", "max"];
const RTT: &[&str] = &["count", "p50", "p99", "p999", "max"];
const FCT: &[&str] = &[
    "count",
    "unfinished",
    "mean",
    "p50",
    "p99",
    "p999",
    "missed",
];
const QUEUE: &[&str] = &["p50", "p99", "max"];
const FLOW: &[&str] = &[
    "goodput_bps",
    "retransmits",
    "timeouts",
    "count",
    "srtt_us",
    "jain",
    "stalled_us",
    "cwnd_max_bytes",
    "cwnd_cuts",
    "loss",
    "socket_drops",
];
const PROGRAM: &[&str] = &[
    "completion_s",
    "computing_s",
    "waiting_s",
    "waiting_max_s",
    "operations",
    "ended",
    "critical_path_s",
    "critical_computing_s",
    "critical_network_s",
    "phases_s",
];
const LINK: &[&str] = &[
    "rate_bps",
    "sent",
    "sent_bytes",
    "marks",
    "drops",
    "queue_bytes",
    "pauses",
    "paused_us",
    "notifications",
    "ingress_max_bytes",
];
const VNIC: &[&str] = &["sent", "into_switch", "out_of_switch", "received", "drops"];
const KINDS: &[&str] = &[
    "goodput_bps",
    "intervals",
    "flows",
    "traffic",
    "rtt_us",
    "fct_us",
    "links",
    "vnics",
    "enforcement",
    "derived",
    "deadlocks",
    "cpu_idle_min",
];

impl Figure {
    /// Parses a dotted name.
    ///
    /// # Errors
    /// A name that no results can have, with the nearest that they have.
    pub fn parse(name: &str) -> Result<Self, Complaint> {
        let mut parts = name.split('.');
        let variant = parts.next().unwrap_or_default().to_owned();
        let parts: Vec<&str> = parts.collect();
        let quantity = quantity(name, &parts)?;
        Ok(Self { variant, quantity })
    }

    /// Checks the names of tenants, traffic, links and classes against a variant.
    ///
    /// # Errors
    /// A name that the variant does not have, with the nearest that it has.
    pub fn check(&self, variant: &Variant) -> Result<(), Complaint> {
        let (what, name, known) = match &self.quantity {
            Quantity::Flows(FlowSet::Tenant(name), _) | Quantity::Vnics(Some(name), _) => {
                let tenants = variant.tenants.iter().map(|t| t.name.clone());
                ("tenant", name, tenants.collect())
            }
            Quantity::Flows(FlowSet::Traffic(name), _) => {
                let tables = variant.traffic.iter().map(|t| t.name.clone());
                ("traffic", name, tables.collect())
            }
            Quantity::Program(name, _) | Quantity::Phase(name, _) => {
                let programs = variant.traffic.iter().filter(|t| t.kind.is_program());
                ("program", name, programs.map(|t| t.name.clone()).collect())
            }
            Quantity::Links(LinkSet::Named(name), _) => ("link", name, link_directions(variant)),
            Quantity::Fct(name, _) => {
                let classes = variant.traffic.iter().flat_map(|t| t.kind.classes());
                ("class of flows", name, classes.collect::<Vec<String>>())
            }
            Quantity::Interval(name, _) => {
                let intervals = variant.intervals.iter().map(|i| i.name.clone());
                ("interval", name, intervals.collect())
            }
            _ => return Ok(()),
        };
        if known.contains(name) {
            return Ok(());
        }
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        Err(Complaint::new(
            format!("variant \"{}\" has no {what} \"{name}\"", variant.name),
            format!("it has {}{}", known.join(", "), nearest(name, &known)),
        ))
    }

    /// The value, if the variant was run and measured it.
    pub fn value(&self, variants: &[VariantResult]) -> Option<f64> {
        let variant = variants.iter().find(|v| v.name == self.variant)?;
        self.quantity.value(variant)
    }
}

/// Every direction of every link, written `from-to`.
fn link_directions(variant: &Variant) -> Vec<String> {
    let name = |node| variant.node_name(node);
    let ends = variant
        .links
        .iter()
        .map(|link| (name(link.a), name(link.b)));
    ends.flat_map(|(a, b)| [format!("{a}-{b}"), format!("{b}-{a}")])
        .collect()
}

fn quantity(name: &str, parts: &[&str]) -> Result<Quantity, Complaint> {
    let one = |at: usize, known: &[&str]| field(name, parts, at, known);
    let any = |at: usize, what: &str| segment(name, parts, at, what);
    let kind = one(0, KINDS)?;
    let (quantity, length) = match kind.as_str() {
        "goodput_bps" => (Quantity::Goodput(one(1, GOODPUT)?), 2),
        "intervals" => {
            let interval = any(1, "an interval")?;
            one(2, &["goodput_bps"])?;
            (Quantity::Interval(interval, one(3, GOODPUT)?), 4)
        }
        "rtt_us" => (Quantity::Rtt(one(1, RTT)?), 2),
        "fct_us" => (Quantity::Fct(any(1, "a class")?, one(2, FCT)?), 3),
        "flows" => {
            let set = match any(1, "a tenant or `all`")? {
                all if all == "all" => FlowSet::All,
                tenant => FlowSet::Tenant(tenant),
            };
            (Quantity::Flows(set, one(2, FLOW)?), 3)
        }
        "traffic" => {
            let table = any(1, "a traffic table")?;
            match one(2, &[FLOW, PROGRAM].concat())? {
                phases if phases == "phases_s" => (Quantity::Phase(table, any(3, "a phase")?), 4),
                known if PROGRAM.contains(&known.as_str()) => (Quantity::Program(table, known), 3),
                known => (Quantity::Flows(FlowSet::Traffic(table), known), 3),
            }
        }
        "links" => {
            let set = match any(1, "`bottleneck`, `all` or a link")? {
                set if set == "bottleneck" => LinkSet::Bottleneck,
                set if set == "all" => LinkSet::All,
                link => LinkSet::Named(link),
            };
            let (field, length) = link_field(name, parts)?;
            (Quantity::Links(set, field), length)
        }
        "vnics" => {
            let tenant = any(1, "a tenant or `all`")?;
            let cause = parts.get(3).map(|cause| (*cause).to_owned());
            let (field, length) = match one(2, VNIC)? {
                drops if drops == "drops" => {
                    let length = 3 + usize::from(cause.is_some());
                    (VnicField::Drops(cause), length)
                }
                frames => (VnicField::Frames(frames), 3),
            };
            let tenant = Some(tenant).filter(|name| name != "all");
            (Quantity::Vnics(tenant, field), length)
        }
        "enforcement" => (Quantity::Enforcement(any(1, "a counter")?), 2),
        "derived" => (Quantity::Derived(any(1, "a name")?), 2),
        "deadlocks" => (Quantity::Deadlocks, 1),
        _ => (Quantity::CpuIdleMin, 1),
    };
    match parts.get(length) {
        None => Ok(quantity),
        Some(extra) => Err(Complaint::new(
            format!("`{name}` has nothing below `{}`", parts[length - 1]),
            format!("leave out `.{extra}`"),
        )),
    }
}

fn link_field(name: &str, parts: &[&str]) -> Result<(LinkField, usize), Complaint> {
    Ok(match field(name, parts, 2, LINK)?.as_str() {
        "rate_bps" => (LinkField::Rate, 3),
        "sent" => (LinkField::Sent, 3),
        "sent_bytes" => (LinkField::SentBytes, 3),
        "marks" => (LinkField::Marks, 3),
        "drops" => {
            let cause = parts.get(3).map(|cause| (*cause).to_owned());
            let length = 3 + usize::from(cause.is_some());
            (LinkField::Drops(cause), length)
        }
        "queue_bytes" => (LinkField::Queue(field(name, parts, 3, QUEUE)?), 4),
        other => (LinkField::Cee(other.to_owned()), 3),
    })
}

fn field(name: &str, parts: &[&str], at: usize, known: &[&str]) -> Result<String, Complaint> {
    let list = || format!("one of {}", known.join(", "));
    let part = segment(name, parts, at, &list())?;
    if known.contains(&part.as_str()) {
        return Ok(part);
    }
    Err(Complaint::new(
        format!("`{name}`: `{part}` is no figure here"),
        format!("use {}{}", list(), nearest(&part, known)),
    ))
}

fn segment(name: &str, parts: &[&str], at: usize, what: &str) -> Result<String, Complaint> {
    let part = parts.get(at).map(|part| (*part).to_owned());
    part.ok_or_else(|| {
        Complaint::new(
            format!("`{name}` names no figure"),
            format!("add a dot and {what}"),
        )
    })
}

impl Quantity {
    /// Parses a dotted name without a variant, such as `rtt_us.p50`.
    ///
    /// # Errors
    /// A name that no results can have, with the nearest that they have.
    pub fn parse(name: &str) -> Result<Self, Complaint> {
        quantity(name, &name.split('.').collect::<Vec<_>>())
    }

    /// The value, if the variant measured it.
    pub fn value(&self, variant: &VariantResult) -> Option<f64> {
        match self {
            Self::Goodput(field) => goodput_value(&variant.goodput_bps, field),
            Self::Interval(name, field) => goodput_value(variant.intervals.get(name)?, field),
            Self::Flows(set, field) => flows_value(&set.of(&variant.flows), field),
            Self::Program(name, field) => program_value(variant.programs.get(name)?, field),
            Self::Phase(name, phase) => variant.programs.get(name)?.phases_s.get(phase).copied(),
            Self::Rtt(field) => rtt_value(variant, field),
            Self::Fct(class, field) => {
                let fct = variant.fct_us.get(class)?;
                match field.as_str() {
                    "count" => Some(fct.count as f64),
                    "unfinished" => Some(fct.unfinished as f64),
                    "mean" => fct.mean,
                    "p50" => fct.p50,
                    "p99" => fct.p99,
                    "missed" => fct.missed,
                    _ => fct.p999,
                }
            }
            Self::Links(set, field) => links_value(&set.of(&variant.links), field),
            Self::Vnics(tenant, field) => vnics_value(&variant.vnics, tenant.as_deref(), field),
            Self::Enforcement(counter) => variant.enforcement.get(counter).map(|n| *n as f64),
            Self::Derived(name) => variant.derived.get(name).copied(),
            Self::Deadlocks => Some(variant.deadlocks.len() as f64),
            Self::CpuIdleMin => variant.cpu_idle_min,
        }
    }

    /// Whether it counts frames or drops at vNICs.
    pub fn is_of_vnics(&self) -> bool {
        matches!(self, Self::Vnics(..))
    }

    /// Whether it counts drops at vNICs.
    pub(crate) fn is_vnic_drops(&self) -> bool {
        matches!(self, Self::Vnics(_, VnicField::Drops(_)))
    }

    /// Whether it counts drops for this cause.
    pub(crate) fn is_drops(&self, cause: &str) -> bool {
        match self {
            Self::Links(_, LinkField::Drops(only)) => only.as_ref().is_none_or(|one| one == cause),
            _ => false,
        }
    }

    /// Whether it counts what this link dropped for this cause.
    pub(crate) fn counts_drops(&self, link: &LinkResult, cause: &str) -> bool {
        self.is_drops(cause) && matches!(self, Self::Links(set, _) if set.has(link))
    }
}

impl FlowSet {
    fn of<'a>(&self, flows: &'a [FlowResult]) -> Vec<&'a FlowResult> {
        let member = |flow: &&FlowResult| match self {
            Self::All => true,
            Self::Tenant(tenant) => flow.tenant == *tenant,
            Self::Traffic(table) => flow.traffic == *table,
        };
        flows.iter().filter(member).collect()
    }
}

impl LinkSet {
    fn of<'a>(&self, links: &'a [LinkResult]) -> Vec<&'a LinkResult> {
        links.iter().filter(|link| self.has(link)).collect()
    }

    fn has(&self, link: &LinkResult) -> bool {
        match self {
            Self::All => true,
            Self::Bottleneck => link.bottleneck,
            Self::Named(name) => link.id.replace('>', "-") == *name,
        }
    }
}

/// `None` without bulk flows, and fairness if they received nothing.
fn goodput_value(goodput: &Goodput, field: &str) -> Option<f64> {
    match field {
        "sum" => goodput.mean.map(|_| goodput.sum),
        "mean" => goodput.mean,
        "max" => goodput.max,
        _ => goodput.jain,
    }
}

fn program_value(program: &ProgramResult, field: &str) -> Option<f64> {
    let path = program.critical_path.as_ref();
    match field {
        "completion_s" => program.completion_s,
        // Of a program that has not ended they are times so far: smaller than they would be.
        "computing_s" => program.has_ended().then_some(program.computing_s),
        "waiting_s" => program.has_ended().then_some(program.waiting_s),
        "waiting_max_s" => program.has_ended().then_some(program.waiting_max_s),
        "operations" => Some(program.operations as f64),
        "ended" => Some(program.ended as f64),
        "critical_path_s" => path.map(|path| path.computing_s + path.network_s),
        "critical_computing_s" => path.map(|path| path.computing_s),
        _ => path.map(|path| path.network_s),
    }
}

fn rtt_value(variant: &VariantResult, field: &str) -> Option<f64> {
    let rtt = &variant.rtt_us;
    if field == "count" {
        return Some(rtt.count as f64);
    }
    match field {
        "p50" => rtt.p50,
        "p99" => rtt.p99,
        "p999" => rtt.p999,
        _ => rtt.max,
    }
}

fn flows_value(flows: &[&FlowResult], field: &str) -> Option<f64> {
    if field == "count" {
        return Some(flows.len() as f64);
    }
    if flows.is_empty() {
        return None;
    }
    let goodputs = || -> Vec<f64> { flows.iter().map(|flow| flow.goodput_bps).collect() };
    let all = || flows.iter().copied();
    let tcp = || all().filter(|flow| flow.protocol.is_tcp());
    let count = |of: fn(&FlowResult) -> Option<u64>| {
        let counts = measured(tcp(), |flow| of(flow).map(|count| count as f64));
        counts.map(|counts| counts.iter().sum())
    };
    let largest = |values: Option<Vec<f64>>| values?.into_iter().reduce(f64::max);
    match field {
        "goodput_bps" => Some(goodputs().iter().sum()),
        "retransmits" => count(|flow| flow.retransmits),
        "timeouts" => count(|flow| flow.timeouts),
        "jain" => stats::jain(&goodputs()),
        "cwnd_max_bytes" => largest(measured(tcp(), |f| f.cwnd_max_bytes.map(|b| b as f64))),
        "cwnd_cuts" => count(|flow| flow.cwnd_cuts),
        "stalled_us" => largest(measured(all(), |flow| flow.stalled_us)),
        "loss" => loss(all()),
        "socket_drops" => datagrams(all(), |d| d.socket_drops),
        _ => stats::mean(&measured(tcp(), |flow| flow.srtt_us)?),
    }
}

/// Retransmissions of all flows of TCP; `None` if one of them has not counted any, or there is
/// none.
pub fn retransmits(flows: &[FlowResult]) -> Option<f64> {
    flows_value(&flows.iter().collect::<Vec<_>>(), "retransmits")
}

/// What each of these flows measured; `None` if one of them did not, or there is none: of the
/// others alone it would look better than it was.
fn measured<'a>(
    flows: impl Iterator<Item = &'a FlowResult>,
    of: impl Fn(&FlowResult) -> Option<f64>,
) -> Option<Vec<f64>> {
    let values: Option<Vec<f64>> = flows.map(of).collect();
    values.filter(|values| !values.is_empty())
}

/// Lost bytes of those that were received or lost, 0..=1. If all that was sent is known to be under
/// way, nothing is lost. `None` without datagrams.
pub fn loss<'a>(flows: impl Iterator<Item = &'a FlowResult> + Clone) -> Option<f64> {
    let lost = datagrams(flows.clone(), |d| d.lost_bytes)?;
    let known = lost + datagrams(flows.clone(), |d| d.received_bytes)?;
    if known > 0.0 {
        return Some(lost / known);
    }
    let underway = datagrams(flows, |d| d.underway.unwrap_or(0))?;
    (underway > 0.0).then_some(0.0)
}

/// Summed over flows of datagrams; `None` if there is none.
fn datagrams<'a>(
    flows: impl Iterator<Item = &'a FlowResult>,
    of: fn(&Datagrams) -> u64,
) -> Option<f64> {
    let counted = flows.filter_map(|flow| flow.datagrams.as_ref());
    counted
        .map(of)
        .reduce(|sum, one| sum + one)
        .map(|sum| sum as f64)
}

fn links_value(links: &[&LinkResult], field: &LinkField) -> Option<f64> {
    if links.is_empty() {
        return None;
    }
    let sum = |of: &dyn Fn(&LinkResult) -> u64| links.iter().map(|l| of(l)).sum::<u64>() as f64;
    let fullest = |of: &dyn Fn(&LinkResult) -> Option<f64>| {
        links.iter().filter_map(|l| of(l)).reduce(f64::max)
    };
    Some(match field {
        LinkField::Rate => links.iter().map(|l| l.rate_bps).min().unwrap_or(0) as f64,
        LinkField::Sent => sum(&|l| l.sent),
        LinkField::SentBytes => sum(&|l| l.sent_bytes),
        LinkField::Marks => sum(&|l| l.marks),
        LinkField::Drops(None) => sum(&|l| l.drops.values().sum()),
        LinkField::Drops(Some(cause)) => sum(&|l| l.drops.get(cause).copied().unwrap_or(0)),
        LinkField::Queue(field) => match field.as_str() {
            "p50" => fullest(&|l| l.queue_bytes.p50)?,
            "p99" => fullest(&|l| l.queue_bytes.p99)?,
            _ => fullest(&|l| l.queue_bytes.max)?,
        },
        LinkField::Cee(field) => return cee_value(links, field),
    })
}

/// Over the vNICs of a tenant, or of all; `None` without any.
fn vnics_value(vnics: &[VnicResult], tenant: Option<&str>, field: &VnicField) -> Option<f64> {
    let those = vnics.iter();
    let those = those.filter(|vnic| tenant.is_none_or(|name| vnic.tenant == name));
    let of = |vnic: &VnicResult| match field {
        VnicField::Frames(point) => match point.as_str() {
            "sent" => vnic.sent,
            "into_switch" => vnic.into_switch,
            "out_of_switch" => vnic.out_of_switch,
            _ => vnic.received,
        },
        VnicField::Drops(None) => vnic.drops.values().sum(),
        VnicField::Drops(Some(cause)) => vnic.drops.get(cause).copied().unwrap_or(0),
    };
    let sum = those.map(of).reduce(|sum, one| sum + one);
    sum.map(|sum| sum as f64)
}

/// `None` where no link is of converged Ethernet.
fn cee_value(links: &[&LinkResult], field: &str) -> Option<f64> {
    let all = || links.iter().filter_map(|link| link.cee.as_ref());
    all().next()?;
    let most = |of: fn(&LinkCee) -> f64| all().map(of).fold(0.0, f64::max);
    Some(match field {
        "pauses" => all().map(|cee| cee.pauses as f64).sum(),
        "notifications" => all().map(|cee| cee.notifications as f64).sum(),
        "paused_us" => most(|cee| cee.paused_us),
        _ => most(|cee| cee.ingress_max_bytes as f64),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::results::{FctQuantiles, Protocol, QueueQuantiles};

    fn variant() -> VariantResult {
        let link = |id: &str, bottleneck, tail, p99| LinkResult {
            id: id.to_owned(),
            bottleneck,
            drops: BTreeMap::from([("tail".to_owned(), tail), ("red".to_owned(), 1)]),
            queue_bytes: QueueQuantiles {
                p99: Some(p99),
                ..QueueQuantiles::default()
            },
            ..LinkResult::default()
        };
        let flow = |tenant: &str, traffic: &str, goodput_bps| FlowResult {
            tenant: tenant.to_owned(),
            traffic: traffic.to_owned(),
            goodput_bps,
            retransmits: Some(2),
            ..FlowResult::default()
        };
        VariantResult {
            name: "v".to_owned(),
            links: vec![
                link("left>right", true, 3, 10.0),
                link("right>left", true, 4, 30.0),
                link("left>s1", false, 100, 90.0),
            ],
            flows: vec![
                flow("s1", "bulk", 5.0),
                flow("s1", "bulk", 6.0),
                flow("s2", "mice", 7.0),
            ],
            enforcement: BTreeMap::from([("policed".to_owned(), 9)]),
            ..VariantResult::default()
        }
    }

    fn value(name: &str) -> Option<f64> {
        let figure = Figure::parse(name).unwrap_or_else(|c| panic!("{name}: {c}"));
        figure.value(&[variant()])
    }

    #[test]
    fn links_are_summed_or_the_fullest() {
        assert_eq!(value("v.links.bottleneck.drops"), Some(9.0));
        assert_eq!(value("v.links.bottleneck.drops.tail"), Some(7.0));
        assert_eq!(value("v.links.all.drops"), Some(110.0));
        assert_eq!(value("v.links.left-s1.drops"), Some(101.0));
        assert_eq!(value("v.links.bottleneck.queue_bytes.p99"), Some(30.0));
        assert_eq!(value("v.links.no-such.drops"), None);
    }

    #[test]
    fn flows_are_summed_by_tenant_or_traffic() {
        assert_eq!(value("v.flows.s1.goodput_bps"), Some(11.0));
        assert_eq!(value("v.traffic.mice.goodput_bps"), Some(7.0));
        assert_eq!(value("v.flows.all.retransmits"), Some(6.0));
        assert_eq!(value("v.flows.s9.goodput_bps"), None);
        assert_eq!(value("v.flows.s9.count"), Some(0.0));
    }

    #[test]
    fn converged_ethernet_has_figures_of_its_own() {
        let mut measured = variant();
        let value = |measured: &VariantResult, name: &str| {
            let figure = Figure::parse(name).unwrap();
            figure.value(std::slice::from_ref(measured))
        };
        assert_eq!(value(&measured, "v.links.all.pauses"), None);
        assert_eq!(value(&measured, "v.deadlocks"), Some(0.0));
        for (link, pauses) in measured.links.iter_mut().zip([1, 2]) {
            link.cee = Some(LinkCee {
                pauses,
                paused_us: 10.0 * pauses as f64,
                ..LinkCee::default()
            });
        }
        assert_eq!(value(&measured, "v.links.all.pauses"), Some(3.0));
        assert_eq!(value(&measured, "v.links.all.paused_us"), Some(20.0));
        assert_eq!(value(&measured, "v.links.left-right.pauses"), Some(1.0));
    }

    #[test]
    fn a_program_that_has_not_ended_has_not_measured_how_long_it_waits() {
        let mut measured = variant();
        let program = ProgramResult {
            operations: 2,
            ended: 2,
            waiting_s: 3.0,
            ..ProgramResult::default()
        };
        measured.programs.insert("p".to_owned(), program);
        let quantity = Quantity::parse("traffic.p.waiting_s").unwrap();
        assert_eq!(quantity.value(&measured), Some(3.0));
        measured.programs.get_mut("p").unwrap().ended = 1;
        assert_eq!(quantity.value(&measured), None);
    }

    #[test]
    fn loss_is_of_datagrams_alone() {
        let mut measured = variant();
        let counted = |lost_bytes, received_bytes| Datagrams {
            lost_bytes,
            received_bytes,
            socket_drops: 4,
            ..Datagrams::default()
        };
        measured.flows[1].datagrams = Some(counted(10, 30));
        measured.flows[2].datagrams = Some(counted(0, 60));
        let value = |name: &str| Figure::parse(name).unwrap().value(&[measured.clone()]);
        assert_eq!(value("v.flows.s1.loss"), Some(0.25));
        assert_eq!(value("v.flows.all.loss"), Some(0.1));
        assert_eq!(value("v.traffic.mice.socket_drops"), Some(4.0));
        let of_underway = |underway| {
            let mut flows = variant().flows;
            flows[0].datagrams = Some(Datagrams {
                underway,
                ..Datagrams::default()
            });
            super::loss(flows.iter())
        };
        // All that was sent is under way; nothing was sent; nobody knows.
        assert_eq!(
            [Some(1), Some(0), None].map(of_underway),
            [Some(0.0), None, None]
        );
        assert_eq!(variant().flows.len(), 3);
        assert_eq!(super::loss(variant().flows.iter()), None);
    }

    #[test]
    fn vnics_are_summed() {
        let mut measured = variant();
        let vnic = |tenant: &str, sent, full| VnicResult {
            tenant: tenant.to_owned(),
            sent,
            received: 7,
            drops: BTreeMap::from([("full".to_owned(), full), ("socket".to_owned(), 1)]),
            ..VnicResult::default()
        };
        measured.vnics = vec![vnic("a", 5, 2), vnic("b", 6, 3)];
        let value = |name: &str| Figure::parse(name).unwrap().value(&[measured.clone()]);
        assert_eq!(value("v.vnics.all.sent"), Some(11.0));
        assert_eq!(value("v.vnics.b.drops"), Some(4.0));
        assert_eq!(value("v.vnics.all.drops.full"), Some(5.0));
        assert_eq!(value("v.vnics.c.sent"), None);
        assert!(Figure::parse("v.vnics.all.lost").is_err());
    }

    #[test]
    fn what_was_not_measured_is_none_not_zero() {
        assert_eq!(value("v.rtt_us.p50"), None);
        assert_eq!(value("v.fct_us.mice.p50"), None);
        assert_eq!(value("v.enforcement.nothing"), None);
        assert_eq!(value("v.links.bottleneck.queue_bytes.p50"), None);
        for field in ["timeouts", "srtt_us", "stalled_us", "cwnd_max_bytes"] {
            assert_eq!(value(&format!("v.flows.all.{field}")), None, "{field}");
        }
        let idle = VariantResult {
            fct_us: [("mice".to_owned(), stats::fct_quantiles(&[]))].into(),
            ..VariantResult::default()
        };
        let value = |name: &str| Quantity::parse(name).unwrap().value(&idle);
        for name in [
            "fct_us.mice.mean",
            "fct_us.mice.p50",
            "fct_us.mice.p99",
            "fct_us.mice.p999",
            "goodput_bps.sum",
            "goodput_bps.jain",
        ] {
            assert_eq!(value(name), None, "{name}");
        }
        assert_eq!(value("fct_us.mice.count"), Some(0.0));
        assert_eq!(value("fct_us.mice.unfinished"), Some(0.0));
    }

    #[test]
    fn one_flow_that_has_not_measured_leaves_no_sum() {
        let mut measured = variant();
        let value = |measured: &VariantResult, name: &str| {
            let quantity = Quantity::parse(name).unwrap();
            quantity.value(measured)
        };
        for flow in &mut measured.flows {
            flow.stalled_us = Some(3.0);
            flow.srtt_us = Some(5.0);
        }
        assert_eq!(value(&measured, "flows.all.stalled_us"), Some(3.0));
        assert_eq!(value(&measured, "flows.all.srtt_us"), Some(5.0));
        measured.flows[2].stalled_us = None;
        measured.flows[2].retransmits = None;
        assert_eq!(value(&measured, "flows.all.stalled_us"), None);
        assert_eq!(value(&measured, "flows.all.retransmits"), None);
        assert_eq!(value(&measured, "flows.s1.retransmits"), Some(4.0));
        // Datagrams are never retransmitted.
        measured.flows[2].protocol = Protocol::Udp;
        assert_eq!(value(&measured, "flows.all.retransmits"), Some(4.0));
        assert_eq!(value(&measured, "flows.s2.retransmits"), None);
    }

    #[test]
    fn policing_is_counted() {
        assert_eq!(value("v.enforcement.policed"), Some(9.0));
    }

    #[test]
    fn intervals_and_deadlines_have_figures() {
        let mut measured = variant();
        let goodput = Goodput {
            sum: 7.0,
            mean: Some(3.5),
            jain: Some(0.9),
            max: Some(5.0),
        };
        measured.intervals.insert("two".to_owned(), goodput);
        let fct = |missed| FctQuantiles {
            missed,
            ..FctQuantiles::default()
        };
        measured.fct_us.insert("round".to_owned(), fct(Some(0.25)));
        measured.fct_us.insert("mice".to_owned(), fct(None));
        let value = |name: &str| Figure::parse(name).unwrap().value(&[measured.clone()]);
        assert_eq!(value("v.intervals.two.goodput_bps.jain"), Some(0.9));
        assert_eq!(value("v.intervals.two.goodput_bps.sum"), Some(7.0));
        assert_eq!(value("v.intervals.two.goodput_bps.max"), Some(5.0));
        assert_eq!(value("v.intervals.three.goodput_bps.sum"), None);
        assert_eq!(value("v.fct_us.round.missed"), Some(0.25));
        assert_eq!(value("v.fct_us.mice.missed"), None);
        assert!(Figure::parse("v.intervals.two.jain").is_err());
    }

    #[test]
    fn misspelt_figures_name_the_nearest() {
        let complaint = Figure::parse("v.links.bottleneck.drop").unwrap_err();
        assert!(
            complaint.advice.contains("did you mean \"drops\""),
            "{complaint}"
        );
        let complaint = Figure::parse("v.rtt_us.p50.max").unwrap_err();
        assert!(
            complaint.reason.contains("nothing below `p50`"),
            "{complaint}"
        );
    }
}
