//! Reregister, and what its errors leave (verbs draft §7.3.2.3).

use super::*;
use crate::model::{CompletionStatus, QueryError, RegisterError, SpecError};

fn whole(bytes: &SharedBytes) -> RegionMemory {
    RegionMemory::Whole(bytes.clone())
}

#[test]
fn region_has_all_that_is_new_under_the_same_index() {
    let mut it = Fixture::new();
    let (user, stranger) = (it.user(PD), it.user(OTHER_PD));
    let old = it.region(Access::LOCAL_READ);
    let bytes = SharedBytes::anonymous(10_000).unwrap();
    let rights = LOCAL | Access::REMOTE_WRITE;
    let key = old.key().wrapping_add(1); // its own is random
    let spec = RegionSpec::new(rights).at(VA).with_key(key);
    let scope = StagScope::Domain(OTHER_PD);
    let new = it
        .table
        .reregister(old.index(), scope, &whole(&bytes), &spec);
    let new = new.unwrap();
    assert_eq!(new, old.with_key(key));
    let info = it.table.query_region(new.index()).unwrap();
    assert_eq!((info.pd, info.access, info.entries), (OTHER_PD, rights, 3));
    assert!(info.is_valid() && info.remote_access && !info.shared);
    let place = it.table.access(stranger, new, VA, 10_000, rights);
    place.unwrap().write(b"new").unwrap();
    assert_eq!(bytes.to_vec()[..3], *b"new");
    let refused = it.access(user, new, VA, Access::LOCAL_READ);
    assert_eq!(refused, Err(AccessError::NotAssociated));
    for right in [Access::LOCAL_READ, Access::REMOTE_WRITE] {
        let stale = it.access(stranger, old, VA, right);
        assert_eq!(stale, Err(AccessError::InvalidStag));
    }
}

/// A region that a peer may do nothing with.
fn assert_local(it: &mut Fixture, user: QpIdentity, stag: Stag) {
    let info = it.table.query_region(stag.index()).unwrap();
    assert_eq!(info.access & Access::REMOTE, Access::empty());
    assert!(!info.remote_access);
    for right in Access::REMOTE.iter() {
        assert!(it.access(user, stag, VA, right).is_err(), "{right:?}");
    }
}

/// Whatever else is done with it or with its memory, a region that was made without remote rights
/// has none.
#[test]
fn remote_rights_come_to_a_local_region_by_reregister_or_a_new_one_only() {
    let mut it = Fixture::new();
    let user = it.user(PD);
    let (scope, spec) = (StagScope::Domain(PD), RegionSpec::new(ALL).at(VA));
    let local = LOCAL | Access::BIND_WINDOWS;
    let make = |it: &mut Fixture| {
        let spec = RegionSpec::new(local).at(VA);
        it.region_of(scope, &memory(), &spec)
    };
    let [shared, bound, fast, reregistered] = [0; 4].map(|_| make(&mut it));
    let alias = it.table.register_shared(shared, scope, &spec).unwrap();
    assert_eq!(it.access(user, alias, VA, Access::REMOTE_WRITE), Ok(()));
    let window = it.bound(user, bound);
    assert_eq!(it.access(user, window, VA, Access::REMOTE_WRITE), Ok(()));
    it.table.invalidate_local(user, fast).unwrap();
    let mut request = FastRegister {
        stag: fast,
        list: pages(&[0]),
        access: ALL,
        addressing: Addressing::ZeroBased,
    };
    let refused = it.table.fast_register(user, &request);
    assert_eq!(refused, Err(CompletionStatus::InvalidRights));
    request.access = LOCAL;
    assert_eq!(it.table.fast_register(user, &request), Ok(()));
    for stag in [shared, bound, fast] {
        assert_local(&mut it, user, stag);
    }
    let bytes = memory();
    let index = reregistered.index();
    let stag = it.table.reregister(index, scope, &whole(&bytes), &spec);
    let access = it.access(user, stag.unwrap(), VA, Access::REMOTE_WRITE);
    assert_eq!(access, Ok(()));
    it.table.deallocate(fast.index()).unwrap();
    let anew = it.region_of(scope, &bytes, &spec);
    assert_eq!(it.access(user, anew, VA, Access::REMOTE_WRITE), Ok(()));
}

#[test]
fn invalid_region_and_one_without_memory_become_valid() {
    let mut it = Fixture::new();
    let user = it.user(PD);
    let invalid = it.region(ALL);
    it.table.invalidate_local(user, invalid).unwrap();
    let allocated = it.table.allocate(StagScope::Domain(PD), 2, false).unwrap();
    for stag in [invalid, allocated] {
        let spec = RegionSpec::new(ALL);
        let scope = StagScope::Domain(PD);
        let new = it
            .table
            .reregister(stag.index(), scope, &whole(&memory()), &spec);
        assert_eq!(it.access(user, new.unwrap(), 0, ALL), Ok(()));
        let info = it.table.query_region(stag.index()).unwrap();
        assert!(info.remote_access, "only this can change the flag");
        it.table
            .invalidate_local(user, stag.with_key(info.key.unwrap()))
            .unwrap();
        let info = it.table.query_region(stag.index()).unwrap();
        assert!(!info.is_valid() && info.remote_access);
    }
}

#[test]
fn random_key_is_never_the_one_before() {
    const ROUNDS: usize = if cfg!(miri) { 20 } else { 1000 };
    let mut it = Fixture::new();
    let user = it.user(PD);
    let (bytes, spec) = (memory(), RegionSpec::new(LOCAL));
    let mut stag = it.region(LOCAL);
    for _ in 0..ROUNDS {
        let scope = StagScope::Domain(PD);
        let new = it
            .table
            .reregister(stag.index(), scope, &whole(&bytes), &spec);
        let new = new.unwrap();
        assert!(new != stag && new.index() == stag.index());
        assert_eq!(
            it.access(user, stag, 0, LOCAL),
            Err(AccessError::InvalidStag)
        );
        assert_eq!(it.access(user, new, 0, LOCAL), Ok(()));
        stag = new;
    }
}

#[test]
fn reregister_that_fails_for_its_stag_or_windows_leaves_the_region() {
    let mut it = Fixture::new();
    let user = it.user(PD);
    let scope = StagScope::Domain(PD);
    let fine = RegionSpec::new(LOCAL);
    let bound = it.va_region(ALL);
    let window = it.bound(user, bound);
    let shared = it.region(ALL);
    it.table.register_shared(shared, scope, &fine).unwrap();
    for (stag, windows) in [(bound, true), (shared, false), (window, false)] {
        let refused = it
            .table
            .reregister(stag.index(), scope, &whole(&memory()), &fine);
        let refused = refused.unwrap_err();
        assert!(refused.kept);
        let by_window = matches!(refused.cause, RegisterError::WindowsBound);
        assert!(
            by_window == windows
                && (windows || matches!(refused.cause, RegisterError::InvalidStag))
        );
    }
    assert_eq!(it.access(user, bound, VA, ALL), Ok(()));
    assert_eq!(it.access(user, shared, 0, ALL), Ok(()));
    assert_eq!(it.access(user, window, VA, Access::REMOTE_READ), Ok(()));
}

#[test]
fn reregister_that_fails_for_another_reason_deallocates_the_region() {
    let mut it = Fixture::new();
    let user = it.user(PD);
    let scope = StagScope::Domain(PD);
    let fine = RegionSpec::new(LOCAL);
    let list = |change: fn(&mut PhysicalList)| {
        let mut list = pages(&[0, PAGE]);
        change(&mut list);
        RegionMemory::List(list)
    };
    let (size, address, offset) = (3000, 5, PAGE + 1);
    let mode = PblMode::Page;
    let rights = RegionSpec::new(Access::REMOTE_READ);
    let (len, capacity) = (2 * PAGE + 1, 2 * PAGE);
    #[rustfmt::skip]
    let bad: [(RegionMemory, RegionSpec, SpecError); 7] = [
        (whole(&memory()), rights, SpecError::Rights(rights.access)),
        (whole(&memory()), RegionSpec::new(ALL).remote_access(false), SpecError::Rights(ALL)),
        (whole(&memory()), fine.at(u64::MAX), SpecError::Wrap { va: u64::MAX, len: memory().len() as u64 }),
        (list(|it| it.entry_size = 3000), fine, SpecError::EntrySize { mode, size }),
        (list(|it| it.addresses = [it.addresses[0], 5].into()), fine, SpecError::Entry { address }),
        (list(|it| it.first_byte_offset = PAGE + 1), fine, SpecError::FirstByteOffset { offset, size: PAGE }),
        (list(|it| it.len += 1), fine, SpecError::Length { len, capacity }),
    ];
    for (memory, spec, error) in bad {
        let stag = it.region(ALL);
        let refused = it.table.reregister(stag.index(), scope, &memory, &spec);
        let refused = refused.unwrap_err();
        assert!(!refused.kept);
        assert!(matches!(refused.cause, RegisterError::Spec(found) if found == error));
        let queried = it.table.query_region(stag.index());
        assert_eq!(queried, Err(QueryError::InvalidStag), "{memory:?}");
        let access = it.access(user, stag, 0, LOCAL);
        assert_eq!(access, Err(AccessError::InvalidStag));
        // The same is refused where there was nothing before.
        let refused = it.table.register(scope, &memory, &spec);
        assert!(matches!(refused, Err(RegisterError::Spec(found)) if found == error));
    }
}
