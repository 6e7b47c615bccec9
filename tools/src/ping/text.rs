//! Messages as rping makes them: `rdma-ping-N: `, then letters, beginning with the next letter in
//! each message, and a zero byte.

/// Bytes of the smallest message: the largest number, its frame, and the zero byte.
pub(crate) const SMALLEST: u32 = 26;

/// Characters that fill a message, in turn.
const FIRST: u8 = b'A';
const LAST: u8 = b'z';

/// Message `number`, of `len` bytes.
pub(crate) fn message(number: u64, len: usize) -> Vec<u8> {
    let head = format!("rdma-ping-{number}: ");
    let letters = usize::from(LAST - FIRST) + 1;
    let skip = usize::try_from(number % letters as u64).unwrap_or_default();
    let fill = (FIRST..=LAST).cycle().skip(skip);
    let mut bytes: Vec<u8> = head.bytes().chain(fill).take(len.max(1) - 1).collect();
    bytes.push(0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_text_of_the_length_asked_for() {
        assert_eq!(message(0, 26), b"rdma-ping-0: ABCDEFGHIJKL\0");
        assert_eq!(message(1, 26), b"rdma-ping-1: BCDEFGHIJKLM\0");
        assert_eq!(message(57, 30), b"rdma-ping-57: zABCDEFGHIJKLMN\0");
        assert_eq!(message(58, 30), b"rdma-ping-58: ABCDEFGHIJKLMNO\0");
    }

    #[test]
    fn smallest_message_holds_the_largest_number_of_rping() {
        let text = message(2_147_483_647, SMALLEST as usize);
        assert!(text.starts_with(b"rdma-ping-2147483647: "));
        assert_eq!(text.len(), 26);
    }
}
