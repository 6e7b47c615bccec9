//! Devices of a test, which the machine does not have.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use xwarp::config::Attach;

use super::{Devices, Interface, LinkWatch, Local, holder};
use crate::entry::Result;

/// One device with these addresses, which may be loopback addresses. Its peers are on its link; no
/// other address is reached.
pub(crate) struct Fixed {
    interface: Interface,
    peers: Vec<IpAddr>,
    link: Arc<FixedLink>,
}

impl Fixed {
    pub(crate) const NAME: &'static str = "fixed0";
    pub(crate) const INDEX: u32 = 7;
    pub(crate) const MTU: usize = 65_535;
    pub(crate) const SPEED: u32 = 100_000;

    pub(crate) fn new(addresses: &[IpAddr], peers: &[IpAddr]) -> Self {
        let interface = Interface {
            name: Self::NAME.to_owned(),
            index: Self::INDEX,
            mac: [2, 0, 0, 0, 0, 1],
            is_active: true,
            addresses: addresses.to_vec(),
        };
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let link = FixedLink {
            news: EventFd::from_flags(flags).expect("a descriptor"),
            is_active: AtomicBool::new(true),
        };
        Self {
            interface,
            peers: peers.to_vec(),
            link: Arc::new(link),
        }
    }

    /// Brings the link up or down, of which its watch has news.
    pub(crate) fn set_link(&self, is_active: bool) {
        self.link.is_active.store(is_active, Ordering::Relaxed);
        self.link.news.write(1).expect("a descriptor");
    }
}

impl Devices for Fixed {
    fn attach(&self) -> Attach {
        Attach::Direct
    }

    fn list(&self) -> Result<Vec<Interface>> {
        Ok(vec![self.interface.clone()])
    }

    fn defaults(&self) -> Result<Vec<Interface>> {
        self.list()
    }

    fn interface(&self, name: &str) -> Result<Interface> {
        let found = self.list()?.into_iter().find(|it| it.name == name);
        found.ok_or(Errno::ENODEV)
    }

    fn mtu(&self, _name: &str) -> usize {
        Self::MTU
    }

    fn speed(&self, _name: &str) -> Option<u32> {
        Some(Self::SPEED)
    }

    fn watch(&self, _name: &str) -> Result<Box<dyn LinkWatch>> {
        Ok(Box::new(Arc::clone(&self.link)))
    }

    fn with_address(&self, address: SocketAddr) -> Result<Local> {
        holder(self.list()?, address)
    }

    fn towards(&self, remote: SocketAddr) -> Result<Local> {
        if let Ok(own) = self.with_address(remote) {
            return Ok(own);
        }
        if !self.peers.contains(&remote.ip()) {
            return Err(Errno::ENETUNREACH);
        }
        let interface = self.interface.clone();
        let family = |it: &&IpAddr| it.is_ipv4() == remote.is_ipv4();
        let address = interface.addresses.iter().find(family).copied();
        let address = address.ok_or(Errno::EADDRNOTAVAIL)?;
        Ok(Local { interface, address })
    }
}

/// The link of a test's device.
struct FixedLink {
    news: EventFd,
    is_active: AtomicBool,
}

impl LinkWatch for Arc<FixedLink> {
    fn look(&self) -> Result<bool> {
        // An error means that there is no news.
        let _ = self.news.read();
        Ok(self.is_active.load(Ordering::Relaxed))
    }
}

impl AsFd for FixedLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }
}
