//! Prefetches of the memory that events are about to read.

use std::ops::Range;

use prefetch_index::prefetch_index;
use sluicegate_fabric::{
    Handle,
    graph::{HostId, Node, PortId},
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
        if self.clock.wheel.is_busy() {
            return; // too much happens until it arrives
        }
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

    /// Prefetches the memory that the next arrivals of the present slot will read. In a large
    /// network little of it is in the cache, and each event would wait for its own misses. Here the
    /// misses overlap. The prefetch has several steps, because each step reads the addresses for
    /// the next.
    #[inline(never)]
    pub(super) fn fetch(&mut self) {
        let places = self.clock.wheel.see();
        self.fetch_events(places);
    }

    /// The same for the events at these places of the present slot.
    pub(super) fn fetch_events(&mut self, places: Range<usize>) {
        let arrivals = |&source: &Source| source >> KIND_BITS == PORT;
        let sources = self.clock.wheel.present(places).filter(arrivals);
        let mut ports = std::mem::take(&mut self.ahead.ports);
        ports.extend(sources.map(PortId));
        for &port in &ports {
            self.fabric.fetch_port(port);
            prefetch_index(&self.layout.next_hops, port.index());
        }
        for &port in &ports {
            self.fabric.fetch_first(port);
        }
        let mut outs = std::mem::take(&mut self.ahead.outs);
        let mut ends = std::mem::take(&mut self.ahead.ends);
        for &port in &ports {
            let Some(packet) = self.fabric.first(port) else {
                continue;
            };
            match self.layout.next_hops[port.index()] {
                Node::Switch(switch) => outs.extend(self.peek(switch, packet)),
                Node::Host(host) => {
                    prefetch_index(&self.sockets.ends, packet.to as usize);
                    self.hosts[host.index()].fetch();
                    ends.push((packet.to, host));
                }
            }
        }
        // Receivers answer by their adapters.
        let adapter = |&(_, host): &(EndId, HostId)| self.hosts[host.index()].adapter;
        outs.extend(ends.iter().map(adapter));
        for &out in &outs {
            self.fabric.fetch_port(out);
        }
        for out in outs.drain(..) {
            self.fabric.fetch_queue(out);
        }
        for &(end, _) in &ends {
            self.fetch_end(end);
        }
        self.read_receivers(&ends);
        ports.clear();
        ends.clear();
        self.ahead = Ahead { ports, outs, ends };
    }

    /// Reads the stacks of receivers, whose ends have been prefetched, so that the misses on their
    /// cache lines overlap.
    fn read_receivers(&self, receivers: &[(EndId, HostId)]) {
        let mut sum = 0;
        for &(end, host) in receivers {
            if let Some(end) = self.sockets.ends.get(end as usize) {
                sum ^= end.tcp.as_deref().map_or(0, Endpoint::prefetch);
                sum ^= self.hosts[host.index()].prefetch(end.sides.1);
            }
        }
        std::hint::black_box(sum);
    }
}

/// Scratch memory of [`Net::fetch`].
#[derive(Default)]
pub(super) struct Ahead {
    /// Ports at whose far ends packets arrive.
    ports: Vec<PortId>,
    /// Ports by which they continue, or by which their receivers answer.
    outs: Vec<PortId>,
    /// Receivers.
    ends: Vec<(EndId, HostId)>,
}
