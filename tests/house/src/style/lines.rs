//! Words and widths of lines.

use super::{Found, Rule};

/// Words that hide the actor, the subject or the action, and one that the project writes otherwise.
const WORDS: [&str; 14] = [
    "nobody", "whoever", "somebody", "likewise", "told", "tells", "hears", "mends", "mended",
    "so many", "any more", "lets go", "octet", "octets",
];
/// Columns of a source.
const SOURCE_WIDTH: usize = 100;
/// Columns of a document.
const DOCUMENT_WIDTH: usize = 120;

/// Words in comments and documents that the style guide advises against.
pub(super) fn words(text: &str, is_document: bool) -> Vec<Found> {
    let lines: Vec<(usize, &str)> = if is_document {
        outside_code(text).collect()
    } else {
        comments(text).collect()
    };
    let mut found = Vec::new();
    for (line, text) in lines {
        let plain = plain(text);
        for word in WORDS {
            let times = plain.matches(&format!(" {word} ")).count();
            found.extend((0..times).map(|_| Found {
                rule: Rule::Words,
                line,
                what: format!("\"{word}\" in: {}", text.trim()),
            }));
        }
    }
    found
}

/// Lines that have nothing but a comment, without their slashes.
fn comments(source: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = (1..).zip(source.lines());
    lines.filter_map(|(at, line)| Some((at, line.trim_start().strip_prefix("//")?)))
}

/// Lines outside of code blocks and quotations.
fn outside_code(document: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(document.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_fence && !is_code && !line.trim_start().starts_with('>')
    })
}

/// The words of a line in lower case, each between two spaces, without what it quotes.
fn plain(line: &str) -> String {
    let prose: String = line.split(['"', '`']).step_by(2).collect();
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '\'';
    let words = prose.split(|c| !is_part(c)).filter(|word| !word.is_empty());
    words.fold(" ".to_owned(), |text, word| {
        text + &word.to_lowercase() + " "
    })
}

/// Lines that are too wide. Tables of documents have one line per row, and quoted code cannot be
/// wrapped.
pub(super) fn widths(text: &str, is_document: bool) -> Vec<Found> {
    let wide = |(line, columns, limit): (usize, usize, usize)| {
        (columns > limit).then(|| Found {
            rule: Rule::Widths,
            line,
            what: format!("{columns} columns"),
        })
    };
    if is_document {
        let prose = outside_code(text).filter(|(_, line)| !line.starts_with('|'));
        let columns = |line: &str| {
            line.split('`')
                .step_by(2)
                .map(|it| it.chars().count())
                .sum()
        };
        let lines = prose.map(|(at, line)| (at, columns(line), DOCUMENT_WIDTH));
        lines.filter_map(wide).collect()
    } else {
        let lines = (1..).zip(text.lines());
        let lines = lines.map(|(at, line)| (at, line.chars().count(), SOURCE_WIDTH));
        lines.filter_map(wide).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{DOCUMENT_WIDTH, Found, SOURCE_WIDTH, widths, words};

    fn lines(found: &[Found]) -> Vec<usize> {
        found.iter().map(|it| it.line).collect()
    }

    #[test]
    fn words_are_found_in_comments_alone() {
        let source = "//! Nobody knows.\nlet told = 1;\n    // told, and so many\n/// `told` \"told\" foretold told_it\n";
        assert_eq!(lines(&words(source, false)), [1, 3, 3]);
    }

    #[test]
    fn words_are_found_in_documents_outside_of_code_and_quotations() {
        let document = "Whoever asks.\n```\nnobody\n```\n> an octet\nan octet\n\"octets\"\n";
        assert_eq!(lines(&words(document, true)), [1, 6]);
    }

    #[test]
    fn wide_lines_are_found_outside_of_tables_and_code() {
        let wide = "é".repeat(SOURCE_WIDTH + 1);
        let source = format!("{wide}\n{}\n", "é".repeat(SOURCE_WIDTH));
        assert_eq!(lines(&widths(&source, false)), [1]);
        let wide = "é".repeat(DOCUMENT_WIDTH + 1);
        let fit = "é".repeat(DOCUMENT_WIDTH);
        let document = format!("{wide}\n| {wide} |\n```\n{wide}\n```\n`{wide}`\n{fit}\n");
        assert_eq!(lines(&widths(&document, true)), [1]);
    }
}
