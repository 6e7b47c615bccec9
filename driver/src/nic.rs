//! Opening a network interface for RDMA: what it is, the program on it, its memory, its queue.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::sys::eventfd::EventFd;
use xwarp_bpf::Buffers;

use crate::attach::{AttachError, Attachment, XdpMode};
use crate::net::{self, Link, LinkError, MacAddr};
use crate::packet_io::PacketIo;
use crate::region::RegionPool;
use crate::tap::{Capture, Tap, TapError};
use crate::umem::{self, FRAME_CAPACITY, UmemError};
use crate::xdp::{self, OpenQueueError, Target};

/// The queue that is served; an interface with more than one is refused.
const QUEUE: u32 = 0;
/// Octets of an Ethernet header with two VLAN tags.
const LINK_HEADER_MAX: usize = 22;
/// The largest MTU whose frames fit into a chunk, in octets.
const MTU_OF_ONE_CHUNK: usize = FRAME_CAPACITY - LINK_HEADER_MAX;
/// File descriptors that an interface takes at once: 11 were counted on Linux 6.18, with the one of its engine and of a port.
const DESCRIPTORS: usize = 12;
/// An IP packet is never larger, whatever the interface takes.
const IP_PACKET_MAX: u32 = 65_535;

/// How an interface is to be opened.
#[derive(Clone, Debug)]
pub struct NicConfig {
    /// The XDP mode that is demanded; `None` takes what is attached, or native before generic.
    pub mode: Option<XdpMode>,
    /// Entries of each ring, a power of two.
    pub ring: u32,
    /// Frames; half of them receive.
    pub frames: u32,
    /// Octets of the region area, rounded up to whole pages.
    pub region_octets: usize,
    /// A pcapng file to write every frame to.
    pub capture: Option<PathBuf>,
}

impl Link {
    /// Over how many buffers a driver may have to spread the interface's frames.
    pub fn frames(&self) -> Buffers {
        if mtu_of(self) <= MTU_OF_ONE_CHUNK {
            Buffers::One
        } else {
            Buffers::Many
        }
    }
}

impl Default for NicConfig {
    fn default() -> Self {
        Self {
            mode: None,
            ring: 2048,
            frames: 4096,
            region_octets: 64 << 20,
            capture: None,
        }
    }
}

/// What was opened, as it really is.
#[derive(Clone, Debug)]
pub struct NicInfo {
    /// Interface name.
    pub name: String,
    /// Interface index.
    pub index: u32,
    /// Ethernet address.
    pub mac: MacAddr,
    /// Largest IP packet, in octets.
    pub mtu: usize,
    /// The XDP mode in force.
    pub mode: XdpMode,
    /// True if the program was there before us and stays when we go.
    pub program_found: bool,
}

impl fmt::Display for NicInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = if self.program_found {
            "found attached"
        } else {
            "attached by us"
        };
        write!(
            f,
            "{}  XDP {} ({origin})  AF_XDP copy  1 queue  MTU {}",
            self.name, self.mode, self.mtu
        )
    }
}

/// Why an interface could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum NicError {
    /// The process has too few file descriptors left.
    #[error(
        "opening a network interface takes {DESCRIPTORS} file descriptors, and fewer are left ({0}); raise the limit of open files (`ulimit -n`)"
    )]
    Descriptors(Errno),
    /// The interface could not be looked up.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// It is down.
    #[error("{0} is down; set it up with `ip link set {0} up`")]
    Down(String),
    /// It is no Ethernet interface.
    #[error("{0} is the loopback interface, which has no Ethernet frames; choose another one")]
    Loopback(String),
    /// Its traffic is spread over several queues.
    #[error(
        "{name} spreads its traffic over {queues} receive queues, but one is served; use `ethtool -L {name} combined 1` (or rx 1)"
    )]
    Queues {
        /// The interface.
        name: String,
        /// Its receive queues.
        queues: u32,
    },
    /// The program.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The memory.
    #[error(transparent)]
    Umem(#[from] UmemError),
    /// The queue.
    #[error(transparent)]
    Queue(#[from] OpenQueueError),
    /// The steering maps.
    #[error(transparent)]
    Steering(#[from] SteeringError),
    /// The capture.
    #[error(transparent)]
    Capture(#[from] TapError),
}

/// The program's maps could not be changed.
#[derive(Debug, thiserror::Error)]
#[error("cannot tell the XDP program what to steer")]
pub struct SteeringError(#[from] xwarp_bpf::MapError);

/// An open interface, in the parts that a stack takes over.
pub struct Nic {
    /// What was opened.
    pub info: NicInfo,
    /// Its queue.
    pub io: Box<dyn PacketIo>,
    /// Its memory for regions.
    pub regions: RegionPool,
    /// Which flows come to it.
    pub steering: Steering,
    /// The file that its frames are written to, if that was asked for.
    pub capture: Option<Capture>,
}

impl Nic {
    /// Opens `name` in the current network namespace. Dropping the parts undoes all of it.
    pub fn open(name: &str, config: &NicConfig) -> Result<Self, NicError> {
        check_descriptors()?;
        let link = net::link_by_name(name)?;
        check_link(&link)?;
        let frames = link.frames();
        let (memory, regions) = umem::create(config.frames, config.ring, config.region_octets)?;
        let target = Target {
            interface: name,
            queue: QUEUE,
            ring: config.ring,
            frames,
        };
        // The queue first: whoever has it owns the interface, and only then is it sure whose program is there.
        let io = xdp::open(&target, mtu_of(&link) + LINK_HEADER_MAX, memory)?;
        let attachment = Attachment::open(link.index, &link.name, config.mode, frames)?;
        let info = describe(link, &attachment);
        let steering = Steering::begin(attachment, io.as_fd())?;
        let (io, capture): (Box<dyn PacketIo>, _) = match &config.capture {
            None => (io, None),
            Some(path) => {
                let tap = Tap::new(io, path, name)?;
                let capture = tap.capture();
                (Box::new(tap), Some(capture))
            }
        };
        Ok(Self {
            info,
            io,
            regions,
            steering,
            capture,
        })
    }
}

/// libxdp says "no such file" where a descriptor is missing, and libbpf many things, so the descriptors are counted beforehand.
fn check_descriptors() -> Result<(), NicError> {
    let taken: Result<Vec<EventFd>, Errno> = (0..DESCRIPTORS).map(|_| EventFd::new()).collect();
    taken.map(drop).map_err(NicError::Descriptors)
}

fn check_link(link: &Link) -> Result<(), NicError> {
    let name = link.name.clone();
    if link.loopback {
        return Err(NicError::Loopback(name));
    }
    if !link.up {
        return Err(NicError::Down(name));
    }
    if link.rx_queues > 1 {
        return Err(NicError::Queues {
            name,
            queues: link.rx_queues,
        });
    }
    Ok(())
}

/// The largest IP packet of the interface, in octets.
fn mtu_of(link: &Link) -> usize {
    link.mtu.min(IP_PACKET_MAX) as usize
}

fn describe(link: Link, attachment: &Attachment) -> NicInfo {
    NicInfo {
        mtu: mtu_of(&link),
        name: link.name,
        index: link.index,
        mac: link.mac,
        mode: attachment.mode(),
        program_found: attachment.found(),
    }
}

/// Which flows the XDP program redirects to us. Dropping it withdraws them, and takes the program off if we attached it.
pub struct Steering {
    attachment: Attachment,
    flows: Vec<SocketAddr>,
}

impl Steering {
    /// Puts the socket into the program's slot and forgets flows that a killed process left there.
    fn begin(attachment: Attachment, socket: BorrowedFd<'_>) -> Result<Self, SteeringError> {
        let maps = attachment.maps();
        maps.flows.clear()?;
        maps.sockets.set(QUEUE, socket)?;
        Ok(Self {
            attachment,
            flows: Vec::new(),
        })
    }

    /// Redirects TCP to this local address and port from now on.
    pub fn add(&mut self, local: SocketAddr) -> Result<(), SteeringError> {
        self.attachment
            .maps()
            .flows
            .insert(local.ip(), local.port())?;
        self.flows.push(local);
        Ok(())
    }

    /// Leaves TCP to this local address and port to the kernel again.
    pub fn remove(&mut self, local: SocketAddr) {
        if let Some(at) = self.flows.iter().position(|&flow| flow == local) {
            self.flows.swap_remove(at);
            self.withdraw(local);
        }
    }

    fn withdraw(&mut self, local: SocketAddr) {
        if let Err(error) = self
            .attachment
            .maps()
            .flows
            .remove(local.ip(), local.port())
        {
            log::warn!("{local} stays in the steering map: {error}");
        }
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        while let Some(flow) = self.flows.pop() {
            self.withdraw(flow);
        }
    }
}
