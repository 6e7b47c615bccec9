//! One region that allows everything.

use xwarp_iwarp::{AccessError, AccessKind, InvalidateError, Resources, Stag};

/// What a receiver asks about.
pub(crate) struct Region;

impl Region {
    pub(crate) const STAG: Stag = Stag(0x1200);
    const LEN: u64 = 1 << 20;
}

impl Resources for Region {
    type Place = ();

    fn take_receive(&mut self) -> Option<u64> {
        Some(Self::LEN)
    }

    fn admit(&self, stag: Stag, to: u64, len: u64, _: AccessKind) -> Result<(), AccessError> {
        if stag != Self::STAG {
            return Err(AccessError::InvalidStag);
        }
        let end = to.checked_add(len).ok_or(AccessError::Wrap)?;
        if end <= Self::LEN {
            Ok(())
        } else {
            Err(AccessError::Bounds)
        }
    }

    fn check_invalidate(&self, _: Stag) -> Result<(), InvalidateError> {
        Err(InvalidateError::Forbidden)
    }
}
