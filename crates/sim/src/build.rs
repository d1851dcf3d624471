//! From a variant to the machines and network of a run.

mod cee;
mod host_switch;

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use sluicegate_apps::App;
use sluicegate_core::{aqm::AqmParams, cc::Algorithm, number::narrow};
use sluicegate_fabric::{
    Graph, PortConfig, Ports,
    cee::CeeConfig,
    graph::{HostId, PortId},
    port::{PS_PER_NS, PS_PER_S},
    random::draw,
};
use sluicegate_scenario::{
    experiment::{
        EcnOffer, Enforcement, Link, Node, Profile, Sockets, TcpOptions, Tenant as Described,
        TenantKind, Variant,
    },
    workload::{
        self,
        plan::{Plan, Role},
    },
};
use sluicegate_tcp::{
    Config,
    config::{Buffer, Ecn, Recovery},
};
use sluicegate_vswitch::{Policy, Vnics, WhenFull, switch};

use crate::{
    actors::Actors,
    converged::Converged,
    engine::{Engine, Part},
    layout::{Layout, Partition, Tenant},
    net::{EndId, Host, Net, PacketFabric, Plain, Processes, interface_of},
    packet::{ETHERNET_BYTES, Packet},
};

/// Rate between tenants of one host: a memory copy, never the bottleneck.
const LOCAL_RATE_BPS: u64 = 100_000_000_000;

/// Queue of a host's adapter: Linux's `txqueuelen`.
const ADAPTER_LIMIT_PACKETS: u64 = 1000;

/// Queue of an adapter that small queues keep short: it never drops, as in the lab.
const KEPT_SHORT_LIMIT_BYTES: u64 = 1 << 30;

/// Down a stack: packets take a constant time, however many there are.
const STACK_RATE_BPS: u64 = 1_000_000_000_000_000;

/// Nothing is dropped between tenants of one host.
const LOCAL_LIMIT_BYTES: u64 = 1 << 40;

/// Largest receive buffer of a tenant, in bytes: `tcp_rmem` of the lab's kernel (Linux 6.18), and
/// of its guests (6.1). The window scale follows from it, 10 and 7, and with it how finely a window
/// can be told.
const RECEIVE_BUFFER_BYTES: u64 = 32 << 20;
const GUEST_RECEIVE_BUFFER_BYTES: u64 = 6 << 20;

/// A fabric that can be built for a variant.
pub trait FabricOf: PacketFabric {
    /// From idle ports of links and within hosts, those of `layout`, which has numbers for stacks
    /// as well. `seed` makes what is drawn by lot.
    ///
    /// # Errors
    /// A variant that this world cannot run.
    fn of(variant: &Variant, ports: Ports<Packet>, layout: &Layout, seed: u64) -> Result<Self>;

    /// The network as one of converged Ethernet, if it is one.
    fn converged(net: &mut Net<Self>) -> Option<&mut Net<Converged>>;
}

impl FabricOf for Plain {
    fn of(_variant: &Variant, ports: Ports<Packet>, _: &Layout, _seed: u64) -> Result<Self> {
        Ok(Self::new(ports))
    }

    fn converged(_net: &mut Net<Self>) -> Option<&mut Net<Converged>> {
        None
    }
}

/// Builds the network of a variant, in as many parts as `threads` allows.
///
/// # Errors
/// A variant that this world cannot run.
pub fn engine<F: FabricOf>(variant: &Variant, seed: u64, threads: usize) -> Result<Engine<App, F>> {
    let graph = variant.graph();
    let routes = variant.routes(&graph);
    let tenants = variant.tenants.iter();
    let tenants = tenants
        .map(|tenant| self::tenant(variant, tenant))
        .collect::<Result<_>>()?;
    let ip_bytes = if variant.ip_version == 4 { 20 } else { 40 };
    let (partition, lookahead_ps) = partition(variant, &graph, threads)?;
    let layout = Layout::new(&graph, routes, tenants, ip_bytes, partition);
    let layout = Arc::new(layout);
    let mut plans_by_part: Vec<Vec<_>> = vec![Vec::new(); layout.partition.parts()];
    for (tenant, mut plan) in (0..).zip(workload::plans(variant, seed)?) {
        spread(
            &mut plan,
            ps(variant.sim.start_spread) / PS_PER_NS,
            seed ^ u64::from(tenant),
        );
        let part = layout.part_of_host(variant.tenants[tenant as usize].host);
        plans_by_part[part].push((tenant, plan));
    }
    let part = |(part, plans)| {
        Ok(Part {
            net: net(variant, &graph, &layout, part, seed)?,
            actors: Actors::new(plans),
        })
    };
    let parts = plans_by_part.into_iter().enumerate().map(part);
    let parts = parts.collect::<Result<_>>()?;
    Ok(Engine::new(Arc::clone(&layout), parts, lookahead_ps))
}

/// Bulk flows connect up to so much later.
fn spread(plan: &mut Plan, most_ns: u64, mut seed: u64) {
    for role in &mut plan.roles {
        if let Role::Source { span, .. } | Role::PhasedSource { span, .. } = role {
            let part = u128::from(draw(&mut seed)) * u128::from(most_ns);
            span.begin_ns += (part >> 64) as u64;
        }
    }
}

/// Whether several parts can simulate a variant.
pub fn is_divisible(variant: &Variant) -> bool {
    variant.cee.is_none() || cee::is_divisible(variant) && !host_switch::pauses_links(variant)
}

/// Why a variant has one thread, for users who ask for more.
pub const INDIVISIBLE: &str = "one thread: ideal pauses and those of hosts with a lossless switch, failing links and defective adapters of \
    converged Ethernet act on their neighbours at once; pause = \"wire\" allows several";

/// The partition, and the shortest delay from one part to another. If nothing lies between two
/// parts, or a fabric cannot be divided, there is one.
fn partition(variant: &Variant, graph: &Graph, threads: usize) -> Result<(Partition, u64)> {
    if !is_divisible(variant) {
        return Ok((Partition::whole(), u64::MAX));
    }
    let partition = Partition::new(graph, threads);
    let mut shortest_ps = u64::MAX;
    for id in graph.ports() {
        let part = |node| partition.of(graph.node(node));
        if part(graph.near(id)) != part(graph.far(id)) {
            let delay_ps = match &variant.cee {
                None => port(variant, id)?.delay_ps,
                Some(config) => cee::lookahead_ps(variant, config, id)?,
            };
            shortest_ps = shortest_ps.min(delay_ps);
        }
    }
    Ok(match shortest_ps {
        0 => (Partition::whole(), u64::MAX),
        _ => (partition, shortest_ps),
    })
}

/// One part of it.
fn net<F: FabricOf>(
    variant: &Variant,
    graph: &Graph,
    layout: &Arc<Layout>,
    part: usize,
    seed: u64,
) -> Result<Net<F>> {
    let mut ports = links(variant, seed)?;
    let enforcement = variant.enforcement.as_ref();
    let policy = enforcement.map(|enforcement| Arc::new(*enforcement.policy.compile()));
    let mut machines = Vec::with_capacity(variant.hosts.len());
    for (id, host) in HostId::enumerate(&variant.hosts) {
        let adapter = graph
            .adapter(id)
            .with_context(|| format!("host {} has no link", host.name))?;
        let enforces = enforcement.is_some_and(|enforcement| enforcement.hosts.contains(&id));
        let vnics = enforcement
            .zip(policy.as_ref())
            .filter(|_| enforces)
            .map(|(enforcement, policy)| vnics(variant, id, enforcement, policy));
        let local_port = layout.ports.local(id);
        let switch = switch(variant, id);
        let machine = Host::new(id, [adapter, local_port], switch, vnics);
        let mut machine = host_switch::equip(variant, id, machine);
        if on_host(variant, id).any(|tenant| sockets(variant, tenant) == Sockets::SmallQueues) {
            machine.with_small_queues();
        }
        machines.push(machine);
        let added = ports.add(local(variant), seed ^ u64::from(local_port.0));
        debug_assert_eq!(added, local_port);
    }
    let fabric = F::of(variant, ports, layout, seed)?;
    let mut net = Net::part(Arc::clone(layout), part, fabric, machines, seed);
    for (id, tenant) in (0..).zip(&variant.tenants) {
        net.set_read_rate(id, tenant.read_rate_bps);
    }
    if !variant.sim.wake.is_empty() {
        let lateness = variant.sim.wake.iter().map(|late| ps(*late) / PS_PER_NS);
        let processes = Processes::new(lateness.collect(), seed);
        net.sockets.processes = Some(Box::new(processes));
    }
    Ok(net)
}

/// The vNIC stage of a host. An interface is called as the tenant behind it.
fn vnics(
    variant: &Variant,
    host: HostId,
    enforcement: &Enforcement,
    policy: &Policy,
) -> Vnics<EndId> {
    let mut vnics = Vnics::new(Arc::clone(policy));
    for (id, tenant) in (0..).zip(&variant.tenants) {
        if tenant.host == host {
            let scope = enforcement.policy.scope(policy, &tenant.name, &tenant.name);
            vnics.attach(interface_of(id), scope, 0);
        }
    }
    vnics
}

/// The ports of links.
fn links(variant: &Variant, seed: u64) -> Result<Ports<Packet>> {
    let mut ports = Ports::default();
    let shared = variant.shared_memory;
    let switches = variant.switches.iter();
    let memories: Vec<_> = switches
        .filter_map(|_| shared.map(|shape| ports.add_memory(shape)))
        .collect();
    for id in variant.ports() {
        let added = ports.add(port(variant, id)?, seed ^ u64::from(id.0));
        debug_assert_eq!(added, id);
        if let (Node::Switch(switch), Some(_)) = (variant.ends(id).0, shared) {
            ports.share(id, memories[switch.index()]);
        }
        let impairment = variant.links[id.link()].impairment;
        if !impairment.is_none() {
            ports.set_impairment(id, impairment);
        }
    }
    Ok(ports)
}

/// Bytes that a queue at this end of a link may hold; `None` = its host's sockets keep it short, or
/// it is an adapter that keeps whatever comes.
pub fn limit_bytes(variant: &Variant, link: &Link, from: Node) -> Option<u64> {
    if let Some(config) = &variant.cee {
        return cee::limit_bytes(variant, config, from);
    }
    let frame_bytes = variant.mtu_bytes + ETHERNET_BYTES;
    match from {
        Node::Switch(_) => {
            let shared = variant.shared_memory.map(|memory| memory.limit_bytes);
            Some(link.queue_bytes.min(shared.unwrap_or(u64::MAX)))
        }
        Node::Host(host) if is_kept_short(variant, host) => None,
        Node::Host(_) => Some(ADAPTER_LIMIT_PACKETS * u64::from(frame_bytes)),
    }
}

fn port(variant: &Variant, id: PortId) -> Result<PortConfig> {
    let link = &variant.links[id.link()];
    let (from, to) = variant.ends(id);
    let frame_bytes = variant.mtu_bytes + ETHERNET_BYTES;
    let sim = &variant.sim;
    // The delays of a host to send and to receive are part of the way: they are constant, so that
    // order stays.
    let mut delay = link.delay.unwrap_or(sim.link_delay);
    if matches!(from, Node::Host(_)) {
        delay += sim.transmit_delay;
    }
    if matches!(to, Node::Host(_)) {
        delay += sim.receive_delay;
    }
    let is_switch = matches!(from, Node::Switch(_));
    let aqm = variant.aqm(link, from).map_err(anyhow::Error::msg)?;
    Ok(PortConfig {
        rate_bps: link.rate_bps,
        delay_ps: ps(delay),
        limit_bytes: match from {
            Node::Switch(_) => link.queue_bytes,
            Node::Host(_) => limit_bytes(variant, link, from).unwrap_or(KEPT_SHORT_LIMIT_BYTES),
        },
        aqm,
        jitter_ps: if is_switch { 0 } else { ps(sim.jitter) },
        jitter_mean_ps: if is_switch { 0 } else { ps(sim.jitter_mean) },
        burst_ps: burst_ps(sim.burst, link.rate_bps, frame_bytes),
        overhead_bytes: 0,
    })
}

/// A token bucket that holds less than two frames hardly keeps its rate.
fn burst_ps(burst: Duration, rate_bps: u64, frame_bytes: u32) -> u64 {
    if burst.is_zero() {
        return 0;
    }
    let frame_ps = u64::from(8 * frame_bytes).saturating_mul(PS_PER_S) / rate_bps.max(1);
    ps(burst).max(2 * frame_ps)
}

fn ps(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos())
        .unwrap_or(u64::MAX)
        .saturating_mul(PS_PER_NS)
}

/// Between the tenants of one host.
fn local(variant: &Variant) -> PortConfig {
    PortConfig {
        rate_bps: LOCAL_RATE_BPS,
        delay_ps: ps(variant.sim.transmit_delay + variant.sim.receive_delay),
        limit_bytes: LOCAL_LIMIT_BYTES,
        aqm: AqmParams::default(),
        jitter_ps: ps(variant.sim.jitter),
        jitter_mean_ps: ps(variant.sim.jitter_mean),
        burst_ps: 0,
        overhead_bytes: 0,
    }
}

fn tenant(variant: &Variant, tenant: &Described) -> Result<Tenant> {
    Ok(Tenant {
        host: tenant.host,
        address: tenant.address,
        stack: Arc::new(stack(variant, tenant)?),
    })
}

/// From a host's sockets to its adapter of converged Ethernet, which keeps room for what is on the
/// way.
fn stack_port(variant: &Variant, config: &CeeConfig) -> PortConfig {
    PortConfig {
        delay_ps: ps(variant.sim.transmit_delay) + config.adapter_delay_ps,
        rate_bps: STACK_RATE_BPS,
        ..local(variant)
    }
}

/// A host's switch. FreeBSD's sockets wait for their host's adapter and take turns (the thesis,
/// section 2.5.3).
fn switch(variant: &Variant, host: HostId) -> switch::Config {
    if let Some(switch) = &variant.host_switch {
        return host_switch::config(switch);
    }
    if let Some(cee) = &variant.cee {
        // Adapters of converged Ethernet drop nothing: sockets wait, where there is something to
        // wait for.
        match variant.vnic_queue_bytes {
            Some(bytes) => return switch::Config::rings(bytes, WhenFull::HoldBack),
            None if cee.adapter_bytes != CeeConfig::UNLIMITED => return switch::Config::turns(),
            None => {}
        }
    }
    let turns = on_host(variant, host).any(|tenant| sockets(variant, tenant) == Sockets::Turns);
    match (variant.vnic_queue_bytes, turns) {
        (Some(bytes), true) => switch::Config::rings(bytes, WhenFull::HoldBack),
        (Some(bytes), false) => switch::Config::rings(bytes, WhenFull::Drop),
        (None, true) => switch::Config::turns(),
        (None, false) => switch::Config::straight(),
    }
}

fn on_host(variant: &Variant, host: HostId) -> impl Iterator<Item = &Described> {
    let tenants = variant.tenants.iter();
    tenants.filter(move |tenant| tenant.host == host)
}

/// The only tenant of a host has small queues.
fn is_kept_short(variant: &Variant, host: HostId) -> bool {
    let mut here = on_host(variant, host).map(|tenant| sockets(variant, tenant));
    here.next() == Some(Sockets::SmallQueues) && here.next().is_none()
}

/// As in the lab, unless the scenario says otherwise: a namespace feels its adapter, the virtual
/// NIC of a guest tells it nothing.
fn sockets(variant: &Variant, tenant: &Described) -> Sockets {
    let usual = match (tenant.tcp.profile, tenant.kind) {
        (Profile::Freebsd9, _) => return Sockets::Turns,
        (Profile::Linux, TenantKind::Namespace) => Sockets::SmallQueues,
        (Profile::Linux, TenantKind::Guest) => Sockets::Unlimited,
    };
    variant.sim.sockets.unwrap_or(usual)
}

/// The stack of its profile with what the scenario says of it.
fn stack(variant: &Variant, tenant: &Described) -> Result<Config> {
    let algorithm: Algorithm =
        (tenant.congestion_control.parse()).with_context(|| format!("tenant {}", tenant.name))?;
    let ip_bytes = if variant.ip_version == 4 { 20 } else { 40 };
    let mss = variant.mtu_bytes - ip_bytes - 20;
    let profile = match tenant.tcp.profile {
        Profile::Linux => Config::linux,
        Profile::Freebsd9 => Config::freebsd9,
    };
    let mut stack = profile(narrow::<u16>(mss)).with(algorithm);
    // The lab's tenants run with tcp_no_metrics_save; FreeBSD's hostcache is part of the thesis's
    // model (2.5.3).
    stack.cache = tenant.tcp.profile == Profile::Freebsd9;
    apply(&tenant.tcp, &mut stack);
    stack.ignore_window = tenant.ignore_window;
    match tenant.ecn {
        EcnOffer::None => (),
        EcnOffer::Classic => stack.ecn = Ecn::Offer,
        EcnOffer::Accurate => stack.ecn = Ecn::OfferAccurate,
    }
    stack.small_queues = sockets(variant, tenant) == Sockets::SmallQueues;
    let max_bytes = tenant.receive_buffer_bytes.unwrap_or(match tenant.kind {
        TenantKind::Namespace => RECEIVE_BUFFER_BYTES,
        TenantKind::Guest => GUEST_RECEIVE_BUFFER_BYTES,
    });
    stack.receive_buffer = Buffer {
        initial_bytes: max_bytes.min(stack.receive_buffer.initial_bytes),
        max_bytes,
    };
    // Rules of Linux.
    let late = !variant.sim.wake.is_empty() && tenant.tcp.profile == Profile::Linux;
    stack.delayed_ack.until_read = late;
    stack.super_packets = late;
    stack.hystart = late && algorithm == Algorithm::Cubic;
    // Applications of the lab write with TCP_NODELAY.
    stack.nagle = false;
    Ok(stack)
}

fn apply(options: &TcpOptions, stack: &mut Config) {
    if let Some(recovery) = options.recovery {
        stack.recovery = recovery;
        stack.sack = recovery != Recovery::NewReno;
    }
    stack.prr_safe = options.prr_safe.unwrap_or(stack.prr_safe);
    stack.cache = options.connection_cache.unwrap_or(stack.cache);
    stack.cache_window = options.connection_cache_window.unwrap_or_default();
    stack.pacing = options.pacing.unwrap_or(stack.pacing);
    stack.burst_segments = options.offload_segments.unwrap_or(stack.burst_segments);
    let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let rto = &mut stack.rto;
    rto.initial_ns = options.rto_initial.map_or(rto.initial_ns, ns);
    rto.slop_ns = options.rto_slop.map_or(rto.slop_ns, ns);
    if let Some(min_ns) = options.rto_min.map(ns) {
        rto.min_ns = min_ns;
        // Linux has it as the least variation as well.
        rto.variation_min_ns = rto.variation_min_ns.min(min_ns);
    }
    if let Some(timeout_ns) = options.delayed_ack.map(ns) {
        stack.delayed_ack.timeout_ns = timeout_ns;
        if timeout_ns == 0 {
            stack.delayed_ack.segments = 1;
        }
    }
}
