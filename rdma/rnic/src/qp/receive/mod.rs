//! Receiving: FPDUs from TCP's stream, checked by the protocol's state machines, placed into
//! regions.
//!
//! A receive list is checked element by element when bytes are placed, never as a whole (verbs
//! draft §7.4.1, §8.1.3.2). Each element is looked up once. An error in a part of the list that no
//! message reaches has no effect.

mod ordinary_read;
mod run;

use xwarp_iwarp::mpa::{Deframer, Step};
use xwarp_iwarp::rdmap::SendKind;
use xwarp_iwarp::{AccessError, AccessKind, Inbound, InvalidateError, Placement, Resources, Stag};

use super::device::{LentDevice, Tables};
use super::fault::{CqOverflow, Inconsistency, ReceiveFault};
use super::full_operation::FullOperation;
use super::new_qp::NotReady;
use super::rights::right_for;
use super::stream::{Response, Stream, for_each_piece};
use super::work_queues::ReceiveBuffers;
use crate::model::{
    Access, AsyncEvent, AsyncEventKind, CompletionStatus, EngineCounters, EventResource, Immediate,
    Opcode, QpId, QpIdentity, Sgl,
};
use crate::queues::EventQueue;
use crate::stags::{Bytes, StagTable};
use crate::tables::CqTable;

/// Result of receiving contiguous bytes.
struct Slice {
    /// Bytes of the received FPDUs.
    taken: usize,
    /// Bytes that the next FPDU needs, or the fault.
    end: Result<usize, ReceiveFault>,
}

/// State of a queue pair for the protocol's checks.
struct QpResources<'a, 'q> {
    id: QpId,
    user: QpIdentity,
    stags: &'a StagTable,
    events: &'q EventQueue,
    receive: &'q mut ReceiveBuffers,
}

/// Copies payload, which begins at `offset` in its message, into the pieces of a receive buffer.
fn scatter(
    sgl: &Sgl,
    offset: u32,
    payload: &[u8],
    stags: &StagTable,
    user: QpIdentity,
) -> Result<(), CompletionStatus> {
    for_each_piece(sgl, offset, payload.len(), |to, stag, span| {
        stags
            .access(user, stag, to, span.len() as u64, Access::LOCAL_WRITE)
            .map_err(CompletionStatus::of_access)?
            .write(payload.get(span).unwrap_or_default())
            .map_err(|_| CompletionStatus::BaseBounds)
    })
}

/// Checks whether a queue pair's peer may access `len` bytes at Tagged Offset `to`.
#[inline]
fn admit(
    stags: &StagTable,
    user: QpIdentity,
    (stag, to, len): (Stag, u64, u64),
    access: AccessKind,
) -> Result<Bytes<'_>, AccessError> {
    stags.access(user, stag, to, len, right_for(user, access)?)
}

/// The end of a receive: a message that waits is no fault.
fn without_waiting(fault: ReceiveFault) -> Result<(), ReceiveFault> {
    match fault {
        ReceiveFault::NotReady => Ok(()),
        fault => Err(fault),
    }
}

impl<'a> Resources for QpResources<'a, '_> {
    type Place = Bytes<'a>;

    fn take_receive(&mut self) -> Option<u64> {
        let len = self.receive.begin(self.events)?;
        if self.receive.reaches_limit() {
            self.events.report(AsyncEvent {
                resource: EventResource::Qp(self.id),
                kind: AsyncEventKind::RqLimitReached,
            });
        }
        Some(len)
    }

    fn admit(
        &self,
        stag: Stag,
        to: u64,
        len: u64,
        access: AccessKind,
    ) -> Result<Bytes<'a>, AccessError> {
        admit(self.stags, self.user, (stag, to, len), access)
    }

    fn is_aligned(&self, place: &Bytes<'a>, _: u64) -> bool {
        place.is_aligned()
    }

    fn check_invalidate(&self, stag: Stag) -> Result<(), InvalidateError> {
        self.stags.check_invalidate(self.user, stag)
    }
}

impl FullOperation<'_> {
    /// Receives until no whole FPDU is left. Returns true if there was one.
    pub(super) fn receive(
        &mut self,
        deframer: &mut Deframer,
        device: LentDevice<'_>,
    ) -> (bool, Result<(), ReceiveFault>) {
        let LentDevice {
            mut tcp,
            mut tables,
        } = device;
        let (mut any, mut want) = (false, 1);
        match self.receive_held(&mut tables) {
            Ok(was_held) => any |= was_held,
            Err(fault) => return (false, without_waiting(fault)),
        }
        loop {
            if tables.cqs.stamps() {
                tables.cqs.note_arrival(tcp.arrival(want));
            }
            let bytes = tcp.readable(want);
            if bytes.len() < want {
                return (any, Ok(()));
            }
            let slice = self.receive_slice(deframer, bytes, &mut tables);
            any |= slice.taken > 0;
            let rest = bytes.len() - slice.taken;
            let readable = tcp.consume(slice.taken);
            match slice.end {
                Ok(needed) => want = needed.max(rest + 1),
                Err(fault) => return (any, without_waiting(fault)),
            }
            if readable < want {
                return (any, Ok(()));
            }
        }
    }

    /// Handles the message that waits for a receive buffer, if there is one.
    fn receive_held(&mut self, tables: &mut Tables<'_>) -> Result<bool, ReceiveFault> {
        if !self.stream.is_holding() {
            return Ok(false);
        }
        if !self.work.receive_mut().prepare(tables.events) {
            self.stream.hold_on(self.now);
            return Err(ReceiveFault::NotReady);
        }
        let ulpdu = self.stream.take_held();
        self.take_ulpdu(&ulpdu, tables).map(|()| true)
    }

    /// Receives all whole FPDUs of `bytes`.
    fn receive_slice(
        &mut self,
        deframer: &mut Deframer,
        bytes: &[u8],
        tables: &mut Tables<'_>,
    ) -> Slice {
        let mut taken = 0;
        let end = loop {
            let rest = bytes.get(taken..).unwrap_or_default();
            let (run, completed) = self.receive_run(deframer, rest, tables);
            taken += run;
            if let Err(overflow) = completed {
                break Err(overflow.into());
            }
            let rest = bytes.get(taken..).unwrap_or_default();
            if rest.is_empty() {
                break Ok(1);
            }
            match deframer.next(rest) {
                Err(error) => break Err(ReceiveFault::Mpa(error)),
                Ok(Step::NeedBytes(needed)) => break Ok(needed),
                Ok(Step::Fpdu { ulpdu, consumed }) => {
                    taken += consumed;
                    tables.counters.fpdus_in += 1;
                    if let Err(fault) = self.take_fpdu(ulpdu, tables) {
                        break Err(fault);
                    }
                }
            }
        };
        if taken > 0 {
            // Any FPDU that is valid for MPA allows a responder to send, even if DDP then refuses
            // it (wire.md §3.2).
            self.stream.note_received();
        }
        Slice { taken, end }
    }

    /// Receives the ordinary segments at the start of `bytes`. Returns their length in bytes.
    #[inline]
    fn receive_run(
        &mut self,
        deframer: &mut Deframer,
        bytes: &[u8],
        tables: &mut Tables<'_>,
    ) -> (usize, Result<(), CqOverflow>) {
        #[cfg(feature = "fault-injection")]
        if self.injected.is_pending() {
            return (0, Ok(()));
        }
        if tables.cqs.stamps() {
            return (0, Ok(())); // a run records no arrival time
        }
        match (deframer.has_markers(), self.stream.has_send_immediates()) {
            (false, false) => self.place_run::<false, false>(deframer, bytes, tables),
            (false, true) => self.place_run::<false, true>(deframer, bytes, tables),
            (true, _) => self.place_run::<true, true>(deframer, bytes, tables),
        }
    }

    /// Handles the ULPDU of a valid FPDU.
    #[inline]
    fn take_fpdu(&mut self, ulpdu: &[u8], tables: &mut Tables<'_>) -> Result<(), ReceiveFault> {
        #[cfg(feature = "fault-injection")]
        if self.injected.is_pending() {
            return self.take_ulpdu(ulpdu, tables);
        }
        self.take_read(ulpdu, tables)
    }

    /// Checks the ULPDU of a valid FPDU, and handles it.
    fn take_ulpdu(&mut self, ulpdu: &[u8], tables: &mut Tables<'_>) -> Result<(), ReceiveFault> {
        if self.not_ready == NotReady::Waits && self.lacks_receive(ulpdu, tables.events) {
            tables.counters.rnr_waits += 1;
            self.stream.hold(ulpdu, self.now);
            return Err(ReceiveFault::NotReady);
        }
        let stags = tables.stags.read();
        match self.check(ulpdu, &stags, tables.events)? {
            Inbound::Write { placement, last } => {
                self.place(&placement, AccessKind::RemoteWrite, ulpdu, tables.counters)?;
                let len = placement.payload.len();
                self.stream.write_len_mut().add(len, last);
                Ok(())
            }
            Inbound::ReadResponse { placement, done } => {
                self.place(&placement, AccessKind::ReadSink, ulpdu, tables.counters)?;
                drop(stags);
                self.finish_segment(tables, done)
            }
            Inbound::Send {
                kind,
                offset,
                payload,
                message_len,
            } => {
                drop(stags);
                self.stream.write_len_mut().take();
                self.scatter(tables, offset, payload)?;
                message_len.map_or(Ok(()), |len| self.finish_send(tables, kind, len))
            }
            Inbound::Immediate { data, solicited } => {
                self.finish_immediate(tables.cqs, data, solicited)
            }
            Inbound::ReadRequest(read) => self.queue_response(Response::Read(read)),
            Inbound::AtomicRequest(atomic) => self.queue_response(Response::Atomic(atomic)),
            Inbound::AtomicResponse { original } => self.end_atomic(&stags, tables.cqs, original),
            Inbound::Terminate(terminate) => Err(ReceiveFault::Terminated(terminate)),
            // An RTR has opened the stream, and has no further effect (R6581-9.2-11).
            Inbound::RtrSend | Inbound::Dropped => Ok(()),
        }
    }

    /// Whether a ULPDU begins a message, and no buffer is posted for it.
    fn lacks_receive(&mut self, ulpdu: &[u8], events: &EventQueue) -> bool {
        self.stream.takes_receive(ulpdu) && !self.work.receive_mut().prepare(events)
    }

    /// Checks a ULPDU by the protocol's rules.
    fn check<'u, 's>(
        &mut self,
        ulpdu: &'u [u8],
        stags: &'s StagTable,
        events: &EventQueue,
    ) -> Result<Inbound<'u, Bytes<'s>>, ReceiveFault> {
        let (stream, mut resources) = self.checks(stags, events);
        let inbound = stream
            .handle_ulpdu(ulpdu, &mut resources)
            .map_err(ReceiveFault::Violation)?;
        #[cfg(feature = "fault-injection")]
        self.injected.check()?;
        Ok(inbound)
    }

    /// The stream, and the state for its checks.
    #[inline]
    fn checks<'q, 's>(
        &'q mut self,
        stags: &'s StagTable,
        events: &'q EventQueue,
    ) -> (&'q mut Stream, QpResources<'s, 'q>) {
        let resources = QpResources {
            id: self.id,
            user: self.user,
            stags,
            events,
            receive: self.work.receive_mut(),
        };
        (self.stream, resources)
    }

    /// Immediate Data completes the receive that was taken for it, whose buffer is unchanged.
    fn finish_immediate(
        &mut self,
        cqs: &mut CqTable,
        data: Immediate,
        solicited: bool,
    ) -> Result<(), ReceiveFault> {
        let byte_len = self.stream.take_write_len();
        self.work.complete_receive(cqs, |completion| {
            completion.byte_len = byte_len;
            completion.immediate = Some(data);
            completion.solicited = solicited;
        })?;
        Ok(())
    }

    /// Queues the response to a request of the peer.
    fn queue_response(&mut self, response: Response) -> Result<(), ReceiveFault> {
        // A peer that asks for a confirmation takes the FIN for it.
        let may_be_dropped = self.work.confirms() && response.reads_nothing();
        if self.stream.handle_request(response) || may_be_dropped {
            return Ok(());
        }
        Err(ReceiveFault::RequestAfterClose)
    }

    /// Copies the payload of a tagged segment that passed all checks. Unmapped memory counts as out
    /// of bounds.
    fn place(
        &mut self,
        placement: &Placement<'_, Bytes<'_>>,
        access: AccessKind,
        ulpdu: &[u8],
        counters: &mut EngineCounters,
    ) -> Result<(), ReceiveFault> {
        let Some(place) = placement.place else {
            return Ok(());
        };
        if place.write(placement.payload).is_err() {
            let cause = placement.refused(access, AccessError::Bounds);
            let violation = self.stream.refuse(cause, ulpdu);
            return Err(ReceiveFault::Violation(violation));
        }
        counters.placed_bytes += placement.payload.len() as u64;
        Ok(())
    }

    /// A segment of a Read Response was placed.
    fn finish_segment(&mut self, tables: &mut Tables<'_>, last: bool) -> Result<(), ReceiveFault> {
        if last {
            return self.finish_read(tables);
        }
        Ok(())
    }

    /// The response to the oldest Read has arrived. The Read completes, after its sink was
    /// invalidated if it requests that.
    fn finish_read(&mut self, tables: &mut Tables<'_>) -> Result<(), ReceiveFault> {
        let user = self.user;
        if self.stream.take_rtr_response() {
            return Ok(());
        }
        let Some(read) = self.work.oldest_unanswered() else {
            return Err(Inconsistency("a response was awaited by no work request").into());
        };
        let invalidated = read.sink_to_invalidate().map_or(Ok(()), |stag| {
            tables.stags.change().invalidate_local(user, stag)
        });
        read.set_arrival(tables.cqs.arrival());
        read.end(invalidated.err().unwrap_or(CompletionStatus::Success));
        invalidated.map_err(|status| ReceiveFault::Sink {
            status,
            what: "the sink of a Read cannot be invalidated",
        })?;
        self.work.complete_sends(tables.cqs)?;
        Ok(())
    }

    /// The response to the oldest Atomic Operation has arrived. The operation completes, after the
    /// original value was stored in its sink.
    fn end_atomic(
        &mut self,
        stags: &StagTable,
        cqs: &mut CqTable,
        original: u64,
    ) -> Result<(), ReceiveFault> {
        let user = self.user;
        let Some(atomic) = self.work.oldest_unanswered() else {
            return Err(Inconsistency("a response was awaited by no work request").into());
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
        placed.map_err(|status| ReceiveFault::Sink {
            status,
            what: "the sink of an Atomic Operation cannot be used",
        })?;
        self.work.complete_sends(cqs)?;
        Ok(())
    }

    /// Copies a Send's payload into the receive buffer's pieces.
    fn scatter(
        &self,
        tables: &mut Tables<'_>,
        offset: u32,
        payload: &[u8],
    ) -> Result<(), ReceiveFault> {
        let Some(receiving) = self.work.receive().current() else {
            return Err(Inconsistency("a message is received into no buffer").into());
        };
        let user = self.work.receive().user(self.user);
        scatter(
            &receiving.request.sgl,
            offset,
            payload,
            &tables.stags.read(),
            user,
        )
        .map_err(ReceiveFault::Buffer)?;
        tables.counters.placed_bytes += payload.len() as u64;
        Ok(())
    }

    /// A whole Send has arrived: invalidates the `STag` that it names, then completes the receive
    /// (RFC 5040 §5.3).
    fn finish_send(
        &mut self,
        tables: &mut Tables<'_>,
        kind: SendKind,
        len: u32,
    ) -> Result<(), ReceiveFault> {
        if let Some(stag) = kind.invalidate {
            tables.stags.change().invalidate(stag);
        }
        self.work.complete_receive(tables.cqs, |completion| {
            completion.byte_len = len;
            completion.invalidated = kind.invalidate;
            completion.solicited = kind.solicited;
            if let Some([a, b, c, d]) = kind.immediate {
                completion.immediate = Some([a, b, c, d, 0, 0, 0, 0]);
                completion.opcode = Opcode::ReceiveImmediate;
            }
        })?;
        Ok(())
    }
}
