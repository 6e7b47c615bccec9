//! Short messages: Sends and RDMA Writes of one FPDU, written into a TCP segment straight from the send queue.
//!
//! Most work requests of a stream of small messages are such. Everything else is left to `begin.rs`, and so is what would fail.

use xwarp_iwarp::Stag;
use xwarp_iwarp::ddp::{TAGGED_HEADER_BYTES, UNTAGGED_HEADER_BYTES};
use xwarp_iwarp::mpa::Framer;
use xwarp_iwarp::rdmap::SendKind;
use xwarp_tcp::ConnMut;

use super::device::LentDevice;
use super::fault::SendFault;
use super::full_operation::FullOperation;
use super::stream::TxStream;
use super::tx_segment::TxSegment;
use crate::model::{
    Access, CompletionStatus, Operation, Payload, QpIdentity, RemoteAddress, SendRequest,
};
use crate::stags::{Bytes, StagTable, View};

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

/// What goes in front of the payload.
#[derive(Clone, Copy)]
enum Head {
    Send(SendKind),
    Write(RemoteAddress),
}

impl Head {
    fn len(self) -> usize {
        match self {
            Self::Send(_) => UNTAGGED_HEADER_BYTES,
            Self::Write(_) => TAGGED_HEADER_BYTES,
        }
    }
}

/// Where a payload is.
enum Source<'a> {
    Region(Bytes<'a>),
    Inline(&'a [u8]),
}

/// A message whose memory was checked.
struct ShortMessage<'a> {
    head: Head,
    source: Source<'a>,
    /// Bytes of the payload.
    len: usize,
}

impl<'a> ShortMessage<'a> {
    /// The message of a work request, if it is one that has nothing to wait for and fails in nothing but, perhaps, the copying.
    #[inline]
    fn of(request: &'a SendRequest, memory: &'a mut Memory<'_>) -> Option<Self> {
        let (head, payload) = match &request.operation {
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
                (Head::Send(kind), payload)
            }
            Operation::Write { payload, remote } if remote.stag != Stag(0) => {
                (Head::Write(*remote), payload)
            }
            _ => return None,
        };
        if request.read_fence {
            return None;
        }
        let (source, len) = memory.source(payload)?;
        Some(Self { head, source, len })
    }

    /// Writes header and payload; false if the memory has gone.
    #[inline]
    fn write(&self, ulpdu: &mut [u8], tx: &mut TxStream) -> bool {
        let payload = match self.head {
            Head::Send(kind) => put_header(ulpdu, || tx.whole_send(kind)),
            Head::Write(remote) => put_header(ulpdu, || tx.whole_write(remote)),
        };
        match (&self.source, payload) {
            (Source::Region(bytes), Some(payload)) => bytes.read(payload).is_ok(),
            (Source::Inline(bytes), Some(payload)) => {
                payload.copy_from_slice(bytes);
                true
            }
            (_, None) => false,
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

/// Memory that payloads lie in, as one queue pair may read it.
struct Memory<'a> {
    stags: &'a StagTable,
    user: QpIdentity,
    /// What was read last, which is often read next.
    last: Option<(Stag, &'a View)>,
}

impl<'a> Memory<'a> {
    /// A payload that lies in one piece and may be read, and its bytes.
    #[inline]
    fn source<'b>(&'b mut self, payload: &'b Payload) -> Option<(Source<'b>, usize)> {
        match payload {
            Payload::Gather(sgl) => match &**sgl {
                [sge] if sge.len > 0 => {
                    let bytes = self.view(sge.stag)?.bytes(sge.to, u64::from(sge.len));
                    let len = usize::try_from(sge.len).ok()?;
                    Some((Source::Region(bytes.ok()?), len))
                }
                [] => Some((Source::Inline(&[]), 0)),
                _ => None,
            },
            Payload::Inline(data) => {
                let bytes = data.as_slice();
                Some((Source::Inline(bytes), bytes.len()))
            }
        }
    }

    #[inline]
    fn view(&mut self, stag: Stag) -> Option<&'a View> {
        if let Some((last, view)) = self.last
            && last == stag
        {
            return Some(view);
        }
        let view = self
            .stags
            .view_for(self.user, stag, Access::LOCAL_READ)
            .ok()?;
        self.last = Some((stag, view));
        Some(view)
    }
}

/// Room in a segment.
enum Room<'a, 's> {
    /// TCP was not asked for any.
    Unasked(&'a mut ConnMut<'s>),
    /// What is left of it.
    Left(&'a mut [u8]),
}

impl<'a> Room<'a, '_> {
    /// The bytes of it, where an FPDU of `len` bytes is next. TCP is asked once.
    #[inline]
    fn bytes(self, segment: &TxSegment, len: usize, more: bool) -> Option<&'a mut [u8]> {
        match self {
            Self::Left(rest) => Some(rest),
            Self::Unasked(tcp) => segment.open(tcp, len, more),
        }
    }
}

/// A segment that a run of FPDUs is written into.
pub(super) struct Filling<'a, 's> {
    segment: &'a mut TxSegment,
    room: Option<Room<'a, 's>>,
    pub(super) end: RunEnd,
}

impl<'a, 's> Filling<'a, 's> {
    /// Behind what the segment has.
    pub(super) fn new(segment: &'a mut TxSegment, tcp: &'a mut ConnMut<'s>) -> Self {
        Self {
            segment,
            room: Some(Room::Unasked(tcp)),
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
        let room = self.room.take();
        let room = room.and_then(|room| room.bytes(self.segment, len, more));
        let Some((fpdu, rest)) = room.and_then(|room| room.split_at_mut_checked(len)) else {
            self.end = RunEnd::NoRoom;
            return None;
        };
        self.room = Some(Room::Left(rest));
        Some(fpdu)
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
    memory: Memory<'a>,
}

impl Run<'_, '_> {
    /// Writes the message of a work request; bytes of its payload. `None`, with nothing done, if it ends the run. `more`: other requests are
    /// behind it.
    #[inline]
    fn write(&mut self, request: &SendRequest, more: bool) -> Option<u32> {
        let message = ShortMessage::of(request, &mut self.memory)?;
        let ulpdu_len = message.head.len() + message.len;
        if ulpdu_len > self.filling.mulpdu() {
            return None;
        }
        let byte_len = u32::try_from(message.len).ok()?;
        let len = self.tx.fpdu_len(ulpdu_len);
        let fpdu = self.filling.room(len, more)?;
        if !message.write(&mut fpdu[Framer::ulpdu_at(ulpdu_len)], self.tx) {
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
            memory: Memory {
                stags: device.tables.stags,
                user: self.user,
                last: None,
            },
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
