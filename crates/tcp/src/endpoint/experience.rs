//! The state that one connection takes over from those before it, and leaves to those after it:
//! [`crate::Cache`].

use sluicegate_core::{cc::SSTHRESH_UNKNOWN, number::at_most};

use super::{Endpoint, Phase};
use crate::{cache::Experience, config::CacheWindow};

impl Endpoint {
    /// The handshake is complete: begins with what is known of the peer. The round trip decides the
    /// first timeout only (Linux); a threshold is two segments at least (FreeBSD).
    pub fn benefit(&mut self, known: &Experience) {
        if !self.config.cache {
            return;
        }
        self.rtt.expect(known.rtt_ns, &self.config.rto);
        self.rack.reordering |= known.reordering;
        if self.config.cache_ssthresh && known.ssthresh != 0 {
            self.cc.ssthresh = known.ssthresh.max(2 * self.mss);
        }
        let kept = match self.config.cache_window {
            CacheWindow::Unused => 0,
            CacheWindow::Half => known.cwnd / 2,
            CacheWindow::Whole => known.cwnd,
        };
        if kept != 0 {
            self.inherit_window(kept);
        }
    }

    /// No more than the peer takes and the send buffer holds.
    fn inherit_window(&mut self, bytes: u32) {
        let most = self.snd_wnd.min(self.config.send_buffer.initial_bytes);
        self.cc.cwnd = bytes.min(at_most::<u32>(most)).max(2 * self.mss);
    }

    /// The experience with the peer when this connection ends, given the `known` one from before;
    /// `None` if nothing is to be kept. Linux's rules (`tcp_update_metrics`).
    pub fn experience(&self, known: Experience) -> Option<Experience> {
        if !self.config.cache {
            return None;
        }
        let srtt_ns = self.rtt.srtt();
        if srtt_ns == 0 || self.rtt.backs_off() {
            // Nothing has come back in time: what was believed may be wrong.
            return (known.rtt_ns != 0).then_some(Experience { rtt_ns: 0, ..known });
        }
        let rtt_ns = if srtt_ns >= known.rtt_ns {
            srtt_ns
        } else {
            known.rtt_ns - (known.rtt_ns - srtt_ns) / 8
        };
        Some(Experience {
            rtt_ns,
            ssthresh: self.ssthresh_to_keep(known.ssthresh),
            reordering: known.reordering || self.rack.reordering,
            cwnd: self.cwnd_to_keep(known.cwnd),
        })
    }

    fn cwnd_to_keep(&self, known: u32) -> u32 {
        match self.config.cache_window {
            CacheWindow::Unused => 0,
            CacheWindow::Half if known != 0 => known.midpoint(self.cc.cwnd),
            CacheWindow::Half | CacheWindow::Whole => self.cc.cwnd,
        }
    }

    /// In the first slow start and during a reduction a known one can only grow; in congestion
    /// avoidance half of the window is the better one.
    fn ssthresh_to_keep(&self, known: u32) -> u32 {
        let (cwnd, ssthresh) = (self.cc.cwnd, self.cc.ssthresh);
        let raised = |to: u32| if known == 0 { 0 } else { known.max(to) };
        if !self.config.cache_ssthresh {
            known
        } else if ssthresh == SSTHRESH_UNKNOWN {
            raised(cwnd / 2)
        } else if cwnd >= ssthresh && self.phase == Phase::Open {
            ssthresh.max(cwnd / 2)
        } else {
            raised(ssthresh)
        }
    }
}
