//! The meaning of `[traffic.NAME]`, and what it refuses.

use std::{path::Path, time::Duration};

use sluicegate_scenario::{
    experiment::{Action, Arrivals, Load, Pace, Phase, Sizes, TrafficKind, Variant},
    file::{self, Options},
    workload::{
        self,
        plan::{Connections, Role, Schedule},
    },
};

/// Ends at line 3.
const PAIR: &str = "[network]\ntopology = 'dumbbell'\npairs = 1\n";

fn parse(text: &str) -> Result<Variant, String> {
    let parsed = file::parse(Path::new("t.toml"), text, &Options::default());
    let parsed = parsed.map(|mut experiment| experiment.variants.remove(0));
    parsed.map_err(|problems| problems.to_string())
}

/// Of a pair with this traffic.
fn one(traffic: &str) -> Variant {
    parse(&format!("{PAIR}{traffic}")).unwrap_or_else(|problems| panic!("{problems}"))
}

/// The first line of what is said of a pair with this traffic.
fn refusal(traffic: &str) -> String {
    match parse(&format!("{PAIR}{traffic}")) {
        Ok(variant) => panic!("accepted: {variant:?}"),
        Err(problems) => problems,
    }
}

#[test]
fn every_kind_of_traffic_may_have_a_priority() {
    let variant = one(
        "[traffic.a]\nkind = 'bulk'\npriority = 7\n[traffic.b]\nkind = 'ping-pong'\n\
        [traffic.c]\nkind = 'trace'\nsizes = 'websearch'\nload = '1Mbit'\npriority = 3\n\
        [network.cee]\n",
    );
    let priorities = variant.traffic.iter().map(|traffic| traffic.priority);
    assert_eq!(priorities.collect::<Vec<_>>(), [7, 0, 3]);
    let text = refusal("[traffic.a]\nkind = 'bulk'\npriority = 8\n");
    assert!(text.contains("t.toml:6:12: traffic.a.priority: "), "{text}");
}

#[test]
fn bulk_traffic_may_have_phases() {
    let variant = one(
        "[traffic.b]\nkind = 'bulk'\nclass = 'whole'\ndeadline = '3s'\n\
        phases = [{ until = '100ms', rate = '1.2Gbit' }, { until = '110ms', rate = '0bit' }, { rate = '1Mbit' }]\n",
    );
    let phase = |until: Option<u64>, rate_bps| Phase {
        until: until.map(Duration::from_millis),
        rate_bps,
    };
    let expected = TrafficKind::Phased {
        phases: vec![
            phase(Some(100), 1_200_000_000),
            phase(Some(110), 0),
            phase(None, 1_000_000),
        ],
        class: Some("whole".to_owned()),
    };
    assert_eq!(variant.traffic[0].kind, expected);
    assert!(expected.is_bulk());
    assert_eq!(expected.classes(), ["whole"]);
}

#[test]
fn phases_that_make_no_sense_are_refused_where_they_are_said() {
    for (keys, expected) in [
        (
            "phases = [{ rate = '1Mbit' }, { rate = '2Mbit' }]",
            "t.toml:6:11: traffic.b.phases[0]: `until` is missing",
        ),
        (
            "phases = [{ until = '2s', rate = '1Mbit' }, { until = '2s', rate = '2Mbit' }]",
            "t.toml:6:55: traffic.b.phases[1].until: must come after 2s",
        ),
        (
            "phases = [{ until = '2s' }]",
            "t.toml:6:11: traffic.b.phases[0]: `rate` is missing",
        ),
        (
            "phases = [{ rate = '0bit' }]",
            "t.toml:6:10: traffic.b.phases: nothing is offered",
        ),
        (
            "phases = []",
            "t.toml:6:10: traffic.b.phases: must not be empty",
        ),
        (
            "phases = [{ rate = '1bit' }]\nrate = '1bit'",
            "t.toml:7:1: traffic.b.rate: `phases` say it",
        ),
        (
            "class = 'x'",
            "t.toml:6:1: traffic.b.class: belongs to bulk",
        ),
        (
            "deadline = '1s'",
            "t.toml:6:1: traffic.b.deadline: belongs to",
        ),
    ] {
        let text = refusal(&format!("[traffic.b]\nkind = 'bulk'\n{keys}\n"));
        assert!(text.contains(expected), "{keys}: {text}");
    }
}

fn pace(keys: &str) -> Pace {
    let variant = one(&format!("[traffic.u]\nkind = 'datagrams'\n{keys}\n"));
    match &variant.traffic[0].kind {
        TrafficKind::Datagrams {
            bytes: 1472,
            pace,
            socket_buffer_bytes: 256_000,
        } => pace.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn datagrams_have_a_rate_or_bursts() {
    assert_eq!(pace("rate = '8Mbit'"), Pace::Rate(8_000_000));
    let bursts = |arrivals| Pace::Bursts {
        sizes: Sizes::Fixed(28_000),
        arrivals,
    };
    for (keys, arrivals) in [
        ("interval = '2ms'", Arrivals::Exponential { mean_s: 2e-3 }),
        ("load = '224Mbit'", Arrivals::Exponential { mean_s: 1e-3 }),
        (
            "interval = '2ms'\narrivals = 'fixed'",
            Arrivals::Fixed { interval_s: 2e-3 },
        ),
        (
            "arrivals = { kind = 'lognormal', median = '1ms', sigma = 2.0 }",
            Arrivals::Lognormal {
                median_s: 1e-3,
                sigma: 2.0,
            },
        ),
    ] {
        assert_eq!(
            pace(&format!("burst = '28KB'\n{keys}")),
            bursts(arrivals),
            "{keys}"
        );
    }
    let Pace::Bursts { sizes, arrivals } = pace("bursts = 'background-large'\nload = '1Gbit'")
    else {
        panic!()
    };
    assert!((sizes.mean_bytes() / 583e3 - 1.0).abs() < 1e-3);
    assert!((arrivals.mean_s() / (583e3 * 8.0 / 1e9) - 1.0).abs() < 1e-3);
}

#[test]
fn datagrams_that_make_no_sense_are_refused_where_they_are_said() {
    for (keys, expected) in [
        ("", "t.toml:4:1: traffic.u: `rate` is missing"),
        ("burst = '1KB'", "t.toml:4:1: traffic.u: `load` is missing"),
        (
            "rate = '1Mbit'\nload = '1Mbit'",
            "t.toml:7:1: traffic.u.load: belongs to bursts",
        ),
        (
            "rate = '1Mbit'\nbytes = '2KB'",
            "t.toml:7:9: traffic.u.bytes: must lie between 1B and 1472B",
        ),
        (
            "rate = '1Mbit'\nsocket_buffer = '1KB'",
            "t.toml:7:17: traffic.u.socket_buffer: must lie",
        ),
        (
            "rate = '1Mbit'\ndeadline = '1s'",
            "t.toml:7:1: traffic.u.deadline: belongs to",
        ),
        (
            "burst = '1KB'\narrivals = 'x.csv'",
            "t.toml:7:12: traffic.u.arrivals: x.csv cannot be read",
        ),
        (
            "burst = '1KB'\narrivals = { kind = 'exponential', mean = '0s' }",
            "t.toml:7:43: traffic.u.arrivals.mean: must not be zero",
        ),
        (
            "burst = '1KB'\nload = '1Mbit'\narrivals = { kind = 'exponential', mean = '1s' }",
            "t.toml:7:1: traffic.u.load: `arrivals` say it",
        ),
    ] {
        let text = refusal(&format!("[traffic.u]\nkind = 'datagrams'\n{keys}\n"));
        assert!(text.contains(expected), "{keys}: {text}");
    }
}

/// Ends at line 4.
const TREE: &str = "[network]\ntopology = 'fat-tree'\nchildren = [3, 2]\nparents = [1, 2]\n";

#[test]
fn workers_of_queries_are_those_of_the_rack() {
    let tenants = TREE.replace("[network]\n", "[network]\ntenants_per_host = 3\n");
    let traffic = "[traffic.q]\nkind = 'queries'\nfrom = 'h1-1'\nto = 'h*-2'\nworkers = 'h*-3'\nbytes = '20KB'\n\
        arrivals = { kind = 'exponential', mean = '1ms' }\n";
    let variant = parse(&format!("{tenants}{traffic}")).unwrap();
    let TrafficKind::Queries { racks, workers, .. } = &variant.traffic[0].kind else {
        panic!("queries");
    };
    assert_eq!(racks[..], [vec![1, 4, 7], vec![10, 13, 16]]);
    assert_eq!(workers[..], [vec![2, 5, 8], vec![11, 14, 17]]);
    let asked = 6 + 2 * 3 * 3;
    assert_eq!(variant.traffic[0].pairs.len(), asked, "who may ask whom");
    for (workers, expected) in [("h1-3", "has none"), ("h*-2", "is a server")] {
        let text = format!("{tenants}{}", traffic.replace("h*-3", workers));
        let found = parse(&text).unwrap_err().to_string();
        assert!(found.contains(expected), "{workers}: {found}");
    }
}

#[test]
fn servers_of_queries_are_grouped_by_their_switch() {
    let text = format!(
        "{TREE}[traffic.q]\nkind = 'queries'\nfrom = 'h2'\nbytes = '20KB'\nqueries = 9\n\
        arrivals = {{ kind = 'exponential', mean = '1ms' }}\n[traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n"
    );
    let variant = parse(&text).unwrap();
    let expected = TrafficKind::Queries {
        bytes: 20_000,
        request_bytes: 20_000,
        queries: Some(9),
        arrivals: Arrivals::Exponential { mean_s: 1e-3 },
        connections: Connections::PerMessage,
        racks: vec![vec![0, 2], vec![3, 4, 5]],
        workers: Vec::new(),
    };
    assert_eq!(variant.traffic[0].kind, expected);
    assert_eq!(expected.classes(), ["query", "answer"]);
    assert_eq!(
        variant.traffic[0].pairs.len(),
        5 + 2 + 6,
        "who may ask whom"
    );
    assert_eq!(variant.traffic[1].port, 10_001, "a server has one port");
}

#[test]
fn queries_that_make_no_sense_are_refused_where_they_are_said() {
    let rest = "bytes = '1KB'\narrivals = { kind = 'exponential', mean = '1ms' }";
    for (keys, expected) in [
        (rest.to_owned(), "t.toml:5:1: traffic.q: `from` is missing"),
        (
            format!("from = 'h*'\n{rest}"),
            "t.toml:5:1: traffic.q: no server is left for the queries",
        ),
        (
            "from = 'h1'\nbytes = '1KB'".to_owned(),
            "t.toml:5:1: traffic.q: `arrivals` is missing",
        ),
        (
            format!("from = 'h1'\npairs = 'random'\n{rest}"),
            "t.toml:8:1: traffic.q.pairs: does not belong",
        ),
        (
            format!("from = 'h1'\nconnections = 'some'\n{rest}"),
            "t.toml:8:15: traffic.q.connections: ",
        ),
        (
            format!("from = 'h1'\nqueries = 0\n{rest}"),
            "t.toml:8:11: traffic.q.queries: ",
        ),
    ] {
        let text = format!("{TREE}[traffic.q]\nkind = 'queries'\n{keys}\n");
        let problems = parse(&text).unwrap_err();
        assert!(problems.contains(expected), "{keys}: {problems}");
    }
}

#[test]
fn external_hosts_hang_from_the_topmost_switches_and_are_in_no_rack() {
    let text = "[network]\ntopology = 'fat-tree'\nchildren = [4, 2]\nparents = [1, 2]\nexternal = 3\n\
        [traffic.q]\nkind = 'queries'\nfrom = 'x*'\nbytes = '20KB'\narrivals = { kind = 'fixed', interval = '1ms' }\n\
        [traffic.b]\nkind = 'bulk'\npairs = 'stride:4'\n[traffic.p]\nkind = 'ping-pong'\nfrom = 'x1'\nto = 'x2'\n";
    let variant = parse(text).unwrap();
    assert_eq!(variant.hosts.len(), 11);
    let links = variant.links.iter().map(|link| link.name.as_str());
    let external: Vec<_> = links.filter(|name| name.contains('x')).collect();
    assert_eq!(external, ["a1-x1", "a2-x2", "a1-x3"]);
    let TrafficKind::Queries { racks, .. } = &variant.traffic[0].kind else {
        panic!()
    };
    assert_eq!(racks, &[vec![0, 1, 2, 3], vec![4, 5, 6, 7]]);
    assert!(
        variant.traffic[1]
            .pairs
            .iter()
            .all(|(from, to)| *from < 8 && *to < 8)
    );
    let problems = parse(&format!("{PAIR}external = 2\n[traffic.b]\nkind = 'bulk'\n")).unwrap_err();
    assert!(
        problems.contains("t.toml:4:1: network.external: does not belong to this topology"),
        "{problems}"
    );
}

/// Of h2, as (peer's flow, bytes), with how many are of its rack.
fn drawn(keys: &str) -> (usize, Vec<u32>) {
    let text = format!(
        "duration = '20s'\n{TREE}[traffic.t]\nkind = 'trace'\nsizes = 'background-medium'\n{keys}\n"
    );
    let variant = parse(&text).unwrap_or_else(|problems| panic!("{problems}"));
    let flows = workload::flows(&variant);
    let plans = workload::plans(&variant, 1).unwrap();
    let role = plans[1].roles.iter().find_map(|role| match role {
        Role::MessageSource {
            peers, schedule, ..
        } => Some((peers, schedule)),
        _ => None,
    });
    let Some((peers, Schedule::Open { arrivals })) = role else {
        panic!()
    };
    let to = |peer: u32| flows[peers[peer as usize].0 as usize].to;
    let near = arrivals
        .iter()
        .filter(|arrival| to(arrival.peer) < 3)
        .count();
    (near, arrivals.iter().map(|arrival| arrival.peer).collect())
}

#[test]
fn a_trace_may_have_arrivals_and_stay_in_its_rack() {
    let arrivals = "arrivals = { kind = 'exponential', mean = '2ms' }";
    let (_, all) = drawn(arrivals);
    assert!((10_500..11_500).contains(&all.len()), "22 s: {}", all.len());
    for fraction in [0.0, 0.3, 1.0] {
        let (near, all) = drawn(&format!("{arrivals}\nintra_rack = {fraction:?}"));
        let found = near as f64 / all.len() as f64;
        assert!((found - fraction).abs() < 0.02, "{fraction}: {found}");
    }
    let (near, all) = drawn("load = '100Mbit'\nintra_rack = 0.9");
    assert!((near as f64 / all.len() as f64 - 0.9).abs() < 0.02);
    assert_eq!(all.iter().max(), Some(&4), "all peers are drawn");
}

#[test]
fn traces_that_make_no_sense_are_refused_where_they_are_said() {
    let trace = "[traffic.t]\nkind = 'trace'\nsizes = 'websearch'\n";
    for (keys, expected) in [
        (
            "load = '1Mbit'\narrivals = { kind = 'fixed', interval = '1ms' }",
            "t.toml:8:1: traffic.t.load: `arrivals` and `sizes` say it",
        ),
        (
            "concurrent = 3\narrivals = { kind = 'fixed', interval = '1ms' }",
            "t.toml:9:1: traffic.t.arrivals: with `concurrent`",
        ),
        (
            "load = '1Mbit'\nto = ['h1', 'h5']\nfrom = 'h4'\nintra_rack = 1.5",
            "t.toml:11:14: traffic.t.intra_rack: ",
        ),
        (
            "load = '1Mbit'\nto = ['h1', 'h2']\nfrom = 'h4'\nintra_rack = 0.3",
            "t.toml:11:14: traffic.t.intra_rack: h4 has no peer in its own rack",
        ),
        (
            "load = '1Mbit'\nto = ['h5', 'h6']\nfrom = 'h4'\nintra_rack = 0.3",
            "t.toml:11:14: traffic.t.intra_rack: h4 has no peer in another rack",
        ),
    ] {
        let problems = parse(&format!("{TREE}{trace}{keys}\n")).unwrap_err();
        assert!(problems.contains(expected), "{keys}: {problems}");
    }
    let variant = one(
        "[traffic.t]\nkind = 'trace'\nsizes = 'websearch'\narrivals = { kind = 'fixed', interval = '1ms' }\n",
    );
    let TrafficKind::Trace { load, .. } = &variant.traffic[0].kind else {
        panic!()
    };
    assert_eq!(load, &Load::Arrivals(Arrivals::Fixed { interval_s: 1e-3 }));
}

#[test]
fn a_slow_link_has_its_rate_again_when_its_time_is_over() {
    let event = |keys: &str| {
        format!(
            "[traffic.b]\nkind = 'bulk'\n[[event]]\nat = '1s'\nfor = '2s'\nslow_link = {{ {keys} }}\n"
        )
    };
    let variant = one(&event("links = ['left-*'], rate = '10Mbit'"));
    let events: Vec<_> = variant
        .events
        .iter()
        .map(|event| (event.at.as_secs(), &event.action))
        .collect();
    let rate = |links: Vec<usize>, rate_bps| Action::LinkRate { links, rate_bps };
    let expected = [
        (1, &rate(vec![0, 1], 10_000_000)),
        (3, &rate(vec![0], 1_000_000_000)),
        (3, &rate(vec![1], 1_000_000_000)),
    ];
    assert_eq!(events, expected);
    let text = refusal(&event("links = ['left-*'], rate = '2Gbit'"));
    assert!(
        text.contains("event[0].slow_link.rate: is above the rate"),
        "{text}"
    );
    let text = parse(&format!(
        "{PAIR}[network.cee]\n{}",
        event("links = ['left-*'], rate = '1Mbit'")
    ));
    let text = text.unwrap_err();
    assert!(
        text.contains("t.toml:10:13: event[0].slow_link: a switch that forwards"),
        "{text}"
    );
    let text = refusal(&event("rate = '10Mbit'"));
    assert!(
        text.contains("t.toml:9:13: event[0].slow_link: `links` is missing"),
        "{text}"
    );
}

#[test]
fn pairs_have_ports_of_their_own_as_long_as_there_are_enough() {
    let star = |hosts: u32, traffic: &str| {
        parse(&format!(
            "[network]\ntopology = 'star'\nhosts = {hosts}\n{traffic}"
        ))
    };
    let kinds = [
        "kind = 'trace'\nsizes = 'websearch'\nload = '10Mbit'\n",
        "kind = 'shuffle'\nbytes = '1KB'\n",
        "kind = 'bulk'\npairs = 'all-to-all'\n",
        "kind = 'datagrams'\nrate = '1Mbit'\npairs = 'all-to-all'\n",
    ];
    for kind in kinds {
        let few = star(178, &format!("[traffic.w]\nport = 1024\n{kind}")).unwrap();
        assert!(!few.traffic[0].shares_ports);
        assert_eq!(few.traffic[0].ports(), 178 * 177);
        for (hosts, port) in [(179, "port = 1024\n"), (179, ""), (320, "")] {
            let many = star(hosts, &format!("[traffic.w]\n{port}{kind}")).unwrap();
            assert!(many.traffic[0].shares_ports);
            assert_eq!(many.traffic[0].ports(), hosts - 1);
            let flows = workload::flows(&many);
            assert!(flows.iter().all(|flow| flow.port < 32_768));
            let mut ends: Vec<_> = flows.iter().map(|flow| (flow.to, flow.port)).collect();
            ends.sort_unstable();
            ends.dedup();
            assert_eq!(ends.len(), flows.len(), "{kind}");
        }
    }
    // What does not fit behind the others takes ports in front of them.
    let all = "kind = 'bulk'\npairs = 'all-to-all'\n";
    let text = format!("[traffic.a]\n{all}port = 32000\n[traffic.b]\n{all}[traffic.c]\n{all}");
    let three = star(600, &text).unwrap();
    let ranges: Vec<_> = three.traffic.iter().map(|one| one.port_range()).collect();
    assert_eq!(ranges, [32_000..32_599, 1_024..1_623, 1_623..2_222]);
    let refused = star(1000, &format!("[traffic.a]\n{all}port = 32000\n")).unwrap_err();
    let expected = "t.toml:4:1: traffic.a: a receiver needs ports 32000 to 32998, beyond 32767; use a lower \
        `port`, and at most 31744 pairs for each receiver";
    assert_eq!(refused, expected);
}
