//! Arithmetic of sequence numbers, modulo 2^32 (RFC 9293 §3.4), on smoltcp's type.

use smoltcp::wire::TcpSeqNumber;

/// A sequence number.
pub(crate) type Seq = TcpSeqNumber;

/// How far `to` is after `from`; negative if it is before.
pub(crate) fn distance(from: Seq, to: Seq) -> i32 {
    to.0.wrapping_sub(from.0)
}

/// Sequence numbers from `from` up to `to`; none if `to` is before `from`.
pub(crate) fn octets(from: Seq, to: Seq) -> usize {
    usize::try_from(distance(from, to)).unwrap_or(0)
}

/// A sequence number as it is on the wire.
pub(crate) fn raw(seq: Seq) -> u32 {
    seq.0.cast_unsigned()
}

/// The sequence number that is `number` on the wire.
pub(crate) fn from_raw(number: u32) -> Seq {
    TcpSeqNumber(number.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_cross_the_wrap() {
        let before = from_raw(u32::MAX - 1);
        let after = before + 5;
        assert_eq!(raw(after), 3);
        assert_eq!((distance(before, after), distance(after, before)), (5, -5));
        assert_eq!((octets(before, after), octets(after, before)), (5, 0));
        assert!(after > before);
    }
}
