//! A queue pair as the engine holds it.

use std::collections::VecDeque;
use std::sync::Arc;

use rtrb::Consumer;
use xwarp_tcp::Instant;

use super::cq_table::{CqId, CqOverflow, CqTable};
use super::start::Starting;
use super::stream::Stream;
use crate::completion::{CompletionStatus, Opcode, WorkCompletion};
use crate::mpa::{ConnectionInfo, Wishes};
use crate::pd::PdId;
use crate::qp::{QpId, QpShared, QpState};
use crate::work::{RecvRequest, SendRequest, WrId};

/// What a new queue pair is made of.
pub(crate) struct NewQp {
    pub(crate) pd: PdId,
    pub(crate) wishes: Wishes,
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
    pub(super) done: bool,
}

/// A receive buffer that a message is being placed into.
pub(super) struct Receiving {
    pub(super) request: RecvRequest,
}

/// A queue pair.
pub(super) struct QpContext {
    pub(super) id: QpId,
    pub(super) pd: PdId,
    /// Reads that it may have outstanding on its connection.
    pub(super) ord: u16,
    pub(super) wishes: Wishes,
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
    state: QpState,
    shared: Arc<QpShared>,
}

impl QpContext {
    pub(super) fn new(id: QpId, new: NewQp) -> Self {
        Self {
            id,
            pd: new.pd,
            ord: new.wishes.ord,
            wishes: new.wishes,
            link: Link::None,
            sq: new.sq,
            rq: new.rq,
            begun: VecDeque::new(),
            receiving: None,
            send_cq: new.send_cq,
            recv_cq: new.recv_cq,
            active: false,
            deadline: None,
            state: QpState::Idle,
            shared: new.shared,
        }
    }

    pub(super) fn state(&self) -> QpState {
        self.state
    }

    pub(super) fn set_state(&mut self, state: QpState) {
        self.state = state;
        self.shared.set(state);
    }

    /// The application has asked for a graceful close: it cannot post any more, while what it has posted is still being sent.
    pub(super) fn announce_closing(&mut self) {
        self.shared.set(QpState::Closing);
    }

    /// Full operation over `stream` begins.
    pub(super) fn enter_rts(&mut self, stream: Stream, info: ConnectionInfo) {
        self.ord = info.ord;
        self.shared.set_connection(info);
        self.link = Link::Stream(Box::new(stream));
        self.deadline = None;
        self.set_state(QpState::Rts);
    }

    pub(super) fn stream(&mut self) -> Option<&mut Stream> {
        match &mut self.link {
            Link::Stream(stream) => Some(stream),
            Link::None | Link::Starting(_) => None,
        }
    }

    /// Completes begun work from the oldest on, as far as it is done: completions come in the order of posting.
    pub(super) fn complete_sends(&mut self, cqs: &mut CqTable) -> Result<(), CqOverflow> {
        while self.begun.front().is_some_and(|begun| begun.done) {
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

    fn completion(&self, begun: &Begun, status: CompletionStatus) -> WorkCompletion {
        WorkCompletion {
            wr_id: begun.wr_id,
            qp: self.id,
            opcode: begun.opcode,
            status,
            byte_len: begun.byte_len,
            invalidated: None,
            solicited: false,
        }
    }

    /// A completion of the receive queue.
    pub(super) fn receive_completion(
        &self,
        wr_id: WrId,
        status: CompletionStatus,
        byte_len: u32,
    ) -> WorkCompletion {
        WorkCompletion {
            wr_id,
            qp: self.id,
            opcode: Opcode::Receive,
            status,
            byte_len,
            invalidated: None,
            solicited: false,
        }
    }

    /// Ends all work that is not complete: `Flushed`, but for the newest begun send, which gets `culprit` if there is one
    /// (verbs draft §6.2, digest 4.3). Work that was done keeps its success.
    pub(super) fn flush(&mut self, cqs: &mut CqTable, culprit: Option<CompletionStatus>) {
        let newest = self.begun.len().checked_sub(1);
        for (i, begun) in std::mem::take(&mut self.begun).into_iter().enumerate() {
            let status = match culprit {
                Some(status) if Some(i) == newest => status,
                _ if begun.done => CompletionStatus::Success,
                _ => CompletionStatus::Flushed,
            };
            if begun.signaled || status != CompletionStatus::Success {
                cqs.push_or_lose(self.send_cq, self.completion(&begun, status));
            }
        }
        while let Ok(request) = self.sq.pop() {
            let begun = Begun {
                wr_id: request.wr_id,
                opcode: opcode_of(&request),
                signaled: true,
                byte_len: 0,
                done: false,
            };
            let flushed = self.completion(&begun, CompletionStatus::Flushed);
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
            let completion = self.receive_completion(wr_id, CompletionStatus::Flushed, 0);
            cqs.push_or_lose(self.recv_cq, completion);
        }
    }
}

/// Which completion a request will have.
pub(super) fn opcode_of(request: &SendRequest) -> Opcode {
    use crate::work::Operation::{Read, Send, Write};
    match request.operation {
        Send { .. } => Opcode::Send,
        Write { .. } => Opcode::Write,
        Read { .. } => Opcode::Read,
    }
}
