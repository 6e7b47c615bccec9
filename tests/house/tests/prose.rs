//! Prose of doc comments and documents: short sentences, and headers that begin with what one would search for.
#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;

use xwarp_house_tests::{
    Sentence, below_root, doc_comments, markdown_files, sentences, source_files,
};

/// Words of a sentence. Code, links and citations do not count.
const MAX_WORDS: usize = 25;
/// Documents whose sentences are counted.
const DOCUMENTS: [&str; 4] = ["README.md", "ARCHITECTURE.md", "DESIGN.md", "CHANGELOG.md"];
/// First words of a header that nobody searches for.
const QUESTIONS: [&str; 9] = [
    "What", "Which", "How", "Where", "When", "Why", "Who", "Whose", "Whether",
];

/// Words behind "The same" that leave out what is the same.
const LINKS: [&str; 11] = [
    "with", "for", "of", "where", "as", "at", "in", "between", "from", "again", "followed",
];

fn long_sentences(sentences: Vec<Sentence>) -> impl Iterator<Item = (usize, String)> {
    let long = sentences.into_iter().filter(|it| it.words() > MAX_WORDS);
    long.map(|it| (it.line, format!("{} words: {}", it.words(), it.text)))
}

/// Long sentences of a Rust source's documentation.
fn long_in_source(source: &str) -> Vec<(usize, String)> {
    let comments = doc_comments(source).into_iter();
    comments
        .flat_map(|comment| long_sentences(sentences(comment.lines)))
        .collect()
}

/// Long sentences of a document.
fn long_in_document(text: &str) -> Vec<(usize, String)> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    long_sentences(sentences(lines)).collect()
}

/// A source without a header: nobody is told what the module is.
fn missing_header(source: &str) -> Vec<(usize, String)> {
    let has_header = doc_comments(source)
        .first()
        .is_some_and(|first| first.is_inner);
    let finding = (1, "the module has no header".to_owned());
    (!has_header).then_some(finding).into_iter().collect()
}

/// A module's header, if it begins with a question.
fn questioning_header(source: &str) -> Vec<(usize, String)> {
    let comments = doc_comments(source);
    let header = comments.first().filter(|first| first.is_inner);
    let line = header.and_then(|header| header.lines.first());
    let asks = |text: &str| {
        let first = text.split_whitespace().next().unwrap_or_default();
        QUESTIONS.contains(&first.trim_end_matches([',', ':']))
    };
    let asking = line.filter(|(_, text)| asks(text));
    asking
        .map(|(line, text)| (*line, text.trim().to_owned()))
        .into_iter()
        .collect()
}

/// Comments that begin with "The same" and leave out what is: they make sense behind another one only.
fn dependent_comments(source: &str) -> Vec<(usize, String)> {
    let comments = doc_comments(source);
    let firsts = comments.iter().filter_map(|it| it.lines.first());
    let depends = |text: &str| {
        let Some(rest) = text.trim().strip_prefix("The same") else {
            return false;
        };
        let next = rest.split_whitespace().next().unwrap_or_default();
        rest.starts_with([',', '.', ';', ':']) || LINKS.contains(&next)
    };
    firsts
        .filter(|(_, text)| depends(text))
        .map(|(line, text)| (*line, text.trim().to_owned()))
        .collect()
}

/// Sources of what users get: those of no test.
fn product_files() -> Vec<PathBuf> {
    let mut files = source_files().expect("sources");
    files.retain(|path| {
        let name = below_root(path);
        name.contains("/src/") && !name.starts_with("tests/") && !name.contains("/tests/")
    });
    files
}

/// What a check finds in files.
fn findings(files: Vec<PathBuf>, check: impl Fn(&str) -> Vec<(usize, String)>) -> Vec<String> {
    let mut found = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).expect("a file is text");
        let say = |(line, what)| format!("{}:{line}: {what}", below_root(&path));
        found.extend(check(&text).into_iter().map(say));
    }
    found
}

#[test]
fn sentences_have_at_most_25_words() {
    let sources = source_files().expect("sources");
    let mut documents = markdown_files().expect("documents");
    documents.retain(|path| DOCUMENTS.iter().any(|name| path.ends_with(name)));
    assert!(documents.len() > DOCUMENTS.len(), "{documents:?}");
    let mut found = findings(sources, long_in_source);
    found.extend(findings(documents, long_in_document));
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn modules_have_headers() {
    let found = findings(source_files().expect("sources"), missing_header);
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn headers_begin_with_what_one_would_search_for() {
    let found = findings(source_files().expect("sources"), questioning_header);
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn comments_of_the_product_say_what_is_the_same() {
    let files = product_files();
    assert!(files.len() > 200, "{}", files.len());
    let found = findings(files, dependent_comments);
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn long_sentence_is_found_in_documentation_alone() {
    let words = |n| vec!["word"; n].join(" ");
    let long = words(MAX_WORDS + 1);
    let (half, rest) = (words(20), words(6));
    let found = |source: &str| -> Vec<usize> {
        let found = long_in_source(source).into_iter();
        found.map(|(line, _)| line).collect()
    };
    assert_eq!(found(&format!("//! {half}\n//! {rest}\n")), [1]);
    assert_eq!(
        found(&format!("/// One.\n///\n/// {long}\nfn f() {{}}")),
        [3]
    );
    assert_eq!(
        found(&format!("/// {half}. {half}\n///\n/// {half}\n")),
        [0; 0]
    );
    assert_eq!(found(&format!("/// - {half}\n/// - {half}\n")), [0; 0]);
    assert_eq!(found(&format!("/// | {long} |\n/// # {long}\n")), [0; 0]);
    assert_eq!(
        found(&format!("/// ```\n/// {long}\n/// ```\n// {long}\n")),
        [0; 0]
    );
    assert_eq!(
        found(&format!("/// {half} `{half}` [a]({half}) (RFC 1 {half})")),
        [0; 0]
    );
    assert_eq!(long_in_document(&format!("# {long}\n\n{long}\n")).len(), 1);
}

#[test]
fn module_without_header_is_found() {
    assert_eq!(
        missing_header("use core::fmt;\n\n/// A tag.\nstruct Tag;\n").len(),
        1
    );
    assert_eq!(missing_header("//! Tags.\n\nuse core::fmt;\n"), []);
}

#[test]
fn header_that_asks_is_found() {
    assert_eq!(questioning_header("//! What it is.\n").len(), 1);
    assert_eq!(questioning_header("//! Credits: what is left.\n"), []);
    assert_eq!(questioning_header("/// What it is.\nfn f() {}\n"), []);
}

#[test]
fn comment_that_depends_on_another_is_found() {
    for text in ["The same.", "The same, twice.", "The same with a timeout."] {
        let source = format!("/// One.\nfn one() {{}}\n\n    /// {text}\n");
        assert_eq!(dependent_comments(&source), [(4, text.to_owned())]);
    }
    assert_eq!(
        dependent_comments("/// The same index with another key.\n"),
        []
    );
}
