//! `sluicegate trace` with Open MPI: a program with known messages, one that dies, and commands
//! that are none. Needs mpicc and mpirun (`make setup`), no privileges.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
    time::Duration,
};

use sluicegate_program::{Kind, Operation, Program, check, goal};

/// A directory that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("sluicegate-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sluicegate(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluicegate"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("the command runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn compile(directory: &Path) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/program.c");
    let flags = [
        "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-o", "program",
    ];
    let status = Command::new("mpicc")
        .args(flags)
        .arg(source)
        .current_dir(directory)
        .status();
    assert!(status.expect("mpicc (make setup)").success());
}

/// Runs the program with 8 ranks.
fn trace(directory: &Path, options: &[&str], arguments: &[&str]) -> Output {
    let mpirun = [
        "mpirun",
        "-n",
        "8",
        "--oversubscribe",
        "--allow-run-as-root",
    ];
    let words = [
        &["trace"],
        options,
        &["--"],
        &mpirun,
        &["./program"],
        arguments,
    ];
    sluicegate(directory, &words.concat())
}

fn read(path: &Path) -> Program {
    let program = goal::read(fs::read(path).expect("a GOAL file").as_slice()).expect("GOAL");
    check::check(&program, 0).expect("it can run, even with rendezvous only");
    program
}

fn of(program: &Program, rank: usize, kind: Kind) -> Vec<Operation> {
    let operations = program.ranks[rank].operations().iter();
    operations.filter(|op| op.kind == kind).copied().collect()
}

/// Sends of all ranks as (from, to, bytes).
fn sends(program: &Program) -> Vec<(u32, u32, u64)> {
    let ranks = 0..program.ranks.len();
    let sends = ranks.flat_map(|rank| {
        let own = of(program, rank, Kind::Send).into_iter();
        own.map(move |op| (rank as u32, op.peer, op.size))
    });
    sends.collect()
}

#[test]
fn a_program_with_known_messages() {
    let scratch = Scratch::new("trace-known");
    compile(&scratch.0);
    let output = trace(&scratch.0, &["--out", "known.goal"], &[]);
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{shown}{said}");
    let figure = |name: &str| {
        let line = shown.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_whitespace().last());
        value
            .unwrap_or_else(|| panic!("no {name} in {shown}"))
            .to_owned()
    };
    assert_eq!(figure("ranks"), "8");
    assert_eq!(figure("messages between two ranks"), "33");
    assert_eq!(figure("messages of collectives"), "164");
    assert_eq!(figure("receives from any source"), "7");
    assert_eq!(figure("MPI_Allreduce"), "3");
    assert_eq!(figure("MPI_Alltoallv"), "1");
    assert!(
        shown.contains("note: 1 messages of a rank to itself are left out"),
        "{shown}"
    );
    assert_eq!(shown.matches("note:").count(), 1, "{shown}");
    let program = read(&scratch.0.join("known.goal"));
    messages_are_those(&program);
    it_is_simulated(&scratch.0, program.operations());
}

fn messages_are_those(program: &Program) {
    let sends = sends(program);
    assert_eq!(sends.len(), 33 + 164);
    let count = |bytes: u64| sends.iter().filter(|one| one.2 == bytes).count();
    assert_eq!(count(1000), 8);
    assert_eq!(count(12), 1);
    for from in 0..8 {
        assert!(sends.contains(&(from, (from + 1) % 8, 1000)));
        assert!(from == 0 || sends.contains(&(from, 0, 100 * u64::from(from))));
    }
    let of_500: Vec<_> = sends.iter().filter(|one| one.2 == 500).collect();
    assert_eq!(of_500, [&(5, 0, 500), &(6, 0, 500), &(7, 1, 500)]);
    assert_eq!((count(64), count(44), count(16)), (1, 3, 7));
    // They are taken the other way round, which only works because nothing waits for them.
    assert_eq!((count(24), count(28)), (1, 1));
    // A binomial tree from rank 3; and the message of rank 1 to rank 0.
    assert_eq!(count(100), 7 + 1);
    // Barriers; all-reduces of two halves and of all; the all-to-all's.
    assert_eq!((count(0), count(8)), (3 * 24, 8 + 8 + 24));
    // A message in another communicator has another tag, and is taken first.
    let taken = of(program, 0, Kind::Receive);
    let place = |from: u32, bytes: u64| {
        let same = |op: &Operation| (op.peer, op.size) == (from, bytes);
        taken.iter().rposition(same).expect("the message")
    };
    let (half, world) = (place(6, 500), place(6, 64));
    assert!(half < world && taken[half].tag != taken[world].tag);
    assert_eq!(taken[world].tag, 1);
    let computing = of(program, 2, Kind::Compute);
    let longest = computing.iter().map(|op| op.size).max().unwrap_or(0);
    assert!((49_000_000..80_000_000).contains(&longest), "{longest} ns");
}

fn it_is_simulated(directory: &Path, operations: u64) {
    let scenario = "title = 'recorded'\nwarmup = '0s'\nduration = '2s'\n\
        [network]\ntopology = 'crossbar'\nhosts = 8\nrate = '10Gbit'\nqueue = '250KB'\n\
        [traffic.all]\nkind = 'program'\ngoal = 'known.goal'\n[variant.one]\n\
        [expect]\nended = 'one.traffic.all.ended == one.traffic.all.operations'\n\
        computed = 'one.traffic.all.completion_s >= 0.05'\n";
    fs::write(directory.join("known.toml"), scenario).expect("a scenario");
    let run = ["run", "known.toml", "--check", "--out", "out"];
    let output = sluicegate(directory, &run);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}{}", text(&output.stdout));
    let results = fs::read_to_string(directory.join("out/results.json")).expect("results");
    assert!(results.contains(&operations.to_string()));
}

#[test]
fn a_rank_that_dies_leaves_what_it_did() {
    let scratch = Scratch::new("trace-dies");
    compile(&scratch.0);
    let output = trace(
        &scratch.0,
        &["--out", "dies.bin", "--traces", "kept"],
        &["die"],
    );
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{shown}{said}");
    assert!(
        said.contains("dies.bin has what was recorded up to there"),
        "{said}"
    );
    assert!(
        shown.contains("note: 8 ranks did not come to MPI_Finalize"),
        "{shown}"
    );
    let program = read(&scratch.0.join("dies.bin"));
    assert_eq!(sends(&program), [(0, 1, 10); 5]);
    assert_eq!(of(&program, 1, Kind::Receive).len(), 5);
    let kept = fs::read_dir(scratch.0.join("kept")).expect("traces");
    assert_eq!(kept.count(), 8);
    let again = trace(&scratch.0, &["--traces", "kept"], &[]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("kept: the directory is not empty"));
}

#[test]
fn a_signal_to_the_command_ends_the_ranks() {
    let scratch = Scratch::new("trace-signal");
    compile(&scratch.0);
    let words = "trace --traces kept -- mpirun -n 2 --oversubscribe --allow-run-as-root";
    let mut child = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
        .args(words.split(' ').chain(["./program", "wait"]))
        .current_dir(&scratch.0)
        .spawn()
        .expect("the command runs");
    let kept = scratch.0.join("kept");
    let files = || fs::read_dir(&kept).map_or(0, Iterator::count);
    while files() < 2 {
        assert_eq!(child.try_wait().expect("a child"), None, "it has ended");
        thread::sleep(Duration::from_millis(20));
    }
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status();
    assert!(sent.expect("kill").success());
    // It waits for mpirun, and mpirun for its ranks, which wait for an hour.
    assert_eq!(child.wait().expect("a child").code(), Some(130));
}

#[test]
fn calls_that_are_not_recorded_are_named() {
    let scratch = Scratch::new("trace-others");
    compile(&scratch.0);
    let output = trace(&scratch.0, &["--out", "others.goal"], &["others"]);
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{shown}{said}");
    for call in [
        "a collective over an intercommunicator",
        "MPI_Neighbor_alltoallw",
        "MPI_Ineighbor_allgather",
        "MPI_Rput",
        "MPI_Fetch_and_op",
        "MPI_Compare_and_swap",
        "MPI_Get_accumulate",
    ] {
        let note = format!("note: 8 calls are not recorded: {call}\n");
        assert!(shown.contains(&note), "{call}: {shown}");
    }
    let program = read(&scratch.0.join("others.goal"));
    assert_eq!(sends(&program), [(1, 0, 12)]);
}

#[test]
fn commands_that_cannot_be_recorded_say_why() {
    let scratch = Scratch::new("trace-none");
    let said = |arguments: &[&str], code: i32| {
        let output = sluicegate(&scratch.0, &[&["trace"], arguments].concat());
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stdout));
        text(&output.stderr)
    };
    assert!(
        said(&["--", "true"], 1)
            .contains("no rank has written a trace: true has run no MPI program")
    );
    assert!(said(&["--", "false"], 1).contains("before a rank has called MPI_Init"));
    assert!(said(&["--", "./nowhere"], 1).contains("there is no command ./nowhere"));
    assert!(said(&[], 2).contains("COMMAND"));
    assert!(said(&["--scale-computation=-1", "--", "true"], 2).contains("a number from 0 on"));
    assert!(!scratch.0.join("trace.goal").exists());
    let output = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
        .args(["trace", "--", "true"])
        .env("MPICC", "/nowhere/mpicc")
        .output();
    let output = output.expect("the command runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("apt-get install openmpi-bin libopenmpi-dev"));
}
