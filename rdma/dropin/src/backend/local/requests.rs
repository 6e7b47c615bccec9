//! Connection requests of peers, and outcomes of attempts to connect.

use std::net::SocketAddr;
use std::sync::Arc;

use nix::errno::Errno;
use xwarp::cm::{ConnectionRequest, Depth, PrivateData};
use xwarp::error::{AcceptError, ConnectError, HostError, ListenError, PortError};

use super::connection_event::{ConnectionEvent, Failure, ReadDepths, Request};
use super::errors::Numbered;
use super::peer::PeerRequest;

/// The program's view of a connection request.
pub(super) fn request(request: ConnectionRequest) -> Request {
    let depths = request.enhanced().map(|peer| ReadDepths {
        ird: number(peer.ord),
        ord: number(peer.ird),
    });
    Request {
        local: request.local(),
        remote: request.remote(),
        private_data: request.private_data().to_vec(),
        depths,
        peer: Arc::new(PeerRequest::new(request)),
    }
}

/// A depth as a number: the peer may leave it open.
fn number(depth: Depth) -> u16 {
    match depth {
        Depth::Count(reads) => reads,
        Depth::LeftToUlp => u16::MAX,
    }
}

/// The event of a finished attempt from `local`.
pub(super) fn outcome(
    local: SocketAddr,
    ended: std::result::Result<PrivateData, ConnectError>,
    depths: Option<ReadDepths>,
) -> ConnectionEvent {
    match ended {
        Ok(private_data) => ConnectionEvent::Connected {
            local,
            private_data: private_data.to_vec(),
            depths: depths.unwrap_or_default(),
        },
        Err(error) => ConnectionEvent::NotConnected(failure(error)),
    }
}

fn failure(error: ConnectError) -> Failure {
    let refused = |private_data| Failure::Rejected {
        errno: Errno::ECONNREFUSED,
        private_data,
    };
    match error {
        ConnectError::Rejected { private_data, .. } => refused(private_data),
        ConnectError::Refused(_) => refused(Vec::new()),
        ConnectError::PeerClosed(_) => Failure::Rejected {
            errno: Errno::ECONNRESET,
            private_data: Vec::new(),
        },
        ConnectError::TimedOut { .. } => Failure::Unreachable(Errno::ETIMEDOUT),
        ConnectError::Host(HostError::Port(_)) => Failure::Failed(error.errno()),
        ConnectError::Host(_) => Failure::Unreachable(Errno::EHOSTUNREACH),
        other => {
            log::info!("not connected: {other}");
            Failure::Failed(other.errno())
        }
    }
}

impl Numbered for ConnectError {
    fn errno(&self) -> Errno {
        match self {
            Self::Unavailable(error) => error.errno(),
            Self::Host(error) => error.errno(),
            Self::Rejected { .. } | Self::Refused(_) => Errno::ECONNREFUSED,
            Self::TimedOut { .. } => Errno::ETIMEDOUT,
            Self::PeerClosed(_) => Errno::ECONNRESET,
            Self::NotIwarp { .. } | Self::Unacceptable { .. } => Errno::EPROTO,
            Self::AddressLost(_) => Errno::EADDRNOTAVAIL,
            Self::Resources(_) => Errno::ENOMEM,
            _ => Errno::EINVAL,
        }
    }
}

impl Numbered for AcceptError {
    fn errno(&self) -> Errno {
        match self {
            Self::Unavailable(error) => error.errno(),
            Self::PeerGone => Errno::ECONNRESET,
            _ => Errno::EINVAL,
        }
    }
}

impl Numbered for ListenError {
    fn errno(&self) -> Errno {
        match self {
            Self::Unavailable(error) => error.errno(),
            Self::Host(error) => error.errno(),
            Self::NotOurs { .. } => Errno::EADDRNOTAVAIL,
            Self::Taken(_) => Errno::EADDRINUSE,
            Self::System(error) => error.raw_os_error().map_or(Errno::EIO, Errno::from_raw),
            _ => Errno::EIO,
        }
    }
}

impl Numbered for HostError {
    fn errno(&self) -> Errno {
        match self {
            Self::Port(PortError::InUse { .. } | PortError::NoneFree { .. }) => Errno::EADDRINUSE,
            Self::Port(PortError::AddressNotLocal { .. }) => Errno::EADDRNOTAVAIL,
            Self::Port(PortError::NotPermitted { .. }) => Errno::EACCES,
            Self::Port(PortError::NoDescriptors) => Errno::EMFILE,
            Self::Steering(_) => Errno::ENOSPC,
            Self::Route(_) | Self::OtherInterface { .. } => Errno::ENETUNREACH,
            Self::Neighbour(_) | Self::Unknown(_) => Errno::EHOSTUNREACH,
            Self::Interface(_) => Errno::ENODEV,
            _ => Errno::EIO,
        }
    }
}
