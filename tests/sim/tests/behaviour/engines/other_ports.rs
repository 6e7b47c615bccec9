//! Outgoing connections when the NIC's hash is unknown: the RNIC tries other local ports until
//! answers arrive at the engine of the queue pair.

use std::time::Duration;

use xwarp::QpConfig;
use xwarp::error::ConnectError;
use xwarp_sim_tests::{Sim, SimEnd, for_each_seed};
use xwarp_test_kit::netsim::Seed;
use xwarp_test_kit::{Answers, pattern_of};

use super::{ENGINES, PAIRS, engine_of, pairs};

/// Bytes of a message: some segments.
const LEN: usize = 5000;
/// Other ports that a connection tries at most.
const TRIES: u64 = 4 * ENGINES as u64;
/// The first port that hosts give.
const FIRST_PORT: u16 = 49152;

/// Far enough for round trips to be seen.
const DELAY: Duration = Duration::from_micros(50);

fn sim(answers: Answers) -> Sim {
    Sim::with_answers(Seed(91), ENGINES, answers).one_way_delay(DELAY)
}

/// Segments that A's engines have handed over, and connections that A has begun anew.
fn counted(sim: &Sim) -> [u64; 2] {
    let tcp = sim.a().rnic().counters().unwrap().tcp;
    [tcp.handed_over, tcp.opened_anew]
}

/// Sends both ways; each arrives as it was sent.
fn exchange(sim: &mut Sim, (a, b): &mut (SimEnd, SimEnd), number: u64) {
    a.post_recv(number, LEN);
    b.post_recv(number, LEN);
    a.post_send(number, &pattern_of(number, LEN));
    b.post_send(number, &pattern_of(number + 100, LEN));
    sim.run_until_idle();
    assert_eq!((a.receives().len(), b.receives().len()), (1, 1));
    assert!(a.buffer(number) == pattern_of(number + 100, LEN));
    assert!(b.buffer(number) == pattern_of(number, LEN));
}

#[test]
fn frames_of_connections_come_to_their_engines_once_these_are_made() {
    for engines in [2, ENGINES] {
        for_each_seed(|seed| {
            let mut sim = Sim::with_answers(seed, engines, Answers::Hashed).one_way_delay(DELAY);
            let mut ends: Vec<_> = (0..PAIRS).map(|_| sim.connected_pair()).collect();
            let [answers, anew] = counted(&sim);
            assert!(anew > 0, "no port leads home by itself");
            assert_eq!(answers, anew, "nothing but answers is handed over");
            for ((number, turn), pair) in (0..).zip(0..).zip(&mut ends) {
                assert_eq!(engine_of(&pair.0), turn % engines);
                exchange(&mut sim, pair, number);
            }
            assert_eq!(counted(&sim), [answers, anew], "with {engines} engines");
        });
    }
}

/// The peer learns of one connection each, and the application of nothing.
#[test]
fn attempts_are_no_connections_to_anybody() {
    let mut sim = sim(Answers::Hashed);
    let mut ends = pairs(&mut sim);
    assert!(counted(&sim)[1] > 0);
    for (a, b) in &mut ends {
        assert_eq!((a.events(), b.events()), (vec![], vec![]));
    }
    for host in [sim.a(), sim.b()] {
        let tcp = host.rnic().counters().unwrap().tcp;
        assert_eq!(tcp.retransmissions, 0, "a round trip for each port");
    }
}

#[test]
fn ports_are_tried_so_often_and_then_frames_are_handed_over() {
    let mut sim = sim(Answers::First);
    let mut pairs = Vec::new();
    for number in 0..ENGINES as u64 {
        let [_, before] = counted(&sim);
        let mut pair = sim.connected_pair();
        let engine = engine_of(&pair.0);
        let [handed_over, anew] = counted(&sim);
        assert_eq!(anew - before, if engine == 0 { 0 } else { TRIES });
        exchange(&mut sim, &mut pair, number);
        let [now, _] = counted(&sim);
        assert_eq!(now > handed_over, engine != 0);
        pairs.push(pair);
    }
}

/// A host with many connections would run out of ports.
#[test]
fn host_has_the_ports_back_that_were_tried_once_a_connection_is_made() {
    let mut sim = sim(Answers::First);
    let _home = sim.connected_pair();
    let elsewhere = sim.connected_pair();
    assert_eq!(counted(&sim)[1], TRIES);
    assert_eq!(engine_of(&elsewhere.0), 1);
    assert_eq!(next_port(&mut sim), FIRST_PORT + 1, "the first gap");
}

/// The port that A's host gives next.
fn next_port(sim: &mut Sim) -> u16 {
    let at = sim.b().at(sim.new_port());
    let mut a = sim.a().end(&QpConfig::default());
    let limit = Duration::from_secs(1);
    let next = a.qp.begin_connect(at, b"", limit).unwrap();
    next.local().port()
}

/// The peer has not answered the Request yet.
#[test]
fn host_has_the_ports_back_that_were_tried_once_tcp_is_established() {
    let mut sim = sim(Answers::First);
    let _home = sim.connected_pair();
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen(at).unwrap();
    let mut a = sim.a().end(&QpConfig::default());
    let limit = Duration::from_secs(5);
    let mut connecting = a.qp.begin_connect(at, b"", limit).unwrap();
    let request = sim.wait_for("the Request", || listener.try_accept().unwrap());
    assert_eq!(counted(&sim)[1], TRIES);
    assert!(connecting.try_finish().is_none());
    assert_eq!(next_port(&mut sim), FIRST_PORT + 1, "the first gap");
    drop(request);
}

/// A stream may live for long.
#[test]
fn host_has_the_ports_back_that_were_tried_once_a_stream_is_established() {
    let mut sim = sim(Answers::First);
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen_streams(at).unwrap();
    let limit = Duration::from_secs(5);
    let mut connect = || {
        let near = sim.a().rnic().connect_stream(at, limit).unwrap();
        let far = sim.wait_for("a stream", || listener.try_accept().unwrap());
        (near, far)
    };
    let (_home, elsewhere) = (connect(), connect());
    assert_eq!(elsewhere.0.id().engine(), 1);
    assert_eq!(counted(&sim)[1], TRIES);
    assert_eq!(next_port(&mut sim), FIRST_PORT + 1, "the first gap");
}

/// At a far peer, no more than half a second is spent.
#[test]
fn ports_are_tried_for_so_long() {
    let far = Duration::from_millis(100);
    let mut sim = Sim::with_answers(Seed(92), ENGINES, Answers::First).one_way_delay(far);
    let _first = sim.connected_pair();
    let _pair = sim.connected_pair();
    // After 200 and 400 ms. At 600 ms it is too late.
    assert_eq!(counted(&sim)[1], 3);
}

/// Of an attempt's time, no more than a quarter is spent.
#[test]
fn time_of_an_attempt_is_kept_whatever_ports_are_tried() {
    let far = Duration::from_millis(10);
    let mut sim = Sim::with_answers(Seed(93), ENGINES, Answers::First).one_way_delay(far);
    let _first = sim.connected_pair();
    let at = sim.b().at(sim.new_port());
    let listener = sim.b().rnic().listen(at).unwrap();
    let mut a = sim.a().end(&QpConfig::default());
    let (began, limit) = (sim.now(), Duration::from_millis(200));
    let mut connecting = a.qp.begin_connect(at, b"", limit).unwrap();
    let first = connecting.local();
    // The application never calls `accept`.
    let outcome = sim.wait_for("the end", || connecting.try_finish());
    let Err(ConnectError::TimedOut { timeout, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(timeout, limit);
    assert_eq!(sim.now(), began + limit);
    assert_eq!(counted(&sim)[1], 3, "after 20, 40 and 60 ms");
    assert_ne!(connecting.local(), first);
    assert_eq!(connecting.local().ip(), first.ip());
    drop(listener);
}

#[test]
fn lost_frames_of_attempts_cost_time_only() {
    for_each_seed(|seed| {
        let sim = Sim::with_answers(seed, ENGINES, Answers::Hashed).one_way_delay(DELAY);
        // A repeated answer to a port that was given up.
        let mut sim = sim.loss(0.1).duplicate(0.1).expecting(&["drop_no_flow"]);
        for number in 0..6 {
            let mut pair = sim.connected_pair();
            exchange(&mut sim, &mut pair, number);
        }
    });
}

#[test]
fn refusal_is_told_at_once() {
    let mut sim = sim(Answers::Hashed).expecting(&["drop_no_flow"]);
    for _ in 0..ENGINES {
        let at = sim.b().at(sim.new_port());
        let mut a = sim.a().end(&QpConfig::default());
        let limit = Duration::from_secs(5);
        let mut connecting = a.qp.begin_connect(at, b"", limit).unwrap();
        let began = sim.now();
        let outcome = sim.wait_for("the refusal", || connecting.try_finish());
        assert!(matches!(outcome, Err(ConnectError::Refused(peer)) if peer == at));
        assert!(sim.now() < began + 3 * DELAY, "{:?}", sim.now());
    }
    assert_eq!(counted(&sim)[1], 0);
}

/// Whether an attempt is given up or made, the host has all ports back in the end.
#[test]
fn host_has_all_ports_back() {
    let mut sim = sim(Answers::Hashed).expecting(&["drop_no_flow"]);
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen(at).unwrap();
    let limit = Duration::from_secs(5);
    for round in 0..1000 {
        let [mut a, mut b] = [sim.a(), sim.b()].map(|host| host.end(&QpConfig::default()));
        let mut connecting = a.qp.begin_connect(at, b"", limit).unwrap();
        if round % 4 == 0 {
            let [_, before] = counted(&sim);
            sim.run_for(3 * DELAY);
            let is_amid = counted(&sim)[1] > before;
            drop(connecting);
            assert!(a.qp.state() == xwarp::QpState::Idle || !is_amid);
            sim.run_until_idle();
            while listener.try_accept().unwrap().is_some() {}
            continue;
        }
        let request = sim.wait_for("the Request", || listener.try_accept().unwrap());
        let remote = request.remote();
        request.accept(&mut b.qp, b"").unwrap();
        let answer = sim.wait_for("the Reply", || connecting.try_finish());
        answer.unwrap();
        assert_eq!(connecting.local(), remote);
        a.qp.begin_disconnect().unwrap();
        sim.run_for(Duration::from_millis(1));
    }
    assert!(counted(&sim)[1] > 1000);
    sim.run_for(Duration::from_secs(30));
    let mut a = sim.a().end(&QpConfig::default());
    let connecting = a.qp.begin_connect(at, b"", limit).unwrap();
    assert_eq!(connecting.local().port(), FIRST_PORT, "it is free again");
}

/// The connection is made where it began, though its frames come to another engine.
#[test]
fn port_that_is_named_is_kept() {
    let mut sim = sim(Answers::Hashed).expecting(&["drop_no_flow"]); // of resets
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen(at).unwrap();
    let limit = Duration::from_secs(5);
    for number in 0..PAIRS {
        let [mut a, mut b] = [sim.a(), sim.b()].map(|host| host.end(&QpConfig::default()));
        let local = sim.a().at(5000 + u16::try_from(number).unwrap());
        let begun = a.qp.begin_connect_from(local, at, b"", limit);
        let mut connecting = begun.unwrap();
        let request = sim.wait_for("the Request", || listener.try_accept().unwrap());
        assert_eq!(request.remote(), local);
        request.accept(&mut b.qp, b"").unwrap();
        sim.wait_for("the Reply", || connecting.try_finish())
            .unwrap();
        assert_eq!(connecting.local(), local);
    }
    let [answers, anew] = counted(&sim);
    assert!(answers > 0 && anew == 0, "{answers} {anew}");
}

/// Streams are connections, too, and keep their names.
#[test]
fn streams_come_from_ports_that_lead_home() {
    let mut sim = sim(Answers::Hashed);
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen_streams(at).unwrap();
    let limit = Duration::from_secs(5);
    let mut streams = Vec::new();
    for _ in 0..PAIRS {
        let mut connecting = sim.a().rnic().begin_connect_stream(at, limit).unwrap();
        let near = sim.wait_for("a stream", || connecting.try_finish());
        let far = sim.wait_for("a stream", || listener.try_accept().unwrap());
        streams.push((near.unwrap(), far));
    }
    let [answers, anew] = counted(&sim);
    assert!(anew > 0 && answers == anew);
    for (near, far) in &mut streams {
        near.write(b"hello").unwrap();
        sim.run_until_idle();
        let mut heard = [0; 9];
        assert_eq!(far.read(&mut heard).unwrap(), 5);
        far.write(&heard[..5]).unwrap();
        sim.run_until_idle();
        assert_eq!(near.read(&mut heard).unwrap(), 5);
    }
    assert_eq!(counted(&sim), [answers, anew]);
}
