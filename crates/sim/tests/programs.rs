//! Parallel programs: they end, take the time that they must, and give the same bytes on several
//! threads.

use std::{fs, path::Path};

use sluicegate_scenario::{
    results::ProgramResult,
    world::{Unobserved, World},
};
use sluicegate_sim::{Sim, Threads};
use support::experiment;

use crate::support;

const TREE: &str = "warmup = '0s'\nduration = '2s'\n[network]\ntopology = 'fat-tree'\n\
    children = [4, 2]\nparents = [1, 2]\nrate = '1Gbit'\n";

const LOSSLESS: &str = "warmup = '0s'\nduration = '2s'\n[network]\ntopology = 'fat-tree'\n\
    children = [4, 2]\nparents = [1, 2]\nrate = '10Gbit'\n[network.cee.pfc]\n";

/// The result of the program `p`, as JSON and as it is, and the notes of the run.
fn run_on(text: &str, threads: usize) -> (String, ProgramResult, Vec<String>) {
    let experiment = experiment(text);
    let mut sim = Sim {
        threads: Threads::Exactly(threads),
    };
    let variant = &experiment.variants[0];
    let outcome = sim.run(&experiment, variant, experiment.seed, &mut Unobserved);
    let outcome = outcome.unwrap_or_else(|error| panic!("{error:#}\n{text}"));
    let json = serde_json::to_string(&outcome.result).unwrap();
    let program = outcome.result.programs["p"].clone();
    (json, program, outcome.conditions.notes)
}

fn program(network: &str, keys: &str) -> ProgramResult {
    let text = format!("{network}[traffic.p]\nkind = 'program'\n{keys}");
    let (_, program, notes) = run_on(&text, 1);
    assert_eq!(program.ended, program.operations, "{keys}: {notes:?}");
    program
}

const COLLECTIVES: [&str; 10] = [
    "collective = 'all-reduce'\nsize = '400KB'\n",
    "collective = 'all-reduce'\nsize = '400KB'\nalgorithm = 'tree'\n",
    "collective = 'all-reduce'\nsize = '400KB'\nalgorithm = 'halving-doubling'\n",
    "collective = 'reduce-scatter'\nsize = '400KB'\n",
    "collective = 'all-gather'\nsize = '400KB'\nalgorithm = 'halving-doubling'\n",
    "collective = 'all-to-all'\nsize = '400KB'\n",
    "collective = 'broadcast'\nsize = '400KB'\n",
    "collective = 'barrier'\niterations = 5\ncompute = '10us'\n",
    "collective = 'halo'\ngrid = [4, 2]\nsize = '40KB'\niterations = 3\ncompute = '100us'\n",
    "training = { parameters = 1e7, layers = 4, hidden = 256, tokens = 64, data = 2, tensor = 2, \
     pipeline = 2, micro_batches = 3, flops = 1e12, scale = 0.05 }\n",
];

#[test]
fn every_program_ends_and_its_critical_path_explains_it() {
    for network in [TREE, LOSSLESS] {
        for keys in COLLECTIVES {
            for more in [
                "eager = '0B'\n",
                "eager = '1MB'\n",
                "transport = 'datagrams'\n",
            ] {
                if network == TREE && more.contains("datagrams") {
                    continue;
                }
                let program = program(network, &format!("{keys}{more}"));
                let path = program.critical_path.unwrap();
                let (took_s, on_path_s) = (
                    program.completion_s.unwrap(),
                    path.computing_s + path.network_s,
                );
                // The path begins when its first rank does, which is not always the first of
                // all: at most 6 % late in these.
                let late_s = took_s - on_path_s;
                assert!(
                    (-1e-9..0.1 * took_s).contains(&late_s),
                    "{keys}{more}: {took_s} {path:?}"
                );
            }
        }
    }
}

#[test]
fn threads_change_nothing() {
    for keys in [COLLECTIVES[0], COLLECTIVES[9]] {
        let text = format!("{TREE}[traffic.p]\nkind = 'program'\n{keys}placement = 'random'\n");
        assert_eq!(run_on(&text, 1).0, run_on(&text, 3).0, "{keys}");
    }
}

/// The headers of datagrams cross the borders of parts with them.
#[test]
fn threads_change_nothing_of_datagrams() {
    let network = LOSSLESS.replace(
        "[network.cee.pfc]",
        "delay = '500ns'\n[network.cee]\npfc = { pause = 'wire', xoff = '93KB' }",
    );
    for keys in [COLLECTIVES[5], COLLECTIVES[9]] {
        let text = format!(
            "{network}[traffic.p]\nkind = 'program'\n{keys}transport = 'datagrams'\neager = '1KB'\n"
        );
        let (alone, program, notes) = run_on(&text, 1);
        assert_eq!(program.ended, program.operations, "{keys}: {notes:?}");
        for threads in [2, 3] {
            let (several, _, notes) = run_on(&text, threads);
            assert!(alone == several, "{keys} on {threads} threads: {notes:?}");
        }
    }
}

/// The message that lacks bytes is named, and not the last one.
#[test]
fn a_lost_datagram_holds_up_its_message_and_those_behind_it() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lost.goal");
    let text = "num_ranks 2\nrank 0 {\na: send 1000000b to 1 tag 1\nb: send 1000000b to 1 tag 2\n\
        c: send 1000000b to 1 tag 3\nb requires a\nc requires b\n}\n\
        rank 1 {\na: recv 1000000b from 0 tag 1\nb: recv 1000000b from 0 tag 2\n\
        c: recv 1000000b from 0 tag 3\n}\n";
    fs::write(&path, text).unwrap();
    let text = format!(
        "{LOSSLESS}[traffic.p]\nkind = 'program'\ngoal = '{}'\ntransport = 'datagrams'\n\
         eager = '2MB'\n[[event]]\nat = '1200us'\nlink_down = ['e1-h2']\nfor = '20us'\n",
        path.display()
    );
    let (_, program, notes) = run_on(&text, 1);
    assert_eq!((program.ended, program.operations), (4, 6), "{notes:?}");
    let told = |text: &str| notes.iter().filter(|note| note.contains(text)).count();
    assert_eq!(
        told("a datagram from rank 0 was lost or overtaken"),
        1,
        "{notes:?}"
    );
    for tag in [2, 3] {
        let waits = format!("rank 1: receive of 1000000 B from rank 0, tag {tag} ");
        assert_eq!(told(&waits), 1, "{notes:?}");
    }
}

#[test]
fn a_critical_path_is_no_longer_than_the_run() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("begun.goal");
    // What waits for a begin does not wait for the rest; rank 1 awaits no message.
    let text = "num_ranks 2\nrank 0 {\na: calc 1000 cpu 0\nb: calc 2000 cpu 1\nb irequires a\n\
        s: send 8b to 1\ns requires b\n}\n\
        rank 1 {\nr: recv 8b from 0\nc: calc 500\nc irequires r\nd: calc 5000000\nd requires c\n}\n";
    fs::write(&path, text).unwrap();
    let program = program(TREE, &format!("goal = '{}'\n", path.display()));
    let critical = program.critical_path.unwrap();
    let on_path_s = critical.computing_s + critical.network_s;
    assert!((on_path_s - 5_000_500e-9).abs() < 1e-12, "{critical:?}");
    assert_eq!((critical.computations, critical.messages), (2, 0));
    assert!(on_path_s <= program.completion_s.unwrap());
}

#[test]
fn a_message_takes_its_bytes_of_the_link() {
    // 1 MB and its header over 1 Gb/s; a segment of 1448 bytes takes 1514 of the link.
    let least_s = 1_000_032.0 * 8.0 / 1e9 * 1514.0 / 1448.0;
    let network = TREE.replace("[4, 2]", "[2]").replace("[1, 2]", "[1]");
    for eager in ["2MB", "1KB"] {
        let keys = format!("collective = 'broadcast'\nsize = '1MB'\neager = '{eager}'\n");
        let took_s = program(&network, &keys).completion_s.unwrap();
        assert!(
            (least_s..least_s + 0.002).contains(&took_s),
            "{eager}: {took_s}"
        );
    }
    let keys = "collective = 'barrier'\niterations = 10\ncompute = '3ms'\n";
    let program = program(&network, keys);
    let took_s = program.completion_s.unwrap();
    assert!((0.030..0.032).contains(&took_s), "{took_s}");
    assert!((program.computing_s - 0.030).abs() < 1e-9);
    assert_eq!(program.phases_s.len(), 11, "{:?}", program.phases_s);
}

#[test]
fn a_program_that_can_go_no_further_ends_and_says_who_waits() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stuck.goal");
    // Which rank the first receive takes from decides; here nobody begins.
    let text = "num_ranks 2\nrank 0 {\na: recv 8b from -1\nb: send 8b to 1\nb requires a\n}\n\
        rank 1 {\na: recv 8b from 0\nb: send 8b to 0\nb requires a\n}\n";
    fs::write(&path, text).unwrap();
    let file = path.display();
    let text = format!("{TREE}[traffic.p]\nkind = 'program'\ngoal = '{file}'\n");
    let down = "[[event]]\nat = '1200ms'\nlink_down = ['a1-e1']\nfor = '100ms'\n";
    for (events, ends) in [("", "after 1.0"), (down, "after 1.3")] {
        let (_, program, notes) = run_on(&format!("{text}{events}"), 1);
        assert_eq!((program.ended, program.operations), (0, 4));
        assert_eq!(program.completion_s, None);
        let why = "when nothing could happen any more";
        let ended_as_said = notes[0].contains(ends) && notes[0].contains(why);
        assert!(ended_as_said, "{notes:?}");
        assert_eq!(
            notes[1..],
            [
                "4 of 4 operations have not ended",
                "rank 0: receive of 8 B from any rank, tag 0 at line 3 waits for any rank",
                "rank 1: receive of 8 B from rank 0, tag 0 at line 8 waits for rank 0",
            ]
            .map(|line| format!("base: program p (stuck.goal): {line}"))
        );
    }
}

/// Which message the first receive takes depends on times: here the one that the second names.
#[test]
fn a_message_that_nothing_takes_is_named() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("untaken.goal");
    let text = "num_ranks 3\nrank 0 {\na: recv 8b from -1 tag 3\nb: recv 8b from 1 tag 3\n\
        b requires a\n}\nrank 1 {\nsend 8b to 0 tag 3\n}\n\
        rank 2 {\na: calc 1000000\nb: send 8b to 0 tag 3\nb requires a\n}\n";
    fs::write(&path, text).unwrap();
    let file = path.display();
    let text = format!("{TREE}[traffic.p]\nkind = 'program'\ngoal = '{file}'\n");
    let (_, program, notes) = run_on(&text, 1);
    assert_eq!((program.ended, program.unreceived), (4, 1));
    assert_eq!(
        notes[1..],
        [
            "1 of 5 operations have not ended, one message has arrived that no receive took",
            "rank 0: receive of 8 B from rank 1, tag 3 at line 4 waits for rank 1",
            "rank 0 has not taken rank 2's send of 8 B to rank 0, tag 3 at line 12",
        ]
        .map(|line| format!("base: program p (untaken.goal): {line}"))
    );
}

/// A rank without messages has no connection to wait for.
#[test]
fn handshakes_are_no_part_of_a_program_unless_they_are_asked_for() {
    let star = "warmup = '0s'\nduration = '10ms'\n[network]\ntopology = 'star'\nhosts = 3\n\
        rate = '8Gbit'\n[sim]\njitter = '0us'\n";
    let with = |idle: &str, keys: &str, threads| {
        let ranks = 2 + idle.lines().count();
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("idle{ranks}.goal"));
        let text = format!(
            "num_ranks {ranks}\nrank 0 {{\na: send 8b to 1 tag 1\n}}\n\
            rank 1 {{\na: recv 8b from 0 tag 1\n}}\n{idle}"
        );
        fs::write(&path, text).unwrap();
        let text = format!(
            "{star}[traffic.p]\nkind = 'program'\ngoal = '{}'\n{keys}",
            path.display()
        );
        run_on(&text, threads).1.completion_s.expect("it ends")
    };
    let alone_s = with("", "", 1);
    for threads in [1, 2] {
        let beside_s = with("rank 2 { }\n", "", threads);
        assert_eq!(beside_s.to_bits(), alone_s.to_bits(), "{beside_s}");
    }
    let counted_s = with("rank 2 { }\n", "handshakes = 'counted'\n", 1);
    assert!(counted_s > 1.5 * alone_s, "{counted_s} against {alone_s}");
}
