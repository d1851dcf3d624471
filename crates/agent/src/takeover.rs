//! Taking over what an earlier agent pinned: its maps, so that flows survive a restart, if this
//! build reads them as that one wrote them.

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapHandle, OpenObject};
use serde::Serialize;
use sluicegate_core::abi::BucketKey;

use crate::{
    bpffs::Pins,
    instance::{PINNED_MAPS, pinned, pinned_policy},
    object, plain, table,
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

/// How much a policy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Amounts {
    /// Rules, as its file has them.
    pub(crate) rules: usize,
    /// Buckets; `None`: no interface is there to tell.
    pub(crate) buckets: Option<usize>,
}

/// How much the policy in force has, of any agent with this layout.
///
/// # Errors
/// The pinned maps cannot be read.
pub(crate) fn pinned_amounts(pins: &Pins) -> Result<Amounts> {
    let table = pinned_policy(pins)?;
    // A rule of the file may be two of the data plane, with the same number.
    let last = table.rules().map(|rule| rule.params.rule_id).max();
    let is_enforced_anywhere = pinned(pins, "places")?.keys().next().is_some();
    let mut buckets = 0;
    for key in pinned(pins, "buckets")?.keys() {
        let key: BucketKey = plain::value(&key)?;
        buckets = buckets.max(key.bucket as usize + 1);
    }
    Ok(Amounts {
        rules: last.map_or(0, |last| usize::from(last) + 1),
        buckets: is_enforced_anywhere.then_some(buckets),
    })
}

/// Gives an object the maps pinned earlier, all or none of them.
///
/// # Errors
/// A pin cannot be opened, for another reason than that it is not there.
pub(crate) fn reuse_maps(object: &mut OpenObject, pins: &Pins) -> Result<Takeover> {
    if !pins.try_exist()? {
        return Ok(Takeover::Nothing);
    }
    let mut handles = Vec::with_capacity(PINNED_MAPS.len());
    for name in PINNED_MAPS {
        let path = pins.map(name);
        let is_there = path.try_exists();
        if !is_there.with_context(|| format!("looking for {}", path.display()))? {
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
