//! TX reservation: frames that were handed out for writing and not committed.

use xwarp_driver::{PartialSum, TxFrame};

use crate::conn::Conn;
use crate::device::Device;
use crate::handle_map::Handle;
use crate::time::Instant;

/// Room for one connection's next piece. There is at most one reservation at a time.
#[derive(Debug)]
pub(super) struct TxReservation {
    conn: Handle,
    room: Room,
}

#[derive(Debug)]
enum Room {
    /// In the frame that will carry the piece.
    Segment {
        frame: TxFrame,
        begin: usize,
        /// It is the whole segment, after a request for more than the first room.
        wide: bool,
    },
    /// For a piece longer than a segment: it is copied into these frames, `part` bytes each.
    Pieces {
        part: usize,
        frames: Vec<TxFrame>,
        bytes: Vec<u8>,
    },
}

impl Room {
    /// Room for `len` bytes in frames of `part` bytes, beginning with frame `first`, for a
    /// connection that holds `taken` frames.
    fn pieces(
        part: usize,
        first: TxFrame,
        len: usize,
        taken: usize,
        device: &mut Device,
    ) -> Option<Self> {
        let mut frames = vec![first];
        while frames.len() < len.div_ceil(part) {
            let Some(frame) = device.data_frame(taken + frames.len()) else {
                for frame in frames {
                    device.discard(frame);
                }
                return None;
            };
            frames.push(frame);
        }
        let bytes = vec![0; len];
        Some(Self::Pieces {
            part,
            frames,
            bytes,
        })
    }
}

impl TxReservation {
    /// Room for `len` bytes, or `None` if TX frames are too few.
    pub(super) fn new(
        handle: Handle,
        conn: &Conn,
        len: usize,
        device: &mut Device,
    ) -> Option<Self> {
        let taken = conn.frames_taken();
        let mut frame = device.data_frame(taken)?;
        if let Some(room) = conn.room_in(&mut frame, len) {
            let room_len = room.len();
            let begin = frame.len() - room_len;
            let room = Room::Segment {
                frame,
                begin,
                wide: false,
            };
            return Some(Self { conn: handle, room });
        }
        let room = Room::pieces(conn.part_len(len), frame, len, taken, device)?;
        Some(Self { conn: handle, room })
    }

    pub(super) fn is_for(&self, conn: Handle) -> bool {
        self.conn == conn
    }

    /// The room to write into.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        match &mut self.room {
            Room::Segment { frame, begin, .. } => frame.get_mut(*begin..).unwrap_or_default(),
            Room::Pieces { bytes, .. } => bytes,
        }
    }

    /// All the room of the segment that can leave now. Its first bytes are those handed out before.
    pub(super) fn widen(&mut self, conn: &Conn) -> &mut [u8] {
        if let Room::Segment { frame, begin, wide } = &mut self.room
            && !*wide
        {
            *wide = true;
            frame.set_len(frame.len().max(begin.saturating_add(conn.most_now())));
        }
        self.bytes()
    }

    /// Frees the frames.
    pub(super) fn discard(self, device: &mut Device) {
        match self.room {
            Room::Segment { frame, .. } => device.discard(frame),
            Room::Pieces { frames, .. } => {
                for frame in frames {
                    device.discard(frame);
                }
            }
        }
    }

    /// Has `conn` send the first `n` bytes, whose sum may be known.
    pub(super) fn commit(
        mut self,
        n: usize,
        sum: Option<PartialSum>,
        conn: &mut Conn,
        device: &mut Device,
        now: Instant,
    ) {
        let len = self.bytes().len();
        let (n, sum) = (n.min(len), sum.filter(|_| n <= len));
        match self.room {
            Room::Segment { frame, .. } if conn.has_window(n) => {
                conn.commit(frame, n, sum, device, now);
            }
            Room::Segment { frame, .. } => conn.enqueue_cut(frame, n, device, now),
            Room::Pieces {
                part,
                frames,
                bytes,
            } => {
                let whole = bytes.get(..n).unwrap_or_default();
                let mut parts = whole.chunks(part);
                for frame in frames {
                    let part = parts.next().unwrap_or_default();
                    commit_part(frame, part, conn, device, now);
                }
            }
        }
    }
}

fn commit_part(
    mut frame: TxFrame,
    part: &[u8],
    conn: &mut Conn,
    device: &mut Device,
    now: Instant,
) {
    match conn.room_in(&mut frame, part.len()) {
        Some(room) if !part.is_empty() => room.copy_from_slice(part),
        _ => return device.discard(frame),
    }
    if conn.has_window(part.len()) {
        conn.commit(frame, part.len(), None, device, now);
    } else {
        conn.enqueue(frame, part.len(), now);
    }
}
