//! Sending: work requests, responses and the Terminate, in TCP segments of whole FPDUs.
//!
//! A segment begins with the next FPDU. If that is all of its message, the messages that wait
//! already follow in the same segment, as long as each fits it whole. Nothing waits for company
//! (decision record rnic/0029).

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
/// FPDUs that these may hold: 16 a segment on the average. At a large MTU, packed segments would
/// hold many times as many.
const TURN_FPDUS: usize = 512;

/// What a queue pair may still send in its turn.
struct TxBudget {
    segments: usize,
    fpdus: usize,
}

impl TxBudget {
    /// That of a whole turn.
    fn of_turn() -> Self {
        Self {
            segments: TURN_SEGMENTS,
            fpdus: TURN_FPDUS,
        }
    }

    /// True if nothing is left.
    fn is_spent(&self) -> bool {
        self.segments == 0 || self.fpdus == 0
    }

    /// A segment was begun.
    fn take_segment(&mut self) {
        self.segments = self.segments.saturating_sub(1);
    }

    /// Counts FPDUs that were written, or work requests that send nothing.
    fn take_fpdus(&mut self, fpdus: usize) {
        self.fpdus = self.fpdus.saturating_sub(fpdus);
    }
}

/// A turn of a queue pair.
pub(super) struct Turn {
    budget: TxBudget,
    /// Attempts to send that came to something.
    pub(super) done: usize,
    /// A segment was handed to TCP.
    pub(super) has_sent: bool,
    /// What the last attempt came to.
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

    /// Counts an attempt; true if no other follows it in this turn.
    fn ends_with(&mut self, sent: &Result<Sent, SendFault>) -> bool {
        self.done += usize::from(!matches!(sent, Ok(Sent::Blocked | Sent::Nothing)));
        self.has_sent |= matches!(sent, Ok(Sent::Segment | Sent::LastSegment));
        !matches!(sent, Ok(Sent::Segment | Sent::Work)) || self.budget.is_spent()
    }

    fn ended(self, end: Result<Sent, SendFault>) -> Self {
        Self { end, ..self }
    }
}

/// What one attempt to send came to.
#[derive(Clone, Copy)]
pub(super) enum Sent {
    /// A segment was handed to TCP, after which there is more to send.
    Segment,
    /// A segment was, and there is nothing more to send now.
    LastSegment,
    /// A work request was done that sends nothing.
    Work,
    /// TCP takes nothing now; it will say when it does.
    Blocked,
    /// There is nothing to send.
    Nothing,
}

/// Short messages that follow each other.
enum ShortRun {
    /// Sends and Writes.
    Messages,
    /// Read Requests.
    Requests,
    /// Read Responses.
    Responses,
}

impl FullOperation<'_> {
    /// Sends until the budget of a turn is spent, or there is nothing more that TCP takes.
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

    /// Sends a segment of the FPDUs that are next and fit it.
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
        // What is sealed leaves even if the next message is at fault: MSNs and the phase of markers
        // count it.
        device
            .tcp
            .commit_summed(segment.len(), segment.sum(), self.now);
        self.work.complete_sends(device.tables.cqs)?;
        filled?;
        Ok(self.after_segment(segment.fpdus(), device.tables.counters))
    }

    /// Writes the FPDUs that are next into a segment. What this came to if there was none; else the
    /// segment is to be sent.
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

    /// Writes what waits behind the FPDUs of a segment: messages that fit it whole. The first one
    /// that does not begins the next segment.
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

    /// What short messages are next. None in front of a message that was begun, nor where a request
    /// and a response wait both.
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
                (!self.work.has_in_flight()).then_some(ShortRun::Messages)
            }
            Some(Operation::Read { .. }) => Some(ShortRun::Requests),
            _ => None,
        }
    }

    /// Writes the short messages that are next. False if the segment has no room for the next one.
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

    /// Writes the next FPDU of the current message behind those of a segment. False if there is no
    /// room for it.
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

    /// True if something waits to be sent, or may.
    fn has_more(&self) -> bool {
        self.work.has_posted() || self.stream.has_more()
    }

    /// A segment was handed to TCP: is another to follow?
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
