//! Series of what enforcement knows about the bulk flows.

use std::collections::BTreeMap;

use super::Flow;
use crate::{
    experiment::Variant,
    results::{Series, SeriesKind},
};
use sluicegate_core::abi::{Flow as Tracked, FlowKey};

/// (seconds since the start of the run, value).
type Points = Vec<(f64, f64)>;

/// Windows and alphas of bulk flows over time, by flow id.
#[derive(Debug, Default)]
pub struct Windows {
    by_ends: BTreeMap<Ends, u32>,
    window: BTreeMap<u32, Points>,
    alpha: BTreeMap<u32, Points>,
}

/// (sender's address, receiver's address, receiver's port) of a flow.
type Ends = (std::net::IpAddr, std::net::IpAddr, u16);

impl Windows {
    /// Follows the bulk flows of a variant.
    pub fn new(variant: &Variant, flows: &[Flow]) -> Self {
        let bulk = |flow: &&Flow| variant.traffic[flow.traffic].kind.is_bulk();
        let ends = |flow: &Flow| {
            (
                variant.tenants[flow.from].address,
                variant.tenants[flow.to].address,
                flow.port,
            )
        };
        let by_ends = flows
            .iter()
            .filter(bulk)
            .map(|flow| (ends(flow), flow.id))
            .collect();
        Self {
            by_ends,
            ..Self::default()
        }
    }

    /// Adds one reading of all flow tables. Only the sender's host knows the window of a flow.
    pub fn add<'a>(
        &mut self,
        now_s: f64,
        tracked: impl IntoIterator<Item = (&'a FlowKey, &'a Tracked)>,
    ) {
        for (key, flow) in tracked {
            let ends = (
                key.local.to_ip(),
                key.remote.to_ip(),
                u16::from_be(key.remote_port),
            );
            if let Some(&id) = self.by_ends.get(&ends) {
                self.window
                    .entry(id)
                    .or_default()
                    .push((now_s, f64::from(flow.enforced_window())));
                self.alpha
                    .entry(id)
                    .or_default()
                    .push((now_s, flow.cc.alpha()));
            }
        }
    }

    /// Enforced window of a flow over time in bytes.
    pub fn window(&self, flow: u32) -> Option<&[(f64, f64)]> {
        self.window.get(&flow).map(Vec::as_slice)
    }

    /// As series named by `name`.
    pub fn into_series(self, name: impl Fn(u32) -> String) -> Vec<Series> {
        let series = |kind: SeriesKind, by_flow: BTreeMap<u32, Points>| {
            let name = &name;
            by_flow
                .into_iter()
                .map(move |(flow, points)| Series {
                    name: name(flow),
                    kind,
                    points,
                })
                .collect::<Vec<_>>()
        };
        let mut all = series(SeriesKind::EnforcedWindowBytes, self.window);
        all.extend(series(SeriesKind::Alpha, self.alpha));
        all
    }
}
