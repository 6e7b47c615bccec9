//! Sums of copied bytes.

/// Checksums of copied bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sums {
    /// CRC-32C so far, not inverted.
    pub(crate) crc: u32,
    /// Words of 16 bits in this host's order, not folded.
    pub(crate) checksum: u64,
}
