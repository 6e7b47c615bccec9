//! Requests of peers that wait for an answer, and what became of attempts to connect.

use std::net::SocketAddr;

use nix::errno::Errno;
use xwarp::cm::{ConnectionRequest, Depth, PrivateData};
use xwarp::error::{AcceptError, ConnectError, HostError, ListenError, PortError};

use super::errors::Numbered;
use super::queue_pairs::QueuePairs;
use super::table::Table;
use crate::backend::QpHandle;
use crate::backend::connections::{ConnectionEvent, Failure, ReadDepths, Request, RequestHandle};
use crate::entry::Result;

/// Those that wait for an answer.
pub(super) struct Requests(Table<ConnectionRequest>);

impl Requests {
    pub(super) fn new() -> Self {
        Self(Table::new())
    }

    /// Keeps one until the program answers it. Returns what the program gets.
    pub(super) fn keep(&self, request: ConnectionRequest) -> Request {
        let (local, remote) = (request.local(), request.remote());
        let private_data = request.private_data().to_vec();
        let depths = request.enhanced().map(|peer| ReadDepths {
            ird: number(peer.ord),
            ord: number(peer.ird),
        });
        Request {
            handle: RequestHandle(self.0.insert(request)),
            local,
            remote,
            private_data,
            depths,
        }
    }

    /// Drops one that was not answered, which rejects the peer.
    pub(super) fn discard(&self, request: RequestHandle) {
        // It may have been answered already.
        let _ = self.0.destroy(request.0, |request| {
            drop(request);
            Ok(())
        });
    }

    /// Takes one out, to be answered.
    pub(super) fn answer(
        &self,
        request: RequestHandle,
        answer: impl FnOnce(ConnectionRequest) -> std::result::Result<(), AcceptError>,
    ) -> Result<()> {
        self.0.destroy(request.0, |request| {
            answer(request).map_err(|error| (error.errno(), None))
        })
    }
}

/// A depth as a number: the peer may leave it open.
fn number(depth: Depth) -> u16 {
    match depth {
        Depth::Count(reads) => reads,
        Depth::LeftToUlp => u16::MAX,
    }
}

/// The event of an attempt from `local` that has ended.
pub(super) fn outcome(
    local: SocketAddr,
    ended: std::result::Result<PrivateData, ConnectError>,
    qp: QpHandle,
    qps: &QueuePairs,
) -> ConnectionEvent {
    match ended {
        Ok(private_data) => ConnectionEvent::Connected {
            local,
            private_data: private_data.to_vec(),
            depths: qps.depths(qp).unwrap_or_default(),
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
