//! Counts payload over time.

use std::mem;

use sluicegate_core::number::index;
use sluicegate_scenario::workload::plan::{Plan, ReceiverReport};

/// The counts of a receiver of one flow.
pub struct Meter {
    bins: Vec<u64>,
    last_ns: u64,
    report: ReceiverReport,
}

impl Meter {
    /// For this flow.
    pub fn new(flow: u32) -> Self {
        Self {
            bins: Vec::new(),
            last_ns: 0,
            report: ReceiverReport {
                flow,
                ..ReceiverReport::default()
            },
        }
    }

    /// These bytes arrived at `now_ns` after the start of the run.
    pub fn count(&mut self, plan: &Plan, now_ns: u64, bytes: u64) {
        self.report.total_bytes += bytes;
        if plan.measures(now_ns) {
            self.report.measured_bytes += bytes;
            self.count_gap(plan, now_ns);
        }
        if plan.verify {
            self.report.verified_bytes += bytes;
        }
        let bin = index(now_ns / plan.series_interval_ns.max(1));
        if self.bins.len() <= bin {
            self.bins.resize(bin + 1, 0);
        }
        self.bins[bin] += bytes;
    }

    /// Nothing has arrived between the last time and now.
    fn count_gap(&mut self, plan: &Plan, now_ns: u64) {
        let since_ns = self.last_ns.max(plan.measure_begin_ns);
        let gap_ns = now_ns.saturating_sub(since_ns);
        self.report.longest_gap_ns = self.report.longest_gap_ns.max(gap_ns);
        self.last_ns = now_ns;
    }

    /// Counts and series; nothing is left to count.
    pub fn finish(&mut self, plan: &Plan) -> ReceiverReport {
        self.count_gap(plan, plan.measure_end_ns);
        let width_s = plan.series_interval_ns as f64 / 1e9;
        let bins = self.bins.iter().enumerate();
        self.report.series = bins
            .map(|(bin, bytes)| ((bin + 1) as f64 * width_s, *bytes))
            .collect();
        mem::take(&mut self.report)
    }
}
