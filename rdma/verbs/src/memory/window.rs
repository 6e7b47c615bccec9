//! Windows as an application holds them (verbs draft §7.10).

use std::fmt;
use std::sync::Arc;

use xwarp_iwarp::Stag;

use super::owner::Owner;
use crate::pd::ProtectionDomain;
use crate::runtime::control::Control;
use xwarp_rnic::model::{
    Access, Bind, DeallocateError, QueryError, RegisterError, RemoteAddress, StagScope, WindowInfo,
};

/// A memory window. While it is bound, one peer may access the bound part of a region. Binding
/// costs one work request. Dropping the window deallocates it: from then on no access through its
/// `STag` reaches memory.
///
/// ```no_run
/// # fn grant(pd: &xwarp::ProtectionDomain, qp: &mut xwarp::QueuePair, memory: xwarp::memory::SharedBytes) -> Result<(), Box<dyn std::error::Error>> {
/// use xwarp::{Access, SendRequest, WrId};
/// use xwarp::memory::RegionSpec;
///
/// // Windows need Tagged Offsets that do not begin at 0.
/// let rights = Access::LOCAL_READ | Access::LOCAL_WRITE | Access::BIND_WINDOWS;
/// let region = pd.register_with(memory, &RegionSpec::new(rights).at(0x10_0000))?;
/// let mut window = pd.allocate_window()?;
///
/// let bind = window.bind(region.remote(512), 100, Access::REMOTE_WRITE);
/// qp.post_send(SendRequest::bind(WrId(1), bind))?;
/// let _told_to_the_peer = bind.remote(0);
/// // ... and when the peer has written:
/// qp.post_send(SendRequest::invalidate(WrId(2), bind.window))?;
/// # Ok(()) }
/// ```
pub struct MemoryWindow {
    owner: Owner,
    /// The window's index, with the key of the latest Bind.
    stag: Stag,
}

impl ProtectionDomain {
    /// Allocates a memory window (verbs draft §9.2.6.7), for queue pairs and regions of the domain.
    ///
    /// # Errors
    ///
    /// - [`RegisterError::TooManyStags`]: the RNIC has its maximum number of regions and windows.
    /// - [`RegisterError::Memory`], [`RegisterError::NoRandomness`]: the host has no memory, or no
    ///   random bytes for an `STag`.
    /// - [`RegisterError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn allocate_window(&self) -> Result<MemoryWindow, RegisterError> {
        MemoryWindow::allocate(self.control(), self.scope())
    }
}

impl MemoryWindow {
    pub(crate) fn allocate(
        control: &Arc<Control>,
        scope: StagScope,
    ) -> Result<Self, RegisterError> {
        let stag = control.call(move |engine| engine.stags().allocate_window(scope))??;
        Ok(Self {
            owner: Owner::new(stag.index(), control),
            stag,
        })
    }

    /// The `STag` of the latest [`bind`](Self::bind). Before the first bind it is not Valid.
    pub fn stag(&self) -> Stag {
        self.stag
    }

    /// Bind request (verbs draft §7.10.2): binds the window to `len` bytes of a region from `first`
    /// on (see [`MemoryRegion::remote`](crate::MemoryRegion::remote)), with the next key. The
    /// `STag` of an earlier Bind is not used again for 255 binds.
    pub fn bind(&mut self, first: RemoteAddress, len: u64, access: Access) -> Bind {
        self.stag = self.stag.with_key(self.stag.key().wrapping_add(1));
        Bind {
            window: self.stag,
            region: first.stag,
            to: first.to,
            len,
            zero_based: false,
            access,
        }
    }

    /// Query Memory Window (verbs draft §9.2.6.8).
    ///
    /// # Errors
    ///
    /// [`QueryError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn query(&self) -> Result<WindowInfo, QueryError> {
        let index = self.owner.index();
        let control = self.owner.control();
        control.call(move |engine| engine.stags().query_window(index))?
    }

    /// Deallocate `STag` (verbs draft §7.9), whether bound or not. After this returns, no access
    /// through it reaches memory. Accesses in progress fail.
    ///
    /// # Errors
    ///
    /// [`DeallocateError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn deallocate(mut self) -> Result<(), DeallocateError> {
        self.owner.deallocate()
    }
}

impl fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryWindow({:?})", self.stag)
    }
}
