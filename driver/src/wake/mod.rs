//! Sleeper and doorbell: a thread sleeps until there is work, and another thread wakes it (decision
//! record driver/0014).
//!
//! This module has the descriptors, flags and threads of the library that sleep and are woken.
//!
//! A thread sleeps in [`Sleeper::sleep`]: on words of memory, or on descriptors if it waits for
//! others, too. An event loop waits for the sleeper's descriptor instead, between [`Sleeper::arm`]
//! and [`Sleeper::clear`].

mod descriptor_set;
mod event;
mod hinted;
mod process_end;
mod signal;
mod sleep_flag;
mod sync;
mod threads;
mod wait_set;
mod word;

use std::borrow::Borrow;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

pub use descriptor_set::DescriptorSet;
use event::Event;
pub(crate) use hinted::Hinted;
pub use process_end::process_end;
pub use signal::{Signal, is_any_readable, sleep_on};
pub(crate) use sleep_flag::SleepFlag;
pub use sleep_flag::WokenBy;
pub(crate) use threads::join_sleeper;
pub use threads::{aside, join};
pub use wait_set::WaitSet;
use word::{Memory, Word};

/// A word of memory that processes share.
struct OutsideWord(Box<dyn Borrow<AtomicU32> + Send + Sync>);

impl OutsideWord {
    fn new(word: impl Borrow<AtomicU32> + Send + Sync + 'static) -> Self {
        Self(Box::new(word))
    }
}

impl Borrow<AtomicU32> for OutsideWord {
    fn borrow(&self) -> &AtomicU32 {
        (*self.0).borrow()
    }
}

struct Shared {
    event: Event,
    flag: SleepFlag,
    /// The same flag for other processes, in memory that is shared with them.
    outside: Option<SleepFlag<OutsideWord>>,
}

impl Shared {
    fn announce(&self, by: WokenBy) {
        if let Some(outside) = &self.outside {
            outside.announce(by);
        }
        self.flag.announce(by);
    }

    fn awake(&self) {
        self.flag.awake();
        if let Some(outside) = &self.outside {
            outside.awake();
        }
    }

    /// The words to sleep on. `None` if one of them would not wake the thread.
    fn words(&self) -> Option<[Option<Word<'_>>; 2]> {
        let own = to_sleep_on(&self.flag, Memory::Own)?;
        let outside = match &self.outside {
            Some(outside) => Some(to_sleep_on(outside, Memory::Shared)?),
            None => None,
        };
        Some([Some(own), outside])
    }

    fn raise(&self, by: WokenBy) -> io::Result<()> {
        if by.word {
            word::wake_all(self.flag.word(), Memory::Own)?;
        }
        if by.descriptor {
            self.event.raise()?;
        }
        Ok(())
    }
}

fn to_sleep_on<W: Borrow<AtomicU32>>(flag: &SleepFlag<W>, memory: Memory) -> Option<Word<'_>> {
    let (at, value) = flag.to_sleep_on()?;
    Some(Word { at, value, memory })
}

/// The side that sleeps.
pub struct Sleeper(Arc<Shared>);

/// The side that wakes. Ringing costs one load while no thread sleeps.
#[derive(Clone)]
pub struct Doorbell(Arc<Shared>);

impl Sleeper {
    /// A sleeper and its doorbell.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: no file descriptor is left.
    pub fn new() -> io::Result<(Self, Doorbell)> {
        Ok(Self::with(Event::own()?, None))
    }

    /// A sleeper that other processes wake as well, and its doorbell in this process. They look at
    /// `word` and [ring](RemoteDoorbell) by it or by the descriptor.
    pub(crate) fn shared(
        word: impl Borrow<AtomicU32> + Send + Sync + 'static,
    ) -> io::Result<((Self, Doorbell), OwnedFd)> {
        let (event, bell) = Event::shared()?;
        Ok((
            Self::with(event, Some(SleepFlag::over(OutsideWord::new(word)))),
            bell,
        ))
    }

    fn with(event: Event, outside: Option<SleepFlag<OutsideWord>>) -> (Self, Doorbell) {
        let shared = Arc::new(Shared {
            event,
            flag: SleepFlag::new(),
            outside,
        });
        (Self(Arc::clone(&shared)), Doorbell(shared))
    }

    /// Whether threads can [sleep on words](Self::sleep_on_words) here: since Linux 5.16, unless a
    /// filter of system calls refuses it.
    pub fn has_words() -> bool {
        !cfg!(miri) && word::is_possible()
    }

    /// Makes the next ring raise the descriptor, for an event loop that is about to wait for it. If
    /// `idle`, called after the announcement, returns false, the descriptor is readable at once.
    ///
    /// It stays readable until [`clear`](Self::clear). A [`sleep`](Self::sleep) in between disarms
    /// it.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: the descriptor cannot be written.
    pub fn arm(&self, idle: impl FnOnce() -> bool) -> io::Result<()> {
        self.arm_by(WokenBy::DESCRIPTOR, idle)
    }

    /// As [`arm`](Self::arm), for threads that are woken by descriptor, by word or by both.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: the descriptor cannot be written.
    pub fn arm_by(&self, by: WokenBy, idle: impl FnOnce() -> bool) -> io::Result<()> {
        self.0.announce(by);
        if idle() {
            return Ok(());
        }
        self.0.awake();
        self.0.raise(by)
    }

    /// Disarms the word: rings cost one load again.
    pub fn disarm(&self) {
        self.0.awake();
    }

    /// Disarms the descriptor: rings cost one load again. It is not readable afterwards, unless a
    /// ring is in progress.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: the descriptor cannot be read.
    pub fn clear(&self) -> io::Result<()> {
        self.disarm();
        self.drain()
    }

    /// Sleeps until one of these is rung, a signal handler has run or `timeout` has expired
    /// (`None`: no limit). Does not sleep unless all are [armed](Self::arm_by) by word.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: the kernel refuses the sleep.
    pub fn sleep_on_words(sleepers: &[&Self], timeout: Option<Duration>) -> io::Result<()> {
        let words: Option<Vec<_>> = sleepers.iter().map(|it| it.0.words()).collect();
        let Some(words) = words else {
            return Ok(());
        };
        word::sleep(words.into_iter().flatten().flatten(), timeout)
    }

    /// A second handle on the same flag and descriptor.
    #[must_use]
    pub fn twin(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    /// Sleeps until the doorbell rings, one of `others` is readable or `timeout` has expired
    /// (`None`: no limit). Does not sleep if `idle`, called after the sleep was announced, returns
    /// false.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: the kernel refuses the sleep.
    pub fn sleep(
        &self,
        others: [Option<BorrowedFd<'_>>; 2],
        timeout: Option<Duration>,
        idle: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        let on_word = others.iter().all(Option::is_none) && Self::has_words();
        self.0.announce(if on_word {
            WokenBy::WORD
        } else {
            WokenBy::DESCRIPTOR
        });
        let slept = if !idle() {
            Ok(())
        } else if on_word {
            Self::sleep_on_words(&[self], timeout)
        } else {
            self.wait(others, timeout)
        };
        self.0.awake();
        slept
    }

    fn wait(
        &self,
        others: [Option<BorrowedFd<'_>>; 2],
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let bell = self.0.event.as_fd();
        let [first, second] = others.map(|fd| fd.unwrap_or(bell));
        sleep_on([bell, first, second], &[], timeout)?;
        self.drain()
    }

    /// Forgets the rings so far.
    fn drain(&self) -> io::Result<()> {
        self.0.event.drain()
    }
}

impl AsFd for Sleeper {
    /// The descriptor that a ring makes readable while it is [armed](Self::arm). Do not read from
    /// it: [`clear`](Self::clear) does.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}

impl Doorbell {
    /// Wakes the sleeper if it sleeps or is about to. Call it after publishing the work.
    pub fn ring(&self) {
        if let Some(by) = self.0.flag.must_wake()
            && let Err(error) = self.0.raise(by)
        {
            log::error!("a doorbell could not be rung: {error}");
        }
    }
}

/// The side that wakes a sleeper of another process.
pub(crate) struct RemoteDoorbell {
    flag: SleepFlag<OutsideWord>,
    socket: OwnedFd,
}

impl RemoteDoorbell {
    /// The doorbell of the sleeper that was [made](Sleeper::shared) of this word and descriptor.
    pub(crate) fn new(
        word: impl Borrow<AtomicU32> + Send + Sync + 'static,
        socket: OwnedFd,
    ) -> Self {
        Self {
            flag: SleepFlag::over(OutsideWord::new(word)),
            socket,
        }
    }

    /// Wakes the sleeper if it sleeps or is about to. Call it after publishing the work. Never
    /// blocks. A process that has closed its descriptors is not woken.
    pub(crate) fn ring(&self) {
        if let Some(by) = self.flag.must_wake()
            && let Err(error) = self.raise(by)
        {
            log::debug!("another process is not woken: {error}");
        }
    }

    fn raise(&self, by: WokenBy) -> io::Result<()> {
        if by.word {
            word::wake_all(self.flag.word(), Memory::Shared)?;
        }
        if by.descriptor {
            event::raise(self.socket.as_fd())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Doorbell {
    /// Whether the sleeper waits for a ring, and whether there was one that it has not taken note
    /// of.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { event, flag, .. } = &*self.0;
        f.debug_struct("Doorbell")
            .field("is_waited_for", &flag.is_announced())
            .field("was_rung", &is_any_readable(&[event.as_fd()]).ok())
            .finish()
    }
}

impl fmt::Debug for Sleeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Doorbell(Arc::clone(&self.0)).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Instant;

    #[test]
    #[cfg_attr(miri, ignore = "needs poll of an eventfd")]
    fn work_found_after_the_announcement_prevents_the_sleep() {
        let (sleeper, _bell) = Sleeper::new().unwrap();
        let start = Instant::now();
        sleeper
            .sleep([None; 2], Some(Duration::from_mins(1)), || false)
            .unwrap();
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    /// Threads that sleep on the words of two sleepers end by `wake`, of either.
    fn threads_are_woken_by(wake: impl Fn(&Sleeper, &Doorbell)) {
        for woken in 0..2 {
            let both = [Sleeper::new().unwrap(), Sleeper::new().unwrap()];
            for (sleeper, _) in &both {
                sleeper.arm_by(WokenBy::WORD, || true).unwrap();
            }
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    let sleepers = both.each_ref().map(|(sleeper, _)| sleeper);
                    scope.spawn(move || Sleeper::sleep_on_words(&sleepers, None));
                }
                let (sleeper, bell) = &both[woken];
                wake(sleeper, bell);
            });
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs futex(2)")]
    fn all_threads_that_sleep_on_words_are_woken_by_a_ring() {
        assert!(Sleeper::has_words());
        threads_are_woken_by(|_, bell| bell.ring());
        threads_are_woken_by(|sleeper, _| sleeper.arm_by(WokenBy::WORD, || false).unwrap());
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs futex(2)")]
    fn thread_does_not_sleep_on_a_word_that_would_not_wake_it() {
        let [(one, _), (other, _)] = [(); 2].map(|()| Sleeper::new().unwrap());
        one.arm_by(WokenBy::WORD, || true).unwrap();
        Sleeper::sleep_on_words(&[&one, &other], None).unwrap();
        other.arm(|| true).unwrap();
        Sleeper::sleep_on_words(&[&one, &other], None).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs poll of an eventfd")]
    fn sleep_ends_with_its_timeout() {
        let (sleeper, _bell) = Sleeper::new().unwrap();
        let start = Instant::now();
        sleeper
            .sleep([None; 2], Some(Duration::from_millis(20)), || true)
            .unwrap();
        assert!(start.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs poll of an eventfd")]
    fn sleep_ends_with_either_of_the_others() {
        let (sleeper, _bell) = Sleeper::new().unwrap();
        let (other, _its_bell) = Sleeper::new().unwrap();
        other.arm(|| false).unwrap();
        for others in [[Some(other.as_fd()), None], [None, Some(other.as_fd())]] {
            sleeper.sleep(others, None, || true).unwrap();
        }
    }

    fn is_readable(sleeper: &Sleeper) -> bool {
        let mut watched = [PollFd::new(sleeper.as_fd(), PollFlags::POLLIN)];
        poll(&mut watched, PollTimeout::ZERO).unwrap() == 1
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs poll of an eventfd")]
    fn descriptor_is_readable_from_a_ring_while_armed_until_cleared() {
        let (sleeper, bell) = Sleeper::new().unwrap();
        bell.ring();
        assert!(!is_readable(&sleeper), "no thread waits");
        sleeper.arm(|| true).unwrap();
        assert!(!is_readable(&sleeper), "it was not rung");
        bell.ring();
        bell.ring();
        assert!(is_readable(&sleeper) && is_readable(&sleeper));
        sleeper.clear().unwrap();
        assert!(!is_readable(&sleeper));
        bell.ring();
        assert!(!is_readable(&sleeper), "it is disarmed");
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs poll of an eventfd")]
    fn debug_text_shows_whether_a_ring_would_be_and_was_heard() {
        let (sleeper, bell) = Sleeper::new().unwrap();
        let shows = |waited_for: bool, rung: bool| {
            let expected =
                format!("Doorbell {{ is_waited_for: {waited_for}, was_rung: Some({rung}) }}");
            assert_eq!(
                [format!("{bell:?}"), format!("{sleeper:?}")],
                [expected.clone(), expected]
            );
        };
        shows(false, false);
        sleeper.arm(|| true).unwrap();
        shows(true, false);
        bell.ring();
        shows(false, true);
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs poll of an eventfd")]
    fn descriptor_is_readable_at_once_if_there_is_work_when_it_is_armed() {
        let (sleeper, _bell) = Sleeper::new().unwrap();
        sleeper.arm(|| false).unwrap();
        assert!(is_readable(&sleeper));
        sleeper.clear().unwrap();
        assert!(!is_readable(&sleeper));
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs poll of an eventfd")]
    fn every_published_item_is_seen_without_a_timeout() {
        const ITEMS: u32 = 20_000;
        let (sleeper, bell) = Sleeper::new().unwrap();
        let published = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for item in 1..=ITEMS {
                    published.store(item, Ordering::Relaxed);
                    bell.ring();
                    if item % 64 == 0 {
                        std::thread::yield_now();
                    }
                }
            });
            let mut seen = 0;
            while seen < ITEMS {
                let idle = || published.load(Ordering::Relaxed) == seen;
                sleeper.sleep([None; 2], None, idle).unwrap();
                seen = published.load(Ordering::Relaxed);
            }
        });
    }
}
