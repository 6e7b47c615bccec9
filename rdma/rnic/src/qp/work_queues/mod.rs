//! Work queues of a queue pair: posted work, work in flight, and their completions (verbs draft
//! §8.2).

mod begun;
mod receive_buffers;

use std::fmt;
use std::sync::Arc;

use rtrb::Consumer;
use xwarp_iwarp::ReceivedTerminate;

use super::fault::CqOverflow;
use super::new_qp::Receives;
use super::stream::Stream;
use crate::model::{
    CompletionStatus, CqId, Opcode, OutOfMemory, QpId, RecvRequest, SendRequest, WorkCompletion,
    WrId,
};
use crate::queues::{Cqe, NewRings, PostedRequests, ReceiveRing, SlotKey, SlotTable};
use crate::tables::{CqFull, CqTable};
use begun::{Begun, InFlight};
pub(super) use receive_buffers::ReceiveBuffers;
use receive_buffers::Source;

/// Largest number of work requests that are sent and completed together.
const DIRECT: usize = 64;

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
    begun: Begun,
    receive: ReceiveBuffers,
    send_cq: CqId,
    recv_cq: CqId,
    /// Key by which slots of the send queue are freed.
    send_slots: SlotKey,
}

impl fmt::Debug for WorkQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueues")
            .field("posted", &self.posted.len())
            .field("begun", &self.begun)
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
            begun: Begun::default(),
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
        !self.begun.is_empty()
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
        self.begun.push(&request);
        Some(request)
    }

    /// Begins up to `most` work requests, from the oldest posted one on, as long as `send` sends
    /// them. Returns their number. Each waits for its response, or for a confirmation. The second
    /// argument of `send` is whether further ones follow.
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
            self.begun.push_sent(request);
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

    /// Whether Sends and Writes wait for a confirmation.
    pub(super) fn confirms(&self) -> bool {
        self.begun.confirms()
    }

    /// Sets whether Sends and Writes that are begun from now on wait for a confirmation.
    pub(super) fn set_confirms(&mut self, confirms: bool) {
        self.begun.set_confirms(confirms);
    }

    /// Whether something waits for a confirmation that no outstanding request will bring.
    #[inline]
    pub(super) fn lacks_confirmation(&self) -> bool {
        self.begun.lacks_confirmation()
    }

    /// Whether so much waits for one that it should be asked for before more is sent.
    pub(super) fn lacks_much_confirmation(&self) -> bool {
        self.begun.lacks_much(self.send_depth())
    }

    /// Records that a Read of no bytes is being sent, whose response confirms what was sent before.
    pub(super) fn begin_confirmation(&mut self) {
        self.begun.push_own_read();
    }

    /// Whether such a Read awaits its response.
    pub(super) fn is_confirming(&self) -> bool {
        self.begun.is_confirming()
    }

    /// Drops the Read that asks for a confirmation, as no response can come.
    pub(super) fn drop_confirmation(&mut self) {
        self.begun.drop_own_read();
    }

    /// Confirms all that was sent. From now on nothing waits for a confirmation.
    pub(super) fn confirm_all(&mut self, cqs: &mut CqTable) {
        self.begun.confirm_all();
        while let Some(oldest) = self.begun.pop_done() {
            self.complete_or_lose(cqs, &oldest, CompletionStatus::Success);
        }
    }

    /// TCP has the whole newest message.
    pub(super) fn newest_sent(&mut self) {
        self.begun.newest_sent();
    }

    /// The oldest request that waits for its response, which has arrived.
    pub(super) fn oldest_unanswered(&mut self) -> Option<&mut InFlight> {
        self.begun.oldest_unanswered()
    }

    /// Attributes the peer's Terminate to the work request that it names.
    pub(super) fn attribute(&mut self, terminate: &ReceivedTerminate, stream: &Stream) {
        self.begun.attribute(terminate, stream);
    }

    /// Completes finished work in flight from the oldest on: completions are in the order of
    /// posting.
    pub(super) fn complete_sends(&mut self, cqs: &mut CqTable) -> Result<(), CqOverflow> {
        while let Some(oldest) = self.begun.pop_done() {
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
        if ended.is_own {
            return Ok(());
        }
        if ended.signaled || status != CompletionStatus::Success {
            let completion = self.completion(ended, status);
            let pushed = cqs.push(self.send_cq, self.send_entry(completion));
            return pushed.map_err(|CqFull| CqOverflow::Send);
        }
        cqs.free(self.send_slots);
        Ok(())
    }

    fn complete_or_lose(&self, cqs: &mut CqTable, ended: &InFlight, status: CompletionStatus) {
        if self.complete(cqs, ended, status).is_err() {
            log::warn!("the completion of {:?} is lost", ended.wr_id);
        }
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
        if let Some(status) = culprit {
            self.begun.fail_newest(status);
        }
        for (ended, status) in self.begun.take() {
            self.complete_or_lose(cqs, &ended, status);
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
