//! Connections whose handshake the programs did not see: what makes a flow of them, and for how long.
//!
//! Needs root.

#![allow(unsafe_code)]

mod kernel;
#[path = "../../core/tests/net/mod.rs"]
mod net;

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use kernel::{IFINDEX, Kernel};
use net::{Packet, Route, opt, policy};
use sluicegate_core::{
    abi::{Config, FlowKey},
    host::{Direction, tcp},
};

const NOW_NS: u64 = 1_000_000_000;
/// Longer than a timer of 50 ms takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
const OUT: Direction = Direction::FromTenant;
const IN: Direction = Direction::ToTenant;

/// One connection of the tenant.
#[derive(Clone, Copy)]
struct Talk<'a> {
    kernel: &'a Kernel,
    route: Route,
}

impl<'a> Talk<'a> {
    fn on(kernel: &'a Kernel, port: u16) -> Self {
        let route = Route::new(&format!("10.1.0.1:{port}"), "10.2.0.1:5001");
        Self { kernel, route }
    }

    fn key(&self) -> FlowKey {
        FlowKey {
            local: self.route.from.ip().into(),
            remote: self.route.to.ip().into(),
            local_port: self.route.from.port().to_be(),
            remote_port: self.route.to.port().to_be(),
            ifindex: IFINDEX,
            ..FlowKey::default()
        }
    }

    fn is_known(&self) -> bool {
        self.kernel.flow(&self.key()).is_some()
    }

    fn pass(&self, packet: &Packet, direction: Direction) {
        let route = match direction {
            OUT => self.route,
            IN => self.route.reversed(),
        };
        let frame = route.build(packet);
        assert!(self.kernel.frame(&frame, direction, NOW_NS).passes);
    }

    /// The tenant's byte 100 and the next are sent.
    fn data(&self) {
        let packet = Packet {
            seq: 100,
            ack: 8,
            flags: tcp::ACK,
            window: 500,
            payload: vec![0; 100],
            ..Packet::default()
        };
        self.pass(&packet, OUT);
    }

    /// The peer acknowledges what [`Talk::data`] sends.
    fn ack(&self) {
        let packet = Packet {
            seq: 8,
            ack: 200,
            flags: tcp::ACK,
            window: 500,
            ..Packet::default()
        };
        self.pass(&packet, IN);
    }

    fn connect(&self) {
        let syn = Packet {
            seq: 99,
            flags: tcp::SYN,
            window: 1000,
            options: opt::all(&[&opt::mss(1460), &opt::wscale(7)]),
            ..Packet::default()
        };
        let answer = Packet {
            seq: 7,
            ack: 100,
            flags: tcp::SYN | tcp::ACK,
            ..syn.clone()
        };
        self.pass(&syn, OUT);
        self.pass(&answer, IN);
    }
}

fn kernel() -> Kernel {
    let kernel = Kernel::load(&policy());
    // Open flows stay, others go when the timer next comes by.
    let config = Config {
        idle_ns: u64::MAX,
        closed_ns: 1,
        ..Config::default()
    };
    kernel.write("config", &0_u32, &config);
    kernel
}

/// Until a flow that has no claim to its slot, made now, has been collected.
fn wait_for_a_sweep(kernel: &Kernel, port: u16) {
    let stranger = Talk::on(kernel, port);
    stranger.data();
    let begun = Instant::now();
    while stranger.is_known() {
        assert!(begun.elapsed() < PATIENCE, "one packet holds its slot");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_comes_to_a_tenant_makes_no_flow() {
    let kernel = kernel();
    for port in 1..=100 {
        let data = Packet {
            seq: 8,
            ack: 100,
            flags: tcp::ACK,
            window: 500,
            payload: vec![0; 100],
            ..Packet::default()
        };
        Talk::on(&kernel, port).pass(&data, IN);
    }
    assert!(kernel.slots().iter().all(|slot| slot.tag == 0));
}

#[test]
fn one_packet_does_not_hold_a_slot_and_a_connection_does() {
    let kernel = kernel();
    let met = Talk::on(&kernel, 1);
    for _ in 0..2 {
        met.data();
        met.ack();
    }
    // Idle since its handshake, as in a pool.
    let idle = Talk::on(&kernel, 2);
    idle.connect();
    assert_eq!(kernel.call("begin_sweeping"), 0);
    // The second has its slot beside flows that a sweep has passed.
    for port in [3, 4] {
        wait_for_a_sweep(&kernel, port);
        assert!(met.is_known() && idle.is_known());
    }
}
