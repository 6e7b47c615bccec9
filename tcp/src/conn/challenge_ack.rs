//! A limit for answers that anybody can provoke of a connection (RFC 5961 §7), of each one's own: a shared one would tell a stranger of the
//! segments of others.

use std::time::Duration;

use crate::time::Instant;

/// Answers per period.
const LIMIT: u32 = 16;
const PERIOD: Duration = Duration::from_secs(1);

/// Counts the answers of one period.
#[derive(Debug)]
pub(crate) struct ChallengeAckLimit {
    began: Instant,
    count: u32,
}

impl ChallengeAckLimit {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            began: now,
            count: 0,
        }
    }

    /// True if one more may be sent; it is counted.
    pub(crate) fn allow(&mut self, now: Instant) -> bool {
        if now - self.began >= PERIOD {
            *self = Self::new(now);
        }
        self.count += 1;
        self.count <= LIMIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_allowed_per_second() {
        let start = Instant::ORIGIN;
        let mut limiter = ChallengeAckLimit::new(start);
        let allowed =
            |limiter: &mut ChallengeAckLimit, at| (0..100).filter(|_| limiter.allow(at)).count();
        assert_eq!(allowed(&mut limiter, start), 16);
        assert_eq!(allowed(&mut limiter, start + PERIOD / 2), 0);
        assert_eq!(allowed(&mut limiter, start + PERIOD), 16);
    }
}
