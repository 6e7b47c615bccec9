//! Thread domains, which have no effect here, and parent domains, which are protection domains by
//! another name.

use std::ffi::c_int;

use nix::errno::Errno;

use super::context::Context;
use super::pd::{self, Pd};
use crate::abi::numbers::IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
use crate::abi::numbers::IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
use crate::abi::verbs::{
    ibv_context, ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr,
};
use crate::entry::{returns, sets};
use crate::object::{Kind, Object};

/// A thread domain: with it a program promises that one thread at a time uses the domain's objects.
/// It saves no locks here, as they are cheap enough.
struct Td;

impl Kind for Td {
    type Abi = ibv_td;
    type C = ibv_td;
    const NAME: &'static str = "ibv_td";
    const TAG: u32 = 0x7464_2031;
}

/// `ibv_alloc_td(3)`: sets errno.
pub(super) extern "C" fn alloc_td(
    context: *mut ibv_context,
    attr: Option<&ibv_td_init_attr>,
) -> *mut ibv_td {
    sets(|| {
        Object::<Context>::find(context)?;
        match attr.ok_or(Errno::EINVAL)? {
            // Inline functions of the header find the destroying function by its context.
            ibv_td_init_attr { comp_mask: 0 } => Ok(Object::new(ibv_td { context }, Td).publish()),
            _ => Err(Errno::EOPNOTSUPP),
        }
    })
}

/// `ibv_dealloc_td(3)`: returns the error number.
pub(super) extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    returns(|| Object::<Td>::find(td)?.destroy())
}

/// `ibv_alloc_parent_domain(3)`: sets errno. A program's allocators are refused, as objects are not
/// allocated in its memory.
pub(super) extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: Option<&ibv_parent_domain_init_attr>,
) -> *mut ibv_pd {
    sets(|| {
        let attr = attr.ok_or(Errno::EINVAL)?;
        if attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        // Only allocators use such a context.
        if attr.comp_mask & !IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT != 0 {
            return Err(Errno::EINVAL);
        }
        let parent = Pd::find_of(context, attr.pd)?;
        if !attr.td.is_null() {
            let td = Object::<Td>::find(attr.td)?;
            if td.with_abi(|abi| abi.context) != context {
                return Err(Errno::EINVAL);
            }
        }
        Ok(pd::name_again(&parent))
    })
}
