//! Receive side of one RDMAP stream: checks each DDP segment before any byte is placed (RFC 5041
//! §7, RFC 5040 §7).

mod inbound_requests;
mod outstanding;
mod placement;
mod prediction;
mod sends;

pub use inbound_requests::InboundRead;
pub use placement::Placement;
pub use prediction::{FastReadSegment, FastSegment, Prediction, predict_unverified};

use super::{
    AccessKind, IMMEDIATE_BYTES, InboundAtomic, Opcode, ReadRequest, ReceivedTerminate, Resources,
    SendKind, StreamConfig, Violation, ViolationCause,
};
use crate::ddp::{Control, DdpSegment, Queue, TaggedHeader, UntaggedHeader, VERSION_IETF};
use crate::mpa::MAX_ULPDU;
use inbound_requests::InboundRequests;
use outstanding::Outstanding;
use sends::Sends;

/// Handling of an inbound segment that passed all checks. `P` is the place of a tagged one:
/// [`Resources::Place`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inbound<'a, P = ()> {
    /// Copy its payload to its place. The ULP gets no event.
    Write {
        /// Payload and place.
        placement: Placement<'a, P>,
        /// Last segment of its message.
        last: bool,
    },
    /// Copy its payload to its place, as the answer to the oldest outstanding Read.
    ReadResponse {
        /// Payload and place.
        placement: Placement<'a, P>,
        /// The Read is complete.
        done: bool,
    },
    /// Answer it, after the requests before it. Its source was checked ([`AccessKind::RemoteRead`])
    /// unless `len` is 0, and must be checked again for each segment of the response. Takes one IRD
    /// credit until [`Receiver::response_sent`].
    ReadRequest(InboundRead),
    /// Place `payload` into the receive buffer that the message's first segment took.
    Send {
        /// Kind of Send.
        kind: SendKind,
        /// MO: offset in bytes from the start of the buffer.
        offset: u32,
        /// Bytes to place.
        payload: &'a [u8],
        /// On the last segment: length in bytes of the whole message. Invalidate `kind`'s `STag`,
        /// then complete the receive.
        message_len: Option<u32>,
    },
    /// Complete the receive that was taken for it, with these bytes. Its buffer stays unchanged
    /// (RFC 7306 §6, D9).
    Immediate {
        /// The data.
        data: [u8; IMMEDIATE_BYTES],
        /// An event is requested.
        solicited: bool,
    },
    /// Execute it once, atomically with all others of this RNIC, and answer it after the requests
    /// before it. Its target was checked. Takes one IRD credit until [`Receiver::response_sent`].
    AtomicRequest(InboundAtomic),
    /// Complete the oldest outstanding request, an Atomic Request.
    AtomicResponse {
        /// Value in the peer's memory before the operation.
        original: u64,
    },
    /// The peer is Ready To Receive: the zero-length Send of a peer-to-peer initiator, which does
    /// not concern the ULP and took no buffer (R6581-9.2-11). RTRs of the other types arrive as
    /// Write and Read Request.
    RtrSend,
    /// The peer ended the stream. All later segments are [`Inbound::Dropped`].
    Terminate(ReceivedTerminate),
    /// Nothing: a violation or a Terminate has ended the stream (R5041-7.1-15).
    Dropped,
}

/// Receive side of one RDMAP stream. Segments arrive in stream order.
///
/// The first [`Violation`] or Terminate ends the stream: all later segments are
/// [`Inbound::Dropped`] without checks.
#[derive(Debug)]
pub struct Receiver {
    version: u8,
    sends: Sends,
    inbound_requests: InboundRequests,
    outstanding: Outstanding,
    extensions: bool,
    /// The first segment may be an RTR Send.
    await_rtr: bool,
    ended: bool,
}

impl Receiver {
    /// A stream that has received no segment yet. Allocates room for `config.ord` outstanding
    /// requests.
    pub fn new(config: StreamConfig) -> Self {
        Self {
            version: config.version,
            sends: Sends::new(config.send_immediates),
            inbound_requests: InboundRequests::new(config.ird),
            outstanding: Outstanding::new(config.ord),
            extensions: config.extensions && config.version == VERSION_IETF,
            await_rtr: config.await_rtr,
            ended: false,
        }
    }

    /// Registers a Read Request that was sent: its response is expected after those registered
    /// before.
    ///
    /// The caller keeps at most ORD of them outstanding (R5040-6.1-2).
    pub fn expect_read(&mut self, read: ReadRequest) {
        self.outstanding.expect_read(read);
    }

    /// Registers an Atomic Request that was sent with this identifier, like
    /// [`expect_read`](Self::expect_read).
    pub fn expect_atomic(&mut self, id: u32) {
        self.outstanding.expect_atomic(id);
    }

    /// Number of our Read and Atomic Requests whose response is incomplete: they share ORD
    /// (R7306-5.2-1).
    pub fn outstanding_reads(&self) -> usize {
        self.outstanding.len()
    }

    /// Expects no response any more, as the peer has closed its side.
    pub fn forget_requests(&mut self) {
        self.outstanding.clear();
    }

    /// True if the request that was sent `since` requests before the newest is outstanding. If a
    /// Terminate returns the header of a Read Request, it must also match. siw returns it with the
    /// Read's length in place of the MSN.
    pub fn awaits(&self, since: usize, refused: Option<&ReadRequest>) -> bool {
        self.outstanding.awaits(since, refused)
    }

    /// Sets how many Read and Atomic Requests the peer may have outstanding. 0 means that there is
    /// no such queue (D7).
    pub fn set_ird(&mut self, ird: u16) {
        self.inbound_requests.set_ird(ird);
    }

    /// Sets how many Read and Atomic Requests this side may have outstanding. Allocates room for a
    /// larger number.
    pub fn set_ord(&mut self, ord: u16) {
        self.outstanding.set_ord(ord);
    }

    /// Returns the IRD credit of a Read or Atomic Response that was handed to TCP completely.
    pub fn response_sent(&mut self) {
        self.inbound_requests.response_sent();
    }

    /// True if a Send or a Read Response is incomplete, so that a FIN now would cut it.
    pub fn mid_message(&self) -> bool {
        self.sends.mid_message() || self.outstanding.mid_message()
    }

    /// Whether a ULPDU begins a message that takes a receive buffer, unless it is refused. Changes
    /// nothing.
    pub fn takes_receive(&self, ulpdu: &[u8]) -> bool {
        let is_untagged = ulpdu.first().is_some_and(|it| !Control(*it).is_tagged());
        !self.ended && !self.await_rtr && is_untagged && self.sends.is_next(ulpdu)
    }

    /// True if a violation or a Terminate has ended the stream: later segments are dropped.
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Judges one ULPDU that MPA has verified. On `Err` none of it may be placed, and the Terminate
    /// must be sent.
    pub fn on_ulpdu<'a, R: Resources>(
        &mut self,
        ulpdu: &'a [u8],
        resources: &mut R,
    ) -> Result<Inbound<'a, R::Place>, Violation> {
        if self.ended {
            return Ok(Inbound::Dropped);
        }
        self.judge(ulpdu, resources)
            .map_err(|cause| self.refuse(cause, ulpdu))
    }

    /// Returns the violation for a segment that passed all checks but whose memory is gone when it
    /// is placed. Ends the stream as other violations do.
    pub fn refuse(&mut self, cause: ViolationCause, ulpdu: &[u8]) -> Violation {
        self.ended = true;
        Violation::new(cause, self.version, ulpdu)
    }

    /// The order of checks decides which code a segment with several faults gets (D15).
    fn judge<'a, R: Resources>(
        &mut self,
        ulpdu: &'a [u8],
        resources: &mut R,
    ) -> Result<Inbound<'a, R::Place>, ViolationCause> {
        let segment = DdpSegment::parse(ulpdu)
            .filter(|_| ulpdu.len() <= MAX_ULPDU)
            .ok_or(ViolationCause::SegmentSize { len: ulpdu.len() })?;
        let may_be_rtr = core::mem::take(&mut self.await_rtr);
        let opcode = self.opcode(&segment)?;
        match segment {
            DdpSegment::Tagged(header, payload) => self.tagged(opcode, header, payload, resources),
            DdpSegment::Untagged(header, payload) => {
                self.untagged(opcode, header, payload, resources, may_be_rtr)
            }
        }
    }

    /// Versions first (R5041-4.1-11), then an opcode that is legal for the segment's buffer model
    /// (R5040-4.1-9).
    fn opcode(&self, segment: &DdpSegment<'_>) -> Result<Opcode, ViolationCause> {
        let tagged = segment.control().is_tagged();
        let ddp_version = segment.control().version();
        if ddp_version != self.version {
            return Err(ViolationCause::DdpVersion {
                tagged,
                found: ddp_version,
            });
        }
        let rdmap_version = Opcode::version_of(segment.rsvd_ulp());
        if rdmap_version != self.version {
            return Err(ViolationCause::RdmapVersion {
                found: rdmap_version,
            });
        }
        let opcode =
            Opcode::from_control(segment.rsvd_ulp()).map_err(ViolationCause::UnknownOpcode)?;
        if opcode.is_unassigned() && !self.sends.carry_immediates() {
            return Err(ViolationCause::UnknownOpcode(opcode as u8));
        }
        if opcode.is_tagged() != tagged {
            return Err(ViolationCause::OpcodeBufferModel { opcode, tagged });
        }
        Ok(opcode)
    }

    fn tagged<'a, R: Resources>(
        &mut self,
        opcode: Opcode,
        header: &TaggedHeader,
        payload: &'a [u8],
        resources: &R,
    ) -> Result<Inbound<'a, R::Place>, ViolationCause> {
        if opcode == Opcode::ReadResponse {
            return self.outstanding.accept_read(header, payload, resources);
        }
        Ok(Inbound::Write {
            placement: Placement::admitted(header, payload, resources, AccessKind::RemoteWrite)?,
            last: Control(header.control).is_last(),
        })
    }

    /// A queue that exists, then an opcode that belongs on it (R5040-4.1-10), then the queue's own
    /// checks.
    fn untagged<'a, R: Resources>(
        &mut self,
        opcode: Opcode,
        header: &UntaggedHeader,
        payload: &'a [u8],
        resources: &mut R,
        may_be_rtr: bool,
    ) -> Result<Inbound<'a, R::Place>, ViolationCause> {
        let qn = header.qn.get();
        let queue = Queue::from_qn(qn)
            .filter(|queue| *queue != Queue::AtomicResponse || self.extensions)
            .ok_or(ViolationCause::InvalidQueue { qn })?;
        if queue == Queue::Request && !self.inbound_requests.enabled() {
            return Err(ViolationCause::ReadsDisabled);
        }
        let known = self.extensions || !opcode.is_extension();
        if !known || opcode.queue() != Some(queue) {
            return Err(ViolationCause::OpcodeQueue { opcode, qn });
        }
        match queue {
            Queue::Send if may_be_rtr && self.sends.is_rtr(opcode, header, payload) => {
                self.sends.pass_one();
                Ok(Inbound::RtrSend)
            }
            Queue::Send => self.sends.accept(opcode, header, payload, resources),
            Queue::Request => self
                .inbound_requests
                .accept(opcode, header, payload, resources),
            Queue::AtomicResponse => self.outstanding.accept_atomic(header, payload),
            Queue::Terminate => {
                self.ended = true;
                Ok(Inbound::Terminate(ReceivedTerminate::parse(
                    header, payload,
                )))
            }
        }
    }
}

/// The only segment of a message must have its L bit set.
fn check_last(opcode: Opcode, header: &UntaggedHeader) -> Result<(), ViolationCause> {
    if !Control(header.control).is_last() {
        return Err(ViolationCause::NotLast { opcode });
    }
    Ok(())
}

/// The message must have the next number of its queue.
fn check_number(header: &UntaggedHeader, expected: u32) -> Result<(), ViolationCause> {
    let qn = header.qn.get();
    let msn = header.msn.get();
    if msn != expected {
        return Err(ViolationCause::MessageNumber { qn, msn, expected });
    }
    Ok(())
}

/// The segment must begin where the one before it ended.
fn check_offset(header: &UntaggedHeader, expected: u32) -> Result<(), ViolationCause> {
    let qn = header.qn.get();
    let mo = header.mo.get();
    if mo != expected {
        return Err(ViolationCause::MessageOffset { qn, mo, expected });
    }
    Ok(())
}

/// Length of a payload, as the type of region lengths: no payload exceeds [`MAX_ULPDU`].
fn bytes(payload: &[u8]) -> u64 {
    u64::try_from(payload.len()).unwrap_or(u64::MAX)
}

/// The payload of a message of RFC 7306 with exactly this length; a longer one exceeds its buffer
/// (R7306-6.3-3).
fn exactly<const N: usize>(opcode: Opcode, payload: &[u8]) -> Result<[u8; N], ViolationCause> {
    let len = payload.len();
    if len > N {
        return Err(ViolationCause::MessageTooLong {
            opcode,
            mo: 0,
            len,
            buffer: u64::try_from(N).unwrap_or(u64::MAX),
        });
    }
    <[u8; N]>::try_from(payload).map_err(|_| ViolationCause::ExtensionSize {
        opcode,
        len,
        expected: N,
    })
}
