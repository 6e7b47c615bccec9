//! Short messages: Sends and RDMA Writes of one FPDU, written into a TCP segment directly from the
//! send queue.
//!
//! In a stream of small messages, most work requests are short messages. `begin.rs` handles all
//! others, and all that would fail.

use xwarp_driver::PartialSum;
use xwarp_iwarp::Stag;
use xwarp_iwarp::mpa::Framer;
use xwarp_iwarp::rdmap::SendKind;
use xwarp_tcp::ConnMut;

use super::tx_segment::TxSegment;
use crate::model::{Access, CompletionStatus, Operation, Payload, SendRequest};
use crate::qp::device::LentDevice;
use crate::qp::fault::SendFault;
use crate::qp::full_operation::FullOperation;
use crate::qp::payload_pass::{OnePass, PayloadPass, ThreePasses};
use crate::qp::stream::TxStream;
use crate::qp::work_queues::Done;
use crate::stags::{Bytes, Views};

/// Why a run of short messages ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunEnd {
    /// The next work request is no short message, or there is none.
    Other,
    /// The segment has no room for the next message.
    NoRoom,
    /// The memory of the next message's payload is no longer valid.
    Gone,
}

/// The payload's memory is no longer valid.
pub(super) struct Gone;

/// Source of a payload.
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
    /// Copies the payload; false if its memory is no longer valid.
    #[inline]
    fn read(&self, into: &mut [u8], pass: &mut impl PayloadPass) -> bool {
        match self {
            Self::Region(bytes) => pass.read(*bytes, into).is_ok(),
            Self::Inline(bytes) => {
                let copied = copy_inline(bytes, into);
                pass.add(bytes);
                copied
            }
        }
    }
}

/// Writes a header. Returns the rest of the buffer, for the payload.
#[inline]
pub(super) fn put_header<'a, const N: usize>(
    ulpdu: &'a mut [u8],
    header: impl FnOnce() -> [u8; N],
    pass: &mut impl PayloadPass,
) -> Option<&'a mut [u8]> {
    let (place, payload) = ulpdu.split_first_chunk_mut()?;
    *place = header();
    pass.add(place);
    Some(payload)
}

/// Writes an FPDU of a whole message. Returns its checksum, if it was computed.
#[inline]
fn write_by<const N: usize>(
    mut pass: impl PayloadPass,
    fpdu: &mut [u8],
    ulpdu_len: usize,
    header: [u8; N],
    source: &Source<'_>,
    tx: &mut TxStream,
) -> Result<Option<PartialSum>, Gone> {
    let ulpdu = &mut fpdu[Framer::ulpdu_at(ulpdu_len)];
    let payload = put_header(ulpdu, || header, &mut pass).ok_or(Gone)?;
    if !source.read(payload, &mut pass) {
        return Err(Gone);
    }
    Ok(tx.seal_by(pass, fpdu, ulpdu_len))
}

/// Writes a long FPDU in one pass. A separate function, so that shorter messages can use all
/// registers.
#[inline(never)]
fn write_in_one_pass<const N: usize>(
    fpdu: &mut [u8],
    ulpdu_len: usize,
    header: [u8; N],
    source: &Source<'_>,
    tx: &mut TxStream,
) -> Result<Option<PartialSum>, Gone> {
    let pass = OnePass::begin(fpdu, ulpdu_len);
    write_by(pass, fpdu, ulpdu_len, header, source, tx)
}

/// A payload in one piece that may be read, and its length in bytes.
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
    /// `None` once TCP was asked for room.
    tcp: Option<&'a mut ConnMut<'s>>,
    /// Free part of the room.
    rest: &'a mut [u8],
    pub(super) end: RunEnd,
}

impl<'a, 's> Filling<'a, 's> {
    /// Appends to the FPDUs of the segment.
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

    /// Room for the next FPDU, of `len` bytes; `None` ends the run. `more`: whether further
    /// messages follow.
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

    /// Records the FPDU that was sealed, with its checksum if it was computed.
    #[inline]
    pub(super) fn add(&mut self, len: usize, sum: Option<PartialSum>) {
        self.segment.add(len, sum);
    }
}

/// Writes short messages into a segment.
struct Run<'a, 's> {
    tx: &'a mut TxStream,
    filling: Filling<'a, 's>,
    memory: Views<'a>,
}

impl Run<'_, '_> {
    /// Writes the message of a work request if it is a short message that has nothing to wait for
    /// and can fail only in copying. `None`, without an effect, ends the run. `more`: whether other
    /// requests follow.
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
                    immediate: None,
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

    /// Writes header and payload of a message. Returns the payload's length in bytes. Inlined, it
    /// would share its registers with the rings that it reads and writes.
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
        let header = header(self.tx);
        let written = if self.tx.one_pass_pays(ulpdu_len) {
            write_in_one_pass(fpdu, ulpdu_len, header, &source, self.tx)
        } else {
            write_by(ThreePasses, fpdu, ulpdu_len, header, &source, self.tx)
        };
        let Ok(sum) = written else {
            self.filling.end = RunEnd::Gone;
            return None;
        };
        self.filling.add(len, sum);
        Some(byte_len)
    }
}

impl FullOperation<'_> {
    /// Writes up to `most` short messages into a segment, from the oldest work request on. Returns
    /// their number, and why the run has ended.
    #[inline(never)]
    pub(super) fn write_short(
        &mut self,
        most: usize,
        segment: &mut TxSegment,
        device: &mut LentDevice<'_>,
    ) -> Result<(usize, RunEnd), SendFault> {
        let stags = device.tables.stags.read();
        let mut run = Run {
            tx: self.stream.tx_mut(),
            filling: Filling::new(segment, &mut device.tcp),
            memory: Views::new(&stags, self.user, Access::LOCAL_READ),
        };
        let mut write = |request: &SendRequest, more| run.write(request, more);
        let sent = if self.work.confirms() {
            let begin = |request: &SendRequest, more| write(request, more).is_some();
            Ok(self.work.begin_posted(most, begin))
        } else {
            self.work.send_posted(most, device.tables.cqs, write)
        };
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
