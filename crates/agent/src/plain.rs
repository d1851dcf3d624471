//! Values of maps as Rust structs and back.

use anyhow::{Context, Result};
use sluicegate_core::plain;

pub(crate) use sluicegate_core::plain::{Plain, bytes};

/// The value that the kernel stored as `bytes`.
///
/// # Errors
/// The sizes differ: these bytes are of another type or of another version of it.
pub(crate) fn value<T: Plain>(bytes: &[u8]) -> Result<T> {
    plain::value(bytes).with_context(|| {
        format!(
            "a map's value has {} bytes, this build expects {}",
            bytes.len(),
            size_of::<T>()
        )
    })
}
