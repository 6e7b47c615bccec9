//! The table of `STag`s.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use xwarp_driver::SharedBytes;
use xwarp_iwarp::rdmap::ATOMIC_OPERAND_BYTES;
use xwarp_iwarp::{AccessError, AtomicRequest, Stag};

use super::bindings::Bindings;
use super::entry::Entry;
use super::users::Users;
use super::view::{Bytes, View};
use crate::model::{
    Ability, Access, Addressing, DeallocateError, ListMode, MAX_STAGS, OutOfMemory, RegisterError,
    User,
};

/// All `STag`s of an RNIC.
///
/// All 32 bits of an `STag` are random, so that none can be guessed from others and they are spread over the whole range
/// (RFC 5040 §8.1.1; RFC 5042 §6.1.1), unless the application chooses the key; but its index, the upper 24 bits, is neither 0 (verbs
/// draft §7.2.1) nor that of another region or window, nor that of one of those which were deallocated last.
pub struct StagTable {
    /// By index; `None` for one that rests. No peer chooses an index, and ours are random, so the cheapest hash is as good as any.
    pub(super) entries: FxHashMap<u32, Option<Entry>>,
    /// Indices that were deallocated, the longest ago first.
    pub(super) resting: VecDeque<u32>,
    /// The queue pairs that regions may be there for.
    pub(crate) users: Users,
    pub(super) bindings: Bindings,
    /// What physical addresses are offsets in.
    pub(super) area: SharedBytes,
    /// What `STag` 0 stands for: all of it.
    physical: Option<View>,
    random: RandomSource,
    pub(super) mode: ListMode,
}

/// Where random bits come from, 32 at a time; `None` if there are none. The core itself asks no kernel.
pub type RandomSource = fn() -> Option<u32>;

/// `STag`s that are deallocated before an index is used again.
pub(super) const REST: usize = 16_384;

impl StagTable {
    /// Without any region; the physical addresses are those of `area`.
    pub fn new(area: SharedBytes, mode: ListMode, random: RandomSource) -> Self {
        Self {
            entries: FxHashMap::default(),
            resting: VecDeque::new(),
            users: Users::default(),
            bindings: Bindings::default(),
            physical: View::whole(area.clone(), Addressing::ZeroBased).ok(),
            area,
            random,
            mode,
        }
    }

    /// An `STag` that nobody has, with this key if one is given.
    pub(super) fn vacant(&mut self, key: Option<u8>) -> Result<Stag, RegisterError> {
        if self.entries.len() - self.resting.len() >= MAX_STAGS {
            return Err(RegisterError::TooManyStags);
        }
        self.entries.try_reserve(1).map_err(|_| OutOfMemory)?;
        loop {
            let random = Stag(self.random()?);
            let stag = random.with_key(key.unwrap_or(random.key()));
            // Of 2^24 indices less than 1 in 200 is taken: this ends soon.
            if stag.index() != 0 && !self.entries.contains_key(&stag.index()) {
                return Ok(stag);
            }
        }
    }

    pub(super) fn random(&self) -> Result<u32, RegisterError> {
        (self.random)().ok_or(RegisterError::NoRandomness)
    }

    pub(super) fn put(&mut self, index: u32, entry: Entry) {
        self.users.domains.join(entry.pd());
        self.set(index, Some(entry));
    }

    /// What was there before is of its domain no longer.
    fn set(&mut self, index: u32, entry: Option<Entry>) {
        if let Some(former) = self.entries.insert(index, entry).flatten() {
            self.users.domains.leave(former.pd());
        }
    }

    pub(super) fn get(&self, index: u32) -> Option<&Entry> {
        self.entries.get(&index)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Entry> {
        self.entries.get_mut(&index)?.as_mut()
    }

    /// Deallocate `STag` (verbs draft §7.9): when this returns, nothing can be placed into it or read from it any more.
    pub fn deallocate(&mut self, index: u32) -> Result<(), DeallocateError> {
        if self.get(index).is_none() {
            return Err(DeallocateError::InvalidStag);
        }
        if self.bindings.region_has_any(index) {
            return Err(DeallocateError::WindowsBound);
        }
        self.unbind(index);
        self.set(index, None);
        self.resting.push_back(index);
        if self.resting.len() > REST
            && let Some(rested) = self.resting.pop_front()
        {
            self.entries.remove(&rested);
        }
        Ok(())
    }

    /// Its owner is gone: deallocates it after it has taken away the windows that are bound to it.
    pub fn release(&mut self, index: u32) {
        for window in self.bindings.of_region(index) {
            self.unbind(window);
        }
        // What was deallocated already is unknown by now.
        let _ = self.deallocate(index);
    }

    fn valid(&self, stag: Stag) -> Option<(&Entry, &View)> {
        let entry = self.get(stag.index())?;
        Some((entry, entry.view(stag)?))
    }

    /// `len` bytes at `to`, for `user` with all of `rights`. The checks and their order are those of RFC 5041 §7.1 (wire.md §5.2, T1
    /// to T5). For no bytes there is nothing to check.
    pub(crate) fn access(
        &self,
        user: User,
        stag: Stag,
        to: u64,
        len: u64,
        rights: Access,
    ) -> Result<Bytes<'_>, AccessError> {
        let Some((entry, view)) = self.valid(stag) else {
            return self.physical(user, stag, rights)?.bytes(to, len);
        };
        if !entry.scope.admits(user) || !entry.access.contains(rights) {
            return Err(entry.refusal(user, rights));
        }
        view.bytes(to, len)
    }

    /// What `STag` 0 stands for: all of the region area, for scatter/gather lists of privileged queue pairs (verbs draft §7.2.1).
    #[cold]
    fn physical(&self, user: User, stag: Stag, rights: Access) -> Result<&View, AccessError> {
        let allowed = user.can(Ability::PHYSICAL) && Access::LOCAL.contains(rights);
        let physical = self.physical.as_ref();
        physical
            .filter(|_| stag == Stag(0) && allowed)
            .ok_or(AccessError::InvalidStag)
    }

    /// Executes an Atomic Request of `user`'s peer, atomically with all others on the same memory
    /// (R7306-5.3-1); what was there before.
    pub(crate) fn execute(&self, user: User, request: &AtomicRequest) -> Result<u64, AccessError> {
        let (stag, to) = (request.stag, request.to);
        let right = Access::REMOTE_ATOMIC;
        self.access(user, stag, to, ATOMIC_OPERAND_BYTES, right)?
            .update_u64(|before| request.operation.apply(before))
            .ok_or(AccessError::Bounds) // alignment was judged with the request, but the STag may have other memory since
    }
}
