//! Recovery: how much may be sent in it (RFC 6937), when it ends, and whether it was needless (RFC
//! 3522, RFC 3708).

use crate::conn::timestamps::older;
use crate::wire::seq::Seq;

/// Kind of repair in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Open,
    /// Repair of losses that ACKs reported.
    Repair,
    /// Repair of losses that a timeout assumes.
    Timeout,
}

/// State of a recovery.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    phase: Phase,
    /// SND.NXT when it began (`RecoveryPoint`).
    point: Seq,
    rate: Rate,
    doubt: Option<Doubt>,
}

/// Proportional rate reduction (RFC 6937 §3).
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    /// Bytes in flight when the recovery began (`RecoverFS`).
    flight: usize,
    /// Window to reach (ssthresh).
    target: usize,
    delivered: usize,
    sent: usize,
    window: usize,
}

/// Evidence that would show the recovery to be needless.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    /// SND.UNA when the recovery began.
    una: Seq,
    /// SND.NXT when it ended. Data acknowledged beyond was sent after all retransmissions.
    end: Option<Seq>,
    /// Our timestamp in the first retransmission.
    first_stamp: Option<u32>,
    /// Retransmissions that the peer has not reported as duplicates.
    repeats: usize,
    any: bool,
}

impl Recovery {
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Sequence number that must be acknowledged to end the recovery.
    pub(crate) fn point(&self) -> Seq {
        self.point
    }

    /// Begins to repair losses that ACKs reported, from `flight` bytes in flight to a window of
    /// `target` bytes.
    pub(crate) fn begin(&mut self, una: Seq, nxt: Seq, flight: usize, target: usize, mss: usize) {
        self.phase = Phase::Repair;
        self.point = nxt;
        self.doubt = Some(Doubt::new(una));
        self.rate = Rate {
            flight: flight.max(1),
            target,
            window: mss, // the first retransmission leaves at once
            ..Rate::default()
        };
    }

    /// Handles an expiry of the retransmission timer.
    pub(crate) fn time_out(&mut self, una: Seq, nxt: Seq) {
        if self.phase != Phase::Timeout {
            self.doubt = Some(Doubt::new(una));
        }
        self.phase = Phase::Timeout;
        self.point = nxt;
    }

    /// Returns true, and ends the recovery, if all data sent before it is acknowledged. Once more
    /// is acknowledged than was sent until its end, the recovery can no longer prove to be
    /// needless.
    pub(crate) fn ends(&mut self, una: Seq, nxt: Seq) -> bool {
        if self.is_open() {
            let over = |doubt: &mut Doubt| doubt.end.is_some_and(|end| end.is_before(una));
            self.doubt.take_if(over);
            return false;
        }
        let ends = !una.is_before(self.point);
        if ends {
            self.phase = Phase::Open;
            if let Some(doubt) = &mut self.doubt {
                doubt.end = Some(nxt);
            }
        }
        ends
    }

    /// Ends a spurious recovery.
    pub(crate) fn cancel(&mut self) {
        self.phase = Phase::Open;
        self.doubt = None;
    }

    /// Records that an ACK reported `delivered` bytes, and that `pipe` bytes are in flight now.
    pub(crate) fn delivered(&mut self, delivered: usize, pipe: usize, mss: usize) {
        if self.phase != Phase::Repair {
            return;
        }
        let rate = &mut self.rate;
        rate.delivered += delivered;
        let allowed = if pipe > rate.target {
            (rate.delivered.saturating_mul(rate.target))
                .div_ceil(rate.flight)
                .saturating_sub(rate.sent)
        } else {
            let behind = rate.delivered.saturating_sub(rate.sent);
            (rate.target - pipe).min(behind.max(delivered) + mss)
        };
        let first = if rate.sent == 0 { mss } else { 0 };
        rate.window = pipe + allowed.max(first);
    }

    /// The window during a repair, in bytes.
    pub(crate) fn window(&self) -> Option<usize> {
        (self.phase == Phase::Repair).then_some(self.rate.window)
    }

    /// Records that `bytes` were sent.
    pub(crate) fn sent(&mut self, bytes: usize) {
        if self.phase == Phase::Repair {
            self.rate.sent += bytes;
        }
    }

    /// Records a retransmission with this timestamp.
    pub(crate) fn repeated(&mut self, stamp: u32) {
        if let Some(doubt) = &mut self.doubt {
            doubt.first_stamp.get_or_insert(stamp);
            doubt.repeats += 1;
            doubt.any = true;
        }
    }

    /// Records that the peer reported a segment at `begin` as a duplicate. Returns true if all
    /// retransmissions have thus proved needless (RFC 3708 §2).
    pub(crate) fn called_duplicate(&mut self, begin: Seq) -> bool {
        let Some(doubt) = &mut self.doubt else {
            return false;
        };
        if begin.is_before(doubt.una) {
            return false;
        }
        doubt.repeats = doubt.repeats.saturating_sub(1);
        doubt.any && doubt.repeats == 0
    }

    /// True if an ACK that echoes `echoed` answers an original although there was a retransmission
    /// (Eifel, RFC 3522 §3.2).
    pub(crate) fn answers_original(&self, echoed: u32) -> bool {
        let first = self.doubt.and_then(|doubt| doubt.first_stamp);
        !self.is_open() && first.is_some_and(|first| older(echoed, first))
    }
}

impl Doubt {
    fn new(una: Seq) -> Self {
        Self {
            una,
            end: None,
            first_stamp: None,
            repeats: 0,
            any: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::seq::from_raw;
    use crate::wire::seq::testing::{LARGEST, at, start};

    #[test]
    fn half_as_much_is_sent_as_is_delivered_until_the_target() {
        let mut recovery = Recovery::default();
        recovery.begin(from_raw(0), from_raw(20_000), 20_000, 10_000, 1000);
        assert_eq!(recovery.window(), Some(1000));
        recovery.sent(1000);
        let mut pipe = 19_000;
        for _ in 0..8 {
            pipe -= 1000; // one more segment is delivered
            recovery.delivered(1000, pipe, 1000);
            let allowed = recovery.window().unwrap() - pipe;
            let send = allowed / 1000 * 1000;
            recovery.sent(send);
            pipe += send;
        }
        assert_eq!(recovery.rate.sent, 4000, "of 8000 delivered");
    }

    #[test]
    fn duplicate_of_each_repetition_shows_that_nothing_was_lost() {
        let mut recovery = Recovery::default();
        recovery.begin(from_raw(100), from_raw(900), 800, 400, 100);
        recovery.repeated(5);
        recovery.repeated(6);
        assert!(!recovery.called_duplicate(from_raw(50)), "from before");
        assert!(!recovery.called_duplicate(from_raw(100)));
        assert!(recovery.called_duplicate(from_raw(200)));
    }

    #[test]
    fn echo_from_before_the_first_repetition_answers_the_original() {
        let mut recovery = Recovery::default();
        recovery.time_out(from_raw(100), from_raw(900));
        assert!(!recovery.answers_original(4));
        recovery.repeated(5);
        assert!(recovery.answers_original(4) && !recovery.answers_original(5));
        assert!(!recovery.ends(from_raw(899), from_raw(1000)));
        assert!(recovery.ends(from_raw(900), from_raw(1000)));
        assert!(!recovery.answers_original(4));
    }

    #[test]
    fn doubt_ends_with_what_was_sent_in_the_recovery() {
        for (una, doubted) in [(950, true), (1000, true), (1001, false)] {
            let mut recovery = Recovery::default();
            recovery.begin(from_raw(100), from_raw(900), 800, 400, 100);
            recovery.repeated(5);
            assert!(recovery.ends(from_raw(900), from_raw(1000)));
            assert!(!recovery.ends(from_raw(una), from_raw(2000)));
            assert_eq!(recovery.called_duplicate(from_raw(100)), doubted, "{una}");
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// An ACK: bytes acknowledged, and bytes in flight afterwards.
        Ack(i64, i64),
        /// A segment is lost and retransmitted.
        Loss,
        Timeout,
        /// A segment at this distance before SND.UNA is reported as a duplicate.
        Duplicate(i64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let far = || prop_oneof![0..3_i64, 0..=LARGEST / 4];
        prop_oneof![
            6 => (far(), far()).prop_map(|(acked, flight)| Step::Ack(acked, flight)),
            1 => Just(Step::Loss),
            1 => Just(Step::Timeout),
            3 => prop_oneof![far(), 0..=LARGEST].prop_map(Step::Duplicate),
        ]
    }

    /// Model of a recovery, with numbers that do not wrap.
    #[derive(Debug, Default)]
    struct Model {
        una: i64,
        nxt: i64,
        open: bool,
        repairs: bool,
        point: i64,
        /// SND.UNA at the start of a recovery that may have been needless, and SND.NXT at its end.
        doubt: Option<(i64, Option<i64>)>,
        repeats: usize,
    }

    impl Model {
        fn begin(&mut self, repairs: bool) {
            if repairs || self.open || self.repairs {
                self.doubt = Some((self.una, None));
                self.repeats = 0;
            }
            (self.open, self.repairs, self.point) = (false, repairs, self.nxt);
            self.repeats += 1;
        }

        /// Returns true if the recovery is over.
        fn acknowledge(&mut self, acked: i64, flight: i64) -> bool {
            self.una = self.nxt.min(self.una + acked);
            self.nxt = self.nxt.max(self.una + flight);
            if self.open {
                self.doubt
                    .take_if(|(_, end)| end.is_some_and(|end| end < self.una));
                return false;
            }
            let ends = self.una >= self.point;
            if ends {
                (self.open, self.repairs) = (true, false);
                self.doubt = self.doubt.map(|(una, _)| (una, Some(self.nxt)));
            }
            ends
        }

        /// Returns true if all retransmissions were needless.
        fn duplicate(&mut self, begin: i64) -> bool {
            if self.doubt.is_none_or(|(una, _)| begin < una) {
                return false;
            }
            self.repeats = self.repeats.saturating_sub(1);
            self.repeats == 0
        }

        fn act(&mut self, recovery: &mut Recovery, step: Step) {
            let (una, nxt) = (at(self.una), at(self.nxt));
            match step {
                Step::Loss if self.open => {
                    recovery.begin(una, nxt, 10, 5, 1);
                    recovery.repeated(7);
                    self.begin(true);
                }
                Step::Timeout => {
                    recovery.time_out(una, nxt);
                    recovery.repeated(7);
                    self.begin(false);
                }
                Step::Ack(acked, flight) => {
                    let ends = self.acknowledge(acked, flight);
                    assert_eq!(recovery.ends(at(self.una), at(self.nxt)), ends);
                }
                Step::Duplicate(back) => {
                    let begin = self.una - back;
                    assert_eq!(recovery.called_duplicate(at(begin)), self.duplicate(begin));
                }
                Step::Loss => {}
            }
            assert_eq!(recovery.is_open(), self.open);
        }

        /// True if a recovery has lasted so long that its start is no longer compared with current
        /// data. That takes consecutive timeouts over a thousand flights. Needless recoveries are
        /// then not detected, which only costs time.
        fn is_endless(&self) -> bool {
            self.doubt.is_some_and(|(una, _)| self.una - una > LARGEST)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 512 }))]

        /// Recovery points and evidence over consecutive recoveries, in a stream longer than the
        /// sequence number space.
        #[test]
        fn recovery_ends_as_in_a_stream_that_does_not_wrap(begin in start(), steps in prop::collection::vec(step(), 1..60)) {
            let mut recovery = Recovery::default();
            let mut model = Model { una: begin, nxt: begin, open: true, ..Model::default() };
            for step in steps {
                model.act(&mut recovery, step);
                if model.is_endless() && !model.open {
                    break;
                }
            }
        }
    }
}
