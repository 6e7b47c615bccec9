//! The switch: clients, and what becomes of each frame.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::time::Duration;

use crate::budget::Budget;
use crate::counters::Counters;
use crate::memory::{ClientMemory, Delivery, Head, Hostile};
use crate::ports::Ports;
use crate::request::{Refusal, Reply, Request};
use crate::resets::resets_of;
use crate::segment::{Reset, Segment, readdress};
use crate::state::{ClientState, SwitchState};
use crate::station::{MacAddress, SWITCH, is_a_clients, of_client};

/// Frames of one client that are carried in a turn, before the next client has its turn.
const BURST: usize = 64;
/// Bursts of a client that ends: as many frames as its ring has entries.
const BURSTS: usize = 8;
/// RSTs that answer segments of one client in a second, and as many at once at most.
const RESETS_PER_SECOND: u32 = 1000;
/// How long after its start a switch does not answer segments of connections to ports that no client
/// has had: a client of the former switch may be about to attach again with the port.
const RETURN: Duration = Duration::from_secs(1);
/// Requests of one client in a second, and as many at once at most.
const REQUESTS_PER_SECOND: u32 = 1000;

/// Addresses and limits of a switch.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses that all clients share.
    pub addresses: Vec<IpAddr>,
    /// Clients at a time, below 65,535.
    pub clients: usize,
    /// Clients of one user.
    pub clients_per_uid: usize,
    /// Ports of one user.
    pub ports_per_uid: usize,
    /// Whether clients that trust each other may have a way of their own.
    pub pairs: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            clients: 1024,
            clients_per_uid: 64,
            ports_per_uid: 8192,
            pairs: true,
        }
    }
}

/// A client, which no other client is while the switch lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId {
    place: usize,
    generation: u64,
}

/// Who a client is.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// The user.
    pub uid: u32,
    /// The process that has connected, if the switch can see it.
    pub process: Option<NonZero<u32>>,
    /// Processes of one user and one domain may trace each other, such as those of one namespace of
    /// processes. `None`: nothing is known of it.
    pub domain: Option<u64>,
}

impl Identity {
    /// Whether two clients may read each other's memory.
    pub fn trusts(self, other: Self) -> bool {
        self.uid == other.uid && self.domain == other.domain && self.domain.is_some()
    }
}

struct Client<M> {
    id: ClientId,
    identity: Identity,
    /// Its Ethernet address.
    mac: MacAddress,
    memory: M,
    /// RSTs that may answer its segments.
    resets: Budget,
    /// Requests that it may make.
    requests: Budget,
    /// Frames were delivered to it that it was not shown.
    unpublished: bool,
}

/// See the crate.
pub struct Switch<M> {
    config: Config,
    places: Vec<Option<Client<M>>>,
    /// Which switch it is of those at its address, in time.
    generation: u64,
    /// Clients that were ever attached.
    attached: u64,
    ports: Ports,
    /// Pairs that have a way of their own, the lesser client first.
    pairs: BTreeSet<[ClientId; 2]>,
    /// Those of them that have not been taken.
    new_pairs: Vec<[ClientId; 2]>,
    counters: Counters,
}

impl<M: ClientMemory> Switch<M> {
    /// A switch without clients, whose time begins at zero. `generation`: a number that no former
    /// switch of these clients has had, such as a random one.
    pub fn new(config: Config, generation: u64) -> Self {
        let most = config.ports_per_uid;
        Self {
            config,
            places: Vec::new(),
            generation,
            attached: 0,
            ports: Ports::new(most, generation),
            pairs: BTreeSet::new(),
            new_pairs: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// What became of all frames.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// A process attaches with its memory. Returns the client and its Ethernet address:
    /// `before`, which a former switch has given it, unless another client has that by now.
    ///
    /// # Errors
    ///
    /// [`Refusal::Full`], [`Refusal::TooManyClients`]: a limit is reached.
    pub fn attach(
        &mut self,
        identity: Identity,
        memory: M,
        before: Option<MacAddress>,
    ) -> Result<(ClientId, MacAddress), Refusal> {
        let clients = self.places.iter().flatten();
        let of_uid = clients.filter(|client| client.identity.uid == identity.uid);
        let of_uid = of_uid.count();
        if of_uid >= self.config.clients_per_uid {
            return Err(Refusal::TooManyClients(self.config.clients_per_uid));
        }
        let free = self.places.iter().position(Option::is_none);
        let place = free.unwrap_or(self.places.len());
        let number = u16::try_from(place).ok().filter(|it| *it < u16::MAX);
        let number = number.filter(|_| place < self.config.clients);
        let number = number.ok_or(Refusal::Full(self.config.clients))?;
        if free.is_none() {
            self.places.push(None);
        }
        self.attached += 1;
        let id = ClientId {
            place,
            generation: self.attached,
        };
        let is_free = |mac: &MacAddress| self.places.iter().flatten().all(|it| it.mac != *mac);
        let before = before.filter(|mac| is_a_clients(*mac) && is_free(mac));
        let mac = before.unwrap_or_else(|| of_client(self.generation, number));
        self.places[place] = Some(Client {
            id,
            identity,
            mac,
            memory,
            resets: Budget::new(RESETS_PER_SECOND),
            requests: Budget::new(REQUESTS_PER_SECOND),
            unpublished: false,
        });
        Ok((id, mac))
    }

    /// A client's process has ended, or is not to go on. What it has sent is carried. Then its peers
    /// get a RST for each connection of a port that is still open. Does nothing for a client that is
    /// detached.
    pub fn detach(&mut self, id: ClientId, now: Duration) {
        if self.client(id).is_none() {
            return;
        }
        self.carry_all(id.place, now);
        let Some(client) = self.places[id.place].take() else {
            return;
        };
        let is_the_clients = |at| self.ports.owner(at) == Some(id.place);
        let resets = resets_of(&client.memory.frames(), is_the_clients);
        self.ports.close_all(id.place, now);
        self.pairs.retain(|pair| !pair.contains(&id));
        self.new_pairs.retain(|pair| !pair.contains(&id));
        for reset in resets {
            self.send(reset);
        }
        self.publish();
    }

    /// Answers a client, which may make 1000 requests a second. To close a port is not counted: to
    /// open it was.
    ///
    /// # Errors
    ///
    /// [`Refusal`]: why there is no answer.
    pub fn handle(
        &mut self,
        id: ClientId,
        request: Request,
        now: Duration,
    ) -> Result<Reply, Refusal> {
        let owner = |at| self.ports.owner(at);
        let closes = matches!(request, Request::ClosePort(at) if owner(at) == Some(id.place));
        let client = self.client_mut(id).ok_or(Refusal::Detached)?;
        if !closes && !client.requests.take(now) {
            return Err(Refusal::TooFast(REQUESTS_PER_SECOND));
        }
        self.answer(id, request, now)
    }

    fn answer(&mut self, id: ClientId, request: Request, now: Duration) -> Result<Reply, Refusal> {
        let uid = self.client(id).ok_or(Refusal::Detached)?.identity.uid;
        match request {
            Request::Addresses => Ok(Reply::Addresses(self.config.addresses.clone())),
            Request::Source(remote) => Ok(Reply::Source(self.here(remote)?)),
            Request::Hop(remote) => {
                self.here(remote.ip())?;
                Ok(Reply::Hop(self.hop(id, remote)))
            }
            Request::OpenPort(wanted) => {
                self.here(wanted.ip())?;
                let opened = self.ports.open(id.place, uid, wanted, now);
                opened.map(Reply::Port)
            }
            Request::ClosePort(at) => {
                // What was sent before goes from a port that is open.
                self.carry_all(id.place, now);
                self.publish();
                self.ports.close(id.place, at, now)?;
                Ok(Reply::Closed)
            }
            Request::Clients => Ok(Reply::Clients(self.state_for(id)?)),
        }
    }

    /// Carries up to 64 frames of each client. Returns how many frames it took, and the clients
    /// that have broken the rules of their rings, which are detached.
    pub fn turn(&mut self, now: Duration) -> (usize, Vec<ClientId>) {
        let (mut moved, mut broken) = (0, Vec::new());
        for place in 0..self.places.len() {
            match self.carry_burst(place, now) {
                Ok(count) => moved += count,
                Err(id) => broken.push(id),
            }
        }
        self.publish();
        for id in &broken {
            self.detach(*id, now);
        }
        (moved, broken)
    }

    fn client(&self, id: ClientId) -> Option<&Client<M>> {
        let client = self.places.get(id.place)?.as_ref()?;
        (client.id == id).then_some(client)
    }

    fn client_mut(&mut self, id: ClientId) -> Option<&mut Client<M>> {
        let client = self.places.get_mut(id.place)?.as_mut()?;
        (client.id == id).then_some(client)
    }

    /// The switch and all clients but the one that asks, which sees processes of its own user only.
    fn state_for(&self, id: ClientId) -> Result<SwitchState, Refusal> {
        let asks = self.client(id).ok_or(Refusal::Detached)?.identity;
        let has_pairs = self.config.pairs;
        let ports = self.ports.counts();
        let mut peers = HashMap::<ClientId, u32>::new();
        for id in self.pairs.iter().flatten() {
            *peers.entry(*id).or_default() += 1;
        }
        let others = self.places.iter().flatten().filter(|it| it.id != id);
        let state = |client: &Client<M>| {
            let Identity { uid, process, .. } = client.identity;
            ClientState {
                uid,
                process: process.filter(|_| uid == asks.uid),
                ports: ports.get(&client.id.place).copied().unwrap_or(0),
                peers: peers.get(&client.id).copied().unwrap_or(0),
                may_pair: has_pairs && asks.trusts(client.identity),
            }
        };
        let mut clients: Vec<_> = others.map(state).collect();
        // The message has room for the clients of one user at least.
        clients.sort_by_key(|it| it.uid != asks.uid);
        Ok(SwitchState {
            generation: self.generation,
            counters: self.counters,
            may_pair: has_pairs && asks.domain.is_some(),
            count: u32::try_from(clients.len()).unwrap_or(u32::MAX),
            clients,
        })
    }

    fn here(&self, address: IpAddr) -> Result<IpAddr, Refusal> {
        let is_here = self.config.addresses.contains(&address);
        is_here.then_some(address).ok_or(Refusal::NotHere(address))
    }

    /// Pairs of clients that are to have a way of their own from now on, each once, the one first
    /// that asked for it.
    pub fn take_pairs(&mut self) -> Vec<[ClientId; 2]> {
        std::mem::take(&mut self.new_pairs)
    }

    /// The next hop of a client to a port: a client that it may have a way of its own to, or the
    /// switch.
    fn hop(&mut self, id: ClientId, remote: SocketAddr) -> MacAddress {
        let owner = self.ports.owner(remote).filter(|place| *place != id.place);
        let owner = owner.and_then(|place| self.places[place].as_ref());
        let (Some(owner), Some(client)) = (owner, self.client(id)) else {
            return SWITCH;
        };
        if !self.config.pairs || !client.identity.trusts(owner.identity) {
            return SWITCH;
        }
        let (mac, pair) = (owner.mac, [id, owner.id]);
        let [a, b] = pair;
        if self.pairs.insert([a.min(b), a.max(b)]) {
            self.new_pairs.push(pair);
        }
        mac
    }

    /// Gives a client a port that it had at a former switch. False if it cannot have it.
    pub fn open_again(&mut self, id: ClientId, at: SocketAddr, now: Duration) -> bool {
        at.port() != 0 && self.answer(id, Request::OpenPort(at), now).is_ok()
    }

    /// Carries what a client has sent, as far as it has memory for that at a time.
    fn carry_all(&mut self, place: usize, now: Duration) {
        for _ in 0..BURSTS {
            if self
                .carry_burst(place, now)
                .is_ok_and(|count| count == BURST)
            {
                continue;
            }
            return;
        }
    }

    /// Carries a burst of a client, which has its place back afterwards.
    fn carry_burst(&mut self, place: usize, now: Duration) -> Result<usize, ClientId> {
        let Some(mut sender) = self.places[place].take() else {
            return Ok(0);
        };
        let (mut count, mut broken) = (0, false);
        let mut unanswered = Vec::new();
        while count < BURST && !broken {
            match sender.memory.take_sent() {
                Ok(Some((sent, head))) => {
                    count += 1;
                    unanswered.extend(self.carry(place, &sender.memory, sent, head));
                }
                Ok(None) => break,
                Err(Hostile) => broken = true,
            }
        }
        let refused = sender.memory.refused();
        self.counters.drop_no_frame += refused;
        if count > 0 || refused > 0 {
            sender.memory.complete();
        }
        let due = unanswered.len();
        let is_due = |segment: &Segment| {
            let has_been_closed = self.ports.is_resting(segment.destination);
            now >= RETURN || has_been_closed || segment.begins_a_connection()
        };
        unanswered.retain(|segment| is_due(segment) && sender.resets.take(now));
        self.counters.resets_withheld += (due - unanswered.len()) as u64;
        let id = sender.id;
        self.places[place] = Some(sender);
        for segment in &unanswered {
            self.deliver_own(place, &segment.answer());
        }
        if broken { Err(id) } else { Ok(count) }
    }

    /// Delivers one frame. Returns the segment if a RST is due for it.
    fn carry(&mut self, place: usize, from: &M, sent: M::Sent, mut head: Head) -> Option<Segment> {
        let Some(segment) = Segment::parse(&head) else {
            self.counters.drop_not_tcp += 1;
            return None;
        };
        if self.ports.owner(segment.source) != Some(place) {
            self.counters.drop_spoofed += 1;
            return None;
        }
        let Some(to) = self.ports.owner(segment.destination) else {
            self.counters.drop_no_port += 1;
            return Some(segment).filter(|segment| !segment.is_reset());
        };
        // The sender is not in its place.
        let Some(receiver) = self.places[to].as_mut() else {
            self.counters.drop_to_itself += 1;
            return None;
        };
        readdress(head.bytes_mut(), receiver.mac);
        // A receiver that has broken its rings is detached at its own turn.
        match receiver.memory.deliver(&head, Some((from, sent))) {
            Ok(Delivery::Delivered) => {
                receiver.unpublished = true;
                self.counters.delivered += 1;
            }
            Ok(Delivery::NoRoom) | Err(Hostile) => self.counters.drop_no_room += 1,
        }
        None
    }

    /// Sends a RST to the client that has its destination.
    fn send(&mut self, reset: Reset) {
        if let Some(to) = self.ports.owner(reset.to) {
            self.deliver_own(to, &reset);
        }
    }

    fn deliver_own(&mut self, to: usize, reset: &Reset) {
        let Some(receiver) = self.places[to].as_mut() else {
            return;
        };
        let frame = reset.frame(receiver.mac);
        if receiver.memory.deliver(&frame, None) == Ok(Delivery::Delivered) {
            receiver.unpublished = true;
            self.counters.resets += 1;
        }
    }

    fn publish(&mut self) {
        for client in self.places.iter_mut().flatten() {
            if std::mem::take(&mut client.unpublished) {
                client.memory.publish();
            }
        }
    }
}
