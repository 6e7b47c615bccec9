//! Views: the memory that a queue pair accesses piece by piece. The last lookup is cached, as it
//! often serves the next access.

use xwarp_iwarp::Stag;

use super::table::StagTable;
use super::view::{Bytes, View};
use crate::model::{Access, QpIdentity};

/// Memory that one user accesses with the same rights.
pub(crate) struct Views<'a> {
    stags: &'a StagTable,
    user: QpIdentity,
    rights: Access,
    last: Option<(Stag, &'a View)>,
}

impl<'a> Views<'a> {
    /// Memory that `user` accesses with all of `rights`.
    pub(crate) fn new(stags: &'a StagTable, user: QpIdentity, rights: Access) -> Self {
        Self {
            stags,
            user,
            rights,
            last: None,
        }
    }

    /// Looks up the first access at once, which costs less if there is no other access.
    #[inline]
    pub(crate) fn beginning_with(self, stag: Stag) -> Self {
        let view = self.stags.view_for(self.user, stag, self.rights).ok();
        let last = view.map(|view| (stag, view));
        Self { last, ..self }
    }

    /// `len` bytes at `to`, as [`StagTable::access`] returns them.
    #[inline]
    pub(crate) fn bytes(&mut self, stag: Stag, to: u64, len: u64) -> Option<Bytes<'a>> {
        self.view(stag)?.bytes(to, len).ok()
    }

    #[inline]
    fn view(&mut self, stag: Stag) -> Option<&'a View> {
        match self.last {
            Some((last, view)) if last == stag => Some(view),
            _ => self.look_up(stag),
        }
    }

    #[inline(never)]
    fn look_up(&mut self, stag: Stag) -> Option<&'a View> {
        let view = self.stags.view_for(self.user, stag, self.rights).ok()?;
        self.last = Some((stag, view));
        Some(view)
    }
}
