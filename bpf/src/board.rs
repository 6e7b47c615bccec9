//! Board: the state of each queue's engine, for other processes to read (decision record bpf/0004).
//!
//! An entry begins with four words of its own. The first is a key to the meaning of the others; 0
//! stands for an empty entry. Then come the process that shows them, when it has begun, and how
//! many words follow.

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::layout::{Layout, MAX_QUEUES, MapError};

/// Words of an entry, `BOARD_WORDS` in steer.bpf.c.
const WORDS: u32 = 128;
/// Bytes of an entry.
const BYTES: usize = 8 * WORDS as usize;
/// Words before those that are shown.
const HEADER: usize = 4;

pub(crate) const LAYOUT: Layout = Layout {
    name: "xwarp_board",
    map_type: MapType::Array,
    key_size: 4,
    value_size: 8 * WORDS,
    max_entries: MAX_QUEUES,
};

/// What the engine of a queue has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// What the words mean. Writer and reader agree on it. It is not 0.
    pub key: u64,
    /// The process that shows them.
    pub process: u32,
    /// When that process has begun, in ticks since the kernel did.
    pub begun: u64,
    /// The state.
    pub words: Vec<u64>,
}

impl Shown {
    /// As the entry holds it. Words that it has no room for are left out.
    fn to_bytes(&self) -> Vec<u8> {
        let words = &self.words[..self.words.len().min(Board::ROOM)];
        let header = [
            self.key,
            self.process.into(),
            self.begun,
            words.len() as u64,
        ];
        let mut bytes: Vec<u8> = (header.iter().chain(words))
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        bytes.resize(BYTES, 0);
        bytes
    }

    /// `None` for an entry that is empty, or that no process can have written.
    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, _) = bytes.as_chunks();
        let words: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let (&[key, process, begun, len], words) = words.split_first_chunk()?;
        if key == 0 {
            return None;
        }
        Some(Self {
            key,
            process: u32::try_from(process).ok()?,
            begun,
            words: words.get(..usize::try_from(len).ok()?)?.to_vec(),
        })
    }
}

/// One entry for each receive queue.
#[derive(Debug)]
pub struct Board {
    map: MapHandle,
}

impl Board {
    /// Words that an entry has room for.
    pub const ROOM: usize = WORDS as usize - HEADER;

    pub(crate) fn new(map: MapHandle) -> Self {
        Self { map }
    }

    /// The same board by a descriptor of its own.
    pub fn try_clone(&self) -> Result<Self, MapError> {
        let map = MapHandle::try_from(&self.map).map_err(|error| LAYOUT.refused(error))?;
        Ok(Self { map })
    }

    /// Shows the state of a queue's engine in place of what was there.
    pub fn show(&self, queue: u32, shown: &Shown) -> Result<(), MapError> {
        self.write(queue, &shown.to_bytes())
    }

    /// Empties the entry of a queue.
    pub fn wipe(&self, queue: u32) -> Result<(), MapError> {
        self.write(queue, &[0; BYTES])
    }

    fn write(&self, queue: u32, bytes: &[u8]) -> Result<(), MapError> {
        if queue >= MAX_QUEUES {
            return Err(MapError::NoSuchQueue { queue });
        }
        let written = self.map.update(&queue.to_ne_bytes(), bytes, MapFlags::ANY);
        written.map_err(|error| LAYOUT.refused(error))
    }

    /// The queues whose engines show something, and what. An entry that is written meanwhile may be
    /// half old.
    pub fn read(&self) -> Result<Vec<(u32, Shown)>, MapError> {
        let mut shown = Vec::new();
        for queue in 0..MAX_QUEUES {
            let entry = self.map.lookup(&queue.to_ne_bytes(), MapFlags::ANY);
            let entry = entry.map_err(|error| LAYOUT.refused(error))?;
            let entry = entry.as_deref().and_then(Shown::of_bytes);
            shown.extend(entry.map(|it| (queue, it)));
        }
        Ok(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(words: Vec<u64>) -> Shown {
        Shown {
            key: 7,
            process: 8,
            begun: 9,
            words,
        }
    }

    #[test]
    fn entry_is_read_as_it_was_written() {
        for words in [vec![], vec![1, 2, u64::MAX], vec![3; Board::ROOM]] {
            let it = shown(words);
            assert_eq!(Shown::of_bytes(&it.to_bytes()), Some(it));
        }
        let cut = Shown::of_bytes(&shown(vec![3; 1000]).to_bytes());
        assert_eq!(cut, Some(shown(vec![3; Board::ROOM])));
    }

    #[test]
    fn entry_that_nobody_has_written_is_none() {
        assert_eq!(Shown::of_bytes(&[0; BYTES]), None);
        assert_eq!(Shown::of_bytes(&[]), None);
        for (word, lie) in [(1, u64::MAX), (3, 1000), (3, u64::MAX)] {
            let mut bytes = shown(vec![1]).to_bytes();
            bytes[8 * word..8 * word + 8].copy_from_slice(&lie.to_ne_bytes());
            assert_eq!(Shown::of_bytes(&bytes), None, "{lie} in word {word}");
        }
    }
}
