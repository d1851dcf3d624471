//! Scenarios with everything that may go wrong in them, through the same door as the command: each
//! ends, accounts for every packet (the run itself says so), and gives the same bytes again, on
//! several threads as on one.

use proptest::prelude::*;
use sluicegate_scenario::{
    experiment::Experiment,
    world::{Outcome, Unobserved, World},
};
use sluicegate_sim::{Sim, Threads};
use support::experiment;

use crate::support;

fn sim(threads: usize) -> Sim {
    Sim {
        threads: Threads::Exactly(threads),
    }
}

fn results(experiment: &Experiment, threads: usize) -> String {
    let variant = &experiment.variants[0];
    let outcome = sim(threads).run(experiment, variant, experiment.seed, &mut Unobserved);
    let outcome = outcome.unwrap_or_else(|error| panic!("{error:#}\n{}", experiment.as_run));
    serde_json::to_string(&outcome.result).unwrap()
}

/// A topology with its keys, the hosts that it has, and the name of one of its links.
fn networks() -> impl Strategy<Value = (&'static str, usize, &'static str)> {
    prop::sample::select(vec![
        ("topology = 'star'\nhosts = 5\n", 5, "switch-h1"),
        ("topology = 'k-ary-n-tree'\nk = 2\nn = 3\n", 8, "a1-e1"),
        (
            "topology = 'fat-tree'\nchildren = [3, 2]\nparents = [1, 2]\n",
            6,
            "a2-e2",
        ),
        (
            "topology = 'graph'\nlinks = [{ a = 'h1', b = 'x' }, { a = 'h2', b = 'x' }, { a = 'x', b = 'y' }, \
             { a = 'x', b = 'z' }, { a = 'z', b = 'y' }, { a = 'y', b = 'h3' }, { a = 'z', b = 'h4', rate = '20Mbit' }]\n",
            4,
            "x-y",
        ),
    ])
}

fn events(link: &'static str) -> impl Strategy<Value = String> {
    let event = prop::sample::select(vec![
        format!("link_down = ['{link}']"),
        "pause_host = ['h1', 'h3']".to_owned(),
        format!("impair = {{ links = ['{link}'], bit_error_rate = 1e-6, reorder_rate = 0.02 }}"),
        "impair = { duplicate_rate = 0.02, reorder_rate = 0.01, reorder_delay = '300us' }"
            .to_owned(),
        "slow_receiver = { tenants = ['h2'], read_rate = '2Mbit' }".to_owned(),
    ]);
    let event = (event, 0u32..140, 1u32..120).prop_map(|(what, at, lasts)| {
        format!("[[event]]\nat = '{at}ms'\nfor = '{lasts}ms'\n{what}\n")
    });
    prop::collection::vec(event, 0..5).prop_map(|events| events.concat())
}

fn traffic() -> impl Strategy<Value = String> {
    let kinds = prop::sample::subsequence(
        vec![
            "[traffic.bulk]\nkind = 'bulk'\npairs = 'stride:1'\n",
            "[traffic.ask]\nkind = 'ping-pong'\nfrom = 'h2'\nto = 'h1'\n",
            "[traffic.all]\nkind = 'incast'\nfrom = ['h2', 'h3', 'h4']\nto = 'h1'\nbytes = '20KB'\n",
            "[traffic.mice]\nkind = 'messages'\npairs = 'stride:2'\nbytes = '5KB'\ninterval = '3ms'\n",
            "[traffic.mix]\nkind = 'shuffle'\nfrom = ['h1', 'h2']\nto = ['h3', 'h4']\nbytes = '30KB'\n",
            "[traffic.web]\nkind = 'trace'\nfrom = ['h1', 'h2']\nto = ['h3', 'h4']\nsizes = 'websearch'\nmax_bytes = '100KB'\nload = '10Mbit'\n",
        ],
        1..=4,
    );
    kinds.prop_map(|kinds| kinds.concat())
}

fn scenarios() -> impl Strategy<Value = String> {
    let memory = prop::sample::select(vec![
        "queue = '60KB'\n",
        "shared_buffer = '90KB'\nalpha = 0.5\n",
        "marking = { kind = 'threshold', k = '20KB' }\n",
        "marking = { kind = 'red' }\nshared_buffer = '300KB'\n",
    ]);
    let routing = prop::sample::select(vec!["d-mod-k", "flow-hash"]);
    let enforced = prop::sample::select(vec!["none", "all"]);
    networks().prop_flat_map(move |(network, _, link)| {
        let parts = (memory.clone(), routing.clone(), enforced.clone());
        // Threads meet once in a link's delay, which takes long where CPUs are shared.
        (parts, traffic(), events(link), 1u64..1000, 150u32..600).prop_map(
            move |((memory, routing, enforced), traffic, events, seed, delay)| {
                format!(
                    "seed = {seed}\nwarmup = '40ms'\nduration = '120ms'\n[network]\nrate = '80Mbit'\nrouting = '{routing}'\n\
                     {network}{memory}[enforcement]\nhosts = '{enforced}'\n[sim]\nlink_delay = '{delay}us'\n{traffic}{events}"
                )
            },
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_run_ends_and_can_be_repeated(text in scenarios()) {
        let experiment = experiment(&text);
        sim(1).check(&experiment).unwrap();
        let alone = results(&experiment, 1);
        prop_assert_eq!(&alone, &results(&experiment, 1));
        prop_assert_eq!(&alone, &results(&experiment, 2), "on two threads");
    }
}

#[test]
fn what_a_link_loses_is_told_by_cause_at_both_its_ends() {
    let text = "warmup = '10ms'\nduration = '200ms'\n[network]\ntopology = 'star'\nrate = '100Mbit'\n\
                [traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n\
                [[event]]\nat = '50ms'\nfor = '20ms'\nlink_down = ['switch-h1']\n\
                [[event]]\nat = '100ms'\nimpair = { links = ['switch-h2'], bit_error_rate = 1e-5 }\n";
    let experiment = experiment(text);
    let outcome = sim(1).run(&experiment, &experiment.variants[0], 1, &mut Unobserved);
    let Outcome { result, conditions } = outcome.unwrap();
    let drops = |id: &str, cause: &str| {
        let link = result.links.iter().find(|link| link.id == id);
        link.unwrap_or_else(|| panic!("no {id}"))
            .drops
            .get(cause)
            .copied()
    };
    assert!(drops("h1>switch", "down") > Some(0));
    assert!(drops("switch>h2", "corrupt") > Some(0));
    assert_eq!(drops("switch>h2", "down"), None, "nothing of it failed");
    assert_eq!(conditions.outside["tenant_errors"], 0, "everybody recovers");
    assert_eq!(conditions.notes, [""; 0]);
}

#[test]
fn a_connection_that_fails_is_an_error_of_the_run() {
    // Linux gives up after 15 retransmissions, a quarter of an hour.
    let text = "warmup = '1s'\nduration = '1400s'\n[network]\ntopology = 'star'\nhosts = 3\nrate = '10Mbit'\n\
        [traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n\
        [traffic.m]\nkind = 'messages'\nfrom = 'h1'\nto = 'h3'\nbytes = '10KB'\ninterval = '1s'\ndeadline = '1s'\n\
        [traffic.late]\nkind = 'bulk'\nfrom = 'h3'\nto = 'h2'\nstart = '1390s'\n\
        [[event]]\nat = '10s'\nlink_down = ['switch-h2']\n[[event]]\nat = '20s'\nlink_down = ['switch-h1']\n";
    let experiment = experiment(text);
    let outcome = sim(1).run(&experiment, &experiment.variants[0], 1, &mut Unobserved);
    let Outcome { result, conditions } = outcome.unwrap();
    assert_eq!(
        conditions.notes,
        [
            "tenant h1: connection to 10.0.3.1:10001: Connection timed out",
            "tenant h1: connection to 10.0.2.1:10000: Connection timed out",
            "tenant h3: no connection to 10.0.2.1:10002: no answer",
        ]
    );
    assert_eq!(conditions.outside["tenant_errors"], 3);
    // 19 messages or so before the link fails, one a second, all of which miss their deadline,
    // after it.
    let fct = &result.fct_us["m"];
    let missed = fct.missed.unwrap() * 1400.0;
    assert!(
        fct.count < 25 && missed > 1375.0,
        "{missed} missed: {fct:?}"
    );
}
