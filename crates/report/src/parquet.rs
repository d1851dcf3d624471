//! Samples and traces as Apache Parquet.

use std::{fs::File, io::Write, sync::Arc};

use anyhow::{Result, bail};
use parquet::{
    basic::Compression,
    column::writer::ColumnWriter,
    data_type::ByteArray,
    file::{
        properties::WriterProperties,
        reader::{FileReader, SerializedFileReader},
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    record::RowAccessor,
    schema::parser::parse_message_type,
};
use sluicegate_scenario::results::Results;

use crate::{films, samples, traces};

/// Rows per row group: what is held in memory at once.
const GROUP_ROWS: usize = 1 << 20;

/// A column: its name and where a row has it. Names repeat, so that Parquet's dictionaries make
/// them almost free.
pub(crate) type Column<'n, R> = (&'n str, Field<R>);

pub(crate) enum Field<R> {
    Text(fn(&R) -> &str),
    /// The text of this number, of several that a row has.
    TextAt(fn(&R, usize) -> &str, usize),
    Whole(fn(&R) -> u32),
    Large(fn(&R) -> u64),
    Real(fn(&R) -> f64),
    OptionalReal(fn(&R) -> Option<f64>),
}

/// Writes every sample as Parquet with the columns of [`samples_csv`](crate::samples_csv); `time_s`
/// is null for none.
///
/// # Errors
/// Those of `out`.
pub fn samples_parquet(results: &Results, out: impl Write + Send) -> Result<()> {
    let columns: [Column<samples::Row>; 6] = [
        ("scenario", Field::Text(|row| row.scenario)),
        ("variant", Field::Text(|row| row.variant)),
        ("quantity", Field::Text(|row| row.quantity)),
        ("name", Field::Text(|row| row.name)),
        ("time_s", Field::OptionalReal(|row| row.time_s)),
        ("value", Field::Real(|row| row.value)),
    ];
    write("samples", &columns, samples::rows(results), out)
}

/// Writes every point of every trace as Parquet with the columns of
/// [`traces_csv`](crate::traces_csv).
///
/// # Errors
/// Those of `out`.
pub fn traces_parquet(results: &Results, out: impl Write + Send) -> Result<()> {
    let columns: [Column<traces::Row>; 7] = [
        ("scenario", Field::Text(|row| row.scenario)),
        ("variant", Field::Text(|row| row.variant)),
        ("repeat", Field::Whole(|row| row.repeat)),
        ("quantity", Field::Text(|row| row.quantity)),
        ("name", Field::Text(|row| row.name)),
        ("time_s", Field::Real(|row| row.time_s)),
        ("value", Field::Real(|row| row.value)),
    ];
    write("traces", &columns, traces::rows(results), out)
}

/// Writes every cell of every film as Parquet, frame by frame: `time_s` is the end of the frame,
/// `direction` is `from>to`; what was sent, paused and dropped is that of the frame, `queue_bytes`
/// that at its end.
///
/// # Errors
/// Those of `out`.
pub fn film_parquet(results: &Results, out: impl Write + Send) -> Result<()> {
    let columns: [Column<films::Row>; 10] = [
        ("scenario", Field::Text(|row| row.scenario)),
        ("variant", Field::Text(|row| row.variant)),
        ("repeat", Field::Whole(|row| row.repeat)),
        ("time_s", Field::Real(|row| row.time_s)),
        ("link", Field::Text(|row| row.link)),
        ("direction", Field::Text(|row| &row.direction)),
        ("sent_bytes", Field::Large(|row| row.cell.sent_bytes)),
        ("queue_bytes", Field::Large(|row| row.cell.queue_bytes)),
        (
            "paused_us",
            Field::Real(|row| row.cell.paused_ps as f64 / 1e6),
        ),
        ("drops", Field::Large(|row| row.cell.drops)),
    ];
    write("film", &columns, films::rows(results), out)
}

/// Reads RTTs and completion times of what [`samples_parquet`] has written into the variants of
/// `results`; series over time, and variants that `results` does not have, are passed over.
///
/// # Errors
/// A file that is no Parquet, or has no such table.
pub fn read_samples_parquet(results: &mut Results, file: File) -> Result<()> {
    let reader = SerializedFileReader::new(file)?;
    let columns = reader.metadata().file_metadata().schema_descr().columns();
    if !columns
        .iter()
        .map(|column| column.name())
        .eq(samples::HEADER)
    {
        bail!("the columns are not {}", samples::HEADER.join(", "));
    }
    for row in reader.get_row_iter(None)? {
        let row = row?;
        let [variant, quantity, name] = [1, 2, 3].map(|column| row.get_string(column));
        let (variant, quantity, name) = (variant?.as_str(), quantity?.as_str(), name?.as_str());
        if let Some(samples) = samples::place(results, variant, quantity, name) {
            samples.push(row.get_double(5)?);
        }
    }
    Ok(())
}

fn schema<R>(name: &str, columns: &[Column<R>]) -> String {
    let column = |(name, field): &Column<R>| match field {
        Field::Text(_) | Field::TextAt(..) => format!("REQUIRED BYTE_ARRAY {name} (UTF8); "),
        Field::Whole(_) => format!("REQUIRED INT32 {name}; "),
        Field::Large(_) => format!("REQUIRED INT64 {name}; "),
        Field::Real(_) => format!("REQUIRED DOUBLE {name}; "),
        Field::OptionalReal(_) => format!("OPTIONAL DOUBLE {name}; "),
    };
    let columns: String = columns.iter().map(column).collect();
    format!("message {name} {{ {columns}}}")
}

pub(crate) fn write<R>(
    name: &str,
    columns: &[Column<R>],
    rows: impl Iterator<Item = R>,
    out: impl Write + Send,
) -> Result<()> {
    let schema = Arc::new(parse_message_type(&schema(name, columns))?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .build();
    let mut file = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
    let mut rows = rows.peekable();
    while rows.peek().is_some() {
        let group: Vec<R> = rows.by_ref().take(GROUP_ROWS).collect();
        write_group(file.next_row_group()?, columns, &group)?;
    }
    file.close()?;
    Ok(())
}

fn write_group<R, W: Write + Send>(
    mut group: SerializedRowGroupWriter<'_, W>,
    columns: &[Column<R>],
    rows: &[R],
) -> Result<()> {
    for (_, field) in columns {
        let mut column = group.next_column()?.expect("as many as in the schema");
        match (column.untyped(), field) {
            (ColumnWriter::ByteArrayColumnWriter(writer), Field::Text(of)) => {
                let values: Vec<ByteArray> = rows.iter().map(|row| of(row).into()).collect();
                writer.write_batch(&values, None, None)?;
            }
            (ColumnWriter::ByteArrayColumnWriter(writer), Field::TextAt(of, at)) => {
                let values: Vec<ByteArray> = rows.iter().map(|row| of(row, *at).into()).collect();
                writer.write_batch(&values, None, None)?;
            }
            (ColumnWriter::Int32ColumnWriter(writer), Field::Whole(of)) => {
                let values: Vec<i32> = rows.iter().map(|row| of(row) as i32).collect();
                writer.write_batch(&values, None, None)?;
            }
            (ColumnWriter::Int64ColumnWriter(writer), Field::Large(of)) => {
                let values: Vec<i64> = rows.iter().map(|row| of(row) as i64).collect();
                writer.write_batch(&values, None, None)?;
            }
            (ColumnWriter::DoubleColumnWriter(writer), Field::Real(of)) => {
                let values: Vec<f64> = rows.iter().map(of).collect();
                writer.write_batch(&values, None, None)?;
            }
            (ColumnWriter::DoubleColumnWriter(writer), Field::OptionalReal(of)) => {
                let values: Vec<f64> = rows.iter().filter_map(of).collect();
                let present: Vec<i16> = rows.iter().map(|row| of(row).is_some().into()).collect();
                writer.write_batch(&values, Some(&present), None)?;
            }
            _ => unreachable!("the schema is made of the fields"),
        }
        column.close()?;
    }
    group.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use sluicegate_scenario::results::{Series, SeriesKind, VariantResult};

    use super::*;

    #[test]
    fn parquet_reads_back() {
        let mut variant = VariantResult {
            name: "v".into(),
            ..Default::default()
        };
        variant.samples.rtt_us = vec![151.25];
        variant.samples.series = vec![Series {
            name: "a>b".into(),
            kind: SeriesKind::QueueBytes,
            points: vec![(0.5, 1500.0)],
        }];
        let results = samples::tests::results_of(variant);

        let mut file = Vec::new();
        samples_parquet(&results, &mut file).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
        let rows: Vec<_> = reader
            .get_row_iter(None)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].get_string(2).unwrap(), "rtt_us");
        assert!(rows[0].is_null(4).unwrap(), "an RTT sample has no time");
        assert_eq!(rows[0].get_double(5).unwrap(), 151.25);
        let text = |column| rows[1].get_string(column).unwrap().as_str();
        assert_eq!(
            [text(0), text(1), text(2), text(3)],
            ["s", "v", "queue_bytes", "a>b"]
        );
        assert_eq!(
            (
                rows[1].get_double(4).unwrap(),
                rows[1].get_double(5).unwrap()
            ),
            (0.5, 1500.0)
        );
    }

    #[test]
    fn what_cdfs_need_reads_back() {
        let mut variant = VariantResult {
            name: "v".into(),
            ..Default::default()
        };
        variant.samples.rtt_us = vec![151.25, 3.5];
        variant.samples.fct_us = [("mice".to_owned(), vec![900.0])].into();
        variant.samples.series = vec![Series {
            name: "a>b".into(),
            kind: SeriesKind::QueueBytes,
            points: vec![(0.5, 1500.0)],
        }];
        let results = samples::tests::results_of(variant);
        let file = |name: &str, content: &[u8]| {
            let name = format!("sluicegate-{}-{name}.parquet", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, content).unwrap();
            let file = File::open(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            file
        };
        let mut written = Vec::new();
        samples_parquet(&results, &mut written).unwrap();
        let mut again = results.clone();
        again.variants[0].samples = Default::default();
        read_samples_parquet(&mut again, file("good", &written)).unwrap();
        let samples = &again.variants[0].samples;
        assert_eq!(samples.rtt_us, [151.25, 3.5]);
        assert_eq!(samples.fct_us["mice"], [900.0]);
        assert!(samples.series.is_empty());

        let mut traces = Vec::new();
        traces_parquet(&traces::tests::traced(), &mut traces).unwrap();
        let error = read_samples_parquet(&mut again, file("traces", &traces)).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("the columns are not scenario, variant"),
            "{error}"
        );
        assert!(read_samples_parquet(&mut again, file("text", b"no Parquet at all")).is_err());
    }

    #[test]
    fn traces_read_back() {
        let mut file = Vec::new();
        traces_parquet(&traces::tests::traced(), &mut file).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
        let rows: Vec<_> = reader
            .get_row_iter(None)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert_eq!(rows.len(), 2);
        let row = &rows[0];
        assert_eq!(row.get_int(2).unwrap(), 2);
        assert_eq!(row.get_string(3).unwrap(), "in_flight_bytes");
        assert_eq!(
            (row.get_double(5).unwrap(), row.get_double(6).unwrap()),
            (0.25, 2896.0)
        );
    }

    #[test]
    fn films_read_back() {
        let mut file = Vec::new();
        film_parquet(&films::tests::filmed(), &mut file).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
        let rows: Vec<_> = reader
            .get_row_iter(None)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        // Two frames of two directions; the second of the first frame, beyond 32 bits.
        assert_eq!(rows.len(), 4);
        let (row, text) = (&rows[1], |column| {
            rows[1].get_string(column).unwrap().as_str()
        });
        assert_eq!([text(1), text(4), text(5)], ["v", "s-h", "h>s"]);
        assert_eq!(
            (row.get_int(2).unwrap(), row.get_double(3).unwrap()),
            (3, 0.25)
        );
        let whole = |column| row.get_long(column).unwrap();
        assert_eq!((whole(6), whole(7), whole(9)), (12_000_000_000, 3000, 2));
        assert_eq!(row.get_double(8).unwrap(), 1.5);
    }
}
