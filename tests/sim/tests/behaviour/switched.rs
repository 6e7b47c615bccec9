//! Two processes of one host, joined by a software switch: one of them ends, or the switch does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use xwarp::error::ConnectError;
use xwarp::event::AsyncEventKind;
use xwarp::stream::{LlpStream, StreamState};
use xwarp::{Access, QpConfig, QpState};
use xwarp_sim_tests::{Done, MIB, Side, Sim, SimEnd, pattern};
use xwarp_test_kit::cases;
use xwarp_test_kit::netsim::{Direction, Seed};

const ADDRESSES: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];
const DELAY: Duration = Duration::from_millis(10);
const LIMIT: Duration = Duration::from_mins(1);

/// The direction that begins at a side is slow.
fn slow_from(sim: &mut Sim, side: Side) {
    let direction = match side {
        Side::A => Direction::AToB,
        Side::B => Direction::BToA,
    };
    sim.link().lane(direction).conditions.one_way_delay = DELAY;
}

fn placed(end: &SimEnd) -> u64 {
    end.host().rnic().counters().unwrap().rdma.placed_bytes
}

/// The connection is reset by the first RST: no challenge ACK asks for another (RFC 5961 §3.2).
fn assert_reset(end: &SimEnd) {
    assert_eq!(end.events(), [AsyncEventKind::ConnectionReset]);
    assert_eq!(end.state(), QpState::Error);
    let counters = end.host().rnic().counters().unwrap();
    assert_eq!(counters.tcp.challenge_acks, 0);
}

#[test]
fn peer_of_a_process_that_ends_midway_is_reset_at_once() {
    for address in cases(ADDRESSES) {
        for ends in Side::BOTH {
            let mut sim = Sim::switched(Seed(311), address);
            let (mut a, b) = sim.connected_pair();
            // Acknowledgments are under way if the sender ends, data if the receiver does.
            slow_from(&mut sim, ends.other());
            let target = b.region(4 * MIB, Access::all());
            let before = placed(&b);
            a.post_write(1, &pattern(4 * MIB), target.remote(0));
            sim.run_for(DELAY / 2);
            let came = placed(&b) - before;
            match ends {
                Side::A => assert!(came > 0 && came < 4 * MIB as u64, "{came} bytes"),
                Side::B => assert_eq!(came, 0, "all data is under way"),
            }
            sim.kill(ends);
            sim.run_for(Duration::ZERO);
            match ends {
                Side::A => assert_reset(&b),
                Side::B => assert_reset(&a),
            }
            sim.run_until_idle();
        }
    }
}

/// A listener at B that A has begun to connect to, for half of the time that the answer takes.
fn half_a_handshake(sim: &mut Sim, check: impl FnOnce(&mut Sim, &mut dyn FnMut() -> Outcome)) {
    let mut end = sim.a().end(&QpConfig::default());
    let at = sim.b().at(sim.new_port());
    let host = sim.b();
    let _listener = host.rnic().listen(at).unwrap();
    let mut connecting = end.qp.begin_connect(at, b"", LIMIT).unwrap();
    sim.run_for(DELAY / 2);
    check(sim, &mut || connecting.try_finish().map(|it| it.map(drop)));
}

type Outcome = Option<Result<(), ConnectError>>;

#[test]
fn handshake_with_a_process_that_ends_fails_at_once() {
    for address in cases(ADDRESSES) {
        // The SYN is answered, and the answer is under way. The RST is behind it. A retries with
        // MPA's revision 1, and the switch refuses that connection.
        let mut sim = Sim::switched(Seed(312), address).expecting(&["drop_no_flow"]);
        slow_from(&mut sim, Side::B);
        half_a_handshake(&mut sim, |sim, outcome| {
            sim.kill(Side::B);
            sim.run_for(2 * DELAY);
            assert_closed(&outcome());
        });
        // TCP's handshake is over, and MPA's has begun.
        let mut sim = Sim::switched(Seed(313), address).expecting(&["drop_no_flow"]);
        half_a_handshake(&mut sim, |sim, outcome| {
            assert!(outcome().is_none());
            sim.kill(Side::B);
            sim.run_for(Duration::ZERO);
            assert_closed(&outcome());
        });
    }
}

fn assert_closed(outcome: &Outcome) {
    let closed = matches!(outcome, Some(Err(ConnectError::PeerClosed(_))));
    assert!(closed, "{outcome:?}");
}

#[test]
fn half_open_connection_of_a_process_that_ends_is_forgotten_at_once() {
    for address in cases(ADDRESSES) {
        let mut sim = Sim::switched(Seed(314), address);
        slow_from(&mut sim, Side::B);
        half_a_handshake(&mut sim, |sim, _| {
            let host = sim.b();
            let sent = || host.rnic().counters().unwrap().tcp.segments_out;
            assert_eq!(sent(), 1, "the answer to the SYN");
            sim.kill(Side::A);
            sim.run_for(LIMIT);
            assert_eq!(sent(), 1, "it is not repeated");
        });
    }
}

#[test]
fn transfer_goes_on_by_the_switch_that_replaces_another() {
    for address in cases(ADDRESSES) {
        let mut sim = Sim::switched(Seed(315), address).one_way_delay(DELAY / 10);
        let (mut a, mut b) = sim.connected_pair();
        let target = b.region(4 * MIB, Access::all());
        let before = placed(&b);
        a.post_write(1, &pattern(4 * MIB), target.remote(0));
        sim.run_for(DELAY / 4);
        let came = placed(&b) - before;
        assert!(came > 0 && came < 4 * MIB as u64, "{came} bytes");
        sim.stop_switch();
        sim.run_for(5 * DELAY);
        sim.replace_switch();
        sim.run_until_idle();
        assert_eq!(a.sends(), [Done::write(1, 4 * MIB)]);
        assert!(target.bytes().to_vec() == pattern(4 * MIB));
        let counters = sim.a().rnic().counters().unwrap();
        assert!(counters.tcp.retransmissions > 0, "frames were lost");
        // The other direction, and ports that the new switch gives.
        let back = a.region(MIB, Access::all());
        b.post_write(2, &pattern(MIB), back.remote(0));
        let (mut c, d) = sim.connected_pair();
        let other = d.region(MIB, Access::all());
        c.post_write(3, &pattern(MIB), other.remote(0));
        sim.run_until_idle();
        assert!(
            [back, other]
                .iter()
                .all(|it| it.bytes().to_vec() == pattern(MIB))
        );
        assert_eq!(b.sends(), [Done::write(2, MIB)]);
        assert_eq!(c.sends(), [Done::write(3, MIB)]);
    }
}

/// The switch carries no frame from a port that was closed, so the RSTs must come first.
#[test]
fn closing_an_rnic_resets_its_peers_before_its_ports_are_closed() {
    for address in cases(ADDRESSES) {
        let mut sim = Sim::switched(Seed(316), address);
        let (a, b) = sim.connected_pair();
        sim.run_until_idle();
        a.host().rnic().close().unwrap();
        sim.remove(Side::A);
        sim.run_for(Duration::ZERO);
        assert_reset(&b);
    }
}

/// Streams at A and B, connected, of which B's is the last that has its port.
fn streams(sim: &mut Sim) -> (LlpStream, LlpStream) {
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen_streams(at).unwrap();
    let near = sim.a().rnic().connect_stream(at, LIMIT).unwrap();
    let far = sim.wait_for("a stream", || listener.try_accept().unwrap());
    (near, far)
}

#[test]
fn stream_that_was_dropped_keeps_its_port_until_its_reset() {
    let mut sim = Sim::switched(Seed(317), ADDRESSES[0]);
    let (near, far) = streams(&mut sim);
    drop(far);
    sim.run_for(Duration::from_secs(9));
    assert_eq!(near.state(), Ok(StreamState::PeerClosed));
    sim.run_for(Duration::from_secs(2));
    assert_eq!(near.state(), Ok(StreamState::Gone));
}

#[test]
fn stream_that_was_dropped_keeps_its_port_as_long_as_it_repeats_its_last_bytes() {
    let mut sim = Sim::switched(Seed(318), ADDRESSES[0]);
    let (mut near, mut far) = streams(&mut sim);
    sim.cut_link();
    assert_eq!(far.write(b"the end"), Ok(7));
    drop(far);
    sim.run_for(Duration::from_secs(35));
    sim.link().change(|conditions| conditions.loss = 0.0);
    sim.run_until("the FIN", || near.state() == Ok(StreamState::PeerClosed));
    let mut end = [0; 8];
    assert_eq!(near.read(&mut end), Ok(7));
    assert_eq!(end[..7], *b"the end");
}
