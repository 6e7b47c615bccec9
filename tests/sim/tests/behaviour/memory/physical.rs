//! Physical memory, for privileged queue pairs: Fast-Register and `STag` 0 (verbs draft §7.2.1,
//! §7.3.2.5).

use super::*;
use xwarp::memory::{FastRegister, PhysicalList, SharedBytes};
use xwarp::{QpConfig, RecvRequest, Sge};
use xwarp_sim_tests::{UNTAGGED_PAYLOAD, needs_link};

/// Bytes of the memory that B has.
const LEN: usize = 16 * KIB;

/// A connected pair whose B is privileged, and memory of B with its physical address.
fn privileged(sim: &mut Sim) -> (SimEnd, SimEnd, SharedBytes, u64) {
    let config = QpConfig::default().privileged(true);
    let (mut a, mut b) = (sim.a().end(&QpConfig::default()), sim.b().end(&config));
    sim.connect(&mut a, &mut b);
    let memory = b.host().rnic().allocate_memory(LEN).unwrap();
    let address = b.host().rnic().physical_address(&memory).unwrap();
    (a, b, memory, address)
}

/// Pages 2 and 0 of memory at this address.
fn two_pages(address: u64) -> PhysicalList {
    PhysicalList {
        entry_size: 4096,
        addresses: vec![address + 2 * 4096, address].into(),
        first_byte_offset: 0,
        len: 2 * 4096,
    }
}

#[test]
fn memory_is_registered_used_and_taken_away_without_polling_in_between() {
    needs_link!("it counts segments of a link's MTU");
    let mut sim = sim();
    let (mut a, mut b, memory, address) = privileged(&mut sim);
    memory.write(0, &pattern(LEN)).unwrap();
    let mut stag = b.host().pd().allocate_stag(2, true).unwrap();
    assert!(!stag.query().unwrap().is_valid());
    sim.run_until_idle();
    let sent = |b: &SimEnd| b.host().rnic().counters().unwrap().rdma.fpdus_out;
    let before = sent(&b);
    for round in 0..10 {
        a.post_recv(round, 2 * 4096);
        let request = stag.fast_register(two_pages(address), LOCAL | READ);
        let sge = Sge {
            stag: request.stag,
            to: 0,
            len: 2 * 4096,
        };
        let invalidate = SendRequest::invalidate(WrId(100 + round), request.stag);
        b.post(SendRequest::fast_register(WrId(round), request).unsignaled());
        b.post(SendRequest::send(WrId(50 + round), sge).unsignaled());
        b.post(invalidate.locally_fenced());
    }
    let done: Vec<Done> = (0..10).map(|i| Done::invalidate(100 + i)).collect();
    settle(&mut sim, &mut b, &done);
    let per_send = 8192_u64.div_ceil(UNTAGGED_PAYLOAD as u64);
    assert_eq!(sent(&b) - before, 10 * per_send, "nothing but the Sends");
    let all = pattern(LEN);
    let sent = [&all[2 * 4096..3 * 4096], &all[..4096]].concat();
    for round in 0..10 {
        assert_eq!(a.buffer(round), sent);
    }
    let info = stag.query().unwrap();
    assert_eq!(
        (info.is_valid(), info.entries, info.remote_access),
        (false, 2, true)
    );
}

#[test]
fn peer_uses_fast_registered_memory_by_its_rights() {
    for (access, right, end) in [
        (LOCAL | READ, READ, None),
        (LOCAL | WRITE, WRITE, None),
        (LOCAL | READ, WRITE, Some(forbidden(WRITE))),
        (LOCAL | WRITE, READ, Some(forbidden(READ))),
    ] {
        let mut sim = sim();
        let (mut a, mut b, memory, address) = privileged(&mut sim);
        let mut stag = b.host().pd().allocate_stag(2, true).unwrap();
        let request = stag.fast_register(two_pages(address), access);
        let at = RemoteAddress {
            stag: request.stag,
            to: 4096 - 50,
        };
        b.post(SendRequest::fast_register(WrId(1), request));
        settle(&mut sim, &mut b, &[Done::fast_register(1)]);
        let found = attempt(&mut sim, &mut a, &b, right, at);
        assert_eq!(found, end, "{right:?} of {access:?}");
        if right == WRITE && end.is_none() {
            let bytes = memory.to_vec();
            assert_eq!(bytes[3 * 4096 - 50..3 * 4096], pattern(100)[..50]);
            assert_eq!(bytes[..50], pattern(100)[50..]);
        }
    }
}

#[test]
fn region_that_was_registered_as_a_whole_can_be_registered_fast() {
    let mut sim = sim();
    let (mut a, mut b, memory, address) = privileged(&mut sim);
    let mut stag = b.region(2 * 4096, Access::all()).into_stag();
    let former = stag.stag();
    let request = stag.fast_register(two_pages(address), Access::all());
    b.post(SendRequest::invalidate(WrId(1), former));
    b.post(SendRequest::fast_register(WrId(2), request.clone()));
    let done = [Done::invalidate(1), Done::fast_register(2)];
    settle(&mut sim, &mut b, &done);
    let at = |stag| RemoteAddress { stag, to: 4096 };
    let end = attempt(&mut sim, &mut a, &b, WRITE, at(request.stag));
    assert_eq!(end, None);
    assert_eq!(memory.to_vec()[..100], pattern(100));
    let end = attempt(&mut sim, &mut a, &b, WRITE, at(former));
    assert_eq!(end, Some(invalid(WRITE)));
}

#[test]
fn fast_register_that_is_refused_fails_its_work_request_and_flushes_the_rest() {
    type Spoil = fn(&mut FastRegister);
    #[rustfmt::skip]
    let cases: [(&str, Spoil, CompletionStatus); 9] = [
        ("no STag", |it| it.stag = Stag(0x1234_5678), CompletionStatus::InvalidStag),
        ("too many pages", |it| it.list.addresses = [&*it.list.addresses, &[0]].concat().into(), CompletionStatus::ListTooLong),
        ("odd pages", |it| it.list.entry_size = 3000, CompletionStatus::InvalidPageSize),
        ("not aligned", |it| std::sync::Arc::make_mut(&mut it.list.addresses)[0] += 1, CompletionStatus::InvalidListEntry),
        ("first byte offset", |it| it.list.first_byte_offset = 4097, CompletionStatus::InvalidFirstByteOffset),
        ("too long", |it| it.list.len += 1, CompletionStatus::InvalidLength),
        ("rights", |it| it.access = READ, CompletionStatus::InvalidRights),
        ("address", |it| it.addressing = xwarp::memory::Addressing::VaBased(4095), CompletionStatus::InvalidVirtualAddress),
        ("wrapping", |it| it.addressing = xwarp::memory::Addressing::VaBased(u64::MAX - 4095), CompletionStatus::Wrap),
    ];
    for (case, spoil, status) in cases {
        let mut sim = sim();
        let (a, mut b, _memory, address) = privileged(&mut sim);
        let mut stag = b.host().pd().allocate_stag(2, true).unwrap();
        let mut request = stag.fast_register(two_pages(address), LOCAL);
        spoil(&mut request);
        b.post(SendRequest::fast_register(WrId(1), request));
        b.post_send(2, b"never sent");
        let done = [
            failed(1, Opcode::FastRegister, status),
            Done::flushed(2, Opcode::Send),
        ];
        settle(&mut sim, &mut b, &done);
        assert_at_fault(case, &a, &b);
        assert!(!stag.query().unwrap().is_valid(), "{case}");
    }
}

#[test]
fn fast_register_needs_a_privileged_queue_pair_and_an_invalid_stag_of_its_domain() {
    for case in ["not privileged", "other domain", "window", "valid"] {
        let mut sim = sim().expecting(&["drop_no_flow"]);
        let (mut a, mut b, _memory, address) = privileged(&mut sim);
        if case == "not privileged" {
            (a, b) = sim.connected_pair();
        }
        let other = b.host().rnic().allocate_pd().unwrap();
        let window = b.host().pd().allocate_window().unwrap();
        let mut stag = match case {
            "other domain" => other.allocate_stag(2, true).unwrap(),
            "valid" => b.region(2 * 4096, LOCAL).into_stag(),
            _ => b.host().pd().allocate_stag(2, true).unwrap(),
        };
        let mut request = stag.fast_register(two_pages(address), LOCAL);
        let status = match case {
            "not privileged" => CompletionStatus::NotPrivileged,
            "other domain" => CompletionStatus::InvalidPd,
            "valid" => CompletionStatus::StagNotInvalid,
            _ => {
                request.stag = window.stag();
                CompletionStatus::InvalidStag
            }
        };
        b.post(SendRequest::fast_register(WrId(1), request));
        let refused = failed(1, Opcode::FastRegister, status);
        settle(&mut sim, &mut b, &[refused]);
        assert_at_fault(case, &a, &b);
    }
}

/// An element of a list that names memory by its physical address.
fn physical(address: u64, len: u32) -> Sge {
    Sge {
        stag: Stag(0),
        to: address,
        len,
    }
}

#[test]
fn stag_zero_is_memory_by_its_physical_address() {
    let mut sim = sim();
    let (mut a, mut b, memory, address) = privileged(&mut sim);
    memory.write(0, &pattern(LEN)).unwrap();
    let target = a.target(100);
    a.post_recv(1, 50);
    let receive = RecvRequest::new(WrId(3), physical(address + 8000, 20));
    b.qp.post_recv(receive).unwrap();
    b.post(SendRequest::send(WrId(1), physical(address + 5000, 50)));
    b.post(SendRequest::write(
        WrId(2),
        physical(address, 100),
        target.remote(0),
    ));
    settle(&mut sim, &mut b, &[Done::send(1, 50), Done::write(2, 100)]);
    assert_eq!(a.buffer(1), pattern(LEN)[5000..5050]);
    assert_eq!(target.to_vec(), pattern(LEN)[..100]);
    a.post_send(4, b"into physical memory");
    sim.run_until_idle();
    assert_eq!(b.receives(), [Done::receive(3, 20)]);
    assert_eq!(memory.to_vec()[8000..8020], *b"into physical memory");
}

#[test]
fn stag_zero_is_nothing_to_a_queue_pair_that_is_not_privileged() {
    let mut sim = sim();
    let (a, mut b) = sim.connected_pair();
    b.post(SendRequest::send(WrId(1), physical(0, 8)));
    let refused = failed(1, Opcode::Send, CompletionStatus::InvalidStag);
    settle(&mut sim, &mut b, &[refused]);
    assert_at_fault("Send", &a, &b);

    let (mut a, mut b) = sim.connected_pair();
    let receive = RecvRequest::new(WrId(2), physical(0, 8));
    b.qp.post_recv(receive).unwrap();
    a.post_send(1, b"8 bytes!");
    sim.run_until_idle();
    let refused = failed(2, Opcode::Receive, CompletionStatus::InvalidStag);
    assert_eq!(b.receives(), [refused]);
    assert_ended("Receive", &a, &b);
}

#[test]
fn stag_zero_ends_where_the_region_area_does() {
    let mut sim = sim();
    let (a, mut b, ..) = privileged(&mut sim);
    b.post(SendRequest::send(WrId(1), physical(1 << 40, 8)));
    let refused = failed(1, Opcode::Send, CompletionStatus::BaseBounds);
    settle(&mut sim, &mut b, &[refused]);
    assert_at_fault("beyond", &a, &b);
}

/// What our own verbs would not post comes from a peer of another make.
#[test]
fn peer_reaches_nothing_by_stag_zero_of_a_privileged_queue_pair() {
    use xwarp_sim_tests::wire::{Tagged, Untagged, read_request};

    use crate::hostile::Dut;

    let config = QpConfig::default().privileged(true);
    let read = read_request(Stag(1), 0, 8, Stag(0), 0);
    let invalidate = Untagged {
        rdmap: 0x44, // RV=1, Send with Invalidate
        stag: 0,
        ..Untagged::default()
    };
    for (case, fpdu, code) in [
        (
            "Write",
            Tagged::write(Stag(0), 0).fpdu(b"bytes!"),
            TermCode::ddp_tagged(0),
        ),
        (
            "Read",
            Untagged::read_request().fpdu(&read),
            TermCode::rdmap_protection(0),
        ),
        (
            "invalidation",
            invalidate.fpdu(b""),
            TermCode::rdmap_protection(0),
        ),
    ] {
        let mut dut = Dut::with(&config);
        dut = dut.expecting(&["drop_refused_segment", "drop_after_failure"]);
        dut.end.post_recv(1, 8);
        dut.assert_terminates(case, &fpdu, code);
    }
}
