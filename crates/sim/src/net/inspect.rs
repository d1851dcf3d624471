//! Views of a part for its observers, and the check of its account.

use sluicegate_core::{
    abi::{Flow, FlowKey},
    number::narrow,
};
use sluicegate_fabric::graph::HostId;
use sluicegate_tcp::Endpoint;
use sluicegate_vswitch::{Passed, Vnics};

use super::{EndId, Host, Net, PacketFabric, key};
use crate::packet::NO_END;

/// The state of an end of a connection.
pub struct Known<'a> {
    /// Addresses and ports.
    pub key: FlowKey,
    /// The state in the stack.
    pub tcp: Option<&'a Endpoint>,
    /// The state in the vNIC stage.
    pub enforced: Option<&'a Flow>,
    /// The host of the other end and its number there, if they are known.
    pub peer: Option<(HostId, EndId)>,
}

impl<F: PacketFabric> Net<F> {
    /// Every flow that a host's vNIC stage knows.
    pub fn tracked(&self, host: HostId) -> impl Iterator<Item = (&FlowKey, &Flow)> {
        let stage = self.hosts[host.index()].switch.vnics.as_ref();
        stage.into_iter().flat_map(Vnics::flows)
    }

    /// The state of an end of a connection.
    pub fn known(&self, end: EndId) -> Known<'_> {
        let state = &self.sockets.ends[end as usize];
        let vnics = self.hosts[state.host.index()].switch.vnics.as_ref();
        Known {
            key: key(&self.sockets.ends[end as usize], &self.layout.tenants),
            tcp: state.tcp.as_deref(),
            enforced: vnics.and_then(|vnics| vnics.flow(end)),
            peer: (state.addressing.peer != NO_END)
                .then_some((state.addressing.peer_host, state.addressing.peer)),
        }
    }

    /// Packets at the points of a tenant's vNIC so far, of all priorities; `None` where the switch
    /// of its host has no processor.
    pub fn passed(&self, tenant: u32) -> Option<Passed> {
        let host = self.layout.tenants[tenant as usize].host;
        let machine = &self.hosts[host.index()];
        let (forwarder, vnic) = (machine.forwarder.as_ref()?, self.layout.vnic(tenant));
        let of_priority = |priority| machine.switch.passed(forwarder.vnic(vnic, priority));
        Some((0..forwarder.priorities()).map(of_priority).sum())
    }

    /// Checks that every packet is accounted for: sent + duplicated = handed over + consumed +
    /// policed + dropped + under way + waiting for a host that stands still. The same holds at each
    /// point of switches that count.
    ///
    /// # Errors
    /// The balance, if it is not zero.
    pub fn account(&self) -> Result<(), String> {
        for (host, machine) in HostId::enumerate(&self.hosts) {
            let balance = machine.switch.balance();
            balance.map_err(|lacks| format!("the switch of host {}, {lacks}", host.0))?;
        }
        self.account_for_vnics()?;
        let books = self.fabric.books();
        let switches = self.hosts.iter().map(|host| &host.switch);
        let in_switches: u64 = switches.clone().map(|switch| switch.packets() as u64).sum();
        let by_switches: u64 = switches.flat_map(|switch| switch.drops()).sum();
        let dropped = books.dropped + by_switches;
        let underway = books.underway + in_switches;
        let waiting: u64 = self.hosts.iter().map(|host| host.troubles.waiting()).sum();
        let made = self.counts.made() + books.made;
        let found = self.counts.over() + books.absorbed + dropped + underway + waiting;
        // With several parts, a part keeps exported packets while they count as backlog.
        let alone = self.layout.partition.parts() == 1;
        let kept = self.fabric.ports().pool.len() as u64;
        if made == found && (!alone || kept == underway + waiting) {
            return self.fabric.audit();
        }
        Err(format!(
            "{made} packets were sent or doubled but {found} are accounted for: {} delivered, {} consumed, \
             {} policed, {dropped} dropped, {underway} underway, {waiting} at hosts that stand still, {} handed to \
             other parts (part {}, which keeps {kept})",
            self.counts.handed,
            self.counts.consumed,
            self.counts.policed,
            self.counts.exported,
            self.post.part
        ))
    }

    /// Checks that what stacks and sockets have sent has come to the switches of their hosts, where
    /// these have processors.
    fn account_for_vnics(&self) -> Result<(), String> {
        if !self.hosts.iter().all(Host::forwards_in_time) {
            return Ok(());
        }
        let tenants = 0..narrow::<u32>(self.layout.tenants.len());
        let passed: Passed = tenants.filter_map(|tenant| self.passed(tenant)).sum();
        let sent = self.counts.sent + self.counts.facks - self.counts.policed;
        match passed.offered == sent {
            true => Ok(()),
            false => Err(format!(
                "{sent} packets were sent and {} have come to switches of hosts",
                passed.offered
            )),
        }
    }
}
