//! Accepting: a queue pair becomes this side's end of a connection that a peer requested.

use xwarp_rnic::model::AcceptError;

use super::QueuePair;
use crate::cm::listener::ConnectionRequest;

impl ConnectionRequest {
    /// Accepts the connection: `qp`, which must be Idle, becomes this side's end. Post receives
    /// before. Sends wait for the peer's first message (RFC 5044 §7.1.2). If the Request is
    /// enhanced, `qp`'s ORD is lowered to the peer's IRD and its IRD to the peer's ORD (RFC 6581
    /// §9.1). `private_data` has 512 bytes at most, 508 if the Request is enhanced. An error
    /// rejects the peer.
    ///
    /// # Errors
    ///
    /// - [`AcceptError::InvalidState`]: `qp` is not in Idle, or is connecting.
    /// - [`AcceptError::OtherRnic`]: `qp` belongs to another RNIC.
    /// - [`AcceptError::PeerGone`]: the peer has ended the connection in the meantime.
    /// - [`AcceptError::PrivateDataTooLong`]: `private_data` does not fit into the Reply (RFC 5044
    ///   §7.1.1, RFC 6581 §6).
    /// - [`AcceptError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn accept(self, qp: &mut QueuePair, private_data: &[u8]) -> Result<(), AcceptError> {
        let engine = self.engine_for(qp.control())?;
        if !qp.move_to(engine)? {
            return Err(AcceptError::InvalidState(qp.state()));
        }
        self.accept_for(qp.id(), private_data)
    }
}
