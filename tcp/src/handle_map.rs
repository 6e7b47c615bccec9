//! Handle map: a map with handles that are never reused.

use slab::Slab;

/// Handle of a value in a [`HandleMap`]: its slot, and a number that no other value ever has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Handle {
    place: usize,
    serial: u64,
}

impl Handle {
    /// The slot, which at most one value has at a time.
    pub(crate) fn key(self) -> u32 {
        u32::try_from(self.place).unwrap_or(u32::MAX)
    }
}

/// A map in which stale handles find no value.
#[derive(Debug)]
pub(crate) struct HandleMap<T> {
    places: Slab<(u64, T)>,
    next_serial: u64,
}

impl<T> HandleMap<T> {
    pub(crate) fn new() -> Self {
        Self {
            places: Slab::new(),
            next_serial: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn insert(&mut self, value: T) -> Handle {
        let serial = self.next_serial;
        self.next_serial += 1;
        let place = self.places.insert((serial, value));
        Handle { place, serial }
    }

    /// The handle of the value in the slot that a handle's [`key`](Handle::key) names.
    pub(crate) fn handle(&self, key: u32) -> Option<Handle> {
        let place = usize::try_from(key).ok()?;
        let (serial, _) = self.places.get(place)?;
        Some(Handle {
            place,
            serial: *serial,
        })
    }

    pub(crate) fn get(&self, handle: Handle) -> Option<&T> {
        let (serial, value) = self.places.get(handle.place)?;
        (*serial == handle.serial).then_some(value)
    }

    pub(crate) fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let (serial, value) = self.places.get_mut(handle.place)?;
        (*serial == handle.serial).then_some(value)
    }

    /// All values.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().map(|(_, (_, value))| value)
    }

    pub(crate) fn remove(&mut self, handle: Handle) -> Option<T> {
        self.get(handle)?;
        Some(self.places.remove(handle.place).1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Handle, &T)> {
        self.places.iter().map(|(place, (serial, value))| {
            let handle = Handle {
                place,
                serial: *serial,
            };
            (handle, value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reused_place_does_not_answer_to_the_old_handle() {
        let mut map = HandleMap::new();
        let old = map.insert('a');
        assert_eq!(map.remove(old), Some('a'));
        let new = map.insert('b');
        assert_eq!(new.place, old.place);
        assert_eq!(map.get(old), None);
        assert_eq!(map.get_mut(old), None);
        assert_eq!(map.remove(old), None);
        assert_eq!(map.get(new), Some(&'b'));
        assert_eq!(map.iter().collect::<Vec<_>>(), [(new, &'b')]);
    }
}
