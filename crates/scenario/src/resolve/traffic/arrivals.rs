//! `arrivals`: times from one begin to the next.

use std::path::Path;

use sluicegate_config::{
    problem::Complaint,
    table::{Item, Table},
    units::parse_duration,
};

use crate::{bounds, cdf::Cdf, experiment::Arrivals};

pub const ADVICE: &str = "use { kind = \"exponential\", mean = \"10ms\" }, { kind = \"fixed\", interval = \"10ms\" }, \
    { kind = \"lognormal\", median = \"5ms\", sigma = 1.5 }, or the path of an `ns,cdf` file";

#[derive(Clone, Copy)]
enum Kind {
    Fixed,
    Exponential,
    Lognormal,
}

const KINDS: [(&str, Kind); 3] = [
    ("fixed", Kind::Fixed),
    ("exponential", Kind::Exponential),
    ("lognormal", Kind::Lognormal),
];

/// A table, or a file of times.
pub fn read(item: &Item<'_>, directory: &Path) -> Option<Arrivals> {
    if !item.is_text() {
        return read_table(item.table()?);
    }
    let cdf = item.parse(|text| {
        let path = directory.join(text);
        let content = std::fs::read_to_string(&path).map_err(|error| {
            let reason = format!("{} cannot be read: {error}", path.display());
            Complaint::new(reason, ADVICE)
        })?;
        Cdf::parse_times(&path.display().to_string(), &content)
            .map_err(|p| Complaint::new(format!("{}:{}: {}", p.file, p.line, p.reason), p.advice))
    })?;
    Some(Arrivals::Drawn { cdf, factor: 1.0 })
}

fn read_table(table: Table<'_>) -> Option<Arrivals> {
    let Some(kind) = table.choice("kind", &KINDS) else {
        if table.get("kind").is_none() {
            table.require("kind", ADVICE);
        }
        return None;
    };
    let arrivals = match kind {
        Kind::Fixed => Arrivals::Fixed {
            interval_s: read_seconds(&table, "interval")?,
        },
        Kind::Exponential => Arrivals::Exponential {
            mean_s: read_seconds(&table, "mean")?,
        },
        Kind::Lognormal => {
            if table.get("sigma").is_none() {
                table.require("sigma", ADVICE);
            }
            Arrivals::Lognormal {
                median_s: read_seconds(&table, "median")?,
                sigma: table.within("sigma", &bounds::SIGMA)?,
            }
        }
    };
    table.close();
    Some(arrivals)
}

/// A time above zero, in seconds.
pub fn read_seconds(table: &Table<'_>, key: &'static str) -> Option<f64> {
    let Some(item) = table.get(key) else {
        table.require(key, ADVICE);
        return None;
    };
    let time = item.parse(parse_duration)?;
    if time.is_zero() {
        item.complain("must not be zero", "");
        return None;
    }
    Some(time.as_secs_f64())
}
