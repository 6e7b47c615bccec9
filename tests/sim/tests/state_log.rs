//! Log of state changes: one line at debug for each change of a queue pair and of its connection.
//! Connections without a queue pair have such lines, too.

use std::cell::RefCell;
use std::sync::Once;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use log::{LevelFilter, Log, Metadata, Record};
use xwarp::attr::QpChange;
use xwarp::event::{AsyncEvent, AsyncEventKind, AsyncEvents};
use xwarp::stream::Framing;
use xwarp::{QpConfig, QpState};
use xwarp_sim_tests::{MIB, Sim, SimEnd, pattern};
use xwarp_test_kit::netsim::Seed;

thread_local! {
    /// Lines at debug of the crate that has the queue pairs, of this thread: other tests log, too.
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    /// Who takes an event at a line of this thread.
    static TAKER: RefCell<Option<Taker>> = const { RefCell::new(None) };
}

/// Takes an event in a thread of its own, as soon as the log has this line.
struct Taker {
    line: String,
    events: AsyncEvents,
    thread: Option<JoinHandle<Option<AsyncEvent>>>,
}

impl Taker {
    fn see(&mut self, line: &str) {
        if line != self.line {
            return;
        }
        let (events, (tell, told)) = (self.events.clone(), channel());
        self.thread = Some(thread::spawn(move || {
            tell.send("asks").unwrap();
            let taken = events.try_next().unwrap();
            // The receiver is gone if `try_next` took longer than it waits.
            let _ = tell.send("has an answer");
            taken
        }));
        assert_eq!(told.recv(), Ok("asks"));
        // Long enough for an answer, unless the thread that logs this line must first report the
        // event.
        let _ = told.recv_timeout(Duration::from_millis(50));
    }
}

struct Capture;

impl Log for Capture {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() == log::Level::Debug && metadata.target().starts_with("xwarp_rnic")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let line = record.args().to_string();
            TAKER.with_borrow_mut(|taker| taker.iter_mut().for_each(|it| it.see(&line)));
            LINES.with_borrow_mut(|lines| lines.push(line));
        }
    }

    fn flush(&self) {}
}

/// What the log says of this object, in order.
fn said_of(object: &str) -> Vec<String> {
    let prefix = format!("{object}: ");
    LINES.with_borrow(|lines| {
        let said = lines.iter().filter_map(|line| line.strip_prefix(&prefix));
        said.map(str::to_owned).collect()
    })
}

fn said_of_qp(number: u32) -> Vec<String> {
    said_of(&format!("queue pair {number}"))
}

/// Has the tests of this process share one logger.
fn capture() {
    static SET: Once = Once::new();
    SET.call_once(|| log::set_logger(&Capture).unwrap());
    log::set_max_level(LevelFilter::Debug);
}

#[test]
fn state_changes_of_a_connect_and_a_close_are_in_the_log_one_by_one() {
    capture();
    let mut sim = Sim::new(Seed(1));
    let config = QpConfig::default();
    // Each RNIC counts for itself: one more makes the numbers differ.
    let _first = sim.a().end(&config);
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    let [number, peer] = [&a, &b].map(|end| end.qp.id().number());
    assert_ne!(number, peer);
    sim.connect(&mut a, &mut b);
    a.qp.begin_disconnect().unwrap();
    sim.run_until_idle();
    let initiator = [
        "Idle, unconnected, to Idle, connecting",
        "Idle, connecting, to Rts, open",
        "Rts, open, to Closing, draining",
        "Closing, draining, to Closing, closing",
        "Closing, closing, to Idle, unconnected",
    ];
    // Its application could still post until all was sent.
    let responder = [
        "Idle, unconnected, to Rts, open",
        "Rts, open, to Rts, draining",
        "Rts, draining, to Closing, closing",
        "Closing, closing, to Idle, unconnected",
    ];
    assert_eq!(said_of_qp(number), initiator);
    assert_eq!(said_of_qp(peer), responder);
}

/// Two connected ends whose queue pairs have different numbers.
fn pair(sim: &mut Sim) -> (SimEnd, SimEnd) {
    let config = QpConfig::default();
    let _first = sim.a().end(&config);
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    sim.connect(&mut a, &mut b);
    (a, b)
}

/// Asserts that the last state in the log is the one that the queue pair returns in every way.
fn assert_log_agrees(end: &SimEnd) {
    let said = said_of_qp(end.qp.id().number());
    let last = said.last().expect("a change");
    let (_, to) = last.split_once(", to ").expect("where it led");
    let state = format!("{:?}", end.state());
    assert_eq!(to.split_once(',').map(|(state, _)| state), Some(&*state));
    assert_eq!(end.qp.query().map(|info| info.state), Ok(end.state()));
}

#[test]
fn log_tells_the_state_that_the_queue_pair_has_all_through_a_disconnect() {
    capture();
    let mut sim = Sim::new(Seed(4));
    let (mut a, b) = pair(&mut sim);
    let target = b.target(MIB);
    a.post_write(1, &pattern(MIB), target.remote(0));
    a.qp.begin_disconnect().unwrap();
    assert_log_agrees(&a);
    sim.run_until("both ends in Idle", || {
        [&a, &b].into_iter().for_each(assert_log_agrees);
        [&a, &b].map(SimEnd::state) == [QpState::Idle; 2]
    });
    assert_eq!(target.to_vec(), pattern(MIB), "it was sent in Closing");
}

/// A disconnect is in Closing while it still sends and receives, and there it can tell the peer
/// what is wrong.
#[test]
fn log_tells_the_state_that_the_queue_pair_has_when_a_disconnect_ends_in_terminate() {
    capture();
    let mut sim = Sim::new(Seed(5)).expecting(&["drop_refused_segment"]);
    let (mut a, mut b) = pair(&mut sim);
    let target = b.target(MIB);
    a.post_write(1, &pattern(MIB), target.remote(0));
    a.qp.begin_disconnect().unwrap();
    b.post_send(2, b"for which there is no receive");
    sim.run_until("both ends in Error", || {
        [&a, &b].into_iter().for_each(assert_log_agrees);
        [&a, &b].map(SimEnd::state) == [QpState::Error; 2]
    });
    let failure = [
        "Rts, open, to Closing, draining",
        "Closing, draining, to Terminate, terminating",
        "Terminate, terminating, to Error, unconnected",
    ];
    let said = said_of_qp(a.qp.id().number());
    assert_eq!(said[said.len() - failure.len()..], failure);
}

/// Verbs draft §6.2.5: the event is generated before the queue pair moves to Idle.
#[test]
fn close_event_can_be_taken_by_whoever_sees_the_queue_pair_in_idle() {
    capture();
    let mut sim = Sim::new(Seed(6));
    let (mut a, _b) = pair(&mut sim);
    sim.run_until_idle();
    let number = a.qp.id().number();
    TAKER.set(Some(Taker {
        line: format!("queue pair {number}: Closing, sealed, to Idle, unconnected"),
        events: sim.a().rnic().events(),
        thread: None,
    }));
    a.qp.modify(QpChange::to(QpState::Closing)).unwrap();
    sim.run_until_idle();
    let thread = TAKER.take().and_then(|taker| taker.thread);
    let taken = thread.expect("it came into Idle").join().unwrap();
    let event = taken.expect("an event that was there before");
    assert_eq!(
        (event.qp(), event.kind),
        (Some(a.qp.id()), AsyncEventKind::Closed)
    );
}

const LIMIT: Duration = Duration::from_secs(5);

const PORT: u16 = 9001;

#[test]
fn state_changes_of_streams_are_in_the_log_one_by_one() {
    capture();
    let mut sim = Sim::new(Seed(2));
    let mut end = sim.a().end(&QpConfig::default());
    let at = sim.b().at(PORT);
    let mut listener = sim.b().rnic().listen_streams(at).unwrap();
    let mut connect = || {
        let near = sim.a().rnic().connect_stream(at, LIMIT).unwrap();
        let far = sim.wait_for("a stream", || listener.try_accept().unwrap());
        sim.run_until_idle();
        (near, far)
    };
    let (near, far) = connect();
    let (handed_over, kept) = connect();
    drop(near);
    let change = QpChange::start(&handed_over, Framing::default());
    end.qp.modify(change).unwrap();
    let number = end.qp.id().number();
    sim.run_until_idle();
    let [first, second] = [49_152, 49_153].map(|port| sim.a().at(port));
    let established = ["new, Connecting", "Connecting to Established"];
    let dropped = [&established[..], &["Established to dropped"]].concat();
    assert_eq!(said_of(&format!("stream from {first} to {at}")), dropped);
    let gone = [
        "new, Established",
        "Established to PeerClosed",
        // The other end waits for this one's FIN no longer than for a start-up frame.
        "PeerClosed to Gone",
    ];
    assert_eq!(said_of(&format!("stream from {at} to {first}")), gone);
    let its = format!("Established to queue pair {number}");
    let handed_over = [&established[..], &[&its]].concat();
    assert_eq!(
        said_of(&format!("stream from {second} to {at}")),
        handed_over
    );
    drop((far, kept));
}

#[test]
fn state_changes_of_incoming_connections_are_in_the_log_one_by_one() {
    capture();
    let mut sim = Sim::new(Seed(3));
    let config = QpConfig::default();
    let (mut accepted, mut rejected) = (sim.a().end(&config), sim.a().end(&config));
    let mut b = sim.b().end(&config);
    let at = sim.b().at(PORT);
    let mut listener = sim.b().rnic().listen(at).unwrap();
    let mut request = |end: &mut SimEnd| {
        let connecting = end.qp.begin_connect(at, b"", LIMIT).unwrap();
        let request = sim.wait_for("a Request", || listener.try_accept().unwrap());
        (request.remote(), request, connecting)
    };
    let (first, yes, _first) = request(&mut accepted);
    let (second, no, _second) = request(&mut rejected);
    yes.accept(&mut b.qp, b"").unwrap();
    no.reject(b"").unwrap();
    let number = b.qp.id().number();
    sim.run_until_idle();
    for (remote, end) in [
        (first, format!("queue pair {number}")),
        (second, "rejected".to_owned()),
    ] {
        assert_eq!(
            said_of(&format!("incoming connection from {remote} to {at}")),
            [
                "new, awaiting Request",
                "awaiting Request to awaiting answer",
                &format!("awaiting answer to {end}")
            ]
        );
    }
}
