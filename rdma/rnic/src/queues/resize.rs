//! Rings that work queues go on with when they are resized (verbs draft §6.5).
//!
//! Copying into a larger ring would need both sides to stop. Instead the side that fills goes on
//! with a new ring, and the side that empties takes what the former ring holds first. A work queue
//! is not resized while another thread may be posting to it.

use rtrb::Consumer;

use crate::model::{ModifyError, RecvRequest, SendRequest};

/// What a work queue that is resized goes on with.
pub struct NewRing<T> {
    /// The engine's end.
    pub ring: Consumer<T>,
    /// Work requests that are outstanding.
    pub present: usize,
}

/// What both queues of a queue pair go on with.
#[derive(Default)]
pub struct NewRings {
    /// Of the send queue, if it is resized.
    pub sq: Option<NewRing<SendRequest>>,
    /// Of the receive queue, if it is resized.
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
    /// Is there room for all that is outstanding?
    pub(crate) fn check(&self) -> Result<(), ModifyError> {
        let sq = (self.sq.as_ref()).map_or(Ok(()), |ring| ring.check("the send queue"));
        let rq = (self.rq.as_ref()).map_or(Ok(()), |ring| ring.check("the receive queue"));
        sq.and(rq)
    }
}
