//! The parts that a simulated network of converged Ethernet has beside any other: notifications,
//! pause frames in captures, defective adapters, deadlocks.

use sluicegate_fabric::{
    Handle,
    cee::{CeeStats, Deadlock, OwnEffect, PauseFrame},
    contract::Driver,
    graph::{HostId, Node, PortId, SwitchId},
};

use crate::{
    capture, frame,
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
        }
    }
}

impl Net<Converged> {
    /// A switch sends a notification back to the source of the sampled packet.
    fn notify(&mut self, switch: SwitchId, notification: Handle) {
        let Some(out) = self.choose(switch, notification) else {
            unreachable!("where a packet came from there is a way back");
        };
        self.forward_on_fabric([out.opposite(), out], notification);
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

    /// A cycle of pauses that cannot end, if there is one.
    pub fn deadlock(&self) -> Option<Deadlock> {
        self.fabric.deadlock()
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
