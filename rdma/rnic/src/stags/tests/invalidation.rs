//! The four ways to Invalid come down to two: local and by the peer.

use xwarp_iwarp::InvalidateError;

use super::*;
use crate::model::CompletionStatus;

#[test]
fn region_without_remote_rights_cannot_be_invalidated_remotely() {
    let mut it = Fixture::new();
    let (user, stranger) = (it.user(PD), it.user(OTHER_PD));
    let local = it.region(Access::LOCAL_READ);
    let remote = it.region(Access::LOCAL_READ | Access::REMOTE_READ);
    let atomic = it.region(LOCAL | Access::REMOTE_ATOMIC);
    let check = |user, stag| it.table.check_invalidate(user, stag);
    assert_eq!(check(user, local), Err(InvalidateError::Rights));
    assert_eq!(check(user, remote), Ok(()));
    assert_eq!(check(user, atomic), Ok(()));
    let refused = Err(InvalidateError::NotAssociated);
    assert_eq!(check(stranger, remote), refused);
    for unknown in [Stag(7), other_key(remote)] {
        assert_eq!(check(user, unknown), Err(InvalidateError::InvalidStag));
    }
    assert_eq!(it.access(user, local, 0, Access::LOCAL_READ), Ok(()));
}

#[test]
fn region_of_one_queue_pair_is_invalidated_by_no_other() {
    let mut it = Fixture::new();
    let (owner, neighbour) = (it.user(PD), it.user(PD));
    let spec = RegionSpec::new(ALL);
    let stag = it.region_of(StagScope::QueuePair(owner), &memory(), &spec);
    let refused = it.table.check_invalidate(neighbour, stag);
    assert_eq!(refused, Err(InvalidateError::NotAssociated));
    let refused = it.table.invalidate_local(neighbour, stag);
    assert_eq!(refused, Err(CompletionStatus::InvalidPd));
    assert_eq!(it.table.check_invalidate(owner, stag), Ok(()));
    it.table.leave(owner);
    let heir = it.user(PD);
    let refused = it.table.check_invalidate(heir, stag);
    assert_eq!(refused, Err(InvalidateError::NotAssociated));
}

#[test]
fn region_that_several_queue_pairs_may_use_cannot_be_invalidated_remotely() {
    let mut it = Fixture::new();
    let shared = it.region(ALL);
    let user = it.user(PD);
    it.user(OTHER_PD);
    assert_eq!(it.table.check_invalidate(user, shared), Ok(()), "alone");
    let neighbour = it.user(PD);
    for user in [user, neighbour] {
        let refused = it.table.check_invalidate(user, shared);
        assert_eq!(refused, Err(InvalidateError::Forbidden));
    }
    it.table.leave(user);
    let last = it.table.check_invalidate(neighbour, shared);
    assert_eq!(last, Ok(()), "alone again");
}

/// A queue pair of another engine may reregister memory between the check and the invalidation.
#[test]
fn stag_that_was_registered_anew_since_it_was_checked_stays_valid() {
    let mut it = Fixture::new();
    let user = it.user(PD);
    let former = it.region(ALL);
    assert_eq!(it.table.check_invalidate(user, former), Ok(()));
    let (scope, memory) = (StagScope::Domain(PD), RegionMemory::Whole(memory()));
    let spec = RegionSpec::new(ALL).with_key(other_key(former).key());
    let anew = it.table.reregister(former.index(), scope, &memory, &spec);
    let anew = anew.unwrap();
    it.table.invalidate(former);
    assert_eq!(it.access(user, anew, 0, Access::LOCAL_READ), Ok(()));
    it.table.invalidate(anew);
    assert!(it.access(user, anew, 0, Access::LOCAL_READ).is_err());
}

#[test]
fn local_invalidation_keeps_all_but_the_memory() {
    let mut it = Fixture::new();
    let (user, stranger) = (it.user(PD), it.user(OTHER_PD));
    let stag = it.region(LOCAL | Access::REMOTE_READ);
    let before = it.table.query_region(stag.index()).unwrap();
    let refusals = [
        (user, other_key(stag), CompletionStatus::InvalidStag),
        (user, Stag(7), CompletionStatus::InvalidStag),
        (stranger, stag, CompletionStatus::InvalidPd),
    ];
    for (user, stag, status) in refusals {
        assert_eq!(it.table.invalidate_local(user, stag), Err(status));
    }
    assert_eq!(it.table.query_region(stag.index()), Ok(before));
    // With any key, once there is none (verbs draft §7.8).
    for stag in [stag, stag, other_key(stag)] {
        assert_eq!(it.table.invalidate_local(user, stag), Ok(()));
        let after = it.table.query_region(stag.index()).unwrap();
        assert!(!after.is_valid());
        assert_eq!((after.pd, after.entries), (PD, before.entries));
        assert_eq!(after.remote_access, before.remote_access);
        for right in [Access::LOCAL_READ, Access::REMOTE_READ] {
            let access = it.access(user, stag, 0, right);
            assert_eq!(access, Err(AccessError::InvalidStag));
        }
        // The peer needs a valid one (RFC 5040 §7.2).
        let again = it.table.check_invalidate(user, stag);
        assert_eq!(again, Err(InvalidateError::InvalidStag));
        let refused = it.table.check_invalidate(stranger, stag);
        assert_eq!(refused, Err(InvalidateError::NotAssociated));
        let refused = it.table.invalidate_local(stranger, stag);
        assert_eq!(refused, Err(CompletionStatus::InvalidPd));
    }
}

#[test]
fn invalidation_leaves_other_registrations_of_the_memory() {
    let mut it = Fixture::new();
    let user = it.user(PD);
    let (bytes, spec) = (memory(), RegionSpec::new(LOCAL));
    let first = it.region_of(StagScope::Domain(PD), &bytes, &spec);
    let second = it.region_of(StagScope::Domain(PD), &bytes, &spec);
    assert_eq!(it.table.invalidate_local(user, first), Ok(()));
    assert_eq!(it.access(user, second, 0, LOCAL), Ok(()));
}

#[test]
fn region_with_windows_is_invalidated_by_nobody() {
    let mut it = Fixture::new();
    let user = it.user(PD);
    let region = it.va_region(ALL);
    let window = it.bound(user, region);
    let refused = it.table.invalidate_local(user, region);
    assert_eq!(refused, Err(CompletionStatus::InvalidStag));
    let refused = it.table.check_invalidate(user, region);
    assert_eq!(refused, Err(InvalidateError::Forbidden));
    assert_eq!(it.access(user, region, VA, LOCAL), Ok(()));
    assert_eq!(it.access(user, window, VA, Access::REMOTE_READ), Ok(()));
    assert_eq!(it.table.invalidate_local(user, window), Ok(()));
    assert_eq!(it.table.invalidate_local(user, region), Ok(()));
}

#[test]
fn bound_window_is_invalidated_by_its_queue_pair_and_an_unbound_one_by_its_domain() {
    let mut it = Fixture::new();
    let (user, neighbour, stranger) = (it.user(PD), it.user(PD), it.user(OTHER_PD));
    let region = it.va_region(ALL);
    let window = it.bound(user, region);
    for other in [neighbour, stranger] {
        let refused = it.table.invalidate_local(other, window);
        assert_eq!(refused, Err(CompletionStatus::InvalidPd));
        let refused = it.table.check_invalidate(other, window);
        assert_eq!(refused, Err(InvalidateError::NotAssociated));
    }
    let wrong = it.table.invalidate_local(user, other_key(window));
    assert_eq!(wrong, Err(CompletionStatus::InvalidStag));
    let info = it.table.query_window(window.index()).unwrap();
    assert!(info.is_valid(), "after all that");
    // Several queue pairs share the domain, but only one the window.
    assert_eq!(it.table.check_invalidate(user, window), Ok(()));
    it.table.invalidate(window);
    let info = it.table.query_window(window.index()).unwrap();
    assert_eq!((info.key, info.pd), (None, PD));
    assert_eq!(info.access, Access::empty());
    for (user, fits) in [(user, true), (neighbour, true), (stranger, false)] {
        let local = it.table.invalidate_local(user, window);
        let remote = it.table.check_invalidate(user, window);
        assert_eq!((local.is_ok(), remote.is_ok()), (fits, false));
    }
}
