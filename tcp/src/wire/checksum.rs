//! The Internet checksum (RFC 1071) of IP and TCP headers.

use smoltcp::wire::{IpAddress, IpProtocol};
use xwarp_driver::{PartialSum, checksum_sum};

/// Sum of the words added so far, in host byte order (RFC 1071 §2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum(u64);

impl Sum {
    /// The pseudo-header of a TCP segment of `len` bytes (RFC 9293 §3.1, RFC 8200 §8.1).
    pub(super) fn pseudo_header(source: IpAddress, destination: IpAddress, len: usize) -> Self {
        let [.., high, low] = len.to_be_bytes();
        let rest = u32::from_ne_bytes([0, IpProtocol::Tcp.into(), high, low]);
        // A segment in an IP packet has fewer than 65,536 bytes.
        Self(address(source) + address(destination) + u64::from(rest))
    }

    /// Adds the bytes that follow. The bytes before them must be even in number.
    #[must_use]
    #[inline]
    pub(super) fn and(self, bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            return self; // as behind the headers of an ACK
        }
        Self(self.0 + u64::from(checksum_sum(bytes)))
    }

    /// Adds following bytes by their known sum. The bytes before them must be even in number.
    #[must_use]
    #[inline]
    pub(super) fn and_sum(self, sum: PartialSum) -> Self {
        Self(self.0 + sum.words())
    }

    /// Adds following words in network byte order.
    #[must_use]
    #[inline]
    pub(super) fn and_words<const N: usize>(self, words: &[[u8; 4]; N]) -> Self {
        // Words of 4 bytes have the same sum as words of 2: 2^16 is 1 modulo 2^16 - 1.
        let words = words
            .iter()
            .map(|word| u64::from(u32::from_ne_bytes(*word)));
        Self(self.0 + words.sum::<u64>())
    }

    /// True if the added bytes include a correct checksum.
    pub(super) fn is_valid(self) -> bool {
        self.folded() == u16::MAX
    }

    /// True if `field` is what a sender writes who leaves the checksum to a device: the sum of the
    /// added bytes, not complemented.
    pub(super) fn is_left_as(self, field: u16) -> bool {
        self.folded() == field.to_be()
    }

    /// Value of the checksum field if the checksum is left to a device.
    pub(super) fn left(self) -> [u8; 2] {
        self.folded().to_ne_bytes()
    }

    /// Checksum of all added bytes, in network byte order.
    pub(super) fn checksum(self) -> [u8; 2] {
        (!self.folded()).to_ne_bytes()
    }

    fn folded(self) -> u16 {
        let mut sum = self.0;
        while sum > u64::from(u16::MAX) {
            sum = (sum >> 16) + (sum & u64::from(u16::MAX));
        }
        u16::try_from(sum).unwrap_or(u16::MAX) // always fits by now
    }
}

fn address(address: IpAddress) -> u64 {
    match address {
        IpAddress::Ipv4(address) => u64::from(u32::from_ne_bytes(address.octets())),
        IpAddress::Ipv6(address) => u64::from(checksum_sum(&address.octets())),
    }
}
