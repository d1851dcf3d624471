//! Prefetches of the memory that events are about to read.

use prefetch_index::prefetch_index;
use sluicegate_fabric::{
    Handle,
    graph::{Node, PortId},
};
use sluicegate_tcp::Endpoint;

use super::{EndId, KIND_BITS, Net, PORT, PacketFabric};
use crate::wheel::Source;

/// From so many ends on most of them are in no cache when they are needed: they have more than a
/// kilobyte each.
pub(super) const MANY_ENDS: usize = 1 << 14;

impl<F: PacketFabric> Net<F> {
    /// A packet has found its way through a switch, in a network of many ends. Prefetches the end
    /// that it goes to when it leaves for its host, a link's time before it arrives there; and what
    /// says where that end is, further away.
    #[inline]
    pub(super) fn fetch_receiver(&self, out: PortId, packet: Handle) {
        let to = self.fabric.ports().pool[packet].to;
        match self.layout.next_hops[out.index()] {
            Node::Switch(_) => prefetch_index(&self.sockets.ends, to as usize),
            Node::Host(_) => self.fetch_end(to),
        }
    }

    /// Prefetches an end that will soon be used, in a network of many.
    #[inline]
    pub(crate) fn fetch_end(&self, end: EndId) {
        if !self.has_many_ends {
            return;
        }
        self.sockets.message_headers.fetch(end);
        if let Some(end) = self.sockets.ends.get(end as usize) {
            // The second of its lines.
            prefetch_index(std::slice::from_ref(&end.key), 0);
            if let Some(tcp) = &end.tcp {
                tcp.fetch();
            }
        }
    }

    /// Prefetches the memory that the arrivals of the present slot will read. In a large network
    /// little of it is in the cache, and each event would wait for its own misses. Here the misses
    /// overlap. The prefetch has several steps, because each step reads the addresses for the next.
    #[inline(never)]
    pub(super) fn fetch(&mut self) {
        self.clock.wheel.seen();
        for port in self.present_ports() {
            self.fabric.fetch_port(port);
        }
        for port in self.present_ports() {
            self.fabric.fetch_first(port);
        }
        let mut outs = std::mem::take(&mut self.outs);
        outs.extend(
            self.present_ports()
                .filter_map(|port| self.fetch_beyond(port)),
        );
        for out in outs.drain(..) {
            self.fabric.fetch_queue(out);
        }
        self.outs = outs;
        self.read_receivers();
    }

    /// The ports at whose far ends packets arrive in the present slot.
    fn present_ports(&self) -> impl Iterator<Item = PortId> {
        let arrivals = |&source: &Source| source >> KIND_BITS == PORT;
        let present = self.clock.wheel.present().filter(arrivals);
        present.map(PortId)
    }

    /// The port by which the first packet under way on `port` leaves its next hop: the output port
    /// of a switch, or the adapter of the receiving host, for its answer.
    #[inline]
    fn fetch_beyond(&self, port: PortId) -> Option<PortId> {
        let packet = self.fabric.first(port)?;
        let out = match self.layout.next_hops[port.index()] {
            Node::Switch(switch) => self.peek(switch, packet)?,
            Node::Host(host) => {
                prefetch_index(&self.sockets.ends, packet.to as usize);
                self.hosts[host.index()].adapter
            }
        };
        self.fabric.fetch_port(out);
        Some(out)
    }

    /// Reads the stacks of receivers, whose ends have been prefetched, so that the misses on their
    /// cache lines overlap.
    fn read_receivers(&self) {
        let mut sum = 0;
        for port in self.present_ports() {
            let Some(packet) = self.fabric.first(port) else {
                continue;
            };
            let Node::Host(host) = self.layout.next_hops[port.index()] else {
                continue;
            };
            if let Some(end) = self.sockets.ends.get(packet.to as usize) {
                sum ^= end.tcp.as_deref().map_or(0, Endpoint::prefetch);
                sum ^= self.hosts[host.index()].prefetch(end.sides.1);
            }
        }
        std::hint::black_box(sum);
    }
}
