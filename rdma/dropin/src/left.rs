//! Leftovers at a program's exit, on standard error: objects that it has never destroyed, and
//! descriptors that the library has made and not closed. `XWARP_STATS` asks for them.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fs;
use std::path::Path;

use crate::backend;
use crate::entry::always;
use crate::lists;
use crate::logging::{say, statistics_are_wanted};
use crate::object;
use crate::verbs::event_queue;

/// The number of leftovers of each kind.
type Counts = BTreeMap<&'static str, usize>;

/// What counts the events of an object.
const PIPE: &str = "pipe";

/// Whether the library has made a descriptor: `descriptors.c` records that.
type IsOurs = extern "C" fn(c_int) -> c_int;

/// Prints one line for leftover objects and one for descriptors. The object's destructor calls it
/// after the destructors of libraries such as libfabric, which destroy objects there, and after all
/// RNICs are closed.
#[unsafe(no_mangle)]
pub extern "C" fn xwarp_tell_what_is_left(is_ours: IsOurs) {
    always((), || {
        if statistics_are_wanted() {
            backend::say_what_was_carried();
            say(format_args!("never destroyed: {}", list(&objects())));
            say(format_args!(
                "never closed: {}",
                list(&descriptors(is_ours))
            ));
        }
        Ok(())
    });
}

/// Counts as text.
fn list(counts: &Counts) -> String {
    let kinds = counts.iter().filter(|(_, count)| **count > 0);
    let kinds: Vec<_> = kinds
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    if kinds.is_empty() {
        return "nothing".to_owned();
    }
    kinds.join(", ")
}

fn objects() -> Counts {
    let mut counts = object::never_destroyed();
    counts.insert("list of devices", lists::never_freed());
    counts
}

/// Open descriptors that the library has made, and those of kinds that an RNIC opens and programs
/// do not open themselves. Left out are those of live objects, which are reported as objects, and
/// those that a thread of the program sleeps on.
fn descriptors(is_ours: IsOurs) -> Counts {
    let mut counts = Counts::new();
    let Ok(open) = fs::read_dir("/proc/self/fd") else {
        return counts;
    };
    for entry in open.flatten() {
        if let Some(kind) = kind_of(&entry.path(), is_ours) {
            *counts.entry(kind).or_default() += 1;
        }
    }
    if let Some(count) = counts.get_mut(PIPE) {
        let in_use = object::descriptors() + event_queue::slept_on();
        *count = count.saturating_sub(in_use);
    }
    counts
}

/// The kind of a descriptor, by its entry in `/proc/self/fd`. `None` if the program opened it.
fn kind_of(entry: &Path, is_ours: IsOurs) -> Option<&'static str> {
    let number = entry.file_name()?.to_str()?.parse().ok()?;
    let target = fs::read_link(entry).ok()?;
    let target = target.to_str()?;
    let ours = || is_ours(number) != 0;
    if let Some(kind) = target.strip_prefix("anon_inode:") {
        return of_rnic(kind).or_else(|| ours().then(|| shared_kind(kind)));
    }
    if target.starts_with("socket:") {
        return match domain_of(number) {
            libc::AF_XDP => Some("AF_XDP socket"),
            libc::AF_NETLINK => Some("netlink socket"),
            _ => ours().then_some("socket"),
        };
    }
    let kind = if target.starts_with("pipe:") {
        PIPE
    } else {
        "file"
    };
    ours().then_some(kind)
}

/// A kind that only an RNIC opens.
fn of_rnic(kind: &str) -> Option<&'static str> {
    const KINDS: [&str; 4] = ["bpf-map", "bpf-prog", "bpf_link", "[userfaultfd]"];
    KINDS.into_iter().find(|known| *known == kind)
}

/// A kind that programs also open.
fn shared_kind(kind: &str) -> &'static str {
    match kind {
        "[eventfd]" => "eventfd",
        "[eventpoll]" => "epoll",
        "[timerfd]" => "timer",
        _ => "descriptor",
    }
}

/// The domain of a socket, or -1 if the descriptor is no socket.
fn domain_of(descriptor: c_int) -> c_int {
    let mut domain: c_int = -1;
    let mut len = libc::socklen_t::try_from(size_of::<c_int>()).unwrap_or(0);
    // SAFETY: both places live, and `len` is the size of the first. Any number may be asked about.
    unsafe {
        libc::getsockopt(
            descriptor,
            libc::SOL_SOCKET,
            libc::SO_DOMAIN,
            (&raw mut domain).cast(),
            &raw mut len,
        )
    };
    domain
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::eventfd::EventFd;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    use nix::unistd::pipe;
    use std::os::fd::{AsFd, AsRawFd};

    extern "C" fn none(_: c_int) -> c_int {
        0
    }

    extern "C" fn all(_: c_int) -> c_int {
        1
    }

    fn of(descriptor: c_int, is_ours: IsOurs) -> Option<&'static str> {
        let entry = format!("/proc/self/fd/{descriptor}");
        kind_of(Path::new(&entry), is_ours)
    }

    #[test]
    fn counts_are_listed_and_none_is_nothing() {
        let counts = Counts::from([("ibv_mr", 2), ("ibv_qp", 1), ("ibv_pd", 0)]);
        assert_eq!(list(&counts), "2 ibv_mr, 1 ibv_qp");
        assert_eq!(list(&Counts::from([("ibv_pd", 0)])), "nothing");
    }

    #[test]
    fn descriptors_of_an_rnic_are_told_from_a_programs() {
        let open = |family, kind| {
            let made = socket(family, kind, SockFlag::SOCK_CLOEXEC, None);
            made.expect("a socket")
        };
        let netlink = open(AddressFamily::Netlink, SockType::Raw);
        assert_eq!(of(netlink.as_raw_fd(), none), Some("netlink socket"));
        let stream = open(AddressFamily::Inet, SockType::Stream);
        assert_eq!(of(stream.as_raw_fd(), none), None);
        assert_eq!(of(stream.as_raw_fd(), all), Some("socket"));
        let event = EventFd::new().expect("an eventfd");
        let event = event.as_fd().as_raw_fd();
        assert_eq!(of(event, none), None);
        assert_eq!(of(event, all), Some("eventfd"));
        let (end, _other) = pipe().expect("a pipe");
        assert_eq!(of(end.as_raw_fd(), none), None);
        assert_eq!(of(end.as_raw_fd(), all), Some(PIPE));
    }
}
