//! The scenario language: what is run, what is measured, what is expected. No world in it.
//!
//! ```text
//! file.toml ─[file]─▶ one tree per variant ─[resolve]─▶ Experiment ─▶ a World ─▶ VariantResult
//!                                                                                     │
//!                         Results ◀─[expect, aggregate]───────────────────────────────┘
//! ```
//!
//! [`file::load`] reads a scenario, lays its variants over the base and resolves each into a
//! complete [`experiment::Variant`]. A [`runner`] has a [`world::World`] run the variants, in
//! turns, and again at lower rates if the CPU was the limit; [`aggregate`] merges repeats,
//! [`expect`] compares figures, [`published`] lays them beside those of others, and [`parameters`]
//! has what is run with half and double of a value.

pub mod aggregate;
mod bounds;
pub mod calibration;
pub mod cdf;
mod claim;
mod converged;
pub mod expect;
pub mod experiment;
pub mod figures;
pub mod file;
pub mod host_switch;
pub mod hotspot;
mod inherit;
pub mod inspect;
mod key_path;
mod lossless;
pub mod parameters;
pub mod places;
pub mod ports;
pub mod published;
mod resolve;
pub mod results;
mod routings;
pub mod runner;
pub mod stats;
pub mod sweep;
pub mod workload;
pub mod world;
