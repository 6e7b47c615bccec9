//! Ports: bound before they are listened on, listened on again while connections have them, and
//! named by who connects.

use std::net::SocketAddr;
use std::time::Duration;

use xwarp::error::{ConnectError, HostError, ListenError};
use xwarp::{Listener, QpConfig};
use xwarp_driver::net::PortError;
use xwarp_sim_tests::{Sim, SimEnd, needs_link};
use xwarp_test_kit::netsim::Seed;

const LIMIT: Duration = Duration::from_secs(5);

/// Connects a new pair to what `listener` listens on.
fn connect(sim: &mut Sim, listener: &mut Listener) -> (SimEnd, SimEnd) {
    let config = QpConfig::default();
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    let at = listener.addresses()[0];
    let mut connecting = a.qp.begin_connect(at, b"", LIMIT).unwrap();
    let request = sim.wait_for("the Request", || listener.try_accept().unwrap());
    request.accept(&mut b.qp, b"").unwrap();
    let answer = sim.wait_for("the Reply", || connecting.try_finish());
    answer.unwrap();
    (a, b)
}

fn is_in_use<T>(outcome: Result<T, ListenError>) -> bool {
    let refused = outcome.err();
    matches!(
        refused,
        Some(ListenError::Host(HostError::Port(PortError::InUse { .. })))
    )
}

#[test]
fn port_is_listened_on_again_while_connections_of_the_former_listener_have_it() {
    let mut sim = Sim::new(Seed(71));
    let at = sim.b().at(sim.new_port());
    let listen = |sim: &Sim| sim.b().rnic().listen(at);
    let mut first = listen(&sim).unwrap();
    let mut pairs = vec![connect(&mut sim, &mut first)];
    assert!(is_in_use(listen(&sim)), "two at once");
    drop(first);
    let mut second = listen(&sim).unwrap();
    pairs.push(connect(&mut sim, &mut second));
    drop(second);
    for (number, (a, b)) in pairs.iter_mut().enumerate() {
        b.post_recv(1, 1);
        a.post_send(1, b"x");
        sim.run_until_idle();
        assert_eq!(b.receives().len(), 1, "connection {number}");
    }
    drop(listen(&sim).unwrap());
}

#[test]
fn bound_port_is_resolved_nobody_elses_and_free_when_it_is_dropped() {
    let mut sim = Sim::new(Seed(73));
    let any = sim.b().at(0);
    let bound = sim.b().rnic().bind(any).unwrap();
    let [at] = bound.addresses()[..] else {
        panic!("one address");
    };
    assert!(at.port() != 0 && at.ip() == any.ip());
    let bind = |sim: &Sim, at: SocketAddr| sim.b().rnic().bind(at);
    assert!(is_in_use(bind(&sim, at)));
    let mut listener = bound.listen().unwrap();
    assert_eq!(listener.addresses(), [at]);
    assert!(is_in_use(bind(&sim, at)));
    let pair = connect(&mut sim, &mut listener);
    drop(listener);
    drop(bind(&sim, at).unwrap());
    drop(bind(&sim, at).unwrap());
    drop(pair);
}

/// Connects from `local`; where the peer sees the connection come from.
fn connect_from(sim: &mut Sim, listener: &mut Listener, local: SocketAddr) -> SocketAddr {
    let config = QpConfig::default();
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    let at = listener.addresses()[0];
    let begun = a.qp.begin_connect_from(local, at, b"", LIMIT);
    let mut connecting = begun.unwrap();
    let request = sim.wait_for("the Request", || listener.try_accept().unwrap());
    let seen = request.remote();
    request.accept(&mut b.qp, b"").unwrap();
    let answer = sim.wait_for("the Reply", || connecting.try_finish());
    answer.unwrap();
    assert_eq!(connecting.local(), seen);
    seen
}

#[test]
fn connection_comes_from_the_port_that_is_named() {
    let mut sim = Sim::new(Seed(74)).expecting(&["drop_no_flow"]); // of resets
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen(at).unwrap();
    let own = sim.a().at(5000);
    let any: SocketAddr = "0.0.0.0:5001".parse().unwrap();
    let seen = connect_from(&mut sim, &mut listener, own);
    assert_eq!(seen, own);
    let seen = connect_from(&mut sim, &mut listener, any);
    assert_eq!(seen, SocketAddr::new(own.ip(), 5001));
    // One that the RNIC has already, which is not opened a second time.
    let bound = sim.a().rnic().bind(sim.a().at(5002)).unwrap();
    let seen = connect_from(&mut sim, &mut listener, bound.addresses()[0]);
    assert_eq!(seen.port(), 5002);
    let unnamed = sim.a().at(0);
    let seen = connect_from(&mut sim, &mut listener, unnamed);
    assert!(seen.ip() == own.ip() && seen.port() > 5002, "{seen}");
    // Again, where a connection that was reset had it.
    let seen = connect_from(&mut sim, &mut listener, own);
    assert_eq!(seen, own);
}

#[test]
fn port_that_cannot_be_had_is_refused() {
    needs_link!("both machines have one address");
    let mut sim = Sim::new(Seed(75));
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen(at).unwrap();
    let mut other = sim.a().end(&QpConfig::default());
    let own = sim.a().at(5000);
    let foreign = SocketAddr::new(at.ip(), 5000);
    let refused = other.qp.begin_connect_from(foreign, at, b"", LIMIT).err();
    let Some(ConnectError::Host(HostError::Port(PortError::AddressNotLocal { addr }))) = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!(addr, at.ip());
    let mut first = sim.a().end(&QpConfig::default());
    let begun = first.qp.begin_connect_from(own, at, b"", LIMIT);
    let _request = sim.wait_for("the Request", || listener.try_accept().unwrap());
    // From the same port to the same peer.
    let mut second = other.qp.begin_connect_from(own, at, b"", LIMIT).unwrap();
    let outcome = sim.wait_for("the outcome", || second.try_finish());
    let Err(ConnectError::Host(HostError::Port(PortError::InUse { addr, port }))) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(SocketAddr::new(addr, port), own);
    drop(begun);
}
