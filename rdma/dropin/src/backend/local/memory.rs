//! Memory of the program: regions and windows.

use std::sync::Arc;

use nix::errno::Errno;
use xwarp::memory::{RegionSpec, SharedBytes};
use xwarp::{Access, MemoryRegion, ProtectionDomain};

use super::errors::Numbered;
use super::owned::Owned;
use crate::abi::numbers::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_ZERO_BASED,
};
use crate::backend::{Memory, ReregisterFailure, Rights};
use crate::entry::Result;

/// Access rights in xwarp's type.
pub(super) fn access_of(rights: Rights) -> Access {
    let mut access = Access::LOCAL_READ;
    access.set(Access::LOCAL_WRITE, rights.local_write);
    access.set(Access::REMOTE_READ, rights.remote_read);
    access.set(Access::REMOTE_WRITE, rights.remote_write);
    access.set(Access::REMOTE_ATOMIC, rights.remote_atomic);
    access.set(Access::BIND_WINDOWS, rights.bind_windows);
    access
}

/// Rights of a window, which has only remote ones, and none for Atomic Operations. Programs add the
/// local right to write, as InfiniBand asks for it beside the remote one.
pub(super) fn window_access(flags: u32) -> Result<Access> {
    const KNOWN: u32 = IBV_ACCESS_LOCAL_WRITE
        | IBV_ACCESS_REMOTE_READ
        | IBV_ACCESS_REMOTE_WRITE
        | IBV_ACCESS_ZERO_BASED;
    if flags & IBV_ACCESS_REMOTE_ATOMIC != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if flags & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    let mut access = Access::empty();
    access.set(Access::REMOTE_READ, flags & IBV_ACCESS_REMOTE_READ != 0);
    access.set(Access::REMOTE_WRITE, flags & IBV_ACCESS_REMOTE_WRITE != 0);
    Ok(access)
}

/// The program's memory, faulted in and checked.
fn bytes(memory: Memory) -> Result<SharedBytes> {
    let Memory { start, len, .. } = memory;
    if len == 0 {
        return Err(Errno::EINVAL);
    }
    let start = std::ptr::with_exposed_provenance_mut(start);
    let bytes = if memory.read_only {
        // SAFETY: by `ibv_reg_mr`, the program keeps the memory in place until the region is
        // deregistered. C has no references.
        unsafe { SharedBytes::from_raw_parts_read_only(start, len, ()) }
    } else {
        // SAFETY: as above.
        unsafe { SharedBytes::from_raw_parts(start, len, ()) }
    };
    bytes.map_err(|error| error.errno())
}

/// A region that begins at offset 0 is zero-based, whatever the program calls it.
fn spec(memory: Memory, rights: Rights) -> RegionSpec {
    let spec = RegionSpec::new(access_of(rights));
    match memory.offset {
        0 => spec,
        offset => spec.at(offset),
    }
}

/// A region with the memory that it was registered for.
pub(crate) struct Region {
    region: MemoryRegion,
    memory: Memory,
}

/// A memory region.
pub(crate) type Mr = Owned<Region>;

impl Owned<ProtectionDomain> {
    /// Registers memory. Returns the `STag`, too.
    pub(crate) fn reg_mr(&self, memory: Memory, rights: Rights) -> Result<(Arc<Mr>, u32)> {
        let rnic = self.rnic()?;
        let region = self.with(|pd| Region::register(pd, memory, rights))?;
        let stag = region.stag();
        Ok((rnic.own(region), stag))
    }
}

impl Owned<Region> {
    /// Reregisters a region: in `pd`, with other memory or rights. Returns the new `STag`.
    pub(crate) fn reregister(
        &self,
        pd: &Owned<ProtectionDomain>,
        memory: Option<Memory>,
        rights: Rights,
    ) -> std::result::Result<u32, ReregisterFailure> {
        let mut is_lost = false;
        let made = pd.rnic().and_then(|_rnic| {
            pd.with(|pd| {
                self.replace(|region| {
                    let (region, made) = region.reregister(pd, memory, rights);
                    is_lost = region.is_none();
                    (region, made)
                })
            })
        });
        made.map_err(|errno| ReregisterFailure { errno, is_lost })
    }

    pub(crate) fn dereg(&self) -> Result<()> {
        self.end(|_rnic| self.destroy(Region::deregister))
    }
}

impl Region {
    fn register(pd: &ProtectionDomain, memory: Memory, rights: Rights) -> Result<Self> {
        let region = pd
            .register_with(bytes(memory)?, &spec(memory, rights))
            .map_err(|error| error.errno())?;
        Ok(Self { region, memory })
    }

    fn stag(&self) -> u32 {
        self.region.stag().0
    }

    /// Reregisters the region. If that fails, the region is unchanged or deregistered.
    fn reregister(
        self,
        pd: &ProtectionDomain,
        other: Option<Memory>,
        rights: Rights,
    ) -> (Option<Self>, Result<u32>) {
        let mut memory = other.unwrap_or(self.memory);
        memory.read_only = !rights.local_write;
        let bytes = match bytes(memory) {
            Ok(bytes) => bytes,
            Err(errno) => return (Some(self), Err(errno)),
        };
        let former = self.memory;
        match self.region.reregister(pd, bytes, &spec(memory, rights)) {
            Ok(region) => {
                let stag = region.stag().0;
                (Some(Self { region, memory }), Ok(stag))
            }
            Err(refused) => {
                let errno = refused.error.errno();
                let region = refused.region.map(|region| Self {
                    region,
                    memory: former,
                });
                (region, Err(errno))
            }
        }
    }

    fn deregister(self) -> std::result::Result<(), (Errno, Option<Box<Self>>)> {
        let memory = self.memory;
        self.region.deallocate().map_err(|refused| {
            let region = *refused.object;
            (
                refused.error.errno(),
                Some(Box::new(Self { region, memory })),
            )
        })
    }
}
