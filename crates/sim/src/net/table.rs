//! The sockets of a part: ends, listeners, and notices to actors.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use sluicegate_tcp::{Cache, Endpoint, Events};

use super::{ConnectionEnd, EndId};
use crate::message_headers::MessageHeaders;

/// Whose a socket is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Owner {
    /// The actor that is notified.
    pub actor: u32,
    /// What the actor calls it.
    pub key: u64,
    /// IEEE 802.1Q priority of its frames, 0..=7.
    pub priority: u8,
}

/// (own tenant, own port, peer's tenant, peer's port).
pub(super) type Ends = (u32, u16, u32, u16);

/// What an actor is told.
#[derive(Clone, Copy, Debug)]
pub enum Notice {
    /// Of one of its sockets.
    Socket(EndId, Events),
    /// A timer of its own: actor, key.
    Alarm(u32, u64),
}

/// A timer of an actor.
#[derive(Clone, Copy)]
struct Alarm {
    host: u16,
    actor: u32,
    key: u64,
}

/// What actors have on the hosts of a part.
#[derive(Default)]
pub struct Sockets {
    /// Ends of connections.
    pub(crate) ends: Vec<ConnectionEnd>,
    /// Ends that a SYN made.
    pub(super) accepted: FxHashMap<Ends, EndId>,
    /// By tenant and port.
    pub(super) listeners: FxHashMap<(u32, u16), Owner>,
    /// Sockets for datagrams, by tenant and port.
    pub(super) bound: FxHashMap<(u32, u16), EndId>,
    /// What tenants know of their peers from earlier connections, by tenant and peer.
    pub(crate) cache: Cache<(u32, u32)>,
    alarms: Vec<Alarm>,
    /// Connections that are over keep their stacks, for tests and traces that read them.
    pub(crate) keeps_all: bool,
    /// For the actors, in order.
    pub(crate) notices: VecDeque<Notice>,
    /// Headers of messages under way.
    pub(crate) message_headers: MessageHeaders,
}

impl Sockets {
    /// How many ends there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The stack's part of an end.
    pub fn tcp(&self, end: EndId) -> Option<&Endpoint> {
        self.ends[end as usize].tcp.as_deref()
    }

    /// Whose an end is.
    pub fn owner(&self, end: EndId) -> Owner {
        let ConnectionEnd {
            actor,
            key,
            priority,
            ..
        } = self.ends[end as usize];
        Owner {
            actor,
            key,
            priority,
        }
    }

    /// Its owner calls an end so from now on.
    pub fn set_key(&mut self, end: EndId, key: u64) {
        self.ends[end as usize].key = key;
    }

    /// Whether there is something to tell actors.
    pub fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// What an actor is to be told next.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// The owner of what listens for a SYN between these.
    pub(super) fn listener(&self, (tenant, port, ..): Ends) -> Option<Owner> {
        self.listeners.get(&(tenant, port)).copied()
    }

    /// The end that an earlier SYN of this peer has made. Ports come again; the same end that opens does not.
    pub(super) fn accepted_from(&self, ends: Ends, peer: EndId) -> Option<EndId> {
        let known = self.accepted.get(&ends).copied();
        known.filter(|&end| self.ends[end as usize].addressing.peer == peer)
    }

    /// Something has happened to an end: its owner is to be told, and what its stack has learnt of the peer is kept.
    pub(super) fn note_events(&mut self, end: EndId, events: Events) {
        if events.is_empty() {
            return;
        }
        let state = &mut self.ends[end as usize];
        if let Some(tcp) = &mut state.tcp {
            let peer = (state.addressing.tenant, state.addressing.peer_tenant);
            self.cache.on_events(peer, tcp, events);
        }
        self.notices.push_back(Notice::Socket(end, events));
    }

    /// A timer of an actor, in the place of one that is over if there is one. Returns its number.
    pub(super) fn set_alarm(
        &mut self,
        (actor, key): (u32, u64),
        host: u16,
        free: Option<u32>,
    ) -> u32 {
        let alarm = Alarm { host, actor, key };
        let index = free.unwrap_or(self.alarms.len() as u32);
        match self.alarms.get_mut(index as usize) {
            Some(place) => *place = alarm,
            None => self.alarms.push(alarm),
        }
        index
    }

    /// A timer of an actor has expired: the actor is notified. Returns its host.
    pub(super) fn ring(&mut self, index: u32) -> u16 {
        let Alarm { host, actor, key } = self.alarms[index as usize];
        self.notices.push_back(Notice::Alarm(actor, key));
        host
    }
}
