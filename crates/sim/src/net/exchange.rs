//! Packets that cross from one part to another.

use sluicegate_fabric::{Handle, graph::PortId};

use super::{Net, PORT, aside_of, source};
use crate::exports::{ExportedPacket, Exports};

impl Net {
    /// The far end of the port is another part's.
    pub(super) fn export(&mut self, port: PortId, handle: Handle, arrival_ps: u64) {
        let packet = self.ports.pool[handle];
        let exported = ExportedPacket {
            port,
            arrival_ps,
            packet,
            aside: *aside_of(&self.asides, handle, &packet),
        };
        self.exported += 1;
        let there = self.layout.part_beyond(port);
        self.outgoing[there].packets.push(exported);
    }

    /// Takes what another part has exported to this one.
    pub fn import(&mut self, exports: &mut Exports) {
        for (end, header) in exports.headers.drain(..) {
            self.message_headers.push(end, header);
        }
        for (end, over_ps) in exports.over.drain(..) {
            self.peer_is_over(end, over_ps);
        }
        for exported in exports.packets.drain(..) {
            self.imported += 1;
            let handle = self.keep(exported.packet, &exported.aside);
            let port = exported.port;
            if self
                .ports
                .deliver(port as usize, handle, exported.arrival_ps)
            {
                self.wheel.push(exported.arrival_ps, source(PORT, port));
            }
        }
    }

    /// When the next event is, here or of the outgoing packets; `u64::MAX` = never.
    pub fn next_ps(&mut self) -> u64 {
        let packets = self.outgoing.iter().flat_map(|exports| &exports.packets);
        let away = packets.map(|exported| exported.arrival_ps).min();
        let here = self.wheel.next_ps();
        here.unwrap_or(u64::MAX).min(away.unwrap_or(u64::MAX))
    }
}
