//! What runs inside a tenant: sockets, traffic and what they measure.
//!
//! ```text
//!   Variant ── planning::plans ──► Plan (one per tenant)
//!                                   │ JSON
//!        lab process ── spawn ──► tenant process in its namespace, or a guest
//!                    ◄── ready ──   (listening)
//!                    ── start ──►   (absolute time)
//!                    ◄── Report ──
//! ```

pub mod plan;
pub mod planning;
