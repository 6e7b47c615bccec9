//! Checks of the host and of this process, for any interface.

use super::Facts;
use super::finding::Finding;

/// Oldest kernel that detaches an XDP program when its process ends.
const OLDEST: (u32, u32) = (5, 9);
/// Bytes of memory that an RNIC locks by default: frames and regions.
const LOCKED: u64 = (16 + 64) << 20;
/// Size in bytes of the huge pages that an RNIC uses.
const HUGE_PAGE: u64 = 2 << 20;
/// Open files that suffice for an RNIC of many queues and its program.
const ENOUGH_FILES: u64 = 1024;
/// Capabilities that a container needs for an RNIC, as options of `docker run`.
const CONTAINER: [&str; 5] = ["NET_ADMIN", "NET_RAW", "BPF", "SYS_ADMIN", "IPC_LOCK"];

/// What works without privileges.
const LOCAL: &str = "`xwarp run --local -- PROGRAM` needs none, and gives programs of this host RDMA among themselves";

pub(super) fn kernel(facts: &Facts) -> Finding {
    let says = format!("Linux {}", facts.host.release);
    if facts.host.kernel < OLDEST {
        let (major, minor) = OLDEST;
        return Finding::fail(
            "kernel",
            format!("{says} is older than {major}.{minor}: update it"),
        );
    }
    Finding::pass("kernel", says)
}

pub(super) fn privileges(facts: &Facts) -> Finding {
    let about = "privileges";
    if !facts.host.in_initial_user_namespace {
        let says = "an RNIC needs privileges in the initial user namespace, and this process is in another one, as in a rootless container: \
                    run it as the host's root, or in a container that root has started";
        return Finding::fail(about, format!("{says}; {LOCAL}"));
    }
    let missing = facts.host.missing_capabilities();
    if missing.is_empty() {
        return Finding::pass(about, "those of an RNIC");
    }
    let says = format!("this process lacks {}", missing.join(", "));
    if !facts.host.is_root {
        return Finding::fail(about, format!("{says}; {LOCAL}"))
            .with_remedy(format!("sudo xwarp doctor {}", facts.interface.name));
    }
    let says = format!("{says}, though it is root's: start its container or service with them");
    let options = CONTAINER.map(|name| format!(" --cap-add {name}"));
    Finding::fail(about, says).with_remedy(format!(
        "docker run{} --ulimit memlock=-1",
        options.concat()
    ))
}

pub(super) fn locked_memory(facts: &Facts) -> Finding {
    let about = "memory";
    let needed = LOCKED >> 20;
    if let Some(left) = facts.host.group_leaves.filter(|left| *left < LOCKED) {
        let says = format!(
            "the control group leaves {} MiB, and an RNIC takes {needed}: raise its memory.max",
            left >> 20
        );
        return Finding::fail(about, says);
    }
    if facts.host.locks_any_memory() {
        return Finding::pass(about, "may be locked without limit");
    }
    let limit = facts.host.lockable;
    let says = format!("{} may be locked", bytes(limit.now));
    if limit.now >= LOCKED {
        return Finding::pass(about, says);
    }
    let remedy = if limit.allows(LOCKED) {
        format!("ulimit -S -l {}", LOCKED >> 10)
    } else {
        "sudo prlimit --pid $$ --memlock=unlimited".to_owned()
    };
    let says = format!(
        "{says}, and an RNIC takes {needed} MiB: raise the limit, of a service by LimitMEMLOCK=infinity, of a container by --ulimit memlock=-1"
    );
    Finding::fail(about, says).with_remedy(remedy)
}

/// A number of bytes in whole units.
fn bytes(count: u64) -> String {
    match count {
        u64::MAX => "any memory".to_owned(),
        0..0x10_0000 => format!("{} KiB", count >> 10),
        _ => format!("{} MiB", count >> 20),
    }
}

pub(super) fn huge_pages(facts: &Facts) -> Finding {
    let wanted = LOCKED.div_ceil(HUGE_PAGE);
    let free = facts.host.huge_pages.unwrap_or_default();
    let says = if free >= wanted {
        format!("{free} of 2 MiB are free, and an RNIC takes {wanted}")
    } else if facts.host.makes_huge_pages {
        format!("{free} of 2 MiB are set aside, but the kernel makes more for an RNIC")
    } else {
        format!(
            "{free} of 2 MiB are free, and an RNIC would take {wanted}: set them aside with `sysctl vm.nr_hugepages={wanted}`, or do without"
        )
    };
    Finding::pass("huge pages", says)
}

pub(super) fn open_files(facts: &Facts) -> Finding {
    let about = "open files";
    let limit = facts.host.open_files;
    let Some(needed) = facts.descriptors else {
        return Finding::pass(about, format!("{} are possible", limit.now));
    };
    let says = format!(
        "{} are possible, and opening an RNIC takes {needed}",
        limit.now
    );
    // The program has standard input, output and error as well.
    let wanted = needed as u64 + 3;
    if limit.now >= wanted {
        return Finding::pass(about, says);
    }
    let remedy = if limit.allows(ENOUGH_FILES) {
        format!("ulimit -S -n {ENOUGH_FILES}")
    } else {
        format!("sudo prlimit --pid $$ --nofile={ENOUGH_FILES}")
    };
    Finding::fail(about, says).with_remedy(remedy)
}
