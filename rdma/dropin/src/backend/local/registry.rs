//! Objects by the identities that completions and events of the RNIC carry.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use rustc_hash::FxHashMap;
use xwarp::attr::{CqId, QpId, SrqId};
use xwarp::error::TermCode;
use xwarp::event::EventResource;

use super::poll::Terminates;
use super::queue_pair::Qp;
use crate::backend::{CompletionCallback, EventTarget, Happening};
use crate::entry::lock;

/// The objects of an RNIC. Handlers of the RNIC search it in the middle of the engine. So no thread
/// waits for the engine while it holds these locks, and no handler drops an object.
#[derive(Default)]
pub(super) struct Registry {
    /// By their numbers of 24 bits, which are unique at a time.
    qps: Mutex<FxHashMap<u32, QpEntry>>,
    cqs: Mutex<FxHashMap<CqId, CqEntry>>,
    srqs: Mutex<FxHashMap<SrqId, Weak<dyn EventTarget>>>,
    /// Queue pairs whose end is quiet.
    quiet: Mutex<FxHashMap<QpId, Quiet>>,
    /// There has been one, so flushed sends may be unanswered. Polls read it.
    has_quiet: Arc<AtomicBool>,
}

/// Whether a send of a queue pair whose end is quiet has completed as unanswered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quiet {
    /// The next flushed one does, if the connection is lost.
    IfLost,
    /// The next flushed one does: there is no connection.
    Unanswered,
}

impl Terminates for Registry {
    fn terminate_of(&self, qp: QpId) -> Option<TermCode> {
        self.qp(qp)?.terminate()
    }

    fn takes_unanswered(&self, number: u32) -> bool {
        let qp = lock(&self.qps).get(&number).map(|entry| entry.id);
        let Some(qp) = qp else {
            return false;
        };
        let quiet = lock(&self.quiet).get(&qp).copied();
        let is_unanswered = match quiet {
            None => false,
            Some(Quiet::Unanswered) => true,
            Some(Quiet::IfLost) => self.qp(qp).is_some_and(|qp| qp.was_lost()),
        };
        is_unanswered && lock(&self.quiet).remove(&qp).is_some()
    }
}

struct QpEntry {
    id: QpId,
    qp: Weak<Qp>,
    target: Option<Weak<dyn EventTarget>>,
}

struct CqEntry {
    callback: Option<CompletionCallback>,
    target: Option<Weak<dyn EventTarget>>,
}

impl Registry {
    pub(super) fn add_qp(&self, id: QpId, qp: &Arc<Qp>) {
        let entry = QpEntry {
            id,
            qp: Arc::downgrade(qp),
            target: None,
        };
        lock(&self.qps).insert(id.number(), entry);
    }

    /// Reports events of a queue pair to `target` from now on.
    pub(super) fn report_qp(&self, id: QpId, target: Weak<dyn EventTarget>) {
        if let Some(entry) = lock(&self.qps).get_mut(&id.number()) {
            entry.target = Some(target);
        }
    }

    pub(super) fn remove_qp(&self, id: QpId) {
        lock(&self.qps).remove(&id.number());
        lock(&self.quiet).remove(&id);
    }

    /// Whether there has been a queue pair whose end is quiet.
    pub(super) fn has_quiet(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.has_quiet)
    }

    /// Records whether the end of a queue pair is quiet. No work of it has completed since.
    pub(super) fn set_quiet(&self, id: QpId, is_quiet: bool) {
        let mut quiet = lock(&self.quiet);
        if is_quiet {
            self.has_quiet.store(true, Ordering::Relaxed);
            quiet.insert(id, Quiet::IfLost);
        } else {
            quiet.remove(&id);
        }
    }

    /// Records that the peer of a queue pair does not answer.
    pub(super) fn set_unanswered(&self, id: QpId) {
        lock(&self.quiet).insert(id, Quiet::Unanswered);
    }

    pub(super) fn add_cq(&self, id: CqId, callback: Option<CompletionCallback>) {
        let target = None;
        lock(&self.cqs).insert(id, CqEntry { callback, target });
    }

    /// Reports events of a completion queue to `target` from now on.
    pub(super) fn report_cq(&self, id: CqId, target: Weak<dyn EventTarget>) {
        if let Some(entry) = lock(&self.cqs).get_mut(&id) {
            entry.target = Some(target);
        }
    }

    pub(super) fn remove_cq(&self, id: CqId) {
        lock(&self.cqs).remove(&id);
    }

    /// Reports events of a shared receive queue to `target` from now on.
    pub(super) fn report_srq(&self, id: SrqId, target: Weak<dyn EventTarget>) {
        lock(&self.srqs).insert(id, target);
    }

    pub(super) fn remove_srq(&self, id: SrqId) {
        lock(&self.srqs).remove(&id);
    }

    /// The queue pair with that number of 24 bits.
    pub(super) fn qp_by_number(&self, number: u32) -> Option<Arc<Qp>> {
        lock(&self.qps).get(&number)?.qp.upgrade()
    }

    pub(super) fn qp(&self, id: QpId) -> Option<Arc<Qp>> {
        let qps = lock(&self.qps);
        let entry = qps.get(&id.number()).filter(|entry| entry.id == id)?;
        entry.qp.upgrade()
    }

    /// Reports that a completion queue has the completion that it was armed for.
    pub(super) fn completion(&self, id: CqId) {
        let cqs = lock(&self.cqs);
        if let Some(callback) = cqs.get(&id).and_then(|entry| entry.callback.as_ref()) {
            callback();
        }
    }

    /// Reports an event to the target of its resource. Returns false if the resource was destroyed.
    pub(super) fn notify(&self, resource: EventResource, happening: Happening) -> bool {
        let target = match resource {
            EventResource::Qp(id) => {
                let qps = lock(&self.qps);
                match qps.get(&id.number()) {
                    Some(entry) if entry.id == id => entry.target.clone(),
                    _ => return false,
                }
            }
            EventResource::Cq(id) => match lock(&self.cqs).get(&id) {
                Some(entry) => entry.target.clone(),
                None => return false,
            },
            EventResource::Srq(id) => lock(&self.srqs).get(&id).cloned(),
            _ => return false,
        };
        if let Some(target) = target.and_then(|target| target.upgrade()) {
            target.notify(happening);
        }
        true
    }
}
