//! A queue pair as the engine holds it.

use std::collections::VecDeque;
use std::sync::Arc;

use rtrb::Consumer;
use xwarp_iwarp::ReceivedTerminate;
use xwarp_iwarp::ddp::Queue;
use xwarp_iwarp::rdmap::CapturedHeader;
use xwarp_tcp::Instant;

use super::fault::CqOverflow;
use super::in_flight::Begun;
use super::receive_queue::{Receives, Source};
use super::starting::Starting;
use super::stream::Stream;
use crate::model::{
    Ability, CompletionStatus, ConnectionInfo, CqId, Depths, Opcode, OutOfMemory, PdId, QpId,
    QpState, ReadDepths, RecvRequest, SendRequest, SgeLimits, SrqId, TerminateInfo, User, Wishes,
    WorkCompletion,
};
use crate::queues::{Cqe, NewRings, Posted, QpShared, SlotKey, SlotTable};
use crate::tables::{CqFull, CqTable, Receiving};

/// Where a new queue pair takes receive buffers from.
pub enum NewReceives {
    /// A ring of its own.
    Own(Consumer<RecvRequest>),
    /// A shared receive queue, and how many messages may be in progress until that is told.
    Shared(SrqId, usize),
}

/// What a new queue pair is made of.
pub struct NewQp {
    /// Its protection domain.
    pub pd: PdId,
    /// What it may do with memory.
    pub ability: Ability,
    /// What it asks for in start-up.
    pub wishes: Wishes,
    /// Immediate Data and Atomic Operations are known (RFC 7306).
    pub extensions: bool,
    /// The longest scatter/gather lists.
    pub sge: SgeLimits,
    /// The engine's end of its send queue.
    pub sq: Consumer<SendRequest>,
    /// Its receive queue.
    pub receives: NewReceives,
    /// Where its sends complete.
    pub send_cq: CqId,
    /// Where its receives complete.
    pub recv_cq: CqId,
    /// What the application sees of it.
    pub shared: Arc<QpShared>,
    /// The credits of its queues.
    pub slots: Arc<SlotTable>,
}

/// What a queue pair is connected to.
pub(crate) enum Link {
    None,
    Starting(Box<Starting>),
    Stream(Box<Stream>),
}

/// A queue pair.
pub(crate) struct QpContext {
    pub(crate) id: QpId,
    /// What its accesses to regions are judged by.
    pub(crate) user: User,
    /// Reads and Atomic Operations that it may have outstanding on its connection.
    pub(crate) ord: u16,
    pub(crate) wishes: Wishes,
    pub(crate) extensions: bool,
    pub(crate) link: Link,
    pub(crate) sge: SgeLimits,
    pub(crate) sq: Posted<SendRequest>,
    pub(crate) receives: Receives,
    /// Begun work, in the order in which it was posted and completes.
    pub(crate) begun: VecDeque<Begun>,
    pub(crate) send_cq: CqId,
    pub(crate) recv_cq: CqId,
    /// Where slots of its send queue are freed.
    send_slots: SlotKey,
    /// It is in the engine's list of those that have something to send.
    pub(crate) active: bool,
    /// When patience with the peer ends: during start-up, Closing and Terminate.
    pub(crate) deadline: Option<Instant>,
    /// Its earliest entry among the engine's deadlines.
    pub(crate) armed: Option<Instant>,
    /// The first Terminate that was sent or received, until Idle.
    pub(crate) terminate: Option<TerminateInfo>,
    /// It is in Terminate, and no event has said why: a completion has, or the application has asked for it.
    pub(crate) unreported: bool,
    #[cfg(feature = "fault-injection")]
    pub(crate) injected: super::fault::Injected,
    state: QpState,
    shared: Arc<QpShared>,
}

impl QpContext {
    pub(crate) fn new(id: QpId, user: User, new: NewQp) -> Self {
        let [send_slots, recv_slots] = new.slots.open_pair(id);
        Self {
            id,
            user,
            ord: new.wishes.ord,
            wishes: new.wishes,
            extensions: new.extensions,
            link: Link::None,
            sge: new.sge,
            sq: Posted::new(new.sq),
            receives: match new.receives {
                NewReceives::Own(ring) => {
                    Receives::new(Source::Own(Posted::new(ring), recv_slots), 0)
                }
                NewReceives::Shared(srq, limit) => Receives::new(Source::Shared(srq), limit),
            },
            begun: VecDeque::new(),
            send_cq: new.send_cq,
            recv_cq: new.recv_cq,
            send_slots,
            active: false,
            deadline: None,
            armed: None,
            terminate: None,
            unreported: false,
            #[cfg(feature = "fault-injection")]
            injected: super::fault::Injected::default(),
            state: QpState::Idle,
            shared: new.shared,
        }
    }

    pub(crate) fn state(&self) -> QpState {
        self.state
    }

    /// The state that the application sees: Closing as soon as it has asked for a graceful close.
    pub(crate) fn shown_state(&self) -> QpState {
        self.shared.state()
    }

    /// Whoever has its data path learns that it is gone.
    pub(crate) fn show_destroyed(&self) {
        self.shared.set_destroyed();
    }

    pub(crate) fn set_state(&mut self, state: QpState) {
        debug_assert!(
            self.state.leads_to(state),
            "{:?} does not lead to {state:?}",
            self.state
        );
        self.state = state;
        self.shared.set(state);
    }

    /// The application has asked for a graceful close: it cannot post any more, while what it has posted is still being sent.
    pub(crate) fn announce_closing(&mut self) {
        self.shared.set(QpState::Closing);
    }

    /// Keeps a Terminate unless there was one before: the first failure is the one that counts (verbs.md A34).
    pub(crate) fn keep_terminate(&mut self, terminate: impl FnOnce() -> TerminateInfo) {
        self.terminate.get_or_insert_with(terminate);
    }

    /// Reads and Atomic Operations that either side may have outstanding: on the connection, or on the next one.
    pub(crate) fn reads(&self) -> ReadDepths {
        let Wishes { ord, ird, .. } = self.wishes;
        match (&self.link, self.shared.connection()) {
            (Link::Stream(_), Some(ConnectionInfo { ord, ird, .. })) => ReadDepths { ord, ird },
            (Link::Stream(_) | Link::Starting(_) | Link::None, _) => ReadDepths { ord, ird },
        }
    }

    /// Changes them.
    pub(crate) fn set_reads(&mut self, reads: ReadDepths) {
        let ReadDepths { ord, ird } = reads;
        if let Link::Stream(stream) = &mut self.link {
            self.ord = ord;
            stream.receiver.set_ord(ord);
            stream.receiver.set_ird(ird);
            if let Some(info) = self.shared.connection() {
                (self.shared).set_connection(ConnectionInfo { ird, ord, ..info });
            }
        } else {
            (self.wishes.ord, self.wishes.ird) = (ord, ird);
        }
    }

    /// All of its depths.
    pub(crate) fn depths(&self) -> Depths {
        let ReadDepths { ord, ird } = self.reads();
        Depths {
            send_depth: self.sq.depth(),
            recv_depth: self.receives.depth(),
            ord,
            ird,
        }
    }

    /// Makes room for what a resize takes out of the present rings.
    pub(crate) fn reserve(&mut self, rings: &NewRings) -> Result<(), OutOfMemory> {
        if rings.sq.is_some() {
            self.sq.reserve()?;
        }
        if rings.rq.is_some() {
            self.receives.reserve()?;
        }
        Ok(())
    }

    /// Goes on with other rings, for as many work queues as there are some.
    pub(crate) fn resize(&mut self, rings: NewRings) {
        if let Some(sq) = rings.sq {
            self.sq.resize(sq.ring);
        }
        if let Some(rq) = rings.rq {
            self.receives.resize(rq.ring);
        }
    }

    /// Full operation over `stream` begins.
    pub(crate) fn enter_rts(&mut self, stream: Stream, info: ConnectionInfo) {
        self.terminate = None;
        self.unreported = false;
        self.ord = info.ord;
        self.shared.set_connection(info);
        self.link = Link::Stream(Box::new(stream));
        self.deadline = None;
        self.set_state(QpState::Rts);
    }

    /// When the peer is to be woken, should it still be silent.
    pub(crate) fn nudge_due(&self) -> Option<Instant> {
        match &self.link {
            Link::Stream(stream) => stream.nudge.due(),
            Link::None | Link::Starting(_) => None,
        }
    }

    /// When there is something to do for it even if nothing happens.
    pub(crate) fn due(&self) -> Option<Instant> {
        [self.deadline, self.nudge_due()]
            .into_iter()
            .flatten()
            .min()
    }

    pub(crate) fn stream(&mut self) -> Option<&mut Stream> {
        match &mut self.link {
            Link::Stream(stream) => Some(stream),
            Link::None | Link::Starting(_) => None,
        }
    }

    /// Completes begun work from the oldest on, as far as it is done: completions come in the order of posting.
    pub(crate) fn complete_sends(&mut self, cqs: &mut CqTable) -> Result<(), CqOverflow> {
        let done = |begun: &Begun| begun.outcome == Some(CompletionStatus::Success);
        while self.begun.front().is_some_and(done) {
            let Some(begun) = self.begun.pop_front() else {
                break;
            };
            self.complete(cqs, &begun, CompletionStatus::Success)?;
        }
        Ok(())
    }

    /// Ends begun work. What was done and is not signaled has no completion, and its slot is free at once (verbs draft §8.2.1).
    fn complete(
        &self,
        cqs: &mut CqTable,
        begun: &Begun,
        status: CompletionStatus,
    ) -> Result<(), CqOverflow> {
        if begun.signaled || status != CompletionStatus::Success {
            let completion = self.completion(begun, status);
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

    /// The oldest work request that waits for its response: the peer answers in order (RFC 5040 §5.5, R7306-5.4-8-1).
    pub(crate) fn oldest_unanswered(&mut self) -> Option<&mut Begun> {
        (self.begun.iter_mut()).find(|begun| begun.awaits_response && begun.outcome.is_none())
    }

    /// Finds the begun work request that a Terminate of the peer's appears to be about, by the header that it returns, and ends it with that
    /// (verbs draft §9.5.2). One that has ended keeps its outcome.
    pub(crate) fn blame(&mut self, terminate: &ReceivedTerminate) {
        let (Link::Stream(stream), Some(header)) = (&self.link, &terminate.ddp_header) else {
            return;
        };
        let mut open = self.begun.iter_mut().rev();
        let culprit = match header {
            CapturedHeader::Untagged(it) if it.qn.get() == Queue::Request.qn() => {
                let since = usize::try_from(stream.sender.requests_since(it.msn.get())).ok();
                let (receiver, refused) = (&stream.receiver, terminate.read_request.as_ref());
                let mut requests = open.filter(|begun| begun.awaits_response);
                since
                    .filter(|since| receiver.awaits(*since, refused))
                    .and_then(|since| requests.nth(since))
            }
            // Only what is being sent has not ended.
            CapturedHeader::Untagged(_) | CapturedHeader::Tagged(_) => {
                let sending = stream.outgoing.as_ref();
                sending
                    .filter(|outgoing| outgoing.is_request_of(header))
                    .and_then(|_| open.next())
            }
        };
        if let Some(begun) = culprit {
            begun
                .outcome
                .get_or_insert(CompletionStatus::RemoteTermination);
        }
    }

    #[inline]
    fn completion(&self, begun: &Begun, status: CompletionStatus) -> WorkCompletion {
        let (wr_id, opcode, byte_len) = (begun.wr_id, begun.opcode, begun.byte_len);
        WorkCompletion {
            original: begun.original,
            ..WorkCompletion::new(wr_id, self.id, opcode, status, byte_len)
        }
    }

    /// Completes the receive that the current message has taken, with what `describe` says of the message.
    pub(crate) fn complete_receive(
        &mut self,
        cqs: &mut CqTable,
        describe: impl FnOnce(&mut WorkCompletion),
    ) -> Result<(), CqOverflow> {
        let Some(receiving) = self.receives.end() else {
            return Ok(());
        };
        let mut entry = self.receive_entry(&receiving, CompletionStatus::Success);
        describe(&mut entry.completion);
        let pushed = cqs.push(self.recv_cq, entry);
        pushed.map_err(|CqFull| CqOverflow::Receive)
    }

    #[inline]
    fn receive_entry(&self, receiving: &Receiving, status: CompletionStatus) -> Cqe {
        let wr_id = receiving.wr_id();
        Cqe {
            completion: WorkCompletion::new(wr_id, self.id, Opcode::Receive, status, 0),
            slots: receiving.slots,
        }
    }

    /// Ends all work that is not complete: `Flushed`, but for the newest begun send, which gets `culprit` if there is one
    /// (verbs draft §6.2; verbs.md §4.3). Work that has ended keeps its outcome.
    pub(crate) fn flush(&mut self, cqs: &mut CqTable, culprit: Option<CompletionStatus>) {
        let newest = self.begun.len().checked_sub(1);
        for (i, begun) in std::mem::take(&mut self.begun).into_iter().enumerate() {
            let status = match culprit {
                Some(status) if Some(i) == newest => status,
                _ => begun.outcome.unwrap_or(CompletionStatus::Flushed),
            };
            if self.complete(cqs, &begun, status).is_err() {
                log::warn!("the completion of {:?} is lost", begun.wr_id);
            }
        }
        while let Some(request) = self.sq.pop() {
            let opcode = request.operation.opcode();
            let status = CompletionStatus::Flushed;
            let flushed = WorkCompletion::new(request.wr_id, self.id, opcode, status, 0);
            cqs.push_or_lose(self.send_cq, self.send_entry(flushed));
        }
        self.flush_receives(cqs);
    }

    /// Ends all receive buffers.
    pub(crate) fn flush_receives(&mut self, cqs: &mut CqTable) {
        while let Some(receiving) = self.receives.flush_one() {
            let entry = self.receive_entry(&receiving, CompletionStatus::Flushed);
            cqs.push_or_lose(self.recv_cq, entry);
        }
    }
}
