//! Memory regions, and the table of `STag`s that the engine checks every access against (verbs draft §7).

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use bitflags::bitflags;
use rustc_hash::FxHashMap;
use xwarp_driver::SharedBytes;
use xwarp_iwarp::rdmap::ATOMIC_OPERAND_BYTES;
use xwarp_iwarp::{AccessError, AtomicRequest, InvalidateError, Stag};

use crate::control::Control;
use crate::error::RegisterError;
use crate::user::{Scope, User, Users};
use crate::work::{RemoteAddress, Sge};

bitflags! {
    /// What may be done with a region (verbs draft §7.7, figure 18). A remote right needs the local one of its kind.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Access: u8 {
        /// Sends and Writes may take their octets from it.
        const LOCAL_READ = 1;
        /// Receives may place octets into it.
        const LOCAL_WRITE = 2;
        /// The peer may read it.
        const REMOTE_READ = 4;
        /// The peer may write it, Read Responses that we asked for included.
        const REMOTE_WRITE = 8;
        /// The peer may execute Atomic Operations on it (RFC 7306 §5), which read and write: it needs both local rights, but
        /// neither needs nor implies a remote one.
        const REMOTE_ATOMIC = 16;
    }
}

impl Access {
    /// The rules of figure 18: at least one local right, and the local right of each remote one; both of them for atomics.
    fn check(self) -> Result<(), RegisterError> {
        let local = self.intersects(Self::LOCAL_READ | Self::LOCAL_WRITE);
        let read = !self.contains(Self::REMOTE_READ) || self.contains(Self::LOCAL_READ);
        let write = !self.contains(Self::REMOTE_WRITE) || self.contains(Self::LOCAL_WRITE);
        let both = Self::LOCAL_READ | Self::LOCAL_WRITE;
        let atomic = !self.contains(Self::REMOTE_ATOMIC) || self.contains(both);
        if local && read && write && atomic {
            Ok(())
        } else {
            Err(RegisterError::Rights(self))
        }
    }
}

/// A registered region. Its first octet has Tagged Offset 0 (zero-based). Dropping it deregisters it: from then on nobody can
/// reach the memory through its `STag`.
pub struct MemoryRegion {
    stag: Stag,
    bytes: SharedBytes,
    control: Arc<Control>,
}

impl MemoryRegion {
    pub(crate) fn register(
        control: &Arc<Control>,
        scope: Scope,
        bytes: SharedBytes,
        access: Access,
    ) -> Result<Self, RegisterError> {
        access.check()?;
        let entry = Region {
            scope,
            access,
            bytes: bytes.clone(),
        };
        let stag = control.call(move |engine| engine.stags.insert(entry))??;
        Ok(Self {
            stag,
            bytes,
            control: Arc::clone(control),
        })
    }

    /// The region's `STag`, to be told to the peer.
    pub fn stag(&self) -> Stag {
        self.stag
    }

    /// Octets.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True for a region of no octets.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The memory. The peer may change it at any time that its rights allow.
    pub fn bytes(&self) -> &SharedBytes {
        &self.bytes
    }

    /// `len` octets from `offset` on, for a scatter/gather list.
    pub fn local(&self, offset: u64, len: u32) -> Sge {
        Sge {
            stag: self.stag,
            to: offset,
            len,
        }
    }

    /// The place of octet `offset`, for the peer to name.
    pub fn remote(&self, offset: u64) -> RemoteAddress {
        RemoteAddress {
            stag: self.stag,
            to: offset,
        }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        let stag = self.stag;
        // An engine that is gone can no longer place anything.
        let _ = self.control.call(move |engine| engine.stags.remove(stag));
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "MemoryRegion({:?}, {} octets)",
            self.stag,
            self.bytes.len()
        )
    }
}

/// What the table holds of a region.
pub(crate) struct Region {
    scope: Scope,
    access: Access,
    bytes: SharedBytes,
}

/// All valid `STag`s of an RNIC.
///
/// All 32 bits of an `STag` are random, so that none can be guessed from others and they are spread over the whole range
/// (RFC 5040 §8.1.1; RFC 5042 §6.1.1), but its index, the upper 24 bits, is neither 0 (verbs draft §7.2.1) nor that of another
/// region, nor that of one of the regions which were deregistered last.
pub(crate) struct StagTable {
    /// By index; `None` for one that rests. No peer chooses an index, and ours are random, so the cheapest hash is as good as any.
    entries: FxHashMap<u32, Option<(Stag, Region)>>,
    /// Indices of deregistered regions, the longest ago first.
    resting: VecDeque<u32>,
    /// The queue pairs that regions may be there for.
    pub(crate) users: Users,
}

/// Regions that there can be at once: one index in 256, so that a guess rarely hits one.
const MAX_REGIONS: usize = u16::MAX as usize;
/// Regions that are deregistered before an index is used again.
const REST: usize = 16_384;

impl StagTable {
    pub(crate) fn new() -> Self {
        Self {
            entries: FxHashMap::default(),
            resting: VecDeque::new(),
            users: Users::new(),
        }
    }

    fn insert(&mut self, region: Region) -> Result<Stag, RegisterError> {
        if self.entries.len() - self.resting.len() >= MAX_REGIONS {
            return Err(RegisterError::TooManyRegions);
        }
        loop {
            let stag = Stag(getrandom::u32().map_err(|_| RegisterError::NoRandomness)?);
            // Of 2^24 indices less than 1 in 200 is taken: this ends soon.
            if stag.index() != 0 && !self.entries.contains_key(&stag.index()) {
                self.entries.insert(stag.index(), Some((stag, region)));
                return Ok(stag);
            }
        }
    }

    /// Forgets a region: when this returns, nothing can be placed into it or read from it any more.
    pub(crate) fn remove(&mut self, stag: Stag) {
        if self.find(stag).is_none() {
            return;
        }
        self.entries.insert(stag.index(), None);
        self.resting.push_back(stag.index());
        if self.resting.len() > REST
            && let Some(rested) = self.resting.pop_front()
        {
            self.entries.remove(&rested);
        }
    }

    fn find(&self, stag: Stag) -> Option<&Region> {
        match self.entries.get(&stag.index())? {
            Some((valid, region)) if *valid == stag => Some(region),
            _ => None,
        }
    }

    /// The memory behind `len` octets at `to`, and the offset in it, for `user` with all of `rights`. The checks and
    /// their order are those of RFC 5041 §7.1 (digest 5.2, T1 to T5). For no octets there is nothing to check.
    pub(crate) fn access(
        &self,
        user: User,
        stag: Stag,
        to: u64,
        len: u64,
        rights: Access,
    ) -> Result<(&SharedBytes, usize), AccessError> {
        let region = self.find(stag).ok_or(AccessError::InvalidStag)?;
        if !region.scope.admits(user) {
            return Err(AccessError::NotAssociated);
        }
        if !region.access.contains(rights) {
            return Err(AccessError::Rights);
        }
        let end = to.checked_add(len).ok_or(AccessError::Wrap)?;
        if end > region.bytes.len() as u64 {
            return Err(AccessError::Bounds);
        }
        let offset = usize::try_from(to).map_err(|_| AccessError::Bounds)?;
        Ok((&region.bytes, offset))
    }

    /// Do the octets at `to`, which may be accessed, lie where they can be changed atomically (R7306-5.1.1-1)?
    pub(crate) fn is_aligned(&self, stag: Stag, to: u64) -> bool {
        let offset = usize::try_from(to);
        (self.find(stag)).is_some_and(|region| offset.is_ok_and(|at| region.bytes.is_aligned(at)))
    }

    /// Executes an Atomic Request of `user`'s peer, atomically with all others on the same memory
    /// (R7306-5.3-1); what was there before.
    pub(crate) fn execute(&self, user: User, request: &AtomicRequest) -> Result<u64, AccessError> {
        let (stag, to) = (request.stag, request.to);
        let right = Access::REMOTE_ATOMIC;
        let (bytes, offset) = self.access(user, stag, to, ATOMIC_OPERAND_BYTES, right)?;
        bytes
            .update_u64(offset, |before| request.operation.apply(before))
            .map_err(|_| AccessError::Bounds) // alignment was judged with the request, and no region moves
    }

    /// May `user`'s peer invalidate `stag` (RFC 5040 §5.3, verbs draft §7.10.4)? Not if others may use the region, too (R5040-8.1.1-7).
    pub(crate) fn check_invalidate(&self, user: User, stag: Stag) -> Result<(), InvalidateError> {
        let region = self.find(stag).ok_or(InvalidateError::InvalidStag)?;
        if !region.scope.admits(user) {
            return Err(InvalidateError::NotAssociated);
        }
        let remote = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        if !region.access.intersects(remote) || self.users.share(region.scope) {
            return Err(InvalidateError::Forbidden);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::pd::PdId;

    const PD: PdId = PdId(1);
    const OTHER_PD: PdId = PdId(2);

    fn region(access: Access) -> Region {
        Region {
            scope: Scope::Domain(PD),
            access,
            bytes: SharedBytes::anonymous(4096).unwrap(),
        }
    }

    #[test]
    fn an_access_is_checked_in_the_order_of_the_rfc() {
        let mut table = StagTable::new();
        let (user, stranger) = (table.users.join(PD), table.users.join(OTHER_PD));
        let stag = table
            .insert(region(Access::LOCAL_READ | Access::REMOTE_READ))
            .unwrap();
        let check = |user, stag, to, len, rights| {
            table
                .access(user, stag, to, len, rights)
                .map(|(_, offset)| offset)
        };
        let read = Access::REMOTE_READ;
        assert_eq!(check(user, stag, 96, 4000, read), Ok(96), "exact fit");
        assert_eq!(check(user, stag, 97, 4000, read), Err(AccessError::Bounds));
        assert_eq!(check(user, stag, u64::MAX, 2, read), Err(AccessError::Wrap));
        assert_eq!(
            check(user, stag, u64::MAX, 2, Access::REMOTE_WRITE),
            Err(AccessError::Rights)
        );
        assert_eq!(
            check(stranger, stag, u64::MAX, 2, read),
            Err(AccessError::NotAssociated)
        );
        let other_key = Stag(stag.0 ^ 1);
        assert_eq!(
            check(stranger, other_key, 0, 1, read),
            Err(AccessError::InvalidStag)
        );
        assert_eq!(
            check(user, Stag(0), 0, 1, read),
            Err(AccessError::InvalidStag)
        );
    }

    #[test]
    fn a_removed_stag_is_invalid_and_removing_it_again_harms_nothing() {
        let mut table = StagTable::new();
        let user = table.users.join(PD);
        let other = table.insert(region(Access::LOCAL_READ)).unwrap();
        let stag = table.insert(region(Access::LOCAL_READ)).unwrap();
        for _ in 0..2 {
            table.remove(stag);
            let access = |stag| {
                let access = table.access(user, stag, 0, 1, Access::LOCAL_READ);
                access.map(|_| ())
            };
            assert_eq!(access(stag), Err(AccessError::InvalidStag));
            assert_eq!(access(other), Ok(()));
        }
        assert_eq!(table.resting.len(), 1);
    }

    /// One mapping serves all regions of a test that are never accessed.
    fn regions_of_one_page() -> impl FnMut() -> Region {
        let bytes = SharedBytes::anonymous(4096).unwrap();
        move || Region {
            scope: Scope::Domain(PD),
            access: Access::LOCAL_READ,
            bytes: bytes.clone(),
        }
    }

    #[test]
    fn stags_are_spread_over_all_32_bits_and_follow_no_pattern() {
        let (mut table, mut next) = (StagTable::new(), regions_of_one_page());
        let stags: Vec<u32> = (0..4096).map(|_| table.insert(next()).unwrap().0).collect();
        for bit in 0..32 {
            let ones = stags.iter().filter(|stag| *stag >> bit & 1 == 1).count();
            // The standard deviation is 32: twelve of them are no chance.
            assert!((1664..=2432).contains(&ones), "bit {bit}: {ones} of 4096");
        }
        let steps: HashSet<u32> = stags
            .windows(2)
            .map(|pair| pair[1].wrapping_sub(pair[0]))
            .collect();
        assert!(steps.len() > 4080, "{} different steps", steps.len());
    }

    #[test]
    fn an_index_rests_before_it_is_used_again() {
        let (mut table, mut next) = (StagTable::new(), regions_of_one_page());
        let (mut recent, mut order) = (HashSet::new(), VecDeque::new());
        for _ in 0..100_000 {
            let stag = table.insert(next()).unwrap();
            assert!(stag.index() != 0 && recent.insert(stag.index()), "{stag:?}");
            order.push_back(stag.index());
            table.remove(stag);
            if order.len() > REST {
                recent.remove(&order.pop_front().unwrap());
            }
        }
        assert_eq!(table.entries.len(), REST, "and no memory is kept for more");
    }

    #[test]
    fn regions_beyond_the_limit_are_refused_until_one_goes() {
        let (mut table, mut next) = (StagTable::new(), regions_of_one_page());
        let first = table.insert(next()).unwrap();
        for _ in 1..MAX_REGIONS {
            table.insert(next()).unwrap();
        }
        let refused = table.insert(next());
        assert!(matches!(refused, Err(RegisterError::TooManyRegions)));
        table.remove(first);
        assert!(table.insert(next()).is_ok());
    }

    #[test]
    fn rights_follow_figure_18() {
        let allowed: Vec<u8> = (0..16)
            .filter(|&bits| Access::from_bits_retain(bits).check().is_ok())
            .collect();
        // LR=1 LW=2 RR=4 RW=8: R; W; RW; R+RR; RW+RR; W+RW; RW+RW; all.
        assert_eq!(allowed, [1, 2, 3, 5, 7, 10, 11, 15]);
    }

    #[test]
    fn atomics_need_both_local_rights_and_no_remote_one() {
        let allowed: Vec<u8> = (16..32)
            .filter(|&bits| Access::from_bits_retain(bits).check().is_ok())
            .collect();
        assert_eq!(allowed, [19, 23, 27, 31]);
    }

    #[test]
    fn an_atomic_is_executed_only_where_its_right_is() {
        let mut table = StagTable::new();
        let user = table.users.join(PD);
        let local = Access::LOCAL_READ | Access::LOCAL_WRITE;
        let all_others = region(local | Access::REMOTE_READ | Access::REMOTE_WRITE);
        let atomic = region(local | Access::REMOTE_ATOMIC);
        let memory = atomic.bytes.clone();
        let (all_others, atomic) = (
            table.insert(all_others).unwrap(),
            table.insert(atomic).unwrap(),
        );
        let add = |stag, to| AtomicRequest {
            id: 0,
            operation: xwarp_iwarp::AtomicOperation::FetchAdd { add: 5, mask: 0 },
            stag,
            to,
        };
        let execute = |stag, to| table.execute(user, &add(stag, to));
        assert_eq!(execute(all_others, 0), Err(AccessError::Rights));
        assert_eq!(execute(atomic, 4096 - 7), Err(AccessError::Bounds));
        assert_eq!(memory.to_vec(), [0; 4096]);
        assert_eq!((execute(atomic, 8), execute(atomic, 8)), (Ok(0), Ok(5)));
        assert_eq!(memory.to_vec()[8..16], 10_u64.to_ne_bytes());
        assert!(table.is_aligned(atomic, 4088) && !table.is_aligned(atomic, 4));
        assert!(!table.is_aligned(Stag(7), 8) && !table.is_aligned(atomic, u64::MAX - 7));
    }

    #[test]
    fn a_region_without_remote_rights_cannot_be_invalidated_remotely() {
        let mut table = StagTable::new();
        let (user, stranger) = (table.users.join(PD), table.users.join(OTHER_PD));
        let local = table.insert(region(Access::LOCAL_READ)).unwrap();
        let remote = table
            .insert(region(Access::LOCAL_READ | Access::REMOTE_READ))
            .unwrap();
        assert_eq!(
            table.check_invalidate(user, local),
            Err(InvalidateError::Forbidden)
        );
        let atomic = Access::LOCAL_READ | Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
        let atomic = table.insert(region(atomic)).unwrap();
        assert_eq!(table.check_invalidate(user, remote), Ok(()));
        assert_eq!(table.check_invalidate(user, atomic), Ok(()));
        assert_eq!(
            table.check_invalidate(stranger, remote),
            Err(InvalidateError::NotAssociated)
        );
        assert_eq!(
            table.check_invalidate(user, Stag(7)),
            Err(InvalidateError::InvalidStag)
        );
    }

    const ALL: Access = Access::all();

    fn region_for(user: User) -> Region {
        Region {
            scope: Scope::QueuePair(user),
            ..region(ALL)
        }
    }

    #[test]
    fn a_region_of_one_queue_pair_is_closed_to_the_others_of_its_domain() {
        let mut table = StagTable::new();
        let (owner, neighbour) = (table.users.join(PD), table.users.join(PD));
        let stag = table.insert(region_for(owner)).unwrap();
        let add = AtomicRequest {
            id: 0,
            operation: xwarp_iwarp::AtomicOperation::FetchAdd { add: 5, mask: 0 },
            stag,
            to: 0,
        };
        for right in Access::all().iter() {
            let access = |user| table.access(user, stag, 8, 4, right).map(|(_, at)| at);
            assert_eq!(access(owner), Ok(8), "{right:?}");
            assert_eq!(access(neighbour), Err(AccessError::NotAssociated));
        }
        let refused = table.execute(neighbour, &add);
        assert_eq!(refused, Err(AccessError::NotAssociated));
        assert_eq!(table.execute(owner, &add), Ok(0), "nothing was added");
        // The scope is judged before rights, wrap and bounds.
        let wraps = table.access(neighbour, stag, u64::MAX, 2, ALL);
        assert_eq!(wraps.map(|_| ()), Err(AccessError::NotAssociated));
        let invalidate = |user| table.check_invalidate(user, stag);
        assert_eq!(invalidate(neighbour), Err(InvalidateError::NotAssociated));
        assert_eq!(invalidate(owner), Ok(()));
    }

    #[test]
    fn a_region_of_a_queue_pair_that_is_gone_is_open_to_nobody() {
        let mut table = StagTable::new();
        let owner = table.users.join(PD);
        let stag = table.insert(region_for(owner)).unwrap();
        table.users.leave(owner);
        let heir = table.users.join(PD);
        let access = table.access(heir, stag, 0, 1, Access::LOCAL_READ);
        assert_eq!(access.map(|_| ()), Err(AccessError::NotAssociated));
        let invalidate = table.check_invalidate(heir, stag);
        assert_eq!(invalidate, Err(InvalidateError::NotAssociated));
    }

    #[test]
    fn a_region_that_several_queue_pairs_may_use_cannot_be_invalidated_remotely() {
        let mut table = StagTable::new();
        let shared = table.insert(region(ALL)).unwrap();
        let user = table.users.join(PD);
        table.users.join(OTHER_PD);
        assert_eq!(table.check_invalidate(user, shared), Ok(()), "alone");
        let neighbour = table.users.join(PD);
        for user in [user, neighbour] {
            let refused = table.check_invalidate(user, shared);
            assert_eq!(refused, Err(InvalidateError::Forbidden));
        }
        table.users.leave(user);
        let last = table.check_invalidate(neighbour, shared);
        assert_eq!(last, Ok(()), "alone again");
    }
}
