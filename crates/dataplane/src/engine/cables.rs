//! Ports of shared memory: a peer comes, goes, or breaks the rules.

use std::sync::Arc;

use super::{Engine, restore::RETURN_NS};
use crate::{count::Drop, port::Port, ring::Broken, shm::cable::Cable, vhost::Change};

impl Engine {
    /// A port's cable, if it is one.
    fn cable_mut(&mut self, number: u16) -> Option<&mut Cable> {
        match self.bay_mut(number).map(|bay| &mut bay.port) {
            Some(Port::Shm(cable)) => Some(cable),
            _ => None,
        }
    }

    /// Applies what the session of a port of shared memory says.
    ///
    /// # Errors
    /// The port was removed or is closed, or this is said of other ports only.
    pub(super) fn apply_to_cable(&mut self, number: u16, change: Change) -> Result<u16, String> {
        let now_ns = self.now_ns;
        let Some(bay) = self.bay_mut(number) else {
            return Err("the port was removed".to_owned());
        };
        match change {
            Change::Plug(plug) => {
                let Port::Shm(cable) = &mut bay.port else {
                    return Err("the port has no cable".to_owned());
                };
                if bay.ends {
                    return Err("the port is closed".to_owned());
                }
                let memory = Arc::clone(&plug.agreed().memory);
                cable.join(*plug, now_ns)?;
                // What waited is served with the next poll.
                (bay.closed, bay.awaited_ns) = (None, None);
                self.memories[usize::from(number)] = memory;
                self.stop_lanes(number);
            }
            Change::Gone(reason) => {
                if !bay.ends && reason.is_some() {
                    bay.closed = reason;
                }
                self.part(number);
                if let Some(bay) = self.bay_mut(number) {
                    bay.ends = false;
                }
            }
            _ => return Err("the port has no rings".to_owned()),
        }
        Ok(0)
    }

    /// Takes what the peer of a port has sent before it went, and counts what it has not read.
    /// Frames for it wait until it may be back.
    fn part(&mut self, number: u16) {
        // A peer that is there still could send for ever.
        let most = match self.cable_mut(number).and_then(|cable| cable.plug()) {
            Some(plug) => plug.agreed().layout.slots,
            None => return,
        };
        for _ in 0..most {
            if self.take_one(number, false) != Some(true) {
                break;
            }
        }
        self.detach(number);
        self.settle();
        self.unplug(number);
        self.await_peer(number);
    }

    /// The cable of a port has gone, its frames copied out.
    pub(super) fn unplug(&mut self, number: u16) {
        if let Some(Port::Xdp(xdp)) = self.bay_mut(number).map(|bay| &mut bay.port) {
            xdp.let_go();
        }
        let now_ns = self.now_ns;
        let Some(cable) = self.cable_mut(number) else {
            return;
        };
        let unread = cable.part(now_ns);
        self.stop_lanes(number);
        if let Some(bay) = self.bay_mut(number) {
            bay.counters.drop_many(Drop::Unread, unread);
        }
        self.memories[usize::from(number)] = Arc::default();
    }

    /// Frames for a peer that has gone wait for a while, unless it broke the rules.
    fn await_peer(&mut self, number: u16) {
        let until_ns = self.now_ns.saturating_add(RETURN_NS);
        if let Some(bay) = self.bay_mut(number).filter(|bay| !bay.ends) {
            bay.awaited_ns = Some(until_ns);
            self.block(number);
        }
    }

    /// A peer that did not come back is gone, and so is what waited for it.
    pub(super) fn give_up_peer(&mut self, number: u16) {
        if let Some(cable) = self.cable_mut(number) {
            cable.note(false);
        }
        if let Some(bay) = self.bay_mut(number) {
            bay.awaited_ns = None;
        }
        self.discard(number, Drop::NoReceiver);
    }

    /// A port's descriptor was readable.
    pub fn kicked(&mut self, number: u16, ring: usize) {
        let Some(bay) = self.bay_mut(number) else {
            return;
        };
        match &mut bay.port {
            Port::Vhost(device) => device.kicked(ring),
            Port::Shm(cable) => {
                let kicked = cable.plug_mut().map(|plug| plug.kicked());
                if let Some(Err(Broken(reason))) = kicked {
                    self.close(number, reason);
                }
            }
            Port::Xdp(xdp) => xdp.woken(ring),
            Port::Tap(_) | Port::Remote(_) => {}
        }
    }
}
