//! Captures of what passes a switch, read by a parser of others.

use std::{
    collections::BTreeMap,
    io::Read,
    net::Shutdown,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::{Bench, Guest, LINUX, PATIENCE, PLAIN, frame, introduce, mac, number, segment, until};
use pcap_parser::{
    Block, PcapBlockOwned, PcapNGReader,
    traits::{PcapNGPacketBlock, PcapReaderIterator},
};
use sluicegate_dataplane::{
    capture::{Asked, CAPTURES_MAX, Point, ROOM},
    config::Config,
    control::{self, Captured},
};

use crate::common;

/// A frame in a file.
#[derive(Debug)]
struct Record {
    interface: String,
    time_ns: u64,
    /// 1: it came from the port; 2: it went there.
    direction: u32,
    comment: Option<String>,
    wire_bytes: u32,
    bytes: Vec<u8>,
}

/// A file.
#[derive(Debug, Default)]
struct File {
    interfaces: Vec<String>,
    frames: Vec<Record>,
    /// By interface, frames that were wanted and of them those that are missing.
    counts: BTreeMap<String, (u64, u64)>,
}

impl File {
    fn parse(bytes: &[u8]) -> Self {
        let mut file = Self::default();
        let mut reader = PcapNGReader::new(1 << 20, bytes).expect("a section");
        let (mut read, mut before) = (0, usize::MAX);
        while read < bytes.len() {
            match reader.next() {
                Ok((length, block)) => {
                    let PcapBlockOwned::NG(block) = block else {
                        panic!("no pcapng");
                    };
                    file.add(block);
                    read += length;
                    reader.consume(length);
                }
                Err(error) => {
                    assert_ne!(before, read, "{error:?}");
                    before = read;
                    reader.refill().expect("memory");
                }
            }
        }
        file
    }

    fn add(&mut self, block: Block<'_>) {
        match block {
            Block::InterfaceDescription(it) => {
                assert_eq!(it.if_tsresol, 9);
                let name = it.options.iter().find(|option| option.code.0 == 2);
                let name = name.expect("a name").as_str().expect("text");
                self.interfaces.push(name.to_owned());
            }
            Block::EnhancedPacket(it) => {
                let option = |code: u16| it.options.iter().find(|option| option.code.0 == code);
                self.frames.push(Record {
                    interface: self.interfaces[it.if_id as usize].clone(),
                    time_ns: u64::from(it.ts_high) << 32 | u64::from(it.ts_low),
                    direction: option(2).expect("flags").as_u32_le().expect("four bytes"),
                    comment: option(1).map(|it| it.as_str().expect("text").to_owned()),
                    wire_bytes: it.origlen,
                    bytes: it.packet_data().to_vec(),
                });
            }
            Block::InterfaceStatistics(it) => {
                let option = |code: u16| it.options.iter().find(|option| option.code.0 == code);
                let count = |code| option(code).expect("it").as_u64_le().expect("a count");
                let name = self.interfaces[it.if_id as usize].clone();
                self.counts.insert(name, (count(4), count(5)));
            }
            _ => {}
        }
    }

    /// The frames of an interface.
    fn at(&self, interface: &str) -> Vec<&Record> {
        let frames = self.frames.iter();
        frames.filter(|it| it.interface == interface).collect()
    }

    fn lost(&self) -> u64 {
        self.counts.values().map(|count| count.1).sum()
    }
}

/// A switch with a control socket.
fn bench(switch: &str, ports: &[(&str, &str)]) -> Bench {
    let bench = Bench::new(switch, ports);
    let socket = bench.directory.join("switch.sock");
    control::serve(&socket, "none".into(), Arc::clone(&bench.service)).expect("it answers");
    bench
}

fn begin(bench: &Bench, asked: Asked) -> Captured {
    ask(&bench.directory, asked).expect("a capture").1
}

fn ask(directory: &Path, asked: Asked) -> anyhow::Result<(Vec<String>, Captured)> {
    control::capture(&directory.join("switch.sock"), asked)
}

/// What comes until the switch closes the connection.
fn rest(mut capture: Captured) -> File {
    let patience = capture.get_ref().set_read_timeout(Some(PATIENCE));
    patience.expect("a timeout");
    let mut bytes = Vec::new();
    capture.read_to_end(&mut bytes).expect("the end of a file");
    File::parse(&bytes)
}

/// The file of a client that wants no more.
fn end(capture: Captured) -> File {
    capture.get_ref().shutdown(Shutdown::Write).expect("shut");
    rest(capture)
}

fn is_captured(bench: &Bench) -> bool {
    bench.ask(|worker| worker.engine.is_captured())
}

fn talk(from: &mut Guest, to: &mut Guest, ends: [u8; 2], numbers: std::ops::Range<u64>) {
    for number in numbers {
        let bytes = 60 + number as usize % 1400;
        let sent = frame(mac(ends[1]), mac(ends[0]), number, bytes);
        until("room", || from.send(&sent));
        assert_eq!(to.expect(), sent);
    }
}

#[test]
fn every_frame_is_at_both_points_once_and_in_order() {
    let bench = bench("", &[("a", ""), ("b", ""), ("c", "")]);
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut b, 2), (&mut c, 3)]);
    let (points, capture) = ask(&bench.directory, Asked::default()).expect("a capture");
    let all = ["a", "b", "c"].map(|port| ["in", "out", "drop"].map(|it| format!("{port} {it}")));
    assert_eq!(points, all.concat());
    talk(&mut a, &mut b, [1, 2], 0..1000);
    talk(&mut b, &mut a, [2, 1], 5000..5500);
    let file = end(capture);
    assert_eq!(file.interfaces, points);
    assert_eq!(file.frames.len(), 2 * 1500);
    assert!(file.frames.is_sorted_by_key(|it| it.time_ns));
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("now");
    let age_ns = now.as_nanos() as u64 - file.frames[0].time_ns;
    assert!(age_ns < 600_000_000_000, "{age_ns}");
    for (interface, direction, numbers) in [
        ("a in", 1, 0..1000),
        ("b out", 2, 0..1000),
        ("b in", 1, 5000..5500),
        ("a out", 2, 5000..5500),
    ] {
        let frames = file.at(interface);
        let found: Vec<u64> = frames.iter().map(|it| number(&it.bytes).1).collect();
        assert_eq!(found, numbers.collect::<Vec<_>>(), "{interface}");
        for it in frames {
            assert_eq!(it.bytes.len(), 60 + number(&it.bytes).1 as usize % 1400);
            assert_eq!(
                (it.wire_bytes as usize, it.direction),
                (it.bytes.len(), direction)
            );
            assert_eq!(it.comment, None);
        }
        let count = found.len() as u64;
        assert_eq!(file.counts[interface], (count, 0));
    }
    assert_eq!(file.counts.len(), 9);
    assert!(!is_captured(&bench));
}

#[test]
fn drops_say_why_and_a_filter_leaves_others_out() {
    let ports = [("a", "macs = [\"02:00:00:00:00:01\"]"), ("b", "")];
    let bench = bench("lossless = false\nqueue = 10", &ports);
    let [mut a, mut b] = ["a", "b"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut b, 2)]);
    let drops = begin(
        &bench,
        Asked {
            points: vec![Point::Drop],
            ..Asked::default()
        },
    );
    let of_one = begin(
        &bench,
        Asked {
            mac: Some("02:00:00:00:00:09".to_owned()),
            ..Asked::default()
        },
    );
    assert!(a.send(&frame(mac(2), mac(9), 1, 60)));
    for number in 0..300 {
        until("room", || a.send(&frame(mac(2), mac(1), number, 60)));
    }
    until("all sent", || a.room() == usize::from(common::SIZE));
    assert_eq!(b.drain().len(), 266);
    let (drops, of_one) = (end(drops), end(of_one));
    assert_eq!(drops.interfaces, ["a drop", "b drop"]);
    let [forged] = drops.at("a drop")[..] else {
        panic!("{drops:?}");
    };
    assert_eq!((number(&forged.bytes), forged.direction), ((9, 1), 1));
    assert_eq!(forged.comment.as_deref(), Some("forged"));
    let full = drops.at("b drop");
    let numbers: Vec<_> = full.iter().map(|it| number(&it.bytes)).collect();
    assert_eq!(numbers, (266..300).map(|it| (1, it)).collect::<Vec<_>>());
    assert!(full.iter().all(|it| it.direction == 2));
    assert!(full.iter().all(|it| it.comment.as_deref() == Some("full")));
    let seen: Vec<_> = of_one.frames.iter().map(|it| &it.interface[..]).collect();
    assert_eq!(seen, ["a in", "a drop"]);
}

#[test]
fn a_segment_is_one_frame_until_it_is_cut() {
    let bench = bench("", &[("a", ""), ("b", ""), ("plain", "")]);
    let [mut a, mut b] = ["a", "b"].map(|port| bench.guest(port, LINUX));
    let mut plain = bench.guest("plain", PLAIN);
    introduce(&mut [(&mut a, 1), (&mut b, 2), (&mut plain, 3)]);
    let whole = begin(&bench, Asked::default());
    let heads = begin(
        &bench,
        Asked {
            snaplen: 1000,
            ..Asked::default()
        },
    );
    let (to_b, header) = segment(mac(2), mac(1), 30_000);
    a.send_long(header, &to_b);
    assert_eq!(b.expect(), to_b);
    let (to_plain, header) = segment(mac(3), mac(1), 30_000);
    a.send_long(header, &to_plain);
    let cut: Vec<_> = (0..22).map(|_| plain.expect()).collect();
    let (whole, heads) = (end(whole), end(heads));
    let bytes = |interface| whole.at(interface).into_iter().map(|it| it.bytes.clone());
    assert_eq!(bytes("a in").collect::<Vec<_>>(), [to_b.clone(), to_plain]);
    assert_eq!(bytes("b out").collect::<Vec<_>>(), [to_b]);
    assert_eq!(bytes("plain out").collect::<Vec<_>>(), cut);
    assert_eq!(heads.frames.len(), whole.frames.len());
    for (head, whole) in heads.frames.iter().zip(&whole.frames) {
        assert_eq!(head.wire_bytes as usize, whole.bytes.len());
        assert_eq!(head.bytes, whole.bytes[..whole.bytes.len().min(1000)]);
    }
}

#[test]
fn a_client_that_reads_nothing_stalls_nobody_and_hears_what_it_missed() {
    let bench = bench("", &[("a", ""), ("b", "")]);
    let [mut a, mut b] = ["a", "b"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut b, 2)]);
    let slow = begin(&bench, Asked::default());
    let quick = begin(
        &bench,
        Asked {
            points: vec![Point::In],
            snaplen: 60,
            ..Asked::default()
        },
    );
    let quick = thread::spawn(move || rest(quick));
    let hung = begin(&bench, Asked::default());
    let count = 2 * ROOM as u64 / 1500;
    for number in 0..count {
        let sent = frame(mac(2), mac(1), number, 1500);
        until("room", || a.send(&sent));
        assert_eq!(b.expect(), sent);
    }
    assert_eq!(bench.dropped(), 0);
    let slow = end(slow);
    assert_eq!(slow.frames.len() as u64 + slow.lost(), 2 * count);
    assert!(slow.lost() > count / 4, "{} lost", slow.lost());
    for interface in ["a in", "b out"] {
        let kept = slow.at(interface);
        let numbers: Vec<u64> = kept.iter().map(|it| number(&it.bytes).1).collect();
        assert!(numbers.is_sorted_by(|one, next| one < next));
        let lost = count - numbers.len() as u64;
        assert_eq!(slow.counts[interface], (count, lost));
    }
    // One that is gone without a word is forgotten, and the quick one has missed nothing.
    drop(hung);
    bench.service.end();
    let quick = quick.join().expect("a file");
    assert_eq!(quick.frames.len() as u64, count);
}

#[test]
fn clients_that_go_leave_nothing_behind() {
    let bench = bench("", &[("a", ""), ("b", "")]);
    let [mut a, mut b] = ["a", "b"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut b, 2)]);
    let captures: Vec<_> = (0..CAPTURES_MAX)
        .map(|_| begin(&bench, Asked::default()))
        .collect();
    let refused = ask(&bench.directory, Asked::default()).expect_err("too many");
    assert!(refused.to_string().contains("end one"), "{refused}");
    talk(&mut a, &mut b, [1, 2], 0..100);
    drop(captures);
    until("their end", || !is_captured(&bench));
    talk(&mut a, &mut b, [1, 2], 100..200);
    assert!(end(begin(&bench, Asked::default())).frames.is_empty());
}

#[test]
fn a_capture_ends_by_count_or_time_and_outlives_its_port() {
    let bench = bench("", &[("a", ""), ("b", ""), ("c", "")]);
    let [mut a, mut b] = ["a", "b"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut b, 2)]);
    let only = |asked: Asked| Asked {
        ports: vec!["a".to_owned()],
        ..asked
    };
    let counted = begin(
        &bench,
        only(Asked {
            count: Some(7),
            ..Asked::default()
        }),
    );
    let start = Instant::now();
    let lasts = Duration::from_millis(200);
    let timed = begin(
        &bench,
        only(Asked {
            duration_ns: Some(lasts.as_nanos() as u64),
            ..Asked::default()
        }),
    );
    let open = begin(&bench, only(Asked::default()));
    talk(&mut a, &mut b, [1, 2], 0..20);
    let counted = rest(counted);
    let numbers: Vec<_> = counted
        .frames
        .iter()
        .map(|it| number(&it.bytes).1)
        .collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(counted.counts["a in"], (7, 0));
    let timed = rest(timed);
    assert_eq!(timed.counts["a in"], (timed.frames.len() as u64, 0));
    assert!(start.elapsed() >= lasts);
    // Another port gets the number of the one that goes.
    let text = bench.text().replace("\"a\"", "\"again\"");
    let reload = Config::parse("test", &text).expect("a configuration");
    let reload = bench.service.reload(reload).expect("another port");
    assert_eq!(
        (&reload.removed[..], &reload.added[..]),
        (&["a".to_owned()][..], &["again".to_owned()][..])
    );
    let mut again = Guest::connect(&bench.directory.join("a.sock"), PLAIN);
    introduce(&mut [(&mut again, 1), (&mut b, 2)]);
    talk(&mut again, &mut b, [1, 2], 20..40);
    assert_eq!(end(open).frames.len(), 20);
}

#[test]
fn an_unknown_port_is_refused_with_a_suggestion() {
    let bench = bench("", &[("database", ""), ("web", "")]);
    let refused = |port: &str| {
        let asked = Asked {
            ports: vec!["web".to_owned(), port.to_owned()],
            ..Asked::default()
        };
        ask(&bench.directory, asked)
            .expect_err("refused")
            .to_string()
    };
    let near = refused("databse");
    assert_eq!(near, "no port \"databse\"; did you mean \"database\"?");
    let far = refused("x");
    assert_eq!(far, "no port \"x\"; there are database, web");
    let mac = Asked {
        mac: Some("nothing".to_owned()),
        ..Asked::default()
    };
    let mac = ask(&bench.directory, mac).expect_err("refused").to_string();
    assert!(mac.contains("'nothing' is no Ethernet address"), "{mac}");
    assert!(!is_captured(&bench));
}
