//! Connections that fail, or never come about.

use std::{collections::BTreeMap, net::SocketAddr};

use sluicegate_scenario::workload::{Errors, Plan};
use sluicegate_tcp::{Endpoint, Error};

use crate::net::{EPHEMERAL_PORT, EndId, Net, PacketFabric};

/// The errors of a tenant's connections.
#[derive(Default)]
pub(super) struct ConnectionErrors {
    errors: Errors,
    /// Connections that are not established yet: their peer, and when they were opened (ns).
    waiting: BTreeMap<EndId, (SocketAddr, u64)>,
}

impl ConnectionErrors {
    pub(super) fn note(&mut self, line: String) {
        self.errors.note(line);
    }

    pub(super) fn opened(&mut self, end: EndId, peer: SocketAddr, now_ns: u64) {
        self.waiting.insert(end, (peer, now_ns));
    }

    pub(super) fn connected(&mut self, end: EndId) {
        self.waiting.remove(&end);
    }

    /// A connection has failed. It is no error where the peer had sent all its data and all was
    /// read.
    pub(super) fn failed<F: PacketFabric>(&mut self, net: &Net<F>, plan: &Plan, end: EndId) {
        let tcp = net.sockets.tcp(end);
        let Some(why) = tcp.and_then(Endpoint::error) else {
            return;
        };
        if let Some((peer, _)) = self.waiting.remove(&end) {
            return self.errors.refused(peer, words(why));
        }
        if !tcp.is_some_and(Endpoint::at_end) {
            let connection = connection(net, end);
            self.errors
                .broken(plan, net.now_ns(), connection, words(why));
        }
    }

    /// The run is over: lines for the report.
    pub(super) fn finish(mut self, now_ns: u64) -> Vec<String> {
        for (peer, opened_ns) in self.waiting.into_values() {
            self.errors.unanswered(peer, opened_ns, now_ns);
        }
        self.errors.into_lines()
    }
}

/// The name of the flow in errors, whichever of its connections this is.
fn connection<F: PacketFabric>(net: &Net<F>, end: EndId) -> String {
    let (port, peer) = net.port_and_peer(end);
    if port >= EPHEMERAL_PORT {
        format!("connection to {peer}")
    } else {
        format!("connection from {} to port {port}", peer.ip())
    }
}

/// As Linux says it.
fn words(why: Error) -> &'static str {
    match why {
        Error::Refused => "Connection refused",
        Error::Reset => "Connection reset by peer",
        Error::TimedOut => "Connection timed out",
        Error::Unreachable => "No route to host",
    }
}
