//! Room that was given out to be written.

use xwarp_driver::TxFrame;

use crate::conn::Conn;
use crate::lower::Lower;
use crate::slots::Handle;
use crate::time::Instant;

/// Room for one connection's next piece; there is at most one grant at a time.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) conn: Handle,
    room: Room,
}

#[derive(Debug)]
enum Room {
    /// In the frame that will carry the piece.
    Segment { frame: TxFrame, begin: usize },
    /// For a piece that is more than a segment: it is copied into these frames, `part` bytes each.
    Pieces {
        part: usize,
        frames: Vec<TxFrame>,
        bytes: Vec<u8>,
    },
}

impl Grant {
    /// Room for `len` bytes; `None` if there are too few TX frames.
    pub(crate) fn new(handle: Handle, conn: &Conn, len: usize, lower: &mut Lower) -> Option<Self> {
        let taken = conn.frames_taken();
        let mut frame = lower.data_frame(taken)?;
        if let Some(room) = conn.room_in(&mut frame, len) {
            let room_len = room.len();
            let begin = frame.len() - room_len;
            let room = Room::Segment { frame, begin };
            return Some(Self { conn: handle, room });
        }
        let part = conn.part_len(len);
        let mut frames = vec![frame];
        while frames.len() < len.div_ceil(part) {
            let Some(frame) = lower.data_frame(taken + frames.len()) else {
                for frame in frames {
                    lower.io.discard(frame);
                }
                return None;
            };
            frames.push(frame);
        }
        let bytes = vec![0; len];
        let room = Room::Pieces {
            part,
            frames,
            bytes,
        };
        Some(Self { conn: handle, room })
    }

    /// Where to write.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        match &mut self.room {
            Room::Segment { frame, begin } => frame.get_mut(*begin..).unwrap_or_default(),
            Room::Pieces { bytes, .. } => bytes,
        }
    }

    /// Gives the frames back.
    pub(crate) fn discard(self, lower: &mut Lower) {
        match self.room {
            Room::Segment { frame, .. } => lower.io.discard(frame),
            Room::Pieces { frames, .. } => {
                for frame in frames {
                    lower.io.discard(frame);
                }
            }
        }
    }

    /// Has `conn` send the first `n` bytes.
    pub(crate) fn commit(mut self, n: usize, conn: &mut Conn, lower: &mut Lower, now: Instant) {
        let n = n.min(self.bytes().len());
        match self.room {
            Room::Segment { frame, .. } => conn.commit(frame, n, lower, now),
            Room::Pieces {
                part,
                frames,
                bytes,
            } => {
                let whole = bytes.get(..n).unwrap_or_default();
                let mut parts = whole.chunks(part);
                for frame in frames {
                    let part = parts.next().unwrap_or_default();
                    commit_part(frame, part, conn, lower, now);
                }
            }
        }
    }
}

fn commit_part(mut frame: TxFrame, part: &[u8], conn: &mut Conn, lower: &mut Lower, now: Instant) {
    match conn.room_in(&mut frame, part.len()) {
        Some(room) if !part.is_empty() => room.copy_from_slice(part),
        _ => return lower.io.discard(frame),
    }
    if conn.has_window(part.len()) {
        conn.commit(frame, part.len(), lower, now);
    } else {
        conn.enqueue(frame, part.len(), now);
    }
}
