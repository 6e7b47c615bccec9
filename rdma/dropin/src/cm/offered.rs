//! A peer that waits for an answer: rejected unless it is answered.

use std::sync::Arc;

use crate::backend::Backend;
use crate::backend::connections::{Request, RequestHandle};
use crate::object::Object;
use crate::verbs::device::Device;

/// See the module.
pub(super) struct Offered {
    request: Request,
    device: Arc<Object<Device>>,
    backend: Arc<dyn Backend>,
    answered: bool,
}

impl Offered {
    pub(super) fn new(
        request: Request,
        device: &Arc<Object<Device>>,
        backend: &Arc<dyn Backend>,
    ) -> Self {
        Self {
            request,
            device: Arc::clone(device),
            backend: Arc::clone(backend),
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
    pub(super) fn answer(mut self) -> (Arc<dyn Backend>, RequestHandle) {
        self.answered = true;
        (Arc::clone(&self.backend), self.request.handle)
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        // A peer that is gone needs no answer.
        if !self.answered
            && let Err(errno) = self.backend.reject(self.request.handle, &[])
        {
            log::debug!("a peer that was not answered has gone: {errno}");
        }
    }
}
