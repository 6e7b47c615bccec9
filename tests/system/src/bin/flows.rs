//! Many connections of one RNIC over several queues, as a program of its own: for hosts that share
//! no process, such as guests.
//!
//! `flows serve DEV ADDRESS CONNECTIONS ENGINES` echoes what
//! `flows ask DEV ADDRESS CONNECTIONS ENGINES ROUNDS` sends, which compares it. For ROUNDS, a path
//! can be given: then it goes on until there is such a file. Each prints a line of JSON at its end:
//! how many connections each engine has, and the frames that engines have handed over. The one that
//! asks prints a line after each round.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use xwarp::config::{NicConfig, Progress};
use xwarp::event::{AsyncEvent, EventContext};
use xwarp::{CompletionQueue, CompletionStatus, Opcode, QpConfig, Rnic, RnicConfig};
use xwarp_test_kit::{End, next_completion, next_success, pattern_of, timeout};

/// Bytes of a message, which takes several segments.
const LEN: u32 = 20_000;

/// What a program does with its connections.
enum Role {
    /// Echoes until the peer ends them.
    Serve,
    Ask(Rounds),
}

/// How often a message is sent on each connection.
enum Rounds {
    Counted(u64),
    /// Until this file is there.
    Until(PathBuf),
}

impl Rounds {
    fn parse(given: &str) -> Self {
        let counted = given.parse().map(Self::Counted);
        counted.unwrap_or_else(|_| Self::Until(given.into()))
    }

    fn are_over_after(&self, rounds: u64) -> bool {
        match self {
            Self::Counted(all) => rounds >= *all,
            Self::Until(file) => file.exists(),
        }
    }
}

struct Arguments {
    role: Role,
    dev: String,
    address: SocketAddr,
    connections: u64,
    engines: usize,
}

impl Arguments {
    fn parse() -> Option<Self> {
        let mut given = std::env::args().skip(1);
        let role = given.next()?;
        let mut parsed = Self {
            role: Role::Serve,
            dev: given.next()?,
            address: given.next()?.parse().ok()?,
            connections: given.next()?.parse().ok()?,
            engines: given.next()?.parse().ok()?,
        };
        match &*role {
            "serve" => {}
            "ask" => parsed.role = Role::Ask(Rounds::parse(&given.next()?)),
            _ => return None,
        }
        Some(parsed)
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
    if matches!(arguments.role, Role::Serve) {
        let mut listener = rnic.listen(arguments.address).expect("a port");
        println!("listening at {}", arguments.address);
        for end in &mut ends {
            end.accept(&mut listener, b"");
        }
    } else {
        for end in &mut ends {
            let answer = end.qp.connect(arguments.address, b"", timeout());
            answer.expect("a connection");
        }
    }
    ends
}

/// Sends each message back that comes, until the peer has ended all connections. Their receives are
/// flushed then.
fn serve(ends: &mut [End], cq: &mut CompletionQueue) {
    let mut left = ends.len();
    while left > 0 {
        let came = next_completion(cq);
        let end = &mut ends[usize::try_from(came.wr_id.0).expect("few")];
        if came.status == CompletionStatus::Flushed {
            left -= usize::from(came.opcode == Opcode::Receive);
            continue;
        }
        assert!(came.is_success(), "{came:?}");
        let bytes = end.sink.bytes().to_vec();
        end.source.bytes().write(0, &bytes).expect("its length");
        let id = came.wr_id.0;
        end.post_recv(id, LEN);
        end.post(end.send(id, LEN).unsignaled());
    }
}

/// Sends a message on each connection, and compares what comes back, again and again.
fn ask(arguments: &Arguments, rounds: &Rounds, ends: &mut [End], cq: &mut CompletionQueue) {
    let mut round = 0;
    while !rounds.are_over_after(round) {
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
        round += 1;
        println!("round {round} is over");
    }
}

/// How many connections each engine has.
fn on_engines(engines: usize, ends: &[End]) -> Vec<u64> {
    let mut on_engines = vec![0; engines];
    for end in ends {
        let stream = end.qp.query().expect("a queue pair").stream;
        on_engines[stream.expect("a connection").engine()] += 1;
    }
    on_engines
}

/// How many connections each engine has had, and what was handed over.
fn report(rnic: &Rnic, on_engines: &[u64]) {
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

/// How long this end stays when it fails. So the peer, which also waits in vain, prints its own
/// state before its connections end.
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
        eprintln!(
            "flows: say serve or ask, DEV, ADDRESS:PORT, CONNECTIONS, ENGINES, and to ask: ROUNDS"
        );
        std::process::exit(2);
    };
    let rnic = arguments.open();
    // Prints events, for example the cause of a connection's end.
    let tell = |_: &EventContext<'_>, event: &AsyncEvent| eprintln!("{event:?}");
    rnic.set_event_handler(tell).expect("an RNIC");
    let mut cq = rnic.create_cq(1024).expect("a completion queue");
    let mut ends = ends(&arguments, &rnic, &cq);
    let on_engines = on_engines(arguments.engines, &ends);
    match &arguments.role {
        Role::Serve => serve(&mut ends, &mut cq),
        Role::Ask(rounds) => ask(&arguments, rounds, &mut ends, &mut cq),
    }
    report(&rnic, &on_engines);
}
