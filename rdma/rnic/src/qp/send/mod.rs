//! Sending: work requests, responses and the Terminate, in TCP segments of whole FPDUs.
//!
//! A segment begins with the next FPDU. If that FPDU is its whole message, further waiting messages
//! follow in the same segment, as long as each fits completely. No message waits for others to fill
//! a segment (decision record rnic/0029).

mod begin;
mod short_message;
mod short_read;
mod tx_segment;

use super::device::{LentDevice, RdmaDevice};
use super::fault::SendFault;
use super::full_operation::FullOperation;
use super::stream::{Ahead, FpduSize};
use crate::model::{EngineCounters, Operation};
use begin::Next;
use short_message::RunEnd;
use tx_segment::TxSegment;

/// Segments that a queue pair may send in its turn.
const TURN_SEGMENTS: usize = 32;
/// FPDUs that these segments may hold: 16 per segment on average. At a large MTU, packed segments
/// would hold many times that number.
const TURN_FPDUS: usize = 512;

/// Remaining budget of a queue pair's turn.
struct TxBudget {
    segments: usize,
    fpdus: usize,
}

impl TxBudget {
    /// The budget of a whole turn.
    fn of_turn() -> Self {
        Self {
            segments: TURN_SEGMENTS,
            fpdus: TURN_FPDUS,
        }
    }

    /// True if the budget is spent.
    fn is_spent(&self) -> bool {
        self.segments == 0 || self.fpdus == 0
    }

    /// Counts a segment.
    fn take_segment(&mut self) {
        self.segments = self.segments.saturating_sub(1);
    }

    /// Counts FPDUs that were written, or work requests that send nothing.
    fn take_fpdus(&mut self, fpdus: usize) {
        self.fpdus = self.fpdus.saturating_sub(fpdus);
    }
}

/// State of a queue pair's turn.
pub(super) struct Turn {
    budget: TxBudget,
    /// Number of attempts that sent or did something.
    pub(super) done: usize,
    /// Whether a segment was passed to TCP.
    pub(super) has_sent: bool,
    /// Result of the last attempt.
    pub(super) end: Result<Sent, SendFault>,
}

impl Turn {
    fn new() -> Self {
        Self {
            budget: TxBudget::of_turn(),
            done: 0,
            has_sent: false,
            end: Ok(Sent::Nothing),
        }
    }

    /// Counts an attempt. Returns true if it is the last one of this turn.
    fn ends_with(&mut self, sent: &Result<Sent, SendFault>) -> bool {
        self.done += usize::from(!matches!(sent, Ok(Sent::Blocked | Sent::Nothing)));
        self.has_sent |= matches!(sent, Ok(Sent::Segment | Sent::LastSegment));
        !matches!(sent, Ok(Sent::Segment | Sent::Work)) || self.budget.is_spent()
    }

    fn ended(self, end: Result<Sent, SendFault>) -> Self {
        Self { end, ..self }
    }
}

/// Result of one attempt to send.
#[derive(Clone, Copy)]
pub(super) enum Sent {
    /// A segment was passed to TCP, and there is more to send.
    Segment,
    /// A segment was passed to TCP, and there is nothing more to send now.
    LastSegment,
    /// A work request was done that sends nothing.
    Work,
    /// TCP accepts nothing now, and reports when it does.
    Blocked,
    /// There is nothing to send.
    Nothing,
}

/// Kind of a run of short messages.
enum ShortRun {
    /// Sends and Writes.
    Messages,
    /// Read Requests.
    Requests,
    /// Read Responses.
    Responses,
}

impl FullOperation<'_> {
    /// Sends until the budget of a turn is spent, TCP accepts nothing more, or nothing is left.
    pub(super) fn take_turn(&mut self, device: &mut RdmaDevice) -> Turn {
        let mut turn = Turn::new();
        loop {
            let sent = match self.stream.send_ahead(&mut device.stack, self.now) {
                Ahead::Nothing => break,
                Ahead::Message => Sent::Work,
                Ahead::Terminate => self.after_segment(1, &mut device.counters),
                Ahead::Blocked => Sent::Blocked,
                Ahead::Closed => Sent::Nothing,
            };
            turn.budget.take_segment();
            if turn.ends_with(&Ok(sent)) {
                return turn.ended(Ok(sent));
            }
        }
        if !self.begins_work {
            return turn.ended(Ok(Sent::Nothing));
        }
        let Some(mut lent) = device.lend(self.stream.conn()) else {
            return turn.ended(Ok(Sent::Blocked));
        };
        loop {
            let sent = self.send_segment(&mut lent, &mut turn.budget);
            if turn.ends_with(&sent) {
                return turn.ended(sent);
            }
        }
    }

    /// Sends a segment with as many of the next FPDUs as fit.
    fn send_segment(
        &mut self,
        device: &mut LentDevice<'_>,
        budget: &mut TxBudget,
    ) -> Result<Sent, SendFault> {
        budget.take_segment();
        let mulpdu = self.stream.tx().mulpdu(device.tcp.emss());
        let mut segment = TxSegment::new(mulpdu);
        let filled = self.fill(&mut segment, device, budget);
        if segment.is_empty() {
            return filled;
        }
        // Sealed FPDUs are sent even if the next message is invalid: MSNs and marker positions
        // count them.
        device
            .tcp
            .commit_summed(segment.len(), segment.sum(), self.now);
        self.work.complete_sends(device.tables.cqs)?;
        filled?;
        Ok(self.after_segment(segment.fpdus(), device.tables.counters))
    }

    /// Writes the next FPDUs into a segment. If the segment is empty, the result is the reason;
    /// otherwise it is to be sent.
    fn fill(
        &mut self,
        segment: &mut TxSegment,
        device: &mut LentDevice<'_>,
        budget: &mut TxBudget,
    ) -> Result<Sent, SendFault> {
        if !self.pack_short(segment, device, budget)? {
            return Ok(Sent::Blocked);
        }
        if segment.is_empty() {
            match self.begin_message(device.tables.stags, segment.mulpdu())? {
                Next::Message => {}
                Next::Done => {
                    self.work.complete_sends(device.tables.cqs)?;
                    return Ok(Sent::Work);
                }
                Next::Nothing => return Ok(Sent::Nothing),
            }
            let first = self.stream.tx().next_fpdu(segment.mulpdu())?;
            if !self.write_fpdu(first, segment, device)? {
                return Ok(Sent::Blocked);
            }
            budget.take_fpdus(1);
            if !first.is_whole {
                return Ok(Sent::Segment);
            }
        }
        self.pack(segment, device, budget)?;
        Ok(Sent::Segment)
    }

    /// Appends further messages to a segment, as long as each fits completely. The first one that
    /// does not fit begins the next segment.
    fn pack(
        &mut self,
        segment: &mut TxSegment,
        device: &mut LentDevice<'_>,
        budget: &mut TxBudget,
    ) -> Result<(), SendFault> {
        while self.has_more() && self.pack_short(segment, device, budget)? && budget.fpdus > 0 {
            match self.begin_message(device.tables.stags, segment.mulpdu())? {
                Next::Message => {
                    let next = self.stream.tx().next_fpdu(segment.mulpdu())?;
                    if !next.is_whole || !self.write_fpdu(next, segment, device)? {
                        return Ok(());
                    }
                }
                Next::Done => {}
                Next::Nothing => return Ok(()),
            }
            budget.take_fpdus(1);
        }
        Ok(())
    }

    /// Kind of the next short messages. `None` while a message is being sent, and if a request and
    /// a response both wait.
    #[inline]
    fn short_run(&self) -> Option<ShortRun> {
        let tx = self.stream.tx();
        let has_responses = tx.has_responses();
        if !self.stream.is_open() || tx.has_message() {
            return None;
        }
        match self.work.peek().map(|request| &request.operation) {
            None if has_responses => tx.next_read().map(|_| ShortRun::Responses),
            _ if has_responses => None,
            Some(Operation::Send { .. } | Operation::Write { .. }) => {
                let in_order = self.work.confirms() || !self.work.has_in_flight();
                in_order.then_some(ShortRun::Messages)
            }
            Some(Operation::Read { .. }) => Some(ShortRun::Requests),
            _ => None,
        }
    }

    /// Writes the next short messages. False if the segment has no room for the next one.
    #[inline]
    fn pack_short(
        &mut self,
        segment: &mut TxSegment,
        device: &mut LentDevice<'_>,
        budget: &mut TxBudget,
    ) -> Result<bool, SendFault> {
        #[cfg(feature = "fault-injection")]
        if self.injected.is_pending() {
            return Ok(true);
        }
        let most = budget.fpdus;
        let (sent, end) = match self.short_run() {
            None => return Ok(true),
            Some(ShortRun::Messages) => self.write_short(most, segment, device)?,
            Some(ShortRun::Requests) => self.write_short_requests(most, segment, device),
            Some(ShortRun::Responses) => self.write_short_responses(most, segment, device),
        };
        budget.take_fpdus(sent);
        Ok(end != RunEnd::NoRoom)
    }

    /// Appends the next FPDU of the current message to a segment. False if there is no room for it.
    fn write_fpdu(
        &mut self,
        FpduSize { ulpdu_len, .. }: FpduSize,
        segment: &mut TxSegment,
        device: &mut LentDevice<'_>,
    ) -> Result<bool, SendFault> {
        let len = self.stream.tx().fpdu_len(ulpdu_len);
        let Some(fpdu) = segment.room(&mut device.tcp, len) else {
            return Ok(false);
        };
        let stags = device.tables.stags.read();
        let memory = (&*stags, self.user);
        let (ends_request, sum) =
            (self.stream).write_fpdu(fpdu, ulpdu_len, segment.mulpdu(), memory)?;
        drop(stags);
        segment.add(len, sum);
        if ends_request {
            self.work.newest_sent();
        }
        Ok(true)
    }

    /// True if something waits, or may wait, to be sent.
    fn has_more(&self) -> bool {
        self.work.has_posted() || self.stream.has_more() || self.wants_confirmation()
    }

    /// Whether a Read of no bytes is to be sent now, to confirm what was sent before: nothing can be
    /// sent before the confirmation, or much waits for it.
    #[inline]
    fn wants_confirmation(&self) -> bool {
        self.work.lacks_confirmation()
            && self.stream.outstanding_reads() < usize::from(self.ord)
            && (self.stalls() || self.work.lacks_much_confirmation())
    }

    /// A segment was passed to TCP: whether another one follows.
    fn after_segment(&mut self, fpdus: u64, counters: &mut EngineCounters) -> Sent {
        counters.fpdus_out += fpdus;
        self.stream.note_sent(self.now);
        if self.has_more() {
            Sent::Segment
        } else {
            Sent::LastSegment
        }
    }
}
