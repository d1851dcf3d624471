//! A switch that is killed or replaced while frames flow: each arrives once, and in order.

use std::{
    env, fs,
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::{UnixListener, UnixStream},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use common::{
    Bench, Guest, PATIENCE, PLAIN, REMEMBERS, frame, introduce, mac, number, process::Process,
    until,
};
use serde_json::json;
use sluicegate_dataplane::{
    config::Config,
    control::{self, Ask},
    service::{Claim, Heir, Service},
};

use crate::common;

/// What all threads of a test know.
#[derive(Default)]
struct Shared {
    /// Processes so far: a guest with a lower number connects again.
    life: AtomicU64,
    /// Frames that the receiver has.
    received: AtomicU64,
    ends: AtomicBool,
}

impl Shared {
    /// Waits until a thousand more frames have come; false if they all came meanwhile.
    fn goes_on(&self) -> bool {
        let before = self.received.load(Ordering::Acquire);
        until("progress", || {
            self.received.load(Ordering::Acquire) > before + 1000
                || self.ends.load(Ordering::Acquire)
        });
        !self.ends.load(Ordering::Acquire)
    }
}

/// A guest that connects again whenever the switch was killed.
struct Survivor {
    guest: Guest,
    path: PathBuf,
    life: u64,
    shared: Arc<Shared>,
}

impl Survivor {
    fn new(path: PathBuf, shared: &Arc<Shared>) -> Self {
        Self {
            guest: Guest::connect(&path, PLAIN),
            path,
            life: 0,
            shared: Arc::clone(shared),
        }
    }

    fn look(&mut self) {
        let life = self.shared.life.load(Ordering::Acquire);
        // All processes of former lives are dead.
        if life != self.life && !self.guest.is_alone() {
            self.life = life;
        } else if life != self.life && self.guest.reconnect(&self.path, PLAIN).is_none() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        until("room", || {
            self.look();
            self.guest.send(bytes)
        });
    }

    fn expect(&mut self) -> Vec<u8> {
        let mut frame = None;
        until("a frame", || {
            self.look();
            frame = self.guest.receive();
            frame.is_some()
        });
        frame.expect("a frame").1
    }
}

/// Two senders and a receiver, until the receiver has as many as `frames` of both.
fn flow(process: &mut Process, frames: u64, mut disturb: impl FnMut(&mut Process, &Shared)) {
    let shared = Arc::new(Shared::default());
    let [mut a, mut b, mut sink] =
        ["a", "b", "sink"].map(|name| Survivor::new(process.socket(name), &shared));
    introduce(&mut [(&mut a.guest, 1), (&mut b.guest, 2), (&mut sink.guest, 3)]);
    let each = frames / 2;
    let send = |mut sender: Survivor, from: u8| {
        move || {
            for number in 0..each {
                let bytes = 60 + number as usize % 200;
                sender.send(&frame(mac(3), mac(from), number, bytes));
            }
            until("all taken", || {
                sender.look();
                sender.guest.room() == usize::from(common::SIZE)
            });
        }
    };
    let senders = [thread::spawn(send(a, 1)), thread::spawn(send(b, 2))];
    let known = Arc::clone(&shared);
    let receiver = thread::spawn(move || {
        let mut next = [0; 3];
        for count in 1..=2 * each {
            let (from, number) = number(&sink.expect());
            let expected = &mut next[usize::from(from)];
            assert_eq!(number, *expected, "of sender {from} in life {}", sink.life);
            *expected += 1;
            known.received.store(count, Ordering::Release);
            // A receiver that is now and then away holds its senders back.
            if count % (each / 8) == 0 {
                thread::sleep(Duration::from_millis(10));
            }
        }
        known.ends.store(true, Ordering::Release);
        // Nothing comes twice.
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(100) {
            sink.look();
            assert!(sink.guest.receive().is_none(), "a frame came twice");
            thread::yield_now();
        }
    });
    while !shared.ends.load(Ordering::Acquire) && !receiver.is_finished() {
        disturb(process, &shared);
    }
    receiver.join().expect("all came");
    for sender in senders {
        sender.join().expect("all was sent");
    }
}

/// Frames that are counted: a tenth of `SG_FRAMES`.
fn frames() -> u64 {
    let wanted = env::var("SG_FRAMES").ok();
    wanted.map_or(1_000_000, |text| {
        text.parse::<u64>().expect("a number of frames") / 10
    })
}

#[test]
fn switches_that_replace_each_other_lose_and_double_nothing() {
    replace("replaced", "");
}

#[test]
fn nor_do_those_with_two_threads() {
    replace("replaced-2", "threads = 2");
}

fn replace(name: &str, switch: &str) {
    let ports = [("a", ""), ("b", ""), ("sink", ""), ("half", "vlan = 7")];
    let mut process = Process::start(name, &format!("{REMEMBERS}\n{switch}"), &ports);
    // A frontend that leaves a message unfinished stops nobody.
    let mut half = None;
    until("a connection", || {
        half = UnixStream::connect(process.socket("half")).ok();
        half.is_some()
    });
    let half = half.expect("a connection").write_all(&[1, 0, 0]);
    half.expect("a part of a message");
    let mut outages_ns = Vec::new();
    flow(&mut process, frames(), |process, shared| {
        if !shared.goes_on() {
            return;
        }
        if outages_ns.len() % 4 == 3 {
            // A successor that dies before it is ready: the running one goes on.
            drop(control::ask_for_everything(&process.socket("switch")));
        }
        outages_ns.push(process.replace());
    });
    assert!(outages_ns.len() >= 5, "replaced {} times", outages_ns.len());
    assert_eq!(process.dropped(), 0);
    outages_ns.sort_unstable();
    let ms = |ns: u64| ns as f64 / 1e6;
    println!(
        "{} replacements: no frame moved for {:.1} ms in the median and {:.1} ms at most",
        outages_ns.len(),
        ms(outages_ns[outages_ns.len() / 2]),
        ms(outages_ns[outages_ns.len() - 1]),
    );
}

#[test]
fn a_switch_that_is_killed_over_and_over_loses_and_doubles_nothing() {
    kill("killed", "");
}

#[test]
fn nor_does_one_with_two_threads() {
    kill("killed-2", "threads = 2");
}

fn kill(name: &str, switch: &str) {
    let switch = format!("{REMEMBERS}\n{switch}");
    let mut process = Process::start(name, &switch, &[("a", ""), ("b", ""), ("sink", "")]);
    let (mut kills, mut before) = (0, 0);
    flow(&mut process, frames(), |process, shared| {
        // It lives until some frames have come, so that each life is one.
        let start = Instant::now();
        until("progress", || {
            shared.received.load(Ordering::Acquire) > before + 1000
                || shared.ends.load(Ordering::Acquire)
                || start.elapsed() > PATIENCE / 2
        });
        thread::sleep(Duration::from_micros(kills * 7919 % 20_000));
        if shared.ends.load(Ordering::Acquire) {
            return;
        }
        process.kill(|| {
            shared.life.fetch_add(1, Ordering::Release);
        });
        before = shared.received.load(Ordering::Acquire);
        kills += 1;
    });
    assert!(kills >= 5, "killed {kills} times");
    assert_eq!(process.dropped(), 0);
}

#[test]
fn ports_that_come_go_and_change_lose_and_double_nothing_of_others() {
    change("changed", "");
}

#[test]
fn nor_do_those_of_two_threads() {
    change("changed-2", "threads = 2");
}

/// Reloads the file over and over, each time with other ports, and unplugs a guest in between.
fn change(name: &str, switch: &str) {
    let ports = [("a", ""), ("b", ""), ("sink", ""), ("plug", "vlan = 7")];
    let mut process = Process::start(name, &format!("{REMEMBERS}\n{switch}"), &ports);
    let file = process.directory.join("switch.toml");
    let text = fs::read_to_string(&file).expect("a file");
    let extra = process.socket("extra");
    let extra = format!(
        "[[port]]\nname = \"extra\"\nvhost_user = \"{}\"\n",
        extra.display()
    );
    let filtered = text.replace("name = \"a\"\n", "name = \"a\"\nrouter = false\n");
    let texts = [
        filtered.clone() + &extra,
        filtered,
        text.clone() + &extra,
        text,
    ];
    let mut reloads = 0;
    flow(&mut process, frames(), |process, shared| {
        if !shared.goes_on() {
            return;
        }
        let mut guest = Guest::connect(&process.socket("plug"), PLAIN);
        for number in 0..100 {
            guest.send(&frame(mac(9), mac(4), number, 1000));
        }
        fs::write(&file, &texts[reloads % 4]).expect("a file");
        let answer = control::ask(&process.socket("switch"), Ask::Reload).expect("a reload");
        let expected = match reloads % 2 {
            0 => [json!(["extra"]), json!([]), json!(["a"])],
            _ => [json!([]), json!(["extra"]), json!([])],
        };
        let done = ["added", "removed", "changed"].map(|key| answer[key].clone());
        assert_eq!(done, expected);
        drop(guest);
        reloads += 1;
    });
    assert!(reloads >= 5, "reloaded {reloads} times");
    assert_eq!(process.dropped(), 0);
}

#[test]
fn a_switch_that_was_replaced_ends_nothing_that_its_successor_has() {
    let bench = Bench::new("", &[("a", ""), ("b", "")]);
    let [mut a, mut b] = ["a", "b"].map(|port| bench.guest(port, PLAIN));
    introduce(&mut [(&mut a, 1), (&mut b, 2)]);
    let config = Config::parse("test", bench.text()).expect("a configuration");
    let old = Arc::clone(&bench.service);
    control::serve(&config.socket, "none".into(), old).expect("it answers");
    let (next, _control, _) = Service::take_over(config).expect("it takes over");
    assert!(!bench.service.end());
    for number in 0..100 {
        until("room", || a.send(&frame(mac(2), mac(1), number, 60)));
        assert_eq!(common::number(&b.expect()), (1, number));
    }
    assert!(next.end());
}

#[test]
fn what_a_stranger_gets_late_is_no_answer_to_an_upgrade_that_began_meanwhile() {
    let bench = Bench::new("", &[]);
    let (service, path) = (&bench.service, bench.directory.join("control"));
    let control = UnixListener::bind(path).expect("a socket");
    let stranger = Claim {
        pid: Some(7),
        prepares: true,
    };
    for answers in [true, false] {
        let (mut new, old) = UnixStream::pair().expect("a pair");
        let done = thread::scope(|scope| {
            let done = scope.spawn(|| service.hand_over(stranger, &old, &control));
            let mut question = [0; 8];
            new.read_exact(&mut question).expect("a question");
            service.start_heir(|| Ok((8, ()))).expect("it starts");
            match answers {
                true => new.write_all(b"p").expect("an answer"),
                false => new.shutdown(Shutdown::Both).expect("an end"),
            }
            done.join().expect("an end")
        });
        let error = done.expect_err("it is not the heir").to_string();
        assert!(error.contains("an upgrade to process 8"), "{error}");
        assert_eq!(service.remedy(), None);
        service.set_heir(Heir::Anybody);
    }
    assert_eq!(service.attempts(), 0, "nothing was stopped");
}
