//! Sweeps as Apache Parquet.

use std::io::Write;

use anyhow::Result;
use sluicegate_scenario::sweep::{CellFigures, Outcome, figures};

use crate::parquet::{Column, Field, write};

/// A figure of a cell.
struct Row<'a> {
    values: &'a [String],
    variant: &'a str,
    figure: &'a str,
    of: &'a CellFigures,
}

/// A figure of a run.
struct RunRow<'a> {
    values: &'a [String],
    variant: &'a str,
    seed: u64,
    figure: &'a str,
    value: f64,
}

/// Writes a row per cell and figure: a column per axis, `variant`, `figure`, `unit`, `n`, `mean`,
/// `sd`, `ci_low`, `ci_high` (95 %, Student's t), `min`, `max`. With n = 1 there is neither `sd`
/// nor an interval.
///
/// # Errors
/// Those of `out`.
pub fn parquet(outcome: &Outcome, out: impl Write + Send) -> Result<()> {
    let mut columns: Vec<Column<'_, Row<'_>>> = Vec::new();
    for (index, axis) in outcome.axes.iter().enumerate() {
        columns.push((&axis.name, Field::TextAt(|row, at| &row.values[at], index)));
    }
    columns.extend([
        ("variant", Field::Text(|row: &Row<'_>| row.variant)),
        ("figure", Field::Text(|row| row.figure)),
        ("unit", Field::Text(|row| &row.of.unit)),
        ("n", Field::Whole(|row| row.of.summary.n)),
        ("mean", Field::Real(|row| row.of.summary.mean)),
        ("sd", Field::OptionalReal(|row| row.of.summary.sd)),
        ("ci_low", Field::OptionalReal(|row| row.of.summary.ci_low)),
        ("ci_high", Field::OptionalReal(|row| row.of.summary.ci_high)),
        ("min", Field::Real(|row| row.of.summary.min)),
        ("max", Field::Real(|row| row.of.summary.max)),
    ]);
    let rows = outcome.cells.iter().flat_map(|cell| {
        cell.figures.iter().map(|(figure, of)| Row {
            values: &cell.values,
            variant: &cell.variant,
            figure,
            of,
        })
    });
    write("sweep", &columns, rows, out)
}

/// Writes a row per run and figure: a column per axis, `variant`, `seed`, `figure`, `unit`,
/// `value`.
///
/// # Errors
/// Those of `out`.
pub fn runs_parquet(outcome: &Outcome, out: impl Write + Send) -> Result<()> {
    let mut columns: Vec<Column<'_, RunRow<'_>>> = Vec::new();
    for (index, axis) in outcome.axes.iter().enumerate() {
        columns.push((&axis.name, Field::TextAt(|row, at| &row.values[at], index)));
    }
    columns.extend([
        ("variant", Field::Text(|row: &RunRow<'_>| row.variant)),
        ("seed", Field::Large(|row| row.seed)),
        ("figure", Field::Text(|row| row.figure)),
        ("unit", Field::Text(|row| figures::unit(row.figure))),
        ("value", Field::Real(|row| row.value)),
    ]);
    let rows = outcome.runs.iter().flat_map(|run| {
        let cell = &outcome.cells[run.cell];
        run.figures.iter().map(|(figure, value)| RunRow {
            values: &cell.values,
            variant: &cell.variant,
            seed: run.seed,
            figure,
            value: *value,
        })
    });
    write("runs", &columns, rows, out)
}

#[cfg(test)]
pub(super) mod tests {
    use parquet::{
        file::reader::{FileReader, SerializedFileReader},
        record::RowAccessor,
    };
    use sluicegate_scenario::sweep::{AxisNames, CellResult, RunFigures, SCHEMA, Summary};

    use super::*;

    /// Two rates, the first with two runs, the second with one.
    pub fn outcome() -> Outcome {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        let cell = |rate: &str, values: &[f64]| {
            let figure = CellFigures {
                unit: "us".to_owned(),
                summary: Summary::of(values).expect("a value"),
            };
            CellResult {
                values: vec![rate.to_owned()],
                variant: "base".to_owned(),
                figures: [("fct_us.query.mean".to_owned(), figure)].into(),
            }
        };
        let run = |cell, seed, value| RunFigures {
            cell,
            seed,
            figures: [("fct_us.query.mean".to_owned(), value)].into(),
        };
        Outcome {
            schema: SCHEMA,
            scenario: "tiny".to_owned(),
            title: "Tiny <i>".to_owned(),
            mirrors: None,
            version: "0.1.0".to_owned(),
            build: "b".to_owned(),
            seeds: vec![1, 2],
            axes: vec![AxisNames {
                name: "network.rate".to_owned(),
                values: names(&["1Gbit", "10Gbit"]),
            }],
            variants: names(&["base"]),
            chosen: Vec::new(),
            cells: vec![cell("1Gbit", &[100.0, 120.0]), cell("10Gbit", &[20_000.0])],
            failed: Vec::new(),
            outside: Default::default(),
            expectations: Vec::new(),
            published: Vec::new(),
            notes: Vec::new(),
            runs: vec![run(0, 1, 100.0), run(0, 2, 120.0), run(1, 1, 20_000.0)],
        }
    }

    fn rows(file: Vec<u8>) -> Vec<parquet::record::Row> {
        let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
        let rows = reader.get_row_iter(None).unwrap();
        rows.map(Result::unwrap).collect()
    }

    #[test]
    fn cells_read_back() {
        let mut file = Vec::new();
        parquet(&outcome(), &mut file).unwrap();
        let rows = rows(file);
        assert_eq!(rows.len(), 2);
        let text = |row: usize, column| rows[row].get_string(column).unwrap().as_str();
        assert_eq!((text(0, 0), text(1, 0)), ("1Gbit", "10Gbit"));
        assert_eq!((text(0, 2), text(0, 3)), ("fct_us.query.mean", "us"));
        assert_eq!(rows[0].get_int(4).unwrap(), 2);
        assert_eq!(rows[0].get_double(5).unwrap(), 110.0);
        let sd = rows[0].get_double(6).unwrap();
        assert!((sd - 200.0f64.sqrt()).abs() < 1e-9);
        assert!(rows[0].get_double(7).unwrap() < 110.0);
        for column in [6, 7, 8] {
            assert!(rows[1].is_null(column).unwrap(), "a single run has none");
        }
        assert_eq!(rows[1].get_double(10).unwrap(), 20_000.0);
    }

    #[test]
    fn runs_read_back() {
        let mut file = Vec::new();
        runs_parquet(&outcome(), &mut file).unwrap();
        let rows = rows(file);
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[1].get_long(2).unwrap(), 2);
        assert_eq!(rows[1].get_double(5).unwrap(), 120.0);
    }
}
