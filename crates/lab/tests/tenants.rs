//! Tenants for real: every kind of traffic between two namespaces. Needs root.
//!
//! The test binary runs itself again as a tenant, so it has a main of its own instead of libtest's.

mod support;

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Failed, Trial};
use sluicegate_lab::tenant::{
    Report, maybe_run_tenant,
    plan::{CompletionReport, Connections, Plan, Role},
    plans, spawn, unix_ns,
};
use sluicegate_scenario::{
    cdf::Cdf,
    experiment::{Arrivals, Load, Pace, Phase, Sizes, Traffic, TrafficKind},
};
use support::{PATIENCE, TwoNamespaces, ip, run_all, traffic, variant, verified};

/// Argument of the process that `tenants_die_with_the_lab` kills.
const HOLD: &str = "hold-a-tenant";

fn main() {
    maybe_run_tenant();
    if std::env::args().nth(1).as_deref() == Some(HOLD) {
        return hold_a_tenant();
    }
    let tests: [(&str, fn()); 17] = [
        ("bulk_fills_the_link", bulk_fills_the_link),
        ("bulk_keeps_its_rate", bulk_keeps_its_rate),
        ("a_blast_arrives_in_order", a_blast_arrives_in_order),
        ("bulk_and_probe_speak_ipv6", bulk_and_probe_speak_ipv6),
        (
            "ping_pong_measures_round_trips",
            ping_pong_measures_round_trips,
        ),
        (
            "incast_counts_rounds_and_answers",
            incast_counts_rounds_and_answers,
        ),
        ("messages_complete_one_by_one", messages_complete_one_by_one),
        ("shuffle_goes_round_its_peers", shuffle_goes_round_its_peers),
        ("trace_offers_its_load", trace_offers_its_load),
        (
            "phases_are_offered_and_complete",
            phases_are_offered_and_complete,
        ),
        (
            "datagrams_arrive_with_their_numbers",
            datagrams_arrive_with_their_numbers,
        ),
        ("queries_are_answered", queries_are_answered),
        ("wrong_payload_is_noticed", wrong_payload_is_noticed),
        (
            "unknown_congestion_control_is_an_error",
            unknown_congestion_control_is_an_error,
        ),
        (
            "silent_peer_is_an_error_not_a_hang",
            silent_peer_is_an_error_not_a_hang,
        ),
        ("late_start_is_told", late_start_is_told),
        ("tenants_die_with_the_lab", tenants_die_with_the_lab),
    ];
    let trials = tests.map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok::<(), Failed>(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit();
}

/// Runs this traffic with verified payload; the reports of a and b, which must be free of errors.
fn exchange(kinds: Vec<Traffic>) -> (Report, Report) {
    let world = TwoNamespaces::new();
    let plans = verified(plans(&variant("cubic", kinds), 7).expect("plans"));
    let tenants = plans
        .iter()
        .enumerate()
        .map(|(end, plan)| spawn(plan, world.fd(end)).expect("spawn"));
    let reports: [Report; 2] = run_all(tenants.collect()).try_into().expect("two reports");
    for report in &reports {
        assert_eq!(
            report.errors,
            Vec::<String>::new(),
            "tenant {}",
            report.tenant
        );
    }
    reports.into()
}

fn bulk_fills_the_link() {
    let (a, b) = exchange(vec![traffic(
        TrafficKind::Bulk { rate_bps: None },
        &[(0, 1), (1, 0)],
        5000,
    )]);
    for (sender, receiver) in [(&a, &b), (&b, &a)] {
        let (sent, received) = (&sender.senders[0], &receiver.receivers[0]);
        assert_eq!(sent.flow, received.flow);
        assert_eq!(sent.congestion_control, "cubic");
        assert!(
            received.measured_bytes > 1_000_000,
            "{}",
            received.measured_bytes
        );
        assert!(received.total_bytes > received.measured_bytes);
        assert_eq!(received.verified_bytes, received.total_bytes);
        assert_eq!(
            received.series.iter().map(|(_, bytes)| bytes).sum::<u64>(),
            received.total_bytes
        );
        assert!(sent.cwnd.len() > 10 && sent.cwnd.iter().all(|(_, bytes)| *bytes >= 1448));
        assert!(sent.timeouts.is_some() && sent.srtt_us > 0 && sent.mss_bytes == 1448);
    }
    assert!(
        a.netstat
            .get("OutSegs")
            .is_some_and(|segments| *segments > 100)
    );
    assert!(a.cpu_us > 0);
}

fn bulk_keeps_its_rate() {
    let kind = TrafficKind::Bulk {
        rate_bps: Some(40_000_000),
    };
    let (_, b) = exchange(vec![traffic(kind, &[(0, 1)], 5000)]);
    let allowed = 40_000_000 / 8 * 800 / 1000; // warm-up and measured time: 800 ms
    let received = b.receivers[0].total_bytes;
    assert!(
        (allowed / 4..=allowed).contains(&received),
        "{received} of {allowed}"
    );
}

/// Half of what is sent repeats the other half; the kernel at the far end takes all that is new.
fn a_blast_arrives_in_order() {
    let kind = TrafficKind::Blast {
        rate_bps: 40_000_000,
        span_bytes: 20_000,
    };
    let world = TwoNamespaces::new();
    let plans = plans(&variant("cubic", vec![traffic(kind, &[(0, 1)], 5000)]), 7).expect("plans");
    let tenants = plans
        .iter()
        .enumerate()
        .map(|(end, plan)| spawn(plan, world.fd(end)).expect("spawn"));
    let reports = run_all(tenants.collect());
    for report in &reports {
        assert_eq!(report.errors, Vec::<String>::new(), "{}", report.tenant);
    }
    let allowed = 40_000_000 / 8 * 800 / 1000; // warm-up and measured time: 800 ms
    let received = reports[1].receivers[0].total_bytes;
    assert!(
        (100_000..=allowed).contains(&received),
        "{received} of {allowed}"
    );
    assert_eq!(reports[0].senders[0].congestion_control, "none");
}

fn bulk_and_probe_speak_ipv6() {
    let world = TwoNamespaces::new();
    let probe = TrafficKind::PingPong {
        bytes: 64,
        interval: Duration::from_millis(1),
    };
    let bulk = TrafficKind::Bulk { rate_bps: None };
    let mut variant = variant(
        "reno",
        vec![
            traffic(bulk, &[(0, 1)], 5000),
            traffic(probe, &[(0, 1)], 5100),
        ],
    );
    variant.ip_version = 6;
    for (end, tenant) in variant.tenants.iter_mut().enumerate() {
        let address = format!("fd00::{}", end + 1);
        ip(&[
            "-n",
            world.name(end),
            "address",
            "add",
            &format!("{address}/64"),
            "dev",
            "eth0",
            "nodad",
        ]);
        tenant.address = address.parse().expect("address");
    }
    let plans = verified(plans(&variant, 7).expect("plans"));
    let tenants = plans
        .iter()
        .enumerate()
        .map(|(end, plan)| spawn(plan, world.fd(end)).expect("spawn"));
    let reports = run_all(tenants.collect());
    for report in &reports {
        assert_eq!(
            report.errors,
            Vec::<String>::new(),
            "tenant {}",
            report.tenant
        );
    }
    assert!(reports[1].receivers[0].measured_bytes > 0);
    assert_eq!(reports[0].senders[0].congestion_control, "reno");
    assert!(!reports[0].rtts[0].samples_us.is_empty());
}

fn ping_pong_measures_round_trips() {
    let probe = |bytes, interval| TrafficKind::PingPong { bytes, interval };
    let quick = traffic(probe(64, Duration::from_millis(1)), &[(0, 1)], 5000);
    let large = traffic(probe(300_000, Duration::from_millis(5)), &[(0, 1)], 5100);
    let (a, _) = exchange(vec![quick, large]);
    assert!(
        a.rtts[0].samples_us.len() > 5,
        "{}",
        a.rtts[0].samples_us.len()
    );
    assert!(
        a.rtts[1].samples_us.len() > 1,
        "{}",
        a.rtts[1].samples_us.len()
    );
    let fastest = |index: usize| {
        a.rtts[index]
            .samples_us
            .iter()
            .copied()
            .fold(f64::MAX, f64::min)
    };
    assert!(
        fastest(0) > 1.0 && fastest(0) < fastest(1),
        "{} {}",
        fastest(0),
        fastest(1)
    );
}

fn incast_counts_rounds_and_answers() {
    let kind = TrafficKind::Incast {
        bytes: 50_000,
        interval: Duration::from_millis(2),
    };
    let (a, b) = exchange(vec![traffic(kind, &[(0, 1), (0, 1), (0, 1)], 5000)]);
    let rounds: Vec<_> = b
        .completions
        .iter()
        .filter(|part| part.class == "round")
        .collect();
    let answers: Vec<_> = b
        .completions
        .iter()
        .filter(|part| part.class == "answer")
        .collect();
    assert_eq!((rounds.len(), answers.len(), a.senders.len()), (1, 3, 3));
    let count = rounds[0].samples_us.len();
    assert!(count > 1, "{count}");
    for answer in &answers {
        // The last round may be cut off by the end of the run with some of its answers there.
        assert!((count..=count + 1).contains(&answer.samples_us.len()));
        for (part, whole) in answer.samples_us.iter().zip(&rounds[0].samples_us) {
            assert!(part <= whole);
        }
    }
    assert!(
        b.receivers
            .iter()
            .all(|receiver| receiver.total_bytes >= 50_000 * count as u64)
    );
}

fn messages_complete_one_by_one() {
    let interval = Duration::from_millis(10);
    let kind = TrafficKind::Messages {
        bytes: 16_384,
        interval,
        class: "mice".into(),
    };
    let (a, b) = exchange(vec![traffic(kind, &[(0, 1)], 5000)]);
    let mice = b
        .completions
        .iter()
        .find(|part| part.class == "mice")
        .expect("mice");
    let late: u64 = a
        .completions
        .iter()
        .map(|part| part.open_us.len() as u64)
        .sum();
    // 600 ms of measured time at one every 10 ms: each is complete or counted as late, the last
    // perhaps as both.
    let complete = mice.samples_us.len() as u64;
    assert!(
        complete > 0 && complete <= 60 && complete + late >= 60,
        "{complete} and {late} of 60"
    );
    assert!(mice.samples_us.iter().all(|elapsed| *elapsed > 1.0));
}

fn shuffle_goes_round_its_peers() {
    let kind = TrafficKind::Shuffle {
        bytes: 200_000,
        parallel: 2,
        class: "shuffle".into(),
    };
    let (_, b) = exchange(vec![traffic(kind, &[(0, 1), (0, 1), (0, 1)], 5000)]);
    let counts: Vec<usize> = b
        .completions
        .iter()
        .map(|part| part.samples_us.len())
        .collect();
    assert_eq!(counts.len(), 3);
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    // Two at a time in a fixed order: no peer can fall behind by more than what is under way.
    assert!(
        counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 3,
        "{counts:?}"
    );
}

fn trace_offers_its_load() {
    let sizes = Cdf::parse("test", "bytes,cdf\n1000,0.5\n20000,1\n").expect("cdf");
    let classes = vec![(10_000, "small".to_owned()), (u64::MAX, "large".to_owned())];
    let kind = TrafficKind::Trace {
        sizes,
        load: Load::Offered(20_000_000),
        classes,
        intra_rack: None,
    };
    let (a, b) = exchange(vec![traffic(kind, &[(0, 1), (0, 1)], 5000)]);
    let completions = || a.completions.iter().chain(&b.completions);
    let complete: u64 = completions().map(|part| part.samples_us.len() as u64).sum();
    let late: u64 = completions().map(|part| part.open_us.len() as u64).sum();
    let plans = plans(&variant("cubic", vec![trace_again()]), 7).expect("plans");
    let due = arrivals_measured(&plans[0]);
    assert!(
        complete <= due && complete + late >= due,
        "{complete} and {late} of {due}"
    );
    let some =
        |class: &str| completions().any(|part| part.class == class && !part.samples_us.is_empty());
    assert!(some("small") && some("large"));
}

/// The traffic of `trace_offers_its_load`, to be planned a second time with the same seed.
fn trace_again() -> Traffic {
    let sizes = Cdf::parse("test", "bytes,cdf\n1000,0.5\n20000,1\n").expect("cdf");
    let classes = vec![(10_000, "small".to_owned()), (u64::MAX, "large".to_owned())];
    traffic(
        TrafficKind::Trace {
            sizes,
            load: Load::Offered(20_000_000),
            classes,
            intra_rack: None,
        },
        &[(0, 1), (0, 1)],
        5000,
    )
}

fn arrivals_measured(plan: &Plan) -> u64 {
    use sluicegate_lab::tenant::plan::Schedule;
    let Role::MessageSource {
        schedule: Schedule::Open { arrivals },
        ..
    } = &plan.roles[0]
    else {
        panic!("a trace is planned as open arrivals");
    };
    let window = plan.measure_begin_ns..plan.measure_end_ns;
    arrivals
        .iter()
        .filter(|arrival| window.contains(&arrival.at_ns))
        .count() as u64
}

fn phases_are_offered_and_complete() {
    let phase = |until_ms, rate_bps| Phase {
        until: Some(Duration::from_millis(until_ms)),
        rate_bps,
    };
    let kind = TrafficKind::Phased {
        phases: vec![phase(400, 8_000_000), phase(500, 40_000_000)],
        class: Some("whole".into()),
    };
    let mut traffic = traffic(kind, &[(0, 1)], 5000);
    traffic.start = Duration::from_millis(250);
    let (a, b) = exchange(vec![traffic]);
    assert_eq!(b.receivers[0].total_bytes, 150_000 + 500_000);
    assert_eq!(b.receivers[0].verified_bytes, b.receivers[0].total_bytes);
    let whole: Vec<f64> = b
        .completions
        .iter()
        .flat_map(|part| part.samples_us.clone())
        .collect();
    assert_eq!(whole.len(), 1);
    assert!(whole[0] >= 249_000.0, "nothing is offered early: {whole:?}");
    let begun: u64 = a.completions.iter().map(|part| part.begun).sum();
    let open = a.completions.iter().any(|part| !part.open_us.is_empty());
    assert_eq!(
        (a.senders[0].flow, begun, open),
        (0, 1, false),
        "it has begun and is complete"
    );
}

fn datagrams_arrive_with_their_numbers() {
    let kind = |pace| TrafficKind::Datagrams {
        bytes: 1_000,
        pace,
        socket_buffer_bytes: 256_000,
    };
    let even = traffic(kind(Pace::Rate(8_000_000)), &[(0, 1)], 5000);
    let bursts = Pace::Bursts {
        sizes: Sizes::Fixed(3_010),
        arrivals: Arrivals::Fixed { interval_s: 0.02 },
    };
    let (a, b) = exchange(vec![even, traffic(kind(bursts), &[(0, 1)], 5100)]);
    for (sent, received) in a.datagrams_sent.iter().zip(&b.datagrams_received) {
        assert_eq!(sent.flow, received.flow);
        assert_eq!(sent.socket_drops, (0, 0));
        // The last may be on their way.
        let (count, missing) = (received.received.0, sent.sent.0 - received.received.0);
        assert!(count > 50 && missing < 50, "{received:?} of {sent:?}");
        let upto = received.latest.expect("some arrive");
        assert_eq!(
            upto.0 - sent.before.0,
            count,
            "none is lost: {sent:?} {received:?}"
        );
        assert_eq!(upto.1 - sent.before.1, received.received.1);
    }
    // 3010 bytes are three datagrams and a header's worth.
    let received = b.datagrams_received[1].received;
    assert_eq!(received.1 * 4, received.0 * 3_032);
}

fn queries_are_answered() {
    for connections in [Connections::PerMessage, Connections::Pool, Connections::One] {
        let kind = TrafficKind::Queries {
            bytes: 20_000,
            request_bytes: 100,
            queries: None,
            arrivals: Arrivals::Fixed { interval_s: 0.01 },
            connections,
            racks: vec![vec![1]],
            workers: Vec::new(),
        };
        let (a, _) = exchange(vec![traffic(kind, &[(0, 1)], 5000)]);
        let count = |part: &CompletionReport| part.samples_us.len() + part.open_us.len();
        assert_eq!(a.completions.iter().map(count).sum::<usize>(), 60, "{a:?}");
        assert!(a.completions[0].samples_us.len() > 30, "{a:?}");
    }
}

fn wrong_payload_is_noticed() {
    let world = TwoNamespaces::new();
    let kinds = vec![traffic(
        TrafficKind::Bulk { rate_bps: None },
        &[(0, 1)],
        5000,
    )];
    let plans = verified(plans(&variant("cubic", kinds), 7).expect("plans"));
    let mut sink = spawn(&plans[1], world.fd(1)).expect("spawn");
    sink.wait_ready(PATIENCE).expect("ready");
    sink.set_start(unix_ns()).expect("start");
    // A stranger in place of the source, from inside the other namespace.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let netns = rustix::thread::LinkNameSpaceType::Network;
            rustix::thread::move_into_link_name_space(world.fd(0), Some(netns)).expect("setns");
            let mut stream = TcpStream::connect("10.9.0.2:5000").expect("connect");
            stream.write_all(&[0; 10_000]).expect("write");
        });
    });
    let report = sink.wait_report(PATIENCE).expect("report");
    assert!(
        report
            .errors
            .iter()
            .any(|error| error.contains("payload differs")),
        "{:?}",
        report.errors
    );
}

fn unknown_congestion_control_is_an_error() {
    let world = TwoNamespaces::new();
    let kinds = vec![traffic(
        TrafficKind::Bulk { rate_bps: None },
        &[(0, 1)],
        5000,
    )];
    let plans = plans(&variant("nosuchcc", kinds), 7).expect("plans");
    let error = spawn(&plans[1], world.fd(1))
        .expect("spawn")
        .wait_ready(PATIENCE)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("tenant b") && error.contains("nosuchcc"),
        "{error}"
    );
}

fn silent_peer_is_an_error_not_a_hang() {
    let world = TwoNamespaces::new();
    let kinds = vec![traffic(
        TrafficKind::Bulk { rate_bps: None },
        &[(0, 1)],
        5000,
    )];
    let plans = plans(&variant("cubic", kinds), 7).expect("plans");
    let reports = run_all(vec![spawn(&plans[0], world.fd(0)).expect("spawn")]);
    let expected = "no connection to 10.9.0.2:5000";
    assert!(
        reports[0]
            .errors
            .iter()
            .any(|error| error.contains(expected)),
        "{:?}",
        reports[0].errors
    );
    assert!(reports[0].senders.is_empty());
}

fn late_start_is_told() {
    let world = TwoNamespaces::new();
    let kinds = vec![traffic(
        TrafficKind::Bulk { rate_bps: None },
        &[(0, 1)],
        5000,
    )];
    let plans = plans(&variant("cubic", kinds), 7).expect("plans");
    let mut sink = spawn(&plans[1], world.fd(1)).expect("spawn");
    sink.wait_ready(PATIENCE).expect("ready");
    sink.set_start(unix_ns() - 400_000_000).expect("start");
    let report = sink.wait_report(PATIENCE).expect("report");
    assert!(
        report.errors.iter().any(|error| error.contains("too late")),
        "{:?}",
        report.errors
    );
}

/// Starts a tenant, says its process id, and waits to be killed.
fn hold_a_tenant() {
    let world = std::fs::File::open("/proc/self/ns/net").expect("namespace");
    let kinds = vec![traffic(
        TrafficKind::Bulk { rate_bps: None },
        &[(0, 1)],
        5999,
    )];
    let mut plans = plans(&variant("cubic", kinds), 7).expect("plans");
    plans[1].sysctls.clear(); // this is the machine's own namespace
    let mut tenant = spawn(&plans[1], std::os::fd::AsFd::as_fd(&world)).expect("spawn");
    tenant.wait_ready(PATIENCE).expect("ready");
    println!("{}", tenant.pid());
    std::thread::sleep(PATIENCE);
}

fn tenants_die_with_the_lab() {
    let executable = std::env::current_exe().expect("executable");
    let mut lab = Command::new(executable)
        .arg(HOLD)
        .stdout(Stdio::piped())
        .spawn()
        .expect("spawn");
    let mut line = String::new();
    BufReader::new(lab.stdout.take().expect("stdout"))
        .read_line(&mut line)
        .expect("process id");
    let process = format!("/proc/{}/stat", line.trim());
    assert!(std::fs::exists(&process).unwrap_or(false), "{process}");
    lab.kill().expect("kill"); // SIGKILL: no handler helps
    lab.wait().expect("wait");
    let deadline = Instant::now() + PATIENCE;
    let alive = || std::fs::read_to_string(&process).is_ok_and(|stat| !stat.contains(") Z "));
    while alive() {
        assert!(Instant::now() < deadline, "the tenant outlived the lab");
        std::thread::sleep(Duration::from_millis(5));
    }
}
