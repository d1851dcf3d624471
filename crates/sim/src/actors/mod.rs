//! Roles of a plan as small state machines on simulated sockets: what the lab's tenants do, byte for byte.

mod bulk;
mod calls;
mod datagrams;
mod incast;
mod messages;
mod phased;
mod ping;
mod probe;
mod queries;
mod troubles;

use std::net::SocketAddr;

use sluicegate_scenario::workload::{Plan, Report, plan::Role};
use sluicegate_tcp::Events;

use crate::net::{EndId, Net, Notice, Owner};
use troubles::Troubles;

/// One role of a tenant. `key` is what the actor gave when it opened the socket or set the alarm; an accepted
/// connection has the key of its listener.
pub trait Actor: Send {
    /// Time 0.
    fn begin(&mut self, io: &mut Io<'_>);
    /// A connection is established.
    fn connected(&mut self, _io: &mut Io<'_>, _end: EndId, _key: u64) {}
    /// Bytes, or the end of the stream, wait.
    fn readable(&mut self, _io: &mut Io<'_>, _end: EndId, _key: u64) {}
    /// There is room to write again.
    fn writable(&mut self, _io: &mut Io<'_>, _end: EndId, _key: u64) {}
    /// An alarm is due.
    fn alarm(&mut self, _io: &mut Io<'_>, _key: u64) {}
    /// Whether all is done for which a run lasts; `None` = it lasts for as long as it is told.
    fn is_complete(&self) -> Option<bool> {
        None
    }
    /// The run is over.
    fn finish(&mut self, io: &mut Io<'_>, report: &mut Report);
}

/// What an actor may do, on behalf of its tenant.
pub struct Io<'a> {
    /// The network.
    pub net: &'a mut Net,
    /// The plan of the tenant.
    pub plan: &'a Plan,
    troubles: &'a mut Troubles,
    tenant: u32,
    actor: u32,
    /// Of the frames of its connections.
    priority: u8,
}

impl Io<'_> {
    fn now_ns(&self) -> u64 {
        self.net.now_ns()
    }

    /// Whether this time counts.
    fn measured(&self, at_ns: u64) -> bool {
        self.plan.measures(at_ns)
    }

    /// Opens a connection from this tenant.
    pub fn connect(&mut self, peer: SocketAddr, key: u64) -> EndId {
        let end = self
            .net
            .connect(self.tenant, peer.ip(), peer.port(), self.owner(key));
        self.troubles.opened(end, peer, self.net.now_ns());
        end
    }

    /// Accepts connections to this tenant.
    pub fn listen(&mut self, port: u16, key: u64) {
        self.net.accept(self.tenant, port, self.owner(key));
    }

    fn owner(&self, key: u64) -> Owner {
        Owner {
            actor: self.actor,
            key,
            priority: self.priority,
        }
    }

    /// Opens a socket for datagrams from this tenant.
    fn open_datagrams(&mut self, peer: SocketAddr, limit_bytes: u64) -> EndId {
        let owner = self.owner(0);
        let (address, port) = (peer.ip(), peer.port());
        (self.net).open_datagrams(self.tenant, address, port, limit_bytes, owner)
    }

    /// Receives datagrams for this tenant.
    fn bind_datagrams(&mut self, port: u16) {
        self.net.bind_datagrams(self.tenant, port, self.owner(0));
    }

    /// Whether a connection has failed.
    fn is_broken(&self, end: EndId) -> bool {
        let tcp = self.net.ends[end as usize].tcp.as_ref();
        tcp.is_some_and(|tcp| tcp.error().is_some())
    }

    fn alarm(&mut self, at_ns: u64, key: u64) {
        self.net.wake_at(at_ns, self.tenant, self.actor, key);
    }

    fn set_key(&mut self, end: EndId, key: u64) {
        self.net.ends[end as usize].key = key;
    }
}

struct Seat {
    tenant: u32,
    /// Index of its plan.
    plan: usize,
    /// Of its frames.
    priority: u8,
    actor: Box<dyn Actor>,
}

/// The roles of the tenants that a part looks after.
pub struct Cast {
    plans: Vec<(u32, Plan)>,
    /// By plan.
    troubles: Vec<Troubles>,
    seats: Vec<Seat>,
}

impl Cast {
    /// From one plan per tenant.
    pub fn new(plans: Vec<(u32, Plan)>) -> Self {
        let mut seats = Vec::new();
        for (index, (tenant, plan)) in plans.iter().enumerate() {
            for (number, role) in plan.roles.iter().enumerate() {
                seats.push(Seat {
                    tenant: *tenant,
                    plan: index,
                    priority: plan.priority(number),
                    actor: actor(role),
                });
            }
        }
        let troubles = plans.iter().map(|_| Troubles::default()).collect();
        Self {
            plans,
            troubles,
            seats,
        }
    }

    /// From actors of the caller's own, by tenant; `plan` is what all of them are told.
    pub fn of(plan: &Plan, actors: Vec<(u32, Box<dyn Actor>)>) -> Self {
        let mut cast = Self::new(Vec::new());
        for (index, (tenant, actor)) in actors.into_iter().enumerate() {
            cast.plans.push((tenant, plan.clone()));
            cast.troubles.push(Troubles::default());
            cast.seats.push(Seat {
                tenant,
                plan: index,
                priority: plan.priority(cast.seats.len()),
                actor,
            });
        }
        cast
    }

    fn with(&mut self, net: &mut Net, index: u32, act: impl FnOnce(&mut dyn Actor, &mut Io<'_>)) {
        let Some(seat) = self.seats.get_mut(index as usize) else {
            return;
        };
        let mut io = Io {
            net,
            plan: &self.plans[seat.plan].1,
            troubles: &mut self.troubles[seat.plan],
            tenant: seat.tenant,
            actor: index,
            priority: seat.priority,
        };
        act(seat.actor.as_mut(), &mut io);
    }

    /// Time 0: listeners are opened, first alarms set.
    pub fn begin(&mut self, net: &mut Net) {
        for index in 0..self.seats.len() as u32 {
            self.with(net, index, |actor, io| actor.begin(io));
        }
    }

    /// Tells actors what happened since the last call.
    pub fn hear(&mut self, net: &mut Net) {
        while let Some(notice) = net.notices.pop_front() {
            match notice {
                Notice::Alarm(index, key) => {
                    self.with(net, index, |actor, io| actor.alarm(io, key))
                }
                Notice::Socket(end, events) => self.socket(net, end, events),
            }
        }
    }

    fn socket(&mut self, net: &mut Net, end: EndId, events: Events) {
        let (index, key) = (net.ends[end as usize].actor, net.ends[end as usize].key);
        if events.contains(Events::CONNECTED) {
            self.with(net, index, |actor, io| {
                io.troubles.connected(end);
                actor.connected(io, end, key);
            });
        }
        if events.contains(Events::FAILED) {
            self.with(net, index, |_, io| io.troubles.failed(io.net, io.plan, end));
        }
        let key = net.ends[end as usize].key;
        if events.contains(Events::READABLE) {
            self.with(net, index, |actor, io| actor.readable(io, end, key));
        }
        if events.contains(Events::WRITABLE) {
            self.with(net, index, |actor, io| actor.writable(io, end, key));
        }
    }

    /// Of those for whom the run lasts: whether each has done all.
    pub fn complete(&self) -> impl Iterator<Item = bool> {
        self.seats
            .iter()
            .filter_map(|seat| seat.actor.is_complete())
    }

    /// What everybody saw, by tenant.
    pub fn reports(mut self, net: &mut Net) -> Vec<(u32, Report)> {
        let mut reports: Vec<(u32, Report)> = self
            .plans
            .iter()
            .zip(&mut self.troubles)
            .map(|((tenant, plan), troubles)| {
                let report = Report {
                    tenant: plan.tenant.clone(),
                    errors: std::mem::take(troubles).finish(net.now_ns()),
                    ..Report::default()
                };
                (*tenant, report)
            })
            .collect();
        for index in 0..self.seats.len() {
            let (_, report) = &mut reports[self.seats[index].plan];
            self.with(net, index as u32, |actor, io| actor.finish(io, report));
        }
        reports
    }
}

fn actor(role: &Role) -> Box<dyn Actor> {
    match role.clone() {
        Role::Source {
            flow,
            peer,
            rate_bps,
            span,
        } => Box::new(bulk::Source::new(flow, peer, rate_bps, span)),
        Role::PhasedSource {
            flow,
            peer,
            phases,
            class,
            span,
        } => Box::new(phased::Source::new(flow, peer, phases, class, span)),
        Role::DatagramSource {
            flow,
            peer,
            bytes,
            bursts,
            socket_buffer_bytes,
            span,
        } => Box::new(datagrams::Source::new(
            flow,
            peer,
            bytes,
            bursts,
            socket_buffer_bytes,
            span,
        )),
        Role::DatagramSink { flow, port } => Box::new(datagrams::Sink::new(flow, port)),
        Role::Aggregator {
            flow,
            servers,
            queries,
            sizes,
            connections,
        } => Box::new(queries::Aggregator::new(
            flow,
            servers,
            queries,
            sizes,
            connections,
        )),
        Role::QueryServer {
            flow,
            port,
            others,
            sizes,
            connections,
        } => Box::new(queries::Server::new(flow, port, others, sizes, connections)),
        Role::Blaster { .. } => unreachable!("`limits` refuses it"),
        Role::Sink { flow, port } => Box::new(bulk::Sink::new(flow, port)),
        Role::PingClient {
            flow,
            peer,
            bytes,
            interval_ns,
            span,
        } => Box::new(ping::Client::new(flow, peer, bytes, interval_ns, span)),
        Role::Echo { port, bytes, .. } => Box::new(ping::Echo::new(port, bytes)),
        Role::IncastRequester {
            responders,
            bytes,
            interval_ns,
            span,
        } => Box::new(incast::Requester::new(responders, bytes, interval_ns, span)),
        Role::IncastResponder { flow, peer, span } => {
            Box::new(incast::Responder::new(flow, peer, span))
        }
        Role::MessageSource {
            peers,
            schedule,
            connections,
            classes,
            span,
        } => Box::new(messages::Source::new(
            peers,
            schedule,
            connections,
            classes,
            span,
        )),
        Role::MessageSink {
            flow,
            port,
            classes,
        } => Box::new(messages::Sink::new(flow, port, classes)),
    }
}

#[cfg(test)]
mod tests;
