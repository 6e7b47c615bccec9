//! Ports: bound before they are listened on, and listened on again while connections have them.

use std::net::SocketAddr;
use std::time::Duration;

use xwarp::error::{HostError, ListenError};
use xwarp::{Listener, QpConfig};
use xwarp_driver::net::PortError;
use xwarp_netsim::Seed;
use xwarp_sim_tests::{Sim, SimEnd};

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
