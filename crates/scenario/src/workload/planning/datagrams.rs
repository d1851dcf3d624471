//! `kind = "datagrams"`.

use rand::RngExt;
use sluicegate_config::problem::Complaint;

use super::{Planner, Role, arrivals};
use crate::{experiment::Pace, workload::plan::Bursts};

impl Planner<'_> {
    pub(super) fn datagrams(
        &mut self,
        bytes: u16,
        pace: &Pace,
        socket_buffer_bytes: u64,
    ) -> Result<(), Complaint> {
        let span = self.span();
        for flow in self.flows {
            let role = Role::DatagramSource {
                flow: flow.id,
                peer: self.peer(flow),
                bytes,
                bursts: self.bursts(bytes, pace)?,
                socket_buffer_bytes,
                span,
            };
            self.give(flow.from, role);
            let (flow, port, to) = (flow.id, flow.port, flow.to);
            self.give(to, Role::DatagramSink { flow, port });
        }
        Ok(())
    }

    /// Of one sender: senders of one rate do not march in step.
    fn bursts(&mut self, bytes: u16, pace: &Pace) -> Result<Bursts, Complaint> {
        Ok(match pace {
            Pace::Rate(rate_bps) => {
                let interval_ns = u64::from(bytes) * 8_000_000_000 / (*rate_bps).max(1);
                Bursts::Rate {
                    rate_bps: *rate_bps,
                    phase_ns: self.rng.random_range(0..=interval_ns),
                }
            }
            Pace::Bursts {
                sizes,
                arrivals: intervals,
            } => {
                let times_ns = arrivals::times_ns(intervals, self.span(), &mut self.rng)?;
                let burst = |at_ns: f64| (at_ns as u64, arrivals::bytes(sizes, &mut self.rng));
                Bursts::Listed {
                    bursts: times_ns.into_iter().map(burst).collect(),
                }
            }
        })
    }
}
