//! Equipment of a laboratory: kernel programs that enforcement does not need, and their loading.
//!
//! `bpf/` holds the programs; modules here embed and load their own:
//!
//! - [`pool`] keeps loaded enforcement for the next use;
//! - [`port`] is a switch port: it marks, drops and measures at an interface's transmit queue;
//! - [`tenant_cc`] has tenants' TCP stacks for kernels that lack them (struct_ops);
//! - [`ovs`] is Open vSwitch in userspace, an opponent of the switch;
//! - [`ignore_window`] is a tenant that cheats;
//! - [`bridges`] waits for the kernel's bridges;
//! - [`uml`] lets kernels of User-Mode Linux run on CPUs with AMX.

#![allow(unsafe_code)]

pub mod bridges;
pub mod ignore_window;
pub mod ovs;
pub mod pool;
pub mod port;
pub mod tenant_cc;
pub mod uml;
