//! Clients that lie, stall or flood, each beside two honest ones, all of whose frames arrive.

use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{FallocateFlags, fallocate};

use super::*;
use crate::switch::file::Mapping;
use crate::switch::layout::{CAPACITY, ENTRIES, Entry, down, epoch_of, offset_of, up};
use crate::switch::socket::Received;

/// Numbers that look like random ones (`SplitMix64`).
struct Random(u64);

impl Random {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.number() % bound as u64).expect("it is below")
    }

    fn word(&mut self) -> u32 {
        u32::try_from(self.number() >> 32).expect("half of it")
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// A client that writes its rings and its messages itself.
struct Raw {
    socket: ControlSocket,
    files: [OwnedFd; 2],
    up: Mapping,
    flags: Mapping,
    down: Mapping,
    epoch: u16,
}

impl Raw {
    fn attach(path: &Path) -> Self {
        Self::with_bell(path, &bell())
    }

    fn with_bell(path: &Path, bell: &OwnedFd) -> Self {
        let socket = ControlSocket::connect(path).expect("a switch");
        let (up_file, up) = file::create(c"up", FILE, Writers::Maker).expect("memory");
        let (flags_file, flags) =
            file::create(c"flags", flags::BYTES, Writers::All).expect("memory");
        let given = [up_file.as_fd(), flags_file.as_fd(), bell.as_fd()];
        socket.send(&hello(), &given).expect("room");
        let answer = socket.receive(true).expect("an answer").expect("a message");
        let Ok(ToClient::Welcome { welcome, .. }) = ToClient::decode(&answer.bytes) else {
            panic!("it is not welcome");
        };
        let down = Mapping::of(answer.descriptors[0].as_fd(), FILE, Writers::Maker);
        Self {
            socket,
            files: [up_file, flags_file],
            up,
            flags,
            down: down.expect("the switch's file"),
            epoch: epoch_of(welcome.generation),
        }
    }

    /// The reply to a request; `None` once the switch has ended the client.
    fn ask(&self, request: Request) -> Option<ToClient> {
        self.request(request)?;
        self.reply()
    }

    /// The replies to a request that is sent `count` times before the first reply is read.
    fn ask_often(&self, count: usize, request: Request) -> Vec<ToClient> {
        for _ in 0..count {
            self.request(request).expect("it lives");
        }
        let replies = (0..count).map(|_| self.reply().expect("it lives"));
        replies.collect()
    }

    /// Sends a request. `None` once the switch has ended the client.
    fn request(&self, request: Request) -> Option<()> {
        let id = 7;
        let request = ToSwitch::Request { id, request }.encode();
        while let Err(error) = self.socket.send(&request, &[]) {
            if error.kind() != std::io::ErrorKind::WouldBlock {
                return None;
            }
            std::thread::yield_now();
        }
        Some(())
    }

    fn reply(&self) -> Option<ToClient> {
        let Received { bytes, .. } = self.socket.receive(true).ok()??;
        Some(ToClient::decode(&bytes).expect("a message"))
    }

    fn open_port(&self) -> SocketAddr {
        let any = SocketAddr::new(ADDRESS, 0);
        match self.ask(Request::OpenPort(any)) {
            Some(ToClient::Reply {
                reply: Reply::Port(at),
                ..
            }) => at,
            other => panic!("{other:?}"),
        }
    }

    /// Wakes the switch, and waits until it has looked at the rings. False if the client is ended.
    fn is_suffered(&self) -> bool {
        // It looks at the rings between two messages, or has ended the client.
        (0..2).all(|_| self.ask(Request::Addresses).is_some())
    }

    fn set_word(&self, at: usize, value: u32) {
        self.up.word(at).store(value, Ordering::Release);
    }

    fn set_entry(&self, entries: usize, number: u32, entry: u64) {
        let at = entries + 8 * (number % ENTRIES) as usize;
        self.up.number(at).store(entry, Ordering::Relaxed);
    }

    /// Lends the switch the first frames.
    fn lend(&self, count: u16) {
        for place in 0..count {
            let (len, epoch) = (0, self.epoch);
            let entry = Entry { place, len, epoch };
            self.set_entry(up::LENT_ENTRIES, place.into(), entry.encode());
        }
        self.set_word(up::LENT, count.into());
    }

    /// Writes a frame and sends it, as the client's frame of this number.
    fn send(&self, number: u32, frame: &[u8]) {
        let place = u16::try_from(number % ENTRIES).expect("a place");
        let len = u32::try_from(frame.len()).expect("a frame");
        let offset = offset_of(place.into()).expect("a place");
        self.up.own_bytes().write(offset, frame).expect("a frame");
        let entry = Entry {
            place,
            len,
            epoch: 0,
        };
        self.set_entry(up::SENT_ENTRIES, number, entry.encode());
        self.set_word(up::SENT, number.wrapping_add(1));
    }

    fn delivered(&self) -> u32 {
        self.down.word(down::DELIVERED).load(Ordering::Relaxed)
    }

    fn is_ended(&self) -> bool {
        loop {
            match self.socket.receive(false) {
                Ok(Some(_)) => {}
                Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
                Ok(None) => return true,
            }
        }
    }
}

fn hello() -> Vec<u8> {
    let (id, hello) = (1, HELLO);
    ToSwitch::Hello { id, hello }.encode()
}

/// Sets it when the scope ends, as by a panic.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn exchange(a: &mut Peer, b: &mut Peer, round: usize) {
    let content = vec![round.to_le_bytes()[0]; round % 64 * 1000];
    a.send(b.at, &content);
    assert!(b.content() == content, "round {round}");
    b.send(a.at, &round.to_le_bytes());
    assert_eq!(a.content(), round.to_le_bytes());
}

/// Two honest clients exchange frames by the switch while there is a hostile one. Others are welcome
/// afterwards.
fn beside_honest_clients(path: &Path, hostile: impl FnOnce()) {
    let (mut a, mut b) = (Peer::attach(path), Peer::attach(path));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0;
            while !done.load(Ordering::Relaxed) || round < 100 {
                exchange(&mut a, &mut b, round);
                round += 1;
                // The hostile one needs the processor, too.
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let _done = SetAtEnd(&done);
        hostile();
    });
    let (mut c, mut d) = (Peer::attach(path), Peer::attach(path));
    (0..20).for_each(|round| exchange(&mut c, &mut d, round));
    (0..20).for_each(|round| exchange(&mut a, &mut d, round));
}

/// What the switch has counted until its end.
fn counters_of(mut switch: Running) -> xwarp_switchd::Counters {
    switch.end().expect("it ran").counters()
}

#[test]
fn rings_of_any_content_harm_no_other() {
    const SEED: u64 = 33;
    let (_folder, path) = folder("hostile-rings");
    let switch = Running::at(&path);
    let victims = [Peer::attach(&path), Peer::attach(&path)];
    let mut ended = 0;
    beside_honest_clients(&path, || {
        let mut random = Random(SEED);
        let mut raw = Raw::attach(&path);
        for _ in 0..2000 {
            for _ in 0..random.below(8) {
                corrupt(&raw, &mut random, &victims);
            }
            if !raw.is_suffered() {
                ended += 1;
                raw = Raw::attach(&path);
            }
        }
    });
    assert!(ended > 100, "{ended} of 2000 were ended");
    for mut victim in victims {
        let mut received = Vec::new();
        victim.it.io.receive(1, &mut received);
        assert!(received.is_empty(), "a spoofed frame has arrived");
    }
    let counters = counters_of(switch);
    let ways = [
        counters.drop_spoofed,
        counters.drop_not_tcp,
        counters.drop_no_frame,
    ];
    assert!(ways.iter().all(|count| *count > 100), "{counters:?}");
}

/// Writes something where the switch reads.
fn corrupt(raw: &Raw, random: &mut Random, victims: &[Peer; 2]) {
    let words = [up::RECEIVED, up::SENT, up::LENT];
    let at = random.of(&words);
    let known = raw.up.word(at).load(Ordering::Relaxed);
    match random.below(8) {
        0 => {
            let any = random.word();
            let values = [0, 1, ENTRIES - 1, ENTRIES, ENTRIES + 1, u32::MAX, any];
            raw.set_word(at, random.of(&values));
        }
        // Numbers that may be.
        1 | 2 => raw.set_word(at, known.wrapping_add(random.word() % 40)),
        3 => {
            for number in 0..ENTRIES {
                raw.set_entry(up::SENT_ENTRIES, number, random.number());
                raw.set_entry(up::LENT_ENTRIES, number, random.number());
            }
        }
        4 => {
            let places = [0, 1, 511, 512, u16::MAX];
            let lengths = [
                0,
                1,
                53,
                54,
                65_535,
                u32::try_from(CAPACITY).expect("few"),
                u32::MAX,
            ];
            let entry = Entry {
                place: random.of(&places),
                len: random.of(&lengths),
                epoch: random.of(&[0, raw.epoch, !raw.epoch]),
            };
            let entries = random.of(&[up::SENT_ENTRIES, up::LENT_ENTRIES]);
            raw.set_entry(entries, random.word(), entry.encode());
        }
        5 => {
            for at in [flags::SWITCH_ASLEEP, flags::CLIENT_ASLEEP] {
                raw.flags.word(at).store(random.word(), Ordering::Relaxed);
            }
        }
        _ => {
            // A segment as of one of two honest clients to the other.
            let mut frame = segment(victims[0].at, victims[1].at, b"spoofed");
            if random.below(2) == 0 {
                let at = random.below(frame.len());
                // Neither address nor port becomes another honest client's.
                if !(26..38).contains(&at) {
                    frame[at] = random.number().to_le_bytes()[0];
                }
            }
            raw.send(raw.up.word(up::SENT).load(Ordering::Relaxed), &frame);
        }
    }
}

#[test]
fn client_that_asks_and_reads_no_reply_is_ended() {
    let (_folder, path) = folder("hostile-deaf");
    let _switch = Running::at(&path);
    beside_honest_clients(&path, || {
        let raw = Raw::attach(&path);
        let (id, request) = (1, Request::Addresses);
        let ask = ToSwitch::Request { id, request }.encode();
        eventually("the end of the client", || {
            let sent = raw.socket.send(&ask, &[]);
            sent.is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
        });
    });
}

#[test]
fn flood_of_rings_and_of_requests_delays_no_other() {
    let (_folder, path) = folder("hostile-flood");
    let _switch = Running::at(&path);
    beside_honest_clients(&path, || {
        let raw = Raw::attach(&path);
        let mut rings = 0;
        while rings < 30_000 {
            match raw.socket.send(&ToSwitch::Ring.encode(), &[]) {
                Ok(()) => rings += 1,
                Err(_full) => std::thread::yield_now(),
            }
        }
        // Many at once: the pace is the switch's own, however seldom this thread runs.
        let is_too_fast = |reply| {
            matches!(
                reply,
                ToClient::Refused {
                    refusal: Refusal::TooFast(1000),
                    ..
                }
            )
        };
        let mut replies = (0..1000).flat_map(|_| raw.ask_often(64, Request::Addresses));
        assert!(
            replies.any(is_too_fast),
            "rings are no requests, and requests are"
        );
    });
}

#[test]
fn client_that_asks_too_fast_is_slowed_down() {
    let (_folder, path) = folder("fast");
    let _switch = Running::at(&path);
    let peer = Peer::attach(&path);
    for round in 0..1500 {
        let asked = peer.it.client.ask(Request::Source(ADDRESS));
        assert!(asked.is_ok(), "{round}: {asked:?}");
    }
}

#[test]
fn client_that_lends_or_consumes_nothing_loses_its_own_frames() {
    let (_folder, path) = folder("hostile-full");
    let switch = Running::at(&path);
    beside_honest_clients(&path, || {
        let mut sender = Peer::attach(&path);
        let lends_nothing = Raw::attach(&path);
        let consumes_nothing = Peer::attach(&path);
        for to in [lends_nothing.open_port(), consumes_nothing.at] {
            for _ in 0..1500 {
                eventually("a frame comes back", || {
                    sender.it.io.flush().expect("it never fails");
                    sender.it.io.tx_free() > 0
                });
                sender.send(to, b"lost");
            }
        }
        eventually("all frames come back", || {
            sender.it.io.flush().expect("it never fails");
            sender.it.io.tx_free() == FRAMES
        });
        assert!(!lends_nothing.is_ended());
    });
    assert!(counters_of(switch).drop_no_room >= 2000);
}

#[test]
fn bell_of_any_kind_stops_no_switch() {
    let (folder, path) = folder("hostile-bells");
    let _switch = Running::at(&path);
    let (pipe, full_pipe) = nix::unistd::pipe().expect("a pipe");
    let plain = std::fs::File::create(folder.file("plain")).expect("a file");
    let own = folder.file("own");
    let to_itself = UnixDatagram::bind(&own).expect("a socket");
    to_itself.connect(&own).expect("its own address");
    let (_never_read, full) = UnixStream::pair().expect("a pair");
    full.set_nonblocking(true).expect("a socket");
    while std::io::Write::write(&mut &full, &[0; 4096]).is_ok() {}
    full.set_nonblocking(false).expect("a socket");
    let closed = {
        let (_gone, closed) = UnixStream::pair().expect("a pair");
        closed
    };
    let event = nix::sys::eventfd::EventFd::from_value_and_flags(
        u32::MAX,
        nix::sys::eventfd::EfdFlags::empty(),
    );
    let event: OwnedFd = event.expect("an eventfd").into();
    let bells: [OwnedFd; 7] = [
        pipe,
        full_pipe,
        plain.into(),
        to_itself.into(),
        full.into(),
        closed.into(),
        event,
    ];
    beside_honest_clients(&path, || {
        let mut sender = Peer::attach(&path);
        for bell in bells {
            let raw = Raw::with_bell(&path, &bell);
            let at = raw.open_port();
            raw.lend(384);
            let asleep = raw.flags.word(flags::CLIENT_ASLEEP);
            for count in 1..=300 {
                asleep.store(1, Ordering::SeqCst);
                sender.send(at, b"rings");
                eventually("the frame arrives", || raw.delivered() == count);
            }
        }
    });
}

#[test]
fn descriptors_of_any_number_end_the_client_alone() {
    let (_folder, path) = folder("hostile-descriptors");
    let _switch = Running::at(&path);
    beside_honest_clients(&path, || {
        for count in [0, 1, 2, 4, 5, 9] {
            let descriptors: Vec<OwnedFd> = (0..count).map(|_| bell()).collect();
            assert_eq!(introduced(&path, &descriptors), None, "{count}");
        }
        // Beside a request they are ignored.
        let raw = Raw::attach(&path);
        let (id, request) = (1, Request::Addresses);
        let ask = ToSwitch::Request { id, request }.encode();
        let bell = bell();
        for _ in 0..100 {
            raw.socket.send(&ask, &[bell.as_fd(); 4]).expect("room");
            let reply = raw.socket.receive(true).expect("a reply");
            assert!(reply.is_some());
        }
    });
}

/// A hole in a file reads as zeros: that no thread sleeps.
#[test]
fn holes_in_files_harm_no_other() {
    let (_folder, path) = folder("hostile-holes");
    let _switch = Running::at(&path);
    beside_honest_clients(&path, || {
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let raw = Raw::attach(&path);
        let [up, words] = &raw.files;
        assert!(fallocate(up, flags, 0, 1 << 20).is_err(), "it is sealed");
        for round in 0..100 {
            fallocate(words, flags, 0, 4096).expect("a hole");
            raw.lend(4);
            raw.send(round, &[0; 64]);
            assert!(raw.is_suffered());
        }
    });
}

#[test]
fn messages_that_are_none_or_untimely_end_the_client_alone() {
    let (_folder, path) = folder("hostile-messages");
    let _switch = Running::at(&path);
    beside_honest_clients(&path, || {
        let mut random = Random(7);
        let (id, request) = (1, Request::Addresses);
        let ask = ToSwitch::Request { id, request }.encode();
        for round in 0..300 {
            let mut message = if round % 2 == 0 { hello() } else { ask.clone() };
            match random.below(3) {
                0 => message.truncate(random.below(message.len())),
                1 => message.resize(message.len() + 1 + random.below(5000), 1),
                // Kind, flags, status or length.
                _ => message[random.of(&[1, 2, 3, 8, 12])] ^= 0x40,
            }
            let unknown = ControlSocket::connect(&path).expect("a switch");
            unknown.send(&message, &[]).expect("room");
            assert!(
                unknown.receive(true).is_ok_and(|it| it.is_none()),
                "{round}"
            );
            if round % 10 == 0 {
                let known = Raw::attach(&path);
                known.socket.send(&message, &[]).expect("room");
                eventually("the end of the client", || known.is_ended());
            }
        }
        let before = ControlSocket::connect(&path).expect("a switch");
        before.send(&ask, &[]).expect("room");
        assert!(before.receive(true).is_ok_and(|it| it.is_none()));
        let twice = Raw::attach(&path);
        twice.socket.send(&hello(), &[]).expect("room");
        eventually("the end of the client", || twice.is_ended());
        // The switch says why, and then ends it.
        let other = ControlSocket::connect(&path).expect("a switch");
        let (lowest, highest) = (VERSION + 1, VERSION + 2);
        let hello = Hello {
            lowest,
            highest,
            before: None,
        };
        let hello = ToSwitch::Hello { id, hello }.encode();
        other.send(&hello, &[]).expect("room");
        let answer = other.receive(true).expect("an answer").expect("a message");
        let answer = ToClient::decode(&answer.bytes).expect("a message");
        assert!(matches!(answer, ToClient::Refused { .. }), "{answer:?}");
        assert!(other.receive(true).is_ok_and(|it| it.is_none()));
    });
}

#[test]
fn of_many_that_say_nothing_the_first_gives_way() {
    let (_folder, path) = folder("hostile-silent");
    let _switch = Running::at(&path);
    let mut silent = Vec::new();
    beside_honest_clients(&path, || {
        silent.extend((0..200).map(|_| ControlSocket::connect(&path).expect("a switch")));
    });
    let is_ended = |it: &ControlSocket| it.receive(false).is_ok_and(|it| it.is_none());
    let ended: Vec<bool> = silent.iter().map(is_ended).collect();
    assert!(ended[..100].iter().all(|it| *it), "{ended:?}");
    assert!(ended[180..].iter().all(|it| !*it), "{ended:?}");
}

#[test]
fn client_that_takes_no_events_is_ended() {
    let (_folder, path) = folder("hostile-events");
    let _switch = Running::at(&path);
    beside_honest_clients(&path, || {
        let deaf = Raw::attach(&path);
        let at = deaf.open_port();
        // Each has a pair with it, and ends.
        eventually("the end of the client", || {
            let other = Raw::attach(&path);
            other.ask(Request::Hop(at)).expect("a hop");
            drop(other);
            let sent = deaf.socket.send(&ToSwitch::Ring.encode(), &[]);
            sent.is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
        });
    });
}
