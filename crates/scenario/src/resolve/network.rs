//! `[network]`: topologies, links, marking, and which links the experiment is about.

use std::{collections::HashMap, time::Duration};

use sluicegate_config::{
    bound::{Bound, Bytes, Rate},
    table::{Item, Table, nearest},
};

use sluicegate_core::aqm::Aqm;
use sluicegate_fabric::{
    Graph, Impairment, Routes, Routing, SharedMemory,
    cee::CeeConfig,
    graph::{HostId, Node, PortId, SwitchId},
};

use super::{cee, delay, duration, graph, host_switch, routing, select};
use crate::{
    bounds::{self, HOSTS_MAX},
    experiment::{self, Host, ImpairmentChange, Link, Switch, TrafficKind, Variant},
    host_switch::HostSwitch,
};

/// A resolved `[network]`.
pub struct Network {
    pub hosts: Vec<Host>,
    pub switches: Vec<Switch>,
    /// See [`Variant::is_crossbar`].
    pub is_crossbar: bool,
    pub links: Vec<Link>,
    pub ip_version: u8,
    pub mtu_bytes: u32,
    pub tenants_per_host: usize,
    pub routing: Routing,
    /// See [`Variant::routings`].
    pub routings: Vec<(u8, Routing)>,
    pub reroute_delay: Option<Duration>,
    pub shared_memory: Option<SharedMemory>,
    pub cee: Option<CeeConfig>,
    pub vnic_queue_bytes: Option<u64>,
    pub host_switch: Option<HostSwitch>,
    /// Links named by `bottleneck`; `None` = those where traffic converges.
    bottleneck: Option<Vec<usize>>,
    /// The senders and receivers of traffic that names none.
    pub senders: &'static str,
    pub receivers: &'static str,
}

/// A frame that is overtaken is late by up to this much.
const REORDER_DELAY: Duration = Duration::from_micros(100);

#[derive(Clone, Copy, PartialEq)]
enum Topology {
    Star,
    Crossbar,
    Dumbbell,
    ParkingLot,
    FatTree,
    KAryNTree,
    Graph,
}

const TOPOLOGIES: [(&str, Topology); 7] = [
    ("star", Topology::Star),
    ("crossbar", Topology::Crossbar),
    ("dumbbell", Topology::Dumbbell),
    ("parking-lot", Topology::ParkingLot),
    ("fat-tree", Topology::FatTree),
    ("k-ary-n-tree", Topology::KAryNTree),
    ("graph", Topology::Graph),
];

/// Keys that belong to one topology.
const SHAPES: [(&str, Topology); 11] = [
    ("hosts", Topology::Star),
    ("pairs", Topology::Dumbbell),
    ("senders", Topology::ParkingLot),
    ("children", Topology::FatTree),
    ("parents", Topology::FatTree),
    ("external", Topology::FatTree),
    ("k", Topology::KAryNTree),
    ("n", Topology::KAryNTree),
    ("links", Topology::Graph),
    ("file", Topology::Graph),
    ("switches", Topology::Graph),
];

/// Keys that give a crossbar as many hosts as the tree has that they describe.
const CROSSBAR: [&str; 5] = ["hosts", "children", "parents", "k", "n"];

/// The properties of links unless they have their own.
pub struct LinkDefaults {
    /// How long the run takes.
    pub total: Duration,
    delay: Option<Duration>,
    impairment: Impairment,
    rate_bps: u64,
    access_rate_bps: u64,
    queue_bytes: u64,
    marking: Aqm,
}

/// Reads `[network]`; without one it is a dumbbell of two pairs.
pub fn read(root: &Table<'_>, total: Duration) -> Network {
    let mut network = Network {
        hosts: Vec::new(),
        switches: Vec::new(),
        is_crossbar: false,
        links: Vec::new(),
        ip_version: 4,
        mtu_bytes: 1500,
        tenants_per_host: 1,
        routing: Routing::default(),
        routings: Vec::new(),
        reroute_delay: None,
        shared_memory: None,
        cee: None,
        vnic_queue_bytes: None,
        host_switch: None,
        bottleneck: None,
        senders: "*",
        receivers: "*",
    };
    let Some(table) = root.table("network") else {
        let advice = "add one, for example `topology = \"dumbbell\"`";
        root.item()
            .complain("the table [network] is missing", advice);
        return network;
    };
    read_addresses(&table, &mut network);
    network.routing = routing::read(&table);
    network.reroute_delay = duration(&table, "reroute_delay");
    network.shared_memory = read_memory(&table);
    network.vnic_queue_bytes = read_size(&table, "vnic_queue");
    network.host_switch = host_switch::read(&table);
    network.routings = routing::read_of_priorities(&table);
    network.cee = cee::read(&table, (network.routing, &network.routings), total);
    routing::check(&table, network.routing, network.cee.as_ref());
    routing::check_of_priorities(&table, &network.routings, network.cee.as_ref());
    let defaults = read_defaults(&table, network.shared_memory, total);
    expand(&table, &mut network, &defaults);
    override_links(&table, &mut network, total);
    network.bottleneck = table.get("bottleneck").map(|item| {
        let names: Vec<_> = network.links.iter().map(|l| l.name.as_str()).collect();
        select(&item, &names, "link")
    });
    table.close();
    network
}

fn read_addresses(table: &Table<'_>, network: &mut Network) {
    let ip = table
        .get("ip")
        .and_then(|item| match item.within(&bounds::IP)? {
            4 => Some(4),
            6 => Some(6),
            _ => {
                item.complain("must be 4 or 6", "");
                None
            }
        });
    network.ip_version = ip.unwrap_or(4);
    let mtu = match network.ip_version {
        4 => bounds::MTU,
        _ => bounds::MTU_V6,
    };
    network.mtu_bytes = table.within("mtu", &mtu).unwrap_or(1500) as u32;
    let tenants = table.within("tenants_per_host", &bounds::TENANTS_PER_HOST);
    network.tenants_per_host = tenants.unwrap_or(1) as usize;
}

/// `shared_buffer` and `alpha`.
fn read_memory(table: &Table<'_>) -> Option<SharedMemory> {
    let alpha = table.within("alpha", &bounds::ALPHA);
    let Some(limit_bytes) = read_size(table, "shared_buffer") else {
        if table.get("shared_buffer").is_none() {
            table.refuse("alpha", "needs a `shared_buffer`");
        }
        return None;
    };
    Some(SharedMemory { limit_bytes, alpha })
}

fn read_defaults(table: &Table<'_>, memory: Option<SharedMemory>, total: Duration) -> LinkDefaults {
    let rate_bps = read_rate(table, "rate").unwrap_or(1_000_000_000);
    LinkDefaults {
        rate_bps,
        access_rate_bps: read_rate(table, "access_rate").unwrap_or(rate_bps),
        // Where memory is shared, that alone is the limit unless one is given.
        queue_bytes: read_size(table, "queue")
            .unwrap_or(memory.map_or(1_000_000, |memory| memory.limit_bytes)),
        total,
        delay: delay(table, "delay", total),
        impairment: read_change(table).of(&Impairment::default()),
        marking: table
            .get("marking")
            .and_then(|item| read_marking(&item))
            .unwrap_or(Aqm::None),
    }
}

/// A rate that a link, or an application, may have.
pub fn read_rate(table: &Table<'_>, key: &'static str) -> Option<u64> {
    let Rate(rate_bps) = table.within(key, &bounds::RATE)?;
    Some(rate_bps)
}

/// Bytes that something may hold.
pub fn read_size(table: &Table<'_>, key: &'static str) -> Option<u64> {
    let Bytes(bytes) = table.within(key, &bounds::SIZE)?;
    Some(bytes)
}

/// `bit_error_rate` and the like.
pub fn read_change(table: &Table<'_>) -> ImpairmentChange {
    let rate = |key| table.within(key, &bounds::PROBABILITY);
    let reorder_rate = rate("reorder_rate");
    let delay = duration(table, "reorder_delay");
    let delay = delay.or(reorder_rate.map(|_| REORDER_DELAY));
    let ps = |delay: Duration| u64::try_from(delay.as_nanos() * 1_000).unwrap_or(u64::MAX);
    ImpairmentChange {
        bit_error_rate: rate("bit_error_rate"),
        duplicate_rate: rate("duplicate_rate"),
        reorder_rate,
        reorder_delay_ps: delay.map(ps),
    }
}

fn read_marking(item: &Item<'_>) -> Option<Aqm> {
    let table = item.table()?;
    let kinds = [("none", 0), ("threshold", 1), ("red", 2)];
    let marking = match table.choice("kind", &kinds) {
        Some(1) => read_threshold(&table),
        Some(2) => Some(read_red(&table)),
        Some(_) => Some(Aqm::None),
        None => {
            if table.get("kind").is_none() {
                table.require("kind", "use one of none, threshold, red");
            }
            return None;
        }
    };
    table.close();
    marking
}

fn read_threshold(table: &Table<'_>) -> Option<Aqm> {
    let drop_not_ect = table.choice("not_ect", &[("drop", true), ("pass", false)]);
    let Some(k_bytes) = read_mark(table, "k") else {
        if table.get("k").is_none() {
            table.require("k", "give the threshold, for example k = \"30KB\"");
        }
        return None;
    };
    Some(Aqm::Threshold {
        k_bytes,
        drop_not_ect: drop_not_ect.unwrap_or(false),
    })
}

/// Defaults are those of the thesis (table 2.1).
fn read_red(table: &Table<'_>) -> Aqm {
    let min_bytes = read_mark(table, "min").unwrap_or(25_600);
    let max_bytes = read_mark(table, "max").unwrap_or(76_800);
    if min_bytes >= max_bytes {
        table.item().complain("`min` must lie below `max`", "");
    }
    Aqm::Red {
        min_bytes,
        max_bytes,
        p_max: table.within("p_max", &bounds::PROBABILITY).unwrap_or(0.02),
        weight: read_weight(table).unwrap_or(0.002),
        drop_above: (table.choice("above_max", &[("drop", true), ("mark", false)]))
            .unwrap_or(false),
        pass_not_ect: (table.choice("not_ect", &[("pass", true), ("drop", false)]))
            .unwrap_or(false),
    }
}

fn read_weight(table: &Table<'_>) -> Option<f64> {
    let item = table.get("weight")?;
    let weight = item.within(&bounds::WEIGHT)?;
    if weight == 0.0 {
        let advice = "use more than 0 and at most 1, for example 0.002";
        item.complain("with a weight of 0 the average never moves", advice);
        return None;
    }
    Some(weight)
}

/// A length of the queue at which something begins.
fn read_mark(table: &Table<'_>, key: &'static str) -> Option<u32> {
    let Bytes(bytes) = table.within(key, &bounds::MARK)?;
    u32::try_from(bytes).ok()
}

fn expand(table: &Table<'_>, network: &mut Network, defaults: &LinkDefaults) {
    let Some(topology) = table.choice("topology", &TOPOLOGIES) else {
        if table.get("topology").is_none() {
            let names = TOPOLOGIES.map(|(name, _)| name).join(", ");
            table.require("topology", &format!("use one of {names}"));
        }
        for (key, _) in SHAPES {
            table.get(key);
        }
        return;
    };
    // A wrong count leaves the network without nodes, of which nothing else is said.
    let count = |key, bound: &Bound<i64>, default: usize| match table.get(key) {
        Some(item) => item.within(bound).map(|count| count as usize),
        None => Some(default),
    };
    let mut builder = Builder { network, defaults };
    match topology {
        Topology::Star => {
            let hosts = count("hosts", &bounds::HOSTS, 2);
            hosts.into_iter().for_each(|hosts| builder.star(hosts));
        }
        Topology::Crossbar => builder.crossbar(table),
        Topology::Dumbbell => {
            let pairs = count("pairs", &bounds::PAIRS, 2);
            pairs.into_iter().for_each(|pairs| builder.dumbbell(pairs));
        }
        Topology::ParkingLot => {
            let senders = count("senders", &bounds::SENDERS, 4);
            senders
                .into_iter()
                .for_each(|senders| builder.parking_lot(senders));
        }
        Topology::FatTree => builder.fat_tree(table),
        Topology::KAryNTree => builder.k_ary_n_tree(table),
        Topology::Graph => graph::read(table, &mut builder),
    }
    let belongs = |(key, owner): &&(&'static str, Topology)| match topology {
        Topology::Crossbar => CROSSBAR.contains(key),
        _ => *owner == topology,
    };
    for (key, _) in SHAPES.iter().filter(|shape| !belongs(shape)) {
        table.refuse(key, "does not belong to this topology");
    }
    let hosts = network.hosts.len();
    if hosts > HOSTS_MAX as usize {
        let reason =
            format!("the network has {hosts} hosts, and there are addresses for {HOSTS_MAX}");
        let item = table
            .get("topology")
            .unwrap_or_else(|| table.item().clone());
        item.complain(reason, "use fewer hosts");
        network.forget_nodes();
    }
}

/// A list of counts, each up to [`HOSTS_MAX`], and where it stands; `None`: what is wrong has been
/// reported.
fn degrees<'t>(table: &Table<'t>, key: &'static str) -> Option<(Item<'t>, Vec<u32>)> {
    let advice = "give one count for each level, from the hosts up";
    let Some(item) = table.get(key) else {
        table.require(key, advice);
        return None;
    };
    let counts = item.list()?;
    if counts.is_empty() {
        item.complain("must not be empty", advice);
    }
    let count = |count: &Item<'_>| count.within(&bounds::DEGREE);
    let read: Vec<_> = counts.iter().map(count).collect();
    let read: Option<Vec<u32>> = (read.into_iter())
        .map(|count| count.map(|count| count as u32))
        .collect();
    Some((item, read.filter(|read| !read.is_empty())?))
}

/// Adds nodes and links to a network.
pub struct Builder<'a> {
    pub network: &'a mut Network,
    pub defaults: &'a LinkDefaults,
}

impl Builder<'_> {
    /// h1..hN around one switch.
    fn star(&mut self, hosts: usize) {
        let switch = self.switch("switch");
        for number in 1..=hosts {
            self.host(format!("h{number}"), switch);
        }
    }

    /// A star of as many hosts as a tree has whose keys are given: the ideal network that it is
    /// compared with. Without such keys `hosts` says how many.
    fn crossbar(&mut self, table: &Table<'_>) {
        let children = table
            .get("children")
            .and_then(|_| degrees(table, "children"));
        let (k, n) = (
            table.within("k", &bounds::DEGREE),
            table.within("n", &bounds::LEVELS),
        );
        table.get("parents");
        let hosts = table.within("hosts", &bounds::HOSTS.at_least(2));
        let given = [
            ("children", children.is_some()),
            ("k", k.is_some()),
            ("n", n.is_some()),
            ("hosts", hosts.is_some()),
        ];
        let product = |factors: &[u32]| {
            factors.iter().fold(1u64, |product, factor| {
                product.saturating_mul(u64::from(*factor))
            })
        };
        let count = match (children, k, n, hosts) {
            (Some((_, children)), None, None, None) => product(&children),
            (None, Some(k), Some(n), None) => product(&vec![k as u32; n as usize]),
            (None, None, None, Some(hosts)) => hosts as u64,
            // A wrong count has been reported.
            _ if given
                .iter()
                .any(|(key, is_read)| !is_read && table.get(key).is_some()) =>
            {
                return;
            }
            _ => {
                let advice = "give `hosts`, or the keys of one tree";
                return table
                    .item()
                    .complain("how many hosts does the crossbar have?", advice);
            }
        };
        if !(2..=u64::from(HOSTS_MAX)).contains(&count) {
            let reason = format!("{count} hosts; there may be 2 to {HOSTS_MAX}");
            return table.item().complain(reason, "choose other counts");
        }
        self.star(count as usize);
        self.network.is_crossbar = true;
    }

    /// s1..sN on the left, r1..rN on the right of one link.
    fn dumbbell(&mut self, pairs: usize) {
        let (left, right) = (self.switch("left"), self.switch("right"));
        self.link(Node::Switch(left), Node::Switch(right));
        for number in 1..=pairs {
            self.host(format!("s{number}"), left);
        }
        for number in 1..=pairs {
            self.host(format!("r{number}"), right);
        }
        (self.network.senders, self.network.receivers) = ("s*", "r*");
    }

    /// A chain of switches w1..wN with one sender at each, and the receiver r1 at the last.
    fn parking_lot(&mut self, senders: usize) {
        let switches: Vec<_> = (1..=senders)
            .map(|number| self.switch(&format!("w{number}")))
            .collect();
        for pair in switches.windows(2) {
            self.link(Node::Switch(pair[0]), Node::Switch(pair[1]));
        }
        for (number, switch) in (1..).zip(&switches) {
            self.host(format!("s{number}"), *switch);
        }
        self.host("r1".to_owned(), switches[senders - 1]);
        (self.network.senders, self.network.receivers) = ("s*", "r1");
    }

    fn fat_tree(&mut self, table: &Table<'_>) {
        let external = table.within("external", &bounds::DEGREE);
        let external = external.unwrap_or(0);
        let (children, parents) = (degrees(table, "children"), degrees(table, "parents"));
        let (Some((below, children)), Some((above, parents))) = (children, parents) else {
            return;
        };
        let advice = "for example children = [8, 8, 4] and parents = [1, 8, 8]";
        if children.len() != parents.len() {
            let reason = format!(
                "has {} levels, but `children` has {}",
                parents.len(),
                children.len()
            );
            return above.complain(reason, advice);
        }
        if parents[0] > 1 {
            let reason = "a host has one link, and so one parent";
            return above.complain(reason, format!("begin with 1, {advice}"));
        }
        self.xgft(&below, &children, &parents, "choose smaller counts");
        let tops = Graph::xgft_level(&children, &parents, children.len()) as usize;
        self.external(external as usize, tops);
    }

    /// x1..xN, one after the other at each of the topmost switches, which are the last.
    fn external(&mut self, hosts: usize, tops: usize) {
        let switches = self.network.switches.len();
        if hosts == 0 || tops == 0 || switches < tops {
            return;
        }
        for number in 0..hosts {
            let top = SwitchId::at(switches - tops + number % tops);
            self.host(format!("x{}", number + 1), top);
        }
        (self.network.senders, self.network.receivers) = ("h*", "h*");
    }

    /// The tree of Petrini and Vanneschi, 1997: XGFT(n; k, …, k; 1, k, …, k), k^n hosts.
    fn k_ary_n_tree(&mut self, table: &Table<'_>) {
        let degree = |key, bound: &Bound<i64>| {
            let number = table.within(key, bound);
            if number.is_none() && table.get(key).is_none() {
                table.require(key, "for example k = 4 and n = 3: 64 hosts");
            }
            number
        };
        if let (Some(k), Some(n)) = (degree("k", &bounds::DEGREE), degree("n", &bounds::LEVELS)) {
            let children = vec![k as u32; n as usize];
            let mut parents = children.clone();
            parents[0] = 1;
            self.xgft(table.item(), &children, &parents, "choose a smaller k or n");
        }
    }

    /// XGFT(h; children; parents): h1…hN, and switches eI, aI, cI… from the hosts up (edge,
    /// aggregation, core).
    fn xgft(&mut self, item: &Item<'_>, children: &[u32], parents: &[u32], advice: &str) {
        let graph = match Graph::xgft(children, parents) {
            Ok(graph) => graph,
            Err(problem) => {
                item.complain(problem, advice);
                return;
            }
        };
        if graph.hosts() > HOSTS_MAX {
            let reason = format!("{} hosts, above {HOSTS_MAX}", graph.hosts());
            return item.complain(reason, advice);
        }
        for number in 1..=graph.hosts() {
            self.lone_host(format!("h{number}"));
        }
        for level in 1..=children.len() {
            for number in 1..=Graph::xgft_level(children, parents, level) {
                let tier = ["e", "a", "c"]
                    .get(level - 1)
                    .map_or_else(|| format!("t{level}-"), |tier| (*tier).to_owned());
                self.switch(&format!("{tier}{number}"));
            }
        }
        for &(below, above) in graph.links() {
            self.link(graph.node(above), graph.node(below));
        }
    }

    /// Adds a switch.
    pub fn switch(&mut self, name: &str) -> SwitchId {
        let id = SwitchId::at(self.network.switches.len());
        let name = name.to_owned();
        self.network.switches.push(Switch { name });
        id
    }

    /// Adds a host without a link.
    pub fn lone_host(&mut self, name: String) -> HostId {
        let id = HostId::at(self.network.hosts.len());
        self.network.hosts.push(Host { name });
        id
    }

    fn host(&mut self, name: String, switch: SwitchId) {
        let host = self.lone_host(name);
        self.link(Node::Switch(switch), Node::Host(host));
    }

    /// Adds a link, a switch before a host, with what links have by default.
    pub fn link(&mut self, a: Node, b: Node) {
        let name = format!(
            "{}-{}",
            self.network.node_name(a),
            self.network.node_name(b)
        );
        let link = self.new_link(name, a, b);
        self.network.links.push(link);
    }

    /// A link with what links have by default.
    pub fn new_link(&self, name: String, a: Node, b: Node) -> Link {
        let access = matches!(b, Node::Host(_));
        let rate_bps = if access {
            self.defaults.access_rate_bps
        } else {
            self.defaults.rate_bps
        };
        Link {
            name,
            a,
            b,
            rate_bps,
            queue_bytes: self.defaults.queue_bytes,
            marking: self.defaults.marking,
            delay: self.defaults.delay,
            impairment: self.defaults.impairment,
            bottleneck: false,
        }
    }
}

impl Network {
    /// Leaves no node and no link: where some could not be read, nothing else is to be found wrong
    /// because they are missing.
    pub fn forget_nodes(&mut self) {
        self.hosts.clear();
        self.switches.clear();
        self.links.clear();
    }

    fn node_name(&self, node: Node) -> &str {
        experiment::node_name(&self.hosts, &self.switches, node)
    }
}

/// `[network.link.NAME]`: what one link has of its own.
fn override_links(table: &Table<'_>, network: &mut Network, total: Duration) {
    let Some(overrides) = table.table("link") else {
        return;
    };
    if network.links.is_empty() {
        // There is no topology, which has been reported.
        return;
    }
    let names = network.links.iter().zip(0..);
    let numbers: HashMap<String, usize> = names.map(|(link, at)| (link.name.clone(), at)).collect();
    for (name, item) in overrides.named() {
        let Some(at) = numbers.get(name).copied() else {
            let names: Vec<_> = network.links.iter().map(|l| l.name.as_str()).collect();
            let advice = format!(
                "links are named {}{}",
                super::abbreviated(&names),
                nearest(name, &names)
            );
            item.complain(format!("there is no link \"{name}\""), advice);
            continue;
        };
        let Some(own) = item.table() else {
            continue;
        };
        let converged = network.cee.is_some();
        read_link(&own, &mut network.links[at], total, converged);
        own.close();
    }
}

/// Reads the properties of a single link, in a network that may be converged Ethernet.
pub fn read_link(own: &Table<'_>, link: &mut Link, total: Duration, converged: bool) {
    if converged {
        cee::refuse_queue(own);
    }
    link.rate_bps = read_rate(own, "rate").unwrap_or(link.rate_bps);
    link.queue_bytes = read_size(own, "queue").unwrap_or(link.queue_bytes);
    let marking = own.get("marking").and_then(|item| read_marking(&item));
    link.marking = marking.unwrap_or(link.marking);
    link.delay = delay(own, "delay", total).or(link.delay);
    link.impairment = read_change(own).of(&link.impairment);
}

/// Marks the links that the experiment is about: those named, else those where traffic from
/// different links converges, else the slowest ones that traffic crosses.
pub fn mark_bottlenecks(variant: &mut Variant, network: &Network, graph: &Graph, routes: &Routes) {
    let chosen = match &network.bottleneck {
        Some(named) => named.clone(),
        None => converging(variant, graph, routes),
    };
    for id in chosen {
        variant.links[id].bottleneck = true;
    }
}

/// Only hops that every path of a pair takes count: which of several it is a hash may choose.
fn converging(variant: &Variant, graph: &Graph, routes: &Routes) -> Vec<usize> {
    let mut crossed = vec![Inputs::Unused; graph.ports().len()];
    // Probes watch queues; they do not make them.
    let loads = variant
        .traffic
        .iter()
        .filter(|t| !matches!(t.kind, TrafficKind::PingPong { .. }));
    let pairs = loads.flat_map(|load| load.pairs.iter().map(|pair| (load.priority, pair)));
    for (priority, (from, to)) in pairs {
        let (from, to) = (variant.tenants[*from].host, variant.tenants[*to].host);
        let mut before = None;
        for port in routes.of(priority).sole_hops(graph, from, to) {
            let inputs = &mut crossed[port.index()];
            *inputs = inputs.and(before);
            before = Some(port);
        }
    }
    // A link's queue is described in the direction a to b.
    let forward = || graph.ports().filter(|port| port.is_forward());
    let meets = forward().filter(|port| crossed[port.index()] == Inputs::Several);
    let meeting: Vec<usize> = meets.map(|port| port.link()).collect();
    if !meeting.is_empty() {
        return meeting;
    }
    let used = || forward().filter(|port| crossed[port.index()] != Inputs::Unused);
    let rate = |port: PortId| variant.links[port.link()].rate_bps;
    let slowest = used().map(rate).min();
    let slow = used().filter(|port| Some(rate(*port)) == slowest);
    slow.map(|port| port.link()).collect()
}

/// The ports by which traffic comes to one that it crosses.
#[derive(Clone, Copy, PartialEq)]
enum Inputs {
    Unused,
    None,
    One(PortId),
    Several,
}

impl Inputs {
    /// With traffic that comes by this port, or from its host.
    fn and(self, input: Option<PortId>) -> Self {
        match (self, input) {
            (Self::Several, _) => Self::Several,
            (Self::One(one), Some(other)) if one != other => Self::Several,
            (Self::One(_), _) => self,
            (_, Some(input)) => Self::One(input),
            (_, None) => Self::None,
        }
    }
}
