//! Taking over what an earlier agent pinned: its maps, so that flows survive a restart, if this
//! build reads them as that one wrote them.

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapHandle, OpenObject};
use serde::Serialize;
use sluicegate_core::abi::{PolicyTable, Rule};

use crate::{
    bpffs::Pins,
    instance::{PINNED_MAPS, pinned, pinned_policy},
    object, table,
};

/// What became of the pins of an earlier agent.
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
pub(crate) fn reuse_maps(
    object: &mut OpenObject,
    pins: &Pins,
    policy: &PolicyTable,
) -> Result<Takeover> {
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
    if let Some(reason) = misfit(object, &handles)?.or_else(|| reordered(pins, policy)) {
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

/// Flows name the slot of the rule that decided them: a kept slot must keep its conditions.
fn reordered(pins: &Pins, policy: &PolicyTable) -> Option<String> {
    let old = match pinned_policy(pins) {
        Ok(old) => old,
        Err(error) => return Some(format!("the pinned policy cannot be read: {error:#}")),
    };
    first_moved(&old, policy).map(|slot| {
        format!(
            "rule {} of the pinned policy is about other flows in this one",
            slot + 1
        )
    })
}

fn first_moved(old: &PolicyTable, new: &PolicyTable) -> Option<usize> {
    let used = |table: &PolicyTable| (table.rules_count as usize).min(table.rules.len());
    (0..used(old))
        .find(|slot| *slot >= used(new) || !same_conditions(&old.rules[*slot], &new.rules[*slot]))
}

fn same_conditions(a: &Rule, b: &Rule) -> bool {
    let params = a.params;
    *a == Rule { params, ..*b }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(ports: &[u16]) -> PolicyTable {
        let mut table = PolicyTable {
            rules_count: ports.len() as u32,
            ..PolicyTable::default()
        };
        for (rule, port) in table.rules.iter_mut().zip(ports) {
            rule.destination_port_low = *port;
            rule.destination_port_high = *port;
        }
        table
    }

    #[test]
    fn other_parameters_and_further_rules_keep_flows() {
        let old = table(&[80, 443]);
        let mut new = table(&[80, 443, 22]);
        new.rules[0].params.beta_q10 = 7;
        assert_eq!(first_moved(&old, &new), None);
    }

    #[test]
    fn moved_or_missing_rules_do_not() {
        let old = table(&[80, 443]);
        assert_eq!(first_moved(&old, &table(&[443, 80])), Some(0));
        assert_eq!(first_moved(&old, &table(&[80])), Some(1));
    }
}
