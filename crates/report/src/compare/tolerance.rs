//! How far figures may lie apart.

use std::{fmt, str::FromStr};

use serde::Serialize;

/// The factor that two figures may differ by, whichever is larger. Written `5%` or `2x`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance(f64);

impl Tolerance {
    /// Differences of up to so many per cent.
    pub const fn percent(percent: f64) -> Self {
        Self(1.0 + percent / 100.0)
    }

    /// Whether one figure is at most the factor times the other. Two zeros agree; zero and
    /// something do not.
    pub fn allows(self, a: f64, b: f64) -> bool {
        // A hair more, so that 1.05 is within 5 % in spite of rounding.
        let factor = self.0 * (1.0 + 1e-9);
        a.max(b) <= a.min(b) * factor
    }
}

impl FromStr for Tolerance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |digits: &str| digits.trim().parse::<f64>().ok().filter(|n| n.is_finite());
        let factor = match (text.strip_suffix('%'), text.strip_suffix('x')) {
            (Some(percent), _) => number(percent).map(|n| 1.0 + n / 100.0),
            (_, Some(factor)) => number(factor),
            _ => None,
        };
        match factor {
            Some(factor) if factor >= 1.0 => Ok(Self(factor)),
            _ => Err("write a difference such as 5% or a factor of 1 or more such as 2x".into()),
        }
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let round = |value: f64| (value * 1e3).round() / 1e3;
        if self.0 < 2.0 {
            write!(f, "{}%", round((self.0 - 1.0) * 100.0))
        } else {
            write!(f, "{}x", round(self.0))
        }
    }
}

impl Serialize for Tolerance {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The tolerances within which two results tell the same story.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tolerances {
    /// Of a variant's sum of goodputs.
    pub goodput: Tolerance,
    /// Of a variant's median RTT.
    pub rtt_p50: Tolerance,
    /// Of a variant's RTT p99.
    pub rtt_p99: Tolerance,
    /// Of the ratio of two variants: goodput, Jain, median RTT and FCT.
    pub ratio: Tolerance,
    /// Of the ratio of two variants: RTT and FCT p99.
    pub ratio_p99: Tolerance,
    /// Variants that lie no further apart have tied.
    pub tie: Tolerance,
}

impl Tolerances {
    /// Of the ratio of two variants in a figure.
    pub fn of_ratio(&self, figure: &str) -> Tolerance {
        match figure.ends_with("p99") {
            true => self.ratio_p99,
            false => self.ratio,
        }
    }
}

impl Default for Tolerances {
    fn default() -> Self {
        Self {
            goodput: Tolerance::percent(5.0),
            rtt_p50: Tolerance::percent(20.0),
            rtt_p99: Tolerance::percent(100.0),
            ratio: Tolerance::percent(20.0),
            ratio_p99: Tolerance::percent(100.0),
            tie: Tolerance::percent(5.0),
        }
    }
}

impl fmt::Display for Tolerances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "goodput {}, RTT p50 {}, p99 {}; ratios of variants {}, of p99 {}; ties {}",
            self.goodput, self.rtt_p50, self.rtt_p99, self.ratio, self.ratio_p99, self.tie
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn per_cent_and_factors_read_back() {
        for (text, shown) in [
            ("5%", "5%"),
            ("0.5%", "0.5%"),
            ("1.2x", "20%"),
            ("2x", "2x"),
            ("150%", "2.5x"),
        ] {
            assert_eq!(text.parse::<Tolerance>().unwrap().to_string(), shown);
        }
        for wrong in ["5", "", "x", "-5%", "0.5x", "infx", "nan%", "5 apples"] {
            assert!(wrong.parse::<Tolerance>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn neither_side_is_favoured() {
        let five = Tolerance::percent(5.0);
        for (a, b, within) in [
            (100.0, 105.0, true),
            (105.0, 100.0, true),
            (100.0, 105.1, false),
            (105.1, 100.0, false),
            (0.0, 0.0, true),
            (0.0, 1e-9, false),
        ] {
            assert_eq!(five.allows(a, b), within, "{a} and {b}");
        }
    }
}
