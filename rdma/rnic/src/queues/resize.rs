//! New rings for a resize of work queues (verbs draft §6.5).
//!
//! Copying into a larger ring would need both sides to stop. Instead the filling side switches to a
//! new ring, and the emptying side first takes the contents of the former ring. A work queue is not
//! resized while another thread may be posting to it.

use rtrb::Consumer;

use crate::model::{ModifyError, RecvRequest, SendRequest};

/// New ring of a work queue.
pub struct NewRing<T> {
    /// The engine's end.
    pub ring: Consumer<T>,
    /// Number of outstanding work requests.
    pub present: usize,
}

/// New rings of a queue pair's queues.
#[derive(Default)]
pub struct NewRings {
    /// Ring of the send queue, if it is resized.
    pub sq: Option<NewRing<SendRequest>>,
    /// Ring of the receive queue, if it is resized.
    pub rq: Option<NewRing<RecvRequest>>,
}

impl<T> NewRing<T> {
    fn check(&self, what: &'static str) -> Result<(), ModifyError> {
        let (present, wanted) = (self.present, self.ring.buffer().capacity());
        if wanted < present {
            return Err(ModifyError::TooManyPresent {
                what,
                present,
                wanted,
            });
        }
        Ok(())
    }
}

impl NewRings {
    /// Checks that there is room for all outstanding requests.
    pub(crate) fn check(&self) -> Result<(), ModifyError> {
        let sq = (self.sq.as_ref()).map_or(Ok(()), |ring| ring.check("the send queue"));
        let rq = (self.rq.as_ref()).map_or(Ok(()), |ring| ring.check("the receive queue"));
        sq.and(rq)
    }
}
