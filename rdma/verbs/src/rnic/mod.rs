//! The RNIC: one network interface, opened for RDMA (verbs draft §5.1, §9.2.1).
//!
//! Contains its configuration, its asynchronous events, and the diagnosis for tests.

mod assembly;
pub(crate) mod async_events;
pub(crate) mod config;
mod diagnosis;
#[cfg(feature = "fault-injection")]
mod fault_injection;
pub(crate) mod network;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use xwarp_driver::{Capture, NicInfo, PacketIo, RegionAreaFull, RegionPool, SharedBytes, aside};
use xwarp_tcp::{Instant, StackConfig};

use crate::cm::bound::BoundPort;
use crate::cm::listener::Listener;
use crate::cm::streaming::{ConnectingStream, LlpStream, StreamListener};
use crate::cq::CompletionQueue;
use crate::cq::channel::CompletionChannel;
use crate::error::{OpenError, WaitError};
use crate::pd::ProtectionDomain;
use crate::runtime::control::Control;
use crate::runtime::in_handler::Guarded;
use xwarp_rnic::model::{
    AsyncEvent, ConnectError, CqId, CreateError, EventContext, HandlerError, HandlerId, Host,
    ListenError, PblMode, RnicAttributes, RnicCounters, RnicUnavailable,
};
use xwarp_rnic::queues::EventTarget;
use xwarp_rnic::tables::Handler;

use assembly::{Opened, assemble};
use async_events::AsyncEvents;
use config::RnicConfig;
use network::{Network, SwitchInfo};

/// The main name of the interface that is called `name`, which may be an alternative name (`ip link
/// property add ... altname`). `None` if there is no such interface, or the kernel does not answer.
/// [`Rnic::open`] takes either name.
pub fn interface_name(name: &str) -> Option<String> {
    let found = xwarp_driver::net::interface_by_name(name);
    found.ok().map(|interface| interface.name)
}

/// An open RNIC. It closes by [`close`](Self::close), or when it and all objects made from it are
/// dropped.
pub struct Rnic {
    control: Arc<Control>,
    network: Network,
    backlog: usize,
    pbl_mode: PblMode,
    capture: Option<Capture>,
    timestamps: bool,
}

impl Rnic {
    /// Open RNIC (verbs draft §9.2.1.1): opens a network interface in the network namespace of the
    /// calling thread, which needs root, or the device of a software switch, which does not
    /// ([`Attach`](crate::config::Attach)).
    ///
    /// A thread of the library opens the interface, so the caller's stack may be as small as
    /// `PTHREAD_STACK_MIN`, and signals may interrupt the caller at any time.
    ///
    /// # Errors
    ///
    /// - [`OpenError::Nic`]: the interface is unknown, down, in use or not suitable, or the process
    ///   lacks rights.
    /// - [`OpenError::Switch`]: the switch is not there, refuses, or has another device.
    /// - [`OpenError::System`]: the host has no thread, file descriptor or memory left.
    /// - [`OpenError::Config`]: an option is invalid.
    pub fn open(interface: &str, config: &RnicConfig) -> Result<Self, OpenError> {
        config.check()?;
        aside("xwarp-open", || Self::open_here(interface, config))?
    }

    fn open_here(interface: &str, config: &RnicConfig) -> Result<Self, OpenError> {
        let opened = match config.attach.service() {
            Some(path) => Opened::on_switch(&path, Some(interface), config)?,
            None => Opened::on_interface(interface, config)?,
        };
        Self::assemble(opened, config)
    }

    /// An RNIC over any packet interface and host, for tests and simulation.
    ///
    /// # Errors
    ///
    /// - [`OpenError::System`]: the host has no thread, file descriptor or memory left.
    /// - [`OpenError::Config`]: an option is invalid.
    pub fn with_io(
        io: Box<dyn PacketIo>,
        stack: &StackConfig,
        host: Arc<dyn Host>,
        regions: RegionPool,
        config: &RnicConfig,
    ) -> Result<Self, OpenError> {
        Self::with_ios(vec![io], stack, host, regions, config)
    }

    /// An RNIC over several queues of any packet interface, for tests and simulation. Each queue
    /// has its own engine. Frames of a connection arrive at the queue that received or sent its
    /// first frame. [`Progress::Inline`](crate::config::Progress::Inline) and
    /// [`Progress::Assisted`](crate::config::Progress::Assisted) have one engine.
    /// # Errors
    ///
    /// - [`OpenError::System`]: there is no queue, or more than the progress mode has engines, or
    ///   the host has no thread, file descriptor or memory left.
    /// - [`OpenError::Config`]: an option is invalid.
    pub fn with_ios(
        ios: Vec<Box<dyn PacketIo>>,
        stack: &StackConfig,
        host: Arc<dyn Host>,
        regions: RegionPool,
        config: &RnicConfig,
    ) -> Result<Self, OpenError> {
        config.check()?;
        Self::assemble(Opened::with_ios(ios, stack, host, regions)?, config)
    }

    fn assemble(mut opened: Opened, config: &RnicConfig) -> Result<Self, OpenError> {
        let network = std::mem::take(&mut opened.network);
        let capture = opened.capture.take();
        Ok(Self {
            control: assemble(opened, config)?,
            network,
            backlog: config.backlog,
            pbl_mode: config.pbl_mode,
            capture,
            timestamps: config.nic.timestamps,
        })
    }

    #[cfg(any(feature = "fault-injection", feature = "tokio"))]
    pub(crate) fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Whether completions may have timestamps: the configuration requested them
    /// ([`NicConfig::timestamps`](crate::config::NicConfig)).
    pub fn has_timestamps(&self) -> bool {
        self.timestamps
    }

    /// The interface and the XDP mode in effect; `None` without a network interface.
    pub fn info(&self) -> Option<&NicInfo> {
        match &self.network {
            Network::Interface(info) => Some(info),
            Network::Switch(_) | Network::Given => None,
        }
    }

    /// The device of the software switch; `None` without a switch.
    pub fn switch(&self) -> Option<&SwitchInfo> {
        match &self.network {
            Network::Switch(info) => Some(info),
            Network::Interface(_) | Network::Given => None,
        }
    }

    /// The capture file of [`NicConfig::capture`](crate::config::NicConfig::capture). To learn
    /// whether it has every frame, [`close`](Self::close) the RNIC, then call [`Capture::finish`].
    pub fn capture(&self) -> Option<&Capture> {
        self.capture.as_ref()
    }

    /// Query RNIC (verbs draft §9.2.1.2).
    ///
    /// # Errors
    ///
    /// [`RnicUnavailable::Closed`]: the RNIC was closed.
    pub fn query(&self) -> Result<RnicAttributes, RnicUnavailable> {
        self.control.check_open()?;
        let max_events = self.control.events().bound();
        Ok(RnicAttributes::new(self.pbl_mode, max_events))
    }

    /// Close RNIC (verbs draft §9.2.1.3): resets all connections and frees all objects of the RNIC.
    /// Handles of these objects may remain; verbs on them fail from then on.
    ///
    /// # Errors
    ///
    /// [`RnicUnavailable`]: it was closed already, or its handler made the call.
    pub fn close(&self) -> Result<(), RnicUnavailable> {
        self.control.close()
    }

    /// Allocate PD (verbs draft §9.2.2.1): a new protection domain.
    ///
    /// # Errors
    ///
    /// - [`CreateError::Capability`]: the RNIC has its maximum number of domains (verbs draft
    ///   §9.5.1).
    /// - [`CreateError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn allocate_pd(&self) -> Result<ProtectionDomain, CreateError> {
        ProtectionDomain::new(&self.control)
    }

    /// Sets the numbers of queue pairs that are created from now on (24 bits, from 2 on). All, unless
    /// set. RNICs that share an address may have ranges of their own, so that a number names one
    /// queue pair of the address. A number is reused after all others of the range.
    ///
    /// # Errors
    ///
    /// - [`CreateError::Capability`]: these are other numbers, or no more of them than the RNIC can
    ///   have queue pairs.
    /// - [`CreateError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn set_qp_numbers(&self, numbers: Range<u32>) -> Result<(), CreateError> {
        let set = self
            .control
            .call(|engine| engine.stags().set_qp_numbers(numbers))?;
        set.map_err(CreateError::Capability)
    }

    /// Create CQ (verbs draft §9.2.3.1): a completion queue with room for `entries` completions. It
    /// should have room for all work that can be outstanding.
    ///
    /// # Errors
    ///
    /// - [`CreateError::Capability`]: `entries` is 0 or more than a queue can have, or there are as
    ///   many queues as the RNIC can have (verbs draft §9.5.1).
    /// - [`CreateError::Memory`], [`CreateError::System`]: the host has no memory or no file
    ///   descriptor left.
    /// - [`CreateError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn create_cq(&self, entries: usize) -> Result<CompletionQueue, CreateError> {
        CompletionQueue::create(&self.control, entries, &EventTarget::None)
    }

    /// Create CQ with a handler (verbs draft §9.2.3.1): the handler is called with the queue's
    /// events. In addition, a thread may wait for the queue.
    ///
    /// # Errors
    ///
    /// - [`CreateError::Handler`]: there is no such handler.
    /// - [`CreateError::Capability`]: `entries` is 0 or more than a queue can have, or there are as
    ///   many queues as the RNIC can have (verbs draft §9.5.1).
    /// - [`CreateError::Memory`], [`CreateError::System`]: the host has no memory or no file
    ///   descriptor left.
    /// - [`CreateError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn create_cq_with(
        &self,
        entries: usize,
        handler: HandlerId,
    ) -> Result<CompletionQueue, CreateError> {
        CompletionQueue::create(&self.control, entries, &EventTarget::Handler(handler))
    }

    /// Creates a completion channel for completion queues. It takes a file descriptor.
    ///
    /// # Errors
    ///
    /// - [`CreateError::System`]: no file descriptor is left.
    /// - [`CreateError::Unavailable`]: the RNIC was closed.
    pub fn create_completion_channel(&self) -> Result<CompletionChannel, CreateError> {
        CompletionChannel::new(&self.control)
    }

    /// Creates a completion queue with room for `entries` completions, whose events go to a
    /// channel. In addition, a thread may wait for the queue itself.
    ///
    /// # Errors
    ///
    /// - [`CreateError::InvalidChannel`]: the channel belongs to another RNIC.
    /// - [`CreateError::Capability`]: `entries` is 0 or more than a queue can have, or there are as
    ///   many queues as the RNIC can have (verbs draft §9.5.1).
    /// - [`CreateError::Memory`], [`CreateError::System`]: the host has no memory or no file
    ///   descriptor left.
    /// - [`CreateError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn create_cq_on(
        &self,
        channel: &CompletionChannel,
        entries: usize,
    ) -> Result<CompletionQueue, CreateError> {
        if !channel.is_of(&self.control) {
            return Err(CreateError::InvalidChannel);
        }
        let target = EventTarget::Channel(Arc::clone(channel.notices()));
        CompletionQueue::create(&self.control, entries, &target)
    }

    /// Set Completion Event Handler (verbs draft §9.4.1): registers a handler, which completion
    /// queues can name when they are created. The handler is called once per arming, with the queue
    /// that has the completion that [`CompletionQueue::arm`] requested.
    ///
    /// The thread that runs the engine calls it, in the middle of a step. In the handler, a verb of
    /// the same RNIC fails with [`RnicUnavailable::InHandler`], and objects that it drops are
    /// released after the step. It should only notify another thread. A [`CompletionChannel`] does
    /// that without a handler.
    ///
    /// # Errors
    ///
    /// - [`HandlerError::TooMany`]: the RNIC has its maximum number of handlers.
    /// - [`HandlerError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn add_completion_handler(
        &self,
        handler: impl FnMut(CqId) + Send + 'static,
    ) -> Result<HandlerId, HandlerError> {
        let handler = self.completion_handler(handler);
        (self.control).with_handlers(|handlers| handlers.add(handler))
    }

    /// Set Completion Event Handler (verbs draft §9.4.1): replaces a handler, for all completion
    /// queues that have it.
    ///
    /// # Errors
    ///
    /// - [`HandlerError::Unknown`]: there is no such handler.
    /// - [`HandlerError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn replace_completion_handler(
        &self,
        id: HandlerId,
        handler: impl FnMut(CqId) + Send + 'static,
    ) -> Result<(), HandlerError> {
        let handler = self.completion_handler(handler);
        (self.control).with_handlers(|handlers| handlers.replace(id, handler))
    }

    fn completion_handler(&self, handler: impl FnMut(CqId) + Send + 'static) -> Handler {
        let mut guarded = Guarded::new(self.control.id(), handler);
        Box::new(move |cq| guarded.run(|handler| handler(cq)))
    }

    /// Set Completion Event Handler (verbs draft §9.4.1): clears a handler. Completion queues that
    /// have it stay, and their events are discarded.
    ///
    /// # Errors
    ///
    /// - [`HandlerError::Unknown`]: there is no such handler.
    /// - [`HandlerError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn clear_completion_handler(&self, id: HandlerId) -> Result<(), HandlerError> {
        (self.control).with_handlers(|handlers| handlers.clear(id))
    }

    /// Kind of physical buffer lists that the RNIC was opened with (verbs draft §7.6.2).
    pub fn pbl_mode(&self) -> PblMode {
        self.pbl_mode
    }

    /// Allocates zeroed memory of `len` bytes from the region area, to be registered. It is freed
    /// when its last handle is dropped.
    ///
    /// # Errors
    ///
    /// [`RegionAreaFull`]: the region area has no free piece of that length.
    /// [`NicConfig::region_bytes`](crate::config::NicConfig::region_bytes) is its size.
    pub fn allocate_memory(&self, len: usize) -> Result<SharedBytes, RegionAreaFull> {
        self.control.regions().allocate(len)
    }

    /// The physical address of memory of the region area (verbs draft §7.6), which physical buffer
    /// lists and, with `STag` 0, Tagged Offsets of this RNIC use. `None` for memory outside of the
    /// region area.
    pub fn physical_address(&self, memory: &SharedBytes) -> Option<u64> {
        self.control.regions().address_of(memory)
    }

    /// Binds a port, to be listened on by [`BoundPort::listen`]. An unspecified address (`0.0.0.0`,
    /// `::`) stands for every address of that family that the interface has, and port 0 for a free
    /// port. A port with connections of a former listener can be bound.
    ///
    /// # Errors
    ///
    /// - [`ListenError::NotOurs`]: the address is none of the interface's.
    /// - [`ListenError::Host`]: the port is in use, also by a listener of this RNIC, or privileged,
    ///   or the host could not be asked.
    /// - [`ListenError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn bind(&self, local: SocketAddr) -> Result<BoundPort, ListenError> {
        BoundPort::bind(&self.control, local, self.backlog)
    }

    /// Listens for connections as MPA responder (RFC 5044 §7.1). An unspecified address (`0.0.0.0`,
    /// `::`) stands for every address of that family that the interface has or gets later. Port 0
    /// stands for a free port: [`Listener::addresses`] returns it. An address that was removed is
    /// listened on again once the interface has it again.
    ///
    /// # Errors
    ///
    /// - [`ListenError::NotOurs`]: the address is none of the interface's.
    /// - [`ListenError::Host`]: the port is in use, also by this RNIC, or privileged, or the host
    ///   could not be asked.
    /// - [`ListenError::Taken`]: the host returned a port that this RNIC already listens on.
    /// - [`ListenError::System`]: no file descriptor is left.
    /// - [`ListenError::Failed`]: the RNIC has failed.
    /// - [`ListenError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn listen(&self, local: SocketAddr) -> Result<Listener, ListenError> {
        self.bind(local)?.listen()
    }

    /// Listens for connections that begin in streaming mode, at addresses as
    /// [`listen`](Self::listen) takes them. Each is a stream of raw bytes until Modify QP hands it
    /// over to a queue pair (verbs draft §6.6.1). At most [`RnicConfig::backlog`] wait to be
    /// accepted; further ones are reset.
    ///
    /// # Errors
    ///
    /// - [`ListenError::NotOurs`]: the address is none of the interface's.
    /// - [`ListenError::Host`]: the port is in use, also by this RNIC, or privileged, or the host
    ///   could not be asked.
    /// - [`ListenError::Taken`]: the host returned a port that this RNIC already listens on.
    /// - [`ListenError::System`]: no file descriptor is left.
    /// - [`ListenError::Failed`]: the RNIC has failed.
    /// - [`ListenError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn listen_streams(&self, local: SocketAddr) -> Result<StreamListener, ListenError> {
        self.bind(local)?.listen_for_streams()
    }

    /// Begins to make a connection in streaming mode (verbs draft §6.6.1);
    /// [`LlpStream::wait_established`] waits for it. Waits up to `timeout` for the host to find the
    /// path.
    ///
    /// # Errors
    ///
    /// - [`ConnectError::Host`]: no route leads there, the next hop does not answer, or no local
    ///   port is free.
    /// - [`ConnectError::Resources`]: the host has no file descriptor left, or TCP no connection.
    /// - [`ConnectError::Failed`]: the RNIC has failed.
    /// - [`ConnectError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn connect_stream(
        &self,
        remote: SocketAddr,
        timeout: Duration,
    ) -> Result<LlpStream, ConnectError> {
        self.begin_connect_stream(remote, timeout)?.wait()
    }

    /// Begins to make a connection in streaming mode (verbs draft §6.6.1), and returns at once. The
    /// host searches for the path up to `timeout`.
    /// [`ConnectingStream`](crate::stream::ConnectingStream) returns the stream later.
    ///
    /// # Errors
    ///
    /// - [`ConnectError::Host`]: no route leads there over this interface, or no local port is
    ///   free.
    /// - [`ConnectError::Resources`]: the host has no file descriptor left, or TCP no connection.
    /// - [`ConnectError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn begin_connect_stream(
        &self,
        remote: SocketAddr,
        timeout: Duration,
    ) -> Result<ConnectingStream, ConnectError> {
        ConnectingStream::begin(&self.control, remote, timeout)
    }

    /// Makes a connection from a port of `address`, one of the RNIC's, to itself (RFC 9293 §3.5,
    /// figure 7): it receives what it sends. A queue pair to which
    /// [`modify`](crate::QueuePair::modify) hands it over is its own peer. No frame of it leaves
    /// the host. [`LlpStream::wait_established`] waits for it.
    ///
    /// ```no_run
    /// use std::net::IpAddr;
    /// use std::time::Duration;
    /// use xwarp::attr::QpChange;
    /// use xwarp::stream::Framing;
    /// use xwarp::{QueuePair, Rnic};
    ///
    /// fn loop_back(rnic: &Rnic, qp: &mut QueuePair) -> Result<(), Box<dyn std::error::Error>> {
    ///     let stream = rnic.connect_loopback(IpAddr::from([10, 0, 0, 1]))?;
    ///     stream.wait_established(Duration::from_secs(1))?;
    ///     qp.modify(QpChange::start(&stream, Framing::default()))?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`ConnectError::Host`]: the address is none of the RNIC's, or no local port is free.
    /// - [`ConnectError::Resources`]: the host has no file descriptor left, or TCP no connection.
    /// - [`ConnectError::Failed`]: the RNIC has failed.
    /// - [`ConnectError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn connect_loopback(&self, address: IpAddr) -> Result<LlpStream, ConnectError> {
        ConnectingStream::begin_loopback(&self.control, address)?.wait()
    }

    /// Set Asynchronous Event Handler (verbs draft §8.3.3, §9.4.2): `handler` replaces the previous
    /// handler and is called with each later event.
    ///
    /// Each event is reported once. A handler receives every event that happens while it is set.
    /// Events without a handler, also those before this call, wait for [`events`](Self::events), at
    /// most [`RnicConfig::max_events`] of them. A handler that panics is cleared.
    ///
    /// The thread that runs the engine calls it, after the step or verb in which the event
    /// happened. In the handler, a verb of the same RNIC fails with [`RnicUnavailable::InHandler`],
    /// and objects that it drops are released afterwards. It can query a queue pair by its
    /// [`EventContext`]. For all other work it should notify another thread, by a channel for
    /// example.
    ///
    /// # Errors
    ///
    /// [`RnicUnavailable`]: the RNIC was closed, or its handler made the call.
    pub fn set_event_handler(
        &self,
        handler: impl FnMut(&EventContext<'_>, &AsyncEvent) + Send + 'static,
    ) -> Result<(), RnicUnavailable> {
        let mut guarded = Guarded::new(self.control.id(), handler);
        let handler = move |context: &EventContext<'_>, event: &AsyncEvent| {
            guarded.run(|handler| handler(context, event));
        };
        (self.control).call(|engine| engine.set_event_handler(Some(Box::new(handler))))
    }

    /// Set Asynchronous Event Handler (verbs draft §9.4.2): clears the handler. From now on events
    /// wait for [`events`](Self::events).
    ///
    /// # Errors
    ///
    /// [`RnicUnavailable`]: the RNIC was closed, or its handler made the call.
    pub fn clear_event_handler(&self) -> Result<(), RnicUnavailable> {
        self.control.call(|engine| engine.set_event_handler(None))
    }

    /// The asynchronous events (verbs draft §8.3.3) that happen while there is no handler.
    pub fn events(&self) -> AsyncEvents {
        AsyncEvents::new(&self.control)
    }

    /// Counters of the interface, of TCP and of the RDMA layers, since the RNIC was opened.
    ///
    /// # Errors
    ///
    /// [`RnicUnavailable`]: the RNIC was closed, or its handler made the call.
    pub fn counters(&self) -> Result<RnicCounters, RnicUnavailable> {
        let all = self.control.call_each(|engine| engine.counters())?;
        Ok(RnicCounters::total(&all))
    }

    /// Runs an inline engine once, and arms the RNIC's descriptor: it becomes readable when the
    /// engine has work, at once if work is left. With other kinds of progress it does nothing.
    ///
    /// An event loop waits for this descriptor in addition to those of channels, events, listeners
    /// and connections. Running the engine makes these readable:
    ///
    /// ```no_run
    /// use std::os::fd::AsFd;
    /// use xwarp::{Listener, Rnic};
    /// use xwarp::completion::CompletionChannel;
    /// use xwarp::event::AsyncEvents;
    ///
    /// # fn wait_for_one_of(_: &[std::os::fd::BorrowedFd<'_>]) {}
    /// fn serve(
    ///     rnic: &Rnic,
    ///     listener: &mut Listener,
    ///     channel: &CompletionChannel,
    ///     events: &AsyncEvents,
    /// ) -> Result<(), Box<dyn std::error::Error>> {
    ///     loop {
    ///         wait_for_one_of(&[rnic.as_fd(), listener.as_fd(), channel.as_fd(), events.as_fd()]);
    ///         rnic.progress()?;
    ///         while let Some(request) = listener.try_accept()? { /* ... */ }
    ///         while let Some(cq) = channel.try_next()? { /* ... */ }
    ///         while let Some(event) = events.try_next()? { /* ... */ }
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`WaitError::Unavailable`] once the RNIC was closed, when the descriptor stays readable, and
    /// in a handler.
    pub fn progress(&self) -> Result<(), WaitError> {
        self.control.progress()
    }

    /// Waits until one of these descriptors is readable, up to `timeout`. Returns whether one is.
    /// They may be descriptors of this RNIC's objects, and of the application's own, such as one
    /// that reports Ctrl-C. Runs an inline engine while it waits. It does not wait for a manual
    /// engine.
    ///
    /// # Errors
    ///
    /// - [`WaitError::Unavailable`]: the RNIC was closed and none is readable, or its handler made
    ///   the call.
    /// - [`WaitError::System`]: the kernel refuses the sleep.
    pub fn wait_readable(
        &self,
        fds: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<bool, WaitError> {
        self.control.wait_readable(fds, timeout)
    }

    /// Runs each manual engine once, at the time `now`. Returns how much work they did: 0 if there
    /// was none, or the engines are not manual.
    pub fn step_at(&self, now: Instant) -> usize {
        self.control.step_at(now)
    }

    /// Next deadline of the manual engines.
    ///
    /// # Errors
    ///
    /// [`RnicUnavailable`]: the RNIC was closed, or its handler made the call.
    pub fn next_deadline(&self) -> Result<Option<Instant>, RnicUnavailable> {
        let all = self.control.call_each(|engine| engine.next_deadline())?;
        Ok(all.into_iter().flatten().min())
    }
}

impl AsFd for Rnic {
    /// Descriptor that an event loop waits for before it calls [`progress`](Self::progress), to run
    /// an inline engine. Do not read from it. With any other [`Progress`](crate::config::Progress)
    /// it is readable only once the RNIC was closed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.fd()
    }
}

impl fmt::Display for Rnic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.network {
            Network::Interface(info) => write!(f, "{info}"),
            Network::Switch(info) => write!(f, "{info}"),
            Network::Given => f.write_str(self.control.host().name()),
        }
    }
}
