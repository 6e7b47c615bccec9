//! Pass over payload on its way into an FPDU: one pass for copy, CRC and TCP's checksum, or one
//! pass for each that is needed. Without CRC and checksum, that is the copy alone.

use xwarp_driver::{CopyError, Digest, PartialSum};
use xwarp_iwarp::mpa::{Framer, Negotiated};

use crate::stags::Bytes;

/// Length of a ULPDU in bytes from which one pass is faster than three.
pub(super) const WORTH_IT: usize = 384;

/// True if one pass is faster for the long FPDUs of a connection: there is a CRC or a checksum to
/// compute, no marker is inserted later, and the processor supports it. A CRC that is not sent is
/// computed nevertheless, as it costs less than a pass for the checksum alone. `is_summed`:
/// TCP computes checksums, and leaves none to a NIC.
pub(super) fn one_pays(negotiated: &Negotiated, is_summed: bool) -> bool {
    let has_sums = negotiated.crc || is_summed;
    has_sums && !negotiated.send_markers && Digest::has_vectors()
}

/// Writes an FPDU. It receives all bytes of the ULPDU, in order.
pub(super) trait PayloadPass {
    /// Adds bytes that were written.
    fn add(&mut self, bytes: &[u8]);

    /// Copies bytes of a region into the ULPDU.
    fn read(&mut self, source: Bytes<'_>, into: &mut [u8]) -> Result<(), CopyError>;

    /// Completes the FPDU. Returns its checksum, if it was computed.
    fn seal(self, framer: &mut Framer, fpdu: &mut [u8], ulpdu_len: usize) -> Option<PartialSum>;
}

/// Computes the CRC at the end, if there is one, and leaves the checksum to TCP.
pub(super) struct ThreePasses;

impl PayloadPass for ThreePasses {
    #[inline]
    fn add(&mut self, _: &[u8]) {}

    #[inline]
    fn read(&mut self, source: Bytes<'_>, into: &mut [u8]) -> Result<(), CopyError> {
        source.read(into)
    }

    #[inline]
    fn seal(self, framer: &mut Framer, fpdu: &mut [u8], ulpdu_len: usize) -> Option<PartialSum> {
        framer.seal(fpdu, ulpdu_len);
        None
    }
}

/// Computes CRC and checksum while copying.
pub(super) struct OnePass(Digest);

impl OnePass {
    /// Starts an FPDU without markers whose ULPDU is not written yet.
    #[inline]
    pub(super) fn begin(fpdu: &mut [u8], ulpdu_len: usize) -> Self {
        let mut digest = Digest::default();
        digest.add(Framer::enclose(fpdu, ulpdu_len));
        Self(digest)
    }
}

impl PayloadPass for OnePass {
    fn add(&mut self, bytes: &[u8]) {
        self.0.add(bytes);
    }

    fn read(&mut self, source: Bytes<'_>, into: &mut [u8]) -> Result<(), CopyError> {
        source.read_digested(into, &mut self.0)
    }

    fn seal(
        mut self,
        framer: &mut Framer,
        fpdu: &mut [u8],
        ulpdu_len: usize,
    ) -> Option<PartialSum> {
        self.0.add(Framer::pad(fpdu, ulpdu_len));
        if !framer.covers_in_order() {
            framer.seal(fpdu, ulpdu_len); // without a CRC, which adds nothing to the checksum
            return Some(self.0.checksum());
        }
        let field = Framer::close(fpdu, self.0.crc32c());
        Some(self.0.checksum() + PartialSum::of_word(field))
    }
}

#[cfg(test)]
mod tests {
    use xwarp_driver::{SharedBytes, checksum_sum};
    use xwarp_iwarp::ddp::VERSION_IETF;
    use xwarp_iwarp::mpa::fpdu_len;

    use super::*;
    use crate::model::Addressing;
    use crate::stags::View;

    /// Writes an FPDU with a header, and payload in pieces of these lengths. Returns its checksum,
    /// if it was computed.
    fn write(
        mut pass: impl PayloadPass,
        fpdu: &mut [u8],
        view: &View,
        (crc, pieces): (bool, &[usize]),
    ) -> Option<PartialSum> {
        let ulpdu_len = 14 + pieces.iter().sum::<usize>();
        let (header, mut rest) = fpdu[Framer::ulpdu_at(ulpdu_len)].split_at_mut(14);
        header.fill(0x41);
        pass.add(header);
        let mut to = 0;
        for &len in pieces {
            let (piece, others) = rest.split_at_mut(len);
            let source = view.bytes(to, len as u64).unwrap();
            pass.read(source, piece).unwrap();
            (to, rest) = (to + len as u64, others);
        }
        pass.seal(&mut Framer::new(crc, false), fpdu, ulpdu_len)
    }

    fn folded(mut sum: u64) -> u64 {
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        sum
    }

    #[test]
    fn one_pass_writes_what_three_do_and_knows_the_sum() {
        let memory = SharedBytes::anonymous(9000).unwrap();
        let bytes: Vec<u8> = (0..9000_u32).map(|i| (i * i).to_le_bytes()[1]).collect();
        memory.write(0, &bytes).unwrap();
        let view = View::whole(memory, Addressing::ZeroBased).unwrap();
        let lists: [&[usize]; 6] = [
            &[],
            &[1442],
            &[1, 1440, 1],
            &[301, 0, 300, 7],
            &[8942],
            &[3, 2999, 1],
        ];
        for (pieces, crc) in lists
            .iter()
            .flat_map(|list| [(*list, true), (*list, false)])
        {
            let ulpdu_len = 14 + pieces.iter().sum::<usize>();
            let mut expected = vec![0xee; fpdu_len(ulpdu_len)];
            assert!(write(ThreePasses, &mut expected, &view, (crc, pieces)).is_none());
            let mut fpdu = vec![0xdd; fpdu_len(ulpdu_len)];
            let pass = OnePass::begin(&mut fpdu, ulpdu_len);
            let sum = write(pass, &mut fpdu, &view, (crc, pieces)).unwrap();
            assert_eq!(fpdu, expected, "{pieces:?}");
            let expected = folded(checksum_sum(&fpdu).into());
            assert_eq!(folded(sum.words()), expected, "{pieces:?}");
        }
    }

    #[test]
    fn one_pass_is_for_what_has_a_crc_or_a_checksum_and_no_markers() {
        for (crc, send_markers, is_summed, pays) in [
            (true, false, true, true),
            (true, false, false, true),
            (false, false, true, true),
            (false, false, false, false),
            (true, true, true, false),
            (false, true, true, false),
        ] {
            let negotiated = Negotiated {
                crc,
                send_markers,
                receive_markers: false,
                revision: 1,
                version: VERSION_IETF,
                enhanced: None,
            };
            let expected = pays && Digest::has_vectors();
            assert_eq!(one_pays(&negotiated, is_summed), expected);
        }
    }
}
