//! A queue pair's connection in full operation (RFC 5044 §7.1, RFC 5040).

use std::collections::VecDeque;
use std::sync::Arc;

use xwarp_iwarp::mpa::Negotiated;
use xwarp_iwarp::{InboundRead, Receiver, Sender, StreamConfig, Terminate};
use xwarp_tcp::ConnId;

use super::outgoing::Outgoing;
use crate::host::LocalPort;

/// DDP and RDMAP version of the RFCs (RFC 5040 §4.1, RFC 5041 §4.1).
const IETF_VERSION: u8 = 1;

/// One RDMAP stream over one TCP connection.
pub(super) struct Stream {
    pub(super) conn: ConnId,
    pub(super) crc: bool,
    /// The responder's fence: nothing may be sent before the peer's first FPDU (RFC 5044 §7.1.2).
    pub(super) fenced: bool,
    pub(super) receiver: Receiver,
    pub(super) sender: Sender,
    /// The message being sent.
    pub(super) outgoing: Option<Outgoing>,
    /// Reads of the peer that wait for their response.
    pub(super) responses: VecDeque<InboundRead>,
    /// A response has its turn before the next request of ours.
    pub(super) response_turn: bool,
    /// What the peer is told before the stream ends.
    pub(super) terminate: Option<Terminate>,
    /// The connection is closed once everything posted is sent.
    pub(super) closing: bool,
    /// TCP has been told to close.
    pub(super) fin_sent: bool,
    /// The peer has closed its side.
    pub(super) peer_closed: bool,
    pub(super) port: Arc<LocalPort>,
}

impl Stream {
    pub(super) fn new(
        conn: ConnId,
        negotiated: Negotiated,
        responder: bool,
        (ird, ord): (u16, u16),
        port: Arc<LocalPort>,
    ) -> Self {
        let config = StreamConfig {
            ird,
            ord,
            version: IETF_VERSION,
        };
        Self {
            conn,
            crc: negotiated.crc,
            fenced: responder,
            receiver: Receiver::new(config),
            sender: Sender::new(config),
            outgoing: None,
            responses: VecDeque::with_capacity(usize::from(ird)),
            response_turn: false,
            terminate: None,
            closing: false,
            fin_sent: false,
            peer_closed: false,
            port,
        }
    }
}
