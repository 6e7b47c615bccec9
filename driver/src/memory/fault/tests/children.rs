//! Faults and signals that are none of ours, each in a process of its own: this test again, with a
//! variable in the environment.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::libc;

use super::page_one_is_gone;
use crate::memory::vanishing::{PAGE, Right, Vanishing};

/// Environment variable that marks a child.
const CHILD: &str = "XWARP_FAULT_CHILD";

/// Runs `work` in a child process, which is a run of the test that has this name; `None` in the
/// child itself.
fn in_child(test: &str, environment: &[(&str, &str)], work: fn()) -> Option<ExitStatus> {
    if std::env::var_os(CHILD).is_some() {
        work();
        return None;
    }
    let name = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args([&name, "--exact", "--test-threads=1"]);
    child.env(CHILD, "1").envs(environment.iter().copied());
    let output = child.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("running 1 test"), "{name}: {printed}");
    Some(output.status)
}

fn succeeds(test: &str, work: fn()) {
    let ended = in_child(test, &[], work);
    assert!(ended.is_none_or(|status| status.success()), "{ended:?}");
}

fn dies_of(signal: i32, test: &str, environment: &[(&str, &str)], work: fn()) {
    let ended = in_child(test, environment, work);
    assert!(
        ended.is_none_or(|status| status.signal() == Some(signal)),
        "{ended:?}"
    );
}

/// Installs an action of the program's own; what was there before.
fn install(signal: i32, handler: usize, flags: i32) -> libc::sigaction {
    let action = libc::sigaction {
        sa_sigaction: handler,
        sa_mask: *nix::sys::signal::SigSet::empty().as_ref(),
        sa_flags: flags,
        sa_restorer: None,
    };
    let mut before = action;
    // SAFETY: the handlers of this file are async-signal-safe.
    let done = unsafe { libc::sigaction(signal, &raw const action, &raw mut before) };
    assert_eq!(done, 0);
    before
}

/// Installs a handler that goes on to ours.
fn install_over_ours() {
    let handler = knowing as *const () as usize;
    let ours = install(libc::SIGSEGV, handler, libc::SA_SIGINFO);
    OLDER.store(ours.sa_sigaction, Ordering::Relaxed);
}

/// Memory is gone, and accesses to it end in an error.
fn survives_memory_that_is_gone() {
    let memory = Vanishing::anonymous(3);
    let bytes = memory.share().unwrap();
    memory.unmap(1);
    page_one_is_gone(&bytes, true);
}

/// How often a handler of the program's was called.
static CALLS: AtomicUsize = AtomicUsize::new(0);
/// The page that it makes accessible, so that the instruction succeeds the second time.
static CURE: AtomicUsize = AtomicUsize::new(0);
/// A handler that it goes on to if the fault is another one.
static OLDER: AtomicUsize = AtomicUsize::new(0);

fn cure() {
    CALLS.fetch_add(1, Ordering::Relaxed);
    let page = ptr::without_provenance_mut(CURE.load(Ordering::Relaxed));
    // SAFETY: the page is the one of `fault_of_the_program`.
    unsafe { libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE) };
}

extern "C" fn plain(_signal: i32) {
    cure();
}

extern "C" fn knowing(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel, or the handler before, hands over what it knows.
    let info_of_fault = unsafe { &*info };
    // SAFETY: the signal is one of a fault, which has an address.
    let address = unsafe { info_of_fault.si_addr() }.addr();
    if address == CURE.load(Ordering::Relaxed) {
        return cure();
    }
    let older = OLDER.load(Ordering::Relaxed);
    // SAFETY: it was found installed, with SA_SIGINFO.
    let older: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
        unsafe { std::mem::transmute(older) };
    older(signal, info, context);
}

/// The program writes to a page that its handler makes accessible.
fn fault_of_the_program() {
    let memory = Vanishing::anonymous(1);
    memory.protect(0, Right::None);
    CURE.store(memory.start().addr(), Ordering::Relaxed);
    // SAFETY: the page is ours, and accessible when the handler returns.
    unsafe { memory.start().write_volatile(1) };
}

/// The program writes to a page that is never made accessible.
fn wild_write() {
    let memory = Vanishing::anonymous(1);
    memory.protect(0, Right::Read);
    // SAFETY: it ends the process.
    unsafe { memory.start().write_volatile(1) };
}

fn calls() -> usize {
    CALLS.load(Ordering::Relaxed)
}

#[test]
fn handler_of_the_program_gets_its_own_faults_and_no_others() {
    succeeds(
        "handler_of_the_program_gets_its_own_faults_and_no_others",
        || {
            install(
                libc::SIGSEGV,
                knowing as *const () as usize,
                libc::SA_SIGINFO,
            );
            survives_memory_that_is_gone();
            assert_eq!(calls(), 0);
            fault_of_the_program();
            assert_eq!(calls(), 1);
            install(libc::SIGSEGV, plain as *const () as usize, 0);
            survives_memory_that_is_gone();
            fault_of_the_program();
            assert_eq!(calls(), 2);
        },
    );
}

#[test]
fn handler_installed_over_ours_is_gone_before_when_memory_is_registered_again() {
    let test = "handler_installed_over_ours_is_gone_before_when_memory_is_registered_again";
    succeeds(test, || {
        survives_memory_that_is_gone();
        install_over_ours();
        survives_memory_that_is_gone();
        assert_eq!(calls(), 0);
        fault_of_the_program();
        assert_eq!(calls(), 1);
    });
}

#[test]
fn fault_that_goes_through_all_handlers_ends_the_process() {
    let test = "fault_that_goes_through_all_handlers_ends_the_process";
    dies_of(libc::SIGSEGV, test, &[], || {
        survives_memory_that_is_gone();
        install_over_ours();
        survives_memory_that_is_gone();
        wild_write();
    });
}

#[test]
fn handler_for_one_call_is_called_once() {
    dies_of(
        libc::SIGSEGV,
        "handler_for_one_call_is_called_once",
        &[],
        || {
            install(
                libc::SIGSEGV,
                plain as *const () as usize,
                libc::SA_RESETHAND,
            );
            survives_memory_that_is_gone();
            fault_of_the_program();
            assert_eq!(calls(), 1);
            fault_of_the_program();
        },
    );
}

#[test]
fn fault_without_a_handler_of_the_program_ends_the_process() {
    let test = "fault_without_a_handler_of_the_program_ends_the_process";
    dies_of(libc::SIGSEGV, test, &[], || {
        install(libc::SIGSEGV, libc::SIG_IGN, 0);
        survives_memory_that_is_gone();
        wild_write();
    });
}

#[test]
fn signal_that_was_sent_does_what_it_did_before() {
    let test = "signal_that_was_sent_does_what_it_did_before";
    dies_of(libc::SIGBUS, test, &[], || {
        install(libc::SIGSEGV, libc::SIG_IGN, 0);
        install(libc::SIGBUS, libc::SIG_DFL, 0);
        survives_memory_that_is_gone();
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGSEGV).unwrap();
        survives_memory_that_is_gone();
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGBUS).unwrap();
    });
}

#[test]
fn switch_in_the_environment_keeps_our_handler_away() {
    let test = "switch_in_the_environment_keeps_our_handler_away";
    let switch = crate::memory::fault::SWITCH.to_str().unwrap();
    let off = [(switch, "off")];
    dies_of(libc::SIGSEGV, test, &off, survives_memory_that_is_gone);
}
