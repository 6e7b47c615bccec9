//! Shared regions (verbs draft §7.3.2.4).

use xwarp_iwarp::InvalidateError;

use super::*;
use crate::model::{CompletionStatus, RegisterError, SpecError};

#[test]
fn shared_region_is_the_same_memory_with_all_else_of_its_own() {
    let mut it = Fixture::new();
    let (user, stranger) = (it.user(PD), it.user(OTHER_PD));
    let bytes = memory();
    let spec = RegionSpec::new(Access::LOCAL_READ);
    let first = it.region_of(StagScope::Domain(PD), &bytes, &spec);
    let before = it.table.query_region(first.index()).unwrap();
    let other = RegionSpec::new(LOCAL | Access::REMOTE_WRITE)
        .at(VA)
        .with_key(3);
    let scope = StagScope::Domain(OTHER_PD);
    let second = it.table.register_shared(first, scope, &other).unwrap();
    assert_ne!(second.index(), first.index());
    assert_eq!(second.key(), 3);
    let info = it.table.query_region(second.index()).unwrap();
    assert_eq!((info.pd, info.access), (OTHER_PD, other.access));
    assert!(info.shared && info.is_valid() && info.remote_access);
    let after = it.table.query_region(first.index()).unwrap();
    let as_before = crate::model::RegionInfo {
        shared: true,
        ..before
    };
    assert_eq!(after, as_before, "and nothing else of it has changed");

    let place = it
        .table
        .access(stranger, second, VA + 4095, 1, Access::REMOTE_WRITE);
    place.unwrap().write(b"!").unwrap();
    assert_eq!(bytes.to_vec()[4095], b'!');
    let beyond = it.access(stranger, second, VA + 4096, LOCAL);
    assert_eq!(beyond, Err(AccessError::Bounds), "as long as the first");
    assert_eq!(it.access(user, first, 4095, Access::LOCAL_READ), Ok(()));
    let refused = it.access(user, second, VA, LOCAL);
    assert_eq!(refused, Err(AccessError::NotAssociated));
}

#[test]
fn every_key_and_every_valid_set_of_rights_is_taken() {
    const STEP: usize = if cfg!(miri) { 15 } else { 1 };
    let mut it = Fixture::new();
    let user = it.user(PD);
    let first = it.region(Access::LOCAL_READ);
    let scope = StagScope::Domain(PD);
    for key in (0..=255).step_by(STEP) {
        let spec = RegionSpec::new(LOCAL).with_key(key);
        let stag = it.table.register_shared(first, scope, &spec).unwrap();
        assert_eq!(it.access(user, stag.with_key(key), 0, LOCAL), Ok(()));
        let wrong = it.access(user, other_key(stag), 0, LOCAL);
        assert_eq!(wrong, Err(AccessError::InvalidStag));
    }
    for access in (0..16).map(Access::from_bits_retain) {
        let spec = RegionSpec::new(access);
        let shared = it.table.register_shared(first, scope, &spec);
        assert_eq!(shared.is_ok(), access.suits_region(), "{access:?}");
        assert!(shared.is_ok() || matches!(shared, Err(RegisterError::Spec(SpecError::Rights(_)))));
    }
    let flagless = RegionSpec::new(ALL).remote_access(false);
    assert!(it.table.register_shared(first, scope, &flagless).is_err());
}

#[test]
fn only_a_valid_region_with_its_whole_stag_can_be_shared() {
    let mut it = Fixture::new();
    let user = it.user(PD);
    let (region, invalid, window) = (it.va_region(ALL), it.region(ALL), it.window());
    it.table.invalidate_local(user, invalid).unwrap();
    let bound = it.bound(user, region);
    let scope = StagScope::Domain(PD);
    for stag in [invalid, window, bound, other_key(region), Stag(7 << 8)] {
        let spec = RegionSpec::new(LOCAL).at(VA);
        let refused = it.table.register_shared(stag, scope, &spec);
        assert!(matches!(refused, Err(RegisterError::InvalidStag)));
    }
    let shifted = RegionSpec::new(LOCAL).at(VA + 1);
    let refused = it.table.register_shared(region, scope, &shifted);
    let address = SpecError::VirtualAddress(VA + 1);
    assert!(matches!(refused, Err(RegisterError::Spec(error)) if error == address));
    let info = it.table.query_region(region.index()).unwrap();
    assert!(!info.shared, "what was refused has done nothing");

    let spec = RegionSpec::new(LOCAL).at(VA + 9 * PAGE);
    let shared = it.table.register_shared(region, scope, &spec).unwrap();
    assert_eq!(it.access(user, shared, VA + 9 * PAGE, LOCAL), Ok(()));
    let through_window = it.access(user, bound, VA, Access::REMOTE_READ);
    assert_eq!(through_window, Ok(()), "windows stay");
    assert!(
        it.table.register_shared(shared, scope, &spec).is_ok(),
        "of shared ones, too"
    );
}

#[test]
fn what_was_shared_once_is_never_invalid_again() {
    let mut it = Fixture::new();
    let user = it.user(PD);
    let scope = StagScope::Domain(PD);
    let first = it.region(ALL);
    let spec = RegionSpec::new(ALL);
    let second = it.table.register_shared(first, scope, &spec).unwrap();
    for stag in [first, second] {
        let refused = it.table.invalidate_local(user, stag);
        assert_eq!(refused, Err(CompletionStatus::InvalidStag));
        let refused = it.table.check_invalidate(user, stag);
        assert_eq!(refused, Err(InvalidateError::Forbidden));
        let request = FastRegister {
            stag,
            list: pages(&[0]),
            access: LOCAL,
            addressing: Addressing::ZeroBased,
        };
        let refused = it.table.fast_register(user, &request);
        assert_eq!(refused, Err(CompletionStatus::InvalidStag));
        assert_eq!(it.access(user, stag, 0, ALL), Ok(()));
    }
    assert_eq!(it.table.deallocate(first.index()), Ok(()));
    assert_eq!(it.access(user, second, 0, ALL), Ok(()));
    let alone = it.table.query_region(second.index()).unwrap();
    assert!(alone.shared);
}

#[test]
fn windows_can_be_bound_to_a_shared_region() {
    let mut it = Fixture::new();
    let user = it.user(PD);
    let region = it.va_region(ALL);
    let spec = RegionSpec::new(ALL).at(VA);
    let shared = it
        .table
        .register_shared(region, StagScope::Domain(PD), &spec);
    let shared = shared.unwrap();
    let window = it.bound(user, shared);
    assert_eq!(it.access(user, window, VA, Access::REMOTE_WRITE), Ok(()));
    assert!(it.table.deallocate(shared.index()).is_err());
    assert_eq!(it.table.deallocate(region.index()), Ok(()), "it has none");
    assert_eq!(it.access(user, window, VA, Access::REMOTE_WRITE), Ok(()));
}
