//! `[[event]]`: what happens while the run goes on.

use std::time::Duration;

use sluicegate_config::table::{Item, Table};

use super::{
    duration, enforcement::read_hosts, network::Network, network::read_change, network::read_rate,
    select,
};
use crate::{
    experiment::{Action, Event, Tenant, Traffic},
    hotspot::HotspotType,
};

/// The action of an event, and the actions that end it, if any do.
struct Deed {
    action: Action,
    end: Option<Vec<Action>>,
}

impl Deed {
    fn lasting(action: Action) -> Self {
        Self { action, end: None }
    }
}

/// Reads `[[event]]`, with those that output-generated hotspots of `traffic` stand for, ordered by
/// time.
pub fn read(
    root: &Table<'_>,
    network: &Network,
    tenants: &[Tenant],
    traffic: &[Traffic],
    end: Duration,
) -> Vec<Event> {
    let mut events = Vec::new();
    for hotspot in traffic.iter().filter_map(|t| t.hotspot.as_ref()) {
        if hotspot.kind == HotspotType::Output {
            let deed = slow_link(vec![hotspot.link], hotspot.drain_bps, network);
            events.extend(occurrences(deed, hotspot.start, hotspot.stop, end));
        }
    }
    for table in root.tables("event") {
        events.extend(read_event(&table, network, tenants, end));
        table.close();
    }
    // Actions that end at some time do so before others begin at that time.
    events.sort_by_key(|(event, begins)| (event.at, *begins));
    events.into_iter().map(|(event, _)| event).collect()
}

/// The event and its end, with whether it is a beginning.
fn read_event(
    table: &Table<'_>,
    network: &Network,
    tenants: &[Tenant],
    end: Duration,
) -> Vec<(Event, bool)> {
    let at = duration(table, "at");
    if at.is_none() && table.get("at").is_none() {
        table.require(
            "at",
            "give the time since the start of the run, warm-up included",
        );
    }
    if at.is_some_and(|at| at >= end) {
        table
            .item()
            .complain("happens after the run has ended", "choose an earlier `at`");
    }
    for key in ["pause_storm", "babble"] {
        if network.cee.is_none() {
            table.refuse(key, "needs a [network.cee]: plain Ethernet has no pauses");
        }
    }
    let Some(deed) = read_deed(table, network, tenants) else {
        table.get("for");
        return Vec::new();
    };
    let lasts = read_for(table, &deed);
    let Some(at) = at else { return Vec::new() };
    occurrences(deed, at, lasts.map(|lasts| at + lasts), end)
}

/// The event at `at`, and what ends it at `over` if the run goes on until then.
fn occurrences(
    deed: Deed,
    at: Duration,
    over: Option<Duration>,
    end: Duration,
) -> Vec<(Event, bool)> {
    let mut events = vec![(
        Event {
            at,
            action: deed.action,
        },
        true,
    )];
    if let Some(over) = over.filter(|over| *over < end) {
        let ends = deed.end.into_iter().flatten();
        events.extend(ends.map(|action| (Event { at: over, action }, false)));
    }
    events
}

fn read_for(table: &Table<'_>, deed: &Deed) -> Option<Duration> {
    if deed.end.is_none() {
        table.refuse("for", "this event has no end");
        return None;
    }
    let lasts = duration(table, "for");
    if lasts.is_some_and(|lasts| lasts.is_zero()) {
        table.item().complain("`for` must not be zero", "");
    }
    let must_end = matches!(deed.action, Action::Pause(_));
    if must_end && lasts.is_none() && table.get("for").is_none() {
        table.require("for", "say how long, for example for = \"50ms\"");
    }
    lasts
}

fn read_deed(table: &Table<'_>, network: &Network, tenants: &[Tenant]) -> Option<Deed> {
    let hosts = |key| table.get(key).map(|item| read_hosts(&item, network));
    let links = |key| table.get(key).map(|item| read_links(&item, network));
    let deeds = [
        hosts("detach").map(|hosts| Deed::lasting(Action::Detach(hosts))),
        (table.boolean("bleach_ecn") == Some(true)).then(|| Deed::lasting(Action::BleachEcn)),
        links("link_down").map(|links| Deed {
            end: Some(vec![Action::LinkUp(links.clone())]),
            action: Action::LinkDown(links),
        }),
        links("link_up").map(|links| Deed::lasting(Action::LinkUp(links))),
        table
            .table("impair")
            .map(|table| read_impair(table, network)),
        table
            .table("slow_link")
            .map(|table| read_slow_link(table, network)),
        hosts("pause_host").map(|hosts| Deed {
            end: Some(vec![Action::Resume(hosts.clone())]),
            action: Action::Pause(hosts),
        }),
        hosts("pause_storm").map(|hosts| Deed {
            end: Some(vec![Action::EndPauseStorm(hosts.clone())]),
            action: Action::PauseStorm(hosts),
        }),
        hosts("babble").map(|hosts| Deed {
            end: Some(vec![Action::EndBabble(hosts.clone())]),
            action: Action::Babble(hosts),
        }),
        table
            .table("slow_receiver")
            .map(|table| read_slow(table, tenants)),
    ];
    let mut deeds = deeds.into_iter().flatten();
    if let (Some(deed), None) = (deeds.next(), deeds.next()) {
        return Some(deed);
    }
    let advice = "give one of `detach`, `bleach_ecn`, `link_down`, `link_up`, `impair`, `slow_link`, `pause_host`, `pause_storm`, `babble`, \
                  `slow_receiver`, for example link_down = [\"left-right\"]";
    table.item().complain("an event does one thing", advice);
    None
}

fn read_links(item: &Item<'_>, network: &Network) -> Vec<usize> {
    let names: Vec<_> = network.links.iter().map(|l| l.name.as_str()).collect();
    select(item, &names, "link")
}

fn read_impair(table: Table<'_>, network: &Network) -> Deed {
    let links = match table.get("links") {
        Some(item) => read_links(&item, network),
        None => (0..network.links.len()).collect(),
    };
    let change = read_change(&table);
    table.close();
    let end = links.iter().map(|&link| Action::Impair {
        links: vec![link],
        change: change.undone(&network.links[link].impairment),
    });
    Deed {
        end: Some(end.collect()),
        action: Action::Impair { links, change },
    }
}

fn read_slow_link(table: Table<'_>, network: &Network) -> Deed {
    let links = match table.get("links") {
        Some(item) => read_links(&item, network),
        None => {
            table.require("links", "say which, for example links = [\"left-right\"]");
            Vec::new()
        }
    };
    let rate_bps = read_rate(&table, "rate");
    match table.get("rate") {
        None => table.require("rate", "for example rate = \"100Mbit\""),
        Some(item) => {
            let mut own_bps = links.iter().map(|link| network.links[*link].rate_bps);
            if own_bps.any(|own_bps| rate_bps.is_some_and(|rate_bps| rate_bps > own_bps)) {
                item.complain("is above the rate of such a link", "a slow link is slower");
            }
        }
    }
    refuse_cut_through(table.item(), network);
    table.close();
    slow_link(links, rate_bps.unwrap_or(1), network)
}

/// No link is slowed where switches cut through.
pub fn refuse_cut_through(item: &Item<'_>, network: &Network) {
    if network.cee.as_ref().is_some_and(|cee| cee.cut_through) {
        let reason = "a switch that forwards frames by their header cannot wait for their end";
        let advice = "set `forwarding = \"store-and-forward\"` in [network.cee]";
        item.complain(reason, advice);
    }
}

fn slow_link(links: Vec<usize>, rate_bps: u64, network: &Network) -> Deed {
    let end = links.iter().map(|&link| Action::LinkRate {
        links: vec![link],
        rate_bps: network.links[link].rate_bps,
    });
    Deed {
        end: Some(end.collect()),
        action: Action::LinkRate { links, rate_bps },
    }
}

fn read_slow(table: Table<'_>, tenants: &[Tenant]) -> Deed {
    let names: Vec<_> = tenants.iter().map(|t| t.name.as_str()).collect();
    let slow = match table.get("tenants") {
        Some(item) => select(&item, &names, "tenant"),
        None => {
            table.require("tenants", "name the tenants that read slowly");
            Vec::new()
        }
    };
    let rate_bps = read_rate(&table, "read_rate");
    if rate_bps.is_none() && table.get("read_rate").is_none() {
        table.require("read_rate", "for example read_rate = \"100Mbit\"");
    }
    table.close();
    let end = slow.iter().map(|&tenant| Action::ReadRate {
        tenants: vec![tenant],
        rate_bps: tenants[tenant].read_rate_bps,
    });
    Deed {
        end: Some(end.collect()),
        action: Action::ReadRate {
            tenants: slow,
            rate_bps,
        },
    }
}
