//! Hand-written stacks of one interface: answers to SYNs that arrive at another stack, and flows
//! that both claim.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use smoltcp::wire::{TcpControl, TcpRepr};
use xwarp_driver::{MemoryIo, PacketIo, Sleeper, Wire};
use xwarp_tcp::{CloseReason, ConnId, ConnectError, Event, Instant, Path, Stack, StrayAnswers};
use xwarp_test_kit::Side;

use crate::frames::{self, Seen, segment};
use crate::net::{BUDGET, FRAMES, config};

/// The peer's initial sequence number.
const ISS: u32 = 1000;
/// Time limit of an attempt.
const LIMIT: Duration = Duration::from_secs(20);

/// The connecting stack, and another one of its interface.
struct Siblings {
    stacks: [Stack; 2],
    wires: [Wire; 2],
    now: Instant,
    strays: StrayAnswers,
    _sleepers: Vec<Sleeper>,
}

/// The stack whose queue receives a frame.
#[derive(Clone, Copy)]
enum At {
    Home,
    Other,
}

impl Siblings {
    fn new() -> Self {
        let queue = || {
            let (io, wire) = MemoryIo::new(FRAMES).unwrap();
            let (sleeper, bell) = Sleeper::new().unwrap();
            ((Box::new(io) as Box<dyn PacketIo>, bell), (wire, sleeper))
        };
        let (ios, rest): (Vec<_>, Vec<_>) = [queue(), queue()].into_iter().unzip();
        let (wires, sleepers): (Vec<_>, Vec<_>) = rest.into_iter().unzip();
        let strays = StrayAnswers::default();
        let stacks = Stack::several(ios, &config(Side::B), &strays).unwrap();
        Self {
            stacks: stacks.try_into().expect("two"),
            wires: wires.try_into().unwrap_or_else(|_| panic!("two")),
            now: Instant::from_micros(1_000_000),
            strays,
            _sleepers: sleepers,
        }
    }

    /// Connects from a port, and refuses stray answers.
    fn connect(&mut self, port: u16) -> (ConnId, u32) {
        let home = &mut self.stacks[0];
        let conn = home.connect_within(path(port), LIMIT, self.now).unwrap();
        home.refuse_stray_answer(conn);
        let sent = self.turn();
        assert!(sent.len() == 1 && sent[0].syn && !sent[0].ack);
        (conn, sent[0].seq)
    }

    /// Runs a turn of the other stack, then of the connecting one. Returns the segments sent by
    /// both.
    fn turn(&mut self) -> Vec<Seen> {
        for which in [1, 0] {
            self.stacks[which].step(self.now, BUDGET).unwrap();
        }
        let wires = self.wires.iter();
        let sent = wires.flat_map(|wire| std::iter::from_fn(|| wire.take_sent()));
        sent.map(|frame| frames::read(&frame)).collect()
    }

    /// Delivers a segment of the peer to a port.
    fn receive(&mut self, at: At, port: u16, tcp: &TcpRepr<'_>) -> Vec<Seen> {
        let tcp = TcpRepr {
            dst_port: port,
            ..*tcp
        };
        self.wires[at as usize].deliver(frames::write(&tcp));
        self.turn()
    }

    /// The peer answers a SYN.
    fn answer(&mut self, at: At, port: u16, iss: u32) -> Vec<Seen> {
        let answer = segment(TcpControl::Syn, ISS, Some(iss + 1));
        self.receive(at, port, &answer)
    }

    /// Delivers the answer to the other stack, and nothing else.
    fn go_astray(&mut self, (conn, iss): (ConnId, u32), port: u16) {
        let sent = self.answer(At::Other, port, iss);
        assert!(sent.len() == 1 && is_reset(&sent[0], iss + 1), "{sent:?}");
        assert_eq!(self.events(), [Event::Stray(conn)]);
    }

    /// Opens the connection again from a port. Returns the SYN.
    fn open_anew(&mut self, conn: ConnId, port: u16) -> Vec<Seen> {
        let local = path(port).local;
        assert!(self.stacks[0].open_anew(conn, local, self.now));
        assert_eq!(self.stacks[0].next_deadline(), Some(self.now));
        self.turn()
    }

    fn events(&mut self) -> Vec<Event> {
        assert_eq!(self.stacks[1].poll_event(), None);
        let home = &mut self.stacks[0];
        std::iter::from_fn(|| home.poll_event()).collect()
    }
}

/// A path from a port of the host to its peer.
fn path(port: u16) -> Path {
    Path {
        local: format!("10.0.0.2:{port}").parse().unwrap(),
        remote: "10.0.0.1:40000".parse().unwrap(),
        next_hop: Side::A.mac(),
        metrics: xwarp_tcp::RouteMetrics::default(),
    }
}

/// True if the peer's half-open connection is reset (RFC 9293 §3.10.7.4).
fn is_reset(seen: &Seen, seq: u32) -> bool {
    seen.rst && !seen.ack && seen.seq == seq
}

#[test]
fn connection_begins_anew_from_another_port_until_the_answer_comes_home() {
    let mut host = Siblings::new();
    let (conn, mut iss) = host.connect(5000);
    for port in 5000..5003 {
        host.go_astray((conn, iss), port);
        let sent = host.open_anew(conn, port + 1);
        assert!(sent.len() == 1 && sent[0].syn && !sent[0].ack);
        iss = sent[0].seq;
        host.stacks[0].refuse_stray_answer(conn);
    }
    let sent = host.answer(At::Home, 5003, iss);
    assert!(sent.len() == 1 && sent[0].ack && sent[0].ack_number == ISS + 1);
    assert_eq!(host.events(), [Event::Connected(conn)]);
    assert_eq!(host.stacks[0].conn(conn).unwrap().local_addr().port(), 5003);
    assert_eq!(host.stacks[0].counters().opened_anew, 3);
}

#[test]
fn answers_of_flows_that_were_given_up_are_reset_wherever_they_come() {
    let mut host = Siblings::new();
    let (conn, iss) = host.connect(5000);
    host.go_astray((conn, iss), 5000);
    let syn = host.open_anew(conn, 5001);
    for at in [At::Home, At::Other] {
        let sent = host.answer(at, 5000, iss);
        assert!(sent.len() == 1 && is_reset(&sent[0], iss + 1));
    }
    assert_eq!(host.events(), []);
    let counters = host.stacks.each_ref().map(Stack::counters);
    assert_eq!(counters.map(|it| it.drop_no_flow), [1, 1]);
    host.answer(At::Home, 5001, syn[0].seq);
    assert_eq!(host.events(), [Event::Connected(conn)]);
}

#[test]
fn repeated_answer_is_refused_again_and_told_once() {
    let mut host = Siblings::new();
    let (conn, iss) = host.connect(5000);
    host.go_astray((conn, iss), 5000);
    for at in [At::Other, At::Home] {
        let sent = host.answer(at, 5000, iss);
        assert!(sent.len() == 1 && is_reset(&sent[0], iss + 1));
        assert_eq!(host.events(), []);
    }
}

#[test]
fn stray_answer_is_taken_unless_it_is_unwanted() {
    let mut host = Siblings::new();
    let (conn, iss) = host.connect(5000);
    host.go_astray((conn, iss), 5000);
    // There is no other port, and the peer gets the SYN again.
    let syn = host.open_anew(conn, 5000);
    let sent = host.answer(At::Other, 5000, syn[0].seq);
    assert!(sent.len() == 1 && sent[0].ack && !sent[0].rst);
    assert_eq!(host.events(), [Event::Connected(conn)]);
}

/// Other segments of the flow are handed over, too.
#[test]
fn answers_to_syns_alone_count_as_stray_answers() {
    let mut host = Siblings::new();
    let (conn, iss) = host.connect(5000);
    host.answer(At::Home, 5000, iss);
    assert_eq!(host.events(), [Event::Connected(conn)]);
    let ack = segment(TcpControl::None, ISS + 1, Some(iss + 1));
    host.receive(At::Other, 5000, &ack);
    assert_eq!(host.strays.count(), 0, "it is no answer to a SYN");
    host.answer(At::Other, 5000, iss);
    assert_eq!(host.strays.count(), 1);
    assert_eq!(host.stacks[1].counters().handed_over, 2);
}

#[test]
fn answer_that_comes_home_is_always_wanted() {
    let mut host = Siblings::new();
    let (conn, iss) = host.connect(5000);
    host.answer(At::Home, 5000, iss);
    assert_eq!(host.events(), [Event::Connected(conn)]);
}

#[test]
fn refusal_counts_wherever_it_comes() {
    let mut host = Siblings::new();
    let (conn, iss) = host.connect(5000);
    host.go_astray((conn, iss), 5000);
    let syn = host.open_anew(conn, 5001);
    host.stacks[0].refuse_stray_answer(conn);
    let reset = segment(TcpControl::Rst, 0, Some(syn[0].seq + 1));
    assert_eq!(host.receive(At::Other, 5001, &reset), []);
    let reason = CloseReason::Refused;
    assert_eq!(
        host.events(),
        [Event::Closed {
            conn,
            reason,
            lost: false
        }]
    );
}

/// An attacker who does not know our number cannot make it open again.
#[test]
fn blind_answer_is_no_answer() {
    let mut host = Siblings::new();
    let (_, iss) = host.connect(5000);
    let sent = host.answer(At::Other, 5000, iss + 9);
    assert!(sent.len() == 1 && is_reset(&sent[0], iss + 10));
    assert_eq!(host.events(), []);
}

/// After a simultaneous open the peer has only this flow for its connection.
#[test]
fn both_may_open_at_once_whatever_comes_astray() {
    let mut host = Siblings::new();
    let (conn, iss) = host.connect(5000);
    let syn = segment(TcpControl::Syn, ISS, None);
    let sent = host.receive(At::Other, 5000, &syn);
    assert!(sent.len() == 1 && sent[0].syn && sent[0].ack);
    host.answer(At::Other, 5000, iss);
    assert_eq!(host.events(), [Event::Connected(conn)]);
}

#[test]
fn time_goes_on_when_a_connection_begins_anew() {
    let mut host = Siblings::new();
    let (conn, iss) = host.connect(5000);
    let began = host.now;
    host.now = began + LIMIT / 2;
    host.turn();
    host.go_astray((conn, iss), 5000);
    host.open_anew(conn, 5001);
    while let Some(next) = host.stacks[0].next_deadline() {
        host.now = host.now.max(next);
        host.turn();
        let events = host.events();
        if events.iter().all(|event| *event == Event::Doubtful(conn)) {
            continue;
        }
        let reason = CloseReason::TimedOut;
        assert_eq!(
            events,
            [Event::Closed {
                conn,
                reason,
                lost: false
            }]
        );
        assert_eq!(host.now, began + LIMIT);
        return;
    }
    panic!("it never ends");
}

#[test]
fn only_a_connection_whose_answer_was_refused_begins_anew() {
    let mut host = Siblings::new();
    let (conn, iss) = host.connect(5000);
    let to = |port| path(port).local;
    assert!(!host.stacks[0].open_anew(conn, to(5001), host.now));
    host.go_astray((conn, iss), 5000);
    let v6 = "[fd00::b]:5001".parse().unwrap();
    assert!(!host.stacks[0].open_anew(conn, v6, host.now));
    let (taken, _) = host.connect(5001);
    assert!(!host.stacks[0].open_anew(conn, to(5001), host.now));
    assert!(host.stacks[0].is_open(taken));
    host.stacks[0].abort(conn, host.now);
    assert!(!host.stacks[0].open_anew(conn, to(5002), host.now));
    let reason = CloseReason::Aborted;
    assert_eq!(
        host.events(),
        [Event::Closed {
            conn,
            reason,
            lost: false
        }]
    );
    assert!(!host.stacks[0].open_anew(conn, to(5002), host.now));
    assert_eq!(host.turn(), [], "nothing is said of it");
}

/// As with two engines whose application has named the same ports.
#[test]
fn of_two_stacks_that_want_a_flow_at_once_one_gets_it() {
    const PORTS: Range<u16> = 1000..1400;
    for _ in 0..20 {
        let mut host = Siblings::new();
        let (now, begun) = (host.now, AtomicUsize::new(0));
        let connect_all = |stack: &mut Stack| {
            let each = (1..).zip(PORTS).map(|(round, port)| {
                begun.fetch_add(1, Ordering::SeqCst);
                while begun.load(Ordering::SeqCst) < 2 * round {
                    thread::yield_now();
                }
                stack.connect_alone(path(port), LIMIT, now)
            });
            each.collect::<Vec<_>>()
        };
        let [first, second] = &mut host.stacks;
        let outcomes = thread::scope(|scope| {
            let other = scope.spawn(|| connect_all(second));
            [connect_all(first), other.join().unwrap()]
        });
        for (port, (one, two)) in PORTS.zip(outcomes[0].iter().zip(&outcomes[1])) {
            assert_ne!(one.is_ok(), two.is_ok(), "{port}");
            let refused = one.as_ref().err().or(two.as_ref().err());
            assert!(matches!(refused, Some(ConnectError::FlowExists { .. })));
        }
    }
}

#[test]
fn flow_that_a_stack_has_given_up_is_free_for_another() {
    let mut host = Siblings::new();
    let now = host.now;
    let [first, second] = &mut host.stacks;
    let conn = first.connect_alone(path(1000), LIMIT, now).unwrap();
    let refused = second.connect_alone(path(1000), LIMIT, now);
    assert!(matches!(refused, Err(ConnectError::FlowExists { .. })));
    let refused = first.connect_alone(path(1000), LIMIT, now);
    assert!(
        matches!(refused, Err(ConnectError::FlowExists { .. })),
        "its own"
    );
    first.abort(conn, now);
    assert!(second.connect_alone(path(1000), LIMIT, now).is_ok());
}
