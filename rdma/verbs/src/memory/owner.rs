//! The one handle on an entry of the `STag` table.

use std::sync::Arc;

use crate::runtime::control::Control;
use xwarp_rnic::model::DeallocateError;

/// No region or window has it.
const NOTHING: u32 = 0;

/// Owns an index of the table: dropping it deallocates what the table has there, and takes away the
/// windows that are bound to it.
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

    /// Deallocate `STag`. Afterwards there is nothing left to own.
    pub(super) fn deallocate(&mut self) -> Result<(), DeallocateError> {
        let index = self.index;
        self.control
            .call(move |engine| engine.stags().deallocate(index))??;
        self.disown();
        Ok(())
    }

    /// The table has no entry there now.
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
