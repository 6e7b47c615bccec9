//! Limits of an RNIC. Query RNIC returns them (verbs draft §9.2.1.2), and every verb checks them.

/// Queue pairs, each with its own connection, and the same number of connections being set up. Both
/// may need two entries each of the XDP program's 65,536 flows.
pub const MAX_QPS: usize = 16_384;
/// Completion queues, each with a file descriptor of its own.
pub const MAX_CQS: usize = 4096;
/// Shared receive queues.
pub const MAX_SRQS: usize = 1024;
/// Protection domains.
pub const MAX_PDS: usize = 1 << 16;
/// Work requests that a queue may hold.
pub const MAX_DEPTH: usize = 1 << 16;
/// Reads that a queue pair may have outstanding per direction.
pub const MAX_READS: usize = 1024;
/// Entries that a completion queue may have.
pub const MAX_CQ_ENTRIES: usize = 1 << 20;
/// Handlers that an RNIC can have.
pub const MAX_HANDLERS: usize = 1024;
/// Simultaneous regions and windows: one index in 256, so that a guessed index rarely exists.
pub const MAX_STAGS: usize = u16::MAX as usize;
/// Entries that a list may have.
pub const MAX_LIST_ENTRIES: usize = 1 << 16;
