//! Receiving: FPDUs from TCP's stream, checked by the protocol's state machines, placed into regions.

use rtrb::Consumer;
use xwarp_iwarp::mpa::{Deframer, MpaError, Step};
use xwarp_iwarp::rdmap::SendKind;
use xwarp_iwarp::{
    Access as Checked, AccessError, Inbound, InvalidateError, ReceivedTerminate, Resources, Stag,
    Violation,
};
use xwarp_tcp::{ConnId, Stack};

use super::Engine;
use super::cq_table::{CqOverflow, CqTable};
use super::outgoing::{Response, for_each_piece};
use super::qp::{Link, QpContext, Receiving};
use super::stream::{Close, Gate, Stream};
use crate::completion::{CompletionStatus, WorkCompletion};
use crate::counters::EngineCounters;
use crate::memory::{Access, StagTable};
use crate::qp_state::QpState;
use crate::user::{Ability, User};
use crate::work::{RecvRequest, total};

/// Why receiving cannot go on.
pub(super) enum ReceiveFault {
    Mpa(MpaError),
    Violation(Violation),
    /// A receive buffer of ours is not usable.
    Buffer(CompletionStatus),
    Terminated(ReceivedTerminate),
    /// What should have been done with the response to a work request of ours could not be; its outcome says so.
    Sink(&'static str),
    /// The peer asks for a response, and we have sent our FIN.
    RequestAfterClose,
    SendOverflow,
    ReceiveOverflow,
}

/// What the protocol's checks need to know of a queue pair.
struct QpResources<'a> {
    user: User,
    stags: &'a StagTable,
    rq: &'a mut Consumer<RecvRequest>,
    receiving: &'a mut Option<Receiving>,
}

impl Resources for QpResources<'_> {
    fn take_receive(&mut self) -> Option<u64> {
        let request = self.rq.pop().ok()?;
        let len = total(&request.sgl)?;
        *self.receiving = Some(Receiving { request });
        Some(u64::from(len))
    }

    fn check(&self, stag: Stag, to: u64, len: u64, access: Checked) -> Result<(), AccessError> {
        let right = match access {
            Checked::RemoteAtomic => Access::REMOTE_ATOMIC,
            Checked::RemoteRead => Access::REMOTE_READ,
            // The sink of a Read is written by the peer like the target of a Write (verbs draft §7.5, digest A37).
            Checked::RemoteWrite | Checked::ReadSink => Access::REMOTE_WRITE,
        };
        // Where the peer may not read there is no request that could ask for it.
        if right == Access::REMOTE_WRITE && !self.user.can(Ability::INBOUND_WRITE) {
            return Err(AccessError::Rights);
        }
        self.stags
            .access(self.user, stag, to, len, right)
            .map(|_| ())
    }

    fn is_aligned(&self, stag: Stag, to: u64) -> bool {
        self.stags.is_aligned(stag, to)
    }

    fn check_invalidate(&self, stag: Stag) -> Result<(), InvalidateError> {
        self.stags.check_invalidate(self.user, stag)
    }
}

impl Engine {
    /// Acts upon all FPDUs that have arrived for a queue pair.
    pub(super) fn on_qp_readable(&mut self, key: usize) {
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        match &qp.link {
            Link::Starting(_) => self.on_reply_octets(key),
            Link::Stream(_) if qp.state() == QpState::Rts => self.receive_fpdus(key),
            Link::Stream(stream)
                if qp.state() == QpState::Closing && stream.close != Close::Sealed =>
            {
                self.receive_fpdus(key);
            }
            Link::Stream(_) if qp.state() == QpState::Closing => self.on_sealed_octets(key),
            Link::Stream(stream) => {
                let conn = stream.conn;
                let n = self.stack.readable_len(conn);
                self.stack.consume(conn, n);
                self.counters.drop_after_failure += n as u64;
            }
            Link::None => {}
        }
    }

    /// Receives until no whole FPDU is left.
    pub(super) fn receive_fpdus(&mut self, key: usize) {
        let received = loop {
            let Some(qp) = self.qps.get_mut(key) else {
                return;
            };
            let one = receive_one(
                &mut self.stack,
                &mut self.stags,
                &mut self.cqs,
                &mut self.counters,
                qp,
            );
            match one {
                Ok(true) => self.renew_patience(key),
                Ok(false) => break Ok(()),
                Err(fault) => break Err(fault),
            }
        };
        // Responses may have to be sent, stalled work may go on, and the fence may have opened.
        self.activate(key);
        if let Err(fault) = received {
            self.on_receive_fault(key, fault);
        }
    }
}

/// Receives one FPDU; false when none is there whole.
fn receive_one(
    stack: &mut Stack,
    stags: &mut StagTable,
    cqs: &mut CqTable,
    counters: &mut EngineCounters,
    qp: &mut QpContext,
) -> Result<bool, ReceiveFault> {
    let Link::Stream(stream) = &mut qp.link else {
        return Ok(false);
    };
    let conn = stream.conn;
    // A ULPDU may lie in the deframer while the queue pair acts upon it.
    let mut deframer = std::mem::take(&mut stream.deframer);
    let received = receive_from(&mut deframer, conn, stack, stags, cqs, counters, qp);
    if let Link::Stream(stream) = &mut qp.link {
        stream.deframer = deframer;
    }
    received
}

fn receive_from(
    deframer: &mut Deframer,
    conn: ConnId,
    stack: &mut Stack,
    stags: &mut StagTable,
    cqs: &mut CqTable,
    counters: &mut EngineCounters,
    qp: &mut QpContext,
) -> Result<bool, ReceiveFault> {
    let mut want = 1;
    loop {
        if stack.readable_len(conn) < want {
            return Ok(false);
        }
        let stream = stack.readable(conn, want);
        let step = deframer.next(stream).map_err(ReceiveFault::Mpa)?;
        match step {
            Step::NeedBytes(n) => want = n.max(want + 1),
            Step::Fpdu { ulpdu, consumed } => {
                counters.fpdus_in += 1;
                let taken = take_ulpdu(ulpdu, stags, cqs, counters, qp);
                stack.consume(conn, consumed);
                return taken.map(|()| true);
            }
        }
    }
}

/// Checks a ULPDU whose FPDU was right, and acts upon it.
fn take_ulpdu(
    ulpdu: &[u8],
    stags: &mut StagTable,
    cqs: &mut CqTable,
    counters: &mut EngineCounters,
    qp: &mut QpContext,
) -> Result<(), ReceiveFault> {
    let Link::Stream(stream) = &mut qp.link else {
        return Ok(());
    };
    // Any FPDU that MPA finds right opens the fence, also one that DDP then refuses (digest 3.2).
    stream.heard();
    let mut resources = QpResources {
        user: qp.user,
        stags,
        rq: &mut qp.rq,
        receiving: &mut qp.receiving,
    };
    let inbound = (stream.receiver)
        .on_ulpdu(ulpdu, &mut resources)
        .map_err(ReceiveFault::Violation)?;
    act(&inbound, stags, cqs, counters, qp)
}

/// Places a segment that passed all checks, and completes what it completes.
fn act(
    inbound: &Inbound<'_>,
    stags: &mut StagTable,
    cqs: &mut CqTable,
    counters: &mut EngineCounters,
    qp: &mut QpContext,
) -> Result<(), ReceiveFault> {
    match inbound {
        Inbound::Write {
            stag, to, payload, ..
        } => place(stags, qp.user, *stag, *to, payload, counters),
        Inbound::ReadResponse {
            stag,
            to,
            payload,
            done,
        } => {
            place(stags, qp.user, *stag, *to, payload, counters);
            if *done {
                finish_read(stags, qp)?;
                complete_sends(cqs, qp)?;
            }
        }
        Inbound::ReadRequest(read) => queue_response(qp, Response::Read(*read))?,
        Inbound::AtomicRequest(atomic) => queue_response(qp, Response::Atomic(*atomic))?,
        Inbound::AtomicResponse { original } => {
            finish_atomic(stags, qp, *original)?;
            complete_sends(cqs, qp)?;
        }
        Inbound::Send {
            kind,
            offset,
            payload,
            message_len,
        } => {
            scatter(stags, qp, *offset, payload).map_err(ReceiveFault::Buffer)?;
            counters.placed_octets += payload.len() as u64;
            if let Some(len) = message_len {
                finish_send(stags, cqs, qp, *kind, *len)?;
            }
        }
        Inbound::Immediate { data, solicited } => finish_receive(cqs, qp, |completion| {
            completion.immediate = Some(*data);
            completion.solicited = *solicited;
        })?,
        Inbound::Terminate(terminate) => return Err(ReceiveFault::Terminated(*terminate)),
        // An RTR has opened the fence, and concerns nobody else (R6581-9.2-11).
        Inbound::RtrSend | Inbound::Dropped => {}
    }
    Ok(())
}

/// A request of the peer's waits for its turn to be answered.
fn queue_response(qp: &mut QpContext, response: Response) -> Result<(), ReceiveFault> {
    let Some(stream) = qp.stream() else {
        return Ok(());
    };
    if stream.gate == Gate::Shut {
        return Err(ReceiveFault::RequestAfterClose);
    }
    stream.responses.push_back(response);
    Ok(())
}

/// Copies a tagged segment's payload to its place, which has just been checked.
fn place(
    stags: &StagTable,
    user: User,
    stag: Stag,
    to: u64,
    payload: &[u8],
    counters: &mut EngineCounters,
) {
    if payload.is_empty() {
        return;
    }
    let placed = stags
        .access(user, stag, to, payload.len() as u64, Access::REMOTE_WRITE)
        .is_ok_and(|octets| octets.write(payload).is_ok());
    debug_assert!(placed, "the segment was checked against the same table");
    counters.placed_octets += payload.len() as u64;
}

/// What a response has completed.
fn complete_sends(cqs: &mut CqTable, qp: &mut QpContext) -> Result<(), ReceiveFault> {
    qp.complete_sends(cqs)
        .map_err(|CqOverflow| ReceiveFault::SendOverflow)
}

/// The oldest Read that waits for its response has it: it is done when its sink is invalidated, where it asks for that.
fn finish_read(stags: &mut StagTable, qp: &mut QpContext) -> Result<(), ReceiveFault> {
    let user = qp.user;
    if qp.stream().is_some_and(Stream::take_rtr_response) {
        return Ok(());
    }
    let Some(begun) = qp.oldest_unanswered() else {
        return Ok(());
    };
    let invalidated = begun
        .invalidate
        .map_or(Ok(()), |stag| stags.invalidate_local(user, stag));
    begun.outcome = Some(invalidated.err().unwrap_or(CompletionStatus::Success));
    invalidated.map_err(|_| ReceiveFault::Sink("the sink of a Read cannot be invalidated"))
}

/// The oldest Atomic Operation that waits for its response has it: it is done when its sink has it, too.
fn finish_atomic(stags: &StagTable, qp: &mut QpContext, original: u64) -> Result<(), ReceiveFault> {
    let user = qp.user;
    let Some(begun) = qp.oldest_unanswered() else {
        return Ok(());
    };
    begun.original = Some(original);
    let placed = begun.sink.map_or(Ok(()), |sink| {
        let (result, right) = (original.to_ne_bytes(), Access::LOCAL_WRITE);
        stags
            .access(user, sink.stag, sink.to, result.len() as u64, right)
            .map_err(CompletionStatus::of_access)?
            .write(&result)
            .map_err(|_| CompletionStatus::BaseBounds)
    });
    begun.outcome = Some(placed.err().unwrap_or(CompletionStatus::Success));
    placed.map_err(|_| ReceiveFault::Sink("the sink of an Atomic Operation cannot be used"))
}

/// Copies a Send's payload into the receive buffer's pieces.
fn scatter(
    stags: &StagTable,
    qp: &QpContext,
    offset: u32,
    payload: &[u8],
) -> Result<(), CompletionStatus> {
    let Some(receiving) = &qp.receiving else {
        return Err(CompletionStatus::BaseBounds);
    };
    for_each_piece(
        &receiving.request.sgl,
        offset,
        payload.len(),
        |to, stag, span| {
            stags
                .access(qp.user, stag, to, span.len() as u64, Access::LOCAL_WRITE)
                .map_err(CompletionStatus::of_access)?
                .write(payload.get(span).unwrap_or_default())
                .map_err(|_| CompletionStatus::BaseBounds)
        },
    )
}

/// A Send is here wholly: invalidates what it asks for, then completes the receive (RFC 5040 §5.3).
fn finish_send(
    stags: &mut StagTable,
    cqs: &mut CqTable,
    qp: &mut QpContext,
    kind: SendKind,
    len: u32,
) -> Result<(), ReceiveFault> {
    if let Some(stag) = kind.invalidate {
        stags.invalidate(stag);
    }
    finish_receive(cqs, qp, |completion| {
        completion.byte_len = len;
        completion.invalidated = kind.invalidate;
        completion.solicited = kind.solicited;
    })
}

/// Completes the receive that the current message has taken, with what `describe` says of the message.
fn finish_receive(
    cqs: &mut CqTable,
    qp: &mut QpContext,
    describe: impl FnOnce(&mut WorkCompletion),
) -> Result<(), ReceiveFault> {
    let Some(receiving) = qp.receiving.take() else {
        return Ok(());
    };
    let mut completion = qp.receive_completion(receiving.request.wr_id, CompletionStatus::Success);
    describe(&mut completion);
    cqs.push(qp.recv_cq, completion)
        .map_err(|CqOverflow| ReceiveFault::ReceiveOverflow)
}
