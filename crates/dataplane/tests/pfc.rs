//! Flow control by priority over a cable, between two switches that are processes of their own, and
//! with a peer of the test.

use std::{
    fs,
    io::Read,
    net::Shutdown,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use common::{
    Guest, PATIENCE, PLAIN, SIZE, WAITS, cables::Place, frame, introduce, mac, number, until,
};
use serde_json::{Value, json};
use sluicegate_dataplane::{
    capture::Asked,
    config::Config,
    control::{self, Ask},
    offload::Work,
    service::Service,
    shm::end::End,
};
use sluicegate_pfc::{PRIORITIES, PfcFrame};

use crate::common;

/// Keys of a cable's port.
const PFC: &str = "trunk = [5]\npriority = \"tag\"\npfc = true\n";

/// A switch, as a process; killed when dropped. The cable is its last port.
struct Switch {
    socket: PathBuf,
    file: PathBuf,
    child: Child,
}

impl Switch {
    /// With guests of these priorities.
    fn start(place: &Place, name: &str, guests: &[(&str, u8)], switch: &str, cable: &str) -> Self {
        let names: Vec<_> = guests.iter().map(|guest| guest.0).collect();
        let mut text = place.text(name, &names, &format!("{PFC}{cable}"));
        let head = format!("[switch]\nlossless = [3]\nqueue = 64\n{switch}\n");
        text = text.replace("[switch]\n", &head);
        if switch.contains("stall_limit") {
            text = text.replace(WAITS, "");
        }
        let thread = match switch.contains("threads") {
            true => "thread = 0\n",
            false => "",
        };
        for (name, priority) in guests {
            let port = format!("name = \"{name}\"\n");
            let keys = format!("vlan = 5\npriority = {priority}\n{thread}");
            text = text.replace(&port, &format!("{port}{keys}"));
        }
        let socket = place.at(name);
        let file = socket.with_extension("toml");
        fs::write(&file, text).expect("a file");
        let child = Self::run(&file, &[]);
        let switch = Self {
            socket,
            file,
            child,
        };
        until("a switch", || {
            control::ask(&switch.socket, Ask::Show).is_ok()
        });
        switch
    }

    fn run(file: &Path, arguments: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_test-switch"));
        let command = command.arg(file).args(arguments);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().expect("a switch")
    }

    /// Another process takes over.
    fn replace(&mut self) {
        let next = Self::run(&self.file, &["--take-over"]);
        let mut old = std::mem::replace(&mut self.child, next);
        assert!(old.wait().expect("it ends").success());
    }

    fn ask(&self, ask: Ask) -> Vec<Value> {
        let answer = control::ask(&self.socket, ask).expect("an answer");
        answer.as_array().expect("a list").clone()
    }

    fn cable(&self) -> Value {
        self.ask(Ask::Ports).pop().expect("a port")
    }

    fn until_up(&self) {
        until("a cable", || self.cable()["up"] == true);
    }

    /// What it says of the flow control of its cable.
    fn pfc(&self) -> Value {
        self.cable()["pfc"].clone()
    }

    /// Frames dropped at any port for a reason.
    fn drops(&self, reason: &str) -> u64 {
        let ports = self.ask(Ask::Drops);
        let drops = ports.iter().map(|port| &port["drops"][reason]);
        drops.map(|count| count.as_u64().expect("a count")).sum()
    }

    fn dropped(&self) -> u64 {
        let ports = self.ask(Ask::Ports);
        let drops = ports.iter().map(|port| port["dropped"].as_u64());
        drops.map(|count| count.expect("a count")).sum()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two switches: `a` (priority 3) and `c` (priority 1) at the left one, `b` and `d` at the right.
fn pair(place: &Place) -> ([Switch; 2], [Guest; 4]) {
    // Pauses take 34 ms: a process that has to wait for a CPU repeats them in time.
    let rate = "rate = \"1Gbit\"";
    let left = Switch::start(place, "left", &[("a", 3), ("c", 1)], "", rate);
    let guests = [("b", 3), ("d", 1)];
    let right = Switch::start(
        place,
        "right",
        &guests,
        "",
        &format!("listen = false\n{rate}"),
    );
    left.until_up();
    right.until_up();
    let mut guests = ["a", "c", "b", "d"].map(|name| place.guest(name, PLAIN));
    let [a, c, b, d] = &mut guests;
    introduce(&mut [(a, 1), (c, 2), (b, 3), (d, 4)]);
    ([left, right], guests)
}

#[test]
fn switches_with_other_priorities_have_no_cable_and_both_say_which_side_has_what() {
    let place = Place::new();
    let left = Switch::start(&place, "left", &[], "", "");
    let file = place.at("right").with_extension("toml");
    let text = place.text("right", &[], &format!("{PFC}listen = false\n"));
    fs::write(
        &file,
        text.replace("[switch]\n", "[switch]\nlossless = [3, 4]\n"),
    )
    .expect("a file");
    let right = Switch {
        socket: place.at("right"),
        child: Switch::run(&file, &[]),
        file,
    };
    let says = |switch: &Switch, why: &str| match control::ask(&switch.socket, Ask::Ports) {
        Ok(ports) => ports[0]["closed"]
            .as_str()
            .is_some_and(|told| told.ends_with(why)),
        Err(_) => false,
    };
    let why = "pfc differs: priorities 3 where it listens, 3 4 where it connects";
    until("a reason where it listens", || says(&left, why));
    until("a reason where it connects", || says(&right, why));
    assert_eq!(
        (&left.cable()["up"], &right.cable()["up"]),
        (&json!(false), &json!(false))
    );
}

/// Sends frames from `sent` on as long as they go, until none has gone for a while.
fn fill(guest: &mut Guest, to: u8, from: u8, mut sent: u64) -> u64 {
    let mut idle = Instant::now();
    while idle.elapsed() < Duration::from_secs(1) {
        if guest.send(&frame(mac(to), mac(from), sent, 60)) {
            sent += 1;
            idle = Instant::now();
        } else {
            thread::yield_now();
        }
    }
    sent
}

fn count(value: &Value) -> u64 {
    value.as_u64().expect("a count")
}

#[test]
fn a_paused_priority_waits_and_others_pass() {
    let place = Place::new();
    let ([left, right], [mut a, mut c, mut b, mut d]) = pair(&place);
    // What `b` does not take fills its ring, then the cable up to XOFF, then the ring of `a`.
    let sent = fill(&mut a, 3, 1, 0);
    until("a pause", || left.pfc()["paused"] == json!([3]));
    let (paused, asked) = (left.pfc(), right.pfc());
    assert_eq!(
        (&paused["paused"], &asked["asked"]),
        (&json!([3]), &json!([3]))
    );
    let (most, xoff) = (
        count(&asked["most_held_bytes"]),
        count(&asked["xoff_bytes"]),
    );
    assert!(most > xoff && most <= xoff + count(&asked["headroom_bytes"]));
    let ring = u64::from(SIZE);
    assert_eq!(sent, ring + most / 2048 + ring);
    // A pause is repeated before it ends: 65535 quanta at 1 Gbit/s are 34 ms.
    assert!(count(&paused["frames_received"]) > 10, "{paused}");
    // The lossy priority passes, in both directions.
    for number_of in 0..3000 {
        until("room", || c.send(&frame(mac(4), mac(2), number_of, 60)));
        assert_eq!(number(&d.expect()), (2, number_of));
        until("room", || d.send(&frame(mac(2), mac(4), number_of, 60)));
        assert_eq!(number(&c.expect()), (4, number_of));
    }
    let queues = left.ask(Ask::Queues);
    let waiting = queues.iter().find(|queue| queue["receiver"] == "cable");
    assert_eq!(waiting.expect("it waits")["stopped"], json!([3]));
    // Each frame comes once and in its order.
    for count in 0..sent {
        assert_eq!(number(&b.expect()), (1, count));
    }
    until("an end of the pause", || left.pfc()["paused"] == json!([]));
    let paused_ns = left.pfc()["paused_ns"].clone();
    assert!(count(&paused_ns[3]) > 300_000_000 && count(&paused_ns[1]) == 0);
    // Pauses are no frames of tenants.
    let counts = |switch: &Switch, key: &str| count(&switch.cable()[key]);
    assert_eq!(
        counts(&right, "received_frames"),
        counts(&left, "delivered_frames")
    );
    assert_eq!(
        counts(&left, "received_frames"),
        counts(&right, "delivered_frames")
    );
    assert_eq!([left.dropped(), right.dropped()], [0, 0]);
    let addresses = [&left, &right].map(|switch| switch.ask(Ask::Addresses).len());
    assert_eq!(addresses, [4, 4]);
}

#[test]
fn frames_flow_while_priorities_are_paused_and_resumed() {
    let place = Place::new();
    let ([left, right], [mut a, mut c, mut b, mut d]) = pair(&place);
    let (mut sent, mut received, mut lossy) = (0, 0, 0);
    for _ in 0..20 {
        until("a pause", || {
            while a.send(&frame(mac(3), mac(1), sent, 60)) {
                sent += 1;
            }
            a.room() == 0 && left.pfc()["paused"] == json!([3])
        });
        for _ in 0..10 {
            until("room", || c.send(&frame(mac(4), mac(2), lossy, 60)));
            assert_eq!(number(&d.expect()), (2, lossy));
            lossy += 1;
        }
        // Frames go on to come while those that waited are taken.
        let last = sent + 1000;
        until("all frames", || {
            while sent < last && a.send(&frame(mac(3), mac(1), sent, 60)) {
                sent += 1;
            }
            while let Some((_, bytes)) = b.receive() {
                assert_eq!(number(&bytes), (1, received));
                received += 1;
            }
            received == last
        });
    }
    assert!(count(&right.pfc()["frames_sent"]) >= 40);
    assert_eq!([left.dropped(), right.dropped()], [0, 0]);
}

#[test]
fn an_upgrade_of_either_side_keeps_pauses_and_frames() {
    let place = Place::new();
    let ([mut left, mut right], [mut a, mut c, mut b, mut d]) = pair(&place);
    let sent = fill(&mut a, 3, 1, 0);
    for _ in 0..2 {
        left.replace();
        until("a successor", || {
            control::ask(&left.socket, Ask::Show).is_ok()
        });
        assert!(count(&left.pfc()["frames_received"]) > 0);
        right.replace();
        until("a successor", || {
            control::ask(&right.socket, Ask::Show).is_ok()
        });
        until("lossy frames", || c.send(&frame(mac(4), mac(2), 7, 60)));
        assert_eq!(number(&d.expect()), (2, 7));
    }
    let more = fill(&mut a, 3, 1, sent);
    until("a pause", || left.pfc()["paused"] == json!([3]));
    for count in 0..more {
        assert_eq!(number(&b.expect()), (1, count));
    }
    until("an end of the pause", || left.pfc()["paused"] == json!([]));
    assert_eq!([left.dropped(), right.dropped()], [0, 0]);
}

/// A pause of priorities, as bytes.
fn pause(enabled: u8, quanta: u16) -> [u8; 60] {
    let frame = PfcFrame {
        enabled,
        quanta: [quanta; PRIORITIES],
    };
    frame.bytes(mac(9))
}

/// A frame with a tag of VLAN 5.
fn tagged(frame: &[u8], priority: u16) -> Vec<u8> {
    let [high, low] = (priority << 13 | 5).to_be_bytes();
    [&frame[..12], &[0x81, 0, high, low], &frame[12..]].concat()
}

fn receive(end: &mut End) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let received = end.receive(&mut bytes).expect("a switch");
    received.map(|_| bytes)
}

#[test]
fn a_peer_that_pauses_for_ever_stops_its_own_port_and_no_other() {
    let place = Place::new();
    let guests = [("a", 3), ("c", 1), ("b", 3)];
    // At this rate the longest pause takes 3.4 s.
    let (limit, rate) = ("stall_limit = \"500ms\"", "rate = \"10Mbit\"");
    let switch = Switch::start(&place, "left", &guests, limit, rate);
    let mut end = place.end();
    switch.until_up();
    let [mut a, mut c, mut b] = ["a", "c", "b"].map(|name| place.guest(name, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut c, 2), (&mut b, 3)]);
    let hello = tagged(&frame([0xff; 6], mac(9), 0, 60), 3);
    assert_eq!(end.send(&hello, Work::default()), Ok(true));
    for guest in [&mut a, &mut c, &mut b] {
        assert_eq!(number(&guest.expect()).0, 9);
    }
    while receive(&mut end).is_some() {}
    let for_ever = pause(0xff, u16::MAX);
    assert_eq!(end.send(&for_ever, Work::default()), Ok(true));
    until("a pause", || switch.pfc()["paused"] == json!([3]));
    let start = Instant::now();
    let (mut to_b, mut to_peer, mut lossy) = (0, 0, 0);
    while start.elapsed() < Duration::from_secs(2) || switch.drops("stalled") < 100 {
        assert!(start.elapsed() < PATIENCE, "{to_peer} frames for the peer");
        // All priorities, the lossy ones too, again and again.
        assert_eq!(end.send(&for_ever, Work::default()), Ok(true));
        if to_peer < 100 && a.send(&frame(mac(9), mac(1), to_peer, 60)) {
            to_peer += 1;
        }
        until("room", || a.send(&frame(mac(3), mac(1), to_b, 60)));
        assert_eq!(number(&b.expect()), (1, to_b));
        to_b += 1;
        until("room", || c.send(&frame(mac(9), mac(2), lossy, 60)));
        until("a lossy frame", || {
            receive(&mut end).is_some_and(|bytes| {
                // Priority 1 is lossy here: it cannot be paused.
                assert_eq!(bytes[14] >> 5, 1);
                true
            })
        });
        lossy += 1;
    }
    let pfc = switch.pfc();
    assert_eq!(
        (&pfc["paused"], &pfc["stopped"]),
        (&json!([3]), &json!([3]))
    );
    // What waited for longer than the operator allows was dropped, and counted.
    assert_eq!((to_peer, switch.drops("stalled")), (100, 100));
    // Its pauses end with the peer.
    assert_eq!(end.send(&pause(0xff, 0), Work::default()), Ok(true));
    until("an end", || switch.pfc()["paused"] == json!([]));
    until("room", || a.send(&frame(mac(9), mac(1), 5, 60)));
    until("a frame", || {
        receive(&mut end).is_some_and(|bytes| bytes[14] >> 5 == 3)
    });
    assert_eq!(switch.dropped(), 100);
}

#[test]
fn a_paused_priority_of_another_threads_port_lets_others_pass() {
    let place = Place::new();
    // Together the first two have more than one thread gives the other credit for.
    let guests = [("a", 3), ("b", 3), ("c", 1)];
    let cable = "rate = \"10Mbit\"\nthread = 1";
    let switch = Switch::start(&place, "left", &guests, "threads = 2", cable);
    let mut end = place.end();
    switch.until_up();
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|name| place.guest(name, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut b, 2), (&mut c, 3)]);
    let hello = tagged(&frame([0xff; 6], mac(9), 0, 60), 3);
    assert_eq!(end.send(&hello, Work::default()), Ok(true));
    for guest in [&mut a, &mut b, &mut c] {
        assert_eq!(number(&guest.expect()).0, 9);
    }
    while receive(&mut end).is_some() {}
    let for_ever = pause(0xff, u16::MAX);
    assert_eq!(end.send(&for_ever, Work::default()), Ok(true));
    until("a pause", || switch.pfc()["paused"] == json!([3]));
    let sent = [(&mut a, 1), (&mut b, 2)].map(|(guest, from)| {
        assert_eq!(end.send(&for_ever, Work::default()), Ok(true));
        fill(guest, 9, from, 0)
    });
    assert!(sent[0] + sent[1] > 256, "{sent:?}");
    for lossy in 0..500 {
        assert_eq!(end.send(&for_ever, Work::default()), Ok(true));
        until("room", || c.send(&frame(mac(9), mac(3), lossy, 60)));
        until("a lossy frame", || {
            receive(&mut end).is_some_and(|bytes| {
                assert_eq!(bytes[14] >> 5, 1);
                true
            })
        });
    }
    assert_eq!(end.send(&pause(0xff, 0), Work::default()), Ok(true));
    for _ in 0..sent[0] + sent[1] {
        until("a frame", || {
            receive(&mut end).is_some_and(|bytes| bytes[14] >> 5 == 3)
        });
    }
    assert_eq!(switch.dropped(), 0);
}

#[test]
fn control_frames_are_for_the_port_alone() {
    let place = Place::new();
    let guests = [("a", 3), ("c", 1)];
    let switch = Switch::start(&place, "left", &guests, "", "");
    let mut end = place.end();
    switch.until_up();
    let [mut a, mut c] = ["a", "c"].map(|name| place.guest(name, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut c, 2)]);
    while receive(&mut end).is_some() {}
    let known = switch.ask(Ask::Addresses).len();
    // A guest's pauses reach nobody, neither as they are, nor as other frames, nor with a tag.
    assert!(a.send(&pause(0xff, u16::MAX)));
    let mut to_one = pause(0xff, u16::MAX);
    to_one[..6].copy_from_slice(&mac(2));
    assert!(a.send(&to_one));
    let mut other = frame(mac(2), mac(1), 1, 60);
    other[..6].copy_from_slice(&sluicegate_pfc::frame::DESTINATION);
    assert!(a.send(&other));
    until("three drops", || switch.drops("control") == 3);
    // The peer's: one that is tagged is none, and a PAUSE of all priorities is not obeyed.
    let send = |end: &mut End, frame: &[u8]| assert_eq!(end.send(frame, Work::default()), Ok(true));
    let mut plain_pause = pause(0, 0);
    plain_pause[15] = 1;
    plain_pause[14] = 0;
    send(&mut end, &plain_pause);
    send(&mut end, &tagged(&pause(0xff, u16::MAX), 3));
    until("two drops more", || switch.drops("control") == 5);
    // Malformed ones are counted.
    let mut reserved = pause(0xff, u16::MAX);
    reserved[16] = 1;
    send(&mut end, &reserved);
    send(&mut end, &pause(0xff, u16::MAX)[..30]);
    until("two counts", || switch.pfc()["frames_malformed"] == 2);
    let pfc = switch.pfc();
    assert_eq!(
        (&pfc["paused"], &pfc["frames_received"]),
        (&json!([]), &json!(0))
    );
    assert_eq!(switch.ask(Ask::Addresses).len(), known);
    assert!(c.receive().is_none() && receive(&mut end).is_none());
}

#[test]
fn captures_show_pauses_as_wireshark_knows_them() {
    let place = Place::new();
    let ([left, right], [mut a, _c, mut b, _d]) = pair(&place);
    let captures = [&left, &right].map(|switch| {
        let asked = Asked {
            ports: vec!["cable".to_owned()],
            mac: Some("01:80:c2:00:00:01".to_owned()),
            ..Asked::default()
        };
        control::capture(&switch.socket, asked)
            .expect("a capture")
            .1
    });
    let sent = fill(&mut a, 3, 1, 0);
    for count in 0..sent {
        assert_eq!(number(&b.expect()), (1, count));
    }
    until("an end of the pause", || left.pfc()["paused"] == json!([]));
    until("all frames", || {
        left.pfc()["frames_received"] == right.pfc()["frames_sent"]
    });
    let frames = captures.map(|mut capture| {
        let _ = capture.get_ref().shutdown(Shutdown::Write);
        let mut bytes = Vec::new();
        capture.read_to_end(&mut bytes).expect("a file");
        let path = left.socket.with_extension("pcapng");
        fs::write(&path, bytes).expect("written");
        tshark(&path)
    });
    // What one side has sent the other has got: pauses of priority 3, and an end at last.
    assert!(frames[0] == frames[1] && frames[0].len() > 10);
    let [pauses, ends] = ["65535", "0"].map(|quanta| {
        let row = ["0x8808", "0x0101", "1", quanta, "0"].map(str::to_owned);
        frames[0].iter().filter(|it| it[..] == row).count()
    });
    assert_eq!(pauses + ends, frames[0].len());
    assert!(pauses > 10 && (1..pauses).contains(&ends));
    assert!(frames[0][0][3] == "65535" && frames[0][frames[0].len() - 1][3] == "0");
}

/// Wireshark's reading of pauses: EtherType, opcode, whether priority 3 is named and for how many
/// quanta, whether priority 1 is named.
fn tshark(file: &Path) -> Vec<Vec<String>> {
    let fields = [
        "eth.type",
        "macc.opcode",
        "macc.cbfc.enbv.c3",
        "macc.cbfc.pause_time.c3",
    ];
    let fields = fields.into_iter().chain(["macc.cbfc.enbv.c1"]);
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-T", "fields"]);
    let output = command
        .args(fields.flat_map(|field| ["-e", field]))
        .output();
    let output = output.expect("tshark is installed (Debian: apt-get install tshark)");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    let flag = |field: &str| match field {
        "True" => "1".to_owned(),
        "False" => "0".to_owned(),
        other => other.to_owned(),
    };
    let rows = text
        .lines()
        .map(|line| line.split('\t').map(flag).collect());
    rows.collect()
}

#[test]
fn an_adapter_without_dcb_is_refused_by_name() {
    let place = Place::new();
    let text = place.text("left", &["a"], "ring = 64");
    let text = text.replace("[switch]\n", "[switch]\nlossless = [3]\n");
    let text = text + "[[adapter]]\ninterface = \"lo\"\npfc = true\n";
    let config = Config::parse("switch.toml", &text).expect("a file");
    let error = Service::start(config).err().expect("the loopback has none");
    assert!(
        error.to_string().starts_with("interface lo has no DCB"),
        "{error}"
    );
    assert!(!place.at("a").exists());
    // Without `pfc` nothing is set, and the switch says what the interface has.
    let file = place.at("left").with_extension("toml");
    fs::write(&file, text.replace("pfc = true", "")).expect("a file");
    let switch = Switch {
        socket: place.at("left"),
        child: Switch::run(&file, &[]),
        file,
    };
    until("a switch", || {
        control::ask(&switch.socket, Ask::Show).is_ok()
    });
    let shown = control::ask(&switch.socket, Ask::Show).expect("an answer");
    let about = &shown["interfaces"][0];
    assert_eq!(
        (&about["interface"], &about["dcb"]),
        (&json!("lo"), &Value::Null)
    );
    assert!(
        about["lossless"]
            .as_str()
            .is_some_and(|it| it.starts_with("no DCB"))
    );
}
