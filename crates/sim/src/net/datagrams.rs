//! Sockets without a stack: an application's datagrams on their way to the adapter, and what arrives of them.
//!
//! Where a host lets senders wait, datagrams wait in their socket, which drops what does not fit any more; as with
//! Linux's `SO_SNDBUF` what the adapter has not sent yet counts as well. Elsewhere they go to the adapter at once,
//! which drops what does not fit into its queue, if that has a limit.

use std::{collections::VecDeque, net::IpAddr};

use sluicegate_tcp::Events;
use sluicegate_vswitch::Vnics;

use super::{ConnectionEnd, EndId, Net, Notice, Owner, PacketFabric, host};
use crate::packet::{ColdFields, Datagram, Packet};

/// A socket for datagrams.
#[derive(Debug, Default)]
pub struct Datagrams {
    /// What does not fit is dropped, in bytes of payload.
    limit_bytes: u64,
    waiting: VecDeque<Datagram>,
    /// In `waiting`, and given to the adapter but not sent.
    held_bytes: u64,
    /// Datagrams taken so far, and their bytes of payload.
    taken: u32,
    taken_bytes: u64,
    arrived: VecDeque<Datagram>,
}

impl Datagrams {
    /// The next one's payload in bytes.
    pub(super) fn next_bytes(&self) -> Option<u32> {
        Some(self.waiting.front()?.payload.into())
    }

    /// So much has left the host.
    pub(super) fn left(&mut self, payload: u16) {
        self.held_bytes = self.held_bytes.saturating_sub(payload.into());
    }
}

impl<F: PacketFabric> Net<F> {
    /// Opens a socket from which a tenant sends datagrams to a peer; at most so many bytes wait in it.
    pub fn open_datagrams(
        &mut self,
        tenant: u32,
        address: IpAddr,
        port: u16,
        limit_bytes: u64,
        owner: Owner,
    ) -> EndId {
        let peer_tenant = self.layout.tenant_at(address).unwrap_or(tenant);
        let host = self.layout.tenants[tenant as usize].host;
        let local_port = self.hosts[usize::from(host)].ephemeral_port();
        self.datagram_end(
            (tenant, local_port),
            (peer_tenant, port),
            limit_bytes,
            owner,
        )
    }

    /// Opens a socket that receives whatever comes to a port of a tenant.
    pub fn bind_datagrams(&mut self, tenant: u32, port: u16, owner: Owner) {
        let end = self.datagram_end((tenant, port), (tenant, 0), 0, owner);
        self.sockets.bound.insert((tenant, port), end);
    }

    fn datagram_end(
        &mut self,
        (tenant, port): (u32, u16),
        (peer_tenant, peer_port): (u32, u16),
        limit_bytes: u64,
        owner: Owner,
    ) -> EndId {
        let host = self.layout.tenants[tenant as usize].host;
        // Elsewhere a socket has nothing to do with it any more when the adapter has it.
        if self.hosts[usize::from(host)].has_waiters {
            self.count_departures(host);
        }
        let id = self.end((tenant, port, peer_tenant, peer_port), owner);
        self.sockets.ends[id as usize].datagrams = Some(Box::new(Datagrams {
            limit_bytes,
            ..Datagrams::default()
        }));
        id
    }

    /// An application sends so many bytes as datagrams of at most `payload` bytes. Returns how many datagrams and
    /// bytes the socket did not take.
    pub fn send_datagrams(&mut self, end: EndId, mut bytes: u64, payload: u16) -> (u64, u64) {
        let host = self.sockets.ends[end as usize].host;
        self.drain_departures(host);
        let (mut dropped, mut dropped_bytes) = (0, 0);
        while bytes > 0 {
            let next = bytes.min(payload.max(1).into()) as u16;
            bytes -= u64::from(next);
            if !self.take_datagram(end, next) {
                dropped += 1;
                dropped_bytes += u64::from(next);
            }
            // On a host without waiting senders each leaves before the next is offered.
            if self.sockets.ends[end as usize].straight_to != host::IN_TURN {
                self.serve_end(end);
            }
        }
        self.serve_end(end);
        (dropped, dropped_bytes)
    }

    /// The socket takes a datagram, if it has room.
    fn take_datagram(&mut self, end: EndId, payload: u16) -> bool {
        let sent_ns = self.now_ns();
        let Some(socket) = &mut self.sockets.ends[end as usize].datagrams else {
            return false;
        };
        if socket.held_bytes + u64::from(payload) > socket.limit_bytes {
            return false;
        }
        socket.held_bytes += u64::from(payload);
        socket.taken_bytes += u64::from(payload);
        socket.waiting.push_back(Datagram {
            number: socket.taken,
            end_bytes: socket.taken_bytes,
            sent_ns,
            payload,
        });
        socket.taken = socket.taken.wrapping_add(1);
        true
    }

    /// Datagrams that a socket has taken so far, and their bytes.
    pub fn datagrams_taken(&self, end: EndId) -> (u64, u64) {
        let socket = self.sockets.ends[end as usize].datagrams.as_ref();
        socket.map_or((0, 0), |socket| (socket.taken.into(), socket.taken_bytes))
    }

    /// The next datagram that has arrived at a socket.
    pub fn receive_datagram(&mut self, end: EndId) -> Option<Datagram> {
        self.sockets.ends[end as usize]
            .datagrams
            .as_mut()?
            .arrived
            .pop_front()
    }

    /// The next datagram of a socket leaves it; `None` if none waits.
    #[cold]
    pub(super) fn transmit_datagram(&mut self, host: u16, end: EndId) -> Option<bool> {
        let ip_bytes = self.layout.ip_bytes;
        let ConnectionEnd {
            datagrams,
            addressing,
            straight_to,
            ..
        } = &mut self.sockets.ends[end as usize];
        let socket = datagrams.as_mut()?;
        let datagram = socket.waiting.pop_front()?;
        if *straight_to != host::IN_TURN {
            socket.left(datagram.payload);
        }
        let packet = Packet::of_datagram(datagram, addressing, ip_bytes);
        let cold = ColdFields {
            tenants: [addressing.tenant, addressing.peer_tenant],
            ports: [addressing.port, addressing.peer_port],
            from: end,
            ..ColdFields::default()
        };
        self.counts.sent += 1;
        self.pass_vnic(host);
        let handle = self.keep(packet, &cold);
        self.send(host, end, handle);
        Some(true)
    }

    /// The vNIC stage has nothing to do with it but to count.
    fn pass_vnic(&mut self, host: u16) {
        let stage = self.hosts[usize::from(host)].switch.vnics.as_mut();
        stage.into_iter().for_each(Vnics::not_tcp);
    }

    /// A datagram arrives at the host of its receiver; if no socket is bound to its port it is dropped.
    pub(super) fn deliver_datagram(&mut self, host: u16, datagram: Datagram, cold: &ColdFields) {
        self.pass_vnic(host);
        self.counts.handed += 1;
        let Some(&end) = self.sockets.bound.get(&(cold.tenants[1], cold.ports[1])) else {
            return;
        };
        if let Some(socket) = &mut self.sockets.ends[end as usize].datagrams {
            socket.arrived.push_back(datagram);
            let first = socket.arrived.len() == 1;
            if first {
                self.sockets
                    .notices
                    .push_back(Notice::Socket(end, Events::READABLE));
            }
        }
    }
}
