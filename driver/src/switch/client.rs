//! An RNIC's end of a switch: it attaches, asks, and finds the switch again after it was started
//! anew.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use xwarp_switchd::{Event, MacAddress, Reply, Request, ToClient};

use super::control::{Control, RETRY, SwitchError};
use super::file::{self, MappedWord, Mapping, Writers};
use super::io::SwitchIo;
use super::layout::{FILE, MTU, epoch_of, flags, pair};
use super::mailbox::{Mailbox, NewPeer, NewSwitch, News};
use super::socket::Received;
use crate::memory::take_only_faults;
use crate::net::{InterfaceEnd, InterfaceMonitor, InterfaceNews, InterfaceReporter};
use crate::wake::{Doorbell, Sleeper, join_sleeper};

/// How long a switch may be away. Then the RNIC has failed.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection to a switch, as far as requests go. It ends when this is dropped.
pub struct SwitchClient {
    control: Arc<Control>,
    monitor: InterfaceMonitor,
    thread: Option<JoinHandle<()>>,
}

/// What an RNIC by a switch is made of.
pub struct Attached {
    /// The queue.
    pub io: SwitchIo,
    /// What the engine of that queue must sleep by: the switch rings this doorbell, too.
    pub waking: (Sleeper, Doorbell),
    /// For requests.
    pub client: SwitchClient,
    /// Name of the device.
    pub name: String,
    /// Ethernet address of the device in this program.
    pub mac: MacAddress,
    /// The largest IP packet, in bytes.
    pub mtu: usize,
}

impl SwitchClient {
    /// Attaches to the switch that listens at `path`. `device`: the name that its device must have,
    /// if any.
    ///
    /// # Errors
    ///
    /// [`SwitchError`]: there is no switch, it refuses, or it has another device.
    pub fn attach(path: &Path, device: Option<&str>) -> Result<Attached, SwitchError> {
        let (up_file, up) = file::create(c"xwarp-up", FILE, Writers::Maker)?;
        let (flags_file, flags) = file::create(c"xwarp-flags", flags::BYTES, Writers::All)?;
        let (waking, bell) = Sleeper::shared(MappedWord::new(&flags, flags::CLIENT_ASLEEP))?;
        let (reporter, monitor) = InterfaceReporter::new(Some(waking.1.clone()));
        let mailbox = Arc::new(Mailbox::new(waking.1.clone()));
        let control = Arc::new(Control::new(path, [up_file, flags_file, bell])?);
        let (welcome, down) = control.connect()?;
        if let Some(wanted) = device.filter(|wanted| *wanted != welcome.name) {
            return Err(SwitchError::OtherDevice {
                path: control.path().to_owned(),
                has: welcome.name,
                wanted: wanted.to_owned(),
            });
        }
        let epoch = epoch_of(welcome.generation);
        let first = NewSwitch { down, epoch };
        let (news, asks) = (Arc::clone(&mailbox), Arc::clone(&control));
        let io = SwitchIo::new(up, &flags, &first, news, asks);
        let thread = Thread {
            control: Arc::clone(&control),
            mailbox,
            reporter,
            name: welcome.name.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("xwarp-switch".to_owned())
            .spawn(move || thread.run())?;
        let client = Self {
            control,
            monitor,
            thread: Some(thread),
        };
        Ok(Attached {
            io,
            waking,
            client,
            name: welcome.name,
            mac: welcome.mac,
            mtu: MTU,
        })
    }

    /// What happens to the device: its end, if the switch stays away.
    pub fn monitor(&self) -> InterfaceMonitor {
        self.monitor.clone()
    }

    /// Asks the switch, and waits for the reply. While a switch is away, the request waits for the
    /// next one.
    ///
    /// # Errors
    ///
    /// - [`SwitchError::Refused`]: the switch refuses.
    /// - [`SwitchError::Silent`], [`SwitchError::Ended`]: there is no reply.
    pub fn ask(&self, request: Request) -> Result<Reply, SwitchError> {
        self.control.ask(request)
    }

    /// Process of the switch. `None` if it is in a namespace that this process does not see.
    pub(super) fn process(&self) -> Option<u32> {
        let peer = self.control.socket()?.peer().ok()?;
        u32::try_from(peer.pid()).ok().filter(|pid| *pid != 0)
    }

    /// Whether this program has a port.
    pub fn has_port(&self, at: SocketAddr) -> bool {
        self.control.has_port(at)
    }

    /// Gives a port back, without waiting.
    pub fn close_port(&self, at: SocketAddr) {
        self.control.close_port(at);
    }
}

impl Drop for SwitchClient {
    fn drop(&mut self) {
        self.control.stop();
        if let Some(thread) = self.thread.take() {
            join_sleeper(thread, "the thread of the switch's socket", || {
                self.control.sleeps()
            });
        }
    }
}

/// The thread that receives from the switch.
struct Thread {
    control: Arc<Control>,
    mailbox: Arc<Mailbox>,
    reporter: InterfaceReporter,
    name: String,
}

impl Thread {
    fn run(self) {
        if let Err(error) = take_only_faults() {
            log::warn!("the thread of the switch's socket takes the program's signals: {error}");
        }
        while self.receive_until_gone() {
            if !self.find_again() {
                return;
            }
        }
    }

    /// Receives until the switch is gone: then true. False once the RNIC is closed.
    fn receive_until_gone(&self) -> bool {
        let Some(socket) = self.control.socket() else {
            return true;
        };
        loop {
            if self.control.is_stopped_within(Some(&socket), None) {
                return false;
            }
            match socket.receive(false) {
                Ok(Some(received)) => self.take(received),
                Ok(None) => return true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    log::debug!("the switch's socket fails: {error}");
                    return true;
                }
            }
        }
    }

    fn take(&self, received: Received) {
        let (id, reply) = match ToClient::decode(&received.bytes) {
            Ok(ToClient::Reply { id, reply }) => (id, Ok(reply)),
            Ok(ToClient::Refused { id, refusal }) => (id, Err(refusal)),
            Ok(ToClient::Event(event)) => return self.take_event(event, received.descriptors),
            Ok(ToClient::Welcome { .. }) => return,
            Err(error) => {
                log::warn!("a message of the switch is ignored: {error}");
                return;
            }
        };
        self.control.take_reply(id, reply);
    }

    fn take_event(&self, event: Event, descriptors: Vec<OwnedFd>) {
        match event {
            Event::Gone { mac } => self.mailbox.put(News::Gone(mac)),
            Event::Peer { mac, first } => match peer(mac, first, descriptors) {
                Ok(peer) => self.mailbox.put(News::Peer(peer)),
                // Its frames are lost, and those to it go by the switch after the next connect.
                Err(error) => log::warn!("a peer cannot be reached but by the switch: {error}"),
            },
        }
    }

    /// Connects to the next switch. False if the RNIC is closed or no switch comes.
    fn find_again(&self) -> bool {
        self.control.lose();
        let began = Instant::now();
        loop {
            match self.control.connect() {
                Ok((welcome, down)) if welcome.name == self.name => {
                    let epoch = epoch_of(welcome.generation);
                    self.mailbox.put(News::Switch(NewSwitch { down, epoch }));
                    return true;
                }
                Ok(_) | Err(SwitchError::Refused(_) | SwitchError::NoSwitch(_)) => {
                    return self.end();
                }
                Err(_) if began.elapsed() > PATIENCE => return self.end(),
                Err(error) => log::debug!("{error}"),
            }
            if self.control.is_stopped_within(None, Some(RETRY)) {
                return false;
            }
        }
    }

    fn end(&self) -> bool {
        self.control.end();
        let end = InterfaceEnd::SwitchEnded(self.name.clone());
        self.reporter.report(InterfaceNews::Ended(end));
        false
    }
}

/// A peer by the descriptors that the switch has sent: the pair's file, the peer's files and bell.
fn peer(
    mac: MacAddress,
    is_first: bool,
    descriptors: Vec<OwnedFd>,
) -> Result<NewPeer, SwitchError> {
    let descriptors = <[OwnedFd; 4]>::try_from(descriptors);
    let [pair, up, flags, bell] = descriptors.map_err(|_| SwitchError::unasked())?;
    Ok(NewPeer {
        mac,
        is_first,
        pair: Mapping::of(pair.as_fd(), pair::BYTES, Writers::All)?,
        up: Mapping::of(up.as_fd(), FILE, Writers::Maker)?,
        flags: Mapping::of(flags.as_fd(), flags::BYTES, Writers::All)?,
        bell,
    })
}
