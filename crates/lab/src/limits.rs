//! Requests of a scenario that the lab cannot fulfil.

use std::{collections::BTreeSet, path::Path};

use sluicegate_apps::HEADER_BYTES;
use sluicegate_fabric::cee::CeeConfig;
use sluicegate_labkit::port::PORTS_MAX;
use sluicegate_scenario::{
    experiment::{
        Action, Event, Experiment, GuestKernel, LabSwitch, Link, Node, Profile, TcpOptions, Tenant,
        TenantKind, Traffic, TrafficKind, Variant,
    },
    hotspot::HotspotType,
    world::{Complaint, Problem},
};

use crate::emulated::{self, RATE_MAX_BPS};

const ADVICE: &str = "simulate it (--world sim)";
/// Tenants have MAC addresses that end with their number in two bytes.
const TENANTS_MAX: usize = 1 << 16;

/// The parts of an experiment that the lab cannot run, each with its key and advice.
pub fn of(experiment: &Experiment) -> Vec<Problem> {
    let mut found: Vec<_> = experiment.variants.iter().flat_map(of_variant).collect();
    if !experiment.inspect.is_nothing() {
        let complaint = Complaint::new(
            "captures, traces and films are the simulator's",
            "leave out --pcap, --trace and --film, and run tcpdump in the namespaces that `ip netns` lists",
        );
        found.push(Problem::of_file(Path::new(&experiment.file), complaint));
    }
    found
}

fn of_variant(variant: &Variant) -> Vec<Problem> {
    let mut found = of_network(variant);
    found.extend(of_emulated(variant));
    found.extend(of_converged(variant));
    found.extend(of_host_switch(variant));
    found.extend(variant.tenants.iter().flat_map(|tenant| {
        let limits = of_tenant(tenant).into_iter();
        limits.map(|(key, why, advice)| {
            let path = variant.places.of_tenant(&tenant.name, key);
            variant.places.problem(&path, why, advice)
        })
    }));
    found.extend(of_events(variant).into_iter().map(|key| {
        let path = variant.places.find("event", key);
        variant
            .places
            .problem(&path, "the lab has no such event", ADVICE)
    }));
    found.extend(variant.traffic.iter().flat_map(|traffic| {
        let limits = of_traffic(traffic, variant.cee.is_some()).into_iter();
        limits.map(|(key, why)| {
            let path = format!("traffic.{}.{key}", traffic.name);
            variant.places.problem(&path, why, ADVICE)
        })
    }));
    found
}

/// Keys of a host's switch of which only one kind of switch does something, and none of them all.
const FORWARDING: [&str; 7] = [
    "transmit_ring",
    "receive_ring",
    "arrival_ring",
    "uplink_queue",
    "rate",
    "frame_time",
    "receive_rate",
];

fn of_host_switch(variant: &Variant) -> Vec<Problem> {
    let problem = |path: &str, why, advice| variant.places.problem(path, why, advice);
    let mut found = Vec::new();
    let kind = variant.lab.switch;
    let table = "network.host_switch";
    if variant.host_switch.is_some() {
        if kind != LabSwitch::Sluicegate {
            let why = match kind.is_open_vswitch() {
                true => "the lab's switch of a host is Open vSwitch, as it is",
                false => "the lab's switch of a host is the kernel's bridge",
            };
            let advice =
                "set [lab] switch = \"sluicegate\", with guests, or simulate it (--world sim)";
            found.push(problem(table, why, advice));
        } else {
            let key = variant.places.first_of(table, &FORWARDING);
            if key != table {
                let why = "the lab's guests have their own rings, and its machine its own speed";
                found.push(problem(&key, why, ADVICE));
            }
        }
    }
    if !kind.has_sockets() && variant.lab.guest_kernel != GuestKernel::Packaged {
        let why = "this kernel has the adapters of guests behind lab.switch = \"sluicegate\" alone";
        let advice = "set [lab] switch = \"sluicegate\", or simulate it (--world sim)";
        found.push(problem("lab.guest_kernel", why, advice));
    }
    if kind.is_open_vswitch() {
        found.extend(of_open_vswitch(variant));
    }
    if kind != LabSwitch::Bridge {
        let is_namespace = |tenant: &Tenant| tenant.kind == TenantKind::Namespace;
        if variant.tenants.iter().any(is_namespace) {
            let why = "only guests can be connected to it, and here are tenants in namespaces";
            let advice = "give all tenants kind = \"guest\", or simulate it (--world sim)";
            found.push(problem("lab.switch", why, advice));
        }
    }
    found
}

/// Open vSwitch enforces nothing, and knows frames of the wire alone.
fn of_open_vswitch(variant: &Variant) -> Vec<Problem> {
    let mut found = Vec::new();
    if variant.enforcement.is_some() {
        let why = "the lab's Open vSwitch takes frames before enforcement sees them";
        let advice = "set [lab] switch = \"sluicegate\", or simulate it (--world sim)";
        found.push(variant.places.problem("enforcement", why, advice));
    }
    if variant.lab.offloads {
        let why = "the lab's Open vSwitch takes no segments that are to be cut later";
        let advice = "set [lab] switch = \"sluicegate\", or simulate it (--world sim)";
        found.push(variant.places.problem("lab.offloads", why, advice));
    }
    found
}

fn of_network(variant: &Variant) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut cannot = |there: bool, key: &str, why: &str, advice: &str| {
        if there {
            let path = variant.places.find("network", key);
            found.push(variant.places.problem(&path, why, advice));
        }
    };
    let links = &variant.links;
    let joins_hosts = |link: &Link| matches!((link.a, link.b), (Node::Host(_), Node::Host(_)));
    let why = "a link joins two hosts, which the lab cannot do";
    let advice = "put a switch between them, or simulate it (--world sim)";
    cannot(links.iter().any(joins_hosts), "links", why, advice);
    let graph = variant.graph();
    let islands = graph.islands();
    // Without a cycle each link joins two islands.
    let nodes = graph.nodes() as usize;
    let has_choice = links.len() + islands > nodes;
    let is_emulated = emulated::is_emulated(variant);
    let why = "the lab's bridges know one path between two hosts only";
    let advice = "set [lab] fabric = \"emulated\", or simulate it (--world sim)";
    cannot(has_choice && !is_emulated, "topology", why, advice);
    let why = "the lab's fabric does not spread frames like this over equal paths";
    let is_other = has_choice || variant.routing.needs_notifications();
    let is_other = is_emulated && is_other && !emulated::spreads(variant);
    cannot(is_other, "routing", why, ADVICE);
    let has_own = is_emulated && !variant.routings.is_empty();
    cannot(has_own, "routings", why, ADVICE);
    let why = "the lab's bridges need a path between any two hosts";
    let advice = "join all by links, or simulate it (--world sim)";
    cannot(islands > 1, "topology", why, advice);
    let ports = links.iter().flat_map(|link| [link.a, link.b]);
    let ports = ports.filter(|node| matches!(node, Node::Switch(_))).count();
    let why =
        &format!("its switches have {ports} ports, of which the lab serves at most {PORTS_MAX}");
    let advice = "use fewer hosts, or simulate it (--world sim)";
    let too_many = ports > PORTS_MAX as usize && !is_emulated;
    cannot(too_many, "topology", why, advice);
    let tenants = variant.tenants.len();
    let why =
        &format!("it has {tenants} tenants, of which the lab has addresses for {TENANTS_MAX}");
    let advice = "use fewer tenants for each host, or simulate it (--world sim)";
    cannot(tenants > TENANTS_MAX, "topology", why, advice);
    let why = "each port of the lab's switches has memory of its own";
    let shared = variant.shared_memory.is_some() && !is_emulated;
    let advice = "set [lab] fabric = \"emulated\", or simulate it (--world sim)";
    cannot(shared, "shared_buffer", why, advice);
    let why = "the lab's hosts have one queue at their uplink";
    let queues = variant.vnic_queue_bytes.is_some();
    cannot(queues, "vnic_queue", why, ADVICE);
    let why = "the lab's networks have one path between two hosts";
    cannot(
        variant.reroute_delay.is_some(),
        "reroute_delay",
        why,
        ADVICE,
    );
    let delayed = links.iter().any(|link| link.delay.is_some());
    cannot(
        delayed && !is_emulated,
        "delay",
        "the links of the lab's kernel have no delay",
        "set [lab] fabric = \"emulated\", or simulate it (--world sim)",
    );
    let impaired = |rate: fn(&Link) -> f64| links.iter().any(|link| rate(link) > 0.0);
    let why = "the lab's links do nothing to frames";
    let damaged = impaired(|link| link.impairment.bit_error_rate);
    cannot(damaged, "bit_error_rate", why, ADVICE);
    let repeated = impaired(|link| link.impairment.duplicate_rate);
    cannot(repeated, "duplicate_rate", why, ADVICE);
    let reordered = impaired(|link| link.impairment.reorder_rate);
    cannot(reordered, "reorder_rate", why, ADVICE);
    found
}

/// What an emulated fabric cannot do.
fn of_emulated(variant: &Variant) -> Vec<Problem> {
    if !emulated::is_emulated(variant) {
        return Vec::new();
    }
    let problem = |path: &str, why: &str, advice: &str| variant.places.problem(path, why, advice);
    let mut found = Vec::new();
    let table = match variant.cee {
        Some(_) => "network.cee",
        None => "lab.fabric",
    };
    let is_namespace = |tenant: &Tenant| tenant.kind == TenantKind::Namespace;
    let has_namespaces = variant.tenants.iter().any(is_namespace);
    if variant.lab.switch != LabSwitch::Sluicegate || has_namespaces {
        let why = "the lab emulates it between switches that hold frames back, and their guests";
        let advice = "set [lab] switch = \"sluicegate\" and kind = \"guest\" of all tenants, or simulate it (--world sim)";
        found.push(problem(table, why, advice));
    }
    let fastest = variant.links.iter().max_by_key(|link| link.rate_bps);
    if let Some(link) = fastest.filter(|link| link.rate_bps > RATE_MAX_BPS) {
        let why = format!(
            "link {} has {} Mbit/s, and the lab emulates a network up to {} Mbit/s",
            link.name,
            link.rate_bps / 1_000_000,
            RATE_MAX_BPS / 1_000_000
        );
        let advice = "set rate = \"500Mbit\" or less, or simulate it (--world sim)";
        let own = format!("network.link.{}", link.name);
        let own = variant.places.first_of(&own, &["rate"]);
        let all = variant.places.first_of("network", &["rate"]);
        let said = [&own, &all].into_iter().find(|key| key.ends_with(".rate"));
        let key = said.map_or(table, String::as_str);
        found.push(problem(key, &why, advice));
    }
    let guests = variant.tenants.len();
    if guests > emulated::GUESTS_MAX {
        let key = variant
            .places
            .first_of("network", &["external", "hosts", "tenants_per_host"]);
        let key = match key.as_str() {
            "network" => "network.topology",
            key => key,
        };
        let why = format!(
            "it has {guests} guests, those on hosts without traffic included, and the lab boots at most {} \
             beside an emulated fabric",
            emulated::GUESTS_MAX
        );
        let advice =
            "use fewer hosts, and no `external` ones without traffic, or simulate it (--world sim)";
        found.push(problem(key, &why, advice));
    }
    let bleaches = |event: &Event| matches!(event.action, Action::BleachEcn);
    if variant.events.iter().any(bleaches) {
        let path = variant.places.find("event", "bleach_ecn");
        let why = "the lab's emulated fabric has no such event";
        found.push(problem(&path, why, ADVICE));
    }
    let mut own = variant.traffic.iter().filter(|it| it.routing.is_some());
    if let Some(traffic) = own.next() {
        let path = format!("traffic.{}.routing", traffic.name);
        let why = "the lab's fabric does not know which traffic a frame belongs to";
        found.push(problem(&path, why, ADVICE));
    }
    found
}

/// What the emulated fabric of converged Ethernet cannot do.
fn of_converged(variant: &Variant) -> Vec<Problem> {
    let Some(config) = &variant.cee else {
        return Vec::new();
    };
    let problem = |path: &str, why: &str, advice: &str| variant.places.problem(path, why, advice);
    let mut found = Vec::new();
    if config.adapter_bytes == CeeConfig::UNLIMITED {
        let why = "the lab's fabric keeps as many frames as its memory holds";
        let advice = "give it a size, or simulate it (--world sim)";
        found.push(problem("network.cee.adapter_buffer", why, advice));
    }
    let first = variant.traffic.first().map(|traffic| traffic.priority);
    let mut all = variant.traffic.iter();
    let differs = all.any(|traffic| Some(traffic.priority) != first);
    // One of those that say theirs.
    let mut said = variant
        .traffic
        .iter()
        .filter(|traffic| traffic.priority != 0);
    let other = said.next_back().filter(|_| differs);
    if let Some(traffic) = other {
        let path = format!("traffic.{}.priority", traffic.name);
        let why = "the lab's guests send without tags, so that all their frames have one priority";
        let advice = "give all traffic the same one, or simulate it (--world sim)";
        found.push(problem(&path, why, advice));
    }
    found
}

/// Keys of a tenant that the lab cannot do, why, and what to do.
fn of_tenant(tenant: &Tenant) -> Vec<(&'static str, &'static str, &'static str)> {
    let mut found = Vec::new();
    let mut cannot = |there: bool, key, why, advice| {
        found.extend(there.then_some((key, why, advice)));
    };
    let slow = tenant.read_rate_bps.is_some();
    let why = "the lab's tenants read at once";
    cannot(slow, "read_rate", why, ADVICE);
    let cheat_in_guest = tenant.ignore_window && tenant.kind == TenantKind::Guest;
    let why = "the lab's program that ignores windows runs in namespaces, not in guests";
    cannot(cheat_in_guest, "ignore_window", why, ADVICE);
    let chooses = tenant.tcp.recovery.is_some() && tenant.kind == TenantKind::Namespace;
    let why = "the lab's tenants in namespaces run this machine's TCP as it is";
    let advice = "give it kind = \"guest\", or simulate it (--world sim)";
    cannot(chooses, "recovery", why, advice);
    let TcpOptions {
        profile,
        recovery: _,
        prr_safe,
        rto_initial,
        rto_min,
        rto_slop,
        delayed_ack,
        connection_cache,
        connection_cache_window,
        pacing,
        offload_segments,
    } = tenant.tcp;
    let foreign = profile != Profile::Linux;
    let options = [
        (foreign, "profile"),
        (prr_safe.is_some(), "prr"),
        (rto_initial.is_some(), "rto_initial"),
        (rto_min.is_some(), "rto_min"),
        (rto_slop.is_some(), "rto_slop"),
        (delayed_ack.is_some(), "delayed_ack"),
        (connection_cache.is_some(), "connection_cache"),
        (connection_cache_window.is_some(), "connection_cache_window"),
        (pacing.is_some(), "pacing"),
    ];
    let why = "the lab's tenants run their kernel's TCP as it is";
    let advice = "leave it out, or simulate it (--world sim)";
    for (there, key) in options {
        cannot(there, key, why, advice);
    }
    let advice = "set [lab] offloads = true, which has the kernel's, or simulate it (--world sim)";
    cannot(offload_segments.is_some(), "offload_segments", why, advice);
    found
}

/// Keys of events that only the simulator knows.
fn of_events(variant: &Variant) -> BTreeSet<&'static str> {
    let events = variant.events.iter();
    let mut simulated: BTreeSet<_> = events
        .filter_map(|event| simulated(&event.action))
        .collect();
    if simulated.contains("link_down") {
        simulated.remove("link_up"); // which may be its end
    }
    if variant.traffic.iter().any(slows_a_link) {
        simulated.remove("slow_link"); // of a hotspot, which is refused by its type
    }
    simulated
}

/// Keys of traffic that the lab cannot do, and why.
fn of_traffic(traffic: &Traffic, has_priorities: bool) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    let mut cannot = |there: bool, key, why| found.extend(there.then_some((key, why)));
    let why = "the lab's frames have no priority";
    cannot(traffic.priority != 0 && !has_priorities, "priority", why);
    let why = "the lab needs a port of its own for each pair, and has those up to 32767";
    cannot(traffic.shares_ports, "pairs", why);
    let why = "the lab's datagrams may be lost";
    let datagrams = matches!(
        traffic.kind,
        TrafficKind::Program {
            datagram_bytes: Some(_),
            ..
        }
    );
    cannot(datagrams, "transport", why);
    let why = "the lab's links keep their rate";
    cannot(slows_a_link(traffic), "type", why);
    if let TrafficKind::Queries {
        bytes,
        request_bytes,
        ..
    } = &traffic.kind
    {
        let why = "the lab's messages have 32 bytes at least";
        cannot(*bytes < HEADER_BYTES, "bytes", why);
        let own = *request_bytes < HEADER_BYTES && request_bytes != bytes;
        cannot(own, "request", why);
    }
    found
}

/// Whether it is a hotspot because a link serves less.
fn slows_a_link(traffic: &Traffic) -> bool {
    let hotspot = traffic.hotspot.as_ref();
    hotspot.is_some_and(|hotspot| hotspot.kind == HotspotType::Output)
}

/// The key of an event that only the simulator knows.
fn simulated(action: &Action) -> Option<&'static str> {
    match action {
        Action::Detach(_) | Action::BleachEcn => None,
        Action::LinkDown(_) => Some("link_down"),
        Action::LinkUp(_) => Some("link_up"),
        Action::Impair { .. } => Some("impair"),
        Action::LinkRate { .. } => Some("slow_link"),
        Action::Pause(_) | Action::Resume(_) => Some("pause_host"),
        Action::PauseStorm(_) | Action::EndPauseStorm(_) => Some("pause_storm"),
        Action::Babble(_) | Action::EndBabble(_) => Some("babble"),
        Action::ReadRate { .. } => Some("slow_receiver"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sluicegate_scenario::file;

    use super::*;

    fn limits(network: &str, rest: &str) -> Vec<String> {
        let text = format!("[network]\n{network}[traffic.b]\nkind = 'bulk'\n{rest}");
        let parsed = file::parse(Path::new("t.toml"), &text, &file::Options::default());
        let problems = of(&parsed.unwrap_or_else(|problems| panic!("{problems}")));
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_only_the_simulator_does_is_refused_where_it_is_said() {
        let found = limits(
            "topology = 'dumbbell'\nshared_buffer = '1MB'\nvnic_queue = '1MB'\nlink.left-right.bit_error_rate = 1e-9\n",
            "[[event]]\nat = '3s'\nlink_down = 'left-right'\nfor = '1s'\n[tenant.r1]\nread_rate = '1Mbit'\n",
        );
        let expected = [
            "t.toml:3:17: network.shared_buffer: ",
            "t.toml:4:14: network.vnic_queue: ",
            "t.toml:5:34: network.link.left-right.bit_error_rate: ",
            "t.toml:13:13: tenant.r1.read_rate: ",
            "t.toml:10:13: event[0].link_down: ",
        ];
        assert_eq!(
            found.len(),
            expected.len(),
            "an event and its end are one: {found:#?}"
        );
        for (line, place) in found.iter().zip(expected) {
            assert!(line.starts_with(place), "{line} against {place}");
        }
        assert!(
            found
                .iter()
                .all(|line| line.ends_with("simulate it (--world sim)"))
        );
    }

    #[test]
    fn a_switch_of_hosts_is_refused_where_it_cannot_do_what_is_asked() {
        let pair = "topology = 'dumbbell'\npairs = 1\n";
        let guests = "[tenant.default]\nkind = 'guest'\n";
        let lab = "[lab]\nswitch = 'sluicegate'\n";
        assert!(limits(pair, &format!("{guests}{lab}")).is_empty());
        let found = limits(pair, lab);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(
            found[0].starts_with("t.toml:7:10: lab.switch: only guests"),
            "{found:#?}"
        );
        let enforcing = "[enforcement]\nhosts = 'all'\npolicy.rule = [{ algorithm = 'dctcp' }]\n";
        assert!(limits(pair, &format!("{guests}{lab}{enforcing}")).is_empty());
        let open = "[lab]\nswitch = 'ovs-dpdk'\n";
        assert!(limits(pair, &format!("{guests}{open}")).is_empty());
        let found = limits(pair, &format!("{guests}{open}offloads = true\n{enforcing}"));
        let keys: Vec<_> = found.iter().map(|line| line.split(": ").nth(1)).collect();
        assert_eq!(
            keys,
            [Some("enforcement"), Some("lab.offloads")],
            "{found:#?}"
        );
        let lossless = format!("{pair}host_switch.lossless = true\n");
        let found = limits(&lossless, guests);
        assert!(
            found[0].starts_with("t.toml:4:1: network.host_switch: the lab's switch"),
            "{found:#?}"
        );
        let ours = format!("{guests}[lab]\nswitch = 'sluicegate'\n");
        assert!(limits(&lossless, &ours).is_empty());
        let found = limits(&format!("{lossless}host_switch.rate = '1Gbit'\n"), &ours);
        assert!(
            found[0].starts_with("t.toml:5:20: network.host_switch.rate: "),
            "{found:#?}"
        );
    }

    #[test]
    fn a_guest_that_ignores_windows_is_refused_and_a_namespace_is_not() {
        let pair = "topology = 'dumbbell'\npairs = 1\n";
        let found = limits(
            pair,
            "[tenant.s1]\nignore_window = true\n[tenant.r1]\nkind = 'guest'\n",
        );
        assert!(found.is_empty(), "{found:#?}");
        let found = limits(pair, "[tenant.s1]\nignore_window = true\nkind = 'guest'\n");
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("t.toml:7:17: tenant.s1.ignore_window: "),
            "{}",
            found[0]
        );
    }

    #[test]
    fn what_only_the_simulator_does_of_traffic_is_refused_where_it_is_said() {
        let found = limits(
            "topology = 'dumbbell'\n",
            "[traffic.c]\nkind = 'bulk'\nphases = [{ rate = '1Mbit' }]\n\
            [traffic.d]\nkind = 'datagrams'\nrate = '1Mbit'\n\
            [traffic.e]\nkind = 'hotspot'\ntype = 'output'\nfrom = 's1'\nto = 'r1'\nrate = '1Mbit'\nseverity = 2\n\
            [traffic.f]\nkind = 'queries'\nfrom = 's1'\nrequest = '31B'\nbytes = '32B'\n\
            arrivals = { kind = 'fixed', interval = '1ms' }\n",
        );
        let expected = [
            "t.toml:13:8: traffic.e.type: ",
            "t.toml:21:11: traffic.f.request: ",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (line, place) in found.iter().zip(expected) {
            assert!(line.starts_with(place), "{line} against {place}");
        }
    }

    #[test]
    fn pairs_without_ports_of_their_own_are_refused() {
        let all = "[traffic.w]\nkind = 'shuffle'\nbytes = '1KB'\nfrom = '*'\nto = '*'\n";
        let of_ports = |pairs: u32| {
            let found = limits(&format!("topology = 'dumbbell'\npairs = {pairs}\n"), all);
            let of_ports = found
                .into_iter()
                .filter(|line| line.contains("port of its own"));
            of_ports.collect::<Vec<String>>()
        };
        assert!(of_ports(40).is_empty());
        let found = of_ports(90);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].contains("traffic.w"), "{}", found[0]);
        assert!(
            found[0].contains("the lab needs a port of its own for each pair"),
            "{}",
            found[0]
        );
    }

    #[test]
    fn a_stack_that_this_kernel_is_not_is_refused_where_it_is_said() {
        let of_key = |key: &str| {
            let table = format!("[tenant.default]\n{key}\n");
            limits("topology = 'dumbbell'\npairs = 1\n", &table)
        };
        assert!(of_key("profile = 'linux'").is_empty());
        assert!(of_key("kind = 'guest'\nrecovery = 'sack'").is_empty());
        for key in [
            "profile = 'freebsd9'",
            "recovery = 'sack'",
            "prr = 'safe'",
            "rto_initial = '1s'",
            "rto_min = '10ms'",
            "rto_slop = '1ms'",
            "delayed_ack = '1ms'",
            "connection_cache = true",
            "pacing = true",
            "offload_segments = 8",
        ] {
            let found = of_key(key);
            let (name, _) = key.split_once(' ').unwrap();
            let place = format!("t.toml:7:{}: tenant.default.{name}: ", name.len() + 4);
            assert!(
                found.iter().all(|line| line.starts_with(&place)),
                "{found:#?}"
            );
            assert!(
                found[0].ends_with("simulate it (--world sim)"),
                "{found:#?}"
            );
        }
    }

    #[test]
    fn every_host_needs_a_switch_and_a_way_to_every_other() {
        let pair = "topology = 'graph'\nlinks = [{ a = 'h1', b = 'h2' }]\n";
        let found = limits(pair, "from = 'h1'\nto = 'h2'\n");
        assert_eq!(found.len(), 1, "{found:#?}");
        let expected = "t.toml:3:9: network.links: a link joins two hosts";
        assert!(found[0].starts_with(expected), "{found:#?}");
        let islands = "topology = 'graph'\nlinks = [{ a = 'h1', b = 's1' }, { a = 's1', b = 'h2' }, \
            { a = 'h3', b = 's2' }, { a = 's2', b = 'h4' }]\n";
        let found = limits(islands, "from = 'h1'\nto = 'h2'\n");
        assert_eq!(found.len(), 1, "{found:#?}");
        let expected = "t.toml:2:12: network.topology: the lab's bridges need a path";
        assert!(found[0].starts_with(expected), "{found:#?}");
    }

    const GUESTS: &str = "[tenant.default]\nkind = 'guest'\n[lab]\nswitch = 'sluicegate'\n";

    #[test]
    fn converged_ethernet_needs_guests_behind_switches_that_hold_back() {
        let slow = "topology = 'dumbbell'\nrate = '200Mbit'\n";
        for text in [
            "cee = {}\n",
            "cee.pfc.priorities = [3]\n",
            "[network.cee.qcn]\n",
        ] {
            let network = format!("{slow}{text}");
            assert_eq!(limits(&network, GUESTS), [""; 0]);
            let found = limits(&network, "");
            assert_eq!(found.len(), 1, "{found:#?}");
            let place = found[0].split_once(": ").map(|(place, _)| place);
            assert!(
                place.is_some_and(|place| place.starts_with("t.toml:4:")),
                "{found:#?}"
            );
            assert!(
                found[0].contains("network.cee: the lab emulates it between switches"),
                "{found:#?}"
            );
        }
    }

    #[test]
    fn converged_ethernet_is_refused_where_the_emulation_does_not_have_it() {
        let slow = "topology = 'dumbbell'\npairs = 2\nrate = '500Mbit'\ncee = {}\n";
        let cases = [
            (
                "topology = 'dumbbell'\nrate = '1Gbit'\ncee = {}\n",
                "",
                "t.toml:3:8: network.rate: link ",
            ),
            (
                "topology = 'dumbbell'\nrate = '1Mbit'\ncee.adapter_buffer = 'unlimited'\n",
                "",
                "t.toml:4:22: network.cee.adapter_buffer: ",
            ),
            (
                slow,
                "[traffic.c]\nkind = 'bulk'\npriority = 3\n",
                "t.toml:10:12: traffic.c.priority: ",
            ),
            (
                slow,
                "[[event]]\nat = '1s'\nbleach_ecn = true\n",
                "t.toml:10:14: event[0].bleach_ecn: ",
            ),
            (
                slow,
                "[[event]]\nat = '1s'\nlink_down = 'left-right'\n",
                "t.toml:10:13: event[0].link_down: ",
            ),
        ];
        for (network, rest, place) in cases {
            let found = limits(network, &format!("{rest}{GUESTS}"));
            assert_eq!(found.len(), 1, "{found:#?}");
            assert!(found[0].starts_with(place), "{found:#?} against {place}");
        }
    }

    #[test]
    fn an_emulated_fabric_has_several_paths_where_frames_keep_their_order_or_may_lose_it() {
        let tree = |routing, rest: &str| {
            let network = format!(
                "topology = 'k-ary-n-tree'\nk = 2\nn = 2\nrate = '100Mbit'\nrouting = '{routing}'\n{rest}"
            );
            limits(
                &network,
                &format!("pairs = 'stride:1'\n{GUESTS}fabric = 'emulated'\n"),
            )
        };
        let cee = "cee = {}\n";
        for routing in ["d-mod-k", "s-mod-k", "flow-hash"] {
            assert_eq!(tree(routing, ""), [""; 0]);
            assert_eq!(tree(routing, cee), [""; 0]);
        }
        for routing in [
            "packet-hash",
            "random",
            "spray",
            "drill",
            "flowlet",
            "conga",
        ] {
            assert_eq!(tree(routing, ""), [""; 0]);
            // The language refuses this one itself.
            if routing == "conga" {
                continue;
            }
            let found = tree(routing, cee);
            assert_eq!(found.len(), 1, "{found:#?}");
            assert!(
                found[0].starts_with("t.toml:6:11: network.routing: "),
                "{found:#?}"
            );
        }
        for routing in ["reps", "plb"] {
            let found = tree(routing, "");
            assert_eq!(found.len(), 1, "{found:#?}");
            assert!(
                found[0].starts_with("t.toml:6:11: network.routing: "),
                "{found:#?}"
            );
        }
    }

    #[test]
    fn more_guests_than_boot_in_time_are_refused_where_they_are_asked_for() {
        let tree = |children, external| {
            let network = format!(
                "topology = 'fat-tree'\nchildren = [{children}, 2]\nparents = [1, 1]\nrate = '100Mbit'\n\
                 cee = {{}}\n{external}"
            );
            limits(&network, &format!("pairs = 'stride:1'\n{GUESTS}"))
        };
        assert_eq!(tree(8, "external = 16\n"), [""; 0]);
        let found = tree(8, "external = 17\n");
        assert_eq!(found.len(), 1, "{found:#?}");
        let expected = "t.toml:7:12: network.external: it has 33 guests, those on hosts without traffic included";
        assert!(found[0].starts_with(expected), "{found:#?}");
        assert!(
            found[0].contains("; use fewer hosts, and no `external` ones"),
            "{found:#?}"
        );
        let found = tree(17, "");
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(
            found[0].starts_with("t.toml:2:12: network.topology: it has 34 guests"),
            "{found:#?}"
        );
        let star = "topology = 'star'\nhosts = 33\nrate = '100Mbit'\ncee = {}\n";
        let found = limits(star, &format!("pairs = 'stride:1'\n{GUESTS}"));
        assert!(
            found[0].starts_with("t.toml:3:9: network.hosts: it has 33 guests"),
            "{found:#?}"
        );
    }

    #[test]
    fn a_plain_network_is_emulated_where_the_lab_says_so() {
        let slow =
            "topology = 'dumbbell'\nrate = '100Mbit'\nshared_buffer = '1MB'\ndelay = '1ms'\n";
        let emulated = format!("{GUESTS}fabric = 'emulated'\n");
        assert_eq!(limits(slow, &emulated), [""; 0]);
        let found = limits(slow, GUESTS);
        assert_eq!(found.len(), 2, "{found:#?}");
        assert!(
            found
                .iter()
                .all(|line| line.contains("fabric = \"emulated\"")),
            "{found:#?}"
        );
        let found = limits(slow, "[lab]\nfabric = 'emulated'\n");
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(
            found[0].starts_with("t.toml:9:10: lab.fabric: the lab emulates it between switches"),
            "{found:#?}"
        );
        let fast = "topology = 'dumbbell'\nrate = '1Gbit'\n";
        let found = limits(fast, &emulated);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(
            found[0].starts_with("t.toml:3:8: network.rate: link "),
            "{found:#?}"
        );
        let bleach = format!("[[event]]\nat = '1s'\nbleach_ecn = true\n{emulated}");
        let found = limits(slow, &bleach);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].contains("event[0].bleach_ecn: "), "{found:#?}");
    }

    #[test]
    fn several_paths_are_refused_and_one_is_not() {
        assert!(limits("topology = 'dumbbell'\nrouting = 'flow-hash'\n", "").is_empty());
        let found = limits(
            "topology = 'k-ary-n-tree'\nk = 2\nn = 2\n",
            "pairs = 'stride:1'\n",
        );
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("t.toml:2:12: network.topology: the lab's bridges"));
    }
}
