//! Addresses on the wire.

pub(crate) const MAC_A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
pub(crate) const MAC_B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
