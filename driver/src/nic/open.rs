//! Opening an interface: the program on it, its memory, its queues.

use super::config::NicConfig;
use super::descriptors::{check_descriptors, descriptors, processors};
use super::error::{DESCRIPTORS, NicError};
use super::info::NicInfo;
use super::probe::claim;
use super::queues::{LINK_HEADER_MAX, Memory, OpenQueues, ServedQueues};
use super::sizes::Sizes;
use super::steering::Steering;
use super::tx_checksum::TxChecksum;
use crate::attach::{self, Attachment, XdpMode};
use crate::memory::RegionPool;
use crate::net::{self, Interface, InterfaceWatch, Notifications, Watched};
use crate::packet_io::{Capture, PacketIo, Tap, WithRxMetadata};
use crate::xdp::busy_poll;
use crate::xdp::umem::UmemSpec;
use crate::xdp::{Polling, ZeroCopy};

/// An open interface, in parts for a stack.
pub struct Nic {
    /// Attributes of the open interface.
    pub info: NicInfo,
    /// Its queues, joined per engine. There is at least one engine.
    pub ios: Vec<Box<dyn PacketIo>>,
    /// Its memory for regions.
    pub regions: RegionPool,
    /// The flows that the XDP program redirects to it.
    pub steering: Steering,
    /// The capture file of its frames, if one was requested.
    pub capture: Option<Capture>,
    /// Watcher of its changes.
    pub watch: InterfaceWatch,
}

impl Nic {
    /// Opens `name` in the current network namespace. Dropping the parts undoes all of it.
    ///
    /// # Errors
    ///
    /// - [`NicError::Interface`], [`NicError::Down`], [`NicError::Loopback`],
    ///   [`NicError::NoEthernet`], [`NicError::NoSuchQueues`]: the interface is unknown or does not
    ///   suit.
    /// - [`NicError::Attach`], [`NicError::Steering`]: the XDP program could not be attached or
    ///   used.
    /// - [`NicError::Umem`], [`NicError::Queue`]: the kernel refuses the memory or the AF_XDP
    ///   socket.
    /// - [`NicError::BusyPoll`], [`NicError::NoTimestamps`]: it cannot be polled, or reports no
    ///   times of arrival, which was demanded.
    /// - [`NicError::Descriptors`], [`NicError::Watch`]: file descriptors are missing, or the
    ///   interface cannot be watched.
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
        // The program is attached first: its mode determines whether zero copy is possible. A
        // process that uses the interface has its program, too.
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

/// The queues to serve. Fails if they cannot be polled although that is required.
fn served(interface: &Interface, config: &NicConfig) -> Result<ServedQueues, NicError> {
    let queues = config.queues.of(interface)?;
    if config.polling == Polling::Busy {
        busy_poll::check(interface, queues.served.clone())?;
    }
    if config.timestamps && !net::reports_arrivals(interface)? {
        return Err(NicError::NoTimestamps(interface.name.clone()));
    }
    Ok(queues)
}

/// The attributes of an interface that are watched.
fn watched(interface: &Interface, attachment: &Attachment) -> Watched {
    Watched {
        index: interface.index,
        name: interface.name.clone(),
        program: attachment.program_id(),
        by_link: !attachment.found(),
    }
}

/// Attaches the program, or finds it. A found program may have another user, on queues that are not
/// served here, whose flows it steers.
fn attach(
    interface: &Interface,
    config: &NicConfig,
    queues: &ServedQueues,
) -> Result<Attachment, NicError> {
    let (index, name, frames) = (interface.index, &interface.name, interface.frames());
    // Asking the driver costs time for each frame, so it is asked only if the answer is used.
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

/// Binds the queues, with a program that is attached in this mode.
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

/// Sizes of the rings. The driver's rings matter if frames may be in its own buffers.
fn sizes(interface: &Interface, config: &NicConfig) -> Sizes {
    let copied = config.zero_copy == ZeroCopy::Never || config.mode == Some(XdpMode::Generic);
    let driver = if copied {
        None
    } else {
        net::zero_copy_rings(interface.index).unwrap_or_else(|error| {
            log::warn!(
                "the kernel does not report the rings of {}, so xwarp's may be too small for them: {error}",
                interface.name
            );
            None
        })
    };
    Sizes::new(config.ring, config.frames / 2, driver)
}

/// The memory of the queue that sends.
fn wanted(interface: &Interface, config: &NicConfig) -> UmemSpec {
    let sizes = sizes(interface, config);
    UmemSpec {
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
    let described = |io| Box::new(WithRxMetadata::new(io)) as Box<dyn PacketIo>;
    Ok(ios.into_iter().map(described).collect())
}

/// The queues, with a capture of their frames.
fn tapped(ios: Vec<Box<dyn PacketIo>>, capture: &Capture) -> Vec<Box<dyn PacketIo>> {
    let tap = |io| Box::new(Tap::new(io, capture)) as Box<dyn PacketIo>;
    ios.into_iter().map(tap).collect()
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
