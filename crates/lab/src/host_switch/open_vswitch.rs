//! Open vSwitch between the guests of a host: by packet sockets at TAP interfaces, or with DPDK at
//! sockets of vhost-user. Its uplink is the host's end of the link.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use sluicegate_labkit::ovs::{self, Datapath, Dpdk, OpenVswitch, Port, PortCounts as Counted};
use sluicegate_scenario::experiment::{HostId, LabSwitch, Variant};

use super::{Guest, PortCounts, frontend, of_taps};
use crate::{
    net::{Network, names},
    tenant,
};

/// What its keeper reads, in its directory.
pub(super) const FILE: &str = "open-vswitch.json";

/// The ids of its processes, one a line, in its directory.
const PROCESSES: &str = "processes";

/// Sockets of guests, in its directory.
pub(super) const GUESTS: &str = "guests";

/// Frames that each port of it has memory for, at most, and the bytes around each.
const FRAMES: u32 = 24_576;
const AROUND: u32 = 1_500;

/// Its other memory, MB.
const MEMORY_MB: u32 = 128;

/// What a keeper needs to know.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    /// The CPU of DPDK's thread; `None`: no DPDK.
    dpdk_cpu: Option<usize>,
    /// Memory for DPDK, MB.
    memory_mb: u32,
    /// Names of guests' ports: sockets with DPDK, TAP interfaces without.
    guests: Vec<String>,
    uplink: Option<String>,
    /// Ports and the addresses behind them.
    addresses: Vec<(String, String)>,
}

/// How long a port may be away.
const PATIENCE: Duration = Duration::from_secs(5);

/// The text of its keeper's file.
pub(super) fn configuration(variant: &Variant, host: HostId, guests: &[&Guest]) -> Result<String> {
    let uplink = variant.graph().adapter(host).map(names::port);
    let mut addresses: Vec<_> = guests
        .iter()
        .map(|guest| (guest.port.clone(), guest.mac.clone()))
        .collect();
    if let Some(uplink) = &uplink {
        let tenants = variant.tenants.iter().enumerate();
        let remote = tenants.filter(|(_, tenant)| tenant.host != host);
        addresses.extend(remote.map(|(id, _)| (uplink.clone(), names::tenant_mac(id))));
    }
    // Hosts use different CPUs, from the last one on: switches of the network have the first.
    let cpus = thread::available_parallelism()?.get();
    let is_dpdk = variant.lab.switch == LabSwitch::OvsDpdk;
    let each_bytes = variant.mtu_bytes + AROUND;
    let order = Order {
        dpdk_cpu: is_dpdk.then(|| cpus - 1 - host.0 as usize % cpus),
        memory_mb: MEMORY_MB + guests.len() as u32 * (FRAMES / 1000 * each_bytes / 1000),
        guests: guests.iter().map(|guest| guest.port.clone()).collect(),
        uplink,
        addresses,
    };
    Ok(serde_json::to_string(&order)?)
}

/// Is the keeper of the switch, which dies with it.
pub(super) fn serve(file: &Path) -> Result<Infallible> {
    let order: Order = serde_json::from_str(&fs::read_to_string(file)?)?;
    let directory = file.parent().context("a directory")?;
    let datapath = match order.dpdk_cpu {
        Some(cpu) => Datapath::Dpdk(Dpdk {
            cpu,
            memory_mb: order.memory_mb,
            large_pages: false,
        }),
        None => Datapath::Sockets,
    };
    let guests = order.guests.iter().map(|port| match datapath {
        Datapath::Dpdk(_) => Port::VhostUserClient(port.clone()),
        Datapath::Sockets => Port::Interface(port.clone()),
    });
    let ports: Vec<_> = guests.chain(order.uplink.map(Port::Interface)).collect();
    if let Datapath::Dpdk(_) = datapath {
        let guests = directory.join(GUESTS);
        fs::create_dir(&guests)?;
        for port in &order.guests {
            frontend::listen(&guests.join(port), &directory.join(port))?;
        }
    }
    let switch = OpenVswitch::start(directory, datapath, &ports)?;
    for (port, mac) in &order.addresses {
        switch.add_address(port, mac)?;
    }
    let ids = switch.processes().map(|id| format!("{id}\n"));
    fs::write(directory.join(PROCESSES), ids.collect::<String>())?;
    tenant::say(b"ready")?;
    let _input = tenant::Input::watch();
    loop {
        thread::park(); // the thread behind the input ends the process
    }
}

/// The processes of the switch in this directory.
pub(super) fn processes(directory: &Path) -> Result<Vec<i32>> {
    let text = fs::read_to_string(directory.join(PROCESSES))?;
    let ids = text.lines().map(|line| line.parse().context("a process"));
    ids.collect()
}

/// The counters of a switch.
#[derive(Debug)]
pub(super) struct Counts {
    pub guests: Vec<PortCounts>,
    /// Drops of the switch as a whole.
    pub elsewhere: BTreeMap<String, u64>,
}

/// The counters of the switch in this directory.
pub(super) fn counts(kind: LabSwitch, directory: &Path, guests: &[&Guest]) -> Result<Counts> {
    let (counts, ports) = complete(directory, guests)?;
    let of_guests = match kind {
        LabSwitch::Ovs => of_interfaces(guests)?,
        _ => {
            let counted = guests.iter().zip(&ports);
            let counted = counted.map(|(guest, counted)| of_socket(guest.tenant, counted));
            counted.collect()
        }
    };
    Ok(Counts {
        guests: of_guests,
        elsewhere: counts.drops,
    })
}

/// The counters of a switch, and those of guests' ports. A port is away for a moment when its guest
/// has come.
fn complete(directory: &Path, guests: &[&Guest]) -> Result<(ovs::Counts, Vec<Counted>)> {
    let begin = Instant::now();
    loop {
        let counts = ovs::counts(directory)?;
        let ports = guests
            .iter()
            .map(|guest| counts.ports.get(&guest.port).copied());
        match ports.collect() {
            Some(ports) => return Ok((counts, ports)),
            None if begin.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(20)),
            None => {
                let names = guests.iter().map(|guest| guest.port.as_str());
                let lost: Vec<_> = names.filter(|it| !counts.ports.contains_key(*it)).collect();
                let (lost, said) = (lost.join(", "), ovs::complaints(directory));
                bail!("Open vSwitch has lost {lost}; its log: {said}")
            }
        }
    }
}

/// A guest at a socket: what found no room in its ring is `full`.
fn of_socket(tenant: usize, counted: &Counted) -> PortCounts {
    PortCounts {
        tenant,
        into_switch: counted.received,
        out_of_switch: counted.sent,
        drops: BTreeMap::from([
            ("refused".to_owned(), counted.receive_drops),
            ("full".to_owned(), counted.send_drops),
        ]),
    }
}

/// Guests at TAP interfaces: the kernel's counters, and frames that the switch has not taken out of
/// its packet socket in time (`packet_socket`).
fn of_interfaces(guests: &[&Guest]) -> Result<Vec<PortCounts>> {
    let mut counts = of_taps(guests)?;
    let Some(first) = guests.first() else {
        return Ok(counts);
    };
    let sockets = Network::within(&first.netns, || {
        let output = Command::new("ss").args(["-0", "-n", "-m", "-H"]).output();
        let output = output.context("ss (Debian: apt-get install iproute2)")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ss: {said}");
        Ok(packet_sockets(&String::from_utf8_lossy(&output.stdout)))
    })?;
    for (counts, guest) in counts.iter_mut().zip(guests) {
        let drops = sockets.get(&guest.port).copied().unwrap_or(0);
        counts.drops.insert("packet_socket".to_owned(), drops);
    }
    Ok(counts)
}

/// Frames dropped at packet sockets, by interface, as `ss` prints them: `*:t0` and, in brackets
/// behind `skmem:`, a number behind `d`.
fn packet_sockets(text: &str) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    let mut interface = None;
    for word in text.split_whitespace() {
        if let Some(name) = word.strip_prefix("*:") {
            interface = Some(name);
        } else if let Some(memory) = word.strip_prefix("skmem:(") {
            let mut fields = memory.trim_end_matches(')').split(',');
            let drops = fields.find_map(|field| field.strip_prefix('d')?.parse::<u64>().ok());
            if let (Some(name), Some(drops)) = (interface.take(), drops) {
                *found.entry(name.to_owned()).or_default() += drops;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_at_packet_sockets_are_found_by_interface() {
        let text = "p_raw UNCONN 0 0 *:t0 * skmem:(r0,rb212992,t0,tb212992,f0,w0,o0,bl0,d12)\n\
            p_raw UNCONN 0 0 *:t1 * \n\t skmem:(r0,rb212992,t0,tb212992,f0,w0,o0,bl0,d0)\n\
            p_raw UNCONN 0 0 *:t0 * skmem:(r0,rb212992,t0,tb212992,f0,w0,o0,bl0,d3)\n";
        let found = packet_sockets(text);
        assert_eq!(found, [("t0".to_owned(), 15), ("t1".to_owned(), 0)].into());
    }
}
