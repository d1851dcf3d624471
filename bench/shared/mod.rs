//! What the benchmarks of enforcement have in common.

pub mod path;
pub mod policy;
pub mod results;
pub mod sides;
pub mod statistics;
