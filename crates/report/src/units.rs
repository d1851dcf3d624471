//! Figures as people read them: one unit per column, three significant digits.

/// A unit: what one of it is worth in the base unit, and how it is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// Base units in one of these.
    pub scale: f64,
    /// Symbol, such as `ms`.
    pub symbol: &'static str,
}

const fn unit(scale: f64, symbol: &'static str) -> Unit {
    Unit { scale, symbol }
}

/// Base microsecond. Times and sizes turn to the next unit at ten of it, so that 1.5 ms beside 150
/// µs stays in µs.
const TIME: [Unit; 3] = [unit(1.0, "µs"), unit(1e3, "ms"), unit(1e6, "s")];
/// Base bit per second.
const RATE: [Unit; 4] = [
    unit(1.0, "b/s"),
    unit(1e3, "kb/s"),
    unit(1e6, "Mb/s"),
    unit(1e9, "Gb/s"),
];
/// Base byte; decimal, as in scenario files.
const SIZE: [Unit; 4] = [
    unit(1.0, "B"),
    unit(1e3, "KB"),
    unit(1e6, "MB"),
    unit(1e9, "GB"),
];

/// Unit for a column of times in microseconds.
pub fn time(values_us: impl IntoIterator<Item = f64>) -> Unit {
    choose(&TIME, values_us, 10.0)
}

/// Unit for a column of rates in bit/s.
pub fn rate(values_bps: impl IntoIterator<Item = f64>) -> Unit {
    choose(&RATE, values_bps, 1.0)
}

/// Unit for a column of sizes in bytes.
pub fn size(values_bytes: impl IntoIterator<Item = f64>) -> Unit {
    choose(&SIZE, values_bytes, 10.0)
}

/// The largest unit of which the largest value holds at least `least`.
fn choose(units: &[Unit], values: impl IntoIterator<Item = f64>, least: f64) -> Unit {
    let largest = values
        .into_iter()
        .filter(|v| v.is_finite())
        .fold(0.0, f64::max);
    let fits = |unit: &&Unit| largest >= least * unit.scale;
    *units[1..].iter().rev().find(fits).unwrap_or(&units[0])
}

impl Unit {
    /// The value in this unit, without the symbol.
    pub fn write(&self, value: f64) -> String {
        significant(value / self.scale)
    }
}

/// Three significant digits and never an exponent; whole numbers from 100 on; `–` for what is no
/// number.
pub fn significant(value: f64) -> String {
    let magnitude = value.abs();
    if !value.is_finite() {
        "–".into()
    } else if magnitude == 0.0 {
        "0".into()
    } else if magnitude >= 99.95 {
        format!("{value:.0}")
    } else if magnitude >= 9.995 {
        format!("{value:.1}")
    } else if magnitude >= 0.9995 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

/// A ratio: three significant digits, also of small ones.
pub fn ratio(value: f64) -> String {
    match value.abs() {
        small if small > 0.0 && small < 0.0995 => format!("{value:.4}"),
        _ => significant(value),
    }
}

/// A value of unknown scale, as expectations have them: four significant digits, large ones with k,
/// M, G.
pub fn plain(value: f64) -> String {
    let magnitude = value.abs();
    let (scale, suffix) = match magnitude {
        m if m >= 1e9 => (1e9, " G"),
        m if m >= 1e6 => (1e6, " M"),
        m if m >= 1e5 => (1e3, " k"),
        _ => (1.0, ""),
    };
    let scaled = value / scale;
    let text = match scaled.abs() {
        _ if !value.is_finite() => return "–".into(),
        s if s >= 1000.0 => format!("{scaled:.0}"),
        s if s >= 100.0 => format!("{scaled:.1}"),
        s if s >= 10.0 => format!("{scaled:.2}"),
        s if s >= 1.0 => format!("{scaled:.3}"),
        _ => format!("{scaled:.4}"),
    };
    let short = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{short}{suffix}")
}

/// A fraction as a percentage without decimals.
pub fn percent(fraction: f64) -> String {
    format!("{:.0}%", fraction * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_share_the_unit_of_the_largest() {
        let column = [155.0, 1470.0];
        assert_eq!(time(column).symbol, "µs");
        assert_eq!(time(column).write(1470.0), "1470");
        let wide = [155.0, 15_300.0];
        assert_eq!(time(wide).symbol, "ms");
        assert_eq!(time(wide).write(155.0), "0.155");
        assert_eq!(time([2e7]).symbol, "s");
    }

    #[test]
    fn rates_and_sizes_are_decimal() {
        assert_eq!(rate([941e6, 1.02e9]).write(941e6), "0.941");
        assert_eq!(rate([941e6]).write(941e6), "941");
        assert_eq!(size([30_000.0]).write(30_000.0), "30.0");
        assert_eq!(size([30_000.0]).symbol, "KB");
        assert_eq!(size([23_000.0, 2e6]).symbol, "KB");
        assert_eq!(size([]).symbol, "B");
    }

    #[test]
    fn digits_do_not_jump_at_powers_of_ten() {
        let cases = [
            (0.9996, "1.00"),
            (9.996, "10.0"),
            (99.96, "100"),
            (0.0, "0"),
            (12_345.6, "12346"),
            (-1.5, "-1.50"),
        ];
        for (value, text) in cases {
            assert_eq!(significant(value), text);
        }
        assert_eq!(significant(f64::NAN), "–");
    }

    #[test]
    fn small_ratios_keep_their_digits() {
        for (value, text) in [
            (0.0361, "0.0361"),
            (0.0996, "0.100"),
            (2.0, "2.00"),
            (0.0, "0"),
        ] {
            assert_eq!(ratio(value), text);
        }
    }

    #[test]
    fn expectation_values_keep_enough_digits_to_compare() {
        let cases = [
            (0.9944, "0.9944"),
            (0.98, "0.98"),
            (15_300.0, "15300"),
            (940_123_456.0, "940.1 M"),
            (8.0, "8"),
        ];
        for (value, text) in cases {
            assert_eq!(plain(value), text);
        }
        assert_eq!(plain(f64::INFINITY), "–");
    }
}
