//! The memory of a host for its peers, from earlier connections (RFC 9040; Linux's `tcp_metrics`).

use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::{Endpoint, Events};

/// Of one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Experience {
    /// Round trip; 0 = unknown. Follows shorter ones slowly, longer ones at once: a timeout had
    /// better be too long.
    pub rtt_ns: u64,
    /// Slow start threshold in bytes; 0 = unknown.
    pub ssthresh: u32,
    /// Segments have overtaken each other.
    pub reordering: bool,
    /// Congestion window in bytes; 0 = unknown.
    pub cwnd: u32,
}

/// The path properties that one host remembers, by peer. The owner of the endpoints passes each
/// endpoint to it:
///
/// ```
/// # use sluicegate_tcp::{Cache, Config, Endpoint};
/// let mut cache = Cache::default();
/// let mut endpoint = Endpoint::connect(Config::linux(1460).into(), 0);
/// let events = endpoint.timeout(1_000);
/// cache.on_events("10.0.0.2", &mut endpoint, events);
/// ```
#[derive(Clone, Debug)]
pub struct Cache<Peer> {
    peers: FxHashMap<Peer, Experience>,
}

impl<Peer> Default for Cache<Peer> {
    fn default() -> Self {
        Self {
            peers: FxHashMap::default(),
        }
    }
}

impl<Peer: Eq + Hash> Cache<Peer> {
    /// After each event of an endpoint: at the end of its handshake it is given what is known of
    /// `peer`, when it ends what it has learnt is kept. Without [`crate::Config::cache`] nothing
    /// happens.
    pub fn on_events(&mut self, peer: Peer, endpoint: &mut Endpoint, events: Events) {
        if events.contains(Events::CONNECTED) {
            if let Some(known) = self.peers.get(&peer) {
                endpoint.benefit(known);
            }
        }
        if events.contains(Events::CLOSED) || events.contains(Events::FAILED) {
            self.learn(peer, endpoint);
        }
    }

    /// Keeps what a connection that ends has learnt.
    pub fn learn(&mut self, peer: Peer, endpoint: &Endpoint) {
        let known = self.peers.get(&peer).copied().unwrap_or_default();
        if let Some(experience) = endpoint.experience(known) {
            self.peers.insert(peer, experience);
        }
    }

    /// The cached values for a peer.
    pub fn get(&self, peer: &Peer) -> Option<&Experience> {
        self.peers.get(peer)
    }
}
