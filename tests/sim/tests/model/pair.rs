//! Two ends that are connected time and again: completions, and what they make certain.

use std::collections::BTreeSet;

use xwarp::{CompletionStatus, Opcode, QpState, WorkCompletion};

use crate::buffers::Buffers;
use crate::end::ModelEnd;
use crate::queue::{Effect, Fate, Work};

/// A shared receive queue's reference.
#[derive(Default)]
pub(crate) struct SharedModel {
    pub(crate) posted: BTreeSet<u64>,
    pub(crate) last_ended: u64,
}

pub(crate) struct Pair {
    pub(crate) ends: [ModelEnd; 2],
    /// Something has happened that may end the connection.
    pub(crate) excused: bool,
    /// The end that has connected has sent something, without which the other may not.
    pub(crate) spoken: bool,
    /// Work that needs an `STag` as it is may be on its way.
    pub(crate) uses_stags: bool,
}

impl Pair {
    /// Polls up to `most` completions of the send queue; how many there were.
    pub(crate) fn poll_sends(&mut self, who: usize, most: usize) -> usize {
        for polled in 0..most {
            let Some(completion) = self.ends[who].send_cq.poll().unwrap() else {
                return polled;
            };
            if !self.is_own(who, &completion) {
                continue;
            }
            for (work, success) in self.ends[who].sends.complete(&completion) {
                self.ended(who, &work, success, completion.original());
            }
        }
        most
    }

    fn is_own(&self, who: usize, completion: &WorkCompletion) -> bool {
        self.ends[who].qp.as_ref().unwrap().id() == completion.qp
    }

    /// What work has changed, or may have.
    fn ended(&mut self, who: usize, work: &Work, success: bool, original: Option<u64>) {
        let [mine, peer] = &mut self.ends;
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

    /// Polls up to `most` completions of the receive queue. Returns their number.
    pub(crate) fn poll_receives(
        &mut self,
        who: usize,
        most: usize,
        buffers: &mut Buffers,
        srq: &mut SharedModel,
    ) -> usize {
        for polled in 0..most {
            let Some(completion) = self.ends[who].recv_cq.poll().unwrap() else {
                return polled;
            };
            let id = completion.wr_id.0;
            let own = self.is_own(who, &completion);
            let end = &mut self.ends[who];
            if end.shared {
                assert!(
                    srq.posted.remove(&id),
                    "{completion:?} of nothing that is posted"
                );
                srq.last_ended = srq.last_ended.max(id);
            } else if own {
                assert_eq!(end.recvs.pop_front(), Some(id), "{completion:?}");
            }
            if own {
                assert!(id > end.last_recv, "{completion:?} after {}", end.last_recv);
                end.last_recv = id;
                self.received(who, &completion, buffers);
            } else if self.ends[who].shared {
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
        let message = self.ends[1 - who].messages.pop_front();
        let message = message.unwrap_or_else(|| panic!("{completion:?} of nothing that was sent"));
        assert_eq!(completion.byte_len as usize, message.bytes.len());
        assert_eq!(completion.immediate, message.immediate);
        assert_eq!(completion.invalidated, message.invalidate);
        assert_eq!(completion.solicited, message.solicited);
        // All that was written before is there (verbs.md §7).
        for write in self.ends[who].memory.busy() {
            if write % 2 == 1 - who as u64 && write / 2 <= message.id {
                self.ends[who].memory.done(write);
            }
        }
        buffers.ended(id, Some(&message.bytes));
        if message.invalidate.is_some() {
            self.ends[who].window_is.become_(None);
        }
    }

    /// Compares memory, windows and counters.
    pub(crate) fn check(&self) {
        for (end, peer) in [(0, 1), (1, 0)] {
            self.ends[end].check();
            let mut counts = self.ends[end].counts.clone();
            for work in &self.ends[peer].sends.posted {
                if let Effect::Atomic(change) = work.effect {
                    let more: Vec<u64> = counts.iter().map(|count| change.apply(*count)).collect();
                    counts.extend(more);
                }
            }
            let count = self.ends[end].count();
            assert!(counts.contains(&count), "counter: {count} of {counts:?}");
        }
    }

    /// All completions that are there.
    pub(crate) fn drain(&mut self, who: usize, buffers: &mut Buffers, srq: &mut SharedModel) {
        self.poll_sends(who, usize::MAX);
        self.poll_receives(who, usize::MAX, buffers, srq);
    }

    /// Compares the state with the one before, which may have changed by itself, and with what ends
    /// with it.
    pub(crate) fn observe(&mut self, who: usize, buffers: &mut Buffers, srq: &mut SharedModel) {
        let end = &mut self.ends[who];
        let (was, is) = (end.state, end.shown_state());
        end.state = is;
        assert!(
            may_become(was, is, end.live, end.graceful),
            "{was:?} became {is:?}"
        );
        let by_itself = was == QpState::Rts && is != QpState::Rts;
        assert!(!by_itself || self.excused, "{was:?} became {is:?}");
        // A connection may have come and gone since.
        let closed = end.closes() > 0;
        assert!(!closed || is == QpState::Idle, "closed, but {is:?}");
        let over = matches!(is, QpState::Idle | QpState::Error) && was != is;
        if over || closed {
            self.end(who, buffers, srq);
        }
    }

    /// The connection of a end is over: everything is accounted for.
    pub(crate) fn end(&mut self, who: usize, buffers: &mut Buffers, srq: &mut SharedModel) {
        self.excused = true;
        self.drain(who, buffers, srq);
        let left = self.ends[who].sends.end();
        for work in left {
            self.ended(who, &work, true, None);
        }
        let end = &mut self.ends[who];
        assert!(
            end.recvs.is_empty(),
            "receives {:?} were not flushed",
            end.recvs
        );
        (end.live, end.graceful) = (false, false);
        end.settle_stags();
        let written = std::mem::take(&mut end.written);
        for id in written {
            self.ends[1 - who].memory.abandon(tagged(who, id));
        }
    }

    /// The queue pair is gone, and so is what was posted to it.
    pub(crate) fn forget_sends(&mut self, who: usize) {
        let left = std::mem::take(&mut self.ends[who].sends);
        for work in left.posted {
            self.ended(who, &work, false, None);
        }
        self.ends[who].settle_stags();
    }

    /// Both ends are connected, and nothing is under way.
    pub(crate) fn settle(&mut self, buffers: &mut [Buffers; 2], srq: &mut SharedModel) {
        for who in [0, 1] {
            self.drain(who, &mut buffers[who], srq);
        }
        let connected = self.ends.iter().all(|end| end.state == QpState::Rts);
        let live = self.ends.iter().all(|end| end.live);
        if !self.excused && live {
            assert!(
                connected,
                "the connection has ended: {:?}",
                self.ends.each_ref().map(|it| it.state)
            );
        }
        let quiet = |end: &ModelEnd| end.messages.is_empty() && end.sends.held() == 0;
        let stalled = self.excused && !self.ends.iter().all(quiet);
        if !connected || !live || !self.spoken || stalled {
            return;
        }
        self.excused = self.may_overrun();
        for who in [0, 1] {
            self.ends[who].check_depths();
            let left = self.ends[who].sends.end();
            for work in left {
                self.ended(who, &work, true, None);
            }
            assert!(
                self.ends[who].messages.is_empty(),
                "messages were not received"
            );
            let written = std::mem::take(&mut self.ends[who].written);
            for id in written {
                self.ends[1 - who].memory.done(tagged(who, id));
            }
        }
        for end in &mut self.ends {
            end.settle_stags();
            end.memory.settle(end.bytes());
            end.counts = BTreeSet::from([end.count()])
                .intersection(&end.counts)
                .copied()
                .collect();
        }
        self.uses_stags = false;
    }
}

impl Pair {
    /// A end may have more Reads outstanding than the other one lets it.
    pub(crate) fn may_overrun(&self) -> bool {
        let [a, b] = &self.ends;
        a.depths[0] > b.depths[1] || b.depths[0] > a.depths[1]
    }
}

/// A name that the work requests of both ends do not share.
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
