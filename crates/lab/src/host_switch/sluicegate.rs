//! `sluicegate switch` between the guests of a host.

use std::{
    collections::BTreeMap, convert::Infallible, fmt::Write, fs, path::Path, sync::Arc, thread,
};

use anyhow::{Context, Result};
use serde::Deserialize;
use sluicegate_dataplane::{
    config::Config,
    control::{self, Ask},
    report::Report,
    service::Service,
};
use sluicegate_scenario::experiment::Variant;

use super::{CABLE, Guest, PortCounts, UPLINK, Uplink, UplinkCounts};
use crate::{
    net::{layout::ETHERNET_HEADER_BYTES, names::UPLINK_TAP},
    tenant,
};

/// Its control socket, in its directory.
const CONTROL: &str = "control";

/// Bounds of its file.
const QUEUE_MAX: u64 = 65_536;
const RING_MIN: u32 = 64;

/// Its file, in its directory.
pub(super) const FILE: &str = "switch.toml";

/// The policy that it enforces, if it does, in its directory.
pub(super) const POLICY: &str = "policy.toml";

/// Its file.
pub(super) fn configuration(
    variant: &Variant,
    directory: &Path,
    guests: &[&Guest],
    uplink: Uplink,
    governs: bool,
) -> String {
    let lossless = variant.host_switch.is_none_or(|it| it.lossless != 0);
    let control = directory.join(CONTROL);
    // As in the simulator, frames wait for as long as it takes.
    let mut text =
        format!("[switch]\nsocket = {control:?}\nlossless = {lossless}\nstall_limit = \"never\"\n");
    if governs {
        let _ = writeln!(text, "{GOVERNED}");
    }
    let queue = queue_frames(variant);
    if let Some(frames) = queue {
        let _ = writeln!(text, "queue = {frames}");
    }
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
        Uplink::Cable => {
            let ring = queue.map_or(String::new(), |_| format!("\nring = {RING_MIN}"));
            format!("shm = {:?}{ring}", directory.join(CABLE))
        }
    };
    let _ = write!(text, "[[port]]\nname = {UPLINK:?}\n{end}\n");
    text
}

/// Full frames that wait for each port of a switch that drops, if the scenario says so. What waits
/// for one that does not is in the rings of guests.
fn queue_frames(variant: &Variant) -> Option<u64> {
    let switch = variant.host_switch.filter(|it| it.lossless == 0)?;
    let frame_bytes = u64::from(variant.mtu_bytes + ETHERNET_HEADER_BYTES);
    Some((switch.queue_bytes? / frame_bytes).clamp(1, QUEUE_MAX))
}

/// The line of a file by which a switch enforces.
const GOVERNED: &str = "policy = \"policy.toml\"";

/// What it tells of its enforcement; `None`: it does not enforce.
pub(super) fn enforcement(directory: &Path) -> Result<Option<Report>> {
    let report = control::ask(&directory.join(CONTROL), Ask::Flows)?;
    serde_json::from_value(report).context("the enforcement of a switch")
}

/// From now on it does not enforce.
pub(super) fn detach(directory: &Path) -> Result<()> {
    let file = directory.join(FILE);
    let text = fs::read_to_string(&file)?;
    fs::write(&file, text.replace(GOVERNED, ""))?;
    control::ask(&directory.join(CONTROL), Ask::Reload)?;
    Ok(())
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
    delivered_bytes: u64,
}

/// A line of `switch drops`.
#[derive(Debug, Deserialize)]
struct DropsLine {
    name: String,
    drops: BTreeMap<String, Option<u64>>,
}

/// The counters of guests' ports, and of the uplink where there is one.
pub(super) fn counts(
    directory: &Path,
    guests: &[&Guest],
) -> Result<(Vec<PortCounts>, Option<UplinkCounts>)> {
    let control = directory.join(CONTROL);
    let ports: Vec<PortLine> = serde_json::from_value(control::ask(&control, Ask::Ports)?)?;
    let drops: Vec<DropsLine> = serde_json::from_value(control::ask(&control, Ask::Drops)?)?;
    let find = |name: &str| {
        let port = ports.iter().find(|port| port.name == name)?;
        let drops = drops.iter().find(|port| port.name == name)?;
        let drops = drops.drops.iter();
        let drops = drops.map(|(cause, count)| (cause.clone(), count.unwrap_or(0)));
        Some((port, drops.collect()))
    };
    let counts = guests.iter().map(|guest| {
        let (port, drops) = find(&guest.port).context("the switch has lost a port")?;
        Ok(PortCounts {
            tenant: guest.tenant,
            into_switch: port.received_frames,
            out_of_switch: port.delivered_frames,
            drops,
        })
    });
    let uplink = find(UPLINK).map(|(port, drops)| UplinkCounts {
        sent: port.delivered_frames,
        sent_bytes: port.delivered_bytes,
        drops,
        ..UplinkCounts::default()
    });
    Ok((counts.collect::<Result<_>>()?, uplink))
}

#[cfg(test)]
mod tests {
    use sluicegate_scenario::file;

    use super::*;

    fn configured(host_switch: &str) -> String {
        let text = format!(
            "[network]\ntopology = 'star'\nhosts = 2\nrate = '100Mbit'\n{host_switch}\
             [traffic.b]\nkind = 'bulk'\npairs = 'stride:1'\n"
        );
        let parsed = file::parse(Path::new("t.toml"), &text, &file::Options::default());
        let experiment = parsed.unwrap_or_else(|problems| panic!("{problems}"));
        let variant = &experiment.variants[0];
        configuration(variant, Path::new("/x"), &[], Uplink::Cable, false)
    }

    #[test]
    fn a_switch_that_drops_has_the_queue_of_the_scenario_in_full_frames() {
        let small = configured("host_switch = { lossless = false, queue = '24KB' }\n");
        assert!(
            small.contains("\nqueue = 15\n") && small.contains("\nring = 64\n"),
            "{small}"
        );
        for usual in ["", "host_switch = { lossless = true, queue = '24KB' }\n"] {
            let text = configured(usual);
            assert!(!text.contains("queue") && !text.contains("ring"), "{text}");
        }
    }
}
