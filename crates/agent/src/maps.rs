//! Calls for maps that libbpf has no function for.

use anyhow::{Context, Result};
use libbpf_rs::{ErrorKind, MapCore, MapFlags};

/// Removes every entry of a hash map.
///
/// # Errors
/// As [`delete`].
pub(crate) fn clear(map: &dyn MapCore) -> Result<()> {
    let keys: Vec<Vec<u8>> = map.keys().collect();
    keys.iter().try_for_each(|key| delete(map, key))
}

/// Fills an array with zeros.
///
/// # Errors
/// The kernel refused.
pub(crate) fn zero(map: &dyn MapCore) -> Result<()> {
    let zeros = vec![0; map.value_size() as usize];
    (0..map.max_entries())
        .try_for_each(|index| map.update(&index.to_ne_bytes(), &zeros, MapFlags::ANY))
        .with_context(|| format!("clearing map {}", map.name().to_string_lossy()))
}

/// Removes an entry, if there is one: it may be collected or pushed out at any time.
///
/// # Errors
/// The kernel refused.
pub(crate) fn delete(map: &dyn MapCore, key: &[u8]) -> Result<()> {
    match map.delete(key) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        outcome => outcome
            .with_context(|| format!("removing an entry of map {}", map.name().to_string_lossy())),
    }
}
