//! Style: advice on words, sentences, headers, names, lengths and widths. It is printed and fails
//! nothing.

mod forms;
mod lines;
mod prose;
mod report;

use std::path::Path;

pub use prose::doc_comments;
pub use report::Report;

/// A piece of advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A comment or document has a word of which the style guide advises against.
    Words,
    /// A sentence of documentation has more than 30 words.
    Sentences,
    /// A module's header begins with a question.
    Headers,
    /// The name of a test begins with an article or a pronoun.
    Names,
    /// A function, a record of a decision or a document at the top is long.
    Lengths,
    /// A line is wider than 100 columns, or one of a document than 120.
    Widths,
}

impl Rule {
    /// All of them, in the order of the report's columns.
    pub const ALL: [Self; 6] = [
        Self::Words,
        Self::Sentences,
        Self::Headers,
        Self::Names,
        Self::Lengths,
        Self::Widths,
    ];

    /// Title of its column.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Words => "words",
            Self::Sentences => "sentences",
            Self::Headers => "headers",
            Self::Names => "names",
            Self::Lengths => "lengths",
            Self::Widths => "widths",
        }
    }
}

/// A place that could be better.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// What the place does not follow.
    pub rule: Rule,
    /// Its file, relative to the repository's root.
    pub file: String,
    /// Its line, counted from 1.
    pub line: usize,
    /// What is there.
    pub what: String,
}

/// All remarks on a Rust source or a Markdown document.
pub fn remarks(file: &str, text: &str) -> Vec<Remark> {
    let is_document = Path::new(file).extension().is_some_and(|end| end == "md");
    let mut found = lines::words(text, is_document);
    found.extend(lines::widths(text, is_document));
    if is_document {
        found.extend(prose::long_in_document(file, text));
        found.extend(forms::long_document(file, text));
    } else {
        found.extend(prose::long_in_source(text));
        found.extend(forms::questioning_header(text));
        found.extend(forms::functions_of(file, text));
    }
    let remark = |Found { rule, line, what }| Remark {
        rule,
        file: file.to_owned(),
        line,
        what,
    };
    found.into_iter().map(remark).collect()
}

/// A remark on a text whose file is known to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    rule: Rule,
    line: usize,
    what: String,
}
