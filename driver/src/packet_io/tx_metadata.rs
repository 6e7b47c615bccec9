//! Metadata of a frame to send: what the NIC is asked to do with it (`struct xsk_tx_metadata`,
//! Linux 6.8).

use std::num::NonZero;

use nix::libc;

/// Bytes in front of a frame that the metadata takes: flags, request, launch time. The kernel wants
/// a multiple of 8.
pub(crate) const TX_METADATA: usize = TX_METADATA_BYTES as usize;
pub(crate) const TX_METADATA_BYTES: u32 = 24;

/// A checksum that is left to the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChecksumRequest(NonZero<Word>);

/// As the kernel reads it, in this host's order. The first 2 bytes say where the checksum begins,
/// the next 2 where its field is from there on. A frame begins with its Ethernet header, which no
/// such checksum covers, so that it is never 0.
type Word = u64;

impl ChecksumRequest {
    /// `None` for a range that no frame has.
    pub(crate) fn new(start: usize, offset: usize) -> Option<Self> {
        let start = NonZero::new(u16::try_from(start).ok()?)?.get();
        let [a, b] = start.to_ne_bytes();
        let [c, d] = u16::try_from(offset).ok()?.to_ne_bytes();
        let word = Word::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]);
        NonZero::new(word).map(Self)
    }

    /// As it lies in front of the frame.
    pub(crate) fn written(self) -> [u8; TX_METADATA] {
        let flags = u64::from(libc::XDP_TXMD_FLAGS_CHECKSUM);
        let words = [flags, self.0.get(), 0].map(u64::to_ne_bytes);
        let mut bytes = [0; TX_METADATA];
        bytes.copy_from_slice(words.as_flattened());
        bytes
    }

    /// Does what a NIC does: the field has the sum of the pseudo-header, and gets the checksum.
    pub(crate) fn fulfil(self, frame: &mut [u8]) {
        let [a, b, c, d, ..] = self.0.get().to_ne_bytes();
        let [start, at] = [[a, b], [c, d]].map(|pair| usize::from(u16::from_ne_bytes(pair)));
        let Some(covered) = frame.get_mut(start..) else {
            return;
        };
        let mut sum = crate::checksum_sum(covered);
        while sum > u32::from(u16::MAX) {
            sum = (sum >> 16) + (sum & u32::from(u16::MAX));
        }
        let checksum = !u16::try_from(sum).unwrap_or(u16::MAX); // it is no more
        if let Some(field) = covered.get_mut(at..at + 2) {
            field.copy_from_slice(&checksum.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_the_kernels() {
        assert_eq!(ChecksumRequest::new(0, 16), None, "an Ethernet header");
        assert_eq!(ChecksumRequest::new(1 << 16, 16), None);
        let written = ChecksumRequest::new(34, 16).unwrap().written();
        let mut expected = [0; TX_METADATA];
        expected[..8].copy_from_slice(&2_u64.to_ne_bytes());
        expected[8..10].copy_from_slice(&34_u16.to_ne_bytes());
        expected[10..12].copy_from_slice(&16_u16.to_ne_bytes());
        assert_eq!(written, expected);
        assert!(size_of::<libc::xsk_tx_metadata>() <= TX_METADATA);
    }

    #[test]
    fn fulfilled_request_is_the_checksum() {
        // RFC 1071 §3: 0001 f203 f4f5 f6f7 add up to ddf2. The field, which is behind them, has the
        // 2 of a pseudo-header.
        let mut frame = [
            9, 9, 0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7, 0x00, 0x02,
        ];
        ChecksumRequest::new(2, 8).unwrap().fulfil(&mut frame);
        assert_eq!(frame[..2], [9, 9], "not covered");
        assert_eq!(frame[10..], (!0xddf4_u16).to_be_bytes());
        let short = [7, 7, 7];
        for request in [ChecksumRequest::new(1, 8), ChecksumRequest::new(9, 0)] {
            let mut frame = short;
            request.unwrap().fulfil(&mut frame);
            assert_eq!(frame, short, "it has no such field");
        }
    }
}
