//! Program and mode of attaching: the first of each that the interface's driver takes.

use std::os::fd::{AsFd, BorrowedFd};

use xwarp_bpf::{Buffers, Steering};

use super::{AttachError, XdpMode};

/// What was attached in the end.
pub(super) struct Attached<T> {
    pub(super) steering: Steering,
    pub(super) link: T,
    pub(super) mode: XdpMode,
    /// Why it was not native mode.
    pub(super) native_refusal: Option<AttachError>,
}

/// Attaches in the wanted mode, or else in native and, when the driver refuses it, generic mode.
pub(super) fn attach<T>(
    wanted: Option<XdpMode>,
    frames: Buffers,
    ifindex: u32,
    attach: impl Fn(BorrowedFd<'_>, XdpMode) -> Result<T, AttachError>,
) -> Result<Attached<T>, AttachError> {
    let refusal = match in_mode(wanted.unwrap_or(XdpMode::Native), frames, ifindex, &attach) {
        Err(error) if wanted.is_none() && error.concerns_native_mode() => error,
        attached => return attached,
    };
    log::warn!("{refusal}; trying generic mode");
    let mut attached = in_mode(XdpMode::Generic, frames, ifindex, &attach)?;
    attached.native_refusal = Some(refusal);
    Ok(attached)
}

/// A driver may refuse native mode with frames of one buffer, as its MTU or its peer's allows larger ones. It may still take the program
/// for frames of any size.
fn in_mode<T>(
    mode: XdpMode,
    frames: Buffers,
    ifindex: u32,
    attach: &impl Fn(BorrowedFd<'_>, XdpMode) -> Result<T, AttachError>,
) -> Result<Attached<T>, AttachError> {
    match with_program(mode, frames, ifindex, attach) {
        Err(refusal) if frames == Buffers::One && refusal.concerns_native_mode() => {
            with_program(mode, Buffers::Many, ifindex, attach).map_err(|_refused_too| refusal)
        }
        attached => attached,
    }
}

/// The program that sees stripped VLAN tags where the kernel and the driver take it, else the one that goes everywhere.
fn with_program<T>(
    mode: XdpMode,
    frames: Buffers,
    ifindex: u32,
    attach: &impl Fn(BorrowedFd<'_>, XdpMode) -> Result<T, AttachError>,
) -> Result<Attached<T>, AttachError> {
    if mode == XdpMode::Native {
        let bound = Steering::load_bound(frames, ifindex).map_err(AttachError::from);
        match bound.and_then(|steering| with_loaded(steering, mode, attach)) {
            Err(refusal) => log::debug!("no program bound to the interface: {refusal}"),
            attached => return attached,
        }
    }
    with_loaded(Steering::load(frames)?, mode, attach)
}

fn with_loaded<T>(
    steering: Steering,
    mode: XdpMode,
    attach: &impl Fn(BorrowedFd<'_>, XdpMode) -> Result<T, AttachError>,
) -> Result<Attached<T>, AttachError> {
    let link = attach(steering.program()?.as_fd(), mode)?;
    Ok(Attached {
        steering,
        link,
        mode,
        native_refusal: None,
    })
}
