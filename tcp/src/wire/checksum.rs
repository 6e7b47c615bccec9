//! The Internet checksum (RFC 1071) of IP and TCP headers.

use smoltcp::wire::{IpAddress, IpProtocol};
use xwarp_driver::{PartialSum, checksum_sum};

/// Words added so far, in this host's order (RFC 1071 §2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum(u64);

impl Sum {
    /// The pseudo-header of a TCP segment of `len` bytes (RFC 9293 §3.1, RFC 8200 §8.1).
    pub(super) fn pseudo_header(source: IpAddress, destination: IpAddress, len: usize) -> Self {
        let [.., high, low] = len.to_be_bytes();
        let rest = u32::from_ne_bytes([0, IpProtocol::Tcp.into(), high, low]);
        // A segment in an IP packet has less than 65,536 bytes.
        Self(address(source) + address(destination) + u64::from(rest))
    }

    /// Adds what follows; everything before it was of even length.
    #[must_use]
    #[inline]
    pub(super) fn and(self, bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            return self; // as behind the headers of an ACK
        }
        Self(self.0 + u64::from(checksum_sum(bytes)))
    }

    /// Adds bytes that follow and whose sum is known; everything before them was of even length.
    #[must_use]
    #[inline]
    pub(super) fn and_sum(self, sum: PartialSum) -> Self {
        Self(self.0 + sum.words())
    }

    /// Adds words that follow, as they are on the wire.
    #[must_use]
    #[inline]
    pub(super) fn and_words<const N: usize>(self, words: &[[u8; 4]; N]) -> Self {
        // Words of 4 bytes have the same sum as those of 2: 2^16 is 1 more than the modulus.
        let words = words
            .iter()
            .map(|word| u64::from(u32::from_ne_bytes(*word)));
        Self(self.0 + words.sum::<u64>())
    }

    /// True if the checksum is among what was added, and fits.
    pub(super) fn is_valid(self) -> bool {
        self.folded() == u16::MAX
    }

    /// True for what a sender writes that leaves the checksum to a device: the sum of what was added, without its complement.
    pub(super) fn is_left_as(self, field: u16) -> bool {
        self.folded() == field.to_be()
    }

    /// What a sender writes that leaves the checksum to a device.
    pub(super) fn left(self) -> [u8; 2] {
        self.folded().to_ne_bytes()
    }

    /// The checksum, as it goes on the wire, of all that was added.
    pub(super) fn checksum(self) -> [u8; 2] {
        (!self.folded()).to_ne_bytes()
    }

    fn folded(self) -> u16 {
        let mut sum = self.0;
        while sum > u64::from(u16::MAX) {
            sum = (sum >> 16) + (sum & u64::from(u16::MAX));
        }
        u16::try_from(sum).unwrap_or(u16::MAX) // it is no more
    }
}

fn address(address: IpAddress) -> u64 {
    match address {
        IpAddress::Ipv4(address) => u64::from(u32::from_ne_bytes(address.octets())),
        IpAddress::Ipv6(address) => u64::from(checksum_sum(&address.octets())),
    }
}
