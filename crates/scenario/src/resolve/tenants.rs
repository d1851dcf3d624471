//! `[tenant.*]`: the tenants of the hosts, and their stacks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluicegate_config::{
    bound::Bytes,
    table::{Item, Table, nearest},
    units::parse_duration,
};
use sluicegate_tcp::config::{CacheWindow, Recovery};

use super::{
    matches,
    network::{Network, read_rate},
};
use crate::bounds;
use crate::experiment::{
    EcnOffer, HostId, Profile, TcpOptions, Tenant, TenantKind, congestion_controls,
};

const PROFILES: [(&str, Profile); 2] = [("linux", Profile::Linux), ("freebsd9", Profile::Freebsd9)];

const RECOVERIES: [(&str, Recovery); 3] = [
    ("rack", Recovery::Rack),
    ("sack", Recovery::Sack),
    ("newreno", Recovery::NewReno),
];

const CACHE_WINDOWS: [(&str, CacheWindow); 3] = [
    ("none", CacheWindow::Unused),
    ("half", CacheWindow::Half),
    ("whole", CacheWindow::Whole),
];

/// Reads `[tenant.default]`, then tables whose name is a pattern, then those of single tenants.
pub fn read(root: &Table<'_>, network: &Network) -> Vec<Tenant> {
    let mut tenants = residents(network);
    let Some(table) = root.table("tenant") else {
        return tenants;
    };
    let named = table.named();
    let rank = |name: &str| match name {
        "default" => 0,
        pattern if pattern.contains('*') => 1,
        _ => 2,
    };
    for turn in 0..3 {
        for (name, item) in named.iter().filter(|(name, _)| rank(name) == turn) {
            let Some(own) = item.table() else {
                continue;
            };
            let change = read_change(&own, network);
            own.close();
            let pattern = if turn == 0 { "*" } else { name };
            let mut chosen = tenants
                .iter_mut()
                .filter(|t| matches(pattern, &t.name))
                .peekable();
            if chosen.peek().is_none() && !network.hosts.is_empty() {
                drop(chosen);
                let names: Vec<_> = tenants.iter().map(|t| t.name.as_str()).collect();
                let advice = format!(
                    "tenants are named {}{}",
                    super::abbreviated(&names),
                    nearest(name, &names)
                );
                item.complain(format!("there is no tenant \"{name}\""), advice);
                continue;
            }
            for tenant in chosen {
                change.apply(tenant);
            }
        }
    }
    check_windows(&named, &tenants);
    tenants
}

/// A window is inherited by way of the cache.
fn check_windows(tables: &[(&str, Item<'_>)], tenants: &[Tenant]) {
    let without = |tenant: &Tenant| {
        let tcp = &tenant.tcp;
        let cached = tcp
            .connection_cache
            .unwrap_or(tcp.profile == Profile::Freebsd9);
        !cached && tcp.connection_cache_window.unwrap_or_default() != CacheWindow::Unused
    };
    for (name, item) in tables {
        let key = item
            .table()
            .and_then(|table| table.get("connection_cache_window"));
        let pattern = if *name == "default" { "*" } else { name };
        let mut named = tenants
            .iter()
            .filter(|tenant| matches(pattern, &tenant.name));
        if let (Some(key), Some(tenant)) = (key, named.find(|tenant| without(tenant))) {
            key.complain(
                format!(
                    "tenant {} has no cache that would keep a window",
                    tenant.name
                ),
                "set connection_cache = true, or profile = \"freebsd9\"",
            );
        }
    }
}

/// Every tenant with its defaults. One on a host bears the host's name, several are numbered.
fn residents(network: &Network) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (host, place) in HostId::enumerate(&network.hosts) {
        for number in 0..network.tenants_per_host {
            let name = match network.tenants_per_host {
                1 => place.name.clone(),
                _ => format!("{}-{}", place.name, number + 1),
            };
            tenants.push(Tenant {
                name,
                host,
                address: address(network.ip_version, host, number),
                congestion_control: "cubic".to_owned(),
                ecn: EcnOffer::default(),
                kind: TenantKind::Namespace,
                receive_buffer_bytes: None,
                tcp: TcpOptions::default(),
                read_rate_bps: None,
                ignore_window: false,
            });
        }
    }
    tenants
}

/// 10.H.h.t or fd00::h:t, host and tenant counted from 1. From the 65 536th host on 11.H.h.t and
/// fd00::1:h:t; topologies are small enough for both.
fn address(ip_version: u8, host: HostId, tenant: usize) -> IpAddr {
    let [_, block, high, low] = host.0.saturating_add(1).to_be_bytes();
    let number = (tenant as u8).saturating_add(1);
    if ip_version == 4 {
        return Ipv4Addr::new(10 + block, high, low, number).into();
    }
    let host = u16::from_be_bytes([high, low]);
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, block.into(), host, number.into()).into()
}

/// The changes that a table makes; `None` leaves the value as it is.
struct Change {
    congestion_control: Option<String>,
    ecn: Option<EcnOffer>,
    kind: Option<TenantKind>,
    receive_buffer_bytes: Option<u64>,
    profile: Option<Profile>,
    tcp: TcpOptions,
    read_rate_bps: Option<u64>,
    ignore_window: Option<bool>,
}

fn read_change(table: &Table<'_>, network: &Network) -> Change {
    let controls = congestion_controls().into_iter().map(|name| (name, name));
    let controls: Vec<_> = controls.collect();
    let kinds = [
        ("namespace", TenantKind::Namespace),
        ("guest", TenantKind::Guest),
    ];
    let profile = table.choice("profile", &PROFILES);
    // A profile brings its own.
    let brought = profile.map(|profile| match profile {
        Profile::Linux => "cubic",
        Profile::Freebsd9 => "reno",
    });
    let control = table.choice("congestion_control", &controls).or(brought);
    Change {
        congestion_control: control.map(str::to_owned),
        ecn: table.get("ecn").and_then(|item| read_ecn(&item)),
        kind: table.choice("kind", &kinds),
        receive_buffer_bytes: read_buffer(table, network),
        profile,
        tcp: TcpOptions {
            profile: Profile::default(),
            recovery: table.choice("recovery", &RECOVERIES),
            prr_safe: table.choice("prr", &[("advancing", false), ("safe", true)]),
            rto_initial: table.within("rto_initial", &bounds::TIMEOUT),
            rto_min: table.within("rto_min", &bounds::TIMEOUT),
            rto_slop: table.parse("rto_slop", parse_duration),
            delayed_ack: table.parse("delayed_ack", parse_duration),
            connection_cache: table.boolean("connection_cache"),
            connection_cache_window: table.choice("connection_cache_window", &CACHE_WINDOWS),
            pacing: table.boolean("pacing"),
            offload_segments: read_offload(table, network),
        },
        read_rate_bps: read_rate(table, "read_rate"),
        ignore_window: table.boolean("ignore_window"),
    }
}

/// `true` is classic ECN.
fn read_ecn(item: &Item<'_>) -> Option<EcnOffer> {
    if item.is_text() {
        return item.choice(&[("accurate", EcnOffer::Accurate)]);
    }
    item.boolean().map(|offers| match offers {
        true => EcnOffer::Classic,
        false => EcnOffer::None,
    })
}

/// On converged Ethernet room is for frames as the wire has them.
fn read_offload(table: &Table<'_>, network: &Network) -> Option<u8> {
    let item = table.get("offload_segments")?;
    let segments = item.within(&bounds::OFFLOAD_SEGMENTS)? as u8;
    if segments > 1 && network.cee.is_some() {
        let reason = "several segments in a frame need more room than [network.cee] has for one: \
            its headroom is for frames of the MTU, which adapters cut before the wire";
        item.complain(reason, "leave it out");
    }
    Some(segments)
}

/// One that holds a full segment at least.
fn read_buffer(table: &Table<'_>, network: &Network) -> Option<u64> {
    let headers = if network.ip_version == 4 { 40 } else { 60 };
    let segment = u64::from(network.mtu_bytes - headers);
    let bound = bounds::RECEIVE_BUFFER.at_least(Bytes(segment));
    let Bytes(bytes) = table.within("receive_buffer", &bound)?;
    Some(bytes)
}

impl Change {
    fn apply(&self, tenant: &mut Tenant) {
        if let Some(control) = &self.congestion_control {
            tenant.congestion_control.clone_from(control);
        }
        tenant.ecn = self.ecn.unwrap_or(tenant.ecn);
        tenant.kind = self.kind.unwrap_or(tenant.kind);
        tenant.receive_buffer_bytes = self.receive_buffer_bytes.or(tenant.receive_buffer_bytes);
        let (new, old) = (&self.tcp, tenant.tcp);
        tenant.tcp = TcpOptions {
            profile: self.profile.unwrap_or(old.profile),
            recovery: new.recovery.or(old.recovery),
            prr_safe: new.prr_safe.or(old.prr_safe),
            rto_initial: new.rto_initial.or(old.rto_initial),
            rto_min: new.rto_min.or(old.rto_min),
            rto_slop: new.rto_slop.or(old.rto_slop),
            delayed_ack: new.delayed_ack.or(old.delayed_ack),
            connection_cache: new.connection_cache.or(old.connection_cache),
            connection_cache_window: (new.connection_cache_window).or(old.connection_cache_window),
            pacing: new.pacing.or(old.pacing),
            offload_segments: new.offload_segments.or(old.offload_segments),
        };
        tenant.read_rate_bps = self.read_rate_bps.or(tenant.read_rate_bps);
        tenant.ignore_window = self.ignore_window.unwrap_or(tenant.ignore_window);
    }
}
