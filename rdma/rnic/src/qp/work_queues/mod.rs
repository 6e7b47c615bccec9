//! Work queues of a queue pair: posted work, work in flight, and their completions (verbs draft
//! §8.2).

mod receive_buffers;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use rtrb::Consumer;
use xwarp_iwarp::ddp::Queue;
use xwarp_iwarp::rdmap::CapturedHeader;
use xwarp_iwarp::{ReceivedTerminate, Stag};

use super::fault::CqOverflow;
use super::new_qp::Receives;
use super::stream::Stream;
use crate::model::{
    CompletionStatus, CqId, Detail, Opcode, OutOfMemory, QpId, RecvRequest, SendRequest, Sge,
    WorkCompletion, WrId,
};
use crate::queues::{Cqe, NewRings, PostedRequests, ReceiveRing, SlotKey, SlotTable};
use crate::tables::{CqFull, CqTable};
pub(super) use receive_buffers::ReceiveBuffers;
use receive_buffers::Source;

/// Largest number of work requests that are sent and completed together.
const DIRECT: usize = 64;

/// A work request of the send queue that was begun and has not completed.
pub(super) struct InFlight {
    wr_id: WrId,
    opcode: Opcode,
    signaled: bool,
    byte_len: u32,
    /// Whether it completes when the peer has responded, not when it is sent.
    awaits_response: bool,
    /// `STag` that a Read invalidates when its response has arrived.
    invalidate: Option<Stag>,
    /// Place of an Atomic Operation's original value.
    sink: Option<Sge>,
    /// An Atomic Operation's original value, or the arrival time of a Read's response.
    detail: Detail,
    /// Its result, once there is one.
    outcome: Option<CompletionStatus>,
}

impl InFlight {
    fn new(request: &SendRequest) -> Self {
        let operation = &request.operation;
        Self {
            wr_id: request.wr_id,
            opcode: operation.opcode(),
            signaled: request.signaled,
            byte_len: operation.byte_len().unwrap_or(u32::MAX),
            awaits_response: operation.awaits_response(),
            invalidate: operation.sink_to_invalidate(),
            sink: operation.result_sink(),
            detail: Detail::Nothing,
            outcome: None,
        }
    }

    /// `STag` that a Read invalidates when its response has arrived.
    pub(super) fn sink_to_invalidate(&self) -> Option<Stag> {
        self.invalidate
    }

    /// Records the original value of an Atomic Operation. Returns where to store it, too.
    pub(super) fn set_original(&mut self, original: u64) -> Option<Sge> {
        self.detail = Detail::Original(original);
        self.sink
    }

    /// Records when the response to a Read arrived, if that is known.
    pub(super) fn set_arrival(&mut self, arrival: Detail) {
        self.detail = arrival;
    }

    /// Records the result of a work request that the peer has responded to.
    pub(super) fn end(&mut self, outcome: CompletionStatus) {
        self.outcome = Some(outcome);
    }
}

/// Data for the completion of a finished work request.
pub(super) struct Done {
    pub(super) opcode: Opcode,
    pub(super) byte_len: u32,
}

/// Data for the completion of a received message.
pub(super) struct Received {
    pub(super) byte_len: u32,
    /// Whether the message requested a Solicited Event.
    pub(super) solicited: bool,
}

/// The send queue, its work in flight, and the receive queue.
pub(super) struct WorkQueues {
    qp: QpId,
    posted: PostedRequests<SendRequest>,
    /// In the order of posting, which is the order of completion.
    in_flight: VecDeque<InFlight>,
    receive: ReceiveBuffers,
    send_cq: CqId,
    recv_cq: CqId,
    /// Key by which slots of the send queue are freed.
    send_slots: SlotKey,
}

impl fmt::Debug for WorkQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let oldest = self.in_flight.front().map(|it| (it.wr_id, it.opcode));
        f.debug_struct("WorkQueues")
            .field("posted", &self.posted.len())
            .field("in_flight", &self.in_flight.len())
            .field("oldest", &oldest)
            .field("receives", &self.receive)
            .finish_non_exhaustive()
    }
}

impl WorkQueues {
    /// The work queues of a new queue pair, with the completion queues of `[sends, receives]`.
    pub(super) fn new(
        qp: QpId,
        sq: Consumer<SendRequest>,
        receives: Receives,
        [send_cq, recv_cq]: [CqId; 2],
        slots: &Arc<SlotTable>,
    ) -> Self {
        let [send_slots, recv_slots] = slots.open_pair(qp);
        Self {
            qp,
            posted: PostedRequests::new(sq),
            in_flight: VecDeque::new(),
            receive: match receives {
                Receives::Own(ring) => {
                    ReceiveBuffers::new(Source::Own(ReceiveRing::new(ring, recv_slots)), 0)
                }
                Receives::Shared(srq, limit) => ReceiveBuffers::new(Source::Shared(srq), limit),
            },
            send_cq,
            recv_cq,
            send_slots,
        }
    }

    /// Completion queues of sends and receives.
    pub(super) fn cqs(&self) -> [CqId; 2] {
        [self.send_cq, self.recv_cq]
    }

    pub(super) fn receive(&self) -> &ReceiveBuffers {
        &self.receive
    }

    pub(super) fn receive_mut(&mut self) -> &mut ReceiveBuffers {
        &mut self.receive
    }

    /// Work requests that the send queue may hold.
    pub(super) fn send_depth(&self) -> usize {
        self.posted.depth()
    }

    /// Reserves memory for the contents of the current rings, which a resize moves.
    pub(super) fn reserve(&mut self, rings: &NewRings) -> Result<(), OutOfMemory> {
        if rings.sq.is_some() {
            self.posted.reserve()?;
        }
        if rings.rq.is_some() {
            self.receive.reserve()?;
        }
        Ok(())
    }

    /// Replaces the rings that are given.
    pub(super) fn resize(&mut self, rings: NewRings) {
        if let Some(sq) = rings.sq {
            self.posted.resize(sq.ring);
        }
        if let Some(rq) = rings.rq {
            self.receive.resize(rq.ring);
        }
    }

    /// True if work requests of the send queue have not begun.
    pub(super) fn has_posted(&self) -> bool {
        !self.posted.is_empty()
    }

    /// True if work requests of the send queue have begun and not completed.
    pub(super) fn has_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// True if the send queue has work requests that are not completed.
    pub(super) fn has_sends(&self) -> bool {
        self.has_posted() || self.has_in_flight()
    }

    /// The next work request of the send queue, without taking it.
    pub(super) fn peek(&self) -> Option<&SendRequest> {
        self.posted.peek()
    }

    /// Begins the next work request of the send queue.
    pub(super) fn begin(&mut self) -> Option<SendRequest> {
        let request = self.posted.pop()?;
        self.in_flight.push_back(InFlight::new(&request));
        Some(request)
    }

    /// Begins up to `most` work requests, from the oldest posted one on, as long as `send` sends
    /// them. Returns their number. Each waits for its response. The second argument of `send` is
    /// whether further ones follow.
    pub(super) fn begin_posted(
        &mut self,
        most: usize,
        mut send: impl FnMut(&SendRequest, bool) -> bool,
    ) -> usize {
        let Some(oldest) = self.posted.oldest(most) else {
            return 0;
        };
        let ((first, second), there) = (oldest.as_slices(), oldest.len());
        let mut count = 0;
        for request in first.iter().chain(second) {
            if !send(request, count + 1 < there) {
                break;
            }
            self.in_flight.push_back(InFlight::new(request));
            count += 1;
        }
        oldest.commit(count);
        count
    }

    /// Sends work requests from the oldest posted one on, as long as `send` does. Each is a message
    /// that completes when it is sent. Returns their number. `send` receives whether further ones
    /// follow, and returns the length of the payload. Nothing is sent while other work is in
    /// flight, as completions are in the order of posting, nor more than the completion queue has
    /// room for.
    pub(super) fn send_posted(
        &mut self,
        most: usize,
        cqs: &mut CqTable,
        mut send: impl FnMut(&SendRequest, bool) -> Option<Done>,
    ) -> Result<usize, CqOverflow> {
        if self.has_in_flight() {
            return Ok(0);
        }
        let most = most.min(DIRECT).min(cqs.room(self.send_cq));
        let (qp, slots) = (self.qp, self.send_slots);
        let mut unsignaled = 0;
        let slots_free = &mut unsignaled;
        let take = move |request: &SendRequest, more| {
            let Done { opcode, byte_len } = send(request, more)?;
            if !request.signaled {
                *slots_free += 1;
                return Some(None);
            }
            let status = CompletionStatus::Success;
            let completion = WorkCompletion::new(request.wr_id, qp, opcode, status, byte_len);
            Some(Some(Cqe { completion, slots }))
        };
        let Some(mut run) = self.posted.take_run(most, take) else {
            return Ok(0);
        };
        let pushed = cqs.push_run(self.send_cq, run.most(), &mut run);
        let taken = run.taken();
        cqs.free_many(slots, unsignaled);
        pushed.map_err(|CqFull| CqOverflow::Send)?;
        Ok(taken)
    }

    /// TCP has the whole newest message. A work request without a response is complete with that
    /// (RFC 5040 §5.5, verbs.md A22); a Read or an Atomic Operation waits for its response.
    pub(super) fn newest_sent(&mut self) {
        if let Some(newest) = self.in_flight.back_mut()
            && !newest.awaits_response
        {
            newest.outcome = Some(CompletionStatus::Success);
        }
    }

    /// The oldest work request that waits for its response: the peer responds in order (RFC 5040
    /// §5.5, R7306-5.4-8-1).
    pub(super) fn oldest_unanswered(&mut self) -> Option<&mut InFlight> {
        (self.in_flight.iter_mut()).find(|it| it.awaits_response && it.outcome.is_none())
    }

    /// Attributes the peer's Terminate to the work request in flight that the returned header
    /// names, which ends with it (verbs draft §9.5.2). A work request that has ended keeps its
    /// result.
    pub(super) fn attribute(&mut self, terminate: &ReceivedTerminate, stream: &Stream) {
        let Some(header) = &terminate.ddp_header else {
            return;
        };
        let mut open = self.in_flight.iter_mut().rev();
        let culprit = match header {
            CapturedHeader::Untagged(it) if it.qn.get() == Queue::Request.qn() => {
                let refused = terminate.read_request.as_ref();
                let mut requests = open.filter(|it| it.awaits_response);
                let since = stream.requests_since(it.msn.get(), refused);
                since.and_then(|since| requests.nth(since))
            }
            // Only the work request being sent has not ended.
            CapturedHeader::Untagged(_) | CapturedHeader::Tagged(_) => {
                stream.is_sending(header).then(|| open.next()).flatten()
            }
        };
        if let Some(culprit) = culprit {
            let outcome = &mut culprit.outcome;
            outcome.get_or_insert(CompletionStatus::RemoteTermination);
        }
    }

    /// Completes finished work in flight from the oldest on: completions are in the order of
    /// posting.
    pub(super) fn complete_sends(&mut self, cqs: &mut CqTable) -> Result<(), CqOverflow> {
        let done = |it: &InFlight| it.outcome == Some(CompletionStatus::Success);
        while self.in_flight.front().is_some_and(done) {
            let Some(oldest) = self.in_flight.pop_front() else {
                break;
            };
            self.complete(cqs, &oldest, CompletionStatus::Success)?;
        }
        Ok(())
    }

    /// Ends work in flight. A successful unsignaled request has no completion, and its slot is
    /// freed at once (verbs draft §8.2.1).
    fn complete(
        &self,
        cqs: &mut CqTable,
        ended: &InFlight,
        status: CompletionStatus,
    ) -> Result<(), CqOverflow> {
        if ended.signaled || status != CompletionStatus::Success {
            let completion = self.completion(ended, status);
            let pushed = cqs.push(self.send_cq, self.send_entry(completion));
            return pushed.map_err(|CqFull| CqOverflow::Send);
        }
        cqs.free(self.send_slots);
        Ok(())
    }

    #[inline]
    fn send_entry(&self, completion: WorkCompletion) -> Cqe {
        Cqe {
            completion,
            slots: self.send_slots,
        }
    }

    #[inline]
    fn completion(&self, ended: &InFlight, status: CompletionStatus) -> WorkCompletion {
        let (wr_id, opcode, byte_len) = (ended.wr_id, ended.opcode, ended.byte_len);
        WorkCompletion {
            detail: ended.detail,
            ..WorkCompletion::new(wr_id, self.qp, opcode, status, byte_len)
        }
    }

    /// Completes the receive of the current message. `describe` sets the message's fields of the
    /// completion.
    pub(super) fn complete_receive(
        &mut self,
        cqs: &mut CqTable,
        describe: impl FnOnce(&mut WorkCompletion),
    ) -> Result<(), CqOverflow> {
        let Some(ended) = self.receive.end() else {
            return Ok(());
        };
        let ended = (ended.wr_id(), ended.slots);
        let mut entry = self.receive_entry(ended, CompletionStatus::Success);
        entry.completion.detail = cqs.arrival();
        describe(&mut entry.completion);
        let pushed = cqs.push(self.recv_cq, entry);
        pushed.map_err(|CqFull| CqOverflow::Receive)
    }

    /// Places messages directly into the oldest buffers, as long as `place` does, and completes
    /// these. No message is placed without room for its completion.
    #[inline]
    pub(super) fn receive_run(
        &mut self,
        cqs: &mut CqTable,
        mut place: impl FnMut(&RecvRequest) -> Option<Received>,
    ) -> Result<(), CqOverflow> {
        let (qp, most) = (self.qp, DIRECT.min(cqs.room(self.recv_cq)));
        let Some((mut buffers, of_buffers)) = self.receive.lend() else {
            return Ok(());
        };
        let (slots, most) = (buffers.slots, most.min(of_buffers));
        let take = move |buffer: &RecvRequest, _| {
            let Received {
                byte_len,
                solicited,
            } = place(buffer)?;
            let status = CompletionStatus::Success;
            let completion = WorkCompletion {
                solicited,
                ..WorkCompletion::new(buffer.wr_id, qp, Opcode::Receive, status, byte_len)
            };
            Some(Some(Cqe { completion, slots }))
        };
        let Some(run) = buffers.posted.take_run(most, take) else {
            return Ok(());
        };
        let pushed = cqs.push_run(self.recv_cq, run.most(), run);
        pushed.map_err(|CqFull| CqOverflow::Receive)
    }

    fn receive_entry(&self, (wr_id, slots): (WrId, SlotKey), status: CompletionStatus) -> Cqe {
        Cqe {
            completion: WorkCompletion::new(wr_id, self.qp, Opcode::Receive, status, 0),
            slots,
        }
    }

    /// Ends all unfinished work as `Flushed`, except for the newest send in flight, which gets
    /// `culprit` if there is one (verbs draft §6.2; verbs.md §4.3). Work that has ended keeps its
    /// result.
    pub(super) fn flush(&mut self, cqs: &mut CqTable, culprit: Option<CompletionStatus>) {
        let newest = self.in_flight.len().checked_sub(1);
        let in_flight = std::mem::take(&mut self.in_flight);
        for (i, ended) in in_flight.into_iter().enumerate() {
            let status = match culprit {
                Some(status) if Some(i) == newest => status,
                _ => ended.outcome.unwrap_or(CompletionStatus::Flushed),
            };
            if self.complete(cqs, &ended, status).is_err() {
                log::warn!("the completion of {:?} is lost", ended.wr_id);
            }
        }
        while let Some(request) = self.posted.pop() {
            let opcode = request.operation.opcode();
            let status = CompletionStatus::Flushed;
            let flushed = WorkCompletion::new(request.wr_id, self.qp, opcode, status, 0);
            cqs.push_or_lose(self.send_cq, self.send_entry(flushed));
        }
        self.flush_receives(cqs);
    }

    /// Ends all receive buffers.
    pub(super) fn flush_receives(&mut self, cqs: &mut CqTable) {
        while let Some(receiving) = self.receive.flush_one() {
            let ended = (receiving.wr_id(), receiving.slots);
            let entry = self.receive_entry(ended, CompletionStatus::Flushed);
            cqs.push_or_lose(self.recv_cq, entry);
        }
    }
}
