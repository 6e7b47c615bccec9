//! Both roles of MPA start-up, revision 1 (RFC 5044 §7.1). Deadlines and closing are the caller's.

use super::frame::{
    FLAG_CRC, FLAG_MARKERS, FLAG_REJECTED, HEADER_BYTES, MAX_PRIVATE_DATA, PrivateData,
    PrivateDataTooLong, REPLY_KEY, REQUEST_KEY, REVISION, StartupFrame, StartupHeader, encode,
};
use zerocopy::FromBytes;

/// What this side wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartupParams {
    /// The C bit we ask for. Off is an administrator's explicit choice (R5044-4.4-2).
    pub crc: bool,
}

impl Default for StartupParams {
    /// CRCs on.
    fn default() -> Self {
        Self { crc: true }
    }
}

/// What both agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// CRCs are generated and checked: one side's wish is enough (R5044-7.1.1-6).
    pub crc: bool,
    /// MPA revision of the Reply.
    pub revision: u8,
}

/// Why start-up failed: MPA error code 4. No Terminate and no Reply: the TCP connection is closed (R5044-8-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartupError {
    /// The first octets are of no MPA frame.
    #[error("the peer does not speak MPA: wrong key")]
    NotMpa,
    /// A Request where a Reply was awaited, or the reverse: both ends took the same role (R5044-7.1.2-8-1).
    #[error("the peer has the same MPA start-up role as this side")]
    WrongRole,
    /// `PD_Length` above 512 (R5044-7.1.1-14).
    #[error("PD_Length {0} is above the limit of {MAX_PRIVATE_DATA} octets")]
    PrivateDataLength(u16),
    /// A revision that cannot be spoken (R5044-7.1.1-13).
    #[error("MPA revision {0} is not supported, only {REVISION}")]
    Revision(u8),
    /// The M bit is set, and markers are not implemented yet.
    #[error("the peer asks for MPA markers, which are not supported")]
    MarkersUnsupported,
    /// So many octets came after the Request, before any Reply (D11).
    #[error("{0} octets after the MPA Request and before the Reply")]
    Trailing(usize),
}

/// Writes the Request Frame that an initiator sends first (R5044-7.1.2-1-1).
pub fn encode_request(
    params: StartupParams,
    private_data: &[u8],
) -> Result<StartupFrame, PrivateDataTooLong> {
    encode(REQUEST_KEY, crc_flag(params.crc), REVISION, private_data)
}

/// The initiator after its Request, waiting for the Reply.
#[derive(Clone, Copy, Debug)]
pub struct Initiator {
    params: StartupParams,
}

/// What the initiator makes of the octets so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitiatorStep {
    /// Come back when the stream holds at least this many octets, counted from its head.
    NeedBytes(usize),
    /// Full Operation begins right after `consumed` octets.
    Accepted {
        /// What holds from now on.
        negotiated: Negotiated,
        /// The responder's octets.
        private_data: PrivateData,
        /// Octets of the Reply; what follows are FPDUs.
        consumed: usize,
    },
    /// The responder's ULP said no (R5044-7.1.1-9). TCP stays open, MPA is left.
    Rejected {
        /// The responder's octets.
        private_data: PrivateData,
        /// Octets of the Reply.
        consumed: usize,
    },
}

impl Initiator {
    /// An initiator that sent its Request with these `params`.
    pub fn new(params: StartupParams) -> Self {
        Self { params }
    }

    /// `stream`: in-order octets not yet consumed. Those after the Reply stay in the stream.
    pub fn on_bytes(&self, stream: &[u8]) -> Result<InitiatorStep, StartupError> {
        let frame = match read_frame(stream, REPLY_KEY, REQUEST_KEY)? {
            Frame::NeedBytes(total) => return Ok(InitiatorStep::NeedBytes(total)),
            Frame::Whole(frame) => frame,
        };
        let (private_data, consumed) = (frame.private_data()?, frame.consumed);
        if frame.has(FLAG_REJECTED) {
            return Ok(InitiatorStep::Rejected {
                private_data,
                consumed,
            });
        }
        frame.refuse_markers()?;
        let crc = self.params.crc || frame.has(FLAG_CRC);
        let negotiated = Negotiated {
            crc,
            revision: frame.header.revision,
        };
        Ok(InitiatorStep::Accepted {
            negotiated,
            private_data,
            consumed,
        })
    }
}

/// A good Request, for the ULP to decide on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The initiator's octets.
    pub private_data: PrivateData,
    /// The initiator wants CRCs.
    pub crc: bool,
    /// The initiator wants markers in what we send. Never so yet: [`StartupError::MarkersUnsupported`].
    pub markers: bool,
    /// The initiator's MPA revision.
    pub revision: u8,
}

/// The responder, waiting for a Request.
#[derive(Clone, Copy, Debug)]
pub struct Responder {
    params: StartupParams,
}

/// What the responder makes of the octets so far.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "once per connection; a box would allocate for a peer that may be nobody"
)]
pub enum ResponderStep {
    /// Come back when the stream holds at least this many octets, counted from its head.
    NeedBytes(usize),
    /// A good Request; answer with [`Responder::accept`] or [`Responder::reject`].
    Request {
        /// What it says.
        request: Request,
        /// Its octets in the stream: all there are.
        consumed: usize,
    },
}

impl Responder {
    /// A responder with these `params`.
    pub fn new(params: StartupParams) -> Self {
        Self { params }
    }

    /// `stream`: in-order octets not yet consumed. Any octet beyond the Request before the Reply is an error (D11).
    pub fn on_bytes(&self, stream: &[u8]) -> Result<ResponderStep, StartupError> {
        let frame = match read_frame(stream, REQUEST_KEY, REPLY_KEY)? {
            Frame::NeedBytes(total) => return Ok(ResponderStep::NeedBytes(total)),
            Frame::Whole(frame) => frame,
        };
        frame.refuse_markers()?;
        let trailing = stream.len().saturating_sub(frame.consumed);
        if trailing > 0 {
            return Err(StartupError::Trailing(trailing));
        }
        let request = Request {
            private_data: frame.private_data()?,
            crc: frame.has(FLAG_CRC),
            markers: false,
            revision: frame.header.revision,
        };
        Ok(ResponderStep::Request {
            request,
            consumed: frame.consumed,
        })
    }

    /// The Reply that accepts. Be ready to receive FPDUs before it leaves; send none before one came (R5044-7.1.2-4-1).
    pub fn accept(
        &self,
        request: &Request,
        private_data: &[u8],
    ) -> Result<(StartupFrame, Negotiated), PrivateDataTooLong> {
        let negotiated = self.negotiate(request);
        let frame = encode(
            REPLY_KEY,
            crc_flag(negotiated.crc),
            negotiated.revision,
            private_data,
        )?;
        Ok((frame, negotiated))
    }

    /// The Reply that rejects on behalf of the ULP. TCP stays open, MPA is left (R5044-7.1.2-2-3).
    pub fn reject(
        &self,
        request: &Request,
        private_data: &[u8],
    ) -> Result<StartupFrame, PrivateDataTooLong> {
        let negotiated = self.negotiate(request);
        encode(
            REPLY_KEY,
            FLAG_REJECTED | crc_flag(negotiated.crc),
            negotiated.revision,
            private_data,
        )
    }

    /// The Reply's C bit is the outcome and not our wish alone: a siw that demands CRCs refuses a Reply without it.
    fn negotiate(self, request: &Request) -> Negotiated {
        Negotiated {
            crc: self.params.crc || request.crc,
            revision: request.revision,
        }
    }
}

/// A start-up frame of the peer, so far.
enum Frame<'a> {
    NeedBytes(usize),
    Whole(WholeFrame<'a>),
}

struct WholeFrame<'a> {
    header: &'a StartupHeader,
    private_data: &'a [u8],
    /// Octets of the frame.
    consumed: usize,
}

impl WholeFrame<'_> {
    fn has(&self, flag: u8) -> bool {
        self.header.flags & flag != 0
    }

    fn private_data(&self) -> Result<PrivateData, StartupError> {
        PrivateData::try_from(self.private_data)
            .map_err(|_| StartupError::PrivateDataLength(self.header.pd_length.get()))
    }

    fn refuse_markers(&self) -> Result<(), StartupError> {
        if self.has(FLAG_MARKERS) {
            Err(StartupError::MarkersUnsupported)
        } else {
            Ok(())
        }
    }
}

/// Reads a frame of either role. The head is judged before the private data is there, the key octet by octet.
fn read_frame(
    stream: &[u8],
    key: [u8; 16],
    other_key: [u8; 16],
) -> Result<Frame<'_>, StartupError> {
    check_key(stream, key, other_key)?;
    let Ok((header, rest)) = StartupHeader::ref_from_prefix(stream) else {
        return Ok(Frame::NeedBytes(HEADER_BYTES));
    };
    let pd_length = usize::from(header.pd_length.get());
    if pd_length > MAX_PRIVATE_DATA {
        return Err(StartupError::PrivateDataLength(header.pd_length.get()));
    }
    if header.revision != REVISION {
        return Err(StartupError::Revision(header.revision));
    }
    let consumed = HEADER_BYTES + pd_length;
    Ok(match rest.get(..pd_length) {
        Some(private_data) => Frame::Whole(WholeFrame {
            header,
            private_data,
            consumed,
        }),
        None => Frame::NeedBytes(consumed),
    })
}

/// Refuses at the first octet that cannot be of `key`, so that a peer which is no MPA at all is not waited for.
fn check_key(stream: &[u8], key: [u8; 16], other_key: [u8; 16]) -> Result<(), StartupError> {
    let begins = |key: [u8; 16]| {
        stream
            .iter()
            .zip(key)
            .all(|(octet, expected)| *octet == expected)
    };
    if begins(key) {
        Ok(())
    } else if begins(other_key) {
        Err(StartupError::WrongRole)
    } else {
        Err(StartupError::NotMpa)
    }
}

const fn crc_flag(crc: bool) -> u8 {
    if crc { FLAG_CRC } else { 0 }
}
