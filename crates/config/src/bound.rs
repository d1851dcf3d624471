//! The least and the most of a number, and why: what [`Item::within`] checks, and a table shows.

use std::time::Duration;

use crate::{
    problem::Complaint,
    table::Item,
    units::{format_bytes, format_duration, format_rate, parse_bytes, parse_duration, parse_rate},
};

/// Bytes, written with a unit.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Bytes(pub u64);

/// Bits per second, written with a unit.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Rate(pub u64);

/// A kind of number that a file may hold.
pub trait Quantity: Copy + PartialOrd {
    /// The most that a file can say: a bound that ends here has no upper end of its own.
    const MOST: Self;

    /// What a table calls it.
    const KIND: &'static str;

    /// Reads one, whatever its size; what is none has been reported by then.
    fn read(item: &Item<'_>) -> Option<Self>;

    /// As in a file.
    fn text(self) -> String;
}

impl Quantity for i64 {
    const MOST: Self = Self::MAX;
    const KIND: &'static str = "whole number";

    fn read(item: &Item<'_>) -> Option<Self> {
        item.integer(Self::MIN..=Self::MAX)
    }

    fn text(self) -> String {
        self.to_string()
    }
}

impl Quantity for f64 {
    const MOST: Self = Self::INFINITY;
    const KIND: &'static str = "number";

    fn read(item: &Item<'_>) -> Option<Self> {
        item.any_number()
    }

    fn text(self) -> String {
        match self.abs() {
            size if size >= 1e7 || size > 0.0 && size < 1e-3 => format!("{self:e}"),
            _ => self.to_string(),
        }
    }
}

impl Quantity for Bytes {
    const MOST: Self = Self(u64::MAX);
    const KIND: &'static str = "bytes";

    fn read(item: &Item<'_>) -> Option<Self> {
        item.parse(parse_bytes).map(Self)
    }

    fn text(self) -> String {
        format_bytes(self.0)
    }
}

impl Quantity for Rate {
    const MOST: Self = Self(u64::MAX);
    const KIND: &'static str = "rate";

    fn read(item: &Item<'_>) -> Option<Self> {
        item.parse(parse_rate).map(Self)
    }

    fn text(self) -> String {
        format_rate(self.0)
    }
}

impl Quantity for Duration {
    const MOST: Self = Self::MAX;
    const KIND: &'static str = "time";

    fn read(item: &Item<'_>) -> Option<Self> {
        item.parse(parse_duration)
    }

    fn text(self) -> String {
        match self.is_zero() {
            true => "0s".to_owned(),
            false => format_duration(self),
        }
    }
}

/// The least and the most of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound<T> {
    /// The keys that have it, as dotted paths, with NAME for names.
    pub keys: &'static [&'static str],
    /// The least that is allowed.
    pub least: T,
    /// The most that is allowed; [`Quantity::MOST`] if there is none.
    pub most: T,
    /// Why, in a line: what happens beyond.
    pub reason: &'static str,
}

impl<T: Quantity> Bound<T> {
    /// Whether a value is allowed; NaN is not.
    pub fn allows(&self, value: T) -> bool {
        self.least <= value && value <= self.most
    }

    /// The part of it from `least` on.
    pub fn at_least(self, least: T) -> Self {
        let least = if least > self.least {
            least
        } else {
            self.least
        };
        Self { least, ..self }
    }

    /// The part of it up to `most`.
    pub fn up_to(self, most: T) -> Self {
        let most = if most < self.most { most } else { self.most };
        Self { most, ..self }
    }

    /// That a value is outside: both ends, the value, and as advice the reason.
    pub fn complaint(&self, value: T) -> Complaint {
        let [least, value] = [self.least, value].map(T::text);
        let reason = match self.most == T::MOST {
            true => format!("must be {least} or more, not {value}"),
            false => format!(
                "must lie between {least} and {}, not {value}",
                self.most.text()
            ),
        };
        Complaint::new(reason, self.reason)
    }

    /// Its row in a table of Markdown: keys, kind, least, most, reason.
    pub fn row(&self) -> String {
        let keys: Vec<_> = self.keys.iter().map(|key| format!("`{key}`")).collect();
        let most = match self.most == T::MOST {
            true => "–".to_owned(),
            false => self.most.text(),
        };
        let (keys, least) = (keys.join(", "), self.least.text());
        format!(
            "| {keys} | {} | {least} | {most} | {} |",
            T::KIND,
            self.reason
        )
    }
}

/// Priorities of IEEE 802.1Q.
pub const PRIORITIES: Bound<i64> = Bound {
    keys: &["priorities"],
    least: 0,
    most: 7,
    reason: "a tag of IEEE 802.1Q has 3 bits for it",
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{document, problem::Sink, table::Table};

    const COUNT: Bound<i64> = Bound {
        keys: &["t.a"],
        least: 1,
        most: 8,
        reason: "three bits",
    };

    fn read<T: Quantity>(value: &str, bound: &Bound<T>) -> Result<Option<T>, String> {
        let node = document::parse("t.toml", &format!("a = {value}\n")).unwrap();
        let sink = Sink::default();
        let value = Table::root(&node, &sink).within("a", bound);
        sink.finish(value).map_err(|problems| problems.to_string())
    }

    #[test]
    fn both_ends_are_allowed_and_what_is_outside_is_told_why() {
        assert_eq!(read("1", &COUNT), Ok(Some(1)));
        assert_eq!(read("8", &COUNT), Ok(Some(8)));
        let told = "t.toml:1:5: a: must lie between 1 and 8, not 9; three bits";
        assert_eq!(read("9", &COUNT), Err(told.to_owned()));
        assert!(read("0", &COUNT).is_err());
        assert!(read("1.0", &COUNT).unwrap_err().contains("a whole number"));
    }

    #[test]
    fn a_number_may_be_written_as_an_integer_and_is_never_nan() {
        let bound = Bound {
            keys: &["t.a"],
            least: 1e-9,
            most: 4e9,
            reason: "so",
        };
        assert_eq!(read("2", &bound), Ok(Some(2.0)));
        assert!(read("nan", &bound).is_err());
        let told = read("0", &bound).unwrap_err();
        assert!(told.contains("between 1e-9 and 4e9, not 0; so"), "{told}");
    }

    #[test]
    fn quantities_keep_their_units() {
        let bound = Bound {
            keys: &["t.a"],
            least: Duration::from_micros(1),
            most: Duration::MOST,
            reason: "so",
        };
        let told = read("'10ns'", &bound).unwrap_err();
        assert!(told.contains("must be 1us or more, not 10ns; so"), "{told}");
        assert_eq!(bound.row(), "| `t.a` | time | 1us | – | so |");
    }

    #[test]
    fn a_part_does_not_go_beyond_the_whole() {
        let part = COUNT.at_least(0).up_to(9);
        assert_eq!((part.least, part.most), (1, 8));
        let part = COUNT.at_least(2).up_to(3);
        assert_eq!((part.least, part.most), (2, 3));
    }
}
