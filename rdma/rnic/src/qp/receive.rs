//! Receiving: FPDUs from TCP's stream, checked by the protocol's state machines, placed into regions.

use xwarp_iwarp::mpa::{Deframer, Step};
use xwarp_iwarp::rdmap::SendKind;
use xwarp_iwarp::{
    Access as Checked, AccessError, Inbound, InvalidateError, Resources, Stag, ViolationCause,
};
use xwarp_tcp::{ConnId, Stack};

use super::context::{Link, QpContext};
use super::fault::{Broken, ReceiveFault};
use super::receive_queue::Receives;
use super::stream::{Gate, Stream};
use super::tx_message::{Response, for_each_piece};
use crate::model::{
    Ability, Access, AsyncEventKind, CompletionStatus, EngineCounters, EventResource, QpId, User,
};
use crate::stags::StagTable;
use crate::tables::{CqTable, SrqTable};

/// What all queue pairs share.
pub(crate) struct Tables<'a> {
    pub(crate) stags: &'a mut StagTable,
    pub(crate) cqs: &'a mut CqTable,
    pub(crate) srqs: &'a mut SrqTable,
    pub(crate) counters: &'a mut EngineCounters,
}

/// What the protocol's checks need to know of a queue pair.
struct QpResources<'a> {
    id: QpId,
    user: User,
    stags: &'a StagTable,
    srqs: &'a mut SrqTable,
    receives: &'a mut Receives,
}

impl Resources for QpResources<'_> {
    fn take_receive(&mut self) -> Option<u64> {
        let len = self.receives.begin(self.srqs)?;
        if self.receives.reaches_limit() {
            self.srqs
                .report(EventResource::Qp(self.id), AsyncEventKind::RqLimitReached);
        }
        Some(len)
    }

    fn check(&self, stag: Stag, to: u64, len: u64, access: Checked) -> Result<(), AccessError> {
        let right = match access {
            Checked::RemoteAtomic => Access::REMOTE_ATOMIC,
            Checked::RemoteRead => Access::REMOTE_READ,
            // The sink of a Read is written by the peer like the target of a Write (verbs draft §7.5, verbs.md A37).
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

/// Receives one FPDU; false when none is there whole.
pub(crate) fn receive_one(
    stack: &mut Stack,
    tables: &mut Tables<'_>,
    qp: &mut QpContext,
) -> Result<bool, ReceiveFault> {
    let Link::Stream(stream) = &mut qp.link else {
        return Ok(false);
    };
    let conn = stream.conn;
    // A ULPDU may lie in the deframer while the queue pair acts upon it.
    let mut deframer = std::mem::take(&mut stream.deframer);
    let received = receive_from(&mut deframer, conn, stack, tables, qp);
    if let Link::Stream(stream) = &mut qp.link {
        stream.deframer = deframer;
    }
    received
}

fn receive_from(
    deframer: &mut Deframer,
    conn: ConnId,
    stack: &mut Stack,
    tables: &mut Tables<'_>,
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
                tables.counters.fpdus_in += 1;
                let taken = take_ulpdu(ulpdu, tables, qp);
                stack.consume(conn, consumed);
                return taken.map(|()| true);
            }
        }
    }
}

/// Checks a ULPDU whose FPDU was right, and acts upon it.
fn take_ulpdu(
    ulpdu: &[u8],
    tables: &mut Tables<'_>,
    qp: &mut QpContext,
) -> Result<(), ReceiveFault> {
    let Link::Stream(stream) = &mut qp.link else {
        return Ok(());
    };
    // Any FPDU that MPA finds right opens the fence, also one that DDP then refuses (wire.md §3.2).
    stream.heard();
    let mut resources = QpResources {
        id: qp.id,
        user: qp.user,
        stags: tables.stags,
        srqs: tables.srqs,
        receives: &mut qp.receives,
    };
    let inbound = (stream.receiver)
        .on_ulpdu(ulpdu, &mut resources)
        .map_err(ReceiveFault::Violation)?;
    #[cfg(feature = "fault-injection")]
    qp.injected.check()?;
    act(&inbound, ulpdu, tables, qp)
}

/// Places a segment that passed all checks, and completes what it completes.
fn act(
    inbound: &Inbound<'_>,
    ulpdu: &[u8],
    tables: &mut Tables<'_>,
    qp: &mut QpContext,
) -> Result<(), ReceiveFault> {
    let Tables {
        stags,
        cqs,
        counters,
        ..
    } = tables;
    match inbound {
        &Inbound::Write {
            stag, to, payload, ..
        } => {
            let len = payload.len() as u64;
            let refusal = |cause| ViolationCause::Write {
                stag,
                to,
                len,
                cause,
            };
            place(stags, qp.user, stag, to, payload, counters)
                .map_err(|cause| refuse(qp, refusal(cause), ulpdu))?;
        }
        &Inbound::ReadResponse {
            stag,
            to,
            payload,
            done,
        } => {
            let len = payload.len() as u64;
            let refusal = |cause| ViolationCause::ReadSink {
                stag,
                to,
                len,
                cause,
            };
            place(stags, qp.user, stag, to, payload, counters)
                .map_err(|cause| refuse(qp, refusal(cause), ulpdu))?;
            if done {
                finish_read(stags, qp)?;
                qp.complete_sends(cqs)?;
            }
        }
        Inbound::ReadRequest(read) => queue_response(qp, Response::Read(*read))?,
        Inbound::AtomicRequest(atomic) => queue_response(qp, Response::Atomic(*atomic))?,
        Inbound::AtomicResponse { original } => {
            finish_atomic(stags, qp, *original)?;
            qp.complete_sends(cqs)?;
        }
        Inbound::Send {
            kind,
            offset,
            payload,
            message_len,
        } => {
            scatter(stags, qp, *offset, payload)?;
            counters.placed_bytes += payload.len() as u64;
            if let Some(len) = message_len {
                finish_send(stags, cqs, qp, *kind, *len)?;
            }
        }
        Inbound::Immediate { data, solicited } => qp.complete_receive(cqs, |completion| {
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

/// A segment that passed all checks cannot be placed: its memory is gone.
fn refuse(qp: &mut QpContext, cause: ViolationCause, ulpdu: &[u8]) -> ReceiveFault {
    match qp.stream() {
        Some(stream) => ReceiveFault::Violation(stream.receiver.refuse(cause, ulpdu)),
        None => Broken("a segment was placed without a stream").into(),
    }
}

/// Copies a tagged segment's payload to its place, which has just been checked. Memory that is gone is out of bounds.
fn place(
    stags: &StagTable,
    user: User,
    stag: Stag,
    to: u64,
    payload: &[u8],
    counters: &mut EngineCounters,
) -> Result<(), AccessError> {
    if payload.is_empty() {
        return Ok(());
    }
    let len = payload.len() as u64;
    stags
        .access(user, stag, to, len, Access::REMOTE_WRITE)?
        .write(payload)
        .map_err(|_| AccessError::Bounds)?;
    counters.placed_bytes += len;
    Ok(())
}

/// The oldest Read that waits for its response has it: it is done when its sink is invalidated, where it asks for that.
fn finish_read(stags: &mut StagTable, qp: &mut QpContext) -> Result<(), ReceiveFault> {
    let user = qp.user;
    if qp.stream().is_some_and(Stream::take_rtr_response) {
        return Ok(());
    }
    let Some(begun) = qp.oldest_unanswered() else {
        return Err(Broken("a response was awaited by no work request").into());
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
        return Err(Broken("a response was awaited by no work request").into());
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
) -> Result<(), ReceiveFault> {
    let Some(receiving) = qp.receives.current() else {
        return Err(Broken("a message is received into no buffer").into());
    };
    let user = receiving.pd.map_or(qp.user, |pd| qp.user.in_domain(pd));
    for_each_piece(
        &receiving.request.sgl,
        offset,
        payload.len(),
        |to, stag, span| {
            stags
                .access(user, stag, to, span.len() as u64, Access::LOCAL_WRITE)
                .map_err(CompletionStatus::of_access)?
                .write(payload.get(span).unwrap_or_default())
                .map_err(|_| CompletionStatus::BaseBounds)
        },
    )
    .map_err(ReceiveFault::Buffer)
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
    qp.complete_receive(cqs, |completion| {
        completion.byte_len = len;
        completion.invalidated = kind.invalidate;
        completion.solicited = kind.solicited;
    })?;
    Ok(())
}
