//! What runs inside a tenant: sockets, traffic and what they measure.
//!
//! ```text
//!   Variant ── planning::plans ──► Plan (one per tenant)
//!                                   │ JSON
//!        lab process ── spawn ──► tenant process in its namespace, or a guest
//!                    ◄── ready ──   (listening)
//!                    ── start ──►   (absolute time)
//!                    ◄── Report ──
//! ```
//! [`plan`] is the language between the two, [`planning`] makes it from a variant, [`process`] is the lab's
//! handle, [`run`] the tenant's side: one epoll loop ([`engine`]) with a small state machine per role
//! ([`actors`]).

mod actors;
mod clock;
mod engine;
mod frame;
mod io;
pub(crate) mod netstat;
mod pattern;
pub mod plan;
pub mod planning;
mod process;
mod run;
mod socket;

pub(crate) use clock::timespec;
pub use clock::unix_ns;
pub use plan::{Plan, Report};
pub use planning::{Flow, flows, plans};
pub(crate) use process::say;
pub use process::{TenantProcess, maybe_run_tenant, spawn};
pub use run::Prepared;
