//! Descriptors that an event loop waits for: completion channel, asynchronous events, listeners,
//! connections being made.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use xwarp::completion::{Arm, CompletionChannel};
use xwarp::error::{ConnectError, CreateError, RnicEnded, RnicUnavailable, StreamError};
use xwarp::event::AsyncEventKind;
use xwarp::stream::StreamState;
use xwarp::work::Sgl;
use xwarp::{CompletionQueue, QpConfig, QpState, SendRequest, WrId};
use xwarp_driver::net::InterfaceEnd;
use xwarp_sim_tests::{Sim, SimEnd};
use xwarp_test_kit::netsim::Seed;

const LIMIT: Duration = Duration::from_secs(5);

fn sim() -> Sim {
    Sim::new(Seed(71)).one_way_delay(Duration::from_micros(50))
}

fn is_readable(fd: &impl AsFd) -> bool {
    let mut watched = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    poll(&mut watched, PollTimeout::ZERO).unwrap() == 1
}

fn closed<T>() -> Result<T, RnicEnded> {
    Err(RnicEnded::Unavailable(RnicUnavailable::Closed))
}

/// A connected pair whose second end receives on a queue of this channel.
fn pair_on(sim: &mut Sim, channel: &CompletionChannel) -> (SimEnd, SimEnd) {
    let config = QpConfig::default();
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    let cq = sim.b().rnic().create_cq_on(channel, 64).unwrap();
    b.qp = b.host().pd().create_qp(&config, &cq, &cq).unwrap();
    *b.recv_cq() = cq;
    sim.connect(&mut a, &mut b);
    (a, b)
}

fn send(sim: &mut Sim, from: &mut SimEnd, to: &mut SimEnd, wr_id: u64) {
    to.post_recv(wr_id, 1);
    from.post(SendRequest::send(WrId(wr_id), Sgl::new()));
    sim.run_until_idle();
}

#[test]
fn channel_is_readable_from_the_completion_that_was_asked_for_until_its_queue_is_taken() {
    let mut sim = sim();
    let channel = sim.b().rnic().create_completion_channel().unwrap();
    let (mut a, mut b) = pair_on(&mut sim, &channel);
    send(&mut sim, &mut a, &mut b, 1);
    assert!(!is_readable(&channel), "the queue is not armed");
    b.recv_cq().arm(Arm::Next).unwrap();
    assert!(!is_readable(&channel), "the completion was there before");
    send(&mut sim, &mut a, &mut b, 2);
    send(&mut sim, &mut a, &mut b, 3);
    assert!(is_readable(&channel));
    let id = b.recv_cq().id();
    assert_eq!(channel.try_next(), Ok(Some(id)));
    assert!(!is_readable(&channel));
    assert_eq!(channel.try_next(), Ok(None), "once per arming");
    assert_eq!(
        channel.next(LIMIT),
        Ok(None),
        "a manual engine is not waited for"
    );
}

#[test]
fn channel_has_a_queue_once_however_often_it_was_armed() {
    let mut sim = sim();
    let channel = sim.b().rnic().create_completion_channel().unwrap();
    let (mut a, mut b) = pair_on(&mut sim, &channel);
    for wr_id in 1..5 {
        b.recv_cq().arm(Arm::Next).unwrap();
        send(&mut sim, &mut a, &mut b, wr_id);
    }
    let id = b.recv_cq().id();
    assert_eq!(channel.try_next(), Ok(Some(id)));
    assert_eq!(channel.try_next(), Ok(None));
    b.recv_cq().arm(Arm::Next).unwrap();
    send(&mut sim, &mut a, &mut b, 5);
    assert_eq!(channel.try_next(), Ok(Some(id)), "it can come again");
}

#[test]
fn channel_of_several_queues_names_them_in_order() {
    let mut sim = sim();
    let channel = sim.b().rnic().create_completion_channel().unwrap();
    let (mut a, mut b) = pair_on(&mut sim, &channel);
    let (mut c, mut d) = pair_on(&mut sim, &channel);
    let ids = [&mut b, &mut d].map(|end| {
        end.recv_cq().arm(Arm::Next).unwrap();
        end.recv_cq().id()
    });
    send(&mut sim, &mut c, &mut d, 1);
    send(&mut sim, &mut a, &mut b, 1);
    assert_eq!(channel.try_next(), Ok(Some(ids[1])));
    assert!(is_readable(&channel), "there is one more");
    assert_eq!(channel.try_next(), Ok(Some(ids[0])));
    assert!(!is_readable(&channel));
}

#[test]
fn channel_passes_over_a_queue_that_is_destroyed() {
    let mut sim = sim();
    let channel = sim.b().rnic().create_completion_channel().unwrap();
    let (mut a, mut b) = pair_on(&mut sim, &channel);
    b.recv_cq().arm(Arm::Next).unwrap();
    send(&mut sim, &mut a, &mut b, 1);
    let other = sim.b().rnic().create_cq(1).unwrap();
    drop(std::mem::replace(b.recv_cq(), other));
    assert_eq!(channel.try_next(), Ok(None));
    assert!(!is_readable(&channel));
}

#[test]
fn channel_may_go_before_its_queues() {
    let mut sim = sim();
    let channel = sim.b().rnic().create_completion_channel().unwrap();
    let (mut a, mut b) = pair_on(&mut sim, &channel);
    drop(channel);
    b.recv_cq().arm(Arm::Next).unwrap();
    send(&mut sim, &mut a, &mut b, 1);
    assert!(b.recv_cq().wait_event(Duration::ZERO).unwrap());
    assert_eq!(b.receives().len(), 1);
}

#[test]
fn channel_of_another_rnic_is_refused() {
    let sim = sim();
    let theirs = sim.a().rnic().create_completion_channel().unwrap();
    let refused = sim.b().rnic().create_cq_on(&theirs, 4);
    let error = refused.map(|_: CompletionQueue| ()).unwrap_err();
    assert!(matches!(error, CreateError::InvalidChannel), "{error}");
}

#[test]
fn events_are_readable_until_the_last_is_taken() {
    let mut sim = sim();
    let (a, mut b) = sim.connected_pair();
    let events = sim.a().rnic().events();
    assert!(!is_readable(&events));
    b.qp.abort().unwrap();
    sim.run_until_idle();
    assert!(is_readable(&events));
    let event = events.try_next().unwrap().expect("an event");
    assert_eq!(event.qp(), Some(a.qp.id()));
    assert_eq!(event.kind, AsyncEventKind::ConnectionReset);
    assert!(!is_readable(&events));
    assert_eq!(events.try_next(), Ok(None));
}

#[test]
fn listener_is_readable_while_a_request_waits() {
    let mut sim = sim();
    let config = QpConfig::default();
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen(at).unwrap();
    let mut connecting = a.qp.begin_connect(at, b"", LIMIT).unwrap();
    assert!(!is_readable(&listener));
    sim.run_until("a request", || is_readable(&listener));
    assert!(!is_readable(&connecting));
    let request = listener.try_accept().unwrap().expect("a request");
    assert!(!is_readable(&listener));
    request.accept(&mut b.qp, b"yes").unwrap();
    sim.run_until("the answer", || is_readable(&connecting));
    assert_eq!(connecting.try_finish().expect("an answer").unwrap(), b"yes");
    assert!(!is_readable(&connecting));
    assert_eq!(a.qp.state(), QpState::Rts);
}

#[test]
fn connection_that_fails_is_readable() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let mut a = sim.a().end(&QpConfig::default());
    let nobody = sim.b().at(sim.new_port());
    let mut connecting = a.qp.begin_connect(nobody, b"", LIMIT).unwrap();
    sim.run_until_idle();
    assert!(is_readable(&connecting));
    let ended = connecting.try_finish().expect("an answer");
    assert!(matches!(ended, Err(ConnectError::Refused(_))), "{ended:?}");
}

#[test]
fn stream_listener_is_readable_while_a_stream_waits() {
    let mut sim = sim();
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen_streams(at).unwrap();
    assert!(!is_readable(&listener));
    let _stream = sim.a().rnic().connect_stream(at, LIMIT).unwrap();
    sim.run_until_idle();
    assert!(is_readable(&listener));
    assert!(listener.try_accept().unwrap().is_some());
    assert!(!is_readable(&listener));
    assert!(listener.try_accept().unwrap().is_none());
}

#[test]
fn stream_is_readable_from_bytes_until_they_are_read() {
    let mut sim = sim();
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen_streams(at).unwrap();
    let mut near = sim.a().rnic().connect_stream(at, LIMIT).unwrap();
    assert!(!is_readable(&near));
    sim.run_until("TCP is established", || is_readable(&near));
    near.wait_established(LIMIT).unwrap();
    assert!(!is_readable(&near), "no bytes have come");
    let mut far = sim.wait_for("a stream", || listener.try_accept().unwrap());
    assert!(!is_readable(&far));
    assert_eq!(near.write(b"hello"), Ok(5));
    sim.run_until_idle();
    far.wait_established(LIMIT).unwrap();
    assert!(is_readable(&far), "whatever else was waited for");
    let mut bytes = [0; 8];
    assert_eq!(far.read(&mut bytes[..2]), Ok(2));
    assert!(is_readable(&far), "there is more");
    assert_eq!(far.read(&mut bytes), Ok(3));
    assert!(!is_readable(&far));
    assert_eq!(far.read(&mut bytes), Ok(0));
}

#[test]
fn stream_that_comes_with_bytes_is_readable() {
    let mut sim = sim();
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen_streams(at).unwrap();
    let mut near = sim.a().rnic().connect_stream(at, LIMIT).unwrap();
    sim.run_until("TCP is established", || is_readable(&near));
    assert_eq!(near.write(b"hello"), Ok(5));
    sim.run_until_idle();
    let mut far = listener.try_accept().unwrap().expect("a stream");
    assert!(is_readable(&far));
    assert_eq!(far.read(&mut [0; 8]), Ok(5));
    assert!(!is_readable(&far));
}

#[test]
fn stream_that_has_ended_stays_readable() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen_streams(at).unwrap();
    let mut near = sim.a().rnic().connect_stream(at, LIMIT).unwrap();
    sim.run_until("TCP is established", || is_readable(&near));
    assert_eq!(near.write(b"bye"), Ok(3));
    drop(near);
    let mut far = sim.wait_for("a stream", || listener.try_accept().unwrap());
    sim.run_until("the FIN", || far.state() == Ok(StreamState::PeerClosed));
    assert!(is_readable(&far));
    assert_eq!(far.read(&mut [0; 8]), Ok(3));
    for end in [StreamError::PeerClosed, StreamError::Gone] {
        assert!(is_readable(&far), "the end was announced with the bytes");
        assert_eq!(far.read(&mut [0; 8]), Err(end));
        assert!(is_readable(&far), "{end}");
        sim.run_until_idle();
    }
    let nobody = sim.b().at(sim.new_port());
    let refused = sim.a().rnic().connect_stream(nobody, LIMIT).unwrap();
    sim.run_until("an end", || is_readable(&refused));
    assert_eq!(refused.state(), Ok(StreamState::Gone));
}

#[test]
fn descriptors_of_a_closed_rnic_are_readable_and_say_that_it_is_closed() {
    let mut sim = sim();
    let (host, far) = (sim.a(), sim.b().at(sim.new_port()));
    let channel = host.rnic().create_completion_channel().unwrap();
    let events = host.rnic().events();
    let at = host.at(sim.new_port());
    let mut listener = host.rnic().listen(at).unwrap();
    let streams_at = host.at(sim.new_port());
    let mut streams = host.rnic().listen_streams(streams_at).unwrap();
    let mut a = host.end(&QpConfig::default());
    let mut connecting = a.qp.begin_connect(far, b"", LIMIT).unwrap();
    let mut stream = host.rnic().connect_stream(far, LIMIT).unwrap();
    host.rnic().close().unwrap();
    for _ in 0..2 {
        assert!(is_readable(&channel) && is_readable(&events) && is_readable(&listener));
        assert!(is_readable(&streams) && is_readable(&connecting) && is_readable(&stream));
        let read = stream.read(&mut [0; 8]);
        assert_eq!(read, Err(StreamError::Unavailable(RnicUnavailable::Closed)));
        assert_eq!(channel.try_next(), closed());
        assert_eq!(channel.next(LIMIT), closed());
        assert_eq!(events.try_next(), closed());
        assert_eq!(listener.try_accept().map(|_| ()), closed());
        assert_eq!(listener.accept(LIMIT).map(|_| ()), closed());
        assert_eq!(streams.try_accept().map(|_| ()), closed());
        assert_eq!(streams.accept(LIMIT).map(|_| ()), closed());
        let ended = connecting.try_finish().expect("an end");
        assert!(
            matches!(ended, Err(ConnectError::Unavailable(_))),
            "{ended:?}"
        );
    }
    // What it had open is not closed in an orderly way for the peer.
    std::mem::forget(sim);
}

#[test]
fn descriptors_of_a_failed_rnic_are_readable_and_say_why() {
    let mut sim = sim();
    let host = sim.a();
    let channel = host.rnic().create_completion_channel().unwrap();
    host.end_interface(InterfaceEnd::Deleted("eth1".to_owned()));
    sim.run_until_idle();
    assert!(is_readable(&channel));
    let ended = channel.next(LIMIT);
    assert!(matches!(ended, Err(RnicEnded::Failed(_))), "{ended:?}");
    let events = host.rnic().events();
    let event = events.try_next().unwrap().expect("the failure");
    assert!(matches!(event.kind, AsyncEventKind::Failed { .. }));
    assert!(matches!(events.try_next(), Err(RnicEnded::Failed(_))));
}

/// An event loop that takes one value at a time learns of the end, too.
#[test]
fn descriptors_of_an_rnic_that_has_ended_stay_readable_behind_the_last_value() {
    let mut sim = sim();
    let channel = sim.b().rnic().create_completion_channel().unwrap();
    let (mut a, mut b) = pair_on(&mut sim, &channel);
    b.recv_cq().arm(Arm::Next).unwrap();
    send(&mut sim, &mut a, &mut b, 1);
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen(at).unwrap();
    let mut c = sim.a().end(&QpConfig::default());
    let _connecting = c.qp.begin_connect(at, b"", LIMIT).unwrap();
    sim.run_until("a request", || is_readable(&listener));
    let events = sim.b().rnic().events();
    sim.b()
        .end_interface(InterfaceEnd::Deleted("eth1".to_owned()));
    sim.run_until("the failure", || is_readable(&events));
    sim.b().rnic().close().unwrap();
    assert!(channel.try_next().unwrap().is_some() && is_readable(&channel));
    let _request = listener.try_accept().unwrap().expect("a request");
    assert!(is_readable(&listener));
    while events.try_next().is_ok() {
        assert!(is_readable(&events));
    }
    // What it had open is not closed in an orderly way for the peer.
    std::mem::forget(sim);
}
