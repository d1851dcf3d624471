//! The inside of a tenant: sockets, traffic and its measurements.
//!
//! ```text
//!   Variant ── workload::plans ──► Plan (one per tenant)
//!                                   │ JSON
//!        lab process ── spawn ──► tenant process in its namespace, or a guest
//!                    ◄── ready ──   (listening)
//!                    ── start ──►   (absolute time)
//!                    ◄── Report ──
//! ```
//! [`plan`] is the language between the two, [`process`] is the lab's
//! handle, [`run`] the tenant's side: one epoll loop ([`engine`]) that drives the state machines of
//! `sluicegate_apps` on the kernel's sockets ([`sockets`]).

mod clock;
mod engine;
mod frame;
pub(crate) mod netstat;
mod pattern;
mod process;
mod raw;
mod run;
mod socket;
mod sockets;

pub(crate) use clock::timespec;
pub use clock::unix_ns;
pub(crate) use process::{Input, enter, say, spawn_program};
pub use process::{TenantProcess, maybe_run_tenant, spawn};
pub use run::Prepared;
pub use sluicegate_scenario::workload::{Flow, Plan, Report, flows, plan, plans};
