//! Challenge ACK limits: how often an attacker can make a connection answer (RFC 5961 §7).
//!
//! Each connection has its own limits. A shared limit would reveal segments of other connections.

use std::time::Duration;

use crate::time::Instant;

/// Answers per period.
const LIMIT: u32 = 16;
const PERIOD: Duration = Duration::from_secs(1);

/// Limits of one connection.
#[derive(Debug)]
pub(super) struct ChallengeAcks {
    all: ChallengeAckLimit,
    /// Answers to probes: kept apart, so that an attacker cannot use them up.
    to_probes: ChallengeAckLimit,
}

impl ChallengeAcks {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            all: ChallengeAckLimit::new(now),
            to_probes: ChallengeAckLimit::new(now),
        }
    }

    /// Returns true if another answer may be sent, and counts it.
    pub(super) fn allow(&mut self, now: Instant) -> bool {
        self.all.allow(now)
    }

    /// Returns true if another answer to a probe may be sent, and counts it.
    pub(super) fn allow_to_probe(&mut self, now: Instant) -> bool {
        self.to_probes.allow(now)
    }
}

/// Counter of the answers in one period.
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

    /// Returns true if another answer may be sent, and counts it.
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
