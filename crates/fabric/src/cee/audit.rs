//! Nothing is lost unseen: frames and bytes, counted one by one, are what the books say.

use super::{Cee, CeeFrame, Label, PRIORITIES, Place};
use crate::pool::{NIL, Pool};

impl Cee {
    /// Frames in adapters, in switches and on wires.
    pub fn underway<F: CeeFrame>(&self, pool: &Pool<F>) -> u64 {
        let on_wires: u64 = self.ports.iter().map(|port| pool.count(port.first)).sum();
        let queues = self.queues.iter().flat_map(|queues| queues.0);
        let in_switches: u64 = queues.map(|frames| pool.count(frames.head)).sum();
        let adapters = 0..self.adapters.len();
        let in_adapters: u64 = adapters.map(|host| self.count_adapter(pool, host).0).sum();
        on_wires + in_switches + in_adapters
    }

    /// Asserts that the bytes of buffers, queues and adapters are those of the frames in them, and that none holds
    /// more than it may. `in_stacks` are bytes on their way to each adapter.
    ///
    /// # Errors
    /// The first that is not.
    pub fn audit<F: CeeFrame>(
        &self,
        pool: &Pool<F>,
        in_stacks: impl Fn(usize) -> u64,
    ) -> Result<(), String> {
        let mut ingress = vec![[0u64; PRIORITIES]; self.ports.len()];
        for (port, queues) in self.queues.iter().enumerate() {
            let mut total = 0;
            for (priority, frames) in queues.0.iter().enumerate() {
                let mut bytes = 0;
                let mut handle = frames.head;
                while handle != NIL {
                    let tag = Label::of(pool, handle);
                    let length = u64::from(pool[handle].bytes());
                    bytes += length;
                    if tag.buffered {
                        ingress[tag.ingress as usize][priority] += length;
                    }
                    handle = pool.next(handle);
                }
                if bytes != u64::from(frames.bytes) {
                    return Err(format!(
                        "the queue of port {port}, priority {priority}, holds {bytes} bytes but counts {}",
                        frames.bytes
                    ));
                }
                total += bytes;
            }
            if total != u64::from(self.ports[port].queued_bytes) {
                return Err(format!("the queues of port {port} hold {total} bytes"));
            }
        }
        self.audit_inputs(&ingress)?;
        self.audit_memories()?;
        self.audit_adapters(pool, in_stacks)
    }

    fn audit_inputs(&self, found: &[[u64; PRIORITIES]]) -> Result<(), String> {
        for (port, found) in found.iter().enumerate() {
            for (priority, &found) in found.iter().enumerate() {
                let counted = u64::from(self.inputs[port].bytes[priority]);
                if found != counted {
                    return Err(format!(
                        "the buffer behind port {port}, priority {priority}, holds {found} bytes but counts {counted}"
                    ));
                }
            }
        }
        Ok(())
    }

    fn audit_memories(&self) -> Result<(), String> {
        for switch in 0..self.memories.len() {
            let inputs = (0..self.specs.len())
                .filter(|&port| self.specs[port].far == Place::Switch(switch as u32));
            let held: u64 = inputs
                .map(|port| {
                    let in_headroom = self.headroom_used[port].iter();
                    let held = self.inputs[port].bytes.iter().zip(in_headroom);
                    held.map(|(&held, &in_headroom)| u64::from(held - in_headroom))
                        .sum::<u64>()
                })
                .sum();
            self.memories[switch].audit(switch, held)?;
        }
        Ok(())
    }

    fn audit_adapters<F: CeeFrame>(
        &self,
        pool: &Pool<F>,
        in_stacks: impl Fn(usize) -> u64,
    ) -> Result<(), String> {
        for (host, adapter) in self.adapters.iter().enumerate() {
            let (_, bytes) = self.count_adapter(pool, host);
            let counted: u64 = adapter.reserved_bytes().iter().sum();
            if bytes != adapter.queued_bytes() || bytes + in_stacks(host) != counted {
                return Err(format!(
                    "the adapter of host {host} holds {bytes} bytes and {} are on their way to it, but it counts {} and {}",
                    in_stacks(host),
                    adapter.queued_bytes(),
                    counted
                ));
            }
            let most = adapter.reserved_bytes().iter().max();
            if let Some(most) = most.filter(|&&most| most > self.config.adapter_bytes) {
                return Err(format!(
                    "the adapter of host {host} holds {most} bytes of a priority, of at most {}",
                    self.config.adapter_bytes
                ));
            }
        }
        Ok(())
    }
}
