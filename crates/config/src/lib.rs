//! The common part of the languages of policies and scenarios: TOML, with every error in its place.
//!
//! ```text
//! file ──file──▶ text ──document──▶ tree with places ──table──▶ values, with their units
//!                                                        └────▶ problems: file, line, key, advice
//! ```
//!
//! A file is read into a tree that remembers where each value stands ([`document`]). A language
//! reads the tree through [`table::Table`], which collects every error instead of stopping at the
//! first, and refuses keys that it did not ask for. Quantities carry their [`units`]; a [`bound`]
//! says why a number has its least and its most.

pub mod bound;
pub mod document;
pub mod file;
pub mod problem;
pub mod table;
pub mod units;

pub use problem::{Problem, Problems};
