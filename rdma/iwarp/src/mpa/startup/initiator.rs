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

/// Writes the Request Frame that an initiator sends first (R5044-7.1.2-1-1): enhanced if `params` ask for that, and of
/// revision 1 otherwise. Be ready to receive before it leaves.
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

/// What the initiator makes of the bytes so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitiatorStep {
    /// Come back when the stream holds at least this many bytes, counted from its head.
    NeedBytes(usize),
    /// Full Operation begins right after `consumed` bytes.
    Accepted {
        /// What holds from now on.
        negotiated: Negotiated,
        /// The responder's bytes.
        private_data: PrivateData,
        /// Bytes of the Reply; what follows are FPDUs.
        consumed: usize,
    },
    /// The responder accepted, but its terms cannot be met: enter Full Operation only to send
    /// [`StartupError::term_code`], then close (RFC 6581 §8).
    Unacceptable {
        /// How the Terminate is framed.
        negotiated: Negotiated,
        /// Which term.
        error: StartupError,
        /// Bytes of the Reply.
        consumed: usize,
    },
    /// The responder's ULP said no (R5044-7.1.1-9). TCP stays open, MPA is left.
    Rejected {
        /// The responder's bytes.
        private_data: PrivateData,
        /// What the responder would have needed, such as an ORD (R6581-9.1-6, -9).
        enhanced: Option<EnhancedData>,
        /// Bytes of the Reply.
        consumed: usize,
    },
}

impl Initiator {
    /// An initiator that sent its Request with these `params`.
    pub fn new(params: StartupParams) -> Self {
        Self { params }
    }

    /// TCP was closed before any Reply came. Some responders do that to every enhanced Request: `Some` are the params
    /// for one more try, of revision 1 and on a new TCP connection (R6581-10-5).
    pub fn retry(&self) -> Option<StartupParams> {
        let optional = self.params.asks().is_some_and(|asked| !asked.required);
        optional.then_some(StartupParams {
            enhanced: None,
            ..self.params
        })
    }

    /// `stream`: in-order bytes not yet consumed. Those after the Reply stay in the stream.
    pub fn on_bytes(&self, stream: &[u8]) -> Result<InitiatorStep, StartupError> {
        let speaks = |revision| self.speaks(revision);
        let frame = match read_frame(stream, REPLY_KEY, REQUEST_KEY, speaks)? {
            Frame::NeedBytes(total) => return Ok(InitiatorStep::NeedBytes(total)),
            Frame::Whole(frame) => frame,
        };
        let (private_data, consumed) = (frame.private_data()?, frame.consumed);
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

    /// A Reply does not exceed the Request's revision.
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
