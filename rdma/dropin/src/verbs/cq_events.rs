//! Completion events as programs take them.

use std::ffi::{c_int, c_void};

use nix::errno::Errno;

use super::channel::Channel;
use super::cq::Cq;
use crate::abi::verbs::{ibv_comp_channel, ibv_cq};
use crate::entry::{always, sets_status};
use crate::object::Object;

/// `ibv_get_cq_event(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: Option<&mut *mut ibv_cq>,
    cq_context: Option<&mut *mut c_void>,
) -> c_int {
    sets_status(|| {
        let channel = Object::<Channel>::find(channel)?;
        let (cq, cq_context) = (cq.ok_or(Errno::EINVAL)?, cq_context.ok_or(Errno::EINVAL)?);
        *cq = channel.body().take()?;
        *cq_context = Object::<Cq>::find(*cq)?.with_abi(|abi| abi.cq.cq_context);
        Ok(())
    })
}

/// `ibv_ack_cq_events(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, events: u32) {
    always((), || {
        let cq = Object::<Cq>::find(cq)?;
        cq.body().watched().unacknowledged().remove(events.into());
        Ok(())
    });
}
