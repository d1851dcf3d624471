//! Two tenants on one host: namespaces `sga-…-a` and `sga-…-b`, whose interfaces end in the host's
//! namespace `sga-…-h`, where a bridge joins them.
//!
//! ```text
//! [a] eth0 10.9.0.1 ── ta ┐
//!                         ├ bridge (in h)
//! [b] eth0 10.9.0.2 ── tb ┘
//! ```

#![allow(dead_code)] // Each crate that has this uses a part of it.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::fd::AsFd,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use sluicegate_agent::netns::{self, NetNs};

/// Address of tenant a.
pub const A: &str = "10.9.0.1";
/// Address of tenant b.
pub const B: &str = "10.9.0.2";
/// IPv6 addresses of both.
pub const A6: &str = "fd09::1";
pub const B6: &str = "fd09::2";

/// A host with two tenants; gone when dropped.
pub struct Host {
    prefix: String,
}

impl Host {
    /// Builds it. Needs root.
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let host = Self {
            prefix: format!("sga-{}-{number}", std::process::id()),
        };
        for part in ["h", "a", "b"] {
            ip(&["netns", "add", &host.name(part)]);
        }
        let h = host.name("h");
        ip(&["-n", &h, "link", "add", "name", "bridge", "type", "bridge"]);
        ip(&["-n", &h, "link", "set", "bridge", "up"]);
        host.add_tenant("a", A, A6);
        host.add_tenant("b", B, B6);
        until_bridges_forward(&h);
        host
    }

    fn add_tenant(&self, part: &str, address: &str, address6: &str) {
        let (h, tenant, outer) = (self.name("h"), self.name(part), format!("t{part}"));
        ip(&[
            "-n", &h, "link", "add", &outer, "type", "veth", "peer", "name", "eth0", "netns",
            &tenant,
        ]);
        ip(&["-n", &h, "link", "set", &outer, "master", "bridge", "up"]);
        for address in [format!("{address}/24"), format!("{address6}/64")] {
            // Without duplicate address detection, which would take a second.
            let nodad: &[&str] = if address.contains(':') {
                &["nodad"]
            } else {
                &[]
            };
            ip(&[
                &["-n", &tenant, "addr", "add", &address, "dev", "eth0"],
                nodad,
            ]
            .concat());
        }
        ip(&["-n", &tenant, "link", "set", "eth0", "up"]);
        ip(&["-n", &tenant, "link", "set", "lo", "up"]);
    }

    /// Gives b a bridge of its own and joins the two by a cable `wire-a` – `wire-b`.
    pub fn split_bridge(&self) {
        let h = self.name("h");
        let run = |arguments: &str| {
            ip(&[&["-n", &h], &*arguments.split(' ').collect::<Vec<_>>()].concat())
        };
        run("link add name bridge-b type bridge");
        run("link set bridge-b up");
        run("link add wire-a type veth peer name wire-b");
        run("link set wire-a master bridge up");
        run("link set wire-b master bridge-b up");
        run("link set tb master bridge-b");
        until_bridges_forward(&h);
    }

    /// Name of the namespace of `h`, `a` or `b`.
    pub fn name(&self, part: &str) -> String {
        format!("{}-{part}", self.prefix)
    }

    /// Runs `work` in the namespace of `h`, `a` or `b`.
    pub fn within<T: Send>(&self, part: &str, work: impl FnOnce() -> T + Send) -> T {
        let netns = NetNs::named(&self.name(part)).expect("the namespace exists");
        netns::within(netns.as_fd(), || Ok(work())).expect("the namespace can be entered")
    }

    /// Opens a connection from a to b and sends `bytes` over it; both ends stay open.
    pub fn transfer(&self, bytes: usize) -> (TcpStream, TcpStream) {
        self.transfer_to(B, bytes)
    }

    /// The same to this address of b.
    pub fn transfer_to(&self, to: &str, bytes: usize) -> (TcpStream, TcpStream) {
        self.transfer_between(to, 0, bytes)
    }

    /// The same to this port of b.
    pub fn transfer_at(&self, port: u16, bytes: usize) -> (TcpStream, TcpStream) {
        self.transfer_between(B, port, bytes)
    }

    fn transfer_between(&self, to: &str, port: u16, bytes: usize) -> (TcpStream, TcpStream) {
        let listener = self.within("b", || TcpListener::bind((to, port)).expect("b listens"));
        let port = listener.local_addr().expect("it has an address").port();
        let mut client = self.within("a", || TcpStream::connect((to, port)).expect("a connects"));
        let (mut server, _) = listener.accept().expect("b accepts");
        let reader = std::thread::spawn(move || {
            let mut buffer = vec![0; bytes];
            server.read_exact(&mut buffer).expect("b receives");
            assert!(
                buffer.iter().all(|byte| *byte == 0x5a),
                "payload is as sent"
            );
            server
        });
        client.write_all(&vec![0x5a; bytes]).expect("a sends");
        (client, reader.join().expect("the reader does not panic"))
    }
}

impl Host {
    /// TCP segments that arrived in a namespace with a wrong checksum.
    pub fn checksum_errors(&self, part: &str) -> u64 {
        let text = self.within(part, || {
            fs::read_to_string("/proc/thread-self/net/snmp").expect("snmp")
        });
        let mut tcp = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
        let names = tcp.next().expect("names of TCP counters").split(' ');
        let values = tcp.next().expect("TCP counters").split(' ');
        let (_, value) = names
            .zip(values)
            .find(|(name, _)| *name == "InCsumErrors")
            .expect("the kernel counts checksum errors");
        value.parse().expect("a number")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for part in ["h", "a", "b"] {
            let _ = Command::new("ip")
                .args(["netns", "del", &self.name(part)])
                .status();
        }
    }
}

/// Waits until the ports of a namespace's bridges forward. The kernel tells a bridge of a link that
/// came up within a second, or when it is asked for that link; frames before are dropped.
pub fn until_bridges_forward(netns: &str) {
    let begun = Instant::now();
    loop {
        let output = Command::new("bridge").args(["-n", netns, "link"]).output();
        let output = output.expect("iproute2 is installed");
        assert!(
            output.status.success(),
            "bridge -n {netns} link: {output:?}"
        );
        let ports = String::from_utf8(output.stdout).unwrap();
        let silent = ports
            .lines()
            .find(|port| port.contains(",LOWER_UP") && !port.contains(" state forwarding "));
        let Some(port) = silent else { return };
        assert!(begun.elapsed() < Duration::from_secs(10), "{port}");
        let name = port.split([' ', '@', ':']).nth(2);
        ip(&["-n", netns, "link", "show", "dev", name.unwrap()]);
        thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `ip`, which must succeed.
pub fn ip(arguments: &[&str]) {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .expect("iproute2 is installed");
    assert!(
        output.status.success(),
        "ip {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
}
