//! Sentences of doc comments and Markdown, without what is no prose in them.

use super::{Found, Rule};

/// Words of a sentence. Code, links and citations do not count.
const MAX_WORDS: usize = 30;
/// Documents whose sentences are counted.
const DOCUMENTS: [&str; 4] = ["README.md", "ARCHITECTURE.md", "DESIGN.md", "CHANGELOG.md"];
/// What a citation in parentheses has.
const CITATIONS: [&str; 5] = ["§", "RFC", "verbs draft", "wire.md", "verbs.md"];
/// Marks that may stand between the end of a sentence and the space behind it.
const CLOSING: [char; 6] = ['"', '\'', ')', ']', '*', '_'];

/// A sentence, and the line on which its paragraph begins.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sentence {
    /// Counted from 1.
    line: usize,
    /// Its words. Code, targets of links and citations are left out.
    text: String,
}

impl Sentence {
    /// How many words it has.
    fn words(&self) -> usize {
        let is_word = |word: &&str| word.contains(char::is_alphanumeric);
        self.text.split_whitespace().filter(is_word).count()
    }
}

/// A comment of documentation: consecutive lines of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocComment<'a> {
    /// It belongs to what it is in, as that of a module does.
    pub is_inner: bool,
    /// Its lines with their numbers, without slashes.
    pub lines: Vec<(usize, &'a str)>,
}

/// The comments of documentation of a Rust source.
pub fn doc_comments(source: &str) -> Vec<DocComment<'_>> {
    let mut comments: Vec<DocComment<'_>> = Vec::new();
    for (at, line) in source.lines().enumerate() {
        let Some((is_inner, text)) = doc_line(line.trim_start()) else {
            continue;
        };
        let line = (at + 1, text);
        match comments.last_mut() {
            Some(last)
                if last.is_inner == is_inner && last.lines.last().is_some_and(|it| it.0 == at) =>
            {
                last.lines.push(line);
            }
            Some(_) | None => comments.push(DocComment {
                is_inner,
                lines: vec![line],
            }),
        }
    }
    comments
}

/// The text of a line of documentation, and whether that is an inner one.
fn doc_line(line: &str) -> Option<(bool, &str)> {
    let inner = line.strip_prefix("//!").map(|text| (true, text));
    let outer = line.strip_prefix("///").map(|text| (false, text));
    inner.or(outer).filter(|(_, text)| !text.starts_with('/'))
}

/// Long sentences of a Rust source's documentation.
pub(super) fn long_in_source(source: &str) -> Vec<Found> {
    let comments = doc_comments(source).into_iter();
    let sentences = comments.flat_map(|comment| sentences(comment.lines));
    sentences.filter_map(|it| long(&it)).collect()
}

/// Long sentences of a document, if those of its kind are counted.
pub(super) fn long_in_document(file: &str, text: &str) -> Vec<Found> {
    let name = file.rsplit('/').next().unwrap_or_default();
    if !DOCUMENTS.contains(&name) {
        return Vec::new();
    }
    let sentences = sentences((1..).zip(text.lines()));
    sentences.iter().filter_map(long).collect()
}

fn long(sentence: &Sentence) -> Option<Found> {
    let words = sentence.words();
    (words > MAX_WORDS).then(|| Found {
        rule: Rule::Sentences,
        line: sentence.line,
        what: format!("{words} words: {}", sentence.text),
    })
}

/// The sentences of Markdown. Code, tables and headings have none.
fn sentences<'a>(lines: impl IntoIterator<Item = (usize, &'a str)>) -> Vec<Sentence> {
    let (mut found, mut paragraph, mut is_code) = (Vec::new(), Paragraph::default(), false);
    for (line, text) in lines {
        let text = text.trim();
        let is_fence = text.starts_with("```");
        is_code ^= is_fence;
        if is_fence || is_code || is_no_prose(text) {
            paragraph.end(&mut found);
            continue;
        }
        let item = list_item(text);
        if item.is_some() {
            paragraph.end(&mut found);
        }
        paragraph.add(line, item.unwrap_or(text));
    }
    paragraph.end(&mut found);
    found
}

/// True for an empty line, a heading, a table's row, and the target of links.
fn is_no_prose(text: &str) -> bool {
    let is_target = text.starts_with('[') && text.contains("]: ");
    text.is_empty() || text.starts_with(['#', '|']) || text.starts_with("<!--") || is_target
}

/// The text of an item of a list.
fn list_item(text: &str) -> Option<&str> {
    let number = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = (number.len() < text.len()).then(|| number.strip_prefix(". "));
    let marked = text.strip_prefix("- ").or(text.strip_prefix("* "));
    marked.or(numbered.flatten())
}

/// Text up to an empty line.
#[derive(Default)]
struct Paragraph {
    line: usize,
    text: String,
}

impl Paragraph {
    fn add(&mut self, line: usize, text: &str) {
        if self.text.is_empty() {
            self.line = line;
        }
        self.text.push_str(text);
        self.text.push(' ');
    }

    /// Adds its sentences to those found.
    fn end(&mut self, found: &mut Vec<Sentence>) {
        let text = prose(&std::mem::take(&mut self.text));
        let mut sentence = String::new();
        for word in text.split_whitespace() {
            sentence.push_str(word);
            if word.trim_end_matches(CLOSING).ends_with(['.', '!', '?']) {
                found.push(Sentence {
                    line: self.line,
                    text: std::mem::take(&mut sentence),
                });
            } else {
                sentence.push(' ');
            }
        }
        if !sentence.is_empty() {
            let (line, text) = (self.line, sentence.trim_end().to_owned());
            found.push(Sentence { line, text });
        }
    }
}

/// The text without code, targets of links and citations.
fn prose(text: &str) -> String {
    let without_code: String = text.split('`').step_by(2).collect();
    let without_links = without(&without_code, "](", ')', |_| true);
    let without_names = without(&without_links, "][", ']', |_| true);
    let is_citation = |inner: &str| CITATIONS.iter().any(|it| inner.contains(it)) || is_row(inner);
    without(&without_names, "(", ')', is_citation)
}

/// True for names of requirements, such as R5040-6.1-2.
fn is_row(inner: &str) -> bool {
    let is_name = |rest: &str| rest.as_bytes().get(4) == Some(&b'-');
    inner.split('R').skip(1).any(is_name)
}

/// The text without what lies between `begin` and `end` and is to go, and without these.
fn without(text: &str, begin: &str, end: char, goes: impl Fn(&str) -> bool) -> String {
    let (mut kept, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(begin) {
        let inner = &rest[at + begin.len()..];
        let Some(len) = inner.find(end).filter(|len| goes(&inner[..*len])) else {
            kept.push_str(&rest[..at + begin.len()]);
            rest = inner;
            continue;
        };
        kept.push_str(&rest[..at]);
        rest = &inner[len + end.len_utf8()..];
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::{MAX_WORDS, long_in_document, long_in_source};

    fn words(count: usize) -> String {
        vec!["word"; count].join(" ")
    }

    fn found(source: &str) -> Vec<usize> {
        let found = long_in_source(source).into_iter();
        found.map(|it| it.line).collect()
    }

    #[test]
    fn long_sentence_is_found_in_documentation() {
        let (half, rest) = (words(20), words(MAX_WORDS - 19));
        assert_eq!(found(&format!("//! {half}\n//! {rest}\n")), [1]);
        let long = words(MAX_WORDS + 1);
        let source = format!("/// One.\n///\n/// {long}\nfn f() {{}}");
        assert_eq!(found(&source), [3]);
        let document = format!("# {long}\n\n{long}\n");
        assert_eq!(long_in_document("tcp/DESIGN.md", &document).len(), 1);
        assert_eq!(long_in_document("tcp/NOTES.md", &document).len(), 0);
    }

    #[test]
    fn short_sentences_code_tables_headings_and_citations_are_not_long() {
        let (half, long) = (words(20), words(MAX_WORDS + 1));
        for source in [
            format!("/// {half}. {half}\n///\n/// {half}\n"),
            format!("/// - {half}\n/// - {half}\n"),
            format!("/// | {long} |\n/// # {long}\n"),
            format!("/// ```\n/// {long}\n/// ```\n// {long}\n"),
            format!("/// {half} `{half}` [a]({half}) (RFC 1 {half})"),
        ] {
            assert_eq!(found(&source), [0; 0], "{source}");
        }
    }
}
