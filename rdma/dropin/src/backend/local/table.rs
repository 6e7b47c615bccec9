//! Objects of xwarp under keys. Each has a lock of its own, so a verb that waits for the engine
//! holds up verbs on the same object only.

use std::sync::{Arc, Mutex};

use nix::errno::Errno;
use rustc_hash::FxHashMap;

use crate::backend::Key;
use crate::entry::{Result, lock};

/// Values under keys that are never given out twice. A key that outlives its value finds nothing,
/// so it may be kept across an event, a queue or a lock.
pub(super) struct Keyed<T> {
    all: FxHashMap<Key, T>,
    next: u64,
}

impl<T> Default for Keyed<T> {
    fn default() -> Self {
        Self {
            all: FxHashMap::default(),
            next: 0,
        }
    }
}

impl<T> Keyed<T> {
    /// The key of the value that is inserted next.
    pub(super) fn next_key(&self) -> Key {
        Key(self.next)
    }

    pub(super) fn insert(&mut self, value: T) -> Key {
        let key = self.next_key();
        self.next += 1; // 2^64 values will not be inserted
        self.all.insert(key, value);
        key
    }

    pub(super) fn get(&self, key: Key) -> Option<&T> {
        self.all.get(&key)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.all.get_mut(&key)
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        self.all.remove(&key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.all.iter().map(|(key, value)| (*key, value))
    }
}

/// Objects of one kind.
pub(super) struct Table<T>(Mutex<Keyed<Slot<T>>>);

/// An object, until it is destroyed.
type Slot<T> = Arc<Mutex<Option<T>>>;

impl<T> Table<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::default())
    }

    /// Takes an object in, and returns its key.
    pub(super) fn insert(&self, object: T) -> Key {
        lock(&self.0).insert(Arc::new(Mutex::new(Some(object))))
    }

    fn slot(&self, key: Key) -> Result<Slot<T>> {
        lock(&self.0).get(key).map(Arc::clone).ok_or(Errno::EINVAL)
    }

    /// Calls a verb of an object.
    pub(super) fn with<R>(&self, key: Key, verb: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        let slot = self.slot(key)?;
        verb(lock(&slot).as_mut().ok_or(Errno::EINVAL)?)
    }

    /// Destroys an object by `verb`, which gives it back if it refuses.
    pub(super) fn destroy(
        &self,
        key: Key,
        verb: impl FnOnce(T) -> std::result::Result<(), (Errno, Option<Box<T>>)>,
    ) -> Result<()> {
        let slot = self.slot(key)?;
        let mut place = lock(&slot);
        let ended = verb(place.take().ok_or(Errno::EINVAL)?);
        if let Err((errno, Some(kept))) = ended {
            *place = Some(*kept);
            return Err(errno);
        }
        lock(&self.0).remove(key);
        ended.map_err(|(errno, _gone)| errno)
    }

    /// Puts what `verb` makes of an object in its place. If that is nothing, its key ends.
    pub(super) fn replace<R>(
        &self,
        key: Key,
        verb: impl FnOnce(T) -> (Option<T>, Result<R>),
    ) -> Result<R> {
        let slot = self.slot(key)?;
        let mut place = lock(&slot);
        let (object, result) = verb(place.take().ok_or(Errno::EINVAL)?);
        *place = object;
        if place.is_none() {
            lock(&self.0).remove(key);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_a_destroyed_object_never_finds_a_later_one() {
        let table = Table::new();
        let first = table.insert('a');
        assert_eq!(table.destroy(first, |_| Ok(())), Ok(()));
        let second = table.insert('b');
        assert_ne!(first, second);
        assert_eq!(table.with(first, |it| Ok(*it)), Err(Errno::EINVAL));
        assert_eq!(table.destroy(first, |_| Ok(())), Err(Errno::EINVAL));
        assert_eq!(
            table.replace(first, |it| (Some(it), Ok(()))),
            Err(Errno::EINVAL)
        );
        assert_eq!(table.with(second, |it| Ok(*it)), Ok('b'));
    }

    #[test]
    fn object_that_refuses_to_end_keeps_its_key() {
        let table = Table::new();
        let key = table.insert('a');
        let refused = table.destroy(key, |it| Err((Errno::EBUSY, Some(Box::new(it)))));
        assert_eq!(refused, Err(Errno::EBUSY));
        assert_eq!(table.with(key, |it| Ok(*it)), Ok('a'));
    }
}
