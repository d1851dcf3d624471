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
