//! Headers of modules: every source file has one.
#![forbid(unsafe_code)]

use std::fs;

use xwarp_house_tests::{below_root, doc_comments, source_files};

fn has_header(source: &str) -> bool {
    let comments = doc_comments(source);
    comments.first().is_some_and(|first| first.is_inner)
}

#[test]
fn modules_have_headers() {
    let mut bare = source_files().expect("sources");
    bare.retain(|path| !has_header(&fs::read_to_string(path).expect("a source is text")));
    let bare: Vec<String> = bare.iter().map(|path| below_root(path)).collect();
    assert!(bare.is_empty(), "no header:\n{}", bare.join("\n"));
}

#[test]
fn module_without_header_is_found() {
    assert!(!has_header("use core::fmt;\n\n/// A tag.\nstruct Tag;\n"));
    assert!(has_header("//! Tags.\n\nuse core::fmt;\n"));
}
