//! Notifications of the kernel about the link of an interface.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

use super::LinkWatch;
use super::interfaces::is_active;
use crate::entry::Result;

/// The group of notifications about links (`linux/rtnetlink.h`).
const RTMGRP_LINK: u32 = 1;
/// Bytes of a notification that are read. Its content is ignored, so it may be cut off.
const NOTIFICATION: usize = 64;

/// Notifications about the links of all interfaces, and the interface that is meant.
pub(super) struct Notifications {
    socket: OwnedFd,
    interface: String,
}

impl Notifications {
    /// Notifications about an interface's link from now on.
    pub(super) fn about(interface: &str) -> Result<Self> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::NetlinkRoute,
        )?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, RTMGRP_LINK))?;
        Ok(Self {
            socket,
            interface: interface.to_owned(),
        })
    }
}

impl LinkWatch for Notifications {
    fn look(&self) -> Result<bool> {
        // An error means that the kernel has dropped some, and counts as a notification; none are
        // left then.
        while recv(
            self.socket.as_raw_fd(),
            &mut [0; NOTIFICATION],
            MsgFlags::empty(),
        )
        .is_ok()
        {}
        is_active(&self.interface)
    }
}

impl AsFd for Notifications {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_of_an_interface_that_does_not_exist_is_down() {
        let nothing = Notifications::about("no such interface").expect("a descriptor");
        assert_eq!(nothing.look(), Ok(false));
    }
}
