//! The meaning of `kind = "hotspot"`, and what it refuses.

use std::{path::Path, time::Duration};

use proptest::prelude::*;
use sluicegate_scenario::{
    experiment::{Action, Experiment, Pace, TrafficKind, Variant},
    file::{self, Options},
    hotspot::{self, Hotspot, HotspotType},
};

/// 32 hosts, ends at line 6.
const TREE: &str =
    "duration = '1s'\n[network]\ntopology = 'k-ary-n-tree'\nk = 2\nn = 5\nrate = '10Gbit'\n";

/// 8 hosts around a switch, ends at line 6.
const STAR: &str =
    "duration = '1s'\n[network]\ntopology = 'star'\nhosts = 8\nrate = '1Gbit'\nmtu = 1500\n";

const INPUT: &str = "[traffic.hot]\nkind = 'hotspot'\ntype = 'input'\n";

fn parse(text: &str) -> Result<Experiment, String> {
    let parsed = file::parse(Path::new("t.toml"), text, &Options::default());
    parsed.map_err(|problems| problems.to_string())
}

fn one(text: &str) -> Variant {
    let parsed = parse(text).unwrap_or_else(|problems| panic!("{problems}"));
    parsed.variants.into_iter().next().unwrap()
}

/// The hotspot of the only traffic.
fn hot(variant: &Variant) -> &Hotspot {
    variant.traffic[0].hotspot.as_ref().unwrap()
}

fn rate_bps(variant: &Variant) -> u64 {
    match &variant.traffic[0].kind {
        TrafficKind::Datagrams {
            pace: Pace::Rate(rate_bps),
            ..
        } => *rate_bps,
        other => panic!("{other:?}"),
    }
}

/// Names of the tenants that are hot with these keys, by number.
fn sources(network: &str, keys: &str) -> Vec<String> {
    let variant = one(&format!("{network}{INPUT}{keys}\n"));
    let pairs = variant.traffic[0].pairs.iter();
    pairs
        .map(|(from, _)| variant.tenants[*from].name.clone())
        .collect()
}

#[test]
fn an_input_generated_hotspot_is_datagrams_that_offer_its_severity() {
    let variant = one(&format!(
        "{TREE}{INPUT}to = 'h32'\nseverity = 1.8\ndegree = '12.5%'\nstart = '10ms'\nstop = '30ms'\npriority = 3\n[network.cee]\n"
    ));
    // 1.8 of 10 Gb/s in frames of 1514 B with 1472 B of payload, from four.
    assert_eq!(rate_bps(&variant), 4_375_165_125);
    let hotspot = hot(&variant);
    assert!((hotspot.offered_bps / 18e9 - 1.0).abs() < 1e-9);
    assert_eq!(variant.links[hotspot.link].name, "e16-h32");
    assert_eq!(
        (hotspot.kind, hotspot.severity, hotspot.drain_bps),
        (HotspotType::Input, 1.8, 10_000_000_000)
    );
    let plain = one(&format!(
        "{TREE}[traffic.hot]\nkind = 'datagrams'\nfrom = ['h1', 'h9', 'h17', 'h25']\nto = 'h32'\nrate = '4375165125bit'\n\
        start = '10ms'\nstop = '30ms'\npriority = 3\n[network.cee]\n"
    ));
    let mut traffic = variant.traffic.clone();
    traffic[0].hotspot = None;
    assert_eq!((traffic, variant.events), (plain.traffic, plain.events));
}

#[test]
fn small_frames_offer_more_than_their_payload() {
    // 18 B of payload in frames of 60 B.
    let keys = "to = 'h1'\nseverity = 2\nfrom = 'h*'\nbytes = '18B'\n";
    let variant = one(&format!("{STAR}{INPUT}{keys}"));
    assert_eq!(rate_bps(&variant), 85_714_285, "2 Gb/s / 7 * 18 / 60");
    let keys = "to = 'h1'\nseverity = 2\nfrom = 'h*'\n";
    let v6 = one(&format!("{STAR}ip = 6\n{INPUT}{keys}"));
    assert_eq!(
        rate_bps(&v6),
        (2e9 / 7.0 * 1452.0 / 1514.0) as u64,
        "longer headers"
    );
}

#[test]
fn an_output_generated_hotspot_is_a_slow_link_below_flows_that_last() {
    let output = "[traffic.hot]\nkind = 'hotspot'\ntype = 'output'\nto = 'h1'\nfrom = ['h2', 'h3']\nstart = '100ms'\nstop = '300ms'\n";
    let plain = one(&format!(
        "{STAR}[traffic.hot]\nkind = 'datagrams'\nto = 'h1'\nfrom = ['h2', 'h3']\nrate = '368Mbit'\n\
        [[event]]\nat = '100ms'\nfor = '200ms'\nslow_link = {{ links = ['switch-h1'], rate = '189250Kbit' }}\n"
    ));
    // 2 * 368 Mb/s * 1514 / 1472 / 4 = 189.25 Mb/s: any two of the three say it.
    for keys in [
        "rate = '368Mbit'\nseverity = 4",
        "rate = '368Mbit'\ndrain = '189250Kbit'",
        "severity = 4\ndrain = '189250Kbit'",
    ] {
        let variant = one(&format!("{STAR}{output}{keys}\n"));
        assert_eq!(hot(&variant).severity, 4.0, "{keys}");
        let mut traffic = variant.traffic.clone();
        traffic[0].hotspot = None;
        assert_eq!(traffic, plain.traffic, "{keys}");
        assert_eq!(variant.events, plain.events, "{keys}");
    }
    let whole = output.replace("start = '100ms'\nstop = '300ms'\n", "");
    let variant = one(&format!(
        "{STAR}{whole}rate = '368Mbit'\nseverity = 4\n[[event]]\nat = '0s'\nbleach_ecn = true\n"
    ));
    let slow = Action::LinkRate {
        links: vec![0],
        rate_bps: 189_250_000,
    };
    let events: Vec<_> = variant.events.iter().map(|e| (e.at, &e.action)).collect();
    let at = Duration::ZERO;
    assert_eq!(events, [(at, &slow), (at, &Action::BleachEcn)]);
}

#[test]
fn a_degree_is_spread_over_the_hosts_behind_the_receiver() {
    let of = |network: &str, to: &str, degree: &str| {
        sources(
            network,
            &format!("to = '{to}'\nseverity = 1.5\ndegree = '{degree}'"),
        )
    };
    assert_eq!(of(TREE, "h32", "12.5%"), ["h1", "h9", "h17", "h25"]);
    assert_eq!(of(TREE, "h5", "12.5 %"), ["h6", "h14", "h22", "h30"]);
    assert_eq!(of(STAR, "h8", "50%"), ["h1", "h3", "h5", "h7"]);
    let all = ["h4", "h5", "h6", "h7", "h8", "h1", "h2"];
    assert_eq!(of(STAR, "h3", "100%"), all);
    assert_eq!(of(STAR, "h3", "88%"), all, "rounded");
    let pairs = "[network]\ntopology = 'dumbbell'\npairs = 4\n";
    assert_eq!(
        of(pairs, "r1", "50%"),
        ["s1", "s3"],
        "receivers do not send"
    );
    let two = format!("{STAR}tenants_per_host = 2\n");
    assert_eq!(of(&two, "h8-2", "50%"), ["h1-1", "h3-1", "h5-1", "h7-1"]);
}

#[test]
fn a_hotspot_may_be_at_a_link_that_all_its_flows_cross() {
    let output = "[traffic.hot]\nkind = 'hotspot'\ntype = 'output'\nto = 'h32'\nrate = '4500Mbit'\nseverity = 2\n";
    let variant = one(&format!("{TREE}{output}from = 'h1'\nlink = 't5-16-t4-8'\n"));
    assert_eq!(variant.links[hot(&variant).link].name, "t5-16-t4-8");
    let problems = parse(&format!(
        "{TREE}{output}from = ['h1', 'h31']\nlink = 't5-16-t4-8'\n"
    ))
    .unwrap_err();
    let expected = "t.toml:14:8: traffic.hot.link: not all that h31 sends to h32 crosses it; all sources always cross e16-h32";
    assert!(problems.contains(expected), "{problems}");
}

#[test]
fn reports_say_what_a_hotspot_is() {
    let experiment = parse(&format!(
        "{STAR}{INPUT}to = 'h1'\nseverity = 1.5\nfrom = ['h2', 'h3', 'h4', 'h5']\n\
        [variant.a]\n[variant.b]\n[variant.c]\ntraffic.hot.severity = 2.5\n"
    ));
    let line = |severity| {
        let offered = format!("{:.1}", severity * 1e3);
        let class = if severity < 2.0 { "mild" } else { "moderate" };
        format!(
            "traffic.hot is an input-generated hotspot at switch-h1: {offered} Mb/s are offered, 1000.0 Mb/s served, \
             severity {severity:.2} ({class}), degree 50.0 % (medium: 4 of 8 hosts)"
        )
    };
    let expected = [format!("a, b: {}", line(1.5)), format!("c: {}", line(2.5))];
    assert_eq!(hotspot::notes(&experiment.unwrap()), expected);
}

/// The refusal of a hotspot in a star with these keys, which begin at line 9.
fn refusal(keys: &str) -> String {
    let text = format!("{STAR}[traffic.hot]\nkind = 'hotspot'\n{keys}\n");
    match parse(&text) {
        Ok(experiment) => panic!("{keys}: accepted: {:?}", experiment.variants[0].traffic),
        Err(problems) => problems,
    }
}

#[test]
fn hotspots_that_cannot_be_are_refused_where_they_are_said() {
    let input = "type = 'input'\nto = 'h1'\n";
    let output = "type = 'output'\nto = 'h1'\ndegree = '25%'\n";
    for (keys, expected) in [
        (
            "to = 'h1'\nseverity = 2\ndegree = '50%'".to_owned(),
            "t.toml:7:1: traffic.hot: `type` is missing; give \"input\"",
        ),
        (
            "type = 'input'\nseverity = 2\ndegree = '50%'".to_owned(),
            "t.toml:7:1: traffic.hot: `to` is missing; name the one receiver",
        ),
        (
            "type = 'input'\nto = 'h*'\nseverity = 2\ndegree = '50%'".to_owned(),
            "t.toml:10:6: traffic.hot.to: a hotspot has one receiver, not 8",
        ),
        (
            format!("{input}severity = 2"),
            "t.toml:7:1: traffic.hot: `degree` is missing; say how many",
        ),
        (
            format!("{input}degree = '50%'"),
            "t.toml:7:1: traffic.hot: `severity` is missing; give offered by served",
        ),
        (
            format!("{input}severity = 2\ndegree = '50%'\nfrom = 'h2'"),
            "t.toml:12:1: traffic.hot.degree: `from` says it",
        ),
        (
            format!("{input}severity = 2\ndegree = 50"),
            "t.toml:12:10: traffic.hot.degree: \"50\" is no part of all sources; write for example \"12.5%\"",
        ),
        (
            format!("{input}severity = 2\ndegree = '101%'"),
            "t.toml:12:10: traffic.hot.degree: \"101%\" is no part",
        ),
        (
            format!("{input}severity = 2\ndegree = '5%'"),
            "t.toml:12:10: traffic.hot.degree: that is none of 8 hosts; one of them is \"12.5%\"",
        ),
        (
            format!(
                "{input}severity = 2\ndegree = '5%'\npriority = 3\nport = 5000\nsocket_buffer = '1MB'\nstop = '1ms'\n[network.cee]"
            ),
            "t.toml:12:10: traffic.hot.degree: that is none",
        ),
        (
            format!("{input}severity = 1\ndegree = '50%'"),
            "t.toml:11:12: traffic.hot.severity: the link would serve all",
        ),
        (
            format!("{input}severity = 3\ndegree = '25%'"),
            "t.toml:11:12: traffic.hot.severity: h2 would offer 1500.0Mbit in frames, but its link has 1000.0Mbit \
             for it; take 3 sources with degree = \"37.5%\"; with 2 give a severity of 2 or less",
        ),
        (
            format!("{input}severity = 30\ndegree = '25%'"),
            "but its link has 1000.0Mbit for it; with 2 give a severity of 2 or less",
        ),
        (
            format!("{input}severity = 3\nfrom = ['h2', 'h3']"),
            "for it; name 3 sources or more; with 2 give a severity of 2 or less",
        ),
        (
            format!("{input}severity = 3\nfrom = 'h2'"),
            "its link has 1000.0Mbit for it; name 3 sources or more",
        ),
        (
            format!("{input}rate = '2Gbit'\ndegree = '25%'"),
            "t.toml:11:8: traffic.hot.rate: h2 would offer 2057.1Mbit in frames, but its link has 1000.0Mbit for \
             it; give 972.2Mbit or less",
        ),
        (
            format!("{input}rate = '400Mbit'\ndegree = '25%'"),
            "t.toml:11:8: traffic.hot.rate: 822.8Mbit of 2 sources are offered to switch-h1, which serves 1000.0Mbit\
             : no hotspot; give 486.2Mbit or more",
        ),
        (
            format!("{input}rate = '800Mbit'\nseverity = 2\ndegree = '25%'"),
            "t.toml:11:1: traffic.hot.rate: follows from `severity`",
        ),
        (
            format!("{input}drain = '1Mbit'\nseverity = 2\ndegree = '25%'"),
            "t.toml:11:1: traffic.hot.drain: belongs to `type = \"output\"`",
        ),
        (
            format!("{input}severity = 2\ndegree = '25%'\npairs = 'random'"),
            "t.toml:13:1: traffic.hot.pairs: every source sends to the one",
        ),
        (
            format!("{input}severity = 2\ndegree = '25%'\nload = '1Mbit'"),
            "t.toml:13:1: traffic.hot.load: unknown key",
        ),
        (
            format!("{input}severity = 2\ndegree = '25%'\nbytes = '2KB'"),
            "t.toml:13:9: traffic.hot.bytes: must lie between 1B and 1472B",
        ),
        (
            format!("{input}severity = 2\ndegree = '25%'\ndeadline = '1s'"),
            "t.toml:13:1: traffic.hot.deadline: belongs to",
        ),
        (
            format!("{input}severity = 2\ndegree = '25%'\nlink = 'switch-*'"),
            "t.toml:13:8: traffic.hot.link: a hotspot is at one link, not 8",
        ),
        (
            format!("{input}severity = 2\ndegree = '25%'\nlink = 'switch-h2'"),
            "t.toml:13:8: traffic.hot.link: not all that h6 sends to h1 crosses it; all sources always cross switch-h1",
        ),
        (
            format!("{input}severity = 2\nfrom = 'h1'"),
            "t.toml:12:8: traffic.hot.from: no tenant sends to another",
        ),
        (
            format!("{output}severity = 2"),
            "t.toml:7:1: traffic.hot: `rate` is missing; say what each source offers",
        ),
        (
            format!("{output}rate = '400Mbit'"),
            "t.toml:7:1: traffic.hot: `severity` is missing",
        ),
        (
            format!("{output}rate = '400Mbit'\nseverity = 2\ndrain = '1Mbit'"),
            "t.toml:14:1: traffic.hot.drain: follows from `severity` and `rate`",
        ),
        (
            format!("{output}rate = '900Mbit'\nseverity = 1.5"),
            "t.toml:13:12: traffic.hot.severity: switch-h1 would serve 1234.2Mbit, no less than its own 1000.0Mbit\
             ; give a severity of 1.86 or more, or lower `rate`",
        ),
        (
            format!("{output}rate = '900Mbit'\ndrain = '1Gbit'"),
            "t.toml:13:9: traffic.hot.drain: switch-h1 would serve 1000.0Mbit, no less than its own",
        ),
        (
            format!("{output}rate = '1Mbit'\nseverity = 100"),
            "t.toml:13:12: traffic.hot.severity: the link would serve 20571bit; no link has less than 100Kbit",
        ),
        (
            format!("{output}rate = '100Mbit'\nseverity = 3\n[network.cee]"),
            "t.toml:9:8: traffic.hot.type: a switch that forwards frames by their header",
        ),
    ] {
        let text = refusal(&keys);
        assert!(text.contains(expected), "{keys}:\n{text}");
        assert_eq!(text.lines().count(), 1, "{keys}: said once:\n{text}");
    }
}

#[test]
fn a_neighbour_of_the_receiver_crosses_no_link() {
    let text = format!(
        "{STAR}tenants_per_host = 2\n{INPUT}to = 'h1-1'\nseverity = 2\nfrom = ['h1-2', 'h2-1']\n"
    );
    let problems = parse(&text).unwrap_err();
    assert!(
        problems.contains("t.toml:13:8: traffic.hot.from: h1-2 lives on the host of h1-1"),
        "{problems}"
    );
    let two = "to = 'h1-1'\nseverity = 3\nfrom = ['h2-1', 'h2-2', 'h3-1']\n";
    let problems = parse(&format!("{STAR}tenants_per_host = 2\n{INPUT}{two}")).unwrap_err();
    let expected = "h2-1 would offer 1000.0Mbit in frames, but its link has 500.0Mbit for it";
    assert!(problems.contains(expected), "{problems}");
}

#[test]
fn a_link_has_one_hotspot_at_a_time() {
    let second = |start: &str| {
        format!(
            "{STAR}{INPUT}to = 'h1'\nseverity = 2\ndegree = '50%'\nstop = '300ms'\n\
            [traffic.more]\nkind = 'hotspot'\ntype = 'input'\nto = 'h1'\nseverity = 2\nfrom = ['h2', 'h4']\nstart = '{start}'\n"
        )
    };
    one(&second("300ms"));
    let problems = parse(&second("200ms")).unwrap_err();
    let expected =
        "t.toml:14:1: traffic.more: traffic.hot makes a hotspot of the same link at that time";
    assert!(problems.contains(expected), "{problems}");
}

proptest! {
    #[test]
    fn whatever_is_written_is_read_or_refused(
        network in prop::sample::select(vec![TREE, STAR, "[network]\ntopology = 'dumbbell'\n", "[network]\n"]),
        kind in prop::sample::select(vec!["input", "output"]),
        keys in prop::collection::btree_map(
            prop::sample::select(vec!["to", "from", "degree", "severity", "rate", "drain", "link", "bytes", "start", "stop"]),
            prop_oneof![
                prop::sample::select(vec!["'h1'", "'h*'", "'r1'", "'s1'", "['h2', 'h3']", "'switch-h1'", "'50%'", "'1e-9%'",
                    "'nan%'", "nan", "inf", "1.5", "1000000.0", "'1B'", "'100Kbit'", "'1bit'", "'0bit'", "[]", "{}"])
                    .prop_map(str::to_owned),
                "[0-9]{1,19}(bit|Gbit|%|B|ms)".prop_map(|text| format!("'{text}'")),
                any::<i64>().prop_map(|number| number.to_string()),
            ],
            0..6,
        ),
    ) {
        let keys = keys.iter().map(|(key, value)| format!("{key} = {value}\n"));
        let keys: String = keys.collect();
        let _ = parse(&format!("{network}[traffic.hot]\nkind = 'hotspot'\ntype = '{kind}'\n{keys}"));
    }
}
