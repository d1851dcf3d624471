//! Checks that frames and bytes, counted one by one, are those that the owners count.

use super::{Cee, CeeFrame};
use crate::{
    carried::{Period, Sent},
    graph::{HostId, PortId},
    pool::Pool,
};

impl Cee {
    /// What a port has sent, the frame that it is sending included.
    pub(super) fn sent(&self, port: PortId) -> Sent {
        let stats = self.out.stats(port);
        Sent {
            frames: stats.accepted,
            bytes: (stats.accepted_bytes).saturating_sub(self.backlog_bytes(port)),
            until_ps: self.out[port].free_ps(),
        }
    }

    /// Checks the period that ends for a port, which has caught up; a further one begins.
    pub(super) fn begin_period(&mut self, port: PortId, now_ps: u64, rate_bps: u64) {
        let checked = self.check_rate(port);
        self.excess = self.excess.take().or(checked.err());
        let mut sent = self.sent(port);
        sent.until_ps = sent.until_ps.max(now_ps);
        self.periods[port.index()] = Period::after(sent, rate_bps);
    }

    /// Checks that a port has sent no more than its rate allows.
    fn check_rate(&self, port: PortId) -> Result<(), String> {
        let checked = self.periods[port.index()].check(self.sent(port), 0);
        checked.map_err(|what| format!("port {port} {what}"))
    }

    /// Frames in adapters, in switches and on wires.
    pub fn underway<F: CeeFrame>(&self, pool: &Pool<F>) -> u64 {
        self.out.underway(pool) + self.adapters.underway(pool)
    }

    /// Checks that buffers, queues and adapters count the bytes of the frames in them, that none
    /// holds more than its bound, that ports know their paused priorities, and that none has sent
    /// more than its rate allows. `in_stacks` gives the bytes on their way down the stack to each
    /// adapter.
    ///
    /// # Errors
    /// The first difference.
    pub fn audit<F: CeeFrame>(
        &self,
        pool: &Pool<F>,
        in_stacks: impl Fn(HostId) -> u64,
    ) -> Result<(), String> {
        self.excess.clone().map_or(Ok(()), Err)?;
        PortId::first(self.len()).try_for_each(|port| self.check_rate(port))?;
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
