//! A region's `STag` by itself, with or without memory (verbs draft §7.3.2.1).

use std::fmt;
use std::sync::Arc;

use xwarp_iwarp::Stag;

use super::owner::Owner;
use crate::error::RefusedError;
use crate::pd::ProtectionDomain;
use crate::runtime::control::Control;
use xwarp_rnic::model::{
    Access, Addressing, DeallocateError, FastRegister, PhysicalList, QueryError, RegionInfo,
    RegionMemory, RegionSpec, RegisterError, StagScope,
};
use xwarp_rnic::stags::NotReregistered;

/// The `STag` of a region that is not shared. Fast-Register or [`reregister`](Self::reregister)
/// registers memory with it. Dropping it deallocates it, and invalidates the windows that are bound
/// to it.
///
/// ```no_run
/// # fn fast(rnic: &xwarp::Rnic, pd: &xwarp::ProtectionDomain, qp: &mut xwarp::QueuePair) -> Result<(), Box<dyn std::error::Error>> {
/// use xwarp::{Access, SendRequest, WrId};
/// use xwarp::memory::PhysicalList;
///
/// let memory = rnic.allocate_memory(8192)?;
/// let at = rnic.physical_address(&memory).ok_or("not of this RNIC")?;
/// let mut stag = pd.allocate_stag(2, true)?;
/// let list = PhysicalList {
///     entry_size: 4096,
///     addresses: vec![at + 4096, at].into(),
///     first_byte_offset: 0,
///     len: 8192,
/// };
/// let request = stag.fast_register(list, Access::LOCAL_READ | Access::REMOTE_READ);
/// qp.post_send(SendRequest::fast_register(WrId(1), request.clone()))?;
/// // ... and when the peer has read:
/// qp.post_send(SendRequest::invalidate(WrId(2), request.stag))?;
/// # Ok(()) }
/// ```
pub struct AllocatedStag {
    owner: Owner,
    /// The latest `STag`, from the verb that made it or from
    /// [`fast_register`](Self::fast_register).
    stag: Stag,
}

impl ProtectionDomain {
    /// Allocates the `STag` of a region without memory (verbs draft §9.2.6.1), for lists of up to
    /// `entries` entries. Without `remote_access` no remote right can be given to it.
    ///
    /// # Errors
    ///
    /// - [`RegisterError::Spec`]: a list cannot have that many entries.
    /// - [`RegisterError::TooManyStags`]: the RNIC has its maximum number of regions and windows.
    /// - [`RegisterError::Memory`], [`RegisterError::NoRandomness`]: the host has no memory, or no
    ///   random bytes for an `STag`.
    /// - [`RegisterError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn allocate_stag(
        &self,
        entries: usize,
        remote_access: bool,
    ) -> Result<AllocatedStag, RegisterError> {
        AllocatedStag::allocate(self.control(), self.scope(), entries, remote_access)
    }
}

impl AllocatedStag {
    pub(super) fn new(stag: Stag, control: &Arc<Control>) -> Self {
        Self {
            owner: Owner::new(stag.index(), control),
            stag,
        }
    }

    pub(crate) fn allocate(
        control: &Arc<Control>,
        scope: StagScope,
        entries: usize,
        remote_access: bool,
    ) -> Result<Self, RegisterError> {
        let stag = control
            .call(move |engine| engine.stags().allocate(scope, entries, remote_access))??;
        Ok(Self::new(stag, control))
    }

    /// The latest `STag`. [`query`](Self::query) reports whether it is Valid.
    pub fn stag(&self) -> Stag {
        self.stag
    }

    /// Query Memory Region (verbs draft §9.2.6.3).
    ///
    /// # Errors
    ///
    /// [`QueryError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn query(&self) -> Result<RegionInfo, QueryError> {
        let index = self.owner.index();
        let control = self.owner.control();
        control.call(move |engine| engine.stags().query_region(index))?
    }

    /// Returns a request that registers a list, zero-based, with the next key. The previous key is
    /// used again only after all other keys. The list may have at most [`RegionInfo::entries`]
    /// entries. Remote rights require the region's Remote Access Flag (verbs draft §7.3.2.5).
    pub fn fast_register(&mut self, list: PhysicalList, access: Access) -> FastRegister {
        self.stag = self.stag.with_key(self.stag.key().wrapping_add(1));
        FastRegister {
            stag: self.stag,
            list,
            access,
            addressing: Addressing::ZeroBased,
        }
    }

    /// Reregisters. An error that deallocates the `STag` leaves nothing to own.
    pub(super) fn replace(
        &mut self,
        pd: &ProtectionDomain,
        memory: RegionMemory,
        spec: &RegionSpec,
    ) -> Result<Stag, NotReregistered> {
        let (control, index) = (self.owner.control(), self.owner.index());
        let kept = |cause| NotReregistered { kept: true, cause };
        if !pd.is_of(control) {
            return Err(kept(RegisterError::OtherRnic));
        }
        let (scope, spec) = (pd.scope(), *spec);
        let replaced = control
            .call(move |engine| engine.stags().reregister(index, scope, &memory, &spec))
            .map_err(|closed| kept(closed.into()))?;
        if let Err(NotReregistered { kept: false, .. }) = replaced {
            self.owner.disown();
        }
        replaced
    }

    /// Deallocate `STag` (verbs draft §7.9), whether Valid or not. After this returns, no access
    /// through it reaches memory. Refused while windows are bound to it.
    ///
    /// # Errors
    ///
    /// - [`DeallocateError::WindowsBound`]: windows are bound to it.
    /// - [`DeallocateError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn deallocate(mut self) -> Result<(), RefusedError<Self, DeallocateError>> {
        RefusedError::unless(self.owner.deallocate(), self)
    }

    /// Records the `STag` of a new registration.
    pub(super) fn renew(&mut self, stag: Stag) {
        self.stag = stag;
    }

    pub(super) fn control(&self) -> &Arc<Control> {
        self.owner.control()
    }
}

impl fmt::Debug for AllocatedStag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AllocatedStag({:?})", self.stag)
    }
}
