//! Sums over flows that come and go.
//!
//! The kernel counts by flow, and forgets a flow with its counts. A ledger looks every few seconds
//! and adds what each flow has done since the look before, so that sums never fall. A flow that
//! ended stays in the table for [`sluicegate_core::abi::Config::closed_ns`] (10 s): a ledger that
//! looks more often misses nothing of it, except where its slot is needed sooner: the same ends
//! begin anew, its interface is detached, or the table is full.

use std::collections::{BTreeMap, HashMap};

use super::{
    Snapshot,
    amounts::{Amounts, FlowId},
    histogram::Histogram,
};
use crate::FlowRecord;

/// How long sums of an interface that is not attached any more are shown.
const RETENTION_NS: u64 = 3_600_000_000_000;

/// Bounds of smoothed RTTs, in seconds.
const SRTT_BOUNDS_S: [f64; 16] = [
    10e-6, 20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 0.1, 0.2,
    0.5, 1.0,
];

/// Bounds of windows, in bytes: powers of two up to the largest there is.
const WINDOW_BOUNDS_BYTES: [f64; 12] = [
    4096.0,
    8192.0,
    16384.0,
    32768.0,
    65536.0,
    131_072.0,
    262_144.0,
    524_288.0,
    1_048_576.0,
    2_097_152.0,
    4_194_304.0,
    8_388_608.0,
];

/// The owner of sums.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tenant {
    /// The interface's label, else its name.
    pub tenant: String,
    /// The interface.
    pub interface: String,
}

/// Sums of one tenant.
#[derive(Clone, Debug)]
pub struct Sums {
    /// By the rule that governs, as a position in the policy from 0; `None` = none.
    pub by_rule: BTreeMap<Option<u32>, Amounts>,
    /// Smoothed RTTs in seconds: of each flow one per look at which it had done something.
    pub srtt_s: Histogram,
    /// Windows that flows are, or would be, held to in bytes; counted as RTTs are.
    pub window_bytes: Histogram,
    attached_ns: u64,
}

impl Sums {
    fn new(attached_ns: u64) -> Self {
        Self {
            by_rule: BTreeMap::new(),
            srtt_s: Histogram::new(&SRTT_BOUNDS_S),
            window_bytes: Histogram::new(&WINDOW_BOUNDS_BYTES),
            attached_ns,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Ledger {
    known: HashMap<FlowId, Amounts>,
    sums: BTreeMap<Tenant, Sums>,
    looked: bool,
}

impl Ledger {
    /// Adds what has happened since the last look. What flows had done before the first one is not
    /// counted.
    pub fn look(&mut self, snapshot: &Snapshot) {
        self.update_tenants(snapshot);
        let mut now = HashMap::with_capacity(snapshot.flows.len());
        for flow in &snapshot.flows {
            let id = FlowId::of(flow);
            let amounts = Amounts::of(flow);
            let news = match self.known.get(&id) {
                Some(before) => amounts.since(*before),
                None if self.looked => amounts,
                None => Amounts::default(),
            };
            now.insert(id, amounts);
            self.add(flow, news, snapshot.at_ns);
        }
        self.known = now;
        self.looked = true;
    }

    /// The sums, by tenant.
    pub fn sums(&self) -> &BTreeMap<Tenant, Sums> {
        &self.sums
    }

    /// True once there is something that sums can be measured from.
    pub fn has_looked(&self) -> bool {
        self.looked
    }

    /// Keeps the sums of tenants whose interface is attached, or was until a while ago.
    fn update_tenants(&mut self, snapshot: &Snapshot) {
        for interface in &snapshot.interfaces {
            let tenant = Tenant {
                tenant: interface.tenant.clone(),
                interface: interface.interface.clone(),
            };
            self.sums
                .entry(tenant)
                .or_insert_with(|| Sums::new(snapshot.at_ns))
                .attached_ns = snapshot.at_ns;
        }
        self.sums
            .retain(|_, sums| snapshot.at_ns.saturating_sub(sums.attached_ns) <= RETENTION_NS);
    }

    fn add(&mut self, flow: &FlowRecord, news: Amounts, at_ns: u64) {
        let tenant = Tenant {
            tenant: flow.tenant.clone(),
            interface: flow.interface.clone(),
        };
        let sums = self.sums.entry(tenant).or_insert_with(|| Sums::new(at_ns));
        *sums.by_rule.entry(flow.rule).or_default() += news;
        if news.acked_bytes == 0 {
            return;
        }
        if let Some(srtt_us) = flow.srtt_us {
            sums.srtt_s.observe(srtt_us / 1e6);
        }
        if let Some(window_bytes) = flow.allowed_window_bytes {
            sums.window_bytes.observe(window_bytes as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::{InterfaceUse, exposition::tests::snapshot};

    fn acked(ledger: &Ledger, interface: &str) -> u64 {
        let sums = ledger
            .sums()
            .iter()
            .find(|(tenant, _)| tenant.interface == interface);
        let by_rule = &sums.unwrap().1.by_rule;
        by_rule.values().map(|amounts| amounts.acked_bytes).sum()
    }

    #[test]
    fn sums_outlive_flows() {
        let mut ledger = Ledger::default();
        let mut seen = snapshot();
        seen.flows[0].acked_bytes = 1_000;
        ledger.look(&seen);
        assert_eq!(acked(&ledger, "veth0"), 0, "what was before the first look");
        seen.flows[0].acked_bytes = 1_500;
        ledger.look(&seen);
        assert_eq!(acked(&ledger, "veth0"), 500);
        let flow = seen.flows.remove(0);
        ledger.look(&seen);
        assert_eq!(acked(&ledger, "veth0"), 500, "collected by the kernel");
        // Between the same ends a new flow begins: nothing of the old one is remembered.
        seen.flows.push(FlowRecord {
            acked_bytes: 2_000,
            ..flow
        });
        ledger.look(&seen);
        assert_eq!(acked(&ledger, "veth0"), 2_500);
        seen.flows.last_mut().unwrap().acked_bytes = 300;
        ledger.look(&seen);
        assert_eq!(acked(&ledger, "veth0"), 2_800, "and again, within one look");
    }

    #[test]
    fn only_flows_that_do_something_are_timed() {
        let mut ledger = Ledger::default();
        let mut seen = snapshot();
        ledger.look(&seen);
        ledger.look(&seen);
        let count = |ledger: &Ledger| {
            let sums = ledger.sums().values();
            sums.map(|sums| sums.srtt_s.count()).sum::<u64>()
        };
        assert_eq!(count(&ledger), 0);
        seen.flows[0].acked_bytes += 1;
        ledger.look(&seen);
        assert_eq!(count(&ledger), 1);
    }

    #[test]
    fn sums_of_interfaces_that_are_gone_are_dropped_after_a_while() {
        let mut ledger = Ledger::default();
        let mut seen = snapshot();
        seen.interfaces.push(InterfaceUse {
            interface: "gone".to_owned(),
            tenant: "gone".to_owned(),
            ..InterfaceUse::default()
        });
        ledger.look(&seen);
        assert_eq!(ledger.sums().len(), 2);
        seen.interfaces.pop();
        seen.at_ns += RETENTION_NS;
        ledger.look(&seen);
        assert_eq!(ledger.sums().len(), 2);
        seen.at_ns += 1;
        ledger.look(&seen);
        assert_eq!(ledger.sums().len(), 1);
    }
}
