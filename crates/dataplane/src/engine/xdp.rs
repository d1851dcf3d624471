//! Ports of AF_XDP: their memory, and interfaces that go.

use std::sync::Arc;

use super::Engine;
use crate::port::Port;

impl Engine {
    /// Frames of a port of AF_XDP are in the memory that it has from the beginning.
    pub(super) fn share_memory(&mut self, number: u16) {
        if let Some(Port::Xdp(xdp)) = self.bay_mut(number).map(|bay| &bay.port) {
            let memory = Arc::clone(xdp.memory());
            self.memories[usize::from(number)] = memory;
        }
    }

    /// Looks which interfaces are there. The port of one that has gone is closed.
    pub fn look_at_interfaces(&mut self) {
        for number in 0..self.bays.len() as u16 {
            let Some(bay) = self.bay_mut(number) else {
                continue;
            };
            let Port::Xdp(xdp) = &mut bay.port else {
                continue;
            };
            if !xdp.look() {
                let name = xdp.interface();
                let reason = format!(
                    "the interface {name} has gone; `sluicegate switch reload` once it is back"
                );
                self.close(number, &reason);
            }
        }
    }

    /// Ports whose interfaces have gone, and that are to be opened anew.
    pub fn lost(&self) -> Vec<String> {
        let lost = |port: &Port| matches!(port, Port::Xdp(xdp) if xdp.is_lost());
        let bays = self.bays().filter(|(_, bay)| lost(&bay.port));
        bays.map(|(_, bay)| bay.name.clone()).collect()
    }
}
