//! Priorities of converged Ethernet that have a scheme of their own.

use std::sync::Arc;

use super::{Query, Routes, Scheme, State};
use crate::{cee::PRIORITIES, graph::PortId};

/// By priority; `None` = the network's scheme.
pub(super) type Own = [Option<Arc<Routes>>; PRIORITIES];

impl Routes {
    /// The same routes where some priorities have others: each with its priorities, bit p for
    /// priority p.
    #[must_use]
    pub fn with_own(mut self, routes: impl IntoIterator<Item = (u8, Self)>) -> Self {
        let mut own = Own::default();
        for (priorities, routes) in routes {
            let routes = Arc::new(routes);
            for (priority, own) in own.iter_mut().enumerate() {
                if priorities >> priority & 1 != 0 {
                    *own = Some(Arc::clone(&routes));
                }
            }
        }
        self.own = own.iter().any(Option::is_some).then(|| Box::new(own));
        self
    }

    /// Whether some priority has routes of its own: who asks [`Scheme::choose`] then asks
    /// [`Routes::choose_own`] first.
    pub fn has_own(&self) -> bool {
        self.own.is_some()
    }

    /// The routes of a priority, 0..=7.
    pub fn of(&self, priority: u8) -> &Self {
        self.own_of(priority).unwrap_or(self)
    }

    pub(super) fn own_of(&self, priority: u8) -> Option<&Self> {
        self.own.as_ref()?[usize::from(priority)].as_deref()
    }

    /// [`Scheme::choose`] for a packet of this priority; `None` if its priority has no routes of
    /// its own.
    pub fn choose_own(
        &self,
        priority: u8,
        query: Query,
        load: impl FnMut(PortId) -> u64,
        state: &mut State,
    ) -> Option<PortId> {
        let routes = self.own_of(priority)?;
        routes.choose(query, load, state.of_priority(priority))
    }
}
