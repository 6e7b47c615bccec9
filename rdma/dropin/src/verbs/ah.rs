//! Address handles, which programs create to check an address. No datagram service uses them.

use std::ffi::c_int;
use std::net::Ipv6Addr;

use nix::errno::Errno;

use super::pd::Pd;
use crate::abi::verbs::{ibv_ah, ibv_ah_attr, ibv_pd};
use crate::entry::{Result, returns, sets};
use crate::object::{Kind, Object};

/// An address handle.
struct Ah;

impl Kind for Ah {
    type Abi = ibv_ah;
    type C = ibv_ah;
    const NAME: &'static str = "ibv_ah";
    const TAG: u32 = 0x6168_2031;
}

fn create(pd: *mut ibv_pd, attr: &ibv_ah_attr) -> Result<*mut ibv_ah> {
    let pd = Object::<Pd>::find(pd)?;
    let to = Ipv6Addr::from(attr.grh.dgid.0);
    let is_good = attr.is_global != 0 && attr.port_num == 1 && !to.is_unspecified();
    if !is_good {
        return Err(Errno::EINVAL);
    }
    let abi = ibv_ah {
        context: Object::handle(pd.body().context()),
        pd: Object::handle(&pd),
        handle: 0,
    };
    Ok(Object::new(abi, Ah).publish())
}

/// `ibv_create_ah(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: Option<&ibv_ah_attr>) -> *mut ibv_ah {
    sets(|| create(pd, attr.ok_or(Errno::EINVAL)?))
}

/// `ibv_destroy_ah(3)`: returns the error number.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    returns(|| Object::<Ah>::find(ah)?.destroy())
}
