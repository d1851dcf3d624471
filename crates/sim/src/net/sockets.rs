//! Sockets and alarms, by what a tenant's roles do.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use sluicegate_apps::MessageHeader;
use sluicegate_tcp::Endpoint;

use super::{ALARM, EndId, Net, Owner, PacketFabric, Tenant, source};
use crate::packet::{Addressing, NO_END};

/// First port that a tenant opens connections from (Linux's).
pub const EPHEMERAL_PORT: u16 = 32_768;

impl<F: PacketFabric> Net<F> {
    /// Own port of an end, and its peer.
    pub fn port_and_peer(&self, end: EndId) -> (u16, SocketAddr) {
        let addressing = &self.sockets.ends[end as usize].addressing;
        let peer = self.layout.tenants[addressing.peer_tenant as usize].address;
        (addressing.port, SocketAddr::new(peer, addressing.peer_port))
    }

    /// Opens a connection from a tenant; the peer must listen by the time that the SYN arrives.
    pub fn connect(&mut self, tenant: u32, address: IpAddr, port: u16, owner: Owner) -> EndId {
        let peer_tenant = self.layout.tenant_at(address).unwrap_or(tenant);
        let Tenant { host, stack, .. } = &self.layout.tenants[tenant as usize];
        let opener = &mut self.hosts[usize::from(*host)];
        let (local_port, isn) = (opener.ephemeral_port(), opener.isn());
        let tcp = Endpoint::connect(Arc::clone(stack), isn);
        let id = self.end((tenant, local_port, peer_tenant, port), owner);
        self.sockets.ends[id as usize].tcp = Some(Box::new(tcp));
        self.serve_end(id);
        id
    }

    /// A tenant accepts connections on a port; they are this owner's at first.
    pub fn accept(&mut self, tenant: u32, port: u16, owner: Owner) {
        self.sockets.listeners.insert((tenant, port), owner);
    }

    /// Writes; returns how many bytes fitted.
    pub fn write(&mut self, end: EndId, bytes: u64) -> u64 {
        let Some(tcp) = &mut self.sockets.ends[end as usize].tcp else {
            return 0;
        };
        let taken = tcp.write(bytes);
        self.serve_end(end);
        taken
    }

    /// Reads; returns how many bytes there were, at most `bytes`.
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

    /// No more will be written.
    pub fn close(&mut self, end: EndId) {
        if let Some(tcp) = &mut self.sockets.ends[end as usize].tcp {
            tcp.close();
            self.serve_end(end);
        }
    }

    /// Says something with the next byte that `end` writes or has just written.
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

    /// Wakes an actor of a tenant at a time (ns), now at the earliest.
    pub fn wake_at(&mut self, at_ns: u64, tenant: u32, actor: u32, key: u64) {
        let host = self.layout.tenants[tenant as usize].host;
        let free = self.hosts[usize::from(host)].free_alarms.pop();
        let index = self.sockets.set_alarm((actor, key), host, free);
        let at_ps = at_ns.saturating_mul(1_000).max(self.clock.now_ps);
        self.clock.wheel.push(at_ps, source(ALARM, index));
    }
}
