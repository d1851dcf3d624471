//! Safe Rust face of the freestanding C core.
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod abi;
pub mod aqm;
pub mod bucket;
pub mod cc;
pub mod frame;
pub mod hash;
pub mod host;
pub mod life;
pub mod number;
pub mod path;
pub mod plain;
pub mod segment;
pub mod step;
pub mod wire;
