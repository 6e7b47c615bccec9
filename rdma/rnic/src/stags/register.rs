//! Registration in the table (verbs draft §7.3).

use xwarp_iwarp::Stag;

use super::entry::{Entry, Region};
use super::table::StagTable;
use super::view::View;
use crate::model::{
    CompletionStatus, FastRegister, MAX_LIST_ENTRIES, QpAccess, QpIdentity, QueryError, RegionInfo,
    RegionMemory, RegionSpec, RegisterError, SpecError, StagScope,
};

/// Error of a Reregister.
#[derive(Debug)]
pub struct NotReregistered {
    /// Whether the region is unchanged; otherwise it is deallocated.
    pub kept: bool,
    /// Cause of the error.
    pub cause: RegisterError,
}

impl StagTable {
    /// RI-Register Non-Shared Memory Region.
    pub fn register(
        &mut self,
        scope: StagScope,
        memory: &RegionMemory,
        spec: &RegionSpec,
    ) -> Result<Stag, RegisterError> {
        let view = self.view(memory, spec)?;
        let stag = self.vacant(spec.key)?;
        self.put(stag.index(), non_shared(stag, view, scope, memory, spec));
        Ok(stag)
    }

    /// RI-Reregister Non-Shared Memory Region (verbs draft §7.3.2.3), under the same index. The
    /// error reports whether the region is unchanged or deallocated.
    pub fn reregister(
        &mut self,
        index: u32,
        scope: StagScope,
        memory: &RegionMemory,
        spec: &RegionSpec,
    ) -> Result<Stag, NotReregistered> {
        let kept = |cause| NotReregistered { kept: true, cause };
        let region = self.get(index).and_then(Entry::region);
        if region.is_none_or(|region| region.shared) {
            return Err(kept(RegisterError::InvalidStag));
        }
        if self.has_windows_on(index) {
            return Err(kept(RegisterError::WindowsBound));
        }
        let replaced = self.replace(index, scope, memory, spec);
        replaced.map_err(|cause| {
            self.release(index);
            NotReregistered { kept: false, cause }
        })
    }

    fn replace(
        &mut self,
        index: u32,
        scope: StagScope,
        memory: &RegionMemory,
        spec: &RegionSpec,
    ) -> Result<Stag, RegisterError> {
        let view = self.view(memory, spec)?;
        let stag = self.next_stag(index, spec.key)?;
        self.put(index, non_shared(stag, view, scope, memory, spec));
        Ok(stag)
    }

    /// Another `STag` of the same index: with this key, or with a random one that differs from the
    /// current key.
    fn next_stag(&self, index: u32, key: Option<u8>) -> Result<Stag, RegisterError> {
        let plain = Stag(index << 8);
        let now = self.get(index).and_then(Entry::stag);
        if let Some(key) = key {
            return Ok(plain.with_key(key));
        }
        loop {
            let stag = plain.with_key(Stag(self.random()?).key());
            if now != Some(stag) {
                return Ok(stag);
            }
        }
    }

    /// Register Shared Memory Region: a further `STag` for the memory of `existing` (verbs draft
    /// §7.3.2.4, verbs.md A12).
    pub fn register_shared(
        &mut self,
        existing: Stag,
        scope: StagScope,
        spec: &RegionSpec,
    ) -> Result<Stag, RegisterError> {
        let entry = self.get(existing.index());
        let entry = entry.ok_or(RegisterError::InvalidStag)?;
        let region = *entry.region().ok_or(RegisterError::InvalidStag)?;
        let view = entry.view(existing).ok_or(RegisterError::InvalidStag)?;
        spec.check_rights()?;
        check_writable(view, spec)?;
        let view = view.shared(spec.addressing)?;
        let stag = self.vacant(spec.key)?;
        let shared = Region {
            remote_access: spec.remote_access,
            shared: true,
            ..region
        };
        let shared = Entry::valid_region((stag, view), scope, spec.access, shared);
        self.put(stag.index(), shared);
        if let Some(entry) = self.get_mut(existing.index()) {
            entry.share();
        }
        Ok(stag)
    }

    /// Allocate Non-Shared Memory Region `STag`: without memory, in state Invalid. Its key has no
    /// meaning yet.
    pub fn allocate(
        &mut self,
        scope: StagScope,
        entries: usize,
        remote_access: bool,
    ) -> Result<Stag, RegisterError> {
        if entries > MAX_LIST_ENTRIES {
            return Err(SpecError::TooManyEntries(entries).into());
        }
        let stag = self.vacant(None)?;
        let region = Region {
            remote_access,
            shared: false,
            entries,
        };
        self.put(stag.index(), Entry::invalid_region(scope, region));
        Ok(stag)
    }

    /// Fast-Register, for a work request of `user` (verbs draft §7.3.2.5).
    pub(crate) fn fast_register(
        &mut self,
        user: QpIdentity,
        request: &FastRegister,
    ) -> Result<(), CompletionStatus> {
        if !user.has(QpAccess::PHYSICAL) {
            return Err(CompletionStatus::NotPrivileged);
        }
        let region = self.fast_region(user, request.stag)?;
        if request.list.addresses.len() > region.entries {
            return Err(CompletionStatus::ListTooLong);
        }
        let spec = request.spec(region.remote_access);
        spec.check_rights().map_err(CompletionStatus::of_spec)?;
        let view = self.list_view(&request.list, spec.addressing);
        let view = view.map_err(CompletionStatus::of_spec)?;
        if let Some(entry) = self.get_mut(request.stag.index()) {
            entry.register(request.stag, view, request.access);
        }
        Ok(())
    }

    /// The region that a Fast-Register may use now.
    fn fast_region(&self, user: QpIdentity, stag: Stag) -> Result<Region, CompletionStatus> {
        let entry = self.get(stag.index());
        let entry = entry.ok_or(CompletionStatus::InvalidStag)?;
        let region = *entry.region().ok_or(CompletionStatus::InvalidStag)?;
        if region.shared {
            return Err(CompletionStatus::InvalidStag);
        }
        if !entry.scope().admits(user) {
            return Err(CompletionStatus::InvalidPd);
        }
        if entry.stag().is_some() {
            return Err(CompletionStatus::StagNotInvalid);
        }
        Ok(region)
    }

    /// Query Memory Region.
    pub fn query_region(&self, index: u32) -> Result<RegionInfo, QueryError> {
        let entry = self.get(index).ok_or(QueryError::InvalidStag)?;
        let region = entry.region().ok_or(QueryError::InvalidStag)?;
        Ok(RegionInfo {
            key: entry.stag().map(Stag::key),
            remote_access: region.remote_access,
            pd: entry.pd(),
            shared: region.shared,
            entries: region.entries,
            access: entry.access(),
        })
    }

    fn view(&self, memory: &RegionMemory, spec: &RegionSpec) -> Result<View, RegisterError> {
        spec.check_rights()?;
        let view = match memory {
            RegionMemory::Whole(bytes) => View::whole(bytes.clone(), spec.addressing),
            RegionMemory::List(list) => self.list_view(list, spec.addressing),
        }?;
        check_writable(&view, spec)?;
        Ok(view)
    }
}

/// Refuses rights to write for read-only memory (verbs draft §7.5).
fn check_writable(view: &View, spec: &RegionSpec) -> Result<(), SpecError> {
    if spec.access.writes() && !view.is_writable() {
        return Err(SpecError::ReadOnlyMemory(spec.access));
    }
    Ok(())
}

/// A region that does not share its memory.
fn non_shared(
    stag: Stag,
    view: View,
    scope: StagScope,
    memory: &RegionMemory,
    spec: &RegionSpec,
) -> Entry {
    let region = Region {
        remote_access: spec.remote_access,
        shared: false,
        entries: memory.entries(),
    };
    Entry::valid_region((stag, view), scope, spec.access, region)
}
