//! A queue pair's connection in full operation (RFC 5044 §7.1, RFC 5040).

use std::collections::VecDeque;
use std::sync::Arc;

use xwarp_iwarp::mpa::{Deframer, Framer, Negotiated};
use xwarp_iwarp::{Receiver, Sender, StreamConfig, Terminate};
use xwarp_tcp::ConnId;

use super::outgoing::{Outgoing, Response};
use crate::host::LocalPort;

/// Whether FPDUs may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// A responder sends nothing before the peer's first FPDU (RFC 5044 §7.1.2).
    Fenced,
    Open,
    /// TCP has been told to close.
    Shut,
}

/// Whose message is next where both a work request and a response wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Request,
    Response,
}

/// One RDMAP stream over one TCP connection.
pub(super) struct Stream {
    pub(super) conn: ConnId,
    pub(super) crc: bool,
    pub(super) gate: Gate,
    pub(super) deframer: Deframer,
    pub(super) framer: Framer,
    pub(super) receiver: Receiver,
    pub(super) sender: Sender,
    /// The message being sent.
    pub(super) outgoing: Option<Outgoing>,
    /// Requests of the peer that wait for their response.
    pub(super) responses: VecDeque<Response>,
    /// Request Identifier of our next Atomic Request.
    pub(super) next_atomic: u32,
    pub(super) turn: Turn,
    /// What the peer is told before the stream ends.
    pub(super) terminate: Option<Terminate>,
    /// The connection is closed once everything posted is sent.
    pub(super) closing: bool,
    /// The peer has closed its side: nothing comes any more.
    pub(super) peer_closed: bool,
    pub(super) port: Arc<LocalPort>,
}

impl Stream {
    pub(super) fn new(
        conn: ConnId,
        negotiated: Negotiated,
        responder: bool,
        (ird, ord): (u16, u16),
        extensions: bool,
        port: Arc<LocalPort>,
    ) -> Self {
        let config = StreamConfig {
            version: negotiated.version,
            extensions,
            ..StreamConfig::new(ird, ord)
        };
        Self {
            conn,
            crc: negotiated.crc,
            gate: if responder { Gate::Fenced } else { Gate::Open },
            deframer: Deframer::new(negotiated.crc, negotiated.receive_markers),
            framer: Framer::new(negotiated.crc, negotiated.send_markers),
            receiver: Receiver::new(config),
            sender: Sender::new(config),
            outgoing: None,
            responses: VecDeque::with_capacity(usize::from(ird)),
            next_atomic: 0,
            turn: Turn::Request,
            terminate: None,
            closing: false,
            peer_closed: false,
            port,
        }
    }

    /// The peer's first FPDU is here.
    pub(super) fn open_fence(&mut self) {
        if self.gate == Gate::Fenced {
            self.gate = Gate::Open;
        }
    }
}
