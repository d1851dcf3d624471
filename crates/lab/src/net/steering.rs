//! Which CPU carries the packets of a namespace.
//!
//! Packets of a flow stay in order on one CPU. Steered by flow, the flows of a port were spread
//! over the CPUs, and those of one CPU met the port's queue at another phase of its cycle than
//! those of the next: marked for 29 or 44 % of their bytes, four flows had 90, 90, 51 and 50 Mb/s
//! for as long as they lasted. So all packets of a namespace take one CPU: switches have one, hosts
//! and their tenants the others. No flow is then carried otherwise than its neighbours. A scenario
//! that asks what such flows get says `lab.steering = "flow"`.

use anyhow::{Context, Result};
use sluicegate_scenario::experiment::{HostId, Steering};

/// The content of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Station {
    /// All switches.
    Switches,
    /// A host, or one of its tenants.
    Host(HostId),
}

/// The CPU, of so many, that carries a station's packets.
fn cpu(station: Station, cpus: usize) -> usize {
    let last = cpus - 1;
    match station {
        Station::Switches => last,
        Station::Host(host) => host.index() % last.max(1),
    }
}

/// The mask of the station's CPUs for `rps_default_mask`: hexadecimal, groups of 32 bits, the
/// highest first.
///
/// # Errors
/// The number of CPUs is not known.
pub fn mask(station: Station, steering: Steering) -> Result<String> {
    let cpus = std::thread::available_parallelism().context("number of CPUs")?;
    Ok(match steering {
        Steering::Namespace => mask_of(cpu(station, cpus.get())),
        Steering::Flow => mask_of_first(cpus.get()),
    })
}

fn mask_of(cpu: usize) -> String {
    let mut groups = vec![format!("{:08x}", 1u32 << (cpu % 32))];
    groups.extend(vec!["00000000".to_owned(); cpu / 32]);
    groups.join(",")
}

/// Of so many CPUs.
fn mask_of_first(cpus: usize) -> String {
    let highest = u32::MAX >> ((32 - cpus % 32) % 32);
    let mut groups = vec![format!("{highest:08x}")];
    groups.extend(vec!["ffffffff".to_owned(); (cpus - 1) / 32]);
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_share_a_cpu_with_hosts_only_where_there_is_no_other() {
        for cpus in [1, 2, 3, 64] {
            let switches = cpu(Station::Switches, cpus);
            for host in HostId::first(100) {
                let host = cpu(Station::Host(host), cpus);
                assert!(host < cpus && switches < cpus);
                assert_eq!(host == switches, cpus == 1);
            }
        }
        assert_eq!(
            [0, 1, 2, 3].map(|host| cpu(Station::Host(HostId(host)), 4)),
            [0, 1, 2, 0]
        );
    }

    #[test]
    fn masks_have_one_bit() {
        assert_eq!(mask_of(0), "00000001");
        assert_eq!(mask_of(31), "80000000");
        assert_eq!(mask_of(33), "00000002,00000000");
    }

    #[test]
    fn masks_of_all_have_as_many_bits_as_there_are_cpus() {
        for (cpus, mask) in [
            (1, "00000001"),
            (2, "00000003"),
            (32, "ffffffff"),
            (33, "00000001,ffffffff"),
            (96, "ffffffff,ffffffff,ffffffff"),
        ] {
            assert_eq!(mask_of_first(cpus), mask);
        }
    }
}
