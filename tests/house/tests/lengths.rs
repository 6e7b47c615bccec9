//! Lengths of functions. One of the product does one thing. A test is read at one glance, as a table or as a scene of named
//! steps. Examples, and what helps tests, are not concerned.
#![forbid(unsafe_code)]

use std::fs;

use xwarp_house_tests::{Kind, below_root, functions, source_files};

/// Lines between the braces of a function of the product at most.
const PRODUCT_LIMIT: usize = 30;
/// Lines of a test at most, from its signature to its closing brace.
const TEST_LIMIT: usize = 40;
/// Folders of the product.
const PRODUCT: [&str; 5] = ["bpf/", "driver/", "tcp/", "rdma/", "tools/"];
/// Folders in them that hold no product.
const APART: [&str; 2] = ["/tests/", "/examples/"];
/// Files that are compiled for tests alone.
const FOR_TESTS: [&str; 3] = ["tests.rs", "/testbed.rs", "/bottleneck.rs"];

fn is_product(file: &str) -> bool {
    PRODUCT.iter().any(|folder| file.starts_with(folder))
        && !APART.iter().any(|folder| file.contains(folder))
        && !FOR_TESTS.iter().any(|end| file.ends_with(end))
}

/// Names of the functions of `file` that are longer than they may be, and their lines.
fn long_ones(file: &str, source: &str) -> Vec<(String, usize)> {
    let functions = functions(source).expect("Rust").into_iter();
    let long = functions.filter_map(|it| {
        let (lines, limit) = match it.kind {
            Kind::Test => (it.lines, TEST_LIMIT),
            Kind::Product if is_product(file) => (it.body_lines, PRODUCT_LIMIT),
            Kind::Product | Kind::ForTests => return None,
        };
        (lines > limit).then_some((it.name, lines))
    });
    long.collect()
}

#[test]
fn length_of_every_function_is_within_the_limit() {
    let (mut told, mut files) = (Vec::new(), 0);
    for path in source_files().expect("sources") {
        let file = below_root(&path);
        let source = fs::read_to_string(&path).expect("a source is text");
        let long = long_ones(&file, &source);
        told.extend(
            long.iter()
                .map(|it| format!("{file}: {} has {} lines", it.0, it.1)),
        );
        files += usize::from(is_product(&file));
    }
    assert!(files > 200, "{files} files");
    let most = format!("{PRODUCT_LIMIT} lines are the most, and {TEST_LIMIT} for a test:");
    assert!(told.is_empty(), "{most}\n{}", told.join("\n"));
}

/// A file of the product.
const FILE: &str = "tcp/src/a.rs";

fn body(lines: usize) -> String {
    "    step(\"}\");\n".repeat(lines)
}

/// What is found where a function or test named `long` has so many lines.
fn found(lines: usize) -> Vec<(String, usize)> {
    vec![("long".to_owned(), lines)]
}

#[test]
fn lengths_of_functions_are_counted_between_the_braces() {
    let limit = PRODUCT_LIMIT;
    for signature in [
        "fn long()",
        "pub(crate) const unsafe fn long<T>(value: T) -> fn(T) -> T",
        "async fn long(\n    first: u8,\n) -> u8\nwhere\n    u8: Copy,\n",
    ] {
        let function = |lines| format!("impl It {{\n{signature} {{\n{}}}\n}}\n", body(lines));
        assert_eq!(long_ones(FILE, &function(limit)), [], "{signature}");
        let long = function(limit + 1);
        assert_eq!(long_ones(FILE, &long), found(limit + 1), "{signature}");
        assert_eq!(long_ones("tcp/examples/a.rs", &long), [], "{signature}");
        let declared = format!("fn declared();\n{}", function(limit + 2));
        assert_eq!(long_ones(FILE, &declared), found(limit + 2), "{signature}");
    }
}

#[test]
fn what_is_compiled_for_tests_alone_may_be_longer() {
    let function = format!("fn long() {{\n{}}}\n", body(PRODUCT_LIMIT + 1));
    for source in [
        format!("#[test]\n{function}"),
        format!("#[test]\nfn scene() {{\n{function}}}\n"),
        format!("#[cfg(test)]\nmod tests {{\n{function}}}\n"),
        format!("#[cfg(all(test, not(miri)))]\nmod tests {{\n{function}}}\n"),
    ] {
        assert_eq!(long_ones(FILE, &source), [], "{source}");
        let both = format!("#[cfg(test)]\nmod other;\n{source}{function}");
        assert_eq!(long_ones(FILE, &both).len(), 1, "{source}");
    }
    let product = format!("#[cfg(not(test))]\n{function}");
    assert_eq!(long_ones(FILE, &product).len(), 1);
}

#[test]
fn lengths_of_tests_are_counted_from_the_signature_to_the_closing_brace() {
    let limit = TEST_LIMIT;
    for attribute in ["test", "tokio::test(flavor = \"current_thread\")"] {
        let source = |lines| {
            let attributes = format!("#[{attribute}]\n#[ignore]");
            format!(
                "mod tests {{\n{attributes}\nfn long() {{\n{}}}\n}}\n",
                body(lines - 2)
            )
        };
        assert_eq!(long_ones("a.rs", &source(limit)), [], "{attribute}");
        let long = source(limit + 1);
        assert_eq!(long_ones("a.rs", &long), found(limit + 1), "{attribute}");
        let helper = long.replace(&format!("#[{attribute}]"), "");
        assert_eq!(long_ones("a.rs", &helper), [], "{attribute}");
    }
}
