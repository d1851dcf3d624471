//! Programs and pins that another process removes while the agent runs.

use tracing::{error, warn};

use super::Agent;

impl Agent<'_> {
    /// Forgets interfaces whose programs or pins another process has removed (`sluicegate detach
    /// --all`, `bpftool link detach`), so that they are attached anew if they are still wanted.
    pub(super) fn let_go_of_lost(&mut self) {
        match self.instance.restore_pins() {
            Ok(false) => {}
            Ok(true) => {
                warn!("another process removed the pins of this agent: pinned again");
                // The state that it had written went with them.
                self.written = None;
            }
            Err(error) => error!("pins that another process removed are not restored: {error:#}"),
        }
        let names = self.instance.interfaces();
        for index in self.instance.lost() {
            warn!(
                interface = names.get(&index),
                "another process has detached it: enforcement begins anew; to end it, stop this agent first"
            );
            self.forget(index, "another process has done it");
        }
    }
}
