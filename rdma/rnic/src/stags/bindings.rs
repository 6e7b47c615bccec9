//! Bindings: windows, their regions, and the queue pairs that bound them (verbs draft §7.10.2).

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use crate::model::QpIdentity;

/// All bound windows, by index.
#[derive(Default)]
pub(super) struct Bindings {
    of_region: BTreeSet<(u32, u32)>,
    of_user: BTreeSet<(u64, u32)>,
}

impl Bindings {
    pub(super) fn insert(&mut self, window: u32, region: u32, user: QpIdentity) {
        self.of_region.insert((region, window));
        self.of_user.insert((user.serial(), window));
    }

    pub(super) fn remove(&mut self, window: u32, region: u32, user: QpIdentity) {
        self.of_region.remove(&(region, window));
        self.of_user.remove(&(user.serial(), window));
    }

    pub(super) fn region_has_any(&self, region: u32) -> bool {
        self.of_region.range(all_of(region)).next().is_some()
    }

    pub(super) fn user_has_any(&self, user: QpIdentity) -> bool {
        self.of_user.range(all_of(user.serial())).next().is_some()
    }

    /// The windows that are bound to a region.
    pub(super) fn of_region(&self, region: u32) -> Vec<u32> {
        let bound = self.of_region.range(all_of(region));
        bound.map(|(_, window)| *window).collect()
    }

    /// The windows that a queue pair has bound.
    pub(super) fn of_user(&self, user: QpIdentity) -> Vec<u32> {
        let bound = self.of_user.range(all_of(user.serial()));
        bound.map(|(_, window)| *window).collect()
    }
}

/// Every pair that begins with this.
fn all_of<T: Copy>(first: T) -> RangeInclusive<(T, u32)> {
    (first, 0)..=(first, u32::MAX)
}
