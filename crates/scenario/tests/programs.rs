//! `kind = "program"` and the crossbar: what is read, and what is refused.

use std::{fs, path::PathBuf};

use sluicegate_scenario::{
    experiment::{TrafficKind, Variant},
    file,
};

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

fn parse(text: &str) -> Result<Variant, String> {
    let path = directory().join("t.toml");
    let parsed = file::parse(&path, text, &file::Options::default());
    let parsed = parsed.map(|mut experiment| experiment.variants.remove(0));
    parsed.map_err(|problems| problems.to_string())
}

const STAR: &str = "[network]\ntopology = 'star'\nhosts = 6\n[traffic.p]\nkind = 'program'\n";

fn refusal(keys: &str) -> String {
    parse(&format!("{STAR}{keys}")).unwrap_err()
}

fn tenants(keys: &str) -> Vec<usize> {
    let variant = parse(&format!("{STAR}{keys}")).unwrap_or_else(|problems| panic!("{problems}"));
    match &variant.traffic[0].kind {
        TrafficKind::Program { tenants, .. } => tenants.clone(),
        other => panic!("{other:?}"),
    }
}

fn write(name: &str, content: &[u8]) {
    fs::write(directory().join(name), content).unwrap();
}

#[test]
fn ranks_are_placed() {
    let barrier = "collective = 'barrier'\n";
    assert_eq!(tenants(barrier), [0, 1, 2, 3, 4, 5]);
    assert_eq!(
        tenants(&format!("{barrier}on = ['h3', 'h5', 'h6']\nranks = 2\n")),
        [2, 4]
    );
    let random = tenants(&format!("{barrier}placement = 'random'\n"));
    assert_eq!(random, tenants(&format!("{barrier}placement = 'random'\n")));
    let mut sorted = random.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [0, 1, 2, 3, 4, 5]);
    write("places.txt", b"# by hand\nh4\n\nh1\nh6\n");
    assert_eq!(
        tenants(&format!("{barrier}ranks = 3\nplacement = 'places.txt'\n")),
        [3, 0, 5]
    );
    let found = refusal(&format!("{barrier}ranks = 4\nplacement = 'places.txt'\n"));
    assert!(found.contains("places 3 of 4 ranks"), "{found}");
    write("twice.txt", b"h4\nh4\n");
    let found = refusal(&format!("{barrier}ranks = 2\nplacement = 'twice.txt'\n"));
    assert!(
        found.contains("twice.txt:2: \"h4\" has a rank already"),
        "{found}"
    );
}

#[test]
fn faults_of_goal_files_have_their_place() {
    write("label.goal", b"num_ranks 1\nrank 0 {\na requires b\n}\n");
    let found = refusal("goal = 'label.goal'\n");
    assert!(
        found.contains("label.goal:3: rank 0: no operation is labelled `a`"),
        "{found}"
    );
    write("cut.goal", &[0x7f, 0x10, 0, 0, 0, 0, 0, 0, 2, 0]);
    let found = refusal("goal = 'cut.goal'\n");
    assert!(
        found.contains("cut.goal:offset 8: the file ends here"),
        "{found}"
    );
    write(
        "dead.goal",
        b"num_ranks 2\nrank 0 {\na: recv 8b from 1\nb: send 8b to 1\nb requires a\n}\n\
        rank 1 {\na: recv 8b from 0\nb: send 8b to 0\nb requires a\n}\n",
    );
    let found = refusal("goal = 'dead.goal'\n");
    assert!(
        found.contains(
            "dead.goal: rank 0: 4 operations wait for ever: rank 0: receive of 8 B from rank 1, tag 0 \
             at line 3 waits for rank 1: receive of 8 B from rank 0, tag 0 at line 8 waits for rank 0"
        ),
        "{found}"
    );
    write(
        "small.goal",
        b"num_ranks 2\nrank 0 {\nsend 100b to 1\n}\nrank 1 {\nrecv 99b from 0\n}\n",
    );
    let found = refusal("goal = 'small.goal'\n");
    assert!(
        found.contains(
            "small.goal: rank 1: receive of 99 B from rank 0, tag 0 at line 6 is smaller than its \
             message: rank 0: send of 100 B to rank 1, tag 0 at line 3"
        ),
        "{found}"
    );
    write(
        "two.goal",
        b"num_ranks 2\nrank 0 {\nsend 9b to 1\n}\nrank 1 {\nrecv 9b from 0\n}\n",
    );
    assert_eq!(tenants("goal = 'two.goal'\nranks = 2\n"), [0, 1]);
    let found = refusal("goal = 'two.goal'\nranks = 3\n");
    assert!(
        found.contains("the file has 2 ranks, and `ranks` is 3"),
        "{found}"
    );
    let found = refusal("goal = 'none.goal'\n");
    assert!(found.contains("none.goal cannot be read"), "{found}");
}

#[test]
fn what_a_program_cannot_be_is_refused() {
    for (keys, expected) in [
        ("", "what does the program do?"),
        (
            "collective = 'barrier'\ngoal = 'x'\n",
            "what does the program do?",
        ),
        (
            "collective = 'barrier'\nsize = '1KB'\n",
            "does not belong to a barrier",
        ),
        ("collective = 'all-reduce'\n", "size"),
        (
            "collective = 'barrier'\nranks = 7\n",
            "the program has 7 ranks, and 6 tenants",
        ),
        (
            "collective = 'all-gather'\nsize = '1KB'\nalgorithm = 'halving-doubling'\n",
            "needs 2, 4, 8, … members, not 6",
        ),
        (
            "collective = 'halo'\nsize = '1KB'\ngrid = [2, 2]\n",
            "has 4 places for 6 ranks",
        ),
        (
            "collective = 'barrier'\ntransport = 'datagrams'\n",
            "need a lossless network",
        ),
        (
            "collective = 'barrier'\nfrom = 'h1'\n",
            "does not belong to a program",
        ),
        (
            "training = { parameters = 1e6, layers = 3, hidden = 8, tokens = 8, flops = 1e12, pipeline = 2 }\n",
            "3 layers cannot be shared out evenly among 2 stages",
        ),
        (
            "nas = { kernel = 'cg', class = 'a' }\nranks = 6\n",
            "it runs on 2, 4, 8, … processors, not on 6",
        ),
        (
            "nas = { kernel = 'is', class = 'a' }\nranks = 4\nsize = '1KB'\n",
            "does not belong to a skeleton",
        ),
        (
            "collective = 'all-reduce'\nsize = '1MB'\nranks = 60000\n",
            "the program has 60000 ranks, and 6 tenants",
        ),
        (
            "collective = 'all-reduce'\nsize = '1MB'\niterations = 1000000\nranks = 6\n",
            "operations, above 100000000",
        ),
        (
            "training = { parameters = 70e9, layers = 8000, hidden = 8192, tokens = 4096, tensor = 3, \
             pipeline = 2, micro_batches = 50000, flops = 400e12 }\n",
            "operations, above 100000000",
        ),
        (
            "goal = 'two.goal'\nsize = '1KB'\n",
            "size: does not belong to a GOAL file",
        ),
        (
            "training = { parameters = 1e6, layers = 3, hidden = 8, tokens = 8, flops = 1e12 }\niterations = 2\n",
            "iterations: does not belong to a training step",
        ),
        (
            "training = { parameters = 1e6, layers = 3, hidden = 8, tokens = 8, flops = 1e12, data = 2 }\nranks = 3\n",
            "3 ranks, but data × tensor × pipeline is 2",
        ),
        (
            "training = { parameters = 1e6, layers = 3, hidden = 8, tokens = 8, flops = 1e12, data = 65536, tensor = 2 }\n",
            "131072 ranks, above 65536",
        ),
        (
            "collective = 'halo'\nsize = '1KB'\ngrid = [6]\nalgorithm = 'ring'\n",
            "algorithm: does not belong to a halo exchange",
        ),
        (
            "collective = 'all-reduce'\nsize = '1KB'\ngrid = [6]\n",
            "grid: belongs to a halo exchange",
        ),
        (
            "collective = 'all-reduce'\nsize = '1KB'\ndistance = 2\n",
            "distance: belongs to a shift",
        ),
        (
            "collective = 'shift'\nsize = '1KB'\ndistance = 6\n",
            "distance: must lie between 1 and 5",
        ),
        (
            "collective = 'barrier'\neager = '1001GB'\n",
            "eager: must lie between 0B and 1000GB, not 1001GB; sums",
        ),
        (
            "collective = 'broadcast'\nsize = '1KB'\nalgorithm = 'ring'\n",
            "broadcast knows tree",
        ),
        (
            "collective = 'barrier'\ndeadline = '1s'\n",
            "belongs to traffic with completion times",
        ),
    ] {
        let found = refusal(keys);
        assert!(found.contains(expected), "{keys}: {found}");
    }
}

#[test]
fn a_crossbar_has_the_hosts_of_a_tree() {
    let hosts = |keys: &str| {
        let text = format!(
            "[network]\ntopology = 'crossbar'\n{keys}[traffic.p]\nkind = 'program'\ncollective = 'barrier'\n"
        );
        parse(&text).map(|variant| (variant.hosts.len(), variant.switches.len()))
    };
    assert_eq!(hosts("children = [4, 3]\nparents = [1, 2]\n"), Ok((12, 1)));
    assert_eq!(hosts("k = 3\nn = 2\n"), Ok((9, 1)));
    assert_eq!(hosts("hosts = 5\n"), Ok((5, 1)));
    for wrong in ["", "k = 3\n", "hosts = 5\nk = 3\nn = 2\n"] {
        let found = hosts(wrong).unwrap_err();
        assert!(found.contains("how many hosts"), "{wrong}: {found}");
    }
}

#[test]
fn a_tenant_is_named_once() {
    let barrier = "collective = 'barrier'\n";
    for on in ["['h1', 'h2', 'h1']", "['h*', 'h1']"] {
        let found = refusal(&format!("{barrier}on = {on}\n"));
        assert!(found.contains("\"h1\" is here already"), "{found}");
    }
    // The first rank on the last host.
    let placed = tenants(&format!("{barrier}on = ['h6', 'h*']\n"));
    assert_eq!(placed, [5, 0, 1, 2, 3, 4]);
}

#[test]
fn faults_of_a_file_stand_at_its_key_with_what_to_do() {
    for (name, first, advice) in [
        ("other-rank.goal", "send 8b to 7", "name another rank"),
        (
            "partner.goal",
            "send 8b to 1",
            "sends and receives match by ranks and tags",
        ),
        (
            "circle.goal",
            "a: calc 1\na requires a",
            "leave out one of these requirements",
        ),
    ] {
        let text = format!("num_ranks 2\nrank 0 {{\n{first}\n}}\nrank 1 {{\n}}\n");
        write(name, text.as_bytes());
        let found = refusal(&format!("goal = '{name}'\n"));
        assert!(found.contains("t.toml:6:8: traffic.p.goal: "), "{found}");
        assert!(found.contains(&format!("{name}: rank 0: ")), "{found}");
        assert!(found.contains(advice), "{found}");
    }
}

#[test]
fn an_empty_list_of_tenants_is_refused() {
    let found = refusal("collective = 'barrier'\non = []\n");
    assert!(found.contains("traffic.p.on: must not be empty"), "{found}");
    let bulk = "[network]\ntopology = 'star'\nhosts = 3\n[traffic.b]\nkind = 'bulk'\n";
    for (keys, key) in [
        ("from = []\nto = 'h1'", "from"),
        ("from = 'h2'\nto = []", "to"),
    ] {
        let found = parse(&format!("{bulk}{keys}\n")).unwrap_err();
        let expected = format!("traffic.b.{key}: must not be empty");
        assert!(found.contains(&expected), "{found}");
    }
}

/// What else the program has is not looked at, and no reason to complain.
#[test]
fn too_many_ranks_are_the_only_complaint() {
    let found = refusal("collective = 'halo'\nsize = '1MB'\ngrid = [7]\nranks = 7\n");
    assert!(
        found.contains("the program has 7 ranks, and 6 tenants"),
        "{found}"
    );
    assert_eq!(found.lines().count(), 1, "{found}");
}

#[test]
fn a_value_has_a_byte() {
    let found = refusal(
        "training = { parameters = 1e6, layers = 2, hidden = 8, tokens = 8, flops = 1e9, \
         value = '0B' }\n",
    );
    assert!(
        found.contains("traffic.p.training.value: must not be 0"),
        "{found}"
    );
    assert_eq!(found.lines().count(), 1, "{found}");
}
