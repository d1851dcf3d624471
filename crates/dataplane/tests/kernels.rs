//! Kernels at both ends: guests of User-Mode Linux, and interfaces of this kernel.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use common::{
    Bench, PLAIN, frame, mac,
    spaces::{Spaces, ip},
};
use sluicegate_dataplane::{
    config::Config, count::Drop as Reason, port::Port, service::Service, tap::Tap,
};
use sluicegate_labkit::uml;

use crate::common;

const KERNEL: &str = "/usr/bin/linux.uml";

/// A guest; gone when dropped.
struct Uml {
    child: Child,
    lines: Receiver<String>,
}

impl Uml {
    fn start(bench: &Bench, port: &str, role: &str) -> Self {
        let socket = bench.directory.join(format!("{port}.sock"));
        let program = env!("CARGO_BIN_EXE_uml-guest");
        // Its kernel has several processes, all of which end with the first one of their namespace.
        let mut command = Command::new("unshare");
        command
            .args(["--pid", "--fork", "--kill-child", KERNEL])
            .args(["mem=96M", "rootfstype=hostfs", "rootflags=/", "ro", "quiet"])
            .args([
                "con=null",
                "nohz=off",
                "con0=fd:0,fd:1",
                "ssl=null",
                "selinux=0",
                "apparmor=0",
            ])
            .args(["zswap.enabled=0", "initcall_blacklist=raid6_select_algo"])
            .arg(format!("uml_dir={}", bench.directory.display()))
            .arg(format!("umid={port}"))
            .arg(format!("virtio_uml.device={}:1", socket.display()))
            .arg(format!("init={program}"));
        let _preloaded = uml::adapt(&mut command).expect("a file in memory");
        let mut child = command
            .args(["--", role])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("unshare, of util-linux");
        let (said, lines) = channel();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if said.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// The rest of the line that begins so.
    fn says(&self, begin: &str) -> String {
        let mut all = String::new();
        loop {
            let line = self.lines.recv_timeout(Duration::from_secs(30));
            let line = line.unwrap_or_else(|_| panic!("no '{begin}' from a guest:\n{all}"));
            if let Some(rest) = line.strip_prefix(begin) {
                return rest.trim().to_owned();
            }
            all += &format!("{line}\n");
        }
    }
}

impl Drop for Uml {
    fn drop(&mut self) {
        let _ = self.child.kill(); // fails only when it is dead
        let _ = self.child.wait();
    }
}

#[test]
fn an_unpatched_guest_loses_between_its_adapter_and_its_socket_and_nowhere_else() {
    let bench = Bench::new("", &[("a", ""), ("b", "macs = [\"02:00:00:00:00:0b\"]")]);
    let receiver = Uml::start(&bench, "b", "receiver");
    receiver.says("ready");
    let sender = Uml::start(&bench, "a", "sender");
    sender.says("result:");
    let result = receiver.says("result:");
    let result = result
        .split(' ')
        .map(|number| number.parse().expect("a number"));
    let [stream, datagrams, late, full] = result.collect::<Vec<u32>>()[..] else {
        panic!("four numbers")
    };
    assert_eq!((stream, late), (20_000_000, 0));
    // Points 5 and 6 of the thesis' figure 4.1.
    assert_eq!(
        datagrams + full,
        3000,
        "{datagrams} came, {full} met a full socket"
    );
    let (dropped, frames, bytes, addresses) = bench.ask(|worker| {
        let engine = &mut worker.engine;
        let addresses: Vec<_> = engine.learning().addresses().collect();
        let a = engine.bay_mut(0).expect("a port").counters;
        let dropped = engine
            .bays()
            .map(|(_, bay)| bay.counters.dropped())
            .sum::<u64>();
        (dropped, a.received_frames, a.received_bytes, addresses)
    });
    assert_eq!(dropped, 0);
    // The address that the configuration space gives.
    let mut known = addresses.iter();
    let known = known.any(|&(_, address, port, _)| (address, port) == (mac(11), 1));
    assert!(known, "{addresses:?}");
    // The stream came in segments longer than a frame on a wire.
    assert!(bytes / frames > 2000, "{bytes} bytes in {frames} frames");
}

/// A machine whose firmware asks for an address over its adapter; gone when dropped.
struct Qemu(Child);

impl Qemu {
    fn start(socket: &Path) -> Self {
        let child = Command::new("qemu-system-x86_64")
            .args([
                "-accel",
                "tcg",
                "-m",
                "64",
                "-nodefaults",
                "-display",
                "none",
            ])
            .args(["-object", "memory-backend-memfd,id=ram,size=64M,share=on"])
            .args(["-machine", "q35,memory-backend=ram"])
            .arg("-chardev")
            .arg(format!(
                "socket,id=vm1,path={},reconnect=1",
                socket.display()
            ))
            .args(["-netdev", "vhost-user,id=n1,chardev=vm1"])
            .args(["-device", "virtio-net-pci,netdev=n1,mac=02:00:00:00:00:07"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.expect("qemu-system-x86_64; scripts/setup.sh test installs it"))
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.0.kill(); // fails only when it is dead
        let _ = self.0.wait();
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_firmware_of_a_virtual_machine_asks_for_an_address() {
    let bench = Bench::new("", &[("vm", "macs = [\"02:00:00:00:00:07\"]"), ("b", "")]);
    let mut b = bench.guest("b", PLAIN);
    // The second machine connects to the port that the first one has left by SIGKILL.
    for _ in 0..2 {
        let _vm = Qemu::start(&bench.directory.join("vm.sock"));
        loop {
            let frame = b.expect();
            assert_eq!(frame[6..12], mac(7));
            // DHCP: IPv4, UDP, from port 68 to port 67 (RFC 2131, 4.1).
            let is_udp = frame[12..14] == [8, 0] && frame[23] == 17;
            if is_udp && frame[34..38] == [0, 68, 0, 67] {
                break;
            }
        }
    }
    assert_eq!(bench.dropped(), 0);
}

#[test]
fn a_kernel_that_holds_nothing_back_says_so() {
    let spaces = Spaces::new(["x", "y"]);
    let opened = spaces.within(0, || Tap::open("sgheld", true).map(drop));
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").expect("its version");
    let mut numbers = text
        .split(['.', '-'])
        .map(|number| number.trim().parse::<u32>());
    let version = (numbers.next(), numbers.next());
    let (Some(Ok(major)), Some(Ok(minor))) = version else {
        panic!("no version: {text}")
    };
    if (major, minor) < (7, 1) {
        let error = opened.expect_err("it is refused").to_string();
        assert!(error.contains("needs Linux 7.2"), "{error}");
    } else if (major, minor) >= (7, 2) {
        opened.expect("it is held back");
    }
}

#[test]
fn two_interfaces_and_a_guest_share_a_switch() {
    let spaces = Spaces::new(["x", "y"]);
    let directory = std::env::temp_dir().join(format!("sg-taps-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let socket = directory.join("g.sock");
    let text = format!(
        "[switch]\nsocket = \"{}\"\n\
         [[port]]\nname = \"x\"\ntap = \"sgx\"\n[[port]]\nname = \"y\"\ntap = \"sgy\"\n\
         [[port]]\nname = \"g\"\nvhost_user = \"{}\"\n",
        directory.join("switch.sock").display(),
        socket.display()
    );
    // The interfaces are made in the first namespace; one moves to the other.
    let service = spaces.within(0, move || {
        let config = Config::parse("test", &text).expect("a configuration");
        Service::start(config).expect("a switch")
    });
    let [x, y] = [spaces.name(0), spaces.name(1)];
    ip(&format!("-n {x} link set sgy netns {y}"));
    for (space, tap, address) in [(x, "sgx", "10.8.0.1/24"), (y, "sgy", "10.8.0.2/24")] {
        ip(&format!("-n {space} addr add {address} dev {tap}"));
        ip(&format!("-n {space} link set {tap} up"));
    }
    let mut guest = common::Guest::connect(&socket, PLAIN);
    let listener = spaces.within(1, || TcpListener::bind("10.8.0.2:7000").expect("a socket"));
    let mut sender = spaces.within(0, || {
        TcpStream::connect("10.8.0.2:7000").expect("connected")
    });
    let (mut receiver, _) = listener.accept().expect("a connection");
    let bytes: Vec<u8> = (0..5_000_000u32).map(|at| (at % 251) as u8).collect();
    let copy = bytes.clone();
    let writer = thread::spawn(move || sender.write_all(&copy).expect("sent"));
    let mut got = Vec::new();
    receiver.read_to_end(&mut got).expect("came");
    writer.join().expect("sent");
    assert!(got == bytes, "the stream came as it was sent");
    // The guest has heard ARP, and what it sends to both arrives.
    let heard = guest.drain();
    assert!(heard.iter().any(|frame| frame[12..14] == [8, 6]), "ARP");
    assert!(guest.send(&frame([0xff; 6], mac(9), 1, 60)));
    let counted = move |worker: &mut sluicegate_dataplane::worker::Worker| {
        let ports = worker.engine.bays();
        let ports = ports.filter(|(_, bay)| matches!(bay.port, Port::Tap(_)));
        let kinds = ports.map(|(_, bay)| {
            // The interfaces were not up from the beginning.
            let early = bay.counters.drops[Reason::NoReceiver as usize];
            (
                bay.counters.dropped() - early,
                bay.counters.delivered_frames,
            )
        });
        kinds.collect::<Vec<_>>()
    };
    let before = service.handle().call(counted).expect("it runs");
    assert!(
        before
            .iter()
            .all(|&(dropped, frames)| dropped == 0 && frames > 0)
    );
    service.end();
    let _ = std::fs::remove_dir_all(&directory);
}
