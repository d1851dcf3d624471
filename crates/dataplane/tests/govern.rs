//! A switch that governs: TCP of this kernel behind its ports, and a guest of the tests' own.

#![allow(unsafe_code)] // to ask a socket

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use common::{
    Guest, PLAIN, frame, mac, number,
    spaces::{Spaces, ip},
    until,
};
use sluicegate_core::{
    abi::{COUNTER_NAMES, Flow, FlowKey, MODE_ONE_SIDED, MODE_TWO_SIDED},
    wire,
};
use sluicegate_dataplane::{
    config::Config,
    count::Drop as Reason,
    service::{Service, reload_file},
};

use crate::common;

/// A switch with its files; ended when dropped.
struct Governed {
    service: Service,
    directory: PathBuf,
}

impl Governed {
    /// With this policy, if any, and these ports, whose sockets are in its directory (`@`).
    fn start(name: &str, policy: Option<&str>, ports: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sg-govern-{}-{number}-{name}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).expect("a directory");
        let socket = directory.join("switch.sock");
        let mut text = format!("[switch]\nsocket = \"{}\"\n", socket.display());
        if let Some(policy) = policy {
            fs::write(directory.join("policy.toml"), policy).expect("a file");
            text += "policy = \"policy.toml\"\n";
        }
        text += &ports.replace('@', &directory.display().to_string());
        fs::write(directory.join("switch.toml"), text).expect("a file");
        let config = Config::read(&directory.join("switch.toml")).expect("a configuration");
        Self {
            service: Service::start(config).expect("a switch"),
            directory,
        }
    }

    fn guest(&self, port: &str) -> Guest {
        Guest::connect(&self.directory.join(format!("{port}.sock")), PLAIN)
    }

    fn file(&self) -> PathBuf {
        self.directory.join("switch.toml")
    }

    /// The flows of a port, and a counter by its name.
    fn flows(&self, port: u16) -> Vec<(FlowKey, Flow)> {
        let order = move |worker: &mut sluicegate_dataplane::worker::Worker| {
            let govern = worker.engine.govern.as_ref().expect("it governs");
            let (flows, ifindex) = (govern.vnics().flows(), govern.ifindex(port));
            let flows = flows.filter(|(key, _)| Some(key.ifindex) == ifindex);
            flows.map(|(key, flow)| (*key, *flow)).collect()
        };
        self.service.handle().call(order).expect("it runs")
    }

    fn counter(&self, name: &str) -> u64 {
        let at = COUNTER_NAMES.iter().position(|known| *known == name);
        let at = at.expect("a counter's name");
        let order = move |worker: &mut sluicegate_dataplane::worker::Worker| {
            let govern = worker.engine.govern.as_ref().expect("it governs");
            govern.vnics().counters().0[at]
        };
        self.service.handle().call(order).expect("it runs")
    }

    fn drops(&self, port: u16, reason: Reason) -> u64 {
        let order = move |worker: &mut sluicegate_dataplane::worker::Worker| {
            let bay = worker.engine.bay_mut(port).expect("a port");
            bay.counters.drops[reason as usize]
        };
        self.service.handle().call(order).expect("it runs")
    }
}

impl Drop for Governed {
    fn drop(&mut self) {
        self.service.end();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn address(space: &str, tap: &str, address: &str) {
    ip(&format!("-n {space} addr add {address} dev {tap}"));
    ip(&format!("-n {space} link set {tap} up"));
}

/// Tenants that know nothing of ECN.
fn without_ecn(spaces: &Spaces) {
    for at in [0, 1] {
        spaces.within(at, || {
            fs::write("/proc/sys/net/ipv4/tcp_ecn", "0").expect("root")
        });
    }
}

/// The window that a socket's peer was last seen to advertise (`tcpi_snd_wnd`), in bytes.
fn peer_window(socket: &TcpStream) -> u32 {
    const AT: usize = 228;
    let mut info = [0_u8; AT + 4];
    let mut bytes = info.len() as libc::socklen_t;
    // SAFETY: the buffer is as long as the call is told.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut bytes,
        )
    };
    assert_eq!((failed, bytes as usize), (0, info.len()));
    u32::from_ne_bytes(info[AT..].try_into().expect("four"))
}

/// Sends so many bytes from the first namespace to the second. Returns the largest window that the
/// sender was shown.
fn transfer(spaces: &Spaces, to: &'static str, bytes: usize) -> u32 {
    let listener = spaces.within(1, move || TcpListener::bind(to).expect("a socket"));
    let mut sender = spaces.within(0, move || TcpStream::connect(to).expect("connected"));
    let (mut receiver, _) = listener.accept().expect("a connection");
    let reader = thread::spawn(move || {
        let (mut count, mut sum, mut buffer) = (0, 0_u64, vec![0; 1 << 16]);
        loop {
            match receiver.read(&mut buffer).expect("came") {
                0 => return (count, sum),
                some => {
                    count += some;
                    sum += buffer[..some]
                        .iter()
                        .map(|&byte| u64::from(byte))
                        .sum::<u64>();
                }
            }
        }
    });
    let (mut window, mut sum) = (0, 0_u64);
    let block: Vec<u8> = (0..50_000_u32).map(|at| (at % 251) as u8).collect();
    for _ in 0..bytes / block.len() {
        sender.write_all(&block).expect("sent");
        sum += block.iter().map(|&byte| u64::from(byte)).sum::<u64>();
        window = window.max(peer_window(&sender));
    }
    drop(sender);
    let got = reader.join().expect("it read");
    assert_eq!(
        got,
        (bytes / block.len() * block.len(), sum),
        "as it was sent"
    );
    window
}

const TAPS: &str = "[[port]]\nname = \"x\"\ntap = \"sgx\"\nGOVERN\n\
                    [[port]]\nname = \"y\"\ntap = \"sgy\"\nGOVERN\n";

/// A policy whose cap is small.
const CAPPED: &str = "[[rule]]\nalgorithm = \"cubic\"\none_sided = \"cubic\"\nmode = \"enforce\"\n\
                      window_cap = \"100KB\"\n";

/// What is sent there.
const BYTES: u64 = 20_000_000;

/// Both interfaces on one switch, with a policy or without.
fn window_of(policy: Option<&str>) -> (u32, Option<(Flow, u64)>) {
    let spaces = Spaces::new(["x", "y"]);
    let ports = TAPS.replace("GOVERN", policy.map_or("", |_| "govern = true"));
    let policy = policy.map(str::to_owned);
    let switch = spaces.within(0, move || Governed::start("cap", policy.as_deref(), &ports));
    ip(&format!(
        "-n {} link set sgy netns {}",
        spaces.name(0),
        spaces.name(1)
    ));
    address(spaces.name(0), "sgx", "10.8.1.1/24");
    address(spaces.name(1), "sgy", "10.8.1.2/24");
    let window = transfer(&spaces, "10.8.1.2:7000", BYTES as usize);
    let governs = switch.directory.join("policy.toml").exists();
    let seen = governs.then(|| {
        let acked = |flows: &[(_, Flow)]| flows.iter().any(|flow| flow.1.bytes_acked >= BYTES);
        until("the last ACK", || acked(&switch.flows(0)));
        let flows = switch.flows(0);
        assert_eq!(flows.len(), 1);
        assert_eq!(
            switch.flows(1).len(),
            1,
            "the receiver's vNIC has the flow, too"
        );
        (flows[0].1, switch.counter("window_lowered"))
    });
    (window, seen)
}

#[test]
fn a_sender_is_shown_no_larger_window_than_its_rule_allows() {
    let (free, _) = window_of(None);
    let (held, seen) = window_of(Some(CAPPED));
    let (flow, lowered) = seen.expect("it governs");
    assert!(free > 200_000, "{free} bytes without a policy");
    // Rounded up to the unit of the window's scale.
    assert!(held <= 100_000 + 4096, "{held} bytes are shown");
    assert_eq!(flow.mode, MODE_ONE_SIDED);
    assert!(lowered > 100, "{lowered}");
}

/// Marks segments of data that may be marked, one in so many.
fn mark(frame: &mut [u8], count: &mut u32, one_in: u32) {
    let is_data = frame.len() > 200 && frame[12..14] == [8, 0] && frame[23] == 6;
    if !is_data || frame[15] & 3 == 0 {
        return;
    }
    *count += 1;
    if *count % one_in == 0 {
        frame[15] |= 3;
        frame[24..26].fill(0);
        let header: [u8; 20] = frame[14..34].try_into().expect("twenty");
        frame[24..26].copy_from_slice(&wire::ipv4_checksum(&header));
    }
}

/// A wire between two switches, which marks; it ends when dropped.
struct Wire {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Wire {
    fn between(mut near: Guest, mut far: Guest, one_in: u32) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            let mut count = 0;
            while !told.load(Ordering::Relaxed) {
                let mut moved = false;
                for turn in 0..2 {
                    let (from, to) = match turn {
                        0 => (&mut near, &mut far),
                        _ => (&mut far, &mut near),
                    };
                    while let Some((_, mut frame)) = from.receive() {
                        moved = true;
                        mark(&mut frame, &mut count, one_in);
                        until("room on the wire", || to.send(&frame));
                    }
                }
                if !moved {
                    thread::sleep(Duration::from_micros(50));
                }
            }
        });
        Self {
            ends,
            thread: Some(thread),
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("one");
        let _ = thread.join();
    }
}

/// Counters of a protocol of a namespace's kernel.
fn kernel_counts<const N: usize>(
    spaces: &Spaces,
    at: usize,
    (file, protocol): (&str, &str),
    names: [&str; N],
) -> [u64; N] {
    let path = format!("/proc/thread-self/net/{file}");
    let text = spaces.within(at, move || fs::read_to_string(path).expect("proc"));
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    let mut pairs = lines.chunks(2);
    let of_it = pairs
        .find(|pair| pair[0][0] == protocol)
        .expect("a protocol");
    names.map(|name| {
        let mut counters = of_it[0].iter().zip(&of_it[1]);
        let (_, value) = counters
            .find(|(known, _)| **known == name)
            .expect("a counter");
        value.parse().expect("a number")
    })
}

/// Neither kernel has met a wrong checksum, or another fault of a segment.
fn assert_all_is_right(spaces: &Spaces) {
    for at in 0..2 {
        let faults = kernel_counts(spaces, at, ("snmp", "Tcp:"), ["InErrs", "InCsumErrors"]);
        assert_eq!(faults, [0; 2]);
    }
}

/// Packets with CE that a namespace's kernel has received.
fn marks_seen(spaces: &Spaces, at: usize) -> u64 {
    let [marks] = kernel_counts(spaces, at, ("netstat", "IpExt:"), ["InCEPkts"]);
    marks
}

const DCTCP: &str = "trusted = [\"10.8.0.0/16\"]\n\
                     [[rule]]\nalgorithm = \"dctcp\"\none_sided = \"cubic\"\nmode = \"enforce\"\n";

#[test]
fn two_switches_enforce_dctcp_and_hide_marks_from_tenants() {
    let spaces = Spaces::new(["x", "y"]);
    let ports = |tap: &str| {
        format!(
            "[[port]]\nname = \"vm\"\ntap = \"{tap}\"\ngovern = true\n\
             [[port]]\nname = \"up\"\nvhost_user = \"@/up.sock\"\ngovern = false\n"
        )
    };
    let (near, far) = (ports("sgx"), ports("sgy"));
    let near = spaces.within(0, move || Governed::start("near", Some(DCTCP), &near));
    let far = spaces.within(1, move || Governed::start("far", Some(DCTCP), &far));
    without_ecn(&spaces);
    let _wire = Wire::between(near.guest("up"), far.guest("up"), 4);
    address(spaces.name(0), "sgx", "10.8.2.1/24");
    address(spaces.name(1), "sgy", "10.8.2.2/24");
    transfer(&spaces, "10.8.2.2:7000", 10_000_000);
    let (sent, received) = (near.flows(0), far.flows(0));
    assert_eq!((sent.len(), received.len()), (1, 1));
    let flow = &sent[0].1;
    assert_eq!(
        (flow.mode, received[0].1.mode),
        (MODE_TWO_SIDED, MODE_TWO_SIDED)
    );
    // A quarter of the data was marked on the wire, which the sender's host has learned.
    let share = flow.bytes_marked as f64 / flow.bytes_acked as f64;
    assert!((0.2..0.3).contains(&share), "{share} marked");
    assert!(flow.cc.alpha() > 0.1, "alpha {}", flow.cc.alpha());
    assert!(far.counter("ce_bytes") > 2_000_000 && far.counter("ecn_hidden") > 1000);
    assert!(far.counter("feedback_sent") > 100 && near.counter("feedback_taken") > 100);
    assert_eq!([marks_seen(&spaces, 0), marks_seen(&spaces, 1)], [0, 0]);
    assert_eq!(near.drops(0, Reason::Policed), 0);
    for at in 0..2 {
        // Every checksum was right.
        let errors = ["InErrs", "InCsumErrors"];
        assert_eq!(kernel_counts(&spaces, at, ("snmp", "Tcp:"), errors), [0; 2]);
    }
}

#[test]
fn between_two_ports_of_one_switch_enforcement_is_two_sided() {
    let spaces = Spaces::new(["x", "y"]);
    let ports = TAPS.replace("GOVERN", "govern = true");
    let switch = spaces.within(0, move || Governed::start("one", Some(DCTCP), &ports));
    let far = spaces.name(1);
    ip(&format!("-n {} link set sgy netns {far}", spaces.name(0)));
    without_ecn(&spaces);
    address(spaces.name(0), "sgx", "10.8.3.1/24");
    address(far, "sgy", "10.8.3.2/24");
    transfer(&spaces, "10.8.3.2:7000", 10_000_000);
    for port in [0, 1] {
        let flows = switch.flows(port);
        assert_eq!(flows.len(), 1);
        assert_eq!(flows[0].1.mode, MODE_TWO_SIDED);
    }
    // Feedback crossed the switch, and no FACK came to a tenant.
    assert!(switch.counter("feedback_taken") > 10);
    let facks = (switch.counter("fack_sent"), switch.counter("fack_taken"));
    assert_eq!(facks.0, facks.1);
    assert_all_is_right(&spaces);
}

/// A segment of TCP over IPv4 with right checksums.
fn segment(
    from: u8,
    to: u8,
    [seq, ack]: [u32; 2],
    flags: u8,
    options: &[u8],
    data: usize,
) -> Vec<u8> {
    let mut tcp = Vec::new();
    let port = |end: u8| 5000 + u16::from(end);
    tcp.extend(port(from).to_be_bytes());
    tcp.extend(port(to).to_be_bytes());
    tcp.extend(seq.to_be_bytes());
    tcp.extend(ack.to_be_bytes());
    tcp.extend([((20 + options.len()) / 4 * 16) as u8, flags]);
    tcp.extend(60_000_u16.to_be_bytes());
    tcp.extend([0; 4]);
    tcp.extend(options);
    tcp.resize(tcp.len() + data, 7);
    let total = (20 + tcp.len()) as u16;
    let [high, low] = total.to_be_bytes();
    let mut header = [
        0x45, 0, high, low, 0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, from, 10, 0, 0, to,
    ];
    let sum = wire::ipv4_checksum(&header);
    header[10..12].copy_from_slice(&sum);
    let sum = wire::tcp_checksum_v4(&header, &tcp);
    tcp[16..18].copy_from_slice(&sum);
    let mut frame = [&mac(to)[..], &mac(from), &[8, 0], &header, &tcp].concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

const SYN: u8 = 2;
const ACK: u8 = 16;

const MSS: [u8; 4] = [2, 4, 5, 180];

fn two_guests(policy: &str) -> (Governed, Guest, Guest) {
    let ports = "[[port]]\nname = \"a\"\nvhost_user = \"@/a.sock\"\n\
                 [[port]]\nname = \"b\"\nvhost_user = \"@/b.sock\"\ngovern = false\n";
    let switch = Governed::start("two", Some(policy), ports);
    let (mut a, mut b) = (switch.guest("a"), switch.guest("b"));
    common::introduce(&mut [(&mut a, 1), (&mut b, 2)]);
    (switch, a, b)
}

/// A connection of guest 1 to guest 2, whose hosts do not enforce.
fn connect(a: &mut Guest, b: &mut Guest) {
    assert!(a.send(&segment(1, 2, [999, 0], SYN, &MSS, 0)));
    assert_eq!(b.expect()[47], SYN);
    assert!(b.send(&segment(2, 1, [4999, 1000], SYN | ACK, &MSS, 0)));
    assert_eq!(a.expect()[47], SYN | ACK);
    assert!(a.send(&segment(1, 2, [1000, 5000], ACK, &[], 0)));
    b.expect();
}

#[test]
fn data_beyond_every_window_are_dropped_and_counted_at_the_senders_port() {
    let (switch, mut a, mut b) = two_guests(CAPPED);
    connect(&mut a, &mut b);
    assert!(a.send(&segment(1, 2, [1000, 5000], ACK, &[], 1000)));
    assert_eq!(b.expect().len(), 1054);
    // The peer has offered 60 000 bytes.
    assert!(a.send(&segment(1, 2, [2_000_000, 5000], ACK, &[], 1000)));
    assert!(a.send(&segment(1, 2, [2000, 5000], ACK, &[], 10)));
    assert_eq!(b.expect().len(), 64, "what is within passes");
    assert_eq!(switch.drops(0, Reason::Policed), 1);
    assert_eq!(
        (switch.counter("policed"), switch.flows(0)[0].1.policed),
        (1, 1)
    );
}

#[test]
fn what_has_no_flow_is_charged_to_a_bucket() {
    let policy =
        "[[bucket]]\nclass = \"other\"\nrate = \"8Kbit\"\nburst = \"4KB\"\nmode = \"enforce\"\n";
    let (switch, mut a, mut b) = two_guests(policy);
    for number in 1..=50 {
        assert!(a.send(&frame(mac(2), mac(1), number, 400)));
        assert!(b.send(&frame(mac(1), mac(2), number, 400)));
    }
    until("drops", || switch.drops(0, Reason::Rate) >= 30);
    let through = b.drain().len();
    assert!((5..20).contains(&through), "{through} frames");
    assert_eq!(through as u64 + switch.drops(0, Reason::Rate), 50);
    // What a guest receives is charged to nobody, and the other port is not governed.
    assert_eq!((a.drain().len(), switch.drops(1, Reason::Rate)), (50, 0));
}

#[test]
fn a_checksum_that_would_be_written_over_headers_is_refused() {
    let (switch, mut a, mut b) = two_guests(CAPPED);
    connect(&mut a, &mut b);
    let data = segment(1, 2, [1000, 5000], ACK, &[], 100);
    let header = |start: u16, offset: u16| {
        let work = sluicegate_dataplane::offload::Work {
            checksum: Some((start, offset)),
            segment: None,
        };
        work.header(54)
    };
    // The source's address, the window, the flags.
    for (start, offset) in [(14, 12), (34, 14), (34, 12)] {
        assert!(a.send_with(header(start, offset), &data));
    }
    until("drops", || switch.drops(0, Reason::Malformed) == 3);
    assert!(b.receive().is_none());
}

/// The frame with this tag.
fn tagged(frame: &[u8], tag: [u8; 4]) -> Vec<u8> {
    [&frame[..12], &tag, &frame[12..]].concat()
}

#[test]
fn both_directions_of_a_connection_are_one_flow_whatever_the_tags() {
    let port = |name: &str, vlans: &str| {
        format!("[[port]]\nname = \"{name}\"\nvhost_user = \"@/{name}.sock\"\n{vlans}\n")
    };
    let all = port("a", "trunk = [10]") + &port("b", "vlan = 10") + &port("c", "") + &port("d", "");
    let switch = Governed::start("tags", Some(CAPPED), &all);
    let [mut a, mut b] = ["a", "b"].map(|port| switch.guest(port));
    // One of them has a tag and the other none.
    let tag = [0x81, 0, 0, 10];
    let syn = segment(1, 2, [999, 0], SYN, &MSS, 0);
    let answer = segment(2, 1, [4999, 1000], SYN | ACK, &MSS, 0);
    assert!(a.send(&tagged(&syn, tag)));
    assert_eq!(b.expect()[47], SYN);
    assert!(b.send(&answer));
    assert_eq!(a.expect()[51], SYN | ACK);
    let keys: [Vec<u16>; 2] =
        [0, 1].map(|port| switch.flows(port).iter().map(|(key, _)| key.vlan).collect());
    assert_eq!(keys, [vec![10], vec![0]], "one flow of each vNIC");
    // Tags that the switch does not read would be another flow's on the way back.
    let [mut c, mut d] = ["c", "d"].map(|port| switch.guest(port));
    common::introduce(&mut [(&mut c, 1), (&mut d, 2)]);
    assert!(c.send(&tagged(&syn, [0x88, 0xa8, 0, 10])));
    assert!(c.send(&frame(mac(2), mac(1), 1, 60)));
    assert_eq!(number(&d.expect()), (1, 1));
    assert_eq!(
        (switch.drops(2, Reason::Vlan), switch.flows(2).len()),
        (1, 0)
    );
}

#[test]
fn another_policy_comes_into_force_and_flows_go_on() {
    let (switch, mut a, mut b) = two_guests(CAPPED);
    connect(&mut a, &mut b);
    let before = switch.flows(0);
    let change = |policy: &str| {
        fs::write(switch.directory.join("policy.toml"), policy).expect("a file");
        reload_file(&switch.service, &switch.file())
    };
    let shown = |a: &mut Guest, b: &mut Guest| {
        assert!(b.send(&segment(2, 1, [5000, 1000], ACK, &[], 10)));
        let frame = a.expect();
        u32::from(u16::from_be_bytes([frame[48], frame[49]]))
    };
    assert_eq!(shown(&mut a, &mut b), 14_600, "ten segments");
    let reload = change(&CAPPED.replace("100KB", "90KB")).expect("a good file");
    assert_eq!((reload.policy, reload.flows_rematched), (true, 0));
    assert!(reload.changed.is_empty() && !reload.needs_restart);
    assert_eq!(switch.flows(0).len(), before.len());
    // What is wrong with a policy is said with its place, and nothing changes.
    let error = change("[[rule]]\nalgorithm = \"dctpc\"\n").expect_err("a bad file");
    let text = format!("{error:#}");
    assert!(
        text.contains("policy.toml:2:") && text.contains("dctcp"),
        "{text}"
    );
    let reload = change(&CAPPED.replace("enforce", "observe")).expect("a good file");
    assert!(reload.policy);
    assert_eq!(shown(&mut a, &mut b), 60_000, "as the peer wrote it");
    let reload = change("").expect("a policy without rules");
    assert_eq!((reload.flows_rematched, switch.flows(0).len()), (1, 0));
}

#[test]
fn a_bad_policy_keeps_a_switch_from_starting() {
    let directory = std::env::temp_dir().join(format!("sg-govern-bad-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let file = directory.join("switch.toml");
    let port = "[[port]]\nname = \"a\"\ntap = \"sga\"\n";
    let read = |text: &str| {
        fs::write(&file, text).expect("a file");
        Config::read(Path::new(&file))
    };
    let text = format!("[switch]\npolicy = \"p.toml\"\n{port}");
    let error = read(&text).expect_err("no such file").to_string();
    assert!(error.contains("p.toml"), "{error}");
    fs::write(directory.join("p.toml"), "[[rule]]\nmode = \"enfroce\"\n").expect("a file");
    let error = read(&text).expect_err("a bad policy").to_string();
    assert!(
        error.contains("p.toml:2:") && error.contains("enforce"),
        "{error}"
    );
    let error = read(&format!("[switch]\nflows_max = 100\n{port}govern = true\n"));
    let error = error.expect_err("keys that need a policy").to_string();
    assert!(
        error.contains("flows_max") && error.contains("govern"),
        "{error}"
    );
    fs::write(directory.join("p.toml"), CAPPED).expect("a file");
    let config = read(&text).expect("a good file");
    assert!(
        !config.ports[0].is_governed,
        "an interface of the kernel is not, unless told"
    );
    let _ = fs::remove_dir_all(&directory);
}
