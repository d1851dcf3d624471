//! What libbpf has no function for.

use anyhow::{Context, Result};
use libbpf_rs::MapCore;

/// Removes every entry of a hash map.
///
/// # Errors
/// The kernel refused.
pub(crate) fn clear(map: &dyn MapCore) -> Result<()> {
    let keys: Vec<Vec<u8>> = map.keys().collect();
    for key in keys {
        match map.delete(&key) {
            // Collected or pushed out meanwhile.
            Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => {}
            outcome => {
                outcome.with_context(|| format!("clearing map {}", map.name().to_string_lossy()))?
            }
        }
    }
    Ok(())
}
