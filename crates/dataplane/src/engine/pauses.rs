//! Flow control by priority: what the peer of a port has paused, and what this switch pauses.

use super::Engine;
use crate::{
    capture::Seen,
    count::Drop,
    frame::FrameId,
    memory::Memory,
    offload::Work,
    port::{Outgoing, Port},
    ring::Broken,
    shm::{cable::Plug, pfc::FlowControl},
};

/// A priority that is stopped for so long is told of, ns.
const LONG_NS: u64 = 1_000_000_000;

impl Engine {
    /// The time for what happens between two polls, ns.
    pub fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Whether the time is to be looked at before each poll.
    pub fn measures(&self) -> bool {
        self.govern.is_some() || self.has_flow
    }

    /// When there is something to do without a wake-up, ns.
    pub fn next_ns(&self) -> Option<u64> {
        let flows = self.bays().filter_map(|(_, bay)| bay.port.flow());
        flows.filter_map(FlowControl::next_ns).min()
    }

    /// Priorities of a port that are stopped, bit p.
    #[inline]
    pub(super) fn stopped(&self, number: u16) -> u8 {
        let bay = self.bays.get(usize::from(number)).and_then(Option::as_ref);
        let flow = bay.and_then(|bay| bay.port.flow());
        flow.map_or(0, FlowControl::stopped)
    }

    fn flow_mut(&mut self, number: u16) -> Option<(Option<&mut Plug>, &mut FlowControl)> {
        match &mut self.bay_mut(number)?.port {
            Port::Shm(cable) => cable.flow_mut(),
            Port::Vhost(_) | Port::Tap(_) | Port::Xdp(_) | Port::Remote(_) => None,
        }
    }

    /// A frame of MAC control: for the port by which it came, and for no other.
    #[cold]
    pub(super) fn take_control(&mut self, number: u16, id: FrameId) {
        let now_ns = self.now_ns;
        let mut start = [0; 64];
        let from = self.frames.get(id).start();
        let known = from.len().min(start.len());
        start[..known].copy_from_slice(&from[..known]);
        let flow = self.flow_mut(number);
        let Some(is_pfc) = flow.map(|(_, flow)| flow.hear(&start[..known], now_ns)) else {
            return self.drop_at(id, number, Drop::Control);
        };
        if !is_pfc {
            return self.drop_at(id, number, Drop::Control);
        }
        self.stop_lanes(number);
    }

    /// Finds which priorities of a port are stopped now.
    pub(super) fn stop_lanes(&mut self, number: u16) {
        let now_ns = self.now_ns;
        let Some((plug, flow)) = self.flow_mut(number) else {
            return;
        };
        let full = match plug.map_or(Ok(0), Plug::full_lanes) {
            Ok(full) => full,
            Err(Broken(reason)) => {
                return self.close(number, reason);
            }
        };
        let before = flow.stopped();
        flow.update(full, now_ns);
        if flow.stopped() != before {
            let is_open = self
                .bay_mut(number)
                .is_some_and(|bay| bay.blocked_ns.is_none());
            self.set_ready(number, is_open);
        }
    }

    /// Delivers frames of priorities that go on again, and drops those of a priority that was
    /// stopped for longer than the operator allows.
    #[inline]
    pub(super) fn serve_lanes(&mut self, number: u16) -> usize {
        let bay = self.bays[usize::from(number)].as_ref();
        let flow = bay.and_then(|bay| bay.port.flow());
        if flow.is_none_or(FlowControl::is_calm) {
            return 0;
        }
        self.stop_lanes(number);
        let goes_on = self
            .flow_mut(number)
            .is_some_and(|(_, flow)| flow.went_on());
        let is_open = self
            .bay_mut(number)
            .is_some_and(|bay| bay.blocked_ns.is_none());
        let moved = match goes_on && is_open {
            true => self.deliver_waiting(number),
            false => 0,
        };
        if let Some(limit_ns) = self.choice.stall_limit_ns {
            self.drop_stopped(number, limit_ns);
        }
        moved
    }

    fn drop_stopped(&mut self, number: u16, limit_ns: u64) {
        let lanes = self.choice.lanes;
        for lane in lanes.highest_first() {
            let bay = self.bays[usize::from(number)].as_ref();
            let flow = bay.and_then(|bay| bay.port.flow());
            let since_ns = flow.and_then(|flow| flow.stopped_since_ns(lane));
            if since_ns.is_none_or(|since_ns| self.now_ns.saturating_sub(since_ns) <= limit_ns) {
                continue;
            }
            while let Some(id) = self.switch.take(lanes.side(number, lane)) {
                self.drop_at(id, number, Drop::Stalled);
                self.release(id);
            }
        }
    }

    /// Sends the frames of flow control that are due.
    pub(super) fn say_pauses(&mut self) {
        if !self.has_flow {
            return;
        }
        for number in 0..self.bays.len() as u16 {
            let now_ns = self.now_ns;
            let Some((Some(plug), flow)) = self.flow_mut(number) else {
                continue;
            };
            let Some(frame) = flow.due(now_ns) else {
                continue;
            };
            match plug.control(&frame) {
                Ok(true) => flow.sent(now_ns),
                // It is due until there is room.
                Ok(false) => {
                    flow.wait_for_room();
                    continue;
                }
                Err(Broken(reason)) => {
                    self.close(number, reason);
                    continue;
                }
            }
            if let Some(taps) = &mut self.taps {
                let memory = Memory::default();
                let frame = Outgoing::whole(&frame, Work::default(), &memory);
                taps.see(number, &Seen::delivered(frame));
            }
        }
    }

    /// Tells of priorities that are stopped for long.
    pub(super) fn warn_of_pauses(&mut self) {
        for number in 0..self.bays.len() as u16 {
            let now_ns = self.now_ns;
            let Some((_, flow)) = self.flow_mut(number) else {
                continue;
            };
            let late = flow.alarms(LONG_NS, now_ns);
            for lane in (0..8).filter(|lane| late >> lane & 1 != 0) {
                let name = self.bay_mut(number).map(|bay| bay.name.clone());
                let name = name.unwrap_or_default();
                tracing::warn!(
                    port = name,
                    priority = lane,
                    "the peer of a port has taken nothing of a priority for a second"
                );
            }
        }
    }

    /// Since when the first of the priorities for which frames wait is stopped, ns.
    pub(super) fn stopped_since_ns(&self, number: u16) -> Option<u64> {
        let lanes = self.choice.lanes;
        let flow = self.bays[usize::from(number)].as_ref()?.port.flow()?;
        let waits = |lane: &u8| self.switch.first(lanes.side(number, *lane)).is_some();
        let lanes = lanes.highest_first().filter(waits);
        lanes.filter_map(|lane| flow.stopped_since_ns(lane)).min()
    }
}
