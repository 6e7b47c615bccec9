//! Each way against the crate `crc32c` and the plain checksum.

use proptest::prelude::*;

use super::*;
use crate::digest::checksum::checksum_sum;
use crate::memory::vanishing::{PAGE, Vanishing};

/// Bytes around those that are copied.
const MARGIN: usize = 70;
/// Content of the memory before a copy.
const BEFORE: u8 = 0xee;

/// A CRC that bytes ahead of these had, not inverted.
fn crc_behind(crc: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!crc, bytes)
}

fn folded(mut sum: u64) -> u64 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum
}

/// Copies all of `bytes` but the first `skip` to place `at`; the sums. It panics if not just these
/// bytes are copied there.
fn copied(vectors: Vectors, bytes: &[u8], [skip, at]: [usize; 2], crc: u32) -> Option<Sums> {
    let mut source = bytes.to_vec();
    let len = bytes.len() - skip;
    let mut room = vec![BEFORE; at + len + MARGIN];
    // SAFETY: `skip` lies in the vector.
    let src = unsafe { NonNull::from(source.as_mut_slice()).cast::<u8>().add(skip) };
    // SAFETY: that many bytes are left in the vector, which no other code uses.
    let sums = unsafe { vectors.copy(&mut room[at..at + len], src, crc) }?;
    assert_eq!(&room[at..at + len], &bytes[skip..], "{vectors:?}");
    let (ahead, behind) = (&room[..at], &room[at + len..]);
    assert!(ahead.iter().chain(behind).all(|&byte| byte == BEFORE));
    Some(sums.expect("memory that is there"))
}

/// Each way there is gives the CRC and the sum of what it copies.
fn all_agree(bytes: &[u8], places: [usize; 2], crc: u32) {
    let part = &bytes[places[0]..];
    let expected = (crc_behind(crc, part), folded(checksum_sum(part).into()));
    for vectors in Vectors::all() {
        let copied = copied(vectors, bytes, places, crc);
        assert_eq!(copied.is_some(), LENS.contains(&part.len()));
        let sums = copied.unwrap_or_else(|| vectors.sums(part, crc));
        for sums in [sums, vectors.sums(part, crc)] {
            let sums = (sums.crc, folded(sums.checksum));
            assert_eq!(sums, expected, "{vectors:?}, {} bytes", part.len());
        }
    }
}

/// Bytes without an order.
fn mixed(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn every_length_is_copied_and_summed() {
    let bytes = mixed(2500);
    for len in 0..2500 {
        all_agree(&bytes[..len], [0, len % 5], !0);
    }
}

#[test]
fn longest_and_largest_are_summed() {
    for value in [0, 0x7f, 0x80, 0xff] {
        all_agree(&vec![value; *LENS.end()], [0, 1], 0);
        all_agree(&vec![value; 65_483], [0, 2], !0);
    }
    let mut high = [0, 0x80].repeat(LENS.end() / 2);
    all_agree(&high, [0, 0], 0);
    high.push(1);
    all_agree(&high, [0, 0], 0);
}

#[test]
fn memory_that_is_gone_is_a_fault_wherever_it_begins() {
    let memory = Vanishing::anonymous(3);
    let _shared = memory.share().unwrap();
    memory.unmap(1);
    for vectors in Vectors::all() {
        for len in (256..700).chain([1448, PAGE]) {
            for there in (0..len).step_by(13) {
                let mut room = vec![0; len];
                // SAFETY: the page ahead of the gap has that many bytes.
                let src = unsafe { memory.start().add(PAGE - there) };
                let src = NonNull::new(src).unwrap();
                // SAFETY: no other code uses the memory, of which the rest is gone.
                let copied = unsafe { vectors.copy(&mut room, src, 0) };
                assert_eq!(copied, Some(Err(Fault)), "{vectors:?}, {there} of {len}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_length_place_and_crc_ahead(len in 0_usize..10_000, places: [u8; 2], crc: u32, seed: u8) {
        let [skip, at] = places.map(|place| usize::from(place % 64));
        let bytes: Vec<u8> = mixed(skip + len).iter().map(|byte| byte ^ seed).collect();
        all_agree(&bytes, [skip, at], crc);
    }
}
