//! Dependencies: every crate that xwarp is built from comes from crates.io, under a licence that is
//! allowed here.

use std::env;
use std::process::Command;

use serde_json::Value;

/// Licences whose terms a distributor of xwarp can meet by naming them, by their SPDX identifiers.
const ALLOWED: [&str; 8] = [
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];
/// The only registry that crates may come from.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Whether the terms of an SPDX expression can be met with allowed licences alone. `None` if it is
/// no expression.
fn is_allowed(expression: &str) -> Option<bool> {
    // Old manifests write a slash where SPDX has OR.
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let allowed = any(&mut rest)?;
    rest.is_empty().then_some(allowed)
}

/// `all { OR all }`
fn any(rest: &mut &[&str]) -> Option<bool> {
    let mut allowed = all(rest)?;
    while take(rest, "OR") {
        allowed |= all(rest)?;
    }
    Some(allowed)
}

/// `one { AND one }`
fn all(rest: &mut &[&str]) -> Option<bool> {
    let mut allowed = one(rest)?;
    while take(rest, "AND") {
        allowed &= one(rest)?;
    }
    Some(allowed)
}

/// `( any )`, or a licence with or without an exception. An exception adds rights, but the allowed
/// list has to name it.
fn one(rest: &mut &[&str]) -> Option<bool> {
    if take(rest, "(") {
        let allowed = any(rest)?;
        return take(rest, ")").then_some(allowed);
    }
    let name = next(rest)?;
    if take(rest, "WITH") {
        let exception = next(rest)?;
        return Some(ALLOWED.contains(&format!("{name} WITH {exception}").as_str()));
    }
    Some(ALLOWED.contains(&name))
}

fn next<'a>(rest: &mut &[&'a str]) -> Option<&'a str> {
    let (first, after) = rest.split_first()?;
    *rest = after;
    (!["AND", "OR", "WITH", "(", ")"].contains(first)).then_some(*first)
}

/// Takes the next word if it is `word`.
fn take(rest: &mut &[&str], word: &str) -> bool {
    let found = rest.first() == Some(&word);
    if found {
        *rest = &rest[1..];
    }
    found
}

/// What a command prints.
fn output_of(command: &mut Command) -> String {
    let output = command.output().expect("the command runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {complaint}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Every crate of another author that a build for this machine needs: name and version, source,
/// licence.
fn dependencies() -> Vec<[String; 3]> {
    let rustc = output_of(Command::new("rustc").arg("-vV"));
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: "));
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--format-version=1", "--offline", "--locked"]);
    cargo.args(["--filter-platform", host.expect("a host")]);
    let metadata: Value = serde_json::from_str(&output_of(&mut cargo)).expect("JSON");
    let needed = metadata["resolve"]["nodes"].as_array().expect("nodes");
    let is_needed = |id: &Value| needed.iter().any(|node| node["id"] == *id);
    let packages = metadata["packages"].as_array().expect("packages");
    let foreign = |package: &&Value| !package["source"].is_null() && is_needed(&package["id"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    packages
        .iter()
        .filter(foreign)
        .map(|package| {
            let name = format!("{} {}", text(&package["name"]), text(&package["version"]));
            [name, text(&package["source"]), text(&package["license"])]
        })
        .collect()
}

#[test]
fn dependencies_come_from_the_registry_and_have_allowed_licences() {
    let dependencies = dependencies();
    assert!(dependencies.len() > 50, "{dependencies:?}");
    let refused: Vec<_> = dependencies
        .iter()
        .filter(|[_, source, licence]| source != CRATES_IO || is_allowed(licence) != Some(true))
        .collect();
    assert!(refused.is_empty(), "name, source, licence: {refused:#?}");
}

#[test]
fn one_of_several_licences_is_enough_and_all_of_a_conjunction_are_needed() {
    for allowed in [
        "MIT",
        "GPL-3.0-only OR MIT",
        "LGPL-2.1 OR BSD-2-Clause",
        "MIT/Apache-2.0",
        "(MIT OR GPL-2.0-only) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception OR MIT",
    ] {
        assert_eq!(is_allowed(allowed), Some(true), "{allowed}");
    }
    for refused in [
        "GPL-3.0-only",
        "MIT AND GPL-2.0-only",
        "(MIT OR Apache-2.0) AND OpenSSL",
        "GPL-2.0-only WITH Classpath-exception-2.0",
        "LicenseRef-Own",
    ] {
        assert_eq!(is_allowed(refused), Some(false), "{refused}");
    }
}

#[test]
fn text_that_is_no_expression_is_no_licence() {
    for text in [
        "",
        "OR",
        "MIT OR",
        "MIT Apache-2.0",
        "(MIT",
        "MIT)",
        "AND MIT",
        "MIT WITH",
    ] {
        assert_eq!(is_allowed(text), None, "{text}");
    }
}
