//! Memory that goes while it is shared, and what becomes of other faults of the process.
#![allow(unsafe_code)]

use crate::memory::shared::{CopyError, SharedBytes};
use crate::memory::vanishing::{PAGE, Right, Vanishing};
use crate::{AtomicAccessError, Digest, take_only_faults};

/// Lengths that are copied in different ways.
const LENS: [usize; 15] = [
    1, 2, 3, 4, 7, 8, 15, 16, 17, 100, 256, 300, 1448, 4000, 4096,
];

/// All accesses that touch page 1 of `memory` end in the error that says so, and those that do not
/// go on.
fn page_one_is_gone(memory: &SharedBytes, to_read: bool) {
    for len in LENS {
        for offset in [PAGE - len + 1, PAGE, 2 * PAGE - 1] {
            let gone = Err(CopyError::Gone { offset, len });
            assert_eq!(memory.write(offset, &vec![7; len]), gone, "{len} bytes");
            let expected = if to_read { gone } else { Ok(()) };
            let read = memory.read(offset, &mut vec![0; len]);
            assert_eq!(read, expected, "{len} bytes");
            let read = Digest::default().read(memory, offset, &mut vec![0; len]);
            assert_eq!(read, expected, "{len} bytes");
        }
        assert_eq!(memory.write(PAGE - len, &vec![9; len]), Ok(()));
        assert_eq!(memory.read(PAGE - len, &mut vec![0; len]), Ok(()));
        let mut digest = Digest::default();
        let read = digest.read(memory, PAGE - len, &mut vec![0; len]);
        assert_eq!(read, Ok(()));
    }
    let gone = Err(AtomicAccessError::Gone { offset: PAGE });
    assert_eq!(memory.update_u64(PAGE, |number| number + 1), gone);
    assert!(memory.update_u64(PAGE - 8, |number| number + 1).is_ok());
    assert!(memory.fill(0..2 * PAGE, 1).is_err());
    let part = memory.part(PAGE..PAGE + 8).unwrap();
    let gone = CopyError::Gone { offset: 4, len: 1 };
    assert_eq!(part.write(4, &[1]), Err(gone));
}

#[test]
fn access_to_an_unmapped_page_ends_in_an_error() {
    let memory = Vanishing::anonymous(3);
    let bytes = memory.share().unwrap();
    memory.unmap(1);
    page_one_is_gone(&bytes, true);
    assert_eq!(bytes.to_vec(), []);
    assert_eq!(bytes.write(2 * PAGE, &[1; PAGE]), Ok(()));
}

#[test]
fn write_to_a_page_that_was_made_read_only_ends_in_an_error() {
    let memory = Vanishing::anonymous(3);
    let bytes = memory.share().unwrap();
    memory.protect(1, Right::Read);
    page_one_is_gone(&bytes, false);
    assert_eq!(bytes.to_vec().len(), 3 * PAGE);
    memory.protect(1, Right::None);
    page_one_is_gone(&bytes, true);
    memory.protect(1, Right::Write);
    assert_eq!(bytes.fill(0..3 * PAGE, 5), Ok(()));
    assert_eq!(bytes.to_vec(), vec![5; 3 * PAGE]);
}

#[test]
fn access_behind_the_end_of_a_truncated_file_ends_in_an_error() {
    let memory = Vanishing::of_file(3);
    let bytes = memory.share().unwrap();
    memory.truncate(1);
    page_one_is_gone(&bytes, true);
}

#[test]
fn access_to_a_truncated_mapping_of_the_application_ends_in_an_error() {
    let name = "a file that gets shorter";
    let file = nix::sys::memfd::memfd_create(name, nix::sys::memfd::MFdFlags::empty()).unwrap();
    let file = std::fs::File::from(file);
    file.set_len(3 * PAGE as u64).unwrap();
    // SAFETY: no other code knows the file, and its mapping becomes shared memory, whose copies
    // survive.
    let map = unsafe { memmap2::MmapMut::map_mut(&file) }.unwrap();
    let bytes = SharedBytes::from_mmap(map);
    file.set_len(PAGE as u64).unwrap();
    page_one_is_gone(&bytes, true);
}

#[test]
fn large_copy_ends_where_the_memory_does() {
    let memory = Vanishing::anonymous(16);
    let bytes = memory.share().unwrap();
    memory.unmap(9);
    let (offset, len) = (0, 16 * PAGE);
    let gone = Err(CopyError::Gone { offset, len });
    assert_eq!(bytes.write(0, &vec![3; len]), gone);
    let mut copy = vec![0; 9 * PAGE];
    bytes.read(0, &mut copy).unwrap();
    assert_eq!(copy, vec![3; 9 * PAGE]);
    assert_eq!(bytes.read(0, &mut vec![0; len]), gone);
}

#[test]
fn threads_fault_at_once_and_each_gets_its_error() {
    let memory = Vanishing::anonymous(3);
    let bytes = memory.share().unwrap();
    memory.unmap(1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50).for_each(|_| page_one_is_gone(&bytes, true)));
        }
    });
}

#[test]
fn thread_that_has_blocked_all_signals_survives_once_it_takes_its_faults() {
    let memory = Vanishing::anonymous(3);
    let bytes = memory.share().unwrap();
    memory.unmap(1);
    nix::sys::signal::SigSet::all().thread_block().unwrap();
    take_only_faults().unwrap();
    page_one_is_gone(&bytes, true);
}

#[cfg(target_arch = "x86_64")]
mod children;
