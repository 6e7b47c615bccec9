//! Figure 21: what the queue pair and the `STag` have to allow, for each use.

use super::*;
use crate::refused::assert_refused_by_event;
use xwarp::QpConfig;
use xwarp::attr::QpChange;

/// Remote rights of the `STag`, none and one at a time, with a queue pair that allows what `config`
/// says.
fn remote_matrix(right: Access, config: &QpConfig) -> [Option<TermCode>; 2] {
    [LOCAL, LOCAL | right].map(|access| {
        let mut sim = sim();
        let plain = QpConfig::default();
        let (mut a, mut b) = (sim.a().end(&plain), sim.b().end(config));
        sim.connect(&mut a, &mut b);
        let region = b.region(KIB, access);
        attempt(&mut sim, &mut a, &b, right, region.remote(0))
    })
}

#[test]
fn peer_writes_only_where_queue_pair_and_stag_allow_it() {
    let open = QpConfig::default();
    let closed = QpConfig::default().inbound_write(false);
    let refused = Some(forbidden(WRITE));
    assert_eq!(remote_matrix(WRITE, &open), [refused, None]);
    assert_eq!(remote_matrix(WRITE, &closed), [refused, refused]);
}

/// The queue pair restricts Reads by its IRD. With an IRD of 0, a Read Request ends the stream as
/// one for an invalid queue.
#[test]
fn peer_reads_only_where_the_stag_allows_it() {
    let open = QpConfig::default();
    assert_eq!(remote_matrix(READ, &open), [Some(forbidden(READ)), None]);
}

/// InfiniBand's Modify QP changes it. The region has all rights.
#[test]
fn peer_may_do_what_the_queue_pair_allows_from_then_on() {
    let after = |right, changes: &[Access]| {
        let mut sim = sim();
        let (mut a, mut b) = sim.connected_pair();
        for rights in changes {
            let change = QpChange::to(QpState::Rts).inbound(*rights);
            b.qp.modify(change).unwrap();
        }
        let region = b.region(KIB, Access::all());
        attempt(&mut sim, &mut a, &b, right, region.remote(0))
    };
    for right in [READ, WRITE] {
        let others = Access::all() - right;
        assert_eq!(after(right, &[others]), Some(forbidden(right)));
        assert_eq!(after(right, &[right]), None);
        assert_eq!(after(right, &[Access::empty(), right]), None);
    }
}

/// A window that is bound belongs to its queue pair, which invalidates it as before.
#[test]
fn window_of_a_queue_pair_stays_its_own_when_the_peers_rights_change() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let region = b.va_region(KIB, FOR_WINDOWS, VA);
    let mut window = b.host().pd().allocate_window().unwrap();
    let bind = window.bind(region.remote(0), 100, READ | WRITE);
    b.post(SendRequest::bind(WrId(1), bind));
    settle(&mut sim, &mut b, &[Done::bind(1)]);
    b.qp.modify(QpChange::to(QpState::Rts).inbound(READ))
        .unwrap();
    let read = attempt(&mut sim, &mut a, &b, READ, bind.remote(0));
    assert_eq!(read, None);
    b.post(SendRequest::invalidate(WrId(2), bind.remote(0).stag));
    settle(&mut sim, &mut b, &[Done::invalidate(2)]);
}

#[test]
fn window_does_not_open_a_queue_pair_that_is_closed_to_writes() {
    let mut sim = sim();
    let plain = QpConfig::default();
    let closed = QpConfig::default().inbound_write(false);
    let (mut a, mut b) = (sim.a().end(&plain), sim.b().end(&closed));
    sim.connect(&mut a, &mut b);
    let region = b.va_region(KIB, FOR_WINDOWS, VA);
    let mut window = b.host().pd().allocate_window().unwrap();
    let bind = window.bind(region.remote(0), 100, READ | WRITE);
    b.post(SendRequest::bind(WrId(1), bind));
    settle(&mut sim, &mut b, &[Done::bind(1)]);
    let read = attempt(&mut sim, &mut a, &b, READ, bind.remote(0));
    assert_eq!(read, None);
    let write = attempt(&mut sim, &mut a, &b, WRITE, bind.remote(0));
    assert_eq!(write, Some(forbidden(WRITE)));
}

/// The sink of a Read needs both, and no local right. It is judged before the Read is asked for,
/// and again when the response comes.
#[test]
fn read_response_is_placed_only_where_queue_pair_and_stag_allow_it() {
    for (inbound_write, access, placed) in [
        (true, Access::LOCAL_WRITE | WRITE, true),
        (true, LOCAL | READ, false),
        (false, Access::LOCAL_WRITE | WRITE, false),
    ] {
        let mut sim = sim();
        let config = QpConfig::default().inbound_write(inbound_write);
        let (mut a, mut b) = (sim.a().end(&QpConfig::default()), sim.b().end(&config));
        sim.connect(&mut a, &mut b);
        let (source, sink) = (a.target(100), b.region(100, access));
        source.fill(&pattern(100));
        b.post_read(1, sink.local(0, 100), source.remote(0));
        sim.run_until_idle();
        if placed {
            assert_eq!(b.sends(), [Done::read(1, 100)]);
            assert_eq!(sink.bytes().to_vec(), pattern(100));
        } else {
            let violation = CompletionStatus::AccessViolation;
            assert_eq!(b.sends(), [Done::failed(1, Opcode::Read, violation)]);
            assert_eq!(sink.bytes().to_vec(), [0; 100]);
            assert_ended("sink", &a, &b);
        }
    }
}

/// What was right when the Read was asked for is judged again when its response comes.
#[test]
fn sink_that_goes_while_its_read_is_under_way_is_an_event() {
    let mut sim = sim();
    let (mut b, a) = sim.connected_pair();
    let (source, sink) = (a.target(100), b.region(100, Access::LOCAL_WRITE | WRITE));
    b.post_read(1, sink.local(0, 100), source.remote(0));
    let asked = |end: &SimEnd| end.host().rnic().counters().unwrap().rdma.fpdus_out;
    let before = asked(&b);
    sim.run_until("the Read is asked for", || asked(&b) > before);
    drop(sink);
    sim.run_until_idle();
    assert_eq!(b.sends(), [Done::flushed(1, Opcode::Read)]);
    assert_refused_by_event("sink", &a, &b, TermCode::ddp_tagged(0));
}

#[test]
fn read_is_the_right_of_its_response_where_the_queue_pair_says_so() {
    for (access, placed) in [
        (Access::LOCAL_WRITE, true),
        (Access::LOCAL_WRITE | WRITE, true),
        (Access::LOCAL_READ, false),
    ] {
        let mut sim = sim();
        let config = QpConfig::default()
            .local_read_sinks(true)
            .inbound_write(false);
        let (mut a, mut b) = (sim.a().end(&QpConfig::default()), sim.b().end(&config));
        sim.connect(&mut a, &mut b);
        // More than a segment, so that the short way has its turn, too.
        let (source, sink) = (a.target(5000), b.region(5000, access));
        source.fill(&pattern(5000));
        b.post_read(1, sink.local(0, 5000), source.remote(0));
        sim.run_until_idle();
        if placed {
            assert_eq!(b.sends(), [Done::read(1, 5000)]);
            assert_eq!(sink.bytes().to_vec(), pattern(5000));
        } else {
            let violation = CompletionStatus::AccessViolation;
            assert_eq!(b.sends(), [Done::failed(1, Opcode::Read, violation)]);
            assert_ended("sink", &a, &b);
        }
    }
}

#[test]
fn sink_of_a_read_is_not_opened_to_writes() {
    let mut sim = sim();
    let config = QpConfig::default().local_read_sinks(true);
    let (mut a, mut b) = (sim.a().end(&QpConfig::default()), sim.b().end(&config));
    sim.connect(&mut a, &mut b);
    let (source, sink) = (a.target(100), b.region(100, LOCAL));
    b.post_read(1, sink.local(0, 100), source.remote(0));
    let write = attempt(&mut sim, &mut a, &b, WRITE, sink.remote(0));
    assert_eq!(write, Some(forbidden(WRITE)));
}

/// Remote rights and the queue pair's do not matter for lists, nor local rights of the other kind.
#[test]
fn lists_need_the_local_right_of_their_kind_and_nothing_else() {
    for inbound_write in [true, false] {
        let config = QpConfig::default().inbound_write(inbound_write).ird(0);
        for (access, reads, writes) in [
            (Access::LOCAL_READ, true, false),
            (Access::LOCAL_READ | READ, true, false),
            (Access::LOCAL_WRITE, false, true),
            (Access::LOCAL_WRITE | WRITE, false, true),
            (LOCAL, true, true),
        ] {
            let (sent, received) = local_uses(&config, access);
            let ok = |done: Done| match done.outcome {
                Ok(_) => true,
                Err(CompletionStatus::AccessViolation) => false,
                Err(other) => panic!("{other}"),
            };
            assert_eq!(sent.map(ok), [reads, reads], "{access:?}");
            assert_eq!(ok(received), writes, "{access:?}");
        }
    }
}

/// A Send and a Write from a region with these rights, and a receive into one, each on a stream of
/// its own.
fn local_uses(config: &QpConfig, access: Access) -> ([Done; 2], Done) {
    let sent = [false, true].map(|write| {
        let mut sim = sim();
        let (mut a, mut b) = (sim.a().end(&QpConfig::default()), sim.b().end(config));
        sim.connect(&mut a, &mut b);
        a.post_recv(1, 100);
        let (target, source) = (a.target(8), b.region(8, access));
        b.post(if write {
            SendRequest::write(WrId(1), source.local(0, 8), target.remote(0))
        } else {
            SendRequest::send(WrId(1), source.local(0, 8))
        });
        sim.run_until_idle();
        b.sends()[0]
    });
    let mut sim = sim();
    let (mut a, mut b) = (sim.a().end(&QpConfig::default()), sim.b().end(config));
    sim.connect(&mut a, &mut b);
    let sink = b.region(8, access);
    let request = xwarp::RecvRequest::new(WrId(1), sink.local(0, 8));
    b.qp.post_recv(request).unwrap();
    a.post_send(1, b"8 bytes!");
    sim.run_until_idle();
    (sent, b.receives()[0])
}

#[test]
fn peer_of_a_closed_queue_pair_invalidates_nothing() {
    for (inbound_write, ird, allowed) in [
        (true, 0, true),
        (false, 8, true),
        (true, 8, true),
        (false, 0, false),
    ] {
        let mut sim = sim();
        let config = QpConfig::default().inbound_write(inbound_write).ird(ird);
        let (mut a, mut b) = (sim.a().end(&QpConfig::default()), sim.b().end(&config));
        sim.connect(&mut a, &mut b);
        let region = b.region(8, Access::all());
        b.post_recv(5, 8);
        a.post(invalidation(1, region.stag()));
        sim.run_until_idle();
        assert_eq!(region.query().unwrap().is_valid(), !allowed);
        assert_eq!(b.receives()[0].outcome.is_ok(), allowed);
    }
}

#[test]
fn where_nothing_is_transferred_no_stag_is_looked_at() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let nowhere = RemoteAddress {
        stag: Stag(0xdead_be00),
        to: u64::MAX,
    };
    let nothing = xwarp::Sge {
        stag: Stag(0xbad0_0000),
        to: u64::MAX,
        len: 0,
    };
    let some = b.source(b"some");
    let around: Sgl = [nothing, some, nothing].into_iter().collect();
    a.post_recv(7, 0);
    a.post_recv(8, 10);
    b.post(SendRequest::send(WrId(1), nothing));
    b.post(SendRequest::write(WrId(2), nothing, nowhere));
    b.post_read(3, nothing, nowhere);
    b.post(SendRequest::send(WrId(4), around));
    let done = [
        Done::send(1, 0),
        Done::write(2, 0),
        Done::read(3, 0),
        Done::send(4, 4),
    ];
    settle(&mut sim, &mut b, &done);
    assert_eq!(a.receives(), [Done::receive(7, 0), Done::receive(8, 4)]);
    assert_eq!(a.buffer(8)[..4], *b"some");
    assert_eq!((a.state(), b.state()), (QpState::Rts, QpState::Rts));
}
