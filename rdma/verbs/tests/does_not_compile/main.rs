//! Programs that the types of this library rule out: wrong or missing modifiers of verbs, and what
//! a handle cannot do.
//!
//! Each claim has programs that compile, and changes of them that do not. A change replaces one
//! piece of a program, so that it fails for the reason given. The compiler reads all programs of
//! all claims at once.
#![forbid(unsafe_code)]

mod compiler;
mod handles;
mod work;

use compiler::Claim;

/// All claims.
const CLAIMS: [&Claim; 12] = [
    &handles::IDENTIFIER,
    &handles::NOTIFICATION_TYPE,
    &handles::DATA_PATH_OR_POLLER,
    &handles::DESTROYED,
    &handles::NOT_RETURNED,
    &work::SOURCES_AND_SINKS,
    &work::OPERATION,
    &work::LIST,
    &work::VALUE,
    &work::MODIFIER,
    &work::QUEUE,
    &work::POSTED,
];
