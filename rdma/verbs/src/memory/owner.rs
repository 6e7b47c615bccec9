//! Owning handle of an entry of the `STag` table.

use std::sync::Arc;

use crate::runtime::control::Control;
use xwarp_rnic::model::DeallocateError;

/// Index that no region or window has.
const NOTHING: u32 = 0;

/// Owns an index of the table. Dropping it deallocates the entry and invalidates the windows that
/// are bound to it.
pub(super) struct Owner {
    index: u32,
    control: Arc<Control>,
}

impl Owner {
    pub(super) fn new(index: u32, control: &Arc<Control>) -> Self {
        Self {
            index,
            control: Arc::clone(control),
        }
    }

    pub(super) fn index(&self) -> u32 {
        self.index
    }

    pub(super) fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Deallocate `STag`. Afterwards the handle owns nothing.
    pub(super) fn deallocate(&mut self) -> Result<(), DeallocateError> {
        let index = self.index;
        self.control
            .call(move |engine| engine.stags().deallocate(index))??;
        self.disown();
        Ok(())
    }

    /// Releases ownership: the table no longer has the entry.
    pub(super) fn disown(&mut self) {
        self.index = NOTHING;
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let index = self.index;
        if index != NOTHING {
            self.control
                .release(move |engine| engine.stags().release(index));
        }
    }
}
