//! Windows in the table (verbs draft §7.10).

use xwarp_iwarp::Stag;

use super::entry::Entry;
use super::table::StagTable;
use super::view::View;
use crate::model::{
    Access, Bind, CompletionStatus, QpAccess, QpIdentity, QueryError, RegisterError, StagScope,
    WindowInfo,
};

impl StagTable {
    /// Allocate Memory Window. The `STag`'s key has no meaning before the window is bound.
    pub fn allocate_window(&mut self, home: StagScope) -> Result<Stag, RegisterError> {
        let stag = self.vacant(None)?;
        self.put(stag.index(), Entry::unbound_window(home));
        Ok(stag)
    }

    /// Query Memory Window.
    pub fn query_window(&self, index: u32) -> Result<WindowInfo, QueryError> {
        let entry = self.get(index).ok_or(QueryError::InvalidStag)?;
        entry.window_home().ok_or(QueryError::InvalidStag)?;
        Ok(WindowInfo {
            key: entry.stag().map(Stag::key),
            pd: entry.pd(),
            access: entry.access(),
        })
    }

    /// Bind Memory Window, for a work request of `user` (verbs draft §7.10.2, §7.10.6.1).
    pub(crate) fn bind(&mut self, user: QpIdentity, bind: &Bind) -> Result<(), CompletionStatus> {
        if !user.has(QpAccess::BIND_WINDOWS) {
            return Err(CompletionStatus::AccessViolation);
        }
        self.check_window(user, bind.window)?;
        let view = self.window_view(user, bind)?;
        let Some(entry) = self.get_mut(bind.window.index()) else {
            return Err(CompletionStatus::InvalidWindow);
        };
        entry.bind(user, bind, view);
        let (window, region) = (bind.window.index(), bind.region.index());
        self.note_bound(window, region, user);
        Ok(())
    }

    /// Checks that it is a window that `user` may bind now.
    fn check_window(&self, user: QpIdentity, stag: Stag) -> Result<(), CompletionStatus> {
        let entry = self.get(stag.index());
        let entry = entry.ok_or(CompletionStatus::InvalidWindow)?;
        let home = entry.window_home();
        let home = home.ok_or(CompletionStatus::InvalidWindow)?;
        if !home.admits(user) {
            return Err(CompletionStatus::InvalidPd);
        }
        if entry.stag().is_some() {
            return Err(CompletionStatus::StagNotInvalid);
        }
        Ok(())
    }

    /// The part of the region that the window covers.
    fn window_view(&self, user: QpIdentity, bind: &Bind) -> Result<View, CompletionStatus> {
        let entry = self.get(bind.region.index());
        let entry = entry.ok_or(CompletionStatus::InvalidRegion)?;
        if entry.region().is_none() {
            return Err(CompletionStatus::InvalidRegion);
        }
        let view = entry.view(bind.region);
        let view = view.ok_or(CompletionStatus::InvalidRegion)?;
        if !entry.scope().admits(user) {
            return Err(CompletionStatus::InvalidPd);
        }
        if view.is_zero_based() {
            return Err(CompletionStatus::InvalidRegion);
        }
        if !entry.access().contains(Access::BIND_WINDOWS)
            || !bind.access.suits_window_on(entry.access())
        {
            return Err(CompletionStatus::AccessViolation);
        }
        view.part(bind.to, bind.len, bind.base())
            .map_err(CompletionStatus::of_access)
    }
}
