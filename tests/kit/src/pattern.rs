//! Payload patterns: bytes that show where they come from.

/// `len` bytes, no two pieces of which are equal.
pub fn pattern(len: usize) -> Vec<u8> {
    pattern_of(0, len)
}

/// A pattern of its own for every `which`.
pub fn pattern_of(which: u64, len: usize) -> Vec<u8> {
    let mut state = which.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bd1_e995;
    let next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(len).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn pieces_of_eight_bytes_are_all_different() {
        let bytes = [0, 1, 2].map(|which| pattern_of(which, 20_000)).concat();
        let pieces: HashSet<&[u8]> = bytes.windows(8).collect();
        assert_eq!(pieces.len(), bytes.len() - 7);
    }

    #[test]
    fn longer_pattern_begins_with_the_shorter() {
        assert_eq!(pattern(300)[..200], pattern(200));
        assert_eq!(pattern(0), []);
    }
}
