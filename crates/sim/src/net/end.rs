//! The ends of connections.

use sluicegate_fabric::{
    contract::Sender,
    graph::{HostId, PortId},
    routing::PathValues,
};
use sluicegate_tcp::Endpoint;
use sluicegate_vswitch::Side;

use super::{Datagrams, EndId, Owner, life::Life, route};
use crate::packet::Addressing;

/// One end of a connection, or a socket for datagrams: two cache lines, of which each packet needs
/// the first.
#[repr(C, align(64))]
pub struct ConnectionEnd {
    /// The stack's state; `None` until a SYN arrives, and after the connection has ended.
    pub tcp: Option<Box<Endpoint>>,
    /// The time at which its timer fires; `u64::MAX` = no timer is set.
    pub(super) timer_ps: u64,
    /// See [`ConnectionEnd::straight_to`]; [`IN_TURN`] = `None`.
    straight_to: PortId,
    /// When it was served last, its stack waited for no time: a timer that fires has nothing to
    /// do, and need not read the stack, which is in no near cache.
    pub(super) awaits_nothing: bool,
    /// The addresses of its packets.
    pub(crate) addressing: Addressing,
    /// The entrance and the exit of its packets at its host's switch.
    pub(super) sides: (Side, Side),
    pub(crate) host: HostId,
    /// The switch of its host holds it back.
    pub(super) held: bool,
    /// Its stack waits until the data that it has sent leave the host.
    pub(super) throttled: bool,
    pub(super) life: Life,
    /// IEEE 802.1Q priority of its frames, 0..=7.
    pub priority: u8,
    /// The actor's name for the socket.
    pub key: u64,
    /// The actor that owns the socket.
    pub actor: u32,
    /// [`super::Owner::path_values`].
    pub path_values: Option<PathValues>,
    /// The state of a socket for datagrams, which has no stack.
    pub datagrams: Option<Box<Datagrams>>,
    /// Its path values, if packets recycle them and some have.
    pub(super) paths: Option<Box<route::PathsOfEnd>>,
}

const _: () = assert!(size_of::<ConnectionEnd>() == 128);
const _: () = assert!(std::mem::offset_of!(ConnectionEnd, key) == 64);

/// No port.
const IN_TURN: PortId = PortId(u32::MAX);

impl ConnectionEnd {
    /// An end that its application will use, without a stack or a socket, on this host.
    pub(super) fn new(addressing: Addressing, host: HostId, owner: Owner) -> Self {
        Self {
            tcp: None,
            timer_ps: u64::MAX,
            straight_to: IN_TURN,
            awaits_nothing: false,
            addressing,
            sides: (Side::Uplink, Side::Uplink),
            host,
            held: false,
            throttled: false,
            life: Life::Used,
            priority: owner.priority,
            key: owner.key,
            actor: owner.actor,
            path_values: owner.path_values,
            datagrams: None,
            paths: None,
        }
    }

    /// The port to which the host's switch passes every packet at once; `None` = senders of the
    /// host may have to wait, and each packet passes through the switch.
    #[inline(always)]
    pub(super) fn straight_to(&self) -> Option<PortId> {
        (self.straight_to != IN_TURN).then_some(self.straight_to)
    }

    /// Sets [`ConnectionEnd::straight_to`].
    pub(super) fn set_straight_to(&mut self, port: Option<PortId>) {
        self.straight_to = port.unwrap_or(IN_TURN);
    }

    /// The end as the fabric knows it; `id` is its number.
    #[inline(always)]
    pub(super) fn sender(&self, id: EndId) -> Sender {
        Sender {
            host: self.host,
            priority: self.priority,
            number: id,
        }
    }

    /// Counts data that have left its host, in bytes.
    pub(super) fn left(&mut self, payload: u16) {
        if let Some(tcp) = &mut self.tcp {
            tcp.left(payload);
        } else if let Some(datagrams) = &mut self.datagrams {
            datagrams.left(payload);
        }
    }
}
