//! Receive side of one RDMAP stream: checks each DDP segment before an octet of it is placed (RFC 5041 §7, RFC 5040 §7).

mod inbound_reads;
mod outstanding_reads;
mod sends;

pub use inbound_reads::InboundRead;

use super::{
    Access, Opcode, ReadRequest, ReceivedTerminate, Resources, SendKind, StreamConfig, Violation,
    ViolationCause,
};
use crate::Stag;
use crate::ddp::{Control, DdpSegment, Queue, TaggedHeader, UntaggedHeader};
use crate::mpa::MAX_ULPDU;
use inbound_reads::InboundReads;
use outstanding_reads::OutstandingReads;
use sends::Sends;

/// What to do with an inbound segment that passed all checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inbound<'a> {
    /// Place `payload`; zero length places nothing, and its `STag` and TO mean nothing (R5041-5.2-9). No ULP event.
    Write {
        /// Region.
        stag: Stag,
        /// Tagged Offset of the first octet.
        to: u64,
        /// Octets to place.
        payload: &'a [u8],
        /// Last segment of its message.
        last: bool,
    },
    /// Place `payload` as the answer to the oldest outstanding read.
    ReadResponse {
        /// Region.
        stag: Stag,
        /// Tagged Offset of the first octet.
        to: u64,
        /// Octets to place; zero length places nothing.
        payload: &'a [u8],
        /// That read is complete.
        done: bool,
    },
    /// Answer it, after those before it. Its source was checked ([`Access::RemoteRead`]) unless `len` is 0; check
    /// again for each segment of the response. Takes one IRD credit until [`Receiver::response_sent`].
    ReadRequest(InboundRead),
    /// Place `payload` into the receive buffer that the message's first segment took.
    Send {
        /// Which Send.
        kind: SendKind,
        /// MO: octets from the buffer's begin.
        offset: u32,
        /// Octets to place.
        payload: &'a [u8],
        /// On the last segment: octets of the whole message. Now invalidate `kind`'s `STag`, then complete the receive.
        message_len: Option<u32>,
    },
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
    inbound_reads: InboundReads,
    outstanding_reads: OutstandingReads,
    ended: bool,
}

impl Receiver {
    /// A stream that has received nothing yet. Allocates room for `config.ord` outstanding reads.
    pub fn new(config: StreamConfig) -> Self {
        Self {
            version: config.version,
            sends: Sends::new(),
            inbound_reads: InboundReads::new(config.ird),
            outstanding_reads: OutstandingReads::new(config.ord),
            ended: false,
        }
    }

    /// The transmit side sent this Read Request: its response is expected after those already registered.
    ///
    /// The caller keeps at most ORD of them outstanding (R5040-6.1-2).
    pub fn expect_read(&mut self, read: ReadRequest) {
        self.outstanding_reads.expect(read);
    }

    /// Read Requests of ours whose response is not wholly here.
    pub fn outstanding_reads(&self) -> usize {
        self.outstanding_reads.len()
    }

    /// A Read Response of ours was handed to TCP wholly: its IRD credit returns.
    pub fn response_sent(&mut self) {
        self.inbound_reads.response_sent();
    }

    /// A Send or a Read Response is only partly here, so that a FIN now would cut it.
    pub fn mid_message(&self) -> bool {
        self.sends.mid_message() || self.outstanding_reads.mid_message()
    }

    /// A violation or a Terminate ended the stream: all else is dropped.
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Judges one ULPDU that MPA has verified. On `Err` nothing of it may be placed, and the Terminate is due.
    pub fn on_ulpdu<'a>(
        &mut self,
        ulpdu: &'a [u8],
        resources: &mut impl Resources,
    ) -> Result<Inbound<'a>, Violation> {
        if self.ended {
            return Ok(Inbound::Dropped);
        }
        self.judge(ulpdu, resources).map_err(|cause| {
            self.ended = true;
            Violation::new(cause, self.version, ulpdu)
        })
    }

    /// The order of checks decides which code a segment with several faults gets (D15).
    fn judge<'a>(
        &mut self,
        ulpdu: &'a [u8],
        resources: &mut impl Resources,
    ) -> Result<Inbound<'a>, ViolationCause> {
        let segment = DdpSegment::parse(ulpdu)
            .filter(|_| ulpdu.len() <= MAX_ULPDU)
            .ok_or(ViolationCause::SegmentSize { len: ulpdu.len() })?;
        let opcode = self.opcode(&segment)?;
        match segment {
            DdpSegment::Tagged(header, payload) => self.tagged(opcode, header, payload, resources),
            DdpSegment::Untagged(header, payload) => {
                self.untagged(opcode, header, payload, resources)
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

    fn tagged<'a>(
        &mut self,
        opcode: Opcode,
        header: &TaggedHeader,
        payload: &'a [u8],
        resources: &impl Resources,
    ) -> Result<Inbound<'a>, ViolationCause> {
        if opcode == Opcode::ReadResponse {
            return self.outstanding_reads.accept(header, payload, resources);
        }
        let (stag, to, len) = (Stag(header.stag.get()), header.to.get(), octets(payload));
        if len > 0 {
            resources
                .check(stag, to, len, Access::RemoteWrite)
                .map_err(|cause| ViolationCause::Write {
                    stag,
                    to,
                    len,
                    cause,
                })?;
        }
        Ok(Inbound::Write {
            stag,
            to,
            payload,
            last: Control(header.control).is_last(),
        })
    }

    /// A queue that exists, then an opcode that belongs on it (R5040-4.1-10), then the queue's own checks.
    fn untagged<'a>(
        &mut self,
        opcode: Opcode,
        header: &UntaggedHeader,
        payload: &'a [u8],
        resources: &mut impl Resources,
    ) -> Result<Inbound<'a>, ViolationCause> {
        let qn = header.qn.get();
        let queue = Queue::from_qn(qn).ok_or(ViolationCause::InvalidQueue { qn })?;
        if queue == Queue::ReadRequest && !self.inbound_reads.enabled() {
            return Err(ViolationCause::ReadsDisabled);
        }
        if opcode.queue() != Some(queue) {
            return Err(ViolationCause::OpcodeQueue { opcode, qn });
        }
        match queue {
            Queue::Send => self.sends.accept(opcode, header, payload, resources),
            Queue::ReadRequest => self
                .inbound_reads
                .accept(header, payload, resources)
                .map(Inbound::ReadRequest),
            Queue::Terminate => {
                self.ended = true;
                Ok(Inbound::Terminate(ReceivedTerminate::parse(
                    header, payload,
                )))
            }
        }
    }
}

/// Length of a payload as regions count: no payload exceeds [`MAX_ULPDU`].
fn octets(payload: &[u8]) -> u64 {
    u64::try_from(payload.len()).unwrap_or(u64::MAX)
}
