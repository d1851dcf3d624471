//! The model of `top`: the flows of the last look with their rates, totals, and their history. No
//! input, no output.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::Serialize;
use sluicegate_agent::{
    FlowRecord,
    meter::{Amounts, FlowId, InterfaceUse, Snapshot},
};

use crate::flowtable::{Rates, Row};

/// Looks that are remembered for sparklines.
pub const HISTORY: usize = 240;

/// The values of one look that sparklines show.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Payload both ways, in bits per second.
    pub goodput_bps: f32,
    /// Part of the acknowledged bytes that met marks, 0 to 1.
    pub marked_share: f32,
    /// Smoothed RTT in µs; of several flows the mean over those that sent, by their bytes. 0 = no
    /// flow sent.
    pub srtt_us: f32,
}

/// The last looks, the newest at the end.
#[derive(Clone, Debug, Default)]
pub struct Trace(VecDeque<Point>);

impl Trace {
    fn push(&mut self, point: Point) {
        if self.0.len() == HISTORY {
            self.0.pop_front();
        }
        self.0.push_back(point);
    }

    /// From old to new.
    pub fn points(&self) -> impl DoubleEndedIterator<Item = &Point> + ExactSizeIterator {
        self.0.iter()
    }
}

/// Sums over flows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Flows.
    pub flows: usize,
    /// Of them, those that had packets lately.
    pub active: usize,
    /// Those whose packets are edited.
    pub enforced: usize,
    /// Those whose rule only observes.
    pub observed: usize,
    /// Those that are only watched.
    pub watched: usize,
    /// Of the active, those that are held, or would be, to less than their peer offers.
    pub limited: usize,
    /// Windows that active flows are held to, or would be, in bytes.
    pub allowed_window_bytes: u64,
    /// Windows that the peers of the same flows offer, in bytes.
    pub advertised_window_bytes: u64,
    /// Rates; `None` after the first look.
    pub rates: Option<Rates>,
    /// Smoothed RTT, the mean over those that sent, by their bytes, in µs.
    pub srtt_us: Option<f64>,
    #[serde(skip)]
    weighted_srtt: (f64, f64),
}

/// A tenant's share.
#[derive(Clone, Debug, Serialize)]
pub struct Tenant {
    /// The interface's label, else its name.
    pub tenant: String,
    /// Sums over its flows.
    #[serde(flatten)]
    pub totals: Totals,
    /// Most flows that it may have; 0 = no limit.
    pub quota: u32,
}

/// A counter of the programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Counter {
    /// Its name.
    pub name: String,
    /// Since the maps were made.
    pub value: u64,
    /// Per second; `None` after the first look.
    pub per_second: Option<f64>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Model {
    /// Flows of the last look, in the order of listings.
    pub rows: Vec<Row>,
    /// Tenants by name.
    pub tenants: Vec<Tenant>,
    /// All of it.
    pub totals: Totals,
    /// In the order of their names.
    pub counters: Vec<Counter>,
    /// Places in the table of flows.
    pub slots: u32,
    known: HashMap<FlowId, Known>,
    tenant_traces: BTreeMap<String, Trace>,
    trace: Trace,
    at_ns: Option<u64>,
}

#[derive(Debug)]
struct Known {
    amounts: Amounts,
    trace: Trace,
}

impl Model {
    /// Takes in another look. A second one at the same time is as none.
    pub fn update(&mut self, snapshot: Snapshot) {
        let seconds = match self.at_ns {
            Some(before) if snapshot.at_ns <= before => return,
            Some(before) => Some((snapshot.at_ns - before) as f64 / 1e9),
            None => None,
        };
        self.at_ns = Some(snapshot.at_ns);
        self.slots = snapshot.slots;
        self.count(&snapshot.counters, seconds);
        self.rows = self.rates(snapshot.flows, seconds);
        self.sum(&snapshot.interfaces, seconds.is_some());
    }

    /// The counter called `name`.
    pub fn counter(&self, name: &str) -> Option<&Counter> {
        self.counters.iter().find(|counter| counter.name == name)
    }

    /// The history of all flows.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The history of a tenant that has an interface.
    pub fn tenant_trace(&self, tenant: &str) -> Option<&Trace> {
        self.tenant_traces.get(tenant)
    }

    /// The history of a flow that is there.
    pub fn flow_trace(&self, flow: &FlowRecord) -> Option<&Trace> {
        self.known.get(&FlowId::of(flow)).map(|known| &known.trace)
    }

    /// Maps that are made anew count from zero.
    fn count(&mut self, now: &BTreeMap<String, u64>, seconds: Option<f64>) {
        let before: HashMap<&str, u64> = self
            .counters
            .iter()
            .map(|counter| (counter.name.as_str(), counter.value))
            .collect();
        self.counters = now
            .iter()
            .map(|(name, &value)| {
                let known = before.get(name.as_str()).copied().unwrap_or(0);
                let news = value.checked_sub(known).unwrap_or(value);
                Counter {
                    name: name.clone(),
                    value,
                    per_second: seconds.map(|seconds| news as f64 / seconds),
                }
            })
            .collect();
    }

    fn rates(&mut self, flows: Vec<FlowRecord>, seconds: Option<f64>) -> Vec<Row> {
        let mut known = HashMap::with_capacity(flows.len());
        let mut rows = Vec::with_capacity(flows.len());
        for flow in flows {
            let id = FlowId::of(&flow);
            let amounts = Amounts::of(&flow);
            let (before, mut trace) = match self.known.remove(&id) {
                Some(known) => (known.amounts, known.trace),
                None => (Amounts::default(), Trace::default()),
            };
            let rates = seconds.map(|seconds| Rates::of(amounts.since(before), seconds));
            if let Some(rates) = &rates {
                trace.push(point(rates, flow.srtt_us));
            }
            known.insert(id, Known { amounts, trace });
            rows.push(Row { flow, rates });
        }
        self.known = known;
        rows
    }

    fn sum(&mut self, interfaces: &[InterfaceUse], has_rates: bool) {
        let mut by_tenant: BTreeMap<&str, Tenant> = BTreeMap::new();
        for interface in interfaces {
            let tenant = by_tenant
                .entry(&interface.tenant)
                .or_insert_with(|| Tenant::new(&interface.tenant));
            tenant.quota += interface.quota;
        }
        let mut totals = Totals::default();
        for row in &self.rows {
            totals.add(row);
            by_tenant
                .entry(&row.flow.tenant)
                .or_insert_with(|| Tenant::new(&row.flow.tenant))
                .totals
                .add(row);
        }
        self.totals = totals.finished(has_rates);
        self.tenants = by_tenant
            .into_values()
            .map(|tenant| Tenant {
                totals: tenant.totals.finished(has_rates),
                ..tenant
            })
            .collect();
        self.remember();
    }

    fn remember(&mut self) {
        let Some(point) = self.totals.point() else {
            return;
        };
        self.trace.push(point);
        let mut before = std::mem::take(&mut self.tenant_traces);
        for tenant in &self.tenants {
            let mut trace = before.remove(&tenant.tenant).unwrap_or_default();
            trace.push(tenant.totals.point().unwrap_or_default());
            self.tenant_traces.insert(tenant.tenant.clone(), trace);
        }
    }
}

impl Tenant {
    fn new(tenant: &str) -> Self {
        Self {
            tenant: tenant.to_owned(),
            totals: Totals::default(),
            quota: 0,
        }
    }
}

impl Totals {
    fn add(&mut self, row: &Row) {
        let flow = &row.flow;
        self.flows += 1;
        self.active += usize::from(flow.is_active());
        self.enforced += usize::from(flow.enforced);
        self.observed += usize::from(flow.is_observed());
        self.watched += usize::from(!flow.enforced && !flow.is_observed());
        if let (Some(allowed), true) = (flow.allowed_window_bytes, flow.is_active()) {
            self.limited += usize::from(flow.is_limited());
            self.allowed_window_bytes += allowed;
            self.advertised_window_bytes += flow.advertised_window_bytes;
        }
        let Some(rates) = &row.rates else {
            return;
        };
        let sum = self.rates.get_or_insert_with(Rates::default);
        sum.acked_bps += rates.acked_bps;
        sum.marked_bps += rates.marked_bps;
        sum.received_bps += rates.received_bps;
        sum.losses_per_s += rates.losses_per_s;
        sum.policed_per_s += rates.policed_per_s;
        if let (Some(srtt_us), true) = (flow.srtt_us, rates.acked_bps > 0.0) {
            self.weighted_srtt.0 += srtt_us * rates.acked_bps;
            self.weighted_srtt.1 += rates.acked_bps;
        }
    }

    /// Ends a row: without a rate of its own it shows zeros, once any rates are known.
    fn finished(mut self, has_rates: bool) -> Self {
        if has_rates {
            self.rates.get_or_insert_with(Rates::default);
        }
        let (sum, weight) = self.weighted_srtt;
        self.srtt_us = (weight > 0.0).then(|| sum / weight);
        self
    }

    fn point(&self) -> Option<Point> {
        self.rates.as_ref().map(|rates| point(rates, self.srtt_us))
    }
}

/// A point of the plots. Its RTT counts only if the flow has sent data since the last look.
fn point(rates: &Rates, srtt_us: Option<f64>) -> Point {
    let srtt_us = srtt_us.filter(|_| rates.acked_bps > 0.0);
    Point {
        goodput_bps: (rates.acked_bps + rates.received_bps) as f32,
        marked_share: rates.marked_share().unwrap_or(0.0) as f32,
        srtt_us: srtt_us.unwrap_or(0.0) as f32,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::flowtable::tests::flow;
    use sluicegate_core::abi::PolicyTable;

    /// A look at this second.
    pub(crate) fn look(second: u64, flows: Vec<FlowRecord>) -> Snapshot {
        let interfaces = ["veth-a", "veth-b"].map(|name| InterfaceUse {
            interface: name.to_owned(),
            tenant: name.to_owned(),
            quota: 100,
            ..InterfaceUse::default()
        });
        Snapshot {
            at_ns: second * 1_000_000_000,
            flows,
            counters: BTreeMap::from([("packets".to_owned(), second * 50)]),
            interfaces: interfaces.to_vec(),
            buckets: Vec::new(),
            slots: 128,
            policy: Box::new(PolicyTable::default()),
        }
    }

    fn acked(port: u16, acked_bytes: u64) -> FlowRecord {
        FlowRecord {
            acked_bytes,
            ..flow("veth-a", port)
        }
    }

    fn sending(model: &Model) -> Vec<Option<f64>> {
        let rates = model.rows.iter().map(|row| row.rates);
        rates.map(|rates| Some(rates?.acked_bps)).collect()
    }

    #[test]
    fn rates_are_differences() {
        let mut model = Model::default();
        model.update(look(1, vec![acked(1, 1000)]));
        assert_eq!(sending(&model), [None]);
        assert_eq!(model.totals.rates, None);
        model.update(look(3, vec![acked(1, 1500)]));
        assert_eq!(sending(&model), [Some(2000.0)]);
        assert_eq!(model.counters[0].per_second, Some(50.0));
    }

    #[test]
    fn flows_that_vanish_and_come_again_begin_anew() {
        let mut model = Model::default();
        model.update(look(1, vec![acked(1, 1000), acked(2, 1000)]));
        model.update(look(2, vec![acked(1, 1000)]));
        assert_eq!(model.rows.len(), 1);
        assert!(model.flow_trace(&acked(2, 0)).is_none());
        // Between the same ends, with less or with more than the old one had.
        model.update(look(3, vec![acked(1, 100), acked(2, 3000)]));
        assert_eq!(sending(&model), [Some(800.0), Some(24_000.0)]);
        assert_eq!(model.flow_trace(&acked(2, 0)).unwrap().points().len(), 1);
        assert_eq!(model.flow_trace(&acked(1, 0)).unwrap().points().len(), 2);
    }

    #[test]
    fn a_second_look_at_the_same_time_changes_nothing() {
        let mut model = Model::default();
        model.update(look(1, vec![acked(1, 1000)]));
        model.update(look(1, Vec::new()));
        assert_eq!(model.rows.len(), 1);
    }

    #[test]
    fn counters_of_new_maps_count_from_zero() {
        let mut model = Model::default();
        model.update(look(10, Vec::new()));
        let mut fresh = look(11, Vec::new());
        fresh.counters.insert("packets".to_owned(), 7);
        model.update(fresh);
        assert_eq!(model.counter("packets").unwrap().per_second, Some(7.0));
    }

    #[test]
    fn tenants_sum_their_flows_and_the_idle_are_there_too() {
        let mut model = Model::default();
        let mut other = flow("veth-c", 3);
        other.srtt_us = Some(1_000.0);
        model.update(look(1, vec![acked(1, 0), acked(2, 0), other.clone()]));
        other.acked_bytes += 1000;
        other.reason = None;
        other.enforced = true;
        model.update(look(2, vec![acked(1, 3000), acked(2, 0), other]));
        let names: Vec<&str> = model.tenants.iter().map(|t| t.tenant.as_str()).collect();
        assert_eq!(names, ["veth-a", "veth-b", "veth-c"]);
        let totals = |index: usize| &model.tenants[index].totals;
        assert_eq!((totals(0).flows, totals(0).observed), (2, 2));
        assert_eq!(totals(0).rates.unwrap().acked_bps, 24_000.0);
        assert_eq!(totals(1).rates, Some(Rates::default()));
        assert_eq!((totals(2).enforced, totals(2).observed), (1, 0));
        // 250 µs for three quarters of the bytes, 1000 for the rest.
        assert_eq!(model.totals.srtt_us, Some(437.5));
        assert_eq!((model.totals.limited, model.totals.active), (3, 3));
        assert_eq!(model.totals.allowed_window_bytes, 3 * 20_480);
        assert_eq!(model.tenant_trace("veth-b").unwrap().points().len(), 1);
    }

    #[test]
    fn windows_of_flows_that_are_silent_count_for_nothing() {
        let mut model = Model::default();
        let mut silent = flow("veth-a", 1);
        silent.idle_ms = 60_000;
        model.update(look(1, vec![silent, flow("veth-a", 2)]));
        let totals = &model.totals;
        assert_eq!((totals.flows, totals.active, totals.limited), (2, 1, 1));
        assert_eq!(totals.allowed_window_bytes, 20_480);
    }

    #[test]
    fn history_is_bounded() {
        let mut model = Model::default();
        for second in 1..=HISTORY as u64 + 50 {
            model.update(look(second, vec![acked(1, second * 125)]));
        }
        assert_eq!(model.trace().points().len(), HISTORY);
        let last = model.trace().points().next_back().unwrap();
        assert_eq!(last.goodput_bps, 1000.0);
    }
}
