//! A connection request that the program has not answered. If it is dropped unanswered, the peer is
//! rejected.

use std::sync::Arc;

use crate::backend::connection_event::Request;
use crate::backend::{Backend, BackendRef, PeerRequest};
use crate::entry::Result;
use crate::object::Object;
use crate::verbs::device::Device;

/// A connection request, until it is answered.
pub(super) struct PendingRequest {
    request: Request,
    device: Arc<Object<Device>>,
    backend: BackendRef,
}

impl PendingRequest {
    pub(super) fn new(
        request: Request,
        device: &Arc<Object<Device>>,
        backend: &BackendRef,
    ) -> Self {
        Self {
            request,
            device: Arc::clone(device),
            backend: backend.clone(),
        }
    }

    pub(super) fn request(&self) -> &Request {
        &self.request
    }

    pub(super) fn device(&self) -> &Arc<Object<Device>> {
        &self.device
    }

    /// Takes the request, to answer it. The RNIC stays open until the caller drops it.
    pub(super) fn answer(self) -> Result<(Arc<Backend>, Arc<PeerRequest>)> {
        Ok((self.backend.get()?, self.request.peer))
    }
}
