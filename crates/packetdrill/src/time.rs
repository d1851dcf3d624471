//! Times of scripts: seconds with a fraction, kept in ns.

/// Longest time that a script may name; far from any overflow.
const LONGEST_S: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// `0`, `.1`, `1.000250`: seconds into ns. Digits beyond the ninth are dropped.
pub fn parse_seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    if whole > LONGEST_S || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let mut ns = 0;
    let mut unit = SECOND_NS / 10;
    for digit in fraction.bytes() {
        ns += u64::from(digit - b'0') * unit;
        unit /= 10;
    }
    Some(whole * SECOND_NS + ns)
}

/// For people: seconds with six digits.
pub fn seconds(ns: u64) -> String {
    format!("{}.{:06}", ns / SECOND_NS, ns % SECOND_NS / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_nanoseconds() {
        assert_eq!(parse_seconds("0"), Some(0));
        assert_eq!(parse_seconds(".1"), Some(100_000_000));
        assert_eq!(parse_seconds("1.000250"), Some(1_000_250_000));
        assert_eq!(parse_seconds("0.12345678987"), Some(123_456_789));
        assert_eq!(parse_seconds("99999999999"), None);
        assert_eq!(parse_seconds("x"), None);
        assert_eq!(seconds(1_000_250_999), "1.000250");
    }
}
