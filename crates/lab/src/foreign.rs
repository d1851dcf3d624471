//! Tenants with a foreign network stack: programs that bring it with them.
//!
//! ```text
//!   lab ── pipes ──► program in the host's namespace ── TAP ── bridge      (a stack of its own)
//!                    program in the tenant's namespace ── its sockets      (QUIC over the kernel's UDP)
//! ```
//! A program sends or receives one stream of [the pattern](crate::tenant). It is told by its
//! arguments what to do ([`arguments`]), says `ready`, hears `start NS` (CLOCK_REALTIME) on stdin,
//! and at the end of the run says what it saw as one line of JSON ([`Seen`]). It keeps its
//! connection until its stdin ends, and then ends, too.

use std::{
    collections::BTreeMap, ffi::OsString, net::SocketAddr, os::fd::BorrowedFd, path::PathBuf,
    time::Duration,
};

use anyhow::{Result, bail};
use serde::Deserialize;
use sluicegate_scenario::{
    experiment::{TenantKind, Variant},
    workload::plan::{ReceiverReport, Role},
};

use crate::{
    net::names::{tenant_mac, vnic},
    tenant::{self, Flow, Plan, Report, TenantProcess},
};

/// Options of a run beside its variant.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Tenants, by id, that are programs. One of kind `guest` brings a stack for the TAP that a
    /// guest would have, one of kind `namespace` uses the kernel's sockets.
    pub programs: BTreeMap<usize, PathBuf>,
    /// Every receiver of bulk data compares every byte with the pattern.
    pub verify: bool,
}

/// The report of a program at its end. A sender's `bytes` are those that its stack took.
#[derive(Debug, Deserialize)]
struct Seen {
    bytes: u64,
    #[serde(default)]
    measured_bytes: u64,
    #[serde(default)]
    verified_bytes: u64,
    #[serde(default)]
    longest_gap_ms: f64,
    #[serde(default)]
    errors: Vec<String>,
    /// The counters of its stack over the whole run, by names of its own.
    #[serde(default)]
    counters: BTreeMap<String, u64>,
}

/// Starts the program of a tenant in this namespace. Returns before it is ready.
///
/// # Errors
/// Its plan is not one bulk flow; it cannot be started.
pub(crate) fn spawn(
    program: &PathBuf,
    variant: &Variant,
    id: usize,
    plan: &Plan,
    netns: BorrowedFd<'_>,
) -> Result<TenantProcess> {
    let mut command = vec![program.into()];
    command.extend(arguments(variant, id, plan)?);
    tenant::spawn_program(&plan.tenant, netns, command)
}

/// Waits for what a program says and puts it as any tenant does.
///
/// # Errors
/// Its death, the time-out, or what it says is not JSON.
pub(crate) fn report(
    process: &mut TenantProcess,
    variant: &Variant,
    id: usize,
    timeout: Duration,
) -> Result<Report> {
    let seen: Seen = process.wait_json(timeout)?;
    let flow = only_flow(variant, id)?;
    let mut report = Report {
        tenant: variant.tenants[id].name.clone(),
        errors: seen.errors,
        netstat: seen.counters,
        ..Report::default()
    };
    if flow.to == id {
        report.receivers.push(ReceiverReport {
            flow: flow.id,
            total_bytes: seen.bytes,
            measured_bytes: seen.measured_bytes,
            verified_bytes: seen.verified_bytes,
            longest_gap_ns: (seen.longest_gap_ms * 1e6) as u64,
            series: Vec::new(),
        });
    } else if seen.bytes == 0 {
        report.errors.push("sent nothing".into());
    }
    Ok(report)
}

fn only_flow(variant: &Variant, id: usize) -> Result<Flow> {
    let mut own = tenant::flows(variant)
        .into_iter()
        .filter(|flow| flow.from == id || flow.to == id);
    match (own.next(), own.next()) {
        (Some(flow), None) => Ok(flow),
        _ => bail!(
            "tenant {}: a program of another make has one flow",
            variant.tenants[id].name
        ),
    }
}

/// `NAME=VALUE` each, in this order:
///
/// | | |
/// |---|---|
/// | `role` | `send` or `receive` |
/// | `tap`, `mac` | interface to attach to and the address it bears; absent where sockets are the kernel's |
/// | `address`, `prefix`, `mtu` | its own |
/// | `peer`, `peer-mac`, `port` | the peer of a sender; a receiver listens on the port |
/// | `begin-ns`, `end-ns`, `stop-ns` | measured window and end of the run, after its start |
fn arguments(variant: &Variant, id: usize, plan: &Plan) -> Result<Vec<OsString>> {
    let flow = only_flow(variant, id)?;
    let (role, port) = match plan.roles[..] {
        [Role::Source { peer, .. }] => ("send", peer),
        [Role::Sink { port, .. }] => ("receive", SocketAddr::new(plan.address, port)),
        _ => bail!(
            "tenant {}: a program only sends or receives in bulk",
            plan.tenant
        ),
    };
    let peer = if flow.from == id { flow.to } else { flow.from };
    let mut list = vec![format!("role={role}")];
    if variant.tenants[id].kind == TenantKind::Guest {
        list.push(format!("tap={}", vnic(id)));
        list.push(format!("mac={}", tenant_mac(id)));
    }
    list.extend([
        format!("address={}", plan.address),
        format!("prefix={}", plan.prefix_length),
        format!("mtu={}", plan.mtu_bytes),
        format!("peer={}", variant.tenants[peer].address),
        format!("peer-mac={}", tenant_mac(peer)),
        format!("port={}", port.port()),
        format!("begin-ns={}", plan.measure_begin_ns),
        format!("end-ns={}", plan.measure_end_ns),
        format!("stop-ns={}", plan.stop_ns),
    ]);
    Ok(list.into_iter().map(OsString::from).collect())
}
