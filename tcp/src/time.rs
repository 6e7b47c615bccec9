//! Time as the caller supplies it.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::{Add, Sub};
use std::time::Duration;

/// Monotonic time since an arbitrary origin. The caller supplies it, real or virtual; timers have
/// microsecond resolution. The latest instant is 584 years after the origin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(
    /// Nanoseconds since the origin, plus one. So an `Option<Instant>` takes one word, and two
    /// instants are compared as two words.
    NonZeroU64,
);

/// A duration in nanoseconds, limited to that of the latest instant.
pub(crate) fn nanos(duration: Duration) -> u64 {
    let seconds = duration.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(duration.subsec_nanos().into())
}

impl Instant {
    /// The origin.
    pub const ORIGIN: Self = Self(NonZeroU64::MIN);
    /// The latest instant.
    pub(crate) const FAR: Self = Self(NonZeroU64::MAX);

    /// The instant `micros` microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(micros.saturating_mul(1000)))
    }

    /// The instant `nanos` nanoseconds after the origin.
    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    /// The earliest of the given instants. [`FAR`](Self::FAR) counts as none.
    #[inline]
    pub(crate) fn earliest<const N: usize>(instants: [Option<Self>; N]) -> Option<Self> {
        // As words less one: `None` becomes the greatest word, and the latest instant the next.
        let word = |instant: Option<Self>| instant.map_or(0, |it| it.0.get()).wrapping_sub(1);
        let first = instants.into_iter().map(word).fold(u64::MAX, u64::min);
        (first < u64::MAX - 1).then(|| Self::from_nanos(first))
    }

    /// Nanoseconds since the origin.
    pub(crate) const fn nanos_since_origin(self) -> u64 {
        self.0.get() - 1
    }

    /// Time since the origin.
    pub const fn since_origin(self) -> Duration {
        Duration::from_nanos(self.0.get() - 1)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Instant")
            .field(&self.since_origin())
            .finish()
    }
}

impl Default for Instant {
    fn default() -> Self {
        Self::ORIGIN
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(nanos(rhs)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    /// The instant `rhs` earlier, but not before the origin.
    fn sub(self, rhs: Duration) -> Self {
        let count = self.0.get().saturating_sub(nanos(rhs));
        NonZeroU64::new(count).map_or(Self::ORIGIN, Self)
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// Time from `rhs` to `self`; zero if `rhs` is later.
    fn sub(self, rhs: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(rhs.0.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_since_the_origin_come_back() {
        assert_eq!(Instant::default(), Instant::ORIGIN);
        assert_eq!(Instant::ORIGIN.since_origin(), Duration::ZERO);
        let time = Duration::new(7, 1);
        assert_eq!((Instant::ORIGIN + time).since_origin(), time);
        assert_eq!(
            Instant::from_micros(3) - Duration::from_micros(2),
            Instant::from_micros(1)
        );
        assert_eq!(
            format!("{:?}", Instant::from_micros(1500)),
            "Instant(1.5ms)"
        );
    }

    #[test]
    fn arithmetic_saturates() {
        let early = Instant::from_micros(5);
        let late = early + Duration::from_micros(7);
        assert_eq!(late - early, Duration::from_micros(7));
        assert_eq!(early - late, Duration::ZERO);
        assert_eq!(late + Duration::MAX, Instant::FAR);
        assert_eq!(Instant::from_micros(u64::MAX), Instant::FAR);
        assert_eq!(early - Duration::MAX, Instant::ORIGIN);
    }
}
