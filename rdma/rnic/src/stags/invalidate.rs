//! Invalidation, by this side and by the peer (verbs draft §7.8, §7.10.4; RFC 5040 §5.3).
//!
//! The checks of an invalidation by the peer, in this order:
//!
//! | `STag` | Terminate |
//! |---|---|
//! | of another domain or queue pair, of a shared region, or of a region with windows | 0/1/09 |
//! | Invalid already (RFC 5040 §7.2) | 0/1/00 |
//! | without remote rights (verbs draft §7.4.2) | 0/1/02 |
//!
//! The verbs draft has 0/1/03 for an `STag` of another stream, but RFC 5040 §5.3 prevails. A queue
//! pair without IRD and without `inbound_write` admits no invalidation at all.

use xwarp_iwarp::{InvalidateError, Stag};

use super::entry::Entry;
use super::table::StagTable;
use crate::model::{Access, CompletionStatus, QpIdentity};

/// Why an `STag` is not invalidated.
enum Refusal {
    /// Unknown, or with another key.
    Unknown,
    /// It belongs to another domain or queue pair.
    NotAssociated,
    /// It belongs to a shared region, or to one with bound windows.
    Needed,
}

impl StagTable {
    /// Invalidate Local `STag`, and the invalidation after a Read (verbs.md A26).
    pub(crate) fn invalidate_local(
        &mut self,
        user: QpIdentity,
        stag: Stag,
    ) -> Result<(), CompletionStatus> {
        self.judge(user, stag).map_err(|refusal| match refusal {
            Refusal::Unknown | Refusal::Needed => CompletionStatus::InvalidStag,
            Refusal::NotAssociated => CompletionStatus::InvalidPd,
        })?;
        self.invalidate(stag);
        Ok(())
    }

    /// Checks whether `user`'s peer may invalidate `stag` (RFC 5040 §5.3). It may not if other
    /// queue pairs may use the region, too (R5040-8.1.1-7), if the peer has no right to it, or if
    /// it is Invalid already (RFC 5040 §7.2; the verbs draft's §7.8 would allow that).
    pub(crate) fn check_invalidate(
        &self,
        user: QpIdentity,
        stag: Stag,
    ) -> Result<(), InvalidateError> {
        let entry = self.judge(user, stag).map_err(|refusal| match refusal {
            Refusal::Unknown => InvalidateError::InvalidStag,
            Refusal::NotAssociated => InvalidateError::NotAssociated,
            Refusal::Needed => InvalidateError::Forbidden,
        })?;
        if entry.stag().is_none() {
            return Err(InvalidateError::InvalidStag);
        }
        if !user.is_open() || !entry.access().intersects(Access::REMOTE) {
            return Err(InvalidateError::Rights);
        }
        if self.is_shared(entry.scope()) {
            return Err(InvalidateError::Forbidden);
        }
        Ok(())
    }

    /// Checks the rules that hold for this side and the peer.
    fn judge(&self, user: QpIdentity, stag: Stag) -> Result<&Entry, Refusal> {
        let entry = self.get(stag.index()).ok_or(Refusal::Unknown)?;
        if entry.has_other_key(stag) {
            return Err(Refusal::Unknown);
        }
        if !entry.scope().admits(user) {
            return Err(Refusal::NotAssociated);
        }
        let shared = entry.region().is_some_and(|region| region.shared);
        if shared || self.has_windows_on(stag.index()) {
            return Err(Refusal::Needed);
        }
        Ok(entry)
    }

    /// Valid to Invalid: from now on this `STag` gives no access to the memory. All other
    /// attributes are kept (verbs draft §7.8).
    pub(crate) fn invalidate(&mut self, stag: Stag) {
        // Another queue pair may have registered it again since the check.
        if (self.get(stag.index())).is_none_or(|entry| entry.has_other_key(stag)) {
            return;
        }
        self.unbind(stag.index());
        if let Some(entry) = self.get_mut(stag.index()) {
            entry.invalidate();
        }
    }

    /// Unbinds a window that is bound, and returns it to its state after allocation (verbs draft
    /// §7.10.4).
    pub(super) fn unbind(&mut self, index: u32) {
        let bound = self.get_mut(index).and_then(Entry::unbind);
        if let Some((region, user)) = bound {
            self.note_unbound(index, region, user);
        }
    }
}
