//! Types and functions that ARCHITECTURE.md and the DESIGN.md files name: the sources have them, in
//! the file named beside them.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

use xwarp_house_tests::{below_root, markdown_files, source_files};

/// Documents that describe what there is. Records of decisions may name what is gone.
const DESCRIBING: [&str; 2] = ["ARCHITECTURE.md", "DESIGN.md"];
/// Words in front of the name of what they define.
const DEFINING: [&str; 6] = ["struct", "enum", "trait", "type", "union", "fn"];

/// A source file: where it is, and what it says.
struct Source {
    path: String,
    text: String,
}

impl Source {
    fn all() -> Vec<Self> {
        let read = |path: &PathBuf| Self {
            path: below_root(path),
            text: fs::read_to_string(path).expect("a source is text"),
        };
        let files = source_files().expect("sources");
        files.iter().map(read).collect()
    }

    /// Whether it defines this type or function.
    fn defines(&self, name: &str) -> bool {
        let defines = |word: &str| has_words(&self.text, &format!("{word} {name}"));
        DEFINING.iter().any(|word| defines(word))
    }

    /// Whether it has a method or variant `item` of `owner`.
    fn has_item(&self, owner: &str, item: &str) -> bool {
        let is_type = |c: char| c.is_ascii_uppercase();
        let is_owner = self.defines(owner) || self.implements(owner);
        let is_there = if item.starts_with(is_type) {
            has_words(&self.text, item)
        } else {
            has_words(&self.text, &format!("fn {item}"))
        };
        is_owner && is_there
    }

    fn implements(&self, owner: &str) -> bool {
        let mut heads = self.text.lines().filter(|line| line.starts_with("impl"));
        heads.any(|head| has_words(head, owner))
    }

    fn has(&self, name: &Name<'_>) -> bool {
        match name {
            Name::Item(owner, item) => self.has_item(owner, item),
            Name::Alone(name) => self.defines(name),
        }
    }
}

/// Whether `text` has `words` where no longer name has them.
fn has_words(text: &str, words: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(words).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + words.len()..]);
        !before.ends_with(is_name) && !after.starts_with(is_name)
    })
}

/// A name of the sources.
enum Name<'a> {
    /// `Owner::item`.
    Item(&'a str, &'a str),
    /// A type or a function.
    Alone(&'a str),
}

impl<'a> Name<'a> {
    /// What is quoted, if it is a name.
    fn new(quoted: &'a str) -> Option<Self> {
        let name = quoted.split('(').next().unwrap_or_default();
        let is_word = |word: &str| {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            word.starts_with(|c: char| c.is_ascii_alphabetic()) && word.chars().all(is_name)
        };
        match name.split_once("::") {
            Some((owner, item)) if is_word(owner) && is_word(item) => Some(Self::Item(owner, item)),
            None if is_word(name) => Some(Self::Alone(name)),
            Some(_) | None => None,
        }
    }
}

fn is_path(quoted: &str) -> bool {
    quoted.contains('/') && Path::new(quoted).extension().is_some_and(|end| end == "rs")
}

/// The text of a document on one line, without its code blocks.
fn prose(document: &str) -> String {
    let mut is_code = false;
    let lines = document.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_fence && !is_code
    });
    lines.flat_map(|line| [line.trim(), " "]).collect()
}

/// Names in a document that the sources do not have, or not in the file that the document gives:
/// `` `name` (`path`) `` or `` `path`, `name` ``.
fn missing<'a>(prose: &'a str, sources: &[Source]) -> Vec<&'a str> {
    let parts: Vec<&str> = prose.split('`').collect();
    let quoted = (1..parts.len()).step_by(2);
    let is_missing = |at: &usize| {
        let after = (parts.get(at + 1) == Some(&" (")).then(|| at + 2);
        let before = (*at > 1 && parts[at - 1] == ", ").then(|| at - 2);
        let beside = [after, before].into_iter().flatten();
        let path = beside.filter_map(|at| parts.get(at)).find(|it| is_path(it));
        let Some(name) = Name::new(parts[*at]) else {
            return false;
        };
        match (path, &name) {
            (Some(path), _) => !sources.iter().any(|it| it.path == **path && it.has(&name)),
            (None, Name::Item(..)) => !sources.iter().any(|it| it.has(&name)),
            (None, Name::Alone(_)) => false,
        }
    };
    quoted.filter(is_missing).map(|at| parts[at]).collect()
}

#[test]
fn names_in_documents_are_in_the_sources() {
    let sources = Source::all();
    let mut findings = Vec::new();
    for document in markdown_files().expect("documents") {
        if DESCRIBING.iter().any(|name| document.ends_with(name)) {
            let text = prose(&fs::read_to_string(&document).expect("a document is text"));
            let missing = missing(&text, &sources);
            let name = below_root(&document);
            findings.extend(missing.iter().map(|it| format!("{name}: no `{it}`")));
        }
    }
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

#[test]
fn missing_names_are_found() {
    let source = |path: &str, text: &str| Source {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let sources = [
        source("a/b.rs", "struct One;\nimpl One {\n    fn run() {}\n}\n"),
        source("a/c.rs", "enum Two {\n    Far,\n}\nfn runs() {}\n"),
    ];
    let good =
        "`One::run` `Two::Far` `One` (`a/b.rs`) `a/c.rs`, `runs` `One::run`\n(`a/b.rs`) `free`";
    assert_eq!(missing(&prose(good), &sources), [""; 0]);
    let bad = "`One::runs` `Two::Near` `One` (`a/c.rs`) `a/b.rs`, `runs` `Two::run`\n```\n`Three::run`\n```\n";
    let expected = ["One::runs", "Two::Near", "One", "runs", "Two::run"];
    assert_eq!(missing(&prose(bad), &sources), expected);
}
