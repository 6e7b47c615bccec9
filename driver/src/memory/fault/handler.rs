//! The signal handler, and what was there before it.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::SigSet;

/// Signals of an access to memory that is gone: without a mapping, an access right or a page of its
/// file.
const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
/// How often this library's handlers can be installed in front of a program's.
const LINKS: usize = 8;

/// Instructions that may fault, and where to go on if one does: distances from the fields
/// themselves (see `racy`).
#[repr(C)]
struct Entry {
    begin: i32,
    end: i32,
    landing: i32,
}

/// An entry for no instruction, so that there is a table in any case.
#[used]
#[unsafe(link_section = "xwarp_faults")]
static NOWHERE: Entry = Entry {
    begin: 0,
    end: 0,
    landing: 0,
};

unsafe extern "C" {
    #[link_name = "__start_xwarp_faults"]
    static TABLE: Entry;
    #[link_name = "__stop_xwarp_faults"]
    static TABLE_END: Entry;
}

/// The previous action of each of this library's handlers, by signal. Each is written once, before
/// its handler is installed.
static BEFORE: [[OnceLock<libc::sigaction>; LINKS]; SIGNALS.len()] =
    [const { [const { OnceLock::new() }; LINKS] }; SIGNALS.len()];

/// This library's handlers. Each passes other faults to the action that it replaced. So a program's
/// handler that calls an older one of this library's is not called by that one.
static HANDLERS: [Handler; LINKS] = [
    on_fault::<0>,
    on_fault::<1>,
    on_fault::<2>,
    on_fault::<3>,
    on_fault::<4>,
    on_fault::<5>,
    on_fault::<6>,
    on_fault::<7>,
];

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
type PlainHandler = extern "C" fn(c_int);

unsafe extern "C" {
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

/// Whether an environment variable has this value. A program that runs with more rights than its
/// user ignores it.
pub(super) fn is_set_to(name: &CStr, wanted: &CStr) -> bool {
    // SAFETY: the name ends with a zero.
    let value = unsafe { secure_getenv(name.as_ptr()) };
    if value.is_null() {
        return false;
    }
    // SAFETY: the value ends with a zero, and stays until the program changes its environment. By
    // setenv(3), it does not do that while another thread reads.
    let value = unsafe { CStr::from_ptr(value) };
    value == wanted
}

/// Puts our handlers in front of those that are there, if they are not.
pub(super) fn install() -> Result<(), InstallError> {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for (at, &signal) in SIGNALS.iter().enumerate() {
        install_for(at, signal)?;
    }
    Ok(())
}

/// Why none of this library's handlers could be installed.
#[derive(Debug, thiserror::Error)]
pub(super) enum InstallError {
    #[error("the kernel refuses a signal handler ({0})")]
    Refused(#[from] Errno),
    #[error("handlers were installed over those of this library {LINKS} times")]
    Displaced,
}

fn install_for(at: usize, signal: c_int) -> Result<(), InstallError> {
    let current = action(signal)?;
    if HANDLERS
        .iter()
        .any(|&ours| current.sa_sigaction == ours as usize)
    {
        return Ok(());
    }
    let free = BEFORE[at].iter().position(|it| it.get().is_none());
    let link = free.ok_or(InstallError::Displaced)?;
    let before = BEFORE[at][link].get_or_init(|| current);
    let mut ours = *before;
    ours.sa_sigaction = HANDLERS[link] as usize;
    // The flags of the program's handler are kept, and it may run on a stack of its own.
    ours.sa_flags = before.sa_flags & !libc::SA_RESETHAND | libc::SA_SIGINFO | libc::SA_ONSTACK;
    Ok(set_action(signal, &ours)?)
}

fn action(signal: c_int) -> Result<libc::sigaction, Errno> {
    let mut action = default_action();
    // SAFETY: the kernel writes to a variable of ours; without a new action nothing is changed.
    let done = unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) };
    Errno::result(done).map(|_| action)
}

/// Async-signal-safe.
fn set_action(signal: c_int, action: &libc::sigaction) -> Result<(), Errno> {
    // SAFETY: the action is the default one, was installed before, or is a handler of ours, which
    // lives as long as the process and may run at any time.
    let done = unsafe { libc::sigaction(signal, action, ptr::null_mut()) };
    Errno::result(done).map(drop)
}

fn default_action() -> libc::sigaction {
    libc::sigaction {
        sa_sigaction: libc::SIG_DFL,
        sa_mask: *SigSet::empty().as_ref(),
        sa_flags: 0,
        sa_restorer: None,
    }
}

/// The handler. All that it calls is async-signal-safe.
extern "C" fn on_fault<const LINK: usize>(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    // SAFETY: the kernel hands over what it knows of the signal, which lies on the handler's stack.
    let code = unsafe { (*info).si_code };
    // A signal that another process or thread has sent has a code that is not positive.
    let is_fault = code > 0;
    // SAFETY: these are the registers of the thread, which no other code accesses.
    let context_of_ours = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    if is_fault && go_on(context_of_ours) {
        return;
    }
    let at = usize::from(signal == SIGNALS[1]);
    let default = default_action();
    let before = BEFORE[at][LINK].get().unwrap_or(&default);
    pass_on(before, is_fault, signal, info, context);
}

/// Makes the thread continue at the landing of the instruction that has faulted. Returns false if
/// it is none of this library's.
fn go_on(context: &mut libc::ucontext_t) -> bool {
    let Some(pointer) = (context.uc_mcontext.gregs).get_mut(libc::REG_RIP as usize) else {
        return false;
    };
    let found = landing_of(pointer.cast_unsigned());
    if let Some(landing) = found {
        *pointer = landing.cast_signed();
    }
    found.is_some()
}

fn landing_of(instruction: u64) -> Option<u64> {
    let (begin, end) = (&raw const TABLE, &raw const TABLE_END);
    let entries = (end.addr() - begin.addr()) / size_of::<Entry>();
    // SAFETY: the linker puts all entries one after the other between the two symbols, and no code
    // writes to them.
    let table = unsafe { std::slice::from_raw_parts(begin, entries) };
    let entry = table
        .iter()
        .find(|entry| (target(&entry.begin)..target(&entry.end)).contains(&instruction))?;
    Some(target(&entry.landing))
}

/// The address that is as far from a field as it says.
fn target(field: &i32) -> u64 {
    (ptr::from_ref(field) as u64).wrapping_add_signed(i64::from(*field))
}

/// Does what would have been done without a handler of ours.
fn pass_on(
    before: &libc::sigaction,
    is_fault: bool,
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    match before.sa_sigaction {
        libc::SIG_IGN if !is_fault => return,
        // The kernel does not ignore faults.
        libc::SIG_DFL | libc::SIG_IGN => return die(signal, is_fault),
        _ => {}
    }
    if before.sa_flags & libc::SA_RESETHAND != 0 {
        // The error would be one for a signal that there is not.
        let _ = set_action(signal, &default_action());
    }
    if before.sa_flags & libc::SA_SIGINFO == 0 {
        // SAFETY: an action without SA_SIGINFO that is neither of the constants has the address of
        // such a function.
        let handler: PlainHandler = unsafe { std::mem::transmute(before.sa_sigaction) };
        handler(signal);
    } else {
        // SAFETY: an action with SA_SIGINFO that is neither of the constants has the address of
        // such a function.
        let handler: Handler = unsafe { std::mem::transmute(before.sa_sigaction) };
        handler(signal, info, context);
    }
}

/// The default action, with the registers that the signal has found: an instruction that has
/// faulted does so again.
fn die(signal: c_int, is_fault: bool) {
    // The error would be one for a signal that there is not.
    let _ = set_action(signal, &default_action());
    if !is_fault {
        // SAFETY: it has no preconditions, and is async-signal-safe. The signal comes when the
        // handler returns, which has it blocked.
        unsafe { libc::raise(signal) };
    }
}
