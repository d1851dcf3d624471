//! The common part of the benchmarks of enforcement.

pub mod path;
pub mod policy;
pub mod results;
pub mod sides;
pub mod statistics;
