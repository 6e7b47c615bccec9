//! Connection manager, application side: listening, accepting, rejecting.

use std::net::SocketAddr;
use std::sync::Arc;

use xwarp_iwarp::mpa::EnhancedData;

use super::listening::{Incoming, PortListener};
use crate::error::{RnicEnded, RnicUnavailable};
use crate::runtime::control::Control;
use xwarp_rnic::engine::IncomingRequest;
use xwarp_rnic::model::{AcceptError, IncomingId, QpId};

/// Listens for peers that connect.
pub type Listener = PortListener<ConnectionRequest>;

impl Incoming for ConnectionRequest {
    type Id = IncomingRequest;

    fn take(from: &Listener) -> Result<Option<Self>, RnicEnded> {
        let (inbox, control) = (from.inbox(), from.control());
        let request = control.take_or_ended(inbox.signal(), || inbox.take())?;
        Ok(request.map(|request| Self::new(request, control)))
    }

    /// Dropping `id` frees the request's place in the backlog, and the engine rejects the request.
    fn refuse(id: IncomingRequest, _: &Listener) {
        drop(id);
    }
}

/// A peer that wants to connect. Dropping the request rejects it.
pub struct ConnectionRequest {
    id: Option<IncomingId>,
    local: SocketAddr,
    remote: SocketAddr,
    private_data: Vec<u8>,
    revision: u8,
    enhanced: Option<EnhancedData>,
    control: Arc<Control>,
}

impl ConnectionRequest {
    fn new(request: IncomingRequest, control: &Arc<Control>) -> Self {
        drop(request.place);
        Self {
            id: Some(request.id),
            local: request.local,
            remote: request.remote,
            private_data: request.private_data,
            revision: request.revision,
            enhanced: request.enhanced,
            control: Arc::clone(control),
        }
    }

    /// Local address and port: one of the listener's addresses.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Address and port of the peer.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Private data of the MPA Request: at most 512 bytes (RFC 5044 §7.1.1), 508 from a peer of MPA
    /// revision 2 (RFC 6581 §6).
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// The peer's MPA revision: 1, 2, or 0 for the RDMA Consortium's. The answer has the same
    /// revision.
    pub fn revision(&self) -> u8 {
        self.revision
    }

    /// Read depths and RTR types in the peer's Request, unchanged (RFC 6581 §9.1). `None` if the
    /// Request is not enhanced.
    pub fn enhanced(&self) -> Option<EnhancedData> {
        self.enhanced
    }

    /// Whether the peer sends an RTR first, so that this side may send before the peer's
    /// application does (RFC 6581 §9.2).
    pub fn is_peer_to_peer(&self) -> bool {
        self.enhanced.is_some_and(|enhanced| enhanced.rtr.is_some())
    }

    /// The engine that has the request. Fails if `qp_control` belongs to another RNIC.
    pub(crate) fn engine_for(&self, qp_control: &Arc<Control>) -> Result<usize, AcceptError> {
        let id = self.id.ok_or(AcceptError::PeerGone)?;
        if !Arc::ptr_eq(&self.control, qp_control) {
            return Err(AcceptError::OtherRnic);
        }
        Ok(id.engine())
    }

    /// Accepts the request: `qp` becomes this side's end of the connection.
    pub(crate) fn accept_for(mut self, qp: QpId, private_data: &[u8]) -> Result<(), AcceptError> {
        let Some(id) = self.id.take() else {
            return Err(AcceptError::PeerGone);
        };
        let data = private_data.to_vec();
        let answered =
            (self.control).call_on(id.engine(), move |engine| engine.accept(id, qp, &data));
        self.settle(id, answered)
    }

    /// Rejects the peer by an MPA Reply with bit R, which carries `private_data` (RFC 5044 §7.1.1).
    ///
    /// # Errors
    ///
    /// - [`AcceptError::PeerGone`]: the peer has ended the connection in the meantime.
    /// - [`AcceptError::PrivateDataTooLong`]: `private_data` does not fit into the Reply (RFC 5044
    ///   §7.1.1, RFC 6581 §6).
    /// - [`AcceptError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn reject(self, private_data: &[u8]) -> Result<(), AcceptError> {
        self.answer_no(None, private_data)
    }

    /// Rejects the peer because its IRD is below the `ord` that this side needs. A peer of MPA
    /// revision 2 receives that value (RFC 6581 §9.1). Any other peer receives a plain rejection.
    /// The application decides whether an IRD suffices: [`accept`](Self::accept) takes any.
    ///
    /// # Errors
    ///
    /// - [`AcceptError::PeerGone`]: the peer has ended the connection in the meantime.
    /// - [`AcceptError::PrivateDataTooLong`]: `private_data` does not fit into the Reply (RFC 5044
    ///   §7.1.1, RFC 6581 §6).
    /// - [`AcceptError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn reject_for_ord(self, ord: u16, private_data: &[u8]) -> Result<(), AcceptError> {
        self.answer_no(Some(ord), private_data)
    }

    fn answer_no(mut self, ord: Option<u16>, private_data: &[u8]) -> Result<(), AcceptError> {
        let Some(id) = self.id.take() else {
            return Err(AcceptError::PeerGone);
        };
        let data = private_data.to_vec();
        let answered =
            (self.control).call_on(id.engine(), move |engine| engine.reject(id, ord, &data));
        self.settle(id, answered)
    }

    /// Answers the request. A request whose answer failed, or did not reach the engine, is rejected
    /// when it is dropped.
    fn settle(
        &mut self,
        id: IncomingId,
        answered: Result<Result<(), AcceptError>, RnicUnavailable>,
    ) -> Result<(), AcceptError> {
        let answered = answered.map_err(AcceptError::from).flatten();
        self.id = answered.is_err().then_some(id);
        answered
    }
}

impl Drop for ConnectionRequest {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.control.release_on(id.engine(), move |engine| {
                // A peer that has ended the connection needs no answer.
                let _ = engine.reject(id, None, &[]);
            });
        }
    }
}
