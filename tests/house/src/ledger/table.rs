//! The ledger's files.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::{Citation, Row, RowError};

/// The rows of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Without its directory.
    pub file: String,
    /// In the file's order.
    pub rows: Vec<Row>,
}

/// All rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Sorted by file.
    pub tables: Vec<Table>,
}

/// Why the ledger cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The operating system refuses.
    #[error("{}: {source}", path.display())]
    Io {
        /// What was to be read.
        path: PathBuf,
        /// Its reason.
        source: io::Error,
    },
    /// The first line is another.
    #[error("{file} does not begin with the columns id, status and evidence")]
    Header {
        /// Without its directory.
        file: String,
    },
    /// A line is no row.
    #[error("{file}, line {line}: {source}")]
    Row {
        /// Without its directory.
        file: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        source: RowError,
    },
}

impl Table {
    /// Reads rows under a header.
    pub fn parse(file: &str, text: &str) -> Result<Self, LedgerError> {
        let file = file.to_owned();
        let mut lines = text.lines();
        if lines.next() != Some("id\tstatus\tevidence") {
            return Err(LedgerError::Header { file });
        }
        let mut rows = Vec::new();
        for (index, line) in lines.enumerate() {
            match Row::parse(line) {
                Ok(row) => rows.push(row),
                Err(source) => {
                    let line = index + 2;
                    return Err(LedgerError::Row { file, line, source });
                }
            }
        }
        Ok(Self { file, rows })
    }
}

impl Ledger {
    /// The ledger below this root of a repository.
    pub fn load(repository: &Path) -> Result<Self, LedgerError> {
        let directory = repository.join("tests/house/ledger");
        let failed = |path: &Path, source| LedgerError::Io {
            path: path.to_owned(),
            source,
        };
        let entries = fs::read_dir(&directory).map_err(|source| failed(&directory, source))?;
        let mut tables = Vec::new();
        for entry in entries {
            let path = entry.map_err(|source| failed(&directory, source))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.extension().is_some_and(|extension| extension == "tsv") {
                let text = fs::read_to_string(&path).map_err(|source| failed(&path, source))?;
                tables.push(Table::parse(&name, &text)?);
            }
        }
        tables.sort_by(|a, b| a.file.cmp(&b.file));
        Ok(Self { tables })
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.tables.iter().flat_map(|table| &table.rows)
    }

    /// The first row of this id.
    pub fn find(&self, id: &str) -> Option<&Row> {
        self.rows().find(|row| row.id == id)
    }

    /// All tests that are cited.
    pub fn citations(&self) -> impl Iterator<Item = &Citation> {
        self.rows().flat_map(|row| row.evidence.citations())
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn file_that_is_no_table_says_where() {
        for (text, error) in [
            (
                "",
                "x.tsv does not begin with the columns id, status and evidence",
            ),
            (
                "id\tstatus\tevidence\nA\topen\tb\nA\tshut\tb",
                "x.tsv, line 3: the status \"shut\" is neither proved, excused, deviation nor open",
            ),
        ] {
            let found = Table::parse("x.tsv", text).map_err(|error| error.to_string());
            assert_eq!(found, Err(error.to_owned()));
        }
    }
}
