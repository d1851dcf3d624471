//! The roles of a plan on simulated sockets.

mod connection_errors;
mod sockets;

use sluicegate_apps::{Actor, App};
use sluicegate_core::number::narrow;
use sluicegate_fabric::Routing;
use sluicegate_scenario::workload::{Plan, Report};
use sluicegate_tcp::Events;

use crate::net::{EndId, Net, Notice, Owner, PacketFabric};
use connection_errors::ConnectionErrors;
pub use sockets::Sockets;

/// A role of a tenant, and the actor that plays it.
struct RoleInstance<A> {
    tenant: u32,
    /// Index of its plan.
    plan: usize,
    /// Of its frames.
    priority: u8,
    /// Likewise, if it is not the network's.
    routing: Option<Routing>,
    actor: A,
}

/// The actors of a part: the roles of the tenants that it looks after.
pub struct Actors<A = App> {
    plans: Vec<(u32, Plan)>,
    /// By plan.
    errors: Vec<ConnectionErrors>,
    roles: Vec<RoleInstance<A>>,
}

impl Actors {
    /// From one plan per tenant.
    pub fn new(plans: Vec<(u32, Plan)>) -> Self {
        let mut roles = Vec::new();
        for (index, (tenant, plan)) in plans.iter().enumerate() {
            for (number, role) in plan.roles.iter().enumerate() {
                roles.push(RoleInstance {
                    tenant: *tenant,
                    plan: index,
                    priority: plan.priority(number),
                    routing: plan.routing(number),
                    actor: App::held(role),
                });
            }
        }
        let errors = plans.iter().map(|_| ConnectionErrors::default()).collect();
        Self {
            plans,
            errors,
            roles,
        }
    }
}

impl<A> Default for Actors<A> {
    fn default() -> Self {
        Self {
            plans: Vec::new(),
            errors: Vec::new(),
            roles: Vec::new(),
        }
    }
}

impl<A: Actor> Actors<A> {
    /// From actors of the caller's own, with their tenants and priorities; `plan` is what all of
    /// them are told.
    pub fn of(plan: &Plan, actors: Vec<(u32, u8, A)>) -> Self {
        let mut all = Self::default();
        for (index, (tenant, priority, actor)) in actors.into_iter().enumerate() {
            all.plans.push((tenant, plan.clone()));
            all.errors.push(ConnectionErrors::default());
            all.roles.push(RoleInstance {
                tenant,
                plan: index,
                priority,
                routing: None,
                actor,
            });
        }
        all
    }

    fn with<F: PacketFabric>(
        &mut self,
        net: &mut Net<F>,
        index: u32,
        act: impl FnOnce(&mut A, &mut Sockets<'_, F>),
    ) {
        let Some(role) = self.roles.get_mut(index as usize) else {
            return;
        };
        let mut io = Sockets {
            net,
            plan: &self.plans[role.plan].1,
            errors: &mut self.errors[role.plan],
            tenant: role.tenant,
            actor: index,
            priority: role.priority,
            routing: role.routing,
        };
        act(&mut role.actor, &mut io);
    }

    /// Time 0: listeners are opened, first alarms set.
    pub fn begin<F: PacketFabric>(&mut self, net: &mut Net<F>) {
        for index in 0..narrow::<u32>(self.roles.len()) {
            self.with(net, index, |actor, io| {
                actor.prepare(io);
                actor.begin(io);
            });
        }
    }

    /// Tells actors what happened since the last call.
    pub fn hear<F: PacketFabric>(&mut self, net: &mut Net<F>) {
        while let Some(notice) = net.sockets.next_notice() {
            match notice {
                Notice::Alarm(index, key) => {
                    self.with(net, index, |actor, io| actor.timer(io, key))
                }
                Notice::Socket(end, events) => self.socket(net, end, events),
            }
        }
    }

    fn socket<F: PacketFabric>(&mut self, net: &mut Net<F>, end: EndId, events: Events) {
        let Owner {
            actor: index, key, ..
        } = net.sockets.owner(end);
        if events.contains(Events::CONNECTED) {
            self.with(net, index, |actor, io| {
                io.errors.connected(end);
                actor.connected(io, sockets::id(end), key);
            });
        }
        if events.contains(Events::FAILED) {
            self.with(net, index, |_, io| io.errors.failed(io.net, io.plan, end));
        }
        let key = net.sockets.owner(end).key;
        if events.contains(Events::READABLE) {
            self.with(net, index, |actor, io| {
                actor.readable(io, sockets::id(end), key)
            });
        }
        if events.contains(Events::WRITABLE) {
            self.with(net, index, |actor, io| {
                actor.writable(io, sockets::id(end), key)
            });
        }
    }

    /// Of each actor that begins together with others: their traffic, and whether it could now.
    pub fn held(&self, now_ns: u64) -> impl Iterator<Item = (u32, bool)> {
        let roles = self.roles.iter();
        roles.filter_map(move |role| role.actor.held(now_ns))
    }

    /// Lets the actors of a traffic begin that begin together.
    pub fn set_off<F: PacketFabric>(&mut self, net: &mut Net<F>, traffic: u32) {
        let now_ns = net.now_ns();
        for index in 0..narrow::<u32>(self.roles.len()) {
            let held = self.roles[index as usize].actor.held(now_ns);
            if held.is_some_and(|(of, _)| of == traffic) {
                self.with(net, index, |actor, io| actor.set_off(io));
            }
        }
    }

    /// Of each actor that decides how long the run lasts: whether it has finished.
    pub fn complete(&self) -> impl Iterator<Item = bool> {
        self.roles
            .iter()
            .filter_map(|role| role.actor.is_complete())
    }

    /// The reports of all tenants.
    pub fn reports<F: PacketFabric>(mut self, net: &mut Net<F>) -> Vec<(u32, Report)> {
        let report = |(tenant, plan): &(u32, Plan)| {
            let report = Report {
                tenant: plan.tenant.clone(),
                ..Report::default()
            };
            (*tenant, report)
        };
        let mut reports: Vec<(u32, Report)> = self.plans.iter().map(report).collect();
        for index in 0..self.roles.len() {
            let (_, report) = &mut reports[self.roles[index].plan];
            self.with(net, narrow::<u32>(index), |actor, io| {
                actor.finish(io, report)
            });
        }
        for ((_, report), errors) in reports.iter_mut().zip(self.errors) {
            report.errors = errors.finish(net.now_ns());
        }
        reports
    }
}

#[cfg(test)]
mod tests;
