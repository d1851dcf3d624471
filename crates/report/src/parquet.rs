//! Samples as Apache Parquet.

use std::{io::Write, sync::Arc};

use anyhow::Result;
use parquet::{
    basic::Compression,
    column::writer::ColumnWriter,
    data_type::ByteArray,
    file::{
        properties::WriterProperties,
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::parser::parse_message_type,
};
use sluicegate_scenario::results::Results;

use crate::samples::{self, Row};

/// The columns of `samples.csv.gz`; names repeat, so that Parquet's dictionaries make them almost free.
const SCHEMA: &str = "message samples {
    REQUIRED BYTE_ARRAY scenario (UTF8);
    REQUIRED BYTE_ARRAY variant (UTF8);
    REQUIRED BYTE_ARRAY quantity (UTF8);
    REQUIRED BYTE_ARRAY name (UTF8);
    OPTIONAL DOUBLE time_s;
    REQUIRED DOUBLE value;
}";

/// Rows per row group: what is held in memory at once.
const GROUP_ROWS: usize = 1 << 20;

/// Writes every sample as Parquet with the columns of [`samples_csv`](crate::samples_csv); `time_s` is null for none.
///
/// # Errors
/// Those of `out`.
pub fn samples_parquet(results: &Results, out: impl Write + Send) -> Result<()> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .build();
    let mut file = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
    let mut rows = samples::rows(results).peekable();
    while rows.peek().is_some() {
        let group: Vec<Row> = rows.by_ref().take(GROUP_ROWS).collect();
        write_group(file.next_row_group()?, &results.scenario, &group)?;
    }
    file.close()?;
    Ok(())
}

fn write_group<W: Write + Send>(
    mut group: SerializedRowGroupWriter<'_, W>,
    scenario: &str,
    rows: &[Row],
) -> Result<()> {
    let texts: [&dyn Fn(&Row) -> ByteArray; 4] = [
        &|_| scenario.into(),
        &|row| row.variant.into(),
        &|row| row.quantity.into(),
        &|row| row.name.into(),
    ];
    let mut texts = texts.into_iter();
    while let Some(mut column) = group.next_column()? {
        match column.untyped() {
            ColumnWriter::ByteArrayColumnWriter(writer) => {
                let text = texts.next().expect("four text columns in SCHEMA");
                let values: Vec<_> = rows.iter().map(text).collect();
                writer.write_batch(&values, None, None)?;
            }
            ColumnWriter::DoubleColumnWriter(writer)
                if writer.get_descriptor().name() == "time_s" =>
            {
                let times: Vec<f64> = rows.iter().filter_map(|row| row.time_s).collect();
                let present: Vec<i16> =
                    rows.iter().map(|row| row.time_s.is_some().into()).collect();
                writer.write_batch(&times, Some(&present), None)?;
            }
            ColumnWriter::DoubleColumnWriter(writer) => {
                let values: Vec<f64> = rows.iter().map(|row| row.value).collect();
                writer.write_batch(&values, None, None)?;
            }
            _ => unreachable!("SCHEMA has text and double columns only"),
        }
        column.close()?;
    }
    group.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use parquet::{
        file::reader::{FileReader, SerializedFileReader},
        record::RowAccessor,
    };
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
}
