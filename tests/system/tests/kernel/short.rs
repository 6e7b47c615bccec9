//! Many short connections: a request, its answer, and an end from either side.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

use xwarp_driver::attach::XdpMode;
use xwarp_system_tests::impair::{Bridged, Side};
use xwarp_tcp::{CloseReason, ConnId, Event};
use xwarp_test_kit::needs_root;

use crate::engine::Engine;
use crate::in_each_mode;

const PORT: u16 = 5002;
const CONNECTIONS: u16 = 120;
/// Connections at once.
const AT_ONCE: u16 = 20;
/// Bytes of a request. The first says who closes first.
const REQUEST: usize = 100;

fn request(number: u16) -> Vec<u8> {
    let mut request = vec![number.to_be_bytes()[1]; REQUEST];
    request[0] = u8::from(number % 2 == 1);
    request
}

/// True if the side that answers this request closes first.
fn answerer_closes(request: &[u8]) -> bool {
    request[0] == 1
}

/// Answers one request by itself.
fn answer(mut stream: TcpStream) {
    let mut request = [0; REQUEST];
    stream.read_exact(&mut request).expect("a request");
    stream.write_all(&request).expect("a client");
    if answerer_closes(&request) {
        stream.shutdown(Shutdown::Write).expect("open until now");
    }
    assert_eq!(stream.read(&mut [0]).expect("a FIN"), 0);
}

/// Asks, and sees that the answer is the request.
fn ask(number: u16) {
    let request = request(number);
    let address = SocketAddr::from((Side::A.address(), PORT));
    let mut stream = TcpStream::connect(address).expect("a listener");
    stream.write_all(&request).expect("a server");
    let mut answer = [0; REQUEST];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer[..], request[..]);
    if !answerer_closes(&request) {
        stream.shutdown(Shutdown::Write).expect("open until now");
    }
    assert_eq!(stream.read(&mut [0]).expect("a FIN"), 0);
}

/// What the engine knows of a connection.
#[derive(Default)]
struct Exchange {
    /// What was received.
    received: Vec<u8>,
    number: u16,
}

/// The engine's connections, and how many have ended.
#[derive(Default)]
struct Exchanges {
    open: HashMap<ConnId, Exchange>,
    ended: u16,
}

impl Exchanges {
    /// The engine asks, or answers.
    fn on_event(&mut self, engine: &mut Engine, event: Event, asks: bool) {
        let conn = event.conn();
        let now = engine.now();
        match event {
            Event::Connected(_) => {
                let bytes = request(self.open[&conn].number);
                assert_eq!(engine.write(conn, &bytes), REQUEST);
            }
            Event::Incoming { .. } => {
                self.open.insert(conn, Exchange::default());
            }
            Event::Readable(_) => self.on_readable(engine, conn, asks),
            Event::PeerClosed(_) => engine.stack.close(conn, now),
            Event::Closed { reason, .. } => {
                assert_eq!(reason, CloseReason::Graceful);
                let exchange = self.open.remove(&conn).expect("one of ours");
                assert_eq!(exchange.received.len(), REQUEST);
                self.ended += 1;
            }
            Event::RouteWanted(_) | Event::Writable(_) | Event::Doubtful(_) | Event::Stray(_) => {}
        }
    }

    fn on_readable(&mut self, engine: &mut Engine, conn: ConnId, asks: bool) {
        let now = engine.now();
        let exchange = self.open.get_mut(&conn).expect("one of ours");
        engine.read(conn, &mut exchange.received);
        if exchange.received.len() < REQUEST {
            return;
        }
        if asks {
            assert_eq!(exchange.received, request(exchange.number));
        } else {
            assert_eq!(engine.write(conn, &exchange.received), REQUEST);
        }
        if answerer_closes(&exchange.received) != asks {
            engine.stack.close(conn, now);
        }
    }
}

/// The engine asks the kernel's server.
fn engine_asks(hosts: &Bridged, mode: XdpMode) {
    let address = SocketAddr::from((Side::B.address(), PORT));
    let listener = hosts
        .b
        .call(move || TcpListener::bind(address).expect("free"));
    let serving = hosts.b.begin(move || {
        thread::scope(|scope| {
            for _ in 0..CONNECTIONS {
                let (stream, _) = listener.accept().expect("a client");
                scope.spawn(move || answer(stream));
            }
        });
    });
    hosts.a.call(move || {
        let (mut engine, mut exchanges, mut begun) = (Engine::open(mode), Exchanges::default(), 0);
        engine.run(|engine, event| {
            if let Some(event) = event {
                exchanges.on_event(engine, event, true);
            }
            while begun < CONNECTIONS && begun - exchanges.ended < AT_ONCE {
                let conn = engine.connect(41_000 + begun, PORT);
                let exchange = Exchange {
                    number: begun,
                    ..Exchange::default()
                };
                exchanges.open.insert(conn, exchange);
                begun += 1;
            }
            exchanges.ended == CONNECTIONS
        });
        engine.check();
    });
    serving.recv().expect("an end in order");
}

/// The kernel's clients ask the engine.
fn engine_answers(hosts: &Bridged, mode: XdpMode) {
    let (ready, is_ready) = mpsc::channel();
    let serving = hosts.a.begin(move || {
        let (mut engine, mut exchanges) = (Engine::open(mode), Exchanges::default());
        engine.listen(PORT);
        ready.send(()).expect("the test waits");
        engine.run(|engine, event| {
            if let Some(event) = event {
                exchanges.on_event(engine, event, false);
            }
            exchanges.ended == CONNECTIONS
        });
        engine.check();
    });
    is_ready.recv().expect("a listener");
    hosts.b.call(|| {
        thread::scope(|scope| {
            for first in 0..AT_ONCE {
                let numbers = (first..CONNECTIONS).step_by(AT_ONCE.into());
                scope.spawn(move || numbers.for_each(ask));
            }
        });
    });
    serving.recv().expect("an end in order");
}

#[test]
fn kernel_answers_many_connections_of_ours() {
    needs_root!();
    in_each_mode(|hosts, mode, _| engine_asks(hosts, mode));
}

#[test]
fn many_connections_of_the_kernels_are_answered() {
    needs_root!();
    in_each_mode(|hosts, mode, _| engine_answers(hosts, mode));
}
