//! Columns: the properties of a flow that can be shown, sorted and filtered by.

use std::{borrow::Cow, cmp::Ordering};

use super::Row;
use crate::columns::{Align, bytes};

/// One column. The names are those of `--sort` and of filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
#[value(rename_all = "lower")]
#[allow(missing_docs, reason = "each one's title and value are below")]
pub enum Column {
    Interface,
    Tenant,
    Local,
    Peer,
    Mode,
    Why,
    Rule,
    Algorithm,
    Window,
    Allowed,
    Shown,
    Advertised,
    Flight,
    Alpha,
    Srtt,
    Min,
    Acked,
    Marked,
    Received,
    Losses,
    Policed,
    Idle,
    Sending,
    Receiving,
    Marking,
    Losing,
}

/// The value of a cell, to be compared.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// It says nothing.
    None,
    /// A name.
    Text(Cow<'a, str>),
    /// A number.
    Number(f64),
}

impl Value<'_> {
    /// True for an empty cell.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Names by letters, numbers by size, names before numbers.
    pub fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Text(_), Self::Number(_)) => Ordering::Less,
            (Self::Number(_), Self::Text(_)) => Ordering::Greater,
            (a, b) => b.is_none().cmp(&a.is_none()),
        }
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text.into())
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

impl From<f64> for Value<'_> {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number as f64)
    }
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl Column {
    /// Every column, in the order in which they are shown.
    pub const ALL: [Self; 26] = [
        Self::Interface,
        Self::Tenant,
        Self::Local,
        Self::Peer,
        Self::Mode,
        Self::Why,
        Self::Rule,
        Self::Algorithm,
        Self::Window,
        Self::Allowed,
        Self::Shown,
        Self::Advertised,
        Self::Flight,
        Self::Alpha,
        Self::Srtt,
        Self::Min,
        Self::Acked,
        Self::Marked,
        Self::Received,
        Self::Losses,
        Self::Policed,
        Self::Idle,
        Self::Sending,
        Self::Receiving,
        Self::Marking,
        Self::Losing,
    ];

    /// The columns of `sluicegate flows`.
    pub const LISTED: [Self; 17] = [
        Self::Interface,
        Self::Tenant,
        Self::Local,
        Self::Peer,
        Self::Mode,
        Self::Why,
        Self::Algorithm,
        Self::Allowed,
        Self::Shown,
        Self::Advertised,
        Self::Alpha,
        Self::Srtt,
        Self::Min,
        Self::Acked,
        Self::Marked,
        Self::Losses,
        Self::Policed,
    ];

    /// The columns of `sluicegate top`: from the left as much as there is room for.
    pub const WATCHED: [Self; 17] = [
        Self::Tenant,
        Self::Local,
        Self::Peer,
        Self::Sending,
        Self::Receiving,
        Self::Marking,
        Self::Srtt,
        Self::Allowed,
        Self::Advertised,
        Self::Mode,
        Self::Why,
        Self::Algorithm,
        Self::Losing,
        Self::Alpha,
        Self::Policed,
        Self::Acked,
        Self::Rule,
    ];

    /// The name that `--sort` and filters know.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// The column with this name.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        Self::ALL.into_iter().find(|column| column.name() == name)
    }

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Interface => "interface",
            Self::Tenant => "tenant",
            Self::Local => "local",
            Self::Peer => "peer",
            Self::Mode => "mode",
            Self::Why => "why",
            Self::Rule => "rule",
            Self::Algorithm => "algorithm",
            Self::Window => "window",
            Self::Allowed => "allowed",
            Self::Shown => "shown",
            Self::Advertised => "peer's",
            Self::Flight => "flight",
            Self::Alpha => "alpha",
            Self::Srtt => "srtt us",
            Self::Min => "min us",
            Self::Acked => "acked",
            Self::Marked => "marked",
            Self::Received => "received",
            Self::Losses => "losses",
            Self::Policed => "policed",
            Self::Idle => "idle ms",
            Self::Sending => "send b/s",
            Self::Receiving => "recv b/s",
            Self::Marking => "mark %",
            Self::Losing => "loss/s",
        }
    }

    /// Whether it holds numbers.
    pub fn is_number(self) -> bool {
        !matches!(
            self,
            Self::Interface
                | Self::Tenant
                | Self::Local
                | Self::Peer
                | Self::Mode
                | Self::Why
                | Self::Algorithm
        )
    }

    /// Numbers stand at the right.
    pub fn align(self) -> Align {
        if self.is_number() {
            Align::Right
        } else {
            Align::Left
        }
    }

    /// Of this row, to be compared.
    pub fn value(self, row: &Row) -> Value<'_> {
        let Row { flow, rates } = row;
        match self {
            Self::Interface => flow.interface.as_str().into(),
            Self::Tenant => flow.tenant.as_str().into(),
            Self::Local => Value::Text(flow.local.to_string().into()),
            Self::Peer => Value::Text(flow.remote.to_string().into()),
            Self::Mode => flow.mode.into(),
            Self::Why => match flow.why() {
                why if why.is_empty() => Value::None,
                why => Value::Text(why.into()),
            },
            Self::Rule => flow.rule.map(|rule| u64::from(rule) + 1).into(),
            Self::Algorithm => flow.algorithm.into(),
            Self::Window => flow.cwnd_bytes.into(),
            Self::Allowed => flow.allowed_window_bytes.into(),
            Self::Shown => flow.enforced_window_bytes.into(),
            Self::Advertised => flow.advertised_window_bytes.into(),
            Self::Flight => flow.flight_bytes.into(),
            Self::Alpha => flow.alpha.into(),
            Self::Srtt => flow.srtt_us.into(),
            Self::Min => flow.min_rtt_us.into(),
            Self::Acked => flow.acked_bytes.into(),
            Self::Marked => flow.marked_bytes.into(),
            Self::Received => flow.received_bytes.into(),
            Self::Losses => (u64::from(flow.losses) + u64::from(flow.timeouts)).into(),
            Self::Policed => flow.policed.into(),
            Self::Idle => flow.idle_ms.into(),
            Self::Sending => rates.map(|rates| rates.acked_bps).into(),
            Self::Receiving => rates.map(|rates| rates.received_bps).into(),
            Self::Marking => rates
                .and_then(|rates| rates.marked_share())
                .map(|share| 100.0 * share)
                .into(),
            Self::Losing => rates.map(|rates| rates.losses_per_s).into(),
        }
    }

    /// Of this row, for people. What only would be, had the rule enforced, has a `~`.
    pub fn cell(self, row: &Row) -> String {
        let flow = &row.flow;
        match (self, self.value(row)) {
            (_, Value::None) => "-".to_owned(),
            (Self::Interface, Value::Text(name)) => match flow.vlan {
                Some(vlan) => format!("{name}.{vlan}"),
                None => name.into_owned(),
            },
            (_, Value::Text(text)) => text.into_owned(),
            (Self::Allowed, Value::Number(window)) if flow.is_observed() => {
                format!("~{}", bytes(window as u64))
            }
            (_, Value::Number(number)) => self.number(number),
        }
    }

    fn number(self, number: f64) -> String {
        match self {
            Self::Window
            | Self::Allowed
            | Self::Shown
            | Self::Advertised
            | Self::Flight
            | Self::Acked
            | Self::Marked
            | Self::Received => bytes(number as u64),
            Self::Sending | Self::Receiving => rate(number),
            Self::Alpha => format!("{number:.3}"),
            Self::Marking | Self::Losing => format!("{number:.1}"),
            _ => format!("{number:.0}"),
        }
    }
}

/// A rate as people read it, in powers of ten: `9.41G`, `812k`.
pub fn rate(per_second: f64) -> String {
    let mut value = per_second;
    for unit in ["", "k", "M", "G"] {
        if value < 999.5 {
            let digits = match value {
                _ if unit.is_empty() || value >= 99.95 => 0,
                value if value >= 9.995 => 1,
                _ => 2,
            };
            return format!("{value:.digits$}{unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.2}T")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flowtable::{Rates, tests::row};
    use clap::ValueEnum;

    #[test]
    fn every_column_has_one_name_everywhere() {
        assert_eq!(Column::value_variants(), Column::ALL);
        for column in Column::ALL {
            assert_eq!(Column::named(&column.name()), Some(column));
            let of_clap = column.to_possible_value().unwrap();
            assert_eq!(of_clap.get_name(), column.name());
        }
        assert_eq!(Column::named("speed"), None);
    }

    #[test]
    fn columns_of_numbers_hold_numbers_only() {
        let mut full = row("a", 1);
        full.rates = Some(Rates {
            acked_bps: 1.0,
            ..Rates::default()
        });
        for column in Column::ALL {
            let is_number = matches!(column.value(&full), Value::Number(_));
            assert_eq!(is_number, column.is_number(), "{column:?}");
        }
    }

    #[test]
    fn cells_are_for_people() {
        let mut row = row("veth0", 40_000);
        row.flow.vlan = Some(12);
        assert_eq!(Column::Interface.cell(&row), "veth0.12");
        assert_eq!(Column::Allowed.cell(&row), "~20.0K");
        row.flow.reason = None;
        assert_eq!(Column::Allowed.cell(&row), "20.0K");
        assert_eq!(Column::Why.cell(&row), "-");
        assert_eq!(Column::Alpha.cell(&row), "0.500");
        assert_eq!(Column::Rule.cell(&row), "1");
        assert_eq!(Column::Sending.cell(&row), "-");
    }

    #[test]
    fn rates_have_three_digits() {
        let shown = [0.0, 999.4, 999.6, 1234.0, 99_960.0, 9.41e9, 2e13];
        assert_eq!(
            shown.map(rate),
            ["0", "999", "1.00k", "1.23k", "100k", "9.41G", "20.00T"]
        );
    }
}
