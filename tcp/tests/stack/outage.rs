//! Outages: whatever a connection waits for, it makes a last try shortly before its timeout.

use std::time::Duration;

use proptest::prelude::*;
use xwarp_tcp::{CloseReason, ConnId, Event, Instant, StackConfig};
use xwarp_test_kit::Side;

use crate::net::{Fate, Net, config, small};

const USER_TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum time for an answer at the end: an outage may be as long as the timeout, less this time.
const ANSWER: Duration = Duration::from_millis(250);
/// Longest outage that is survived.
const LONGEST: Duration = Duration::from_millis(9749);
const MS: Duration = Duration::from_millis(1);

fn patient(side: Side) -> StackConfig {
    StackConfig {
        user_timeout: USER_TIMEOUT,
        ..config(side)
    }
}

/// Lets `length` pass while the link carries nothing.
fn outage(net: &mut Net, length: Duration) {
    net.judge(|_, _| Fate::Lose);
    net.pass(length);
    net.be_kind();
}

/// Lets time pass until `holds` returns true. Returns the time.
fn until(net: &mut Net, limit: Duration, mut holds: impl FnMut(&mut Net) -> bool) -> Duration {
    let start = net.now;
    while !holds(net) {
        assert!(net.now - start <= limit, "not within {limit:?}");
        assert!(net.jump(), "nothing is waited for");
    }
    net.now - start
}

/// Maximum time after an outage until a retransmission. It is the duration of the outage, as
/// intervals double, and at most the rest of the timeout.
fn limit(length: Duration) -> Duration {
    (length + 30 * MS).min(USER_TIMEOUT.saturating_sub(length))
}

/// Time after an outage until bytes sent in it are acknowledged.
fn bytes_survive(length: Duration, timestamps: bool) -> Duration {
    let with = |side| StackConfig {
        timestamps,
        ..patient(side)
    };
    let mut net = Net::with(with(Side::A), with(Side::B));
    let (a, b) = net.connect(false);
    net.judge(|_, _| Fate::Lose);
    for _ in 0..5 {
        assert!(net.a.write(a, &[7; 1000], net.now));
    }
    outage(&mut net, length);
    let taken = until(&mut net, limit(length), |net| net.a.conn(a).unacked() == 0);
    assert_eq!(net.b.read(b, 1000), [7; 5000]);
    assert_eq!((net.a.events(), net.b.close_reasons(b)), (vec![], vec![]));
    taken
}

#[test]
fn bytes_survive_an_outage_of_any_length_below_the_user_timeout() {
    for length in (1..).map(|n| n * 50 * MS) {
        if length > LONGEST {
            break;
        }
        bytes_survive(length, true);
        bytes_survive(length, false);
    }
    let last = bytes_survive(LONGEST, true);
    assert!(last < 2 * MS, "{last:?}: at once");
}

/// One more than without the last try: 5 ms and a round trip doubled are 5.1 s after eleven times.
#[test]
fn last_try_is_one_segment_more_and_the_end_comes_on_time() {
    let mut net = Net::with(patient(Side::A), patient(Side::B));
    let (a, _) = net.connect(false);
    net.carried.clear();
    assert!(net.a.write(a, &[7; 1000], net.now));
    let start = net.now;
    outage(&mut net, Duration::from_millis(9999));
    assert_eq!(net.a.events(), []);
    assert_eq!(net.carried.len(), 1 + 1 + 10 + 1, "with a tail probe");
    net.pass(2 * MS);
    let reason = CloseReason::TimedOut;
    assert_eq!(
        net.a.events(),
        [Event::Closed {
            conn: a,
            reason,
            lost: true
        }]
    );
    assert!(net.now - start < USER_TIMEOUT + 3 * MS);
}

/// A timeout too short for the minimum time for an answer.
#[test]
fn short_timeout_is_kept_too() {
    for timeout in [40, 100, 500, 1500].map(|n| n * MS) {
        let hasty = |side| StackConfig {
            user_timeout: timeout,
            ..config(side)
        };
        let mut net = Net::with(hasty(Side::A), hasty(Side::B));
        let (a, b) = net.connect(false);
        assert!(net.a.write(a, &[7; 1000], net.now));
        outage(&mut net, (timeout * 3 / 4).saturating_sub(2 * MS));
        until(&mut net, timeout / 4 + 2 * MS, |net| {
            net.a.conn(a).unacked() == 0
        });
        assert_eq!(net.b.read(b, 1000), [7; 1000]);
        assert!(net.a.write(a, &[7; 1000], net.now));
        outage(&mut net, timeout + MS);
        assert_eq!(net.a.close_reasons(a), [CloseReason::TimedOut]);
    }
}

/// The timer of data acknowledged after an outage stays backed off if there is no sample of the
/// round trip.
#[test]
fn second_outage_is_survived_as_the_first() {
    for timestamps in [true, false] {
        let with = |side| StackConfig {
            timestamps,
            ..patient(side)
        };
        let mut net = Net::with(with(Side::A), with(Side::B));
        let (a, b) = net.connect(false);
        for _ in 0..5 {
            assert!(net.a.write(a, &[7; 1000], net.now));
        }
        outage(&mut net, Duration::from_millis(9700));
        // The first answer arrives, and no other frame.
        let mut answered = false;
        net.judge(move |from, _| {
            let passes = !answered;
            answered |= from == Side::B;
            if passes { Fate::Pass } else { Fate::Lose }
        });
        until(&mut net, USER_TIMEOUT, |net| net.a.conn(a).unacked() < 5000);
        net.pass(Duration::from_millis(9600));
        net.be_kind();
        until(&mut net, USER_TIMEOUT, |net| net.a.conn(a).unacked() == 0);
        assert_eq!(net.b.read(b, 1000), [7; 5000]);
    }
}

#[test]
fn fin_survives_an_outage_of_any_length_below_the_user_timeout() {
    for length in (1..98).map(|n| n * 100 * MS) {
        let mut net = Net::with(patient(Side::A), patient(Side::B));
        let (a, b) = net.connect(false);
        net.judge(|_, _| Fate::Lose);
        net.a.stack.close(a, net.now);
        outage(&mut net, length.min(LONGEST));
        until(&mut net, limit(length), |net| {
            net.b.events.contains(&Event::PeerClosed(b))
        });
        assert_eq!(net.a.close_reasons(a), [], "after {length:?}");
    }
}

#[test]
fn syn_survives_an_outage_of_any_length_below_the_connect_timeout() {
    let timeout = config(Side::A).connect_timeout;
    // Until the SYN is answered, the timeout assumes that an answer may take a second.
    for length in (1..40).map(|n| n * 100 * MS) {
        let mut net = Net::new();
        net.listen(false);
        net.judge(|_, _| Fate::Lose);
        let a = net.a.stack.connect(Net::path(false, 1), net.now).unwrap();
        outage(&mut net, length);
        until(&mut net, timeout.saturating_sub(length), |net| {
            net.a.events.contains(&Event::Connected(a))
        });
    }
}

#[test]
fn connect_timeout_below_a_second_has_its_second_try() {
    let hasty = |side| StackConfig {
        connect_timeout: 800 * MS,
        ..config(side)
    };
    let mut net = Net::with(hasty(Side::A), config(Side::B));
    net.listen(false);
    net.judge(|_, _| Fate::Lose);
    let a = net.a.stack.connect(Net::path(false, 1), net.now).unwrap();
    outage(&mut net, 500 * MS);
    until(&mut net, 300 * MS, |net| {
        net.a.events.contains(&Event::Connected(a))
    });
}

/// A's writer waits for room in b's window, which opens during the outage.
fn room_is_learned_of(length: Duration, begins: Duration) {
    let mut net = Net::with(
        patient(Side::A),
        StackConfig {
            user_timeout: USER_TIMEOUT,
            ..small(Side::B, 4096)
        },
    );
    let (a, b) = net.connect(false);
    net.a.write(a, &[7; 1448], net.now);
    net.a.write(a, &[7; 1448], net.now);
    net.a.write(a, &[7; 1200], net.now);
    net.settle();
    assert!(!net.a.write(a, &[7; 1448], net.now));
    net.pass(begins);
    net.judge(|_, _| Fate::Lose);
    assert_eq!(net.b.read(b, 1000).len(), 4096);
    outage(&mut net, length);
    until(&mut net, USER_TIMEOUT / 3 + MS, |net| {
        net.a.events.contains(&Event::Writable(a))
    });
    assert_eq!(net.a.close_reasons(a), []);
}

/// A probe of a silent peer whose answer is delayed by an outage.
fn silence_is_survived(length: Duration, begins: Duration, keepalive: Duration) {
    let asking = StackConfig {
        keepalive: Some(keepalive),
        ..patient(Side::A)
    };
    let mut net = Net::with(asking, patient(Side::B));
    let (a, _) = net.connect(false);
    net.pass(begins);
    outage(&mut net, length);
    net.pass(USER_TIMEOUT);
    assert_eq!(net.a.events(), [], "{length:?} after {begins:?}");
    outage(&mut net, keepalive + USER_TIMEOUT + MS);
    assert_eq!(net.a.close_reasons(a), [CloseReason::TimedOut]);
}

/// An outage that ends before the last try does.
fn length() -> impl Strategy<Value = Duration> {
    (100..9740_u64).prop_map(Duration::from_millis)
}

fn begins() -> impl Strategy<Value = Duration> {
    (0..40_000_000_u64).prop_map(Duration::from_micros)
}

proptest! {
    #[test]
    fn closed_window_survives_an_outage(length in length(), begins in begins()) {
        room_is_learned_of(length, begins);
    }

    #[test]
    fn silent_connection_survives_an_outage(length in length(), begins in begins(), keepalive in 1..30_u64) {
        silence_is_survived(length, begins, Duration::from_secs(keepalive));
    }

    #[test]
    fn bytes_survive_an_outage(length in length(), timestamps: bool) {
        bytes_survive(length, timestamps);
    }
}

/// Everything sent to a peer that does not answer, until the end.
fn tries(net: &mut Net, conn: ConnId) -> Vec<Instant> {
    let mut tries = Vec::new();
    net.judge(|_, _| Fate::Lose);
    while net.a.close_reasons(conn).is_empty() {
        net.carried.clear();
        assert!(net.jump());
        if net.carried.iter().any(|(from, _)| *from == Side::A) {
            tries.push(net.now);
        }
    }
    tries
}

#[test]
fn dead_peer_with_a_closed_window_is_asked_before_the_end() {
    let mut net = Net::with(patient(Side::A), small(Side::B, 1024));
    let (a, _) = net.connect(false);
    net.a.write(a, &[7; 1024], net.now);
    net.settle();
    assert!(!net.a.write(a, &[7; 1], net.now));
    net.pass(Duration::from_secs(20));
    let tries = tries(&mut net, a);
    let [first, .., last, reset] = tries[..] else {
        panic!("{tries:?}");
    };
    assert!(reset - first >= USER_TIMEOUT && reset - first < USER_TIMEOUT + 2 * MS);
    assert!(reset - last >= ANSWER && reset - last < ANSWER + 2 * MS);
}
