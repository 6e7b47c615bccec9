//! Protection domains.

use std::ffi::c_int;
use std::sync::Arc;

use super::context::Context;
use crate::abi::verbs::{ibv_context, ibv_pd};
use crate::backend::{Backend, PdHandle};
use crate::entry::{Result, returns, sets};
use crate::object::{Kind, Object};

/// A protection domain.
pub(crate) struct Pd {
    context: Arc<Object<Context>>,
    backend: Arc<dyn Backend>,
    handle: PdHandle,
}

impl Kind for Pd {
    type Abi = ibv_pd;
    type C = ibv_pd;
    const TAG: u32 = 0x7064_6431;
}

impl Pd {
    pub(crate) fn context(&self) -> &Arc<Object<Context>> {
        &self.context
    }

    pub(crate) fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    pub(crate) fn handle(&self) -> PdHandle {
        self.handle
    }
}

/// Makes a protection domain.
pub(crate) fn allocate(context: *mut ibv_context) -> Result<*mut ibv_pd> {
    let context = Object::<Context>::find(context)?;
    let backend = context.body().backend()?;
    let handle = backend.alloc_pd()?;
    let abi = ibv_pd {
        context: Object::handle(&context),
        handle: handle.0,
    };
    let body = Pd {
        context,
        backend,
        handle,
    };
    Ok(Object::new(abi, body).publish())
}

/// Ends a protection domain.
pub(crate) fn deallocate(pd: *mut ibv_pd) -> Result<()> {
    let pd = Object::<Pd>::find(pd)?;
    pd.body().backend.dealloc_pd(pd.body().handle)?;
    pd.destroy()
}

/// ibv_alloc_pd(3): sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    sets(|| allocate(context))
}

/// ibv_dealloc_pd(3): returns the error number.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    returns(|| deallocate(pd))
}
