//! Behaviour of the policy language: what is read, what is refused, what it compiles to.

use std::{net::IpAddr, time::Duration};

use proptest::prelude::*;
use sluicegate_core::{
    abi::{self, Addr},
    cc::{Algorithm, Needs},
};
use sluicegate_policy::{
    Asked, Class, Mode, Mptcp, Policy, PortRange, Ports, Swift, Threshold, Warning, Weight,
};

fn parse(text: &str) -> Policy {
    Policy::parse("p.toml", text).unwrap_or_else(|problems| panic!("{problems}"))
}

fn refusal(text: &str) -> String {
    match Policy::parse("p.toml", text) {
        Ok(policy) => panic!("accepted: {policy:?}"),
        Err(problems) => problems.to_string(),
    }
}

#[test]
fn an_empty_file_tracks_nothing() {
    let policy = parse("");
    assert_eq!(policy, Policy::default());
    assert_eq!(policy.compile().rules_count, 0);
}

#[test]
fn an_empty_rule_observes_every_flow_with_dctcp() {
    let table = parse("[[rule]]\n").compile();
    let rule = &table.slots[0];
    assert_eq!(table.rules_count, 1);
    assert_eq!(rule.params.mode, abi::RULE_OBSERVE);
    assert_eq!(rule.params.algorithm, Algorithm::Dctcp as u8);
    assert_eq!(rule.params.one_sided, Algorithm::Cubic as u8);
    assert_eq!(rule.params.beta_q10, abi::ONE_Q10);
    assert_eq!(rule.params.window_cap, abi::WINDOW_MAX);
    assert_eq!(rule.params.flags, abi::RULE_POLICE);
    assert_eq!((rule.params.floor_mss, rule.params.init_segments), (2, 10));
    assert_eq!(rule.params.g_shift, 4);
    assert_eq!(rule.source_mask, Addr::default());
    assert_eq!((rule.source_port_low, rule.source_port_high), (0, 65535));
}

#[test]
fn every_key_is_read() {
    let policy = parse(
        r#"
        trusted = ["10.0.0.0/24", "fd00::/64"]
        [[rule]]
        name = "bulk"
        source = "10.1.0.0/16"
        destination = "10.0.0.0/24"
        source_port = "1024-65535"
        destination_port = 9000
        mode = "enforce"
        algorithm = "dctcp"
        one_sided = "vegas"
        vegas_alpha = 3
        vegas_beta = 6
        beta = 0.5
        beta_growth = false
        g = "1/32"
        window_cap = "1MB"
        mss = "1460B"
        floor_mss = 1
        initial_window = 4
        rto_min = "10ms"
        police = false
        mptcp = "strip"
        [[rule]]
        port = 443
        algorithm = "dcvegas"
        g = 0.25
        k = "30KB"
        [[rule]]
        algorithm = "fixed"
        window = "100KB"
        "#,
    );
    let rule = &policy.rules[0];
    assert_eq!(policy.trusted.len(), 2);
    assert_eq!(rule.name.as_deref(), Some("bulk"));
    assert_eq!(rule.mode, Mode::Enforce);
    assert_eq!(rule.one_sided, Algorithm::Vegas);
    assert_eq!(rule.vegas_backlog, (3, 6));
    assert_eq!((rule.beta, rule.gain_shift), (0.5, 5));
    assert!(!rule.beta_growth);
    assert_eq!(rule.window_cap_bytes, 1_000_000);
    assert_eq!((rule.floor_mss, rule.initial_window_segments), (1, 4));
    assert_eq!(rule.mss_bytes, Some(1460));
    assert_eq!(rule.rto_min, Duration::from_millis(10));
    assert_eq!((rule.police, rule.mptcp), (false, Mptcp::Strip));
    assert_eq!(policy.rules[1].k, Some(Threshold::Bytes(30_000)));
    assert_eq!(policy.rules[1].one_sided, Algorithm::Dcvegas);
    assert_eq!(policy.rules[2].window_bytes, Some(100_000));
    let table = policy.compile();
    assert_eq!(
        (table.slots[0].params.mss, table.slots[1].params.mss),
        (1460, 0)
    );
    let params = table.slots[0].params;
    assert_eq!((params.beta_q10, params.g_shift), (512, 5));
    assert_eq!(
        (params.flags, params.rto_min_us),
        (abi::RULE_STRIP_MPTCP | abi::RULE_CUT_ONLY, 10_000)
    );
}

#[test]
fn k_is_packets_of_the_flow_or_bytes_or_a_delay() {
    let k = |text: &str| {
        let policy = parse(&format!("[[rule]]\nalgorithm = 'dcvegas'\nk = '{text}'"));
        let params = policy.compile().slots[0].params;
        (params.k_bytes, params.k_segments, params.k_delay_ns)
    };
    assert_eq!(k("6 packets"), (0, 6, 0));
    assert_eq!(k("255packets"), (0, 255, 0));
    assert_eq!(k("1 packet"), (0, 1, 0));
    assert_eq!(k("9KB"), (9_000, 0, 0));
    assert_eq!(k("25us"), (0, 0, 25_000));
}

#[test]
fn a_port_at_either_end_takes_two_compiled_rules_with_one_id() {
    let policy = parse("[[rule]]\nmode='off'\n[[rule]]\nport=\"80-81\"\n");
    let table = policy.compile();
    let ranges: Vec<_> = table.slots[..3]
        .iter()
        .map(|r| (r.params.rule_id, r.source_port_low, r.destination_port_high))
        .collect();
    assert_eq!(table.rules_count, 3);
    assert_eq!(ranges, [(0, 0, 65535), (1, 80, 65535), (1, 0, 81)]);
    let range = PortRange { low: 80, high: 81 };
    assert_eq!(policy.rules[1].ports, Ports::Either(range));
}

#[test]
fn prefixes_compile_to_128_bits() {
    let table = parse("trusted=['10.0.0.0/8','fd00::/64','0.0.0.0/0','::/0']").compile();
    let octets = |index: usize| table.trusted[index].mask.octets();
    assert_eq!(octets(0)[..12], [0xff; 12]);
    assert_eq!(octets(0)[12..], [0xff, 0, 0, 0]);
    assert_eq!(octets(1)[8..], [0; 8]);
    assert_eq!(octets(2)[12..], [0; 4]);
    assert_eq!(octets(3), [0; 16]);
    assert_eq!(table.trusted[0].address.to_ip().to_string(), "10.0.0.0");
}

#[test]
fn all_errors_are_listed_with_line_column_key_and_advice() {
    let text = refusal(
        "trusted = [\"10.0.0.1/8\"]\n[[rule]]\nbeta = 2\nwindw_cap = \"1MB\"\nwindow_cap = 400\n",
    );
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "p.toml:1:12: trusted[0]: 10.0.0.1/8 has bits set beyond its length; write \"10.0.0.0/8\"",
            "p.toml:3:8: rule[0].beta: must lie between 0 and 1, not 2",
            "p.toml:4:1: rule[0].windw_cap: unknown key; did you mean \"window_cap\"?",
            "p.toml:5:14: rule[0].window_cap: \"400\" has no unit; write for example \"400KB\"",
        ]
    );
}

/// Values of the constants of algorithms.
fn constant(key: &str) -> &str {
    match key {
        "beta_growth" => "false",
        "g" => "'1/8'",
        "k" | "swift_target" | "swift_range" => "'30us'",
        "window" => "'1MB'",
        "vegas_alpha" | "vegas_beta" => "3",
        _ => "0.5",
    }
}

/// As the table of algorithms says.
#[test]
fn constants_are_read_where_an_algorithm_has_them_and_refused_elsewhere() {
    for of in Algorithm::ALL {
        let own = of
            .keys()
            .iter()
            .map(|key| format!("{key} = {}\n", constant(key)));
        let rule = format!("[[rule]]\nalgorithm = '{of}'\n{}", own.collect::<String>());
        let policy = parse(&rule);
        assert_eq!(policy.rules[0].algorithm, of);
        // One that works from both sides uses another from one side.
        let used = [of, policy.rules[0].one_sided, policy.rules[0].fallback];
        let foreign = Algorithm::ALL.iter().flat_map(|other| other.keys());
        // K alone means DC-Vegas from one side.
        let foreign = foreign.filter(|key| **key != "k" || of.needs() == Needs::Nothing);
        for key in foreign.filter(|key| !used.iter().any(|it| it.keys().contains(key))) {
            let text = format!("{rule}{key} = {}\n", constant(key));
            let problems = refusal(&text);
            assert!(problems.contains("does not use"), "{of} {key}: {problems}");
            assert_eq!(problems.lines().count(), 1, "{of} {key}: {problems}");
        }
    }
}

#[test]
fn contradictions_are_refused() {
    for (rule, expected) in [
        ("one_sided = 'dctcp'", "feedback of a peer"),
        ("algorithm = 'dtcp'", "did you mean \"dctcp\""),
        ("algorithm = 'fixed'", "`window` is missing"),
        ("window = '1MB'", "does not use"),
        ("algorithm = 'cubic'\nbeta = 1.0", "does not use"),
        ("algorithm = 'cubic'\nbeta_growth = false", "does not use"),
        ("algorithm = 'cubic'\nk = '25us'", "does not use"),
        ("algorithm = 'vegas'\nk = '6 packets'", "does not use"),
        ("window_cap = '9MiB'", "between 1B and 8MiB"),
        ("window_cap = '0B'", "between 1B and 8MiB"),
        ("port = 80\nsource_port = 81", "excludes"),
        ("port = '9-8'", "not a port"),
        ("port = 65536", "not a port"),
        ("g = '1/3'", "power of two"),
        ("g = 2", "power of two"),
        ("k = '30'", "queueing threshold"),
        ("k = '0 packets'", "\"6 packets\" (1 to 255)"),
        ("k = '256 packets'", "queueing threshold"),
        ("k = '1.5 packets'", "queueing threshold"),
        ("k = 'packets'", "queueing threshold"),
        ("k = '2s'", "queueing threshold"),
        (
            "source = '10.0.0.0/8'\ndestination = 'fd00::/64'",
            "one address family",
        ),
        (
            "one_sided='vegas'\nvegas_alpha = 9\nvegas_beta = 3",
            "lower bound",
        ),
        ("rto_min = '0ms'", "between 1ms and 60s"),
        ("beta = nan", "between 0 and 1"),
        ("initial_window = 65", "between 1 and 64"),
        (
            "mss = '535B'",
            "p.toml:2:7: rule[0].mss: must lie between 536B and 65495B",
        ),
        ("mss = '64KiB'", "between 536B and 65495B"),
        ("mss = 1460", "has no unit"),
        ("mode = true", "must be a string"),
    ] {
        let text = refusal(&format!("[[rule]]\n{rule}\n"));
        assert!(text.contains(expected), "{rule}: {text}");
    }
}

#[test]
fn swift_has_constants_of_its_own() {
    let default = parse("[[rule]]\nalgorithm = 'swift'\n");
    assert_eq!(default.rules[0].swift, Swift::default());
    assert_eq!(default.rules[0].one_sided, Algorithm::Swift);
    let params = default.compile().slots[0].params;
    assert_eq!(
        (params.swift_target_ns, params.swift_range_ns),
        (0, 100_000)
    );
    let constants = (
        params.swift_ai_q10,
        params.swift_beta_q10,
        params.swift_mdf_q10,
    );
    assert_eq!(constants, (1024, 819, 512));
    let policy = parse(
        "[[rule]]\none_sided = 'swift'\nswift_target = '1200us'\nswift_range = '0ns'\n\
         swift_ai = 0.5\nswift_beta = 1\nswift_max_mdf = 0.25\n",
    );
    let expected = Swift {
        target: Some(Duration::from_micros(1200)),
        range: Duration::ZERO,
        ai: 0.5,
        beta: 1.0,
        max_mdf: 0.25,
    };
    assert_eq!(policy.rules[0].swift, expected);
    for (rule, expected) in [
        ("swift_target = '1ms'", "is a constant of swift"),
        (
            "one_sided = 'swift'\nswift_target = '0ns'",
            "between 1us and 1s",
        ),
        (
            "one_sided = 'swift'\nswift_range = '2s'",
            "between 0ns and 1s",
        ),
        (
            "one_sided = 'swift'\nswift_max_mdf = 1",
            "between 0.01 and 0.9",
        ),
    ] {
        let text = refusal(&format!("[[rule]]\n{rule}\n"));
        assert!(text.contains(expected), "{rule}: {text}");
    }
}

#[test]
fn conditions_on_where_a_flow_is_are_read_and_refused() {
    let policy = parse(
        "[[rule]]\ninterface = 'veth*'\ntenant = ['blue', 'r?d']\nvlan = 12\nrate_cap = '2Gbit'\nfallback = 'cubic'\n",
    );
    let rule = &policy.rules[0];
    assert!(rule.place.holds("veth7", "red") && !rule.place.holds("tap0", "red"));
    assert_eq!(
        (rule.vlan, rule.rate_cap_bps),
        (Some(12), Some(2_000_000_000))
    );
    assert_eq!(rule.fallback, Algorithm::Cubic);
    let params = policy.compile().slots[0].params;
    assert_eq!(params.rate_cap, 250_000_000, "in bytes per second");
    assert_eq!(params.fallback, Algorithm::Cubic as u8);
    for (rule, expected) in [
        (
            "interface = 'veth['",
            "rule[0].interface: \"veth[\" is no pattern",
        ),
        ("interface = []", "rule[0].interface: lists nothing"),
        ("interface = 7", "rule[0].interface: must be"),
        ("tenant = ['a', 7]", "rule[0].tenant[1]: must be a string"),
        ("vlan = 4095", "rule[0].vlan: must lie between 0 and 4094"),
        ("vlan = '12'", "rule[0].vlan: must be a whole number"),
        ("rate_cap = '999Kbit'", "between 1Mbit and 1Tbit"),
        ("rate_cap = 7", "\"7\" has no unit"),
        ("fallback = 'fast'", "\"fast\" is not known here"),
        (
            "algorithm = 'cubic'\nfallback = 'reno'",
            "cubic suits every path",
        ),
    ] {
        let text = refusal(&format!("[[rule]]\n{rule}\n"));
        assert!(text.contains(expected), "{rule}: {text}");
    }
}

#[test]
fn buckets_are_read_and_refused() {
    let policy = parse(
        "[[bucket]]\nname = 'chatter'\ninterface = 'veth*'\nclass = ['udp', 'icmp']\nrate = '100Mbit'\nburst = '1MiB'\nmode = 'enforce'\n[[bucket]]\nrate = '1Gbit'\n",
    );
    let bucket = &policy.buckets[0];
    assert_eq!(bucket.classes, [Class::Udp, Class::Icmp]);
    assert_eq!(
        (bucket.rate_bps, bucket.burst_bytes),
        (100_000_000, 1 << 20)
    );
    assert!(bucket.enforce && !policy.buckets[1].enforce);
    assert_eq!(policy.buckets[1].classes, Class::NON_TCP);
    let at = |interface| policy.buckets_at(interface, "")[Class::Udp as usize];
    assert_eq!(
        (at("veth0"), at("tap0")),
        (0, 1),
        "the first that has the class"
    );
    for (bucket, expected) in [
        ("", "bucket[0]: `rate` is missing"),
        ("rate = '1bit'", "between 1Kbit and 1Tbit"),
        ("rate = 'fast'", "not a quantity in bits per second"),
        ("rate = '1Gbit'\nburst = '1KB'", "between 3KiB and 1GiB"),
        ("rate = '1Gbit'\nclass = 'tcp'", "\"tcp\" is not known here"),
        (
            "rate = '1Gbit'\nclass = []",
            "bucket[0].class: lists nothing",
        ),
        ("rate = '1Gbit'\nmode = 'off'", "\"off\" is not known here"),
        (
            "rate = '1Gbit'\nsource = '10.0.0.1'",
            "bucket[0].source: unknown key",
        ),
    ] {
        let text = refusal(&format!("[[bucket]]\n{bucket}\n"));
        assert!(text.contains(expected), "{bucket}: {text}");
    }
    let many = refusal(&"[[bucket]]\nrate = '1Gbit'\n".repeat(abi::BUCKETS_MAX + 1));
    assert!(
        many.contains(&format!("at most {} buckets", abi::BUCKETS_MAX)),
        "{many}"
    );
}

#[test]
fn rules_keep_their_slots_when_others_come_and_go() {
    let before = parse("[[rule]]\nport=80\n[[rule]]\nport=81\n[[rule]]\nport=82\n").compile();
    let after = parse("[[rule]]\nport=9\n[[rule]]\nport=82\n[[rule]]\nport=80\nbeta=0.5\n");
    let (table, changes) = after.compile_after(&before);
    let slots_of = |table: &abi::PolicyTable, port| {
        let mut slots = table.order().filter(|slot| {
            let rule = &table.slots[*slot];
            [rule.source_port_low, rule.destination_port_low].contains(&port)
        });
        (slots.next(), slots.next())
    };
    assert_eq!(slots_of(&before, 80), slots_of(&table, 80));
    assert_eq!(slots_of(&before, 82), slots_of(&table, 82));
    use sluicegate_policy::Change::{Added, Altered, Removed};
    assert_eq!(
        changes,
        [
            Added(0),
            Added(0),
            Altered(2),
            Altered(2),
            Removed(1),
            Removed(1)
        ]
    );
}

#[test]
fn more_rules_than_the_data_plane_holds_are_refused_where_they_start() {
    let text = refusal(&"[[rule]]\nport = 80\n".repeat(33));
    assert!(text.starts_with("p.toml:65:"), "{text}");
    assert!(text.contains("at most 64 rules"), "{text}");
}

#[test]
fn an_unreadable_file_is_a_problem_not_a_panic() {
    let problems = Policy::read("/nonexistent/policy.toml".as_ref()).unwrap_err();
    assert!(problems.to_string().contains("cannot be read"));
}

fn warnings(text: &str) -> Vec<String> {
    let (_, warnings) =
        Policy::parse_with_warnings("p.toml", text).unwrap_or_else(|problems| panic!("{problems}"));
    warnings.iter().map(ToString::to_string).collect()
}

/// Those that are left when buckets hold all that rules do not.
fn warnings_of_rules(text: &str) -> Vec<String> {
    warnings(&format!("{text}{HELD}"))
}

const HELD: &str = "[[bucket]]\nclass = ['watched-tcp', 'non-tcp', 'bare-tcp']\n\
                    rate = '1Gbit'\nmode = 'enforce'\n";
const ENFORCED: &str =
    "[[rule]]\nport = 80\n[[rule]]\nmode = 'enforce'\n[[rule]]\nmode = 'enforce'\n";

/// A bucket with these classes, as a list in TOML, and more keys.
fn bucket(classes: &str, more: &str) -> String {
    format!("[[bucket]]\nclass = {classes}\nrate = '1Gbit'\n{more}\n")
}

/// Weight, place and key, reason up to the figures, and the class that a snippet has.
fn ways_out(text: &str) -> Vec<(Weight, String, String)> {
    let (_, warnings) = Policy::parse_with_warnings("p.toml", text).expect("a good policy");
    let short = |warning: &Warning| {
        let shown = warning.to_string();
        let reason = shown.split(": of 300 Mb/s").next().unwrap_or_default();
        let reason = reason.split(": TCP wrapped").next().unwrap_or_default();
        let reason = reason
            .split(": segments without")
            .next()
            .unwrap_or_default();
        let class = warning.snippet.lines().nth(1).unwrap_or_default();
        (warning.weight, reason.to_owned(), class.to_owned())
    };
    warnings.iter().map(short).collect()
}

#[test]
fn enforcing_without_a_bucket_is_warned_of_once_for_each_kind_with_what_it_is_worth() {
    let found = warnings(ENFORCED);
    let warning = |class: &str, figures: &str| {
        format!(
            "p.toml:3:1: rule[1]: enforces, but no bucket has class {class}: of 300 Mb/s shared \
             with three honest flows (even share 75; honest ones get 60 to 110) {figures}; add a \
             [[bucket]] with class = \"{class}\", a rate, and mode = \"observe\" to begin with, \
             then \"enforce\" (docs/operators.md says when)"
        )
    };
    let udp = "UDP took 281, TCP inside VXLAN 268, QUIC without ECN 231 (131 with enforcement off: \
               enforcing TCP alone helps it)";
    assert_eq!(
        found,
        [
            warning(
                "watched-tcp",
                "MPTCP took 273; flows beyond an interface's quota or a full table pass unheld"
            ),
            warning("non-tcp", udp),
            "p.toml:3:1: rule[1]: enforces, but no bucket has class bare-tcp: segments without \
             data are held by no window, however many a tenant sends; add a [[bucket]] with class \
             = \"bare-tcp\", a rate, and mode = \"observe\" to begin with, then \"enforce\" \
             (docs/operators.md says when)"
                .to_owned(),
        ]
    );
}

#[test]
fn what_a_warning_says_to_add_can_be_added() {
    let (_, warnings) = Policy::parse_with_warnings("p.toml", ENFORCED).unwrap();
    let add: String = warnings
        .iter()
        .map(|warning| warning.snippet.as_str())
        .collect();
    let added = format!("{ENFORCED}{add}");
    assert_eq!(parse(&added).buckets.len(), 3);
    let found = ways_out(&added);
    assert!(
        found.iter().all(|(weight, ..)| *weight == Weight::Note),
        "{found:?}"
    );
    assert_eq!(ways_out(&added.replace("observe", "enforce")), []);
}

#[test]
fn a_bucket_that_only_counts_is_noted_where_it_stands() {
    let observed = HELD.replace("enforce", "observe");
    let found = warnings(&format!("{ENFORCED}{observed}"));
    assert_eq!(
        found,
        [
            "p.toml:7:1: bucket[0]: counts non-tcp, watched-tcp and bare-tcp and drops nothing, \
             while rule 2 enforces: of 300 Mb/s (even share 75) MPTCP took 273, UDP took 281, TCP \
             inside VXLAN 268, QUIC without ECN 231; flows beyond an interface's quota or a full \
             table pass unheld; segments without data are held by no window, however many a \
             tenant sends; set mode = \"enforce\" once `bucket_exceeded` stays 0 (docs/operators.md)"
        ]
    );
    let first = format!("{ENFORCED}{observed}{HELD}");
    let found = ways_out(&first);
    assert_eq!(found[0].0, Weight::Note);
    assert!(
        found.len() == 1
            && found[0]
                .1
                .contains("(it comes before bucket 2, which enforces)"),
        "{found:?}"
    );
    let never_reached = format!("{ENFORCED}{HELD}{observed}");
    assert_eq!(ways_out(&never_reached), []);
}

#[test]
fn classes_without_a_bucket_are_named() {
    let enforce = "mode = 'enforce'";
    let watched = bucket("['watched-tcp', 'bare-tcp']", enforce);
    let warned = |buckets: String| ways_out(&format!("{ENFORCED}{watched}{buckets}"));
    let rule = "p.toml:3:1: rule[1]: enforces, but no bucket has class ";
    let expected = |names: &str, class: &str| {
        let reason = format!("{rule}{names}");
        vec![(Weight::Warning, reason, format!("class = {class}"))]
    };
    assert_eq!(
        warned(bucket("'udp'", enforce)),
        expected(
            "icmp, fragment, opaque or other",
            "[\"icmp\", \"fragment\", \"opaque\", \"other\"]"
        )
    );
    assert_eq!(
        warned(bucket("['udp', 'icmp', 'fragment', 'opaque']", enforce)),
        expected("other", "\"other\"")
    );
    let split = bucket("'udp'", enforce) + &bucket("['icmp', 'neighbour']", enforce);
    assert_eq!(
        warned(split + &bucket("['fragment', 'other']", enforce)),
        expected("opaque", "\"opaque\"")
    );
    let mixed = warned(bucket("'udp'", "") + &bucket("['icmp', 'opaque', 'other']", enforce));
    assert_eq!(mixed[0], expected("fragment", "\"fragment\"").remove(0));
    let noted = "p.toml:11:1: bucket[1]: counts udp and drops nothing, while rule 2 enforces";
    assert_eq!(
        mixed[1..],
        [(Weight::Note, noted.to_owned(), String::new())]
    );
}

#[test]
fn buckets_that_hold_only_somewhere_are_told_from_those_that_hold_everywhere() {
    let at = |place: &str| {
        bucket(
            "['watched-tcp', 'non-tcp', 'bare-tcp']",
            &format!("mode = 'enforce'\n{place}"),
        )
    };
    let warned = |rule: &str, buckets: String| {
        ways_out(&format!("[[rule]]\nmode = 'enforce'\n{rule}\n{buckets}"))
    };
    let found = warned(
        "",
        at("interface = 'veth*'") + &at("tenant = ['blue', 'red']"),
    );
    let reasons: Vec<&str> = found.iter().map(|(_, reason, _)| reason.as_str()).collect();
    let only = "p.toml:1:1: rule[0]: enforces, but only interface veth* (bucket 1), tenant blue or \
                red (bucket 2) has a bucket for ";
    assert_eq!(
        reasons,
        ["watched-tcp", "non-tcp", "bare-tcp"].map(|class| format!("{only}{class}"))
    );
    for (rule, buckets) in [
        ("interface = 'veth*'", at("interface = 'veth*'")),
        ("interface = 'veth1*'", at("interface = 'veth*'")),
        (
            "interface = ['veth1', 'tap0']",
            at("interface = 'veth*'") + &at("interface = 'tap?'"),
        ),
        (
            "tenant = 'blue'\ninterface = 'veth*'",
            at("tenant = 'blue'"),
        ),
        ("", at("interface = '*'")),
        ("", at("interface = 'veth*'") + &at("")),
    ] {
        assert_eq!(warned(rule, buckets.clone()), [], "{rule} {buckets}");
    }
    let elsewhere = warned("interface = 'tap*'", at("interface = 'veth*'"));
    assert!(
        elsewhere[0]
            .1
            .ends_with("no bucket has class watched-tcp at interface tap*"),
        "{elsewhere:?}"
    );
}

#[test]
fn what_enforces_nothing_or_leaves_nothing_open_is_not_warned_of() {
    for policy in [
        String::new(),
        "[[rule]]\nmode = 'observe'\n".to_owned(),
        "[[rule]]\nmode = 'off'\n[[rule]]\n".to_owned(),
        format!("[[rule]]\n{}", bucket("'udp'", "")),
        format!("{ENFORCED}{HELD}"),
        format!(
            "{ENFORCED}{}{}",
            bucket("'non-tcp'", "mode = 'enforce'"),
            bucket("['watched-tcp', 'bare-tcp']", "mode = 'enforce'")
        ),
    ] {
        assert_eq!(warnings(&policy), [""; 0], "{policy}");
    }
    // A window that is not policed is one that honest tenants keep; other packets still have none.
    assert_eq!(
        warnings("[[rule]]\nmode = 'enforce'\npolice = false\n").len(),
        3
    );
}

#[test]
fn where_mptcp_is_stripped_it_is_no_way_out() {
    let strip = "[[rule]]\nmode = 'enforce'\nmptcp = 'strip'\n";
    let found = warnings(strip);
    assert!(
        found[0].contains("TCP without a handshake") && !found[0].contains("MPTCP"),
        "{found:?}"
    );
    let found = warnings(&format!("{strip}[[rule]]\nmode = 'enforce'\n"));
    assert!(found[0].contains("MPTCP took 273"), "{found:?}");
}

#[test]
fn a_rule_that_enforces_one_way_only_is_warned_of() {
    let found = warnings_of_rules(
        "trusted = ['10.0.0.0/8']\n[[rule]]\nsource = '10.0.1.0/24'\ndestination = '10.0.2.0/24'\nmode = 'enforce'\n",
    );
    assert_eq!(
        found,
        [
            "p.toml:2:1: rule[0]: enforces one way only: of data from 10.0.2.0 back to 10.0.1.0 no rule matches; \
             with this file on both hosts cubic governs, not dctcp; \
             add a rule with mode = \"enforce\" for the other direction"
        ]
    );
    for (rules, expected) in [
        // An earlier rule that does not enforce takes the other direction away.
        (
            "[[rule]]\nsource_port=80\nmode='off'\n[[rule]]\nmode='enforce'\n",
            "rule[1]: enforces one way only: of data from 10.0.0.0 back to 10.255.255.255, ports 80 to 0 \
             rule 1 has mode off",
        ),
        (
            "[[rule]]\ndestination='10.9.0.0/16'\nmode='enforce'\n[[rule]]\nname='rest'\n",
            "rule 2 \"rest\" has mode observe",
        ),
        (
            "[[rule]]\ndestination='10.9.0.1'\nmode='enforce'\n",
            "of data from 10.9.0.1 back to",
        ),
    ] {
        let found = warnings_of_rules(&format!("trusted = ['10.0.0.0/8']\n{rules}"));
        assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
    }
    let alone = "trusted = ['10.9.0.1']\n[[rule]]\ndestination='10.9.0.1'\nmode='enforce'\n";
    assert_eq!(
        warnings_of_rules(alone).len(),
        1,
        "no other prefix is trusted"
    );
}

#[test]
fn rules_that_need_no_other_direction_or_have_it_are_not_warned_of() {
    for policy in [
        "trusted=['10.0.0.0/8']\n[[rule]]\nmode='enforce'\n",
        "trusted=['10.0.0.0/8', 'fd00::/8']\n[[rule]]\ndestination='10.0.0.0/8'\nmode='enforce'\n",
        "trusted=['10.0.0.0/8']\n[[rule]]\nport=80\nmode='off'\n[[rule]]\ndestination='10.0.0.0/8'\nmode='enforce'\n",
        "trusted=['10.0.0.0/8']\n[[rule]]\nsource='10.0.1.1'\nbeta=0.5\nmode='enforce'\n[[rule]]\nmode='enforce'\n",
        // The window of an algorithm that needs no feedback is the same from one side.
        "trusted=['10.0.0.0/8']\n[[rule]]\ndestination='10.1.0.0/16'\nalgorithm='cubic'\nmode='enforce'\n",
        "trusted=['10.0.0.0/8']\n[[rule]]\ndestination='10.1.0.0/16'\nmode='observe'\n",
        "[[rule]]\ndestination='10.1.0.0/16'\nmode='enforce'\n",
    ] {
        assert_eq!(warnings_of_rules(policy), [""; 0], "{policy}");
    }
}

/// `sg_policy_match` of `params.h`, on the compiled table.
fn compiled_match(policy: &Policy, asked: &Asked<'_>) -> Option<u32> {
    let table = policy.compile();
    let (interface, tenant) = (
        asked.interface.unwrap_or_default(),
        asked.tenant.unwrap_or_default(),
    );
    let scope = policy.scope(&table, interface, tenant);
    let covers = |prefix: Addr, mask: Addr, address: IpAddr| {
        let address = Addr::from(address);
        (0..4).all(|i| (address.word[i] ^ prefix.word[i]) & mask.word[i] == 0)
    };
    let mut order = table.order();
    let decided = order.find(|slot| {
        let rule = &table.slots[*slot];
        covers(rule.source, rule.source_mask, asked.source)
            && covers(rule.destination, rule.destination_mask, asked.destination)
            && (rule.source_port_low..=rule.source_port_high).contains(&asked.source_port)
            && (rule.destination_port_low..=rule.destination_port_high)
                .contains(&asked.destination_port)
            && (rule.vlan == abi::VLAN_ANY || Some(rule.vlan) == asked.vlan)
            && scope.has(*slot)
    });
    decided.map(|slot| table.slots[slot].params.rule_id.into())
}

fn prefix_text() -> impl Strategy<Value = String> {
    let v4 = (any::<u32>(), 0u8..=32).prop_map(|(bits, length)| {
        let address = IpAddr::V4((bits & 0x0b01_0103).into());
        ipnet::IpNet::new(address, length)
            .unwrap()
            .trunc()
            .to_string()
    });
    prop_oneof![v4, Just("fd00::/64".to_owned()), Just("any".to_owned())]
}

/// Conditions on interface, tenant and VLAN.
fn place_text() -> impl Strategy<Value = String> {
    let interface = prop::sample::select(vec![
        "",
        "interface = 'veth*'\n",
        "interface = ['tap?', 'veth1']\n",
    ]);
    let tenant = prop::sample::select(vec!["", "tenant = 'blue'\n", "tenant = ['r*', '']\n"]);
    let vlan = prop::sample::select(vec!["", "vlan = 0\n", "vlan = 2\n"]);
    (interface, tenant, vlan).prop_map(|(a, b, c)| [a, b, c].concat())
}

fn mode_text() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["enforce", "enforce", "observe"])
}

fn classes_text() -> impl Strategy<Value = &'static str> {
    let both = "['watched-tcp', 'non-tcp']";
    let all = "['watched-tcp', 'non-tcp', 'bare-tcp']";
    prop::sample::select(vec!["'udp'", "'watched-tcp'", "'bare-tcp'", both, all, all])
}

proptest! {
    #[test]
    fn explaining_and_compiling_agree(
        prefixes in prop::collection::vec(prefix_text(), 1..8),
        ports in prop::collection::vec((0u16..4, 0u16..4), 1..8),
        places in prop::collection::vec(place_text(), 8),
        ends in (0u32..4, 0u32..4), asked_ports in (0u16..5, 0u16..5),
        interface in prop::sample::select(vec!["veth1", "veth2", "tap1"]),
        tenant in prop::sample::select(vec!["blue", "red", ""]),
        vlan in 0u16..3,
    ) {
        let mut text = String::new();
        for ((prefix, (low, high)), place) in prefixes.iter().zip(&ports).zip(&places) {
            let high = low.max(high);
            text += &format!("[[rule]]\ndestination = \"{prefix}\"\nport = \"{low}-{high}\"\n{place}");
        }
        let policy = parse(&text);
        let address = |low: u32| IpAddr::V4((0x0a00_0000 | low).into());
        let ends = Asked::ends((address(ends.0), address(ends.1)), asked_ports);
        let asked = Asked { interface: Some(interface), tenant: Some(tenant), vlan: Some(vlan), ..ends };
        let explained = policy.explain(&asked);
        let compiled = compiled_match(&policy, &asked);
        prop_assert_eq!(explained.rule.map(|(index, _)| index as u32), compiled);
        prop_assert!(explained.undecided.is_empty());
        // Told less, it names the rule among those that may decide.
        let vague = policy.explain(&ends);
        let may = vague.undecided.iter().map(|(index, _)| *index as u32);
        let may: Vec<Option<u32>> = may.map(Some).chain([vague.rule.map(|(index, _)| index as u32)]).collect();
        prop_assert!(may.contains(&compiled), "{compiled:?} is none of {may:?}");
    }

    #[test]
    fn a_policy_without_a_way_out_has_an_enforcing_bucket_for_every_class_where_it_enforces(
        rules in prop::collection::vec((mode_text(), place_text()), 1..4),
        buckets in prop::collection::vec((classes_text(), mode_text(), place_text()), 0..8),
    ) {
        let mut text = String::new();
        for (mode, place) in &rules {
            text += &format!("[[rule]]\nmode = '{mode}'\n{place}");
        }
        for (classes, mode, place) in &buckets {
            let place: Vec<&str> = place.lines().filter(|line| !line.starts_with("vlan")).collect();
            let place = place.join("\n");
            text += &bucket(classes, &format!("mode = '{mode}'\n{place}"));
        }
        let (policy, warnings) = Policy::parse_with_warnings("p.toml", &text).unwrap();
        let names = ["veth1", "veth2", "tap1", "eth0"].into_iter();
        let places = names.flat_map(|i| ["blue", "red", "", "green"].map(|t| (i, t)));
        let enforces = |(i, t)| {
            let mut rules = policy.rules.iter().filter(|rule| rule.mode == Mode::Enforce);
            rules.any(|rule| rule.place.holds(i, t))
        };
        let classes = Class::NON_TCP.into_iter().chain([Class::WatchedTcp, Class::BareTcp]);
        let held = places.filter(|at| enforces(*at)).all(|(i, t)| {
            let found = policy.buckets_at(i, t);
            classes.clone().all(|class| {
                policy.buckets.get(usize::from(found[class as usize])).is_some_and(|b| b.enforce)
            })
        });
        // Conditions that are not held are warned of; more may be, of interfaces of other names.
        prop_assert!(held || !warnings.is_empty(), "{text}");
        let anywhere = |text: &String| !text.contains(" = '") && !text.contains("[");
        let mut places = rules.iter().map(|(_, place)| place);
        if places.all(anywhere) && buckets.iter().all(|(.., place)| anywhere(place)) {
            prop_assert_eq!(held, warnings.is_empty(), "{}", text);
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Policy::parse("p.toml", &String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn random_values_of_known_keys_never_panic(
        key in prop::sample::select(vec![
            "name", "source", "destination", "port", "source_port", "destination_port", "mode",
            "algorithm", "one_sided", "beta", "g", "window_cap", "window", "k", "vegas_alpha",
            "vegas_beta", "floor_mss", "initial_window", "rto_min", "police", "mptcp", "interface",
            "tenant", "vlan", "rate_cap", "fallback", "mss",
        ]),
        value in prop_oneof![
            any::<i64>().prop_map(|n| n.to_string()),
            any::<f64>().prop_map(|x| format!("{x:?}")),
            "[0-9./:a-zA-Z-]{0,12}".prop_map(|text| format!("\"{text}\"")),
            Just("true".to_owned()), Just("[]".to_owned()), Just("{}".to_owned()),
        ],
    ) {
        if let Ok(policy) = Policy::parse("p.toml", &format!("[[rule]]\n{key} = {value}\n")) {
            let table = policy.compile();
            prop_assert!(table.slots[0].params.window_cap <= abi::WINDOW_MAX);
            prop_assert!(table.slots[0].params.beta_q10 <= abi::ONE_Q10);
        }
    }
}
