//! The receiving side of links: the buffer behind each input, how much of it may be used, and the pauses that it
//! asks the sender at the far end for.

use super::{
    Buffer, CeeConfig, PRIORITIES, Pause, Place, PortSpec, config::Span, port::OutputPorts,
};
use crate::{
    graph::{PortId, opposite},
    port::Drop,
};

/// No switch: a host's adapter, which has a stack behind it and no buffer.
const NO_SWITCH: u32 = u32::MAX;

/// The shared memory of a switch.
struct Memory {
    /// Bytes that all inputs share.
    shared_bytes: u64,
    /// Bytes in use by all inputs, headroom not counted.
    used_bytes: u64,
}

/// The buffer of one input, and what its switch has said about it.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub(super) struct Input {
    /// By priority.
    pub bytes: [u32; PRIORITIES],
    /// Most of one priority so far.
    most_bytes: u32,
    /// Room above XOFF.
    headroom_bytes: u32,
    /// Room of a lossless priority in a buffer that inputs do not share.
    lossless_bytes: u32,
    /// Up to so many bytes of a priority no threshold is near: see [`InputBuffers::set_quiet_bytes`].
    pub quiet_bytes: u32,
    /// Whose it is.
    switch: u32,
    /// Bit p: the sender at the far end has been asked to pause priority p.
    pub sent: u8,
}

const _: () = assert!(size_of::<Input>() == 64);

/// A frame's place in a buffer: the port that it came by, its priority, its length.
#[derive(Clone, Copy)]
pub(super) struct Share {
    pub ingress: PortId,
    pub priority: usize,
    pub bytes: u32,
}

/// All receiving sides. Those of hosts stay empty.
pub(super) struct InputBuffers {
    shape: Buffer,
    /// XOFF and XON of PFC, if there is any.
    thresholds_bytes: Option<(u64, u64)>,
    /// Bit p: priority p loses nothing.
    lossless: u8,
    /// By port, the buffer at its far end.
    pub inputs: Vec<Input>,
    /// By port, bytes there that lie in the headroom of a shared memory.
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
        for (port, spec) in (0..).zip(specs) {
            let headroom_bytes = headroom_bytes(config, specs, port, out.is_cut(port));
            let lossless_bytes = lossless_bytes(config, headroom_bytes as u32);
            buffers.inputs.push(Input {
                headroom_bytes: headroom_bytes as u32,
                lossless_bytes: u32::try_from(lossless_bytes).unwrap_or(u32::MAX),
                switch: match spec.far {
                    Place::Switch(switch) => switch,
                    Place::Host(_) => NO_SWITCH,
                },
                ..Input::default()
            });
        }
        buffers.memories = buffers.memories(switches);
        buffers
    }

    /// Empty memories of switches, less the headroom that is reserved for each input.
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
            for input in self.inputs.iter().filter(|input| input.switch != NO_SWITCH) {
                let headroom = u64::from(input.headroom_bytes);
                let reserved = headroom * u64::from(self.lossless.count_ones());
                let memory = &mut memories[input.switch as usize];
                memory.shared_bytes = memory.shared_bytes.saturating_sub(reserved);
            }
        }
        memories
    }

    /// Priorities that lose nothing.
    pub fn lossless(&self) -> u8 {
        self.lossless
    }

    /// Whether a priority loses nothing.
    #[inline]
    fn is_lossless(&self, priority: usize) -> bool {
        self.lossless & 1 << priority != 0
    }

    /// Whether inputs share memory.
    #[inline]
    pub fn is_shared(&self) -> bool {
        matches!(self.shape, Buffer::Shared { .. })
    }

    /// Whose buffer it is.
    pub fn switch(&self, ingress: PortId) -> Option<u32> {
        let switch = self.inputs[ingress as usize].switch;
        (switch != NO_SWITCH).then_some(switch)
    }

    /// Room of each lossless priority above XOFF.
    pub fn headroom_bytes(&self, ingress: PortId) -> u64 {
        self.inputs[ingress as usize].headroom_bytes.into()
    }

    /// Bytes of a priority.
    #[inline]
    pub fn held_bytes(&self, ingress: PortId, priority: usize) -> u64 {
        self.inputs[ingress as usize].bytes[priority].into()
    }

    /// Most bytes of one priority so far.
    pub fn most_bytes(&self, ingress: PortId) -> u64 {
        self.inputs[ingress as usize].most_bytes.into()
    }

    /// Why there is no room for a frame that is to join an output queue of so many bytes.
    #[inline]
    pub fn has_no_room(&self, share: Share, queue_bytes: impl FnOnce() -> u32) -> Option<Drop> {
        let Share {
            ingress,
            priority,
            bytes,
        } = share;
        let from = ingress as usize;
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

    /// Whether a lossless frame needs no headroom of a shared memory.
    fn fits_below_xoff(&self, share: Share) -> bool {
        let bytes = u64::from(share.bytes);
        let held = self.held_bytes(share.ingress, share.priority);
        let (xoff, _) = self.thresholds(share.ingress);
        held + bytes <= xoff && bytes <= self.free_bytes(share.ingress)
    }

    /// How much of a switch's memory all its inputs share.
    pub fn shared_bytes(&self, switch: u32) -> u64 {
        self.memories[switch as usize].shared_bytes
    }

    /// What of the memory is free that an input shares with others.
    fn free_bytes(&self, ingress: PortId) -> u64 {
        let Some(switch) = self.switch(ingress) else {
            return u64::MAX;
        };
        let memory = &self.memories[switch as usize];
        memory.shared_bytes.saturating_sub(memory.used_bytes)
    }

    /// A frame takes room. Returns whether its priority holds more than any of the input has before.
    #[inline]
    pub fn take(&mut self, share: Share) -> bool {
        self.use_memory(share);
        let input = &mut self.inputs[share.ingress as usize];
        input.bytes[share.priority] += share.bytes;
        input.bytes[share.priority] > input.most_bytes
    }

    /// A frame gives its room back. Returns whether its priority is paused.
    #[inline]
    pub fn give_back(&mut self, share: Share) -> bool {
        let input = &mut self.inputs[share.ingress as usize];
        input.bytes[share.priority] -= share.bytes;
        let is_paused = input.sent & 1 << share.priority != 0;
        if self.is_shared() {
            self.free_memory(share);
        }
        is_paused
    }

    /// Keeps the most that an input has held.
    pub fn keep_most(&mut self, ingress: PortId, priority: usize) {
        let input = &mut self.inputs[ingress as usize];
        let held = input.bytes[priority];
        input.most_bytes = input.most_bytes.max(held);
        self.set_quiet_bytes(ingress);
    }

    /// Computes the bytes up to which an input neither pauses its sender, drops a frame nor exceeds
    /// the most that it has held, for each priority. In a shared memory the other inputs matter,
    /// too: 0.
    fn set_quiet_bytes(&mut self, ingress: PortId) {
        let (xoff_bytes, _) = self.thresholds(ingress);
        let input = &mut self.inputs[ingress as usize];
        let limit_bytes = match self.shape {
            Buffer::Input { bytes } => bytes.min(input.lossless_bytes.into()),
            Buffer::Shared { .. } => 0,
        };
        let quiet_bytes = limit_bytes.min(xoff_bytes).min(input.most_bytes.into());
        input.quiet_bytes = quiet_bytes as u32;
    }

    /// The switch that an input shares memory with others of.
    #[inline]
    pub fn shares(&self, ingress: PortId) -> Option<u32> {
        if self.is_shared() {
            self.switch(ingress)
        } else {
            None
        }
    }

    /// A frame is about to join the buffer of its input: in a shared memory, the part that all share or headroom.
    #[inline]
    fn use_memory(&mut self, share: Share) {
        let Some(switch) = self.shares(share.ingress) else {
            return;
        };
        let bytes = share.bytes;
        if self.is_lossless(share.priority) && !self.fits_below_xoff(share) {
            self.headroom_used[share.ingress as usize][share.priority] += bytes;
        } else {
            self.memories[switch as usize].used_bytes += u64::from(bytes);
        }
    }

    /// It has left; headroom is the first to be free again.
    fn free_memory(&mut self, share: Share) {
        let Some(switch) = self.shares(share.ingress) else {
            return;
        };
        let headroom = &mut self.headroom_used[share.ingress as usize][share.priority];
        let of_headroom = share.bytes.min(*headroom);
        *headroom -= of_headroom;
        self.memories[switch as usize].used_bytes -= u64::from(share.bytes - of_headroom);
    }

    /// A shared memory has room again: what lies in an input's headroom moves there.
    pub fn leave_headroom(&mut self, ingress: PortId, priority: usize) {
        let Some(switch) = self.shares(ingress) else {
            return;
        };
        let free_bytes = self.free_bytes(ingress);
        let headroom = &mut self.headroom_used[ingress as usize][priority];
        let moved = u64::from(*headroom).min(free_bytes) as u32;
        *headroom -= moved;
        self.memories[switch as usize].used_bytes += u64::from(moved);
    }

    /// Whether an input is above XOFF.
    #[inline]
    pub fn is_too_full(&self, ingress: PortId, priority: usize) -> bool {
        let (xoff, _) = self.thresholds(ingress);
        self.held_bytes(ingress, priority) > xoff || self.is_in_headroom(ingress, priority)
    }

    /// Whether an input is below XON.
    pub fn is_empty_enough(&self, ingress: PortId, priority: usize) -> bool {
        let (_, xon) = self.thresholds(ingress);
        self.held_bytes(ingress, priority) < xon && !self.is_in_headroom(ingress, priority)
    }

    /// Whether an input needs headroom of a shared memory.
    #[inline]
    fn is_in_headroom(&self, ingress: PortId, priority: usize) -> bool {
        self.is_shared() && self.headroom_used[ingress as usize][priority] > 0
    }

    /// Whether an input has asked to pause a priority.
    #[inline]
    pub fn has_paused(&self, ingress: PortId, priority: usize) -> bool {
        self.inputs[ingress as usize].sent & 1 << priority != 0
    }

    /// An input has asked to pause these priorities, and no others. Returns its switch and which priorities that has
    /// paused at any of its inputs.
    pub fn set_sent(&mut self, ingress: PortId, priorities: u8) -> Option<(u32, u8)> {
        let before = std::mem::replace(&mut self.inputs[ingress as usize].sent, priorities);
        let switch = self.switch(ingress)?;
        let pausing = &mut self.pausing[switch as usize];
        for priority in
            (0..PRIORITIES).filter(|priority| (before ^ priorities) & 1 << priority != 0)
        {
            let is_paused = priorities & 1 << priority != 0;
            let inputs = &mut pausing[priority];
            *inputs = if is_paused { *inputs + 1 } else { *inputs - 1 };
        }
        Some((switch, self.pausing(switch)))
    }

    /// Which priorities a switch has paused at any of its inputs.
    pub fn pausing(&self, switch: u32) -> u8 {
        let pausing = self.pausing[switch as usize].iter().enumerate();
        pausing
            .map(|(priority, &inputs)| u8::from(inputs > 0) << priority)
            .sum()
    }

    /// Occupancy above which an input is paused, and below which it goes on.
    pub fn thresholds(&self, ingress: PortId) -> (u64, u64) {
        self.thresholds_with(|| self.free_bytes(ingress))
    }

    /// The same if so much of a shared memory were free.
    pub fn thresholds_with(&self, free_bytes: impl Fn() -> u64) -> (u64, u64) {
        let Some((xoff_bytes, xon_bytes)) = self.thresholds_bytes else {
            return (u64::MAX, u64::MAX);
        };
        match self.shape {
            Buffer::Input { .. } => (xoff_bytes, xon_bytes),
            Buffer::Shared { alpha, .. } => {
                let xoff = xoff_bytes.min((free_bytes() as f64 * alpha) as u64);
                let gap = xoff_bytes - xon_bytes.min(xoff_bytes);
                // An input that has drained must go on even while others hold all memory.
                (xoff, xoff.saturating_sub(gap).max(1))
            }
        }
    }

    /// Asserts that inputs hold the bytes that were found in queues, that memories hold what is not headroom, and that
    /// switches know how many of their inputs have paused their senders.
    pub fn audit(&self, found: &[[u64; PRIORITIES]]) -> Result<(), String> {
        for (port, found) in found.iter().enumerate() {
            for (priority, &found) in found.iter().enumerate() {
                let counted = self.held_bytes(port as PortId, priority);
                if found != counted {
                    return Err(format!(
                        "the buffer behind port {port}, priority {priority}, holds {found} bytes but counts {counted}"
                    ));
                }
            }
        }
        for switch in 0..self.memories.len() {
            self.audit_pausing(switch)?;
            self.audit_memory(switch)?;
        }
        Ok(())
    }

    /// The inputs of a switch, by the port that leads to each.
    fn inputs_of(&self, switch: usize) -> impl Iterator<Item = (usize, &Input)> {
        let all = self.inputs.iter().enumerate();
        all.filter(move |(_, input)| input.switch == switch as u32)
    }

    fn audit_pausing(&self, switch: usize) -> Result<(), String> {
        for (priority, &counted) in self.pausing[switch].iter().enumerate() {
            let paused = |input: &Input| input.sent & 1 << priority != 0;
            let found = self.inputs_of(switch).filter(|(_, input)| paused(input));
            let found = found.count();
            if found != usize::from(counted) {
                return Err(format!(
                    "switch {switch} has paused priority {priority} at {found} inputs but counts {counted}"
                ));
            }
        }
        Ok(())
    }

    fn audit_memory(&self, switch: usize) -> Result<(), String> {
        let Memory {
            shared_bytes,
            used_bytes,
        } = self.memories[switch];
        if !self.is_shared() {
            return Ok(());
        }
        let held = self.inputs_of(switch).map(|(port, input)| {
            let held = input.bytes.iter().zip(&self.headroom_used[port]);
            held.map(|(&held, &in_headroom)| u64::from(held - in_headroom))
                .sum::<u64>()
        });
        let held_bytes: u64 = held.sum();
        match held_bytes == used_bytes && used_bytes <= shared_bytes {
            true => Ok(()),
            false => Err(format!(
                "the memory of switch {switch} holds {held_bytes} bytes of {shared_bytes} but counts {used_bytes}"
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

/// What may still come over a port after its far end has passed XOFF; `response_ps` is that of a pause on the
/// wire.
fn needed_headroom_bytes(
    specs: &[PortSpec],
    port: PortId,
    is_cut: bool,
    response_ps: Option<u64>,
) -> u64 {
    let (there, back) = (&specs[port as usize], &specs[opposite(port) as usize]);
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

/// How much of a lossless priority an input may hold, where inputs do not share.
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
