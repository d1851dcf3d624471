//! Applications of tenants, once for all worlds.
//!
//! ```text
//!   Plan ── Role ──▶ App (a state machine per role) ◀── events ── a world
//!                     └── Io: sockets and time ──────────────────▶
//! ```
//! An [`App`] never blocks: a world tells it what happened ([`Actor`]) and it acts through [`Io`],
//! which each world implements on its own sockets. What it saw becomes a part of its tenant's
//! report. Calls are generic: each world has a copy of every role compiled for its sockets.
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod blast;
mod bulk;
mod calls;
mod datagrams;
mod incast;
mod io;
mod messages;
mod meter;
mod phased;
mod ping;
mod probe;
mod queries;
mod rank;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

pub use io::{Datagram, HEADER_BYTES, Io, MessageHeader, Seized, SenderState, SocketId};
pub use meter::Meter;

use sluicegate_scenario::workload::{Report, plan::Role};

/// One role of a tenant. `key` is what the role gave when it opened the socket or set the timer; an
/// accepted connection has the key of its listener until [`Io::set_key`].
pub trait Actor {
    /// Opens listeners; before time 0.
    fn prepare<I: Io>(&mut self, _io: &mut I) {}
    /// Time 0.
    fn begin<I: Io>(&mut self, _io: &mut I) {}
    /// A connection is established.
    fn connected<I: Io>(&mut self, _io: &mut I, _socket: SocketId, _key: u64) {}
    /// Bytes, a datagram, or the end of the stream wait.
    fn readable<I: Io>(&mut self, _io: &mut I, _socket: SocketId, _key: u64) {}
    /// There is room again, after a write that was not taken as a whole.
    fn writable<I: Io>(&mut self, _io: &mut I, _socket: SocketId, _key: u64) {}
    /// A timer is due.
    fn timer<I: Io>(&mut self, _io: &mut I, _key: u64) {}
    /// Whether all is done for which a run lasts; `None` = it lasts for as long as it is told.
    fn is_complete(&self) -> Option<bool> {
        None
    }
    /// Of one that begins together with others: the traffic that they are of, and whether it could
    /// begin now.
    fn held(&self, _now_ns: u64) -> Option<(u32, bool)> {
        None
    }
    /// It begins, together with the others.
    fn set_off<I: Io>(&mut self, _io: &mut I) {}
    /// The run is over; sockets are still open.
    fn finish<I: Io>(&mut self, _io: &mut I, _report: &mut Report) {}
}

/// Declares [`App`] with a variant for each state machine, and passes every event on to it.
macro_rules! apps {
    ($($(#[$doc:meta])* $name:ident($machine:ty),)*) => {
        /// The state machine of a role.
        #[allow(clippy::large_enum_variant)] // of the small ones there are few
        pub enum App {
            $($(#[$doc])* $name($machine),)*
        }

        impl Actor for App {
            fn prepare<I: Io>(&mut self, io: &mut I) {
                match self { $(Self::$name(app) => app.prepare(io),)* }
            }
            fn begin<I: Io>(&mut self, io: &mut I) {
                match self { $(Self::$name(app) => app.begin(io),)* }
            }
            fn connected<I: Io>(&mut self, io: &mut I, socket: SocketId, key: u64) {
                match self { $(Self::$name(app) => app.connected(io, socket, key),)* }
            }
            fn readable<I: Io>(&mut self, io: &mut I, socket: SocketId, key: u64) {
                match self { $(Self::$name(app) => app.readable(io, socket, key),)* }
            }
            fn writable<I: Io>(&mut self, io: &mut I, socket: SocketId, key: u64) {
                match self { $(Self::$name(app) => app.writable(io, socket, key),)* }
            }
            fn timer<I: Io>(&mut self, io: &mut I, key: u64) {
                match self { $(Self::$name(app) => app.timer(io, key),)* }
            }
            fn is_complete(&self) -> Option<bool> {
                match self { $(Self::$name(app) => app.is_complete(),)* }
            }
            fn held(&self, now_ns: u64) -> Option<(u32, bool)> {
                match self { $(Self::$name(app) => app.held(now_ns),)* }
            }
            fn set_off<I: Io>(&mut self, io: &mut I) {
                match self { $(Self::$name(app) => app.set_off(io),)* }
            }
            fn finish<I: Io>(&mut self, io: &mut I, report: &mut Report) {
                match self { $(Self::$name(app) => app.finish(io, report),)* }
            }
        }
    };
}

apps! {
    /// Sends in bulk.
    Source(bulk::Source),
    /// Counts what arrives in bulk.
    Sink(bulk::Sink),
    /// Offers a rate that changes with time.
    PhasedSource(phased::Source),
    /// Sends datagrams.
    DatagramSource(datagrams::Source),
    /// Counts datagrams.
    DatagramSink(datagrams::Sink),
    /// Begins queries.
    Aggregator(queries::Aggregator),
    /// Answers queries.
    QueryServer(queries::Server),
    /// Cheats with a connection.
    Blaster(blast::Blaster),
    /// Measures round trips.
    PingClient(ping::Client),
    /// Returns what it is sent.
    Echo(ping::Echo),
    /// Asks many at once.
    IncastRequester(incast::Requester),
    /// Answers one requester.
    IncastResponder(incast::Responder),
    /// Sends messages.
    MessageSource(messages::Source),
    /// Receives messages.
    MessageSink(messages::Sink),
    /// Plays a rank of a parallel program.
    Rank(rank::Rank),
}

impl App {
    /// The same for a world that sets ranks off together, where their program asks for it.
    pub fn held(role: &Role) -> Self {
        let mut app = Self::from(role);
        let together = matches!(
            role,
            Role::Rank {
                begins_together: true,
                ..
            }
        );
        if let (Self::Rank(rank), true) = (&mut app, together) {
            rank.hold();
        }
        app
    }
}

impl From<&Role> for App {
    fn from(role: &Role) -> Self {
        match role.clone() {
            Role::Source {
                flow,
                peer,
                rate_bps,
                span,
            } => Self::Source(bulk::Source::new(flow, peer, rate_bps, span)),
            Role::Sink { flow, port } => Self::Sink(bulk::Sink::new(flow, port)),
            Role::PhasedSource {
                flow,
                peer,
                phases,
                class,
                span,
            } => Self::PhasedSource(phased::Source::new(flow, peer, phases, class, span)),
            Role::DatagramSource {
                flow,
                peer,
                bytes,
                bursts,
                socket_buffer_bytes,
                span,
            } => {
                let source =
                    datagrams::Source::new(flow, peer, bytes, bursts, socket_buffer_bytes, span);
                Self::DatagramSource(source)
            }
            Role::DatagramSink { flow, port } => {
                Self::DatagramSink(datagrams::Sink::new(flow, port))
            }
            Role::Aggregator {
                flow,
                servers,
                queries,
                sizes,
                connections,
            } => {
                let aggregator =
                    queries::Aggregator::new(flow, servers, queries, sizes, connections);
                Self::Aggregator(aggregator)
            }
            Role::QueryServer {
                flow,
                port,
                others,
                sizes,
                connections,
            } => Self::QueryServer(queries::Server::new(flow, port, others, sizes, connections)),
            Role::Blaster {
                flow,
                peer,
                rate_bps,
                span_bytes,
                span,
            } => Self::Blaster(blast::Blaster::new(flow, peer, rate_bps, span_bytes, span)),
            Role::PingClient {
                flow,
                peer,
                bytes,
                interval_ns,
                span,
            } => Self::PingClient(ping::Client::new(flow, peer, bytes, interval_ns, span)),
            Role::Echo { port, bytes, .. } => Self::Echo(ping::Echo::new(port, bytes)),
            Role::IncastRequester {
                responders,
                bytes,
                interval_ns,
                span,
            } => {
                let requester = incast::Requester::new(responders, bytes, interval_ns, span);
                Self::IncastRequester(requester)
            }
            Role::IncastResponder {
                flow,
                peer,
                bytes,
                span,
            } => Self::IncastResponder(incast::Responder::new(flow, peer, bytes, span)),
            Role::MessageSource {
                peers,
                schedule,
                connections,
                classes,
                span,
            } => {
                let source = messages::Source::new(peers, schedule, connections, classes, span);
                Self::MessageSource(source)
            }
            Role::MessageSink {
                flow,
                port,
                classes,
            } => Self::MessageSink(messages::Sink::new(flow, port, classes)),
            Role::Rank {
                traffic,
                rank,
                port,
                partners,
                datagram_bytes,
                eager_bytes,
                operations,
                checks_sizes,
                span,
                begins_together: _,
            } => {
                let name = (traffic, rank, port);
                let way = datagram_bytes.map_or(rank::Way::Connection, rank::Way::Datagrams);
                Self::Rank(rank::Rank::new(
                    name,
                    partners,
                    way,
                    eager_bytes,
                    (operations, checks_sizes),
                    span,
                ))
            }
        }
    }
}
