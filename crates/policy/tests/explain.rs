//! Explanations of a flow: the rule that decides it, and why.

use std::net::IpAddr;

use sluicegate_policy::{Asked, Class, Policy};

fn parse(text: &str) -> Policy {
    Policy::parse("p.toml", text).unwrap_or_else(|problems| panic!("{problems}"))
}

/// The explanation of a flow between 10.0.0.1:1 and 10.0.0.2:2.
fn explained(policy: &Policy) -> String {
    let ends: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|address| address.parse().unwrap());
    let asked = Asked::ends((ends[0], ends[1]), (1, 2));
    policy.explain(&asked).to_string()
}

#[test]
fn an_explanation_says_why_earlier_rules_do_not_match() {
    let policy = parse(
        "trusted=['10.0.0.0/8']\n[[rule]]\ndestination='10.9.0.0/16'\n[[rule]]\nport=80\n[[rule]]\nname='rest'\nmode='enforce'\n",
    );
    assert_eq!(
        explained(&policy),
        "rule 1 does not match: destination 10.0.0.2 is not in 10.9.0.0/16\n\
         rule 2 does not match: neither port 1 nor 2 is 80\n\
         rule 3 \"rest\" decides: mode enforce, dctcp if the peer enforces \
         (its prefix is trusted), else cubic\n\
         rule 3 \"rest\" decides the other way: with this policy the peer enforces"
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
         elsewhere rule 3 decides: mode observe, which edits nothing and computes cubic\n\
         with mode enforce: cubic (the peer's prefix is not trusted)"
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
fn an_explanation_says_what_a_rule_that_observes_computes_and_what_it_would_enforce() {
    let policy = parse("[[rule]]\nname='look'\nmode='observe'\n");
    assert_eq!(
        explained(&policy),
        "rule 1 \"look\" decides: mode observe, which edits nothing and computes dctcp if the tenants agree on ECN, \
         else cubic\n\
         with mode enforce: cubic (the peer's prefix is not trusted)"
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

#[test]
fn an_explanation_of_what_has_no_flow_names_the_bucket() {
    let policy = parse(
        "[[bucket]]\nname = 'dns'\ntenant = 'blue'\nclass = 'udp'\nrate = '1Mbit'\n[[bucket]]\nclass = 'udp'\nrate = '2Mbit'\nmode = 'enforce'\n",
    );
    let explain = |class, tenant| policy.explain_class(class, (None, tenant));
    assert_eq!(
        explain(Class::Udp, None),
        "bucket 1 \"dns\" has it only at tenant blue; else:\n\
         bucket 2 has it: 2Mbit with bursts of 15KiB, what is beyond is dropped"
    );
    assert!(explain(Class::Udp, Some("blue")).ends_with("what is beyond is only counted"));
    assert!(
        explain(Class::Icmp, None)
            .ends_with("no bucket has class icmp: such packets pass and are counted")
    );
    let enforcing = parse("[[rule]]\nname = 'web'\nmode = 'enforce'\n");
    let text = enforcing.explain_class(Class::Udp, (None, None));
    assert!(
        text.contains("counted, a way out of what rule 1 \"web\" enforces"),
        "{text}"
    );
    let text = enforcing.explain_class(Class::Neighbour, (None, None));
    assert!(text.ends_with("pass and are counted"), "{text}");
}
