//! Checks that frames and bytes, counted one by one, are those that the owners count.

use super::{Cee, CeeFrame};
use crate::{
    graph::{HostId, PortId},
    pool::Pool,
};

impl Cee {
    /// Frames in adapters, in switches and on wires.
    pub fn underway<F: CeeFrame>(&self, pool: &Pool<F>) -> u64 {
        self.out.underway(pool) + self.adapters.underway(pool)
    }

    /// Checks that buffers, queues and adapters count the bytes of the frames in them, that none
    /// holds more than its bound, and that ports know their paused priorities. `in_stacks` gives
    /// the bytes on their way down the stack to each adapter.
    ///
    /// # Errors
    /// The first difference.
    pub fn audit<F: CeeFrame>(
        &self,
        pool: &Pool<F>,
        in_stacks: impl Fn(HostId) -> u64,
    ) -> Result<(), String> {
        let buffered = self.out.audit(pool)?;
        self.buffers.audit(&buffered)?;
        for (port, pauses) in PortId::enumerate(&self.pauses) {
            let audit = pauses.audit(self.out[port].shut());
            audit.map_err(|what| format!("port {port} {what}"))?;
        }
        self.points.audit(self.out.notifications())?;
        self.adapters.audit(pool, in_stacks)
    }
}
