//! `struct tcp_info`, as far as the endpoint tells, and what has limited a connection until now.

use std::collections::VecDeque;

use sluicegate_tcp::{AccurateInfo, Congestion, Endpoint, OptionSeen, State};

use crate::{
    host::{Connection, Host},
    packet::Packet,
    socket::Role,
};

/// For how long each cause has held the sender back, in ns (Linux's `tcp_chrono`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Data waited in the socket or was out.
    busy_ns: u64,
    /// Of that: the peer's window was full.
    window_ns: u64,
    /// Of that: the application waited for the send buffer and everything in it was out.
    buffer_ns: u64,
    now: Limit,
    since_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Limit {
    #[default]
    Idle,
    Busy,
    Window,
    Buffer,
}

impl Limits {
    /// The connection is now like this; `full`: a writer waits.
    pub fn note(&mut self, endpoint: &Endpoint, full: bool, now_ns: u64) {
        self.count_until(now_ns);
        let info = endpoint.info();
        self.now = if endpoint.unacknowledged() == 0 {
            Limit::Idle
        } else if info.window_limited && !info.cwnd_limited {
            Limit::Window
        } else if full && info.unsent == 0 && !info.cwnd_limited {
            Limit::Buffer
        } else {
            Limit::Busy
        };
    }

    /// Adds the time since the last change to what limited the sender meanwhile.
    fn count_until(&mut self, now_ns: u64) {
        let passed = now_ns.saturating_sub(self.since_ns);
        self.since_ns = now_ns;
        if self.now != Limit::Idle {
            self.busy_ns += passed;
        }
        match self.now {
            Limit::Window => self.window_ns += passed,
            Limit::Buffer => self.buffer_ns += passed,
            Limit::Idle | Limit::Busy => (),
        }
    }

    fn at(mut self, now_ns: u64) -> Self {
        self.count_until(now_ns);
        self
    }
}

/// Segments that the peer has told of, by ACK (Linux's `tcpi_delivered`).
#[derive(Clone, Debug, Default)]
pub struct Delivered {
    /// Where segments that are out end, in order; relative.
    ends: VecDeque<u32>,
    count: u64,
}

impl Delivered {
    /// A segment has left; what is sent again may be cut otherwise.
    pub fn left(&mut self, una: u32, packet: &Packet) {
        let end = packet.end();
        if end != packet.seq && end > una {
            if let Err(at) = self.ends.binary_search(&end) {
                self.ends.insert(at, end);
            }
        }
    }

    /// All before `una` is acknowledged. A SYN counts as one, with its data or without.
    pub fn acknowledged(&mut self, una: u32) {
        let opens = self.count == 0 && una > 0;
        let acked = self.ends.partition_point(|end| *end <= una);
        self.ends.drain(..acked);
        self.count += if opens { 1 } else { acked as u64 };
    }
}

/// The value of a name in code.
pub fn value(host: &Host, name: &str) -> Option<i64> {
    let Some(connection) = host.connection.as_ref() else {
        return (name == "tcpi_state").then(|| unconnected(host));
    };
    let value = match name {
        "tcpi_last_data_recv" => (host.now_ns - connection.data_ns.min(host.now_ns)) / 1_000_000,
        "tcpi_busy_time" => connection.limits.at(host.now_ns).busy_ns / 1_000,
        "tcpi_rwnd_limited" => connection.limits.at(host.now_ns).window_ns / 1_000,
        "tcpi_sndbuf_limited" => connection.limits.at(host.now_ns).buffer_ns / 1_000,
        "tcpi_advmss" => host.config_for(&connection.options).mss.into(),
        "SK_MEMINFO_SNDBUF" => host.send_buffer(),
        _ => counted(connection, name).or_else(|| derived(connection, name))?,
    };
    i64::try_from(value).ok()
}

/// A figure that the endpoint counts.
fn counted(connection: &Connection, name: &str) -> Option<u64> {
    let stats = connection.endpoint.stats();
    Some(match name {
        "tcpi_total_retrans" => stats.retransmits,
        "tcpi_bytes_retrans" => stats.retransmitted_bytes,
        "tcpi_bytes_acked" => stats.acked_bytes,
        "tcpi_bytes_received" => stats.received_bytes,
        "tcpi_segs_out" => stats.segments_sent,
        "tcpi_segs_in" => stats.segments_received,
        "tcpi_dsack_dups" => stats.dsack_received,
        _ => return None,
    })
}

/// A figure that follows from the endpoint's state.
fn derived(connection: &Connection, name: &str) -> Option<u64> {
    let endpoint = &connection.endpoint;
    let info = endpoint.info();
    let mss = u64::from(endpoint.mss().max(1));
    let out = u64::from(connection.nxt.wrapping_sub(connection.una));
    let flag = |on: bool, bit: u64| if on { bit } else { 0 };
    Some(match name {
        "tcpi_state" => state(endpoint),
        "tcpi_ca_state" => match info.congestion {
            Congestion::Open => 0,
            Congestion::Disorder => 1,
            Congestion::Reduced => 2,
            Congestion::Recovery => 3,
            Congestion::Loss => 4,
        },
        // While marks reduce it, and after a timeout, Linux has what may be out for the window.
        "tcpi_snd_cwnd" => match info.congestion {
            Congestion::Reduced | Congestion::Loss => endpoint.window() / mss,
            _ => u64::from(endpoint.cwnd()) / mss,
        },
        "tcpi_snd_ssthresh" => match endpoint.ssthresh() {
            u32::MAX => 0x7fff_ffff,
            bytes => u64::from(bytes) / mss,
        },
        "tcpi_snd_mss" => mss,
        "tcpi_rcv_mss" => info.receive_mss.into(),
        "tcpi_unacked" => out.div_ceil(mss),
        "tcpi_lost" => info.lost_bytes.div_ceil(mss),
        "tcpi_sacked" => info.sacked_bytes.div_ceil(mss),
        "tcpi_retrans" => info.again_bytes.div_ceil(mss),
        "tcpi_delivered" => connection.delivered.count + info.sacked_bytes.div_ceil(mss),
        "tcpi_reordering" => u64::from(info.reordered_bytes).div_ceil(mss).max(3),
        "tcpi_notsent_bytes" => info.unsent,
        "tcpi_retransmits" | "tcpi_backoff" => info.timeouts.into(),
        "tcpi_probes" => info.probes.into(),
        "tcpi_snd_wscale" => info.snd_wscale.into(),
        "tcpi_rcv_wscale" => info.rcv_wscale.into(),
        "tcpi_rtt" => endpoint.srtt_ns() / 1_000,
        "tcpi_rttvar" => endpoint.rttvar_ns() / 1_000,
        "tcpi_rto" => endpoint.rto_ns() / 1_000,
        "tcpi_options" => {
            flag(info.timestamps, 1)
                | flag(info.sack, 2)
                | flag(info.wscale, 4)
                | flag(info.ecn, 8)
                | flag(connection.syn_data, 32)
        }
        "SK_MEMINFO_RCVBUF" => info.receive_buffer,
        _ => return accurate(&info.accurate?, name),
    })
}

/// A figure of accurate ECN.
fn accurate(info: &AccurateInfo, name: &str) -> Option<u64> {
    let [e1, ce, e0] = info.delivered_bytes;
    let [received_e1, received_ce, received_e0] = info.received_bytes;
    let value = match name {
        "tcpi_delivered_ce" => info.delivered_ce,
        "tcpi_delivered_e1_bytes" => e1,
        "tcpi_delivered_ce_bytes" => ce,
        "tcpi_delivered_e0_bytes" => e0,
        "tcpi_received_ce" => info.received_ce,
        "tcpi_received_e1_bytes" => received_e1,
        "tcpi_received_ce_bytes" => received_ce,
        "tcpi_received_e0_bytes" => received_e0,
        "tcpi_accecn_fail_mode" => info.failures.into(),
        "tcpi_accecn_opt_seen" => match info.option {
            OptionSeen::No => 0,
            OptionSeen::Empty => 1,
            OptionSeen::Counters => 2,
            OptionSeen::Wrong => 3,
        },
        _ => return None,
    };
    Some(value.into())
}

/// The state of sockets without a connection.
fn unconnected(host: &Host) -> i64 {
    let mut sockets = host.sockets.values();
    match sockets.any(|socket| matches!(socket.role, Role::Listener)) {
        true => 10,
        false => 7,
    }
}

fn state(endpoint: &Endpoint) -> u64 {
    match endpoint.state() {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}
