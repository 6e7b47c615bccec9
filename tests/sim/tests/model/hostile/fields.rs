//! The fields of a segment (RFC 5041 §4, RFC 5040 §4, RFC 7306 §5.2.1), read by hand.

/// A segment's header and payload. Of the fields of the other kind nothing is said.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    pub(super) control: u8,
    pub(super) rdmap: u8,
    pub(super) stag: u32,
    pub(super) to: u64,
    pub(super) qn: u32,
    pub(super) msn: u32,
    pub(super) mo: u32,
    /// Bytes of the DDP header.
    pub(super) header: usize,
    pub(super) payload: &'a [u8],
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*bytes[at..].first_chunk().unwrap())
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(*bytes[at..].first_chunk().unwrap())
}

impl<'a> Fields<'a> {
    /// None if it is too short for its header.
    pub(super) fn read(ulpdu: &'a [u8]) -> Option<Self> {
        let control = *ulpdu.first()?;
        let tagged = control & 0x80 != 0;
        let header = if tagged { 14 } else { 18 };
        let payload = ulpdu.get(header..)?;
        let untagged = |at: usize| if tagged { 0 } else { word(ulpdu, at) };
        Some(Self {
            control,
            rdmap: ulpdu[1],
            stag: word(ulpdu, 2),
            to: long(ulpdu, 6),
            qn: untagged(6),
            msn: untagged(10),
            mo: untagged(14),
            header,
            payload,
        })
    }

    pub(super) fn is_tagged(&self) -> bool {
        self.control & 0x80 != 0
    }

    pub(super) fn is_last(&self) -> bool {
        self.control & 0x40 != 0
    }

    pub(super) fn opcode(&self) -> u8 {
        self.rdmap & 0xf
    }

    pub(super) fn invalidates(&self) -> bool {
        matches!(self.opcode(), 4 | 6)
    }

    pub(super) fn is_read_request(&self) -> bool {
        !self.is_tagged() && self.opcode() == 1
    }

    pub(super) fn is_send(&self) -> bool {
        !self.is_tagged() && self.qn == 0 && matches!(self.opcode(), 3..=6)
    }
}

pub(super) struct ReadRequest {
    pub(super) sink: u32,
    pub(super) sink_to: u64,
    pub(super) len: u32,
    pub(super) source: u32,
    pub(super) source_to: u64,
}

impl ReadRequest {
    pub(super) fn read(payload: &[u8]) -> Self {
        Self {
            sink: word(payload, 0),
            sink_to: long(payload, 4),
            len: word(payload, 12),
            source: word(payload, 16),
            source_to: long(payload, 20),
        }
    }
}

pub(super) struct Atomic {
    /// With the reserved bits.
    pub(super) operation: u32,
    pub(super) id: u32,
    pub(super) stag: u32,
    pub(super) to: u64,
    data: u64,
    mask: u64,
    compare: u64,
    compare_mask: u64,
}

impl Atomic {
    pub(super) fn read(payload: &[u8]) -> Self {
        Self {
            operation: word(payload, 0),
            id: word(payload, 4),
            stag: word(payload, 8),
            to: long(payload, 12),
            data: long(payload, 20),
            mask: long(payload, 28),
            compare: long(payload, 36),
            compare_mask: long(payload, 44),
        }
    }

    /// What is there afterwards (RFC 7306 §5.1).
    pub(super) fn result(&self, original: u64) -> u64 {
        if self.operation.trailing_zeros() >= 4 {
            return masked_sum(original, self.data, self.mask);
        }
        if (original ^ self.compare) & self.compare_mask != 0 {
            return original;
        }
        original & !self.mask | self.data & self.mask
    }
}

/// Bit by bit: a bit of the mask is the highest of a field, out of which nothing is carried.
fn masked_sum(a: u64, b: u64, mask: u64) -> u64 {
    let (mut sum, mut carry) = (0, 0);
    for bit in 0..64 {
        let digits = (a >> bit & 1) + (b >> bit & 1) + carry;
        sum |= (digits & 1) << bit;
        carry = if mask >> bit & 1 == 1 { 0 } else { digits >> 1 };
    }
    sum
}
