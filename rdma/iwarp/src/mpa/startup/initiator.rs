//! Start-up of the initiator (wire.md §3.1).

use super::read::{Frame, WholeFrame, read_frame};
use super::{Negotiated, StartupParams};
use crate::mpa::depths::{Enhanced, NegotiatedEnhanced};
use crate::mpa::enhanced::EnhancedData;
use crate::mpa::frame::{
    FLAG_REJECTED, Head, PrivateData, PrivateDataTooLong, REPLY_KEY, REQUEST_KEY, REVISION_1,
    REVISION_2, REVISION_RDMAC, StartupFrame,
};
use crate::mpa::startup_error::StartupError;

/// Encodes the Request Frame, which an initiator sends first (R5044-7.1.2-1-1): enhanced if
/// `params` request that, otherwise of revision 1. The caller must be ready to receive before it
/// sends the frame.
pub fn encode_request(
    params: StartupParams,
    private_data: &[u8],
) -> Result<StartupFrame, PrivateDataTooLong> {
    let enhanced = params.asks().map(Enhanced::offer);
    let revision = if enhanced.is_some() {
        REVISION_2
    } else {
        REVISION_1
    };
    let head = Head {
        key: REQUEST_KEY,
        flags: params.flags(),
        revision,
        enhanced,
    };
    head.encode(private_data)
}

/// The initiator after its Request, waiting for the Reply.
#[derive(Clone, Copy, Debug)]
pub struct Initiator {
    params: StartupParams,
}

/// Result of the received bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitiatorStep {
    /// The Reply is incomplete: the stream must hold at least this many bytes, counted from its
    /// head.
    NeedBytes(usize),
    /// Full Operation begins right after `consumed` bytes.
    Accepted {
        /// The agreed parameters.
        negotiated: Negotiated,
        /// Private data of the responder.
        private_data: PrivateData,
        /// Length in bytes of the Reply. FPDUs follow it.
        consumed: usize,
    },
    /// The responder accepted, but its terms cannot be met. The caller enters Full Operation only
    /// to send [`StartupError::term_code`], and then closes (RFC 6581 §8).
    Unacceptable {
        /// Parameters for framing the Terminate.
        negotiated: Negotiated,
        /// The unacceptable term.
        error: StartupError,
        /// Length in bytes of the Reply.
        consumed: usize,
    },
    /// The responder's ULP rejected the Request (R5044-7.1.1-9). The TCP connection stays open
    /// without MPA.
    Rejected {
        /// Private data of the responder.
        private_data: PrivateData,
        /// The responder's requirements, such as an ORD (R6581-9.1-6, -9).
        enhanced: Option<EnhancedData>,
        /// Length in bytes of the Reply.
        consumed: usize,
    },
}

impl Initiator {
    /// An initiator that has sent its Request with these `params`.
    pub fn new(params: StartupParams) -> Self {
        Self { params }
    }

    /// Parameters for another try after TCP was closed without a Reply, as some responders do after
    /// every enhanced Request. The try uses revision 1 on a new TCP connection (R6581-10-5). `None`
    /// if the Request was of revision 1 already.
    pub fn retry(&self) -> Option<StartupParams> {
        let optional = self.params.asks().is_some_and(|asked| !asked.required);
        optional.then_some(StartupParams {
            enhanced: None,
            ..self.params
        })
    }

    /// Processes in-order bytes of `stream` that are not consumed yet. Bytes behind the Reply stay
    /// in the stream.
    pub fn on_bytes(&self, stream: &[u8]) -> Result<InitiatorStep, StartupError> {
        let speaks = |revision| self.speaks(revision);
        let frame = match read_frame(stream, REPLY_KEY, REQUEST_KEY, speaks)? {
            Frame::NeedBytes(total) => return Ok(InitiatorStep::NeedBytes(total)),
            Frame::Whole(frame) => frame,
        };
        let private_data = frame.private_data()?;
        let consumed = frame.consumed;
        if frame.has(FLAG_REJECTED) {
            return Ok(InitiatorStep::Rejected {
                private_data,
                enhanced: frame.enhanced,
                consumed,
            });
        }
        let negotiated = Negotiated::new(self.params, &frame);
        Ok(match self.settle(&frame) {
            Ok(enhanced) => InitiatorStep::Accepted {
                negotiated: Negotiated {
                    enhanced,
                    ..negotiated
                },
                private_data,
                consumed,
            },
            Err(error) if error.term_code().is_some() => InitiatorStep::Unacceptable {
                negotiated,
                error,
                consumed,
            },
            Err(error) => return Err(error),
        })
    }

    /// A Reply's revision must not exceed the Request's.
    fn speaks(self, revision: u8) -> bool {
        match revision {
            REVISION_RDMAC => self.params.allow_revision_0,
            REVISION_1 => true,
            REVISION_2 => self.params.asks().is_some(),
            _ => false,
        }
    }

    fn settle(self, frame: &WholeFrame<'_>) -> Result<Option<NegotiatedEnhanced>, StartupError> {
        match (self.params.asks(), frame.enhanced) {
            (Some(asked), Some(reply)) => asked.settle(reply).map(Some),
            (Some(asked), None) if asked.required => Err(StartupError::NotEnhanced),
            (Some(_), None) | (None, _) => Ok(None),
        }
    }
}
