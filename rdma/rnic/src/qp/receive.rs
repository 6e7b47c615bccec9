//! Receiving: FPDUs from TCP's stream, checked by the protocol's state machines, placed into regions.

use xwarp_iwarp::mpa::{Deframer, Step};
use xwarp_iwarp::rdmap::SendKind;
use xwarp_iwarp::{
    Access as Checked, AccessError, Inbound, InvalidateError, Resources, Stag, ViolationCause,
};
use xwarp_tcp::Stack;

use super::device::Device;
use super::fault::{Broken, CqOverflow, ReceiveFault};
use super::full_operation::FullOperation;
use super::receive_queue::ReceiveQueue;
use super::tx_message::{Response, for_each_piece};
use crate::model::{
    Ability, Access, AsyncEventKind, CompletionStatus, EngineCounters, EventResource, Immediate,
    QpId, User,
};
use crate::stags::{Bytes, StagTable};
use crate::tables::{CqTable, SrqTable};

/// The tables of the device, apart from TCP, whose bytes are being received.
struct Tables<'a> {
    stags: &'a mut StagTable,
    cqs: &'a mut CqTable,
    srqs: &'a mut SrqTable,
    counters: &'a mut EngineCounters,
}

/// What the protocol's checks need to know of a queue pair.
struct QpResources<'a> {
    id: QpId,
    user: User,
    stags: &'a StagTable,
    srqs: &'a mut SrqTable,
    receive: &'a mut ReceiveQueue,
}

impl<'a> Resources for QpResources<'a> {
    type Place = Bytes<'a>;

    fn take_receive(&mut self) -> Option<u64> {
        let len = self.receive.begin(self.srqs)?;
        if self.receive.reaches_limit() {
            self.srqs
                .report(EventResource::Qp(self.id), AsyncEventKind::RqLimitReached);
        }
        Some(len)
    }

    fn admit(
        &self,
        stag: Stag,
        to: u64,
        len: u64,
        access: Checked,
    ) -> Result<Bytes<'a>, AccessError> {
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
        self.stags.access(self.user, stag, to, len, right)
    }

    fn is_aligned(&self, place: &Bytes<'a>, _: u64) -> bool {
        place.is_aligned()
    }

    fn check_invalidate(&self, stag: Stag) -> Result<(), InvalidateError> {
        self.stags.check_invalidate(self.user, stag)
    }
}

impl FullOperation<'_> {
    /// Receives until no whole FPDU is left. True if one was there.
    pub(super) fn receive(
        &mut self,
        deframer: &mut Deframer,
        device: &mut Device,
    ) -> (bool, Result<(), ReceiveFault>) {
        let stack = &mut device.stack;
        let mut tables = Tables {
            stags: &mut device.stags,
            cqs: &mut device.cqs,
            srqs: &mut device.srqs,
            counters: &mut device.counters,
        };
        let mut any = false;
        loop {
            match self.receive_one(deframer, stack, &mut tables) {
                Ok(true) => any = true,
                Ok(false) => return (any, Ok(())),
                Err(fault) => return (any, Err(fault)),
            }
        }
    }

    /// Receives one FPDU; false when none is there whole.
    fn receive_one(
        &mut self,
        deframer: &mut Deframer,
        stack: &mut Stack,
        tables: &mut Tables<'_>,
    ) -> Result<bool, ReceiveFault> {
        let conn = self.stream.conn();
        let mut want = 1;
        loop {
            if stack.readable_len(conn) < want {
                return Ok(false);
            }
            let bytes = stack.readable(conn, want);
            match deframer.next(bytes).map_err(ReceiveFault::Mpa)? {
                Step::NeedBytes(n) => want = n.max(want + 1),
                Step::Fpdu { ulpdu, consumed } => {
                    tables.counters.fpdus_in += 1;
                    let taken = self.take_ulpdu(ulpdu, tables);
                    stack.consume(conn, consumed);
                    return taken.map(|()| true);
                }
            }
        }
    }

    /// Checks a ULPDU whose FPDU was right, and acts upon it.
    fn take_ulpdu(&mut self, ulpdu: &[u8], tables: &mut Tables<'_>) -> Result<(), ReceiveFault> {
        // Any FPDU that MPA finds right lets a responder send, also one that DDP then refuses (wire.md §3.2).
        self.stream.note_received();
        let mut resources = QpResources {
            id: self.id,
            user: self.user,
            stags: tables.stags,
            srqs: tables.srqs,
            receive: self.work.receive_mut(),
        };
        let inbound = (self.stream.receiver)
            .on_ulpdu(ulpdu, &mut resources)
            .map_err(ReceiveFault::Violation)?;
        #[cfg(feature = "fault-injection")]
        self.injected.check()?;
        let (cqs, counters) = (&mut *tables.cqs, &mut *tables.counters);
        match inbound {
            Inbound::Write {
                place,
                stag,
                to,
                payload,
                ..
            } => place_payload(place, payload, counters)
                .map_err(|cause| self.refuse(write_cause(stag, to, payload, cause), ulpdu)),
            Inbound::ReadResponse {
                place,
                stag,
                to,
                payload,
                done,
            } => {
                place_payload(place, payload, counters)
                    .map_err(|cause| self.refuse(sink_cause(stag, to, payload, cause), ulpdu))?;
                if done {
                    self.finish_read(tables.stags)?;
                    self.work.complete_sends(cqs)?;
                }
                Ok(())
            }
            Inbound::Send {
                kind,
                offset,
                payload,
                message_len,
            } => {
                self.scatter(tables.stags, offset, payload)?;
                counters.placed_bytes += payload.len() as u64;
                message_len.map_or(Ok(()), |len| self.finish_send(tables.stags, cqs, kind, len))
            }
            Inbound::Immediate { data, solicited } => {
                self.finish_immediate(cqs, data, solicited)?;
                Ok(())
            }
            Inbound::ReadRequest(read) => self.queue_response(Response::Read(read)),
            Inbound::AtomicRequest(atomic) => self.queue_response(Response::Atomic(atomic)),
            Inbound::AtomicResponse { original } => {
                self.finish_atomic(tables.stags, original)?;
                self.work.complete_sends(cqs)?;
                Ok(())
            }
            Inbound::Terminate(terminate) => Err(ReceiveFault::Terminated(terminate)),
            // An RTR has opened the stream, and concerns nobody else (R6581-9.2-11).
            Inbound::RtrSend | Inbound::Dropped => Ok(()),
        }
    }

    /// Immediate Data completes the receive that was taken for it, whose buffer stays as it is.
    fn finish_immediate(
        &mut self,
        cqs: &mut CqTable,
        data: Immediate,
        solicited: bool,
    ) -> Result<(), CqOverflow> {
        self.work.complete_receive(cqs, |completion| {
            completion.immediate = Some(data);
            completion.solicited = solicited;
        })
    }

    /// A request of the peer's waits for its turn to be answered.
    fn queue_response(&mut self, response: Response) -> Result<(), ReceiveFault> {
        if self.stream.is_closed() {
            return Err(ReceiveFault::RequestAfterClose);
        }
        self.stream.queue_response(response);
        Ok(())
    }

    /// A segment that passed all checks cannot be placed: its memory is gone.
    fn refuse(&mut self, cause: ViolationCause, ulpdu: &[u8]) -> ReceiveFault {
        ReceiveFault::Violation(self.stream.receiver.refuse(cause, ulpdu))
    }

    /// The oldest Read that waits for its response has it: it is done when its sink is invalidated, where it asks for that.
    fn finish_read(&mut self, stags: &mut StagTable) -> Result<(), ReceiveFault> {
        let user = self.user;
        if self.stream.take_rtr_response() {
            return Ok(());
        }
        let Some(read) = self.work.oldest_unanswered() else {
            return Err(Broken("a response was awaited by no work request").into());
        };
        let invalidated = read
            .sink_to_invalidate()
            .map_or(Ok(()), |stag| stags.invalidate_local(user, stag));
        read.end(invalidated.err().unwrap_or(CompletionStatus::Success));
        invalidated.map_err(|_| ReceiveFault::Sink("the sink of a Read cannot be invalidated"))
    }

    /// The oldest Atomic Operation that waits for its response has it: it is done when its sink has it, too.
    fn finish_atomic(&mut self, stags: &StagTable, original: u64) -> Result<(), ReceiveFault> {
        let user = self.user;
        let Some(atomic) = self.work.oldest_unanswered() else {
            return Err(Broken("a response was awaited by no work request").into());
        };
        let placed = atomic.set_original(original).map_or(Ok(()), |sink| {
            let (result, right) = (original.to_ne_bytes(), Access::LOCAL_WRITE);
            stags
                .access(user, sink.stag, sink.to, result.len() as u64, right)
                .map_err(CompletionStatus::of_access)?
                .write(&result)
                .map_err(|_| CompletionStatus::BaseBounds)
        });
        atomic.end(placed.err().unwrap_or(CompletionStatus::Success));
        placed.map_err(|_| ReceiveFault::Sink("the sink of an Atomic Operation cannot be used"))
    }

    /// Copies a Send's payload into the receive buffer's pieces.
    fn scatter(&self, stags: &StagTable, offset: u32, payload: &[u8]) -> Result<(), ReceiveFault> {
        let Some(receiving) = self.work.receive().current() else {
            return Err(Broken("a message is received into no buffer").into());
        };
        let user = receiving.pd.map_or(self.user, |pd| self.user.in_domain(pd));
        let (sgl, len) = (&receiving.request.sgl, payload.len());
        for_each_piece(sgl, offset, len, |to, stag, span| {
            stags
                .access(user, stag, to, span.len() as u64, Access::LOCAL_WRITE)
                .map_err(CompletionStatus::of_access)?
                .write(payload.get(span).unwrap_or_default())
                .map_err(|_| CompletionStatus::BaseBounds)
        })
        .map_err(ReceiveFault::Buffer)
    }

    /// A Send is here wholly: invalidates what it asks for, then completes the receive (RFC 5040 §5.3).
    fn finish_send(
        &mut self,
        stags: &mut StagTable,
        cqs: &mut CqTable,
        kind: SendKind,
        len: u32,
    ) -> Result<(), ReceiveFault> {
        if let Some(stag) = kind.invalidate {
            stags.invalidate(stag);
        }
        self.work.complete_receive(cqs, |completion| {
            completion.byte_len = len;
            completion.invalidated = kind.invalidate;
            completion.solicited = kind.solicited;
        })?;
        Ok(())
    }
}

/// Copies a tagged segment's payload to its place. Memory that is gone is out of bounds.
fn place_payload(
    place: Option<Bytes<'_>>,
    payload: &[u8],
    counters: &mut EngineCounters,
) -> Result<(), AccessError> {
    if let Some(place) = place {
        place.write(payload).map_err(|_| AccessError::Bounds)?;
        counters.placed_bytes += payload.len() as u64;
    }
    Ok(())
}

#[cold]
fn write_cause(stag: Stag, to: u64, payload: &[u8], cause: AccessError) -> ViolationCause {
    ViolationCause::Write {
        stag,
        to,
        len: payload.len() as u64,
        cause,
    }
}

#[cold]
fn sink_cause(stag: Stag, to: u64, payload: &[u8], cause: AccessError) -> ViolationCause {
    ViolationCause::ReadSink {
        stag,
        to,
        len: payload.len() as u64,
        cause,
    }
}
