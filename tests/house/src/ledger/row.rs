//! One line of the ledger.

use std::fmt;
use std::path::Path;

/// A test, as `path/of/file.rs::function`, or an item whose documentation shows what must not
/// compile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Citation {
    /// Relative to the repository's root.
    pub path: String,
    /// The name of the function or item.
    pub function: String,
}

impl Citation {
    fn parse(text: &str) -> Option<Self> {
        let (path, function) = text.split_once("::")?;
        let is_name = !function.is_empty()
            && function
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_');
        let is_source = Path::new(path)
            .extension()
            .is_some_and(|extension| extension == "rs");
        let is_relative = !path.starts_with('/') && !path.contains("..");
        (is_name && is_source && is_relative).then(|| Self {
            path: path.to_owned(),
            function: function.to_owned(),
        })
    }
}

impl fmt::Display for Citation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.path, self.function)
    }
}

/// What a row has to say for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// These tests fail when the requirement is broken.
    Proved(Vec<Citation>),
    /// Why there is nothing to prove here.
    Excused(Reason),
    /// The requirement is knowingly not met.
    Deviation(Reason),
    /// What is missing.
    Open(String),
}

impl Evidence {
    /// As the status column has it.
    pub const fn status(&self) -> &'static str {
        match self {
            Self::Proved(_) => "proved",
            Self::Excused(_) => "excused",
            Self::Deviation(_) => "deviation",
            Self::Open(_) => "open",
        }
    }

    /// The tests that it names.
    pub fn citations(&self) -> &[Citation] {
        match self {
            Self::Proved(citations) => citations,
            Self::Excused(reason) | Self::Deviation(reason) => &reason.shown_by,
            Self::Open(_) => &[],
        }
    }
}

/// Why a requirement has no proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// In words.
    pub text: String,
    /// Tests that show it: that the case cannot arise, or what is done instead.
    pub shown_by: Vec<Citation>,
}

impl Reason {
    /// Reads the words, behind which `(see path.rs::function ...)` may name tests.
    fn parse(text: &str) -> Result<Self, RowError> {
        let parts = text
            .strip_suffix(')')
            .and_then(|text| text.rsplit_once(" (see "));
        let (text, shown_by) = match parts {
            Some((text, cited)) => (text, citations(cited)?),
            None => (text, Vec::new()),
        };
        Ok(Self {
            text: text.to_owned(),
            shown_by,
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A requirement's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The requirement's.
    pub id: String,
    /// How it stands.
    pub evidence: Evidence,
}

/// Why a line is no row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// Tabs are missing, or there are too many.
    #[error("{0} columns instead of id, status and evidence")]
    Columns(usize),
    /// No known status.
    #[error("the status {0:?} is neither proved, excused, deviation nor open")]
    Status(String),
    /// Not `path.rs::function`.
    #[error("{0:?} does not cite a test as path/of/file.rs::function")]
    Citation(String),
}

impl Row {
    /// Reads `id<TAB>status<TAB>evidence`.
    pub fn parse(line: &str) -> Result<Self, RowError> {
        let columns: Vec<&str> = line.split('\t').collect();
        let [id, status, evidence] = columns[..] else {
            return Err(RowError::Columns(columns.len()));
        };
        let evidence = match status {
            "proved" => Evidence::Proved(citations(evidence)?),
            "excused" => Evidence::Excused(Reason::parse(evidence)?),
            "deviation" => Evidence::Deviation(Reason::parse(evidence)?),
            "open" => Evidence::Open(evidence.to_owned()),
            other => return Err(RowError::Status(other.to_owned())),
        };
        Ok(Self {
            id: id.to_owned(),
            evidence,
        })
    }
}

/// At least one: an empty column is a citation of nothing.
fn citations(column: &str) -> Result<Vec<Citation>, RowError> {
    column
        .split(' ')
        .map(|text| Citation::parse(text).ok_or_else(|| RowError::Citation(text.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Citation, Evidence, Reason, Row, RowError};

    fn cited(path: &str, function: &str) -> Citation {
        Citation {
            path: path.to_owned(),
            function: function.to_owned(),
        }
    }

    fn reason(text: &str, shown_by: &[Citation]) -> Reason {
        Reason {
            text: text.to_owned(),
            shown_by: shown_by.to_vec(),
        }
    }

    #[test]
    fn rows_of_each_status_are_read() {
        for (line, evidence) in [
            (
                "R1\tproved\ta/b.rs::one c.rs::two",
                Evidence::Proved(vec![cited("a/b.rs", "one"), cited("c.rs", "two")]),
            ),
            ("R1\texcused\twhy", Evidence::Excused(reason("why", &[]))),
            (
                "R1\texcused\twhy (see a/b.rs::one)",
                Evidence::Excused(reason("why", &[cited("a/b.rs", "one")])),
            ),
            (
                "R1\tdeviation\twhy (or not) so",
                Evidence::Deviation(reason("why (or not) so", &[])),
            ),
            (
                "R1\tdeviation\twhy (or not) (see a/b.rs::one c.rs::two)",
                Evidence::Deviation(reason(
                    "why (or not)",
                    &[cited("a/b.rs", "one"), cited("c.rs", "two")],
                )),
            ),
            ("R1\topen\twhat", Evidence::Open("what".to_owned())),
        ] {
            let id = "R1".to_owned();
            assert_eq!(Row::parse(line), Ok(Row { id, evidence }));
        }
    }

    #[test]
    fn lines_that_are_no_rows_say_why() {
        for (line, error) in [
            ("", RowError::Columns(1)),
            ("R1\tproved", RowError::Columns(2)),
            ("R1\tproved\ta.rs::b\t", RowError::Columns(4)),
            ("R1\tdone\ta.rs::b", RowError::Status("done".to_owned())),
        ] {
            assert_eq!(Row::parse(line), Err(error), "{line:?}");
        }
        for citation in [
            "",
            "a.rs",
            "a.rs::",
            "a::b",
            "/a.rs::b",
            "../a.rs::b",
            "a.rs::b::c",
            "a.rs::b,",
        ] {
            for line in [
                format!("R1\tproved\t{citation}"),
                format!("R1\texcused\twhy (see {citation})"),
                format!("R1\tdeviation\twhy (see {citation})"),
            ] {
                assert_eq!(
                    Row::parse(&line),
                    Err(RowError::Citation(citation.to_owned()))
                );
            }
        }
        let line = "R1\tproved\ta.rs::b  c.rs::d";
        assert_eq!(Row::parse(line), Err(RowError::Citation(String::new())));
    }
}
