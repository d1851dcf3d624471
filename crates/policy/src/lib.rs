//! The policy language and its compilation into what core consumes.
//!
//! ```text
//! policy.toml ──document──▶ tree with places ──table──▶ Policy ──compile──▶ PolicyTable (core)
//! ```
//!
//! A file is read into a tree that remembers where every value stood ([`document`]), the tree is
//! read through [`table::Table`], which collects every error instead of stopping at the first,
//! and [`Policy::compile`] turns the result into the constants that the data plane reads. A file
//! with any error is refused as a whole.
//!
//! The tree, the reader and the [`units`] also carry the scenario language.

pub mod bucket;
pub mod compile;
pub mod document;
pub mod edit;
pub mod explain;
mod file;
mod place;
pub mod problem;
mod read;
mod reverse;
pub mod rule;
pub mod table;
pub mod units;
mod way_out;

pub use bucket::{Bucket, Class};
pub use compile::Change;
pub use explain::{Asked, Explanation};
pub use file::{PolicyFile, fingerprint};
pub use ipnet::IpNet;
pub use place::Where;
pub use problem::{Problem, Problems, Warning, Weight};
pub use rule::{Algorithm, Mode, Mptcp, Policy, PortRange, Ports, Rule, Threshold};
