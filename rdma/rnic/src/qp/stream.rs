//! A queue pair's connection in full operation (RFC 5044 §7.1, RFC 5040).

use std::collections::VecDeque;
use std::sync::Arc;

use xwarp_iwarp::mpa::{Deframer, Framer, MAX_ULPDU, Negotiated, Rtr};
use xwarp_iwarp::{ReadRequest, Receiver, Sender, Stag, StreamConfig, Terminate};
use xwarp_tcp::{ConnId, Instant, Stack};

use super::first_fpdu_retry::Nudge;
use super::tx_message::{Outgoing, Response, Turn};
use crate::model::{ConnectionInfo, LocalPort};

/// Whether FPDUs may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// A responder sends nothing before the peer's first FPDU (RFC 5044 §7.1.2). Only memory work is done.
    Fenced,
    /// The last streaming message goes first (verbs draft §6.2.1.2); then it is fenced.
    Prefaced {
        /// The peer has sent an FPDU already.
        heard: bool,
    },
    Open,
    /// TCP has been told to close.
    Shut,
}

/// How this side closes a connection, where no error ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Close {
    /// It does not.
    None,
    /// Once everything posted is sent; what the peer still sends is taken (RFC 5041 §6.2.1).
    Draining,
    /// By Modify QP: whatever the peer still sends is an error (verbs draft §6.2.5).
    Sealed,
}

/// One RDMAP stream over one TCP connection.
pub(crate) struct Stream {
    pub(crate) conn: ConnId,
    /// DDP and RDMAP version.
    pub(crate) version: u8,
    pub(crate) gate: Gate,
    pub(crate) deframer: Deframer,
    pub(crate) framer: Framer,
    pub(crate) receiver: Receiver,
    pub(crate) sender: Sender,
    /// The message being sent.
    pub(crate) outgoing: Option<Outgoing>,
    pub(crate) nudge: Nudge,
    /// Requests of the peer that wait for their response.
    pub(crate) responses: VecDeque<Response>,
    /// Request Identifier of our next Atomic Request.
    pub(crate) next_atomic: u32,
    pub(crate) turn: Turn,
    /// What the peer is told before the stream ends.
    pub(crate) terminate: Option<Terminate>,
    /// What has begun to close it.
    pub(crate) close: Close,
    /// What is left of the last streaming message.
    preface: VecDeque<u8>,
    /// Our RTR was a Read, whose response completes no work request.
    rtr_read: bool,
    /// The peer has closed its side: nothing comes any more.
    pub(crate) peer_closed: bool,
    pub(crate) port: Arc<LocalPort>,
}

impl Stream {
    pub(crate) fn new(
        conn: ConnId,
        negotiated: &Negotiated,
        responder: bool,
        info: &ConnectionInfo,
        extensions: bool,
        port: Arc<LocalPort>,
    ) -> Self {
        // An ORD that is left to the ULP may be 0, and yet an RTR that is a Read needs one (R6581-9.2-14).
        let rtr_reads = u16::from(info.rtr == Some(Rtr::Read));
        let config = StreamConfig {
            version: negotiated.version,
            extensions,
            await_rtr: negotiated.enhanced.is_some_and(|it| it.await_rtr),
            ..StreamConfig::new(info.ird, info.ord.max(rtr_reads))
        };
        Self {
            conn,
            version: negotiated.version,
            gate: if responder { Gate::Fenced } else { Gate::Open },
            deframer: Deframer::new(negotiated.crc, negotiated.receive_markers),
            framer: Framer::new(negotiated.crc, negotiated.send_markers),
            receiver: Receiver::new(config),
            sender: Sender::new(config),
            outgoing: None,
            nudge: Nudge::new(None),
            responses: VecDeque::new(),
            next_atomic: 0,
            turn: Turn::Request,
            terminate: None,
            close: Close::None,
            preface: VecDeque::new(),
            rtr_read: false,
            peer_closed: false,
            port,
        }
    }

    /// True while the Reply waits for room in the peer's window: nothing else is sent before the peer's first FPDU.
    pub(crate) fn awaits_room(&self, stack: &Stack) -> bool {
        matches!(self.gate, Gate::Fenced | Gate::Shut) && stack.has_unsent(self.conn)
    }

    /// True if it has something to send besides work requests that have not begun.
    pub(crate) fn has_more(&self) -> bool {
        self.outgoing.is_some() || !self.responses.is_empty() || self.terminate.is_some()
    }

    /// An initiator of the peer-to-peer model begins with its RTR, ahead of all work (R6581-5-1).
    pub(crate) fn begin_rtr(&mut self, rtr: Rtr) {
        if rtr == Rtr::Read {
            self.receiver.expect_read(ReadRequest::RTR);
            self.rtr_read = true;
        }
        // Of no work request: none has begun.
        let message = self.sender.ready_to_receive(rtr);
        self.outgoing = Some(Outgoing::header_only(message));
    }

    /// These bytes go out before anything else, as they are.
    pub(crate) fn begin_with(&mut self, preface: VecDeque<u8>) {
        self.preface = preface;
        self.gate = Gate::Prefaced { heard: false };
    }

    /// Sends of them what TCP takes now; false if some are left.
    pub(crate) fn send_preface(&mut self, stack: &mut Stack, now: Instant) -> bool {
        let sent = send_raw(stack, self.conn, self.preface.make_contiguous(), now);
        self.preface.drain(..sent);
        if !self.preface.is_empty() {
            return false;
        }
        self.gate = match self.gate {
            Gate::Prefaced { heard: false } => Gate::Fenced,
            Gate::Prefaced { heard: true } => Gate::Open,
            other @ (Gate::Fenced | Gate::Open | Gate::Shut) => other,
        };
        true
    }

    /// The ULPDU of an RDMA Write of no bytes, which is its header.
    pub(crate) fn wake_up(&mut self) -> Vec<u8> {
        let mut message = self.sender.write(Stag::PLACEHOLDER, 0, 0);
        let segment = message.next_segment(MAX_ULPDU);
        segment.map_or_else(Vec::new, |segment| segment.header.to_vec())
    }

    /// True for the first Read Response if it answers our RTR.
    pub(crate) fn take_rtr_response(&mut self) -> bool {
        std::mem::take(&mut self.rtr_read)
    }

    /// An FPDU of the peer is here.
    pub(crate) fn heard(&mut self) {
        self.nudge.heard();
        match self.gate {
            Gate::Open | Gate::Shut => {}
            Gate::Fenced => self.gate = Gate::Open,
            Gate::Prefaced { .. } => self.gate = Gate::Prefaced { heard: true },
        }
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
pub(crate) fn send_ulpdu(
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
