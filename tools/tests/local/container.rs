//! Programs under a filter of system calls (seccomp), as containers are.

use libc::c_long;
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_no_new_privs;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

use super::processes::{Local, succeeded};

/// What Docker's default profile refuses to a container without capabilities.
const REFUSED_BY_DOCKER: [c_long; 39] = [
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_get_mempolicy,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mbind,
    libc::SYS_mount,
    libc::SYS_move_pages,
    libc::SYS_open_by_handle_at,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_set_mempolicy,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

/// A filter by which these fail with EPERM.
fn refusing(calls: &[c_long]) -> BpfProgram {
    let rules = calls.iter().map(|call| (*call, Vec::new())).collect();
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let here = std::env::consts::ARCH
        .try_into()
        .expect("a known processor");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, here);
    let program = filter.and_then(TryInto::try_into);
    program.expect("a filter")
}

/// A switch and programs on it exchange data though these calls are refused.
fn data_is_exchanged_without(calls: &[c_long], name: &'static str) {
    let filter = refusing(calls);
    // All that a thread starts has its filter.
    let thread = std::thread::spawn(move || {
        set_no_new_privs().expect("a thread may give up privileges");
        apply_filter(&filter).expect("a filter");
        assert_eq!(unshare(CloneFlags::CLONE_FS), Err(Errno::EPERM));
        let local = Local::new(name);
        let (server, port) = local.serve("ping");
        succeeded(&local.client(&format!("ping 127.0.0.1:{port} --count 20")));
        assert!(server.wait().success());
        for wait in ["adaptive", "blocking"] {
            let (server, port) = local.serve(&format!("perf send-lat --wait {wait}"));
            let client = format!("perf send-lat --wait {wait} --iterations 100 127.0.0.1:{port}");
            succeeded(&local.client(&client));
            assert!(server.wait().success());
        }
    });
    thread.join().expect("no panic");
}

#[test]
fn programs_exchange_data_under_dockers_default_profile() {
    data_is_exchanged_without(&REFUSED_BY_DOCKER, "docker");
}

/// As by profiles that are older than Linux 5.16: threads sleep on descriptors.
#[test]
fn programs_exchange_data_where_no_thread_may_sleep_on_words() {
    let calls = [&REFUSED_BY_DOCKER[..], &[libc::SYS_futex_waitv]].concat();
    data_is_exchanged_without(&calls, "old-docker");
}
