//! Memory as a list of pages or blocks of the region area (verbs draft §7.6.2).

use std::sync::Arc;

use super::spec::{Addressing, PblMode, SpecError};
use crate::model::limits::MAX_LIST_ENTRIES;

/// The smallest page: regions are allocated from the area in pages of that size.
const MIN_PAGE: u64 = 4096;
/// The largest page or block, in bytes.
const MAX_ENTRY: u64 = 1 << 30;

/// Allowed sizes of the entries of physical buffer lists, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntrySizes {
    /// Pages of these sizes.
    Pages(Vec<u64>),
    /// Blocks of any size in this range.
    Blocks(std::ops::RangeInclusive<u64>),
}

impl EntrySizes {
    pub(crate) fn of(mode: PblMode) -> Self {
        match mode {
            PblMode::Page => {
                let sizes = std::iter::successors(Some(MIN_PAGE), |size| Some(2 * size));
                Self::Pages(sizes.take_while(|size| *size <= MAX_ENTRY).collect())
            }
            PblMode::Block => Self::Blocks(1..=MAX_ENTRY),
        }
    }
}

/// A region's memory as a list of pages or blocks of one size, in the order of the region's bytes
/// (verbs draft §7.6.2).
///
/// Addresses are physical: offsets in the RNIC's region area, as `Rnic::physical_address` returns
/// them. Like any physical address they keep no memory allocated: the application holds the memory
/// as long as the list is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhysicalList {
    /// Size of each entry in bytes.
    pub entry_size: u64,
    /// Addresses of the entries. Clones of the list share them.
    pub addresses: Arc<[u64]>,
    /// Offset of the region's first byte in the first entry.
    pub first_byte_offset: u64,
    /// Length of the region in bytes, which may end anywhere in the list.
    pub len: u64,
}

impl PhysicalList {
    /// Checks whether the list can be registered with this `addressing`.
    pub(crate) fn check(
        &self,
        mode: PblMode,
        area: u64,
        addressing: Addressing,
    ) -> Result<(), SpecError> {
        self.check_entries(mode, area)?;
        let (offset, size) = (self.first_byte_offset, self.entry_size);
        if offset > size {
            return Err(SpecError::FirstByteOffset { offset, size });
        }
        let entries = self.addresses.len() as u64;
        let (len, capacity) = (self.len, (size * entries).saturating_sub(offset)); // at most 2^46
        if len > capacity {
            return Err(SpecError::Length { len, capacity });
        }
        match addressing {
            Addressing::VaBased(va) if va % size != offset % size => {
                Err(SpecError::VirtualAddress(va))
            }
            Addressing::VaBased(_) | Addressing::ZeroBased => Ok(()),
        }
    }

    /// Checks the entries' size, number and addresses.
    fn check_entries(&self, mode: PblMode, area: u64) -> Result<(), SpecError> {
        let (size, entries) = (self.entry_size, self.addresses.len());
        let sized = match mode {
            PblMode::Page => size.is_power_of_two() && (MIN_PAGE..=MAX_ENTRY).contains(&size),
            PblMode::Block => (1..=MAX_ENTRY).contains(&size),
        };
        if !sized {
            return Err(SpecError::EntrySize { mode, size });
        }
        if entries > MAX_LIST_ENTRIES {
            return Err(SpecError::TooManyEntries(entries));
        }
        let aligned = |address: u64| mode == PblMode::Block || address.is_multiple_of(size);
        let inside = |address: u64| address.checked_add(size).is_some_and(|end| end <= area);
        let mut addresses = self.addresses.iter().copied();
        match addresses.find(|&it| !aligned(it) || !inside(it)) {
            Some(address) => Err(SpecError::Entry { address }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREA: u64 = 1 << 20;
    const PAGE: u64 = 4096;

    fn list(entry_size: u64, addresses: &[u64], first_byte_offset: u64, len: u64) -> PhysicalList {
        PhysicalList {
            entry_size,
            addresses: addresses.into(),
            first_byte_offset,
            len,
        }
    }

    #[test]
    fn pages_are_powers_of_two_and_aligned_and_blocks_need_not_be() {
        let check = |mode, list: &PhysicalList| list.check(mode, AREA, Addressing::ZeroBased);
        let pages = list(PAGE, &[0, 3 * PAGE], 1, 2 * PAGE - 1);
        assert_eq!(check(PblMode::Page, &pages), Ok(()));
        for size in [0, 1, 2048, 3000, 4097, 1 << 31] {
            let refused = SpecError::EntrySize {
                mode: PblMode::Page,
                size,
            };
            let odd = list(size, &[0], 0, 0);
            assert_eq!(check(PblMode::Page, &odd), Err(refused));
        }
        for bits in 12..=30 {
            let none = list(1 << bits, &[], 0, 0);
            assert_eq!(check(PblMode::Page, &none), Ok(()), "2^{bits}");
        }
        let odd = list(3000, &[1, 12_345], 0, 6000);
        assert_eq!(check(PblMode::Block, &odd), Ok(()));
        for size in [0, (1 << 30) + 1] {
            let mode = PblMode::Block;
            let refused = SpecError::EntrySize { mode, size };
            assert_eq!(check(mode, &list(size, &[], 0, 0)), Err(refused));
        }
        for address in [1, 512, PAGE + 1, AREA, AREA - 1, u64::MAX - 4095] {
            let refused = Err(SpecError::Entry { address });
            let stray = list(PAGE, &[0, address], 0, 1);
            assert_eq!(check(PblMode::Page, &stray), refused);
        }
        let last = list(PAGE, &[AREA - PAGE], 0, PAGE);
        assert_eq!(check(PblMode::Page, &last), Ok(()));
        let beyond = list(100, &[AREA - 99], 0, 1);
        assert!(check(PblMode::Block, &beyond).is_err());
    }

    #[test]
    fn offset_and_length_stay_in_the_list() {
        let check = |offset, len| {
            let list = list(PAGE, &[0, PAGE], offset, len);
            list.check(PblMode::Page, AREA, Addressing::ZeroBased)
        };
        for (offset, len) in [(0, 2 * PAGE), (1, 2 * PAGE - 1), (PAGE, PAGE), (17, 0)] {
            assert_eq!(check(offset, len), Ok(()));
        }
        let size = PAGE;
        let offset = PAGE + 1;
        let refused = SpecError::FirstByteOffset { offset, size };
        assert_eq!(check(offset, 0), Err(refused));
        for (offset, len, capacity) in [(0, 2 * PAGE + 1, 2 * PAGE), (PAGE, PAGE + 1, PAGE)] {
            let refused = SpecError::Length { len, capacity };
            assert_eq!(check(offset, len), Err(refused));
        }
        let none = list(PAGE, &[], 0, 1).check(PblMode::Page, AREA, Addressing::ZeroBased);
        assert_eq!(
            none,
            Err(SpecError::Length {
                len: 1,
                capacity: 0
            })
        );
        let many = list(1, &vec![0; MAX_LIST_ENTRIES + 1], 0, 0);
        let refused = SpecError::TooManyEntries(MAX_LIST_ENTRIES + 1);
        let checked = many.check(PblMode::Block, AREA, Addressing::ZeroBased);
        assert_eq!(checked, Err(refused));
    }

    #[test]
    fn virtual_address_has_the_lists_first_byte_offset() {
        for (mode, size) in [(PblMode::Page, PAGE), (PblMode::Block, 3000)] {
            let list = list(size, &[0], 5, 100);
            for (va, fits) in [
                (5, true),
                (7 * size + 5, true),
                (7 * size, false),
                (6, false),
            ] {
                let checked = list.check(mode, AREA, Addressing::VaBased(va));
                assert_eq!(checked.is_ok(), fits, "{mode:?} {va}");
                assert!(fits || checked == Err(SpecError::VirtualAddress(va)));
            }
        }
    }
}
