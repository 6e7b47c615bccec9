//! The RNIC as an object: what its queries return, and what is left when it is closed.

use std::time::Duration;

use xwarp::attr::{DequeuingModel, EngineCounters, QpChange};
use xwarp::completion::Arm;
use xwarp::error::{
    CreateError, DeallocateError, DestroyError, HandlerError, ListenError, ModifyError,
    ModifySrqError, PostError, QueryError, RegisterError, ResizeError, RnicUnavailable::Closed,
    StreamError, WaitError,
};
use xwarp::event::HandlerId;
use xwarp::memory::{EntrySizes, PblMode};
use xwarp::work::Sgl;
use xwarp::{
    Access, CompletionStatus, Opcode, ProtectionDomain, QpConfig, QpState, RecvRequest,
    SendRequest, SharedReceiveQueue, SrqConfig, WrId,
};
use xwarp_sim_tests::{Done, Host, Side, Sim, SimEnd};
use xwarp_test_kit::netsim::Seed;

fn sim() -> Sim {
    Sim::new(Seed(81)).one_way_delay(Duration::from_micros(50))
}

fn is_beyond_capability<T>(made: Result<T, CreateError>) -> bool {
    matches!(made.err(), Some(CreateError::Capability(_)))
}

#[test]
fn largest_queue_pair_can_be_made_and_no_larger() {
    let sim = sim();
    let (rnic, pd) = (sim.a(), sim.a());
    let (rnic, pd) = (rnic.rnic(), pd.pd());
    let has = rnic.query().unwrap();
    let cq = rnic.create_cq(4).unwrap();
    let depth = has.max_work_requests;
    let largest = QpConfig::default()
        .send_depth(depth)
        .recv_depth(depth)
        .send_sge(has.max_send_sge)
        .write_sge(has.max_write_sge)
        .recv_sge(has.max_send_sge)
        .ord(u16::try_from(has.max_ord).unwrap())
        .ird(u16::try_from(has.max_ird).unwrap());
    assert!(pd.create_qp(&largest, &cq, &cq).is_ok());
    let changes: [fn(&mut QpConfig); 7] = [
        |it| it.send_sge += 1,
        |it| it.write_sge += 1,
        |it| it.recv_sge += 1,
        |it| it.send_depth += 1,
        |it| it.recv_depth += 1,
        |it| it.ord += 1,
        |it| it.ird += 1,
    ];
    for change in changes {
        let mut larger = largest.clone();
        change(&mut larger);
        let made = pd.create_qp(&larger, &cq, &cq);
        assert!(is_beyond_capability(made), "{larger:?}");
    }
}

#[test]
fn largest_queues_can_be_made_and_no_larger() {
    let sim = sim();
    let (rnic, pd) = (sim.a(), sim.a());
    let (rnic, pd) = (rnic.rnic(), pd.pd());
    let has = rnic.query().unwrap();
    assert!(rnic.create_cq(has.max_cq_entries).is_ok());
    assert!(is_beyond_capability(rnic.create_cq(has.max_cq_entries + 1)));
    let largest = SrqConfig::default()
        .depth(has.max_srq_work_requests)
        .sge(has.max_send_sge);
    assert!(pd.create_srq(largest).is_ok());
    let changes: [fn(&mut SrqConfig); 2] = [|it| it.depth += 1, |it| it.sge += 1];
    for change in changes {
        let mut larger = largest;
        change(&mut larger);
        assert!(is_beyond_capability(pd.create_srq(larger)), "{larger:?}");
    }
}

#[test]
fn numbers_of_objects_are_those_that_other_tests_have_reached() {
    let has = sim().a().rnic().query().unwrap();
    assert_eq!(
        (has.max_qps, has.max_cqs, has.max_srqs),
        (16_384, 4096, 1024)
    );
    assert_eq!(
        (has.max_completion_handlers, has.max_regions),
        (1024, 65_535)
    );
    assert_eq!((has.max_windows, has.max_list_entries), (65_535, 65_536));
    assert!(
        has.max_send_sge >= 4 && has.max_write_sge >= 1,
        "verbs draft §8.1.3.2"
    );
    assert!(has.max_ird >= 1 && has.max_ord >= 1);
    assert_eq!(has.max_pds, 65_536);
    let shared = (has.max_inbound_reads_shared, has.max_outbound_reads_shared);
    assert_eq!(shared, (0, 0), "each queue pair has its own");
    assert!(has.shared_receive_queues && has.detects_cq_overflow);
    assert!(has.can_modify_ird && has.can_increase_ord && has.can_modify_depths);
    assert_eq!(has.srq_dequeuing, DequeuingModel::Arrival);
    assert!(has.vendor.starts_with("xwarp "));
}

#[test]
fn pages_are_listed() {
    let has = sim().a().rnic().query().unwrap();
    assert_eq!(has.pbl_mode, PblMode::Page);
    let pages: Vec<u64> = (12..=30).map(|bits| 1 << bits).collect();
    assert_eq!(has.entry_sizes, EntrySizes::Pages(pages));
}

fn assert_rnic_refuses(host: &Host, unused: ProtectionDomain, handler: HandlerId) {
    let rnic = host.rnic();
    assert_eq!(rnic.close(), Err(Closed));
    assert_eq!(rnic.query(), Err(Closed));
    assert!(rnic.counters().is_err());
    let created = rnic.create_cq(1);
    assert!(matches!(created, Err(CreateError::Unavailable(_))));
    let allocated = rnic.allocate_pd();
    assert!(matches!(allocated, Err(CreateError::Unavailable(_))));
    let refused = unused.deallocate().unwrap_err();
    assert_eq!(refused.error, DestroyError::Unavailable(Closed));
    let closed = Err(HandlerError::Unavailable(Closed));
    assert_eq!(rnic.clear_completion_handler(handler), closed);
    assert!(rnic.add_completion_handler(|_| ()).is_err());
    let listening = rnic.listen(host.at(7777)).err();
    assert!(matches!(listening, Some(ListenError::Unavailable(_))));
}

fn assert_domain_refuses(a: &SimEnd) {
    let pd = a.host().pd();
    let (send_cq, recv_cq) = a.cqs();
    let made = pd.create_qp(&QpConfig::default(), send_cq, recv_cq).err();
    assert!(matches!(made, Some(CreateError::Unavailable(_))));
    let made = pd.create_srq(SrqConfig::default()).err();
    assert!(matches!(made, Some(CreateError::Unavailable(_))));
    let allocated = pd.allocate(8, Access::all());
    assert!(matches!(allocated, Err(RegisterError::Unavailable(_))));
    let allocated = pd.allocate_window();
    assert!(matches!(allocated, Err(RegisterError::Unavailable(_))));
}

fn assert_work_queues_refuse(a: &mut SimEnd, mut srq: SharedReceiveQueue) {
    let recv = RecvRequest::new(WrId(1), Sgl::new());
    let send = SendRequest::send(WrId(1), Sgl::new());
    let closed = Err(PostError::Unavailable(Closed));
    assert_eq!(srq.post_recv(recv.clone()), closed);
    assert_eq!(srq.query(), Err(Closed));
    assert_eq!(srq.arm_limit(1), Err(ModifySrqError::Unavailable(Closed)));
    assert_eq!(srq.resize(8), Err(ModifySrqError::Unavailable(Closed)));
    let refused = srq.destroy().map_err(|refused| refused.error);
    assert_eq!(refused, Err(DestroyError::Unavailable(Closed)));
    assert_eq!(a.qp.post_send(send), closed);
    assert_eq!(a.qp.post_recv(recv), closed);
    assert_eq!(a.qp.abort(), Err(Closed));
    assert_eq!(a.qp.query(), Err(Closed));
    let modified = a.qp.modify(QpChange::to(QpState::Idle));
    assert_eq!(modified, Err(ModifyError::Unavailable(Closed)));
}

fn assert_completion_queues_refuse(a: &mut SimEnd) {
    assert_eq!(a.send_cq().resize(9), Err(ResizeError::Unavailable(Closed)));
    assert_eq!(a.recv_cq().query(), Err(Closed));
    assert_eq!(a.recv_cq().arm(Arm::Next), Err(Closed));
    assert_eq!(a.recv_cq().poller().poll(), Err(Closed));
    let refused = |waited| matches!(waited, Err(WaitError::Unavailable(_)));
    let long = Duration::from_hours(1);
    assert!(refused(a.recv_cq().wait(long).map(|_| ())), "at once");
    assert!(refused(a.recv_cq().wait_event(long).map(|_| ())));
}

#[test]
fn handles_of_a_closed_rnic_are_refused_everywhere() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let host = a.host().clone();
    let (rnic, pd) = (host.rnic(), host.pd());
    let unused = rnic.allocate_pd().unwrap();
    let srq = pd.create_srq(SrqConfig::default()).unwrap();
    let (region, window) = (host.region(8, Access::all()), pd.allocate_window().unwrap());
    let handler = rnic.add_completion_handler(|_| ()).unwrap();
    let (at, limit) = (b.host().at(7777), Duration::from_secs(1));
    let mut stream = rnic.connect_stream(at, limit).unwrap();
    a.post_recv(1, 8);
    assert_eq!(rnic.close(), Ok(()));
    sim.remove(Side::A);
    assert_rnic_refuses(&host, unused, handler);
    assert_domain_refuses(&a);
    assert_work_queues_refuse(&mut a, srq);
    assert_eq!(stream.state(), Err(Closed));
    assert_eq!(stream.write(b"x"), Err(StreamError::Unavailable(Closed)));
    assert_completion_queues_refuse(&mut a);
    assert_eq!(window.query(), Err(QueryError::Unavailable(Closed)));
    assert_eq!(region.query(), Err(QueryError::Unavailable(Closed)));
    let refused = region.deallocate().map_err(|refused| refused.error);
    assert_eq!(refused, Err(DeallocateError::Unavailable(Closed)));
    drop(b);
}

#[test]
fn closing_an_rnic_resets_its_connections() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    sim.run_until_idle();
    a.post(SendRequest::send(WrId(1), Sgl::new()));
    a.host().rnic().close().unwrap();
    sim.remove(Side::A);
    sim.run_until_idle();
    assert_eq!((a.state(), b.state()), (QpState::Error, QpState::Error));
}

/// What was known of an RNIC before Close is unknown to it when it was opened again.
#[test]
fn rnic_that_is_opened_again_has_nothing_of_the_one_before() {
    let mut former = sim();
    let (mut a, b) = former.connected_pair();
    let region = a.region(100, Access::all());
    a.post(SendRequest::send(WrId(1), region.local(0, 100)));
    former.run_until("a frame", || {
        b.host().rnic().counters().unwrap().io.rx_frames > 0
    });
    a.host().rnic().close().unwrap();
    former.remove(Side::A);

    let mut sim = sim();
    let counters = sim.a().rnic().counters().unwrap();
    assert_eq!(counters.rdma, EngineCounters::default());
    assert_eq!((counters.io.rx_frames, counters.tcp.segments_in), (0, 0));
    let (mut c, d) = sim.connected_pair();
    assert_eq!(region.query(), Err(QueryError::Unavailable(Closed)));
    c.post(SendRequest::send(WrId(2), region.local(0, 100)));
    sim.run_until_idle();
    let refused = Done::failed(2, Opcode::Send, CompletionStatus::InvalidStag);
    assert_eq!(c.sends(), [refused]);
    assert_eq!((a.state(), d.state()), (QpState::Error, QpState::Error));
}
