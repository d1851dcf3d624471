//! The userspace switch: threads, rings and memory around the sans-I/O switch.
//!
//! ```text
//!  configuration ──▶ service ──▶ workers (threads) ──▶ engine ──▶ ports ──▶ rings, memory, kernel
//!  control socket ──orders──────▶   polls, sleeps      vswitch decides: filter, address, queue
//!  sessions of vhost-user ──▶
//! ```
//!
//! Decisions are made by `vswitch`, which the simulator runs as well. What is here moves bytes: a
//! frame stays in the memory of the guest that sent it until its receivers have a copy. Memory that
//! guests share is touched only in [`memory`], the kernel's interfaces only in [`tap`], [`xdp`]
//! and [`vhost::notify`], and what threads share only in [`mesh::ring`].

pub mod adapter;
pub mod capture;
pub mod config;
pub mod control;
pub mod count;
pub mod engine;
pub mod fill;
pub mod frame;
pub mod govern;
pub mod handover;
pub mod lanes;
pub mod ledger;
pub mod memory;
pub mod mesh;
pub mod offload;
pub mod port;
pub mod report;
pub mod ring;
pub mod service;
pub mod shm;
pub mod tap;
pub mod upgrade;
pub mod vhost;
pub mod views;
pub mod worker;
pub mod xdp;
