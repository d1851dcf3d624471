//! The parts that a simulated network of converged Ethernet has beside any other: notifications,
//! pause frames in captures, defective adapters, deadlocks.

use std::sync::Arc;

use sluicegate_fabric::{
    Fabric, Handle, Routes,
    cee::{CeeStats, Deadlock, OwnEffect, PauseFrame, Wait},
    contract::Driver,
    graph::{HostId, Node, PortId, SwitchId},
};

use sluicegate_apps::App;

use crate::{
    build::FabricOf,
    capture,
    engine::Engine,
    frame,
    net::{Net, PacketFabric},
    packet::Packet,
};

/// Converged Ethernet.
pub type Converged = sluicegate_fabric::Converged<Packet>;

impl PacketFabric for Converged {
    fn carry_out(net: &mut Net<Self>, effect: OwnEffect) {
        match effect {
            OwnEffect::Notify(switch, notification) => net.notify(switch, notification),
            OwnEffect::Absorbed(port, notification) => {
                net.show(port, capture::Side::Arrived, notification);
                net.fabric.pool_mut().release(notification);
            }
            OwnEffect::PauseSent(port, frame, leaves_ps) => net.show_pause(port, frame, leaves_ps),
            OwnEffect::Away(port, packet, arrival_ps) => {
                net.export(port, packet, arrival_ps);
                net.on_fabric(|fabric, _, _| fabric.forget(packet));
            }
            OwnEffect::Forget(packet) => net.fabric.pool_mut().release(packet),
            OwnEffect::PauseAway(port, frame, at_ps) => net.export_pause(port, frame, at_ps),
        }
    }

    fn hear(net: &mut Net<Self>, port: PortId, frame: PauseFrame, at_ps: u64) {
        net.on_fabric(|fabric, _, _| fabric.hear(port, frame, at_ps));
    }

    fn pause_link(net: &mut Net<Self>, host: HostId, priorities: u8) {
        let port = net.hosts[host.index()].adapter.opposite();
        net.on_fabric(|fabric, _, now_ps| fabric.pause_for_host(port, priorities, now_ps));
    }

    fn reroute(net: &mut Net<Self>, routes: &Arc<Routes>) {
        net.on_fabric(|fabric, _, _| fabric.reroute(routes));
    }
}

/// A cycle of pauses that cannot end, if there is one. A part knows what waits in its buffers, and
/// since when its ports are paused.
pub fn deadlock<F: FabricOf>(engine: &mut Engine<App, F>) -> Option<Deadlock> {
    let nets = engine.nets().filter_map(F::converged);
    let mut waits: Vec<Wait> = nets.flat_map(|net| net.fabric.waits()).collect();
    waits.sort_by_key(|wait| (wait.stuck.port, wait.stuck.priority));
    for Wait { stuck, .. } in &mut waits {
        let net = F::converged(engine.net_of_port(stuck.port))?;
        stuck.since_ps = (net.fabric).paused_since_ps(stuck.port, stuck.priority.into());
    }
    let net = engine.nets().find_map(F::converged)?;
    net.fabric.deadlock_among(waits)
}

impl Net<Converged> {
    /// A switch sends a notification back to the source of the sampled packet.
    fn notify(&mut self, switch: SwitchId, notification: Handle) {
        let packet = &self.fabric.ports().pool[notification];
        let made_at = packet.notification().filter(|_| self.snoops);
        let made_at = made_at.map(|notification| notification.port);
        let snooped = made_at.and_then(|port| self.snoop(port, switch, notification));
        let Some(out) = snooped.or_else(|| self.choose(switch, notification)) else {
            unreachable!("where a packet came from there is a way back");
        };
        self.forward_on_fabric([out.opposite(), out], notification);
    }

    /// Exports a pause frame to the part that has the near end of the port that it pauses.
    fn export_pause(&mut self, port: PortId, frame: PauseFrame, at_ps: u64) {
        let there = self.layout.part_of_port(port);
        if let Some(exports) = self.post.exports_to(there) {
            exports.pauses.push((port, frame, at_ps));
        }
    }

    /// Shows a pause frame to captures at this port.
    #[cold]
    fn show_pause(&mut self, port: PortId, frame: PauseFrame, leaves_ps: u64) {
        let (Some(capture), Some(spec)) = (&mut self.observers.capture, self.fabric.spec(port))
        else {
            return;
        };
        let source = match spec.near {
            Node::Host(host) => frame::mac(host),
            Node::Switch(_) => frame::port_mac(port),
        };
        let arrives_ps = leaves_ps + spec.propagation_ps + spec.processing_ps;
        for (side, at_ps) in [
            (capture::Side::Sent, leaves_ps),
            (capture::Side::Arrived, arrives_ps),
        ] {
            let seen = capture::Seen {
                port,
                side,
                now_ps: self.clock.now_ps,
                at_ps,
                priority: None,
            };
            capture.pfc(seen, source, frame.quanta());
        }
    }

    /// The counters of a port of a link.
    pub fn cee_stats(&self, port: PortId) -> Option<CeeStats> {
        self.fabric.cee_stats(port)
    }

    /// The total time in ps for which pauses have stopped a port so far.
    pub fn paused_ps(&self, port: PortId) -> u64 {
        self.fabric.paused_ps(port, self.clock.now_ps)
    }

    /// The adapter of a host begins to pause its link although it has room, or stops doing so.
    pub fn storm(&mut self, host: HostId, storms: bool) {
        let port = self.hosts[host.index()].adapter.opposite();
        let priorities = if storms { u8::MAX } else { 0 };
        self.on_fabric(|fabric, _, now_ps| fabric.storm(port, priorities, now_ps));
    }

    /// The adapter of a host begins to ignore pauses and notifications, or obeys them again.
    pub fn babble(&mut self, host: HostId, babbles: bool) {
        self.on_fabric(|fabric, _, now_ps| fabric.set_babbling(host, babbles, now_ps));
    }
}
