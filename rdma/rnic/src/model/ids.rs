//! Identifiers of an RNIC's objects.
//!
//! A `QpId` has a serial number that no later queue pair has. [`QpId::number`] is 24 bits of it, as
//! libibverbs needs, and never 0 or 1, which InfiniBand reserves. A number is reused only after all
//! other numbers, and never while another queue pair has it.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use xwarp_tcp::ConnId;

/// An application's ID of a work request, which its completion returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WrId(pub u64);

/// A protection domain's identity within its RNIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PdId(pub(crate) u32);

/// A completion queue's identity; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CqId {
    pub(crate) slot: usize,
    pub(crate) serial: u64,
}

/// A shared receive queue's identity; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SrqId {
    pub(crate) slot: usize,
    pub(crate) serial: u64,
}

/// A completion event handler's identity; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandlerId {
    pub(crate) slot: usize,
    pub(crate) serial: u64,
}

/// A TCP connection of an RNIC: the draft's LLP Stream Handle as a value. Never used twice in the
/// RNIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId {
    pub(crate) engine: usize,
    pub(crate) conn: ConnId,
}

impl StreamId {
    /// Index of the connection's engine.
    #[doc(hidden)]
    pub fn engine(self) -> usize {
        self.engine
    }
}

/// An RNIC of this process; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RnicId(u64);

impl RnicId {
    /// Allocates the next identity.
    pub fn next() -> Self {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        Self(OPENED.fetch_add(1, Ordering::Relaxed)) // 2^64 RNICs are never opened
    }
}

/// A request's identity; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncomingId {
    pub(crate) engine: usize,
    pub(crate) key: usize,
    pub(crate) serial: u64,
}

impl IncomingId {
    /// Index of the engine that has the request.
    #[doc(hidden)]
    pub fn engine(self) -> usize {
        self.engine
    }

    pub(crate) fn key(self) -> usize {
        self.key
    }
}

/// Identifies a listener; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenKey(pub(crate) u64);

/// A queue pair's identity within its RNIC. No later queue pair of the RNIC has it, so a completion
/// that is polled late cannot name another queue pair (verbs draft §6.1.4, verbs.md A38).
/// Identities are in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpId(u64);

impl QpId {
    const SLOT_BITS: u32 = u16::BITS;
    /// Largest number of simultaneous queue pairs.
    pub(crate) const SLOTS: usize = 1 << Self::SLOT_BITS;

    /// The `serial`-th queue pair of the RNIC, in this slot of its engine. 2^48 queue pairs are
    /// never created.
    pub(crate) fn new(serial: u64, slot: usize) -> Self {
        debug_assert!(slot < Self::SLOTS);
        Self(serial << Self::SLOT_BITS | slot as u64)
    }

    /// The queue pair's number of 24 bits, as in `qp_num` of libibverbs: never 0 or 1, which
    /// InfiniBand reserves. No other queue pair of the RNIC has it at the same time. It is reused
    /// only after all other numbers of the range that `Rnic::set_qp_numbers` has set.
    pub fn number(self) -> u32 {
        number_of(self.serial())
    }

    /// Its place in the order of creation, where numbers that were left out count, too.
    pub(crate) fn serial(self) -> u64 {
        self.0 >> Self::SLOT_BITS
    }

    /// The queue pair's slot in the engine. Another queue pair may have the slot by now.
    #[doc(hidden)]
    pub fn slot(self) -> usize {
        let [.., high, low] = self.0.to_be_bytes();
        usize::from(u16::from_be_bytes([high, low]))
    }
}

impl fmt::Display for QpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}

/// Queue pair numbers: 2^24, as in InfiniBand and in `qp_num` of libibverbs.
pub(crate) const QP_NUMBERS: u64 = 1 << 24;

/// All numbers but those that InfiniBand reserves, which are QP0 and QP1.
pub(crate) const ALL_QP_NUMBERS: Range<u32> = 2..1 << 24;

/// The number of the queue pair with this serial number.
pub(crate) fn number_of(serial: u64) -> u32 {
    u32::try_from(serial % QP_NUMBERS).unwrap_or_default()
}
