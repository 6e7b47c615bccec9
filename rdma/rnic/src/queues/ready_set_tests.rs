//! Tests of the ready set. The model checker includes the set without them.

use super::ready_set::ReadySet;

const BITS: usize = u64::BITS as usize;

#[test]
fn groups_have_a_bit_each_whatever_the_capacity() {
    for capacity in [1, 64, 65, 4096, 4097, 8193, 16_384, 1 << 20] {
        let set = ReadySet::new(capacity);
        let numbers = [0, capacity / 2, capacity - 1];
        for number in numbers {
            set.add(number);
        }
        set.add(capacity.next_multiple_of(BITS));
        let mut taken = Vec::new();
        set.drain(|number| taken.push(number));
        let mut expected = numbers.to_vec();
        expected.dedup();
        assert_eq!(taken, expected, "{capacity}");
        assert!(set.is_empty());
    }
}

#[test]
fn each_number_comes_out_once_in_order() {
    let set = ReadySet::new(5000);
    assert!(set.is_empty());
    for _ in 0..2 {
        let numbers = [129, 0, 64, 4999, 4096, 0, 63, 6000];
        let added = numbers.map(|number| set.add(number));
        let expected = [true, true, true, true, true, false, true, false];
        assert_eq!(added, expected, "0 was in it, and 6000 is beyond");
        assert!(!set.is_empty());
        let mut taken = Vec::new();
        set.drain(|number| taken.push(number));
        assert_eq!(
            taken,
            [0, 63, 64, 129, 4096, 4999],
            "a number beyond the capacity is no member"
        );
        assert!(set.is_empty());
    }
}
