//! `sluicegate policy explain`.

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::json;
use sluicegate_agent::{netns::NetNs, state};
use sluicegate_dataplane::{config, report::Report};
use sluicegate_policy::{Asked, Class, Explanation, Mode, PolicyFile};

use crate::{
    output::{self, Failure},
    source,
};

/// Say which rule decides a flow, with which algorithm, and why.
///
/// Without FILE, by the policies in force of the running agent and of the userspace switch: by that
/// of one where only one runs, or has the interface.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sluicegate policy explain --src 10.0.0.1 --dst 10.0.0.2 --dport 443
  sluicegate policy explain --src 10.0.0.1 --dst 10.0.0.2 --interface veth3 --tenant blue
  sluicegate policy explain --src 10.0.0.1 --dst 8.8.8.8 --protocol udp
  sluicegate policy explain policy.toml 10.0.0.1:40000 10.0.0.2:443")]
pub struct Args {
    /// Policy file [default: those of the running agent and of the userspace switch]
    file: Option<PathBuf>,

    /// Sender of the data: ADDRESS or ADDRESS:PORT, IPv6 as [ADDRESS]:PORT
    #[arg(value_parser = parse_end, requires = "destination", conflicts_with = "src")]
    source: Option<SocketAddr>,

    /// Receiver of the data
    #[arg(value_parser = parse_end, conflicts_with = "dst")]
    destination: Option<SocketAddr>,

    /// Sender of the data: this host's tenant
    #[arg(long, value_name = "ADDRESS", required_unless_present = "source")]
    src: Option<IpAddr>,

    /// Receiver of the data
    #[arg(long, value_name = "ADDRESS", required_unless_present = "source")]
    dst: Option<IpAddr>,

    /// Port of the sender; without one, only rules for any port match
    #[arg(long, value_name = "PORT", conflicts_with = "source")]
    sport: Option<u16>,

    /// Port of the receiver
    #[arg(long, value_name = "PORT", conflicts_with = "source")]
    dport: Option<u16>,

    /// The tenant's interface on this host
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,

    /// The tenant of the interface [default: the name that the agent has for it, if it runs]
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,

    /// VLAN id of the packets, 0 = untagged
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(0..=4094))]
    vlan: Option<u16>,

    /// Protocol of the packets; only TCP has flows, the others are charged to buckets
    #[arg(long, value_enum, default_value_t = Protocol::Tcp)]
    protocol: Protocol,

    /// One JSON document
    #[arg(long)]
    json: bool,

    /// Network namespace of the agent, as `ip netns` names it [default: the current one]
    #[arg(long, value_name = "NAME")]
    netns: Option<String>,

    /// By the policy in force of the userspace switch alone, at this control socket [default: also
    /// by that of the one at /run/sluicegate/switch.sock, if it runs]
    #[arg(
        long,
        value_name = "SOCKET",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = config::SOCKET,
        conflicts_with_all = ["netns", "file"]
    )]
    switch: Option<PathBuf>,

    /// Where agents say what they do
    #[arg(long, value_name = "DIR", default_value = state::RUN_DIR)]
    run_dir: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Protocol {
    Tcp,
    Udp,
    Icmp,
    /// Any other protocol than these.
    Other,
}

/// Explains.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut known = known(args)?;
    if let Some(file) = &args.file {
        let (text, document) = explain(args, file, known.first())?;
        return print(args, &text, document);
    }
    // An interface of the agent, or a port of the switch, says which of the two is asked.
    let is_there = |known: &Known| tenant_of(args, Some(known)).is_some();
    if known.iter().any(is_there) {
        known.retain(is_there);
    }
    let each = known.iter().map(|it| explain(args, &it.path, Some(it)));
    let each = each.collect::<Result<Vec<_>, Failure>>()?;
    match &each[..] {
        [] => Err(Failure::BadInput(format!(
            "no agent has said in {} which policy is in force: name a policy file",
            args.run_dir.display()
        ))),
        [(text, document)] => print(args, text, document.clone()),
        many => {
            let of = known.iter().zip(many);
            let texts = of
                .clone()
                .map(|(it, (text, _))| format!("{}: {text}", it.of));
            let text = texts.collect::<Vec<_>>().join("\n\n");
            let documents = of.map(|(it, (_, document))| {
                let mut document = document.clone();
                document["of"] = it.of.into();
                document
            });
            print(
                args,
                &text,
                json!({ "policies": documents.collect::<Vec<_>>() }),
            )
        }
    }
}

/// What a policy says, in words and as a document.
fn explain(
    args: &Args,
    file: &Path,
    known: Option<&Known>,
) -> Result<(String, serde_json::Value), Failure> {
    let file = PolicyFile::read(file)?;
    let (policy, _) = file.policy()?;
    if args.file.is_none() {
        warn_of_difference(&file, known);
    }
    let tenant = args.tenant.clone().or_else(|| tenant_of(args, known));
    let class = match args.protocol {
        Protocol::Tcp => None,
        Protocol::Udp => Some(Class::Udp),
        Protocol::Icmp => Some(Class::Icmp),
        Protocol::Other => Some(Class::Other),
    };
    if let Some(class) = class {
        let text = policy.explain_class(class, (args.interface.as_deref(), tenant.as_deref()));
        let document = json!({ "class": class.name(), "text": text });
        return Ok((text, document));
    }
    let (source, destination) = ends(args)?;
    let asked = Asked {
        interface: args.interface.as_deref(),
        tenant: tenant.as_deref(),
        vlan: args.vlan,
        ..Asked::ends(
            (source.ip(), destination.ip()),
            (source.port(), destination.port()),
        )
    };
    let explanation = policy.explain(&asked);
    Ok((explanation.to_string(), document(&explanation)))
}

fn print(args: &Args, text: &str, document: serde_json::Value) -> Result<(), Failure> {
    if args.json {
        let text = serde_json::to_string_pretty(&document).context("writing JSON")?;
        return output::print(&(text + "\n"));
    }
    output::print(&format!("{text}\n"))
}

fn document(explanation: &Explanation<'_>) -> serde_json::Value {
    let others = |rules: &[(usize, String)]| -> Vec<serde_json::Value> {
        let rules = rules.iter();
        rules
            .map(|(index, why)| json!({ "rule": index, "why": why }))
            .collect()
    };
    let decided = explanation.rule.map(|(index, rule)| {
        let algorithm = match (rule.mode, explanation.trusted) {
            (Mode::Off, _) => None,
            (_, true) => Some(rule.algorithm.to_string()),
            (_, false) => Some(rule.one_sided.to_string()),
        };
        json!({
            "rule": index,
            "rule_name": rule.name,
            "mode": rule.mode.to_string(),
            "algorithm": algorithm,
            "one_sided": rule.one_sided.to_string(),
        })
    });
    json!({
        "decides": decided,
        "passed_over": others(&explanation.passed_over),
        "undecided": others(&explanation.undecided),
        "trusted": explanation.trusted,
        "text": explanation.to_string(),
    })
}

/// A policy in force.
struct Known {
    /// Whose it is.
    of: &'static str,
    path: PathBuf,
    fingerprint: String,
    /// Interfaces, or ports of the switch, and their tenants.
    tenants: Vec<(String, String)>,
}

/// What the agent of the namespace asked about has said last, and what the switch says.
fn known(args: &Args) -> Result<Vec<Known>> {
    if args.file.is_some() && args.netns.is_none() {
        return Ok(Vec::new());
    }
    if let Some(socket) = &args.switch {
        return Ok(vec![of_switch(source::switch(socket)?)]);
    }
    let netns = NetNs::select(args.netns.as_deref())?;
    let agent = state::read(&args.run_dir, netns.name())?.map(|state| Known {
        of: "agent",
        path: state.policy.path,
        fingerprint: state.policy.fingerprint,
        tenants: (state.interfaces.into_values())
            .map(|place| (place.name, place.tenant))
            .collect(),
    });
    // The switch is one of the host's, and of no other namespace.
    let switch = match args.netns {
        None => source::switch(Path::new(config::SOCKET)).ok(),
        Some(_) => None,
    };
    Ok(agent.into_iter().chain(switch.map(of_switch)).collect())
}

fn of_switch(report: Report) -> Known {
    let ports = report.ports.into_iter();
    Known {
        of: "switch",
        path: report.policy,
        fingerprint: report.fingerprint,
        tenants: ports.map(|port| (port.name, port.tenant)).collect(),
    }
}

fn warn_of_difference(file: &PolicyFile, known: Option<&Known>) {
    let Some(known) = known else { return };
    if known.fingerprint != file.fingerprint() {
        output::say(&format!(
            "warning: {} says something else than the policy in force, which was read before",
            file.path.display()
        ));
    }
}

fn tenant_of(args: &Args, known: Option<&Known>) -> Option<String> {
    let wanted = args.interface.as_deref()?;
    let mut tenants = known?.tenants.iter();
    let found = tenants.find(|(interface, _)| interface == wanted);
    found.map(|(_, tenant)| tenant.clone())
}

fn ends(args: &Args) -> Result<(SocketAddr, SocketAddr), Failure> {
    if let (Some(source), Some(destination)) = (args.source, args.destination) {
        return Ok((source, destination));
    }
    let (Some(source), Some(destination)) = (args.src, args.dst) else {
        return Err(Failure::BadInput(
            "say which flow: --src ADDRESS --dst ADDRESS".to_owned(),
        ));
    };
    Ok((
        SocketAddr::new(source, args.sport.unwrap_or(0)),
        SocketAddr::new(destination, args.dport.unwrap_or(0)),
    ))
}

/// An end of a flow; without a port it is 0, which only rules for any port match.
fn parse_end(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, 0));
    }
    text.parse()
        .map_err(|_| "write for example 10.0.0.1, 10.0.0.1:443 or [fd00::1]:443".to_owned())
}
