//! Follows one sending connection through `TCP_INFO`.

use crate::tenant::{
    io::{Io, SocketId},
    plan::SenderReport,
    socket::{self, OPTION_ECN, TcpInfo},
};

/// Watches a sender: a sample now and then, the difference over the measured window at the end.
pub struct SenderProbe {
    socket: Option<SocketId>,
    begin: Option<TcpInfo>,
    last: Option<(TcpInfo, bool)>,
    next_ns: u64,
    report: SenderReport,
}

impl SenderProbe {
    /// For this flow; nothing happens before [`SenderProbe::attach`].
    pub fn new(flow: u32) -> Self {
        let report = SenderReport {
            flow,
            ..SenderReport::default()
        };
        Self {
            socket: None,
            begin: None,
            last: None,
            next_ns: 0,
            report,
        }
    }

    /// The connection is established. Returns the time of the first sample.
    pub fn attach(&mut self, io: &Io, socket: SocketId) -> u64 {
        self.socket = Some(socket);
        if let Some(fd) = io.fd(socket) {
            self.report.local_port = socket::local_port(fd);
            self.report.congestion_control = socket::congestion_control(fd);
        }
        self.sample(io)
    }

    /// Takes a sample; returns the time of the next. One falls on the begin of the measured window.
    pub fn sample(&mut self, io: &Io) -> u64 {
        let (now, plan) = (io.now_ns(), io.plan());
        if let Some((info, has_timeouts)) = self
            .socket
            .and_then(|socket| io.fd(socket))
            .and_then(TcpInfo::read)
        {
            let at_s = now as f64 / 1e9;
            self.report.cwnd.push((at_s, info.cwnd_bytes()));
            self.report
                .peer_window
                .push((at_s, u64::from(info.snd_wnd)));
            if now < plan.measure_end_ns || self.begin.is_none() {
                self.last = Some((info, has_timeouts));
            }
            if now >= plan.measure_begin_ns && self.begin.is_none() {
                self.begin = Some(if self.report.cwnd.len() == 1 {
                    TcpInfo::default()
                } else {
                    info
                });
            }
        }
        self.next_ns = plan.next_sample_ns(now);
        self.next_ns
    }

    /// Last look, then the report; `None` if there never was a connection.
    pub fn finish(mut self, io: &Io) -> Option<SenderReport> {
        self.sample(io);
        if let Some(reading) = self
            .socket
            .and_then(|socket| io.fd(socket))
            .and_then(TcpInfo::read)
        {
            self.last = Some(reading);
        }
        let (end, has_timeouts) = self.last?;
        let begin = self.begin.unwrap_or_default();
        let report = &mut self.report;
        report.ecn = end.options & OPTION_ECN != 0;
        report.mss_bytes = end.snd_mss;
        report.retransmits = u64::from(end.total_retrans.wrapping_sub(begin.total_retrans));
        report.timeouts =
            has_timeouts.then(|| u64::from(end.total_rto.wrapping_sub(begin.total_rto)));
        report.dsack_duplicates = u64::from(end.dsack_dups.wrapping_sub(begin.dsack_dups));
        report.reordering = u64::from(end.reord_seen.wrapping_sub(begin.reord_seen));
        report.delivered_ce = u64::from(end.delivered_ce.wrapping_sub(begin.delivered_ce));
        report.acked_bytes = end.bytes_acked.saturating_sub(begin.bytes_acked);
        report.srtt_us = u64::from(end.rtt);
        report.min_rtt_us = u64::from(end.min_rtt);
        report.rwnd_limited_us = end.rwnd_limited.saturating_sub(begin.rwnd_limited);
        Some(self.report)
    }
}
