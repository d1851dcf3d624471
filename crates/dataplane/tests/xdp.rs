//! Ports of AF_XDP, at pairs of virtual interfaces in namespaces.

use std::{
    fs,
    num::NonZeroU32,
    os::fd::AsRawFd,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use common::{
    Guest, LINUX, PLAIN, SIZE, WAITS, frame, mac, number, segment,
    spaces::{Spaces, ip},
    until,
};
use rustix::{
    fd::OwnedFd,
    net::{
        AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType,
        netdevice::name_to_index, recv, send, socket_with, sockopt,
    },
};
use serde_json::Value;
use sluicegate_dataplane::{
    config::Config,
    control::{self, Ask},
    count,
    port::Port,
    service::Service,
    worker::Worker,
    xdp::KernelDrops,
};

use crate::common;

/// More frames than any port's ring has buffers.
const BEYOND_BUFFERS: u32 = 20_000;

/// A switch in a namespace, at one end of a pair of interfaces, and a guest's socket.
struct Place {
    spaces: Spaces,
    directory: PathBuf,
    service: Option<Arc<Service>>,
}

impl Place {
    /// Two namespaces and the pair between them, without a switch.
    fn bare() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("sg-xdp-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let spaces = Spaces::new(["switch", "world"]);
        let place = Self {
            spaces,
            directory,
            service: None,
        };
        place.pair();
        place
    }

    fn pair(&self) {
        let [near, far] = [self.spaces.name(0), self.spaces.name(1)];
        ip(&format!(
            "-n {near} link add sgnear type veth peer name sgfar netns {far}"
        ));
        for (space, name) in [(near, "sgnear"), (far, "sgfar")] {
            // Nothing but the test's frames.
            self.set(space, &format!("net.ipv6.conf.{name}.disable_ipv6=1"));
            ip(&format!("-n {space} link set {name} up"));
        }
    }

    fn set(&self, space: &str, what: &str) {
        let mut command = Command::new("ip");
        let command = command.args(["netns", "exec", space, "sysctl", "-qw", what]);
        assert!(command.status().expect("sysctl").success(), "{what}");
    }

    fn text(&self, keys: &str) -> String {
        let at = |name: &str| self.directory.join(name).display().to_string();
        format!(
            "[switch]\nsocket = \"{}\"\n{WAITS}[[port]]\nname = \"wire\"\nxdp = \"sgnear\"\n{keys}\n\
             [[port]]\nname = \"vm\"\nvhost_user = \"{}\"\n",
            at("switch.sock"),
            at("vm.sock")
        )
    }

    fn start(&self, keys: &str) -> anyhow::Result<Service> {
        self.start_with(self.text(keys))
    }

    fn start_with(&self, text: String) -> anyhow::Result<Service> {
        self.spaces.within(0, move || {
            Service::start(Config::parse("test", &text).expect("a configuration"))
        })
    }

    fn new(keys: &str) -> Self {
        let mut place = Self::bare();
        let service = place.start(keys).expect("a switch");
        place.service = Some(Arc::new(service));
        place
    }

    /// With this key of the switch.
    fn with_switch(key: &str) -> Self {
        let mut place = Self::bare();
        let table = format!("[switch]\n{key}\n");
        let text = place.text("").replacen("[switch]\n", &table, 1);
        let service = place.start_with(text).expect("a switch");
        place.service = Some(Arc::new(service));
        place
    }

    fn guest(&self, features: u64) -> Guest {
        Guest::connect(&self.directory.join("vm.sock"), features)
    }

    /// A socket at the far end.
    fn wire(&self) -> Wire {
        self.socket(1, "sgfar")
    }

    /// A socket of the host itself at the switch's interface.
    fn host(&self) -> Wire {
        self.socket(0, "sgnear")
    }

    fn socket(&self, space: usize, interface: &'static str) -> Wire {
        Wire(self.spaces.within(space, move || {
            let kind = SocketType::RAW;
            // ETH_P_ALL: 16 bits in network order.
            let all = NonZeroU32::new(u32::from(3u16.to_be())).expect("no zero");
            let all = Protocol::from_raw(all);
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(AddressFamily::PACKET, kind, flags, Some(all));
            let socket = socket.expect("a socket: be root");
            sockopt::set_socket_recv_buffer_size_force(&socket, 64 << 20).expect("a long queue");
            let index = name_to_index(&socket, interface).expect("an interface");
            bind_to(&socket, index);
            socket
        }))
    }

    fn service(&self) -> &Service {
        self.service.as_ref().expect("a switch")
    }

    fn ask<T: Send + 'static>(&self, order: impl FnOnce(&mut Worker) -> T + Send + 'static) -> T {
        self.service().handle().call(order).expect("it runs")
    }

    /// What the kernel has dropped.
    fn kernel(&self) -> KernelDrops {
        self.ask(|worker| {
            let mut bays = worker.engine.bays();
            bays.find_map(|(_, bay)| match &bay.port {
                Port::Xdp(xdp) => Some(xdp.drops()),
                _ => None,
            })
            .expect("a port")
        })
    }

    /// What the switch has dropped at its ports.
    fn dropped(&self) -> u64 {
        let each = self.service().each(|worker| {
            let bays = worker.engine.bays();
            bays.map(|(_, bay)| bay.counters.dropped()).sum::<u64>()
        });
        each.expect("it runs").iter().sum()
    }

    /// What it has dropped because its exit has a share, and no more.
    fn beyond_share(&self) -> u64 {
        let each = self.service().each(|worker| {
            let bays = worker.engine.bays();
            bays.map(|(_, bay)| bay.counters.drops[count::Drop::Share as usize])
                .sum::<u64>()
        });
        each.expect("it runs").iter().sum()
    }

    /// Frames that the far end dropped on their way out.
    fn far_drops(&self) -> u64 {
        let space = self.spaces.name(1);
        let mut command = Command::new("ip");
        command.args(["-n", space, "-j", "-s", "link", "show", "sgfar"]);
        let output = command.output().expect("ip").stdout;
        let value: Value = serde_json::from_slice(&output).expect("JSON");
        value[0]["stats64"]["tx"]["dropped"]
            .as_u64()
            .expect("a count")
    }

    /// Whether an interface has a program.
    fn has_program(&self) -> bool {
        let space = self.spaces.name(0);
        let mut command = Command::new("ip");
        command.args(["-n", space, "-j", "link", "show", "sgnear"]);
        let output = command.output().expect("ip").stdout;
        let value: Value = serde_json::from_slice(&output).expect("JSON");
        value[0].get("xdp").is_some()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(service) = &self.service {
            service.end();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Binds a packet socket to an interface.
#[allow(unsafe_code)] // rustix knows no addresses of packet sockets
fn bind_to(socket: &OwnedFd, index: u32) {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 3u16.to_be(),
        sll_ifindex: index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let bytes = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: the address is a valid structure of so many bytes, which the call copies.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) };
    assert_eq!(bound, 0, "a packet socket is bound");
}

/// The far end of the pair.
struct Wire(OwnedFd);

impl Wire {
    /// False: its interface had no room.
    fn send(&self, frame: &[u8]) -> bool {
        send(&self.0, frame, SendFlags::DONTWAIT).is_ok()
    }

    fn receive(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 4096];
        let (_, length) = recv(&self.0, &mut bytes[..], RecvFlags::DONTWAIT).ok()?;
        bytes.truncate(length);
        Some(bytes)
    }

    fn expect(&self) -> Vec<u8> {
        let mut frame = None;
        until("a frame", || {
            frame = self.receive();
            frame.is_some()
        });
        frame.expect("a frame")
    }
}

/// The guest is 1, the world is 2; both are heard.
fn introduce(guest: &mut Guest, wire: &Wire) {
    assert!(guest.send(&frame([0xff; 6], mac(1), 0, 60)));
    assert_eq!(number(&wire.expect()), (1, 0));
    assert!(wire.send(&frame([0xff; 6], mac(2), 0, 60)));
    assert_eq!(number(&guest.expect()), (2, 0));
}

#[test]
fn frames_pass_between_a_guest_and_an_interface_both_ways() {
    let place = Place::new("");
    let (mut guest, wire) = (place.guest(PLAIN), place.wire());
    introduce(&mut guest, &wire);
    for count in 0..5000 {
        let bytes = if count % 3 == 0 { 1514 } else { 60 };
        until("room", || guest.send(&frame(mac(2), mac(1), count, bytes)));
        assert!(wire.send(&frame(mac(1), mac(2), count, bytes)));
        assert_eq!(number(&wire.expect()), (1, count));
        assert_eq!(number(&guest.expect()), (2, count));
    }
    assert_eq!(place.dropped(), 0);
    let kernel = place.kernel();
    assert_eq!(kernel.interface_rx, Some(0));
    assert_eq!(
        KernelDrops {
            interface_rx: None,
            interface_tx: None,
            ..kernel
        },
        KernelDrops::default()
    );
}

#[test]
fn what_a_guest_leaves_to_its_adapter_is_done_before_an_interface() {
    let place = Place::new("");
    let (mut guest, wire) = (place.guest(LINUX), place.wire());
    introduce(&mut guest, &wire);
    let (bytes, header) = segment(mac(2), mac(1), 64_000);
    guest.send_long(header, &bytes);
    let mut payload: Vec<u8> = Vec::new();
    while payload.len() < 64_000 {
        let frame = wire.expect();
        assert!(frame.len() <= 54 + 1400);
        // The sum over pseudo header, header and payload of TCP is all ones.
        let tcp = &frame[34..];
        let mut sum = 6 + tcp.len() as u32;
        for pair in frame[26..34].chunks(2).chain(tcp.chunks(2)) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        }
        let folded = (sum & 0xffff) + (sum >> 16);
        assert_eq!((folded & 0xffff) + (folded >> 16), 0xffff, "its checksum");
        payload.extend(&frame[54..]);
    }
    assert!(payload == bytes[54..], "the segment came in frames");
    assert_eq!(place.dropped(), 0);
}

#[test]
fn what_the_kernel_drops_on_its_way_in_is_counted_by_place() {
    let place = Place::new("ring = 64");
    let (mut guest, wire) = (place.guest(PLAIN), place.wire());
    introduce(&mut guest, &wire);
    let mut sent = 0;
    let mut flood = |frames: u32| {
        for _ in 0..frames {
            sent += u64::from(wire.send(&frame(mac(1), mac(2), sent, 60)));
        }
    };
    // The guest takes nothing: its ring fills, then its share of the port's memory.
    until("frames beyond the share", || {
        flood(100);
        place.beyond_share() > 0
    });
    // What comes while the switch does not look finds no buffer in the end.
    common::halted(place.service(), || flood(BEYOND_BUFFERS));
    let came = guest.drain();
    let numbers: Vec<_> = came.iter().map(|frame| number(frame).1).collect();
    assert!(numbers.is_sorted(), "they came in order");
    let came = came.len() as u64;
    let mut told = String::new();
    until("every frame to be told of", || {
        let (kernel, beyond) = (place.kernel(), place.dropped());
        let lost = kernel.xdp_no_buffer + kernel.xdp_ring_full + kernel.xdp_dropped;
        told = format!("{came} of {sent} came, {beyond} beyond the share: {kernel:?}");
        came + beyond + lost + place.far_drops() == sent
    });
    assert!(came >= u64::from(SIZE), "{told}");
    assert!(place.kernel().xdp_no_buffer > 0, "{told}");
    let dropped = place.dropped();
    assert_eq!(dropped, place.beyond_share(), "it has a share, and no more");
    // It goes on.
    assert!(wire.send(&frame(mac(1), mac(2), 7, 60)));
    assert_eq!(number(&guest.expect()), (2, 7));
    assert_eq!(place.dropped(), dropped);
}

#[test]
fn a_receiver_of_another_thread_that_takes_nothing_has_a_share_of_an_interface() {
    let mut place = Place::bare();
    let text = place.text("thread = 0");
    let text = text.replacen("[switch]\n", "[switch]\nthreads = 2\n", 1);
    let socket = place.directory.join("live.sock");
    let ports = format!(
        "thread = 1\n[[port]]\nname = \"live\"\nvhost_user = \"{}\"\nthread = 0\n",
        socket.display()
    );
    place.service = Some(Arc::new(place.start_with(text + &ports).expect("a switch")));
    let (mut dead, wire) = (place.guest(PLAIN), place.wire());
    introduce(&mut dead, &wire);
    let mut live = Guest::connect(&socket, PLAIN);
    assert!(live.send(&frame(mac(2), mac(3), 0, 60)));
    assert_eq!(number(&wire.expect()), (3, 0));
    until("frames beyond the share", || {
        for number in 0..100 {
            wire.send(&frame(mac(1), mac(2), number, 60));
        }
        place.beyond_share() > 0
    });
    for number in 0..1000 {
        until("room", || wire.send(&frame(mac(3), mac(2), number, 60)));
        assert_eq!(common::number(&live.expect()), (2, number));
    }
}

/// A neighbour's LLDP is for the host's own daemons, unless the switch is to relay it.
#[test]
fn frames_for_the_neighbour_reach_the_host() {
    for (switch, relayed) in [("", false), ("relay_reserved = [\"lldp\"]", true)] {
        let place = Place::with_switch(switch);
        let (mut guest, wire, host) = (place.guest(PLAIN), place.wire(), place.host());
        introduce(&mut guest, &wire);
        let to = |last: u8| [0x01, 0x80, 0xc2, 0, 0, last];
        for last in [0, 2, 14] {
            assert!(wire.send(&frame(to(last), mac(2), u64::from(last), 60)));
        }
        let expected: &[u8] = if relayed { &[0, 2] } else { &[0, 2, 14] };
        for &last in expected {
            assert_eq!(host.expect()[..6], to(last));
        }
        if relayed {
            assert_eq!(guest.expect()[..6], to(14));
        }
        assert!(guest.receive().is_none());
        assert_eq!(place.dropped(), 0, "the switch has not seen them");
    }
}

#[test]
fn what_goes_out_arrives_or_is_counted() {
    let place = Place::new("ring = 64");
    let (mut guest, wire) = (place.guest(PLAIN), place.wire());
    introduce(&mut guest, &wire);
    const FRAMES: u64 = 50_000;
    let done = Arc::new(AtomicBool::new(false));
    let reader = thread::spawn({
        let done = Arc::clone(&done);
        move || {
            let mut came = Vec::new();
            loop {
                let last = done.load(Ordering::Acquire);
                while let Some(frame) = wire.receive() {
                    came.push(number(&frame).1);
                }
                if last {
                    return came;
                }
                thread::sleep(Duration::from_micros(100));
            }
        }
    });
    for count in 0..FRAMES {
        until("room", || guest.send(&frame(mac(2), mac(1), count, 60)));
    }
    until("all to be sent", || guest.room() == usize::from(SIZE));
    thread::sleep(Duration::from_millis(500));
    done.store(true, Ordering::Release);
    let came = reader.join().expect("it read");
    assert!(came.is_sorted(), "they came in order");
    let kernel = place.kernel();
    assert_eq!(
        came.len() as u64 + kernel.xdp_tx_dropped,
        FRAMES,
        "{kernel:?}"
    );
    assert_eq!((place.dropped(), kernel.xdp_tx_invalid), (0, 0));
}

#[test]
fn an_interface_that_is_down_or_goes_closes_its_port_and_no_other() {
    let place = Place::new("");
    let (mut guest, wire) = (place.guest(PLAIN), place.wire());
    introduce(&mut guest, &wire);
    let about = || {
        place.ask(|worker| {
            let mut bays = worker.engine.bays();
            let bay = bays.find(|(_, bay)| bay.name == "wire").expect("a port").1;
            (bay.port.is_up(), bay.closed.clone())
        })
    };
    assert_eq!(about(), (true, None));
    let near = place.spaces.name(0);
    ip(&format!("-n {near} link set sgnear down"));
    until("it is down", || !about().0);
    assert!(guest.send(&frame(mac(2), mac(1), 1, 60)));
    until("it is dropped", || place.dropped() == 1);
    ip(&format!("-n {near} link set sgnear up"));
    until("it is up", || about() == (true, None));
    until("a frame", || {
        wire.send(&frame(mac(1), mac(2), 2, 60)) && guest.receive().is_some()
    });
    ip(&format!("-n {near} link del sgnear"));
    until("it is closed", || about().1.is_some());
    let (is_up, reason) = about();
    assert!(!is_up && reason.expect("a reason").contains("sgnear has gone"));
    assert!(guest.send(&frame(mac(2), mac(1), 3, 60)));
    until("it is dropped", || place.dropped() == 2);
    // A reload opens it again once it is back.
    place.pair();
    let text = place.text("");
    let service = Arc::clone(place.service.as_ref().expect("a switch"));
    let reload = place.spaces.within(0, move || {
        service.reload(Config::parse("test", &text).expect("a configuration"))
    });
    assert_eq!(reload.expect("reloaded").added, ["wire"]);
    let wire = place.wire();
    assert!(guest.send(&frame([0xff; 6], mac(1), 4, 60)));
    assert_eq!(number(&wire.expect()), (1, 4));
}

#[test]
fn what_cannot_be_had_is_refused_with_what_to_do() {
    let place = Place::bare();
    let refused = |keys: &str| {
        let error = place.start(keys).err().expect("it is refused");
        format!("{error:#}")
    };
    let error = refused("mode = \"zero-copy\"");
    assert!(error.contains("no zero-copy here"), "{error}");
    let error = refused("queues = 8");
    assert!(error.contains("has 1 queues, not 8"), "{error}");
    let near = place.spaces.name(0);
    for (from, to) in [("sgnear", "sgaway"), ("sgaway", "sgnear")] {
        if from == "sgaway" {
            let error = refused("");
            assert!(error.contains("there is no interface sgnear"), "{error}");
        }
        ip(&format!("-n {near} link set {from} down"));
        ip(&format!("-n {near} link set {from} name {to} up"));
    }
    ip(&format!("-n {near} link set sgnear mtu 9000"));
    let error = refused("");
    assert!(
        error.contains("MTU of 9000") && error.contains("link set"),
        "{error}"
    );
    ip(&format!("-n {near} link set sgnear mtu 1500"));
    let object = concat!(env!("OUT_DIR"), "/xdp_port.bpf.o");
    ip(&format!(
        "-n {near} link set sgnear xdp obj {object} sec xdp"
    ));
    let error = refused("");
    assert!(error.contains("ip link set sgnear xdp off"), "{error}");
    ip(&format!("-n {near} link set sgnear xdp off"));
    let error = without_rights(&place);
    assert!(error.contains("be root"), "{error}");
    let first = place.start("").expect("a switch");
    assert!(place.has_program());
    let second = place
        .text("")
        .replace("switch.sock", "b.sock")
        .replace("vm.sock", "c.sock");
    let error = place.spaces.within(0, move || {
        let config = Config::parse("test", &second).expect("a configuration");
        format!("{:#}", Service::start(config).err().expect("it is refused"))
    });
    assert!(error.contains("another program has queue 0"), "{error}");
    first.end();
    drop(first);
    assert!(!place.has_program(), "it goes with its switch");
}

/// What a switch says that has no rights of root.
fn without_rights(place: &Place) -> String {
    let file = place.directory.join("plain.toml");
    fs::write(&file, place.text("")).expect("a file");
    let mut command = Command::new("ip");
    command.args(["netns", "exec", place.spaces.name(0), "setpriv"]);
    command.args(["--bounding-set=-all", "--inh-caps=-all"]);
    let command = command.arg(env!("CARGO_BIN_EXE_test-switch")).arg(&file);
    let output = command.output().expect("setpriv, of util-linux");
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A switch as a process of its own, in a namespace.
struct Process(Child);

impl Process {
    fn start(place: &Place, take_over: bool) -> Self {
        let file = place.directory.join("switch.toml");
        fs::write(&file, place.text("ring = 256")).expect("a file");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", place.spaces.name(0)]);
        command.arg(env!("CARGO_BIN_EXE_test-switch")).arg(&file);
        if take_over {
            command.arg("--take-over");
        }
        Self(command.stdin(Stdio::null()).spawn().expect("a switch"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_switch_that_is_killed_leaves_no_program() {
    let place = Place::bare();
    let wire = place.wire();
    let mut process = Process::start(&place, false);
    let socket = place.directory.join("vm.sock");
    until("a switch", || socket.exists() && place.has_program());
    let mut guest = place.guest(PLAIN);
    introduce(&mut guest, &wire);
    process.0.kill().expect("killed");
    process.0.wait().expect("it ended");
    until("no program", || !place.has_program());
    // Another one has the interface at once.
    let _process = Process::start(&place, false);
    until("a program", || place.has_program());
    until("it is there", || guest.reconnect(&socket, PLAIN).is_some());
    until("a frame", || guest.send(&frame([0xff; 6], mac(1), 9, 60)));
    assert_eq!(number(&wire.expect()), (1, 9));
}

#[test]
fn sockets_and_memory_go_over_at_an_upgrade() {
    let place = Place::bare();
    let wire = place.wire();
    let mut process = Process::start(&place, false);
    until("a switch", || place.directory.join("vm.sock").exists());
    let mut guest = place.guest(PLAIN);
    introduce(&mut guest, &wire);
    let control = place.directory.join("switch.sock");
    until("it answers", || control::ask(&control, Ask::Show).is_ok());
    let (mut next, mut came, mut back, mut seen) = (1u64, 0u64, 0u64, 0u64);
    for round in 0..5 {
        let mut successor = Process::start(&place, true);
        let start = Instant::now();
        let mut ended = false;
        while !ended || seen < next - 1 || came < back {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "round {round}: {seen} {next}"
            );
            ended = ended || process.0.try_wait().expect("it is asked").is_some();
            // No more than the rings hold is on its way, so that nothing may be lost.
            if !ended && next - seen < 100 {
                assert!(wire.send(&frame(mac(1), mac(2), next, 60)));
                next += 1;
            }
            if !ended && back - came < 100 && guest.send(&frame(mac(2), mac(1), back, 60)) {
                back += 1;
            }
            while let Some((_, frame)) = guest.receive() {
                seen += 1;
                assert_eq!(number(&frame), (2, seen));
            }
            while let Some(frame) = wire.receive() {
                assert_eq!(number(&frame), (1, came));
                came += 1;
            }
        }
        assert!(successor.0.try_wait().expect("it is asked").is_none());
        process = successor;
    }
    assert!(
        place.has_program() && seen > 500 && came > 500,
        "{seen} {came}"
    );
}
