//! Objects: the verbs that create them, and what a refusal leaves (verbs draft §9.2).

use xwarp::error::{
    CapabilityError, CreateError, DestroyError, PostError, RegisterError, RnicUnavailable,
};
use xwarp::memory::RegionSpec;
use xwarp::work::Sgl;
use xwarp::{Access, QpConfig, RecvRequest, SendRequest, SrqConfig, WrId};
use xwarp_sim_tests::{KIB, Side};

use super::sim;

#[test]
fn any_domain_goes_with_objects_of_all_kinds() {
    let sim = sim();
    let rnic = sim.a();
    let rnic = rnic.rnic();
    let cq = rnic.create_cq(4).unwrap();
    let domains = [0, 1, 2].map(|_| rnic.allocate_pd().unwrap());
    for (i, pd) in domains.iter().enumerate() {
        assert!(domains[..i].iter().all(|other| other.id() != pd.id()));
        for _ in 0..2 {
            let qp = pd.create_qp(&QpConfig::default(), &cq, &cq).unwrap();
            assert_eq!(qp.query().unwrap().pd, pd.id());
            let srq = pd.create_srq(SrqConfig::default()).unwrap();
            assert_eq!(srq.query().unwrap().pd, pd.id());
            let region = pd.allocate(8, Access::LOCAL_READ).unwrap();
            assert_eq!(region.query().unwrap().pd, pd.id());
            let window = pd.allocate_window().unwrap();
            assert_eq!(window.query().unwrap().pd, pd.id());
        }
    }
}

#[test]
fn create_qp_names_the_attribute_that_is_out_of_range_and_creates_nothing() {
    type Spoil = fn(&mut QpConfig);
    let sim = sim();
    let cq = sim.a().rnic().create_cq(4).unwrap();
    let create = |config: &QpConfig| sim.a().pd().create_qp(config, &cq, &cq);
    let first = create(&QpConfig::default()).unwrap();
    #[rustfmt::skip]
    let cases: [(&str, usize, usize, usize, Spoil); 10] = [
        ("a send queue of depth", 65_537, 1, 65_536, |it| it.send_depth = 65_537),
        ("a send queue of depth", 0, 1, 65_536, |it| it.send_depth = 0),
        ("a receive queue of depth", 65_537, 1, 65_536, |it| it.recv_depth = 65_537),
        ("a receive queue of depth", 0, 1, 65_536, |it| it.recv_depth = 0),
        ("ORD", 1025, 0, 1024, |it| it.ord = 1025),
        ("IRD", 1025, 0, 1024, |it| it.ird = 1025),
        ("a number of elements per Send of", 17, 0, 16, |it| it.send_sge = 17),
        ("a number of elements per Write of", 17, 0, 16, |it| it.write_sge = 17),
        ("a number of elements per receive of", 17, 0, 16, |it| it.recv_sge = 17),
        ("a number of inline bytes of", 513, 0, 512, |it| it.max_inline = 513),
    ];
    for (what, wanted, min, max, spoil) in cases {
        let mut config = QpConfig::default();
        spoil(&mut config);
        let expected = CapabilityError::check(what, wanted, min, max).unwrap_err();
        let refused = create(&config).err();
        assert!(
            matches!(refused, Some(CreateError::Capability(it)) if it == expected),
            "{what} {wanted}: {refused:?}"
        );
    }
    let next = create(&QpConfig::default()).unwrap();
    assert_eq!(next.id().number(), first.id().number() + 1);
}

#[test]
fn each_queue_has_the_depth_that_was_asked_for_it() {
    let sim = sim();
    for (send_depth, recv_depth) in [(4, 64), (64, 4), (1, 1)] {
        let config = QpConfig::default()
            .send_depth(send_depth)
            .recv_depth(recv_depth);
        let mut end = sim.a().end(&config);
        let info = end.qp.query().unwrap();
        assert_eq!((info.send_depth, info.recv_depth), (send_depth, recv_depth));
        let send = || SendRequest::send(WrId(1), Sgl::new());
        let sends = std::iter::repeat_with(send);
        let refused = end.qp.post_send_list(sends).unwrap_err();
        let full = PostError::TooManyWorkRequests(send_depth);
        assert_eq!((refused.posted, refused.error), (send_depth, full));
        let buffers = std::iter::repeat_with(|| RecvRequest::new(WrId(1), Sgl::new()));
        let refused = end.qp.post_recv_list(buffers).unwrap_err();
        let full = PostError::TooManyWorkRequests(recv_depth);
        assert_eq!((refused.posted, refused.error), (recv_depth, full));
    }
}

#[test]
fn handles_of_a_closed_rnic_destroy_and_change_nothing() {
    let mut sim = sim();
    let (a, _b) = sim.connected_pair();
    let host = a.host().clone();
    let (rnic, pd) = (host.rnic(), host.pd());
    let cq = rnic.create_cq(4).unwrap();
    let region = pd.allocate(KIB, Access::all()).unwrap();
    let memory = region.bytes().clone();
    rnic.close().unwrap();
    sim.remove(Side::A);
    let closed = DestroyError::Unavailable(RnicUnavailable::Closed);
    assert_eq!(cq.destroy().map_err(|it| it.error).err(), Some(closed));
    assert_eq!(a.qp.destroy().map_err(|it| it.error).err(), Some(closed));
    let spec = RegionSpec::new(Access::LOCAL_READ);
    let refused = pd.allocate_stag(1, true).err();
    assert!(matches!(refused, Some(RegisterError::Unavailable(_))));
    let refused = region.share(pd, &spec).err();
    assert!(matches!(refused, Some(RegisterError::Unavailable(_))));
    let refused = region.reregister(pd, memory, &spec).unwrap_err();
    assert!(matches!(refused.error, RegisterError::Unavailable(_)));
}
