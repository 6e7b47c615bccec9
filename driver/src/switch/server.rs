//! A switch that runs: its socket, its clients' files, and its sleep.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::num::NonZero;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::socket::UnixCredentials;
use xwarp_switchd::{
    ClientId, Config, Counters, Event, Hello, Identity, MacAddress, Refusal, Switch, ToClient,
    ToSwitch, Welcome,
};

use super::client_memory::{ClientFiles, ClientPart, Given};
use super::file::{self, FileError, MappedWord, Writers};
use super::layout::{MTU, epoch_of, pair};
use super::socket::{ControlSocket, Listener, Received};
use crate::wake::{DescriptorSet, SleepFlag, WokenBy, sleep_on};

/// Names of the listening socket and of what stops the switch, in the set of descriptors. Clients
/// have later ones.
const LISTENER: u64 = 0;
const STOP: u64 = 1;
/// How long the switch spins without a frame before it sleeps.
const SPIN: Duration = Duration::from_micros(20);
/// Turns between two looks at the sockets while there are frames.
const TURNS: u32 = 32;
/// Messages of one client that are taken at a time.
const MESSAGES: usize = 16;
/// Clients that have connected and not introduced themselves, at most.
const UNKNOWN_MAX: usize = 64;
/// Descriptors of a client: its socket, its files `up` and `flags`, its bell twice, its `down`.
const DESCRIPTORS_OF_CLIENT: usize = 6;
/// Descriptors of the program and of the switch itself, at most.
const DESCRIPTORS_BESIDES: usize = 64;

/// How a switch is run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerConfig {
    /// Name of its device.
    pub name: String,
    /// Addresses that all clients share.
    pub addresses: Vec<IpAddr>,
    /// Permissions of its socket: who may write to it may attach. 0600 by default.
    pub mode: u32,
    /// Whether programs that may trace each other have a way of their own, by which frames do not
    /// go by the switch. They do by default.
    pub pairs: bool,
}

impl ServerConfig {
    /// A switch with a name and addresses, for this user alone.
    pub fn new(name: &str, addresses: Vec<IpAddr>) -> Self {
        Self {
            name: name.to_owned(),
            addresses,
            mode: 0o600,
            pairs: true,
        }
    }

    /// Sets the permissions of the socket.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Sets whether programs that may trace each other have a way of their own.
    #[must_use]
    pub fn pairs(mut self, pairs: bool) -> Self {
        self.pairs = pairs;
        self
    }
}

/// Why there is no switch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Another switch listens at the socket.
    #[error("a switch listens at {} already; end it, or choose another socket", .0.display())]
    InUse(PathBuf),
    /// Something else has the path.
    #[error("{} exists and is no socket; choose another path", .0.display())]
    NoSocket(PathBuf),
    /// Another program listens at the socket.
    #[error("another program listens at {}; choose another path", .0.display())]
    Foreign(PathBuf),
    /// The path is longer than that of a socket may be.
    #[error("{} is too long: a socket's path has at most 107 bytes; choose a shorter one", .0.display())]
    TooLong(PathBuf),
    /// The socket cannot be made.
    #[error("cannot listen at {}: {error}", .path.display())]
    Socket {
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// The kernel refuses something while the switch runs.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// A client, or what has connected and is none yet.
struct Connection {
    socket: ControlSocket,
    identity: Identity,
    client: Option<Client>,
}

struct Client {
    id: ClientId,
    mac: MacAddress,
    /// What the client has given, for its peers.
    given: Given,
    part: ClientPart,
}

/// A switch with its socket. The socket's file goes when this is dropped.
pub struct Server {
    path: PathBuf,
    listener: Listener,
    config: ServerConfig,
    generation: u64,
    switch: Switch<ClientFiles>,
    connections: HashMap<u64, Connection>,
    next: u64,
    readable: DescriptorSet,
    began: Instant,
}

impl Server {
    /// Listens at a path. A socket there that a killed switch has left is replaced.
    ///
    /// # Errors
    ///
    /// [`ServeError`]: the path is taken, or cannot be used.
    pub fn bind(path: &Path, config: ServerConfig) -> Result<Self, ServeError> {
        let generation = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
        remove_stale(path)?;
        let refused = |source| refused(path, source);
        let listener = Listener::bind(path).map_err(refused)?;
        let mode = fs::Permissions::from_mode(config.mode);
        fs::set_permissions(path, mode).map_err(refused)?;
        let readable = DescriptorSet::new()?;
        readable.watch_as(listener.as_fd(), LISTENER)?;
        let mut rules = Config {
            addresses: config.addresses.clone(),
            pairs: config.pairs,
            ..Config::default()
        };
        rules.clients = rules.clients.min(clients_within_limit()?);
        Ok(Self {
            path: path.to_owned(),
            listener,
            config,
            generation,
            switch: Switch::new(rules, generation),
            connections: HashMap::new(),
            next: STOP + 1,
            readable,
            began: Instant::now(),
        })
    }

    /// What became of all frames so far.
    pub fn counters(&self) -> Counters {
        self.switch.counters()
    }

    /// Programs that are attached.
    pub fn clients(&self) -> usize {
        let known = |it: &&Connection| it.client.is_some();
        self.connections.values().filter(known).count()
    }

    /// Carries frames until `stop` is readable.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: the kernel refuses to wait, which is not expected.
    pub fn run(&mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        self.readable.watch_as(stop, STOP)?;
        self.carry(|_| None)
    }

    /// Carries frames while programs are attached, and no longer than `limit`. What stopped
    /// [`run`](Self::run) must be closed.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn drain(&mut self, limit: Duration) -> io::Result<()> {
        let until = Instant::now() + limit;
        self.carry(|server| {
            let left = until.saturating_duration_since(Instant::now());
            Some(if server.clients() == 0 {
                Duration::ZERO
            } else {
                left
            })
        })
    }

    /// Carries frames until the switch is stopped, or no time is left. `None`: there is no limit.
    fn carry(&mut self, left: impl Fn(&Self) -> Option<Duration>) -> io::Result<()> {
        let (mut idle_since, mut turns) = (None, 0_u32);
        loop {
            turns = turns.wrapping_add(1);
            if self.turn() > 0 {
                idle_since = None;
                if turns % TURNS != 0 {
                    continue;
                }
            } else if idle_since.get_or_insert_with(Instant::now).elapsed() < SPIN {
                std::hint::spin_loop();
                continue;
            } else if self.falls_asleep() {
                let slept = sleep_on([self.readable.as_fd()], &[], left(self));
                self.wakes_up();
                slept?;
                idle_since = None;
            }
            if !self.take_messages()? || left(self).is_some_and(|left| left.is_zero()) {
                return Ok(());
            }
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Carries a burst of each client. Returns how many frames it took. [`run`](Self::run) does so
    /// by itself.
    pub fn turn(&mut self) -> usize {
        let (moved, broken) = self.switch.turn(self.now());
        for id in broken {
            log::warn!("a client has broken the rules of its rings, and was ended");
            self.forget_client(id);
        }
        moved
    }

    /// Announces the sleep to all clients. False if a frame is there after that.
    fn falls_asleep(&mut self) -> bool {
        for flag in self.flags() {
            flag.announce(WokenBy::DESCRIPTOR);
        }
        let idle = self.turn() == 0;
        if !idle {
            self.wakes_up();
        }
        idle
    }

    fn wakes_up(&self) {
        for flag in self.flags() {
            flag.awake();
        }
    }

    fn flags(&self) -> impl Iterator<Item = &SleepFlag<MappedWord>> {
        let clients = self
            .connections
            .values()
            .filter_map(|it| it.client.as_ref());
        clients.map(|client| &client.part.switch_asleep)
    }

    /// Takes connections and messages that wait. False if the switch is to stop.
    fn take_messages(&mut self) -> io::Result<bool> {
        for name in self.readable.ready()? {
            match name {
                STOP => return Ok(false),
                LISTENER => self.accept(),
                _ if self.take_messages_of(name) => {}
                _ => self.forget(name),
            }
        }
        Ok(true)
    }

    fn accept(&mut self) {
        let Ok(socket) = self.listener.accept() else {
            return;
        };
        let Ok(peer) = socket.peer() else {
            return;
        };
        self.bound_unknown();
        let name = self.next;
        if let Err(error) = self.readable.watch_as(socket.as_fd(), name) {
            return log::warn!("a client cannot be waited for: {error}");
        }
        self.next += 1;
        let connection = Connection {
            socket,
            identity: identity_of(&peer),
            client: None,
        };
        self.connections.insert(name, connection);
    }

    /// Of programs that have connected without a word, the first one gives way to the next.
    fn bound_unknown(&mut self) {
        let unknown = self
            .connections
            .iter()
            .filter(|(_, it)| it.client.is_none());
        let (count, oldest) = unknown.fold((0, None), |(count, oldest), (name, _)| {
            (count + 1, Some(oldest.unwrap_or(*name).min(*name)))
        });
        if let Some(oldest) = oldest.filter(|_| count >= UNKNOWN_MAX) {
            log::warn!("many programs have connected without a word: the first one was ended");
            self.forget(oldest);
        }
    }

    fn forget_client(&mut self, id: ClientId) {
        let is_its = |it: &Connection| it.client.as_ref().is_some_and(|it| it.id == id);
        let name = self.connections.iter().find(|(_, it)| is_its(it));
        if let Some(name) = name.map(|(name, _)| *name) {
            self.forget(name);
        }
    }

    /// The client is gone, or is not to go on; and so are those that do not learn of it.
    fn forget(&mut self, name: u64) {
        let mut names = vec![name];
        while let Some(name) = names.pop() {
            names.extend(self.forget_one(name));
        }
    }

    /// Clients of its domain learn of the end: only they know whether they have frames of it, as
    /// they may be peers since a former switch. Returns those that do not take the event.
    fn forget_one(&mut self, name: u64) -> Vec<u64> {
        let gone = self.connections.remove(&name);
        let Some((identity, client)) = gone.and_then(|it| Some((it.identity, it.client?))) else {
            return Vec::new();
        };
        self.switch.detach(client.id, self.began.elapsed());
        let event = ToClient::Event(Event::Gone { mac: client.mac }).encode();
        let same = |it: &Connection| it.identity.trusts(identity) && it.client.is_some();
        let others = self.connections.iter().filter(|(_, it)| same(it));
        let deaf = others.filter(|(_, other)| !takes_event(other, &event, &[]));
        deaf.map(|(name, _)| *name).collect()
    }

    /// Introduces clients to each other that are to have a way of their own. If that fails, the
    /// frames of the client that has no way go by the switch.
    fn join_pairs(&mut self) {
        for [first, second] in self.switch.take_pairs() {
            let (Some(first), Some(second)) = (self.client(first), self.client(second)) else {
                continue;
            };
            let mut deaf = Vec::new();
            match file::create(c"xwarp-pair", pair::BYTES, Writers::All) {
                Ok((pair, _mapping)) => {
                    for (of, to, first) in [(first, second, false), (second, first, true)] {
                        if !introduce(of, to, &pair, first) {
                            deaf.push(to.1.id);
                        }
                    }
                }
                Err(error) => log::warn!("two clients have no way of their own: {error}"),
            }
            for id in deaf {
                self.forget_client(id);
            }
        }
    }

    fn client(&self, id: ClientId) -> Option<(&Connection, &Client)> {
        let mut all = self.connections.values();
        all.find_map(|it| Some((it, it.client.as_ref().filter(|client| client.id == id)?)))
    }

    /// Takes messages of a client. False if it is gone or has sent what is none.
    fn take_messages_of(&mut self, name: u64) -> bool {
        for _ in 0..MESSAGES {
            let Some(connection) = self.connections.get(&name) else {
                return true;
            };
            let received = match connection.socket.receive(false) {
                Ok(Some(received)) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Ok(None) | Err(_) => return false,
            };
            if !self.answer(name, received) {
                return false;
            }
        }
        true
    }

    fn answer(&mut self, name: u64, received: Received) -> bool {
        let now = self.began.elapsed();
        let Ok(message) = ToSwitch::decode(&received.bytes) else {
            return false;
        };
        let Some(connection) = self.connections.get_mut(&name) else {
            return false;
        };
        let answer = match (message, &connection.client) {
            (ToSwitch::Ring, _) => return true,
            (ToSwitch::Request { id, request }, Some(client)) => {
                let handled = self.switch.handle(client.id, request, now);
                self.join_pairs();
                match handled {
                    Ok(reply) => ToClient::Reply { id, reply },
                    Err(refusal) => ToClient::Refused { id, refusal },
                }
            }
            (ToSwitch::Hello { id, hello }, None) => match self.welcome(name, &hello, received) {
                Ok(welcome) => ToClient::Welcome { id, welcome },
                Err(Unwelcome::Refused(refusal)) => ToClient::Refused { id, refusal },
                Err(Unwelcome::File(error)) => {
                    log::warn!("a client was refused: {error}");
                    return false;
                }
            },
            // Requests before the introduction, and two introductions.
            (ToSwitch::Request { .. }, None) | (ToSwitch::Hello { .. }, Some(_)) => return false,
        };
        let Some(connection) = self.connections.get(&name) else {
            return false;
        };
        let client = connection.client.as_ref();
        let welcomed = client.filter(|_| matches!(answer, ToClient::Welcome { .. }));
        let descriptors = welcomed.map(|client| client.part.down.as_fd());
        let descriptors: Vec<_> = descriptors.into_iter().collect();
        // A client that does not read its replies is ended, and so is one that is refused.
        let sent = connection.socket.send(&answer.encode(), &descriptors);
        sent.is_ok() && client.is_some()
    }

    /// Attaches a client that introduces itself.
    fn welcome(
        &mut self,
        name: u64,
        hello: &Hello,
        received: Received,
    ) -> Result<Welcome, Unwelcome> {
        let version = hello.agree()?;
        let descriptors = <[OwnedFd; 3]>::try_from(received.descriptors);
        let [up, flags, bell] = descriptors.map_err(|_| FileError::NotSealed)?;
        let given = Given { up, flags, bell };
        let (files, part) = ClientFiles::new(&given, epoch_of(self.generation))?;
        let now = self.now();
        let Some(connection) = self.connections.get_mut(&name) else {
            return Err(Refusal::Detached.into());
        };
        let before = hello.before.as_ref();
        let wanted = before.map(|before| before.mac);
        let (id, mac) = self.switch.attach(connection.identity, files, wanted)?;
        connection.client = Some(Client {
            id,
            mac,
            given,
            part,
        });
        let ports = before.map_or(&[][..], |before| &before.ports);
        let kept = ports.iter().copied();
        let kept = kept
            .filter(|at| self.switch.open_again(id, *at, now))
            .collect();
        Ok(Welcome {
            version,
            generation: self.generation,
            mac,
            mtu: u32::try_from(MTU).unwrap_or(u32::MAX),
            name: self.config.name.clone(),
            kept,
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            log::debug!("the socket's file was gone: {error}");
        }
    }
}

/// Process, user and namespace of processes of who has connected.
fn identity_of(peer: &UnixCredentials) -> Identity {
    let domain = fs::metadata(format!("/proc/{}/ns/pid", peer.pid()));
    Identity {
        uid: peer.uid(),
        process: u32::try_from(peer.pid()).ok().and_then(NonZero::new),
        domain: domain.ok().map(|it| it.ino()),
    }
}

/// Gives `to` the way to `of`. False if it does not take it.
fn introduce(
    (_, client): (&Connection, &Client),
    (to, _): (&Connection, &Client),
    pair: &OwnedFd,
    first: bool,
) -> bool {
    let event = ToClient::Event(Event::Peer {
        mac: client.mac,
        first,
    });
    let Given { up, flags, bell } = &client.given;
    let descriptors = [pair.as_fd(), up.as_fd(), flags.as_fd(), bell.as_fd()];
    takes_event(to, &event.encode(), &descriptors)
}

/// False if the client has no room for an event: it would lose the frames of a peer for ever.
fn takes_event(to: &Connection, event: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
    let sent = to.socket.send(event, descriptors);
    if let Err(error) = &sent {
        let is_gone = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
        let level = if is_gone.contains(&error.kind()) {
            log::Level::Debug
        } else {
            log::Level::Warn
        };
        log::log!(
            level,
            "a client does not take its events, and is ended: {error}"
        );
    }
    sent.is_ok()
}

/// Clients whose descriptors this process can have.
fn clients_within_limit() -> io::Result<usize> {
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    Ok(limit.saturating_sub(UNKNOWN_MAX + DESCRIPTORS_BESIDES) / DESCRIPTORS_OF_CLIENT)
}

/// Why a client is not attached.
enum Unwelcome {
    /// It gets the reason.
    Refused(Refusal),
    /// It is ended.
    File(FileError),
}

impl From<Refusal> for Unwelcome {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<FileError> for Unwelcome {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

/// Removes a socket that no switch listens at.
fn remove_stale(path: &Path) -> Result<(), ServeError> {
    use std::os::unix::fs::FileTypeExt;

    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        return Err(ServeError::NoSocket(path.to_owned()));
    }
    let Err(error) = ControlSocket::connect(path) else {
        return Err(ServeError::InUse(path.to_owned()));
    };
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ECONNREFUSED) => fs::remove_file(path).map_err(|source| refused(path, source)),
        // It is a stream socket, or one of datagrams.
        Some(Errno::EPROTOTYPE) => Err(ServeError::Foreign(path.to_owned())),
        _ => Err(refused(path, error)),
    }
}

fn refused(path: &Path, source: io::Error) -> ServeError {
    let path = path.to_owned();
    match source.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENAMETOOLONG) => ServeError::TooLong(path),
        _ => ServeError::Socket {
            path,
            error: source,
        },
    }
}
