//! Receive side of one RDMAP stream: checks each DDP segment before a byte of it is placed (RFC 5041 §7, RFC 5040 §7).

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

/// What to do with an inbound segment that passed all checks. `P` is where a tagged one goes: [`Resources::Place`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inbound<'a, P = ()> {
    /// Copy its payload to its place. No ULP event.
    Write {
        /// What goes where.
        placement: Placement<'a, P>,
        /// Last segment of its message.
        last: bool,
    },
    /// Copy its payload to its place, as the answer to the oldest outstanding read.
    ReadResponse {
        /// What goes where.
        placement: Placement<'a, P>,
        /// That read is complete.
        done: bool,
    },
    /// Answer it, after those before it. Its source was checked ([`AccessKind::RemoteRead`]) unless `len` is 0; check
    /// again for each segment of the response. Takes one IRD credit until [`Receiver::response_sent`].
    ReadRequest(InboundRead),
    /// Place `payload` into the receive buffer that the message's first segment took.
    Send {
        /// Which Send.
        kind: SendKind,
        /// MO: bytes from the buffer's begin.
        offset: u32,
        /// Bytes to place.
        payload: &'a [u8],
        /// On the last segment: bytes of the whole message. Now invalidate `kind`'s `STag`, then complete the receive.
        message_len: Option<u32>,
    },
    /// Complete the receive that was taken for it, with these bytes: its buffer stays as it is (RFC 7306 §6, D9).
    Immediate {
        /// What the peer says.
        data: [u8; IMMEDIATE_BYTES],
        /// An event is wanted.
        solicited: bool,
    },
    /// Execute it once, atomically with all others of this RNIC, and answer it after the requests before it. Its target was
    /// checked. Takes one IRD credit until [`Receiver::response_sent`].
    AtomicRequest(InboundAtomic),
    /// The oldest outstanding request, an Atomic Request, is complete.
    AtomicResponse {
        /// What was in the peer's memory before.
        original: u64,
    },
    /// The peer is Ready To Receive: the zero-length Send of a peer-to-peer initiator, which concerns no ULP and took no
    /// buffer (R6581-9.2-11). RTRs of the other types come as Write and Read Request.
    RtrSend,
    /// The peer ended the stream. Whatever it sends after is [`Inbound::Dropped`].
    Terminate(ReceivedTerminate),
    /// Nothing: the stream has ended by a violation or a Terminate before (R5041-7.1-15).
    Dropped,
}

/// Receive side of one RDMAP stream. Segments come in the order of the stream.
///
/// The first [`Violation`] or Terminate ends it: from then on every segment is [`Inbound::Dropped`], unread.
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
    /// A stream that has received nothing yet. Allocates room for `config.ord` outstanding requests.
    pub fn new(config: StreamConfig) -> Self {
        Self {
            version: config.version,
            sends: Sends::new(),
            inbound_requests: InboundRequests::new(config.ird),
            outstanding: Outstanding::new(config.ord),
            extensions: config.extensions && config.version == VERSION_IETF,
            await_rtr: config.await_rtr,
            ended: false,
        }
    }

    /// The transmit side sent this Read Request: its response is expected after those already registered.
    ///
    /// The caller keeps at most ORD of them outstanding (R5040-6.1-2).
    pub fn expect_read(&mut self, read: ReadRequest) {
        self.outstanding.expect_read(read);
    }

    /// The transmit side sent an Atomic Request with this identifier: likewise.
    pub fn expect_atomic(&mut self, id: u32) {
        self.outstanding.expect_atomic(id);
    }

    /// Read and Atomic Requests of ours whose response is not wholly here: they share ORD (R7306-5.2-1).
    pub fn outstanding_reads(&self) -> usize {
        self.outstanding.len()
    }

    /// True if the request that was sent `since` requests before the newest is outstanding. If a Terminate returns the header of a Read
    /// Request, it must also be that one's. siw returns it with the Read's length in place of the MSN.
    pub fn awaits(&self, since: usize, refused: Option<&ReadRequest>) -> bool {
        self.outstanding.awaits(since, refused)
    }

    /// From now on the peer may have this many Read and Atomic Requests outstanding, 0 meaning that there is no such queue (D7).
    pub fn set_ird(&mut self, ird: u16) {
        self.inbound_requests.set_ird(ird);
    }

    /// From now on this side has this many Read and Atomic Requests outstanding at most. Allocates room for more than before.
    pub fn set_ord(&mut self, ord: u16) {
        self.outstanding.set_ord(ord);
    }

    /// A Read or Atomic Response of ours was handed to TCP wholly: its IRD credit returns.
    pub fn response_sent(&mut self) {
        self.inbound_requests.response_sent();
    }

    /// A Send or a Read Response is only partly here, so that a FIN now would cut it.
    pub fn mid_message(&self) -> bool {
        self.sends.mid_message() || self.outstanding.mid_message()
    }

    /// A violation or a Terminate ended the stream: all else is dropped.
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Judges one ULPDU that MPA has verified. On `Err` nothing of it may be placed, and the Terminate is due.
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

    /// A violation that shows when a segment that passed all checks is placed: its memory is gone. It ends the stream, too.
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

    /// Versions first (R5041-4.1-11), then an opcode that is legal for the segment's buffer model (R5040-4.1-9).
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

    /// A queue that exists, then an opcode that belongs on it (R5040-4.1-10), then the queue's own checks.
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

/// The only segment of a message says that it is the last.
fn check_last(opcode: Opcode, header: &UntaggedHeader) -> Result<(), ViolationCause> {
    if !Control(header.control).is_last() {
        return Err(ViolationCause::NotLast { opcode });
    }
    Ok(())
}

/// The message has the number that is due on its queue.
fn check_number(header: &UntaggedHeader, expected: u32) -> Result<(), ViolationCause> {
    let (qn, msn) = (header.qn.get(), header.msn.get());
    if msn != expected {
        return Err(ViolationCause::MessageNumber { qn, msn, expected });
    }
    Ok(())
}

/// The segment begins where the one before it ended.
fn check_offset(header: &UntaggedHeader, expected: u32) -> Result<(), ViolationCause> {
    let (qn, mo) = (header.qn.get(), header.mo.get());
    if mo != expected {
        return Err(ViolationCause::MessageOffset { qn, mo, expected });
    }
    Ok(())
}

/// Length of a payload as regions count: no payload exceeds [`MAX_ULPDU`].
fn bytes(payload: &[u8]) -> u64 {
    u64::try_from(payload.len()).unwrap_or(u64::MAX)
}

/// The payload of a message of RFC 7306 that has just this length; a longer one exceeds its buffer (R7306-6.3-3).
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
