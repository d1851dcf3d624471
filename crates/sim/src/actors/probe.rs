//! What a sender knows of its connection.

use sluicegate_scenario::workload::plan::SenderReport;

use super::Io;
use crate::net::EndId;

/// Counters of a connection at one time.
#[derive(Clone, Copy, Default)]
struct Reading {
    retransmits: u64,
    timeouts: u64,
    dsack: u64,
    acked: u64,
}

/// Watches a sender: a sample of its windows now and then, the difference over the measured time at the end.
pub struct SenderProbe {
    end: Option<EndId>,
    begin: Option<Reading>,
    report: SenderReport,
}

impl SenderProbe {
    /// For this flow.
    pub fn new(flow: u32) -> Self {
        Self {
            end: None,
            begin: None,
            report: SenderReport {
                flow,
                ..SenderReport::default()
            },
        }
    }

    /// The connection is established. Returns the time of the next sample.
    pub fn attach(&mut self, io: &Io<'_>, end: EndId) -> u64 {
        self.end = Some(end);
        self.sample(io)
    }

    fn reading(&self, io: &Io<'_>) -> Option<Reading> {
        let tcp = io.net.ends[self.end? as usize].tcp.as_ref()?;
        let stats = tcp.stats();
        Some(Reading {
            retransmits: stats.retransmits,
            timeouts: stats.timeouts,
            dsack: stats.dsack_received,
            acked: stats.acked_bytes,
        })
    }

    /// Takes a sample; returns the time of the next. One falls on the begin of the measured time.
    pub fn sample(&mut self, io: &Io<'_>) -> u64 {
        let now = io.now_ns();
        if let Some(tcp) = self
            .end
            .and_then(|end| io.net.ends[end as usize].tcp.as_ref())
        {
            let at_s = now as f64 / 1e9;
            self.report.cwnd.push((at_s, tcp.cwnd().into()));
            self.report.peer_window.push((at_s, tcp.snd_wnd()));
        }
        if now >= io.plan.measure_begin_ns && self.begin.is_none() {
            self.begin = if self.report.cwnd.len() == 1 {
                Some(Reading::default())
            } else {
                self.reading(io)
            };
        }
        io.plan.next_sample_ns(now)
    }

    /// The report; `None` if there never was a connection.
    pub fn finish(mut self, io: &Io<'_>) -> Option<SenderReport> {
        let end = self.reading(io)?;
        let begin = self.begin.unwrap_or_default();
        let tcp = io.net.ends[self.end? as usize].tcp.as_ref()?;
        let report = &mut self.report;
        report.mss_bytes = tcp.mss();
        report.retransmits = end.retransmits - begin.retransmits;
        report.timeouts = Some(end.timeouts - begin.timeouts);
        report.dsack_duplicates = end.dsack - begin.dsack;
        report.acked_bytes = end.acked - begin.acked;
        report.srtt_us = tcp.srtt_ns() / 1_000;
        Some(self.report)
    }
}
