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
    /// Place of the client.
    client: usize,
    uid: u32,
}

pub(crate) struct Ports {
    /// Ports that a user may have.
    per_uid: usize,
    open: HashMap<Key, Owner>,
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
    pub(crate) fn new(per_uid: usize) -> Self {
        Self {
            per_uid,
            open: HashMap::new(),
            of_uid: HashMap::new(),
            resting: HashMap::new(),
            closed: VecDeque::new(),
            next: FIRST_DYNAMIC,
        }
    }

    /// Place of the client that has a port.
    pub(crate) fn owner(&self, at: SocketAddr) -> Option<usize> {
        self.open.get(&key(at)).map(|owner| owner.client)
    }

    /// How many ports each client has, by its place.
    pub(crate) fn counts(&self) -> HashMap<usize, u32> {
        let mut counts = HashMap::new();
        for owner in self.open.values() {
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
        if self.open.contains_key(&key(at)) {
            return Err(Refusal::InUse(at));
        }
        self.resting.remove(&key(at));
        self.open.insert(key(at), Owner { client, uid });
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
            if !self.open.contains_key(&at) && !self.resting.contains_key(&at) {
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
        let open = self.open.iter().filter(|(_, owner)| owner.client == client);
        let keys: Vec<Key> = open.map(|(key, _)| *key).collect();
        for key in keys {
            self.remove(key, now);
        }
    }

    fn remove(&mut self, key: Key, now: Duration) {
        let Some(owner) = self.open.remove(&key) else {
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
