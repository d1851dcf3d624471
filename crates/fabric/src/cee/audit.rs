//! Nothing is lost unseen: frames and bytes, counted one by one, are what the books say.

use super::{Cee, CeeFrame};
use crate::pool::Pool;

impl Cee {
    /// Frames in adapters, in switches and on wires.
    pub fn underway<F: CeeFrame>(&self, pool: &Pool<F>) -> u64 {
        self.out.underway(pool) + self.adapters.underway(pool)
    }

    /// Asserts that the bytes of buffers, queues and adapters are those of the frames in them, that none holds more than
    /// it may, and that ports know of their pauses. `in_stacks` are bytes on their way to each adapter.
    ///
    /// # Errors
    /// The first that is not.
    pub fn audit<F: CeeFrame>(
        &self,
        pool: &Pool<F>,
        in_stacks: impl Fn(usize) -> u64,
    ) -> Result<(), String> {
        let buffered = self.out.audit(pool)?;
        self.buffers.audit(&buffered)?;
        for (port, (pauses, state)) in self.pauses.iter().zip(&self.out.ports).enumerate() {
            let audit = pauses.audit(state.shut);
            audit.map_err(|what| format!("port {port} {what}"))?;
        }
        self.points.audit(self.out.notifications())?;
        self.adapters.audit(pool, in_stacks)
    }
}
