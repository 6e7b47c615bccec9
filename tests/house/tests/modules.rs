//! Module graphs without circles: of every crate of the workspace, and of sources that have some.

use std::path::Path;

use xwarp_house_tests::{Graph, Nodes, circles, targets};

fn found(source: &str) -> Vec<String> {
    let graph = Graph::parse(source).expect("Rust");
    let circles = circles(&graph, Nodes::Files);
    circles.iter().map(ToString::to_string).collect()
}

/// Libraries in which a folder's own file is a node, too. In the others, and in tests, it may name
/// the other files of its folder that name it.
const FINE: [&str; 3] = ["xwarp-bpf", "xwarp-driver", "xwarp"];

#[test]
fn files_and_folders_of_each_crate_form_no_circle() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for target in targets(here).expect("targets") {
        let name = format!("{} {}", target.package, target.name);
        let graph = Graph::read(&target.root).expect("sources");
        let is_library = target.root.ends_with("src/lib.rs");
        let is_fine = is_library && FINE.contains(&target.package.as_str());
        let nodes = if is_fine {
            Nodes::Files
        } else {
            Nodes::Siblings
        };
        let circles = circles(&graph, nodes);
        found.extend(circles.iter().map(|circle| format!("{name} {circle}")));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn circle_of_two_siblings_is_named() {
    let source = "mod a { use super::b::B; } mod b { use crate::a::A; }";
    assert_eq!(found(source), ["in crate: a -> b -> a"]);
}

#[test]
fn circle_through_grandchildren_counts_for_their_parents() {
    let source = "mod a { mod x { use crate::b::y::Y; } mod z { } } mod b { mod y { fn f() { crate::a::z::f() } } }";
    assert_eq!(found(source), ["in crate: a -> b -> a"]);
}

#[test]
fn circle_through_a_reexport_is_found() {
    let source =
        "mod p { pub use a::A; mod a { use super::super::q::Q; } } mod q { use crate::p::A; }";
    assert_eq!(found(source), ["in crate: p -> q -> p"]);
    let source = "mod p { pub use a::A; mod a { use super::b::B; } mod b { use super::A; } }";
    assert_eq!(found(source), ["in crate::p: a -> b -> a"]);
}

#[test]
fn circle_of_a_folders_own_file_and_another_is_named() {
    let used = "mod p { use a::A; struct B; mod a { use super::B; } }";
    assert_eq!(found(used), ["in crate::p: a -> mod.rs -> a"]);
    let by_path = "mod p { fn f() { a::g() } struct B; mod a { use super::B; } }";
    assert_eq!(found(by_path), ["in crate::p: a -> mod.rs -> a"]);
    let passed_on_and_used = "pub use a::A; struct B(A); mod a { use crate::B; }";
    assert_eq!(found(passed_on_and_used), ["in crate: a -> mod.rs -> a"]);
}

#[test]
fn name_that_a_folder_only_passes_on_makes_no_circle() {
    let source = "pub use a::A; struct B; mod a { pub(crate) use x::A; use crate::B; mod x { } }";
    assert_eq!(found(source), [""; 0]);
}

#[test]
fn what_only_tests_name_does_not_count() {
    let source = "mod a { use super::b::B; } mod b { #[cfg(test)] mod tests { use crate::a::A; } }";
    assert_eq!(found(source), [""; 0]);
}
