//! Long streams.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::Receiver;

use xwarp_driver::attach::XdpMode;
use xwarp_system_tests::impair::{Bridged, Side};
use xwarp_tcp::{CloseReason, ConnId, Event, StackCounters};
use xwarp_test_kit::needs_root;
use xwarp_test_kit::netsim::{Rng, Seed};

use crate::engine::Engine;
use crate::{Loss, in_each_mode};

const PORT: u16 = 5001;

/// Bytes of a stream: fewer where each lost one costs time.
fn data(loss: Option<Loss>) -> Vec<u8> {
    let len = if loss.is_some() { 3 << 20 } else { 12 << 20 };
    Rng::new(Seed(3), 0).bytes(len)
}

/// Writes all, closes, and waits until the peer has closed as well.
pub(crate) fn send_all(engine: &mut Engine, conn: ConnId, data: &[u8]) {
    let (mut left, mut closing) = (data, false);
    engine.run(|engine, event| {
        if let Some(Event::Closed { reason, .. }) = event {
            assert_eq!(reason, CloseReason::Graceful);
            assert!(left.is_empty());
            return true;
        }
        left = &left[engine.write(conn, left)..];
        if left.is_empty() && !closing {
            closing = true;
            let now = engine.now();
            engine.stack.close(conn, now);
        }
        false
    });
}

/// Accepts one connection on host B's kernel, and returns all that came when the peer has closed.
pub(crate) fn kernel_receives(hosts: &Bridged, port: u16) -> Receiver<Vec<u8>> {
    let address = SocketAddr::from((Side::B.address(), port));
    let listener = hosts
        .b
        .call(move || TcpListener::bind(address).expect("free"));
    hosts.b.begin(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut received = Vec::new();
        stream.read_to_end(&mut received).expect("data");
        received
    })
}

/// Has host B's kernel connect to host A, send `data`, close, and wait until A has closed.
pub(crate) fn kernel_sends(hosts: &Bridged, port: u16, data: Vec<u8>) {
    let address = SocketAddr::from((Side::A.address(), port));
    hosts.b.call(move || {
        let mut stream = TcpStream::connect(address).expect("a listener");
        stream.write_all(&data).expect("a receiver");
        stream.shutdown(Shutdown::Write).expect("open until now");
        assert_eq!(stream.read(&mut [0]).expect("a FIN"), 0);
    });
}

/// The engine's stream to the kernel; what became of it.
fn to_the_kernel(hosts: &Bridged, mode: XdpMode, data: Vec<u8>) -> (Vec<u8>, StackCounters) {
    let receiving = kernel_receives(hosts, PORT);
    let counters = hosts.a.call(move || {
        let mut engine = Engine::open(mode);
        let conn = engine.connect(40_000, PORT);
        engine.until_connected();
        send_all(&mut engine, conn, &data);
        engine.check();
        engine.stack.counters()
    });
    (receiving.recv().expect("what came"), counters)
}

/// Takes a stream until the peer closes, and closes as well.
pub(crate) fn receive_all(engine: &mut Engine) -> Vec<u8> {
    let mut received = Vec::new();
    engine.run(|engine, event| match event {
        Some(Event::Readable(conn)) => {
            engine.read(conn, &mut received);
            false
        }
        Some(Event::PeerClosed(conn)) => {
            engine.read(conn, &mut received);
            let now = engine.now();
            engine.stack.close(conn, now);
            false
        }
        Some(Event::Closed { reason, .. }) => {
            assert_eq!(reason, CloseReason::Graceful);
            true
        }
        _ => false,
    });
    received
}

/// The kernel's stream to the engine; what became of it.
fn from_the_kernel(hosts: &Bridged, mode: XdpMode, data: Vec<u8>) -> (Vec<u8>, StackCounters) {
    let (ready, is_ready) = std::sync::mpsc::channel();
    let receiving = hosts.a.begin(move || {
        let mut engine = Engine::open(mode);
        engine.listen(PORT);
        ready.send(()).expect("the test waits");
        let received = receive_all(&mut engine);
        engine.check();
        (received, engine.stack.counters())
    });
    is_ready.recv().expect("a listener");
    kernel_sends(hosts, PORT, data);
    receiving.recv().expect("what came")
}

#[test]
fn stream_reaches_the_kernel() {
    needs_root!();
    in_each_mode(|hosts, mode, loss| {
        let data = data(loss);
        let (received, counters) = to_the_kernel(hosts, mode, data.clone());
        assert!(received == data, "{mode:?}, {loss:?}: {counters:?}");
        if loss.is_some_and(|loss| loss.of == Side::A) {
            assert!(counters.retransmissions > 0, "{counters:?}");
        }
    });
}

#[test]
fn stream_comes_from_the_kernel() {
    needs_root!();
    in_each_mode(|hosts, mode, loss| {
        let data = data(loss);
        let (received, counters) = from_the_kernel(hosts, mode, data.clone());
        assert!(received == data, "{mode:?}, {loss:?}: {counters:?}");
        if loss.is_some_and(|loss| loss.of == Side::B) {
            assert!(counters.out_of_order > 0, "{counters:?}");
        }
    });
}
