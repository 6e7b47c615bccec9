//! Published names: sections, rows, decisions and vectors that documents of the tree define.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use crate::Tree;
use crate::tree::has_extension;

/// Documents that define rows, decisions and vectors.
const WIRE: &str = "rdma/iwarp/protocol/wire.md";
const VERBS: &str = "rdma/rnic/protocol/verbs.md";
const VECTORS: &str = "rdma/iwarp/protocol/vectors.md";

/// A heading, and its number if it has one.
static HEADING: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^#+ +((?:(\d+(?:\.\d+)*)\.? )?.*)$").expect("a pattern"));
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
    anchors: BTreeMap<String, BTreeSet<String>>,
    rows: BTreeSet<String>,
    decisions: BTreeSet<String>,
    vectors: BTreeSet<String>,
}

impl Published {
    pub(crate) fn of(tree: &Tree) -> Self {
        let mut published = Self::default();
        for (path, text) in tree.files().filter(|(path, _)| has_extension(path, "md")) {
            let numbers = all(&HEADING, 2, text);
            published.sections.insert(path.to_owned(), numbers);
            let anchors = all(&HEADING, 1, text)
                .iter()
                .map(|title| slug(title))
                .collect();
            published.anchors.insert(path.to_owned(), anchors);
        }
        let text = |path| tree.text(path).unwrap_or_default();
        let unusual = UNUSUAL.find(text(WIRE)).map_or("", |found| found.as_str());
        published.rows = all(&ROW, 1, unusual);
        published.decisions = all(&DECISION, 1, text(WIRE));
        published.decisions.extend(all(&DECISION, 1, text(VERBS)));
        published.vectors = all(&VECTOR, 1, text(VECTORS));
        published
    }

    /// Does one of these documents have a section of this number?
    pub(crate) fn has_section(&self, documents: &[&str], number: &str) -> bool {
        documents
            .iter()
            .any(|path| has(&self.sections, path, number))
    }

    pub(crate) fn has_anchor(&self, document: &str, anchor: &str) -> bool {
        has(&self.anchors, document, anchor)
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

fn has(names: &BTreeMap<String, BTreeSet<String>>, path: &str, name: &str) -> bool {
    names.get(path).is_some_and(|names| names.contains(name))
}

/// What the group matches, wherever the pattern does.
fn all(pattern: &Regex, group: usize, text: &str) -> BTreeSet<String> {
    let found = pattern.captures_iter(text);
    found
        .filter_map(|found| found.get(group))
        .map(|found| found.as_str().to_owned())
        .collect()
}

/// The anchor that forges make of a heading.
fn slug(title: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let text: String = title.to_lowercase().chars().filter(kept).collect();
    text.replace(' ', "-")
}
