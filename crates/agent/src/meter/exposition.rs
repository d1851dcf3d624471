//! Everything that is watched, in Prometheus' text format.
//!
//! Series are bounded: none per flow. What has a `rule` label is bounded by the policy, what has
//! `interface` and `tenant` by what is attached (and was within the hour).

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use prometheus::TextEncoder;
use sluicegate_core::{
    abi::{COUNTER_NAMES, PolicyTable, Slot},
    cc::Algorithm,
};

use super::{
    Amounts, BucketUse, Ledger, Snapshot,
    families::Families,
    help,
    ledger::Tenant,
    ports::{self, SwitchUse},
};
use crate::{
    bpffs::LAYOUT_VERSION,
    inventory::ProgramInfo,
    record::{FlowRecord, RULE_MODES},
};

/// How a process that looks again and again is doing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Health {
    /// When it began, in seconds of the Unix epoch.
    pub started_unix_s: f64,
    /// Looks so far.
    pub looks: u64,
    /// Of them, those that failed.
    pub failures: u64,
    /// Time that they took, in seconds.
    pub looking_s: f64,
    /// Lines of its log that were lost.
    pub log_lines_lost: u64,
    /// Interfaces that a pattern covers and on which the agent does not enforce; `None`: there is
    /// no agent, or it has not said so.
    pub left_out: Option<usize>,
}

/// The input of a scrape's text.
#[derive(Clone, Copy, Debug)]
pub struct Exposition<'a> {
    /// Name of the network namespace.
    pub netns: &'a str,
    /// `None`: the last look failed, or there is a switch that does not enforce.
    pub snapshot: Option<&'a Snapshot>,
    /// The userspace switch, if one is looked at.
    pub switch: Option<&'a SwitchUse>,
    /// Sums over time; `None`: it was looked once only.
    pub ledger: Option<&'a Ledger>,
    /// The kernel's account of the programs.
    pub programs: &'a [ProgramInfo],
    /// `None`: it was looked once only.
    pub health: Option<&'a Health>,
}

impl Exposition<'_> {
    /// The text.
    ///
    /// # Errors
    /// The encoder found something that Prometheus would refuse.
    pub fn text(&self) -> Result<String> {
        let mut all = Families::default();
        self.this_process(&mut all);
        if let Some(snapshot) = self.snapshot {
            counters(&mut all, snapshot);
            policy(&mut all, &snapshot.policy);
            table(&mut all, snapshot);
            buckets(&mut all, &snapshot.buckets);
            flows(&mut all, &snapshot.flows);
        }
        if let Some(ledger) = self.ledger {
            sums(&mut all, ledger);
        }
        programs(&mut all, self.programs);
        if let Some(switch) = self.switch {
            ports::expose(&mut all, switch);
        }
        TextEncoder::new()
            .encode_to_string(&all.made())
            .context("encoding metrics")
    }

    fn this_process(&self, all: &mut Families) {
        let layout = LAYOUT_VERSION.to_string();
        all.gauge(
            "info",
            "Version of Sluicegate and of the layout of its pinned maps.",
        )
        .value(
            &[
                ("version", env!("CARGO_PKG_VERSION")),
                ("layout", &layout),
                ("netns", self.netns),
            ],
            1.0,
        );
        let is_up = self.snapshot.is_some() || self.switch.is_some();
        all.gauge(
            "up",
            "1 if the pinned state or the switch could be read, else 0.",
        )
        .value(&[], f64::from(u8::from(is_up)));
        let Some(health) = self.health else {
            return;
        };
        all.gauge(
            "start_time_seconds",
            "When the process began that looks, in seconds of the Unix epoch.",
        )
        .value(&[], health.started_unix_s);
        all.counter("looks", "How often the pinned state was read.")
            .value(&[], health.looks as f64);
        all.counter("look_failures", "How often it could not be read.")
            .value(&[], health.failures as f64);
        all.counter("look_seconds", "Time spent reading it.")
            .value(&[], health.looking_s);
        all.counter(
            "log_lines_lost",
            "Lines of its log that could not be written.",
        )
        .value(&[], health.log_lines_lost as f64);
        if let Some(left_out) = health.left_out {
            all.gauge(
                "interfaces_left_out",
                "Interfaces that a pattern covers and on which the agent does not enforce.",
            )
            .value(&[], left_out as f64);
        }
    }
}

fn counters(all: &mut Families, snapshot: &Snapshot) {
    for name in &COUNTER_NAMES[1..] {
        if let Some(value) = snapshot.counters.get(*name) {
            all.counter(name, help::counter(name))
                .value(&[], *value as f64);
        }
    }
}

fn policy(all: &mut Families, policy: &PolicyTable) {
    let name = |number| Algorithm::from_number(number).map_or("unknown", Algorithm::name);
    let mode = |mode: u8| {
        RULE_MODES
            .get(usize::from(mode))
            .copied()
            .unwrap_or("unknown")
    };
    // A rule with `port` takes two slots.
    let rules: BTreeMap<u32, _> = policy
        .rules()
        .map(|rule| (rule.params.rule_id.into(), &rule.params))
        .collect();
    let mut family = all.gauge("rule_info", "The rules of the policy in force.");
    for (id, params) in rules {
        let labels = [
            ("rule", rule_label(Some(id))),
            ("rule_mode", mode(params.mode).to_owned()),
            ("algorithm", name(params.algorithm).to_owned()),
            ("one_sided", name(params.one_sided).to_owned()),
        ];
        family.value(&borrowed(&labels), 1.0);
    }
    drop(family);
    all.gauge(
        "trusted_prefixes",
        "Prefixes whose hosts are trusted to enforce.",
    )
    .value(&[], policy.trusted_count.into());
}

fn table(all: &mut Families, snapshot: &Snapshot) {
    all.gauge("table_slots", "Places in the table of flows.")
        .value(&[], snapshot.slots.into());
    all.gauge("table_flows", "Flows in the table of flows.")
        .value(&[], snapshot.flows.len() as f64);
    all.gauge(
        "table_bytes",
        "Kernel memory that the table of flows takes.",
    )
    .value(&[], f64::from(snapshot.slots) * size_of::<Slot>() as f64);
    let mut used = all.gauge(
        "interface_flows",
        "Places in the table of flows that an interface uses.",
    );
    for row in &snapshot.interfaces {
        used.value(
            &[("tenant", &row.tenant), ("interface", &row.interface)],
            row.flows.into(),
        );
    }
    drop(used);
    let mut quota = all.gauge(
        "interface_quota_flows",
        "Most places that an interface may use.",
    );
    for row in snapshot.interfaces.iter().filter(|row| row.quota > 0) {
        quota.value(
            &[("tenant", &row.tenant), ("interface", &row.interface)],
            row.quota.into(),
        );
    }
}

/// A counter of a bucket: its name, its help, and its value.
type BucketCounter = (&'static str, &'static str, fn(&BucketUse) -> u64);

const BUCKET_COUNTERS: [BucketCounter; 3] = [
    (
        "bucket_passed_bytes",
        "Bytes without a flow within the rate of a bucket.",
        |bucket| bucket.passed_bytes,
    ),
    (
        "bucket_beyond_bytes",
        "Bytes without a flow beyond it: dropped where mode is enforce.",
        |bucket| bucket.exceeded_bytes,
    ),
    (
        "bucket_beyond_packets",
        "Packets without a flow beyond it.",
        |bucket| bucket.exceeded_packets,
    ),
];

fn buckets(all: &mut Families, buckets: &[BucketUse]) {
    for (name, help, value) in BUCKET_COUNTERS {
        let mut family = all.counter(name, help);
        for bucket in buckets {
            let number = (u64::from(bucket.bucket) + 1).to_string();
            let labels = [
                ("tenant", bucket.tenant.as_str()),
                ("interface", &bucket.interface),
                ("bucket", &number),
                (
                    "mode",
                    if bucket.enforced {
                        "enforce"
                    } else {
                        "observe"
                    },
                ),
            ];
            family.value(&labels, value(bucket) as f64);
        }
    }
}

/// The key of a series of flows.
type Group<'a> = (&'a str, &'a str, Option<u32>, &'a str);

/// Of active flows in a group, now.
#[derive(Default)]
struct Windows {
    active: u32,
    limited: u32,
    allowed_bytes: u64,
    advertised_bytes: u64,
}

fn flows(all: &mut Families, flows: &[FlowRecord]) {
    let mut by_state: BTreeMap<(Group<'_>, &str, &str), u32> = BTreeMap::new();
    let mut by_notice: BTreeMap<(Group<'_>, &str), u32> = BTreeMap::new();
    let mut windows: BTreeMap<Group<'_>, Windows> = BTreeMap::new();
    for flow in flows {
        let group = (
            flow.tenant.as_str(),
            flow.interface.as_str(),
            flow.rule,
            flow.rule_mode,
        );
        *by_state
            .entry((group, flow.mode, flow.reason.unwrap_or("none")))
            .or_default() += 1;
        for notice in &flow.noticed {
            *by_notice.entry((group, notice)).or_default() += 1;
        }
        let sum = windows.entry(group).or_default();
        if !flow.is_active() {
            continue;
        }
        sum.active += 1;
        if let Some(allowed) = flow.allowed_window_bytes {
            sum.limited += u32::from(flow.is_limited());
            sum.allowed_bytes += allowed;
            sum.advertised_bytes += flow.advertised_window_bytes;
        }
    }
    let mut family = all.gauge("flows", "Flows by what is done to them, and why not more.");
    for ((group, mode, reason), count) in &by_state {
        let mut labels = group_labels(group);
        labels.extend([
            ("mode", (*mode).to_owned()),
            ("reason", (*reason).to_owned()),
        ]);
        family.value(&borrowed(&labels), (*count).into());
    }
    drop(family);
    let mut family = all.gauge(
        "flows_noticed",
        "Flows with odd packets of the tenant, of its peer or of strangers, by kind; a flow may have several.",
    );
    for ((group, notice), count) in &by_notice {
        let mut labels = group_labels(group);
        labels.push(("notice", (*notice).to_owned()));
        family.value(&borrowed(&labels), (*count).into());
    }
    drop(family);
    let mut gauge = |name, help, value: fn(&Windows) -> f64| {
        let mut family = all.gauge(name, help);
        for (group, sum) in &windows {
            family.value(&borrowed(&group_labels(group)), value(sum));
        }
    };
    gauge(
        "flows_active",
        "Flows that had packets within the last 10 seconds.",
        |sum| sum.active.into(),
    );
    gauge(
        "flows_limited",
        "Active flows that are held, or with rule_mode observe would be held, to a smaller window than the peer offers.",
        |sum| sum.limited.into(),
    );
    gauge(
        "window_allowed_bytes",
        "Sum over active flows of the receive window that they are held to, or with rule_mode observe would be.",
        |sum| sum.allowed_bytes as f64,
    );
    gauge(
        "window_advertised_bytes",
        "Sum over the same flows of the receive window that their peers offer.",
        |sum| sum.advertised_bytes as f64,
    );
}

/// A counter of a tenant: its name, its help, and what it adds up.
type TenantCounter = (&'static str, &'static str, fn(&Amounts) -> u64);

const TENANT_COUNTERS: [TenantCounter; 6] = [
    (
        "tenant_acked_bytes",
        "Payload of tenants that was acknowledged.",
        |sum| sum.acked_bytes,
    ),
    (
        "tenant_marked_bytes",
        "Of that, what met congestion marks.",
        |sum| sum.marked_bytes,
    ),
    ("tenant_received_bytes", "Payload towards tenants.", |sum| {
        sum.received_bytes
    }),
    (
        "tenant_losses",
        "Losses of tenants inferred from duplicate ACKs.",
        |sum| sum.losses,
    ),
    (
        "tenant_timeouts",
        "Losses of tenants inferred from silence.",
        |sum| sum.timeouts,
    ),
    (
        "tenant_policed_segments",
        "Segments of tenants dropped by policing.",
        |sum| sum.policed,
    ),
];

fn sums(all: &mut Families, ledger: &Ledger) {
    for (name, help, value) in TENANT_COUNTERS {
        let mut family = all.counter(name, help);
        for (tenant, sums) in ledger.sums() {
            for (rule, amounts) in &sums.by_rule {
                let rule = rule_label(*rule);
                let labels = [
                    ("tenant", tenant.tenant.as_str()),
                    ("interface", &tenant.interface),
                    ("rule", &rule),
                ];
                family.value(&labels, value(amounts) as f64);
            }
        }
    }
    let labels = |tenant: &Tenant| {
        [
            ("tenant", tenant.tenant.clone()),
            ("interface", tenant.interface.clone()),
        ]
    };
    let mut family = all.histogram(
        "srtt_seconds",
        "Smoothed RTTs of flows that had data acknowledged, one per flow and look.",
    );
    for (tenant, sums) in ledger.sums() {
        family.distribution(&borrowed(&labels(tenant)), &sums.srtt_s);
    }
    drop(family);
    let mut family = all.histogram(
        "window_bytes",
        "Windows that flows were, or would be, held to, one per flow that had data acknowledged and look.",
    );
    for (tenant, sums) in ledger.sums() {
        family.distribution(&borrowed(&labels(tenant)), &sums.window_bytes);
    }
}

fn programs(all: &mut Families, programs: &[ProgramInfo]) {
    let mut family = all.gauge(
        "program_instructions",
        "Instructions that the verifier walked through.",
    );
    for program in programs {
        family.value(
            &[("program", &program.name)],
            program.verified_instructions.into(),
        );
    }
    drop(family);
    // The kernel accounts only while statistics are on (sysctl kernel.bpf_stats_enabled).
    let mut runs = all.counter(
        "program_runs",
        "Runs of the programs while the kernel kept statistics.",
    );
    for program in programs.iter().filter(|program| program.runs > 0) {
        runs.value(&[("program", &program.name)], program.runs as f64);
    }
    drop(runs);
    let mut time = all.counter(
        "program_run_seconds",
        "Time spent in the programs while the kernel kept statistics.",
    );
    for program in programs.iter().filter(|program| program.runs > 0) {
        time.value(
            &[("program", &program.name)],
            program.run_time_ns as f64 / 1e9,
        );
    }
}

fn group_labels(group: &Group<'_>) -> Vec<(&'static str, String)> {
    let (tenant, interface, rule, rule_mode) = *group;
    vec![
        ("tenant", tenant.to_owned()),
        ("interface", interface.to_owned()),
        ("rule", rule_label(rule)),
        ("rule_mode", rule_mode.to_owned()),
    ]
}

/// As `sluicegate policy check` counts them, from 1.
fn rule_label(rule: Option<u32>) -> String {
    rule.map_or_else(|| "none".to_owned(), |id| (u64::from(id) + 1).to_string())
}

fn borrowed<'a>(labels: &'a [(&'a str, String)]) -> Vec<(&'a str, &'a str)> {
    labels
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{
        meter::{InterfaceUse, ports::PortUse},
        record::Names,
    };
    use sluicegate_core::abi::{
        FLOW_STRANGERS, Flow, FlowKey, Interface, MODE_ONE_SIDED, RULE_OBSERVE, Rule,
    };

    /// One interface with one observed flow.
    pub(in crate::meter) fn snapshot() -> Snapshot {
        let mut rule = Rule::default();
        rule.params.mode = RULE_OBSERVE;
        rule.params.algorithm = Algorithm::Dctcp.number();
        let mut policy = Box::new(PolicyTable::default());
        policy.add(0, rule);
        let mut flow = Flow {
            mode: MODE_ONE_SIDED,
            peer_window: 1000,
            wire_window: 1000,
            wscale: 10,
            srtt_ns: 250_000,
            bytes_acked: 10,
            marks: FLOW_STRANGERS,
            ..Flow::default()
        };
        flow.cc.cwnd = 20_000;
        let names = Names {
            interfaces: BTreeMap::from([(7, "veth0".to_owned())]),
            ..Names::default()
        };
        let key = FlowKey {
            ifindex: 7,
            ..FlowKey::default()
        };
        Snapshot {
            at_ns: 1,
            flows: vec![FlowRecord::new(&key, &flow, &[rule], &names, 1)],
            counters: COUNTER_NAMES[1..]
                .iter()
                .map(|name| ((*name).to_owned(), 3))
                .collect(),
            interfaces: vec![InterfaceUse {
                ifindex: 7,
                interface: "veth0".to_owned(),
                tenant: "veth0".to_owned(),
                flows: Interface::default().flows + 1,
                quota: 100,
            }],
            buckets: vec![BucketUse {
                interface: "veth0".to_owned(),
                tenant: "veth0".to_owned(),
                exceeded_packets: 9,
                ..BucketUse::default()
            }],
            slots: 128,
            policy,
        }
    }

    fn switch() -> SwitchUse {
        SwitchUse {
            ports: vec![PortUse {
                name: "vm1".to_owned(),
                kind: "tap".to_owned(),
                is_up: true,
                received: (7, 700),
                delivered: (8, 800),
                drops: vec![("full".to_owned(), 0), ("kernel".to_owned(), 5)],
            }],
            waited_for: 3,
            stalled: 2,
            circles: 1,
        }
    }

    /// Everything that there can be.
    pub(in crate::meter) fn full_text() -> String {
        let mut seen = snapshot();
        let mut ledger = Ledger::default();
        ledger.look(&seen);
        seen.flows[0].acked_bytes += 1_000;
        ledger.look(&seen);
        let programs = [ProgramInfo {
            name: "from_tenant".to_owned(),
            runs: 2,
            run_time_ns: 500_000_000,
            ..ProgramInfo::default()
        }];
        let exposition = Exposition {
            netns: "host",
            snapshot: Some(&seen),
            switch: Some(&switch()),
            ledger: Some(&ledger),
            programs: &programs,
            health: Some(&Health::default()),
        };
        exposition.text().unwrap()
    }

    fn has(text: &str, line: &str) {
        assert!(
            text.lines().any(|found| found == line),
            "no `{line}` in:\n{text}"
        );
    }

    #[test]
    fn an_observed_flow_says_what_enforcement_would_do() {
        let text = full_text();
        let group = "tenant=\"veth0\",interface=\"veth0\",rule=\"1\",rule_mode=\"observe\"";
        has(
            &text,
            &format!("sluicegate_flows{{{group},mode=\"one-sided\",reason=\"observe\"}} 1"),
        );
        has(
            &text,
            &format!("sluicegate_flows_noticed{{{group},notice=\"strangers\"}} 1"),
        );
        has(&text, &format!("sluicegate_flows_limited{{{group}}} 1"));
        has(
            &text,
            &format!("sluicegate_window_allowed_bytes{{{group}}} 20480"),
        );
        has(
            &text,
            &format!("sluicegate_window_advertised_bytes{{{group}}} 1024000"),
        );
        has(&text, "sluicegate_window_would_lower_total 3");
    }

    #[test]
    fn sums_and_distributions_are_by_tenant() {
        let text = full_text();
        let tenant = "tenant=\"veth0\",interface=\"veth0\"";
        has(
            &text,
            &format!("sluicegate_tenant_acked_bytes_total{{{tenant},rule=\"1\"}} 1000"),
        );
        has(
            &text,
            &format!("sluicegate_srtt_seconds_bucket{{{tenant},le=\"0.0002\"}} 0"),
        );
        has(
            &text,
            &format!("sluicegate_srtt_seconds_bucket{{{tenant},le=\"0.0005\"}} 1"),
        );
        has(
            &text,
            &format!("sluicegate_srtt_seconds_count{{{tenant}}} 1"),
        );
        has(
            &text,
            "sluicegate_program_run_seconds_total{program=\"from_tenant\"} 0.5",
        );
    }

    #[test]
    fn buckets_count_from_one_as_policies_do() {
        let labels = "tenant=\"veth0\",interface=\"veth0\",bucket=\"1\",mode=\"observe\"";
        has(
            &full_text(),
            &format!("sluicegate_bucket_beyond_packets_total{{{labels}}} 9"),
        );
    }

    #[test]
    fn every_counter_is_told_with_help_and_type() {
        let text = full_text();
        for name in &COUNTER_NAMES[1..] {
            has(&text, &format!("sluicegate_{name}_total 3"));
            has(&text, &format!("# TYPE sluicegate_{name}_total counter"));
            has(
                &text,
                &format!("# HELP sluicegate_{name}_total {}", help::counter(name)),
            );
        }
    }

    #[test]
    fn ports_of_a_switch_are_told_without_a_policy_too() {
        let nothing = Exposition {
            netns: "switch",
            snapshot: None,
            switch: Some(&switch()),
            ledger: None,
            programs: &[],
            health: None,
        };
        for text in [full_text(), nothing.text().unwrap()] {
            for line in [
                "sluicegate_up 1",
                "sluicegate_switch_port_up{port=\"vm1\",kind=\"tap\"} 1",
                "sluicegate_switch_port_received_frames_total{port=\"vm1\"} 7",
                "sluicegate_switch_port_delivered_bytes_total{port=\"vm1\"} 800",
                "sluicegate_switch_port_drops_total{port=\"vm1\",place=\"kernel\"} 5",
                "sluicegate_switch_ports_waited_for 3",
                "sluicegate_switch_ports_stalled 2",
                "sluicegate_switch_ports_circles 1",
            ] {
                has(&text, line);
            }
        }
    }

    #[test]
    fn without_pins_there_is_still_an_answer() {
        let health = Health {
            looks: 2,
            failures: 2,
            log_lines_lost: 3,
            left_out: Some(4),
            ..Health::default()
        };
        let nothing = Exposition {
            netns: "host",
            snapshot: None,
            switch: None,
            ledger: None,
            programs: &[],
            health: Some(&health),
        };
        let text = nothing.text().unwrap();
        has(&text, "sluicegate_up 0");
        has(&text, "sluicegate_look_failures_total 2");
        has(&text, "sluicegate_log_lines_lost_total 3");
        has(&text, "sluicegate_interfaces_left_out 4");
        assert!(!text.contains("sluicegate_flows"));
    }

    #[test]
    fn any_name_of_an_interface_is_a_label() {
        let mut seen = snapshot();
        seen.flows[0].tenant = "a\"b\\c\nd".to_owned();
        let exposition = Exposition {
            netns: "host",
            snapshot: Some(&seen),
            switch: None,
            ledger: None,
            programs: &[],
            health: None,
        };
        let text = exposition.text().unwrap();
        assert!(text.contains(r#"tenant="a\"b\\c\nd""#), "{text}");
    }
}
