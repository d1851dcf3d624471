//! DCB.
