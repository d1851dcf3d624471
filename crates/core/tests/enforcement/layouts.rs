//! Layouts of TCP options as stacks send them: hosts recognise each other through all of them.
//!
//! Layouts are written as p0f 3 writes them: `mss`, `sok`, `ts`, `ws`, `nop`, and `eol+n`, which is
//! EOL and n bytes behind it. Added here: `sackN` with N blocks, `tfoN` with a cookie of N bytes
//! (RFC 7413), `ccnew` (RFC 1644, kind 12), `accecn` with all three counters (RFC 9768).

use sluicegate_core::{
    abi::{Flow, MODE_ONE_SIDED, MODE_TWO_SIDED, REASON_NAMES},
    host::{Action, Direction, Host, Outcome, ecn, tcp},
};

use crate::net::{A, B, Packet, Route, invariants, opt, policy, wire};

/// A stack and what it sends.
type Layout = (&'static str, &'static str);

/// p0f 3.09b, `p0f.fp` (github.com/p0f/p0f at 8290794), SYNs.
const P0F3_SYN: &[Layout] = &[
    ("Linux 2.2 to 3, Android", LINUX),
    ("Linux without timestamps", "mss,nop,nop,sok,nop,ws"),
    ("Linux 2.0, NeXTSTEP, Nmap's scan", "mss"),
    ("Windows XP to 8", "mss,nop,nop,sok"),
    ("Windows XP to 8 with scaling", "mss,nop,ws,nop,nop,sok"),
    ("Windows 7 with timestamps", "mss,nop,ws,sok,ts"),
    ("a crawler on Windows 7", "mss,nop,nop,ts,nop,ws"),
    ("macOS and iOS", "mss,nop,ws,nop,nop,ts,sok,eol+1"),
    ("FreeBSD 8 and 9", "mss,nop,ws,sok,ts"),
    ("OpenBSD 3 to 5", "mss,nop,nop,sok,nop,ws,nop,nop,ts"),
    ("Solaris 8", "nop,ws,nop,nop,ts,nop,nop,sok,mss"),
    ("Solaris 10", "mss,nop,ws,nop,nop,sok"),
    ("OpenVMS 7 and 8, Tru64 4", "mss,nop,ws"),
    ("Blackberry", "mss,nop,nop,sok,nop,nop,ts"),
    ("Nintendo 3DS and Wii", "mss,nop,nop,sok"),
    (
        "Baidu's spider",
        "mss,sok,nop,nop,nop,nop,nop,nop,nop,nop,nop,nop,nop,ws",
    ),
    ("Nmap's probe 1", "mss,sok,ts"),
    ("Nmap's probe 2", "sok,ts,ws,eol+0"),
    ("Nmap's probe 3", "ws,nop,mss,ts,sok"),
    ("Nmap's probe 4", "mss,sok,ts,ws,eol+0"),
    ("Nmap's probe 5", "ts,nop,nop,ws,nop,mss"),
    ("Nmap's probe 6", "mss,ws,sok,ts,eol+0"),
    ("Nmap's probe for ECN", "ws,nop,mss,sok,nop,nop"),
    ("p0f-sendsyn", "mss,nop,eol+18"),
    ("p0f-sendsyn", "mss,ts,nop,eol+8"),
    ("p0f-sendsyn", "mss,ws,nop,eol+15"),
    ("p0f-sendsyn", "mss,sok,nop,eol+16"),
    ("p0f-sendsyn", "mss,ws,ts,nop,eol+5"),
    ("p0f-sendsyn", "mss,sok,ts,nop,eol+6"),
    ("p0f-sendsyn", "mss,ws,sok,nop,eol+13"),
    ("p0f-sendsyn", "mss,ws,sok,ts,nop,eol+3"),
];

/// The same file, SYN/ACKs that differ from any SYN: what the client did not offer is left out.
const P0F3_SYN_ACK: &[Layout] = &[
    ("Linux 2.4 to 3", "mss,nop,nop,ts"),
    ("Windows XP", "mss,nop,ws,nop,nop,ts"),
    ("Windows XP", "mss,nop,nop,ts,nop,nop,sok"),
    ("Windows XP", "mss,nop,ws,nop,nop,ts,nop,nop,sok"),
    ("FreeBSD 8 and 9, macOS", "mss,nop,ws,sok,eol+1"),
    ("FreeBSD 8 and 9, macOS", "mss,sok,eol+1"),
    ("macOS", "mss,nop,nop,ts,sok,eol+1"),
    ("Solaris 6 and 8", "nop,ws,mss"),
    ("Solaris 6 to 10", "nop,nop,ts,mss"),
    ("Solaris 6 and 8", "nop,nop,ts,nop,ws,mss"),
    ("Solaris 8", "nop,nop,sok,mss"),
    ("Solaris 8", "nop,ws,nop,nop,sok,mss"),
    ("Solaris 8", "nop,nop,ts,nop,nop,sok,mss"),
    ("Solaris 8", "nop,nop,ts,nop,ws,nop,nop,sok,mss"),
    ("Solaris 10", "nop,nop,ts,mss,nop,ws"),
    ("Solaris 10", "nop,nop,ts,mss,nop,nop,sok"),
    ("Solaris 10", "nop,nop,ts,mss,nop,ws,nop,nop,sok"),
    ("HP-UX 11", "mss,ws,nop"),
    ("HP-UX 11", "mss,ws,nop,nop,nop,ts"),
    ("HP-UX 11", "mss,nop,nop,sok,ws,nop"),
    ("HP-UX 11", "mss,nop,nop,sok,ws,nop,nop,nop,ts"),
];

/// p0f 2, SYNs (`scripts/base/misc/p0f.fp` of github.com/zeek/zeek at ef31099), not in version 3.
/// Lengths of padding follow from the packet's size, which version 2 has.
const P0F2_SYN: &[Layout] = &[
    ("AIX 5.3", "mss,nop,ws,nop,nop,ts,nop,nop,sok"),
    ("FreeBSD 4, QNX 6, OS/400, SCO", "mss,nop,ws,nop,nop,ts"),
    ("FreeBSD 6", "mss,nop,ws,nop,nop,ts,sok,eol+1"),
    ("NetBSD 3", "mss,nop,ws,sok,nop,nop,nop,nop,ts"),
    ("Solaris 9 without SACK", "mss,nop,nop,nop,nop"),
    ("Solaris 10", "mss,nop,nop,ts,nop,ws,nop,nop,sok"),
    ("Mac OS 8", "mss,ws,eol+0"),
    ("Mac OS 8", "mss,nop,nop,nop,eol+0"),
    ("Mac OS 9, HP-UX 11, Plan 9", "mss,ws,nop"),
    ("Windows Vista (beta)", "mss,ws,nop,nop,nop,sok"),
    ("ULTRIX 4.5, a cache by Dell", ""),
    ("NetWare 6", "mss,ws,nop,sok,nop,nop"),
    ("RISC OS, Nokia IPSO", "mss,nop,ws,nop,nop,ts,nop,nop,ccnew"),
    ("AmigaOS with Miami", "mss,nop,nop,sok,nop,nop,ccnew"),
    ("Checkpoint", "nop,nop,sok,mss"),
    ("FortiGate 50", "ws,nop,sok,ts,mss"),
    ("Cisco IOS, Contiki, PalmOS, PlayStation 2", "mss"),
    ("Cisco Content Engine", "mss,nop,nop,sok"),
    (
        "Alteon's switch, PocketPC",
        "mss,nop,ws,nop,nop,ts,nop,nop,sok",
    ),
    ("CacheOS 1.1", "mss,nop,nop,nop,nop,nop,nop,ts"),
    ("Symbian 7", "nop,ws,nop,nop,ts,nop,nop,sok,mss"),
    ("Symbian on Nokia 6600", "mss,ts,sok"),
    ("Symbian 60", "mss,ts,sok,ws,eol+0"),
    ("Chello's proxy", "mss,eol+3"),
];

/// SYN/ACKs of p0f 2 and PRADS (`etc/tcp-synack.fp` of github.com/gamelinux/prads at 319d963).
const PRADS_SYN_ACK: &[Layout] = &[
    ("Linux 2.6 behind IPsec", "sok,ts,mss,nop,ws"),
    ("VxWorks 5.4.2, F5 BIG-IP", "mss,nop,ws,nop,nop,ts"),
    ("FortiGate 50", "ws,nop,nop,nop,ts,mss"),
    ("JUNOS 9.3, bing.com", "mss,nop,ws,nop,nop,ts,sok,eol+1"),
    ("HP Officejet", "mss,nop,ws,nop,nop,sok,nop,nop,ts"),
    ("an unknown site", "mss,eol+3"),
];

/// From sources that say more than p0f, or know later versions.
const SOURCES: &[Layout] = &[
    // A later p0f.fp (github.com/vladc/fp.ip-api.com at 61e6957).
    ("Windows 10", "mss,nop,ws,nop,nop,sok"),
    // smoltcp 0.14.0, src/wire/tcp.rs: MSS, scale, SACK permitted, timestamps, then EOL and zeros.
    ("smoltcp", "mss,ws,sok,eol+2"),
    ("smoltcp with timestamps", "mss,ws,sok,ts,eol+0"),
    ("smoltcp to a peer without scaling", "mss,sok,eol+1"),
    ("smoltcp to a peer without SACK", "mss,ws,eol+0"),
    // gVisor v0.0.0-20260905035102, pkg/tcpip/transport/tcp/connect.go, makeSynOptions.
    ("gVisor", LINUX),
    (
        "gVisor to a peer without timestamps",
        "mss,nop,nop,sok,nop,ws",
    ),
    // lwIP, src/core/tcp_out.c, tcp_output_segment, as its fork dpIP keeps it
    // (github.com/iboukris/dpIP at b08bbbe): MSS, timestamps, scale, SACK permitted.
    ("lwIP, all options on", "mss,nop,nop,ts,nop,ws,nop,nop,sok"),
    ("lwIP with scaling and SACK", "mss,nop,ws,nop,nop,sok"),
    // FreeRTOS-Plus-TCP, FreeRTOS_TCP_Transmission.c, prvSetSynAckOptions.
    ("FreeRTOS+TCP", "mss,nop,ws,nop,nop,sok"),
    // Zephyr, net_tcp_set_syn_opt.
    ("Zephyr", "mss"),
    // picoTCP, modules/pico_tcp.c, tcp_add_options (github.com/virtualsquare/picotcp at 03f3f35):
    // EOL in the last byte, NOPs before it.
    ("picoTCP", "mss,sok,ws,ts,nop,nop,nop,nop,eol+0"),
    // NetBSD, sys/netinet/tcp_output.c at 00b5bb1.
    ("NetBSD", "mss,nop,ws,sok,nop,nop,nop,nop,ts"),
    // XNU, bsd/netinet/tcp_output.c at 0f4c859: SACK permitted comes last, then EOLs.
    ("XNU without timestamps", "mss,nop,ws,sok,eol+1"),
    ("XNU asks for a cookie", "mss,nop,ws,nop,nop,ts,sok,tfo0"),
    ("XNU, cookie of 8 bytes", "mss,nop,ws,nop,nop,ts,sok,tfo8"),
    ("XNU, cookie of 16 bytes", "mss,nop,ws,nop,nop,ts,sok,tfo16"),
    (
        "XNU with AccECN, SYN/ACK",
        "mss,nop,ws,nop,nop,ts,sok,accecn,nop,eol+1",
    ),
    (
        "the same without timestamps",
        "mss,nop,ws,sok,accecn,nop,eol+1",
    ),
    // RFC 7413; where Linux puts the cookie after the comment in gVisor's makeSynOptions.
    ("Linux asks for a cookie", "mss,sok,ts,nop,ws,tfo0,nop,nop"),
    ("Linux, cookie of 8 bytes", "mss,sok,ts,nop,ws,tfo8,nop,nop"),
    (
        "Linux, cookie of 16 bytes",
        "mss,sok,ts,nop,ws,tfo16,nop,nop",
    ),
];

/// Pure ACKs of an established connection.
const ACKS: &[Layout] = &[
    // RFC 7323 appendix A, and so: tcp_output.c of XNU, NetBSD (as above), FreeBSD
    // (tcp_addoptions) and OpenBSD (at 00007ca), lwIP, gVisor's makeOptions, after Linux.
    ("any without timestamps", ""),
    ("Linux, XNU, the BSDs, lwIP, gVisor", "nop,nop,ts"),
    ("the same", "nop,nop,sack1"),
    ("the same", "nop,nop,sack2"),
    ("the same", "nop,nop,sack3"),
    ("the same", "nop,nop,ts,nop,nop,sack1"),
    ("the same", "nop,nop,ts,nop,nop,sack2"),
    ("the same", "nop,nop,ts,nop,nop,sack3"),
    // smoltcp 0.14.0, src/wire/tcp.rs: SACK before timestamps, no NOP anywhere, EOL and zeros.
    ("smoltcp", "ts,eol+1"),
    ("smoltcp", "sack1,eol+1"),
    ("smoltcp", "sack2,eol+1"),
    ("smoltcp", "sack3,eol+1"),
    ("smoltcp", "sack1,ts"),
    ("smoltcp", "sack2,ts"),
    ("smoltcp", "sack3,ts"),
    // picoTCP, as above: a scale on every segment, EOL in the last byte.
    ("picoTCP", "ws,eol+0"),
    ("picoTCP", "ws,ts,nop,nop,eol+0"),
    ("picoTCP", "ws,sack1,nop,nop,eol+0"),
    ("picoTCP", "ws,sack3,nop,nop,eol+0"),
    ("picoTCP", "ws,ts,sack1,eol+0"),
    ("picoTCP", "ws,ts,sack2,eol+0"),
    ("picoTCP", "ws,ts,sack3,eol+0"),
];

const LINUX: &str = "mss,sok,ts,nop,ws";
const MSS: u32 = 1460;
/// Sequence numbers of the first bytes of both sides.
const START: [u32; 2] = [u32::MAX - 3_000, 70_000];

fn handshakes() -> impl Iterator<Item = Layout> {
    [P0F3_SYN, P0F3_SYN_ACK, P0F2_SYN, PRADS_SYN_ACK, SOURCES]
        .into_iter()
        .flatten()
        .copied()
}

/// Blocks of what arrives in [`three_holes`], the newest first.
fn blocks(count: usize) -> Vec<(u32, u32)> {
    let block = |i: u32| START[A].wrapping_add(i * MSS);
    [6, 4, 2]
        .into_iter()
        .take(count)
        .map(|i| (block(i), block(i + 1)))
        .collect()
}

fn number(word: &str, prefix: &str) -> Option<usize> {
    word.strip_prefix(prefix)?.parse().ok()
}

fn option(word: &str) -> Vec<u8> {
    if let Some(behind) = number(word, "eol+") {
        return vec![0; 1 + behind];
    }
    if let Some(count) = number(word, "sack") {
        return opt::sack(&blocks(count))[2..].to_vec();
    }
    if let Some(len) = number(word, "tfo") {
        return [vec![34, 2 + len as u8], vec![0x5c; len]].concat();
    }
    match word {
        "mss" => opt::mss(MSS as u16),
        "sok" => opt::sack_permitted(),
        "ts" => opt::timestamps(0x0102_0304, 0x0506_0708)[2..].to_vec(),
        "ws" => opt::wscale(7),
        "nop" => vec![opt::NOP],
        "ccnew" => vec![12, 6, 0, 0, 0, 9],
        "accecn" => vec![opt::FEEDBACK, 11, 0, 0, 1, 0, 0, 0, 0, 0, 1],
        _ => panic!("{word}?"),
    }
}

fn options(layout: &str) -> Vec<u8> {
    let words = layout.split(',').filter(|word| !word.is_empty());
    let options: Vec<u8> = words.flat_map(option).collect();
    assert_eq!(options.len() % 4, 0, "{layout}: {}", options.len());
    options
}

fn has_room(options: &[u8]) -> bool {
    20 + options.len() + 8 <= 60
}

/// The options of hosts, which have eight bytes, as a parser finds them that stops at EOL.
fn hosts_own(options: &[u8]) -> Vec<Vec<u8>> {
    opt::readable(options)
        .into_iter()
        .filter(|(kind, bytes)| match *kind {
            opt::EXPERIMENT | opt::FEEDBACK => bytes.len() == 8,
            _ => false,
        })
        .map(|(_, bytes)| bytes.to_vec())
        .collect()
}

/// A packet's way from one tenant to the other.
struct Crossed {
    /// Between the hosts.
    wire: Packet,
    /// As the other tenant gets it.
    seen: Packet,
    /// Between the hosts, behind it.
    fack: Option<Packet>,
}

/// Two hosts whose tenants' packets are written by hand.
struct Hosts {
    hosts: [Host; 2],
    now_ns: u64,
}

impl Hosts {
    fn new() -> Self {
        let policy = policy();
        Self {
            hosts: [Host::new(&policy), Host::new(&policy)],
            now_ns: 1_000_000_000,
        }
    }

    /// With a handshake of Linux on both sides.
    fn connected() -> Self {
        let mut hosts = Self::new();
        let linux = options(LINUX);
        hosts.cross(A, &syn(&linux));
        hosts.cross(B, &syn_ack(&linux));
        hosts.cross(A, &segment(A, 0, 0));
        hosts
    }

    fn pass(&mut self, from: usize, at: usize, packet: &Packet) -> (Packet, Outcome) {
        let route = Route::new("10.1.0.1:40000", "10.2.0.1:5001");
        let (route, direction) = match (from, from == at) {
            (A, true) => (route, Direction::FromTenant),
            (A, false) => (route, Direction::ToTenant),
            (_, true) => (route.reversed(), Direction::FromTenant),
            (_, false) => (route.reversed(), Direction::ToTenant),
        };
        self.now_ns += 10_000;
        let before = route.build(packet);
        let mut frame = before.clone();
        let outcome = self.hosts[at].frame(&mut frame, direction, self.now_ns);
        invariants::check(&before, &frame, direction, &outcome);
        if let Some(fack) = &outcome.fack {
            assert_eq!(wire::read(fack).0, route);
        }
        (wire::read(&frame).1, outcome)
    }

    fn cross(&mut self, from: usize, packet: &Packet) -> Crossed {
        let (wire, outcome) = self.pass(from, from, packet);
        assert_eq!(outcome.action, Action::Pass);
        let (seen, arrival) = self.pass(from, 1 - from, &wire);
        assert_eq!(arrival.action, Action::Pass);
        Crossed {
            wire,
            seen,
            fack: outcome.fack.map(|fack| wire::read(&fack).1),
        }
    }

    /// A sends segment `i` of its stream, which is lost, or comes with this mark.
    fn data(&mut self, i: u32, arrives: Option<u8>) {
        let (wire, _) = self.pass(A, A, &segment(A, i * MSS, MSS as usize));
        assert_eq!(wire.ecn, ecn::ECT0);
        if let Some(ecn) = arrives {
            self.pass(A, B, &Packet { ecn, ..wire });
        }
    }

    /// Segments 1, 3 and 5 of seven are lost, 0 is marked.
    fn three_holes(&mut self) {
        for i in 0..7 {
            let arrives = (i % 2 == 0).then_some(if i == 0 { ecn::CE } else { ecn::ECT0 });
            self.data(i, arrives);
        }
    }

    fn flow(&self, side: usize) -> &Flow {
        self.hosts[side].flow().expect("there is a flow")
    }

    fn modes(&self) -> [u8; 2] {
        [A, B].map(|side| self.flow(side).mode)
    }

    fn reasons(&self) -> [&'static str; 2] {
        [A, B].map(|side| REASON_NAMES[usize::from(self.flow(side).reason)])
    }

    /// The counts of B's host, and those that A's host took of them.
    fn counts(&self) -> [(u32, u32); 2] {
        let (near, far) = (self.flow(A), self.flow(B));
        [(far.rcv_e0b, far.rcv_ceb), (near.taken_e0b, near.taken_ceb)]
    }
}

fn syn(options: &[u8]) -> Packet {
    Packet {
        seq: START[A].wrapping_sub(1),
        flags: tcp::SYN,
        window: 64_240,
        options: options.to_vec(),
        ..Packet::default()
    }
}

fn syn_ack(options: &[u8]) -> Packet {
    Packet {
        seq: START[B].wrapping_sub(1),
        ack: START[A],
        flags: tcp::SYN | tcp::ACK,
        ..syn(options)
    }
}

fn segment(from: usize, at: u32, len: usize) -> Packet {
    Packet {
        seq: START[from].wrapping_add(at),
        ack: START[1 - from],
        flags: tcp::ACK,
        window: 500,
        payload: vec![7; len],
        ..Packet::default()
    }
}

/// B acknowledges `count` segments of A.
fn ack(count: u32, options: &[u8]) -> Packet {
    Packet {
        ack: START[A].wrapping_add(count * MSS),
        options: options.to_vec(),
        ..segment(B, 0, 0)
    }
}

fn assert_tenant_reads_what_was_sent(sent: &[u8], crossed: &Crossed, name: &str) {
    let seen = &crossed.seen.options;
    assert_eq!(opt::readable(seen), opt::readable(sent), "{name}");
    assert!(hosts_own(seen).is_empty(), "{name}");
}

fn assert_shown(sent: &[u8], crossed: &Crossed, name: &str) {
    assert_eq!(hosts_own(&crossed.wire.options), [opt::peer(0)], "{name}");
    assert_eq!(opt::peer_of(&crossed.wire.options), Some(0), "{name}");
    assert_tenant_reads_what_was_sent(sent, crossed, name);
}

/// A SYN and its SYN/ACK with these options between two hosts that enforce.
fn shake(offered: &[u8], answered: &[u8], name: &str) {
    let mut hosts = Hosts::new();
    let first = hosts.cross(A, &syn(offered));
    let second = hosts.cross(B, &syn_ack(answered));
    let rooms = [has_room(offered), has_room(answered)];
    if rooms[A] {
        assert_shown(offered, &first, name);
    } else {
        assert_eq!(first.seen.options, offered, "{name}");
    }
    if rooms == [true, true] {
        assert_shown(answered, &second, name);
        assert_eq!(hosts.modes(), [MODE_TWO_SIDED; 2], "{name}");
        return;
    }
    assert_eq!(second.seen.options, answered, "{name}");
    assert_eq!(hosts.modes(), [MODE_ONE_SIDED; 2], "{name}");
    let why = match rooms[A] {
        false => ["no-room", "peer-silent"],
        true => ["peer-silent", "no-room"],
    };
    assert_eq!(hosts.reasons(), why, "{name}");
}

#[test]
fn hosts_find_each_other_through_any_layout_of_a_syn() {
    for (name, layout) in handshakes() {
        shake(&options(layout), &options(LINUX), name);
    }
}

#[test]
fn hosts_find_each_other_through_any_layout_of_a_syn_ack() {
    for (name, layout) in handshakes() {
        shake(&options(LINUX), &options(layout), name);
    }
}

#[test]
fn hosts_find_each_other_through_any_two_layouts() {
    for (name, offered) in handshakes() {
        for (other, answered) in handshakes() {
            let both = format!("{name} to {other}");
            shake(&options(offered), &options(answered), &both);
        }
    }
}

#[test]
fn nearly_every_layout_of_a_handshake_has_room() {
    let full: Vec<_> = handshakes()
        .filter(|(_, layout)| !has_room(&options(layout)))
        .map(|(name, _)| name)
        .collect();
    let expected = [
        "XNU, cookie of 16 bytes",
        "XNU with AccECN, SYN/ACK",
        "Linux, cookie of 16 bytes",
    ];
    assert_eq!(full, expected);
}

/// An ACK of segment 0 with these options, and that the count reaches A's host.
fn report(layout: &str) {
    let sent = options(layout);
    let mut hosts = Hosts::connected();
    hosts.three_holes();
    let crossed = hosts.cross(B, &ack(1, &sent));
    assert_tenant_reads_what_was_sent(&sent, &crossed, layout);
    let counted = (1 + 3 * MSS, MSS);
    let carrier = match has_room(&sent) {
        true => crossed.wire,
        false => {
            assert_eq!(crossed.wire.options, sent, "{layout}");
            let fack = crossed.fack.expect("a FACK");
            assert_eq!(hosts.pass(B, A, &fack).1.action, Action::Consume);
            fack
        }
    };
    let found = opt::feedback_of(&carrier.options);
    assert_eq!(found, Some(counted), "{layout}");
    assert_eq!(hosts.counts(), [counted; 2], "{layout}");
    assert_eq!(hosts.flow(A).bytes_marked, u64::from(MSS), "{layout}");
}

#[test]
fn counts_cross_on_any_layout_of_an_ack_or_behind_it() {
    for (_, layout) in ACKS {
        report(layout);
    }
}

#[test]
fn only_acks_with_timestamps_and_three_blocks_need_a_fack() {
    let full: Vec<_> = ACKS
        .iter()
        .filter(|(_, layout)| !has_room(&options(layout)))
        .map(|(_, layout)| *layout)
        .collect();
    let expected = ["nop,nop,ts,nop,nop,sack3", "sack3,ts", "ws,ts,sack3,eol+0"];
    assert_eq!(full, expected);
}

#[test]
fn a_stream_of_acks_in_order_loses_no_count() {
    let in_order = ACKS.iter().filter(|(_, layout)| !layout.contains("sack"));
    for (name, layout) in in_order {
        let sent = options(layout);
        let mut hosts = Hosts::connected();
        for i in 0..200 {
            hosts.data(i, Some(if i % 2 == 0 { ecn::ECT0 } else { ecn::CE }));
            let crossed = hosts.cross(B, &ack(i + 1, &sent));
            assert_tenant_reads_what_was_sent(&sent, &crossed, name);
        }
        let counted = (1 + 100 * MSS, 100 * MSS);
        assert_eq!(hosts.counts(), [counted; 2], "{name}");
        assert_eq!(hosts.modes(), [MODE_TWO_SIDED; 2], "{name}");
    }
}
