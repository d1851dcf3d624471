//! Traces for other programs: one row per point, long form.

use std::io::Write;

use anyhow::Result;
use sluicegate_scenario::results::{Results, VariantResult};

use crate::samples::{finish, gzipped, quoted};

/// One point. The columns of `traces.csv.gz` and `traces.parquet`, in this order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row<'a> {
    /// Scenario.
    pub scenario: &'a str,
    /// Variant.
    pub variant: &'a str,
    /// Repeat, from 1.
    pub repeat: u32,
    /// The measured quantity, with its unit:
    /// [`TraceKind::quantity`](sluicegate_scenario::results::TraceKind::quantity).
    pub quantity: &'static str,
    /// Flow or link.
    pub name: &'a str,
    /// Seconds since the start of the run.
    pub time_s: f64,
    /// The value.
    pub value: f64,
}

/// The first line of `traces.csv.gz`.
const HEADER: &str = "scenario,variant,repeat,quantity,name,time_s,value";

/// Every point of every trace.
pub(crate) fn rows<'r>(results: &'r Results) -> impl Iterator<Item = Row<'r>> {
    let traces = |variant: &'r VariantResult| {
        let traces = variant.samples.traces.iter();
        traces.map(|trace| (variant.name.as_str(), trace))
    };
    results
        .variants
        .iter()
        .flat_map(traces)
        .flat_map(move |(variant, trace)| {
            trace.points.iter().map(move |&(time_s, value)| Row {
                scenario: &results.scenario,
                variant,
                repeat: trace.repeat,
                quantity: trace.kind.quantity(),
                name: &trace.name,
                time_s,
                value,
            })
        })
}

/// Writes every point of every trace as gzipped CSV (RFC 4180, UTF-8, header line).
///
/// Columns: `scenario, variant, repeat, quantity, name, time_s, value`; the quantity names its
/// unit.
///
/// # Errors
/// Those of `out`.
pub fn traces_csv(results: &Results, out: impl Write) -> Result<()> {
    let mut out = gzipped(out);
    writeln!(out, "{HEADER}")?;
    for row in rows(results) {
        let [scenario, variant, name] = [row.scenario, row.variant, row.name].map(quoted);
        writeln!(
            out,
            "{scenario},{variant},{},{},{name},{},{}",
            row.repeat, row.quantity, row.time_s, row.value
        )?;
    }
    finish(out)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Read;

    use sluicegate_scenario::results::{Trace, TraceKind, VariantResult};

    use super::*;
    use crate::samples::tests::results_of;

    /// Results with one trace of two points in the second repeat.
    pub fn traced() -> Results {
        let mut variant = VariantResult {
            name: "v".into(),
            ..Default::default()
        };
        variant.samples.traces = vec![Trace {
            repeat: 2,
            kind: TraceKind::InFlight,
            name: "0 a>b, \"c\"".into(),
            points: vec![(0.25, 2896.0), (0.5, 0.0)],
        }];
        results_of(variant)
    }

    #[test]
    fn csv_has_a_row_per_point() {
        let mut file = Vec::new();
        traces_csv(&traced(), &mut file).unwrap();
        let mut text = String::new();
        flate2::read::GzDecoder::new(&file[..])
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                HEADER,
                "s,v,2,in_flight_bytes,\"0 a>b, \"\"c\"\"\",0.25,2896",
                "s,v,2,in_flight_bytes,\"0 a>b, \"\"c\"\"\",0.5,0",
            ]
        );
    }
}
