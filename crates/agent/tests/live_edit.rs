//! Edits of real packets: real TCP stacks, real hooks, partial checksums. Needs root.

use std::{
    fs,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use live::{
    A, B, Hosts, TENANTS,
    capture::{Capture, Seen},
    counter, only_flow, policy,
    socket::Connection,
};
use net::{opt, wire::Sum};
use sluicegate_agent::Options;
use sluicegate_core::{
    abi::{Config, MODE_ONE_SIDED, MODE_TWO_SIDED, REASON_NAMES},
    host::{ecn, tcp},
};
use sluicegate_policy::Policy;

use crate::{live, net};

const BYTES: u64 = 6_000_000;
const V4: usize = 0;
const V6: usize = 1;

/// Nothing of what hosts say to each other, and no mark, reaches a tenant.
fn hidden(seen: &[Seen]) {
    let incoming = seen.iter().filter(|seen| !seen.out);
    assert!(incoming.clone().count() > 20);
    for Seen { packet, sum, .. } in incoming {
        assert_eq!(packet.ecn, ecn::NOT_ECT, "{packet:?}");
        assert!(opt::find(&packet.options, opt::FEEDBACK).is_none());
        assert!(opt::find(&packet.options, opt::EXPERIMENT).is_none());
        assert_ne!(*sum, Sum::Wrong, "{packet:?}");
    }
}

/// Every checksum is right, or partial.
fn summed(seen: &[Seen]) {
    for (number, seen) in seen.iter().enumerate() {
        assert_ne!(seen.sum, Sum::Wrong, "{number}: {seen:?}");
    }
}

/// Between hosts everything is ECN-capable, summed rightly, and pure ACKs report, at
/// least every second one.
fn shown(seen: &[Seen]) -> usize {
    summed(seen);
    for Seen { packet, .. } in seen {
        if !packet.has(tcp::RST) {
            assert_ne!(packet.ecn, ecn::NOT_ECT, "{packet:?}");
        }
    }
    // From b to a, once data has come.
    let acks = seen
        .iter()
        .filter(|seen| !seen.out && seen.packet.is_pure_ack());
    // Two CPUs may bring them here in another order than that of their turns.
    let (mut reports, mut bare) = (0, 0);
    for Seen { packet, .. } in acks {
        if opt::feedback_of(&packet.options).is_some() {
            reports += 1;
        } else if packet.options.len() + 8 <= 40 {
            bare += 1;
        }
    }
    assert!(
        bare <= reports + 1,
        "{bare} ACKs with room report nothing, {reports} do"
    );
    reports
}

/// A transfer each way with every wire watched.
fn watched_transfer(family: usize, offload: bool) -> Vec<Seen> {
    let hosts = Hosts::new();
    if !offload {
        hosts.without_checksum_offload();
    }
    let instances = [A, B].map(|side| hosts.enforce(side, &policy()));
    let between = Capture::start(&hosts, "ha", "up");
    let inside = TENANTS.map(|tenant| Capture::start(&hosts, tenant, "eth0"));
    let mut connection = Connection::open(&hosts, family);
    connection.transfer(A, BYTES);
    let one_way = between.finish();
    let between = Capture::start(&hosts, "ha", "up");
    connection.transfer(B, BYTES);
    let other_way = between.finish();
    for capture in inside {
        hidden(&capture.finish());
    }
    assert!(shown(&one_way) > 20);
    summed(&other_way);
    for (side, instance) in [A, B].into_iter().zip(&instances) {
        let flow = only_flow(instance);
        assert_eq!(
            flow.mode,
            MODE_TWO_SIDED,
            "{}",
            REASON_NAMES[usize::from(flow.reason)]
        );
        assert!(flow.bytes_acked >= BYTES && flow.bytes_received >= BYTES);
        assert_eq!(hosts.tcp_counter(side, "InCsumErrors"), 0);
        for none in ["edit_failed", "policed", "malformed", "malformed_option"] {
            assert_eq!(counter(instance, none), 0, "{none}");
        }
        assert!(counter(instance, "window_lowered") > 0);
    }
    one_way
}

#[test]
fn a_transfer_over_ipv4_with_partial_checksums() {
    let seen = watched_transfer(V4, true);
    let partial = |seen: &&Seen| seen.sum == Sum::Partial && seen.packet.is_pure_ack();
    assert!(
        seen.iter().filter(partial).count() > 20,
        "that is what this test is about"
    );
}

#[test]
fn a_transfer_over_ipv6_with_partial_checksums() {
    let seen = watched_transfer(V6, true);
    let partial = |seen: &&Seen| seen.sum == Sum::Partial && seen.packet.is_pure_ack();
    assert!(
        seen.iter().filter(partial).count() > 20,
        "that is what this test is about"
    );
}

#[test]
fn a_transfer_over_ipv4_with_complete_checksums() {
    let seen = watched_transfer(V4, false);
    assert!(seen.iter().all(|seen| seen.sum == Sum::Right));
}

#[test]
fn a_transfer_over_ipv6_with_complete_checksums() {
    let seen = watched_transfer(V6, false);
    assert!(seen.iter().all(|seen| seen.sum == Sum::Right));
}

#[test]
fn data_both_ways_brings_facks_that_no_tenant_sees() {
    for (family, offload) in [(V4, true), (V6, true), (V4, false)] {
        let hosts = Hosts::new();
        if !offload {
            hosts.without_checksum_offload();
        }
        let instances = [A, B].map(|side| hosts.enforce(side, &policy()));
        let between = Capture::start(&hosts, "ha", "up");
        let inside = TENANTS.map(|tenant| Capture::start(&hosts, tenant, "eth0"));
        let mut connection = Connection::open(&hosts, family);
        connection.exchange(BYTES);
        // Answers in place of ACKs: feedback has no other way.
        connection.ping_pong(1400, 300);
        for (side, instance) in [A, B].into_iter().zip(&instances) {
            let flow = only_flow(instance);
            let why = REASON_NAMES[usize::from(flow.reason)];
            assert_eq!(
                flow.mode,
                MODE_TWO_SIDED,
                "{side}: {why}: {flow:#?} {:#?}",
                instances.each_ref().map(|one| one.counters().unwrap())
            );
            assert_eq!(hosts.tcp_counter(side, "InCsumErrors"), 0);
        }
        let between = between.finish();
        for capture in inside {
            hidden(&capture.finish());
        }
        let facks: Vec<&Seen> = between
            .iter()
            .filter(|seen| opt::peer_of(&seen.packet.options) == Some(1))
            .collect();
        assert!(!facks.is_empty());
        for fack in &facks {
            assert_ne!(fack.sum, Sum::Wrong, "{:?}", fack.packet);
            assert_eq!((fack.packet.len(), fack.packet.flags), (0, tcp::ACK));
            assert_eq!(
                (fack.packet.options.len(), fack.packet.ecn),
                (16, ecn::ECT0)
            );
            assert!(opt::feedback_of(&fack.packet.options).is_some());
        }
        let sum = |name: &str| -> u64 { instances.iter().map(|of| counter(of, name)).sum() };
        assert_eq!(sum("fack_sent"), facks.len() as u64);
        assert_eq!(sum("fack_taken"), facks.len() as u64);
        assert_eq!(sum("edit_failed"), 0);
    }
}

/// Enforcement with a window of at most `bytes`.
#[test]
fn data_with_a_syn_arrive_and_the_connection_is_two_sided() {
    for (family, offload, bytes) in [(V4, true, 1000), (V6, false, 1400), (V4, false, 1)] {
        let hosts = Hosts::new();
        if !offload {
            hosts.without_checksum_offload();
        }
        let instances = [A, B].map(|side| hosts.enforce(side, &policy()));
        let between = Capture::start(&hosts, "ha", "up");
        let inside = TENANTS.map(|tenant| Capture::start(&hosts, tenant, "eth0"));
        let mut connection = Connection::open_fast(&hosts, family, bytes);
        connection.transfer(A, BYTES);
        let seen = between.finish();
        let syns = seen.iter().filter(|seen| seen.packet.has(tcp::SYN));
        let data: Vec<_> = syns
            .map(|seen| (seen.packet.len(), opt::peer_of(&seen.packet.options)))
            .collect();
        assert_eq!(data, [(bytes as u32, Some(0)), (0, Some(0))]);
        shown(&seen);
        for capture in inside {
            hidden(&capture.finish());
        }
        for instance in &instances {
            let flow = only_flow(instance);
            let reason = REASON_NAMES[usize::from(flow.reason)];
            assert_eq!(flow.mode, MODE_TWO_SIDED, "{reason}");
            assert_eq!(counter(instance, "edit_failed"), 0);
        }
        for side in [A, B] {
            assert_eq!(hosts.tcp_counter(side, "InCsumErrors"), 0);
        }
    }
}

/// With timestamps, which take 12 bytes of each segment.
#[test]
fn real_stacks_send_segments_of_the_rules_mss() {
    let mut clamping = policy();
    clamping.rules[0].mss_bytes = Some(1000);
    for (family, offload) in [(V4, true), (V6, true), (V4, false), (V6, false)] {
        let hosts = Hosts::new();
        if !offload {
            hosts.without_checksum_offload();
        }
        let instances = [A, B].map(|side| hosts.enforce(side, &clamping));
        let inside = TENANTS.map(|tenant| Capture::start(&hosts, tenant, "eth0"));
        let mut connection = Connection::open(&hosts, family);
        connection.transfer(A, BYTES);
        connection.transfer(B, BYTES);
        for capture in inside {
            hidden(&capture.finish());
        }
        for (side, instance) in [A, B].into_iter().zip(&instances) {
            assert_eq!(connection.send_mss(side), 1000 - 12);
            assert_eq!(only_flow(instance).mss, 1000);
            assert_eq!(only_flow(instance).mode, MODE_TWO_SIDED);
            assert_eq!(counter(instance, "mss_clamped"), 1);
            assert_eq!(counter(instance, "edit_failed"), 0);
            assert_eq!(hosts.tcp_counter(side, "InCsumErrors"), 0);
        }
    }
}

fn capped(bytes: u32) -> Policy {
    let mut policy = policy();
    policy.rules[0].window_cap_bytes = bytes;
    policy
}

#[test]
fn the_tenants_stack_obeys_the_enforced_window() {
    let hosts = Hosts::new();
    let near = hosts.enforce(A, &capped(64_000));
    let _far = hosts.enforce(B, &policy());
    let mut connection = Connection::open(&hosts, V4);
    connection.transfer(A, BYTES);
    let flow = only_flow(&near);
    let window = connection.send_window(A);
    assert_eq!(u64::from(window), flow.shown_window_bytes());
    // A peer whose reader was late sends window updates, each shown as one unit more.
    let updates = 8 << flow.wscale;
    assert!(window <= 64_000_u32.next_multiple_of(1 << flow.wscale) + updates);
    assert!(flow.peer_window_bytes() > 2 * u64::from(window), "{flow:?}");
}

#[test]
fn real_sack_on_a_lossy_link_is_understood() {
    let hosts = Hosts::new();
    hosts.narrow("100mbit", 60_000);
    let near = hosts.enforce(A, &policy());
    let far = hosts.enforce(B, &policy());
    let between = Capture::start(&hosts, "ha", "up");
    let mut connection = Connection::open(&hosts, V4);
    connection.transfer(A, BYTES);
    let flow = only_flow(&near);
    assert!(connection.retransmits(A) > 0, "the link drops");
    assert!(flow.losses > 0, "{flow:?}");
    assert_eq!(
        flow.mode,
        MODE_TWO_SIDED,
        "{}",
        REASON_NAMES[usize::from(flow.reason)]
    );
    let with_both = between.finish().into_iter().filter(|seen| {
        !opt::sack_of(&seen.packet.options).is_empty()
            && opt::feedback_of(&seen.packet.options).is_some()
    });
    assert!(with_both.count() > 0, "SACK and feedback share ACKs");
    for instance in [&near, &far] {
        assert_eq!(
            counter(instance, "policed") + counter(instance, "edit_failed"),
            0
        );
    }
    assert_eq!(
        hosts.tcp_counter(A, "InCsumErrors") + hosts.tcp_counter(B, "InCsumErrors"),
        0
    );
}

#[test]
fn a_side_that_detaches_is_noticed_and_the_transfer_completes() {
    let hosts = Hosts::new();
    let near = hosts.enforce(A, &capped(256_000));
    let mut far = hosts.enforce(B, &policy());
    let mut connection = Connection::open(&hosts, V4);
    connection.transfer(A, BYTES);
    assert_eq!(only_flow(&near).mode, MODE_TWO_SIDED);
    let before = only_flow(&near).bytes_acked;
    far.detach("t").unwrap();
    connection.transfer(A, BYTES);
    let flow = only_flow(&near);
    assert_eq!(flow.mode, MODE_ONE_SIDED);
    assert_eq!(REASON_NAMES[usize::from(flow.reason)], "feedback-stopped");
    assert_eq!(counter(&near, "feedback_stopped"), 1);
    assert!(flow.bytes_acked > before);
    // The far tenant saw hosts' ECN in between, and nothing worse.
    connection.transfer(B, BYTES);
    assert_eq!(
        hosts.tcp_counter(A, "InCsumErrors") + hosts.tcp_counter(B, "InCsumErrors"),
        0
    );
}

#[test]
fn a_gap_in_enforcement_breaks_no_connection() {
    let hosts = Hosts::new();
    let mut near = hosts.enforce(A, &policy());
    let _far = hosts.enforce(B, &policy());
    let mut connection = Connection::open(&hosts, V4);
    connection.transfer(A, BYTES);
    near.detach("t").unwrap();
    connection.transfer(A, BYTES);
    hosts.within("ha", || near.attach("t")).unwrap();
    connection.transfer(A, BYTES);
    connection.transfer(B, BYTES);
    assert_eq!(counter(&near, "policed"), 0);
    let flow = only_flow(&near);
    assert_eq!(REASON_NAMES[usize::from(flow.reason)], "midstream");
}

#[test]
fn flows_of_an_earlier_attachment_do_not_count_towards_the_quota() {
    let hosts = Hosts::new();
    let options = Options {
        interface_quota: 1,
        ..Options::default()
    };
    let mut near = hosts.enforce_with(A, &policy(), &options);
    let _first = Connection::open(&hosts, V4);
    near.detach("t").unwrap();
    hosts.within("ha", || near.attach("t")).unwrap();
    assert!(near.raw_flows().unwrap().is_empty());
    let _second = Connection::open(&hosts, V4);
    assert_eq!(counter(&near, "quota"), 0);
    let _third = Connection::open(&hosts, V4);
    assert_eq!(counter(&near, "quota"), 1);
    assert_eq!(near.raw_flows().unwrap().len(), 1);
}

#[test]
fn closed_flows_are_collected_and_free_their_place() {
    let hosts = Hosts::new();
    let options = Options {
        interface_quota: 1,
        config: Config {
            idle_ns: 1,
            closed_ns: 50_000_000,
            ..Config::default()
        },
        ..Options::default()
    };
    let near = hosts.enforce_with(A, &policy(), &options);
    for round in 1..=3 {
        drop(Connection::open(&hosts, V4));
        let deadline = Instant::now() + Duration::from_secs(30);
        while counter(&near, "flow_expired") < round {
            assert!(Instant::now() < deadline, "the flow is never collected");
            thread::sleep(Duration::from_millis(20));
        }
    }
    assert_eq!(counter(&near, "quota"), 0);
    assert!(near.raw_flows().unwrap().is_empty());
}

/// A device on the path drops SYNs with the option that hosts add.
#[test]
fn syns_that_a_path_drops_open_all_the_same() {
    let hosts = Hosts::new();
    let instances = [A, B].map(|side| hosts.enforce(side, &policy()));
    hosts.within("ha", || {
        for words in [
            "qdisc add dev up root handle 1: htb default 1",
            "class add dev up parent 1: classid 1:1 htb rate 10gbit",
            "class add dev up parent 1: classid 1:2 htb rate 10gbit",
            "qdisc add dev up parent 1:2 pfifo limit 0",
            // A SYN of Linux has 20 bytes of options; behind them, the first byte of ours.
            "filter add dev up parent 1: protocol ip u32 match u8 2 0x12 at 33 \
             match u8 253 0xff at 60 flowid 1:2",
        ] {
            live::run("tc", &words.split_whitespace().collect::<Vec<_>>());
        }
    });
    let mut connection = Connection::open(&hosts, V4);
    connection.transfer(A, 1_000_000);
    let flow = only_flow(&instances[A]);
    assert_eq!(REASON_NAMES[usize::from(flow.reason)], "option-dropped");
    assert_eq!(counter(&instances[A], "option_dropped"), 1);
    // The next connection to that peer begins without it.
    let offered = counter(&instances[A], "peer_offered");
    let mut next = Connection::open(&hosts, V4);
    next.transfer(A, 1_000_000);
    assert_eq!(counter(&instances[A], "peer_offered"), offered);
    assert_eq!(counter(&instances[A], "syn_fallback"), 2);
}

/// A capture file of Ethernet frames (libpcap's classic format).
fn pcap(frames: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4_u32, 2 | 4 << 16, 0, 0, 1 << 18, 1] {
        bytes.extend(word.to_ne_bytes());
    }
    for frame in frames {
        let length = frame.len() as u32;
        for word in [0, 0, length, length] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(*frame);
    }
    bytes
}

#[test]
fn wireshark_reads_the_feedback_as_accurate_ecn() {
    let seen = watched_transfer(V4, false);
    let ack = seen
        .iter()
        .rfind(|seen| opt::feedback_of(&seen.packet.options).is_some())
        .expect("an ACK with feedback");
    let (e0b, ceb) = opt::feedback_of(&ack.packet.options).unwrap();
    let file = std::env::temp_dir().join(format!("sgv-{}.pcap", std::process::id()));
    fs::write(&file, pcap(&[&ack.frame])).unwrap();
    let output = Command::new("tshark")
        .arg("-r")
        .arg(&file)
        .args(["-o", "tcp.check_checksum:TRUE", "-T", "fields"])
        .args(["-e", "tcp.option_kind", "-e", "tcp.options.acc_ecn.ee0b"])
        .args([
            "-e",
            "tcp.options.acc_ecn.eceb",
            "-e",
            "tcp.checksum.status",
        ])
        .output()
        .expect("tshark is installed (Debian: apt-get install tshark)");
    fs::remove_file(&file).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let fields: Vec<&str> = text.trim_end().split('\t').collect();
    assert!(fields[0].split(',').any(|kind| kind == "172"), "{text}");
    assert_eq!(
        fields[1..],
        [e0b.to_string(), ceb.to_string(), "1".into()],
        "{text}"
    );
}
