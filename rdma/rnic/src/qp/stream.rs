//! RDMAP stream of a queue pair over one TCP connection in full operation (RFC 5044 §7.1, RFC 5040).

use std::collections::VecDeque;
use std::sync::Arc;

use xwarp_iwarp::mpa::{Deframer, Framer, MAX_ULPDU, Negotiated, Rtr, Step};
use xwarp_iwarp::{
    AccessError, AccessKind, Inbound, InvalidateError, ReadRequest, ReceivedTerminate, Receiver,
    Resources, Sender, Stag, StreamConfig, Terminate,
};
use xwarp_tcp::{ConnId, Instant, Stack};

use super::device::{ConnChange, Device};
use super::first_fpdu_retry::FirstFpduRetry;
use super::tx_message::{Response, TxMessage, TxSource};
use crate::model::{ConnectionInfo, LocalPort, ReadDepths};

/// Whether FPDUs may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TxState {
    /// A responder sends nothing before the peer's first FPDU (RFC 5044 §7.1.2). Only memory work is done.
    AwaitsFirstFpdu,
    /// The last streaming message goes first (verbs draft §6.2.1.2); then the stream awaits the first FPDU.
    StreamingMessage {
        /// The peer has sent an FPDU already.
        has_first_fpdu: bool,
    },
    Open,
    /// TCP has been told to close.
    Closed,
}

/// What goes out before any message.
pub(super) enum Ahead {
    /// Nothing: messages may go out.
    Nothing,
    /// The rest of the last streaming message, which is sent.
    Message,
    /// The Terminate, as the last FPDU.
    Terminate,
    /// TCP takes nothing now.
    Blocked,
    /// Nothing may go out at all.
    Closed,
}

/// A connection in full operation: MPA's receive side, and the stream above it.
pub(super) struct Connection {
    pub(super) deframer: Deframer,
    pub(super) stream: Stream,
    info: ConnectionInfo,
}

/// See the module.
pub(super) struct Stream {
    conn: ConnId,
    /// DDP and RDMAP version.
    version: u8,
    tx_state: TxState,
    pub(super) framer: Framer,
    pub(super) receiver: Receiver,
    pub(super) sender: Sender,
    /// The message being sent.
    pub(super) outgoing: Option<TxMessage>,
    retry: FirstFpduRetry,
    /// Requests of the peer that wait for their response.
    responses: VecDeque<Response>,
    /// Request Identifier of our next Atomic Request.
    next_atomic: u32,
    pub(super) turn: TxSource,
    /// What the peer is told before the stream ends.
    terminate: Option<Terminate>,
    /// What is left of the last streaming message.
    streaming_message: VecDeque<u8>,
    /// Our RTR was a Read, whose response completes no work request.
    rtr_read: bool,
    /// The peer has closed its side: nothing comes any more.
    peer_closed: bool,
    port: Arc<LocalPort>,
}

impl Connection {
    pub(super) fn new(
        conn: ConnId,
        negotiated: &Negotiated,
        responder: bool,
        info: ConnectionInfo,
        extensions: bool,
        port: Arc<LocalPort>,
    ) -> Self {
        let config = stream_config(negotiated, &info, extensions);
        Self {
            deframer: Deframer::new(negotiated.crc, negotiated.receive_markers),
            stream: Stream::new(conn, negotiated, responder, config, port),
            info,
        }
    }

    /// What was settled for it.
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

    /// The Terminate at the head of what the peer has sent, if that is what it is (verbs.md A33).
    pub(super) fn read_terminate(&mut self, stack: &mut Stack) -> Option<ReceivedTerminate> {
        let Self {
            deframer, stream, ..
        } = self;
        let arrived = stack.readable_len(stream.conn);
        let bytes = stack.readable(stream.conn, arrived);
        let Ok(Step::Fpdu { ulpdu, .. }) = deframer.next(bytes) else {
            return None;
        };
        match stream.receiver.on_ulpdu(ulpdu, &mut NoResources) {
            Ok(Inbound::Terminate(terminate)) => Some(terminate),
            Ok(_) | Err(_) => None,
        }
    }

    /// Hands the TCP connection back.
    pub(super) fn release(self, device: &mut Device) {
        let Stream { conn, port, .. } = self.stream;
        let released = ConnChange::Released(conn, port);
        device.conn_changes.push(released);
    }
}

/// What both directions of the stream are set to.
fn stream_config(negotiated: &Negotiated, info: &ConnectionInfo, extensions: bool) -> StreamConfig {
    // An ORD that is left to the ULP may be 0, and yet an RTR that is a Read needs one (R6581-9.2-14).
    let rtr_reads = u16::from(info.rtr == Some(Rtr::Read));
    StreamConfig {
        version: negotiated.version,
        extensions,
        await_rtr: negotiated.enhanced.is_some_and(|it| it.await_rtr),
        ..StreamConfig::new(info.ird, info.ord.max(rtr_reads))
    }
}

impl Stream {
    fn new(
        conn: ConnId,
        negotiated: &Negotiated,
        responder: bool,
        config: StreamConfig,
        port: Arc<LocalPort>,
    ) -> Self {
        let tx_state = if responder {
            TxState::AwaitsFirstFpdu
        } else {
            TxState::Open
        };
        Self {
            conn,
            version: negotiated.version,
            tx_state,
            framer: Framer::new(negotiated.crc, negotiated.send_markers),
            receiver: Receiver::new(config),
            sender: Sender::new(config),
            outgoing: None,
            retry: FirstFpduRetry::new(None),
            responses: VecDeque::new(),
            next_atomic: 0,
            turn: TxSource::Request,
            terminate: None,
            streaming_message: VecDeque::new(),
            rtr_read: false,
            peer_closed: false,
            port,
        }
    }

    pub(super) fn conn(&self) -> ConnId {
        self.conn
    }

    pub(super) fn version(&self) -> u8 {
        self.version
    }

    /// FPDUs may be sent.
    pub(super) fn is_open(&self) -> bool {
        self.tx_state == TxState::Open
    }

    /// A work request may be sent next: FPDUs may go out, and neither a message nor a response is in front of it.
    pub(super) fn may_begin(&self) -> bool {
        self.is_open() && self.outgoing.is_none() && self.responses.is_empty()
    }

    /// TCP has been told to close.
    pub(super) fn is_closed(&self) -> bool {
        self.tx_state == TxState::Closed
    }

    /// Nothing may be sent before the peer's first FPDU.
    pub(super) fn awaits_first_fpdu(&self) -> bool {
        self.tx_state == TxState::AwaitsFirstFpdu
    }

    /// True while the Reply waits for room in the peer's window: nothing else is sent before the peer's first FPDU.
    pub(super) fn awaits_room(&self, stack: &Stack) -> bool {
        (self.awaits_first_fpdu() || self.is_closed()) && stack.has_unsent(self.conn)
    }

    /// The peer has closed its side.
    pub(super) fn is_peer_closed(&self) -> bool {
        self.peer_closed
    }

    pub(super) fn set_peer_closed(&mut self) {
        self.peer_closed = true;
    }

    /// True if it has something to send besides work requests that have not begun.
    pub(super) fn has_more(&self) -> bool {
        self.outgoing.is_some() || !self.responses.is_empty() || self.terminate.is_some()
    }

    /// Something is being sent, answered or received.
    pub(super) fn in_progress(&self) -> bool {
        let incoming = self.receiver.mid_message() || self.receiver.outstanding_reads() > 0;
        incoming || self.outgoing.is_some() || !self.responses.is_empty()
    }

    /// True if this side has nothing left to send, so that its FIN cuts nothing off; `has_posted`: work requests have not begun.
    pub(super) fn is_drained(&self, has_posted: bool) -> bool {
        // A responder whose peer has never spoken has nothing that it may send (RFC 5044 §7.1.2).
        let is_drained = self.awaits_first_fpdu() || !has_posted && self.responses.is_empty();
        // An RTR that is a Read is no work, but waits for its response likewise.
        let awaits_rtr = self.receiver.outstanding_reads() > 0;
        is_drained && !awaits_rtr && self.outgoing.is_none()
    }

    /// When the peer is to be woken, should it still be silent.
    pub(super) fn retry_due(&self) -> Option<Instant> {
        self.retry.due()
    }

    /// The connection is an initiator's: wakes its peer if that overlooks the first FPDU, and begins with the RTR, ahead of all work
    /// (R6581-5-1).
    pub(super) fn begin_as_initiator(&mut self, retry: FirstFpduRetry, rtr: Option<Rtr>) {
        self.retry = retry;
        let Some(rtr) = rtr else {
            return;
        };
        if rtr == Rtr::Read {
            self.receiver.expect_read(ReadRequest::RTR);
            self.rtr_read = true;
        }
        // Of no work request: none has begun.
        let message = self.sender.ready_to_receive(rtr);
        self.outgoing = Some(TxMessage::header_only(message));
    }

    /// These bytes go out before anything else, as they are.
    pub(super) fn begin_with(&mut self, message: VecDeque<u8>) {
        self.streaming_message = message;
        self.tx_state = TxState::StreamingMessage {
            has_first_fpdu: false,
        };
    }

    /// Sends what goes out before any message.
    pub(super) fn send_ahead(&mut self, stack: &mut Stack, now: Instant) -> Ahead {
        match self.tx_state {
            TxState::Open | TxState::AwaitsFirstFpdu if self.terminate.is_none() => Ahead::Nothing,
            TxState::Open | TxState::AwaitsFirstFpdu => self.send_terminate(stack, now),
            TxState::Closed => Ahead::Closed,
            TxState::StreamingMessage { has_first_fpdu } => {
                let message = self.streaming_message.make_contiguous();
                let sent = send_raw(stack, self.conn, message, now);
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
        if !send_ulpdu(stack, self.conn, &mut self.framer, &ulpdu, now) {
            return Ahead::Blocked;
        }
        self.terminate = None;
        self.close(stack, now);
        Ahead::Terminate
    }

    /// Has TCP close: nothing is sent any more.
    pub(super) fn close(&mut self, stack: &mut Stack, now: Instant) {
        self.tx_state = TxState::Closed;
        stack.close(self.conn, now);
    }

    /// Nothing more is begun or received. True if the Terminate goes out next; else, if there is none or it may not, TCP closes at
    /// once.
    pub(super) fn end(&mut self, terminate: Option<Terminate>, device: &mut Device) -> bool {
        self.outgoing = None;
        self.responses.clear();
        let rest = device.stack.readable_len(self.conn);
        device.counters.drop_after_failure += rest as u64;
        self.terminate = terminate
            .filter(|_| self.is_open())
            .map(|terminate| terminate.on_version(self.version));
        let tells = self.terminate.is_some();
        if tells {
            device.counters.terminates_out += 1;
        } else {
            self.close(&mut device.stack, device.now);
        }
        device.stack.consume(self.conn, rest);
        tells
    }

    /// An FPDU was handed to TCP.
    pub(super) fn note_sent(&mut self, now: Instant) {
        self.retry.sent(now);
    }

    /// An FPDU of the peer is here.
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

    /// Wakes a peer that has sent nothing since our first FPDU, by an RDMA Write of no bytes. Between the segments of a message there
    /// is no place for that, and no need: more comes. `begins_work`: the queue pair still sends.
    pub(super) fn retry_first_fpdu(&mut self, begins_work: bool, device: &mut Device) {
        let now = device.now;
        self.retry.passed(now);
        if !begins_work || !self.is_open() || self.outgoing.is_some() {
            return;
        }
        let mut message = self.sender.write(Stag::PLACEHOLDER, 0, 0);
        let Some(segment) = message.next_segment(MAX_ULPDU) else {
            return;
        };
        let (conn, framer) = (self.conn, &mut self.framer);
        if send_ulpdu(&mut device.stack, conn, framer, &segment.header, now) {
            device.counters.fpdus_out += 1;
            device.counters.first_fpdu_retries += 1;
        }
    }

    /// True for the first Read Response if it answers our RTR.
    pub(super) fn take_rtr_response(&mut self) -> bool {
        std::mem::take(&mut self.rtr_read)
    }

    /// The Request Identifier of our next Atomic Request.
    pub(super) fn next_atomic(&mut self) -> u32 {
        let id = self.next_atomic;
        self.next_atomic = id.wrapping_add(1);
        id
    }

    /// A request of the peer's waits for its turn to be answered.
    pub(super) fn queue_response(&mut self, response: Response) {
        self.responses.push_back(response);
    }

    /// The request of the peer's that is answered next.
    pub(super) fn next_response(&mut self) -> Option<Response> {
        self.responses.pop_front()
    }
}

/// Sends bytes that are no FPDU, as many as TCP takes now; how many.
pub(crate) fn send_raw(stack: &mut Stack, conn: ConnId, bytes: &[u8], now: Instant) -> usize {
    let mut sent = 0;
    for piece in bytes.chunks(stack.emss(conn).max(1)) {
        let Some(place) = stack.writable(conn, piece.len()) else {
            break;
        };
        place.copy_from_slice(piece);
        stack.commit(conn, piece.len(), now);
        sent += piece.len();
    }
    sent
}

/// Sends a ULPDU that is there whole; false if TCP takes nothing now.
pub(super) fn send_ulpdu(
    stack: &mut Stack,
    conn: ConnId,
    framer: &mut Framer,
    ulpdu: &[u8],
    now: Instant,
) -> bool {
    let len = framer.fpdu_len(ulpdu.len());
    let Some(fpdu) = stack.writable(conn, len) else {
        return false;
    };
    let Some(place) = fpdu.get_mut(Framer::ulpdu_at(ulpdu.len())) else {
        return false;
    };
    place.copy_from_slice(ulpdu);
    framer.seal(fpdu, ulpdu.len());
    stack.commit(conn, len, now);
    true
}

/// A closed queue pair takes no message.
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
