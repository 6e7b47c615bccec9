//! Leftovers at a program's exit, on standard error: objects that it has never destroyed, and descriptors that no closed RNIC should have.
//! `XWARP_STATS` asks for them.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fs;
use std::path::Path;

use crate::entry::always;
use crate::lists;
use crate::logging::statistics_are_wanted;
use crate::object;

/// How many there are of each kind.
type Counts = BTreeMap<&'static str, usize>;

/// Prints one line for either. The object's destructor calls it: after those of libraries such as libfabric, which destroy objects there, and when
/// all RNICs are closed.
#[unsafe(no_mangle)]
pub extern "C" fn xwarp_tell_what_is_left() {
    always((), || {
        if statistics_are_wanted() {
            eprintln!("xwarp: never destroyed: {}", list(&objects()));
            eprintln!("xwarp: never closed: {}", list(&descriptors()));
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

/// Descriptors of kinds that an RNIC has and that programs do not open themselves.
fn descriptors() -> Counts {
    let mut counts = Counts::new();
    let Ok(open) = fs::read_dir("/proc/self/fd") else {
        return counts;
    };
    for entry in open.flatten() {
        if let Some(kind) = kind_of(&entry.path()) {
            *counts.entry(kind).or_default() += 1;
        }
    }
    counts
}

/// The kind of a descriptor, by its entry in `/proc/self/fd`.
fn kind_of(entry: &Path) -> Option<&'static str> {
    const KINDS: [&str; 4] = ["bpf-map", "bpf-prog", "bpf_link", "[userfaultfd]"];
    let target = fs::read_link(entry).ok()?;
    let target = target.to_str()?;
    if let Some(kind) = target.strip_prefix("anon_inode:") {
        return KINDS.into_iter().find(|known| *known == kind);
    }
    let number = entry.file_name()?.to_str()?.parse().ok()?;
    let is_socket = target.starts_with("socket:");
    match is_socket.then(|| domain_of(number))? {
        libc::AF_XDP => Some("AF_XDP socket"),
        libc::AF_NETLINK => Some("netlink socket"),
        _ => None,
    }
}

/// The domain of a socket, or -1 for what is none.
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
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    use std::os::fd::{AsRawFd, OwnedFd};

    fn of(socket: &OwnedFd) -> Option<&'static str> {
        let entry = format!("/proc/self/fd/{}", socket.as_raw_fd());
        kind_of(Path::new(&entry))
    }

    #[test]
    fn counts_are_listed_and_none_is_nothing() {
        let counts = Counts::from([("ibv_mr", 2), ("ibv_qp", 1), ("ibv_pd", 0)]);
        assert_eq!(list(&counts), "2 ibv_mr, 1 ibv_qp");
        assert_eq!(list(&Counts::from([("ibv_pd", 0)])), "nothing");
    }

    #[test]
    fn descriptors_of_an_rnic_are_told_from_a_programs() {
        let open = |family| {
            let made = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, None);
            made.expect("a socket")
        };
        assert_eq!(of(&open(AddressFamily::Netlink)), Some("netlink socket"));
        let stream = socket(
            AddressFamily::Inet,
            SockType::Stream,
            SockFlag::SOCK_CLOEXEC,
            None,
        );
        assert_eq!(of(&stream.expect("a socket")), None);
        assert_eq!(kind_of(Path::new("/proc/self/fd/0")), None);
    }
}
