//! Requests of the machine to its owner.

use super::PauseFrame;
use crate::{
    contract::{Effect, Timer},
    graph::{HostId, PortId, SwitchId},
    pool::Handle,
};

/// Actions that only converged Ethernet requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnEffect {
    /// A switch has made a notification: choose its output port and forward it
    /// ([`Fabric::forward`](crate::contract::Fabric::forward)), as if it had come over the other
    /// direction of that port's link.
    Notify(SwitchId, Handle),
    /// The adapter at the far end of a port has taken a notification. The driver releases it.
    Absorbed(PortId, Handle),
    /// A watched port sends a pause frame, whose last bit leaves at this time.
    PauseSent(PortId, PauseFrame, u64),
    /// A port sends a frame to another part of the run, where it arrives at this time. The driver
    /// hands it over, and calls [`Converged::forget`](crate::Converged::forget).
    Away(PortId, Handle, u64),
    /// A frame that has left for another part is released.
    Forget(Handle),
    /// A pause frame takes effect at this time at a port that another part simulates
    /// ([`Converged::hear`](crate::Converged::hear)).
    PauseAway(PortId, PauseFrame, u64),
}

/// Actions that the owner has to take, in order: first `arrivals`, then `effects`.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// [`Timer::Arrival`], which most often is all. The first is taken first.
    pub arrivals: [Option<(PortId, u64)>; 2],
    /// The others, in order.
    pub effects: Vec<Effect<OwnEffect>>,
}

impl Requests {
    /// Nothing is asked for.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.arrivals == [None; 2] && self.effects.is_empty()
    }

    #[inline]
    pub(super) fn arrive(&mut self, port: PortId, arrival_ps: u64) {
        match &mut self.arrivals {
            // Arrivals are set before effects: one that follows an effect becomes an effect itself.
            [arrival @ None, _] | [_, arrival @ None] if self.effects.is_empty() => {
                *arrival = Some((port, arrival_ps));
            }
            _ => {
                let arrival = Effect::Timer(Timer::Arrival(port), arrival_ps);
                self.effects.push(arrival);
            }
        }
    }

    pub(super) fn transmit(&mut self, port: PortId, at_ps: u64) {
        self.effects
            .push(Effect::Timer(Timer::Transmit(port), at_ps));
    }

    pub(super) fn control(&mut self, port: PortId, at_ps: u64) {
        self.effects
            .push(Effect::Timer(Timer::Control(port), at_ps));
    }

    pub(super) fn sent(&mut self, port: PortId, handle: Handle, leaves_ps: u64) {
        self.effects.push(Effect::Sent(port, handle, leaves_ps));
    }

    pub(super) fn left(&mut self, host: HostId, sender: u32, handle: Handle) {
        self.effects.push(Effect::Left(host, sender, handle));
    }

    pub(super) fn lost(&mut self, host: HostId, sender: u32, handle: Handle) {
        self.effects.push(Effect::Lost(host, sender, handle));
    }

    pub(super) fn room(&mut self, host: HostId, priority: u8) {
        self.effects.push(Effect::Room(host, priority));
    }

    pub(crate) fn own(&mut self, effect: OwnEffect) {
        self.effects.push(Effect::Own(effect));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_arrivals_have_places_of_their_own_as_long_as_nothing_else_is_asked_for() {
        let mut requests = Requests::default();
        assert!(requests.is_empty());
        requests.arrive(PortId(1), 10);
        requests.arrive(PortId(2), 20);
        assert_eq!(
            requests.arrivals,
            [Some((PortId(1), 10)), Some((PortId(2), 20))]
        );
        requests.arrive(PortId(3), 30);
        assert_eq!(
            requests.effects,
            [Effect::Timer(Timer::Arrival(PortId(3)), 30)]
        );
        // Order is kept: what was asked for earlier is carried out earlier.
        requests.arrivals = [None; 2];
        requests.arrive(PortId(4), 40);
        assert_eq!(requests.arrivals, [None; 2]);
        assert_eq!(
            requests.effects.last(),
            Some(&Effect::Timer(Timer::Arrival(PortId(4)), 40))
        );
        assert!(!requests.is_empty());
    }
}
