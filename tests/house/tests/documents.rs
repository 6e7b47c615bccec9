//! Documents of the repository: their links and paths exist, records of decisions are complete and
//! listed.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Sections of such a record, in their order.
const SECTIONS: [&str; 5] = [
    "Context",
    "Decision",
    "Alternatives",
    "Consequence",
    "Measurement",
];
/// Folders in which nothing is the repository's own.
const SKIPPED: [&str; 2] = ["target", ".git"];
/// How a file's name ends where a document means a file of the repository.
const ENDINGS: [&str; 7] = [".rs", ".md", ".toml", ".tsv", ".sh", ".c", ".txt"];

/// All files of the repository, relative to its root.
struct Tree(BTreeSet<PathBuf>);

impl Tree {
    fn read() -> Self {
        let root = root();
        let mut files = BTreeSet::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("a folder can be read") {
                let entry = entry.expect("an entry can be read");
                let is_skipped = SKIPPED.iter().any(|name| entry.file_name() == *name);
                if entry.file_type().expect("it has a type").is_dir() {
                    folders.extend((!is_skipped).then(|| entry.path()));
                } else if let Ok(path) = entry.path().strip_prefix(&root) {
                    files.insert(path.to_owned());
                }
            }
        }
        Self(files)
    }

    fn of(files: &[&str]) -> Self {
        Self(files.iter().map(PathBuf::from).collect())
    }

    /// Whether there is such a file or folder.
    fn has(&self, path: &Path) -> bool {
        path.as_os_str().is_empty() || self.0.iter().any(|file| file.starts_with(path))
    }

    /// Whether the path of some file ends so.
    fn has_end(&self, end: &Path) -> bool {
        self.0.iter().any(|file| file.ends_with(end))
    }

    /// Whether the path begins with a folder of the repository's top level.
    fn begins_with_folder(&self, path: &Path) -> bool {
        let mut parts = path.components();
        let first = parts.next().map(|first| Path::new(first.as_os_str()));
        parts.next().is_some() && first.is_some_and(|first| self.has(first))
    }
}

/// A Markdown file.
struct Document {
    path: PathBuf,
    text: String,
}

impl Document {
    fn new(path: &str, text: &str) -> Self {
        Self {
            path: PathBuf::from(path),
            text: text.to_owned(),
        }
    }

    fn all(tree: &Tree) -> Vec<Self> {
        let is_markdown = |path: &&PathBuf| path.extension().is_some_and(|end| end == "md");
        let read = |path: &PathBuf| Self {
            path: path.clone(),
            text: fs::read_to_string(root().join(path)).expect("a document can be read"),
        };
        tree.0.iter().filter(is_markdown).map(read).collect()
    }

    /// The lines outside of code blocks, each with its number.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut in_code = false;
        let numbered = self.text.lines().enumerate();
        numbered.filter_map(move |(at, line)| {
            let is_fence = line.trim_start().starts_with("```");
            in_code ^= is_fence;
            (!is_fence && !in_code).then_some((at + 1, line))
        })
    }

    fn finding(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.path.display())
    }

    /// Links to files that are not there, and to headings that their files do not have.
    fn dead_links(&self, tree: &Tree, slugs: &dyn Fn(&Path) -> BTreeSet<String>) -> Vec<String> {
        let mut findings = Vec::new();
        for (line, text) in self.lines() {
            for target in links(text).filter(|target| !target.contains("://")) {
                let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
                let path = self.resolve(file);
                if !tree.has(&path) {
                    findings.push(self.finding(line, &format!("no file {target}")));
                } else if !anchor.is_empty() && !slugs(&path).contains(anchor) {
                    findings.push(self.finding(line, &format!("no heading {target}")));
                }
            }
        }
        findings
    }

    /// A link's file, relative to the repository's root.
    fn resolve(&self, file: &str) -> PathBuf {
        if file.is_empty() {
            return self.path.clone();
        }
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let mut path = PathBuf::new();
        for part in folder.join(file).components() {
            match part {
                Component::ParentDir => drop(path.pop()),
                Component::Normal(name) => path.push(name),
                Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
            }
        }
        path
    }

    /// Back-quoted paths of the repository that are not there.
    fn dead_paths(&self, tree: &Tree) -> Vec<String> {
        let mut findings = Vec::new();
        for (line, text) in self.lines() {
            for quoted in text.split('`').skip(1).step_by(2) {
                if !self.is_there(quoted, tree) {
                    findings.push(self.finding(line, &format!("no file {quoted}")));
                }
            }
        }
        findings
    }

    /// False for what is meant as a path of the repository and leads nowhere.
    fn is_there(&self, quoted: &str, tree: &Tree) -> bool {
        let word = quoted.split([' ', ':']).next().unwrap_or_default();
        let is_pattern = word.contains(['*', '<', '{', '~', '$', '(']) || word.contains("NNNN");
        let path = Path::new(word);
        if is_pattern || path.is_absolute() {
            return true;
        }
        if tree.begins_with_folder(path) {
            return tree.has(path);
        }
        let is_file = ENDINGS.iter().any(|end| word.ends_with(end));
        !is_file || tree.has(&self.resolve(word)) || tree.has_end(path)
    }

    /// Whether it is the record of a decision.
    fn is_record(&self) -> bool {
        let folder = self.path.parent().and_then(Path::file_name);
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        folder.is_some_and(|name| name == "decisions")
            && name.starts_with(|c: char| c.is_ascii_digit())
    }

    /// What a record of a decision lacks: its number, its status, a section.
    fn record_findings(&self) -> Vec<String> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let number = name.split('-').next().unwrap_or_default();
        let checks = [
            (
                self.text.starts_with(&format!("# {number}: ")),
                "its title lacks its number",
            ),
            (self.text.contains("\nStatus: "), "it lacks a status"),
            (
                self.has_all_sections(),
                "its sections are not those of a record",
            ),
        ];
        let failed = checks.iter().filter(|(holds, _)| !holds);
        failed.map(|(_, what)| self.finding(1, what)).collect()
    }

    /// Whether it has the sections of a record in their order, and text in each.
    fn has_all_sections(&self) -> bool {
        let mut sections = self.text.split("\n## ").skip(1);
        let is_full = |(section, name): (&str, &str)| {
            let text = section.strip_prefix(name);
            text.is_some_and(|text| text.starts_with('\n') && !text.trim().is_empty())
        };
        let all = SECTIONS
            .iter()
            .all(|name| sections.next().is_some_and(|it| is_full((it, name))));
        all && sections.next().is_none()
    }

    /// The names by which a link can reach its headings and marked places.
    fn slugs(&self) -> BTreeSet<String> {
        let heading = |line: &str| line.trim_start_matches('#').trim().to_owned();
        let headings = self.lines().filter(|(_, line)| line.starts_with('#'));
        let mut slugs: BTreeSet<String> = headings.map(|(_, line)| slug(&heading(line))).collect();
        let marks = self.text.split("id=\"").skip(1);
        slugs.extend(marks.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
        slugs
    }
}

/// The targets of a line's links.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let ends = |rest: &'_ str| rest.find(')');
    line.split("](")
        .skip(1)
        .filter_map(move |rest| Some(&rest[..ends(rest)?]))
}

/// A heading's name in links: lower case, without punctuation, hyphens for spaces.
fn slug(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let plain = heading.to_lowercase();
    plain
        .chars()
        .filter(kept)
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the repository is there")
}

/// Runs a check on every document of the repository, and fails with all that it finds.
fn check(check: impl Fn(&Document, &Tree) -> Vec<String>) {
    let tree = Tree::read();
    let documents = Document::all(&tree);
    assert!(documents.len() > 10, "the documents are not found");
    let findings: Vec<String> = documents.iter().flat_map(|it| check(it, &tree)).collect();
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

#[test]
fn links_lead_to_files_and_headings() {
    let slugs = |path: &Path| {
        let text = fs::read_to_string(root().join(path)).unwrap_or_default();
        Document::new("", &text).slugs()
    };
    check(|document, tree| document.dead_links(tree, &slugs));
}

#[test]
fn quoted_paths_exist() {
    check(Document::dead_paths);
}

#[test]
fn records_are_complete_and_numbered_and_listed() {
    check(|document, _| {
        if !document.is_record() {
            return Vec::new();
        }
        let mut findings = document.record_findings();
        let index = document.resolve("README.md");
        let index = fs::read_to_string(root().join(index)).unwrap_or_default();
        let name = document
            .path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        if !index.contains(&format!("]({name})")) {
            findings.push(document.finding(1, "the index of its folder does not list it"));
        }
        findings
    });
}

#[test]
fn dead_links_are_found() {
    let tree = Tree::of(&["a/b.md", "c.md"]);
    let text =
        "[x](../c.md) [x](../d.md)\n[x](#one) [x](#two) [x](https://d)\n```\n[x](e.md)\n```\n";
    let document = Document::new("a/b.md", text);
    let slugs = |_: &Path| BTreeSet::from(["one".to_owned()]);
    let expected = ["a/b.md:1: no file ../d.md", "a/b.md:2: no heading #two"];
    assert_eq!(document.dead_links(&tree, &slugs), expected);
}

#[test]
fn dead_paths_are_found() {
    let tree = Tree::of(&["tcp/src/seq.rs", "tools/demo"]);
    let text = "`tcp/src/seq.rs` `tcp/src/` `tcp/src/gone.rs` `seq.rs::Seq` `gone.rs` `tools/demo --x`\n`tools/gone` `a/b` `tcp/*.rs`";
    let findings = Document::new("x.md", text).dead_paths(&tree);
    let expected = [
        "x.md:1: no file tcp/src/gone.rs",
        "x.md:1: no file gone.rs",
        "x.md:2: no file tools/gone",
    ];
    assert_eq!(findings, expected);
}

#[test]
fn flaws_of_a_record_are_found() {
    let sections = SECTIONS.map(|name| format!("\n## {name}\n\nYes.\n"));
    let good = format!(
        "# 0007: A title\n\nStatus: accepted, 2026-11-21.\n{}",
        sections.concat()
    );
    let record = |text: &str| Document::new("tcp/decisions/0007-a-title.md", text);
    assert_eq!(record(&good).record_findings(), Vec::<String>::new());
    for (from, to) in [
        ("## Context", "## Why"),
        ("## Decision\n\nYes.", "## Decision"),
        ("\n## Measurement\n\nYes.\n", ""),
    ] {
        assert_eq!(
            record(&good.replace(from, to)).record_findings().len(),
            1,
            "{from}"
        );
    }
    assert_eq!(record("# 0008: A title\n").record_findings().len(), 3);
    assert!(record(&good).is_record());
    assert!(!Document::new("tcp/decisions/README.md", "").is_record());
}

#[test]
fn heading_has_the_name_that_links_use() {
    assert_eq!(slug("RFC 5044 §4.1: FPDUs"), "rfc-5044-41-fpdus");
}
