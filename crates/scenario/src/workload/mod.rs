//! The actions and observations of tenants, in whichever world.
//!
//! ```text
//!   Variant ── plans() ──► Plan (one per tenant) ──► a world ──► Report (one per tenant) ── collect ──► VariantResult
//! ```
//! [`plan`] is the language, [`planning`] makes plans from a variant; every random choice is made
//! there, from the seed.

pub mod collect;
pub mod errors;
pub mod offered;
pub mod phases;
pub mod plan;
pub mod planning;
pub mod programs;
pub mod tracking;
pub mod windows;

pub use errors::Errors;
pub use plan::{Plan, Report};
pub use planning::{Flow, flows, plans};
