//! Enhanced start-up data on the wire: read depths and RTR types (RFC 6581 §9).

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length in bytes of enhanced data within the private data (R6581-6-7).
pub(super) const ENHANCED_BYTES: usize = size_of::<EnhancedHeader>();

/// Enhanced data on the wire: the first 4 bytes of the private data if S=1 (RFC 6581 §9,
/// R6581-9-1).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct EnhancedHeader {
    /// A 0x8000, B 0x4000, IRD 0x3FFF.
    pub a_b_ird: U16,
    /// C 0x8000, D 0x4000, ORD 0x3FFF.
    pub c_d_ord: U16,
}
const _: () = assert!(size_of::<EnhancedHeader>() == 4);

/// A (with IRD) and C (with ORD).
const HIGH: u16 = 0x8000;
/// B (with IRD) and D (with ORD).
const LOW: u16 = 0x4000;
/// Mask of the depth in each half.
const DEPTH: u16 = 0x3FFF;

/// IRD or ORD: how many Reads and Atomics may be outstanding in one direction. 14 bits on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// A number of at most [`Depth::MAX`]. A larger one counts as the maximum.
    Count(u16),
    /// 0x3FFF: the ULPs agree on the depth, not start-up (R6581-9.1-10 to -13).
    LeftToUlp,
}

impl Depth {
    /// Largest number.
    pub const MAX: u16 = DEPTH - 1;

    const fn from_bits(bits: u16) -> Self {
        match bits & DEPTH {
            DEPTH => Self::LeftToUlp,
            count => Self::Count(count),
        }
    }

    const fn bits(self) -> u16 {
        match self {
            Self::Count(count) if count < Self::MAX => count,
            Self::Count(_) => Self::MAX,
            Self::LeftToUlp => DEPTH,
        }
    }
}

/// Ready To Receive: the first FPDU of an initiator in the peer-to-peer model (RFC 6581 §9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rtr {
    /// B: a zero-length Send.
    Send,
    /// C: a zero-length RDMA Write.
    Write,
    /// D: a zero-length RDMA Read.
    Read,
}

/// A set of RTR types: bits B, C and D.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct RtrTypes {
    send: bool,
    write: bool,
    read: bool,
}

impl RtrTypes {
    /// All types; this crate can send and accept each.
    pub const ALL: Self = Self {
        send: true,
        write: true,
        read: true,
    };
    /// The empty set: only a peer that breaks R6581-9.2-1 offers it.
    pub const NONE: Self = Self {
        send: false,
        write: false,
        read: false,
    };

    /// This set with `rtr` added.
    #[must_use]
    pub const fn with(self, rtr: Rtr) -> Self {
        match rtr {
            Rtr::Send => Self { send: true, ..self },
            Rtr::Write => Self {
                write: true,
                ..self
            },
            Rtr::Read => Self { read: true, ..self },
        }
    }

    /// The set of `rtr` alone.
    pub const fn only(rtr: Rtr) -> Self {
        Self::NONE.with(rtr)
    }

    /// True if the set contains `rtr`.
    pub const fn contains(self, rtr: Rtr) -> bool {
        match rtr {
            Rtr::Send => self.send,
            Rtr::Write => self.write,
            Rtr::Read => self.read,
        }
    }

    /// Intersection of both sets.
    #[must_use]
    pub const fn common(self, other: Self) -> Self {
        Self {
            send: self.send && other.send,
            write: self.write && other.write,
            read: self.read && other.read,
        }
    }

    /// True for the empty set.
    pub const fn is_empty(self) -> bool {
        !(self.send || self.write || self.read)
    }
}

/// Enhanced data of a start-up frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnhancedData {
    /// Number of Reads that the frame's sender serves at once.
    pub ird: Depth,
    /// Number of Reads that the frame's sender issues at once.
    pub ord: Depth,
    /// Peer-to-peer model (A=1): an RTR of one of these types follows. `None` is the client-server
    /// model.
    pub rtr: Option<RtrTypes>,
}

impl From<&EnhancedHeader> for EnhancedData {
    /// B, C and D are ignored without A (R6581-9.2-3).
    fn from(header: &EnhancedHeader) -> Self {
        let a_b_ird = header.a_b_ird.get();
        let c_d_ord = header.c_d_ord.get();
        let rtr = RtrTypes {
            send: a_b_ird & LOW != 0,
            write: c_d_ord & HIGH != 0,
            read: c_d_ord & LOW != 0,
        };
        Self {
            ird: Depth::from_bits(a_b_ird),
            ord: Depth::from_bits(c_d_ord),
            rtr: (a_b_ird & HIGH != 0).then_some(rtr),
        }
    }
}

impl From<&EnhancedData> for EnhancedHeader {
    fn from(data: &EnhancedData) -> Self {
        let bit = |set: bool, bit: u16| if set { bit } else { 0 };
        let rtr = data.rtr.unwrap_or(RtrTypes::NONE);
        let a_b = bit(data.rtr.is_some(), HIGH) | bit(rtr.send, LOW);
        let c_d = bit(rtr.write, HIGH) | bit(rtr.read, LOW);
        Self {
            a_b_ird: (a_b | data.ird.bits()).into(),
            c_d_ord: (c_d | data.ord.bits()).into(),
        }
    }
}
