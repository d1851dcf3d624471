//! Policies, names and interfaces that change under connections. Needs root.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use common::{Host, ip};
use libbpf_rs::MapCore;
use sluicegate_agent::{Instance, Options, interfaces, reload::Reloaded};
use sluicegate_core::abi::{BucketKey, Flow, FlowKey};
use sluicegate_policy::{Change, Policy};

use crate::common;

fn policy(text: &str) -> Policy {
    Policy::parse("test.toml", text).unwrap_or_else(|problems| panic!("{problems}"))
}

/// An instance at both tenants' interfaces.
fn load(host: &Host, text: &str) -> Instance {
    host.within("h", || {
        let mut instance = Instance::load(&policy(text), &Options::default()).expect("it loads");
        for name in ["ta", "tb"] {
            let interface = interfaces::find(name).unwrap();
            instance
                .attach_tenant(&interface, &format!("tenant-{name}"))
                .unwrap();
        }
        instance
    })
}

/// A rule for connections to this port of b's, and what they send back.
fn rule(port: u16, more: &str) -> String {
    format!("[[rule]]\nname = 'port {port}'\nport = {port}\n{more}\n")
}

fn port(connection: &(TcpStream, TcpStream)) -> u16 {
    connection.0.peer_addr().unwrap().port()
}

/// Both directions of a connection as the kernel has them, by interface.
fn flows(instance: &Instance, connection: &(TcpStream, TcpStream)) -> Vec<(FlowKey, Flow)> {
    let port = port(connection).to_be();
    let mut found = instance.raw_flows().unwrap();
    found.retain(|(key, _)| key.local_port == port || key.remote_port == port);
    found.sort_by_key(|(key, _)| key.ifindex);
    assert_eq!(found.len(), 2, "{found:#?}");
    found
}

/// Names of the rules of a connection's flows, in the same order.
fn rules(instance: &Instance, connection: &(TcpStream, TcpStream)) -> Vec<String> {
    let port = port(connection);
    let mut found = instance.flows().unwrap();
    found.retain(|flow| flow.local.port() == port || flow.remote.port() == port);
    found.sort_by_key(|flow| flow.ifindex);
    found
        .into_iter()
        .map(|flow| flow.rule_name.unwrap())
        .collect()
}

fn pattern(place: usize) -> u8 {
    (place.wrapping_mul(0x9e37_79b9) >> 24) as u8
}

/// Bytes over an open connection, which arrive as they were sent.
fn exchange((client, server): &mut (TcpStream, TcpStream), length: usize) {
    let sent: Vec<u8> = (0..length).map(pattern).collect();
    let mut received = vec![0; length];
    thread::scope(|scope| {
        scope.spawn(|| client.write_all(&sent).unwrap());
        server.read_exact(&mut received).unwrap();
    });
    assert!(received == sent, "payload differs");
}

/// Sends on the connections until `work` is done; all that was sent arrives as it was.
fn under_traffic(connections: &mut [(TcpStream, TcpStream)], work: impl FnOnce()) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for connection in connections {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    exchange(connection, 50_000);
                }
            });
        }
        work();
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_reload_leaves_flows_of_other_rules_alone_bit_for_bit() {
    let host = Host::new();
    let mut instance = load(&host, "");
    let (one, two) = (30_001, 30_002);
    let texts = [
        // Where rules stand, and whether others are there, is nothing to them.
        rule(two, "") + &rule(one, "beta = 0.5\nmode = 'enforce'"),
        rule(7, "") + &rule(8, "mode = 'off'") + &rule(two, "") + &rule(one, ""),
        rule(two, "") + &rule(one, "algorithm = 'cubic'"),
        rule(two, ""),
    ];
    instance
        .reload(&policy(&(rule(one, "") + &rule(two, ""))))
        .unwrap();
    let mut first = host.transfer_at(one, 100_000);
    let mut second = host.transfer_at(two, 100_000);
    await_quiet(&instance);
    for text in &texts {
        let before = flows(&instance, &second);
        let reloaded = instance.reload(&policy(text)).unwrap();
        assert!(!reloaded.changes.is_empty());
        assert_eq!(flows(&instance, &second), before, "{text}");
        assert_eq!(rules(&instance, &second), ["port 30002", "port 30002"]);
        let first_rules = rules_or_none(&instance, one);
        assert_eq!(
            first_rules.is_empty(),
            !text.contains("port = 30001"),
            "{text}"
        );
    }
    exchange(&mut first, 100_000);
    exchange(&mut second, 100_000);
}

/// Waits until the flow table stops changing: then delayed acknowledgements have come.
fn await_quiet(instance: &Instance) {
    let flows = || {
        let mut flows = instance.raw_flows().unwrap();
        flows.sort_by_key(|(key, _)| (key.ifindex, key.local_port, key.remote_port));
        flows
    };
    let mut before = flows();
    loop {
        // Several times as long as an acknowledgement may be delayed, for a machine that is busy.
        thread::sleep(Duration::from_secs(1));
        let now = flows();
        if now == before {
            return;
        }
        before = now;
    }
}

fn rules_or_none(instance: &Instance, port: u16) -> Vec<Option<String>> {
    let mut found = instance.flows().unwrap();
    found.retain(|flow| flow.local.port() == port || flow.remote.port() == port);
    found.into_iter().map(|flow| flow.rule_name).collect()
}

#[test]
fn what_a_reload_says_is_what_it_did() {
    let host = Host::new();
    let mut instance = load(&host, &(rule(30_001, "") + &rule(30_002, "")));
    let _first = host.transfer_at(30_001, 10_000);
    let _second = host.transfer_at(30_002, 10_000);
    let same = instance
        .reload(&policy(&(rule(30_001, "") + &rule(30_002, ""))))
        .unwrap();
    assert_eq!(same, Reloaded::default());
    // Rules in front take the first connection's flows; `port` makes two rules of the data plane.
    let front = "[[rule]]\nsource = '10.9.0.1'\ndestination_port = 30001\n\
                 [[rule]]\nsource = '10.9.0.2'\nsource_port = 30001\n";
    let text = front.to_owned() + &rule(30_001, "") + &rule(30_002, "mode = 'enforce'");
    let said = instance.reload(&policy(&text)).unwrap();
    assert_eq!(
        said.changes
            .iter()
            .filter(|change| matches!(change, Change::Altered(3)))
            .count(),
        2,
        "{said:?}"
    );
    assert_eq!(said.rematched, 2, "{said:?}");
}

#[test]
fn enforcement_begins_and_ends_under_open_connections() {
    let host = Host::new();
    let text = |mode: &str| {
        format!("trusted = ['10.9.0.0/24']\n[[rule]]\nmode = '{mode}'\nwindow_cap = '64KiB'\n")
    };
    let mut instance = load(&host, &text("observe"));
    let mut connections: Vec<_> = (0..4).map(|_| host.transfer(0)).collect();
    under_traffic(&mut connections, || {
        for mode in ["enforce", "observe"].into_iter().cycle().take(20) {
            instance.reload(&policy(&text(mode))).unwrap();
            thread::sleep(Duration::from_millis(20));
        }
        instance.reload(&policy(&text("enforce"))).unwrap();
    });
    for connection in &mut connections {
        exchange(connection, 1_000_000);
    }
    let flows = instance.flows().unwrap();
    assert_eq!(flows.len(), 8);
    for flow in flows.iter().filter(|flow| flow.interface == "ta") {
        assert!(
            flow.enforced && flow.enforced_window_bytes <= 65_536 + 128,
            "{flow:#?}"
        );
    }
}

#[test]
fn reloads_under_traffic_break_nothing() {
    let host = Host::new();
    let mut instance = load(&host, "[[rule]]\nmode = 'enforce'\n");
    let mut connections: Vec<_> = (0..4).map(|_| host.transfer(0)).collect();
    let texts = [
        "[[rule]]\nmode = 'enforce'\nalgorithm = 'cubic'\n",
        "[[rule]]\nname = 'here'\ninterface = 't*'\nmode = 'enforce'\n[[rule]]\nmode = 'enforce'\n",
        "[[rule]]\ntenant = 'tenant-ta'\nmode = 'enforce'\nwindow_cap = '100KB'\n",
        "",
        "[[rule]]\nsource = '10.9.0.1'\nmode = 'off'\n[[rule]]\nmode = 'observe'\n",
        "[[rule]]\nmode = 'enforce'\nalgorithm = 'vegas'\n",
    ];
    under_traffic(&mut connections, || {
        for text in texts.iter().cycle().take(120) {
            instance.reload(&policy(text)).unwrap();
        }
    });
    for connection in &mut connections {
        exchange(connection, 100_000);
    }
}

#[test]
fn conditions_on_interface_and_tenant_follow_their_names() {
    let host = Host::new();
    let text = "[[rule]]\nname = 'at a'\ninterface = 'ta'\n[[rule]]\nname = 'blue'\ntenant = 'blue'\n\
                [[rule]]\nname = 'rest'\n";
    let mut instance = load(&host, text);
    let connection = host.transfer(10_000);
    let sorted = |instance: &Instance| {
        let mut found = rules(instance, &connection);
        found.sort();
        found
    };
    assert_eq!(sorted(&instance), ["at a", "rest"]);
    let found = |name: &str| host.within("h", || interfaces::find(name).unwrap());
    assert_eq!(instance.relabel(&found("tb"), "blue").unwrap(), 1);
    assert_eq!(sorted(&instance), ["at a", "blue"]);
    assert!(instance.is_labelled(&found("tb"), "blue"));
    ip(&["-n", &host.name("h"), "link", "set", "ta", "name", "tz"]);
    assert_eq!(instance.relabel(&found("tz"), "green").unwrap(), 1);
    assert_eq!(sorted(&instance), ["blue", "rest"]);
    let flows = instance.flows().unwrap();
    assert!(
        flows
            .iter()
            .any(|flow| (flow.interface.as_str(), flow.tenant.as_str()) == ("tz", "green"))
    );
}

/// Buckets that there are, by interface.
fn buckets(instance: &Instance) -> Vec<BucketKey> {
    let mut maps = instance.object().maps();
    let map = maps.find(|map| map.name() == "buckets").unwrap();
    let number = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().unwrap());
    let mut found: Vec<BucketKey> = map
        .keys()
        .map(|key| BucketKey {
            ifindex: number(&key[..4]),
            bucket: number(&key[4..]),
        })
        .collect();
    found.sort_by_key(|key| (key.ifindex, key.bucket));
    found
}

#[test]
fn interfaces_have_the_buckets_of_the_policy_in_force() {
    let host = Host::new();
    let [udp, icmp] =
        ["udp", "icmp"].map(|class| format!("[[bucket]]\nclass = '{class}'\nrate = '8Mbit'\n"));
    let mut instance = load(&host, &format!("{udp}{icmp}"));
    let indices: Vec<u32> = instance.interfaces().into_keys().collect();
    let of_all = |numbers: &[u32]| -> Vec<BucketKey> {
        let of = |ifindex| {
            numbers
                .iter()
                .map(move |&bucket| BucketKey { ifindex, bucket })
        };
        indices.iter().copied().flat_map(of).collect()
    };
    assert_eq!(buckets(&instance), of_all(&[0, 1]));
    instance.reload(&policy(&udp)).unwrap();
    assert_eq!(buckets(&instance), of_all(&[0]));
    instance.reload(&policy(&format!("{icmp}{udp}"))).unwrap();
    assert_eq!(buckets(&instance), of_all(&[0, 1]));
    instance.detach_index(indices[0]).unwrap();
    assert_eq!(buckets(&instance), of_all(&[0, 1])[2..]);
}

#[test]
fn two_hundred_cycles_of_attaching_break_nothing() {
    let host = Host::new();
    let mut instance = load(
        &host,
        "trusted = ['10.9.0.0/24']\n[[rule]]\nmode = 'enforce'\n",
    );
    let mut connections: Vec<_> = (0..4).map(|_| host.transfer(0)).collect();
    under_traffic(&mut connections, || {
        host.within("h", || {
            for _ in 0..200 {
                instance.detach("ta").unwrap();
                instance.attach("ta").unwrap();
            }
        });
    });
    for connection in &mut connections {
        exchange(connection, 100_000);
    }
    assert_eq!(host.checksum_errors("a") + host.checksum_errors("b"), 0);
    assert_eq!(instance.interfaces().len(), 2);
}
