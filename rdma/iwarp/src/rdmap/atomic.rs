//! Atomic operations (RFC 7306 §5): their headers, operands and arithmetic.

use crate::Stag;
use crate::ddp::UntaggedHeader;
use zerocopy::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length in bytes of an Atomic Request header: the whole DDP payload of the message (R7306-4.2-1).
pub const ATOMIC_REQUEST_BYTES: usize = 52;
/// Length in bytes of an Atomic Response header: the whole DDP payload of the message.
pub const ATOMIC_RESPONSE_BYTES: usize = 12;
/// Size in bytes of the operand of an Atomic Operation, and its alignment in memory
/// (R7306-5.1.1-1).
pub const ATOMIC_OPERAND_BYTES: u64 = 8;

/// Atomic Request header on the wire: 52 bytes (RFC 7306 §5.2.1).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct AtomicRequestHeader {
    /// 28 reserved bits, sent as 0 and ignored (R7306-5.2.1-2); `AOpCode` 0x0F.
    pub operation: U32,
    /// Request Identifier, which the response returns.
    pub id: U32,
    /// Responder's `STag`.
    pub stag: U32,
    /// Tagged Offset of the 8 bytes in the region.
    pub to: U64,
    /// Add Data or Swap Data.
    pub data: U64,
    /// Add Mask or Swap Mask.
    pub mask: U64,
    /// Compare Data.
    pub compare: U64,
    /// Compare Mask.
    pub compare_mask: U64,
}
const _: () = assert!(size_of::<AtomicRequestHeader>() == ATOMIC_REQUEST_BYTES);

/// Atomic Response header on the wire: 12 bytes (RFC 7306 §5.2.2).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct AtomicResponseHeader {
    /// Request Identifier of the request.
    pub id: U32,
    /// Value in memory before the operation.
    pub original: U64,
}
const _: () = assert!(size_of::<AtomicResponseHeader>() == ATOMIC_RESPONSE_BYTES);

/// One of the two Atomic Operations. Values are those of the target memory, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOperation {
    /// Adds field by field.
    FetchAdd {
        /// Addend.
        add: u64,
        /// Each set bit is the top bit of a field: its carry is dropped. 0 adds all 64 bits as one
        /// field.
        mask: u64,
    },
    /// Swaps masked bits if other masked bits are equal.
    CompareSwap {
        /// Value to compare memory with.
        compare: u64,
        /// Bits to compare; 0 always matches.
        compare_mask: u64,
        /// Value to store.
        swap: u64,
        /// Bits to store.
        swap_mask: u64,
    },
}

impl AtomicOperation {
    const FETCH_ADD: u32 = 0;
    const COMPARE_SWAP: u32 = 2;
    const AOPCODE: u32 = 0x0F;

    /// Value of memory after the operation, from `original` before. The caller makes the exchange
    /// atomic.
    pub const fn apply(self, original: u64) -> u64 {
        match self {
            Self::FetchAdd { add, mask } => {
                // Fields add below their top bits without overflow; top bits add without carry.
                let low = (original & !mask).wrapping_add(add & !mask);
                low ^ ((original ^ add) & mask)
            }
            Self::CompareSwap {
                compare,
                compare_mask,
                swap,
                swap_mask,
            } => {
                if (compare ^ original) & compare_mask == 0 {
                    (original & !swap_mask) | (swap & swap_mask)
                } else {
                    original
                }
            }
        }
    }

    const fn aopcode(self) -> u32 {
        match self {
            Self::FetchAdd { .. } => Self::FETCH_ADD,
            Self::CompareSwap { .. } => Self::COMPARE_SWAP,
        }
    }

    /// Returns in `Err` an `AOpCode` that is reserved or unassigned (R7306-5.2.1-3).
    fn read(header: &AtomicRequestHeader) -> Result<Self, u32> {
        let data = header.data.get();
        let mask = header.mask.get();
        match header.operation.get() & Self::AOPCODE {
            Self::FETCH_ADD => Ok(Self::FetchAdd { add: data, mask }),
            Self::COMPARE_SWAP => Ok(Self::CompareSwap {
                compare: header.compare.get(),
                compare_mask: header.compare_mask.get(),
                swap: data,
                swap_mask: mask,
            }),
            unassigned => Err(unassigned),
        }
    }
}

/// Contents of an Atomic Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// Request Identifier, chosen by the requester; the response carries it.
    pub id: u32,
    /// The operation.
    pub operation: AtomicOperation,
    /// Responder's region.
    pub stag: Stag,
    /// Tagged Offset of the 8 bytes in the region.
    pub to: u64,
}

impl TryFrom<&AtomicRequestHeader> for AtomicRequest {
    type Error = u32;

    /// Returns an unknown `AOpCode` in `Err`.
    fn try_from(header: &AtomicRequestHeader) -> Result<Self, u32> {
        Ok(Self {
            id: header.id.get(),
            operation: AtomicOperation::read(header)?,
            stag: Stag(header.stag.get()),
            to: header.to.get(),
        })
    }
}

impl From<&AtomicRequest> for AtomicRequestHeader {
    fn from(request: &AtomicRequest) -> Self {
        let (data, mask, compare, compare_mask) = match request.operation {
            AtomicOperation::FetchAdd { add, mask } => (add, mask, 0, u64::MAX), // R7306-5.2.1-5
            AtomicOperation::CompareSwap {
                compare,
                compare_mask,
                swap,
                swap_mask,
            } => (swap, swap_mask, compare, compare_mask),
        };
        Self {
            operation: request.operation.aopcode().into(),
            id: request.id.into(),
            stag: request.stag.0.into(),
            to: request.to.into(),
            data: data.into(),
            mask: mask.into(),
            compare: compare.into(),
            compare_mask: compare_mask.into(),
        }
    }
}

/// An Atomic Request of the peer, to be executed once, and answered after the requests before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboundAtomic {
    /// Contents of the request.
    pub request: AtomicRequest,
    /// For the Terminate, if the target is revoked before its turn.
    pub(super) header: UntaggedHeader,
}

#[cfg(test)]
mod tests {
    use super::AtomicOperation;

    /// vectors.md §10: original, add data, add mask, result.
    #[test]
    fn fetch_add_adds_field_by_field() {
        for [original, add, mask, result] in [
            [0x2a, 1, 0, 0x2b],
            [u64::MAX, 1, 0, 0],
            [0xffff_ffff, 1, 0, 0x1_0000_0000],
            [0xffff_ffff, 1, 0x8000_0000, 0],
            [0xffff_ffff, 1, 0x8000_0000_8000_0000, 0],
            [
                0x00ff_00ff_00ff_00ff,
                0x0001_0001_0001_0001,
                0x8000_8000_8000_8000,
                0x0100_0100_0100_0100,
            ],
            [u64::MAX, 0x0001_0001_0001_0001, 0x8000_8000_8000_8000, 0],
            [u64::MAX, 0x0101_0101_0101_0101, 0x8080_8080_8080_8080, 0],
            [
                0xaaaa_aaaa_aaaa_aaaa,
                u64::MAX,
                u64::MAX,
                0x5555_5555_5555_5555,
            ],
            [5, u64::MAX, 0, 4],
            [0x7fff_ffff_ffff_ffff, 1, 1 << 63, 1 << 63],
            [1 << 63, 1 << 63, 1 << 63, 0],
            [0, 0, 0, 0],
        ] {
            let operation = AtomicOperation::FetchAdd { add, mask };
            assert_eq!(
                operation.apply(original),
                result,
                "{original:#x} {operation:x?}"
            );
        }
    }

    /// vectors.md §10: original, compare data and mask, swap data and mask, result.
    #[test]
    fn compare_swap_swaps_masked_bits_where_masked_bits_are_equal() {
        let (old, new) = (0x1122_3344_5566_7788, 0xdead_beef_cafe_f00d);
        for [original, compare, compare_mask, swap, swap_mask, result] in [
            [
                0x2b,
                0x2b,
                u64::MAX,
                0x0102_0304_0506_0708,
                u64::MAX,
                0x0102_0304_0506_0708,
            ],
            [0x2c, 0x2b, u64::MAX, 0x0102_0304_0506_0708, u64::MAX, 0x2c],
            [
                old,
                0x5566_0000,
                0xffff_0000,
                0xaaaa_aaaa_bbbb_bbbb,
                0xffff_ffff,
                0x1122_3344_bbbb_bbbb,
            ],
            [old, 0, 0, new, u64::MAX, new],
            [old, old, u64::MAX, new, 0, old],
            [old, 0xff, 0xf0, new, u64::MAX, old],
        ] {
            let operation = AtomicOperation::CompareSwap {
                compare,
                compare_mask,
                swap,
                swap_mask,
            };
            assert_eq!(
                operation.apply(original),
                result,
                "{original:#x} {operation:x?}"
            );
        }
    }
}
