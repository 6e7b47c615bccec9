//! Module graphs without circles: of every crate of the workspace, and of sources that have some.

use std::path::Path;

use xwarp_house_tests::{Graph, circles, targets};

fn found(source: &str) -> Vec<String> {
    let graph = Graph::parse(source).expect("Rust");
    circles(&graph).iter().map(ToString::to_string).collect()
}

#[test]
fn modules_of_each_crate_form_no_circle() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut told = Vec::new();
    for target in targets(here).expect("targets") {
        let name = format!("{} {}", target.package, target.name);
        let graph = Graph::read(&target.root).expect("sources");
        let circles = circles(&graph);
        told.extend(circles.iter().map(|circle| format!("{name} {circle}")));
    }
    assert!(told.is_empty(), "{}", told.join("\n"));
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
fn circle_of_a_parent_and_its_child_is_none() {
    let source =
        "pub use a::A; struct B; mod a { use crate::B; use super::a::x; mod x { use super::A; } }";
    assert_eq!(found(source), [""; 0]);
}

#[test]
fn what_only_tests_name_does_not_count() {
    let source = "mod a { use super::b::B; } mod b { #[cfg(test)] mod tests { use crate::a::A; } }";
    assert_eq!(found(source), [""; 0]);
}
