//! Thresholds of the delay, named and not, and the algorithm that stands in for them.

use sluicegate_core::cc::Algorithm;
use sluicegate_policy::Policy;

fn parse(text: &str) -> Policy {
    Policy::parse("p.toml", text).unwrap_or_else(|problems| panic!("{problems}"))
}

fn warnings(text: &str) -> Vec<String> {
    let read = Policy::parse_with_warnings("p.toml", text);
    let (_, warnings) = read.unwrap_or_else(|problems| panic!("{problems}"));
    warnings.iter().map(ToString::to_string).collect()
}

/// Beyond what the rule names nothing is known of its paths.
#[test]
fn thresholds_that_a_rule_does_not_name_come_from_the_path_and_cubic_stands_in() {
    let compiled = |rule: &str| parse(&format!("[[rule]]\n{rule}\n")).compile().slots[0].params;
    for algorithm in ["reno", "dcvegas", "vegas", "swift", "highspeed", "illinois"] {
        let params = compiled(&format!("algorithm = '{algorithm}'"));
        assert_eq!(params.fallback, Algorithm::Cubic as u8, "{algorithm}");
        assert_eq!(
            (params.k_bytes, params.k_segments, params.k_delay_ns),
            (0, 0, 0)
        );
        assert_eq!(params.swift_target_ns, 0);
    }
    let one_sided = compiled("one_sided = 'dcvegas'");
    assert_eq!(one_sided.fallback, Algorithm::Cubic as u8);
    for (rule, one_sided, fallback) in [
        ("k = '25us'", Algorithm::Dcvegas, Algorithm::Dcvegas),
        (
            "k = '25us'\nfallback = 'cubic'",
            Algorithm::Dcvegas,
            Algorithm::Cubic,
        ),
        (
            "one_sided = 'vegas'\nvegas_alpha = 3",
            Algorithm::Vegas,
            Algorithm::Vegas,
        ),
        (
            "algorithm = 'swift'\nswift_target = '1ms'",
            Algorithm::Swift,
            Algorithm::Swift,
        ),
        (
            "algorithm = 'swift'\nswift_beta = 0.5",
            Algorithm::Swift,
            Algorithm::Cubic,
        ),
        (
            "algorithm = 'reno'\nfallback = 'reno'",
            Algorithm::Reno,
            Algorithm::Reno,
        ),
    ] {
        let params = compiled(rule);
        assert_eq!(params.one_sided, one_sided as u8, "{rule}");
        assert_eq!(params.fallback, fallback as u8, "{rule}");
    }
}

#[test]
fn a_delay_that_is_named_for_unknown_paths_is_warned_of() {
    let rule = |conditions: &str| {
        format!("trusted = ['10.0.0.0/8']\n[[rule]]\nmode = 'enforce'\n{conditions}\n")
    };
    for (conditions, key) in [
        ("k = '25us'", "k = 25us"),
        (
            "algorithm = 'swift'\nswift_target = '200us'",
            "swift_target = 200us",
        ),
        ("k = '25us'\ndestination = '0.0.0.0/0'", "k = 25us"),
        ("k = '6 packets'", "k = 6 segments"),
        ("k = '9KB'", "k = 9000 bytes"),
        (
            "algorithm = 'vegas'\nvegas_alpha = 3",
            "a backlog of 3 to 4 segments",
        ),
    ] {
        let found = warnings(&rule(conditions));
        assert!(found[0].contains(key), "{conditions}: {found:?}");
        assert!(found[0].contains("not trusted"), "{conditions}: {found:?}");
    }
    for conditions in [
        "k = '25us'\ndestination = '10.1.0.0/16'\nsource = '10.0.0.0/8'",
        "k = '25us'\nfallback = 'cubic'",
        "one_sided = 'dcvegas'",
        "algorithm = 'vegas'",
        "k = '20ms'",
        "",
    ] {
        let found = warnings(&rule(conditions));
        assert!(
            !found.concat().contains("not trusted"),
            "{conditions}: {found:?}"
        );
    }
}
