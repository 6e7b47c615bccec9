//! The interface changes, or is taken away, under an RNIC that has connections.

use std::net::SocketAddr;
use std::time::Duration;

use xwarp::error::{ConnectError, ListenError, RnicEnded};
use xwarp::event::{AsyncEventKind, EventResource};
use xwarp::{Opcode, QpConfig, QpState};
use xwarp_driver::net::{InterfaceEnd, MacAddr};
use xwarp_sim_tests::{
    Done, Host, KIB, MIB, Side, Sim, SimEnd, Target, later_address, needs_link, network, pattern,
};
use xwarp_test_kit::netsim::Seed;

/// The user timeout of the simulated hosts is the default.
const USER_TIMEOUT: Duration = Duration::from_secs(100);
/// Long enough for all that happens in milliseconds.
const MOMENT: Duration = Duration::from_millis(100);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// What is on its way when a connection ends is dropped.
fn sim() -> Sim {
    let sim = Sim::new(Seed(1301)).one_way_delay(Duration::from_micros(50));
    sim.expecting(&["drop_no_flow"])
}

/// A pair in which A's Write of a MiB to B has begun.
fn writing() -> (Sim, SimEnd, SimEnd, Target) {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let target = b.target(MIB);
    a.post_write(1, &pattern(MIB), target.remote(0));
    sim.run_for(Duration::from_micros(300));
    assert_eq!(a.sends(), []);
    (sim, a, b, target)
}

fn set_up(host: &Host, up: bool) {
    host.change_interface(|link| link.up = up);
}

#[test]
fn link_that_is_down_for_less_than_the_user_timeout_costs_only_time() {
    needs_link!("a switch's interface has no link, networks or neighbours that change");
    for side in Side::BOTH {
        for outage in [1, 5, 12, 95].map(Duration::from_secs) {
            let (mut sim, mut a, b, target) = writing();
            set_up(&sim.host(side), false);
            sim.run_for(outage);
            assert_eq!((a.state(), b.state()), (QpState::Rts, QpState::Rts));
            set_up(&sim.host(side), true);
            sim.run_until_idle();
            assert_eq!(a.sends(), [Done::write(1, MIB)], "{side:?}, {outage:?}");
            assert_eq!(target.to_vec(), pattern(MIB));
            assert_eq!(sim.a().other_events(), []);
        }
    }
}

#[test]
fn sender_goes_on_within_moments_after_its_own_link_is_up_again() {
    needs_link!("a switch's interface has no link, networks or neighbours that change");
    let (mut sim, mut a, _b, _target) = writing();
    set_up(&sim.a(), false);
    sim.run_for(Duration::from_mins(1));
    set_up(&sim.a(), true);
    sim.run_for(Duration::from_millis(500));
    assert_eq!(a.sends(), [Done::write(1, MIB)]);
}

#[test]
fn link_that_stays_down_ends_connections_by_their_user_timeout_and_the_rnic_lives() {
    needs_link!("a switch's interface has no link, networks or neighbours that change");
    let (mut sim, mut a, _b, _target) = writing();
    set_up(&sim.a(), false);
    sim.run_for(USER_TIMEOUT + Duration::from_secs(70));
    assert_eq!(a.state(), QpState::Error);
    let reason = "the peer no longer answers";
    assert_eq!(a.events(), [AsyncEventKind::ConnectionLost { reason }]);
    assert_eq!(a.sends(), [Done::flushed(1, Opcode::Write)]);
    assert_eq!(sim.a().other_events(), [], "the RNIC has not failed");
    set_up(&sim.a(), true);
    sim.run_for(USER_TIMEOUT);
    let (mut a, b) = sim.connected_pair();
    let target = b.target(MIB);
    a.post_write(2, &pattern(MIB), target.remote(0));
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::write(2, MIB)]);
}

/// The interface at A ends while a listener, a stream listener, a receive and a connection attempt
/// wait. Each of them ends with the reason `text`.
fn assert_all_who_wait_are_told(end: InterfaceEnd, text: &str) {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let mut listener = sim.a().rnic().listen(sim.a().at(9000)).unwrap();
    let mut streams = sim.a().rnic().listen_streams(sim.a().at(9001)).unwrap();
    let mut other = sim.a().end(&QpConfig::default());
    let nobody = sim.b().at(9999);
    sim.b().change_interface(|link| link.up = false);
    let connecting = other.qp.begin_connect(nobody, b"", CONNECT_TIMEOUT);
    let mut connecting = connecting.unwrap();
    a.post_recv(7, KIB);
    sim.run_for(MOMENT);
    sim.a().end_interface(end);
    sim.run_for(Duration::ZERO);
    assert_eq!((a.state(), other.state()), (QpState::Error, QpState::Error));
    assert_eq!(a.receives(), [Done::flushed(7, Opcode::Receive)]);
    let failed = AsyncEventKind::Failed {
        reason: text.to_owned(),
    };
    let events = sim.a().other_events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].kind, failed);
    assert_eq!(events[0].resource, EventResource::Rnic);
    let ended = RnicEnded::Failed(text.to_owned());
    assert_eq!(listener.accept(CONNECT_TIMEOUT).err(), Some(ended.clone()));
    assert_eq!(streams.accept(CONNECT_TIMEOUT).err(), Some(ended.clone()));
    assert_eq!(ended.to_string(), format!("the RNIC has failed: {text}"));
    let outcome = connecting.try_finish().expect("it has ended");
    assert!(matches!(outcome, Err(ConnectError::Failed(reason)) if reason == text));
    let refused = sim.a().rnic().listen(sim.a().at(9002)).err();
    assert!(matches!(refused, Some(ListenError::Failed(reason)) if reason == text));
    drop(b);
}

#[test]
fn interface_that_is_gone_fails_the_rnic_and_all_who_wait_are_told_why() {
    needs_link!("the switch refuses for a machine without the port");
    for (end, text) in [
        (InterfaceEnd::Deleted("eth1".to_owned()), "eth1 was deleted"),
        (
            InterfaceEnd::Detached("eth1".to_owned()),
            "the XDP program was detached from eth1",
        ),
    ] {
        assert_all_who_wait_are_told(end, text);
    }
}

#[test]
fn peer_of_an_rnic_whose_program_was_detached_is_told_by_a_reset() {
    let mut sim = sim();
    let (_a, b) = sim.connected_pair();
    sim.a()
        .end_interface(InterfaceEnd::Detached("eth1".to_owned()));
    sim.run_for(MOMENT);
    assert_eq!(b.events(), [AsyncEventKind::ConnectionReset]);
}

const LOST: AsyncEventKind = AsyncEventKind::ConnectionLost {
    reason: "this host has lost the connection's address",
};

#[test]
fn connection_ends_with_its_address_and_the_port_is_listened_on_again_when_that_is_back() {
    needs_link!("a switch's interface has no link, networks or neighbours that change");
    let mut sim = sim();
    let address = Side::B.address();
    let at = sim.b().at(9000);
    let mut listener = sim.b().rnic().listen(at).unwrap();
    let (_a, mut b) = sim.connected_pair();
    b.post_recv(7, KIB);
    sim.b().change_interface(|link| link.networks.clear());
    sim.run_for(MOMENT);
    assert_eq!(b.events(), [LOST]);
    assert_eq!(b.receives(), [Done::flushed(7, Opcode::Receive)]);
    let before = sim.b().rnic().counters().unwrap().tcp.segments_out;
    let mut early = sim.a().end(&QpConfig::default());
    let mut connecting = early.qp.begin_connect(at, b"", MOMENT).unwrap();
    sim.run_for(2 * MOMENT);
    assert!(
        matches!(connecting.try_finish(), Some(Err(_))),
        "nobody listens"
    );
    let answers = sim.b().rnic().counters().unwrap().tcp;
    let silent = (answers.segments_out, answers.resets_out);
    assert_eq!(silent, (before, 0), "not even a RST (RFC 1122 §3.2.1.3)");
    sim.b()
        .change_interface(|link| link.networks.push(network(address)));
    sim.run_for(MOMENT);
    let (mut a, mut b) = (
        sim.a().end(&QpConfig::default()),
        sim.b().end(&QpConfig::default()),
    );
    let mut connecting = a.qp.begin_connect(at, b"", CONNECT_TIMEOUT).unwrap();
    let request = sim.wait_for("a request", || listener.try_accept().unwrap());
    request.accept(&mut b.qp, b"").unwrap();
    sim.wait_for("the answer", || connecting.try_finish())
        .unwrap();
}

#[test]
fn address_that_goes_with_the_link_and_comes_back_with_it_costs_nothing() {
    let mut sim = Sim::over_ipv6(Seed(1302));
    let address = Side::A.address_v6();
    let (mut a, b) = sim.connected_pair();
    sim.a().change_interface(|link| {
        link.up = false;
        link.networks.clear();
    });
    sim.run_for(Duration::from_secs(30));
    set_up(&sim.a(), true);
    sim.run_for(Duration::from_secs(4));
    assert_eq!(a.state(), QpState::Rts);
    sim.a()
        .change_interface(|link| link.networks.push(network(address)));
    sim.run_for(Duration::from_secs(30));
    let target = b.target(MIB);
    a.post_write(1, &pattern(MIB), target.remote(0));
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::write(1, MIB)]);
}

#[test]
fn address_that_goes_with_the_link_and_stays_away_ends_its_connections_seconds_after_it() {
    needs_link!("a switch's interface has no link, networks or neighbours that change");
    let mut sim = Sim::over_ipv6(Seed(1303));
    let (a, _b) = sim.connected_pair();
    sim.a().change_interface(|link| {
        link.up = false;
        link.networks.clear();
    });
    sim.run_for(Duration::from_secs(30));
    set_up(&sim.a(), true);
    sim.run_for(Duration::from_secs(4));
    assert_eq!(a.events(), []);
    sim.run_for(Duration::from_secs(2));
    assert_eq!(a.events(), [LOST]);
}

#[test]
fn listener_on_every_address_listens_on_addresses_that_come_later() {
    needs_link!("a switch's interface has no link, networks or neighbours that change");
    let mut sim = sim();
    let later = later_address(Side::B);
    let anywhere: SocketAddr = "0.0.0.0:9000".parse().unwrap();
    let mut everywhere = sim.b().rnic().listen(anywhere).unwrap();
    let _at_one = sim.b().rnic().listen(sim.b().at(9001)).unwrap();
    for there in [true, false, true] {
        sim.b().change_interface(|link| {
            link.networks.retain(|network| network.address != later);
            link.networks.extend(there.then_some(network(later)));
        });
        sim.run_for(MOMENT);
        for port in [9000, 9001] {
            let mut a = sim.a().end(&QpConfig::default());
            let at = SocketAddr::new(later, port);
            let _connecting = a.qp.begin_connect(at, b"", CONNECT_TIMEOUT).unwrap();
            sim.run_for(MOMENT);
            let came = everywhere.try_accept().unwrap().is_some();
            assert_eq!(came, there && port == 9000, "{at}, {there}");
        }
    }
}

#[test]
fn lower_mtu_holds_for_the_next_segments_of_connections_that_there_are() {
    needs_link!("a switch's interface has no link, networks or neighbours that change");
    let (mut sim, mut a, _b, target) = writing();
    sim.a().change_interface(|link| link.mtu = 600);
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::write(1, MIB)]);
    assert_eq!(target.to_vec(), pattern(MIB));
    let before = sim.a().rnic().counters().unwrap().tcp.segments_out;
    a.post_write(2, &pattern(MIB), target.remote(0));
    sim.run_until_idle();
    let segments = sim.a().rnic().counters().unwrap().tcp.segments_out - before;
    let least = MIB.div_ceil(600 - 52) as u64;
    assert!(segments >= least, "{segments} of at least {least}");
}

/// Where B is in the end, and where it was before.
const MOVED: [u8; 6] = [2, 0, 0, 0, 9, 2];
const HALFWAY: [u8; 6] = [2, 0, 0, 0, 9, 1];

/// Has B get another Ethernet address, twice. It takes frames for the last one before the present
/// one, too, but for no other.
fn move_peer(sim: &mut Sim) {
    for mac in [HALFWAY, MOVED] {
        sim.b().change_interface(|link| link.mac = MacAddr(mac));
        sim.run_for(Duration::from_micros(1));
    }
}

fn rerouted(sim: &Sim) -> u64 {
    sim.a().rnic().counters().unwrap().tcp.rerouted
}

#[test]
fn next_hop_that_has_changed_in_silence_is_asked_for_after_timeouts() {
    needs_link!("a switch's interface has no link, networks or neighbours that change");
    let (mut sim, mut a, _b, target) = writing();
    sim = sim.expecting(&["drop_other_station"]);
    move_peer(&mut sim);
    sim.run_for(Duration::from_secs(20));
    assert_eq!(a.sends(), [], "A sends to where B was");
    let address = Side::B.address();
    sim.a().neighbours().set(address, MOVED);
    sim.run_for(Duration::from_secs(70));
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::write(1, MIB)]);
    assert_eq!(target.to_vec(), pattern(MIB));
    assert_eq!(rerouted(&sim), 1);
}

#[test]
fn next_hop_is_asked_for_at_once_when_the_host_says_that_paths_have_changed() {
    needs_link!("a switch's interface has no link, networks or neighbours that change");
    let (mut sim, mut a, _b, target) = writing();
    sim = sim.expecting(&["drop_other_station"]);
    move_peer(&mut sim);
    sim.a().neighbours().set(Side::B.address(), MOVED);
    sim.a().change_interface(|link| link.paths += 1);
    sim.run_for(Duration::from_millis(1));
    assert_eq!(rerouted(&sim), 1, "before any timeout");
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::write(1, MIB)]);
    assert_eq!(target.to_vec(), pattern(MIB));
}

/// One question is asked in a millisecond, so that a busy engine has time for its frames. The
/// second change comes when one of three has been asked.
#[test]
fn next_hops_of_all_connections_are_asked_for_one_after_the_other_and_once_more_after_another_change()
 {
    let sim = Sim::with_engines(Seed(1304), 1, 1500).one_way_delay(Duration::from_micros(50));
    let mut sim = sim.expecting(&["drop_no_flow"]);
    let ends: Vec<_> = (0..3).map(|_| sim.connected_pair()).collect();
    move_peer(&mut sim);
    let lead_to = |sim: &mut Sim, mac, until| {
        sim.a().neighbours().set(Side::B.address(), mac);
        sim.a().change_interface(|link| link.paths += 1);
        sim.run_for(Duration::from_micros(until));
    };
    lead_to(&mut sim, HALFWAY, 500);
    assert_eq!(rerouted(&sim), 1);
    lead_to(&mut sim, MOVED, 10_000);
    assert_eq!(rerouted(&sim), 4, "the first one twice");
    drop(ends);
}
