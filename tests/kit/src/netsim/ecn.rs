//! Marks on frames that carry IPv4 (RFC 3168 §5).

/// Where the IPv4 header begins in an untagged frame.
const IP: usize = 14;
/// Bytes of an IPv4 header without options, and within it: traffic class, checksum.
const HEADER: usize = 20;
const CLASS: usize = 1;
const CHECKSUM: usize = 10;
/// Congestion experienced.
const CE: u8 = 0b11;

/// Marks a frame; false if it carries no IPv4, or its sender does not understand marks.
pub(crate) fn mark(frame: &mut [u8]) -> bool {
    if frame.get(12..IP) != Some(&[0x08, 0x00]) {
        return false;
    }
    let Some(header) = frame.get_mut(IP..IP + HEADER) else {
        return false;
    };
    if header[0] != 0x45 || header[CLASS] & CE == 0 {
        return false;
    }
    header[CLASS] |= CE;
    header[CHECKSUM..CHECKSUM + 2].fill(0);
    let sum = checksum(header);
    header[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
    true
}

/// The Internet checksum (RFC 1071).
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16); // ten words: at most one carry is left
    let folded = (folded & 0xffff) + (folded >> 16);
    !u16::try_from(folded).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// A frame of 100 bytes with this codepoint.
    pub(crate) fn packet(codepoint: u8) -> Vec<u8> {
        let mut frame = vec![0; 100];
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame[IP] = 0x45;
        frame[IP + CLASS] = codepoint;
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_follows_the_mark() {
        let mut frame = vec![0; 14];
        frame[12] = 0x08;
        #[rustfmt::skip]
        frame.extend([
            0x45, 0x02, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, // ECT(0)
            0x40, 0x11, 0xb8, 0x5f, // of a header with the traffic class 2: b861 less 2
            192, 168, 0, 1, 192, 168, 0, 199,
        ]);
        assert_eq!(checksum(&frame[IP..]), 0, "the example is right");
        assert!(mark(&mut frame));
        assert_eq!(frame[IP + CLASS], 0x03);
        assert_eq!(frame[IP + CHECKSUM..IP + HEADER - 8], [0xb8, 0x5e]);
    }

    #[test]
    fn what_is_no_ipv4_or_may_not_be_marked_is_left_alone() {
        let mut frame = testing::packet(0);
        assert!(!mark(&mut frame));
        assert_eq!(frame, testing::packet(0));
        assert!(!mark(&mut [0xff; 20]));
        assert!(!mark(&mut []));
    }
}
