//! Accepting: a queue pair becomes this side's end of a connection that a peer requested.

use xwarp_rnic::model::AcceptError;

use super::QueuePair;
use crate::cm::listener::ConnectionRequest;

impl ConnectionRequest {
    /// Accepts the connection: `qp`, which must be Idle, becomes this side's end. Post receives
    /// before. Sends wait for the peer's first message (RFC 5044 §7.1.2). If the Request is
    /// enhanced, `qp`'s ORD is lowered to the peer's IRD and its IRD to the peer's ORD (RFC 6581
    /// §9.1). `private_data` has 512 bytes at most, 508 if the Request is enhanced. After an error
    /// the peer is rejected.
    ///
    /// # Errors
    ///
    /// - [`AcceptError::InvalidState`]: `qp` is not in Idle, or is being connected.
    /// - [`AcceptError::OtherRnic`]: `qp` is one of another RNIC.
    /// - [`AcceptError::PeerGone`]: the peer has ended the connection meanwhile.
    /// - [`AcceptError::PrivateDataTooLong`]: `private_data` does not fit into the Reply (RFC 5044
    ///   §7.1.1, RFC 6581 §6).
    /// - [`AcceptError::Unavailable`]: the RNIC was closed, or a handler of it calls.
    pub fn accept(self, qp: &mut QueuePair, private_data: &[u8]) -> Result<(), AcceptError> {
        let engine = self.engine_for(qp.control())?;
        if !qp.move_to(engine)? {
            return Err(AcceptError::InvalidState(qp.state()));
        }
        self.accept_for(qp.id(), private_data)
    }
}
