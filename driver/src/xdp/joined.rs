//! Frames that arrive in several chunks, joined in memory of their own.
//!
//! The kernel leaves 256 of the 4096 bytes of a chunk to the program, so a frame is one chunk up to
//! an MTU of 3818. Above that it arrives in several, and the protocols want an FPDU in one piece:
//! the pieces are copied. A frame that arrives in one chunk stays there.

use std::io;
use std::sync::Arc;

use crate::memory::Arena;
use crate::packet_io::{Frame, IoCounters, Layout, RxFrame, TxFrame};

/// Joins the pieces of frames.
pub(super) struct Joiner {
    /// Memory for frames that are joined.
    free: Vec<Frame>,
    arena: Arc<Arena>,
    state: State,
    frames: usize,
}

/// Frames start on a cache line.
const LINE: usize = 64;

/// State of the frame whose pieces are arriving.
enum State {
    /// None is.
    Between,
    /// So much of it, one byte after the other.
    Joining(TxFrame),
    /// There is no room for it; the rest is not looked at.
    Dropping,
}

impl Joiner {
    /// Allocates memory for `frames` frames of `bytes`.
    pub(super) fn new(frames: usize, bytes: usize) -> io::Result<Self> {
        let stride = bytes.next_multiple_of(LINE);
        let arena = Arena::anonymous(frames * stride)?;
        let (arena, free) = arena.into_frames(
            &[Layout {
                first: 0,
                count: frames,
                capacity: bytes,
                stride,
            }],
            0,
        );
        Ok(Self {
            frames: free.len(),
            free,
            arena,
            state: State::Between,
        })
    }

    /// Joined frames that there can be at once.
    pub(super) fn frames(&self) -> usize {
        self.frames
    }

    /// True between two frames: what arrives alone then is a whole frame.
    pub(super) fn is_between(&self) -> bool {
        matches!(self.state, State::Between)
    }

    /// Takes in a piece; a frame if it was the last of one.
    pub(super) fn take(
        &mut self,
        piece: &[u8],
        more: bool,
        counters: &mut IoCounters,
    ) -> Option<RxFrame> {
        let state = std::mem::replace(&mut self.state, State::Between);
        let state = self.grown(state, piece, counters);
        if more {
            self.state = state;
            return None;
        }
        match state {
            State::Joining(frame) => {
                let len = frame.len();
                Some(RxFrame::new(frame.into_frame(), len))
            }
            State::Between | State::Dropping => None,
        }
    }

    fn grown(&mut self, state: State, piece: &[u8], counters: &mut IoCounters) -> State {
        let room = match state {
            State::Dropping => return State::Dropping,
            State::Joining(frame) => Some(frame),
            State::Between => self.free.pop().map(TxFrame::new),
        };
        let Some(mut frame) = room else {
            counters.drop_rx_no_frame += 1;
            return State::Dropping;
        };
        let joined = frame.len();
        if joined + piece.len() > frame.capacity() {
            counters.drop_rx_other += 1;
            self.free.push(frame.into_frame());
            return State::Dropping;
        }
        frame.set_len(joined + piece.len());
        frame[joined..].copy_from_slice(piece);
        State::Joining(frame)
    }

    /// True for a frame that was joined here.
    pub(super) fn owns(&self, frame: &Frame) -> bool {
        frame.is_of(&self.arena)
    }

    pub(super) fn give_back(&mut self, frame: Frame) {
        self.free.push(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joiner(frames: usize) -> (Joiner, IoCounters) {
        (Joiner::new(frames, 10).unwrap(), IoCounters::default())
    }

    #[test]
    fn pieces_are_joined_in_order() {
        let (mut joiner, mut counters) = joiner(1);
        for round in 0..3 {
            assert!(joiner.take(&[1, 2], true, &mut counters).is_none());
            assert!(joiner.take(&[3], true, &mut counters).is_none());
            assert!(!joiner.is_between());
            let frame = joiner.take(&[4, round], false, &mut counters).unwrap();
            assert_eq!(*frame, [1, 2, 3, 4, round]);
            assert!(joiner.is_between());
            joiner.give_back(frame.into_frame());
        }
        assert_eq!(counters, IoCounters::default());
    }

    #[test]
    fn frame_without_room_is_dropped_whole_and_the_next_one_is_not() {
        let (mut joiner, mut counters) = joiner(1);
        let first = joiner.take(&[1], false, &mut counters).unwrap();
        for more in [true, true, false] {
            assert!(joiner.take(&[2], more, &mut counters).is_none());
        }
        assert_eq!(counters.drop_rx_no_frame, 1);
        joiner.give_back(first.into_frame());
        assert!(joiner.take(&[3; 8], true, &mut counters).is_none());
        for more in [true, true, false] {
            assert!(joiner.take(&[4; 3], more, &mut counters).is_none());
        }
        assert_eq!(counters.drop_rx_other, 1);
        let frame = joiner.take(&[5; 10], false, &mut counters).unwrap();
        assert_eq!(*frame, [5; 10]);
    }
}
