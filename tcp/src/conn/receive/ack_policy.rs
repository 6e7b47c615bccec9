//! Acknowledgment policy: when to acknowledge, and which SACK blocks to report (RFC 2018 §4, RFC 2883 §4).

use std::time::Duration;

use arrayvec::ArrayVec;

use super::reassembly::Reassembly;
use crate::time::Instant;
use crate::wire::seq::{Seq, raw};

/// Blocks that an ACK has room for beside a timestamp.
pub(super) const MAX_BLOCKS: usize = 3;

/// What the peer is to be told.
#[derive(Debug, Default)]
pub(crate) struct AckPolicy {
    /// How long an acknowledgment may wait for an answer to go with.
    delay: Duration,
    /// Something is to be acknowledged by the end of the turn; any segment will do.
    due: bool,
    /// One segment was received that is to be acknowledged by then; any segment will do.
    later: Option<Instant>,
    /// Until when bytes that are sent are an answer to those received last.
    response_until: Option<Instant>,
    /// What was received lately has been answered, so that waiting for it pays.
    interactive: bool,
    /// An ACK is to be sent that is nothing else: it says what segments with data have no room for.
    explicit: bool,
    /// What came twice last.
    duplicate: Option<(Seq, Seq)>,
    /// Where segments came out of order lately, the newest first.
    recent: ArrayVec<Seq, MAX_BLOCKS>,
}

impl AckPolicy {
    /// A policy that delays acknowledgments by `delay` at most.
    pub(crate) fn new(delay: Duration) -> Self {
        Self {
            delay,
            ..Self::default()
        }
    }

    /// Something was received.
    pub(crate) fn owe(&mut self) {
        self.due = true;
    }

    /// A segment was received in order. Where answers come soon, it may wait for one a while, a second one does not (RFC 9293
    /// §3.8.6.3).
    pub(crate) fn owe_soon(&mut self, now: Instant) {
        self.response_until = Some(now + self.delay);
        if self.interactive && self.later.is_none() {
            self.later = self.response_until;
        } else {
            self.due = true;
        }
    }

    /// No answer has come.
    pub(crate) fn give_up(&mut self) {
        self.interactive = false;
        self.due = true;
    }

    /// Bytes were sent for the first time, in a segment that acknowledges.
    pub(crate) fn answered(&mut self, now: Instant) {
        self.interactive |= self
            .response_until
            .take()
            .is_some_and(|latest| now < latest);
        self.piggybacked();
    }

    /// When something is to be acknowledged at the latest.
    pub(crate) fn latest(&self) -> Option<Instant> {
        self.later
    }

    /// Something was received of which the peer must know at once.
    pub(crate) fn demand(&mut self) {
        self.explicit = true;
    }

    /// A segment came out of order at `seq`.
    pub(crate) fn out_of_order(&mut self, seq: Seq) {
        if self.recent.is_full() {
            self.recent.pop();
        }
        self.recent.insert(0, seq);
        self.explicit = true;
    }

    /// These bytes came twice.
    pub(crate) fn duplicate(&mut self, block: Option<(Seq, Seq)>) {
        self.duplicate = block;
        self.explicit = true;
    }

    /// True if an ACK is to be sent.
    pub(crate) fn is_due(&self) -> bool {
        self.due || self.explicit
    }

    /// True if something was received that is not acknowledged.
    pub(crate) fn is_owed(&self) -> bool {
        self.is_due() || self.later.is_some()
    }

    /// A segment with data was sent that acknowledges.
    pub(crate) fn piggybacked(&mut self) {
        self.due = false;
        self.later = None;
    }

    /// An ACK was sent, with all that there was to say.
    pub(crate) fn sent(&mut self) {
        self.piggybacked();
        self.explicit = false;
        self.duplicate = None;
    }

    /// The SACK option's blocks: a duplicate first, then the block of the newest segment, then others of late.
    #[inline]
    pub(super) fn blocks(&mut self, parts: &Reassembly) -> [Option<(u32, u32)>; MAX_BLOCKS] {
        if self.duplicate.is_none() && self.recent.is_empty() {
            return [None; MAX_BLOCKS];
        }
        self.gather_blocks(parts)
    }

    fn gather_blocks(&mut self, parts: &Reassembly) -> [Option<(u32, u32)>; MAX_BLOCKS] {
        let mut blocks: ArrayVec<(Seq, Seq), MAX_BLOCKS> = ArrayVec::new();
        blocks.extend(self.duplicate);
        let mut listed: ArrayVec<(Seq, Seq), MAX_BLOCKS> = ArrayVec::new();
        self.recent.retain(|seq| {
            let block = parts.block(*seq);
            let new = block.filter(|block| !listed.contains(block));
            listed.extend(new);
            new.is_some()
        });
        blocks.extend(listed.into_iter().take(blocks.remaining_capacity()));
        let mut option = [None; MAX_BLOCKS];
        for (place, (left, right)) in option.iter_mut().zip(blocks) {
            *place = Some((raw(left), raw(right)));
        }
        option
    }
}
