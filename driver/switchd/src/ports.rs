//! TCP ports of the switch's addresses, and the clients that have them.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::request::Refusal;

/// How long a port rests after its client has closed it, until the switch chooses it for a client
/// that wants any port. Segments to its last connections are answered by RSTs meanwhile.
pub const LINGER: Duration = Duration::from_secs(2);

/// First port given to a client that wants any (RFC 6335 §6).
const FIRST_DYNAMIC: u16 = 49_152;

/// A port without the scope of its address.
type Key = (IpAddr, u16);

fn key(at: SocketAddr) -> Key {
    (at.ip(), at.port())
}

struct Owner {
    address: IpAddr,
    /// Place of the client.
    client: usize,
    uid: u32,
}

/// Numbers of ports that share a table.
const TABLE: usize = 256;

/// Open ports. Each frame looks two of them up, so they are found by their number, without a hash.
#[derive(Default)]
struct Open(Vec<Option<Box<[Vec<Owner>; TABLE]>>>);

impl Open {
    #[inline]
    fn at(&self, port: u16) -> &[Owner] {
        let [high, low] = port.to_be_bytes().map(usize::from);
        let table = self.0.get(high).and_then(Option::as_ref);
        table.map_or(&[], |table| &table[low])
    }

    fn at_mut(&mut self, port: u16) -> &mut Vec<Owner> {
        let [high, low] = port.to_be_bytes().map(usize::from);
        if self.0.len() <= high {
            self.0.resize_with(high + 1, || None);
        }
        let empty = || Box::new(std::array::from_fn(|_| Vec::new()));
        &mut self.0[high].get_or_insert_with(empty)[low]
    }

    #[inline]
    fn get(&self, (address, port): Key) -> Option<&Owner> {
        self.at(port).iter().find(|it| it.address == address)
    }

    fn insert(&mut self, port: u16, owner: Owner) {
        self.at_mut(port).push(owner);
    }

    fn remove(&mut self, (address, port): Key) -> Option<Owner> {
        let at = self.at(port).iter().position(|it| it.address == address)?;
        Some(self.at_mut(port).swap_remove(at))
    }

    /// All ports with their owners.
    fn all(&self) -> impl Iterator<Item = (u16, &Owner)> {
        let tables = (0_u16..).zip(&self.0);
        let tables = tables.filter_map(|(high, table)| Some((high, table.as_ref()?)));
        let ports = tables.flat_map(|(high, table)| {
            let numbers = (0_u16..).map(move |low| high << 8 | low);
            numbers.zip(table.iter())
        });
        ports.flat_map(|(port, owners)| owners.iter().map(move |it| (port, it)))
    }

    /// Ports of a client.
    fn of(&self, client: usize) -> Vec<Key> {
        let own = self.all().filter(|(_, owner)| owner.client == client);
        own.map(|(port, owner)| (owner.address, port)).collect()
    }
}

pub(crate) struct Ports {
    /// Ports that a user may have.
    per_uid: usize,
    open: Open,
    of_uid: HashMap<u32, usize>,
    /// Ports that were closed, and until when they rest.
    resting: HashMap<Key, Duration>,
    /// The same, the oldest first. Some may have been opened meanwhile.
    closed: VecDeque<(Duration, Key)>,
    /// The dynamic port that is tried next: a port that was closed is chosen again as late as
    /// possible.
    next: u16,
}

impl Ports {
    /// `generation`: where the dynamic ports begin. Those of another switch began elsewhere, so its
    /// clients find their ports free when they return.
    pub(crate) fn new(per_uid: usize, generation: u64) -> Self {
        let dynamic = u64::from(u16::MAX - FIRST_DYNAMIC) + 1;
        let skipped = u16::try_from(generation % dynamic).unwrap_or(0);
        Self {
            per_uid,
            open: Open::default(),
            of_uid: HashMap::new(),
            resting: HashMap::new(),
            closed: VecDeque::new(),
            next: FIRST_DYNAMIC + skipped,
        }
    }

    /// Place of the client that has a port.
    pub(crate) fn owner(&self, at: SocketAddr) -> Option<usize> {
        self.open.get(key(at)).map(|owner| owner.client)
    }

    /// Whether a port was closed lately.
    pub(crate) fn is_resting(&self, at: SocketAddr) -> bool {
        self.resting.contains_key(&key(at))
    }

    /// How many ports each client has, by its place.
    pub(crate) fn counts(&self) -> HashMap<usize, u32> {
        let mut counts = HashMap::new();
        for (_, owner) in self.open.all() {
            *counts.entry(owner.client).or_default() += 1;
        }
        counts
    }

    /// Gives a client a port: the one of `wanted`, or any for port 0.
    pub(crate) fn open(
        &mut self,
        client: usize,
        uid: u32,
        wanted: SocketAddr,
        now: Duration,
    ) -> Result<SocketAddr, Refusal> {
        let port = wanted.port();
        if (1..1024).contains(&port) && uid != 0 {
            return Err(Refusal::NotPermitted(port));
        }
        let has = self.of_uid.get(&uid).copied().unwrap_or(0);
        if has >= self.per_uid {
            return Err(Refusal::TooManyPorts(self.per_uid));
        }
        let port = match port {
            0 => self.choose(wanted.ip(), now)?,
            port => port,
        };
        let at = SocketAddr::new(wanted.ip(), port);
        if self.open.get(key(at)).is_some() {
            return Err(Refusal::InUse(at));
        }
        self.resting.remove(&key(at));
        let owner = Owner {
            address: at.ip(),
            client,
            uid,
        };
        self.open.insert(port, owner);
        *self.of_uid.entry(uid).or_default() += 1;
        Ok(at)
    }

    /// The next dynamic port that is neither open nor rests.
    fn choose(&mut self, address: IpAddr, now: Duration) -> Result<u16, Refusal> {
        self.wake(now);
        let first = self.next;
        loop {
            let port = self.next;
            self.next = port.checked_add(1).unwrap_or(FIRST_DYNAMIC);
            let at = (address, port);
            if self.open.get(at).is_none() && !self.resting.contains_key(&at) {
                return Ok(port);
            }
            if self.next == first {
                return Err(Refusal::NoneFree(address));
            }
        }
    }

    /// Forgets ports that have rested.
    fn wake(&mut self, now: Duration) {
        while let Some((until, key)) = self.closed.front().copied()
            && until <= now
        {
            self.closed.pop_front();
            // It may have been opened and closed again since.
            if self.resting.get(&key).is_some_and(|rests| *rests <= now) {
                self.resting.remove(&key);
            }
        }
    }

    /// Takes a port from the client that has it.
    pub(crate) fn close(
        &mut self,
        client: usize,
        at: SocketAddr,
        now: Duration,
    ) -> Result<(), Refusal> {
        if self.owner(at) != Some(client) {
            return Err(Refusal::NotOpen(at));
        }
        self.remove(key(at), now);
        Ok(())
    }

    /// Takes all ports from a client.
    pub(crate) fn close_all(&mut self, client: usize, now: Duration) {
        for key in self.open.of(client) {
            self.remove(key, now);
        }
    }

    fn remove(&mut self, key: Key, now: Duration) {
        let Some(owner) = self.open.remove(key) else {
            return;
        };
        self.wake(now);
        self.resting.insert(key, now + LINGER);
        self.closed.push_back((now + LINGER, key));
        if let Some(count) = self.of_uid.get_mut(&owner.uid) {
            *count -= 1;
            if *count == 0 {
                self.of_uid.remove(&owner.uid);
            }
        }
    }
}
