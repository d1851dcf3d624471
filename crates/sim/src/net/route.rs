//! The port by which a packet leaves a switch.

use std::sync::Arc;

use sluicegate_core::number::low_half;
use sluicegate_fabric::{
    Frame, Handle, Routes,
    graph::{HostId, Node, PortId, SwitchId},
    random::draw,
    routing::{Passing, PathValues, Plb, PlbRules, Query, Recycled, Scheme, Sending, Snooped},
};

use sluicegate_tcp::{Endpoint, State as Phase};

use super::{ConnectionEnd, EndId, Net, PacketFabric};
use crate::packet::{Body, Packet, TcpHeader};

/// The state of the routing scheme at the switches of a part.
#[cfg(not(test))]
pub(super) type State = <Routes as Scheme>::State;
#[cfg(test)]
pub(super) type State = <tests::Counting<'static> as Scheme>::State;

/// The scheme of the network; in unit tests one that counts its calls.
#[cfg(not(test))]
fn scheme(routes: &Routes) -> &Routes {
    routes
}
#[cfg(test)]
fn scheme(routes: &Routes) -> tests::Counting<'_> {
    tests::Counting(routes)
}

/// [`Routes::snoop`]; unit tests have schemes without it.
#[cfg(not(test))]
fn snoop(routes: &Routes, query: Query, snooped: Snooped, state: &mut State) -> Option<PortId> {
    routes.snoop(query, snooped, state)
}
#[cfg(test)]
fn snoop(routes: &Routes, query: Query, _: Snooped, _: &mut State) -> Option<PortId> {
    routes.peek(query)
}

/// [`Routes::pass`]; unit tests have schemes without it.
#[cfg(not(test))]
fn pass(
    routes: &Routes,
    passing: Passing,
    rate: impl Fn(PortId) -> u64,
    state: &mut State,
) -> Option<(PortId, u32)> {
    routes.pass(passing, rate, state)
}
#[cfg(test)]
fn pass(
    routes: &Routes,
    passing: Passing,
    _: impl Fn(PortId) -> u64,
    _: &mut State,
) -> Option<(PortId, u32)> {
    Some((routes.peek(passing.query)?, passing.query.path))
}

/// [`Routes::choose_own`]; likewise.
#[cfg(not(test))]
fn choose_own(
    routes: &Routes,
    priority: u8,
    query: Query,
    load: impl FnMut(PortId) -> u64,
    state: &mut State,
) -> Option<PortId> {
    routes.choose_own(priority, query, load, state)
}
#[cfg(test)]
fn choose_own(
    _: &Routes,
    _: u8,
    _: Query,
    _: impl FnMut(PortId) -> u64,
    _: &mut State,
) -> Option<PortId> {
    None
}

/// Whether switches do more with what passes them than to ask [`Scheme::choose`].
pub(super) fn snoops(routes: &Routes) -> bool {
    routes.snoops() || routes.rewrites() || routes.has_own()
}

fn query(switch: SwitchId, packet: &Packet, now_ps: u64) -> Query {
    Query {
        switch,
        host: packet.host(),
        path: packet.path,
        now_ps,
    }
}

impl<F: PacketFabric> Net<F> {
    /// The port by which a packet leaves a switch. It is called once for each packet and switch,
    /// when the packet has arrived.
    #[inline(always)]
    pub(crate) fn choose(&mut self, switch: SwitchId, packet: Handle) -> Option<PortId> {
        let now_ps = self.clock.now_ps;
        let query = query(switch, &self.fabric.ports().pool[packet], now_ps);
        let fabric = &mut self.fabric;
        // Timers and effects of this call are carried out when the packet is forwarded.
        let load_bytes = |port: PortId| fabric.load_bytes(port, now_ps);
        scheme(&self.routes).choose(query, load_bytes, &mut self.routing)
    }

    /// The port that [`Net::choose`] will probably return, for a prefetch.
    #[inline]
    pub(super) fn peek(&self, switch: SwitchId, packet: &Packet) -> Option<PortId> {
        scheme(&self.routes).peek(query(switch, packet, self.clock.now_ps))
    }

    /// [`Net::choose`] where switches learn from what passes them or there are many ends.
    #[inline(always)]
    pub(super) fn look_and_choose(
        &mut self,
        port: PortId,
        switch: SwitchId,
        packet: Handle,
    ) -> Option<PortId> {
        match self.rewrites {
            true => self.pass_switch(port.opposite(), switch, packet),
            false => self.snoop_and_choose(port, switch, packet),
        }
    }

    #[inline(never)]
    fn snoop_and_choose(
        &mut self,
        port: PortId,
        switch: SwitchId,
        packet: Handle,
    ) -> Option<PortId> {
        let snooped = match self.snoops {
            false => None,
            true => self.snoop_arrived(port, switch, packet),
        };
        let out = snooped.or_else(|| self.choose(switch, packet))?;
        if self.has_many_ends {
            self.fetch_receiver(out, packet);
        }
        Some(out)
    }

    /// A packet arrives at a switch that learns from some, or has schemes of priorities. Returns
    /// the port by which it continues; `None` if that is [`Net::choose`]'s.
    fn snoop_arrived(&mut self, port: PortId, switch: SwitchId, packet: Handle) -> Option<PortId> {
        let body = &self.fabric.ports().pool[packet].body;
        match matches!(body, Body::Notification(_)) || self.routes.has_own() {
            true => self.snoop(port.opposite(), switch, packet),
            false => None,
        }
    }

    /// [`Net::choose`] for a packet whose priority has a scheme of its own.
    fn choose_own(&mut self, switch: SwitchId, packet: Handle) -> Option<PortId> {
        let priority = self
            .fabric
            .priority(packet)
            .filter(|_| self.routes.has_own())?;
        let now_ps = self.clock.now_ps;
        let query = query(switch, &self.fabric.ports().pool[packet], now_ps);
        let fabric = &mut self.fabric;
        let load_bytes = |port: PortId| fabric.load_bytes(port, now_ps);
        choose_own(&self.routes, priority, query, load_bytes, &mut self.routing)
    }

    /// The scheme of a priority decides what ends put into path values, if it has one of its own.
    pub(crate) fn path_values_of_priority(&self, priority: u8) -> Option<PathValues> {
        let routes = self.routes.has_own().then(|| self.routes.of(priority));
        routes.map(Routes::path_values)
    }

    /// A packet arrives at a switch that rewrites path values; `back` is the port that leads to
    /// where it comes from.
    #[inline(never)]
    fn pass_switch(&mut self, back: PortId, switch: SwitchId, handle: Handle) -> Option<PortId> {
        let packet = &self.fabric.ports().pool[handle];
        let passing = Passing {
            query: query(switch, packet, self.clock.now_ps),
            from_host: matches!(self.layout.next_hops[back.index()], Node::Host(_)),
            bytes: packet.bytes(),
        };
        let ports = self.fabric.ports();
        let rate = |port| ports.rate_bps(port);
        let (port, path) = pass(&self.routes, passing, rate, &mut self.routing)?;
        self.fabric.pool_mut()[handle].path = path;
        if self.has_many_ends {
            self.fetch_receiver(port, handle);
        }
        Some(port)
    }

    /// The same; if it is a notification, congestion lies behind `port` of the switch.
    pub(crate) fn snoop(
        &mut self,
        port: PortId,
        switch: SwitchId,
        handle: Handle,
    ) -> Option<PortId> {
        let packet = &self.fabric.ports().pool[handle];
        let Some(notification) = packet.notification() else {
            return self.choose_own(switch, handle);
        };
        let snooped = Snooped {
            host: notification.queue.destination,
            port,
            priority: notification.queue.priority,
            fb: notification.feedback.fb,
        };
        let query = query(switch, packet, self.clock.now_ps);
        let port = snoop(&self.routes, query, snooped, &mut self.routing);
        port.or_else(|| self.choose_own(switch, handle))
    }

    /// From now on switches follow other routes of the same scheme. They forget the choices that
    /// they keep.
    pub(crate) fn reroute(&mut self, routes: Arc<Routes>) {
        F::reroute(self, &routes);
        self.routes = routes;
        self.routing = State::default();
    }

    fn path_values_of(&self, end: &ConnectionEnd) -> PathValues {
        end.path_values.unwrap_or(self.path_values)
    }

    /// The path value of the packets of a new end, where they all have one.
    pub(super) fn path_of_end(&mut self, end: &ConnectionEnd, flow_hash: u32) -> u32 {
        let values = self.path_values_of(end);
        self.own_paths |= values.differ_by_packet();
        self.noted_paths |= values.follow_arrivals();
        match values {
            PathValues::Host => end.host.0,
            PathValues::Destination => end.addressing.peer_host.0,
            _ => flow_hash,
        }
    }

    /// Gives a packet that leaves its stack a path value of its own, if the scheme wants that.
    #[inline(always)]
    pub(super) fn give_path(&mut self, host: HostId, end: EndId, packet: Handle) {
        if self.own_paths {
            self.give_own_path(host, end, packet);
        }
    }

    #[inline(never)]
    fn give_own_path(&mut self, host: HostId, end: EndId, packet: Handle) {
        let now_ps = self.clock.now_ps;
        let values = self.path_values_of(&self.sockets.ends[end as usize]);
        let packet = &mut self.fabric.pool_mut()[packet];
        packet.path = match values {
            PathValues::Random => {
                packet.path ^ (draw(&mut self.hosts[host.index()].paths) >> 32) as u32
            }
            PathValues::Recycled => self.sockets.ends[end as usize].recycled_path(packet, now_ps),
            PathValues::Protected(rules) => {
                self.sockets.ends[end as usize].protected_path(rules, packet, now_ps)
            }
            PathValues::Header => packet.header_hash(),
            PathValues::Connection | PathValues::Host | PathValues::Destination => packet.path,
        };
    }

    /// A packet has arrived at the host of its receiver.
    #[inline(always)]
    pub(super) fn note_path(&mut self, packet: Handle) {
        if self.noted_paths {
            self.note_path_of_arrival(packet);
        }
    }

    #[inline(never)]
    fn note_path_of_arrival(&mut self, packet: Handle) {
        let now_ps = self.clock.now_ps;
        let packet = &self.fabric.ports().pool[packet];
        let (Some(end), Body::Segment(header)) =
            (self.sockets.ends.get_mut(packet.to as usize), &packet.body)
        else {
            return;
        };
        match end.path_values.unwrap_or(self.path_values) {
            PathValues::Protected(rules) => end.look(rules, now_ps),
            PathValues::Recycled => end.recycler().arrived(packet.path, header, now_ps),
            _ => {}
        }
    }
}

/// What an end remembers of the paths of its packets.
pub(super) enum PathsOfEnd {
    Recycled(RecycledPaths),
    Protected(Plb),
}

/// The path values of an end whose packets recycle them.
pub(super) struct RecycledPaths {
    values: Recycled,
    /// That of the last packet with data that has arrived, if one has.
    last: Option<u32>,
    /// Timeouts of the stack so far.
    timeouts: u64,
}

impl RecycledPaths {
    fn arrived(&mut self, path: u32, header: &TcpHeader, now_ps: u64) {
        if header.payload() > 0 {
            self.last = Some(path);
        } else if !header.is_syn() {
            self.values.acknowledged(path, header.echoes_ce(), now_ps);
        }
    }
}

impl ConnectionEnd {
    fn recycler(&mut self) -> &mut RecycledPaths {
        let seed = self.addressing.path;
        let new = || RecycledPaths {
            values: Recycled::new(seed.into()),
            last: None,
            timeouts: 0,
        };
        let paths = self
            .paths
            .get_or_insert_with(|| Box::new(PathsOfEnd::Recycled(new())));
        match &mut **paths {
            PathsOfEnd::Recycled(paths) => paths,
            PathsOfEnd::Protected(_) => unreachable!("an end has one scheme"),
        }
    }

    fn recycled_path(&mut self, packet: &Packet, now_ps: u64) -> u32 {
        let timeouts = self.tcp.as_ref().map_or(0, |tcp| tcp.stats().timeouts);
        let paths = self.recycler();
        if let (0, Some(last)) = (packet.payload(), paths.last) {
            return last;
        }
        if std::mem::replace(&mut paths.timeouts, timeouts) < timeouts {
            paths.values.timed_out(now_ps);
        }
        paths.values.next_value()
    }

    /// The state of the path of an end whose sender is in this state.
    fn protector(&mut self, sending: Sending) -> &mut Plb {
        let path = self.addressing.path;
        let new = || Box::new(PathsOfEnd::Protected(Plb::new(path, sending)));
        match &mut **self.paths.get_or_insert_with(new) {
            PathsOfEnd::Protected(plb) => plb,
            PathsOfEnd::Recycled(_) => unreachable!("an end has one scheme"),
        }
    }

    /// A segment is about to pass to the stack, which has sent all that the last one let it send.
    fn look(&mut self, rules: PlbRules, now_ps: u64) {
        if let Some(tcp) = &self.tcp {
            let sending = sending(tcp);
            self.protector(sending).look(rules, sending, now_ps);
        }
    }

    /// The path value of a packet that the stack has just made.
    fn protected_path(&mut self, rules: PlbRules, packet: &Packet, now_ps: u64) -> u32 {
        let (Some(tcp), Body::Segment(header)) = (&self.tcp, &packet.body) else {
            return packet.path;
        };
        let mut sending = sending(tcp);
        let payload = u64::from(header.payload());
        let is_new = payload > 0 && header.end() == low_half(sending.nxt);
        if is_new {
            sending.nxt -= payload;
        }
        let plb = self.protector(sending);
        plb.look(rules, sending, now_ps);
        if is_new {
            plb.sends(rules, sending, now_ps);
        }
        plb.path()
    }
}

/// The state of a stack as PLB sees it.
fn sending(tcp: &Endpoint) -> Sending {
    let progress = tcp.progress();
    Sending {
        una: progress.una,
        nxt: progress.nxt,
        delivered: progress.delivered,
        marked: progress.marked,
        timeouts: progress.timeouts,
        opening: matches!(tcp.state(), Phase::SynSent | Phase::SynReceived),
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, path::Path};

    use sluicegate_scenario::file::{self, Options};

    use super::*;
    use crate::{
        build::{self, FabricOf},
        converged::Converged,
        net::Plain,
    };

    thread_local! {
        static PEEKS: Cell<u64> = const { Cell::new(0) };
    }

    /// Counts choices, and reads the load of the chosen port.
    pub struct Counting<'a>(pub &'a Routes);

    impl Scheme for Counting<'_> {
        type State = u64;

        fn choose(
            &self,
            query: Query,
            mut load: impl FnMut(PortId) -> u64,
            choices: &mut u64,
        ) -> Option<PortId> {
            *choices += 1;
            let port = self.0.peek(query);
            assert!(port.is_none_or(|port| load(port) < 1 << 40));
            port
        }

        fn peek(&self, query: Query) -> Option<PortId> {
            PEEKS.set(PEEKS.get() + 1);
            self.0.peek(query)
        }
    }

    /// (choices, packets offered to ports of switches, peeks) in a run of all-to-all traffic.
    fn count<F: FabricOf>(network: &str) -> [u64; 3] {
        let text = format!(
            "warmup = '0s'\nduration = '20ms'\n[network]\ntopology = 'fat-tree'\nchildren = [4, 4]\n\
             parents = [1, 2]\nrouting = 'flow-hash'\nrate = '1Gbit'\n[sim]\nlink_delay = '2us'\n\
             [traffic.bulk]\nkind = 'bulk'\nfrom = ['h1', 'h2', 'h3', 'h4']\n\
             to = ['h9', 'h10', 'h11', 'h12']\n{network}"
        );
        let experiment = file::parse(Path::new("t.toml"), &text, &Options::default());
        let experiment = experiment.unwrap_or_else(|problems| panic!("{problems}"));
        let variant = &experiment.variants[0];
        let mut engine = build::engine::<F>(variant, 1, 1).unwrap();
        engine.begin();
        PEEKS.set(0);
        for us in 1..=20_000 {
            engine
                .run_until(us * 1_000_000, &mut |_, _| Ok(()))
                .unwrap();
            engine
                .nets()
                .for_each(|net| net.fetch_events(0..usize::MAX));
        }
        engine.account().unwrap();
        let net = engine.nets().next().unwrap();
        let offered = |port: PortId| {
            let stats = net.fabric.stats(port);
            stats.accepted + stats.drops.iter().sum::<u64>()
        };
        // Switches transmit at the ports that lead to hosts and at both ports of links between
        // switches.
        let graph = variant.graph();
        let is_switch = |port: PortId| !graph.is_host(graph.near(port));
        let ports = graph.ports().filter(|&port| is_switch(port));
        [net.routing, ports.map(offered).sum(), PEEKS.get()]
    }

    #[test]
    fn each_packet_is_routed_once_at_each_switch() {
        for [choices, offered, peeks] in [count::<Plain>(""), count::<Converged>("[network.cee]\n")]
        {
            assert!(
                choices > 1_000 && peeks > 100,
                "{choices} choices, {peeks} peeks"
            );
            assert_eq!(choices, offered);
        }
    }
}
