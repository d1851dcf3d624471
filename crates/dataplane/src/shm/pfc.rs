//! Priority flow control at a cable: how its buffers are shared, what this side asks for, and what
//! the peer has asked for.
//!
//! ```text
//!  buffers of a direction ═ lossy priorities │ priority 3: … XON … XOFF │ headroom │ priority 4 …
//! ```
//!
//! The receiver counts the buffers that frames of each lossless priority keep here, and asks the
//! peer to pause one that has passed XOFF. The sender obeys, and besides never has more buffers of
//! a lossless priority in the cable than its share: memory is faster than any rate, and a peer may
//! be late. So a priority that is paused leaves room for all others.

use serde::{Deserialize, Serialize};
use sluicegate_pfc::{
    Demand, Gate, Malformed, PRIORITIES, PfcFrame, Span, Thresholds, demand::DemandState,
    frame::FRAME_BYTES, gate::GateState, headroom::Cells,
};

use super::layout::{Layout, SLOTS_MAX};
use crate::{frame::FRAME_MAX, handover::clock_ns, offload::HEADER};

/// The rate of a cable if the file does not say, bits per second.
pub const RATE_BPS: u64 = 10_000_000_000;
/// The delay of a cable if the file does not say, ns.
pub const DELAY_NS: u64 = 5_000;

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The rate by which quanta and headroom are computed.
    pub rate_bps: u64,
    /// From one side to the other, until that looks.
    pub delay_ns: u64,
    /// Bit p: priority p is lossless.
    pub lossless: u8,
}

/// How the buffers of a direction are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Buffers of each lossless priority.
    pub share: u16,
    /// Of them, those above XOFF, bytes.
    pub headroom_bytes: u64,
    /// When a priority is paused and resumed.
    pub thresholds: Thresholds,
}

/// A cable is too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Lossless priorities.
    pub priorities: u32,
    /// Headroom of each, bytes.
    pub headroom_bytes: u64,
    /// What the buffers of a direction must have, bytes.
    pub needed_bytes: u64,
    /// What they have, bytes.
    pub has_bytes: u64,
    /// Buffers that are enough, if any ring has as many.
    pub ring: Option<u32>,
}

impl Shortage {
    /// What is wrong.
    pub fn reason(&self) -> String {
        format!(
            "PFC needs {} bytes of buffers (lossless priorities: {}, headroom of each: {}), and the \
             cable has {} in each direction",
            self.needed_bytes, self.priorities, self.headroom_bytes, self.has_bytes
        )
    }

    /// What helps.
    pub fn advice(&self) -> String {
        match self.ring {
            Some(ring) => format!("write ring = {ring}, a lower `rate` or a shorter `delay`"),
            None => "write a lower `rate`, a shorter `delay` or fewer lossless priorities".into(),
        }
    }
}

impl Settings {
    /// Shares the buffers of a direction.
    ///
    /// # Errors
    /// They cannot hold the headroom.
    pub fn plan(&self, layout: Layout) -> Result<Plan, Shortage> {
        let cells = Cells {
            cell_bytes: layout.buffer,
            header_bytes: HEADER as u32,
            least_bytes: sluicegate_pfc::CONTROL_BYTES,
        };
        let delay_ps = self.delay_ns.saturating_mul(1000).min(u64::MAX / 4);
        let span = Span {
            rate_bps: self.rate_bps,
            there_ps: delay_ps,
            back_ps: delay_ps,
            // Segments pass as they are.
            frame_bytes: FRAME_MAX,
        };
        let buffer_bytes = u64::from(layout.buffer);
        let headroom_bytes = span.headroom_cell_bytes(0, cells);
        let longest = cells.of(FRAME_MAX);
        let priorities = self.lossless.count_ones();
        // Lossy frames and control frames keep no buffers here for longer than a poll.
        let slots = u64::from(layout.slots);
        let free = (slots / 8).max(longest + 1);
        let share = slots.saturating_sub(free) / u64::from(priorities.max(1));
        let needed = headroom_bytes.div_ceil(buffer_bytes) + longest;
        if share < needed {
            let enough = |slots: u64| {
                let free = (slots / 8).max(longest + 1);
                slots.saturating_sub(free) / u64::from(priorities.max(1)) >= needed
            };
            let mut rings = (6..).map(|bits| 1u64 << bits);
            let rings = rings.by_ref().take_while(|&ring| ring <= SLOTS_MAX.into());
            let most = super::layout::RING_BYTES_MAX / buffer_bytes;
            let ring = rings
                .filter(|&ring| ring <= most)
                .find(|&ring| enough(ring));
            return Err(Shortage {
                priorities,
                headroom_bytes,
                needed_bytes: (needed * u64::from(priorities) + free) * buffer_bytes,
                has_bytes: slots * buffer_bytes,
                ring: ring.map(|ring| ring as u32),
            });
        }
        let xoff_bytes = share * buffer_bytes - headroom_bytes;
        Ok(Plan {
            share: share as u16,
            headroom_bytes,
            thresholds: Thresholds {
                xoff_bytes,
                xon_bytes: xoff_bytes - xoff_bytes / 4,
            },
        })
    }
}

/// What both sides have asked for, for another process: times are of the host's monotonic clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PfcState {
    gate: GateState,
    demand: DemandState,
    malformed: u64,
}

/// The flow control of a port.
#[derive(Clone, Debug)]
pub struct FlowControl {
    settings: Settings,
    plan: Option<Plan>,
    /// The address by which its frames come.
    source: [u8; 6],
    gate: Gate,
    demand: Demand,
    /// By token of a frame of the peer, its priority and bytes of buffers.
    charged: Vec<(u8, u32)>,
    buffer_bytes: u32,
    malformed: u64,
    /// Bit p: frames of priority p do not leave, as the peer asked or since their share is used up.
    stopped: u8,
    /// By priority, since when; where it is stopped, ns.
    stopped_ns: [u64; PRIORITIES],
    /// A frame is due for which there is no buffer: the peer kicks when there is.
    lacks_room: bool,
    /// A priority goes on again.
    goes_on: bool,
    /// Bit p: it was said that priority p is stopped for long.
    told: u8,
}

impl FlowControl {
    /// Of a port whose cable has no other end yet.
    pub fn new(settings: Settings, port: u16) -> Self {
        let none = Thresholds {
            xoff_bytes: u64::MAX,
            xon_bytes: u64::MAX,
        };
        let [high, low] = port.to_be_bytes();
        Self {
            gate: Gate::new(settings.rate_bps, settings.lossless),
            demand: Demand::new(settings.rate_bps, settings.lossless, none),
            settings,
            plan: None,
            // Locally administered (IEEE 802, 8.4).
            source: [2, b'S', b'G', 0, high, low],
            charged: Vec::new(),
            buffer_bytes: 0,
            malformed: 0,
            stopped: 0,
            stopped_ns: [0; PRIORITIES],
            lacks_room: false,
            goes_on: false,
            told: 0,
        }
    }

    /// The other end is there.
    pub fn join(&mut self, plan: Plan, layout: Layout, state: Option<&PfcState>, now_ns: u64) {
        self.plan = Some(plan);
        self.demand.set_thresholds(plan.thresholds);
        self.charged = vec![(0, 0); usize::from(layout.slots)];
        self.buffer_bytes = layout.buffer;
        let Some(state) = state else { return };
        let gate = state.gate.clone().shifted(clock_ns(), now_ns);
        self.gate.restore(gate);
        self.demand.restore(state.demand.clone().again());
        self.malformed = state.malformed;
    }

    /// The other end has gone, its frames released.
    pub fn part(&mut self, now_ns: u64) {
        self.lacks_room = false;
        self.gate.open(now_ns);
        self.demand.clear();
        self.charged.clear();
    }

    /// Where it is, for another process.
    pub fn state(&self, now_ns: u64) -> PfcState {
        PfcState {
            gate: self.gate.state().clone().shifted(now_ns, clock_ns()),
            demand: self.demand.state().clone(),
            malformed: self.malformed,
        }
    }

    /// What the file says.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How the buffers are shared, once a cable was there.
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// A frame of the peer keeps buffers until it is released.
    #[inline]
    pub fn charge(&mut self, token: u16, lane: u8, frame_bytes: u32) {
        let Some(charged) = self.charged.get_mut(usize::from(token)) else {
            return;
        };
        let cells = (frame_bytes + HEADER as u32).div_ceil(self.buffer_bytes.max(1));
        *charged = (lane, cells * self.buffer_bytes);
        self.demand.take(lane, charged.1.into());
    }

    /// A frame of the peer gives its buffers back.
    #[inline]
    pub fn release(&mut self, token: u16) {
        let Some(charged) = self.charged.get_mut(usize::from(token)) else {
            return;
        };
        let (lane, bytes) = std::mem::take(charged);
        if bytes > 0 {
            self.demand.give_back(lane, bytes.into());
        }
    }

    /// A MAC control frame of the peer, whose bytes begin so. False: it is none of PFC.
    pub fn hear(&mut self, start: &[u8], now_ns: u64) -> bool {
        match PfcFrame::parse(start) {
            Ok(frame) => self.gate.hear(&frame, now_ns),
            Err(Malformed::Opcode) => return false,
            Err(_) => self.malformed += 1,
        }
        true
    }

    /// The frame that is to be sent now, if any.
    #[inline]
    pub fn due(&self, now_ns: u64) -> Option<[u8; FRAME_BYTES]> {
        let frame = self.demand.due(now_ns)?;
        Some(frame.bytes(self.source))
    }

    /// There is no buffer for the frame that is due.
    pub fn wait_for_room(&mut self) {
        self.lacks_room = true;
    }

    /// The frame that was due has been sent.
    pub fn sent(&mut self, now_ns: u64) {
        self.lacks_room = false;
        self.demand.sent(now_ns);
    }

    /// When there is something to do at the latest, ns.
    pub fn next_ns(&self) -> Option<u64> {
        let demand_ns = self.demand.next_ns().filter(|_| !self.lacks_room);
        let times = [self.gate.next_ns(), demand_ns];
        times.into_iter().flatten().min()
    }

    /// Finds which priorities are stopped now; `full`: those whose share is used up.
    #[inline]
    pub fn update(&mut self, full: u8, now_ns: u64) {
        let stopped = self.gate.expire(now_ns) | full;
        let before = std::mem::replace(&mut self.stopped, stopped);
        if stopped != before {
            for priority in 0..PRIORITIES {
                if (stopped & !before) >> priority & 1 != 0 {
                    self.stopped_ns[priority] = now_ns;
                }
            }
            self.told &= stopped;
            self.goes_on |= before & !stopped != 0;
        }
    }

    /// Whether there is something to serve: a priority is stopped, or goes on again.
    #[inline]
    pub fn is_calm(&self) -> bool {
        self.stopped == 0 && !self.goes_on
    }

    /// Whether a priority goes on again since this was asked last.
    pub fn went_on(&mut self) -> bool {
        std::mem::take(&mut self.goes_on)
    }

    /// Priorities that are stopped, bit p.
    #[inline]
    pub fn stopped(&self) -> u8 {
        self.stopped
    }

    /// Since when a priority is stopped, ns.
    pub fn stopped_since_ns(&self, priority: u8) -> Option<u64> {
        let is_stopped = self.stopped >> priority & 1 != 0;
        is_stopped.then(|| self.stopped_ns[usize::from(priority)])
    }

    /// Priorities that are stopped for longer than this, and of which that was not said, bit p.
    pub fn alarms(&mut self, longer_ns: u64, now_ns: u64) -> u8 {
        let late = (0..PRIORITIES as u8).filter(|&priority| {
            let since_ns = self.stopped_since_ns(priority);
            since_ns.is_some_and(|since_ns| now_ns.saturating_sub(since_ns) > longer_ns)
        });
        let late = late.fold(0, |late, priority| late | 1 << priority);
        let new = late & !self.told;
        self.told |= late;
        new
    }

    /// What the peer has asked for.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// What this side asks for.
    pub fn demand(&self) -> &Demand {
        &self.demand
    }

    /// Frames of PFC that were malformed.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings {
        rate_bps: RATE_BPS,
        delay_ns: DELAY_NS,
        lossless: 1 << 3,
    };

    #[test]
    fn a_cable_of_the_usual_size_holds_the_headroom_of_one_priority() {
        let plan = SETTINGS.plan(Layout::default()).expect("room");
        // 10 µs at 10 Gbit/s and the pause itself are 197 of the shortest frames, with a buffer
        // each; each of three segments has 33.
        assert_eq!(plan.headroom_bytes, (197 + 3 * 33) * 2048);
        assert_eq!(plan.share, 1024 - 128);
        let all = u64::from(plan.share) * 2048;
        assert_eq!(plan.thresholds.xoff_bytes + plan.headroom_bytes, all);
        assert!(plan.thresholds.xon_bytes < plan.thresholds.xoff_bytes);
    }

    #[test]
    fn a_cable_that_is_too_small_is_refused_with_what_it_needs() {
        let layout = Layout {
            slots: 256,
            buffer: 2048,
        };
        let shortage = SETTINGS.plan(layout).expect_err("no room");
        assert_eq!(shortage.needed_bytes, (296 + 33 + 34) * 2048);
        assert_eq!((shortage.has_bytes, shortage.ring), (512 << 10, Some(512)));
        let larger = Layout {
            slots: 512,
            ..layout
        };
        assert!(SETTINGS.plan(larger).is_ok());
        // No ring is long enough for 1 ms.
        let far = Settings {
            delay_ns: 1_000_000,
            lossless: 0xff,
            ..SETTINGS
        };
        let shortage = far.plan(layout).expect_err("no room");
        assert_eq!((shortage.priorities, shortage.ring), (8, None));
    }

    #[test]
    fn buffers_are_charged_until_they_are_released() {
        let mut flow = FlowControl::new(SETTINGS, 7);
        let plan = SETTINGS.plan(Layout::default()).expect("room");
        flow.join(plan, Layout::default(), None, 0);
        let most = plan.thresholds.xoff_bytes / 2048;
        for token in 0..most as u16 {
            flow.charge(token, 3, 60);
        }
        assert!(flow.due(0).is_none());
        flow.charge(most as u16, 3, 60);
        let pause = PfcFrame::parse(&flow.due(0).expect("a pause")).expect("a frame");
        assert_eq!((pause.enabled, pause.quanta[3]), (1 << 3, u16::MAX));
        // Without a buffer for it nothing is done by time.
        assert!(flow.next_ns().is_some());
        flow.wait_for_room();
        assert_eq!(flow.next_ns(), None);
        flow.sent(0);
        assert!(flow.next_ns().is_some());
        (0..=most as u16).for_each(|token| flow.release(token));
        // Nothing is released twice.
        (0..=most as u16).for_each(|token| flow.release(token));
        assert_eq!(flow.demand().held_bytes(3), 0);
        let resume = PfcFrame::parse(&flow.due(0).expect("an end")).expect("a frame");
        assert_eq!((resume.enabled, resume.quanta[3]), (1 << 3, 0));
    }
}
