//! Waiter: a task that sleeps on an object's descriptor, and on the engine's where the engine
//! depends on its callers.

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::error::{RnicEnded, WaitError};
use crate::runtime::control::Control;

/// Descriptors that tasks wait for. They are duplicates, as tokio registers each descriptor only
/// once.
pub(super) struct Waiter {
    object: AsyncFd<OwnedFd>,
    /// Descriptor of the inline engine.
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

    /// Awaits the value that `look` returns.
    pub(super) async fn until<T, E: From<RnicEnded>>(
        &self,
        look: impl FnMut() -> Result<Option<T>, E>,
    ) -> Result<T, E> {
        let failed = |error| match error {
            WaitError::Unavailable(why) => RnicEnded::Unavailable(why),
            WaitError::System(error) => RnicEnded::Failed(format!("no sleep is possible: {error}")),
        };
        self.until_or(look, |error| failed(error).into()).await
    }

    /// Awaits the value that `look` returns, or what `failed` makes of an error of the wait.
    ///
    /// Each look follows the registration of the task with the descriptors. So it finds earlier
    /// values, and later ones wake the task. That also holds for tasks that share a waiter, each of
    /// which clears the readiness that woke all of them.
    pub(super) async fn until_or<T, E>(
        &self,
        mut look: impl FnMut() -> Result<Option<T>, E>,
        failed: impl Fn(WaitError) -> E,
    ) -> Result<T, E> {
        let mut news = pin!(self.news());
        poll_fn(|context| {
            loop {
                let awaited = news.as_mut().poll(context);
                if let Some(found) = look().transpose() {
                    return Poll::Ready(found);
                }
                match awaited {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(failed(error))),
                    Poll::Ready(Ok(())) => news.set(self.news()),
                }
            }
        })
        .await
    }

    /// Waits until the object's descriptor has become readable, or the engine has run a step.
    async fn news(&self) -> Result<(), WaitError> {
        let Some(engine) = &self.engine else {
            self.object.readable().await?.clear_ready();
            return Ok(());
        };
        match first_ready(&self.object, engine).await? {
            Ready::First => {}
            // Taking from an RNIC that was closed returns an error.
            Ready::Second if self.control.is_closed() => {}
            Ready::Second => self.control.progress()?,
        }
        Ok(())
    }
}

/// Runs the engine until the RNIC is closed or dropped.
pub(super) fn drive(
    control: &Arc<Control>,
) -> io::Result<impl Future<Output = Result<(), WaitError>> + Send + 'static + use<>> {
    let engine = control.engine_fd().map(|fd| registered(&fd)).transpose()?;
    // Raised at the RNIC's end, so the future keeps the signal. The engine's descriptor does not
    // change after the RNIC is dropped.
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

/// Duplicates a descriptor and registers the duplicate with tokio.
#[allow(
    deprecated,
    reason = "its successor is unsafe for the sake of types whose descriptor may change; that of an OwnedFd does not"
)]
fn registered(fd: &impl AsFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd.as_fd().try_clone_to_owned()?, Interest::READABLE)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::cell::Cell;
    use std::task::{Context, Waker};
    use std::time::Duration;

    use tokio::time::timeout;
    use xwarp_driver::Signal;

    use super::*;
    use crate::runtime::config::Progress;
    use crate::sim::{FixedHost, MemoryIo, RegionPool, StackConfig};
    use crate::{Rnic, RnicConfig};

    /// A test fails after this time if a wake-up is lost.
    const TIMEOUT: Duration = Duration::from_secs(20);

    fn rnic() -> Rnic {
        let (io, _wire) = MemoryIo::new(64).unwrap();
        let host = Arc::new(FixedHost::new("10.0.0.1".parse().unwrap(), []));
        let regions = RegionPool::anonymous(4096).unwrap();
        let config = RnicConfig::default().progress(Progress::Manual);
        Rnic::with_io(
            Box::new(io),
            &StackConfig::default(),
            host,
            regions,
            &config,
        )
        .unwrap()
    }

    /// Takes one value at a time. One signal is raised for all values.
    #[expect(clippy::unnecessary_wraps, reason = "as a look may fail")]
    fn take(values: &Cell<usize>) -> Result<Option<()>, RnicEnded> {
        let left = values.get().checked_sub(1);
        values.set(left.unwrap_or_default());
        Ok(left.map(drop))
    }

    /// Two values arrive while a task looks and finds nothing. Another task takes the first value
    /// meanwhile, and has cleared the readiness of both.
    #[tokio::test(flavor = "current_thread")]
    async fn task_finds_what_another_has_left_while_it_looked() {
        let (rnic, signal) = (rnic(), Signal::new().unwrap());
        let waiter = Waiter::new(&signal, rnic.control()).unwrap();
        let values = Cell::new(0);
        let mut other = pin!(waiter.until(|| take(&values)));
        let mut other = || {
            let mut context = Context::from_waker(Waker::noop());
            other.as_mut().poll(&mut context)
        };
        assert_eq!(other(), Poll::Pending);
        values.set(2);
        signal.raise();
        drop(waiter.object.readable().await.unwrap());
        let mut is_first = true;
        let slow = waiter.until(|| {
            if std::mem::take(&mut is_first) {
                assert_eq!(other(), Poll::Ready(Ok(())));
                return Ok(None);
            }
            take(&values)
        });
        let found = timeout(TIMEOUT, slow).await.expect("a wake-up");
        assert_eq!(found, Ok(()));
    }
}
