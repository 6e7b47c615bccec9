//! A message that waits for a receive buffer. Later bytes wait in TCP, whose window closes.

use std::time::Duration;

use xwarp_tcp::Instant;

/// How soon it is tried again, at first and at most. The interval doubles each time.
const FIRST_INTERVAL: Duration = Duration::from_micros(50);
const LONGEST_INTERVAL: Duration = Duration::from_millis(5);

/// The first segment of the message, whose FPDU is consumed.
pub(super) struct Held {
    /// Empty once it has a buffer.
    ulpdu: Vec<u8>,
    interval: Duration,
    due: Instant,
    /// The peer has closed its side.
    is_closed: bool,
}

impl Held {
    /// `is_closed`: the peer has closed its side.
    pub(super) fn new(ulpdu: &[u8], now: Instant, is_closed: bool) -> Self {
        Self {
            ulpdu: ulpdu.to_vec(),
            interval: FIRST_INTERVAL,
            due: now + FIRST_INTERVAL,
            is_closed,
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

    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
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
