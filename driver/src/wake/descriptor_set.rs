//! Descriptor set: one descriptor that is readable while any of several is, an epoll instance.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// Members that one call of [`DescriptorSet::ready`] returns at most.
const READY_AT_ONCE: usize = 32;

/// Descriptors that are waited for together. A closed descriptor leaves the set, unless it has a
/// duplicate.
pub struct DescriptorSet(Epoll);

impl DescriptorSet {
    /// An empty set, which is never readable. It takes a file descriptor.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: no file descriptor is left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?))
    }

    /// Adds a descriptor: the set is readable while the descriptor is.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: the kernel cannot wait for this descriptor, or has no memory for it.
    pub fn watch(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.watch_as(fd, 0)
    }

    /// Adds a descriptor, which [`ready`](Self::ready) returns by this name.
    ///
    /// # Errors
    ///
    /// As [`watch`](Self::watch).
    pub fn watch_as(&self, fd: BorrowedFd<'_>, name: u64) -> io::Result<()> {
        Ok((self.0).add(fd, EpollEvent::new(EpollFlags::EPOLLIN, name))?)
    }

    /// Names of the descriptors that are readable now. If there are many, later calls return the
    /// rest. Never waits.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: the kernel refuses, which is not expected.
    pub fn ready(&self) -> io::Result<impl Iterator<Item = u64> + use<>> {
        let mut events = [EpollEvent::empty(); READY_AT_ONCE];
        let found = match self.0.wait(&mut events, EpollTimeout::ZERO) {
            Ok(found) => found,
            Err(Errno::EINTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        Ok(events.into_iter().take(found).map(|event| event.data()))
    }
}

impl AsFd for DescriptorSet {
    /// The epoll instance, which can be waited for by poll, select or another epoll. Do not change
    /// it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::wake::signal::Signal;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    #[test]
    fn set_is_readable_while_a_member_is() {
        let set = DescriptorSet::new().unwrap();
        let is_readable = || {
            let mut watched = [PollFd::new(set.as_fd(), PollFlags::POLLIN)];
            poll(&mut watched, PollTimeout::ZERO).unwrap() == 1
        };
        let members = [Signal::new().unwrap(), Signal::new().unwrap()];
        for member in &members {
            set.watch(member.as_fd()).unwrap();
        }
        for member in members {
            assert!(!is_readable());
            member.raise();
            assert!(is_readable() && is_readable());
            member.clear();
            assert!(!is_readable());
            member.raise();
            drop(member);
            assert!(!is_readable(), "a closed descriptor has left the set");
        }
    }

    #[test]
    fn ready_members_are_told_by_their_names() {
        let set = DescriptorSet::new().unwrap();
        let ready = || {
            let mut names: Vec<u64> = set.ready().unwrap().collect();
            names.sort_unstable();
            names
        };
        let members = [Signal::new().unwrap(), Signal::new().unwrap()];
        for (member, name) in members.iter().zip([7, u64::MAX]) {
            set.watch_as(member.as_fd(), name).unwrap();
        }
        assert_eq!(ready(), [0; 0]);
        members[1].raise();
        assert_eq!(ready(), [u64::MAX]);
        members[0].raise();
        assert_eq!(ready(), [7, u64::MAX]);
        drop(members);
        assert_eq!(ready(), [0; 0]);
    }

    #[test]
    fn each_of_many_ready_members_is_told() {
        let set = DescriptorSet::new().unwrap();
        let members: Vec<_> = (0..3 * READY_AT_ONCE as u64)
            .map(|name| {
                let member = Signal::new().unwrap();
                member.raise();
                set.watch_as(member.as_fd(), name).unwrap();
                member
            })
            .collect();
        let mut named = vec![false; members.len()];
        for _ in 0..3 {
            for name in set.ready().unwrap() {
                named[usize::try_from(name).unwrap()] = true;
            }
        }
        assert!(named.into_iter().all(|it| it));
    }
}
