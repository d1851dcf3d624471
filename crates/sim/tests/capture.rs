//! Captures: frames are read by `etherparse`, files by Wireshark, so that the code under test
//! doesn't judge itself.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use proptest::prelude::*;
use sluicegate_core::segment::{Verdict, edit};
use sluicegate_fabric::{
    Frame,
    cee::{Feedback, Notification, QueueKey},
    graph::{HostId, PortId},
};
use sluicegate_scenario::{experiment::Experiment, inspect::Captures, runner, world::Unobserved};
use sluicegate_sim::{
    Sim,
    capture::Capture,
    frame::{self, Route},
    packet::{Addressing, Packet, TcpHeader},
};
use sluicegate_tcp::segment::{Block, ByteCounters, SACK_BLOCKS, Segment, flags, option};

use crate::{opt, support, wire};

const V4: [&str; 2] = ["10.0.0.1:32768", "10.1.0.1:5000"];
const V6: [&str; 2] = ["[fd00::1]:32768", "[fd00::2]:5000"];

fn route(ends: [&str; 2]) -> Route {
    let [from, to] = ends.map(|end| end.parse::<SocketAddr>().unwrap());
    Route {
        from,
        to,
        hosts: [HostId(3), HostId(258)],
    }
}

/// Any segment of those that stacks send, AccECN's flag and option included where they fit.
fn segment() -> impl Strategy<Value = Segment> {
    let counters = (any::<bool>(), any::<[u32; 3]>(), 0..=3usize);
    (plain_segment(), any::<bool>(), prop::option::of(counters)).prop_map(
        |(mut segment, ae, counters)| {
            segment.options |= if ae { option::AE } else { 0 };
            let before = segment;
            if let Some((ect1_first, fields, count)) = counters {
                let fits = segment.set_counters(&ByteCounters::new(ect1_first, &fields[..count]));
                if !fits || segment.header_len() > 60 {
                    return before;
                }
            }
            segment
        },
    )
}

/// The same without AccECN; without data if our options are to follow.
fn plain_segment() -> impl Strategy<Value = Segment> {
    let numbers = (any::<[u32; 4]>(), any::<u16>(), 0..=8900u16);
    let header = (
        any::<u8>(),
        0..4u8,
        0..16u8,
        any::<[[u32; 2]; SACK_BLOCKS]>(),
        0..=SACK_BLOCKS,
    );
    (numbers, header).prop_map(
        |((words, window, payload), (set, ecn, options, blocks, count))| {
            let mut segment = Segment {
                ts_val: words[2],
                ts_ecr: words[3],
                payload,
                window,
                ecn,
                options: options & option::TIMESTAMPS,
                ..Segment::new(words[0], words[1], set)
            };
            if set & flags::SYN == 0 {
                for [left, right] in &blocks[..count] {
                    segment.push_sack(Block {
                        left: *left,
                        right: *right,
                    });
                }
                return segment;
            }
            segment.payload = 0;
            segment.options = options;
            if options & option::MSS != 0 {
                segment.set_mss(blocks[0][0] as u16);
            }
            if options & option::WSCALE != 0 {
                segment.set_wscale(blocks[0][1] as u8 % 15);
            }
            segment
        },
    )
}

/// The options of a segment as a list of kinds and bytes.
fn options_of(segment: &Segment) -> Vec<(u8, Vec<u8>)> {
    let mut all = Vec::new();
    let mut add = |kind: u8, value: Vec<u8>| {
        all.push((kind, [&[kind, value.len() as u8 + 2], &value[..]].concat()));
    };
    if let Some(mss) = segment.mss() {
        add(2, mss.to_be_bytes().to_vec());
    }
    if segment.has(flags::SYN) && segment.options & option::SACK_PERMITTED != 0 {
        add(4, Vec::new());
    }
    if segment.options & option::TIMESTAMPS != 0 {
        add(
            8,
            [segment.ts_val, segment.ts_ecr]
                .map(u32::to_be_bytes)
                .concat(),
        );
    }
    if let Some(shift) = segment.wscale() {
        add(3, vec![shift]);
    }
    if let Some(counters) = segment.counters() {
        let kind = if counters.ect1_first() { 174 } else { 172 };
        let fields = counters.values().iter();
        add(
            kind,
            fields
                .flat_map(|value| value.to_be_bytes()[1..].to_vec())
                .collect(),
        );
    }
    if !segment.sack().is_empty() {
        let block = |block: &Block| [block.left, block.right].map(u32::to_be_bytes).concat();
        add(5, segment.sack().iter().flat_map(block).collect());
    }
    all
}

/// A segment on its way.
fn packet(header: TcpHeader, ip_bytes: u32) -> Packet {
    Packet::new(header, &Addressing::default(), ip_bytes)
}

/// The frame as etherparse reads it; lengths and checksums are right.
fn read(packet: &Packet, segment: &Segment, route: &Route) -> wire::Packet {
    let mut bytes = vec![0xff; 7];
    frame::write(&mut bytes, packet, &segment.sack, route);
    let ae = segment.options & option::AE != 0;
    let header = if route.from.is_ipv4() { 34 } else { 54 };
    assert_eq!(bytes[header + 12] & 1 != 0, ae);
    assert_eq!(bytes.len(), packet.bytes() as usize);
    assert_eq!(bytes[..6], frame::mac(route.hosts[1]));
    assert_eq!(bytes[6..12], frame::mac(route.hosts[0]));
    let (found, packet) = wire::read(&bytes);
    assert_eq!((found.from, found.to), (route.from, route.to));
    packet
}

proptest! {
    #[test]
    fn frames_say_what_packets_say(segment in segment(), v6: bool) {
        let (route, ip_bytes) = if v6 { (route(V6), 40) } else { (route(V4), 20) };
        let packet = packet(TcpHeader::of(&segment), ip_bytes);
        let read = read(&packet, &segment, &route);
        prop_assert_eq!(
            (read.seq, read.ack, read.flags, read.window, read.ecn),
            (segment.seq, segment.ack, segment.flags, segment.window, segment.ecn)
        );
        prop_assert_eq!(read.payload, vec![0; usize::from(segment.payload)]);
        let found = opt::split(&read.options).expect("well-formed options");
        let found: Vec<_> = found.into_iter().map(|(kind, bytes)| (kind, bytes.to_vec())).collect();
        prop_assert_eq!(found, options_of(&segment));
    }

    #[test]
    fn our_options_are_those_of_the_wire(e0b in 0..1u32 << 24, ceb in 0..1u32 << 24, v6: bool) {
        let (route, ip_bytes) = if v6 { (route(V6), 40) } else { (route(V4), 20) };
        let mut segment = Segment { options: option::TIMESTAMPS, ..Segment::new(1, 2, flags::ACK) };
        let verdict = Verdict { edits: edit::ADD_FEEDBACK, e0b, ceb, ..Verdict::default() };
        let mut ack = TcpHeader::of(&segment);
        ack.apply(&verdict);
        let read_ack = read(&packet(ack, ip_bytes), &segment, &route);
        prop_assert_eq!(opt::feedback_of(&read_ack.options), Some((e0b, ceb)));
        prop_assert_eq!(opt::peer_of(&read_ack.options), None);

        segment.payload = 1448;
        let fack = TcpHeader::of(&segment).fack(&verdict);
        let read_fack = read(&packet(fack, ip_bytes), &segment, &route);
        prop_assert_eq!(read_fack.options, [opt::feedback(e0b, ceb), opt::peer(1)].concat());

        let mut syn = TcpHeader::of(&Segment::new(1, 0, flags::SYN));
        syn.apply(&Verdict { edits: edit::ADD_PEER, ..Verdict::default() });
        let read_syn = read(&packet(syn, ip_bytes), &Segment::default(), &route);
        prop_assert_eq!(opt::peer_of(&read_syn.options), Some(0));
    }
}

const SCENARIO: &str = "
warmup = '10ms'
duration = '40ms'
[network]
topology = 'dumbbell'
pairs = 2
rate = '100Mbit'
queue = '20KB'
[traffic.bulk]
kind = 'bulk'
[traffic.probe]
kind = 'ping-pong'
from = 's1'
to = 'r1'
[variant.lossy]
[variant.enforced]
network.ip = 6
network.queue = '400KB'
network.marking = { kind = 'threshold', k = '9KB' }
enforcement.hosts = 'all'
";

fn experiment(names: &[&str], snaplen_bytes: u32, directory: &Path) -> Experiment {
    experiment_of(SCENARIO, names, snaplen_bytes, directory)
}

fn experiment_of(
    scenario: &str,
    names: &[&str],
    snaplen_bytes: u32,
    directory: &Path,
) -> Experiment {
    let mut experiment = support::experiment(scenario);
    experiment.inspect.captures = Some(Captures {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        snaplen_bytes,
        directory: directory.to_owned(),
    });
    experiment
}

/// Runs every variant; returns the directory of captures, which is `name` and empty before.
fn capture(name: &str, names: &[&str], snaplen_bytes: u32) -> PathBuf {
    capture_of(SCENARIO, name, names, snaplen_bytes)
}

fn capture_of(scenario: &str, name: &str, names: &[&str], snaplen_bytes: u32) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&directory);
    let experiment = experiment_of(scenario, names, snaplen_bytes, &directory);
    experiment.check_inspect().unwrap();
    runner::run(&experiment, &mut Sim::default(), &mut Unobserved).unwrap();
    directory
}

/// Wireshark's dissection of the frames of a file that `filter` selects: `fields` of each.
fn tshark(file: &Path, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-Y", filter]);
    command.args([
        "-o",
        "tcp.check_checksum:TRUE",
        "-o",
        "ip.check_checksum:TRUE",
        "-o",
        "udp.check_checksum:TRUE",
    ]);
    command.args(["-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command
        .output()
        .expect("tshark is installed (Debian: apt-get install tshark)");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    let row = |line: &str| line.split('\t').map(str::to_owned).collect();
    text.lines().map(row).collect()
}

fn count(file: &Path, filter: &str) -> usize {
    tshark(file, filter, &["frame.number"]).len()
}

fn numbers(file: &Path, filter: &str, field: &str) -> Vec<f64> {
    let rows = tshark(file, filter, &[field]);
    rows.iter().map(|row| row[0].parse().unwrap()).collect()
}

/// Wireshark's judgement of the frames of a whole capture.
struct Judged {
    /// Checksums of TCP, of IP, whether the frame is malformed.
    sums: Vec<[String; 3]>,
    /// Frames that carry SACK blocks.
    sacks: usize,
    retransmissions: usize,
    /// Frames of which the analysis of TCP says anything but that a window is full or has changed.
    odd: usize,
}

fn judged(file: &Path) -> Judged {
    let fields = [
        "tcp.checksum.status",
        "ip.checksum.status",
        "_ws.malformed",
        "tcp.options.sack_le",
        "tcp.analysis.retransmission",
        "tcp.analysis.flags",
        "tcp.analysis.window_full",
        "tcp.analysis.window_update",
    ];
    let rows = tshark(file, "frame", &fields);
    let count = |says: &dyn Fn(&[String]) -> bool| rows.iter().filter(|row| says(row)).count();
    Judged {
        sacks: count(&|row| !row[3].is_empty()),
        retransmissions: count(&|row| !row[4].is_empty()),
        odd: count(&|row| !row[5].is_empty() && row[6].is_empty() && row[7].is_empty()),
        sums: rows
            .iter()
            .map(|row| [0, 1, 2].map(|column| row[column].clone()))
            .collect(),
    }
}

#[test]
fn wireshark_finds_nothing_wrong() {
    let directory = capture("whole", &["s1", "left-right"], 65_535);
    let judged = |variant: &str, name: &str| {
        let judged = judged(&directory.join(format!("{variant}/{name}.pcapng")));
        assert!(judged.sums.len() > 50, "{variant} {name}");
        // IPv6 has no checksum of its own.
        let ip = if variant == "lossy" { "1" } else { "" };
        for sums in &judged.sums {
            assert_eq!(sums, &["1", ip, ""], "{variant} {name}");
        }
        judged
    };
    for name in ["s1", "left-right"] {
        assert_eq!(judged("enforced", name).odd, 0, "nothing was lost: {name}");
    }
    assert!(judged("lossy", "s1").retransmissions > 0);
    let link = judged("lossy", "left-right");
    assert!(link.retransmissions > 0 && link.sacks > 0);
}

#[test]
fn wireshark_decodes_what_enforcing_hosts_say() {
    let directory = capture("enforced", &["left-right"], 65_535);
    let file = directory.join("enforced/left-right.pcapng");
    assert_eq!(
        count(&file, "tcp.flags.syn == 1 && tcp.option_kind == 253"),
        6
    );
    assert!(count(&file, "ipv6.tclass.ecn == 3") > 0, "the queue marks");
    let counted = [
        "tcp.options.acc_ecn.ee0b",
        "tcp.options.acc_ecn.eceb",
        "tcp.ack",
    ];
    let feedback = tshark(
        &file,
        "tcp.options.acc_ecn.ee0b && tcp.flags.syn == 0",
        &counted,
    );
    assert!(feedback.len() > 20);
    for row in feedback {
        // Nothing was lost, so that each counts what it acknowledges; EE0B starts at 1, as numbers
        // do.
        let [ee0b, eceb, ack] = [0, 1, 2].map(|column| row[column].parse::<u64>().unwrap());
        assert_eq!(ee0b + eceb, ack);
    }
}

#[test]
fn times_are_those_of_the_wire() {
    let directory = capture("times", &["s1", "left-right"], 128);
    let link = directory.join("enforced/left-right.pcapng");
    let leaving = "frame.interface_name == \"left>right\" && frame.len == 1514";
    let times_s = numbers(&link, leaving, "frame.time_epoch");
    let gaps_ns = times_s
        .windows(2)
        .map(|pair| ((pair[1] - pair[0]) * 1e9).round());
    // 1514 bytes at 100 Mbit/s, and a nanosecond for rounding; the queue is never empty for long.
    let least_ns = gaps_ns.clone().fold(f64::INFINITY, f64::min);
    assert!((121_119.0..=121_120.0).contains(&least_ns), "{least_ns}");
    assert!(gaps_ns.filter(|gap| *gap > 121_121.0).count() < times_s.len() / 4);
    for name in ["s1", "left-right"] {
        let file = directory.join(format!("enforced/{name}.pcapng"));
        let times_s = numbers(&file, "frame", "frame.time_epoch");
        assert!(times_s.is_sorted(), "{name}");
        assert!(times_s[times_s.len() - 1] <= 0.05, "{name}");
    }
    // Half way to the switch and back lies between a frame's leaving the host and the port behind.
    let host = directory.join("enforced/s1.pcapng");
    let sent =
        "frame.packet_flags_direction == 2 && tcp.seq == 1 && tcp.len > 0 && tcp.srcport == 32768";
    let first_s = |file: &Path| numbers(file, sent, "frame.time_epoch")[0];
    let host_s = tshark(&host, sent, &["frame.time_epoch"]);
    assert_eq!(host_s.len(), 1, "not sent twice");
    let later_ns = ((first_s(&link) - first_s(&host)) * 1e9).round();
    assert!(later_ns >= 1_000.0 + 121_120.0, "{later_ns}");
}

#[test]
fn nothing_leaves_by_a_link_that_is_down() {
    let flap = "[[event]]\nat = '20ms'\nlink_down = 'left-right'\n\
        [[event]]\nat = '30ms'\nlink_up = 'left-right'\n";
    let directory = capture_of(&format!("{SCENARIO}{flap}"), "flap", &["left-right"], 128);
    let file = directory.join("lossy/left-right.pcapng");
    assert_eq!(
        count(&file, "frame.time_epoch > 0.02 && frame.time_epoch < 0.03"),
        0
    );
    assert!(
        count(
            &file,
            "frame.time_epoch > 0.019 && frame.time_epoch <= 0.02"
        ) > 5
    );
}

#[test]
fn frames_are_cut_and_their_lengths_kept() {
    let directory = capture("cut", &["s*"], 100);
    let files = fs::read_dir(directory.join("lossy")).unwrap();
    let mut names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["s1.pcapng", "s2.pcapng"]);
    let file = directory.join("lossy/s1.pcapng");
    assert!(count(&file, "frame.len == 1514 && frame.cap_len == 100") > 0);
    assert_eq!(count(&file, "frame.cap_len > 100"), 0);
    assert_eq!(
        count(&file, "frame.len < 100 && frame.cap_len != frame.len"),
        0
    );
}

#[test]
fn a_capture_that_is_not_finished_leaves_no_file() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unfinished");
    let experiment = experiment(&["s1"], 128, &directory);
    let asked = experiment.inspect.captures.as_ref().unwrap();
    let files = || fs::read_dir(&directory).unwrap().count();
    let capture = Capture::open(asked, &experiment.variants[0], &directory).unwrap();
    assert_eq!(files(), 1);
    drop(capture);
    assert_eq!(files(), 0);
}

#[test]
fn unknown_places_are_named_with_what_there_is() {
    let experiment = experiment(&["s1", "left-rigth"], 128, Path::new("."));
    let problem = experiment.check_inspect().unwrap_err();
    assert!(
        problem
            .starts_with("t.toml: no host or link is named \"left-rigth\"; hosts: s1, s2, r1, r2;")
    );
    assert!(
        problem.ends_with("did you mean \"left-right\"?"),
        "{problem}"
    );
}

/// Seven senders, one receiver: its switch pauses some of them and notifies all.
const CONVERGED: &str = "
warmup = '5ms'
duration = '15ms'
[network]
topology = 'star'
hosts = 8
rate = '10Gbit'
delay = '100ns'
[network.cee]
[network.cee.pfc]
priorities = [0, 3]
xoff = '20KB'
xon = '10KB'
pause = 'wire'
[network.cee.qcn]
priorities = [3]
set_point = '20KB'
[traffic.bulk]
kind = 'bulk'
from = ['h2', 'h3', 'h4', 'h5', 'h6', 'h7', 'h8']
to = 'h1'
priority = 3
";

#[test]
fn wireshark_decodes_what_switches_of_converged_ethernet_say() {
    let directory = capture_of(CONVERGED, "converged", &["h2", "switch-h2"], 128);
    for name in ["h2", "switch-h2"] {
        let file = directory.join(format!("base/{name}.pcapng"));
        assert_eq!(count(&file, "_ws.malformed"), 0, "{name}");
        let times_s = numbers(&file, "frame", "frame.time_epoch");
        assert!(times_s.is_sorted(), "{name}");
        let pauses = tshark(
            &file,
            "macc",
            &[
                "eth.dst",
                "macc.opcode",
                "macc.cbfc.enbv",
                "macc.cbfc.pause_time.c3",
                "frame.len",
            ],
        );
        assert!(pauses.len() > 2, "{name}");
        for row in &pauses {
            assert_eq!(row[0], "01:80:c2:00:00:01");
            assert_eq!(
                (row[1].as_str(), row[2].as_str()),
                ("0x0101", "0x0008"),
                "{name}"
            );
            assert!(["65535", "0"].contains(&row[3].as_str()), "{row:?}");
            assert_eq!(row[4], "60");
        }
        let goes = |time: &str| pauses.iter().filter(|row| row[3] == time).count();
        assert!(goes("65535") > 0 && goes("0") > 0, "{name}");
        // Wireshark has no dissector of these: the switch tells h2 (host 1) of the way to h1 (host
        // 0).
        let told = tshark(
            &file,
            "vlan.etype == 0x22e7",
            &["eth.dst", "vlan.priority", "data.data"],
        );
        assert!(told.len() > 2, "{name}");
        for row in &told {
            assert_eq!(
                (row[0].as_str(), row[1].as_str()),
                ("02:53:47:00:00:01", "7")
            );
            let bytes = |at: usize| u16::from_str_radix(&row[2][2 * at..2 * at + 4], 16).unwrap();
            assert!((1..=63).contains(&bytes(0)), "Fb in {row:?}");
            let (below, growth) = (bytes(10) as i16, bytes(12) as i16);
            let scale = f64::from(bytes(0)) / 63.0 * 5.0 * 20_000.0 / 64.0;
            let congestion = f64::from(growth) * 2.0 - f64::from(below);
            // Units of 64 bytes and quantised feedback; more than the most is the most.
            assert!(congestion >= scale - 4.0, "{congestion} {scale}");
            assert_eq!(bytes(14), 3 << 13);
            assert!(row[2][2 * 16..].starts_with("025347000000"), "{row:?}");
        }
        let data = "tcp.dstport == 10000 && tcp.len > 0";
        assert!(count(&file, data) > 100);
        assert_eq!(
            count(
                &file,
                &format!("{data} && !(vlan.priority == 3 && vlan.id == 0)")
            ),
            0
        );
    }
}

#[test]
fn a_tag_says_the_priority_and_hides_nothing() {
    let segment = Segment::new(1, 2, flags::ACK);
    let packet = packet(TcpHeader::of(&segment), 20);
    let mut plain = Vec::new();
    frame::write(&mut plain, &packet, &segment.sack, &route(V4));
    let mut tagged = plain.clone();
    frame::tag(&mut tagged, 5);
    assert_eq!(tagged[12..16], [0x81, 0, 5 << 5, 0]);
    assert_eq!([&tagged[..12], &tagged[16..]].concat(), plain);
}

#[test]
fn a_notification_is_laid_out_as_802_1q_has_it() {
    let mut bytes = vec![0xff; 7];
    let notification = Notification {
        source: HostId(258),
        queue: QueueKey {
            destination: HostId(3),
            priority: 6,
            path: 0,
        },
        port: PortId(0x0001_0203),
        feedback: Feedback {
            fb: 42,
            q_off: 100,
            q_delta: -2,
        },
    };
    frame::cnm(&mut bytes, &notification);
    let expected = [
        &[0x02, b'S', b'G', 0, 1, 2][..],
        &[0x02, b'S', b'P', 1, 2, 3],
        &[0x22, 0xe7],
        &[0, 42],
        &[0x02, b'S', b'P', 1, 2, 3, 0, 6],
        &[0xff, 0x9c], // -100: the standard counts what is left to Qeq
        &[0xff, 0xfe],
        &[6 << 5, 0],
        &[0x02, b'S', b'G', 0, 0, 3],
        &[0; 2],
    ]
    .concat();
    assert_eq!(bytes[..expected.len()], expected);
    assert_eq!(bytes.len(), 60);
}

#[test]
fn datagrams_are_read_by_wireshark() {
    for (ip, fields) in [("4", "ip.checksum.status"), ("6", "ipv6.plen")] {
        let scenario = format!(
            "warmup = '0s'\nduration = '20ms'\n[network]\ntopology = 'dumbbell'\npairs = 1\nip = {ip}\n\
            [traffic.u]\nkind = 'datagrams'\nburst = '5001B'\ninterval = '2ms'\narrivals = 'fixed'\nbytes = '1000B'\n"
        );
        let directory = capture_of(&scenario, &format!("datagrams{ip}"), &["s1"], 65_535);
        let file = directory.join("base/s1.pcapng");
        let rows = tshark(
            &file,
            "udp.dstport == 10000",
            &["udp.checksum.status", "udp.length", "_ws.malformed", fields],
        );
        // Bursts of five datagrams and a byte.
        assert_eq!(rows.len(), 60);
        assert_eq!(rows.len(), count(&file, "frame"));
        for (number, row) in rows.iter().enumerate() {
            let length = if number % 6 == 5 { 9 } else { 1_008 };
            let field = if ip == "4" { 1 } else { length };
            assert_eq!(row, &["1", &length.to_string(), "", &field.to_string()]);
        }
    }
}
