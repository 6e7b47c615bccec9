//! The reference of an `STag` that work requests change: a window's, or one for Fast-Register
//! (verbs.md §11).

use xwarp::Stag;

/// Which of a end's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Window,
    Fast,
}

/// What it is.
#[derive(Default)]
pub(crate) struct StagModel {
    /// Its key, if it is Valid.
    pub(crate) bound: Option<Stag>,
    /// Changes that are under way.
    pub(crate) changes: usize,
    /// One of them was cut off, or several were under way at once.
    pub(crate) unsure: bool,
    /// What it was before.
    pub(crate) stale: Option<Stag>,
}

impl StagModel {
    pub(crate) fn is_certain(&self) -> bool {
        self.changes == 0 && !self.unsure
    }

    /// A change is posted. Several changes at once make the outcome uncertain: their completions
    /// come from different queues, and do not show which change was the last.
    pub(crate) fn begin(&mut self) {
        self.unsure |= self.changes > 0;
        self.changes += 1;
    }

    pub(crate) fn become_(&mut self, bound: Option<Stag>) {
        self.stale = self.bound.or(self.stale);
        self.bound = bound;
        self.changes = self.changes.saturating_sub(1);
    }

    /// Call this when no change is under way: `key` decides the outcome of changes that were cut
    /// off.
    pub(crate) fn settle(&mut self, stag: Stag, key: Option<u8>) {
        if !self.is_certain() {
            self.become_(key.map(|key| stag.with_key(key)));
            (self.changes, self.unsure) = (0, false);
        }
    }

    /// It is as it should be.
    pub(crate) fn check(&self, what: &str, key: Option<u8>) {
        if self.is_certain() {
            assert_eq!(key, self.bound.map(Stag::key), "{what}");
        }
    }
}
