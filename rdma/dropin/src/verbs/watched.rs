//! Objects that have asynchronous events, and the events that the program has not acknowledged yet.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

use super::event_queue::EventQueue;
use crate::abi::numbers::{
    IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR,
    IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_LAST_WQE_REACHED,
    IBV_EVENT_QP_REQ_ERR, IBV_EVENT_SRQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED,
};
use crate::backend::{EventTarget, Happening};
use crate::entry::lock;

/// An asynchronous event that waits: its object and its number.
pub(crate) struct Event {
    pub(crate) object: Arc<Watched>,
    pub(crate) kind: u32,
}

/// Events of a context.
pub(crate) type Events = EventQueue<Event>;

/// An object's link to its asynchronous events.
pub(crate) struct Watched {
    this: Weak<Watched>,
    /// The object's address in C; 0 before it is known, and for a device.
    element: AtomicUsize,
    events: Arc<Events>,
    /// It is a queue pair with a shared receive queue, from which it takes no buffer once it was
    /// flushed.
    reports_last_receive: bool,
    /// It has reported its last receive since its last reset.
    has_reported_last_receive: AtomicBool,
    /// The object is being destroyed.
    has_ended: AtomicBool,
    unacknowledged: Unacknowledged,
}

impl Watched {
    pub(crate) fn new(events: &Arc<Events>, reports_last_receive: bool) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            element: AtomicUsize::new(0),
            events: Arc::clone(events),
            reports_last_receive,
            has_reported_last_receive: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            unacknowledged: Unacknowledged::default(),
        })
    }

    /// Sets the object's address.
    pub(crate) fn is_at<T>(&self, handle: *mut T) {
        self.element
            .store(handle.expose_provenance(), Ordering::Release);
    }

    pub(crate) fn element(&self) -> usize {
        self.element.load(Ordering::Acquire)
    }

    /// Receives the object's events.
    pub(crate) fn target(&self) -> Weak<dyn EventTarget> {
        Weak::<Self>::clone(&self.this)
    }

    pub(crate) fn unacknowledged(&self) -> &Unacknowledged {
        &self.unacknowledged
    }

    /// Ends the events of an object that is being destroyed: takes back its waiting events, and
    /// waits until the program has acknowledged those that it has.
    pub(crate) fn end(&self) {
        // A thread that reports an event with the queue's lock after `retain` sees this.
        self.has_ended.store(true, Ordering::Relaxed);
        self.events
            .retain(|event| !std::ptr::eq(Arc::as_ptr(&event.object), self));
        self.unacknowledged.wait();
    }

    fn push(&self, kind: u32) {
        if let Some(object) = self.this.upgrade() {
            let lives = |it: &Event| !it.object.has_ended.load(Ordering::Relaxed);
            self.events.push_if(Event { object, kind }, lives);
        }
    }

    /// Reports, once, that a queue pair was flushed.
    pub(crate) fn report_last_receive(&self) {
        if self.reports_last_receive
            && !self.has_reported_last_receive.swap(true, Ordering::Relaxed)
        {
            self.push(IBV_EVENT_QP_LAST_WQE_REACHED);
        }
    }

    /// Records that a queue pair was reset: it can be flushed again.
    pub(crate) fn receives_again(&self) {
        self.has_reported_last_receive
            .store(false, Ordering::Relaxed);
    }
}

impl EventTarget for Watched {
    fn notify(&self, happening: Happening) {
        let kind = match happening {
            // The connection manager reports these; the kernel's iWARP has no asynchronous event
            // for them either.
            Happening::Closed | Happening::Ended | Happening::Lost => {
                return self.report_last_receive();
            }
            // For identifiers only.
            Happening::DeviceGone => return,
            Happening::QpFatal => IBV_EVENT_QP_FATAL,
            Happening::QpAccess => IBV_EVENT_QP_ACCESS_ERR,
            Happening::QpRequest => IBV_EVENT_QP_REQ_ERR,
            Happening::CqError => IBV_EVENT_CQ_ERR,
            Happening::SrqError => IBV_EVENT_SRQ_ERR,
            Happening::SrqLimit => IBV_EVENT_SRQ_LIMIT_REACHED,
            Happening::PortActive => IBV_EVENT_PORT_ACTIVE,
            Happening::PortError => IBV_EVENT_PORT_ERR,
            Happening::DeviceFatal => IBV_EVENT_DEVICE_FATAL,
        };
        self.push(kind);
        self.report_last_receive();
    }
}

/// Counts events that a program has taken and not acknowledged. Their object lives until it has.
#[derive(Default)]
pub(crate) struct Unacknowledged {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Unacknowledged {
    /// Counts an event that the program has taken.
    pub(crate) fn add(&self) {
        *lock(&self.count) += 1;
    }

    /// Uncounts events that the program has acknowledged.
    pub(crate) fn remove(&self, events: u64) {
        let mut count = lock(&self.count);
        *count = count.saturating_sub(events);
        self.changed.notify_all();
    }

    /// Waits until all are acknowledged.
    fn wait(&self) {
        let count = lock(&self.count);
        let waited = self.changed.wait_while(count, |count| *count > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    use xwarp_test_kit::{eventually, spawn_numbered, thread_sleeps};

    #[test]
    fn end_takes_back_what_waits_and_waits_for_what_was_taken() {
        let events = Arc::new(Events::new().expect("a descriptor"));
        let watched = Watched::new(&events, false);
        watched.notify(Happening::QpFatal);
        watched.notify(Happening::QpAccess);
        let kind = events.take(|event| {
            event.object.unacknowledged().add();
            event.kind
        });
        assert_eq!(kind, Ok(IBV_EVENT_QP_FATAL));
        thread::scope(|scope| {
            let (number, end) = spawn_numbered(scope, || watched.end());
            eventually("it sleeps", || thread_sleeps(number));
            assert!(events.is_empty());
            assert!(!end.is_finished());
            watched.unacknowledged().remove(1);
        });
    }

    /// The engine may have found the object just before.
    #[test]
    fn object_that_has_ended_has_no_event() {
        let events = Arc::new(Events::new().expect("a descriptor"));
        let watched = Watched::new(&events, true);
        watched.end();
        watched.notify(Happening::QpFatal);
        assert!(events.is_empty());
    }

    #[test]
    fn queue_pair_with_a_shared_receive_queue_tells_its_last_receive() {
        let events = Arc::new(Events::new().expect("a descriptor"));
        let watched = Watched::new(&events, true);
        watched.notify(Happening::Closed);
        let kind = events.take(|event| event.kind);
        assert_eq!(kind, Ok(IBV_EVENT_QP_LAST_WQE_REACHED));
    }
}
