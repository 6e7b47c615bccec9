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

/// A valid Request, for the ULP to decide on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Private data of the initiator, without the enhanced data.
    pub private_data: PrivateData,
    /// The initiator requests CRCs.
    pub crc: bool,
    /// The initiator requests markers in what this side sends.
    pub markers: bool,
    /// MPA revision of the initiator.
    pub revision: u8,
    /// Depths and RTR types of the initiator, if its Request is enhanced.
    pub enhanced: Option<EnhancedData>,
}

/// The responder, waiting for a Request.
///
/// It holds only its parameters: another one, with the ULP's decisions, may give the answer.
#[derive(Clone, Copy, Debug)]
pub struct Responder {
    params: StartupParams,
}

/// Result of the received bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "once per connection; a box would allocate for an unauthenticated peer"
)]
pub enum ResponderStep {
    /// The Request is incomplete: the stream must hold at least this many bytes, counted from its
    /// head.
    NeedBytes(usize),
    /// A valid Request, to be answered by [`Responder::accept`] or [`Responder::reject`].
    Request {
        /// Contents of the Request.
        request: Request,
        /// Its length in the stream: all bytes received so far.
        consumed: usize,
    },
}

impl Responder {
    /// A responder with these parameters.
    pub fn new(params: StartupParams) -> Self {
        Self { params }
    }

    /// Processes all in-order bytes of the connection so far.
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

    /// The Reply that accepts. The caller must be ready to receive FPDUs before it sends the Reply,
    /// and sends none before one has arrived (R5044-7.1.2-4-1).
    pub fn accept(
        &self,
        request: &Request,
        private_data: &[u8],
    ) -> Result<(StartupFrame, Negotiated), PrivateDataTooLong> {
        let (head, negotiated) = self.answer(request);
        Ok((head.encode(private_data)?, negotiated))
    }

    /// The Reply that rejects on behalf of the ULP. The TCP connection stays open without MPA
    /// (R5044-7.1.2-2-3).
    pub fn reject(
        &self,
        request: &Request,
        private_data: &[u8],
    ) -> Result<StartupFrame, PrivateDataTooLong> {
        let (head, _) = self.answer(request);
        rejecting(head).encode(private_data)
    }

    /// The Reply that rejects because the initiator's IRD is below the `ord` that the ULP needs,
    /// which it reports (R6581-9.1-6).
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

    /// The Reply has the Request's revision, and is enhanced exactly if the Request is (R6581-10-1,
    /// -2; D2). Its C bit is the outcome, not only our parameter: a siw that requires CRCs refuses
    /// a Reply without it.
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
    /// R and reserved bits are ignored (R5044-7.1.1-8, -11; R6581-6-4).
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
