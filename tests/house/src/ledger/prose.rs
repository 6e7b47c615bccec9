//! Prose of a file: the comments and strings of Rust sources, and the whole text of everything
//! else.

use std::sync::LazyLock;

use regex::Regex;

use super::tree::has_extension;

/// Comments, strings and characters of Rust, whichever begins first.
static TOKENS: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = concat!(
        r"(?P<comment>//[^\n]*|/\*(?s:.*?)\*/)",
        r####"|(?P<raw>r###"(?s:.*?)"###|r##"(?s:.*?)"##|r#"(?s:.*?)"#|\br"[^"]*")"####,
        r#"|(?P<string>"(?s:\\.|[^"\\])*")"#,
        r"|'(?:\\[^'\n]+|[^'\\])'",
    );
    Regex::new(pattern).expect("a pattern")
});

/// What a file says to its reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prose {
    /// Comments of a source, or all of a document. Lines that belong together are joined.
    pub(crate) comments: Vec<String>,
    /// Strings of a source.
    pub(crate) strings: Vec<String>,
}

impl Prose {
    /// Of the file at `path` with this text.
    pub(crate) fn of(path: &str, text: &str) -> Self {
        if has_extension(path, "rs") {
            return Self::of_rust(text);
        }
        Self {
            comments: vec![text.to_owned()],
            strings: Vec::new(),
        }
    }

    fn of_rust(text: &str) -> Self {
        let mut prose = Self::default();
        let mut end_of_last = None;
        for token in TOKENS.captures_iter(text) {
            if let Some(comment) = token.name("comment") {
                let between = end_of_last.and_then(|end| text.get(end..comment.start()));
                let goes_on = between.is_some_and(|gap| gap.trim().is_empty());
                prose.add(comment.as_str(), goes_on);
                end_of_last = Some(comment.end());
            } else if let Some(string) = token.name("raw").or_else(|| token.name("string")) {
                prose.strings.push(string.as_str().to_owned());
            }
        }
        prose
    }

    /// A comment, which may go on where the one before it ended.
    fn add(&mut self, comment: &str, goes_on: bool) {
        let words = comment.trim_start_matches(['/', '!', '*']).trim();
        match self.comments.last_mut().filter(|_| goes_on) {
            Some(last) => {
                last.push(' ');
                last.push_str(words);
            }
            None => self.comments.push(words.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Prose;

    #[test]
    fn comments_of_rust_are_joined_and_strings_are_apart() {
        let source = "//! One,\n//! two.\nfn f<'a>() {\n    let s = \"// \\\" no\"; // three\n    let c = '\"';\n    /* four */\n}\nconst R: &str = r#\"a \" // b\"#;\n";
        let prose = Prose::of("a.rs", source);
        assert_eq!(prose.comments, ["One, two.", "three", "four */"]);
        assert_eq!(prose.strings, ["\"// \\\" no\"", "r#\"a \" // b\"#"]);
    }

    #[test]
    fn other_files_are_prose_as_a_whole() {
        let text = "# One\n\n\"two\"\n";
        assert_eq!(Prose::of("a.md", text).comments, [text]);
    }
}
