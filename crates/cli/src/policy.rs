//! `sluicegate policy`.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::Subcommand;
use sluicegate_policy::{IpNet, Mode, Policy, Ports, Rule, units::format_bytes};

use crate::output::{self, Failure};

/// Checking and explaining policies.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say whether a policy file is good, and what its rules are
    #[command(after_help = "Example: sluicegate policy check /etc/sluicegate/policy.toml")]
    Check {
        /// Policy file
        file: PathBuf,
    },
    /// Say which rule decides a flow, and why
    #[command(
        after_help = "Example: sluicegate policy explain policy.toml 10.0.0.1:40000 10.0.0.2:443"
    )]
    Explain {
        /// Policy file
        file: PathBuf,
        /// Who sends the data: ADDRESS or ADDRESS:PORT, IPv6 as [ADDRESS]:PORT
        #[arg(value_parser = parse_end)]
        source: SocketAddr,
        /// Who receives it
        #[arg(value_parser = parse_end)]
        destination: SocketAddr,
    },
}

/// Runs `sluicegate policy …`.
pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Check { file } => {
            let (policy, warnings) = Policy::read_with_warnings(file)?;
            for warning in &warnings {
                eprintln!("warning: {warning}");
            }
            output::print(&format!("{}: good\n{}", file.display(), summary(&policy)))
        }
        Command::Explain {
            file,
            source,
            destination,
        } => {
            let policy = Policy::read(file)?;
            let explanation = policy.explain(
                source.ip(),
                destination.ip(),
                source.port(),
                destination.port(),
            );
            output::print(&format!("{explanation}\n"))
        }
    }
}

/// An end of a flow; without a port it is 0, which only rules for any port match.
fn parse_end(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, 0));
    }
    text.parse()
        .map_err(|_| "write for example 10.0.0.1, 10.0.0.1:443 or [fd00::1]:443".to_owned())
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
    let flows = format!(
        "{} to {}, {ports}",
        prefix(rule.source),
        prefix(rule.destination)
    );
    if rule.mode == Mode::Off {
        return format!("{flows}: off");
    }
    format!(
        "{flows}: {} {}, one-sided {}, window at most {}",
        rule.mode,
        rule.algorithm,
        rule.one_sided,
        format_bytes(rule.window_cap_bytes.into()),
    )
}
