//! Counts of remarks by crate, and the files that have most.

use std::collections::BTreeMap;
use std::fmt;

use super::{Remark, Rule};

/// Files that the report names.
const WORST: usize = 10;
/// Folders whose folders are crates.
const OF_CRATES: [&str; 2] = ["rdma", "tests"];

/// Short report on the style of the repository.
#[derive(Clone, Debug, Default)]
pub struct Report {
    crates: BTreeMap<String, [usize; Rule::ALL.len()]>,
    files: BTreeMap<String, usize>,
}

impl Report {
    /// Report on these remarks.
    pub fn new(remarks: &[Remark]) -> Self {
        let mut report = Self::default();
        for remark in remarks {
            let counts = report.crates.entry(crate_of(&remark.file)).or_default();
            counts[remark.rule as usize] += 1;
            *report.files.entry(remark.file.clone()).or_default() += 1;
        }
        report
    }

    /// The files with most remarks.
    fn worst(&self) -> Vec<(&str, usize)> {
        let mut files: Vec<_> = self.files.iter().map(|(file, n)| (&**file, *n)).collect();
        files.sort_by_key(|(file, count)| (usize::MAX - count, *file));
        files.truncate(WORST);
        files
    }
}

/// The crate that has a file; "." for what belongs to all.
fn crate_of(file: &str) -> String {
    let mut folders = file.split('/').rev().skip(1).collect::<Vec<_>>();
    let first = folders.pop();
    let second = folders.pop();
    match (first, second) {
        (Some(first), Some(second)) if OF_CRATES.contains(&first) => format!("{first}/{second}"),
        (Some(first), _) => first.to_owned(),
        (None, _) => ".".to_owned(),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<20}", "crate")?;
        for rule in Rule::ALL {
            write!(f, "{:>11}", rule.title())?;
        }
        let mut sums = [0; Rule::ALL.len()];
        for (name, counts) in &self.crates {
            write_row(f, name, counts)?;
            sums.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
        }
        write_row(f, "all", &sums)?;
        write!(f, "\n\nfiles with most remarks")?;
        for (file, count) in self.worst() {
            write!(f, "\n{count:>6}  {file}")?;
        }
        Ok(())
    }
}

fn write_row(f: &mut fmt::Formatter<'_>, name: &str, counts: &[usize]) -> fmt::Result {
    write!(f, "\n{name:<20}")?;
    counts.iter().try_for_each(|count| write!(f, "{count:>11}"))
}

#[cfg(test)]
mod tests {
    use super::{Remark, Report, Rule, crate_of};

    fn remark(rule: Rule, file: &str) -> Remark {
        Remark {
            rule,
            file: file.to_owned(),
            line: 1,
            what: String::new(),
        }
    }

    #[test]
    fn crates_are_told_from_folders_of_crates() {
        for (file, name) in [
            ("README.md", "."),
            ("tcp/DESIGN.md", "tcp"),
            ("tcp/src/conn/mod.rs", "tcp"),
            ("rdma/verbs/src/qp/mod.rs", "rdma/verbs"),
            ("tests/README.md", "tests"),
            ("tests/kit/src/lib.rs", "tests/kit"),
        ] {
            assert_eq!(crate_of(file), name);
        }
    }

    #[test]
    fn report_counts_by_crate_and_names_the_worst_file_first() {
        let remarks = [
            remark(Rule::Words, "tcp/src/a.rs"),
            remark(Rule::Words, "tcp/src/b.rs"),
            remark(Rule::Widths, "tcp/src/b.rs"),
            remark(Rule::Names, "driver/src/c.rs"),
        ];
        let report = Report::new(&remarks).to_string();
        let rows: Vec<Vec<&str>> = report
            .lines()
            .map(|it| it.split_whitespace().collect())
            .collect();
        assert_eq!(rows[1], ["driver", "0", "0", "0", "1", "0", "0"]);
        assert_eq!(rows[2], ["tcp", "2", "0", "0", "0", "0", "1"]);
        assert_eq!(rows[3], ["all", "2", "0", "0", "1", "0", "1"]);
        assert_eq!(rows[6], ["2", "tcp/src/b.rs"]);
    }
}
