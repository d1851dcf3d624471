use sluicegate_tcp::segment::{ecn, flags};

use super::*;
use crate::model::{EcnWanted, Expected, Expr};

fn one(text: &str) -> Event {
    let mut script = parse(text, &[]).expect("parses");
    assert_eq!(script.events.len(), 1, "{text}");
    script.events.remove(0)
}

#[test]
fn times_are_absolute_relative_ranges_or_any() {
    const MS: u64 = 1_000_000;
    let when = |time: &str| one(&format!("{time} > . 1:1(0) ack 1")).when;
    assert_eq!(when("0.5"), When::At(500 * MS));
    assert_eq!(when("+.1"), When::After(100 * MS));
    assert_eq!(when("*"), When::Any);
    assert_eq!(when("0.5~0.6"), When::Between(500 * MS, 600 * MS));
    assert_eq!(when("+0~+.1"), When::AfterBetween(0, 100 * MS));
    assert!(parse("+0~+1 < . 1:1(0) ack 1 win 1", &[]).is_err());
    assert!(parse("0.6~0.5 > . 1:1(0) ack 1", &[]).is_err());
}

#[test]
fn a_packet_has_flags_numbers_and_options() {
    let event =
        one("0 < [ce] SEW. 0:10(10) ack 1 win 5 <mss 1460,sackOK,TS val 7 ecr 8,nop,wscale 7>");
    let Action::Arrives(packet) = event.action else {
        panic!("{event:?}");
    };
    assert_eq!(
        packet.flags,
        flags::SYN | flags::ECE | flags::CWR | flags::ACK
    );
    assert_eq!((packet.ecn, packet.len, packet.window), (ecn::CE, 10, 5));
    assert_eq!(packet.options.timestamps, Some((7, 8)));
    assert_eq!(
        packet.to_string(),
        "[ce] SEW. 0:10(10) ack 1 win 5 <mss 1460,sackOK,TS val 7 ecr 8,wscale 7>"
    );
}

#[test]
fn what_leaves_may_be_vague() {
    let Action::Leaves(expected) = one("+0 > [ect01] P. 1:2(1) ack 1 <...>").action else {
        panic!("no packet");
    };
    assert!(expected.any_options && expected.window.is_none());
    assert_eq!(expected.ecn, EcnWanted::Capable);
}

#[test]
fn calls_have_arguments_results_and_durations() {
    let Action::Call(call) = one("+0...0.2 connect(3, {sa_family=AF_INET, sin_port=htons(1)}, ...) = -1 ECONNREFUSED (Connection refused)").action else {
        panic!("no call");
    };
    assert_eq!(call.returns_ns, Some(200_000_000));
    assert_eq!(call.errno.as_deref(), Some("ECONNREFUSED"));
    assert_eq!(call.result, Expr::Integer(-1));
    let Action::Call(call) = one("0 fcntl(3, F_SETFL, O_RDWR|O_NONBLOCK) = 0").action else {
        panic!("no call");
    };
    assert!(matches!(&call.arguments[2], Expr::Or(parts) if parts.len() == 2));
    let nested = "0 sendmsg(4, {msg_name(...)=..., msg_iov(1)=[{..., 9}], msg_flags=0}, 0) = 9";
    let Action::Call(call) = one(nested).action else {
        panic!("no call");
    };
    let Expr::Struct(fields) = &call.arguments[1] else {
        panic!("no struct");
    };
    assert_eq!(fields[1].0, "msg_iov");
}

#[test]
fn definitions_setup_and_cleanup_are_kept_apart() {
    let text = "--define=N=10\n--mtu=1400\n`one`\n`two`\n0 write(4, ..., N) = N\n`clean`";
    let script = parse(text, &[]).expect("parses");
    assert_eq!(script.setup.len(), 2);
    assert_eq!(script.options[0].1, "mtu");
    assert_eq!(script.events.len(), 1);
    let Action::Call(call) = &script.events[0].action else {
        panic!("no call");
    };
    assert_eq!(call.result, Expr::Integer(10));
}

#[test]
fn what_the_interpreter_cannot_carry_is_named() {
    for (line, reason) in [
        ("0 < udp (100)", "udp"),
        ("0 < icmp unreachable nonsense [1:1001(1000)]", "nonsense"),
        ("0 > icmp unreachable [1:1001(1000)]", "icmp"),
        ("0 > S 0:0(0) <mss 1460,mp_capable v1>", "mp_capable"),
        ("0 > P.8 1:2(1) ack 1", "flag 8"),
        ("0 < 80 > 90 S 0:0(0) win 1", "ports"),
        ("0 < [flowlabel 3] S 0:0(0) win 1", "flowlabel"),
    ] {
        let Action::Unsupported(text) = one(line).action else {
            panic!("{line}");
        };
        assert!(text.contains(reason), "{text}");
    }
}

#[test]
fn accurate_ecn_is_read_as_letters_and_as_a_number() {
    for (text, ace) in [
        ("SEWA", 7),
        ("P.5", 5),
        ("F2.", 2),
        (".4", 4),
        ("A.", 4),
        (".", 0),
    ] {
        let line = format!("0 > {text} 0:0(0) ack 1 <ECN e1b 1 ceb 2,nop,nop>");
        let Action::Leaves(Expected { packet, .. }) = one(&line).action else {
            panic!("{line}");
        };
        assert_eq!(packet.to_segment().expect("fits").ace(), ace, "{line}");
        let counters = packet.options.counters.expect("is there");
        assert_eq!(counters.values(), [1, 2], "{line}");
        assert!(counters.ect1_first());
        assert!(
            packet.to_string().ends_with("<ECN e1b 1 ceb 2>"),
            "{packet}"
        );
    }
    let Action::Leaves(expected) = one("0 > . 0:0(0) ack 1 <ECN e0b 1 ceb 2 e1b 3>").action else {
        panic!("no segment");
    };
    let counters = expected.packet.options.counters.expect("is there");
    assert!(!counters.ect1_first() && counters.values() == [1, 2, 3]);
}

#[test]
fn headers_and_messages_around_a_segment_are_read() {
    use crate::model::{Icmp, IcmpMeaning};
    let Action::Leaves(expected) = one("0 > [ect0, ttl 4] S. 0:0(0) ack 1 <FO 00ff>").action else {
        panic!("no segment");
    };
    assert_eq!(expected.ttl, Some(4));
    let cookie = expected.packet.options.fast_open.expect("is there").cookie;
    assert_eq!(cookie, [0, 0xff]);
    let udp_ports = Some((9811, 1));
    for (line, ports) in [
        ("0 < icmp unreachable frag_needed mtu 1200 [7:8(1)]", None),
        ("0 < [7:8(1)] icmp unreachable frag_needed mtu 1200", None),
        (
            "0 < icmp unreachable frag_needed mtu 1200 [7:8(1)/udp(9811 > 1)]",
            udp_ports,
        ),
    ] {
        let Action::Icmp(Icmp {
            meaning,
            numbers,
            seq,
            udp,
        }) = one(line).action
        else {
            panic!("{line}");
        };
        assert_eq!((meaning, seq), (IcmpMeaning::TooBig(1200), Some(7)));
        assert_eq!(udp, ports);
        assert_eq!(numbers, [Some((3, 4)), None]);
    }
    let Action::Icmp(icmp) = one("0 < icmp unreachable port_unreachable").action else {
        panic!("no message");
    };
    assert_eq!(icmp.numbers, [Some((3, 3)), Some((1, 4))]);
    let script = parse("0 close(3) = 0\n`true`\n`true`\n", &[]).expect("parses");
    assert_eq!(script.events.len(), 1, "commands at the end clean up");
}
