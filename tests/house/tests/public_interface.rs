//! Public interface of crate xwarp, as `rdma/verbs/api.txt` lists it: crate xwarp alone names all
//! of its types, and they have room to grow.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Crates whose paths any program can write.
const STD: [&str; 4] = ["alloc", "core", "std", "xwarp"];

/// Other paths in signatures, and why no program has to write them.
const UNNAMED: [(&str, &str); 3] = [
    (
        "bitflags::iter::Iter",
        "bitflags writes the method of Access",
    ),
    (
        "bitflags::iter::IterNames",
        "bitflags writes the method of Access",
    ),
    (
        "xwarp::buffers::queues::sealed::Queue",
        "seals traits that only types of the crate implement",
    ),
];

/// Types that no later version extends, and why.
const CLOSED: [(&str, &str); 24] = [
    ("xwarp::QpState", "the states of verbs draft §6.2"),
    ("xwarp::RemoteAddress", "STag and Tagged Offset (RFC 5041)"),
    ("xwarp::Sge", "STag, Tagged Offset and length"),
    ("xwarp::Stag", "32 bits of a header (RFC 5041 §4.2)"),
    ("xwarp::WrId", "64 bits of the application's"),
    ("xwarp::attr::MacAddr", "six bytes"),
    ("xwarp::attr::TerminateOrigin", "a connection has two ends"),
    ("xwarp::cm::Depth", "14 bits of a header (RFC 6581)"),
    ("xwarp::cm::EnhancedData", "all bits of a header (RFC 6581)"),
    ("xwarp::cm::PeerToPeer", "all of the model in RFC 6581 §9.2"),
    (
        "xwarp::cm::Revision",
        "another MPA would be another start-up",
    ),
    ("xwarp::cm::Rtr", "the three of RFC 6581 §9.2"),
    ("xwarp::completion::Arm", "the two of verbs draft §9.3.2.2"),
    (
        "xwarp::error::ProtectionError",
        "those of verbs draft §9.5.3",
    ),
    (
        "xwarp::error::RefusedError",
        "a pair that programs take apart",
    ),
    ("xwarp::error::User", "a process: its number and its name"),
    ("xwarp::memory::Addressing", "the two of verbs draft §7.6.1"),
    ("xwarp::memory::Bind", "modifiers of verbs draft figure 27"),
    (
        "xwarp::memory::FastRegister",
        "modifiers of verbs draft figure 27",
    ),
    ("xwarp::memory::PblMode", "the two of verbs draft §7.6.2"),
    (
        "xwarp::memory::PhysicalList",
        "the parts in verbs draft §7.6.2",
    ),
    ("xwarp::stream::Framing", "three bits of MPA's start-up"),
    (
        "xwarp::stream::StreamState",
        "TCP's states as whoever reads and writes can tell them apart",
    ),
    ("xwarp::work::AtomicOperation", "the two of RFC 7306 §5"),
];

/// A line without attributes such as `#[repr(u8)]`.
fn declared(mut line: &str) -> &str {
    while let Some((_, rest)) = line.strip_prefix("#[").and_then(|it| it.split_once("] ")) {
        line = rest;
    }
    line
}

/// The paths in a line, but what follows parameters, as in `A<T>::new`.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | ':'))
        .map(|word| word.trim_end_matches(':'))
        .filter(|word| word.contains("::") && !word.starts_with(':'))
}

/// The paths of all that the list has.
fn named(api: &str) -> BTreeSet<&str> {
    let lines = api.lines().map(declared);
    let lines = lines.filter(|line| line.starts_with("pub "));
    lines.filter_map(|line| paths(line).next()).collect()
}

/// Paths in signatures that a program cannot write, each with a line. Implementations have none
/// that programs write.
fn unnamed(api: &str) -> BTreeMap<&str, &str> {
    let named = named(api);
    let is_known = |path: &&str| {
        let (first, _) = path.split_once("::").unwrap_or((path, ""));
        let is_known = match first {
            "xwarp" => named.contains(path),
            first => STD.contains(&first),
        };
        is_known || UNNAMED.iter().any(|(unnamed, _)| unnamed == path)
    };
    let lines = api.lines().filter(|line| line.starts_with("pub "));
    let foreign = lines.flat_map(|line| {
        let foreign = paths(line).filter(move |path| !is_known(path));
        foreign.map(move |path| (path, line))
    });
    foreign.collect()
}

/// Types that a new field or variant would break: with public fields or variants, and not said to
/// be extensible. Those of `xwarp::sim` may change with any version.
fn closed(api: &str) -> BTreeSet<&str> {
    let is_closed = |line: &&str| {
        let declaration = declared(line);
        let is_type = ["pub struct ", "pub enum "]
            .iter()
            .any(|kind| declaration.starts_with(kind));
        let is_private = declaration.ends_with(" { .. }") || declaration.contains("(_");
        is_type && !is_private && !line.contains("non_exhaustive")
    };
    let lines = api.lines().filter(is_closed);
    let paths = lines.filter_map(|line| paths(declared(line)).next());
    paths
        .filter(|path| !path.starts_with("xwarp::sim::"))
        .collect()
}

fn api() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rdma/verbs/api.txt");
    fs::read_to_string(file).expect("a list of the public interface")
}

#[test]
fn types_in_signatures_are_named_by_crate_xwarp() {
    let api = api();
    assert!(named(&api).len() > 1000);
    assert_eq!(unnamed(&api), BTreeMap::new());
}

#[test]
fn types_have_room_to_grow_unless_a_specification_closes_them() {
    let api = api();
    let known: BTreeSet<&str> = CLOSED.iter().map(|(path, _)| *path).collect();
    assert_eq!(closed(&api), known);
}

#[test]
fn type_of_an_inner_crate_is_found() {
    for (line, foreign) in [
        (
            "pub fn xwarp::Rnic::with(io: alloc::boxed::Box<dyn xwarp_driver::PacketIo>) -> Self",
            "xwarp_driver::PacketIo",
        ),
        (
            "pub fn xwarp::Rnic::at(&self) -> core::result::Result<u8, xwarp::hidden::MapError>",
            "xwarp::hidden::MapError",
        ),
        (
            "pub xwarp::Config::congestion: core::option::Option<xwarp_tcp::Algorithm>",
            "xwarp_tcp::Algorithm",
        ),
        (
            "pub const xwarp::LIMIT: xwarp_rnic::Depth = 4",
            "xwarp_rnic::Depth",
        ),
        (
            "pub type xwarp::List = arrayvec::ArrayVec<u8, 4>",
            "arrayvec::ArrayVec",
        ),
    ] {
        assert_eq!(
            unnamed(line).keys().collect::<Vec<_>>(),
            [&foreign],
            "{line}"
        );
    }
}

#[test]
fn type_that_the_list_has_is_named() {
    let line = "pub fn xwarp::Rnic::at(&self) -> xwarp::error::MapError";
    assert_eq!(unnamed(line).len(), 1);
    let with = format!("{line}\n#[non_exhaustive] pub enum xwarp::error::MapError");
    assert_eq!(unnamed(&with), BTreeMap::new());
    let implementation = "impl core::convert::From<xwarp_rnic::Inner> for xwarp::Id";
    assert_eq!(unnamed(implementation), BTreeMap::new());
}

#[test]
fn type_without_room_to_grow_is_found() {
    for (line, is_closed) in [
        ("pub struct xwarp::A", true),
        ("pub struct xwarp::A(pub u32)", true),
        ("#[repr(u8)] pub enum xwarp::A", true),
        ("#[non_exhaustive] pub enum xwarp::A", false),
        ("#[non_exhaustive] #[repr(u8)] pub enum xwarp::A", false),
        ("pub struct xwarp::A<T> { .. }", false),
        ("pub struct xwarp::A(_)", false),
        ("pub trait xwarp::A", false),
        ("pub xwarp::A::a: u32", false),
        ("pub struct xwarp::sim::A", false),
    ] {
        assert_eq!(!closed(line).is_empty(), is_closed, "{line}");
    }
}
