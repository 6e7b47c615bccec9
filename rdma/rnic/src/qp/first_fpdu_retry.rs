//! Retry that wakes a peer which has overlooked the first FPDU of an initiator.
//!
//! Linux siw, as responder, answers a Request before it reads its socket: bytes that arrive in
//! between stay unread until more arrive, perhaps forever. An RDMA Write of no bytes wakes it. Such
//! a Write names no memory, completes nothing at the peer and may be sent at any time (RFC 5041
//! §5.2, RFC 5040 §5.1). The initiator sends at most four, the first after 5 ms without an answer,
//! and doubles the wait each time. `MpaConfig` sets the wait or disables this.

use std::time::Duration;

use xwarp_tcp::Instant;

/// Maximum number of retries. The interval doubles each time.
const TRIES: u8 = 4;

/// When an initiator wakes its peer: some time after its first FPDU, unless the peer has sent one.
#[derive(Debug)]
pub(crate) struct FirstFpduRetry {
    interval: Duration,
    tries: u8,
    due: Option<Instant>,
}

impl FirstFpduRetry {
    /// For a stream that has sent nothing. `None` never wakes the peer.
    pub(crate) fn new(interval: Option<Duration>) -> Self {
        Self {
            interval: interval.unwrap_or_default(),
            tries: if interval.is_some() { TRIES } else { 0 },
            due: None,
        }
    }

    /// Records that an FPDU was sent.
    pub(crate) fn sent(&mut self, now: Instant) {
        if self.tries > 0 && self.due.is_none() {
            self.due = Some(now + self.interval);
        }
    }

    /// Records that the peer has sent an FPDU, and needs no retry.
    pub(crate) fn received(&mut self) {
        *self = Self::new(None);
    }

    /// Time of the next retry.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Schedules the next retry after one is due, whether or not TCP could send it.
    pub(crate) fn passed(&mut self, now: Instant) {
        self.tries = self.tries.saturating_sub(1);
        self.interval *= 2;
        self.due = (self.tries > 0).then(|| now + self.interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_micros(millis * 1000)
    }

    #[test]
    fn silent_peer_is_woken_four_times_ever_later() {
        let mut retry = FirstFpduRetry::new(Some(Duration::from_millis(5)));
        assert_eq!(retry.due(), None, "nothing was sent");
        retry.sent(at(100));
        retry.sent(at(103));
        let mut times = Vec::new();
        while let Some(due) = retry.due() {
            times.push(due);
            retry.passed(due);
            retry.sent(due);
        }
        assert_eq!(times, [at(105), at(115), at(135), at(175)]);
    }

    #[test]
    fn peer_that_was_heard_is_left_alone() {
        let mut retry = FirstFpduRetry::new(Some(Duration::from_millis(5)));
        retry.sent(at(0));
        retry.received();
        retry.sent(at(1));
        assert_eq!(retry.due(), None);
        let mut off = FirstFpduRetry::new(None);
        off.sent(at(0));
        assert_eq!(off.due(), None);
    }
}
