//! The messages: `rdma-ping-N: ` and letters, another one to begin with in each message, ended by a zero octet, as rping makes them.

/// Octets of the smallest message: the largest number, what stands around it, and the zero octet.
pub(crate) const SMALLEST: u32 = 26;

/// The characters that fill a message, in turn.
const FIRST: u8 = b'A';
const LAST: u8 = b'z';

/// Message `number`, of `len` octets.
pub(crate) fn message(number: u64, len: usize) -> Vec<u8> {
    let head = format!("rdma-ping-{number}: ");
    let letters = usize::from(LAST - FIRST) + 1;
    let skip = usize::try_from(number % letters as u64).unwrap_or_default();
    let fill = (FIRST..=LAST).cycle().skip(skip);
    let mut octets: Vec<u8> = head.bytes().chain(fill).take(len.max(1) - 1).collect();
    octets.push(0);
    octets
}

/// Characters of a message that are shown.
const SHOWN: usize = 60;

/// A message of the other side for the terminal: its beginning, without what could drive the terminal.
pub(crate) fn shown(octets: &[u8]) -> String {
    let text = String::from_utf8_lossy(octets);
    let harmless = |c: char| {
        if c.is_control() {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        }
    };
    let mut shown: String = text.chars().take(SHOWN).map(harmless).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_text_of_the_length_asked_for() {
        assert_eq!(message(0, 26), b"rdma-ping-0: ABCDEFGHIJKL\0");
        assert_eq!(message(1, 26), b"rdma-ping-1: BCDEFGHIJKLM\0");
        assert_eq!(message(57, 30), b"rdma-ping-57: zABCDEFGHIJKLMN\0");
        assert_eq!(message(58, 30), b"rdma-ping-58: ABCDEFGHIJKLMNO\0");
    }

    #[test]
    fn the_smallest_message_holds_the_largest_number_of_rping() {
        let text = message(2_147_483_647, SMALLEST as usize);
        assert!(text.starts_with(b"rdma-ping-2147483647: "));
        assert_eq!(text.len(), 26);
    }

    #[test]
    fn what_is_shown_is_short_and_harmless() {
        assert_eq!(shown(b"rdma-ping-0: ABC"), "rdma-ping-0: ABC");
        assert_eq!(shown(b"\x1b[2J\xff\n"), "\u{fffd}[2J\u{fffd}\u{fffd}");
        assert_eq!(shown(&[b'x'; 61]), format!("{}...", "x".repeat(60)));
    }
}
