//! Placement of tagged segments: payload and place.

use super::bytes;
use crate::Stag;
use crate::ddp::TaggedHeader;
use crate::rdmap::{AccessError, AccessKind, Resources, ViolationCause};

/// Payload of a tagged segment that passed all checks, and its place. `P` is [`Resources::Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement<'a, P = ()> {
    /// The place. `None` for zero length, which places nothing, and whose `STag` and TO have no
    /// meaning (R5041-5.2-9).
    pub place: Option<P>,
    /// Region.
    pub stag: Stag,
    /// Tagged Offset of the first byte.
    pub to: u64,
    /// Bytes to place.
    pub payload: &'a [u8],
}

impl<'a, P> Placement<'a, P> {
    /// Placement of a segment at an admitted place.
    #[inline]
    pub(super) fn admitted<R: Resources<Place = P>>(
        header: &TaggedHeader,
        payload: &'a [u8],
        resources: &R,
        access: AccessKind,
    ) -> Result<Self, ViolationCause> {
        let mut placement = Self {
            place: None,
            stag: Stag(header.stag.get()),
            to: header.to.get(),
            payload,
        };
        if !payload.is_empty() {
            let stag = placement.stag;
            let to = placement.to;
            let place = resources.admit(stag, to, bytes(payload), access);
            placement.place = Some(place.map_err(|cause| placement.refused(access, cause))?);
        }
        Ok(placement)
    }

    /// The violation if the segment has no place, or if its memory is gone.
    #[cold]
    pub fn refused(&self, access: AccessKind, cause: AccessError) -> ViolationCause {
        ViolationCause::Access {
            access,
            stag: self.stag,
            to: self.to,
            len: bytes(self.payload),
            cause,
        }
    }
}
