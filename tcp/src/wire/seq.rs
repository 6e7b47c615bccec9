//! Sequence numbers: arithmetic modulo 2^32 (RFC 9293 §3.4), without an order (decision record
//! tcp/0010).
//!
//! Two numbers 2^31 apart each precede the other, and a chain of comparisons can hold for a number
//! that is nowhere near. So a number from the wire is judged by its [`offset`](Seq::offset) from
//! one of ours, which is always exact. [`is_before`](Seq::is_before) is for numbers that are known
//! to lie within one window of each other.

use std::ops::{Add, AddAssign, Sub};

use smoltcp::wire::TcpSeqNumber;

/// A sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seq(u32);

impl Seq {
    /// Distance of this number behind `base` in the stream, 0 to 2^32 - 1. A number just before
    /// `base` is almost 2^32 behind it.
    pub(crate) fn offset(self, base: Self) -> usize {
        usize::try_from(self.0.wrapping_sub(base.0)).unwrap_or(usize::MAX)
    }

    /// True if `other` follows this number by less than 2^31.
    pub(crate) fn is_before(self, other: Self) -> bool {
        distance(self, other) > 0
    }

    /// The later of two numbers that are less than 2^31 apart.
    pub(crate) fn max(self, other: Self) -> Self {
        if self.is_before(other) { other } else { self }
    }

    /// The earlier of two numbers that are less than 2^31 apart.
    pub(crate) fn min(self, other: Self) -> Self {
        if other.is_before(self) { other } else { self }
    }
}

impl Add<usize> for Seq {
    type Output = Self;

    fn add(self, n: usize) -> Self {
        Self(self.0.wrapping_add(low_half(n)))
    }
}

impl Sub<usize> for Seq {
    type Output = Self;

    fn sub(self, n: usize) -> Self {
        Self(self.0.wrapping_sub(low_half(n)))
    }
}

impl AddAssign<usize> for Seq {
    fn add_assign(&mut self, n: usize) {
        *self = *self + n;
    }
}

impl From<TcpSeqNumber> for Seq {
    fn from(number: TcpSeqNumber) -> Self {
        Self(number.0.cast_unsigned())
    }
}

impl From<Seq> for TcpSeqNumber {
    fn from(seq: Seq) -> Self {
        Self(seq.0.cast_signed())
    }
}

/// A number modulo 2^32.
#[allow(clippy::cast_possible_truncation)] // which is what it is for
fn low_half(n: usize) -> u32 {
    n as u32
}

/// Signed distance from `from` to `to`, negative if `to` is before `from`. Numbers 2^31 apart are
/// before each other.
pub(crate) fn distance(from: Seq, to: Seq) -> i32 {
    to.0.wrapping_sub(from.0).cast_signed()
}

/// Number of sequence numbers from `from` up to `to`; zero if `to` is before `from`.
pub(crate) fn bytes(from: Seq, to: Seq) -> usize {
    usize::try_from(distance(from, to)).unwrap_or(0)
}

/// The number on the wire.
pub(crate) fn raw(seq: Seq) -> u32 {
    seq.0
}

/// The sequence number that is `number` on the wire.
pub(crate) fn from_raw(number: u32) -> Seq {
    Seq(number)
}

#[cfg(test)]
pub(crate) mod testing {
    //! Streams that do not wrap: the model that sequence numbers are compared with.

    use proptest::prelude::*;

    use super::*;

    /// Size of the sequence number space.
    pub(crate) const SPACE: i64 = 1 << 32;
    pub(crate) const HALF: i64 = SPACE / 2;

    /// Sequence number of the byte at `place` in a stream that does not wrap.
    pub(crate) fn at(place: i64) -> Seq {
        from_raw(u32::try_from(place.rem_euclid(SPACE)).unwrap())
    }

    /// Largest window that can be announced (RFC 7323 §2.3).
    pub(crate) const LARGEST: i64 = (u16::MAX as i64) << 14;

    /// Start of a stream: right before its numbers wrap, opposite to that, or anywhere.
    pub(crate) fn start() -> impl Strategy<Value = i64> {
        prop_oneof![Just(-3_i64), Just(HALF - 3), 0..SPACE]
    }

    /// All places around `place` that have its number.
    pub(crate) fn alike(place: i64) -> impl Iterator<Item = i64> {
        (-3..=3).map(move |turn| place + turn * SPACE)
    }

    /// Places next to these edges, next to their aliases and opposites, and any place.
    pub(crate) fn near(edges: Vec<i64>) -> impl Strategy<Value = i64> {
        let turns = prop::sample::select(vec![-SPACE, -HALF, 0, HALF, SPACE]);
        let close = (prop::sample::select(edges), turns, -2..=2_i64);
        prop_oneof![
            4 => close.prop_map(|(edge, turn, off)| edge + turn + off),
            1 => -SPACE..=SPACE,
        ]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::testing::*;
    use super::*;

    #[test]
    fn distances_cross_the_wrap() {
        let before = from_raw(u32::MAX - 1);
        let after = before + 5;
        assert_eq!(raw(after), 3);
        assert_eq!((distance(before, after), distance(after, before)), (5, -5));
        assert_eq!((bytes(before, after), bytes(after, before)), (5, 0));
        assert_eq!(
            (after.offset(before), before.offset(after)),
            (5, 0xffff_fffb)
        );
        assert!(before.is_before(after) && !after.is_before(before));
    }

    #[test]
    fn numbers_half_the_space_apart_are_in_no_order() {
        let (a, b) = (at(7), at(7 + HALF));
        assert!(!a.is_before(b) && !b.is_before(a));
        assert_eq!((bytes(a, b), bytes(b, a)), (0, 0));
        assert_eq!((a.offset(b), b.offset(a)), (1 << 31, 1 << 31));
    }

    proptest! {
        #[test]
        fn numbers_agree_with_a_stream_that_does_not_wrap(place in 0..4 * SPACE, apart in near(vec![0])) {
            let (a, b) = (at(place), at(place + apart));
            let offset = i64::try_from(b.offset(a)).unwrap();
            prop_assert_eq!(offset, apart.rem_euclid(SPACE));
            prop_assert_eq!(a + b.offset(a), b);
            prop_assert_eq!(b - b.offset(a), a);
            prop_assert_eq!(a.is_before(b), 0 < offset && offset < HALF);
            if (1 - HALF..HALF).contains(&apart) {
                prop_assert_eq!(i64::from(distance(a, b)), apart);
                prop_assert_eq!(i64::try_from(bytes(a, b)).unwrap(), apart.max(0));
                prop_assert_eq!((a.max(b), a.min(b)), (at(place + apart.max(0)), at(place + apart.min(0))));
            }
        }

        #[test]
        fn numbers_go_to_the_codec_and_back(number: u32) {
            let seq = from_raw(number);
            prop_assert_eq!(Seq::from(TcpSeqNumber::from(seq)), seq);
            prop_assert_eq!(TcpSeqNumber::from(seq).0.cast_unsigned(), number);
        }
    }
}
