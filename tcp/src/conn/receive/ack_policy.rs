//! Acknowledgment policy: when to acknowledge, and which SACK blocks to report (RFC 2018 §4, RFC
//! 2883 §4).
//!
//! TCP acknowledges the end of a burst at the end of the turn. Where the application answers, one
//! segment waits for the answer, and its ACK rides on it: decision record tcp/0004.

use std::time::Duration;

use arrayvec::ArrayVec;

use super::reassembly::Reassembly;
use crate::time::Instant;
use crate::wire::seq::{Seq, raw};

/// Maximum number of SACK blocks in an ACK with a timestamp.
pub(super) const MAX_BLOCKS: usize = 3;

/// Pending acknowledgments and SACK blocks.
#[derive(Debug, Default)]
pub(crate) struct AckPolicy {
    /// Maximum delay of an ACK that waits for an answer to ride on.
    delay: Duration,
    /// An acknowledgment is due by the end of the turn, in any segment.
    due: bool,
    /// An acknowledgment of one segment is due by this time, in any segment.
    later: Option<Instant>,
    /// Data sent until this time counts as an answer to the data received last.
    response_until: Option<Instant>,
    /// Recent data was answered, so waiting for an answer pays.
    interactive: bool,
    /// A pure ACK is due: its blocks have no room in segments with data.
    explicit: bool,
    /// Last bytes that arrived twice.
    duplicate: Option<(Seq, Seq)>,
    /// Start of recent out-of-order segments, newest first.
    recent: ArrayVec<Seq, MAX_BLOCKS>,
}

impl AckPolicy {
    /// A policy that delays ACKs by at most `delay`.
    pub(crate) fn new(delay: Duration) -> Self {
        Self {
            delay,
            ..Self::default()
        }
    }

    /// Records that data was received.
    pub(crate) fn owe(&mut self) {
        self.due = true;
    }

    /// Records a segment received in order. Where answers come soon, one may wait for an answer; a
    /// second one does not (RFC 9293 §3.8.6.3).
    pub(crate) fn owe_soon(&mut self, now: Instant) {
        self.response_until = Some(now + self.delay);
        if self.interactive && self.later.is_none() {
            self.later = self.response_until;
        } else {
            self.due = true;
        }
    }

    /// Records that the application has not answered in time.
    pub(crate) fn give_up(&mut self) {
        self.interactive = false;
        self.due = true;
    }

    /// Records that new data was sent, in a segment that acknowledges.
    pub(crate) fn answered(&mut self, now: Instant) {
        self.interactive |= self
            .response_until
            .take()
            .is_some_and(|latest| now < latest);
        self.piggybacked();
    }

    /// Latest time of the next acknowledgment.
    pub(crate) fn latest(&self) -> Option<Instant> {
        self.later
    }

    /// Requests an ACK at once.
    pub(crate) fn demand(&mut self) {
        self.explicit = true;
    }

    /// Records a segment that arrived out of order at `seq`.
    pub(crate) fn out_of_order(&mut self, seq: Seq) {
        if self.recent.is_full() {
            self.recent.pop();
        }
        self.recent.insert(0, seq);
        self.explicit = true;
    }

    /// Records bytes that arrived twice.
    pub(crate) fn duplicate(&mut self, block: Option<(Seq, Seq)>) {
        self.duplicate = block;
        self.explicit = true;
    }

    /// True if an ACK is due.
    pub(crate) fn is_due(&self) -> bool {
        self.due || self.explicit
    }

    /// True if received data is not acknowledged.
    pub(crate) fn is_owed(&self) -> bool {
        self.is_due() || self.later.is_some()
    }

    /// Records that a segment with data has acknowledged.
    pub(crate) fn piggybacked(&mut self) {
        self.due = false;
        self.later = None;
    }

    /// Records that a pure ACK with all blocks was sent.
    pub(crate) fn sent(&mut self) {
        self.piggybacked();
        self.explicit = false;
        self.duplicate = None;
    }

    /// Blocks of the SACK option: a duplicate first, then the block of the newest segment, then
    /// other recent ones.
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
