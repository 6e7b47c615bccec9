//! Challenge ACK limits: how often anybody may provoke an answer of a connection (RFC 5961 §7).
//!
//! Each connection has limits of its own. A shared one would tell a stranger of the segments of others.

use std::time::Duration;

use crate::time::Instant;

/// Answers per period.
const LIMIT: u32 = 16;
const PERIOD: Duration = Duration::from_secs(1);

/// The limits of one connection.
#[derive(Debug)]
pub(super) struct ChallengeAcks {
    all: ChallengeAckLimit,
    /// Answers to probes, which a stranger must not use up.
    to_probes: ChallengeAckLimit,
}

impl ChallengeAcks {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            all: ChallengeAckLimit::new(now),
            to_probes: ChallengeAckLimit::new(now),
        }
    }

    /// True if one more answer may be sent; it is counted.
    pub(super) fn allow(&mut self, now: Instant) -> bool {
        self.all.allow(now)
    }

    /// True if one more answer to a probe may be sent; it is counted.
    pub(super) fn allow_to_probe(&mut self, now: Instant) -> bool {
        self.to_probes.allow(now)
    }
}

/// Counts the answers of one period.
#[derive(Debug)]
struct ChallengeAckLimit {
    began: Instant,
    count: u32,
}

impl ChallengeAckLimit {
    fn new(now: Instant) -> Self {
        Self {
            began: now,
            count: 0,
        }
    }

    /// True if one more may be sent; it is counted.
    fn allow(&mut self, now: Instant) -> bool {
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
