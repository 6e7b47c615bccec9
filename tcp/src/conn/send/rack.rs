//! RACK: detects lost segments by their send times (RFC 8985 §6).

use std::time::Duration;

use super::send_queue::{Piece, SendQueue};
use crate::time::Instant;
use crate::wire::seq::Seq;

/// Recoveries for which a widened reordering window is kept (RFC 8985 §6.2, step 4).
const KEEP_WIDE: u32 = 16;
/// Segments that must overtake a segment for it to be lost at once, while no reordering was seen
/// (`DupThresh`).
const DUPLICATE_THRESHOLD: usize = 3;

/// RACK state of a connection.
#[derive(Debug, Default)]
pub(crate) struct Rack {
    /// Send time and end of the most recently sent delivered segment.
    newest: Option<(Instant, Seq)>,
    /// Round trip of that segment.
    rtt: Duration,
    /// Highest delivered sequence number.
    highest: Option<Seq>,
    reordering_seen: bool,
    /// The reordering window is one more than this many quarters of the minimum round trip.
    widened: u32,
    keep: u32,
    /// The window was already widened for the flight up to here.
    round: Option<Seq>,
}

/// Times of the path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathTimes {
    pub(crate) srtt: Option<Duration>,
    pub(crate) min_rtt: Option<Duration>,
}

impl Rack {
    /// Records a piece delivered `rtt` after its last transmission. `ambiguous`: an earlier
    /// transmission may have been delivered.
    pub(crate) fn delivered(&mut self, piece: &Piece, rtt: Duration, ambiguous: bool) {
        let end = piece.end();
        if self.highest.is_none_or(|highest| highest.is_before(end)) {
            self.highest = Some(end);
        } else if piece.transmits == 1 {
            self.reordering_seen = true;
        }
        if ambiguous {
            return;
        }
        let sent = (piece.sent_at, end);
        if self.newest.is_none_or(|newest| after(sent, newest)) {
            self.newest = Some(sent);
            self.rtt = rtt;
        }
    }

    /// Records a reported duplicate: segments were declared lost too early (§6.2, step 4).
    pub(crate) fn on_duplicate(&mut self, una: Seq, nxt: Seq) {
        self.forget(una);
        if self.round.is_some() {
            return;
        }
        self.round = Some(nxt);
        self.widened = self.widened.saturating_add(1);
        self.keep = KEEP_WIDE;
    }

    /// Forgets the flight for which the window was widened, once it is acknowledged up to `una`.
    pub(crate) fn forget(&mut self, una: Seq) {
        self.round.take_if(|round| !una.is_before(*round));
    }

    /// Records that a recovery is over.
    pub(crate) fn on_recovered(&mut self) {
        self.keep = self.keep.saturating_sub(1);
        if self.keep == 0 {
            self.widened = 0;
        }
    }

    /// Time by which a segment may be late.
    fn reordering_window(&self, queue: &SendQueue, repairing: bool, path: PathTimes) -> Duration {
        if !self.reordering_seen && (repairing || queue.sacked() >= DUPLICATE_THRESHOLD) {
            return Duration::ZERO;
        }
        let quarter = path.min_rtt.unwrap_or_default() / 4;
        let wide = quarter.saturating_mul(self.widened.saturating_add(1));
        wide.min(path.srtt.unwrap_or(wide))
    }

    /// Marks the segments that are lost by now. Returns whether there are any, and when more may
    /// be.
    pub(crate) fn detect(
        &self,
        queue: &mut SendQueue,
        repairing: bool,
        path: PathTimes,
        now: Instant,
    ) -> (bool, Option<Instant>) {
        let mut found = false;
        let mut later = None;
        let Some(newest) = self.newest else {
            return (found, later);
        };
        let allowance = self.rtt + self.reordering_window(queue, repairing, path);
        for at in 0..queue.len() {
            let Some(piece) = queue.get(at) else { break };
            if piece.sacked || piece.lost || !after(newest, (piece.sent_at, piece.end())) {
                continue;
            }
            let due = piece.sent_at + allowance;
            if due <= now {
                found |= queue.mark_lost(at);
            } else {
                later = later.max(Some(due));
            }
        }
        (found, later)
    }

    /// True if a piece should have been delivered by now, regardless of other deliveries (§6.3).
    pub(crate) fn is_overdue(&self, piece: &Piece, now: Instant) -> bool {
        piece.sent_at + self.rtt <= now
    }
}

/// True if `a` was sent after `b`. Of segments sent at one instant, the later in the stream counts
/// as the later.
fn after(a: (Instant, Seq), b: (Instant, Seq)) -> bool {
    a.0 > b.0 || a.0 == b.0 && b.1.is_before(a.1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::conn::send::send_queue::testing;
    use crate::wire::seq::testing::{LARGEST, at, start};

    /// A piece of one byte that ends at `end` in the stream.
    fn piece(end: i64, sent_at: Instant, transmits: u32) -> Piece {
        Piece {
            sent_at,
            transmits,
            ..testing::piece(at(end - 1), 1)
        }
    }

    /// A distance within a flight: almost zero, almost a window, or any.
    fn in_flight() -> impl Strategy<Value = i64> {
        prop_oneof![0..3_i64, LARGEST - 3..=LARGEST, 0..=LARGEST]
    }

    /// A delivered piece: its distance behind SND.UNA, steps since its last transmission, number of
    /// transmissions, and whether that is ambiguous.
    fn delivery() -> impl Strategy<Value = (i64, u64, u32, bool)> {
        (in_flight(), 0..2_u64, 1..3_u32, any::<bool>())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 512 }))]

        /// RFC 8985 §6.2, steps 2 and 3, along a stream longer than the sequence number space.
        #[test]
        fn newest_and_highest_are_those_of_a_stream_that_does_not_wrap(
            begin in start(),
            steps in prop::collection::vec((in_flight(), delivery()), 1..30),
        ) {
            let mut rack = Rack::default();
            let (mut una, mut highest) = (begin, None);
            let (mut newest, mut reordered): (Option<(Instant, i64)>, _) = (None, false);
            for (now, (acked, (ahead, age, transmits, ambiguous))) in (1..).zip(steps) {
                // Acknowledged data was delivered.
                una = highest.map_or(una, |highest: i64| highest.min(una + acked));
                let end = una + ahead + 1;
                let sent_at = Instant::from_micros(now - age);
                rack.delivered(&piece(end, sent_at, transmits), Duration::ZERO, ambiguous);
                reordered |= transmits == 1 && highest.is_some_and(|highest| end <= highest);
                highest = highest.max(Some(end));
                if !ambiguous {
                    newest = newest.max(Some((sent_at, end)));
                }
                prop_assert_eq!(rack.highest, highest.map(at));
                prop_assert_eq!(rack.newest, newest.map(|(sent, end)| (sent, at(end))));
                prop_assert_eq!(rack.reordering_seen, reordered);
            }
        }

        /// Lost segments are those sent before the newest delivered one; of segments sent at one
        /// instant, those before it in the stream.
        #[test]
        fn lost_is_what_was_sent_before_the_newest(begin in start(), ahead in in_flight(), times in [0..3_u64, 0..3_u64], later: bool) {
            let [first, second] = times.map(Instant::from_micros);
            let ends = if later { [begin + 1, begin + 1 + ahead] } else { [begin + 1 + ahead, begin + 1] };
            let mut rack = Rack::default();
            rack.delivered(&piece(ends[0], first, 1), Duration::ZERO, false);
            let mut queue = SendQueue::new();
            queue.push(piece(ends[1], second, 1));
            let path = PathTimes { srtt: None, min_rtt: None };
            let (found, _) = rack.detect(&mut queue, true, path, Instant::from_micros(9));
            prop_assert_eq!(found, (second, ends[1]) < (first, ends[0]));
        }

        /// RFC 8985 §6.2, step 4: once per flight, however far the stream has gone on since.
        #[test]
        fn window_is_widened_once_a_flight(begin in start(), steps in prop::collection::vec((in_flight(), in_flight(), any::<bool>()), 1..30)) {
            let mut rack = Rack::default();
            let (mut una, mut nxt, mut round, mut widened) = (begin, begin, None, 0);
            for (acked, sent, duplicate) in steps {
                una = nxt.min(una + acked);
                nxt = nxt.max(una + sent);
                round = round.filter(|round| una < *round);
                if duplicate {
                    widened += u32::from(round.is_none());
                    round = round.or(Some(nxt));
                    rack.on_duplicate(at(una), at(nxt));
                }
                rack.forget(at(una));
                round = round.filter(|round| una < *round);
                prop_assert_eq!((rack.widened, rack.round), (widened, round.map(at)));
            }
        }
    }
}
