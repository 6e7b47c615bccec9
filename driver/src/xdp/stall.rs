//! Stalls: a ring with entries for the kernel that makes no progress.
//!
//! A driver that asks for chunks, takes none for 2 s and has none is a fill stall. No completion of
//! a frame in flight for 2 s is a completion stall. Each is logged once and counted; after 5 s
//! without a completion the RNIC fails. A fill stall ends nothing: a driver that takes chunks again
//! later has only cost time, and TCP decides when that was too long.

use std::time::{Duration, Instant};

/// A ring without progress for this long is reported. Drivers that reset their NIC for a new
/// program need up to 1.3 s on an emulated igb.
const NOTICE: Duration = Duration::from_secs(2);

/// State of a ring that stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// It has stood still for a short time.
    Short,
    /// It is a stall that was not reported before.
    Noticed(Duration),
    /// The same stall continues.
    Known(Duration),
}

/// Watches one ring.
#[derive(Debug, Default)]
pub(super) struct StallWatch {
    since: Option<Instant>,
    noticed: bool,
    stalls: u64,
}

impl StallWatch {
    /// The ring moves, or has nothing for the kernel.
    pub(super) fn moves(&mut self) {
        self.since = None;
    }

    /// The ring stands still at `now`.
    pub(super) fn stands(&mut self, now: Instant) -> Stand {
        let Some(since) = self.since else {
            self.since = Some(now);
            self.noticed = false;
            return Stand::Short;
        };
        let time = now.saturating_duration_since(since);
        if time < NOTICE {
            return Stand::Short;
        }
        if self.noticed {
            return Stand::Known(time);
        }
        self.noticed = true;
        self.stalls += 1;
        Stand::Noticed(time)
    }

    /// Stalls that were noticed.
    pub(super) fn stalls(&self) -> u64 {
        self.stalls
    }
}

/// The fill ring, as it is when the driver is woken.
#[derive(Clone, Copy, Debug)]
pub(super) struct FillRing {
    /// Running number of the next entry that the driver takes.
    pub(super) taken: u32,
    /// Entries in it.
    pub(super) occupied: usize,
    /// Chunks that the kernel has, in this ring and elsewhere.
    pub(super) lent: usize,
}

/// Watches a fill ring whose driver asks for wake-ups.
#[derive(Debug, Default)]
pub(super) struct FillWatch {
    stall: StallWatch,
    taken: u32,
}

impl FillWatch {
    /// Records that the driver is woken at `now`. One whose own ring is full may ask for that, too,
    /// so only one that has nothing to receive into stands still.
    pub(super) fn woken(&mut self, ring: FillRing, now: Instant) -> Stand {
        let moved = std::mem::replace(&mut self.taken, ring.taken) != ring.taken;
        let has_all = ring.lent > 0 && ring.occupied == ring.lent;
        if moved || !has_all {
            self.stall.moves();
            return Stand::Short;
        }
        self.stall.stands(now)
    }

    /// The link has gone or come.
    pub(super) fn begin_again(&mut self) {
        self.stall.moves();
    }

    /// Stalls that were noticed.
    pub(super) fn stalls(&self) -> u64 {
        self.stall.stalls()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(1999);
    const TICK: Duration = Duration::from_millis(1);

    #[test]
    fn ring_that_stands_still_is_noticed_once() {
        let (mut watch, begin) = (StallWatch::default(), Instant::now());
        for after in [Duration::ZERO, TICK, SHORT] {
            assert_eq!(watch.stands(begin + after), Stand::Short, "{after:?}");
        }
        assert_eq!(watch.stalls(), 0);
        assert_eq!(watch.stands(begin + NOTICE), Stand::Noticed(NOTICE));
        let later = NOTICE + TICK;
        assert_eq!(watch.stands(begin + later), Stand::Known(later));
        assert_eq!(watch.stalls(), 1);
    }

    #[test]
    fn ring_that_moves_is_never_noticed_however_long_it_is_watched() {
        let (mut watch, mut now) = (StallWatch::default(), Instant::now());
        for _ in 0..10 {
            assert_eq!(watch.stands(now), Stand::Short);
            assert_eq!(watch.stands(now + SHORT), Stand::Short);
            watch.moves();
            now += NOTICE;
        }
        assert_eq!(watch.stalls(), 0);
    }

    /// Wakes the driver of the same ring twice, `NOTICE` apart; stalls.
    fn told_twice(first: FillRing, second: FillRing) -> u64 {
        let (mut watch, begin) = (FillWatch::default(), Instant::now());
        // The watch compares this with the first time.
        watch.woken(first, begin);
        assert_eq!(watch.woken(first, begin), Stand::Short);
        watch.woken(second, begin + NOTICE);
        watch.stalls()
    }

    #[test]
    fn fill_ring_stands_still_if_the_driver_takes_nothing_and_has_nothing() {
        let ring = |taken, occupied, lent| FillRing {
            taken,
            occupied,
            lent,
        };
        assert_eq!(told_twice(ring(7, 320, 320), ring(7, 320, 320)), 1);
        // It has taken some, and more came.
        assert_eq!(told_twice(ring(7, 320, 320), ring(8, 320, 320)), 0);
        // Its own ring is full.
        assert_eq!(told_twice(ring(512, 320, 832), ring(512, 320, 832)), 0);
        // It cannot take any, as connections have all chunks.
        assert_eq!(told_twice(ring(7, 0, 0), ring(7, 0, 0)), 0);
    }

    #[test]
    fn fill_ring_is_watched_anew_when_the_link_comes() {
        let ring = FillRing {
            taken: 0,
            occupied: 320,
            lent: 320,
        };
        let (mut watch, begin) = (FillWatch::default(), Instant::now());
        watch.woken(ring, begin);
        watch.begin_again();
        assert_eq!(watch.woken(ring, begin + NOTICE), Stand::Short);
        assert_eq!(watch.stalls(), 0);
    }

    #[test]
    fn each_stall_counts() {
        let (mut watch, mut now) = (StallWatch::default(), Instant::now());
        for nth in 1..4 {
            assert_eq!(watch.stands(now), Stand::Short);
            now += NOTICE;
            assert_eq!(watch.stands(now), Stand::Noticed(NOTICE));
            assert_eq!(watch.stalls(), nth);
            watch.moves();
        }
    }
}
