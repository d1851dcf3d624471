//! `--table`: what became of the scripts of each folder, and why some did not pass.

use std::{collections::BTreeMap, fmt};

use sluicegate_packetdrill::Verdict;

/// Counts by folder, and reasons.
#[derive(Default)]
pub struct Table {
    folders: BTreeMap<String, Count>,
    failures: Vec<(String, String)>,
    /// Failures up to which this kernel does what the endpoint does; `None` = it was not asked.
    as_kernel: Option<usize>,
    reasons: BTreeMap<String, usize>,
}

#[derive(Clone, Copy, Default)]
struct Count {
    scripts: usize,
    passed: usize,
    failed: usize,
}

impl Count {
    fn understood(self) -> usize {
        self.passed + self.failed
    }
}

impl Table {
    /// This kernel has run the script of the last failure. `same`: at the line that fails it did
    /// what the endpoint does, so that the script is of another kernel.
    pub fn add_kernel(&mut self, same: bool) {
        *self.as_kernel.get_or_insert(0) += usize::from(same);
        if let Some((_, text)) = self.failures.last_mut().filter(|_| same) {
            text.push_str("; this kernel does the same");
        }
    }

    pub fn add(&mut self, file: &str, verdict: &Verdict) {
        let folder = file.rsplit_once('/').map_or(".", |(folder, _)| folder);
        let count = self.folders.entry(folder.to_owned()).or_default();
        count.scripts += 1;
        match verdict {
            Verdict::Pass => count.passed += 1,
            Verdict::Fail(problem) => {
                count.failed += 1;
                let place = format!("{file}:{}", problem.line);
                self.failures.push((place, problem.text.clone()));
            }
            Verdict::Unsupported(problem) => {
                *self.reasons.entry(problem.text.clone()).or_default() += 1;
            }
        }
    }

    fn total(&self) -> Count {
        let mut total = Count::default();
        for count in self.folders.values() {
            total.scripts += count.scripts;
            total.passed += count.passed;
            total.failed += count.failed;
        }
        total
    }
}

/// `part` of `whole`, in percent.
fn percent(part: usize, whole: usize) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => format!("{:.1} %", 100.0 * part as f64 / whole as f64),
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| folder | scripts | understood | passed | failed |")?;
        writeln!(f, "|---|---|---|---|---|")?;
        let row = |f: &mut fmt::Formatter<'_>, name: &str, count: &Count| {
            let Count {
                scripts,
                passed,
                failed,
            } = count;
            let understood = count.understood();
            writeln!(
                f,
                "| {name} | {scripts} | {understood} | {passed} | {failed} |"
            )
        };
        for (folder, count) in &self.folders {
            row(f, folder, count)?;
        }
        let total = self.total();
        row(f, "all", &total)?;
        writeln!(
            f,
            "\nunderstood {}; of these passed {}",
            percent(total.understood(), total.scripts),
            percent(total.passed, total.understood()),
        )?;
        if let Some(same) = self.as_kernel {
            let other = total.understood() - same;
            writeln!(
                f,
                "{same} of the failed do as this kernel does; of the others passed {}",
                percent(total.passed, other)
            )?;
        }
        if !self.failures.is_empty() {
            writeln!(f, "\nfailed:")?;
        }
        for (place, text) in &self.failures {
            writeln!(f, "  {place}: {text}")?;
        }
        if !self.reasons.is_empty() {
            writeln!(f, "\nnot understood:")?;
        }
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by(|left, right| right.1.cmp(left.1).then(left.0.cmp(right.0)));
        for (reason, count) in reasons {
            writeln!(f, "{count:5}  {reason}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_packetdrill::Problem;

    #[test]
    fn scripts_of_another_kernel_are_told() {
        let fails = |line: usize| {
            let text = "expected 1".to_owned();
            Verdict::Fail(Problem { line, text })
        };
        let mut table = Table::default();
        table.add("a/x.pkt", &Verdict::Pass);
        assert!(
            !table.to_string().contains("kernel"),
            "the kernel was not asked"
        );
        for (file, same) in [("a/y.pkt", true), ("a/z.pkt", false)] {
            table.add(file, &fails(7));
            table.add_kernel(same);
        }
        let text = table.to_string();
        assert!(text.contains("of these passed 33.3 %"), "{text}");
        assert!(
            text.contains("1 of the failed do as this kernel does; of the others passed 50.0 %"),
            "{text}"
        );
        assert!(
            text.contains("a/y.pkt:7: expected 1; this kernel"),
            "{text}"
        );
        assert!(text.ends_with("a/z.pkt:7: expected 1\n"), "{text}");
    }
}
