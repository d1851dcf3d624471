//! Adapters of the host behind an uplink: they send and obey pauses themselves, where the file says
//! so.
//!
//! ```toml
//! [[adapter]]
//! interface = "eth0"
//! pfc = true          # on for the priorities of `lossless`, off for others
//! ```

use sluicegate_config::table::Table;
use sluicegate_dcb::{Dcb, Error};

use crate::lanes::Lanes;

/// An adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterConfig {
    /// Its interface.
    pub interface: String,
    /// Bit p: PFC is to be on for priority p. `None`: it stays as it is.
    pub pfc: Option<u8>,
}

/// Reads the tables of adapters.
pub(crate) fn read(root: &Table<'_>, lanes: Lanes) -> Vec<AdapterConfig> {
    let mut adapters: Vec<AdapterConfig> = Vec::new();
    for table in root.tables("adapter") {
        let interface = table.text("interface").map(str::to_owned);
        if interface.is_none() {
            table.require("interface", "name it, such as interface = \"eth0\"");
        }
        let pfc = table.boolean("pfc").unwrap_or(false);
        if pfc && matches!(lanes.lossless(), 0 | u8::MAX) {
            table.refuse(
                "pfc",
                "say for which priorities: write lossless = [3] in [switch]",
            );
        }
        if let Some(interface) = interface {
            if adapters.iter().any(|known| known.interface == interface) {
                let reason = format!("'{interface}' is there twice");
                table.item().complain(reason, "keep one of them");
            }
            adapters.push(AdapterConfig {
                interface,
                pfc: pfc.then(|| lanes.lossless()),
            });
        }
        table.close();
    }
    adapters
}

/// Switches PFC on where the file says so.
///
/// # Errors
/// An adapter has none, or does not do it.
pub(crate) fn apply(adapters: &[AdapterConfig]) -> Result<(), Error> {
    for adapter in adapters {
        if let Some(priorities) = adapter.pfc {
            let pfc = sluicegate_dcb::set_pfc(&adapter.interface, priorities)?;
            tracing::info!(interface = adapter.interface, ?pfc, "PFC of an adapter");
        }
    }
    Ok(())
}

/// What an interface has, and the same in words.
pub(crate) fn about(interface: &str) -> (Option<Dcb>, String) {
    match sluicegate_dcb::read(interface) {
        Ok(dcb) => {
            let words = sluicegate_dcb::in_words(dcb.as_ref());
            (dcb, words)
        }
        Err(error) => (None, error.to_string()),
    }
}
