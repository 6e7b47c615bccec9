//! A path that is narrower than either end knows.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};

use xwarp_driver::attach::XdpMode;
use xwarp_system_tests::impair::Routed;
use xwarp_system_tests::{Exclusive, LOCK};
use xwarp_tcp::{Path, RouteMetrics};
use xwarp_test_kit::needs_root;
use xwarp_test_kit::netsim::{Rng, Seed};

use crate::engine::Engine;
use crate::streams::send_all;

const PORT: u16 = 5003;
/// Bytes of the largest packet on the router's second link. IPv6 has 1280 at least.
const MTU: usize = 1300;
/// Bytes of an IPv4 or IPv6 header, of TCP's, and of its timestamps.
const HEADERS: [usize; 2] = [20 + 20 + 12, 40 + 20 + 12];

/// The way from host A to the server. Its route knows nothing of the second link.
fn path_to(server: SocketAddr, family: usize) -> Path {
    Path {
        local: SocketAddr::new(Routed::A[family], 42_000),
        remote: server,
        next_hop: Routed::router_mac(),
        metrics: RouteMetrics::default(),
    }
}

#[test]
fn router_says_how_small_packets_must_be() {
    needs_root!();
    let _alone = Exclusive::wait_for(LOCK);
    let routed = Routed::new(MTU);
    let data = Rng::new(Seed(4), 0).bytes(2 << 20);
    for (family, headers) in HEADERS.into_iter().enumerate() {
        let server = SocketAddr::new(Routed::B[family], PORT);
        let listener = routed
            .b
            .call(move || TcpListener::bind(server).expect("free"));
        let receiving = routed.b.begin(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut received = Vec::new();
            stream.read_to_end(&mut received).expect("data");
            received
        });
        let stream = data.clone();
        let counters = routed.a.call(move || {
            let mut engine = Engine::open(XdpMode::Native);
            let conn = engine.connect_along(path_to(server, family));
            engine.until_connected();
            assert_eq!(engine.conn(conn).emss(), 1500 - headers);
            let mut left = &stream[..];
            engine.run(|engine, _| {
                left = &left[engine.write(conn, left)..];
                engine.stack.counters().narrowed > 0
            });
            assert_eq!(engine.conn(conn).emss(), MTU - headers);
            send_all(&mut engine, conn, left);
            engine.check();
            engine.stack.counters()
        });
        assert!(receiving.recv().expect("what came") == data, "{counters:?}");
        assert_eq!(counters.narrowed, 1, "{counters:?}");
    }
}
