//! What a part has for others, and they for it.

use sluicegate_fabric::{
    Handle,
    contract::{Driver, Timer, Timers},
    graph::PortId,
};

use super::{Net, PacketFabric, aside_of};
use crate::mail::{Mail, Parcel};

impl<F: PacketFabric> Net<F> {
    /// The far end of the port is another part's.
    pub(super) fn export(&mut self, port: PortId, handle: Handle, arrival_ps: u64) {
        let packet = self.fabric.ports().pool[handle];
        let parcel = Parcel {
            port,
            arrival_ps,
            packet,
            aside: *aside_of(&self.asides, handle, &packet),
        };
        self.counts.exported += 1;
        let there = self.layout.part_beyond(port);
        if let Some(mail) = self.post.mail_to(there) {
            mail.parcels.push(parcel);
        }
    }

    /// What another part has for this one.
    pub fn import(&mut self, mail: &mut Mail) {
        for (end, letter) in mail.letters.drain(..) {
            self.sockets.letters.post(end, letter);
        }
        for (end, over_ps) in mail.over.drain(..) {
            self.peer_is_over(end, over_ps);
        }
        for parcel in mail.parcels.drain(..) {
            self.counts.imported += 1;
            let handle = self.keep(parcel.packet, &parcel.aside);
            let port = parcel.port;
            self.on_fabric(|fabric, timers, _| {
                let ports = fabric.ports_mut();
                if ports.deliver(port as usize, handle, parcel.arrival_ps) {
                    timers.set(Timer::Arrival, port, parcel.arrival_ps);
                }
            });
        }
    }

    /// When the next event is, here or at whoever gets the outgoing mail; `u64::MAX` = never.
    pub fn next_ps(&mut self) -> u64 {
        let here = self.clock.wheel.next_ps();
        here.unwrap_or(u64::MAX).min(self.post.next_ps())
    }
}
