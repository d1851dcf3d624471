//! Samples for other programs: one row per sample, long form.

use std::io::{BufWriter, Read, Write};

use anyhow::{Context, Result, bail};
use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use sluicegate_scenario::results::{Results, SeriesKind};

/// One sample. The columns of `samples.csv.gz` and `samples.parquet`, in this order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row<'a> {
    /// Scenario.
    pub scenario: &'a str,
    /// Variant.
    pub variant: &'a str,
    /// The measured quantity, with its unit: `rtt_us`, `fct_us`, `fct_unfinished`, `goodput_bps`,
    /// `queue_bytes`, `enforced_window_bytes`, `tenant_cwnd_bytes`, `alpha`.
    pub quantity: &'static str,
    /// Flow, link or FCT class; empty for RTT samples.
    pub name: &'a str,
    /// Seconds since the start of the run; `None` for samples without a time.
    pub time_s: Option<f64>,
    /// The value.
    pub value: f64,
}

/// The first line of `samples.csv.gz`.
pub(crate) const HEADER: [&str; 6] = ["scenario", "variant", "quantity", "name", "time_s", "value"];

/// Name of a series in exports.
pub(crate) fn quantity(kind: SeriesKind) -> &'static str {
    match kind {
        SeriesKind::GoodputBps => "goodput_bps",
        SeriesKind::QueueBytes => "queue_bytes",
        SeriesKind::EnforcedWindowBytes => "enforced_window_bytes",
        SeriesKind::TenantCwndBytes => "tenant_cwnd_bytes",
        SeriesKind::Alpha => "alpha",
    }
}

/// Every sample of every variant, in the order of measurement.
pub(crate) fn rows(results: &Results) -> impl Iterator<Item = Row<'_>> {
    results.variants.iter().flat_map(|variant| {
        let row = |quantity, name, time_s, value| Row {
            scenario: &results.scenario,
            variant: &variant.name,
            quantity,
            name,
            time_s,
            value,
        };
        let samples = &variant.samples;
        let rtt = samples
            .rtt_us
            .iter()
            .map(move |v| row("rtt_us", "", None, *v));
        let fct = samples.fct_us.iter();
        let fct = fct.flat_map(move |(class, values)| {
            values.iter().map(move |v| row("fct_us", class, None, *v))
        });
        let unfinished = samples.unfinished.iter();
        let unfinished =
            unfinished.map(move |(class, count)| row("fct_unfinished", class, None, *count as f64));
        let series = samples.series.iter().flat_map(move |series| {
            series
                .points
                .iter()
                .map(move |(t, v)| row(quantity(series.kind), &series.name, Some(*t), *v))
        });
        rtt.chain(fct).chain(unfinished).chain(series)
    })
}

/// Writes every sample as gzipped CSV (RFC 4180, UTF-8, header line, empty cell = none).
///
/// Columns: `scenario, variant, quantity, name, time_s, value`; the quantity names its unit.
///
/// # Errors
/// Those of `out`.
pub fn samples_csv(results: &Results, out: impl Write) -> Result<()> {
    let mut out = gzipped(out);
    writeln!(out, "{}", HEADER.join(","))?;
    for row in rows(results) {
        let time = row.time_s.map_or(String::new(), |t| t.to_string());
        let [scenario, variant, name] = [row.scenario, row.variant, row.name].map(quoted);
        writeln!(
            out,
            "{scenario},{variant},{},{name},{time},{}",
            row.quantity, row.value
        )?;
    }
    finish(out)
}

/// Reads RTTs and completion times of what [`samples_csv`] has written into the variants of
/// `results`; series over time, and variants that `results` does not have, are passed over.
///
/// # Errors
/// A file that is no gzip, or has no such table.
pub fn read_samples_csv(results: &mut Results, file: impl Read) -> Result<()> {
    let mut table = csv::Reader::from_reader(MultiGzDecoder::new(file));
    let header = table.headers()?;
    if header != HEADER.as_slice() {
        bail!("the columns are not {}", HEADER.join(", "));
    }
    let mut row = csv::StringRecord::new();
    while table.read_record(&mut row)? {
        let [_, variant, quantity, name, _, value] = [0, 1, 2, 3, 4, 5].map(|column| &row[column]);
        if let Some(samples) = place(results, variant, quantity, name) {
            let value = value.parse();
            let value = value.with_context(|| format!("{row:?} has no number in the last column"));
            samples.push(value?);
        }
    }
    Ok(())
}

/// Where samples of a row belong, if it is one that CDFs need.
pub(crate) fn place<'r>(
    results: &'r mut Results,
    variant: &str,
    quantity: &str,
    name: &str,
) -> Option<&'r mut Vec<f64>> {
    let of = results.variants.iter_mut().find(|v| v.name == variant)?;
    match quantity {
        "rtt_us" => Some(&mut of.samples.rtt_us),
        "fct_us" => Some(of.samples.fct_us.entry(name.into()).or_default()),
        _ => None,
    }
}

/// A writer that gathers small writes and compresses them together, for [`finish`]: each by itself
/// would take far longer.
pub(crate) fn gzipped<W: Write>(out: W) -> BufWriter<GzEncoder<W>> {
    BufWriter::with_capacity(64 << 10, GzEncoder::new(out, Compression::new(6)))
}

/// Writes what is left.
///
/// # Errors
/// Those of the writer within.
pub(crate) fn finish<W: Write>(out: BufWriter<GzEncoder<W>>) -> Result<()> {
    let encoder = out.into_inner().map_err(|error| error.into_error())?;
    encoder.finish()?.flush()?;
    Ok(())
}

/// A field as RFC 4180 wants it.
pub(crate) fn quoted(field: &str) -> std::borrow::Cow<'_, str> {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\"")).into()
    } else {
        field.into()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Read;

    use sluicegate_scenario::results::{Conditions, SCHEMA, Samples, Series, VariantResult};

    use super::*;

    /// Results of scenario `s` with one variant.
    pub fn results_of(variant: VariantResult) -> Results {
        Results {
            schema: SCHEMA,
            scenario: "s".into(),
            title: String::new(),
            mirrors: None,
            world: "lab".into(),
            seed: 1,
            conditions: Conditions::default(),
            variants: vec![variant],
            expectations: Vec::new(),
            published: Vec::new(),
        }
    }

    #[test]
    fn csv_reads_back() {
        let series = Series {
            name: "a>\"b\", c".into(),
            kind: SeriesKind::QueueBytes,
            points: vec![(0.5, 1500.0), (0.6, 0.0)],
        };
        let samples = Samples {
            rtt_us: vec![151.25],
            fct_us: [("mice".to_owned(), vec![900.0])].into(),
            unfinished: [("mice".to_owned(), 3)].into(),
            series: vec![series],
            ..Samples::default()
        };
        let results = results_of(VariantResult {
            name: "v".into(),
            samples,
            ..Default::default()
        });

        let mut file = Vec::new();
        samples_csv(&results, &mut file).unwrap();
        let mut text = String::new();
        flate2::read::GzDecoder::new(&file[..])
            .read_to_string(&mut text)
            .unwrap();
        let lines: Vec<_> = text.lines().collect();
        let mut again = results.clone();
        again.variants[0].samples = Samples::default();
        read_samples_csv(&mut again, &file[..]).unwrap();
        let samples = &again.variants[0].samples;
        assert_eq!(samples.rtt_us, [151.25]);
        assert_eq!(samples.fct_us["mice"], [900.0]);
        assert!(samples.series.is_empty());
        assert_eq!(
            lines,
            [
                "scenario,variant,quantity,name,time_s,value",
                "s,v,rtt_us,,,151.25",
                "s,v,fct_us,mice,,900",
                "s,v,fct_unfinished,mice,,3",
                "s,v,queue_bytes,\"a>\"\"b\"\", c\",0.5,1500",
                "s,v,queue_bytes,\"a>\"\"b\"\", c\",0.6,0",
            ]
        );
    }

    #[test]
    fn other_files_are_refused() {
        let gzip = |text: &str| {
            let mut out = GzEncoder::new(Vec::new(), Compression::fast());
            out.write_all(text.as_bytes()).unwrap();
            out.finish().unwrap()
        };
        let wrong = gzip(&(HEADER.join(",") + "\ns,v,rtt_us,,,much\n"));
        for (file, reason) in [
            (b"a text that nobody packed".to_vec(), "gzip"),
            (gzip("a,b\n1,2\n"), "the columns are not scenario, variant"),
            (wrong, "has no number"),
        ] {
            let mut results = results_of(VariantResult {
                name: "v".into(),
                ..Default::default()
            });
            let error = format!(
                "{:#}",
                read_samples_csv(&mut results, &file[..]).unwrap_err()
            );
            assert!(error.contains(reason), "{error}");
        }
    }
}
