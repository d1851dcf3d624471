//! The kernel programs and their loading: enforcement on a live host.
//!
//! `bpf/` holds the programs, thin glue around core's C headers; the build script compiles each
//! `bpf/NAME.bpf.c` into an object that one module here embeds and loads:
//!
//! - [`instance`] is enforcement itself: load, attach, read flows and counters;
//! - [`daemon`] is the agent around it, [`takeover`] its restart, [`detach`] its undoing,
//!   [`service`] what a service manager hears of it, [`log`] how its lines get out without holding
//!   anything up;
//! - [`meter`] is what an operator watches: looks, sums over time, Prometheus;
//! - [`labels`] names tenants, [`state`] is what an agent tells others of itself, [`mod@file`]
//!   replaces files;
//! - [`doctor`] says what works here and what does not;
//! - [`table`] reads the table of flows and starts the timer that collects them, [`record`] is a
//!   flow as people read it;
//! - [`object`] embeds, opens and loads objects, and turns a verifier's rejection into an error;
//! - [`tcx`] attaches a program to an interface;
//! - [`netns`] and [`interfaces`] say where;
//! - [`bpffs`] knows where pins go, [`inventory`] what exists in the kernel.

#![allow(unsafe_code)]

pub mod bpffs;
pub mod daemon;
pub mod detach;
pub mod doctor;
pub mod file;
pub mod instance;
pub mod interfaces;
pub mod inventory;
pub mod labels;
pub mod log;
mod maps;
pub mod meter;
pub mod netns;
pub mod object;
mod plain;
pub mod record;
pub mod reload;
mod replace;
pub mod service;
pub mod state;
pub mod table;
pub mod takeover;
pub mod tcx;

pub use instance::{Instance, Options};
pub use record::{FlowRecord, Names};
