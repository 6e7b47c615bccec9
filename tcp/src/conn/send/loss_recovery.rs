//! Loss recovery of one connection: RACK, the recovery in progress, and the tail loss probe.

use std::time::Duration;

use super::rack::{PathTimes, Rack};
use super::recovery::{Phase, Recovery};
use super::send_queue::{Piece, SendQueue};
use super::tail_loss_probe::{TailLossProbe, Verdict};
use crate::time::Instant;
use crate::wire::seq::Seq;

/// State of loss detection and repair.
#[derive(Debug, Default)]
pub(crate) struct LossRecovery {
    rack: Rack,
    recovery: Recovery,
    tail: TailLossProbe,
}

/// Result of looking for lost segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Losses {
    /// Segments were newly found lost.
    pub(crate) found: bool,
    /// When more segments may be lost.
    pub(crate) later: Option<Instant>,
}

impl LossRecovery {
    /// True while losses that ACKs reported are being repaired.
    pub(crate) fn is_repairing(&self) -> bool {
        self.recovery.phase() == Phase::Repair
    }

    /// True while no losses are being repaired.
    pub(crate) fn is_open(&self) -> bool {
        self.recovery.is_open()
    }

    /// True while a tail loss probe is unanswered.
    pub(crate) fn is_probing(&self) -> bool {
        self.tail.is_outstanding()
    }

    /// True if data sent before the repair is still unacknowledged.
    pub(crate) fn is_partial(&self, una: Seq) -> bool {
        self.is_repairing() && una.is_before(self.recovery.point())
    }

    /// The window during a repair, in bytes.
    pub(crate) fn window(&self) -> Option<usize> {
        self.recovery.window()
    }

    /// Begins to repair losses that ACKs reported (see [`Recovery::begin`]).
    pub(crate) fn begin(&mut self, sent: (Seq, Seq), flight: usize, target: usize, mss: usize) {
        let (una, nxt) = sent;
        self.recovery.begin(una, nxt, flight, target, mss);
        self.tail.clear();
    }

    /// Handles an expiry of the retransmission timer.
    pub(crate) fn time_out(&mut self, una: Seq, nxt: Seq) {
        self.recovery.time_out(una, nxt);
        self.tail.clear();
    }

    /// Returns true if the recovery is over: all data sent before it is acknowledged.
    pub(crate) fn ends(&mut self, una: Seq, nxt: Seq) -> bool {
        let ends = self.recovery.ends(una, nxt);
        if ends {
            self.rack.on_recovered();
        }
        ends
    }

    /// Ends a spurious recovery.
    pub(crate) fn cancel(&mut self) {
        self.recovery.cancel();
    }

    /// Records that `bytes` were sent.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.recovery.sent(bytes);
    }

    /// Records a retransmission with this timestamp.
    pub(crate) fn repeated(&mut self, stamp: u32) {
        self.recovery.repeated(stamp);
    }

    /// Records that a tail loss probe was sent when `nxt` was the next sequence number.
    pub(crate) fn probed(&mut self, nxt: Seq) {
        self.tail.sent(nxt);
    }

    /// Records a piece that was delivered `rtt` after its last transmission. `ambiguous`: an
    /// earlier transmission may have been delivered.
    pub(crate) fn on_delivered(&mut self, piece: &Piece, rtt: Duration, ambiguous: bool) {
        self.rack.delivered(piece, rtt, ambiguous);
    }

    /// Records that an ACK reported `bytes`, and that `pipe` bytes are in flight now.
    pub(crate) fn on_ack(&mut self, bytes: usize, pipe: usize, mss: usize) {
        self.recovery.delivered(bytes, pipe, mss);
    }

    /// Records that the peer reported a segment at `begin` as a duplicate. Returns true if all
    /// retransmissions have thus proved needless (RFC 3708 §2).
    pub(crate) fn on_duplicate(&mut self, begin: Seq, una: Seq, nxt: Seq) -> bool {
        self.rack.on_duplicate(una, nxt);
        self.recovery.called_duplicate(begin)
    }

    /// True if an ACK that echoes `echoed` answers an original although there was a retransmission
    /// (Eifel, RFC 3522 §3.2).
    pub(crate) fn answers_original(&self, echoed: u32) -> bool {
        self.recovery.answers_original(echoed)
    }

    /// Judges what an ACK reports about the tail loss probe. Returns true if the probe has repaired
    /// a loss that was not found otherwise.
    pub(crate) fn is_repaired_by_probe(&mut self, ack: Seq, duplicate: bool, bare: bool) -> bool {
        self.tail.judge(ack, duplicate, bare) == Verdict::Repaired && self.recovery.is_open()
    }

    /// Forgets what lies before `una`, which is acknowledged.
    pub(crate) fn forget(&mut self, una: Seq) {
        self.rack.forget(una);
    }

    /// Marks the segments that are lost by now.
    pub(crate) fn detect(&self, queue: &mut SendQueue, path: PathTimes, now: Instant) -> Losses {
        let (found, later) = self.rack.detect(queue, !self.is_open(), path, now);
        Losses { found, later }
    }

    /// Marks the first piece, and all behind it, that should have been delivered by now (RFC 8985
    /// §6.3).
    pub(crate) fn mark_overdue(&self, queue: &mut SendQueue, now: Instant) {
        for at in 1..queue.len() {
            let overdue = |piece| self.rack.is_overdue(piece, now);
            if queue.get(at).is_some_and(overdue) {
                queue.mark_lost(at);
            }
        }
    }
}
