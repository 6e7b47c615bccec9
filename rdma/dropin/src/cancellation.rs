//! Cancellation of threads (`pthread_cancel(3)`). Of the C interface's functions, those that wait
//! for an event are cancellation points (decision record dropin/0009); no other is.
//!
//! A cancelled thread unwinds its stack, which must not pass through frames that have something to
//! release. So a call that waits has three parts. The first and the last run with cancellation
//! disabled. Between them the thread sleeps in [`waits`], whose frames release nothing; if it is
//! cancelled there, a cleanup handler releases the call's resources.
//!
//! The data path does not disable cancellation, as that would cost instructions. `tools/dropin`
//! redirects all other system calls of the library to direct ones (`calls.c`), which are no
//! cancellation points.

use std::ffi::{c_int, c_void};
use std::mem::needs_drop;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::Arc;

use nix::errno::Errno;

use crate::entry::{self, Result};
use crate::event_pipe::EventPipe;

/// A registered cleanup handler, as the C library keeps it. These calls have been in its binary
/// interface since its first version.
#[repr(C)]
struct Handler {
    routine: Option<extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
    canceltype: c_int,
    previous: *mut Handler,
}

// The thread sleeps in `readv`, and a cancelled thread unwinds from it: `calls.c` redirects `read`.
unsafe extern "C-unwind" {
    fn readv(descriptor: c_int, places: *const libc::iovec, number: c_int) -> isize;
    fn pause() -> c_int;
}

unsafe extern "C" {
    fn _pthread_cleanup_push(
        handler: *mut Handler,
        routine: extern "C" fn(*mut c_void),
        argument: *mut c_void,
    );
    fn _pthread_cleanup_pop(handler: *mut Handler, execute: c_int);
}

/// The event that a call waits for, and the values that it holds meanwhile.
pub(crate) struct Sleep<G> {
    /// The descriptor that counts events; none for a call that never returns.
    descriptor: Option<Arc<EventPipe>>,
    /// The event that was counted and is not taken yet.
    count: [u8; 1],
    /// Released when the call has ended, by a return or by cancellation.
    guard: Option<G>,
}

impl<G> Sleep<G> {
    /// A sleep until `descriptor` has counted an event.
    pub(crate) fn on(descriptor: Arc<EventPipe>, guard: G) -> Self {
        Self {
            descriptor: Some(descriptor),
            count: [0],
            guard: Some(guard),
        }
    }

    /// The same sleep, with the guard that `other` makes of the present one.
    pub(crate) fn with<H>(mut self, other: impl FnOnce(G) -> H) -> Sleep<H> {
        Sleep {
            descriptor: self.descriptor.take(),
            count: self.count,
            guard: self.guard.take().map(other),
        }
    }

    /// A sleep until the thread is cancelled, or the process ends.
    pub(crate) fn for_ever(guard: G) -> Self {
        Self {
            descriptor: None,
            count: [0],
            guard: Some(guard),
        }
    }
}

impl<G> Drop for Sleep<G> {
    /// Counts an event again that a cancelled thread has read and has not taken.
    fn drop(&mut self) {
        let Some(descriptor) = &self.descriptor else {
            return;
        };
        if self.count != [0]
            && let Err(errno) = descriptor.count()
        {
            log::error!("an event of a cancelled thread is lost: {errno}");
        }
    }
}

/// The first part's result: whether the call waits.
pub(crate) enum Begun<G> {
    /// The call has nothing to wait for.
    Done,
    /// The call waits.
    Waits(Sleep<G>),
}

/// Stores a value where the program asked for it, if it did.
pub(crate) fn give<T>(place: &mut Option<&mut T>, value: T) {
    if let Some(place) = place {
        **place = value;
    }
}

/// Progress of a call, in a frame that releases nothing.
enum Turn<G> {
    Over(c_int),
    Sleeps(*mut Sleep<G>),
}

/// A function that waits for an event, and is a cancellation point. It sets errno and returns -1 on
/// failure, else 0. `begin` returns the event to wait for; `finish` takes the event, or returns
/// `None` if another thread has taken it. Both return the values that the caller gets by reference.
#[inline(never)]
pub(crate) fn waits<G, B, F>(mut begin: B, mut finish: F) -> c_int
where
    B: FnMut() -> Result<Begun<G>>,
    F: FnMut(G) -> Result<Option<()>>,
{
    const {
        let releases = needs_drop::<B>() || needs_drop::<F>() || needs_drop::<Turn<G>>();
        assert!(!releases, "a cancelled thread would not release it");
    }
    loop {
        let sleep = match begins(&mut begin) {
            Turn::Over(status) => return status,
            Turn::Sleeps(sleep) => sleep,
        };
        // SAFETY: `begins` has made it of a box just now, and has kept nothing of it.
        let errno = unsafe { sleeps(sleep) };
        if let Some(status) = ends(&mut finish, sleep, errno) {
            return status;
        }
    }
}

#[inline(never)]
fn begins<G>(begin: &mut dyn FnMut() -> Result<Begun<G>>) -> Turn<G> {
    let mut turn = Turn::Over(0);
    let status = entry::sets_status_here(|| {
        if let Begun::Waits(sleep) = begin()? {
            turn = Turn::Sleeps(Box::into_raw(Box::new(sleep)));
        }
        Ok(())
    });
    if status == 0 {
        turn
    } else {
        Turn::Over(status)
    }
}

/// Returns `None` if the call must wait again.
#[inline(never)]
fn ends<G>(
    finish: &mut dyn FnMut(G) -> Result<Option<()>>,
    sleep: *mut Sleep<G>,
    slept: c_int,
) -> Option<c_int> {
    let mut again = false;
    let status = entry::sets_status_here(|| {
        // SAFETY: it was made of a box, and the thread that slept on it was not cancelled.
        let mut sleep = unsafe { Box::from_raw(sleep) };
        if sleep.descriptor.is_none() {
            again = true;
            return Ok(());
        }
        if slept != 0 {
            return Err(Errno::from_raw(slept));
        }
        sleep.count = [0];
        let guard = sleep.guard.take().ok_or(Errno::EINVAL)?;
        again = finish(guard)?.is_none();
        Ok(())
    });
    (!again).then_some(status)
}

/// Sleeps until the descriptor has counted an event. Returns 0 or the error number.
///
/// # Safety
///
/// `sleep` is of a box, which this thread owns.
#[inline(never)]
unsafe fn sleeps<G>(sleep: *mut Sleep<G>) -> c_int {
    let mut handler = Handler {
        routine: None,
        argument: ptr::null_mut(),
        canceltype: 0,
        previous: ptr::null_mut(),
    };
    // SAFETY: the caller vouches that the box lives.
    let (descriptor, place) = unsafe { place_of(sleep) };
    // SAFETY: the handler stays in this frame until it is taken back below, or runs.
    unsafe { _pthread_cleanup_push(&raw mut handler, release::<G>, sleep.cast()) };
    let slept = match descriptor {
        // SAFETY: the place is in the box, which lives until the handler runs.
        Some(descriptor) => unsafe { readv(descriptor, &raw const place, 1) },
        // SAFETY: the call has no memory of ours.
        None => unsafe { pause() as isize },
    };
    let errno = if slept < 0 { Errno::last_raw() } else { 0 };
    // SAFETY: it was registered above.
    unsafe { _pthread_cleanup_pop(&raw mut handler, 0) };
    errno
}

/// The number of the descriptor, and the place that it is read into.
///
/// # Safety
///
/// `sleep` is of a box, which this thread owns.
unsafe fn place_of<G>(sleep: *mut Sleep<G>) -> (Option<c_int>, libc::iovec) {
    // SAFETY: the caller vouches for it, and no reference to the box exists.
    let sleep = unsafe { &mut *sleep };
    let descriptor = sleep.descriptor.as_ref().map(|it| it.as_fd().as_raw_fd());
    let place = libc::iovec {
        iov_base: sleep.count.as_mut_ptr().cast(),
        iov_len: sleep.count.len(),
    };
    (descriptor, place)
}

/// Releases what the call of a cancelled thread has.
extern "C" fn release<G>(sleep: *mut c_void) {
    // SAFETY: the thread that owned the box is cancelled, and has registered this for it.
    drop(unsafe { Box::from_raw(sleep.cast::<Sleep<G>>()) });
}
