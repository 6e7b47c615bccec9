//! The library in processes as they are: threads that are cancelled, children, limits, signals,
//! standard error that takes nothing.

mod common;

use std::fs;

use common::{FOLDER, Program, in_namespace, library, run, run_on_an_interface};
use xwarp_test_kit::WorkDir;

#[test]
fn thread_that_waits_for_an_event_can_be_cancelled() {
    run_on_an_interface("cancelled");
}

#[test]
fn thread_that_posts_is_cancelled_outside_of_the_library() {
    run_on_an_interface("cancelled_posting");
}

/// Functions that are cancellation points by POSIX or in the C library, as far as the data path
/// could call them. On the control path cancellation is disabled.
const POINTS: &str = "accept4 clock_nanosleep close connect epoll_pwait epoll_wait fdatasync fsync msync nanosleep open open64 openat pause \
    poll ppoll pread pread64 pselect pwrite pwrite64 read readv recv recvfrom recvmmsg recvmsg select \
    send sendmmsg sendmsg sendto sleep usleep waitpid write writev";

#[test]
fn library_calls_no_cancellation_point_but_those_that_it_waits_in() {
    let object = library();
    let listed = run(
        "nm",
        &["-D", "--undefined-only", object.to_str().expect("a path")],
    );
    let names = listed
        .lines()
        .filter_map(|line| line.trim().split(' ').nth(1)?.split('@').next());
    let points: Vec<_> = POINTS.split_whitespace().collect();
    let called: Vec<_> = names.filter(|name| points.contains(name)).collect();
    assert_eq!(called, ["pause", "readv"]);
}

#[test]
fn rnic_works_on_though_standard_error_takes_nothing() {
    let Some(program) = Program::compiled("link") else {
        return;
    };
    let variables = "XWARP_LOG=trace XWARP_STATS=1 XWARP_DEV=dropin0,nosuch0";
    let printed = in_namespace(&format!("{variables} {program} 2>/dev/full"));
    assert!(printed.ends_with("attached:\n"), "{printed}");
}

/// The reader of the pipe is gone, and SIGPIPE ends a process that does not expect it.
#[test]
fn rnic_works_on_though_standard_error_is_a_broken_pipe() {
    let Some(program) = Program::compiled("link") else {
        return;
    };
    let program = format!("XWARP_LOG=trace XWARP_STATS=1 {program} 2>&1 >&3");
    let printed = in_namespace(&format!(
        "{{ {{ {program}; echo ended with $? >&3; }} | true; }} 3>&1"
    ));
    assert!(
        printed.contains(
            "ended with 0
"
        ),
        "{printed}"
    );
}

/// What a program that lists devices prints with these variables of the library alone. Standard
/// error first.
fn listed(before: &str, variables: &str, program: &Program) -> String {
    let command = format!("{before}; env -u XWARP_DEV {variables} {program} 2>&1");
    let printed = in_namespace(&format!("{{ {command}; }}"));
    let end = printed.strip_suffix("attached:\n");
    end.unwrap_or_else(|| panic!("{printed}")).to_owned()
}

#[test]
fn variable_that_names_no_interface_means_none() {
    let Some(program) = Program::compiled("list") else {
        return;
    };
    let list = |before, variables| listed(before, variables, &program);
    assert_eq!(list(":", "XWARP_DEV=dropin0,dropin0"), "device dropin0\n");
    let unreadable = list(":", "XWARP_DEV=\"$(printf 'dropin0\\377')\"");
    assert!(unreadable.starts_with("xwarp: XWARP_DEV is dropin0\u{fffd}, which is no text"));
    assert_eq!(unreadable.lines().count(), 1, "{unreadable}");
    let folder = WorkDir::new("dropin-fifo");
    let fifo = folder.file("fifo");
    let fifo = fifo.to_str().expect("a path");
    let refused = list(&format!("mkfifo {fifo}"), &format!("XWARP_CONFIG={fifo}"));
    let why = format!("xwarp: cannot read the names of interfaces from {fifo}: it is no file");
    assert!(refused.starts_with(&why), "{refused}");
    assert_eq!(refused.lines().count(), 1, "{refused}");
}

/// The user could have the program print any file.
#[test]
fn program_with_more_rights_than_its_user_ignores_variables() {
    let rpath = format!("-Wl,-rpath,{}", FOLDER.display());
    let Some(program) = Program::compiled_with("list", &[&rpath]) else {
        return;
    };
    let folder = WorkDir::new("dropin-secret");
    let secret = folder.file("secret");
    fs::write(&secret, "secret words\n").expect("a file");
    let before = format!("chmod u+s {program}; chmod 600 {}", secret.display());
    let variables = format!(
        "XWARP_CONFIG={} setpriv --reuid 65534 --clear-groups",
        secret.display()
    );
    let printed = listed(&before, &variables, &program);
    assert!(!printed.contains("secret words"), "{printed}");
    assert!(printed.contains("device dropin0"), "{printed}");
}

#[test]
fn child_that_outlives_its_parent_keeps_nothing_of_the_rnic() {
    let Some(program) = Program::compiled("orphan") else {
        return;
    };
    for how in ["exit", "kill"] {
        let ends = if how == "kill" { "= 137" } else { "= 0" };
        let first = format!("{program} {how} fork; test $? {ends}");
        let printed = in_namespace(&format!("{{ {first} && {program} again; }}"));
        assert!(printed.ends_with("attached:\n"), "{how}: {printed}");
    }
}

/// It has not run the handlers of `fork`, and keeps the sockets. An orderly end detaches the
/// program nevertheless.
#[test]
fn program_is_detached_though_a_child_without_handlers_holds_its_link() {
    if let Some(program) = Program::compiled("orphan") {
        let printed = in_namespace(&format!("{program} exit clone"));
        assert!(printed.ends_with("attached:\n"), "{printed}");
    }
}

#[test]
fn child_that_is_forked_beside_a_call_never_waits_for_its_locks() {
    run_on_an_interface("forked");
}

#[test]
fn program_that_exits_in_a_signal_handler_ends() {
    run_on_an_interface("exit_in_handler");
}

#[test]
fn objects_can_be_destroyed_after_the_exit_has_closed_their_rnic() {
    if let Some(program) = Program::compiled("late_destructors") {
        let printed = in_namespace(&format!("XWARP_STATS=1 {program} 2>&1"));
        assert!(printed.contains("never destroyed: nothing"), "{printed}");
    }
}

#[test]
fn thread_with_the_smallest_stack_opens_and_connects() {
    if let Some(program) = Program::compiled("small_stack") {
        // Without optimisation, data take 17 KiB.
        for arguments in ["16", "32 data"] {
            let printed = in_namespace(&format!("{program} {arguments} 2>&1"));
            assert!(
                printed.contains("KiB of stack used"),
                "{arguments}: {printed}"
            );
        }
    }
}

#[test]
fn program_with_a_timer_that_interrupts_all_calls_opens_and_connects() {
    run_on_an_interface("interrupted");
}

#[test]
fn rnic_whose_descriptors_the_program_closes_fails_and_lets_the_program_exit() {
    let Some(program) = Program::compiled("closed") else {
        return;
    };
    for what in ["all", "inner"] {
        let printed = in_namespace(&format!("{program} {what} 2>&1"));
        assert!(printed.contains("it has failed"), "{what}: {printed}");
    }
}

#[test]
fn limit_that_keeps_an_rnic_from_being_opened_is_named() {
    let Some(program) = Program::compiled("alloc") else {
        return;
    };
    let caps = "+net_admin,+net_raw,+bpf,+perfmon,+ipc_lock";
    let user =
        format!("setpriv --reuid 65533 --clear-groups --inh-caps {caps} --ambient-caps {caps}");
    let threads = |most| {
        (
            format!("{user} prlimit --nproc={most}"),
            "EAGAIN",
            "`ulimit -u`",
        )
    };
    for (limits, errno, words) in [
        threads(1),
        threads(2),
        threads(3),
        ("prlimit --nofile=20".to_owned(), "EMFILE", "`ulimit -n`"),
        ("prlimit --as=80000000".to_owned(), "ENOMEM", "`ulimit -v`"),
    ] {
        let printed = in_namespace(&format!("{limits} {program} 2>&1"));
        assert!(printed.contains(words), "{limits}: {printed}");
        assert!(
            printed.contains(&format!("opened: {errno}")),
            "{limits}: {printed}"
        );
    }
}

/// Its parent was killed, and it has not run the handlers of `fork`.
#[test]
fn child_that_holds_an_interface_is_named_to_the_next_program() {
    let holder = Program::compiled("orphan");
    let (Some(holder), Some(second)) = (holder, Program::compiled("alloc")) else {
        return;
    };
    let printed = in_namespace(&format!("{{ {holder} kill clone; {second} 2>&1; }}"));
    let said = "cannot open an RNIC on dropin0: dropin0 is in use by orphan (process ";
    assert!(printed.contains(said), "{printed}");
    assert!(printed.contains("opened: EBUSY"), "{printed}");
}
