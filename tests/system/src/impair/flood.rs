//! A flood of SYNs, and of ACKs that answer nothing, from stations that are not there.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, bind, send, socket};
use xwarp_test_kit::netsim::{Rng, Seed};

use crate::impair::delay_line::link_address;

/// Between two looks at what is due.
const PAUSE: Duration = Duration::from_millis(1);
/// What was due for longer than this is never sent: a sender that waited for a processor keeps its
/// rate.
const LATE: Duration = Duration::from_millis(10);
/// Which of a seed's random streams the flood has.
const STREAM: u64 = 2;
/// Host numbers that the senders have in the target's network of 24 bits.
const SENDERS: std::ops::Range<u8> = 100..200;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
/// Bytes of the headers of Ethernet, IPv4 and TCP.
const HEADERS: usize = 14 + 20 + 20;

/// Whom a flood meets, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Hostile {
    /// A listener.
    pub target: SocketAddrV4,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// SYNs per second.
    pub syns: u32,
    /// ACKs per second.
    pub acks: u32,
    /// What ports and numbers come from.
    pub seed: Seed,
}

/// Segments that were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flooded {
    /// SYNs.
    pub syns: u64,
    /// ACKs.
    pub acks: u64,
}

/// The thread that sends, until it is dropped.
pub struct Flood {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Flooded>>>,
}

impl Flood {
    /// Sends through the interface named `device`, in the namespace of the calling thread.
    pub fn start(device: &str, hostile: Hostile) -> io::Result<Self> {
        let mut sender = Sender::open(device, hostile)?;
        let end = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&end);
        let thread = std::thread::Builder::new()
            .name("flood".to_owned())
            .spawn(move || sender.run(&stop))?;
        Ok(Self {
            end,
            thread: Some(thread),
        })
    }

    /// Ends it; what it has sent.
    pub fn finish(mut self) -> io::Result<Flooded> {
        self.join().unwrap_or_else(|| Ok(Flooded::default()))
    }

    fn join(&mut self) -> Option<io::Result<Flooded>> {
        self.end.store(true, Ordering::Relaxed);
        let outcome = self.thread.take()?.join();
        Some(outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.join() {
            eprintln!("the flood has failed: {error}");
        }
    }
}

struct Sender {
    socket: OwnedFd,
    mac: [u8; 6],
    hostile: Hostile,
    rng: Rng,
}

impl Sender {
    fn open(device: &str, hostile: Hostile) -> io::Result<Self> {
        let address = link_address(device)?;
        let no_mac = || io::Error::other(format!("{device} has no Ethernet address"));
        let mac = address.addr().ok_or_else(no_mac)?;
        // No protocol: nothing is received.
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None)?;
        bind(socket.as_raw_fd(), &address)?;
        Ok(Self {
            socket,
            mac,
            hostile,
            rng: Rng::new(hostile.seed, STREAM),
        })
    }

    fn run(&mut self, end: &AtomicBool) -> io::Result<Flooded> {
        let (mut begin, mut sent) = (Instant::now(), Flooded::default());
        let mut last = begin;
        while !end.load(Ordering::Relaxed) {
            let now = Instant::now();
            begin += (now - last).saturating_sub(LATE);
            last = now;
            let micros = (now - begin).as_micros();
            let due = |rate: u32| u64::try_from(micros * u128::from(rate) / 1_000_000);
            let syns = due(self.hostile.syns).unwrap_or(u64::MAX);
            let acks = due(self.hostile.acks).unwrap_or(u64::MAX);
            // In turn, so that a sender that is behind has sent as much of either.
            while (sent.syns < syns || sent.acks < acks) && !end.load(Ordering::Relaxed) {
                if sent.syns < syns {
                    sent.syns += u64::from(self.send(SYN)?);
                }
                if sent.acks < acks {
                    sent.acks += u64::from(self.send(ACK)?);
                }
            }
            std::thread::sleep(PAUSE);
        }
        Ok(sent)
    }

    /// False if the queue was full.
    fn send(&mut self, flags: u8) -> io::Result<bool> {
        let frame = self.frame(flags);
        match send(self.socket.as_raw_fd(), &frame, MsgFlags::empty()) {
            Ok(_) => Ok(true),
            Err(Errno::ENOBUFS | Errno::EAGAIN) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// A segment without payload from a random sender, whose numbers are random as well.
    fn frame(&mut self, flags: u8) -> [u8; HEADERS] {
        let (numbers, sender) = (self.rng.draw().to_be_bytes(), self.rng.draw());
        let target = self.hostile.target;
        let [network @ .., _] = target.ip().octets();
        let hosts = u64::from(SENDERS.end - SENDERS.start);
        let host = SENDERS.start + u8::try_from(sender % hosts).unwrap_or(0);
        let source = Ipv4Addr::new(network[0], network[1], network[2], host);
        let port = 1024 + u16::try_from(sender >> 32 & 0x7fff).unwrap_or(0);

        let mut frame = [0; HEADERS];
        frame[..6].copy_from_slice(&self.hostile.mac);
        frame[6..12].copy_from_slice(&self.mac);
        frame[12..14].copy_from_slice(&[8, 0]);
        let (ip, tcp) = frame[14..].split_at_mut(20);
        // 40 bytes, DF, TTL 64, TCP.
        ip[..10].copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6]);
        ip[12..16].copy_from_slice(&source.octets());
        ip[16..].copy_from_slice(&target.ip().octets());
        let sum = checksum(&[ip]);
        ip[10..12].copy_from_slice(&sum);
        tcp[..2].copy_from_slice(&port.to_be_bytes());
        tcp[2..4].copy_from_slice(&target.port().to_be_bytes());
        let acknowledged = if flags == ACK { 12 } else { 8 };
        tcp[4..acknowledged].copy_from_slice(&numbers[..acknowledged - 4]);
        tcp[12..16].copy_from_slice(&[5 << 4, flags, 0xff, 0xff]); // no options, the largest window
        let sum = checksum(&[&ip[12..], &[0, 6, 0, 20], tcp]); // with the pseudo header
        tcp[16..18].copy_from_slice(&sum);
        frame
    }
}

/// The Internet checksum (RFC 1071) of parts of an even length each.
fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let words = parts.iter().flat_map(|part| part.chunks_exact(2));
    let sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let [_, _, high, low] = (!(folded + (folded >> 16))).to_be_bytes();
    [high, low]
}
