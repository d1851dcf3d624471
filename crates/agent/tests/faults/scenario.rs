//! Frames that reach every place in the programs where the kernel may refuse something.

use std::{
    collections::BTreeSet,
    net::{SocketAddr, TcpListener, TcpStream},
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

use sluicegate_core::{
    abi::{
        BUCKET_ENFORCE, BUCKET_NONE, Bucket, CLASS_NAMES, Config, Flow, FlowKey, Interface, Place,
        Scope, Slot,
    },
    hash::flow_hash,
    host::{Action, Direction, Outcome, edit, tcp},
    segment::Segment,
};

use crate::{
    faults::site::{self, Site},
    kernel::{self, Kernel, Made, key_between},
    net::{Packet, Route, invariants, opt, wire},
};

/// Number that the test's own network namespace has for itself.
const NETNS: i32 = 7;
/// `SG_CHECKSUM_COMPLETE`.
const CHECKSUM_COMPLETE: u32 = 2;
/// Longer than a timer of 50 ms takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
const OUT: Direction = Direction::FromTenant;
const IN: Direction = Direction::ToTenant;

/// A tenant's connection that was open before the programs came.
pub struct Socket {
    near: TcpStream,
    _far: TcpStream,
}

impl Socket {
    /// In the namespace of the calling thread, which gets its number for itself.
    pub fn open() -> Self {
        let name = format!("sgf-{}", std::process::id());
        // SAFETY: asks for a number.
        let thread = unsafe { libc::gettid() }.to_string();
        ip(&["netns", "attach", &name, &thread]);
        ip(&["netns", "set", &name, &NETNS.to_string()]);
        ip(&["netns", "del", &name]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        Self { near, _far: far }
    }

    fn route(&self) -> Route {
        let address = |at: std::io::Result<SocketAddr>| at.unwrap().to_string();
        Route::new(
            &address(self.near.local_addr()),
            &address(self.near.peer_addr()),
        )
    }
}

fn ip(arguments: &[&str]) {
    let status = Command::new("ip").args(arguments).status();
    assert!(status.expect("iproute2 is installed").success());
}

/// One pass through the scenario.
pub struct Run<'a> {
    kernel: &'a Kernel,
    failing: Option<&'a Site>,
    all: &'a [Site],
    now_ns: u64,
    /// Whether each frame went on.
    pub passes: Vec<bool>,
    /// Numbers of the places that were reached.
    pub met: BTreeSet<usize>,
}

/// One end's view of a connection whose tenant is the client.
#[derive(Clone, Copy)]
struct Talk {
    route: Route,
    own: u32,
    peer: u32,
}

impl Talk {
    fn on(port: u16) -> Self {
        Self::of(Route::new(&format!("10.1.0.1:{port}"), "10.2.0.1:5001"))
    }

    fn of(route: Route) -> Self {
        Self {
            route,
            own: 100_000,
            peer: 500_000,
        }
    }

    fn syn(&self, options: &[&[u8]]) -> Packet {
        Packet {
            seq: self.own.wrapping_sub(1),
            flags: tcp::SYN,
            window: 64_000,
            options: opt::all(&[&[&opt::mss(1460)[..], &opt::wscale(7)], options].concat()),
            ..Packet::default()
        }
    }

    fn answer(&self) -> Packet {
        Packet {
            seq: self.peer.wrapping_sub(1),
            ack: self.own,
            flags: tcp::SYN | tcp::ACK,
            window: 65_000,
            options: opt::all(&[&opt::mss(1460), &opt::wscale(7), &opt::peer(0)]),
            ..Packet::default()
        }
    }

    fn own(&self, at: u32, len: usize) -> Packet {
        Packet {
            seq: self.own + at,
            ack: self.peer,
            flags: tcp::ACK,
            window: 1000,
            payload: vec![0x5a; len],
            ..Packet::default()
        }
    }

    fn peers(&self, at: u32, ack: u32, len: usize) -> Packet {
        Packet {
            seq: self.peer + at,
            ack: self.own + ack,
            flags: tcp::ACK,
            window: 65_000,
            payload: vec![0xa5; len],
            ecn: 2,
            ..Packet::default()
        }
    }

    fn key(&self) -> FlowKey {
        key_between(self.route.from, self.route.to)
    }
}

/// A peer that offers `offered` connects with a tenant of jumbo frames, which is the server or the
/// client: the MSS that the tenant reads, and the flow.
pub fn read_mss(kernel: &Kernel, server: bool, offered: u16) -> (u16, Flow) {
    let talk = Talk::on(40_000);
    let options = opt::all(&[&opt::mss(offered), &opt::wscale(7)]);
    let own = opt::all(&[&opt::mss(8960), &opt::wscale(7), &opt::peer(0)]);
    let (syn, answer) = (talk.syn(&[&opt::mss(8960)]), talk.answer());
    let (syn, answer) = match server {
        true => (
            Packet {
                seq: talk.peer.wrapping_sub(1),
                options,
                ..syn
            },
            Packet {
                seq: talk.own.wrapping_sub(1),
                ack: talk.peer,
                options: own,
                ..answer
            },
        ),
        false => (syn, Packet { options, ..answer }),
    };
    let mut read = 0;
    for (packet, direction) in match server {
        true => [(&syn, IN), (&answer, OUT)],
        false => [(&syn, OUT), (&answer, IN)],
    } {
        let route = match direction {
            OUT => talk.route,
            IN => talk.route.reversed(),
        };
        let made = kernel.frame(&route.build(packet), direction, 1_000_000_000);
        assert!(made.passes);
        if direction == IN {
            let seen = wire::read(&made.frame).1;
            let at = seen.options.iter().position(|kind| *kind == 2).unwrap();
            read = u16::from_be_bytes([seen.options[at + 2], seen.options[at + 3]]);
        }
    }
    (read, kernel.flow(&talk.key()).expect("a flow"))
}

impl<'a> Run<'a> {
    pub fn new(kernel: &'a Kernel, failing: Option<&'a Site>, all: &'a [Site]) -> Self {
        let run = Self {
            kernel,
            failing,
            all,
            now_ns: 1_000_000_000,
            passes: Vec::new(),
            met: BTreeSet::new(),
        };
        run.keep_for(u64::MAX);
        for map in [
            "half_open",
            "crowd",
            "remembered",
            "blackholes",
            "places",
            "buckets",
            "interfaces",
        ] {
            kernel.clear(map);
        }
        site::set(kernel, failing, 0);
        run
    }

    /// Open flows are forgotten after this silence.
    fn keep_for(&self, idle_ns: u64) {
        let config = Config {
            idle_ns,
            closed_ns: idle_ns,
            ..Config::default()
        };
        self.kernel.write("config", &0_u32, &config);
    }

    fn context(&self) -> String {
        let site = self.failing.map_or("nothing fails".into(), Site::to_string);
        format!("{site}: frame {}", self.passes.len())
    }

    /// Takes note of what was met, and begins anew.
    fn set(&mut self, failing: Option<&Site>, ip_summed: u32) {
        let met = self.all.iter().filter(|site| site::met(self.kernel, site));
        self.met.extend(met.map(|site| site.number));
        site::set(self.kernel, failing, ip_summed);
    }

    fn run(&mut self, frame: &[u8], direction: Direction) -> Made {
        self.now_ns += 1_000;
        let made = self.kernel.frame(frame, direction, self.now_ns);
        self.passes.push(made.passes);
        made
    }

    /// A frame that is none of a flow's: it passes as it is or not at all.
    fn other(&mut self, frame: &[u8]) {
        let context = self.context();
        let made = self.run(frame, OUT);
        assert_eq!(made.frame, frame, "{context}");
    }

    /// With bytes behind its packet a frame leaves without them.
    fn with_a_tail(&mut self, talk: &Talk) {
        let alone = talk.route.build(&talk.own(0, 0));
        let mut frame = alone.clone();
        frame.extend([0x5a; 40]);
        self.now_ns += 1_000;
        let made = self.kernel.frame(&frame, OUT, self.now_ns);
        let cut = made.passes && made.frame.len() < frame.len();
        // It passes whole where the programs are without their own memory, or their rules.
        assert!(
            cut || self.failing.is_some(),
            "{}: {made:?}",
            self.context()
        );
    }

    /// A segment; what was made of it is fit to go on.
    fn pass(&mut self, talk: &Talk, packet: &Packet, direction: Direction) -> Made {
        let route = match direction {
            OUT => talk.route,
            IN => talk.route.reversed(),
        };
        let before = route.build(packet);
        let context = self.context();
        let made = self.run(&before, direction);
        let outcome = Outcome {
            action: if made.passes {
                Action::Pass
            } else {
                Action::Drop
            },
            edits: !(edit::HIDE_MPTCP | edit::ACK | edit::SEQ | edit::BLANK_REST | edit::MSS),
            window: None,
            segment: Segment::default(),
            fack: None,
            unheld: false,
        };
        let checked = std::panic::catch_unwind(|| {
            invariants::check(&before, &made.frame, direction, &outcome);
        });
        assert!(checked.is_ok(), "{context}: {packet:?}");
        made
    }

    /// Data that go with a SYN (RFC 7413), which the peer acknowledges.
    fn fast_open(&mut self, talk: &Talk) {
        let syn = Packet {
            payload: vec![0x5a; 99],
            ..talk.syn(&[])
        };
        self.pass(talk, &syn, OUT);
        let answer = Packet {
            ack: talk.own + 99,
            ..talk.answer()
        };
        self.pass(talk, &answer, IN);
        self.pass(talk, &talk.own(99, 0), OUT);
    }

    /// What hosts add to SYNs does not arrive: the third goes without, and is answered.
    fn fall_back(&mut self, talk: &Talk) {
        for _ in 0..3 {
            self.now_ns += 300_000_000;
            self.pass(talk, &talk.syn(&[]), OUT);
        }
        let answer = Packet {
            options: opt::all(&[&opt::mss(1460), &opt::wscale(7)]),
            ..talk.answer()
        };
        // The peer repeats it.
        for _ in 0..2 {
            self.pass(talk, &answer, IN);
        }
        self.pass(talk, &talk.own(0, 1460), OUT);
    }

    fn connect(&mut self, talk: &Talk) {
        // A tenant is no host: its own option goes, the host's comes.
        self.pass(talk, &talk.syn(&[&opt::peer(0)]), OUT);
        self.pass(talk, &talk.answer(), IN);
        self.pass(talk, &talk.own(0, 0), OUT);
    }

    /// Data and acknowledgements both ways, with options in every place.
    fn converse(&mut self, talk: &Talk) {
        self.connect(talk);
        for at in 0..4 {
            self.pass(talk, &talk.own(at * 1460, 1460), OUT);
        }
        let feedback = |e0b: u32| opt::feedback(1 + e0b, 0);
        let stamps = opt::timestamps(1, 2);
        let sack = opt::sack(&[(talk.own + 4380, talk.own + 5840)]);
        let behind = [&[opt::NOP; 4][..], &feedback(2920)].concat();
        for (ack, options) in [
            (1460, feedback(1460)),
            (2920, [&stamps[..], &feedback(2920)].concat()),
            (2920, [&feedback(2920)[..], &sack].concat()),
            (4380, behind),
        ] {
            let packet = Packet {
                options,
                ..talk.peers(0, ack, 0)
            };
            self.pass(talk, &packet, IN);
        }
        for (at, ecn) in [(0, 2), (1460, 3), (2920, 2)] {
            let packet = Packet {
                ecn,
                ..talk.peers(at, 4380, 1460)
            };
            self.pass(talk, &packet, IN);
        }
        for options in [Vec::new(), stamps, feedback(77)] {
            let packet = Packet {
                options,
                ..talk.own(5840, 0)
            };
            self.pass(talk, &packet, OUT);
        }
        self.with_a_tail(talk);
        self.fack(talk);
        // Beyond every window that it was shown.
        self.pass(talk, &talk.own(10_000_000, 1460), OUT);
    }

    /// Much arrives while the tenant sends nothing but data: its copy carries the feedback.
    fn fack(&mut self, talk: &Talk) {
        for i in 0..50 {
            self.pass(talk, &talk.peers(10_000 + i * 1460, 4380, 1460), IN);
        }
        let data = talk.own(5840, 1000);
        self.pass(talk, &data, OUT);
        // Whatever goes wrong, the copy alone is lost.
        let copy = self.kernel.fack(&talk.route.build(&data), self.now_ns);
        if copy.passes {
            let (_, fack) = wire::read(&copy.frame);
            assert!(fack.payload.is_empty(), "{}", self.context());
            assert_eq!(opt::peer_of(&fack.options), Some(1), "{}", self.context());
        }
        let fack = Packet {
            options: [opt::feedback(1 + 4380, 0), opt::peer(1)].concat(),
            ..talk.peers(0, 4380, 0)
        };
        self.pass(talk, &fack, IN);
    }

    pub fn conversations(&mut self) {
        let six = Route::new("[fd00::1]:40000", "[fd00::2]:5001");
        let tagged = Route {
            vlan: Some(7),
            ..Route::new("10.1.0.1:40001", "10.2.0.1:5001")
        };
        for route in [Talk::on(40_000).route, six, tagged] {
            self.converse(&Talk::of(route));
        }
        // Opened by the peer, with checksums that are a device's.
        self.set(self.failing, CHECKSUM_COMPLETE);
        self.converse(&Talk::on(40_002));
        self.fast_open(&Talk::on(40_005));
        let behind_device = Route::new("10.1.0.1:40006", "10.3.0.1:5001");
        self.fall_back(&Talk::of(behind_device));
        let talk = Talk::on(40_003);
        let mut syn = talk.answer();
        (syn.flags, syn.ack) = (tcp::SYN, 0);
        self.pass(&talk, &syn, IN);
        let mut answer = talk.syn(&[]);
        (answer.flags, answer.ack) = (tcp::SYN | tcp::ACK, talk.peer);
        self.pass(&talk, &answer, OUT);
        self.set(self.failing, 0);
        // The same port again.
        let again = Talk {
            own: 900_000,
            ..Talk::on(40_000)
        };
        self.connect(&again);
        self.pass(&again, &again.own(0, 1460), OUT);
    }

    /// Another CPU has the flow, for good, and has taken a slot for it as well.
    pub fn contention(&mut self) {
        let talk = Talk::on(40_002);
        if self.kernel.flow(&talk.key()).is_some() {
            self.kernel.hold(&talk.key(), true);
            self.pass(&talk, &talk.own(6840, 1460), OUT);
            self.kernel.hold(&talk.key(), false);
        } else {
            self.pass(&talk, &talk.own(6840, 1460), OUT);
        }
        let twice = Talk::on(40_004);
        self.double(&twice.key());
        self.connect(&twice);
    }

    /// A slot for this flow, far from its home.
    fn double(&self, key: &FlowKey) {
        let tag =
            flow_hash(key, &sluicegate_core::abi::HashKey::FIXED) | sluicegate_core::abi::SLOT_LIVE;
        let home = tag >> (32 - kernel::SLOTS.ilog2());
        let free = (8..32)
            .map(|away| (home + away) % kernel::SLOTS)
            .find(|at| {
                let slot: Slot = self.kernel.read("flows", at).unwrap();
                slot.tag == 0
            });
        let slot = Slot {
            tag,
            key: *key,
            ..Slot::default()
        };
        let at = free.expect("room");
        self.kernel.write("flows", &at, &slot);
        let mut occupied: [u64; 64] = self.kernel.read("occupied", &0_u32).unwrap();
        occupied[at as usize / 64] |= 1 << (at % 64);
        self.kernel.write("occupied", &0_u32, &occupied);
    }

    /// Connections that are older than the programs.
    pub fn strangers(&mut self, socket: &Socket) {
        let place = Place {
            scope: Scope::ALL,
            bucket: [BUCKET_NONE; CLASS_NAMES.len()],
            netns: NETNS,
            pad: 0,
        };
        self.kernel.set_place(&place);
        // Of the last one only the SYN/ACK is read, which comes twice.
        let answered = Talk::on(40_011);
        for _ in 0..2 {
            self.pass(&answered, &answered.answer(), IN);
        }
        for talk in [Talk::of(socket.route()), Talk::on(40_005), answered] {
            self.pass(&talk, &talk.own(0, 1460), OUT);
            self.pass(&talk, &talk.peers(0, 1460, 0), IN);
        }
    }

    /// Packets without a flow, beyond the rate of their bucket.
    pub fn buckets(&mut self) {
        let class = |name| CLASS_NAMES.iter().position(|known| *known == name).unwrap();
        let mut place = Place {
            scope: Scope::ALL,
            bucket: [BUCKET_NONE; CLASS_NAMES.len()],
            netns: -1,
            pad: 0,
        };
        for name in ["udp", "fragment"] {
            place.bucket[class(name)] = 3;
        }
        place.bucket[class("watched-tcp")] = 4;
        self.kernel.set_place(&place);
        for (number, burst_ns) in [(3, 1_000_000), (4, 1_000_000_000)] {
            let bucket = Bucket {
                ps_per_byte: 1_000_000,
                burst_ns,
                mode: BUCKET_ENFORCE,
                ..Bucket::default()
            };
            self.kernel.set_bucket(number, &bucket);
        }
        let talk = Talk::on(40_006);
        let mut fragment = talk.route.build(&talk.own(0, 46));
        fragment[14 + 6] |= 0x20;
        let mut udp = vec![0; 100];
        udp[12..14].copy_from_slice(&[8, 0]);
        (udp[14], udp[14 + 3], udp[14 + 9]) = (0x45, 86, 17);
        for _ in 0..8 {
            self.other(&udp);
            self.other(&fragment);
        }
        self.pass(&talk, &talk.own(0, 1460), OUT);
    }

    /// An interface whose quota is used up.
    pub fn room(&mut self) {
        let row = |flows| Interface {
            flows,
            quota: 10,
            ..Interface::default()
        };
        self.kernel.set_interface(&row(10));
        self.connect(&Talk::on(40_007));
        // One that floods.
        self.kernel.set_interface(&Interface {
            unanswered: (self.now_ns >> 20) as u32 + 1024,
            ..row(0)
        });
        self.connect(&Talk::on(40_012));
        self.kernel.set_interface(&row(0));
        self.connect(&Talk::on(40_008));
    }

    /// Programs that the agent calls, on flows of which one was reset.
    pub fn the_agents_own(&mut self) {
        let talk = Talk::on(40_008);
        let rst = Packet {
            flags: tcp::RST,
            ..talk.peers(0, 0, 0)
        };
        self.pass(&talk, &rst, IN);
        self.kernel.call("rematch_flows");
        self.kernel.call("set_quota");
        self.conversations_go_on();
        self.kernel.call("forget_flows");
        self.connect(&Talk::on(40_009));
        let reset = Talk::on(40_010);
        self.connect(&reset);
        self.pass(&reset, &rst, IN);
    }

    fn conversations_go_on(&mut self) {
        let talk = Talk::on(40_008);
        self.pass(&talk, &talk.own(0, 1460), OUT);
        self.pass(&talk, &talk.peers(0, 1460, 0), IN);
    }

    fn is_empty(&self) -> bool {
        self.kernel.slots().iter().all(|slot| slot.tag == 0)
    }

    /// All have been silent for long: they are collected, and what is known of them is kept.
    pub fn silence(&mut self) {
        self.set(self.failing, 0);
        self.keep_for(1);
        // Some of the failing places keep the timer from starting.
        let _ = self.kernel.begin_sweeping();
        let (kernel, failing) = (self.kernel, self.failing);
        self.wait(|run| run.is_empty() || failing.is_some_and(|site| site::met(kernel, site)));
        self.keep_for(u64::MAX);
        // One of them speaks again.
        let talk = Talk::on(40_009);
        self.pass(&talk, &talk.own(0, 1460), OUT);
        self.pass(&talk, &talk.peers(0, 1460, 0), IN);
    }

    fn wait(&self, done: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            assert!(
                begun.elapsed() < PATIENCE,
                "{}: silent flows",
                self.context()
            );
            sleep(Duration::from_millis(5));
        }
    }

    /// Nothing fails any more.
    pub fn all_is_well_again(&mut self) {
        self.set(None, 0);
        self.kernel.set_interface(&Interface::default());
        let begun = self.kernel.begin_sweeping();
        assert!(begun.is_ok(), "{}: {begun:?}", self.context());
        self.keep_for(1);
        self.wait(Self::is_empty);
        self.keep_for(u64::MAX);
        let talk = Talk::on(41_000);
        self.connect(&talk);
        assert!(
            self.kernel.flow(&talk.key()).is_some(),
            "{}",
            self.context()
        );
        let data = self.pass(&talk, &talk.own(0, 1460), OUT);
        assert_eq!(wire::read(&data.frame).1.ecn, 2, "{}", self.context());
        assert!(!self.pass(&talk, &talk.own(10_000_000, 1460), OUT).passes);
        assert_eq!(self.kernel.call("forget_flows"), 0);
        assert!(self.is_empty());
    }
}
