//! Asynchronous events as programs take them.

use std::ffi::c_int;
use std::ptr;

use nix::errno::Errno;

use super::context::Context;
use super::cq::Cq;
use super::qp::Qp;
use super::srq::Srq;
use super::watched::Event;
use crate::abi::numbers::{
    IBV_EVENT_CQ_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_LAST_WQE_REACHED,
    IBV_EVENT_QP_REQ_ERR, IBV_EVENT_SRQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED,
};
use crate::abi::verbs::{ibv_async_event, ibv_context};
use crate::cancellation::{Begun, Sleep, give, waits};
use crate::entry::{Result, always};
use crate::object::Object;

/// Port that an event of the device names.
const PORT: usize = 1;

fn taken(event: &Event) -> ibv_async_event {
    let object = &event.object;
    let element = match object.element() {
        0 => ptr::without_provenance_mut(PORT),
        address => {
            object.unacknowledged().add();
            ptr::with_exposed_provenance_mut(address)
        }
    };
    ibv_async_event {
        element,
        event_type: event.kind,
    }
}

fn acknowledge(event: &ibv_async_event) -> Result<()> {
    let element = event.element;
    let is_one = |events: &[u32]| events.contains(&event.event_type);
    if is_one(&[IBV_EVENT_CQ_ERR]) {
        let cq = Object::<Cq>::find(element.cast())?;
        cq.body().watched().unacknowledged().remove(1);
    } else if is_one(&[IBV_EVENT_SRQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED]) {
        let srq = Object::<Srq>::find(element.cast())?;
        srq.body().watched().unacknowledged().remove(1);
    } else if is_one(&[
        IBV_EVENT_QP_FATAL,
        IBV_EVENT_QP_REQ_ERR,
        IBV_EVENT_QP_ACCESS_ERR,
        IBV_EVENT_QP_LAST_WQE_REACHED,
    ]) {
        let qp = Object::<Qp>::find(element.cast())?;
        qp.body().watched().unacknowledged().remove(1);
    }
    Ok(())
}

/// `ibv_get_async_event(3)`: sets errno. A cancellation point.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    mut event: Option<&mut ibv_async_event>,
) -> c_int {
    let is_given = event.is_some();
    let begin = || {
        if !is_given {
            return Err(Errno::EINVAL);
        }
        let context = Object::<Context>::find(context)?;
        let descriptor = context.body().events().opened()?;
        Ok(Begun::Waits(Sleep::on(descriptor, context)))
    };
    waits(begin, |context| {
        let next = context.body().events().take_counted(|next| taken(&next));
        Ok(next.map(|next| give(&mut event, next)))
    })
}

/// `ibv_ack_async_event(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_ack_async_event(event: Option<&ibv_async_event>) {
    always((), || acknowledge(event.ok_or(Errno::EINVAL)?));
}
