//! Packets that cross from one part to another.

use sluicegate_fabric::{Handle, contract::Driver, graph::PortId};

use super::{Net, PacketFabric, cold_of};
use crate::{
    exports::{ExportedPacket, Exports},
    packet::Body,
};

impl<F: PacketFabric> Net<F> {
    /// Exports a packet to the part that has the far end of its port.
    pub(crate) fn export(&mut self, port: PortId, handle: Handle, arrival_ps: u64) {
        let packet = self.fabric.ports().pool[handle];
        let exported = ExportedPacket {
            port,
            arrival_ps,
            packet,
            cold: *cold_of(&self.cold_fields, handle, &packet),
            luggage: self.fabric.luggage(handle),
        };
        self.counts.exported += 1;
        let there = self.layout.part_beyond(port);
        if let Some(exports) = self.post.exports_to(there) {
            exports.packets.push(exported);
            // What this part keeps of it counts as backlog only: it is under way there.
            if let (Body::Datagram(_), Some(cold)) =
                (&packet.body, self.cold_fields.get_mut(handle as usize))
            {
                cold.ports = [0; 2];
            }
        }
    }

    /// Takes the packets, pauses, headers and ends of connections that another part has exported to
    /// this one.
    pub fn import(&mut self, exports: &mut Exports) {
        for (end, header) in exports.headers.drain(..) {
            self.sockets.message_headers.push(end, header);
        }
        for (to, header) in exports.datagram_headers.drain(..) {
            self.take_datagram_header(to, header);
        }
        for (end, over_ps) in exports.over.drain(..) {
            self.peer_is_over(end, over_ps);
        }
        for exported in exports.packets.drain(..) {
            self.counts.imported += 1;
            let handle = self.keep(exported.packet, &exported.cold);
            let (frame, at_ps) = ((handle, exported.luggage), exported.arrival_ps);
            self.on_fabric(|fabric, timers, _| {
                fabric.deliver(timers, exported.port, frame, at_ps);
            });
        }
        for (port, frame, at_ps) in exports.pauses.drain(..) {
            F::hear(self, port, frame, at_ps);
        }
    }

    /// The time of the next event in this part or of the packets that it exports; `u64::MAX` =
    /// never.
    pub fn next_ps(&mut self) -> u64 {
        let here = self.clock.wheel.next_ps();
        here.unwrap_or(u64::MAX).min(self.post.next_ps())
    }
}
