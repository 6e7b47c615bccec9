//! DDP segments on the wire (RFC 5041 §4). RDMAP gives them meaning: see [`crate::rdmap`].

use zerocopy::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Tagged DDP segment header on the wire: 14 bytes (RFC 5041 §4.2).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct TaggedHeader {
    /// T, L, reserved and DV bits (§4.1): see [`Control`].
    pub control: u8,
    /// RDMAP's control byte, which DDP does not interpret.
    pub rsvd_ulp: u8,
    /// Steering Tag of the sink region.
    pub stag: U32,
    /// Tagged Offset of the first payload byte.
    pub to: U64,
}
const _: () = assert!(size_of::<TaggedHeader>() == TAGGED_HEADER_BYTES);

/// Untagged DDP segment header on the wire: 18 bytes (RFC 5041 §4.3).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct UntaggedHeader {
    /// T, L, reserved and DV bits (§4.1): see [`Control`].
    pub control: u8,
    /// `RsvdULP` byte 0: RDMAP's control byte, which DDP does not interpret.
    pub rsvd_ulp: u8,
    /// `RsvdULP` bytes 1 to 4: RDMAP's Invalidate `STag`, or 0.
    pub rsvd_ulp_stag: U32,
    /// Queue Number.
    pub qn: U32,
    /// Message Sequence Number: 1 for a queue's first message, incremented for each one modulo
    /// 2^32.
    pub msn: U32,
    /// Message Offset of the first payload byte.
    pub mo: U32,
}
const _: () = assert!(size_of::<UntaggedHeader>() == UNTAGGED_HEADER_BYTES);

/// Length in bytes of a tagged header.
pub const TAGGED_HEADER_BYTES: usize = 14;
/// Length in bytes of an untagged header.
pub const UNTAGGED_HEADER_BYTES: usize = 18;
/// The IETF's DDP and RDMAP version (RFC 5041 §4.1, RFC 5040 §4.1).
pub const VERSION_IETF: u8 = 1;
/// The RDMA Consortium's DDP and RDMAP version, used only on a stream whose start-up agreed on it
/// (RFC 5044, appendix C).
pub const VERSION_RDMAC: u8 = 0;
/// MSN of the first message on every queue (RFC 5041 §4.3, R5041-4.3-4).
pub const FIRST_MSN: u32 = 1;

/// The control byte that begins both headers (RFC 5041 §4.1). Reserved bits are sent as 0 and
/// ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control(pub u8);

impl Control {
    /// The L bit.
    pub(crate) const LAST: u8 = 0x40;
    const T: u8 = 0x80;
    const DV: u8 = 0x03;

    /// The control byte of a segment to send.
    pub const fn new(tagged: bool, last: bool, version: u8) -> Self {
        let t = if tagged { Self::T } else { 0 };
        let l = if last { Self::LAST } else { 0 };
        Self(t | l | (version & Self::DV))
    }

    /// T bit: the payload goes to a Tagged Buffer.
    pub const fn is_tagged(self) -> bool {
        self.0 & Self::T != 0
    }

    /// L bit: last segment of its message.
    pub const fn is_last(self) -> bool {
        self.0 & Self::LAST != 0
    }

    /// DV field: the sender's DDP version.
    pub const fn version(self) -> u8 {
        self.0 & Self::DV
    }
}

/// The untagged queues (RFC 5040 §5, RFC 7306 §4; R5040-3.1-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Queue {
    /// QN 0: the four Sends and Immediate Data.
    Send = 0,
    /// QN 1: Read Requests and Atomic Requests.
    Request = 1,
    /// QN 2: the Terminate.
    Terminate = 2,
    /// QN 3: Atomic Responses; exists with RFC 7306 only (R7306-4.1-5).
    AtomicResponse = 3,
}

impl Queue {
    /// The queue with this Queue Number, if it exists.
    pub const fn from_qn(qn: u32) -> Option<Self> {
        match qn {
            0 => Some(Self::Send),
            1 => Some(Self::Request),
            2 => Some(Self::Terminate),
            3 => Some(Self::AtomicResponse),
            _ => None,
        }
    }

    /// Queue Number on the wire.
    pub const fn qn(self) -> u32 {
        self as u32
    }
}

/// A ULPDU, split into header and payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DdpSegment<'a> {
    /// T=1.
    Tagged(&'a TaggedHeader, &'a [u8]),
    /// T=0.
    Untagged(&'a UntaggedHeader, &'a [u8]),
}

impl<'a> DdpSegment<'a> {
    /// Parses the header that the T bit announces. Returns `None` if the ULPDU is too short for it
    /// (R5041-4.4-2).
    pub fn parse(ulpdu: &'a [u8]) -> Option<Self> {
        let control = Control(*ulpdu.first()?);
        if control.is_tagged() {
            let (header, payload) = TaggedHeader::ref_from_prefix(ulpdu).ok()?;
            Some(Self::Tagged(header, payload))
        } else {
            let (header, payload) = UntaggedHeader::ref_from_prefix(ulpdu).ok()?;
            Some(Self::Untagged(header, payload))
        }
    }

    /// The control byte.
    pub const fn control(&self) -> Control {
        match self {
            Self::Tagged(header, _) => Control(header.control),
            Self::Untagged(header, _) => Control(header.control),
        }
    }

    /// RDMAP's control byte.
    pub const fn rsvd_ulp(&self) -> u8 {
        match self {
            Self::Tagged(header, _) => header.rsvd_ulp,
            Self::Untagged(header, _) => header.rsvd_ulp,
        }
    }

    /// The bytes of the header, as a Terminate returns them.
    pub fn header_bytes(&self) -> &'a [u8] {
        match self {
            Self::Tagged(header, _) => header.as_bytes(),
            Self::Untagged(header, _) => header.as_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tagged_header_is_read_in_network_order() {
        let ulpdu = [
            0xc1, 0x40, // T=1 L=1 DV=1, RDMA Write
            0x11, 0x22, 0x33, 0x44, // STag
            0, 0, 0, 0, 0, 0, 0x10, 0x00, // TO 0x1000
            0xde, 0xad, // payload
        ];
        let Some(DdpSegment::Tagged(header, payload)) = DdpSegment::parse(&ulpdu) else {
            panic!("T=1 is a tagged segment");
        };
        assert_eq!((header.stag.get(), header.to.get()), (0x1122_3344, 0x1000));
        assert_eq!(payload, [0xde, 0xad]);
    }

    #[test]
    fn untagged_header_is_read_in_network_order() {
        let ulpdu = [
            0x41, 0x43, // T=0 L=1 DV=1, Send
            0, 0, 0, 9, // Invalidate STag
            0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 5, 0xca, // QN 0, MSN 7, MO 1482
        ];
        let Some(DdpSegment::Untagged(header, [])) = DdpSegment::parse(&ulpdu) else {
            panic!("T=0 is an untagged segment, here without payload");
        };
        assert_eq!((header.rsvd_ulp_stag.get(), header.qn.get()), (9, 0));
        assert_eq!((header.msn.get(), header.mo.get()), (7, 1482));
    }

    #[test]
    fn segment_shorter_than_its_header_is_none() {
        assert_eq!(DdpSegment::parse(&[]), None);
        assert_eq!(DdpSegment::parse(&[0xc1; 13]), None);
        assert!(DdpSegment::parse(&[0xc1; 14]).is_some());
        assert_eq!(DdpSegment::parse(&[0x41; 17]), None);
        assert!(DdpSegment::parse(&[0x41; 18]).is_some());
    }

    #[test]
    fn control_bytes_are_those_of_the_rfc() {
        assert_eq!(Control::new(true, true, 1).0, 0xc1);
        assert_eq!(Control::new(true, false, 1).0, 0x81);
        assert_eq!(Control::new(false, true, 1).0, 0x41);
        assert_eq!(Control::new(false, false, 1).0, 0x01);
    }
}
