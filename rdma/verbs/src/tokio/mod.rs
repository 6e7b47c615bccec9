//! Futures of an RNIC for programs on tokio, over the descriptors that other event loops wait for:
//! feature `tokio`.
//!
//! `into_async` converts an object into an [`Async`], whose methods are futures. Completion
//! channels, asynchronous events, listeners, streams and the state changes of a queue pair have it.
//! [`Connecting`](crate::cm::Connecting) and [`ConnectingStream`](crate::stream::ConnectingStream)
//! are awaited directly.
//!
//! A task that awaits one of these futures runs an inline engine. While no task awaits one, the
//! engine makes no progress: spawn [`Rnic::drive`](crate::Rnic::drive), which runs it as long as
//! the runtime runs. Each step wakes all tasks that wait for the RNIC, so
//! [`Progress::Thread`](crate::config::Progress::Thread) suits a program with many such tasks
//! better.
//!
//! All need a runtime with enabled I/O. Without one they panic, as all of tokio's descriptors do.
//!
//! ```no_run
//! use std::time::Duration;
//! use xwarp::completion::Arm;
//! use xwarp::config::Progress;
//! use xwarp::work::Sgl;
//! use xwarp::{QpConfig, Rnic, RnicConfig, SendRequest, WrId};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let config = RnicConfig::default().progress(Progress::Inline);
//! let rnic = Rnic::open("eth1", &config)?;
//! tokio::spawn(rnic.drive()?);
//! let channel = rnic.create_completion_channel()?;
//! let mut cq = rnic.create_cq_on(&channel, 64)?;
//! let channel = channel.into_async()?;
//! let pd = rnic.allocate_pd()?;
//! let mut qp = pd.create_qp(&QpConfig::default(), &cq, &cq)?;
//! qp.begin_connect("10.0.0.2:7471".parse()?, b"", Duration::from_secs(5))?.await?;
//! qp.post_send(SendRequest::send(WrId(1), Sgl::new()))?;
//! loop {
//!     // Arm before polling, so that no completion is missed in between.
//!     cq.arm(Arm::Next)?;
//!     while let Some(completion) = cq.poll()? {
//!         println!("{completion:?}");
//!     }
//!     channel.next().await?;
//! }
//! # }
//! ```

mod connect;
mod streams;
mod waiter;

use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use xwarp_rnic::model::{AsyncEvent, CqId, QpState};

use crate::cm::listening::{Incoming, PortListener};
use crate::cq::channel::CompletionChannel;
use crate::error::{RnicEnded, WaitError};
use crate::qp::state_changes::StateChanges;
use crate::rnic::Rnic;
use crate::rnic::async_events::AsyncEvents;
use crate::runtime::control::Control;
use waiter::{Waiter, drive};

/// An object of an RNIC that tasks wait for. Dropping one of its futures loses nothing: the next
/// future returns what arrived meanwhile.
pub struct Async<T> {
    waiter: Waiter,
    object: T,
}

impl<T: AsFd> Async<T> {
    fn new(object: T, control: impl FnOnce(&T) -> &Arc<Control>) -> io::Result<Self> {
        let waiter = Waiter::new(&object, control(&object))?;
        Ok(Self { waiter, object })
    }
}

impl<T> Async<T> {
    /// The object that tasks wait for.
    pub fn get_ref(&self) -> &T {
        &self.object
    }

    /// The object that tasks wait for, mutably.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.object
    }

    /// Returns the object. Tasks no longer wait for it.
    pub fn into_inner(self) -> T {
        self.object
    }
}

impl Rnic {
    /// A future that runs an inline engine whenever it has work, to be spawned. It does not keep
    /// the RNIC open, and ends when the RNIC is closed. An RNIC with an engine thread does not need
    /// it: the future then only waits for the end.
    ///
    /// # Errors
    ///
    /// No file descriptor is left. The future fails if the engine's descriptor fails.
    pub fn drive(
        &self,
    ) -> io::Result<impl Future<Output = Result<(), WaitError>> + Send + 'static + use<>> {
        drive(self.control())
    }
}

impl CompletionChannel {
    /// Registers the channel with the runtime. Takes a file descriptor, and one more with an inline
    /// engine.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: no file descriptor is left.
    pub fn into_async(self) -> io::Result<Async<Self>> {
        Async::new(self, Self::control)
    }
}

impl Async<CompletionChannel> {
    /// Returns the completion queue that has been in the channel longest, as
    /// [`CompletionChannel::next`] does.
    ///
    /// Cancel-safe: a queue that was not returned stays in the channel.
    ///
    /// # Errors
    ///
    /// [`RnicEnded`] if the channel is empty and the RNIC has ended.
    pub async fn next(&self) -> Result<CqId, RnicEnded> {
        self.waiter.until(|| self.object.try_next()).await
    }
}

impl AsyncEvents {
    /// Registers the events with the runtime. Takes a file descriptor, and one more with an inline
    /// engine.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: no file descriptor is left.
    pub fn into_async(self) -> io::Result<Async<Self>> {
        Async::new(self, Self::control)
    }
}

impl Async<AsyncEvents> {
    /// Returns the oldest event. Each event is returned once.
    ///
    /// Cancel-safe: an event that was not returned stays in the queue.
    ///
    /// # Errors
    ///
    /// [`RnicEnded`] if the queue is empty and the RNIC has ended.
    pub async fn next(&self) -> Result<AsyncEvent, RnicEnded> {
        self.waiter.until(|| self.object.try_next()).await
    }
}

impl<T: Incoming> PortListener<T> {
    /// Registers the listener with the runtime. Takes a file descriptor, and one more with an
    /// inline engine.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: no file descriptor is left.
    pub fn into_async(self) -> io::Result<Async<Self>> {
        Async::new(self, Self::control)
    }
}

impl<T: Incoming> Async<PortListener<T>> {
    /// Returns the peer that has waited longest.
    ///
    /// Cancel-safe: a peer that was not returned stays in the backlog.
    ///
    /// # Errors
    ///
    /// [`RnicEnded`] if no peer waits and no further peer can connect.
    pub async fn accept(&mut self) -> Result<T, RnicEnded> {
        let listener = &mut self.object;
        self.waiter.until(|| listener.try_accept()).await
    }
}

impl StateChanges {
    /// Registers the state changes with the runtime. Takes a file descriptor, and one more with an
    /// inline engine.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: no file descriptor is left.
    pub fn into_async(self) -> io::Result<Async<Self>> {
        Async::new(self, Self::control)
    }
}

impl Async<StateChanges> {
    /// Returns the state of the queue pair as soon as `wanted` accepts it. States that it only
    /// passes through may be missed.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`RnicEnded`] if `wanted` refuses the last state.
    pub async fn wait_for(
        &self,
        mut wanted: impl FnMut(QpState) -> bool,
    ) -> Result<QpState, RnicEnded> {
        let changes = &self.object;
        let look = || {
            let ended = changes.control().ended();
            // The descriptor stays raised: clearing it would hide the state from other tasks that
            // the runtime has not woken yet.
            let state = changes.state();
            match ended {
                _ if wanted(state) => Ok(Some(state)),
                Some(ended) => Err(ended),
                None => Ok(None),
            }
        };
        self.waiter.until(look).await
    }
}
