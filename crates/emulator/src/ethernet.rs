//! What plain and converged Ethernet do differently under the control of a clock.

use sluicegate_fabric::{
    Converged, Fabric, Plain, PortConfig, Ports, SharedMemory,
    cee::{Cee, CeeConfig, OwnEffect, PRIORITIES},
    contract::{Driver, Lane},
    graph::{Node, PortId, PortMap, SwitchId},
    port::PS_PER_S,
};

use crate::{
    frame::Descriptor,
    network::{Network, Plan},
};

/// Bytes that wait in a host's adapter of plain Ethernet. What does not fit waits in the cable.
pub const ADAPTER_BYTES: u64 = 64 << 10;

/// Switches and adapters.
#[derive(Clone, Debug)]
pub enum Ethernet {
    /// Each port has one queue in order, and no port is ever paused.
    Plain(Queues),
    /// PFC, QCN, ETS.
    Converged(CeeConfig),
}

/// The queues of plain Ethernet's switches.
#[derive(Clone, Debug)]
pub struct Queues {
    /// Bytes that each port's queue may hold, by port; those of hosts have [`ADAPTER_BYTES`].
    pub limits_bytes: Vec<u64>,
    /// The memory that the ports of each switch share.
    pub shared: Option<SharedMemory>,
}

/// The counters of a port that only converged Ethernet has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Pauses: each priority that the far end has paused counts.
    pub pauses: u64,
    /// Time in which pauses stopped it.
    pub paused_ps: u64,
    /// Notifications that its congestion points have made.
    pub notifications: u64,
    /// The most bytes of one priority that the buffer at its far end has ever held.
    pub ingress_max_bytes: u64,
}

/// A fabric that carries frames of cables.
pub trait Emulated: Fabric<Frame = Descriptor> + Send {
    /// Carries out an effect that only this kind of fabric has.
    fn carry_out(network: &mut Network<Self>, effect: Self::Own);

    /// Whether a lane of an adapter has room for the longest frame.
    ///
    /// # Errors
    /// It has none, and when to look again; `None`: after an event.
    fn room(&mut self, lane: Lane, now_ps: u64) -> Result<(), Option<u64>>;

    /// The counters of a port that only converged Ethernet has.
    fn control(&self, _port: PortId, _now_ps: u64) -> Option<Control> {
        None
    }

    /// A host pauses these priorities of its link's port, and no others.
    fn pause(_network: &mut Network<Self>, _port: PortId, _priorities: u8) {}
}

/// A fabric of plain Ethernet.
pub(crate) fn plain(plan: &Plan, queues: &Queues) -> Plain<Descriptor> {
    let mut ports = Ports::default();
    let switches = SwitchId::first(plan.switches);
    let memories: Vec<_> = switches
        .filter_map(|_| queues.shared.map(|shape| ports.add_memory(shape)))
        .collect();
    for (spec, &limit_bytes) in plan.ports.iter().zip(&queues.limits_bytes) {
        let config = PortConfig {
            rate_bps: spec.rate_bps,
            delay_ps: spec.propagation_ps + spec.processing_ps,
            limit_bytes: match spec.near {
                Node::Host(_) => u64::MAX,
                Node::Switch(_) => limit_bytes,
            },
            aqm: spec.aqm,
            jitter_ps: 0,
            jitter_mean_ps: 0,
            burst_ps: 0,
            overhead_bytes: 0,
        };
        let seed = plan.seed ^ ports.len() as u64;
        let port = ports.add(config, seed);
        if let (Node::Switch(switch), Some(_)) = (spec.near, queues.shared) {
            ports.share(port, memories[switch.index()]);
        }
    }
    Plain::new(ports)
}

/// A fabric of converged Ethernet.
pub(crate) fn converged(plan: &Plan, config: CeeConfig) -> Converged<Descriptor> {
    let map = PortMap::new(plan.ports.len() / 2, plan.hosts);
    let mut ports = Ports::default();
    (0..plan.ports.len() + plan.hosts).for_each(|_| {
        ports.add(unused(), plan.seed);
    });
    let specs = plan.ports.clone();
    let cee = Cee::new(config, specs, plan.hosts, plan.switches, plan.seed);
    Converged::new(cee, ports, map).with_lanes(PRIORITIES as u8)
}

/// A port whose queue stays empty: the fabric asks for a port of each link and host.
fn unused() -> PortConfig {
    PortConfig {
        rate_bps: 1,
        delay_ps: 0,
        limit_bytes: 0,
        aqm: Default::default(),
        jitter_ps: 0,
        jitter_mean_ps: 0,
        burst_ps: 0,
        overhead_bytes: 0,
    }
}

impl Emulated for Plain<Descriptor> {
    fn carry_out(_network: &mut Network<Self>, effect: Self::Own) {
        match effect {}
    }

    /// A queue in order drains at its rate, so it is known when half of it has gone: the cable is
    /// looked at then, and not after each frame.
    fn room(&mut self, lane: Lane, now_ps: u64) -> Result<(), Option<u64>> {
        let backlog_bytes = self.backlog_bytes(lane.port, now_ps);
        if backlog_bytes < ADAPTER_BYTES {
            return Ok(());
        }
        let rate_bps = self.ports().rate_bps(lane.port).max(1);
        let half_ps = u128::from(4 * ADAPTER_BYTES) * u128::from(PS_PER_S) / u128::from(rate_bps);
        let half_ps = u64::try_from(half_ps).unwrap_or(u64::MAX);
        let free_ps = self.ports().free_ps(lane.port);
        Err(Some(free_ps.saturating_sub(half_ps).max(now_ps + 1)))
    }
}

impl Emulated for Converged<Descriptor> {
    fn carry_out(network: &mut Network<Self>, effect: OwnEffect) {
        match effect {
            OwnEffect::Notify(switch, notification) => network.notify(switch, notification),
            OwnEffect::Absorbed(_, frame) | OwnEffect::Forget(frame) => network.release(frame),
            // Nothing observes ports, and the network is one part.
            OwnEffect::PauseSent(..) | OwnEffect::Away(..) | OwnEffect::PauseAway(..) => {}
        }
    }

    fn room(&mut self, lane: Lane, now_ps: u64) -> Result<(), Option<u64>> {
        match self.has_room(lane, now_ps) {
            true => Ok(()),
            false => Err(self.room_ps(lane)),
        }
    }

    fn control(&self, port: PortId, now_ps: u64) -> Option<Control> {
        let stats = self.cee_stats(port)?;
        Some(Control {
            pauses: stats.pauses,
            paused_ps: self.paused_ps(port, now_ps),
            notifications: stats.notifications,
            ingress_max_bytes: stats.ingress_max_bytes,
        })
    }

    fn pause(network: &mut Network<Self>, port: PortId, priorities: u8) {
        network.on_fabric(|fabric, _, now_ps| fabric.pause_for_host(port, priorities, now_ps));
    }
}
