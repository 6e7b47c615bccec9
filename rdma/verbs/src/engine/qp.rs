//! A queue pair as the engine holds it.

use std::collections::VecDeque;
use std::sync::Arc;

use rtrb::Consumer;
use xwarp_iwarp::Stag;
use xwarp_tcp::Instant;

use super::cq_table::{CqId, CqOverflow, CqTable};
use super::start::Starting;
use super::stream::Stream;
use crate::completion::{CompletionStatus, Opcode, WorkCompletion};
use crate::mpa::{ConnectionInfo, Wishes};
use crate::pd::PdId;
use crate::qp_change::Depths;
use crate::qp_info::TerminateInfo;
use crate::qp_state::{QpId, QpShared, QpState};
use crate::user::{Ability, User};
use crate::work::{RecvRequest, SendRequest, Sge, WrId};

/// What a new queue pair is made of.
pub(crate) struct NewQp {
    pub(crate) pd: PdId,
    pub(crate) ability: Ability,
    pub(crate) wishes: Wishes,
    /// Immediate Data and Atomic Operations are known (RFC 7306).
    pub(crate) extensions: bool,
    pub(crate) sq: Consumer<SendRequest>,
    pub(crate) rq: Consumer<RecvRequest>,
    pub(crate) send_cq: CqId,
    pub(crate) recv_cq: CqId,
    pub(crate) shared: Arc<QpShared>,
}

/// What a queue pair is connected to.
pub(super) enum Link {
    None,
    Starting(Box<Starting>),
    Stream(Box<Stream>),
}

/// A work request of the send queue that was begun and has not completed.
pub(super) struct Begun {
    pub(super) wr_id: WrId,
    pub(super) opcode: Opcode,
    pub(super) signaled: bool,
    pub(super) byte_len: u32,
    /// It is done when the peer has answered, not when it is sent.
    pub(super) awaits_response: bool,
    /// What a Read invalidates when it is answered.
    pub(super) invalidate: Option<Stag>,
    /// Where an Atomic Operation's result goes.
    pub(super) sink: Option<Sge>,
    /// An Atomic Operation's result.
    pub(super) original: Option<u64>,
    /// How it has ended, if it has.
    pub(super) outcome: Option<CompletionStatus>,
}

impl Begun {
    pub(super) fn new(request: &SendRequest) -> Self {
        let operation = &request.operation;
        Self {
            wr_id: request.wr_id,
            opcode: operation.opcode(),
            signaled: request.signaled,
            byte_len: operation.len().unwrap_or(u32::MAX),
            awaits_response: operation.awaits_response(),
            invalidate: operation.sink_to_invalidate(),
            sink: operation.result_sink(),
            original: None,
            outcome: None,
        }
    }
}

/// A receive buffer that a message is being placed into.
pub(super) struct Receiving {
    pub(super) request: RecvRequest,
}

/// A queue pair.
pub(super) struct QpContext {
    pub(super) id: QpId,
    /// What its accesses to regions are judged by.
    pub(super) user: User,
    /// Reads and Atomic Operations that it may have outstanding on its connection.
    pub(super) ord: u16,
    pub(super) wishes: Wishes,
    pub(super) extensions: bool,
    pub(super) link: Link,
    pub(super) sq: Consumer<SendRequest>,
    pub(super) rq: Consumer<RecvRequest>,
    /// Begun work, in the order in which it was posted and completes.
    pub(super) begun: VecDeque<Begun>,
    pub(super) receiving: Option<Receiving>,
    pub(super) send_cq: CqId,
    pub(super) recv_cq: CqId,
    /// It is in the engine's list of those that have something to send.
    pub(super) active: bool,
    /// When patience with the peer ends: during start-up, Closing and Terminate.
    pub(super) deadline: Option<Instant>,
    /// Its earliest entry among the engine's deadlines.
    pub(super) armed: Option<Instant>,
    /// The first Terminate that was sent or received, until Idle.
    pub(super) terminate: Option<TerminateInfo>,
    /// It is in Terminate, and no event has said why: a completion has, or the application has asked for it.
    pub(super) unreported: bool,
    state: QpState,
    shared: Arc<QpShared>,
}

impl QpContext {
    pub(super) fn new(id: QpId, user: User, new: NewQp) -> Self {
        Self {
            id,
            user,
            ord: new.wishes.ord,
            wishes: new.wishes,
            extensions: new.extensions,
            link: Link::None,
            sq: new.sq,
            rq: new.rq,
            begun: VecDeque::new(),
            receiving: None,
            send_cq: new.send_cq,
            recv_cq: new.recv_cq,
            active: false,
            deadline: None,
            armed: None,
            terminate: None,
            unreported: false,
            state: QpState::Idle,
            shared: new.shared,
        }
    }

    pub(super) fn state(&self) -> QpState {
        self.state
    }

    /// The state that the application sees: Closing as soon as it has asked for a graceful close.
    pub(super) fn shown_state(&self) -> QpState {
        self.shared.state()
    }

    pub(super) fn set_state(&mut self, state: QpState) {
        self.state = state;
        self.shared.set(state);
    }

    /// The application has asked for a graceful close: it cannot post any more, while what it has posted is still being sent.
    pub(super) fn announce_closing(&mut self) {
        self.shared.set(QpState::Closing);
    }

    /// Keeps a Terminate unless there was one before: the first failure is the one that counts (digest A34).
    pub(super) fn keep_terminate(&mut self, terminate: impl FnOnce() -> TerminateInfo) {
        self.terminate.get_or_insert_with(terminate);
    }

    /// Reads and Atomic Operations that either side may have outstanding: on the connection, or on the next one.
    pub(super) fn depths(&self) -> Depths {
        let Wishes { ord, ird, .. } = self.wishes;
        match (&self.link, self.shared.connection()) {
            (Link::Stream(_), Some(ConnectionInfo { ord, ird, .. })) => Depths { ord, ird },
            (Link::Stream(_) | Link::Starting(_) | Link::None, _) => Depths { ord, ird },
        }
    }

    /// Changes them.
    pub(super) fn set_depths(&mut self, depths: Depths) {
        let Depths { ord, ird } = depths;
        if let Link::Stream(stream) = &mut self.link {
            self.ord = ord;
            stream.receiver.set_ird(ird);
            if let Some(info) = self.shared.connection() {
                (self.shared).set_connection(ConnectionInfo { ird, ord, ..info });
            }
        } else {
            (self.wishes.ord, self.wishes.ird) = (ord, ird);
        }
    }

    /// Full operation over `stream` begins.
    pub(super) fn enter_rts(&mut self, stream: Stream, info: ConnectionInfo) {
        self.terminate = None;
        self.unreported = false;
        self.ord = info.ord;
        self.shared.set_connection(info);
        self.link = Link::Stream(Box::new(stream));
        self.deadline = None;
        self.set_state(QpState::Rts);
    }

    /// When the peer is to be woken, should it still be silent.
    pub(super) fn nudge_due(&self) -> Option<Instant> {
        match &self.link {
            Link::Stream(stream) => stream.nudge.due(),
            Link::None | Link::Starting(_) => None,
        }
    }

    /// When there is something to do for it even if nothing happens.
    pub(super) fn due(&self) -> Option<Instant> {
        [self.deadline, self.nudge_due()]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn stream(&mut self) -> Option<&mut Stream> {
        match &mut self.link {
            Link::Stream(stream) => Some(stream),
            Link::None | Link::Starting(_) => None,
        }
    }

    /// Completes begun work from the oldest on, as far as it is done: completions come in the order of posting.
    pub(super) fn complete_sends(&mut self, cqs: &mut CqTable) -> Result<(), CqOverflow> {
        let done = |begun: &Begun| begun.outcome == Some(CompletionStatus::Success);
        while self.begun.front().is_some_and(done) {
            let Some(begun) = self.begun.pop_front() else {
                break;
            };
            if begun.signaled {
                let completion = self.completion(&begun, CompletionStatus::Success);
                cqs.push(self.send_cq, completion)?;
            }
        }
        Ok(())
    }

    /// The oldest work request that waits for its response: the peer answers in order (RFC 5040 §5.5, R7306-5.4-8-1).
    pub(super) fn oldest_unanswered(&mut self) -> Option<&mut Begun> {
        (self.begun.iter_mut()).find(|begun| begun.awaits_response && begun.outcome.is_none())
    }

    fn completion(&self, begun: &Begun, status: CompletionStatus) -> WorkCompletion {
        let (wr_id, opcode, byte_len) = (begun.wr_id, begun.opcode, begun.byte_len);
        WorkCompletion {
            original: begun.original,
            ..WorkCompletion::new(wr_id, self.id, opcode, status, byte_len)
        }
    }

    /// A completion of the receive queue.
    pub(super) fn receive_completion(
        &self,
        wr_id: WrId,
        status: CompletionStatus,
    ) -> WorkCompletion {
        WorkCompletion::new(wr_id, self.id, Opcode::Receive, status, 0)
    }

    /// Ends all work that is not complete: `Flushed`, but for the newest begun send, which gets `culprit` if there is one
    /// (verbs draft §6.2, digest 4.3). Work that has ended keeps its outcome.
    pub(super) fn flush(&mut self, cqs: &mut CqTable, culprit: Option<CompletionStatus>) {
        let newest = self.begun.len().checked_sub(1);
        for (i, begun) in std::mem::take(&mut self.begun).into_iter().enumerate() {
            let status = match culprit {
                Some(status) if Some(i) == newest => status,
                _ => begun.outcome.unwrap_or(CompletionStatus::Flushed),
            };
            if begun.signaled || status != CompletionStatus::Success {
                cqs.push_or_lose(self.send_cq, self.completion(&begun, status));
            }
        }
        while let Ok(request) = self.sq.pop() {
            let opcode = request.operation.opcode();
            let status = CompletionStatus::Flushed;
            let flushed = WorkCompletion::new(request.wr_id, self.id, opcode, status, 0);
            cqs.push_or_lose(self.send_cq, flushed);
        }
        self.flush_receives(cqs);
    }

    /// Ends all receive buffers.
    pub(super) fn flush_receives(&mut self, cqs: &mut CqTable) {
        let current = self
            .receiving
            .take()
            .map(|receiving| receiving.request.wr_id);
        let posted = std::iter::from_fn(|| self.rq.pop().ok().map(|request| request.wr_id));
        let all: Vec<WrId> = current.into_iter().chain(posted).collect();
        for wr_id in all {
            let completion = self.receive_completion(wr_id, CompletionStatus::Flushed);
            cqs.push_or_lose(self.recv_cq, completion);
        }
    }
}
