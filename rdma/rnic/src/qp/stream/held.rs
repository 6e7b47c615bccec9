//! A message that waits for a receive buffer. Later bytes wait in TCP, whose window closes.

use std::time::Duration;

use xwarp_tcp::Instant;

/// How soon it is tried again, at first and at most. The interval doubles each time.
const FIRST_INTERVAL: Duration = Duration::from_micros(50);
const LONGEST_INTERVAL: Duration = Duration::from_millis(5);

/// How long a close waits for a receive buffer: the peer's behind a message that finds none, or
/// this side's while the peer's window has no room. Without a limit, a program that awaits the end
/// and posts no buffer any more would wait for ever, as the server of qperf does.
pub(in crate::qp) const READY_TIMEOUT: Duration = Duration::from_secs(2);

/// The first segment of the message, whose FPDU is consumed.
pub(super) struct Held {
    /// Empty once it has a buffer.
    ulpdu: Vec<u8>,
    interval: Duration,
    due: Instant,
    /// How long the peer's close waits, if the peer has closed its side.
    close_due: Option<Instant>,
}

impl Held {
    /// `is_closed`: the peer has closed its side.
    pub(super) fn new(ulpdu: &[u8], now: Instant, is_closed: bool) -> Self {
        Self {
            ulpdu: ulpdu.to_vec(),
            interval: FIRST_INTERVAL,
            due: now + FIRST_INTERVAL,
            close_due: is_closed.then(|| now + READY_TIMEOUT),
        }
    }

    pub(super) fn waits(&self) -> bool {
        !self.ulpdu.is_empty()
    }

    /// Time of the next try.
    pub(super) fn due(&self) -> Option<Instant> {
        self.waits().then_some(self.due)
    }

    /// Schedules the next try after one that was due.
    pub(super) fn go_on(&mut self, now: Instant) {
        if now >= self.due {
            self.interval = LONGEST_INTERVAL.min(self.interval * 2);
            self.due = now + self.interval;
        }
    }

    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.ulpdu)
    }

    pub(super) fn close(&mut self, now: Instant) {
        self.close_due.get_or_insert(now + READY_TIMEOUT);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.close_due.is_some()
    }

    /// When the close of the peer no longer waits.
    pub(super) fn close_due(&self) -> Option<Instant> {
        self.close_due.filter(|_| self.waits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_ever_rarer_up_to_a_limit() {
        let mut held = Held::new(b"ulpdu", Instant::from_micros(0), false);
        let mut pauses = Vec::new();
        let mut last = Instant::from_micros(0);
        for _ in 0..9 {
            let due = held.due().expect("it waits");
            pauses.push((due - last).as_micros());
            held.go_on(due);
            last = due;
        }
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }

    #[test]
    fn arrival_before_the_time_does_not_put_it_off() {
        let mut held = Held::new(b"ulpdu", Instant::from_micros(0), false);
        held.go_on(Instant::from_micros(49));
        assert_eq!(held.due(), Some(Instant::from_micros(50)));
        assert_eq!(held.take(), b"ulpdu");
        assert_eq!(held.due(), None);
    }
}
