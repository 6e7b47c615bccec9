//! Connection requests that the program has not answered.

use std::fmt;
use std::sync::Mutex;

use nix::errno::Errno;
use xwarp::cm::ConnectionRequest;

use super::errors::Numbered;
use super::owned::Release;
use crate::entry::{Result, lock};

/// A connection request, until it is answered. If it is dropped unanswered, the peer is rejected.
pub(crate) struct PeerRequest(Mutex<Option<ConnectionRequest>>);

impl PeerRequest {
    pub(super) fn new(request: ConnectionRequest) -> Self {
        Self(Mutex::new(Some(request)))
    }

    /// Takes the request, to answer it. EINVAL if it was answered before.
    pub(super) fn take(&self) -> Result<ConnectionRequest> {
        lock(&self.0).take().ok_or(Errno::EINVAL)
    }

    /// Rejects the peer.
    pub(crate) fn reject(&self, private_data: &[u8]) -> Result<()> {
        let rejected = self.take()?.reject(private_data);
        rejected.map_err(|error| error.errno())
    }
}

impl Release for PeerRequest {
    fn release(&self) {
        drop(self.take());
    }
}

impl fmt::Debug for PeerRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerRequest").finish_non_exhaustive()
    }
}
