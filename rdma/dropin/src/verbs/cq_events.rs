//! Completion events as programs take them.

use std::ffi::{c_int, c_void};

use nix::errno::Errno;

use super::channel::Channel;
use super::cq::Cq;
use crate::abi::verbs::{ibv_comp_channel, ibv_cq};
use crate::cancellation::{Begun, Sleep, give, waits};
use crate::entry::always;
use crate::object::Object;

/// `ibv_get_cq_event(3)`: sets errno. A cancellation point.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    mut cq: Option<&mut *mut ibv_cq>,
    mut cq_context: Option<&mut *mut c_void>,
) -> c_int {
    let are_given = cq.is_some() && cq_context.is_some();
    let begin = || {
        let channel = Object::<Channel>::find(channel)?;
        if !are_given {
            return Err(Errno::EINVAL);
        }
        let descriptor = channel.body().descriptor()?;
        Ok(Begun::Waits(Sleep::on(descriptor, channel)))
    };
    waits(begin, |channel| {
        let Some(taken) = channel.body().take_counted() else {
            return Ok(None);
        };
        let context = Object::<Cq>::find(taken)?.with_abi(|abi| abi.cq.cq_context);
        give(&mut cq, taken);
        give(&mut cq_context, context);
        Ok(Some(()))
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
