//! The kernel programs and their loading: enforcement on a live host.
//!
//! `bpf/` holds the programs, thin glue around core's C headers; the build script compiles each
//! `bpf/NAME.bpf.c` into an object that one module here embeds and loads:
//!
//! - [`object`] embeds, opens and loads objects, and turns a verifier's rejection into an error;
//! - [`tcx`] attaches a program to an interface;
//! - [`port`] is the lab's switch port;
//! - [`netns`] and [`interfaces`] say where;
//! - [`bpffs`] knows where pins go.

#![allow(unsafe_code)]

pub mod bpffs;
pub mod interfaces;
pub mod netns;
pub mod object;
pub mod port;
pub mod tcx;
