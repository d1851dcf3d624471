//! Tenants' stacks on live connections over a veth pair whose sending end is a switch port. Needs
//! root.

#![allow(unsafe_code)]

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use sluicegate_agent::{
    interfaces,
    netns::{NetNs, within},
};
use sluicegate_core::{
    aqm::Aqm,
    cc::{Algorithm, Stack},
};
use sluicegate_labkit::{
    port::{PortConfig, Slot, SwitchPorts},
    tenant_cc::{self, Provider},
};

const RATE_BPS: u64 = 200_000_000;
const K_BYTES: u32 = 30_000;
const BYTES: usize = 8 << 20;
const PORT: u16 = 5001;

fn run(command: &str) {
    let mut words = command.split_whitespace();
    let status = Command::new(words.next().unwrap())
        .args(words)
        .status()
        .unwrap();
    assert!(status.success(), "{command}");
}

/// A sender's and a receiver's namespace, `near` and `far` between them.
struct Wire {
    sender: NetNs,
    receiver: NetNs,
    ports: SwitchPorts,
    near: Slot,
}

impl Drop for Wire {
    fn drop(&mut self) {
        run(&format!("ip netns del {}", self.sender.name()));
        run(&format!("ip netns del {}", self.receiver.name()));
    }
}

impl Wire {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!(
            "{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let (a, b) = (format!("sg-tenant-{id}-a"), format!("sg-tenant-{id}-b"));
        run(&format!("ip netns add {a}"));
        run(&format!("ip netns add {b}"));
        run(&format!(
            "ip link add near netns {a} type veth peer name far netns {b}"
        ));
        for (netns, interface, address) in [(&a, "near", "10.77.0.1"), (&b, "far", "10.77.0.2")] {
            run(&format!(
                "ip -n {netns} addr add {address}/24 dev {interface}"
            ));
            run(&format!("ip -n {netns} link set {interface} up"));
            run(&format!(
                "ip netns exec {netns} ethtool -K {interface} tso off gso off gro off"
            ));
        }
        run(&format!(
            "tc -n {a} qdisc add dev near root tbf rate {RATE_BPS}bit burst 20kb limit 1mb"
        ));
        let (sender, receiver) = (NetNs::named(&a).unwrap(), NetNs::named(&b).unwrap());
        let mut ports = SwitchPorts::load().unwrap();
        let config = PortConfig {
            aqm: Aqm::Threshold {
                k_bytes: K_BYTES,
                drop_not_ect: false,
            },
            rate_bps: RATE_BPS,
            frame_bytes: 1514,
        };
        let near = within(sender.as_fd(), || {
            ports.attach(interfaces::find("near")?.index, &config)
        })
        .unwrap();
        Self {
            sender,
            receiver,
            ports,
            near,
        }
    }

    /// Packets that the queue has dropped since it was made.
    fn dropped(&self) -> u64 {
        let output = Command::new("tc")
            .args([
                "-n",
                self.sender.name(),
                "-s",
                "qdisc",
                "show",
                "dev",
                "near",
            ])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let (_, rest) = text.split_once("(dropped ").expect("tc's words");
        let (dropped, _) = rest.split_once(',').expect("tc's words");
        dropped.parse().unwrap()
    }
}

fn set_congestion(fd: &impl AsRawFd, name: &str) {
    // SAFETY: the pointer and the length describe `name`.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            name.len() as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "{name}: {}", io::Error::last_os_error());
}

fn congestion(fd: &impl AsRawFd) -> String {
    let mut name = [0_u8; 16];
    let mut length = name.len() as libc::socklen_t;
    // SAFETY: the pointer and the length describe `name`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_mut_ptr().cast(),
            &mut length,
        )
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    String::from_utf8_lossy(&name)
        .trim_end_matches('\0')
        .to_owned()
}

/// `tcpi_delivered_ce`.
fn marks(fd: &impl AsRawFd) -> u32 {
    let mut info = [0_u8; 256];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: the pointer and the length describe `info`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut length,
        )
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    // linux/tcp.h: struct tcp_info.
    u32::from_ne_bytes(info[196..200].try_into().unwrap())
}

/// A socket with its congestion control chosen before it listens or connects.
fn socket(kernel_name: &str) -> OwnedFd {
    // SAFETY: a new descriptor that nothing else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0)) };
    set_congestion(&fd, kernel_name);
    fd
}

fn address(host: u8) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: PORT.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes([10, 77, 0, host]),
        },
        sin_zero: [0; 8],
    }
}

type SocketCall =
    unsafe extern "C" fn(libc::c_int, *const libc::sockaddr, libc::socklen_t) -> libc::c_int;

fn with_address(call: SocketCall, fd: &OwnedFd, host: u8) {
    let address = address(host);
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the pointer and the length describe `address`.
    let result = unsafe { call(fd.as_raw_fd(), (&raw const address).cast(), length) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// A byte stream that neither repeats nor compresses.
fn payload() -> Vec<u8> {
    let mut state = 1_u64;
    let mut bytes = Vec::with_capacity(BYTES);
    while bytes.len() < BYTES {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        bytes.extend((state >> 16).to_ne_bytes());
    }
    bytes
}

struct Transfer {
    received: Vec<u8>,
    congestion: String,
    marks: u32,
    /// Packets that the switch's queue dropped.
    dropped: u64,
    /// The backlog in bytes that half of the packets did not exceed.
    backlog_p50: f64,
}

/// Sends the payload from one namespace to the other with `kernel_name` at both ends.
fn transfer(wire: &Wire, kernel_name: &str) -> Transfer {
    let listener = within(wire.receiver.as_fd(), || {
        let fd = socket(kernel_name);
        with_address(libc::bind, &fd, 2);
        // SAFETY: a bound socket.
        assert_eq!(unsafe { libc::listen(fd.as_raw_fd(), 1) }, 0);
        Ok(TcpListener::from(fd))
    })
    .unwrap();
    let mut stream = within(wire.sender.as_fd(), || {
        let fd = socket(kernel_name);
        with_address(libc::connect, &fd, 2);
        Ok(TcpStream::from(fd))
    })
    .unwrap();
    let reader = thread::spawn(move || {
        let (mut stream, _): (TcpStream, SocketAddr) = listener.accept().unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        received
    });
    stream.write_all(&payload()).unwrap();
    let congestion = congestion(&stream);
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    // The reader has everything, and closes, before the counters are read.
    let received = reader.join().unwrap();
    let queue = wire.ports.stats(wire.near).unwrap();
    assert!(queue.bytes > BYTES as u64, "{queue:?}");
    Transfer {
        received,
        congestion,
        marks: marks(&stream),
        dropped: wire.dropped(),
        backlog_p50: queue.backlog.quantile(0.5).unwrap(),
    }
}

fn carries_data(name: &str) -> Transfer {
    let wire = Wire::new();
    let guard = tenant_cc::register(&[name]).unwrap();
    let kernel_name = guard.kernel_name(name).unwrap();
    let transfer = transfer(&wire, kernel_name);
    assert_eq!(transfer.congestion, kernel_name);
    assert!(
        transfer.received == payload(),
        "{name}: data came out different"
    );
    transfer
}

#[test]
fn dctcp_reacts_to_marks_and_loses_nothing() {
    let transfer = carries_data("dctcp");
    assert!(transfer.marks > 10, "{} marks", transfer.marks);
    assert_eq!(transfer.dropped, 0);
}

#[test]
fn dcvegas_keeps_its_queue_below_the_marking_threshold() {
    let transfer = carries_data("dcvegas");
    assert!(
        transfer.backlog_p50 < f64::from(K_BYTES),
        "{} bytes",
        transfer.backlog_p50
    );
    assert_eq!(transfer.dropped, 0);
}

#[test]
fn vegas_carries_data() {
    assert_eq!(carries_data("vegas").dropped, 0);
}

#[test]
fn every_stack_of_ours_carries_data() {
    for algorithm in Algorithm::stacks(&[Stack::Module, Stack::Ours]) {
        carries_data(algorithm.name());
    }
}

#[test]
fn what_the_kernel_has_is_used_as_it_is() {
    let guard = tenant_cc::register(&["reno", "reno"]).unwrap();
    let [reno] = guard.registered() else {
        panic!("{guard:?}");
    };
    assert_eq!(
        (reno.kernel_name(), reno.provider()),
        ("reno", Provider::Kernel)
    );
}

#[test]
fn two_offers_of_the_same_stack_do_not_collide() {
    let first = tenant_cc::register(&["dcvegas"]).unwrap();
    let second = tenant_cc::register(&["dcvegas"]).unwrap();
    let names = [&first, &second].map(|guard| guard.kernel_name("dcvegas").unwrap().to_owned());
    assert_ne!(names[0], names[1]);
    drop(first);
    set_congestion(&socket("reno"), &names[1]);
}

#[test]
fn an_unknown_stack_is_refused_with_what_there_is() {
    let error = tenant_cc::register(&["quic"]).unwrap_err().to_string();
    assert!(
        error.contains("\"quic\"") && error.contains("dcvegas"),
        "{error}"
    );
}

/// The helper for the next test: registers, says so, and waits to be killed.
#[test]
#[ignore = "run by a_killed_process_leaves_no_registration_behind"]
fn register_and_wait() {
    // Of which no kernel has its own.
    let guard = tenant_cc::register(&["dcvegas"]).unwrap();
    println!("registered {}", guard.kernel_name("dcvegas").unwrap());
    loop {
        thread::park();
    }
}

#[test]
fn a_killed_process_leaves_no_registration_behind() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "tenant_cc::register_and_wait",
            "--ignored",
            "--nocapture",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = io::BufReader::new(child.stdout.take().unwrap());
    let kernel_name = loop {
        let mut line = String::new();
        assert_ne!(io::BufRead::read_line(&mut output, &mut line).unwrap(), 0);
        if let Some((_, name)) = line.split_once("registered ") {
            break name.trim().to_owned();
        }
    };
    let offered = || {
        std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
            .unwrap()
            .split_whitespace()
            .any(|name| name == kernel_name)
    };
    assert!(offered());
    child.kill().unwrap();
    child.wait().unwrap();
    // The kernel frees a dead process's links when it gets round to it.
    while offered() {
        thread::yield_now();
    }
}
