//! The scenario language: what is run, what is measured, what is expected. No world in it.

pub mod experiment;
pub mod results;
pub mod world;
