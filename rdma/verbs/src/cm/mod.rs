//! Connection manager: settings of MPA, requests of peers, connections that are being made (RFC
//! 5044 §7.1, RFC 6581).
//!
//! [`QueuePair::connect`](crate::QueuePair::connect) connects to a listener;
//! [`Rnic::listen`](crate::Rnic::listen) listens for peers.

pub(crate) mod attempt;
pub(crate) mod bound;
pub(crate) mod connecting;
pub(crate) mod listener;
pub(crate) mod listening;
pub(crate) mod private_data;
pub(crate) mod streaming;

pub use bound::BoundPort;
pub use connecting::Connecting;
pub use listener::ConnectionRequest;
pub use listening::{Incoming, PortListener};
pub use private_data::PrivateData;
pub use xwarp_iwarp::mpa::{Depth, EnhancedData, Revision, Rtr, RtrTypes};
pub use xwarp_rnic::model::{ConnectionInfo, Depths, MpaConfig, PeerToPeer};
