//! A sender's knowledge of its connection.

use std::mem;

use sluicegate_scenario::workload::plan::SenderReport;

use crate::io::{Io, SenderState, SocketId};

/// Watches a sender: a sample of its windows now and then, the difference over the measured time at
/// the end.
pub struct SenderProbe {
    socket: Option<SocketId>,
    begin: Option<SenderState>,
    /// The last look, for a connection that is gone.
    last: Option<SenderState>,
    report: SenderReport,
}

impl SenderProbe {
    /// For this flow.
    pub fn new(flow: u32) -> Self {
        Self {
            socket: None,
            begin: None,
            last: None,
            report: SenderReport {
                flow,
                ..SenderReport::default()
            },
        }
    }

    /// The connection is established. Takes the first sample; `key` is that of the timer for the
    /// others.
    pub fn attach<I: Io>(&mut self, io: &mut I, socket: SocketId, key: u64) {
        self.socket = Some(socket);
        io.describe(socket, &mut self.report);
        self.sample(io, key);
    }

    /// Takes a sample, and sets the timer for the next. One falls on the begin of the measured
    /// time.
    pub fn sample<I: Io>(&mut self, io: &mut I, key: u64) {
        let now = io.now_ns();
        let state = self.socket.and_then(|socket| io.sender(socket));
        if let Some(state) = state {
            let at_s = now as f64 / 1e9;
            self.report.cwnd.push((at_s, state.cwnd_bytes));
            self.report
                .peer_window
                .push((at_s, state.peer_window_bytes));
            self.last = Some(state);
        }
        if now >= io.plan().measure_begin_ns && self.begin.is_none() {
            self.begin = if self.report.cwnd.len() == 1 {
                Some(SenderState::default())
            } else {
                state
            };
        }
        let next = io.plan().next_sample_ns(now);
        io.timer(next, key);
    }

    /// The report; `None` if there never was a connection.
    pub fn finish<I: Io>(&mut self, io: &I) -> Option<SenderReport> {
        let end = io.sender(self.socket?).or(self.last)?;
        let begin = self.begin.unwrap_or_default();
        let report = &mut self.report;
        let growth = |count: fn(&SenderState) -> u64| count(&end).saturating_sub(count(&begin));
        report.ecn = end.ecn;
        report.mss_bytes = end.mss_bytes;
        report.retransmits = growth(|state| state.retransmits);
        report.timeouts = (end.timeouts).map(|_| growth(|state| state.timeouts.unwrap_or(0)));
        report.dsack_duplicates = growth(|state| state.dsack_duplicates);
        report.reordering = growth(|state| state.reordering);
        report.delivered_ce = growth(|state| state.delivered_ce);
        report.acked_bytes = growth(|state| state.acked_bytes);
        report.srtt_us = end.srtt_us;
        report.min_rtt_us = end.min_rtt_us;
        report.rwnd_limited_us = growth(|state| state.rwnd_limited_us);
        Some(mem::take(report))
    }
}
