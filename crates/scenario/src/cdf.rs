//! Distributions of flow sizes, and of times between flows: reading them from `bytes,cdf` and
//! `ns,cdf` files, and sampling.
//!
//! Public files of this kind differ in ways that silently change an experiment: sizes in bytes or
//! packets, probabilities up to 1 or up to 100, a mean on the first line. Here the header must say
//! `bytes,cdf`, and whatever could be read in two ways is refused. Equal neighbours can be read in
//! one way only: rows of one probability are a range that nothing falls into, rows of one size are
//! a probability of exactly that size.

use sluicegate_config::Problem;

/// A piecewise linear cumulative distribution of flow sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Cdf {
    /// Name or path, for people.
    pub name: String,
    /// (bytes, probability of a flow being that large or smaller), neither descending, ending at 1.
    /// The second point, if there is one, is above 0.
    points: Vec<(u64, f64)>,
}

const BUILT_IN: [(&str, &str); 3] = [
    ("websearch", include_str!("../data/websearch.csv")),
    ("datamining", include_str!("../data/datamining.csv")),
    ("hadoop", include_str!("../data/hadoop.csv")),
];

/// The web-search distribution, scaled to the mean sizes in bytes of the zOVN thesis's background
/// flows (section 2.6.3, "28 KB and 583 K").
const SCALED: [(&str, u64); 2] = [("background-medium", 28_000), ("background-large", 583_000)];

impl Cdf {
    /// Names of the distributions that come with the program.
    pub fn built_in_names() -> impl Iterator<Item = &'static str> {
        let scaled = SCALED.iter().map(|(name, _)| *name);
        BUILT_IN.iter().map(|(name, _)| *name).chain(scaled)
    }

    /// A distribution that comes with the program.
    pub fn built_in(name: &str) -> Option<Self> {
        if let Some((name, mean_bytes)) = SCALED.iter().find(|(known, _)| *known == name) {
            let scaled = Self::built_in("websearch")?.with_mean(*mean_bytes);
            return Some(Self {
                name: (*name).to_owned(),
                ..scaled
            });
        }
        let (name, text) = BUILT_IN.iter().find(|(known, _)| *known == name)?;
        Self::parse(name, text).ok()
    }

    /// Reads a `bytes,cdf` file; `#` starts a comment line.
    ///
    /// # Errors
    /// The first line that is wrong or could be read in two ways.
    pub fn parse(name: &str, text: &str) -> Result<Self, Problem> {
        let advice = "without it sizes could be packets and probabilities per cent; add it once \
                     you know, and leave out any line that holds a mean";
        Self::parse_with("bytes,cdf", advice, name, text)
    }

    /// Reads a file of times in the same form, with the header `ns,cdf`.
    ///
    /// # Errors
    /// As [`Cdf::parse`].
    pub fn parse_times(name: &str, text: &str) -> Result<Self, Problem> {
        let advice = "without it times could be in any unit; add it once they are in ns";
        Self::parse_with("ns,cdf", advice, name, text)
    }

    fn parse_with(header: &str, advice: &str, name: &str, text: &str) -> Result<Self, Problem> {
        let refuse = |line: usize, reason: String, advice: &str| Problem {
            file: name.to_owned(),
            line,
            column: 1,
            key: String::new(),
            reason,
            advice: advice.to_owned(),
        };
        let mut lines = (1..)
            .zip(text.lines().map(str::trim))
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        match lines.next() {
            Some((_, line)) if line == header => {}
            other => {
                return Err(refuse(
                    other.map_or(1, |(line, _)| line),
                    format!("the header `{header}` is missing"),
                    advice,
                ));
            }
        }
        let mut points: Vec<(u64, f64)> = Vec::new();
        let mut last_line = 1;
        for (line, row) in lines {
            let point = parse_point(row)
                .and_then(|point| follows(points.last(), point))
                .map_err(|reason| refuse(line, format!("`{row}` {reason}"), ROW_ADVICE))?;
            points.push(point);
            last_line = line;
        }
        // Nothing is smaller than the last of those at 0.
        let at_zero = points.partition_point(|(_, p)| *p <= 0.0);
        points.drain(..at_zero.saturating_sub(1));
        match points.last() {
            Some((_, 1.0)) => Ok(Self {
                name: name.to_owned(),
                points,
            }),
            Some((_, last)) => Err(refuse(
                last_line,
                format!("the distribution ends at {last}, not at 1"),
                "complete it",
            )),
            None => Err(refuse(
                last_line,
                "the distribution is empty".to_owned(),
                ROW_ADVICE,
            )),
        }
    }

    /// The flow size in bytes at probability `u`, 0..=1; linear between points, never 0.
    pub fn sample(&self, u: f64) -> u64 {
        let above = self.points.partition_point(|(_, p)| *p < u);
        let Some((high_bytes, high_p)) = self.points.get(above).copied() else {
            return self.points.last().map_or(1, |(bytes, _)| (*bytes).max(1));
        };
        let Some((low_bytes, low_p)) = above.checked_sub(1).map(|at| self.points[at]) else {
            return high_bytes.max(1);
        };
        let fraction = (u - low_p) / (high_p - low_p);
        let bytes = low_bytes as f64 + fraction * (high_bytes - low_bytes) as f64;
        (bytes.round() as u64).max(1)
    }

    /// Mean flow size in bytes.
    pub fn mean_bytes(&self) -> f64 {
        let (first_bytes, first_p) = self.points.first().copied().unwrap_or((1, 1.0));
        let start = first_bytes as f64 * first_p;
        let pieces = self.points.windows(2);
        pieces.fold(start, |sum, pair| {
            let ((low, low_p), (high, high_p)) = (pair[0], pair[1]);
            sum + (high_p - low_p) * (low as f64 + high as f64) / 2.0
        })
    }

    /// The same distribution with every flow longer or shorter by one factor, so that this is their
    /// mean.
    pub fn with_mean(mut self, mean_bytes: u64) -> Self {
        let factor = mean_bytes as f64 / self.mean_bytes();
        for (bytes, _) in &mut self.points {
            *bytes = (*bytes as f64 * factor).round() as u64;
        }
        self
    }

    /// The same distribution with every larger flow shortened to `max_bytes`.
    pub fn capped(mut self, max_bytes: u64) -> Self {
        let probability = self.probability(max_bytes);
        if probability >= 1.0 {
            return self;
        }
        self.points.retain(|(bytes, _)| *bytes <= max_bytes);
        // Points at the cap hold the probability of exactly that size: it stays there.
        self.points.push((max_bytes, probability));
        self.points.push((max_bytes, 1.0));
        self
    }

    /// Probability of a flow of `bytes` or less.
    pub fn probability(&self, bytes: u64) -> f64 {
        let above = self.points.partition_point(|(size, _)| *size <= bytes);
        let Some((high, high_p)) = self.points.get(above).copied() else {
            return 1.0;
        };
        let Some((low, low_p)) = above.checked_sub(1).map(|at| self.points[at]) else {
            return 0.0;
        };
        low_p + (high_p - low_p) * (bytes - low) as f64 / (high - low) as f64
    }
}

const ROW_ADVICE: &str =
    "write rows of bytes and probability, neither descending, up to 1, such as `10000,0.15`";

fn parse_point(row: &str) -> Result<(u64, f64), &'static str> {
    let (bytes, probability) = row.split_once(',').ok_or("has one column, not two")?;
    let bytes = bytes
        .trim()
        .parse()
        .map_err(|_| "does not start with a whole number of bytes")?;
    let probability: f64 = probability
        .trim()
        .parse()
        .map_err(|_| "does not end with a probability")?;
    if probability > 1.0 {
        return Err("has a probability above 1: per cent are refused");
    }
    if probability.is_nan() || probability < 0.0 {
        return Err("has a probability below 0");
    }
    Ok((bytes, probability))
}

fn follows(last: Option<&(u64, f64)>, point: (u64, f64)) -> Result<(u64, f64), &'static str> {
    match last {
        Some((bytes, _)) if point.0 < *bytes => Err("has fewer bytes than the row above"),
        Some((_, p)) if point.1 < *p => Err("has a lower probability than the row above"),
        _ => Ok(point),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_built_in_ones_are_read_with_their_published_values() {
        let websearch = Cdf::built_in("websearch").unwrap();
        assert_eq!(websearch.sample(0.15), 10_000);
        assert_eq!(websearch.sample(0.175), 15_000);
        assert_eq!(websearch.sample(1.0), 30_000_000);
        assert_eq!(Cdf::built_in("datamining").unwrap().sample(0.8), 10_000);
        assert_eq!(Cdf::built_in("hadoop").unwrap().sample(0.5), 700);
    }

    #[test]
    fn ambiguous_files_are_refused_with_their_line() {
        for (text, line, reason) in [
            ("0,0\n10,1\n", 1, "header"),
            ("1234.5\nbytes,cdf\n10,1\n", 1, "header"),
            ("bytes,cdf\n0,0\n10,50\n20,100\n", 3, "per cent"),
            ("bytes,cdf\n0,0\n10,0.5\n5,1\n", 4, "fewer bytes"),
            (
                "bytes,cdf\n0,0\n10,0.5\n20,0.4\n30,1\n",
                4,
                "lower probability",
            ),
            ("bytes,cdf\n# c\n\n0,0\n10,0.9\n", 5, "ends at 0.9"),
            ("bytes,cdf\n10 1\n", 2, "one column"),
            ("bytes,cdf\n1.5,1\n", 2, "whole number"),
            ("bytes,cdf\n10,nan\n", 2, "below 0"),
            ("bytes,cdf\n", 1, "empty"),
            ("", 1, "header"),
        ] {
            let problem = Cdf::parse("f.csv", text).unwrap_err();
            assert!(problem.reason.contains(reason), "{text:?}: {problem}");
            assert_eq!(problem.line, line, "{text:?}: {problem}");
        }
    }

    #[test]
    fn the_mean_is_that_of_the_samples() {
        let written = |rows| Cdf::parse("f", rows).unwrap();
        for cdf in [
            Cdf::built_in("websearch").unwrap(),
            written("bytes,cdf\n100,0.1\n200,0.5\n300,0.5\n1000,1\n"),
            written("bytes,cdf\n100,0.1\n100,0.5\n1000,1\n"),
            written("bytes,cdf\n100,0\n200,0\n300,0\n900,0.2\n900,1\n5000,1\n"),
        ] {
            let steps = 1_000_000;
            let sum: f64 = (0..steps)
                .map(|i| cdf.sample((f64::from(i) + 0.5) / f64::from(steps)) as f64)
                .sum();
            let sampled = sum / f64::from(steps);
            assert!((sampled / cdf.mean_bytes() - 1.0).abs() < 1e-3, "{cdf:?}");
        }
    }

    #[test]
    fn rows_of_one_probability_are_a_range_without_flows() {
        for parse in [Cdf::parse, Cdf::parse_times] {
            let read = |rows: &str| {
                let texts = ["bytes", "ns"].map(|unit| format!("{unit},cdf\n{rows}"));
                texts.iter().find_map(|text| parse("f", text).ok()).unwrap()
            };
            let cdf = read("100,0.1\n200,0.5\n300,0.5\n1000,1\n");
            let ends = [0.0, 0.1, 0.5, 0.501, 1.0].map(|u| cdf.sample(u));
            assert_eq!(ends, [100, 100, 200, 301, 1000]);
            assert_eq!(cdf.probability(250), 0.5);
            // At either end as well.
            let cdf = read("100,0\n200,0\n300,1\n400,1\n");
            assert_eq!([0.0, 0.5, 1.0].map(|u| cdf.sample(u)), [200, 250, 300]);
            assert_eq!(cdf.mean_bytes(), 250.0);
        }
    }

    #[test]
    fn rows_of_one_size_are_a_probability_of_exactly_that_size() {
        let cdf = Cdf::parse("f", "bytes,cdf\n100,0.1\n100,0.5\n1000,1\n").unwrap();
        let ends = [0.0, 0.3, 0.5, 0.75, 1.0].map(|u| cdf.sample(u));
        assert_eq!(ends, [100, 100, 100, 550, 1000]);
        assert_eq!(
            [99, 100, 550].map(|at| cdf.probability(at)),
            [0.0, 0.5, 0.75]
        );
        let one = Cdf::parse("f", "bytes,cdf\n64,0\n64,1\n").unwrap();
        assert_eq!([0.0, 0.4, 1.0].map(|u| one.sample(u)), [64; 3]);
        // A cap at such a size leaves what is below it.
        let jump = "bytes,cdf\n0,0\n100,0.1\n100,0.5\n1000,1\n";
        let capped = Cdf::parse("f", jump).unwrap().capped(100);
        assert_eq!(
            [0.05, 0.1, 0.3, 0.9].map(|u| capped.sample(u)),
            [50, 100, 100, 100]
        );
    }

    #[test]
    fn a_distribution_has_the_mean_that_it_is_given() {
        for mean_bytes in [28_000, 583_000, 40_000_000] {
            let cdf = Cdf::built_in("websearch").unwrap().with_mean(mean_bytes);
            let error = cdf.mean_bytes() / mean_bytes as f64 - 1.0;
            assert!(error.abs() < 1e-3, "{mean_bytes}: {error}");
        }
    }

    #[test]
    fn times_and_sizes_are_not_mixed_up() {
        let times = Cdf::parse_times("t", "ns,cdf\n1000,0\n3000,1\n").unwrap();
        assert_eq!(times.sample(0.5), 2_000);
        assert!(Cdf::parse("t", "ns,cdf\n1000,0\n3000,1\n").is_err());
        let problem = Cdf::parse_times("t", "bytes,cdf\n1,1\n").unwrap_err();
        assert!(problem.reason.contains("`ns,cdf` is missing"), "{problem}");
    }

    #[test]
    fn a_cap_shortens_only_larger_flows() {
        let cdf = Cdf::built_in("websearch").unwrap();
        let capped = cdf.clone().capped(1_500_000);
        assert_eq!(capped.sample(0.6), cdf.sample(0.6));
        assert_eq!(capped.sample(0.74), cdf.sample(0.74));
        assert_eq!(capped.sample(0.99), 1_500_000);
        assert_eq!(cdf.clone().capped(1 << 40).sample(0.99), cdf.sample(0.99));
    }

    proptest! {
        #[test]
        fn random_text_never_panics(text in "(bytes,cdf\n)?[0-9,.\n a#-]{0,80}") {
            if let Ok(cdf) = Cdf::parse("f", &text) {
                prop_assert!(cdf.sample(0.5) >= 1);
            }
        }

        #[test]
        fn samples_ascend_with_probability(a in 0.0f64..=1.0, b in 0.0f64..=1.0) {
            for name in Cdf::built_in_names() {
                let cdf = Cdf::built_in(name).unwrap();
                let (low, high) = (cdf.sample(a.min(b)), cdf.sample(a.max(b)));
                prop_assert!(low <= high);
                prop_assert!((cdf.probability(low) - a.min(b)).abs() < 0.01);
            }
        }
    }
}
