//! Behaviour of the policy language: what is read, what is refused, what it compiles to.

use std::{net::IpAddr, time::Duration};

use proptest::prelude::*;
use sluicegate_core::abi::{self, Addr};
use sluicegate_policy::{
    Algorithm, Asked, Class, Mode, Mptcp, Policy, PortRange, Ports, Threshold,
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
    assert_eq!(rule.params.one_sided, Algorithm::DcVegas as u8);
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
        g = "1/32"
        window_cap = "1MB"
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
    assert_eq!(rule.window_cap_bytes, 1_000_000);
    assert_eq!((rule.floor_mss, rule.initial_window_segments), (1, 4));
    assert_eq!(rule.rto_min, Duration::from_millis(10));
    assert_eq!((rule.police, rule.mptcp), (false, Mptcp::Strip));
    assert_eq!(policy.rules[1].k, Threshold::Bytes(30_000));
    assert_eq!(policy.rules[1].one_sided, Algorithm::DcVegas);
    assert_eq!(policy.rules[2].window_bytes, Some(100_000));
    let params = policy.compile().slots[0].params;
    assert_eq!((params.beta_q10, params.g_shift), (512, 5));
    assert_eq!(
        (params.flags, params.rto_min_us),
        (abi::RULE_STRIP_MPTCP, 10_000)
    );
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

#[test]
fn contradictions_are_refused() {
    for (rule, expected) in [
        ("one_sided = 'dctcp'", "feedback of a peer"),
        ("algorithm = 'dtcp'", "did you mean \"dctcp\""),
        ("algorithm = 'fixed'", "`window` is missing"),
        ("window = '1MB'", "does not use"),
        ("algorithm = 'cubic'\nbeta = 1.0", "does not use"),
        ("algorithm = 'cubic'\nk = '25us'", "does not use"),
        ("window_cap = '9MiB'", "between 1B and 8MiB"),
        ("window_cap = '0B'", "between 1B and 8MiB"),
        ("port = 80\nsource_port = 81", "excludes"),
        ("port = '9-8'", "not a port"),
        ("port = 65536", "not a port"),
        ("g = '1/3'", "power of two"),
        ("g = 2", "power of two"),
        ("k = '30'", "queueing threshold"),
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
        ("mode = true", "must be a string"),
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
            "on a path that does not mark",
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
        ("rate = '1Gbit'\nburst = '1KB'", "between 64KiB and 1GiB"),
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
fn an_explanation_says_what_it_was_not_told() {
    let policy = parse(
        "[[rule]]\ninterface = 'veth-b*'\nmode = 'off'\n[[rule]]\ntenant = 'blue'\nvlan = 7\nmode='off'\n[[rule]]\nalgorithm = 'cubic'\n",
    );
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let ends = Asked::ends((address("10.0.0.1"), address("10.0.0.2")), (1, 2));
    let text = policy.explain(&ends).to_string();
    assert_eq!(
        text,
        "rule 1 matches only at interface veth-b*, and decides there; say where the flow is to know\n\
         rule 2 matches only with VLAN 7 and only at tenant blue, and decides there; say where the flow is to know\n\
         elsewhere rule 3 decides: mode observe, cubic (the peer's prefix is not trusted)"
    );
    let told = Asked {
        interface: Some("veth-a"),
        tenant: Some("blue"),
        vlan: Some(0),
        ..ends
    };
    let text = policy.explain(&told).to_string();
    assert!(
        text.starts_with(
            "rule 1 does not match: interface veth-a is not veth-b*\n\
             rule 2 does not match: no VLAN tag is not VLAN 7\nrule 3 decides"
        ),
        "{text}"
    );
}

#[test]
fn an_explanation_of_what_has_no_flow_names_the_bucket() {
    let policy = parse(
        "[[bucket]]\nname = 'dns'\ntenant = 'blue'\nclass = 'udp'\nrate = '1Mbit'\n[[bucket]]\nclass = 'udp'\nrate = '2Mbit'\nmode = 'enforce'\n",
    );
    let explain = |class, tenant| policy.explain_class(class, (None, tenant));
    assert_eq!(
        explain(Class::Udp, None),
        "bucket 1 \"dns\" has it only at tenant blue; else:\n\
         bucket 2 has it: 2Mbit with bursts of 128KiB, what is beyond is dropped"
    );
    assert!(explain(Class::Udp, Some("blue")).ends_with("what is beyond is only counted"));
    assert!(
        explain(Class::Icmp, None)
            .ends_with("no bucket has class icmp: such packets pass and are counted")
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

#[test]
fn an_explanation_says_why_earlier_rules_do_not_match() {
    let policy = parse(
        "trusted=['10.0.0.0/8']\n[[rule]]\ndestination='10.9.0.0/16'\n[[rule]]\nport=80\n[[rule]]\nname='rest'\nmode='enforce'\n",
    );
    let to = |address: &str| address.parse::<IpAddr>().unwrap();
    let text = policy
        .explain(&Asked::ends((to("10.0.0.1"), to("10.0.0.2")), (1, 2)))
        .to_string();
    assert_eq!(
        text,
        "rule 1 does not match: destination 10.0.0.2 is not in 10.9.0.0/16\n\
         rule 2 does not match: neither port 1 nor 2 is 80\n\
         rule 3 \"rest\" decides: mode enforce, dctcp if the peer enforces \
         (its prefix is trusted), else dcvegas\n\
         rule 3 \"rest\" decides the other way: with this policy the peer enforces"
    );
}

#[test]
fn an_explanation_says_what_the_peer_makes_of_the_other_direction() {
    let other_way = |policy: &str| {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let policy = parse(policy);
        let explanation = policy.explain(&Asked::ends(
            (address("10.0.1.1"), address("10.0.2.1")),
            (1, 2),
        ));
        let text = explanation.to_string();
        text.lines().last().unwrap_or_default().to_owned()
    };
    let one_way = "trusted=['10.0.0.0/16']\n[[rule]]\ndestination='10.0.2.0/24'\nmode='enforce'\n";
    assert!(other_way(one_way).starts_with("no rule matches the other way"));
    let observed = format!("{one_way}[[rule]]\nname='rest'\n");
    assert!(
        other_way(&observed).starts_with("rule 2 \"rest\" decides the other way: mode observe")
    );
    let both = format!("{one_way}[[rule]]\nmode='enforce'\n");
    assert!(other_way(&both).ends_with("the peer enforces"));
    let untrusted = both.replace("10.0.0.0/16", "10.0.2.0/24");
    assert!(other_way(&untrusted).contains("does not trust this source"));
}

fn warnings(text: &str) -> Vec<String> {
    let (_, warnings) =
        Policy::parse_with_warnings("p.toml", text).unwrap_or_else(|problems| panic!("{problems}"));
    warnings.iter().map(ToString::to_string).collect()
}

/// Those that are left when a bucket has what policing leaves out.
fn warnings_of_rules(text: &str) -> Vec<String> {
    warnings(&format!(
        "{text}[[bucket]]\nclass = 'watched-tcp'\nrate = '1Gbit'\nmode = 'enforce'\n"
    ))
}

#[test]
fn policing_without_a_bucket_for_what_it_leaves_out_is_warned_of() {
    let polices = "[[rule]]\nport = 80\n[[rule]]\nmode = 'enforce'\n[[rule]]\nmode = 'enforce'\n";
    assert_eq!(warnings_of_rules(polices), [""; 0]);
    for buckets in [
        "",
        "[[bucket]]\nrate = '1Gbit'\nmode = 'enforce'\n",
        "[[bucket]]\nclass = 'watched-tcp'\nrate = '1Gbit'\n",
    ] {
        let found = warnings(&format!("{polices}{buckets}"));
        assert!(
            found.len() == 1 && found[0].starts_with("p.toml:3:1: rule[1]: polices only TCP whose"),
            "{found:?}"
        );
    }
    for none in ["police = false\nmode = 'enforce'\n", "mode = 'observe'\n"] {
        assert_eq!(warnings(&format!("[[rule]]\n{none}")), [""; 0], "{none}");
    }
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
             with this file on both hosts dcvegas governs, not dctcp; \
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
    assert_eq!(warnings_of_rules(alone).len(), 1, "nobody else is trusted");
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

/// What `sg_policy_match` of `params.h` does, on the compiled table.
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
    decided.map(|slot| table.slots[slot].params.rule_id)
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
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Policy::parse("p.toml", &String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn random_values_of_known_keys_never_panic(
        key in prop::sample::select(vec![
            "name", "source", "destination", "port", "source_port", "destination_port", "mode",
            "algorithm", "one_sided", "beta", "g", "window_cap", "window", "k", "vegas_alpha",
            "vegas_beta", "floor_mss", "initial_window", "rto_min", "police", "mptcp", "interface",
            "tenant", "vlan", "rate_cap", "fallback",
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
