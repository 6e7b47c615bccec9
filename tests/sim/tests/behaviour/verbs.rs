//! The verbs one by one: what each takes, what each tells, and what a refusal leaves (verbs draft §9.2, §9.3).

use std::time::Duration;

use xwarp::{
    Access, Capability, CompletionStatus, CreateError, DestroyError, MAX_SGE, Opcode, Operation,
    PhysicalList, PostError, QpChange, QpConfig, QpId, QpState, RecvRequest, RegionSpec,
    RegisterError, RemoteAddress, RnicClosed, SendRequest, Sge, Sgl, SrqConfig, Stag, TermCode,
    WorkCompletion, WrId,
};
use xwarp_netsim::Seed;
use xwarp_sim_tests::{Done, End, KIB, Place, Sim, pattern};

fn sim() -> Sim {
    Sim::new(Seed(91)).one_way_delay(Duration::from_micros(50))
}

fn privileged() -> QpConfig {
    QpConfig {
        privileged: true,
        ..QpConfig::default()
    }
}

/// How many queue pairs the RNIC has created before this one.
fn serial(id: QpId) -> u64 {
    id.to_string().parse::<u64>().unwrap() >> 16
}

fn completions(end: &mut End) -> Vec<WorkCompletion> {
    std::iter::from_fn(|| end.send_cq().poll().unwrap()).collect()
}

fn received(end: &mut End) -> Vec<WorkCompletion> {
    std::iter::from_fn(|| end.recv_cq().poll().unwrap()).collect()
}

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
    let cases: [(&str, usize, usize, usize, Spoil); 9] = [
        ("a send queue of depth", 65_537, 1, 65_536, |it| it.send_depth = 65_537),
        ("a send queue of depth", 0, 1, 65_536, |it| it.send_depth = 0),
        ("a receive queue of depth", 65_537, 1, 65_536, |it| it.recv_depth = 65_537),
        ("a receive queue of depth", 0, 1, 65_536, |it| it.recv_depth = 0),
        ("ORD", 1025, 0, 1024, |it| it.ord = 1025),
        ("IRD", 1025, 0, 1024, |it| it.ird = 1025),
        ("a number of elements per Send of", 5, 0, 4, |it| it.send_sge = 5),
        ("a number of elements per Write of", 5, 0, 4, |it| it.write_sge = 5),
        ("a number of elements per receive of", 5, 0, 4, |it| it.recv_sge = 5),
    ];
    for (what, wanted, min, max, spoil) in cases {
        let mut config = QpConfig::default();
        spoil(&mut config);
        let expected = Capability {
            what,
            wanted,
            min,
            max,
        };
        let refused = create(&config).err();
        assert!(
            matches!(refused, Some(CreateError::Capability(it)) if it == expected),
            "{what} {wanted}: {refused:?}"
        );
    }
    let next = create(&QpConfig::default()).unwrap();
    assert_eq!(serial(next.id()), serial(first.id()) + 1);
}

#[test]
fn each_queue_has_the_depth_that_was_asked_for_it() {
    let sim = sim();
    for (send_depth, recv_depth) in [(4, 64), (64, 4), (1, 1)] {
        let config = QpConfig {
            send_depth,
            recv_depth,
            ..QpConfig::default()
        };
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
    sim.remove(Place::A);
    let closed = DestroyError::Closed(RnicClosed);
    assert_eq!(cq.destroy().map_err(|it| it.error).err(), Some(closed));
    assert_eq!(a.qp.destroy().map_err(|it| it.error).err(), Some(closed));
    let spec = RegionSpec::new(Access::LOCAL_READ);
    let refused = pd.allocate_stag(1, true).err();
    assert!(matches!(refused, Some(RegisterError::Closed(_))));
    let refused = region.share(pd, &spec).err();
    assert!(matches!(refused, Some(RegisterError::Closed(_))));
    let refused = region.reregister(pd, memory, &spec).unwrap_err();
    assert!(matches!(refused.cause, RegisterError::Closed(_)));
}

/// All ten of the draft, in one list.
#[test]
fn every_operation_type_is_done_and_completes_by_its_name() {
    let mut sim = sim();
    let (mut a, mut b) = (
        sim.a().end(&privileged()),
        sim.b().end(&QpConfig::default()),
    );
    sim.connect(&mut a, &mut b);
    let (far, near) = (b.target(8), a.target(8));
    far.fill(b"far away");
    let gone = [0, 1].map(|_| b.own_region(8, Access::all()));
    let sink = a.region(8, Access::all());
    let windowed = a.va_region(64, Access::all(), 0x1000);
    let mut window = a.host().pd().allocate_window().unwrap();
    let bind = window.bind(windowed.remote(0), 64, Access::REMOTE_READ);
    let memory = a.host().rnic().allocate_memory(4096).unwrap();
    let address = a.host().rnic().physical_address(&memory).unwrap();
    let mut stag = a.host().pd().allocate_stag(1, true).unwrap();
    let list = PhysicalList {
        entry_size: 4096,
        addresses: vec![address],
        first_byte_offset: 0,
        len: 4096,
    };
    let fast = stag.fast_register(list, Access::LOCAL_READ);
    let registered = fast.stag;
    let source = a.source(b"8 octets");
    let name = |i: u64| WrId(u64::MAX - i);
    let send = |i, solicited, invalidate| {
        SendRequest::new(name(i), send_of(source, solicited, invalidate))
    };
    let list = [
        (send(0, false, None), Opcode::Send),
        (send(1, true, None), Opcode::SendSolicited),
        (send(2, false, Some(gone[0].stag())), Opcode::SendInvalidate),
        (
            send(3, true, Some(gone[1].stag())),
            Opcode::SendSolicitedInvalidate,
        ),
        (
            SendRequest::read(name(4), near.local(0, 8), far.remote(0)),
            Opcode::Read,
        ),
        (
            SendRequest::read(name(5), sink.local(0, 8), far.remote(0)).invalidating_sink(),
            Opcode::ReadInvalidate,
        ),
        (
            SendRequest::write(name(6), source, far.remote(0)).fenced(),
            Opcode::Write,
        ),
        (SendRequest::bind(name(7), bind), Opcode::Bind),
        (
            SendRequest::fast_register(name(8), fast),
            Opcode::FastRegister,
        ),
        (
            SendRequest::invalidate(name(9), registered),
            Opcode::Invalidate,
        ),
    ];
    let opcodes = list.each_ref().map(|(_, opcode)| *opcode);
    (0..4).for_each(|i| b.post_recv(i, 8));
    a.qp.post_send_list(list.map(|(request, _)| request))
        .unwrap();
    sim.run_until_idle();

    let done = completions(&mut a);
    assert_eq!(done.len(), opcodes.len(), "one each");
    for ((i, done), opcode) in (0..).zip(done).zip(opcodes) {
        assert_eq!((done.wr_id, done.opcode), (name(i), opcode));
        assert!(done.is_success(), "{done:?}");
        assert_eq!(done.qp, a.qp.id());
    }
    let told: Vec<_> = received(&mut b)
        .iter()
        .map(|it| (it.qp, it.solicited, it.invalidated))
        .collect();
    let (id, stags) = (b.qp.id(), gone.each_ref().map(|it| Some(it.stag())));
    let expected = [
        (id, false, None),
        (id, true, None),
        (id, false, stags[0]),
        (id, true, stags[1]),
    ];
    assert_eq!(told, expected);
    (0..4).for_each(|i| assert_eq!(b.buffer(i), b"8 octets"));
    assert!(gone.iter().all(|it| !it.query().unwrap().is_valid()));
    assert_eq!(
        (near.to_vec(), sink.bytes().to_vec()),
        (b"far away".to_vec(), b"far away".to_vec())
    );
    assert!(!sink.query().unwrap().is_valid());
    assert_eq!(far.to_vec(), b"8 octets");
    assert!(window.query().unwrap().is_valid());
    assert!(
        !stag.query().unwrap().is_valid(),
        "registered, then invalidated"
    );
}

/// As many elements as Query QP tells, and fewer, down to none.
#[test]
fn lists_may_have_any_number_of_elements() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let info = a.qp.query().unwrap();
    let max = [info.send_sge, info.write_sge, info.recv_sge];
    assert_eq!(max, [MAX_SGE; 3]);
    for n in 0..=MAX_SGE {
        let octets = pattern(10 * n);
        let (sink, target) = (b.target(10 * n), b.target(10 * n));
        let sources: Sgl = octets.chunks(10).map(|it| a.source(it)).collect();
        let sinks: Sgl = (0..n).map(|i| sink.local(10 * i, 10)).collect();
        b.qp.post_recv(RecvRequest::new(WrId(1), sinks)).unwrap();
        a.post(SendRequest::send(WrId(1), sources.clone()));
        a.post(SendRequest::write(WrId(2), sources, target.remote(0)));
        sim.run_until_idle();
        assert_eq!(a.sends(), [Done::send(1, 10 * n), Done::write(2, 10 * n)]);
        assert_eq!(b.receives(), [Done::receive(1, 10 * n)]);
        assert_eq!((sink.to_vec(), target.to_vec()), (octets.clone(), octets));
    }
}

#[test]
fn a_post_that_is_refused_leaves_the_queue_pair_in_idle_and_usable() {
    let mut sim = sim();
    let config = QpConfig {
        extensions: false,
        ..QpConfig::default()
    };
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    let half = Sge {
        stag: Stag(0x100),
        to: 0,
        len: 1 << 31,
    };
    let huge = || Sgl::from_iter([half, half]);
    let before = a.qp.query().unwrap();
    let refused = a.qp.post_send(SendRequest::send(WrId(1), huge()));
    assert_eq!(refused, Err(PostError::TooLong));
    let refused = a.qp.post_send(SendRequest::immediate(WrId(1), [0; 8]));
    assert_eq!(refused, Err(PostError::ExtensionsDisabled));
    let refused = a.qp.post_send(SendRequest::invalidate(WrId(1), Stag(0)));
    assert_eq!(refused, Err(PostError::StagZero));
    let refused = a.qp.post_recv(RecvRequest::new(WrId(1), huge()));
    assert_eq!(refused, Err(PostError::TooLong));
    assert_eq!(a.qp.query().unwrap(), before);
    assert_eq!(a.state(), QpState::Idle);
    a.post_send(2, b"8 octets");
    b.post_recv(3, 8);
    sim.connect(&mut a, &mut b);
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::send(2, 8)]);
    assert_eq!(
        (b.receives(), a.receives()),
        (vec![Done::receive(3, 8)], vec![])
    );
}

#[test]
fn of_two_work_requests_at_fault_the_first_says_so_and_the_second_is_flushed() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let nowhere = Sge {
        stag: Stag(0x1234_5678),
        to: 0,
        len: 8,
    };
    for id in [1, 2] {
        a.post(SendRequest::send(WrId(id), nowhere));
    }
    sim.run_until_idle();
    let failed = Done::failed(1, Opcode::Send, CompletionStatus::InvalidStag);
    assert_eq!(a.sends(), [failed, Done::flushed(2, Opcode::Send)]);
    assert_eq!((a.state(), b.state()), (QpState::Error, QpState::Error));
}

/// What is wrong is told by the completion; the peer is told no more than that it is local (§8.3.2).
#[test]
fn a_source_that_cannot_be_used_fails_a_send_of_each_type_and_a_write_alike() {
    let kinds: [fn(Sge, RemoteAddress) -> Operation; 5] = [
        |it, _| send_of(it, false, None),
        |it, _| send_of(it, true, None),
        |it, to| send_of(it, false, Some(to.stag)),
        |it, to| send_of(it, true, Some(to.stag)),
        |it, remote| Operation::Write {
            sgl: it.into(),
            remote,
        },
    ];
    #[rustfmt::skip]
    let statuses = [
        CompletionStatus::InvalidStag, CompletionStatus::BaseBounds, CompletionStatus::Wrap,
        CompletionStatus::AccessViolation, CompletionStatus::InvalidPd,
    ];
    for kind in kinds {
        for status in statuses {
            let mut sim = sim();
            let (mut a, mut b) = sim.connected_pair();
            let target = b.own_region(100, Access::all());
            b.post_recv(9, 100);
            let other = a.host().rnic().allocate_pd().unwrap();
            let readable = a.region(100, Access::LOCAL_READ);
            let unreadable = a.region(100, Access::LOCAL_WRITE);
            let foreign = a.host().region_in(&other, 100, Access::all());
            let bad = match status {
                CompletionStatus::BaseBounds => readable.local(1, 100),
                CompletionStatus::Wrap => readable.local(u64::MAX - 9, 100),
                CompletionStatus::AccessViolation => unreadable.local(0, 100),
                CompletionStatus::InvalidPd => foreign.local(0, 100),
                _ => Sge {
                    stag: Stag(0x1234_5678),
                    ..readable.local(0, 100)
                },
            };
            let request = SendRequest::new(WrId(1), kind(bad, target.remote(0)));
            let opcode = opcode_of(&request.operation);
            a.post(request);
            a.post_send(2, b"never sent");
            sim.run_until_idle();
            let failed = Done::failed(1, opcode, status);
            assert_eq!(a.sends(), [failed, Done::flushed(2, Opcode::Send)]);
            assert_eq!(a.state(), QpState::Error);
            let kept = b.qp.query().unwrap().terminate.unwrap();
            assert_eq!(kept.code, TermCode::rdmap_local());
            assert!(target.query().unwrap().is_valid());
            assert_eq!(target.bytes().to_vec(), [0; 100]);
        }
    }
}

/// By which name a Send or Write completes.
fn opcode_of(operation: &Operation) -> Opcode {
    let Operation::Send {
        solicited,
        invalidate,
        ..
    } = operation
    else {
        return Opcode::Write;
    };
    let opcode = match (solicited, invalidate.is_some()) {
        (false, false) => Opcode::Send,
        (true, false) => Opcode::SendSolicited,
        (false, true) => Opcode::SendInvalidate,
        (true, true) => Opcode::SendSolicitedInvalidate,
    };
    assert!(opcode.is_send());
    opcode
}

fn send_of(source: Sge, solicited: bool, invalidate: Option<Stag>) -> Operation {
    Operation::Send {
        sgl: source.into(),
        solicited,
        invalidate,
    }
}

#[test]
fn work_of_every_operation_type_is_flushed_by_its_name() {
    let sim = sim();
    let mut a = sim.a().end(&privileged());
    let (place, source) = (a.target(8), a.source(b"8 octets"));
    let (local, remote) = (place.local(0, 8), place.remote(0));
    let windowed = a.va_region(64, Access::all(), 0x1000);
    let mut window = a.host().pd().allocate_window().unwrap();
    let bind = window.bind(windowed.remote(0), 64, Access::REMOTE_READ);
    let mut stag = a.host().pd().allocate_stag(1, true).unwrap();
    let list = PhysicalList {
        entry_size: 4096,
        addresses: vec![0],
        first_byte_offset: 0,
        len: 4096,
    };
    let fast = stag.fast_register(list, Access::LOCAL_READ);
    let read = SendRequest::read(WrId(4), local, remote);
    let list = [
        (
            SendRequest::new(WrId(0), send_of(source, false, None)),
            Opcode::Send,
        ),
        (
            SendRequest::new(WrId(1), send_of(source, true, None)),
            Opcode::SendSolicited,
        ),
        (
            SendRequest::new(WrId(2), send_of(source, false, Some(remote.stag))),
            Opcode::SendInvalidate,
        ),
        (
            SendRequest::new(WrId(3), send_of(source, true, Some(remote.stag))),
            Opcode::SendSolicitedInvalidate,
        ),
        (read.clone().invalidating_sink(), Opcode::ReadInvalidate),
        (read, Opcode::Read),
        (SendRequest::write(WrId(6), source, remote), Opcode::Write),
        (SendRequest::bind(WrId(7), bind), Opcode::Bind),
        (
            SendRequest::fast_register(WrId(8), fast),
            Opcode::FastRegister,
        ),
        (
            SendRequest::invalidate(WrId(9), place.remote(0).stag),
            Opcode::Invalidate,
        ),
    ];
    let flushed = list
        .each_ref()
        .map(|(it, opcode)| Done::flushed(it.wr_id.0, *opcode));
    a.qp.post_send_list(list.map(|(it, _)| it)).unwrap();
    a.post_recv(20, 8);
    a.qp.modify(QpChange::to(QpState::Error)).unwrap();
    assert_eq!(a.sends(), flushed);
    assert_eq!(a.receives(), [Done::flushed(20, Opcode::Receive)]);
    assert!(!window.query().unwrap().is_valid() && !stag.query().unwrap().is_valid());
}

#[test]
fn a_read_fence_holds_back_sends_of_each_type_and_writes() {
    for kind in 0..5 {
        let mut sim = sim();
        let (mut a, mut b) = sim.connected_pair();
        sim.run_until_idle();
        let (near, far, target) = (a.target(8), b.target(8), b.target(8));
        let gone = b.own_region(8, Access::all());
        let source = a.source(b"8 octets");
        b.post_recv(2, 8);
        let operation = match kind {
            0..4 => send_of(source, kind % 2 == 1, (kind >= 2).then_some(gone.stag())),
            _ => Operation::Write {
                sgl: source.into(),
                remote: target.remote(0),
            },
        };
        let opcode = opcode_of(&operation);
        a.post_read(1, near.local(0, 8), far.remote(0));
        a.post(SendRequest::new(WrId(2), operation).fenced());
        // The Read Request is there, its response not back.
        sim.run_for(Duration::from_micros(60));
        assert_eq!((b.receives(), target.to_vec()), (vec![], vec![0; 8]));
        sim.run_until_idle();
        assert_eq!(a.sends(), [Done::read(1, 8), Done::success(2, opcode, 8)]);
        if kind < 4 {
            assert_eq!(b.receives(), [Done::receive(2, 8)]);
        } else {
            assert_eq!(target.to_vec(), b"8 octets");
        }
        assert_eq!(gone.query().unwrap().is_valid(), !(2..4).contains(&kind));
    }
}

#[test]
fn what_has_completed_can_be_polled_in_every_state() {
    for state in [
        QpState::Rts,
        QpState::Idle,
        QpState::Closing,
        QpState::Terminate,
        QpState::Error,
    ] {
        let mut sim = sim();
        let (mut a, mut b) = sim.connected_pair();
        b.post_recv(1, 8);
        a.post_send(2, b"8 octets");
        sim.run_until_idle();
        match state {
            QpState::Rts => {}
            QpState::Idle => {
                a.qp.begin_disconnect().unwrap();
                sim.run_until_idle();
            }
            QpState::Closing | QpState::Terminate | QpState::Error => {
                a.qp.modify(QpChange::to(state)).unwrap();
            }
        }
        assert_eq!(a.state(), state);
        assert_eq!(a.sends(), [Done::send(2, 8)], "{state:?}");
    }
}
