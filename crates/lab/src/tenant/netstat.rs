//! Counters of a namespace's TCP (`/proc/net/snmp`, `/proc/net/netstat`) and of its interface.

use std::{collections::BTreeMap, fs};

use crate::net::{counters, names::TENANT_INTERFACE};

/// Packets of the tenant's interface: sent, not sent, received, not received.
pub const INTERFACE: [&str; 4] = [
    "InterfaceSent",
    "InterfaceSendDropped",
    "InterfaceReceived",
    "InterfaceReceiveDropped",
];

/// The longest time that reception waits for room in a UDP socket, on kernels that can
/// (`kernel/guest`).
pub const UDP_HOLD_MS: &str = "/proc/sys/net/core/udp_hold_ms";

/// How often reception waited for a full UDP socket, and how often it was given up, on such
/// kernels.
pub const HOLDS: [(&str, &str); 2] = [
    ("UdpHolds", "/proc/sys/net/core/udp_holds"),
    ("UdpHoldsExpired", "/proc/sys/net/core/udp_holds_expired"),
];

/// Reads all `Tcp`, `TcpExt` and `IpExt` counters of the calling thread's namespace, and those of
/// [`INTERFACE`] and [`HOLDS`]. Names are unique. A file that is missing counts as empty.
pub fn read() -> BTreeMap<String, u64> {
    let files = [
        "/proc/thread-self/net/snmp",
        "/proc/thread-self/net/netstat",
    ];
    let texts = files
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok());
    let own = counters::read().ok();
    let own = own.and_then(|mut all| all.remove(TENANT_INTERFACE));
    let interface = own.map(|own| {
        let values = [own.sent, own.send_drops, own.received, own.receive_drops];
        INTERFACE.map(str::to_owned).into_iter().zip(values)
    });
    let tcp = texts.flat_map(|text| parse(&text));
    let holds = HOLDS.iter().filter_map(|(name, path)| {
        let text = fs::read_to_string(path).ok()?;
        Some(((*name).to_owned(), text.trim().parse().ok()?))
    });
    tcp.chain(interface.into_iter().flatten())
        .chain(holds)
        .collect()
}

/// Lines come in pairs: `TcpExt: name …` and `TcpExt: value …`.
fn parse(text: &str) -> BTreeMap<String, u64> {
    let lines: Vec<&str> = text.lines().collect();
    let wanted = |line: &str| {
        ["Tcp: ", "TcpExt: ", "IpExt: "]
            .iter()
            .any(|prefix| line.starts_with(prefix))
    };
    let pairs = lines.chunks_exact(2).filter(|pair| wanted(pair[0]));
    pairs
        .flat_map(|pair| {
            pair[0]
                .split_whitespace()
                .zip(pair[1].split_whitespace())
                .skip(1)
        })
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
        .collect()
}

/// Counters of timers that make a sender repeat a segment.
pub const CAUSES: [&str; 2] = ["TCPLossProbes", "TCPTimeouts"];

/// Counters of segments that were repeated.
pub const REPEATED: [&str; 1] = ["RetransSegs"];

/// `counters` with those of `names` as they were in an `earlier` reading.
pub fn with(
    mut counters: BTreeMap<String, u64>,
    names: &[&str],
    earlier: &BTreeMap<String, u64>,
) -> BTreeMap<String, u64> {
    for name in names {
        if let Some(value) = earlier.get(*name) {
            counters.insert((*name).to_owned(), *value);
        }
    }
    counters
}

/// The counters that grew, and by how much.
pub fn growth(
    before: &BTreeMap<String, u64>,
    after: &BTreeMap<String, u64>,
) -> BTreeMap<String, u64> {
    let grown = after
        .iter()
        .map(|(name, value)| (name, value.saturating_sub(*before.get(name).unwrap_or(&0))));
    grown
        .filter(|(_, by)| *by > 0)
        .map(|(name, by)| (name.clone(), by))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_count_from_earlier_on() {
        let reading = |probes: u64, repeated: u64| {
            BTreeMap::from([
                ("TCPLossProbes".to_owned(), probes),
                ("RetransSegs".to_owned(), repeated),
            ])
        };
        let before = with(reading(5, 5), &CAUSES, &reading(3, 3));
        let grown = growth(&before, &reading(6, 6));
        assert_eq!((grown["TCPLossProbes"], grown["RetransSegs"]), (3, 1));
    }

    #[test]
    fn pairs_of_lines_become_counters() {
        let text = "Ip: Forwarding\nIp: 1\nTcp: RtoMin MaxConn RetransSegs\nTcp: 200 -1 7\n\
                    TcpExt: TCPTimeouts TCPDSACKRecv\nTcpExt: 3 0\n";
        let counters = parse(text);
        assert_eq!(counters.get("RetransSegs"), Some(&7));
        assert_eq!(counters.get("TCPTimeouts"), Some(&3));
        assert!(!counters.contains_key("Forwarding") && !counters.contains_key("MaxConn"));
    }

    #[test]
    fn growth_leaves_out_what_stood_still() {
        let before = BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 5)]);
        let after = BTreeMap::from([
            ("a".to_owned(), 4),
            ("b".to_owned(), 5),
            ("c".to_owned(), 2),
        ]);
        assert_eq!(
            growth(&before, &after),
            BTreeMap::from([("a".to_owned(), 3), ("c".to_owned(), 2)])
        );
    }
}
