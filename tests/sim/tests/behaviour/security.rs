//! Security as RFC 5042 wants it, beyond the checks of each access (`protection` has those): rights
//! that come and go, and limits. An attack on one stream is felt on that one only.

use std::time::Duration;

use xwarp::cm::{MpaConfig, Revision};
use xwarp::error::{CreateError, TermCode};
use xwarp::event::AsyncEventKind;
use xwarp::{Access, MemoryRegion, QpConfig, QpState, RemoteAddress};
use xwarp_sim_tests::{Done, KIB, Sim, SimEnd, pattern};
use xwarp_sim_tests::{needs_link, wire::Tagged};
use xwarp_test_kit::netsim::Seed;

use crate::hostile::Dut;

const LOCAL: Access = Access::LOCAL_READ.union(Access::LOCAL_WRITE);

fn sim() -> Sim {
    sim_of(MpaConfig::default())
}

fn sim_of(mpa: MpaConfig) -> Sim {
    Sim::with_mpa(Seed(37), mpa, mpa)
        .one_way_delay(Duration::from_micros(50))
        .expecting(&["drop_refused_segment", "drop_after_failure"])
}

/// How a Write to and a Read from `remote` of 100 bytes end for the stream, each on a stream of its
/// own.
fn attempts(sim: &mut Sim, remote: RemoteAddress) -> [Option<TermCode>; 2] {
    let told = |a: &SimEnd| match a.events()[..] {
        [] => None,
        [AsyncEventKind::TerminateReceived(code)] => Some(code),
        ref other => panic!("{other:?}"),
    };
    let (mut writer, _b) = sim.connected_pair();
    writer.post_write(1, &pattern(100), remote);
    sim.run_until_idle();
    let (mut reader, _b) = sim.connected_pair();
    let sink = reader.target(100);
    reader.post_read(1, sink.local(0, 100), remote);
    sim.run_until_idle();
    let ends = [told(&writer), told(&reader)];
    for (end, code) in [&mut writer, &mut reader].into_iter().zip(ends) {
        let state = if code.is_some() {
            QpState::Error
        } else {
            QpState::Rts
        };
        assert_eq!(end.state(), state);
    }
    sim.run_until_idle();
    ends
}

#[test]
fn each_registration_has_its_own_rights_for_as_long_as_it_lasts() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (no_write, no_read) = (TermCode::ddp_tagged(2), TermCode::rdmap_protection(2));
    let memory = sim.b().region(KIB, LOCAL).bytes().clone();
    let register = |sim: &Sim, access| sim.b().pd().register(memory.clone(), access).unwrap();
    let cases = [
        (LOCAL, [Some(no_write), Some(no_read)]),
        (LOCAL | Access::REMOTE_READ, [Some(no_write), None]),
        (LOCAL | Access::REMOTE_WRITE, [None, Some(no_read)]),
        (
            LOCAL | Access::REMOTE_READ | Access::REMOTE_WRITE,
            [None, None],
        ),
    ];
    let regions: Vec<MemoryRegion> = cases
        .iter()
        .map(|(access, _)| register(&sim, *access))
        .collect();
    for (region, (access, expected)) in regions.iter().zip(cases) {
        assert_eq!(attempts(&mut sim, region.remote(0)), expected, "{access:?}");
    }
    // The registration with all rights goes, the others stay; its bytes are the same.
    let mut regions = regions;
    let gone = regions.pop().unwrap().remote(0);
    let invalid = [TermCode::ddp_tagged(0), TermCode::rdmap_protection(0)].map(Some);
    assert_eq!(attempts(&mut sim, gone), invalid);
    let writable = regions.pop().unwrap();
    assert_eq!(attempts(&mut sim, writable.remote(0))[0], None);
    assert_eq!(memory.to_vec()[..100], pattern(100));
}

#[test]
fn too_many_reads_on_one_stream_cost_another_nothing() {
    // Revision 1: revision 2 would negotiate the depths, so that A keeps to B's IRD.
    let mut sim = sim_of(MpaConfig::default().max_revision(Revision::One));
    let config = |ird| QpConfig::default().ird(ird);
    let (mut a, mut b) = (sim.a().end(&config(4)), sim.b().end(&config(1)));
    sim.connect(&mut a, &mut b);
    let (mut c, d) = sim.connected_pair();
    let (sink, source) = (a.target(16 * KIB), b.target(16 * KIB));
    source.fill(&pattern(16 * KIB));
    for i in 0..8 {
        a.post_read(i, sink.local(0, KIB), source.remote(0));
        c.post_read(i, sink.local(KIB, 15 * KIB), source.remote(KIB));
    }
    sim.run_until_idle();
    assert_eq!((a.state(), b.state()), (QpState::Error, QpState::Error));
    assert_eq!((c.state(), d.state()), (QpState::Rts, QpState::Rts));
    let done: Vec<Done> = (0..8).map(|i| Done::read(i, 15 * KIB)).collect();
    assert_eq!(c.sends(), done);
    assert!(sink.to_vec()[KIB..] == pattern(16 * KIB)[KIB..]);
}

#[test]
fn hundred_streams_that_fail_are_each_reported_and_leave_the_last_alone() {
    let mut sim = sim();
    let (mut c, mut d) = sim.connected_pair();
    let pairs: Vec<(SimEnd, SimEnd)> = (0..100).map(|_| sim.connected_pair()).collect();
    let mut failed = Vec::new();
    for (mut a, b) in pairs {
        a.post_send(1, b"nobody has asked for it");
        failed.push((a, b));
    }
    sim.run_until_idle();
    for (a, b) in &failed {
        let code = TermCode::ddp_untagged(2);
        assert_eq!(a.events(), [AsyncEventKind::TerminateReceived(code)]);
        let told = b.events();
        assert!(
            matches!(told[..], [AsyncEventKind::Terminated { code: told, .. }] if told == code),
            "{told:?}"
        );
    }
    d.post_recv(1, 10);
    c.post_send(1, b"still here");
    sim.run_until_idle();
    assert_eq!(d.receives(), [Done::receive(1, 10)]);
}

#[test]
fn queue_pair_completes_only_on_queues_of_its_own_rnic() {
    let sim = sim();
    let (a, b) = (sim.a(), sim.b());
    let ours = a.rnic().create_cq(4).unwrap();
    let theirs = b.rnic().create_cq(4).unwrap();
    for (send_cq, recv_cq) in [(&ours, &theirs), (&theirs, &ours), (&theirs, &theirs)] {
        let refused = a.pd().create_qp(&QpConfig::default(), send_cq, recv_cq);
        assert!(matches!(refused.err(), Some(CreateError::InvalidCq)));
    }
}

#[test]
fn no_object_is_larger_than_the_rnic_supports() {
    let sim = sim();
    let cq = sim.a().rnic().create_cq(4).unwrap();
    let configs = [
        QpConfig::default().ird(1025),
        QpConfig::default().ord(1025),
        QpConfig::default().send_depth(1 << 17),
        QpConfig::default().recv_depth(1 << 17),
        QpConfig::default().recv_depth(0),
    ];
    let is_capability = |refused| matches!(refused, Some(CreateError::Capability(_)));
    for config in configs {
        let refused = sim.a().pd().create_qp(&config, &cq, &cq).err();
        assert!(is_capability(refused), "{config:?}");
    }
    for entries in [0, (1 << 20) + 1] {
        assert!(is_capability(sim.a().rnic().create_cq(entries).err()));
    }
}

#[test]
fn queue_pairs_beyond_the_rnics_number_are_refused_and_the_others_work() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let cq = sim.a().rnic().create_cq(4).unwrap();
    let small = QpConfig::default().send_depth(1).recv_depth(1);
    let mut made = Vec::new();
    let refused = loop {
        match sim.a().pd().create_qp(&small, &cq, &cq) {
            Ok(qp) => made.push(qp),
            Err(error) => break error,
        }
        assert!(made.len() <= 16_384, "no end of queue pairs");
    };
    let max = 16_384;
    assert!(matches!(refused, CreateError::Capability(it) if it.max == max));
    assert_eq!(made.len(), max - 1);
    b.post_recv(1, 10);
    a.post_send(1, b"unmoved");
    sim.run_until_idle();
    assert_eq!(b.receives(), [Done::receive(1, 7)]);
    drop(made.pop());
    assert!(sim.a().pd().create_qp(&small, &cq, &cq).is_ok());
}

/// RFC 5042 §6.3.2: what another region held cannot be read through a new one.
#[test]
fn new_region_holds_nothing_of_the_one_before_it() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let secret = b.host().pd().allocate(8 * KIB, Access::all()).unwrap();
    secret.bytes().fill(0..8 * KIB, 0x5a).unwrap();
    drop(secret);
    let exposed = b.host().pd().allocate(8 * KIB, Access::all()).unwrap();
    let sink = a.target(8 * KIB);
    sink.fill(&[1; 8 * KIB]);
    a.post_read(1, sink.local(0, 8 * KIB), exposed.remote(0));
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::read(1, 8 * KIB)]);
    assert_eq!(sink.to_vec(), [0; 8 * KIB]);
}

/// RFC 5045 §4.5: credits are the application's business; an RNIC only notices that they were not
/// kept.
#[test]
fn flood_of_sends_without_receives_ends_at_the_first() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    b.post_recv(0, 10);
    for i in 0..50 {
        a.post_send(i, b"unasked");
    }
    sim.run_until_idle();
    assert_eq!(b.receives(), [Done::receive(0, 7)]);
    let code = TermCode::ddp_untagged(2);
    assert_eq!(a.events(), [AsyncEventKind::TerminateReceived(code)]);
    assert_eq!(b.host().rnic().counters().unwrap().rdma.terminates_out, 1);
    assert_eq!(a.sends().len(), 50);
    assert_eq!((a.state(), b.state()), (QpState::Error, QpState::Error));
}

/// RFC 5042 §6.4.4: a peer may break no rule, and cost more than it brings. The application can
/// tell it from others, and get rid of it.
#[test]
fn peer_that_sends_byte_by_byte_is_found_and_ended() {
    const LEN: usize = 1000;
    let loads = [1, LEN + 100].map(|piece| {
        let mut dut = Dut::new().expecting(&["drop_no_flow"]);
        dut.sim.run_until_idle();
        let target = dut.end.target(LEN);
        let RemoteAddress { stag, to } = target.remote(0);
        let fpdu = Tagged::write(stag, to).fpdu(&pattern(LEN));
        let before = dut.end.qp.load().unwrap().unwrap();
        dut.peer.send_pieces(&fpdu, piece);
        dut.sim.run_until_idle();
        assert_eq!(target.to_vec(), pattern(LEN));
        let load = dut.end.qp.load().unwrap().unwrap();
        assert_eq!(load.bytes - before.bytes, fpdu.len() as u64);
        assert_eq!(load.out_of_order, 0);
        dut.end.qp.abort().unwrap();
        dut.sim.run_until_idle();
        assert!(dut.peer.ended().is_some());
        assert_eq!(dut.end.qp.load(), Ok(None), "there is no connection");
        (load.segments - before.segments, fpdu.len() as u64)
    });
    let [(many, bytes), (few, _)] = loads;
    assert!(many >= bytes, "{many} segments for {bytes} bytes");
    assert!(few <= 2, "{few} segments");
}

/// The same of one whose segments come in a wrong order, which have to be kept until they fit.
#[test]
fn segments_out_of_order_are_counted_for_their_connection() {
    needs_link!("it counts segments of a link's MTU");
    let mut sim = sim().expecting(&["drop_old_timestamp"]);
    let (a, b) = sim.connected_pair();
    let (mut c, d) = sim.connected_pair();
    sim.run_until_idle();
    let target = d.target(100 * KIB);
    sim.link().change(|conditions| conditions.reorder = 0.3);
    c.post_write(1, &pattern(100 * KIB), target.remote(0));
    sim.run_until_idle();
    let load = |end: &SimEnd| end.qp.load().unwrap().unwrap();
    assert_eq!(target.to_vec(), pattern(100 * KIB));
    assert!(load(&d).out_of_order > 10, "{:?}", load(&d));
    assert_eq!((load(&a).out_of_order, load(&b).out_of_order), (0, 0));
}
