//! Memory of a region in several pieces: the pages or blocks of a physical buffer list.
//!
//! A physical address (`STag` 0, buffer lists; verbs draft §7.2.1) is an offset in the region area
//! of the process, which holds no frames. So a privileged queue pair reaches every region of its
//! process and nothing else. Memory outside of the area has no physical address. Entries keep no
//! memory allocated.

use std::sync::Arc;

use crate::model::PhysicalList;
use xwarp_driver::{CopyError, Digest, SharedBytes};

/// A checked list: the memory of a registered region.
#[derive(Debug)]
pub(super) struct Scattered {
    area: SharedBytes,
    /// Size of each entry in bytes; not 0.
    entry_size: usize,
    addresses: Arc<[u64]>,
}

impl Scattered {
    pub(super) fn new(area: SharedBytes, list: &PhysicalList) -> Self {
        Self {
            area,
            entry_size: usize::try_from(list.entry_size).unwrap_or(1).max(1),
            addresses: Arc::clone(&list.addresses),
        }
    }

    pub(super) fn read(&self, at: usize, into: &mut [u8]) -> Result<(), CopyError> {
        let mut rest = into;
        self.pieces(at, rest.len(), |address, len| {
            let (piece, others) = std::mem::take(&mut rest).split_at_mut(len);
            rest = others;
            self.area.read(address, piece)
        })
    }

    pub(super) fn read_digested(
        &self,
        at: usize,
        into: &mut [u8],
        digest: &mut Digest,
    ) -> Result<(), CopyError> {
        let mut rest = into;
        self.pieces(at, rest.len(), |address, len| {
            let (piece, others) = std::mem::take(&mut rest).split_at_mut(len);
            rest = others;
            digest.read(&self.area, address, piece)
        })
    }

    pub(super) fn write(&self, at: usize, from: &[u8]) -> Result<(), CopyError> {
        let mut rest = from;
        self.pieces(at, rest.len(), |address, len| {
            let (piece, others) = rest.split_at(len);
            rest = others;
            self.area.write(address, piece)
        })
    }

    /// The area, and the offset in it of `len` bytes within one entry; `None` if they span several.
    pub(super) fn unbroken(&self, at: usize, len: usize) -> Option<(&SharedBytes, usize)> {
        let whole = self.entry_size - at % self.entry_size >= len;
        whole.then(|| (&self.area, self.address(at)))
    }

    /// The physical address of byte `at`. If the list has no such byte, an address that cannot be
    /// accessed.
    fn address(&self, at: usize) -> usize {
        let entry = self.addresses.get(at / self.entry_size);
        let begin = entry.and_then(|&begin| usize::try_from(begin).ok());
        begin.map_or(usize::MAX, |begin| {
            begin.saturating_add(at % self.entry_size)
        })
    }

    /// Calls `each` for the pieces that contain bytes `at..at+len`, with their physical addresses
    /// and lengths.
    fn pieces(
        &self,
        at: usize,
        len: usize,
        mut each: impl FnMut(usize, usize) -> Result<(), CopyError>,
    ) -> Result<(), CopyError> {
        let mut done = 0;
        while done < len {
            let place = at.saturating_add(done);
            let piece = (self.entry_size - place % self.entry_size).min(len - done);
            each(self.address(place), piece)?;
            done += piece;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_found_across_the_entries() {
        let area = SharedBytes::anonymous(4096).unwrap();
        let list = PhysicalList {
            entry_size: 10,
            addresses: [500, 77, 3].into(),
            first_byte_offset: 0,
            len: 30,
        };
        let scattered = Scattered::new(area.clone(), &list);
        let bytes: Vec<u8> = (1..=30).collect();
        scattered.write(0, &bytes).unwrap();
        let memory = area.to_vec();
        assert_eq!(memory[500..510], bytes[..10]);
        assert_eq!(memory[77..87], bytes[10..20]);
        assert_eq!(memory[3..13], bytes[20..]);
        assert_eq!(memory.iter().filter(|byte| **byte != 0).count(), 30);
        for at in 0..30 {
            for len in 0..=30 - at {
                let mut copy = vec![0; len];
                scattered.read(at, &mut copy).unwrap();
                assert_eq!(copy, bytes[at..at + len]);
            }
        }
        assert!(scattered.write(25, &[0; 6]).is_err(), "no fourth entry");
        assert_eq!(scattered.unbroken(12, 8).map(|it| it.1), Some(79));
        assert!(scattered.unbroken(13, 8).is_none());
    }
}
