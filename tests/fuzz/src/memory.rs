//! One region and an endless row of receive buffers, which know where bytes may go.

use xwarp_iwarp::{AccessError, AccessKind, Inbound, InvalidateError, Placement, Resources, Stag};

/// What a receiver asks about, and a check of what it then hands out.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    taken: u32,
    invalid: bool,
}

impl Memory {
    pub(crate) const STAG: Stag = Stag(0x0000_0100);
    pub(crate) const BASE: u64 = 0x1000;
    const LEN: u64 = 64;
    const BUFFER: u64 = 48;
    const BUFFERS: u32 = 5;

    /// Bytes that were let through lie inside the region or the buffer.
    pub(crate) fn take(&mut self, inbound: &Inbound<'_>) {
        match inbound {
            Inbound::Write { placement, .. } | Inbound::ReadResponse { placement, .. } => {
                let Placement { to, payload, .. } = placement;
                if !payload.is_empty() {
                    let end = to.checked_add(payload.len() as u64).expect("no wrap");
                    assert!(*to >= Self::BASE && end <= Self::BASE + Self::LEN);
                }
            }
            Inbound::Send {
                kind,
                offset,
                payload,
                message_len,
            } => {
                let end = u64::from(*offset) + payload.len() as u64;
                assert!(end <= Self::BUFFER);
                if let Some(len) = message_len {
                    assert_eq!(u64::from(*len), end);
                    self.invalid |= kind.invalidate.is_some();
                }
            }
            Inbound::AtomicRequest(atomic) => {
                assert_eq!(
                    (atomic.request.stag, atomic.request.to % 8),
                    (Self::STAG, 0)
                );
                let _ = atomic.request.operation.apply(atomic.request.to);
            }
            Inbound::ReadRequest(_)
            | Inbound::Immediate { .. }
            | Inbound::AtomicResponse { .. }
            | Inbound::RtrSend
            | Inbound::Terminate(_)
            | Inbound::Dropped => {}
        }
    }
}

impl Resources for Memory {
    type Place = ();

    fn take_receive(&mut self) -> Option<u64> {
        self.taken += 1;
        (self.taken <= Self::BUFFERS).then_some(Self::BUFFER)
    }

    fn admit(&self, stag: Stag, to: u64, len: u64, _: AccessKind) -> Result<(), AccessError> {
        assert!(len > 0, "zero-length accesses are not checked");
        if stag != Self::STAG || self.invalid {
            return Err(AccessError::InvalidStag);
        }
        let end = to.checked_add(len).ok_or(AccessError::Wrap)?;
        if to >= Self::BASE && end <= Self::BASE + Self::LEN {
            Ok(())
        } else {
            Err(AccessError::Bounds)
        }
    }

    fn check_invalidate(&self, stag: Stag) -> Result<(), InvalidateError> {
        if stag == Self::STAG && !self.invalid {
            Ok(())
        } else {
            Err(InvalidateError::InvalidStag)
        }
    }
}
