//! Waiter: a task that sleeps on an object's descriptor, and on the engine's where nobody else turns it.

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::control::Control;
use crate::error::{RnicEnded, WaitError};

/// Descriptors that tasks wait for. They are duplicates: tokio has each of its own once only.
pub(super) struct Waiter {
    object: AsyncFd<OwnedFd>,
    /// The inline engine's.
    engine: Option<AsyncFd<OwnedFd>>,
    control: Arc<Control>,
}

impl Waiter {
    pub(super) fn new(object: &impl AsFd, control: &Arc<Control>) -> io::Result<Self> {
        let engine = control.engine_fd().map(|fd| registered(&fd));
        Ok(Self {
            object: registered(object)?,
            engine: engine.transpose()?,
            control: Arc::clone(control),
        })
    }

    /// What `take` returns as soon as it returns something.
    pub(super) async fn until<T, E: From<RnicEnded>>(
        &self,
        mut take: impl FnMut() -> Result<Option<T>, E>,
    ) -> Result<T, E> {
        loop {
            if let Some(value) = take()? {
                return Ok(value);
            }
            self.news().await.map_err(|error| match error {
                WaitError::Unavailable(why) => RnicEnded::Unavailable(why),
                WaitError::System(error) => {
                    RnicEnded::Failed(format!("no sleep is possible: {error}"))
                }
            })?;
        }
    }

    /// Waits until the object's descriptor has become readable, or the engine has had a turn.
    ///
    /// A descriptor's readiness is cleared before the caller looks: what comes after the look makes it ready again.
    pub(super) async fn news(&self) -> Result<(), WaitError> {
        let Some(engine) = &self.engine else {
            self.object.readable().await?.clear_ready();
            return Ok(());
        };
        match first_ready(&self.object, engine).await? {
            Ready::First => {}
            // Whoever takes from an RNIC that was closed is told so.
            Ready::Second if self.control.is_closed() => {}
            Ready::Second => self.control.progress()?,
        }
        Ok(())
    }
}

/// Turns the engine until the RNIC is closed or gone.
pub(super) fn drive(
    control: &Arc<Control>,
) -> io::Result<impl Future<Output = Result<(), WaitError>> + Send + 'static + use<>> {
    let engine = control.engine_fd().map(|fd| registered(&fd)).transpose()?;
    // Raised at the end, as long as it is there. The engine's descriptor says nothing once the RNIC is gone.
    let signal = control.signal()?;
    let end = registered(&*signal)?;
    let control = Arc::downgrade(control);
    Ok(async move {
        let _signal = signal;
        match engine {
            Some(engine) => turn(engine, end, control).await,
            None => end.readable().await.map(drop).map_err(WaitError::from),
        }
    })
}

async fn turn(
    engine: AsyncFd<OwnedFd>,
    end: AsyncFd<OwnedFd>,
    control: Weak<Control>,
) -> Result<(), WaitError> {
    while let Ready::First = first_ready(&engine, &end).await? {
        let Some(control) = control.upgrade() else {
            return Ok(());
        };
        if control.is_closed() {
            return Ok(());
        }
        control.progress()?;
    }
    Ok(())
}

/// Which of two descriptors is ready.
enum Ready {
    First,
    Second,
}

/// Waits until one of two descriptors is ready, and clears its readiness.
async fn first_ready(first: &AsyncFd<OwnedFd>, second: &AsyncFd<OwnedFd>) -> io::Result<Ready> {
    let (mut is_first, mut is_second) = (pin!(first.readable()), pin!(second.readable()));
    poll_fn(|context| {
        if let Poll::Ready(ready) = is_first.as_mut().poll(context) {
            ready?.clear_ready();
            return Poll::Ready(Ok(Ready::First));
        }
        let ready = is_second.as_mut().poll(context);
        ready.map_ok(|mut guard| {
            guard.clear_ready();
            Ready::Second
        })
    })
    .await
}

/// A duplicate that tokio watches.
#[allow(
    deprecated,
    reason = "its successor is unsafe for the sake of types whose descriptor may change; that of an OwnedFd does not"
)]
fn registered(fd: &impl AsFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd.as_fd().try_clone_to_owned()?, Interest::READABLE)
}
