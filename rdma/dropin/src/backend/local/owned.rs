//! Objects of an RNIC, which live until they are destroyed or the RNIC is closed.
//!
//! The program's object keeps the memory of a destroyed one for a while, so that its handle is
//! recognised as invalid. The object's resources of the RNIC are dropped when it is destroyed:
//! otherwise a program that opens and closes an RNIC would keep six descriptors of each one.

use std::sync::{Arc, Mutex, Weak};

use nix::errno::Errno;

use super::{Backend, BackendRef};
use crate::entry::{Result, lock};

/// An object with resources of the RNIC.
pub(super) trait Release: Send + Sync {
    /// Drops the object's resources of the RNIC. Calls of the object fail from then on.
    fn release(&self);
}

/// The objects to be released when the RNIC is closed.
#[derive(Default)]
pub(super) struct Objects(Mutex<Vec<Weak<dyn Release>>>);

impl Objects {
    pub(super) fn add<T: Release + 'static>(&self, object: &Arc<T>) {
        let mut objects = lock(&self.0);
        if objects.len() == objects.capacity() {
            objects.retain(|object| object.strong_count() > 0);
            // At least as many objects are added before the list is searched again.
            let living = objects.len();
            objects.reserve(living);
        }
        let object: Weak<T> = Arc::downgrade(object);
        objects.push(object);
    }

    pub(super) fn release_all(&self) {
        let objects = std::mem::take(&mut *lock(&self.0));
        let living = objects.iter().filter_map(Weak::upgrade);
        living.for_each(|object| object.release());
    }
}

/// An object with a lock of its own: a verb that waits for the engine delays verbs on the same
/// object only.
pub(crate) struct Owned<T> {
    rnic: BackendRef,
    value: Mutex<Option<T>>,
}

impl<T: Send> Release for Owned<T> {
    fn release(&self) {
        let value = lock(&self.value).take();
        drop(value);
    }
}

impl<T> Owned<T> {
    pub(super) fn new(rnic: BackendRef, value: T) -> Self {
        Self {
            rnic,
            value: Mutex::new(Some(value)),
        }
    }

    /// The RNIC. Verbs keep it until they have released all locks: the thread that drops it last
    /// releases all objects. EIO if it is closed.
    pub(super) fn rnic(&self) -> Result<Arc<Backend>> {
        self.rnic.get()
    }

    /// Destroys the object by `verb`. An object whose RNIC is closed was destroyed with it.
    pub(super) fn end(&self, verb: impl FnOnce(&Backend) -> Result<()>) -> Result<()> {
        self.rnic.end(verb)
    }

    /// Calls a verb of the object. EINVAL once it is destroyed.
    pub(super) fn with<R>(&self, verb: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        verb(lock(&self.value).as_mut().ok_or(Errno::EINVAL)?)
    }

    /// Destroys the object by `verb`, which returns the object if it refuses.
    pub(super) fn destroy(
        &self,
        verb: impl FnOnce(T) -> std::result::Result<(), (Errno, Option<Box<T>>)>,
    ) -> Result<()> {
        let mut place = lock(&self.value);
        verb(place.take().ok_or(Errno::EINVAL)?).map_err(|(errno, refused)| {
            *place = refused.map(|value| *value);
            errno
        })
    }

    /// Replaces the object by the result of `verb`. If there is none, the object is destroyed.
    pub(super) fn replace<R>(&self, verb: impl FnOnce(T) -> (Option<T>, Result<R>)) -> Result<R> {
        let mut place = lock(&self.value);
        let (value, result) = verb(place.take().ok_or(Errno::EINVAL)?);
        *place = value;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(value: char) -> Owned<char> {
        Owned::new(BackendRef::closed(), value)
    }

    #[test]
    fn destroyed_object_is_found_to_be_dead() {
        let object = owned('a');
        assert_eq!(object.with(|it| Ok(*it)), Ok('a'));
        assert_eq!(object.destroy(|_| Ok(())), Ok(()));
        assert_eq!(object.with(|it| Ok(*it)), Err(Errno::EINVAL));
        assert_eq!(object.destroy(|_| Ok(())), Err(Errno::EINVAL));
        let replaced = object.replace(|it| (Some(it), Ok(())));
        assert_eq!(replaced, Err(Errno::EINVAL));
    }

    #[test]
    fn object_that_refuses_to_end_lives_on() {
        let object = owned('a');
        let refused = object.destroy(|it| Err((Errno::EBUSY, Some(Box::new(it)))));
        assert_eq!(refused, Err(Errno::EBUSY));
        assert_eq!(object.with(|it| Ok(*it)), Ok('a'));
    }

    #[test]
    fn object_of_a_closed_rnic_has_ended() {
        let objects = Objects::default();
        let object = Arc::new(owned('a'));
        objects.add(&object);
        objects.release_all();
        assert_eq!(object.with(|it| Ok(*it)), Err(Errno::EINVAL));
        assert_eq!(object.end(|_| Err(Errno::EBUSY)), Ok(()));
    }

    #[test]
    fn list_of_objects_does_not_grow_with_those_that_are_gone() {
        let objects = Objects::default();
        let living: Vec<_> = (0..10).map(|_| Arc::new(owned('a'))).collect();
        for object in &living {
            objects.add(object);
        }
        for _ in 0..1000 {
            objects.add(&Arc::new(owned('b')));
        }
        assert!(lock(&objects.0).capacity() <= 64);
        objects.release_all();
        assert!(living.iter().all(|object| object.with(|_| Ok(())).is_err()));
    }
}
