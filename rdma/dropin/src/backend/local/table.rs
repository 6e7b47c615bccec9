//! Objects of xwarp by number. Each has a lock of its own, so a verb that waits for the engine holds up verbs on the same object only.

use std::sync::{Arc, Mutex};

use nix::errno::Errno;
use slab::Slab;

use crate::entry::{Result, lock};

/// Objects of one kind.
pub(super) struct Table<T>(Mutex<Slab<Slot<T>>>);

/// An object, until it is destroyed.
type Slot<T> = Arc<Mutex<Option<T>>>;

impl<T> Table<T> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Slab::new()))
    }

    /// Takes an object in, and returns its number.
    pub(super) fn insert(&self, object: T) -> Result<u32> {
        let mut slab = lock(&self.0);
        let number = u32::try_from(slab.vacant_key()).map_err(|_too_many| Errno::ENOMEM)?;
        slab.insert(Arc::new(Mutex::new(Some(object))));
        Ok(number)
    }

    fn slot(&self, number: u32) -> Result<Slot<T>> {
        let slab = lock(&self.0);
        let slot = usize::try_from(number).ok().and_then(|key| slab.get(key));
        slot.map(Arc::clone).ok_or(Errno::EINVAL)
    }

    /// Calls a verb of an object.
    pub(super) fn with<R>(&self, number: u32, verb: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        let slot = self.slot(number)?;
        verb(lock(&slot).as_mut().ok_or(Errno::EINVAL)?)
    }

    /// Destroys an object by `verb`, which gives it back if it refuses.
    pub(super) fn destroy(
        &self,
        number: u32,
        verb: impl FnOnce(T) -> std::result::Result<(), (Errno, Option<Box<T>>)>,
    ) -> Result<()> {
        let slot = self.slot(number)?;
        let mut place = lock(&slot);
        let ended = verb(place.take().ok_or(Errno::EINVAL)?);
        if let Err((errno, Some(kept))) = ended {
            *place = Some(*kept);
            return Err(errno);
        }
        lock(&self.0).try_remove(number as usize);
        ended.map_err(|(errno, _gone)| errno)
    }

    /// Puts what `verb` makes of an object in its place. If that is nothing, its number ends.
    pub(super) fn replace<R>(
        &self,
        number: u32,
        verb: impl FnOnce(T) -> (Option<T>, Result<R>),
    ) -> Result<R> {
        let slot = self.slot(number)?;
        let mut place = lock(&slot);
        let (object, result) = verb(place.take().ok_or(Errno::EINVAL)?);
        *place = object;
        if place.is_none() {
            lock(&self.0).try_remove(number as usize);
        }
        result
    }
}
