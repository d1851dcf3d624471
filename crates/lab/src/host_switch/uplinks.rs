//! What the switches of hosts drop at their uplinks, as results of the links behind these.

use std::collections::BTreeMap;

use sluicegate_scenario::{
    experiment::{HostId, PortId, Variant},
    results::LinkResult,
};

use super::{SwitchCounts, growth};

/// Causes of drops of frames that come by an uplink. Others are of frames that leave by it.
const INWARD: [&str; 7] = [
    "forged",
    "hidden",
    "ethertype",
    "malformed",
    "left",
    "control",
    "reserved",
];

/// A flooded frame that was for another host is no loss.
const NOT_FOR_US: &str = "back";

/// What passed the uplink of a host's switch since it is up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UplinkCounts {
    pub(super) host: HostId,
    /// Frames and bytes that the switch sent by it.
    pub(super) sent: u64,
    pub(super) sent_bytes: u64,
    /// By cause, of frames that the switch had for it or from it.
    pub(super) drops: BTreeMap<String, u64>,
}

/// Adds what switches of hosts dropped at their uplinks to the links behind these: `uplink` on the
/// way out, `arrival` on the way in, as the simulator calls these places.
pub(crate) fn add(
    variant: &Variant,
    [before, after]: [&SwitchCounts; 2],
    links: &mut Vec<LinkResult>,
) {
    let graph = variant.graph();
    for (before, after) in before.uplinks.iter().zip(&after.uplinks) {
        let Some(port) = graph.adapter(after.host) else {
            continue;
        };
        let mut drops = growth(&before.drops, &after.drops);
        drops.remove(NOT_FOR_US);
        let sum = |is_inward: bool| -> u64 {
            let those = drops
                .iter()
                .filter(|(cause, _)| is_inward == INWARD.contains(&cause.as_str()));
            those.map(|(_, count)| count).sum()
        };
        for (port, cause, count) in [
            (port, "uplink", sum(false)),
            (port.opposite(), "arrival", sum(true)),
        ] {
            if count > 0 {
                let sent = [
                    after.sent - before.sent,
                    after.sent_bytes - before.sent_bytes,
                ];
                link(variant, port, sent, links)
                    .drops
                    .insert(cause.to_owned(), count);
            }
        }
    }
}

/// The result of a link, which is made where the lab has none: of a host's own side.
fn link<'a>(
    variant: &Variant,
    port: PortId,
    [sent, sent_bytes]: [u64; 2],
    links: &'a mut Vec<LinkResult>,
) -> &'a mut LinkResult {
    let id = variant.port_name(port);
    let at = links.iter().position(|link| link.id == id);
    let at = at.unwrap_or_else(|| {
        links.push(LinkResult {
            id,
            rate_bps: variant.links[port.link()].rate_bps,
            sent,
            sent_bytes,
            ..LinkResult::default()
        });
        links.len() - 1
    });
    &mut links[at]
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sluicegate_scenario::file;

    use super::*;

    fn variant() -> Variant {
        let text = "[network]\ntopology = 'star'\nhosts = 3\nrate = '100Mbit'\n\
            [traffic.b]\nkind = 'bulk'\npairs = 'stride:1'\n";
        let parsed = file::parse(Path::new("t.toml"), text, &file::Options::default());
        let mut experiment = parsed.unwrap_or_else(|problems| panic!("{problems}"));
        experiment.variants.remove(0)
    }

    fn counts(sent: u64, drops: &[(&str, u64)]) -> SwitchCounts {
        let drops = drops
            .iter()
            .map(|&(cause, count)| (cause.to_owned(), count));
        let of = |host, sent, drops| UplinkCounts {
            host: HostId(host),
            sent,
            sent_bytes: 100 * sent,
            drops,
        };
        SwitchCounts {
            uplinks: vec![of(0, 7, BTreeMap::new()), of(1, sent, drops.collect())],
            ..SwitchCounts::default()
        }
    }

    #[test]
    fn drops_at_an_uplink_are_those_of_its_link_by_place() {
        let variant = variant();
        let before = counts(10, &[("full", 5), ("malformed", 1), ("back", 1)]);
        let after = counts(
            30,
            &[
                ("full", 8),
                ("no_receiver", 2),
                ("malformed", 5),
                ("back", 9),
            ],
        );
        let port = variant.graph().adapter(HostId(1)).expect("an adapter");
        let inward = LinkResult {
            id: variant.port_name(port.opposite()),
            sent: 1000,
            drops: BTreeMap::from([("tail".to_owned(), 6)]),
            ..LinkResult::default()
        };
        let mut links = vec![inward];
        add(&variant, [&before, &after], &mut links);
        let drops = |link: &LinkResult| {
            let drops = link.drops.iter();
            let drops: Vec<_> = drops
                .map(|(cause, count)| format!("{cause} {count}"))
                .collect();
            drops.join(", ")
        };
        // That of the switch is kept, and the host's own is new.
        assert_eq!(
            (links[0].sent, drops(&links[0])),
            (1000, "arrival 4, tail 6".to_owned())
        );
        assert_eq!((links[1].sent, links[1].sent_bytes), (20, 2000));
        assert_eq!(drops(&links[1]), "uplink 5");
        assert_eq!(
            (links[1].id.as_str(), links[1].rate_bps),
            ("h2>switch", 100_000_000)
        );
        assert_eq!(links.len(), 2);
    }

    #[test]
    fn nothing_is_added_where_nothing_was_dropped() {
        let (before, after) = (
            counts(10, &[("full", 5)]),
            counts(30, &[("full", 5), ("back", 3)]),
        );
        let mut links = Vec::new();
        add(&variant(), [&before, &after], &mut links);
        assert_eq!(links.len(), 0);
    }
}
