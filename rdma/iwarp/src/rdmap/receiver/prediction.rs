//! Prediction: recognizes ordinary segments by comparing their control bytes. Nearly all segments
//! are those of Writes, Sends of one segment, and Reads.
//!
//! [`Receiver::on_ulpdu`] returns a value that covers every segment and violation. Copying it took
//! a third of the instructions of a received Write of 64 bytes. So the shortcuts here compare the
//! control bytes first, and change nothing. Violations and rare segments go to `on_ulpdu`, which
//! judges the segment from the start; placing its bytes twice is harmless. Property tests check
//! that both ways give the same verdicts. Smaller values on the heap are no alternative: the
//! protocol core does not allocate.

use super::{InboundRead, Receiver, bytes};
use crate::Stag;
use crate::ddp::{Control, Queue, TaggedHeader, UNTAGGED_HEADER_BYTES, UntaggedHeader};
use crate::mpa::{LENGTH_BYTES, MAX_ULPDU};
use crate::rdmap::Opcode;
use zerocopy::FromBytes;

/// An ordinary segment, on which [`Receiver::on_ulpdu`] would return the same verdict if
/// [`Resources`](crate::rdmap::Resources) admits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastSegment<'a> {
    /// A segment of an RDMA Write, with payload. After its access is admitted, the caller may copy
    /// it.
    Write {
        /// Region.
        stag: Stag,
        /// Tagged Offset of the first byte.
        to: u64,
        /// Bytes to place.
        payload: &'a [u8],
        /// The Write ends with this segment.
        last: bool,
    },
    /// A Send of one segment that invalidates no `STag`. If the caller has a buffer for it, it
    /// copies the payload and completes the receive: see [`Receiver::placed_send`].
    Send {
        /// An event is requested.
        solicited: bool,
        /// The whole message.
        payload: &'a [u8],
    },
}

/// An ordinary segment of a Read Request or Read Response, on which [`Receiver::on_ulpdu`] would
/// return the same verdict if [`Resources`](crate::rdmap::Resources) admits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastReadSegment<'a> {
    /// A Read Request of at least one byte. After its access is admitted, the caller answers it:
    /// see [`Receiver::queued_read`].
    Request(InboundRead),
    /// A segment, with payload, of the expected Read Response. After its access is admitted, the
    /// caller may copy it: see [`Receiver::placed_response`].
    Response {
        /// Region.
        stag: Stag,
        /// Tagged Offset of the first byte.
        to: u64,
        /// Bytes to place.
        payload: &'a [u8],
        /// The response ends with this segment.
        last: bool,
    },
}

/// Probable contents of the FPDU at the head of a stream, by bytes that no CRC has verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prediction {
    /// A segment of an RDMA Write to this region.
    Write(Stag),
    /// A Send of one segment.
    WholeSend,
    /// Any other segment.
    Other,
}

/// Predicts the FPDU at the head of `stream`, which has no markers.
#[inline]
pub fn predict_unverified(stream: &[u8]) -> Prediction {
    let [_, _, control, rsvd_ulp, ..] = *stream else {
        return Prediction::Other;
    };
    let control = Control(control);
    let opcode = rsvd_ulp & 0x0f;
    let ulpdu = stream.get(LENGTH_BYTES..).unwrap_or_default();
    if control.is_tagged() {
        let header = TaggedHeader::ref_from_prefix(ulpdu);
        let header = header.ok().filter(|_| opcode == Opcode::Write as u8);
        return header.map_or(Prediction::Other, |(header, _)| {
            Prediction::Write(Stag(header.stag.get()))
        });
    }
    let sends = opcode == Opcode::Send as u8 || opcode == Opcode::SendSolicited as u8;
    let header = UntaggedHeader::ref_from_prefix(ulpdu);
    if sends && control.is_last() && header.is_ok_and(|(header, _)| header.mo.get() == 0) {
        return Prediction::WholeSend;
    }
    Prediction::Other
}

impl Receiver {
    /// The ordinary segment in a ULPDU that MPA has verified, or `None` for others. Changes
    /// nothing: [`on_ulpdu`](Self::on_ulpdu) can still judge the segment.
    #[inline]
    pub fn predict<'a>(&self, ulpdu: &'a [u8]) -> Option<FastSegment<'a>> {
        if self.ended || self.await_rtr || ulpdu.len() > MAX_ULPDU {
            return None;
        }
        let [control, rsvd_ulp, ..] = *ulpdu else {
            return None;
        };
        let opcode = rsvd_ulp ^ Opcode::Write.control(self.version);
        if control | Control::LAST == Control::new(true, true, self.version).0 {
            return (opcode == 0).then(|| write(ulpdu))?;
        }
        let is_whole = control == Control::new(false, true, self.version).0;
        let solicited = opcode == Opcode::SendSolicited as u8;
        let is_send = is_whole && (solicited || opcode == Opcode::Send as u8);
        (is_send && self.sends.is_next(ulpdu)).then(|| send(ulpdu, solicited))?
    }

    /// The ordinary segment of a Read in a ULPDU that MPA has verified, or `None` for others.
    /// Changes nothing.
    pub fn predict_read<'a>(&self, ulpdu: &'a [u8]) -> Option<FastReadSegment<'a>> {
        if self.ended || self.await_rtr || ulpdu.len() > MAX_ULPDU {
            return None;
        }
        let [control, rsvd_ulp, ..] = *ulpdu else {
            return None;
        };
        let is = |opcode: Opcode| rsvd_ulp == opcode.control(self.version);
        if control | Control::LAST == Control::new(true, true, self.version).0 {
            return is(Opcode::ReadResponse).then(|| self.response(ulpdu))?;
        }
        let is_whole = control == Control::new(false, true, self.version).0;
        let is_request = is_whole && is(Opcode::ReadRequest);
        let read = is_request.then(|| self.inbound_requests.predict(ulpdu))?;
        read.map(FastReadSegment::Request)
    }

    fn response<'a>(&self, ulpdu: &'a [u8]) -> Option<FastReadSegment<'a>> {
        let (header, payload) = TaggedHeader::ref_from_prefix(ulpdu).ok()?;
        let last = Control(header.control).is_last();
        let is_due = bytes(payload) > 0 && self.outstanding.is_next(header, payload, last);
        is_due.then_some(FastReadSegment::Response {
            stag: Stag(header.stag.get()),
            to: header.to.get(),
            payload,
            last,
        })
    }

    /// Records that the Read Request from [`predict_read`](Self::predict_read) will be answered.
    pub fn queued_read(&mut self) {
        self.inbound_requests.take_one();
    }

    /// Records that the segment of `len` bytes of a Read Response from
    /// [`predict_read`](Self::predict_read) was placed.
    pub fn placed_response(&mut self, len: usize, last: bool) {
        self.outstanding.pass(len, last);
    }

    /// Records that the Send from [`predict`](Self::predict) was placed into the next receive
    /// buffer.
    #[inline]
    pub fn placed_send(&mut self) {
        self.sends.pass_one();
    }
}

#[inline]
fn write(ulpdu: &[u8]) -> Option<FastSegment<'_>> {
    let (header, payload) = TaggedHeader::ref_from_prefix(ulpdu).ok()?;
    let stag = Stag(header.stag.get());
    let to = header.to.get();
    (bytes(payload) > 0).then_some(FastSegment::Write {
        stag,
        to,
        payload,
        last: Control(header.control).is_last(),
    })
}

#[inline]
fn send(ulpdu: &[u8], solicited: bool) -> Option<FastSegment<'_>> {
    let payload = ulpdu.get(UNTAGGED_HEADER_BYTES..)?;
    Some(FastSegment::Send { solicited, payload })
}

/// True if a header on QN 0 begins a message, and has this message number.
#[inline]
pub(super) fn begins_send(ulpdu: &[u8], msn: u32) -> bool {
    let header = UntaggedHeader::ref_from_prefix(ulpdu);
    header.is_ok_and(|(header, _)| {
        header.qn.get() == Queue::Send.qn() && header.msn.get() == msn && header.mo.get() == 0
    })
}
