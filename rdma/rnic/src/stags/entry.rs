//! Entry of the `STag` table: a region or window, Invalid or Valid (verbs draft §7.2.2, §7.10.5).
//! Only this file changes one.

use xwarp_iwarp::{AccessError, Stag};

use super::view::View;
use crate::model::{Access, Bind, PdId, QpIdentity, StagScope};

/// A region or window.
pub(super) struct Entry {
    /// `STag` and memory while it is Valid; an Invalid one has neither (verbs draft §7.2.2).
    valid: Option<(Stag, View)>,
    /// Who may use it: the queue pair that bound a window, otherwise the scope of its creation.
    scope: StagScope,
    access: Access,
    kind: Kind,
}

/// Attributes of a region or of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Region(Region),
    Window(Window),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    /// The Remote Access Flag.
    pub(super) remote_access: bool,
    /// Whether it shares its memory with another region, or once did.
    pub(super) shared: bool,
    /// Entries that its list may have.
    pub(super) entries: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    /// Who may bind it.
    home: StagScope,
    /// Index of the region that it is bound to. Not valid in state Invalid.
    region: u32,
}

impl Entry {
    /// A region without memory, in state Invalid.
    pub(super) fn invalid_region(scope: StagScope, region: Region) -> Self {
        Self {
            valid: None,
            scope,
            access: Access::empty(),
            kind: Kind::Region(region),
        }
    }

    /// A region in state Valid.
    pub(super) fn valid_region(
        (stag, view): (Stag, View),
        scope: StagScope,
        access: Access,
        region: Region,
    ) -> Self {
        Self {
            valid: Some((stag, view)),
            scope,
            access,
            kind: Kind::Region(region),
        }
    }

    /// An unbound window, which members of `home` may bind.
    pub(super) fn unbound_window(home: StagScope) -> Self {
        Self {
            valid: None,
            scope: home,
            access: Access::empty(),
            kind: Kind::Window(Window { home, region: 0 }),
        }
    }

    /// Makes a region Valid (Fast-Register, verbs draft §7.3.2.5).
    pub(super) fn register(&mut self, stag: Stag, view: View, access: Access) {
        self.valid = Some((stag, view));
        self.access = access;
    }

    /// Marks its memory as shared with another region, permanently (verbs draft §7.3.2.4).
    pub(super) fn share(&mut self) {
        if let Kind::Region(region) = &mut self.kind {
            region.shared = true;
        }
    }

    /// Binds a window to the part `view` of a region, for `user` (verbs draft §7.10.2). From then
    /// on only `user` may use it.
    pub(super) fn bind(&mut self, user: QpIdentity, bind: &Bind, view: View) {
        if let Kind::Window(window) = &mut self.kind {
            window.region = bind.region.index();
            self.valid = Some((bind.window, view));
            self.access = bind.access;
            self.scope = StagScope::QueuePair(user);
        }
    }

    /// Valid to Invalid. All other attributes are kept (verbs draft §7.8).
    pub(super) fn invalidate(&mut self) {
        self.valid = None;
    }

    /// Returns a window to its state after allocation (verbs draft §7.10.4). Returns the index of
    /// the region that it was bound to, and the queue pair that had bound it; `None` if it was not
    /// bound.
    pub(super) fn unbind(&mut self) -> Option<(u32, QpIdentity)> {
        let Kind::Window(window) = self.kind else {
            return None;
        };
        let bound_by = std::mem::replace(&mut self.scope, window.home);
        self.valid.take()?;
        self.access = Access::empty();
        match bound_by {
            StagScope::QueuePair(user) => Some((window.region, user)),
            StagScope::Domain(_) => None,
        }
    }

    pub(super) fn region(&self) -> Option<&Region> {
        match &self.kind {
            Kind::Region(region) => Some(region),
            Kind::Window(_) => None,
        }
    }

    /// Who may bind it, if it is a window.
    pub(super) fn window_home(&self) -> Option<StagScope> {
        match &self.kind {
            Kind::Window(window) => Some(window.home),
            Kind::Region(_) => None,
        }
    }

    /// Its `STag` in state Valid.
    pub(super) fn stag(&self) -> Option<Stag> {
        self.valid.as_ref().map(|(stag, _)| *stag)
    }

    /// Who may use it.
    #[inline]
    pub(super) fn scope(&self) -> StagScope {
        self.scope
    }

    #[inline]
    pub(super) fn access(&self) -> Access {
        self.access
    }

    /// Its protection domain. Only a queue pair of the same domain can bind a window.
    pub(super) fn pd(&self) -> PdId {
        self.scope.pd()
    }

    /// Its memory, if `stag` is its `STag` in state Valid.
    #[inline]
    pub(super) fn view(&self, stag: Stag) -> Option<&View> {
        let (valid, view) = self.valid.as_ref()?;
        (*valid == stag).then_some(view)
    }

    /// Whether it is Valid with another key. While it is Invalid, no key is wrong (verbs draft
    /// §7.2).
    pub(super) fn has_other_key(&self, stag: Stag) -> bool {
        self.valid.as_ref().is_some_and(|(valid, _)| *valid != stag)
    }

    /// Why `user` may not have these rights. A scatter/gather list cannot name a window (verbs
    /// draft §8.1.3.2).
    #[cold]
    pub(super) fn refusal(&self, user: QpIdentity, rights: Access) -> AccessError {
        if self.window_home().is_some() && rights.intersects(Access::LOCAL) {
            AccessError::InvalidStag
        } else if self.scope.admits(user) {
            AccessError::Rights
        } else {
            AccessError::NotAssociated
        }
    }
}
