//! Protection domains and memory windows.

use std::sync::Arc;

use xwarp::{MemoryWindow, ProtectionDomain};

use super::errors::Numbered;
use super::owned::Owned;
use crate::entry::Result;

/// A protection domain.
pub(crate) type Pd = Owned<ProtectionDomain>;

/// A memory window.
pub(crate) type Mw = Owned<MemoryWindow>;

impl Owned<ProtectionDomain> {
    pub(crate) fn dealloc(&self) -> Result<()> {
        self.end(|_rnic| {
            self.destroy(|pd| {
                pd.deallocate()
                    .map_err(|refused| (refused.error.errno(), Some(refused.object)))
            })
        })
    }

    /// Allocates a window, and returns its `STag`, too.
    pub(crate) fn alloc_mw(&self) -> Result<(Arc<Mw>, u32)> {
        let rnic = self.rnic()?;
        let window = self.with(|pd| pd.allocate_window().map_err(|error| error.errno()))?;
        let stag = window.stag().0;
        Ok((rnic.own(window), stag))
    }
}

impl Owned<MemoryWindow> {
    pub(crate) fn dealloc(&self) -> Result<()> {
        self.end(|_rnic| {
            self.destroy(|window| window.deallocate().map_err(|error| (error.errno(), None)))
        })
    }
}
