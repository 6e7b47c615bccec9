//! Connection manager: settings of MPA, requests of peers, connections that are being made (RFC 5044 §7.1, RFC 6581).
//!
//! [`QueuePair::connect`](crate::QueuePair::connect) makes a connection, [`Rnic::listen`](crate::Rnic::listen) waits for some.

pub use crate::bound::BoundPort;
pub use crate::connecting::Connecting;
pub use crate::listener::ConnectionRequest;
pub use crate::private_data::PrivateData;
pub use xwarp_iwarp::mpa::{Depth, EnhancedData, Revision, Rtr, RtrTypes};
pub use xwarp_rnic::model::{ConnectionInfo, Depths, MpaConfig, PeerToPeer};
