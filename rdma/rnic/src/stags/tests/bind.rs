//! Binding of memory windows: legal pairs, and the state of a window afterwards (verbs draft
//! §7.10).

use super::*;
use crate::model::{CompletionStatus, DeallocateError, MAX_STAGS};

const READ: Access = Access::REMOTE_READ;
const WRITE: Access = Access::REMOTE_WRITE;

#[test]
fn bound_window_is_its_queue_pairs_alone_and_valid_with_the_key_of_the_bind() {
    let mut it = Fixture::new();
    let (user, neighbour) = (it.user(PD), it.user(PD));
    let (window, region) = (it.window(), it.va_region(ALL));
    let unbound = it.table.query_window(window.index()).unwrap();
    assert_eq!((unbound.key, unbound.pd), (None, PD));
    let invalid = Err(AccessError::InvalidStag);
    assert_eq!(it.access(user, window, VA, READ), invalid);

    let stag = window.with_key(0x5a);
    let bound = it.table.bind(user, &bind(stag, region));
    assert_eq!(bound, Ok(()));
    let info = it.table.query_window(window.index()).unwrap();
    assert_eq!((info.key, info.pd), (Some(0x5a), PD));
    assert_eq!(info.access, READ | WRITE);
    for right in [READ, WRITE] {
        assert_eq!(it.access(user, stag, VA, right), Ok(()));
        let refused = it.access(neighbour, stag, VA, right);
        assert_eq!(refused, Err(AccessError::NotAssociated));
        for key in (0..=255).filter(|key| *key != 0x5a) {
            let stale = it.access(user, stag.with_key(key), VA, right);
            assert_eq!(stale, invalid);
        }
    }
    // No scatter/gather list can name it.
    for right in [Access::LOCAL_READ, Access::LOCAL_WRITE] {
        assert_eq!(it.access(user, stag, VA, right), invalid);
        assert_eq!(it.access(neighbour, stag, VA, right), invalid);
    }
}

#[test]
fn window_is_bounded_to_the_byte_and_based_as_asked() {
    let mut it = Fixture::new();
    let user = it.user(PD);
    let bytes = memory();
    let spec = RegionSpec::new(ALL).at(VA);
    let region = it.region_of(StagScope::Domain(PD), &bytes, &spec);
    for (zero_based, base) in [(false, VA + 10), (true, 0)] {
        let window = it.window();
        let part = Bind {
            to: VA + 10,
            len: 20,
            zero_based,
            access: WRITE,
            ..bind(window, region)
        };
        assert_eq!(it.table.bind(user, &part), Ok(()));
        assert_eq!(part.remote(3).to, base + 3);
        let access = |to, len| {
            let access = it.table.access(user, window, to, len, WRITE);
            access.map(|bytes| bytes.write(&[1]).unwrap())
        };
        bytes.fill(0..4096, 0).unwrap();
        assert_eq!((access(base, 1), access(base + 19, 1)), (Ok(()), Ok(())));
        let expected: Vec<u8> = (0..4096).map(|at| (at == 10 || at == 29).into()).collect();
        assert_eq!(bytes.to_vec(), expected);
        assert_eq!(access(base, 20), Ok(()));
        let outside = Err(AccessError::Bounds);
        for (to, len) in [(base.wrapping_sub(1), 1), (base + 20, 1), (base, 21)] {
            let wraps = to.checked_add(len).is_none();
            let refused = if wraps {
                Err(AccessError::Wrap)
            } else {
                outside
            };
            assert_eq!(access(to, len), refused, "{to} {len}");
        }
        let read = it.access(user, window, base, READ);
        assert_eq!(read, Err(AccessError::Rights));
    }
}

#[test]
fn window_lies_within_its_region_to_the_byte() {
    let mut it = Fixture::new();
    let user = it.user(PD);
    let region = it.va_region(ALL);
    let fits = [(VA, 4096), (VA, 1), (VA + 4095, 1), (VA + 4096, 0), (VA, 0)];
    let outside = [
        (VA - 1, 1),
        (VA - 1, 4097),
        (VA, 4097),
        (VA + 1, 4096),
        (VA + 4096, 1),
        (0, 1),
    ];
    let cases = fits.map(|it| (it, Ok(()))).into_iter();
    let cases = cases.chain(outside.map(|it| (it, Err(CompletionStatus::BaseBounds))));
    let wraps = [(u64::MAX, 2), (VA, u64::MAX)].map(|it| (it, Err(CompletionStatus::Wrap)));
    for ((to, len), expected) in cases.chain(wraps) {
        for zero_based in [false, true] {
            let window = it.window();
            let part = Bind {
                to,
                len,
                zero_based,
                ..bind(window, region)
            };
            assert_eq!(it.table.bind(user, &part), expected, "{to:#x} {len}");
        }
    }
}

impl Fixture {
    /// Binds with VA-based offsets, then with zero-based ones.
    fn bind_of_either_addressing(
        &mut self,
        user: QpIdentity,
        window: Stag,
        region: Stag,
    ) -> [Result<(), CompletionStatus>; 2] {
        [false, true].map(|zero_based| {
            let bind = Bind {
                zero_based,
                ..bind(window, region)
            };
            self.table.bind(user, &bind)
        })
    }
}

#[test]
fn bind_needs_a_window_a_region_and_one_domain() {
    let mut it = Fixture::new();
    let (user, stranger) = (it.user(PD), it.user(OTHER_PD));
    let unable = it.table.join(PD, QpAccess::PHYSICAL);
    let (window, region) = (it.window(), it.va_region(ALL));
    let spec = RegionSpec::new(ALL).at(VA);
    let foreign_region = it.region_of(StagScope::Domain(OTHER_PD), &memory(), &spec);
    let foreign_window = it.table.allocate_window(StagScope::Domain(OTHER_PD));
    let foreign_window = foreign_window.unwrap();
    let zero_based = it.region(ALL);
    let unwilling = it.va_region(ALL.difference(Access::BIND_WINDOWS));
    let invalid = it.va_region(ALL);
    it.table.invalidate_local(user, invalid).unwrap();
    let other_window = it.window();
    #[rustfmt::skip]
    let cases = [
        (unable, window, region, CompletionStatus::AccessViolation),
        (stranger, window, region, CompletionStatus::InvalidPd),
        (user, foreign_window, region, CompletionStatus::InvalidPd),
        (user, window, foreign_region, CompletionStatus::InvalidPd),
        (user, Stag(7 << 8), region, CompletionStatus::InvalidWindow),
        (user, region, region, CompletionStatus::InvalidWindow),
        (user, window, Stag(7 << 8), CompletionStatus::InvalidRegion),
        (user, window, other_key(region), CompletionStatus::InvalidRegion),
        (user, window, other_window, CompletionStatus::InvalidRegion),
        (user, window, invalid, CompletionStatus::InvalidRegion),
        (user, window, zero_based, CompletionStatus::InvalidRegion),
        (user, window, unwilling, CompletionStatus::AccessViolation),
    ];
    for (n, (user, window, region, status)) in cases.into_iter().enumerate() {
        let outcomes = it.bind_of_either_addressing(user, window, region);
        assert_eq!(outcomes, [Err(status); 2], "case {n}");
    }
    let still = it.table.query_window(window.index()).unwrap();
    assert!(!still.is_valid());
    assert_eq!(it.table.bind(user, &bind(window, region)), Ok(()));
    let again = it.table.bind(user, &bind(other_key(window), region));
    assert_eq!(again, Err(CompletionStatus::StagNotInvalid));
    assert_eq!(it.access(user, window, VA, READ), Ok(()), "as it was bound");
}

#[test]
fn rights_of_a_bind_are_judged_by_the_local_ones_of_the_region() {
    let mut it = Fixture::new();
    let user = it.user(PD);
    for local in [Access::LOCAL_READ, Access::LOCAL_WRITE, LOCAL] {
        let region = it.va_region(local | Access::BIND_WINDOWS);
        for access in [Access::empty(), READ, WRITE, READ | WRITE] {
            let window = it.window();
            let request = Bind {
                access,
                ..bind(window, region)
            };
            let bound = it.table.bind(user, &request);
            let suits = access.suits_window_on(local);
            let expected = suits.then_some(()).ok_or(CompletionStatus::AccessViolation);
            assert_eq!(bound, expected, "{access:?} on {local:?}");
            for right in access.iter().filter(|_| bound.is_ok()) {
                let through_window = it.access(user, window, VA, right);
                assert_eq!(through_window, Ok(()));
                let directly = it.access(user, region, VA, right);
                assert_eq!(directly, Err(AccessError::Rights), "the region grants none");
            }
        }
    }
}

#[test]
fn regions_and_queue_pairs_know_the_windows_that_are_bound_to_them() {
    let mut it = Fixture::new();
    let (user, neighbour) = (it.user(PD), it.user(PD));
    let (region, other) = (it.va_region(ALL), it.va_region(ALL));
    let windows: Vec<Stag> = (0..50).map(|_| it.bound(user, region)).collect();
    assert!(it.table.has_windows(user) && !it.table.has_windows(neighbour));
    for window in windows {
        let refused = it.table.deallocate(region.index());
        assert_eq!(refused, Err(DeallocateError::WindowsBound));
        assert!(it.table.has_windows(user));
        assert_eq!(it.access(user, region, VA, LOCAL), Ok(()), "unchanged");
        assert_eq!(it.table.deallocate(window.index()), Ok(()));
    }
    assert!(!it.table.has_windows(user));
    assert_eq!(it.table.deallocate(region.index()), Ok(()));
    assert_eq!(it.table.deallocate(other.index()), Ok(()));
}

#[test]
#[cfg_attr(miri, ignore = "needs hours for 65,534 windows")]
fn all_windows_that_there_can_be_are_bound_to_one_region_by_one_queue_pair() {
    let mut it = Fixture::new();
    let user = it.user(PD);
    let region = it.va_region(ALL);
    let mut last = region;
    for _ in 1..MAX_STAGS {
        last = it.bound(user, region);
    }
    assert!(it.table.allocate_window(StagScope::Domain(PD)).is_err());
    assert_eq!(it.access(user, last, VA, WRITE), Ok(()));
    it.table.leave(user);
    assert_eq!(it.table.deallocate(region.index()), Ok(()));
}

#[test]
fn what_owns_windows_takes_them_away_when_it_goes() {
    let mut it = Fixture::new();
    let (user, neighbour) = (it.user(PD), it.user(PD));
    let (region, other) = (it.va_region(ALL), it.va_region(ALL));
    let lost = it.bound(user, region);
    let kept = it.bound(user, other);
    let of_neighbour = it.bound(neighbour, other);
    let invalid = Err(AccessError::InvalidStag);
    it.table.release(region.index());
    assert_eq!(it.access(user, region, VA, LOCAL), invalid);
    assert_eq!(it.access(user, lost, VA, READ), invalid);
    assert_eq!(it.access(user, kept, VA, READ), Ok(()));
    it.table.leave(user);
    assert_eq!(it.access(user, kept, VA, READ), invalid);
    assert_eq!(it.access(neighbour, of_neighbour, VA, READ), Ok(()));
    assert!(!it.table.has_windows(user) && it.table.has_windows(neighbour));
    // The windows themselves are there to be bound again.
    for window in [lost, kept] {
        let again = bind(window, other);
        assert_eq!(it.table.bind(neighbour, &again), Ok(()));
    }
}

#[test]
fn window_can_be_bound_and_invalidated_for_ever() {
    const ROUNDS: u32 = if cfg!(miri) { 20 } else { 1000 };
    let mut it = Fixture::new();
    let user = it.user(PD);
    let (window, region) = (it.window(), it.va_region(ALL));
    for round in 0..ROUNDS {
        let stag = window.with_key(round.to_be_bytes()[3]);
        assert_eq!(it.table.bind(user, &bind(stag, region)), Ok(()));
        assert_eq!(it.access(user, stag, VA, WRITE), Ok(()));
        assert_eq!(it.table.invalidate_local(user, stag), Ok(()));
        let access = it.access(user, stag, VA, WRITE);
        assert_eq!(access, Err(AccessError::InvalidStag));
    }
    assert!(!it.table.has_windows(user));
    assert_eq!(it.table.deallocate(region.index()), Ok(()));
}
