//! Which tests there are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::Ledger;

/// The tests of some source files; `None` for a file that is not there.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: BTreeMap<String, Option<BTreeSet<String>>>,
}

impl Sources {
    /// The files that a ledger cites, below this root of a repository.
    pub fn cited_by(ledger: &Ledger, repository: &Path) -> Self {
        let mut sources = Self::default();
        for citation in ledger.citations() {
            if !sources.files.contains_key(&citation.path) {
                let text = fs::read_to_string(repository.join(&citation.path)).ok();
                let tests = text.map(|text| test_functions(&text));
                sources.files.insert(citation.path.clone(), tests);
            }
        }
        sources
    }

    /// With a file of this text.
    #[must_use]
    pub fn with(mut self, path: &str, text: &str) -> Self {
        let tests = Some(test_functions(text));
        self.files.insert(path.to_owned(), tests);
        self
    }

    /// The tests of this file, if it is there.
    pub fn tests(&self, path: &str) -> Option<&BTreeSet<String>> {
        self.files.get(path)?.as_ref()
    }
}

/// The names of all functions with `#[test]` that are not ignored; those of a `proptest!` block have it too.
///
/// It reads lines as rustfmt leaves them: an attribute begins its line.
pub fn test_functions(source: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut reader = Reader::default();
    for line in source.lines() {
        if let Some(name) = reader.line(line.trim()) {
            names.insert(name.to_owned());
        }
    }
    names
}

/// What is known of the item that the lines so far belong to.
#[derive(Default)]
struct Reader {
    test: bool,
    ignored: bool,
    /// An attribute goes on.
    within_attribute: bool,
}

impl Reader {
    /// Reads one line; the name if it begins a test.
    fn line<'a>(&mut self, line: &'a str) -> Option<&'a str> {
        if self.within_attribute || line.starts_with("#[") {
            self.test |= line.starts_with("#[test]");
            self.ignored |= line.starts_with("#[ignore");
            self.within_attribute = !line.ends_with(']');
            return None;
        }
        if line.is_empty() || line.starts_with("//") {
            return None;
        }
        let is_test = self.test && !self.ignored;
        *self = Self::default();
        let name = line.strip_prefix("pub ").unwrap_or(line);
        let name = name.strip_prefix("fn ")?;
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
        is_test.then(|| name.get(..end)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::test_functions;

    const SOURCE: &str = r#"
fn helper() {}

#[test]
fn plain() {}

/// Row 3.
#[test]
#[should_panic(expected = "x")]
fn with_attributes() {
    fn inner() {}
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a table"
)]
// and a remark
fn with_a_long_attribute() {}

#[test]
#[ignore = "slow"]
fn ignored() {}

// #[test]
fn commented() {}

#[cfg(test)]
fn no_test() {}

proptest! {
    #[test]
    fn property(a: u8) {
    }
}
"#;

    #[test]
    fn tests_are_told_from_other_functions() {
        let found: Vec<String> = test_functions(SOURCE).into_iter().collect();
        assert_eq!(
            found,
            [
                "plain",
                "property",
                "with_a_long_attribute",
                "with_attributes"
            ]
        );
    }
}
