//! The lab's cheat, on real packets. Needs root.

use live::{
    A, B, Hosts, TENANTS, counter, policy,
    socket::{Connection, SCALE_OF_SENDER},
};
use sluicegate_agent::interfaces;
use sluicegate_labkit::ignore_window::IgnoreWindow;

use crate::live;

/// Whatever its host shows, the tenant believes in 65535 units, and finds every checksum right.
fn believes_in_the_largest(family: usize, offload: bool) {
    let hosts = Hosts::new();
    if !offload {
        hosts.without_checksum_offload();
    }
    let near = hosts.enforce(A, &policy());
    let _far = hosts.enforce(B, &policy());
    let mut cheat = IgnoreWindow::load().expect("it loads");
    hosts.within(TENANTS[A], || {
        let interface = interfaces::find("eth0").expect("the tenant's end");
        cheat.attach(interface.index).expect("it attaches");
    });
    let mut connection = Connection::open(&hosts, family);
    connection.transfer(A, 1_000_000);
    connection.transfer(B, 1_000_000);
    let scale = connection.info_byte(A, SCALE_OF_SENDER) & 15;
    assert_eq!(connection.send_window(A), 65_535 << scale);
    assert!(counter(&near, "window_lowered") > 0);
    assert_eq!(hosts.tcp_counter(A, "InCsumErrors"), 0);
}

#[test]
fn over_ipv4_with_partial_checksums() {
    believes_in_the_largest(0, true);
}

#[test]
fn over_ipv4_with_complete_checksums() {
    believes_in_the_largest(0, false);
}

#[test]
fn over_ipv6_with_partial_checksums() {
    believes_in_the_largest(1, true);
}

#[test]
fn over_ipv6_with_complete_checksums() {
    believes_in_the_largest(1, false);
}
