//! Time as the caller supplies it.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Time since an arbitrary origin, monotonic. The caller supplies it, real or virtual; timers have microsecond resolution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// The origin itself.
    pub const ORIGIN: Self = Self(Duration::ZERO);

    /// The instant `micros` microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Self(Duration::from_micros(micros))
    }

    /// Time since the origin.
    pub const fn since_origin(self) -> Duration {
        self.0
    }

    /// smoltcp counts microseconds in an `i64` and adds to them unchecked: half the range leaves room for that.
    pub(crate) fn to_smoltcp(self) -> smoltcp::time::Instant {
        let micros = i64::try_from(self.0.as_micros()).unwrap_or(i64::MAX);
        smoltcp::time::Instant::from_micros(micros.min(i64::MAX / 2))
    }

    pub(crate) fn from_smoltcp(instant: smoltcp::time::Instant) -> Self {
        Self::from_micros(u64::try_from(instant.total_micros()).unwrap_or(0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(rhs))
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

    #[test]
    fn smoltcp_sees_whole_microseconds() {
        let instant = Instant::from_micros(12) + Duration::from_nanos(999);
        assert_eq!(instant.to_smoltcp().total_micros(), 12);
        assert_eq!(
            Instant::from_smoltcp(instant.to_smoltcp()),
            Instant::from_micros(12)
        );
        let end = Instant::ORIGIN + Duration::MAX;
        assert_eq!(end.to_smoltcp().total_micros(), i64::MAX / 2);
    }
}
