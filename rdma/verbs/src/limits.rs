//! How much of everything an RNIC can have: what Query RNIC tells (verbs draft §9.2.1.2), and what every verb keeps to.

/// Queue pairs, each with a connection of its own, and as many that are being set up. Both may need two entries of the XDP program's 65,536
/// flows.
pub(crate) const MAX_QPS: usize = 16_384;
/// Completion queues, each with a file descriptor of its own.
pub(crate) const MAX_CQS: usize = 4096;
/// Shared receive queues.
pub(crate) const MAX_SRQS: usize = 1024;
/// Protection domains.
pub(crate) const MAX_PDS: usize = 1 << 16;
/// Work requests that a queue may hold.
pub(crate) const MAX_DEPTH: usize = 1 << 16;
/// Reads that a queue pair may have outstanding per direction.
pub(crate) const MAX_READS: usize = 1024;
/// Entries that a completion queue may have.
pub(crate) const MAX_CQ_ENTRIES: usize = 1 << 20;
