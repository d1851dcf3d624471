//! How much a socket takes from an application before it lets it wait.
//!
//! Linux counts what its packets take, not their data: a packet is begun while less than the buffer
//! is in use, and then filled up to half of the largest window that the peer has offered, 64 KB at
//! most (`tcp_xmit_size_goal`). An application that has to wait is woken when two thirds of the
//! buffer or less are in use (`sk_stream_is_writeable`).

use sluicegate_tcp::Endpoint;

/// The memory of a packet beside its data, as `ss -tm` shows on Linux 6.18.
const OVERHEAD: u64 = 832;
/// Room for headers beside a segment, and what describes one (`sk_buff`).
const HEADERS: u64 = 640;
const DESCRIPTION: u64 = 256;
/// The largest packet before segmentation offload, with its headers.
const LARGEST: u64 = 65_535 - 60;
/// `SOCK_MIN_SNDBUF`.
pub const LEAST: u64 = 4_608;

/// `SOCK_MIN_RCVBUF`.
pub const LEAST_RECEIVE: u64 = 2_304;

/// What bounds the data in a socket.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// The send buffer, in bytes as the stack counts them.
    pub buffer: u64,
    /// Data that has not been sent: no packet is begun while there is so much, in bytes, and an
    /// application that waits is woken at less than half (`tcp_stream_memory_free`).
    pub unsent: u64,
}

/// The rule of one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Linux's, with so many segments in a packet on its way.
    Packets { segments: u64 },
    /// Bytes of data.
    Bytes,
}

impl Memory {
    /// How many of `bytes` the socket takes at once in its `space`; what it has taken leaves before
    /// it is asked again. `goes_on`: it has taken something of the same call.
    pub fn takes(self, endpoint: &Endpoint, space: Space, bytes: u64, goes_on: bool) -> u64 {
        match self {
            Self::Bytes => bytes.min(space.buffer.saturating_sub(endpoint.unacknowledged())),
            Self::Packets { segments } => {
                let packet = packet_bytes(endpoint);
                let unsent = endpoint.info().unsent;
                let tail = unsent % packet;
                // Of a packet that has just been filled half of the window leaves at once
                // (`tcp_push_one`), and what follows goes into the rest.
                let mss = u64::from(endpoint.mss());
                let half = (u64::from(endpoint.cwnd()) / mss / 2).max(1) * mss;
                let room = match tail {
                    0 if goes_on && unsent == 0 && half < packet => half,
                    0 => 0,
                    _ => packet - tail,
                };
                let begins = Self::used(endpoint, segments) < space.buffer && unsent < space.unsent;
                bytes.min(if room == 0 && begins { packet } else { room })
            }
        }
    }

    /// What is written now begins a packet.
    pub fn begins(self, endpoint: &Endpoint, goes_on: bool) -> bool {
        let unsent = endpoint.info().unsent;
        self != Self::Bytes && unsent % packet_bytes(endpoint) == 0 && !(goes_on && unsent == 0)
    }

    /// An application that asks finds the socket writable, and one that waits is woken.
    pub fn is_writable(self, endpoint: &Endpoint, space: Space) -> bool {
        let buffer = space.buffer;
        match self {
            Self::Bytes => buffer.saturating_sub(endpoint.unacknowledged()) >= buffer.min(2048),
            Self::Packets { segments } => {
                let used = Self::used(endpoint, segments);
                let unsent = endpoint.info().unsent;
                buffer.saturating_sub(used) >= used / 2 && 2 * unsent < space.unsent
            }
        }
    }

    /// Packets have one segment each.
    pub fn single(self, endpoint: &Endpoint) -> bool {
        self != Self::Bytes && packet_bytes(endpoint) == u64::from(endpoint.mss())
    }

    /// The memory that the data in the socket takes.
    fn used(endpoint: &Endpoint, segments: u64) -> u64 {
        let mss = u64::from(endpoint.mss());
        let unsent = endpoint.info().unsent.min(endpoint.unacknowledged());
        let sent = endpoint.unacknowledged() - unsent;
        let packet = segments_sent(endpoint, segments) * mss;
        let packets = sent.div_ceil(packet) + unsent.div_ceil(packet_bytes(endpoint));
        sent + unsent + packets * OVERHEAD
    }
}

/// Segments in a packet on its way (`tcp_tso_autosize`): a millisecond's worth, and more the
/// shorter the round trip is; half of the window at most.
fn segments_sent(endpoint: &Endpoint, least: u64) -> u64 {
    let (mss, cwnd) = (u64::from(endpoint.mss()), u64::from(endpoint.cwnd()));
    let rtt_us = (endpoint.srtt_ns() / 1_000).max(1);
    let rate = 2 * cwnd * 1_000_000 / rtt_us;
    let bytes = rate / 1_024 + (LARGEST >> (rtt_us / 512).min(63));
    let half = (cwnd / mss / 2).max(1);
    (bytes / mss).max(least).min(half).max(1)
}

/// What the buffer grows to when a writer has found no space: twice the memory of a window of
/// single segments (`tcp_sndbuf_expand`). Linux does not while the window is full. There it seldom
/// is, since a packet waits until all of it has room; segments here do not wait.
pub fn expanded(endpoint: &Endpoint) -> u64 {
    let info = endpoint.info();
    let mss = u64::from(endpoint.mss());
    let options = if info.timestamps { 12 } else { 0 };
    let segment = (mss + options + HEADERS).next_power_of_two() + DESCRIPTION;
    2 * segment * (u64::from(endpoint.cwnd()) / mss).max(10)
}

/// Data of the largest packet.
fn packet_bytes(endpoint: &Endpoint) -> u64 {
    let mss = u64::from(endpoint.mss());
    let most = LARGEST.min(endpoint.info().max_window / 2);
    (most / mss).max(1) * mss
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use sluicegate_tcp::Config;

    #[test]
    fn a_buffer_grows_with_the_window_by_the_memory_of_single_segments() {
        let config = Config::linux(1_460);
        let endpoint = Endpoint::connect(Arc::new(config), 1);
        // 1460 and 640 bytes need 4096, and 256 more describe them: Linux's first buffer.
        assert_eq!(expanded(&endpoint), 87_040);
    }
}
