//! Start-up of the responder (wire.md §3.2, §3.3).

use super::read::{Frame, WholeFrame, read_frame};
use super::{Negotiated, Revision, StartupParams};
use crate::mpa::depths::Enhanced;
use crate::mpa::enhanced::{Depth, EnhancedData};
use crate::mpa::frame::{
    FLAG_CRC, FLAG_MARKERS, FLAG_REJECTED, Head, PrivateData, PrivateDataTooLong, REPLY_KEY,
    REQUEST_KEY, REVISION_1, REVISION_2, REVISION_RDMAC, StartupFrame,
};
use crate::mpa::startup_error::StartupError;

/// A good Request, for the ULP to decide on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The initiator's bytes, without the enhanced data.
    pub private_data: PrivateData,
    /// The initiator wants CRCs.
    pub crc: bool,
    /// The initiator wants markers in what we send.
    pub markers: bool,
    /// The initiator's MPA revision.
    pub revision: u8,
    /// The initiator's depths and RTR types, if its Request is enhanced.
    pub enhanced: Option<EnhancedData>,
}

/// The responder, waiting for a Request.
///
/// It holds nothing but its params: a second one with what the ULP has decided may give the answer.
#[derive(Clone, Copy, Debug)]
pub struct Responder {
    params: StartupParams,
}

/// What the responder makes of the bytes so far.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "once per connection; a box would allocate for a peer that may be nobody"
)]
pub enum ResponderStep {
    /// Come back when the stream holds at least this many bytes, counted from its head.
    NeedBytes(usize),
    /// A good Request; answer with [`Responder::accept`] or [`Responder::reject`].
    Request {
        /// What it says.
        request: Request,
        /// Its bytes in the stream: all there are.
        consumed: usize,
    },
}

impl Responder {
    /// A responder with these wishes.
    pub fn new(params: StartupParams) -> Self {
        Self { params }
    }

    /// `stream`: all in-order bytes of the connection so far.
    pub fn on_bytes(&self, stream: &[u8]) -> Result<ResponderStep, StartupError> {
        let speaks = |revision| self.speaks(revision);
        let frame = match read_frame(stream, REQUEST_KEY, REPLY_KEY, speaks)? {
            Frame::NeedBytes(total) => return Ok(ResponderStep::NeedBytes(total)),
            Frame::Whole(frame) => frame,
        };
        let trailing = stream.len().saturating_sub(frame.consumed);
        if trailing > 0 {
            return Err(StartupError::Trailing(trailing));
        }
        Ok(ResponderStep::Request {
            request: Request::read(&frame)?,
            consumed: frame.consumed,
        })
    }

    /// The Reply that accepts. Be ready to receive FPDUs before it leaves; send none before one came (R5044-7.1.2-4-1).
    pub fn accept(
        &self,
        request: &Request,
        private_data: &[u8],
    ) -> Result<(StartupFrame, Negotiated), PrivateDataTooLong> {
        let (head, negotiated) = self.answer(request);
        Ok((head.encode(private_data)?, negotiated))
    }

    /// The Reply that rejects on behalf of the ULP. TCP stays open, MPA is left (R5044-7.1.2-2-3).
    pub fn reject(
        &self,
        request: &Request,
        private_data: &[u8],
    ) -> Result<StartupFrame, PrivateDataTooLong> {
        let (head, _) = self.answer(request);
        rejecting(head).encode(private_data)
    }

    /// The Reply that rejects because the initiator's IRD is below the `ord` that the ULP needs, and says so (R6581-9.1-6).
    pub fn reject_for_ord(
        &self,
        request: &Request,
        ord: u16,
        private_data: &[u8],
    ) -> Result<StartupFrame, PrivateDataTooLong> {
        let (mut head, _) = self.answer(request);
        if let Some(enhanced) = &mut head.enhanced {
            enhanced.ord = Depth::Count(ord);
        }
        rejecting(head).encode(private_data)
    }

    fn speaks(self, revision: u8) -> bool {
        match revision {
            REVISION_RDMAC => self.params.allow_revision_0,
            REVISION_1 => true,
            REVISION_2 => self.params.max_revision >= Revision::Two,
            _ => false,
        }
    }

    /// The Reply has the Request's revision, and is enhanced if and only if that is (R6581-10-1, -2; D2). Its C bit is the
    /// outcome and not our wish alone: a siw that demands CRCs refuses a Reply without it.
    fn answer(self, request: &Request) -> (Head, Negotiated) {
        let own = self.params.enhanced.unwrap_or(Enhanced::LEFT_TO_ULP);
        let (enhanced, effect) = request.enhanced.map(|asked| own.answer(asked)).unzip();
        let negotiated = if request.revision == REVISION_RDMAC {
            Negotiated::RDMAC
        } else {
            Negotiated {
                crc: self.params.crc || request.crc,
                send_markers: request.markers,
                receive_markers: self.params.markers,
                revision: request.revision,
                version: crate::ddp::VERSION_IETF,
                enhanced: effect,
            }
        };
        let wishes = StartupParams {
            crc: negotiated.crc,
            markers: negotiated.receive_markers,
            ..self.params
        };
        let head = Head {
            key: REPLY_KEY,
            flags: wishes.flags(),
            revision: request.revision,
            enhanced,
        };
        (head, negotiated)
    }
}

fn rejecting(head: Head) -> Head {
    Head {
        flags: head.flags | FLAG_REJECTED,
        ..head
    }
}

impl Request {
    /// R and reserved bits are not read (R5044-7.1.1-8, -11; R6581-6-4).
    fn read(frame: &WholeFrame<'_>) -> Result<Self, StartupError> {
        Ok(Self {
            private_data: frame.private_data()?,
            crc: frame.has(FLAG_CRC),
            markers: frame.has(FLAG_MARKERS),
            revision: frame.header.revision,
            enhanced: frame.enhanced,
        })
    }
}
