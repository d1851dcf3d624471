//! The language of networks and of what goes wrong in them: what it means, and what it refuses.

use std::{path::Path, time::Duration};

use sluicegate_fabric::{Routing, SharedMemory};
use sluicegate_scenario::{
    experiment::{Action, HostId, ImpairmentChange, Node, Variant},
    file::{self, Options},
};

const BASE: &str = "[network]\ntopology = 'dumbbell'\n[traffic.bulk]\nkind = 'bulk'\n";

fn one(text: &str) -> Variant {
    let parsed = file::parse(Path::new("t.toml"), text, &Options::default());
    parsed.unwrap_or_else(|p| panic!("{p}")).variants.remove(0)
}

fn refusal(text: &str) -> String {
    match file::parse(Path::new("t.toml"), text, &Options::default()) {
        Ok(experiment) => panic!("accepted: {experiment:?}"),
        Err(problems) => problems.to_string(),
    }
}

const RING: &str = "[network]\ntopology = 'graph'\nrate = '1Gbit'\naccess_rate = '500Mbit'\nlinks = [\n\
    { a = 'h1', b = 'west' },\n{ a = 'west', b = 'north', rate = '10Gbit', delay = '3us' },\n\
    { a = 'north', b = 'east', queue = '50KB' },\n{ a = 'west', b = 'south' },\n{ a = 'south', b = 'east' },\n\
    { a = 'east', b = 'h2', bit_error_rate = 1e-6 },\n]\n";

#[test]
fn in_a_graph_whoever_has_one_link_is_a_host() {
    let variant = one(&format!(
        "{RING}[traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n"
    ));
    let hosts: Vec<_> = variant.hosts.iter().map(|host| &host.name).collect();
    assert_eq!(hosts, ["h1", "h2"]);
    let names: Vec<_> = variant.links.iter().map(|link| &link.name).collect();
    let expected = [
        "west-h1",
        "west-north",
        "north-east",
        "west-south",
        "south-east",
        "east-h2",
    ];
    assert_eq!(names, expected);
    let rates: Vec<u64> = variant
        .links
        .iter()
        .map(|link| link.rate_bps / 1_000_000)
        .collect();
    assert_eq!(rates, [500, 10_000, 1_000, 1_000, 1_000, 500]);
    assert_eq!(variant.links[1].delay, Some(Duration::from_micros(3)));
    assert_eq!(variant.links[2].queue_bytes, 50_000);
    assert!(matches!(
        (variant.links[5].a, variant.links[5].b),
        (Node::Switch(_), Node::Host(HostId(1)))
    ));
    assert!(variant.links[5].impairment.bit_error_rate > 0.0);
    assert!(variant.fails(5) && !variant.fails(4));
}

#[test]
fn a_graph_may_lie_in_a_file_beside_the_scenario() {
    let directory = std::env::temp_dir().join(format!("sluicegate-graph-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
    let scenario = "[network]\ntopology = 'graph'\nfile = 'net.toml'\n[traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n";
    write("s.toml", scenario);
    let load = || file::load(&directory.join("s.toml"), &Options::default());
    write(
        "net.toml",
        "links = [{ a = 's', b = 'h1' }, { a = 's', b = 'h2' }]\n",
    );
    let experiment = load().unwrap_or_else(|p| panic!("{p}"));
    assert_eq!(experiment.variants[0].links.len(), 2);
    let elsewhere = one(&experiment.as_run);
    assert_eq!(
        elsewhere, experiment.variants[0],
        "as run it needs no other file"
    );
    write(
        "net.toml",
        "\nlinks = [{ a = 's', b = 'h1' }, { a = 's', b = 'h2', rate = 3 }]\n",
    );
    let problems = load().unwrap_err().to_string();
    assert!(
        problems.contains("net.toml:2:") && problems.contains("has no unit"),
        "{problems}"
    );
    let dual = "links = [{ a = 's', b = 'h1' }, { a = 's', b = 'h2' }, { a = 's', b = 'h3' }, \
        { a = 'h3', b = 'h4' }]\n";
    write("net.toml", &format!("switches = ['h3']\n{dual}"));
    let experiment = load().unwrap_or_else(|p| panic!("{p}"));
    assert_eq!(experiment.variants[0].switches.len(), 2);
    assert_eq!(one(&experiment.as_run), experiment.variants[0]);
    write("net.toml", "link = []\n");
    assert!(
        load()
            .unwrap_err()
            .to_string()
            .contains("it has no `links`")
    );
    let both = scenario.replace("file =", "links = []\nfile =");
    write("s.toml", &both);
    let problems = load().unwrap_err().to_string();
    assert!(
        problems.contains("s.toml:3:9: network.links: `file` has links, too"),
        "{problems}"
    );
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_k_ary_n_tree_is_a_fat_tree_of_n_stages() {
    let tree = one(
        "[network]\ntopology = 'k-ary-n-tree'\nk = 4\nn = 3\nrouting = 'flow-hash'\n[traffic.b]\nkind = 'bulk'\npairs = 'stride:1'\n",
    );
    assert_eq!((tree.hosts.len(), tree.switches.len()), (64, 3 * 16));
    assert_eq!(tree.routing, Routing::FlowHash);
    let xgft = one(
        "[network]\ntopology = 'fat-tree'\nchildren = [4, 4, 4]\nparents = [1, 4, 4]\n[traffic.b]\nkind = 'bulk'\npairs = 'stride:1'\n",
    );
    assert_eq!(xgft.routing, Routing::DModK);
    let ends = |variant: &Variant| -> Vec<(Node, Node)> {
        variant.links.iter().map(|link| (link.a, link.b)).collect()
    };
    assert_eq!(ends(&tree), ends(&xgft));
}

#[test]
fn a_shared_memory_is_the_limit_of_its_queues_unless_they_have_their_own() {
    let text = |more: &str| {
        format!(
            "[network]\ntopology = 'dumbbell'\nshared_buffer = '4MB'\n{more}[traffic.b]\nkind = 'bulk'\n"
        )
    };
    let variant = one(&text("alpha = 0.5\n"));
    let expected = SharedMemory {
        limit_bytes: 4_000_000,
        alpha: Some(0.5),
    };
    assert_eq!(variant.shared_memory, Some(expected));
    assert_eq!(variant.links[0].queue_bytes, 4_000_000);
    assert_eq!(
        one(&text("queue = '1MB'\n")).links[0].queue_bytes,
        1_000_000
    );
}

#[test]
fn an_event_with_an_end_is_two() {
    let variant = one(&format!(
        "{BASE}[network.link.left-s1]\nbit_error_rate = 1e-9\n[tenant.r1]\nread_rate = '1Gbit'\n\
         [[event]]\nat = '3s'\nlink_down = 'left-right'\n\
         [[event]]\nat = '2s'\nfor = '1s'\nimpair = {{ links = 'left-s1', bit_error_rate = 1e-6 }}\n\
         [[event]]\nat = '4s'\nfor = '20s'\nslow_receiver = {{ tenants = 'r1', read_rate = '1Mbit' }}\n\
         [[event]]\nat = '1s'\nfor = '50ms'\npause_host = 's*'\n"
    ));
    let seconds: Vec<f64> = variant
        .events
        .iter()
        .map(|event| event.at.as_secs_f64())
        .collect();
    assert_eq!(seconds, [1.0, 1.05, 2.0, 3.0, 3.0, 4.0]);
    let action = |at: usize| &variant.events[at].action;
    assert_eq!(*action(0), Action::Pause(vec![HostId(0), HostId(1)]));
    assert_eq!(*action(1), Action::Resume(vec![HostId(0), HostId(1)]));
    let errors = |rate| Action::Impair {
        links: vec![1],
        change: ImpairmentChange {
            bit_error_rate: Some(rate),
            ..ImpairmentChange::default()
        },
    };
    assert_eq!(*action(2), errors(1e-6));
    // An end comes before a beginning at the same time, and makes things as they were.
    assert_eq!(*action(3), errors(1e-9));
    assert_eq!(*action(4), Action::LinkDown(vec![0]));
    let slow = Action::ReadRate {
        tenants: vec![2],
        rate_bps: Some(1_000_000),
    };
    assert_eq!(*action(5), slow, "it ends with the run");
    assert_eq!(variant.tenants[2].read_rate_bps, Some(1_000_000_000));
}

#[test]
fn what_no_world_can_do_is_refused_with_its_line() {
    let graph = |links: &str| {
        format!(
            "[network]\ntopology = 'graph'\nlinks = [{links}]\n[traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n"
        )
    };
    let event = |text: &str| format!("{BASE}[[event]]\nat = '3s'\n{text}\n");
    for (text, expected) in [
        (
            graph("{ a = 'h1', b = 's1' }, { a = 's1', b = 'h3' }, { a = 's2', b = 'h2' }, { a = 's2', b = 'h4' }"),
            "t.toml:4:1: traffic.b: no path leads from h1 to h2",
        ),
        (graph(""), "`links` is missing"),
        (graph("{ a = 'h1', b = 'h1' }"), "two different nodes"),
        (graph("{ a = 'h1' }"), "`b` is missing"),
        (
            graph("{ a = 'h1', b = 's' }, { a = 's', b = 'h2' }, { a = 's', b = 'x' }, { a = 'x', b = 's' }"),
            "there is a link x-s already",
        ),
        (
            graph("{ a = 'h1', b = 's' }, { a = 's', b = 'h2', rte = '1Gbit' }"),
            "did you mean \"rate\"?",
        ),
        (graph("{ a = 'H 1', b = 's' }"), "\"H 1\" is no name"),
        (
            "[network]\ntopology = 'k-ary-n-tree'\nk = 1000\nn = 4\n[traffic.b]\nkind = 'bulk'\npairs = 'stride:1'\n".to_owned(),
            "more than 1048576 nodes",
        ),
        (
            "[network]\ntopology = 'k-ary-n-tree'\nk = 4\n[traffic.b]\nkind = 'bulk'\n".to_owned(),
            "`n` is missing",
        ),
        (
            "[network]\ntopology = 'star'\nlinks = []\n[traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n".to_owned(),
            "network.links: does not belong to this topology",
        ),
        (
            "[network]\ntopology = 'dumbbell'\nalpha = 1\n[traffic.b]\nkind = 'bulk'\n".to_owned(),
            "needs a `shared_buffer`",
        ),
        (
            "[network]\ntopology = 'dumbbell'\nrouting = 'flowhash'\n[traffic.b]\nkind = 'bulk'\n".to_owned(),
            "did you mean \"flow-hash\"?",
        ),
        (event("link_down = 'left-rihgt'"), "did you mean \"left-right\"?"),
        (event("pause_host = 's1'"), "`for` is missing"),
        (event("pause_host = 's1'\nfor = '5'"), "has no unit"),
        (event("link_up = 'left-right'\nfor = '1s'"), "has no end"),
        (event("link_down = 'left-right'\nfor = '0s'"), "must not be zero"),
        (
            event("link_down = 'left-right'\nlink_up = 'left-right'"),
            "an event does one thing",
        ),
        (
            event("impair = { bit_eror_rate = 1e-6 }"),
            "did you mean \"bit_error_rate\"?",
        ),
        (event("impair = { duplicate_rate = 2 }"), "between 0 and 1"),
        (event("slow_receiver = { read_rate = '1Mbit' }"), "`tenants` is missing"),
        (event("slow_receiver = { tenants = 'r1' }"), "`read_rate` is missing"),
    ] {
        let found = refusal(&text);
        assert!(found.contains(expected), "{text}\n=> {found}");
    }
}

#[test]
fn a_hash_makes_a_bottleneck_only_where_every_path_leads() {
    let text = "[network]\ntopology = 'k-ary-n-tree'\nk = 2\nn = 2\nrouting = 'flow-hash'\n\
                [traffic.b]\nkind = 'bulk'\nfrom = ['h1', 'h2']\nto = 'h4'\n";
    let variant = one(text);
    let links = variant.links.iter().filter(|link| link.bottleneck);
    let names: Vec<_> = links.map(|link| &link.name).collect();
    assert_eq!(names, ["e2-h4"]);
}

#[test]
fn marks_that_no_queue_can_have_are_refused_where_they_stand() {
    let red = |marking: &str| {
        format!(
            "[network]\ntopology = 'dumbbell'\nmarking = {{ {marking} }}\n[traffic.b]\nkind = 'bulk'\n"
        )
    };
    let cases = [
        (
            "kind = 'red', weight = 0",
            "t.toml:3:36: network.marking.weight: with a weight of 0",
        ),
        (
            "kind = 'red', max = '5GB'",
            "t.toml:3:33: network.marking.max: must lie between 0B and 4294967295B, not 5GB; ",
        ),
        (
            "kind = 'threshold', k = '5GB'",
            "t.toml:3:37: network.marking.k: must lie between 0B and 4294967295B, not 5GB; ",
        ),
    ];
    for (marking, expected) in cases {
        let text = refusal(&red(marking));
        assert!(
            text.starts_with(expected) && text.lines().count() == 1,
            "{text}"
        );
    }
    one(&red("kind = 'red', weight = 0.000001"));
}

#[test]
fn what_would_mean_nothing_is_refused_where_it_stands() {
    let network = |keys: &str| {
        format!("[network]\ntopology = 'dumbbell'\n{keys}[traffic.b]\nkind = 'bulk'\n")
    };
    let cases = [
        (
            format!("{BASE}start = '12s'\n"),
            "t.toml:5:9: traffic.bulk.start: nothing would be sent: the run ends at 12s; times count",
        ),
        (
            format!("{BASE}[sim]\nlink_delay = '1000s'\n"),
            "t.toml:6:14: sim.link_delay: must lie between 0s and 10s, not 1000s; no network",
        ),
        (
            format!("warmup = '1s'\nduration = '1s'\n{BASE}[sim]\nreceive_delay = '2s'\n"),
            "t.toml:8:17: sim.receive_delay: nothing arrives before the run ends, after 2s",
        ),
        (
            format!("duration = '1s'\n{}", network("delay = '3s'\n")),
            "t.toml:4:9: network.delay: nothing arrives before",
        ),
        (
            network("link.left-right.delay = '11s'\n"),
            "t.toml:3:25: network.link.left-right.delay: must lie between 0s and 10s, not 11s; no network",
        ),
        (
            format!("{BASE}[tenant.r1]\nreceive_buffer = '1B'\n"),
            "t.toml:6:18: tenant.r1.receive_buffer: must be 1460B or more, not 1B; a full segment must fit",
        ),
    ];
    for (text, expected) in cases {
        let refused = refusal(&text);
        assert!(
            refused.starts_with(expected) && refused.lines().count() == 1,
            "{refused}\nagainst {expected}"
        );
    }
    one(&format!(
        "{BASE}start = '11s'\n[tenant.r1]\nreceive_buffer = '1460B'\n"
    ));
}

#[test]
fn a_tree_that_does_not_fit_is_refused_at_its_key() {
    let tree = |children: &str, parents: &str| {
        format!(
            "[network]\ntopology = 'fat-tree'\nchildren = {children}\nparents = {parents}\n\
            [traffic.b]\nkind = 'bulk'\npairs = 'stride:1'\n"
        )
    };
    let cases = [
        (
            tree("[4, 4]", "[1, 4, 4]"),
            "t.toml:4:11: network.parents: has 3 levels, but `children` has 2; for example",
        ),
        (
            tree("[4, 4]", "[2, 4]"),
            "t.toml:4:11: network.parents: a host has one link, and so one parent; begin with 1, for example",
        ),
        (
            tree("[4, 0]", "[1, 4]"),
            "t.toml:3:16: network.children[1]: must lie between 1 and 131070, not 0",
        ),
        (
            tree("[]", "[1]"),
            "t.toml:3:12: network.children: must not be empty",
        ),
        (
            tree("[1000, 200]", "[1, 1]"),
            "t.toml:3:12: network.children: 200000 hosts, above 131070; choose smaller counts",
        ),
    ];
    for (text, expected) in cases {
        let refused = refusal(&text);
        assert!(
            refused.starts_with(expected) && refused.lines().count() == 1,
            "{refused}\nagainst {expected}"
        );
    }
}

#[test]
fn a_wrong_name_in_a_graph_is_the_only_thing_wrong() {
    let graph = |links: &str| {
        format!(
            "[network]\ntopology = 'graph'\nlinks = [{links}]\n[network.link.s-h1]\nrate = '1Gbit'\n\
             [traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n[tenant.h2]\nprofile = 'linux'\n\
             [[event]]\nat = '3s'\nimpair = {{ links = ['s-h2'], bit_error_rate = 1e-6 }}\n"
        )
    };
    for (links, expected) in [
        // A name in many entries.
        (
            "{ a = 'h1', b = 'L', rate = '1Gbit' },\n{ a = 'h2', b = 'L', delay = '1us', queue = '1MB' },\n\
             { a = 's', b = 'L' }, { a = 's', b = 'h3' }",
            "t.toml:3:26: network.links[0].b: \"L\" is no name; use small letters, digits and `-`, \
             starting with a letter",
        ),
        // An end that is missing, of no kind of value that a name has, or the other end as well.
        (
            "{ a = 'h1', rate = '1Gbit', marking = { kind = 'none' } }",
            "network.links[0]: `b` is missing; a link joins two nodes, a and b",
        ),
        (
            "{ a = 'h1', b = 's' }, { a = 's', b = 2, bit_error_rate = 1e-9 }",
            "network.links[1].b: must be a string, not an integer",
        ),
        (
            "{ a = 'h1', b = 's' }, { a = 's', b = 's', rate = '1Gbit' }, { a = 's', b = 'h3' }",
            "network.links[1]: a link joins two different nodes",
        ),
    ] {
        let text = graph(links);
        let text = match links.contains('L') {
            true => text
                .replace("[network.link.s-h1]\nrate = '1Gbit'\n", "")
                .replace("s-h2", "L-*"),
            false => text,
        };
        let refused = refusal(&text);
        assert!(refused.contains(expected), "{refused}");
        assert_eq!(refused.lines().count(), 1, "{refused}");
    }
    // What an entry has of its own is read even so.
    let refused = refusal(&graph("{ a = 'h1', rte = '1Gbit' }"));
    assert_eq!(refused.lines().count(), 2, "{refused}");
    assert!(refused.contains("did you mean \"rate\"?"), "{refused}");
}

#[test]
fn a_wrong_count_of_hosts_is_the_only_thing_wrong() {
    let text = |shape: &str| {
        format!(
            "[network]\n{shape}\n[network.link.switch-h1]\nrate = '1Gbit'\n[tenant.h3]\nprofile = 'linux'\n\
             [traffic.p]\nkind = 'program'\ncollective = 'barrier'\nranks = 600\n\
             [traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n"
        )
    };
    for (shape, expected) in [
        (
            "topology = 'star'\nhosts = 131071",
            "hosts: must lie between 1 and 131070, not 131071",
        ),
        (
            "topology = 'star'\nhosts = '8'",
            "hosts: must be a whole number",
        ),
        (
            "topology = 'dumbbell'\npairs = 0",
            "pairs: must lie between 1 and 65535, not 0",
        ),
        (
            "topology = 'parking-lot'\nsenders = 1",
            "senders: must lie between 2 and 4096, not 1",
        ),
        (
            "topology = 'crossbar'\nhosts = 1",
            "hosts: must lie between 2 and 131070, not 1",
        ),
    ] {
        let refused = refusal(&text(shape));
        assert!(
            refused.contains(expected) && refused.lines().count() == 1,
            "{refused}"
        );
    }
}

#[test]
fn every_topology_takes_as_many_hosts_as_there_are_addresses() {
    for (shape, hosts, from, to) in [
        ("topology = 'star'\nhosts = 513", 513, "h1", "h513"),
        (
            "topology = 'star'\nhosts = 131070",
            131_070,
            "h1",
            "h131070",
        ),
        ("topology = 'dumbbell'\npairs = 2000", 4_000, "s1", "r2000"),
        (
            "topology = 'parking-lot'\nsenders = 1100",
            1_101,
            "s1",
            "r1",
        ),
        (
            "topology = 'fat-tree'\nchildren = [2000, 2]\nparents = [1, 1]\nexternal = 1500",
            5_500,
            "h1",
            "h4000",
        ),
        (
            "topology = 'k-ary-n-tree'\nk = 2000\nn = 1",
            2_000,
            "h1",
            "h2000",
        ),
        (
            "topology = 'k-ary-n-tree'\nk = 2\nn = 11",
            2_048,
            "h1",
            "h2048",
        ),
    ] {
        let variant = one(&format!(
            "[network]\n{shape}\n[traffic.b]\nkind = 'bulk'\nfrom = '{from}'\nto = '{to}'\n"
        ));
        assert_eq!(variant.hosts.len(), hosts, "{shape}");
    }
    let many = "[network]\ntopology = 'fat-tree'\nchildren = [65535, 2]\nparents = [1, 1]\nexternal = 1\n\
        [traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n";
    let refused = refusal(many);
    assert!(
        refused.contains("network.topology: the network has 131071 hosts"),
        "{refused}"
    );
    assert_eq!(refused.lines().count(), 1, "{refused}");
}

/// The time of the messages is proportional to the file: it took 18 s when it was not.
#[test]
fn many_wrong_names_are_told_in_time() {
    let mut links = String::new();
    for number in 0..20_000 {
        links += &format!("{{ a = 'H{number}', b = 's', rate = '1Gbit', delay = '1us' }},\n");
    }
    let begin = std::time::Instant::now();
    let refused = refusal(&format!(
        "[network]\ntopology = 'graph'\nlinks = [\n{links}]\n[traffic.b]\nkind = 'bulk'\n"
    ));
    let took = begin.elapsed();
    let names = refused.lines().filter(|line| line.contains("is no name"));
    assert_eq!(names.count(), 20_000);
    assert!(refused.contains("t.toml:20003:7: network.links[19999].a: \"H19999\" is no name"));
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_host_with_several_links_is_refused_unless_it_is_a_switch() {
    let graph = |names: [&str; 3], more: &str, traffic: &str| {
        let [h1, h2, h3] = names;
        format!(
            "[network]\ntopology = 'graph'\nlinks = [{{ a = '{h1}', b = 's' }}, {{ a = 's', b = '{h2}' }}, \
             {{ a = '{h2}', b = 't' }},\n{{ a = 't', b = 's' }}, {{ a = 't', b = '{h3}' }}]\n{more}\
             [traffic.b]\nkind = 'bulk'\n{traffic}"
        )
    };
    let from_h1 = "from = 'h1'\nto = 'h3'\n";
    let hosts = ["h1", "h2", "h3"];
    // Whether traffic names it or not.
    for traffic in [from_h1, "from = 'h1'\nto = 'h2'\n", "pairs = 'stride:1'\n"] {
        assert_eq!(
            refusal(&graph(hosts, "", traffic)),
            "t.toml:3:62: network.links[2].a: \"h2\" has several links and is named like the host h3, but only \
             switches have several: it would carry the traffic of others; give a host one link; if it is \
             a switch, add switches = [\"h2\"]"
        );
    }
    let racks = graph(
        ["rack1-h1", "rack1-h2", "rack2-h1"],
        "",
        "pairs = 'stride:1'\n",
    );
    assert!(refusal(&racks).contains("\"rack1-h2\" has several links"));
    // Declared, or named otherwise.
    let names = |text: &str| -> Vec<String> {
        one(text)
            .switches
            .into_iter()
            .map(|switch| switch.name)
            .collect()
    };
    let declared = "switches = ['h2']\n";
    assert_eq!(names(&graph(hosts, declared, from_h1)), ["s", "h2", "t"]);
    assert_eq!(
        names(&graph(["h1", "x2", "h3"], "", from_h1)),
        ["s", "x2", "t"]
    );
    // A switch without a number is not named like its hosts, and h2 is like h10.
    let numberless = graph(["h1", "h", "h3"], "", from_h1);
    assert_eq!(names(&numberless), ["s", "h", "t"]);
    let tens = graph(["h10", "h2", "h30"], "", "pairs = 'stride:1'\n");
    assert!(refusal(&tens).contains("\"h2\" has several links"));
    let refused = refusal(&graph(hosts, declared, "from = 'h1'\nto = 'h2'\n"));
    assert!(
        refused
            .starts_with("t.toml:9:6: traffic.b.to: \"h2\" is a switch; name a host; in a graph"),
        "{refused}"
    );
    // A declared switch may have one link, and what is declared exists.
    let leaf = graph(["h1", "x2", "h3"], "switches = ['x*']\n", from_h1);
    let leaf = leaf.replace("{ a = 'x2', b = 't' },", "");
    assert_eq!(names(&leaf), ["s", "x2", "t"]);
    let refused = refusal(&graph(hosts, "switches = ['h2', 'y']\n", from_h1));
    assert!(
        refused.contains("network.switches[1]: no node is named \"y\""),
        "{refused}"
    );
}

#[test]
fn a_file_that_is_no_text_says_so() {
    let path = std::env::temp_dir().join(format!("sluicegate-latin1-{}.toml", std::process::id()));
    std::fs::write(&path, b"title = 'caf\xe9'\n").unwrap();
    let refused = file::load(&path, &Options::default()).unwrap_err();
    std::fs::remove_file(&path).unwrap();
    assert!(
        refused
            .to_string()
            .ends_with("is no text in UTF-8; name a TOML file, or save this one as UTF-8")
    );
}

/// A fat tree of converged Ethernet with these schemes of priorities, and bulk flows in a priority.
fn with_routings(routings: &str, priority: u8) -> String {
    format!(
        "[network]\ntopology = 'k-ary-n-tree'\nk = 2\nn = 2\n[network.cee]\nroutings = [{routings}]\n\
         [traffic.b]\nkind = 'bulk'\nfrom = ['h1', 'h2']\nto = 'h4'\npriority = {priority}\n"
    )
}

#[test]
fn a_priority_has_the_scheme_that_is_its_own() {
    let variant = one(&with_routings(
        "{ priorities = [3, 4], routing = 'flow-hash' }",
        3,
    ));
    let schemes = [2, 3, 4, 5].map(|priority| variant.routing_of(priority));
    let (fixed, hash) = (Routing::DModK, Routing::FlowHash);
    assert_eq!(schemes, [fixed, hash, hash, fixed]);
    // Where both flows meet for sure depends on the scheme of their priority.
    let bottlenecks = |priority| -> Vec<String> {
        let text = with_routings("{ priorities = 3, routing = 'flow-hash' }", priority);
        let links = one(&text).links.into_iter();
        let chosen = links.filter(|link| link.bottleneck);
        chosen.map(|link| link.name).collect()
    };
    assert_eq!(bottlenecks(3), ["e2-h4"]);
    assert_ne!(bottlenecks(2), ["e2-h4"]);
}

#[test]
fn schemes_of_priorities_that_cannot_be_are_refused() {
    let spray = "{ priorities = 3, routing = 'spray' }";
    for (routings, expected) in [
        (
            format!("{spray}, {spray}"),
            "priority 3 has a scheme already",
        ),
        ("{ priorities = 3 }".to_owned(), "`routing` is missing"),
        (
            "{ priorities = [], routing = 'spray' }".to_owned(),
            "must not be empty",
        ),
        (
            "{ routing = 'spray' }".to_owned(),
            "`priorities` is missing",
        ),
        (
            "{ priorities = 3, routing = 'conga' }".to_owned(),
            "measures links of plain Ethernet",
        ),
        (
            "{ priorities = 3, routing = 'r3c2' }".to_owned(),
            "add [network.cee.qcn]",
        ),
        (
            "{ priorities = 3, routing = 'spray', flowlet_gap = '1ms' }".to_owned(),
            "needs `routing = \"flowlet\"`",
        ),
    ] {
        let found = refusal(&with_routings(&routings, 3));
        assert!(found.contains(expected), "{routings}\n=> {found}");
    }
}

#[test]
fn times_of_routing_that_say_nothing_are_refused() {
    let tree = "[network]\ntopology = 'k-ary-n-tree'\nk = 2\nn = 2\n";
    let floor = format!(
        "{tree}routing = 'r3c2'\npath_timer = '999ns'\n[network.cee]\nqcn = {{}}\n\
         [traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h4'\n"
    );
    let found = refusal(&floor);
    assert!(
        found.contains("path_timer") && found.contains("1us"),
        "{found}"
    );
    one(&floor.replace("999ns", "1us"));
    let alone = format!(
        "{tree}reroute_delay = '1ms'\n[traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h4'\n"
    );
    let found = refusal(&alone);
    assert!(found.contains("reroute_delay"), "{found}");
    one(&format!(
        "{alone}[[event]]\nat = '1s'\nlink_down = ['a1-e1']\n"
    ));
}

/// Without notifications in its priority such a scheme would be D-mod-k.
#[test]
fn a_scheme_that_reacts_to_notifications_needs_those_of_its_priority() {
    let of_network = |scheme: &str, priorities: &str| {
        with_routings("", 2)
            .replace(
                "routings = []\n",
                &format!("qcn = {{ priorities = {priorities} }}\n"),
            )
            .replace("n = 2\n", &format!("n = 2\nrouting = '{scheme}'\n"))
    };
    for scheme in ["r2c2", "r3c2", "switch-adaptive"] {
        let found = refusal(&of_network(scheme, "[0, 3]"));
        assert!(found.starts_with("t.toml:5:11: network.routing"), "{found}");
        for told in [
            "reacts to notifications, and priority 2, that of traffic b, has none",
            "add 2 to `priorities` of [network.cee.qcn]",
        ] {
            assert!(found.contains(told), "{found}");
        }
        one(&of_network(scheme, "[2, 3]"));
    }
    one(&of_network("d-mod-k", "[0, 3]"));
    let own = "{ priorities = 3, routing = 'spray' }, { priorities = 2, routing = 'r3c2' }";
    let of_priority = |priorities: &str| {
        let qcn = format!("[network.cee.qcn]\npriorities = {priorities}\n[traffic.b]");
        with_routings(own, 2).replace("[traffic.b]", &qcn)
    };
    let found = refusal(&of_priority("3"));
    assert!(found.contains("priority 2, that of traffic b"), "{found}");
    one(&of_priority("2"));
}

/// A key that its scheme alone reads says nothing beside another.
#[test]
fn keys_of_a_scheme_need_it() {
    let with = |routing: &str, key: &str| {
        format!(
            "[network]\ntopology = 'k-ary-n-tree'\nk = 2\nn = 2\nrouting = '{routing}'\n{key}\n\
             [network.cee]\nqcn = {{}}\n[traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h4'\n"
        )
    };
    for (key, scheme) in [
        ("flowlet_gap = '1ms'", "flowlet"),
        ("rehash_rounds = 6", "plb"),
        ("idle_rehash_rounds = 0", "plb"),
        ("split = 'fractional'", "switch-adaptive"),
        ("congestion_timeout = '1ms'", "switch-adaptive"),
        ("select_path = 'random'", "r2c2"),
        ("drop_path = 'newest'", "r3c2"),
        ("path_timer = '1ms'", "r3c2"),
        ("limit_paths = 'exhausted'", "r3c2"),
    ] {
        let name = key.split(' ').next().unwrap();
        let found = refusal(&with("spray", key));
        assert!(
            found.contains(&format!("network.{name}: needs `routing = ")),
            "{found}"
        );
        one(&with(scheme, key));
    }
    for (scheme, key, bounds) in [
        ("flowlet", "flowlet_gap = '0s'", "between 1ns and 10s"),
        (
            "switch-adaptive",
            "congestion_timeout = '11s'",
            "between 1ns and 10s",
        ),
        ("plb", "rehash_rounds = 0", "between 1 and 31"),
        ("plb", "idle_rehash_rounds = 32", "between 0 and 31"),
    ] {
        let found = refusal(&with(scheme, key));
        assert!(found.contains(bounds), "{found}");
    }
}

/// Traffic may have a scheme of its own where switches hash, and no scheme of switches.
#[test]
fn a_scheme_of_traffic_needs_switches_that_hash() {
    let with = |network: &str, own: &str| {
        format!(
            "[network]\ntopology = 'k-ary-n-tree'\nk = 2\nn = 2\nrouting = '{network}'\n\
             [traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h4'\nrouting = '{own}'\n"
        )
    };
    for network in ["d-mod-k", "drill", "flowlet", "conga", "random"] {
        let found = refusal(&with(network, "spray"));
        assert!(
            found.contains("needs switches that hash path values"),
            "{network}: {found}"
        );
    }
    for own in ["drill", "random", "r2c2"] {
        let found = refusal(&with("flow-hash", own));
        assert!(found.contains("is not known here"), "{own}: {found}");
    }
    one(&with("plb", "reps"));
}

#[test]
fn bounds_of_mtu_and_rate_are_those_of_their_networks() {
    let with = |keys: &str| {
        format!(
            "[network]\ntopology = 'star'\n{keys}\n[traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n"
        )
    };
    for keys in [
        "mtu = 88",
        "mtu = 1000",
        "mtu = 16000",
        "ip = 6\nmtu = 1280",
    ] {
        let variant = one(&with(keys));
        assert!(keys.ends_with(&variant.mtu_bytes.to_string()), "{keys}");
    }
    for rate in ["100Kbit", "1600Gbit", "2400Gbit", "10Tbit"] {
        one(&with(&format!("rate = '{rate}'")));
    }
    for (keys, expected) in [
        (
            "mtu = 87",
            "t.toml:3:7: network.mtu: must lie between 88 and 16000, not 87; over IPv4: all headers and \
             options take 80 of 88",
        ),
        (
            "ip = 6\nmtu = 1279",
            "t.toml:4:7: network.mtu: must lie between 1280 and 16000, not 1279; over IPv6, whose links \
             carry so much (ip = 4: from 88)",
        ),
        ("mtu = -5000000000", "between 88 and 16000, not -5000000000"),
        (
            "mtu = '9KB'",
            "network.mtu: must be a whole number, not a string",
        ),
        (
            "rate = '10001Gbit'",
            "t.toml:3:8: network.rate: must lie between 100Kbit and 10Tbit, not 10001Gbit; a frame of \
             16000 bytes takes 1.3 s",
        ),
        (
            "rate = '99Kbit'",
            "must lie between 100Kbit and 10Tbit, not 99Kbit",
        ),
    ] {
        let refused = refusal(&with(keys));
        assert!(refused.contains(expected), "{refused}\nagainst {expected}");
    }
}
