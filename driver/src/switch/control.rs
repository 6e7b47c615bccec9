//! Control socket of a program: requests, and what another switch needs to know of the program.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use xwarp_switchd::{
    Before, Hello, LIST_MAX, MacAddress, Malformed, Refusal, Reply, Request, ToClient, ToSwitch,
    VERSION, Welcome,
};

use super::file::{FileError, Mapping, Writers};
use super::layout::FILE;
use super::socket::{ControlSocket, Received};
use crate::wake::{Signal, sleep_on};

/// How long a switch may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Between two attempts to find a switch that is away.
pub(super) const RETRY: Duration = Duration::from_millis(20);

/// Why a program has no switch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// No switch can be reached.
    #[error("no switch answers at {}: {error}; {}", .path.display(), remedy(error))]
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// The path is of something else.
    #[error("{} is no socket; name the one that `xwarp serve` has printed", .0.display())]
    NotSocket(PathBuf),
    /// The switch has refused the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// What has answered is no switch, for a reason.
    #[error("what listens at the socket does not answer as a switch does: {0}")]
    NoSwitch(String),
    /// The switch has another name.
    #[error("the switch at {} has the device {has}, and not {wanted}; name that one", .path.display())]
    OtherDevice {
        /// The socket.
        path: PathBuf,
        /// The name of its device.
        has: String,
        /// The name that was wanted.
        wanted: String,
    },
    /// No reply has come in time.
    #[error("the switch has not answered for {} s", ANSWER.as_secs())]
    Silent,
    /// The switch has ended, and none has taken its place.
    #[error(
        "the switch has ended; start it again by `xwarp serve --local`, and open the RNIC anew"
    )]
    Ended,
    /// The program has no descriptor, memory or thread left.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl SwitchError {
    /// The answer was none to the question.
    pub fn unasked() -> Self {
        Self::NoSwitch("its reply was unasked".to_owned())
    }
}

/// Why no switch can be reached at a path.
fn not_reached(path: &Path, source: io::Error) -> SwitchError {
    let path = path.to_owned();
    match fs::metadata(&path) {
        Ok(found) if !found.file_type().is_socket() => SwitchError::NotSocket(path),
        _ => SwitchError::Unreachable {
            path,
            error: source,
        },
    }
}

/// Whether the other end of a socket is gone.
fn is_hangup(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

/// What helps if a socket cannot be connected to.
fn remedy(source: &io::Error) -> &'static str {
    match source.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EACCES | Errno::EPERM) => "only users who may write to it may attach",
        Some(Errno::EPROTOTYPE) => {
            "another program listens there: name the socket that `xwarp serve` has printed"
        }
        Some(Errno::ENAMETOOLONG) => "a socket's path has at most 107 bytes: choose a shorter one",
        _ => "start one by `xwarp serve --local`",
    }
}

impl From<Malformed> for SwitchError {
    fn from(error: Malformed) -> Self {
        Self::NoSwitch(error.to_string())
    }
}

impl From<FileError> for SwitchError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::System(error) => Self::System(error),
            other => Self::NoSwitch(other.to_string()),
        }
    }
}

/// The control socket of a program, for its engine and its threads.
pub(super) struct Control {
    path: PathBuf,
    /// The client's files, and what wakes it, for each switch to come.
    given: [OwnedFd; 3],
    link: Mutex<Link>,
    /// The socket has changed.
    changed: Condvar,
    next_id: AtomicU32,
    stop: Signal,
    /// The thread waits, and works on nothing.
    sleeps: AtomicBool,
}

/// The connection to the present switch.
#[derive(Default)]
struct Link {
    socket: Option<Arc<ControlSocket>>,
    /// No other switch is waited for.
    has_ended: bool,
    /// Requests without a reply.
    pending: HashMap<u32, Sender<Result<Reply, Refusal>>>,
    /// Generation and Ethernet address, by the last switch.
    known: Option<(u64, MacAddress)>,
    /// Ports of this program, which are opened again at another switch.
    ports: Vec<SocketAddr>,
}

impl Control {
    /// Of a program with these files, not connected.
    pub(super) fn new(path: &Path, given: [OwnedFd; 3]) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            given,
            link: Mutex::default(),
            changed: Condvar::new(),
            next_id: AtomicU32::new(1),
            stop: Signal::new()?,
            sleeps: AtomicBool::new(false),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this program has a port.
    pub(super) fn has_port(&self, at: SocketAddr) -> bool {
        let same = |it: &SocketAddr| it.ip() == at.ip() && it.port() == at.port();
        self.link().ports.iter().any(same)
    }

    /// Gives a port back, without waiting.
    pub(super) fn close_port(&self, at: SocketAddr) {
        self.link().ports.retain(|it| *it != at);
        let (id, request) = (self.new_id(), Request::ClosePort(at));
        self.send(&ToSwitch::Request { id, request });
    }

    /// The socket, if there is a switch.
    pub(super) fn socket(&self) -> Option<Arc<ControlSocket>> {
        self.link().socket.clone()
    }

    /// A reply has come.
    pub(super) fn take_reply(&self, id: u32, reply: Result<Reply, Refusal>) {
        // A request that was given up has none that waits.
        if let Some(sender) = self.link().pending.remove(&id) {
            let _given_up = sender.send(reply);
        }
    }

    /// The switch has ended. Requests without a reply are put to the next one.
    pub(super) fn lose(&self) {
        let mut link = self.link();
        link.pending.clear();
        link.socket = None;
    }

    /// No other switch is waited for.
    pub(super) fn end(&self) {
        let mut link = self.link();
        link.socket = None;
        link.has_ended = true;
        drop(link);
        self.changed.notify_all();
    }

    /// The program closes the RNIC.
    pub(super) fn stop(&self) {
        self.stop.raise();
    }

    /// Whether the thread waits, and works on nothing.
    pub(super) fn sleeps(&self) -> bool {
        self.sleeps.load(Ordering::Relaxed)
    }

    /// Waits until the socket is readable. True if the program closes the RNIC.
    pub(super) fn is_stopped_within(
        &self,
        socket: Option<&ControlSocket>,
        timeout: Option<Duration>,
    ) -> bool {
        self.sleeps.store(true, Ordering::Relaxed);
        let stop = self.stop.as_fd();
        let fds = [socket.map_or(stop, AsFd::as_fd)];
        let slept = sleep_on(fds, &[stop], timeout);
        self.sleeps.store(false, Ordering::Relaxed);
        slept.unwrap_or_else(|error| {
            log::error!("the switch's socket cannot be waited for: {error}");
            true
        })
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_id(&self) -> u32 {
        // 0 stands for events.
        loop {
            let id = self.next_id.fetch_add(1, Ordering::Relaxed);
            if id != 0 {
                return id;
            }
        }
    }

    /// Sends a message if there is a switch.
    fn send(&self, message: &ToSwitch) -> bool {
        let socket = self.link().socket.clone();
        let sent = socket.map(|socket| socket.send(&message.encode(), &[]));
        matches!(sent, Some(Ok(())))
    }

    /// Wakes the switch.
    pub(super) fn ring(&self) {
        // A socket that is full wakes it, too.
        self.send(&ToSwitch::Ring);
    }

    /// Asks the switch, and waits for the reply.
    pub(super) fn ask(&self, request: Request) -> Result<Reply, SwitchError> {
        let reply = self.replied(request)?;
        if let Reply::Port(at) = reply {
            self.link().ports.push(at);
        }
        Ok(reply)
    }

    fn replied(&self, request: Request) -> Result<Reply, SwitchError> {
        let until = Instant::now() + ANSWER;
        loop {
            let (id, (sender, reply)) = (self.new_id(), channel());
            let socket = self.attached_until(until, |link| link.pending.insert(id, sender))?;
            let message = ToSwitch::Request { id, request };
            let sent = socket.send(&message.encode(), &[]);
            let left = until.saturating_duration_since(Instant::now());
            // Without the request there is no reply, unless the switch is gone.
            let replied = reply.recv_timeout(if sent.is_ok() { left } else { RETRY.min(left) });
            self.link().pending.remove(&id);
            match replied {
                // The program has to slow down.
                Ok(Err(Refusal::TooFast(_))) if left > RETRY => std::thread::sleep(RETRY),
                Ok(reply) => return Ok(reply?),
                Err(RecvTimeoutError::Timeout) if left.is_zero() || sent.is_ok() => {
                    return Err(SwitchError::Silent);
                }
                // The switch is gone, or its socket was full.
                Err(_) => {}
            }
        }
    }

    /// The socket, as soon as there is a switch.
    fn attached_until<R>(
        &self,
        until: Instant,
        with: impl FnOnce(&mut Link) -> R,
    ) -> Result<Arc<ControlSocket>, SwitchError> {
        let mut link = self.link();
        loop {
            if link.has_ended {
                return Err(SwitchError::Ended);
            }
            if let Some(socket) = link.socket.clone() {
                with(&mut link);
                return Ok(socket);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(SwitchError::Silent);
            }
            let waited = self.changed.wait_timeout(link, left);
            link = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Attaches to the switch that listens now, with the same file and ports as to the last one.
    pub(super) fn connect(&self) -> Result<(Welcome, Mapping), SwitchError> {
        let socket = ControlSocket::connect(&self.path);
        let socket = socket.map_err(|source| not_reached(&self.path, source))?;
        let (known, ports) = {
            let link = self.link();
            (link.known, link.ports.clone())
        };
        // The others are asked for one by one, as a message has no room for them.
        let (named, others) = ports.split_at(ports.len().min(LIST_MAX));
        let before = known.map(|(generation, mac)| Before {
            generation,
            mac,
            ports: named.to_vec(),
        });
        let hello = Hello {
            lowest: VERSION,
            highest: VERSION,
            before,
        };
        let id = self.new_id();
        let hello = ToSwitch::Hello { id, hello }.encode();
        let given = self.given.each_ref().map(AsFd::as_fd);
        let sent = socket.send(&hello, &given).map_err(SwitchError::System);
        let answer = sent.and_then(|()| self.answer(&socket));
        let answer = answer.map_err(|error| match error {
            SwitchError::System(source) if is_hangup(&source) => not_reached(&self.path, source),
            other => other,
        })?;
        let welcome = match ToClient::decode(&answer.bytes)? {
            ToClient::Welcome { welcome, .. } => welcome,
            ToClient::Refused { refusal, .. } => return Err(refusal.into()),
            _ => return Err(SwitchError::unasked()),
        };
        let down = answer.descriptors.into_iter().next();
        let down = down.ok_or_else(SwitchError::unasked)?;
        let down = Mapping::of(down.as_fd(), FILE, Writers::Maker)?;
        for at in others {
            let (id, request) = (self.new_id(), Request::OpenPort(*at));
            socket.send(&ToSwitch::Request { id, request }.encode(), &[])?;
        }
        let is_kept = |at: &SocketAddr| !named.contains(at) || welcome.kept.contains(at);
        let mut link = self.link();
        link.known = Some((welcome.generation, welcome.mac));
        link.ports.retain(is_kept);
        link.socket = Some(Arc::new(socket));
        drop(link);
        self.changed.notify_all();
        Ok((welcome, down))
    }

    /// The first message of the switch.
    fn answer(&self, socket: &ControlSocket) -> Result<Received, SwitchError> {
        let until = Instant::now() + ANSWER;
        loop {
            match socket.receive(false) {
                Ok(Some(received)) => return Ok(received),
                Ok(None) => return Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            let left = until.saturating_duration_since(Instant::now());
            let stopped = sleep_on([socket.as_fd()], &[self.stop.as_fd()], Some(left))?;
            if stopped {
                return Err(SwitchError::Ended);
            }
            if left.is_zero() {
                return Err(SwitchError::Silent);
            }
        }
    }
}
