//! Link of an interface: the kernel's notifications about it, and the events that they become.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

use crate::backend::{EventTarget, Happening};
use crate::entry::{Result, lock};

/// The group of notifications about links (`linux/rtnetlink.h`).
const RTMGRP_LINK: u32 = 1;
/// Bytes of a notification that are read. Its content is ignored, so it may be cut off.
const NOTIFICATION: usize = 64;

/// A watch on an interface's link.
pub(super) struct Link {
    notifications: OwnedFd,
    interface: String,
    was_up: Mutex<bool>,
    device: Arc<dyn EventTarget>,
}

impl Link {
    /// Watches the link of an interface from now on.
    pub(super) fn watch(interface: &str, device: Arc<dyn EventTarget>) -> Result<Self> {
        let notifications = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::NetlinkRoute,
        )?;
        bind(notifications.as_raw_fd(), &NetlinkAddr::new(0, RTMGRP_LINK))?;
        Ok(Self {
            notifications,
            interface: interface.to_owned(),
            was_up: Mutex::new(is_up(interface)?),
            device,
        })
    }

    /// Takes the waiting notifications. Reports a change of the link as an event of the device.
    pub(super) fn look(&self) {
        // An error means that the kernel has dropped some, and counts as a notification; none are
        // left then.
        while recv(
            self.notifications.as_raw_fd(),
            &mut [0; NOTIFICATION],
            MsgFlags::empty(),
        )
        .is_ok()
        {}
        match is_up(&self.interface) {
            Ok(is_up) => self.report(is_up),
            Err(errno) => log::warn!("cannot tell whether {} is up: {errno}", self.interface),
        }
    }

    fn report(&self, is_up: bool) {
        let was_up = std::mem::replace(&mut *lock(&self.was_up), is_up);
        if was_up != is_up {
            let happening = if is_up {
                Happening::PortActive
            } else {
                Happening::PortError
            };
            self.device.notify(happening);
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notifications.as_fd()
    }
}

/// Whether an interface is set up and has a carrier. False if the interface does not exist.
fn is_up(interface: &str) -> Result<bool> {
    let up = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_LOWER_UP;
    let found = getifaddrs()?.find(|it| it.interface_name == interface);
    Ok(found.is_some_and(|it| it.flags.contains(up)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Noted(Mutex<Vec<Happening>>);

    impl EventTarget for Noted {
        fn notify(&self, happening: Happening) {
            lock(&self.0).push(happening);
        }
    }

    #[test]
    fn change_is_told_once() {
        let noted = Arc::new(Noted::default());
        let device: Arc<dyn EventTarget> = Arc::<Noted>::clone(&noted);
        let link = Link::watch("no such interface", device).expect("a descriptor");
        link.look();
        for is_up in [false, true, true, false, false] {
            link.report(is_up);
        }
        let reported = [Happening::PortActive, Happening::PortError];
        assert_eq!(*lock(&noted.0), reported);
    }
}
