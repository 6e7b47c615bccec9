//! Law of the RNIC core (crate xwarp-rnic): no thread, no wait, no clock, no system call. Time and
//! verbs go in.
//!
//! Its module `queues` has two exceptions: mutexes, and eventfds that it makes and raises
//! (rnic/DESIGN.md).

use std::fs;
use std::path::{Path, PathBuf};

/// What source text of the core may not contain, comments and tests aside.
const FORBIDDEN: [&str; 19] = [
    "std::thread",
    "thread::",
    "Condvar",
    "Barrier",
    "std::time::Instant",
    "SystemTime",
    "Instant::now",
    "std::fs",
    "std::env",
    "std::process",
    "sleep(",
    "park(",
    ".recv(",
    "getrandom",
    ".open_port(",
    ".source_to(",
    ".next_hop(",
    "nix::",
    "libc::",
];

/// What only the module `queues` may contain besides: locks, and descriptors that wake.
const ONLY_IN_QUEUES: [&str; 6] = [
    "Mutex",
    "RwLock",
    "ShardedLock",
    "Signal::new",
    "Doorbell",
    "Sleeper",
];

/// The forbidden words that a file has, without its comments and the tests at its end.
fn offences(path: &Path, source: &str) -> Vec<&'static str> {
    let product = source.split("#[cfg(test)]\nmod tests {").next();
    let lines = product.unwrap_or_default().lines();
    let code: String = lines
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| [line, "\n"])
        .collect();
    let is_queue = path
        .parent()
        .is_some_and(|folder| folder.ends_with("queues"));
    let more = if is_queue { &[] } else { &ONLY_IN_QUEUES[..] };
    let forbidden = FORBIDDEN.iter().chain(more);
    // The core's own type has the driver's name in its own.
    let code = code.replace("EngineDoorbell", "");
    let has = |word: &&&str| code.contains(**word);
    forbidden.filter(has).copied().collect()
}

/// All source files below a directory, apart from folders of tests.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("tests") {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

#[test]
fn core_has_no_thread_no_wait_no_clock_and_no_system_call() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rdma/rnic/src");
    let sources = sources(&root);
    assert!(sources.len() > 50, "{sources:?}");
    let offenders: Vec<_> = sources
        .iter()
        .map(|path| {
            let source = fs::read_to_string(path).expect("UTF-8");
            (path, offences(path, &source))
        })
        .filter(|(_, offences)| !offences.is_empty())
        .collect();
    assert!(offenders.is_empty(), "{offenders:#?}");
}

#[test]
fn forbidden_word_is_found_in_code_alone() {
    let (engine, queues) = (Path::new("engine/mod.rs"), Path::new("queues/inbox.rs"));
    for word in FORBIDDEN.iter().chain(&ONLY_IN_QUEUES) {
        assert!(offences(engine, &format!("let it = {word};")).contains(word));
        assert_eq!(offences(engine, &format!("    // {word}\n")), [""; 0]);
        let in_tests = format!("#[cfg(test)]\nmod tests {{\n{word}\n}}");
        assert_eq!(offences(engine, &in_tests), [""; 0]);
    }
    for word in FORBIDDEN {
        assert!(offences(queues, word).contains(&word));
    }
    for word in ONLY_IN_QUEUES {
        assert_eq!(offences(queues, word), [""; 0]);
    }
    assert_eq!(offences(engine, "EngineDoorbell"), [""; 0]);
    assert_eq!(offences(engine, "EngineDoorbell, Doorbell"), ["Doorbell"]);
}
