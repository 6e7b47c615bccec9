//! How long a close waits for the peer.

use std::time::Duration;

use xwarp_tcp::Instant;

/// Longest time of a close without progress: an FPDU either way, or the peer's FIN. While bytes are
/// unacknowledged and the peer's window has room, TCP's user timeout is the bound.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// How often it is looked at whether bytes were acknowledged.
const INTERVAL: Duration = Duration::from_millis(500);

/// The last progress of a close.
#[derive(Clone, Copy)]
pub(super) struct CloseTimer {
    progress: Instant,
    /// Bytes that were not acknowledged then.
    unacked: usize,
    /// When the close is looked at again.
    next: Instant,
}

/// What a close waits for in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// Room in the peer's window.
    Room,
    /// The peer's response or FIN.
    Answer,
}

impl CloseTimer {
    /// After progress. `unacked`: bytes that are not acknowledged.
    pub(super) fn new(now: Instant, unacked: usize) -> Self {
        Self {
            progress: now,
            unacked,
            next: now + INTERVAL,
        }
    }

    pub(super) fn deadline(self) -> Instant {
        self.next
    }

    /// Checks the close at its deadline. `None`: it goes on. `without_room`: how long the peer's
    /// window may have no room, if it has none.
    pub(super) fn check(
        &mut self,
        now: Instant,
        unacked: usize,
        without_room: Option<Duration>,
    ) -> Option<Missing> {
        if unacked != self.unacked || unacked > 0 && without_room.is_none() {
            *self = Self::new(now, unacked);
            return None;
        }
        self.next = now + INTERVAL;
        let room = without_room.map(|limit| (limit, Missing::Room));
        let (limit, missing) = room.unwrap_or((CLOSE_TIMEOUT, Missing::Answer));
        (now >= self.progress + limit).then_some(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time at which a close ends that is looked at whenever it is due, and why.
    fn end(mut look: impl FnMut(Duration) -> (usize, bool)) -> (Duration, Missing) {
        let start = Instant::from_micros(0);
        let mut timer = CloseTimer::new(start, look(Duration::ZERO).0);
        loop {
            let now = timer.deadline();
            assert!(now - start < Duration::from_mins(1), "it never ends");
            let (unacked, lacks_window) = look(now - start);
            let without_room = lacks_window.then_some(Duration::from_secs(2));
            if let Some(missing) = timer.check(now, unacked, without_room) {
                return (now - start, missing);
            }
        }
    }

    #[test]
    fn silent_peer_has_ten_seconds() {
        let (after, missing) = end(|_| (0, false));
        assert_eq!((after, missing), (Duration::from_secs(10), Missing::Answer));
    }

    #[test]
    fn peer_without_room_has_the_time_that_is_given() {
        let (after, missing) = end(|_| (100, true));
        assert_eq!((after, missing), (Duration::from_secs(2), Missing::Room));
    }

    /// The window is closed whenever the close is looked at, and was open in between.
    #[test]
    fn each_acknowledgement_is_progress() {
        let mut unacked = 100;
        let (after, missing) = end(|_| {
            unacked -= usize::from(unacked > 90);
            (unacked, true)
        });
        assert_eq!(
            (after, missing),
            (Duration::from_millis(6500), Missing::Room)
        );
    }

    /// Frames are lost, which TCP's user timeout ends.
    #[test]
    fn open_window_leaves_the_decision_to_tcp() {
        let is_lost = |at| at < Duration::from_secs(30);
        let (after, missing) = end(|at| (if is_lost(at) { 100 } else { 0 }, false));
        assert_eq!((after, missing), (Duration::from_secs(40), Missing::Answer));
    }
}
