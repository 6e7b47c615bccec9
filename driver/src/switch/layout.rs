//! Layout of the files that clients and the switch share (decision record driver/0036).
//!
//! | file | made and written by | read by |
//! |---|---|---|
//! | `up`: frames to send | the client | the switch, and the client's peers |
//! | `down`: frames to receive into | the switch | the client |
//! | `flags`: who sleeps, and where the client runs | the client makes it, and all write it | all |
//! | `pair`: rings between two clients | the switch makes it, and both clients write it | both |
//!
//! A ring of a client and the switch has the producer's number and its entries in the producer's
//! file, and the consumer's number in the consumer's.

use crate::packet_io::Layout;

/// First bytes of each file, and its version.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"xwarp\0sw");
/// Where the magic number stands.
pub(super) const AT_MAGIC: usize = 0;
/// Where the version stands.
pub(super) const AT_VERSION: usize = 8;

/// Entries of each ring: one for each frame of a client, so that a ring is never full.
pub(super) const ENTRIES: u32 = 512;
/// Frames of a file: to send in `up`, to receive into in `down`.
pub(super) const FRAMES: usize = ENTRIES as usize;
/// Bytes of a frame: the largest IP packet behind an Ethernet header, up to a whole cache line.
pub(super) const CAPACITY: usize = 65_600;
/// Bytes from one frame to the next: an odd number of cache lines, so that frames of one length do
/// not share the sets of a cache.
const STRIDE: usize = 1027 * 64;
/// The largest IP packet, in bytes.
pub(super) const MTU: usize = 65_535;

/// Cache lines that are fetched together.
const LINES: usize = 128;

/// Words of `up`, by their offsets.
pub(super) mod up {
    use super::LINES;

    /// Frames that were received.
    pub(in super::super) const RECEIVED: usize = LINES;
    /// Frames that were sent.
    pub(in super::super) const SENT: usize = 2 * LINES;
    /// Frames that were lent to be received into.
    pub(in super::super) const LENT: usize = 3 * LINES;
    /// Entries of the ring of sent frames.
    pub(in super::super) const SENT_ENTRIES: usize = 4096;
    /// Entries of the ring of lent frames.
    pub(in super::super) const LENT_ENTRIES: usize = 8192;
}

/// Words of `down`, by their offsets.
pub(super) mod down {
    use super::LINES;

    /// Frames that were taken off the ring of sent frames.
    pub(in super::super) const COMPLETED: usize = LINES;
    /// Frames that were taken off the ring of lent frames.
    pub(in super::super) const TAKEN: usize = 2 * LINES;
    /// Frames that were delivered.
    pub(in super::super) const DELIVERED: usize = 3 * LINES;
    /// Entries of the ring of delivered frames.
    pub(in super::super) const DELIVERED_ENTRIES: usize = 4096;
}

/// Words of `flags`, by their offsets.
pub(super) mod flags {
    use super::LINES;

    /// Not zero while the switch sleeps: how it is woken (`WokenBy`).
    pub(in super::super) const SWITCH_ASLEEP: usize = LINES;
    /// Not zero while the client sleeps: how it is woken.
    pub(in super::super) const CLIENT_ASLEEP: usize = 2 * LINES;
    /// Where the client has run: the number of the processor plus 1.
    pub(in super::super) const PROCESSOR: usize = 3 * LINES;
    /// Bytes of the file.
    pub(in super::super) const BYTES: usize = 4096;
}

/// The rings of `pair`, by their offsets. The first client is the one that asked for the pair.
pub(super) mod pair {
    use super::{ENTRIES, LINES};

    /// Bytes of a ring: both numbers, and the entries.
    const RING: usize = 2 * LINES + ENTRIES as usize * 8;
    /// Where the rings begin: frames of the first client, frames of the second that come back,
    /// frames of the second, frames of the first that come back.
    pub(in super::super) const RINGS: [usize; 4] =
        [4096, 4096 + RING, 4096 + 2 * RING, 4096 + 3 * RING];
    /// Entries that were produced, from a ring's begin on.
    pub(in super::super) const PRODUCED: usize = 0;
    /// Entries that were consumed.
    pub(in super::super) const CONSUMED: usize = LINES;
    /// The entries.
    pub(in super::super) const RING_ENTRIES: usize = 2 * LINES;
    /// Bytes of the file.
    pub(in super::super) const BYTES: usize = (4096 + 4 * RING).next_multiple_of(4096);
}

/// Where the frames of `up` and `down` begin.
const FRAMES_BEGIN: usize = 12_288;
/// Bytes of `up` and of `down`.
pub(super) const FILE: usize = (FRAMES_BEGIN + FRAMES * STRIDE).next_multiple_of(4096);

/// The frames of `up` or `down`.
pub(super) fn frames() -> Layout {
    Layout {
        first: FRAMES_BEGIN,
        count: FRAMES,
        capacity: CAPACITY,
        stride: STRIDE,
    }
}

/// Where a frame lies in its file; `None` for a place that there is not.
pub(super) fn offset_of(place: usize) -> Option<usize> {
    (place < FRAMES).then(|| FRAMES_BEGIN + place * STRIDE)
}

/// Which file `down` the entries for a switch of a generation belong to.
pub(super) fn epoch_of(generation: u64) -> u16 {
    let [low, high, ..] = generation.to_le_bytes();
    u16::from_le_bytes([low, high])
}

/// An entry of a ring: a frame's place, its length, and, in the ring of lent frames, to which file
/// `down` it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) place: u16,
    pub(super) len: u32,
    /// The file's generation, as far as there is room.
    pub(super) epoch: u16,
}

impl Entry {
    /// The frame that an entry names, if there is such a one.
    pub(super) fn decode(entry: u64) -> Option<Self> {
        let bytes = entry.to_le_bytes();
        let (place, rest) = bytes.split_first_chunk()?;
        let (len, epoch) = rest.split_first_chunk()?;
        let decoded = Self {
            place: u16::from_le_bytes(*place),
            len: u32::from_le_bytes(*len),
            epoch: u16::from_le_bytes(*epoch.first_chunk()?),
        };
        let fits = usize::from(decoded.place) < FRAMES && decoded.len as usize <= CAPACITY;
        fits.then_some(decoded)
    }

    pub(super) fn encode(self) -> u64 {
        u64::from(self.place) | u64::from(self.len) << 16 | u64::from(self.epoch) << 48
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_names_a_frame_of_the_file_or_none() {
        let entry = Entry {
            place: 511,
            len: 65_600,
            epoch: 0xabcd,
        };
        assert_eq!(entry.encode(), 0xabcd_0001_0040_01ff);
        assert_eq!(Entry::decode(entry.encode()), Some(entry));
        assert_eq!(Entry::decode(512), None);
        assert_eq!(Entry::decode(65_601 << 16), None);
        assert_eq!(Entry::decode(u64::MAX), None);
    }

    #[test]
    fn words_entries_and_frames_lie_apart() {
        let entries = ENTRIES as usize * 8;
        const { assert!(up::LENT < up::SENT_ENTRIES && down::DELIVERED < down::DELIVERED_ENTRIES) };
        assert!(up::SENT_ENTRIES + entries <= up::LENT_ENTRIES);
        assert!(up::LENT_ENTRIES + entries <= FRAMES_BEGIN);
        assert!(down::DELIVERED_ENTRIES + entries <= FRAMES_BEGIN);
        assert_eq!(offset_of(FRAMES), None);
        let last = offset_of(FRAMES - 1).expect("a frame");
        assert!(last + CAPACITY <= FILE && STRIDE >= CAPACITY && STRIDE / 64 % 2 == 1);
    }
}
