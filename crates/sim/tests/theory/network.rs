//! Small networks of long flows, built by hand so that a test knows every delay.

use std::{net::Ipv4Addr, sync::Arc};

use sluicegate_core::{
    abi::PolicyTable,
    aqm::{Aqm, AqmParams},
};
use sluicegate_fabric::{
    Graph, PortConfig, Ports, Routes,
    graph::{HostId, Node, SwitchId},
};
use sluicegate_sim::{
    layout::Tenant,
    net::{Host, Net, Notice, Owner, Parts, Plain},
};
use sluicegate_tcp::{Config, Events};
use sluicegate_vswitch::{Vnics, switch};

/// Where flow 0 is accepted; flow i at this port + i.
const PORT: u16 = 5000;

/// Actors.
const SOURCE: u32 = 0;
const SINK: u32 = 1;

fn owner(actor: u32, key: u64) -> Owner {
    Owner {
        actor,
        key,
        priority: 0,
        path_values: None,
    }
}

/// A host, as an end of a link.
pub fn host(number: u32) -> Node {
    Node::Host(HostId(number))
}

/// A switch, as an end of a link.
pub fn switch(number: u32) -> Node {
    Node::Switch(SwitchId(number))
}

/// One link, alike in both directions.
#[derive(Clone, Copy)]
pub struct Link {
    pub nodes: (Node, Node),
    pub rate_bps: u64,
    pub delay_ps: u64,
    /// Marking threshold of the switches' ports.
    pub k_bytes: u32,
}

/// The description of a net to build.
pub struct Network {
    pub hosts: u32,
    pub switches: u32,
    pub links: Vec<Link>,
    pub jitter_ps: u64,
    pub limit_bytes: u64,
    pub stack: Config,
    /// Enforced on every host.
    pub policy: Option<Arc<PolicyTable>>,
}

impl Network {
    /// `hosts` hosts around one switch with links of one kind.
    pub fn star(hosts: u32, stack: &Config, rate_bps: u64, delay_ps: u64) -> Self {
        let link = |number| Link {
            nodes: (host(number), switch(0)),
            rate_bps,
            delay_ps,
            k_bytes: 30_000,
        };
        Self {
            hosts,
            switches: 1,
            links: (0..hosts).map(link).collect(),
            jitter_ps: 2_000_000,
            limit_bytes: 1 << 20,
            stack: *stack,
            policy: None,
        }
    }

    fn graph(&self) -> Graph {
        let mut graph = Graph::new(self.hosts, self.switches);
        for link in &self.links {
            graph.join(link.nodes.0, link.nodes.1);
        }
        graph
    }

    fn port(&self, link: &Link, is_switch: bool) -> PortConfig {
        let aqm = Aqm::Threshold {
            k_bytes: link.k_bytes,
            drop_not_ect: false,
        };
        PortConfig {
            rate_bps: link.rate_bps,
            delay_ps: link.delay_ps,
            limit_bytes: self.limit_bytes,
            aqm: if is_switch {
                AqmParams::new(aqm, link.rate_bps, 1514).unwrap()
            } else {
                AqmParams::default()
            },
            jitter_ps: if is_switch { 0 } else { self.jitter_ps },
            jitter_mean_ps: 0,
            burst_ps: 0,
            overhead_bytes: 0,
        }
    }

    pub fn build(&self) -> Net {
        let graph = self.graph();
        let mut ports = Ports::default();
        for link in &self.links {
            for from in [link.nodes.0, link.nodes.1] {
                let config = self.port(link, from.switch().is_some());
                ports.add(config, ports.len() as u64);
            }
        }
        let machine = |host| {
            let adapter = graph.adapter(host).unwrap();
            let vnics = self.policy.clone().map(Vnics::new);
            let ports = [adapter, adapter];
            Host::new(host, ports, switch::Config::straight(), vnics)
        };
        let stack = Arc::new(self.stack);
        let tenant = |host| Tenant {
            host: HostId(host),
            address: address(host).into(),
            stack: Arc::clone(&stack),
        };
        Net::new(Parts {
            fabric: Plain::new(ports),
            routes: Routes::new(&graph),
            hosts: HostId::first(self.hosts as usize).map(machine).collect(),
            tenants: (0..self.hosts).map(tenant).collect(),
            ip_bytes: 20,
            seed: 1,
            graph,
        })
    }
}

fn address(host: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0001 + host)
}

/// Flows that send as much as they can, one connection each.
pub struct Flows {
    pub net: Net,
    left: Vec<u64>,
    /// Bytes that receivers have read, by flow.
    pub arrived: Vec<u64>,
    /// When the last of them came.
    pub last_ps: u64,
}

impl Flows {
    /// Each flow (from, to) is to send `bytes`.
    pub fn start(mut net: Net, pairs: &[(u32, u32)], bytes: u64) -> Self {
        for (flow, &(from, to)) in (0..).zip(pairs) {
            let port = PORT + flow as u16;
            net.accept(to, port, owner(SINK, flow));
            net.connect(from, address(to).into(), port, owner(SOURCE, flow));
        }
        Self {
            net,
            left: vec![bytes; pairs.len()],
            arrived: vec![0; pairs.len()],
            last_ps: 0,
        }
    }

    /// Lets time pass.
    pub fn run_until(&mut self, until_ps: u64) {
        while self.net.step_before(until_ps) {
            while let Some(notice) = self.net.sockets.next_notice() {
                self.hear(notice);
            }
        }
        self.net.pass(until_ps);
    }

    fn hear(&mut self, notice: Notice) {
        let Notice::Socket(end, events) = notice else {
            return;
        };
        let Owner {
            actor: role, key, ..
        } = self.net.sockets.owner(end);
        let flow = key as usize;
        let may_write = events.contains(Events::CONNECTED) || events.contains(Events::WRITABLE);
        if role == SOURCE && may_write {
            self.left[flow] -= self.net.write(end, self.left[flow]);
        } else if role == SINK && events.contains(Events::READABLE) {
            self.arrived[flow] += self.net.read(end, u64::MAX);
            self.last_ps = self.net.now_ps();
        }
    }

    /// Payload per second of each flow between two times.
    pub fn goodputs_bps(&mut self, from_ps: u64, to_ps: u64) -> Vec<f64> {
        self.run_until(from_ps);
        let before = self.arrived.clone();
        self.run_until(to_ps);
        self.net.account().unwrap();
        let seconds = (to_ps - from_ps) as f64 / 1e12;
        let gained = self.arrived.iter().zip(before);
        gained
            .map(|(after, before)| (after - before) as f64 * 8.0 / seconds)
            .collect()
    }
}
