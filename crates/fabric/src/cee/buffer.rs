//! The receiving side of links: the buffer behind each input, its thresholds, and the priorities
//! that the input has asked its sender to pause.

use sluicegate_core::number::{at_most, narrow, whole};
use sluicegate_pfc::Span;

use super::{Buffer, CeeConfig, PRIORITIES, Pause, PortSpec, port::OutputPorts};
use crate::{
    graph::{Node, PortId, SwitchId},
    port::Drop,
};

/// The shared memory of a switch.
struct Memory {
    /// Bytes that all inputs share.
    shared_bytes: u64,
    /// Bytes in use by all inputs, headroom not counted.
    used_bytes: u64,
}

/// The buffer of one input, and the pauses that its switch has sent for it.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub(super) struct Input {
    /// Bytes held, by priority.
    bytes: [u32; PRIORITIES],
    /// The most bytes of one priority that the input has ever held.
    most_bytes: u32,
    /// Room above XOFF.
    headroom_bytes: u32,
    /// Room of a lossless priority in a buffer that inputs do not share.
    lossless_bytes: u32,
    /// While a priority holds no more bytes than this, no threshold is exceeded: see
    /// [`InputBuffers::set_quiet_bytes`].
    quiet_bytes: u32,
    /// The switch to which the input belongs; `None` = it is that of a host's adapter, which has a
    /// stack behind it and no buffer.
    switch: Option<SwitchId>,
    /// Bit p: the sender at the far end has been asked to pause priority p.
    sent: u8,
}

const _: () = assert!(size_of::<Input>() == 64);

impl Input {
    /// Whether no threshold is exceeded if the input takes so many bytes more of a priority.
    #[inline(always)]
    pub fn stays_quiet(&self, priority: usize, bytes: u32) -> bool {
        self.bytes[priority] + bytes <= self.quiet_bytes
    }

    /// A frame takes room for which [`Input::stays_quiet`] has returned true.
    #[inline(always)]
    pub fn take_quietly(&mut self, priority: usize, bytes: u32) {
        debug_assert!(self.stays_quiet(priority, bytes));
        self.bytes[priority] += bytes;
    }
}

/// The room of one frame in a buffer: its input, its priority, its length.
#[derive(Clone, Copy)]
pub(super) struct Share {
    pub ingress: PortId,
    pub priority: usize,
    pub bytes: u32,
}

/// The buffers of all inputs. Those of hosts stay empty.
pub(super) struct InputBuffers {
    shape: Buffer,
    /// XOFF and XON of PFC; `None` without PFC.
    thresholds_bytes: Option<(u64, u64)>,
    /// Bit p: priority p is lossless.
    lossless: u8,
    /// By port, the buffer at its far end.
    inputs: Vec<Input>,
    /// By port and priority, the bytes at the far end that lie in the headroom of a shared memory.
    headroom_used: Vec<[u32; PRIORITIES]>,
    memories: Vec<Memory>,
    /// By switch and priority, how many of its inputs it has asked to pause.
    pausing: Vec<[u16; PRIORITIES]>,
}

impl InputBuffers {
    /// Empty buffers behind these ports.
    pub fn new(config: &CeeConfig, specs: &[PortSpec], out: &OutputPorts, switches: usize) -> Self {
        let mut buffers = Self {
            shape: config.buffer,
            thresholds_bytes: config.pfc.map(|pfc| (pfc.xoff_bytes, pfc.xon_bytes)),
            lossless: config.pfc.map_or(0, |pfc| pfc.priorities),
            inputs: Vec::with_capacity(specs.len()),
            headroom_used: vec![[0; PRIORITIES]; specs.len()],
            memories: Vec::new(),
            pausing: vec![[0; PRIORITIES]; switches],
        };
        for (port, spec) in PortId::enumerate(specs) {
            // Of switches it is bounded where a scenario is read; a host holds frames no longer
            // than it takes to hand them on, whatever its link could still bring.
            let headroom_bytes = at_most(headroom_bytes(config, specs, port, out.is_cut(port)));
            let lossless_bytes = lossless_bytes(config, headroom_bytes);
            buffers.inputs.push(Input {
                headroom_bytes,
                lossless_bytes: at_most(lossless_bytes),
                switch: match spec.far {
                    Node::Switch(switch) => Some(switch),
                    Node::Host(_) => None,
                },
                ..Input::default()
            });
        }
        buffers.memories = buffers.memories(switches);
        buffers
    }

    /// The empty memories of the switches, without the headroom that is reserved for each input.
    fn memories(&self, switches: usize) -> Vec<Memory> {
        let shared_bytes = match self.shape {
            Buffer::Input { .. } => u64::MAX,
            Buffer::Shared { bytes, .. } => bytes,
        };
        let memory = |_| Memory {
            shared_bytes,
            used_bytes: 0,
        };
        let mut memories: Vec<Memory> = (0..switches).map(memory).collect();
        if let Buffer::Shared { .. } = self.shape {
            for input in &self.inputs {
                let Some(switch) = input.switch else { continue };
                let headroom = u64::from(input.headroom_bytes);
                let reserved = headroom * u64::from(self.lossless.count_ones());
                let memory = &mut memories[switch.index()];
                memory.shared_bytes = memory.shared_bytes.saturating_sub(reserved);
            }
        }
        memories
    }

    /// The lossless priorities, bit p for priority p.
    pub fn lossless(&self) -> u8 {
        self.lossless
    }

    /// Whether a priority is lossless.
    #[inline]
    fn is_lossless(&self, priority: usize) -> bool {
        self.lossless & 1 << priority != 0
    }

    /// The buffer at a port's far end.
    #[inline(always)]
    pub fn input_mut(&mut self, ingress: PortId) -> &mut Input {
        &mut self.inputs[ingress.index()]
    }

    /// The priorities that an input has asked its sender to pause, bit p for priority p.
    #[inline]
    pub fn sent(&self, ingress: PortId) -> u8 {
        self.inputs[ingress.index()].sent
    }

    /// Whether inputs share memory.
    #[inline]
    pub fn is_shared(&self) -> bool {
        matches!(self.shape, Buffer::Shared { .. })
    }

    /// The switch to which an input belongs; `None` for a host's.
    pub fn switch(&self, ingress: PortId) -> Option<SwitchId> {
        self.inputs[ingress.index()].switch
    }

    /// Room of each lossless priority above XOFF.
    pub fn headroom_bytes(&self, ingress: PortId) -> u64 {
        self.inputs[ingress.index()].headroom_bytes.into()
    }

    /// Bytes of a priority that an input holds.
    #[inline]
    pub fn held_bytes(&self, ingress: PortId, priority: usize) -> u64 {
        self.inputs[ingress.index()].bytes[priority].into()
    }

    /// The most bytes of one priority that an input has ever held.
    pub fn most_bytes(&self, ingress: PortId) -> u64 {
        self.inputs[ingress.index()].most_bytes.into()
    }

    /// The cause of a drop if there is no room for a frame; `None` if there is. `queue_bytes` is
    /// the length of the output queue that the frame is to join.
    #[inline]
    pub fn has_no_room(&self, share: Share, queue_bytes: impl FnOnce() -> u32) -> Option<Drop> {
        let Share {
            ingress,
            priority,
            bytes,
        } = share;
        let from = ingress.index();
        let after = self.held_bytes(ingress, priority) + u64::from(bytes);
        let lossless = self.is_lossless(priority);
        let over = match self.shape {
            Buffer::Input { .. } if lossless => after > u64::from(self.inputs[from].lossless_bytes),
            Buffer::Input { bytes: limit } => after > limit,
            Buffer::Shared { .. } if lossless => {
                !self.fits_below_xoff(share)
                    && u64::from(self.headroom_used[from][priority] + bytes)
                        > self.headroom_bytes(ingress)
            }
            Buffer::Shared { alpha, .. } => {
                let free = self.free_bytes(ingress);
                let queue = u64::from(queue_bytes());
                u64::from(bytes) > free || queue as f64 >= alpha * free as f64
            }
        };
        over.then_some(if lossless {
            Drop::Headroom
        } else {
            Drop::Buffer
        })
    }

    /// Whether a lossless frame fits into a shared memory without its headroom.
    fn fits_below_xoff(&self, share: Share) -> bool {
        let bytes = u64::from(share.bytes);
        let held = self.held_bytes(share.ingress, share.priority);
        let (xoff, _) = self.thresholds(share.ingress);
        held + bytes <= xoff && bytes <= self.free_bytes(share.ingress)
    }

    /// The bytes of a switch's memory that all its inputs share, headroom not counted.
    pub fn shared_bytes(&self, switch: SwitchId) -> u64 {
        self.memories[switch.index()].shared_bytes
    }

    /// Free bytes of the memory that an input shares with others.
    fn free_bytes(&self, ingress: PortId) -> u64 {
        let Some(switch) = self.switch(ingress) else {
            return u64::MAX;
        };
        let memory = &self.memories[switch.index()];
        memory.shared_bytes.saturating_sub(memory.used_bytes)
    }

    /// A frame takes room. Returns whether its priority now holds more than any priority of the
    /// input has ever held.
    #[inline]
    pub fn take(&mut self, share: Share) -> bool {
        self.use_memory(share);
        let input = &mut self.inputs[share.ingress.index()];
        input.bytes[share.priority] += share.bytes;
        input.bytes[share.priority] > input.most_bytes
    }

    /// A frame gives its room back. Returns whether the input has paused its priority.
    #[inline]
    pub fn give_back(&mut self, share: Share) -> bool {
        let input = &mut self.inputs[share.ingress.index()];
        input.bytes[share.priority] -= share.bytes;
        let is_paused = input.sent & 1 << share.priority != 0;
        if self.is_shared() {
            self.free_memory(share);
        }
        is_paused
    }

    /// Updates the most bytes that an input has ever held.
    pub fn keep_most(&mut self, ingress: PortId, priority: usize) {
        let input = &mut self.inputs[ingress.index()];
        let held = input.bytes[priority];
        input.most_bytes = input.most_bytes.max(held);
        self.set_quiet_bytes(ingress);
    }

    /// Computes the bytes up to which an input neither pauses its sender, drops a frame nor exceeds
    /// the most that it has held, for each priority. In a shared memory the other inputs matter,
    /// too: 0.
    fn set_quiet_bytes(&mut self, ingress: PortId) {
        let (xoff_bytes, _) = self.thresholds(ingress);
        let input = &mut self.inputs[ingress.index()];
        let limit_bytes = match self.shape {
            Buffer::Input { bytes } => bytes.min(input.lossless_bytes.into()),
            Buffer::Shared { .. } => 0,
        };
        let quiet_bytes = limit_bytes.min(xoff_bytes).min(input.most_bytes.into());
        input.quiet_bytes = narrow::<u32>(quiet_bytes);
    }

    /// The switch in whose memory an input shares room with the others; `None` if inputs do not
    /// share.
    #[inline]
    pub fn shares(&self, ingress: PortId) -> Option<SwitchId> {
        if self.is_shared() {
            self.switch(ingress)
        } else {
            None
        }
    }

    /// In a shared memory, takes the room of a frame that is about to join the buffer of its input:
    /// from the shared part, or from the headroom of the input.
    #[inline]
    fn use_memory(&mut self, share: Share) {
        let Some(switch) = self.shares(share.ingress) else {
            return;
        };
        let bytes = share.bytes;
        if self.is_lossless(share.priority) && !self.fits_below_xoff(share) {
            self.headroom_used[share.ingress.index()][share.priority] += bytes;
        } else {
            self.memories[switch.index()].used_bytes += u64::from(bytes);
        }
    }

    /// In a shared memory, frees the room of a frame that has left: first the headroom of its
    /// input.
    fn free_memory(&mut self, share: Share) {
        let Some(switch) = self.shares(share.ingress) else {
            return;
        };
        let headroom = &mut self.headroom_used[share.ingress.index()][share.priority];
        let of_headroom = share.bytes.min(*headroom);
        *headroom -= of_headroom;
        self.memories[switch.index()].used_bytes -= u64::from(share.bytes - of_headroom);
    }

    /// The shared part of a memory has room again: moves bytes there from the headroom of an input.
    pub fn leave_headroom(&mut self, ingress: PortId, priority: usize) {
        let Some(switch) = self.shares(ingress) else {
            return;
        };
        let free_bytes = self.free_bytes(ingress);
        let headroom = &mut self.headroom_used[ingress.index()][priority];
        let moved = narrow::<u32>(u64::from(*headroom).min(free_bytes));
        *headroom -= moved;
        self.memories[switch.index()].used_bytes += u64::from(moved);
    }

    /// Whether an input holds more of a priority than XOFF, or uses headroom.
    #[inline]
    pub fn is_too_full(&self, ingress: PortId, priority: usize) -> bool {
        let (xoff, _) = self.thresholds(ingress);
        self.held_bytes(ingress, priority) > xoff || self.is_in_headroom(ingress, priority)
    }

    /// Whether an input holds less of a priority than XON, and uses no headroom.
    pub fn is_empty_enough(&self, ingress: PortId, priority: usize) -> bool {
        let (_, xon) = self.thresholds(ingress);
        self.held_bytes(ingress, priority) < xon && !self.is_in_headroom(ingress, priority)
    }

    /// Whether a priority of an input uses headroom of a shared memory.
    #[inline]
    fn is_in_headroom(&self, ingress: PortId, priority: usize) -> bool {
        self.is_shared() && self.headroom_used[ingress.index()][priority] > 0
    }

    /// Whether an input has asked its sender to pause a priority.
    #[inline]
    pub fn has_paused(&self, ingress: PortId, priority: usize) -> bool {
        self.inputs[ingress.index()].sent & 1 << priority != 0
    }

    /// An input has asked its sender to pause these priorities, and no others. Returns its switch,
    /// and the priorities that the switch has paused at any of its inputs.
    pub fn set_sent(&mut self, ingress: PortId, priorities: u8) -> Option<(SwitchId, u8)> {
        let before = std::mem::replace(&mut self.inputs[ingress.index()].sent, priorities);
        let switch = self.switch(ingress)?;
        let pausing = &mut self.pausing[switch.index()];
        for priority in
            (0..PRIORITIES).filter(|priority| (before ^ priorities) & 1 << priority != 0)
        {
            let is_paused = priorities & 1 << priority != 0;
            let inputs = &mut pausing[priority];
            *inputs = if is_paused { *inputs + 1 } else { *inputs - 1 };
        }
        Some((switch, self.pausing(switch)))
    }

    /// The priorities that a switch has paused at any of its inputs.
    pub fn pausing(&self, switch: SwitchId) -> u8 {
        let pausing = self.pausing[switch.index()].iter().enumerate();
        pausing
            .map(|(priority, &inputs)| u8::from(inputs > 0) << priority)
            .sum()
    }

    /// (XOFF, XON) of an input: the bytes of a priority above which it pauses its sender, and below
    /// which it lets the sender resume.
    pub fn thresholds(&self, ingress: PortId) -> (u64, u64) {
        self.thresholds_with(|| self.free_bytes(ingress))
    }

    /// [`InputBuffers::thresholds`] if so many bytes of a shared memory were free.
    pub fn thresholds_with(&self, free_bytes: impl Fn() -> u64) -> (u64, u64) {
        let Some((xoff_bytes, xon_bytes)) = self.thresholds_bytes else {
            return (u64::MAX, u64::MAX);
        };
        match self.shape {
            Buffer::Input { .. } => (xoff_bytes, xon_bytes),
            Buffer::Shared { alpha, .. } => {
                let xoff = xoff_bytes.min(whole(free_bytes() as f64 * alpha));
                let gap = xoff_bytes - xon_bytes.min(xoff_bytes);
                // The sender of an empty input must resume even while other inputs hold all memory.
                (xoff, xoff.saturating_sub(gap).max(1))
            }
        }
    }

    /// Checks that inputs count the bytes that were found in queues, that memories count those
    /// outside headroom, and that switches count the inputs that have paused their senders.
    pub fn audit(&self, found: &[[u64; PRIORITIES]]) -> Result<(), String> {
        for (port, found) in PortId::enumerate(found) {
            for (priority, &found) in found.iter().enumerate() {
                let counted = self.held_bytes(port, priority);
                if found != counted {
                    return Err(format!(
                        "the buffer behind port {port}, priority {priority}, holds {found} bytes but counts {counted}"
                    ));
                }
            }
        }
        for switch in SwitchId::first(self.memories.len()) {
            self.audit_pausing(switch)?;
            self.audit_memory(switch)?;
        }
        Ok(())
    }

    /// The inputs of a switch, by the port that leads to each.
    fn inputs_of(&self, switch: SwitchId) -> impl Iterator<Item = (PortId, &Input)> {
        let all = PortId::enumerate(&self.inputs);
        all.filter(move |(_, input)| input.switch == Some(switch))
    }

    fn audit_pausing(&self, switch: SwitchId) -> Result<(), String> {
        for (priority, &counted) in self.pausing[switch.index()].iter().enumerate() {
            let paused = |input: &Input| input.sent & 1 << priority != 0;
            let found = self.inputs_of(switch).filter(|(_, input)| paused(input));
            let found = found.count();
            if found != usize::from(counted) {
                return Err(format!(
                    "switch {} has paused priority {priority} at {found} inputs but counts {counted}",
                    switch.0
                ));
            }
        }
        Ok(())
    }

    fn audit_memory(&self, switch: SwitchId) -> Result<(), String> {
        let Memory {
            shared_bytes,
            used_bytes,
        } = self.memories[switch.index()];
        if !self.is_shared() {
            return Ok(());
        }
        let held = self.inputs_of(switch).map(|(port, input)| {
            let held = input.bytes.iter().zip(&self.headroom_used[port.index()]);
            held.map(|(&held, &in_headroom)| u64::from(held - in_headroom))
                .sum::<u64>()
        });
        let held_bytes: u64 = held.sum();
        match held_bytes == used_bytes && used_bytes <= shared_bytes {
            true => Ok(()),
            false => Err(format!(
                "the memory of switch {} holds {held_bytes} bytes of {shared_bytes} but counts {used_bytes}",
                switch.0
            )),
        }
    }
}

/// Room of each lossless priority above XOFF in the buffer at a port's far end.
fn headroom_bytes(config: &CeeConfig, specs: &[PortSpec], port: PortId, is_cut: bool) -> u64 {
    let Some(pfc) = &config.pfc else {
        return 0;
    };
    let needed = |response_ps| needed_headroom_bytes(specs, port, is_cut, response_ps);
    match (pfc.pause, config.buffer) {
        (Pause::Ideal, Buffer::Input { bytes }) => bytes.saturating_sub(pfc.xoff_bytes),
        (Pause::Ideal, Buffer::Shared { .. }) => needed(None),
        (
            Pause::Wire {
                headroom_bytes: Some(bytes),
                ..
            },
            _,
        ) => bytes,
        (Pause::Wire { response_ps, .. }, _) => needed(Some(response_ps)),
    }
}

/// The bytes that may still arrive over a port after its far end has passed XOFF. `response_ps` is
/// the response time to a pause frame; `None` where pauses take effect at once.
fn needed_headroom_bytes(
    specs: &[PortSpec],
    port: PortId,
    is_cut: bool,
    response_ps: Option<u64>,
) -> u64 {
    let (there, back) = (&specs[port.index()], &specs[port.opposite().index()]);
    let span = Span {
        rate_bps: there.rate_bps,
        there_ps: there.propagation_ps + there.processing_ps,
        back_ps: if response_ps.is_some() {
            back.propagation_ps
        } else {
            0
        },
        frame_bytes: there.frame_bytes.max(back.frame_bytes),
    };
    span.headroom_bytes(is_cut, response_ps.unwrap_or(0))
}

/// The bytes of a lossless priority that an input may hold, where inputs do not share memory.
fn lossless_bytes(config: &CeeConfig, headroom_bytes: u32) -> u64 {
    match (config.buffer, &config.pfc) {
        (Buffer::Input { .. }, Some(pfc)) if matches!(pfc.pause, Pause::Wire { .. }) => {
            pfc.xoff_bytes + u64::from(headroom_bytes)
        }
        (Buffer::Input { bytes }, _) => bytes,
        (Buffer::Shared { .. }, _) => 0,
    }
}

#[cfg(test)]
mod tests;
