//! References of comments and documents: each names something that is in the tree. Links and paths
//! of documents are checked in `tests/house`.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::prose::Prose;
use super::published::Published;
use super::tree::has_extension;
use super::{Catalogue, Tree};

/// Sections of a document: `wire.md §3.1, §3.2`.
static SECTIONS: LazyLock<Regex> =
    LazyLock::new(|| compiled(r"([\w.][\w./-]*\.md)`?((?:,? (?:and |to )?§\d+(?:\.\d+)*)+)"));
/// Rows of unusual input: `row 37`, `rows 16 and 17`. In documents, behind `wire.md`.
static ROWS: LazyLock<Regex> =
    LazyLock::new(|| compiled(r"(wire\.md`? )?\b[Rr]ows? (\d+(?:(?:,? (?:and|to|or) |, )\d+)*)"));
static NUMBER: LazyLock<Regex> = LazyLock::new(|| compiled(r"\d+(?:\.\d+)*"));
/// A document, outside of addresses of the web.
static DOCUMENT: LazyLock<Regex> =
    LazyLock::new(|| compiled(r"https?://\S+|([\w.][\w./-]*\.md)\b"));
static DECISION: LazyLock<Regex> = LazyLock::new(|| compiled(r"\b[DA]\d{1,2}\b"));
static REQUIREMENT: LazyLock<Regex> = LazyLock::new(|| {
    compiled(r"\b(?:R\d{4}-[0-9A-Z][0-9A-Za-z.]*|V(?:ERBS)?-\d[\d.]*)(?:-\d+)+\b")
});
static VECTOR: LazyLock<Regex> = LazyLock::new(|| compiled(r"\b(?:F|T|TQ|MPA|K|C)-[A-Z]*\d+n?\b"));
/// What documents were called that never were in the tree, or have another name there.
static NAMELESS: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r"(?i)\b(?:the|wire|verbs) digest\b|\bdigest(?:'s)? (?:§|sections? \d|[DA]?\d)|\bthe vectors\b|\bcatalogues?\b",
    )
});
/// What stands for a number in the name of a document that is yet to be written.
const PLACEHOLDER: &str = "NNNN";
/// Where "catalogue" is the name of a type.
const CATALOGUE: &str = "tests/house/";

/// Something that is cited, and is nowhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file} cites {cited:?}, which is {missing}")]
pub struct DeadReference {
    /// The file with the citation, relative to the repository.
    pub file: String,
    /// The citation.
    pub cited: String,
    /// What is not there.
    pub missing: &'static str,
}

/// All citations in comments and documents of `tree` that name nothing.
pub fn dead_references(tree: &Tree, catalogue: &Catalogue) -> Vec<DeadReference> {
    let published = Published::of(tree);
    let mut dead = Vec::new();
    for (file, text) in tree.files() {
        let mut reader = Reader {
            tree,
            catalogue,
            published: &published,
            file,
            dead: &mut dead,
        };
        reader.read(&Prose::of(file, text));
    }
    dead
}

/// Finds the dead references of one file.
struct Reader<'a> {
    tree: &'a Tree,
    catalogue: &'a Catalogue,
    published: &'a Published,
    file: &'a str,
    dead: &'a mut Vec<DeadReference>,
}

impl<'a> Reader<'a> {
    fn read(&mut self, prose: &Prose) {
        for comment in &prose.comments {
            self.documents(comment);
            self.sections(comment);
            self.names(comment);
            self.rows(comment);
        }
        for string in &prose.strings {
            self.rows(string);
        }
    }

    fn documents(&mut self, text: &str) {
        for name in DOCUMENT
            .captures_iter(text)
            .filter_map(|found| found.get(1))
        {
            let name = name.as_str();
            let found = name.contains(PLACEHOLDER) || !self.named(name).is_empty();
            self.expect(found, name, "no document of the tree");
        }
    }

    fn sections(&mut self, text: &str) {
        for found in SECTIONS.captures_iter(text) {
            let documents = self.named(&found[1]);
            for number in NUMBER.find_iter(&found[2]) {
                let has = self.published.has_section(&documents, number.as_str());
                self.expect(has, &found[0], "no section of it");
            }
        }
    }

    /// Names that are unique in the tree.
    fn names(&mut self, text: &str) {
        for id in DECISION.find_iter(text) {
            let has = self.published.has_decision(id.as_str());
            self.expect(has, id.as_str(), "no decision of wire.md or verbs.md");
        }
        for id in REQUIREMENT.find_iter(text) {
            let has = self.catalogue.find(id.as_str()).is_some();
            self.expect(has, id.as_str(), "no requirement");
        }
        for name in VECTOR.find_iter(text) {
            let has = self.published.has_vector(name.as_str());
            self.expect(has, name.as_str(), "no vector of vectors.md");
        }
        for name in NAMELESS.find_iter(text) {
            let is_type = self.file.starts_with(CATALOGUE) && name.as_str().starts_with(['c', 'C']);
            self.expect(is_type, name.as_str(), "the name of no document");
        }
    }

    fn rows(&mut self, text: &str) {
        let of_wire = |found: &Captures<'_>| found.get(1).is_some();
        for found in ROWS.captures_iter(text) {
            if !has_extension(self.file, "rs") && !of_wire(&found) {
                continue;
            }
            for number in NUMBER.find_iter(&found[2]) {
                let has = self.published.has_row(number.as_str());
                self.expect(has, &found[0], "no row of wire.md §9");
            }
        }
    }

    /// Files that a document's name can mean: from here, from the top, or by its end.
    fn named(&self, name: &str) -> Vec<&'a str> {
        let from_here = beside(self.file, name);
        let below = format!("/{name}");
        let files = self.tree.files().map(|(path, _)| path);
        files
            .filter(|path| {
                from_here.as_deref() == Some(path) || *path == name || path.ends_with(&below)
            })
            .collect()
    }

    fn expect(&mut self, is_there: bool, cited: &str, missing: &'static str) {
        if !is_there {
            self.dead.push(DeadReference {
                file: self.file.to_owned(),
                cited: cited.to_owned(),
                missing,
            });
        }
    }
}

/// The path that `relative` means in the file at `file`, or nothing if it leaves the repository.
fn beside(file: &str, relative: &str) -> Option<String> {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

fn compiled(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern")
}
