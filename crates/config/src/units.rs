//! Quantities with their units: `"400KB"`, `"10Gbit"`, `"20us"`.
//!
//! Sizes are bytes (KB, MB, GB decimal; KiB, MiB, GiB binary), rates are bits per second, both
//! decimal; a number without its unit is an error.

use std::time::Duration;

use crate::problem::Complaint;

/// (suffix, how many base units it stands for), longest suffixes need not come first.
type Units = &'static [(&'static str, u64)];

const BYTES: Units = &[
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];
const RATES: Units = &[
    ("bit", 1),
    ("Kbit", 1_000),
    ("Mbit", 1_000_000),
    ("Gbit", 1_000_000_000),
    ("Tbit", 1_000_000_000_000),
];
const DURATIONS: Units = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
];

/// Bytes of a text such as `"400KB"` or `"1.5MiB"`.
///
/// # Errors
/// No unit, an unknown unit, not a whole number of bytes, or more than 64 bits hold.
pub fn parse_bytes(text: &str) -> Result<u64, Complaint> {
    quantity(text, BYTES, "bytes", "400KB")
}

/// Bits per second of a text such as `"10Gbit"`.
///
/// # Errors
/// As [`parse_bytes`].
pub fn parse_rate(text: &str) -> Result<u64, Complaint> {
    quantity(text, RATES, "bits per second", "10Gbit")
}

/// Duration of a text such as `"20us"`, in whole nanoseconds.
///
/// # Errors
/// As [`parse_bytes`].
pub fn parse_duration(text: &str) -> Result<Duration, Complaint> {
    quantity(text, DURATIONS, "nanoseconds", "20us").map(Duration::from_nanos)
}

/// The shortest exact text that [`parse_bytes`] reads back.
pub fn format_bytes(bytes: u64) -> String {
    format_quantity(bytes, BYTES)
}

/// The shortest exact text that [`parse_rate`] reads back.
pub fn format_rate(bits_per_second: u64) -> String {
    format_quantity(bits_per_second, RATES)
}

/// The shortest exact text that [`parse_duration`] reads back; saturates at 584 years.
pub fn format_duration(duration: Duration) -> String {
    let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    format_quantity(nanoseconds, DURATIONS)
}

fn quantity(text: &str, units: Units, base: &str, example: &str) -> Result<u64, Complaint> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
        .unwrap_or(text.len());
    let (number, unit) = (&text[..split], text[split..].trim());
    if unit.is_empty() && !number.is_empty() {
        return Err(Complaint::new(
            format!("\"{text}\" has no unit"),
            format!("write for example \"{example}\""),
        ));
    }
    let Some((_, factor)) = units.iter().find(|(suffix, _)| *suffix == unit) else {
        return Err(Complaint::new(
            format!("\"{text}\" is not a quantity in {base}"),
            format!("write for example \"{example}\" ({})", unit_list(units)),
        ));
    };
    scaled(number, *factor).map_err(|reason| {
        Complaint::new(
            format!("\"{text}\" {reason}"),
            format!("it must be a whole number of {base} below 2^64"),
        )
    })
}

fn unit_list(units: Units) -> String {
    let names: Vec<_> = units.iter().map(|(suffix, _)| *suffix).collect();
    names.join(", ")
}

/// `number` × `factor` exactly, where number is decimal digits with at most one point.
fn scaled(number: &str, factor: u64) -> Result<u64, &'static str> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: String = [whole, fraction].concat().replace('_', "");
    let places = fraction.chars().filter(char::is_ascii_digit).count();
    if whole.is_empty() || digits.contains('.') || (fraction.is_empty() && number.contains('.')) {
        return Err("is not a number with a unit");
    }
    let power = 10u128
        .checked_pow(u32::try_from(places).unwrap_or(u32::MAX))
        .ok_or("has too many decimal places")?;
    let product = digits
        .parse::<u128>()
        .ok()
        .and_then(|digits| digits.checked_mul(u128::from(factor)))
        .ok_or("is too large")?;
    if product % power != 0 {
        return Err("is finer than the smallest unit");
    }
    u64::try_from(product / power).map_err(|_| "is too large")
}

fn format_quantity(value: u64, units: Units) -> String {
    let best = units
        .iter()
        .filter(|(suffix, factor)| suffix.is_ascii() && value > 0 && value % *factor == 0)
        .max_by_key(|(_, factor)| *factor)
        .unwrap_or(&units[0]);
    format!("{}{}", value / best.1, best.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn decimal_and_binary_bytes_differ() {
        assert_eq!(parse_bytes("400KB"), Ok(400_000));
        assert_eq!(parse_bytes("4KiB"), Ok(4096));
        assert_eq!(parse_bytes("1.5MB"), Ok(1_500_000));
        assert_eq!(parse_bytes("9 B"), Ok(9));
    }

    #[test]
    fn rates_and_durations() {
        assert_eq!(parse_rate("10Gbit"), Ok(10_000_000_000));
        assert_eq!(parse_duration("20us"), Ok(Duration::from_micros(20)));
        assert_eq!(parse_duration("20µs"), Ok(Duration::from_micros(20)));
        assert_eq!(parse_duration("2.5s"), Ok(Duration::from_millis(2500)));
    }

    #[test]
    fn a_number_without_unit_is_refused_with_an_example() {
        let complaint = parse_bytes("4000").unwrap_err();
        assert!(complaint.reason.contains("has no unit"));
        assert!(complaint.advice.contains("400KB"));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "KB",
            "1.2.3KB",
            ".5KB",
            "5.KB",
            "-1KB",
            "1kb",
            "0.5B",
            "1e3B",
            "99999999999GB",
            "1.00000000000000000000000000000000000000000001KB",
        ] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn formatted_values_read_back(value: u64) {
            prop_assert_eq!(parse_bytes(&format_bytes(value)), Ok(value));
            prop_assert_eq!(parse_rate(&format_rate(value)), Ok(value));
            let duration = Duration::from_nanos(value);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn random_text_never_panics(text in ".{0,40}") {
            let _ = (parse_bytes(&text), parse_rate(&text), parse_duration(&text));
        }
    }
}
