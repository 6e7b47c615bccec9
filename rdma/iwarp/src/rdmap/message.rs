//! Transmit side: message numbers and segmentation (RFC 5041 §5).

use super::header::append;
use super::{
    ATOMIC_REQUEST_BYTES, ATOMIC_RESPONSE_BYTES, AtomicRequest, AtomicRequestHeader,
    AtomicResponseHeader, CapturedHeader, IMMEDIATE_BYTES, Opcode, READ_REQUEST_BYTES, ReadRequest,
    ReadRequestHeader, SendKind, StreamConfig,
};
use crate::Stag;
use crate::ddp::{
    Control, FIRST_MSN, Queue, TAGGED_HEADER_BYTES, TaggedHeader, UNTAGGED_HEADER_BYTES,
    UntaggedHeader,
};
use crate::mpa::{MAX_ULPDU, MIN_MULPDU, Rtr};
use arrayvec::ArrayVec;
use core::ops::Range;
use zerocopy::{Immutable, IntoBytes};

/// Maximum length in bytes of a [`Segment`]'s header: untagged with an Atomic Request.
pub const MAX_SEGMENT_HEADER: usize = UNTAGGED_HEADER_BYTES + ATOMIC_REQUEST_BYTES;

/// Length in bytes of a Read Request's ULPDU.
pub const READ_REQUEST_ULPDU: usize = UNTAGGED_HEADER_BYTES + READ_REQUEST_BYTES;

/// A Read Request on the wire.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct ReadRequestUlpdu {
    ddp: UntaggedHeader,
    rdmap: ReadRequestHeader,
}

/// Numbers the outbound messages of one stream, in the order of the calls (R5040-5.5-8).
///
/// The caller bounds the outstanding Reads, as it knows when they complete (R5040-6.1-2).
#[derive(Clone, Debug)]
pub struct Sender {
    version: u8,
    send_msn: u32,
    /// Shared by Read and Atomic Requests (R7306-5.2-1).
    request_msn: u32,
    atomic_response_msn: u32,
}

impl Sender {
    /// A stream that has sent no message yet.
    pub const fn new(config: StreamConfig) -> Self {
        Self {
            version: config.version,
            send_msn: FIRST_MSN,
            request_msn: FIRST_MSN,
            atomic_response_msn: FIRST_MSN,
        }
    }

    /// A Send of `len` bytes. Takes the next MSN on QN 0, even if `len` is 0.
    pub const fn send(&mut self, kind: SendKind, len: u32) -> Message {
        let msn = take(&mut self.send_msn);
        self.message(
            kind.opcode(),
            Model::Untagged {
                queue: Queue::Send,
                stag: kind.field(),
                msn,
            },
            len,
        )
    }

    /// An RDMA Write of `len` bytes to the peer's `stag`.
    pub const fn write(&mut self, stag: Stag, to: u64, len: u32) -> Message {
        self.message(Opcode::Write, Model::Tagged { stag, to }, len)
    }

    /// DDP header of a Send in one segment. Takes the next MSN on QN 0, as [`send`](Self::send)
    /// does.
    #[inline]
    pub fn whole_send(&mut self, kind: SendKind) -> [u8; UNTAGGED_HEADER_BYTES] {
        zerocopy::transmute!(UntaggedHeader {
            control: Control::new(false, true, self.version).0,
            rsvd_ulp: kind.opcode().control(self.version),
            rsvd_ulp_stag: kind.field().0.into(),
            qn: Queue::Send.qn().into(),
            msn: take(&mut self.send_msn).into(),
            mo: 0.into(),
        })
    }

    /// DDP header of an RDMA Write in one segment.
    #[inline]
    pub fn whole_write(&self, stag: Stag, to: u64) -> [u8; TAGGED_HEADER_BYTES] {
        self.whole_tagged(Opcode::Write, stag, to)
    }

    /// DDP header of the answer to the peer's `request` in one segment.
    #[inline]
    pub fn whole_read_response(&self, request: &ReadRequest) -> [u8; TAGGED_HEADER_BYTES] {
        self.whole_tagged(Opcode::ReadResponse, request.sink, request.sink_to)
    }

    #[inline]
    fn whole_tagged(&self, opcode: Opcode, stag: Stag, to: u64) -> [u8; TAGGED_HEADER_BYTES] {
        zerocopy::transmute!(TaggedHeader {
            control: Control::new(true, true, self.version).0,
            rsvd_ulp: opcode.control(self.version),
            stag: stag.0.into(),
            to: to.into(),
        })
    }

    /// ULPDU of a Read Request. Takes the next MSN on QN 1, as [`read_request`](Self::read_request)
    /// does.
    #[inline]
    pub fn whole_read_request(&mut self, request: &ReadRequest) -> [u8; READ_REQUEST_ULPDU] {
        let ddp = UntaggedHeader {
            control: Control::new(false, true, self.version).0,
            rsvd_ulp: Opcode::ReadRequest.control(self.version),
            rsvd_ulp_stag: 0.into(),
            qn: Queue::Request.qn().into(),
            msn: take(&mut self.request_msn).into(),
            mo: 0.into(),
        };
        let rdmap = request.into();
        zerocopy::transmute!(ReadRequestUlpdu { ddp, rdmap })
    }

    /// An RDMA Read Request. Takes the next MSN on QN 1.
    pub fn read_request(&mut self, request: &ReadRequest) -> Message {
        let msn = take(&mut self.request_msn);
        let body = Body::ReadRequest(*request);
        self.header_only(Opcode::ReadRequest, Queue::Request, msn, body)
    }

    /// An Atomic Request. Takes the next MSN on QN 1, as a Read Request does (R7306-5.2-1).
    pub fn atomic_request(&mut self, request: &AtomicRequest) -> Message {
        let msn = take(&mut self.request_msn);
        let body = Body::AtomicRequest(*request);
        self.header_only(Opcode::AtomicRequest, Queue::Request, msn, body)
    }

    /// The answer to an executed Atomic Request: its identifier, and the value in memory before.
    /// Takes the next MSN on QN 3.
    pub fn atomic_response(&mut self, id: u32, original: u64) -> Message {
        let msn = take(&mut self.atomic_response_msn);
        let body = Body::AtomicResponse { id, original };
        self.header_only(Opcode::AtomicResponse, Queue::AtomicResponse, msn, body)
    }

    /// Immediate Data. Takes the next MSN on QN 0, as a Send does (R7306-6.3-1).
    pub fn immediate(&mut self, data: [u8; IMMEDIATE_BYTES], solicited: bool) -> Message {
        let msn = take(&mut self.send_msn);
        let opcode = if solicited {
            Opcode::ImmediateDataSolicited
        } else {
            Opcode::ImmediateData
        };
        self.header_only(opcode, Queue::Send, msn, Body::Immediate(data))
    }

    /// The initiator's first message in the peer-to-peer model (RFC 6581 §9.2). It accesses no
    /// memory, and has `STag` 1 (D19).
    ///
    /// For [`Rtr::Read`] the caller registers [`ReadRequest::RTR`] with the receiver: it is
    /// answered, and takes one ORD credit until then.
    pub fn ready_to_receive(&mut self, rtr: Rtr) -> Message {
        match rtr {
            Rtr::Send => self.send(SendKind::default(), 0),
            Rtr::Write => self.write(Stag::PLACEHOLDER, 0, 0),
            Rtr::Read => self.read_request(&ReadRequest::RTR),
        }
    }

    /// The answer to the peer's `request`: all its bytes, to the sink that it names, which this
    /// side does not check (R5040-4.4-2).
    pub const fn read_response(&mut self, request: &ReadRequest) -> Message {
        let model = Model::Tagged {
            stag: request.sink,
            to: request.sink_to,
        };
        self.message(Opcode::ReadResponse, model, request.len)
    }

    /// An untagged message of one segment that consists of headers.
    fn header_only(&self, opcode: Opcode, queue: Queue, msn: u32, body: Body) -> Message {
        let stag = Stag(0);
        let model = Model::Untagged { queue, stag, msn };
        Message {
            body,
            ..self.message(opcode, model, 0)
        }
    }

    /// Number of answered requests that began after the one with this MSN: 0 for the newest. Very
    /// large for an MSN that has not begun.
    pub const fn requests_since(&self, msn: u32) -> u32 {
        self.request_msn.wrapping_sub(msn).wrapping_sub(1)
    }

    /// Number of messages of QN 0 that began after the one with this MSN: 0 for the newest. Very
    /// large for an MSN that has not begun.
    pub const fn messages_since(&self, msn: u32) -> u32 {
        self.send_msn.wrapping_sub(msn).wrapping_sub(1)
    }

    const fn message(&self, opcode: Opcode, model: Model, len: u32) -> Message {
        Message {
            version: self.version,
            opcode,
            model,
            body: Body::Payload,
            len,
            offset: 0,
            done: false,
        }
    }
}

/// R5041-4.3-5: 0 follows 2^32 - 1.
const fn take(msn: &mut u32) -> u32 {
    let taken = *msn;
    *msn = taken.wrapping_add(1);
    taken
}

/// Destination of the payload at the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Model {
    Tagged { stag: Stag, to: u64 },
    Untagged { queue: Queue, stag: Stag, msn: u32 },
}

/// The part of a message behind the DDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    /// Data of the ULP.
    Payload,
    ReadRequest(ReadRequest),
    AtomicRequest(AtomicRequest),
    AtomicResponse {
        id: u32,
        original: u64,
    },
    Immediate([u8; IMMEDIATE_BYTES]),
}

impl Body {
    const fn header_len(self) -> usize {
        match self {
            Self::Payload => 0,
            Self::ReadRequest(_) => READ_REQUEST_BYTES,
            Self::AtomicRequest(_) => ATOMIC_REQUEST_BYTES,
            Self::AtomicResponse { .. } => ATOMIC_RESPONSE_BYTES,
            Self::Immediate(_) => IMMEDIATE_BYTES,
        }
    }

    fn append_to(self, header: &mut ArrayVec<u8, MAX_SEGMENT_HEADER>) {
        match self {
            Self::Payload => {}
            Self::ReadRequest(request) => {
                append(header, ReadRequestHeader::from(&request).as_bytes());
            }
            Self::AtomicRequest(request) => {
                append(header, AtomicRequestHeader::from(&request).as_bytes());
            }
            Self::AtomicResponse { id, original } => {
                let response = AtomicResponseHeader {
                    id: id.into(),
                    original: original.into(),
                };
                append(header, response.as_bytes());
            }
            Self::Immediate(data) => append(header, &data),
        }
    }
}

/// One outbound RDMAP message, cut into DDP segments as there is room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    version: u8,
    opcode: Opcode,
    model: Model,
    body: Body,
    len: u32,
    offset: u32,
    done: bool,
}

/// One DDP segment: the ULPDU is `header`, followed by the message's bytes `payload`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// DDP header, followed by RDMAP's if the message has one.
    pub header: ArrayVec<u8, MAX_SEGMENT_HEADER>,
    /// Range of the message's bytes that follow.
    pub payload: Range<u32>,
    /// True for the last segment of the message.
    pub last: bool,
}

impl Message {
    /// True if the last segment was taken. A message without payload has one segment, too
    /// (R5041-5.2-8).
    pub const fn is_done(&self) -> bool {
        self.done
    }

    /// Payload bytes of the whole message.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// True if the message carries no payload.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Payload bytes already cut into segments.
    pub const fn offset(&self) -> u32 {
        self.offset
    }

    /// The operation.
    pub const fn opcode(&self) -> Opcode {
        self.opcode
    }

    /// True if this header, which the peer has returned, belongs to one of the message's segments.
    pub fn is_named_by(&self, header: &CapturedHeader) -> bool {
        match (self.model, header) {
            (Model::Tagged { stag, to }, CapturedHeader::Tagged(header)) => {
                let ahead = header.to.get().checked_sub(to);
                stag.0 == header.stag.get() && ahead.is_some_and(|it| it <= u64::from(self.len))
            }
            (Model::Untagged { queue, msn, .. }, CapturedHeader::Untagged(header)) => {
                (queue.qn(), msn) == (header.qn.get(), header.msn.get())
            }
            (Model::Tagged { .. }, CapturedHeader::Untagged(_))
            | (Model::Untagged { .. }, CapturedHeader::Tagged(_)) => false,
        }
    }

    /// Length in bytes of the next segment's ULPDU, or `None` if the message is done.
    ///
    /// `mulpdu` is in bytes, and is clamped to 128 to 64768.
    pub fn next_len(&self, mulpdu: usize) -> Option<usize> {
        (!self.done).then(|| self.header_len() + self.next_payload(mulpdu))
    }

    /// True if the next segment is the message's only one.
    pub fn is_whole_in(&self, mulpdu: usize) -> bool {
        self.offset == 0 && usize::try_from(self.len) == Ok(self.next_payload(mulpdu))
    }

    /// Takes the next segment, as large as `mulpdu` allows (R5044-4.5-4). A later one may use
    /// another `mulpdu`.
    pub fn next_segment(&mut self, mulpdu: usize) -> Option<Segment> {
        let segment = self.peek_segment(mulpdu)?;
        self.advance(&segment);
        Some(segment)
    }

    /// The next segment, without taking it.
    #[inline]
    pub(super) fn peek_segment(&self, mulpdu: usize) -> Option<Segment> {
        if self.done {
            return None;
        }
        let start = self.offset;
        let taken = u32::try_from(self.next_payload(mulpdu)).unwrap_or(u32::MAX);
        let end = start.saturating_add(taken).min(self.len);
        let last = end == self.len;
        let header = self.header(last);
        Some(Segment {
            header,
            payload: start..end,
            last,
        })
    }

    /// Takes that segment.
    #[inline]
    pub(super) const fn advance(&mut self, segment: &Segment) {
        self.offset = segment.payload.end;
        self.done = segment.last;
    }

    fn header_len(&self) -> usize {
        let ddp = match self.model {
            Model::Tagged { .. } => size_of::<TaggedHeader>(),
            Model::Untagged { .. } => size_of::<UntaggedHeader>(),
        };
        ddp + self.body.header_len()
    }

    pub(super) fn next_payload(&self, mulpdu: usize) -> usize {
        let room = mulpdu.clamp(MIN_MULPDU, MAX_ULPDU) - self.header_len();
        let left = self.len - self.offset;
        usize::try_from(left).map_or(room, |left| left.min(room))
    }

    fn header(&self, last: bool) -> ArrayVec<u8, MAX_SEGMENT_HEADER> {
        let mut header = ArrayVec::new();
        let rsvd_ulp = self.opcode.control(self.version);
        match self.model {
            Model::Tagged { stag, to } => {
                let control = Control::new(true, last, self.version).0;
                // R5041-5.2-7; a Read Request's sink may be invalid
                let to = to.wrapping_add(u64::from(self.offset));
                let tagged = TaggedHeader {
                    control,
                    rsvd_ulp,
                    stag: stag.0.into(),
                    to: to.into(),
                };
                append(&mut header, tagged.as_bytes());
            }
            Model::Untagged { queue, stag, msn } => {
                let untagged = UntaggedHeader {
                    control: Control::new(false, last, self.version).0,
                    rsvd_ulp,
                    rsvd_ulp_stag: stag.0.into(),
                    qn: queue.qn().into(),
                    msn: msn.into(),
                    mo: self.offset.into(),
                };
                append(&mut header, untagged.as_bytes());
            }
        }
        self.body.append_to(&mut header);
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpa::{fpdu_len, seal_fpdu};
    use proptest::prelude::*;

    /// vectors.md §5: Sends of one zero byte.
    #[test]
    fn message_number_goes_from_all_ones_to_zero() {
        let mut sender = Sender {
            send_msn: 0xFFFF_FFFE,
            ..Sender::new(StreamConfig::new(0, 0))
        };
        for (msn, crc) in [
            (0xFFFF_FFFE_u32, [0x0c, 0x29, 0x0d, 0x3b]),
            (0xFFFF_FFFF, [0x44, 0xff, 0x33, 0xcf]),
            (0, [0xe6, 0xb5, 0xac, 0x1b]),
            (1, [0xae, 0x63, 0x92, 0xef]),
        ] {
            let segment = sender
                .send(SendKind::default(), 1)
                .next_segment(1454)
                .expect("one segment");
            let mut fpdu = vec![0; fpdu_len(19)];
            fpdu[2..20].copy_from_slice(&segment.header);
            seal_fpdu(&mut fpdu, 19, true);
            // ULPDU length 19, last untagged segment, Send
            assert_eq!(fpdu[..4], [0x00, 0x13, 0x41, 0x43]);
            assert_eq!(fpdu[12..16], msn.to_be_bytes());
            assert_eq!(fpdu[24..], crc);
        }
    }

    proptest! {
        #[test]
        fn header_of_a_whole_message_is_that_of_its_only_segment(
            version in 0_u8..2,
            msn: u32,
            stag: u32,
            to: u64,
            solicited: bool,
            invalidate: Option<u32>,
        ) {
            let config = StreamConfig { version, ..StreamConfig::new(0, 0) };
            let mut sender = Sender { send_msn: msn, ..Sender::new(config) };
            let invalidate = invalidate.map(Stag);
            let kind = SendKind { solicited, invalidate, immediate: None };
            let mut same = sender.clone();
            for _ in 0..2 {
                let send = sender.send(kind, 7).next_segment(1454).expect("one segment");
                prop_assert_eq!(&same.whole_send(kind)[..], &send.header[..]);
            }
            let write = sender.write(Stag(stag), to, 7).next_segment(1454);
            let header = same.whole_write(Stag(stag), to);
            prop_assert_eq!(&header[..], &write.expect("one segment").header[..]);
        }

        #[test]
        fn ulpdu_of_a_whole_read_is_that_of_its_only_segment(
            version in 0_u8..2,
            msn: u32,
            [sink, source]: [u32; 2],
            [sink_to, source_to]: [u64; 2],
            len in 0..1000_u32,
        ) {
            let config = StreamConfig { version, ..StreamConfig::new(0, 0) };
            let mut sender = Sender { request_msn: msn, ..Sender::new(config) };
            let (sink, source) = (Stag(sink), Stag(source));
            let read = ReadRequest { sink, sink_to, len, source, source_to };
            let mut same = sender.clone();
            for _ in 0..2 {
                let request = sender.read_request(&read).next_segment(1454).expect("one segment");
                prop_assert_eq!(&same.whole_read_request(&read)[..], &request.header[..]);
            }
            let response = sender.read_response(&read).next_segment(1454).expect("one segment");
            prop_assert_eq!(&same.whole_read_response(&read)[..], &response.header[..]);
        }
    }

    /// Requests of both kinds on QN 1, and Atomic Responses on QN 3.
    #[test]
    fn request_and_response_numbers_go_from_all_ones_to_zero() {
        let mut sender = Sender {
            request_msn: 0xFFFF_FFFE,
            atomic_response_msn: 0xFFFF_FFFE,
            ..Sender::new(StreamConfig::new(4, 4))
        };
        for msn in [0xFFFF_FFFE_u32, 0xFFFF_FFFF, 0, 1] {
            let request = sender.read_request(&ReadRequest::RTR);
            let response = sender.atomic_response(7, 9);
            for mut message in [request, response] {
                let segment = message.next_segment(1454).expect("one segment");
                assert_eq!(segment.header[10..14], msn.to_be_bytes());
            }
        }
    }

    /// Counts begun requests across the wrap: none for a number that has not begun.
    #[test]
    fn requests_are_counted_back_across_the_wrap() {
        for next in [5_u32, 1, 0, u32::MAX, 1 << 31] {
            let sender = Sender {
                request_msn: next,
                ..Sender::new(StreamConfig::new(4, 4))
            };
            for since in [0, 1, 2, 1000, 1 << 31, u32::MAX] {
                let msn = (u64::from(next) + (1 << 33) - 1 - u64::from(since)) % (1 << 32);
                let msn = u32::try_from(msn).expect("a number");
                assert_eq!(
                    sender.requests_since(msn),
                    since,
                    "{msn:#x} before {next:#x}"
                );
            }
        }
    }
}
