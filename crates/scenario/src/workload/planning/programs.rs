//! Plans of parallel programs.

use std::{net::SocketAddr, sync::Arc};

use super::Planner;
use crate::{
    experiment::TrafficKind,
    workload::plan::{Partner, Role},
};

impl Planner<'_> {
    pub(super) fn program(&mut self) {
        let TrafficKind::Program {
            program,
            tenants,
            eager_bytes,
            datagram_bytes,
            begins_together,
            ..
        } = &self.traffic.kind
        else {
            return;
        };
        let address = |rank: u32| {
            let tenant = tenants[rank as usize];
            SocketAddr::new(self.variant.tenants[tenant].address, self.traffic.port)
        };
        let mut partners = vec![Vec::new(); tenants.len()];
        for (flow, (low, high)) in self.flows.iter().zip(program.pairs()) {
            for (me, rank) in [(low, high), (high, low)] {
                partners[me as usize].push(Partner {
                    rank,
                    flow: flow.id,
                    address: address(rank),
                });
            }
        }
        let (port, span) = (self.traffic.port, self.span());
        let traffic = self.variant.traffic.iter();
        let index = traffic.take_while(|other| other.name != self.traffic.name);
        let traffic = index.count() as u32;
        let checks_sizes = program.has_wildcards();
        for (rank, (tenant, mut partners)) in (0..).zip(tenants.iter().zip(partners)) {
            partners.sort_by_key(|partner| partner.rank);
            let role = Role::Rank {
                traffic,
                rank,
                port,
                partners,
                datagram_bytes: *datagram_bytes,
                eager_bytes: *eager_bytes,
                operations: Arc::clone(&program.ranks[rank as usize]),
                checks_sizes,
                span,
                begins_together: *begins_together,
            };
            self.give(*tenant, role);
        }
    }
}
