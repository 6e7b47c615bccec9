//! Inbound Sends and Immediate Data: QN 0 (RFC 5040 §5.3, RFC 5041 §7.1, RFC 7306 §6).

use super::prediction::begins_send;
use super::{Inbound, bytes, check_last, check_number, check_offset};
use crate::Stag;
use crate::ddp::{Control, FIRST_MSN, UntaggedHeader};
use crate::rdmap::{Opcode, Resources, SendKind, ViolationCause};

/// Numbers the Sends of one stream, and tracks an incomplete one.
#[derive(Debug)]
pub(super) struct Sends {
    msn: u32,
    open: Option<OpenSend>,
    carry_immediates: bool,
}

/// A Send whose last segment has not arrived.
#[derive(Clone, Copy, Debug)]
struct OpenSend {
    rsvd_ulp: (u8, u32),
    buffer: u64,
    placed: u32,
}

impl Sends {
    pub(super) const fn new(carry_immediates: bool) -> Self {
        Self {
            msn: FIRST_MSN,
            open: None,
            carry_immediates,
        }
    }

    /// True if Sends may carry immediate data.
    pub(super) const fn carry_immediates(&self) -> bool {
        self.carry_immediates
    }

    pub(super) const fn mid_message(&self) -> bool {
        self.open.is_some()
    }

    /// Counts a complete message: an ordinary Send, or the RTR of a peer-to-peer initiator, which
    /// takes a number but no receive buffer (R6581-9.2-11).
    pub(super) const fn pass_one(&mut self) {
        self.msn = self.msn.wrapping_add(1);
    }

    /// True for the RTR Send, if one is due.
    pub(super) fn is_rtr(&self, opcode: Opcode, header: &UntaggedHeader, payload: &[u8]) -> bool {
        opcode == Opcode::Send
            && payload.is_empty()
            && Control(header.control).is_last()
            && (header.msn.get(), header.mo.get()) == (self.msn, 0)
    }

    /// True if this untagged segment begins the next Send.
    #[inline]
    pub(super) fn is_next(&self, ulpdu: &[u8]) -> bool {
        self.open.is_none() && begins_send(ulpdu, self.msn)
    }

    /// Checks U2 to U5 of wire.md §5.2, and at the end of the message its Invalidate `STag`.
    pub(super) fn accept<'a, R: Resources>(
        &mut self,
        opcode: Opcode,
        header: &UntaggedHeader,
        payload: &'a [u8],
        resources: &mut R,
    ) -> Result<Inbound<'a, R::Place>, ViolationCause> {
        let Some(kind) = SendKind::from_wire(opcode, Stag(header.rsvd_ulp_stag.get())) else {
            return self.accept_immediate(opcode, header, payload, resources);
        };
        check_number(header, self.msn)?;
        let mut send = self.open_send(header, resources)?;
        check_offset(header, send.placed)?;
        let offset = send.placed;
        send.placed = send.end(opcode, offset, payload)?;
        let last = Control(header.control).is_last();
        if last {
            check_invalidate(kind, resources)?;
            self.open = None;
            self.msn = self.msn.wrapping_add(1); // R5041-4.3-5
        } else {
            self.open = Some(send);
        }
        Ok(Inbound::Send {
            kind,
            offset,
            payload,
            message_len: last.then_some(send.placed),
        })
    }

    /// Eight bytes for the completion, not the buffer, whose length does not matter (D9,
    /// R7306-6.3-4).
    fn accept_immediate<'a, R: Resources>(
        &mut self,
        opcode: Opcode,
        header: &UntaggedHeader,
        payload: &'a [u8],
        resources: &mut R,
    ) -> Result<Inbound<'a, R::Place>, ViolationCause> {
        check_last(opcode, header)?;
        check_number(header, self.msn)?;
        self.open_send(header, resources)?;
        check_offset(header, 0)?;
        let data = super::exactly(opcode, payload)?;
        self.msn = self.msn.wrapping_add(1);
        Ok(Inbound::Immediate {
            data,
            solicited: opcode == Opcode::ImmediateDataSolicited,
        })
    }

    /// State of the message from its first segment on, which takes the receive buffer
    /// (R5040-5.3-1).
    fn open_send(
        &self,
        header: &UntaggedHeader,
        resources: &mut impl Resources,
    ) -> Result<OpenSend, ViolationCause> {
        let msn = header.msn.get();
        let rsvd_ulp = (header.rsvd_ulp, header.rsvd_ulp_stag.get());
        match self.open {
            Some(send) if send.rsvd_ulp == rsvd_ulp => Ok(send),
            Some(_) => Err(ViolationCause::MessageChanged { msn }),
            None => {
                let buffer = resources
                    .take_receive()
                    .ok_or(ViolationCause::NoReceive { msn })?;
                Ok(OpenSend {
                    rsvd_ulp,
                    buffer,
                    placed: 0,
                })
            }
        }
    }
}

impl OpenSend {
    /// Offset of the end of `payload` in the message: inside the buffer, and below 2^32
    /// (R5041-7.1-5, R5041-5.2-2).
    fn end(&self, opcode: Opcode, mo: u32, payload: &[u8]) -> Result<u32, ViolationCause> {
        u64::from(mo)
            .checked_add(bytes(payload))
            .filter(|end| *end <= self.buffer)
            .and_then(|end| u32::try_from(end).ok())
            .ok_or(ViolationCause::MessageTooLong {
                opcode,
                mo,
                len: payload.len(),
                buffer: self.buffer,
            })
    }
}

/// Checked at delivery, not at placement (R5040-5.3-8): called for the last segment only.
fn check_invalidate(kind: SendKind, resources: &impl Resources) -> Result<(), ViolationCause> {
    let Some(stag) = kind.invalidate else {
        return Ok(());
    };
    resources
        .check_invalidate(stag)
        .map_err(|cause| ViolationCause::Invalidate { stag, cause })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdmap::{AccessError, AccessKind, InvalidateError};
    use zerocopy::FromBytes;

    /// Resources with a receive buffer of 16 bytes for every message.
    struct Posted;
    impl Resources for Posted {
        type Place = ();

        fn take_receive(&mut self) -> Option<u64> {
            Some(16)
        }
        fn admit(&self, _: Stag, _: u64, _: u64, _: AccessKind) -> Result<(), AccessError> {
            Err(AccessError::InvalidStag)
        }
        fn check_invalidate(&self, _: Stag) -> Result<(), InvalidateError> {
            Err(InvalidateError::InvalidStag)
        }
    }

    /// Row 62.
    #[test]
    fn message_number_goes_from_all_ones_to_zero() {
        let mut sends = Sends {
            msn: 0xFFFF_FFFF,
            ..Sends::new(false)
        };
        for msn in [[0xff; 4], [0; 4], [0, 0, 0, 1]] {
            let mut bytes = [0; 18];
            bytes[..2].copy_from_slice(&[0x41, 0x43]); // T=0 L=1 DV=1, Send
            bytes[10..14].copy_from_slice(&msn);
            let header = UntaggedHeader::read_from_bytes(&bytes).expect("18 bytes");
            let accepted = sends.accept(Opcode::Send, &header, &[0], &mut Posted);
            assert!(
                matches!(
                    accepted,
                    Ok(Inbound::Send {
                        message_len: Some(1),
                        ..
                    })
                ),
                "{accepted:?}"
            );
        }
    }
}
