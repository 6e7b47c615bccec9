//! Time as the caller supplies it.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Time since an arbitrary origin, monotonic. The caller supplies it, real or virtual; timers have microsecond resolution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// The origin itself.
    pub const ORIGIN: Self = Self(Duration::ZERO);
    /// Later than anything.
    pub(crate) const FAR: Self = Self(Duration::MAX);

    /// The instant `micros` microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Self(Duration::from_micros(micros))
    }

    /// Time since the origin.
    pub const fn since_origin(self) -> Duration {
        self.0
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(rhs))
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    /// The instant so much earlier, at the earliest the origin.
    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(rhs))
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// Time from `rhs` to `self`; zero if `rhs` is later.
    fn sub(self, rhs: Self) -> Duration {
        self.0.saturating_sub(rhs.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let early = Instant::from_micros(5);
        let late = early + Duration::from_micros(7);
        assert_eq!(late - early, Duration::from_micros(7));
        assert_eq!(early - late, Duration::ZERO);
        assert_eq!(late + Duration::MAX, Instant(Duration::MAX));
    }
}
