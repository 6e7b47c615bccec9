//! Protection domains.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::errno::Errno;

use super::context::Context;
use crate::abi::verbs::{ibv_context, ibv_pd};
use crate::backend;
use crate::entry::{Result, returns, sets};
use crate::object::{Kind, Object, next_handle};

/// A protection domain.
pub(crate) struct Pd {
    context: Arc<Object<Context>>,
    domain: Arc<backend::Pd>,
    /// The domain that this parent domain stands for.
    original: Option<Arc<Object<Pd>>>,
    /// Parent domains that stand for this domain.
    names: AtomicUsize,
}

impl Kind for Pd {
    type Abi = ibv_pd;
    type C = ibv_pd;
    const NAME: &'static str = "ibv_pd";
    const TAG: u32 = 0x7064_6431;
}

impl Pd {
    /// A domain of this context; EINVAL if it belongs to another one.
    pub(super) fn find_of(context: *mut ibv_context, pd: *mut ibv_pd) -> Result<Arc<Object<Self>>> {
        let pd = Object::<Self>::find(pd)?;
        let is_ours = Object::handle(pd.body().context()) == context;
        is_ours.then_some(pd).ok_or(Errno::EINVAL)
    }

    pub(crate) fn context(&self) -> &Arc<Object<Context>> {
        &self.context
    }

    pub(crate) fn domain(&self) -> &backend::Pd {
        &self.domain
    }
}

/// Makes a protection domain.
pub(crate) fn allocate(context: *mut ibv_context) -> Result<*mut ibv_pd> {
    let context = Object::<Context>::find(context)?;
    let domain = context.body().backend()?.alloc_pd()?;
    let abi = ibv_pd {
        context: Object::handle(&context),
        handle: next_handle(),
    };
    let body = Pd {
        context,
        domain,
        original: None,
        names: AtomicUsize::new(0),
    };
    Ok(Object::new(abi, body).publish())
}

/// Makes a parent domain for a protection domain.
pub(super) fn name_again(pd: &Arc<Object<Pd>>) -> *mut ibv_pd {
    let (abi, body) = (pd.with_abi(|abi| *abi), pd.body());
    body.names.fetch_add(1, Ordering::Relaxed);
    let body = Pd {
        context: Arc::clone(&body.context),
        domain: Arc::clone(&body.domain),
        original: Some(Arc::clone(pd)),
        names: AtomicUsize::new(0),
    };
    Object::new(abi, body).publish()
}

/// Destroys a protection domain or a parent domain. EBUSY while it has objects or parent domains.
pub(crate) fn deallocate(pd: *mut ibv_pd) -> Result<()> {
    let pd = Object::<Pd>::find(pd)?;
    if pd.body().names.load(Ordering::Relaxed) > 0 {
        return Err(Errno::EBUSY);
    }
    let Some(original) = &pd.body().original else {
        pd.body().domain.dealloc()?;
        return pd.destroy();
    };
    pd.destroy()?;
    original.body().names.fetch_sub(1, Ordering::Relaxed);
    Ok(())
}

/// `ibv_alloc_pd(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    sets(|| allocate(context))
}

/// `ibv_dealloc_pd(3)`: returns the error number.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    returns(|| deallocate(pd))
}
