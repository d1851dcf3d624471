//! Cables of shared memory between two switches, and between a switch and a program.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use common::{
    Guest, LINUX, PLAIN, SIZE,
    cables::{Place, Switch, two},
    frame, introduce, mac, number, segment, until,
};
use sluicegate_dataplane::{
    config::Config,
    control::{self, Ask},
    count::Drop as Reason,
    offload::{Takes, Work},
    shm::end::{End, Ended},
};

use crate::common;

#[test]
fn frames_pass_a_cable_between_two_switches() {
    let (_place, switches, [mut a, mut b]) = two("");
    introduce(&mut [(&mut a, 1), (&mut b, 2)]);
    for count in 0..2000 {
        until("room", || a.send(&frame(mac(2), mac(1), count, 300)));
        assert_eq!(number(&b.expect()), (1, count));
        until("room", || b.send(&frame(mac(1), mac(2), count, 60)));
        assert_eq!(number(&a.expect()), (2, count));
    }
    assert_eq!(switches.map(|switch| switch.dropped()), [0, 0]);
}

#[test]
fn a_receiver_that_takes_nothing_stalls_its_senders_over_a_cable_and_nobody_else() {
    let place = Place::new();
    let left = place.switch("left", &["a", "c"], "");
    let right = place.switch("right", &["b", "d"], "listen = false");
    left.until_up(2);
    let [mut a, mut b, mut c, mut d] = ["a", "b", "c", "d"].map(|name| place.guest(name, PLAIN));
    let mut all = [(&mut a, 1), (&mut b, 2), (&mut c, 3), (&mut d, 4)];
    introduce(&mut all);
    // Those that wait keep their own buffers of the cable; others pass.
    for number in 0..700 {
        until("room", || a.send(&frame(mac(2), mac(1), number, 60)));
    }
    until("a full receiver", || {
        right.ask(|worker| worker.engine.waiting(0).1.is_some())
    });
    for count in 0..3000 {
        until("room", || c.send(&frame(mac(4), mac(3), count, 60)));
        assert_eq!(number(&d.expect()), (3, count));
    }
    // Now all buffers wait, and then the ring of the sender.
    let mut sent = 700;
    let mut idle = Instant::now();
    while idle.elapsed() < Duration::from_secs(1) {
        if a.send(&frame(mac(2), mac(1), sent, 60)) {
            sent += 1;
            idle = Instant::now();
        }
        thread::yield_now();
    }
    let ring = u64::from(SIZE);
    assert_eq!(sent, ring + 1024 + ring);
    assert_eq!(
        left.ask(|worker| worker.engine.waiting(2).0.clone()),
        [(0, ring as usize)]
    );
    // The other direction goes on.
    for count in 0..100 {
        until("room", || d.send(&frame(mac(3), mac(4), count, 60)));
        assert_eq!(number(&c.expect()), (4, count));
    }
    for count in 0..sent {
        assert_eq!(number(&b.expect()), (1, count));
    }
    assert_eq!([left.dropped(), right.dropped()], [0, 0]);
}

#[test]
fn a_segment_passes_a_cable_as_it_is_and_is_cut_where_it_must_be() {
    let place = Place::new();
    let left = place.switch("left", &["a"], "ring = 64");
    let right = place.switch("right", &["b", "plain"], "listen = false");
    left.until_up(1);
    let mut a = place.guest("a", LINUX);
    let [mut b, mut plain] =
        [("b", LINUX), ("plain", PLAIN)].map(|(name, features)| place.guest(name, features));
    introduce(&mut [(&mut a, 1), (&mut b, 2), (&mut plain, 3)]);
    for payload in [1500, 20_000, 64_000] {
        let (bytes, header) = segment(mac(2), mac(1), payload);
        a.send_long(header, &bytes);
        let mut received = None;
        until("a segment", || {
            received = b.receive();
            received.is_some()
        });
        let (with, whole) = received.expect("a segment");
        assert!(whole == bytes, "{payload} bytes");
        assert_eq!(with[..10], header[..10]);
    }
    let (bytes, header) = segment(mac(3), mac(1), 4200);
    a.send_long(header, &bytes);
    for _ in 0..3 {
        assert_eq!(plain.expect().len(), 54 + 1400);
    }
    assert_eq!([left.dropped(), right.dropped()], [0, 0]);
}

#[test]
fn a_program_sends_and_receives_by_a_cable() {
    let place = Place::new();
    let switch = place.switch("left", &["a"], "ring = 64");
    let mut a = place.guest("a", LINUX);
    let mut end = place.end();
    switch.until_up(1);
    assert_eq!(end.takes(), Takes::ALL);
    let wait = |end: &mut End| end.wait(Duration::from_secs(10)).expect("a switch");
    let mut bytes = Vec::new();
    let mut expect = |end: &mut End| {
        while end.receive(&mut bytes).expect("a switch").is_none() {
            wait(end);
        }
        bytes.clone()
    };
    for count in 0..500 {
        let sent = end.send(&frame(mac(1), mac(9), count, 100), Work::default());
        assert_eq!(sent, Ok(true));
        assert_eq!(number(&a.expect()), (9, count));
        until("room", || a.send(&frame(mac(9), mac(1), count, 1514)));
        assert_eq!(number(&expect(&mut end)), (1, count));
    }
    // It takes no segments and completes no checksums, so the switch does.
    let (segment, header) = segment(mac(9), mac(1), 4200);
    a.send_long(header, &segment);
    for _ in 0..3 {
        assert_eq!(expect(&mut end).len(), 54 + 1400);
    }
    // A guest that takes nothing stops the program, which sleeps until there is room.
    let mut sent = 0;
    loop {
        match end.send(&frame(mac(1), mac(9), sent, 60), Work::default()) {
            Ok(true) => sent += 1,
            Ok(false) if sent >= 64 + u64::from(SIZE) => break,
            Ok(false) => wait(&mut end),
            Err(ended) => panic!("{ended}"),
        }
    }
    assert_eq!(sent, 64 + u64::from(SIZE));
    for count in 0..sent {
        assert_eq!(number(&a.expect()), (9, count));
    }
    wait(&mut end);
    let (long, work) = (vec![2; 70_000], Work::default());
    assert_eq!(end.send(&long, work), Err(Ended::Refused));
    assert_eq!(switch.dropped(), 0);
    drop(switch);
    until("the end", || {
        end.wait(Duration::from_secs(10)) == Err(Ended::Gone)
    });
}

#[test]
fn what_a_peer_has_not_read_when_it_goes_is_counted_and_the_rest_waits_for_it() {
    let place = Place::new();
    let switch = place.switch("left", &["a"], "ring = 64");
    let mut a = place.guest("a", PLAIN);
    let mut end = place.end();
    switch.until_up(1);
    end.send(&frame(mac(1), mac(9), 0, 60), Work::default())
        .expect("a switch");
    assert_eq!(number(&a.expect()), (9, 0));
    for count in 0..100 {
        until("room", || a.send(&frame(mac(9), mac(1), count, 60)));
    }
    until("a full cable", || {
        switch.ask(|worker| worker.engine.waiting(1).1.is_some())
    });
    let mut bytes = Vec::new();
    for count in 0..10 {
        end.receive(&mut bytes).expect("a switch");
        assert_eq!(number(&bytes), (1, count));
    }
    // What it sent before it went is delivered.
    for count in 1..30 {
        assert_eq!(
            end.send(&frame(mac(1), mac(9), count, 60), Work::default()),
            Ok(true)
        );
    }
    until("all buffers in use", || {
        switch.ask(|worker| worker.engine.waiting(1).0 == [(0, 100 - 64 - 10)])
    });
    drop(end);
    for count in 1..30 {
        assert_eq!(number(&a.expect()), (9, count));
    }
    until("a count", || switch.drops(1, Reason::Unread) == 64);
    assert!(!switch.is_up(1));
    let mut end = place.end();
    for count in 10 + 64..100 {
        while end.receive(&mut bytes).expect("a switch").is_none() {
            end.wait(Duration::from_secs(10)).expect("a switch");
        }
        assert_eq!(number(&bytes), (1, count));
    }
    assert_eq!(switch.dropped(), 64);
    // Nobody comes back: then frames are dropped, and counted.
    drop(end);
    // A frame that is sent before this goes into the cable.
    until("its end", || !switch.is_up(1));
    until("room", || a.send(&frame(mac(9), mac(1), 100, 60)));
    until("a wait", || {
        switch.ask(|worker| worker.engine.waiting(1).0 == [(0, 1)])
    });
    until("a drop", || switch.drops(1, Reason::NoReceiver) > 0);
}

#[test]
fn an_idle_cable_sleeps_and_a_kick_wakes_it() {
    let (_place, switches, [mut a, mut b]) = two("");
    introduce(&mut [(&mut a, 1), (&mut b, 2)]);
    let sleeps = |switch: &Switch| {
        let effort = switch.ask(|worker| worker.effort);
        (effort.sleeps, effort.idle_polls)
    };
    thread::sleep(Duration::from_millis(100));
    let before = [sleeps(&switches[0]), sleeps(&switches[1])];
    thread::sleep(Duration::from_secs(1));
    for (switch, (before, _)) in switches.iter().zip(before) {
        let (now, _) = sleeps(switch);
        // Housekeeping wakes it ten times, and these questions.
        assert!(now - before < 20, "{} sleeps", now - before);
    }
    // Every frame meets sleeping threads. A wake-up that is missed costs 100 ms.
    let start = Instant::now();
    for count in 0..200 {
        assert!(a.send(&frame(mac(2), mac(1), count, 60)));
        assert_eq!(number(&b.expect()), (1, count));
        thread::sleep(Duration::from_millis(2));
    }
    let took = start.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_reload_leaves_a_cable_alone_unless_it_is_another() {
    let place = Place::new();
    let switch = place.switch("left", &["a"], "");
    let mut end = place.end();
    switch.until_up(1);
    let reload = |text: String| {
        let config = Config::parse("left", &text).expect("a file");
        switch.0.reload(config).expect("in force")
    };
    let changed = reload(place.text("left", &["a"], "vlan = 7"));
    assert_eq!(
        (changed.changed, changed.removed),
        (vec!["cable".to_owned()], vec![])
    );
    end.wait(Duration::from_millis(50))
        .expect("it is not touched");
    assert!(switch.is_up(1));
    let changed = reload(place.text("left", &["a"], "vlan = 7\nring = 128"));
    assert_eq!(changed.added, ["cable"]);
    until("the end", || {
        end.wait(Duration::from_secs(1)) == Err(Ended::Gone)
    });
    drop(place.end());
}

/// A switch as a process; killed when dropped.
struct Process {
    child: Child,
    file: PathBuf,
}

impl Process {
    fn start(place: &Place, name: &str, guests: &[&str], cable: &str) -> Self {
        let file = place.at(name).with_extension("toml");
        fs::write(&file, place.text(name, guests, cable)).expect("a file");
        Self {
            child: Self::run(&file, &[]),
            file,
        }
    }

    fn run(file: &Path, arguments: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_test-switch"));
        let command = command.arg(file).args(arguments);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().expect("a switch")
    }

    /// SIGKILL, and another process.
    fn kill(&mut self) {
        self.child.kill().expect("it lives");
        self.child.wait().expect("it is dead");
        self.child = Self::run(&self.file, &[]);
    }

    /// Another process takes over.
    fn replace(&mut self) {
        let next = Self::run(&self.file, &["--take-over"]);
        let mut old = std::mem::replace(&mut self.child, next);
        assert!(old.wait().expect("it ends").success());
    }

    fn ask(&self, ask: Ask) -> Vec<serde_json::Value> {
        let socket = self.file.with_extension("sock");
        let mut answer = None;
        until("an answer", || {
            answer = control::ask(&socket, ask).ok();
            answer.is_some()
        });
        let answer = answer.and_then(|answer| answer.as_array().cloned());
        answer.expect("ports")
    }

    fn until_up(&self) {
        until("a cable", || {
            let ports = self.ask(Ask::Ports);
            ports
                .iter()
                .any(|port| port["name"] == "cable" && port["up"] == true)
        });
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill(); // fails only when it is dead
        let _ = self.child.wait();
    }
}

/// A guest whose switch may be killed.
fn look(guest: &mut Guest, path: &Path) {
    if guest.is_alone() && guest.reconnect(path, PLAIN).is_none() {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_switch_that_is_killed_behind_a_cable_doubles_nothing_and_what_is_lost_is_counted() {
    let place = Place::new();
    let left = place.switch("left", &["a"], "ring = 128");
    let mut right = Process::start(&place, "right", &["b"], "listen = false");
    let mut a = place.guest("a", PLAIN);
    let path = place.at("b");
    let mut b = Guest::connect(&path, PLAIN);
    // From now on it notices when its switch has gone.
    until("again", || b.reconnect(&path, PLAIN).is_some());
    left.until_up(1);
    introduce(&mut [(&mut a, 1), (&mut b, 2)]);
    const FRAMES: u64 = 100_000;
    // Of each direction: sent, received, the next number.
    let (mut there, mut back) = ([0; 3], [0; 3]);
    let (mut kills, mut silent) = (0, Instant::now());
    while there[0] < FRAMES || silent.elapsed() < Duration::from_secs(1) {
        look(&mut b, &path);
        if there[0] < FRAMES && a.send(&frame(mac(2), mac(1), there[0], 60)) {
            there[0] += 1;
        }
        if back[0] < FRAMES && b.send(&frame(mac(1), mac(2), back[0], 60)) {
            back[0] += 1;
        }
        for (guest, from, count) in [(&mut b, 1, &mut there), (&mut a, 2, &mut back)] {
            if let Some((_, bytes)) = guest.receive() {
                let (sender, number) = number(&bytes);
                assert_eq!(sender, from);
                assert!(number >= count[2], "{number} again or late");
                (count[1], count[2]) = (count[1] + 1, number + 1);
                silent = Instant::now();
            }
        }
        // More frames than fit into the rings: its successor has taken some since the last time.
        if there[0] < FRAMES && there[0] >= (kills + 1) * FRAMES / 16 {
            right.kill();
            kills += 1;
        }
    }
    assert!(kills >= 2, "killed {kills} times");
    let unread = left.drops(1, Reason::Unread);
    println!("{kills} kills, {unread} unread; {there:?} {back:?}");
    // What a peer has delivered and not given back yet counts as unread, too.
    assert!(there[1] + unread >= there[0], "{there:?}, {unread} unread");
    assert!(unread <= kills * 128);
    assert_eq!(left.dropped(), unread);
    // Of the other direction only what was decided and not shown when it was killed.
    assert!(back[1] + kills * 64 >= back[0], "{back:?}");
}

#[test]
fn switches_that_are_replaced_at_both_ends_of_a_cable_lose_and_double_nothing() {
    let place = Place::new();
    let mut left = Process::start(&place, "left", &["a"], "ring = 128");
    let mut right = Process::start(&place, "right", &["b"], "listen = false");
    left.until_up();
    right.until_up();
    let [mut a, mut b] = ["a", "b"].map(|name| place.guest(name, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut b, 2)]);
    const FRAMES: u64 = 100_000;
    let replaces = thread::scope(|scope| {
        let flow = |mut from: Guest, sender: u8, to: u8| {
            move || {
                let (mut sent, mut received) = (0, 0);
                let mut last = Instant::now();
                while sent < FRAMES || received < FRAMES {
                    if sent < FRAMES && from.send(&frame(mac(to), mac(sender), sent, 60)) {
                        sent += 1;
                    }
                    while let Some((_, bytes)) = from.receive() {
                        assert_eq!(number(&bytes), (to, received));
                        received += 1;
                        last = Instant::now();
                        if received % 10_000 == 0 {
                            // Receivers that are away hold their senders back.
                            thread::sleep(Duration::from_millis(20));
                        }
                    }
                    assert!(
                        last.elapsed() < common::PATIENCE,
                        "{sent} sent, {received} came"
                    );
                }
                from
            }
        };
        let flows = [scope.spawn(flow(a, 1, 2)), scope.spawn(flow(b, 2, 1))];
        let mut replaces = 0;
        while !flows.iter().all(|flow| flow.is_finished()) {
            if replaces % 2 == 0 {
                right.replace();
            } else {
                left.replace();
            }
            replaces += 1;
        }
        for flow in flows {
            let mut guest = flow.join().expect("all came");
            assert!(guest.receive().is_none(), "a frame came twice");
        }
        replaces
    });
    assert!(replaces >= 4, "replaced {replaces} times");
    for process in [&left, &right] {
        for port in process.ask(Ask::Drops) {
            for (reason, count) in port["drops"].as_object().expect("drops") {
                assert_eq!(count.as_u64(), Some(0), "{}: {reason}", port["name"]);
            }
        }
    }
}
