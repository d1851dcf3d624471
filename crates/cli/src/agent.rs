//! `sluicegate agent`: enforce a policy on this host's interfaces until stopped.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::Context;
use sluicegate_agent::{
    bpffs,
    daemon::{self, Config},
    instance::FLOWS_DEFAULT,
    interfaces::Patterns,
    labels::Labels,
    state,
};
use sluicegate_policy::PolicyFile;

use crate::{
    descriptors,
    log::{self, Format},
    output::Failure,
};

/// Enforce a policy on interfaces until stopped by SIGINT or SIGTERM.
///
/// Attaches to the host side of every interface that a pattern covers, those that appear later
/// included. Programs and flows are pinned: a killed agent leaves enforcement running, and the
/// next one takes it over. One agent per network namespace.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Policy file, read again when it changes and at SIGHUP; one with any error is refused, and
    /// what runs goes on untouched
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,

    /// Tenants' interfaces, as shell patterns (`veth*`, `tap-?`)
    #[arg(long = "interface", short, value_name = "PATTERN", required = true, num_args = 1..)]
    interfaces: Vec<String>,

    /// Interfaces of these that are no tenants', as shell patterns
    #[arg(long = "exclude", value_name = "PATTERN", num_args = 1..)]
    excludes: Vec<String>,

    /// The tenant of an interface: `PATTERN=NAME` (repeatable, the first that covers it decides),
    /// else the name from `auto` (alias, libvirt, CNI, Docker, network namespace), from `alias`, or
    /// from nothing else (`none`) [default: auto]
    #[arg(long = "label", value_name = "WORD", num_args = 1..)]
    labels: Vec<String>,

    /// Network namespace, as `ip netns` names it [default: the current one]
    #[arg(long, value_name = "NAME")]
    netns: Option<String>,

    /// Where a bpffs is, or is to be mounted
    #[arg(long, value_name = "DIR", default_value = bpffs::DEFAULT)]
    bpffs: PathBuf,

    /// Where to say which policy is in force and what interfaces are called, for the other commands
    #[arg(long, value_name = "DIR", default_value = state::RUN_DIR)]
    run_dir: PathBuf,

    /// Most flows tracked at a time
    #[arg(long, value_name = "N", default_value_t = FLOWS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    flows_max: u32,

    /// Most flows tracked on one interface, so that no tenant fills the table for all; 0 = no
    /// limit. Further flows pass untouched
    #[arg(long, value_name = "N", default_value_t = FLOWS_DEFAULT / 4)]
    interface_quota: u32,

    /// Leave enforcement running at SIGINT and SIGTERM, so that neither a restart nor an upgrade
    /// interrupts it; `sluicegate detach --all` ends it
    #[arg(long)]
    persist: bool,
    /// Serve metrics for Prometheus at http://ADDRESS:PORT/metrics, in the namespace where the
    /// agent is started. Clients are not authenticated: choose a loopback address unless the
    /// network is trusted
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,

    /// How to write the log
    #[arg(long, value_enum, default_value_t)]
    log_format: Format,

    /// Log more
    #[arg(long, short)]
    verbose: bool,
}

/// Runs the agent; what it has to say goes to standard error.
pub fn run(args: &Args) -> Result<(), Failure> {
    log::begin(args.log_format, args.verbose);
    descriptors::raise_limit();
    let path = std::path::absolute(&args.policy).context("naming the policy file")?;
    let policy_file = PolicyFile::read(&path)?;
    let (policy, warnings) = policy_file.policy()?;
    daemon::log_warnings(&warnings);
    let config = Config {
        policy,
        policy_file,
        patterns: Patterns::new(&args.interfaces)?,
        excludes: Patterns::new(&args.excludes)?,
        labels: Labels::new(&args.labels)?,
        netns: args.netns.clone(),
        bpffs: args.bpffs.clone(),
        run_dir: args.run_dir.clone(),
        flows_max: args.flows_max,
        interface_quota: args.interface_quota,
        persist: args.persist,
        metrics: args.metrics,
    };
    Ok(daemon::run(&config)?)
}
