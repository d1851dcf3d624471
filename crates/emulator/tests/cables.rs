//! Two programs at cables of a fabric that runs by the machine's clock.

use std::{
    env, fs,
    os::unix::net::UnixListener,
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use sluicegate_core::aqm::AqmParams;
use sluicegate_dataplane::{
    offload::{Takes, Work},
    shm::{end::End, layout::Layout},
    vhost::session::Mode,
};
use sluicegate_emulator::{Emulation, Ethernet, Plan, Queues, Uplink};
use sluicegate_fabric::{
    Graph, Routes,
    cee::{Buffer, CeeConfig, PfcConfig, PortSpec},
    graph::{HostId, Node, SwitchId},
};

const RATE_BPS: u64 = 100_000_000;
const PROPAGATION_PS: u64 = 2_000_000_000;

/// Two hosts at a switch, over links of 2 ms.
fn plan() -> Plan {
    let mut graph = Graph::new(2, 1);
    let switch = Node::Switch(SwitchId(0));
    let mut ports = Vec::new();
    for host in HostId::first(2) {
        graph.join(host, SwitchId(0));
        ports.extend(
            [(Node::Host(host), switch), (switch, Node::Host(host))].map(|(near, far)| PortSpec {
                near,
                far,
                rate_bps: RATE_BPS,
                propagation_ps: PROPAGATION_PS,
                processing_ps: 0,
                aqm: AqmParams::default(),
                frame_bytes: 1514,
            }),
        );
    }
    Plan {
        ports,
        hosts: 2,
        switches: 1,
        routes: Arc::new(Routes::new(&graph)),
        priority: 3,
        addresses: (0..2)
            .map(|host| (mac(host), HostId(host.into())))
            .collect(),
        seed: 1,
    }
}

/// With room for what is on 2 ms of link when an input is paused: 25 KB.
fn lossless() -> Ethernet {
    Ethernet::Converged(CeeConfig {
        buffer: Buffer::Input { bytes: 200_000 },
        pfc: Some(PfcConfig::default()),
        ..CeeConfig::default()
    })
}

fn plain() -> Ethernet {
    Ethernet::Plain(Queues {
        limits_bytes: vec![200_000; 4],
        shared: None,
    })
}

fn mac(host: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, host]
}

fn frame(from: u8, to: u8, number: u32) -> Vec<u8> {
    let mut bytes = vec![0; 1000];
    bytes[..6].copy_from_slice(&mac(to));
    bytes[6..12].copy_from_slice(&mac(from));
    bytes[20..24].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// A directory; gone when dropped.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn start(name: &str, announcements: [Vec<Vec<u8>>; 2]) -> (Place, Emulation, [End; 2]) {
    start_over(name, lossless(), announcements)
}

fn start_over(
    name: &str,
    ethernet: Ethernet,
    announcements: [Vec<Vec<u8>>; 2],
) -> (Place, Emulation, [End; 2]) {
    let directory = env::temp_dir().join(format!("sg-emulator-{name}-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let place = Place(directory);
    let paths = ["a", "b"].map(|host| place.0.join(host));
    let servers = paths.clone().map(|path| {
        let listener = UnixListener::bind(path).expect("a socket");
        thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a peer");
            End::over(stream, Mode::Server, Layout::default(), Takes::default()).expect("an end")
        })
    });
    let [first, second] = announcements;
    let uplinks = [(0, first), (1, second)].map(|(at, announcements)| Uplink {
        path: paths[at].clone(),
        announcements,
    });
    let emulation = Emulation::start(plan(), ethernet, &uplinks, || Ok(())).expect("a network");
    let ends = servers.map(|server| server.join().expect("an end"));
    (place, emulation, ends)
}

fn receive(end: &mut End) -> Vec<u8> {
    let mut bytes = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(10);
    while end.receive(&mut bytes).expect("a peer").is_none() {
        assert!(Instant::now() < deadline, "nothing came");
        end.wait(Duration::from_millis(100)).expect("a peer");
    }
    bytes
}

fn send(end: &mut End, frame: &[u8]) {
    while !end.send(frame, Work::default()).expect("a peer") {
        end.wait(Duration::from_millis(100)).expect("a peer");
    }
}

#[test]
fn frames_cross_a_fabric_both_ways_and_take_its_time() {
    let (_place, emulation, [mut a, mut b]) = start("both", [Vec::new(), Vec::new()]);
    let begun = Instant::now();
    send(&mut a, &frame(0, 1, 1));
    assert_eq!(receive(&mut b), frame(0, 1, 1));
    send(&mut b, &frame(1, 0, 2));
    assert_eq!(receive(&mut a), frame(1, 0, 2));
    // Four links of 2 ms, two adapters of 0.5 us and two switches of 0.1 us.
    assert!(begun.elapsed() >= Duration::from_micros(8_001));
    let counts = emulation.counts().expect("it runs");
    let passed = counts.hosts.iter().map(|host| (host.taken, host.given));
    assert_eq!(passed.collect::<Vec<_>>(), [(1, 1); 2]);
}

#[test]
fn a_flood_arrives_whole_and_at_the_rate_of_the_link() {
    flood(start("flood", [Vec::new(), Vec::new()]));
}

#[test]
fn a_flood_of_plain_ethernet_waits_for_its_adapter() {
    flood(start_over("plain", plain(), [Vec::new(), Vec::new()]));
}

fn flood((_place, emulation, [mut a, mut b]): (Place, Emulation, [End; 2])) {
    const FRAMES: u32 = 3000;
    let sender = thread::spawn(move || {
        (0..FRAMES).for_each(|number| send(&mut a, &frame(0, 1, number)));
        a // its end would take along what is in the cable
    });
    let begun = Instant::now();
    for number in 0..FRAMES {
        assert_eq!(receive(&mut b), frame(0, 1, number));
    }
    // 80 us each.
    assert!(begun.elapsed() >= Duration::from_micros(80 * u64::from(FRAMES)));
    let counts = emulation.counts().expect("it runs");
    let drops = counts.ports.iter().flat_map(|port| port.stats.drops);
    assert_eq!(drops.sum::<u64>(), 0);
    assert_eq!(counts.hosts[1].given, u64::from(FRAMES));
    drop(sender.join());
}

#[test]
fn announcements_come_first() {
    let hello = frame(1, 0, 9);
    let (_place, _emulation, [mut a, _b]) = start("hello", [vec![hello.clone()], Vec::new()]);
    assert_eq!(receive(&mut a), hello);
}

#[test]
fn an_end_that_goes_ends_the_network_with_a_reason() {
    let (_place, emulation, [a, _b]) = start("gone", [Vec::new(), Vec::new()]);
    drop(a);
    let deadline = Instant::now() + Duration::from_secs(10);
    let error = loop {
        assert!(Instant::now() < deadline, "it goes on");
        if let Err(error) = emulation.counts() {
            break format!("{error:#}");
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert!(
        error.contains("has gone") || error.contains("host 0"),
        "{error}"
    );
}
