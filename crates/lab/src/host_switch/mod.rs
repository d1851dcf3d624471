//! Switches of hosts that are processes (`[lab] switch`), and what passes guests' ports.
//!
//! ```text
//!   lab ── pipes ──► keeper of a host's switch (this executable, in the host's namespace)
//!                      the switch itself
//! ```
//! A switch is up before guests boot: they connect to its sockets. It ends when the lab closes its
//! stdin, or dies.

mod announce;
mod frontend;
mod open_vswitch;
mod sluicegate;
mod uplinks;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    ffi::OsString,
    fs,
    os::fd::{AsFd, AsRawFd},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use sluicegate_agent::netns::NetNs;
use sluicegate_dataplane::report::Report;
use sluicegate_scenario::{
    experiment::{HostId, LabSwitch, Variant},
    results::VnicResult,
};

use crate::{
    emulated,
    journal::{DIRECTORY, Entry, Journal},
    net::{Network, counters, names},
    tenant::{self, TenantProcess, netstat},
};

use uplinks::UplinkCounts;
pub(crate) use uplinks::add as add_uplinks;

/// Hidden argument of a keeper; the path of the namespace and the switch's file follow.
pub(crate) const SWITCH: &str = "lab-switch";

/// How long a switch may take to be up.
const READY_TIMEOUT: Duration = Duration::from_secs(20);

/// Port of a host's uplink.
const UPLINK: &str = "uplink";

/// Socket of an uplink that is a cable, in the directory of its host.
const CABLE: &str = "cable";

/// What the uplink of a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Uplink {
    None,
    /// A TAP at the host's bridge.
    Tap,
    /// A cable to the emulated fabric.
    Cable,
}

/// What passed the port of a guest since the switch is up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortCounts {
    tenant: usize,
    /// Frames from the guest.
    into_switch: u64,
    /// Frames put where the guest finds them.
    out_of_switch: u64,
    /// By cause.
    drops: BTreeMap<String, u64>,
}

/// What passed the switches of all hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct SwitchCounts {
    /// Of guests' ports, in the order of tenants.
    guests: Vec<PortCounts>,
    /// Of uplinks, in the order of hosts.
    uplinks: Vec<UplinkCounts>,
    /// Drops of switches as a whole, by host and cause.
    elsewhere: BTreeMap<(HostId, String), u64>,
}

/// The switches of a run's hosts. Dropping it ends those that are processes.
#[derive(Debug)]
pub(crate) struct HostSwitches {
    kind: LabSwitch,
    directory: PathBuf,
    guests: Vec<Guest>,
    _keepers: Vec<TenantProcess>,
}

/// The uplink of a host's switch, and whether guests are behind its other ports.
fn uplink(variant: &Variant, host: HostId) -> Uplink {
    match variant.graph().adapter(host) {
        None => Uplink::None,
        Some(_) if emulated::is_emulated(variant) => Uplink::Cable,
        Some(_) => Uplink::Tap,
    }
}

/// The policy that a host's switch enforces, as the text of its file. Bridges enforce by the
/// kernel's programs.
fn policy_of(variant: &Variant, host: HostId) -> Option<&str> {
    let enforcement = variant.enforcement.as_ref()?;
    let is_switch = variant.lab.switch == LabSwitch::Sluicegate;
    let enforces = is_switch && enforcement.hosts.contains(&host);
    enforces.then_some(enforcement.policy_text.as_str())
}

/// A guest and where its port is.
#[derive(Clone, Debug)]
struct Guest {
    tenant: usize,
    host: HostId,
    netns: String,
    /// Name of its port, and of its TAP where it has one.
    port: String,
    mac: String,
}

impl HostSwitches {
    /// Starts the switches of all hosts that have tenants.
    ///
    /// # Errors
    /// A switch does not come up; the message is its own.
    pub(crate) fn start(
        variant: &Variant,
        network: &Network,
        journal: &mut Journal,
    ) -> Result<Self> {
        let kind = variant.lab.switch;
        let directory = Path::new(DIRECTORY).join(format!("{}.switches", network.names.run()));
        let guests = network.layout.guests.iter().map(|vnic| Guest {
            tenant: vnic.tenant,
            host: variant.tenants[vnic.tenant].host,
            netns: vnic.netns.clone(),
            port: vnic.interface.clone(),
            mac: names::tenant_mac(vnic.tenant),
        });
        let mut switches = Self {
            kind,
            directory,
            guests: guests.collect(),
            _keepers: Vec::new(),
        };
        if kind == LabSwitch::Bridge {
            return Ok(switches);
        }
        let path = switches.directory.clone();
        journal.add(&Entry::Directory { path })?;
        // A cable of the fabric leads to a switch, also where no guest is.
        let is_cable = |host| uplink(variant, host) == Uplink::Cable;
        for host in HostId::first(variant.hosts.len()) {
            if is_cable(host) || switches.guests.iter().any(|guest| guest.host == host) {
                let keeper = switches.start_one(variant, network, host, journal)?;
                switches._keepers.push(keeper);
            }
        }
        Ok(switches)
    }

    fn start_one(
        &self,
        variant: &Variant,
        network: &Network,
        host: HostId,
        journal: &mut Journal,
    ) -> Result<TenantProcess> {
        let directory = self.of_host(host);
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let guests = self.guests.iter().filter(|guest| guest.host == host);
        let guests: Vec<&Guest> = guests.collect();
        let file = match self.kind.is_open_vswitch() {
            true => {
                let file = directory.join(open_vswitch::FILE);
                fs::write(&file, open_vswitch::configuration(variant, host, &guests)?)?;
                file
            }
            false => self.write_ours(variant, host, &guests)?,
        };
        let netns = NetNs::named(&network.names.host(host))?;
        let netns = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            netns.as_fd().as_raw_fd()
        );
        let name = format!("switch of {}", variant.host_name(host));
        let mut keeper = TenantProcess::run(&name, &[SWITCH.into(), netns.into(), file.into()])?;
        journal.add_child(keeper.pid() as i32)?;
        keeper.wait_ready(READY_TIMEOUT)?;
        if self.kind.is_open_vswitch() {
            for pid in open_vswitch::processes(&directory)? {
                journal.add_child(pid)?;
            }
        } else if uplink(variant, host) == Uplink::Tap {
            let tenants = variant.tenants.iter().enumerate();
            let remote = tenants.filter(|(_, tenant)| tenant.host != host);
            let macs: Vec<_> = remote.map(|(id, _)| names::mac(id)).collect();
            Network::within(&network.names.host(host), || {
                announce::send(names::UPLINK_TAP, &macs)
            })
            .with_context(|| name.clone())?;
        }
        Ok(keeper)
    }

    /// Writes the file of `sluicegate switch`, and the policy beside it.
    fn write_ours(&self, variant: &Variant, host: HostId, guests: &[&Guest]) -> Result<PathBuf> {
        let directory = self.of_host(host);
        let policy = policy_of(variant, host);
        if let Some(text) = policy {
            fs::write(directory.join(sluicegate::POLICY), text)?;
        }
        let file = directory.join(sluicegate::FILE);
        let (uplink, governs) = (uplink(variant, host), policy.is_some());
        let text = sluicegate::configuration(variant, &directory, guests, uplink, governs);
        fs::write(&file, text)?;
        Ok(file)
    }

    /// What a host's switch has in files.
    fn of_host(&self, host: HostId) -> PathBuf {
        self.directory.join(host.0.to_string())
    }

    /// The cable of a host's uplink, where it has one.
    pub(crate) fn cable(&self, host: HostId) -> PathBuf {
        self.of_host(host).join(CABLE)
    }

    /// Where a tenant's adapter connects to, if its switch has a socket for it.
    pub(crate) fn socket(&self, tenant: usize) -> Option<PathBuf> {
        if !self.kind.has_sockets() {
            return None;
        }
        let mut guests = self.guests.iter();
        let guest = guests.find(|guest| guest.tenant == tenant)?;
        let directory = self.of_host(guest.host);
        Some(match self.kind.is_open_vswitch() {
            true => directory.join(open_vswitch::GUESTS).join(&guest.port),
            false => directory.join(&guest.port),
        })
    }

    /// The counters of all guests' ports and of uplinks.
    ///
    /// # Errors
    /// A switch does not answer.
    pub(crate) fn counts(&self) -> Result<SwitchCounts> {
        let mut hosts: BTreeMap<HostId, Vec<&Guest>> = BTreeMap::new();
        for guest in &self.guests {
            hosts.entry(guest.host).or_default().push(guest);
        }
        let mut all = SwitchCounts::default();
        for (host, guests) in hosts {
            match self.kind {
                LabSwitch::Bridge => all.guests.extend(of_taps(&guests)?),
                LabSwitch::Sluicegate => {
                    let (ports, uplink) = sluicegate::counts(&self.of_host(host), &guests)?;
                    all.guests.extend(ports);
                    all.uplinks
                        .extend(uplink.map(|counts| UplinkCounts { host, ..counts }));
                }
                LabSwitch::Ovs | LabSwitch::OvsDpdk => {
                    let counts = open_vswitch::counts(self.kind, &self.of_host(host), &guests)?;
                    all.guests.extend(counts.guests);
                    let drops = counts.elsewhere.into_iter();
                    all.elsewhere
                        .extend(drops.map(|(cause, count)| ((host, cause), count)));
                }
            }
        }
        all.guests.sort_by_key(|counts| counts.tenant);
        Ok(all)
    }

    /// What a host's switch tells of its enforcement; `None`: it does not enforce.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) fn enforcement(&self, host: HostId) -> Result<Option<Report>> {
        sluicegate::enforcement(&self.of_host(host))
    }

    /// From now on a host's switch does not enforce.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub(crate) fn detach(&self, host: HostId) -> Result<()> {
        sluicegate::detach(&self.of_host(host))
    }
}

/// The kernel's counters of TAPs: what the guest has not read waits in their queue, and is dropped
/// (`queue`) where that is full.
fn of_taps(guests: &[&Guest]) -> Result<Vec<PortCounts>> {
    let Some(first) = guests.first() else {
        return Ok(Vec::new());
    };
    let interfaces = Network::within(&first.netns, counters::read)?;
    let counts = guests.iter().map(|guest| {
        let tap = interfaces.get(&guest.port);
        let tap = tap.with_context(|| format!("{}/{}: is gone", guest.netns, guest.port))?;
        Ok(PortCounts {
            tenant: guest.tenant,
            into_switch: tap.received,
            out_of_switch: tap.sent,
            drops: BTreeMap::from([
                ("refused".to_owned(), tap.receive_drops),
                ("queue".to_owned(), tap.send_drops),
            ]),
        })
    });
    counts.collect()
}

/// The vNICs of guests in measured time, before and after which their ports had these counters.
pub(crate) fn results(
    variant: &Variant,
    reports: &[tenant::Report],
    [before, after]: &[SwitchCounts; 2],
) -> Vec<VnicResult> {
    let ports = before.guests.iter().zip(&after.guests);
    let vnics = ports.map(|(before, after)| {
        let report = &reports[after.tenant];
        let [sent, not_sent, received, not_received] =
            netstat::INTERFACE.map(|name| report.netstat.get(name).copied().unwrap_or(0));
        let mut drops = growth(&before.drops, &after.drops);
        drops.insert("vnic_transmit".to_owned(), not_sent);
        drops.insert("vnic_receive".to_owned(), not_received);
        let overruns = report.overruns.iter().map(|(_, count)| count);
        drops.insert("socket".to_owned(), overruns.sum());
        drops.retain(|_, count| *count > 0);
        VnicResult {
            tenant: variant.tenants[after.tenant].name.clone(),
            sent,
            into_switch: after.into_switch.saturating_sub(before.into_switch),
            out_of_switch: after.out_of_switch.saturating_sub(before.out_of_switch),
            received,
            drops,
        }
    });
    vnics.collect()
}

/// Causes of drops where a queue between a guest and its host's switch is full.
const FULL: [&str; 3] = ["full", "queue", "packet_socket"];

/// Frames that found such a queue full between two moments.
pub(crate) fn found_full(before: &SwitchCounts, after: &SwitchCounts) -> u64 {
    let ports = before.guests.iter().zip(&after.guests);
    let grown = ports.map(|(before, after)| growth(&before.drops, &after.drops));
    grown
        .map(|drops| {
            FULL.iter()
                .filter_map(|cause| drops.get(*cause))
                .sum::<u64>()
        })
        .sum()
}

fn growth(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let grown = after.iter().map(|(cause, count)| {
        let earlier = before.get(cause).copied().unwrap_or(0);
        (cause.clone(), count.saturating_sub(earlier))
    });
    grown.collect()
}

/// What switches dropped in measured time and no port counts, for people.
pub(crate) fn notes(variant: &Variant, [before, after]: &[SwitchCounts; 2]) -> Vec<String> {
    let grown = after.elsewhere.iter().filter_map(|(at, count)| {
        let (host, cause) = at;
        let count = count.saturating_sub(before.elsewhere.get(at).copied().unwrap_or(0));
        let name = variant.host_name(*host);
        (count > 0).then(|| format!("the switch of {name} dropped {count} frames: {cause}"))
    });
    grown.collect()
}

/// Is the keeper of a switch; ends when the lab closes its stdin.
pub(crate) fn serve(mut arguments: impl Iterator<Item = OsString>) -> Result<Infallible> {
    tenant::enter(arguments.next().map(PathBuf::from))?;
    let file = PathBuf::from(arguments.next().context("a file is missing")?);
    match file.ends_with(open_vswitch::FILE) {
        true => open_vswitch::serve(&file),
        false => sluicegate::serve(&file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_found_a_port_full_are_those_since_then() {
        let counts = |full, policed| {
            let drops = [("full".to_owned(), full), ("policed".to_owned(), policed)];
            let port = PortCounts {
                drops: drops.into(),
                ..PortCounts::default()
            };
            SwitchCounts {
                guests: vec![port.clone(), port],
                ..SwitchCounts::default()
            }
        };
        assert_eq!(found_full(&counts(3, 0), &counts(5, 9)), 4);
    }
}
