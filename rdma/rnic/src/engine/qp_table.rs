//! Table of an engine's queue pairs, by slot. Slots are unique in the RNIC, so a queue pair keeps
//! its slot when it moves to another engine.

use crate::qp::QpContext;

/// Queue pairs of an engine.
#[derive(Default)]
pub(super) struct QpTable {
    places: Vec<Option<Box<QpContext>>>,
}

impl QpTable {
    /// Adds a queue pair.
    pub(super) fn insert(&mut self, qp: Box<QpContext>) {
        let slot = qp.id().slot();
        if self.places.len() <= slot {
            self.places.resize_with(slot + 1, || None);
        }
        if let Some(place) = self.places.get_mut(slot) {
            *place = Some(qp);
        }
    }

    #[inline]
    pub(super) fn get(&self, slot: usize) -> Option<&QpContext> {
        self.places.get(slot)?.as_deref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: usize) -> Option<&mut QpContext> {
        self.places.get_mut(slot)?.as_deref_mut()
    }

    /// Removes a queue pair.
    pub(super) fn remove(&mut self, slot: usize) -> Option<Box<QpContext>> {
        self.places.get_mut(slot)?.take()
    }

    /// The slots in use.
    pub(super) fn slots(&self) -> Vec<usize> {
        let slots = self.places.iter().enumerate();
        slots
            .filter_map(|(slot, place)| place.as_ref().map(|_| slot))
            .collect()
    }

    /// All queue pairs, to be looked at.
    pub(super) fn iter(&self) -> impl Iterator<Item = &QpContext> {
        self.places.iter().filter_map(Option::as_deref)
    }

    /// All queue pairs.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut QpContext> {
        self.places.iter_mut().filter_map(Option::as_deref_mut)
    }
}
