//! Two sides that are connected time and again: completions, and what they make certain.

use std::collections::BTreeSet;

use xwarp::{CompletionStatus, Opcode, QpState, WorkCompletion};

use crate::buffers::Buffers;
use crate::queue::{Effect, Fate, Work};
use crate::side::Side;

/// A shared receive queue's reference.
#[derive(Default)]
pub(crate) struct SharedModel {
    pub(crate) posted: BTreeSet<u64>,
    pub(crate) last_ended: u64,
}

pub(crate) struct Pair {
    pub(crate) sides: [Side; 2],
    /// Something has happened that may end the connection.
    pub(crate) excused: bool,
    /// The side that has connected has sent something, without which the other may not.
    pub(crate) spoken: bool,
    /// Work that needs an `STag` as it is may be on its way.
    pub(crate) uses_stags: bool,
}

impl Pair {
    /// Polls up to `most` completions of the send queue; how many there were.
    pub(crate) fn poll_sends(&mut self, who: usize, most: usize) -> usize {
        for polled in 0..most {
            let Some(completion) = self.sides[who].send_cq.poll().unwrap() else {
                return polled;
            };
            if !self.is_own(who, &completion) {
                continue;
            }
            for (work, success) in self.sides[who].sends.complete(&completion) {
                self.ended(who, &work, success, completion.original);
            }
        }
        most
    }

    fn is_own(&self, who: usize, completion: &WorkCompletion) -> bool {
        self.sides[who].qp.as_ref().unwrap().id() == completion.qp
    }

    /// What work has changed, or may have.
    fn ended(&mut self, who: usize, work: &Work, success: bool, original: Option<u64>) {
        let [mine, peer] = &mut self.sides;
        let (mine, peer) = if who == 0 { (mine, peer) } else { (peer, mine) };
        match &work.effect {
            Effect::Nothing => {}
            // Done here; it is there when the link is quiet.
            Effect::Write(_) if success => mine.written.push(work.id),
            Effect::Write(_) => peer.memory.abandon(tagged(who, work.id)),
            Effect::Read(_) if success => mine.memory.done(tagged(who, work.id)),
            Effect::Read(_) => mine.memory.abandon(tagged(who, work.id)),
            Effect::ReadInvalidate(_) if success => {
                mine.memory.done(tagged(who, work.id));
                mine.fast_is.become_(None);
            }
            Effect::ReadInvalidate(_) => {
                mine.memory.abandon(tagged(who, work.id));
                mine.fast_is.unsure = true;
            }
            Effect::Atomic(change) => peer.counted(*change, work, success, original),
            Effect::Bind(which, stag) if success => mine.stag_is(*which).become_(Some(*stag)),
            Effect::Unbind(which) if success => mine.stag_is(*which).become_(None),
            Effect::Bind(which, _) | Effect::Unbind(which) => {
                mine.stag_is(*which).unsure |= work.fate == Fate::Good || work.fate == Fate::Open;
            }
        }
    }

    /// Polls up to `most` completions of the receive queue, likewise.
    pub(crate) fn poll_receives(
        &mut self,
        who: usize,
        most: usize,
        buffers: &mut Buffers,
        srq: &mut SharedModel,
    ) -> usize {
        for polled in 0..most {
            let Some(completion) = self.sides[who].recv_cq.poll().unwrap() else {
                return polled;
            };
            let id = completion.wr_id.0;
            let own = self.is_own(who, &completion);
            let side = &mut self.sides[who];
            if side.shared {
                assert!(
                    srq.posted.remove(&id),
                    "{completion:?} of nothing that is posted"
                );
                srq.last_ended = srq.last_ended.max(id);
            } else if own {
                assert_eq!(side.recvs.pop_front(), Some(id), "{completion:?}");
            }
            if own {
                assert!(
                    id > side.last_recv,
                    "{completion:?} after {}",
                    side.last_recv
                );
                side.last_recv = id;
                self.received(who, &completion, buffers);
            } else if self.sides[who].shared {
                buffers.ended(id, None);
            }
        }
        most
    }

    fn received(&mut self, who: usize, completion: &WorkCompletion, buffers: &mut Buffers) {
        let id = completion.wr_id.0;
        assert_eq!(completion.opcode, Opcode::Receive);
        match completion.status {
            CompletionStatus::Success => {}
            CompletionStatus::Flushed => return buffers.ended(id, None),
            CompletionStatus::InvalidStag | CompletionStatus::InvalidateRefused if self.excused => {
                return buffers.ended(id, None);
            }
            status => panic!("{status:?} of receive {id}"),
        }
        let message = self.sides[1 - who].messages.pop_front();
        let message = message.unwrap_or_else(|| panic!("{completion:?} of nothing that was sent"));
        assert_eq!(completion.byte_len as usize, message.bytes.len());
        assert_eq!(completion.immediate, message.immediate);
        assert_eq!(completion.invalidated, message.invalidate);
        assert_eq!(completion.solicited, message.solicited);
        // All that was written before is there (verbs.md §7).
        for write in self.sides[who].memory.busy() {
            if write % 2 == 1 - who as u64 && write / 2 <= message.id {
                self.sides[who].memory.done(write);
            }
        }
        buffers.ended(id, Some(&message.bytes));
        if message.invalidate.is_some() {
            self.sides[who].window_is.become_(None);
        }
    }

    /// Compares memory, windows and counters.
    pub(crate) fn check(&self) {
        for (side, peer) in [(0, 1), (1, 0)] {
            self.sides[side].check();
            let mut counts = self.sides[side].counts.clone();
            for work in &self.sides[peer].sends.posted {
                if let Effect::Atomic(change) = work.effect {
                    let more: Vec<u64> = counts.iter().map(|count| change.apply(*count)).collect();
                    counts.extend(more);
                }
            }
            let count = self.sides[side].count();
            assert!(counts.contains(&count), "counter: {count} of {counts:?}");
        }
    }

    /// All completions that are there.
    pub(crate) fn drain(&mut self, who: usize, buffers: &mut Buffers, srq: &mut SharedModel) {
        self.poll_sends(who, usize::MAX);
        self.poll_receives(who, usize::MAX, buffers, srq);
    }

    /// Compares the state with the one before, which may have changed by itself, and with what ends with it.
    pub(crate) fn observe(&mut self, who: usize, buffers: &mut Buffers, srq: &mut SharedModel) {
        let side = &mut self.sides[who];
        let (was, is) = (side.state, side.shown_state());
        side.state = is;
        assert!(
            may_become(was, is, side.live, side.graceful),
            "{was:?} became {is:?}"
        );
        let by_itself = was == QpState::Rts && is != QpState::Rts;
        assert!(!by_itself || self.excused, "{was:?} became {is:?}");
        // A connection may have come and gone since.
        let closed = side.closes() > 0;
        assert!(!closed || is == QpState::Idle, "closed, but {is:?}");
        let over = matches!(is, QpState::Idle | QpState::Error) && was != is;
        if over || closed {
            self.end(who, buffers, srq);
        }
    }

    /// The connection of a side is over: everything is accounted for.
    pub(crate) fn end(&mut self, who: usize, buffers: &mut Buffers, srq: &mut SharedModel) {
        self.excused = true;
        self.drain(who, buffers, srq);
        let left = self.sides[who].sends.end();
        for work in left {
            self.ended(who, &work, true, None);
        }
        let side = &mut self.sides[who];
        assert!(
            side.recvs.is_empty(),
            "receives {:?} were not flushed",
            side.recvs
        );
        (side.live, side.graceful) = (false, false);
        side.settle_stags();
        let written = std::mem::take(&mut side.written);
        for id in written {
            self.sides[1 - who].memory.abandon(tagged(who, id));
        }
    }

    /// The queue pair is gone, and so is what was posted to it.
    pub(crate) fn forget_sends(&mut self, who: usize) {
        let left = std::mem::take(&mut self.sides[who].sends);
        for work in left.posted {
            self.ended(who, &work, false, None);
        }
        self.sides[who].settle_stags();
    }

    /// Both sides are connected, and nothing is under way.
    pub(crate) fn settle(&mut self, buffers: &mut [Buffers; 2], srq: &mut SharedModel) {
        for who in [0, 1] {
            self.drain(who, &mut buffers[who], srq);
        }
        let connected = self.sides.iter().all(|side| side.state == QpState::Rts);
        let live = self.sides.iter().all(|side| side.live);
        if !self.excused && live {
            assert!(
                connected,
                "the connection has ended: {:?}",
                self.sides.each_ref().map(|it| it.state)
            );
        }
        let quiet = |side: &Side| side.messages.is_empty() && side.sends.held() == 0;
        let stalled = self.excused && !self.sides.iter().all(quiet);
        if !connected || !live || !self.spoken || stalled {
            return;
        }
        self.excused = self.may_overrun();
        for who in [0, 1] {
            self.sides[who].check_depths();
            let left = self.sides[who].sends.end();
            for work in left {
                self.ended(who, &work, true, None);
            }
            assert!(
                self.sides[who].messages.is_empty(),
                "messages were not received"
            );
            let written = std::mem::take(&mut self.sides[who].written);
            for id in written {
                self.sides[1 - who].memory.done(tagged(who, id));
            }
        }
        for side in &mut self.sides {
            side.settle_stags();
            side.memory.settle(side.bytes());
            side.counts = BTreeSet::from([side.count()])
                .intersection(&side.counts)
                .copied()
                .collect();
        }
        self.uses_stags = false;
    }
}

impl Pair {
    /// A side may have more Reads outstanding than the other one lets it.
    pub(crate) fn may_overrun(&self) -> bool {
        let [a, b] = &self.sides;
        a.depths[0] > b.depths[1] || b.depths[0] > a.depths[1]
    }
}

/// A name that the work requests of both sides do not share.
pub(crate) fn tagged(who: usize, id: u64) -> u64 {
    2 * id + who as u64
}

/// The table of verbs.md §4, as far as a queue pair moves by itself.
fn may_become(was: QpState, is: QpState, live: bool, graceful: bool) -> bool {
    use QpState::{Closing, Error, Idle, Rts, Terminate};
    match was {
        Idle => is == Idle || live,
        Rts => true,
        Closing => matches!(is, Closing | Idle | Error) || graceful && is == Terminate,
        Terminate => matches!(is, Terminate | Error),
        Error => is == Error,
    }
}
