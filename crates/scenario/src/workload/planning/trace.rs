//! `kind = "trace"`.

use rand::RngExt;
use sluicegate_config::problem::Complaint;

use super::{Connections, Flow, MAX_ARRIVALS, Planner, Schedule, Transfer, arrivals};
use crate::{
    cdf::Cdf,
    experiment::{IntraRack, Load, TrafficKind},
    workload::plan::Arrival,
};

/// Messages that each sender of a closed loop draws before it begins again.
const TRANSFERS: usize = 10_000;

/// The peers, by number, among which a sender draws.
struct Peers {
    count: u32,
    /// Of its rack and of others, and the fraction that goes to the former.
    racks: Option<(Vec<u32>, Vec<u32>, f64)>,
}

impl Planner<'_> {
    pub(super) fn trace(&mut self) -> Result<(), Complaint> {
        let TrafficKind::Trace {
            sizes,
            load,
            classes,
            intra_rack,
        } = &self.traffic.kind
        else {
            return Ok(());
        };
        let names: Vec<String> = classes.iter().map(|(_, name)| name.clone()).collect();
        for (sender, own) in self.by_sender.clone() {
            let peers = peers(sender, &own, intra_rack.as_ref());
            let schedule = match load {
                Load::Offered(load_bps) => Schedule::Open {
                    arrivals: self.poisson(sizes, *load_bps, classes, &peers)?,
                },
                Load::Arrivals(intervals) => {
                    let times_ns = arrivals::times_ns(intervals, self.span(), &mut self.rng)?;
                    let message = |at_ns| self.message(at_ns, sizes, classes, &peers);
                    Schedule::Open {
                        arrivals: times_ns.into_iter().map(message).collect(),
                    }
                }
                Load::Concurrent(parallel) => Schedule::Closed {
                    transfers: self.transfers(sizes, classes, &peers),
                    parallel: *parallel,
                },
            };
            self.message_source((sender, &own), schedule, Connections::Pool, &names);
        }
        self.message_sinks(&names);
        Ok(())
    }

    fn draw_peer(&mut self, peers: &Peers) -> u32 {
        let Some((near, far, fraction)) = &peers.racks else {
            return self.rng.random_range(0..peers.count);
        };
        let stays = self.rng.random::<f64>() < *fraction;
        let among = if stays { near } else { far };
        match among.len() {
            0 => self.rng.random_range(0..peers.count),
            count => among[self.rng.random_range(0..count)],
        }
    }

    /// Sizes and peers by lot, the next message when one is complete.
    fn transfers(
        &mut self,
        sizes: &Cdf,
        classes: &[(u64, String)],
        peers: &Peers,
    ) -> Vec<Transfer> {
        let transfer = |_| {
            let bytes = sizes.sample(self.rng.random::<f64>()).max(1);
            Transfer {
                peer: self.draw_peer(peers),
                bytes,
                class: class_of(bytes, classes),
            }
        };
        (0..TRANSFERS).map(transfer).collect()
    }

    /// Poisson arrivals whose mean size times rate is the load.
    fn poisson(
        &mut self,
        sizes: &Cdf,
        load_bps: u64,
        classes: &[(u64, String)],
        peers: &Peers,
    ) -> Result<Vec<Arrival>, Complaint> {
        let span = self.span();
        let per_ns = load_bps as f64 / 8.0 / sizes.mean_bytes() / 1e9;
        let expected = per_ns * span.end_ns.saturating_sub(span.begin_ns) as f64;
        if expected.is_nan() || expected > MAX_ARRIVALS {
            return Err(arrivals::too_many(expected));
        }
        let mut arrivals = Vec::with_capacity(expected as usize + 16);
        let mut at_ns = span.begin_ns as f64;
        loop {
            at_ns += -f64::ln(1.0 - self.rng.random::<f64>()) / per_ns;
            if at_ns >= span.end_ns as f64 {
                return Ok(arrivals);
            }
            arrivals.push(self.message(at_ns, sizes, classes, peers));
        }
    }

    /// Its size, and its peer.
    fn message(
        &mut self,
        at_ns: f64,
        sizes: &Cdf,
        classes: &[(u64, String)],
        peers: &Peers,
    ) -> Arrival {
        let bytes = sizes.sample(self.rng.random::<f64>()).max(1);
        Arrival {
            at_ns: at_ns as u64,
            peer: self.draw_peer(peers),
            bytes,
            class: class_of(bytes, classes),
        }
    }
}

fn peers(sender: usize, own: &[&Flow], intra_rack: Option<&IntraRack>) -> Peers {
    let racks = intra_rack.map(|intra| {
        let here = intra.racks[sender];
        let (near, far) = (0..)
            .zip(own)
            .partition::<Vec<_>, _>(|(_, flow)| intra.racks[flow.to] == here);
        let numbers = |peers: Vec<(u32, _)>| peers.into_iter().map(|(at, _)| at).collect();
        (numbers(near), numbers(far), intra.fraction)
    });
    Peers {
        count: own.len() as u32,
        racks,
    }
}

/// Index of the first class whose bound is larger.
fn class_of(bytes: u64, classes: &[(u64, String)]) -> u16 {
    let fitting = classes.iter().position(|(bound, _)| bytes < *bound);
    fitting.unwrap_or(classes.len().saturating_sub(1)) as u16
}
