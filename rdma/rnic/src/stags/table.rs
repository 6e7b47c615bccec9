//! The table of `STag`s.

use std::collections::VecDeque;
use std::ops::Range;

use xwarp_driver::SharedBytes;
use xwarp_iwarp::rdmap::ATOMIC_OPERAND_BYTES;
use xwarp_iwarp::{AccessError, AtomicRequest, Stag};

use super::bindings::Bindings;
use super::domains::Domains;
use super::entries::Entries;
use super::entry::Entry;
use super::users::Users;
use super::view::{Bytes, View};
use crate::model::{
    ALL_QP_NUMBERS, Access, Addressing, CapabilityError, DeallocateError, MAX_QPS, MAX_STAGS,
    PblMode, PdId, PhysicalList, QpAccess, QpId, QpIdentity, RegisterError, SpecError, StagScope,
};

/// All `STag`s of an RNIC.
///
/// All 32 bits of an `STag` are random, unless the application chooses the key. So none can be
/// guessed from others, and they are spread over the whole range (RFC 5040 §8.1.1; RFC 5042
/// §6.1.1). The upper 24 bits are the index. It is never 0 (verbs draft §7.2.1), nor that of
/// another region or window, nor one that was deallocated lately. Regions and windows share the
/// index space, so that an access costs one lookup (decision record rnic/0013).
pub struct StagTable {
    entries: Entries,
    /// Deallocated indices that rest, the oldest first.
    resting: VecDeque<u32>,
    /// The queue pairs that may use regions.
    users: Users,
    bindings: Bindings,
    /// Memory of the physical addresses, which are offsets in it.
    area: SharedBytes,
    /// View of `STag` 0: all of the region area.
    physical: Option<View>,
    random: RandomSource,
    mode: PblMode,
}

/// Source of random bits, 32 at a time; `None` if there are none. The core itself makes no system
/// call.
pub type RandomSource = fn() -> Option<u32>;

/// Number of `STag`s that are deallocated before an index is used again.
pub(super) const REST: usize = 16_384;

impl StagTable {
    /// A table without regions. Physical addresses are offsets in `area`.
    pub fn new(area: SharedBytes, mode: PblMode, random: RandomSource) -> Self {
        Self {
            entries: Entries::default(),
            resting: VecDeque::new(),
            users: Users::default(),
            bindings: Bindings::default(),
            physical: View::whole(area.clone(), Addressing::ZeroBased).ok(),
            area,
            random,
            mode,
        }
    }

    /// Prepares the table for several engines.
    pub fn share(&mut self) {
        self.entries.share();
    }

    /// An unused `STag`, with this key if one is given.
    pub(super) fn vacant(&mut self, key: Option<u8>) -> Result<Stag, RegisterError> {
        if self.entries.len() - self.resting.len() >= MAX_STAGS {
            return Err(RegisterError::TooManyStags);
        }
        self.entries.reserve()?;
        loop {
            let random = Stag(self.random()?);
            let stag = random.with_key(key.unwrap_or(random.key()));
            // Of 2^24 indices, fewer than 1 in 200 are in use, so the loop ends soon.
            if stag.index() != 0 && !self.entries.contains(stag.index()) {
                return Ok(stag);
            }
        }
    }

    pub(super) fn random(&self) -> Result<u32, RegisterError> {
        (self.random)().ok_or(RegisterError::NoRandomness)
    }

    pub(super) fn put(&mut self, index: u32, entry: Entry) {
        self.users.domains.join(entry.pd());
        let former = self.entries.put(index, entry);
        self.leave_domain(former);
    }

    /// Removes a former entry from the count of its domain.
    fn leave_domain(&mut self, former: Option<Entry>) {
        if let Some(former) = former {
            self.users.domains.leave(former.pd());
        }
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&Entry> {
        self.entries.get(index)
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Entry> {
        self.entries.get_mut(index)
    }

    /// Deallocate `STag` (verbs draft §7.9): after this call, no data can be placed into it or read
    /// from it.
    pub fn deallocate(&mut self, index: u32) -> Result<(), DeallocateError> {
        if self.get(index).is_none() {
            return Err(DeallocateError::InvalidStag);
        }
        if self.bindings.region_has_any(index) {
            return Err(DeallocateError::WindowsBound);
        }
        self.unbind(index);
        let former = self.entries.rest(index);
        self.leave_domain(former);
        self.resting.push_back(index);
        if self.resting.len() > REST
            && let Some(rested) = self.resting.pop_front()
        {
            self.entries.forget(rested);
        }
        Ok(())
    }

    /// Deallocates the index of a dropped handle, after it has invalidated the windows that are
    /// bound to it.
    pub fn release(&mut self, index: u32) {
        for window in self.bindings.of_region(index) {
            self.unbind(window);
        }
        // It may have been deallocated already.
        let _ = self.deallocate(index);
    }

    /// The protection domains.
    pub fn domains(&mut self) -> &mut Domains {
        &mut self.users.domains
    }

    /// Sets the numbers of queue pairs that are created from now on.
    ///
    /// # Errors
    ///
    /// [`CapabilityError`]: these are not numbers of 24 bits above 1, or no more of them than there
    /// can be queue pairs.
    pub fn set_qp_numbers(&mut self, range: Range<u32>) -> Result<(), CapabilityError> {
        let what = "a range of queue pair numbers of length";
        let are_numbers = range.start >= ALL_QP_NUMBERS.start && range.end <= ALL_QP_NUMBERS.end;
        let len = if are_numbers { range.len() } else { 0 };
        CapabilityError::check(what, len, MAX_QPS + 1, ALL_QP_NUMBERS.len())?;
        self.users.set_numbers(range);
        Ok(())
    }

    /// Adds a new queue pair.
    pub(crate) fn join(&mut self, pd: PdId, access: QpAccess) -> QpIdentity {
        self.users.join(pd, access)
    }

    /// Removes a destroyed queue pair: windows that it has bound cannot be used from now on.
    pub(crate) fn leave(&mut self, user: QpIdentity) {
        for window in self.bindings.of_user(user) {
            self.unbind(window);
        }
        self.users.leave(user);
    }

    /// Whether there is such a queue pair.
    pub fn has_user(&self, qp: QpId) -> bool {
        self.users.contains(qp.serial())
    }

    /// Whether more than one queue pair may use a region of this scope.
    pub(super) fn is_shared(&self, scope: StagScope) -> bool {
        self.users.share(scope)
    }

    /// Whether a queue pair has bound windows.
    pub(crate) fn has_windows(&self, user: QpIdentity) -> bool {
        self.bindings.user_has_any(user)
    }

    /// Whether windows are bound to this region.
    pub(super) fn has_windows_on(&self, region: u32) -> bool {
        self.bindings.region_has_any(region)
    }

    /// Records that a queue pair has bound a window to a region.
    pub(super) fn note_bound(&mut self, window: u32, region: u32, user: QpIdentity) {
        self.bindings.insert(window, region, user);
    }

    /// Removes the record of a bound window.
    pub(super) fn note_unbound(&mut self, window: u32, region: u32, user: QpIdentity) {
        self.bindings.remove(window, region, user);
    }

    /// Memory at physical addresses.
    pub(super) fn list_view(
        &self,
        list: &PhysicalList,
        addressing: Addressing,
    ) -> Result<View, SpecError> {
        list.check(self.mode, self.area.len() as u64, addressing)?;
        View::list(self.area.clone(), list, addressing)
    }

    #[inline]
    fn valid(&self, stag: Stag) -> Option<(&Entry, &View)> {
        let entry = self.get(stag.index())?;
        Some((entry, entry.view(stag)?))
    }

    /// `len` bytes at `to`, for `user` with all of `rights`. The checks and their order are those
    /// of RFC 5041 §7.1 (wire.md §5.2, T1 to T5). An access of no bytes is not checked.
    #[inline]
    pub(crate) fn access(
        &self,
        user: QpIdentity,
        stag: Stag,
        to: u64,
        len: u64,
        rights: Access,
    ) -> Result<Bytes<'_>, AccessError> {
        self.view_for(user, stag, rights)?.bytes(to, len)
    }

    /// The memory of an `STag`, for `user` with all of `rights`, for several accesses.
    #[inline]
    pub(crate) fn view_for(
        &self,
        user: QpIdentity,
        stag: Stag,
        rights: Access,
    ) -> Result<&View, AccessError> {
        let Some((entry, view)) = self.valid(stag) else {
            return self.physical(user, stag, rights);
        };
        if !entry.scope().admits(user) || !entry.access().contains(rights) {
            return Err(entry.refusal(user, rights));
        }
        Ok(view)
    }

    /// View of `STag` 0, all of the region area, for scatter/gather lists of privileged queue pairs
    /// (verbs draft §7.2.1).
    #[cold]
    fn physical(&self, user: QpIdentity, stag: Stag, rights: Access) -> Result<&View, AccessError> {
        let allowed = user.has(QpAccess::PHYSICAL) && Access::LOCAL.contains(rights);
        let physical = self.physical.as_ref();
        physical
            .filter(|_| stag == Stag(0) && allowed)
            .ok_or(AccessError::InvalidStag)
    }

    /// Executes an Atomic Request of `user`'s peer, atomically with all other operations on the
    /// same memory (R7306-5.3-1). Returns the original value.
    pub(crate) fn execute(
        &self,
        user: QpIdentity,
        request: &AtomicRequest,
    ) -> Result<u64, AccessError> {
        let (stag, to) = (request.stag, request.to);
        let right = Access::REMOTE_ATOMIC;
        self.access(user, stag, to, ATOMIC_OPERAND_BYTES, right)?
            .update_u64(|before| request.operation.apply(before))
            .ok_or(AccessError::Bounds) // alignment was checked with the request, but the STag may have other memory since
    }
}

#[cfg(test)]
impl StagTable {
    /// Number of indices that cannot be allocated now.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Memory of the physical addresses.
    pub(super) fn area(&self) -> &SharedBytes {
        &self.area
    }

    /// Number of indices that rest.
    pub(super) fn resting_len(&self) -> usize {
        self.resting.len()
    }
}
