//! Real connections that are older than the programs.

use std::{
    thread,
    time::{Duration, Instant},
};

use live::{A, B, Hosts, counter, only_flow, policy, socket::Connection};
use sluicegate_agent::{Instance, Options, interfaces};
use sluicegate_core::abi::{Config, FLOW_SCALE_BOUND, Flow, MODE_ONE_SIDED};

use crate::live;

const BYTES: u64 = 3_000_000;

/// Enforces on a's interface. Unless `may_ask`, the program has no `netns_id` and cannot look up
/// the tenant's socket.
fn enforce(hosts: &Hosts, options: &Options, may_ask: bool) -> Instance {
    hosts.within("ha", || {
        let mut instance = Instance::load(&policy(), options).expect("the programs load");
        let mut interface = interfaces::find("t").unwrap();
        assert!(
            interface.netns_id.is_some(),
            "a veth into a namespace: {interface:?}"
        );
        if !may_ask {
            interface.netns_id = None;
        }
        instance
            .attach_tenant(&interface, "a")
            .expect("they attach");
        instance
    })
}

/// The connection goes on until the flow is governed.
fn adopted(instance: &Instance, connection: &mut Connection) -> Flow {
    for _ in 0..5 {
        connection.transfer(A, BYTES);
        let flow = only_flow(instance);
        if flow.mode == MODE_ONE_SIDED {
            return flow;
        }
    }
    panic!("never governed: {:?}", only_flow(instance));
}

#[test]
fn a_socket_of_this_kernel_tells_its_scale() {
    for family in [0, 1] {
        let hosts = Hosts::new();
        let mut connection = Connection::open(&hosts, family);
        connection.transfer(A, BYTES);
        let near = enforce(&hosts, &Options::default(), true);
        let flow = adopted(&near, &mut connection);
        assert_eq!(flow.marks & FLOW_SCALE_BOUND, 0);
        assert_eq!(u32::from(flow.wscale), connection.send_scale(A));
        assert!((500..=9000).contains(&flow.mss), "{}", flow.mss);
        connection.transfer(A, BYTES);
        assert!(counter(&near, "window_lowered") > 0);
        assert_eq!(counter(&near, "policed") + counter(&near, "repeated"), 0);
        // The tenant believes what is written: not the megabytes that its peer offers.
        let flow = only_flow(&near);
        assert!(flow.shown_window_bytes() < flow.peer_window_bytes());
        connection.transfer(B, BYTES);
    }
}

#[test]
fn elsewhere_what_is_in_flight_bounds_it() {
    let hosts = Hosts::new();
    let mut connection = Connection::open(&hosts, 0);
    connection.transfer(A, BYTES);
    let near = enforce(&hosts, &Options::default(), false);
    let flow = adopted(&near, &mut connection);
    assert_ne!(flow.marks & FLOW_SCALE_BOUND, 0);
    for _ in 0..3 {
        connection.transfer(A, BYTES);
        connection.transfer(B, BYTES);
    }
    assert!(u32::from(only_flow(&near).wscale) <= connection.send_scale(A));
    assert_eq!(counter(&near, "policed") + counter(&near, "repeated"), 0);
}

#[test]
fn a_pooled_connection_that_was_silent_keeps_its_scale() {
    let hosts = Hosts::new();
    let options = Options {
        config: Config {
            idle_ns: 200_000_000,
            ..Config::default()
        },
        ..Options::default()
    };
    let near = enforce(&hosts, &options, false);
    let mut connection = Connection::open(&hosts, 0);
    connection.transfer(A, BYTES);
    let deadline = Instant::now() + Duration::from_secs(30);
    while !near.raw_flows().unwrap().is_empty() {
        assert!(Instant::now() < deadline, "the flow is never collected");
        thread::sleep(Duration::from_millis(20));
    }
    let flow = adopted(&near, &mut connection);
    assert_eq!(flow.marks & FLOW_SCALE_BOUND, 0);
    assert_eq!(u32::from(flow.wscale), connection.send_scale(A));
}
