//! Behaviour of the scenario language: what it means, and what it refuses.

use std::{path::Path, time::Duration};

use proptest::prelude::*;
use sluicegate_core::{aqm::Aqm, cc::Algorithm};
use sluicegate_policy::{Mode, Policy};
use sluicegate_scenario::{
    experiment::{
        Action, EcnOffer, Experiment, HostId, Load, Profile, TcpOptions, TenantKind, TrafficKind,
        Variant,
    },
    file::{self, Options},
};
use sluicegate_tcp::config::{CacheWindow, Recovery};

const BASE: &str = "[network]\ntopology = 'dumbbell'\n[traffic.bulk]\nkind = 'bulk'\n";

fn parse(text: &str) -> Experiment {
    file::parse(Path::new("t.toml"), text, &Options::default()).unwrap_or_else(|p| panic!("{p}"))
}

fn one(text: &str) -> Variant {
    parse(text).variants.remove(0)
}

fn refusal(text: &str) -> String {
    match file::parse(Path::new("t.toml"), text, &Options::default()) {
        Ok(experiment) => panic!("accepted: {experiment:?}"),
        Err(problems) => problems.to_string(),
    }
}

fn bottlenecks(variant: &Variant) -> Vec<&str> {
    let links = variant.links.iter().filter(|link| link.bottleneck);
    links.map(|link| link.name.as_str()).collect()
}

fn tenant_names(variant: &Variant, pairs: &[(usize, usize)]) -> Vec<(String, String)> {
    let name = |at: usize| variant.tenants[at].name.clone();
    pairs
        .iter()
        .map(|(from, to)| (name(*from), name(*to)))
        .collect()
}

#[test]
fn everything_but_topology_and_traffic_has_a_default() {
    let experiment = parse(BASE);
    let variant = &experiment.variants[0];
    assert_eq!(
        (
            experiment.name.as_str(),
            experiment.seed,
            experiment.repeats
        ),
        ("t", 1, 1)
    );
    assert_eq!(variant.name, "base");
    assert_eq!(
        (variant.warmup, variant.duration),
        (Duration::from_secs(2), Duration::from_secs(10))
    );
    assert_eq!((variant.ip_version, variant.mtu_bytes), (4, 1500));
    assert_eq!(variant.links[0].rate_bps, 1_000_000_000);
    assert_eq!(variant.links[0].marking, Aqm::None);
    assert_eq!(variant.tenants[0].congestion_control, "cubic");
    assert!(variant.enforcement.is_none());
    assert_eq!(variant.traffic[0].port, 10_000);
}

#[test]
fn a_dumbbell_pairs_left_with_right_across_its_bottleneck() {
    let variant = one(
        "[network]\ntopology = 'dumbbell'\npairs = 3\nrate = '1Gbit'\naccess_rate = '2Gbit'\n[traffic.b]\nkind = 'bulk'\n",
    );
    assert_eq!(variant.hosts.len(), 6);
    assert_eq!(bottlenecks(&variant), ["left-right"]);
    assert_eq!(variant.links[0].rate_bps, 1_000_000_000);
    assert_eq!(variant.links[1].rate_bps, 2_000_000_000);
    assert_eq!(variant.traffic[0].pairs, [(0, 3), (1, 4), (2, 5)]);
    assert_eq!(variant.tenants[3].name, "r1");
    assert_eq!(variant.tenants[3].address.to_string(), "10.0.4.1");
}

#[test]
fn in_a_star_the_queue_to_the_common_receiver_is_the_bottleneck() {
    let text = "[network]\ntopology = 'star'\nhosts = 4\n[traffic.i]\nkind = 'bulk'\nfrom = 'h*'\nto = 'h1'\n";
    let variant = one(text);
    assert_eq!(bottlenecks(&variant), ["switch-h1"]);
    assert_eq!(variant.traffic[0].pairs, [(1, 0), (2, 0), (3, 0)]);
    let twice = one(&format!("{text}connections = 2\n"));
    assert_eq!(twice.traffic[0].pairs.len(), 6);
}

#[test]
fn in_a_parking_lot_every_link_where_flows_meet_is_a_bottleneck() {
    let variant =
        one("[network]\ntopology = 'parking-lot'\nsenders = 4\n[traffic.b]\nkind = 'bulk'\n");
    assert_eq!(bottlenecks(&variant), ["w2-w3", "w3-w4", "w4-r1"]);
    let pairs = tenant_names(&variant, &variant.traffic[0].pairs);
    assert_eq!(pairs[3], ("s4".to_owned(), "r1".to_owned()));
}

#[test]
fn bottlenecks_can_be_named_and_links_can_differ() {
    let variant = one(
        "[network]\ntopology = 'dumbbell'\nbottleneck = ['right-r*']\n\
        [network.link.right-r1]\nrate = '10Mbit'\nqueue = '20KB'\nmarking = { kind = 'red' }\n[traffic.b]\nkind = 'bulk'\n",
    );
    assert_eq!(bottlenecks(&variant), ["right-r1", "right-r2"]);
    let link = variant.links.iter().find(|l| l.name == "right-r1").unwrap();
    assert_eq!((link.rate_bps, link.queue_bytes), (10_000_000, 20_000));
    assert!(matches!(
        link.marking,
        Aqm::Red {
            drop_above: false,
            pass_not_ect: false,
            min_bytes: 25_600,
            max_bytes: 76_800,
            ..
        }
    ));
}

#[test]
fn several_tenants_share_a_host() {
    let variant = one(
        "[network]\ntopology = 'dumbbell'\npairs = 1\ntenants_per_host = 2\nip = 6\n\
        [tenant.default]\necn = true\n[tenant.'s*']\ncongestion_control = 'reno'\n[tenant.s1-2]\nkind = 'guest'\nreceive_buffer = '1MiB'\n\
        [tenant.r1-1]\necn = 'accurate'\n[tenant.r1-2]\necn = false\n\
        [traffic.b]\nkind = 'bulk'\n",
    );
    let names: Vec<_> = variant.tenants.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["s1-1", "s1-2", "r1-1", "r1-2"]);
    let second = &variant.tenants[1];
    assert_eq!(
        (second.host, second.kind, second.ecn),
        (HostId(0), TenantKind::Guest, EcnOffer::Classic)
    );
    let offers = [&variant.tenants[2], &variant.tenants[3]].map(|tenant| tenant.ecn);
    assert_eq!(offers, [EcnOffer::Accurate, EcnOffer::None]);
    assert_eq!(second.congestion_control, "reno");
    assert_eq!(second.receive_buffer_bytes, Some(1 << 20));
    assert_eq!(second.address.to_string(), "fd00::1:2");
    assert_eq!(variant.tenants[2].congestion_control, "cubic");
}

#[test]
fn a_tenant_s_tcp_is_as_the_most_exact_table_says() {
    let ms = |ms| Some(Duration::from_millis(ms));
    let variant = one("[network]\ntopology = 'dumbbell'\npairs = 2\n\
        [tenant.default]\nrto_min = '10ms'\nrecovery = 'sack'\nprr = 'safe'\n\
         [tenant.'s*']\nprofile = 'freebsd9'\nrto_initial = '20ms'\nrto_slop = '5ms'\nconnection_cache = false\npacing = true\noffload_segments = 8\n\
        [tenant.s2]\nrto_min = '2ms'\ndelayed_ack = '0ms'\ncongestion_control = 'cubic'\n\
        [traffic.b]\nkind = 'bulk'\n");
    let [s1, s2, r1, ..] = &variant.tenants[..] else {
        panic!("four tenants");
    };
    assert_eq!(s1.congestion_control, "reno", "the profile's");
    assert_eq!(
        (s2.congestion_control.as_str(), s2.tcp.delayed_ack),
        ("cubic", ms(0))
    );
    let freebsd = TcpOptions {
        profile: Profile::Freebsd9,
        recovery: Some(Recovery::Sack),
        prr_safe: Some(true),
        rto_initial: ms(20),
        rto_min: ms(10),
        rto_slop: ms(5),
        delayed_ack: None,
        connection_cache: Some(false),
        connection_cache_window: None,
        pacing: Some(true),
        offload_segments: Some(8),
    };
    assert_eq!(s1.tcp, freebsd);
    assert_eq!(s2.tcp.rto_min, ms(2));
    assert_eq!((r1.tcp.profile, r1.tcp.rto_min), (Profile::Linux, ms(10)));
}

#[test]
fn a_window_is_inherited_by_way_of_the_cache() {
    let text = |tenants: &str| {
        format!(
            "[network]\ntopology = 'dumbbell'\npairs = 2\n{tenants}\n[traffic.b]\nkind = 'bulk'\n"
        )
    };
    for tenants in [
        "[tenant.default]\nprofile = 'freebsd9'\nconnection_cache_window = 'whole'\n",
        "[tenant.s1]\nconnection_cache = true\nconnection_cache_window = 'whole'\n",
        "[tenant.default]\nconnection_cache_window = 'none'\n\
        [tenant.s1]\nconnection_cache = true\nconnection_cache_window = 'whole'\n",
    ] {
        let variant = one(&text(tenants));
        let window = variant.tenants[0].tcp.connection_cache_window;
        assert_eq!(window, Some(CacheWindow::Whole));
    }
    let without = "set connection_cache = true, or profile = \"freebsd9\"";
    for (tenants, place) in [
        (
            "[tenant.s1]\nconnection_cache_window = 'half'\n",
            "tenant.s1",
        ),
        (
            "[tenant.default]\nprofile = 'freebsd9'\nconnection_cache_window = 'half'\n\
            [tenant.s2]\nconnection_cache = false\n",
            "tenant.default",
        ),
    ] {
        let told = refusal(&text(tenants));
        let key = format!("{place}.connection_cache_window: ");
        assert!(told.contains(&key) && told.contains(without), "{told}");
    }
}

#[test]
fn a_timeout_of_nothing_is_refused() {
    let problems = refusal(
        "[network]\ntopology = 'star'\n[tenant.default]\nrto_min = '0ms'\n[traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n",
    );
    let told = "rto_min: must be 1us or more, not 0s; a timeout of 0 would send without end";
    assert!(problems.contains(told), "{problems}");
}

#[test]
fn an_offload_beyond_an_ip_packet_is_refused() {
    let problems = refusal(
        "[network]\ntopology = 'star'\n[tenant.default]\noffload_segments = 45\n[traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n",
    );
    assert!(
        problems.contains("offload_segments") && problems.contains("44"),
        "{problems}"
    );
}

#[test]
fn every_kind_of_traffic_is_read() {
    let variant = one("[network]\ntopology = 'star'\nhosts = 6\n\
        [traffic.bulk]\nkind = 'bulk'\nrate = '5Mbit'\nfrom = 'h1'\nto = 'h2'\nstart = '1s'\nstop = '3s'\n\
        [traffic.ping]\nkind = 'ping-pong'\nfrom = 'h1'\nto = 'h2'\ninterval = '1ms'\n\
        [traffic.incast]\nkind = 'incast'\nto = 'h1'\nbytes = '100KB'\n\
        [traffic.mice]\nkind = 'messages'\npairs = 'stride:1'\nbytes = '16KB'\ninterval = '100ms'\n\
        [traffic.shuffle]\nkind = 'shuffle'\nbytes = '1MB'\nparallel = 3\nclass = 'big'\n\
        [traffic.trace]\nkind = 'trace'\nsizes = 'hadoop'\nload = '10Mbit'\nport = 20000\n");
    let kinds: Vec<_> = variant.traffic.iter().map(|t| &t.kind).collect();
    assert_eq!(
        kinds[0],
        &TrafficKind::Bulk {
            rate_bps: Some(5_000_000)
        }
    );
    assert_eq!(variant.traffic[0].stop, Some(Duration::from_secs(3)));
    assert!(matches!(kinds[1], TrafficKind::PingPong { bytes: 64, .. }));
    assert_eq!(variant.traffic[2].pairs.len(), 5);
    assert!(matches!(kinds[3], TrafficKind::Messages { class, .. } if class == "mice"));
    assert_eq!(variant.traffic[4].pairs.len(), 30);
    assert!(matches!(kinds[4], TrafficKind::Shuffle { class, parallel: 3, .. } if class == "big"));
    let TrafficKind::Trace { classes, .. } = kinds[5] else {
        panic!("{:?}", kinds[5])
    };
    assert_eq!(classes.last().unwrap(), &(u64::MAX, "large".to_owned()));
    assert_eq!(variant.traffic[5].port, 20_000);
    let ports: Vec<_> = variant.traffic[..4].iter().map(|t| t.port).collect();
    assert_eq!(ports, [10_000, 10_001, 10_002, 10_007]);
}

#[test]
fn cheats_are_said_of_tenants_and_of_traffic() {
    let variant = one(
        "[network]\ntopology = 'star'\nhosts = 3\n[tenant.h2]\nignore_window = true\n\
        [traffic.near]\nkind = 'blast'\nfrom = 'h1'\nto = 'h2'\nrate = '8Mbit'\n\
        [traffic.far]\nkind = 'blast'\nfrom = 'h3'\nto = 'h2'\nrate = '8Mbit'\nspan = '8KB'\n",
    );
    let ignoring: Vec<bool> = variant.tenants.iter().map(|t| t.ignore_window).collect();
    assert_eq!(ignoring, [false, true, false]);
    let spans = variant.traffic.iter().map(|traffic| match traffic.kind {
        TrafficKind::Blast {
            rate_bps: 8_000_000,
            span_bytes,
        } => span_bytes,
        ref other => panic!("{other:?}"),
    });
    assert_eq!(spans.collect::<Vec<_>>(), [1_000_000, 8_000]);
    assert!(variant.traffic.iter().all(|t| t.kind.is_bulk()));
    assert!(variant.has_cheats());
}

#[test]
fn variants_are_laid_over_the_base_and_over_one_another() {
    let experiment = parse(&format!(
        "{BASE}[variant.plain]\n[variant.marked]\ntitle = 'M'\nnetwork.marking = {{ kind = 'threshold', k = '30KB', not_ect = 'pass' }}\n\
         [variant.dctcp]\nlike = 'marked'\ntenant.default.congestion_control = 'dctcp'\ntraffic.bulk.connections = 2\n"
    ));
    let [plain, marked, dctcp] = &experiment.variants[..] else {
        panic!()
    };
    assert_eq!(
        (plain.name.as_str(), plain.links[0].marking),
        ("plain", Aqm::None)
    );
    let threshold = Aqm::Threshold {
        k_bytes: 30_000,
        drop_not_ect: false,
    };
    assert_eq!(
        (marked.title.as_str(), marked.links[0].marking),
        ("M", threshold)
    );
    assert_eq!(dctcp.links[0].marking, threshold);
    assert_eq!(dctcp.tenants[0].congestion_control, "dctcp");
    assert_eq!(
        (plain.traffic[0].pairs.len(), dctcp.traffic[0].pairs.len()),
        (2, 4)
    );
}

#[test]
fn the_short_form_is_laid_over_the_file_but_under_its_variants() {
    let text = format!(
        "duration = '9s'\n{BASE}[variant.a]\n[variant.b]\nduration = '8s'\n[short]\nduration = '1s'\nexpect.e = false\n[expect]\ne = 'a.rtt_us.p50 < 1'\n"
    );
    let short = Options {
        short: true,
        seed: Some(9),
        ..Options::default()
    };
    let full = parse(&text);
    let short = file::parse(Path::new("t.toml"), &text, &short).unwrap();
    let seconds = |e: &Experiment| {
        e.variants
            .iter()
            .map(|v| v.duration.as_secs())
            .collect::<Vec<_>>()
    };
    assert_eq!(seconds(&full), [9, 8]);
    assert_eq!(seconds(&short), [1, 8]);
    assert_eq!((full.expectations.len(), short.expectations.len()), (1, 0));
    assert_eq!((full.seed, short.seed), (1, 9));
}

#[test]
fn enforcement_without_a_policy_is_dctcp_between_trusting_hosts() {
    let variant = one(&format!("{BASE}[enforcement]\nhosts = 'all'\n"));
    let enforcement = variant.enforcement.unwrap();
    let rule = &enforcement.policy.rules[0];
    assert_eq!(enforcement.hosts, [0, 1, 2, 3].map(HostId));
    assert_eq!(
        (rule.mode, rule.algorithm),
        (Mode::Enforce, Algorithm::Dctcp)
    );
    assert_eq!(enforcement.policy.trusted[0].to_string(), "10.0.0.0/8");
}

/// A switch of the lab reads a policy's file.
#[test]
fn the_text_of_a_policy_says_the_same_as_the_policy() {
    for text in [
        "",
        "policy.rule = [{ mode = 'enforce', algorithm = 'vegas', vegas_alpha = 3 }]\n",
        "policy.trusted = []\n",
        "policy.trusted = ['10.0.1.0/24']\npolicy.rule = [{ port = 80, mode = 'enforce', algorithm = 'dctcp', \
         beta = 0.5, k = '9KB', one_sided = 'dcvegas', window_cap = '64KB' }, { mode = 'off' }]\n",
    ] {
        let text = format!("{BASE}[enforcement]\nhosts = 'all'\n{text}");
        let enforcement = one(&text).enforcement.expect("enforcement");
        let read = Policy::parse("policy.toml", &enforcement.policy_text)
            .unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(read, enforcement.policy, "{}", enforcement.policy_text);
    }
}

#[test]
fn an_inline_policy_trusts_all_tenants_unless_it_says_whom() {
    let policy = |text: &str| {
        one(&format!(
            "{BASE}[enforcement]\nhosts = ['s1', 'r*']\n{text}"
        ))
        .enforcement
        .unwrap()
    };
    let trusting = policy("policy.rule = [{ mode = 'enforce', algorithm = 'vegas' }]\n");
    assert_eq!(trusting.hosts, [0, 2, 3].map(HostId));
    assert_eq!(trusting.policy.trusted.len(), 1);
    assert_eq!(trusting.policy.rules[0].algorithm, Algorithm::Vegas);
    assert!(policy("policy.trusted = []\n").policy.trusted.is_empty());
    assert!(
        one(&format!("{BASE}[enforcement]\nhosts = 'none'\n"))
            .enforcement
            .is_none()
    );
    assert!(one(&format!("{BASE}[enforcement]\n")).enforcement.is_none());
}

#[test]
fn events_are_ordered_by_time() {
    let variant = one(&format!(
        "{BASE}[[event]]\nat = '5s'\ndetach = ['r1']\n[[event]]\nat = '3s'\nbleach_ecn = true\n"
    ));
    assert_eq!(variant.events[0].action, Action::BleachEcn);
    assert_eq!(variant.events[1].action, Action::Detach(vec![HostId(2)]));
}

#[test]
fn all_errors_are_listed_in_order_and_once_for_all_variants() {
    let text = refusal(
        "sead = 3\n[network]\ntopology = 'dumbell'\nrate = 10\n[traffic.bulk]\nkind = 'bulk'\nfrom = 's1'\n\
         [variant.a]\n[variant.b]\nnetwork.mtu = 10\n[expect]\nx = 'a.rtt_us.p51 < 1'\ny = 'c.rtt_us.p50 < 1'\n",
    );
    let lines: Vec<_> = text
        .lines()
        .map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(": "))
        .collect();
    assert_eq!(
        lines,
        [
            "t.toml:1:1: sead",
            "t.toml:3:12: network.topology",
            "t.toml:4:8: network.rate",
            "t.toml:10:15: network.mtu",
            "t.toml:12:5: x",
            "t.toml:13:5: y",
        ],
        "{text}"
    );
    assert!(text.contains("did you mean \"seed\"?"), "{text}");
    assert!(text.contains("did you mean \"dumbbell\"?"), "{text}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (text, expected) in [
        ("", "[network] is missing"),
        ("[network]\ntopology = 'star'\n", "no [traffic.NAME]"),
        (
            "[network]\ntopology = 'star'\npairs = 3\n[traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n",
            "does not belong to this topology",
        ),
        (
            "[network]\ntopology = 'star'\nhosts = 4\n[traffic.b]\nkind = 'bulk'\n",
            "pair in more than one way",
        ),
        ("[network]\ntopology = 'star'\nhosts = 0\n", "between 1 and"),
        (&format!("{BASE}from = 'x1'\n"), "no tenant is named \"x1\""),
        (
            &format!("{BASE}start = '3s'\nstop = '2s'\n"),
            "must come after",
        ),
        (&format!("{BASE}bytes = '3KB'\n"), "unknown key"),
        (
            &format!("{BASE}[tenant.t1]\necn = true\n"),
            "no tenant \"t1\"",
        ),
        (
            &format!("{BASE}[tenant.s1]\ncongestion_control = 'cubik'\n"),
            "did you mean \"cubic\"",
        ),
        (
            &format!("{BASE}[traffic.p]\nkind = 'ping-pong'\nport = 10001\n"),
            "are those of traffic \"bulk\"",
        ),
        (
            &format!("{BASE}[traffic.m]\nkind = 'messages'\n"),
            "`bytes` is missing",
        ),
        (
            &format!("{BASE}[traffic.m]\nkind = 'trace'\nload = '1Mbit'\n"),
            "`sizes` is missing",
        ),
        (
            &format!("{BASE}[traffic.m]\nkind = 'trace'\nload = '1Mbit'\nsizes = 'no.csv'\n"),
            "cannot be read",
        ),
        (
            &format!(
                "{BASE}[traffic.m]\nkind = 'trace'\nload = '1Mbit'\nsizes = 'hadoop'\nclasses.a = '1KB'\n"
            ),
            "have no class",
        ),
        (&format!("{BASE}[[event]]\nat = '1s'\n"), "does one thing"),
        (
            &format!("{BASE}[[event]]\nat = '99s'\nbleach_ecn = true\n"),
            "after the run has ended",
        ),
        (
            &format!("{BASE}[enforcement]\nhosts = 'all'\npolicy.rule = [{{ beta = 7 }}]\n"),
            "enforcement.policy.rule[0].beta",
        ),
        (
            &format!(
                "{BASE}[enforcement]\nhosts = 'all'\n[[enforcement.policy.rule]]\ninterface = 'veth*'\n"
            ),
            "enforcement.policy.rule[0].interface: is for live hosts",
        ),
        (
            &format!(
                "{BASE}[enforcement]\nhosts = 'all'\n[[enforcement.policy.rule]]\ntenant = 'a'\nvlan = 1\n"
            ),
            "enforcement.policy.rule[0].vlan: is for live hosts",
        ),
        (
            &format!(
                "{BASE}[enforcement]\nhosts = 'all'\n[[enforcement.policy.bucket]]\nrate = '1Gbit'\n"
            ),
            "enforcement.policy.bucket: is for live hosts",
        ),
        (
            &format!("{BASE}[enforcement]\npolicy_file = 'nowhere.toml'\n"),
            "nowhere.toml:1:1",
        ),
        (
            &format!("{BASE}[variant.a]\nseed = 3\n"),
            "belongs to the file as a whole",
        ),
        (
            &format!("{BASE}[variant.a]\nlike = 'b'\n"),
            "no variant \"b\"",
        ),
        (
            &format!("{BASE}[variant.a]\nlike = 'b'\n[variant.b]\nlike = 'a'\n"),
            "like one another",
        ),
        (&format!("{BASE}[variant.A]\n"), "is no name"),
        (&format!("duration = '0s'\n{BASE}"), "must not be zero"),
        ("extends = 'nowhere.toml'\n", "nowhere.toml:1:1"),
        (
            &format!("{BASE}[expect]\na = 'base.flows.s9.goodput_bps > 1'\n"),
            "no tenant \"s9\"",
        ),
        (
            &format!("{BASE}[expect]\na = 'base.links.left-rihgt.drops == 1'\n"),
            "did you mean \"left-right\"",
        ),
        (
            &format!("{BASE}[expect]\na = 'base.fct_us.mice.p50 == 1'\n"),
            "has no class of flows",
        ),
        (&format!("{BASE}[expect]\na = 3\n"), "instead of one of"),
        ("name = 1979-05-27\n", "must be a string"),
    ] {
        let found = refusal(text);
        assert!(found.contains(expected), "{text}\n=> {found}");
    }
}

#[test]
fn a_file_extends_another_and_keeps_its_own_name() {
    let directory = std::env::temp_dir().join(format!("sluicegate-extends-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
    write(
        "base.toml",
        &format!(
            "name = 'original'\ntitle = 'T'\n{BASE}[variant.a]\n[variant.b]\n[expect]\ne = 'a.rtt_us.p50 < 1'\nf = 'b.rtt_us.p50 < 1'\n"
        ),
    );
    write(
        "child.toml",
        "extends = 'base.toml'\nnetwork.pairs = 4\nvariant.a = false\n[expect]\ne = false\n",
    );
    write("loop.toml", "extends = 'loop.toml'\n");
    write("sizes.csv", "bytes,cdf\n0,0\n100,1\n");
    write("policy.toml", "[[rule]]\nmode = 'enforce'\n");
    write(
        "names.toml",
        &format!(
            "{BASE}[traffic.t]\nkind = 'trace'\nsizes = 'sizes.csv'\nload = '1Mbit'\n[enforcement]\nhosts = 'all'\npolicy_file = 'policy.toml'\n"
        ),
    );
    let load = |name: &str| file::load(&directory.join(name), &Options::default());
    let child = load("child.toml").unwrap_or_else(|p| panic!("{p}"));
    assert_eq!((child.name.as_str(), child.title.as_str()), ("child", "T"));
    assert_eq!(
        (child.variants.len(), child.variants[0].hosts.len()),
        (1, 8)
    );
    assert_eq!(child.expectations.len(), 1);
    assert!(
        load("loop.toml")
            .unwrap_err()
            .to_string()
            .contains("extend one another")
    );
    let named = load("names.toml").unwrap_or_else(|p| panic!("{p}"));
    let policy = &named.variants[0].enforcement.as_ref().unwrap().policy;
    assert!(
        policy.trusted.is_empty(),
        "a policy file without `trusted` trusts no prefix"
    );
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn pairs_by_lot_follow_the_seed() {
    let text =
        "[network]\ntopology = 'star'\nhosts = 8\n[traffic.b]\nkind = 'bulk'\npairs = 'random'\n";
    let with = |seed| {
        let options = Options {
            seed: Some(seed),
            ..Options::default()
        };
        let mut experiment = file::parse(Path::new("t.toml"), text, &options).unwrap();
        experiment.variants.remove(0).traffic.remove(0).pairs
    };
    assert_eq!(with(1), with(1));
    assert_ne!(with(1), with(2));
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let text = String::from_utf8_lossy(&bytes);
        let _ = file::parse(Path::new("t.toml"), &text, &Options::default());
    }

    #[test]
    fn random_values_in_a_good_file_never_panic(
        key in prop::sample::select(vec![
            "network.pairs", "network.rate", "network.mtu", "network.queue", "network.marking",
            "network.bottleneck", "network.link", "network.ip", "network.tenants_per_host",
            "traffic.bulk.pairs", "traffic.bulk.from", "traffic.bulk.kind", "traffic.bulk.port",
            "traffic.bulk.start", "traffic.bulk.connections", "tenant.default", "tenant", "traffic",
            "enforcement.hosts", "enforcement.policy", "enforcement", "event", "variant", "expect",
            "short", "seed", "repeats", "duration", "warmup", "lab", "extends", "name",
        ]),
        value in prop_oneof![
            any::<i64>().prop_map(|n| n.to_string()),
            "[a-z0-9:*. -]{0,12}".prop_map(|text| format!("\"{text}\"")),
            "[a-z]{1,6}".prop_map(|name| format!("{{ {name} = {{}} }}")),
            "[a-z0-9*]{0,4}".prop_map(|name| format!("[\"{name}\", 3, {{}}]")),
            Just("false".to_owned()), Just("nan".to_owned()), Just("1979-05-27".to_owned()),
        ],
    ) {
        let text = format!("{key} = {value}\n");
        let base = "network.topology = 'dumbbell'\ntraffic.bulk.kind = 'bulk'\n";
        let _ = file::parse(Path::new("t.toml"), &format!("{base}{text}"), &Options::default());
    }
}

#[test]
fn intervals_lie_within_the_run() {
    let variant = one(&format!(
        "{BASE}[interval.first]\nstop = '3s'\n[interval.last]\nstart = '11500ms'\n"
    ));
    let spans: Vec<_> = variant
        .intervals
        .iter()
        .map(|i| (i.start, i.stop))
        .collect();
    let seconds = Duration::from_secs_f64;
    assert_eq!(
        spans,
        [(seconds(0.0), seconds(3.0)), (seconds(11.5), seconds(12.0))]
    );
    let late = refusal(&format!("{BASE}[interval.late]\nstop = '13s'\n"));
    assert!(
        late.contains("t.toml:") && late.contains("interval.late"),
        "{late}"
    );
    assert!(
        refusal(&format!("{BASE}[interval.i]\nstart = '5s'\nstop = '5s'\n"))
            .contains("must end after")
    );
    let unknown = refusal(&format!(
        "{BASE}[interval.i]\n[expect]\ne = 'base.intervals.j.goodput_bps.jain > 0'\n"
    ));
    assert!(unknown.contains("no interval \"j\""), "{unknown}");
}

#[test]
fn deadlines_belong_to_what_completes_and_stretch_with_the_network() {
    let text = "[network]\ntopology = 'star'\nhosts = 3\n\
        [traffic.incast]\nkind = 'incast'\nto = 'h1'\nbytes = '20KB'\ndeadline = '10ms'\n";
    let experiment = parse(text);
    let deadline = |e: &Experiment| e.variants[0].traffic[0].deadline;
    assert_eq!(deadline(&experiment), Some(Duration::from_millis(10)));
    assert_eq!(
        deadline(&experiment.scaled(0.5)),
        Some(Duration::from_millis(20))
    );
    let bulk = refusal(&format!("{BASE}deadline = '1ms'\n"));
    assert!(bulk.contains("completion times"), "{bulk}");
}

#[test]
fn a_trace_is_an_open_or_a_closed_loop() {
    let trace = |more: &str| {
        format!(
            "[network]\ntopology = 'star'\n[traffic.t]\nkind = 'trace'\nsizes = 'websearch'\n{more}"
        )
    };
    let load = |more: &str| match one(&trace(more)).traffic.remove(0).kind {
        TrafficKind::Trace { load, .. } => load,
        other => panic!("{other:?}"),
    };
    assert_eq!(load("load = '1Mbit'\n"), Load::Offered(1_000_000));
    assert_eq!(load("concurrent = 5\n"), Load::Concurrent(5));
    assert!(refusal(&trace("concurrent = 5\nload = '1Mbit'\n")).contains("the network decides"));
    assert!(refusal(&trace("")).contains("concurrent"));
}

#[test]
fn published_figures_are_of_variants_and_go_with_them() {
    let text = format!(
        "{BASE}[variant.a]\n[variant.b]\n[published]\none = 'a.rtt_us.p50 ~ 3'\nboth = 'a.rtt_us.p50 / b.rtt_us.p50 ~ 3'\n"
    );
    let mut experiment = parse(&text);
    assert_eq!(experiment.published.len(), 2);
    experiment.select(&["a".to_owned()]).unwrap();
    assert_eq!(experiment.published.len(), 1);
    let unknown = refusal(&format!("{BASE}[published]\np = 'c.rtt_us.p50 ~ 3'\n"));
    assert!(unknown.contains("no variant \"c\""), "{unknown}");
}

#[test]
fn a_published_figure_may_have_a_cause() {
    let table = |keys: &str| format!("{BASE}[published]\np = {{ {keys} }}\n");
    let figure = "figure = 'base.rtt_us.p50 ~ 3'";
    let experiment = parse(&table(&format!("{figure}, cause = 'c', fitted = 'f'")));
    let line = &experiment.published[0];
    assert_eq!(line.cause.as_deref(), Some("c"));
    assert_eq!(line.fitted.as_deref(), Some("f"));
    let missing = refusal(&table("cause = 'c'"));
    assert!(missing.contains("`figure` is missing"), "{missing}");
    let unknown = refusal(&table(&format!("{figure}, causes = 'c'")));
    assert!(unknown.contains("unknown key"), "{unknown}");
    let variant = refusal(&table("figure = 'c.rtt_us.p50 ~ 3'"));
    assert!(variant.contains("no variant \"c\""), "{variant}");
}

#[test]
fn lines_about_runs_need_repeats() {
    let line = "[expect]\na = 'in all runs base.rtt_us.p50 < 1'\n";
    let one = refusal(&format!("{BASE}{line}"));
    assert!(
        one.contains("t.toml:6") && one.contains("set `repeats`"),
        "{one}"
    );
    let several = parse(&format!("repeats = 2\n{BASE}{line}"));
    assert_eq!(several.expectations.len(), 1);
    assert!(several.expectations[0].is_of_runs());
}

#[test]
fn a_world_may_have_expectations_of_its_own() {
    let text = format!(
        "{BASE}[expect]\na = 'base.rtt_us.p50 < 1'\nb = 'base.rtt_us.p50 < 2'\nc = 'base.rtt_us.p50 < 3'\n\
         [expect.sim]\na = 'base.rtt_us.p50 < 4'\nb = false\n[expect.lab]\nd = 'base.rtt_us.p50 < 5'\n"
    );
    let experiment = parse(&text);
    let of = |world| -> Vec<(&str, char)> {
        let lines = experiment.expectations.iter();
        lines
            .filter(|line| line.is_for(world))
            .map(|line| {
                (
                    line.name.as_str(),
                    line.expression.chars().last().unwrap_or(' '),
                )
            })
            .collect()
    };
    assert_eq!(of("lab"), [("a", '1'), ("b", '2'), ("c", '3'), ("d", '5')]);
    assert_eq!(of("sim"), [("c", '3'), ("a", '4')]);
    let wrong = refusal(&format!("{BASE}[expect.sim]\na = 'base.rtt_us.p51 < 4'\n"));
    assert!(wrong.contains("t.toml:6"), "{wrong}");
}
