//! A connection that a queue pair is making as MPA initiator.

use std::net::SocketAddr;
use std::sync::Arc;

use xwarp_iwarp::mpa::StartupParams;
use xwarp_tcp::{ConnId, Instant};

use crate::model::{ConnectError, LocalPort};
use crate::queues::Inbox;

/// The private data of the peer's answer.
pub(crate) type Outcome = Result<Vec<u8>, ConnectError>;

/// A connection of ours that is being made.
pub(crate) struct Starting {
    pub(crate) conn: ConnId,
    pub(crate) port: Arc<LocalPort>,
    pub(crate) spare: Option<LocalPort>,
    pub(crate) remote: SocketAddr,
    pub(crate) next_hop: [u8; 6],
    pub(crate) params: StartupParams,
    pub(crate) private_data: Vec<u8>,
    pub(crate) began: Instant,
    /// TCP is established and the Request sent.
    pub(crate) requested: bool,
    /// Something has come upon it.
    pub(crate) answered: bool,
    /// This is the second try: the peer was there, and has closed.
    pub(crate) retried: bool,
    pub(crate) outcome: Arc<Inbox<Outcome>>,
}
