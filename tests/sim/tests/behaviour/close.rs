//! Ends of connections: a graceful close, a reset, the death of a host or of the link.

use std::net::SocketAddr;
use std::time::Duration;

use xwarp::attr::QpChange;
use xwarp::cm::{MpaConfig, Revision};
use xwarp::error::DisconnectError;
use xwarp::event::{AsyncEventKind, ConnectionEnd};
use xwarp::{Opcode, QpConfig, QpState};
use xwarp_sim_tests::wire::{REPLY, REQUEST, Untagged};
use xwarp_sim_tests::{
    Done, KIB, MIB, PlainPeer, Side, Sim, SimEnd, for_each_seed, needs_link, pattern,
};
use xwarp_tcp::StackConfig;
use xwarp_test_kit::netsim::{Direction, Seed};

use crate::hostile::Dut;

fn sim() -> Sim {
    Sim::new(Seed(19)).one_way_delay(Duration::from_micros(50))
}

/// Both ends have closed cleanly.
fn assert_closed(a: &SimEnd, b: &SimEnd) {
    assert_eq!(
        (a.events(), b.events()),
        (vec![AsyncEventKind::Closed], vec![AsyncEventKind::Closed])
    );
    assert_eq!((a.state(), b.state()), (QpState::Idle, QpState::Idle));
    for end in [a, b] {
        assert_eq!(why_ended(end), Some(AsyncEventKind::Closed));
    }
}

/// The event that the queue pair names as its connection's end.
fn why_ended(end: &SimEnd) -> Option<AsyncEventKind> {
    match end.qp.why_ended() {
        Some(ConnectionEnd::Event(event)) => Some(event),
        _ => None,
    }
}

fn assert_reset(end: &SimEnd) {
    assert_eq!(end.events(), [AsyncEventKind::ConnectionReset]);
    assert_eq!(end.state(), QpState::Error);
    assert_eq!(why_ended(end), Some(AsyncEventKind::ConnectionReset));
}

fn assert_lost(end: &SimEnd) {
    let events = end.events();
    assert!(
        matches!(events[..], [AsyncEventKind::ConnectionLost { .. }]),
        "{events:?}"
    );
    assert_eq!(end.state(), QpState::Error);
    assert_eq!(why_ended(end).as_ref(), events.first());
}

#[test]
fn disconnect_from_either_side_lets_all_that_was_posted_arrive_first() {
    for closer in [Side::A, Side::B] {
        let mut sim = sim();
        let (mut a, mut b) = sim.connected_pair();
        let (near, far) = if closer == Side::A {
            (&mut a, &mut b)
        } else {
            (&mut b, &mut a)
        };
        let (target, source, sink) = (far.target(MIB), far.target(MIB), near.target(MIB));
        source.fill(&pattern(MIB));
        far.post_recv(1, 100);
        far.post_recv(2, 100);
        near.post_recv(3, 100);
        near.post_write(1, &pattern(MIB), target.remote(0));
        near.post_read(2, sink.local(0, MIB), source.remote(0));
        near.post_send(3, b"good bye");
        near.qp.begin_disconnect().unwrap();
        sim.run_until_idle();
        assert_eq!(
            near.sends(),
            [Done::write(1, MIB), Done::read(2, MIB), Done::send(3, 8)]
        );
        assert_eq!(
            far.receives(),
            [Done::receive(1, 8), Done::flushed(2, Opcode::Receive)]
        );
        assert_eq!(near.receives(), [Done::flushed(3, Opcode::Receive)]);
        assert!(target.to_vec() == pattern(MIB) && sink.to_vec() == pattern(MIB));
        assert_closed(&a, &b);
    }
}

/// No message can come for them now, though TCP has not ended yet.
#[test]
fn receives_are_flushed_as_soon_as_both_sides_have_closed() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    b.post_recv(1, 8);
    a.qp.begin_disconnect().unwrap();
    sim.run_until("B's FIN", || b.state() == QpState::Closing);
    assert_eq!(b.receives(), [Done::flushed(1, Opcode::Receive)]);
    assert_eq!(b.state(), QpState::Closing);
    sim.run_until_idle();
    assert_closed(&a, &b);
}

/// A close may stand still for 10 s, and take longer while the peer sends.
#[test]
fn close_goes_on_as_long_as_the_peer_sends() {
    let mut dut = Dut::new();
    (0..4).for_each(|i| dut.end.post_recv(i, 8));
    dut.end.qp.begin_disconnect().unwrap();
    for msn in 1..=4 {
        dut.sim.run_for(Duration::from_secs(6));
        let send = Untagged {
            msn,
            ..Untagged::default()
        };
        dut.peer.send(&send.fpdu(b"so long"));
    }
    dut.sim.run_for(Duration::from_secs(6));
    assert!(dut.peer.saw_fin());
    assert_eq!(dut.end.state(), QpState::Closing);
    dut.peer.close();
    dut.sim.run_until_idle();
    let received = (0..4).map(|i| Done::receive(i, 7));
    assert_eq!(dut.end.receives(), received.collect::<Vec<_>>());
    assert_eq!(dut.end.events(), [AsyncEventKind::Closed]);
}

#[test]
fn side_that_is_asked_to_close_finishes_its_own_work_first() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let target = a.target(MIB);
    b.post_write(1, &pattern(MIB), target.remote(0));
    a.post_recv(1, 100);
    b.post_send(2, b"and good bye");
    sim.run_until("the begin of the Write", || {
        a.host().rnic().counters().unwrap().rdma.placed_bytes > 0
    });
    b.qp.begin_disconnect().unwrap();
    sim.run_until_idle();
    assert!(target.to_vec() == pattern(MIB));
    assert_eq!(a.receives(), [Done::receive(1, 12)]);
    assert_closed(&a, &b);
}

#[test]
fn responder_of_a_read_sends_the_response_before_it_closes() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let (source, sink) = (b.target(MIB), a.target(MIB));
    source.fill(&pattern(MIB));
    a.post_read(1, sink.local(0, MIB), source.remote(0));
    sim.run_for(Duration::from_micros(60));
    b.qp.begin_disconnect().unwrap();
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::read(1, MIB)]);
    assert!(sink.to_vec() == pattern(MIB));
    assert_closed(&a, &b);
}

#[test]
fn both_sides_can_close_at_once() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    sim.run_until_idle();
    a.qp.begin_disconnect().unwrap();
    b.qp.begin_disconnect().unwrap();
    sim.run_until_idle();
    assert_closed(&a, &b);
}

#[test]
fn both_sides_can_close_at_once_with_work_outstanding() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    sim.run_until_idle();
    let (at_a, at_b) = (a.target(64 * KIB), b.target(64 * KIB));
    a.post_write(1, &pattern(64 * KIB), at_b.remote(0));
    b.post_write(1, &pattern(64 * KIB), at_a.remote(0));
    a.qp.begin_disconnect().unwrap();
    b.qp.begin_disconnect().unwrap();
    sim.run_until_idle();
    assert!(at_a.to_vec() == pattern(64 * KIB) && at_b.to_vec() == pattern(64 * KIB));
    assert_closed(&a, &b);
}

/// What the responder had to say was never allowed to be sent; what the initiator says is still
/// taken.
#[test]
fn responder_that_was_never_spoken_to_can_disconnect_with_work_posted() {
    let mut sim = sim();
    let config = QpConfig::default();
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    b.post_recv(1, 10);
    sim.connect_silently(&mut a, &mut b);
    b.post_send(2, b"unsaid");
    b.qp.begin_disconnect().unwrap();
    a.post_send(3, b"first word");
    sim.run_until_idle();
    assert_eq!(b.receives(), [Done::receive(1, 10)]);
    assert_eq!(b.sends(), [Done::flushed(2, Opcode::Send)]);
    assert_closed(&a, &b);
}

/// These engines are not waited for: what `disconnect` returns is how far the close is.
#[test]
fn disconnect_tells_a_close_that_takes_longer_from_one_that_failed() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    sim.run_until_idle();
    let closed = a.qp.disconnect(Duration::ZERO);
    assert!(matches!(closed, Err(DisconnectError::TimedOut)));
    sim.run_until_idle();
    assert_closed(&a, &b);
    assert!(a.qp.disconnect(Duration::ZERO).is_ok(), "it has gone on");
    sim.connect(&mut a, &mut b);
    b.qp.abort().unwrap();
    sim.run_until_idle();
    assert_reset(&a);
    for end in [&mut a, &mut b] {
        let failed = end.qp.disconnect(Duration::ZERO);
        assert!(matches!(failed, Err(DisconnectError::Failed)));
    }
}

#[test]
fn close_waits_for_what_a_slow_link_has_not_carried_yet() {
    let mut sim = sim().rate(1_000_000);
    let (mut a, b) = sim.connected_pair();
    let target = b.target(2 * MIB);
    a.post_write(1, &pattern(2 * MIB), target.remote(0)); // 17 s
    a.qp.begin_disconnect().unwrap();
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::write(1, 2 * MIB)]);
    assert!(target.to_vec() == pattern(2 * MIB));
    assert_closed(&a, &b);
}

#[test]
fn closed_queue_pair_can_be_connected_again_and_again() {
    let mut sim = sim();
    let config = QpConfig::default();
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    for round in 0..5 {
        b.post_recv(round, 100);
        sim.connect(&mut a, &mut b);
        a.post_send(round, b"here I am again");
        a.qp.begin_disconnect().unwrap();
        sim.run_until_idle();
        assert_eq!(a.sends(), [Done::send(round, 15)]);
        assert_eq!(b.receives(), [Done::receive(round, 15)]);
        assert_closed(&a, &b);
    }
}

#[test]
fn close_is_clean_whichever_frame_of_it_is_lost() {
    for direction in Direction::ALL {
        for n in 1..=3 {
            let mut sim = sim();
            let (mut a, b) = sim.connected_pair();
            sim.run_until_idle();
            sim.link().lane(direction).drop_nth(n);
            a.qp.begin_disconnect().unwrap();
            sim.run_until_idle();
            assert_closed(&a, &b);
        }
    }
}

#[test]
fn close_is_clean_on_a_link_that_loses_frames() {
    for_each_seed(|seed| {
        let mut sim = Sim::new(seed)
            .one_way_delay(Duration::from_micros(50))
            .loss(0.02);
        let (mut a, b) = sim.connected_pair();
        let target = b.target(16 * KIB);
        a.post_write(1, &pattern(16 * KIB), target.remote(0));
        a.qp.begin_disconnect().unwrap();
        sim.run_until_idle();
        assert!(target.to_vec() == pattern(16 * KIB));
        assert_closed(&a, &b);
    });
}

#[test]
fn abort_flushes_this_side_at_once_and_resets_the_other() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (mut a, mut b) = sim.connected_pair();
    let (sink, source) = (a.target(8), b.target(8));
    a.post_recv(1, 100);
    b.post_recv(2, 100);
    a.post_read(3, sink.local(0, 8), source.remote(0));
    a.qp.abort().unwrap();
    assert_eq!(a.state(), QpState::Error);
    assert_eq!(a.sends(), [Done::flushed(3, Opcode::Read)]);
    assert_eq!(a.receives(), [Done::flushed(1, Opcode::Receive)]);
    sim.run_until_idle();
    assert_reset(&b);
    assert_eq!(b.receives(), [Done::flushed(2, Opcode::Receive)]);
    assert_eq!(a.events(), [], "the application knows what it did");
}

#[test]
fn dropping_a_queue_pair_resets_the_peer() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (a, b) = sim.connected_pair();
    drop(a);
    sim.run_until_idle();
    assert_reset(&b);
}

#[test]
fn dropping_an_rnic_resets_its_peers() {
    let mut sim = sim();
    let (a, b) = sim.connected_pair();
    let (c, d) = sim.connected_pair();
    sim.run_until_idle();
    sim.remove(Side::B);
    drop((b, d)); // the last handles: the RNIC goes with them
    sim.run_until_idle();
    assert_reset(&a);
    assert_reset(&c);
}

#[test]
fn cut_link_is_noticed_when_work_is_outstanding_and_the_work_is_flushed() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let target = b.target(MIB);
    sim.run_until_idle();
    let began = sim.now();
    sim.cut_link();
    a.post_recv(1, 100);
    a.post_write(2, &pattern(MIB), target.remote(0));
    sim.run_until("the end", || a.state() == QpState::Error);
    assert_eq!(
        sim.now().saturating_sub(began),
        StackConfig::default().user_timeout
    );
    assert_lost(&a);
    assert_eq!(a.sends(), [Done::flushed(2, Opcode::Write)]);
    assert_eq!(a.receives(), [Done::flushed(1, Opcode::Receive)]);
    assert_eq!(
        b.state(),
        QpState::Rts,
        "it waits for nothing and was told nothing"
    );
}

#[test]
fn link_that_comes_back_in_time_costs_nothing_but_time() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let target = b.target(MIB);
    a.post_write(1, &pattern(MIB), target.remote(0));
    sim.run_for(Duration::from_micros(120));
    sim.cut_link();
    sim.run_for(Duration::from_secs(10));
    sim.link().change(|conditions| conditions.loss = 0.0);
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::write(1, MIB)]);
    assert!(target.to_vec() == pattern(MIB));
}

/// What is unacknowledged is TCP's business, whose timeout is longer than that of a close (RFC 9293
/// §3.8.3).
#[test]
fn close_with_bytes_unacknowledged_survives_an_outage_of_twenty_seconds() {
    let closes: [fn(&mut SimEnd); 2] = [
        |end| end.qp.begin_disconnect().unwrap(),
        |end| {
            end.qp.modify(QpChange::to(QpState::Closing)).unwrap();
        },
    ];
    for close in closes {
        let mut sim = sim();
        let (mut a, b) = sim.connected_pair();
        sim.run_until_idle();
        let target = b.target(8 * KIB);
        a.post_write(1, &pattern(8 * KIB), target.remote(0));
        sim.cut_link();
        sim.run_for(Duration::from_micros(10));
        assert_eq!(a.sends(), [Done::write(1, 8 * KIB)], "TCP has all of it");
        close(&mut a);
        sim.run_for(Duration::from_secs(20));
        assert_eq!(a.events(), [], "TCP has not given up");
        sim.link().change(|conditions| conditions.loss = 0.0);
        sim.run_until_idle();
        assert!(target.to_vec() == pattern(8 * KIB));
        assert_closed(&a, &b);
    }
}

/// Connects to a plain peer, and ends that by `finish`.
fn connect_and_finish(
    sim: &mut Sim,
    end: &mut SimEnd,
    peer: &PlainPeer,
    port: u16,
    finish: Finish,
) {
    let at = peer.at(port);
    let before = peer.clients().len();
    let mut connecting = (end.qp)
        .begin_connect(at, b"", Duration::from_secs(5))
        .unwrap();
    sim.run_until("the Request", || {
        peer.clients().len() > before && peer.received() == REQUEST
    });
    peer.send(REPLY);
    let connected = sim.wait_for("the connection", || connecting.try_finish());
    connected.unwrap();
    finish(sim, end, peer);
}

/// How a connection to a plain peer ends, and its queue pair becomes Idle.
type Finish = fn(&mut Sim, &mut SimEnd, &PlainPeer);

fn finish_gracefully(sim: &mut Sim, end: &mut SimEnd, peer: &PlainPeer) {
    end.qp.begin_disconnect().unwrap();
    sim.run_until("the FIN", || peer.saw_fin());
    peer.close();
    sim.run_until("the end", || end.state() == QpState::Idle);
}

fn finish_by_reset(sim: &mut Sim, end: &mut SimEnd, peer: &PlainPeer) {
    end.qp.modify(QpChange::to(QpState::Error)).unwrap();
    sim.run_until("the reset", || peer.ended().is_some());
    end.qp.modify(QpChange::to(QpState::Idle)).unwrap();
}

/// TCP must answer a FIN that the peer retransmits (RFC 9293 §3.6.1). No other connection gets the
/// port while retransmissions can still arrive.
#[test]
fn port_of_an_ended_connection_is_kept_for_ten_seconds() {
    needs_link!("a switch gives a free port again as late as it can");
    let mpa = MpaConfig::default().max_revision(Revision::One);
    for finish in [finish_gracefully as Finish, finish_by_reset] {
        let (sim, peer) = Sim::with_mpa_and_plain_peer(Seed(19), mpa);
        let mut sim = sim.one_way_delay(Duration::from_micros(50));
        let mut end = sim.a().end(&QpConfig::default());
        let port = sim.new_port();
        peer.listen(port);
        for wait in [0, 9, 2] {
            sim.run_for(Duration::from_secs(wait));
            connect_and_finish(&mut sim, &mut end, &peer, port, finish);
        }
        let ports: Vec<u16> = peer.clients().iter().map(SocketAddr::port).collect();
        assert_ne!(ports[0], ports[1], "9 s after its end it is still kept");
        assert_eq!(ports[0], ports[2], "11 s after its end it is free");
    }
}
