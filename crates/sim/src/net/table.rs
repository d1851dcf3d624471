//! The sockets of a part: ends, listeners, and notices to actors.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use sluicegate_core::number::narrow;
use sluicegate_fabric::{graph::HostId, routing::PathValues};
use sluicegate_tcp::{Cache, Endpoint, Events};

use super::{ConnectionEnd, EndId, Processes};
use crate::message_headers::MessageHeaders;

/// The owner of a socket.
#[derive(Clone, Copy, Debug, Default)]
pub struct Owner {
    /// The actor that is notified.
    pub actor: u32,
    /// The actor's name for the socket.
    pub key: u64,
    /// IEEE 802.1Q priority of its frames, 0..=7.
    pub priority: u8,
    /// What its frames have as path values, if it is not what the network's scheme says.
    pub path_values: Option<PathValues>,
}

/// (own tenant, own port, peer's tenant, peer's port).
pub(super) type Ends = (u32, u16, u32, u16);

/// A notice to an actor.
#[derive(Clone, Copy, Debug)]
pub enum Notice {
    /// Events at one of its sockets.
    Socket(EndId, Events),
    /// The expiry of a timer: the actor and its key.
    Alarm(u32, u64),
}

/// A timer of an actor.
#[derive(Clone, Copy)]
struct Alarm {
    host: HostId,
    actor: u32,
    key: u64,
}

/// The sockets and alarms of actors on the hosts of a part.
#[derive(Default)]
pub struct Sockets {
    /// Ends of connections.
    pub(crate) ends: Vec<ConnectionEnd>,
    /// The ends that SYNs have made.
    pub(super) accepted: FxHashMap<Ends, EndId>,
    /// The owners of listening sockets, by tenant and port.
    pub(super) listeners: FxHashMap<(u32, u16), Owner>,
    /// Sockets for datagrams, by tenant and port.
    pub(super) bound: FxHashMap<(u32, u16), EndId>,
    /// The metrics of earlier connections, by tenant and peer.
    pub(crate) cache: Cache<(u32, u32)>,
    alarms: Vec<Alarm>,
    /// Processes that read late; `None` = all read at once.
    pub(crate) processes: Option<Box<Processes>>,
    /// Connections that have ended keep their stacks, for tests and traces that read them.
    pub(crate) keeps_all: bool,
    /// The notices to actors, in order.
    pub(crate) notices: VecDeque<Notice>,
    /// The headers of messages under way.
    pub(crate) message_headers: MessageHeaders,
}

impl Sockets {
    /// The number of ends.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there is no end.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The stack of an end, if it has one.
    pub fn tcp(&self, end: EndId) -> Option<&Endpoint> {
        self.ends[end as usize].tcp.as_deref()
    }

    /// The owner of an end.
    pub fn owner(&self, end: EndId) -> Owner {
        let ConnectionEnd {
            actor,
            key,
            priority,
            path_values,
            ..
        } = self.ends[end as usize];
        Owner {
            actor,
            key,
            priority,
            path_values,
        }
    }

    /// Sets the owner's name for an end.
    pub fn set_key(&mut self, end: EndId, key: u64) {
        self.ends[end as usize].key = key;
    }

    /// Whether a notice to an actor is pending.
    pub fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// Takes the next notice.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// The owner of the socket that listens for a SYN between these ends.
    pub(super) fn listener(&self, (tenant, port, ..): Ends) -> Option<Owner> {
        self.listeners.get(&(tenant, port)).copied()
    }

    /// The end that an earlier SYN of this peer has made. Later connections may have the same
    /// ports, but not the same opening end.
    pub(super) fn accepted_from(&self, ends: Ends, peer: EndId) -> Option<EndId> {
        let known = self.accepted.get(&ends).copied();
        known.filter(|&end| self.ends[end as usize].addressing.peer == peer)
    }

    /// Queues a notice of events at an end to its owner, and keeps the metrics that its stack has
    /// learnt.
    #[inline(always)]
    pub(super) fn note_events(&mut self, end: EndId, events: Events) {
        if !events.is_empty() {
            self.notify(end, events);
        }
    }

    fn notify(&mut self, end: EndId, events: Events) {
        let usual = Events::READABLE | Events::WRITABLE;
        if !usual.contains(events) {
            let state = &mut self.ends[end as usize];
            if let Some(tcp) = &mut state.tcp {
                let peer = (state.addressing.tenant, state.addressing.peer_tenant);
                self.cache.on_events(peer, tcp, events);
            }
        }
        self.notices.push_back(Notice::Socket(end, events));
    }

    /// Sets a timer of an actor, in the place of an expired one (`free`) if there is one. Returns
    /// its number.
    pub(super) fn set_alarm(
        &mut self,
        (actor, key): (u32, u64),
        host: HostId,
        free: Option<u32>,
    ) -> u32 {
        let alarm = Alarm { host, actor, key };
        let index = free.unwrap_or(narrow::<u32>(self.alarms.len()));
        match self.alarms.get_mut(index as usize) {
            Some(place) => *place = alarm,
            None => self.alarms.push(alarm),
        }
        index
    }

    /// A timer of an actor expires, which queues a notice to the actor. Returns its host.
    pub(super) fn ring(&mut self, index: u32) -> HostId {
        let Alarm { host, actor, key } = self.alarms[index as usize];
        self.notices.push_back(Notice::Alarm(actor, key));
        host
    }
}
