//! Enhanced start-up data as bytes: read depths and the RTR types (RFC 6581 §9).

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes that enhanced data takes of the private data (R6581-6-7).
pub(super) const ENHANCED_BYTES: usize = size_of::<EnhancedHeader>();

/// Enhanced data as it is on the wire: the first 4 bytes of the private data if S=1 (RFC 6581 §9, R6581-9-1).
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
/// The depth in each half.
const DEPTH: u16 = 0x3FFF;

/// IRD or ORD: how many Reads and Atomics may be outstanding in one direction. 14 bits on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// So many, [`Depth::MAX`] at most: more counts as that.
    Count(u16),
    /// 0x3FFF: start-up does not settle it, the ULPs do (R6581-9.1-10 to -13).
    LeftToUlp,
}

impl Depth {
    /// Largest count.
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

/// Ready To Receive: what an initiator of the peer-to-peer model sends as its first FPDU (RFC 6581 §9.2).
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
    /// Every type; this crate can send and take them all.
    pub const ALL: Self = Self {
        send: true,
        write: true,
        read: true,
    };
    /// No type: only a peer that breaks R6581-9.2-1 offers that.
    pub const NONE: Self = Self {
        send: false,
        write: false,
        read: false,
    };

    /// This set and `rtr`.
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

    /// Only `rtr`.
    pub const fn only(rtr: Rtr) -> Self {
        Self::NONE.with(rtr)
    }

    /// Is `rtr` in the set?
    pub const fn contains(self, rtr: Rtr) -> bool {
        match rtr {
            Rtr::Send => self.send,
            Rtr::Write => self.write,
            Rtr::Read => self.read,
        }
    }

    /// The types in both sets.
    #[must_use]
    pub const fn common(self, other: Self) -> Self {
        Self {
            send: self.send && other.send,
            write: self.write && other.write,
            read: self.read && other.read,
        }
    }

    /// No type at all.
    pub const fn is_empty(self) -> bool {
        !(self.send || self.write || self.read)
    }
}

/// What the enhanced data of a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnhancedData {
    /// Depth of Reads that the frame's sender serves.
    pub ird: Depth,
    /// Depth of Reads that the frame's sender issues.
    pub ord: Depth,
    /// Peer-to-peer model (A=1): an RTR of one of these types follows. `None` is the client-server model.
    pub rtr: Option<RtrTypes>,
}

impl From<&EnhancedHeader> for EnhancedData {
    /// B, C and D are not read without A (R6581-9.2-3).
    fn from(header: &EnhancedHeader) -> Self {
        let (a_b_ird, c_d_ord) = (header.a_b_ird.get(), header.c_d_ord.get());
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
