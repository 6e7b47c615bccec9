//! Opening a network interface for RDMA: what it is, the program on it, its memory, its queue.

mod lacking;
mod queues;
mod sizes;
mod tx_checksum;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::eventfd::EventFd;
use xwarp_bpf::Buffers;

use crate::attach::board::StateBoard;
use crate::attach::{self, AttachError, Attachment, Lasting, XdpMode};
use crate::memory::RegionPool;
use crate::net::{
    self, Interface, InterfaceError, InterfaceWatch, LinkLayer, MacAddr, NetlinkError,
    Notifications, Watched,
};
use crate::packet_io::{Capture, Described, PacketIo, Tap, TapError};
use crate::xdp::busy_poll::{self, BusyPollError, Polling};
use crate::xdp::umem::{self, FRAME_CAPACITY, UmemError, Wanted};
use crate::xdp::{OpenQueueError, Target, XdpIo, ZeroCopy};
pub use lacking::lacking;
use queues::{LINK_HEADER_MAX, Memory, OpenQueues};
pub use queues::{NoSuchQueues, Queues, ServedQueues};
use sizes::Sizes;
pub use tx_checksum::TxChecksum;

/// Entries of a ring that nothing goes through, and frames beside it.
const PROBE_RING: u32 = 64;
/// The largest MTU whose frames fit into a chunk, in bytes.
const MTU_OF_ONE_CHUNK: usize = FRAME_CAPACITY - LINK_HEADER_MAX;
/// File descriptors that an interface takes at once: 11 were counted on Linux 6.18, with those of its engine and of a port. Whoever watches
/// the interface takes 3 more.
const DESCRIPTORS: usize = 15;
/// File descriptors that each further queue takes: its socket; and one for all of an engine.
const DESCRIPTORS_OF_A_QUEUE: usize = 2;
/// File descriptors that each further engine takes: what wakes it, its searches for next hops, and its sockets for ICMP.
const DESCRIPTORS_OF_AN_ENGINE: usize = 6;

/// How an interface is to be opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NicConfig {
    /// The XDP mode that is demanded; `None` takes what is attached, or native before generic.
    pub mode: Option<XdpMode>,
    /// Whether frames are the driver's own buffers, or are copied once.
    pub zero_copy: ZeroCopy,
    /// Receive queues that are served.
    pub queues: Queues,
    /// Engines that share these queues, at most. `None`, the default, is one for each queue, as far as there are processors.
    pub engines: Option<usize>,
    /// Entries of each ring at least, a power of two. A driver with zero copy and larger rings gets more.
    pub ring: u32,
    /// Frames of each engine at least; half of them receive. Each further queue has as many to receive into. A driver with zero copy and
    /// larger rings gets more.
    pub frames: u32,
    /// Bytes of the region area, rounded up to whole pages.
    pub region_bytes: usize,
    /// A pcapng file to write every frame to.
    pub capture: Option<PathBuf>,
    /// Whether completions have the time at which the NIC received what raised them (`WorkCompletion::timestamp`).
    pub timestamps: bool,
    /// How engines learn that frames have arrived. Busy polling changes two settings of the device until the interface is closed. If the
    /// process is killed they stay, unless somebody else puts them back, as the command `xwarp` does.
    pub polling: Polling,
    /// Whether checksums of what is sent are left to the NIC.
    pub tx_checksum: TxChecksum,
}

impl Interface {
    /// Buffers that the driver may need for one frame of the interface.
    pub fn frames(&self) -> Buffers {
        if self.ip_mtu() <= MTU_OF_ONE_CHUNK {
            Buffers::One
        } else {
            Buffers::Many
        }
    }

    /// Refuses an interface that no RNIC can be opened on: its packets are no Ethernet frames.
    ///
    /// # Errors
    ///
    /// [`NicError::Loopback`], [`NicError::NoEthernet`]: it is the loopback interface, or a tunnel.
    pub fn check_frames(&self) -> Result<(), NicError> {
        match self.layer {
            LinkLayer::Ethernet => Ok(()),
            LinkLayer::Loopback => Err(NicError::Loopback(self.name.clone())),
            LinkLayer::Other => Err(NicError::NoEthernet(self.name.clone())),
        }
    }
}

impl Default for NicConfig {
    fn default() -> Self {
        Self {
            mode: None,
            zero_copy: ZeroCopy::Try,
            queues: Queues::All,
            engines: None,
            ring: 2048,
            frames: 4096,
            region_bytes: 64 << 20,
            capture: None,
            timestamps: false,
            polling: Polling::Interrupts,
            tx_checksum: TxChecksum::Auto,
        }
    }
}

/// Setters, one for each field, which tells what it means.
impl NicConfig {
    /// Sets the XDP mode that is demanded. `None` takes what is attached, or native before generic.
    #[must_use]
    pub fn mode(mut self, mode: Option<XdpMode>) -> Self {
        self.mode = mode;
        self
    }

    /// Sets whether frames are the driver's own buffers.
    #[must_use]
    pub fn zero_copy(mut self, zero_copy: ZeroCopy) -> Self {
        self.zero_copy = zero_copy;
        self
    }

    /// Sets which receive queues are served.
    #[must_use]
    pub fn queues(mut self, queues: Queues) -> Self {
        self.queues = queues;
        self
    }

    /// Sets how many engines share the queues at most. `None` is one for each queue, as far as there are processors.
    #[must_use]
    pub fn engines(mut self, engines: Option<usize>) -> Self {
        self.engines = engines;
        self
    }

    /// Sets how many descriptors each ring has at least.
    #[must_use]
    pub fn ring(mut self, ring: u32) -> Self {
        self.ring = ring;
        self
    }

    /// Sets how many frames there are at least.
    #[must_use]
    pub fn frames(mut self, frames: u32) -> Self {
        self.frames = frames;
        self
    }

    /// Sets the size of the region area, in bytes.
    #[must_use]
    pub fn region_bytes(mut self, region_bytes: usize) -> Self {
        self.region_bytes = region_bytes;
        self
    }

    /// Sets the file that every frame is written to.
    #[must_use]
    pub fn capture(mut self, capture: Option<PathBuf>) -> Self {
        self.capture = capture;
        self
    }

    /// Sets whether completions have the time at which the NIC received what raised them.
    #[must_use]
    pub fn timestamps(mut self, timestamps: bool) -> Self {
        self.timestamps = timestamps;
        self
    }

    /// Sets how engines learn that frames have arrived.
    #[must_use]
    pub fn polling(mut self, polling: Polling) -> Self {
        self.polling = polling;
        self
    }

    /// Sets whether checksums of what is sent are left to the NIC.
    #[must_use]
    pub fn tx_checksum(mut self, tx_checksum: TxChecksum) -> Self {
        self.tx_checksum = tx_checksum;
        self
    }
}

/// What was opened, as it really is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NicInfo {
    /// Interface name.
    pub name: String,
    /// Interface index.
    pub index: u32,
    /// Ethernet address.
    pub mac: MacAddr,
    /// Largest IP packet, in bytes.
    pub mtu: usize,
    /// The XDP mode in force.
    pub mode: XdpMode,
    /// Whether frames are the driver's own buffers, or are copied once.
    pub zero_copy: bool,
    /// The receive queues that are served.
    pub queues: ServedQueues,
    /// Engines that share these.
    pub engines: usize,
    /// True if the program was there before us and stays when we go.
    pub program_found: bool,
    /// True if the program has the driver tell each frame's hash and time of arrival, for the capture.
    pub rx_metadata: bool,
    /// How engines learn that frames have arrived.
    pub polling: Polling,
    /// How checksums of what is sent can be left to the NIC; [`TxChecksum::Off`] if they cannot. Each connection finds out whether the NIC
    /// computes them.
    pub tx_checksum: TxChecksum,
}

impl NicInfo {
    /// The engine that serves a receive queue.
    pub fn engine_of(&self, queue: u32) -> Option<usize> {
        let shares = self.queues.shares(self.engines);
        shares.iter().position(|share| share.contains(&queue))
    }
}

impl fmt::Display for NicInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = if self.program_found {
            "found attached"
        } else {
            "attached by us"
        };
        let copying = if self.zero_copy { "zero copy" } else { "copy" };
        write!(
            f,
            "{}  XDP {} ({origin})  AF_XDP {copying}  {}",
            self.name, self.mode, self.queues
        )?;
        if self.queues.served.len() > 1 {
            let plural = if self.engines == 1 { "" } else { "s" };
            write!(f, ", {} engine{plural}", self.engines)?;
        }
        write!(f, "  MTU {}", self.mtu)?;
        if self.rx_metadata {
            f.write_str("  RX metadata")?;
        }
        if self.tx_checksum != TxChecksum::Off {
            f.write_str("  TX checksum tried")?;
        }
        if self.polling == Polling::Busy {
            write!(f, "  {}", self.polling)?;
        }
        Ok(())
    }
}

/// Why an interface could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NicError {
    /// The process has too few file descriptors left.
    #[error(
        "opening a network interface takes {DESCRIPTORS} file descriptors and some for each further queue, and fewer are left ({0}); raise the limit of open files (`ulimit -n`)"
    )]
    Descriptors(io::Error),
    /// The interface could not be looked up.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The interface is down.
    #[error("{0} is down; set it up with `ip link set {0} up`")]
    Down(String),
    /// The interface has no Ethernet frames.
    #[error("{0} is the loopback interface, which has no Ethernet frames; choose another one")]
    Loopback(String),
    /// Its packets have no Ethernet header.
    #[error("{0} carries no Ethernet frames, as tunnels do not; choose another interface")]
    NoEthernet(String),
    /// It has other queues than are to be served.
    #[error(transparent)]
    NoSuchQueues(#[from] NoSuchQueues),
    /// What becomes of it could not be watched.
    #[error("cannot watch the interface")]
    Watch(#[from] NetlinkError),
    /// The XDP program could not be attached or found.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The program is not to be detached from under its user.
    #[error(
        "a process uses the XDP program on {0}: end that process first, or add --force, which ends its connections"
    )]
    InUse(String),
    /// Another process serves some of its queues.
    #[error(
        "a process serves queues of {0} already: end it, or have one process serve all that are wanted"
    )]
    Served(String),
    /// The memory for frames could not be had.
    #[error(transparent)]
    Umem(#[from] UmemError),
    /// The AF_XDP socket of the queue could not be opened.
    #[error(transparent)]
    Queue(#[from] OpenQueueError),
    /// The NIC does not tell when frames arrive, which was demanded.
    #[error(
        "{0} tells no program when frames arrive, so completions would have no times: do without them, or use a NIC and a native mode that have `rx-timestamp` (`xwarp doctor {0}`)"
    )]
    NoTimestamps(String),
    /// The interface cannot be polled, which was demanded.
    #[error(transparent)]
    BusyPoll(#[from] BusyPollError),
    /// The XDP program could not be told what to steer.
    #[error(transparent)]
    Steering(#[from] SteeringError),
    /// The capture file could not be written.
    #[error(transparent)]
    Capture(#[from] TapError),
}

/// The program's maps could not be changed.
#[derive(Debug, thiserror::Error)]
#[error("cannot tell the XDP program what to steer")]
#[non_exhaustive]
pub struct SteeringError(#[from] xwarp_bpf::MapError);

/// An open interface, in the parts that a stack takes over.
pub struct Nic {
    /// What was opened.
    pub info: NicInfo,
    /// Its queues, those of each engine as one. There is one engine at least.
    pub ios: Vec<Box<dyn PacketIo>>,
    /// Its memory for regions.
    pub regions: RegionPool,
    /// Which flows come to it.
    pub steering: Steering,
    /// The file that its frames are written to, if that was asked for.
    pub capture: Option<Capture>,
    /// What becomes of it.
    pub watch: InterfaceWatch,
}

impl Nic {
    /// Opens `name` in the current network namespace. Dropping the parts undoes all of it.
    ///
    /// # Errors
    ///
    /// - [`NicError::Interface`], [`NicError::Down`], [`NicError::Loopback`], [`NicError::NoEthernet`], [`NicError::NoSuchQueues`]: the interface is unknown or does not suit.
    /// - [`NicError::Attach`], [`NicError::Steering`]: the XDP program could not be attached or used.
    /// - [`NicError::Umem`], [`NicError::Queue`]: the kernel refuses the memory or the AF_XDP socket.
    /// - [`NicError::BusyPoll`], [`NicError::NoTimestamps`]: it cannot be polled, or tells no times of arrival, which was demanded.
    /// - [`NicError::Descriptors`], [`NicError::Watch`]: file descriptors are missing, or the interface cannot be watched.
    /// - [`NicError::Capture`]: the capture file cannot be written.
    pub fn open(name: &str, config: &NicConfig) -> Result<Self, NicError> {
        check_descriptors(DESCRIPTORS)?;
        // From now on no change is missed.
        let notifications = Notifications::begin()?;
        let interface = net::interface_by_name(name)?;
        check_interface(&interface)?;
        let queues = served(&interface, config)?;
        let engines = config.engines.unwrap_or_else(processors);
        check_descriptors(descriptors(&queues, engines))?;
        let (memory, regions) = Memory::create(&wanted(&interface, config), &queues, engines)?;
        // The program first: its mode says whether there can be zero copy. A process that has the interface has its program, too.
        let attachment = attach(&interface, config, &queues)?;
        let open = open_queues(&interface, config, attachment.mode(), memory)?;
        let watched = watched(&interface, &attachment);
        let info = describe(interface, queues, config, &attachment, &open);
        let steering = Steering::begin(attachment, &open)?;
        let mut ios = ios_of(open, &info)?;
        let mut capture = None;
        if let Some(path) = &config.capture {
            ios = tapped(ios, capture.insert(Capture::begin(path, name)?));
        }
        Ok(Self {
            info,
            ios,
            regions,
            steering,
            capture,
            watch: InterfaceWatch::new(notifications, watched),
        })
    }
}

/// The queues that are served, which can be polled if that is wanted.
fn served(interface: &Interface, config: &NicConfig) -> Result<ServedQueues, NicError> {
    let queues = config.queues.of(interface)?;
    if config.polling == Polling::Busy {
        busy_poll::check(interface, queues.served.clone())?;
    }
    if config.timestamps && !net::tells_arrivals(interface)? {
        return Err(NicError::NoTimestamps(interface.name.clone()));
    }
    Ok(queues)
}

/// What is watched of an interface.
fn watched(interface: &Interface, attachment: &Attachment) -> Watched {
    Watched {
        index: interface.index,
        name: interface.name.clone(),
        program: attachment.program_id(),
        by_link: !attachment.found(),
    }
}

/// Attaches the program, or finds it. One that was found may have a user at queues that are not to be served, whose flows it steers.
fn attach(
    interface: &Interface,
    config: &NicConfig,
    queues: &ServedQueues,
) -> Result<Attachment, NicError> {
    let (index, name, frames) = (interface.index, &interface.name, interface.frames());
    // Asking the driver costs time for each frame, so only somebody who has room for what it tells does.
    let describes = config.capture.is_some() || config.timestamps;
    let mode = attach::for_kind(interface.kind.as_deref(), name, config.mode)?;
    let attachment = Attachment::open(index, name, mode, frames, describes)?;
    if config.timestamps && !attachment.describes() {
        return Err(NicError::NoTimestamps(name.clone()));
    }
    if attachment.found() && queues.is_part() {
        claim(interface).map_err(|error| match error {
            NicError::InUse(name) => NicError::Served(name),
            other => other,
        })?;
    }
    Ok(attachment)
}

/// Binds the queues, beneath a program that is attached in this mode.
fn open_queues(
    interface: &Interface,
    config: &NicConfig,
    mode: XdpMode,
    memory: Memory,
) -> Result<OpenQueues, NicError> {
    let mut open = OpenQueues::open(interface, mode, config.zero_copy, memory)?;
    if config.polling == Polling::Busy {
        open.poll_busily(interface)?;
    }
    Ok(open)
}

/// The sizes of its rings. Those of the driver count where frames may be its own buffers.
fn sizes(interface: &Interface, config: &NicConfig) -> Sizes {
    let copied = config.zero_copy == ZeroCopy::Never || config.mode == Some(XdpMode::Generic);
    let driver = if copied {
        None
    } else {
        net::zero_copy_rings(interface.index).unwrap_or_else(|error| {
            log::warn!(
                "the kernel does not tell the rings of {}, so xwarp's may be too small for them: {error}",
                interface.name
            );
            None
        })
    };
    Sizes::new(config.ring, config.frames / 2, driver)
}

/// The memory of the queue that sends.
fn wanted(interface: &Interface, config: &NicConfig) -> Wanted {
    let sizes = sizes(interface, config);
    Wanted {
        receive: sizes.receive,
        transmit: config.frames - config.frames / 2,
        frame_bytes: interface.ip_mtu() + LINK_HEADER_MAX,
        ring: sizes.ring,
        posted: sizes.posted,
        region_bytes: config.region_bytes,
        node: net::memory_node(interface),
        metadata: config.tx_checksum.metadata(interface),
    }
}

/// The queues, those of each engine as one, whose frames have metadata if the program writes that.
fn ios_of(open: OpenQueues, info: &NicInfo) -> Result<Vec<Box<dyn PacketIo>>, NicError> {
    let ios = open.into_ios().map_err(NicError::Descriptors)?;
    if !info.rx_metadata {
        return Ok(ios);
    }
    let described = |io| Box::new(Described::new(io)) as Box<dyn PacketIo>;
    Ok(ios.into_iter().map(described).collect())
}

/// The queues, with a capture of their frames.
fn tapped(ios: Vec<Box<dyn PacketIo>>, capture: &Capture) -> Vec<Box<dyn PacketIo>> {
    let tap = |io| Box::new(Tap::new(io, capture)) as Box<dyn PacketIo>;
    ios.into_iter().map(tap).collect()
}

/// Processors that this process may use.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Descriptors that are taken at most.
fn descriptors(queues: &ServedQueues, engines: usize) -> usize {
    let further = queues.served.len() - 1;
    let engines = further.min(engines.saturating_sub(1));
    DESCRIPTORS + DESCRIPTORS_OF_A_QUEUE * further + DESCRIPTORS_OF_AN_ENGINE * engines
}

/// File descriptors that opening all queues of an interface takes, of as many engines as there are
/// processors.
///
/// # Errors
///
/// [`NicError::NoSuchQueues`]: the interface has no queue, or more than can be served.
pub fn descriptors_needed(interface: &Interface) -> Result<usize, NicError> {
    Ok(descriptors(&Queues::All.of(interface)?, processors()))
}

/// Where a descriptor is missing, libbpf says many things, so the descriptors are counted beforehand.
fn check_descriptors(wanted: usize) -> Result<(), NicError> {
    let taken: Result<Vec<EventFd>, Errno> = (0..wanted).map(|_| EventFd::new()).collect();
    taken
        .map(drop)
        .map_err(|errno| NicError::Descriptors(errno.into()))
}

/// Attaches our program to an interface, where it stays, and says in which mode it runs; `None` tries native and then generic mode.
///
/// # Errors
///
/// - [`NicError::Loopback`], [`NicError::NoEthernet`]: it is the loopback interface, or a tunnel.
/// - [`NicError::Attach`]: a program is there already, or the kernel refuses this one.
pub fn attach_permanently(
    interface: &Interface,
    mode: Option<XdpMode>,
) -> Result<XdpMode, NicError> {
    interface.check_frames()?;
    let (index, name, frames) = (interface.index, &interface.name, interface.frames());
    let mode = attach::for_kind(interface.kind.as_deref(), name, mode)?;
    Ok(attach::attach_permanently(index, name, mode, frames)?)
}

/// Detaches our program from an interface, if it was attached to stay. Unless by `force`, not while a process uses it.
///
/// # Errors
///
/// - [`NicError::InUse`]: a process uses the program, and `force` is not set.
/// - [`NicError::Attach`]: there is no program of ours, it is not attached to stay, or the kernel refuses.
/// - [`NicError::Umem`], [`NicError::Queue`]: whether a process uses it could not be found out.
pub fn detach(interface: &Interface, force: bool) -> Result<(), NicError> {
    let program = Lasting::find(interface.index, &interface.name)?;
    // Until the end, so that nobody begins to use it meanwhile.
    let _claim = if force { Vec::new() } else { claim(interface)? };
    Ok(program.detach()?)
}

/// The queues of an interface, if nobody has one of them: every user of the program has one at least.
fn claim(interface: &Interface) -> Result<Vec<XdpIo>, NicError> {
    let mut claimed = Vec::new();
    for queue in 0..interface.rx_queues {
        match open_probe(&probe(interface, queue, ZeroCopy::Never)) {
            Ok(open) => claimed.push(open),
            Err(NicError::Queue(OpenQueueError::Busy { .. })) => {
                return Err(NicError::InUse(interface.name.clone()));
            }
            Err(error) => log::debug!(
                "whether queue {queue} of {} is in use cannot be told: {error}",
                interface.name
            ),
        }
    }
    Ok(claimed)
}

/// A queue that is opened to find something out.
fn probe(interface: &Interface, queue: u32, zero_copy: ZeroCopy) -> Target<'_> {
    Target {
        zero_copy,
        interface: &interface.name,
        index: interface.index,
        queue,
        frames: interface.frames(),
        hears_icmp: false,
    }
}

/// Whether the driver has zero copy for frames of `interface`, found out by binding a queue for a moment.
///
/// # Errors
///
/// - [`NicError::Umem`]: the kernel refuses the memory.
/// - [`NicError::Queue`]: a process uses the queue, this one lacks privileges, or the kernel refuses for another reason.
pub fn try_zero_copy(interface: &Interface) -> Result<bool, NicError> {
    match open_probe(&probe(interface, 0, ZeroCopy::Demand)) {
        Ok(_) => Ok(true),
        Err(NicError::Queue(OpenQueueError::NoZeroCopy { .. })) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A queue that nothing goes through.
fn open_probe(target: &Target<'_>) -> Result<XdpIo, NicError> {
    let (memory, _) = umem::create(&Wanted {
        receive: PROBE_RING / 2,
        transmit: PROBE_RING / 2,
        frame_bytes: FRAME_CAPACITY,
        ring: PROBE_RING,
        posted: 0,
        region_bytes: 0,
        node: None,
        metadata: None,
    })?;
    Ok(XdpIo::open(target, FRAME_CAPACITY, memory)?)
}

fn check_interface(interface: &Interface) -> Result<(), NicError> {
    let name = interface.name.clone();
    interface.check_frames()?;
    if !interface.up {
        return Err(NicError::Down(name));
    }
    Ok(())
}

fn describe(
    interface: Interface,
    queues: ServedQueues,
    config: &NicConfig,
    attachment: &Attachment,
    open: &OpenQueues,
) -> NicInfo {
    NicInfo {
        zero_copy: open.have_zero_copy(),
        queues,
        engines: open.firsts().len(),
        mtu: interface.ip_mtu(),
        name: interface.name,
        index: interface.index,
        mac: interface.mac,
        mode: attachment.mode(),
        program_found: attachment.found(),
        rx_metadata: attachment.describes(),
        polling: open.polling(),
        tx_checksum: if open.offer_checksums() {
            config.tx_checksum
        } else {
            TxChecksum::Off
        },
    }
}

/// Which flows the XDP program redirects to us. Dropping it withdraws them, and takes the program off if we attached it.
pub struct Steering {
    attachment: Attachment,
    /// The first queue that has a socket.
    first: u32,
    flows: Vec<SocketAddr>,
    board: Arc<StateBoard>,
}

impl Steering {
    /// Puts the sockets into the program's slots and forgets flows that a killed process left there.
    fn begin(attachment: Attachment, open: &OpenQueues) -> Result<Self, SteeringError> {
        let maps = attachment.maps();
        maps.flows.clear()?;
        for (queue, socket) in open.sockets() {
            maps.sockets.set(queue, socket)?;
        }
        let firsts = open.firsts();
        Ok(Self {
            first: firsts.first().copied().unwrap_or_default(),
            board: Arc::new(StateBoard::begin(&maps.board, firsts)?),
            attachment,
            flows: Vec::new(),
        })
    }

    /// Where engines of the interface show their state to other processes.
    pub fn board(&self) -> Arc<StateBoard> {
        Arc::clone(&self.board)
    }

    /// Redirects TCP to this local address and port from now on.
    ///
    /// # Errors
    ///
    /// [`SteeringError`]: the program's table of flows is full, or the kernel refuses.
    pub fn add(&mut self, local: SocketAddr) -> Result<(), SteeringError> {
        self.attachment
            .maps()
            .flows
            .insert(local.ip(), local.port(), self.first)?;
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
