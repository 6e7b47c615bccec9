//! Search for the path to a peer by a host that answers late. The engine drives the search: the
//! application need not poll the attempt.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use xwarp::attr::QpChange;
use xwarp::config::{Progress, WaitMode};
use xwarp::error::{ConnectError, HostError, ModifyError, RnicUnavailable};
use xwarp::{ProtectionDomain, QpConfig, QpState, QueuePair, Rnic, RnicConfig};
use xwarp_driver::Wire;
use xwarp_driver::net::{InterfaceEnd, InterfaceNews, InterfaceReporter};
use xwarp_sim_tests::{LateHost, Side, Sim};
use xwarp_test_kit::netsim::Seed;
use xwarp_test_kit::{MemoryRnic, eventually};

const LIMIT: Duration = Duration::from_secs(5);
const AT_PEER: u16 = 7471;

/// An RNIC on a late host, and an Idle queue pair.
struct Late {
    qp: QueuePair,
    pd: ProtectionDomain,
    rnic: Rnic,
    wire: Wire,
    host: Arc<LateHost>,
    reporter: InterfaceReporter,
}

impl Late {
    fn new(progress: Progress) -> Self {
        let (reporter, monitor) = InterfaceReporter::new(None);
        let host = Arc::new(LateHost::new(Some(monitor)));
        let config = RnicConfig::default()
            .progress(progress)
            .wait_mode(WaitMode::Blocking);
        let rnic = MemoryRnic::at(Side::A).shared_host(host.clone());
        let (rnic, wire) = rnic.config(config).open();
        let (pd, cq) = (rnic.allocate_pd().unwrap(), rnic.create_cq(16).unwrap());
        let qp = pd.create_qp(&QpConfig::default(), &cq, &cq).unwrap();
        Self {
            qp,
            pd,
            rnic,
            wire,
            host,
            reporter,
        }
    }

    /// One turn of a manual engine; frames that it has sent.
    fn frames_at(&self, time: Duration) -> usize {
        let now = xwarp::sim::Instant::from_micros(u64::try_from(time.as_micros()).unwrap());
        self.rnic.step_at(now);
        std::iter::from_fn(|| self.wire.take_sent()).count()
    }

    /// Sets the answer for the next search that polls.
    fn answer(&self, found: Result<[u8; 6], HostError>) {
        self.host.answer().give(found);
    }

    /// Asserts that nothing is left of attempts.
    fn assert_clean(&self) {
        assert_eq!(self.host.searches(), 0);
        assert!(self.host.has_all_ports());
        assert_eq!(self.rnic.next_deadline().unwrap(), None);
    }
}

fn peer() -> SocketAddr {
    SocketAddr::new(Side::B.address(), AT_PEER)
}

fn is_readable(fd: &impl AsFd) -> bool {
    let mut watched = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    poll(&mut watched, PollTimeout::ZERO).unwrap() == 1
}

#[test]
fn connect_goes_on_when_the_path_is_found_though_nobody_looks_at_it() {
    let mut late = Late::new(Progress::Manual);
    let mut connecting = late.qp.begin_connect(peer(), b"", LIMIT).unwrap();
    assert!(!is_readable(&connecting));
    assert_eq!(late.frames_at(Duration::ZERO), 0, "there is no path yet");
    late.answer(Ok(Side::B.mac()));
    assert_eq!(late.frames_at(Duration::ZERO), 1, "the SYN");
    assert_eq!(late.host.searches(), 0);
    assert!(!is_readable(&connecting));
    late.frames_at(LIMIT);
    assert!(is_readable(&connecting), "the peer has not answered");
    let outcome = connecting.try_finish().expect("the end");
    let timed_out = matches!(outcome, Err(ConnectError::TimedOut { .. }));
    assert!(timed_out, "{outcome:?}");
    assert!(!is_readable(&connecting));
    assert_eq!(late.qp.state(), QpState::Idle);
}

#[test]
fn search_is_asked_whenever_it_may_have_news_and_only_then() {
    let mut late = Late::new(Progress::Manual);
    let mut connecting = late.qp.begin_connect(peer(), b"", LIMIT).unwrap();
    for asked in 0..5 {
        for _ in 0..3 {
            assert_eq!(late.frames_at(Duration::ZERO), 0);
            assert!(connecting.try_finish().is_none());
            assert_eq!(late.host.answer().asked(), asked);
        }
        late.host.answer().give_nothing();
    }
    late.answer(Ok(Side::B.mac()));
    assert_eq!(late.frames_at(Duration::ZERO), 1, "the SYN");
    assert_eq!(late.host.answer().asked(), 5);
}

#[test]
fn timeout_of_a_connection_covers_the_search() {
    const SEARCH: Duration = Duration::from_millis(20);
    const INSTANT: Duration = Duration::from_micros(1);
    let mut late = Late::new(Progress::Manual);
    let mut connecting = late.qp.begin_connect(peer(), b"", LIMIT).unwrap();
    assert_eq!(late.frames_at(SEARCH), 0);
    late.answer(Ok(Side::B.mac()));
    assert_eq!(late.frames_at(SEARCH), 1, "the SYN");
    late.frames_at(LIMIT.saturating_sub(INSTANT));
    assert!(connecting.try_finish().is_none());
    late.frames_at(LIMIT);
    let outcome = connecting.try_finish().expect("the end");
    let timed_out =
        matches!(outcome, Err(ConnectError::TimedOut { timeout, .. }) if timeout == LIMIT);
    assert!(timed_out, "{outcome:?}");
}

/// How long to ask is the host's business: it ends the search.
#[test]
fn search_that_fails_ends_the_attempt() {
    let mut late = Late::new(Progress::Manual);
    for _ in 0..2 {
        let mut connecting = late.qp.begin_connect(peer(), b"", LIMIT).unwrap();
        late.frames_at(LIMIT * 2);
        assert!(!is_readable(&connecting));
        late.answer(Err(HostError::Unknown(Side::B.address())));
        assert_eq!(late.frames_at(LIMIT * 2), 0);
        assert!(is_readable(&connecting));
        let outcome = connecting.try_finish().expect("the end");
        let unknown = matches!(outcome, Err(ConnectError::Host(HostError::Unknown(_))));
        assert!(unknown, "{outcome:?}");
        assert!(!is_readable(&connecting));
        assert!(connecting.try_finish().is_none(), "once");
        assert_eq!(late.qp.state(), QpState::Idle);
        late.assert_clean();
    }
}

#[test]
fn attempt_that_is_dropped_searches_no_longer() {
    let mut late = Late::new(Progress::Manual);
    let connecting = late.qp.begin_connect(peer(), b"", LIMIT).unwrap();
    let stream = late.rnic.begin_connect_stream(peer(), LIMIT).unwrap();
    assert_eq!(late.host.searches(), 2);
    drop((connecting, stream));
    late.assert_clean();
    late.answer(Ok(Side::B.mac()));
    assert_eq!(late.frames_at(Duration::ZERO), 0);
    assert_eq!(late.host.answer().asked(), 0);
}

#[test]
fn disconnect_ends_the_search() {
    let mut late = Late::new(Progress::Manual);
    let mut connecting = late.qp.begin_connect(peer(), b"", LIMIT).unwrap();
    late.qp.begin_disconnect().unwrap();
    late.assert_clean();
    let outcome = connecting.try_finish().expect("the end");
    let closed = matches!(outcome, Err(ConnectError::PeerClosed(remote)) if remote == peer());
    assert!(closed, "{outcome:?}");
    assert_eq!(late.qp.state(), QpState::Idle);
}

#[test]
fn queue_pair_that_is_dropped_searches_no_longer() {
    let late = Late::new(Progress::Manual);
    let cq = late.rnic.create_cq(1).unwrap();
    let mut qp = (late.pd).create_qp(&QpConfig::default(), &cq, &cq).unwrap();
    let mut connecting = qp.begin_connect(peer(), b"", LIMIT).unwrap();
    drop(qp);
    late.assert_clean();
    let outcome = connecting.try_finish().expect("the end");
    let closed = matches!(outcome, Err(ConnectError::PeerClosed(_)));
    assert!(closed, "{outcome:?}");
}

#[test]
fn queue_pair_has_one_attempt_from_the_search_on() {
    let mut late = Late::new(Progress::Manual);
    let first = late.qp.begin_connect(peer(), b"", LIMIT).unwrap();
    let mut second = late.qp.begin_connect(peer(), b"", LIMIT).unwrap();
    let outcome = second.try_finish().expect("an end");
    let refused = matches!(outcome, Err(ConnectError::InvalidState(QpState::Idle)));
    assert!(refused, "{outcome:?}");
    drop(second);
    assert_eq!(late.host.searches(), 1, "the first goes on");
    let modified = late.qp.modify(QpChange::to(QpState::Idle).ord(1));
    assert_eq!(modified.unwrap_err(), ModifyError::Connecting);
    drop(first);
    late.assert_clean();
}

#[test]
fn search_ends_with_its_interface() {
    let mut late = Late::new(Progress::Manual);
    let mut connecting = late.qp.begin_connect(peer(), b"", LIMIT).unwrap();
    let mut stream = late.rnic.begin_connect_stream(peer(), LIMIT).unwrap();
    let end = InterfaceEnd::Deleted("memory".to_owned());
    late.reporter.report(InterfaceNews::Ended(end.clone()));
    late.frames_at(Duration::ZERO);
    assert!(is_readable(&connecting) && is_readable(&stream));
    assert_eq!(late.host.searches(), 0);
    let outcomes = [
        connecting.try_finish().expect("an end").map(|_| ()),
        stream.try_finish().expect("an end").map(|_| ()),
    ];
    for outcome in outcomes {
        let failed = matches!(&outcome, Err(ConnectError::Failed(why)) if *why == end.to_string());
        assert!(failed, "{outcome:?}");
    }
}

#[test]
fn attempt_that_is_dropped_ends_its_connection() {
    // The reset crosses the acknowledgement of the Request.
    let mut sim = Sim::new(Seed(74))
        .one_way_delay(Duration::from_micros(50))
        .expecting(&["drop_no_flow"]);
    let config = QpConfig::default();
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen(at).unwrap();
    let connecting = a.qp.begin_connect(at, b"", LIMIT).unwrap();
    let request = sim.wait_for("the Request", || listener.try_accept().unwrap());
    drop(connecting);
    sim.run_until_idle();
    request.accept(&mut b.qp, b"").unwrap_err();
    assert_eq!(a.qp.state(), QpState::Idle);
    drop(listener);
    sim.connect(&mut a, &mut b);
}

#[test]
fn attempt_that_has_succeeded_may_be_dropped() {
    let mut sim = Sim::new(Seed(75)).one_way_delay(Duration::from_micros(50));
    let config = QpConfig::default();
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen(at).unwrap();
    let connecting = a.qp.begin_connect(at, b"", LIMIT).unwrap();
    let request = sim.wait_for("the Request", || listener.try_accept().unwrap());
    request.accept(&mut b.qp, b"").unwrap();
    sim.run_until("the answer", || is_readable(&connecting));
    drop(connecting);
    sim.run_until_idle();
    assert_eq!((a.qp.state(), b.qp.state()), (QpState::Rts, QpState::Rts));
}

#[test]
fn search_ends_with_its_rnic() {
    let mut late = Late::new(Progress::Manual);
    let mut connecting = late.qp.begin_connect(peer(), b"", LIMIT).unwrap();
    let mut stream = late.rnic.begin_connect_stream(peer(), LIMIT).unwrap();
    late.rnic.close().unwrap();
    assert!(is_readable(&connecting) && is_readable(&stream));
    let closed = RnicUnavailable::Closed;
    let outcome = connecting.try_finish().expect("an end");
    assert!(
        matches!(outcome, Err(ConnectError::Unavailable(why)) if why == closed),
        "{outcome:?}"
    );
    let outcome = stream.try_finish().expect("an end").map(|_| ());
    assert!(
        matches!(outcome, Err(ConnectError::Unavailable(why)) if why == closed),
        "{outcome:?}"
    );
}

#[test]
fn stream_goes_on_when_the_path_is_found_though_nobody_looks_at_it() {
    let late = Late::new(Progress::Manual);
    let mut connecting = late.rnic.begin_connect_stream(peer(), LIMIT).unwrap();
    assert!(!is_readable(&connecting));
    assert!(connecting.try_finish().is_none());
    late.answer(Ok(Side::B.mac()));
    assert_eq!(late.frames_at(Duration::ZERO), 1, "the SYN");
    assert!(is_readable(&connecting));
    let stream = connecting.try_finish().expect("a stream").unwrap();
    assert!(connecting.try_finish().is_none(), "once");
    assert!(!is_readable(&connecting));
    drop(connecting);
    let state = stream.state().unwrap();
    assert_eq!(state, xwarp::stream::StreamState::Connecting);
}

#[test]
fn stream_that_nobody_takes_goes_with_its_attempt() {
    let late = Late::new(Progress::Manual);
    let connecting = late.rnic.begin_connect_stream(peer(), LIMIT).unwrap();
    late.answer(Ok(Side::B.mac()));
    assert_eq!(late.frames_at(Duration::ZERO), 1, "the SYN");
    drop(connecting);
    assert_eq!(late.frames_at(LIMIT), 0, "no second SYN");
}

/// The engine's thread sleeps, and the application does not poll the attempt. Only the answer can
/// wake the engine.
#[test]
fn engine_that_sleeps_is_woken_by_the_answer() {
    let mut late = Late::new(Progress::Thread);
    let _connecting = late.qp.begin_connect(peer(), b"", LIMIT).unwrap();
    for asked in 1..4 {
        late.host.answer().give_nothing();
        eventually("the search is asked", || {
            late.host.answer().asked() == asked
        });
    }
    late.answer(Ok(Side::B.mac()));
    eventually("the SYN", || late.wire.take_sent().is_some());
}

/// An event loop that knows nothing of the attempt turns the engine.
#[test]
fn event_loop_of_the_engine_is_woken_by_the_answer() {
    let mut late = Late::new(Progress::Inline);
    let _connecting = late.qp.begin_connect(peer(), b"", LIMIT).unwrap();
    while is_readable(&late.rnic) {
        late.rnic.progress().unwrap();
    }
    assert!(late.wire.take_sent().is_none());
    late.answer(Ok(Side::B.mac()));
    assert!(is_readable(&late.rnic));
    late.rnic.progress().unwrap();
    assert!(late.wire.take_sent().is_some(), "the SYN");
}

/// Only the answer can wake the caller, which would sleep for [`LIMIT`] otherwise.
#[test]
fn caller_that_waits_is_woken_by_the_answer() {
    for progress in [Progress::Thread, Progress::Inline, Progress::Assisted] {
        let mut late = Late::new(progress);
        let host = Arc::clone(&late.host);
        let began = Instant::now();
        thread::scope(|scope| {
            let outcome = scope.spawn(|| late.qp.connect(peer(), b"", LIMIT));
            let unknown = HostError::Unknown(Side::B.address());
            host.answer().give(Err(unknown));
            let outcome = outcome.join().unwrap();
            let unknown = matches!(outcome, Err(ConnectError::Host(HostError::Unknown(_))));
            assert!(unknown, "{outcome:?}");
        });
        assert!(began.elapsed() < LIMIT, "{progress:?}");
        let stream = thread::scope(|scope| {
            let stream = scope.spawn(|| late.rnic.connect_stream(peer(), LIMIT));
            host.answer().give(Ok(Side::B.mac()));
            stream.join().unwrap()
        });
        assert!(stream.is_ok(), "{progress:?}");
    }
}
