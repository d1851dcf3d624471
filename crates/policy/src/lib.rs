//! The policy language and its compilation into what core consumes.
//!
//! ```text
//! policy.toml ──config──▶ tree with places ──read──▶ Policy ──compile──▶ PolicyTable (core)
//! ```
//!
//! `sluicegate-config` reads a file into a tree and collects every error, and
//! [`Policy::compile`] turns the result into the constants that the data plane reads. A file
//! with any error is refused as a whole.

pub mod bucket;
pub mod compile;
pub mod edit;
pub mod explain;
mod file;
mod place;
mod read;
mod reverse;
pub mod rule;
mod threshold;
mod warning;
mod way_out;

pub use bucket::{Bucket, Class};
pub use compile::Change;
pub use explain::{Asked, Explanation};
pub use file::{PolicyFile, fingerprint};
pub use ipnet::IpNet;
pub use place::Where;
pub use rule::{Mode, Mptcp, Policy, PortRange, Ports, Rule, Swift, Threshold};
pub use warning::{Warning, Weight};
