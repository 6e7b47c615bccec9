//! Values under keys that are never used twice.

use rustc_hash::FxHashMap;

/// Key of a value. A key that outlives its value finds nothing, so it may be kept across an event,
/// a queue or a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(pub(super) u64);

/// A map of values by keys that are never reused.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_a_removed_value_never_finds_a_later_one() {
        let mut values = Keyed::default();
        let first = values.insert('a');
        assert_eq!(values.remove(first), Some('a'));
        let second = values.insert('b');
        assert_ne!(first, second);
        assert_eq!(values.get(first), None);
        assert_eq!(values.remove(first), None);
        assert_eq!(values.get(second), Some(&'b'));
    }
}
