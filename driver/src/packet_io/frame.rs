//! Frames: owned pieces of an arena that hold one Ethernet frame each.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use xwarp_bpf::RxMetadata;

use super::tx_metadata::{ChecksumRequest, TX_METADATA};
use crate::memory::Arena;

/// Where the frames of an arena lie: `count` of `capacity` bytes, one every `stride` bytes, the
/// first at `first`.
pub(crate) struct Layout {
    pub(crate) first: usize,
    pub(crate) count: usize,
    pub(crate) capacity: usize,
    pub(crate) stride: usize,
}

impl Arena {
    /// Cuts the frames of each layout that lie in the arena, in their order, each with `headroom`
    /// bytes in front of it. What begins before the end of a former layout is left out. Afterwards
    /// the arena is shared, so that no frame is ever cut twice.
    pub(crate) fn into_frames(
        self,
        layouts: &[Layout],
        headroom: usize,
    ) -> (Arc<Self>, Vec<Frame>) {
        let (mut starts, mut end) = (Vec::new(), 0);
        for layout in layouts.iter().filter(|layout| layout.stride > headroom) {
            let capacity = layout.capacity.min(layout.stride - headroom);
            let offsets = (layout.first..).step_by(layout.stride).take(layout.count);
            let least = end + headroom;
            for offset in offsets.skip_while(|offset| *offset < least) {
                let Some(start) = self.checked_ptr(offset, capacity) else {
                    break;
                };
                starts.push((start, u32::try_from(capacity).unwrap_or(u32::MAX)));
                end = offset + capacity;
            }
        }
        let arena = self.divided(starts.len(), headroom);
        let cut = |(place, (start, capacity))| Frame {
            start,
            capacity,
            place,
            arena: Arc::clone(&arena),
        };
        let frames = (0..).zip(starts).map(cut).collect();
        (arena, frames)
    }
}

/// A piece of the arena with one owner, which may read and write it.
pub(crate) struct Frame {
    start: NonNull<u8>,
    capacity: u32,
    /// Which of its arena's frames it is, from 0 on.
    place: u32,
    arena: Arc<Arena>,
}

// SAFETY: a frame is the only way to its bytes (`Arena::into_frames` cuts each place once), so it
// can move between threads.
unsafe impl Send for Frame {}
// SAFETY: a shared frame can only be read.
unsafe impl Sync for Frame {}

impl Frame {
    /// Offset of the first byte in the arena.
    pub(crate) fn offset(&self) -> usize {
        self.start.addr().get() - self.arena.base().addr().get()
    }

    /// Which of its arena's frames it is, from 0 on.
    pub(crate) fn place(&self) -> usize {
        self.place as usize
    }

    /// True for a frame of this arena.
    pub(crate) fn is_of(&self, arena: &Arc<Arena>) -> bool {
        Arc::ptr_eq(&self.arena, arena)
    }

    fn capacity(&self) -> usize {
        self.capacity as usize
    }

    fn bytes(&self, len: usize) -> &[u8] {
        let len = len.min(self.capacity());
        // SAFETY: `start..start+capacity` lies in the arena, which `self` keeps mapped, and is
        // initialised. It is this frame's alone: a frame that is lent to the kernel is parked,
        // where its `bytes` cannot be had.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), len) }
    }

    /// Where the `len` bytes in front of the first one begin; `None` if there are fewer that are
    /// this frame's.
    fn front(&self, len: usize) -> Option<NonNull<u8>> {
        if len > self.arena.headroom() {
            return None;
        }
        // SAFETY: `Arena::into_frames` has cut the frame with `headroom` bytes in front of it,
        // which lie in the arena.
        Some(unsafe { self.start.sub(len) })
    }

    /// The `len` bytes in front of the first one; `None` if there are fewer that are this frame's.
    fn in_front(&self, len: usize) -> Option<&[u8]> {
        let start = self.front(len)?;
        // SAFETY: these bytes lie in the arena behind the end of the frame before. They are
        // initialised, and as much this frame's alone as those of `bytes`.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), len) })
    }

    /// The `len` bytes in front of the first one, to write them.
    fn in_front_mut(&mut self, len: usize) -> Option<&mut [u8]> {
        let start = self.front(len)?;
        // SAFETY: as for `in_front`, and `&mut self` makes the access exclusive.
        Some(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) })
    }

    fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        let len = len.min(self.capacity());
        // SAFETY: as for `bytes`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), len) }
    }
}

/// A received Ethernet frame.
#[must_use = "a frame that is not recycled is lost to its queue"]
pub struct RxFrame {
    frame: Frame,
    len: usize,
}

impl RxFrame {
    pub(crate) fn new(frame: Frame, len: usize) -> Self {
        Self { frame, len }
    }

    pub(crate) fn frame(&self) -> &Frame {
        &self.frame
    }

    pub(crate) fn into_frame(self) -> Frame {
        self.frame
    }

    /// Receive timestamp of the frame, by the NIC's clock; `None` if timestamps are not enabled, or
    /// the driver does not report them.
    pub fn arrival(&self) -> Option<Duration> {
        self.metadata()?.time
    }

    /// The metadata in front of the frame; `None` if there are none.
    pub(crate) fn metadata(&self) -> Option<RxMetadata> {
        let written = self.frame.in_front(RxMetadata::BYTES)?;
        RxMetadata::parse(written.try_into().ok()?)
    }

    /// Writes metadata in front of the frame, as the program does.
    pub(crate) fn describe(&mut self, metadata: &RxMetadata) {
        if let Some(front) = self.frame.in_front_mut(RxMetadata::BYTES) {
            front.copy_from_slice(&metadata.written());
        }
    }

    /// Clears what is written in front of the frame, so that a later frame's lack of it is noticed.
    pub(crate) fn clear_metadata(&mut self) {
        if let Some(front) = self.frame.in_front_mut(RxMetadata::BYTES) {
            front.fill(0);
        }
    }
}

impl Deref for RxFrame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.frame.bytes(self.len)
    }
}

impl fmt::Debug for RxFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "RxFrame({} bytes at {:#x})",
            self.len,
            self.frame.offset()
        )
    }
}

/// Where a queue keeps the frames that are out of their owner's reach, one place per frame. Their
/// keeper is the kernel, or a queue that has none. Frames of another arena are refused: their
/// numbers are those of frames of ours, which others may be using.
pub(crate) struct Parking {
    arena: Arc<Arena>,
    slots: Vec<Parked>,
}

/// Content of one place.
#[derive(Default)]
enum Parked {
    #[default]
    Nothing,
    /// The keeper has it; it is free when it comes back.
    Lent(Frame),
    /// The keeper has it, and its sender wants it again.
    Kept(Frame),
    /// The keeper has returned it, and its sender has not asked for it yet.
    Returned(Frame),
}

impl Parking {
    /// For all frames of an arena.
    pub(crate) fn new(arena: Arc<Arena>) -> Self {
        let places = 0..arena.frames();
        Self {
            arena,
            slots: places.map(|_| Parked::default()).collect(),
        }
    }

    /// True for a frame of the same arena.
    pub(crate) fn owns(&self, frame: &Frame) -> bool {
        frame.is_of(&self.arena)
    }

    /// Puts a frame out of its owner's reach, `kept` for its sender. Returns its place.
    pub(crate) fn park(&mut self, frame: Frame, kept: bool) -> Result<usize, Foreign> {
        if !self.owns(&frame) {
            return Err(Foreign);
        }
        let place = frame.place as usize;
        let slot = self.slots.get_mut(place).ok_or(Foreign)?;
        *slot = if kept {
            Parked::Kept(frame)
        } else {
            Parked::Lent(frame)
        };
        Ok(place)
    }

    /// The token for a frame of `len` bytes that was parked for its sender. That of a foreign one,
    /// which was not parked, is never redeemed.
    pub(crate) fn token(&self, parked: Result<usize, Foreign>, len: usize) -> SentFrame {
        SentFrame {
            arena: self.arena.number(),
            place: parked.unwrap_or(NOWHERE),
            len,
        }
    }

    /// The keeper returns a frame: ours at once unless its sender keeps it. `Err` if the keeper did
    /// not have it.
    pub(crate) fn returned(&mut self, place: usize) -> Result<Option<Frame>, NotLent> {
        let slot = self.slots.get_mut(place).ok_or(NotLent)?;
        match std::mem::take(slot) {
            Parked::Lent(frame) => Ok(Some(frame)),
            Parked::Kept(frame) => {
                *slot = Parked::Returned(frame);
                Ok(None)
            }
            other => {
                *slot = other;
                Err(NotLent)
            }
        }
    }

    /// A kept frame, if the keeper has returned it.
    pub(crate) fn reclaim(&mut self, sent: SentFrame) -> Result<TxFrame, SentFrame> {
        let ours = sent.arena == self.arena.number();
        let Some(slot) = self.slots.get_mut(sent.place).filter(|_| ours) else {
            return Err(sent);
        };
        match std::mem::take(slot) {
            Parked::Returned(frame) => {
                let mut frame = TxFrame::new(frame);
                frame.set_len(sent.len);
                Ok(frame)
            }
            other => {
                *slot = other;
                Err(sent)
            }
        }
    }

    /// Releases a kept frame. Returns the frame if the keeper has returned it.
    pub(crate) fn release(&mut self, sent: &SentFrame) -> Result<Option<Frame>, Foreign> {
        if sent.arena != self.arena.number() {
            return Err(Foreign);
        }
        let Some(slot) = self.slots.get_mut(sent.place) else {
            return Ok(None);
        };
        match std::mem::take(slot) {
            Parked::Returned(frame) => return Ok(Some(frame)),
            Parked::Kept(frame) => *slot = Parked::Lent(frame),
            other => *slot = other,
        }
        Ok(None)
    }
}

/// The frame, or the token, is of another queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Foreign;

/// No place is this one.
const NOWHERE: usize = usize::MAX;

/// The keeper returned a frame that it did not have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotLent;

/// A frame to be filled and sent. Its length is the last value of [`set_len`](Self::set_len),
/// initially 0.
#[must_use = "a frame that is neither sent nor discarded is lost to its queue"]
pub struct TxFrame {
    frame: Frame,
    len: usize,
    checksum: Option<ChecksumRequest>,
}

impl TxFrame {
    pub(crate) fn new(frame: Frame) -> Self {
        Self {
            frame,
            len: 0,
            checksum: None,
        }
    }

    pub(crate) fn into_frame(self) -> Frame {
        self.frame
    }

    /// Capacity in bytes.
    pub fn capacity(&self) -> usize {
        self.frame.capacity()
    }

    /// Sets the frame's length, at most its capacity. Bytes that were not written hold the contents
    /// of the frame's former use.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(self.frame.capacity());
    }

    /// Leaves the checksum of all bytes from `start` on to the NIC, for this transmission of the
    /// frame. The checksum field is `offset` bytes further, and holds the sum of the pseudo-header.
    /// Only if the queue [offers it](crate::PacketIo::offers_checksums).
    #[inline]
    pub fn leave_checksum(&mut self, start: usize, offset: usize) {
        self.checksum = ChecksumRequest::new(start, offset);
    }

    /// The checksum that is left to the NIC.
    #[inline]
    pub(crate) fn left_checksum(&self) -> Option<ChecksumRequest> {
        self.checksum
    }

    /// Writes in front of the frame what is left to the NIC. False if nothing is, or there is no
    /// room in front.
    #[inline]
    pub(crate) fn describe(&mut self) -> bool {
        match self.checksum {
            Some(request) => self.write_in_front(request),
            None => false,
        }
    }

    fn write_in_front(&mut self, request: ChecksumRequest) -> bool {
        let front = self.frame.in_front_mut(TX_METADATA);
        front
            .map(|front| front.copy_from_slice(&request.written()))
            .is_some()
    }
}

impl Deref for TxFrame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.frame.bytes(self.len)
    }
}

impl DerefMut for TxFrame {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.frame.bytes_mut(self.len)
    }
}

/// A frame that was sent and still belongs to its sender: a token without access, as the kernel may
/// be reading the frame.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a sent frame that is neither reclaimed nor released is lost to its queue"]
pub struct SentFrame {
    /// The arena that the frame lies in.
    arena: u64,
    /// Where the queue keeps the frame.
    place: usize,
    len: usize,
}

impl SentFrame {
    /// Number of sent bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True for a frame without bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for TxFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "TxFrame({} bytes at {:#x})",
            self.len,
            self.frame.offset()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(first: usize, count: usize, capacity: usize, stride: usize) -> Layout {
        Layout {
            first,
            count,
            capacity,
            stride,
        }
    }

    #[test]
    fn no_byte_is_in_two_frames() {
        let layouts = [
            layout(2, 3, 10, 10),
            layout(20, 3, 8, 8),
            layout(50, 9, 99, 20),
            layout(0, 1, 1, 0),
        ];
        let (_, frames) = Arena::anonymous(100).unwrap().into_frames(&layouts, 0);
        let lies: Vec<_> = frames
            .iter()
            .map(|frame| (frame.place, frame.offset(), frame.capacity()))
            .collect();
        let first = [(0, 2, 10), (1, 12, 10), (2, 22, 10)];
        // The second layout begins before the first one ends, and the arena ends before the third
        // one does.
        let rest = [(3, 36, 8), (4, 50, 20), (5, 70, 20)];
        assert_eq!(lies, [first, rest].concat());
    }

    #[test]
    fn no_byte_in_front_of_a_frame_is_in_another_one() {
        let layouts = [layout(0, 4, 10, 16), layout(63, 4, 20, 16)];
        let (_, frames) = Arena::anonymous(120).unwrap().into_frames(&layouts, 6);
        let lies: Vec<_> = frames
            .iter()
            .map(|frame| (frame.offset() - 6, frame.offset() + frame.capacity()))
            .collect();
        // The first one would have nothing in front, and that of the second layout begins too
        // early. The last one ends outside.
        assert_eq!(lies, [(10, 26), (26, 42), (42, 58), (73, 89), (89, 105)]);
    }

    #[test]
    fn bytes_in_front_are_the_frames_and_no_more_of_them() {
        let (_, mut frames) = Arena::anonymous(64)
            .unwrap()
            .into_frames(&[layout(6, 2, 10, 16)], 6);
        for (mark, frame) in (1..).zip(&mut frames) {
            frame.in_front_mut(6).unwrap().fill(mark);
            frame.bytes_mut(10).fill(mark);
        }
        for (mark, frame) in (1..).zip(&mut frames) {
            assert_eq!(frame.in_front(6), Some(&[mark; 6][..]));
            assert_eq!(frame.bytes(10), [mark; 10]);
            assert_eq!(frame.in_front(7), None);
        }
    }

    #[test]
    fn left_checksum_is_written_in_front_if_there_is_room() {
        for room in [0, TX_METADATA - 1, TX_METADATA] {
            let lies = layout(room, 1, 60, room + 60);
            let (_, frames) = Arena::anonymous(100).unwrap().into_frames(&[lies], room);
            let mut frame = TxFrame::new(frames.into_iter().next().unwrap());
            assert!(!frame.describe(), "nothing is left");
            frame.leave_checksum(34, 16);
            assert_eq!(frame.describe(), room == TX_METADATA);
            let request = ChecksumRequest::new(34, 16).unwrap();
            let front = frame.frame.in_front(TX_METADATA);
            assert!(front.is_none_or(|front| front == request.written()));
        }
    }

    #[test]
    fn reclaimed_frame_leaves_no_checksum() {
        let (arena, frames) =
            (Arena::anonymous(64).unwrap()).into_frames(&[layout(0, 1, 60, 60)], 0);
        let mut frame = TxFrame::new(frames.into_iter().next().unwrap());
        frame.leave_checksum(34, 16);
        assert!(frame.left_checksum().is_some());
        let mut parking = Parking::new(arena);
        let parked = parking.park(frame.into_frame(), true);
        let sent = parking.token(parked, 60);
        assert_eq!(parking.returned(0).map(|frame| frame.is_none()), Ok(true));
        assert_eq!(parking.reclaim(sent).unwrap().left_checksum(), None);
    }

    #[test]
    fn metadata_is_there_until_it_is_cleared() {
        let bytes = RxMetadata::BYTES;
        let lies = layout(bytes, 1, 8, bytes + 8);
        let (_, frames) = Arena::anonymous(64).unwrap().into_frames(&[lies], bytes);
        let mut frames = frames.into_iter().map(|frame| RxFrame::new(frame, 8));
        let mut frame = frames.next().unwrap();
        assert_eq!((frame.metadata(), frame.arrival()), (None, None));
        let arrival = Duration::from_nanos(5_000_000_007);
        frame.describe(&RxMetadata::at(arrival));
        assert_eq!(frame.arrival(), Some(arrival));
        assert_eq!(frame.arrival(), Some(arrival), "a second call");
        assert_eq!(frame[..], [0; 8], "the frame is as it was");
        frame.clear_metadata();
        assert_eq!((frame.metadata(), frame.arrival()), (None, None));
    }

    #[test]
    fn frame_without_room_in_front_has_no_metadata() {
        let (_, frames) = Arena::anonymous(64)
            .unwrap()
            .into_frames(&[layout(0, 1, 8, 8)], 0);
        let mut frames = frames.into_iter().map(|frame| RxFrame::new(frame, 8));
        let mut frame = frames.next().unwrap();
        frame.describe(&RxMetadata::at(Duration::from_nanos(1)));
        frame.clear_metadata();
        assert_eq!(frame.arrival(), None);
    }
}
