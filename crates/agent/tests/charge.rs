//! Packets of a tenant without a governed flow, charged to buckets: by the kernel programs, on
//! frames.

use kernel::Kernel;
use net::{Route, opt, policy, wire};
use sluicegate_core::{
    abi::{
        BUCKET_ENFORCE, BUCKET_NONE, BUCKET_OBSERVE, Bucket, CLASS_NAMES, COUNTER_NAMES, Config,
        Interface, MODE_WATCH, Place, Scope,
    },
    bucket::classify,
    host::{Direction, tcp},
};

use crate::{kernel, net};

const NOW_NS: u64 = 1_000_000_000;

fn class(name: &str) -> usize {
    CLASS_NAMES.iter().position(|known| *known == name).unwrap()
}

fn count(kernel: &Kernel, name: &str) -> u64 {
    let index = COUNTER_NAMES.iter().position(|known| *known == name);
    kernel.counters()[index.expect("a counter's name")]
}

/// Programs with a bucket of ten frames of a hundred bytes, 8 Mbit/s, for these classes.
fn with_bucket(classes: &[&str], mode: u32) -> Kernel {
    let kernel = Kernel::load(&policy());
    let mut place = Place {
        scope: Scope::ALL,
        bucket: [BUCKET_NONE; CLASS_NAMES.len()],
        netns: -1,
        pad: 0,
    };
    for name in classes {
        place.bucket[class(name)] = 3;
    }
    kernel.set_place(&place);
    kernel.set_bucket(
        3,
        &Bucket {
            ps_per_byte: 1_000_000,
            burst_ns: 1_000_000,
            mode,
            ..Bucket::default()
        },
    );
    kernel
}

fn frame(ethertype: u16, body: &[(usize, u8)]) -> Vec<u8> {
    let mut frame = vec![0; 100];
    frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
    for (at, value) in body {
        frame[14 + at] = *value;
    }
    frame
}

fn udp() -> Vec<u8> {
    frame(0x0800, &[(0, 0x45), (3, 86), (9, 17)])
}

/// How many of `frames` pass.
fn passing(kernel: &Kernel, frames: &[Vec<u8>], direction: Direction) -> usize {
    let passes = |frame: &&Vec<u8>| kernel.frame(frame, direction, NOW_NS).passes;
    frames.iter().filter(passes).count()
}

#[test]
fn beyond_the_rate_a_class_is_dropped_and_the_others_are_not() {
    let kernel = with_bucket(&["udp", "icmp"], BUCKET_ENFORCE);
    let many = vec![udp(); 25];
    assert_eq!(passing(&kernel, &many, Direction::FromTenant), 10);
    assert_eq!(count(&kernel, "bucket_dropped"), 15);
    let bucket = kernel.bucket(3).unwrap();
    assert_eq!(
        (
            bucket.passed_bytes,
            bucket.exceeded_bytes,
            bucket.exceeded_packets
        ),
        (1000, 1500, 15)
    );
    // ICMP shares it; what comes to the tenant and what has no bucket does not.
    let echo = frame(0x0800, &[(0, 0x45), (9, 1)]);
    assert_eq!(passing(&kernel, &[echo], Direction::FromTenant), 0);
    assert_eq!(passing(&kernel, &many, Direction::ToTenant), 25);
    let arp = vec![frame(0x0806, &[]); 25];
    assert_eq!(passing(&kernel, &arp, Direction::FromTenant), 25);
    // A millisecond later it is full again.
    let later = NOW_NS + 1_000_000;
    let again = many
        .iter()
        .filter(|frame| kernel.frame(frame, Direction::FromTenant, later).passes);
    assert_eq!(again.count(), 10);
}

#[test]
fn observing_only_counts() {
    let kernel = with_bucket(&["udp"], BUCKET_OBSERVE);
    let many = vec![udp(); 25];
    assert_eq!(passing(&kernel, &many, Direction::FromTenant), 25);
    assert_eq!(
        (
            count(&kernel, "bucket_exceeded"),
            count(&kernel, "bucket_dropped")
        ),
        (15, 0)
    );
}

/// TCP in every wrapping that the programs do not look into, and data in none.
fn wrapped_tcp() -> Vec<(&'static str, Vec<u8>)> {
    let route = Route::new("10.1.0.1:1", "10.2.0.1:5001");
    let packet = net::Packet {
        seq: 100,
        flags: tcp::ACK,
        payload: vec![0; 46],
        ..net::Packet::default()
    };
    let plain = route.build(&packet);
    assert_eq!(plain.len(), 100);
    let changed = |at: usize, value: u8| {
        let mut frame = plain.clone();
        frame[14 + at] = value;
        frame
    };
    let mut double = plain.clone();
    double.splice(12..12, [0x88, 0xa8, 0, 1, 0x81, 0, 0, 2]);
    double.truncate(100);
    let mut extended = frame(0x86dd, &[(0, 0x60), (5, 46), (6, 60), (40, 6)]);
    extended[14 + 7] = 64;
    vec![
        ("fragment", changed(6, 0x20)),
        ("ip_options", changed(0, 0x46)),
        ("double_tag", double),
        ("ip_options", extended),
        // A header of TCP that is shorter than the shortest.
        ("malformed", changed(20 + 12, 0x40)),
    ]
}

/// No bucket need count what does not leave.
#[test]
fn what_is_behind_a_packet_does_not_leave() {
    for (from, to) in [
        ("10.1.0.1:1", "10.2.0.1:5001"),
        ("[fd00::1]:1", "[fd00::2]:5001"),
    ] {
        let kernel = with_bucket(&["opaque"], BUCKET_ENFORCE);
        let ack = net::Packet {
            flags: tcp::ACK,
            ..net::Packet::default()
        };
        let alone = Route::new(from, to).build(&ack);
        let mut frame = alone.clone();
        frame.resize(1000, 0x5a);
        let made = kernel.frame(&frame, Direction::FromTenant, NOW_NS);
        assert!(made.passes);
        assert_eq!(made.frame, alone);
        assert_eq!(count(&kernel, "trimmed"), 1);
    }
}

#[test]
fn no_wrapping_is_a_way_out() {
    for (why, frame) in wrapped_tcp() {
        let kernel = with_bucket(&["fragment", "opaque"], BUCKET_ENFORCE);
        let many = vec![frame.clone(); 25];
        assert_eq!(passing(&kernel, &many, Direction::FromTenant), 10, "{why}");
        assert_eq!(count(&kernel, why), 25);
        let number = COUNTER_NAMES
            .iter()
            .position(|known| *known == why)
            .unwrap();
        let named = CLASS_NAMES[classify(number, &frame)];
        assert!(["fragment", "opaque"].contains(&named), "{why}: {named}");
    }
}

#[test]
fn tcp_that_is_only_watched_has_a_bucket_of_its_own() {
    let kernel = with_bucket(&["watched-tcp"], BUCKET_ENFORCE);
    let route = Route::new("10.1.0.1:1", "10.2.0.1:5001");
    let data: Vec<Vec<u8>> = (0..25)
        .map(|i| {
            route.build(&net::Packet {
                seq: 100 + 46 * i,
                ack: 9,
                flags: tcp::ACK,
                payload: vec![0; 46],
                ..net::Packet::default()
            })
        })
        .collect();
    assert_eq!(passing(&kernel, &data, Direction::FromTenant), 10);
    assert_eq!(count(&kernel, "flow_midstream"), 1);
    // Its ACKs are free.
    let ack = wire::read(&data[0]).1;
    let ack = net::Packet {
        payload: Vec::new(),
        ..ack
    };
    let acks = vec![route.build(&ack); 25];
    assert_eq!(passing(&kernel, &acks, Direction::FromTenant), 25);
}

#[test]
fn segments_without_data_have_a_bucket_of_their_own() {
    let kernel = with_bucket(&["bare-tcp"], BUCKET_ENFORCE);
    let route = Route::new("10.1.0.1:1", "10.2.0.1:5001");
    let without = |flags| {
        route.build(&net::Packet {
            seq: 100,
            ack: 9,
            flags,
            options: vec![1; 40],
            ..net::Packet::default()
        })
    };
    let each = [tcp::ACK, tcp::SYN, tcp::FIN | tcp::ACK, tcp::RST].map(without);
    let bytes = each[0].len();
    let many: Vec<Vec<u8>> = each.iter().cycle().take(40).cloned().collect();
    assert_eq!(passing(&kernel, &many, Direction::ToTenant), 40);
    assert_eq!(
        passing(&kernel, &many, Direction::FromTenant),
        40,
        "none is asked for"
    );
    kernel.write(
        "config",
        &0_u32,
        &Config {
            bare: 1,
            ..Config::default()
        },
    );
    assert_eq!(passing(&kernel, &many, Direction::ToTenant), 40);
    assert_eq!(passing(&kernel, &many, Direction::FromTenant), 1000 / bytes);
    assert_eq!(count(&kernel, "bucket_dropped"), (40 - 1000 / bytes) as u64);
    // Data are none of its business.
    let data: Vec<Vec<u8>> = (0..25).map(|i| segment(100 + 46 * i, tcp::ACK)).collect();
    assert_eq!(passing(&kernel, &data, Direction::FromTenant), 25);
}

#[test]
fn data_of_a_flow_beyond_the_quota_is_charged() {
    let kernel = with_bucket(&["watched-tcp"], BUCKET_ENFORCE);
    let full = Interface {
        flows: 3,
        quota: 3,
        ..Interface::default()
    };
    kernel.set_interface(&full);
    let data: Vec<Vec<u8>> = (0..25).map(|i| segment(100 + 46 * i, tcp::ACK)).collect();
    assert_eq!(passing(&kernel, &data, Direction::FromTenant), 10);
    assert_eq!(count(&kernel, "quota"), 25);
    assert_eq!(kernel.bucket(3).unwrap().passed_bytes, 1000);
}

/// A segment of a hundred bytes in all of the connection that the tests here are about.
fn segment(seq: u32, flags: u8) -> Vec<u8> {
    let route = Route::new("10.1.0.1:1", "10.2.0.1:5001");
    route.build(&net::Packet {
        seq,
        ack: 9,
        flags,
        window: 1000,
        payload: vec![0; 46],
        ..net::Packet::default()
    })
}

/// The tenant's handshake on that connection: its next byte is 100.
fn connect(kernel: &Kernel) {
    let route = Route::new("10.1.0.1:1", "10.2.0.1:5001");
    let syn = net::Packet {
        seq: 99,
        flags: tcp::SYN,
        window: 1000,
        options: opt::all(&[&opt::mss(1460), &opt::wscale(7)]),
        ..net::Packet::default()
    };
    let answer = net::Packet {
        seq: 8,
        ack: 100,
        flags: tcp::SYN | tcp::ACK,
        window: 65_000,
        ..syn.clone()
    };
    let syn = kernel.frame(&route.build(&syn), Direction::FromTenant, NOW_NS);
    let answer = route.reversed().build(&answer);
    assert!(syn.passes && kernel.frame(&answer, Direction::ToTenant, NOW_NS).passes);
    assert!(
        kernel
            .slots()
            .iter()
            .any(|slot| slot.flow.mode != MODE_WATCH)
    );
}

#[test]
fn data_on_segments_that_open_or_reset_is_charged() {
    let flags = [
        tcp::SYN,
        tcp::SYN | tcp::ACK,
        tcp::RST,
        tcp::RST | tcp::ACK,
        tcp::SYN | tcp::RST,
    ];
    for flags in flags {
        for governed in [false, true] {
            let kernel = with_bucket(&["watched-tcp"], BUCKET_ENFORCE);
            if governed {
                connect(&kernel);
            }
            let many = vec![segment(100, flags); 25];
            let passed = passing(&kernel, &many, Direction::FromTenant);
            assert_eq!(passed, 10, "{flags:#x}, of a governed flow: {governed}");
            // Packets that come to the tenant are another host's to charge.
            assert_eq!(passing(&kernel, &many, Direction::ToTenant), 25);
        }
    }
}

#[test]
fn data_within_windows_is_free() {
    let kernel = with_bucket(&["watched-tcp"], BUCKET_ENFORCE);
    connect(&kernel);
    let data: Vec<Vec<u8>> = (0..25)
        .map(|i| segment(100 + 46 * i, tcp::ACK))
        .chain([segment(100 + 46 * 25, tcp::ACK | tcp::FIN)])
        .collect();
    assert_eq!(passing(&kernel, &data, Direction::FromTenant), data.len());
    assert_eq!(kernel.bucket(3).unwrap().passed_bytes, 0);
}

#[test]
fn a_flow_whose_scale_is_a_lower_bound_is_charged_as_it_is_not_policed() {
    let kernel = with_bucket(&["watched-tcp"], BUCKET_ENFORCE);
    let route = Route::new("10.2.0.1:5001", "10.1.0.1:1");
    let ack = route.build(&net::Packet {
        seq: 9,
        ack: 192,
        flags: tcp::ACK,
        window: 500,
        ..net::Packet::default()
    });
    let first = [segment(100, tcp::ACK), segment(146, tcp::ACK)];
    assert_eq!(passing(&kernel, &first, Direction::FromTenant), 2);
    assert_eq!(passing(&kernel, &[ack], Direction::ToTenant), 1);
    assert_eq!(count(&kernel, "flow_adopted"), 1);
    // Far beyond every window, so that it is no window that lets eight pass.
    let beyond: Vec<Vec<u8>> = (1..25)
        .map(|i| segment(100 + 10_000_000 * i, tcp::ACK))
        .collect();
    assert_eq!(passing(&kernel, &beyond, Direction::FromTenant), 8);
    assert_eq!(count(&kernel, "policed"), 0);
}
