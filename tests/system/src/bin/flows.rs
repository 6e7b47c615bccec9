//! Many connections of one RNIC over several queues, as a program of its own: for hosts that share no process, such as guests.
//!
//! `flows serve DEV ADDRESS CONNECTIONS ROUNDS ENGINES` echoes what `flows ask DEV ADDRESS CONNECTIONS ROUNDS ENGINES` sends, which compares
//! it. Each prints a line of JSON: how many connections each engine has, and the frames that engines have handed over.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use xwarp::config::{NicConfig, Progress};
use xwarp::event::{AsyncEvent, EventContext};
use xwarp::{CompletionQueue, Opcode, QpConfig, QpState, Rnic, RnicConfig};
use xwarp_test_kit::{End, TIMEOUT, eventually, next_success, pattern_of};

/// Bytes of a message, which takes several segments.
const LEN: u32 = 20_000;

struct Arguments {
    serves: bool,
    dev: String,
    address: SocketAddr,
    connections: u64,
    rounds: u64,
    engines: usize,
}

impl Arguments {
    fn parse() -> Option<Self> {
        let mut given = std::env::args().skip(1);
        let role = given.next()?;
        let parsed = Self {
            serves: role == "serve",
            dev: given.next()?,
            address: given.next()?.parse().ok()?,
            connections: given.next()?.parse().ok()?,
            rounds: given.next()?.parse().ok()?,
            engines: given.next()?.parse().ok()?,
        };
        (parsed.serves || role == "ask").then_some(parsed)
    }

    fn open(&self) -> Rnic {
        let nic = NicConfig::default().engines(Some(self.engines));
        let config = RnicConfig::default().nic(nic).progress(Progress::Thread);
        Rnic::open(&self.dev, &config).expect("an RNIC")
    }

    /// The message of a connection in a round.
    fn message(&self, connection: u64, round: u64) -> Vec<u8> {
        pattern_of(round * self.connections + connection, LEN as usize)
    }
}

/// Connected ends, each with a receive posted.
fn ends(arguments: &Arguments, rnic: &Rnic, cq: &CompletionQueue) -> Vec<End> {
    let pd = rnic.allocate_pd().expect("a protection domain");
    let mut ends = Vec::new();
    for id in 0..arguments.connections {
        let mut end = End::new(&pd, cq, &QpConfig::default(), LEN as usize);
        end.post_recv(id, LEN);
        ends.push(end);
    }
    if arguments.serves {
        let mut listener = rnic.listen(arguments.address).expect("a port");
        println!("listening at {}", arguments.address);
        for end in &mut ends {
            end.accept(&mut listener, b"");
        }
    } else {
        for end in &mut ends {
            let answer = end.qp.connect(arguments.address, b"", TIMEOUT);
            answer.expect("a connection");
        }
    }
    ends
}

/// Sends each message back that comes.
fn serve(arguments: &Arguments, ends: &mut [End], cq: &mut CompletionQueue) {
    for _ in 0..arguments.connections * arguments.rounds {
        let id = next_success(cq).wr_id.0;
        let end = &mut ends[usize::try_from(id).expect("few")];
        let bytes = end.sink.bytes().to_vec();
        end.source.bytes().write(0, &bytes).expect("its length");
        end.post_recv(id, LEN);
        end.post(end.send(id, LEN).unsignaled());
    }
}

/// Sends a message on each connection, and compares what comes back, again and again.
fn ask(arguments: &Arguments, ends: &mut [End], cq: &mut CompletionQueue) {
    for round in 0..arguments.rounds {
        for (id, end) in (0..).zip(&mut *ends) {
            let message = arguments.message(id, round);
            end.source.bytes().write(0, &message).expect("its length");
            end.post(end.send(id, LEN).unsignaled());
        }
        for _ in 0..arguments.connections {
            let came = next_success(cq);
            assert_eq!(came.opcode, Opcode::Receive);
            let id = came.wr_id.0;
            let end = &mut ends[usize::try_from(id).expect("few")];
            let is_same = end.sink.bytes().to_vec() == arguments.message(id, round);
            assert!(is_same, "connection {id} in round {round}");
            end.post_recv(id, LEN);
        }
    }
}

/// How many connections each engine has, and what was handed over.
fn report(arguments: &Arguments, rnic: &Rnic, ends: &[End]) {
    let mut on_engines = vec![0_u64; arguments.engines];
    for end in ends {
        let stream = end.qp.query().expect("a queue pair").stream;
        on_engines[stream.expect("a connection").engine()] += 1;
    }
    let counters = rnic.counters().expect("counters");
    let told = json!({
        "connections": on_engines,
        "frames": counters.io.rx_frames,
        "handed_over": counters.tcp.handed_over,
        "lost_between_engines": counters.io.drop_crossed,
        "resent": counters.tcp.retransmissions,
    });
    println!("{told}");
}

/// How long this end stays when it fails. So the peer, which waits in vain, too, prints its own state before its connections end.
const STAY: Duration = Duration::from_secs(5);

fn stay_when_failing() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::thread::sleep(STAY);
    }));
}

fn main() {
    stay_when_failing();
    let Some(arguments) = Arguments::parse() else {
        eprintln!("flows: say serve or ask, DEV, ADDRESS:PORT, CONNECTIONS, ROUNDS, ENGINES");
        std::process::exit(2);
    };
    let rnic = arguments.open();
    // What ends a connection, for whoever wonders.
    let tell = |_: &EventContext<'_>, event: &AsyncEvent| eprintln!("{event:?}");
    rnic.set_event_handler(tell).expect("an RNIC");
    let mut cq = rnic.create_cq(1024).expect("a completion queue");
    let mut ends = ends(&arguments, &rnic, &cq);
    if arguments.serves {
        serve(&arguments, &mut ends, &mut cq);
        report(&arguments, &rnic, &ends);
        // The client closes when it has all answers.
        let is_over = |end: &End| matches!(end.qp.state(), QpState::Idle | QpState::Error);
        eventually("the client closes", || ends.iter().all(is_over));
    } else {
        ask(&arguments, &mut ends, &mut cq);
        report(&arguments, &rnic, &ends);
    }
}
