//! Tenants and processes of this host whose packets pass no hook of the agent.

use std::{collections::BTreeSet, fs, path::Path};

use serde::Serialize;

use crate::interfaces::Interface;

/// Kinds of interfaces whose packets reach the adapter below without passing a host side.
const PAST_THE_HOST: [&str; 4] = ["macvlan", "macvtap", "ipvlan", "ipvtap"];

/// State of a listening socket in /proc/net/tcp.
const LISTEN: &str = "0A";

/// A tenant or a process whose flows the agent cannot see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Uncovered {
    /// Its name.
    pub what: String,
    /// Why it is not covered, and what to do.
    pub why: &'static str,
}

/// The uncovered tenants and processes of the calling thread's network namespace. Interfaces of
/// these kinds that were moved to another namespace cannot be seen from here.
pub(crate) fn uncovered(interfaces: &[Interface]) -> Vec<Uncovered> {
    let mut found: Vec<Uncovered> = interfaces
        .iter()
        .filter(|interface| PAST_THE_HOST.contains(&interface.kind.as_str()))
        .map(|interface| Uncovered {
            what: format!("{} {}", interface.kind, interface.name),
            why: "its packets reach the adapter below past every host side; use a veth or TAP on a bridge instead",
        })
        .collect();
    for interface in interfaces {
        let functions = virtual_functions(Path::new("/sys/class/net"), &interface.name);
        if functions > 0 {
            found.push(Uncovered {
                what: format!("{functions} SR-IOV functions of {}", interface.name),
                why: "guests that have one send past the host; give them a TAP instead",
            });
        }
    }
    let ports = listening();
    if !ports.is_empty() {
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        found.push(Uncovered {
            what: format!("TCP listeners of the host itself (ports {})", ports.join(" ")),
            why: "a process in the host's network namespace has no interface of its own: its flows are not \
                  enforced",
        });
    }
    found
}

fn virtual_functions(root: &Path, name: &str) -> u32 {
    let path = root.join(name).join("device/sriov_numvfs");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Ports on which a process here listens for other hosts.
fn listening() -> BTreeSet<u16> {
    let tables = ["tcp", "tcp6"].into_iter();
    let texts = tables.map(|table| {
        fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default()
    });
    texts.flat_map(|text| ports(&text)).collect()
}

fn ports(table: &str) -> Vec<u16> {
    let lines = table.lines().skip(1);
    let listeners = lines.filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, _, state) = (fields.next()?, fields.next()?, fields.next()?);
        let (address, port) = local.split_once(':')?;
        (state == LISTEN && !is_loopback(address)).then_some(port)
    });
    listeners
        .filter_map(|port| u16::from_str_radix(port, 16).ok())
        .collect()
}

/// Of an address as the kernel writes it: words in the machine's order, the last octet first on
/// this one.
fn is_loopback(address: &str) -> bool {
    let is_127 =
        |text: &str| u32::from_str_radix(text, 16).is_ok_and(|word| word.to_ne_bytes()[0] == 127);
    match address.len() {
        8 => is_127(address),
        // ::1, or 127.0.0.0/8 in ::ffff:0:0/96 (RFC 4291).
        32 => {
            let one = u32::from_ne_bytes([0, 0, 0, 1]);
            let (head, tail) = address.split_at(24);
            let mapped = format!("{:016X}{:08X}", 0, u32::from_ne_bytes([0, 0, 0xff, 0xff]));
            (head.bytes().all(|digit| digit == b'0') && u32::from_str_radix(tail, 16) == Ok(one))
                || (head == mapped && is_127(tail))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_past_the_host_are_listed() {
        let macvlan = Interface {
            name: "mv0".into(),
            kind: "macvlan".into(),
            ..Interface::nameless(7)
        };
        let veth = Interface {
            kind: "veth".into(),
            ..macvlan.clone()
        };
        let found = uncovered(&[macvlan, veth]);
        let kinds: Vec<&str> = found.iter().map(|one| one.what.as_str()).collect();
        assert_eq!(kinds[0], "macvlan mv0");
        assert!(!kinds[1..].iter().any(|kind| kind.contains("mv0")));
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn only_listeners_for_others_count() {
        let table = "  sl  local_address rem_address   st\n\
            0: 0100007F:0019 00000000:0000 0A\n\
            1: 00000000:0016 00000000:0000 0A\n\
            2: 0200000A:0050 0100000A:8000 01\n\
            3: 00000000000000000000000001000000:0035 00000000000000000000000000000000:0000 0A\n\
            4: 0000000000000000FFFF00000100007F:0036 00000000000000000000000000000000:0000 0A\n\
            5: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A\n";
        assert_eq!(ports(table), [22, 8080]);
    }
}
