//! Merging, on traces that are made here.

use sluicegate_program::{Kind, Program, check, goal};
use sluicegate_trace::merge::{Merged, merge};

/// Writes a trace as `c/trace.c` does.
struct Trace(Vec<u8>);

impl Trace {
    /// With the communicators that every rank has: 0 is the world, 1 the rank alone.
    fn new(ranks: u32, rank: u32) -> Self {
        let mut file = b"SGTRACE1".to_vec();
        file.extend(ranks.to_le_bytes());
        file.extend(rank.to_le_bytes());
        let world: Vec<u64> = (0..u64::from(ranks)).collect();
        Self(file).comm(0, &world).comm(1, &[u64::from(rank)])
    }

    fn record(mut self, kind: u8, numbers: &[u64]) -> Self {
        self.0.push(kind);
        for number in numbers {
            let mut rest = *number;
            while rest >= 0x80 {
                self.0.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            self.0.push(rest as u8);
        }
        self
    }

    fn compute(self, ns: u64) -> Self {
        self.record(1, &[ns])
    }

    fn comm(self, number: u64, members: &[u64]) -> Self {
        let head = [number, members.len() as u64];
        self.record(2, &[&head, members].concat())
    }

    /// `comm, to, tag, bytes`.
    fn send(self, sent: [u64; 4]) -> Self {
        self.record(3, &sent)
    }

    /// `comm, from, tag, bytes`.
    fn receive(self, received: [u64; 4], wild: u64) -> Self {
        self.record(4, &[&received[..], &[wild]].concat())
    }

    /// What, over the world, its root and what this rank has.
    fn collective(self, what: u64, request: u64, root: u64, bytes: &[u64]) -> Self {
        let head = [what, 0, request, root, bytes.len() as u64];
        self.record(10, &[&head, bytes].concat())
    }

    fn end(self) -> Vec<u8> {
        self.record(12, &[1_000_000]).0
    }
}

fn merged(files: &[Vec<u8>]) -> Merged {
    let merged = merge(files, 1.0).unwrap();
    // What is merged can run, however long messages may be that leave before their receives.
    check::check(&merged.program, u64::MAX).unwrap();
    merged
}

fn reason(files: &[Vec<u8>]) -> String {
    merge(files, 1.0).unwrap_err().to_string()
}

/// `send 8 to 1`, `recv 8 from 0`, `calc 5`, of a rank in order, each with what it waits for.
fn told(program: &Program, rank: usize) -> Vec<String> {
    let own = &program.ranks[rank];
    let mut waits = vec![Vec::new(); own.operations().len()];
    for before in 0..own.operations().len() as u32 {
        for one in own.dependents(before) {
            waits[one.operation as usize].push(before);
        }
    }
    let told = own.operations().iter().zip(waits).map(|(op, waits)| {
        let what = match op.kind {
            Kind::Compute => format!("calc {}", op.size),
            Kind::Send => format!("send {} to {}", op.size, op.peer),
            Kind::Receive => format!("recv {} from {}", op.size, op.peer),
        };
        format!("{what} {waits:?}")
    });
    told.collect()
}

#[test]
fn a_ping_pong_with_computation() {
    let zero = Trace::new(2, 0)
        .compute(500)
        .send([0, 1, 7, 100])
        .receive([0, 1, 8, 9], 0)
        .compute(70);
    let one = Trace::new(2, 1)
        .receive([0, 0, 7, 100], 1)
        .compute(30)
        .send([0, 0, 8, 9]);
    let merged = merged(&[zero.end(), one.end()]);
    let zero = [
        "calc 500 []",
        "send 100 to 1 [0]",
        "recv 9 from 1 [1]",
        "calc 70 [2]",
    ];
    assert_eq!(told(&merged.program, 0), zero);
    let one = ["recv 100 from 0 []", "calc 30 [0]", "send 9 to 0 [1]"];
    assert_eq!(told(&merged.program, 1), one);
    let figures = &merged.figures;
    assert_eq!(
        (figures.messages, figures.bytes, figures.largest),
        (2, 109, 100)
    );
    assert_eq!(
        (figures.wild, figures.computing_ns.as_slice()),
        (1, &[570, 30][..])
    );
    assert_eq!(figures.computing_of, (600, 2_000_000));
    assert!(figures.notes.is_empty(), "{:?}", figures.notes);
}

#[test]
fn computation_is_scaled() {
    let files = [Trace::new(1, 0).compute(500).compute(50).end()];
    let merged = merge(&files, 0.1).unwrap();
    assert_eq!(told(&merged.program, 0), ["calc 55 []"]);
    assert_eq!(merged.figures.computing_ns, [55]);
}

#[test]
fn requests_end_where_they_are_awaited() {
    // Posts 10 (receive) and 11 (send), computes, awaits both.
    let zero = Trace::new(2, 0)
        .record(6, &[10, 0, 0])
        .record(5, &[11, 0, 1, 1, 20])
        .compute(5)
        .record(8, &[10, 1, 1, 30])
        .record(7, &[11])
        .compute(6);
    let one = Trace::new(2, 1)
        .send([0, 0, 1, 30])
        .receive([0, 0, 1, 20], 0);
    let merged = merged(&[zero.end(), one.end()]);
    let zero = [
        "recv 30 from 1 []",
        "send 20 to 1 []",
        "calc 5 []",
        "calc 6 [0, 1, 2]",
    ];
    assert_eq!(told(&merged.program, 0), zero);
}

#[test]
fn a_probed_receive_is_where_its_probe_is() {
    let zero = Trace::new(2, 0)
        .record(9, &[0, 1, 3, 40])
        .record(9, &[0, 1, 3, 40])
        .compute(5)
        .receive([0, 1, 3, 40], 0)
        .receive([0, 1, 3, 41], 0);
    let one = Trace::new(2, 1).send([0, 0, 3, 40]).send([0, 0, 3, 41]);
    let merged = merged(&[zero.end(), one.end()]);
    let zero = ["recv 40 from 1 []", "calc 5 [0]", "recv 41 from 1 [1]"];
    assert_eq!(
        told(&merged.program, 0),
        ["recv 40 from 1 []", "calc 5 [0]", zero[2]]
    );
}

#[test]
fn communicators_keep_messages_apart() {
    // Rank 1 is member 0 of both others; the messages of one tag are taken in another order than
    // they are sent.
    let zero = Trace::new(2, 0)
        .comm(2, &[1, 0])
        .comm(3, &[1, 0])
        .receive([3, 0, 5, 3], 0)
        .receive([2, 0, 5, 2], 0)
        .receive([0, 1, 5, 1], 0);
    let one = Trace::new(2, 1)
        .comm(2, &[1, 0])
        .comm(3, &[1, 0])
        .send([0, 0, 5, 1])
        .send([2, 1, 5, 2])
        .send([3, 1, 5, 3]);
    let merged = merged(&[zero.end(), one.end()]);
    let tags = |rank: usize| {
        let operations = merged.program.ranks[rank].operations().iter();
        operations.map(|op| (op.size, op.tag)).collect::<Vec<_>>()
    };
    assert_eq!(tags(1), [(1, 5), (2, 6), (3, 7)]);
    assert_eq!(tags(0), [(3, 7), (2, 6), (1, 5)]);
}

#[test]
fn collectives_become_messages() {
    let files: Vec<Vec<u8>> = (0..4)
        .map(|rank| {
            let trace = Trace::new(4, rank).compute(9);
            // Allreduce of 8 bytes, gatherv to rank 2, barrier that is awaited later.
            let trace = trace.collective(3, 0, 0, &[8]);
            let trace = trace.collective(7, 0, 2, &[10 * u64::from(rank + 1)]);
            trace
                .collective(0, 1, 0, &[0])
                .compute(7)
                .record(7, &[0])
                .compute(8)
                .end()
        })
        .collect();
    let merged = merged(&files);
    let figures = &merged.figures;
    assert_eq!(figures.messages, 0);
    assert_eq!(figures.collective_messages, 8 + 3 + 8);
    assert_eq!(figures.collective_bytes, 64 + 10 + 20 + 40);
    let names: Vec<&str> = figures.collectives.keys().map(String::as_str).collect();
    assert_eq!(names, ["MPI_Allreduce", "MPI_Barrier", "MPI_Gatherv"]);
    let three = told(&merged.program, 3);
    let gathered = three.iter().position(|one| one.starts_with("send 40 to 2"));
    let barrier = gathered.unwrap() + 1;
    // Both rounds of the barrier go beside the computation; what follows waits for all.
    let join = three
        .iter()
        .position(|one| one.starts_with("calc 8"))
        .unwrap();
    let calc = three
        .iter()
        .position(|one| one.starts_with("calc 7"))
        .unwrap();
    assert!(
        three[calc].ends_with(&format!("[{}]", barrier - 1)),
        "{three:?}"
    );
    assert!(three[join].contains(&calc.to_string()), "{three:?}");
    assert!(
        three[join].contains(&(barrier + 3).to_string()),
        "{three:?}"
    );
}

#[test]
fn what_is_merged_is_written_and_read() {
    let zero = Trace::new(2, 0)
        .compute(5)
        .send([0, 1, 7, 100])
        .collective(0, 0, 0, &[0]);
    let one = Trace::new(2, 1)
        .receive([0, 0, 7, 100], 1)
        .collective(0, 0, 0, &[0]);
    let program = merged(&[zero.end(), one.end()]).program;
    let mut file = Vec::new();
    goal::text::write(&program, &["a program".to_owned()], &mut file).unwrap();
    let read = goal::read(file.as_slice()).unwrap();
    let binary = goal::read(goal::binary::write(&program).as_slice()).unwrap();
    for rank in 0..2 {
        assert_eq!(told(&read, rank), told(&program, rank));
        assert_eq!(told(&binary, rank), told(&program, rank));
        for form in [&read, &binary] {
            assert_eq!(
                form.ranks[rank].operations(),
                program.ranks[rank].operations()
            );
        }
    }
    assert_eq!(program.phases, ["barrier"]);
    assert_eq!(
        (&read.phases, &binary.phases),
        (&program.phases, &program.phases)
    );
}

#[test]
fn every_truncation_of_a_trace_is_merged() {
    let zero = Trace::new(2, 0).compute(700).send([0, 1, 300, 1000]);
    let zero = zero
        .receive([0, 1, 8, 9], 0)
        .collective(3, 0, 0, &[8])
        .end();
    let one = Trace::new(2, 1)
        .receive([0, 0, 300, 1000], 1)
        .send([0, 0, 8, 9]);
    let one = one.collective(3, 0, 0, &[8]).end();
    let mut most = 0;
    let last = zero.len() - 4;
    for length in 16..zero.len() {
        let cut = zero[..length].to_vec();
        // Of a rank that was killed the file goes on with zeros, instead of a whole record.
        let zeros = [&zero[..length.min(last)], &[0; 4096]].concat();
        for file in [cut, zeros] {
            let Ok(merged) = merge(&[file, one.clone()], 1.0) else {
                // Zeros may complete the record that was cut to one that cannot be.
                continue;
            };
            check::check(&merged.program, u64::MAX).unwrap();
            let note = |text: &str| merged.figures.notes.iter().any(|note| note.contains(text));
            assert!(note("1 ranks did not come to MPI_Finalize"), "{length}");
            most = most.max(merged.figures.messages + merged.figures.collective_messages);
        }
    }
    assert_eq!(most, 4);
}

#[test]
fn what_has_no_other_end_is_left_out_and_counted() {
    let zero = Trace::new(3, 0)
        .send([0, 1, 7, 1])
        .send([0, 1, 7, 2])
        .send([0, 0, 7, 3])
        .receive([0, 0, 7, 3], 0)
        .record(6, &[4, 0, 1])
        // Cancelled: nothing is missing.
        .record(6, &[5, 0, 1])
        .record(7, &[5])
        .collective(0, 0, 0, &[0])
        .record(11, &[3, 97, 98, 99]);
    let one = Trace::new(3, 1)
        .receive([0, 0, 7, 1], 0)
        .receive([0, 2, 9, 1], 0)
        .collective(0, 0, 0, &[0]);
    let merged = merged(&[zero.end(), one.0]);
    assert_eq!(told(&merged.program, 0), ["send 1 to 1 []"]);
    assert_eq!(told(&merged.program, 1), ["recv 1 from 0 []"]);
    assert_eq!(told(&merged.program, 2), [""; 0]);
    let notes = [
        "1 ranks have written no trace",
        "1 ranks did not come to MPI_Finalize: their traces end earlier",
        "1 sends without a receive are left out",
        "1 receives without a send are left out",
        "1 messages of a rank to itself are left out",
        "1 receives that have taken no message are left out",
        "1 collectives that not all members have called are left out",
        "1 calls are not recorded: abc",
    ];
    assert_eq!(merged.figures.notes, notes);
}

#[test]
fn bad_traces_are_named() {
    let one = |trace: Trace| reason(&[trace.end()]);
    assert_eq!(
        reason(&[b"hello".to_vec()]),
        "no trace: it has less than 16 bytes"
    );
    assert_eq!(
        reason(&[b"0123456789abcdefgh".to_vec()]),
        "no trace: it does not begin with SGTRACE1"
    );
    assert_eq!(reason(&[]), "no rank has written a trace");
    assert_eq!(reason(&[vec![0; 100]]), "no rank has written a trace");
    assert_eq!(one(Trace::new(2, 2)), "no trace: rank 2 of 2");
    let twice = [Trace::new(2, 0).end(), Trace::new(2, 0).end()];
    assert_eq!(reason(&twice), "there are two traces of one rank");
    let sizes = [Trace::new(2, 0).end(), Trace::new(3, 1).end()];
    assert!(reason(&sizes).contains("different numbers of ranks"));
    let wrong = one(Trace::new(1, 0).record(99, &[]));
    assert_eq!(wrong, "trace of rank 0: offset 24: a record of kind 99");
    assert!(one(Trace::new(1, 0).send([7, 0, 0, 1])).ends_with("communicator 7 was never made"));
    assert!(one(Trace::new(1, 0).send([0, 5, 0, 1])).ends_with("member 5 of a communicator of 1"));
    assert!(one(Trace::new(1, 0).comm(2, &[4])).ends_with("a communicator with rank 4"));
    assert!(one(Trace::new(1, 0).comm(9, &[0])).ends_with("communicator 9 is not the next one"));
    assert!(
        one(Trace::new(1, 0).collective(77, 0, 0, &[1])).ends_with("collective 77 is not known")
    );
    assert!(one(Trace::new(1, 0).collective(1, 0, 3, &[1])).contains("MPI_Bcast with root 3"));
    let differ = [
        Trace::new(2, 0).collective(1, 0, 0, &[4]).end(),
        Trace::new(2, 1).collective(2, 0, 0, &[4]).end(),
    ];
    let told =
        "trace of rank 1: calls MPI_Reduce with root 0 where rank 0 calls MPI_Bcast with root 0";
    assert_eq!(reason(&differ), told);
}

#[test]
fn no_bytes_break_the_merging() {
    // A source of numbers of its own: the same in every run.
    let mut state = 1u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u32
    };
    for _ in 0..20_000 {
        let mut file = Trace::new(2, 0)
            .send([0, 1, 7, 100])
            .collective(1, 0, 0, &[5])
            .0;
        for _ in 0..random() % 40 {
            file.push(match random() % 3 {
                0 => random() as u8,
                _ => random() as u8 % 14,
            });
        }
        let one = Trace::new(2, 1).receive([0, 0, 7, 100], 1).end();
        if let Ok(merged) = merge(&[file, one], 1.0) {
            check::check(&merged.program, u64::MAX).unwrap();
        }
    }
}

/// Each collective is a part of the program, by name and number; the text keeps it.
#[test]
fn collectives_are_phases() {
    let rank = |me| {
        let begin = Trace::new(2, me)
            .compute(100)
            .collective(3, 0, 0, &[8])
            .compute(50);
        begin
            .collective(0, 0, 0, &[0])
            .collective(3, 0, 0, &[8])
            .compute(70)
            .end()
    };
    let merged = merged(&[rank(0), rank(1)]);
    let names = ["all-reduce-1", "barrier", "all-reduce-2"];
    assert_eq!(merged.program.phases, names);
    let of = |program: &Program| -> Vec<Option<String>> {
        let operations = program.ranks[1].operations().iter();
        let name = |phase: u16| program.phases.get(usize::from(phase)).cloned();
        operations.map(|op| name(op.phase)).collect()
    };
    let own = of(&merged.program);
    assert_eq!(own.first(), Some(&None), "a computation is no part");
    assert_eq!(own.last(), Some(&None));
    let mut named: Vec<&str> = own.iter().flatten().map(String::as_str).collect();
    named.dedup();
    assert_eq!(named, names);
    let mut text = Vec::new();
    goal::text::write(&merged.program, &[], &mut text).unwrap();
    assert_eq!(of(&goal::read(&text[..]).unwrap()), own);
}
