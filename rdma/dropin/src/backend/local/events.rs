//! Asynchronous events of an RNIC: the program's event for each, and the target that it is reported
//! to.

use std::sync::Arc;

use xwarp::error::TermCode;
use xwarp::event::{AsyncEvent, AsyncEventKind, EventResource};

use super::registry::Registry;
use super::watcher::Ends;
use crate::backend::{EventTarget, Happening};

/// Reports the events of an RNIC.
pub(super) struct Events {
    pub(super) registry: Arc<Registry>,
    pub(super) ends: Ends,
    /// The target of events of the device.
    pub(super) device: Arc<dyn EventTarget>,
}

impl Events {
    pub(super) fn report(&self, event: &AsyncEvent) {
        let Some(happening) = happening(&event.kind) else {
            return;
        };
        match event.resource {
            EventResource::Qp(_) | EventResource::Cq(_) | EventResource::Srq(_) => {
                if !self.registry.notify(event.resource, happening) {
                    return;
                }
            }
            _ => self.device.notify(happening),
        }
        if happening == Happening::DeviceFatal {
            self.ends.note_failure();
        }
        if let EventResource::Qp(qp) = event.resource {
            log::debug!("{:?}: {:?}", event.resource, event.kind);
            self.ends.note(qp, happening == Happening::Closed);
        }
    }
}

/// The program's event for an event of the RNIC; `None` if programs have no such event.
fn happening(kind: &AsyncEventKind) -> Option<Happening> {
    Some(match kind {
        AsyncEventKind::Closed => Happening::Closed,
        AsyncEventKind::Ended => Happening::Ended,
        AsyncEventKind::Terminated { code, .. } if is_protection(*code) => Happening::QpAccess,
        AsyncEventKind::Terminated { .. } => Happening::QpRequest,
        AsyncEventKind::ConnectionReset | AsyncEventKind::ConnectionLost { .. } => Happening::Lost,
        AsyncEventKind::TerminateReceived(_)
        | AsyncEventKind::BadClose { .. }
        | AsyncEventKind::BadPeerClose { .. }
        | AsyncEventKind::SendCqError
        | AsyncEventKind::RecvCqError
        | AsyncEventKind::QpCatastrophic { .. } => Happening::QpFatal,
        AsyncEventKind::CqOverflow | AsyncEventKind::CqFailed => Happening::CqError,
        AsyncEventKind::SrqError | AsyncEventKind::SrqFailed => Happening::SrqError,
        AsyncEventKind::SrqLimitReached => Happening::SrqLimit,
        AsyncEventKind::Failed { .. } => Happening::DeviceFatal,
        _ => return None,
    })
}

/// RDMAP's Remote Protection Errors and DDP's Tagged Buffer Errors (RFC 5040 §4.8, RFC 5041 §7.2).
fn is_protection(code: TermCode) -> bool {
    matches!((code.layer(), code.etype()), (0 | 1, 1))
}
