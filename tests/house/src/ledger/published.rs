//! Published names: sections, rows, decisions and vectors that documents of the tree define.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use super::Tree;
use super::tree::has_extension;

/// Documents that define rows, decisions and vectors.
const WIRE: &str = "rdma/iwarp/protocol/wire.md";
const VERBS: &str = "rdma/rnic/protocol/verbs.md";
const VECTORS: &str = "rdma/iwarp/protocol/vectors.md";

/// A heading with a number.
static HEADING: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^#+ +(\d+(?:\.\d+)*)\.? ").expect("a pattern"));
/// The section of [`WIRE`] with unusual input.
static UNUSUAL: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?ms)^## 9\. .*?^## 10\. ").expect("a pattern"));
static ROW: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?m)^\| (\d+) \|").expect("a pattern"));
static DECISION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^\| ([DA]\d+) \|").expect("a pattern"));
static VECTOR: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?m)^(?:- `|\*\*)((?:F|T|TQ|MPA|K|C)-[A-Z]*\d+n?)\b").expect("a pattern")
});

/// What there is to be cited.
#[derive(Debug, Default)]
pub(crate) struct Published {
    sections: BTreeMap<String, BTreeSet<String>>,
    rows: BTreeSet<String>,
    decisions: BTreeSet<String>,
    vectors: BTreeSet<String>,
}

impl Published {
    pub(crate) fn of(tree: &Tree) -> Self {
        let mut published = Self::default();
        for (path, text) in tree.files().filter(|(path, _)| has_extension(path, "md")) {
            let numbers = all(&HEADING, text);
            published.sections.insert(path.to_owned(), numbers);
        }
        let text = |path| tree.text(path).unwrap_or_default();
        let unusual = UNUSUAL.find(text(WIRE)).map_or("", |found| found.as_str());
        published.rows = all(&ROW, unusual);
        published.decisions = all(&DECISION, text(WIRE));
        published.decisions.extend(all(&DECISION, text(VERBS)));
        published.vectors = all(&VECTOR, text(VECTORS));
        published
    }

    /// Does one of these documents have a section of this number?
    pub(crate) fn has_section(&self, documents: &[&str], number: &str) -> bool {
        documents
            .iter()
            .filter_map(|path| self.sections.get(*path))
            .any(|numbers| numbers.contains(number))
    }

    pub(crate) fn has_row(&self, number: &str) -> bool {
        self.rows.contains(number)
    }

    pub(crate) fn has_decision(&self, id: &str) -> bool {
        self.decisions.contains(id)
    }

    pub(crate) fn has_vector(&self, name: &str) -> bool {
        self.vectors.contains(name)
    }
}

/// What the pattern's group matches, wherever the pattern does.
fn all(pattern: &Regex, text: &str) -> BTreeSet<String> {
    let found = pattern.captures_iter(text);
    found
        .filter_map(|found| found.get(1))
        .map(|found| found.as_str().to_owned())
        .collect()
}
