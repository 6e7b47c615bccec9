//! Delay line: a thread that sends each frame back twice, or late.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recvfrom, send,
    socket,
};
use xwarp_test_kit::netsim::Rng;

use crate::impair::Rule;

/// The largest frame.
const FRAME_BYTES: usize = 1 << 16;
/// How often the thread looks whether it shall end.
const GLANCE: Duration = Duration::from_millis(20);
/// A frame that this host sent, as `linux/if_packet.h` has it.
const PACKET_OUTGOING: u8 = 4;
/// Which of a seed's random streams the delay line has.
const STREAM: u64 = 1;

/// The thread at the end of the delay line, until it is dropped.
pub struct DelayLine {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl DelayLine {
    /// Takes frames from the interface named `device`, in the namespace of the calling thread.
    pub fn start(device: &str, rule: &Rule) -> io::Result<Self> {
        let end = Arc::new(AtomicBool::new(false));
        let mut loopback = Loopback::open(device, *rule)?;
        let stop = Arc::clone(&end);
        let thread = std::thread::Builder::new()
            .name("delay line".to_owned())
            .spawn(move || loopback.run(&stop))?;
        Ok(Self {
            end,
            thread: Some(thread),
        })
    }

    /// Ends the thread; what went wrong in it.
    pub fn finish(mut self) -> io::Result<()> {
        self.join()
    }

    fn join(&mut self) -> io::Result<()> {
        self.end.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(outcome)) => outcome,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for DelayLine {
    fn drop(&mut self) {
        if let Err(error) = self.join() {
            eprintln!("the delay line has failed: {error}");
        }
    }
}

/// What the thread works with.
struct Loopback {
    socket: OwnedFd,
    interface: usize,
    rule: Rule,
    rng: Rng,
    late: VecDeque<(Instant, Vec<u8>)>,
}

impl Loopback {
    fn open(device: &str, rule: Rule) -> io::Result<Self> {
        let address = link_address(device)?;
        let socket = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::EthAll,
        )?;
        bind(socket.as_raw_fd(), &address)?;
        Ok(Self {
            socket,
            interface: address.ifindex(),
            rule,
            rng: Rng::new(rule.seed, STREAM),
            late: VecDeque::new(),
        })
    }

    fn run(&mut self, end: &AtomicBool) -> io::Result<()> {
        let mut frame = vec![0; FRAME_BYTES];
        while !end.load(Ordering::Relaxed) {
            self.wait()?;
            while let Some(len) = self.receive(&mut frame)? {
                self.treat(&frame[..len])?;
            }
            self.send_due()?;
        }
        Ok(())
    }

    /// Waits for a frame, or for the time of a late one.
    fn wait(&self) -> io::Result<()> {
        let timeout = (self.late.front())
            .map_or(GLANCE, |(due, _)| {
                due.saturating_duration_since(Instant::now())
            })
            .min(GLANCE);
        let millis = u16::try_from(timeout.as_millis()).unwrap_or(0);
        let mut polled = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        match poll(&mut polled, PollTimeout::from(millis)) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The next frame that came in here.
    fn receive(&self, frame: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match recvfrom::<LinkAddr>(self.socket.as_raw_fd(), frame) {
                Ok((len, Some(from)))
                    if from.ifindex() == self.interface && from.pkttype() != PACKET_OUTGOING =>
                {
                    return Ok(Some(len));
                }
                // Something else, seen before the socket was bound to its interface.
                Ok(_) => {}
                Err(Errno::EAGAIN) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn treat(&mut self, frame: &[u8]) -> io::Result<()> {
        if self.rng.chance(self.rule.duplicate_of_diverted()) {
            self.send(frame)?;
            return self.send(frame);
        }
        let due = Instant::now() + self.rule.delay;
        self.late.push_back((due, frame.to_vec()));
        Ok(())
    }

    fn send_due(&mut self) -> io::Result<()> {
        while let Some((due, _)) = self.late.front()
            && *due <= Instant::now()
        {
            if let Some((_, frame)) = self.late.pop_front() {
                self.send(&frame)?;
            }
        }
        Ok(())
    }

    /// Sends a frame; a queue that is full loses it, as in any network.
    fn send(&self, frame: &[u8]) -> io::Result<()> {
        match send(self.socket.as_raw_fd(), frame, MsgFlags::empty()) {
            Ok(_) | Err(Errno::ENOBUFS | Errno::EAGAIN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

pub(crate) fn link_address(device: &str) -> io::Result<LinkAddr> {
    getifaddrs()?
        .filter(|entry| entry.interface_name == device)
        .find_map(|entry| {
            entry
                .address
                .and_then(|address| address.as_link_addr().copied())
        })
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no interface {device}")))
}
