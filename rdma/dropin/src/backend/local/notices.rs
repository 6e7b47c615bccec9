//! Whom completion events and asynchronous events of xwarp are told, by identity.

use std::sync::{Arc, Mutex};

use rustc_hash::FxHashMap;
use xwarp::attr::{CqId, SrqId};
use xwarp::event::{AsyncEvent, AsyncEventKind, EventResource};

use super::queue_pairs::QueuePairs;
use super::watcher::Ends;
use crate::backend::{CqHandle, EventSink, Happening, Notice, Source, SrqHandle};
use crate::entry::lock;

/// What an RNIC's handlers look up. They run in the middle of the engine, so nothing waits for the engine while it holds these locks.
#[derive(Default)]
pub(super) struct CompletionNotifications {
    cqs: Mutex<FxHashMap<CqId, (CqHandle, Option<Notice>)>>,
    srqs: Mutex<FxHashMap<SrqId, SrqHandle>>,
}

impl CompletionNotifications {
    pub(super) fn add_cq(&self, id: CqId, cq: CqHandle, notice: Option<Notice>) {
        lock(&self.cqs).insert(id, (cq, notice));
    }

    pub(super) fn remove_cq(&self, id: CqId) {
        lock(&self.cqs).remove(&id);
    }

    pub(super) fn add_srq(&self, id: SrqId, srq: SrqHandle) {
        lock(&self.srqs).insert(id, srq);
    }

    pub(super) fn remove_srq(&self, id: SrqId) {
        lock(&self.srqs).remove(&id);
    }

    /// A completion queue has the completion that it was armed for.
    pub(super) fn completion(&self, id: CqId) {
        let cqs = lock(&self.cqs);
        if let Some((_, Some(notice))) = cqs.get(&id) {
            notice();
        }
    }
}

/// Tells the events of an RNIC.
pub(super) struct Events {
    pub(super) notices: Arc<CompletionNotifications>,
    pub(super) qps: Arc<QueuePairs>,
    pub(super) ends: Ends,
    pub(super) sink: Arc<dyn EventSink>,
}

impl Events {
    pub(super) fn report(&self, event: &AsyncEvent) {
        let (Some(source), Some(happening)) = (self.source(event.resource), happening(&event.kind))
        else {
            return;
        };
        self.sink.event(source, happening);
        if happening == Happening::DeviceFatal {
            self.ends.note_failure();
        }
        if let Source::Qp(qp) = source {
            log::debug!("{:?}: {:?}", event.resource, event.kind);
            self.ends.note(qp, happening == Happening::Closed);
        }
    }

    /// Whom it has happened to; `None` if that was destroyed since.
    fn source(&self, resource: EventResource) -> Option<Source> {
        match resource {
            EventResource::Qp(id) => self.qps.handle_of(id).map(Source::Qp),
            EventResource::Cq(id) => {
                let cqs = lock(&self.notices.cqs);
                cqs.get(&id).map(|(cq, _)| Source::Cq(*cq))
            }
            EventResource::Srq(id) => lock(&self.notices.srqs).get(&id).copied().map(Source::Srq),
            _ => Some(Source::Device),
        }
    }
}

/// What an event means to programs; `None` for what they have no event for.
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
fn is_protection(code: xwarp::error::TermCode) -> bool {
    matches!((code.layer(), code.etype()), (0 | 1, 1))
}
