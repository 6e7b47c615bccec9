//! `STag`s without memory, and Fast-Register (verbs draft §7.3.2.1, §7.3.2.5).

use super::*;
use crate::model::{CompletionStatus, MAX_LIST_ENTRIES, RegisterError, SpecError};

fn request(stag: Stag) -> FastRegister {
    FastRegister {
        stag,
        list: pages(&[3 * PAGE, PAGE]),
        access: LOCAL,
        addressing: Addressing::ZeroBased,
    }
}

#[test]
fn allocated_stag_is_invalid_until_memory_is_registered_with_it() {
    let mut it = Fixture::new();
    let user = it.user(PD);
    let stag = it.table.allocate(StagScope::Domain(PD), 2, true).unwrap();
    let info = it.table.query_region(stag.index()).unwrap();
    assert_eq!((info.key, info.pd, info.entries), (None, PD, 2));
    assert!(info.remote_access && !info.shared);
    let access = it.access(user, stag, 0, Access::LOCAL_READ);
    assert_eq!(access, Err(AccessError::InvalidStag));

    let stag = stag.with_key(0xa5);
    let access = LOCAL | Access::REMOTE_WRITE;
    let with_remote = FastRegister {
        access,
        ..request(stag)
    };
    assert_eq!(it.table.fast_register(user, &with_remote), Ok(()));
    let info = it.table.query_region(stag.index()).unwrap();
    assert_eq!((info.key, info.access), (Some(0xa5), access));
    assert!(!info.shared && info.entries == 2 && info.remote_access);
    let place = it
        .table
        .access(user, stag, PAGE - 2, 4, Access::REMOTE_WRITE);
    place.unwrap().write(b"wxyz").unwrap();
    let area = it.table.area().to_vec();
    let at = |page: u64| usize::try_from(page * PAGE).unwrap();
    assert_eq!(area[at(4) - 2..at(4)], *b"wx", "end of page 3");
    assert_eq!(area[at(1)..at(1) + 2], *b"yz", "begin of page 1");
    let stale = it.access(user, other_key(stag), 0, LOCAL);
    assert_eq!(stale, Err(AccessError::InvalidStag));
}

#[test]
fn list_may_be_as_long_as_the_rnic_says() {
    let mut it = Fixture::new();
    let scope = StagScope::Domain(PD);
    for entries in [0, 1, MAX_LIST_ENTRIES] {
        let stag = it.table.allocate(scope, entries, true).unwrap();
        let info = it.table.query_region(stag.index()).unwrap();
        assert_eq!(info.entries, entries);
    }
    let refused = it.table.allocate(scope, MAX_LIST_ENTRIES + 1, true);
    let many = SpecError::TooManyEntries(MAX_LIST_ENTRIES + 1);
    assert!(matches!(refused, Err(RegisterError::Spec(error)) if error == many));
}

#[test]
fn fast_register_says_what_is_wrong_and_changes_nothing() {
    type Change = fn(&mut FastRegister);
    let mut it = Fixture::new();
    let user = it.user(PD);
    let stag = it.table.allocate(StagScope::Domain(PD), 2, true).unwrap();
    let local_only = it.table.allocate(StagScope::Domain(PD), 2, false).unwrap();
    #[rustfmt::skip]
    let cases: [(Change, CompletionStatus); 10] = [
        (|it| it.list.addresses = [&*it.list.addresses, &[0]].concat().into(), CompletionStatus::ListTooLong),
        (|it| it.access = Access::empty(), CompletionStatus::InvalidRights),
        (|it| it.access = Access::LOCAL_READ | Access::REMOTE_WRITE, CompletionStatus::InvalidRights),
        (|it| it.list.entry_size = 3000, CompletionStatus::InvalidPageSize),
        (|it| it.list.addresses = [1].into(), CompletionStatus::InvalidListEntry),
        (|it| it.list.addresses = [AREA as u64].into(), CompletionStatus::InvalidListEntry),
        (|it| it.list.first_byte_offset = PAGE + 1, CompletionStatus::InvalidFirstByteOffset),
        (|it| it.list.len = 2 * PAGE + 1, CompletionStatus::InvalidLength),
        (|it| it.addressing = Addressing::VaBased(PAGE + 1), CompletionStatus::InvalidVirtualAddress),
        (|it| it.addressing = Addressing::VaBased(0), CompletionStatus::InvalidVirtualAddress),
    ];
    for (change, status) in cases {
        let mut bad = request(stag);
        change(&mut bad);
        assert_eq!(it.table.fast_register(user, &bad), Err(status), "{bad:?}");
        let info = it.table.query_region(stag.index()).unwrap();
        assert!(!info.is_valid());
    }
    for right in Access::REMOTE.iter() {
        let remote = FastRegister {
            access: LOCAL | right,
            ..request(local_only)
        };
        let refused = it.table.fast_register(user, &remote);
        assert_eq!(refused, Err(CompletionStatus::InvalidRights), "no flag");
    }
    assert_eq!(it.table.fast_register(user, &request(local_only)), Ok(()));
}

#[test]
fn in_block_mode_blocks_of_any_size_are_registered() {
    let area = SharedBytes::anonymous(AREA).unwrap();
    let table = StagTable::new(area, PblMode::Block, random);
    let mut it = Fixture { table };
    let user = it.user(PD);
    let stag = it.table.allocate(StagScope::Domain(PD), 2, true).unwrap();
    let mut blocks = request(stag);
    blocks.list.entry_size = 0;
    let refused = it.table.fast_register(user, &blocks);
    assert_eq!(refused, Err(CompletionStatus::InvalidBufferSize));
    blocks.list = PhysicalList {
        entry_size: 7,
        addresses: vec![1001, 3].into(),
        first_byte_offset: 2,
        len: 12,
    };
    assert_eq!(it.table.fast_register(user, &blocks), Ok(()));
    let place = it.table.access(user, stag, 0, 12, Access::LOCAL_WRITE);
    place.unwrap().write(b"abcdefghijkl").unwrap();
    let area = it.table.area().to_vec();
    assert_eq!(area[1003..1008], *b"abcde");
    assert_eq!(area[3..10], *b"fghijkl");
}

#[test]
fn only_an_invalid_region_of_the_domain_that_is_not_shared_is_taken() {
    let mut it = Fixture::new();
    let (user, stranger) = (it.user(PD), it.user(OTHER_PD));
    let plain = it.table.join(PD, QpAccess::BIND_WINDOWS);
    let stag = it.table.allocate(StagScope::Domain(PD), 2, true).unwrap();
    let window = it.window();
    let valid = it.region(LOCAL);
    let cases = [
        (plain, stag, CompletionStatus::NotPrivileged),
        (stranger, stag, CompletionStatus::InvalidPd),
        (user, window, CompletionStatus::InvalidStag),
        (user, Stag(7 << 8), CompletionStatus::InvalidStag),
    ];
    for (user, stag, status) in cases {
        let refused = it.table.fast_register(user, &request(stag));
        assert_eq!(refused, Err(status));
    }
    let one_page = FastRegister {
        list: pages(&[0]),
        ..request(valid)
    };
    let refused = it.table.fast_register(user, &one_page);
    assert_eq!(refused, Err(CompletionStatus::StagNotInvalid));
    assert_eq!(it.access(user, valid, 0, LOCAL), Ok(()));
}

/// Whichever way the `STag` was made: allocated, registered or reregistered.
#[test]
fn invalidated_stag_is_registered_again_with_as_many_entries_as_it_had() {
    let mut it = Fixture::new();
    let user = it.user(PD);
    let scope = StagScope::Domain(PD);
    let spec = RegionSpec::new(LOCAL);
    let allocated = it.table.allocate(scope, 2, true).unwrap();
    let bytes = SharedBytes::anonymous(2 * 4096).unwrap();
    let registered = it.region_of(scope, &bytes, &spec);
    let reregistered = it.region(LOCAL);
    let list = RegionMemory::List(pages(&[0, PAGE]));
    let reregistered = it
        .table
        .reregister(reregistered.index(), scope, &list, &spec);
    for stag in [allocated, registered, reregistered.unwrap()] {
        let mut stag = stag;
        for _ in 0..300 {
            assert_eq!(it.table.invalidate_local(user, stag), Ok(()));
            stag = stag.with_key(stag.key().wrapping_add(1));
            assert_eq!(it.table.fast_register(user, &request(stag)), Ok(()));
            assert_eq!(it.access(user, stag, 2 * PAGE - 1, LOCAL), Ok(()));
        }
        it.table.invalidate_local(user, stag).unwrap();
        let mut long = request(stag);
        long.list.addresses = [&*long.list.addresses, &[0]].concat().into();
        let refused = it.table.fast_register(user, &long);
        assert_eq!(refused, Err(CompletionStatus::ListTooLong));
    }
}
