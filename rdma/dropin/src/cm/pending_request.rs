//! A peer that waits for an answer: rejected unless it is answered.

use std::sync::Arc;

use crate::backend::connections::{Request, RequestHandle};
use crate::backend::{Backend, BackendRef};
use crate::entry::Result;
use crate::object::Object;
use crate::verbs::device::Device;

/// See the module.
pub(super) struct PendingRequest {
    request: Request,
    device: Arc<Object<Device>>,
    backend: BackendRef,
    answered: bool,
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
            answered: false,
        }
    }

    pub(super) fn request(&self) -> &Request {
        &self.request
    }

    pub(super) fn device(&self) -> &Arc<Object<Device>> {
        &self.device
    }

    /// Takes it to answer it.
    pub(super) fn answer(mut self) -> Result<(Arc<dyn Backend>, RequestHandle)> {
        self.answered = true;
        Ok((self.backend.get()?, self.request.handle))
    }

    fn reject(&self) -> Result<()> {
        self.backend.get()?.reject(self.request.handle, &[])
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        // A peer that is gone needs no answer.
        if !self.answered
            && let Err(errno) = self.reject()
        {
            log::debug!("a peer that was not answered has gone: {errno}");
        }
    }
}
