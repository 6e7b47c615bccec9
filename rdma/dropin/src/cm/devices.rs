//! Contexts that the connection manager has opened. There is one for each device. All identifiers
//! share it, and it stays open as long as the process runs, as programs keep its address.

use std::ffi::c_int;
use std::ptr;
use std::sync::{Arc, Mutex};

use crate::abi::verbs::{ibv_context, ibv_pd};
use crate::entry::{Result, lock};
use crate::lists::Lists;
use crate::object::Object;
use crate::verbs::context::Context;
use crate::verbs::device::Device;
use crate::verbs::device_list::listed;
use crate::verbs::operations;
use crate::verbs::pd::{self, Pd};

/// An open device, and the default domain of its queue pairs.
struct Opened {
    device: Arc<Object<Device>>,
    context: Arc<Object<Context>>,
    /// The domain's address; 0 until it is needed.
    pd: usize,
}

static OPENED: Mutex<Vec<Opened>> = Mutex::new(Vec::new());

fn place_of(opened: &mut Vec<Opened>, device: &Arc<Object<Device>>) -> Result<usize> {
    let known = opened.iter().position(|it| Arc::ptr_eq(&it.device, device));
    if let Some(at) = known {
        return Ok(at);
    }
    let context = Object::<Context>::find(operations::open(device)?)?;
    context.keep();
    opened.push(Opened {
        device: Arc::clone(device),
        context,
        pd: 0,
    });
    Ok(opened.len() - 1)
}

/// The context of a device, which is opened if it is not open yet.
pub(super) fn context_of(device: &Arc<Object<Device>>) -> Result<Arc<Object<Context>>> {
    let mut opened = lock(&OPENED);
    let at = place_of(&mut opened, device)?;
    Ok(Arc::clone(&opened[at].context))
}

/// The default protection domain of queue pairs.
pub(super) fn default_pd(context: &Arc<Object<Context>>) -> Result<*mut ibv_pd> {
    let mut opened = lock(&OPENED);
    let of_context = opened
        .iter_mut()
        .find(|it| Arc::ptr_eq(&it.context, context));
    let of_context = of_context.ok_or(nix::errno::Errno::EINVAL)?;
    if of_context.pd == 0 {
        let made = pd::allocate(Object::handle(context))?;
        Object::<Pd>::find(made)?.keep();
        of_context.pd = made.expose_provenance();
    }
    Ok(ptr::with_exposed_provenance_mut(of_context.pd))
}

static LISTS: Lists<ibv_context> = Lists::new();

/// `rdma_get_devices(3)`: sets errno. The array ends in a null pointer.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_get_devices(number: Option<&mut c_int>) -> *mut *mut ibv_context {
    LISTS.publish(number, || {
        let devices = listed().defaults()?.into_iter();
        let handles = devices.map(|it| Ok(Object::handle(&context_of(&it)?)));
        handles.collect()
    })
}

/// `rdma_free_devices(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    LISTS.take_back(list);
}
