//! Headers of modules, names of tests, lengths of functions and documents.

use super::{Found, Rule, doc_comments};
use crate::functions::{Function, Kind, functions};

/// First words of a header for which a reader does not search.
const QUESTIONS: [&str; 9] = [
    "What", "Which", "How", "Where", "When", "Why", "Who", "Whose", "Whether",
];
/// Words with which no subject begins: tests are listed by what they are about.
const LEADS: [&str; 6] = ["a", "an", "the", "it", "that", "there"];
/// Files and folders of the product's crates that are compiled for tests alone.
const FOR_TESTS: [&str; 4] = ["/tests/", "/tests.rs", "/testbed.rs", "/bottleneck.rs"];
/// Lines between the braces of a function of the product.
const FUNCTION_LINES: usize = 40;
/// Lines of a test, from its signature to its closing brace.
const TEST_LINES: usize = 40;
/// Lines of a document at the top.
const TOP_LINES: usize = 150;
/// Lines of the record of a decision.
const RECORD_LINES: usize = 60;

/// A module's header, if it begins with a question.
pub(super) fn questioning_header(source: &str) -> Option<Found> {
    let comments = doc_comments(source);
    let header = comments.first().filter(|first| first.is_inner)?;
    let (line, text) = header.lines.first()?;
    let first = text.split_whitespace().next().unwrap_or_default();
    let asks = QUESTIONS.contains(&first.trim_end_matches([',', ':']));
    asks.then(|| Found {
        rule: Rule::Headers,
        line: *line,
        what: text.trim().to_owned(),
    })
}

/// Long functions, and tests whose names do not begin with a subject.
pub(super) fn functions_of(file: &str, source: &str) -> Vec<Found> {
    // What is no Rust fails to compile, which is no matter of style.
    let functions = functions(source).unwrap_or_default();
    let mut found = Vec::new();
    for function in functions {
        found.extend(long_function(file, &function));
        found.extend(unclear_name(&function));
    }
    found
}

fn long_function(file: &str, function: &Function) -> Option<Found> {
    let (lines, limit) = match function.kind {
        Kind::Test => (function.lines, TEST_LINES),
        Kind::Product if is_product(file) => (function.body_lines, FUNCTION_LINES),
        Kind::Product | Kind::ForTests => return None,
    };
    (lines > limit).then(|| Found {
        rule: Rule::Lengths,
        line: function.line,
        what: format!("{} has {lines} lines", function.name),
    })
}

/// True for what users get, which is the source of no test.
fn is_product(file: &str) -> bool {
    let is_for_tests = FOR_TESTS.iter().any(|part| file.contains(part));
    file.contains("/src/") && !file.starts_with("tests/") && !is_for_tests
}

fn unclear_name(function: &Function) -> Option<Found> {
    let first = function.name.split('_').next().unwrap_or_default();
    (function.kind == Kind::Test && LEADS.contains(&first)).then(|| Found {
        rule: Rule::Names,
        line: function.line,
        what: function.name.clone(),
    })
}

/// A record of a decision or a document at the top that is long.
pub(super) fn long_document(file: &str, text: &str) -> Option<Found> {
    let limit = match file.rsplit_once('/') {
        None if ["README.md", "ARCHITECTURE.md"].contains(&file) => TOP_LINES,
        Some((folder, _)) if folder.ends_with("/decisions") => RECORD_LINES,
        None | Some(_) => return None,
    };
    let lines = text.lines().count();
    (lines > limit && !file.ends_with("/decisions/README.md")).then(|| Found {
        rule: Rule::Lengths,
        line: 1,
        what: format!("{lines} lines"),
    })
}

#[cfg(test)]
mod tests {
    use super::{
        FUNCTION_LINES, RECORD_LINES, Rule, TEST_LINES, TOP_LINES, functions_of, long_document,
        questioning_header,
    };

    /// A file of the product.
    const FILE: &str = "tcp/src/a.rs";

    fn body(lines: usize) -> String {
        "    step(\"}\");\n".repeat(lines)
    }

    /// Lines on which something is long.
    fn long(file: &str, source: &str) -> Vec<usize> {
        let found = functions_of(file, source).into_iter();
        let long = found.filter(|it| it.rule == Rule::Lengths);
        long.map(|it| it.line).collect()
    }

    #[test]
    fn header_that_asks_is_found() {
        assert!(questioning_header("//! What it is.\n").is_some());
        assert_eq!(questioning_header("//! Credits: what is left.\n"), None);
        assert_eq!(questioning_header("/// What it is.\nfn f() {}\n"), None);
    }

    #[test]
    fn lengths_of_functions_are_counted_between_the_braces() {
        for signature in [
            "fn long()",
            "pub(crate) const unsafe fn long<T>(value: T) -> fn(T) -> T",
            "async fn long(\n    first: u8,\n) -> u8\nwhere\n    u8: Copy,\n",
        ] {
            let function = |lines| format!("impl It {{\n{signature} {{\n{}}}\n}}\n", body(lines));
            assert_eq!(long(FILE, &function(FUNCTION_LINES)), [0; 0], "{signature}");
            let source = function(FUNCTION_LINES + 1);
            assert_eq!(long(FILE, &source), [2], "{signature}");
            for file in ["tcp/examples/a.rs", "tests/a/src/b.rs", "tcp/src/tests.rs"] {
                assert_eq!(long(file, &source), [0; 0], "{signature}");
            }
            let declared = format!("fn declared();\n{source}");
            assert_eq!(long(FILE, &declared), [3], "{signature}");
        }
    }

    #[test]
    fn functions_for_tests_alone_may_be_longer() {
        let function = format!("fn long() {{\n{}}}\n", body(FUNCTION_LINES + 1));
        for source in [
            format!("#[test]\nfn scene() {{}}\n#[cfg(test)]\n{function}"),
            format!("#[cfg(test)]\nmod tests {{\n{function}}}\n"),
            format!("#[cfg(all(test, not(miri)))]\nmod tests {{\n{function}}}\n"),
        ] {
            assert_eq!(long(FILE, &source), [0; 0], "{source}");
            let both = format!("#[cfg(test)]\nmod other;\n{source}{function}");
            assert_eq!(long(FILE, &both).len(), 1, "{source}");
        }
        assert_eq!(long(FILE, &format!("#[cfg(not(test))]\n{function}")), [2]);
    }

    #[test]
    fn lengths_of_tests_are_counted_from_the_signature_to_the_closing_brace() {
        for attribute in ["test", "tokio::test(flavor = \"current_thread\")"] {
            let source = |lines| {
                let body = body(lines - 2);
                format!("mod tests {{\n#[{attribute}]\n#[ignore]\nfn long() {{\n{body}}}\n}}\n")
            };
            assert_eq!(long("a.rs", &source(TEST_LINES)), [0; 0], "{attribute}");
            let test = source(TEST_LINES + 1);
            assert_eq!(long("a.rs", &test), [4], "{attribute}");
            let helper = test.replace(&format!("#[{attribute}]"), "");
            assert_eq!(long("a.rs", &helper), [0; 0], "{attribute}");
        }
    }

    #[test]
    fn name_of_a_test_that_begins_with_an_article_is_found() {
        let source = "#[test]\nfn a_send_is_sent() {}\n#[test]\n#[should_panic]\nfn send_is_sent() {}\nfn the_helper() {}\n";
        let source =
            format!("{source}#[tokio::test(start_paused = true)]\nasync fn the_task() {{}}\n");
        let found = functions_of("a.rs", &source);
        let names: Vec<_> = found.iter().map(|it| (it.rule, &*it.what)).collect();
        assert_eq!(
            names,
            [(Rule::Names, "a_send_is_sent"), (Rule::Names, "the_task")]
        );
    }

    #[test]
    fn long_documents_are_found_at_the_top_and_among_records() {
        for (file, limit) in [
            ("README.md", TOP_LINES),
            ("tcp/decisions/0001-x.md", RECORD_LINES),
        ] {
            assert_eq!(long_document(file, &"x\n".repeat(limit)), None, "{file}");
            assert!(
                long_document(file, &"x\n".repeat(limit + 1)).is_some(),
                "{file}"
            );
        }
        for file in [
            "tcp/DESIGN.md",
            "tests/README.md",
            "tcp/decisions/README.md",
        ] {
            assert_eq!(long_document(file, &"x\n".repeat(500)), None, "{file}");
        }
    }
}
