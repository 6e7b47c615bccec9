//! Identities of an RNIC's objects, allocated centrally for all engines.

use std::sync::Arc;

use slab::Slab;

use super::locked::Locked;
use crate::model::{CapabilityError, CqId};

/// Allocates the identities of one kind of object.
pub struct Identities {
    given: Locked<Given>,
    /// Name of the limit in an error.
    what: &'static str,
    max: usize,
}

#[derive(Default)]
struct Given {
    slots: Slab<()>,
    next_serial: u64,
}

/// A slot, which is allocated again only after this is dropped, and a serial number, which is never
/// allocated again.
pub struct Identity {
    slot: usize,
    serial: u64,
    of: Arc<Identities>,
}

impl Identities {
    /// For at most `max` simultaneous objects. `what` names the limit in an error.
    pub fn new(what: &'static str, max: usize) -> Arc<Self> {
        let given = Locked::default();
        Arc::new(Self { given, what, max })
    }

    /// Allocates one.
    ///
    /// # Errors
    ///
    /// [`CapabilityError`]: there are `max` objects already.
    pub fn allocate(self: &Arc<Self>) -> Result<Identity, CapabilityError> {
        let mut given = self.given.lock();
        CapabilityError::check(self.what, given.slots.len() + 1, 1, self.max)?;
        let serial = given.next_serial;
        given.next_serial += 1; // 2^64 are never created
        Ok(Identity {
            slot: given.slots.insert(()),
            serial,
            of: Arc::clone(self),
        })
    }
}

impl Identity {
    /// The slot, which is below the maximum number of objects.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// Identity of a completion queue.
    pub fn cq(&self) -> CqId {
        CqId {
            slot: self.slot,
            serial: self.serial,
        }
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        self.of.given.lock().slots.remove(self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_is_given_again_and_serial_number_never() {
        let all = Identities::new("a number of objects of", 2);
        let (first, second) = (all.allocate().unwrap(), all.allocate().unwrap());
        assert_ne!(first.slot(), second.slot());
        assert!(all.allocate().is_err_and(|error| error.max == 2));
        let gone = (first.slot(), first.serial);
        drop(first);
        let third = all.allocate().unwrap();
        assert_eq!(third.slot(), gone.0);
        assert!(third.serial != gone.1 && third.serial != second.serial);
    }
}
