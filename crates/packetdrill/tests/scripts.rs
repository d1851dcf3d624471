//! The project's packetdrill scripts, the interpreter's verdicts, and its command.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use proptest::prelude::*;
use sluicegate_packetdrill::{Problem, Settings, Verdict, check};

const OPEN: &str = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 < S 0:0(0) win 65535 <mss 1000>
+0 > S. 0:0(0) ack 1 <mss 1460>
+.1 < . 1:1(0) ack 1 win 65535
+0 accept(3, ..., ...) = 4
";

/// The scripts, in order.
fn scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let entries = fs::read_dir(folder).expect("there are scripts");
    let paths = entries.map(|entry| entry.expect("is readable").path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|end| end == "pkt"))
        .collect();
    paths.sort();
    paths
}

/// Nothing may be off but what a tick explains.
fn strict() -> Settings {
    Settings {
        options: vec![("tolerance_percent".to_owned(), "0".to_owned())],
        strict: true,
        ..Settings::default()
    }
}

fn run(rest: &str) -> Verdict {
    check(&format!("{OPEN}{rest}"), &strict())
}

fn failure(rest: &str) -> Problem {
    match run(rest) {
        Verdict::Fail(problem) => problem,
        other => panic!("{rest}: {other:?}"),
    }
}

#[test]
fn every_script_passes_and_names_what_it_is_taken_from() {
    let paths = scripts();
    assert!(paths.len() >= 25);
    let mut wrong = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).expect("is readable");
        let verdict = check(&text, &strict());
        if verdict != Verdict::Pass || !text.contains("RFC ") {
            wrong.push((path, verdict));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_is_not_as_expected_fails_with_line_and_reason() {
    let write = "+0 write(4, ..., 1500) = 1500\n";
    for (line, reason) in [
        ("+0 > . 1:1501(1500) ack 2", "(ack)"),
        ("+0 > . 2:1502(1500) ack 1", "(seq)"),
        ("+0 > . 1:1501(1500) ack 1 <sack 2:3>", "(options)"),
        ("+0 > . 1:1501(1500) ack 1 win 7", "(win)"),
        ("+0 > [ect0] . 1:1501(1500) ack 1", "(ECN)"),
        ("+0 > F. 1:1501(1500) ack 1", "(flags)"),
        ("+0 > . 1:1601(1600) ack 1", "(length)"),
        ("+.1 > . 1:1501(1500) ack 1", "(time)"),
    ] {
        let problem = failure(&format!("{write}{line}"));
        assert_eq!(problem.line, 9, "{problem}");
        assert!(problem.text.ends_with(reason), "{problem}");
    }
}

#[test]
fn what_is_missing_or_too_much_fails() {
    let problem = failure("+0 > . 1:1(0) ack 1");
    assert!(problem.text.contains("got nothing"), "{problem}");
    let problem = failure("+0 write(4, ..., 10) = 10\n+.1 close(4) = 0\n");
    assert!(
        problem
            .text
            .starts_with("expected nothing; got > P. 1:11(10)"),
        "{problem}"
    );
}

#[test]
fn with_strict_segments_each_line_is_one_segment() {
    let whole = "+0 write(4, ..., 2000) = 2000\n+0 > P. 1:2001(2000) ack 1";
    let each = "+0 write(4, ..., 2000) = 2000\n+0 > . 1:1001(1000) ack 1\n\
        +0 > P. 1001:2001(1000) ack 1";
    let strict = |rest: &str| check(&format!("--strict_segments\n{OPEN}{rest}"), &strict());
    assert_eq!(run(whole), Verdict::Pass);
    assert_eq!(strict(each), Verdict::Pass);
    match strict(whole) {
        Verdict::Fail(problem) => assert!(problem.text.contains("length"), "{problem}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn calls_and_assertions_are_compared() {
    let problem = failure("+0 write(4, ..., 10) = 9");
    assert_eq!(problem.text, "expected write = 9; got 10");
    let problem = failure("+0 read(4, ..., 10) = 9");
    assert!(problem.text.contains("got no return"), "{problem}");
    let problem = failure("+0...0.2 read(4, ..., 10) = 5\n+.1 < P. 1:6(5) ack 1 win 9");
    assert_eq!(
        problem.text,
        "expected read to return at 0.300000; got 0.200000"
    );
    let problem = failure("+0 %{ assert tcpi_snd_cwnd == 11, tcpi_snd_cwnd }%");
    assert_eq!(
        problem.text,
        "expected tcpi_snd_cwnd == 11; got tcpi_snd_cwnd = 10"
    );
    assert_eq!(
        run("+0 close(5) = -1 EBADF (Bad file descriptor)"),
        Verdict::Pass
    );
    for name in ["EAGAIN", "EWOULDBLOCK"] {
        let call = format!("+0 recv(4, ..., 10, MSG_DONTWAIT) = -1 {name}");
        assert_eq!(run(&call), Verdict::Pass);
    }
    assert!(matches!(
        run("+0 recv(4, ..., 10, MSG_DONTWAIT) = -1 EINVAL"),
        Verdict::Fail(_)
    ));
}

#[test]
fn a_fin_is_nothing_to_read_for_siocinq() {
    let fin = "+.1 < FP. 1:6(5) ack 1 win 9\n+.04 > . 1:1(0) ack 7\n";
    let verdict = run(&format!(
        "{fin}+0 ioctl(4, SIOCINQ, [5]) = 0\n+0 read(4, ..., 10) = 5\n+0 ioctl(4, SIOCINQ, [0]) = 0\n"
    ));
    assert_eq!(verdict, Verdict::Pass);
}

#[test]
fn a_socket_without_a_connection_has_a_state() {
    let socket = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n";
    let listen = "+0 bind(3, ..., ...) = 0\n+0 listen(3, 1) = 0\n";
    for (rest, state) in [("", "TCPI_CLOSED"), (listen, "TCPI_LISTEN")] {
        let text = format!("{socket}{rest}+0 %{{ assert tcpi_state == {state} }}%\n");
        assert_eq!(check(&text, &strict()), Verdict::Pass, "{state}");
    }
}

/// A connection in UDP from FreeBSD's port 4000 to the peer's port 7.
const TUNNEL: &str = "--udp_encapsulation=tcp
0 `sysctl net.inet.tcp.udp_tunneling_port=4000`
+0 `sysctl net.inet.tcp.udp_tunneling_overhead=8`
+0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 setsockopt(3, IPPROTO_TCP, TCP_REMOTE_UDP_ENCAPS_PORT, [65536], 4) = -1 EINVAL
+0 setsockopt(3, IPPROTO_TCP, TCP_REMOTE_UDP_ENCAPS_PORT, [7], 4) = 0
+0 getsockopt(3, IPPROTO_TCP, TCP_REMOTE_UDP_ENCAPS_PORT, [7], [4]) = 0
+0 fcntl(3, F_SETFL, O_RDWR|O_NONBLOCK) = 0
+0 connect(3, ..., ...) = -1 EINPROGRESS
+0 > S 0:0(0) <...>/udp(4000 > 7)
";

#[test]
fn a_segment_in_udp_belongs_to_the_connection_with_its_port() {
    let answer = "< S. 0:0(0) ack 1 win 9000 <mss 1000>";
    let others = "+0 > R 1:1(0) win 0\n";
    let rest = format!(
        "+.1 {answer}/udp(7 > 4001)\n+.1 {answer}\n{others}+.1 {answer}/udp(8 > 4000)\n\
        +0 > R 1:1(0) win 0/udp(4000 > 8)\n+.1 < icmp unreachable port_unreachable [0:0(0)]\n\
        +.1 {answer}/udp(7 > 4000)\n+0 > . 1:1(0) ack 1/udp(4000 > 7)\n\
        +0 getsockopt(3, SOL_SOCKET, SO_ERROR, [0], [4]) = 0\n\
        +0 setsockopt(3, IPPROTO_TCP, TCP_REMOTE_UDP_ENCAPS_PORT, [7], 4) = -1 EINVAL\n"
    );
    let strict = strict();
    assert_eq!(check(&format!("{TUNNEL}{rest}"), &strict), Verdict::Pass);
    let quoted = "+.1 < icmp unreachable port_unreachable [0:0(0)/udp(4000 > 7)]\n\
        +0 getsockopt(3, SOL_SOCKET, SO_ERROR, [ECONNREFUSED], [4]) = 0\n";
    assert_eq!(check(&format!("{TUNNEL}{quoted}"), &strict), Verdict::Pass);
    let other_port = TUNNEL.replace("/udp(4000 > 7)", "/udp(4000 > 8)");
    let Verdict::Fail(problem) = check(&other_port, &strict) else {
        panic!("other ports pass");
    };
    assert!(problem.text.ends_with("(udp)"), "{problem}");
}

#[test]
fn a_listener_answers_in_udp_what_comes_in_udp() {
    let text = "0 `sysctl net.inet.tcp.udp_tunneling_port=4000`
+0 `sysctl net.inet.tcp.udp_tunneling_overhead=8`
+0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+.1 < S 0:0(0) win 9000 <mss 1000>/udp(7 > 4000)
+0 > S. 0:0(0) ack 1 <mss 1452>/udp(4000 > 7)
+.1 < . 1:1(0) ack 1 win 9000/udp(7 > 4000)
+0 accept(3, ..., ...) = 4
+0 getsockopt(4, IPPROTO_TCP, TCP_REMOTE_UDP_ENCAPS_PORT, [7], [4]) = 0
+0 write(4, ..., 10) = 10
+0 > P. 1:11(10) ack 1/udp(4000 > 7)
";
    assert_eq!(check(text, &strict()), Verdict::Pass);
}

#[test]
fn what_is_not_known_is_unsupported_and_not_failed() {
    for (line, reason) in [
        ("+0 < udp (10)", "udp"),
        ("+0 io_uring_setup(1) = 5", "io_uring_setup"),
        (
            "+0 setsockopt(4, SOL_TCP, TCP_MD5SIG, [1], 4) = 0",
            "TCP_MD5SIG",
        ),
        ("+0 recv(4, ..., 10, MSG_OOB) = 10", "MSG_OOB"),
        ("+0 `sysctl net.ipv4.tcp_ecn=6`", "tcp_ecn=6"),
        ("+0 < icmp unreachable nonsense [1:1(0)]", "nonsense"),
        ("+0 %{ import os }%", "import os"),
        (
            "+0 > S 0:0(0) <md5 valid>",
            "a cookie in hexadecimal digits",
        ),
        ("gibberish", "a time is expected"),
    ] {
        match run(line) {
            Verdict::Unsupported(problem) => {
                assert_eq!(problem.line, 8, "{problem}");
                assert!(problem.text.contains(reason), "{problem}");
            }
            other => panic!("{line}: {other:?}"),
        }
    }
}

#[test]
fn the_command_reports_and_its_exit_code_says_whether_one_failed() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let write = |name: &str, rest: &str| {
        let path = folder.join(name);
        fs::write(&path, format!("{OPEN}{rest}")).expect("is writable");
        path
    };
    let good = write("good.pkt", "");
    let bad = write("bad.pkt", "+0 write(4, ..., 1) = 2");
    let run = |arguments: &[&Path]| {
        let output = Command::new(env!("CARGO_BIN_EXE_packetdrill"))
            .args(arguments)
            .output();
        let output = output.expect("runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    let (code, text) = run(&[&good]);
    assert_eq!(code, Some(0));
    assert_eq!(
        text,
        format!(
            "pass {}\n1 passed, 0 failed, 0 unsupported\n",
            good.display()
        )
    );
    let (code, text) = run(&[Path::new("--json"), &good, &bad]);
    assert_eq!(code, Some(1));
    assert!(
        text.contains("\"line\": 8, \"reason\": \"expected write = 2; got 1\""),
        "{text}"
    );
    assert!(text.contains("\"passed\": 1,\n  \"failed\": 1,"), "{text}");
    assert_eq!(run(&[]).0, Some(2));
    let below = folder.join("suite/below");
    fs::create_dir_all(&below).expect("is writable");
    for (script, rest) in [
        ("a.pkt", ""),
        ("b.pkt", "+0 close(9) = 0"),
        ("c.pkt", "+0 < udp (1)"),
    ] {
        fs::write(below.join(script), format!("{OPEN}{rest}")).expect("is writable");
    }
    let suite = folder.join("suite");
    let (code, text) = run(&[Path::new("--table"), &suite]);
    assert_eq!(code, Some(1));
    let row = format!("| {} | 3 | 2 | 1 | 1 |", below.display());
    for part in [
        row.as_str(),
        "understood 66.7 %; of these passed 50.0 %",
        "b.pkt:8: expected close = 0; got -1 EBADF",
        "    1  udp packets",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_command_line_that_cannot_be_meant_is_refused_and_nothing_runs() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let good = folder.join("refused.pkt");
    fs::write(&good, OPEN).expect("is writable");
    let good = good.to_str().expect("is text");
    let empty = folder.join("empty");
    fs::create_dir_all(&empty).expect("is writable");
    for (arguments, reason) in [
        (vec![good, "nowhere.pkt"], "nowhere.pkt: cannot be read"),
        (
            vec![good, empty.to_str().unwrap()],
            "no script (*.pkt) below it",
        ),
        (vec!["--stack=vms", good], "\"vms\" is no stack"),
        (vec!["--jsno", good], "not understood: option --jsno"),
        (vec!["--strcit", "--json", good], "--strcit"),
        (
            vec!["--tolerance_usecs=much", good],
            "\"much\" is no number",
        ),
        (vec!["-D", "WORD", good], "\"WORD\" is no NAME=VALUE"),
    ] {
        let command = Command::new(env!("CARGO_BIN_EXE_packetdrill"))
            .args(&arguments)
            .output()
            .expect("runs");
        let said = String::from_utf8_lossy(&command.stderr);
        assert_eq!(command.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(reason), "{said}");
        assert!(command.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn names_that_end_in_v6_are_of_scripts_of_ipv6() {
    let opens = |mss: u16| {
        format!(
            "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n+0 bind(3, ..., ...) = 0\n\
             +0 listen(3, 1) = 0\n+0 < S 0:0(0) win 65535\n\
             +0 > S. 0:0(0) ack 1 <mss {mss}>\n"
        )
    };
    let folder = std::env::temp_dir().join(format!("pd-v6-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("is writable");
    for (name, given, mss) in [
        ("a.pkt", "", 1460),
        ("a-v6.pkt", "", 1460),
        ("a-v6.pkt", "--mtu=1500", 1440),
        ("a-ipv6.pkt", "--ip_version=ipv4", 1460),
    ] {
        let path = folder.join(name);
        fs::write(&path, opens(mss)).expect("is writable");
        let mut command = Command::new(env!("CARGO_BIN_EXE_packetdrill"));
        command.args((!given.is_empty()).then_some(given));
        let output = command.arg(&path).output().expect("runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{name} {given}: {said}");
    }
    fs::remove_dir_all(&folder).expect("is ours");
}

#[test]
fn a_reader_that_goes_ends_nothing() {
    let script = std::env::temp_dir().join(format!("pd-gone-{}.pkt", std::process::id()));
    fs::write(&script, OPEN).expect("is writable");
    let status = Command::new("bash")
        .args([
            "-c",
            r#"{ sleep 0.3; "$0" "$1"; } | true; exit ${PIPESTATUS[0]}"#,
        ])
        .args([Path::new(env!("CARGO_BIN_EXE_packetdrill")), &script])
        .status()
        .expect("runs");
    fs::remove_file(&script).expect("is ours");
    assert_eq!(status.code(), Some(0));
}

/// CUBIC's window grows by a twentieth in a round trip until the first cut, be it taken back or not
/// (`last_max_cwnd` of Linux). A 6.18 kernel ends with 31 segments here, and HyStart's growth would
/// end with 37.
#[test]
fn a_cut_that_was_taken_back_is_a_cut() {
    let mut text = String::from(
        "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n+0 bind(3, ..., ...) = 0\n+0 listen(3, 1) = 0\n\
         +0 < S 0:0(0) win 65535 <mss 1012,sackOK,TS val 1 ecr 0,nop,wscale 7>\n\
         +0 > S. 0:0(0) ack 1 <mss 1460,sackOK,TS val 100 ecr 1,nop,wscale 7>\n\
         +.1 < . 1:1(0) ack 1 win 65535 <nop,nop,TS val 101 ecr 100>\n\
         +0 accept(3, ..., ...) = 4\n\
         +0 setsockopt(4, SOL_SOCKET, SO_SNDBUF, [4000000], 4) = 0\n\
         +0 write(4, ..., 400000) = 400000\n\
         +0 > . 1:10001(10000) ack 1 <nop,nop,TS val 200 ecr 101>\n\
         +.1 < . 1:1(0) ack 1 win 65535 <nop,nop,TS val 301 ecr 200,nop,nop,sack 1001:5001>\n\
         +0 > . 1:1001(1000) ack 1 <nop,nop,TS val 300 ecr 301>\n\
         +0 %{ assert tcpi_ca_state == TCP_CA_Recovery and tcpi_snd_ssthresh == 7 }%\n\
         +.001 < . 1:1(0) ack 5001 win 65535 <nop,nop,TS val 302 ecr 200>\n\
         +0 %{ assert tcpi_ca_state == TCP_CA_Open and tcpi_snd_cwnd >= 10 }%\n",
    );
    for segment in 5..180 {
        let after = if segment > 9 { ".004" } else { ".001" };
        let (ack, stamp) = (1_000 * segment + 1_001, 396 + segment);
        text +=
            &format!("+{after} < . 1:1(0) ack {ack} win 65535 <nop,nop,TS val {stamp} ecr 200>\n");
    }
    text +=
        "+0 %{ assert 28 <= tcpi_snd_ssthresh <= 30 and tcpi_snd_cwnd <= 34, tcpi_snd_cwnd }%\n";
    assert_eq!(check(&text, &Settings::default()), Verdict::Pass);
}

#[test]
fn what_asks_for_nothing_does_not_pass() {
    for empty in [
        "",
        "\n\n",
        "// a comment\n",
        "--tolerance_usecs=1000\n",
        "`true`\n",
    ] {
        let verdict = check(empty, &strict());
        assert!(
            matches!(verdict, Verdict::Unsupported(_)),
            "{empty:?}: {verdict:?}"
        );
    }
}

#[test]
fn what_is_not_known_is_said_in_one_line() {
    let long = format!("+0 %{{\nimport os\n{}\n}}%", "os.getpid(\n)\n".repeat(200));
    let Verdict::Unsupported(problem) = run(&long) else {
        panic!("Python runs");
    };
    assert!(problem.text.contains("import os"), "{problem}");
    assert!(
        problem.text.chars().count() <= 121 && !problem.text.contains('\n'),
        "{problem}"
    );
    let Verdict::Unsupported(problem) = run(&format!("+0 `{}`", "echo x; ".repeat(200))) else {
        panic!("a shell runs");
    };
    assert!(problem.text.chars().count() <= 121, "{problem}");
}

/// Lines that a script may have, with numbers that are none too kind.
const LINES: [&str; 27] = [
    "+0 < icmp unreachable frag_needed mtu 68 [1:2(1)]",
    "+0 < icmp unreachable port_unreachable [0:0(0)]",
    "+0 send(4, ..., 70000, MSG_EOR) = 70000",
    "+0 send(4, ..., 10, MSG_MORE) = 10",
    "+0 setsockopt(4, SOL_TCP, TCP_CORK, [1], 4) = 0",
    "+0 setsockopt(4, SOL_SOCKET, SO_SNDBUF, [1], 4) = 0",
    "+0 setsockopt(4, SOL_TCP, TCP_USER_TIMEOUT, [1], 4) = 0",
    "+0 < S 5:15(10) win 9 <mss 1,FO>",
    "+0 `sysctl net.inet.tcp.insecure_rst=1`",
    "+0 write(4, ..., 5000) = 5000",
    "+.1 < . 1:1001(1000) ack 1 win 10",
    "+0 < F. 1:1(0) ack 1 win 0",
    "+0 < S 5:5(0) win 9",
    "+1 < R. 1:1(0) ack 2 win 9",
    "+0 < . 4294967295:0(1) ack 4294967295 win 65535 <sack 0:4294967295 5:1>",
    "+.2 < . 1001:2001(1000) ack 3001 win 0 <TS val 4294967295 ecr 7>",
    "* > . 1:1(0) ack 1",
    "+0~+3 > P. 1:5001(5000) ack 1 <...>",
    "+0...1 read(4, ..., 10) = 10",
    "+0 close(4) = 0",
    "+0 close(3) = 0",
    "+0 shutdown(4, SHUT_RDWR) = 0",
    "+0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 5",
    "+0 connect(5, ..., ...) = 0",
    "+0 %{ assert tcpi_unacked == 0 or tcpi_rto }%",
    "`sysctl net.ipv4.tcp_ecn=1`",
    "999999 write(4, ..., 1) = 1",
];

/// Pieces of lines.
const PIECES: [&str; 34] = [
    "+",
    "*",
    "~",
    "0",
    "1.5",
    "...",
    "<",
    ">",
    "S",
    ".",
    "P",
    "1:2(1)",
    "ack",
    "win",
    "-1",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "=",
    "|",
    "%{",
    "}%",
    "`",
    "\"",
    "/*",
    "//",
    "--define=a=b",
    "a",
    "TS",
    "sack",
    "ü",
];

fn line() -> impl Strategy<Value = String> {
    let pieces = prop::collection::vec(prop::sample::select(&PIECES[..]), 1..12);
    prop_oneof![
        prop::sample::select(&LINES[..]).prop_map(str::to_owned),
        pieces.prop_map(|pieces| pieces.join(" ")),
        any::<String>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        check(&String::from_utf8_lossy(&bytes), &Settings::default());
    }

    #[test]
    fn no_lines_make_it_panic(lines in prop::collection::vec(line(), 0..12)) {
        check(&lines.join("\n"), &Settings::default());
        run(&lines.join("\n"));
    }

    #[test]
    fn no_change_of_a_script_makes_it_panic(
        script in prop::sample::select(scripts()),
        at in any::<prop::sample::Index>(),
        with in prop_oneof![Just(String::new()), line()],
    ) {
        let text = fs::read_to_string(script).expect("is readable");
        let mut lines: Vec<&str> = text.lines().collect();
        let at = at.index(lines.len());
        lines[at] = &with;
        check(&lines.join("\n"), &Settings::default());
    }
}
