//! Contexts: devices that a program has opened. The RNIC itself is opened when the first object is
//! created. So querying a device needs no privilege, and leaves nothing behind.

use std::ffi::c_int;
use std::sync::{Arc, OnceLock};

use super::device::Device;
use super::device_list::report_failure;
use super::watched::{Events, Watched};
use crate::abi::Zeroed;
use crate::abi::verbs::{ibv_context, verbs_context};
use crate::backend::{Backend, BackendRef};
use crate::entry::{Result, on_panic, sets_status};
use crate::event_pipe::EventPipe;
use crate::object::{Kind, Object};

/// A context.
pub(crate) struct Context {
    device: Arc<Object<Device>>,
    backend: OnceLock<BackendRef>,
    /// Asynchronous events of its objects.
    events: Arc<Events>,
    /// The context's own events, of its device.
    watched: Arc<Watched>,
}

impl Kind for Context {
    type Abi = verbs_context;
    type C = ibv_context;
    const OFFSET: usize = std::mem::offset_of!(verbs_context, context);
    const NAME: &'static str = "ibv_context";
    const DESCRIPTORS: usize = EventPipe::DESCRIPTORS;
    const TAG: u32 = 0x6374_7831;
}

impl Context {
    pub(crate) fn device(&self) -> &Device {
        self.device.body()
    }

    pub(crate) fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// The context's RNIC, which is opened if it is not open yet.
    pub(crate) fn backend(&self) -> Result<Arc<Backend>> {
        if let Some(backend) = self.backend.get() {
            return backend.get();
        }
        let backend = BackendRef::new(&self.device().backend()?);
        self.backend.get_or_init(|| backend).get()
    }
}

/// Opens a device. The functions of the context are filled in by `fill`.
pub(super) fn open(
    device: &Arc<Object<Device>>,
    fill: fn(&mut verbs_context),
) -> Result<*mut ibv_context> {
    on_panic(report_failure);
    let events = Arc::new(Events::new()?);
    let mut abi = verbs_context::zeroed();
    abi.context.device = Object::handle(device);
    abi.context.cmd_fd = -1;
    abi.context.async_fd = events.descriptor();
    abi.context.num_comp_vectors = 1;
    abi.context.abi_compat = usize::MAX;
    abi.sz = size_of::<verbs_context>();
    fill(&mut abi);
    device.body().enter();
    let body = Context {
        device: Arc::clone(device),
        backend: OnceLock::new(),
        watched: Watched::new(&events, false),
        events,
    };
    let targets = device.body().targets();
    targets.add(body.watched.target());
    Ok(Object::new(abi, body).publish())
}

/// Closes a context.
pub(crate) fn close(context: *mut ibv_context) -> Result<()> {
    let context = Object::<Context>::find(context)?;
    context.destroy()?;
    context.body().watched.end();
    context.body().events.end();
    context.body().device().leave();
    Ok(())
}

/// `ibv_close_device(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    sets_status(|| close(context))
}
