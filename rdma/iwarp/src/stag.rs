//! Steering Tag: the name of a region or window on the wire (RFC 5040 §2.1).

use core::fmt;

/// Steering Tag: names a region to a peer (RFC 5040 §2.1). Opaque on the wire; locally an index (24
/// bits) and a key (8 bits).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Stag(pub u32);

impl Stag {
    /// `STag` of outbound messages that access no memory, including the RTR: some hardware refuses
    /// `STag` 0 there (D19).
    pub const PLACEHOLDER: Self = Self(1);

    /// Index into the region table: 24 bits.
    pub const fn index(self) -> u32 {
        self.0 >> 8
    }

    /// Key in the low byte: distinguishes successive uses of one index.
    pub const fn key(self) -> u8 {
        self.0.to_be_bytes()[3]
    }

    /// The same index with another key.
    #[must_use]
    pub const fn with_key(self, key: u8) -> Self {
        let [a, b, c, _] = self.0.to_be_bytes();
        Self(u32::from_be_bytes([a, b, c, key]))
    }
}

impl fmt::Debug for Stag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "STag {:#010x}", self.0)
    }
}

impl fmt::Display for Stag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::Stag;

    #[test]
    fn index_and_key_are_the_upper_three_bytes_and_the_last() {
        assert_eq!(Stag(0x1122_3344).index(), 0x11_2233);
        assert_eq!(Stag(0x1122_3344).key(), 0x44);
        assert_eq!(Stag(0x1122_3344).with_key(0xff), Stag(0x1122_33ff));
        assert_eq!(format!("{:?}", Stag(0xBAD)), "STag 0x00000bad");
    }
}
