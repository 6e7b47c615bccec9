//! The RNIC, its peer, the cable between them, and time.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use xwarp_driver::Wire;
use xwarp_iwarp::mpa::{Step, next_fpdu};
use xwarp_tcp::Instant;

use super::PAUSES;
use super::application::Application;
use super::frame::{Edit, Segment, ethernet, fix_checksums, numbers};
use super::hostile::{HostilePeer, PEER_PORT};
use super::memory::{Memory, PAGE};
use super::program::{Bytes, Scene};
use super::sides::{PEER, address};
use crate::Behaviour;

/// Turns at one instant after which the exchange is taken for a livelock.
const LIVELOCK: usize = 20_000;
/// Points in time at which something happens, within one pause and until everything is at rest.
const MAX_EVENTS: usize = 20_000;
/// How long it may take until everything is at rest: TCP's user timeout twice, and some.
const REST: Duration = Duration::from_secs(400);
/// Frames of the peer's that can come again.
const KEPT: usize = 16;
/// What a well-behaved peer sends.
const PING: &[u8] = b"ping";

/// See the module.
pub(super) struct Exchange {
    application: Application,
    peer: HostilePeer,
    /// The RNIC's end of the cable, and the peer's.
    wires: [Wire; 2],
    edits: VecDeque<(u8, Edit)>,
    held_back: Option<Vec<u8>>,
    kept: VecDeque<Vec<u8>>,
    /// Nothing reaches the peer.
    deaf: bool,
    /// By ports of RNIC and peer: what the peer would send next, and acknowledge.
    numbers: HashMap<(u16, u16), (u32, u32)>,
    /// The connection that the program speaks of.
    talk: usize,
    now: Duration,
    scene: Scene,
}

impl Exchange {
    pub(super) fn new(scene: Scene) -> Self {
        let (application, rnic_wire) = Application::new(&scene);
        let (peer, peer_wire) = HostilePeer::new(&scene);
        let mut exchange = Self {
            application,
            peer,
            wires: [rnic_wire, peer_wire],
            edits: VecDeque::new(),
            held_back: None,
            kept: VecDeque::new(),
            deaf: false,
            numbers: HashMap::new(),
            talk: 0,
            now: Duration::from_secs(1),
            scene,
        };
        exchange.settle();
        if exchange.scene.rnic_connects {
            exchange.application.connect(exchange.peer_address());
        } else {
            exchange.peer.connect();
        }
        exchange
    }

    fn peer_address(&self) -> SocketAddr {
        SocketAddr::new(address(PEER, self.scene.ipv6), PEER_PORT)
    }

    /// One operation of a program.
    pub(super) fn perform(&mut self, code: u8, bytes: &mut Bytes<'_>) {
        let how = code >> 4;
        match code & 0x0f {
            0 => self.settle(),
            1..=6 => self.say(code & 0x0f, how, bytes),
            7 => {
                self.run_for(PAUSES[usize::from(how)]);
            }
            8 => {
                self.now += PAUSES[usize::from(how)];
                self.settle();
            }
            9 => self.application.post(how, bytes.byte()),
            0xa => {
                let peer = self.peer_address();
                self.application.act(how, bytes.byte(), peer);
            }
            0xb => self.peer_acts(how),
            0xc => {
                let (later, at, xor) = (bytes.byte(), bytes.byte(), bytes.byte());
                self.edits.push_back((later, Edit { kind: how, at, xor }));
            }
            0xd => self.send_raw(how, bytes),
            0xe => self.forge(how, bytes),
            _ => {
                let old = self.kept.len().checked_sub(1 + usize::from(how));
                if let Some(frame) = old.and_then(|n| self.kept.get(n)) {
                    self.wires[0].deliver(frame.clone());
                }
            }
        }
    }

    /// What is said on the connection spoken of.
    fn say(&mut self, what: u8, how: u8, bytes: &mut Bytes<'_>) {
        let memory = &self.application.memory;
        let Some(talk) = self.peer.talks.get_mut(self.talk) else {
            return;
        };
        match what {
            1 => talk.say_startup(how, bytes),
            2 => {
                let (opcode, len, place) = (bytes.byte(), bytes.byte(), bytes.byte());
                let named = (memory.stag(place & 7).0, offset(place >> 3, len));
                let mut ulpdu = talk.segment(opcode, len, how & 8 == 0, named);
                for _ in 0..how & 3 {
                    let (at, xor) = (bytes.byte(), bytes.byte());
                    if let Some(byte) = ulpdu.get_mut(usize::from(at)) {
                        *byte ^= xor;
                    }
                }
                talk.say_fpdu(&ulpdu, how & 4 != 0);
            }
            3 | 4 => {
                let len = bytes.byte();
                let said = bytes.take(len);
                if what == 3 {
                    talk.say_fpdu(said, how & 4 != 0);
                } else {
                    talk.pending.extend(said);
                }
            }
            5 => {
                let (at, xor) = (usize::from(bytes.byte()), bytes.byte());
                if let Some(byte) = talk.pending.iter_mut().rev().nth(at) {
                    *byte ^= xor;
                }
            }
            _ => match bytes.byte() {
                0 => talk.cut(1024),
                len => talk.cut(usize::from(len)),
            },
        }
    }

    /// Deeds of the peer besides segments. 0 sends a FIN, 1 a RST. 2 stops reading, 3 goes on. 4
    /// loses all that the RNIC sends, 5 no longer. 6 connects once more. 7 speaks on its next
    /// connection, 8 on the first.
    fn peer_acts(&mut self, how: u8) {
        match how {
            0 => self.peer.close(self.talk),
            1 => self.peer.abort(self.talk),
            2 => self.peer.set_reading(false),
            3 => self.peer.set_reading(true),
            4 => self.deaf = true,
            5 => self.deaf = false,
            6 => self.peer.connect(),
            7 => self.talk = (self.talk + 1).min(self.peer.talks.len()),
            8 => self.talk = 0,
            _ => {}
        }
    }

    fn send_raw(&mut self, how: u8, bytes: &mut Bytes<'_>) {
        let len = bytes.byte();
        let mut frame = if how & 1 == 0 {
            ethernet(how & 2 != 0)
        } else {
            Vec::new()
        };
        frame.extend(bytes.take(len));
        if how & 4 != 0 {
            fix_checksums(&mut frame);
        }
        self.wires[0].deliver(frame);
    }

    /// A segment that the peer's TCP knows nothing of.
    fn forge(&mut self, how: u8, bytes: &mut Bytes<'_>) {
        let (flags, seq, ack) = (bytes.byte(), bytes.pair(), bytes.pair());
        let (window, len) = (bytes.pair(), bytes.byte());
        let (options, payload) = (bytes.take(4 * how), bytes.take(len));
        let Some((from, to)) = self.peer.addresses(self.talk) else {
            return;
        };
        let known = self.numbers.get(&(to.port(), from.port()));
        let (next, acknowledged) = known.copied().unwrap_or_default();
        let moved = |number: u32, by: u16| number.wrapping_add_signed(i32::from(by.cast_signed()));
        let segment = Segment {
            from,
            to,
            seq: moved(next, seq),
            ack: moved(acknowledged, ack),
            flags,
            window,
        };
        self.wires[0].deliver(segment.frame(options, payload));
    }

    /// Carries what either side has sent; how many frames that were.
    fn carry(&mut self) -> usize {
        let mut carried = 0;
        while let Some(frame) = self.wires[1].take_sent() {
            carried += 1;
            self.carry_to_rnic(frame);
        }
        while let Some(frame) = self.wires[0].take_sent() {
            carried += 1;
            if let Some((from, to, next, acknowledged)) = numbers(&frame) {
                self.numbers.insert((from, to), (acknowledged, next));
            }
            if !self.deaf {
                self.wires[1].deliver(frame);
            }
        }
        carried
    }

    fn carry_to_rnic(&mut self, frame: Vec<u8>) {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(frame.clone());
        let due = match self.edits.front_mut() {
            Some((0, _)) => self.edits.pop_front(),
            Some((later, _)) => {
                *later -= 1;
                None
            }
            None => None,
        };
        let before = self.held_back.take();
        let (now, later) = match due {
            Some((_, edit)) => edit.apply(frame),
            None => (vec![frame], None),
        };
        for frame in now.into_iter().chain(before) {
            self.wires[0].deliver(frame);
        }
        self.held_back = later;
    }

    /// Does all that can be done at this instant.
    fn settle(&mut self) {
        for _ in 0..LIVELOCK {
            let now = Instant::ORIGIN + self.now;
            // Whatever a turn sends is carried in the same round, so that nothing is left when a
            // round does nothing.
            let done = self.application.rnic().step_at(now) + self.peer.step(now);
            if done + self.application.look() + self.carry() == 0 {
                return;
            }
        }
        panic!("busy for ever within one instant: {:?}", self.application);
    }

    /// Lets time pass; true if nothing is left that would happen by itself.
    fn run_for(&mut self, time: Duration) -> bool {
        let until = self.now + time;
        self.settle();
        for _ in 0..MAX_EVENTS {
            let own = self.application.rnic().next_deadline().expect("an engine");
            let next = own.into_iter().chain(self.peer.next_deadline()).min();
            let Some(next) = next
                .map(Instant::since_origin)
                .filter(|next| *next <= until)
            else {
                self.now = until;
                self.settle();
                return next.is_none();
            };
            // A deadline that has passed: timers count whole microseconds.
            self.now = next.max(self.now + Duration::from_micros(1));
            self.settle();
        }
        panic!("no rest within {time:?}: {:?}", self.application);
    }

    /// The peer goes, the application ends what is left, everything comes to rest, and nothing is
    /// wrong then.
    pub(super) fn end(&mut self) {
        self.settle();
        self.deaf |= self.scene.silent_end;
        self.edits.clear();
        self.peer.abort_all();
        self.run_for(REST);
        self.application.end();
        assert!(self.run_for(REST), "timers run for ever");
        self.application.check_ended();
        for talk in &self.peer.talks {
            Memory::check_secret(&talk.received);
        }
    }

    /// Another peer connects, and is served as if nothing had happened.
    pub(super) fn serve_a_good_peer(&mut self) {
        self.application.make_ready();
        (self.deaf, self.held_back) = (false, None);
        self.peer.talks.clear();
        self.peer.connect();
        let mut startup = Bytes::new(&[1, 0]);
        self.peer.talks[0].say_startup(0, &mut startup);
        self.peer.talks[0].cut(1024);
        self.settle();
        let served = self.application.serve();
        assert!(served, "a good peer is accepted: {:?}", self.application);
        let talk = &mut self.peer.talks[0];
        talk.make_good();
        let mut ping = talk.segment(3, 0, true, (0, 0));
        ping.extend(PING);
        talk.say_fpdu(&ping, false);
        talk.cut(1024);
        self.settle();
        let (reply, stream) = self.peer.talks[0].received.split_at(27);
        assert_eq!(
            &reply[..20],
            b"MPA ID Rep Frame\x40\x01\x00\x07",
            "a good Reply"
        );
        match next_fpdu(stream, true) {
            Ok(Step::Fpdu { ulpdu, .. }) => assert_eq!(ulpdu.get(18..), Some(PING)),
            other => panic!("no answer but {other:?}"),
        }
        self.peer.close(0);
        assert!(self.run_for(REST), "timers run for ever");
        self.application.check_served(PING);
    }

    /// Whether the application saw this.
    #[cfg(test)]
    pub(super) fn saw(&self, what: &str) -> bool {
        self.application.seen.contains(what)
    }

    /// What distinguishes this run from others.
    pub(super) fn behaviour(&self) -> Behaviour {
        let counters = format!("{:?}", self.application);
        Behaviour::of(&counters, &self.application.seen)
    }
}

/// Tagged Offsets about the ends of a region.
fn offset(which: u8, len: u8) -> u64 {
    let (page, len) = (PAGE as u64, u64::from(len));
    match which {
        0 => 0,
        1 => page - len,
        2 => page - len + 1,
        3 => page,
        4 => u64::MAX,
        5 => u64::MAX - len,
        6 => 1,
        which => u64::from(which),
    }
}
