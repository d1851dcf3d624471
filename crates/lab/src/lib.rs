//! The lab world: scenarios on real kernels, in namespaces and guests.
//!
//! ```text
//!   Variant ─ net ──────► namespaces, bridges, token buckets          journal ─► clean
//!           ├ agent ────► enforcement at each vNIC
//!           ├ labkit ───► ecn_switch at each switch port, tenants' stacks, cheats
//!           ├ host_switch ► switches of hosts that are processes
//!           ├ tenant ───► one process per tenant: traffic, probes
//!           └ measure ──► goodput, RTT, queues, windows, and what went wrong elsewhere
//! ```

mod clean;
mod collect;
mod emulated;
mod enforcers;
pub mod foreign;
pub mod guest;
mod host_switch;
mod journal;
mod limits;
mod measure;
mod net;
mod requirements;
mod run;
mod symptoms;
pub mod tenant;
mod world;

pub use clean::{CleanReport, clean};
pub use world::Lab;
