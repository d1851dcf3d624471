//! Reading ahead.

use sluicegate_fabric::graph::PortId;
use sluicegate_tcp::Endpoint;

use super::{KIND_BITS, Net, PORT, TRANSMIT};
use crate::layout::Far;

impl Net {
    /// Reads what the present events are about to need. In a large network little of it is in the cache: each
    /// would be waited for where it is handled; read here, the waits overlap.
    #[inline(never)]
    pub(super) fn touch(&mut self) {
        let mut sum = 0;
        for source in self.wheel.present() {
            let port = (source & ((1 << KIND_BITS) - 1)) as usize;
            let fabric = self.converged.as_ref().map(|converged| &converged.fabric);
            match (source >> KIND_BITS, fabric) {
                (PORT, _) => {}
                (TRANSMIT, Some(fabric)) => {
                    sum ^= fabric.touch_transmit(&self.ports.pool, port as PortId);
                    continue;
                }
                _ => continue,
            }
            let fabric = fabric.filter(|_| port < self.converged_ports as usize);
            let arrival = match fabric {
                Some(fabric) => fabric.touch_arrival(&self.ports.pool, port as PortId),
                None => (self.ports.touch_arrival(port)).map(|(packet, next)| (packet, next, 0)),
            };
            let Some((packet, following, priority)) = arrival else {
                continue;
            };
            let (host, path) = (usize::from(packet.host), packet.path);
            let out = match self.layout.far[port] {
                Far::Switch(switch) => self.layout.routes.next(switch as usize, host, path),
                Far::Adapter => None,
                Far::Host(host) => {
                    let machine = &self.hosts[usize::from(host)];
                    if let Some(end) = self.ends.get(packet.to as usize) {
                        sum ^= end.tcp.as_deref().map_or(0, Endpoint::touch);
                        sum ^= machine.touch(end.sides.1);
                    }
                    Some(machine.adapter)
                }
            };
            let touch = |out: PortId| match fabric {
                Some(fabric) => fabric.touch_forward(&self.ports.pool, out, priority),
                None => self.ports.touch_offer(out as usize),
            };
            sum ^= following ^ out.map_or(0, touch);
        }
        std::hint::black_box(sum);
    }
}
