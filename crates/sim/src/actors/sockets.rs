//! Simulated sockets and time, as the roles of tenants see them.

use std::{net::SocketAddr, ops::Range};

use sluicegate_apps::{Datagram, Io, MessageHeader, SenderState, SocketId};
use sluicegate_core::number::narrow;
use sluicegate_fabric::Routing;
use sluicegate_scenario::workload::Plan;
use sluicegate_tcp::Endpoint;

use super::ConnectionErrors;
use crate::net::{EndId, Net, Owner, PacketFabric};

/// The sockets and the clock of a role, on behalf of its tenant.
pub struct Sockets<'a, F> {
    pub(super) net: &'a mut Net<F>,
    pub(super) plan: &'a Plan,
    pub(super) errors: &'a mut ConnectionErrors,
    pub(super) tenant: u32,
    pub(super) actor: u32,
    /// Of the frames of its connections.
    pub(super) priority: u8,
    /// Likewise, if it is not the network's.
    pub(super) routing: Option<Routing>,
}

/// The identifier of an end for roles.
pub(super) fn id(end: EndId) -> SocketId {
    SocketId(end.into())
}

/// The end of a socket.
fn end(socket: SocketId) -> EndId {
    narrow::<EndId>(socket.0)
}

impl<F: PacketFabric> Sockets<'_, F> {
    fn owner(&self, key: u64) -> Owner {
        Owner {
            actor: self.actor,
            key,
            priority: self.priority,
            path_values: match self.routing {
                Some(own) => Some(own.path_values()),
                None => self.net.path_values_of_priority(self.priority),
            },
        }
    }

    fn tcp(&self, socket: SocketId) -> Option<&Endpoint> {
        self.net.sockets.tcp(end(socket))
    }
}

impl<F: PacketFabric> Io for Sockets<'_, F> {
    #[inline]
    fn plan(&self) -> &Plan {
        self.plan
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        self.net.now_ns()
    }

    #[inline]
    fn timer(&mut self, at_ns: u64, key: u64) {
        self.net.wake_at(at_ns, self.tenant, self.actor, key);
    }

    fn note(&mut self, line: String) {
        self.errors.note(line);
    }

    fn listen(&mut self, port: u16, key: u64) {
        self.net.accept(self.tenant, port, self.owner(key));
    }

    fn connect(&mut self, peer: SocketAddr, key: u64) -> SocketId {
        let owner = self.owner(key);
        let end = (self.net).connect(self.tenant, peer.ip(), peer.port(), owner);
        self.errors.opened(end, peer, self.net.now_ns());
        id(end)
    }

    fn set_key(&mut self, socket: SocketId, key: u64) {
        self.net.sockets.set_key(end(socket), key);
    }

    fn fetch(&self, socket: SocketId) {
        self.net.fetch_end(end(socket));
    }

    #[inline]
    fn write(&mut self, socket: SocketId, bytes: u64) -> u64 {
        self.net.write(end(socket), bytes)
    }

    /// Streams are numbers of bytes: the header travels beside them, behind those that are on their
    /// way.
    #[inline]
    fn write_message(&mut self, socket: SocketId, header: &MessageHeader, part: Range<u64>) -> u64 {
        let taken = self.net.write(end(socket), part.end - part.start);
        if part.start == 0 && taken > 0 {
            self.net.post_header(end(socket), *header);
        }
        taken
    }

    #[inline]
    fn read(&mut self, socket: SocketId, most: u64) -> u64 {
        self.net.read(end(socket), most)
    }

    #[inline]
    fn read_messages(&mut self, socket: SocketId) -> u64 {
        self.net.read(end(socket), u64::MAX)
    }

    #[inline]
    fn message_header(&self, socket: SocketId) -> Option<MessageHeader> {
        self.net.sockets.message_headers.peek(end(socket))
    }

    #[inline]
    fn take_message_header(&mut self, socket: SocketId) -> Option<MessageHeader> {
        self.net.sockets.message_headers.take(end(socket))
    }

    #[inline]
    fn at_end(&self, socket: SocketId) -> bool {
        self.tcp(socket).is_some_and(Endpoint::at_end)
    }

    fn close(&mut self, socket: SocketId) {
        self.net.close(end(socket));
    }

    fn release(&mut self, socket: SocketId) {
        self.net.sockets.message_headers.forget(end(socket));
        self.net.release(end(socket));
    }

    fn is_broken(&self, socket: SocketId) -> bool {
        self.tcp(socket).is_some_and(|tcp| tcp.error().is_some())
    }

    fn sender(&self, socket: SocketId) -> Option<SenderState> {
        let tcp = self.tcp(socket)?;
        let stats = tcp.stats();
        Some(SenderState {
            cwnd_bytes: tcp.cwnd().into(),
            peer_window_bytes: tcp.snd_wnd(),
            mss_bytes: tcp.mss(),
            srtt_us: tcp.srtt_ns() / 1_000,
            retransmits: stats.retransmits,
            timeouts: Some(stats.timeouts),
            dsack_duplicates: stats.dsack_received,
            acked_bytes: stats.acked_bytes,
            ..SenderState::default()
        })
    }

    fn open_datagrams(&mut self, peer: SocketAddr, limit_bytes: u64) -> SocketId {
        let owner = self.owner(0);
        let (address, port) = (peer.ip(), peer.port());
        id((self.net).open_datagrams(self.tenant, address, port, limit_bytes, owner))
    }

    fn bind_datagrams(&mut self, port: u16) {
        self.net.bind_datagrams(self.tenant, port, self.owner(0));
    }

    fn send_datagrams(&mut self, socket: SocketId, bytes: u64, payload: u16) -> (u64, u64) {
        self.net.send_datagrams(end(socket), bytes, payload)
    }

    fn bind_message_datagrams(&mut self, port: u16, key: u64) -> Result<(), String> {
        self.net.bind_datagrams(self.tenant, port, self.owner(key));
        Ok(())
    }

    fn send_message_datagrams(
        &mut self,
        socket: SocketId,
        header: &MessageHeader,
        payload: u16,
    ) -> Result<(), String> {
        self.net.post_datagram_header(end(socket), *header);
        self.net.send_datagrams(end(socket), header.bytes, payload);
        Ok(())
    }

    fn datagrams_taken(&self, socket: SocketId) -> (u64, u64) {
        self.net.datagrams_taken(end(socket))
    }

    fn receive_datagram(&mut self, socket: SocketId) -> Option<Datagram> {
        let datagram = self.net.receive_datagram(end(socket))?;
        Some(Datagram {
            number: datagram.number.into(),
            end_bytes: datagram.end_bytes,
            sent_ns: datagram.sent_ns,
            bytes: datagram.payload.into(),
        })
    }
}
