//! `sluicegate doctor`: what works here, and what each "no" costs.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context, anyhow};
use serde::Serialize;
use serde_json::{Value, json};
use sluicegate_agent::{
    doctor::{self, Finding, InterfaceReport, Need, Report, Verdict},
    interfaces::Patterns,
    state::{self, State},
};
use sluicegate_dataplane::{
    config,
    control::{self, Ask},
};

use crate::{
    output::{self, Failure},
    switch,
};

/// Say what this kernel and these interfaces support and what each "no" costs.
///
/// Exits with 0 if the agent can enforce here, else with 1.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Interfaces to look at, as shell patterns
    #[arg(long = "interface", short, value_name = "PATTERN", default_value = "*", num_args = 1..)]
    interfaces: Vec<String>,

    /// Where agents say what they do
    #[arg(long, value_name = "DIR", default_value = state::RUN_DIR)]
    run_dir: PathBuf,

    /// Control socket of a switch, whose ingress is reported if it runs
    #[arg(long, value_name = "PATH", default_value = config::SOCKET)]
    switch: PathBuf,

    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// The doctor's report, and the findings of agents that run.
#[derive(Serialize)]
struct Document {
    #[serde(flatten)]
    report: Report,
    /// Notes of agents by network namespace.
    agents: BTreeMap<String, Vec<String>>,
    /// Why others cannot be told of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unknown_agents: Vec<String>,
    /// Of a switch that runs: which ports are lossless at ingress.
    #[serde(skip_serializing_if = "Option::is_none")]
    switch: Option<Value>,
}

/// Prints the doctor's report.
pub fn run(args: &Args) -> Result<(), Failure> {
    let agents = state::all(&args.run_dir);
    let document = Document {
        report: doctor::examine(&Patterns::new(&args.interfaces)?)?,
        agents: running(&agents.states),
        unknown_agents: agents.failures,
        switch: control::ask(&args.switch, Ask::Show).ok().map(|mut shown| {
            json!({
                "ingress": shown["ingress"].take(),
                "log_lines_lost": shown["log_lines_lost"].take(),
            })
        }),
    };
    if args.json {
        let json = serde_json::to_string_pretty(&document).context("writing JSON")?;
        output::print(&(json + "\n"))?;
    } else {
        output::print(&text(&document))?;
    }
    let report = &document.report;
    if report.can_enforce {
        return Ok(());
    }
    let missing: Vec<&str> = report
        .findings
        .iter()
        .filter(|finding| finding.need == Need::Enforce && finding.verdict != Verdict::Yes)
        .map(|finding| finding.id)
        .collect();
    Err(anyhow!(
        "the agent cannot enforce here for lack of {}",
        missing.join(", ")
    )
    .into())
}

fn running(states: &[State]) -> BTreeMap<String, Vec<String>> {
    let agents = states.iter().filter(|agent| agent.is_running());
    agents
        .map(|agent| (agent.netns.clone(), agent.remarks()))
        .collect()
}

fn text(document: &Document) -> String {
    let mut text = about_host(document);
    if let Some(shown) = &document.switch {
        text += &format!("\nthe switch:\n{}", switch::ingress(shown));
        text += &switch::log_lines_lost(shown);
    }
    text
}

fn about_host(document: &Document) -> String {
    let Document { report, agents, .. } = document;
    let mut text = format!("Linux {}, {} CPUs\n\n", report.kernel, report.cpus);
    let width = report
        .findings
        .iter()
        .map(|finding| finding.id.len())
        .max()
        .unwrap_or(0);
    for finding in &report.findings {
        text.push_str(&lines(finding, width));
    }
    text.push('\n');
    for interface in &report.interfaces {
        text.push_str(&paragraph(interface));
    }
    if !report.uncovered.is_empty() {
        text.push_str("\nNot covered, wherever the agent is attached:\n");
    }
    for one in &report.uncovered {
        text.push_str(&format!("  {}: {}\n", one.what, one.why));
    }
    for (netns, notes) in agents {
        text.push_str(&format!("\nAn agent runs in network namespace {netns}.\n"));
        for note in notes {
            text.push_str(&format!("  note: {note}\n"));
        }
    }
    for failure in &document.unknown_agents {
        text.push_str(&format!(
            "\nWhether another agent runs is not known: {failure}.\n"
        ));
    }
    if report.can_enforce {
        text.push_str("\nThe agent can enforce here.\n");
    }
    text
}

fn lines(finding: &Finding, width: usize) -> String {
    let verdict = match finding.verdict {
        Verdict::Yes => "yes",
        Verdict::No => "no ",
        Verdict::Unknown => "?  ",
    };
    let mut text = format!("{verdict}  {:<width$}  {}\n", finding.id, finding.detail);
    let need = match finding.need {
        Need::Enforce => "enforcement needs it",
        Need::Lab => "the lab needs it",
        Need::Comfort => "not needed",
    };
    let indent = width + 7;
    if let Some(cost) = finding.cost {
        text.push_str(&format!("{:indent$}cost: {cost} ({need})\n", ""));
    }
    if let Some(remedy) = &finding.remedy {
        text.push_str(&format!("{:indent$}get it: {remedy}\n", ""));
    }
    text
}

fn paragraph(report: &InterfaceReport) -> String {
    let interface = &report.interface;
    let kind = match interface.kind.as_str() {
        "" => "plain",
        kind => kind,
    };
    let mut text = format!(
        "{}: {kind}, MTU {}, qdisc {}, offloads {}\n",
        interface.name,
        interface.mtu_bytes,
        interface.qdisc,
        offloads(report)
    );
    for (direction, programs) in [
        ("ingress", &report.tcx_ingress),
        ("egress", &report.tcx_egress),
    ] {
        if !programs.is_empty() {
            text.push_str(&format!("  TCX {direction}: {}\n", programs.join(", ")));
        }
    }
    if report.clsact {
        text.push_str("  has clsact filters; they run after TCX\n");
    }
    if let Some(lossless) = &report.lossless {
        text.push_str(&format!("  {lossless}\n"));
    }
    for note in &report.notes {
        text.push_str(&format!("  note: {note}\n"));
    }
    text
}

fn offloads(report: &InterfaceReport) -> String {
    let Some(offloads) = report.offloads else {
        return "unknown".to_owned();
    };
    let on: Vec<&str> = [
        ("tx-checksum", offloads.tx_checksum),
        ("tso", offloads.tso),
        ("gso", offloads.gso),
        ("gro", offloads.gro),
        ("lro", offloads.lro),
    ]
    .into_iter()
    .filter_map(|(name, on)| on.then_some(name))
    .collect();
    if on.is_empty() {
        "none".to_owned()
    } else {
        on.join(" ")
    }
}
