//! Wait set: one descriptor that is readable when an engine without a thread has work.
//!
//! It is an epoll instance over the socket that receives frames, the doorbell and a timer. Changes
//! of the interface are received by the thread of [`InterfaceWatch`](crate::net::InterfaceWatch),
//! which rings the doorbell.
//!
//! An event loop that drives an inline engine waits in its own `epoll_wait`. It runs turns until
//! there is no work, arms the set with the engine's next deadline, and waits for the one
//! descriptor. A sleep of the same `Sleeper` disarms the doorbell, so the loop arms again before
//! each wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::descriptor_set::DescriptorSet;
use super::{Sleeper, WokenBy};

/// The shortest time that a timer can be set to: 0 would stop it.
const SHORTEST: Duration = Duration::from_nanos(1);
/// The longest time that a timer is set to. The loop then wakes without work and arms again.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// Descriptor for an event loop, in place of [`Sleeper::sleep`].
///
/// The loop runs the engine until no work is left, calls [`arm`](Self::arm) and waits until the
/// descriptor is readable. Then it starts again.
pub struct WaitSet {
    all: DescriptorSet,
    /// The socket that receives frames, in its own set: closing that set removes the socket from
    /// `all`.
    frames: Option<DescriptorSet>,
    timer: TimerFd,
    timer_runs: bool,
    sleeper: Sleeper,
    /// Whether the descriptor is readable, since [`open`](WaitSet::open).
    is_open: bool,
}

impl WaitSet {
    /// A set over the doorbell of `sleeper` and a timer, not armed. It takes two file descriptors,
    /// and one more for frames.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: no file descriptor is left.
    pub fn new(sleeper: &Sleeper) -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        let all = set_of(sleeper.as_fd())?;
        all.watch(timer.as_fd())?;
        Ok(Self {
            all,
            frames: None,
            timer,
            timer_runs: false,
            sleeper: sleeper.twin(),
            is_open: false,
        })
    }

    /// Makes the descriptor readable while `fd` is, too, armed or not.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: the kernel cannot wait for this descriptor.
    pub fn watch(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.all.watch(fd)
    }

    /// Makes the descriptor readable as soon as the doorbell rings, `readiness` is readable or
    /// `timeout` has expired (`None`: no limit). If `idle`, called after the announcement, returns
    /// false, it is readable at once. Earlier rings do not count. `by`: how the doorbell wakes:
    /// by the descriptor, and perhaps by its word.
    ///
    /// `readiness` is the same descriptor in every call, or none from some call on. A sleep of the
    /// same [`Sleeper`] disarms the doorbell, so arm again before the next wait.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: no file descriptor is left, or the kernel refuses.
    pub fn arm(
        &mut self,
        readiness: Option<BorrowedFd<'_>>,
        timeout: Option<Duration>,
        by: WokenBy,
        idle: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        self.is_open = false;
        // A thread that sleeps on the word stays announced until then, so that an error wakes it.
        self.sleeper.drain()?;
        self.watch_frames(readiness)?;
        self.set_timer(timeout)?;
        self.sleeper.arm_by(by, idle)
    }

    /// As [`arm`](Self::arm), for threads that [sleep](Sleeper::sleep_on_words) on the doorbell's
    /// word. The descriptor stays as it is.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: the kernel refuses, which is not expected.
    pub fn arm_word(&self, idle: impl FnOnce() -> bool) -> io::Result<()> {
        self.sleeper.arm_by(WokenBy::WORD, idle)
    }

    /// Makes the descriptor readable until it is [armed](Self::arm). If there `are_any` threads that
    /// sleep on the doorbell's word, wakes them. Meanwhile frames are not signaled.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: the kernel refuses, which is not expected.
    pub fn open(&mut self, are_any: bool) -> io::Result<()> {
        let by = WokenBy {
            descriptor: !self.is_open,
            word: are_any,
        };
        if by.descriptor {
            self.watch_frames(None)?;
            self.set_timer(None)?;
        }
        self.sleeper.arm_by(by, || false)?;
        self.is_open = true;
        Ok(())
    }

    fn watch_frames(&mut self, readiness: Option<BorrowedFd<'_>>) -> io::Result<()> {
        match readiness {
            // Otherwise the kernel announces each frame, which costs a fifth of the bandwidth on a
            // virtual link.
            None => self.frames = None,
            Some(_) if self.frames.is_some() => {}
            Some(socket) => {
                let frames = set_of(socket)?;
                self.all.watch(frames.as_fd())?;
                self.frames = Some(frames);
            }
        }
        Ok(())
    }

    /// Restarts the timer, or stops it. Earlier expirations are discarded.
    fn set_timer(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        match timeout {
            None if !self.timer_runs => {}
            None => self.timer.unset()?,
            Some(timeout) => {
                let time = TimeSpec::from_duration(timeout.clamp(SHORTEST, LONGEST));
                (self.timer).set(Expiration::OneShot(time), TimerSetTimeFlags::empty())?;
            }
        }
        self.timer_runs = timeout.is_some();
        Ok(())
    }
}

impl AsFd for WaitSet {
    /// The epoll instance, which can be waited for by poll, select or another epoll. Do not change
    /// it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.all.as_fd()
    }
}

/// A set of one descriptor.
fn set_of(fd: BorrowedFd<'_>) -> io::Result<DescriptorSet> {
    let set = DescriptorSet::new()?;
    set.watch(fd)?;
    Ok(set)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::net::{InterfaceEnd, InterfaceNews, InterfaceReporter};
    use crate::wake::Doorbell;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::unix::net::UnixDatagram;
    use std::time::Instant;

    const LONG: Option<Duration> = Some(Duration::from_mins(1));

    fn new() -> (WaitSet, Sleeper, Doorbell) {
        let (sleeper, bell) = Sleeper::new().unwrap();
        (WaitSet::new(&sleeper).unwrap(), sleeper, bell)
    }

    fn is_readable_within(set: &WaitSet, timeout: PollTimeout) -> bool {
        let mut watched = [PollFd::new(set.as_fd(), PollFlags::POLLIN)];
        poll(&mut watched, timeout).unwrap() == 1
    }

    fn is_readable(set: &WaitSet) -> bool {
        is_readable_within(set, PollTimeout::ZERO)
    }

    #[test]
    fn set_is_readable_from_a_ring_until_it_is_armed_again() {
        let (mut set, _sleeper, bell) = new();
        assert!(!is_readable(&set));
        set.arm(None, LONG, WokenBy::DESCRIPTOR, || true).unwrap();
        assert!(!is_readable(&set));
        bell.ring();
        assert!(is_readable(&set));
        set.arm(None, LONG, WokenBy::DESCRIPTOR, || true).unwrap();
        assert!(!is_readable(&set));
    }

    #[test]
    fn set_is_readable_at_once_if_there_is_work() {
        let (mut set, ..) = new();
        set.arm(None, None, WokenBy::DESCRIPTOR, || false).unwrap();
        assert!(is_readable(&set));
        set.arm(None, LONG, WokenBy::DESCRIPTOR, || true).unwrap();
        assert!(!is_readable(&set));
    }

    #[test]
    fn set_is_readable_when_the_time_is_over_and_not_before() {
        const TIME: Duration = Duration::from_millis(20);
        let (mut set, ..) = new();
        let begin = Instant::now();
        set.arm(None, Some(TIME), WokenBy::DESCRIPTOR, || true)
            .unwrap();
        assert!(is_readable_within(&set, PollTimeout::NONE));
        assert!(begin.elapsed() >= TIME);
        set.arm(None, LONG, WokenBy::DESCRIPTOR, || true).unwrap();
        assert!(!is_readable(&set));
        set.arm(None, Some(Duration::ZERO), WokenBy::DESCRIPTOR, || true)
            .unwrap();
        assert!(is_readable_within(&set, PollTimeout::NONE));
    }

    #[test]
    fn last_timeout_is_the_one_that_counts() {
        let (mut set, ..) = new();
        for later in [None, LONG, Some(Duration::MAX)] {
            set.arm(None, Some(Duration::ZERO), WokenBy::DESCRIPTOR, || true)
                .unwrap();
            assert!(is_readable_within(&set, PollTimeout::NONE));
            set.arm(None, later, WokenBy::DESCRIPTOR, || true).unwrap();
            assert!(!is_readable(&set), "{later:?}");
        }
    }

    #[test]
    fn open_set_is_readable_and_stays_so_while_threads_sleep_on_the_word() {
        let (mut set, _sleeper, bell) = new();
        set.open(false).unwrap();
        set.arm_word(|| true).unwrap();
        bell.ring();
        set.open(false).unwrap();
        assert!(is_readable(&set));
        set.arm(None, LONG, WokenBy::DESCRIPTOR, || true).unwrap();
        assert!(!is_readable(&set));
        set.open(false).unwrap();
        assert!(is_readable(&set));
    }

    #[test]
    fn set_is_readable_while_frames_wait_that_shall_be_received() {
        let (mut set, ..) = new();
        let (socket, peer) = UnixDatagram::pair().unwrap();
        set.arm(Some(socket.as_fd()), LONG, WokenBy::DESCRIPTOR, || true)
            .unwrap();
        assert!(!is_readable(&set));
        peer.send(&[1]).unwrap();
        assert!(is_readable(&set));
        set.arm(Some(socket.as_fd()), LONG, WokenBy::DESCRIPTOR, || true)
            .unwrap();
        assert!(is_readable(&set), "the frame is still there");
        set.arm(None, LONG, WokenBy::DESCRIPTOR, || true).unwrap();
        assert!(!is_readable(&set), "no caller wants it");
        set.arm(Some(socket.as_fd()), LONG, WokenBy::DESCRIPTOR, || true)
            .unwrap();
        assert!(is_readable(&set));
        socket.recv(&mut [0; 2]).unwrap();
        assert!(!is_readable(&set));
        drop(peer);
        drop(socket);
        set.arm(None, LONG, WokenBy::DESCRIPTOR, || true).unwrap();
        assert!(!is_readable(&set), "the socket is closed");
    }

    #[test]
    fn set_is_readable_while_another_descriptor_is_that_it_watches() {
        let (mut set, ..) = new();
        let (socket, peer) = UnixDatagram::pair().unwrap();
        set.watch(socket.as_fd()).unwrap();
        set.arm(None, LONG, WokenBy::DESCRIPTOR, || true).unwrap();
        assert!(!is_readable(&set));
        peer.send(&[1]).unwrap();
        assert!(is_readable(&set));
        set.arm(None, LONG, WokenBy::DESCRIPTOR, || true).unwrap();
        assert!(is_readable(&set));
        socket.recv(&mut [0; 2]).unwrap();
        assert!(!is_readable(&set));
    }

    #[test]
    fn set_is_readable_when_the_interface_has_changed() {
        let (mut set, _sleeper, bell) = new();
        let (reporter, monitor) = InterfaceReporter::new(Some(bell));
        set.arm(None, LONG, WokenBy::DESCRIPTOR, || !monitor.has_news())
            .unwrap();
        assert!(!is_readable(&set));
        reporter.report(InterfaceNews::Ended(InterfaceEnd::Deleted(
            "eth1".to_owned(),
        )));
        assert!(is_readable(&set));
    }

    #[test]
    fn sleep_of_the_same_sleeper_disarms_until_the_set_is_armed_again() {
        let (mut set, sleeper, bell) = new();
        set.arm(None, None, WokenBy::DESCRIPTOR, || true).unwrap();
        sleeper.sleep([None; 2], LONG, || false).unwrap();
        bell.ring();
        assert!(!is_readable(&set));
        set.arm(None, None, WokenBy::DESCRIPTOR, || true).unwrap();
        bell.ring();
        assert!(is_readable(&set));
    }
}
