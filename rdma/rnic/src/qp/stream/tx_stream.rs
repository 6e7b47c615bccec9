//! TX side of an RDMAP stream: the message being sent, the responses that wait for their turn, and
//! the FPDUs of both.

use std::collections::VecDeque;

use xwarp_driver::PartialSum;
use xwarp_iwarp::ddp::{TAGGED_HEADER_BYTES, UNTAGGED_HEADER_BYTES};
use xwarp_iwarp::mpa::{Framer, MAX_ULPDU, Rtr};
use xwarp_iwarp::rdmap::{CapturedHeader, READ_REQUEST_ULPDU, SendKind};
use xwarp_iwarp::{
    AtomicOperation, AtomicRequest, InboundRead, Message, ReadRequest, Sender, Stag,
};
use xwarp_tcp::{ConnMut, Instant};

use super::send_ulpdu;
use super::tx_message::{Response, TxMessage, TxSource};
use crate::model::{Immediate, Payload, QpIdentity, RemoteAddress};
use crate::qp::fault::{Inconsistency, SendFault};
use crate::qp::payload_pass::{self, OnePass, PayloadPass, ThreePasses};
use crate::stags::StagTable;

/// Size of an FPDU to write.
#[derive(Clone, Copy)]
pub(in crate::qp) struct FpduSize {
    pub(in crate::qp) ulpdu_len: usize,
    /// Whether it contains the whole message.
    pub(in crate::qp) is_whole: bool,
}

/// State of an RDMAP stream's TX side.
pub(in crate::qp) struct TxStream {
    framer: Framer,
    /// Long FPDUs are written in one pass.
    one_pass: bool,
    sender: Sender,
    /// The message being sent.
    message: Option<TxMessage>,
    /// Requests of the peer that wait for their response.
    responses: VecDeque<Response>,
    /// Source of the next message.
    turn: TxSource,
    /// Request Identifier of the next Atomic Request.
    next_atomic: u32,
}

impl TxStream {
    /// A stream that has sent nothing. `one_pass`: its long FPDUs are written fastest in one pass.
    pub(super) fn new(framer: Framer, one_pass: bool, sender: Sender) -> Self {
        Self {
            framer,
            one_pass,
            sender,
            message: None,
            responses: VecDeque::new(),
            turn: TxSource::Request,
            next_atomic: 0,
        }
    }

    /// True if no message is being sent and no response waits.
    #[inline]
    pub(in crate::qp) fn is_idle(&self) -> bool {
        self.message.is_none() && self.responses.is_empty()
    }

    /// True if a response waits for its turn.
    pub(in crate::qp) fn has_responses(&self) -> bool {
        !self.responses.is_empty()
    }

    /// True if a message is being sent.
    #[inline]
    pub(in crate::qp) fn has_message(&self) -> bool {
        self.message.is_some()
    }

    /// Drops the message being sent, and the responses that wait.
    pub(super) fn clear(&mut self) {
        self.message = None;
        self.responses.clear();
    }
}

/// Turns.
impl TxStream {
    /// Queues the response to a request of the peer.
    pub(super) fn handle_request(&mut self, response: Response) {
        self.responses.push_back(response);
    }

    /// Takes the next response, if it is the responses' turn. Work requests and responses take
    /// turns if both wait.
    pub(in crate::qp) fn poll_turn(&mut self, request_waits: bool) -> Option<Response> {
        let has_turn = self.turn == TxSource::Response || !request_waits;
        let response = has_turn.then(|| self.responses.pop_front()).flatten();
        self.turn = if response.is_some() {
            TxSource::Request
        } else {
            TxSource::Response
        };
        response
    }

    /// Takes the next response, whether or not it is the responses' turn.
    pub(in crate::qp) fn poll_response(&mut self) -> Option<Response> {
        self.responses.pop_front()
    }

    /// The Read Request that the next response answers, if it is one, and whether further responses
    /// follow.
    #[inline]
    pub(in crate::qp) fn next_read(&self) -> Option<(ReadRequest, bool)> {
        match self.responses.front()? {
            Response::Read(read) => Some((read.request, self.responses.len() > 1)),
            Response::Atomic(_) => None,
        }
    }

    /// Records that the next response was sent. The next turn is a request's.
    #[inline]
    pub(super) fn end_response(&mut self) {
        self.responses.pop_front();
        self.turn = TxSource::Request;
    }

    /// Records that work requests were sent. The next turn is a response's.
    pub(in crate::qp) fn handle_requests_sent(&mut self) {
        self.turn = TxSource::Response;
    }
}

/// Messages of work requests and responses.
impl TxStream {
    /// Begins a Send of `len` bytes.
    pub(in crate::qp) fn begin_send(&mut self, kind: SendKind, payload: Payload, len: u32) {
        let message = self.sender.send(kind, len);
        self.message = Some(TxMessage::Request {
            message,
            payload,
            then: None,
        });
    }

    /// Begins a Write of `len` bytes. `then`: the Immediate Data that follows, and whether it
    /// requests an event.
    pub(in crate::qp) fn begin_write(
        &mut self,
        remote: RemoteAddress,
        payload: Payload,
        len: u32,
        then: Option<(Immediate, bool)>,
    ) {
        let message = self.sender.write(remote.stag, remote.to, len);
        self.message = Some(TxMessage::Request {
            message,
            payload,
            then,
        });
    }

    /// Begins Immediate Data.
    pub(in crate::qp) fn begin_immediate(&mut self, data: Immediate, solicited: bool) {
        let message = self.sender.immediate(data, solicited);
        self.message = Some(TxMessage::header_only(message));
    }

    /// Begins a Read Request. The caller makes the receive side expect its response.
    pub(super) fn begin_read(&mut self, read: &ReadRequest) {
        let message = self.sender.read_request(read);
        self.message = Some(TxMessage::header_only(message));
    }

    /// Begins an Atomic Request, and returns its Request Identifier. The caller makes the receive
    /// side expect its response.
    pub(super) fn begin_atomic(&mut self, operation: AtomicOperation, to: RemoteAddress) -> u32 {
        let id = self.next_atomic;
        self.next_atomic = id.wrapping_add(1);
        let request = AtomicRequest {
            id,
            operation,
            stag: to.stag,
            to: to.to,
        };
        let message = self.sender.atomic_request(&request);
        self.message = Some(TxMessage::header_only(message));
        id
    }

    /// Begins the RTR, which belongs to no work request: none has begun.
    pub(super) fn begin_rtr(&mut self, rtr: Rtr) {
        let message = self.sender.ready_to_receive(rtr);
        self.message = Some(TxMessage::header_only(message));
    }

    /// Begins the response to a Read Request.
    pub(in crate::qp) fn begin_read_response(&mut self, read: InboundRead) {
        self.message = Some(TxMessage::Read(self.sender.respond(read)));
    }

    /// Begins the response to Atomic Request `id`, which found `original`.
    pub(in crate::qp) fn begin_atomic_response(&mut self, id: u32, original: u64) {
        let message = self.sender.atomic_response(id, original);
        self.message = Some(TxMessage::Atomic(message));
    }

    /// True if this is the header of the current message, and that is a work request's.
    pub(super) fn is_sending(&self, header: &CapturedHeader) -> bool {
        let message = self.message.as_ref();
        message.is_some_and(|message| message.is_request_of(header))
    }

    /// True if a Write is being sent whose Immediate Data has not begun.
    pub(super) fn owes_immediate(&self) -> bool {
        matches!(self.message, Some(TxMessage::Request { then: Some(_), .. }))
    }

    /// Number of messages to the peer's receive queue since the one with this MSN.
    pub(super) fn messages_since(&self, msn: u32) -> u32 {
        self.sender.messages_since(msn)
    }

    /// Number of Read and Atomic Requests since the one with this MSN.
    pub(super) fn requests_since(&self, msn: u32) -> u32 {
        self.sender.requests_since(msn)
    }
}

/// FPDUs.
impl TxStream {
    /// Largest ULPDU in bytes whose FPDU fits a TCP segment of `emss` bytes (RFC 5044 §4.5).
    pub(in crate::qp) fn mulpdu(&self, emss: usize) -> usize {
        self.framer.mulpdu(emss)
    }

    /// Length in bytes of an FPDU with a ULPDU of this length.
    #[inline]
    pub(in crate::qp) fn fpdu_len(&self, ulpdu_len: usize) -> usize {
        self.framer.fpdu_len(ulpdu_len)
    }

    /// The next FPDU of the message being sent.
    pub(in crate::qp) fn next_fpdu(&self, mulpdu: usize) -> Result<FpduSize, Inconsistency> {
        let Some(message) = &self.message else {
            return Err(Inconsistency("a message that was begun is gone"));
        };
        let Some(ulpdu_len) = message.next_len(mulpdu) else {
            return Err(Inconsistency("a message that was begun has no segment"));
        };
        let is_whole = message.is_whole_in(mulpdu);
        Ok(FpduSize {
            ulpdu_len,
            is_whole,
        })
    }

    /// Writes the next FPDU of the current message. Returns the source of the message if that was
    /// its last FPDU, and the FPDU's checksum, if it was computed.
    pub(super) fn write_fpdu(
        &mut self,
        fpdu: &mut [u8],
        ulpdu_len: usize,
        mulpdu: usize,
        memory: (&StagTable, QpIdentity),
    ) -> Result<(Option<TxSource>, Option<PartialSum>), SendFault> {
        if self.one_pass_pays(ulpdu_len) {
            self.write_fpdu_in_one_pass(fpdu, ulpdu_len, mulpdu, memory)
        } else {
            self.write_fpdu_by(ThreePasses, fpdu, ulpdu_len, mulpdu, memory)
        }
    }

    /// A separate function, so that short FPDUs can use all registers.
    #[inline(never)]
    fn write_fpdu_in_one_pass(
        &mut self,
        fpdu: &mut [u8],
        ulpdu_len: usize,
        mulpdu: usize,
        memory: (&StagTable, QpIdentity),
    ) -> Result<(Option<TxSource>, Option<PartialSum>), SendFault> {
        let pass = OnePass::begin(fpdu, ulpdu_len);
        self.write_fpdu_by(pass, fpdu, ulpdu_len, mulpdu, memory)
    }

    #[inline]
    fn write_fpdu_by(
        &mut self,
        mut pass: impl PayloadPass,
        fpdu: &mut [u8],
        ulpdu_len: usize,
        mulpdu: usize,
        memory: (&StagTable, QpIdentity),
    ) -> Result<(Option<TxSource>, Option<PartialSum>), SendFault> {
        let Some(message) = &mut self.message else {
            return Err(Inconsistency("a message that was begun is gone").into());
        };
        let ulpdu = &mut fpdu[Framer::ulpdu_at(ulpdu_len)];
        message.write_segment(ulpdu, mulpdu, memory, &mut pass)?;
        let sum = pass.seal(&mut self.framer, fpdu, ulpdu_len);
        Ok((self.end_fpdu(), sum))
    }

    /// Keeps the rest of the message. Returns its source if there is no rest.
    fn end_fpdu(&mut self) -> Option<TxSource> {
        let message = self.message.as_ref().filter(|it| it.is_done())?;
        let source = message.source();
        // No other message is sent between a Write and its Immediate Data.
        let immediate = match message {
            TxMessage::Request { then, .. } => *then,
            TxMessage::Read(_) | TxMessage::Atomic(_) => None,
        };
        self.message = immediate.map(|(data, solicited)| {
            TxMessage::header_only(self.sender.immediate(data, solicited))
        });
        self.message.is_none().then_some(source)
    }

    /// DDP header of a Send that fits one FPDU.
    #[inline]
    pub(in crate::qp) fn whole_send(&mut self, kind: SendKind) -> [u8; UNTAGGED_HEADER_BYTES] {
        self.sender.whole_send(kind)
    }

    /// DDP header of a Write that fits one FPDU.
    #[inline]
    pub(in crate::qp) fn whole_write(&self, to: RemoteAddress) -> [u8; TAGGED_HEADER_BYTES] {
        self.sender.whole_write(to.stag, to.to)
    }

    /// DDP header of a Read Response that fits one FPDU.
    #[inline]
    pub(in crate::qp) fn whole_read_response(
        &self,
        read: &ReadRequest,
    ) -> [u8; TAGGED_HEADER_BYTES] {
        self.sender.whole_read_response(read)
    }

    /// ULPDU of a Read Request. The caller makes the receive side expect its response.
    #[inline]
    pub(super) fn whole_read_request(&mut self, read: &ReadRequest) -> [u8; READ_REQUEST_ULPDU] {
        self.sender.whole_read_request(read)
    }

    /// True if an FPDU with a ULPDU of this length is written fastest in one pass.
    #[inline]
    pub(in crate::qp) fn one_pass_pays(&self, ulpdu_len: usize) -> bool {
        self.one_pass && ulpdu_len >= payload_pass::WORTH_IT
    }

    /// Completes an FPDU whose ULPDU was written by a pass. Returns its checksum, if it was
    /// computed.
    #[inline]
    pub(in crate::qp) fn seal_by(
        &mut self,
        pass: impl PayloadPass,
        fpdu: &mut [u8],
        ulpdu_len: usize,
    ) -> Option<PartialSum> {
        pass.seal(&mut self.framer, fpdu, ulpdu_len)
    }

    /// Completes an FPDU whose ULPDU was written.
    #[inline]
    pub(in crate::qp) fn seal(&mut self, fpdu: &mut [u8], ulpdu_len: usize) {
        self.framer.seal(fpdu, ulpdu_len);
    }

    /// Sends a complete ULPDU; false if TCP accepts nothing now.
    pub(super) fn send_ulpdu(&mut self, tcp: &mut ConnMut<'_>, ulpdu: &[u8], now: Instant) -> bool {
        send_ulpdu(tcp, &mut self.framer, ulpdu, now)
    }

    /// Sends an RDMA Write of no bytes, which names no memory; false if TCP accepts nothing now.
    pub(super) fn send_empty_write(&mut self, tcp: &mut ConnMut<'_>, now: Instant) -> bool {
        let mut message: Message = self.sender.write(Stag::PLACEHOLDER, 0, 0);
        let segment = message.next_segment(MAX_ULPDU);
        segment.is_some_and(|segment| self.send_ulpdu(tcp, &segment.header, now))
    }
}
