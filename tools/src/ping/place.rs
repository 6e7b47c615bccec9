//! Place of a message in the client's memory, as sent to the server.

use anyhow::ensure;
use xwarp::{RemoteAddress, Stag};

/// Bytes of a place on the wire.
pub(crate) const PLACE_BYTES: u32 = 16;

/// A range of the client's memory: Tagged Offset, `STag` and length, big-endian in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) address: RemoteAddress,
    pub(crate) len: u32,
}

impl Place {
    pub(crate) fn to_bytes(self) -> [u8; PLACE_BYTES as usize] {
        let mut bytes = [0; PLACE_BYTES as usize];
        let Stag(stag) = self.address.stag;
        bytes[..8].copy_from_slice(&self.address.to.to_be_bytes());
        bytes[8..12].copy_from_slice(&stag.to_be_bytes());
        bytes[12..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// Parses a message of the other side.
    pub(crate) fn from_bytes(bytes: &[u8]) -> anyhow::Result<Self> {
        let numbers = bytes.as_chunks::<4>();
        ensure!(
            numbers.0.len() == 4 && numbers.1.is_empty(),
            "the other side does not speak rping's protocol: it sent {} bytes, not {PLACE_BYTES}",
            bytes.len()
        );
        let number = |i: usize| u32::from_be_bytes(numbers.0[i]);
        Ok(Self {
            address: RemoteAddress {
                stag: Stag(number(2)),
                to: u64::from(number(0)) << 32 | u64::from(number(1)),
            },
            len: number(3),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_offset_stag_and_length_in_network_order() {
        let place = Place {
            address: RemoteAddress {
                stag: Stag(0x0a0b_0c0d),
                to: 0x0102_0304_0506_0708,
            },
            len: 64,
        };
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 0, 0, 0, 64];
        assert_eq!(place.to_bytes(), bytes);
        assert_eq!(Place::from_bytes(&bytes).ok(), Some(place));
    }

    #[test]
    fn another_length_is_refused() {
        for len in [0, 15, 17, 32] {
            assert!(Place::from_bytes(&vec![0; len]).is_err(), "{len} bytes");
        }
    }
}
