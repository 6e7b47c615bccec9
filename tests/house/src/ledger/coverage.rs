//! Coverage of each specification: how much of it is proved.

use std::fmt;

use super::{Catalogue, Evidence, Family, Ledger, Level};

/// Rows by status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// A test fails when the requirement is broken.
    pub proved: usize,
    /// There is a reason for having none.
    pub excused: usize,
    /// Knowingly not met, for a reason.
    pub deviation: usize,
    /// None of these; requirements without a row are among them.
    pub open: usize,
}

impl Tally {
    /// All requirements.
    pub const fn all(self) -> usize {
        self.proved + self.excused + self.deviation + self.open
    }

    fn add(&mut self, evidence: Option<&Evidence>) {
        let count = match evidence {
            Some(Evidence::Proved(_)) => &mut self.proved,
            Some(Evidence::Excused(_)) => &mut self.excused,
            Some(Evidence::Deviation(_)) => &mut self.deviation,
            Some(Evidence::Open(_)) | None => &mut self.open,
        };
        *count += 1;
    }
}

/// A tally for each family and level.
#[derive(Clone, Debug)]
pub struct Coverage<'a> {
    catalogue: &'a Catalogue,
    ledger: &'a Ledger,
}

impl<'a> Coverage<'a> {
    /// Of this ledger.
    pub const fn new(catalogue: &'a Catalogue, ledger: &'a Ledger) -> Self {
        Self { catalogue, ledger }
    }

    /// Of one family, or all; of one level, or all.
    pub fn tally(&self, family: Option<Family>, level: Option<Level>) -> Tally {
        let mut tally = Tally::default();
        for requirement in self.catalogue.requirements() {
            if family.is_none_or(|family| family == requirement.family)
                && level.is_none_or(|level| level == requirement.level)
            {
                let row = self.ledger.find(&requirement.id);
                tally.add(row.map(|row| &row.evidence));
            }
        }
        tally
    }
}

/// The report: a line for each family and level that has requirements, then the sums by level.
impl fmt::Display for Coverage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:16}  {:6}  proved  excused  deviation   open    all",
            "specification", "level"
        )?;
        let families = Family::ALL.into_iter().map(Some).chain([None]);
        for family in families {
            for level in Level::ALL {
                line(f, family, Some(level), self.tally(family, Some(level)))?;
            }
        }
        line(f, None, None, self.tally(None, None))
    }
}

fn line(
    f: &mut fmt::Formatter<'_>,
    family: Option<Family>,
    level: Option<Level>,
    tally: Tally,
) -> fmt::Result {
    if tally.all() == 0 {
        return Ok(());
    }
    let family = family.map_or_else(|| "all".to_owned(), |family| family.to_string());
    let level = level.map_or("all", Level::name);
    let Tally {
        proved,
        excused,
        deviation,
        open,
    } = tally;
    let all = tally.all();
    writeln!(
        f,
        "{family:16}  {level:6}  {proved:6}  {excused:7}  {deviation:9}  {open:5}  {all:5}"
    )
}

#[cfg(test)]
mod tests {
    use super::super::{Catalogue, Ledger, Table};
    use super::Coverage;

    #[test]
    fn report_counts_rows_by_status_and_missing_ones_as_open() {
        let requirements = "id\tlevel\trequirement\nR5040-1\tMUST\t1\nR5040-2\tMUST\t2\nR5044-1\tMUST\t3\nR5044-2\tMAY\t4\nR5044-3\tMAY\t5\nINT-1\tinfo\t6\n";
        let rows = "id\tstatus\tevidence\nR5044-1\tproved\ta.rs::b\nR5044-2\topen\tall\nR5044-3\tdeviation\tso\nR5040-1\texcused\twhy\n";
        let catalogue = Catalogue::parse(requirements).unwrap();
        let ledger = Ledger {
            tables: vec![Table::parse("x.tsv", rows).unwrap()],
        };
        let expected = "\
specification     level   proved  excused  deviation   open    all
RFC 5040          MUST         0        1          0      1      2
RFC 5044          MUST         1        0          0      0      1
RFC 5044          MAY          0        0          1      1      2
interoperability  info         0        0          0      1      1
all               MUST         1        1          0      1      3
all               MAY          0        0          1      1      2
all               info         0        0          0      1      1
all               all          1        1          1      3      6
";
        assert_eq!(Coverage::new(&catalogue, &ledger).to_string(), expected);
    }
}
