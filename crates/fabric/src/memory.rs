//! The packet memory that the ports of a switch share.

use sluicegate_core::number::whole;

use crate::graph::PortId;

/// How much of the memory one port may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedMemory {
    /// Bytes of all ports together.
    pub limit_bytes: u64,
    /// Dynamic threshold (Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory
    /// Packet Switches", 1998): a queue may hold up to α times what is free. `None` = as much as
    /// there is.
    pub alpha: Option<f64>,
}

/// Which memory a port belongs to.
pub type MemoryId = u32;

/// A memory and the ports that had something in it when it was looked at last.
pub(crate) struct Memory {
    shape: SharedMemory,
    pub(crate) busy: Vec<PortId>,
}

impl Memory {
    pub(crate) fn new(shape: SharedMemory) -> Self {
        Self {
            shape,
            busy: Vec::new(),
        }
    }

    /// Whether a frame of `bytes` may join a queue of `backlog_bytes` while all queues hold
    /// `used_bytes`.
    pub(crate) fn admits(&self, used_bytes: u64, backlog_bytes: u64, bytes: u64) -> bool {
        let free = self.shape.limit_bytes.saturating_sub(used_bytes);
        let threshold = match self.shape.alpha {
            Some(alpha) => whole(alpha * free as f64),
            None => u64::MAX,
        };
        bytes <= free && backlog_bytes < threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_may_hold_alpha_times_what_is_free() {
        let memory = Memory::new(SharedMemory {
            limit_bytes: 9_000,
            alpha: Some(2.0),
        });
        // A queue alone settles at α / (1 + α) of the memory: 6000 of 9000.
        assert!(memory.admits(5_000, 5_000, 1_000));
        assert!(!memory.admits(6_000, 6_000, 1_000));
        // Another queue has taken 6000: 2 × 3000 are left to this one, but not to that.
        assert!(memory.admits(6_000, 0, 1_000));
        assert!(!memory.admits(8_500, 0, 1_000), "it does not fit");
    }

    #[test]
    fn without_alpha_one_queue_may_take_all() {
        let memory = Memory::new(SharedMemory {
            limit_bytes: 9_000,
            alpha: None,
        });
        assert!(memory.admits(8_000, 8_000, 1_000));
        assert!(!memory.admits(8_001, 0, 1_000));
    }
}
