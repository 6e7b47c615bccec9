//! Regions as an application holds them (verbs draft §7.3).

use std::fmt;
use std::sync::Arc;

use xwarp_driver::SharedBytes;
use xwarp_iwarp::Stag;

use super::stag::AllocatedStag;
use crate::error::{RefusedError, ReregisterError};
use crate::pd::ProtectionDomain;
use crate::runtime::control::Control;
use xwarp_rnic::model::Access;
use xwarp_rnic::model::{
    Addressing, DeallocateError, QueryError, RegionInfo, RegionMemory, RegionSpec, RegisterError,
    RemoteAddress, Sge, StagScope,
};
use xwarp_rnic::stags::NotReregistered;

/// A registered region: of memory in one piece, or of a
/// [`PhysicalList`](crate::memory::PhysicalList). Dropping it deregisters it, and invalidates the
/// windows that are bound to it: from then on no access through its `STag` reaches the memory.
pub struct MemoryRegion<M = SharedBytes> {
    stag: AllocatedStag,
    /// Tagged Offset of the region's first byte.
    base: u64,
    len: u64,
    memory: M,
}

impl ProtectionDomain {
    /// Allocates a zeroed region of `len` bytes from the RNIC's region area and registers it for
    /// the domain's queue pairs (verbs draft §9.2.6.2).
    ///
    /// # Errors
    ///
    /// - [`RegisterError::Full`]: the region area has no free piece of that length.
    /// - [`RegisterError::Spec`]: the rights are no valid set (verbs draft figure 18).
    /// - [`RegisterError::TooManyStags`]: the RNIC has its maximum number of regions and windows.
    /// - [`RegisterError::Memory`], [`RegisterError::NoRandomness`]: the host has no memory, or no
    ///   random bytes for an `STag`.
    /// - [`RegisterError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn allocate(&self, len: usize, access: Access) -> Result<MemoryRegion, RegisterError> {
        let bytes = self.control().regions().allocate(len)?;
        self.register(bytes, access)
    }

    /// RI-Register (verbs draft §9.2.6.2): registers the application's memory, for the domain's
    /// queue pairs. Several registrations of the same memory are independent.
    /// [`SharedBytes::from_vec`] converts a vector into such memory.
    ///
    /// # Errors
    ///
    /// - [`RegisterError::Spec`]: rights, Tagged Offsets or list are invalid (verbs draft
    ///   §7.4, §7.6), or the memory can only be read.
    /// - [`RegisterError::TooManyStags`]: the RNIC has its maximum number of regions and windows.
    /// - [`RegisterError::Memory`], [`RegisterError::NoRandomness`]: the host has no memory, or no
    ///   random bytes for an `STag`.
    /// - [`RegisterError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn register(
        &self,
        bytes: SharedBytes,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        self.register_with(bytes, &RegionSpec::new(access))
    }

    /// Registers memory with all options of the verbs (verbs draft §9.2.6.2): Tagged Offsets, key
    /// and Remote Access Flag. The memory is in one piece, or a
    /// [`PhysicalList`](crate::memory::PhysicalList).
    ///
    /// # Errors
    ///
    /// - [`RegisterError::Spec`]: rights, Tagged Offsets or list are invalid (verbs draft
    ///   §7.4, §7.6), or the memory can only be read.
    /// - [`RegisterError::TooManyStags`]: the RNIC has its maximum number of regions and windows.
    /// - [`RegisterError::Memory`], [`RegisterError::NoRandomness`]: the host has no memory, or no
    ///   random bytes for an `STag`.
    /// - [`RegisterError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn register_with<M>(
        &self,
        memory: M,
        spec: &RegionSpec,
    ) -> Result<MemoryRegion<M>, RegisterError>
    where
        M: Clone + Into<RegionMemory>,
    {
        MemoryRegion::register(self.control(), self.scope(), memory, spec)
    }
}

impl<M: Clone + Into<RegionMemory>> MemoryRegion<M> {
    pub(super) fn new(stag: AllocatedStag, memory: M, addressing: Addressing) -> Self {
        let base = match addressing {
            Addressing::ZeroBased => 0,
            Addressing::VaBased(va) => va,
        };
        Self {
            stag,
            base,
            len: memory.clone().into().byte_len(),
            memory,
        }
    }

    pub(crate) fn register(
        control: &Arc<Control>,
        scope: StagScope,
        memory: M,
        spec: &RegionSpec,
    ) -> Result<Self, RegisterError> {
        let (source, spec) = (memory.clone().into(), *spec);
        let stag = control.call(move |engine| engine.stags().register(scope, &source, &spec))??;
        let stag = AllocatedStag::new(stag, control);
        Ok(Self::new(stag, memory, spec.addressing))
    }

    /// Registers the same memory once more, as a shared region: with an `STag`, rights and Tagged
    /// Offsets of its own, in any domain of this RNIC (verbs draft §7.3.2.4). Both regions stay
    /// shared for their lifetime: neither can be invalidated, reregistered or used for
    /// Fast-Register, only deallocated. Otherwise this region and its windows are unchanged.
    ///
    /// Tagged Offsets that do not begin at 0 have to lie within a page or block as those of this
    /// region do.
    ///
    /// # Errors
    ///
    /// - [`RegisterError::OtherRnic`]: `pd` belongs to another RNIC.
    /// - [`RegisterError::InvalidStag`]: the region is not Valid, as it was invalidated.
    /// - [`RegisterError::Spec`]: rights, Tagged Offsets or list are invalid (verbs draft
    ///   §7.4, §7.6), or the memory can only be read.
    /// - [`RegisterError::TooManyStags`]: the RNIC has its maximum number of regions and windows.
    /// - [`RegisterError::Memory`], [`RegisterError::NoRandomness`]: the host has no memory, or no
    ///   random bytes for an `STag`.
    /// - [`RegisterError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn share(&self, pd: &ProtectionDomain, spec: &RegionSpec) -> Result<Self, RegisterError> {
        let control = self.stag.control();
        if !pd.is_of(control) {
            return Err(RegisterError::OtherRnic);
        }
        let (existing, scope, spec) = (self.stag(), pd.scope(), *spec);
        let stag = control
            .call(move |engine| engine.stags().register_shared(existing, scope, &spec))??;
        let stag = AllocatedStag::new(stag, control);
        Ok(Self::new(stag, self.memory.clone(), spec.addressing))
    }

    /// RI-Reregister (verbs draft §7.3.2.3): registers other memory under the same index, in any
    /// domain of this RNIC and with other rights. Refused while windows are bound to it, and if it
    /// is shared: the region is then returned unchanged. Any other error leaves no registration.
    ///
    /// # Errors
    ///
    /// After these errors the registration is unchanged, and returned:
    ///
    /// - [`RegisterError::InvalidStag`]: the region is shared.
    /// - [`RegisterError::WindowsBound`]: windows are bound to it.
    /// - [`RegisterError::OtherRnic`]: `pd` belongs to another RNIC.
    /// - [`RegisterError::Unavailable`]: the RNIC was closed, or its handler made the call.
    ///
    /// After [`RegisterError::Spec`] and [`RegisterError::NoRandomness`] there is no registration.
    pub fn reregister<N>(
        mut self,
        pd: &ProtectionDomain,
        memory: N,
        spec: &RegionSpec,
    ) -> Result<MemoryRegion<N>, ReregisterError<Self>>
    where
        N: Clone + Into<RegionMemory>,
    {
        match self.stag.replace(pd, memory.clone().into(), spec) {
            Ok(stag) => {
                self.stag.renew(stag);
                Ok(MemoryRegion::new(self.stag, memory, spec.addressing))
            }
            Err(NotReregistered { kept, cause }) => {
                let region = kept.then_some(self);
                Err(ReregisterError {
                    region,
                    error: cause,
                })
            }
        }
    }

    /// Deallocate `STag` (verbs draft §7.9). After this returns, no access through it reaches the
    /// memory. Accesses in progress fail. Refused while windows are bound to it.
    ///
    /// # Errors
    ///
    /// - [`DeallocateError::WindowsBound`]: windows are bound to it.
    /// - [`DeallocateError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn deallocate(self) -> Result<(), RefusedError<Self, DeallocateError>> {
        let Self {
            stag,
            base,
            len,
            memory,
        } = self;
        stag.deallocate().map_err(|refused| {
            let region = Self {
                stag: *refused.object,
                base,
                len,
                memory,
            };
            RefusedError::new(region, refused.error)
        })
    }
}

impl AllocatedStag {
    /// RI-Reregister (verbs draft §7.3.2.3): registers other memory under the same index, in any
    /// domain of this RNIC and with other rights, whether the `STag` is Valid or not. Refused while
    /// windows are bound to it, and if it is shared: the region is then returned unchanged. Any
    /// other error leaves no registration.
    ///
    /// # Errors
    ///
    /// After these errors the registration is unchanged, and returned:
    ///
    /// - [`RegisterError::InvalidStag`]: the region is shared.
    /// - [`RegisterError::WindowsBound`]: windows are bound to it.
    /// - [`RegisterError::OtherRnic`]: `pd` belongs to another RNIC.
    /// - [`RegisterError::Unavailable`]: the RNIC was closed, or its handler made the call.
    ///
    /// After [`RegisterError::Spec`] and [`RegisterError::NoRandomness`] there is no registration.
    pub fn reregister<M>(
        mut self,
        pd: &ProtectionDomain,
        memory: M,
        spec: &RegionSpec,
    ) -> Result<MemoryRegion<M>, ReregisterError<Self>>
    where
        M: Clone + Into<RegionMemory>,
    {
        match self.replace(pd, memory.clone().into(), spec) {
            Ok(stag) => {
                self.renew(stag);
                Ok(MemoryRegion::new(self, memory, spec.addressing))
            }
            Err(NotReregistered { kept, cause }) => {
                let region = kept.then_some(self);
                Err(ReregisterError {
                    region,
                    error: cause,
                })
            }
        }
    }
}

impl<M> MemoryRegion<M> {
    pub(crate) fn control(&self) -> &Arc<Control> {
        self.stag.control()
    }

    /// `STag` of the region (verbs draft §7.1), which a peer needs to access it. Invalidating the
    /// `STag` does not change its value.
    pub fn stag(&self) -> Stag {
        self.stag.stag()
    }

    /// Query Memory Region (verbs draft §9.2.6.3).
    ///
    /// # Errors
    ///
    /// [`QueryError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn query(&self) -> Result<RegionInfo, QueryError> {
        self.stag.query()
    }

    /// Takes the `STag` out of the region, for Fast-Register. The memory stays registered until the
    /// `STag` is invalidated.
    pub fn into_stag(self) -> AllocatedStag {
        self.stag
    }

    /// Element of a scatter/gather list: `len` bytes from `offset` on.
    pub fn local(&self, offset: u64, len: u32) -> Sge {
        let RemoteAddress { stag, to } = self.remote(offset);
        Sge { stag, to, len }
    }

    /// `STag` and Tagged Offset of byte `offset` (RFC 5041 §4.2), for the peer to name.
    /// [`RemoteAddress::to_bytes`] makes a message of them.
    pub fn remote(&self, offset: u64) -> RemoteAddress {
        RemoteAddress {
            stag: self.stag(),
            to: self.base.wrapping_add(offset), // an offset outside fails on use
        }
    }

    /// The memory that was registered: one piece or a list.
    pub fn memory(&self) -> &M {
        &self.memory
    }
}

impl MemoryRegion {
    /// Length of the region in bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// True for a region of no bytes.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// The memory. A peer may change it at any time, within the region's rights.
    pub fn bytes(&self) -> &SharedBytes {
        &self.memory
    }
}

impl<M> fmt::Debug for MemoryRegion<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryRegion({:?}, {} bytes)", self.stag(), self.len)
    }
}
