//! Program and mode of attaching: the first of each that the interface's driver accepts (decision
//! record driver/0015).
//!
//! Most drivers strip VLAN tags. In native mode, a program that is bound to the interface can ask
//! the driver for them (`bpf_xdp_metadata_rx_vlan_tag`, Linux 6.8); veth, ice and mlx5 support
//! that. So that program is tried first, and the plain one if the kernel refuses it. In generic
//! mode the tag is not available. xwarp disables no offload without a request.
//!
//! A VLAN interface and a bond have no native mode that reaches their sockets, so an RNIC on them
//! runs in generic mode. An RNIC on the lower interface could steer by tag, but a queue has one
//! AF_XDP socket: it would exclude RNICs on the other VLANs.

use std::os::fd::{AsFd, BorrowedFd};

use xwarp_bpf::{Asks, Buffers, Steering};

use super::error::AttachError;
use super::mode::XdpMode;

/// Result of attaching.
pub(super) struct Attached<T> {
    pub(super) steering: Steering,
    pub(super) link: T,
    pub(super) mode: XdpMode,
    /// Whether the program writes receive metadata.
    pub(super) describes: bool,
    /// Why it is not native mode, if that was tried.
    pub(super) native_refusal: Option<AttachError>,
}

/// Requirements on a program.
#[derive(Clone, Copy)]
pub(super) struct Purpose {
    /// Buffers that a frame may have.
    pub(super) frames: Buffers,
    /// Whether it shall write receive metadata, if the driver supports that.
    pub(super) describes: bool,
}

/// The mode to ask an interface of this kind for, where `wanted` is. A bond runs a native program
/// at its members. The kernel then redirects to no socket of the bond (`xsk_rcv_check`).
pub(crate) fn for_kind(
    kind: Option<&str>,
    ifname: &str,
    wanted: Option<XdpMode>,
) -> Result<Option<XdpMode>, AttachError> {
    if kind != Some("bond") {
        return Ok(wanted);
    }
    let refusal = AttachError::NativeBond(ifname.to_owned());
    match wanted {
        Some(XdpMode::Native) => return Err(refusal),
        Some(XdpMode::Generic) => {}
        None => log::warn!("{refusal}; trying that"),
    }
    Ok(Some(XdpMode::Generic))
}

/// Attaches in the wanted mode; without one, in native mode or, if the driver refuses, in generic
/// mode.
pub(super) fn attach<T>(
    wanted: Option<XdpMode>,
    purpose: Purpose,
    ifindex: u32,
    attach: impl Fn(BorrowedFd<'_>, XdpMode) -> Result<T, AttachError>,
) -> Result<Attached<T>, AttachError> {
    let refusal = match in_mode(wanted.unwrap_or(XdpMode::Native), purpose, ifindex, &attach) {
        Err(error) if wanted.is_none() && error.concerns_native_mode() => error,
        attached => return attached,
    };
    log::warn!("{refusal}; trying generic mode");
    let mut attached = in_mode(XdpMode::Generic, purpose, ifindex, &attach)?;
    attached.native_refusal = Some(refusal);
    Ok(attached)
}

/// If the driver refuses native mode with frames of one buffer, because its MTU or its peer's
/// allows larger ones, tries the program for frames of several buffers.
fn in_mode<T>(
    mode: XdpMode,
    purpose: Purpose,
    ifindex: u32,
    attach: &impl Fn(BorrowedFd<'_>, XdpMode) -> Result<T, AttachError>,
) -> Result<Attached<T>, AttachError> {
    match with_program(mode, purpose, ifindex, attach) {
        Err(refusal) if purpose.frames == Buffers::One && refusal.concerns_native_mode() => {
            let purpose = Purpose {
                frames: Buffers::Many,
                ..purpose
            };
            with_program(mode, purpose, ifindex, attach).map_err(|_refused_too| refusal)
        }
        attached => attached,
    }
}

/// Attaches the most capable program that kernel and driver accept, and otherwise the plain one.
fn with_program<T>(
    mode: XdpMode,
    purpose: Purpose,
    ifindex: u32,
    attach: &impl Fn(BorrowedFd<'_>, XdpMode) -> Result<T, AttachError>,
) -> Result<Attached<T>, AttachError> {
    let asked: &[Asks] = match (mode, purpose.describes) {
        (XdpMode::Generic, _) => &[],
        (XdpMode::Native, false) => &[Asks::Tags],
        (XdpMode::Native, true) => &[Asks::Metadata, Asks::Tags],
    };
    for &asks in asked {
        let bound = Steering::load_bound(purpose.frames, asks, ifindex).map_err(AttachError::from);
        match bound.and_then(|steering| with_loaded(steering, mode, attach)) {
            Err(refusal) => {
                log::debug!("no program that asks the driver ({asks:?}): {refusal}");
            }
            Ok(attached) => {
                let describes = asks == Asks::Metadata;
                return Ok(Attached {
                    describes,
                    ..attached
                });
            }
        }
    }
    with_loaded(Steering::load(purpose.frames)?, mode, attach)
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
        describes: false,
        native_refusal: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bond_is_never_asked_for_native_mode() {
        let for_bond = |wanted| for_kind(Some("bond"), "bond0", wanted);
        for wanted in [None, Some(XdpMode::Generic)] {
            assert_eq!(for_bond(wanted).unwrap(), Some(XdpMode::Generic));
        }
        let refusal = for_bond(Some(XdpMode::Native)).unwrap_err().to_string();
        assert!(refusal.starts_with("bond0 is a bond: "), "{refusal}");
        assert!(refusal.ends_with("ask for generic mode"), "{refusal}");
    }

    #[test]
    fn others_are_asked_for_what_is_wanted() {
        for kind in [None, Some("veth"), Some("vlan")] {
            for wanted in [None, Some(XdpMode::Native), Some(XdpMode::Generic)] {
                assert_eq!(for_kind(kind, "eth1", wanted).unwrap(), wanted);
            }
        }
    }
}
