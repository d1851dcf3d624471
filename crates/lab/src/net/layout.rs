//! The network to build for a variant, as text for iproute2's batch mode: pure, so that it can be
//! tested without root.

use std::{collections::BTreeMap, fmt::Write, net::IpAddr};

use anyhow::{Result, bail};
use sluicegate_scenario::experiment::{
    HostId, LabSwitch, Link, Node, PortId, SwitchId, TenantKind, Variant,
};

use crate::emulated;

use super::{
    names::{self, HOST_BRIDGE, Names, TENANT_INTERFACE, UPLINK_TAP},
    paths,
    steering::Station,
};

/// Bytes of an Ethernet header: what a queue counts on top of the MTU.
pub const ETHERNET_HEADER_BYTES: u32 = 14;

/// Packets that an uplink shared by several tenants may hold: Linux's default transmit queue
/// length.
const UPLINK_QUEUE_PACKETS: u64 = 1000;

/// Bytes that a tenant's own shaper may hold: more than all its sockets may have unsent, so that
/// it never drops. The stack keeps it short (TCP small queues) as it does a real adapter's.
const TENANT_QUEUE_BYTES: u64 = 1 << 30;

/// A shaper may send this much time's worth of link rate at once, to make up for timers that fire
/// late.
const BURST_US: u64 = 100;

/// Text for `ip -batch`, `bridge -batch` and `tc -batch` in one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// For `ip`.
    pub ip: String,
    /// For `bridge`.
    pub bridge: String,
    /// For `tc`.
    pub tc: String,
}

/// A switch's transmit queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchPort {
    /// Which one.
    pub id: PortId,
    /// Interface in the switches' namespace.
    pub interface: String,
}

/// Host side of a tenant's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vnic {
    /// Tenant id.
    pub tenant: usize,
    /// Namespace of its host.
    pub netns: String,
    /// Interface there.
    pub interface: String,
}

/// Everything to build.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Namespaces and what they hold, in order of creation.
    pub namespaces: Vec<(String, Station)>,
    /// For `ip -batch` outside: pairs of interfaces, made where they will live.
    pub links: String,
    /// The commands of each namespace for its ends.
    pub inside: BTreeMap<String, Batch>,
    /// Transmit queues of switches.
    pub ports: Vec<SwitchPort>,
    /// Host sides of tenants' interfaces, where they have one.
    pub vnics: Vec<Vnic>,
    /// Those of guests.
    pub guests: Vec<Vnic>,
    /// Uplinks with a queue of their own: (namespace of the host, interface).
    pub uplinks: Vec<(String, String)>,
}

impl Layout {
    /// Lays out a variant.
    ///
    /// # Errors
    /// A link between two hosts, hosts without a path, a rate that a shaper cannot have.
    pub fn new(variant: &Variant, names: &Names) -> Result<Self> {
        let mut layout = Self::default();
        layout.add_nodes(variant, names);
        let is_emulated = emulated::is_emulated(variant);
        // The links of an emulated network are no interfaces.
        let links = if is_emulated { 0 } else { variant.links.len() };
        for id in 0..links {
            layout.add_link(variant, names, id)?;
        }
        for id in 0..variant.tenants.len() {
            layout.add_tenant(variant, names, id)?;
        }
        if !is_emulated {
            layout.add_forwarding(variant, names)?;
        }
        Ok(layout)
    }

    fn add_nodes(&mut self, variant: &Variant, names: &Names) {
        let is_emulated = emulated::is_emulated(variant);
        let switches = if is_emulated {
            0
        } else {
            variant.switches.len()
        };
        if switches > 0 {
            self.add_namespace(names.switches(), Station::Switches);
        }
        for id in SwitchId::first(switches) {
            self.add_bridge(&names.switches(), &names::switch_bridge(id), variant);
        }
        for id in HostId::first(variant.hosts.len()) {
            self.add_namespace(names.host(id), Station::Host(id));
            self.add_bridge(&names.host(id), HOST_BRIDGE, variant);
        }
    }

    fn add_namespace(&mut self, name: String, station: Station) {
        self.inside.insert(name.clone(), Batch::default());
        self.namespaces.push((name, station));
    }

    fn batch(&mut self, netns: &str) -> &mut Batch {
        self.inside.entry(netns.to_owned()).or_default()
    }

    fn add_bridge(&mut self, netns: &str, bridge: &str, variant: &Variant) {
        let mtu = variant.mtu_bytes;
        line(
            &mut self.batch(netns).ip,
            format_args!(
                "link add name {bridge} mtu {mtu} up type bridge stp_state 0 mcast_snooping 0 ageing_time 0"
            ),
        );
    }

    fn add_link(&mut self, variant: &Variant, names: &Names, id: usize) -> Result<()> {
        let link = &variant.links[id];
        if let (Node::Host(a), Node::Host(b)) = (link.a, link.b) {
            bail!(
                "variant {}, link {}: joins hosts {} and {} directly; the lab needs a switch between",
                variant.name,
                link.name,
                variant.host_name(a),
                variant.host_name(b)
            );
        }
        let mtu = variant.mtu_bytes;
        let ports = PortId::both_of(id);
        let [a, b] = ports.map(names::port);
        let (at_a, at_b) = (namespace(names, link.a), namespace(names, link.b));
        line(
            &mut self.links,
            format_args!(
                "link add {a} netns {at_a} mtu {mtu} type veth peer name {b} netns {at_b} mtu {mtu}"
            ),
        );
        ports
            .into_iter()
            .try_for_each(|port| self.add_end(variant, names, port))
    }

    fn add_end(&mut self, variant: &Variant, names: &Names, port: PortId) -> Result<()> {
        let (node, interface) = (variant.ends(port).0, names::port(port));
        let netns = namespace(names, node);
        match (node, variant.lab.switch) {
            (Node::Switch(id), _) => self.enslave(&netns, &interface, &names::switch_bridge(id)),
            (Node::Host(_), LabSwitch::Bridge) => self.enslave(&netns, &interface, HOST_BRIDGE),
            (Node::Host(_), LabSwitch::Sluicegate) => {
                self.add_tap(&netns, UPLINK_TAP, variant);
                self.enslave(&netns, UPLINK_TAP, HOST_BRIDGE);
                self.enslave(&netns, &interface, HOST_BRIDGE);
            }
            (Node::Host(_), LabSwitch::Ovs | LabSwitch::OvsDpdk) => {
                self.bring_up(&netns, &interface)
            }
        }
        let of_link = &variant.links[port.link()];
        match node {
            Node::Switch(_) => {
                let shaper = shaper(variant, of_link, of_link.queue_bytes)?;
                self.shape(&netns, &interface, &shaper);
                self.ports.push(SwitchPort {
                    id: port,
                    interface,
                });
            }
            // A tenant alone on its host is shaped where it sends, see `add_tenant`.
            Node::Host(host) if !alone(variant, host) => {
                let frame = u64::from(variant.mtu_bytes + ETHERNET_HEADER_BYTES);
                let shaper = shaper(variant, of_link, UPLINK_QUEUE_PACKETS * frame)?;
                self.shape(&netns, &interface, &shaper);
                self.uplinks.push((netns, interface));
            }
            Node::Host(_) => {}
        }
        Ok(())
    }

    fn shape(&mut self, netns: &str, interface: &str, shaper: &str) {
        line(
            &mut self.batch(netns).tc,
            format_args!("qdisc add dev {interface} root {shaper}"),
        );
    }

    fn add_tap(&mut self, netns: &str, tap: &str, variant: &Variant) {
        let ip = &mut self.batch(netns).ip;
        line(ip, format_args!("tuntap add dev {tap} mode tap"));
        line(ip, format_args!("link set {tap} mtu {}", variant.mtu_bytes));
    }

    fn bring_up(&mut self, netns: &str, interface: &str) {
        let ip = &mut self.batch(netns).ip;
        line(ip, format_args!("link set {interface} up"));
    }

    /// Ports learn nothing and flood nothing: all forwarding is in the static tables.
    fn enslave(&mut self, netns: &str, interface: &str, bridge: &str) {
        let ip = &mut self.batch(netns).ip;
        line(ip, format_args!("link set {interface} master {bridge} up"));
        line(
            ip,
            format_args!(
                "link set {interface} type bridge_slave learning off flood off mcast_flood off bcast_flood off"
            ),
        );
    }

    fn add_tenant(&mut self, variant: &Variant, names: &Names, id: usize) -> Result<()> {
        let tenant = &variant.tenants[id];
        let mtu = variant.mtu_bytes;
        let host = names.host(tenant.host);
        let vnic = names::vnic(id);
        let place = Vnic {
            tenant: id,
            netns: host.clone(),
            interface: vnic.clone(),
        };
        match tenant.kind {
            TenantKind::Guest => {
                self.guests.push(place.clone());
                match variant.lab.switch {
                    LabSwitch::Bridge => self.add_tap(&host, &vnic, variant),
                    LabSwitch::Ovs => {
                        self.add_tap(&host, &vnic, variant);
                        self.bring_up(&host, &vnic);
                        return Ok(());
                    }
                    // Its socket is the switch's.
                    LabSwitch::Sluicegate | LabSwitch::OvsDpdk => return Ok(()),
                }
            }
            TenantKind::Namespace => {
                let own = names.tenant(id);
                let mac = names::tenant_mac(id);
                line(
                    &mut self.links,
                    format_args!(
                        "link add {vnic} netns {host} mtu {mtu} type veth \
                         peer name {TENANT_INTERFACE} netns {own} mtu {mtu} address {mac}"
                    ),
                );
                self.add_namespace(own.clone(), Station::Host(tenant.host));
                let inside = tenant_commands(variant, id);
                self.batch(&own).ip.push_str(&inside);
                if let Some(link) = uplink(variant, tenant.host) {
                    let shaper = shaper(variant, link, TENANT_QUEUE_BYTES)?;
                    self.shape(&own, TENANT_INTERFACE, &shaper);
                }
            }
        }
        self.enslave(&host, &vnic, HOST_BRIDGE);
        self.vnics.push(place);
        Ok(())
    }

    fn add_forwarding(&mut self, variant: &Variant, names: &Names) -> Result<()> {
        for (node, table) in paths::forwarding(variant)? {
            if !has_bridge(variant, node) {
                continue;
            }
            let bridge = &mut self.batch(&namespace(names, node)).bridge;
            for (tenant, port) in table {
                let is_behind_uplink = variant.lab.switch == LabSwitch::Sluicegate
                    && node == Node::Host(variant.tenants[tenant].host);
                let port = match is_behind_uplink {
                    true => UPLINK_TAP.to_owned(),
                    false => port,
                };
                let mac = names::tenant_mac(tenant);
                line(
                    bridge,
                    format_args!("fdb replace {mac} dev {port} master static"),
                );
            }
        }
        Ok(())
    }
}

/// Whether a node has a bridge with frames to forward: beside `sluicegate switch` it has those of
/// its uplink.
fn has_bridge(variant: &Variant, node: Node) -> bool {
    match (node, variant.lab.switch) {
        (Node::Switch(_), _) | (_, LabSwitch::Bridge) => true,
        (Node::Host(host), LabSwitch::Sluicegate) => uplink(variant, host).is_some(),
        (Node::Host(_), LabSwitch::Ovs | LabSwitch::OvsDpdk) => false,
    }
}

fn namespace(names: &Names, node: Node) -> String {
    match node {
        Node::Host(id) => names.host(id),
        Node::Switch(_) => names.switches(),
    }
}

/// Address and permanent neighbours, so that no ARP or neighbour discovery ever runs.
pub fn tenant_commands(variant: &Variant, id: usize) -> String {
    let tenant = &variant.tenants[id];
    let mut ip = String::new();
    let nodad = match tenant.address {
        IpAddr::V4(_) => "",
        IpAddr::V6(_) => " nodad",
    };
    line(&mut ip, format_args!("link set lo up"));
    line(
        &mut ip,
        format_args!(
            "addr add {}/{} dev {TENANT_INTERFACE}{nodad}",
            tenant.address,
            variant.prefix_length()
        ),
    );
    line(&mut ip, format_args!("link set {TENANT_INTERFACE} up"));
    for (other, peer) in variant.tenants.iter().enumerate() {
        if other != id {
            let mac = names::tenant_mac(other);
            line(
                &mut ip,
                format_args!(
                    "neigh replace {} lladdr {mac} dev {TENANT_INTERFACE} nud permanent",
                    peer.address
                ),
            );
        }
    }
    ip
}

/// The link through which a host sends.
fn uplink(variant: &Variant, host: HostId) -> Option<&Link> {
    let ends_here = |link: &&Link| link.a == Node::Host(host) || link.b == Node::Host(host);
    variant.links.iter().find(ends_here)
}

/// One namespace tenant has the host to itself, so its own shaper is the uplink's.
fn alone(variant: &Variant, host: HostId) -> bool {
    let here = variant.tenants.iter().filter(|tenant| tenant.host == host);
    let kinds: Vec<TenantKind> = here.map(|tenant| tenant.kind).collect();
    matches!(kinds[..], [] | [TenantKind::Namespace])
}

/// A token bucket: the link's rate, a limit in bytes.
fn shaper(variant: &Variant, link: &Link, limit_bytes: u64) -> Result<String> {
    if link.rate_bps < 8000 {
        bail!(
            "variant {}, link {}: {} bit/s is below what a token bucket can do (8 kbit/s)",
            variant.name,
            link.name,
            link.rate_bps
        );
    }
    let frame = u64::from(variant.mtu_bytes + ETHERNET_HEADER_BYTES);
    let burst = (link.rate_bps / 8 * BURST_US / 1_000_000).max(2 * frame);
    let limit = limit_bytes.max(frame);
    Ok(format!(
        "tbf rate {}bit burst {burst}b limit {limit}b",
        link.rate_bps
    ))
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = text.write_fmt(arguments);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sluicegate_scenario::file;

    use super::*;

    fn variant(network: &str) -> Variant {
        let text = format!(
            "[network]\nrate = '100Mbit'\n{network}[traffic.bulk]\nkind = 'bulk'\npairs = 'stride:1'\n"
        );
        let parsed = file::parse(Path::new("t.toml"), &text, &file::Options::default());
        let mut experiment = parsed.unwrap_or_else(|problems| panic!("{problems}"));
        experiment.variants.remove(0)
    }

    fn layout(variant: &Variant) -> (Layout, Names) {
        let names = Names::new();
        (Layout::new(variant, &names).unwrap(), names)
    }

    #[test]
    fn every_switch_port_has_a_queue_and_no_host_port_has_one_beside_its_tenant() {
        let variant = variant("topology = 'dumbbell'\npairs = 2\nqueue = '64KB'\n");
        let (layout, names) = layout(&variant);
        // Four access links with one switch end each, a trunk with two.
        assert_eq!(layout.ports.len(), 6);
        let switches = &layout.inside[&names.switches()].tc;
        assert_eq!(switches.lines().count(), 6);
        assert!(
            switches.contains("rate 100000000bit") && switches.contains("limit 64000b"),
            "{switches}"
        );
        assert!(layout.uplinks.is_empty());
        assert!(layout.inside[&names.host(HostId(0))].tc.is_empty());
        assert!(
            layout.inside[&names.tenant(0)]
                .tc
                .contains("dev eth0 root tbf rate 100000000bit")
        );
    }

    #[test]
    fn a_shared_uplink_has_a_queue_of_its_own() {
        let variant = variant("topology = 'star'\nhosts = 2\ntenants_per_host = 2\n");
        let (layout, names) = layout(&variant);
        assert_eq!(layout.uplinks.len(), 2);
        assert_eq!(layout.inside[&names.host(HostId(1))].tc.lines().count(), 1);
    }

    #[test]
    fn frames_for_the_other_side_take_the_trunk() {
        let variant = variant("topology = 'dumbbell'\npairs = 2\n");
        let (layout, names) = layout(&variant);
        let trunk = |link: &&Link| matches!((link.a, link.b), (Node::Switch(_), Node::Switch(_)));
        let trunk = variant.links.iter().position(|link| trunk(&link)).unwrap();
        let fdb = &layout.inside[&names.switches()].bridge;
        for tenant in 0..variant.tenants.len() {
            let mac = names::tenant_mac(tenant);
            let entries = fdb.lines().filter(|line| line.contains(&mac));
            let over_trunk = entries.filter(|line| {
                let over = |port| line.contains(&format!("dev {} ", names::port(port)));
                PortId::both_of(trunk).into_iter().any(over)
            });
            // On one of the two switches; the other has the host's own link.
            assert_eq!(over_trunk.count(), 1, "{fdb}");
        }
    }

    #[test]
    fn behind_the_userspace_switch_a_host_has_a_tap_for_its_uplink_alone() {
        let mut variant = variant("topology = 'star'\nhosts = 2\ntenants_per_host = 2\n");
        for tenant in &mut variant.tenants {
            tenant.kind = TenantKind::Guest;
        }
        variant.lab.switch = LabSwitch::Sluicegate;
        let (layout, names) = layout(&variant);
        assert!(layout.vnics.is_empty());
        assert_eq!(layout.guests.len(), 4);
        let host = &layout.inside[&names.host(HostId(0))];
        assert_eq!(host.ip.matches("tuntap add").count(), 1);
        let own = names::tenant_mac(1);
        let fdb = &host.bridge;
        assert!(fdb.contains(&format!("{own} dev {UPLINK_TAP} ")), "{fdb}");
        let other = names::tenant_mac(2);
        assert!(
            !fdb.contains(&format!("{other} dev {UPLINK_TAP} ")),
            "{fdb}"
        );
    }

    #[test]
    fn open_vswitch_has_the_end_of_the_link_and_no_bridge_beside_it() {
        let mut variant = variant("topology = 'star'\nhosts = 2\ntenants_per_host = 2\n");
        for tenant in &mut variant.tenants {
            tenant.kind = TenantKind::Guest;
        }
        for (switch, taps) in [(LabSwitch::Ovs, 2), (LabSwitch::OvsDpdk, 0)] {
            variant.lab.switch = switch;
            let (layout, names) = layout(&variant);
            assert!(layout.vnics.is_empty());
            assert_eq!((layout.guests.len(), layout.uplinks.len()), (4, 2));
            let host = &layout.inside[&names.host(HostId(0))];
            assert_eq!(host.ip.matches("tuntap add").count(), taps);
            assert_eq!(
                (host.ip.matches("master").count(), host.bridge.as_str()),
                (0, "")
            );
            assert!(host.ip.contains("link set l0"), "{}", host.ip);
        }
    }

    #[test]
    fn tenants_know_their_neighbours_and_send_no_arp() {
        let variant = variant("topology = 'star'\nhosts = 3\nip = 6\n");
        let commands = tenant_commands(&variant, 1);
        assert_eq!(commands.matches("nud permanent").count(), 2);
        assert!(commands.contains("/64 dev eth0 nodad"), "{commands}");
    }

    #[test]
    fn a_host_without_a_path_is_named() {
        let mut variant = variant("topology = 'star'\nhosts = 3\n");
        variant.links.truncate(2);
        let error = Layout::new(&variant, &Names::new()).unwrap_err();
        let expected = "variant base: no path from host h1 to host h3: add a link";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn two_hosts_need_a_switch_between_them() {
        let mut variant = variant("topology = 'star'\nhosts = 2\n");
        variant.links[0].a = Node::Host(HostId(1));
        let error = Layout::new(&variant, &Names::new())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("h2") && error.contains("needs a switch"),
            "{error}"
        );
    }
}
