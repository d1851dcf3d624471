use super::*;
use crate::parser;

fn machine(text: &str) -> Step<Machine> {
    let script = parser::parse(text, &[])?;
    Machine::new(&script, &Settings::default())
}

#[test]
fn options_and_commands_make_a_configuration() {
    let text = "--mtu=1400\n--tolerance_usecs=100\n\
        `../common/defaults.sh\n sysctl -q net.ipv4.tcp_ecn=1 net.ipv4.tcp_sack=0\n\
        ./set_sysctls.py /proc/sys/net/ipv4/tcp_slow_start_after_idle=1 \\\n  /proc/sys/net/ipv4/tcp_min_tso_segs=4\n\
        ip route change 192.0.2.0/24 dev tun0 initcwnd 4; echo 0 > /proc/sys/net/ipv4/tcp_timestamps`\n\
        `sysctl -q net.ipv4.tcp_rmem=\"4096 8000 $((9*1000))\"`";
    let machine = machine(text).expect("is understood");
    let config = machine.config;
    assert_eq!((config.mss, machine.tolerance_ns), (1360, 100_000));
    assert_eq!(config.ecn, Ecn::Offer);
    assert!(!config.sack && !config.timestamps && config.restart_after_idle);
    assert_eq!(config.params.init_segments, 4);
    assert_eq!(config.receive_buffer.max_bytes, 9000);
}

#[test]
fn what_is_not_understood_is_named_with_its_line() {
    for (text, line, reason) in [
        ("--wire_client", 1, "wire_client"),
        (
            "\n`./defaults.sh\ntc qdisc replace dev tun0 root netem delay 1ms`",
            3,
            "netem",
        ),
        ("`true; sysctl -w net.ipv4.tcp_ecn=6`", 1, "tcp_ecn=6"),
        ("`sysctl net.ipv4.tcp_ecn_option=4`", 1, "tcp_ecn_option=4"),
        ("`sysctl net.ipv4.tcp_recovery=0`", 1, "RACK"),
        ("`rm -rf x`", 1, "rm -rf x"),
        ("--mtu=10", 1, "10"),
    ] {
        match machine(text) {
            Err(Stop::Unsupported(problem)) => {
                assert_eq!(problem.line, line, "{problem}");
                assert!(problem.text.contains(reason), "{problem}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn a_machine_may_have_parameters_before_the_script() {
    let settings = Settings {
        options: vec![("sysctl".to_owned(), "net.ipv4.tcp_sack=0".to_owned())],
        ..Settings::default()
    };
    let script = |text: &str| parser::parse(text, &[]).expect("is a script");
    let machine = |text: &str| Machine::new(&script(text), &settings).expect("is understood");
    assert!(!machine("0 `true`").config.sack);
    assert!(machine("`sysctl net.ipv4.tcp_sack=1`").config.sack);
}

#[test]
fn of_two_commands_the_second_counts_where_linux_lacks_the_parameter_of_the_first() {
    let absent = "sysctl -q net.ipv4.tcp_fastopen_cookies=0 &> /dev/null";
    let made = machine(&format!("`{absent} || sysctl net.ipv4.tcp_sack=0`"));
    assert!(!made.expect("is understood").config.sack);
    let made = machine("`sysctl net.ipv4.tcp_sack=1 || sysctl net.ipv4.nothing=0`");
    assert!(made.expect("is understood").config.sack);
    let made = machine("`ip tcp_metrics flush all || true`");
    assert!(made.is_ok());
    for first in [
        "tc qdisc replace dev tun0 root netem delay 1ms",
        // Linux has it; only the interpreter does not.
        "sysctl net.ipv4.tcp_max_reordering=300",
        "sysctl net.ipv4.tcp_ecn=6",
        // sysctl fails, but not before it has set the first.
        "sysctl net.ipv4.tcp_sack=0 net.ipv4.tcp_fastopen_cookies=0",
        // What follows depends on the connection.
        "nstat | grep TcpExtTCPRcvQDrop",
    ] {
        let made = machine(&format!("`{first} || true`"));
        assert!(matches!(made, Err(Stop::Unsupported(_))), "{first}");
    }
}

#[test]
fn the_discipline_fq_paces_and_none_may_delay_or_drop() {
    let queue = |text: &str| machine(&format!("`tc qdisc {text}`")).map(|it| it.config.pacing);
    let add = "replace dev tun0 root";
    assert_eq!(queue(&format!("{add} fq")), Ok(true));
    assert_eq!(queue("del dev tun0 root fq"), Ok(false));
    assert_eq!(queue(&format!("{add} pfifo 2>/dev/null")), Ok(false));
    let changed = format!("{add} fq; tc qdisc delete dev tun0 root 2>/dev/null");
    assert_eq!(queue(&changed), Ok(false));
    assert_eq!(
        queue(&format!("{add} fq; tc qdisc {add} noqueue")),
        Ok(false)
    );
    for kind in [
        "pfifo limit 0",
        "bfifo limit 3000",
        "fq maxrate 1mbit",
        "netem loss 1%",
        "red",
    ] {
        let made = queue(&format!("{add} {kind}"));
        assert!(matches!(made, Err(Stop::Unsupported(_))), "{kind}");
    }
}

#[test]
fn parameters_that_belong_together_may_come_in_a_row() {
    let both = "`sysctl net.ipv4.tcp_recovery=0 net.ipv4.tcp_early_retrans=0`";
    assert_eq!(
        machine(both).expect("is understood").config.recovery,
        Recovery::Sack
    );
}
