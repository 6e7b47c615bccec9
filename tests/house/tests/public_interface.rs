//! Public interface of crate xwarp, as `rdma/verbs/api.txt` lists it: crate xwarp alone names all of its types, and they have room to grow.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Types and traits of the standard library that signatures have.
const STD: [&str; 27] = [
    "Arc",
    "AsFd",
    "BorrowedFd",
    "Box",
    "Clone",
    "Copy",
    "Duration",
    "Error",
    "ErrorKind",
    "Fn",
    "FnMut",
    "Future",
    "Into",
    "IntoIterator",
    "IpAddr",
    "Iterator",
    "Option",
    "PathBuf",
    "Range",
    "RangeInclusive",
    "Result",
    "Self",
    "Send",
    "SocketAddr",
    "String",
    "Sync",
    "Vec",
];

/// Other names in signatures, and why no program has to write them.
const UNNAMED: [(&str, &str); 5] = [
    (
        "Queue",
        "seals traits that only types of the crate implement",
    ),
    ("Iter", "bitflags writes the method of Access"),
    ("IterNames", "bitflags writes the method of Access"),
    ("Item", "an associated type"),
    ("Output", "an associated type"),
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

/// An item's path and what is said of it.
fn entries(api: &str) -> impl Iterator<Item = (&str, &str)> {
    api.lines().filter_map(|line| line.split_once(": "))
}

/// The item's own name.
fn last(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

/// Without attributes such as `#[repr(u8)]`.
fn declared(mut text: &str) -> &str {
    while let Some((_, rest)) = text.strip_prefix("#[").and_then(|it| it.split_once(']')) {
        text = rest;
    }
    text
}

/// The part of an entry that has types of others: not the names that it declares, nor a comment. Implementations have none that programs
/// write.
fn signature(text: &str) -> &str {
    let text = text.split("//").next().unwrap_or_default();
    let declaration = declared(text);
    if let Some(member) = text.strip_prefix("member ") {
        return match member.strip_prefix("pub ") {
            Some(field) => field,
            None => member.trim_start_matches(|c: char| c.is_alphanumeric()),
        };
    }
    if let Some(constant) = text.strip_prefix("pub const ") {
        return constant.split_once(": ").map_or(constant, |(_, of)| of);
    }
    for kind in ["impl", "pub enum ", "pub mod "] {
        if declaration.starts_with(kind) {
            return "";
        }
    }
    match declaration.strip_prefix("pub struct ") {
        Some(fields) => fields.split_once('(').map_or("", |(_, fields)| fields),
        None => declaration,
    }
}

/// Names of types in a signature: those with one letter are parameters.
fn types(signature: &str) -> impl Iterator<Item = &str> {
    signature
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| word.len() > 1 && word.starts_with(|c: char| c.is_ascii_uppercase()))
}

/// Types in signatures that crate xwarp does not name, each with a place.
fn unnamed(api: &str) -> BTreeMap<&str, &str> {
    let named: BTreeSet<&str> = entries(api).map(|(path, _)| last(path)).collect();
    let is_known = |name: &&str| {
        named.contains(name)
            || STD.contains(name)
            || UNNAMED.iter().any(|(unnamed, _)| unnamed == name)
    };
    let foreign = entries(api).flat_map(|(path, text)| {
        let foreign = types(signature(text)).filter(move |name| !is_known(name));
        foreign.map(move |name| (name, path))
    });
    foreign.collect()
}

/// Types that a new field or variant would break: with public fields or variants, and not said to be extensible. Those of `xwarp::sim` may
/// change with any version.
fn closed(api: &str) -> BTreeSet<&str> {
    let is_closed = |(path, text): &(&str, &str)| {
        let declaration = declared(text);
        let is_type = ["pub struct ", "pub enum "]
            .iter()
            .any(|kind| declaration.starts_with(kind));
        let may_grow = text.contains("non_exhaustive") || text.contains("/* private fields */");
        is_type && !may_grow && !path.starts_with("xwarp::sim::")
    };
    entries(api)
        .filter(is_closed)
        .map(|(path, _)| path)
        .collect()
}

fn api() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rdma/verbs/api.txt");
    fs::read_to_string(file).expect("a list of the public interface")
}

#[test]
fn types_in_signatures_are_named_by_crate_xwarp() {
    let api = api();
    assert!(entries(&api).count() > 1000);
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
    for (entry, foreign) in [
        (
            "xwarp::Rnic: pub fn with(io: Box<dyn PacketIo>) -> Self",
            "PacketIo",
        ),
        (
            "xwarp::Rnic: pub fn at(self: &Self) -> Result<u8, MapError>",
            "MapError",
        ),
        (
            "xwarp::Config: member pub congestion: Option<Algorithm>,",
            "Algorithm",
        ),
        ("xwarp::Error: member Host(HostError),", "HostError"),
        (
            "xwarp::Error: member Host { source: HostError, },",
            "HostError",
        ),
        ("xwarp::LIMIT: pub const LIMIT: Depth = _; // 4u8", "Depth"),
        ("xwarp::Id: pub struct Id(pub Inner);", "Inner"),
        ("xwarp::List: pub type List = ArrayVec<u8, 4>;", "ArrayVec"),
    ] {
        assert_eq!(
            unnamed(entry).keys().collect::<Vec<_>>(),
            [&foreign],
            "{entry}"
        );
        let named = format!("{entry}\nxwarp::error::{foreign}: pub struct {foreign};");
        assert_eq!(unnamed(&named), BTreeMap::new(), "{entry}");
    }
}

#[test]
fn names_that_an_entry_declares_are_no_types_of_others() {
    for entry in [
        "xwarp::QpState: member Idle = 0,",
        "xwarp::Opcode: #[non_exhaustive]pub enum Opcode { Send,",
        "xwarp::Id: impl From<Inner> for Id",
        "xwarp::Id: pub struct Id { /* private fields */ }",
        "xwarp::Access: pub const LOCAL_READ: Access",
        "xwarp::Region: pub fn of<M>(memory: M) -> Self where M: Clone + Into<String>",
    ] {
        assert_eq!(unnamed(entry), BTreeMap::new(), "{entry}");
    }
}

#[test]
fn type_without_room_to_grow_is_found() {
    for (entry, is_closed) in [
        ("xwarp::A: pub struct A {", true),
        ("xwarp::A: pub struct A(pub u32);", true),
        ("xwarp::A: #[repr(u8)]pub enum A {", true),
        ("xwarp::A: #[non_exhaustive]pub enum A { One,", false),
        ("xwarp::A: pub struct A { /* private fields */ }", false),
        ("xwarp::A: pub trait A", false),
        ("xwarp::A: member pub a: u32,", false),
        ("xwarp::sim::A: pub struct A {", false),
    ] {
        assert_eq!(!closed(entry).is_empty(), is_closed, "{entry}");
    }
}
