//! Short messages: Sends and RDMA Writes of one FPDU, written into a TCP segment straight from the send queue.
//!
//! Most work requests of a stream of small messages are such. Everything else is left to `begin.rs`, and so is what would fail.

use xwarp_iwarp::Stag;
use xwarp_iwarp::mpa::Framer;
use xwarp_iwarp::rdmap::SendKind;
use xwarp_tcp::ConnMut;

use super::device::LentDevice;
use super::fault::SendFault;
use super::full_operation::FullOperation;
use super::stream::TxStream;
use super::tx_segment::TxSegment;
use super::work_queues::Done;
use crate::model::{Access, CompletionStatus, Operation, Payload, SendRequest};
use crate::stags::{Bytes, Views};

/// What ends a run of short messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunEnd {
    /// The next work request, if there is one, is no short message.
    Other,
    /// The segment has no room for the next message.
    NoRoom,
    /// The next message's payload cannot be read any more.
    Gone,
}

/// Where a payload is.
enum Source<'a> {
    Region(Bytes<'a>),
    Inline(&'a [u8]),
}

#[inline(never)]
fn copy_inline(bytes: &[u8], into: &mut [u8]) -> bool {
    into.copy_from_slice(bytes);
    true
}

impl Source<'_> {
    /// Copies it; false if the memory has gone.
    #[inline]
    fn read(&self, into: &mut [u8]) -> bool {
        match self {
            Self::Region(bytes) => bytes.read(into).is_ok(),
            Self::Inline(bytes) => copy_inline(bytes, into),
        }
    }
}

/// Writes a header; what is left for the payload.
#[inline]
pub(super) fn put_header<const N: usize>(
    ulpdu: &mut [u8],
    header: impl FnOnce() -> [u8; N],
) -> Option<&mut [u8]> {
    let (place, payload) = ulpdu.split_first_chunk_mut()?;
    *place = header();
    Some(payload)
}

/// A payload that lies in one piece and may be read, and its bytes.
#[inline]
fn source<'a, 'm: 'a>(payload: &'a Payload, memory: &mut Views<'m>) -> Option<(Source<'a>, u32)> {
    match payload {
        Payload::Gather(sgl) => match &**sgl {
            [sge] if sge.len > 0 => {
                let bytes = memory.bytes(sge.stag, sge.to, u64::from(sge.len))?;
                Some((Source::Region(bytes), sge.len))
            }
            [] => Some((Source::Inline(&[]), 0)),
            _ => None,
        },
        Payload::Inline(data) => {
            let bytes = data.as_slice();
            Some((Source::Inline(bytes), u32::try_from(bytes.len()).ok()?))
        }
    }
}

/// A segment that a run of FPDUs is written into.
pub(super) struct Filling<'a, 's> {
    segment: &'a mut TxSegment,
    /// Until it was asked for room.
    tcp: Option<&'a mut ConnMut<'s>>,
    /// What is left of the room.
    rest: &'a mut [u8],
    pub(super) end: RunEnd,
}

impl<'a, 's> Filling<'a, 's> {
    /// Behind what the segment has.
    pub(super) fn new(segment: &'a mut TxSegment, tcp: &'a mut ConnMut<'s>) -> Self {
        Self {
            segment,
            tcp: Some(tcp),
            rest: &mut [],
            end: RunEnd::Other,
        }
    }

    /// Largest ULPDU that the segment could hold.
    #[inline]
    pub(super) fn mulpdu(&self) -> usize {
        self.segment.mulpdu()
    }

    /// Room for the next FPDU, of `len` bytes; `None` ends the run. `more`: others are behind it.
    #[inline]
    pub(super) fn room(&mut self, len: usize, more: bool) -> Option<&'a mut [u8]> {
        if self.tcp.is_some() {
            self.open(len, more);
        }
        let Some((fpdu, rest)) = std::mem::take(&mut self.rest).split_at_mut_checked(len) else {
            self.end = RunEnd::NoRoom;
            return None;
        };
        self.rest = rest;
        Some(fpdu)
    }

    #[inline(never)]
    fn open(&mut self, len: usize, more: bool) {
        let tcp = self.tcp.take();
        let room = tcp.and_then(|tcp| self.segment.open(tcp, len, more));
        self.rest = room.unwrap_or_default();
    }

    /// That FPDU was sealed.
    #[inline]
    pub(super) fn add(&mut self, len: usize) {
        self.segment.add(len);
    }
}

/// Writes short messages into a segment.
struct Run<'a, 's> {
    tx: &'a mut TxStream,
    filling: Filling<'a, 's>,
    memory: Views<'a>,
}

impl Run<'_, '_> {
    /// Writes the message of a work request, if it is one that has nothing to wait for and fails in nothing but, perhaps, the copying.
    /// `None`, with nothing done, if it ends the run. `more`: other requests are behind it.
    #[inline]
    fn write(&mut self, request: &SendRequest, more: bool) -> Option<Done> {
        if request.read_fence {
            return None;
        }
        let byte_len = match &request.operation {
            Operation::Send {
                payload,
                solicited,
                invalidate,
            } => {
                let (solicited, invalidate) = (*solicited, *invalidate);
                let kind = SendKind {
                    solicited,
                    invalidate,
                };
                let header = |tx: &mut TxStream| tx.whole_send(kind);
                self.write_fpdu(payload, more, header)?
            }
            Operation::Write { payload, remote } if remote.stag != Stag(0) => {
                let header = |tx: &mut TxStream| tx.whole_write(*remote);
                self.write_fpdu(payload, more, header)?
            }
            _ => return None,
        };
        let opcode = request.operation.opcode();
        Some(Done { opcode, byte_len })
    }

    /// Writes header and payload of a message; bytes of the payload. Inlined, it would share its registers with the rings that it writes from
    /// and to.
    #[inline(never)]
    fn write_fpdu<const N: usize>(
        &mut self,
        payload: &Payload,
        more: bool,
        header: impl FnOnce(&mut TxStream) -> [u8; N],
    ) -> Option<u32> {
        let (source, byte_len) = source(payload, &mut self.memory)?;
        let ulpdu_len = usize::try_from(byte_len).ok()?.checked_add(N)?;
        if ulpdu_len > self.filling.mulpdu() {
            return None;
        }
        let len = self.tx.fpdu_len(ulpdu_len);
        let fpdu = self.filling.room(len, more)?;
        let ulpdu = &mut fpdu[Framer::ulpdu_at(ulpdu_len)];
        let payload = put_header(ulpdu, || header(self.tx))?;
        if !source.read(payload) {
            self.filling.end = RunEnd::Gone;
            return None;
        }
        self.tx.seal(fpdu, ulpdu_len);
        self.filling.add(len);
        Some(byte_len)
    }
}

impl FullOperation<'_> {
    /// Writes short messages into a segment, from the oldest work request on, at most so many; how many, and what has ended the run.
    #[inline(never)]
    pub(super) fn write_short(
        &mut self,
        most: usize,
        segment: &mut TxSegment,
        device: &mut LentDevice<'_>,
    ) -> Result<(usize, RunEnd), SendFault> {
        let mut run = Run {
            tx: self.stream.tx_mut(),
            filling: Filling::new(segment, &mut device.tcp),
            memory: Views::new(device.tables.stags, self.user, Access::LOCAL_READ),
        };
        let write = |request: &SendRequest, more| run.write(request, more);
        let sent = self.work.send_posted(most, device.tables.cqs, write);
        let end = run.filling.end;
        let sent = sent?;
        if sent > 0 {
            self.stream.tx_mut().handle_requests_sent();
        }
        if end == RunEnd::Gone {
            self.work.begin();
            return Err(SendFault::Request(CompletionStatus::BaseBounds));
        }
        Ok((sent, end))
    }
}
