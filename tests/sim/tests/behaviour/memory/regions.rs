//! Regions with Tagged Offsets of their own, registered anew, and shared (verbs draft §7.3).

use super::*;

use xwarp::config::Progress;
use xwarp::error::RegisterError;
use xwarp::memory::{EntrySizes, PblMode, PhysicalList, RegionSpec};
use xwarp::{Rnic, RnicConfig};
use xwarp_test_kit::{MemoryRnic, Side};

#[test]
fn va_based_region_has_its_bytes_at_their_addresses() {
    for right in [READ, WRITE] {
        for (offset, end) in [
            (0, None),
            (924, None),
            (925, Some(outside(right))),
            (-1, Some(outside(right))),
        ] {
            let mut sim = sim();
            let (mut a, b) = sim.connected_pair();
            let region = b.va_region(KIB, Access::all(), VA);
            assert_eq!(region.remote(5).to, VA + 5);
            let at = RemoteAddress {
                stag: region.stag(),
                to: VA.wrapping_add_signed(offset),
            };
            let found = attempt(&mut sim, &mut a, &b, right, at);
            assert_eq!(found, end, "{right:?} {offset}");
            if right == WRITE && end.is_none() {
                let begin = usize::try_from(offset).unwrap();
                assert_eq!(region.bytes().to_vec()[begin..begin + 100], pattern(100));
            }
        }
        let mut sim = sim();
        let (mut a, b) = sim.connected_pair();
        let region = b.va_region(KIB, Access::all(), VA);
        let zero = RemoteAddress {
            stag: region.stag(),
            to: 0,
        };
        let found = attempt(&mut sim, &mut a, &b, right, zero);
        assert_eq!(found, Some(outside(right)), "as if it were zero-based");
    }
}

#[test]
fn local_work_names_a_va_based_region_by_its_addresses() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let region = b.va_region(KIB, LOCAL, VA);
    region.bytes().write(0, &pattern(KIB)).unwrap();
    a.post_recv(1, 10);
    b.post(SendRequest::send(WrId(1), region.local(700, 10)));
    settle(&mut sim, &mut b, &[Done::send(1, 10)]);
    assert_eq!(a.buffer(1), pattern(KIB)[700..710]);
    b.post(SendRequest::send(WrId(2), region.local(KIB as u64 - 9, 10)));
    let refused = failed(2, Opcode::Send, CompletionStatus::BaseBounds);
    settle(&mut sim, &mut b, &[refused]);
}

/// Pages of the region area, in an order of their own, with a First Byte Offset and an odd length.
/// What four pages hold.
fn page_contents(bytes: &[u8]) -> [[u8; 4096]; 4] {
    let (pages, []) = bytes.as_chunks() else {
        panic!("{} bytes are no pages", bytes.len());
    };
    pages.try_into().unwrap()
}

#[test]
fn list_of_pages_is_one_region_to_the_peer() {
    const LEN: usize = 9_999;
    for va in [None, Some(0x5000_0000 + 123)] {
        let mut sim = sim();
        let (mut a, b) = sim.connected_pair();
        let rnic = b.host().rnic();
        let memory = rnic.allocate_memory(16 * KIB).unwrap();
        let begin = rnic.physical_address(&memory).unwrap();
        let list = PhysicalList {
            entry_size: 4096,
            addresses: [3, 0, 2].map(|page| begin + page * 4096).into(),
            first_byte_offset: 123,
            len: LEN as u64,
        };
        let spec = RegionSpec::new(Access::all());
        let spec = va.map_or(spec, |va| spec.at(va));
        let region = b.host().pd().register_with(list, &spec).unwrap();
        assert_eq!(region.remote(0).to, va.unwrap_or(0));
        assert_eq!(region.query().unwrap().entries, 3);
        let sink = a.target(LEN);
        a.post_write(1, &pattern(LEN), region.remote(0));
        a.post_read(2, sink.local(0, LEN), region.remote(0));
        settle(&mut sim, &mut a, &[Done::write(1, LEN), Done::read(2, LEN)]);
        assert_eq!(sink.to_vec(), pattern(LEN));
        let [first, other, third, fourth] = page_contents(&memory.to_vec());
        let listed = [&fourth[123..], &first, &third].concat();
        assert_eq!(listed[..LEN], pattern(LEN));
        assert_eq!(other, [0; 4096], "the page that is not listed");
        a.post_write(3, b"!", region.remote(LEN as u64));
        sim.run_until_idle();
        assert_refused("beyond", &a, &b, TermCode::ddp_tagged(1));
    }
}

#[test]
fn reregistered_region_is_closed_to_its_former_stag() {
    for right in [READ, WRITE] {
        for old in [false, true] {
            let mut sim = sim();
            let (mut a, b) = sim.connected_pair();
            let region = b.region(KIB, LOCAL);
            let former = region.remote(0);
            let memory = b.host().rnic().allocate_memory(2 * KIB).unwrap();
            let spec = RegionSpec::new(Access::all());
            let pd = b.host().pd();
            let region = region.reregister(pd, memory.clone(), &spec).unwrap();
            assert_eq!(region.stag().index(), former.stag.index());
            assert_eq!(region.len(), 2 * KIB);
            let at = if old { former } else { region.remote(1900) };
            let end = attempt(&mut sim, &mut a, &b, right, at);
            assert_eq!(end, if old { Some(invalid(right)) } else { None });
            if right == WRITE && !old {
                assert_eq!(memory.to_vec()[1900..2000], pattern(100));
            }
        }
    }
}

#[test]
fn region_is_reregistered_into_another_domain() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let region = b.region(KIB, Access::all());
    let memory = region.bytes().clone();
    let other = b.host().rnic().allocate_pd().unwrap();
    let spec = RegionSpec::new(Access::all());
    let region = region.reregister(&other, memory, &spec).unwrap();
    assert_eq!(region.query().unwrap().pd, other.id());
    let end = attempt(&mut sim, &mut a, &b, READ, region.remote(0));
    assert_eq!(end, Some(not_associated(READ)));
}

#[test]
fn reregistration_that_fails_says_whether_the_region_is_left() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (mut a, mut b, region) = with_region(&mut sim);
    let memory = region.bytes().clone();
    let mut window = b.host().pd().allocate_window().unwrap();
    let bind = window.bind(region.remote(0), 100, WRITE);
    b.post(SendRequest::bind(WrId(1), bind));
    settle(&mut sim, &mut b, &[Done::bind(1)]);
    let fine = RegionSpec::new(LOCAL);

    let foreign = sim.a().rnic().allocate_pd().unwrap();
    let failed = region
        .reregister(&foreign, memory.clone(), &fine)
        .unwrap_err();
    assert!(matches!(failed.error, RegisterError::OtherRnic));
    let region = failed.region.unwrap();
    let pd = b.host().pd();
    let failed = region.reregister(pd, memory.clone(), &fine).unwrap_err();
    assert!(matches!(failed.error, RegisterError::WindowsBound));
    let region = failed.region.unwrap();
    assert!(region.query().unwrap().is_valid());
    let through_window = attempt(&mut sim, &mut a, &b, WRITE, bind.remote(0));
    assert_eq!(through_window, None);

    window.deallocate().unwrap();
    let place = region.remote(0);
    let bad = RegionSpec::new(WRITE);
    let failed = region
        .reregister(b.host().pd(), memory.clone(), &bad)
        .unwrap_err();
    assert!(failed.region.is_none() && matches!(failed.error, RegisterError::Spec(_)));
    let end = attempt(&mut sim, &mut a, &b, WRITE, place);
    assert_eq!(end, Some(invalid(WRITE)));
}

#[test]
fn shared_regions_are_one_memory_and_go_one_by_one() {
    let mut sim = sim();
    let (mut a, mut b, region) = with_region(&mut sim);
    let pd = b.host().pd();
    let spec = RegionSpec::new(LOCAL | READ);
    let shared = region.share(pd, &spec).unwrap();
    assert_ne!(shared.stag().index(), region.stag().index());
    assert!(region.query().unwrap().shared && shared.query().unwrap().shared);
    let mut window = pd.allocate_window().unwrap();
    let bind = window.bind(region.remote(0), 100, WRITE);
    b.post(SendRequest::bind(WrId(1), bind));
    settle(&mut sim, &mut b, &[Done::bind(1)]);
    a.post_write(1, &pattern(100), bind.remote(0));
    let sink = a.target(100);
    a.post_read(2, sink.local(0, 100), shared.remote(0));
    settle(&mut sim, &mut a, &[Done::write(1, 100), Done::read(2, 100)]);
    assert_eq!(sink.to_vec(), pattern(100));

    let place = shared.remote(0);
    shared.deallocate().unwrap();
    let still = attempt(&mut sim, &mut a, &b, WRITE, bind.remote(0));
    assert_eq!(still, None);
    let gone = attempt(&mut sim, &mut a, &b, READ, place);
    assert_eq!(gone, Some(invalid(READ)));
    assert!(region.query().unwrap().shared, "for ever");
}

#[test]
fn chosen_key_is_the_one_on_the_wire() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let memory = b.host().rnic().allocate_memory(KIB).unwrap();
    let spec = RegionSpec::new(Access::all()).with_key(0xc3);
    let region = b.host().pd().register_with(memory, &spec).unwrap();
    assert_eq!(region.stag().key(), 0xc3);
    let end = attempt(&mut sim, &mut a, &b, WRITE, region.remote(0));
    assert_eq!(end, None);
    let wrong = RemoteAddress {
        stag: region.stag().with_key(0xc4),
        to: 0,
    };
    let end = attempt(&mut sim, &mut a, &b, WRITE, wrong);
    assert_eq!(end, Some(invalid(WRITE)));
}

/// What was on its way to the former memory reaches neither that nor the new one.
#[test]
fn region_that_is_reregistered_while_the_peer_writes_is_left_alone() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let len = 1 << 20;
    let region = b.region(len, Access::all());
    let former = region.bytes().clone();
    a.post_write(1, &pattern(len), region.remote(0));
    sim.run_for(Duration::from_micros(120));
    let memory = b.host().rnic().allocate_memory(len).unwrap();
    let spec = RegionSpec::new(Access::all());
    let region = region.reregister(b.host().pd(), memory, &spec).unwrap();
    let at_that_time = former.to_vec();
    assert!(at_that_time != vec![0; len], "nothing was placed before");
    assert!(at_that_time != pattern(len), "everything was placed before");
    sim.run_until_idle();
    assert!(former.to_vec() == at_that_time);
    assert_eq!(region.bytes().to_vec(), vec![0; len]);
    assert_refused("reregistered", &a, &b, TermCode::ddp_tagged(0));
}

#[test]
fn regions_of_a_failed_queue_pair_are_invalidated_by_others() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (_a, mut b, region) = with_region(&mut sim);
    let (_c, mut d) = sim.connected_pair();
    let open = b.region(8, Access::all());
    let mut window = b.host().pd().allocate_window().unwrap();
    let bind = window.bind(region.remote(0), 100, WRITE);
    b.post(SendRequest::bind(WrId(1), bind));
    settle(&mut sim, &mut b, &[Done::bind(1)]);
    b.qp.abort().unwrap();
    sim.run_until_idle();
    assert!(window.query().unwrap().is_valid() && open.query().unwrap().is_valid());
    let refused = b.qp.destroy().unwrap_err();
    assert_eq!(refused.object.state(), QpState::Error);
    d.post(SendRequest::invalidate(WrId(2), open.stag()));
    settle(&mut sim, &mut d, &[Done::invalidate(2)]);
    assert!(!open.query().unwrap().is_valid());
    window.deallocate().unwrap();
    refused.object.destroy().unwrap();
}

/// Each mode takes what the other refuses, and says which it is (verbs draft §7.6.2).
#[test]
fn rnic_is_opened_for_lists_of_pages_or_of_blocks() {
    for (mode, entry_size, odd) in [(PblMode::Page, 4096, false), (PblMode::Block, 999, true)] {
        let rnic = rnic_with(mode, 64 * KIB);
        assert_eq!(rnic.pbl_mode(), mode);
        assert_eq!(rnic.query().unwrap().pbl_mode, mode);
        let memory = rnic.allocate_memory(8 * KIB).unwrap();
        let begin = rnic.physical_address(&memory).unwrap();
        let list = |entry_size, at| PhysicalList {
            entry_size,
            addresses: vec![begin + at].into(),
            first_byte_offset: 0,
            len: 999,
        };
        let (pd, spec) = (rnic.allocate_pd().unwrap(), RegionSpec::new(LOCAL));
        let region = pd.register_with(list(entry_size, 0), &spec).unwrap();
        assert!(region.query().unwrap().is_valid());
        let at_odd_place = pd.register_with(list(entry_size, 1), &spec);
        assert_eq!(at_odd_place.is_ok(), odd, "{mode:?}");
        let blocks = pd.register_with(list(999, 0), &spec);
        assert_eq!(blocks.is_ok(), odd, "{mode:?}");
    }
}

/// The sizes that Query RNIC names can be registered, and those beside them cannot.
#[test]
fn blocks_have_any_size_from_the_first_to_the_last_that_the_rnic_names() {
    let rnic = rnic_with(PblMode::Block, (1 << 30) + 1);
    let EntrySizes::Blocks(sizes) = rnic.query().unwrap().entry_sizes else {
        panic!("blocks have a range of sizes");
    };
    let (pd, spec) = (rnic.allocate_pd().unwrap(), RegionSpec::new(LOCAL));
    let (least, most) = (*sizes.start(), *sizes.end());
    for (entry_size, possible) in [
        (least, true),
        (most, true),
        (least - 1, false),
        (most + 1, false),
    ] {
        let list = PhysicalList {
            entry_size,
            addresses: vec![0].into(),
            first_byte_offset: 0,
            len: entry_size,
        };
        let region = pd.register_with(list, &spec);
        assert_eq!(region.is_ok(), possible, "{entry_size}: {region:?}");
    }
}

/// An RNIC without a link.
fn rnic_with(lists: PblMode, area: usize) -> Rnic {
    let config = RnicConfig::default()
        .progress(Progress::Manual)
        .pbl_mode(lists);
    let rnic = MemoryRnic::at(Side::A).config(config);
    rnic.region_area(area).open().0
}

#[test]
fn memory_is_kept_for_as_long_as_a_region_of_it_is_valid() {
    let rnic = rnic_with(PblMode::Page, 64 * KIB);
    let pd = rnic.allocate_pd().unwrap();
    let spec = RegionSpec::new(LOCAL);
    let all = rnic.allocate_memory(64 * KIB).unwrap();
    let first = pd.register_with(all, &spec).unwrap();
    let second = first.share(&pd, &spec).unwrap();
    assert!(rnic.allocate_memory(1).is_err());
    drop(first);
    assert!(
        rnic.allocate_memory(1).is_err(),
        "the second one has it still"
    );
    drop(second);
    assert!(rnic.allocate_memory(64 * KIB).is_ok());
}

#[test]
fn stag_means_nothing_to_another_rnic() {
    let mut sim = sim();
    let (a, mut b) = sim.connected_pair();
    let of_a = a.region(100, Access::all());
    b.post(SendRequest::send(WrId(1), of_a.local(0, 100)));
    let refused = failed(1, Opcode::Send, CompletionStatus::InvalidStag);
    settle(&mut sim, &mut b, &[refused]);
    assert_at_fault("foreign", &a, &b);
}
