//! How much memory an operation takes while a text is read, checked, and afterwards. The test
//! counts what is allocated: capacity that a growing list has ahead of it, and what it copies from
//! when it grows, are included. A process has less in memory, since a list that fills its last
//! pages has touched no more (docs/programs.md has a measured peak of ten million operations).

use std::fmt::Write;

use sluicegate_program::{Operation, Program, check, goal};

/// A ring of ranks, as texts of tracers are: all operations have labels, and each waits for those
/// of the round before.
fn ring(ranks: u32, rounds: u32) -> String {
    let mut text = format!("num_ranks {ranks}\n");
    for rank in 0..ranks {
        let (left, right) = ((rank + ranks - 1) % ranks, (rank + 1) % ranks);
        writeln!(text, "rank {rank} {{").unwrap();
        for first in (0..3 * rounds).step_by(3) {
            let [receive, send, work] = [first, first + 1, first + 2];
            writeln!(text, "l{receive}: recv 100b from {left} tag 1").unwrap();
            writeln!(text, "l{send}: send 100b to {right} tag 1").unwrap();
            writeln!(text, "l{work}: calc 100").unwrap();
            writeln!(text, "l{work} requires l{receive}").unwrap();
            writeln!(text, "l{work} requires l{send}").unwrap();
            if first > 0 {
                writeln!(text, "l{receive} requires l{}", first - 1).unwrap();
                writeln!(text, "l{send} requires l{}", first - 1).unwrap();
            }
        }
        writeln!(text, "}}").unwrap();
    }
    text
}

/// Bytes per operation: at most and in the end.
fn measure(ranks: u32, rounds: u32) -> [f64; 3] {
    let text = ring(ranks, rounds);
    let mut program = Program::default();
    let read = allocation_counter::measure(|| {
        program = goal::read(text.as_bytes()).unwrap();
    });
    let checked = allocation_counter::measure(|| {
        assert_eq!(check::check(&program, 16_384), Ok(()));
    });
    let operations = program.operations() as f64;
    assert_eq!(operations, f64::from(3 * ranks * rounds));
    let kept = read.bytes_current as f64 / operations;
    [
        read.bytes_max as f64 / operations,
        kept,
        kept + checked.bytes_max as f64 / operations,
    ]
}

/// The limits allow ten million operations with 1.33 dependencies each in 1 GB at most.
#[test]
fn an_operation_of_a_text_takes_few_bytes() {
    assert_eq!(size_of::<Operation>(), 24);
    for (ranks, rounds) in [(2, 17_000), (4, 8_500), (256, 130)] {
        let [most, kept, checked] = measure(ranks, rounds);
        println!("{ranks} ranks: {most:.0} B at most, {kept:.0} B kept, {checked:.0} B checked");
        assert!(kept < 40.0, "{ranks} ranks: {kept} B kept");
        assert!(most < 100.0, "{ranks} ranks: {most} B at most");
        assert!(checked < 50.0, "{ranks} ranks: {checked} B while checked");
    }
}
