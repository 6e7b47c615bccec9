//! CRC-32C as MPA uses it (RFC 5044 §4.4, R5044-4.4-8). Decision record iwarp/0005 compares the
//! implementations.

/// A function that computes CRC-32C, as [`crc32c`] does.
pub type Crc32c = fn(&[u8]) -> u32;

/// CRC-32C of `bytes`. Its least significant byte is sent first: `to_le_bytes`.
///
/// `crc-fast` is about three times as fast as the `crc32c` crate on blocks of one MTU. The latter
/// is the tests' oracle.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

#[cfg(test)]
mod tests {
    use super::crc32c;
    use proptest::prelude::*;

    fn wire(bytes: &[u8]) -> [u8; 4] {
        crc32c(bytes).to_le_bytes()
    }

    #[test]
    fn digests_of_rfc_3720_b_4_are_reproduced() {
        let rising: Vec<u8> = (0..32).collect();
        let falling: Vec<u8> = (0..32).rev().collect();
        assert_eq!(wire(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(wire(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
        assert_eq!(wire(&rising), [0x4e, 0x79, 0xdd, 0x46]);
        assert_eq!(wire(&falling), [0x5c, 0xdb, 0x3f, 0x11]);
    }

    #[test]
    fn iscsi_read_pdu_of_rfc_3720_b_4_has_its_digest() {
        let mut pdu = [0; 48];
        pdu[0] = 0x01; // SCSI command
        pdu[1] = 0xc0; // F and R bits
        pdu[16] = 0x14; // initiator task tag
        pdu[22] = 0x04; // expected data transfer length 0x400
        pdu[27] = 0x14; // command sequence number
        pdu[31] = 0x18; // expected status sequence number
        pdu[32] = 0x28; // READ(10)
        pdu[40] = 0x02; // two blocks
        assert_eq!(wire(&pdu), [0x56, 0x3a, 0x96, 0xd9]);
    }

    #[test]
    fn check_value_and_shortest_inputs_are_right() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(b""), 0);
        assert_eq!(wire(&[0]), [0x51, 0x53, 0x7d, 0x52]);
    }

    #[test]
    fn rfc_5044_figures_5_and_6_carry_this_crc() {
        // Figure 5: marker 0 in front, then a Send of 24 zero bytes, MSN 1. 48 bytes are covered.
        let mut figure5 = [0; 48];
        // ULPDU length 42, DDP and RDMAP control
        figure5[4..8].copy_from_slice(&[0x00, 0x2a, 0x41, 0x43]);
        figure5[19] = 1; // MSN
        assert_eq!(wire(&figure5), [0x52, 0x23, 0x99, 0x83]);
        // Figure 6: MSN 2 at stream offset 0x1ec, so a marker of FPDUPTR 0x14 at 0x200.
        let mut figure6 = [0; 48];
        figure6[..4].copy_from_slice(&[0x00, 0x2a, 0x41, 0x43]);
        figure6[15] = 2;
        figure6[23] = 0x14;
        assert_eq!(wire(&figure6), [0x84, 0x92, 0x58, 0x98]);
    }

    /// Maximum number of bytes to sum.
    const LONGEST: usize = if cfg!(miri) { 100 } else { 3000 };

    proptest! {
        #[test]
        fn both_crates_agree_on_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..LONGEST), skip in 0usize..16) {
            let bytes = bytes.get(skip..).unwrap_or(&[]);
            prop_assert_eq!(super::crc32c(bytes), ::crc32c::crc32c(bytes));
        }
    }
}
