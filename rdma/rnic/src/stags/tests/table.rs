//! Lookup, accesses, and the life of an index.

use std::collections::{HashSet, VecDeque};

use crate::stags::{Bytes, Views};
use xwarp_iwarp::{AtomicOperation, AtomicRequest};

use super::*;
use crate::model::{DeallocateError, MAX_STAGS, QueryError, RegisterError, SpecError};
use crate::stags::table::REST;

#[test]
fn access_is_checked_in_the_order_of_the_rfc() {
    let mut it = Fixture::new();
    let (user, stranger) = (it.user(PD), it.user(OTHER_PD));
    let stag = it.region(Access::LOCAL_READ | Access::REMOTE_READ);
    let check = |user, stag, to, len, rights| {
        let access = it.table.access(user, stag, to, len, rights);
        access.map(|_| ())
    };
    let read = Access::REMOTE_READ;
    assert_eq!(check(user, stag, 96, 4000, read), Ok(()), "exact fit");
    assert_eq!(check(user, stag, 97, 4000, read), Err(AccessError::Bounds));
    assert_eq!(check(user, stag, u64::MAX, 2, read), Err(AccessError::Wrap));
    assert_eq!(
        check(user, stag, u64::MAX, 2, Access::REMOTE_WRITE),
        Err(AccessError::Rights)
    );
    assert_eq!(
        check(stranger, stag, u64::MAX, 2, read),
        Err(AccessError::NotAssociated)
    );
    let invalid = Err(AccessError::InvalidStag);
    assert_eq!(check(stranger, other_key(stag), 0, 1, read), invalid);
    assert_eq!(check(user, Stag(0), 0, 1, read), invalid);
}

#[test]
fn every_bit_of_an_stag_counts() {
    let mut it = Fixture::new();
    let user = it.user(PD);
    let stag = it.region(ALL);
    for bit in 0..32 {
        let flipped = Stag(stag.0 ^ 1 << bit);
        for right in [Access::LOCAL_READ, Access::REMOTE_WRITE] {
            let access = it.access(user, flipped, 0, right);
            assert_eq!(access, Err(AccessError::InvalidStag), "bit {bit}");
        }
    }
    assert_eq!(it.access(user, stag, 0, ALL), Ok(()));
}

#[test]
fn deallocated_stag_is_unknown_whatever_its_state_was() {
    let mut it = Fixture::new();
    let user = it.user(PD);
    let (other, valid, invalid) = (it.region(ALL), it.region(ALL), it.region(ALL));
    it.table.invalidate_local(user, invalid).unwrap();
    let window = it.window();
    for stag in [valid, invalid, window] {
        assert_eq!(it.table.deallocate(stag.index()), Ok(()));
        let again = it.table.deallocate(stag.index());
        assert_eq!(again, Err(DeallocateError::InvalidStag));
        let access = it.access(user, stag, 0, Access::LOCAL_READ);
        assert_eq!(access, Err(AccessError::InvalidStag));
        let queried = it.table.query_region(stag.index());
        assert_eq!(queried, Err(QueryError::InvalidStag));
        let queried = it.table.query_window(stag.index());
        assert_eq!(queried, Err(QueryError::InvalidStag));
        assert_eq!(it.access(user, other, 0, Access::LOCAL_READ), Ok(()));
    }
    for unknown in [0, other.index() ^ 1] {
        let refused = it.table.deallocate(unknown);
        assert_eq!(refused, Err(DeallocateError::InvalidStag));
    }
    assert_eq!(it.table.resting_len(), 3);
}

/// One mapping serves all regions of a test that are never accessed.
fn next_region() -> impl FnMut(&mut StagTable) -> Result<Stag, RegisterError> {
    let memory = RegionMemory::Whole(memory());
    let spec = RegionSpec::new(Access::LOCAL_READ);
    move |table| table.register(StagScope::Domain(PD), &memory, &spec)
}

#[test]
#[cfg_attr(miri, ignore = "needs minutes, and is arithmetic")]
fn stags_are_spread_over_all_32_bits_and_follow_no_pattern() {
    let (mut table, mut next) = (new_table(), next_region());
    let stags: Vec<u32> = (0..4096).map(|_| next(&mut table).unwrap().0).collect();
    for bit in 0..32 {
        let ones = stags.iter().filter(|stag| *stag >> bit & 1 == 1).count();
        // The standard deviation is 32: twelve of them are no chance.
        assert!((1664..=2432).contains(&ones), "bit {bit}: {ones} of 4096");
    }
    let steps: HashSet<u32> = stags
        .windows(2)
        .map(|pair| pair[1].wrapping_sub(pair[0]))
        .collect();
    assert!(steps.len() > 4080, "{} different steps", steps.len());
}

/// From the `STag`s of one table, those of another cannot be guessed.
#[test]
fn stags_of_two_tables_have_nothing_in_common() {
    let draw = || {
        let (mut table, mut next) = (new_table(), next_region());
        (0..100)
            .map(|_| next(&mut table).unwrap().index())
            .collect::<HashSet<u32>>()
    };
    let (one, other) = (draw(), draw());
    assert_eq!(one.len(), 100);
    // Of 2^24 indices, two draws of 100 share even one only once in 1,700 times.
    let shared = one.intersection(&other).count();
    assert!(shared <= 2, "{shared} indices of 100");
}

#[test]
fn every_key_can_be_chosen_and_only_that_one_is_valid() {
    const STEP: usize = if cfg!(miri) { 15 } else { 1 };
    let mut it = Fixture::new();
    let user = it.user(PD);
    let bytes = memory();
    for key in (0..=255).step_by(STEP) {
        let spec = RegionSpec::new(ALL).with_key(key);
        let stag = it.region_of(StagScope::Domain(PD), &bytes, &spec);
        assert_eq!(stag.key(), key);
        let info = it.table.query_region(stag.index()).unwrap();
        assert_eq!(info.key, Some(key));
        for other in (0..=255).step_by(STEP) {
            let access = it.access(user, stag.with_key(other), 0, Access::LOCAL_READ);
            assert_eq!(access.is_ok(), other == key, "{key} {other}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "needs hours for 100,000 regions")]
fn index_rests_before_it_is_used_again() {
    let (mut table, mut next) = (new_table(), next_region());
    let (mut recent, mut order) = (HashSet::new(), VecDeque::new());
    for _ in 0..100_000 {
        let stag = next(&mut table).unwrap();
        assert!(stag.index() != 0 && recent.insert(stag.index()), "{stag:?}");
        order.push_back(stag.index());
        table.deallocate(stag.index()).unwrap();
        if order.len() > REST {
            recent.remove(&order.pop_front().unwrap());
        }
    }
    assert_eq!(table.len(), REST, "and no memory is kept for more");
}

#[test]
#[cfg_attr(miri, ignore = "needs hours for 65,535 STags")]
fn regions_and_windows_beyond_the_limit_are_refused_until_one_goes() {
    let (mut it, mut next) = (Fixture::new(), next_region());
    let first = next(&mut it.table).unwrap();
    let existing = next(&mut it.table).unwrap();
    for n in 2..MAX_STAGS {
        match n % 3 {
            0 => it.window(),
            1 => it.table.allocate(StagScope::Domain(PD), 1, false).unwrap(),
            _ => next(&mut it.table).unwrap(),
        };
    }
    let scope = StagScope::Domain(PD);
    let shared = RegionSpec::new(Access::LOCAL_READ);
    let refused = [
        next(&mut it.table),
        it.table.allocate_window(scope),
        it.table.allocate(scope, 1, true),
        it.table.register_shared(existing, scope, &shared),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(RegisterError::TooManyStags)));
    }
    let info = it.table.query_region(existing.index()).unwrap();
    assert!(!info.shared, "what was refused has done nothing");
    it.table.deallocate(first.index()).unwrap();
    assert!(next(&mut it.table).is_ok());
}

/// The RNIC needs no `STag`s for itself, not even for its own messages that reference no memory.
#[test]
fn new_table_knows_no_stag_whatever_is_guessed() {
    const GUESSES: u32 = if cfg!(miri) { 100 } else { 1 << 16 };
    let mut it = Fixture::new();
    let user = it.table.join(PD, QpAccess::empty());
    let guesses = (0..GUESSES).map(|guess| guess.wrapping_mul(0x9e37_79b1));
    for stag in guesses.map(Stag).chain([Stag::PLACEHOLDER]) {
        let access = it.access(user, stag, 0, Access::REMOTE_READ);
        assert_eq!(access, Err(AccessError::InvalidStag), "{stag:?}");
    }
    for index in 0..GUESSES {
        assert!(it.table.query_region(index).is_err(), "{index}");
        assert!(it.table.query_window(index).is_err(), "{index}");
        assert!(it.table.deallocate(index).is_err(), "{index}");
    }
}

#[test]
fn what_cannot_be_registered_takes_no_stag() {
    let mut it = Fixture::new();
    for bits in 0..16 {
        let access = Access::from_bits_retain(bits);
        let memory = RegionMemory::Whole(memory());
        for flag in [false, true] {
            let spec = RegionSpec::new(access).remote_access(flag);
            let before = it.table.len();
            let registered = it.table.register(StagScope::Domain(PD), &memory, &spec);
            let allowed = access.suits_region() && (flag || !access.intersects(Access::REMOTE));
            assert_eq!(registered.is_ok(), allowed, "{access:?} {flag}");
            let more = usize::from(allowed);
            assert_eq!(it.table.len(), before + more);
        }
    }
}

#[test]
fn query_tells_what_was_registered() {
    let mut it = Fixture::new();
    let bytes = SharedBytes::anonymous(10_000).unwrap();
    let access = Access::LOCAL_READ | Access::BIND_WINDOWS;
    let spec = RegionSpec::new(access).with_key(7);
    for flag in [false, true] {
        let spec = spec.remote_access(flag);
        let stag = it.region_of(StagScope::Domain(OTHER_PD), &bytes, &spec);
        let info = it.table.query_region(stag.index()).unwrap();
        assert_eq!((info.key, info.is_valid()), (Some(7), true));
        assert_eq!((info.remote_access, info.shared), (flag, false));
        assert_eq!((info.pd, info.access), (OTHER_PD, access));
        assert_eq!(info.entries, 3, "pages of 4 KiB");
    }
}

#[test]
fn atomic_is_executed_only_where_its_right_is() {
    let mut it = Fixture::new();
    let user = it.user(PD);
    let bytes = memory();
    let all_others = it.region(LOCAL | Access::REMOTE_READ | Access::REMOTE_WRITE);
    let spec = RegionSpec::new(LOCAL | Access::REMOTE_ATOMIC);
    let atomic = it.region_of(StagScope::Domain(PD), &bytes, &spec);
    let execute = |stag, to| it.table.execute(user, &add_five(stag, to));
    assert_eq!(execute(all_others, 0), Err(AccessError::Rights));
    assert_eq!(execute(atomic, 4096 - 7), Err(AccessError::Bounds));
    assert_eq!(bytes.to_vec(), [0; 4096]);
    assert_eq!((execute(atomic, 8), execute(atomic, 8)), (Ok(0), Ok(5)));
    assert_eq!(bytes.to_vec()[8..16], 10_u64.to_ne_bytes());
    let aligned = |stag, to| {
        let place = it.table.access(user, stag, to, 8, Access::REMOTE_ATOMIC);
        place.is_ok_and(Bytes::is_aligned)
    };
    assert!(aligned(atomic, 4088) && !aligned(atomic, 4));
    assert!(!aligned(Stag(7), 8) && !aligned(atomic, u64::MAX - 7));
}

fn add_five(stag: Stag, to: u64) -> AtomicRequest {
    AtomicRequest {
        id: 0,
        operation: AtomicOperation::FetchAdd { add: 5, mask: 0 },
        stag,
        to,
    }
}

#[test]
fn region_of_one_queue_pair_is_closed_to_the_others_of_its_domain() {
    let mut it = Fixture::new();
    let (owner, neighbour) = (it.user(PD), it.user(PD));
    let spec = RegionSpec::new(ALL);
    let stag = it.region_of(StagScope::QueuePair(owner), &memory(), &spec);
    let refused = Err(AccessError::NotAssociated);
    for right in ALL.iter() {
        assert_eq!(it.access(owner, stag, 8, right), Ok(()), "{right:?}");
        assert_eq!(it.access(neighbour, stag, 8, right), refused);
    }
    let add = add_five(stag, 0);
    let executed = it.table.execute(neighbour, &add);
    assert_eq!(executed, Err(AccessError::NotAssociated));
    assert_eq!(it.table.execute(owner, &add), Ok(0), "nothing was added");
    // The scope is judged before rights, wrap and bounds.
    let wraps = it.table.access(neighbour, stag, u64::MAX, 2, ALL);
    assert_eq!(wraps.map(|_| ()), refused);
}

#[test]
fn region_of_a_queue_pair_that_is_gone_is_open_to_nobody() {
    let mut it = Fixture::new();
    let owner = it.user(PD);
    let spec = RegionSpec::new(ALL);
    let stag = it.region_of(StagScope::QueuePair(owner), &memory(), &spec);
    it.table.leave(owner);
    let heir = it.user(PD);
    let access = it.access(heir, stag, 0, Access::LOCAL_READ);
    assert_eq!(access, Err(AccessError::NotAssociated));
}

#[test]
fn stag_zero_is_all_of_the_area_for_local_work_of_privileged_queue_pairs() {
    let mut it = Fixture::new();
    let plain = it.table.join(PD, QpAccess::BIND_WINDOWS);
    let privileged = [PD, OTHER_PD].map(|pd| it.table.join(pd, QpAccess::PHYSICAL));
    let zero = Stag(0);
    for user in privileged {
        let place = it.table.access(user, zero, 77, 3, Access::LOCAL_WRITE);
        place.unwrap().write(b"abc").unwrap();
        assert_eq!(it.table.area().to_vec()[77..80], *b"abc");
        let mut copy = [0; 3];
        let place = it.table.access(user, zero, 77, 3, Access::LOCAL_READ);
        place.unwrap().read(&mut copy).unwrap();
        assert_eq!(copy, *b"abc");
        let end = AREA as u64;
        assert_eq!(it.access(user, zero, end - 1, Access::LOCAL_READ), Ok(()));
        let beyond = it.access(user, zero, end, Access::LOCAL_READ);
        assert_eq!(beyond, Err(AccessError::Bounds));
    }
    let invalid = Err(AccessError::InvalidStag);
    for right in Access::REMOTE.iter() {
        assert_eq!(it.access(privileged[0], zero, 0, right), invalid);
    }
    assert_eq!(it.access(privileged[0], Stag(1), 0, LOCAL), invalid);
    assert_eq!(it.access(plain, zero, 0, Access::LOCAL_READ), invalid);
}

#[test]
fn no_verb_of_memory_takes_stag_zero() {
    use crate::model::CompletionStatus;
    let mut it = Fixture::new();
    let user = it.user(PD);
    let spec = RegionSpec::new(LOCAL);
    let scope = StagScope::Domain(PD);
    let (window, region) = (it.window(), it.va_region(ALL));
    for key in [0, 1, 255] {
        let zero = Stag(0).with_key(key);
        assert!(it.table.register_shared(zero, scope, &spec).is_err());
        let invalidated = it.table.invalidate_local(user, zero);
        assert_eq!(invalidated, Err(CompletionStatus::InvalidStag));
        let invalidated = it.table.check_invalidate(user, zero);
        assert_eq!(invalidated, Err(xwarp_iwarp::InvalidateError::InvalidStag));
        let bound = it.table.bind(user, &bind(zero, region));
        assert_eq!(bound, Err(CompletionStatus::InvalidWindow));
        let bound = it.table.bind(user, &bind(window, zero));
        assert_eq!(bound, Err(CompletionStatus::InvalidRegion));
        let request = FastRegister {
            stag: zero,
            list: pages(&[0]),
            access: LOCAL,
            addressing: Addressing::ZeroBased,
        };
        let registered = it.table.fast_register(user, &request);
        assert_eq!(registered, Err(CompletionStatus::InvalidStag));
    }
    let memory = RegionMemory::Whole(memory());
    assert!(it.table.reregister(0, scope, &memory, &spec).is_err());
    assert!(it.table.query_region(0).is_err() && it.table.query_window(0).is_err());
    assert!(it.table.deallocate(0).is_err());
    assert_eq!(it.access(user, Stag(0), 0, LOCAL), Ok(()), "as it was");
}

#[test]
fn overlapping_registrations_are_independent() {
    let mut it = Fixture::new();
    let (user, other) = (it.user(PD), it.user(OTHER_PD));
    let bytes = memory();
    let read = it.region_of(
        StagScope::Domain(PD),
        &bytes,
        &RegionSpec::new(Access::LOCAL_READ),
    );
    let write = RegionSpec::new(Access::LOCAL_WRITE).at(VA);
    let write = it.region_of(StagScope::Domain(OTHER_PD), &bytes, &write);
    assert_ne!(read.index(), write.index());
    let place = it
        .table
        .access(other, write, VA + 9, 4, Access::LOCAL_WRITE);
    place.unwrap().write(b"seen").unwrap();
    let mut copy = [0; 4];
    let place = it.table.access(user, read, 9, 4, Access::LOCAL_READ);
    place.unwrap().read(&mut copy).unwrap();
    assert_eq!(copy, *b"seen");
    let refused = it.access(user, read, 0, Access::LOCAL_WRITE);
    assert_eq!(refused, Err(AccessError::Rights));
    let refused = it.access(user, write, VA, Access::LOCAL_WRITE);
    assert_eq!(refused, Err(AccessError::NotAssociated));
    it.table.deallocate(read.index()).unwrap();
    let there = it.access(other, write, VA, Access::LOCAL_WRITE);
    assert_eq!(there, Ok(()), "one deallocation concerns no other");
}

#[test]
fn read_only_memory_is_registered_without_rights_that_write() {
    let mut fixture = Fixture::new();
    let user = fixture.user(PD);
    let bytes = SharedBytes::from_static(&[7; 4096]);
    let memory = RegionMemory::Whole(bytes.clone());
    let (scope, spec) = (StagScope::Domain(PD), RegionSpec::new);
    for rights in (0..64).map(Access::from_bits_retain) {
        let refused = fixture.table.register(scope, &memory, &spec(rights)).err();
        if rights.suits_region() && rights.contains(Access::LOCAL_WRITE) {
            let names_rights = matches!(refused, Some(RegisterError::Spec(SpecError::ReadOnlyMemory(it))) if it == rights);
            assert!(names_rights, "{refused:?}");
        } else {
            assert_eq!(refused.is_none(), rights.suits_region(), "{rights:?}");
        }
    }
    let rights = Access::LOCAL_READ | Access::REMOTE_READ;
    let stag = fixture.region_of(scope, &bytes, &spec(rights));
    assert_eq!(fixture.access(user, stag, 0, Access::REMOTE_READ), Ok(()));
    for right in [Access::LOCAL_WRITE, Access::REMOTE_WRITE] {
        let refused = fixture.access(user, stag, 0, right);
        assert_eq!(refused, Err(AccessError::Rights));
    }
    let shared = (fixture.table).register_shared(stag, scope, &spec(ALL));
    assert!(matches!(
        shared,
        Err(RegisterError::Spec(SpecError::ReadOnlyMemory(_)))
    ));
    let again = (fixture.table).reregister(stag.index(), scope, &memory, &spec(ALL));
    assert!(again.is_err());
}

/// Pieces that follow each other are of one region mostly, which is looked up once.
#[test]
fn view_that_was_looked_up_last_serves_no_other_key() {
    let mut it = Fixture::new();
    let user = it.user(PD);
    let (stag, other) = (it.region(ALL), it.region(ALL));
    let wrong = other_key(stag);
    let views = || Views::new(&it.table, user, Access::LOCAL_WRITE);
    for mut views in [
        views(),
        views().beginning_with(stag),
        views().beginning_with(wrong),
    ] {
        for (name, is_there) in [
            (stag, true),
            (wrong, false),
            (stag, true),
            (other, true),
            (wrong, false),
            (wrong, false),
        ] {
            assert_eq!(views.bytes(name, 0, 1).is_some(), is_there, "{name:?}");
        }
        assert!(views.bytes(stag, 4095, 1).is_some());
        assert!(views.bytes(stag, 4095, 2).is_none());
    }
}
