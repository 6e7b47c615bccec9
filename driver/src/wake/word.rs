//! Sleep on words of memory (futex(2)): a thread sleeps while each of several words has the value
//! that it had, and is woken by one system call, without a descriptor.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex::{Flags, Wait, WaitFlags, WaitPtr, WaitvFlags, waitv, wake};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Whose memory a word lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// This process's alone.
    Own,
    /// A file that other processes map, too.
    Shared,
}

/// A word, with the value that it has while threads sleep on it.
#[derive(Clone, Copy)]
pub(super) struct Word<'a> {
    pub(super) at: &'a AtomicU32,
    pub(super) value: u32,
    pub(super) memory: Memory,
}

/// Whether the kernel lets threads sleep on several words: since Linux 5.16, unless a filter of
/// system calls refuses it.
pub(super) fn is_possible() -> bool {
    static IS_POSSIBLE: OnceLock<bool> = OnceLock::new();
    *IS_POSSIBLE.get_or_init(|| {
        let other = Word {
            at: &AtomicU32::new(0),
            value: 1,
            memory: Memory::Own,
        };
        let slept = wait(&[waiter(other)], None);
        slept == Err(Errno::AGAIN)
    })
}

/// Sleeps until one of the words is [woken](wake_all) or has another value than this, a signal
/// handler has run, or `timeout` has expired (`None`: no limit).
pub(super) fn sleep<'a>(
    words: impl Iterator<Item = Word<'a>>,
    timeout: Option<Duration>,
) -> io::Result<()> {
    let words: Vec<Wait> = words.map(waiter).collect();
    match wait(&words, timeout.and_then(from_now)) {
        Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Wakes all threads that sleep on a word.
pub(super) fn wake_all(word: &AtomicU32, memory: Memory) -> io::Result<()> {
    let flags = match memory {
        Memory::Own => Flags::PRIVATE,
        Memory::Shared => Flags::empty(),
    };
    wake(word, flags, i32::MAX.unsigned_abs())?;
    Ok(())
}

fn wait(words: &[Wait], until: Option<Timespec>) -> rustix::io::Result<usize> {
    waitv(
        words,
        WaitvFlags::empty(),
        until.as_ref(),
        ClockId::Monotonic,
    )
}

fn waiter(it: Word<'_>) -> Wait {
    let mut waiter = Wait::new();
    waiter.val = it.value.into();
    waiter.uaddr = WaitPtr::new(it.at.as_ptr().cast());
    waiter.flags = match it.memory {
        Memory::Own => WaitFlags::SIZE_U32 | WaitFlags::PRIVATE,
        Memory::Shared => WaitFlags::SIZE_U32,
    };
    waiter
}

/// The time so long from now. `None` if it is too far away to be waited for.
fn from_now(timeout: Duration) -> Option<Timespec> {
    let timeout = Timespec::try_from(timeout).ok()?;
    clock_gettime(ClockId::Monotonic).checked_add(timeout)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;
    use std::time::Instant;

    fn words(words: &[AtomicU32; 2], memory: Memory) -> impl Iterator<Item = Word<'_>> {
        words.iter().map(move |at| Word {
            at,
            value: 0,
            memory,
        })
    }

    #[test]
    fn sleep_ends_with_its_timeout_or_at_once_if_a_word_has_changed() {
        const TIME: Duration = Duration::from_millis(20);
        let both = [AtomicU32::new(0), AtomicU32::new(0)];
        let began = Instant::now();
        sleep(words(&both, Memory::Own), Some(TIME)).unwrap();
        assert!(began.elapsed() >= TIME);
        for word in &both {
            word.store(1, Ordering::Relaxed);
            for timeout in [None, Some(Duration::MAX)] {
                sleep(words(&both, Memory::Own), timeout).unwrap();
            }
            word.store(0, Ordering::Relaxed);
        }
    }

    #[test]
    fn all_that_sleep_on_either_word_are_woken() {
        for (memory, woken) in [(Memory::Own, 0), (Memory::Shared, 1)] {
            let both = [AtomicU32::new(0), AtomicU32::new(0)];
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        while both[woken].load(Ordering::Relaxed) == 0 {
                            sleep(words(&both, memory), None).unwrap();
                        }
                    });
                }
                both[woken].store(1, Ordering::Relaxed);
                wake_all(&both[woken], memory).unwrap();
            });
        }
    }
}
