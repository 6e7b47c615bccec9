//! Objects of one RNIC with another one (verbs draft §5.1): everything is refused at once, and
//! nothing changes.

use std::time::Duration;

use xwarp::attr::QpChange;
use xwarp::error::{AcceptError, CreateError, HandlerError, ModifyError, RegisterError};
use xwarp::memory::RegionSpec;
use xwarp::stream::Framing;
use xwarp::{Access, QpConfig, QpState, SrqConfig};
use xwarp_sim_tests::Sim;
use xwarp_test_kit::netsim::Seed;

fn sim() -> Sim {
    Sim::new(Seed(85)).one_way_delay(Duration::from_micros(50))
}

#[test]
fn objects_that_two_rnics_number_alike_are_each_ones_own() {
    let sim = sim();
    let config = QpConfig::default();
    let (a, b) = (sim.a(), sim.b());
    let (mut of_a, of_b) = (a.end(&config), b.end(&config));
    assert_eq!((of_a.qp.id(), a.pd().id()), (of_b.qp.id(), b.pd().id()));
    of_a.qp.modify(QpChange::to(QpState::Error)).unwrap();
    let states = [&of_a, &of_b].map(|end| end.qp.query().unwrap().state);
    assert_eq!(states, [QpState::Error, QpState::Idle]);
}

#[test]
fn queue_pair_is_made_of_queues_of_its_own_rnic() {
    let sim = sim();
    let (a, b) = (sim.a(), sim.b());
    let [ours, theirs] = [&a, &b].map(|host| host.rnic().create_cq(4).unwrap());
    let [mine, srq] = [&a, &b].map(|it| it.pd().create_srq(SrqConfig::default()).unwrap());
    assert_eq!(mine.id(), srq.id());
    let config = QpConfig::default();
    for [send_cq, recv_cq] in [[&ours, &theirs], [&theirs, &ours], [&theirs, &theirs]] {
        let refused = a.pd().create_qp(&config, send_cq, recv_cq).err();
        assert!(matches!(refused, Some(CreateError::InvalidCq)));
        let refused = a.pd().create_qp_with_srq(&config, send_cq, recv_cq, &srq);
        assert!(matches!(refused.err(), Some(CreateError::InvalidCq)));
    }
    let refused = a.pd().create_qp_with_srq(&config, &ours, &ours, &srq).err();
    assert!(matches!(refused, Some(CreateError::InvalidSrq)));
    assert!(mine.destroy().is_ok() && srq.destroy().is_ok());
    assert!(theirs.destroy().is_ok(), "nobody uses any of them");
}

#[test]
fn regions_go_into_domains_of_their_own_rnic() {
    let sim = sim();
    let (a, b) = (sim.a(), sim.b());
    let region = a.region(8, Access::all());
    let (memory, spec) = (region.bytes().clone(), RegionSpec::new(Access::LOCAL_READ));
    let refused = region.share(b.pd(), &spec).err();
    assert!(matches!(refused, Some(RegisterError::OtherRnic)));
    let refused = region.reregister(b.pd(), memory, &spec).unwrap_err();
    assert!(matches!(refused.error, RegisterError::OtherRnic));
    let info = refused.region.expect("the region").query().unwrap();
    assert!(info.is_valid() && !info.shared);
    assert_eq!((info.pd, info.access), (a.pd().id(), Access::all()));
}

#[test]
fn completion_handler_is_one_of_its_own_rnic() {
    let sim = sim();
    let (a, b) = (sim.a(), sim.b());
    let [ours, theirs] = [&a, &b].map(|it| it.rnic().add_completion_handler(|_| ()).unwrap());
    assert_ne!(ours, theirs);
    let refused = a.rnic().create_cq_with(4, theirs).err();
    let unknown = HandlerError::Unknown;
    assert!(matches!(refused, Some(CreateError::Handler(it)) if it == unknown));
    assert_eq!(a.rnic().clear_completion_handler(theirs), Err(unknown));
    let replaced = a.rnic().replace_completion_handler(theirs, |_| ());
    assert_eq!(replaced, Err(unknown));
    assert_eq!(a.rnic().clear_completion_handler(ours), Ok(()));
    assert_eq!(b.rnic().clear_completion_handler(theirs), Ok(()));
}

#[test]
fn connection_is_accepted_by_a_queue_pair_of_its_own_rnic() {
    let mut sim = sim();
    let config = QpConfig::default();
    let (mut a, mut other) = (sim.a().end(&config), sim.a().end(&config));
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen(at).unwrap();
    let limit = Duration::from_secs(5);
    let mut connecting = a.qp.begin_connect(at, b"", limit).unwrap();
    let request = sim.wait_for("the request", || listener.try_accept().unwrap());
    let refused = request.accept(&mut other.qp, b"");
    assert_eq!(refused, Err(AcceptError::OtherRnic));
    assert_eq!(other.state(), QpState::Idle);
    let outcome = sim.wait_for("the answer", || connecting.try_finish());
    assert!(outcome.is_err(), "the peer is rejected");
}

#[test]
fn stream_is_handed_over_to_a_queue_pair_of_its_own_rnic() {
    let mut sim = sim();
    let mut b = sim.b().end(&QpConfig::default());
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen_streams(at).unwrap();
    let stream = sim.a().rnic().connect_stream(at, Duration::from_secs(5));
    let stream = stream.unwrap();
    let theirs = sim.wait_for("the stream", || listener.try_accept().unwrap());
    sim.run_until_idle();
    let refused = b.qp.modify(QpChange::start(&stream, Framing::default()));
    assert_eq!(refused, Err(ModifyError::InvalidStream));
    assert_eq!(b.state(), QpState::Idle);
    let taken = b.qp.modify(QpChange::start(&theirs, Framing::default()));
    assert!(taken.is_ok());
}
