//! How fast the simulator is: `make bench-sim`. One line per case, on one core; the unit is packet
//! transmissions on a link per second of wall time.
//!
//! - **incast**: 16 senders to 1 receiver through one switch, 10 Gb/s, 1 µs per link, 1500 B
//!   packets, 10 MB each, an ACK per packet, DCTCP, K = 65 packets, buffer 250 packets.
//!   It takes 20 ms, of which some are the process' first: **incast-long** has 200 MB each.
//! - **permutation**: XGFT(3; 8,8,4; 1,8,8), 256 servers, full bisection, a fixed permutation, 4 MB
//!   per flow, D-mod-k routing, DCTCP likewise.
//! - **permutation-2**: the same on two threads.
//! - **cee-permutation**: the same on converged Ethernet: eight priorities, each an eighth of the
//!   flows, pauses on the wire, congestion notification, a share for each of eight traffic classes.
//!   Beside the plain permutation, by turns of simulated time, and the ratio of what a hop takes;
//!   and the same where senders wait for their adapters, on both.
//! - **cee-permutation-2**: the former on two threads beside one, by turns of simulated time, and
//!   the ratio of what a hop takes.
//! - **commercial**: queries to the permutation's 256 servers over a hierarchy beside messages
//!   between them, FreeBSD 9's TCP, a connection for every message, eight priorities, on converged
//!   Ethernet likewise, 10 ms of them. Beside the plain permutation, by turns, and beside the same
//!   queries and messages on plain Ethernet.
//! - **routing**: each routing scheme beside D-mod-k, by turns, on a 4-ary 3-tree of plain and of
//!   converged Ethernet: datagrams, then DCTCP, from each of 64 servers to the one a quarter of the
//!   tree away, at 0.5 of 10 Gb/s and at 6. `routing-NAME`: one scheme.
//!   `hops,FABRIC,LOAD,MBPS,NAME`: one of its networks alone, an eighth of the time, for
//!   counters of instructions (`bench/sim/instructions.sh`).
//! - **program-256**: three programs of 256 ranks, each of 522 240 messages of 4 KB (1.04 million
//!   operations): all-to-all, all-reduce by a ring, halo exchange. Beside one message of as many
//!   bytes for each of its pairs, and one from each server, by turns; with making and checking, and
//!   without.
//! - **scale-N**: XGFT(3) of N servers like the permutation, 1 MB per flow: what a hop costs as
//!   networks grow.
//! - **permutation-8192**: XGFT(3; 32,16,16; 1,32,16), 8 MB per flow at 400 Gb/s; K, buffers and
//!   delays are those of the others. It takes minutes, and runs by its name only.
//!
//! `make bench-sim CASES='incast permutation'` runs some only.

#![allow(clippy::print_stdout)]

mod routing;

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};
use sluicegate_apps::{Actor, App, Io, SocketId};
use sluicegate_core::{
    aqm::{Aqm, AqmParams},
    cc::Algorithm,
};
use sluicegate_fabric::{
    Graph, PortConfig, Ports, Routes,
    cee::{Cee, CeeConfig, EtsClass, EtsConfig, Pause, PfcConfig, PortSpec, QcnConfig, QcnParams},
    graph::{HostId, Node, SwitchId},
};
use sluicegate_scenario::{
    file::{self, Options},
    workload::Plan,
};
use sluicegate_sim::{
    actors::Actors,
    build::{self, FabricOf},
    converged::Converged,
    engine::{Engine, Part},
    layout::{Layout, Partition, Tenant},
    net::{Host, Net, PacketFabric, Plain},
};
use sluicegate_tcp::Config;
use sluicegate_vswitch::switch;

const RATE_BPS: u64 = 10_000_000_000;
const LINK_DELAY_PS: u64 = 1_000_000;
const PACKET_BYTES: u32 = 1500;
const THRESHOLD_PACKETS: u32 = 65;
const BUFFER_PACKETS: u64 = 250;
const PORT: u16 = 5000;
/// A host has one flow of its own: large networks use ports several times.
const PORTS: usize = 50_000;

/// Longer than any case takes.
const END_PS: u64 = 1_000 * 1_000_000_000_000;

const CASES: [&str; 12] = [
    "incast",
    "incast-long",
    "permutation",
    "cee-permutation",
    "commercial",
    "permutation-2",
    "cee-permutation-2",
    "routing",
    "program-256",
    "scale-64",
    "scale-1024",
    "scale-4096",
];

/// Makes glibc ask for huge pages, as `sluicegate run` does for large networks.
const HUGE_PAGES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

/// Each case in a process of its own, so that its memory is its own.
fn main() -> Result<()> {
    let named: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    if let ([case], Ok(_)) = (named.as_slice(), std::env::var(HUGE_PAGES.0)) {
        return run(case);
    }
    let all = CASES.map(str::to_owned).to_vec();
    for case in if named.is_empty() { all } else { named } {
        let (variable, setting) = HUGE_PAGES;
        let mut command = Command::new(std::env::current_exe()?);
        let status = command.env(variable, setting).arg(&case).status()?;
        ensure!(status.success(), "{case}: {status}");
    }
    Ok(())
}

fn run(name: &str) -> Result<()> {
    match name {
        "routing" => return routing::compare(|_| true),
        "program-256" => return compare_programs(name),
        _ => {}
    }
    if let Some(scheme) = name.strip_prefix("routing-") {
        return routing::compare(|name| name == scheme);
    }
    if let Some(network) = name.strip_prefix("hops,") {
        return routing::alone(network);
    }
    let tree = |m: [u32; 3], w: [u32; 3]| Graph::xgft(&m, &w).map_err(anyhow::Error::msg);
    let (graph, bytes, threads) = match name {
        "incast" => (star(17), 10_000_000, 1),
        "incast-long" => (star(17), 200_000_000, 1),
        "permutation" | "cee-permutation" | "cee-permutation-2" => {
            (tree([8, 8, 4], [1, 8, 8])?, 4_000_000, 1)
        }
        // More than can be sent in the time of the other.
        "commercial" => (tree([8, 8, 4], [1, 8, 8])?, 40_000_000, 1),
        "permutation-2" => (tree([8, 8, 4], [1, 8, 8])?, 4_000_000, 2),
        "scale-64" => (tree([4, 4, 4], [1, 4, 4])?, 4_000_000, 1),
        "scale-1024" => (tree([16, 8, 8], [1, 16, 8])?, 1_000_000, 1),
        "scale-4096" => (tree([16, 16, 16], [1, 16, 16])?, 1_000_000, 1),
        "permutation-8192" => (tree([32, 16, 16], [1, 32, 16])?, 8_000_000, 1),
        "scale-100000" => (tree([50, 50, 40], [1, 50, 50])?, 50_000, 1),
        "scale-10648" => (tree([22, 22, 22], [1, 22, 22])?, 1_000_000, 1),
        other => bail!("no case {other}; there are {}", CASES.join(", ")),
    };
    let pairs: Vec<(u32, u32)> = match name {
        "incast" | "incast-long" => (1..17).map(|host| (host, 0)).collect(),
        _ => (0..graph.hosts())
            .zip(shuffled(graph.hosts()))
            .filter(|(from, to)| from != to)
            .collect(),
    };
    match name {
        "cee-permutation" => {
            compare(name, &graph, &pairs, bytes, false)?;
            let name = format!("{name}, senders wait");
            compare(&name, &graph, &pairs, bytes, true)
        }
        "cee-permutation-2" => compare_threads(name, &graph, &pairs, bytes),
        "commercial" => compare_commercial(name, &graph, &pairs, bytes),
        _ => measure(name, &graph, &pairs, bytes, threads),
    }
}

fn star(hosts: u32) -> Graph {
    let mut graph = Graph::new(hosts, 1);
    for host in HostId::first(hosts as usize) {
        graph.join(host, SwitchId(0));
    }
    graph
}

/// A fixed permutation: Fisher and Yates with a linear congruential generator (Knuth's MMIX).
fn shuffled(count: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    let mut state = 1u64;
    for last in (1..order.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, ((state >> 33) % (last as u64 + 1)) as usize);
    }
    order
}

/// The work of the flows, seen from all threads.
#[derive(Default)]
struct Done {
    flows: AtomicU64,
}

/// Sends so many bytes to one peer.
struct Source {
    peer: SocketAddr,
    left: u64,
}

impl Source {
    fn write<I: Io>(&mut self, io: &mut I, socket: SocketId) {
        self.left -= io.write(socket, self.left);
    }
}

/// Waits for so many bytes of one peer.
struct Sink {
    port: u16,
    left: u64,
    done: Arc<Done>,
}

/// An end of a flow.
enum Machine {
    Source(Source),
    Sink(Sink),
}

impl Actor for Machine {
    fn begin<I: Io>(&mut self, io: &mut I) {
        match self {
            Self::Source(source) => drop(io.connect(source.peer, 0)),
            Self::Sink(sink) => io.listen(sink.port, 0),
        }
    }

    fn connected<I: Io>(&mut self, io: &mut I, socket: SocketId, _: u64) {
        if let Self::Source(source) = self {
            source.write(io, socket);
        }
    }

    fn writable<I: Io>(&mut self, io: &mut I, socket: SocketId, _: u64) {
        if let Self::Source(source) = self {
            source.write(io, socket);
        }
    }

    fn readable<I: Io>(&mut self, io: &mut I, socket: SocketId, _: u64) {
        let Self::Sink(sink) = self else { return };
        sink.left -= io.read(socket, u64::MAX);
        if sink.left == 0 {
            sink.done.flows.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Nothing that these actors look at.
fn plan() -> Plan {
    Plan {
        tenant: String::new(),
        address: address(0).into(),
        prefix_length: 8,
        mtu_bytes: PACKET_BYTES,
        sysctls: Vec::new(),
        congestion_control: "dctcp".to_owned(),
        verify: false,
        datagram_buffer_bytes: None,
        measure_begin_ns: 0,
        measure_end_ns: u64::MAX,
        stop_ns: u64::MAX,
        series_interval_ns: 1,
        cwnd_interval_ns: 1,
        roles: Vec::new(),
        priorities: Vec::new(),
        routings: Vec::new(),
    }
}

fn address(host: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0001 + host)
}

/// DCTCP on Linux; frames of 1500 B, Ethernet header included; an ACK per packet.
fn stack() -> Config {
    let mut stack = Config::linux((PACKET_BYTES - 14 - 40) as u16).with(Algorithm::Dctcp);
    stack.delayed_ack.segments = 1;
    stack
}

fn ports(graph: &Graph, rate_bps: u64) -> Result<Ports<sluicegate_sim::packet::Packet>> {
    let switch = PortConfig {
        rate_bps,
        delay_ps: LINK_DELAY_PS,
        limit_bytes: BUFFER_PACKETS * u64::from(PACKET_BYTES),
        aqm: switch_aqm(rate_bps)?,
        jitter_ps: 0,
        jitter_mean_ps: 0,
        burst_ps: 0,
        overhead_bytes: 0,
    };
    let adapter = PortConfig {
        limit_bytes: 1 << 40,
        aqm: AqmParams::default(),
        ..switch
    };
    let mut ports = Ports::default();
    for port in graph.ports() {
        let config = match graph.node(graph.near(port)) {
            Node::Host(_) => adapter,
            Node::Switch(_) => switch,
        };
        ports.add(config, ports.len() as u64);
    }
    for _ in 0..graph.hosts() {
        ports.add(adapter, ports.len() as u64);
    }
    Ok(ports)
}

/// What networks of one graph differ in.
#[derive(Clone, Copy)]
struct Setup {
    /// Of every link, bit/s.
    rate_bps: u64,
    /// Senders wait for room in their adapters and take turns; else adapters are unlimited.
    waits: bool,
}

impl Setup {
    fn new(waits: bool) -> Self {
        Self {
            rate_bps: RATE_BPS,
            waits,
        }
    }
}

/// A fabric of the benchmark: [`cee`] or plain Ethernet.
trait Benched: PacketFabric {
    fn of(graph: &Graph, setup: Setup) -> Result<Self>;
}

impl Benched for Plain {
    fn of(graph: &Graph, setup: Setup) -> Result<Self> {
        Ok(Self::new(ports(graph, setup.rate_bps)?))
    }
}

fn layout(graph: &Graph, threads: usize) -> Layout {
    let stack = Arc::new(stack());
    let tenant = |host| Tenant {
        host: HostId(host),
        address: address(host).into(),
        stack: Arc::clone(&stack),
    };
    let tenants = (0..graph.hosts()).map(tenant).collect();
    let partition = Partition::new(graph, threads);
    Layout::new(graph, Routes::new(graph), tenants, 20, partition)
}

fn engine<F: Benched>(
    graph: &Graph,
    pairs: &[(u32, u32)],
    bytes: u64,
    threads: usize,
    done: &Arc<Done>,
    setup: Setup,
) -> Result<Engine<Machine, F>> {
    let layout = Arc::new(layout(graph, threads));
    let mut plans_by_part: Vec<Vec<(u32, u8, Machine)>> = Vec::new();
    plans_by_part.resize_with(layout.partition.parts(), Vec::new);
    for (index, &(from, to)) in pairs.iter().enumerate() {
        let port = PORT + (index % PORTS) as u16;
        let source = Source {
            peer: (address(to), port).into(),
            left: bytes,
        };
        let sink = Sink {
            port,
            left: bytes,
            done: Arc::clone(done),
        };
        let priority = (port % 8) as u8;
        let (sink, source) = (Machine::Sink(sink), Machine::Source(source));
        plans_by_part[layout.part_of_host(HostId(to))].push((to, priority, sink));
        plans_by_part[layout.part_of_host(HostId(from))].push((from, priority, source));
    }
    let machine = |host| {
        let adapter = graph.adapter(HostId(host)).expect("a link");
        let ports = [adapter, layout.ports.local(HostId(host))];
        let config = match setup.waits {
            true => switch::Config::turns(),
            false => switch::Config::straight(),
        };
        Host::new(HostId(host), ports, config, None)
    };
    let part = |(part, actors)| {
        let machines = (0..graph.hosts()).map(machine).collect();
        let fabric = F::of(graph, setup)?;
        Ok(Part {
            net: Net::part(Arc::clone(&layout), part, fabric, machines, 1),
            actors: Actors::of(&plan(), actors),
        })
    };
    let parts = plans_by_part.into_iter().enumerate().map(part);
    let parts = parts.collect::<Result<_>>()?;
    Ok(Engine::new(layout, parts, LINK_DELAY_PS))
}

/// Everything that converged Ethernet has. Where senders do not wait, its adapters take whatever
/// they are given, as those of plain Ethernet here do.
fn cee(waits: bool) -> CeeConfig {
    let class = |priority| EtsClass {
        priorities: 1u8 << priority,
        share: Some(if priority < 4 { 12 } else { 13 }),
    };
    CeeConfig {
        pfc: Some(PfcConfig {
            pause: Pause::Wire {
                response_ps: 600_000,
                headroom_bytes: None,
            },
            ..PfcConfig::default()
        }),
        qcn: Some(QcnConfig {
            priorities: 0xff,
            rate_limiters: true,
            params: QcnParams::thesis(66_000),
            notification_priority: 7,
        }),
        ets: EtsConfig {
            classes: (0..8).map(class).collect(),
        },
        adapter_bytes: match waits {
            true => CeeConfig::default().adapter_bytes,
            false => CeeConfig::UNLIMITED,
        },
        ..CeeConfig::default()
    }
}

impl Benched for Converged {
    fn of(graph: &Graph, setup: Setup) -> Result<Self> {
        let hosts = graph.hosts();
        let mut specs = Vec::new();
        for port in graph.ports() {
            specs.push(PortSpec {
                near: graph.node(graph.near(port)),
                far: graph.node(graph.far(port)),
                rate_bps: setup.rate_bps,
                propagation_ps: LINK_DELAY_PS - 500_000,
                processing_ps: 500_000,
                aqm: match graph.node(graph.near(port)) {
                    Node::Switch(_) => switch_aqm(setup.rate_bps)?,
                    Node::Host(_) => AqmParams::default(),
                },
                frame_bytes: PACKET_BYTES,
            });
        }
        let switches = graph.switches() as usize;
        let cee = Cee::new(cee(setup.waits), specs, hosts as usize, switches, 1);
        Ok(Self::new(cee, ports(graph, setup.rate_bps)?, graph.port_map()).with_lanes(8))
    }
}

/// K of a switch.
fn switch_aqm(rate_bps: u64) -> Result<AqmParams> {
    let aqm = Aqm::Threshold {
        k_bytes: THRESHOLD_PACKETS * PACKET_BYTES,
        drop_not_ect: false,
    };
    AqmParams::new(aqm, rate_bps, PACKET_BYTES).map_err(anyhow::Error::msg)
}

/// A network and how long it has taken so far.
struct Timed<A, F> {
    engine: Engine<A, F>,
    done: Arc<Done>,
    seconds: f64,
}

impl<F: Benched> Timed<Machine, F> {
    fn new(graph: &Graph, pairs: &[(u32, u32)], bytes: u64, waits: bool) -> Result<Self> {
        Self::on(1, graph, pairs, bytes, waits)
    }

    /// On so many threads.
    fn on(
        threads: usize,
        graph: &Graph,
        pairs: &[(u32, u32)],
        bytes: u64,
        waits: bool,
    ) -> Result<Self> {
        let done = Arc::new(Done::default());
        let engine = engine(graph, pairs, bytes, threads, &done, Setup::new(waits))?;
        Ok(Self::of(engine, done))
    }

    /// Whether so many flows are complete.
    fn is_done(&self, flows: u64) -> bool {
        self.done.flows.load(Ordering::Relaxed) == flows
    }
}

impl<A: Actor + Send, F: PacketFabric> Timed<A, F> {
    fn of(mut engine: Engine<A, F>, done: Arc<Done>) -> Self {
        engine.begin();
        Self {
            engine,
            done,
            seconds: 0.0,
        }
    }

    fn run_until(&mut self, until_ps: u64) -> Result<()> {
        let start = Instant::now();
        self.engine.run_until(until_ps, &mut |_, _| Ok(()))?;
        self.seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    fn ns_per_hop(&self) -> f64 {
        self.seconds * 1e9 / self.engine.hops() as f64
    }
}

/// Turns of simulated time by which networks are compared.
const TURN_PS: u64 = 50_000_000;

/// Converged Ethernet beside a plain network with the same flows and hosts.
fn compare(name: &str, graph: &Graph, pairs: &[(u32, u32)], bytes: u64, waits: bool) -> Result<()> {
    let mut plain = Timed::<_, Plain>::new(graph, pairs, bytes, waits)?;
    let mut converged = Timed::<_, Converged>::new(graph, pairs, bytes, waits)?;
    let all = pairs.len() as u64;
    for turn in 1.. {
        plain.run_until(turn * TURN_PS)?;
        converged.run_until(turn * TURN_PS)?;
        if plain.is_done(all) && converged.is_done(all) {
            break;
        }
        ensure!(turn * TURN_PS < END_PS, "{name}: flows do not end");
    }
    print_ratio(name, &plain, &converged)
}

/// Converged Ethernet on two threads beside one.
fn compare_threads(name: &str, graph: &Graph, pairs: &[(u32, u32)], bytes: u64) -> Result<()> {
    let mut one = Timed::<_, Converged>::on(1, graph, pairs, bytes, false)?;
    let mut two = Timed::<_, Converged>::on(2, graph, pairs, bytes, false)?;
    let all = pairs.len() as u64;
    for turn in 1.. {
        one.run_until(turn * TURN_PS)?;
        two.run_until(turn * TURN_PS)?;
        if one.is_done(all) && two.is_done(all) {
            break;
        }
        ensure!(turn * TURN_PS < END_PS, "{name}: flows do not end");
    }
    ensure!(
        one.engine.hops() == two.engine.hops(),
        "{name}: threads change the result"
    );
    println!(
        "{name}: {:.1} M packet-hops/s on two threads, {:.2} times one ({:.0} ns/hop)",
        1e3 / two.ns_per_hop(),
        one.ns_per_hop() / two.ns_per_hop(),
        one.ns_per_hop()
    );
    Ok(())
}

/// A datacenter's queries and what else its servers do: every priority has both.
fn commercial(is_converged: bool) -> String {
    let mut text = "warmup = '0s'\nduration = '1s'\n\
        [network]\ntopology = 'fat-tree'\nchildren = [8, 8, 4]\nparents = [1, 8, 8]\nexternal = 16\n\
        rate = '10Gbit'\ndelay = '100ns'\n\
        [sim]\ntransmit_delay = '9500ns'\nreceive_delay = '24us'\njitter = '1us'\n\
        [tenant.default]\nprofile = 'freebsd9'\n"
        .to_owned();
    if is_converged {
        text += &converged_network();
    }
    for priority in 0..8 {
        let aggregators = [2 * priority + 1, 2 * priority + 2];
        let senders = (1..=8).map(|host| format!("'h{}'", 32 * priority + 4 * host));
        let senders: Vec<String> = senders.collect();
        let class = match is_converged {
            true => format!("priority = {priority}\n"),
            false => String::new(),
        };
        text += &format!(
            "[traffic.query{priority}]\nkind = 'queries'\nfrom = ['x{}', 'x{}']\nto = 'h*'\nbytes = '20KB'\n\
             queries = 100000\narrivals = {{ kind = 'exponential', mean = '2ms' }}\n{class}\
             [traffic.messages{priority}]\nkind = 'trace'\nfrom = [{}]\nto = 'h*'\n\
             sizes = 'background-medium'\nload = '2Gbit'\n{class}",
            aggregators[0],
            aggregators[1],
            senders.join(", ")
        );
    }
    text
}

/// The network of [`cee`] where senders wait, in the scenario language.
fn converged_network() -> String {
    let classes = (0..8).map(|priority| {
        let share = if priority < 4 { 12 } else { 13 };
        format!("{{ priorities = {priority}, share = {share} }}")
    });
    let classes: Vec<String> = classes.collect();
    format!(
        "[network.cee]\npfc = {{ pause = 'wire', xoff = '95KB' }}\nqcn = {{ set_point = '66KB' }}\n\
         [network.cee.ets]\nclasses = [{}]\n",
        classes.join(", ")
    )
}

/// How much of it is simulated.
const COMMERCIAL_TURNS: u64 = 200;

/// Queries and messages on converged Ethernet beside a plain network with long flows, and one with
/// the same traffic.
fn compare_commercial(name: &str, graph: &Graph, pairs: &[(u32, u32)], bytes: u64) -> Result<()> {
    let mut converged = timed::<Converged>(&commercial(true))?;
    let mut same = timed::<Plain>(&commercial(false))?;
    let mut plain = Timed::<_, Plain>::new(graph, pairs, bytes, false)?;
    for turn in 1..=COMMERCIAL_TURNS {
        plain.run_until(turn * TURN_PS)?;
        same.run_until(turn * TURN_PS)?;
        converged.run_until(turn * TURN_PS)?;
    }
    ensure!(
        plain.done.flows.load(Ordering::Relaxed) == 0,
        "{name}: plain flows are over, and what they took is not that of long ones"
    );
    print_ratio(name, &plain, &converged)?;
    print_ratio(&format!("{name}, both with it"), &same, &converged)
}

/// The network of a scenario; reading it has taken no time.
fn timed<F: FabricOf>(text: &str) -> Result<Timed<App, F>> {
    let options = Options::default();
    let experiment = file::parse(Path::new("case.toml"), text, &options);
    let experiment = experiment.map_err(|problems| anyhow::anyhow!("{problems}"))?;
    let variant = experiment.variants.first().context("it has a variant")?;
    let engine = build::engine(variant, 1, 1)?;
    Ok(Timed::of(engine, Arc::new(Done::default())))
}

/// A program of [`compare_programs`]: 522 240 messages of 4 KB among 256 ranks.
struct Program {
    name: &'static str,
    messages: &'static str,
    /// The bytes of each pair as one message.
    of_pairs: &'static str,
}

/// In these each rank has 255, 1 and 6 partners.
const PROGRAMS: [Program; 3] = [
    Program {
        name: "all-to-all",
        messages: "collective = 'all-to-all'\nsize = '1024KB'\niterations = 8\n",
        of_pairs: "collective = 'all-to-all'\nsize = '8192KB'\neager = '8192KB'\n",
    },
    Program {
        name: "all-reduce",
        messages: "collective = 'all-reduce'\nsize = '1024KB'\niterations = 4\n",
        of_pairs: "collective = 'shift'\nsize = '8160KB'\neager = '8160KB'\n",
    },
    Program {
        name: "halo",
        messages: "collective = 'halo'\ngrid = [8, 8, 4]\nsize = '4KB'\niterations = 340\n",
        of_pairs: "collective = 'halo'\ngrid = [8, 8, 4]\nsize = '1360KB'\neager = '1360KB'\n",
    },
];

/// The bytes of each host as one message.
const OF_HOSTS: &str = "collective = 'shift'\ndistance = 85\nsize = '8160KB'\neager = '8160KB'\n";

fn program_scenario(work: &str) -> String {
    format!(
        "warmup = '0s'\nduration = '1s'\n[network]\ntopology = 'fat-tree'\n\
         children = [8, 8, 4]\nparents = [1, 8, 8]\nrate = '10Gbit'\ndelay = '1us'\n\
         marking = {{ kind = 'threshold', k = '97500B' }}\n\
         [tenant.default]\ncongestion_control = 'dctcp'\necn = true\n\
         [traffic.work]\nkind = 'program'\n{work}"
    )
}

/// How much of it is simulated: all of it, in turns of 500 us.
const PROGRAM_TURNS: u64 = 200;
const PROGRAM_TURN_PS: u64 = 10 * TURN_PS;

/// Time that this thread has had a CPU, in s: the two networks take turns on one thread, and others
/// on the machine may have it in between.
fn thread_s() -> Result<f64> {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").context("schedstat")?;
    let ns = stat.split_whitespace().next().context("schedstat")?;
    Ok(ns.parse::<u64>()? as f64 / 1e9)
}

/// What a network of [`compare_programs`] takes: to be made and checked, and to run.
struct Shares {
    network: Timed<App, Plain>,
    made_s: f64,
    ran_s: f64,
}

impl Shares {
    fn new(work: &str) -> Result<Self> {
        let begun_s = thread_s()?;
        let network = timed::<Plain>(&program_scenario(work))?;
        Ok(Self {
            network,
            made_s: thread_s()? - begun_s,
            ran_s: 0.0,
        })
    }

    fn run_until(&mut self, until_ps: u64) -> Result<()> {
        let begun_s = thread_s()?;
        self.network.run_until(until_ps)?;
        self.ran_s += thread_s()? - begun_s;
        Ok(())
    }

    /// M packet-hops/s.
    fn speed(&self, seconds: f64) -> f64 {
        self.network.engine.hops() as f64 / seconds / 1e6
    }
}

/// Programs of a million operations beside plain flows of their pairs and of their hosts, with
/// making and checking and without.
fn compare_programs(name: &str) -> Result<()> {
    for program in &PROGRAMS {
        compare_program(&format!("{name} {}", program.name), program)?;
    }
    Ok(())
}

fn compare_program(name: &str, program: &Program) -> Result<()> {
    let mut all = [program.messages, program.of_pairs, OF_HOSTS]
        .into_iter()
        .map(Shares::new)
        .collect::<Result<Vec<_>>>()?;
    for turn in 1..=PROGRAM_TURNS {
        for shares in &mut all {
            shares.run_until(turn * PROGRAM_TURN_PS)?;
        }
    }
    for shares in &all {
        shares.network.engine.account()?;
        let is_complete = shares.network.engine.is_complete();
        ensure!(is_complete, "{name}: operations have not ended");
    }
    let whole = |shares: &Shares| shares.speed(shares.made_s + shares.ran_s);
    let run = |shares: &Shares| shares.speed(shares.ran_s);
    let [program, of_pairs, of_hosts] = &all[..] else {
        unreachable!("three forms");
    };
    println!(
        "{name}: {:.1} M packet-hops/s, making and checking included ({:.2} s), {:.1} M without; \
         {} MB for all",
        whole(program),
        program.made_s,
        run(program),
        resident_mb()?,
    );
    for (shares, what) in [
        (of_pairs, "a flow for each pair"),
        (of_hosts, "a flow from each host"),
    ] {
        println!(
            "{name}: {:.2} of {what} with as many bytes ({:.1} M), {:.2} without ({:.1} M)",
            whole(program) / whole(shares),
            whole(shares),
            run(program) / run(shares),
            run(shares),
        );
    }
    let hops = |shares: &Shares| shares.network.engine.hops() as f64 / 1e6;
    println!(
        "{name}: {:.1}, {:.1} and {:.1} M hops",
        hops(program),
        hops(of_pairs),
        hops(of_hosts)
    );
    Ok(())
}

/// The cost of a hop of converged Ethernet beside a plain one.
fn print_ratio<A: Actor + Send, B: Actor + Send, F: PacketFabric, G: PacketFabric>(
    name: &str,
    plain: &Timed<A, F>,
    converged: &Timed<B, G>,
) -> Result<()> {
    converged.engine.account()?;
    println!(
        "{name}: {:.1} M packet-hops/s, {:.0} ns/hop, {:.2} of a plain hop ({:.0} ns), {} MB for both",
        1e3 / converged.ns_per_hop(),
        converged.ns_per_hop(),
        converged.ns_per_hop() / plain.ns_per_hop(),
        plain.ns_per_hop(),
        resident_mb()?
    );
    Ok(())
}

fn measure(
    name: &str,
    graph: &Graph,
    pairs: &[(u32, u32)],
    bytes: u64,
    threads: usize,
) -> Result<()> {
    let done = Arc::new(Done::default());
    let setup = Setup {
        rate_bps: match name {
            "permutation-8192" => 400_000_000_000,
            _ => RATE_BPS,
        },
        waits: false,
    };
    let mut engine = engine::<Plain>(graph, pairs, bytes, threads, &done, setup)?;
    let start = Instant::now();
    engine.begin();
    engine.run_until(END_PS, &mut |_, _| Ok(()))?;
    let seconds = start.elapsed().as_secs_f64();
    engine.account()?;
    let complete = done.flows.load(Ordering::Relaxed);
    ensure!(
        complete == pairs.len() as u64,
        "{name}: {complete} of {} flows are complete",
        pairs.len()
    );
    let hops = engine.hops() as f64;
    println!(
        "{name}: {:.1} M packet-hops/s, {:.0} ns/hop, {} MB, {seconds:.0} s",
        hops / seconds / 1e6,
        seconds * 1e9 / hops,
        resident_mb()?
    );
    Ok(())
}

/// Resident memory of this process in MB.
fn resident_mb() -> Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm").context("/proc/self/statm")?;
    let pages: u64 = statm
        .split_whitespace()
        .nth(1)
        .context("/proc/self/statm")?
        .parse()?;
    Ok(pages * 4096 / 1_000_000)
}
