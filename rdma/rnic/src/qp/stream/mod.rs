//! RDMAP stream of a queue pair over one TCP connection in full operation (RFC 5044 §7.1,
//! RFC 5040).

mod held;
mod tx_message;
mod tx_stream;
mod write_len;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use xwarp_driver::{PartialSum, crc32c_function};
use xwarp_iwarp::mpa::{Deframer, Framer, Negotiated, Rtr, Step};
use xwarp_iwarp::rdmap::{CapturedHeader, READ_REQUEST_ULPDU};
use xwarp_iwarp::{
    AccessError, AccessKind, AtomicOperation, FastReadSegment, FastSegment, Inbound,
    InvalidateError, ReadRequest, ReceivedTerminate, Receiver, Resources, Sender, Stag,
    StreamConfig, Terminate, Violation, ViolationCause,
};
use xwarp_tcp::{ConnId, ConnMut, Instant, Stack};

use super::device::{ConnChange, RdmaDevice};
use super::fault::SendFault;
use super::first_fpdu_retry::FirstFpduRetry;
use super::payload_pass;
use crate::model::{ConnectionInfo, LocalPort, QpIdentity, ReadDepths, RemoteAddress};
use crate::stags::StagTable;
use held::Held;
pub(super) use held::READY_TIMEOUT;
use tx_message::TxSource;
pub(super) use tx_message::{Response, execute, for_each_piece};
pub(super) use tx_stream::{FpduSize, TxStream};
pub(super) use write_len::WriteLen;

/// Whether FPDUs may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TxState {
    /// A responder sends nothing before the peer's first FPDU (RFC 5044 §7.1.2). Only memory work
    /// is done.
    AwaitsFirstFpdu,
    /// The last streaming message is sent first (verbs draft §6.2.1.2); then the stream awaits the
    /// first FPDU.
    StreamingMessage {
        /// Whether the peer has sent an FPDU already.
        has_first_fpdu: bool,
    },
    Open,
    /// TCP was asked to close.
    Closed,
}

/// Data to send before any message.
pub(super) enum Ahead {
    /// Nothing: messages may be sent.
    Nothing,
    /// The rest of the last streaming message.
    Message,
    /// The Terminate, as the last FPDU.
    Terminate,
    /// TCP accepts nothing now.
    Blocked,
    /// Nothing may be sent at all.
    Closed,
}

/// A connection in full operation: MPA's receive side, and the stream above it.
pub(super) struct Connection {
    deframer: Deframer,
    stream: Stream,
    info: ConnectionInfo,
}

/// Messages besides those of RFC 5040.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extensions {
    /// Immediate Data and Atomic Operations (RFC 7306).
    pub(super) rfc7306: bool,
    /// Sends with immediate data.
    pub(super) send_immediates: bool,
}

/// An RDMAP stream, in both directions.
pub(super) struct Stream {
    conn: ConnId,
    /// DDP and RDMAP version.
    version: u8,
    send_immediates: bool,
    tx_state: TxState,
    receiver: Receiver,
    tx: TxStream,
    write_len: WriteLen,
    retry: FirstFpduRetry,
    /// Terminate to be sent before the stream ends.
    terminate: Option<Box<Terminate>>,
    /// Unsent rest of the last streaming message.
    streaming_message: VecDeque<u8>,
    /// Whether the RTR of this side was a Read, whose response completes no work request.
    rtr_read: bool,
    /// Whether the peer has closed its side, so that nothing more is received.
    peer_closed: bool,
    /// The message that waits for a receive buffer.
    held: Option<Box<Held>>,
    port: Arc<LocalPort>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("conn", &self.conn)
            .field("tx_state", &self.tx_state)
            .field("sends", &!self.tx.is_idle())
            .field("terminates", &self.terminate.is_some())
            .field("peer_closed", &self.peer_closed)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// `is_summed`: TCP computes checksums on the connection.
    pub(super) fn new(
        conn: ConnId,
        negotiated: &Negotiated,
        responder: bool,
        info: ConnectionInfo,
        extensions: Extensions,
        port: Arc<LocalPort>,
        is_summed: bool,
    ) -> Self {
        let config = stream_config(negotiated, &info, extensions);
        let one_pass = payload_pass::one_pays(negotiated, is_summed);
        Self {
            deframer: Deframer::new(negotiated.crc, negotiated.receive_markers)
                .with_crc32c(crc32c_function()),
            stream: Stream::new(conn, negotiated, responder, one_pass, config, port),
            info,
        }
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(super) fn stream_mut(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// MPA's receive side, and the stream that handles its FPDUs.
    pub(super) fn both(&mut self) -> (&mut Deframer, &mut Stream) {
        (&mut self.deframer, &mut self.stream)
    }

    /// Negotiated parameters.
    pub(super) fn info(&self) -> ConnectionInfo {
        self.info
    }

    /// Reads and Atomic Operations that either side may have outstanding.
    pub(super) fn reads(&self) -> ReadDepths {
        let ConnectionInfo { ord, ird, .. } = self.info;
        ReadDepths { ord, ird }
    }

    pub(super) fn set_reads(&mut self, reads: ReadDepths) {
        let ReadDepths { ord, ird } = reads;
        (self.info.ord, self.info.ird) = (ord, ird);
        self.stream.receiver.set_ord(ord);
        self.stream.receiver.set_ird(ird);
    }

    /// The Terminate at the start of the peer's unread bytes, if there is one (verbs.md A33).
    pub(super) fn read_terminate(&mut self, stack: &mut Stack) -> Option<ReceivedTerminate> {
        let Self {
            deframer, stream, ..
        } = self;
        let mut tcp = stack.conn_mut(stream.conn)?;
        let arrived = tcp.readable_len();
        let Ok(Step::Fpdu { ulpdu, .. }) = deframer.next(tcp.readable(arrived)) else {
            return None;
        };
        match stream.receiver.on_ulpdu(ulpdu, &mut NoResources) {
            Ok(Inbound::Terminate(terminate)) => Some(terminate),
            Ok(_) | Err(_) => None,
        }
    }

    /// Releases the TCP connection.
    pub(super) fn release(self, device: &mut RdmaDevice) {
        let Stream { conn, port, .. } = self.stream;
        device.note(ConnChange::Released(conn, port));
    }
}

/// Configuration of both directions of the stream.
fn stream_config(
    negotiated: &Negotiated,
    info: &ConnectionInfo,
    extensions: Extensions,
) -> StreamConfig {
    // If the ULP negotiates ORD, ORD may be 0, but an RTR that is a Read needs one (R6581-9.2-14).
    let rtr_reads = u16::from(info.rtr == Some(Rtr::Read));
    StreamConfig {
        version: negotiated.version,
        extensions: extensions.rfc7306,
        send_immediates: extensions.send_immediates,
        await_rtr: negotiated.enhanced.is_some_and(|it| it.await_rtr),
        ..StreamConfig::new(info.ird, info.ord.max(rtr_reads))
    }
}

impl Stream {
    fn new(
        conn: ConnId,
        negotiated: &Negotiated,
        responder: bool,
        one_pass: bool,
        config: StreamConfig,
        port: Arc<LocalPort>,
    ) -> Self {
        let tx_state = if responder {
            TxState::AwaitsFirstFpdu
        } else {
            TxState::Open
        };
        let framer =
            Framer::new(negotiated.crc, negotiated.send_markers).with_crc32c(crc32c_function());
        Self {
            conn,
            version: negotiated.version,
            send_immediates: config.send_immediates,
            tx_state,
            receiver: Receiver::new(config),
            tx: TxStream::new(framer, one_pass, Sender::new(config)),
            write_len: WriteLen::default(),
            retry: FirstFpduRetry::new(None),
            terminate: None,
            streaming_message: VecDeque::new(),
            rtr_read: false,
            peer_closed: false,
            held: None,
            port,
        }
    }

    pub(super) fn conn(&self) -> ConnId {
        self.conn
    }

    pub(super) fn version(&self) -> u8 {
        self.version
    }

    /// True if Sends may carry immediate data.
    pub(super) fn has_send_immediates(&self) -> bool {
        self.send_immediates
    }

    /// The length of the Write that arrives.
    #[inline]
    pub(super) fn write_len_mut(&mut self) -> &mut WriteLen {
        &mut self.write_len
    }

    /// The length of the Write before the Immediate Data that have arrived.
    pub(super) fn take_write_len(&mut self) -> u32 {
        let len = self.write_len.take();
        if self.send_immediates { len } else { 0 }
    }

    /// True if FPDUs may be sent.
    pub(super) fn is_open(&self) -> bool {
        self.tx_state == TxState::Open
    }

    /// True if TCP was asked to close.
    pub(super) fn is_closed(&self) -> bool {
        self.tx_state == TxState::Closed
    }

    /// True if nothing may be sent before the peer's first FPDU.
    pub(super) fn awaits_first_fpdu(&self) -> bool {
        self.tx_state == TxState::AwaitsFirstFpdu
    }

    /// True while the Reply waits for room in the peer's window: nothing else is sent before the
    /// peer's first FPDU.
    pub(super) fn awaits_room(&self, device: &RdmaDevice) -> bool {
        (self.awaits_first_fpdu() || self.is_closed()) && device.has_unsent(self.conn)
    }

    /// True if the peer has closed its side.
    pub(super) fn is_peer_closed(&self) -> bool {
        self.peer_closed
    }

    pub(super) fn set_peer_closed(&mut self) {
        self.peer_closed = true;
    }

    /// True if it has something to send, not counting work requests that have not begun.
    pub(super) fn has_more(&self) -> bool {
        !self.tx.is_idle() || self.terminate.is_some()
    }

    /// True if a message is being sent, answered or received.
    pub(super) fn in_progress(&self) -> bool {
        let incoming = self.mid_message() || self.is_holding() || self.outstanding_reads() > 0;
        incoming || !self.tx.is_idle()
    }

    /// True if this side has nothing left to send, so that its FIN cuts nothing off. `has_posted`:
    /// whether work requests have not begun.
    pub(super) fn is_drained(&self, has_posted: bool) -> bool {
        // A responder may send nothing before the peer's first FPDU (RFC 5044 §7.1.2).
        let is_drained = self.awaits_first_fpdu() || !has_posted && !self.tx.has_responses();
        // An RTR that is a Read is no work request, but waits for its response, too.
        let awaits_rtr = self.outstanding_reads() > 0;
        is_drained && !awaits_rtr && !self.tx.has_message()
    }

    /// When a silent peer is woken.
    pub(super) fn retry_due(&self) -> Option<Instant> {
        self.retry.due()
    }

    /// Begins as an initiator: wakes a peer that overlooks the first FPDU, and sends the RTR ahead
    /// of all work (R6581-5-1).
    pub(super) fn begin_as_initiator(&mut self, retry: FirstFpduRetry, rtr: Option<Rtr>) {
        self.retry = retry;
        let Some(rtr) = rtr else {
            return;
        };
        if rtr == Rtr::Read {
            self.receiver.expect_read(ReadRequest::RTR);
            self.rtr_read = true;
        }
        self.tx.begin_rtr(rtr);
    }

    /// Sends these bytes unframed before anything else.
    pub(super) fn begin_with(&mut self, message: VecDeque<u8>) {
        self.streaming_message = message;
        self.tx_state = TxState::StreamingMessage {
            has_first_fpdu: false,
        };
    }

    /// Sends the data that precedes all messages.
    pub(super) fn send_ahead(&mut self, stack: &mut Stack, now: Instant) -> Ahead {
        match self.tx_state {
            TxState::Open | TxState::AwaitsFirstFpdu if self.terminate.is_none() => Ahead::Nothing,
            TxState::Open | TxState::AwaitsFirstFpdu => self.send_terminate(stack, now),
            TxState::Closed => Ahead::Closed,
            TxState::StreamingMessage { has_first_fpdu } => {
                let message = self.streaming_message.make_contiguous();
                let tcp = stack.conn_mut(self.conn);
                let sent = tcp.map_or(0, |mut tcp| send_raw(&mut tcp, message, now));
                self.streaming_message.drain(..sent);
                if !self.streaming_message.is_empty() {
                    return Ahead::Blocked;
                }
                self.tx_state = if has_first_fpdu {
                    TxState::Open
                } else {
                    TxState::AwaitsFirstFpdu
                };
                Ahead::Message
            }
        }
    }

    /// Sends the Terminate, the last FPDU of its stream (RFC 5040 §5.4).
    fn send_terminate(&mut self, stack: &mut Stack, now: Instant) -> Ahead {
        let Some(terminate) = &self.terminate else {
            return Ahead::Nothing;
        };
        let ulpdu = terminate.ulpdu();
        let tcp = stack.conn_mut(self.conn);
        if !tcp.is_some_and(|mut tcp| self.tx.send_ulpdu(&mut tcp, &ulpdu, now)) {
            return Ahead::Blocked;
        }
        self.terminate = None;
        self.close(stack, now);
        Ahead::Terminate
    }

    /// Closes the TCP connection: nothing more is sent.
    pub(super) fn close(&mut self, stack: &mut Stack, now: Instant) {
        self.tx_state = TxState::Closed;
        stack.close(self.conn, now);
    }

    /// Stops sending and receiving. Returns true if the Terminate is sent next. Without one, or if
    /// it may not be sent, TCP closes at once.
    pub(super) fn end(&mut self, terminate: Option<Terminate>, device: &mut RdmaDevice) -> bool {
        self.tx.clear();
        device.counters.drop_after_failure += device.unread(self.conn) as u64;
        self.terminate = terminate
            .filter(|_| self.is_open())
            .map(|terminate| Box::new(terminate.on_version(self.version)));
        let has_terminate = self.terminate.is_some();
        if has_terminate {
            device.counters.terminates_out += 1;
        } else {
            self.close(&mut device.stack, device.now);
        }
        device.discard_unread(self.conn);
        has_terminate
    }

    /// Records that an FPDU was passed to TCP.
    pub(super) fn note_sent(&mut self, now: Instant) {
        self.retry.sent(now);
    }

    /// Records that an FPDU of the peer has arrived.
    pub(super) fn note_received(&mut self) {
        self.retry.received();
        match self.tx_state {
            TxState::Open | TxState::Closed => {}
            TxState::AwaitsFirstFpdu => self.tx_state = TxState::Open,
            TxState::StreamingMessage { .. } => {
                self.tx_state = TxState::StreamingMessage {
                    has_first_fpdu: true,
                }
            }
        }
    }

    /// Wakes a peer that has sent nothing since the first FPDU of this side, by an RDMA Write of no
    /// bytes. Between the segments of a message none is allowed, and none needed: more segments
    /// follow. `begins_work`: whether the queue pair still sends.
    pub(super) fn retry_first_fpdu(&mut self, begins_work: bool, device: &mut RdmaDevice) {
        let now = device.now;
        self.retry.passed(now);
        if !begins_work || !self.is_open() || self.tx.has_message() {
            return;
        }
        let tcp = device.stack.conn_mut(self.conn);
        if tcp.is_some_and(|mut tcp| self.tx.send_empty_write(&mut tcp, now)) {
            device.counters.fpdus_out += 1;
            device.counters.first_fpdu_retries += 1;
        }
    }

    /// True for the first Read Response if it answers the RTR of this side.
    pub(super) fn take_rtr_response(&mut self) -> bool {
        std::mem::take(&mut self.rtr_read)
    }
}

/// Sending.
impl Stream {
    #[inline]
    pub(super) fn tx(&self) -> &TxStream {
        &self.tx
    }

    #[inline]
    pub(super) fn tx_mut(&mut self) -> &mut TxStream {
        &mut self.tx
    }

    /// Begins a Read Request. From now on its response is expected.
    pub(super) fn begin_read(&mut self, read: ReadRequest) {
        self.receiver.expect_read(read);
        self.tx.begin_read(&read);
    }

    /// ULPDU of a Read Request that is sent at once. From now on its response is expected.
    #[inline]
    pub(super) fn begin_whole_read(&mut self, read: ReadRequest) -> [u8; READ_REQUEST_ULPDU] {
        self.receiver.expect_read(read);
        self.tx.whole_read_request(&read)
    }

    /// Records that the next response was sent, as one FPDU.
    #[inline]
    pub(super) fn end_whole_response(&mut self) {
        self.tx.end_response();
        self.receiver.response_sent();
    }

    /// Begins an Atomic Request. From now on its response is expected.
    pub(super) fn begin_atomic(&mut self, operation: AtomicOperation, remote: RemoteAddress) {
        let id = self.tx.begin_atomic(operation, remote);
        self.receiver.expect_atomic(id);
    }

    /// Writes the next FPDU of the current message. Returns whether it ends the message of a work
    /// request, and its checksum, if it was computed.
    pub(super) fn write_fpdu(
        &mut self,
        fpdu: &mut [u8],
        ulpdu_len: usize,
        mulpdu: usize,
        memory: (&StagTable, QpIdentity),
    ) -> Result<(bool, Option<PartialSum>), SendFault> {
        let (ended, sum) = self.tx.write_fpdu(fpdu, ulpdu_len, mulpdu, memory)?;
        if ended == Some(TxSource::Response) {
            self.receiver.response_sent();
        }
        Ok((ended == Some(TxSource::Request), sum))
    }

    /// True if this is the header of the current message, and that is a work request's.
    pub(super) fn is_sending(&self, header: &CapturedHeader) -> bool {
        self.tx.is_sending(header)
    }

    /// Number of Read and Atomic Requests since the one with this MSN, if that awaits its response.
    /// `refused`: the request that the peer has returned.
    pub(super) fn requests_since(&self, msn: u32, refused: Option<&ReadRequest>) -> Option<usize> {
        let since = usize::try_from(self.tx.requests_since(msn)).ok()?;
        self.receiver.awaits(since, refused).then_some(since)
    }

    /// Number of work requests with a message to the peer's receive queue since the one with this
    /// MSN, if it was sent.
    pub(super) fn messages_since(&self, msn: u32) -> Option<usize> {
        let since = usize::try_from(self.tx.messages_since(msn)).ok()?;
        since.checked_add(usize::from(self.tx.owes_immediate()))
    }
}

/// Receiving.
impl Stream {
    /// True if a message has arrived in part.
    pub(super) fn mid_message(&self) -> bool {
        self.receiver.mid_message()
    }

    /// Whether a ULPDU begins a message that takes a receive buffer, unless it is refused.
    pub(super) fn takes_receive(&self, ulpdu: &[u8]) -> bool {
        self.receiver.takes_receive(ulpdu)
    }

    /// Keeps the first segment of a message until there is a receive buffer.
    pub(super) fn hold(&mut self, ulpdu: &[u8], now: Instant) {
        let is_closed = self.held.take().is_some_and(|held| held.is_closed());
        self.held = Some(Box::new(Held::new(ulpdu, now, is_closed)));
    }

    /// True while a message waits for a receive buffer, and all later ones behind it.
    pub(super) fn is_holding(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.waits())
    }

    /// Keeps it for longer, as there is still no buffer.
    pub(super) fn hold_on(&mut self, now: Instant) {
        if let Some(held) = &mut self.held {
            held.go_on(now);
        }
    }

    /// When it is tried again.
    pub(super) fn held_due(&self) -> Option<Instant> {
        self.held.as_ref()?.due()
    }

    /// Takes the first segment of the message that has waited.
    pub(super) fn take_held(&mut self) -> Vec<u8> {
        self.held
            .as_mut()
            .map(|held| held.take())
            .unwrap_or_default()
    }

    /// Records that the peer has closed its side behind the message that waits.
    pub(super) fn hold_close(&mut self, now: Instant) {
        if let Some(held) = &mut self.held {
            held.close(now);
        }
    }

    /// How long the close of the peer waits behind a message.
    pub(super) fn held_close_due(&self) -> Option<Instant> {
        self.held.as_ref()?.close_due()
    }

    /// True once if the peer has closed behind a message that no longer waits.
    pub(super) fn take_held_close(&mut self) -> bool {
        let is_over = !self.is_holding();
        is_over && self.held.take().is_some_and(|held| held.is_closed())
    }

    /// Reads and Atomic Operations of this side that await their response.
    pub(super) fn outstanding_reads(&self) -> usize {
        self.receiver.outstanding_reads()
    }

    /// Awaits no response any more: the peer has closed its side.
    pub(super) fn forget_reads(&mut self) {
        self.receiver.forget_requests();
    }

    /// The segment in a ULPDU, if it is an ordinary one without a visible error.
    #[inline]
    pub(super) fn predict<'u>(&self, ulpdu: &'u [u8]) -> Option<FastSegment<'u>> {
        self.receiver.predict(ulpdu)
    }

    /// Records that the predicted ordinary Send was placed.
    #[inline]
    pub(super) fn handle_placed_send(&mut self) {
        self.receiver.placed_send();
    }

    /// The segment of a Read in a ULPDU, if it is an ordinary one without a visible error.
    pub(super) fn predict_read<'u>(&self, ulpdu: &'u [u8]) -> Option<FastReadSegment<'u>> {
        self.receiver.predict_read(ulpdu)
    }

    /// Records that the predicted ordinary Read Request will be answered.
    pub(super) fn handle_queued_read(&mut self) {
        self.receiver.queued_read();
    }

    /// Records that the predicted segment of a Read Response, with `len` bytes, was placed.
    pub(super) fn handle_placed_response(&mut self, len: usize, last: bool) {
        self.receiver.placed_response(len, last);
    }

    /// Checks a ULPDU by the protocol's rules.
    pub(super) fn handle_ulpdu<'u, R: Resources>(
        &mut self,
        ulpdu: &'u [u8],
        resources: &mut R,
    ) -> Result<Inbound<'u, R::Place>, Violation> {
        self.receiver.on_ulpdu(ulpdu, resources)
    }

    /// Refuses a segment that the protocol accepted but that cannot be executed.
    pub(super) fn refuse(&mut self, cause: ViolationCause, ulpdu: &[u8]) -> Violation {
        self.receiver.refuse(cause, ulpdu)
    }

    /// Queues the response to a request of the peer. False if this side has closed.
    pub(super) fn handle_request(&mut self, response: Response) -> bool {
        let is_open = !self.is_closed();
        if is_open {
            self.tx.handle_request(response);
        }
        is_open
    }
}

/// Sends as many unframed bytes as TCP accepts now, and returns their number.
pub(crate) fn send_raw(tcp: &mut ConnMut<'_>, bytes: &[u8], now: Instant) -> usize {
    let mut sent = 0;
    for piece in bytes.chunks(tcp.emss().max(1)) {
        let Some(place) = tcp.writable(piece.len()) else {
            break;
        };
        place.copy_from_slice(piece);
        tcp.commit(piece.len(), now);
        sent += piece.len();
    }
    sent
}

/// Sends a complete ULPDU; false if TCP accepts nothing now.
pub(super) fn send_ulpdu(
    tcp: &mut ConnMut<'_>,
    framer: &mut Framer,
    ulpdu: &[u8],
    now: Instant,
) -> bool {
    let len = framer.fpdu_len(ulpdu.len());
    let Some(fpdu) = tcp.writable(len) else {
        return false;
    };
    let Some(place) = fpdu.get_mut(Framer::ulpdu_at(ulpdu.len())) else {
        return false;
    };
    place.copy_from_slice(ulpdu);
    framer.seal(fpdu, ulpdu.len());
    tcp.commit(len, now);
    true
}

/// A closed queue pair accepts no message.
struct NoResources;

impl Resources for NoResources {
    type Place = ();

    fn take_receive(&mut self) -> Option<u64> {
        None
    }

    fn admit(&self, _: Stag, _: u64, _: u64, _: AccessKind) -> Result<(), AccessError> {
        Err(AccessError::InvalidStag)
    }

    fn is_aligned(&self, (): &(), _: u64) -> bool {
        false
    }

    fn check_invalidate(&self, _: Stag) -> Result<(), InvalidateError> {
        Err(InvalidateError::InvalidStag)
    }
}
