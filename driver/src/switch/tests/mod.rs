//! A switch with its clients, in one process: their files, rings and sockets are real.

mod hostile;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZero;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use rustix::thread::sched_getcpu;
use xwarp_switchd::{
    Hello, LIST_MAX, MacAddress, Refusal, Reply, Request, SWITCH, ToClient, ToSwitch, VERSION,
    Welcome,
};
use xwarp_test_kit::{WorkDir, eventually, timeout};

use super::client::{Attached, SwitchClient};
use super::control::SwitchError;
use super::device::SwitchObserver;
use super::file::{self, Writers};
use super::layout::{FILE, FRAMES, flags};
use super::server::{ServeError, Server, ServerConfig};
use super::socket::{ControlSocket, Listener};
use crate::net::{InterfaceEnd, InterfaceNews};
use crate::packet_io::{BURST, PacketIo, RxFrame};
use crate::wake::{Signal, sleep_on};

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Bytes of Ethernet, IPv4 and TCP headers.
const HEADERS: usize = 54;

/// A switch on a thread.
struct Running {
    stop: Signal,
    thread: Option<JoinHandle<Server>>,
}

impl Running {
    fn at(path: &Path) -> Self {
        let config = ServerConfig::new("xw0", vec![ADDRESS]);
        let mut server = Server::bind(path, config).expect("a socket");
        let stop = Signal::new().expect("a descriptor");
        let stopped: OwnedFd = stop.as_fd().try_clone_to_owned().expect("a descriptor");
        let thread = std::thread::spawn(move || {
            server.run(stopped.as_fd()).expect("it runs");
            server
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }

    /// Ends the switch as kill -9 does: its socket's file stays.
    fn kill(mut self, path: &Path) {
        let server = self.end().expect("it ran");
        let kept = path.with_extension("kept");
        std::fs::rename(path, &kept).expect("the socket");
        drop(server);
        std::fs::rename(&kept, path).expect("the socket");
    }

    fn end(&mut self) -> Option<Server> {
        self.stop.raise();
        self.thread.take().map(|it| it.join().expect("no panic"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// A client with a port.
struct Peer {
    it: Attached,
    at: SocketAddr,
    /// Next hop of what it sends.
    hop: MacAddress,
}

impl Peer {
    fn attach(path: &Path) -> Self {
        let it = SwitchClient::attach(path, Some("xw0")).expect("a switch");
        let wanted = SocketAddr::new(ADDRESS, 0);
        let Reply::Port(at) = it.client.ask(Request::OpenPort(wanted)).expect("a port") else {
            panic!("another reply");
        };
        let hop = SWITCH;
        Self { it, at, hop }
    }

    /// Goes its own way to another client from now on. Returns the next hop.
    fn join(&mut self, other: &Self) -> MacAddress {
        let reply = self.it.client.ask(Request::Hop(other.at)).expect("a hop");
        let Reply::Hop(hop) = reply else {
            panic!("another reply");
        };
        self.hop = hop;
        hop
    }

    /// Sends a segment of this content.
    fn send(&mut self, to: SocketAddr, content: &[u8]) {
        let io = &mut self.it.io;
        let mut frame = io.tx_frame().expect("a frame");
        frame.set_len(HEADERS + content.len());
        frame.copy_from_slice(&segment(self.at, to, content));
        frame[..6].copy_from_slice(&self.hop);
        frame[6..12].copy_from_slice(&self.it.mac);
        io.send(frame);
        io.flush().expect("it never fails");
    }

    /// The content of the next segment, for which it runs turns without a pause.
    fn spin(&mut self) -> Vec<u8> {
        let mut frames = Vec::new();
        while frames.is_empty() {
            self.it.io.receive(1, &mut frames);
            self.it.io.flush().expect("it never fails");
        }
        let content = frames[0][HEADERS..].to_vec();
        self.it.io.recycle(frames.remove(0));
        content
    }

    /// The next frame, which must come.
    fn received(&mut self) -> RxFrame {
        let mut frames = Vec::new();
        let began = Instant::now();
        while frames.is_empty() {
            assert!(began.elapsed() < timeout(), "no frame");
            std::thread::yield_now();
            self.it.io.receive(1, &mut frames);
        }
        frames.remove(0)
    }

    /// The content of the next segment, which must come.
    fn content(&mut self) -> Vec<u8> {
        let frame = self.received();
        assert_eq!(frame[..6], self.it.mac);
        let content = frame[HEADERS..].to_vec();
        self.it.io.recycle(frame);
        content
    }
}

/// A segment with ACK. Nothing looks at its checksums.
fn segment(from: SocketAddr, to: SocketAddr, content: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; HEADERS];
    let total = u16::try_from(40 + content.len()).expect("a packet");
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[23] = 6;
    frame[26..30].copy_from_slice(&Ipv4Addr::LOCALHOST.octets());
    frame[30..34].copy_from_slice(&Ipv4Addr::LOCALHOST.octets());
    frame[34..36].copy_from_slice(&from.port().to_be_bytes());
    frame[36..38].copy_from_slice(&to.port().to_be_bytes());
    frame[46..48].copy_from_slice(&[0x50, 0x10]);
    frame.extend_from_slice(content);
    frame
}

fn is_reset(frame: &RxFrame) -> bool {
    frame[47] & 4 != 0
}

fn folder(name: &str) -> (WorkDir, PathBuf) {
    let folder = WorkDir::new(&format!("xwarp-switch-{name}"));
    let socket = folder.file("s.sock");
    (folder, socket)
}

/// Hundreds more than there are frames.
const ROUNDS: usize = 1500;

#[test]
fn frames_of_every_length_reach_the_peer_and_their_memory_comes_back() {
    let (_folder, path) = folder("frames");
    let _switch = Running::at(&path);
    let (mut a, mut b) = (Peer::attach(&path), Peer::attach(&path));
    for round in 0..ROUNDS {
        let content = vec![round.to_le_bytes()[0]; round * 65_495 / ROUNDS];
        a.send(b.at, &content);
        assert!(b.content() == content, "round {round}");
        b.send(a.at, &round.to_le_bytes());
        assert_eq!(a.content(), round.to_le_bytes());
    }
    for peer in [&mut a, &mut b] {
        peer.it.io.flush().expect("it never fails");
        let counters = peer.it.io.counters();
        assert_eq!((counters.tx_frames, counters.rx_frames), (1500, 1500));
        assert_eq!(counters.drop_foreign, 0);
    }
}

#[test]
fn clients_of_one_user_exchange_frames_without_the_switch() {
    let (_folder, path) = folder("pair");
    let switch = Running::at(&path);
    let (mut a, mut b) = (Peer::attach(&path), Peer::attach(&path));
    assert_eq!(a.join(&b), b.it.mac);
    assert_eq!(b.join(&a), a.it.mac);
    a.send(b.at, b"the other learns of the pair");
    assert_eq!(b.content(), b"the other learns of the pair");
    for round in 0..ROUNDS {
        let content = vec![round.to_le_bytes()[0]; round * 65_495 / ROUNDS];
        a.send(b.at, &content);
        assert!(b.content() == content, "round {round}");
        b.send(a.at, &round.to_le_bytes());
        assert_eq!(a.content(), round.to_le_bytes());
    }
    // Pairs do not notice that there is no switch, for less than its clients' patience.
    switch.kill(&path);
    for round in 0..20_u8 {
        a.send(b.at, &[round]);
        assert_eq!(b.content(), [round]);
        b.send(a.at, &[round]);
        assert_eq!(a.content(), [round]);
    }
    let switch = Running::at(&path);
    eventually("the new switch makes a pair anew", || {
        a.join(&b) == b.it.mac && b.join(&a) == a.it.mac
    });
    for round in 0..100_u8 {
        a.send(b.at, &[round]);
        assert_eq!(b.content(), [round]);
        b.send(a.at, &[round]);
        assert_eq!(a.content(), [round]);
    }
    assert_eq!(b.it.io.counters().drop_foreign, 0);
    drop(switch);
}

#[test]
fn frames_that_a_peer_had_come_back_when_it_is_gone() {
    let (_folder, path) = folder("pair-gone");
    let _switch = Running::at(&path);
    let (mut a, mut b) = (Peer::attach(&path), Peer::attach(&path));
    a.join(&b);
    b.join(&a);
    a.send(b.at, b"first");
    assert_eq!(b.content(), b"first");
    b.send(a.at, b"answer");
    assert_eq!(a.content(), b"answer");
    for _ in 0..600 {
        if a.it.io.tx_free() == 0 {
            break;
        }
        a.send(b.at, b"more than a peer may have at a time");
    }
    assert_eq!(
        a.it.io.levels().tx_frames_in_flight,
        0,
        "none by the switch"
    );
    assert_eq!(a.it.io.tx_free(), FRAMES - BURST);
    let kept = b.received();
    drop(b.it);
    assert_eq!(&kept[HEADERS..], b"more than a peer may have at a time");
    let mut received = Vec::new();
    eventually("the end of the peer", || {
        a.it.io.receive(8, &mut received);
        a.it.io.flush().expect("it never fails");
        a.it.io.tx_free() == FRAMES
    });
    // One connection was known by its last frame.
    eventually("the reset", || {
        a.it.io.receive(8, &mut received);
        !received.is_empty()
    });
    assert!(is_reset(&received[0]));
}

#[test]
fn frames_of_a_peer_that_is_gone_arrive_before_its_reset() {
    let (_folder, path) = folder("pair-last");
    let _switch = Running::at(&path);
    let observer = SwitchObserver::attach(&path).expect("a switch");
    for round in 0..50_u64 {
        let (mut a, mut b) = (Peer::attach(&path), Peer::attach(&path));
        b.join(&a);
        b.send(a.at, b"first");
        assert_eq!(a.content(), b"first");
        let count = 200;
        for number in 0..count {
            b.send(a.at, &[number]);
        }
        drop(b.it);
        eventually("the reset is on its way", || {
            observer.state().expect("a switch").counters.resets > round
        });
        if round % 2 == 0 {
            // The news of the end, too, as a rule.
            std::thread::sleep(Duration::from_millis(1));
        }
        for number in 0..count {
            let frame = a.received();
            assert_eq!(frame[HEADERS..], [number], "round {round}");
            assert!(a.it.io.trusts(&frame), "it has no checksum");
            a.it.io.recycle(frame);
        }
        let reset = a.received();
        assert!(is_reset(&reset) && !a.it.io.trusts(&reset));
    }
}

#[test]
fn frames_that_a_peer_has_not_taken_are_answered_when_it_is_gone() {
    let (_folder, path) = folder("pair-untaken");
    let _switch = Running::at(&path);
    let (mut a, b) = (Peer::attach(&path), Peer::attach(&path));
    a.join(&b);
    for number in 0..8 {
        a.send(b.at, &[number]);
    }
    drop(b.it);
    for _ in 0..8 {
        assert!(is_reset(&a.received()));
    }
    eventually("its frames are free", || {
        a.it.io.flush().expect("it never fails");
        a.it.io.tx_free() == FRAMES
    });
}

/// The time that this thread has had a processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock");
    time.into()
}

/// If one spun on until the scheduler ends its time, a round trip would take milliseconds of it.
#[test]
fn peers_that_spin_on_one_processor_give_way_to_each_other() {
    const ROUND_TRIPS: u8 = 200;
    let (_folder, path) = folder("one-processor");
    let _switch = Running::at(&path);
    let (mut a, mut b) = (Peer::attach(&path), Peer::attach(&path));
    a.join(&b);
    b.join(&a);
    let mut one = CpuSet::new();
    one.set(sched_getcpu()).expect("a processor");
    let (at_a, at_b) = (a.at, b.at);
    let answering = std::thread::spawn(move || {
        sched_setaffinity(Pid::from_raw(0), &one).expect("a processor");
        for _ in 0..ROUND_TRIPS {
            let content = b.spin();
            b.send(at_a, &content);
        }
        b
    });
    let ping = std::thread::spawn(move || {
        sched_setaffinity(Pid::from_raw(0), &one).expect("a processor");
        for round in 0..ROUND_TRIPS {
            a.send(at_b, &[round]);
            assert_eq!(a.spin(), [round]);
        }
        processor_time()
    });
    let took = ping.join().expect("no panic");
    answering.join().expect("no panic");
    let each = took / u32::from(ROUND_TRIPS);
    assert!(each < Duration::from_millis(1), "{each:?} a round trip");
}

#[test]
fn sleeping_engine_is_woken_by_a_frame_and_the_sleeping_switch_by_another() {
    let (_folder, path) = folder("sleep");
    let _switch = Running::at(&path);
    let (mut a, mut b) = (Peer::attach(&path), Peer::attach(&path));
    for round in 0..40 {
        if round == 20 {
            a.join(&b);
        }
        // Meanwhile the switch has fallen asleep, as a rule.
        std::thread::sleep(Duration::from_millis(1));
        std::thread::scope(|scope| {
            scope.spawn(|| a.send(b.at, &[round]));
            let began = Instant::now();
            let (sleeper, _) = &b.it.waking;
            let io = &b.it.io;
            while !io.has_looped() {
                let slept =
                    sleeper.sleep([None; 2], Some(Duration::from_mins(1)), || !io.has_looped());
                slept.expect("a sleep");
                assert!(began.elapsed() < Duration::from_secs(50), "nothing woke it");
            }
        });
        assert_eq!(b.content(), [round]);
    }
}

#[test]
fn peer_of_a_client_that_is_gone_gets_a_reset() {
    let (_folder, path) = folder("gone");
    let _switch = Running::at(&path);
    let (mut a, mut b) = (Peer::attach(&path), Peer::attach(&path));
    a.send(b.at, b"hello");
    assert_eq!(b.content(), b"hello");
    drop(a);
    let frame = b.received();
    assert!(is_reset(&frame));
    b.it.io.recycle(frame);
}

#[test]
fn switch_that_was_killed_and_started_anew_is_found_with_ports_and_frames() {
    let (_folder, path) = folder("anew");
    let mut switch = Running::at(&path);
    let (mut a, mut b) = (Peer::attach(&path), Peer::attach(&path));
    for round in 0..5 {
        a.send(b.at, &[round]);
        // The last ones of the former round may be on their way.
        let mut content = b.content();
        while content == b"anew" {
            content = b.content();
        }
        assert_eq!(content, [round]);
        // TCP may have read a frame of the switch that was killed, and give it back later.
        a.send(b.at, b"kept");
        let kept = b.received();
        switch.kill(&path);
        // Nothing carries them: TCP would send their content again.
        for _ in 0..300 {
            a.send(b.at, b"lost");
        }
        switch = Running::at(&path);
        let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
        eventually("the new switch carries frames both ways", || {
            // An acknowledgment in place of TCP's retransmissions.
            for peer in [&mut a, &mut b] {
                peer.it.io.flush().expect("it never fails");
            }
            if a.it.io.tx_free() > 0 {
                a.send(b.at, b"anew");
            }
            if b.it.io.tx_free() > 0 {
                b.send(a.at, b"anew");
            }
            a.it.io.receive(64, &mut of_a);
            b.it.io.receive(64, &mut of_b);
            let is_new = |frame: &RxFrame| &frame[HEADERS..] == b"anew";
            let done = of_a.iter().any(is_new) && of_b.iter().any(is_new);
            of_a.drain(..).for_each(|it| a.it.io.recycle(it));
            of_b.drain(..).for_each(|it| b.it.io.recycle(it));
            done
        });
        assert_eq!(&kept[HEADERS..], b"kept");
        b.it.io.recycle(kept);
        eventually("the next round has frames", || {
            a.it.io.flush().expect("it never fails");
            a.it.io.levels().tx_frames_in_flight == 0
        });
    }
    assert_eq!(b.it.io.counters().drop_foreign, 0);
}

/// A switch of a generation, as far as a client sees it that attaches. It never looks at rings, and
/// has announced no sleep.
fn welcome(listener: &Listener, generation: u64) -> ControlSocket {
    sleep_on([listener.as_fd()], &[], None).expect("a connection");
    let client = listener.accept().expect("a connection");
    let hello = client.receive(true).expect("a hello").expect("a message");
    let Ok(ToSwitch::Hello { id, .. }) = ToSwitch::decode(&hello.bytes) else {
        panic!("another message");
    };
    let welcome = Welcome {
        version: VERSION,
        generation,
        mac: [2, 0, 0, 0, 0, 9],
        mtu: 65_535,
        name: "xw0".to_owned(),
        kept: Vec::new(),
    };
    let (down, _mapping) = file::create(c"down", FILE, Writers::Maker).expect("memory");
    let answer = ToClient::Welcome { id, welcome }.encode();
    client.send(&answer, &[down.as_fd()]).expect("room");
    client
}

/// It may have announced its sleep before the client had a socket to wake it by. Then a frame has
/// taken the announcement away, and nothing else would wake it.
#[test]
fn next_switch_is_woken_though_no_sleep_is_announced() {
    let (_folder, path) = folder("rung");
    let listener = Listener::bind(&path).expect("a socket");
    let (mut io, _client, first) = std::thread::scope(|scope| {
        let attaching = scope.spawn(|| SwitchClient::attach(&path, None).expect("a switch"));
        let first = welcome(&listener, 1);
        let Attached { io, client, .. } = attaching.join().expect("no panic");
        (io, client, first)
    });
    drop(first);
    let second = welcome(&listener, 2);
    let mut frames = Vec::new();
    eventually("the second switch is woken", || {
        io.receive(BURST, &mut frames);
        let received = second.receive(false).ok().flatten();
        received.is_some_and(|it| ToSwitch::decode(&it.bytes) == Ok(ToSwitch::Ring))
    });
}

/// HELLO has room for 128 ports. The others are asked for one by one.
#[test]
fn ports_of_a_client_are_its_own_at_the_next_switch_however_many_there_are() {
    let (_folder, path) = folder("ports");
    let switch = Running::at(&path);
    let a = Peer::attach(&path);
    let any = || Request::OpenPort(SocketAddr::new(ADDRESS, 0));
    let mut ports = vec![a.at];
    for _ in 0..2 * LIST_MAX {
        match a.it.client.ask(any()) {
            Ok(Reply::Port(at)) => ports.push(at),
            other => panic!("no port: {other:?}"),
        }
    }
    switch.kill(&path);
    let _switch = Running::at(&path);
    // The reply shows that the client is back, and what it asked for before is answered.
    assert!(a.it.client.ask(Request::Addresses).is_ok());
    let b = Peer::attach(&path);
    for at in ports {
        let asked = b.it.client.ask(Request::OpenPort(at));
        let in_use = SwitchError::Refused(Refusal::InUse(at)).to_string();
        assert_eq!(asked.expect_err("it is in use").to_string(), in_use);
        assert!(a.it.client.has_port(at));
    }
}

#[test]
fn switch_that_stays_away_is_told_as_the_end_of_the_device() {
    let (_folder, path) = folder("away");
    let switch = Running::at(&path);
    let a = Peer::attach(&path);
    let monitor = a.it.client.monitor();
    drop(switch);
    let end = InterfaceEnd::SwitchEnded("xw0".to_owned());
    eventually("the end", || {
        monitor.take() == Some(InterfaceNews::Ended(end.clone()))
    });
    let asked = a.it.client.ask(Request::Addresses);
    assert!(matches!(asked, Err(SwitchError::Ended)), "{asked:?}");
}

#[test]
fn requests_are_refused_by_reason() {
    let (_folder, path) = folder("refused");
    let _switch = Running::at(&path);
    let a = Peer::attach(&path);
    let elsewhere: IpAddr = [10, 0, 0, 1].into();
    let asked = a.it.client.ask(Request::Source(elsewhere));
    let refused = SwitchError::Refused(Refusal::NotHere(elsewhere)).to_string();
    assert_eq!(asked.expect_err("a refusal").to_string(), refused);
    let b = SwitchClient::attach(&path, Some("other"));
    let refused = b.err().expect("a refusal").to_string();
    assert!(
        refused.contains("has the device xw0, and not other"),
        "{refused}"
    );
}

#[test]
fn switch_that_ends_before_its_answer_is_told_as_none() {
    let (_folder, path) = folder("ends");
    for has_read in [None, Some(false), Some(true)] {
        let listener = Listener::bind(&path).expect("a socket");
        let switch = std::thread::spawn(move || {
            sleep_on([listener.as_fd()], &[], None).expect("a connection");
            if let Some(has_read) = has_read {
                let client = listener.accept().expect("a connection");
                let hello = has_read.then(|| client.receive(true));
                assert!(hello.is_none_or(|it| it.is_ok_and(|it| it.is_some())));
            }
        });
        let told = SwitchClient::attach(&path, None).err().expect("no switch");
        switch.join().expect("no panic");
        std::fs::remove_file(&path).expect("its socket");
        let SwitchError::Unreachable { .. } = told else {
            panic!("{has_read:?}: {told}");
        };
    }
}

#[test]
fn socket_of_a_killed_switch_is_replaced_and_that_of_another_is_not() {
    let (folder, path) = folder("stale");
    let switch = Running::at(&path);
    let config = || ServerConfig::new("xw1", vec![ADDRESS]);
    let second = Server::bind(&path, config());
    assert!(matches!(second, Err(ServeError::InUse(_))));
    switch.kill(&path);
    drop(Server::bind(&path, config()).expect("the socket was stale"));
    assert!(!path.exists(), "an orderly end leaves no file");
    let other = folder.file("other");
    std::fs::write(&other, b"content").expect("a file");
    let third = Server::bind(&other, config());
    assert!(matches!(third, Err(ServeError::NoSocket(_))));
    assert_eq!(std::fs::read(&other).expect("the file"), b"content");
}

const HELLO: Hello = Hello {
    lowest: VERSION,
    highest: VERSION,
    before: None,
};

/// What the switch says to a client that introduces itself with these descriptors; `None` if it
/// ends the connection.
fn introduced(path: &Path, descriptors: &[OwnedFd]) -> Option<ToClient> {
    let socket = ControlSocket::connect(path).expect("a switch");
    let hello = ToSwitch::Hello {
        id: 1,
        hello: HELLO,
    }
    .encode();
    let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    socket.send(&hello, &descriptors).expect("room");
    let answer = socket.receive(true).ok().flatten()?;
    ToClient::decode(&answer.bytes).ok()
}

fn flags() -> OwnedFd {
    let flags = file::create(c"flags", flags::BYTES, Writers::All);
    flags.expect("memory").0
}

fn bell() -> OwnedFd {
    let (_own, given) = std::os::unix::net::UnixStream::pair().expect("a pair");
    given.into()
}

#[test]
fn file_that_is_not_sealed_memory_of_the_right_length_is_refused() {
    let (folder, path) = folder("files");
    let _switch = Running::at(&path);
    let (unsealed, _mapping) = file::unsealed(c"unsealed", FILE).expect("memory");
    let (short, _mapping) = file::create(c"short", 4096, Writers::All).expect("memory");
    let (pipe, _other) = nix::unistd::pipe().expect("a pipe");
    let plain = std::fs::File::create(folder.file("plain")).expect("a file");
    plain.set_len(40 << 20).expect("a sparse file");
    let (headless, _mapping) = file::create(c"headless", FILE, Writers::All).expect("memory");
    nix::sys::uio::pwrite(&headless, &[1], 0).expect("a byte");
    for (file, what) in [
        (unsealed, "unsealed"),
        (short, "short"),
        (pipe, "pipe"),
        (plain.into(), "plain"),
        (headless, "headless"),
    ] {
        assert_eq!(introduced(&path, &[file, flags(), bell()]), None, "{what}");
    }
    assert_eq!(introduced(&path, &[]), None);
    let (right, _mapping) = file::create(c"right", FILE, Writers::Maker).expect("memory");
    let copy = || right.try_clone().expect("a descriptor");
    assert_eq!(introduced(&path, &[copy(), flags()]), None);
    assert_eq!(introduced(&path, &[copy(), copy(), bell()]), None);
    let welcome = introduced(&path, &[copy(), flags(), bell()]);
    assert!(
        matches!(welcome, Some(ToClient::Welcome { .. })),
        "{welcome:?}"
    );
}

#[test]
fn file_of_the_switch_cannot_be_written_by_a_client() {
    let (_folder, path) = folder("down");
    let _switch = Running::at(&path);
    let socket = ControlSocket::connect(&path).expect("a switch");
    let (up, _mapping) = file::create(c"up", FILE, Writers::Maker).expect("memory");
    let hello = ToSwitch::Hello {
        id: 1,
        hello: HELLO,
    }
    .encode();
    let (flags, bell) = (flags(), bell());
    socket
        .send(&hello, &[up.as_fd(), flags.as_fd(), bell.as_fd()])
        .expect("room");
    let answer = socket.receive(true).expect("an answer").expect("a message");
    let down = &answer.descriptors[0];
    assert!(file::Mapping::of(down.as_fd(), FILE, Writers::Maker).is_ok());
    assert!(file::Mapping::of(down.as_fd(), FILE, Writers::All).is_err());
    assert!(nix::sys::uio::pwrite(down, &[1], 0).is_err());
    assert!(nix::unistd::ftruncate(down, 0).is_err());
}

#[test]
fn observer_sees_clients_with_their_processes_and_what_became_of_frames() {
    let folder = WorkDir::new("xwarp-switch-observer");
    let path = folder.file("xw0.sock");
    let _switch = Running::at(&path);
    let [mut a, mut b] = [(); 2].map(|()| Peer::attach(&path));
    let observer = SwitchObserver::attach(&path).expect("a switch");
    let own = std::process::id();
    assert_eq!(observer.process(), Some(own));
    assert_eq!(observer.device().addresses, [ADDRESS]);
    a.send(b.at, b"by the switch");
    assert_eq!(b.content(), b"by the switch");
    a.join(&b);
    let state = observer.state().expect("a switch");
    assert_eq!(state.counters.delivered, 1);
    assert_eq!(state.count, 2);
    for client in &state.clients {
        let process = client.process.map(NonZero::get);
        assert_eq!(process, Some(own));
        assert_eq!((client.ports, client.peers), (1, 1));
        assert!(
            state.may_pair && client.may_pair,
            "one process trusts itself"
        );
    }
    assert_eq!(state.clients.len(), 2);
}
