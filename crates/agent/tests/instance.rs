//! Enforcement instances on a real kernel. Needs root.

use std::{
    collections::BTreeMap,
    fs,
    io::{ErrorKind, Read, Write},
    net::Shutdown,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use common::{A, B, B6, Host, ip};
use sluicegate_agent::{
    Instance, Options, bpffs,
    bpffs::Pins,
    doctor, include_object,
    interfaces::{self, Patterns},
    object,
    takeover::Takeover,
    tcx::{Direction, TcxLink},
};
use sluicegate_core::abi::Config;
use sluicegate_policy::Policy;

use crate::common;

/// How long the kernel may take to free objects without references.
const PATIENCE: Duration = Duration::from_secs(10);

fn policy() -> Policy {
    let text = r#"
        trusted = ["10.9.0.0/24", "fd09::/64"]
        [[rule]]
        destination = "10.9.0.0/24"
        algorithm = "dctcp"
        mode = "enforce"
        [[rule]]
        destination = "fd09::/64"
        algorithm = "dctcp"
        mode = "enforce"
    "#;
    Policy::parse("test.toml", text).expect("the test's policy is valid")
}

fn load(options: &Options) -> Instance {
    Instance::load(&policy(), options).expect("the programs load")
}

/// A bpffs of its own; unmounted when dropped.
struct Bpffs(PathBuf);

impl Bpffs {
    fn new(host: &Host) -> Self {
        let path = std::env::temp_dir().join(host.name("bpf"));
        bpffs::ensure_mounted(&path).expect("a bpffs can be mounted");
        Self(path)
    }
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn cycles_of_attaching_and_detaching_leave_nothing() {
    let host = Host::new();
    for _ in 0..3 {
        let held = host.within("h", || {
            let mut instance = load(&Options::default());
            instance.attach("ta").unwrap();
            instance.attach("tb").unwrap();
            instance.detach("ta").unwrap();
            assert!(instance.detach("ta").is_err());
            instance.attach("ta").unwrap();
            instance.inventory().unwrap()
        });
        assert_eq!((held.programs.len(), held.links.len()), (2, 4));
        let left = held.remaining(PATIENCE);
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn an_interface_is_attached_once_and_must_exist() {
    let host = Host::new();
    host.within("h", || {
        let mut instance = load(&Options::default());
        instance.attach("ta").unwrap();
        let error = instance.attach("ta").unwrap_err().to_string();
        assert!(error.contains("ta is attached already"), "{error}");
        let error = format!("{:#}", instance.attach("nowhere").unwrap_err());
        assert!(error.contains("no interface nowhere"), "{error}");
    });
}

#[test]
fn enforcement_comes_before_other_programs() {
    let host = Host::new();
    host.within("h", || {
        let object = object::open("sg_doctor", include_object!("doctor")).unwrap();
        let object = object::load(object, "sg_doctor").unwrap();
        let other = object::program(&object, "probe_empty").unwrap();
        let index = interfaces::find("ta").unwrap().index;
        let _link = TcxLink::attach(&other, index, Direction::Ingress).unwrap();
        let mut instance = load(&Options::default());
        instance.attach("ta").unwrap();
        let report = doctor::examine(&Patterns::new(&["ta"]).unwrap()).unwrap();
        assert_eq!(
            report.interfaces[0].tcx_ingress,
            ["from_tenant", "probe_empty"]
        );
        assert_eq!(report.interfaces[0].tcx_egress, ["to_tenant"]);
    });
}

#[test]
fn a_transfer_shows_up_in_flows_and_counters() {
    let host = Host::new();
    let mut instance = host.within("h", || {
        let mut instance = load(&Options::default());
        instance.attach("ta").unwrap();
        instance
    });
    const BYTES: usize = 1_000_000;
    let (client, _server) = host.transfer(BYTES);
    let flows = instance.flows().unwrap();
    let local = client.local_addr().unwrap();
    let flow = flows
        .iter()
        .find(|flow| flow.local == local)
        .unwrap_or_else(|| panic!("no flow of {local} in {flows:#?}"));
    assert_eq!(flow.remote, client.peer_addr().unwrap());
    assert_eq!((flow.interface.as_str(), flow.vlan), ("ta", None));
    // b's side does not enforce here, so a's side is alone.
    assert_eq!((flow.mode, flow.rule_mode), ("one-sided", "enforce"));
    assert!(flow.enforced && flow.reason.is_some(), "{flow:#?}");
    assert!(
        flow.acked_bytes + u64::from(flow.flight_bytes) >= BYTES as u64,
        "{flow:#?}"
    );
    assert!(
        flow.enforced_window_bytes <= flow.advertised_window_bytes,
        "{flow:#?}"
    );
    assert!(
        flow.cwnd_bytes > 0 && flow.mss_bytes > 0 && flow.srtt_us.is_some(),
        "{flow:#?}"
    );
    let counters = instance.counters().unwrap();
    assert_eq!(counters["flow_one_sided"], 1, "{counters:#?}");
    assert!(counters["packets"] > 10, "{counters:#?}");
    assert_eq!(instance.raw_flows().unwrap().len(), flows.len());
    instance.detach("ta").unwrap();
}

#[test]
fn two_enforcing_hosts_recognise_each_other() {
    let host = Host::new();
    // Two instances stand for two hosts: what one knows of the other it learns from the wire.
    let (near, far) = host.within("h", || {
        let mut near = load(&Options::default());
        near.attach("ta").unwrap();
        let mut far = load(&Options::default());
        far.attach("tb").unwrap();
        (near, far)
    });
    let (_client, _server) = host.transfer(1_000_000);
    for (instance, local) in [(&near, A), (&far, B)] {
        let flows = instance.flows().unwrap();
        assert_eq!(flows.len(), 1, "{flows:#?}");
        assert_eq!(flows[0].local.ip().to_string(), local);
        assert_eq!(
            (flows[0].mode, flows[0].reason),
            ("two-sided", None),
            "{flows:#?}"
        );
        assert_eq!(flows[0].algorithm, Some("dctcp"));
    }
}

fn checksums_in_software(interface: &str) {
    let output = Command::new("ethtool")
        .args(["-K", interface, "tx", "off"])
        .output();
    assert!(output.expect("ethtool is installed").status.success());
}

#[test]
fn edited_packets_keep_right_checksums() {
    let host = Host::new();
    let (near, far) = host.within("h", || {
        let mut near = load(&Options::default());
        near.attach("ta").unwrap();
        let mut far = load(&Options::default());
        far.attach("tb").unwrap();
        (near, far)
    });
    host.split_bridge();
    // ACKs leave a tenant with partial checksums, which no other test can make. The kernel
    // completes them where an interface has lost the offload, and the tenant that gets them
    // verifies them: first after both edits, then between them (two equal mistakes would cancel
    // out), then before.
    let places: [(&str, &[&str]); 4] = [
        ("h", &["ta", "tb"]),
        ("h", &["wire-a", "wire-b"]),
        ("a", &["eth0"]),
        ("b", &["eth0"]),
    ];
    for (part, interfaces) in places {
        host.within(part, || {
            interfaces
                .iter()
                .for_each(|interface| checksums_in_software(interface));
        });
        for (to, local) in [(B, "10.9.0.2"), (B6, "fd09::2")] {
            let before = far.counters().unwrap()["feedback_sent"];
            let _connection = host.transfer_to(to, 4_000_000);
            let flows = far.flows().unwrap();
            let mut ours = flows
                .iter()
                .filter(|flow| flow.local.ip().to_string() == local);
            assert!(ours.all(|flow| flow.mode == "two-sided"), "{flows:#?}");
            let after = far.counters().unwrap()["feedback_sent"];
            assert!(after > before, "no option was appended");
        }
        let errors = (host.checksum_errors("a"), host.checksum_errors("b"));
        assert_eq!(
            errors,
            (0, 0),
            "with checksums in software at {interfaces:?}"
        );
    }
    let (near, far) = (near.counters().unwrap(), far.counters().unwrap());
    assert!(
        near["feedback_taken"] > 0 && near["ect_set"] > 0,
        "{near:#?}"
    );
    assert_eq!((near["edit_failed"], far["edit_failed"]), (0, 0));
    assert_eq!(
        (host.checksum_errors("a"), host.checksum_errors("b")),
        (0, 0)
    );
}

#[test]
fn pins_keep_enforcement_and_flows_beyond_the_instance() {
    let host = Host::new();
    let bpffs = Bpffs::new(&host);
    let pins = Pins::new(&bpffs.0, &host.name("h"));
    let options = Options {
        pins: Some(pins.clone()),
        ..Options::default()
    };
    let (first, connection) = host.within("h", || {
        let mut instance = load(&options);
        assert_eq!(*instance.takeover(), Takeover::Nothing);
        instance.attach("ta").unwrap();
        let connection = host.transfer(10_000);
        (instance.inventory().unwrap(), connection)
    });
    assert_eq!(
        first.remaining(Duration::ZERO),
        first,
        "all of it outlives the instance"
    );
    let second = host.within("h", || {
        let instance = load(&options);
        assert!(matches!(instance.takeover(), Takeover::Kept { flows } if *flows > 0));
        assert_eq!(
            instance.interfaces().into_values().collect::<Vec<_>>(),
            ["ta"]
        );
        let local = connection.0.local_addr().unwrap();
        assert!(
            instance
                .flows()
                .unwrap()
                .iter()
                .any(|flow| flow.local == local)
        );
        let held = instance.inventory().unwrap();
        instance.end().unwrap();
        held
    });
    assert_eq!(
        first.links, second.links,
        "links are taken over, not made anew"
    );
    let mut both = first;
    both.extend(second);
    let left = both.remaining(PATIENCE);
    assert!(left.is_empty(), "{left:?}");
    assert!(!pins.exist());
}

#[test]
fn a_table_of_another_size_is_not_taken_over() {
    let host = Host::new();
    let bpffs = Bpffs::new(&host);
    let options = Options {
        pins: Some(Pins::new(&bpffs.0, &host.name("h"))),
        ..Options::default()
    };
    host.within("h", || {
        drop(load(&options));
        let larger = Options {
            flows_max: 2 * options.flows_max,
            ..options.clone()
        };
        let instance = load(&larger);
        match instance.takeover() {
            Takeover::Replaced { reason } => {
                assert!(reason.contains("map flows has entries"), "{reason}")
            }
            other => panic!("{other:?}"),
        }
        instance.end().unwrap();
    });
}

#[test]
fn an_interface_that_vanished_can_be_let_go() {
    let host = Host::new();
    host.within("h", || {
        let mut instance = load(&Options::default());
        let index = interfaces::find("tb").unwrap().index;
        instance.attach("tb").unwrap();
        ip(&["-n", &host.name("h"), "link", "del", "tb"]);
        instance.detach_index(index).unwrap();
        assert!(instance.interfaces().is_empty());
    });
}

#[test]
fn an_interface_that_vanished_leaves_its_slots_to_others() {
    let host = Host::new();
    let mut instance = host.within("h", || {
        let mut instance = load(&Options::default());
        instance.attach("ta").unwrap();
        instance.attach("tb").unwrap();
        instance
    });
    let _connections: Vec<_> = (0..20).map(|_| host.transfer(1000)).collect();
    assert_eq!(instance.raw_flows().unwrap().len(), 40);
    let index = host.within("h", || interfaces::find("tb").unwrap().index);
    ip(&["-n", &host.name("h"), "link", "del", "tb"]);
    instance.detach_index(index).unwrap();
    let left = instance.raw_flows().unwrap();
    assert_eq!(left.len(), 20);
    assert!(left.iter().all(|(key, _)| key.ifindex != index));
}

/// Opens a connection from a to b, which a resets; returns a's port.
fn reset_connection(host: &Host) -> u16 {
    let (client, mut server) = host.transfer(1000);
    let port = client.local_addr().unwrap().port();
    // Closed with something unread, a socket answers with an RST (RFC 2525 2.17).
    server.write_all(&[1]).unwrap();
    client.peek(&mut [0]).unwrap();
    drop(client);
    let error = server.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    port
}

/// Closes a connection from a to b by FINs both ways; returns a's port.
fn finished_connection(host: &Host) -> u16 {
    let (mut client, mut server) = host.transfer(1000);
    let port = client.local_addr().unwrap().port();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
    drop(server);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    port
}

/// An instance on a's interface whose closed flows go at the timer's next round, open ones never.
fn collecting(host: &Host, flows_max: u32, interface_quota: u32) -> Instance {
    let options = Options {
        flows_max,
        interface_quota,
        config: Config {
            idle_ns: u64::MAX,
            closed_ns: 0,
            ..Config::default()
        },
        ..Options::default()
    };
    host.within("h", || {
        let mut instance = load(&options);
        instance.attach("ta").unwrap();
        instance
    })
}

/// Waits until so many flows were collected; returns the tenant's ports of those that are left.
fn left_after(instance: &Instance, collected: u64) -> Vec<u16> {
    let deadline = Instant::now() + 3 * PATIENCE;
    while instance.counters().unwrap()["flow_expired"] < collected {
        assert!(Instant::now() < deadline, "nothing more is collected");
        std::thread::sleep(Duration::from_millis(10));
    }
    let flows = instance.flows().unwrap();
    flows.iter().map(|flow| flow.local.port()).collect()
}

/// A tenant can send an RST that the peer's stack discards, say nothing for a while, and go on.
#[test]
fn a_flow_is_not_forgotten_for_an_rst() {
    let host = Host::new();
    // One round of the timer walks the whole table of 64: what it takes, it takes after the RST.
    let instance = collecting(&host, 64, 0);
    let reset = reset_connection(&host);
    let finished = finished_connection(&host);
    let left = left_after(&instance, 1);
    assert_eq!(left, [reset], "{finished} was closed by FINs");
}

#[test]
fn flows_closed_by_an_rst_make_room_where_it_is_short() {
    let host = Host::new();
    for (flows_max, quota, open) in [(64, 0, 34), (65_536, 2, 1)] {
        let instance = collecting(&host, flows_max, quota);
        let kept: Vec<_> = (0..open).map(|_| host.transfer(1000)).collect();
        let reset = reset_connection(&host);
        let left = left_after(&instance, 1);
        assert_eq!(left.len(), kept.len());
        assert!(!left.contains(&reset));
    }
}

/// Keys of a pinned map, each of which begins with the index of an interface, and their values.
fn rows(pins: &Pins, map: &str) -> BTreeMap<u32, Vec<u8>> {
    let map = MapHandle::from_pinned_path(pins.map(map)).unwrap();
    let row = |key: Vec<u8>| {
        let value = map.lookup(&key, MapFlags::ANY).unwrap().unwrap();
        (u32::from_ne_bytes(*key.first_chunk().unwrap()), value)
    };
    map.keys().map(row).collect()
}

/// Flows and quota of a pinned row of `interfaces`.
fn flows_and_quota(pins: &Pins, index: u32) -> [u32; 2] {
    let row = &rows(pins, "interfaces")[&index];
    [0, 4].map(|at| u32::from_ne_bytes(*row[at..].first_chunk().unwrap()))
}

/// Options that pin; with so many flows on an interface.
fn pinning(bpffs: &Bpffs, host: &Host, interface_quota: u32) -> (Pins, Options) {
    let pins = Pins::new(&bpffs.0, &host.name("h"));
    let options = Options {
        pins: Some(pins.clone()),
        interface_quota,
        ..Options::default()
    };
    (pins, options)
}

#[test]
fn a_start_takes_over_with_its_own_quota_and_mends_what_is_missing() {
    let host = Host::new();
    let bpffs = Bpffs::new(&host);
    let (pins, options) = pinning(&bpffs, &host, 5);
    let (index, places) = host.within("h", || {
        load(&options).attach("ta").unwrap();
        (interfaces::find("ta").unwrap().index, rows(&pins, "places"))
    });
    let _connection = host.transfer(1000);
    assert_eq!(flows_and_quota(&pins, index), [1, 5]);
    let (_, options) = pinning(&bpffs, &host, 7);
    host.within("h", || drop(load(&options)));
    assert_eq!(flows_and_quota(&pins, index), [1, 7]);

    // As an agent leaves it that is killed before it has come to this interface.
    for map in ["interfaces", "places"] {
        let map = MapHandle::from_pinned_path(pins.map(map)).unwrap();
        map.delete(&index.to_ne_bytes()).unwrap();
    }
    let instance = host.within("h", || load(&options));
    assert!(matches!(instance.takeover(), Takeover::Kept { flows: 1 }));
    assert!(instance.interfaces().contains_key(&index));
    assert_eq!(flows_and_quota(&pins, index), [0, 7]);
    assert_eq!(rows(&pins, "places"), places);
    instance.end().unwrap();
}

#[test]
fn maps_that_an_agent_had_no_time_to_put_in_place_are_let_go() {
    let host = Host::new();
    let bpffs = Bpffs::new(&host);
    let (pins, options) = pinning(&bpffs, &host, 0);
    host.within("h", || load(&options).attach("ta").unwrap());
    let next = pins.root().join("maps-next");
    fs::rename(pins.root().join("maps"), &next).unwrap();
    let instance = host.within("h", || load(&options));
    assert_eq!(*instance.takeover(), Takeover::Nothing);
    assert!(!next.exists());
    assert_eq!(instance.interfaces().len(), 1);
    let (client, _server) = host.transfer(1000);
    let local = client.local_addr().unwrap();
    let flows = instance.flows().unwrap();
    let flow = flows.iter().find(|flow| flow.local == local).unwrap();
    assert!(flow.enforced, "{flow:#?}");
    instance.end().unwrap();
}

#[test]
fn interfaces_that_cannot_be_attached_leave_no_rows() {
    let host = Host::new();
    let bpffs = Bpffs::new(&host);
    let (pins, options) = pinning(&bpffs, &host, 0);
    host.within("h", || {
        let mut instance = load(&options);
        instance.attach("ta").unwrap();
        // It vanishes between the news of it and the attaching.
        let gone = interfaces::find("tb").unwrap();
        ip(&["-n", &host.name("h"), "link", "del", "tb"]);
        let error = format!("{:#}", instance.attach_tenant(&gone, "tb").unwrap_err());
        assert!(error.contains("enforcing on interface tb"), "{error}");
        let index = interfaces::find("ta").unwrap().index;
        for map in ["interfaces", "places"] {
            assert!(rows(&pins, map).into_keys().eq([index]), "{map}");
        }
        drop(instance);
        // Pins that an earlier agent could not take away.
        for (map, size) in [("interfaces", 16), ("places", 32)] {
            let map = MapHandle::from_pinned_path(pins.map(map)).unwrap();
            let value = vec![0; size];
            map.update(&gone.index.to_ne_bytes(), &value, MapFlags::ANY)
                .unwrap();
        }
        let instance = load(&options);
        for map in ["interfaces", "places"] {
            assert!(rows(&pins, map).into_keys().eq([index]), "{map}");
        }
        instance.end().unwrap();
    });
}
