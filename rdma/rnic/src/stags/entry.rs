//! Entry of the `STag` table: a region or window.

use xwarp_iwarp::{AccessError, Stag};

use super::view::View;
use crate::model::{Access, PdId, QpIdentity, StagScope};

/// A region or window.
pub(super) struct Entry {
    /// `STag` and memory while it is Valid; an Invalid one has neither (verbs draft §7.2.2).
    pub(super) valid: Option<(Stag, View)>,
    /// Who may use it: for a bound window the queue pair that bound it, otherwise as it was made.
    pub(super) scope: StagScope,
    pub(super) access: Access,
    pub(super) kind: Kind,
}

/// What else there is to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Region(Region),
    Window(Window),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    /// The Remote Access Flag.
    pub(super) remote_access: bool,
    /// Its memory is, or once was, that of another region, too.
    pub(super) shared: bool,
    /// Entries that its list may have.
    pub(super) entries: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// Who may bind it.
    pub(super) home: StagScope,
    /// Index of the region that it is bound to; means nothing while it is Invalid.
    pub(super) region: u32,
}

impl Entry {
    pub(super) fn region(&self) -> Option<&Region> {
        match &self.kind {
            Kind::Region(region) => Some(region),
            Kind::Window(_) => None,
        }
    }

    pub(super) fn region_mut(&mut self) -> Option<&mut Region> {
        match &mut self.kind {
            Kind::Region(region) => Some(region),
            Kind::Window(_) => None,
        }
    }

    pub(super) fn window(&self) -> Option<&Window> {
        match &self.kind {
            Kind::Window(window) => Some(window),
            Kind::Region(_) => None,
        }
    }

    /// Its protection domain. A window is never bound by a queue pair of another one.
    pub(super) fn pd(&self) -> PdId {
        self.scope.pd()
    }

    /// Its memory, if this is the `STag` that it is Valid with.
    #[inline]
    pub(super) fn view(&self, stag: Stag) -> Option<&View> {
        let (valid, view) = self.valid.as_ref()?;
        (*valid == stag).then_some(view)
    }

    /// Is it Valid with another `STag`? While it is Invalid there is no key to be wrong (verbs draft §7.2).
    pub(super) fn has_other_key(&self, stag: Stag) -> bool {
        self.valid.as_ref().is_some_and(|(valid, _)| *valid != stag)
    }

    /// Why `user` may not have these rights. A scatter/gather list cannot name a window at all (verbs draft §8.1.3.2).
    #[cold]
    pub(super) fn refusal(&self, user: QpIdentity, rights: Access) -> AccessError {
        if self.window().is_some() && rights.intersects(Access::LOCAL) {
            AccessError::InvalidStag
        } else if self.scope.admits(user) {
            AccessError::Rights
        } else {
            AccessError::NotAssociated
        }
    }
}
