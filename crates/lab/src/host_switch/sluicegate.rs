//! `sluicegate switch` between the guests of a host.

use std::{collections::BTreeMap, convert::Infallible, fmt::Write, path::Path, sync::Arc, thread};

use anyhow::{Context, Result};
use serde::Deserialize;
use sluicegate_dataplane::{
    config::Config,
    control::{self, Ask},
    service::Service,
};
use sluicegate_scenario::experiment::Variant;

use super::{CABLE, Guest, PortCounts, UPLINK, Uplink};
use crate::{net::names::UPLINK_TAP, tenant};

/// Its control socket, in its directory.
const CONTROL: &str = "control";

/// Its file.
pub(super) fn configuration(
    variant: &Variant,
    directory: &Path,
    guests: &[&Guest],
    uplink: Uplink,
) -> String {
    let lossless = variant.host_switch.is_none_or(|it| it.lossless != 0);
    let control = directory.join(CONTROL);
    let mut text = format!("[switch]\nsocket = {control:?}\nlossless = {lossless}\n");
    for Guest { port, mac, .. } in guests {
        let socket = directory.join(port);
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "[[port]]\nname = {port:?}\nvhost_user = {socket:?}\nmacs = [{mac:?}]\n"
        );
    }
    let end = match uplink {
        Uplink::None => return text,
        Uplink::Tap => format!("tap = {UPLINK_TAP:?}"),
        Uplink::Cable => format!("shm = {:?}", directory.join(CABLE)),
    };
    let _ = write!(text, "[[port]]\nname = {UPLINK:?}\n{end}\n");
    text
}

/// Is the switch.
pub(super) fn serve(file: &Path) -> Result<Infallible> {
    let config = Config::read(file)?;
    let socket = config.socket.clone();
    let service = Arc::new(Service::start(config)?);
    control::serve(&socket, file.to_owned(), Arc::clone(&service))?;
    tenant::say(b"ready")?;
    let _input = tenant::Input::watch();
    loop {
        thread::park(); // the thread behind the input ends the process
    }
}

/// A line of `switch ports`.
#[derive(Debug, Deserialize)]
struct PortLine {
    name: String,
    received_frames: u64,
    delivered_frames: u64,
}

/// A line of `switch drops`.
#[derive(Debug, Deserialize)]
struct DropsLine {
    name: String,
    drops: BTreeMap<String, Option<u64>>,
}

/// The counters of guests' ports.
pub(super) fn counts(directory: &Path, guests: &[&Guest]) -> Result<Vec<PortCounts>> {
    let control = directory.join(CONTROL);
    let ports: Vec<PortLine> = serde_json::from_value(control::ask(&control, Ask::Ports)?)?;
    let drops: Vec<DropsLine> = serde_json::from_value(control::ask(&control, Ask::Drops)?)?;
    let counts = guests.iter().map(|guest| {
        let port = ports.iter().find(|port| port.name == guest.port);
        let drops = drops.iter().find(|port| port.name == guest.port);
        let (port, drops) = port.zip(drops).context("the switch has lost a port")?;
        let drops = drops.drops.iter();
        Ok(PortCounts {
            tenant: guest.tenant,
            into_switch: port.received_frames,
            out_of_switch: port.delivered_frames,
            drops: drops
                .map(|(cause, count)| (cause.clone(), count.unwrap_or(0)))
                .collect(),
        })
    });
    counts.collect()
}
