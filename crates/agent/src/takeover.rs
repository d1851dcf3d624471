//! Taking over what an earlier agent pinned: its maps, so that flows survive a restart, if this
//! build reads them as that one wrote them.

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapHandle, OpenObject};
use serde::Serialize;

use crate::{
    bpffs::Pins,
    instance::{PINNED_MAPS, pinned},
    object, table,
};

/// The fate of the pins of an earlier agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Takeover {
    /// There were none.
    Nothing,
    /// Its maps are in use: flows live on.
    Kept {
        /// Flows in the table.
        flows: usize,
    },
    /// Its maps could not be used: flows are met from the middle and watched until they end.
    Replaced {
        /// Why.
        reason: String,
    },
}

/// Gives an object the maps pinned earlier, all or none of them.
///
/// # Errors
/// A pin cannot be opened, for another reason than that it is not there.
pub(crate) fn reuse_maps(object: &mut OpenObject, pins: &Pins) -> Result<Takeover> {
    if !pins.exist() {
        return Ok(Takeover::Nothing);
    }
    let mut handles = Vec::with_capacity(PINNED_MAPS.len());
    for name in PINNED_MAPS {
        let path = pins.map(name);
        if !path.exists() {
            let reason = format!("{} is missing", path.display());
            return Ok(Takeover::Replaced { reason });
        }
        let handle = MapHandle::from_pinned_path(&path)
            .with_context(|| format!("opening {}", path.display()))?;
        handles.push((name, handle));
    }
    if let Some(reason) = misfit(object, &handles)? {
        return Ok(Takeover::Replaced { reason });
    }
    let flows = table::flows(&pinned(pins, "flows")?, &pinned(pins, "occupied")?)?.len();
    for (name, handle) in &handles {
        use std::os::fd::AsFd;
        object::open_map(object, name)?
            .reuse_fd(handle.as_fd())
            .with_context(|| format!("reusing map {name}"))?;
    }
    Ok(Takeover::Kept { flows })
}

/// The first map that differs in shape from what this build would make.
fn misfit(object: &mut OpenObject, handles: &[(&str, MapHandle)]) -> Result<Option<String>> {
    for (name, pinned) in handles {
        let wanted = object::open_map(object, name)?;
        let facts = [
            ("type", wanted.map_type() as u32, pinned.map_type() as u32),
            ("key size", wanted.key_size(), pinned.key_size()),
            ("value size", wanted.value_size(), pinned.value_size()),
            ("entries", wanted.max_entries(), pinned.max_entries()),
        ];
        for (fact, wanted, found) in facts {
            if wanted != found {
                return Ok(Some(format!(
                    "pinned map {name} has {fact} {found}, this build wants {wanted}"
                )));
            }
        }
    }
    Ok(None)
}
