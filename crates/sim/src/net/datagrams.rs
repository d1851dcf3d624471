//! Sockets without a stack: datagrams from an application to the adapter, and arriving datagrams.
//!
//! On a host whose senders may have to wait, datagrams wait in their socket. The socket drops the
//! datagrams that exceed its limit. As with Linux's `SO_SNDBUF`, datagrams that the adapter has not
//! sent yet count against the limit. On other hosts datagrams go to the adapter at once, and its
//! queue drops the datagrams that exceed its own limit, if it has one. Where the switch of the host
//! takes time, datagrams count against the limit until the switch has taken them into a ring.

use std::{collections::VecDeque, net::IpAddr};

use sluicegate_apps::MessageHeader;
use sluicegate_core::number::{low_half, narrow};
use sluicegate_fabric::graph::HostId;
use sluicegate_tcp::Events;
use sluicegate_vswitch::Vnics;

use super::{ConnectionEnd, EndId, Net, Notice, Owner, PacketFabric, cold_of};
use crate::packet::{Body, ColdFields, Datagram, Packet};

/// A socket for datagrams.
#[derive(Debug, Default)]
pub struct Datagrams {
    /// The bytes of payload that the socket may hold. It drops datagrams beyond them.
    limit_bytes: u64,
    /// Datagrams count against the limit until its host's switch has them.
    until_switch: bool,
    waiting: VecDeque<Row>,
    /// Bytes of payload in `waiting` and in the adapter.
    held_bytes: u64,
    /// Datagrams that the socket has accepted so far, and their bytes of payload.
    taken: u32,
    taken_bytes: u64,
    arrived: VecDeque<Datagram>,
}

/// Datagrams that wait one behind the other, sent at one time, of which only the last may be
/// shorter. A long message is one row, from which its datagrams are made when they leave.
#[derive(Debug)]
struct Row {
    /// Of the first.
    number: u32,
    /// Payload of all before the first, in bytes.
    begin_bytes: u64,
    /// Payload of all of them, in bytes.
    bytes: u64,
    sent_ns: u64,
    payload: u16,
}

impl Row {
    /// Payload of the first, in bytes.
    fn next_bytes(&self) -> u16 {
        narrow::<u16>(self.bytes.min(self.payload.into()))
    }

    /// Calls `found` with the number and the payload of each.
    fn each(&self, mut found: impl FnMut(u32, u16)) {
        let payload = u64::from(self.payload.max(1));
        let whole = self.bytes / payload;
        let rest = narrow::<u16>(self.bytes % payload);
        // Numbers wrap.
        let number = |at: u64| self.number.wrapping_add(low_half(at));
        for at in 0..whole {
            found(number(at), self.payload);
        }
        if rest > 0 {
            found(number(whole), rest);
        }
    }
}

impl Datagrams {
    /// The payload of the next waiting datagram, in bytes.
    pub(super) fn next_bytes(&self) -> Option<u32> {
        Some(self.waiting.front()?.next_bytes().into())
    }

    /// Accepts so many bytes in datagrams of at most `payload` bytes.
    fn take(&mut self, bytes: u64, payload: u16, sent_ns: u64) {
        self.waiting.push_back(Row {
            number: self.taken,
            begin_bytes: self.taken_bytes,
            bytes,
            sent_ns,
            payload,
        });
        self.held_bytes = self.held_bytes.saturating_add(bytes);
        self.taken_bytes = self.taken_bytes.wrapping_add(bytes);
        // Numbers wrap.
        let count = low_half(bytes.div_ceil(payload.into()));
        self.taken = self.taken.wrapping_add(count);
    }

    /// Makes the next datagram of what waits.
    fn next(&mut self) -> Option<Datagram> {
        let row = self.waiting.front_mut()?;
        let payload = row.next_bytes();
        row.bytes -= u64::from(payload);
        row.begin_bytes = row.begin_bytes.wrapping_add(payload.into());
        let datagram = Datagram {
            number: row.number,
            end_bytes: row.begin_bytes,
            sent_ns: row.sent_ns,
            payload,
        };
        row.number = row.number.wrapping_add(1);
        if row.bytes == 0 {
            self.waiting.pop_front();
        }
        Some(datagram)
    }

    /// Counts payload that has left the host, in bytes.
    pub(super) fn left(&mut self, payload: u16) {
        if !self.until_switch {
            self.gave(payload);
        }
    }

    /// Payload does not count against the limit any longer, in bytes.
    fn gave(&mut self, payload: u16) {
        self.held_bytes = self.held_bytes.saturating_sub(payload.into());
    }
}

impl<F: PacketFabric> Net<F> {
    /// Opens a socket from which a tenant sends datagrams to a peer. At most `limit_bytes` wait in
    /// it.
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
        let local_port = self.hosts[host.index()].ephemeral_port();
        self.datagram_end(
            (tenant, local_port),
            (peer_tenant, port),
            limit_bytes,
            owner,
        )
    }

    /// Opens a socket that receives all datagrams for a port of a tenant.
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
        // On other hosts a datagram counts against the limit only until the adapter has it.
        if self.hosts[host.index()].has_waiters {
            self.count_departures(host);
        }
        let id = self.end((tenant, port, peer_tenant, peer_port), owner);
        self.sockets.ends[id as usize].datagrams = Some(Box::new(Datagrams {
            limit_bytes,
            until_switch: self.hosts[host.index()].forwards_in_time(),
            ..Datagrams::default()
        }));
        id
    }

    /// Puts the header of a message beside the datagrams that a socket sends next.
    pub fn post_datagram_header(&mut self, end: EndId, header: MessageHeader) {
        let addressing = &self.sockets.ends[end as usize].addressing;
        let peer = (addressing.peer_tenant, addressing.peer_port);
        let there = self.layout.part_of_host(addressing.peer_host);
        match self.post.exports_to(there) {
            None => self.take_datagram_header(peer, header),
            Some(exports) => exports.datagram_headers.push((peer, header)),
        }
    }

    /// The header of a message for a tenant's port. It is dropped if no socket is bound to the
    /// port, as datagrams are.
    pub(super) fn take_datagram_header(&mut self, to: (u32, u16), header: MessageHeader) {
        if let Some(&bound) = self.sockets.bound.get(&to) {
            self.sockets.message_headers.push(bound, header);
        }
    }

    /// An application sends `bytes` in datagrams of at most `payload` bytes. Returns the datagrams
    /// and bytes that the socket dropped.
    pub fn send_datagrams(&mut self, end: EndId, mut bytes: u64, payload: u16) -> (u64, u64) {
        let state = &self.sockets.ends[end as usize];
        let host = state.host;
        // Each datagram leaves the socket before the next where no sender waits for the adapter,
        // and where the host's switch has a ring for it.
        let leaves_at_once =
            state.straight_to().is_some() || self.hosts[host.index()].forwards_in_time();
        self.drain_departures(host);
        let payload = payload.max(1);
        let sent_ns = self.now_ns();
        let socket = self.sockets.ends[end as usize].datagrams.as_mut();
        let takes_all = |socket: &&mut Box<Datagrams>| socket.limit_bytes == u64::MAX;
        if let Some(socket) = socket.filter(|it| takes_all(it) && !leaves_at_once && bytes > 0) {
            socket.take(bytes, payload, sent_ns);
            bytes = 0;
        }
        let (mut dropped, mut dropped_bytes) = (0, 0);
        while bytes > 0 {
            let next = narrow::<u16>(bytes.min(payload.into()));
            bytes -= u64::from(next);
            if !self.take_datagram(end, next) {
                dropped += 1;
                dropped_bytes += u64::from(next);
            }
            if leaves_at_once {
                self.serve_end(end);
            }
        }
        self.serve_end(end);
        (dropped, dropped_bytes)
    }

    /// A socket accepts a datagram if it has room; false if it drops it.
    fn take_datagram(&mut self, end: EndId, payload: u16) -> bool {
        let sent_ns = self.now_ns();
        let Some(socket) = &mut self.sockets.ends[end as usize].datagrams else {
            return false;
        };
        if socket.held_bytes + u64::from(payload) > socket.limit_bytes {
            return false;
        }
        socket.take(payload.into(), payload, sent_ns);
        true
    }

    /// Datagrams that a socket has accepted so far, and their bytes of payload.
    pub fn datagrams_taken(&self, end: EndId) -> (u64, u64) {
        let socket = self.sockets.ends[end as usize].datagrams.as_ref();
        socket.map_or((0, 0), |socket| (socket.taken.into(), socket.taken_bytes))
    }

    /// Takes the next datagram that has arrived at a socket.
    pub fn receive_datagram(&mut self, end: EndId) -> Option<Datagram> {
        self.sockets.ends[end as usize]
            .datagrams
            .as_mut()?
            .arrived
            .pop_front()
    }

    /// Calls `found` with each datagram that its socket has accepted and that no application has
    /// received and nobody has dropped: who and where it is for (tenant, port), its number and its
    /// payload in bytes. Of a packet that was handed to another part, that part speaks.
    pub fn datagrams_underway(&self, found: &mut dyn FnMut((u32, u16), u32, u16)) {
        let mut of_packet = |packet: &Packet, cold: &ColdFields| {
            if let Body::Datagram(datagram) = &packet.body {
                let to = (cold.tenants[1], cold.ports[1]);
                found(to, datagram.number, datagram.payload);
            }
        };
        for (handle, packet) in self.fabric.ports().pool.frames() {
            of_packet(packet, cold_of(&self.cold_fields, handle, packet));
        }
        let exports = self.post.outgoing.iter();
        for exported in exports.flat_map(|exports| &exports.packets) {
            of_packet(&exported.packet, &exported.cold);
        }
        for end in &self.sockets.ends {
            let Some(socket) = &end.datagrams else {
                continue;
            };
            let own = (end.addressing.tenant, end.addressing.port);
            for datagram in &socket.arrived {
                found(own, datagram.number, datagram.payload);
            }
            let peer = (end.addressing.peer_tenant, end.addressing.peer_port);
            for row in &socket.waiting {
                row.each(|number, payload| found(peer, number, payload));
            }
        }
    }

    /// Sends the next datagram of a socket; `None` if no datagram waits.
    #[cold]
    pub(super) fn transmit_datagram(&mut self, host: HostId, end: EndId) -> Option<bool> {
        let ip_bytes = self.layout.ip_bytes;
        let state = &mut self.sockets.ends[end as usize];
        let is_straight = state.straight_to().is_some();
        let ConnectionEnd {
            datagrams,
            addressing,
            ..
        } = state;
        let socket = datagrams.as_mut()?;
        let datagram = socket.next()?;
        if is_straight || socket.until_switch {
            socket.gave(datagram.payload);
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

    /// A datagram passes the vNIC stage, which only counts it.
    fn pass_vnic(&mut self, host: HostId) {
        let stage = self.hosts[host.index()].switch.vnics.as_mut();
        stage.into_iter().for_each(Vnics::not_tcp);
    }

    /// A datagram arrives at the host of its receiver. It is dropped if no socket is bound to its
    /// port.
    pub(super) fn deliver_datagram(&mut self, host: HostId, datagram: Datagram, cold: &ColdFields) {
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
