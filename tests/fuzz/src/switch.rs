//! A switch with two honest clients, and three that send, ask and break what they like.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZero;
use std::rc::Rc;
use std::time::Duration;

use xwarp_switchd::{
    ClientId, ClientMemory, Config, Delivery, Head, Hostile, Identity, MacAddress, Reply, Request,
    SWITCH, Switch, ToClient, ToSwitch,
};

use crate::Behaviour;

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Clients that do what the bytes say.
const HOSTILE: usize = 3;
/// Bytes of Ethernet, IPv4 and TCP headers.
const HEADERS: usize = 54;

/// Memory of a client, both ends.
#[derive(Clone)]
struct Memory(Rc<RefCell<State>>);

struct State {
    sends: VecDeque<Vec<u8>>,
    taken: Vec<Vec<u8>>,
    delivered: Vec<Vec<u8>>,
    /// Frames that can still be delivered; `None`: any number.
    room: Option<u8>,
    refused: u64,
    is_hostile: bool,
}

impl Memory {
    fn with_room(room: Option<u8>) -> Self {
        Self(Rc::new(RefCell::new(State {
            sends: VecDeque::new(),
            taken: Vec::new(),
            delivered: Vec::new(),
            room,
            refused: 0,
            is_hostile: false,
        })))
    }

    fn send(&self, frame: Vec<u8>) {
        self.0.borrow_mut().sends.push_back(frame);
    }

    fn received(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.0.borrow_mut().delivered)
    }
}

fn head_of(frame: &[u8]) -> Head {
    Head::copied(frame.len(), |into| {
        into.copy_from_slice(&frame[..into.len()]);
    })
}

impl ClientMemory for Memory {
    type Sent = usize;

    fn take_sent(&mut self) -> Result<Option<(usize, Head)>, Hostile> {
        let mut state = self.0.borrow_mut();
        if state.is_hostile {
            return Err(Hostile);
        }
        let Some(frame) = state.sends.pop_front() else {
            return Ok(None);
        };
        let head = head_of(&frame);
        state.taken.push(frame);
        Ok(Some((state.taken.len() - 1, head)))
    }

    fn refused(&mut self) -> u64 {
        std::mem::take(&mut self.0.borrow_mut().refused)
    }

    fn complete(&mut self) {}

    fn deliver(&mut self, head: &Head, from: Option<(&Self, usize)>) -> Result<Delivery, Hostile> {
        let mut frame = head.bytes().to_vec();
        if let Some((from, sent)) = from {
            frame.extend_from_slice(&from.0.borrow().taken[sent][frame.len()..]);
        }
        assert_eq!(frame.len(), head.frame_len());
        let mut state = self.0.borrow_mut();
        if state.is_hostile {
            return Err(Hostile);
        }
        if state.room == Some(0) {
            return Ok(Delivery::NoRoom);
        }
        state.room = state.room.map(|room| room - 1);
        state.delivered.push(frame);
        Ok(Delivery::Delivered)
    }

    fn publish(&mut self) {}

    fn frames(&self) -> Vec<Head> {
        let state = self.0.borrow();
        state.taken.iter().map(|frame| head_of(frame)).collect()
    }
}

struct Client {
    id: ClientId,
    mac: MacAddress,
    memory: Memory,
}

/// A segment with ACK of this content.
fn segment(from: SocketAddr, to: SocketAddr, content: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; HEADERS];
    let total = u16::try_from(HEADERS - 14 + content.len()).unwrap_or(u16::MAX);
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[23] = 6;
    frame[26..34].copy_from_slice(&[127, 0, 0, 1, 127, 0, 0, 1]);
    frame[34..36].copy_from_slice(&from.port().to_be_bytes());
    frame[36..38].copy_from_slice(&to.port().to_be_bytes());
    frame[46..48].copy_from_slice(&[0x50, 0x10]);
    frame.extend_from_slice(content);
    frame
}

struct World {
    switch: Switch<Memory>,
    now: Duration,
    honest: [Client; 2],
    /// Ports of the honest clients.
    at: [SocketAddr; 2],
    hostile: [Option<Client>; HOSTILE],
    words: BTreeSet<String>,
    rounds: u8,
}

impl World {
    fn new() -> Self {
        let config = Config {
            addresses: vec![ADDRESS],
            clients: 4,
            ports_per_uid: 6,
            ..Config::default()
        };
        let mut switch = Switch::new(config, 0x5157);
        let mut client = || attach(&mut switch, None, None).expect("room");
        let honest = [client(), client()];
        let at = [1, 2].map(|port| SocketAddr::new(ADDRESS, 7000 + port));
        let mut world = Self {
            switch,
            now: Duration::ZERO,
            honest,
            at,
            hostile: [const { None }; HOSTILE],
            words: BTreeSet::new(),
            rounds: 0,
        };
        for (client, at) in world.honest.iter().zip(at) {
            let opened = world
                .switch
                .handle(client.id, Request::OpenPort(at), world.now);
            assert_eq!(opened, Ok(Reply::Port(at)));
        }
        world
    }

    /// The honest clients exchange a frame each. What else they get is of hostile ones.
    fn exchange(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        let [a, b] = self.at;
        let frames = [
            segment(b, a, &[self.rounds; 300]),
            segment(a, b, &[self.rounds; 90]),
        ];
        for (from, frame) in [1, 0].into_iter().zip(&frames) {
            self.honest[from].memory.send(frame.clone());
        }
        self.turn();
        for ((client, at), sent) in self.honest.iter().zip(self.at).zip(&frames) {
            let mut has_arrived = 0;
            for frame in client.memory.received() {
                assert_eq!((&frame[..6], &frame[6..12]), (&client.mac[..], &SWITCH[..]));
                has_arrived += usize::from(frame[12..] == sent[12..]);
                let header = 14 + usize::from(frame[14] & 15) * 4;
                let ports = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
                let (source, to) = (ports(header), ports(header + 2));
                assert_eq!(to, at.port());
                let is_an_honest_port = self.at.iter().any(|at| at.port() == source);
                assert!(!is_an_honest_port || frame[12..] == sent[12..], "spoofed");
            }
            assert_eq!(has_arrived, 1);
        }
    }

    fn turn(&mut self) {
        loop {
            let (moved, broken) = self.switch.turn(self.now);
            for id in &broken {
                let place = self.hostile.iter_mut().find(|it| {
                    let client = it.as_ref();
                    client.is_some_and(|client| client.id == *id)
                });
                *place.expect("no honest client is ended") = None;
                self.words.insert("ended".to_owned());
            }
            if moved == 0 && broken.is_empty() {
                return;
            }
        }
    }

    fn message(&mut self, place: usize, bytes: &[u8]) {
        match (ToSwitch::decode(bytes), &self.hostile[place]) {
            (Ok(ToSwitch::Request { id, request }), Some(client)) => {
                let handled = self.switch.handle(client.id, request, self.now);
                let answer = match handled {
                    Ok(reply) => ToClient::Reply { id, reply },
                    Err(refusal) => ToClient::Refused { id, refusal },
                };
                let bytes = answer.encode();
                assert!(ToClient::decode(&bytes).is_ok(), "{answer:?}");
                let text = format!("{answer:?}");
                let is_letter = |it: &char| !it.is_ascii_digit();
                self.words
                    .insert(text.chars().filter(is_letter).take(40).collect());
                for pair in self.switch.take_pairs() {
                    assert!(pair.contains(&client.id), "a pair that it asked for");
                }
            }
            (Ok(ToSwitch::Hello { hello, .. }), None) if hello.agree().is_ok() => {
                let before = hello.before.as_ref();
                let memory = Some(3);
                let mac = before.map(|it| it.mac);
                self.hostile[place] = attach(&mut self.switch, memory, mac);
                if let Some(client) = &self.hostile[place] {
                    for at in before.iter().flat_map(|it| &it.ports) {
                        let kept = self.switch.open_again(client.id, *at, self.now);
                        assert!(!kept || !self.at.contains(at));
                    }
                }
            }
            (Ok(ToSwitch::Ring), _) => {}
            _ => self.end(place),
        }
    }

    fn end(&mut self, place: usize) {
        if let Some(client) = self.hostile[place].take() {
            self.switch.detach(client.id, self.now);
        }
    }

    fn step(&mut self, place: usize, what: u8, bytes: &[u8]) {
        if what == 0 {
            return self.message(place, bytes);
        }
        let Some(client) = &self.hostile[place] else {
            self.hostile[place] = attach(&mut self.switch, Some(what), None);
            return;
        };
        match what {
            1 => client.memory.send(bytes.to_vec()),
            2 => {
                // A segment to an honest client, from any port, with some bytes changed.
                let [first, second, changes @ ..] = bytes else {
                    return;
                };
                let from = SocketAddr::new(ADDRESS, 7000 + u16::from(first % 8));
                let to = self.at[usize::from(second % 2)];
                let mut frame = segment(from, to, changes);
                for change in changes.chunks_exact(2).take(3) {
                    let at = usize::from(change[0]) % frame.len();
                    frame[at] = change[1];
                }
                client.memory.send(frame);
            }
            3 => {
                let port = 7000 + u16::from(bytes.first().copied().unwrap_or(0) % 8);
                let at = SocketAddr::new(ADDRESS, port);
                let request = match bytes.len() % 4 {
                    0 => Request::Hop(at),
                    1 => Request::OpenPort(at),
                    2 => Request::OpenPort(SocketAddr::new(ADDRESS, 0)),
                    _ => Request::ClosePort(at),
                };
                self.message(place, &ToSwitch::Request { id: 1, request }.encode());
            }
            4 => {
                let mut state = client.memory.0.borrow_mut();
                state.room = Some(bytes.first().copied().unwrap_or(0));
                state.refused += bytes.len() as u64;
                state.is_hostile = bytes.len() % 8 == 7;
            }
            5 => self.end(place),
            6 => self.now += Duration::from_millis(bytes.len() as u64 * 100),
            _ => self.exchange(),
        }
    }
}

fn attach(
    switch: &mut Switch<Memory>,
    room: Option<u8>,
    before: Option<MacAddress>,
) -> Option<Client> {
    let identity = Identity {
        uid: 1000,
        domain: Some(1),
        process: NonZero::new(7),
    };
    let memory = Memory::with_room(room);
    let (id, mac) = switch.attach(identity, memory.clone(), before).ok()?;
    Some(Client { id, mac, memory })
}

/// Steps of hostile clients: a byte says who does what, the next how many bytes it takes. Between
/// any of them the honest clients reach each other, and they get nothing that bears a false source.
pub fn switch(mut input: &[u8]) -> Behaviour {
    let mut world = World::new();
    while let [step, len, rest @ ..] = input {
        let (bytes, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        input = rest;
        world.step(usize::from(step / 8) % HOSTILE, step % 8, bytes);
    }
    world.exchange();
    for place in 0..HOSTILE {
        world.end(place);
    }
    world.exchange();
    let counters = format!("{:?}", world.switch.counters());
    Behaviour::of(&counters, &world.words)
}
