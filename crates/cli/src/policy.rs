//! `sluicegate policy`.

mod explain;
mod set;

use std::path::PathBuf;

use clap::Subcommand;
use sluicegate_config::units::{format_bytes, format_rate};
use sluicegate_core::cc::Algorithm;
use sluicegate_policy::{Bucket, IpNet, Mode, Policy, Ports, Rule, Warning};

use crate::output::{self, Failure};

/// Checking, explaining and changing policies.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say whether a policy file is good, and what its rules are
    #[command(after_help = "Example: sluicegate policy check /etc/sluicegate/policy.toml")]
    Check {
        /// Policy file
        file: PathBuf,
    },
    Explain(explain::Args),
    Set(set::Args),
}

/// Runs `sluicegate policy …`.
pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Check { file } => {
            let (policy, warnings) = Policy::read_with_warnings(file)?;
            warn(&warnings);
            output::print(&format!("{}: good\n{}", file.display(), summary(&policy)))
        }
        Command::Explain(args) => explain::run(args),
        Command::Set(args) => set::run(args),
    }
}

/// Warnings go to standard error, each with what to add below it.
fn warn(warnings: &[Warning]) {
    for warning in warnings {
        output::say(warning.text().trim_end());
    }
}

fn summary(policy: &Policy) -> String {
    let mut text = String::new();
    let trusted: Vec<_> = policy.trusted.iter().map(ToString::to_string).collect();
    text += &match trusted.as_slice() {
        [] => "trusts nobody: every flow is one-sided\n".to_owned(),
        some => format!("trusts {}\n", some.join(", ")),
    };
    for (index, rule) in policy.rules.iter().enumerate() {
        text += &format!("{}: {}\n", rule.label(index), describe(rule));
    }
    for (index, bucket) in policy.buckets.iter().enumerate() {
        text += &format!("{}: {}\n", bucket.label(index), describe_bucket(bucket));
    }
    if policy.rules.is_empty() {
        text += "no rules: no flow is tracked\n";
    }
    if !policy.rules.iter().any(|rule| rule.mode == Mode::Enforce) {
        text += "nothing is edited: no rule has mode = \"enforce\"\n";
    }
    text
}

fn describe(rule: &Rule) -> String {
    let prefix = |prefix: Option<IpNet>| prefix.map_or("any".to_owned(), |p| p.to_string());
    let ports = match rule.ports {
        Ports::Either(range) => format!("port {range}"),
        Ports::Both(source, destination) => format!("ports {source} to {destination}"),
    };
    let mut flows = format!(
        "{} to {}, {ports}",
        prefix(rule.source),
        prefix(rule.destination)
    );
    if !rule.place.is_anywhere() {
        flows += &format!(", {}", rule.place.describe());
    }
    match rule.vlan {
        None => {}
        Some(0) => flows += ", untagged",
        Some(vlan) => flows += &format!(", VLAN {vlan}"),
    }
    if rule.mode == Mode::Off {
        return format!("{flows}: off");
    }
    let mut treatment = format!(
        "{} {}, one-sided {}, window at most {}",
        rule.mode,
        rule.algorithm,
        rule.one_sided,
        format_bytes(rule.window_cap_bytes.into()),
    );
    if let Some(mss) = rule.mss_bytes {
        treatment += &format!(", segments of an MSS of at most {mss}B");
    }
    treatment += &describe_fallback(rule);
    if let Some(rate_bps) = rule.rate_cap_bps {
        treatment += &format!(", at most {}", format_rate(rate_bps));
    }
    format!("{flows}: {treatment}")
}

/// What governs where the path does not suit the rule's algorithms.
fn describe_fallback(rule: &Rule) -> String {
    let used = [rule.algorithm, rule.one_sided];
    let mut text = String::new();
    if rule.k.is_none() && used.contains(&Algorithm::Dcvegas) {
        text += ", K of dcvegas from the path";
    }
    if rule.swift.target.is_none() && used.contains(&Algorithm::Swift) {
        text += ", target of swift from the path";
    }
    if !used.contains(&rule.fallback) {
        text += &format!(
            ", {} on far or noisy paths and where nothing is marked",
            rule.fallback
        );
    }
    text
}

fn describe_bucket(bucket: &Bucket) -> String {
    let classes: Vec<&str> = bucket.classes.iter().map(|class| class.name()).collect();
    let place = match bucket.place.describe() {
        anywhere if anywhere.is_empty() => "each interface".to_owned(),
        place => place,
    };
    format!("{place}, {}: {}", classes.join(" "), bucket.describe())
}
