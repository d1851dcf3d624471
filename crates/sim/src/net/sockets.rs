//! Calls of a tenant's roles on sockets and alarms.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use sluicegate_apps::MessageHeader;
use sluicegate_tcp::Endpoint;

use super::{ALARM, EndId, Net, Owner, PacketFabric, Tenant, source};
use crate::packet::{Addressing, NO_END};

/// The first port from which a tenant opens connections, as in Linux.
pub const EPHEMERAL_PORT: u16 = 32_768;

impl<F: PacketFabric> Net<F> {
    /// The port of an end, and the address of its peer.
    pub fn port_and_peer(&self, end: EndId) -> (u16, SocketAddr) {
        let addressing = &self.sockets.ends[end as usize].addressing;
        let peer = self.layout.tenants[addressing.peer_tenant as usize].address;
        (addressing.port, SocketAddr::new(peer, addressing.peer_port))
    }

    /// Opens a connection from a tenant. The peer must listen when the SYN arrives.
    pub fn connect(&mut self, tenant: u32, address: IpAddr, port: u16, owner: Owner) -> EndId {
        let peer_tenant = self.layout.tenant_at(address).unwrap_or(tenant);
        let Tenant { host, stack, .. } = &self.layout.tenants[tenant as usize];
        let opener = &mut self.hosts[host.index()];
        let (local_port, isn) = (opener.ephemeral_port(), opener.isn());
        let tcp = Endpoint::connect(Arc::clone(stack), isn);
        let id = self.end((tenant, local_port, peer_tenant, port), owner);
        self.sockets.ends[id as usize].tcp = Some(Box::new(tcp));
        self.serve_end(id);
        id
    }

    /// A tenant accepts connections on a port. They belong to this owner at first.
    pub fn accept(&mut self, tenant: u32, port: u16, owner: Owner) {
        self.sockets.listeners.insert((tenant, port), owner);
    }

    /// Writes to a connection; returns the bytes that the send buffer accepted.
    pub fn write(&mut self, end: EndId, bytes: u64) -> u64 {
        let Some(tcp) = &mut self.sockets.ends[end as usize].tcp else {
            return 0;
        };
        let taken = tcp.write(bytes);
        self.serve_end(end);
        taken
    }

    /// Reads at most `bytes` from a connection; returns the bytes that were read.
    pub fn read(&mut self, end: EndId, bytes: u64) -> u64 {
        let bytes = self.may_read(end, bytes);
        let Some(tcp) = &mut self.sockets.ends[end as usize].tcp else {
            return 0;
        };
        let taken = tcp.read(bytes);
        if tcp.owes_ack() {
            self.serve_end(end);
        }
        taken
    }

    /// Closes the sending direction of a connection.
    pub fn close(&mut self, end: EndId) {
        if let Some(tcp) = &mut self.sockets.ends[end as usize].tcp {
            tcp.close();
            self.serve_end(end);
        }
    }

    /// Sends the header of a message with the next byte that `end` writes or has just written.
    pub fn post_header(&mut self, end: EndId, header: MessageHeader) {
        let Addressing {
            peer, peer_host, ..
        } = self.sockets.ends[end as usize].addressing;
        debug_assert_ne!(peer, NO_END, "who writes is connected");
        let there = self.layout.part_of_host(peer_host);
        match self.post.exports_to(there) {
            None => self.sockets.message_headers.push(peer, header),
            Some(exports) => exports.headers.push((peer, header)),
        }
    }

    /// Wakes an actor of a tenant at `at_ns`, or now if that is in the past.
    pub fn wake_at(&mut self, at_ns: u64, tenant: u32, actor: u32, key: u64) {
        let host = self.layout.tenants[tenant as usize].host;
        let free = self.hosts[host.index()].free_alarms.pop();
        let index = self.sockets.set_alarm((actor, key), host, free);
        let at_ps = at_ns.saturating_mul(1_000).max(self.clock.now_ps);
        self.clock.wheel.push(at_ps, source(ALARM, index));
    }
}
