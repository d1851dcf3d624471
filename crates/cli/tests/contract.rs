//! The contract of a world: every word of the scenario language is accepted, or refused with its
//! place and advice, in the same way in every world. Needs no privileges.

mod cases;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use cases::{CASES, NEVER};
use sluicegate_config::document::{self, Node, Value};
use sluicegate_core::cc::{Algorithm, Needs, Stack};
use sluicegate_fabric::Routing;
use sluicegate_lab::Lab;
use sluicegate_scenario::{
    file::{self, Options},
    world::{Problem, Problems, World},
};
use sluicegate_sim::Sim;

/// Tables whose keys are names, which the scenario chooses.
const NAMED: [&str; 7] = [
    "expect",
    "interval",
    "network.link",
    "published",
    "tenant",
    "traffic",
    "traffic.NAME.classes",
];

const WORLDS: [&str; 2] = ["sim", "lab"];

/// A word of the language: the dotted path of a key, with NAME for what a scenario names, or `KEY =
/// "WORD"`.
type Words = BTreeSet<String>;

/// The files that cases name, in a directory in which the cases stand. They are written once: tests
/// run beside one another.
fn directory() -> &'static Path {
    static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(write_files);
    &DIRECTORY
}

fn write_files() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("contract");
    fs::create_dir_all(&directory).expect("a directory for the test");
    for (name, content) in [
        ("times.csv", "ns,cdf\n0,0\n1000000,1\n"),
        ("policy.toml", "[[rule]]\nmode = \"observe\"\n"),
        (
            "program.goal",
            "num_ranks 2\nrank 0 {\nsend 8b to 1\n}\nrank 1 {\nrecv 8b from 0\n}\n",
        ),
        ("ranks.txt", "r1\ns1\n"),
        ("base.toml", "[traffic.b]\nkind = \"bulk\"\n"),
        (
            "graph.toml",
            "links = [{ a = \"h1\", b = \"s1\" }, { a = \"h2\", b = \"s1\" }]\n",
        ),
    ] {
        fs::write(directory.join(name), content).expect("a file of the test");
    }
    directory
}

/// A path with NAME in place of what the scenario names, as if it stood in the file itself: a
/// variant and the short form know the same keys.
fn general(path: &str) -> String {
    let (path, value) = path
        .split_once(" = ")
        .map_or((path, ""), |(path, value)| (path, value));
    let mut segments: Vec<&str> = path.split('.').collect();
    while let Some(layer) = segments
        .first()
        .filter(|first| segments.len() > 1 && ["variant", "short"].contains(first))
    {
        let names = usize::from(*layer == "variant");
        segments.drain(..=names);
        if segments.is_empty() {
            return "variant".to_owned();
        }
    }
    let mut whole = String::new();
    for segment in segments {
        let name = segment.split('[').next().unwrap_or(segment);
        let list = if segment.contains('[') { "[]" } else { "" };
        let known = if NAMED.contains(&whole.as_str()) {
            "NAME"
        } else {
            name
        };
        if !whole.is_empty() {
            whole.push('.');
        }
        whole.push_str(known);
        whole.push_str(list);
    }
    match value {
        "" => whole,
        value => format!("{whole} = {value}"),
    }
}

/// Every word that a file says.
fn said(node: &Node, path: &str, words: &mut Words) {
    words.insert(general(path));
    match &node.value {
        Value::Text(text) => {
            words.insert(general(&format!("{path} = \"{text}\"")));
        }
        Value::List(nodes) => nodes
            .iter()
            .for_each(|node| said(node, &format!("{path}[0]"), words)),
        Value::Table(entries) => {
            for entry in entries {
                let path = match path {
                    "" => entry.key.clone(),
                    path => format!("{path}.{}", entry.key),
                };
                said(&entry.node, &path, words);
            }
        }
        _ => {}
    }
}

/// The words of a list in a case. A list in capitals stands for the names in a table of the code,
/// so that a new line of the table is tested without a new case.
fn words(list: &str) -> Vec<&str> {
    // `fixed` needs the key `window`: it has cases of its own.
    let algorithms = || {
        let all = Algorithm::ALL.into_iter();
        all.filter(|algorithm| *algorithm != Algorithm::Fixed)
    };
    match list {
        "ALGORITHM" => algorithms().map(Algorithm::name).collect(),
        "ONE-SIDED" => algorithms()
            .filter(|algorithm| algorithm.needs() == Needs::Nothing)
            .map(Algorithm::name)
            .collect(),
        "STACK" => Algorithm::stacks(&[Stack::Linux, Stack::Module, Stack::Ours])
            .map(Algorithm::name)
            .collect(),
        "ROUTING" => {
            let names = Routing::NAMES.iter();
            let plain = names.filter(|(_, routing)| !routing.needs_notifications());
            plain.map(|(name, _)| *name).collect()
        }
        _ => list.split('|').collect(),
    }
}

/// A case with each of the words that it lists as `<one|another>`.
fn expanded(case: &str) -> Vec<String> {
    let Some((before, rest)) = case.split_once('<') else {
        return vec![case.to_owned()];
    };
    let (list, after) = rest.split_once('>').expect("a list of words ends with >");
    let texts = words(list)
        .into_iter()
        .map(|word| format!("{before}{word}{after}"));
    texts.flat_map(|text| expanded(&text)).collect()
}

/// A case, with the parts of a scenario that both worlds run where it does not have them itself.
fn whole(case: &str) -> String {
    let mut text = case.to_owned();
    for (table, usual) in [
        ("[traffic.", "[traffic.usual]\nkind = 'bulk'\n"),
        ("[network]", "[network]\ntopology = 'dumbbell'\n"),
    ] {
        if !text.contains(table) && !text.contains("extends") {
            text.push_str(usual);
        }
    }
    text
}

/// The problems of a text in a world; where the text has the key of a problem, the problem's line
/// has it.
fn refused(world: &str, path: &Path, text: &str) -> Vec<Problem> {
    let experiment = file::parse(path, text, &Options::default())
        .unwrap_or_else(|problems| panic!("{problems}\n{text}"));
    let problems = match world {
        "sim" => Sim::default().limits(&experiment),
        _ => Lab::new().expect("a lab").limits(&experiment),
    };
    for problem in &problems {
        assert_eq!(Path::new(&problem.file), path, "{problem}");
        let line = problem
            .line
            .checked_sub(1)
            .and_then(|at| text.lines().nth(at));
        let key = problem.key.rsplit('.').next().expect("a key");
        let has_key = line.is_some_and(|line| line.contains(key));
        assert!(has_key, "{problem}\nis not about {line:?} of\n{text}");
        let advised = ["--world sim", "--world lab"].map(|world| problem.advice.contains(world));
        assert_eq!(advised, [world == "lab", world == "sim"], "{problem}");
    }
    problems
}

/// [`NEVER`], and algorithms that need the peer's feedback where there is none.
fn never() -> Vec<(String, String)> {
    let one_sided = |algorithm: &Algorithm| {
        (
            format!("enforcement.policy.rule[].one_sided = \"{algorithm}\""),
            format!("[[enforcement.policy.rule]]\none_sided = '{algorithm}'\n"),
        )
    };
    let needing = Algorithm::ALL.iter();
    let needing = needing.filter(|algorithm| algorithm.needs() == Needs::Peer);
    let listed = NEVER.iter();
    let listed = listed.map(|(word, case)| ((*word).to_owned(), (*case).to_owned()));
    listed.chain(needing.map(one_sided)).collect()
}

/// One row of the table of `docs/scenarios.md`.
struct Row {
    words: Vec<String>,
    /// Only some values of these keys are refused.
    partly: bool,
    world: String,
}

impl Row {
    /// Whether the row has this word or a key above it.
    fn covers(&self, word: &str) -> bool {
        self.words.iter().any(|own| {
            let below = word.strip_prefix(own.as_str());
            below.is_some_and(|below| {
                below.is_empty() || [".", "[", " ="].iter().any(|next| below.starts_with(next))
            })
        })
    }
}

/// The table below `## What only one world runs`: `words [condition] | world | why`.
fn documented() -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenarios.md");
    let text = fs::read_to_string(path).expect("docs/scenarios.md");
    let (_, section) = text
        .split_once("## What only one world runs\n")
        .expect("the section of the table");
    let section = section.split("\n## ").next().expect("its text");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let rows = rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let parts: Vec<&str> = cells[0].split('`').collect();
        Row {
            words: parts
                .iter()
                .skip(1)
                .step_by(2)
                .map(|word| (*word).to_owned())
                .collect(),
            partly: parts
                .iter()
                .step_by(2)
                .any(|rest| !rest.trim_matches([',', ' ']).is_empty()),
            world: cells[1].to_owned(),
        }
    });
    rows.collect()
}

/// The sum of all cases: words of the language, and refusals of the worlds.
#[derive(Default)]
struct Survey {
    language: Words,
    said: Words,
    accepted: BTreeMap<&'static str, Words>,
    /// (world, general path of the key) of every refusal.
    refusals: BTreeSet<(&'static str, String)>,
    /// Cases that the language does not know.
    broken: Vec<String>,
}

fn survey() -> Survey {
    let path = directory().join("case.toml");
    let mut survey = Survey::default();
    for text in CASES.iter().flat_map(|case| expanded(&whole(case))) {
        let tree = document::parse("case", &text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let mut words = Words::new();
        said(&tree, "", &mut words);
        let language = match file::words(&path, &text) {
            Ok(language) => language,
            Err(problems) => {
                survey.broken.push(format!("{problems}\n{text}"));
                continue;
            }
        };
        survey
            .language
            .extend(language.iter().map(|word| general(word)));
        for world in WORLDS {
            let problems = refused(world, &path, &text);
            if problems.is_empty() {
                survey
                    .accepted
                    .entry(world)
                    .or_default()
                    .extend(words.iter().cloned());
            }
            let keys = problems
                .iter()
                .map(|problem| (world, general(&problem.key)));
            survey.refusals.extend(keys);
        }
        survey.said.extend(words);
    }
    survey
}

/// The keys of the table of bounds.
fn bounded() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bounds.md");
    let text = fs::read_to_string(path).expect("docs/bounds.md");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let keys = rows.flat_map(|row| {
        let cell = row.split('|').nth(1).unwrap_or_default();
        cell.split('`').skip(1).step_by(2)
    });
    keys.map(str::to_owned).collect()
}

#[test]
fn every_key_that_has_a_bound_is_one_of_the_language() {
    let language = survey().language;
    // These belong to the file, or are part of several keys.
    let others = [
        "extends",
        "priorities",
        "repeats",
        "seed",
        "sweep.",
        "variant.",
    ];
    let is_other = |key: &String| others.iter().any(|other| key.starts_with(other));
    let keys = bounded();
    assert!(keys.len() > 100, "{} keys", keys.len());
    let unknown: Vec<_> = keys
        .iter()
        .filter(|key| !is_other(key) && !language.contains(*key))
        .collect();
    assert!(unknown.is_empty(), "no key of the language: {unknown:#?}");
}

#[test]
fn every_word_of_the_language_has_a_case_and_a_verdict_in_every_world() {
    let survey = survey();
    assert!(survey.broken.is_empty(), "{}", survey.broken.join("\n"));
    let never: Words = never().into_iter().map(|(word, _)| word).collect();
    let missing: Vec<_> = survey
        .language
        .iter()
        .filter(|word| !survey.said.contains(*word) && !never.contains(*word))
        .collect();
    assert!(
        missing.is_empty(),
        "no case in contract/cases.rs has {missing:#?}"
    );

    let rows = documented();
    let mut wrong = Vec::new();
    for (world, other) in [("sim", "lab"), ("lab", "sim")] {
        let only: Vec<&String> = (survey.language.iter())
            .filter(|word| !never.contains(*word) && !survey.accepted[other].contains(*word))
            .collect();
        for word in &only {
            if !survey.accepted[world].contains(*word) {
                wrong.push(format!("{word}: no world runs a case with it"));
            }
            if !rows
                .iter()
                .any(|row| row.world == world && !row.partly && row.covers(word))
            {
                wrong.push(format!(
                    "{word}: {other} always refuses it, and no row says so"
                ));
            }
        }
        for row in rows.iter().filter(|row| row.world == world && !row.partly) {
            for word in row.words.iter().filter(|word| !only.contains(word)) {
                wrong.push(format!(
                    "{word}: a row says {world} only, but {other} ran a case with it"
                ));
            }
        }
        for (_, key) in survey
            .refusals
            .iter()
            .filter(|(refuser, _)| *refuser == other)
        {
            let of_key = |row: &Row| {
                let value = |word: &String| word.starts_with(&format!("{key} = "));
                row.covers(key) || row.words.iter().any(value)
            };
            if !rows.iter().any(|row| row.world == world && of_key(row)) {
                wrong.push(format!("{key}: {other} refused it, and no row says so"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "against docs/scenarios.md:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn what_no_scenario_may_say_is_refused_as_the_language_is_read() {
    let path = directory().join("never.toml");
    for (word, case) in never() {
        let Err(Problems(problems)) = file::parse(&path, &whole(&case), &Options::default()) else {
            panic!("{word} is accepted");
        };
        let key = word.split(" = ").next().expect("a key");
        assert!(
            problems.iter().any(|problem| general(&problem.key) == key),
            "{problems:#?}"
        );
    }
}

/// The same mistake has the same exit code and the same form in every world, without privileges.
#[test]
fn what_a_world_cannot_do_exits_with_2_in_every_world() {
    let path = directory().join("refused.toml");
    for (world, table, place) in [
        (
            "lab",
            "[tenant.s1]\nread_rate = '1Mbit'\n",
            ":2:13: tenant.s1.read_rate: ",
        ),
        (
            "sim",
            "[tenant.s1]\ncongestion_control = 'bbr'\n",
            ":2:22: tenant.s1.congestion_control: ",
        ),
        // Too much for any world.
        (
            "lab",
            "[traffic.m]\nkind = 'messages'\nbytes = '1B'\ninterval = '1ns'\n",
            ":4:12: traffic.m.interval: ",
        ),
        (
            "sim",
            "[traffic.m]\nkind = 'messages'\nbytes = '1B'\ninterval = '1ns'\n",
            ":4:12: traffic.m.interval: ",
        ),
    ] {
        fs::write(&path, whole(table)).expect("a scenario");
        let output = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
            .args(["run", "--world", world])
            .arg(&path)
            .output()
            .expect("the command runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{world}: {errors}");
        assert!(
            errors.starts_with(&format!("{}{place}", path.display())),
            "{errors}"
        );
    }
}
